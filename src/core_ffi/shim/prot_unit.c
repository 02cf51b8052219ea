/* prot.c, the protocol engine and scheduler, with its descriptors virtual, and the functions of core.h that
 * need its statics.
 *
 * Some external functions that the engine calls are replaced by those of prot_mends.h. */
#include "core.h"
#include "shim.h"

#include <errno.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* dat.h, read below, declares the replacements under their new names. */
#define exit core_exit
#define read core_read
#define write core_write
#define writev core_writev
#define close core_close
#define make_job_with_id mend_make_job
#define job_find mend_job_find
#define connsched mend_connsched
#define conndeadlinesoon mend_conndeadlinesoon
#define walresvput mend_walresvput
#define walresvupdate mend_walresvupdate
#define walwrite mend_walwrite
#define walmaint mend_walmaint
#define job_list_remove mend_job_list_remove
#define job_list_insert mend_job_list_insert
#define heapinsert count_heapinsert
#define heapremove count_heapremove
#include "prot.c"
#undef exit
#undef read
#undef write
#undef writev
#undef close
#undef make_job_with_id
#undef job_find
#undef connsched
#undef conndeadlinesoon
#undef walresvput
#undef walresvupdate
#undef walwrite
#undef walmaint
#undef job_list_remove
#undef job_list_insert
#undef heapinsert
#undef heapremove

/* The originals, whose declarations went to the replacements. */
Job *make_job_with_id(uint pri, int64 delay, int64 ttr, int body_size, Tube *tube, uint64 id);
Job *job_find(uint64 id);
void connsched(Conn *c);
int conndeadlinesoon(Conn *c);
int walresvput(Wal *w, Job *j);
int walresvupdate(Wal *w);
int walwrite(Wal *w, Job *j);
Job *job_list_remove(Job *j);
void job_list_insert(Job *head, Job *j);
int heapinsert(Heap *h, void *x);
void *heapremove(Heap *h, size_t k);

struct core_conn {
    Conn *c;
    uint64_t tag;
    core_conn *prev, *next; /* in the touched list while touched */
    bool touched;
    bool parked_watch;      /* the parking tube is in its watch list */
};

/* The tube that parked connections use and watch. It is in no list of tubes, so that no client, count or
 * scan ever meets it. */
static Tube *parking;

static uint32_t id_slot, id_slots = 1;
static uint64_t id_floor;
static uint64_t delayed_count;
static int64_t tubes_due; /* no delay and no pause ends before */
static bool replaying;

/* ---- the connection that runs, and the bytes lent for it ---- */

static core_conn *running;
static const uint8_t *in, *in_end;
static uint8_t *out, *out_start, *out_end;

static core_conn touched = {.prev = &touched, .next = &touched};

static core_conn *
shell(const Conn *c)
{
    return c->sock.x;
}

static void
touch(core_conn *conn)
{
    if (conn == running || conn->touched)
        return;
    conn->touched = true;
    conn->prev = touched.prev;
    conn->next = &touched;
    conn->prev->next = conn->next->prev = conn;
}

static void
untouch(core_conn *conn)
{
    if (!conn->touched)
        return;
    conn->touched = false;
    conn->prev->next = conn->next;
    conn->next->prev = conn->prev;
}

core_conn *
core_next_touched(void)
{
    if (touched.next == &touched)
        return NULL;
    core_conn *conn = touched.next;
    untouch(conn);
    return conn;
}

/* Gives the engine a command line at a time, so that a body behind it is read straight into the job. How
 * input is cut means nothing to the engine. */
ssize_t
core_read(int fd, void *buf, size_t n)
{
    if (fd != VIRTUAL_FD)
        return read(fd, buf, n);
    size_t left = in_end - in;
    if (!left) {
        errno = EAGAIN;
        return -1;
    }
    if (n > left)
        n = left;
    if (running->c->state == STATE_WANT_COMMAND) {
        const uint8_t *eol = memchr(in, '\n', n);
        if (eol)
            n = eol + 1 - in;
    }
    memcpy(buf, in, n);
    in += n;
    return n;
}

static ssize_t
full(void)
{
    errno = EAGAIN;
    return -1;
}

ssize_t
core_write(int fd, const void *buf, size_t n)
{
    UNUSED_PARAMETER(fd);
    struct iovec iov = {.iov_base = (void *)buf, .iov_len = n};
    return core_writev(fd, &iov, 1);
}

/* A reply that would fit in an empty buffer is not begun at the end of one: its line and its body leave
 * together. */
