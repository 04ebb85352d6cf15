/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of Slurm that the master runs for further allocations: sbatch submits one; squeue
 * lists them after a master was killed, and tells what a queued one waits for, with pauses of up to
 * ASK_MAX_MS; scancel ends one. A thread runs the command. The master runs one at a time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include "scheduler/slurm/further.h"
#include "scheduler/slurm/slurm_int.h"

enum {
    LIMIT_MS = 60000, /* of a command */
    ASK_MS = 1000,    /* between two questions about an allocation that waits; it doubles */
    ASK_MAX_MS = 30000,
    AGAIN_MS = 5000,  /* Slurm has not answered */
    LEAVES_MS = 2000, /* a job that was cancelled takes this time to end, or longer */
};

enum question_kind { Q_SUBMIT = 1, Q_FIND, Q_STATE, Q_CANCEL };

struct further_question {
    struct slurm *s; /* NULL: the back-end was closed meanwhile. Only on the loop thread */
    enum question_kind kind;
    uint32_t base; /* of the further allocation */
    char *script, *name, *exclude;
    char nodes[16], base_text[16], run[16], number[32];
    /* the answer */
    struct slurm_state is;
    struct strv found; /* Q_FIND: numbers */
    bool refused;      /* Q_SUBMIT: by Slurm, with the reason in e */
    struct err e;
};

static void question_free(struct further_question *q)
{
    free(q->script);
    free(q->name);
    free(q->exclude);
    strv_done(&q->found);
    free(q);
}

/* ---- on the thread ---- */

static int run_sbatch(struct further_question *q)
{
    AUTO(free_p) char *nodes = str_printf("--nodes=%s", q->nodes);
    AUTO(free_p) char *exclude = str_printf("--exclude=%s", q->exclude);
    const char *const argv[] = { "sbatch",  "--parsable", nodes,  exclude,
                                 q->script, q->base_text, q->run, NULL };
    struct slurm_answer a;
    if (!nodes || !exclude)
        return err_set(&q->e, ENOMEM, "no memory for a further allocation");
    int rc = slurm_run(argv, NULL, LIMIT_MS, &a, &q->e);
    if (rc == -ENOENT)
        q->refused = true;
    if (rc == 0 && (a.status != 0 || slurm_parse_number(buf_span(&a.out), q->number) < 0)) {
        AUTO(free_p) char *words = slurm_words(&a);
        q->refused = !slurm_is_trouble(words ? words : "");
        rc = err_set(&q->e, EIO, "%s", words && *words ? words : "sbatch gives no reason");
    }
    slurm_answer_done(&a);
    return rc;
}

static int run_squeue(struct further_question *q)
{
    const char *const argv[] = { "squeue", "-h", "--me", "-n", q->name, "-o", "%i", NULL };
    struct slurm_answer a;
    int rc = slurm_run(argv, NULL, LIMIT_MS, &a, &q->e);
    if (rc == 0 && a.status != 0)
        rc = slurm_failed(&a, "squeue", &q->e);
    struct span rest = buf_span(&a.out), line;
    while (rc == 0 && rest.len && span_split(&rest, '\n', &line)) {
        char number[32];
        if (slurm_parse_number(line, number) == 0 && strv_push(&q->found, number) < 0)
            rc = err_set(&q->e, ENOMEM, "no memory for a further allocation");
    }
    slurm_answer_done(&a);
    return rc;
}

static int run_scancel(struct further_question *q)
{
    int rc = slurm_cancel_job(q->number, LIMIT_MS, &q->e);
    return rc < 0 ? rc : slurm_ask(q->number, &q->is, &q->e);
}

static int on_thread(void *arg)
{
    struct further_question *q = arg;
    switch (q->kind) {
    case Q_SUBMIT:
        return run_sbatch(q);
    case Q_FIND:
        return run_squeue(q);
    case Q_STATE:
        return slurm_ask(q->number, &q->is, &q->e);
    case Q_CANCEL:
        return run_scancel(q);
    }
    return -EINVAL;
}

/* ---- answers ---- */

static struct further *of_base(struct slurm *s, uint32_t base)
{
    for (size_t i = 0; i < s->further.v.n; i++)
        if (s->further.v.v[i].base == base)
            return &s->further.v.v[i];
    return NULL;
}

