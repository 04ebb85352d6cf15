/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/local/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "storage/alive.h"

enum {
    RENEW_MS = 3000,        /* for keeper and master to make their sockets again */
    RENEW_PAUSE_MS = 5,     /* between two attempts to connect meanwhile */
    RENEW_AGAIN_MS = 10000, /* a client asks for new sockets at most once in this time */
    TRIES = 5,              /* how often to ask again when the pool dies before it answers */
    MASTER_START_S = 5,     /* every master listens within this time after its start */
};

/* ---- the master ---- */

static int dial_master(struct cluster_host *h, const char *id, struct conn **out, struct err *e)
{
    AUTO(free_p) char *path = paths_socket(&h->paths, id, "m");
    if (!path)
        return err_set(e, errno == ENOMEM ? ENOMEM : ENOENT, "cannot reach the job's master: %m");
    return link_dial(h, path, out, e);
}

/* The master's socket is missing. Was it removed, or does the master only start? The keeper, which
 * lives longer, has a socket too, and writes to the file `exits` when it starts a master. */
static bool sockets_were_removed(const struct cluster_host *h, const char *id)
{
    AUTO(free_p) char *keeper = paths_socket(&h->paths, id, "k");
    AUTO(free_p) char *dir = paths_job(&h->paths, id), *exits = dir ? fs_join(dir, "exits") : NULL;
    struct stat st;
    if (!keeper || !exits || stat(exits, &st) == -1)
        return false;
    return access(keeper, F_OK) == -1 || time(NULL) - st.st_mtime > MASTER_START_S;
}

int link_dial_master(struct cluster_host *h, const char *application_id, struct conn **out,
                     struct err *e)
{
    int rc = dial_master(h, application_id, out, e);
    int64_t now = clock_mono_ms(), deadline = now + RENEW_MS;
    if (rc != -ENOENT || h->looks_only || (h->renewed_ms && now - h->renewed_ms < RENEW_AGAIN_MS) ||
        !sockets_were_removed(h, application_id) || !alive_keeper_renew(application_id))
        return rc;
    h->renewed_ms = now;
    for (; rc == -ENOENT && clock_mono_ms() < deadline; (void)poll(NULL, 0, RENEW_PAUSE_MS))
        if ((rc = paths_renew_runtime(&h->paths, e)) >= 0) /* the socket may be elsewhere now */
            rc = dial_master(h, application_id, out, e);
    return rc;
}

/* ---- starting the pool ---- */

struct pool_start {
    pid_t pid;
    int ready_fd;     /* readable with a byte: the pool listens; at end of file: it did not start */
    int complaint_fd; /* the pool's standard error until it is ready */
};

static int spawn_pool(struct pool_start *s, struct err *e)
{
    static const char *const args[] = { "--ready-fd", "3", NULL };
    int ready[2] = { -1, -1 }, complaint[2] = { -1, -1 };
    if (pipe2(ready, O_CLOEXEC) == -1 || pipe2(complaint, O_CLOEXEC) == -1) {
        int rc = err_set(e, errno, "cannot start the pool: %m");
        close_p(&ready[0]);
        close_p(&ready[1]);
        return rc;
    }
    int rc = host_spawn_pool(args, complaint[1], ready[1], &s->pid, e);
    close_p(&ready[1]);
    close_p(&complaint[1]);
    s->ready_fd = ready[0];
    s->complaint_fd = complaint[0];
    if (rc < 0) {
        close_p(&s->ready_fd);
        close_p(&s->complaint_fd);
    }
    return rc;
}

/* Read one piece of the pool's standard error. false: there is no more. Text that exceeds the
 * buffer is dropped; the pool's log has it. */
static bool take_complaint(struct pool_start *s, struct buf *complaint)
{
    char bytes[512];
    ssize_t got = read(s->complaint_fd, bytes, sizeof bytes);
    if (got > 0)
        (void)buf_add(complaint, bytes, (size_t)got);
    return got > 0;
}

/* 1: the pool is ready. 0: the pool ended, perhaps because another one was first; `complaint` has
 * its error text. -ETIMEDOUT: neither happened in time. */
