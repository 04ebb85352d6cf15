/* SPDX-License-Identifier: Apache-2.0 */
/* tony cp: the files of the task's machine, with the rights of the task. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "base/util.h"
#include "executor/executor_int.h"
#include "executor/stream_int.h"
#include "storage/treewire.h"

struct put {
    struct stream_side *s;
    struct tree_receive *r;
    struct err e;
    bool done;
};

static char *text_of(const ProtobufCBinaryData *b, struct err *e)
{
    if (b->len && memchr(b->data, '\0', b->len)) {
        (void)err_set(e, EINVAL, "a path contains a NUL byte");
        return NULL;
    }
    char *text = strndup(b->len ? (const char *)b->data : "", b->len);
    if (!text)
        (void)err_set(e, ENOMEM, "cannot copy files: %m");
    return text;
}

/* The task is being stopped, or the executor has died. */
static bool stopped(const struct stream_side *s)
{
    struct signalfd_siginfo si;
    while (read(s->signal_fd, &si, sizeof si) == (ssize_t)sizeof si)
        if (si.ssi_signo != SIGCHLD)
            return true;
    return false;
}

static _Noreturn void fail_stopped(struct stream_side *s)
{
    struct err e = { 0 };
    (void)err_set(&e, ESRCH, "the task is being stopped; the copy is not complete");
    tunnel_fail(&s->t, &e);
}

static int ignore_frame(enum stream_type type, struct span p, void *arg)
{
    (void)type;
    (void)p;
    (void)arg;
    return 0;
}

static _Noreturn void get(struct stream_side *s, int dir, const char *path)
{
    struct err e = { 0 };
    struct tree_send *from = NULL;
    struct tunnel *t = &s->t;
    int more = tree_send_open(dir, path, &from, &e);
    if (more < 0)
        tunnel_fail(t, &e);
    t->reader = (struct stream_reader){ .on_frame = ignore_frame };
    (void)tunnel_add(t, SF_STARTED, NULL, 0);
    for (more = 1; more || tunnel_unsent(t);) {
        bool room = more && tunnel_has_room(t);
        struct pollfd p[] = { { .fd = s->signal_fd, .events = POLLIN },
                              { .fd = t->fd, .events = tunnel_events(t, true) } };
        if (poll(p, ARRAY_LEN(p), room ? 0 : -1) == -1)
            continue;
        if (p[0].revents && stopped(s))
            fail_stopped(s);
        if (p[1].revents && tunnel_ready(t, p[1].revents, true, &e) < 0)
            _exit(0); /* the client has disconnected */
        tunnel_trim(t);
        if (room && (more = tree_send_next(from, &t->out, &e)) < 0)
            tunnel_fail(t, &e);
        if (tunnel_flush(t) < 0)
            _exit(0);
    }
    tree_send_free(from);
    tunnel_finish(t);
}

static void on_note(const char *text, void *arg)
{
    struct put *put = arg;
    (void)tunnel_add(&put->s->t, SF_NOTE, text, MIN(strlen(text), (size_t)4096));
}

static int on_put(enum stream_type type, struct span payload, void *arg)
{
    struct put *put = arg;
    int rc = tree_receive_frame(put->r, type, payload, &put->e);
    put->done = rc == 1;
    return rc == 1 ? -EALREADY : rc;
}

static _Noreturn void put(struct stream_side *s, int dir, const char *path, const char *name)
{
    struct put put = { .s = s };
    struct tunnel *t = &s->t;
    struct err e = { 0 };
    if (tree_receive_open(dir, path, name, on_note, &put, &put.r, &put.e) < 0)
        tunnel_fail(t, &put.e);
    t->reader = (struct stream_reader){ .on_frame = on_put, .arg = &put };
    (void)tunnel_add(t, SF_STARTED, NULL, 0);
    while (!put.done) {
        struct pollfd p[] = { { .fd = s->signal_fd, .events = POLLIN },
                              { .fd = t->fd, .events = tunnel_events(t, true) } };
        if (tunnel_flush(t) < 0)
            break;
        if (poll(p, ARRAY_LEN(p), -1) == -1)
            continue;
        int rc = p[1].revents ? tunnel_ready(t, p[1].revents, true, &e) : 0;
        if (rc < 0 && rc != -EALREADY)
            break;
        if (!put.done && p[0].revents && stopped(s)) {
            tree_receive_free(put.r);
            fail_stopped(s);
        }
    }
    tree_receive_free(put.r); /* removes an incomplete file */
    if (put.done) {
        (void)tunnel_add(t, SF_DONE, NULL, 0);
        tunnel_finish(t);
    }
    if (!put.e.num)
        _exit(0); /* the client has disconnected */
    tunnel_fail(t, &put.e);
}

_Noreturn void stream_files(struct stream_side *s)
{
    struct err e = { 0 };
    const Tony__StreamRequest *r = s->request;
    char *path = text_of(&r->path, &e);
    char *name = path ? text_of(&r->name, &e) : NULL;
    int dir = open(s->x->workdir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!e.num && dir == -1)
        (void)err_set(&e, errno, "cannot open the working directory of the task: %m");
    if (!e.num && !*path)
        (void)err_set(&e, EINVAL, "the path is empty");
    if (e.num)
        tunnel_fail(&s->t, &e);
    umask(executor_umask(s->x));
    if (r->kind == TONY__STREAM_REQUEST__KIND__GET)
        get(s, dir, path);
    put(s, dir, path, name);
}
