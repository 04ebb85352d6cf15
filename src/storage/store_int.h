/*
 * What the files of the store share.
 */
#ifndef TONY_STORAGE_STORE_INT_H
#define TONY_STORAGE_STORE_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "storage/digest.h"

struct err;
struct ship_item;

enum { ENTRY_MAX = 2 + DIGEST_HEX }; /* "d-<digest>" */

struct store {
    char *dir;
    int fd;
    int lock_fd; /* held shared while open; -1 where there are no locks */
    void (*on_copy)(const char *source, uint64_t bytes); /* may be NULL */
    bool swept; /* once is enough: a job may bring thousands of files into a store of as many */
};

/* What is known of a source seen before. */
struct cache_row {
    char source[DIGEST_HEX]; /* kind and real path */
    char looks[DIGEST_HEX];
    char entry[ENTRY_MAX];
    uint64_t bytes;
    uint32_t n_files;
};
bool cache_find(const struct store *s, const char *source, const char *looks,
                struct cache_row *out);
/* Failure is harmless and not told: the next put takes longer. */
void cache_add(const struct store *s, const struct cache_row *row);

bool entry_name_ok(const char *name);

/* A temporary name of ours in the store; the thing by that name is locked while its maker lives. */
void temp_name(char out[48]);
/* Remove what dead makers left; the first time that a store is asked. */
void temp_sweep(struct store *s);

/* Take away all write permission below an open directory, and its own. */
int tree_read_only(int fd, const char *name, struct err *e);

/* Unpack archive into the directory by the program tony-pack. */
int pack_unpack(const char *archive, const char *dir, uint64_t *out_bytes, uint32_t *out_files,
                struct err *e);

#endif
