/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows a job on YARN. Until the job has a master, the client polls the ResourceManager for
 * reports. Then it connects to the master over TLS and uses the same frames as with the pool. After
 * an error it polls or connects again. If the master has sent no verdict, the result comes from the
 * job's history, else from the ResourceManager's last report.
 */
#include <errno.h>
#include <signal.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/show/render.h"
#include "cluster/follow.h"
#include "cluster/link.h"
#include "cluster/yarn/yarn.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "storage/jobkey.h"

enum {
    POLL_MS = 20, /* in the first SOON_MS, when the state changes often */
    POLL_LATER_MS = 100,
    POLL_LONG_MS = 1000,
    /* While connected to the master: its node may fail without closing the connection. */
    WATCH_MS = 5000,
    SOON_MS = 5000,
    LATER_MS = 60000,
    REPORT_MS = 20000, /* timeout of one request, retries included */
    /* Give up if for this time neither the ResourceManager nor the master answers. */
    LOST_MS = 15 * 60 * 1000,
    /* Wait this long after the verdict. In this time the master usually reports the end to the
     * ResourceManager. */
    AFTER_MS = 60,
    PENDING_MS = 2000, /* timeout for a request that is under way: see leave() */
    DIAL_MS = 10000,
    DIAL_PAUSE_MS = 200,
    STOP_BY_MASTER_MS = 5000, /* If the master has not confirmed a stop within this time, the client
                                 asks the ResourceManager to kill the application. */
    TASKS_SHOWN = 16,
    WHY_AFTER_MS = 1000, /* after a shorter wait, do not show why the job waits */
};

struct follow {
    struct yarn *y;
    const char *id;
    const struct follow_options *o;
    struct follow_result *out;
    const struct tls_key *key; /* NULL = none: the client can only use reports */
    struct conn *master;
    bool open; /* the TLS handshake is complete */
    struct loop_timer *poll;
    struct rpc_call *asking, *killing;
    struct loop_signal *signals[3];
    struct yarn_report report; /* the newest */
    bool report_old; /* the report is older than the request to stop: the master may have started
                        since */
    int64_t began_ms, silent_ms, dialled_ms, verdict_ms, stop_ms, startup_limit_ms, leave_ms;
    int32_t attempt; /* number of the attempt whose master was connected to last */
    unsigned n_signals;
    bool want_stop, stop_taken, force, over, by_report, forgotten, never_started, asked_tasks,
        said_silent;
    const char *stop_reason;
    json_t *tasks; /* a status document, for the log URLs of the tasks */
    int rc;
    struct err *e;
};

static void ask_report(struct follow *f);

static void end(struct follow *f, int rc)
{
    if (f->over)
        return;
    f->over = true;
    f->rc = rc;
    loop_stop(f->y->loop);
}

/* The result is known: end the loop. If the client exits while a request is under way, the
 * ResourceManager logs a warning when it answers. So wait for the answer, up to PENDING_MS. */
static void leave(struct follow *f)
{
    int64_t now = clock_mono_ms();
    if (!f->leave_ms)
        f->leave_ms = now;
    if (!(f->asking || f->killing) || now >= f->leave_ms + PENDING_MS)
        end(f, 0);
    else
        loop_timer_set(f->poll, f->leave_ms + PENDING_MS);
}

static int64_t poll_pause(const struct follow *f)
{
    int64_t waited = clock_mono_ms() - f->began_ms;
    if (f->open)
        return WATCH_MS;
    if (waited < SOON_MS)
        return POLL_MS;
    return waited < LATER_MS ? POLL_LATER_MS : POLL_LONG_MS;
}

static void poll_again(struct follow *f)
{
    loop_timer_set(f->poll, clock_mono_ms() + poll_pause(f));
}

/* ---- the master ---- */

static void keep_summary(struct follow *f, const Tony__JobUpdate *u)
{
    json_t *doc = u->json.len ? json_loadb((const char *)u->json.data, u->json.len,
                                           JSON_REJECT_DUPLICATES, NULL)
                              : NULL;
    if (!json_is_object(doc)) {
        json_decref(doc);
        return;
    }
    json_decref(f->out->summary);
    f->out->summary = doc;
}

static void ask_tasks(struct follow *f)
{
    if (f->asked_tasks || !f->o->render)
        return;
    f->asked_tasks = true;
    /* An error is ignored: the tasks are only displayed. */
    (void)link_send_ask(f->master, TONY__CLIENT_ASK__WHAT__STATUS, f->id, "");
}

