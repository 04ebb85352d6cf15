/* SPDX-License-Identifier: Apache-2.0 */
/* Stop a running job: the pool asks its master, and its keeper if the master does not end it. */
#include <errno.h>
#include <stdlib.h>

#include "loop/loop.h"
#include "pool/pool_int.h"
#include "proto/tony.pb-c.h"

enum {
    STOP_DIAL_MS = 3000, /* time to connect to the master whose job has to stop */
    STOP_LIMIT_MS =
        20000, /* how long the master may take to stop its job; then the keeper kills it */
    STOP_PAUSE_MS = 200, /* pause between two attempts to ask the master */
};

static void stop_again(struct pool_job *j)
{
    conn_close(TAKE(j->stopper));
    loop_timer_set(j->stop_timer, clock_mono_ms() + STOP_PAUSE_MS);
}

static void on_stop_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct pool_job *j = arg;
    (void)c;
    if (f->body_case == TONY__FRAME__BODY_ANSWER) {
        log_event(LOG_INFO, "job.stop_accepted", f_str("job", j->id));
        j->stop_deadline_ms = clock_mono_ms() + STOP_LIMIT_MS;
        loop_timer_set(j->stop_timer, j->stop_deadline_ms);
    }
}

static void on_stop_close(struct conn *c, const struct err *e, void *arg)
{
    struct pool_job *j = arg;
    (void)c;
    (void)e;
    j->stopper = NULL;
    stop_again(j); /* if the job ends before the timer fires, keeper_forget() frees the timer */
}

static const struct conn_ops stop_ops = { NULL, on_stop_frame, on_stop_close };

static int ask_master(struct pool_job *j)
{
    AUTO(free_p) char *path = paths_socket(&j->pool->paths, j->id, "m");
    if (!path)
        return -ENOMEM;
    int rc = conn_dial_unix(j->pool->loop, path, &stop_ops, j, &j->stopper, NULL);
    if (rc < 0)
        return rc;
    Tony__ClientHello hello = TONY__CLIENT_HELLO__INIT;
    Tony__ClientAsk ask = TONY__CLIENT_ASK__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    hello.version = TONY__VERSION__PROTOCOL_VERSION;
    hello.program = (char *)"tony-pool";
    f.body_case = TONY__FRAME__BODY_CLIENT_HELLO;
    f.client_hello = &hello;
    rc = conn_send(j->stopper, &f);
    ask.what = TONY__CLIENT_ASK__WHAT__STOP;
    ask.application_id = j->id;
    ask.who = j->stop_who;
    ask.reason = (char *)"the pool was stopped";
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &ask;
    return rc < 0 ? rc : conn_send(j->stopper, &f);
}

static void kill_by_keeper(struct pool_job *j)
{
    Tony__KillJob kj = TONY__KILL_JOB__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    kj.reason = (char *)"the pool was stopped and the job's master did not end it";
    f.body_case = TONY__FRAME__BODY_KILL_JOB;
    f.kill_job = &kj;
    if (j->keeper && conn_send(j->keeper, &f) == 0)
        log_event(LOG_WARN, "job.killed", f_str("job", j->id));
    j->stop_deadline_ms = clock_mono_ms() + STOP_LIMIT_MS;
    loop_timer_set(j->stop_timer, j->stop_deadline_ms);
}

static void on_stop_timer(void *arg)
{
    struct pool_job *j = arg;
    if (clock_mono_ms() >= j->stop_deadline_ms)
        kill_by_keeper(j);
    else if (!j->stopper && ask_master(j) < 0)
        stop_again(j);
}

void keeper_stop_job(struct pool_job *j, const char *who)
{
    if (j->stop_who)
        return;
    j->stop_who = str_dup(who);
    j->stop_timer = loop_timer_new(j->pool->loop, on_stop_timer, j);
    if (!j->stop_who || !j->stop_timer) {
        free(TAKE(j->stop_who));
        loop_timer_free(TAKE(j->stop_timer));
        return; /* no memory: the client may ask again */
    }
    j->stop_deadline_ms = clock_mono_ms() + STOP_DIAL_MS;
    loop_timer_set(j->stop_timer, clock_mono_ms());
}
