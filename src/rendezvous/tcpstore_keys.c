/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of the store, and the clients that wait for them. */
#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/util.h"
#include "rendezvous/tcpstore_int.h"

enum {
    SLOTS_FIRST = 64,
    VALUE_SMALL = 24 /* room for any number: an addition does not reallocate */
};

int store_room(struct tcpstore *s, size_t n, struct err *e)
{
    if (n <= s->max_bytes && s->used <= s->max_bytes - n)
        return 0;
    return err_set(e, ENOBUFS,
                   "torch's store is full: its keys, values and unread answers would "
                   "take more than %zu MiB",
                   s->max_bytes >> 20);
}

static int no_memory(struct err *e)
{
    return err_set(e, ENOMEM, "no memory for a key of torch's store");
}

/* ---- the table ---- */

/* A hash over words of eight bytes. It includes a random seed, so that a client cannot choose
 * keys that collide. */
static uint64_t hash_of(const struct tcpstore *s, struct span name)
{
    uint64_t h = s->seed ^ (name.len * 0x9e3779b97f4a7c15u), word;
    const char *p = name.p;
    size_t len = name.len;
    for (; len >= sizeof word; p += sizeof word, len -= sizeof word) {
        memcpy(&word, p, sizeof word);
        h = (h ^ word) * (0x2127599bf4325c37u ^ s->seed << 1);
        h ^= h >> 31;
    }
    word = 0;
    if (len > 0)
        memcpy(&word, p, len);
    h = (h ^ word) * (0x880355f21e6d1965u ^ s->seed << 1);
    return h ^ h >> 32;
}

static struct key **slot_of(const struct tcpstore *s, uint64_t hash)
{
    return &s->slots[hash & (s->n_slots - 1)];
}

static int grow(struct tcpstore *s)
{
    size_t n = s->n_slots ? s->n_slots * 2 : SLOTS_FIRST;
    struct key **slots = calloc(n, sizeof(struct key *));
    if (!slots)
        return -ENOMEM;
    for (size_t i = 0; i < s->n_slots; i++)
        for (struct key *k = s->slots[i], *next; k; k = next) {
            next = k->next;
            k->next = slots[k->hash & (n - 1)];
            slots[k->hash & (n - 1)] = k;
        }
    s->used += (n - s->n_slots) * sizeof *slots;
    free(s->slots);
    s->slots = slots;
    s->n_slots = n;
    return 0;
}

static struct key *find(const struct tcpstore *s, struct span name, uint64_t hash)
{
    if (!s->n_slots)
        return NULL;
    for (struct key *k = *slot_of(s, hash); k; k = k->next)
        if (k->hash == hash && k->name_len == name.len &&
            (name.len == 0 || memcmp(k->name, name.p, name.len) == 0))
            return k;
    return NULL;
}

struct key *key_find(const struct tcpstore *s, struct span name)
{
    return find(s, name, hash_of(s, name));
}

struct key *key_get(struct tcpstore *s, struct span name, struct err *e)
{
    uint64_t hash = hash_of(s, name);
    struct key *k = find(s, name, hash);
    size_t size = sizeof *k + name.len;
    if (k || store_room(s, size, e) < 0)
        return k;
    if ((s->n_keys >= s->n_slots && grow(s) < 0) || !(k = calloc(1, size))) {
        (void)no_memory(e);
        return NULL;
    }
    k->hash = hash;
    k->queue_end = &k->queue;
    k->name_len = name.len;
    if (name.len > 0)
        memcpy(k->name, name.p, name.len);
    struct key **slot = slot_of(s, hash);
    k->next = *slot;
    *slot = k;
    s->n_keys++;
    s->used += size;
    return k;
}

static void key_free(struct tcpstore *s, struct key *k)
{
    for (struct item *i; (i = key_pop(s, k));)
        free(i);
    s->n_keys--;
    s->n_present -= k->present;
    s->used -= sizeof *k + k->name_len + k->cap;
    free(k->value);
    free(k);
}

void key_tidy(struct tcpstore *s, struct key *k)
{
    if (k->present || k->queue || k->waits.head || k->watches.head)
        return;
    struct key **at = slot_of(s, k->hash);
    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    key_free(s, k);
}

