/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows a job on any cluster. While the job has no master, the cluster is watched. When a report
 * says where the master is, the client connects to it, and hears of each change from it. After the
 * loss of that connection the cluster is watched again. The result is the master's verdict, else
 * what the cluster knows about the end.
 *
 *   stage      report: waits   report: runs       report: over   opened     closed     verdict
 *   LOOKING    shown           DIALLING           OVER           -          -          -
 *   DIALLING   -               newer: DIALLING    OVER           ATTACHED   LOOKING    VERDICT
 *   ATTACHED   -               newer: DIALLING    OVER           -          LOOKING    VERDICT
 *   VERDICT    -               -                  -              -          OVER       -
 *
 * "newer" means the report of a master with a higher number: the connection is to a master that was
 * given up, and may take hours to break.
 */
#include <errno.h>
#include <signal.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/link.h"
#include "cluster/log_watch.h"
#include "cluster/remote.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

enum {
    DIAL_PAUSE_MS = 200, /* between two connections to a remote master */
    /* If the master could not be reached for this time, say so. Then try again less often: there is
     * probably a firewall, or no route. */
    UNREACHED_MS = 5000,
    DIAL_PAUSE_LONG_MS = 5000,
    /* Wait this long after the verdict of a remote master. In this time it usually reports the end
     * to the cluster, and closes the connection. */
    AFTER_MS = 60,
};

enum stage { LOOKING, DIALLING, ATTACHED, VERDICT, OVER };

struct follow {
    struct cluster *k;
    const char *id;
    const struct follow_options *o;
    struct follow_result *out;
    struct err *e;
    int rc;
    enum stage stage;

    struct cluster_watch_config cfg;
    struct cluster_watch *watch;
    struct cluster_report report; /* the newest report that was used; it may name the master */

    struct cluster_report last; /* phase CLUSTER_OVER: the end, as the cluster tells it */

    struct conn *master;
    int32_t attempt; /* number of the master that was connected to last */
    int64_t dialled_ms;
    /* no connection to this master has succeeded since this time; 0 = the last one has */
    int64_t unreached_ms;
    bool said_unreached;
    bool heard;  /* the master has answered on this connection */
    bool no_key; /* the master refuses this client, or there is no key: only reports are left */

    struct loop_timer *timer;
    struct loop_signal *signals[3];
    unsigned n_signals;

    const char *stop_reason; /* NULL = the job need not be stopped */
    bool asked_tasks;
    json_t *tasks;            /* a status document, for the URLs of the logs */
    struct log_places places; /* of the output that was passed on */
};

static const struct cluster_ops *ops_of(const struct follow *f)
{
    return ((const struct cluster_head *)(const void *)f->k)->ops;
}

static struct cluster_host *host_of(const struct follow *f)
{
    return ((const struct cluster_head *)(const void *)f->k)->cfg.host;
}

static void end(struct follow *f, int rc)
{
    if (f->stage == OVER)
        return;
    f->stage = OVER;
    f->rc = rc;
    loop_stop(host_of(f)->loop);
}

