/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver of a tree (treewire.h): makes files and directories of the frames. */
#include "storage/treewire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "proto/tony.pb-c.h"
#include "storage/tree.h"

enum { TEMP_MAX = 32 };

struct tree_receive {
    char *place;   /* for messages */
    int parent_fd; /* the directory of the root */
    char *name;    /* of the root in it; NULL = the content of the root goes into parent_fd */
    int root_fd;   /* the root, if it is a directory and exists already; otherwise -1 */
    bool begun;    /* the root's entry has come */
    bool failed;
    void (*note)(const char *text, void *arg);
    void *arg;
    /* the file that is being received */
    int fd, dir_fd; /* -1 = none; dir_fd: its directory */
    char temp[TEMP_MAX], *file;
    uint64_t left;
    mode_t mode;
    struct timespec mtime;
    uint64_t n_bytes, n_files;
};

static int no_memory(struct err *e)
{
    return err_set(e, ENOMEM, "cannot receive files: %m");
}

/* ---- the place ---- */

/* "a/b/c" -> the directory "a/b" and the name "c". */
static int split(const char *path, char **out_dir, char **out_name)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t at = n;
    while (at > 0 && path[at - 1] != '/')
        at--;
    *out_name = strndup(path + at, n - at);
    *out_dir = at == 0 ? str_dup(".") : strndup(path, MAX(at - 1, (size_t)1));
    return *out_name && *out_dir ? 0 : -ENOMEM;
}

static bool is_name(const char *name)
{
    return *name && !strchr(name, '/') && !str_eq(name, ".") && !str_eq(name, "..");
}

int tree_receive_open(int dirfd, const char *path, const char *name,
                      void (*note)(const char *text, void *arg), void *arg,
                      struct tree_receive **out, struct err *e)
{
    AUTO(free_p) char *dir = NULL;
    AUTO(free_p) char *last = NULL;
    AUTO(close_p) int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd == -1 && errno != ENOENT && errno != ENOTDIR)
        return err_set(e, errno, "cannot write to '%s': %m", path);
    if (*name && !is_name(name))
        return err_set(e, EINVAL, "'%s' is not the name of a file", name);
    bool inside = fd >= 0;
    if (!inside) {
        if (path[0] == '\0' || path[strlen(path) - 1] == '/')
            return err_set(e, ENOENT, "there is no directory '%s'", path);
        if (split(path, &dir, &last) < 0)
            return no_memory(e);
        if (!is_name(last))
            return err_set(e, EINVAL, "'%s' is not the name of a file", path);
        fd = openat(dirfd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd == -1)
            return err_set(e, errno, "cannot write to '%s': %m", dir);
    }
    struct tree_receive *r = calloc(1, sizeof *r);
    if (!r)
        return no_memory(e);
    *r = (struct tree_receive){ .place = str_dup(path),
                                .parent_fd = fd,
                                .root_fd = -1,
                                .fd = -1,
                                .dir_fd = -1,
                                .note = note,
                                .arg = arg };
    fd = -1;
    if (!inside || *name)
        r->name = inside ? str_dup(name) : TAKE(last);
    if (!r->place || ((!inside || *name) && !r->name)) {
        tree_receive_free(r);
        return no_memory(e);
    }
    *out = r;
    return 0;
}

static void drop_file(struct tree_receive *r)
{
    if (r->fd >= 0)
        (void)unlinkat(r->dir_fd, r->temp, 0); /* fails if its directory was removed meanwhile */
    close_p(&r->fd);
    close_p(&r->dir_fd);
    r->fd = r->dir_fd = -1;
    free(TAKE(r->file));
}

void tree_receive_free(struct tree_receive *r)
{
    if (!r)
        return;
    drop_file(r);
    close_p(&r->root_fd);
    close_p(&r->parent_fd);
    free(r->place);
    free(r->name);
    free(r);
}

uint64_t tree_receive_bytes(const struct tree_receive *r)
{
    return r->n_bytes;
}

uint64_t tree_receive_files(const struct tree_receive *r)
{
    return r->n_files;
}

/* ---- paths of the sender ---- */

static bool is_part(struct span part)
{
    return part.len > 0 && part.len <= 255 && !span_eqs(part, ".") && !span_eqs(part, "..") &&
           !memchr(part.p, '\0', part.len);
}

/* Open the directory of a path below the root, one part after the other, so that no symbolic link
 * is followed. *out_name: the last part, which the caller frees. */
