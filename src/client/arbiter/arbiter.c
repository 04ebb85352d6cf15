/* SPDX-License-Identifier: Apache-2.0 */
#include "client/arbiter/arbiter.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "client/client_int.h"
#include "client/policy/allocate.h"
#include "client/policy/figures.h"
#include "conf/conf.h"

/* The longest pauses between two rounds, see pause_after(). */
enum {
    QUIET_PAUSE_MS = 20000,  /* while nothing changes */
    SILENT_PAUSE_MS = 60000, /* while the cluster does not answer */
};

/* ---- claims ---- */

/* May a decision change the size of this job now? The containers of all other jobs count as
 * taken. */
static bool may_change(const struct arbiter_job *j)
{
    return j->is_elastic && !j->changing && !j->is_passed;
}

static struct part_amount amount(uint64_t memory_mib, uint32_t gpus, uint32_t vcores)
{
    struct part_amount p = { { 0 } };
    p.v[CLAIM_MEMORY_MIB] = (int64_t)MIN(memory_mib, (uint64_t)PART_AMOUNT_MAX);
    p.v[CLAIM_GPUS] = gpus;
    p.v[CLAIM_VCORES] = vcores;
    return p;
}

static struct part_amount each_of(const struct arbiter_job *j)
{
    return amount(j->needs.each_mib, j->needs.each_gpus, j->needs.each_vcores);
}

static struct part_claim claim_of(const struct arbiter_job *j, size_t arrival, int64_t now)
{
    const struct share_needs *x = &j->needs;
    uint64_t master_mib = j->has_master ? 0 : x->master_mib;
    double waited_ms = (double)(clock_wall_ms() - j->submitted_ms);
    bool late = j->runs && patience_is_over(&j->follows, now);
    return (struct part_claim){ .id = j->id,
                                .runs = j->runs,
                                .pinned = late ? "it did not take the size of an earlier decision "
                                                 "in time"
                                               : NULL,
                                .fixed = amount(x->fixed_mib + master_mib, x->fixed_gpus, 0),
                                .each = each_of(j),
                                .min = x->min,
                                .max = x->max,
                                .at = j->at.v,
                                .n_at = (uint32_t)j->at.n,
                                .n = j->n,
                                .arrival = arrival,
                                .weight = x->weight,
                                .budget = x->budget,
                                .priority = j->priority,
                                .remaining_s = j->remaining_s,
                                .ends_in_s = j->remaining_s,
                                .resize_s = j->resize_s,
                                .waited_s = j->runs ? 0 : MAX(waited_ms, 0.0) / 1000 };
}

static void subtract(struct part_amount *from, const struct part_amount *each, uint32_t n)
{
    for (int t = 0; t < CLAIM_TYPES; t++)
        from->v[t] -= each->v[t] * n;
}

/* Set the amounts that no decision can free: all that is used, without the containers of the
 * claims. A waiting job may hold some of its containers already; these do not count as used,
 * because the job can use them. Nodes that a job has but does not use do not count as taken either,
 * because the job is returning them. */
static void set_taken(struct arbiter *a)
{
    for (size_t i = 0; i < a->nodes.n; i++)
        a->nodes.v[i].taken = a->used.v[i];
    for (size_t i = 0; i < a->jobs.n; i++) {
        const struct arbiter_job *j = &a->jobs.v[i];
        struct part_amount each = each_of(j);
        if (!may_change(j))
            continue;
        for (size_t k = 0; k < j->at.n; k++)
            subtract(&a->nodes.v[j->at.v[k].node].taken, &each, j->at.v[k].n);
        for (size_t k = 0; k < j->shares.n; k++)
            if (!steps_uses(j, &j->shares.v[k]))
                subtract(&a->nodes.v[j->shares.v[k].node].taken, &each, 1);
    }
    for (size_t i = 0; i < a->nodes.n; i++)
        for (int t = 0; t < CLAIM_TYPES; t++)
            a->nodes.v[i].taken.v[t] = MAX(a->nodes.v[i].taken.v[t], INT64_C(0));
}

