/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries out the decisions of the policy. sharing.h says what a target is and which kinds there
 * are. A job with a target goes through these steps:
 *
 *   sharing_aim()        sets the target.
 *   sharing_carry_out()  asks the job to change, or writes its new size into job.conf. When the
 *                        job has reached its target, it removes the target.
 *   sharing_give_up()    removes a target that was not reached before due_ms.
 */
#include <errno.h>
#include <stdlib.h>

#include "loop/loop.h"
#include "pool/pool_int.h"
#include "pool/sharing.h"

bool sharing_count(const struct pool_job *j, uint32_t *out)
{
    return j->elastic.has && share_count(&j->elastic.fixed, &j->elastic.each, &j->needs, out);
}

static bool at_most(const struct admission_amount *a, const struct admission_amount *b)
{
    return a->memory_mib <= b->memory_mib && a->gpus <= b->gpus;
}

bool sharing_extension_fits_target(const struct pool_job *j)
{
    if (j->target.kind != TARGET_GROW || !j->target.ready)
        return false;
    struct admission_amount all = share_sum(&j->elastic.fixed, &j->elastic.each, j->target.n);
    return at_most(&j->wish.needs, &all);
}

bool sharing_allows(const struct pool_job *j, bool extension)
{
    if (!extension)
        return j->target.kind == TARGET_START && j->target.ready;
    return j->target.kind == TARGET_EXTEND || sharing_extension_fits_target(j);
}

/* ---- a new target ---- */

/* The waiting job should start with n containers. ready: its job.conf has this number already. */
static void aim_start(struct pool_job *j, uint32_t n)
{
    uint32_t now;
    bool fits = !sharing_count(j, &now) || now == n;
    j->target = (struct pool_target){ .kind = TARGET_START, .n = n, .ready = fits };
}

bool sharing_aim(struct pool_job *j, const struct part_target *t, bool extension)
{
    struct pool *p = j->pool;
    uint32_t now;
    if (j->target.kind != TARGET_NONE)
        return false; /* a target is in force: the decision did not change it */
    if (t->verdict == PART_STARTS && extension)
        j->target = (struct pool_target){ .kind = TARGET_EXTEND };
    else if (t->verdict == PART_STARTS)
        aim_start(j, t->n);
    else if (t->verdict == PART_CHANGES && sharing_count(j, &now) && now != t->n)
        j->target =
            (struct pool_target){ .kind = t->n < now ? TARGET_SHRINK : TARGET_GROW, .n = t->n };
    if (j->target.kind == TARGET_NONE)
        return false;
    /* The limit for the time until the pool can ask the job. Then send_wish() sets a new one, for
     * the time that the job takes. */
    j->target.due_ms = clock_mono_ms() + 2 * p->sharing.settings.resize_limit_ms;
    return true;
}

/* ---- carrying out ---- */

static bool is_reached(const struct pool_job *j)
{
    const struct pool_target *t = &j->target;
    uint32_t n;
    switch (t->kind) {
    case TARGET_START:
        /* A user may have resized the waiting job meanwhile: drop the target then. */
        return pool_job_admitted(j) || (t->ready && sharing_count(j, &n) && n != t->n);
    case TARGET_SHRINK:
        return sharing_count(j, &n) && n <= t->n;
    case TARGET_GROW:
        return sharing_count(j, &n) && n >= t->n;
    case TARGET_EXTEND:
        return !j->wish.open;
    case TARGET_NONE:
    default:
        return false;
    }
}

static void reason_of(const struct pool_job *j, char *out, size_t n)
{
    const struct sharing_result *w = sharing_last_result(j->pool, j->id, false);
    (void)str_copy(out, n, "");
    if (w)
        sharing_reason(j->pool, w, out, n);
}

/* Ask the job, by its keeper, to take the size of its target. */
static void send_wish(struct pool_job *j)
{
    struct err e = { 0 };
    char why[PART_WHY_MAX + 256];
    int64_t limit = j->pool->sharing.settings.resize_limit_ms;
    if (j->phase != PH_LIVE)
        return; /* the keeper is not connected: try again when it is */
    reason_of(j, why, sizeof why);
    int rc =
        pool_job_wish(j, j->target.kind == TARGET_GROW, j->elastic.fixed_containers + j->target.n,
                      limit, !j->elastic.says_restart, why, &e);
    if (rc < 0) {
        log_err(LOG_WARN, "policy.tell", &e);
        return;
    }
    j->target.ready = true;
    j->target.due_ms = clock_mono_ms() + limit;
}

void sharing_keeper_died(struct pool_job *j)
{
    if (j->target.kind == TARGET_SHRINK || j->target.kind == TARGET_GROW)
        j->target.ready = false;
}

/* The memory and GPUs that the job still needs to reach its target. */
static struct admission_amount missing_amount(const struct pool_job *j)
{
    struct admission_amount all = share_sum(&j->elastic.fixed, &j->elastic.each, j->target.n);
    return (struct admission_amount){
        .memory_mib = all.memory_mib - MIN(all.memory_mib, j->needs.memory_mib),
        .gpus = all.gpus - MIN(all.gpus, j->needs.gpus),
    };
}

/* Subtract a from *left. false: *left is too small, and unchanged. */
static bool take(struct admission_amount *left, const struct admission_amount *a)
{
    if (!at_most(a, left))
        return false;
    left->memory_mib -= a->memory_mib;
    left->gpus -= a->gpus;
    return true;
}