static void say_tasks(struct follow *f, const json_t *doc)
{
    const json_t *tasks = json_object_get(doc, "tasks");
    size_t i;
    json_t *task;
    if (doc_str(doc, "log_url")[0])
        render_say(f->o->render, "  %-12s %s", "master", doc_str(doc, "log_url"));
    if (json_array_size(tasks) > TASKS_SHOWN) {
        render_say(f->o->render, "  tony tasks %s lists the %zu tasks with their logs", f->id,
                   json_array_size(tasks));
        return;
    }
    json_array_foreach(tasks, i, task) if (doc_str(task, "log_url")[0])
        render_say(f->o->render, "  %-12s %s", doc_str(task, "task"), doc_str(task, "log_url"));
}

static void on_answer(struct follow *f, const Tony__Answer *a)
{
    json_t *doc = a->json.len ? json_loadb((const char *)a->json.data, a->json.len, 0, NULL) : NULL;
    if (json_is_array(json_object_get(doc, "tasks"))) {
        json_decref(f->tasks);
        f->tasks = doc;
        if (f->o->render && !f->verdict_ms)
            say_tasks(f, doc);
        return;
    }
    json_decref(doc);
    if (!f->want_stop)
        return;
    f->stop_taken = true; /* the master answers once the stop is in the journal */
    if (f->o->return_when_stopping)
        leave(f);
}

static void on_update(struct follow *f, const Tony__JobUpdate *u)
{
    keep_summary(f, u);
    if (f->o->render)
        render_update(f->o->render, u->state, f->out->summary);
    if (str_eq(u->state, "RUNNING") || u->finished)
        ask_tasks(f);
    if (f->o->on_update && f->o->on_update(u->state, f->out->summary, f->o->on_update_arg) &&
        !u->finished)
        leave(f);
    if (!u->finished || f->verdict_ms)
        return;
    f->out->finished = true;
    f->out->exit_code = u->exit_code;
    f->verdict_ms = clock_mono_ms();
    loop_timer_set(f->poll, f->verdict_ms + AFTER_MS);
}

static void on_frame(struct conn *conn, const Tony__Frame *frame, void *arg)
{
    struct follow *f = arg;
    (void)conn;
    f->silent_ms = 0;
    if (frame->body_case == TONY__FRAME__BODY_JOB_UPDATE)
        on_update(f, frame->job_update);
    else if (frame->body_case == TONY__FRAME__BODY_ANSWER)
        on_answer(f, frame->answer);
}

static void on_close(struct conn *conn, const struct err *why, void *arg)
{
    struct follow *f = arg;
    (void)conn;
    f->master = NULL;
    f->open = f->stop_taken = false;
    if (why->num == EACCES) /* the master refuses this key, and there is no other one */
        f->key = NULL;
    if (f->verdict_ms)
        leave(f);
    else if (!f->over && !f->leave_ms)
        poll_again(f);
}

static void send_stop(struct follow *f)
{
    if (f->open && f->want_stop)
        /* If the connection is broken, on_close() polls again, and dial() reconnects. */
        (void)link_send_stop(f->master, f->id, f->stop_reason, f->o->checkpoint);
}

static void on_open(struct conn *conn, void *arg)
{
    struct follow *f = arg;
    f->open = true;
    f->silent_ms = 0;
    int what = f->o->owns_job ? TONY__CLIENT_ASK__WHAT__OWN : TONY__CLIENT_ASK__WHAT__FOLLOW;
    (void)link_send_ask(conn, what, f->id, ""); /* an error is handled as in send_stop() */
    send_stop(f);
}

static const struct conn_ops master_ops = { .on_open = on_open,
                                            .on_frame = on_frame,
                                            .on_close = on_close };

static void dial(struct follow *f)
{
    int64_t now = clock_mono_ms();
    const struct yarn_report *r = &f->report;
    if (f->master || !f->key || !r->host[0] || r->rpc_port <= 0 || r->rpc_port > UINT16_MAX ||
        f->verdict_ms || now - f->dialled_ms < DIAL_PAUSE_MS)
        return;
    const struct conn_target to = { .host = r->host,
                                    .port = (uint16_t)r->rpc_port,
                                    .identity = JOB_KEY_CLIENT,
                                    .key = f->key,
                                    .deadline_ms = now + DIAL_MS };
    f->dialled_ms = now;
    f->attempt = r->attempt;
    struct err e = { 0 };
    if (conn_dial_tls(f->y->loop, &to, &master_ops, f, &f->master, &e) == 0)
        /* If the connection is broken, on_close() polls again. */
        (void)link_hello(f->y->c, f->master);
}

/* ---- stopping without a master ---- */

