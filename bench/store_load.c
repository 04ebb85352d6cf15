/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many clients of torch's store at the same time.
 *
 *   store-load PORT PID CONNECTIONS older|newer
 *
 * Connects all clients. Prints the seconds until each has added once and got once, as the ranks of
 * a starting job do. Then, for each line "add|get WINDOW OPERATIONS" on its standard input, WINDOW
 * of the connections in turn have a request under way. Prints the operations per second, and the
 * microseconds of CPU time of the server (process PID) for each request. A get is that of torch:
 * WAIT, its answer, GET, its answer.
 *
 * A request costs the kernel as much as its answer. So for a server that does little more than
 * recv() and send(), this program is the bottleneck: compare such servers by their CPU time.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { KEYS = 64, KEY_LEN = 16, EVENTS = 512, VALUE_MAX = 64, PATIENCE_MS = 60000 };
enum what { ADD, WAIT, GET, N_WHATS };

struct client {
    int fd;
    enum what what;
    size_t got;
    char reply[8 + VALUE_MAX];
};

static const char hello[] = { 0, '\xce', '\xf7', '\x85', '\x3c' };
static struct {
    char text[64];
    size_t len;
} requests[N_WHATS][KEYS];
static struct client *clients;
static struct client **idle; /* a ring: the client that has been idle longest is the next */
static unsigned n_clients, idle_first, n_idle;
static unsigned char op_base; /* 1 if the commands are numbered from SET = 1 */
static int epoll_fd;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "store-load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    if (clock_gettime(clock, &t) == -1)
        die("cannot read a clock");
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void put(enum what what, unsigned i, const void *p, size_t n)
{
    memcpy(requests[what][i].text + requests[what][i].len, p, n);
    requests[what][i].len += n;
}

static void make_requests(void)
{
    static const unsigned char number[] = { [ADD] = 3, [WAIT] = 5, [GET] = 2 };
    uint64_t one = 1, len = KEY_LEN;
    char name[KEY_LEN + 1];
    for (unsigned i = 0; i < KEYS; i++)
        for (enum what what = ADD; what < N_WHATS; what++) {
            unsigned char op = (unsigned char)(number[what] + op_base);
            snprintf(name, sizeof name, "/default_pg/0/%02u", i);
            put(what, i, &op, 1);
            if (what == WAIT)
                put(what, i, &one, 8);
            put(what, i, &len, 8);
            put(what, i, name, KEY_LEN);
            if (what == ADD)
                put(what, i, &one, 8);
        }
}

static void ask(struct client *c, enum what what)
{
    unsigned i = (unsigned)(c - clients) % KEYS;
    size_t n = requests[what][i].len;
    c->what = what;
    c->got = 0;
    if (send(c->fd, requests[what][i].text, n, MSG_NOSIGNAL) != (ssize_t)n)
        die("send");
}

/* Has the client received the whole answer? */
static bool answered(struct client *c)
{
    ssize_t n = recv(c->fd, c->reply + c->got, sizeof c->reply - c->got, MSG_DONTWAIT);
    if (n == -1 && errno == EAGAIN)
        return false;
    if (n <= 0)
        die("the store has closed a connection");
    c->got += (size_t)n;
    uint64_t len = 0;
    if (c->what == WAIT)
        return c->got >= 1;
    if (c->got < 8)
        return false;
    if (c->what == GET)
        memcpy(&len, c->reply, 8);
    return c->got >= 8 + len;
}

static void begin(enum what what)
{
    struct client *c = idle[idle_first];
    idle_first = (idle_first + 1) % n_clients;
    n_idle--;
    ask(c, what);
}

static int wait_for_answers(struct epoll_event events[EVENTS])
{
    int ready = epoll_wait(epoll_fd, events, EVENTS, PATIENCE_MS);
    if (ready == 0)
        errno = ETIMEDOUT;
    if (ready <= 0)
        die("no answer");
    return ready;
}

static void measure(enum what what, unsigned window, unsigned long n, clockid_t server)
{
    struct epoll_event events[EVENTS];
    unsigned long begun = 0, done = 0;
    double cpu = seconds(server), start = seconds(CLOCK_MONOTONIC);
    for (; begun < window && begun < n; begun++)
        begin(what);
    while (done < n) {
        int ready = wait_for_answers(events);
        for (int i = 0; i < ready; i++) {
            struct client *c = events[i].data.ptr;
            if (!answered(c))
                continue;
            if (c->what == WAIT) {
                ask(c, GET);
                continue;
            }
            done++;
            idle[(idle_first + n_idle++) % n_clients] = c;
            if (begun < n) {
                begin(what);
                begun++;
            }
        }
    }
    double took = seconds(CLOCK_MONOTONIC) - start;
    double n_requests = (double)n * (what == WAIT ? 2 : 1);
    printf("%.0f %.3f\n", (double)n / took, (seconds(server) - cpu) / n_requests * 1e6);
    fflush(stdout);
}

static void connect_one(struct client *c, uint16_t port)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd == -1 || connect(c->fd, (struct sockaddr *)&at, sizeof at) == -1)
        die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (op_base && send(c->fd, hello, sizeof hello, 0) != sizeof hello)
        die("send");
    /* Edge-triggered, and there is one short answer at a time: the kernel reports each only
     * once. */
    struct epoll_event ev = { .events = EPOLLIN | EPOLLET, .data.ptr = c };
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &ev) == -1)
        die("epoll_ctl");
}

/* As the ranks of a starting job do: each client connects, adds once and gets once. */
static void start(uint16_t port)
{
    struct epoll_event events[EVENTS];
    double begun = seconds(CLOCK_MONOTONIC);
    for (unsigned i = 0; i < n_clients; i++) {
        connect_one(&clients[i], port);
        ask(&clients[i], ADD);
    }
    while (n_idle < n_clients) {
        int ready = wait_for_answers(events);
        for (int i = 0; i < ready; i++) {
            struct client *c = events[i].data.ptr;
            if (!answered(c))
                continue;
            if (c->what == GET)
                idle[n_idle++] = c;
            else
                ask(c, c->what == ADD ? WAIT : GET);
        }
    }
    printf("%.4f\n", seconds(CLOCK_MONOTONIC) - begun);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct rlimit files;
    clockid_t server;
    char what[4];
    unsigned window;
    unsigned long n;
    if (argc != 5) {
        fprintf(stderr, "usage: store-load PORT PID CONNECTIONS older|newer\n");
        return 2;
    }
    n_clients = (unsigned)strtoul(argv[3], NULL, 10);
    op_base = strcmp(argv[4], "newer") == 0;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    clients = calloc(n_clients ? n_clients : 1, sizeof *clients);
    idle = calloc(n_clients ? n_clients : 1, sizeof(struct client *));
    epoll_fd = epoll_create1(0);
    if (!clients || !idle || epoll_fd == -1 || !n_clients)
        die("cannot begin");
    errno = clock_getcpuclockid((pid_t)strtol(argv[2], NULL, 10), &server);
    if (errno)
        die("cannot see the server's CPU time");
    make_requests();
    start((uint16_t)strtoul(argv[1], NULL, 10));
    while (scanf("%3s %u %lu", what, &window, &n) == 3)
        measure(strcmp(what, "add") == 0 ? ADD : WAIT, window < n_clients ? window : n_clients, n,
                server);
    return 0;
}
