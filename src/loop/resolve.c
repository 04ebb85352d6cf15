/* SPDX-License-Identifier: Apache-2.0 */
#include "loop_int.h"

#include <ares.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "loop/tcp.h"

/*
 * Looks up host names with c-ares. Each question has its own c-ares channel. So a question can be
 * cancelled alone, and a changed resolv.conf takes effect with the next question.
 *
 * c-ares may call back inside ares_getaddrinfo(), and a channel must not be destroyed inside its
 * own callbacks. So the result is always reported from the timer.
 */
enum {
    ADDRESSES_MAX = 16,
    ASK_MS = 2000, /* timeout of one name server in the first round; it grows in later rounds */
    ASK_TRIES = 3, /* rounds */
};

struct watch { /* polls one socket of c-ares */
    struct object object;
    uv_poll_t poll;
    struct tcp_resolve *r;
    ares_socket_t fd;
    struct watch *next;
};

struct tcp_resolve {
    struct loop *loop;
    struct tcp_resolve *next, **at; /* in loop->resolves */
    ares_channel channel;
    struct loop_timer *timer; /* fires for timeouts of c-ares, the deadline, and the result */
    int64_t deadline_ms;
    char *host;
    uint16_t port;
    struct watch *watches;
    struct tcp_address found[ADDRESSES_MAX];
    size_t n_found;
    struct err failed;
    bool over;    /* the result is known: the timer reports it */
    bool freeing; /* resolve_free() runs: c-ares may still call back */
    void (*done)(const struct tcp_address *v, size_t n, const struct err *e, void *arg);
    void *arg;
};

static void resolve_free(struct tcp_resolve *r)
{
    r->freeing = true;
    if (r->at)
        *r->at = r->next;
    if (r->at && r->next)
        r->next->at = r->at;
    if (r->channel)
        ares_destroy(r->channel); /* closes its sockets; for each, on_socket() closes the watch */
    loop_timer_free(r->timer);
    free(r->host);
    free(r);
}

static void resolve_over(struct tcp_resolve *r)
{
    r->over = true;
    if (!r->freeing)
        loop_timer_set(r->timer, clock_mono_ms());
}

/* ---- the sockets and timeouts of c-ares ---- */

static void timer_next(struct tcp_resolve *r)
{
    struct timeval room = { .tv_sec = 3600 }, tv;
    if (r->over)
        return;
    const struct timeval *wait = ares_timeout(r->channel, &room, &tv);
    int64_t due = clock_mono_ms() + (int64_t)wait->tv_sec * 1000 + wait->tv_usec / 1000 + 1;
    loop_timer_set(r->timer, MIN(due, r->deadline_ms));
}

static void on_socket(uv_poll_t *h, int status, int events)
{
    struct watch *w = CONTAINER_OF(h, struct watch, poll);
    struct tcp_resolve *r = w->r;
    bool in = status < 0 || (events & UV_READABLE), out = status < 0 || (events & UV_WRITABLE);
    ares_process_fd(r->channel, in ? w->fd : ARES_SOCKET_BAD, out ? w->fd : ARES_SOCKET_BAD);
    timer_next(r);
}

static void watch_destroy(struct object *o)
{
    free(CONTAINER_OF(o, struct watch, object));
}

static struct watch *watch_new(struct tcp_resolve *r, ares_socket_t fd)
{
    struct watch *w = calloc(1, sizeof *w);
    if (!w || uv_poll_init(&r->loop->uv, &w->poll, fd) < 0) {
        free(w);
        return NULL; /* the socket is not polled, so the question ends at its deadline */
    }
    object_init(&w->object, r->loop, (uv_handle_t *)&w->poll, watch_destroy);
    w->r = r;
    w->fd = fd;
    w->next = r->watches;
    r->watches = w;
    return w;
}

static void on_socket_state(void *arg, ares_socket_t fd, int readable, int writable)
{
    struct tcp_resolve *r = arg;
    struct watch **at = &r->watches;
    while (*at && (*at)->fd != fd)
        at = &(*at)->next;
    struct watch *w = *at;
    if (!readable && !writable) {
        if (w) {
            *at = w->next;
            object_close((uv_handle_t *)&w->poll);
        }
        return;
    }
    if (!w && !(w = watch_new(r, fd)))
        return;
    (void)uv_poll_start(&w->poll, (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0),
                        on_socket); /* fails only when closing */
}

/* ---- the answer ---- */

static void keep_addresses(struct tcp_resolve *r, const struct ares_addrinfo *info)
{
    for (const struct ares_addrinfo_node *n = info->nodes; n; n = n->ai_next) {
        struct tcp_address a = { 0 };
        bool known = n->ai_family == AF_INET || n->ai_family == AF_INET6;
        if (!known || n->ai_addrlen > sizeof a || r->n_found == ADDRESSES_MAX)
            continue;
        memcpy(&a, n->ai_addr, n->ai_addrlen);
        r->found[r->n_found++] = a;
    }
}

