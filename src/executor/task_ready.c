/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/task_ready.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sockowner.h"
#include "base/str.h"
#include "base/util.h"

enum {
    PAUSE_MIN_MS = 50,   /* first pause; it grows */
    PAUSE_MAX_MS = 2000, /* also for files: inotify sees no changes by other machines */
    QUIET_MS = 20,       /* handle inotify events at most this often */
    CONNECT_MS = 10,     /* the address is on this machine, so connect() is quick */
};

struct task_ready {
    bool done, quiet;
    uint16_t fixed_port, port;
    char host[80];
    char *name, *path;  /* the file: as in the job file; its full path */
    struct stat before; /* of the file when the attempt began; st_nlink 0 = it did not exist */
    int notify_fd, wd;
    int64_t due_ms, pause_ms;
};

struct task_ready *task_ready_new(const char *how)
{
    int64_t port = 0;
    struct task_ready *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->notify_fd = w->wd = -1;
    w->done = true; /* until an attempt begins */
    if (str_starts(how, "port:") &&
        str_i64(span_of(how + 5), 1, UINT16_MAX, "port", &port, NULL) == 0)
        w->fixed_port = (uint16_t)port;
    else if (str_starts(how, "file:"))
        w->name = str_dup(how + 5);
    if (w->fixed_port || w->name || str_eq(how, "port"))
        return w;
    task_ready_free(w);
    return NULL;
}

void task_ready_free(struct task_ready *w)
{
    if (!w)
        return;
    if (w->notify_fd >= 0)
        close(w->notify_fd);
    free(w->name);
    free(w->path);
    free(w);
}

/* ---- a file ---- */

/* Watch the nearest existing directory above the file. At each event look for the file, and choose
 * the directory again, since a nearer one may exist now. */
static void watch_nearest(struct task_ready *w)
{
    const uint32_t mask = IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE_SELF |
                          IN_MOVE_SELF | IN_ONLYDIR;
    AUTO(free_p) char *dir = str_dup(w->path);
    char *slash;
    if (w->notify_fd < 0)
        w->notify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (!dir || w->notify_fd < 0)
        return; /* the regular looks find the file as well */
    int old = w->wd;
    w->wd = -1;
    while (w->wd < 0 && (slash = strrchr(dir, '/'))) {
        slash[slash == dir] = '\0';
        w->wd = inotify_add_watch(w->notify_fd, dir, mask);
        if (slash == dir)
            break;
    }
    if (old >= 0 && old != w->wd)
        (void)inotify_rm_watch(w->notify_fd, old); /* fails if the directory was removed */
}

/* Does the file exist, and is it another one than before the attempt? */
static bool is_file_ready(const struct task_ready *w)
{
    struct stat st;
    const struct stat *b = &w->before;
    if (!w->path || stat(w->path, &st) == -1)
        return false;
    return !b->st_nlink || st.st_ino != b->st_ino || st.st_dev != b->st_dev ||
           st.st_size != b->st_size || st.st_mtim.tv_sec != b->st_mtim.tv_sec ||
           st.st_mtim.tv_nsec != b->st_mtim.tv_nsec;
}

static bool check_file(struct task_ready *w)
{
    if (is_file_ready(w))
        return true;
    watch_nearest(w);
    return is_file_ready(w); /* it may have appeared before the watch began */
}

/* ---- a port ---- */

/* own: the program that listens there must be one of this user. */
static bool answers(const struct sockaddr *at, socklen_t len, bool own)
{
    AUTO(close_p) int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = 0;
    socklen_t n = sizeof error;
    if (fd < 0)
        return false;
    if (connect(fd, at, len) == -1) {
        struct pollfd p = { .fd = fd, .events = POLLOUT };
        if (errno != EINPROGRESS || poll(&p, 1, CONNECT_MS) != 1 ||
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) == -1 || error)
            return false;
    }
    /* If the port is free, the kernel may choose it as the local port of this socket: then the
     * socket is connected to itself. */
    struct sockaddr_storage local = { 0 }, peer = { 0 };
    socklen_t own_len = sizeof local, peer_len = sizeof peer;
    return getsockname(fd, (struct sockaddr *)&local, &own_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 &&
           (own_len != peer_len || memcmp(&local, &peer, own_len) != 0) &&
           (!own || sock_service_is_own(fd));
}

static bool answers_at(const char *host, uint16_t port, bool own)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1)
        return answers((const struct sockaddr *)&v4, sizeof v4, own);
    return inet_pton(AF_INET6, host, &v6.sin6_addr) == 1 &&
           answers((const struct sockaddr *)&v6, sizeof v6, own);
}

/* Another user can bind a port that is reserved for the task before the task does, and then must
 * not pass for it. A port that the job file names may belong to a service of the machine. */
static bool check_port(const struct task_ready *w)
{
    uint16_t port = w->fixed_port ? w->fixed_port : w->port;
    bool own = !w->fixed_port;
    return answers_at("127.0.0.1", port, own) || answers_at("::1", port, own) ||
           (w->host[0] && answers_at(w->host, port, own));
}

/* ---- when ---- */

void task_ready_begin(struct task_ready *w, const char *workdir, uint16_t port, const char *host,
                      int64_t now_ms, uint32_t after_ms)
{
    w->done = w->quiet = false;
    w->due_ms = now_ms + after_ms;
    w->pause_ms = MAX((int64_t)PAUSE_MIN_MS, (int64_t)after_ms);
    w->port = port;
    (void)str_copy(w->host, sizeof w->host, host);
    free(w->path);
    w->path = NULL;
    if (!w->name)
        return;
    w->path = w->name[0] == '/' ? str_dup(w->name)
                                : str_printf("%s/%s", workdir ? workdir : ".", w->name);
    if (!w->path || stat(w->path, &w->before) == -1)
        w->before = (struct stat){ 0 };
}

bool task_ready_check(struct task_ready *w, int64_t now_ms)
{
    if (w->done)
        return false;
    w->quiet = false;
    w->done = w->name ? check_file(w) : check_port(w);
    w->due_ms = now_ms + w->pause_ms;
    w->pause_ms = MIN(w->pause_ms + w->pause_ms / 4, (int64_t)PAUSE_MAX_MS);
    if (w->done && w->notify_fd >= 0) {
        close(w->notify_fd);
        w->notify_fd = w->wd = -1;
    }
    return w->done;
}

int64_t task_ready_due(const struct task_ready *w)
{
    return w->done ? INT64_MAX : w->due_ms;
}

int task_ready_fd(const struct task_ready *w)
{
    return w->done || w->quiet ? -1 : w->notify_fd;
}

void task_ready_event(struct task_ready *w, int64_t now_ms)
{
    char events[4096] __attribute__((aligned(8)));
    while (read(w->notify_fd, events, sizeof events) > 0)
        ;
    w->quiet = true;
    w->due_ms = MIN(w->due_ms, now_ms + QUIET_MS);
}