static void say(const struct follow *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(const struct follow *f, const char *fmt, ...)
{
    AUTO(buf_done) struct buf text = { 0 };
    va_list ap;
    if (!f->o->say)
        return;
    va_start(ap, fmt);
    (void)buf_vaddf(&text, fmt, ap);
    va_end(ap);
    f->o->say(buf_cstr(&text), f->o->arg);
}

/* Takes doc. */
static void keep_summary(struct follow *f, json_t *doc)
{
    if (!json_is_object(doc)) {
        json_decref(doc);
        return;
    }
    json_decref(f->out->summary);
    f->out->summary = doc;
}

/* ---- stopping ---- */

static void stop_by_cluster(struct follow *f, enum cluster_stop how)
{
    if (f->stop_reason && f->watch)
        ops_of(f)->stop(f->watch, how, f->stop_reason, f->o->checkpoint);
}

static void send_stop(struct follow *f)
{
    if (f->stop_reason && f->stage == ATTACHED)
        /* If the connection is broken, on_close() looks for the master again. */
        (void)link_send_stop(f->master, f->id, f->stop_reason, f->o->checkpoint);
}

static void on_stopping(void *arg)
{
    struct follow *f = arg;
    if (f->o->return_when_stopping && f->stage < VERDICT)
        end(f, 0);
}

/* ---- the output of the tasks ---- */

static void watch_output(struct follow *f)
{
    const struct log_watch_wish w = { .which = f->o->output,
                                      .chosen = f->o->chosen,
                                      .n_chosen = f->o->n_chosen,
                                      .want_stdout = true,
                                      .want_stderr = true,
                                      .lossy = true,
                                      .rank = -1,
                                      .lines = -1 };
    if (f->o->output && f->o->log)
        /* If the connection is broken, on_close() looks for the master again. */
        (void)log_watch_send(f->master, &w, &f->places);
}

static void on_piece(struct follow *f, const Tony__LogPiece *p)
{
    struct cluster_log_text text;
    if (f->o->log && log_watch_take(&f->places, p, &text))
        f->o->log(&text, f->o->arg);
}

/* ---- the master ---- */

static void ask_tasks(struct follow *f)
{
    if (f->asked_tasks || !f->o->tasks || !ops_of(f)->remote)
        return;
    f->asked_tasks = true;
    /* An error is ignored: the tasks are only displayed. */
    (void)link_send_ask(f->master, TONY__CLIENT_ASK__WHAT__STATUS, f->id, "");
}

static void on_answer(struct follow *f, const Tony__Answer *a)
{
    json_t *doc = a->json.len ? json_loadb((const char *)a->json.data, a->json.len, 0, NULL) : NULL;
    if (json_is_array(json_object_get(doc, "tasks"))) {
        json_decref(f->tasks);
        f->tasks = doc;
        if (f->stage < VERDICT)
            f->o->tasks(doc, f->o->arg);
        return;
    }
    json_decref(doc);
    if (!f->stop_reason)
        return;
    /* the master answers when the stop is in its journal */
    stop_by_cluster(f, CLUSTER_STOP_CONFIRMED);
    on_stopping(f);
}

static void on_verdict(struct follow *f, int exit_code)
{
    f->out->finished = true;
    f->out->exit_code = exit_code;
    f->stage = VERDICT;
    if (ops_of(f)->remote)
        loop_timer_set(f->timer, clock_mono_ms() + AFTER_MS);
    else
        end(f, 0);
}

static void on_update(struct follow *f, const Tony__JobUpdate *u)
{
    if (u->json.len)
        keep_summary(
            f, json_loadb((const char *)u->json.data, u->json.len, JSON_REJECT_DUPLICATES, NULL));
    if (f->o->update)
        f->o->update(u->state, f->out->summary, f->o->arg);
    if (str_eq(u->state, "RUNNING") || u->finished)
        ask_tasks(f);
    bool enough = f->o->on_update && f->o->on_update(u->state, f->out->summary, f->o->arg);
    if (u->finished && f->stage < VERDICT)
        on_verdict(f, u->exit_code);
    else if (enough)
        end(f, 0);
}

static void on_frame(struct conn *conn, const Tony__Frame *frame, void *arg)
{
    struct follow *f = arg;
    (void)conn;
    if (f->stage == OVER)
        return;
    if (!f->heard) {
        f->heard = true;
        ops_of(f)->attend(f->watch, true);
    }
    if (frame->body_case == TONY__FRAME__BODY_JOB_UPDATE)
        on_update(f, frame->job_update);
    else if (frame->body_case == TONY__FRAME__BODY_ANSWER)
        on_answer(f, frame->answer);
    else if (frame->body_case == TONY__FRAME__BODY_LOG_PIECE)
        on_piece(f, frame->log_piece);
}

static void set_reached(struct follow *f)
{
    f->unreached_ms = 0;
    f->said_unreached = false;
}

/* An attempt to connect to the master has failed, or had no answer for UNREACHED_MS. */
static void note_unreached(struct follow *f, const struct err *why)
{
    if (!f->unreached_ms)
        f->unreached_ms = f->dialled_ms;
    if (f->said_unreached || clock_mono_ms() - f->unreached_ms < UNREACHED_MS)
        return;
    f->said_unreached = true;
    say(f, "the master of job %s cannot be reached from here: %s", f->id, why->msg);
    say(f, "the client follows the job by what the cluster knows, without its tasks; if a firewall "
           "is in the way, set tony.port-range");
}

static void on_open(struct conn *conn, void *arg)
{
    struct follow *f = arg;
    if (f->stage != DIALLING)
        return;
    f->stage = ATTACHED;
    set_reached(f);
    int what = f->o->owns_job ? TONY__CLIENT_ASK__WHAT__OWN : TONY__CLIENT_ASK__WHAT__FOLLOW;
    (void)link_send_ask(conn, what, f->id, ""); /* an error is handled as in send_stop() */
    watch_output(f);
    send_stop(f);
}

static void on_close(struct conn *conn, const struct err *why, void *arg)
{
    struct follow *f = arg;
    (void)conn;
    f->master = NULL;
    if (f->stage == OVER)
        return;
    if (f->stage == VERDICT) {
        end(f, 0);
        return;
    }
    if (f->stage == DIALLING && ops_of(f)->remote)
        note_unreached(f, why);
    f->stage = LOOKING;
    if (why->num == EACCES && ops_of(f)->key) /* the master refuses this key: there is no other */
        f->no_key = true;
    stop_by_cluster(f, f->no_key ? CLUSTER_STOP_ALONE : CLUSTER_STOP);
    ops_of(f)->attend(f->watch, false);
}

static const struct conn_ops master_ops = { .on_open = on_open,
                                            .on_frame = on_frame,
                                            .on_close = on_close };

static void dial(struct follow *f)
{
    int64_t now = clock_mono_ms();
    bool remote = !ops_of(f)->dial;
    struct err e = { 0 };
    if (f->no_key)
        return;
    int64_t pause = f->said_unreached ? DIAL_PAUSE_LONG_MS : DIAL_PAUSE_MS;
    if (remote && now - f->dialled_ms < pause) {
        loop_timer_set(f->timer, f->dialled_ms + pause);
        return;
    }
    f->dialled_ms = now;
    f->attempt = f->report.at.attempt;
    f->heard = false;
    f->stage = DIALLING;
    int rc = cluster_dial(f->k, &f->report, &master_ops, f, &f->master, &e);
    if (rc == 0 && remote) /* a firewall that drops packets lets the attempt take much longer */
        loop_timer_set(f->timer, now + UNREACHED_MS);
    else if (rc == 0)
        on_open(f->master, f);
    if (rc == 0)
        return;
    f->stage = LOOKING;
    if (rc == -ENOKEY) {
        f->no_key = true;
        stop_by_cluster(f, CLUSTER_STOP_ALONE);
    }
    ops_of(f)->attend(f->watch, false);
}

/* ---- reports of the cluster ---- */

/* The job is over, and its master has sent no verdict. If the report has none either, set_verdict()
 * makes one when the loop does not run any more: it waits for answers of the cluster. */
static void on_over(struct follow *f, const struct cluster_report *r)
{
    if (cluster_report_copy(r, &f->last) < 0) {
        (void)err_set(f->e, ENOMEM, "cannot follow job '%s': %m", f->id);
        end(f, -EXIT_CLUSTER);
        return;
    }
    f->out->finished = true;
    f->out->exit_code = r->exit_code;
    if (r->summary) {
        keep_summary(f, json_incref(r->summary));
        if (f->o->update)
            f->o->update(r->state, f->out->summary, f->o->arg);
        if (f->o->on_update)
            (void)f->o->on_update(r->state, f->out->summary, f->o->arg);
    }
    end(f, 0);
}

static int set_verdict(struct follow *f)
{
    json_t *doc = NULL;
    if (f->last.phase != CLUSTER_OVER || f->last.summary)
        return 0;
    int rc = ops_of(f)->verdict(f->k, &f->last, &doc, &f->out->exit_code, f->e);
    json_decref(f->out->summary);
    f->out->summary = doc;
    return rc;
}

/* Show that the job waits. Updates of the pool have a summary, but without the members that only a
 * master knows. */
static void show_waiting(struct follow *f, const struct cluster_report *r)
{
    if (r->summary) {
        keep_summary(f, json_incref(r->summary));
        if (f->o->update)
            f->o->update(r->state, f->out->summary, f->o->arg);
    } else if (f->o->waits && !f->out->summary) {
        const char *state = f->said_unreached              ? "RUNNING"
                            : r->phase >= CLUSTER_STARTING ? "STARTING"
                                                           : r->state;
        f->o->waits(state, r->why ? r->why : "", f->o->arg);
    }
}

static void on_report(const struct cluster_report *r, void *arg)
{
    struct follow *f = arg;
    if (f->stage >= VERDICT) /* the verdict of the master is final */
        return;
    if (r->phase == CLUSTER_OVER) {
        on_over(f, r);
        return;
    }
    if (r->at.attempt > f->attempt)
        set_reached(f); /* another master */
    if (f->stage != LOOKING && r->at.attempt > f->attempt) {
        conn_close(TAKE(f->master));
        f->stage = LOOKING;
        ops_of(f)->attend(f->watch, false);
    }
    if (f->stage == LOOKING || (f->stage == DIALLING && f->said_unreached))
        show_waiting(f, r);
    if (f->stage != LOOKING)
        return;
    struct cluster_report now;
    if (r->phase != CLUSTER_RUNNING) {
        f->report.phase = r->phase; /* on_timer() must not dial the master of an earlier run */
        return;
    }
    if (cluster_report_copy(r, &now) < 0)
        return;
    cluster_report_done(&f->report);
    f->report = now;
    dial(f);
}

static void on_silent(const char *text, void *arg)
{
    struct follow *f = arg;
    say(f, "%s", text);
}

static void on_lost(int code, const struct err *why, void *arg)
{
    struct follow *f = arg;
    *f->e = *why;
    end(f, -code);
}

/* The master has not answered for UNREACHED_MS: tell the user. The client still tries to connect.
 */
static void note_silent(struct follow *f)
{
    struct err why;
    const struct cluster_master *at = &f->report.at;
    (void)err_set(&why, ETIMEDOUT, "%s:%u has not answered for %d s",
                  at->host ? at->host : "its node", at->port, UNREACHED_MS / 1000);
    note_unreached(f, &why);
}

static void on_timer(void *arg)
{
    struct follow *f = arg;
    if (f->stage == DIALLING)
        note_silent(f);
    /* AFTER_MS is over: do not wait longer for the end of the connection */
    if (f->stage == VERDICT)
        end(f, 0);
    else if (f->stage == LOOKING && f->report.phase == CLUSTER_RUNNING)
        dial(f);
}

/* ---- signals ---- */

static void on_signal(int signo, void *arg)
{
    struct follow *f = arg;
    if (f->o->detach_on_signal) {
        f->out->detached = true;
        end(f, 0);
        return;
    }
    if (++f->n_signals > 1) {
        say(f, "not waiting any longer; job %s is being stopped", f->id);
        f->out->finished = false;
        f->out->exit_code = EXIT_STOPPED;
        end(f, 0);
        return;
    }
    f->stop_reason =
        signo == SIGINT ? "interrupted by the user" : "the client was stopped by a signal";
    say(f, "stopping job %s; interrupt again to stop waiting for it", f->id);
    send_stop(f);
    if (f->stage < VERDICT)
        stop_by_cluster(f, f->no_key ? CLUSTER_STOP_ALONE : CLUSTER_STOP);
}

/* ---- start and end ---- */

static int start(struct follow *f)
{
    static const int signos[] = { SIGINT, SIGTERM, SIGHUP };
    struct loop *loop = host_loop(host_of(f), f->e);
    f->timer = loop ? loop_timer_new(loop, on_timer, f) : NULL;
    if (!f->timer) {
        (void)err_set(f->e, ENOMEM, "cannot follow job '%s': %m", f->id);
        return -EXIT_CLUSTER;
    }
    for (size_t i = 0; (f->o->signals || f->o->detach_on_signal) && i < ARRAY_LEN(signos); i++)
        /* If this fails, the signal ends the client, as by default. */
        f->signals[i] = loop_signal_new(loop, signos[i], on_signal, f);
    f->cfg = (struct cluster_watch_config){ .id = f->id,
                                            .owned = f->o->owns_job,
                                            .on_report = on_report,
                                            .on_silent = on_silent,
                                            .on_stopping = on_stopping,
                                            .on_lost = on_lost,
                                            .arg = f };
    int rc = ops_of(f)->watch(f->k, &f->cfg, &f->watch, f->e);
    if (rc == 0)
        stop_by_cluster(f, CLUSTER_STOP);
    return rc;
}

static void run(const struct follow *f)
{
    /* signals_hold() has blocked the signals: deliver them now. */
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigprocmask(SIG_SETMASK, &set, NULL);
    while (f->stage != OVER)
        /* Only loop_stop() ends the loop: the watch always has a connection, a request or a timer.
         */
        (void)loop_run(host_of(f)->loop);
}

/* Add the URLs of the logs, which the master's summary lacks. */
static void attach_logs(struct follow *f)
{
    json_t *tasks = json_object_get(f->tasks, "tasks");
    json_t *master = json_object_get(f->tasks, "log_url");
    if (f->out->summary && tasks && !json_object_get(f->out->summary, "tasks"))
        (void)json_object_set(f->out->summary, "tasks", tasks); /* for the log of the cause */
    if (f->out->summary && json_string_length(master) &&
        !json_object_get(f->out->summary, "log_url"))
        (void)json_object_set(f->out->summary, "log_url", master);
}

int cluster_follow(struct cluster *k, const char *id, const struct follow_options *o,
                   struct follow_result *out, struct err *e)
{
    *out = (struct follow_result){ 0 };
    struct follow f = { .k = k, .id = id, .o = o, .out = out, .e = e, .stop_reason = o->stop };
    int rc = start(&f);
    if (rc == 0) {
        run(&f);
        rc = f.rc;
    }
    conn_close(TAKE(f.master));
    if (f.watch)
        ops_of(&f)->unwatch(f.watch);
    loop_timer_free(f.timer);
    for (size_t i = 0; i < ARRAY_LEN(f.signals); i++)
        loop_signal_free(f.signals[i]);
    if (rc == 0)
        rc = set_verdict(&f);
    if (rc == 0)
        attach_logs(&f);
    json_decref(f.tasks);
    vec_done(&f.places.v);
    cluster_report_done(&f.report);
    cluster_report_done(&f.last);
    if (rc < 0)
        follow_result_done(out);
    return rc;
}

void follow_result_done(struct follow_result *r)
{
    json_decref(r->summary);
    *r = (struct follow_result){ 0 };
}
