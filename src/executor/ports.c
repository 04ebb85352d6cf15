/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"

enum { TRIES = 24, RANGE_MIN = 1024 };

/* The kernel's range of ephemeral ports. */
static struct {
    bool known;
    bool usable; /* false: some ports in it are reserved, so let the kernel choose */
    unsigned low, high;
} range;

static bool read_range(unsigned *low, unsigned *high)
{
    char text[64] = "";
    int fd = open("/proc/sys/net/ipv4/ip_local_reserved_ports", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd == -1 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n != 1 || text[0] != '\n')
        return false;
    fd = open("/proc/sys/net/ipv4/ip_local_port_range", O_RDONLY | O_CLOEXEC);
    n = fd == -1 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return sscanf(text, "%u %u", low, high) == 2 && *high <= UINT16_MAX && *low < *high &&
           *high - *low >= RANGE_MIN;
}

void ports_look(void)
{
    range.usable = read_range(&range.low, &range.high);
    range.known = true;
}

static int bind_to(int fd, unsigned port)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_addr = { htonl(INADDR_ANY) },
                              .sin_port = htons((uint16_t)port) };
    return bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 ? 0 : -errno;
}

/* Bind a random port of the range. For port 0 the kernel tries one port after the other until one
 * is free: with thousands of tasks on a machine, the used ports form long rows, and each search
 * skips thousands of them. A random port is free at the first or second try. Prefer odd ports,
 * since the kernel prefers even ones for outgoing connections. */
static int bind_anywhere(int fd, unsigned *out_port)
{
    uint32_t numbers[TRIES];
    if (!range.known)
        ports_look();
    if (!range.usable ||
        getrandom(numbers, sizeof numbers, GRND_NONBLOCK) != (ssize_t)sizeof numbers)
        return bind_to(fd, 0);
    for (unsigned i = 0; i < TRIES; i++) {
        unsigned at = numbers[i] % (range.high - range.low);
        unsigned port = range.low + (i < TRIES / 2 ? at | 1 : at);
        int rc = bind_to(fd, port);
        if (rc == 0)
            *out_port = port;
        if (rc != -EADDRINUSE && rc != -EACCES)
            return rc;
    }
    return bind_to(fd, 0);
}

/* tony.port-range; first 0 = any port. Set once, before the first port is reserved. */
static struct {
    uint16_t first, last;
} allowed;

void ports_allow(uint16_t first, uint16_t last)
{
    allowed.first = first;
    allowed.last = last;
}

/* Bind a free port of the allowed range. Begin at a random one: the executors of a node would
 * otherwise all try the same ports first. */
static int bind_allowed(int fd)
{
    unsigned n = (unsigned)allowed.last - allowed.first + 1, start = 0;
    if (getrandom(&start, sizeof start, GRND_NONBLOCK) != (ssize_t)sizeof start)
        start = (unsigned)getpid();
    for (unsigned i = 0; i < n; i++) {
        int rc = bind_to(fd, allowed.first + (start % n + i) % n);
        if (rc != -EADDRINUSE && rc != -EACCES)
            return rc;
    }
    return -EADDRINUSE;
}

/* Set the options after bind(). Without options, bind() takes only a port that no other socket has.
 * With them, a task that sets one of them can bind the same port later. */
static int take(int fd, uint16_t *out_port)
{
    int on = 1;
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    unsigned port = 0; /* 0 = the kernel has chosen it */
    int rc = allowed.first ? bind_allowed(fd) : bind_anywhere(fd, &port);
    if (rc < 0)
        return rc;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == -1 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == -1 ||
        (!port && getsockname(fd, (struct sockaddr *)&at, &len) == -1))
        return -errno;
    *out_port = port ? (uint16_t)port : ntohs(at.sin_port);
    return 0;
}

int port_reserve(uint16_t *out_port, struct err *e)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd == -1)
        return err_set(e, errno, "cannot reserve a port: %m");
    int rc = take(fd, out_port);
    if (rc == 0)
        return fd;
    close(fd);
    if (rc == -EADDRINUSE && allowed.first)
        return err_set(e, EADDRINUSE,
                       "all ports of tony.port-range (%u-%u) are in use on this node",
                       allowed.first, allowed.last);
    return err_set(e, -rc, "cannot reserve a port: %m");
}
