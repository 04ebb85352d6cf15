/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies that never change a job once it runs: static, and fifo (also called backfill).
 *
 * static: the jobs that wait form a queue, by priority, then by arrival. Each starts with its fixed
 * number of containers by first fit. The first job that does not fit is the head: it blocks the
 * others.
 *
 * fifo: other jobs may start before the head ("EASY backfilling", Lifka 1995). The shadow is the
 * time at which the head will fit: running jobs end one after the other, at times that are known.
 * The places that the head will then get are reserved. A job behind the head starts if it fits now
 * and either ends by the shadow or uses no reserved place. If the end of a running job is unknown,
 * no job starts before the head. A job whose own run time is unknown never starts before the head.
 *
 * A queue can have many thousands of jobs at each decision. So the code must reject a job that does
 * not fit without reading the nodes: by the bounds in struct part_room, or because a job with the
 * same demand did not fit earlier in this decision.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "partition/part_int.h"

enum { MEMO_SIZE = 512 };

/* The known facts about all jobs whose containers have the same demand. */
struct memo {
    struct part_amount demand;
    uint32_t fits;      /* no more than this many containers fit now */
    uint32_t ever;      /* this many containers fit into the empty cluster */
    uint32_t reserved;  /* this many containers, or more, need a reserved place; valid only ... */
    uint32_t at_starts; /* ... while queue.starts has this value */
    bool known;
};

struct queue {
    const struct part_cluster *c;
    const struct part_job *jobs;
    size_t n;
    struct part_decision *out;
    struct part_room room;
    struct part_classes classes;
    uint32_t *waiting; /* jobs, in the order of the queue */
    size_t n_waiting;
    struct memo *memo; /* MEMO_SIZE entries; a newer demand replaces an older one */
    uint32_t starts;   /* jobs that have started */
};

static struct memo *memo_of(struct queue *q, const struct part_amount *demand)
{
    uint64_t hash = 0;
    for (uint32_t k = 0; k < q->c->n_types; k++)
        hash = (hash ^ (uint64_t)demand->v[k]) * UINT64_C(0x9E3779B97F4A7C15);
    struct memo *m = &q->memo[(hash >> 40) % MEMO_SIZE];
    if (!m->known || !part_equal(&m->demand, demand, q->c->n_types)) {
        uint32_t ever = part_classes_fit(&q->classes, demand, PART_CONTAINERS_MAX);
        *m = (struct memo){
            .demand = *demand, .fits = ever, .ever = ever, .reserved = UINT32_MAX, .known = true
        };
    }
    return m;
}

static int compare(const void *a, const void *b, void *ctx)
{
    const struct part_job *jobs = ctx;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (jobs[x].priority != jobs[y].priority)
        return jobs[x].priority > jobs[y].priority ? -1 : 1;
    return x < y ? -1 : 1;
}

static int queue_init(struct queue *q, const struct part_cluster *c, const struct part_job *jobs,
                      size_t n, struct part_decision *out)
{
    *q = (struct queue){ .c = c, .jobs = jobs, .n = n, .out = out };
    struct part_amount *free = part_free_now(c, jobs, n, out);
    q->waiting = part_alloc(out, n * sizeof *q->waiting + 1);
    q->memo = part_alloc(out, MEMO_SIZE * sizeof *q->memo);
    if (!free || !q->waiting || !q->memo)
        return -ENOMEM;
    for (size_t i = 0; i < MEMO_SIZE; i++)
        q->memo[i].known = false;
    part_classes(c, &q->classes);
    bool sorted = true;
    for (size_t i = 0; i < n; i++) {
        if (jobs[i].n_at > 0) {
            part_keep(out, jobs, i, PART_BECAUSE_FIXED);
            continue;
        }
        out->jobs[i].verdict = PART_WAITS; /* the rest is zero, as in part_give() without places */
        if (q->n_waiting > 0)
            sorted &= jobs[q->waiting[q->n_waiting - 1]].priority >= jobs[i].priority;
        q->waiting[q->n_waiting++] = (uint32_t)i;
    }
    if (!sorted)
        qsort_r(q->waiting, q->n_waiting, sizeof *q->waiting, compare, (void *)(uintptr_t)jobs);
    return part_room_init(&q->room, c, free, out);
}

