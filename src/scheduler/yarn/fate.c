/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node of this master has told the master to exit. Either the application was killed, or only
 * this container ends. The ResourceManager knows which, but only a short time after it has told the
 * node. So repeat the question until the application has ended or within_ms has passed.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "loop/loop.h"
#include "scheduler/yarn/yarn_int.h"

static void answer(struct yarn *y, bool over, const char *who, const char *text)
{
    void (*done)(bool, const char *, const char *, void *) = TAKE(y->fate.done);
    loop_timer_stop(y->fate.timer);
    if (done)
        done(over, who, text, y->fate.arg);
}

/* The user's name in "Application application_1_0001 was killed by user ann at 10.0.0.1."; "" =
 * there is none. */
static void killing_user(const char *text, char *out, size_t size)
{
    static const char mark[] = "killed by user ";
    const char *at = strstr(text, mark);
    struct span name = { 0 };
    if (at) {
        at += sizeof mark - 1;
        name = span_mem(at, strcspn(at, " .,\n"));
    }
    (void)snprintf(out, size, "%.*s", (int)MIN(name.len, size - 1), name.p ? name.p : "");
}

/* Does a later master of this application exist? If this master was stopped or cut off for long,
 * the later master may have ended the application. */
static bool has_successor(const struct yarn *y, const Hadoop__ApplicationReport *app)
{
    struct yarn_attempt now;
    return yarn_attempt_get(app->current_application_attempt_id, &now) &&
           now.attempt > (int32_t)y->cfg.epoch;
}

static void on_report(const Hadoop__GetApplicationReportResponse *r, const struct rpc_error *e,
                      void *arg)
{
    struct yarn *y = arg;
    const Hadoop__ApplicationReport *app = r ? r->application_report : NULL;
    y->fate.call = NULL;
    (void)e; /* the timer repeats the question */
    if (app && has_successor(y, app)) {
        answer(y, false, NULL, NULL);
        return;
    }
    if (app && (app->yarn_application_state == HADOOP__YARN_APPLICATION_STATE__KILLED ||
                app->yarn_application_state == HADOOP__YARN_APPLICATION_STATE__FAILED ||
                app->yarn_application_state == HADOOP__YARN_APPLICATION_STATE__FINISHED)) {
        char who[64];
        const char *text = app->diagnostics ? app->diagnostics : "";
        killing_user(text, who, sizeof who);
        answer(y, true, *who ? who : NULL, text);
        return;
    }
    loop_timer_set(y->fate.timer, clock_mono_ms() + YARN_FATE_MS);
}

static void send_question(struct yarn *y)
{
    struct yarn_id_msg id;
    Hadoop__GetApplicationReportRequest rq = HADOOP__GET_APPLICATION_REPORT_REQUEST__INIT;
    struct yarn_app app;
    if (yarn_app_parse(span_of(y->cfg.application_id), &app, NULL) < 0)
        return;
    rq.application_id = yarn_app_msg(&id, &app);
    y->fate.call =
        y->wire->get_application_report(y->fate.client, &rq, y->fate.due_ms, on_report, y);
}

static void on_timer(void *arg)
{
    struct yarn *y = arg;
    if (clock_mono_ms() < y->fate.due_ms) {
        if (!y->fate.call)
            send_question(y);
        loop_timer_set(y->fate.timer, y->fate.due_ms);
        return;
    }
    if (y->fate.call)
        y->wire->call_cancel(TAKE(y->fate.call));
    answer(y, false, NULL, NULL);
}

int yarn_fate(struct sched *s, int64_t within_ms,
              void (*done)(bool over, const char *who, const char *text, void *arg), void *arg)
{
    struct yarn *y = (struct yarn *)(void *)s;
    struct rpc_client_options o = {
        .loop = y->cfg.loop,
        .what = "the resource manager",
        .protocol = YARN_CLIENT_PROTOCOL,
        .addresses = &y->rm_at,
        .user = y->file->user,
    };
    if (y->fate.done)
        return -EALREADY;
    if (!y->fate.client && y->wire->client_new(&o, &y->fate.client, NULL) < 0)
        return -ENOMEM;
    if (!y->fate.timer && !(y->fate.timer = loop_timer_new(y->cfg.loop, on_timer, y)))
        return -ENOMEM;
    y->fate.done = done;
    y->fate.arg = arg;
    y->fate.due_ms = clock_mono_ms() + within_ms;
    loop_timer_set(y->fate.timer, clock_mono_ms());
    return 0;
}

void yarn_fate_close(struct yarn *y)
{
    y->fate.done = NULL;
    loop_timer_free(y->fate.timer);
    y->wire->client_free(y->fate.client);
}