static struct further *of_number(struct slurm *s, const char *number)
{
    for (size_t i = 0; i < s->further.v.n; i++)
        if (str_eq(s->further.v.v[i].number, number))
            return &s->further.v.v[i];
    return NULL;
}

static void submitted(struct slurm *s, struct further *f, const char *number)
{
    struct err e = { 0 };
    (void)str_copy(f->number, sizeof f->number, number);
    if (f->state == FURTHER_ASKING) /* else its keepers were faster than the answer of sbatch */
        f->state = FURTHER_QUEUED;
    log_event(LOG_INFO, "further.submitted", f_str("slurm_job", number), f_int("nodes", f->n));
    if (further_save(s, &e) < 0)
        log_err(LOG_WARN, "further.save", &e); /* the next master finds it by its name */
}

static bool any_leaves(const struct slurm *s)
{
    for (size_t i = 0; i < s->further.v.n; i++)
        if (s->further.v.v[i].state == FURTHER_LEAVING)
            return true;
    return false;
}

static void on_submit(struct slurm *s, struct further *f, struct further_question *q, int rc)
{
    if (!f)
        return;
    if (rc == 0) {
        submitted(s, f, q->number);
    } else if (q->refused && any_leaves(s)) { /* it may get the nodes of the one that leaves */
        further_remove(s, f);
        s->further.again_ms = clock_mono_ms() + LEAVES_MS;
    } else if (q->refused) {
        further_remove(s, f);
        further_fails(s, str_printf("Slurm refuses a further allocation: %s", q->e.msg));
    } else {
        s->further.find = true; /* slurmctld may have accepted it nevertheless */
    }
}

/* Jobs of the name that the list does not have. At most one of the list has no number yet. */
static void on_find(struct slurm *s, const struct further_question *q)
{
    struct furthers *all = &s->further;
    struct further *asking = NULL;
    all->find = false;
    for (size_t i = 0; i < all->v.n; i++)
        if (all->v.v[i].state == FURTHER_ASKING || !all->v.v[i].number[0])
            asking = &all->v.v[i];
    for (size_t i = 0; i < q->found.n; i++) {
        if (of_number(s, q->found.v[i]))
            continue;
        if (asking && !all->cancel_found) {
            submitted(s, asking, q->found.v[i]);
            asking = NULL;
            continue;
        }
        struct further f = { .state = FURTHER_LEAVING, .base = all->next, .n = 0 };
        (void)str_copy(f.number, sizeof f.number, q->found.v[i]);
        if (vec_push(&all->v, f) < 0)
            all->find = true;
        else
            all->next++; /* so that of_base() finds it */
    }
    if (asking && !all->find)
        further_remove(s, asking); /* it was never submitted */
    all->cancel_found = all->cancel_found && all->find;
}

static void on_state(struct slurm *s, struct further *f, const struct further_question *q)
{
    bool never = false;
    if (!f || f->state != FURTHER_QUEUED)
        return;
    f->is = q->is;
    if (slurm_state_is_over(f->is.state)) {
        char *why = str_printf("job %s of Slurm, a further allocation, ended as %s", f->number,
                               f->is.state[0] ? f->is.state : "unknown");
        further_remove(s, f);
        further_fails(s, why);
        return;
    }
    AUTO(free_p) char *text = str_eq(f->is.state, "PENDING") ? slurm_why(&f->is, &never) : NULL;
    if (!never)
        return;
    further_leave(s, f);
    further_fails(s, str_printf("a further allocation can never start: %s", text ? text : ""));
}

/* A cancelled allocation stays in the list while it may have processes on its nodes. */
static void on_cancel(struct slurm *s, struct further *f, const struct further_question *q)
{
    if (!f)
        return;
    if (slurm_state_is_over(q->is.state))
        further_remove(s, f);
    else
        f->cancel_at_ms = clock_mono_ms() + LEAVES_MS;
}

