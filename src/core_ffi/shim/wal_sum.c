/* Checksums in the log, in bytes that its format leaves unused, so that the original reads it as its own.
 *
 * A job record has padding behind its priority, its body size and its state. Of each record that is written
 * they tell a checksum of all of it, its place and its body included, and how far the log was surely on disk
 * when it was written. A file whose records have them says so by its first record: a short one of an id that
 * no job has, which the original skips; it also says where the log ended before. What stock writes later, with
 * padding that it has read here, goes to files of its own, which have no such record. src/wal/seal.rs reads all this and says what it is good for. */
#include "core.h"
#include "shim.h"

#include "dat.h"

#include <assert.h>
#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Bytes of a job record that hold no field. */
enum {
    SUM_AT = 12,        /* four bytes of the checksum */
    SYNCED_AT = 36,     /* four bytes: offset up to which the log was on disk */
    FILES_BACK_AT = 77, /* in the file that is so many before this one */
    HEAD_SUM_AT = 78,   /* one byte of the checksum of all but the body: few others need their body read */
    END_AT = 79,        /* never zero, so that a record that was cut can't end in zeros of its own */
};
enum { END = 0xa5, FILES_BACK_UNKNOWN = 255 };

static_assert(SUM_AT == offsetof(Jobrec, pri) + sizeof(uint32), "padding behind pri");
static_assert(SUM_AT + 4 == offsetof(Jobrec, delay), "padding behind pri");
static_assert(SYNCED_AT == offsetof(Jobrec, body_size) + sizeof(int32), "padding behind body_size");
static_assert(SYNCED_AT + 4 == offsetof(Jobrec, created_at), "padding behind body_size");
static_assert(FILES_BACK_AT == offsetof(Jobrec, state) + 1, "padding behind state");
static_assert(END_AT + 1 == sizeof(Jobrec), "padding behind state");

/* The first record of a file: what is behind these is zero. */
struct mark {
    uint32_t name_length; /* 0: a short record */
    char id[8];
    uint64_t seed;
    uint64_t sum;         /* of id and seed, and of what follows if there is something */
    core_wal_place behind; /* the end of the record before this file's first one; file 0: there is none */
    char rest[WAL_MARK_BYTES - 36];
} __attribute__((packed));
static const char MARK_ID[8] = "trellis1";
static_assert(sizeof(struct mark) == WAL_MARK_BYTES && WAL_MARK_BYTES == sizeof(int) + sizeof(Jobrec), "a short record");

static uint64_t directory_seed;

static core_wal_place synced; /* all in front of it is on disk */
static bool synced_known;

static core_wal_place last_end; /* behind the last record; file 0: there is none */
static int marked;              /* the file that got its mark last */

/* ---- XXH64 ---- */

static const uint64_t P1 = 0x9e3779b185ebca87, P2 = 0xc2b2ae3d27d4eb4f, P3 = 0x165667b19e3779f9,
                      P4 = 0x85ebca77c2b2ae63, P5 = 0x27d4eb2f165667c5;

static uint64_t
rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static uint64_t
read_word(const unsigned char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return le64toh(word);
}

static uint64_t
mix(uint64_t lane, uint64_t word)
{
    return rotate(lane + word * P2, 31) * P1;
}

