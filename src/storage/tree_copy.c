/* SPDX-License-Identifier: Apache-2.0 */
/* Copies files and directory trees (tree.h): by reflink or copy_file_range() where the file system
 * has them, else by read() and write(). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "storage/store.h"
#include "storage/tree.h"

enum {
    CHUNK = 128 * 1024,        /* bytes per read() */
    PATH_TEXT_MAX = 64 * 1024, /* bytes of a path in a tree; more than STORE_MAX_DEPTH names need */
};

struct copy {
    const struct tree_copy_opts *opts;
    struct buf path; /* of the entry that is being copied; it begins with the root's name */
    size_t root_len; /* bytes of the root's name */
    bool no_reflink; /* FICLONE has failed once, so it is not tried again */
    bool no_range;   /* copy_file_range() has failed once */
    char *chunk;     /* CHUNK bytes, allocated at the first use */
    unsigned depth;
    struct err *e;
};

static void copy_done(struct copy *c)
{
    buf_done(&c->path);
    free(c->chunk);
}

static void dir_p(DIR **d)
{
    if (*d)
        (void)closedir(*d); /* the directory was only read, so no failure can lose data */
}

bool tree_skips_in_src(const char *name)
{
    return str_eq(name, ".git") || str_eq(name, "__pycache__");
}

const char *tree_special_type(mode_t mode)
{
    return S_ISSOCK(mode) ? "a socket" : S_ISFIFO(mode) ? "a named pipe" : "a device";
}

bool tree_leaves_out(const struct strv *leave_out, const char *path)
{
    for (size_t i = 0; leave_out && i < leave_out->n; i++)
        if (str_eq(leave_out->v[i], path))
            return true;
    return false;
}

static int fail(struct copy *c, int num, const char *what)
{
    (void)err_set(c->e, num, "cannot %s '%s': %m", what, buf_cstr(&c->path));
    return fs_hint_room(-num, c->e);
}

static int fail_type(struct copy *c, mode_t mode)
{
    (void)err_set(c->e, EINVAL, "'%s' is %s and cannot be copied", buf_cstr(&c->path),
                  tree_special_type(mode));
    return err_hint(c->e, "only files, directories and symbolic links can be shipped");
}

/* ---- content ---- */

/* Copy the content from offset `at` on by read() and write(). */
static int copy_by_write(struct copy *c, int from, int to, off_t at)
{
    if (!c->chunk && !(c->chunk = malloc(CHUNK)))
        return fail(c, ENOMEM, "copy");
    for (;;) {
        ssize_t n = pread(from, c->chunk, CHUNK, at);
        if (n == -1 && errno == EINTR)
            continue;
        if (n == -1)
            return fail(c, errno, "read");
        if (n == 0)
            return 0;
        int rc = fs_write_all(to, c->chunk, (size_t)n);
        if (rc < 0)
            return fail(c, -rc, "write a copy of");
        at += n;
    }
}

/* Does errno num mean that this way of copying does not work for these two files? Then another way
 * is tried. Any other error is a failure. */
static bool is_unsupported(int num)
{
    return num == EXDEV || num == ENOSYS || num == EINVAL || num == EOPNOTSUPP || num == ENOTTY ||
           num == EBADF || num == EPERM || num == ETXTBSY || num == EISDIR;
}

static int copy_content(struct copy *c, int from, int to, off_t size)
{
    if (!c->no_reflink && size > 0) {
        if (ioctl(to, FICLONE, from) == 0)
            return 0;
        if (!is_unsupported(errno))
            return fail(c, errno, "write a copy of");
        c->no_reflink = true;
    }
    off_t at = 0;
    while (!c->no_range && at < size) {
        size_t left = (size_t)(size - at);
        ssize_t n = copy_file_range(from, &at, to, NULL, MIN(left, (size_t)1 << 30), 0);
        if (n == 0)
            break;
        if (n == -1 && errno != EINTR) {
            if (!is_unsupported(errno))
                return fail(c, errno, "write a copy of");
            c->no_range = true;
        }
    }
    /* Also read a file of size 0: files in /proc report this size although they have content. */
    return at == size && size > 0 ? 0 : copy_by_write(c, from, to, at);
}

static mode_t file_mode(const struct copy *c, mode_t mode)
{
    mode_t owner_write = c->opts->writable ? 0200 : 0;
    return c->opts->read_only ? mode & 0777 & ~(mode_t)0222 : (mode & 0777) | owner_write;
}

static int copy_file(struct copy *c, int from, const struct stat *st, int to_dirfd,
                     const char *to_name)
{
    AUTO(close_p)
    int to = openat(to_dirfd, to_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    (mode_t)0600);
    if (to == -1)
        return fail(c, errno, "write a copy of");
    int rc = copy_content(c, from, to, st->st_size);
    if (rc < 0)
        return rc;
    const struct timespec times[2] = { st->st_mtim, st->st_mtim };
    if (futimens(to, times) == -1 || fchmod(to, file_mode(c, st->st_mode)) == -1)
        return fail(c, errno, "write a copy of");
    if (c->opts->write_out)
        /* Only starts writing. The store waits for the end later, and reports errors then. */
        (void)sync_file_range(to, 0, 0, SYNC_FILE_RANGE_WRITE);
    int fd = to;
    to = -1;
    if (close(fd) == -1) /* network file systems report a full disk at close() */
        return fail(c, errno, "write a copy of");
    return 0;
}

