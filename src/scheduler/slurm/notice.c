/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices: Slurm is going to end this run of the job.
 *
 * - SIGUSR1: the batch script got it by --signal=B:USR1@N, and the head keeper passes it on. Slurm
 *   sends it N seconds before the time limit, and at a preemption if the site wants that.
 * - ClusterSignal of a keeper: Slurm sends TERM to the processes of a step when it preempts the job
 *   with a grace time, and when a user cancels the step.
 * - SIGTERM to the master: this run of the job ends now (slurm_fate()).
 *
 * A notice does not say why it came. So the master asks slurmctld after each notice. Before it acts
 * on a time limit, it asks once more, because an administrator may have raised the limit. Then:
 *
 * - Preemption: the tasks save a checkpoint, and end (SE_PREEMPTING). The back-end places no more
 *   containers. When all have ended, it puts the job back into Slurm's queue at once, so that the
 *   other job need not wait for the grace time. The next run continues the journal.
 * - Time limit: with tony.slurm.requeue-at-limit the same happens. Otherwise the tasks save a
 *   checkpoint and the job ends (SE_ENDING).
 * - A step of the keepers was cancelled, although the job of Slurm runs on: the job of tony stops.
 *   In this case, and when all steps have ended, the batch script writes the file `step_ended`.
 * - A signal has killed the batch script, so Slurm ends this run as failed. The master puts the job
 *   back into the queue.
 *
 * If slurmctld does not answer, the master asks it again.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include "scheduler/slurm/slurm_int.h"
#include "slurm/commands.h"

enum {
    ASK_MS = 10000, /* limit of a question */
    FATE_MS = 3000, /* the same after SIGTERM: SIGKILL follows within KillWait, 30 s by default */
    REQUEUED_MS =
        5000, /* tasks may save this long, unless Slurm or the next run kills them before */
    RECHECK_MS = 60000,  /* after the announced end: does the job still run? */
    STEP_END_MS = 60000, /* if TERM to a keeper ends its step, the keeper exits within this time */
    AGAIN_MS = 1000,     /* after an answer that did not come: until the next question */
    SLOW_MS = 10000,     /* the same, when slurmctld has been silent for patience_ms() */
    /* When slurmctld has not answered for this time, decide without it. And a run that has lasted
     * for this time does not count for SLURM_KILLED_MAX. */
    PATIENCE_MS = 600000,
};

enum ask_why {
    WHY_SIGNAL = 1,
    WHY_STEP = 2,
    WHY_TIME = 4,
    WHY_FATE = 8,
    WHY_REQUEUE = 16,
    WHY_CANCEL = 32
};

/* The data of one question to slurmctld, which a thread asks. Only the thread uses it until
 * on_done(). */
struct slurm_question {
    struct slurm *s; /* NULL: the back-end was closed meanwhile */
    unsigned why;
    char number[32];
    bool may_requeue; /* put the job back into the queue if its batch script was killed */
    struct slurm_job job;
    bool requeued;
    struct err e;
};

static void ask(struct slurm *s, unsigned why);

static int64_t patience_ms(void)
{
    const char *set = getenv("TONY_TEST_PATIENCE_MS"); /* for tests: another time */
    int64_t ms = PATIENCE_MS;
    if (set)
        (void)str_i64(span_of(set), 1, PATIENCE_MS, "TONY_TEST_PATIENCE_MS", &ms, NULL);
    return ms;
}

/* ---- leaving ---- */

static int64_t left_ms(const struct slurm_job *j)
{
    return j->end_s ? MAX(j->end_s * 1000 - clock_wall_ms(), (int64_t)1) : SLURM_LIMIT_MARGIN_MS;
}

static int64_t kill_grace(const struct slurm *s)
{
    return s->cfg.spec ? s->cfg.spec->kill_grace_ms : 0;
}

/* Announce the end of one more container to the core. slurm_emit() may change all of s->holds, so
 * each call announces only one. false: all are announced. */
static bool tell_one(struct slurm *s)
{
    for (size_t i = 0; i < s->holds.n; i++) {
        struct hold *h = &s->holds.v[i];
        if (h->state != HOLD_GRANTED || h->told)
            continue;
        h->told = true;
        AUTO(free_p) char *id = str_dup(h->id);
        const struct sched_container c = { .id = id, .slot = h->slot, .gpus = "" };
        int64_t left = s->notice.end_ms - clock_mono_ms() - kill_grace(s);
        if (id)
            slurm_emit(s, &(struct sched_event){ .type = SE_PREEMPTING,
                                                 .containers = &c,
                                                 .n = 1,
                                                 .deadline_ms = MAX(left, (int64_t)1) });
        return true;
    }
    return false;
}

