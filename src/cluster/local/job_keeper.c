/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/local/job_keeper.h"

#include <sys/inotify.h>
#include <unistd.h>

#include "base/base.h"
#include "base/lockfile.h"
#include "cluster/cluster.h"
#include "cluster/local/pool.h"
#include "loop/loop.h"

enum { SETTLE_MS = 1000 }; /* await_job_in_history() waits no longer */

/* ---- does the job have a keeper? ---- */

static bool has_keeper(const struct cluster_host *h, const char *id)
{
    AUTO(free_p) char *path = paths_job_lock(&h->paths, id);
    return path && lockfile_is_held(path);
}

bool start_pool_if_orphaned(struct cluster_host *h, const char *id)
{
    struct conn *pool = NULL;
    if (has_keeper(h, id))
        return false;
    if (link_dial_pool(h, true, &pool, NULL) == 0)
        conn_close(pool);
    return true;
}

/* ---- the move to the history ----
 *
 * The keeper moves the job's directory from jobs/ to history/, and then exits. So the client
 * connects to the keeper and waits until the keeper closes the connection. */

struct settle {
    struct cluster_host *h;
    const char *id, *dir; /* dir: history/<id>, which does not exist before the move */
    struct conn *keeper;  /* closed when the keeper has moved the job, or is dead */
    int fd;               /* inotify on history/; used only without a connection to a keeper */
    struct loop_fd *watch;
};

static bool arrived(const struct settle *s)
{
    return access(s->dir, F_OK) == 0;
}

static void stop_if_arrived(struct settle *s)
{
    if (arrived(s))
        loop_stop(s->h->loop);
}

static void on_arrival(void *arg)
{
    struct settle *s = arg;
    char events[4096];
    while (read(s->fd, events, sizeof events) > 0)
        ; /* drop the events: stop_if_arrived() looks at the directory */
    stop_if_arrived(s);
}

/* The pool starts another keeper, which moves the job. This client has no connection to that
 * keeper, so it watches history/ instead. The normal case avoids inotify, because the kernel needs
 * 10 to 20 ms to remove a watch. */
static void await_next_keeper(struct settle *s)
{
    s->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (s->fd != -1 && inotify_add_watch(s->fd, s->h->paths.history, IN_MOVED_TO | IN_CREATE) != -1)
        s->watch = loop_fd_new(s->h->loop, s->fd, on_arrival, s);
    (void)start_pool_if_orphaned(s->h, s->id);
}

static void on_keeper_gone(struct conn *conn, const struct err *e, void *arg)
{
    struct settle *s = arg;
    (void)conn;
    (void)e;
    s->keeper = NULL;
    if (!arrived(s))
        await_next_keeper(s);
    stop_if_arrived(s);
}

static void on_late(void *arg)
{
    struct settle *s = arg;
    loop_stop(s->h->loop);
}

static void on_frame(struct conn *conn, const Tony__Frame *f, void *arg)
{
    (void)conn;
    /* Ignore the frames. They must be read nevertheless, because the end of the connection comes
     * after them. */
    (void)f;
    (void)arg;
}

static const struct conn_ops keeper_ops = { .on_frame = on_frame, .on_close = on_keeper_gone };

void await_job_in_history(struct cluster_host *h, const char *id)
{
    AUTO(free_p) char *dir = paths_history(&h->paths, id);
    AUTO(free_p) char *socket = paths_socket(&h->paths, id, "k");
    struct settle s = { .h = h, .id = id, .dir = dir, .fd = -1 };
    if (!dir || !socket || arrived(&s) || !host_loop(h, NULL))
        return;
    if (conn_dial_unix(h->loop, socket, &keeper_ops, &s, &s.keeper, NULL) < 0 && !arrived(&s))
        await_next_keeper(&s);
    struct loop_timer *late = arrived(&s) ? NULL : loop_timer_new(h->loop, on_late, &s);
    if (late) {
        loop_timer_set(late, clock_mono_ms() + SETTLE_MS);
        (void)loop_run(h->loop); /* on_arrival(), on_keeper_gone() or on_late() ends the loop */
    }
    loop_timer_free(late);
    loop_fd_free(s.watch);
    conn_close(s.keeper);
    close_p(&s.fd);
}
