/* SPDX-License-Identifier: Apache-2.0 */
/* The frames that the master sends to an executor. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/title.h"
#include "base/util.h"
#include "executor/crew.h"
#include "executor/executor_int.h"

enum {
    OLD_MASTER_MS = 100,  /* until the next attempt to connect, if a replaced master has answered */
    DIAL_AGAIN_MS = 5,    /* the same, if the master listens but is not ready */
    OWN_BEATS_MS = 60000, /* after OwnBeats: then the keeper may send the heartbeats again */
};

static void leave(struct executor *x, uint32_t grace_ms, const char *why)
{
    x->leaving = true;
    attempt_stop(x, grace_ms, END_KILLED_BY_MASTER, why);
}

/* ---- Welcome: the role of the executor ---- */

/* A path below `from` becomes one below `to`. Takes *path, a string of malloc(). */
static int move_path(char **path, const char *from, const char *to)
{
    size_t n = strlen(from);
    if (strncmp(*path, from, n) != 0 || (*path)[n] != '/')
        return 0;
    char *moved = str_printf("%s%s", to, *path + n);
    if (!moved)
        return -ENOMEM;
    free(*path);
    *path = moved;
    return 0;
}

/* If TONY_SHARED_HOME is set, this node cannot see that directory, the job's TONY_HOME. Its own
 * TONY_HOME has the same content (docs/decisions/0037-nodes-without-the-home.md): change the paths.
 */
static int move_home(Tony__Welcome *w)
{
    const char *from = getenv("TONY_SHARED_HOME"), *to = getenv("TONY_HOME");
    if (!from || !to)
        return 0;
    int rc = move_path(&w->log_dir, from, to);
    for (size_t i = 0; rc == 0 && i < w->n_mounts; i++)
        rc = move_path(&w->mounts[i]->path, from, to);
    return rc;
}

static Tony__Welcome *welcome_copy(const Tony__Welcome *w)
{
    size_t n = tony__welcome__get_packed_size(w);
    AUTO(free_p) unsigned char *bytes = malloc(n ? n : 1);
    if (!bytes)
        return NULL;
    tony__welcome__pack(w, bytes);
    Tony__Welcome *copy = tony__welcome__unpack(NULL, n, bytes);
    if (copy && move_home(copy) < 0) {
        tony__welcome__free_unpacked(copy, NULL);
        return NULL;
    }
    return copy;
}

/* Make the working directory now, while other executors still register. After Start, all tasks
 * would wait for it. */
static void prepare(struct executor *x)
{
    const Tony__Welcome *w = x->role;
    if (x->workdir || x->workdir_err.num)
        return;
    if (!executor_has_keeper(x)) {
        if (remote_prepare(x->cfg->remote, w->mounts, w->n_mounts, &x->workdir_err) == 0 &&
            !(x->workdir = str_dup(x->cfg->remote->workdir)))
            (void)err_set(&x->workdir_err, ENOMEM, "cannot prepare the working directory: %m");
        return;
    }
    if (workdir_make(x->cfg->job_dir, x->cfg->container_id, x->cfg->spare_dir, w->mounts,
                     w->n_mounts, &x->workdir, &x->workdir_err) < 0)
        free(TAKE(x->workdir)); /* attempt_start() reports workdir_err */
}

void executor_show_title(const struct executor *x)
{
    size_t n = x->crew->n;
    if (n == 1)
        title_set("tony-executor %s:%u of %s", x->role->role, x->role->index,
                  x->cfg->application_id);
    else if (x == x->crew->v)
        title_set("tony-executor %s:%u and %zu others of %s", x->role->role, x->role->index, n - 1,
                  x->cfg->application_id);
}

static void on_welcome(struct executor *x, const Tony__Welcome *w)
{
    if (w->epoch < x->epoch) { /* from an older master, which was replaced meanwhile */
        connection_lost(x);
        x->dial_at_ms = clock_mono_ms() + OLD_MASTER_MS;
        return;
    }
    if (x->cfg->remote)
        log_event(LOG_INFO, "executor.welcome", f_int("epoch", w->epoch), f_str("role", w->role),
                  f_int("index", w->index));
    x->epoch = w->epoch;
    x->greeted = true;
    x->own_until_ms = 0;
    /* Welcome answers the ExecutorHello, so the master has received that frame */
    x->confirmed_ms = x->sent_ms;
    if (x->cfg->remote)
        remote_moved(x->cfg->remote, w->master_address);
    if (!x->role)
        x->role = welcome_copy(w);
    if (!x->role) {
        leave(x, 0, "no memory to keep what the master says about the task");
        return;
    }
    executor_show_title(x);
    executor_begin_beats(x);
    prepare(x);
    serve_open(x);
    if (!executor_has_keeper(x))
        remote_trim();
    task_side_again(x);
    task_metrics_again(x);
    log_watches_clear(x);
    if (x->a.state == ATTEMPT_ENDED && !x->end_in_hello)
        attempt_report_end(x); /* it ended after the ExecutorHello was sent */
}

