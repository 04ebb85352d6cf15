/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command that bench/recovery runs and kills. It reports that it has started, then waits until
 * it is killed.
 *
 *     recovery-stamp SOCKET
 *
 * It sends one datagram to the unix socket SOCKET: "<pid> <CLOCK_MONOTONIC in us> <name>". The name
 * is the one that the launcher gave it (TONY_TASK, RANK or PMI_RANK). The time is taken first, so a
 * slow receiver does not change the result.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static const char *who(void)
{
    static const char *const names[] = { "TONY_TASK", "RANK", "PMI_RANK" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *v = getenv(names[i]);
        if (v)
            return v;
    }
    return "?";
}

int main(int argc, char **argv)
{
    struct timespec t;
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    char text[200];
    clock_gettime(CLOCK_MONOTONIC, &t);
    if (argc != 2 || strlen(argv[1]) >= sizeof to.sun_path)
        return 2;
    strcpy(to.sun_path, argv[1]);
    int n = snprintf(text, sizeof text, "%ld %lld %.80s", (long)getpid(),
                     (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000, who());
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd == -1 || sendto(fd, text, (size_t)n, 0, (struct sockaddr *)&to, sizeof to) != n)
        return 3;
    for (;;)
        pause();
}
