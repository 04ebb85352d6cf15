/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/util.h"
#include "codec/mbed.h"
#include "storage/tree.h"

enum { CHUNK = 256 * 1024 }; /* bytes per read() */

struct sha {
    mbedtls_sha256_context ctx;
    bool failed;
};

static void sha_init(struct sha *s)
{
    mbedtls_sha256_init(&s->ctx);
    s->failed = mbedtls_sha256_starts(&s->ctx, 0) != 0;
}

static void sha_add(struct sha *s, const void *p, size_t len)
{
    s->failed = s->failed || mbedtls_sha256_update(&s->ctx, p, len) != 0;
}

/* Add a text with its length in front. Without the length, the lists "ab", "c" and "a", "bc" would
 * have the same digest. */
static void sha_text(struct sha *s, const char *text)
{
    char head[24];
    size_t len = strlen(text);
    (void)snprintf(head, sizeof head, "%zu:", len);
    sha_add(s, head, strlen(head));
    sha_add(s, text, len);
}

static void sha_number(struct sha *s, uint64_t n)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64 ";", n);
    sha_add(s, text, strlen(text));
}

static int sha_end(struct sha *s, char out[DIGEST_HEX])
{
    unsigned char sum[32] = { 0 };
    s->failed = s->failed || mbedtls_sha256_finish(&s->ctx, sum) != 0;
    mbedtls_sha256_free(&s->ctx);
    if (s->failed)
        return -EIO; /* mbedtls can only fail here if a hardware accelerator computes the hash */
    for (size_t i = 0; i < sizeof sum; i++) {
        out[2 * i] = "0123456789abcdef"[sum[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[sum[i] & 0xf];
    }
    out[DIGEST_HEX - 1] = '\0';
    return 0;
}

/* Add the content of fd; *out_size is its number of bytes. */
static int sha_fd(struct sha *s, int fd, char *chunk, uint64_t *out_size)
{
    *out_size = 0;
    for (off_t at = 0;;) {
        ssize_t n = pread(fd, chunk, CHUNK, at);
        if (n == -1 && errno == EINTR)
            continue;
        if (n == -1)
            return -errno;
        if (n == 0)
            return 0;
        sha_add(s, chunk, (size_t)n);
        at += n;
        *out_size = (uint64_t)at;
    }
}

/* Add the content of one file of a tree and wait until the file is on disk. */
static int add_tree_file(struct sha *s, const struct tree_entry *x, int root_fd, const char *name,
                         char *chunk, struct err *e)
{
    AUTO(close_p) int fd = openat(root_fd, x->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY);
    uint64_t size = 0;
    int rc = fd == -1 ? -errno : sha_fd(s, fd, chunk, &size);
    if (rc < 0)
        return err_set(e, -rc, "cannot read the copy of '%s/%s': %m", name, x->path);
    if (size != x->size)
        return err_set(e, EBUSY, "'%s/%s' is being changed", name, x->path);
    const unsigned wait =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    if (sync_file_range(fd, 0, 0, wait) == -1 && (errno == EIO || fs_no_room(errno)))
        return err_set(e, errno, "cannot write the copy of '%s/%s': %m", name, x->path);
    return 0;
}

int digest_tree(const char *kind, const struct tree *t, int root_fd, const char *name,
                char out[DIGEST_HEX], struct err *e)
{
    AUTO(free_p) char *chunk = malloc(CHUNK);
    if (!chunk)
        return err_set(e, ENOMEM, "cannot read '%s': %m", name);
    struct sha s;
    sha_init(&s);
    sha_text(&s, kind);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < t->n; i++) {
        const struct tree_entry *x = &t->v[i];
        sha_text(&s, S_ISDIR(x->mode) ? "d" : S_ISLNK(x->mode) ? "l" : "f");
        sha_text(&s, x->path);
        if (S_ISLNK(x->mode)) {
            sha_text(&s, x->target);
            continue;
        }
        sha_number(&s, x->mode & 0777);
        sha_number(&s, x->size);
        if (S_ISREG(x->mode))
            rc = add_tree_file(&s, x, root_fd, name, chunk, e);
    }
    int sha_rc = sha_end(&s, out);
    if (rc == 0 && sha_rc < 0)
        rc = err_set(e, -sha_rc, "cannot compute the digest of '%s': %m", name);
    return rc;
}

int digest_file(const char *kind, mode_t mode, int fd, const char *name, char out[DIGEST_HEX],
                struct err *e)
{
    AUTO(free_p) char *chunk = malloc(CHUNK);
    if (!chunk)
        return err_set(e, ENOMEM, "cannot read '%s': %m", name);
    struct sha s;
    sha_init(&s);
    sha_text(&s, kind);
    sha_number(&s, mode & 0777);
    uint64_t size;
    int rc = sha_fd(&s, fd, chunk, &size);
    int sha_rc = sha_end(&s, out);
    rc = rc < 0 ? rc : sha_rc;
    return rc < 0 ? err_set(e, -rc, "cannot read '%s': %m", name) : 0;
}

static uint64_t time_number(struct timespec t)
{
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int digest_metadata(const struct tree *t, char out[DIGEST_HEX])
{
    struct sha s;
    sha_init(&s);
    for (size_t i = 0; i < t->n; i++) {
        const struct tree_entry *x = &t->v[i];
        sha_text(&s, x->path);
        sha_text(&s, x->target ? x->target : "");
        sha_number(&s, x->mode);
        if (S_ISDIR(x->mode))
            continue;
        sha_number(&s, x->size);
        sha_number(&s, x->dev);
        sha_number(&s, x->ino);
        sha_number(&s, time_number(x->mtime));
        sha_number(&s, time_number(x->ctime));
    }
    return sha_end(&s, out);
}

int digest_text(const char *kind, const char *text, char out[DIGEST_HEX])
{
    struct sha s;
    sha_init(&s);
    sha_text(&s, kind);
    sha_text(&s, text);
    return sha_end(&s, out);
}
