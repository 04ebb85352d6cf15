/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches a job for cluster_follow().
 *
 * The files of the job are read often: they cost Slurm nothing, and tell when the master starts and
 * when the job is in the history. squeue is asked with pauses of 1 s to 30 s while the job has no
 * master, and not at all while the master is attended. It runs on a thread of the thread pool.
 */
#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/local/local.h"
#include "cluster/slurm/slurm_int.h"
#include "codec/json.h"
#include "loop/loop.h"
#include "storage/jobkey.h"

enum {
    LOOK_MS = 50,       /* between two looks at the files */
    LOOK_MAX_MS = 1000, /* the pause grows to this while the job waits */
    ASK_MS = 1000,      /* between two questions to squeue */
    ASK_MAX_MS = 30000,
    LOST_MS = 300000,    /* Slurm does not answer for this time: the watch ends */
    STOP_WAIT_MS = 5000, /* for the master to confirm a stop */
    SCANCEL_MS = 30000,
};

enum question_kind {
    Q_STATE = 1, /* ask squeue for the job */
    Q_FIND,      /* find the number of the job, which is not known yet */
    Q_CANCEL,    /* run scancel */
    Q_ABSENT,    /* the directory of the job is not there: ask squeue whether the job is */
};

/* Only the thread uses it until on_done(). */
struct question {
    struct cluster_watch *w; /* NULL: the watch has ended meanwhile */
    enum question_kind kind;
    char *dir; /* of the job */
    char number[32];
    struct slurm_state state;
    struct err e; /* Q_ABSENT: what is known, and on the thread what squeue adds */
};

enum watch_state {
    WATCH_LOOKS = 1, /* at the files, and asks squeue */
    WATCH_ATTENDED,  /* the caller is connected to the master, which tells everything */
    WATCH_ABSENT,    /* as WATCH_OVER, but Q_ABSENT has to be asked before the caller is told */
    WATCH_OVER,      /* the caller knows the verdict, or that the job is lost */
};

enum stop_state {
    STOP_NONE = 0,
    STOP_DUE,  /* run scancel at cancel_at_ms, unless the master confirms the stop before */
    STOP_SENT, /* scancel was run */
};

struct cluster_watch {
    struct cluster_watch_head head;
    struct cluster_host *h;
    char *dir;
    struct loop_timer *look;
    enum watch_state is;
    enum stop_state stop;
    int64_t cancel_at_ms;     /* STOP_DUE */
    struct question *q;       /* NULL = no question is under way */
    struct slurm_state state; /* the last answer */
    bool answered;            /* `state` is set */
    bool had_master;          /* the master was connected once */
    int64_t ask_at_ms, ask_pause_ms, look_pause_ms;
    struct err absent;    /* WATCH_ABSENT */
    int64_t silent_since; /* the first question that Slurm has not answered; 0 = it has answered */
};

static bool is_over(const struct cluster_watch *w)
{
    return w->is == WATCH_OVER || w->is == WATCH_ABSENT;
}

static bool is_queued(const struct cluster_watch *w)
{
    return w->answered && str_eq(w->state.state, "PENDING");
}

static bool is_cancel_due(const struct cluster_watch *w, int64_t now)
{
    return w->stop == STOP_DUE && now >= w->cancel_at_ms;
}

static void tell(struct cluster_watch *w, struct cluster_report *r)
{
    r->own = true;
    (void)str_copy(r->id, sizeof r->id, w->head.cfg->id);
    w->head.cfg->on_report(r, w->head.cfg->arg);
}

static void lost(struct cluster_watch *w, int code, const struct err *e)
{
    w->is = WATCH_OVER;
    loop_timer_stop(w->look);
    w->head.cfg->on_lost(code, e, w->head.cfg->arg);
}

static void look_soon(struct cluster_watch *w, int64_t pause_ms)
{
    if (!is_over(w))
        loop_timer_set(w->look, clock_mono_ms() + pause_ms);
}

static void ask(struct cluster_watch *w, const char *number, enum question_kind kind);

/* ---- the verdict ---- */

