/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directory trees: copy a tree without holding it in memory, or list its entries with their
 * metadata for the store.
 */
#ifndef TONY_STORAGE_TREE_H
#define TONY_STORAGE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

struct err;
struct strv;

struct tree_copy_opts {
    bool src_rules;               /* skip the names of tree_skips_in_src() */
    const struct strv *leave_out; /* skip these paths, relative to the root; may be NULL */
    bool read_only; /* remove all write permission: several containers link to the same copy */
    bool writable;  /* give the owner write permission: the cluster made the source read-only */
    bool write_out; /* start writing to disk at once, so that waiting for the disk later takes less
                       time */
};

/* Is a file or directory with this name skipped in the src of a job? Version control (.git) and
 * bytecode (__pycache__) are not shipped. */
bool tree_skips_in_src(const char *name);
/* "a socket", "a named pipe" or "a device": the type of an entry that tony cannot copy. */
const char *tree_special_type(mode_t mode);
/* Is path one of leave_out (may be NULL)? */
bool tree_leaves_out(const struct strv *leave_out, const char *path);

/* Copy the content of directory from_fd into directory to_fd. name: the source's name in errors. */
int tree_copy_fd(int from_fd, const char *name, int to_fd, const struct tree_copy_opts *opts,
                 struct err *e);
/* Copy a regular file to the new file to_name in to_dirfd. -EEXIST: to_name exists. */
int tree_copy_file(int from_fd, const struct stat *st, const char *name, int to_dirfd,
                   const char *to_name, const struct tree_copy_opts *opts, struct err *e);

struct tree_entry {
    char *path;    /* relative to the root; "" if the source is a single file */
    char *target;  /* the target of a symbolic link; else NULL */
    mode_t mode;   /* type and permissions */
    uint64_t size; /* of a regular file; else 0 */
    struct timespec mtime, ctime;
    uint64_t dev, ino;
};

struct tree {
    /* A directory comes before its content; names are sorted by their bytes. */
    struct tree_entry *v;
    size_t n, cap;
    uint64_t bytes;         /* sum of the sizes */
    uint32_t n_files;       /* entries that are not directories */
    struct timespec newest; /* the latest change time (ctime) of these */
};

/* List the entries below root_fd. src_rules and leave_out: as in tree_copy_opts. forbidden: a
 * directory that must not be in the tree, NULL = none. -EINVAL: the tree contains it, or a socket,
 * pipe or device; -EFBIG: a limit of store.h is exceeded. */
int tree_scan(int root_fd, const char *name, bool src_rules, const struct strv *leave_out,
              const struct stat *forbidden, struct tree *out, struct err *e);
void tree_done(struct tree *t);
/* The first path at which two lists of a tree differ; NULL = none. Borrowed from a or b. */
const char *tree_changed(const struct tree *a, const struct tree *b);

#endif