/* Subtract from the queue's limit all that its applications use beside the containers of claims. */
static void set_limit(struct arbiter *a)
{
    struct part_amount others = a->queue_used, none = { { 0 } }, held = none;
    for (size_t i = 0; i < a->jobs.n; i++) {
        struct part_amount each = each_of(&a->jobs.v[i]);
        if (may_change(&a->jobs.v[i]))
            subtract(&others, &each, a->jobs.v[i].n_containers);
    }
    for (int t = 0; t < CLAIM_TYPES; t++) {
        held.v[t] = a->queue_used.v[t] - others.v[t];
        a->limit.v[t] = MAX(a->limit.v[t] - MAX(others.v[t], INT64_C(0)), INT64_C(0));
        /* No job shrinks for the sake of what is kept free. */
        a->limit.v[t] = MAX(a->limit.v[t] - a->kept.v[t], MIN(a->limit.v[t], held.v[t]));
    }
}

/* The claims of one round; jobs[k] is the job of claims[k]. */
struct round {
    struct part_claim *claims;
    struct arbiter_job **jobs;
    size_t n;
    struct part_division decision;
};

static void round_done(struct round *r)
{
    free(r->claims);
    free(r->jobs);
    part_division_done(&r->decision);
}

static int make_claims(struct arbiter *a, struct round *r)
{
    r->claims = calloc(a->jobs.n + 1, sizeof *r->claims);
    r->jobs = calloc(a->jobs.n + 1, sizeof *r->jobs);
    if (!r->claims || !r->jobs)
        return -ENOMEM;
    int64_t now = clock_mono_ms();
    for (size_t i = 0; i < a->jobs.n; i++) {
        struct arbiter_job *j = &a->jobs.v[i];
        j->is_passed = !j->runs && patience_is_over(&j->starts, now);
        if (!may_change(j))
            continue;
        r->jobs[r->n] = j;
        r->claims[r->n++] = claim_of(j, i, now);
    }
    set_taken(a);
    set_limit(a);
    return 0;
}

/* ---- sentences ---- */

/* The sentence of the policy. On a cluster that gives nodes, its "containers" are nodes. */
static const char *sentence(const struct arbiter *a, const struct part_target *t,
                            char out[static PART_WHY_MAX])
{
    static const char from[] = "container", to[] = "node";
    size_t n = 0;
    for (const char *p = t->why; *p && n + 1 < PART_WHY_MAX; p++) {
        if (!a->ops->gives_nodes || !str_starts(p, from)) {
            out[n++] = *p;
            continue;
        }
        for (size_t i = 0; to[i] && n + 1 < PART_WHY_MAX; i++)
            out[n++] = to[i];
        p += strlen(from) - 1;
    }
    out[n] = '\0';
    return out;
}

/* A waiting job: the cluster starts it with the size of its first allocation. */
static void print_start(const struct arbiter_job *j, const struct part_target *t, const char *why)
{
    const char *reason = strstr(why, ": ");
    uint32_t first = j->step.n ? j->step.base_n : t->n, n = steps_instances(j, t->n);
    if (n > first)
        (void)printf("%s  starts with %u, and grows to %u  %s\n", j->id, first, n,
                     reason ? reason + 2 : why);
    else
        (void)printf("%s  starts with %u  %s\n", j->id, first, why);
}

/* ---- asking the masters ---- */

/* Check the jobs that were asked in earlier rounds. true: one of them still changes. */
static bool some_job_changes(struct arbiter *a)
{
    int64_t now = clock_mono_ms();
    bool changes = false;
    for (size_t i = 0; i < a->jobs.n; i++) {
        struct arbiter_job *j = &a->jobs.v[i];
        bool is_late = now > j->asked_ms + a->settings.resize_limit_ms;
        if (!j->asked_ms)
            continue;
        if (j->changing && !is_late) {
            changes = true;
            continue;
        }
        if (j->changing || j->n != j->asked_n) {
            patience_fail(&j->follows, now, a->settings.resize_limit_ms);
            client_note("job %s did not follow%s; it is not asked again for %lld s", j->id,
                        is_late ? " in time" : "", (long long)(j->follows.until_ms - now) / 1000);
        } else {
            patience_succeed(&j->follows);
        }
        j->asked_ms = 0;
    }
    return changes;
}

