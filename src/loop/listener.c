/* SPDX-License-Identifier: Apache-2.0 */
#include "loop_int.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/sockowner.h"
#include "base/str.h"
#include "base/util.h"
#include "loop/tcp.h"

enum {
    ACCEPT_BATCH = 256,    /* connections accepted at once, before the open ones are served */
    REFUSED_LOG_MS = 1000, /* between two log lines about refused peers */
};

struct listener {
    struct object object;
    uv_poll_t poll;
    int fd;
    char *path;               /* of a unix socket; else NULL */
    char *name;               /* for messages: the path, or address and port */
    struct loop_timer *pause; /* see listener_pause(); NULL until first used */
    int (*take)(struct listener *s, int fd, struct err *e); /* handles an accepted fd and owns it */
    void (*on_accept)(struct conn *c, void *arg);
    void (*on_accept_tcp)(struct tcp *t, void *arg);
    void *arg;
    bool own_peers; /* TCP on loopback: serve only processes of this user */
    tls_key_fn *key_of;
    struct shakes shakes; /* of peers that have not proved an identity */
    struct shakes proved; /* of the others */
    struct guard *guard;  /* for TLS */
    int64_t next_log_ms;
    unsigned n_refused; /* refused peers since the last log line */
};

static void listener_destroy(struct object *o)
{
    struct listener *s = CONTAINER_OF(o, struct listener, object);
    if (s->fd != -1) /* loop_free() closes the handle without listener_close() */
        (void)close(s->fd);
    free(s->path);
    free(s->name);
    free(s->guard);
    free(s);
}

void listener_close(struct listener *s)
{
    if (!s || uv_is_closing((uv_handle_t *)&s->poll))
        return;
    if (s->path)
        (void)unlink(s->path); /* it may be missing already */
    shakes_end(&s->shakes);
    shakes_end(&s->proved);
    object_close((uv_handle_t *)&s->poll);
    loop_timer_free(TAKE(s->pause));
    (void)close(s->fd); /* at once, so that no peer can connect any more */
    s->fd = -1;
}

static void on_connection(uv_poll_t *h, int status, int events);

static void on_pause_over(void *arg)
{
    struct listener *s = arg;
    (void)uv_poll_start(&s->poll, UV_READABLE, on_connection); /* cannot fail: it worked before */
}

/* Stop accepting for ACCEPT_PAUSE_MS: there is no free descriptor or memory. The connection stays
 * in the kernel's queue, so without a pause poll would return at once, again and again. */
static void listener_pause(struct listener *s, int num)
{
    struct err e = { 0 };
    (void)err_set(&e, num, "cannot accept a connection on '%s': %m", s->name);
    (void)err_hint(&e, "raise the limit of open files (ulimit -n)");
    log_err(LOG_WARN, "listener.paused", &e);
    if (!s->pause)
        s->pause = loop_timer_new(s->object.loop, on_pause_over, s);
    if (!s->pause)
        return;
    (void)uv_poll_stop(&s->poll);
    loop_timer_set(s->pause, clock_mono_ms() + ACCEPT_PAUSE_MS);
}

static void on_connection(uv_poll_t *h, int status, int events)
{
    struct listener *s = CONTAINER_OF(h, struct listener, poll);
    (void)status; /* the errno of accept4() is more precise */
    (void)events;
    for (int i = 0; i < ACCEPT_BATCH && s->fd != -1; i++) {
        int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd == -1) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno != EAGAIN)
                listener_pause(s, errno);
            return;
        }
        struct err e = { 0 };
        if (s->take(s, fd, &e) < 0) {
            listener_pause(s, e.num);
            return;
        }
    }
}

/* ---- accepted connections ---- */

static void log_refused_peer(struct listener *s, const char *who, const char *why)
{
    int64_t now = clock_mono_ms();
    if (now < s->next_log_ms) {
        s->n_refused++;
        return;
    }
    log_event(LOG_WARN, "listener.stranger", f_str("socket", s->name), f_str("from", who),
              f_str("why", why), f_int("unsaid", s->n_refused));
    s->n_refused = 0;
    s->next_log_ms = now + REFUSED_LOG_MS;
}

static bool is_peer_allowed(int fd)
{
    struct ucred cred;
    socklen_t len = sizeof cred;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 &&
           (cred.uid == geteuid() || cred.uid == 0);
}

static int take_unix(struct listener *s, int fd, struct err *e)
{
    if (!is_peer_allowed(fd)) {
        log_refused_peer(s, "another user", "the peer is neither this user nor root");
        (void)close(fd); /* without an answer */
        return 0;
    }
    struct conn *c = conn_adopt(s->object.loop, fd, e);
    if (!c)
        return -(e->num ? e->num : ENOMEM);
    s->on_accept(c, s->arg);
    if (!conn_has_owner(c))
        conn_close(c);
    return 0;
}