/* Does the job fit now? If it does, q->room.got has its places. */
static bool find(struct queue *q, struct memo *m, const struct part_job *job)
{
    uint32_t fixed = part_fixed(job);
    if (fixed > m->fits || !part_room_for(&q->room, &job->demand, fixed))
        return false;
    uint32_t found = part_room_find(&q->room, &job->demand, fixed);
    if (found < fixed)
        m->fits = found;
    return found == fixed;
}

/* Start job i on the places in q->room.got. */
static int start(struct queue *q, uint32_t i)
{
    uint32_t n_at;
    const struct part_place *at = part_room_places(&q->room, NULL, 0, &n_at);
    if (!at)
        return -ENOMEM;
    part_room_take(&q->room, &q->jobs[i].demand, at, n_at);
    part_give(q->out, q->jobs, i, at, n_at);
    part_say(q->out, i, PART_BECAUSE_ROOM, PART_NOBODY);
    q->starts++;
    return 0;
}

/* Start jobs in the order of the queue until one does not fit. *out_head is its position in the
 * queue, or q->n_waiting if all jobs have started. */
static int start_strictly(struct queue *q, size_t *out_head)
{
    size_t p;
    for (p = 0; p < q->n_waiting; p++) {
        uint32_t i = q->waiting[p];
        struct memo *m = memo_of(q, &q->jobs[i].demand);
        if (m->ever < part_fixed(&q->jobs[i])) {
            part_never(q->out, q->jobs, i);
            continue;
        }
        if (!find(q, m, &q->jobs[i])) {
            part_say(q->out, i, PART_BECAUSE_FULL, PART_NOBODY);
            break;
        }
        int rc = start(q, i);
        if (rc < 0)
            return rc;
    }
    *out_head = p;
    return 0;
}

/* All jobs behind the head wait. */
static void wait_behind(struct queue *q, size_t head)
{
    for (size_t p = head + 1; p < q->n_waiting; p++) {
        uint32_t i = q->waiting[p];
        if (memo_of(q, &q->jobs[i].demand)->ever < part_fixed(&q->jobs[i]))
            part_never(q->out, q->jobs, i);
        else
            part_say(q->out, i, PART_BECAUSE_BEHIND, q->waiting[head]);
    }
}

int static_decide(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                  const struct part_options *o, struct part_decision *out)
{
    (void)o; /* there is nothing to choose */
    struct queue q;
    size_t head;
    int rc = queue_init(&q, c, jobs, n, out);
    if (rc == 0)
        rc = start_strictly(&q, &head);
    if (rc == 0)
        wait_behind(&q, head);
    return rc;
}

/* ---- backfilling ---- */

/* The time at which a job with containers will end. */
struct end {
    double s;
    uint32_t job;
};

struct ends {
    struct end *v; /* a heap with the earliest end at the top; equal times: in order of arrival */
    size_t n;
};

static bool earlier(const struct end *a, const struct end *b)
{
    return a->s != b->s ? a->s < b->s : a->job < b->job;
}

static void sift_down(struct ends *h, size_t i)
{
    struct end moved = h->v[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= h->n)
            break;
        if (child + 1 < h->n && earlier(&h->v[child + 1], &h->v[child]))
            child++;
        if (!earlier(&h->v[child], &moved))
            break;
        h->v[i] = h->v[child];
        i = child;
    }
    h->v[i] = moved;
}

/* Collect the ends of all jobs with containers. false: the end of one of them is unknown. */
static bool collect_ends(const struct queue *q, struct ends *h)
{
    for (size_t i = 0; i < q->n; i++) {
        if (q->out->jobs[i].n == 0)
            continue;
        double s = q->jobs[i].n_at > 0 ? q->jobs[i].ends_in_s : q->jobs[i].remaining_s;
        if (isinf(s))
            return false;
        h->v[h->n++] = (struct end){ s, (uint32_t)i };
    }
    for (size_t i = h->n / 2; i-- > 0;)
        sift_down(h, i);
    return true;
}

