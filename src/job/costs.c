/* SPDX-License-Identifier: Apache-2.0 */
#include "job/costs.h"

#include "job/job_int.h"

/* ---- measuring ---- */

static void keep_sample(struct job *j)
{
    struct costs *c = &j->costs;

    c->recent[c->n++ % COSTS_KEPT] = c->now;
    c->phase = COST_IDLE;
    c->must_record = true;
    j->changed = true;
}

/* The time up to which all work is in a checkpoint; before the first checkpoint, the start of
 * the work. */
static int64_t kept_since(const struct job *j)
{
    return MAX(j->costs.kept_ms, MAX(j->started_ms, (int64_t)0));
}

void costs_gang_stops(struct job *j, bool by_resize)
{
    struct costs *c = &j->costs;

    c->phase = j->started_ms >= 0 ? COST_STOPPING : COST_IDLE;
    c->now = (struct cost_sample){ .by_resize = by_resize,
                                   .ms = { [COST_STOP] = COST_UNKNOWN,
                                           [COST_START] = COST_UNKNOWN,
                                           [COST_WARM] = COST_UNKNOWN,
                                           [COST_REDONE] =
                                               MAX(j->now_ms - kept_since(j), (int64_t)0) } };
    c->since_ms = j->now_ms;
    c->delayed = false;
}

void costs_checkpoint_whole(struct job *j)
{
    struct costs *c = &j->costs;

    c->kept_ms = j->now_ms;
    if (c->phase == COST_STOPPING) {
        c->now.ms[COST_SAVE] += j->now_ms - c->since_ms;
        c->now.ms[COST_REDONE] = 0;
        c->since_ms = j->now_ms;
    } else if (c->phase == COST_WARMING) {
        keep_sample(j);
    }
}

void costs_progress(struct job *j, const struct slot *s, uint64_t step)
{
    struct costs *c = &j->costs;

    if (c->phase != COST_WARMING || s->generation != j->generation || job_is_sidecar(j, s->role) ||
        step <= (c->resumed ? c->step : 0))
        return;
    c->now.ms[COST_WARM] = j->now_ms - c->since_ms;
    keep_sample(j);
}

void costs_disturbed(struct job *j)
{
    j->costs.phase = COST_IDLE;
}

static bool is_delayed(const struct job *j)
{
    return j->n_state[SLOT_ASKED] || j->n_state[SLOT_PLACED] || j->restarts.due_ms != INT64_MAX;
}

/* The new generation has been told to start. */
static void begin_warming(struct job *j)
{
    struct costs *c = &j->costs;

    if (!c->delayed)
        c->now.ms[COST_START] = j->now_ms - c->since_ms;
    c->phase = COST_WARMING;
    c->since_ms = c->kept_ms = j->now_ms;
    c->resumed = j->checkpoints.has;
    c->step = j->checkpoints.step;
}

void costs_run(struct job *j)
{
    struct costs *c = &j->costs;

    if (c->phase == COST_IDLE)
        return;
    if (j->decided) {
        c->phase = COST_IDLE;
        return;
    }
    if (c->phase == COST_STOPPING && !mend_may_old_be_alive(j)) {
        c->now.ms[COST_STOP] = j->now_ms - c->since_ms;
        c->phase = COST_STARTING;
        c->since_ms = j->now_ms;
    }
    if (c->phase != COST_STARTING)
        return;
    c->delayed |= is_delayed(j);
    if (!j->restarts.mending && j->n_state[SLOT_RUNNING])
        begin_warming(j);
}

/* ---- the estimate ---- */

/* Is the part of this measurement used for the estimate of the next resize? */
static bool counts(const struct cost_sample *s, enum cost_part part)
{
    return s->ms[part] != COST_UNKNOWN && (s->by_resize || part == COST_START || part == COST_WARM);
}

/* The median; of an even number of values the lower one of the two in the middle. 0: none. */
static int64_t median_of(const struct costs *c, enum cost_part part)
{
    int64_t sorted[COSTS_KEPT];
    uint32_t n = 0;

    for (uint32_t i = 0; i < MIN(c->n, (uint32_t)COSTS_KEPT); i++) {
        if (!counts(&c->recent[i], part))
            continue;
        uint32_t at = n++;
        for (; at > 0 && sorted[at - 1] > c->recent[i].ms[part]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = c->recent[i].ms[part];
    }
    return n ? sorted[(n - 1) / 2] : 0;
}

/* Do roles exist that a policy may resize, and do the remaining tasks of each continue during a
 * resize? */
static bool is_live(const struct job *j)
{
    bool live = false;

    for (uint32_t r = 0; r < j->n_roles && !j->spec->single_node; r++) {
        const struct role_spec *role = job_role_spec(j, r);
        enum resize_policy policy = role_spec_resize(j->spec, role);
        if (!role->says_bounds || role->min_instances >= role->max_instances ||
            policy == RESIZE_NEVER)
            continue;
        if (policy != RESIZE_LIVE)
            return false;
        live = true;
    }
    return live;
}

bool job_resize_cost(const struct job *j, int64_t *out_ms)
{
    int64_t sum = 0;

    if (is_live(j)) {
        *out_ms = 0;
        return true;
    }
    for (enum cost_part p = 0; p < COST_PART_COUNT; p++)
        sum += median_of(&j->costs, p);
    if (j->costs.n)
        *out_ms = sum;
    return j->costs.n > 0;
}

bool job_must_record(const struct job *j, const struct job_event *ev)
{
    return job_is_durable(ev->type) || j->costs.must_record;
}

/* ---- the status document ---- */

static const char *const part_names[COST_PART_COUNT] = {
#define X(id, name) [id] = name,
    COST_PARTS(X)
#undef X
};

static void last_json(const struct cost_sample *s, struct buf *out)
{
    (void)buf_addf(out, ",\"last\":{\"by\":\"%s\"", s->by_resize ? "resize" : "restart");
    for (enum cost_part p = 0; p < COST_PART_COUNT; p++)
        if (s->ms[p] == COST_UNKNOWN)
            (void)buf_addf(out, ",\"%s\":null", part_names[p]);
        else
            (void)buf_addf(out, ",\"%s\":%lld", part_names[p], (long long)s->ms[p]);
    (void)buf_addc(out, '}');
}

void costs_json(const struct job *j, struct buf *out)
{
    const struct costs *c = &j->costs;
    int64_t total_ms;

    if (!job_resize_cost(j, &total_ms))
        return;
    (void)buf_addf(out, ",\"resize_cost\":{\"total_ms\":%lld", (long long)total_ms);
    for (enum cost_part p = 0; p < COST_PART_COUNT && !is_live(j); p++)
        (void)buf_addf(out, ",\"%s\":%lld", part_names[p], (long long)median_of(c, p));
    (void)buf_addf(out, ",\"measured\":%u", c->n);
    if (c->n)
        last_json(&c->recent[(c->n - 1) % COSTS_KEPT], out);
    (void)buf_addc(out, '}');
}
