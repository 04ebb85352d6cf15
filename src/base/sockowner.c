/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sockowner.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"

enum {
    ANSWER_MAX = 8192,
    PROC_MAX = 64 << 20, /* 150 bytes for each connection of the machine */
    LINE_WORDS = 10,     /* of a line of /proc/net/tcp, up to the inode */
};

/* The two ends of a connection. Ports and addresses are in network byte order. */
struct ends {
    sa_family_t family;
    uint16_t own_port, peer_port;
    uint32_t own[4], peer[4]; /* IPv4: the first element */
    bool listener;            /* ask for the socket that listens at the peer's address instead */
};

union address {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

static int take_address(const union address *a, uint32_t out[static 4], uint16_t *out_port)
{
    memset(out, 0, 4 * sizeof *out);
    if (a->sa.sa_family == AF_INET) {
        out[0] = a->in.sin_addr.s_addr;
        *out_port = a->in.sin_port;
    } else if (a->sa.sa_family == AF_INET6) {
        memcpy(out, &a->in6.sin6_addr, sizeof a->in6.sin6_addr);
        *out_port = a->in6.sin6_port;
    } else {
        return -ENOTSUP;
    }
    return 0;
}

static int ends_of(int fd, struct ends *out)
{
    union address own = { 0 }, peer = { 0 };
    socklen_t n_own = sizeof own, n_peer = sizeof peer;
    if (getsockname(fd, &own.sa, &n_own) == -1 || getpeername(fd, &peer.sa, &n_peer) == -1)
        return errno == ENOTCONN ? -ENOENT : -errno;
    out->family = own.sa.sa_family;
    int rc = take_address(&own, out->own, &out->own_port);
    return rc < 0 ? rc : take_address(&peer, out->peer, &out->peer_port);
}

/* Is it a socket that a process holds? A closed socket that still waits for the end of its
 * connection has no inode, and the kernel names root as its owner: without this check, another user
 * could send bytes, close the socket and count as root. */
static bool is_held(const struct ends *x, unsigned state, uint64_t inode)
{
    return inode != 0 && (state == TCP_LISTEN) == x->listener && state != TCP_TIME_WAIT;
}

/* ---- netlink ---- */

static int ask(int fd, const struct ends *x)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } m = {
        .head = { .nlmsg_len = sizeof m,
                  .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                  .nlmsg_flags = NLM_F_REQUEST },
        .body = { .sdiag_family = (uint8_t)x->family,
                  .sdiag_protocol = IPPROTO_TCP,
                  .idiag_states = ~0U,
                  /* the socket of the peer: its own end is the peer's address */
                  .id = { .idiag_sport = x->peer_port,
                          .idiag_dport = x->own_port,
                          .idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE } } },
    };
    memcpy(m.body.id.idiag_src, x->peer, sizeof m.body.id.idiag_src);
    memcpy(m.body.id.idiag_dst, x->own, sizeof m.body.id.idiag_dst);
    if (x->listener)
        m.body.id.idiag_dport =
            0; /* no connection has this port, so the kernel finds the listener */
    struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
    ssize_t n = sendto(fd, &m, sizeof m, 0, (struct sockaddr *)&kernel, sizeof kernel);
    return n == (ssize_t)sizeof m ? 0 : n == -1 ? -errno : -EIO;
}

static int read_answer(int fd, const struct ends *x, uid_t *out_uid)
{
    union {
        struct nlmsghdr head;
        char bytes[ANSWER_MAX];
    } m;
    struct sockaddr_nl from = { 0 };
    socklen_t from_len = sizeof from;
    ssize_t n = recvfrom(fd, &m, sizeof m, MSG_DONTWAIT, (struct sockaddr *)&from, &from_len);
    if (n == -1)
        return -errno;
    if (from.nl_pid != 0 || n < (ssize_t)NLMSG_LENGTH(0) || m.head.nlmsg_len > (size_t)n)
        return -EPROTO; /* only the kernel has the number 0 */
    if (m.head.nlmsg_type == NLMSG_ERROR && n >= (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)))
        return ((const struct nlmsgerr *)NLMSG_DATA(&m.head))->error;
    if (m.head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        m.head.nlmsg_len < NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
        return -EPROTO;
    const struct inet_diag_msg *d = NLMSG_DATA(&m.head);
    if (!is_held(x, d->idiag_state, d->idiag_inode) || d->id.idiag_sport != x->peer_port ||
        (!x->listener && d->id.idiag_dport != x->own_port))
        return -ENOENT;
    *out_uid = d->idiag_uid;
    return 0;
}

