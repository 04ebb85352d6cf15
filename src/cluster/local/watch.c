/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches a job of this machine. While the job waits, the pool tells each change, and where the
 * master's socket is. If the pool or the master dies, the watch looks for the master, then for the
 * verdict in the job's directory, and then asks the pool, which is started if necessary.
 *
 *   state     look()                      the pool names   attend()         attend()
 *                                         a master         connected        not connected
 *   NEW       tries the master: DIALLED,  -                -                -
 *             or it fails: QUEUED
 *   QUEUED    finds the pool              DIALLED          -                -
 *   DIALLED   tries the master again      DIALLED          ATTENDED         GONE
 *   GONE      tries the master: DIALLED;  DIALLED          -                -
 *             or it fails: finds the pool
 *   ATTENDED  -                           ignored          -                GONE
 *   OVER      -                           -                -                -
 *
 * A final update of the pool, a verdict in the directory and a failure make each state OVER.
 */
#include <errno.h>

#include "base/base.h"
#include "cluster/local/local.h"
#include "cluster/local/pool.h"
#include "cluster/remote.h"
#include "codec/json.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

enum {
    QUICK_TRIES = 16,   /* the first retries are 1 ms apart; after them the pause doubles */
    RETRY_MAX_MS = 500, /* the longest pause */
    LOST_MS = 60000,    /* give up if for this time neither the pool nor the master answers */
    /* The pool may just be starting and not know the job yet: retry for this time. */
    REFUSED_MS = 5000,
    REFUSED_RETRY_MS = 20, /* the pauses meanwhile */
};

enum watch_state {
    WATCH_NEW = 1,  /* nothing is known of the job */
    WATCH_QUEUED,   /* the job has no master, as far as the pool has told */
    WATCH_DIALLED,  /* a report said that there is a master: the caller connects to it */
    WATCH_GONE,     /* the master cannot be reached, or the connection to it has ended */
    WATCH_ATTENDED, /* the master answers the caller */
    WATCH_OVER,     /* on_lost() or a final report was sent */
};

struct cluster_watch {
    struct cluster_watch_head head;
    struct cluster_host *h;
    struct conn *pool;
    struct loop_timer *retry;
    enum watch_state state;
    /* since when neither pool nor master has answered; 0 = one of them answers */
    int64_t lost_since;
    int64_t refused_since; /* since when the pool refuses the job; 0 = it does not */
    unsigned tries;
    struct err e;            /* of the last failure */
    const char *stop_reason; /* NULL = not to be stopped by the pool */
    bool checkpoint;
};

static void report(struct cluster_watch *w, struct cluster_report *r)
{
    (void)str_copy(r->id, sizeof r->id, w->head.cfg->id);
    r->own = true;
    if (r->phase == CLUSTER_OVER)
        w->state = WATCH_OVER;
    w->head.cfg->on_report(r, w->head.cfg->arg);
}

static void lost(struct cluster_watch *w)
{
    w->state = WATCH_OVER;
    w->head.cfg->on_lost(EXIT_CLUSTER, &w->e, w->head.cfg->arg);
}

/* ---- the pool ---- */

static void on_update(struct cluster_watch *w, const Tony__JobUpdate *u)
{
    json_t *doc = u->json.len ? json_loadb((const char *)u->json.data, u->json.len,
                                           JSON_REJECT_DUPLICATES, NULL)
                              : NULL;
    struct cluster_report r = { .phase = u->finished ? CLUSTER_OVER : CLUSTER_WAITING,
                                .exit_code = u->exit_code,
                                .summary = json_is_object(doc) ? doc : NULL };
    w->refused_since = 0;
    if (w->state == WATCH_ATTENDED && !u->finished) { /* the master has newer information */
        json_decref(doc);
        return;
    }
    (void)str_copy(r.state, sizeof r.state, u->state);
    if (!u->finished && u->master_socket[0]) {
        w->state = WATCH_DIALLED;
        r.phase = CLUSTER_RUNNING;
    }
    report(w, &r);
    json_decref(doc);
}

