/* SPDX-License-Identifier: Apache-2.0 */
#include "client/arbiter/arbiter.h"

#include <errno.h>
#include <stdlib.h>

#include "client/client_int.h"
#include "client/policy/allocate.h"
#include "cluster/yarn/table.h"
#include "conf/conf.h"

/* ---- claims ---- */

/* May a decision change the size of this job now? The containers of all other jobs count as
 * taken. */
static bool may_change(const struct arbiter_job *j)
{
    return j->is_elastic && !j->changing && !j->in_vain;
}

static struct part_amount amount(uint64_t memory_mib, uint32_t gpus)
{
    struct part_amount p = { { 0 } };
    p.v[CLAIM_MEMORY_MIB] = (int64_t)MIN(memory_mib, (uint64_t)PART_AMOUNT_MAX);
    p.v[CLAIM_GPUS] = gpus;
    return p;
}

static struct part_claim claim_of(const struct arbiter_job *j, size_t arrival, int64_t now)
{
    const struct share_needs *x = &j->needs;
    uint64_t master_mib = j->has_master ? 0 : x->master_mib;
    double waited_ms = (double)(clock_wall_ms() - j->submitted_ms);
    return (struct part_claim){ .id = j->id,
                                .runs = j->runs,
                                .pinned = j->runs && patience_is_over(&j->follows, now),
                                .fixed = amount(x->fixed_mib + master_mib, x->fixed_gpus),
                                .each = amount(x->each_mib, x->each_gpus),
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

/* Set the amounts that no decision can free: all that is used, without the containers of the
 * claims. A waiting job may hold some of its containers already; these do not count as used,
 * because the job can use them. */
static void set_taken(struct arbiter *a)
{
    for (size_t i = 0; i < a->nodes.n; i++)
        a->nodes.v[i].taken = a->used.v[i];
    for (size_t i = 0; i < a->jobs.n; i++) {
        const struct arbiter_job *j = &a->jobs.v[i];
        if (!may_change(j))
            continue;
        for (size_t k = 0; k < j->at.n; k++) {
            struct part_amount *taken = &a->nodes.v[j->at.v[k].node].taken;
            taken->v[CLAIM_MEMORY_MIB] -= (int64_t)(j->needs.each_mib * j->at.v[k].n);
            taken->v[CLAIM_GPUS] -= (int64_t)j->needs.each_gpus * j->at.v[k].n;
        }
    }
    for (size_t i = 0; i < a->nodes.n; i++)
        for (int t = 0; t < CLAIM_TYPES; t++)
            a->nodes.v[i].taken.v[t] = MAX(a->nodes.v[i].taken.v[t], INT64_C(0));
}

/* Subtract from the queue's limit all that its applications use beside the containers of claims. */
static void set_limit(struct arbiter *a)
{
    for (int t = 0; t < CLAIM_TYPES; t++) {
        int64_t others = a->queue_used.v[t];
        for (size_t i = 0; i < a->jobs.n; i++) {
            const struct arbiter_job *j = &a->jobs.v[i];
            int64_t each =
                t == CLAIM_GPUS ? (int64_t)j->needs.each_gpus : (int64_t)j->needs.each_mib;
            others -= may_change(j) ? each * (int64_t)j->n_containers : 0;
        }
        a->limit.v[t] = MAX(a->limit.v[t] - MAX(others, INT64_C(0)), INT64_C(0));
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
        j->in_vain = !j->runs && patience_is_over(&j->starts, now);
        if (!may_change(j))
            continue;
        r->jobs[r->n] = j;
        r->claims[r->n++] = claim_of(j, i, now);
    }
    set_taken(a);
    set_limit(a);
    return 0;
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

/* true: the job was asked, and has not refused. */
static bool ask_job(struct arbiter *a, struct arbiter_job *j, const struct part_target *t)
{
    struct err e = { 0 };
    AUTO(free_p)
    char *why =
        str_printf("the arbiter of queue '%s', policy %s: %s", a->queue, a->policy->name, t->why);
    int64_t now = clock_mono_ms();
    if (a->dry || !why)
        return false;
    j->asked_n = t->n;
    j->asked_ms = now;
    if (arbiter_ask_wish(a, j, t, why, &e) == 0)
        return true;
    client_note("job %s stays as it is: %s", j->id, e.msg);
    j->asked_ms = 0;
    patience_fail(&j->follows, now, a->settings.resize_limit_ms);
    return false;
}

/* ---- one round ---- */

/* Print the target of the job, unless the last round printed the same. */
static void print_change(struct arbiter_job *j, const struct part_target *t)
{
    bool is_new = !j->was_printed || j->printed_n != t->n || j->printed_verdict != t->verdict;
    j->was_printed = true;
    j->printed_n = t->n;
    j->printed_verdict = t->verdict;
    if (t->verdict == PART_KEEPS || !is_new)
        return;
    if (j->runs)
        (void)printf("%s  %u -> %u  %s\n", j->id, j->n, t->n, t->why);
    else if (t->n)
        (void)printf("%s  starts with %u  %s\n", j->id, t->n, t->why);
    else
        (void)printf("%s  waits  %s\n", j->id, t->why);
}

static json_t *nodes_json(const struct arbiter *a, const struct part_target *t)
{
    json_t *nodes = json_object();
    for (uint32_t i = 0; i < t->n_at; i++)
        (void)json_object_set_new(nodes, a->nodes.v[t->at[i].node].name,
                                  json_integer((json_int_t)t->at[i].n));
    return nodes;
}

static int print_json(const struct arbiter *a, const struct round *r)
{
    const struct part_metrics *m = &r->decision.metrics;
    json_t *jobs = json_array();
    for (size_t i = 0; i < r->n; i++)
        (void)json_array_append_new(
            jobs, json_pack("{s:s,s:b,s:I,s:I,s:s,s:o}", "application_id", r->jobs[i]->id, "runs",
                            (int)r->jobs[i]->runs, "has",
                            (json_int_t)(r->jobs[i]->runs ? r->jobs[i]->n : 0), "target",
                            (json_int_t)r->decision.jobs[i].n, "why", r->decision.jobs[i].why,
                            "nodes", nodes_json(a, &r->decision.jobs[i])));
    json_t *doc =
        json_pack("{s:s,s:s,s:f,s:f,s:I,s:I,s:o}", "queue", a->queue, "policy", a->policy->name,
                  "utilization", m->utilization, "loss", m->loss, "adjusted",
                  (json_int_t)m->adjusted, "nodes", (json_int_t)a->nodes.n, "jobs", jobs);
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

/* The others wait for this job, which needs containers. true: they go on waiting. */
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

/* After the requests of a round: if no job was asked to make room, the room for the jobs that
 * should start is there. */
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

/* The places that the job has now and has in the target, too. Both lists are in the order of the
 * nodes. out: room for t->n_at places. Returns the number of containers. */
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
        else if (!patience_is_over(&j->follows, now) && /* it has not refused just now */
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

static int run_round(struct arbiter *a, struct err *e)
{
    AUTO(round_done) struct round r = { 0 };
    int rc = arbiter_observe(a, e);
    if (rc == 0 && some_job_changes(a))
        return 0;
    if (rc == 0 && make_claims(a, &r) < 0)
        rc = err_set(e, ENOMEM, "cannot divide the queue: %m");
    if (rc == 0)
        rc = decide(a, &r, e);
    if (rc < 0)
        return rc;
    if (a->json && print_json(a, &r) < 0)
        return err_set(e, ENOMEM, "cannot print the decision: %m");
    for (size_t i = 0; i < r.n && !a->json; i++)
        print_change(r.jobs[i], &r.decision.jobs[i]);
    (void)fflush(stdout);
    carry_out(a, &r);
    return 0;
}

/* ---- the command ---- */

int arbiter_choose_policy(struct arbiter *a, const char *name, struct err *e)
{
    a->policy = a->settings.policy;
    int rc = name ? client_policy(name, &a->policy, e) : 0;
    if (!a->policy || str_eq(a->policy->name, "fifo"))
        a->policy = part_policy_find("dorm");
    if (rc < 0 || (a->policy->resizes && !a->policy->preempts))
        return rc;
    (void)err_set(e, EINVAL, "the arbiter cannot follow policy '%s': it %s", a->policy->name,
                  a->policy->preempts ? "stops running jobs" : "never resizes a job");
    return err_hint(e, "dorm, drf, market and srtf-elastic resize jobs");
}

static int read_settings(struct arbiter *a, struct client *c, struct err *e)
{
    policy_settings_read(a->y->conf, &a->settings);
    a->settings.interval_ms = MAX(a->settings.interval_ms, INT64_C(100));
    return arbiter_choose_policy(a, options_get(&c->o, OPT_POLICY), e);
}

/* Read the arbiter's private key, if its user has one. */
static int read_key(struct arbiter *a, struct err *e)
{
    int rc = arbiter_secret_read(a->y, &a->secret, e);
    if (rc == 0)
        rc = arbiter_key_public(&a->secret, &a->public, e);
    a->has_key = rc == 0;
    if (rc == -ENOENT) {
        *e = (struct err){ 0 };
        return 0;
    }
    return rc;
}

/* Run rounds until the process is killed. Each round asks for the state of the cluster again. */
static int run_rounds(struct arbiter *a, bool once, struct err *e)
{
    for (bool first = true;; first = false) {
        int rc = run_round(a, e);
        if (once || (first && (rc == -EINVAL || rc == -EACCES)))
            return rc;
        if (rc < 0)
            client_note("nothing is decided now: %s", e->msg);
        *e = (struct err){ 0 };
        host_pause(a->y->host, a->settings.interval_ms);
    }
}

static int run_here(struct client *c, const char *queue)
{
    struct err e = { 0 };
    AUTO(yarn_freep) struct yarn *y = NULL;
    struct arbiter a = { .queue = queue,
                         .dry = options_has(&c->o, OPT_DRY_RUN),
                         .json = options_has(&c->o, OPT_JSON) };
    int rc = arbiter_open(c, &y, &e);
    a.y = y;
    if (rc == 0)
        rc = yarn_home(y, &e);
    if (rc == 0)
        rc = read_settings(&a, c, &e);
    if (rc == 0)
        rc = read_key(&a, &e);
    if (rc == 0)
        rc = run_rounds(&a, options_has(&c->o, OPT_ONCE), &e);
    arbiter_forget(&a);
    if (rc < 0)
        return client_fail(rc == -EINVAL ? EXIT_MISUSE : EXIT_CLUSTER, &e);
    return client_flush_stdout();
}

/* If --cluster or the site's file names a cluster, can an arbiter divide its jobs? 0, or minus the
 * exit code. */
static int check_cluster(struct client *c, struct err *e)
{
    struct err unread = { 0 };
    const char *option = options_get(&c->o, OPT_CLUSTER);
    const struct conf *site = client_site(c, &unread); /* arbiter_open() reports a damaged file */
    const struct cluster_ops *ops = cluster_wanted(option, site);
    bool is_chosen = option || (site && !str_eq(conf_origin(site, "tony.cluster"), "default"));
    if (!ops)
        return client_no_cluster(option, e);
    if (!is_chosen || ops == &cluster_yarn)
        return 0;
    (void)err_set(e, EINVAL, "tony arbiter cannot divide the jobs of cluster '%s': %s", ops->name,
                  ops->no_arbiter ? ops->no_arbiter : "it divides queues of YARN");
    if (ops->no_arbiter_hint)
        err_hint(e, "%s", ops->no_arbiter_hint);
    return -EXIT_MISUSE;
}

int cmd_arbiter(struct client *c)
{
    static const struct {
        const char *verb;
        int (*fn)(struct client *c, const char *queue);
    } verbs[] = { { "run", run_here },
                  { "start", arbiter_start },
                  { "stop", arbiter_stop },
                  { "key", arbiter_key_print },
                  { "status", arbiter_status } };
    const char *queue = options_get(&c->o, OPT_QUEUE), *verb = c->o.args[0];
    struct err e = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        if (!str_eq(verb, verbs[i].verb))
            continue;
        int rc = check_cluster(c, &e);
        if (rc < 0)
            return client_fail(-rc, &e);
        if (queue)
            return verbs[i].fn(c, queue);
        (void)err_set(&e, EINVAL, "tony arbiter %s: no --queue is given", verb);
        err_hint(&e, "tony arbiter %s --queue NAME", verb);
        return client_fail(EXIT_MISUSE, &e);
    }
    (void)err_set(&e, EINVAL, "tony arbiter has no '%s'", verb);
    err_hint(&e, "run, start, stop, status and key are known");
    return client_fail(EXIT_MISUSE, &e);
}
