/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "codec/frame.h"

enum {
    OUT_MAX = 64 << 20,   /* queued bytes, if the peer does not read */
    READ_FIRST = 2 << 10, /* bytes to read before the length of a frame is known */
    READ_MAX = 1 << 20,
    KEEP_CAP = 4 << 10, /* an empty buffer is freed if it is larger: there may be 1000 executors */
    BACKLOG = 64,
};

static int address(const char *path, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    size_t len = strlen(path);
    if (len >= sizeof out->sun_path)
        return -ENAMETOOLONG;
    memcpy(out->sun_path, path, len + 1);
    return 0;
}

int link_dial(struct link *l, const char *path)
{
    struct sockaddr_un to;
    int rc = address(path, &to);
    if (rc < 0)
        return rc;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) == -1) {
        rc = -errno;
        close(fd);
        return rc;
    }
    *l = (struct link){ .fd = fd, .out.max = OUT_MAX };
    return 0;
}

int link_listen(const char *path, struct err *e)
{
    struct sockaddr_un at;
    if (address(path, &at) < 0)
        return err_set(e, ENAMETOOLONG, "cannot listen on '%s': %m", path);
    if (unlink(path) == -1 && errno != ENOENT)
        return err_set(e, errno, "cannot replace socket '%s': %m", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1)
        return err_set(e, errno, "cannot make a socket: %m");
    /* The directory has mode 0700, so no other user can connect between bind() and chmod(). */
    if (bind(fd, (const struct sockaddr *)&at, sizeof at) == -1 || chmod(path, 0600) == -1 ||
        listen(fd, BACKLOG) == -1) {
        int rc = err_set(e, errno, "cannot listen on '%s': %m", path);
        close(fd);
        return rc;
    }
    return fd;
}

int link_inherit(int fd, const char *path)
{
    struct sockaddr_un at = { 0 };
    struct stat st;
    socklen_t len = sizeof at;
    if (fd < 0 || getsockname(fd, (struct sockaddr *)&at, &len) == -1 || at.sun_family != AF_UNIX ||
        strncmp(at.sun_path, path, sizeof at.sun_path) != 0 || lstat(path, &st) == -1 ||
        !S_ISSOCK(st.st_mode) || fcntl(fd, F_SETFD, FD_CLOEXEC) == -1)
        return -EBADF;
    return 0;
}

int link_accept(int listen_fd, struct link *out)
{
    for (;;) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd == -1) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            return 0;
        }
        struct ucred who = { 0 };
        socklen_t len = sizeof who;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
            (who.uid == geteuid() || who.uid == 0)) {
            *out = (struct link){ .fd = fd, .out.max = OUT_MAX };
            return 1;
        }
        close(fd);
    }
}

void link_close(struct link *l)
{
    if (l->fd >= 0)
        close(l->fd);
    if (l->tls)
        link_close_tls(l);
    buf_done(&l->in);
    buf_done(&l->out);
    l->fd = -1;
    l->ended = l->connecting = false;
}

/* Memory for the next bytes: enough for the rest of the frame that has begun, so that a large frame
 * is read at once and not copied. */
static char *read_room(struct link *l, size_t *out_n)
{
    size_t n = READ_FIRST;
    if (l->in.len >= FRAME_HEADER) {
        const unsigned char *h = (const unsigned char *)l->in.p;
        size_t whole =
            FRAME_HEADER + ((size_t)h[0] << 24 | (size_t)h[1] << 16 | (size_t)h[2] << 8 | h[3]);
        if (whole > l->in.len)
            n = MAX(n, MIN(whole - l->in.len, (size_t)READ_MAX)); /* the length may be wrong */
    }
    *out_n = n;
    return buf_reserve(&l->in, n);
}

