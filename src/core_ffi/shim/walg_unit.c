/* walg.c whose syncs and unlinks wait for the end of the batch, whose records get checksums, and whose start
 * does not end the process. */
#include "shim.h"

#include <stdlib.h>
#include <unistd.h>

#define exit core_exit
#define fsync wal_io_fsync
#define unlink wal_io_unlink
#define close wal_io_close
#define filewopen wal_sum_open
#define filewrjobfull wal_sum_full
#define filewrjobshort wal_sum_short
#include "walg.c"

/* W11: as walmaint compacts, but stops when there is nothing to move: with few live bytes the ratio is in the
 * ten thousands, and each of its steps would only find that. A file at the head without a job goes by itself. */
void
wal_io_compact(Wal *w)
{
    if (!w->use)
        return;
    for (int r = ratio(w); r >= 2; r--) {
        if (w->head == w->cur || w->head->next == w->cur)
            return;
        Job *j = w->head->jlist.fnext;
        if (!j || j == &w->head->jlist)
            return;
        moveone(w);
    }
}
