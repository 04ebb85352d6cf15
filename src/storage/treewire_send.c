/* SPDX-License-Identifier: Apache-2.0 */
/* The sender of a tree (treewire.h): walks the tree and makes frames of it. */
#include "storage/treewire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "proto/tony.pb-c.h"
#include "storage/tree.h"

struct level {
    DIR *dir;
    size_t path_len; /* of the path of this directory */
};

struct tree_send {
    char *name; /* for messages */
    struct level levels[TREEWIRE_DEPTH_MAX];
    size_t depth;
    struct buf path; /* of the present entry, relative to the root */
    int fd;          /* the file whose content is being sent; -1 = none */
    uint64_t left, n_bytes;
    bool begun, over;
    int root_fd;
    struct stat root;
};

static int no_memory(struct err *e)
{
    return err_set(e, ENOMEM, "cannot send files: %m");
}

int tree_send_open(int dirfd, const char *path, struct tree_send **out, struct err *e)
{
    struct stat st;
    /* O_NONBLOCK: the open of a pipe would wait for its other end */
    AUTO(close_p) int fd = openat(dirfd, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd == -1 || fstat(fd, &st) == -1)
        return err_set(e, errno, "cannot read '%s': %m", path);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return err_set(e, EINVAL, "'%s' is %s: only files and directories can be copied", path,
                       tree_special_type(st.st_mode));
    struct tree_send *s = calloc(1, sizeof *s);
    if (!s || !(s->name = str_dup(path))) {
        free(s);
        return no_memory(e);
    }
    s->fd = -1;
    s->root_fd = fd;
    s->root = st;
    s->path.max = TREEWIRE_PATH_MAX + 1;
    fd = -1;
    *out = s;
    return 0;
}

void tree_send_free(struct tree_send *s)
{
    if (!s)
        return;
    while (s->depth)
        (void)closedir(s->levels[--s->depth].dir);
    close_p(&s->fd);
    close_p(&s->root_fd);
    buf_done(&s->path);
    free(s->name);
    free(s);
}

uint64_t tree_send_bytes(const struct tree_send *s)
{
    return s->n_bytes;
}

/* ---- frames ---- */

static ProtobufCBinaryData bytes_of(const char *p, size_t n)
{
    return (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)p, .len = n };
}

static int add_entry(struct tree_send *s, int kind, const struct stat *st, const char *target,
                     struct buf *out, struct err *e)
{
    Tony__StreamEntry x = TONY__STREAM_ENTRY__INIT;
    x.kind = (Tony__StreamEntry__Kind)kind;
    x.path = bytes_of(buf_cstr(&s->path), s->path.len);
    x.mode = st->st_mode & 0777;
    x.size = kind == TONY__STREAM_ENTRY__KIND__FILE ? (uint64_t)st->st_size : 0;
    x.mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    if (target)
        x.target = bytes_of(target, strlen(target));
    unsigned char packed[2 * TREEWIRE_PATH_MAX + 128];
    if (tony__stream_entry__get_packed_size(&x) > sizeof packed)
        return err_set(e, ENAMETOOLONG, "cannot send '%s/%s': %m", s->name, buf_cstr(&s->path));
    return stream_add(out, SF_ENTRY, packed, tony__stream_entry__pack(&x, packed)) < 0
               ? no_memory(e)
               : 0;
}

static int add_note(struct tree_send *s, const char *what, struct buf *out, struct err *e)
{
    AUTO(free_p) char *text = str_printf("%s/%s: left out: %s", s->name, buf_cstr(&s->path), what);
    return !text || stream_add(out, SF_NOTE, text, strlen(text)) < 0 ? no_memory(e) : 0;
}

/* ---- the walk ---- */

static int enter(struct tree_send *s, int fd, struct err *e)
{
    if (s->depth == TREEWIRE_DEPTH_MAX) {
        close(fd);
        return err_set(e, ELOOP, "'%s/%s' is more than %d directories deep", s->name,
                       buf_cstr(&s->path), TREEWIRE_DEPTH_MAX);
    }
    DIR *d = fdopendir(fd);
    if (!d) {
        int num = errno;
        close(fd);
        return err_set(e, num, "cannot read directory '%s/%s': %m", s->name, buf_cstr(&s->path));
    }
    s->levels[s->depth++] = (struct level){ .dir = d, .path_len = s->path.len };
    return 0;
}