static void on_killed(const Hadoop__KillApplicationResponse *r, const struct rpc_error *e,
                      void *arg)
{
    struct follow *f = arg;
    f->killing = NULL;
    if (f->leave_ms)
        leave(f);
    else if (e && (e->kind == RPC_FAULT_AUTH || e->kind == RPC_FAULT_APPLICATION)) {
        *f->e = e->err;
        end(f, -EXIT_CLUSTER);
    }
    (void)r; /* on success, a later report has the final state */
}

static void force_kill(struct follow *f)
{
    struct yarn_app app;
    struct yarn_id_msg m;
    Hadoop__KillApplicationRequest rq = HADOOP__KILL_APPLICATION_REQUEST__INIT;
    if (f->killing || yarn_app_parse(span_of(f->id), &app, NULL) < 0)
        return;
    rq.application_id = yarn_app_msg(&m, &app);
    rq.diagnostics = (char *)(uintptr_t)f->stop_reason;
    f->killing = yarn_kill_application(f->y->rpc, &rq, clock_mono_ms() + REPORT_MS, on_killed, f);
}

/* Prefer a stop by the master: it stops tasks gently and writes the verdict. If there is no master,
 * or it has not confirmed the stop, the ResourceManager kills the application. */
static void see_to_stop(struct follow *f)
{
    bool before = !f->open && !f->report_old && f->report.state &&
                  f->report.state < HADOOP__YARN_APPLICATION_STATE__RUNNING;
    if (!f->want_stop || f->stop_taken || f->verdict_ms)
        return;
    if (before || f->force || !f->key || clock_mono_ms() - f->stop_ms > STOP_BY_MASTER_MS)
        force_kill(f);
}

static void see_to_startup(struct follow *f)
{
    bool before = f->report.state && f->report.state < HADOOP__YARN_APPLICATION_STATE__RUNNING;
    if (!f->startup_limit_ms || !before || f->want_stop ||
        clock_mono_ms() - f->began_ms < f->startup_limit_ms)
        return;
    f->want_stop = f->force = f->never_started = true;
    f->stop_reason = "the master did not start within tony.am.startup-timeout";
}

/* ---- the report ---- */

/* Why the application waits, as the ResourceManager reports it. yarn_waiting_text() removes the
 * time and the figures, which differ in every report. */
static void why_waiting(const struct follow *f, char *out, size_t n)
{
    out[0] = 0;
    if (clock_mono_ms() - f->began_ms < WHY_AFTER_MS)
        return;
    char line[200];
    yarn_waiting_text(f->report.diagnostics, line, sizeof line);
    (void)snprintf(out, n, "queue %s%s%s", f->report.queue, line[0] ? ": " : "", line);
}

static void show_report(struct follow *f)
{
    char why[256];
    if (!f->o->render || f->out->summary)
        return;
    if (f->report.state == HADOOP__YARN_APPLICATION_STATE__RUNNING) {
        render_state(f->o->render, "STARTING", "");
        return;
    }
    why_waiting(f, why, sizeof why);
    render_state(f->o->render, yarn_app_state_name(f->report.state), why);
}

static void on_silence(struct follow *f, const struct rpc_error *e)
{
    int64_t now = clock_mono_ms();
    if (!f->silent_ms)
        f->silent_ms = now;
    if (e->kind == RPC_FAULT_AUTH || now - f->silent_ms > LOST_MS) {
        *f->e = e->err;
        (void)err_wrap(f->e, -EIO, "lost contact with job '%s'", f->id);
        err_hint(f->e, "it may still run: tony status %s", f->id);
        end(f, -EXIT_CLUSTER);
    } else if (!f->said_silent && f->o->render) {
        f->said_silent = true;
        render_say(f->o->render, "the ResourceManager does not answer; still trying: %s",
                   e->err.msg);
    }
}

/* A ResourceManager that restarts without a state store forgets all applications. The NodeManagers
 * then kill their containers. */
static void forgotten(struct follow *f)
{
    (void)err_set(f->e, ENOENT, "the ResourceManager knows no application '%s' any more", f->id);
    err_hint(f->e, "it forgets its jobs when it restarts without a state store "
                   "(yarn.resourcemanager.recovery.enabled); submit the job again");
    f->forgotten = true;
    end(f, -EXIT_CLUSTER);
}

/* A connection to a lost node may take two hours to break. The ResourceManager reports the end of
 * the application, or its next attempt, earlier. */
static void use_report(struct follow *f)
{
    if (yarn_app_state_is_final(f->report.state)) {
        f->by_report = true;
        leave(f);
        return;
    }
    if (f->master && f->report.attempt > f->attempt) {
        conn_close(TAKE(f->master));
        f->open = f->stop_taken = false;
    }
    if (f->report.state == HADOOP__YARN_APPLICATION_STATE__RUNNING)
        dial(f);
    show_report(f);
}

