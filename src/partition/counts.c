/* SPDX-License-Identifier: Apache-2.0 */
/* Finds nodes for the wanted number of containers of each job: first jobs shrink, then, one after
 * the other, jobs grow or start. */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "partition/part_int.h"

struct plan {
    const struct part_cluster *c;
    const struct part_job *jobs;
    struct part_decision *out;
    const uint32_t *caps, *want;
    struct part_place *kept; /* the places of all jobs after give_back() */
    uint32_t *n_kept;
    enum part_because because; /* the reason for jobs that get the wanted number */
    struct part_room room;
};

/* Each job returns the containers that it has beyond its wanted number, those on the highest nodes
 * first. */
static void give_back(struct plan *p, size_t n)
{
    struct part_place *kept = p->kept;
    for (size_t i = 0; i < n; i++) {
        const struct part_job *job = &p->jobs[i];
        uint32_t count = part_count(job);
        uint32_t left = MIN(count, p->want[i]);
        p->n_kept[i] = 0;
        for (uint32_t a = 0; a < job->n_at && left > 0; a++) {
            uint32_t here = MIN(left, job->at[a].n);
            kept[p->n_kept[i]++] = (struct part_place){ job->at[a].node, here };
            left -= here;
        }
        kept += p->n_kept[i];
    }
}

static void explain(struct plan *p, size_t i)
{
    const struct part_share *got = &p->out->jobs[i];
    enum part_because because = p->because;
    if (p->jobs[i].pinned)
        because = PART_BECAUSE_PINNED;
    else if (got->n < p->jobs[i].min)
        because = PART_BECAUSE_FULL;
    else if (got->n == p->jobs[i].max)
        because = PART_BECAUSE_AT_MAX;
    else if (got->n < p->want[i])
        because = PART_BECAUSE_ROOM;
    part_say(p->out, i, because, PART_NOBODY);
}

/* Let job i grow or start. If not even its min fits, the job gives back all containers. */
static int grow(struct plan *p, size_t i, const struct part_place *kept)
{
    const struct part_job *job = &p->jobs[i];
    uint32_t has = 0, n_at;
    for (uint32_t a = 0; a < p->n_kept[i]; a++)
        has += kept[a].n;
    uint32_t more = part_room_find(&p->room, &job->demand, p->want[i] - has);
    if (has + more < job->min) {
        part_room_return(&p->room, &job->demand, kept, p->n_kept[i]);
        part_give(p->out, p->jobs, i, NULL, 0);
        return 0;
    }
    part_room_take(&p->room, &job->demand, p->room.got, p->room.n_got);
    const struct part_place *at = part_room_places(&p->room, kept, p->n_kept[i], &n_at);
    if (!at)
        return -ENOMEM;
    part_give(p->out, p->jobs, i, at, n_at);
    return 0;
}

int part_apply(const struct part_cluster *c, const struct part_job *jobs, size_t n,
               const uint32_t *caps, const uint32_t *want, enum part_because because,
               struct part_decision *out)
{
    size_t n_places = 0;
    for (size_t i = 0; i < n; i++)
        n_places += jobs[i].n_at;
    struct plan p = {
        .c = c, .jobs = jobs, .out = out, .caps = caps, .want = want, .because = because
    };
    p.n_kept = part_alloc(out, n * sizeof *p.n_kept + 1);
    p.kept = part_alloc(out, n_places * sizeof *p.kept + 1);
    struct part_amount *free = part_free_now(c, jobs, 0, out);
    if (!p.n_kept || !p.kept || !free)
        return -ENOMEM;
    give_back(&p, n);

    const struct part_place *kept = p.kept;
    for (size_t i = 0; i < n; kept += p.n_kept[i], i++)
        for (uint32_t a = 0; a < p.n_kept[i]; a++)
            part_take(&free[kept[a].node], &jobs[i].demand, c->n_types, kept[a].n, -1);
    int rc = part_room_init(&p.room, c, free, out);
    kept = p.kept;
    for (size_t i = 0; rc == 0 && i < n; kept += p.n_kept[i], i++) {
        if (caps[i] < jobs[i].min) {
            part_never(out, jobs, i);
            continue;
        }
        rc = grow(&p, i, kept);
        explain(&p, i);
    }
    return rc;
}

static size_t count_running(const struct part_decision *out)
{
    size_t n = 0;
    for (size_t i = 0; i < out->n; i++)
        n += out->jobs[i].n > 0;
    return n;
}

int part_give_counts(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                     const uint32_t *caps, part_count_fn *count, void *ctx,
                     enum part_because because, bool repack, bool divide_again,
                     struct part_decision *out)
{
    uint32_t *want = part_alloc(out, n * sizeof *want + 1);
    uint32_t *possible = part_alloc(out, n * sizeof *possible + 1);
    struct part_share *before = part_alloc(out, n * sizeof *before + 1);
    if (!want || !possible || !before)
        return -ENOMEM;
    size_t n_running = 0;
    const uint32_t *now = caps; /* then: 0 for the jobs that were left out */
    for (unsigned round = 0; round < 2; round++, now = possible) {
        int rc = count(ctx, now, want);
        if (rc == 0)
            rc = part_apply(c, jobs, n, caps, want, because, out);
        if (rc == 0 && repack)
            rc = part_repack(c, jobs, n, caps, want, out);
        if (rc < 0)
            return rc;
        if (round > 0 || !divide_again || !part_leaves_out(jobs, n, caps, want, out, possible))
            break;
        n_running = count_running(out);
        memcpy(before, out->jobs, n * sizeof *before);
    }
    if (count_running(out) < n_running)
        memcpy(out->jobs, before, n * sizeof *before);
    return 0;
}
