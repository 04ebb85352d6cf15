/* SPDX-License-Identifier: Apache-2.0 */
/* A connection that carries bytes instead of frames, after its first frames: one half of a stream
 * (docs/streams.md). */
#include "conn_int.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/util.h"

enum {
    /* Bytes that one connection may read in one turn of the loop. Then the other connections get
     * their turn, so that a fast stream delays a heartbeat by less than a millisecond. A byte over
     * TLS takes several times as long, because it is decrypted and encrypted. */
    TURN_MAX = 512 << 10,
    TURN_MAX_TLS = 64 << 10,
};

void conn_set_raw(struct conn *c, const struct conn_raw_ops *ops, void *arg)
{
    if (conn_over(c))
        return;
    c->ops = NULL;
    c->raw = ops;
    c->arg = arg;
    conn_update_reading(c);
    conn_dirty(c); /* reports bytes that have arrived, or a failure */
}

void conn_pause(struct conn *c, bool pause)
{
    if (conn_over(c) || c->raw_paused == pause)
        return;
    c->raw_paused = pause;
    conn_update_reading(c);
    if (!pause && (c->in.len > 0 || c->failed))
        conn_dirty(c);
}

bool conn_peer_gone(const struct conn *c)
{
    uv_os_fd_t fd;
    if (c->closed || uv_fileno(&c->io.handle, &fd) < 0)
        return true;
    struct pollfd p = { .fd = fd, .events = POLLRDHUP };
    return poll(&p, 1, 0) == 1 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

/* ---- reading ---- */

/* Report bytes, or keep them: on_bytes() may have paused the conn in the middle of a read. */
int raw_read(struct conn *c, const char *p, size_t n)
{
    if (c->in.len > 0 || c->raw_paused)
        return buf_add(&c->in, p, n);
    c->raw_turn += n;
    c->raw->on_bytes(c, p, n, c->arg);
    if (conn_over(c) || !c->raw)
        return 0;
    conn_dirty(c); /* raw_flush() continues in the next turn of the loop */
    if (c->raw_turn >= (size_t)(c->line ? TURN_MAX_TLS : TURN_MAX)) {
        c->raw_yields = true;
        conn_update_reading(c);
    }
    return 0;
}

static void report_kept(struct conn *c)
{
    struct buf kept = c->in;
    c->in = (struct buf){ .max = kept.max };
    c->raw->on_bytes(c, kept.p, kept.len, c->arg);
    buf_done(&kept);
}

void raw_turn(struct conn *c)
{
    c->raw_turn = 0;
    if (!c->raw_yields)
        return;
    c->raw_yields = false;
    conn_update_reading(c);
}

void raw_flush(struct conn *c)
{
    if (c->in.len > 0 && !c->raw_paused)
        report_kept(c);
    if (!c->closed && c->raw && c->raw_drained && conn_queued(c) == 0) {
        c->raw_drained = false;
        if (c->raw->on_drain)
            c->raw->on_drain(c, c->arg);
    }
}

/* ---- writing ---- */

static int write_tls(struct conn *c, const char *p, size_t n)
{
    struct conn_line *t = c->line;
    /* Frames that were queued before are encrypted first. */
    if (!t->ready || c->queued > 0)
        return 1;
    return tls_write(t->tls, p, n, NULL);
}

/* Give the kernel as much as it takes at once. Returns the number of bytes, or -errno. */
static ssize_t write_now(struct conn *c, const char *p, size_t n)
{
    if (c->line) {
        int rc = write_tls(c, p, n);
        return rc < 0 ? rc : rc == 0 ? (ssize_t)n : 0;
    }
    if (c->queued > 0 || c->writing)
        return 0;
    uv_buf_t b = uv_buf_init((char *)(uintptr_t)p, (unsigned)n); /* libuv does not write to it */
    int rc = uv_try_write(&c->io.stream, &b, 1);
    return rc == UV_EAGAIN ? 0 : rc;
}

int conn_write(struct conn *c, const void *p, size_t n)
{
    const char *at = p;
    if (c->closed || c->finishing || c->write_closed || c->failed)
        return -EPIPE;
    if (conn_queued(c) + n > CONN_QUEUE_MAX)
        return -ENOBUFS;
    ssize_t wrote = write_now(c, at, n);
    if (wrote < 0) {
        conn_write_failed(c, (int)wrote);
        conn_dirty(c);
        return -EPIPE;
    }
    c->raw_drained = true;
    conn_dirty(c);
    if ((size_t)wrote == n)
        return 0;
    struct packed *rest = packed_part(at + wrote, n - (size_t)wrote);
    int rc = rest ? conn_push(c, rest) : -ENOMEM;
    packed_unref(rest);
    return rc;
}
