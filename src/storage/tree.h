/*
 * Trees of files: copying one without holding it in memory, and a sorted list of one for the store.
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
    bool src_rules;               /* leave out what tree_skips() names */
    const struct strv *leave_out; /* and these paths below the root; may be NULL */
    bool read_only; /* take away all write permission: what is linked from many places */
    bool writable;  /* give the owner write permission: of a source that a cluster made read-only */
    bool write_out; /* start writing to disk at once; who needs it durable waits later */
};

/* Is this name left out of a job's src? Version control and bytecode are not part of a job. */
bool tree_skips(const char *name);
/* "a socket": the kind of what can be neither copied nor shipped. */
const char *tree_odd_kind(mode_t mode);
bool tree_leaves_out(const struct strv *leave_out, const char *path);

/* name stands for from_fd in errors. */
int tree_copy_fd(int from_fd, const char *name, int to_fd, const struct tree_copy_opts *opts,
                 struct err *e);
/* One regular file; to_name is made in to_dirfd and must not exist. */
int tree_copy_file(int from_fd, const struct stat *st, const char *name, int to_dirfd,
                   const char *to_name, const struct tree_copy_opts *opts, struct err *e);

struct tree_entry {
    char *path;   /* below the root */
    char *target; /* of a symbolic link, else NULL */
    mode_t mode;  /* type and permission */
    uint64_t size;
    struct timespec mtime, ctime;
    uint64_t dev, ino;
};

struct tree {
    struct tree_entry
        *v; /* each directory before what is in it, names in the order of their bytes */
    size_t n, cap;
    uint64_t bytes;
    uint32_t n_files;       /* entries that are not directories */
    struct timespec newest; /* change (ctime) of any of those */
};

/* avoid: a directory that must not lie inside, may be NULL; leave_out: as in tree_copy_opts. */
int tree_scan(int root_fd, const char *name, bool src_rules, const struct strv *leave_out,
              const struct stat *avoid, struct tree *out, struct err *e);
void tree_done(struct tree *t);
/* The first path that is not as it was; NULL = nothing changed. Borrowed from a or b. */
const char *tree_changed(const struct tree *a, const struct tree *b);

#endif