int tree_copy_file(int from_fd, const struct stat *st, const char *name, int to_dirfd,
                   const char *to_name, const struct tree_copy_opts *opts, struct err *e)
{
    AUTO(copy_done)
    struct copy c = { .opts = opts, .path.max = PATH_TEXT_MAX, .e = e };
    if (buf_adds(&c.path, name) < 0)
        return err_set(e, ENOMEM, "cannot copy '%s': %m", name);
    return copy_file(&c, from_fd, st, to_dirfd, to_name);
}

/* ---- entries ---- */

static int copy_link(struct copy *c, int from_dirfd, const char *name, int to_dirfd)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(from_dirfd, name, target, sizeof target - 1);
    if (n == -1)
        return fail(c, errno, "read");
    target[n] = '\0';
    return symlinkat(target, to_dirfd, name) == -1 ? fail(c, errno, "write a copy of") : 0;
}

static int copy_dir(struct copy *c, int from_fd, int to_fd);

/* Copy a directory below the root. Its mode is set last, since it may forbid writing into it. */
static int copy_subdir(struct copy *c, int from, const struct stat *st, int to_dirfd,
                       const char *name)
{
    if (++c->depth > STORE_MAX_DEPTH)
        return err_set(c->e, EFBIG, "'%s' is more than %u directories deep", buf_cstr(&c->path),
                       STORE_MAX_DEPTH);
    if (mkdirat(to_dirfd, name, 0700) == -1 && errno != EEXIST)
        return fail(c, errno, "write a copy of");
    AUTO(close_p) int to = openat(to_dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (to == -1)
        return fail(c, errno, "write a copy of");
    int rc = copy_dir(c, from, to);
    mode_t mode = c->opts->read_only ? (st->st_mode & 0555) | 0500 : (st->st_mode & 0777) | 0700;
    if (rc == 0 && fchmod(to, mode) == -1)
        rc = fail(c, errno, "write a copy of");
    c->depth--;
    return rc;
}

static int copy_entry(struct copy *c, int from_dirfd, const struct dirent *d, int to_dirfd)
{
    if (d->d_type == DT_LNK)
        return copy_link(c, from_dirfd, d->d_name, to_dirfd);
    /* O_NONBLOCK: without it, opening a named pipe waits for a writer. */
    AUTO(close_p)
    int from =
        openat(from_dirfd, d->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    struct stat st;
    if (from == -1 && errno == ELOOP)
        return copy_link(c, from_dirfd, d->d_name, to_dirfd);
    if (from == -1 && errno == ENXIO &&
        fstatat(from_dirfd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return fail_type(c, st.st_mode);
    if (from == -1)
        return fail(c, errno, "read");
    if (fstat(from, &st) == -1)
        return fail(c, errno, "read");
    if (S_ISREG(st.st_mode))
        return copy_file(c, from, &st, to_dirfd, d->d_name);
    if (S_ISDIR(st.st_mode))
        return copy_subdir(c, from, &st, to_dirfd, d->d_name);
    return fail_type(c, st.st_mode);
}

static int copy_dir(struct copy *c, int from_fd, int to_fd)
{
    int list_fd = openat(from_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO(dir_p) DIR *dir = list_fd == -1 ? NULL : fdopendir(list_fd);
    if (!dir) {
        int num = errno;
        close_p(&list_fd);
        return fail(c, num, "read");
    }
    size_t base = c->path.len;
    for (;;) {
        errno = 0;
        const struct dirent *d = readdir(dir);
        if (!d)
            return errno ? fail(c, errno, "read") : 0;
        if (str_eq(d->d_name, ".") || str_eq(d->d_name, "..") ||
            (c->opts->src_rules && tree_skips_in_src(d->d_name)))
            continue;
        if (buf_addf(&c->path, "/%s", d->d_name) < 0)
            return err_set(c->e, ENAMETOOLONG, "cannot copy '%s': %m", buf_cstr(&c->path));
        bool left_out = tree_leaves_out(c->opts->leave_out, buf_cstr(&c->path) + c->root_len + 1);
        int rc = left_out ? 0 : copy_entry(c, dirfd(dir), d, to_fd);
        if (rc < 0)
            return rc;
        c->path.len = base;
        c->path.p[base] = '\0';
    }
}

int tree_copy_fd(int from_fd, const char *name, int to_fd, const struct tree_copy_opts *opts,
                 struct err *e)
{
    AUTO(copy_done)
    struct copy c = { .opts = opts, .path.max = PATH_TEXT_MAX, .e = e };
    if (buf_adds(&c.path, name) < 0)
        return err_set(e, ENOMEM, "cannot copy '%s': %m", name);
    c.root_len = c.path.len;
    return copy_dir(&c, from_fd, to_fd);
}

int tree_copy(const char *from, int to_dirfd, struct err *e)
{
    AUTO(close_p) int fd = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd == -1)
        return err_set(e, errno, "cannot open directory '%s': %m", from);
    const struct tree_copy_opts opts = { 0 };
    return tree_copy_fd(fd, from, to_dirfd, &opts, e);
}
