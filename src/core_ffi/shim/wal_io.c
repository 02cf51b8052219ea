/* The log's descriptor calls. The core writes a record in four pieces, syncs in the middle of a command and
 * unlinks an old file before the moved record is written; here pieces are gathered until the batch ends,
 * and whatever must not happen before they are on file (closing, unlinking) becomes a chore for the caller. */
#define _GNU_SOURCE /* fallocate */
#include "core.h"
#include "shim.h"

#include "dat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A batch larger than this is written before its end: bounds memory, and one large job gains nothing from
 * being gathered. */
enum { GATHER_BYTES = 256 << 10 };

static unsigned char gathered[GATHER_BYTES];
static size_t gathered_len;
static int gathered_fd = -1;

static unsigned char ahead[64 << 10]; /* read from ahead_fd and not yet taken: from ahead_at to ahead_len */
static int ahead_fd = -1;
static size_t ahead_at, ahead_len;

int wal_io_written = -1;    /* got records since core_wal_written_fd */
static int failure;         /* errno of the first write that failed; never cleared */

struct chore {
    core_wal_chore c;
    struct chore *next;
};
static struct chore *chores, **chores_end = &chores;

static const char *falloc_pattern; /* what is left of it; NULL: no pattern */

void
wal_io_start(const char *pattern)
{
    falloc_pattern = pattern;
    falloc = wal_io_falloc;
}

static void
add_chore(int kind, int fd, char *path)
{
    struct chore *n = calloc(1, sizeof *n);
    if (!n) {
        failure = ENOMEM;
        return;
    }
    n->c.kind = kind;
    n->c.fd = fd;
    n->c.path = path;
    *chores_end = n;
    chores_end = &n->next;
}

int
core_wal_next_chore(core_wal_chore *out)
{
    struct chore *n = chores;
    if (!n)
        return 0;
    *out = n->c;
    chores = n->next;
    if (!chores)
        chores_end = &chores;
    free(n);
    return 1;
}

void
core_wal_chore_free(core_wal_chore *chore)
{
    free(chore->path);
    chore->path = NULL;
}

static void
write_all(int fd, const unsigned char *p, size_t n)
{
    while (n && !failure) {
        ssize_t r = write(fd, p, n);
        if (r == -1 && errno == EINTR)
            continue;
        if (r <= 0) {
            failure = r == 0 ? EIO : errno;
            return;
        }
        p += r;
        n -= r;
    }
}

int
core_wal_flush(void)
{
    if (gathered_len) {
        write_all(gathered_fd, gathered, gathered_len);
        gathered_len = 0;
    }
    if (!failure && srv.wal.dir && !srv.wal.use)
        failure = ENOSPC; /* the core turned its log off: it found no file to go on in */
    return failure;
}

int
core_wal_written_fd(void)
{
    int fd = wal_io_written;
    wal_io_written = -1;
    return fd;
}

/* Always says that all was written: a failure stops the slot at the end of the batch, before any reply. */
ssize_t
wal_io_write(int fd, const void *buf, size_t n)
{
    if (fd != gathered_fd || gathered_len + n > GATHER_BYTES)
        core_wal_flush();
    gathered_fd = wal_io_written = fd;
    if (n > GATHER_BYTES) {
        write_all(fd, buf, n);
    } else {
        memcpy(gathered + gathered_len, buf, n);
        gathered_len += n;
    }
    return n;
}

/* Replay reads a record in four pieces: here they come out of a buffer. Short at the end of the file only. */
ssize_t
wal_io_read(int fd, void *buf, size_t n)
{
    unsigned char *to = buf;
    size_t done = 0;
    if (fd != ahead_fd) {
        ahead_fd = fd;
        ahead_at = ahead_len = 0;
    }
    while (done < n) {
        size_t left = ahead_len - ahead_at, want = n - done;
        if (left) {
            size_t take = left < want ? left : want;
            memcpy(to + done, ahead + ahead_at, take);
            ahead_at += take;
            done += take;
            continue;
        }
        bool direct = want >= sizeof ahead;
        ssize_t r = direct ? read(fd, to + done, want) : read(fd, ahead, sizeof ahead);
        if (r == -1 && errno == EINTR)
            continue;
        if (r <= 0)
            return r == -1 && !done ? -1 : (ssize_t)done;
        if (direct) {
            done += r;
        } else {
            ahead_at = 0;
            ahead_len = r;
        }
    }
    return done;
}

int
wal_io_truncate(int fd, off_t len)
{
    if (fd == gathered_fd)
        core_wal_flush();
    return ftruncate(fd, len + WAL_MARK_BYTES);
}

int
wal_io_close(int fd)
{
    if (fd == ahead_fd)
        ahead_fd = -1;
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
        return close(fd); /* replayed: nothing waits for it, and there may be more of them than descriptors */
    if (fd == gathered_fd) {
        core_wal_flush();
        gathered_fd = -1;
    }
    if (fd == wal_io_written)
        wal_io_written = -1;
    add_chore(CORE_WAL_CLOSE, fd, NULL);
    return 0;
}

int
wal_io_fsync(int fd)
{
    UNUSED_PARAMETER(fd);
    return 0; /* the caller syncs, by what core_wal_written_fd says */
}

int
wal_io_unlink(const char *path)
{
    char *copy = strdup(path);
    if (!copy)
        failure = ENOMEM;
    else
        add_chore(CORE_WAL_UNLINK, -1, copy);
    return 0;
}

/* Room for the mark behind the file's own bytes. It does not change the size, where the file system has that. */
static int
falloc_mark(int fd, off_t size)
{
    static const unsigned char zeros[WAL_MARK_BYTES];
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, size, WAL_MARK_BYTES) == 0)
        return 0;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        return errno;
    ssize_t w = write(fd, zeros, sizeof zeros);
    return w == (ssize_t)sizeof zeros ? 0 : w == -1 ? errno : ENOSPC;
}

/* Gives a new file its zeros, as the core's own rawfalloc does but in larger writes: whole blocks of 4096.
 * Returns 0 or an errno, and leaves the offset at 0. */
int
wal_io_falloc(int fd, int len)
{
    static const unsigned char zeros[64 << 10];
    if (falloc_pattern) {
        char c = *falloc_pattern;
        falloc_pattern += c && falloc_pattern[1] == ',' ? 2 : !!c;
        if (c != '1')
            return ENOSPC;
    }
    off_t size = ((off_t)len + 4095) / 4096 * 4096, left = size;
    while (left > 0) {
        ssize_t w = write(fd, zeros, left < (off_t)sizeof zeros ? (size_t)left : sizeof zeros);
        if (w == -1 && errno == EINTR)
            continue;
        if (w <= 0)
            return w == 0 ? ENOSPC : errno;
        left -= w;
    }
    int r = falloc_mark(fd, size);
    if (r)
        return r;
    add_chore(CORE_WAL_SYNC_DIR, -1, NULL);
    return lseek(fd, 0, SEEK_SET) == -1 ? errno : 0;
}