static int by_netlink(const struct ends *x, uid_t *out_uid)
{
    AUTO(close_p) int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd == -1)
        return -ENOTSUP;
    int rc = ask(fd, x);
    if (rc == 0)
        rc = read_answer(fd, x, out_uid);
    return rc == 0 || rc == -ENOENT ? rc : -ENOTSUP;
}

/* ---- /proc ---- */

/* "0100007F:1F90": the words of the address as this machine reads them, and the port. */
static void add_end(struct buf *out, const struct ends *x, const uint32_t *address, uint16_t port)
{
    size_t words = x->family == AF_INET6 ? 4 : 1;
    for (size_t i = 0; i < words; i++)
        (void)buf_addf(out, "%08X", (unsigned)address[i]);
    (void)buf_addf(out, ":%04X", (unsigned)ntohs(port));
}

static bool next_word(struct span *line, struct span *out)
{
    while (span_split(line, ' ', out))
        if (out->len)
            return true;
    return false;
}

/* A line is "<number>: <own end> <other end> <state> .. .. .. <uid> .. <inode> ...". */
struct line {
    struct span own, other;
    unsigned state;
    uid_t uid;
    uint64_t inode;
};

static bool read_line(struct span line, struct line *out)
{
    struct span word[LINE_WORDS];
    int64_t uid, inode;
    char state[8];
    for (size_t i = 0; i < ARRAY_LEN(word); i++)
        if (!next_word(&line, &word[i]))
            return false;
    if (word[3].len >= sizeof state || str_i64(word[7], 0, UINT32_MAX, "uid", &uid, NULL) < 0 ||
        str_i64(word[9], 0, INT64_MAX, "inode", &inode, NULL) < 0)
        return false;
    memcpy(state, word[3].p, word[3].len);
    state[word[3].len] = '\0';
    *out = (struct line){ .own = word[1],
                          .other = word[2],
                          .state = (unsigned)strtoul(state, NULL, 16),
                          .uid = (uid_t)uid,
                          .inode = (uint64_t)inode };
    return true;
}

static int by_proc(const struct ends *x, uid_t *out_uid)
{
    AUTO(buf_done) struct buf text = { .max = PROC_MAX };
    AUTO(buf_done) struct buf own = { 0 }, other = { 0 };
    const char *path = x->family == AF_INET6 ? "/proc/net/tcp6" : "/proc/net/tcp";
    add_end(&own, x, x->peer, x->peer_port);
    add_end(&other, x, x->own, x->own_port);
    if (own.failed || other.failed)
        return -ENOMEM;
    if (fs_read(AT_FDCWD, path, &text, NULL) < 0)
        return -ENOTSUP;
    struct span rest = buf_span(&text), one;
    while (span_split(&rest, '\n', &one)) {
        struct line l;
        if (!read_line(one, &l) || !span_eq(l.own, buf_span(&own)) ||
            !span_eq(l.other, buf_span(&other)))
            continue;
        if (!is_held(x, l.state, l.inode))
            return -ENOENT;
        *out_uid = l.uid;
        return 0;
    }
    return -ENOENT;
}

/* Add the owners of the sockets in this file that listen at the peer's port, of any address: a
 * socket of [::] also serves IPv4. */