/* true: the job is over or cannot be read, and the caller was told, or will be when squeue has
 * answered. */
static bool tell_verdict(struct cluster_watch *w)
{
    struct err e = { 0 };
    json_t *doc = NULL;
    int rc = local_verdict(w->h, w->head.cfg->id, &doc, &e);
    if (rc == -EBUSY)
        return false;
    if (rc < 0 && e.num == ENOENT) {
        w->is = WATCH_ABSENT;
        w->absent = e;
        loop_timer_stop(w->look);
        if (!w->q)
            ask(w, "", Q_ABSENT);
        return true;
    }
    if (rc < 0) {
        lost(w, EXIT_CLUSTER, &e);
        return true;
    }
    struct cluster_report r = { .phase = CLUSTER_OVER,
                                .exit_code = (int)json_int(doc, "exit_code", EXIT_JOB_FAILED),
                                .summary = doc };
    (void)str_copy(r.state, sizeof r.state, json_str(doc, "state", ""));
    w->is = WATCH_OVER;
    loop_timer_stop(w->look);
    tell(w, &r);
    json_decref(doc);
    return true;
}

/* ---- questions to Slurm ---- */

static int on_thread(void *arg)
{
    struct question *q = arg;
    switch (q->kind) {
    case Q_STATE:
        return slurm_ask_alive(q->dir, q->number, &q->state, &q->e);
    case Q_FIND:
        return slurm_find_number(q->dir, q->number, &q->e);
    case Q_CANCEL:
        return slurm_cancel_job(q->number, SCANCEL_MS, &q->e);
    case Q_ABSENT:
        slurm_explain_absence(strrchr(q->dir, '/') + 1, &q->e);
        return 0;
    }
    return -EINVAL;
}

static void settle(struct cluster_watch *w)
{
    struct err e = { 0 };
    if (slurm_settle(w->h, w->head.cfg->id, &w->state, &e) < 0)
        lost(w, EXIT_CLUSTER, &e);
    else
        (void)tell_verdict(w);
}

/* Slurm does not know the job, whose number is not known. */
static void on_none(struct cluster_watch *w)
{
    char number[32];
    bool stopped = is_cancel_due(w, clock_mono_ms());
    slurm_number(w->dir, number); /* its client or its batch script may have written it meanwhile */
    if (number[0] || (!stopped && !slurm_is_given_up(w->dir)))
        return;
    (void)str_copy(w->state.state, sizeof w->state.state, stopped ? "CANCELLED" : SLURM_NEVER);
    if (!tell_verdict(w))
        settle(w);
}

static void on_number(struct cluster_watch *w, const struct question *q)
{
    if (q->number[0])
        w->ask_at_ms = clock_mono_ms(); /* the next look asks for the state */
    else
        on_none(w);
}

/* Slurm may show a run that has just left as over for a moment, before the job is PENDING again.
 * But this watch has cancelled the job. */
static bool may_return(const struct cluster_watch *w)
{
    bool cancelled = w->stop == STOP_SENT && str_eq(w->state.state, "CANCELLED");
    return !cancelled && slurm_has_left(w->dir);
}

static void on_state(struct cluster_watch *w, const struct question *q)
{
    w->state = q->state;
    w->answered = true;
    if (w->stop == STOP_DUE && is_queued(w)) /* no master will confirm the stop */
        w->cancel_at_ms = MIN(w->cancel_at_ms, clock_mono_ms());
    if (slurm_state_is_over(w->state.state) && !tell_verdict(w) && !may_return(w))
        settle(w);
}

static void on_answer(struct cluster_watch *w, const struct question *q)
{
    w->silent_since = 0;
    if (q->kind == Q_CANCEL)
        w->head.cfg->on_stopping(w->head.cfg->arg);
    else if (q->kind == Q_ABSENT)
        lost(w, EXIT_MISUSE, &q->e);
    else if (!is_over(w) && q->kind == Q_FIND)
        on_number(w, q);
    else if (!is_over(w))
        on_state(w, q);
}

