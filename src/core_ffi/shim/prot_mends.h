/* What the protocol engine calls in place of the originals, read into prot_unit.c behind prot.c. Each
 * replacement calls the original and mends a fault of it from outside; it names its row in the list of faults
 * (doc/differences.md). */

/* Ids are handed out congruent to the slot and never below the floor. At their end there is no job to be had,
 * as if there were no memory. */
Job *
mend_make_job(uint32 pri, int64 delay, int64 ttr, int body_size, Tube *tube, uint64 id)
{
    if (!id) {
        id = core_next_id() > id_floor ? core_next_id() : id_floor;
        id += (id_slot + id_slots - id % id_slots) % id_slots;
        if (id >= CORE_ID_END)
            return NULL;
    }
    return make_job_with_id(pri, delay, ttr, body_size, tube, id);
}

/* The job that the running command named. */
static Job *found;

/* C3: a job whose body is still coming can't be found. */
Job *
mend_job_find(uint64 id)
{
    Job *j = job_find(id);
    if (j && j->r.state == Invalid)
        j = NULL;
    return found = j;
}

/* C1: the engine's own list of connections with news loses some; ours holds each once. */
void
mend_connsched(Conn *c)
{
    connsched(c);
    touch(shell(c));
}

/* C2: a waiting client that is about to be told DEADLINE_SOON stops waiting before its expired jobs are
 * released, so that none of them can be given to it. */
int
mend_conndeadlinesoon(Conn *c)
{
    if (!conndeadlinesoon(c))
        return 0;
    if (!conn_waiting(c))
        return 1;
    core_conn_cancel(shell(c), CORE_CANCEL_DEADLINE_SOON);
    return 0;
}

static Job *refused;        /* S1: a put that found no space */
static Job *unreserved;     /* the reservation that the running command took away */
static uint32 unreserved_pri; /* and what it was reserved with */
static bool no_space;       /* an update found no space */
static uint64_t wal_refused; /* puts and updates that found none, since the start */
static uint32_t updates;    /* updates that found space, in this command */
static jmp_buf kick_stop;
static bool kicking;

int
mend_walresvput(Wal *w, Job *j)
{
    int z = walresvput(w, j);
    if (!z) {
        refused = j;
        wal_refused++;
    }
    return z;
}

/* S3: a kick that finds no space stops there, before it has changed the job. */
int
mend_walresvupdate(Wal *w)
{
    int z = walresvupdate(w);
    if (z) {
        updates++;
        return z;
    }
    no_space = true;
    wal_refused++;
    if (kicking)
        longjmp(kick_stop, 1);
    return 0;
}

/* W11: what is live of a job is its full record. The core counts each short one as well, so that a log of many
 * changes to few jobs would never look worth compacting. */
static void
count_live(Wal *w, Job *j, int bytes)
{
    w->alive += bytes - j->walused;
    j->walused = bytes;
}

int
mend_walwrite(Wal *w, Job *j)
{
    int before = j->walused;
    bool is_short = j->file;
    int r = walwrite(w, j);
    if (is_short && j->file)
        count_live(w, j, before);
    return r;
}

void
mend_walmaint(Wal *w)
{
    wal_io_compact(w);
}

Job *
mend_job_list_remove(Job *j)
{
    if (replaying && j && j->file) /* W11 */
        count_live(&srv.wal, j, sizeof(int) + strlen(j->tube->name) + sizeof(Jobrec) + j->r.body_size);
    if (j && j->r.state == Reserved) {
        unreserved = j;
        unreserved_pri = j->r.pri;
    }
    return job_list_remove(j);
}

/* W13: replaying a buried job is not burying it once more. */
void
mend_job_list_insert(Job *head, Job *j)
{
    if (replaying && head == &j->tube->buried)
        j->r.bury_ct--;
    job_list_insert(head, j);
}

int
count_heapinsert(Heap *h, void *x)
{
    int r = heapinsert(h, x);
    if (r && h->less == job_delay_less) {
        const Job *j = x;
        delayed_count++;
        tubes_due = min(tubes_due, j->r.deadline_at);
    }
    return r;
}

void *
count_heapremove(Heap *h, size_t k)
{
    void *x = heapremove(h, k);
    if (x && h->less == job_delay_less)
        delayed_count--;
    return x;
}