/* The pool does not know the job. The job may be on its way to the history: retry for REFUSED_MS.
 * If the pool still refuses after that, the directory of the job is damaged. */
static void on_refused(struct cluster_watch *w, const Tony__Refused *r)
{
    int64_t now = clock_mono_ms();
    (void)err_set(&w->e, r->num > 0 && r->num < 4096 ? (int)r->num : EIO, "%s", r->message);
    if (r->hint[0])
        err_hint(&w->e, "%s", r->hint);
    conn_close(TAKE(w->pool));
    if (!w->refused_since)
        w->refused_since = now;
    if (now - w->refused_since > REFUSED_MS && w->state != WATCH_ATTENDED)
        lost(w);
    else
        loop_timer_set(w->retry, now + REFUSED_RETRY_MS);
}

static void on_frame(struct conn *conn, const Tony__Frame *frame, void *arg)
{
    struct cluster_watch *w = arg;
    (void)conn;
    if (w->state == WATCH_OVER)
        return;
    w->lost_since = 0;
    w->tries = 0;
    if (frame->body_case == TONY__FRAME__BODY_JOB_UPDATE)
        on_update(w, frame->job_update);
    else if (frame->body_case == TONY__FRAME__BODY_ANSWER && w->stop_reason)
        w->head.cfg->on_stopping(w->head.cfg->arg);
    else if (frame->body_case == TONY__FRAME__BODY_REFUSED)
        on_refused(w, frame->refused);
}

static void on_close(struct conn *conn, const struct err *why, void *arg)
{
    struct cluster_watch *w = arg;
    (void)conn;
    (void)why; /* reconnect in the same way after every error */
    w->pool = NULL;
    if (w->state != WATCH_OVER && w->state != WATCH_ATTENDED)
        loop_timer_set(w->retry, clock_mono_ms() + 1);
}

static const struct conn_ops pool_ops = { .on_frame = on_frame, .on_close = on_close };

static void send_stop(struct cluster_watch *w)
{
    if (w->pool && w->stop_reason && w->state != WATCH_ATTENDED)
        /* If the connection is broken, on_close() reconnects and sends the stop again. */
        (void)link_send_stop(w->pool, w->head.cfg->id, w->stop_reason, w->checkpoint);
}

static void greet(struct cluster_watch *w)
{
    int what = w->head.cfg->owned ? TONY__CLIENT_ASK__WHAT__OWN : TONY__CLIENT_ASK__WHAT__FOLLOW;
    conn_set_arg(w->pool, &pool_ops, w);
    (void)link_send_ask(w->pool, what, w->head.cfg->id, ""); /* as in send_stop() */
    send_stop(w);
}

/* ---- looking for the job ---- */

/* Report the master, so that the caller connects to it. false: the caller could not, and has called
 * local_attend() already. */
static bool try_master(struct cluster_watch *w)
{
    struct cluster_report r = { .phase = CLUSTER_RUNNING };
    w->state = WATCH_DIALLED;
    report(w, &r);
    return w->state != WATCH_GONE;
}

/* true: the job is over, or its directory cannot be read. */
static bool from_history(struct cluster_watch *w)
{
    struct err e = { 0 };
    json_t *doc = NULL;
    int rc = local_verdict(w->h, w->head.cfg->id, &doc, &e);
    if (rc == -EBUSY)
        return false;
    if (rc < 0) {
        w->e = e;
        lost(w);
        return true;
    }
    struct cluster_report r = { .phase = CLUSTER_OVER,
                                .exit_code = (int)json_int(doc, "exit_code", EXIT_JOB_FAILED),
                                .summary = doc };
    (void)str_copy(r.state, sizeof r.state, json_str(doc, "state", ""));
    report(w, &r);
    json_decref(doc);
    return true;
}

