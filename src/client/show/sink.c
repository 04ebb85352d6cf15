/* SPDX-License-Identifier: Apache-2.0 */
#include "client/show/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "loop/loop.h"

enum { QUEUE_MAX = 1 << 20 }; /* bytes */

struct sink {
    int fd;
    int own_fd;  /* a second descriptor for the pipe, opened with O_NONBLOCK; -1 = fd is no pipe */
    bool socket; /* fd is a socket: send() with MSG_DONTWAIT does not block */
    bool broken; /* the reader has closed its end */
    struct loop_fd *watch;
    struct buf queue;
    uint64_t left_lines, left_bytes;
};

/* Write without waiting. -EAGAIN: the pipe or socket is full. */
static ssize_t write_now(const struct sink *s, const char *p, size_t n)
{
    ssize_t rc;
    do
        rc = s->socket ? send(s->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL) : write(s->own_fd, p, n);
    while (rc == -1 && errno == EINTR);
    return rc == -1 ? -errno : rc;
}

/* The length of the next write: whole lines, together at most PIPE_BUF bytes. A pipe accepts such a
 * write as a whole, so text of other writers never comes inside a line. */
static size_t next_write(const char *p, size_t n)
{
    if (n <= PIPE_BUF)
        return n;
    const char *end = memrchr(p, '\n', PIPE_BUF);
    return end ? (size_t)(end + 1 - p) : PIPE_BUF;
}

/* Returns how many bytes were written. */
static size_t write_some(struct sink *s, const char *p, size_t n)
{
    size_t at = 0;
    while (at < n && !s->broken) {
        ssize_t rc = write_now(s, p + at, next_write(p + at, n - at));
        if (rc == -EAGAIN)
            break;
        if (rc < 0)
            s->broken = true;
        else
            at += (size_t)rc;
    }
    return s->broken ? n : at;
}

static void note_left_out(struct sink *s)
{
    char size[32], line[120];
    if (!s->left_lines)
        return;
    int n = snprintf(line, sizeof line, "[%llu lines (%s) left out: the reader is slow]\n",
                     (unsigned long long)s->left_lines, str_size(s->left_bytes, size, sizeof size));
    s->left_lines = s->left_bytes = 0;
    (void)buf_add(&s->queue, line, (size_t)n); /* without memory, the note is missing */
}

static void on_writable(void *arg)
{
    struct sink *s = arg;
    buf_consume(&s->queue, write_some(s, s->queue.p, s->queue.len));
    if (!s->queue.len)
        note_left_out(s);
    loop_fd_want(s->watch, false, s->queue.len > 0);
}

static void leave_out(struct sink *s, const char *p, size_t n)
{
    s->left_bytes += n;
    for (size_t i = 0; i < n; i++)
        s->left_lines += p[i] == '\n';
}

void sink_put(struct sink *s, const char *p, size_t n)
{
    if (s->broken)
        return;
    if (!s->watch) {
        s->broken = fs_write_all(s->fd, p, n) < 0;
        return;
    }
    if (s->queue.len + n > QUEUE_MAX) {
        leave_out(s, p, n);
        return;
    }
    size_t done = s->queue.len ? 0 : write_some(s, p, n);
    if (done < n && buf_add(&s->queue, p + done, n - done) < 0)
        leave_out(s, p + done, n - done);
    loop_fd_want(s->watch, false, s->queue.len > 0);
}

void sink_drain(struct sink *s)
{
    struct pollfd wait = { .fd = s->fd, .events = POLLOUT };
    for (bool last = false; s->watch && !s->broken && !last;) {
        last = s->left_lines == 0;
        if (!s->queue.len)
            note_left_out(s);
        while (s->queue.len && !s->broken) {
            buf_consume(&s->queue, write_some(s, s->queue.p, s->queue.len));
            if (s->queue.len)
                (void)poll(&wait, 1, 1000);
        }
    }
}

/* O_NONBLOCK on fd itself would also change it for other programs that use the same pipe end. */
static int open_again(int fd)
{
    char path[40];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

struct sink *sink_new(struct loop *l, int fd)
{
    struct stat st;
    struct sink *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    *s = (struct sink){ .fd = fd, .own_fd = -1 };
    if (fstat(fd, &st) == -1)
        return s;
    s->socket = S_ISSOCK(st.st_mode);
    if (S_ISFIFO(st.st_mode))
        s->own_fd = open_again(fd);
    if (s->socket || s->own_fd >= 0)
        s->watch = loop_fd_new(l, s->socket ? fd : s->own_fd, on_writable, s);
    if (s->watch)
        loop_fd_want(s->watch, false, false);
    return s;
}

void sink_free(struct sink *s)
{
    if (!s)
        return;
    loop_fd_free(s->watch);
    close_p(&s->own_fd);
    buf_done(&s->queue);
    free(s);
}
