/*
 * Hash map from string to pointer; keys are copied, values are the caller's. Iteration is in the
 * order of insertion, so that whatever we print or ask for has a stable order. Hashing is keyed at
 * random per process (keys come from users' files).
 */
#ifndef TONY_BASE_MAP_H
#define TONY_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>

struct map {
    struct map_entry *entries; /* in order of insertion; a removed one has key NULL */
    size_t n;                  /* live entries */
    size_t n_entries, cap_entries;
    unsigned *index;
    size_t cap_index;
};

struct map_entry {
    char *key;
    void *value;
};

int map_set(struct map *m, const char *key, void *value,
            void **out_old);                         /* out_old may be NULL; 0 or -ENOMEM */
void *map_get(const struct map *m, const char *key); /* NULL = not there */
bool map_has(const struct map *m, const char *key);
void *map_remove(struct map *m, const char *key); /* the value, or NULL */
/* for (struct map_entry *x = map_next(m, NULL); x; x = map_next(m, x)); removal of x inside is
 * allowed */
struct map_entry *map_next(const struct map *m, const struct map_entry *after);
void map_done(struct map *m, void (*free_value)(void *)); /* free_value may be NULL */

#endif