/* Let running jobs end, the earliest first, and return their containers to `then`, until the head
 * fits. Returns the time at which it fits. */
static double find_shadow(struct queue *q, const struct part_job *head, struct ends *h,
                          struct part_room *then)
{
    uint32_t n_types = q->c->n_types;
    uint64_t fits = 0;
    double shadow = INFINITY;
    for (uint32_t j = 0; j < q->c->n_nodes; j++)
        fits += part_fit(&then->free[j], &head->demand, n_types);
    while (h->n > 0 && fits < part_fixed(head)) {
        const struct part_share *s = &q->out->jobs[h->v[0].job];
        const struct part_amount *demand = &q->jobs[h->v[0].job].demand;
        shadow = h->v[0].s;
        h->v[0] = h->v[--h->n];
        if (h->n > 0)
            sift_down(h, 0);
        for (uint32_t p = 0; p < s->n_at; p++) {
            const struct part_amount *free = &then->free[s->at[p].node];
            fits -= part_fit(free, &head->demand, n_types);
            part_room_return(then, demand, &s->at[p], 1);
            fits += part_fit(free, &head->demand, n_types);
        }
    }
    return shadow;
}

/* May the job start on the places in q->room.got? Only if this does not delay the start of the
 * head. */
static bool leaves_head_alone(struct queue *q, struct memo *m, const struct part_job *job,
                              double shadow, struct part_room *then)
{
    if (job->remaining_s <= shadow)
        return true;
    if (!part_room_has(then, &job->demand, q->room.got, q->room.n_got)) {
        m->reserved = part_fixed(job);
        m->at_starts = q->starts;
        return false;
    }
    part_room_take(then, &job->demand, q->room.got, q->room.n_got);
    return true;
}

static int backfill(struct queue *q, size_t head, double shadow, struct part_room *then)
{
    for (size_t p = head + 1; p < q->n_waiting; p++) {
        uint32_t i = q->waiting[p];
        const struct part_job *job = &q->jobs[i];
        struct memo *m = memo_of(q, &job->demand);
        uint32_t fixed = part_fixed(job);
        if (m->ever < fixed) {
            part_never(q->out, q->jobs, i);
        } else if (isinf(job->remaining_s)) {
            part_say(q->out, i, PART_BECAUSE_BEHIND, q->waiting[head]);
        } else if (m->at_starts == q->starts && fixed >= m->reserved && job->remaining_s > shadow) {
            part_say(q->out, i, PART_BECAUSE_RESERVED, q->waiting[head]);
        } else if (!find(q, m, job)) {
            part_say(q->out, i, PART_BECAUSE_FULL, PART_NOBODY);
        } else if (!leaves_head_alone(q, m, job, shadow, then)) {
            part_say(q->out, i, PART_BECAUSE_RESERVED, q->waiting[head]);
        } else {
            int rc = start(q, i);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

int fifo_decide(const struct part_cluster *c, const struct part_job *jobs, size_t n,
                const struct part_options *o, struct part_decision *out)
{
    (void)o; /* there is nothing to choose */
    struct queue q;
    struct part_room then;
    size_t head;
    int rc = queue_init(&q, c, jobs, n, out);
    if (rc == 0)
        rc = start_strictly(&q, &head);
    if (rc < 0 || head == q.n_waiting)
        return rc;

    struct ends ends = { .v = part_alloc(out, n * sizeof *ends.v) };
    struct part_amount *free = part_alloc(out, c->n_nodes * sizeof *free);
    if (!ends.v || !free)
        return -ENOMEM;
    if (!collect_ends(&q, &ends)) {
        wait_behind(&q, head);
        return 0;
    }
    memcpy(free, q.room.free, c->n_nodes * sizeof *free);
    rc = part_room_init(&then, c, free, out);
    if (rc < 0)
        return rc;
    const struct part_job *first = &jobs[q.waiting[head]];
    double shadow = find_shadow(&q, first, &ends, &then);
    part_room_find(&then, &first->demand, part_fixed(first));
    part_room_take(&then, &first->demand, then.got, then.n_got);
    return backfill(&q, head, shadow, &then);
}
