/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/sharing.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "conf/conf.h"
#include "loop/loop.h"
#include "pool/pool_int.h"

struct entry {
    char id[APP_ID_MAX];
    bool extension, elastic;
};

/* One decision: its input and its result. */
struct sharing_round {
    struct pool *pool; /* the thread does not use it */
    struct policy_settings settings;
    struct admission_amount capacity;
    struct share_job *jobs;
    struct entry *entries; /* one for each of jobs[] */
    size_t n;
    int64_t began_ms, deadline_ms, decided_ms_before;
    struct part_division decision;
    struct err e;
};

static void schedule(struct pool *p);

bool sharing_divides(const struct pool *p)
{
    return p->sharing.settings.policy != NULL;
}

/* ---- how a job may be resized ---- */

void sharing_read_job(struct pool_job *j, const struct job_spec *spec)
{
    struct pool_elastic *x = &j->elastic;
    struct job_elastic e;
    *x = (struct pool_elastic){ .has = false };
    j->weight = spec->weight;
    j->budget = spec->budget;
    j->timeout_ms = spec->app_timeout_ms;
    if (!job_spec_elastic(spec, &e) || !str_copy(x->role, sizeof x->role, e.role->name))
        return;
    x->has = true;
    x->each = (struct admission_amount){ e.each_memory_mib, e.each_gpus };
    x->fixed = (struct admission_amount){ e.fixed_memory_mib, e.fixed_gpus };
    x->fixed_containers = e.fixed_containers;
    x->min = e.min;
    x->max = e.max;
    x->says_restart = e.role->resize == RESIZE_RESTART;
}

/* ---- what a resize costs ---- */

void sharing_learn(const struct pool_job *j)
{
    struct err e = { 0 };

    if (costs_learn(&j->pool->sharing.costs, j->name, j->cost_ms, &e) < 0)
        log_err(LOG_WARN, "policy.costs", &e);
}

/* The cost that the job has measured; else the cost that other jobs of its name have measured;
 * else the cost in the settings. */
static double resize_cost_s(const struct pool_job *j)
{
    const struct sharing *y = &j->pool->sharing;
    uint64_t ms = (uint64_t)y->settings.resize_cost_ms;

    if (j->cost_known)
        ms = j->cost_ms;
    else
        (void)costs_find(&y->costs, j->name, &ms);
    return (double)ms / 1000;
}

/* ---- the input of a decision ---- */

/* The time until the time limit of the running job. */
static double time_left_s(const struct pool_job *j)
{
    if (j->timeout_ms == 0 || (pool_job_admitted(j) && !j->started_ms))
        return INFINITY;
    int64_t ran_ms = j->started_ms ? clock_mono_ms() - j->started_ms : 0;
    return MAX((double)j->timeout_ms - (double)ran_ms, 0.0) / 1000;
}

/* The time until the running job ends, by the progress of its tasks, but at most until its time
 * limit. */
static double ends_in_s(const struct pool_job *j)
{
    double limit_s = time_left_s(j);
    double left_s = (double)(j->ends_late_ms - clock_mono_ms()) / 1000;
    return j->ends_late_ms ? MIN(MAX(left_s, 0.0), limit_s) : limit_s;
}

/* Describe the job as one container whose number cannot change. */
static void describe_whole(const struct pool_job *j, struct share_job *s)
{
    s->fixed = (struct admission_amount){ 0 };
    s->each = j->needs;
    s->n = s->min = s->max = 1;
}

static void pin(struct share_job *s, uint32_t n, enum share_pin why)
{
    s->n = s->min = s->max = n;
    s->pin = why;
}

/* Set the sizes that the master accepts. false: only n, or not even that. */
static bool bounds_allow(const struct pool_job *j, uint32_t n, struct share_job *s)
{
    const struct pool_elastic *x = &j->elastic;
    if (j->max_containers <= x->fixed_containers || j->min_containers < x->fixed_containers)
        return false;
    s->min = MAX(s->min, j->min_containers - x->fixed_containers);
    s->max = MIN(s->max, j->max_containers - x->fixed_containers);
    return s->min <= n && n <= s->max && s->min < s->max;
}