/* Ask for n containers, or nodes. true: the job was asked, and has not refused. */
static bool ask_for(struct arbiter *a, struct arbiter_job *j, uint32_t n, struct wish *w,
                    const struct part_target *t)
{
    struct err e = { 0 };
    char reason[PART_WHY_MAX];
    AUTO(free_p)
    char *why = str_printf("the arbiter of %s '%s', policy %s: %s", a->ops->what, a->queue,
                           a->policy->name, sentence(a, t, reason));
    int64_t now = clock_mono_ms();
    if (a->dry || !why)
        return false;
    w->why = why;
    w->grow = n > j->n;
    j->asked_n = n;
    j->asked_ms = now;
    a->acted = true;
    if (arbiter_ask_wish(a, j, w, &e) == 0)
        return true;
    client_note("job %s stays as it is: %s", j->id, e.msg);
    j->asked_ms = 0;
    patience_fail(&j->follows, now, a->settings.resize_limit_ms);
    return false;
}

static bool ask_job(struct arbiter *a, struct arbiter_job *j, const struct part_target *t)
{
    struct wish w = { .instances = t->n, .at = t->at, .n_at = t->n_at };
    return ask_for(a, j, t->n, &w, t);
}

/* ---- one round ---- */

/* Say once what is kept free for applications that the arbiter cannot resize. */
static void print_kept(struct arbiter *a)
{
    const int64_t *now = a->kept.v, *before = a->kept_before.v;
    bool is_new = false;
    for (int t = 0; t < CLAIM_TYPES; t++)
        is_new = is_new || now[t] != before[t];
    if (is_new)
        (void)printf("%s '%s': %lld MiB, %lld GPUs%s stay free, since other jobs wait for them\n",
                     a->ops->what, a->queue, (long long)now[CLAIM_MEMORY_MIB],
                     (long long)now[CLAIM_GPUS], now[CLAIM_VCORES] ? " and their cores" : "");
    a->kept_before = a->kept;
}

/* With --once: name the jobs about which this round decides nothing. */
static void print_others(const struct arbiter *a, size_t n_claims)
{
    size_t n_elastic = 0;
    for (size_t i = 0; i < a->jobs.n; i++) {
        const struct arbiter_job *j = &a->jobs.v[i];
        n_elastic += j->is_elastic;
        if (j->is_elastic && j->changing)
            (void)printf("%s  changes its size now, or its master does not answer; what it has "
                         "counts as taken\n",
                         j->id);
    }
    if (n_claims == 0 && n_elastic == 0)
        (void)printf("%s '%s' has no job that can be resized\n", a->ops->what, a->queue);
}

/* Does the decision change the job, or let it wait, in another way than the last one that was
 * printed? */
static bool is_news(const struct arbiter_job *j, const struct part_target *t)
{
    return t->verdict != PART_KEEPS &&
           (!j->was_printed || j->printed_n != t->n || j->printed_verdict != t->verdict);
}

/* Print the figures of the decision. */
static void print_figures(const struct arbiter *a, const struct part_metrics *m)
{
    AUTO(buf_done) struct buf text = { 0 };
    const struct decision_figures f = { .utilization = m->utilization,
                                        .loss = m->loss,
                                        .gap = part_gap(m),
                                        .adjusted = m->adjusted,
                                        .admitted = m->admitted };
    decision_figures_text(&f, &text);
    (void)printf("%s '%s', policy '%s': %s\n", a->ops->what, a->queue, a->policy->name,
                 buf_cstr(&text));
}

/* Print the target of the job, unless the last round printed the same. */
static void print_change(const struct arbiter *a, struct arbiter_job *j,
                         const struct part_target *t)
{
    char why[PART_WHY_MAX];
    bool news = is_news(j, t);
    j->was_printed = true;
    j->printed_n = t->n;
    j->printed_verdict = t->verdict;
    if (!news)
        return;
    (void)sentence(a, t, why);
    if (j->runs)
        (void)printf("%s  %u -> %u  %s\n", j->id, j->instances, steps_instances(j, t->n), why);
    else if (t->n)
        print_start(j, t, why);
    else
        (void)printf("%s  waits  %s\n", j->id, why);
}