static void on_done(void *arg, int rc)
{
    struct further_question *q = arg;
    struct slurm *s = q->s;
    if (!s) {
        question_free(q);
        return;
    }
    struct furthers *all = &s->further;
    struct further *f = of_base(s, q->base);
    int64_t now = clock_mono_ms();
    all->q = NULL;
    all->again_ms = rc < 0 && !q->refused ? now + AGAIN_MS : 0;
    if (rc < 0)
        log_err(LOG_WARN, "further.silent", &q->e);
    if (q->kind == Q_SUBMIT)
        on_submit(s, f, q, rc);
    else if (rc == 0 && q->kind == Q_FIND)
        on_find(s, q);
    else if (rc == 0 && q->kind == Q_CANCEL)
        on_cancel(s, f, q);
    else if (rc == 0 && q->kind == Q_STATE)
        on_state(s, f, q);
    if (q->kind == Q_STATE)
        all->ask_pause_ms = MIN(2 * all->ask_pause_ms, (int64_t)ASK_MAX_MS);
    else
        all->ask_pause_ms = ASK_MS;
    if (q->kind == Q_STATE || q->kind == Q_SUBMIT)
        all->ask_at_ms = now + all->ask_pause_ms;
    question_free(q);
    slurm_turn_soon(s);
}

/* ---- questions ---- */

static bool is_of_any(const struct slurm *s, const struct node *n)
{
    for (size_t i = 0; i < s->further.v.n; i++)
        if (further_has_node(&s->further.v.v[i], n))
            return true;
    return false;
}

/* A further allocation gets no node that the job has or has lost: a keeper kills what an earlier
 * keeper of the job has left on its node. */
static char *excluded(const struct slurm *s)
{
    const char *first = getenv("SLURM_JOB_NODELIST");
    AUTO(buf_done) struct buf text = { 0 };
    (void)buf_adds(&text, first ? first : "");
    for (size_t i = 0; i < s->nodes.n; i++)
        if (s->nodes.v[i]->name && is_of_any(s, s->nodes.v[i]))
            (void)buf_addf(&text, "%s%s", text.len ? "," : "", s->nodes.v[i]->name);
    const char *ours = s->cfg.spec ? s->cfg.spec->slurm_exclude : NULL;
    if (ours && *ours)
        (void)buf_addf(&text, "%s%s", text.len ? "," : "", ours);
    return text.failed ? NULL : str_dup(buf_cstr(&text));
}

/* The queued allocation about which squeue was not asked for the longest time. */
static struct further *next_queued(struct slurm *s)
{
    struct further *best = NULL;
    for (size_t i = 0; i < s->further.v.n; i++) {
        struct further *f = &s->further.v.v[i];
        if (f->state == FURTHER_QUEUED && (!best || f->asked_ms < best->asked_ms))
            best = f;
    }
    return best;
}

static bool choose(struct slurm *s, int64_t now_ms, struct further_question *q)
{
    const struct furthers *all = &s->further;
    const struct further *about = NULL;
    if (now_ms < all->again_ms)
        return false;
    if (all->find) {
        q->kind = Q_FIND;
        return true;
    }
    for (size_t i = 0; i < all->v.n && !about; i++) {
        const struct further *f = &all->v.v[i];
        if (f->state != FURTHER_ASKING && (f->state != FURTHER_LEAVING || now_ms < f->cancel_at_ms))
            continue;
        q->kind = f->state == FURTHER_LEAVING ? Q_CANCEL : Q_SUBMIT;
        about = f;
    }
    struct further *queued = !about && now_ms >= all->ask_at_ms ? next_queued(s) : NULL;
    if (queued) {
        q->kind = Q_STATE;
        queued->asked_ms = now_ms;
        about = queued;
    }
    if (!about)
        return false;
    q->base = about->base;
    (void)snprintf(q->nodes, sizeof q->nodes, "%u", about->n);
    (void)str_copy(q->number, sizeof q->number, about->number);
    return true;
}

void further_ask(struct slurm *s, int64_t now_ms)
{
    struct furthers *all = &s->further;
    if (all->q)
        return;
    struct further_question *q = calloc(1, sizeof *q);
    if (!q || !choose(s, now_ms, q)) {
        free(q);
        return;
    }
    q->s = s;
    q->script = fs_join(s->cfg.job_dir, "script.further");
    q->name = str_printf("tony-further-%s", s->cfg.application_id);
    q->exclude = excluded(s);
    (void)snprintf(q->base_text, sizeof q->base_text, "%u", q->base);
    (void)snprintf(q->run, sizeof q->run, "%u", s->run);
    if (!q->script || !q->name || !q->exclude || loop_work(s->cfg.loop, on_thread, on_done, q) < 0)
        question_free(q);
    else
        all->q = q;
}

void further_forget_question(struct slurm *s)
{
    if (s->further.q)
        s->further.q->s = NULL;
}