ssize_t
core_writev(int fd, const struct iovec *iov, int count)
{
    UNUSED_PARAMETER(fd);
    size_t total = 0, done = 0, room = out_end - out;
    for (int i = 0; i < count; i++)
        total += iov[i].iov_len;
    if (!room || (total > room && out != out_start))
        return full();
    for (int i = 0; i < count && room; i++) {
        size_t n = iov[i].iov_len < room ? iov[i].iov_len : room;
        memcpy(out, iov[i].iov_base, n);
        out += n;
        room -= n;
        done += n;
    }
    return done;
}

int
core_close(int fd)
{
    return fd == VIRTUAL_FD ? 0 : close(fd);
}

#include "prot_mends.h"

/* ---- running a connection ---- */

/* S2: a bury or release that found no space leaves the job with its client and as it was, as its reply says. */
static void
restore_reservation(Conn *c)
{
    Job *j = unreserved;
    if (!j || j->reserver || j->r.state != Reserved)
        return;
    job_list_insert(&c->reserved_jobs, j);
    j->reserver = c;
    j->r.pri = unreserved_pri;
    c->soonest_job = NULL;
    global_stat.reserved_ct++;
    j->tube->stat.reserved_ct++;
}

/* W12: a release without delay is logged too, so that priority and counts survive a restart. */
static void
log_release(Conn *c)
{
    Job *j = found;
    if (!c->srv->wal.use || !j || !j->file || j->r.state == Delayed)
        return;
    int z = walresvupdate(&c->srv->wal);
    if (!z)
        return; /* no space: as stock, the release holds until a restart */
    j->walresv += z;
    mend_walwrite(&c->srv->wal, j);
    mend_walmaint(&c->srv->wal);
}

static bool
starts(const Conn *c, const char *word)
{
    return strncmp(c->cmd, word, strlen(word)) == 0;
}

static void
settle(Conn *c)
{
    if (refused) {
        job_free(refused); /* S1 */
        refused = NULL;
    }
    if (no_space) {
        restore_reservation(c);
        no_space = false;
    }
}

/* Ends the watch list's parking once it holds a real tube. */
static void
unpark_watch(core_conn *conn)
{
    if (conn->parked_watch && conn->c->watch.len > 1) {
        ms_remove(&conn->c->watch, parking);
        conn->parked_watch = false;
    }
}

/* S3: runs a kick or kick-job, which ends early where an update finds no space. */
static void
dispatch_kick(Conn *c)
{
    updates = 0;
    kicking = true;
    if (!setjmp(kick_stop))
        dispatch_cmd(c);
    else if (starts(c, CMD_KICKJOB))
        reply_serr(c, MSG_OUT_OF_MEMORY);
    else
        reply_line(c, STATE_SEND_WORD, "KICKED %u\r\n", updates);
    kicking = false;
}

static void
dispatch(core_conn *conn)
{
    Conn *c = conn->c;
    bool release = c->cmd[0] == 'r' && starts(c, CMD_RELEASE);

    found = unreserved = NULL;
    if (c->cmd[0] == 'p' && starts(c, CMD_PAUSE_TUBE))
        tubes_due = 0; /* the next tick finds out */
    if (c->cmd[0] == 'k' && (starts(c, CMD_KICK) || starts(c, CMD_KICKJOB)))
        dispatch_kick(c);
    else
        dispatch_cmd(c);
    fill_extra_data(c);
    if (release && !no_space && c->state == STATE_SEND_WORD && c->reply[0] == 'R')
        log_release(c);
    settle(c);
    unpark_watch(conn);
}

static bool
wants_input(const Conn *c)
{
    switch (c->state) {
    case STATE_WANT_COMMAND:
    case STATE_WANT_ENDLINE:
    case STATE_WANT_DATA:
    case STATE_BITBUCKET:
        return true;
    default:
        return false;
    }
}

static bool
sends(const Conn *c)
{
    return c->state == STATE_SEND_WORD || c->state == STATE_SEND_JOB;
}

void
core_run(core_conn *conn, const uint8_t *input, size_t in_len, uint8_t *output, size_t out_len,
         core_result *result)
{
    Conn *c = conn->c;
    running = conn;
    in = input;
    in_end = input + in_len;
    out = out_start = output;
    out_end = output + out_len;
    result->replies = 0;

    for (;;) {
        if (wants_input(c)) {
            if (in == in_end) {
                result->status = CORE_NEED_INPUT;
                break;
            }
            conn_process_io(c);
            while (cmd_data_ready(c) && (c->cmd_len = scan_line_end(c->cmd, c->cmd_read)))
                dispatch(conn);
            settle(c); /* a put whose body has come may have been refused */
        } else if (sends(c)) {
            conn_process_io(c);
            if (sends(c)) {
                result->status = CORE_OUTPUT_FULL;
                break;
            }
            result->replies++;
        } else if (c->state == STATE_WAIT && c->halfclosed) {
            conn_process_io(c);
        } else if (c->state == STATE_WAIT) {
            result->status = CORE_WAITING;
            break;
        } else {
            result->status = CORE_CLOSED;
            break;
        }
    }
    result->consumed = in - input;
    result->produced = out - output;
    epollq = NULL;
    running = NULL;
}