static void on_report(const Hadoop__GetApplicationReportResponse *r, const struct rpc_error *e,
                      void *arg)
{
    struct follow *f = arg;
    f->asking = NULL;
    if (f->leave_ms)
        leave(f);
    if (f->over || f->verdict_ms || f->leave_ms) /* the verdict of the master is final */
        return;
    if (e && f->open) {
        f->silent_ms = 0; /* the master answers, so no report is needed */
    } else if (e && e->kind == RPC_FAULT_NOT_FOUND) {
        forgotten(f);
    } else if (e) {
        on_silence(f, e);
    } else if (r->application_report) {
        struct yarn_report now;
        if (yarn_report_copy(r->application_report, &now) == 0) {
            yarn_report_done(&f->report);
            f->report = now;
            f->report_old = false;
        }
        f->silent_ms = 0;
        f->said_silent = false;
        use_report(f);
    }
    if (f->over || f->leave_ms)
        return;
    see_to_startup(f);
    see_to_stop(f);
    poll_again(f);
}

static void ask_report(struct follow *f)
{
    struct yarn_app app;
    struct yarn_id_msg m;
    Hadoop__GetApplicationReportRequest rq = HADOOP__GET_APPLICATION_REPORT_REQUEST__INIT;
    if (f->asking || f->over || yarn_app_parse(span_of(f->id), &app, NULL) < 0)
        return;
    rq.application_id = yarn_app_msg(&m, &app);
    f->asking =
        yarn_get_application_report(f->y->rpc, &rq, clock_mono_ms() + REPORT_MS, on_report, f);
    if (!f->asking)
        poll_again(f);
}

static void on_poll(void *arg)
{
    struct follow *f = arg;
    if (f->verdict_ms || f->leave_ms) /* do not wait longer: the master may be slow to unregister */
        leave(f);
    else
        ask_report(f);
}

static void on_signal(int signo, void *arg)
{
    struct follow *f = arg;
    if (f->o->detach_on_signal) {
        f->out->detached = true;
        end(f, 0);
        return;
    }
    if (++f->n_signals > 1) {
        if (f->o->render)
            render_say(f->o->render, "not waiting any longer; job %s is being stopped", f->id);
        f->out->finished = false;
        f->out->exit_code = EXIT_STOPPED;
        end(f, 0);
        return;
    }
    f->want_stop = true;
    f->stop_ms = clock_mono_ms();
    f->stop_reason =
        signo == SIGINT ? "interrupted by the user" : "the client was stopped by a signal";
    if (f->o->render)
        render_say(f->o->render, "stopping job %s; interrupt again to stop waiting for it", f->id);
    send_stop(f);
    f->report_old = true;
    if (f->asking)
        rpc_call_cancel(TAKE(f->asking));
    if (!f->verdict_ms)
        /* on_report() kills the application if the master does not confirm the stop. */
        poll_again(f);
}

/* ---- the result ---- */

/* If a master has failed at its start, the end of its stderr is in the diagnostics: add it to the
 * document. */
static void add_diagnostics(json_t *doc, const struct yarn_report *r)
{
    const char *tail = strstr(r->diagnostics, "bytes of stderr");
    const char *text = tail ? strchr(tail, '\n') : NULL;
    struct span rest = span_trim(span_of(text ? text : ""));
    /* YARN's own text follows; it begins with a time in brackets */
    for (const char *p = rest.len ? strchr(rest.p, '\n') : NULL; p; p = strchr(p + 1, '\n'))
        if (p[1] == '[' || str_starts(p + 1, "For more detailed output")) {
            rest = span_trim(span_mem(rest.p, (size_t)(p - rest.p)));
            break;
        }
    if (rest.len)
        (void)json_object_set_new(doc, "master_stderr", json_stringn_nocheck(rest.p, rest.len));
}

static void clear_staging(struct follow *f)
{
    AUTO(free_p) char *dir = str_printf("%s/%s", f->y->dir, f->id);
    if (dir && str_eq(f->report.user, f->y->user))
        (void)yarn_remove(f->y, dir, NULL); /* on failure, the next client removes it */
}

static bool is_killed(const json_t *summary)
{
    return str_eq(doc_str(summary, "state"), "KILLED");
}

