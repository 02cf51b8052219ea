/* serv.c, whose start does not end the process. */
#include "shim.h"

#include <stdlib.h>

#define exit core_exit
#include "serv.c"