static int take_tcp(struct listener *s, int fd, struct err *e)
{
    if (s->own_peers && !sock_peer_is_own(fd)) {
        log_refused_peer(s, "another user", "the peer is not a process of this user");
        (void)close(fd); /* without an answer */
        return 0;
    }
    socket_tune(fd);
    struct tcp *t = tcp_adopt(s->object.loop, fd, e);
    if (!t)
        return -(e->num ? e->num : ENOMEM);
    s->on_accept_tcp(t, s->arg);
    if (!tcp_has_owner(t))
        tcp_close(t);
    return 0;
}

static int take_tls(struct listener *s, int fd, struct err *e)
{
    if (s->shakes.n >= CONN_HANDSHAKES_MAX)
        shakes_make_room(&s->shakes);
    return shake_begin(s->object.loop, &s->shakes, fd, e);
}

static bool find_handshake_key(const char *identity, struct tls_key *out, void *arg)
{
    struct listener *s = arg;
    return s->key_of(identity, out, s->arg);
}

static void on_handshake_done(struct conn *c, void *arg)
{
    struct listener *s = arg;
    s->on_accept(c, s->arg);
}

static void on_handshake_refused(struct conn *c, const struct err *e, void *arg)
{
    char host[TCP_ADDRESS_TEXT] = "?";
    (void)conn_peer_host(c, host, sizeof host); /* fails if the peer has disconnected: then "?" */
    log_refused_peer(arg, host, e->msg);
}

/* ---- opening ---- */

/* Make s listen on fd. Takes fd and all that s owns, also on failure. 0 or -errno. */
static int listener_start(struct listener *s, struct loop *l, int fd, struct err *e)
{
    int rc = uv_poll_init(&l->uv, &s->poll, fd);
    if (rc < 0) {
        (void)err_set(e, -rc, "cannot watch socket '%s': %m", s->name);
        (void)close(fd); /* no peer has connected to it yet */
        free(s->path);
        free(s->name);
        free(s->guard);
        free(s);
        return rc;
    }
    s->fd = fd;
    object_init(&s->object, l, (uv_handle_t *)&s->poll, listener_destroy);
    rc = uv_poll_start(&s->poll, UV_READABLE, on_connection);
    if (rc < 0) {
        (void)err_set(e, -rc, "cannot watch socket '%s': %m", s->name);
        listener_close(s);
    }
    return rc;
}

static struct listener *listener_new(const char *name, struct err *e)
{
    struct listener *s = calloc(1, sizeof *s);
    if (s && !(s->name = str_dup(name))) {
        free(s);
        s = NULL;
    }
    if (!s)
        (void)err_set(e, ENOMEM, "cannot listen on socket '%s': %m", name);
    return s;
}

static int bind_private(int fd, const char *path, struct err *e)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    size_t len = strlen(path);
    if (len >= sizeof sa.sun_path)
        return err_set(e, ENAMETOOLONG, "cannot listen on socket '%s': %m", path);
    memcpy(sa.sun_path, path, len + 1);
    if (unlink(path) == -1 && errno != ENOENT)
        return err_set(e, errno, "cannot remove old socket '%s': %m", path);
    /* bind() gives the file at most the mode of the socket. So set the mode of the socket: then
     * other users cannot connect even between bind() and a chmod(). */
    if (fchmod(fd, 0600) == -1 || bind(fd, (const struct sockaddr *)&sa, sizeof sa) == -1 ||
        listen(fd, BACKLOG) == -1)
        return err_set(e, errno, "cannot listen on socket '%s': %m", path);
    return 0;
}

int listener_open_unix(struct loop *l, const char *path,
                       void (*on_accept)(struct conn *c, void *arg), void *arg,
                       struct listener **out, struct err *e)
{
    AUTO(close_p) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1)
        return err_set(e, errno, "cannot make a socket: %m");
    int rc = bind_private(fd, path, e);
    if (rc < 0)
        return rc;

    struct listener *s = listener_new(path, e);
    if (!s)
        return -ENOMEM;
    if (!(s->path = str_dup(path))) {
        free(s->name);
        free(s);
        return err_set(e, ENOMEM, "cannot listen on socket '%s': %m", path);
    }
    s->take = take_unix;
    s->on_accept = on_accept;
    s->arg = arg;
    int mine = fd;
    fd = -1;
    rc = listener_start(s, l, mine, e);
    if (rc == 0)
        *out = s;
    return rc;
}

/* ---- over TCP ---- */

