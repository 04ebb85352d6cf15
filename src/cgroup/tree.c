/* SPDX-License-Identifier: Apache-2.0 */
#include "cgroup/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/proctree.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "cgroup/file.h"
#include "cgroup/find.h"

enum {
    DEPTH_MAX = 32, /* levels below the group; bounds the descriptors and the stack */
    /* A dying process keeps its group busy for a moment, and v1 has no notification of an empty
     * group. */
    REMOVE_TRIES = 200, /* give up after this many tries in a row that have removed no group */
    REMOVE_PAUSE_MS = 5,
};

/* Open the list of the groups below this one. NULL: there are none, or it cannot be read. */
static DIR *open_below(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == -1 || st.st_nlink == 2) /* a group has one more link for each below it */
        return NULL;
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy == -1 ? NULL : fdopendir(copy);
    if (!d && copy != -1)
        close(copy);
    return d;
}

/* The name of the next group; NULL = there is no other. */
static const char *next_below(DIR *d)
{
    struct dirent *x;
    while (d && (x = readdir(d)))
        if (x->d_type == DT_DIR && !str_eq(x->d_name, ".") && !str_eq(x->d_name, ".."))
            return x->d_name;
    return NULL;
}

static int open_group(int parent, const char *name)
{
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* ---- processes ---- */

static void list_in(int fd, struct pids *out)
{
    AUTO(buf_done) struct buf text = { 0 };
    struct span line;
    int64_t pid;
    if (fs_read(fd, "cgroup.procs", &text, NULL) < 0)
        return;
    struct span rest = buf_span(&text);
    while (span_split(&rest, '\n', &line))
        if (str_i64(line, 2, INT32_MAX, "pid", &pid, NULL) == 0)
            (void)vec_push(out, (pid_t)pid);
}

static void list(int parent, const char *name, unsigned depth, struct pids *out)
{
    AUTO(close_p) int fd = open_group(parent, name);
    if (fd == -1)
        return;
    list_in(fd, out);
    DIR *d = depth < DEPTH_MAX ? open_below(fd) : NULL;
    for (const char *below; (below = next_below(d));)
        list(fd, below, depth + 1, out);
    if (d)
        (void)closedir(d);
}

void cgroup_tree_list(const char *dir, struct pids *out)
{
    list(AT_FDCWD, dir, 0, out);
}

unsigned cgroup_tree_kill(const char *dir)
{
    struct pids found = { 0 };
    unsigned n = 0;
    cgroup_tree_list(dir, &found);
    /* v2 since Linux 5.14; the write reaches the groups below. An unneeded one makes later starts
     * slow: see spawn.c. If it fails, the loop kills the processes. */
    if (found.n)
        (void)group_put(dir, "cgroup.kill", "1");
    for (size_t i = 0; i < found.n; i++) {
        if (found.v[i] == getpid())
            continue;
        (void)kill(found.v[i], SIGKILL); /* it may have exited already */
        n++;
    }
    vec_done(&found);
    return n;
}

/* ---- groups ---- */

/* Returns 0 if the group has gone. *n_removed: how many groups were removed. */
static int remove_empty(int parent, const char *name, unsigned depth, unsigned *n_removed)
{
    int rc = unlinkat(parent, name, AT_REMOVEDIR) == 0 ? 0 : -errno;
    if (rc == 0)
        ++*n_removed;
    if (rc == 0 || rc == -ENOENT)
        return 0;
    AUTO(close_p) int fd = rc == -EBUSY && depth < DEPTH_MAX ? open_group(parent, name) : -1;
    DIR *d = fd == -1 ? NULL : open_below(fd);
    if (!d)
        return rc;
    for (const char *below; (below = next_below(d));)
        (void)remove_empty(fd, below, depth + 1, n_removed);
    (void)closedir(d);
    rc = unlinkat(parent, name, AT_REMOVEDIR) == 0 ? 0 : -errno;
    if (rc == 0)
        ++*n_removed;
    return rc == -ENOENT ? 0 : rc;
}

int cgroup_tree_rmdir(const char *dir)
{
    unsigned n_removed = 0;
    return remove_empty(AT_FDCWD, dir, 0, &n_removed);
}

void cgroup_tree_remove(const char *dir)
{
    for (unsigned tries = 0; tries < REMOVE_TRIES; tries++) {
        unsigned n_removed = 0;
        if (remove_empty(AT_FDCWD, dir, 0, &n_removed) != -EBUSY)
            break;
        if (n_removed)
            tries = 0;
        (void)cgroup_tree_kill(dir);
        (void)nanosleep(&(struct timespec){ .tv_nsec = REMOVE_PAUSE_MS * 1000000 }, NULL);
    }
    AUTO(free_p) char *parent = str_dup(dir);
    char *slash = parent ? strrchr(parent, '/') : NULL;
    if (slash && slash > parent) {
        *slash = '\0';
        (void)rmdir(parent); /* tony-<uid>: succeeds after the last job */
    }
}
