/*
 * Removal of a tree with a bounded number of descriptors, a bounded stack and no allocation.
 *
 * The walk keeps one descriptor a level. A directory that lies deeper than DEPTH_MAX is not entered
 * but moved up into the root of the tree that goes, where it is found as one more entry; so any
 * depth is a matter of patience.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/util.h"

enum {
    DEPTH_MAX = 40, /* descriptors we hold at most; also bounds the stack (DEPTH_MAX * BATCH) */
    BATCH = 4096,   /* bytes of directory entries read at once */
    PASSES_MAX = 100000, /* passes over one directory while each makes progress: directories moved
                            up come in passes */
};

struct walk {
    int root; /* where directories that lie too deep are moved to */
    dev_t dev;
    unsigned moved;
    unsigned n_gone; /* tells whether a pass made progress */
    int num;         /* the first failure, a positive errno */
    char name[256];  /* and the entry that it befell */
};

static void fail(struct walk *w, int num, const char *name)
{
    if (w->num != 0)
        return;
    w->num = num;
    (void)snprintf(w->name, sizeof w->name, "%s", name);
}

/* Let ourselves read, write and search a directory that can only be named; never through a link. */
static int make_accessible(int dirfd, const char *name)
{
    char proc[64];
    AUTO(close_p)
    int fd = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
    if (fd == -1)
        return -errno;
    (void)snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    return chmod(proc, 0700) == -1 ? -errno : 0;
}

/* openat2() sees mount points also where a bind mount has the same device number; older kernels
 * have only that number. */
static int open_below(struct walk *w, int dirfd, const char *name)
{
    static atomic_bool has_no_openat2;
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY;
    if (!atomic_load(&has_no_openat2)) {
        struct open_how how = { .flags = (unsigned)flags, .resolve = RESOLVE_NO_XDEV };
        long fd = syscall(SYS_openat2, dirfd, name, &how, sizeof how);
        if (fd != -1)
            return (int)fd;
        if (errno != ENOSYS && errno != EPERM && errno != EAGAIN)
            return -errno;
        if (errno == ENOSYS)
            atomic_store(&has_no_openat2, true);
    }
    int fd = openat(dirfd, name, flags);
    struct stat st;
    if (fd == -1)
        return -errno;
    if (fstat(fd, &st) == -1 || st.st_dev != w->dev) {
        (void)close(fd);
        return -EXDEV;
    }
    return fd;
}

static void clear_dir(struct walk *w, int fd, int depth);

/* A directory too deep to enter. Moving it changes its "..", so it must be writable itself. */
static bool move_up(struct walk *w, int dirfd, const char *name)
{
    char to[64];
    for (int tries = 0; tries < 1000; tries++) {
        (void)snprintf(to, sizeof to, ".tony-deep-%d-%u", (int)getpid(), w->moved++);
        if (syscall(SYS_renameat2, dirfd, name, w->root, to, 1 /* RENAME_NOREPLACE */) == 0)
            return true;
        if (errno == EACCES && make_accessible(dirfd, name) == 0)
            continue;
        if (errno == EINVAL && renameat(dirfd, name, w->root, to) == 0)
            return true;
        if (errno != EEXIST)
            break;
    }
    fail(w, errno, name);
    return false;
}

static void remove_dir(struct walk *w, int dirfd, const char *name, int depth)
{
    if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
        w->n_gone++;
        return;
    }
    if (errno != ENOTEMPTY && errno != EEXIST && errno != EACCES && errno != EPERM) {
        fail(w, errno, name);
        return;
    }
    if (depth >= DEPTH_MAX) {
        if (move_up(w, dirfd, name))
            w->n_gone++;
        return;
    }
    int fd = open_below(w, dirfd, name);
    if (fd == -EACCES && make_accessible(dirfd, name) == 0)
        fd = open_below(w, dirfd, name);
    if (fd < 0) {
        if (fd != -ENOENT)
            fail(w, fd == -EXDEV ? EBUSY : -fd, name);
        return;
    }
    clear_dir(w, fd, depth + 1);
    (void)close(fd); /* read only: nothing can be lost */
    if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        w->n_gone++;
    else
        fail(w, errno, name);
}

static void remove_entry(struct walk *w, int dirfd, const char *name, unsigned char type, int depth)
{
    if (type == DT_DIR) {
        remove_dir(w, dirfd, name, depth);
        return;
    }
    int rc = unlinkat(dirfd, name, 0);
    if (rc == -1 &&
        errno == EISDIR) { /* the file system does not tell types, or the entry was exchanged */
        remove_dir(w, dirfd, name, depth);
        return;
    }
    if (rc == 0 || errno == ENOENT)
        w->n_gone++;
    else
        fail(w, errno, name);
}

static void clear_pass(struct walk *w, int fd, int depth)
{
    char batch[BATCH] __attribute__((aligned(__alignof__(struct dirent64))));
    ssize_t got;
    while ((got = getdents64(fd, batch, sizeof batch)) > 0) {
        for (ssize_t at = 0; at < got;) {
            struct dirent64 *d = (struct dirent64 *)(void *)(batch + at);
            at += d->d_reclen;
            if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
                remove_entry(w, fd, d->d_name, d->d_type, depth);
        }
    }
    if (got == -1 && errno != ENOENT)
        fail(w, errno, ".");
}

/* Empty an open directory. File systems may skip entries while others are removed, hence the
 * passes. */
static void clear_dir(struct walk *w, int fd, int depth)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
        (void)fchmod(fd, 0700); /* if it fails, the entries say why */
    for (int pass = 0; pass < PASSES_MAX; pass++) {
        unsigned before = w->n_gone;
        clear_pass(w, fd, depth);
        if (w->n_gone == before || w->num != 0)
            return;
        if (lseek(fd, 0, SEEK_SET) == -1)
            return;
    }
}

int fs_remove_tree(int dirfd, const char *path, struct err *e)
{
    if (unlinkat(dirfd, path, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return err_set(e, errno, "cannot remove '%s': %m", path);
    if (unlinkat(dirfd, path, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST && errno != EACCES && errno != EPERM)
        return err_set(e, errno, "cannot remove '%s': %m", path);

    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY;
    AUTO(close_p) int fd = openat(dirfd, path, flags);
    if (fd == -1 && errno == EACCES && make_accessible(dirfd, path) == 0)
        fd = openat(dirfd, path, flags);
    struct stat st;
    if (fd == -1 || fstat(fd, &st) == -1)
        return errno == ENOENT ? 0 : err_set(e, errno, "cannot remove '%s': %m", path);
    struct walk w = { .root = fd, .dev = st.st_dev };
    clear_dir(&w, fd, 0);
    if (w.num != 0)
        return err_set(e, w.num, "cannot remove '%s': '%s': %m", path, w.name);
    if (unlinkat(dirfd, path, AT_REMOVEDIR) == -1 && errno != ENOENT)
        return err_set(e, errno, "cannot remove '%s': %m", path);
    return 0;
}
