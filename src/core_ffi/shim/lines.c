/* What the core says on stderr, kept for the caller (core_next_line), whose log has levels, formats and
 * limits.
 *
 * The core puts a line together of several prints and ends it with '\n'. A line that was said before and is
 * not taken yet is counted, not kept twice; beyond LINES different ones, others are only counted. */
#include "core.h"
#include "shim.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    LINES = 16,             /* a command says four at most; a log that can't be replayed, one a fault */
    LINE_BYTES = 4096 + 512 /* the longest path, and some words */
};

struct line {
    char text[LINE_BYTES];
    uint64_t times;
};

static struct line kept[LINES];
static size_t len, taken;    /* those from `taken` to `len` wait */
static uint64_t left_out;

static char open_line[LINE_BYTES];
static size_t open_len;

int
lines_vfprintf(FILE *to, const char *fmt, va_list args)
{
    (void)to;
    size_t room = sizeof open_line - open_len;
    int n = vsnprintf(open_line + open_len, room, fmt, args);
    if (n > 0)
        open_len += (size_t)n < room ? (size_t)n : room - 1;
    return n;
}

int
lines_fprintf(FILE *to, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = lines_vfprintf(to, fmt, args);
    va_end(args);
    return n;
}

/* Replies that are quoted bring their own CR LF. */
static void
trim(void)
{
    while (open_len && (unsigned char)open_line[open_len - 1] <= ' ')
        open_len--;
    open_line[open_len] = '\0';
}

static void
keep(void)
{
    for (size_t i = taken; i < len; i++) {
        if (strcmp(kept[i].text, open_line) == 0) {
            kept[i].times++;
            return;
        }
    }
    if (len == LINES) {
        left_out++;
        return;
    }
    memcpy(kept[len].text, open_line, open_len + 1);
    kept[len++].times = 1;
}

int
lines_fputc(int c, FILE *to)
{
    if (c != '\n')
        return lines_fprintf(to, "%c", c);
    trim();
    if (open_len)
        keep();
    open_len = 0;
    return c;
}

int
core_next_line(core_line *line)
{
    if (taken < len) {
        line->text = kept[taken].text;
        line->times = kept[taken++].times;
        return 1;
    }
    len = taken = 0;
    line->text = NULL;
    line->times = left_out;
    left_out = 0;
    return line->times > 0;
}
