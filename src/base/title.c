/* SPDX-License-Identifier: Apache-2.0 */
#include "base/title.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The bytes of argv lie one after the other in the memory that /proc/PID/cmdline shows. */
static struct {
    char *start;
    size_t size;
} line;

void title_init(int argc, char **argv)
{
    if (argc < 1)
        return;
    char *start = argv[0], *end = start;
    for (int i = 0; i < argc; i++) {
        char *copy = strdup(argv[i]);
        if (!copy)
            return;
        if (argv[i] == end)
            end += strlen(argv[i]) + 1;
        argv[i] = copy;
    }
    line.start = start;
    line.size = (size_t)(end - start);
}

/* With a zero as its last byte, the kernel shows no more than these bytes. */
static void set(const char *text, size_t n)
{
    if (line.size == 0)
        return;
    memset(line.start, 0, line.size);
    memcpy(line.start, text, n < line.size ? n : line.size - 1);
}

void title_set_args(char *const *argv)
{
    char text[256];
    size_t n = 0;
    for (; *argv; argv++) {
        size_t more = strlen(*argv) + 1;
        if (more > sizeof text - n)
            break;
        memcpy(text + n, *argv, more);
        n += more;
    }
    set(text, n);
}

void title_set(const char *fmt, ...)
{
    char text[256] = "";
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n >= 0)
        set(text, strlen(text));
}
