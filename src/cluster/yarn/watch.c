/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches an application by reports of the ResourceManager, and kills it if its master does not
 * stop it.
 *
 * The pace of the requests depends on the state of the job; POLLS has it.
 *
 *   stop       what the watch does after each report
 *   NO_STOP    nothing
 *   ASKED      kills the application if it has had no master yet, or STOP_BY_MASTER_MS after the
 *              request
 *   FORCED     kills the application
 *   CONFIRMED  nothing: its master stops it
 */
#include <errno.h>

#include "base/base.h"
#include "cluster/yarn/yarn.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"
#include "loop/loop.h"
#include "storage/jobkey.h"

enum {
    REPORT_MS = 20000, /* timeout of one request, retries included */
    /* While a master is connected: its node may fail without closing the connection. */
    WATCH_MS = 5000,
    /* Give up if for this time neither the ResourceManager nor the master answers. */
    LOST_MS = 15 * 60 * 1000,
    PENDING_MS = 2000, /* timeout for requests that are under way at the end */
    /* If the master has not confirmed a stop within this time, the ResourceManager kills the
     * application. */
    STOP_BY_MASTER_MS = 5000,
    WHY_AFTER_MS = 1000, /* after a shorter wait, do not show why the job waits */
};

/* The pauses between two reports of a job without a master, by the time since the watch began. */
static const struct {
    int64_t until_ms, pause_ms;
} polls[] = {
    { 5000, 20 }, /* the state changes often */
    { 10000, 250 },
    { INT64_MAX, 1000 }, /* the job waits in the queue, perhaps with hundreds of others */
};

/* After yarn_stop(): the program that stops the application. */
enum stop {
    NO_STOP,
    ASKED,     /* the master, if it does so in time; otherwise the ResourceManager */
    FORCED,    /* the ResourceManager, at once */
    CONFIRMED, /* the master, which has confirmed the request */
};

struct cluster_watch {
    struct cluster_watch_head head;
    struct yarn *y;
    struct loop_timer *poll;
    struct rpc_call *asking, *killing;
    struct yarn_report report; /* the newest; state 0 = none since the last request to stop */
    enum stop stop;
    const char *stop_reason;
    bool attended;    /* the client is connected to the master: reports matter less */
    bool over;        /* the job has ended, contact is lost or the watch is freed: ask no more */
    bool said_silent; /* on_silent() was called for the silence that lasts */
    bool forgotten;   /* the ResourceManager does not know the application any more */
    int64_t began_ms;
    int64_t silent_ms;        /* since when the ResourceManager has not answered; 0 = it answers */
    int64_t stop_ms;          /* when the job was first asked to stop */
    int64_t startup_limit_ms; /* tony.am.startup-timeout; 0 = none */
};

int64_t yarn_watch_pause_ms(int64_t watched_ms)
{
    size_t i = 0;
    while (watched_ms >= polls[i].until_ms)
        i++;
    return polls[i].pause_ms;
}

static void poll_again(struct cluster_watch *w)
{
    int64_t now = clock_mono_ms();
    loop_timer_set(
        w->poll, now + (w->attended ? (int64_t)WATCH_MS : yarn_watch_pause_ms(now - w->began_ms)));
}

static void lost(struct cluster_watch *w, const struct err *why)
{
    w->over = true;
    w->head.cfg->on_lost(EXIT_CLUSTER, why, w->head.cfg->arg);
}

/* ---- stopping without a master ---- */

/* While the watch ends, its loop waits for the answers that are under way. */
static void answered(const struct cluster_watch *w)
{
    if (w->over && !w->asking && !w->killing)
        loop_stop(w->y->loop);
}

static void on_killed(const Hadoop__KillApplicationResponse *r, const struct rpc_error *e,
                      void *arg)
{
    struct cluster_watch *w = arg;
    (void)r; /* on success, a later report has the final state */
    w->killing = NULL;
    if (!w->over && e && (e->kind == RPC_FAULT_AUTH || e->kind == RPC_FAULT_APPLICATION))
        lost(w, &e->err);
    answered(w);
}

