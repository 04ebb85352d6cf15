/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of sock_owner: the user who owns the other end of a TCP connection within this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sockowner.h"
#include "base/util.h"

enum { NOBODY = 65534 };

typedef int (*owner_fn)(int fd, uid_t *out_uid);
static const owner_fn ways[] = { sock_peer_owner, sock_peer_owner_netlink, sock_peer_owner_proc };

union address {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

static int listen_on(bool v6, union address *at)
{
    socklen_t len = v6 ? sizeof at->in6 : sizeof at->in;
    *at = (union address){ 0 };
    at->sa.sa_family = v6 ? AF_INET6 : AF_INET;
    if (v6)
        at->in6.sin6_addr = in6addr_loopback;
    else
        at->in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(at->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd == -1 || bind(fd, &at->sa, len) == -1 || listen(fd, 8) == -1) {
        assert_true(v6); /* a machine without IPv6 */
        return -1;
    }
    assert_int_equal(getsockname(fd, &at->sa, &len), 0);
    return fd;
}

static int dial(const union address *at)
{
    int fd = socket(at->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(
        connect(fd, &at->sa, at->sa.sa_family == AF_INET6 ? sizeof at->in6 : sizeof at->in), 0);
    return fd;
}

static void own_connections(void **state)
{
    (void)state;
    for (int v6 = 0; v6 < 2; v6++) {
        union address at;
        int listener = listen_on(v6, &at);
        if (listener == -1)
            continue;
        int peer = dial(&at), fd = accept(listener, NULL, NULL);
        for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
            uid_t uid = NOBODY;
            assert_int_equal(ways[i](fd, &uid), 0);
            assert_int_equal(uid, geteuid());
        }
        assert_true(sock_peer_is_own(fd));
        assert_int_equal(shutdown(peer, SHUT_WR), 0); /* still held */
        assert_true(sock_peer_is_own(fd));
        close(fd);
        close(peer);
        close(listener);
    }
}

/* The kernel names root as the owner of a closed socket. That must not count. */
static void a_closed_socket_has_no_owner(void **state)
{
    union address at;
    int listener = listen_on(false, &at);
    (void)state;
    int peer = dial(&at), fd = accept(listener, NULL, NULL);
    assert_int_equal(send(peer, "x", 1, 0), 1);
    close(peer);
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        uid_t uid = NOBODY;
        assert_int_equal(ways[i](fd, &uid), -ENOENT);
        assert_int_equal(uid, NOBODY);
    }
    assert_false(sock_peer_is_own(fd));
    close(fd);
    close(listener);
}

static void another_user(void **state)
{
    union address at;
    (void)state;
    if (geteuid() != 0)
        skip(); /* only root can act as another user */
    int listener = listen_on(false, &at);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        if (setuid(NOBODY) == -1)
            _exit(1);
        int fd = dial(&at);
        _exit(recv(fd, &byte, 1, 0) != 0);
    }
    int fd = accept(listener, NULL, NULL), status;
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        uid_t uid = 0;
        assert_int_equal(ways[i](fd, &uid), 0);
        assert_int_equal(uid, NOBODY);
    }
    assert_false(sock_peer_is_own(fd));
    close(fd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(listener);
}

typedef int (*listener_fn)(int fd, uid_t *out_uid);
static const listener_fn listener_ways[] = { sock_listener_owner_netlink,
                                             sock_listener_owner_proc };

/* Before and after the service has accepted the connection. */
static void own_service(void **state)
{
    (void)state;
    for (int v6 = 0; v6 < 2; v6++) {
        union address at;
        int listener = listen_on(v6, &at);
        if (listener == -1)
            continue;
        int fd = dial(&at);
        assert_true(sock_service_is_own(fd));
        uid_t unused;
        uint16_t port = v6 ? at.in6.sin6_port : at.in.sin_port;
        assert_false(sock_port_is_foreign(ntohs(port), &unused));
        for (size_t i = 0; i < ARRAY_LEN(listener_ways); i++) {
            uid_t uid = NOBODY;
            assert_int_equal(listener_ways[i](fd, &uid), 0);
            assert_int_equal(uid, geteuid());
        }
        int peer = accept(listener, NULL, NULL);
        close(listener); /* the service accepts no more connections */
        assert_true(sock_service_is_own(fd));
        close(peer);
        assert_false(sock_service_is_own(fd));
        close(fd);
    }
}

static void service_of_another_user(void **state)
{
    union address at;
    int go[2];
    char byte = 0;
    (void)state;
    if (geteuid() != 0)
        skip(); /* only root can act as another user */
    assert_int_equal(pipe(go), 0);
    int listener;
    /* The owner of a socket is the user who has made it. */
    assert_int_equal(seteuid(NOBODY), 0);
    listener = listen_on(false, &at);
    assert_int_equal(seteuid(0), 0);
    int fd = dial(&at);
    assert_false(sock_service_is_own(fd));
    for (size_t i = 0; i < ARRAY_LEN(listener_ways); i++) {
        uid_t uid = 0;
        assert_int_equal(listener_ways[i](fd, &uid), 0);
        assert_int_equal(uid, NOBODY);
    }
    uid_t thief = 0;
    assert_true(sock_port_is_foreign(ntohs(at.in.sin_port), &thief));
    assert_int_equal(thief, NOBODY);
    pid_t pid = fork();
    if (pid == 0) {
        if (setuid(NOBODY) == -1)
            _exit(1);
        int peer = accept(listener, NULL, NULL);
        _exit(peer == -1 || read(go[0], &byte, 1) != 1);
    }
    assert_false(sock_service_is_own(fd));
    assert_int_equal(write(go[1], &byte, 1), 1);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_false(sock_service_is_own(fd));
    close(fd);
    close(listener);
    close(go[0]);
    close(go[1]);
}

static void no_connection(void **state)
{
    union address at;
    uid_t uid;
    int pair[2];
    (void)state;
    int listener = listen_on(false, &at);
    assert_int_equal(sock_peer_owner(listener, &uid), -ENOENT);
    close(listener);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_true(sock_peer_owner(pair[0], &uid) < 0);
    close(pair[0]);
    close(pair[1]);
    assert_false(sock_peer_is_own(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_connections),
        cmocka_unit_test(a_closed_socket_has_no_owner),
        cmocka_unit_test(another_user),
        cmocka_unit_test(own_service),
        cmocka_unit_test(service_of_another_user),
        cmocka_unit_test(no_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