static int status_errno(int status)
{
    switch (status) {
    case ARES_ENOTFOUND:
    case ARES_ENODATA:
    case ARES_EBADNAME:
    case ARES_ENONAME:
        return ENOENT;
    case ARES_ENOMEM:
        return ENOMEM;
    case ARES_ETIMEOUT:
        return ETIMEDOUT;
    default:
        return EAGAIN;
    }
}

static void on_answer(void *arg, int status, int timeouts, struct ares_addrinfo *info)
{
    struct tcp_resolve *r = arg;
    (void)timeouts;
    if (info) {
        keep_addresses(r, info);
        ares_freeaddrinfo(info);
    }
    if (status == ARES_EDESTRUCTION || r->over)
        return;
    if (r->n_found == 0) {
        int num = status == ARES_SUCCESS ? ENOENT : status_errno(status);
        (void)err_set(&r->failed, num, "cannot find host '%s': %s", r->host,
                      num == ENOENT ? "there is no such name" : ares_strerror(status));
    }
    resolve_over(r);
}

static void on_resolve_timer(void *arg)
{
    struct tcp_resolve *r = arg;
    if (!r->over && clock_mono_ms() >= r->deadline_ms) {
        (void)err_set(&r->failed, ETIMEDOUT,
                      "cannot find host '%s': the name servers do not answer", r->host);
        r->over = true;
    }
    if (!r->over) {
        ares_process_fd(r->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
        timer_next(r);
        return;
    }
    struct err none = { 0 };
    r->done(r->found, r->n_found, r->n_found > 0 ? &none : &r->failed, r->arg);
    resolve_free(r);
}

static int channel_new(struct tcp_resolve *r, struct err *e)
{
    struct ares_options o = { .timeout = ASK_MS,
                              .tries = ASK_TRIES,
                              /* c-ares copies it. f: /etc/hosts first, b: then the name servers */
                              .lookups = (char[]){ 'f', 'b', '\0' },
                              .sock_state_cb = on_socket_state,
                              .sock_state_cb_data = r };
    int rc = ares_init_options(&r->channel, &o,
                               ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS |
                                   ARES_OPT_SOCK_STATE_CB);
    if (rc == ARES_SUCCESS && r->loop->name_servers)
        rc = ares_set_servers_ports_csv(r->channel, r->loop->name_servers);
    if (rc == ARES_SUCCESS)
        return 0;
    return err_set(e, rc == ARES_ENOMEM ? ENOMEM : EIO, "cannot look up host '%s': %s", r->host,
                   ares_strerror(rc));
}

int tcp_resolve(struct loop *l, const char *host, uint16_t port, int64_t deadline_ms,
                void (*done)(const struct tcp_address *v, size_t n, const struct err *e, void *arg),
                void *arg, struct tcp_resolve **out, struct err *e)
{
    if (*host == '\0' || strlen(host) > TCP_HOST_MAX)
        return err_set(e, EINVAL, "'%s' is not a valid host name", host);
    struct tcp_resolve *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ENOMEM, "cannot look up host '%s': %m", host);
    r->loop = l;
    r->port = port;
    r->done = done;
    r->arg = arg;
    r->deadline_ms = deadline_ms ? deadline_ms : clock_mono_ms() + TCP_DIAL_MS;
    r->host = str_dup(host);
    r->timer = loop_timer_new(l, on_resolve_timer, r);
    int rc = 0;
    if (!r->host || !r->timer) {
        rc = err_set(e, ENOMEM, "cannot look up host '%s': %m", host);
    } else if (tcp_numeric(host, port, &r->found[0])) {
        r->n_found = 1;
        resolve_over(r);
    } else if ((rc = channel_new(r, e)) == 0) {
        struct ares_addrinfo_hints hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
        char service[8];
        (void)snprintf(service, sizeof service, "%u", port);
        hints.ai_flags = ARES_AI_NUMERICSERV;
        ares_getaddrinfo(r->channel, host, service, &hints, on_answer, r);
        timer_next(r);
    }
    if (rc < 0) {
        resolve_free(r);
        return rc;
    }
    r->next = l->resolves;
    r->at = &l->resolves;
    if (r->next)
        r->next->at = &r->next;
    l->resolves = r;
    *out = r;
    return 0;
}

void tcp_resolve_cancel(struct tcp_resolve *r)
{
    if (!r)
        return;
    r->over = true;
    resolve_free(r);
}

void resolves_end(struct loop *l)
{
    while (l->resolves)
        tcp_resolve_cancel(l->resolves);
}
