/*
 * The stock server, started the way testserv_unit.c starts a program: the proof of the seam.
 *
 * If the original tests pass against stock objects directly and fail against these same objects here, the seam
 * is wrong. It also insists on what the seam promises about descriptors and signals. Test code only.
 */
#include "dat.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LISTEN_FD = 3 };

static const char *pattern; // of TRELLIS_TEST_FALLOC

static void
insist(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "stock_on_fd: the seam broke its promise: %s\n", what);
        exit(3);
    }
}

static int
patterned_falloc(int fd, int len)
{
    char now = *pattern ? *pattern++ : '0';
    if (*pattern == ',') {
        pattern++;
    }
    return now == '1' ? rawfalloc(fd, len) : ENOSPC;
}

static void
insist_on_signals(void)
{
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (int sig = 1; sig < NSIG; sig++) {
        insist(sig == SIGUSR1 || sigismember(&blocked, sig) != 1, "a signal is blocked");
    }
}

int
main(int argc, char **argv)
{
    UNUSED_PARAMETER(argc);
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    insist(pid && atoi(pid) == getpid() && fds && strcmp(fds, "1") == 0, "no socket announced");
    insist(fcntl(LISTEN_FD, F_GETFD) == 0, "fd 3 is not open");
    for (int fd = LISTEN_FD + 1; fd < sysconf(_SC_OPEN_MAX) && fd < 1024; fd++) {
        insist(fcntl(fd, F_GETFD) == -1, "a stray descriptor is open");
    }
    insist_on_signals();

    progname = "stock_on_fd";
    optparse(&srv, argv + 1);
    srv.sock.fd = LISTEN_FD;
    pattern = getenv("TRELLIS_TEST_FALLOC");
    if (pattern) {
        falloc = &patterned_falloc;
    }
    prot_init();

    struct sigaction drain = {.sa_handler = enter_drain_mode};
    sigaction(SIGUSR1, &drain, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL); // delivers a pending SIGUSR1

    srv_acquire_wal(&srv);
    srvserve(&srv);
    return 0;
}