static int await_pool(struct pool_start *s, int64_t deadline_ms, struct buf *complaint,
                      struct err *e)
{
    for (;;) {
        struct pollfd fds[] = { { .fd = s->ready_fd, .events = POLLIN },
                                { .fd = s->complaint_fd, .events = POLLIN } };
        int64_t left = deadline_ms - clock_mono_ms();
        int n = left > 0 ? poll(fds, ARRAY_LEN(fds), (int)left) : 0;
        if (n == -1 && errno != EINTR)
            return err_set(e, errno, "cannot wait for the pool to start: %m");
        if (n == 0)
            return err_set(e, ETIMEDOUT, "the pool did not start within %d s",
                           POOL_START_MS / 1000);
        if (n > 0 && fds[1].revents && !take_complaint(s, complaint))
            close_p(&s->complaint_fd), s->complaint_fd = -1;
        if (n > 0 && fds[0].revents) {
            char ready;
            if (read(s->ready_fd, &ready, 1) == 1)
                return 1;
            bool all = s->complaint_fd >= 0 && fd_nonblock(s->complaint_fd, true) == 0;
            while (all && take_complaint(s, complaint))
                ;
            return 0;
        }
    }
}

/* Start a pool once. 1: it is ready; 0: it ended. */
static int start_once(int64_t deadline_ms, struct buf *complaint, struct err *e)
{
    struct pool_start s = { .ready_fd = -1, .complaint_fd = -1 };
    int rc = spawn_pool(&s, e);
    if (rc < 0)
        return rc;
    rc = await_pool(&s, deadline_ms, complaint, e);
    if (rc <= 0)
        /* If the pool hangs, it holds a lock that other clients wait for. */
        (void)kill(s.pid, SIGTERM);
    /* A pool that is ready has moved to the background. If its start failed, wait for its end. */
    (void)waitpid(s.pid, NULL, rc > 0 ? WNOHANG : 0);
    close_p(&s.ready_fd);
    close_p(&s.complaint_fd);
    return rc;
}

static bool no_listener(int rc)
{
    return rc == -ECONNREFUSED || rc == -ENOENT;
}

static int refuse_start(const struct cluster_host *h, const struct buf *complaint, struct err *e)
{
    struct span text = span_trim(buf_span(complaint)), line = { 0 };
    int num = EIO;
    while (text.len && span_split(&text, '\n', &line) && !line.len)
        ;
    if (span_starts(line, "tony-pool: ")) {
        line.p += strlen("tony-pool: ");
        line.len -= strlen("tony-pool: ");
    }
    int rc = line.len ? err_set(e, num, "the pool could not start: %.*s", (int)line.len, line.p)
                      : err_set(e, num, "the pool ended while it started");
    struct span more;
    while (text.len && span_split(&text, '\n', &more)) {
        more = span_trim(more);
        if (span_starts(more, "hint: ")) {
            err_hint(e, "%.*s", (int)more.len - 6, more.p + 6);
            return rc;
        }
    }
    err_hint(e, "see %s/pool.log", h->paths.pool);
    return rc;
}

/* A program that the pool starts has the pool's socket until its execve(). If the pool is killed in
 * between, this process accepts connections for a moment, or as long as it takes to die. The kernel
 * tells the process that has called listen(): the pool. */
static bool has_ended(const struct conn *pool)
{
    uid_t uid;
    pid_t pid;
    return conn_peer(pool, &uid, &pid) == 0 && pid > 0 && !alive_process(pid);
}

static int dial_pool(struct cluster_host *h, struct conn **out, struct err *e)
{
    AUTO(free_p) char *path = paths_pool_socket(&h->paths);
    int rc = path ? link_dial(h, path, out, e) : err_set(e, ENOMEM, "cannot reach the pool: %m");
    if (rc < 0 || !has_ended(*out))
        return rc;
    conn_close(TAKE(*out));
    return err_set(e, ECONNREFUSED, "cannot reach the pool: it has ended");
}

