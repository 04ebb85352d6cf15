/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler demands that the job shrinks, or offers it containers to grow: the size that
 * follows from that, the demand that is kept while the gang forms, and the bounds that the
 * scheduler is told. resize.c carries the resize out.
 */
#include "job/resize.h"

#include <errno.h>
#include <stdlib.h>

#include "job/job_int.h"

/* ---- the bounds ---- */

/* May the scheduler change the number of instances of this role? */
static bool is_resizable(const struct job *j, uint32_t role)
{
    const struct role *r = &j->roles[role];

    return r->n && !r->n_settled && !r->stopped && !job_is_sidecar(j, role) &&
           role_spec_resize(j->spec, job_role_spec(j, role)) != RESIZE_NEVER;
}

/*
 * The number of instances by which the scheduler may make the role grow, or shrink, from n
 * instances. It may shrink a role to min_instances. It may grow a role to max_instances; if the
 * user has set no maximum, not at all.
 */
static uint32_t room_of(const struct job *j, uint32_t role, uint32_t n, bool grow)
{
    const struct role_spec *spec = job_role_spec(j, role);
    int64_t room = grow ? spec->max_instances - (int64_t)n
                        : (int64_t)n - (int64_t)MAX(spec->min_instances, 1u);

    return room > 0 && is_resizable(j, role) ? (uint32_t)MIN(room, (int64_t)UINT32_MAX) : 0;
}

/* Do the caps on totals allow one more instance of the role than z->asked has? */
static bool caps_allow_one_more(const struct job *j, uint32_t role)
{
    uint32_t *asked = j->resize.asked;
    bool allowed;

    asked[role]++;
    allowed = job_spec_in_caps(j->spec, asked);
    asked[role]--;
    return allowed;
}

/* The roles that get, or give, the next instances: those with the largest room_of(). */
struct roomiest {
    uint32_t n;         /* how many; 0 = no role has room */
    uint32_t first;     /* the first of them */
    uint32_t room;      /* of each; z->room of these roles has this value */
    uint32_t next_room; /* the largest room of the other roles; 0 = they have none */
};

/* Also sets z->room: the room of each role; 0 if the caps do not allow one instance more. */
static struct roomiest find_roomiest(const struct job *j, bool grow)
{
    struct roomiest best = { 0 };

    for (uint32_t r = 0; r < j->n_roles; r++) {
        uint32_t room = room_of(j, r, j->resize.asked[r], grow);
        if (room > 0 && grow && !caps_allow_one_more(j, r))
            room = 0;
        j->resize.room[r] = room;
        if (room > best.room)
            best = (struct roomiest){ .n = 1, .first = r, .room = room, .next_room = best.room };
        else if (room > 0 && room == best.room)
            best.n++;
        else
            best.next_room = MAX(best.next_room, room);
    }
    return best;
}

/* Change z->asked of each of these roles by `by`, modulo 2^32. */
static void change_roomiest(const struct job *j, const struct roomiest *best, uint32_t by)
{
    const struct resize *z = &j->resize;

    for (uint32_t r = best->first; r < j->n_roles; r++)
        if (z->room[r] == best->room)
            z->asked[r] += by;
}

/* Do the caps on totals allow that each of these roles grows by `by`? */
static bool caps_allow_all(const struct job *j, const struct roomiest *best, uint32_t by)
{
    change_roomiest(j, best, by);
    bool allowed = job_spec_in_caps(j->spec, j->resize.asked);
    change_roomiest(j, best, -by);
    return allowed;
}

/*
 * How often these roles may take one instance each, in turn, before another role is as roomy or the
 * size is reached. missing: the instances that the size still needs. If the caps allow a size, they
 * allow all smaller ones, so the number is found by halving.
 */
static uint32_t count_rounds(const struct job *j, const struct roomiest *best, bool grow,
                             uint32_t missing)
{
    uint32_t from = 0, to = MIN(best->room - best->next_room, missing / best->n);

    if (!grow || to == 0 || caps_allow_all(j, best, to))
        return to;
    while (to - from > 1) { /* the caps allow `from` rounds, and not `to` */
        uint32_t middle = from + (to - from) / 2;
        if (caps_allow_all(j, best, middle))
            from = middle;
        else
            to = middle;
    }
    return from;
}