void notice_turn(struct slurm *s)
{
    if (!s->notice.leaving)
        return;
    if (tell_one(s)) {
        slurm_turn_soon(s);
        return;
    }
    for (size_t i = 0; i < s->holds.n; i++)
        if (s->holds.v[i].state != HOLD_WAITING)
            return;
    if (!s->notice.requeue_asked) {
        s->notice.requeue_asked = true;
        ask(s, WHY_REQUEUE);
    }
}

/* Slurm takes the nodes within this time: let all containers end. */
static void leave(struct slurm *s, int64_t within_ms, const char *why)
{
    int64_t now = clock_mono_ms();
    if (!s->notice.leaving)
        log_event(LOG_WARN, "slurm.leaves", f_str("why", why), f_int("within_ms", within_ms));
    s->notice.leaving = true;
    s->notice.end_ms = now + within_ms;
    loop_timer_set(s->notice.timer, now + within_ms + RECHECK_MS);
    slurm_turn_soon(s);
}

/* Slurm has put the job back long ago, and has not ended this process: without control groups it
 * loses those whose parent was killed. So act as after its TERM. */
static void leave_alone(void)
{
    log_event(LOG_WARN, "slurm.not_ended");
    (void)raise(SIGTERM);
}

/* Slurm has withdrawn the preemption: the job runs on. */
static void stay(struct slurm *s)
{
    log_event(LOG_INFO, "slurm.stays");
    s->notice.leaving = s->notice.requeue_asked = false;
    for (size_t i = 0; i < s->holds.n; i++)
        s->holds.v[i].told = false;
    slurm_turn_soon(s);
}

/* ---- the time limit ---- */

static void act_on_limit(struct slurm *s, int64_t left)
{
    static const char why[] = "the time limit of its job in Slurm is near";
    s->notice.limit_known = false;
    if (s->cfg.spec && s->cfg.spec->requeue_at_limit) {
        leave(s, left, why);
        return;
    }
    log_event(LOG_WARN, "slurm.time_limit", f_int("left_ms", left));
    int64_t within = left - kill_grace(s) - SLURM_LIMIT_MARGIN_MS / 2;
    slurm_emit(s, &(struct sched_event){
                      .type = SE_ENDING, .deadline_ms = MAX(within, (int64_t)1), .text = why });
}

/* Slurm's notice comes early: wait until the tasks need the rest of the time. */
static void on_limit(struct slurm *s, const struct slurm_job *j)
{
    const struct job_spec *spec = s->cfg.spec;
    int64_t now = clock_mono_ms(), left = left_ms(j);
    int64_t needed = slurm_limit_needs_ms(spec ? spec->checkpoint_grace_ms : 0, kill_grace(s),
                                          spec && spec->requeue_at_limit);
    if (!j->end_s)
        return; /* the partition has no limit: a user sent the signal by hand */
    if (left <= needed + 1000) {
        act_on_limit(s, left);
        return;
    }
    log_event(LOG_INFO, "slurm.limit_ahead", f_int("left_ms", left));
    s->notice.limit_known = true;
    s->notice.limit_ms = now + left;
    loop_timer_set(s->notice.timer, now + left - needed);
}

static void on_timer(void *arg)
{
    ask(arg, WHY_TIME);
}

/* ---- answers ---- */

static const char *why_it_ended(const struct slurm_job *j)
{
    if (str_eq(j->is.reason, "TimeLimit") || str_eq(j->is.state, "TIMEOUT"))
        return "the time limit of its job in Slurm was over";
    if (j->killed)
        return "Slurm has ended the job, since a signal has killed its batch script";
    return "Slurm has ended the job: it was cancelled, or its nodes were needed for another job";
}

static void answer_fate(struct slurm *s, enum slurm_meaning meaning, const struct slurm_job *j)
{
    void (*done)(bool, const char *, const char *, void *) = TAKE(s->fate_done);
    if (!done)
        return;
    if (meaning == SLURM_REQUEUES)
        done(false, NULL, "Slurm has put the job back into its queue", s->cfg.arg);
    else if (meaning == SLURM_ENDS)
        done(true, NULL, why_it_ended(j), s->cfg.arg);
    else if (s->notice.step_over)
        done(true, NULL,
             "a step of tony's keepers has ended: it was cancelled in Slurm, or got a signal there "
             "(scancel --signal), or the keepers could not work; nodes/*.log in the job's "
             "directory may say more",
             s->cfg.arg);
    else /* not known, or a signal by hand: no verdict without a reason */
        done(false, NULL, NULL, s->cfg.arg);
}

