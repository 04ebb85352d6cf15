/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/sockowner.h"
#include "base/util.h"
#include "rendezvous/rendezvous_int.h"

int rendezvous_listen(const char *what, const char *host, uint16_t port, uint16_t *out_port,
                      struct err *e)
{
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } at = { 0 };
    int on = 1;
    bool v6 = inet_pton(AF_INET6, host, &at.in6.sin6_addr) == 1;
    if (!v6 && inet_pton(AF_INET, host, &at.in.sin_addr) != 1)
        return err_set(e, EINVAL, "cannot serve %s at '%s': this is not a numeric address", what, host);
    at.sa.sa_family = v6 ? AF_INET6 : AF_INET;
    *(v6 ? &at.in6.sin6_port : &at.in.sin_port) = htons(port);
    socklen_t len = v6 ? sizeof at.in6 : sizeof at.in;
    AUTO(close_p) int fd = socket(at.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* SO_REUSEPORT: the caller holds the port with a bound socket, so that no other program gets
     * it. */
    if (fd == -1 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == -1 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == -1 ||
        bind(fd, &at.sa, len) == -1 || listen(fd, SOMAXCONN) == -1 ||
        getsockname(fd, &at.sa, &len) == -1)
        return err_set(e, errno, "cannot serve %s at '%s', port %u: %m", what, host, port);
    *out_port = ntohs(v6 ? at.in6.sin6_port : at.in.sin_port);
    int taken = fd;
    fd = -1;
    return taken;
}

int rendezvous_accept(const char *what, int listen_fd, bool own_peers, struct err *e)
{
    uid_t uid;
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd == -1)
        return -errno;
    int rc = own_peers ? sock_peer_owner(fd, &uid) : 0;
    if (rc == 0 && (!own_peers || uid == geteuid()))
        return fd;
    (void)close(fd); /* without an answer */
    if (rc == 0)
        return err_set(e, EPERM, "a process of user %u tried to connect to the server of %s",
                       (unsigned)uid, what);
    return rc == -ENOENT
               ? err_set(e, EPERM, "a peer of the server of %s closed its connection at once", what)
               : err_set(e, EPERM, "cannot find out who connects to the server of %s: %s", what,
                         strerror(-rc));
}
