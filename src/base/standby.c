/* SPDX-License-Identifier: Apache-2.0 */
#include "base/standby.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* The text of the message: the path of the log, then the arguments, each with its zero. */
struct message {
    char text[STANDBY_TEXT_MAX];
    size_t len;
    int fds[STANDBY_FDS_MAX];
    size_t n_fds;
};

union control {
    char bytes[CMSG_SPACE(STANDBY_FDS_MAX * sizeof(int))];
    struct cmsghdr align;
};

/* ---- the standby ---- */

/* 1: the message is here; 0: the connection is closed. */
static int receive(struct message *m)
{
    union control control;
    struct iovec iov = { m->text, sizeof m->text };
    struct msghdr h = { .msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = control.bytes,
                        .msg_controllen = sizeof control.bytes };
    ssize_t n;
    do
        n = recvmsg(STANDBY_FD, &h, MSG_CMSG_CLOEXEC);
    while (n == -1 && errno == EINTR);
    if (n <= 0)
        return n == 0 || errno == ECONNRESET ? 0 : -errno;
    if ((h.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || m->text[n - 1] != '\0')
        return -EBADMSG;
    m->len = (size_t)n;
    struct cmsghdr *c = CMSG_FIRSTHDR(&h);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
        m->n_fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(m->fds, CMSG_DATA(c), m->n_fds * sizeof(int));
    }
    return 1;
}

/* Give the descriptors their numbers. The connection has the first of these numbers. */
static int place_fds(struct message *m)
{
    (void)close(STANDBY_FD);
    for (size_t i = 0; i < m->n_fds; i++) {
        int high = fcntl(m->fds[i], F_DUPFD_CLOEXEC, STANDBY_FD + STANDBY_FDS_MAX);
        if (high == -1)
            return -errno;
        (void)close(m->fds[i]);
        m->fds[i] = high;
    }
    for (size_t i = 0; i < m->n_fds; i++) {
        if (dup2(m->fds[i], STANDBY_FD + (int)i) == -1)
            return -errno;
        (void)close(m->fds[i]);
    }
    return 0;
}

static int open_log(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd == -1)
        return -errno;
    bool ok = dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0;
    int rc = ok ? 0 : -errno;
    if (fd > STDERR_FILENO)
        (void)close(fd);
    return rc;
}

int standby_wait(const char *name, const char *more, char ***out_argv)
{
    static struct message m;
    static char *argv[STANDBY_ARGS_MAX + 2];
    (void)prctl(PR_SET_NAME, "tony-standby");
    int rc = receive(&m), argc = 0;
    if (rc <= 0)
        return rc;
    (void)prctl(PR_SET_NAME, name);
    rc = place_fds(&m); /* before open_log(), which may get the number of a closed descriptor */
    if (rc == 0)
        rc = open_log(m.text);
    if (rc < 0)
        return rc;
    for (char *at = m.text + strlen(m.text) + 1; at < m.text + m.len; at += strlen(at) + 1) {
        if (argc == STANDBY_ARGS_MAX)
            return -E2BIG;
        argv[argc++] = at;
    }
    if (more)
        argv[argc++] = (char *)more;
    *out_argv = argv;
    return argc ? argc : -EBADMSG;
}

/* ---- the other side ---- */

static int add(struct message *m, const char *text)
{
    size_t n = strlen(text) + 1;
    if (n > sizeof m->text - m->len)
        return -E2BIG;
    memcpy(m->text + m->len, text, n);
    m->len += n;
    return 0;
}

int standby_send(int fd, const char *log, char *const *argv, const int *fds, size_t n_fds)
{
    struct message m = { .len = 0 };
    union control control = { .bytes = "" };
    int rc = n_fds <= STANDBY_FDS_MAX ? add(&m, log) : -E2BIG;
    for (; rc == 0 && *argv; argv++)
        rc = add(&m, *argv);
    if (rc < 0)
        return rc;
    struct iovec iov = { m.text, m.len };
    struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };
    if (n_fds) {
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE(n_fds * sizeof *fds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof *fds);
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof *fds);
    }
    return sendmsg(fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)m.len ? 0 : -errno;
}