static int open_dir_of(const struct tree_receive *r, struct span path, int *out_fd, char **out_name,
                       size_t *out_depth, struct err *e)
{
    struct span rest = path, part, next;
    AUTO(close_p) int fd = fcntl(r->root_fd, F_DUPFD_CLOEXEC, 3);
    *out_depth = 0;
    if (fd == -1)
        return err_set(e, errno, "cannot receive a file: %m");
    if (path.len == 0 || path.len > TREEWIRE_PATH_MAX || !span_split(&rest, '/', &part))
        return err_set(e, EPROTO, "the sender named a file in a way that is not allowed");
    for (;; part = next) {
        if (!is_part(part) || *out_depth > TREEWIRE_DEPTH_MAX)
            return err_set(e, EPROTO, "the sender named a file in a way that is not allowed");
        AUTO(free_p) char *name = span_dup(part);
        if (!name)
            return no_memory(e);
        if (!span_split(&rest, '/', &next)) {
            *out_name = TAKE(name);
            *out_fd = fd;
            fd = -1;
            return 0;
        }
        int below = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below == -1)
            return err_set(e, errno == ENOTDIR ? ELOOP : errno,
                           "cannot write below '%s' in '%s': %m", name, r->place);
        close(fd);
        fd = below;
        ++*out_depth;
    }
}

/* May a link in a directory `depth` levels below the root have this target? ".." is allowed only at
 * the beginning, and only up to the root: after another link it could lead out of the tree. */
static bool is_target(struct span target, size_t depth)
{
    struct span rest = target, part;
    size_t ups = 0;
    bool down = false;
    if (target.len == 0 || target.len >= TREEWIRE_PATH_MAX || target.p[0] == '/' ||
        memchr(target.p, '\0', target.len))
        return false;
    while (span_split(&rest, '/', &part)) {
        if (span_eqs(part, "..")) {
            if (down || ++ups > depth)
                return false;
        } else if (part.len > 0 && !span_eqs(part, ".")) {
            down = true;
        }
    }
    return true;
}

/* ---- entries ---- */

static void say(const struct tree_receive *r, struct span text)
{
    AUTO(free_p) char *s = span_dup(text);
    if (!s || !r->note)
        return;
    str_mask_controls(s);
    r->note(s, r->arg);
}

/* The end of a transfer renames the file to its name. This must not replace a device, a pipe or a
 * socket, nor a link to one: as root, a copy to /dev/null would take it from all programs. */
