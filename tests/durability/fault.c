/* Preloaded into a server or a tool under test: counts its calls on files, and at one of them something happens.
 *
 * FAULT_PATH   part of the path: only calls on such files count, in each process for itself
 * FAULT_CALL   which calls count: write, fsync, unlink, create, truncate, rename, or any
 * FAULT_AT     at which of them, from 1 on
 * FAULT_DO     kill (SIGKILL in place of the call), after (SIGKILL behind it), half (SIGKILL behind half of a
 *              write), a path (waits until that FIFO was opened for writing and closed again), or the number of an
 *              errno with which it fails; with a plus behind it, as each later one does
 * FAULT_ONCE   a file that must not exist, and is made: the fault happens in one process only
 * FAULT_TRACE  a file that gets a line for each call on a file: "pid call name bytes"
 * FAULT_CLOCK  while this file exists the wall clock is an hour back
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define ORIGINAL(type, name) type = (__typeof__(original))dlsym(RTLD_NEXT, name)

static const char *path_part, *call_name, *action, *once_file, *clock_file;
static long at, seen;
static int trace = -1;

__attribute__((constructor)) static void
start(void)
{
    path_part = getenv("FAULT_PATH");
    call_name = getenv("FAULT_CALL");
    action = getenv("FAULT_DO");
    once_file = getenv("FAULT_ONCE");
    clock_file = getenv("FAULT_CLOCK");
    at = getenv("FAULT_AT") ? atol(getenv("FAULT_AT")) : 0;
    if (getenv("FAULT_TRACE"))
        trace = syscall(SYS_openat, AT_FDCWD, getenv("FAULT_TRACE"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

static void
die(void)
{
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;)
        pause();
}

/* What is to happen at this call: nothing (NULL) or the action. */
static const char *
happens(const char *call, const char *path, size_t bytes)
{
    if (!path_part || !strstr(path, path_part))
        return NULL;
    if (trace >= 0) {
        char line[PATH_MAX + 64];
        const char *name = strrchr(path, '/');
        int n = snprintf(line, sizeof line, "%d %s %s %zu\n", getpid(), call, name ? name + 1 : path, bytes);
        syscall(SYS_write, trace, line, n);
    }
    if (!at || !call_name || (strcmp(call_name, call) != 0 && strcmp(call_name, "any") != 0))
        return NULL;
    long now = __atomic_add_fetch(&seen, 1, __ATOMIC_SEQ_CST);
    if (now > at && strchr(action, '+'))
        return action;
    if (now != at)
        return NULL;
    if (once_file && syscall(SYS_openat, AT_FDCWD, once_file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644) < 0)
        return NULL;
    return action;
}

static const char *
happens_on(const char *call, int fd, size_t bytes)
{
    char link[64], path[PATH_MAX + 1];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX);
    errno = before;
    if (n < 0)
        return NULL;
    path[n] = '\0';
    return happens(call, path, bytes);
}

/* 1: the call fails with errno set. Does not return if the process dies before the call. */
static int
fails(const char *what)
{
    if (!what)
        return 0;
    if (strcmp(what, "kill") == 0)
        die();
    if (*what == '/') {
        char byte;
        int fd = syscall(SYS_openat, AT_FDCWD, what, O_RDONLY | O_CLOEXEC);
        while (syscall(SYS_read, fd, &byte, 1) > 0)
            ;
        syscall(SYS_close, fd);
        return 0;
    }
    if (atoi(what)) {
        errno = atoi(what);
        return 1;
    }
    return 0;
}

static void
behind(const char *what)
{
    if (what && (strcmp(what, "after") == 0 || strcmp(what, "half") == 0))
        die();
}

#define WRAP(call, what, original, ...)      \
    do {                                     \
        const char *what_ = (what);          \
        if (fails(what_))                    \
            return -1;                       \
        long r_ = (original)(__VA_ARGS__);   \
        behind(what_);                       \
        return r_;                           \
    } while (0)

ssize_t
write(int fd, const void *buf, size_t n)
{
    static ssize_t (*original)(int, const void *, size_t);
    if (!original)
        ORIGINAL(original, "write");
    const char *what = happens_on("write", fd, n);
    if (fails(what))
        return -1;
    ssize_t r = original(fd, buf, what && strcmp(what, "half") == 0 ? n / 2 : n);
    behind(what);
    return r;
}

ssize_t
pwrite64(int fd, const void *buf, size_t n, off_t offset)
{
    static ssize_t (*original)(int, const void *, size_t, off_t);
    if (!original)
        ORIGINAL(original, "pwrite64");
    WRAP("write", happens_on("write", fd, n), original, fd, buf, n, offset);
}

int
fsync(int fd)
{
    static int (*original)(int);
    if (!original)
        ORIGINAL(original, "fsync");
    WRAP("fsync", happens_on("fsync", fd, 0), original, fd);
}

int
fdatasync(int fd)
{
    static int (*original)(int);
    if (!original)
        ORIGINAL(original, "fdatasync");
    WRAP("fsync", happens_on("fsync", fd, 0), original, fd);
}

int
unlink(const char *path)
{
    static int (*original)(const char *);
    if (!original)
        ORIGINAL(original, "unlink");
    WRAP("unlink", happens("unlink", path, 0), original, path);
}

int
ftruncate(int fd, off_t length)
{
    static int (*original)(int, off_t);
    if (!original)
        ORIGINAL(original, "ftruncate");
    WRAP("truncate", happens_on("truncate", fd, length), original, fd, length);
}

int
ftruncate64(int fd, off_t length)
{
    return ftruncate(fd, length);
}

int
rename(const char *from, const char *to)
{
    static int (*original)(const char *, const char *);
    if (!original)
        ORIGINAL(original, "rename");
    WRAP("rename", happens("rename", to, 0), original, from, to);
}

int
renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    static int (*original)(int, const char *, int, const char *, unsigned);
    if (!original)
        ORIGINAL(original, "renameat2");
    WRAP("rename", happens("rename", to, 0), original, from_fd, from, to_fd, to, flags);
}

int
mkdir(const char *path, mode_t mode)
{
    static int (*original)(const char *, mode_t);
    if (!original)
        ORIGINAL(original, "mkdir");
    WRAP("create", happens("create", path, 0), original, path, mode);
}

static int
opened(const char *name, const char *path, int flags, va_list more)
{
    int (*original)(const char *, int, ...);
    ORIGINAL(original, name);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    if (!(flags & O_CREAT) || access(path, F_OK) == 0)
        return original(path, flags, mode);
    WRAP("create", happens("create", path, 0), original, path, flags, mode);
}

int
open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int fd = opened("open", path, flags, more);
    va_end(more);
    return fd;
}

int
open64(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int fd = opened("open64", path, flags, more);
    va_end(more);
    return fd;
}

static long
shift(void)
{
    int before = errno;
    long seconds = clock_file && syscall(SYS_faccessat, AT_FDCWD, clock_file, F_OK) == 0 ? 3600 : 0;
    errno = before;
    return seconds;
}

int
clock_gettime(clockid_t id, struct timespec *t)
{
    int r = syscall(SYS_clock_gettime, id, t);
    if (r == 0 && id == CLOCK_REALTIME)
        t->tv_sec -= shift();
    return r;
}

int
gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}
