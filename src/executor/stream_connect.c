/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes between the client and a port of the task's machine. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sockowner.h"
#include "base/util.h"
#include "executor/executor_int.h"
#include "executor/stream_int.h"

enum {
    CONNECT_MS = 10000,
    IN_MAX = 512 << 10, /* bytes for the port; while there are more, the client is not read */
};

struct forward {
    struct stream_side *s;
    int fd;
    struct buf in;
    size_t in_at;   /* bytes of `in` that are written */
    bool in_ended;  /* the client sends no more */
    bool shut;      /* and the port was told */
    bool out_ended; /* the port sends no more */
};

static int try_connect(const struct sockaddr *to, socklen_t len)
{
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), num = 0, on = 1;
    socklen_t size = sizeof num;
    if (fd == -1)
        return -errno;
    int rc = connect(fd, to, len) == 0 ? 0 : -errno;
    if (rc == -EINPROGRESS) {
        struct pollfd p = { .fd = fd, .events = POLLOUT };
        int n = poll(&p, 1, CONNECT_MS);
        rc = n == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &num, &size) == 0 ? -num : -ETIMEDOUT;
    }
    if (rc < 0) {
        close(fd);
        return rc;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* without it only slower */
    return fd;
}

/* A program may listen on the IPv4 or the IPv6 address of the loopback interface. */
static int connect_port(uint32_t port, struct err *e)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
    if (port == 0 || port > UINT16_MAX)
        return err_set(e, EINVAL, "port %u is not a number from 1 to 65535", port);
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v6.sin6_addr = in6addr_loopback;
    int fd = try_connect((const struct sockaddr *)&v4, sizeof v4);
    if (fd == -ECONNREFUSED) {
        int other = try_connect((const struct sockaddr *)&v6, sizeof v6);
        fd = other >= 0 ? other : fd;
    }
    if (fd < 0)
        return err_set(e, -fd, "cannot connect to port %u of the task's machine: %m", port);
    return fd;
}

static int on_frame(enum stream_type type, struct span p, void *arg)
{
    struct forward *f = arg;
    if (type == SF_END) {
        f->in_ended = true;
        return 0;
    }
    return type == SF_DATA ? buf_add(&f->in, p.p, p.len) : -EPROTO;
}

/* false: the port does not take any more. */
static bool write_port(struct forward *f)
{
    while (f->in_at < f->in.len) {
        ssize_t n = send(f->fd, f->in.p + f->in_at, f->in.len - f->in_at, MSG_NOSIGNAL);
        if (n > 0)
            f->in_at += (size_t)n;
        else if (n == -1 && errno == EINTR)
            continue;
        else if (n == -1 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        else
            return false;
    }
    f->in.len = f->in_at = 0;
    if (f->in_ended && !f->shut) {
        (void)shutdown(f->fd, SHUT_WR); /* fails if the port has disconnected */
        f->shut = true;
    }
    return true;
}

/* false: the connection broke. */
static bool read_port(struct forward *f)
{
    ssize_t n = tunnel_add_from(&f->s->t, SF_DATA, f->fd);
    if (n > 0 || n == -EAGAIN)
        return true;
    f->out_ended = true;
    return n == 0 && tunnel_add(&f->s->t, SF_END, NULL, 0) == 0;
}

static bool stopped(const struct forward *f)
{
    struct signalfd_siginfo si;
    while (read(f->s->signal_fd, &si, sizeof si) == (ssize_t)sizeof si)
        if (si.ssi_signo != SIGCHLD)
            return true;
    return false;
}

_Noreturn void stream_connect(struct stream_side *s)
{
    struct forward f = { .s = s, .in.max = 4 * IN_MAX };
    struct tunnel *t = &s->t;
    struct err e = { 0 };
    uint32_t port = s->request->port;
    f.fd = connect_port(port, &e);
    /* A port that was reserved for the task: another user may have bound it before the task. */
    bool reserved = port == s->x->port || port == s->x->tb_port;
    if (f.fd >= 0 && reserved && !sock_service_is_own(f.fd))
        f.fd = err_set(&e, EPERM, "port %u of the task's machine belongs to another user", port);
    if (f.fd < 0)
        tunnel_fail(t, &e);
    t->reader = (struct stream_reader){ .on_frame = on_frame, .arg = &f };
    (void)tunnel_add(t, SF_STARTED, NULL, 0);
    while (!(f.out_ended && f.shut)) {
        bool take = f.in.len - f.in_at < IN_MAX;
        bool give = !f.out_ended && tunnel_has_room(t);
        struct pollfd p[] = {
            { .fd = s->signal_fd, .events = POLLIN },
            { .fd = t->fd, .events = tunnel_events(t, take) },
            { .fd = give || f.in.len > f.in_at ? f.fd : -1,
              .events = (short)((give ? POLLIN : 0) | (f.in.len > f.in_at ? POLLOUT : 0)) },
        };
        if (poll(p, ARRAY_LEN(p), -1) == -1)
            continue;
        if (p[0].revents && stopped(&f))
            break;
        if (p[1].revents && tunnel_ready(t, p[1].revents, take, &e) < 0)
            _exit(0); /* the client has disconnected */
        if (give && p[2].revents & (POLLIN | POLLHUP | POLLERR) && !read_port(&f))
            break;
        if (!write_port(&f) || tunnel_flush(t) < 0)
            break;
    }
    close(f.fd);
    tunnel_finish(t);
}