static void describe_running(const struct pool_job *j, struct share_job *s)
{
    const struct pool_target *t = &j->target;
    uint32_t n;
    s->kind = SHARE_RUNS;
    s->ends_in_s = s->remaining_s = ends_in_s(j);
    if (!sharing_count(j, &n) || n == 0) {
        describe_whole(j, s);
        s->pin = SHARE_PIN_FIXED;
        return;
    }
    s->n = n;
    if (t->kind == TARGET_SHRINK || t->kind == TARGET_GROW)
        pin(s, t->n, SHARE_PIN_CHANGES);
    else if (j->phase != PH_LIVE)
        pin(s, n, SHARE_PIN_PHASE);
    else if (j->wish.open && !sharing_extension_fits_target(j))
        pin(s, n, SHARE_PIN_EXTENDS);
    else if (clock_mono_ms() < j->left_alone_until_ms)
        pin(s, n, SHARE_PIN_LATE);
    else if (j->max_containers == 0)
        pin(s, n, SHARE_PIN_UNHEARD);
    else if (!bounds_allow(j, n, s))
        pin(s, n, SHARE_PIN_BOUNDS);
    else if (s->max < j->elastic.max)
        s->pin = SHARE_NO_LARGER;
}

static void describe_waiting(const struct pool_job *j, struct share_job *s)
{
    uint32_t n;
    bool promised = j->target.kind == TARGET_START;
    s->kind = promised ? SHARE_RUNS : SHARE_WAITS;
    s->remaining_s = time_left_s(j);
    if (!sharing_count(j, &n) || n == 0) {
        describe_whole(j, s);
        s->pin = promised ? SHARE_PIN_STARTS : SHARE_FREE;
    } else if (promised) {
        pin(s, j->target.n, SHARE_PIN_STARTS);
    } else {
        s->n = n;
        /* A job that had a keeper has a journal with its size. */
        if (j->was_admitted || clock_mono_ms() < j->left_alone_until_ms || n < s->min || n > s->max)
            s->min = s->max = n;
    }
}

static double waited_s(const struct pool_job *j)
{
    return (double)MAX(clock_wall_ms() - j->submitted_wall_ms, (int64_t)0) / 1000;
}

void sharing_describe(const struct pool_job *j, struct share_job *s)
{
    *s = (struct share_job){ .fixed = j->elastic.fixed,
                             .each = j->elastic.each,
                             .min = j->elastic.min,
                             .max = j->elastic.max,
                             .priority = j->priority,
                             .number = j->number,
                             .weight = MAX(j->weight, 1u),
                             .budget = j->budget,
                             .remaining_s = INFINITY,
                             .ends_in_s = INFINITY,
                             .attained_s = service_attained_s(j),
                             .resize_s = resize_cost_s(j),
                             .waited_s = waited_s(j) };
    if (pool_job_admitted(j))
        describe_running(j, s);
    else
        describe_waiting(j, s);
}

struct admission_amount sharing_least(const struct pool_job *j)
{
    const struct part_policy *policy = j->pool->sharing.settings.policy;
    struct share_job s;

    if (!policy || !policy->resizes)
        return j->needs;
    sharing_describe(j, &s);
    return share_sum(&s.fixed, &s.each, s.min);
}

/* The waiting time of an extension in a decision. A user has asked for the extension, so the costs
 * of resizing other jobs must not delay it: they do not delay a job that has waited this long. */
static const double EXTENSION_WAITED_S = 1e9;

bool sharing_describe_extension(const struct pool_job *j, struct share_job *s)
{
    if (!j->wish.open || j->phase != PH_LIVE || sharing_extension_fits_target(j))
        return false;
    bool promised = j->target.kind == TARGET_EXTEND;
    *s = (struct share_job){ .kind = promised ? SHARE_RUNS : SHARE_EXTENDS,
                             .each = extension_lacks(j),
                             .n = 1,
                             .min = 1,
                             .max = 1,
                             .pin = promised ? SHARE_PIN_STARTS : SHARE_FREE,
                             .priority = j->priority,
                             .number = j->wish.arrival,
                             .weight = MAX(j->weight, 1u),
                             .budget = j->budget,
                             .remaining_s = INFINITY,
                             .ends_in_s = INFINITY,
                             .waited_s = EXTENSION_WAITED_S };
    return true;
}

static void add(struct sharing_round *r, const struct pool_job *j, const struct share_job *s,
                bool extension)
{
    struct entry *x = &r->entries[r->n];
    (void)str_copy(x->id, sizeof x->id, j->id); /* always fits: both have APP_ID_MAX bytes */
    x->extension = extension;
    x->elastic = !extension && j->elastic.has;
    r->jobs[r->n] = *s;
    r->jobs[r->n++].id = x->id;
}

static void round_free(struct sharing_round *r)
{
    if (!r)
        return;
    free(r->jobs);
    free(r->entries);
    part_division_done(&r->decision);
    free(r);
}

