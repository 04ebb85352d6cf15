/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The minimum cost of any store with one thread: for each request one recv(), one send() of an
 * answer of the right length, and its share of an epoll_wait(). It stores nothing and checks
 * nothing. It prints its port; for older|newer see store_load.c. Ends when its standard input is
 * closed.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 256, HELLO = 5, ADD = 3, WAIT = 5 };

static void answer(int fd, int op_base)
{
    static const char reply[16] = { 1 }; /* a number, or the length of a value and the value */
    char request[4096];
    ssize_t n = recv(fd, request, sizeof request, MSG_DONTWAIT);
    if (n <= 0) {
        close(fd);
        return;
    }
    size_t at = op_base && request[0] == 0 ? HELLO : 0;
    if (at >= (size_t)n) /* the command is incomplete */
        return;
    int op = request[at] - op_base;
    size_t len = op == WAIT ? 1 : op == ADD ? 8 : 9;
    (void)send(fd, op == WAIT ? reply + 1 : reply, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof at;
    struct rlimit files;
    int op_base = argc > 1 && strcmp(argv[1], "newer") == 0, on = 1, ends = 0;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    int epoll_fd = epoll_create1(0), listen_fd = socket(AF_INET, SOCK_STREAM, 0);
    struct epoll_event events[EVENTS], in = { .events = EPOLLIN, .data.fd = listen_fd };
    if (bind(listen_fd, (struct sockaddr *)&at, len) == -1 || listen(listen_fd, SOMAXCONN) == -1 ||
        getsockname(listen_fd, (struct sockaddr *)&at, &len) == -1 ||
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listen_fd, &in) == -1) {
        perror("store-floor");
        return 1;
    }
    in.data.fd = 0;
    (void)epoll_ctl(epoll_fd, EPOLL_CTL_ADD, 0, &in);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    while (!ends) {
        int n = epoll_wait(epoll_fd, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == 0) {
                ends = 1;
            } else if (fd != listen_fd) {
                answer(fd, op_base);
            } else if ((fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                in.data.fd = fd;
                (void)epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &in);
            }
        }
    }
    return 0;
}