static void retry_later(struct cluster_watch *w)
{
    int64_t now = clock_mono_ms();
    if (!w->pool && w->lost_since && now - w->lost_since > LOST_MS) {
        (void)err_wrap(&w->e, -EIO, "lost contact with job '%s'", w->head.cfg->id);
        err_hint(&w->e, "it may still run: tony status %s", w->head.cfg->id);
        lost(w);
        return;
    }
    /* The master needs a few ms from its start to its socket: so the first QUICK_TRIES retries do
     * not double the pause. */
    unsigned doubled = w->tries > QUICK_TRIES ? w->tries - QUICK_TRIES : 0;
    int64_t pause = MIN((int64_t)1 << MIN(doubled, 10U), (int64_t)RETRY_MAX_MS);
    w->tries++;
    loop_timer_set(w->retry, now + pause);
}

static void look(void *arg)
{
    struct cluster_watch *w = arg;
    bool is_new = w->state == WATCH_NEW;
    if (w->state == WATCH_OVER || w->state == WATCH_ATTENDED)
        return;
    /* A running job does not need the pool: try its master first. */
    if (w->state != WATCH_QUEUED && try_master(w))
        return;
    if (is_new)
        w->state = WATCH_QUEUED;
    if (!w->lost_since)
        w->lost_since = clock_mono_ms();
    /* The pool tells when the job is over. Look in its directory only if that takes long, or there
     * is no pool: a look costs more than the attempt to connect. */
    bool pool_tells = w->pool && w->tries < QUICK_TRIES;
    if (!pool_tells && from_history(w))
        return;
    if (w->h->looks_only && !w->h->paths.runtime) { /* a home without sockets */
        w->e = w->h->not_opened;
        lost(w);
        return;
    }
    if (!w->pool && link_dial_pool(w->h, true, &w->pool, &w->e) == 0) {
        greet(w);
        if (w->state == WATCH_QUEUED)
            return; /* the pool reports the master's socket when there is one */
    }
    if (w->state != WATCH_QUEUED || !w->pool)
        retry_later(w);
}

/* ---- the table's functions ---- */

int local_watch(struct cluster *k, const struct cluster_watch_config *cfg,
                struct cluster_watch **out, struct err *e)
{
    struct local *l = (struct local *)(void *)k;
    struct cluster_host *h = l->head.cfg.host;
    struct cluster_watch *w = calloc(1, sizeof *w);
    struct loop *loop = host_loop(h, e);
    int rc = w && loop ? host_look_paths(h, e) : -ENOMEM;
    if (rc == 0) {
        *w = (struct cluster_watch){ .head = { k, cfg }, .h = h, .pool = TAKE(l->pool) };
        w->retry = loop_timer_new(loop, look, w);
        w->state = w->pool ? WATCH_QUEUED : WATCH_NEW;
    }
    if (rc == 0 && !w->retry)
        rc = -ENOMEM;
    if (rc < 0) {
        if (rc == -ENOMEM)
            (void)err_set(e, ENOMEM, "cannot follow job '%s': %m", cfg->id);
        local_unwatch(w);
        return -EXIT_CLUSTER;
    }
    if (w->pool)
        greet(w);
    else
        loop_timer_set(w->retry, clock_mono_ms());
    *out = w;
    return 0;
}

void local_attend(struct cluster_watch *w, bool connected)
{
    if (w->state == WATCH_OVER)
        return;
    if (connected) {
        w->state = WATCH_ATTENDED;
        w->lost_since = 0;
        w->tries = 0;
        loop_timer_stop(w->retry);
    } else {
        w->state = WATCH_GONE;
        loop_timer_set(w->retry, clock_mono_ms() + 1);
    }
}

void local_stop(struct cluster_watch *w, enum cluster_stop how, const char *reason, bool checkpoint)
{
    w->stop_reason = how == CLUSTER_STOP_CONFIRMED ? NULL : reason;
    w->checkpoint = checkpoint;
    send_stop(w);
}

void local_unwatch(struct cluster_watch *w)
{
    if (!w)
        return;
    conn_close(w->pool);
    loop_timer_free(w->retry);
    free(w);
}