void
core_conn_cancel(core_conn *conn, int reason)
{
    Conn *c = conn->c;
    if (!conn_waiting(c))
        return; /* the assignment came first and wins */
    c->pending_timeout = -1;
    remove_waiting_conn(c);
    if (reason == CORE_CANCEL_DEADLINE_SOON)
        reply_msg(c, MSG_DEADLINE_SOON);
    else
        reply_msg(c, MSG_TIMED_OUT);
}

void
core_conn_half_close(core_conn *conn)
{
    conn->c->halfclosed = 1;
    core_conn_cancel(conn, CORE_CANCEL_TIMED_OUT);
}

/* C4: the engine's tick looks at every tube, twice. While nothing is due it would only say how long that stays
 * so, which is known: no job's delay and no tube's pause ends before `tubes_due`, and the heap of connections
 * has their soonest on top. */
int64_t
core_tick(void)
{
    int64_t now = nanoseconds(), due = tubes_due;
    epollq = NULL;
    if (srv.conns.len) {
        const Conn *soonest = srv.conns.data[0];
        due = min(due, soonest->tickat);
    }
    if (due > now)
        return due - now;
    tubes_due = INT64_MAX;
    int64_t period = prottick(&srv);
    epollq = NULL;
    tubes_due = min(tubes_due, now + period);
    return period;
}

/* ---- connections ---- */

core_conn *
core_conn_open(uint64_t tag, const char *use, const char *watch)
{
    core_conn *conn = new (core_conn);
    Tube *u = NULL, *w = NULL;
    if (!conn)
        return NULL;
    TUBE_ASSIGN(u, use ? tube_find_or_make(use) : parking);
    TUBE_ASSIGN(w, watch ? tube_find_or_make(watch) : parking);
    Conn *c = u && w ? make_conn(VIRTUAL_FD, STATE_WANT_COMMAND, u, w) : NULL;
    TUBE_ASSIGN(u, NULL);
    TUBE_ASSIGN(w, NULL);
    if (!c) {
        free(conn);
        return NULL;
    }
    c->srv = &srv;
    c->sock.fd = VIRTUAL_FD;
    c->sock.x = conn;
    conn->c = c;
    conn->tag = tag;
    conn->parked_watch = !watch;
    return conn;
}

void
core_conn_close(core_conn *conn)
{
    untouch(conn);
    running = conn; /* its own end is no news */
    connclose(conn->c);
    running = NULL;
    epollq = NULL;
    free(conn);
}

int
core_conn_use(core_conn *conn, const char *name)
{
    Conn *c = conn->c;
    Tube *t = NULL;
    TUBE_ASSIGN(t, name ? tube_find_or_make(name) : parking);
    if (!t)
        return ENOMEM;
    c->use->using_ct--;
    TUBE_ASSIGN(c->use, t);
    c->use->using_ct++;
    TUBE_ASSIGN(t, NULL);
    return 0;
}

int
core_conn_watch(core_conn *conn, const char *name)
{
    Conn *c = conn->c;
    Tube *t = NULL;
    int r = 1;
    TUBE_ASSIGN(t, tube_find_or_make(name));
    if (!t)
        return ENOMEM;
    if (!ms_contains(&c->watch, t))
        r = ms_append(&c->watch, t);
    TUBE_ASSIGN(t, NULL);
    unpark_watch(conn);
    return r ? 0 : ENOMEM;
}

/* Lets the next `ignore` empty the watch list: the parking tube stands in for what is watched elsewhere. */
void
core_conn_park_watch(core_conn *conn)
{
    if (!conn->parked_watch && ms_append(&conn->c->watch, parking))
        conn->parked_watch = true;
}

int64_t
core_conn_deadline(const core_conn *conn)
{
    Job *j = connsoonestjob(conn->c);
    return j ? j->r.deadline_at : 0;
}

uint64_t
core_conn_tag(const core_conn *conn)
{
    return conn->tag;
}

/* ---- the slot ---- */

static jmp_buf gave_up;
static bool starting;
static int exit_code;

/* The core ends the process at its start only: here its caller does, who can tell why. */
void
core_exit(int code)
{
    if (!starting)
        exit(code);
    exit_code = code;
    longjmp(gave_up, 1);
}