static json_t *nodes_json(const struct arbiter *a, const struct part_target *t)
{
    json_t *nodes = json_object();
    for (uint32_t i = 0; i < t->n_at; i++)
        (void)json_object_set_new(nodes, a->nodes.v[t->at[i].node].name,
                                  json_integer((json_int_t)t->at[i].n));
    return nodes;
}

/* Print the decision as text, as far as it is new. only_one: this is the only round. */
static void print_round(struct arbiter *a, struct round *r, bool only_one)
{
    bool news = only_one && r->n > 0;
    print_kept(a);
    if (only_one)
        print_others(a, r->n);
    for (size_t i = 0; i < r->n; i++)
        news = news || is_news(r->jobs[i], &r->decision.jobs[i]);
    if (news)
        print_figures(a, &r->decision.metrics);
    for (size_t i = 0; i < r->n; i++)
        print_change(a, r->jobs[i], &r->decision.jobs[i]);
}

/* The job's target, in instances; 0 = the job waits. */
static json_int_t target_of(const struct round *r, size_t i)
{
    uint32_t n = r->decision.jobs[i].n;
    return n ? (json_int_t)steps_instances(r->jobs[i], n) : 0;
}

static int print_json(const struct arbiter *a, const struct round *r)
{
    const struct part_metrics *m = &r->decision.metrics;
    char why[PART_WHY_MAX];
    json_t *jobs = json_array();
    for (size_t i = 0; i < r->n; i++)
        (void)json_array_append_new(
            jobs, json_pack("{s:s,s:b,s:I,s:I,s:s,s:o}", "application_id", r->jobs[i]->id, "runs",
                            (int)r->jobs[i]->runs, "has",
                            (json_int_t)(r->jobs[i]->runs ? r->jobs[i]->instances : 0), "target",
                            target_of(r, i), "why", sentence(a, &r->decision.jobs[i], why), "nodes",
                            nodes_json(a, &r->decision.jobs[i])));
    json_t *doc =
        json_pack("{s:s,s:s,s:f,s:f,s:I,s:I,s:o}", "queue", a->queue, "policy", a->policy->name,
                  "utilization", m->utilization, "loss", m->loss, "adjusted",
                  (json_int_t)m->adjusted, "nodes", (json_int_t)a->nodes.n, "jobs", jobs);
    double gap = part_gap(m);
    if (!isnan(gap))
        (void)json_object_set_new(doc, "gap", json_real(gap)); /* on failure, doc lacks it */
    AUTO(free_p) char *line = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    json_decref(doc);
    if (!line)
        return -ENOMEM;
    (void)puts(line);
    return 0;
}

/* Will a waiting job start by this decision? Then the freed resources must stay free for it. */
static bool some_job_starts(const struct round *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (!r->jobs[i]->runs && r->decision.jobs[i].n)
            return true;
    return false;
}

/* The others wait for this job, which needs containers. true: they continue to wait. */
static bool wait_for(const struct arbiter *a, struct arbiter_job *j)
{
    int64_t now = clock_mono_ms();
    uint32_t before = j->starts.failures;
    bool waits = patience_wait(&j->starts, now, a->settings.resize_limit_ms);
    if (j->starts.failures > before)
        client_note(
            "job %s has not taken the room that was kept for it; no room is kept for it for %lld s",
            j->id, (long long)(j->starts.until_ms - now) / 1000);
    return waits;
}

/* Does a job that changes its size still wait for containers? It is in no claim, but no other job
 * may take the room that it has given back to YARN for a moment. */
static bool some_job_lacks(struct arbiter *a)
{
    bool lacks = false;
    for (size_t i = 0; i < a->jobs.n; i++)
        lacks |= a->jobs.v[i].lacks && wait_for(a, &a->jobs.v[i]);
    return lacks;
}

/* Called after the requests of a round. If no job was asked to make room, the jobs that should
 * start have the room that they need. */
static void await_starts(const struct arbiter *a, struct round *r, bool some_job_was_asked)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->jobs[i]->runs || !r->decision.jobs[i].n)
            continue;
        if (some_job_was_asked)
            patience_pause(&r->jobs[i]->starts);
        else
            (void)wait_for(a, r->jobs[i]);
    }
}

/* Write the containers that stay on their nodes to out: for each node, the smaller of the numbers
 * that the job has now and in the target. Both lists are in the order of the nodes. out has room
 * for t->n_at places. Returns the number of these containers. */