int link_fill(struct link *l)
{
    if (l->fd < 0)
        return -EPIPE;
    if (l->tls)
        return link_fill_tls(l);
    for (;;) {
        size_t room;
        char *to = read_room(l, &room);
        if (!to)
            return -EPIPE; /* no memory: end the connection; the owner reconnects */
        ssize_t n = read(l->fd, to, room);
        if (n > 0) {
            buf_commit(&l->in, (size_t)n);
            if ((size_t)n < room)
                return 0; /* poll() reports further bytes */
            continue;
        }
        if (n == -1 && errno == EINTR)
            continue;
        if (n == -1 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        l->ended = true;
        return -EPIPE;
    }
}

/* The memory for the unpacked frame. A cluster spec of 1000 tasks may have 1000 strings, and 1000
 * executors unpack it at the same time. With this arena each string costs an addition instead of a
 * malloc(). The block is as large as the largest frame needs. It is replaced when a much smaller
 * frame follows, and a large one is freed when no frame is left: each fork of the keeper would copy
 * its page tables. */
static struct {
    char *p;
    size_t used, cap;
} arena;

enum { ARENA_FACTOR = 64, ARENA_MORE = 4 << 10, ARENA_ALIGN = 16, ARENA_KEEP = 512 << 10 };

static void *arena_alloc(void *unused, size_t size)
{
    (void)unused;
    size_t need = (size + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    if (need < size || need > arena.cap - arena.used)
        return NULL;
    void *p = arena.p + arena.used;
    arena.used += need;
    return p;
}

static void arena_free(void *unused, void *p)
{
    (void)unused;
    (void)p;
}

static void arena_trim(void)
{
    if (arena.cap <= ARENA_KEEP)
        return;
    free(arena.p);
    arena.p = NULL;
    arena.used = arena.cap = 0;
}

/* Prepare memory for a frame of len packed bytes. Untouched pages cost nothing, so the estimate is
 * generous. */
static int arena_ready(size_t len)
{
    size_t want = len * ARENA_FACTOR + ARENA_MORE;
    arena.used = 0;
    if (arena.cap >= want && arena.cap <= 4 * want)
        return 0;
    free(arena.p);
    arena.p = malloc(want);
    arena.cap = arena.p ? want : 0;
    return arena.p ? 0 : -ENOMEM;
}

/* The remaining bytes are moved to the front of the buffer only after the last complete frame. */
int link_next(struct link *l, const Tony__Frame **out, struct err *e)
{
    struct span payload;
    int rc = frame_peek(&l->in, &payload, e);
    if (rc == 0 && l->in.len == 0 && l->in.cap > KEEP_CAP)
        buf_done(&l->in);
    if (rc <= 0) {
        arena_trim();
        return rc;
    }
    if (arena_ready(payload.len) < 0)
        return err_set(e, ENOMEM, "cannot unpack a frame of %zu bytes: %m", payload.len);
    ProtobufCAllocator a = { arena_alloc, arena_free, NULL };
    const Tony__Frame *f = tony__frame__unpack(&a, payload.len, (const unsigned char *)payload.p);
    if (!f)
        return err_set(e, EPROTO, "%zu bytes are not a frame of tony", payload.len);
    frame_consume(&l->in, payload);
    *out = f;
    return 1;
}

int link_flush(struct link *l)
{
    if (l->fd < 0)
        return -EPIPE;
    if (l->tls)
        return link_flush_tls(l);
    size_t sent = 0;
    int rc = 0;
    while (sent < l->out.len) {
        ssize_t n = send(l->fd, l->out.p + sent, l->out.len - sent, MSG_NOSIGNAL);
        if (n > 0) {
            sent += (size_t)n;
        } else if (n == -1 && errno == EINTR) {
            continue;
        } else {
            rc = n == -1 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -EPIPE;
            break;
        }
    }
    if (sent)
        buf_consume(&l->out, sent);
    if (l->out.len == 0 && l->out.cap > KEEP_CAP)
        buf_done(&l->out);
    return rc;
}

int link_queue(struct link *l, const Tony__Frame *msg)
{
    if (l->fd < 0)
        return -EPIPE;
    int rc = frame_pack(msg, &l->out);
    return rc == -ENOMEM && l->out.failed && l->out.len > OUT_MAX / 2 ? -ENOBUFS : rc;
}

int link_send(struct link *l, const Tony__Frame *msg)
{
    int rc = link_queue(l, msg);
    return rc < 0 ? rc : link_flush(l);
}
