/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the store for torch alone, for measurements and tests with real clients. Prints its port.
 * Ends when its standard input is closed. */
#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/err.h"
#include "rendezvous/service.h"

enum { BYTES_MAX = 512 << 20 };

static void on_refused(const struct err *why, void *arg)
{
    (void)arg;
    fprintf(stderr, "%s\n", why->msg);
}

int main(void)
{
    struct service *s;
    struct err e = { 0 };
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files); /* on failure, fewer clients can connect */
    }
    const struct service_config cfg = { .host = "127.0.0.1",
                                        .max_bytes = BYTES_MAX,
                                        .on_refused = on_refused };
    if (service_open("tcpstore", &cfg, &s, &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    printf("%u\n", service_port(s));
    fflush(stdout);
    for (;;) {
        struct pollfd p[] = { { .fd = 0, .events = POLLIN },
                              { .fd = service_fd(s), .events = POLLIN } };
        char unused[64];
        if (poll(p, 2, -1) <= 0)
            continue;
        if (p[1].revents)
            service_turn(s);
        if (p[0].revents && read(0, unused, sizeof unused) <= 0)
            break;
    }
    service_close(s);
    return 0;
}
