/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/follow.h"

#include <errno.h>
#include <signal.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/show/render.h"
#include "cluster/link.h"
#include "codec/json.h"
#include "history/history.h"
#include "job/job.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

enum {
    QUICK_TRIES = 16, /* the first retries are 1 ms apart; after them the pause doubles */
    RETRY_MAX_MS = 500,
    LOST_MS = 60000, /* give up if for this time neither the pool nor the master answers */
    /* The pool may just be starting and not know the job yet: retry for this time. */
    REFUSED_MS = 5000,
    REFUSED_RETRY_MS = 20,
};

struct follow {
    struct client *c;
    const char *id;
    const struct follow_options *o;
    struct conn *pool, *master;
    struct loop_timer *retry;
    struct loop_signal *signals[3];
    int64_t lost_since;    /* since when no connection has answered; 0 = a connection answers */
    int64_t refused_since; /* since when the pool refuses the job; 0 = it knows the job, or was not
                              asked */
    unsigned tries;
    unsigned n_signals;
    bool go_master; /* connect to the master: it exists, or has existed */
    bool want_stop, over;
    const char *stop_reason;
    struct follow_result *out;
    int rc;
    struct err *e;
};

static void connect_again(struct follow *f);

static void end(struct follow *f, int rc)
{
    if (f->over)
        return;
    f->over = true;
    f->rc = rc;
    loop_stop(f->c->loop);
}

/* ---- frames from the pool and the master ---- */

static void keep_summary(struct follow *f, const Tony__JobUpdate *u)
{
    if (u->json.len == 0)
        return;
    json_t *doc = json_loadb((const char *)u->json.data, u->json.len, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(doc)) {
        json_decref(doc);
        return;
    }
    json_decref(f->out->summary);
    f->out->summary = doc;
}

static void on_update(struct follow *f, const struct conn *from, const Tony__JobUpdate *u)
{
    keep_summary(f, u);
    if (f->o->render)
        render_update(f->o->render, u->state, f->out->summary);
    /* An update from the pool about a running job lacks the members that only the master knows.
     * on_update() must get only complete updates. */
    bool whole = from == f->master || u->finished;
    if (f->o->on_update && whole && f->o->on_update(u->state, f->out->summary, f->o->on_update_arg))
        end(f, 0);
    if (u->finished) {
        f->out->finished = true;
        f->out->exit_code = u->exit_code;
        end(f, 0);
    }
}

static void on_answer(struct follow *f)
{
    if (f->want_stop && f->o->return_when_stopping)
        end(f, 0); /* the answer comes once the stop is in the journal */
}

/* The pool does not know the job. The job may be on its way to the history: retry for REFUSED_MS.
 * If the pool still refuses after that, the directory of the job is damaged. */
static void on_refused(struct follow *f, const Tony__Refused *r)
{
    int64_t now = clock_mono_ms();
    int rc = err_set(f->e, r->num > 0 && r->num < 4096 ? (int)r->num : EIO, "%s", r->message);
    if (r->hint[0])
        err_hint(f->e, "%s", r->hint);
    conn_close(TAKE(f->pool));
    if (!f->refused_since)
        f->refused_since = now;
    if (now - f->refused_since > REFUSED_MS && !f->master)
        end(f, rc);
    else
        loop_timer_set(f->retry, now + REFUSED_RETRY_MS);
}

static void on_frame(struct conn *conn, const Tony__Frame *frame, void *arg)
{
    struct follow *f = arg;
    f->lost_since = 0;
    f->tries = 0;
    if (frame->body_case == TONY__FRAME__BODY_JOB_UPDATE) {
        const Tony__JobUpdate *u = frame->job_update;
        f->refused_since = 0;
        if (conn == f->pool && f->master && !u->finished)
            return; /* the master has newer information */
        on_update(f, conn, u);
        if (!f->over && conn == f->pool && u->master_socket[0] && !f->master) {
            f->go_master = true;
            connect_again(f);
        }
    } else if (frame->body_case == TONY__FRAME__BODY_ANSWER) {
        on_answer(f);
    } else if (frame->body_case == TONY__FRAME__BODY_REFUSED && conn == f->pool) {
        on_refused(f, frame->refused);
    }
}

static void on_close(struct conn *conn, const struct err *why, void *arg)
{
    struct follow *f = arg;
    (void)why; /* reconnect in the same way after every error */
    if (conn == f->pool)
        f->pool = NULL;
    if (conn == f->master)
        f->master = NULL;
    if (!f->over && !f->master)
        loop_timer_set(f->retry, clock_mono_ms() + 1);
}

static const struct conn_ops follow_ops = { .on_frame = on_frame, .on_close = on_close };

/* ---- requests ---- */

static void send_stop(struct follow *f)
{
    struct conn *to = f->master ? f->master : f->pool;
    if (to && f->want_stop)
        /* If the connection is broken, on_close() reconnects and sends the stop again. */
        (void)link_send_stop(to, f->id, f->stop_reason, f->o->checkpoint);
}

static void greet(struct follow *f, struct conn *conn)
{
    conn_set_arg(conn, &follow_ops, f);
    int what = f->o->owns_job ? TONY__CLIENT_ASK__WHAT__OWN : TONY__CLIENT_ASK__WHAT__FOLLOW;
    (void)link_send_ask(conn, what, f->id, ""); /* an error is handled as in send_stop() */
    send_stop(f);
}