int link_dial_pool(struct cluster_host *h, bool start, struct conn **out, struct err *e)
{
    int rc = host_open_paths(h, e);
    if (rc < 0)
        return rc;
    rc = dial_pool(h, out, e);
    int64_t renew_until = clock_mono_ms() + RENEW_MS;
    if (rc == -ENOENT && !h->looks_only && alive_pool_renew(&h->paths)) /* its socket was removed */
        for (; rc == -ENOENT && clock_mono_ms() < renew_until; (void)poll(NULL, 0, RENEW_PAUSE_MS))
            if ((rc = paths_renew_runtime(&h->paths, e)) >= 0)
                rc = dial_pool(h, out, e);
    if (!start || !no_listener(rc))
        return rc;

    /* Two clients may each start a pool at the same time. One of the two pools ends at once, and
     * the other one listens now or soon. So connect after a failed start, too. */
    int64_t deadline = clock_mono_ms() + POOL_START_MS;
    AUTO(buf_done) struct buf complaint = { .max = 4096 };
    for (int tries = 0; no_listener(rc); tries++) {
        buf_clear(&complaint);
        int up = start_once(deadline, &complaint, e);
        if (up < 0)
            return up;
        /* The pool may have had to choose another directory for its socket. */
        rc = paths_renew_runtime(&h->paths, e);
        if (rc >= 0)
            rc = dial_pool(h, out, e);
        if (no_listener(rc) && !up && (tries >= 5 || complaint.len > 0))
            return refuse_start(h, &complaint, e);
        if (no_listener(rc) && clock_mono_ms() > deadline)
            return err_set(e, ETIMEDOUT, "the pool did not start within %d s",
                           POOL_START_MS / 1000);
        if (no_listener(rc))
            (void)poll(NULL, 0, 10 << MIN(tries, 4));
    }
    if (rc == 0)
        err_clear(e); /* e has the error of the first attempt */
    return rc;
}

/* ---- questions ---- */

int link_ask_pool(struct cluster_host *h, bool start, int what, const char *application_id,
                  bool force, struct answer *out, struct err *e)
{
    int rc = 0;
    for (int i = 0; i < TRIES; i++) {
        struct conn *pool = NULL;
        rc = link_dial_pool(h, start, &pool, e);
        if (rc == 0)
            rc = link_ask_what(h, &pool, what, application_id, force, out, e);
        bool refused = out->refused;
        conn_close(pool);
        if (refused || !link_broke(rc))
            return rc;
        answer_done(out);
    }
    return rc;
}

static int ask_once(struct cluster_host *h, const struct cluster_question *q, struct answer *a,
                    struct err *e)
{
    Tony__ClientAsk ask = TONY__CLIENT_ASK__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    struct conn *pool = NULL;
    int rc = link_dial_pool(h, q->start, &pool, e);
    ask.what = (Tony__ClientAsk__What)q->what;
    ask.application_id = (char *)(uintptr_t)(q->id ? q->id : "");
    ask.force = q->force;
    ask.settings = (char **)(uintptr_t)q->settings;
    ask.n_settings = q->n_settings;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &ask;
    if (rc == 0)
        rc = link_ask(h, &pool, &f, a, e);
    conn_close(pool);
    return rc;
}

int local_ask_pool(struct cluster_host *h, const struct cluster_question *q, json_t **out,
                   bool *out_refused, struct err *e)
{
    AUTO(answer_done) struct answer a = { .wait_ms = q->wait_ms };
    struct err unread = { 0 };
    struct err *why = e ? e : &unread;
    int rc = ask_once(h, q, &a, why);
    for (int i = 1; i < TRIES && !q->once && !a.refused && link_broke(rc); i++) {
        answer_done(&a);
        a.wait_ms = q->wait_ms;
        rc = ask_once(h, q, &a, why);
    }
    *out_refused = a.refused;
    if (!q->start && !a.refused && (rc == -ENOENT || rc == -ECONNREFUSED))
        return 0;
    if (rc < 0)
        return rc;
    *out =
        a.json.len ? json_loadb(a.json.p, a.json.len, JSON_REJECT_DUPLICATES, NULL) : json_object();
    if (*out)
        return 1;
    (void)err_set(why, EBADMSG, "the answer of the pool cannot be read");
    return err_hint(why, LINK_OTHER_VERSION);
}