static int add_listeners(const char *path, const struct ends *x, bool *found, uid_t *out_uid)
{
    AUTO(buf_done) struct buf text = { .max = PROC_MAX };
    char port[8];
    if (fs_read(AT_FDCWD, path, &text, NULL) < 0)
        return -ENOTSUP;
    (void)snprintf(port, sizeof port, ":%04X", (unsigned)ntohs(x->peer_port));
    struct span rest = buf_span(&text), one;
    while (span_split(&rest, '\n', &one)) {
        struct line l;
        if (!read_line(one, &l) || !is_held(x, l.state, l.inode) || l.own.len < strlen(port) ||
            !span_eqs(span_mem(l.own.p + l.own.len - strlen(port), strlen(port)), port))
            continue;
        if (*found && *out_uid != l.uid)
            return -EPERM;
        *found = true;
        *out_uid = l.uid;
    }
    return 0;
}

static int listener_by_proc(const struct ends *x, uid_t *out_uid)
{
    bool found = false;
    uid_t uid = 0;
    int rc = add_listeners("/proc/net/tcp", x, &found, &uid);
    if (rc == 0 && add_listeners("/proc/net/tcp6", x, &found, &uid) == -EPERM)
        rc = -EPERM; /* a machine without IPv6 has no such file */
    if (rc == 0 && found)
        *out_uid = uid;
    return rc < 0 ? rc : found ? 0 : -ENOENT;
}

/* ---- both ---- */

static int owner(int fd, bool listener, int (*by)(const struct ends *x, uid_t *out_uid),
                 uid_t *out_uid)
{
    struct ends x = { 0 };
    int rc = ends_of(fd, &x);
    x.listener = listener;
    return rc < 0 ? rc : by(&x, out_uid);
}

int sock_peer_owner_netlink(int fd, uid_t *out_uid)
{
    return owner(fd, false, by_netlink, out_uid);
}

int sock_peer_owner_proc(int fd, uid_t *out_uid)
{
    return owner(fd, false, by_proc, out_uid);
}

int sock_listener_owner_netlink(int fd, uid_t *out_uid)
{
    return owner(fd, true, by_netlink, out_uid);
}

int sock_listener_owner_proc(int fd, uid_t *out_uid)
{
    return owner(fd, true, listener_by_proc, out_uid);
}

int sock_peer_owner(int fd, uid_t *out_uid)
{
    int rc = sock_peer_owner_netlink(fd, out_uid);
    return rc == -ENOTSUP ? sock_peer_owner_proc(fd, out_uid) : rc;
}

bool sock_peer_is_own(int fd)
{
    uid_t uid;
    return sock_peer_owner(fd, &uid) == 0 && uid == geteuid();
}

/* Only an address of this machine can be bound. */
bool sock_peer_is_here(int fd)
{
    union address peer = { 0 };
    socklen_t n = sizeof peer;
    if (getpeername(fd, &peer.sa, &n) == -1 ||
        (peer.sa.sa_family != AF_INET && peer.sa.sa_family != AF_INET6))
        return true;
    *(peer.sa.sa_family == AF_INET ? &peer.in.sin_port : &peer.in6.sin6_port) = 0;
    AUTO(close_p) int probe = socket(peer.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return probe == -1 || bind(probe, &peer.sa, n) == 0 || errno != EADDRNOTAVAIL;
}

/* If a program stops listening, the kernel resets the connections that it has not accepted. So a
 * connection that still waits belongs to the program that listens now. */
bool sock_service_is_own(int fd)
{
    uid_t uid;
    int rc = sock_peer_owner(fd, &uid);
    if (rc == -ENOENT)
        rc = sock_listener_owner_netlink(fd, &uid);
    if (rc == -ENOTSUP)
        rc = sock_listener_owner_proc(fd, &uid);
    return rc == 0 && uid == geteuid();
}

bool sock_port_is_foreign(uint16_t port, uid_t *out_uid)
{
    const struct ends x = { .peer_port = htons(port), .listener = true };
    return listener_by_proc(&x, out_uid) == 0 && *out_uid != geteuid();
}