static int
start(const core_options *o)
{
    progname = "core";
    core_clock_start(o->clock_offset);
    id_slot = o->slot;
    id_slots = o->slots;
    id_floor = o->id_floor;
    srv.conns.less = conn_less;
    srv.conns.setpos = conn_setpos;

    prot_init();
    if (!default_tube || !(parking = make_tube("-")))
        return ENOMEM;
    tube_iref(parking);
    if (!o->has_default)
        TUBE_ASSIGN(default_tube, NULL);

    /* W3, W4: what was accepted once is read back whatever the limit is now; the frontend holds the asked
     * limit against new jobs. The stored size includes the CR LF. */
    job_data_size_limit = (size_t)JOB_DATA_SIZE_LIMIT_MAX + 2;
    wal_io_start(o->falloc_pattern);
    wal_sum_start(o->wal_seed, o->wal_end);
    if (o->wal_dir) {
        srv.wal.dir = (char *)o->wal_dir;
        srv.wal.use = 1;
        srv.wal.filesize = o->wal_file_bytes;
        srv.wal.wantsync = 0; /* the caller syncs */
        replaying = true;
        srv_acquire_wal(&srv);
        replaying = false;
    }
    epollq = NULL;
    return 0;
}

int
core_start(const core_options *o)
{
    int r;
    starting = true;
    if (setjmp(gave_up))
        r = -exit_code;
    else
        r = start(o);
    starting = false;
    return r;
}

void
core_drain(void)
{
    enter_drain_mode(SIGUSR1);
}

void
core_stats_read(core_stats *s)
{
    s->jobs_urgent = global_stat.urgent_ct;
    s->jobs_ready = ready_ct;
    s->jobs_reserved = global_stat.reserved_ct;
    s->jobs_delayed = delayed_count;
    s->jobs_buried = global_stat.buried_ct;
    s->cmd_put = op_ct[OP_PUT];
    s->cmd_peek = op_ct[OP_PEEKJOB];
    s->cmd_peek_ready = op_ct[OP_PEEK_READY];
    s->cmd_peek_delayed = op_ct[OP_PEEK_DELAYED];
    s->cmd_peek_buried = op_ct[OP_PEEK_BURIED];
    s->cmd_reserve = op_ct[OP_RESERVE];
    s->cmd_reserve_with_timeout = op_ct[OP_RESERVE_TIMEOUT];
    s->cmd_delete = op_ct[OP_DELETE];
    s->cmd_release = op_ct[OP_RELEASE];
    s->cmd_use = op_ct[OP_USE];
    s->cmd_watch = op_ct[OP_WATCH];
    s->cmd_ignore = op_ct[OP_IGNORE];
    s->cmd_bury = op_ct[OP_BURY];
    s->cmd_kick = op_ct[OP_KICK];
    s->cmd_touch = op_ct[OP_TOUCH];
    s->cmd_stats_job = op_ct[OP_STATSJOB];
    s->cmd_stats_tube = op_ct[OP_STATS_TUBE];
    s->cmd_pause_tube = op_ct[OP_PAUSE_TUBE];
    s->job_timeouts = timeout_ct;
    s->total_jobs = global_stat.total_jobs_ct;
    s->tubes = tubes.len;
    s->waiting = global_stat.waiting_ct;
    s->wal_oldest = srv.wal.head ? srv.wal.head->seq : 0;
    s->wal_current = srv.wal.cur ? srv.wal.cur->seq : 0;
    s->wal_migrated = srv.wal.nmig;
    s->wal_written = srv.wal.nrec;
    s->wal_files = srv.wal.nfile;
    s->wal_bytes = (uint64_t)srv.wal.nfile * (uint64_t)srv.wal.filesize;
    s->wal_bytes_live = srv.wal.alive;
    s->wal_refused = wal_refused;
    s->last_id = core_next_id() - 1;
}

size_t
core_tube_count(void)
{
    return tubes.len;
}

const char *
core_tube_name(size_t index)
{
    return index < tubes.len ? ((Tube *)tubes.items[index])->name : NULL;
}

void
core_tube_stats_read(size_t index, core_tube_stats *s)
{
    memset(s, 0, sizeof *s);
    if (index >= tubes.len)
        return;
    Tube *t = tubes.items[index];
    s->jobs_ready = t->ready.len;
    s->jobs_reserved = t->stat.reserved_ct;
    s->jobs_delayed = t->delay.len;
    s->jobs_buried = t->stat.buried_ct;
    s->using_clients = t->using_ct;
    s->watching_clients = t->watching_ct;
    s->waiting_clients = t->stat.waiting_ct;
    s->total_jobs = t->stat.total_jobs_ct;
    s->pauses = t->stat.pause_ct;
}