static int check_no_special(int dir_fd, const char *name, struct err *e)
{
    struct stat st;
    if (fstatat(dir_fd, name, &st, 0) == -1 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
        return 0; /* every other error about the name is reported by the rename */
    return err_set(e, EEXIST, "cannot write '%s': it is %s, which a copy does not replace", name,
                   tree_special_type(st.st_mode));
}

static int begin_file(struct tree_receive *r, int dir_fd, char *name, const Tony__StreamEntry *x,
                      struct err *e)
{
    uint64_t random = 0;
    (void)!getrandom(&random, sizeof random, GRND_NONBLOCK); /* if it fails, O_EXCL still holds */
    (void)snprintf(r->temp, sizeof r->temp, ".tony-%016llx", (unsigned long long)random);
    r->file = name;
    r->dir_fd = dir_fd;
    int rc = check_no_special(dir_fd, name, e);
    if (rc < 0)
        return rc;
    r->fd = openat(dir_fd, r->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (r->fd == -1)
        return err_set(e, errno, "cannot write '%s': %m", name);
    r->left = x->size;
    r->mode = (x->mode & 0777) | 0600;
    r->mtime = (struct timespec){ .tv_sec = x->mtime_ns / 1000000000,
                                  .tv_nsec = x->mtime_ns % 1000000000 };
    return 0;
}

static int end_file(struct tree_receive *r, struct err *e)
{
    const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, r->mtime };
    if (r->mtime.tv_nsec >= 0)
        (void)futimens(r->fd, times); /* else the copy has the present time */
    if (fchmod(r->fd, r->mode) == -1 || close(r->fd) == -1) {
        int rc = err_set(e, errno, "cannot write '%s': %m", r->file);
        drop_file(r);
        return rc;
    }
    r->fd = -1;
    int rc = renameat(r->dir_fd, r->temp, r->dir_fd, r->file) == 0
                 ? 0
                 : err_set(e, errno, "cannot write '%s': %m", r->file);
    if (rc < 0)
        (void)unlinkat(r->dir_fd, r->temp, 0);
    else
        r->n_files++;
    drop_file(r);
    return rc;
}

/* Make a directory, or use the one that is there. */
static int make_dir(int dir_fd, const char *name, uint32_t mode, int *out_fd, struct err *e)
{
    if (mkdirat(dir_fd, name, (mode & 0777) | 0700) == -1 && errno != EEXIST)
        return err_set(e, errno, "cannot make directory '%s': %m", name);
    *out_fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *out_fd == -1 ? err_set(e, errno, "cannot open directory '%s': %m", name) : 0;
}

static int make_link(struct tree_receive *r, int dir_fd, const char *name, size_t depth,
                     const Tony__StreamEntry *x, struct err *e)
{
    struct span target = span_mem(x->target.data, x->target.len);
    AUTO(free_p) char *to = span_dup(target);
    AUTO(free_p)
    char *text =
        str_printf("%s: left out: a link to '%s', outside of the copy", name, to ? to : "");
    if (!to || !text)
        return no_memory(e);
    if (!is_target(target, depth)) {
        say(r, span_of(text));
        return 0;
    }
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
        (void)unlinkat(dir_fd, name, 0); /* replace an older copy */
    return symlinkat(to, dir_fd, name) == 0 ? 0
                                            : err_set(e, errno, "cannot make link '%s': %m", name);
}

static int root_entry(struct tree_receive *r, const Tony__StreamEntry *x, struct err *e)
{
    int fd = fcntl(r->parent_fd, F_DUPFD_CLOEXEC, 3);
    if (fd == -1)
        return err_set(e, errno, "cannot receive a file: %m");
    r->begun = true;
    if (x->kind == TONY__STREAM_ENTRY__KIND__DIRECTORY && !r->name) {
        r->root_fd = fd;
        return 0;
    }
    if (x->kind == TONY__STREAM_ENTRY__KIND__DIRECTORY) {
        int rc = make_dir(fd, r->name, x->mode, &r->root_fd, e);
        close(fd);
        return rc;
    }
    char *name = x->kind == TONY__STREAM_ENTRY__KIND__FILE && r->name ? str_dup(r->name) : NULL;
    if (!name) {
        close(fd);
        return err_set(e, EPROTO, "the sender did not begin with a file or a directory");
    }
    return begin_file(r, fd, name, x, e);
}

static int entry_below(struct tree_receive *r, const Tony__StreamEntry *x, struct err *e)
{
    AUTO(close_p) int dir_fd = -1;
    AUTO(free_p) char *name = NULL;
    size_t depth = 0;
    int below = -1;
    int rc = open_dir_of(r, span_mem(x->path.data, x->path.len), &dir_fd, &name, &depth, e);
    if (rc < 0)
        return rc;
    switch ((int)x->kind) {
    case TONY__STREAM_ENTRY__KIND__FILE: {
        int fd = dir_fd;
        dir_fd = -1;
        return begin_file(r, fd, TAKE(name), x, e);
    }
    case TONY__STREAM_ENTRY__KIND__DIRECTORY:
        rc = make_dir(dir_fd, name, x->mode, &below, e);
        close_p(&below);
        return rc;
    case TONY__STREAM_ENTRY__KIND__SYMLINK:
        return make_link(r, dir_fd, name, depth, x, e);
    default:
        return err_set(e, EPROTO, "the sender sent an entry of an unknown kind");
    }
}

static int on_entry(struct tree_receive *r, struct span payload, struct err *e)
{
    if (r->fd >= 0)
        return err_set(e, EPROTO, "the content of a file is incomplete");
    Tony__StreamEntry *x =
        tony__stream_entry__unpack(NULL, payload.len, (const unsigned char *)payload.p);
    int rc = 0;
    if (!x)
        return err_set(e, EPROTO, "an entry of the sender cannot be read");
    if (!r->begun)
        rc = x->path.len == 0 ? root_entry(r, x, e)
                              : err_set(e, EPROTO, "the first entry is not the root");
    else if (r->root_fd < 0)
        rc = err_set(e, EPROTO, "the sender sent more than the one file");
    else
        rc = entry_below(r, x, e);
    tony__stream_entry__free_unpacked(x, NULL);
    if (rc == 0 && r->fd >= 0 && r->left == 0)
        rc = end_file(r, e);
    return rc;
}

static int on_data(struct tree_receive *r, struct span data, struct err *e)
{
    if (r->fd < 0 || data.len > r->left)
        return err_set(e, EPROTO, "the sender sent more content than it announced");
    int rc = fs_write_all(r->fd, data.p, data.len);
    if (rc < 0)
        return err_set(e, -rc, "cannot write '%s': %m", r->file);
    r->left -= data.len;
    r->n_bytes += data.len;
    return r->left == 0 ? end_file(r, e) : 0;
}

int tree_receive_frame(struct tree_receive *r, enum stream_type type, struct span payload,
                       struct err *e)
{
    int rc = 0;
    if (r->failed)
        return err_set(e, EPROTO, "the transfer has failed already");
    switch ((int)type) {
    case SF_ENTRY:
        rc = on_entry(r, payload, e);
        break;
    case SF_DATA:
        rc = on_data(r, payload, e);
        break;
    case SF_NOTE:
        say(r, payload);
        break;
    case SF_DONE:
        rc = r->fd < 0 && r->begun ? 1 : err_set(e, EPROTO, "the transfer ended too early");
        break;
    case SF_FAILED:
        rc = stream_failed(payload, e);
        break;
    default:
        rc = err_set(e, EPROTO, "the sender sent a frame that is no part of a transfer");
    }
    r->failed = rc < 0;
    return rc;
}