void keys_done(struct tcpstore *s)
{
    for (size_t i = 0; i < s->n_slots; i++)
        for (struct key *k = s->slots[i], *next; k; k = next) {
            next = k->next;
            key_free(s, k);
        }
    free(s->slots);
    s->slots = NULL;
    s->n_slots = 0;
}

/* ---- values ---- */

static void waiters_wake(struct key *k);

static int reserve(struct tcpstore *s, struct key *k, size_t n, struct err *e)
{
    size_t cap = MAX(n, (size_t)VALUE_SMALL);
    if (cap <= k->cap)
        return 0;
    if (store_room(s, cap - k->cap, e) < 0)
        return -ENOBUFS;
    char *value = realloc(k->value, cap);
    if (!value)
        return no_memory(e);
    s->used += cap - k->cap;
    k->value = value;
    k->cap = cap;
    return 0;
}

/* The events that torch <= 2.0 sends to clients that watch a key. */
enum { WATCH_UPDATED = 0, WATCH_CREATED = 1, WATCH_DELETED = 2 };

static void tell_watchers(const struct key *k, uint8_t what, struct span old, struct span now)
{
    for (struct wait *w = k->watches.head; w; w = w->next) {
        answer_u8(w->client, what);
        answer_span(w->client, span_mem(k->name, k->name_len));
        answer_span(w->client, old);
        answer_span(w->client, now);
    }
}

int key_set(struct tcpstore *s, struct key *k, struct span value, struct err *e)
{
    int rc = reserve(s, k, value.len, e);
    if (rc < 0)
        return rc;
    if (k->watches.head)
        tell_watchers(k, k->present ? WATCH_UPDATED : WATCH_CREATED, span_mem(k->value, k->len),
                      value);
    if (value.len > 0)
        memmove(k->value, value.p, value.len);
    k->len = value.len;
    s->n_present += !k->present;
    k->present = true;
    waiters_wake(k);
    return 0;
}

int key_append(struct tcpstore *s, struct key *k, struct span value, struct err *e)
{
    if (!k->present)
        return key_set(s, k, value, e);
    if (k->len + value.len > TCPSTORE_VALUE_MAX)
        return err_set(e, EMSGSIZE, "a value of torch's store would grow over %d bytes",
                       TCPSTORE_VALUE_MAX);
    size_t want = k->len + value.len;
    /* At least double the size, so that many small appends do not copy the value each time. */
    int rc = want <= k->cap ? 0 : reserve(s, k, MAX(want, k->cap * 2), e);
    if (rc < 0)
        return rc;
    if (value.len > 0)
        memcpy(k->value + k->len, value.p, value.len);
    k->len += value.len;
    waiters_wake(k);
    return 0;
}

bool key_delete(struct tcpstore *s, struct span name)
{
    struct key *k = key_find(s, name);
    if (!k || !k->present)
        return false;
    if (k->watches.head)
        tell_watchers(k, WATCH_DELETED, span_mem(k->value, k->len), span_mem("", 0));
    k->present = false;
    s->n_present--;
    s->used -= k->cap;
    free(TAKE(k->value));
    k->len = k->cap = 0;
    key_tidy(s, k);
    return true;
}

/* ---- queues ---- */

static void wait_done_one(struct wait *w);

/* A queue has got one item: wake one client that waits for it. */
static void waiter_wake_one(struct key *k)
{
    while (k->waits.head) {
        struct tcpstore_client *c = k->waits.head->client;
        wait_done_one(k->waits.head);
        if (!c->waits)
            break;
    }
}

int key_push(struct tcpstore *s, struct key *k, struct span value, struct err *e)
{
    size_t size = sizeof(struct item) + value.len;
    int rc = store_room(s, size, e);
    struct item *i = rc == 0 ? malloc(size) : NULL;
    if (!i)
        return rc < 0 ? rc : no_memory(e);
    i->next = NULL;
    i->len = value.len;
    if (value.len > 0)
        memcpy(i->bytes, value.p, value.len);
    s->used += size;
    *k->queue_end = i;
    k->queue_end = &i->next;
    k->n_queue++;
    waiter_wake_one(k);
    return 0;
}