static uint64_t
hash(const void *bytes, size_t length, uint64_t seed)
{
    const unsigned char *p = bytes;
    size_t left = length;
    uint64_t h = seed + P5;
    if (left >= 32) {
        uint64_t lanes[4] = {seed + P1 + P2, seed + P2, seed, seed - P1};
        for (; left >= 32; p += 32, left -= 32)
            for (int i = 0; i < 4; i++)
                lanes[i] = mix(lanes[i], read_word(p + 8 * i));
        h = rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) + rotate(lanes[3], 18);
        for (int i = 0; i < 4; i++)
            h = (h ^ mix(0, lanes[i])) * P1 + P4;
    }
    h += length;
    for (; left >= 8; p += 8, left -= 8)
        h = rotate(h ^ mix(0, read_word(p)), 27) * P1 + P4;
    if (left >= 4) {
        uint32_t half;
        memcpy(&half, p, sizeof half);
        h = rotate(h ^ le32toh(half) * P1, 23) * P2 + P3;
        p += 4;
        left -= 4;
    }
    for (; left; p++, left--)
        h = rotate(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

/* ---- records ---- */

void
wal_sum_start(uint64_t seed, core_wal_place end)
{
    directory_seed = seed;
    last_end = end;
}

/* Each file has another, so that no record of one passes for one of another. */
static uint64_t
file_seed(const File *f)
{
    return directory_seed ^ (uint64_t)f->seq;
}

/* Behind what was written: what the core has neither left nor reserved, and the mark, of which it knows nothing. */
static uint64_t
end_of(const File *f)
{
    return (int64)f->w->filesize - f->free - f->resv + WAL_MARK_BYTES;
}

void
wal_sum_open(File *f)
{
    int written = wal_io_written;
    filewopen(f);
    wal_io_written = written; /* its version is no record: the one before it must not miss its sync for it */
}

/* Right in front of the file's first record, for files are made before the one in use is full. */
static void
write_mark(const File *f)
{
    struct mark mark = {.seed = file_seed(f), .behind = last_end};
    memcpy(mark.id, MARK_ID, sizeof mark.id);
    mark.sum = hash(mark.id, sizeof mark.id + sizeof mark.seed, 0);
    if (last_end.file)
        mark.sum = hash(&last_end, sizeof last_end, mark.sum);
    wal_io_write(f->fd, &mark, sizeof mark);
    marked = f->seq;
}

/* Fills in the padding of the job's record as it is about to be written. */
static void
seal(const File *f, Job *j, bool full)
{
    unsigned char *r = (unsigned char *)&j->r, head[sizeof(uint64_t) + sizeof(int) + MAX_TUBE_NAME_LEN + sizeof j->r];
    int name_length = full ? strlen(j->tube->name) : 0;
    uint64_t at = end_of(f);
    int back = synced_known ? f->seq - (int)synced.file : FILES_BACK_UNKNOWN;
    uint32_t offset = synced.offset;

    memset(r + SUM_AT, 0, 4);
    memcpy(r + SYNCED_AT, &offset, sizeof offset);
    r[FILES_BACK_AT] = back < FILES_BACK_UNKNOWN ? back : FILES_BACK_UNKNOWN;
    r[HEAD_SUM_AT] = 0;
    r[END_AT] = END;

    unsigned char *p = head;
    memcpy(p, &at, sizeof at);
    p += sizeof at;
    memcpy(p, &name_length, sizeof name_length);
    p += sizeof name_length;
    memcpy(p, j->tube->name, name_length);
    p += name_length;
    memcpy(p, r, sizeof j->r);
    p += sizeof j->r;
    uint64_t sum = hash(head, p - head, file_seed(f));
    r[HEAD_SUM_AT] = sum >> 56;
    if (full)
        sum = hash(j->body, j->r.body_size, sum);

    uint32_t low = sum;
    memcpy(r + SUM_AT, &low, sizeof low);
}

static int
write_record(File *f, Job *j, bool full)
{
    if (f->seq != marked)
        write_mark(f);
    seal(f, j, full);
    int done = full ? filewrjobfull(f, j) : filewrjobshort(f, j);
    last_end = (core_wal_place){.file = f->seq, .offset = end_of(f)};
    return done;
}

int
wal_sum_full(File *f, Job *j)
{
    return write_record(f, j, true);
}

int
wal_sum_short(File *f, Job *j)
{
    return write_record(f, j, false);
}

/* ---- what is on disk ---- */

void
core_wal_end(core_wal_place *place)
{
    uint64_t end = end_of(srv.wal.cur);
    place->file = srv.wal.cur->seq;
    place->offset = end > sizeof(int) + WAL_MARK_BYTES ? end : 0; /* a head alone is not synced */
}

void
core_wal_synced(const core_wal_place *place)
{
    synced = *place;
    synced_known = true;
}
