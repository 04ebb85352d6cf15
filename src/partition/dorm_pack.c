/* SPDX-License-Identifier: Apache-2.0 */
#include "partition/dorm_pack.h"

#include "base/util.h"

static bool pack_job(struct pack *k, uint32_t t, uint32_t detours);

/* The job that is placed as the t-th. */
static uint32_t job_at(const struct pack *k, uint32_t t)
{
    return k->by_size ? k->big_first[t] : t;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

/* A hash of the rest of the search: the jobs from t on, the free amounts and the detours. Two
 * different rests get the same hash with a probability of 2^-64. If no running job is left, or if
 * containers may be on any node, the order of the nodes does not matter. */
static uint64_t task_number(const struct pack *k, uint32_t t, uint32_t detours)
{
    bool ordered = t < k->n_running && detours < PART_CONTAINERS_MAX;
    uint64_t sum = 0, jobs = mix(mix(1, t), ordered ? detours : UINT64_MAX);
    for (uint32_t j = 0; j < k->n_nodes; j++) {
        uint64_t h = mix(1, ordered ? j + 1 : 0); /* node 1 with 5 free is not node 2 with 6 free */
        for (uint32_t a = 0; a < k->m; a++)
            h = mix(h, (uint64_t)k->free[j][a]);
        sum += mix(h, 1);
    }
    for (uint32_t c = t; c < k->n_jobs; c++)
        jobs = mix(mix(jobs, k->jobs[job_at(k, c)]->index), k->n[job_at(k, c)]);
    return mix(sum, jobs) | 1;
}

/* Does a quick check show that one of the jobs from t on does not fit? */
static bool hopeless(const struct pack *k, uint32_t t)
{
    int64_t left[PART_TYPES_MAX] = { 0 };
    for (uint32_t j = 0; j < k->n_nodes; j++)
        for (uint32_t a = 0; a < k->m; a++)
            left[a] += k->free[j][a];
    for (uint32_t c = t; c < k->n_jobs; c++) {
        uint32_t i = job_at(k, c);
        uint64_t fit = 0;
        for (uint32_t j = 0; j < k->n_nodes && fit < k->n[i]; j++)
            fit += dorm_fit(k->free[j], k->jobs[i]->d, k->m);
        if (fit < k->n[i])
            return true;
        for (uint32_t a = 0; a < k->m; a++) {
            left[a] -= k->jobs[i]->d[a] * k->n[i];
            if (left[a] < 0)
                return true;
        }
    }
    return false;
}

static bool equal_nodes(const struct pack *k, uint32_t t, uint32_t detours, uint32_t v, uint32_t w)
{
    for (uint32_t a = 0; a < k->m; a++)
        if (k->free[v][a] != k->free[w][a])
            return false;
    if (detours < PART_CONTAINERS_MAX)
        for (uint32_t i = t; i < k->n_running; i++)
            if (k->was[i][v] != k->was[i][w])
                return false;
    return true;
}

/* The state while the containers of one job are distributed over the nodes. */
struct spread {
    uint32_t t, job, detours;
    uint32_t fit[PACK_NODES_MAX], rest[PACK_NODES_MAX + 1]; /* rest: fits on the nodes from j on */
    int like[PACK_NODES_MAX]; /* an earlier node that is equal, or DORM_NONE */
};

static bool spread(struct pack *k, const struct spread *s, uint32_t j, uint32_t n, uint32_t spent)
{
    if (n == 0 && (s->t >= k->n_running || s->detours >= PART_CONTAINERS_MAX)) {
        for (; j < k->n_nodes; j++)
            k->x[s->job][j] = 0;
        return pack_job(k, s->t + 1, s->detours);
    }
    if (j == k->n_nodes)
        return n == 0 && pack_job(k, s->t + 1, s->detours - spent);
    if (!dorm_work(k->work, 2) || k->work->steps >= k->end) {
        k->cut = true;
        return false;
    }
    const struct dorm_job *job = k->jobs[s->job];
    uint32_t most = MIN(n, s->fit[j]), was = k->was[s->job][j];
    if (s->like[j] != DORM_NONE)
        most = MIN(most, k->x[s->job][s->like[j]]);
    uint32_t least = n > s->rest[j + 1] ? n - s->rest[j + 1] : 0;
    bool grows = k->n[s->job] >= job->now,
         bounded = s->t < k->n_running && s->detours < PART_CONTAINERS_MAX;
    for (uint32_t x = most + 1; x-- > least;) {
        uint32_t detour = !bounded ? 0 : grows ? (was > x ? was - x : 0) : (x > was ? x - was : 0);
        if (spent + detour > s->detours) {
            if (grows)
                break; /* with fewer containers here, more containers have to move */
            continue;
        }
        for (uint32_t a = 0; a < k->m; a++)
            k->free[j][a] -= job->d[a] * x;
        k->x[s->job][j] = x;
        bool found = spread(k, s, j + 1, n - x, spent + detour);
        for (uint32_t a = 0; a < k->m; a++)
            k->free[j][a] += job->d[a] * x;
        if (found || k->cut)
            return found;
    }
    return false;
}

static bool pack_job(struct pack *k, uint32_t t, uint32_t detours)
{
    if (t == k->n_jobs)
        return true;
    if (t >= k->n_running)
        detours = PART_CONTAINERS_MAX;
    if (!dorm_work(k->work, (uint64_t)k->n_nodes * (k->n_jobs - t)))
        return false;
    uint64_t number = task_number(k, t, detours);
    uint64_t *dead = &k->dead[number >> 20 & (PACK_MEMORY - 1)];
    if (*dead == number)
        return false;
    if (hopeless(k, t))
        return false;
    struct spread s; /* not initialized as a whole, because it is large */
    s.t = t;
    s.job = job_at(k, t);
    s.detours = detours;
    s.rest[k->n_nodes] = 0;
    for (uint32_t j = k->n_nodes; j-- > 0;) {
        s.fit[j] = dorm_fit(k->free[j], k->jobs[s.job]->d, k->m);
        s.rest[j] = s.rest[j + 1] + MIN(s.fit[j], k->n[s.job]);
        s.like[j] = DORM_NONE;
        for (uint32_t w = j; w-- > 0 && s.like[j] == DORM_NONE;)
            if (equal_nodes(k, t, detours, w, j))
                s.like[j] = (int)w;
    }
    if (spread(k, &s, 0, k->n[s.job], 0))
        return true;
    if (!k->cut)
        *dead = number;
    return false;
}

bool pack_fits(struct pack *k, uint32_t detours)
{
    k->by_size = detours >= PART_CONTAINERS_MAX;
    return pack_job(k, 0, MIN(detours, (uint32_t)PART_CONTAINERS_MAX));
}