struct item *key_pop(struct tcpstore *s, struct key *k)
{
    struct item *i = k->queue;
    if (!i)
        return NULL;
    k->queue = i->next;
    if (!k->queue)
        k->queue_end = &k->queue;
    k->n_queue--;
    s->used -= sizeof *i + i->len;
    return i;
}

/* ---- waiting ---- */

static void link_add(struct wait_list *list, struct wait *w)
{
    w->prev = list->tail;
    w->next = NULL;
    *(list->tail ? &list->tail->next : &list->head) = w;
    list->tail = w;
}

static void link_remove(struct wait_list *list, struct wait *w)
{
    *(w->prev ? &w->prev->next : &list->head) = w->next;
    *(w->next ? &w->next->prev : &list->tail) = w->prev;
}

void wait_end(struct tcpstore_client *c)
{
    for (size_t i = 0; c->waits && i < c->n_waits; i++) {
        struct key *k = c->waits[i].key;
        if (!k)
            continue;
        link_remove(&k->waits, &c->waits[i]);
        key_tidy(c->s, k);
    }
    c->s->used -= c->n_waits * sizeof *c->waits;
    free(TAKE(c->waits));
    c->n_waits = c->n_awaited = 0;
}

/* The key of w exists now. If it was the last one for which the client waits, answer the client. */
static void wait_done_one(struct wait *w)
{
    struct tcpstore_client *c = w->client;
    link_remove(&w->key->waits, w);
    w->key = NULL;
    if (--c->n_awaited > 0)
        return;
    wait_end(c);
    answer_u8(c, WAIT_OVER);
}

static void waiters_wake(struct key *k)
{
    while (k->waits.head)
        wait_done_one(k->waits.head);
}

static int wait_open(struct tcpstore_client *c, size_t n, struct err *e)
{
    wait_end(c);
    int rc = store_room(c->s, n * sizeof *c->waits, e);
    if (rc < 0)
        return rc;
    c->waits = calloc(n, sizeof *c->waits);
    if (!c->waits)
        return no_memory(e);
    c->s->used += n * sizeof *c->waits;
    c->n_waits = n;
    return 0;
}

ssize_t wait_begin(struct tcpstore_client *c, const struct span *names, size_t n, struct err *e)
{
    size_t missing = 0;
    for (size_t i = 0; i < n; i++)
        missing += !key_ready(key_find(c->s, names[i]));
    int rc = missing ? wait_open(c, missing, e) : 0;
    for (size_t i = 0; rc == 0 && missing && i < n; i++) {
        if (key_ready(key_find(c->s, names[i])))
            continue;
        struct key *k = key_get(c->s, names[i], e);
        if (!k)
            return -ENOMEM; /* the caller disconnects the client, which ends its waits */
        struct wait *w = &c->waits[c->n_awaited++];
        *w = (struct wait){ .key = k, .client = c };
        link_add(&k->waits, w);
    }
    return rc < 0 ? rc : (ssize_t)missing;
}

int wait_change(struct tcpstore_client *c, struct key *k, struct err *e)
{
    int rc = wait_open(c, 1, e);
    if (rc < 0)
        return rc;
    c->waits[0] = (struct wait){ .key = k, .client = c };
    c->n_awaited = 1;
    link_add(&k->waits, &c->waits[0]);
    return 0;
}

int watch_begin(struct tcpstore_client *c, struct key *k)
{
    struct wait *w = calloc(1, sizeof *w);
    if (!w || vec_push(&c->watches, w) < 0) {
        free(w);
        return -ENOMEM;
    }
    *w = (struct wait){ .key = k, .client = c };
    link_add(&k->watches, w);
    return 0;
}

void watch_end(struct tcpstore_client *c)
{
    for (size_t i = 0; i < c->watches.n; i++) {
        struct wait *w = c->watches.v[i];
        link_remove(&w->key->watches, w);
        key_tidy(c->s, w->key);
        free(w);
    }
    vec_done(&c->watches);
}
