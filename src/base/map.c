/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

/*
 * `index` is a hash table with open addressing. Its slots hold positions in `entries` plus one; 0
 * is an empty slot. A removed entry keeps its slot and has the key NULL, so that probing continues
 * behind it. rebuild() drops removed entries and their slots.
 */

static uint64_t rotl(uint64_t x, int b)
{
    return (x << b) | (x >> (64 - b));
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[0] = rotl(v[0], 32);
    v[2] += v[3];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[2] = rotl(v[2], 32);
}

/* The hash key of this process. If the kernel has no random numbers yet, an address and the time
 * take their place: collisions only cost time, so a weaker key is better than a failure. */
static const uint64_t *hash_key(void)
{
    static uint64_t key[2];
    if (key[0] == 0) {
        if (getrandom(key, sizeof key, GRND_NONBLOCK) != (ssize_t)sizeof key) {
            key[0] = (uint64_t)clock_mono_us() ^ (uint64_t)(uintptr_t)&key;
            key[1] = (uint64_t)clock_wall_ms();
        }
        key[0] |= 1;
    }
    return key;
}

/* SipHash-1-3 of s (Aumasson, Bernstein: "SipHash: a fast short-input PRF"): 1 round per word of 8
 * bytes, 3 rounds at the end. */
static uint64_t hash(const char *s)
{
    const uint64_t *k = hash_key();
    uint64_t v[4] = { k[0] ^ 0x736f6d6570736575ull, k[1] ^ 0x646f72616e646f6dull,
                      k[0] ^ 0x6c7967656e657261ull, k[1] ^ 0x7465646279746573ull };
    size_t len = strlen(s);
    const char *end = s + len / 8 * 8;
    for (; s != end; s += 8) {
        uint64_t m;
        memcpy(&m, s, sizeof m);
        v[3] ^= m;
        sip_round(v);
        v[0] ^= m;
    }
    uint64_t m = 0;
    memcpy(&m, s, len % 8);
    m |= (uint64_t)len << 56;
    v[3] ^= m;
    sip_round(v);
    v[0] ^= m;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* The slot of key in `index`; if the key is missing, the empty slot where it belongs. `index` has
 * twice as many slots as `entries`, so an empty slot always exists. */
static size_t find_slot(const struct map *m, const char *key)
{
    size_t mask = m->cap_index - 1, i = (size_t)hash(key) & mask;
    for (; m->index[i] != 0; i = (i + 1) & mask) {
        const struct map_entry *x = &m->entries[m->index[i] - 1];
        if (x->key && strcmp(x->key, key) == 0)
            break;
    }
    return i;
}

static struct map_entry *find(const struct map *m, const char *key)
{
    if (m->n == 0)
        return NULL;
    size_t slot = find_slot(m, key);
    return m->index[slot] ? &m->entries[m->index[slot] - 1] : NULL;
}

/* Drop removed entries, and give both tables room for at least one more entry. 0 or -ENOMEM. */
static int rebuild(struct map *m)
{
    size_t cap = 8, bytes;
    while (cap < m->n + 1 + m->n / 2)
        cap *= 2;
    if (cap > UINT_MAX / 4 || __builtin_mul_overflow(cap, sizeof *m->entries, &bytes))
        return -ENOMEM;
    unsigned *index = calloc(cap * 2, sizeof *index);
    struct map_entry *entries = index ? malloc(bytes) : NULL;
    if (!entries) {
        free(index);
        return -ENOMEM;
    }
    size_t n = 0;
    for (size_t i = 0; i < m->n_entries; i++) {
        if (m->entries[i].key)
            entries[n++] = m->entries[i];
    }
    free(m->entries);
    free(m->index);
    m->entries = entries;
    m->n_entries = n;
    m->cap_entries = cap;
    m->index = index;
    m->cap_index = cap * 2;
    for (size_t i = 0; i < n; i++)
        m->index[find_slot(m, entries[i].key)] = (unsigned)i + 1;
    return 0;
}

int map_set(struct map *m, const char *key, void *value, void **out_old)
{
    struct map_entry *x = find(m, key);
    if (x) {
        if (out_old)
            *out_old = x->value;
        x->value = value;
        return 0;
    }
    char *copy = strdup(key);
    if (!copy || (m->n_entries == m->cap_entries && rebuild(m) < 0)) {
        free(copy);
        return -ENOMEM;
    }
    size_t slot = find_slot(m, key);
    m->entries[m->n_entries++] = (struct map_entry){ copy, value };
    m->index[slot] = (unsigned)m->n_entries;
    m->n++;
    if (out_old)
        *out_old = NULL;
    return 0;
}

void *map_get(const struct map *m, const char *key)
{
    struct map_entry *x = find(m, key);
    return x ? x->value : NULL;
}

bool map_has(const struct map *m, const char *key)
{
    return find(m, key) != NULL;
}

void *map_remove(struct map *m, const char *key)
{
    struct map_entry *x = find(m, key);
    if (!x)
        return NULL;
    char *old = x->key;
    x->key = NULL;
    m->n--;
    free(old); /* last: `key` may point to this string */
    return x->value;
}

struct map_entry *map_next(const struct map *m, const struct map_entry *after)
{
    size_t i = after ? (size_t)(after - m->entries) + 1 : 0;
    while (i < m->n_entries && !m->entries[i].key)
        i++;
    return i < m->n_entries ? &m->entries[i] : NULL;
}

void map_done(struct map *m, void (*free_value)(void *))
{
    for (size_t i = 0; i < m->n_entries; i++) {
        if (!m->entries[i].key)
            continue;
        free(m->entries[i].key);
        if (free_value)
            free_value(m->entries[i].value);
    }
    free(m->entries);
    free(m->index);
    *m = (struct map){ 0 };
}
