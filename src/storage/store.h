/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content store: the files that jobs ship. Each content is stored once, under its digest.
 *
 *   store/d-<sha256>/   a directory tree: src, a directory or an unpacked archive
 *   store/f-<sha256>    a file; its mode is part of the digest
 *   store/cache         the entry of each source that was stored before, and the source's metadata
 *   store/lock          flock(): a client that adds entries holds it shared; store_gc() holds it
 *                       exclusively
 *
 * The digest of a tree covers names, types, modes (bits 0777), sizes, contents and link targets,
 * sorted by name. The digest of an archive covers the bytes of the archive.
 *
 * A client makes a new entry under a temporary name and renames it when it is complete. An entry is
 * never changed. So two clients may store the same content at the same time.
 *
 * If all files of a source have the sizes, times and inodes that the cache recorded, their contents
 * are not read again. Each use of an entry sets its modification time; store_gc() removes entries
 * to which no live job refers and which were not used for a given time.
 */
#ifndef TONY_STORAGE_STORE_H
#define TONY_STORAGE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"

struct err;
struct store;

enum ship_kind {
    SHIP_NONE = 0,
    SHIP_SRC,     /* a directory: its content is copied into each working directory, writable */
    SHIP_DIR,     /* a directory, linked into the working directory under a name */
    SHIP_FILE,    /* a file, linked under a name; copied if it must be executable and is not */
    SHIP_ARCHIVE, /* an archive: unpacked once, then linked under a name */
    SHIP_IN_PLACE /* a local directory, such as a venv, that is not copied; linked under a name */
};

/* A file, directory or archive that a job ships to its containers. */
struct ship_item {
    enum ship_kind kind;
    char *source;          /* absolute path on the client's machine */
    char *name;            /* of the link in the working directory; "" for SHIP_SRC */
    char *role;            /* the role that gets it; "" = every role */
    struct strv leave_out; /* SHIP_SRC only: paths below the source that are not shipped */
    bool python;           /* a Python environment: its scripts are relocated (relocate.h) */
    char *digest;          /* set by store_put(); "" for SHIP_IN_PLACE */
    char *path;            /* absolute path of the entry in the store; set by store_put() */
    uint64_t bytes;
    uint32_t n_files;
};
void ship_item_done(struct ship_item *it);
const char *ship_kind_name(enum ship_kind kind);  /* "src", "dir", "file", "archive", "in_place" */
enum ship_kind ship_kind_parse(const char *name); /* SHIP_NONE: name is unknown */

/* Limits of one item. If an item exceeds one, the error names the limit. */
#define STORE_MAX_FILES 1000000u       /* files, links and directories of a tree */
#define STORE_MAX_BYTES (200ull << 30) /* content of a tree or of an unpacked archive */
#define STORE_MAX_DEPTH 200u           /* nested directories */

/* Open the store and lock it shared, so that store_gc() removes nothing until store_free(). */
int store_open(const char *store_dir, struct store **out, struct err *e);
void store_free(struct store *s);
/* store_put() calls fn before it copies a source, so that the client can show the user what it is
 * doing. It does not call fn if the content is in the store already. */
void store_on_copy(struct store *s, void (*fn)(const char *source, uint64_t bytes, void *arg),
                   void *arg);
/*
 * Store it->source, unless its content is in the store. Fills digest, path, bytes and n_files.
 *
 * The source is only read, and nothing is written next to it. Symbolic links are stored as they
 * are, also links that lead out of the tree. A SHIP_SRC may be a directory or an archive; entries
 * named .git or __pycache__ and the paths in leave_out are not stored.
 *
 * Archives (zip, tar; compressed with gz, bz2, xz or zst) are unpacked by the program tony-pack. It
 * refuses devices, decompression bombs and members outside the directory (with "..", an absolute
 * path, or through a link).
 *
 * Errors  -ENOENT, -EACCES, ... a file cannot be read; the error names it
 *         -EINVAL  the source contains a socket, a pipe, a device or TONY_HOME
 *         -ENOTDIR, -EISDIR  the source is not of the item's kind
 *         -EBUSY   the source changed while it was read, 3 times
 *         -EFBIG   a limit is exceeded
 *         -ENOSPC, -EDQUOT  the disk or a quota is full
 *         After an error, no part of the source stays in the store.
 */
int store_put(struct store *s, struct ship_item *it, struct err *e);
/* Measure it->source as store_put() would store it, but write nothing; for `tony plan`. Fills bytes
 * and n_files, not the digest. */
int store_survey(struct ship_item *it, struct err *e);
/* Set it->digest as store_put() would, but write nothing; for `tony plan`. It reads the whole
 * content. */
int store_digest(struct ship_item *it, struct err *e);

/* Write a directory tree to fd as tar.gz, by the program tony-pack: with modes, links and empty
 * directories. Blocks until the archive is complete. May run on any thread. */
int store_pack(const char *dir, int fd, struct err *e);

/*
 * Remove entries that were not used for max_age_ms (at least 1 hour), and incomplete entries of
 * crashed clients.
 *
 * jobs_dir   jobs/ of the home: an entry to which a job.conf in there refers stays, however old
 * Returns the number of removed entries. If a client uses the store, removes none and returns 0.
 */
int store_gc(const char *store_dir, const char *jobs_dir, int64_t max_age_ms, int64_t now_wall_ms,
             struct err *e);

/*
 * Copy the content of the directory `from` into the existing directory to_dirfd, with modes,
 * symbolic links, empty directories and modification times. Copied directories are writable for the
 * owner. The content is copied by reflink (FICLONE); if the file system has none, by
 * copy_file_range(); else by read() and write().
 */
int tree_copy(const char *from, int to_dirfd, struct err *e);

#endif