/* Make a listening TCP socket. Returns it or -errno. out_name has TCP_ADDRESS_TEXT bytes. */
static int tcp_bind(const char *address, uint16_t port, char *out_name, struct err *e)
{
    struct tcp_address a = { 0 };
    if (!tcp_numeric(address ? address : "0.0.0.0", port, &a))
        return err_set(e, EINVAL, "cannot listen on '%s': it is not a numeric address", address);
    (void)tcp_text(&a, true, out_name, TCP_ADDRESS_TEXT);
    AUTO(close_p)
    int fd = socket(a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    const int on = 1;
    socklen_t len = sizeof a;
    /* SO_REUSEADDR: a port that an earlier process of tony used a moment ago can be bound again. */
    if (fd == -1 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == -1 ||
        bind(fd, &a.sa, tcp_address_len(&a)) == -1 || listen(fd, BACKLOG) == -1 ||
        getsockname(fd, &a.sa, &len) == -1)
        return err_set(e, errno, "cannot listen on '%s': %m", out_name);
    (void)tcp_text(&a, true, out_name, TCP_ADDRESS_TEXT); /* with the port that the kernel chose */
    int mine = fd;
    fd = -1;
    return mine;
}

static int tcp_open(struct loop *l, const char *address, uint16_t port, const struct listener *like,
                    struct listener **out, struct err *e)
{
    char name[TCP_ADDRESS_TEXT];
    int fd = tcp_bind(address, port, name, e);
    if (fd < 0)
        return fd;
    struct listener *s = listener_new(name, e);
    if (!s) {
        (void)close(fd); /* no peer has connected to it yet */
        return -ENOMEM;
    }
    char *own = s->name;
    *s = *like;
    s->name = own;
    if (s->key_of && !(s->guard = calloc(1, sizeof *s->guard))) {
        (void)close(fd);
        free(s->name);
        free(s);
        return err_set(e, ENOMEM, "cannot listen on '%s': %m", name);
    }
    s->shakes.guard = s->proved.guard = s->guard;
    s->shakes.arg = s->proved.arg = s;
    s->shakes.proved = &s->proved;
    int rc = listener_start(s, l, fd, e);
    if (rc == 0)
        *out = s;
    return rc;
}

int listener_open_tcp(struct loop *l, const char *address, uint16_t port,
                      void (*on_accept)(struct tcp *t, void *arg), void *arg, struct listener **out,
                      struct err *e)
{
    const struct listener like = { .take = take_tcp, .on_accept_tcp = on_accept, .arg = arg };
    return tcp_open(l, address, port, &like, out, e);
}

int listener_open_tls(struct loop *l, const char *address, uint16_t port, tls_key_fn *key_of,
                      void (*on_accept)(struct conn *c, void *arg), void *arg,
                      struct listener **out, struct err *e)
{
    const struct listener like = { .take = take_tls,
                                   .on_accept = on_accept,
                                   .arg = arg,
                                   .key_of = key_of,
                                   .shakes = { .key_of = find_handshake_key,
                                               .on_ready = on_handshake_done,
                                               .on_stranger = on_handshake_refused },
                                   .proved = { .key_of = find_handshake_key,
                                               .on_ready = on_handshake_done,
                                               .on_stranger = on_handshake_refused } };
    return tcp_open(l, address, port, &like, out, e);
}

void listener_own_peers(struct listener *s)
{
    s->own_peers = true;
}

uint16_t listener_port(const struct listener *s)
{
    struct tcp_address a = { 0 };
    socklen_t len = sizeof a;
    if (s->path || getsockname(s->fd, &a.sa, &len) == -1)
        return 0;
    return ntohs(a.sa.sa_family == AF_INET6 ? a.in6.sin6_port : a.in.sin_port);
}

int tcp_open_among(uint16_t first, uint16_t last,
                   int (*open_at)(void *arg, uint16_t port, struct err *e), void *arg,
                   struct err *e)
{
    uint32_t n = (uint32_t)last - first + 1;
    if (!first)
        return open_at(arg, 0, e);
    /* Processes that start on one node at the same time begin at different ports. */
    uint32_t start = (uint32_t)(clock_mono_us() % n);
    for (uint32_t i = 0; i < n; i++) {
        struct err why = { 0 };
        int rc = open_at(arg, (uint16_t)(first + (start + i) % n), &why);
        if (rc != -EADDRINUSE) {
            if (rc < 0 && e)
                *e = why;
            return rc;
        }
    }
    (void)err_set(e, EADDRINUSE, "all ports of tony.port-range (%u-%u) are in use on this node",
                  first, last);
    return err_hint(e, "choose a larger range");
}
