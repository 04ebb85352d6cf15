/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of containers, and how they are found: by number, by pid and by slot.
 *
 * A fork copies the page tables of the keeper's memory, and the exit of the child tears them down.
 * If that memory grew with the number of containers n, the cost of n forks would grow with the
 * square of n. So a child gets neither the containers nor the hash tables (MADV_DONTFORK), and of
 * the records only the block from which its own was taken.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/str.h"
#include "base/vec.h"
#include "executor/keeper_int.h"
#include "scheduler/slots.h"

enum {
    BLOCK = 256,      /* containers or records that are allocated together */
    HEADS_MIN = 4096, /* chains of a hash table; a power of two */
    HEADS_MAX = 1 << 20,
};

/* BLOCK records, each shared with one executor. */
struct record_block {
    struct exit_record *v;
    uint32_t n_used;
    bool used[BLOCK];
};

/* Zeroed memory, or NULL. */
static void *pages_new(size_t size, int flags)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void *unforked_new(size_t size)
{
    void *p = pages_new(size, MAP_PRIVATE);
    if (p)
        (void)madvise(p, size, MADV_DONTFORK);
    return p;
}

/* ---- containers ---- */

struct container *container_new(struct keeper *k)
{
    struct container *c = k->unused;
    if (c) {
        k->unused = c->after;
        *c = (struct container){ 0 };
        return c;
    }
    if (k->n_fresh_left == 0) {
        struct container *block = unforked_new(BLOCK * sizeof *block);
        if (!block)
            return NULL;
        k->fresh = block;
        k->n_fresh_left = BLOCK;
    }
    return &k->fresh[BLOCK - k->n_fresh_left--];
}

void container_free(struct keeper *k, struct container *c)
{
    free(c->gpus);
    free(c->detail);
    c->gpus = NULL;
    c->detail = NULL;
    c->after = k->unused;
    k->unused = c;
}

/* ---- records ---- */

static struct record_block *block_new(void)
{
    struct record_block *b = calloc(1, sizeof *b);
    if (b && !(b->v = pages_new(BLOCK * sizeof *b->v, MAP_SHARED))) {
        free(b);
        return NULL;
    }
    return b;
}

static void block_free(struct record_block *b)
{
    (void)munmap(b->v, BLOCK * sizeof *b->v);
    free(b);
}

/* Make a block with an unused record the last one, which the next children get. */
static struct record_block *current_block(struct keeper *k)
{
    size_t n = k->records.n, at = n;
    struct record_block *last = n ? k->records.v[n - 1] : NULL;
    if (last && last->n_used < BLOCK)
        return last;
    while (at > 0 && k->records.v[at - 1]->n_used == BLOCK)
        at--;
    struct record_block *b = at ? k->records.v[at - 1] : block_new();
    if (!b || (!at && vec_push(&k->records, b) < 0)) {
        if (b)
            block_free(b);
        return NULL;
    }
    if (last)
        (void)madvise(last->v, BLOCK * sizeof *last->v, MADV_DONTFORK);
    if (at) {
        (void)madvise(b->v, BLOCK * sizeof *b->v, MADV_DOFORK);
        k->records.v[at - 1] = last;
        k->records.v[n - 1] = b;
    }
    return b;
}

size_t record_room(struct keeper *k)
{
    const struct record_block *b = current_block(k);
    return b ? BLOCK - b->n_used : 0;
}

int record_take(struct keeper *k, struct container *c)
{
    struct record_block *b = current_block(k);
    if (!b)
        return -ENOMEM;
    const bool *unused = memchr(b->used, false, sizeof b->used);
    size_t at = (size_t)(unused - b->used);
    b->used[at] = true;
    b->n_used++;
    c->block = b;
    c->record = &b->v[at];
    *c->record = (struct exit_record){ 0 };
    return 0;
}

void record_give_back(struct keeper *k, struct container *c)
{
    struct record_block *b = c->block;
    if (!b)
        return;
    b->used[c->record - b->v] = false;
    b->n_used--;
    c->block = NULL;
    c->record = NULL;
    for (size_t i = 0; b->n_used == 0 && i + 1 < k->records.n; i++)
        if (k->records.v[i] == b) { /* the last block is kept */
            block_free(b);
            memmove(&k->records.v[i], &k->records.v[i + 1],
                    (--k->records.n - i) * sizeof *k->records.v);
            return;
        }
}

/* ---- the hash tables ---- */

static uint32_t key_of(const struct container *c, enum container_key key)
{
    return key == BY_PID ? (uint32_t)c->pid : c->number;
}

static struct container **head_of(const struct container_index *x, uint32_t value)
{
    return &x->heads[value & (x->n_heads - 1)];
}

static void chain_add(struct container_index *x, enum container_key key, struct container *c)
{
    struct container **head = head_of(x, key_of(c, key));
    c->chain[key] = *head;
    *head = c;
}

/* Without memory the chains become longer; the table stays right. */
static void index_grow(struct container_index *x, enum container_key key)
{
    struct container_index more = { .n = x->n, .n_heads = 2 * x->n_heads };
    more.heads = unforked_new(more.n_heads * sizeof(struct container *));
    if (!more.heads)
        return;
    for (uint32_t i = 0; i < x->n_heads; i++)
        for (struct container *c = x->heads[i], *next; c; c = next) {
            next = c->chain[key];
            chain_add(&more, key, c);
        }
    (void)munmap(x->heads, x->n_heads * sizeof(struct container *));
    *x = more;
}

