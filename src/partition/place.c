/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "partition/part_int.h"

/* ---- the memory of a decision: chunks that are kept for the next decision ---- */

enum { CHUNK_MIN = 64 << 10, ALIGN = 16 };

struct chunk {
    struct chunk *next;
    size_t size, used; /* of data */
    _Alignas(ALIGN) char data[];
};

struct part_memory {
    struct chunk *chunks; /* the newest first */
};

static struct chunk *chunk_new(size_t size)
{
    struct chunk *ch = malloc(sizeof *ch + size);
    if (ch)
        *ch = (struct chunk){ .size = size };
    return ch;
}

static void chunks_free(struct chunk *ch)
{
    while (ch) {
        struct chunk *next = ch->next;
        free(ch);
        ch = next;
    }
}

void *part_alloc(struct part_decision *out, size_t size)
{
    struct part_memory *m = out->memory;
    if (size > SIZE_MAX / 4)
        return NULL;
    size = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (!m->chunks || m->chunks->size - m->chunks->used < size) {
        size_t doubled = m->chunks ? 2 * m->chunks->size : CHUNK_MIN;
        struct chunk *ch = chunk_new(MAX(size, doubled));
        if (!ch)
            return NULL;
        ch->next = m->chunks;
        m->chunks = ch;
    }
    void *p = m->chunks->data + m->chunks->used;
    m->chunks->used += size;
    return p;
}

int part_begin(struct part_decision *out, size_t n_jobs)
{
    out->jobs = NULL;
    out->n = 0;
    out->metrics = (struct part_metrics){ 0 };
    if (!out->memory && !(out->memory = calloc(1, sizeof *out->memory)))
        return -ENOMEM;

    /* Keep only the newest chunk, which is the largest: at least half of all memory. */
    struct chunk *ch = out->memory->chunks;
    if (ch) {
        chunks_free(ch->next);
        ch->next = NULL;
        ch->used = 0;
    }
    out->jobs = part_alloc(out, n_jobs * sizeof *out->jobs + 1);
    if (!out->jobs)
        return -ENOMEM;
    out->n = n_jobs;
    return 0;
}

void part_decision_done(struct part_decision *d)
{
    if (d->memory)
        chunks_free(d->memory->chunks);
    free(d->memory);
    *d = (struct part_decision){ 0 };
}

/* ---- amounts ---- */

struct part_amount *part_free_now(const struct part_cluster *c, const struct part_job *jobs,
                                  size_t n, struct part_decision *out)
{
    struct part_amount *free = part_alloc(out, c->n_nodes * sizeof *free + 1);
    if (!free)
        return NULL;
    if (c->n_nodes)
        memcpy(free, c->nodes, c->n_nodes * sizeof *free);
    for (size_t i = 0; i < n; i++)
        for (uint32_t p = 0; p < jobs[i].n_at; p++)
            part_take(&free[jobs[i].at[p].node], &jobs[i].demand, c->n_types, jobs[i].at[p].n, -1);
    return free;
}

void part_total(const struct part_cluster *c, struct part_amount *total)
{
    *total = (struct part_amount){ 0 };
    for (uint32_t j = 0; j < c->n_nodes; j++)
        for (uint32_t k = 0; k < c->n_types; k++)
            total->v[k] += c->nodes[j].v[k];
}

double part_share_of_one(const struct part_amount *demand, const struct part_amount *total,
                         uint32_t n_types)
{
    double share = 0;
    for (uint32_t k = 0; k < n_types; k++)
        if (total->v[k] > 0)
            share = MAX(share, (double)demand->v[k] / (double)total->v[k]);
    return share;
}

int part_by_node(const void *a, const void *b)
{
    const struct part_place *x = a, *y = b;
    return x->node < y->node ? -1 : x->node > y->node;
}

uint32_t part_count(const struct part_job *job)
{
    uint32_t n = 0;
    for (uint32_t p = 0; p < job->n_at; p++)
        n += job->at[p].n;
    return n;
}

uint32_t part_fixed(const struct part_job *job)
{
    return job->fixed ? job->fixed : job->min;
}

/* ---- node classes ---- */