/*
 * Set z->asked to the size that has n_containers, or as near to that as the rules allow. Returns
 * the number of containers of that size. The role with the largest room_of() gets, or gives, the
 * next instance. Many instances are changed at once, so the cost depends on the number of roles
 * only.
 */
static uint32_t ask_for(const struct job *j, uint32_t n_containers, bool grow)
{
    const struct resize *z = &j->resize;
    uint32_t n;

    memcpy(z->asked, z->target, j->n_roles * sizeof *z->asked);
    n = resize_count_containers(j, z->asked);
    while (grow ? n < n_containers : n > n_containers) {
        struct roomiest best = find_roomiest(j, grow);
        if (best.n == 0)
            break;
        uint32_t missing = grow ? n_containers - n : n - n_containers;
        uint32_t rounds = count_rounds(j, &best, grow, missing);
        if (rounds > 0) {
            change_roomiest(j, &best, grow ? rounds : -rounds);
            n = grow ? n + rounds * best.n : n - rounds * best.n;
        } else { /* not all of these roles can change: the first one does */
            z->asked[best.first] += grow ? 1u : -1u;
            n += grow ? 1u : -1u;
        }
    }
    return n;
}

/* The number of containers to which the scheduler may make the job grow. This is the sum over the
 * roles, unless the caps on totals forbid that sum: then ask_for() finds the number. */
static uint32_t most_containers(const struct job *j)
{
    const struct resize *z = &j->resize;
    uint64_t n = resize_count_containers(j, z->target);

    if (j->spec->single_node)
        return (uint32_t)n;
    for (uint32_t r = 0; r < j->n_roles; r++) {
        uint32_t room = room_of(j, r, z->target[r], true);
        z->asked[r] = z->target[r] + room;
        n += room;
    }
    return n <= UINT32_MAX && job_spec_in_caps(j->spec, z->asked) ? (uint32_t)n
                                                                  : ask_for(j, UINT32_MAX, true);
}

static void compute_bounds(const struct job *j, uint32_t *out_min, uint32_t *out_max)
{
    const struct resize *z = &j->resize;

    *out_min = *out_max = resize_count_containers(j, z->target);
    if (j->decided)
        return;
    for (uint32_t r = 0; r < j->n_roles; r++)
        *out_min -= room_of(j, r, z->target[r], false);
    if (z->state != RESIZE_FORMING)
        *out_max = most_containers(j);
}

void job_bounds(struct job *j, uint32_t *out_min, uint32_t *out_max)
{
    struct bounds *b = &j->resize.bounds;
    uint32_t for_job = 1u + (j->decided ? 2u : 0u) + (j->resize.state == RESIZE_FORMING ? 4u : 0u);
    bool same = b->for_job == for_job;

    b->for_job = for_job;
    for (uint32_t r = 0; r < j->n_roles; r++) {
        uint32_t for_role = 2 * j->resize.target[r] + is_resizable(j, r);
        same &= b->for_role[r] == for_role;
        b->for_role[r] = for_role;
    }
    if (!same)
        compute_bounds(j, &b->min, &b->max);
    *out_min = b->min;
    *out_max = b->max;
}

static bool asks_for_change(const struct job *j)
{
    const struct resize *z = &j->resize;

    return memcmp(z->asked, z->target, j->n_roles * sizeof *z->asked) != 0;
}

/* Store for the resize that has just begun: its author, and when the scheduler takes containers. n:
 * the number of containers that z->asked has. */