static void force_kill(struct cluster_watch *w)
{
    struct yarn_app app;
    struct yarn_id_msg m;
    Hadoop__KillApplicationRequest rq = HADOOP__KILL_APPLICATION_REQUEST__INIT;
    if (w->killing || yarn_app_parse(span_of(w->head.cfg->id), &app, NULL) < 0)
        return;
    rq.application_id = yarn_app_msg(&m, &app);
    if (w->stop_reason && *w->stop_reason)
        rq.diagnostics = (char *)(uintptr_t)w->stop_reason;
    w->killing = yarn_kill_application(w->y->rpc, &rq, clock_mono_ms() + REPORT_MS, on_killed, w);
}

/* Has a report said that the application has no master yet? */
static bool is_before_master(const struct cluster_watch *w)
{
    return w->report.state && w->report.state < HADOOP__YARN_APPLICATION_STATE__RUNNING;
}

static void see_to_stop(struct cluster_watch *w)
{
    bool late = clock_mono_ms() - w->stop_ms > STOP_BY_MASTER_MS;
    if (w->stop == FORCED || (w->stop == ASKED && (late || (!w->attended && is_before_master(w)))))
        force_kill(w);
}

static void see_to_startup(struct cluster_watch *w)
{
    if (!w->startup_limit_ms || w->stop != NO_STOP || !is_before_master(w) ||
        clock_mono_ms() - w->began_ms < w->startup_limit_ms)
        return;
    w->stop = FORCED;
    w->y->never_started = true;
    w->stop_reason = YARN_NEVER_STARTED;
}

/* ---- reports ---- */

static void on_silence(struct cluster_watch *w, const struct rpc_error *e)
{
    int64_t now = clock_mono_ms();
    if (!w->silent_ms)
        w->silent_ms = now;
    if (e->kind == RPC_FAULT_AUTH || now - w->silent_ms > LOST_MS) {
        struct err why = e->err;
        (void)err_wrap(&why, -EIO, "lost contact with job '%s'", w->head.cfg->id);
        err_hint(&why, "it may still run: tony status %s", w->head.cfg->id);
        lost(w, &why);
    } else if (!w->said_silent) {
        AUTO(free_p)
        char *text =
            str_printf("the ResourceManager does not answer; still trying: %s", e->err.msg);
        w->said_silent = true;
        if (text)
            w->head.cfg->on_silent(text, w->head.cfg->arg);
    }
}

/* A ResourceManager that restarts without a state store forgets all applications. The NodeManagers
 * then kill their containers. */
static void forgotten(struct cluster_watch *w)
{
    struct err why = { 0 };
    (void)err_set(&why, ENOENT, "the ResourceManager knows no application '%s' any more",
                  w->head.cfg->id);
    err_hint(&why, "it forgets its jobs when it restarts without a state store "
                   "(yarn.resourcemanager.recovery.enabled); submit the job again");
    w->forgotten = true;
    lost(w, &why);
}

static void use_report(struct cluster_watch *w)
{
    struct cluster_report r;
    if (yarn_cluster_report(w->y, &w->report, &r) < 0)
        return; /* out of memory: the next report comes soon */
    if (r.phase == CLUSTER_WAITING && clock_mono_ms() - w->began_ms < WHY_AFTER_MS) {
        free(TAKE(r.why));
    }
    w->over = r.phase == CLUSTER_OVER;
    w->head.cfg->on_report(&r, w->head.cfg->arg);
    cluster_report_done(&r);
}

static void on_report(const Hadoop__GetApplicationReportResponse *r, const struct rpc_error *e,
                      void *arg)
{
    struct cluster_watch *w = arg;
    struct yarn_report now;
    w->asking = NULL;
    answered(w);
    if (w->over)
        return;
    if (e && w->attended) {
        w->silent_ms = 0; /* the master answers, so no report is needed */
    } else if (e && e->kind == RPC_FAULT_NOT_FOUND) {
        forgotten(w);
    } else if (e) {
        on_silence(w, e);
    } else if (r->application_report && yarn_report_copy(r->application_report, &now) == 0) {
        yarn_report_done(&w->report);
        w->report = now;
        w->silent_ms = 0;
        w->said_silent = false;
        use_report(w);
    }
    if (w->over)
        return;
    see_to_startup(w);
    see_to_stop(w);
    poll_again(w);
}

