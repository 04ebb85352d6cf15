/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user at the other end of a TCP connection within this machine.
 *
 * SO_PEERCRED knows only unix sockets. Of a TCP connection the kernel tells the owner of each of
 * its two sockets by netlink (sock_diag(7)), or in /proc/net/tcp.
 */
#ifndef TONY_BASE_SOCKOWNER_H
#define TONY_BASE_SOCKOWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Who owns the socket at the other end of this connection? 0, or -errno: -ENOENT if no process of
 * this machine and network namespace holds that socket (any more); -ENOTSUP if neither netlink nor
 * /proc can tell it. */
int sock_peer_owner(int fd, uid_t *out_uid);
/* Does a process of this user hold the other end of the connection? false also if that cannot be
 * found out. */
bool sock_peer_is_own(int fd);

/* Has the other end of the connection an address of this machine (and network namespace)? true also
 * if that cannot be found out. */
bool sock_peer_is_here(int fd);

/* For the side that has connected: is the program that listens at the other end one of this user?
 * Until that program accepts the connection, the other end has no owner. Then the owner of the
 * socket that listens there counts. false also if that cannot be found out. */
bool sock_service_is_own(int fd);

/* Does a process of another user listen at this port, on any local address? */
bool sock_port_is_foreign(uint16_t port, uid_t *out_uid);

/* The parts, for the tests: by netlink only, and by /proc/net/tcp only. */
int sock_peer_owner_netlink(int fd, uid_t *out_uid);
int sock_peer_owner_proc(int fd, uid_t *out_uid);
/* Who listens at the other end? Errors as of sock_peer_owner(). By /proc -EPERM if another user
 * listens at the same port of another address. */
int sock_listener_owner_netlink(int fd, uid_t *out_uid);
int sock_listener_owner_proc(int fd, uid_t *out_uid);

#endif
