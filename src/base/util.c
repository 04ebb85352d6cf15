#include "base/util.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void free_p(void *p)
{
    void *old;
    memcpy(&old, p, sizeof old); /* p is a T **, which must not be read as void ** */
    free(old);
}

void close_p(int *fd)
{
    if (*fd < 0)
        return;
    int saved = errno;
    (void)close(*fd); /* nobody is left who could act on a failure */
    *fd = -1;
    errno = saved;
}