static uint32_t find_common(const struct arbiter_job *j, const struct part_target *t,
                            struct part_place *out, uint32_t *n_out)
{
    uint32_t sum = 0, b = 0;
    *n_out = 0;
    for (size_t a = 0; a < j->at.n; a++) {
        while (b < t->n_at && t->at[b].node < j->at.v[a].node)
            b++;
        if (b == t->n_at || t->at[b].node != j->at.v[a].node)
            continue;
        uint32_t n = MIN(t->at[b].n, j->at.v[a].n);
        out[(*n_out)++] = (struct part_place){ j->at.v[a].node, n };
        sum += n;
    }
    return sum;
}

/*
 * A job that waits may start only if this running job leaves some nodes. A master cannot move a
 * container. So the job first gives back the containers there; when the other one runs, it grows
 * again, on other nodes. true: the job was asked.
 */
static bool ask_to_leave(struct arbiter *a, struct arbiter_job *j, const struct part_target *t)
{
    AUTO(free_p) struct part_place *common = calloc(t->n_at + 1, sizeof *common);
    struct part_target less = *t;
    if (!common || !j->runs)
        return false;
    less.n = find_common(j, t, common, &less.n_at);
    less.at = common;
    return less.n < MIN(j->n, t->n) && less.n >= j->needs.min && ask_job(a, j, &less);
}

/* Does the job wait with this very size? Then it only needs to know where its containers should be,
 * unless it has some already. */
static bool needs_places(const struct arbiter_job *j, const struct part_target *t)
{
    return t->n == j->n && !j->runs && !j->n_containers && t->n_at > 0;
}

/* On a cluster that gives nodes (steps.c). true: the job was asked. */
static bool ask_for_nodes(struct arbiter *a, struct arbiter_job *j, const struct part_target *t,
                          bool may_grow)
{
    AUTO(steps_plan_done) struct steps_plan p = { .nodes = 0 };
    if (!j->runs || t->n == j->n || (t->n > j->n && !may_grow) || steps_fit(a, j, t->n, &p) < 0 ||
        p.nodes == j->n)
        return false;
    struct wish w = { .instances = p.instances, .at = p.at.v, .n_at = (uint32_t)p.at.n };
    return ask_for(a, j, p.nodes, &w, t);
}

static bool some_job_shrinks(const struct round *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->jobs[i]->runs && r->decision.jobs[i].n < r->jobs[i]->n)
            return true;
    return false;
}

static void carry_out_nodes(struct arbiter *a, struct round *r)
{
    bool may_grow = !some_job_lacks(a) && !some_job_starts(r) && !some_job_shrinks(r);
    bool asked = false;
    int64_t now = clock_mono_ms();
    a->acted = a->acted || some_job_starts(r);
    for (size_t i = 0; i < r->n; i++)
        if (r->decision.jobs[i].n && r->jobs[i]->has_master &&
            !patience_is_over(&r->jobs[i]->follows, now))
            asked |= ask_for_nodes(a, r->jobs[i], &r->decision.jobs[i], may_grow);
    if (!a->dry)
        await_starts(a, r, asked);
}

static void carry_out(struct arbiter *a, struct round *r)
{
    bool starts = some_job_starts(r), room_is_kept = some_job_lacks(a) || starts, asked = false;
    int64_t now = clock_mono_ms();
    for (size_t i = 0; i < r->n; i++) {
        struct arbiter_job *j = r->jobs[i];
        const struct part_target *t = &r->decision.jobs[i];
        bool grows = t->n > j->n;
        if (!t->n || !j->has_master || patience_is_over(&j->follows, now))
            continue;
        if (starts && ask_to_leave(a, j, t))
            asked = true;
        else if (!patience_is_over(&j->follows, now) && /* and it has not refused recently */
                 (t->n != j->n || needs_places(j, t)) && (!grows || (!room_is_kept && j->runs)))
            asked |= ask_job(a, j, t) && j->runs;
    }
    if (!a->dry)
        await_starts(a, r, asked);
}

static bool is_late(void *ctx)
{
    const int64_t *deadline_ms = ctx;
    return clock_mono_ms() >= *deadline_ms;
}