static int set_final_summary(struct follow *f)
{
    struct err e = { 0 };
    json_t *doc = NULL;
    if (yarn_history(f->y, f->id, &doc, &e) < 0 ||
        !json_is_integer(json_object_get(doc, "exit_code"))) {
        json_decref(doc);
        doc = yarn_report_json(f->y, &f->report);
        if (doc)
            add_diagnostics(doc, &f->report);
    }
    /* The client killed the application, but the cause is the exceeded startup timeout. */
    if (doc && f->never_started)
        (void)json_object_update_new(doc,
                                     json_pack("{s:s, s:i, s:s}", "state", "FAILED", "exit_code",
                                               EXIT_JOB_FAILED, "message", f->stop_reason));
    json_decref(f->out->summary);
    f->out->summary = doc;
    f->out->finished = true;
    f->out->exit_code = doc ? (int)doc_int(doc, "exit_code", EXIT_JOB_FAILED) : EXIT_CLUSTER;
    /* The scheduler refused the job before its first attempt: nothing has run. */
    if (f->report.state == HADOOP__YARN_APPLICATION_STATE__FAILED && f->report.attempt <= 0)
        f->out->exit_code = EXIT_MISUSE;
    clear_staging(f); /* a master that was killed has not removed it */
    return 0;
}

static int start(struct follow *f, struct err *e)
{
    static const int signos[] = { SIGINT, SIGTERM, SIGHUP };
    f->poll = loop_timer_new(f->y->loop, on_poll, f);
    if (!f->poll) {
        (void)err_set(e, ENOMEM, "cannot follow job '%s': %m", f->id);
        return -EXIT_CLUSTER;
    }
    for (size_t i = 0; (f->o->signals || f->o->detach_on_signal) && i < ARRAY_LEN(signos); i++)
        /* If this fails, the signal ends the client, as by default. */
        f->signals[i] = loop_signal_new(f->y->loop, signos[i], on_signal, f);
    ask_report(f);
    return 0;
}

static void attach_logs(struct follow *f)
{
    json_t *tasks = json_object_get(f->tasks, "tasks");
    const char *master = doc_str(f->tasks, "log_url");
    if (f->out->summary && tasks && !json_object_get(f->out->summary, "tasks"))
        (void)json_object_set(f->out->summary, "tasks", tasks); /* for the URL of the cause's log */
    if (f->out->summary && master[0] && !json_object_get(f->out->summary, "log_url"))
        (void)json_object_set_new(f->out->summary, "log_url", json_string(master));
}

int yarn_follow(struct yarn *y, const char *id, const struct tls_key *key,
                const struct follow_options *o, struct follow_result *out, struct err *e)
{
    *out = (struct follow_result){ 0 };
    struct tls_key read = { .len = 0 };
    if (yarn_home(y, e) < 0)
        return -EXIT_CLUSTER;
    struct err unread = { 0 };
    if (!key && yarn_client_key(y, id, &read, &unread) == 0)
        key = &read;
    int64_t now = clock_mono_ms();
    struct follow f = { .y = y,
                        .id = id,
                        .o = o,
                        .out = out,
                        .key = key,
                        .began_ms = now,
                        .stop_ms = now,
                        .startup_limit_ms =
                            o->owns_job ? conf_int(y->conf, "tony.am.startup-timeout") : 0,
                        .want_stop = o->stop != NULL,
                        .stop_reason = o->stop,
                        .e = e };
    f.startup_limit_ms = MAX(f.startup_limit_ms, (int64_t)0);
    int rc = start(&f, e);
    if (rc == 0) {
        /* submit_hold_signals() has blocked the signals: deliver them now. */
        sigset_t set;
        (void)sigemptyset(&set);
        (void)sigprocmask(SIG_SETMASK, &set, NULL);
        while (!f.over)
            (void)loop_run(y->loop); /* there is always a request, a connection or the timer */
        rc = f.rc;
    }
    if (f.asking)
        rpc_call_cancel(f.asking);
    if (f.killing)
        rpc_call_cancel(f.killing);
    conn_close(f.master);
    loop_timer_free(f.poll);
    for (size_t i = 0; i < ARRAY_LEN(f.signals); i++)
        loop_signal_free(f.signals[i]);
    if (f.forgotten && o->owns_job)
        clear_staging(&f);
    if (rc == 0 && f.by_report)
        rc = set_final_summary(&f);
    else if (rc == 0 && f.verdict_ms && !f.want_stop && is_killed(out->summary))
        clear_staging(&f); /* YARN may have killed the master before it removed the directory */
    if (rc == 0)
        attach_logs(&f);
    json_decref(f.tasks);
    yarn_report_done(&f.report);
    job_key_wipe(&read, sizeof read);
    if (rc < 0)
        follow_result_done(out);
    return rc;
}
