/* conn.c with its descriptor calls going to virtual connections. */
#include "shim.h"

#include <unistd.h>

#define close core_close
#include "conn.c"
