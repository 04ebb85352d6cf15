/*
 * The content store: what a job ships, by digest, stored once, read-only.
 *
 *   store/d-<sha256>/   a directory tree: src, a directory, an unpacked archive
 *   store/f-<sha256>    a file; its mode is part of the digest
 *   store/cache         digests of sources seen before, with what their files looked like
 *   store/lock          held shared by who puts, alone by who removes
 *
 * The digest of a tree is over names, types, modes (0777), sizes, contents and link targets,
 * sorted by name; of an archive, over the archive's bytes. An entry appears by rename and is never
 * changed; parallel clients putting the same content are harmless. A source whose files have the
 * size, times and inodes of last time costs only looking at them. Each use touches the entry;
 * store_gc removes what no live job refers to and was not used for a given time.
 */
#ifndef TONY_STORAGE_STORE_H
#define TONY_STORAGE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"

struct err;
struct store;

enum ship_kind {
    SHIP_NONE = 0,
    SHIP_SRC,  /* directory: its content is copied into each working directory, writable */
    SHIP_DIR,  /* directory linked under a name */
    SHIP_FILE, /* one file, linked (copied where it is to be executable and was not) under a name */
    SHIP_ARCHIVE, /* unpacked once, linked under a name */
    SHIP_IN_PLACE /* a local directory used where it is (venv), linked under a name */
};

struct ship_item { /* one thing of a job that goes to containers */
    enum ship_kind kind;
    char *source;          /* absolute path */
    char *name;            /* in the working directory; "" for SHIP_SRC */
    char *role;            /* "" = every role */
    struct strv leave_out; /* of SHIP_SRC: paths below it that stay where they are */
    bool python;           /* an environment: its scripts are made to find it (relocate.h) */
    char *digest;          /* after store_put; "" for SHIP_IN_PLACE */
    char *path;            /* in the store after store_put, absolute */
    uint64_t bytes;
    uint32_t n_files;
};
void ship_item_done(struct ship_item *it);
const char *ship_kind_name(enum ship_kind kind);  /* "src", "dir", "file", "archive", "in_place" */
enum ship_kind ship_kind_parse(const char *name); /* SHIP_NONE when unknown */

/* Ceilings of one item; who passes one is told which. */
#define STORE_MAX_FILES 1000000u       /* entries of a tree */
#define STORE_MAX_BYTES (200ull << 30) /* of a tree or an archive's content */
#define STORE_MAX_DEPTH 200u           /* directories within directories */

int store_open(const char *store_dir, struct store **out, struct err *e);
void store_free(struct store *s);
/* fn is told of each source before its content is brought in, for people who wait. */
void store_on_copy(struct store *s, void (*fn)(const char *source, uint64_t bytes));
/*
 * Bring it->source into the store; fill digest, path, bytes and n_files.
 *
 * The source is only read; nothing is written beside it. A SHIP_SRC leaves out what is named .git
 * or __pycache__ and what leave_out names, and may also be an archive. Symbolic links are kept as
 * they are, also those that lead out of the tree. Archives (zip, tar, also gz, bz2, xz, zst) are
 * unpacked by the program tony-pack, which refuses members that leave the directory (.., absolute,
 * through links), devices, and bombs.
 *
 * Errors  -ENOENT, -EACCES, ... of a file, named; -EINVAL a socket, pipe or device in it, or not
 *         what the kind says; -EBUSY it is being changed while it is read; -EFBIG over a ceiling;
 *         -ENOSPC. Nothing is left in the store then.
 */
int store_put(struct store *s, struct ship_item *it, struct err *e);
/* What store_put would do, without writing (tony plan): fills bytes and n_files, not the digest. */
int store_survey(struct ship_item *it, struct err *e);

/* A directory tree as a tar.gz into fd, by the program tony-pack: modes, links, empty directories.
 * Blocks; may run on another thread. */
int store_pack(const char *dir, int fd, struct err *e);

/*
 * Remove entries that were not touched for max_age_ms (at least an hour), and what crashed clients
 * left half-made.
 *
 * jobs_dir   jobs/ of the home: what a job.conf in there refers to is kept, whatever its age
 * Returns the number of entries removed
 */
int store_gc(const char *store_dir, const char *jobs_dir, int64_t max_age_ms, int64_t now_wall_ms,
             struct err *e);

/*
 * Copy the content of the directory `from` into the existing directory to_dirfd: modes
 * (directories are made writable for the owner), symbolic links, empty directories, times of
 * modification; by reflink, else copy_file_range, else reading and writing.
 */
int tree_copy(const char *from, int to_dirfd, struct err *e);

#endif
