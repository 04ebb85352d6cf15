/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The application's LIFETIME, after which the ResourceManager kills it. It is a second guard for
 * tony.application.timeout, should the master fail to end the job itself. The master's limit counts
 * from the start of the job, so the LIFETIME is set at that time, too: if the client set it with
 * the submission, the time in the queue would count.
 */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "loop/loop.h"
#include "scheduler/yarn/yarn_int.h"

/* As YARN reads it: "2026-11-24T08:45:00.250+0000". */
static void time_text(int64_t wall_ms, char *out, size_t size)
{
    time_t s = wall_ms / 1000;
    struct tm tm = { 0 };
    char day[32] = "";
    (void)gmtime_r(&s, &tm);
    (void)strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out, size, "%s.%03d+0000", day, (int)(wall_ms % 1000));
}

static void on_updated(const Hadoop__UpdateApplicationTimeoutsResponse *r,
                       const struct rpc_error *e, void *arg)
{
    struct yarn *y = arg;
    (void)r;
    y->lifetime.call = NULL;
    if (e)
        log_event(LOG_WARN, "yarn.no_lifetime", f_str("kind", rpc_fault_name(e->kind)),
                  f_str("why", e->err.msg));
    if (e && rpc_fault_passes(e->kind)) {
        loop_timer_set(y->lifetime.timer, clock_mono_ms() + yarn_pause(y, YARN_LIFETIME_RETRY_MS));
        return;
    }
    y->wire->client_free(TAKE(y->lifetime.client));
}

static void send_update(struct yarn *y)
{
    struct yarn_id_msg id;
    struct yarn_app app;
    char text[64];
    Hadoop__ApplicationTimeoutUpdate update = HADOOP__APPLICATION_TIMEOUT_UPDATE__INIT,
                                     *updates[] = { &update };
    Hadoop__UpdateApplicationTimeoutsRequest rq = HADOOP__UPDATE_APPLICATION_TIMEOUTS_REQUEST__INIT;
    if (yarn_app_parse(span_of(y->cfg.application_id), &app, NULL) < 0)
        return;
    time_text(y->lifetime.ends_wall_ms, text, sizeof text);
    update.has_application_timeout_type = true;
    update.application_timeout_type = HADOOP__APPLICATION_TIMEOUT_TYPE__APP_TIMEOUT_LIFETIME;
    update.expire_time = text;
    rq.application_id = yarn_app_msg(&id, &app);
    rq.application_timeouts = updates;
    rq.n_application_timeouts = ARRAY_LEN(updates);
    y->lifetime.call = y->wire->update_timeouts(y->lifetime.client, &rq,
                                                clock_mono_ms() + YARN_CALL_MS, on_updated, y);
}

static void on_timer(void *arg)
{
    struct yarn *y = arg;
    if (y->finishing || y->phase == YP_OVER || y->lifetime.call)
        return;
    struct rpc_client_options o = {
        .loop = y->cfg.loop,
        .what = "the resource manager",
        .protocol = YARN_CLIENT_PROTOCOL,
        .addresses = &y->rm_at,
        .user = y->file->user,
    };
    if (y->lifetime.client || y->wire->client_new(&o, &y->lifetime.client, NULL) == 0)
        send_update(y);
    if (!y->lifetime.call) /* no memory */
        loop_timer_set(y->lifetime.timer, clock_mono_ms() + YARN_LIFETIME_RETRY_MS);
}

void yarn_lifetime_arm(struct yarn *y)
{
    if (y->cfg.time_left_ms <= 0 || y->lifetime.timer)
        return;
    y->lifetime.ends_wall_ms = clock_wall_ms() + y->cfg.time_left_ms + YARN_LIFETIME_MORE_MS;
    y->lifetime.timer = loop_timer_new(y->cfg.loop, on_timer, y);
    if (y->lifetime.timer)
        loop_timer_set(y->lifetime.timer, clock_mono_ms());
    else
        log_event(LOG_ERROR, "yarn.no_lifetime",
                  f_str("why", "no memory to set the time limit of the application"));
}

void yarn_lifetime_close(struct yarn *y)
{
    loop_timer_free(TAKE(y->lifetime.timer));
    y->wire->client_free(TAKE(y->lifetime.client));
}
