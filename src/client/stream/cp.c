/* SPDX-License-Identifier: Apache-2.0 */
/* cp: files and directories from a task, or to it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/stream/stream.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "storage/treewire.h"

enum {
    QUEUE_MAX = 512 << 10, /* bytes of files that wait for the connection */
};

struct cp {
    struct client *c;
    struct loop *loop;
    struct stream *stream;
    struct tree_receive *in;
    struct tree_send *out;
    bool over, all_sent;
    struct loop_signal *signals[3];
    int code;
    struct err e;
    uint64_t n_notes;
};

static void end(struct cp *x, int code)
{
    if (x->over)
        return;
    x->over = true;
    x->code = code;
    loop_stop(x->loop);
}

static void on_note(const char *text, void *arg)
{
    struct cp *x = arg;
    x->n_notes++;
    client_note("%s", text);
}

/* ---- to the task ---- */

static void send_more(struct cp *x)
{
    AUTO(buf_done) struct buf piece = { 0 };
    while (!x->all_sent && !x->over && stream_unsent(x->stream) < QUEUE_MAX) {
        buf_clear(&piece);
        int more = tree_send_next(x->out, &piece, &x->e);
        if (more < 0) {
            end(x, EXIT_JOB_FAILED);
            return;
        }
        x->all_sent = !more;
        if (stream_send_bytes(x->stream, piece.p, piece.len) < 0)
            return; /* on_end() follows */
    }
}

static void on_drain(struct stream *s, void *arg)
{
    struct cp *x = arg;
    (void)s;
    if (x->out)
        send_more(x);
}

/* ---- frames of the task's side ---- */

static void on_started(struct stream *s, void *arg)
{
    struct cp *x = arg;
    x->stream = s;
    if (x->out)
        send_more(x);
}

static int on_frame_in(struct cp *x, enum stream_type type, struct span p)
{
    int rc = tree_receive_frame(x->in, type, p, &x->e);
    if (rc == 1)
        end(x, EXIT_DONE);
    else if (rc < 0)
        end(x, EXIT_JOB_FAILED);
    return rc < 0 ? rc : 0;
}

static int on_frame(enum stream_type type, struct span p, void *arg)
{
    struct cp *x = arg;
    if (x->in)
        return on_frame_in(x, type, p);
    AUTO(free_p) char *text = type == SF_NOTE ? span_dup(p) : NULL;
    if (text) {
        str_mask_controls(text);
        on_note(text, x);
    } else if (type == SF_DONE) {
        end(x, EXIT_DONE);
    }
    return 0;
}

static void on_end(struct stream *s, const struct err *e, void *arg)
{
    struct cp *x = arg;
    stream_close(s);
    x->stream = NULL;
    if (x->over)
        return;
    x->e = *e;
    end(x, e->num == ECONNRESET || e->num == ETIMEDOUT ? EXIT_CLUSTER : EXIT_JOB_FAILED);
}

static const struct stream_ops ops = {
    .on_started = on_started, .on_frame = on_frame, .on_drain = on_drain, .on_end = on_end
};

static void on_signal(int signo, void *arg)
{
    struct cp *x = arg;
    (void)err_set(&x->e, EINTR, "interrupted; the copy is not complete");
    end(x, 128 + signo);
}

/* ---- the command ---- */

struct place {
    const char *task; /* NULL = a path of this machine */
    size_t task_len;
    const char *path;
};

/* "worker:0:PATH" or "worker:PATH" is a place in a task, a text without ':' or with '/' before it
 * is a path of this machine. */
static struct place place_of(const char *text)
{
    const char *colon = strchr(text, ':'), *slash = strchr(text, '/');
    if (!colon || (slash && slash < colon) || text[0] == '.' || text[0] == '\0')
        return (struct place){ .path = text };
    const char *second = colon + 1 + strspn(colon + 1, "0123456789");
    if (second > colon + 1 && *second == ':')
        colon = second;
    return (struct place){ .task = text, .task_len = (size_t)(colon - text), .path = colon + 1 };
}

/* The last part of a path, which names the copy. Empty for ".", ".." and "/". The caller frees
 * it. */
static char *last_part(const char *path)
{
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/')
        n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/')
        from--;
    char *name = strndup(path + from, n - from);
    if (name && (str_eq(name, ".") || str_eq(name, "..")))
        name[0] = '\0';
    return name;
}

static ProtobufCBinaryData bytes_of(const char *s)
{
    return (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)s, .len = strlen(s) };
}

static int open_local(struct cp *x, bool get, const char *path, const char *name)
{
    return get ? tree_receive_open(AT_FDCWD, path, name, on_note, x, &x->in, &x->e)
               : tree_send_open(AT_FDCWD, path, &x->out, &x->e);
}

static void say_done(const struct cp *x)
{
    char size[32];
    uint64_t n = x->in ? tree_receive_bytes(x->in) : tree_send_bytes(x->out);
    if (options_has(&x->c->o, OPT_VERBOSE))
        client_note("copied %s", str_size(n, size, sizeof size));
}

static int run(struct cp *x, struct stream_job *j, const struct place *from, const struct place *to)
{
    static const int signos[] = { SIGINT, SIGTERM, SIGHUP };
    bool get = from->task != NULL;
    const struct place *there = get ? from : to;
    AUTO(free_p) char *task = strndup(there->task, there->task_len);
    AUTO(free_p) char *name = last_part(from->path);
    Tony__StreamRequest r = TONY__STREAM_REQUEST__INIT;
    r.kind = get ? TONY__STREAM_REQUEST__KIND__GET : TONY__STREAM_REQUEST__KIND__PUT;
    if (!task || !name)
        return err_set(&x->e, ENOMEM, "cannot copy: %m"), EXIT_CLUSTER;
    r.path = bytes_of(*there->path ? there->path : ".");
    r.name = bytes_of(get ? "" : name);
    if (open_local(x, get, get ? to->path : from->path, name) < 0)
        return EXIT_MISUSE;
    int rc = stream_open(j, task, "cp", &r, &ops, x, &x->stream, &x->e);
    if (rc < 0)
        return -rc;
    for (size_t i = 0; i < ARRAY_LEN(signos); i++)
        x->signals[i] = loop_signal_new(j->loop, signos[i], on_signal, x);
    while (!x->over)
        (void)loop_run(j->loop);
    for (size_t i = 0; i < ARRAY_LEN(signos); i++)
        loop_signal_free(x->signals[i]);
    if (x->code == EXIT_DONE)
        say_done(x);
    return x->code;
}

int cmd_cp(struct client *c)
{
    struct cp x = { .c = c };
    struct stream_job j;
    struct place from = place_of(c->o.args[1]), to = place_of(c->o.args[2]);
    if (!from.task == !to.task) {
        (void)err_set(&x.e, EINVAL,
                      from.task ? "one of the two places must be on this machine"
                                : "one of the two places must be in a task");
        err_hint(&x.e, "as in: tony cp %s worker:0:model.pt .", c->o.args[0]);
        return client_fail(EXIT_MISUSE, &x.e);
    }
    int rc = stream_job_open(c, c->o.args[0], &j, &x.e);
    if (rc < 0)
        return client_fail(-rc, &x.e);
    x.loop = j.loop;
    int code = run(&x, &j, &from, &to);
    stream_close(x.stream);
    tree_receive_free(x.in);
    tree_send_free(x.out);
    stream_job_done(&j);
    return code == EXIT_DONE ? code : client_fail(code, &x.e);
}
