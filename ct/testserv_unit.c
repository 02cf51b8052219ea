/*
 * The seam between the original server tests and a server of our choice.
 *
 * The tests fork a child that calls four functions of the core and serves. Here testserv.c is included as it is,
 * with those four names pointing below: the child executes the program named by CT_TRELLIS instead and hands it
 * everything the test had set up in the C globals. The tests themselves, and all the code they run in their own
 * process, stay the original's.
 *
 * How a setting crosses (the program must understand all of it):
 *   listening socket    fd 3, LISTEN_FDS=1 and LISTEN_PID, as systemd does it
 *   log directory       -b DIR, with -s BYTES (where not the default) and -f MS or -F
 *   largest job         -z BYTES
 *   drain mode          a SIGUSR1 that is pending and blocked when the program starts
 *   failing allocations TRELLIS_TEST_FALLOC=1,0,1: which of the first calls of falloc succeed; later ones fail
 *   slots, partitions   --slots N, --partitions P, if CT_SLOTS, CT_PARTITIONS are set
 * No other descriptor above 2 and no other blocked signal crosses.
 */
#define _GNU_SOURCE

#define prot_init ct_prot_init
#define srv_acquire_wal ct_acquire_wal
#define srvserve ct_srvserve
#define enter_drain_mode ct_enter_drain_mode
#define make_server_socket ct_make_server_socket
#include "testserv.c"
#undef make_server_socket

int make_server_socket(char *host, char *port);

// A test that takes longer hangs. The longest known one (1 GiB through the socket) takes a few seconds.
enum { TEST_SECONDS = 60 };

// systemd's first passed descriptor.
enum { LISTEN_FD = 3 };

static int draining;

// Every server test opens its socket first, in its own process: the place to set its time limit.
int
ct_make_server_socket(char *host, char *port)
{
    alarm(TEST_SECONDS);
    return make_server_socket(host, port);
}

void
ct_enter_drain_mode(int sig)
{
    UNUSED_PARAMETER(sig);
    draining = 1;
}

// The program does these two itself.
void ct_prot_init(void) {}
void ct_acquire_wal(Server *s) { UNUSED_PARAMETER(s); }

static void
must(int ok, const char *what)
{
    if (!ok) {
        warn("seam: %s", what);
        exit(127);
    }
}

// Exactly the test's socket on fd 3, and nothing of the test runner's above it.
static void
pass_socket(int fd)
{
    if (fd == LISTEN_FD) {
        must(fcntl(fd, F_SETFD, 0) == 0, "keep the socket over exec");
    } else {
        must(dup2(fd, LISTEN_FD) == LISTEN_FD, "move the socket");
    }
    must(close_range(LISTEN_FD + 1, ~0U, 0) == 0, "close the rest");

    must(setenv("LISTEN_PID", fmtalloc("%d", getpid()), 1) == 0, "setenv");
    must(setenv("LISTEN_FDS", "1", 1) == 0, "setenv");
    must(unsetenv("LISTEN_FDNAMES") == 0, "unsetenv");
}

static void
pass_signals(void)
{
    sigset_t mask;
    sigemptyset(&mask);
    if (draining) {
        sigaddset(&mask, SIGUSR1);
    }
    must(sigprocmask(SIG_SETMASK, &mask, NULL) == 0, "set the signal mask");
    if (draining) {
        must(kill(getpid(), SIGUSR1) == 0, "leave a signal pending"); // the process's, whichever thread looks
    }
}

static void
pass_falloc(void)
{
    must(unsetenv("TRELLIS_TEST_FALLOC") == 0, "unsetenv");
    if (falloc == &rawfalloc) {
        return;
    }
    char list[2 * sizeof fallocpat], *p = list;
    for (size_t i = 0; i < sizeof fallocpat; i++) {
        *p++ = fallocpat[i] ? '1' : '0';
        *p++ = ',';
    }
    p[-1] = '\0';
    must(setenv("TRELLIS_TEST_FALLOC", list, 1) == 0, "setenv");
}

void
ct_srvserve(Server *s)
{
    char *program = getenv("CT_TRELLIS"), *slots = getenv("CT_SLOTS"), *partitions = getenv("CT_PARTITIONS");
    must(program != NULL, "CT_TRELLIS names no program");

    enum { ARGS_MAX = 16 }; // program, six flags with a value each, NULL: fourteen at most
    char *argv[ARGS_MAX];
    int n = 0;
    argv[n++] = program;
    argv[n++] = "-z";
    argv[n++] = fmtalloc("%zu", job_data_size_limit);
    if (slots) {
        argv[n++] = "--slots";
        argv[n++] = slots;
    }
    if (partitions) {
        argv[n++] = "--partitions";
        argv[n++] = partitions;
    }
    if (s->wal.use) {
        argv[n++] = "-b";
        argv[n++] = s->wal.dir;
        if (s->wal.filesize != Filesizedef) {
            argv[n++] = "-s";
            argv[n++] = fmtalloc("%d", s->wal.filesize);
        }
        if (s->wal.wantsync) {
            argv[n++] = "-f";
            argv[n++] = fmtalloc("%lld", (long long)(s->wal.syncrate / 1000000)); // ns to ms
        } else {
            argv[n++] = "-F";
        }
    }
    argv[n] = NULL;

    pass_falloc();
    pass_socket(s->sock.fd);
    pass_signals();
    execv(program, argv);
    must(0, program);
}
