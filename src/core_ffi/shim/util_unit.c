/* util.c, whose warnings are kept for the caller's log. */
#include "shim.h"

#include <stdio.h>

#define fprintf lines_fprintf
#define vfprintf lines_vfprintf
#define fputc lines_fputc
#include "util.c"
