/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the entries of a directory tree with their metadata (tree.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "storage/store.h"
#include "storage/tree.h"

enum { PATH_TEXT_MAX = 64 * 1024 }; /* bytes of a path in the tree */

struct scan {
    struct tree *tree;
    const char *root; /* the root's name in error sentences */
    bool src_rules;
    const struct strv *leave_out;
    const struct stat *forbidden; /* a directory that must not be in the tree; may be NULL */
    struct buf path;              /* of the current entry, relative to the root */
    unsigned depth;
    struct err *e;
};

void tree_done(struct tree *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free(t->v[i].path);
        free(t->v[i].target);
    }
    free(t->v);
    *t = (struct tree){ 0 };
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int fail(struct scan *s, int num)
{
    return err_set(s->e, num, "cannot read '%s%s%s': %m", s->root, s->path.len ? "/" : "",
                   buf_cstr(&s->path));
}

/* List the names in a directory, sorted. Takes fd, also on failure. */
static int list_names(struct scan *s, int fd, struct strv *out)
{
    DIR *dir = fdopendir(fd); /* if it succeeds, closedir() closes fd */
    if (!dir) {
        int num = errno;
        (void)close(fd);
        return fail(s, num);
    }
    int rc = 0;
    for (;;) {
        errno = 0;
        const struct dirent *d = readdir(dir);
        if (!d) {
            if (errno)
                rc = fail(s, errno);
            break;
        }
        if (str_eq(d->d_name, ".") || str_eq(d->d_name, "..") ||
            (s->src_rules && tree_skips_in_src(d->d_name)))
            continue;
        if (out->n > STORE_MAX_FILES || strv_push(out, d->d_name) < 0) {
            rc = fail(s, out->n > STORE_MAX_FILES ? EFBIG : ENOMEM);
            break;
        }
    }
    (void)closedir(dir); /* the directory was only read, so no failure can lose data */
    if (rc == 0 && out->n > 1)
        qsort(out->v, out->n, sizeof *out->v, by_name);
    return rc;
}

static bool is_later(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

static int check_kind(struct scan *s, const struct stat *st)
{
    const char *path = buf_cstr(&s->path);
    if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode) && !S_ISLNK(st->st_mode)) {
        (void)err_set(s->e, EINVAL, "'%s/%s' is %s and cannot be shipped", s->root, path,
                      tree_special_type(st->st_mode));
        return err_hint(s->e, "only files, directories and symbolic links can be shipped");
    }
    if (s->forbidden && S_ISDIR(st->st_mode) && st->st_ino == s->forbidden->st_ino &&
        st->st_dev == s->forbidden->st_dev) {
        (void)err_set(s->e, EINVAL, "'%s' contains TONY_HOME ('%s')", s->root, path);
        return err_hint(s->e, "move the files to ship into a directory of their own");
    }
    return 0;
}

static int add_entry(struct scan *s, int dirfd, const char *name, const struct stat *st)
{
    struct tree *t = s->tree;
    int rc = check_kind(s, st);
    if (rc < 0)
        return rc;
    struct tree_entry x = {
        .path = str_dup(buf_cstr(&s->path)),
        .mode = st->st_mode & (S_IFMT | 0777),
        .mtime = st->st_mtim,
        .ctime = st->st_ctim,
        .dev = st->st_dev,
        .ino = st->st_ino,
    };
    if (S_ISLNK(st->st_mode)) {
        char target[PATH_MAX];
        ssize_t n = readlinkat(dirfd, name, target, sizeof target - 1);
        if (n == -1)
            rc = fail(s, errno);
        else
            x.target = span_dup(span_mem(target, (size_t)n));
        if (n != -1 && !x.target)
            rc = fail(s, ENOMEM);
    } else if (S_ISREG(st->st_mode)) {
        x.size = (uint64_t)st->st_size;
    }
    if (rc == 0 && (!x.path || vec_push(t, x) < 0))
        rc = fail(s, ENOMEM);
    if (rc < 0) {
        free(x.path);
        free(x.target);
        return rc;
    }
    t->bytes += x.size;
    t->n_files += !S_ISDIR(st->st_mode);
    if (!S_ISDIR(st->st_mode) && is_later(x.ctime, t->newest))
        t->newest = x.ctime;
    if (t->n > STORE_MAX_FILES)
        return err_set(s->e, EFBIG, "'%s' has more than %u entries", s->root, STORE_MAX_FILES);
    if (t->bytes > STORE_MAX_BYTES)
        return err_set(s->e, EFBIG, "'%s' has more than %llu GB", s->root,
                       (unsigned long long)(STORE_MAX_BYTES >> 30));
    return 0;
}