void part_classes(const struct part_cluster *c, struct part_classes *out)
{
    uint32_t last = 0;
    out->c = c;
    out->n = 0;
    out->rest = c->n_nodes;
    for (uint32_t j = 0; j < c->n_nodes; j++) {
        if (out->n > 0 && !part_equal(out->capacity[last], &c->nodes[j], c->n_types))
            for (last = 0; last < out->n; last++)
                if (part_equal(out->capacity[last], &c->nodes[j], c->n_types))
                    break;
        if (last == out->n) {
            if (out->n == PART_CLASSES_MAX) {
                out->rest = j;
                return;
            }
            out->capacity[last] = &c->nodes[j];
            out->count[last] = 0;
            out->n++;
        }
        out->count[last]++;
    }
}

uint32_t part_classes_fit(const struct part_classes *cl, const struct part_amount *demand,
                          uint32_t most)
{
    uint64_t fit = 0;
    for (uint32_t g = 0; g < cl->n && fit < most; g++)
        fit += (uint64_t)cl->count[g] * part_fit(cl->capacity[g], demand, cl->c->n_types);
    for (uint32_t j = cl->rest; j < cl->c->n_nodes && fit < most; j++)
        fit += part_fit(&cl->c->nodes[j], demand, cl->c->n_types);
    return (uint32_t)MIN(fit, (uint64_t)most);
}

/* ---- first fit ---- */

/* The exact largest free amounts of a block. */
static void measure_block(struct part_room *r, uint32_t block)
{
    uint32_t end = MIN((block + 1) * PART_ROOM_BLOCK, r->c->n_nodes);
    struct part_amount most = { 0 };
    for (uint32_t j = block * PART_ROOM_BLOCK; j < end; j++)
        for (uint32_t k = 0; k < r->c->n_types; k++)
            most.v[k] = MAX(most.v[k], r->free[j].v[k]);
    r->blocks[block] = most;
}

static void measure_all(struct part_room *r)
{
    r->largest = (struct part_amount){ 0 };
    for (uint32_t b = 0; b < r->n_blocks; b++)
        for (uint32_t k = 0; k < r->c->n_types; k++)
            r->largest.v[k] = MAX(r->largest.v[k], r->blocks[b].v[k]);
}

int part_room_init(struct part_room *r, const struct part_cluster *c, struct part_amount *free,
                   struct part_decision *out)
{
    *r = (struct part_room){ .c = c, .free = free, .out = out };
    r->n_blocks = (c->n_nodes + PART_ROOM_BLOCK - 1) / PART_ROOM_BLOCK;
    r->got = part_alloc(out, c->n_nodes * sizeof *r->got + 1);
    r->blocks = part_alloc(out, r->n_blocks * sizeof *r->blocks + 1);
    if (!r->got || !r->blocks)
        return -ENOMEM;
    struct part_amount total = { 0 };
    for (uint32_t b = 0; b < r->n_blocks; b++) {
        uint32_t end = MIN((b + 1) * PART_ROOM_BLOCK, c->n_nodes);
        struct part_amount most = { 0 };
        for (uint32_t j = b * PART_ROOM_BLOCK; j < end; j++)
            for (uint32_t k = 0; k < c->n_types; k++) {
                total.v[k] += free[j].v[k];
                most.v[k] = MAX(most.v[k], free[j].v[k]);
            }
        r->blocks[b] = most;
    }
    r->total = total;
    measure_all(r);
    return 0;
}

/* Is the demand of one container within these amounts? */
static bool within(const struct part_amount *demand, const struct part_amount *most,
                   uint32_t n_types)
{
    for (uint32_t k = 0; k < n_types; k++)
        if (demand->v[k] > most->v[k] && demand->v[k] > 0)
            return false;
    return true;
}

bool part_room_for(const struct part_room *r, const struct part_amount *demand, uint32_t n)
{
    for (uint32_t k = 0; k < r->c->n_types; k++)
        if (demand->v[k] > 0 &&
            (demand->v[k] > r->largest.v[k] || demand->v[k] * (int64_t)n > r->total.v[k]))
            return false;
    return true;
}

uint32_t part_room_find(struct part_room *r, const struct part_amount *demand, uint32_t n)
{
    uint32_t need = n;
    r->n_got = 0;
    if (!part_room_for(r, demand, 1))
        return 0;
    for (uint32_t b = 0; b < r->n_blocks && need > 0; b++) {
        if (!within(demand, &r->blocks[b], r->c->n_types))
            continue;
        uint32_t end = MIN((b + 1) * PART_ROOM_BLOCK, r->c->n_nodes), before = need;
        for (uint32_t j = b * PART_ROOM_BLOCK; j < end && need > 0; j++) {
            uint32_t fit = MIN(need, part_fit(&r->free[j], demand, r->c->n_types));
            if (fit == 0)
                continue;
            r->got[r->n_got++] = (struct part_place){ j, fit };
            need -= fit;
        }
        if (need == before)
            measure_block(r, b);
    }
    if (need > 0)
        measure_all(r);
    return n - need;
}

