/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the source files of the store share.
 */
#ifndef TONY_STORAGE_STORE_INT_H
#define TONY_STORAGE_STORE_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "storage/digest.h"

struct err;
struct ship_item;

enum { ENTRY_MAX = 2 + DIGEST_HEX }; /* "d-<digest>" and the NUL */

struct store {
    char *dir;
    int fd;      /* of dir */
    int lock_fd; /* store/lock, locked shared; no lock is held if the file system has no flock() */
    void (*on_copy)(const char *source, uint64_t bytes, void *arg); /* may be NULL */
    void *on_copy_arg;
    /* temp_sweep() has run. A job may store thousands of files in a store that has thousands of
     * entries, so listing the store again for each file would be slow. */
    bool swept;
};

/* A row of store/cache: the entry of a source that was stored before. */
struct cache_row {
    char source[DIGEST_HEX];   /* digest of the source's kind and real path */
    char metadata[DIGEST_HEX]; /* of digest_metadata() when the source was stored */
    char entry[ENTRY_MAX];
    uint64_t bytes;
    uint32_t n_files;
};
/* Find the row of a source whose metadata is unchanged. false: there is none. */
bool cache_find(const struct store *s, const char *source, const char *metadata,
                struct cache_row *out);
/* Add or replace the row of row->source. A failure is not reported: it only means that the next
 * store_put() of this source reads its content again. */
void cache_add(const struct store *s, const struct cache_row *row);

/* Is name "d-" or "f-" and a digest? */
bool entry_name_ok(const char *name);

/* Write a new name ".tmp-<pid>-<random>" for an incomplete entry of the store. The client that
 * makes the entry holds flock() on it until it is complete. */
void temp_name(char out[48]);
/* Remove the incomplete entries of clients that died. Only the first call for a store does so. */
void temp_sweep(struct store *s);

/* Remove all write permission from an open directory and everything below it. */
int tree_read_only(int fd, const char *name, struct err *e);

/* Unpack an archive into the directory dir by the program tony-pack. */
int pack_unpack(const char *archive, const char *dir, uint64_t *out_bytes, uint32_t *out_files,
                struct err *e);

#endif
