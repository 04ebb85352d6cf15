/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a link for TCP with TLS: the connection of an executor on a cluster to its master. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "codec/tls.h"
#include "executor/link.h"

enum {
    OUT_MAX = 64 << 20, /* as in link.c */
    READ_MAX = 16 << 10,
    ENCRYPT_MAX = 256 << 10, /* bytes that are encrypted at once; the rest waits as plaintext */
    KEEP_CAP = 4 << 10,
    KEEPALIVE_S = 10,
};

static void set(int fd, int level, int option, int value)
{
    /* If it fails, the connection still works. */
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

void link_of_tls(struct link *l, int fd, struct tls *tls)
{
    *l = (struct link){ .fd = fd, .tls = tls, .out.max = OUT_MAX };
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_S);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_S);
    set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, LINK_SILENCE_MS);
}

int link_dial_tls(struct link *l, const struct sockaddr *to, size_t to_len, struct tls *tls)
{
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1) {
        int rc = -errno;
        tls_free(tls);
        return rc;
    }
    link_of_tls(l, fd, tls);
    if (connect(fd, to, (socklen_t)to_len) == 0)
        return 0;
    int rc = -errno;
    if (rc == -EINPROGRESS) {
        l->connecting = true;
        return 0;
    }
    link_close(l);
    return rc;
}

int link_connected(struct link *l)
{
    int num = 0;
    socklen_t len = sizeof num;
    struct sockaddr_storage peer;
    if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &num, &len) == -1)
        return -errno;
    if (num)
        return -num;
    len = sizeof peer;
    if (getpeername(l->fd, (struct sockaddr *)&peer, &len) == -1)
        return errno == ENOTCONN ? -EINPROGRESS : -errno;
    l->connecting = false;
    return 0;
}

bool link_confirmed(const struct link *l)
{
    int waiting = 0;
    return l->fd >= 0 && !l->connecting && !link_unsent(l) &&
           ioctl(l->fd, SIOCOUTQ, &waiting) == 0 && waiting == 0;
}

int link_host(const struct link *l, char *out, size_t size)
{
    struct sockaddr_storage local;
    socklen_t len = sizeof local;
    char text[INET6_ADDRSTRLEN];
    if (getsockname(l->fd, (struct sockaddr *)&local, &len) == -1)
        return -errno;
    bool v6 = local.ss_family == AF_INET6;
    const void *at = v6 ? (const void *)&((const struct sockaddr_in6 *)&local)->sin6_addr
                        : (const void *)&((const struct sockaddr_in *)&local)->sin_addr;
    if (!inet_ntop(local.ss_family, at, text, sizeof text))
        return -errno;
    int n = snprintf(out, size, v6 ? "[%s]" : "%s", text);
    return n > 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

void link_close_tls(struct link *l)
{
    tls_free(l->tls);
    l->tls = NULL;
}

bool link_unsent_tls(const struct link *l)
{
    if (l->connecting)
        return false; /* the owner polls for POLLOUT itself, because `connecting` is set */
    return tls_out(l->tls)->len > 0 || (l->out.len > 0 && tls_ready(l->tls));
}

/* Send the ciphertext. 1: all is sent; 0: the kernel accepts no more; -EPIPE. */
static int send_cipher(struct link *l)
{
    struct buf *out = tls_out(l->tls);
    size_t sent = 0;
    int rc = 1;
    while (sent < out->len && rc == 1) {
        ssize_t n = send(l->fd, out->p + sent, out->len - sent, MSG_NOSIGNAL);
        if (n > 0)
            sent += (size_t)n;
        else if (n == -1 && (errno == EAGAIN || errno == EWOULDBLOCK))
            rc = 0;
        else if (n == 0 || errno != EINTR)
            rc = -EPIPE;
    }
    if (sent)
        buf_consume(out, sent);
    if (out->len == 0 && out->cap > KEEP_CAP)
        buf_done(out);
    return rc;
}

int link_flush_tls(struct link *l)
{
    if (l->connecting)
        return 0;
    for (;;) {
        int rc = send_cipher(l);
        if (rc <= 0)
            return rc;
        if (l->out.len == 0 || !tls_ready(l->tls))
            break;
        size_t n = MIN(l->out.len, (size_t)ENCRYPT_MAX);
        rc = tls_write(l->tls, l->out.p, n, l->why);
        if (rc < 0)
            return rc == -ENOMEM ? rc : -EPIPE;
        buf_consume(&l->out, n);
    }
    if (l->out.len == 0 && l->out.cap > KEEP_CAP)
        buf_done(&l->out);
    return 0;
}

int link_fill_tls(struct link *l)
{
    static char bytes[READ_MAX]; /* static: costs no memory if TLS is not used */
    if (l->connecting)
        return 0;
    for (;;) {
        ssize_t n = read(l->fd, bytes, sizeof bytes);
        if (n == -1 && errno == EINTR)
            continue;
        if (n == -1 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n <= 0) {
            if (n == -1 && l->why)
                (void)err_set(l->why, errno, "the connection broke: %m");
            l->ended = true;
            return -EPIPE;
        }
        int rc = tls_feed(l->tls, bytes, (size_t)n, &l->in, l->why);
        if (rc < 0 || tls_ended(l->tls)) {
            (void)send_cipher(l); /* the TLS alert that tells the peer why */
            l->ended = true;
            return rc < 0 ? rc : -EPIPE;
        }
        if ((size_t)n < sizeof bytes)
            break; /* poll() reports further bytes */
    }
    return link_flush_tls(l); /* handshake messages, and plaintext that waited for its end */
}

void link_send_close_notify(struct link *l)
{
    if (l->fd < 0 || !l->tls || l->connecting || !tls_ready(l->tls))
        return;
    if (tls_end(l->tls, NULL) == 0)
        (void)send_cipher(l);
    (void)shutdown(l->fd, SHUT_WR);
}
