/* SPDX-License-Identifier: Apache-2.0 */
/* The host of a cluster (struct cluster_host): its notes, its loop and the paths of TONY_HOME. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "loop/loop.h"

void host_note(const struct cluster_host *h, const char *fmt, ...)
{
    if (!h->note)
        return;
    AUTO(buf_done) struct buf text = { 0 };
    va_list ap;
    va_start(ap, fmt);
    (void)buf_vaddf(&text, fmt, ap);
    va_end(ap);
    h->note(buf_cstr(&text), h->arg);
}

struct loop *host_loop(struct cluster_host *h, struct err *e)
{
    if (!h->loop)
        h->loop = loop_new(e);
    return h->loop;
}

int host_open_paths(struct cluster_host *h, struct err *e)
{
    if (h->have_paths && !h->looks_only)
        return 0;
    struct paths p;
    int rc = paths_open(&p, e);
    if (rc < 0)
        return rc;
    if (h->have_paths)
        paths_done(&h->paths);
    h->paths = p;
    h->have_paths = true;
    h->looks_only = false;
    /* The client may start the pool, which runs in another directory: it needs an absolute path. */
    return setenv("TONY_HOME", h->paths.home, 1) == 0
               ? 0
               : err_set(e, ENOMEM, "cannot set TONY_HOME: %m");
}

static bool can_be_looked_at(int num)
{
    return num == EROFS || num == EACCES || num == EPERM || fs_no_room(num);
}

int host_look_paths(struct cluster_host *h, struct err *e)
{
    if (h->have_paths || host_open_paths(h, e) == 0)
        return 0;
    if (!can_be_looked_at(e->num) || paths_open_read_only(&h->paths, NULL) < 0)
        return -e->num;
    h->have_paths = h->looks_only = true;
    h->not_opened = *e;
    err_clear(e);
    return 0;
}

void host_done(struct cluster_host *h)
{
    if (h->have_paths)
        paths_done(&h->paths);
    loop_free(h->loop);
    h->loop = NULL;
    h->have_paths = h->looks_only = false;
}
