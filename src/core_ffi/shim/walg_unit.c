/* walg.c whose syncs and unlinks wait for the end of the batch. */
#include "shim.h"

#include <unistd.h>

#define fsync wal_io_fsync
#define unlink wal_io_unlink
#define close wal_io_close
#include "walg.c"