/* ---- the other frames ---- */

static void on_ack(struct executor *x, const Tony__AckEnded *ack)
{
    if (x->a.state == ATTEMPT_ENDED && ack->generation == x->a.generation &&
        ack->attempt == x->a.number)
        attempt_forget(&x->a);
    if (ack->finish && !x->server.s) /* a rendezvous server runs until the job is over */
        leave(x, 0, "");
}

/* The job is over, but no attempt has run, perhaps because the master died before it sent Start.
 * Record the end of one that was stopped: an exit with 0 would count as a success. */
static void record_no_attempt(struct executor *x)
{
    struct exit_record *r = x->cfg->record;
    r->reason = END_KILLED_BY_MASTER;
    r->exit_code = 0;
    r->signal = SIGTERM;
    r->at_us = clock_mono_us();
    r->detail[0] = '\0';
    r->ended = 1;
}

static void on_finish(struct executor *x, const Tony__FinishExecutor *m)
{
    leave(x, m->grace_ms, "the job is over");
    if (x->a.state == ATTEMPT_NONE && !x->cfg->record->ended)
        record_no_attempt(x);
}

static void on_stop(struct executor *x, const Tony__StopAttempt *s)
{
    bool known = s->reason > TONY__REASON__REASON_NONE && (int)s->reason < (int)END_COUNT;
    enum end_reason reason = known ? (enum end_reason)(int)s->reason : END_KILLED_BY_MASTER;
    if (s->generation != x->a.generation || s->attempt != x->a.number)
        return;
    if (reason == END_EXITED)
        attempt_exit(x, s->exit_code);
    else if (s->wait_ms)
        attempt_wait(x, s->wait_ms, s->grace_ms);
    else if (s->save_ms)
        attempt_save(x, s->save_ms, (int)s->save_signal, s->grace_ms, reason);
    else
        attempt_stop(x, s->grace_ms, reason, "");
}

void executor_frame(struct executor *x, const Tony__Frame *f)
{
    switch ((int)f->body_case) { /* other frames are ignored */
    case TONY__FRAME__BODY_WELCOME:
        on_welcome(x, f->welcome);
        break;
    case TONY__FRAME__BODY_START:
        if (x->greeted)
            attempt_start(x, f->start);
        if (!executor_has_keeper(x))
            remote_trim();
        break;
    case TONY__FRAME__BODY_STOP_ATTEMPT:
        on_stop(x, f->stop_attempt);
        break;
    case TONY__FRAME__BODY_ACK_ENDED:
        on_ack(x, f->ack_ended);
        break;
    case TONY__FRAME__BODY_RENEW:
        if (x->greeted)
            executor_renew(x, f->renew);
        break;
    case TONY__FRAME__BODY_PEERS:
        executor_peers(x, f->peers);
        break;
    case TONY__FRAME__BODY_FINISH_EXECUTOR:
        on_finish(x, f->finish_executor);
        break;
    case TONY__FRAME__BODY_READ_LOG:
        if (x->greeted)
            executor_read_log(x, f->read_log);
        break;
    case TONY__FRAME__BODY_TAIL_LOGS:
        if (x->greeted)
            log_watches_ask(x, f->tail_logs);
        break;
    case TONY__FRAME__BODY_OWN_BEATS:
        x->own_until_ms = clock_mono_ms() + OWN_BEATS_MS;
        x->beat_at_ms = 0;
        break;
    case TONY__FRAME__BODY_MORE_LOGS:
        log_watches_more(x, f->more_logs);
        break;
    case TONY__FRAME__BODY_DIAL_STREAM:
        if (x->greeted)
            streams_dial(x, f->dial_stream);
        break;
    case TONY__FRAME__BODY_REFUSED: {
        struct err e = { 0 };
        if (f->refused->num == EAGAIN) { /* the master is still starting */
            connection_lost(x);
            if (!x->cfg->remote)
                x->dial_at_ms = clock_mono_ms() + DIAL_AGAIN_MS;
            break;
        }
        (void)err_set(&e, ESTALE, "the master refuses this executor: %s", f->refused->message);
        executor_warn(x, "executor.refused", &e);
        /* With the job's grace period, as at the end of the lease: the master does not wait
         * longer than that. */
        leave(x, executor_grace_ms(x), "the master does not want this container any more");
        break;
    }
    default: /* frames of a newer version */
        break;
    }
}
