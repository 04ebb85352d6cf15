/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds other places for the counts of part_apply(), if a job must wait although its count fits
 * into the pooled capacity.
 *
 * First fit looks at one job after the other. So it may leave some free room on each node, none of
 * which is large enough for a container of the job that waits. part_repack() places all containers
 * again, those of jobs with the largest containers first. A container
 *
 *   1. stays on its node if there is still room for it,
 *   2. else goes to a node whose room no job holds now,
 *   3. else goes to a node on which a job with smaller containers then has to give way.
 *
 * First it tries to keep all counts. If that fails, each job gets its least number first, then as
 * many as fit. The new places count only if more jobs run with them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "partition/part_int.h"

struct repack {
    const struct part_cluster *c;
    const struct part_job *jobs;
    struct part_decision *out;
    const uint32_t *caps, *want;
    size_t n;

    double *sizes;   /* of each job: the dominant share of one container */
    uint32_t *order; /* the jobs, those with the largest containers first */
    /* By node: the capacity that the containers placed so far leave ... */
    struct part_amount *room;
    /* ... and the part of it that no other job holds now; may be < 0. */
    struct part_amount *unused;
    struct part_place **places; /* of each job: the new places */
    uint32_t *n_places, *got;
    uint32_t *here; /* by node: containers of the job that is being placed */
};

/* Should the job run, but has got no containers? */
static bool is_left_out(const struct repack *r, size_t i)
{
    return r->caps[i] >= r->jobs[i].min && r->want[i] >= r->jobs[i].min && r->out->jobs[i].n == 0;
}

static int by_size(const void *a, const void *b, void *arg)
{
    const struct repack *r = arg;
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    if (r->jobs[i].pinned != r->jobs[k].pinned)
        return r->jobs[i].pinned ? -1 : 1;
    if (r->sizes[i] < r->sizes[k] || r->sizes[k] < r->sizes[i])
        return r->sizes[i] > r->sizes[k] ? -1 : 1;
    return i < k ? -1 : i > k;
}

static int prepare(struct repack *r)
{
    struct part_amount total;
    r->sizes = part_alloc(r->out, r->n * sizeof *r->sizes + 1);
    r->order = part_alloc(r->out, r->n * sizeof *r->order + 1);
    r->places = part_alloc(r->out, r->n * sizeof(struct part_place *) + 1);
    r->n_places = part_alloc(r->out, r->n * sizeof *r->n_places + 1);
    r->got = part_alloc(r->out, r->n * sizeof *r->got + 1);
    r->here = part_alloc(r->out, r->c->n_nodes * sizeof *r->here + 1);
    if (!r->sizes || !r->order || !r->places || !r->n_places || !r->got || !r->here)
        return -ENOMEM;
    part_total(r->c, &total);
    for (size_t i = 0; i < r->n; i++) {
        r->sizes[i] = part_share_of_one(&r->jobs[i].demand, &total, r->c->n_types);
        r->order[i] = (uint32_t)i;
    }
    qsort_r(r->order, r->n, sizeof *r->order, by_size, r);
    return 0;
}

/* Forget all places that were found. */
static int start_over(struct repack *r)
{
    r->room = part_free_now(r->c, r->jobs, 0, r->out);
    r->unused = part_free_now(r->c, r->jobs, r->n, r->out);
    if (!r->room || !r->unused)
        return -ENOMEM;
    for (size_t i = 0; i < r->n; i++) {
        r->places[i] = NULL;
        r->n_places[i] = r->got[i] = 0;
    }
    return 0;
}

/* Give job i containers on the node until it has `want`, as far as they fit into `free` and into
 * the capacity that is left. */
static void take(struct repack *r, size_t i, const struct part_amount *free, uint32_t node,
                 uint32_t want)
{
    const struct part_amount *demand = &r->jobs[i].demand;
    uint32_t n = MIN(want - r->got[i], part_fit(&r->room[node], demand, r->c->n_types));
    n = MIN(n, part_fit(&free[node], demand, r->c->n_types));
    r->here[node] += n;
    r->got[i] += n;
    part_take(&r->room[node], demand, r->c->n_types, n, -1);
    part_take(&r->unused[node], demand, r->c->n_types, n, -1);
}

/* Copy r->here into the list of the job's places. */
static int keep_places(struct repack *r, size_t i)
{
    uint32_t n = 0;
    for (uint32_t j = 0; j < r->c->n_nodes; j++)
        n += r->here[j] > 0;
    r->n_places[i] = 0;
    r->places[i] = part_alloc(r->out, n * sizeof *r->places[i] + 1);
    if (!r->places[i])
        return -ENOMEM;
    for (uint32_t j = 0; j < r->c->n_nodes; j++)
        if (r->here[j] > 0)
            r->places[i][r->n_places[i]++] = (struct part_place){ j, r->here[j] };
    return 0;
}