static bool from_history(struct follow *f)
{
    struct err e = { 0 };
    int rc = follow_history(f->c, f->id, f->out, &e);
    if (rc == -EBUSY)
        return false;
    if (rc < 0)
        *f->e = e;
    end(f, rc);
    return true;
}

static void retry_later(struct follow *f)
{
    int64_t now = clock_mono_ms();
    if (!f->pool && !f->master && f->lost_since && now - f->lost_since > LOST_MS) {
        (void)err_wrap(f->e, -EIO, "lost contact with job '%s'", f->id);
        err_hint(f->e, "it may still run: tony status %s", f->id);
        end(f, -EIO);
        return;
    }
    /* The master needs a few ms from its start to its socket: so the first QUICK_TRIES retries do
     * not double the pause. */
    unsigned doubled = f->tries > QUICK_TRIES ? f->tries - QUICK_TRIES : 0;
    int64_t pause = MIN((int64_t)1 << MIN(doubled, 10U), (int64_t)RETRY_MAX_MS);
    f->tries++;
    loop_timer_set(f->retry, now + pause);
}

static void connect_again(struct follow *f)
{
    if (f->over || f->master)
        return;
    if (f->go_master && link_dial_master(f->c, f->id, &f->master, f->e) == 0) {
        greet(f, f->master);
        return;
    }
    if (!f->lost_since)
        f->lost_since = clock_mono_ms();
    if (from_history(f))
        return;
    if (!f->pool && link_dial_pool(f->c, true, &f->pool, f->e) == 0) {
        greet(f, f->pool);
        if (!f->go_master)
            return; /* the pool reports the master's socket when there is one */
    }
    if (f->go_master || !f->pool)
        retry_later(f);
}

static void on_retry(void *arg)
{
    connect_again(arg);
}

static void on_signal(int signo, void *arg)
{
    struct follow *f = arg;
    (void)signo;
    if (f->o->detach_on_signal) {
        f->out->detached = true;
        end(f, 0);
        return;
    }
    if (++f->n_signals > 1) {
        if (f->o->render)
            render_say(f->o->render, "not waiting any longer; job %s is being stopped", f->id);
        f->out->exit_code = EXIT_STOPPED;
        end(f, 0);
        return;
    }
    f->want_stop = true;
    f->stop_reason =
        signo == SIGINT ? "interrupted by the user" : "the client was stopped by a signal";
    if (f->o->render)
        render_say(f->o->render, "stopping job %s; interrupt again to stop waiting for it", f->id);
    send_stop(f);
}

/* ---- start and end ---- */

static int start(struct follow *f, struct conn *pool, struct err *e)
{
    static const int signos[] = { SIGINT, SIGTERM, SIGHUP };
    f->retry = loop_timer_new(f->c->loop, on_retry, f);
    if (!f->retry)
        return err_set(e, ENOMEM, "cannot follow job '%s': %m", f->id);
    for (size_t i = 0; (f->o->signals || f->o->detach_on_signal) && i < ARRAY_LEN(signos); i++)
        /* If this fails, the signal ends the client, as by default. */
        f->signals[i] = loop_signal_new(f->c->loop, signos[i], on_signal, f);
    if (pool) {
        f->pool = pool;
        greet(f, pool);
    } else {
        f->go_master = true; /* try the master first: a running job does not need the pool */
        connect_again(f);
        f->go_master = f->master != NULL;
    }
    return 0;
}

int follow_job(struct client *c, const char *application_id, struct conn *pool,
               const struct follow_options *o, struct follow_result *out, struct err *e)
{
    *out = (struct follow_result){ 0 };
    struct follow f = { .c = c,
                        .id = application_id,
                        .o = o,
                        .want_stop = o->stop != NULL,
                        .stop_reason = o->stop,
                        .out = out,
                        .e = e };
    if (!client_loop(c, e)) {
        conn_close(pool);
        return -ENOMEM;
    }
    int rc = start(&f, pool, e);
    if (rc == 0) {
        /* submit_hold_signals() has blocked the signals: deliver them now. */
        sigset_t set;
        (void)sigemptyset(&set);
        (void)sigprocmask(SIG_SETMASK, &set, NULL);
        while (!f.over)
            /* Only loop_stop() ends the loop: there is always a connection or a timer. */
            (void)loop_run(c->loop);
        rc = f.rc;
    }
    conn_close(f.pool);
    conn_close(f.master);
    loop_timer_free(f.retry);
    for (size_t i = 0; i < ARRAY_LEN(f.signals); i++)
        loop_signal_free(f.signals[i]);
    if (rc < 0)
        follow_result_done(out);
    return rc;
}

void follow_result_done(struct follow_result *r)
{
    json_decref(r->summary);
    *r = (struct follow_result){ 0 };
}

int follow_history(struct client *c, const char *application_id, struct follow_result *out,
                   struct err *e)
{
    int rc = client_look_paths(c, e);
    AUTO(free_p) char *dir = NULL;
    bool live = false;
    if (rc == 0)
        rc = paths_find_job(&c->paths, application_id, &dir, &live, e);
    if (rc < 0)
        return rc;
    AUTO(json_freep) json_t *doc = NULL;
    rc = history_status(dir, &doc, e);
    bool over = rc == 0 && json_is_integer(json_object_get(doc, "exit_code"));
    if (live && !over) /* this includes a job that is being moved to the history */
        return err_set(e, EBUSY, "job '%s' is not over", application_id);
    if (rc < 0)
        return rc;
    json_decref(out->summary);
    out->finished = true;
    out->exit_code = (int)doc_int(doc, "exit_code", 1);
    out->summary = TAKE(doc);
    return 0;
}
