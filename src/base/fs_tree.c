/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs_remove_tree(): removes a tree of any depth with a bounded number of descriptors, a bounded
 * stack and no heap memory.
 *
 * The walk holds one open descriptor for each level. It does not enter a directory that lies deeper
 * than DEPTH_MAX levels, but moves it into the root of the tree that is being removed. A later pass
 * over the root finds it there and removes it.
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
    DEPTH_MAX = 40, /* open descriptors at most; bounds the stack, too: DEPTH_MAX * BATCH bytes */
    BATCH = 4096,   /* bytes of directory entries per getdents64() */
    /* Passes over one directory, as long as each pass removes something. Each pass may move more
     * directories up into the root, which the next pass then removes. */
    PASSES_MAX = 100000,
};

struct walk {
    int root;         /* descriptor of the tree's root: directories that lie too deep move there */
    dev_t dev;        /* file system of the root; the walk does not leave it */
    unsigned n_moved; /* directories moved to the root so far; makes their names unique */
    unsigned n_removed; /* entries removed or moved; if it stays equal, a pass made no progress */
    int num;            /* errno of the first failure; 0 = none */
    char name[256];     /* the entry at which the first failure happened */
};

static void note_failure(struct walk *w, int num, const char *name)
{
    if (w->num != 0)
        return;
    w->num = num;
    (void)snprintf(w->name, sizeof w->name, "%s", name);
}

/* Set mode 0700 on a directory that lacks read, write or search permission. O_PATH needs none of
 * these, and O_NOFOLLOW keeps the change off the target of a symbolic link. */
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

/* Open a directory if it is on the same file system. -EXDEV: it is a mount point. openat2() also
 * detects a bind mount, which has the same device number. Kernels before 5.6 lack openat2(); there
 * only the device number is compared. */
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

/* Move a directory that lies too deep into the root. Moving changes the directory's ".." entry, so
 * the kernel demands write permission on the directory itself. */
static bool move_up(struct walk *w, int dirfd, const char *name)
{
    char to[64];
    for (int tries = 0; tries < 1000; tries++) {
        (void)snprintf(to, sizeof to, ".tony-deep-%d-%u", (int)getpid(), w->n_moved++);
        if (syscall(SYS_renameat2, dirfd, name, w->root, to, 1 /* RENAME_NOREPLACE */) == 0)
            return true;
        if (errno == EACCES && make_accessible(dirfd, name) == 0)
            continue;
        if (errno == EINVAL && renameat(dirfd, name, w->root, to) == 0)
            return true;
        if (errno != EEXIST)
            break;
    }
    note_failure(w, errno, name);
    return false;
}

static void remove_dir(struct walk *w, int dirfd, const char *name, int depth)
{
    if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
        w->n_removed++;
        return;
    }
    if (errno != ENOTEMPTY && errno != EEXIST && errno != EACCES && errno != EPERM) {
        note_failure(w, errno, name);
        return;
    }
    if (depth >= DEPTH_MAX) {
        if (move_up(w, dirfd, name))
            w->n_removed++;
        return;
    }
    int fd = open_below(w, dirfd, name);
    if (fd == -EACCES && make_accessible(dirfd, name) == 0)
        fd = open_below(w, dirfd, name);
    if (fd < 0) {
        if (fd != -ENOENT)
            note_failure(w, fd == -EXDEV ? EBUSY : -fd, name);
        return;
    }
    clear_dir(w, fd, depth + 1);
    (void)close(fd); /* nothing was written through fd, so close() cannot report lost data */
    if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        w->n_removed++;
    else
        note_failure(w, errno, name);
}

static void remove_entry(struct walk *w, int dirfd, const char *name, unsigned char type, int depth)
{
    if (type == DT_DIR) {
        remove_dir(w, dirfd, name, depth);
        return;
    }
    int rc = unlinkat(dirfd, name, 0);
    /* The file system reports no types (DT_UNKNOWN), or another process has replaced the
     * entry since getdents64(). */
    if (rc == -1 && errno == EISDIR) {
        remove_dir(w, dirfd, name, depth);
        return;
    }
    if (rc == 0 || errno == ENOENT)
        w->n_removed++;
    else
        note_failure(w, errno, name);
}

static void clear_dir_once(struct walk *w, int fd, int depth)
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
        note_failure(w, errno, ".");
}

/* Empty an open directory, in passes: a file system may skip entries of a listing while others are
 * removed. */
static void clear_dir(struct walk *w, int fd, int depth)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
        (void)fchmod(fd, 0700); /* if this fails, removing the entries fails and is reported */
    for (int pass = 0; pass < PASSES_MAX; pass++) {
        unsigned before = w->n_removed;
        clear_dir_once(w, fd, depth);
        if (w->n_removed == before || w->num != 0)
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