static int decide(struct arbiter *a, struct round *r, struct err *e)
{
    struct part_options o = a->settings.options;
    int64_t deadline_ms = clock_mono_ms() + a->settings.time_limit_ms;
    o.limit.stop = is_late;
    o.limit.ctx = &deadline_ms;
    return claims_decide(a->policy, &o, a->nodes.v, a->nodes.n, a->has_limit ? &a->limit : NULL,
                         r->claims, r->n, &r->decision, e);
}

static int run_round(struct arbiter *a, bool only_one, struct err *e)
{
    AUTO(round_done) struct round r = { 0 };
    int rc = arbiter_observe(a, e);
    a->acted = rc == 0 && some_job_changes(a);
    if (a->acted)
        return 0;
    if (rc == 0 && (arbiter_keep_room(a) < 0 || make_claims(a, &r) < 0))
        rc = err_set(e, ENOMEM, "cannot divide the queue: %m");
    if (rc == 0)
        rc = decide(a, &r, e);
    if (rc < 0)
        return rc;
    if (a->json && print_json(a, &r) < 0)
        return err_set(e, ENOMEM, "cannot print the decision: %m");
    if (!a->json)
        print_round(a, &r, only_one);
    (void)fflush(stdout);
    if (a->ops->gives_nodes)
        carry_out_nodes(a, &r);
    else
        carry_out(a, &r);
    return 0;
}

/* ---- the command ---- */

/* Why the arbiter cannot follow the policy. NULL: it can. */
static const char *refusal(const struct part_policy *p)
{
    if (p->preempts)
        return "it stops running jobs";
    if (!p->resizes)
        return "it never resizes a job";
    return p->by_service ? "only the pool counts what each job has had so far" : NULL;
}

int arbiter_choose_policy(struct arbiter *a, const char *name, struct err *e)
{
    a->policy = a->settings.policy;
    int rc = name ? client_policy(name, &a->policy, e) : 0;
    if (rc < 0)
        return rc;
    if (!a->policy || str_eq(a->policy->name, "fifo"))
        a->policy = part_policy_find("dorm");
    const char *why = refusal(a->policy);
    if (!why)
        return 0;
    (void)err_set(e, EINVAL, "the arbiter cannot follow policy '%s': %s", a->policy->name, why);
    return err_hint(e, "use dorm, drf, market or srtf-elastic");
}

static int read_settings(struct arbiter *a, struct client *c, struct err *e)
{
    policy_settings_read(a->conf, &a->settings);
    a->settings.interval_ms = MAX(a->settings.interval_ms, INT64_C(100));
    return arbiter_choose_policy(a, options_get(&c->o, OPT_POLICY), e);
}

/* Read the arbiter's private key, if its user has one. */
static int read_key(struct arbiter *a, struct err *e)
{
    if (!a->ops->secret_read)
        return 0;
    int rc = a->ops->secret_read(a->k, &a->keys.secret, e);
    if (rc == 0)
        rc = arbiter_key_public(&a->keys.secret, &a->keys.public, e);
    a->keys.has = rc == 0;
    if (rc == -ENOENT) {
        *e = (struct err){ 0 };
        return 0;
    }
    return rc;
}

/* The pause after a round. If the cluster says that each request is costly, the pause doubles while
 * nothing changes. It also doubles while the cluster does not answer. */
static int64_t pause_after(const struct arbiter *a, bool failed, int64_t last_ms)
{
    int64_t least_ms = MAX(a->settings.interval_ms, a->ops->pause_ms);
    int64_t most_ms = MAX(failed ? SILENT_PAUSE_MS : QUIET_PAUSE_MS, least_ms);
    if (!a->ops->pause_ms || (!failed && a->acted))
        return least_ms;
    return MIN(MAX(2 * last_ms, least_ms), most_ms);
}

/* Run rounds until the process is killed. Each round asks for the state of the cluster again. */
static int run_rounds(struct arbiter *a, bool once, struct err *e)
{
    int64_t pause_ms = 0;
    for (bool first = true;; first = false) {
        int rc = run_round(a, once, e);
        if (once || (first && (rc == -EINVAL || rc == -EACCES)))
            return rc;
        if (rc < 0)
            client_note("nothing is decided now: %s", e->msg);
        *e = (struct err){ 0 };
        pause_ms = pause_after(a, rc < 0, pause_ms);
        host_pause(a->host, pause_ms);
    }
}