static void on_silence(struct cluster_watch *w, const struct question *q)
{
    int64_t now = clock_mono_ms();
    if (!w->silent_since && w->head.cfg->on_silent)
        w->head.cfg->on_silent(q->e.msg, w->head.cfg->arg);
    if (!w->silent_since)
        w->silent_since = now;
    if (q->kind == Q_CANCEL && w->stop == STOP_SENT) { /* try again */
        w->stop = STOP_DUE;
        w->cancel_at_ms = now + ASK_MS;
    }
    if (!is_over(w) && (q->e.num == ENOENT || now - w->silent_since > LOST_MS))
        lost(w, EXIT_CLUSTER, &q->e);
}

static void on_done(void *arg, int rc)
{
    struct question *q = arg;
    struct cluster_watch *w = q->w;
    if (w) {
        w->q = NULL;
        if (rc < 0)
            on_silence(w, q);
        else
            on_answer(w, q);
        if (w->is == WATCH_ABSENT && !w->q)
            ask(w, "", Q_ABSENT);
        if (w->is == WATCH_LOOKS || (w->is == WATCH_ATTENDED && w->stop == STOP_DUE))
            look_soon(w, 1);
    }
    free(q->dir);
    free(q);
}

static void ask(struct cluster_watch *w, const char *number, enum question_kind kind)
{
    struct question *q = calloc(1, sizeof *q);
    char *dir = str_dup(w->dir);
    if (q && dir) {
        *q = (struct question){ .w = w, .kind = kind, .dir = dir };
        (void)str_copy(q->number, sizeof q->number, number);
        if (kind == Q_ABSENT)
            q->e = w->absent;
        if (loop_work(w->h->loop, on_thread, on_done, q) == 0) {
            w->q = q;
            return;
        }
    }
    free(dir);
    free(q);
    if (kind == Q_ABSENT)
        lost(w, EXIT_MISUSE, &w->absent);
    /* else it is tried again with the next look */
}

/* ---- looking ---- */

static void tell_master(struct cluster_watch *w, struct cluster_master *at)
{
    struct cluster_report r = { .phase = CLUSTER_RUNNING, .at = *at };
    (void)str_copy(r.state, sizeof r.state, "RUNNING");
    tell(w, &r);
}

static void tell_waiting(struct cluster_watch *w)
{
    bool never = false, pending = is_queued(w);
    AUTO(free_p) char *why = pending ? slurm_why(&w->state, &never) : NULL;
    AUTO(free_p) char *text = never && why ? str_printf("it can never start: %s", why) : NULL;
    struct cluster_report r = { .phase =
                                    !w->answered || pending ? CLUSTER_WAITING : CLUSTER_STARTING,
                                .why = text ? text : why };
    (void)str_copy(r.state, sizeof r.state, w->answered ? w->state.state : "SUBMITTED");
    tell(w, &r);
}

static void ask_if_due(struct cluster_watch *w, int64_t now)
{
    char number[32];
    slurm_number(w->dir, number);
    if (w->q)
        return;
    if (number[0] && is_cancel_due(w, now)) {
        w->stop = STOP_SENT;
        w->ask_at_ms = now + ASK_MS / 4;
        w->ask_pause_ms = ASK_MS;
        ask(w, number, Q_CANCEL);
    } else if (now >= w->ask_at_ms) {
        w->ask_at_ms = now + w->ask_pause_ms;
        w->ask_pause_ms = MIN(2 * w->ask_pause_ms, (int64_t)ASK_MAX_MS);
        ask(w, number, number[0] ? Q_STATE : Q_FIND);
    }
}

