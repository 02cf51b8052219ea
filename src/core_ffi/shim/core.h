/* The border between Rust and the unchanged C core: one slot per process, called by one thread.
 *
 * Rust calls C; C never calls Rust. A virtual connection stands for a client session: it has no kernel
 * descriptor, and its bytes are lent by the caller for the time of one core_run. Everything that the core
 * wants to tell later (a job for a waiting client, a timeout) is a connection in the touched list.
 * Functions that can fail return 0 on success. Times are nanoseconds of the core's own clock (clock.c). */
#ifndef TRELLIS_CORE_H
#define TRELLIS_CORE_H

#include <stddef.h>
#include <stdint.h>

typedef struct core_conn core_conn;

/* Ids stay below: a JavaScript client holds every integer up to here exactly, none beyond. */
#define CORE_ID_END ((uint64_t)1 << 53)

/* A place in the log. */
typedef struct core_wal_place {
    uint32_t file, offset;
} core_wal_place;

/* What a slot is started with. Strings are borrowed for the process's life. */
typedef struct core_options {
    uint32_t slot, slots;       /* ids are handed out congruent to slot modulo slots */
    uint64_t id_floor;          /* no id below this one is handed out */
    int64_t clock_offset;       /* added to CLOCK_MONOTONIC to give the core's clock */
    int has_default;            /* 1: this slot owns the tube "default" */
    const char *wal_dir;        /* NULL: no log */
    int wal_file_bytes;
    uint64_t wal_seed;          /* of the checksums in this directory */
    core_wal_place wal_end;     /* behind the last record in it; file 0: there is none */
    const char *falloc_pattern; /* tests only: "1,0,1" lets the n-th file be made or fail with ENOSPC */
} core_options;

/* Counters of the whole slot; names and order follow the reply to `stats`. */
typedef struct core_stats {
    uint64_t jobs_urgent, jobs_ready, jobs_reserved, jobs_delayed, jobs_buried;
    uint64_t cmd_put, cmd_peek, cmd_peek_ready, cmd_peek_delayed, cmd_peek_buried;
    uint64_t cmd_reserve, cmd_reserve_with_timeout, cmd_delete, cmd_release, cmd_use, cmd_watch, cmd_ignore;
    uint64_t cmd_bury, cmd_kick, cmd_touch, cmd_stats_job, cmd_stats_tube, cmd_pause_tube;
    uint64_t job_timeouts, total_jobs, tubes, waiting;
    uint64_t wal_oldest, wal_current, wal_migrated, wal_written;
    uint64_t wal_files, wal_bytes, wal_bytes_live; /* room on disk, and of it what is needed */
    uint64_t wal_refused; /* puts and changes that found no room */
    uint64_t last_id;
} core_stats;

/* Numbers of one tube; those that `stats-tube` has. */
typedef struct core_tube_stats {
    uint64_t jobs_ready, jobs_reserved, jobs_delayed, jobs_buried;
    uint64_t using_clients, watching_clients, waiting_clients;
    uint64_t total_jobs, pauses;
} core_tube_stats;

/* Why core_run returned. */
enum {
    CORE_NEED_INPUT = 0, /* between commands or inside one; all input was consumed */
    CORE_WAITING = 1,    /* in reserve; input may be left */
    CORE_OUTPUT_FULL = 2,/* a reply is pending and there was no room for (the rest of) it */
    CORE_CLOSED = 3      /* the core gave the connection up; call core_conn_close */
};

typedef struct core_result {
    size_t consumed;     /* bytes of input taken */
    size_t produced;     /* bytes of output written */
    uint32_t replies;    /* replies completed */
    int status;          /* CORE_* */
} core_result;

/* Why a waiting reserve is ended from outside. */
enum { CORE_CANCEL_TIMED_OUT = 0, CORE_CANCEL_DEADLINE_SOON = 1 };

/* Life of the slot. core_start replays the log. 0, or an errno, or below 0 what the core would have exited
 * with (-10: log directory locked; -1, -50): the process is then good for nothing but to take the lines and to
 * leave. */
int core_start(const core_options *options);
void core_drain(void);

/* What the core had to say since it was last asked: 1: filled in, 0: nothing more. */
typedef struct core_line {
    const char *text; /* stays until the core is called again; NULL: these many were different ones, not kept */
    uint64_t times;   /* how often it was said */
} core_line;

int core_next_line(core_line *line);

/* Time. core_tick does what is due and returns how long nothing more will be. */
void core_clock_refresh(void);
int64_t core_tick(void);

/* Virtual connections. A name of NULL parks: no tube, no count. */
core_conn *core_conn_open(uint64_t tag, const char *use, const char *watch);
void core_conn_close(core_conn *conn);
int core_conn_use(core_conn *conn, const char *name);
int core_conn_watch(core_conn *conn, const char *name);
void core_conn_park_watch(core_conn *conn);
void core_conn_cancel(core_conn *conn, int reason);
void core_conn_half_close(core_conn *conn); /* no reserve of it waits any more */
int64_t core_conn_deadline(const core_conn *conn); /* soonest end of a reservation, 0: holds none */
uint64_t core_conn_tag(const core_conn *conn);
void core_run(core_conn *conn, const uint8_t *in, size_t in_len, uint8_t *out, size_t out_len,
              core_result *result);
core_conn *core_next_touched(void);

/* Numbers and names. */
uint64_t core_next_id(void); /* one above the highest id handed out or read from the log */
void core_stats_read(core_stats *stats);
size_t core_tube_count(void);
const char *core_tube_name(size_t index);
void core_tube_stats_read(size_t index, core_tube_stats *stats); /* all zero: no such tube */

/* The log. What a batch logs is gathered and leaves in one write (core_wal_flush); syncing, and what must
 * wait for it, is the caller's: closes and unlinks come out as chores, in order. */
enum { CORE_WAL_CLOSE = 0, CORE_WAL_UNLINK = 1, CORE_WAL_SYNC_DIR = 2 };

typedef struct core_wal_chore {
    int kind;       /* CORE_WAL_* */
    int fd;         /* CLOSE: owned by the caller now */
    char *path;     /* UNLINK: owned by the caller now, freed with core_wal_chore_free */
} core_wal_chore;

int core_wal_flush(void);   /* 0, or an errno: the slot must stop without releasing a reply */
int core_wal_written_fd(void); /* the file that got records since the last call, -1: none */
int core_wal_next_chore(core_wal_chore *chore); /* 1: filled in, 0: none left */
void core_wal_chore_free(core_wal_chore *chore);

/* Each record says how far the log was surely on disk when it was written. */
void core_wal_end(core_wal_place *place); /* behind all records */
void core_wal_synced(const core_wal_place *place); /* all in front of it is on disk */

#endif