static int run_here(struct client *c, struct arbiter_at *at)
{
    struct err e = { 0 };
    int rc = arbiter_open(c, at, &e);
    struct arbiter a = { .k = at->k,
                         .host = &c->host,
                         .conf = at->conf,
                         .ops = at->ops,
                         .queue = at->queue,
                         .dry = options_has(&c->o, OPT_DRY_RUN),
                         .json = options_has(&c->o, OPT_JSON) };
    if (rc == 0)
        rc = read_settings(&a, c, &e);
    if (rc == 0)
        rc = read_key(&a, &e);
    if (rc == 0)
        rc = run_rounds(&a, options_has(&c->o, OPT_ONCE), &e);
    arbiter_forget(&a);
    arbiter_close(at);
    if (rc < 0)
        return client_fail(rc == -EINVAL ? EXIT_MISUSE : EXIT_CLUSTER, &e);
    return client_flush_stdout();
}

/* ---- the cluster ---- */

int arbiter_open(struct client *c, struct arbiter_at *at, struct err *e)
{
    const struct cluster_config cfg = { .host = &c->host, .conf = client_site(c, e) };
    if (!cfg.conf)
        return -EXIT_MISUSE;
    at->conf = cfg.conf;
    return at->cluster->open(&cfg, &at->k, e);
}

void arbiter_close(struct arbiter_at *at)
{
    cluster_ops_close(TAKE(at->k));
}

/* The first cluster of the list that an arbiter can divide. */
static const struct cluster_ops *first_with_queues(void)
{
    const struct cluster_ops *ops;
    for (size_t i = 0; (ops = cluster_at(i)); i++)
        if (ops->queue)
            return ops;
    return NULL;
}

/* The cluster that --cluster or the site's file names; else the first one that can be divided. 0,
 * or minus the exit code. */
static int choose_cluster(struct client *c, const struct cluster_ops **out, struct err *e)
{
    struct err unread = { 0 };
    const char *option = options_get(&c->o, OPT_CLUSTER);
    const struct conf *site = client_site(c, &unread); /* arbiter_open() reports a damaged file */
    bool is_chosen = option || (site && !str_eq(conf_origin(site, "tony.cluster"), "default"));
    *out = cluster_wanted(option, site);
    if (!*out)
        return client_no_cluster(option, e);
    if (!(*out)->queue && !is_chosen)
        *out = first_with_queues();
    if (*out && (*out)->queue)
        return 0;
    (void)err_set(e, EINVAL, "tony arbiter cannot divide the jobs of cluster '%s': %s",
                  *out ? (*out)->name : "local",
                  *out && (*out)->no_arbiter ? (*out)->no_arbiter : "it has no queues");
    if (*out && (*out)->no_arbiter_hint)
        err_hint(e, "%s", (*out)->no_arbiter_hint);
    return -EXIT_MISUSE;
}

int cmd_arbiter(struct client *c)
{
    static const struct {
        const char *verb;
        int (*fn)(struct client *c, struct arbiter_at *at);
    } verbs[] = { { "run", run_here },
                  { "start", arbiter_start },
                  { "stop", arbiter_stop },
                  { "key", arbiter_key_print },
                  { "status", arbiter_status } };
    struct arbiter_at at = { .queue = options_get(&c->o, OPT_QUEUE) };
    const char *verb = c->o.args[0];
    struct err e = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        if (!str_eq(verb, verbs[i].verb))
            continue;
        int rc = choose_cluster(c, &at.cluster, &e);
        if (rc < 0)
            return client_fail(-rc, &e);
        at.ops = at.cluster->queue;
        if (at.queue)
            return verbs[i].fn(c, &at);
        (void)err_set(&e, EINVAL, "tony arbiter %s: no --queue is given", verb);
        err_hint(&e, "tony arbiter %s --queue NAME", verb);
        return client_fail(EXIT_MISUSE, &e);
    }
    (void)err_set(&e, EINVAL, "tony arbiter has no '%s'", verb);
    err_hint(&e, "run, start, stop, status and key are known");
    return client_fail(EXIT_MISUSE, &e);
}