/* Place containers of job i until it has `want`, or no more fit. */
static int place_job(struct repack *r, size_t i, uint32_t want)
{
    const struct part_job *job = &r->jobs[i];
    if (r->c->n_nodes)
        memset(r->here, 0, r->c->n_nodes * sizeof *r->here);
    for (uint32_t p = 0; p < r->n_places[i]; p++)
        r->here[r->places[i][p].node] = r->places[i][p].n;
    if (r->got[i] == 0) /* its present containers are no longer those of another job */
        for (uint32_t a = 0; a < job->n_at; a++)
            part_take(&r->unused[job->at[a].node], &job->demand, r->c->n_types, job->at[a].n, 1);
    for (uint32_t a = 0; a < job->n_at && r->got[i] < want; a++) {
        uint32_t node = job->at[a].node, stay = job->at[a].n - MIN(job->at[a].n, r->here[node]);
        take(r, i, r->room, node, MIN(want, r->got[i] + stay));
    }
    for (uint32_t j = 0; j < r->c->n_nodes && r->got[i] < want; j++)
        take(r, i, r->unused, j, want);
    for (uint32_t j = 0; j < r->c->n_nodes && r->got[i] < want; j++)
        take(r, i, r->room, j, want);
    return keep_places(r, i);
}

/* The count that the job should get. only: of the jobs that were left out, try only this one;
 * PART_NOBODY: all. */
static uint32_t wanted(const struct repack *r, size_t i, uint32_t only)
{
    if (!is_left_out(r, i))
        return r->out->jobs[i].n;
    return only == PART_NOBODY || only == i ? r->want[i] : 0;
}

/* 1: all jobs are placed, with their whole counts, or (mins_first) with at least their min. */
static int place_all(struct repack *r, uint32_t only, bool mins_first)
{
    int rc = start_over(r);
    for (int pass = mins_first ? 0 : 1; pass < 2 && rc == 0; pass++)
        for (size_t k = 0; k < r->n && rc == 0; k++) {
            size_t i = r->order[k];
            uint32_t want = wanted(r, i, only), min = r->jobs[i].pinned ? want : r->jobs[i].min;
            rc = place_job(r, i, pass == 0 ? MIN(want, min) : want);
            if (rc == 0 && r->got[i] < (mins_first ? MIN(want, min) : want))
                return 0;
        }
    return rc < 0 ? rc : 1;
}

static void adopt(struct repack *r, uint32_t only)
{
    for (size_t i = 0; i < r->n; i++) {
        bool starts = is_left_out(r, i) && r->got[i] > 0;
        uint32_t want = wanted(r, i, only);
        enum part_because because = r->out->jobs[i].because;
        part_give(r->out, r->jobs, i, r->places[i], r->n_places[i]);
        if (starts || r->got[i] < want)
            because = r->got[i] == r->jobs[i].max ? PART_BECAUSE_AT_MAX : PART_BECAUSE_ROOM;
        part_say(r->out, i, because, PART_NOBODY);
    }
}

int part_repack(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                const uint32_t *caps, const uint32_t *want, struct part_decision *out)
{
    struct repack r = { .c = c, .jobs = jobs, .out = out, .caps = caps, .want = want, .n = n };
    uint32_t first = PART_NOBODY, n_left_out = 0;
    for (size_t i = n; i-- > 0;)
        if (is_left_out(&r, i)) {
            first = (uint32_t)i;
            n_left_out++;
        }
    if (n_left_out == 0)
        return 0;
    int rc = prepare(&r);
    for (int mins_first = 0; mins_first < 2 && rc == 0; mins_first++)
        for (int all = n_left_out > 1; all >= 0 && rc == 0; all--) {
            uint32_t only = all ? PART_NOBODY : first;
            rc = place_all(&r, only, mins_first);
            if (rc == 1)
                adopt(&r, only);
        }
    return MIN(rc, 0);
}

bool part_leaves_out(const struct part_job *jobs, size_t n, const uint32_t *caps,
                     const uint32_t *want, struct part_decision *out, uint32_t *possible)
{
    const struct repack r = { .jobs = jobs, .out = out, .caps = caps, .want = want };
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        bool left_out = is_left_out(&r, i);
        possible[i] = left_out ? 0 : caps[i];
        any |= left_out;
    }
    return any;
}
