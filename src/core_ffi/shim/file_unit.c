/* file.c reading and writing through the buffers of wal_io.c, its findings kept as lines. Opening stays as
 * it is. */
#include "shim.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define fprintf lines_fprintf
#define vfprintf lines_vfprintf
#define fputc lines_fputc
#define read wal_io_read
#define write wal_io_write
#define ftruncate wal_io_truncate
#define close wal_io_close
#include "file.c"
