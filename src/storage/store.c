/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "storage/relocate.h"
#include "storage/store_int.h"
#include "storage/tree.h"

enum {
    TRIES = 3,      /* attempts to store a source that changes while it is read */
    PAUSE_MS = 100, /* between two attempts; there is no event to wait for */
    /* If a file is changed within the same tick of the file system's clock in which it was read,
     * its metadata stays equal. So a source that was changed less than FRESH_MS ago is not added to
     * the cache. */
    FRESH_MS = 2000,
};

/* ---- opening ---- */

int store_open(const char *store_dir, struct store **out, struct err *e)
{
    struct store *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ENOMEM, "cannot open the store: %m");
    *s = (struct store){ .dir = str_dup(store_dir), .fd = -1, .lock_fd = -1 };
    s->fd = open(store_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = 0;
    if (s->fd == -1)
        rc = err_set(e, errno, "cannot open the store '%s': %m", store_dir);
    else if (!s->dir)
        rc = err_set(e, ENOMEM, "cannot open the store: %m");
    if (rc == 0) {
        s->lock_fd = openat(s->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (s->lock_fd == -1 ||
            (flock(s->lock_fd, LOCK_SH) == -1 && errno != ENOLCK && errno != EOPNOTSUPP))
            rc = err_set(e, errno, "cannot lock the store '%s': %m", store_dir);
    }
    if (rc < 0) {
        store_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void store_free(struct store *s)
{
    if (!s)
        return;
    close_p(&s->fd);
    close_p(&s->lock_fd);
    free(s->dir);
    free(s);
}

void store_on_copy(struct store *s, void (*fn)(const char *source, uint64_t bytes, void *arg),
                   void *arg)
{
    s->on_copy = fn;
    s->on_copy_arg = arg;
}

void temp_name(char out[48])
{
    uint64_t r = 0;
    if (getrandom(&r, sizeof r, 0) != (ssize_t)sizeof r)
        r = (uint64_t)clock_mono_us();
    (void)snprintf(out, 48, ".tmp-%d-%016llx", (int)getpid(), (unsigned long long)r);
}

/* ---- storing one item ---- */

struct put {
    struct store *s;
    struct ship_item *item;
    struct err *e;
    int source_fd;
    struct stat st;              /* of the source */
    char *real;                  /* real path of the source */
    char source_key[DIGEST_HEX]; /* cache_row.source */
    bool src_rules, read_only;
    struct tree before;        /* metadata of the source, before its content was read */
    char metadata[DIGEST_HEX]; /* digest of `before` */
    char temp[48];             /* name of the incomplete entry; "" = there is none */
    int temp_fd;
};

static void put_done(struct put *p)
{
    if (p->temp[0])
        (void)fs_remove_tree(p->s->fd, p->temp, NULL); /* if this fails, temp_sweep() removes it */
    close_p(&p->temp_fd);
    close_p(&p->source_fd);
    tree_done(&p->before);
    free(p->real);
}

static int write_failed(struct err *e, int num, const char *source)
{
    (void)err_set(e, num, "cannot write '%s' to the store: %m", source);
    return fs_hint_room(-num, e);
}

static int open_source(struct put *p)
{
    const char *source = p->item->source;
    p->source_fd = open(source, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (p->source_fd == -1 || fstat(p->source_fd, &p->st) == -1)
        return err_set(p->e, errno, "cannot open '%s': %m", source);
    if (!S_ISDIR(p->st.st_mode) && !S_ISREG(p->st.st_mode)) {
        (void)err_set(p->e, EINVAL, "'%s' is neither a file nor a directory", source);
        return err_hint(p->e, "only files, directories and symbolic links can be shipped");
    }
    p->real = realpath(source, NULL);
    if (!p->real)
        return err_set(p->e, errno, "cannot resolve '%s': %m", source);
    return digest_text(p->item->python ? "python" : ship_kind_name(p->item->kind), p->real,
                       p->source_key) < 0
               ? err_set(p->e, EIO, "cannot digest '%s'", source)
               : 0;
}

/* List the metadata of the source: of a tree, or of a single file. */
static int list_source(struct put *p, struct tree *out)
{
    struct stat home;
    if (S_ISDIR(p->st.st_mode)) {
        bool avoid = fstatat(p->s->fd, "..", &home, 0) == 0;
        if (avoid && home.st_ino == p->st.st_ino && home.st_dev == p->st.st_dev) {
            (void)err_set(p->e, EINVAL,
                          "cannot ship '%s': it is TONY_HOME, where tony keeps its own files",
                          p->item->source);
            return err_hint(p->e, "move the files to ship into a directory of their own");
        }
        return tree_scan(p->source_fd, p->item->source, p->src_rules, &p->item->leave_out,
                         avoid ? &home : NULL, out, p->e);
    }
    struct stat st;
    if (stat(p->real, &st) == -1)
        return err_set(p->e, errno, "cannot read '%s': %m", p->item->source);
    struct tree_entry x = { .path = str_dup(""),
                            .mode = st.st_mode & (S_IFMT | 0777),
                            .size = (uint64_t)st.st_size,
                            .mtime = st.st_mtim,
                            .ctime = st.st_ctim,
                            .dev = st.st_dev,
                            .ino = st.st_ino };
    *out = (struct tree){ .bytes = x.size, .n_files = 1, .newest = x.ctime };
    if (!x.path || vec_push(out, x) < 0) {
        free(x.path);
        return err_set(p->e, ENOMEM, "cannot read '%s': %m", p->item->source);
    }
    if (x.size > STORE_MAX_BYTES)
        return err_set(p->e, EFBIG, "'%s' has more than %llu GB", p->item->source,
                       (unsigned long long)(STORE_MAX_BYTES >> 30));
    return 0;
}

static int entry_exists(const struct put *p, const char *entry)
{
    return faccessat(p->s->fd, entry, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Record in the item that `entry` is its entry in the store. */
static int set_item_entry(struct put *p, const char *entry, uint64_t bytes, uint32_t n_files)
{
    struct ship_item *item = p->item;
    /* Set the time of the last use. This may fail in a read-only store, whose entries are
     * nevertheless valid. */
    (void)utimensat(p->s->fd, entry, NULL, AT_SYMLINK_NOFOLLOW);
    char *digest = str_dup(entry + 2), *path = fs_join(p->s->dir, entry);
    if (!digest || !path) {
        free(digest);
        free(path);
        return err_set(p->e, ENOMEM, "cannot ship '%s': %m", item->source);
    }
    free(item->digest);
    free(item->path);
    item->digest = digest;
    item->path = path;
    item->bytes = bytes;
    item->n_files = n_files;
    return 0;
}

static int make_temp(struct put *p, bool directory)
{
    temp_sweep(p->s);
    temp_name(p->temp);
    if (directory && mkdirat(p->s->fd, p->temp, 0700) == 0)
        p->temp_fd = openat(p->s->fd, p->temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    else if (!directory)
        p->temp_fd = openat(p->s->fd, p->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (p->temp_fd == -1)
        return write_failed(p->e, errno, p->item->source);
    (void)flock(p->temp_fd, LOCK_EX | LOCK_NB); /* temp_sweep() of another client skips it now */
    return 0;
}

/* Rename the complete entry to its final name. If another client has made the same entry meanwhile,
 * use that one. */
static int publish(struct put *p, const char *entry)
{
    if (fsync(p->temp_fd) == -1)
        return write_failed(p->e, errno, p->item->source);
    if (entry_exists(p, entry))
        return 0; /* put_done() removes the copy that this client made */
    if (renameat(p->s->fd, p->temp, p->s->fd, entry) == -1) {
        if ((errno == ENOTEMPTY || errno == EEXIST) && entry_exists(p, entry))
            return 0;
        return write_failed(p->e, errno, p->item->source);
    }
    p->temp[0] = '\0';
    return fsync(p->s->fd) == -1 ? write_failed(p->e, errno, p->item->source) : 0;
}

/* ---- kinds ---- */

/* The kind for the digest. A Python environment is relocated in the store, so its entry differs
 * from that of a plain directory or archive with the same content. */
static const char *content_kind(const struct put *p, const char *src, const char *other)
{
    return p->src_rules ? src : p->item->python ? "python" : other;
}

static int relocate(struct put *p)
{
    if (!p->item->python)
        return 0;
    int rc = python_relocate(p->temp_fd, p->item->source, p->e);
    return rc > 0 && syncfs(p->s->fd) == -1 ? write_failed(p->e, errno, p->item->source)
                                            : MIN(rc, 0);
}

/* The next three make the entry under its temporary name and write its final name to `entry`. */

static int store_tree(struct put *p, char entry[ENTRY_MAX])
{
    const struct tree_copy_opts opts = { .src_rules = p->src_rules,
                                         .leave_out = &p->item->leave_out,
                                         .read_only = p->read_only,
                                         .write_out = true };
    char digest[DIGEST_HEX];
    int rc = make_temp(p, true);
    if (rc == 0)
        rc = tree_copy_fd(p->source_fd, p->item->source, p->temp_fd, &opts, p->e);
    /* Read the copy, not the source: even if the source changes meanwhile, the digest is that of
     * the entry's content. */
    if (rc == 0)
        rc = digest_tree(content_kind(p, "src", "dir"), &p->before, p->temp_fd, p->item->source,
                         digest, p->e);
    if (rc == 0)
        rc = relocate(p);
    if (rc == 0 && p->read_only && fchmod(p->temp_fd, 0555) == -1)
        rc = write_failed(p->e, errno, p->item->source);
    if (rc == 0)
        (void)snprintf(entry, ENTRY_MAX, "d-%s", digest);
    return rc;
}

static int store_file(struct put *p, char entry[ENTRY_MAX])
{
    const struct tree_copy_opts opts = { .read_only = true, .write_out = true };
    char digest[DIGEST_HEX];
    temp_sweep(p->s);
    temp_name(p->temp);
    int rc = tree_copy_file(p->source_fd, &p->st, p->item->source, p->s->fd, p->temp, &opts, p->e);
    if (rc == 0) {
        p->temp_fd = openat(p->s->fd, p->temp, O_RDONLY | O_CLOEXEC);
        rc = p->temp_fd == -1
                 ? write_failed(p->e, errno, p->item->source)
                 : digest_file("file", p->st.st_mode, p->temp_fd, p->item->source, digest, p->e);
    }
    if (rc == 0)
        (void)snprintf(entry, ENTRY_MAX, "f-%s", digest);
    return rc;
}

static int store_archive(struct put *p, char entry[ENTRY_MAX], uint64_t *out_bytes,
                         uint32_t *out_files)
{
    char digest[DIGEST_HEX];
    int rc = digest_file(content_kind(p, "src archive", "archive"), 0, p->source_fd,
                         p->item->source, digest, p->e);
    if (rc == 0)
        rc = make_temp(p, true);
    if (rc < 0)
        return rc;
    (void)snprintf(entry, ENTRY_MAX, "d-%s", digest);
    AUTO(free_p) char *dir = fs_join(p->s->dir, p->temp);
    if (!dir)
        return err_set(p->e, ENOMEM, "cannot unpack '%s': %m", p->item->source);
    rc = pack_unpack(p->real, dir, out_bytes, out_files, p->e);
    if (rc == 0)
        rc = relocate(p);
    if (rc == 0 && p->read_only)
        rc = tree_read_only(p->temp_fd, p->item->source, p->e);
    if (rc == 0 && syncfs(p->s->fd) == -1)
        rc = write_failed(p->e, errno, p->item->source);
    return rc;
}

static bool is_fresh(struct timespec t)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    int64_t age_ms = (now.tv_sec - t.tv_sec) * 1000 + (now.tv_nsec - t.tv_nsec) / 1000000;
    return age_ms < FRESH_MS;
}

/* One attempt to store the source. -EBUSY: the source changed meanwhile. */
static int put_once(struct put *p)
{
    struct cache_row row = { 0 };
    int rc = list_source(p, &p->before);
    if (rc < 0)
        return rc;
    if (digest_metadata(&p->before, p->metadata) < 0)
        return err_set(p->e, EIO, "cannot compute the digest of '%s'", p->item->source);
    bool cacheable = !is_fresh(p->before.newest);
    if (cache_find(p->s, p->source_key, p->metadata, &row) && entry_exists(p, row.entry))
        return set_item_entry(p, row.entry, row.bytes, row.n_files);

    if (p->s->on_copy)
        p->s->on_copy(p->item->source, p->before.bytes, p->s->on_copy_arg);
    row.bytes = p->before.bytes;
    row.n_files = p->before.n_files;
    if (S_ISDIR(p->st.st_mode))
        rc = store_tree(p, row.entry);
    else if (p->item->kind == SHIP_FILE)
        rc = store_file(p, row.entry);
    else
        rc = store_archive(p, row.entry, &row.bytes, &row.n_files);
    if (rc < 0 && rc != -ENOENT)
        return rc;

    /* -ENOENT: a file disappeared between listing and copying, which the comparison below reports
     * as a change. Until then, *p->e must keep the first error. */
    AUTO(tree_done) struct tree after = { 0 };
    struct err list_err = { 0 };
    struct err *caller_err = p->e;
    p->e = rc < 0 ? &list_err : caller_err;
    int list_rc = list_source(p, &after);
    p->e = caller_err;
    if (list_rc < 0)
        return rc < 0 ? rc : list_rc;
    const char *changed = tree_changed(&p->before, &after);
    if (changed) {
        (void)err_set(p->e, EBUSY, "'%s%s%s' is being changed while it is copied", p->item->source,
                      *changed ? "/" : "", changed);
        return err_hint(p->e, "ship only files that no program is writing");
    }
    if (rc == 0)
        rc = publish(p, row.entry);
    if (rc < 0)
        return rc;
    if (cacheable) {
        memcpy(row.source, p->source_key, sizeof row.source);
        memcpy(row.metadata, p->metadata, sizeof row.metadata);
        cache_add(p->s, &row);
    }
    return set_item_entry(p, row.entry, row.bytes, row.n_files);
}

static int put_in_place(struct ship_item *item, struct err *e)
{
    struct stat st;
    char *real = realpath(item->source, NULL);
    if (!real || stat(real, &st) == -1) {
        int num = errno;
        free(real);
        return err_set(e, num, "cannot open '%s': %m", item->source);
    }
    if (!S_ISDIR(st.st_mode)) {
        free(real);
        return err_set(e, ENOTDIR, "'%s' is not a directory", item->source);
    }
    char *digest = str_dup("");
    if (!digest) {
        free(real);
        return err_set(e, ENOMEM, "cannot ship '%s': %m", item->source);
    }
    free(item->path);
    free(item->digest);
    item->path = real;
    item->digest = digest;
    return 0;
}

/* Does the type of the source fit the kind of the item? */
static int check_kind(const struct ship_item *item, mode_t mode, struct err *e)
{
    bool dir = S_ISDIR(mode);
    if (item->kind == SHIP_DIR && !dir)
        return err_set(e, ENOTDIR, "'%s' is not a directory", item->source);
    if (item->kind == SHIP_FILE && dir)
        return err_set(e, EISDIR, "'%s' is a directory", item->source);
    if (item->kind == SHIP_ARCHIVE && dir)
        return err_set(e, EISDIR, "'%s' is a directory, not an archive", item->source);
    if (item->kind <= SHIP_NONE || item->kind > SHIP_IN_PLACE)
        return err_set(e, EINVAL, "cannot ship '%s': unknown kind %d", item->source,
                       (int)item->kind);
    return 0;
}

int store_put(struct store *s, struct ship_item *item, struct err *e)
{
    if (item->kind == SHIP_IN_PLACE)
        return put_in_place(item, e);
    int rc = -EBUSY;
    for (int i = 0; rc == -EBUSY && i < TRIES; i++) {
        if (i > 0)
            (void)nanosleep(&(struct timespec){ 0, PAUSE_MS * 1000000L }, NULL);
        AUTO(put_done)
        struct put p = { .s = s,
                         .item = item,
                         .e = e,
                         .source_fd = -1,
                         .temp_fd = -1,
                         .src_rules = item->kind == SHIP_SRC,
                         .read_only = item->kind != SHIP_SRC };
        rc = open_source(&p);
        if (rc == 0)
            rc = check_kind(item, p.st.st_mode, e);
        if (rc == 0)
            rc = put_once(&p);
    }
    if (rc == 0)
        err_clear(e); /* an earlier attempt may have set it */
    return rc;
}

int store_survey(struct ship_item *item, struct err *e)
{
    AUTO(close_p) int fd = open(item->source, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;
    if (fd == -1 || fstat(fd, &st) == -1)
        return err_set(e, errno, "cannot open '%s': %m", item->source);
    if (item->kind == SHIP_IN_PLACE)
        return S_ISDIR(st.st_mode) ? 0
                                   : err_set(e, ENOTDIR, "'%s' is not a directory", item->source);
    int rc = check_kind(item, st.st_mode, e);
    if (rc < 0)
        return rc;
    if (S_ISREG(st.st_mode)) {
        item->bytes = (uint64_t)st.st_size;
        item->n_files = 1;
        return 0;
    }
    AUTO(tree_done) struct tree t = { 0 };
    rc = tree_scan(fd, item->source, item->kind == SHIP_SRC, &item->leave_out, NULL, &t, e);
    if (rc < 0)
        return rc;
    item->bytes = t.bytes;
    item->n_files = t.n_files;
    return 0;
}

static int digest_source(const struct put *p, char out[DIGEST_HEX])
{
    struct ship_item *item = p->item;
    if (!S_ISDIR(p->st.st_mode) && item->kind == SHIP_FILE)
        return digest_file("file", p->st.st_mode, p->source_fd, item->source, out, p->e);
    if (!S_ISDIR(p->st.st_mode))
        return digest_file(content_kind(p, "src archive", "archive"), 0, p->source_fd, item->source,
                           out, p->e);
    AUTO(tree_done) struct tree t = { 0 };
    int rc = tree_scan(p->source_fd, item->source, p->src_rules, &item->leave_out, NULL, &t, p->e);
    return rc < 0 ? rc
                  : digest_tree(content_kind(p, "src", "dir"), &t, p->source_fd, item->source, out,
                                p->e);
}

int store_digest(struct ship_item *item, struct err *e)
{
    char digest[DIGEST_HEX] = "";
    AUTO(put_done)
    struct put p = {
        .item = item, .e = e, .source_fd = -1, .temp_fd = -1, .src_rules = item->kind == SHIP_SRC
    };
    int rc = item->kind == SHIP_IN_PLACE ? 0 : open_source(&p);
    if (rc == 0 && item->kind != SHIP_IN_PLACE)
        rc = check_kind(item, p.st.st_mode, e);
    if (rc == 0 && item->kind != SHIP_IN_PLACE)
        rc = digest_source(&p, digest);
    char *copy = rc == 0 ? str_dup(digest) : NULL;
    if (rc == 0 && !copy)
        return err_set(e, ENOMEM, "cannot digest '%s': %m", item->source);
    if (rc == 0) {
        free(item->digest);
        item->digest = copy;
    }
    return rc;
}
