/* The slot's clock: wall time as it was at the server's start plus CLOCK_MONOTONIC since, so that a step of
 * the wall clock moves no deadline.
 *
 * The kernel is asked once a batch (core_clock_refresh); between two refreshes each reading is one
 * nanosecond after the last. No value is ever returned twice: the core's tick forgets a connection whose
 * deadline equals the time it reads (CORE_FAULTS T2). */
#include "core.h"
#include "shim.h"

#include "dat.h"

#include <time.h>

static int64_t offset;
static int64_t last;

void
core_clock_start(int64_t clock_offset)
{
    offset = clock_offset;
    core_clock_refresh();
}

void
core_clock_refresh(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + offset;
    if (now > last)
        last = now;
}

int64
nanoseconds(void)
{
    return ++last;
}