static void on_look(void *arg)
{
    struct cluster_watch *w = arg;
    int64_t now = clock_mono_ms();
    struct cluster_master at = { 0 };
    if (is_over(w))
        return;
    if (w->is == WATCH_ATTENDED) { /* only a stop that the master does not confirm is left to do */
        if (is_cancel_due(w, now))
            ask_if_due(w, now);
        if (w->stop == STOP_DUE && !w->q)
            look_soon(w, MAX(w->cancel_at_ms - now, (int64_t)1));
        return;
    }
    if (tell_verdict(w))
        return;
    /* If it is queued, an earlier run has left master.json: the job was put back. */
    if (!is_queued(w) && slurm_master(w->dir, &at))
        tell_master(w, &at);
    else
        tell_waiting(w);
    free(at.host);
    if (w->is != WATCH_LOOKS)
        return;
    ask_if_due(w, now);
    look_soon(w, w->look_pause_ms);
    w->look_pause_ms = MIN(w->look_pause_ms + w->look_pause_ms / 4, (int64_t)LOOK_MAX_MS);
}

/* ---- the table's functions ---- */

void slurm_attend(struct cluster_watch *w, bool connected)
{
    if (is_over(w))
        return;
    if (connected) {
        w->is = WATCH_ATTENDED;
        w->had_master = true;
        w->silent_since = 0; /* Slurm is not asked meanwhile */
        w->look_pause_ms = LOOK_MS;
        w->ask_pause_ms = ASK_MS;
        if (w->stop != STOP_DUE)
            loop_timer_stop(w->look);
        return;
    }
    if (w->is == WATCH_ATTENDED) /* the connection was lost: the master may be restarted at once */
        w->ask_at_ms = clock_mono_ms() + ASK_MS;
    w->is = WATCH_LOOKS;
    look_soon(w, LOOK_MS);
}

void slurm_stop(struct cluster_watch *w, enum cluster_stop how, const char *reason, bool checkpoint)
{
    struct cluster_master at = { 0 };
    (void)reason;     /* the master records it */
    (void)checkpoint; /* only a master can let the tasks save one */
    bool has_master = !is_queued(w) && (w->had_master || slurm_master(w->dir, &at));
    free(at.host);
    if (how == CLUSTER_STOP_CONFIRMED) {
        w->stop = STOP_NONE;
        return;
    }
    bool now = how == CLUSTER_STOP_ALONE || !has_master;
    int64_t at_ms = clock_mono_ms() + (now ? 0 : STOP_WAIT_MS);
    if (w->stop != STOP_SENT) { /* a later call, after a dial, does not postpone an earlier one */
        w->cancel_at_ms = w->stop == STOP_DUE ? MIN(w->cancel_at_ms, at_ms) : at_ms;
        w->stop = STOP_DUE;
        w->ask_at_ms = MIN(w->ask_at_ms, w->cancel_at_ms);
    }
    look_soon(w, w->is == WATCH_ATTENDED && !now ? STOP_WAIT_MS : 0);
}

void slurm_unwatch(struct cluster_watch *w)
{
    if (!w)
        return;
    if (w->q)
        w->q->w = NULL;
    loop_timer_free(w->look);
    free(w->dir);
    free(w);
}

int slurm_watch(struct cluster *k, const struct cluster_watch_config *cfg,
                struct cluster_watch **out, struct err *e)
{
    struct cluster_host *h = slurm_host(k);
    struct cluster_watch *w = calloc(1, sizeof *w);
    struct loop *loop = host_loop(h, e);
    int rc = w && loop ? host_look_paths(h, e) : -ENOMEM;
    if (rc == 0) {
        *w = (struct cluster_watch){ .head = { k, cfg },
                                     .h = h,
                                     .is = WATCH_LOOKS,
                                     .ask_pause_ms = ASK_MS,
                                     .look_pause_ms = LOOK_MS };
        w->dir = paths_job(&h->paths, cfg->id);
        w->look = loop_timer_new(loop, on_look, w);
        /* A master may start within the first second: Slurm is asked only after that. */
        w->ask_at_ms = clock_mono_ms() + ASK_MS;
    }
    if (rc == 0 && (!w->dir || !w->look))
        rc = -ENOMEM;
    if (rc < 0) {
        if (rc == -ENOMEM)
            (void)err_set(e, ENOMEM, "cannot follow job '%s': %m", cfg->id);
        slurm_unwatch(w);
        return -EXIT_CLUSTER;
    }
    loop_timer_set(w->look, clock_mono_ms());
    *out = w;
    return 0;
}
