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

enum { PATH_TEXT_MAX = 64 * 1024 };

struct scan {
    struct tree *tree;
    const char *root; /* for errors */
    bool src_rules;
    const struct strv *leave_out;
    const struct stat *avoid;
    struct buf path; /* below the root */
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

static int list_names(struct scan *s, int fd, struct strv *out)
{
    DIR *dir = fdopendir(fd); /* takes fd when it succeeds */
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
            (s->src_rules && tree_skips(d->d_name)))
            continue;
        if (out->n > STORE_MAX_FILES || strv_push(out, d->d_name) < 0) {
            rc = fail(s, out->n > STORE_MAX_FILES ? EFBIG : ENOMEM);
            break;
        }
    }
    (void)closedir(dir); /* it was only read */
    if (rc == 0 && out->n > 1)
        qsort(out->v, out->n, sizeof *out->v, by_name);
    return rc;
}

static bool later(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

static int check_kind(struct scan *s, const struct stat *st)
{
    const char *path = buf_cstr(&s->path);
    if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode) && !S_ISLNK(st->st_mode)) {
        (void)err_set(s->e, EINVAL, "'%s/%s' is %s and cannot be shipped", s->root, path,
                      tree_odd_kind(st->st_mode));
        return err_hint(s->e, "only files, directories and symbolic links can be shipped");
    }
    if (s->avoid && S_ISDIR(st->st_mode) && st->st_ino == s->avoid->st_ino &&
        st->st_dev == s->avoid->st_dev) {
        (void)err_set(s->e, EINVAL, "'%s' contains TONY_HOME ('%s')", s->root, path);
        return err_hint(s->e, "keep what is to be shipped in a directory of its own");
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
    if (!S_ISDIR(st->st_mode) && later(x.ctime, t->newest))
        t->newest = x.ctime;
    if (t->n > STORE_MAX_FILES)
        return err_set(s->e, EFBIG, "'%s' has more than %u entries", s->root, STORE_MAX_FILES);
    if (t->bytes > STORE_MAX_BYTES)
        return err_set(s->e, EFBIG, "'%s' has more than %llu GB", s->root,
                       (unsigned long long)(STORE_MAX_BYTES >> 30));
    return 0;
}

static int scan_dir(struct scan *s, int fd); /* takes fd */

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
    AUTO(close_p) int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    int rc = list_names(s, fd, &names);
    if (rc == 0 && own == -1)
        rc = fail(s, EMFILE);
    size_t base = s->path.len;
    s->depth++;
    for (size_t i = 0; rc == 0 && i < names.n; i++) {
        if (buf_addf(&s->path, "%s%s", base ? "/" : "", names.v[i]) < 0)
            return fail(s, ENAMETOOLONG);
        if (!tree_leaves_out(s->leave_out, buf_cstr(&s->path)))
            rc = scan_entry(s, own, names.v[i]);
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
              const struct stat *avoid, struct tree *out, struct err *e)
{
    AUTO(tree_done) struct tree t = { 0 };
    AUTO(scan_done)
    struct scan s = { .tree = &t,
                      .root = name,
                      .src_rules = src_rules,
                      .leave_out = leave_out,
                      .avoid = avoid,
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
    /* a directory's own times say nothing that its list of names does not */
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