static int begin_file(struct tree_send *s, int fd, const struct stat *st, struct buf *out,
                      struct err *e)
{
    int rc = add_entry(s, TONY__STREAM_ENTRY__KIND__FILE, st, NULL, out, e);
    if (rc < 0 || st->st_size == 0) {
        close(fd);
        return rc;
    }
    s->fd = fd;
    s->left = (uint64_t)st->st_size;
    return 0;
}

static int send_open(struct tree_send *s, int fd, struct buf *out, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) == -1) {
        int num = errno;
        close(fd);
        return err_set(e, num, "cannot read '%s/%s': %m", s->name, buf_cstr(&s->path));
    }
    if (S_ISREG(st.st_mode))
        return begin_file(s, fd, &st, out, e);
    if (!S_ISDIR(st.st_mode)) {
        close(fd);
        return add_note(s, tree_special_type(st.st_mode), out, e);
    }
    int rc = add_entry(s, TONY__STREAM_ENTRY__KIND__DIRECTORY, &st, NULL, out, e);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    return enter(s, fd, e);
}

static int send_link(struct tree_send *s, int dirfd, const char *name, const struct stat *st,
                     struct buf *out, struct err *e)
{
    char target[TREEWIRE_PATH_MAX];
    ssize_t n = readlinkat(dirfd, name, target, sizeof target - 1);
    if (n == -1)
        return add_note(s, "the link cannot be read", out, e);
    target[n] = '\0';
    return add_entry(s, TONY__STREAM_ENTRY__KIND__SYMLINK, st, target, out, e);
}

static int send_child(struct tree_send *s, struct level *l, const char *name, struct buf *out,
                      struct err *e)
{
    struct stat st;
    int dir = dirfd(l->dir);
    s->path.len = l->path_len;
    if ((l->path_len && buf_addc(&s->path, '/') < 0) || buf_adds(&s->path, name) < 0)
        return err_set(e, ENAMETOOLONG, "cannot send a file in '%s': %m", s->name);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == -1)
        return errno == ENOENT ? 0 : add_note(s, "it cannot be read", out, e);
    if (S_ISLNK(st.st_mode))
        return send_link(s, dir, name, &st, out, e);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return add_note(s, tree_special_type(st.st_mode), out, e);
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd == -1)
        return add_note(s, strerror(errno), out, e);
    return send_open(s, fd, out, e);
}

static int send_content(struct tree_send *s, struct buf *out, struct err *e)
{
    size_t want = (size_t)MIN(s->left, (uint64_t)STREAM_DATA_MAX - STREAM_HEADER);
    char *at = buf_reserve(out, STREAM_HEADER + want);
    if (!at)
        return no_memory(e);
    ssize_t n;
    do
        n = read(s->fd, at + STREAM_HEADER, want);
    while (n == -1 && errno == EINTR);
    if (n <= 0)
        return err_set(e, n == 0 ? EIO : errno,
                       n == 0 ? "'%s/%s' became shorter while it was copied"
                              : "cannot read '%s/%s': %m",
                       s->name, buf_cstr(&s->path));
    stream_header(SF_DATA, (size_t)n, (unsigned char *)at);
    buf_commit(out, STREAM_HEADER + (size_t)n);
    s->left -= (uint64_t)n;
    s->n_bytes += (uint64_t)n;
    if (s->left == 0) {
        close_p(&s->fd);
        s->fd = -1;
    }
    return 0;
}

static int step(struct tree_send *s, struct buf *out, struct err *e)
{
    if (s->fd >= 0)
        return send_content(s, out, e);
    if (!s->begun) {
        s->begun = true;
        int fd = s->root_fd;
        s->root_fd = -1;
        return send_open(s, fd, out, e);
    }
    if (s->depth == 0) {
        s->over = true;
        return stream_add(out, SF_DONE, NULL, 0) < 0 ? no_memory(e) : 0;
    }
    struct level *l = &s->levels[s->depth - 1];
    const struct dirent *x = readdir(l->dir);
    if (!x) {
        (void)closedir(l->dir);
        s->depth--;
        return 0;
    }
    if (str_eq(x->d_name, ".") || str_eq(x->d_name, ".."))
        return 0;
    return send_child(s, l, x->d_name, out, e);
}

int tree_send_next(struct tree_send *s, struct buf *out, struct err *e)
{
    size_t from = out->len;
    int rc = 0;
    while (rc == 0 && !s->over && out->len - from < STREAM_DATA_MAX / 2)
        rc = step(s, out, e);
    return rc < 0 ? rc : !s->over;
}
