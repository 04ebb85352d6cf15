/* SPDX-License-Identifier: Apache-2.0 */
#include "base/util.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void free_p(void *p)
{
    /* p is a T **. To read it as a void ** would break the aliasing rules. */
    void *old;
    memcpy(&old, p, sizeof old);
    free(old);
}

void close_p(int *fd)
{
    if (*fd < 0)
        return;
    int saved = errno;
    (void)close(*fd); /* at the end of a scope, no caller could handle a failure */
    *fd = -1;
    errno = saved;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void sort_doubles(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
}