static struct sharing_round *round_new(struct pool *p)
{
    struct sharing_round *r = calloc(1, sizeof *r);
    size_t most = 2 * p->jobs.n + 1;
    if (r) {
        r->jobs = calloc(most, sizeof *r->jobs);
        r->entries = calloc(most, sizeof *r->entries);
    }
    if (!r || !r->jobs || !r->entries) {
        round_free(r);
        return NULL;
    }
    r->pool = p;
    r->settings = p->sharing.settings;
    r->capacity = (struct admission_amount){ p->machine.memory_mib, p->machine.n_gpus };
    for (size_t i = 0; i < p->jobs.n; i++) {
        struct share_job s;
        sharing_describe(p->jobs.v[i], &s);
        add(r, p->jobs.v[i], &s, false);
    }
    for (size_t i = 0; i < p->jobs.n; i++) {
        const struct pool_job *j = p->jobs.v[i];
        struct share_job s;
        if (sharing_describe_extension(j, &s))
            add(r, j, &s, true);
    }
    return r;
}

/* ---- has the input changed? ---- */

static uint64_t mix(uint64_t h, const void *p, size_t n)
{
    const unsigned char *bytes = p;
    for (size_t i = 0; i < n; i++) /* FNV-1a */
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* A hash of the input about this job. Times that change without an event are left out; of the
 * expected end, the hash has only whether it is known. */
static uint64_t hash_job(const struct share_job *s)
{
    /* Other reasons for a pin do not differ here: a job that starts passes through several of them,
     * and a decision for each would delay the one by which it may grow. */
    uint64_t pin = s->pin == SHARE_PIN_STARTS ? 2 : share_is_pinned(s->pin);
    const uint64_t v[] = { s->kind,
                           s->fixed.memory_mib,
                           s->fixed.gpus,
                           s->each.memory_mib,
                           s->each.gpus,
                           s->min,
                           s->max,
                           s->n,
                           pin,
                           (uint64_t)s->priority,
                           s->number,
                           s->weight,
                           isinf(s->ends_in_s) != 0 };
    uint64_t h = mix(UINT64_C(0xcbf29ce484222325), v, sizeof v);
    h = mix(h, &s->resize_s, sizeof s->resize_s);
    return mix(mix(h, &s->budget, sizeof s->budget), s->id, strlen(s->id));
}

static uint64_t hash_round(const struct sharing_round *r)
{
    uint64_t h = mix(1, &r->settings.policy, sizeof r->settings.policy);
    for (size_t i = 0; i < r->n; i++) {
        uint64_t one = hash_job(&r->jobs[i]);
        h = mix(h, &one, sizeof one);
    }
    return MAX(h, UINT64_C(1));
}

static bool same_entry(const struct entry *a, const struct entry *b)
{
    return a->extension == b->extension && str_eq(a->id, b->id);
}

/* Are all jobs of the decision unchanged since it began? Both lists have the order of the pool's
 * list. */
static bool still_holds(const struct sharing_round *then, const struct sharing_round *now)
{
    size_t k = 0;
    if (now->settings.policy != then->settings.policy)
        return false;
    for (size_t i = 0; i < then->n; i++, k++) {
        while (k < now->n && !same_entry(&then->entries[i], &now->entries[k]))
            k++;
        if (k == now->n || hash_job(&then->jobs[i]) != hash_job(&now->jobs[k]))
            return false;
    }
    return true;
}

/* ---- deciding ---- */

static bool is_late(void *ctx)
{
    const struct sharing_round *r = ctx;
    return clock_mono_ms() >= r->deadline_ms;
}

static int decide(void *arg)
{
    struct sharing_round *r = arg;
    struct part_options o = policy_settings_options(&r->settings);
    o.limit.stop = is_late;
    o.limit.ctx = r;
    return share_decide(r->settings.policy, &o, &r->capacity, r->jobs, r->n, &r->decision, &r->e);
}

/* Decide again after again_s: jobs that wait only because of the costs of resizes may start then,
 * or with las-elastic a job reaches a threshold. */
static void note_again(struct sharing *y, double again_s)
{
    const double longest_s = 1e6;

    y->again_ms =
        isinf(again_s) ? 0 : clock_mono_ms() + 1 + (int64_t)(MIN(again_s, longest_s) * 1000);
}

static void apply(struct pool *p, struct sharing_round *r)
{
    struct sharing_result *results = calloc(r->n + 1, sizeof *results);
    bool changes = false;
    for (size_t i = 0; i < r->n; i++) {
        const struct part_target *t = &r->decision.jobs[i];
        const struct entry *x = &r->entries[i];
        struct pool_job *j = pool_job_find(p, x->id);
        if (j) {
            j->decided_on = true;
            changes |= sharing_aim(j, t, x->extension);
        }
        if (!results)
            continue;
        results[i] = (struct sharing_result){
            .extension = x->extension, .elastic = x->elastic, .target = *t, .pin = r->jobs[i].pin
        };
        (void)str_copy(results[i].id, APP_ID_MAX, x->id); /* always fits */
        (void)str_copy(results[i].name, SHARING_NAME_MAX, j ? j->name : "");
        bool had = r->jobs[i].kind == SHARE_RUNS && r->jobs[i].pin != SHARE_PIN_STARTS;
        results[i].had = had ? r->jobs[i].n : 0;
    }
    /* If the decision changes something, decide once more when the change is done or has failed. */
    p->sharing.decided_on = changes ? 0 : hash_round(r);
    note_again(&p->sharing, r->decision.metrics.again_s);
    if (results)
        sharing_keep(p, results, r->n, &r->decision.metrics, clock_mono_ms() - r->began_ms);
    pool_admit(p);
}

static void decided(void *arg, int rc)
{
    struct sharing_round *r = arg;
    struct pool *p = r->pool;
    struct sharing *y = &p->sharing;
    y->round = NULL;
    if (p->ended || p->stopping) {
        round_free(r);
        return;
    }
    struct sharing_round *now = rc == 0 ? round_new(p) : NULL;
    if (rc < 0) {
        log_err(LOG_ERROR, "policy.decide", &r->e);
    } else if (!now || !still_holds(r, now)) {
        log_event(LOG_INFO, "policy.stale");
        y->decided_ms = r->decided_ms_before;
        y->changed = true;
    } else {
        apply(p, r);
    }
    round_free(now);
    round_free(r);
    schedule(p);
}

/* While a target is in force, the pool decides only if a new job waits: nearly all jobs of the last
 * decision may still be changing. */
static bool must_wait(const struct pool *p)
{
    bool open = false, unknown = false;
    for (size_t i = 0; i < p->jobs.n; i++) {
        const struct pool_job *j = p->jobs.v[i];
        open |= j->target.kind != TARGET_NONE;
        unknown |= !pool_job_admitted(j) && !j->decided_on;
    }
    return open && !unknown;
}

static void begin(struct pool *p, int64_t now)
{
    struct sharing *y = &p->sharing;
    if (must_wait(p))
        return; /* reaching or dropping a target calls sharing_changed() */
    service_update(p);
    struct sharing_round *r = round_new(p);
    y->changed = false;
    if (!r || r->n == 0 || hash_round(r) == y->decided_on) {
        round_free(r);
        return;
    }
    r->began_ms = now;
    r->deadline_ms = now + y->settings.time_limit_ms;
    r->decided_ms_before = y->decided_ms;
    y->decided_ms = now;
    y->round = r;
    if (loop_work(p->loop, decide, decided, r) == 0)
        return;
    y->round = NULL; /* no memory: the next change tries again */
    round_free(r);
}

static void schedule(struct pool *p)
{
    struct sharing *y = &p->sharing;
    if (!y->timer || p->ended)
        return;
    int64_t at = sharing_give_up(p);
    if (y->again_ms && !y->round)
        at = MIN(at, y->again_ms);
    if (y->changed && !y->round && p->hear_until_ms == 0 && !p->stopping && !must_wait(p))
        at = MIN(at, y->decided_ms ? y->decided_ms + y->settings.interval_ms : 0);
    if (at == INT64_MAX)
        loop_timer_stop(y->timer);
    else
        loop_timer_set(y->timer, MAX(at, clock_mono_ms()));
}

static void on_time(void *arg)
{
    struct pool *p = arg;
    struct sharing *y = &p->sharing;
    int64_t now = clock_mono_ms();
    if (!sharing_divides(p) || p->ended || p->stopping)
        return;
    (void)sharing_give_up(p);
    if (y->again_ms && now >= y->again_ms && !y->round) {
        y->again_ms = 0;
        y->decided_on = 0;
        y->changed = true;
    }
    bool may = !y->decided_ms || now >= y->decided_ms + y->settings.interval_ms;
    if (y->changed && !y->round && may && p->hear_until_ms == 0)
        begin(p, now);
    schedule(p);
}

void sharing_changed(struct pool *p)
{
    if (!sharing_divides(p) || p->ended || p->stopping)
        return;
    p->sharing.changed = true;
    schedule(p);
}

int sharing_init(struct pool *p, struct err *e)
{
    p->sharing.timer = loop_timer_new(p->loop, on_time, p);
    if (!p->sharing.timer)
        return err_set(e, ENOMEM, "cannot start the pool: %m");
    int rc = costs_load(&p->sharing.costs, p->paths.pool, e);
    if (rc == 0)
        rc = service_load(p, e);
    sharing_why_init(p);
    return rc == 0 ? sharing_conf_load(p, e) : rc;
}

void sharing_done(struct pool *p)
{
    sharing_why_done(&p->sharing);
    costs_done(&p->sharing.costs);
    service_done(p);
    sharing_conf_done(&p->sharing);
}
