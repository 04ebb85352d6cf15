/*
 * Clients of torch's store, many at once: how many adds and gets a second it answers.
 *
 *   store-load PORT CONNECTIONS WINDOW OPERATIONS older|newer
 *
 * All connections stay open; WINDOW of them, going round, have a request under way. A get is what
 * torch's is: WAIT, its answer, GET, its answer. Prints two numbers, adds and gets a second.
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

enum { KEYS = 64, KEY_LEN = 16, EVENTS = 512, VALUE_MAX = 64 };
enum what { ADD, WAIT, GET };

struct client {
    int fd;
    enum what what;
    size_t got;
    char reply[8 + VALUE_MAX];
};

static struct client *clients;
static struct client **idle; /* a ring: who has been so longest comes next */
static unsigned n_clients, idle_first, n_idle;
static unsigned char op_base; /* 1 where commands are numbered from SET = 1 */
static int epoll_fd;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "store-load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static size_t put_key(char *to, unsigned i)
{
    uint64_t len = KEY_LEN;
    char name[KEY_LEN + 1];
    snprintf(name, sizeof name, "/default_pg/0/%02u", i % KEYS);
    memcpy(to, &len, 8);
    memcpy(to + 8, name, KEY_LEN);
    return 8 + KEY_LEN;
}

static void ask(struct client *c, enum what what)
{
    static const unsigned char number[] = { [ADD] = 3, [WAIT] = 5, [GET] = 2 };
    unsigned i = (unsigned)(c - clients);
    char text[64];
    size_t n = 0;
    uint64_t one = 1;
    text[n++] = (char)(number[what] + op_base);
    if (what == WAIT) {
        memcpy(text + n, &one, 8);
        n += 8;
    }
    n += put_key(text + n, i);
    if (what == ADD) {
        memcpy(text + n, &one, 8);
        n += 8;
    }
    c->what = what;
    c->got = 0;
    if (send(c->fd, text, n, MSG_NOSIGNAL) != (ssize_t)n)
        die("send");
}

/* Has it the whole answer? */
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

static double measure(enum what what, unsigned window, unsigned long n)
{
    struct epoll_event events[EVENTS];
    unsigned long begun = 0, done = 0;
    double start = now_s();
    for (; begun < window && begun < n; begun++)
        begin(what);
    while (done < n) {
        int ready = epoll_wait(epoll_fd, events, EVENTS, 10000);
        if (ready <= 0)
            die("no answer");
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
    return (double)n / (now_s() - start);
}

static void connect_one(struct client *c, uint16_t port)
{
    static const char hello[] = "\0\xce\xf7\x85\x3c";
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd == -1 || connect(c->fd, (struct sockaddr *)&at, sizeof at) == -1)
        die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (op_base && send(c->fd, hello, 5, 0) != 5)
        die("send");
    struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &ev) == -1)
        die("epoll_ctl");
}

int main(int argc, char **argv)
{
    struct rlimit files;
    if (argc != 6) {
        fprintf(stderr, "usage: store-load PORT CONNECTIONS WINDOW OPERATIONS older|newer\n");
        return 2;
    }
    n_clients = (unsigned)strtoul(argv[2], NULL, 10);
    unsigned window = (unsigned)strtoul(argv[3], NULL, 10);
    unsigned long n = strtoul(argv[4], NULL, 10);
    op_base = strcmp(argv[5], "newer") == 0;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    clients = calloc(n_clients ? n_clients : 1, sizeof *clients);
    idle = calloc(n_clients ? n_clients : 1, sizeof(struct client *));
    epoll_fd = epoll_create1(0);
    if (!clients || !idle || epoll_fd == -1 || !n_clients || window > n_clients)
        die("cannot begin");
    for (unsigned i = 0; i < n_clients; i++) {
        connect_one(&clients[i], (uint16_t)strtoul(argv[1], NULL, 10));
        idle[n_idle++] = &clients[i];
    }
    (void)measure(ADD, 1, n_clients); /* all are accepted, and all keys there */
    double adds = measure(ADD, window, n);
    printf("%.0f %.0f\n", adds, measure(WAIT, window, n));
    return 0;
}