static void on_answer(struct slurm *s, unsigned why, enum slurm_meaning meaning,
                      const struct slurm_job *j)
{
    log_event(LOG_INFO, "slurm.answer", f_int("why", why), f_str("state", j->is.state),
              f_str("reason", j->is.reason), f_int("restarts", j->restarts));
    if (why & WHY_FATE)
        answer_fate(s, meaning, j);
    if (s->finishing != NOT_FINISHING)
        return;
    if (meaning == SLURM_PREEMPTS) {
        leave(s, left_ms(j), "Slurm takes its nodes for another job");
        return;
    }
    if (meaning == SLURM_UNKNOWN) { /* use what an earlier answer has said */
        int64_t left = s->notice.limit_ms - clock_mono_ms();
        if ((why & WHY_TIME) && s->notice.limit_known)
            act_on_limit(s, MAX(left, (int64_t)1));
        return;
    }
    if (meaning == SLURM_REQUEUES) {
        /* The next run kills what is left on its nodes. It may begin before this master ends, so
         * these ends must not count as failures of the tasks. */
        if (s->notice.requeue_asked && (why & WHY_TIME)) {
            leave_alone();
            return;
        }
        s->notice.requeue_asked = true;
        leave(s, REQUEUED_MS, "Slurm has put the job back into its queue");
    }
    if (meaning != SLURM_RUNS)
        return; /* SIGTERM to the master follows, and ends this run */
    if (s->notice.leaving && (why & WHY_TIME))
        stay(s);
    if ((why & WHY_SIGNAL) || ((why & WHY_TIME) && s->notice.limit_known))
        on_limit(s, j);
    if (why & WHY_STEP)
        s->notice.step_ends_ms = clock_mono_ms() + STEP_END_MS;
}

/* ---- the question ---- */

static int on_thread(void *arg)
{
    struct slurm_question *q = arg;
    if (q->why & WHY_CANCEL)
        return slurm_cancel_job(q->number, ASK_MS, &q->e);
    if (q->why & WHY_REQUEUE)
        return slurm_put_back(q->number, ASK_MS, &q->e);
    int rc = slurm_ask_job(q->number, q->why & WHY_FATE ? FATE_MS : ASK_MS, &q->job, &q->e);
    if (rc == 0 && q->job.killed && q->may_requeue)
        q->requeued = slurm_put_back(q->number, FATE_MS, &q->e) == 0;
    return rc;
}

static enum slurm_meaning meaning_of(const struct slurm *s, const struct slurm_question *q, int rc)
{
    if (rc < 0)
        return SLURM_UNKNOWN;
    return q->requeued ? SLURM_REQUEUES : slurm_meaning_of(&q->job, s->run);
}

static bool is_given_up(const struct slurm *s, int64_t now)
{
    return s->notice.silent_since_ms && now - s->notice.silent_since_ms >= patience_ms();
}

/* slurmctld does not answer. Ask again for what the job must know, and return those reasons. After
 * SIGTERM there is no time for that: the next run of the job, or a client, finds out. */
static unsigned ask_again(struct slurm *s, unsigned why, int rc)
{
    struct notice *n = &s->notice;
    int64_t now = clock_mono_ms();
    if (rc == 0 || rc == -ESRCH || rc == -ENOENT || rc == -EPERM) {
        n->silent_since_ms = 0;
        return 0;
    }
    if (!n->silent_since_ms)
        n->silent_since_ms = now;
    /* The end of a step is judged without an answer after a time. But if slurmctld returns, the job
     * must still learn why it got a notice, and go back into the queue. */
    bool slow = is_given_up(s, now);
    why &= WHY_SIGNAL | WHY_REQUEUE | (slow ? 0u : WHY_STEP | (n->step_over ? WHY_FATE : 0u));
    if (!why)
        return 0;
    n->silent_why |= why;
    loop_timer_set(n->again, now + (slow ? SLOW_MS : AGAIN_MS));
    return why;
}

static void on_again(void *arg)
{
    struct slurm *s = arg;
    unsigned why = s->notice.silent_why;
    s->notice.silent_why = 0;
    if (s->finishing == NOT_FINISHING)
        ask(s, why);
}

static void on_done(void *arg, int rc)
{
    struct slurm_question *q = arg;
    struct slurm *s = q->s;
    if (s) {
        unsigned again = s->notice.ask_again;
        s->notice.q = NULL;
        s->notice.ask_again = 0;
        if (rc < 0)
            log_err(LOG_WARN, "slurm.silent", &q->e);
        else if (q->requeued)
            log_event(LOG_WARN, "slurm.script_killed", f_int("signal", q->job.killed));
        else if (q->e.num)
            log_err(LOG_WARN, "slurm.not_requeued", &q->e);
        unsigned open = ask_again(s, q->why, rc);
        if (!(q->why & (WHY_REQUEUE | WHY_CANCEL)))
            on_answer(s, q->why & ~open, meaning_of(s, q, rc), &q->job);
        if (again)
            ask(s, again);
    }
    free(q);
}

