/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash map from string to pointer. The map copies its keys; values belong to the caller.
 *
 * Iteration has the order of insertion, so that all that is printed or requested from a map has a
 * stable order. Keys come from users' files, so each process hashes with a random key. Without
 * it, a user could prepare a file whose keys all collide.
 *
 * A map of zeros is an empty map.
 */
#ifndef TONY_BASE_MAP_H
#define TONY_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>

struct map {
    struct map_entry *entries; /* in order of insertion; a removed entry has key NULL */
    size_t n;                  /* entries without the removed ones */
    size_t n_entries;          /* used elements of `entries`, removed entries included */
    size_t cap_entries;
    unsigned *index; /* hash table: positions in `entries` plus 1; 0 = empty slot */
    size_t cap_index;
};

struct map_entry {
    char *key;
    void *value;
};

/* Add or replace. *out_old is the replaced value, NULL for a new key (out_old may be NULL).
 * 0 or -ENOMEM. */
int map_set(struct map *m, const char *key, void *value, void **out_old);
void *map_get(const struct map *m, const char *key); /* NULL = no such key */
bool map_has(const struct map *m, const char *key);
void *map_remove(struct map *m, const char *key); /* returns the value; NULL = no such key */
/* for (struct map_entry *x = map_next(m, NULL); x; x = map_next(m, x)) ...
 * The body may remove x. */
struct map_entry *map_next(const struct map *m, const struct map_entry *after);
/* Free the map; free_value (may be NULL) is called with each value. */
void map_done(struct map *m, void (*free_value)(void *));

#endif