/* Reserve in *left what the growing job still needs; ask the job to grow, if that was not done
 * before. If *left is too small, the job has to wait. */
static void offer(struct pool_job *j, struct admission_amount *left)
{
    struct admission_amount more = missing_amount(j);
    if (take(left, &more) && !j->target.ready)
        send_wish(j);
}

/* Offer the free memory and GPUs to jobs that should grow. Jobs that already have an offer come
 * first, so that nothing is offered twice. */
static void offer_room(struct pool *p)
{
    struct admission_amount left = p->left;
    for (int offered = 1; offered >= 0; offered--)
        for (size_t i = 0; i < p->jobs.n; i++) {
            struct pool_job *j = p->jobs.v[i];
            if (j->target.kind == TARGET_GROW && j->target.ready == (offered == 1))
                offer(j, &left);
        }
}

/* Write the size of its target into the job.conf of a waiting job. sharing_sized() is called when
 * that is done. */
static void write_size(struct pool_job *j)
{
    struct err e = { 0 };
    if (j->target.writing || j->conf_busy) /* the pool admits again after that write */
        return;
    j->target.writing = true;
    int rc = resize_by_policy(j, j->elastic.role, j->target.n, &e);
    if (rc == 0)
        return;
    log_err(LOG_WARN, "policy.size", &e);
    sharing_sized(j, rc);
}

void sharing_sized(struct pool_job *j, int rc)
{
    if (j->target.kind != TARGET_START || !j->target.writing)
        return;
    j->target.writing = false;
    if (rc == 0) {
        j->target.ready = true;
        return;
    }
    j->target = (struct pool_target){ 0 };
    j->left_alone_until_ms = clock_mono_ms() + j->pool->sharing.settings.resize_limit_ms;
    sharing_changed(j->pool);
}

void sharing_carry_out(struct pool *p)
{
    service_update(p);
    if (!sharing_divides(p) || p->stopping || p->ended)
        return;
    for (size_t i = 0; i < p->jobs.n; i++) {
        struct pool_job *j = p->jobs.v[i];
        if (is_reached(j)) {
            log_event(LOG_INFO, "policy.reached", f_str("job", j->id),
                      f_int("containers", j->target.n));
            j->target = (struct pool_target){ 0 };
        } else if (j->target.kind == TARGET_SHRINK && !j->target.ready) {
            send_wish(j);
        } else if (j->target.kind == TARGET_START && !j->target.ready) {
            write_size(j);
        }
    }
    if (p->hear_until_ms == 0) /* else not all keepers have told yet what their jobs hold */
        offer_room(p);
    sharing_changed(p);
}

int sharing_start_waits(const struct pool_job *j, int64_t *out_ms, const struct pool_job **out)
{
    const struct pool *p = j->pool;
    int n = 0;
    *out_ms = 0;
    *out = NULL;
    if (pool_job_admitted(j) || j->target.kind != TARGET_START)
        return -1;
    for (size_t i = 0; i < p->jobs.n; i++) {
        const struct pool_job *x = p->jobs.v[i];
        if (x->target.kind != TARGET_SHRINK)
            continue;
        *out = n++ ? *out : x;
        *out_ms = MAX(*out_ms, x->target.due_ms - clock_mono_ms());
    }
    return n;
}

/* ---- giving up ---- */

void sharing_drop_targets(struct pool *p)
{
    for (size_t i = 0; i < p->jobs.n; i++)
        p->jobs.v[i]->target = (struct pool_target){ 0 };
}

/* Drop the targets of jobs that the pool has not asked to change yet. The others keep theirs. */
static void drop_untold(struct pool *p)
{
    for (size_t i = 0; i < p->jobs.n; i++) {
        struct pool_target *t = &p->jobs.v[i]->target;
        bool was_asked = t->ready && (t->kind == TARGET_SHRINK || t->kind == TARGET_GROW);
        if (!was_asked && !t->writing)
            *t = (struct pool_target){ 0 };
    }
}

/* The job has not reached its target in time. No decision changes it during `resize-limit`. */
static void leave_alone(struct pool_job *j, int64_t now)
{
    int64_t limit = j->pool->sharing.settings.resize_limit_ms;
    log_event(LOG_WARN, "policy.gave_up", f_str("job", j->id), f_int("containers", j->target.n),
              f_int("left_alone_ms", limit));
    j->target = (struct pool_target){ 0 };
    j->left_alone_until_ms = now + limit;
}

int64_t sharing_give_up(struct pool *p)
{
    int64_t next = INT64_MAX, now = clock_mono_ms();
    bool any = false;
    for (size_t i = 0; i < p->jobs.n; i++) {
        struct pool_job *j = p->jobs.v[i];
        if (j->target.kind != TARGET_NONE && now >= j->target.due_ms) {
            leave_alone(j, now);
            any = true;
        }
    }
    if (any) {
        drop_untold(p);
        p->sharing.changed = true;
    }
    for (size_t i = 0; i < p->jobs.n; i++) {
        struct pool_job *j = p->jobs.v[i];
        if (j->left_alone_until_ms && now >= j->left_alone_until_ms) {
            j->left_alone_until_ms = 0;
            p->sharing.changed = true;
        }
        if (j->target.kind != TARGET_NONE)
            next = MIN(next, j->target.due_ms);
        if (j->left_alone_until_ms)
            next = MIN(next, j->left_alone_until_ms);
    }
    return next;
}