/* Ask slurmctld on a thread, one question at a time. If a question is open, on_done() asks once
 * more for all reasons that came meanwhile. */
static void ask(struct slurm *s, unsigned why)
{
    const char *number = getenv("SLURM_JOB_ID");
    if (s->notice.q) {
        s->notice.ask_again |= why;
        return;
    }
    struct slurm_question *q = calloc(1, sizeof *q);
    if (!q || !number)
        return free(q);
    q->s = s;
    q->why = why;
    q->may_requeue = s->run < SLURM_KILLED_MAX || clock_mono_ms() - s->opened_ms >= patience_ms();
    (void)str_copy(q->number, sizeof q->number, number);
    if (loop_work(s->cfg.loop, on_thread, on_done, q) < 0)
        free(q);
    else
        s->notice.q = q;
}

/* ---- notices ---- */

static void on_usr1(int signo, void *arg)
{
    (void)signo;
    log_event(LOG_INFO, "slurm.notice");
    ask(arg, WHY_SIGNAL);
}

void notice_of_node(struct slurm *s, const struct node *n, uint32_t signal)
{
    log_event(LOG_INFO, "node.signal", f_str("node", n->name), f_int("signal", signal));
    if (n->index >= s->n_nodes)
        return; /* a further allocation ends; its nodes count as lost then */
    if (!s->notice.step_ends_ms && !s->notice.leaving)
        ask(s, WHY_STEP);
}

/* Does Slurm end the keepers? Then their nodes are not lost. */
bool notice_explains_lost_nodes(const struct slurm *s)
{
    unsigned open = s->notice.silent_why | s->notice.ask_again;
    if (s->notice.q)
        open |= s->notice.q->why;
    return s->notice.leaving || s->notice.step_ends_ms || s->fate_done ||
           (open & (WHY_STEP | WHY_FATE));
}

void notice_tick(struct slurm *s, int64_t now_ms)
{
    if (s->notice.step_ends_ms && now_ms >= s->notice.step_ends_ms)
        s->notice.step_ends_ms = 0; /* TERM was not the end */
    if (s->notice.leaving || s->fate_done)
        return; /* the reason is known */
    if ((s->notice.q || s->notice.silent_why) && !is_given_up(s, now_ms))
        return; /* slurmctld will tell it: a preemption ends the steps, too */
    AUTO(free_p) char *path = fs_join(s->cfg.job_dir, "step_ended");
    if (!path || access(path, F_OK) == -1)
        return;
    s->notice.step_over = true;
    slurm_broken(s, "a step of the keepers has ended");
}

/* ---- the end of the job ---- */

bool notice_cancels(struct slurm *s)
{
    if (s->notice.requeue_asked && !s->notice.cancel_asked) {
        s->notice.cancel_asked = true;
        ask(s, WHY_CANCEL);
    }
    return s->notice.cancel_asked && s->notice.q;
}

/* ---- after SIGTERM to the master: does the job end, or only this run? ---- */

int notice_fate(struct slurm *s,
                void (*done)(bool over, const char *who, const char *text, void *arg))
{
    s->fate_done = done;
    ask(s, WHY_FATE);
    return s->notice.q ? 0 : -ENOMEM;
}

/* ---- open and close ---- */

/* scancel --full sends these to all processes of the job. They are for the tasks. */
static void on_other(int signo, void *arg)
{
    (void)arg;
    log_event(LOG_INFO, "slurm.signal_ignored", f_int("signal", signo));
}

int notice_open(struct slurm *s, struct err *e)
{
    s->notice.timer = loop_timer_new(s->cfg.loop, on_timer, s);
    s->notice.again = loop_timer_new(s->cfg.loop, on_again, s);
    s->notice.usr1 = loop_signal_new(s->cfg.loop, SIGUSR1, on_usr1, s);
    static const int others[NOTICE_OTHERS] = { SIGUSR2, SIGINT, SIGHUP };
    bool all = s->notice.timer && s->notice.again && s->notice.usr1;
    for (size_t i = 0; i < NOTICE_OTHERS && all; i++) {
        s->notice.others[i] = loop_signal_new(s->cfg.loop, others[i], on_other, s);
        all = s->notice.others[i] != NULL;
    }
    return all ? 0 : err_set(e, ENOMEM, "no memory to start the master");
}

void notice_close(struct slurm *s)
{
    if (s->notice.q)
        s->notice.q->s = NULL;
    loop_timer_free(s->notice.timer);
    loop_timer_free(s->notice.again);
    loop_signal_free(s->notice.usr1);
    for (size_t i = 0; i < NOTICE_OTHERS; i++)
        loop_signal_free(s->notice.others[i]);
}
