/* What the unit files share among themselves; Rust sees core.h only. Leaves out the core's own dat.h, which
 * has no include guard: each vendored file brings it, and our own files include it themselves. */
#ifndef TRELLIS_SHIM_H
#define TRELLIS_SHIM_H

#include "core.h"

#include <stddef.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/uio.h>

/* The descriptor of every virtual connection. Not 0, which the core takes for "closed", and above any
 * descriptor the kernel hands out. */
enum { VIRTUAL_FD = 1 << 30 };

/* clock.c */
void core_clock_start(int64_t clock_offset);

/* lines.c: what the core prints on stderr; `to` is not looked at */
int lines_fprintf(FILE *to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int lines_vfprintf(FILE *to, const char *fmt, va_list args) __attribute__((format(printf, 2, 0)));
int lines_fputc(int c, FILE *to);

/* prot_unit.c: the core's exit while it starts, which core_start hands to its caller */
void core_exit(int code) __attribute__((noreturn));

/* conn_unit.c and prot_unit.c: descriptors of the protocol engine */
ssize_t core_read(int fd, void *buf, size_t n);
ssize_t core_write(int fd, const void *buf, size_t n);
ssize_t core_writev(int fd, const struct iovec *iov, int n);
int core_close(int fd);

/* wal_io.c: the log's writes, gathered until the batch ends */
void wal_io_start(const char *falloc_pattern);
int wal_io_falloc(int fd, int len);
ssize_t wal_io_read(int fd, void *buf, size_t n);
ssize_t wal_io_write(int fd, const void *buf, size_t n);
int wal_io_truncate(int fd, off_t len);
int wal_io_close(int fd);
int wal_io_fsync(int fd);
int wal_io_unlink(const char *path);
extern int wal_io_written; /* the file that got records since core_wal_written_fd, -1: none */

/* wal_sum.c: checksums of what is written */
struct File;
struct Job;
enum { WAL_MARK_BYTES = 84 }; /* in each file, beside what the core counts */
void wal_sum_start(uint64_t seed, core_wal_place end);
void wal_sum_open(struct File *f);
int wal_sum_full(struct File *f, struct Job *j);
int wal_sum_short(struct File *f, struct Job *j);

/* walg_unit.c: moves jobs out of the oldest files while the log is more than thrice its live bytes */
struct Wal;
void wal_io_compact(struct Wal *w);

#endif