static void ask_report(void *arg)
{
    struct cluster_watch *w = arg;
    struct yarn_app app;
    struct yarn_id_msg m;
    Hadoop__GetApplicationReportRequest rq = HADOOP__GET_APPLICATION_REPORT_REQUEST__INIT;
    if (w->over) { /* the watch ends, and some answer has not come */
        loop_stop(w->y->loop);
        return;
    }
    if (w->asking || yarn_app_parse(span_of(w->head.cfg->id), &app, NULL) < 0)
        return;
    rq.application_id = yarn_app_msg(&m, &app);
    w->asking =
        yarn_get_application_report(w->y->rpc, &rq, clock_mono_ms() + REPORT_MS, on_report, w);
    if (!w->asking)
        poll_again(w);
}

/* ---- the table's functions ---- */

int yarn_watch(struct cluster *k, const struct cluster_watch_config *cfg,
               struct cluster_watch **out, struct err *e)
{
    struct yarn *y = yarn_of(k);
    struct yarn_app app;
    if (yarn_home(y, e) < 0 || yarn_app_parse(span_of(cfg->id), &app, e) < 0)
        return e->num == EINVAL ? -EXIT_MISUSE : -EXIT_CLUSTER;
    struct tls_key key = { .len = 0 };
    struct err unread = { 0 };
    (void)yarn_client_key(y, cfg->id, &key, &unread); /* without it, only reports are left */
    job_key_wipe(&key, sizeof key);
    struct cluster_watch *w = calloc(1, sizeof *w);
    if (w)
        *w = (struct cluster_watch){ .head = { k, cfg }, .y = y, .began_ms = clock_mono_ms() };
    if (!w || !(w->poll = loop_timer_new(y->loop, ask_report, w))) {
        free(w);
        (void)err_set(e, ENOMEM, "cannot follow job '%s': %m", cfg->id);
        return -EXIT_CLUSTER;
    }
    y->watching = true;
    if (cfg->owned)
        w->startup_limit_ms = MAX(conf_int(y->conf, "tony.am.startup-timeout"), (int64_t)0);
    loop_timer_set(w->poll, w->began_ms);
    *out = w;
    return 0;
}

void yarn_attend(struct cluster_watch *w, bool connected)
{
    bool was = w->attended;
    w->attended = connected;
    w->silent_ms = 0;
    if (was && !connected && !w->asking && !w->over)
        poll_again(w);
}

void yarn_stop(struct cluster_watch *w, enum cluster_stop how, const char *reason, bool checkpoint)
{
    static const enum stop stops[] = {
        [CLUSTER_STOP] = ASKED, [CLUSTER_STOP_ALONE] = FORCED, [CLUSTER_STOP_CONFIRMED] = CONFIRMED
    };
    (void)checkpoint;
    if (w->stop == NO_STOP)
        w->stop_ms = clock_mono_ms();
    w->stop = stops[how];
    w->stop_reason = reason;
    if (how == CLUSTER_STOP_CONFIRMED || w->over)
        return;
    /* The last report may be older than the request: its master may have started since. */
    w->report.state = 0;
    if (w->asking)
        rpc_call_cancel(TAKE(w->asking));
    poll_again(w);
}

/* If the client exits while a request is under way, the ResourceManager logs a warning when it
 * answers. So wait for the answer, up to PENDING_MS. */
void yarn_unwatch(struct cluster_watch *w)
{
    w->over = true;
    loop_timer_set(w->poll, clock_mono_ms() + PENDING_MS);
    if (w->asking || w->killing)
        (void)loop_run(w->y->loop);
    if (w->asking)
        rpc_call_cancel(w->asking);
    if (w->killing)
        rpc_call_cancel(w->killing);
    loop_timer_free(w->poll);
    if (w->forgotten && w->head.cfg->owned)
        yarn_clear_staging(w->y, w->head.cfg->id);
    w->y->watching = false;
    yarn_report_done(&w->report);
    free(w);
}
