/* Preloaded into a server under test: notes each call that changes or syncs a log directory, with its data, so that
 * a test can work out what a disk may hold when the power fails.
 *
 * POWER_DIR    the directory, as the kernel names it
 * POWER_TRACE  a file that gets a record for each call that has succeeded
 * POWER_KILL   a number: the process kills itself behind so many noted writes,
 * POWER_ONCE   but only if it can remove this file
 *
 * A record: one byte for the call, then the length of the first name and of the second (2 bytes each), the offset or
 * length (8), the bytes of data (4), all in the machine's byte order; then names and data. Names are those in the
 * directory, empty for the directory itself. A record is one append behind the call, in the order of the calls. A sync
 * has one in front of it, too: what another thread does meanwhile it need not cover. Both have the same number, the
 * second has no name.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define ORIGINAL(type, name) type = (__typeof__(original))dlsym(RTLD_NEXT, name)

static const char *directory;
static int trace = -1;
static long writes_left;

__attribute__((constructor)) static void
start(void)
{
    const char *file = getenv("POWER_TRACE");
    directory = getenv("POWER_DIR");
    writes_left = getenv("POWER_KILL") ? atol(getenv("POWER_KILL")) : 0;
    if (file && directory)
        trace = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

/* Held over a call and its record, so that the order of the two is the same and no kill comes in between. */
static pthread_mutex_t order = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* The name in the directory; NULL: elsewhere, or unlinked. */
static const char *
inside(const char *path)
{
    size_t n = directory ? strlen(directory) : 0;
    if (trace < 0 || !n || strncmp(path, directory, n) != 0 || strstr(path, " (deleted)"))
        return NULL;
    if (!path[n])
        return path + n;
    return path[n] == '/' ? path + n + 1 : NULL;
}

static const char *
inside_fd(int fd, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX);
    if (n < 0)
        return NULL;
    path[n] = '\0';
    return inside(path);
}

/* With `order` held, but for syncs. */
static void
note(char call, const char *name, const char *other, uint64_t number, const void *data, uint32_t length)
{
    unsigned char head[17] = { call };
    uint16_t names[2] = { strlen(name), strlen(other) };
    memcpy(head + 1, names, sizeof names);
    memcpy(head + 5, &number, sizeof number);
    memcpy(head + 13, &length, sizeof length);
    struct iovec parts[] = {
        { head, sizeof head }, { (char *)name, names[0] }, { (char *)other, names[1] }, { (void *)data, length }
    };
    ssize_t whole = sizeof head + names[0] + names[1] + length;
    if (syscall(SYS_writev, trace, parts, 4) != whole)
        abort(); /* without this record all that follow would lie */
    if (call == 'w' && writes_left && --writes_left == 0
        && syscall(SYS_unlinkat, AT_FDCWD, getenv("POWER_ONCE"), 0) == 0)
        kill(getpid(), SIGKILL);
}

static void
note_fd(char call, int fd, uint64_t number, const void *data, uint32_t length)
{
    char path[PATH_MAX + 1];
    int before = errno;
    const char *name = inside_fd(fd, path);
    if (name)
        note(call, name, "", number, data, length);
    errno = before;
}

ssize_t
write(int fd, const void *buf, size_t n)
{
    static ssize_t (*original)(int, const void *, size_t);
    if (!original)
        ORIGINAL(original, "write");
    pthread_mutex_lock(&order);
    ssize_t r = original(fd, buf, n);
    if (r > 0) {
        int before = errno;
        off_t end = lseek(fd, 0, SEEK_CUR); /* -1: no file */
        errno = before;
        if (end >= r)
            note_fd('w', fd, end - r, buf, r);
    }
    pthread_mutex_unlock(&order);
    return r;
}

ssize_t
pwrite64(int fd, const void *buf, size_t n, off_t offset)
{
    static ssize_t (*original)(int, const void *, size_t, off_t);
    if (!original)
        ORIGINAL(original, "pwrite64");
    pthread_mutex_lock(&order);
    ssize_t r = original(fd, buf, n, offset);
    if (r > 0)
        note_fd('w', fd, offset, buf, r);
    pthread_mutex_unlock(&order);
    return r;
}

static int
sync_with(int (*original)(int), int fd)
{
    static uint64_t last;
    uint64_t number = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    char path[PATH_MAX + 1];
    const char *name = inside_fd(fd, path);
    if (name)
        note('b', name, "", number, "", 0);
    int r = original(fd);
    if (r == 0 && name)
        note('s', "", "", number, "", 0);
    return r;
}

int
fsync(int fd)
{
    static int (*original)(int);
    if (!original)
        ORIGINAL(original, "fsync");
    return sync_with(original, fd);
}

int
fdatasync(int fd)
{
    static int (*original)(int);
    if (!original)
        ORIGINAL(original, "fdatasync");
    return sync_with(original, fd);
}

int
ftruncate(int fd, off_t length)
{
    static int (*original)(int, off_t);
    if (!original)
        ORIGINAL(original, "ftruncate");
    pthread_mutex_lock(&order);
    int r = original(fd, length);
    if (r == 0)
        note_fd('t', fd, length, "", 0);
    pthread_mutex_unlock(&order);
    return r;
}

int
ftruncate64(int fd, off_t length)
{
    return ftruncate(fd, length);
}

int
unlink(const char *path)
{
    static int (*original)(const char *);
    if (!original)
        ORIGINAL(original, "unlink");
    const char *name = inside(path);
    pthread_mutex_lock(&order);
    int r = original(path);
    if (r == 0 && name)
        note('u', name, "", 0, "", 0);
    pthread_mutex_unlock(&order);
    return r;
}

int
rename(const char *from, const char *to)
{
    static int (*original)(const char *, const char *);
    if (!original)
        ORIGINAL(original, "rename");
    const char *old = inside(from), *new = inside(to);
    pthread_mutex_lock(&order);
    int r = original(from, to);
    if (r == 0 && old && new)
        note('r', old, new, 0, "", 0);
    pthread_mutex_unlock(&order);
    return r;
}

static int
opened(const char *function, const char *path, int flags, va_list more)
{
    int (*original)(const char *, int, ...);
    ORIGINAL(original, function);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    const char *name = inside(path);
    pthread_mutex_lock(&order);
    int there = name && access(path, F_OK) == 0;
    int fd = original(path, flags, mode);
    if (fd >= 0 && name && !there)
        note('c', name, "", 0, "", 0);
    else if (fd >= 0 && name && flags & O_TRUNC)
        note('t', name, "", 0, "", 0);
    pthread_mutex_unlock(&order);
    return fd;
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