static void note_scheduler(struct job *j, const struct ev_shrink *d, uint32_t n,
                           int64_t save_due_ms)
{
    struct resize *z = &j->resize;
    const struct job_checkpoints *c = &j->checkpoints;

    free(z->who);
    free(z->why);
    z->who = str_dup("the scheduler"); /* without memory, people see no name */
    z->why = str_dup(d->why);
    z->leave = d->leave ? str_dup(d->leave) : NULL; /* without memory, the highest indices leave */
    z->save_due_ms = save_due_ms;
    z->below = n > d->n_containers ? d->n_containers + 1 : 0;
    z->saved = d->saved;
    z->saved_generation = c->has ? c->generation : 0;
    z->saved_step = c->has ? c->step : 0;
}

void resize_forget_kept(struct job *j)
{
    free(j->resize.kept.why);
    j->resize.kept = (struct kept_shrink){ 0 };
}

/* A demand to shrink has come while the gang forms anew. Keep it until the gang has formed. */
static int keep_shrink(struct job *j, const struct ev_shrink *d)
{
    struct resize *z = &j->resize;
    char *copy = str_dup(d->why); /* without memory, people see no reason */

    resize_forget_kept(j);
    z->kept = (struct kept_shrink){ .set = true,
                                    .n_containers = d->n_containers,
                                    .saved = d->saved,
                                    .due_ms = d->within_ms > 0 ? j->now_ms + d->within_ms : 0,
                                    .why = copy };
    (void)job_act(j, ACT_SYNC);
    return 0;
}

bool resize_begin_kept(struct job *j)
{
    struct resize *z = &j->resize;
    struct kept_shrink kept = z->kept;

    if (!kept.set || z->state != RESIZE_STEADY)
        return false;
    z->kept = (struct kept_shrink){ 0 };
    uint32_t n = ask_for(j, kept.n_containers, false);
    bool begins = !j->decided && asks_for_change(j);
    if (j->decisions.replaying) {
        begins = decisions_resize(j) && resize_parse_targets(j, NULL, NULL) == 0;
        for (uint32_t r = 0; r < j->n_roles; r++) /* a damaged journal may ask for more slots */
            z->asked[r] = MIN(z->asked[r], j->roles[r].n);
        n = resize_count_containers(j, z->asked);
    }
    if (begins) {
        int64_t left_ms = kept.due_ms ? MAX(kept.due_ms - j->now_ms, (int64_t)1) : 0;
        struct ev_shrink d = { .n_containers = kept.n_containers,
                               .why = kept.why,
                               .saved = kept.saved };
        resize_start(j, kept.saved ? left_ms : 0);
        note_scheduler(j, &d, n, kept.saved ? 0 : kept.due_ms);
    }
    free(kept.why);
    return begins;
}

int resize_by_scheduler(struct job *j, const struct ev_shrink *d, bool grow, struct err *e)
{
    struct resize *z = &j->resize;
    bool decided = decisions_resize(j) != NULL, takes = !grow && !d->saved && d->within_ms > 0;
    uint32_t n = ask_for(j, d->n_containers, grow);

    if (j->decided && !decided)
        return resize_refuse_ending(e);
    if (grow && z->state == RESIZE_FORMING && z->kept.set &&
        d->n_containers > z->kept.n_containers) {
        z->kept.n_containers = d->n_containers; /* the scheduler wants back fewer than before */
        return 0;
    }
    /* In a replay, the rules of this version must not decide whether the demand is kept: it was
     * kept when it was recorded. A newer demand replaces the kept one also if it allows the size to
     * which the job changes. */
    if (!grow && z->state == RESIZE_FORMING && !decided &&
        (j->decisions.replaying || z->kept.set || asks_for_change(j)))
        return keep_shrink(j, d);
    if (!decided && !grow && n > d->n_containers && !asks_for_change(j))
        return job_refuse(e, ERANGE, "this job cannot run with fewer than %u containers", n);
    int rc = decided ? resize_parse_targets(j, NULL, e) : resize_check_asked(j, e);
    if (rc && decided)
        return resize_decision_damaged(e);
    if (rc == 0)
        rc = resize_begin(j, grow || d->saved ? d->within_ms : 0, e);
    if (rc)
        return rc;
    note_scheduler(j, d, grow ? d->n_containers : resize_count_containers(j, z->target),
                   takes ? j->now_ms + d->within_ms : 0);
    return 0;
}