static void index_add(struct keeper *k, enum container_key key, struct container *c)
{
    struct container_index *x = &k->index[key];
    if (x->n++ >= x->n_heads && x->n_heads < HEADS_MAX)
        index_grow(x, key);
    chain_add(x, key, c);
}

static void index_remove(struct keeper *k, enum container_key key, struct container *c)
{
    struct container_index *x = &k->index[key];
    for (struct container **at = head_of(x, key_of(c, key)); *at; at = &(*at)->chain[key])
        if (*at == c) {
            *at = c->chain[key];
            x->n--;
            return;
        }
}

static struct container *index_find(const struct keeper *k, enum container_key key, uint32_t value)
{
    struct container *c = *head_of(&k->index[key], value);
    while (c && key_of(c, key) != value)
        c = c->chain[key];
    return c;
}

void pid_add(struct keeper *k, struct container *c)
{
    index_add(k, BY_PID, c);
}

void pid_remove(struct keeper *k, struct container *c)
{
    index_remove(k, BY_PID, c);
    c->pid = 0;
}

struct container *container_by_pid(const struct keeper *k, pid_t pid)
{
    return index_find(k, BY_PID, (uint32_t)pid);
}

struct container *container_next_by_pid(const struct container *c)
{
    uint32_t pid = key_of(c, BY_PID);
    struct container *next = c->chain[BY_PID];
    while (next && key_of(next, BY_PID) != pid)
        next = next->chain[BY_PID];
    return next;
}

struct container *container_by_number(const struct keeper *k, uint32_t number)
{
    return index_find(k, BY_NUMBER, number);
}

struct container *container_by_id(const struct keeper *k, const char *id)
{
    const char *last = strrchr(id, '_');
    struct container *c =
        last ? container_by_number(k, (uint32_t)strtoul(last + 1, NULL, 10)) : NULL;
    return c && str_eq(c->id, id) ? c : NULL;
}

/* ---- slots ---- */

struct slot_use *slots_find(const struct keeper *k, uint32_t slot)
{
    size_t at = slots_place(k->slots.v, k->slots.n, sizeof *k->slots.v, slot);
    return at < k->slots.n && k->slots.v[at].slot == slot ? &k->slots.v[at] : NULL;
}

struct slot_use *slots_get(struct keeper *k, uint32_t slot)
{
    size_t at = slots_place(k->slots.v, k->slots.n, sizeof *k->slots.v, slot);
    if (at < k->slots.n && k->slots.v[at].slot == slot)
        return &k->slots.v[at];
    if (vec_push(&k->slots, (struct slot_use){ 0 }) < 0)
        return NULL;
    memmove(&k->slots.v[at + 1], &k->slots.v[at], (k->slots.n - 1 - at) * sizeof *k->slots.v);
    k->slots.v[at] = (struct slot_use){ .slot = slot };
    return &k->slots.v[at];
}

/* ---- the list of live containers ---- */

void live_add(struct keeper *k, struct container *c)
{
    c->before = k->live.last;
    c->after = NULL;
    if (c->before)
        c->before->after = c;
    else
        k->live.first = c;
    k->live.last = c;
    k->live.n++;
    index_add(k, BY_NUMBER, c);
    slots_find(k, c->slot)->container = c;
}

void live_remove(struct keeper *k, struct container *c)
{
    if (c->before)
        c->before->after = c->after;
    else
        k->live.first = c->after;
    if (c->after)
        c->after->before = c->before;
    else
        k->live.last = c->before;
    c->before = c->after = NULL;
    k->live.n--;
    index_remove(k, BY_NUMBER, c);
    slots_find(k, c->slot)->container = NULL;
}

/* ---- start and end ---- */

int table_open(struct keeper *k)
{
    for (size_t i = 0; i < BY_COUNT; i++) {
        k->index[i].n_heads = HEADS_MIN;
        k->index[i].heads = unforked_new(HEADS_MIN * sizeof(struct container *));
        if (!k->index[i].heads)
            return -ENOMEM;
    }
    return 0;
}

/* The blocks of containers last until the process ends. */
void table_free(struct keeper *k)
{
    while (k->live.first) {
        struct container *c = k->live.first;
        live_remove(k, c);
        record_give_back(k, c);
        container_free(k, c);
    }
    for (; k->ends.at < k->ends.n; k->ends.at++)
        container_free(k, k->ends.v[k->ends.at]);
    for (size_t i = 0; i < k->records.n; i++)
        block_free(k->records.v[i]);
    for (size_t i = 0; i < BY_COUNT; i++)
        if (k->index[i].heads)
            (void)munmap(k->index[i].heads, k->index[i].n_heads * sizeof(struct container *));
    vec_done(&k->records);
    vec_done(&k->ends);
    vec_done(&k->slots);
    vec_done(&k->asks);
    vec_done(&k->to_launch);
    vec_done(&k->draining);
    vec_done(&k->beats);
}