static int scan_dir(struct scan *s, int fd); /* takes fd, also on failure */

static int scan_entry(struct scan *s, int fd, const char *name)
{
    struct stat st;
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == -1)
        return fail(s, errno);
    int rc = add_entry(s, fd, name, &st);
    if (rc < 0 || !S_ISDIR(st.st_mode))
        return rc;
    int sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (sub == -1)
        return fail(s, errno);
    return scan_dir(s, sub);
}

static int scan_dir(struct scan *s, int fd)
{
    if (s->depth >= STORE_MAX_DEPTH) {
        (void)close(fd);
        return err_set(s->e, EFBIG, "'%s' is more than %u directories deep", s->root,
                       STORE_MAX_DEPTH);
    }
    AUTO(strv_done) struct strv names = { 0 };
    AUTO(close_p) int dir_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* list_names() closes fd */
    int rc = list_names(s, fd, &names);
    if (rc == 0 && dir_fd == -1)
        rc = fail(s, EMFILE);
    size_t base = s->path.len;
    s->depth++;
    for (size_t i = 0; rc == 0 && i < names.n; i++) {
        if (buf_addf(&s->path, "%s%s", base ? "/" : "", names.v[i]) < 0)
            return fail(s, ENAMETOOLONG);
        if (!tree_leaves_out(s->leave_out, buf_cstr(&s->path)))
            rc = scan_entry(s, dir_fd, names.v[i]);
        s->path.len = base;
        s->path.p[base] = '\0';
    }
    s->depth--;
    return rc;
}

static void scan_done(struct scan *s)
{
    buf_done(&s->path);
}

int tree_scan(int root_fd, const char *name, bool src_rules, const struct strv *leave_out,
              const struct stat *forbidden, struct tree *out, struct err *e)
{
    AUTO(tree_done) struct tree t = { 0 };
    AUTO(scan_done)
    struct scan s = { .tree = &t,
                      .root = name,
                      .src_rules = src_rules,
                      .leave_out = leave_out,
                      .forbidden = forbidden,
                      .path.max = PATH_TEXT_MAX,
                      .e = e };
    int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd == -1)
        return err_set(e, errno, "cannot read directory '%s': %m", name);
    int rc = scan_dir(&s, fd);
    if (rc < 0)
        return rc;
    *out = t;
    t = (struct tree){ 0 };
    return 0;
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool same(const struct tree_entry *a, const struct tree_entry *b)
{
    if (a->mode != b->mode || strcmp(a->path, b->path) != 0 || !str_eq(a->target, b->target))
        return false;
    /* Do not compare the times of directories: a change in a directory shows in its names. */
    return S_ISDIR(a->mode) || (a->size == b->size && a->ino == b->ino && a->dev == b->dev &&
                                same_time(a->mtime, b->mtime) && same_time(a->ctime, b->ctime));
}

const char *tree_changed(const struct tree *a, const struct tree *b)
{
    for (size_t i = 0; i < a->n || i < b->n; i++) {
        if (i >= b->n || (i < a->n && !same(&a->v[i], &b->v[i])))
            return a->v[i].path;
        if (i >= a->n)
            return b->v[i].path;
    }
    return NULL;
}
