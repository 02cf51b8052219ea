/* Stands in for the vendored linux.c: a virtual connection has no kernel events. What the engine wants to
 * say about a connection is seen through connsched (prot_unit.c); these are never asked for anything. */
#include "shim.h"

#include "dat.h"

int
sockinit(void)
{
    return 0;
}

int
sockwant(Socket *s, int rw)
{
    UNUSED_PARAMETER(s);
    UNUSED_PARAMETER(rw);
    return 0;
}

int
socknext(Socket **s, int64 timeout)
{
    UNUSED_PARAMETER(s);
    UNUSED_PARAMETER(timeout);
    return -1;
}
