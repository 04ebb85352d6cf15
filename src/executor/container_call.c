/* SPDX-License-Identifier: Apache-2.0 */
/* A new master may run on another node, and the executors do not know its address. So the master
 * connects to the executors (master/reconnect.c): each listens at the first free one of
 * JOB_KEY_PORTS ports that are derived from its key (storage/jobkey.h). A peer that proves in the
 * TLS handshake that it knows the key is a master of this job. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/container.h"
#include "executor/link.h"
#include "storage/jobkey.h"

enum {
    BACKLOG = 8,
    CALLER_MS = 5000, /* a peer that has not proved the key by then is disconnected */
};

static int listen_at(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
    at.sin_addr.s_addr = htonl(INADDR_ANY);
    if (fd == -1)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* despite old connections */
    if (bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int rc = -errno;
    close(fd);
    return rc;
}

void remote_listen(struct remote *r)
{
    uint16_t ports[JOB_KEY_PORTS];
    job_key_ports(&r->key, r->ports, ports);
    int rc = -EADDRINUSE;
    for (size_t i = 0; i < JOB_KEY_PORTS && rc == -EADDRINUSE; i++)
        rc = listen_at(ports[i]);
    if (rc < 0)
        log_event(LOG_WARN, "executor.not_listening", f_int("errno", -rc));
    r->listen_fd = rc < 0 ? -1 : rc;
}

static void caller_done(struct caller *c)
{
    link_close(&c->link);
    c->until_ms = 0;
}

void remote_listen_done(struct remote *r)
{
    if (r->listen_fd >= 0)
        close(r->listen_fd);
    r->listen_fd = -1;
    for (size_t i = 0; i < CALLERS_MAX; i++)
        caller_done(&r->callers[i]);
    free(TAKE(r->seen));
}

size_t remote_poll(const struct remote *r, struct pollfd *out)
{
    size_t n = 0;
    if (r->listen_fd < 0)
        return 0;
    out[n++] = (struct pollfd){ .fd = r->listen_fd, .events = POLLIN };
    for (size_t i = 0; i < CALLERS_MAX; i++) /* poll() skips unused entries: their fd is -1 */
        out[n++] = (struct pollfd){ .fd = r->callers[i].link.fd,
                                    .events = link_unsent(&r->callers[i].link) ? POLLIN | POLLOUT
                                                                               : POLLIN };
    return n;
}

int64_t remote_call_deadline(const struct remote *r)
{
    int64_t at = INT64_MAX;
    for (size_t i = 0; i < CALLERS_MAX; i++)
        if (r->callers[i].link.fd >= 0)
            at = MIN(at, r->callers[i].until_ms);
    return at;
}

static bool our_key(const char *identity, struct tls_key *out, void *arg)
{
    const struct remote *r = arg;
    if (!str_eq(identity, r->identity))
        return false;
    *out = r->key;
    return true;
}

/* The number of connections from this address without a proof. */
static unsigned count_from(const struct remote *r, uint32_t from)
{
    unsigned n = 0;
    for (size_t i = 0; i < CALLERS_MAX; i++)
        n += r->callers[i].link.fd >= 0 && !r->callers[i].proved && r->callers[i].from == from;
    return n;
}

/* Returns a free entry. If all are in use, closes the oldest connection without a proof of the
 * address that has most of these. NULL: all callers have proved that they know the key. */
static struct caller *place_for(struct remote *r)
{
    struct caller *best = NULL;
    unsigned most = 0;
    for (size_t i = 0; i < CALLERS_MAX; i++) {
        struct caller *c = &r->callers[i];
        if (c->link.fd < 0)
            return c;
        unsigned n = c->proved ? 0 : count_from(r, c->from);
        if (n > most || (n && n == most && c->until_ms < best->until_ms)) {
            most = n;
            best = c;
        }
    }
    if (best)
        caller_done(best);
    return best;
}

static void take_call(struct remote *r)
{
    struct sockaddr_in peer = { 0 };
    socklen_t len = sizeof peer;
    int fd = accept4(r->listen_fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd == -1)
        return;
    struct caller *c = place_for(r);
    struct tls *tls = c ? tls_server_new(our_key, r, NULL) : NULL;
    if (!tls) {
        close(fd);
        return;
    }
    tls_hold(tls);
    link_of_tls(&c->link, fd, tls);
    c->until_ms = clock_mono_ms() + CALLER_MS;
    c->from = peer.sin_addr.s_addr;
    c->proved = false;
}

/* The first message of the caller has arrived. A master proves in it that it knows the key: it
 * comes from the same release as this executor. So no handshake is computed for others. */
static int hear(struct remote *r, struct caller *c)
{
    uint64_t number;
    if (!r->seen && !(r->seen = calloc(1, sizeof *r->seen)))
        return -ENOMEM;
    c->proved = tls_claim(c->link.tls, &number) && tls_seen_add(r->seen, number);
    if (!c->proved)
        return -EACCES;
    int rc = tls_continue(c->link.tls, NULL);
    return rc < 0 ? rc : link_flush(&c->link);
}

static int read_caller(struct remote *r, struct caller *c)
{
    int rc = link_fill(&c->link);
    return rc == 0 && tls_held(c->link.tls) ? hear(r, c) : rc;
}

bool remote_called(struct remote *r, const struct pollfd *v, size_t n, struct link *out)
{
    int64_t now = clock_mono_ms();
    for (size_t i = 0; i < CALLERS_MAX; i++) {
        struct caller *c = &r->callers[i];
        bool has_input = i + 1 < n && v[i + 1].fd == c->link.fd && v[i + 1].revents;
        if (c->link.fd < 0)
            continue;
        if ((has_input && read_caller(r, c) < 0) || now >= c->until_ms) {
            caller_done(c);
        } else if (tls_ready(c->link.tls)) {
            *out = c->link;
            c->link = (struct link){ .fd = -1 };
            return true;
        }
    }
    if (n > 0 && v[0].revents)
        take_call(r);
    return false;
}

void remote_moved(struct remote *r, const char *address)
{
    struct remote at = { .listen_fd = -1 };
    if (!address || !*address || remote_parse_master(address, &at, NULL) < 0)
        return;
    r->master = at.master;
    r->master_len = at.master_len;
    r->master_port = at.master_port;
    (void)str_copy(r->master_host, sizeof r->master_host, at.master_host);
}