void part_room_take(struct part_room *r, const struct part_amount *demand,
                    const struct part_place *at, uint32_t n_at)
{
    for (uint32_t p = 0; p < n_at; p++) {
        part_take(&r->free[at[p].node], demand, r->c->n_types, at[p].n, -1);
        part_take(&r->total, demand, r->c->n_types, at[p].n, -1);
    }
}

void part_room_return(struct part_room *r, const struct part_amount *demand,
                      const struct part_place *at, uint32_t n_at)
{
    for (uint32_t p = 0; p < n_at; p++) {
        struct part_amount *free = &r->free[at[p].node];
        part_take(free, demand, r->c->n_types, at[p].n, 1);
        part_take(&r->total, demand, r->c->n_types, at[p].n, 1);
        struct part_amount *block = &r->blocks[at[p].node / PART_ROOM_BLOCK];
        for (uint32_t k = 0; k < r->c->n_types; k++) {
            block->v[k] = MAX(block->v[k], free->v[k]);
            r->largest.v[k] = MAX(r->largest.v[k], free->v[k]);
        }
    }
}

bool part_room_has(const struct part_room *r, const struct part_amount *demand,
                   const struct part_place *at, uint32_t n_at)
{
    for (uint32_t p = 0; p < n_at; p++)
        for (uint32_t k = 0; k < r->c->n_types; k++)
            if (r->free[at[p].node].v[k] < demand->v[k] * (int64_t)at[p].n)
                return false;
    return true;
}

const struct part_place *part_room_places(struct part_room *r, const struct part_place *at,
                                          uint32_t n_at, uint32_t *n_out)
{
    struct part_place *all = part_alloc(r->out, (n_at + r->n_got) * sizeof *all + 1);
    uint32_t a = 0, g = 0, n = 0;
    if (!all)
        return NULL;
    while (a < n_at || g < r->n_got) {
        if (g == r->n_got || (a < n_at && at[a].node < r->got[g].node)) {
            all[n++] = at[a++];
        } else if (a == n_at || r->got[g].node < at[a].node) {
            all[n++] = r->got[g++];
        } else {
            all[n] = at[a++];
            all[n++].n += r->got[g++].n;
        }
    }
    *n_out = n;
    return all;
}

/* ---- the result ---- */

void part_give(struct part_decision *out, const struct part_job *jobs, size_t i,
               const struct part_place *at, uint32_t n_at)
{
    const struct part_job *job = &jobs[i];
    struct part_share *share = &out->jobs[i];
    share->at = n_at ? at : NULL;
    share->n_at = n_at;
    share->n = 0;
    for (uint32_t p = 0; p < n_at; p++)
        share->n += at[p].n;
    bool same = n_at == job->n_at;
    for (uint32_t p = 0; p < n_at && same; p++)
        same = at[p].node == job->at[p].node && at[p].n == job->at[p].n;
    if (n_at == 0)
        share->verdict = job->n_at ? PART_STOPS : PART_WAITS;
    else if (job->n_at == 0)
        share->verdict = PART_STARTS;
    else
        share->verdict = same ? PART_KEEPS : PART_CHANGES;
}

void part_keep(struct part_decision *out, const struct part_job *jobs, size_t i,
               enum part_because because)
{
    struct part_share *share = &out->jobs[i];
    share->at = jobs[i].at;
    share->n_at = jobs[i].n_at;
    share->n = part_count(&jobs[i]);
    share->verdict = jobs[i].n_at ? PART_KEEPS : PART_WAITS;
    part_say(out, i, because, PART_NOBODY);
}

void part_say(struct part_decision *out, size_t i, enum part_because because, uint32_t other)
{
    out->jobs[i].because = because;
    out->jobs[i].other = other;
}

void part_never(struct part_decision *out, const struct part_job *jobs, size_t i)
{
    part_give(out, jobs, i, NULL, 0);
    out->jobs[i].verdict = PART_NEVER;
    part_say(out, i, PART_BECAUSE_TOO_BIG, PART_NOBODY);
}
