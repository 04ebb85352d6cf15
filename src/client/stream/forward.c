/* SPDX-License-Identifier: Apache-2.0 */
/* forward: connections to a port of this machine become streams to a port of a task's machine. */
#include "client/stream/forward.h"

#include <errno.h>
#include <signal.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/stream/stream.h"
#include "loop/tcp.h"
#include "proto/tony.pb-c.h"

enum {
    QUEUE_MAX = 256 << 10, /* bytes that wait for one side; then the other side is not read */
    CONNECTIONS_MAX = 128, /* at the same time; more are closed at once */
    COMPLAIN_MS = 1000,    /* the shortest time between two messages about failed connections */
};

struct forward {
    struct stream_job *job;
    char *task;
    uint16_t port;
    struct listener *listener;
    struct call *calls;
    unsigned n_calls;
    int64_t complain_ms;
};

/* One connection. */
struct call {
    struct forward *f;
    struct tcp *tcp;       /* NULL = closed */
    struct stream *stream; /* NULL = closed */
    bool started;
    bool tcp_ended, stream_ended; /* this side sends nothing more */
    struct call *next;
};

static void call_free(struct call *c)
{
    for (struct call **at = &c->f->calls; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            c->f->n_calls--;
            break;
        }
    tcp_close(c->tcp);
    stream_close(c->stream);
    free(c);
}

static void complain(struct forward *f, const struct err *e)
{
    int64_t now = clock_mono_ms();
    if (now < f->complain_ms)
        return;
    f->complain_ms = now + COMPLAIN_MS;
    client_note("%s%s%s", e->msg, e->hint[0] ? "; " : "", e->hint);
}

/* Both sides have ended, and everything was sent. */
static bool is_over(const struct call *c)
{
    return c->tcp_ended && c->stream_ended && tcp_queued(c->tcp) == 0 &&
           stream_unsent(c->stream) == 0;
}

/* ---- from this machine ---- */

static void on_read(struct tcp *t, const char *p, size_t n, void *arg)
{
    struct call *c = arg;
    if (stream_send(c->stream, SF_DATA, p, n) < 0)
        return; /* on_end() follows */
    if (stream_unsent(c->stream) > QUEUE_MAX)
        tcp_pause(t, true);
}

static void on_tcp_end(struct tcp *t, void *arg)
{
    struct call *c = arg;
    (void)t;
    c->tcp_ended = true;
    (void)stream_send(c->stream, SF_END, NULL, 0); /* on failure, on_end() follows */
    if (is_over(c))
        call_free(c);
}

static void on_tcp_drain(struct tcp *t, void *arg)
{
    struct call *c = arg;
    (void)t;
    if (is_over(c))
        call_free(c);
    else if (c->stream)
        stream_pause(c->stream, false);
}

static void on_tcp_close(struct tcp *t, const struct err *e, void *arg)
{
    struct call *c = arg;
    (void)t;
    (void)e; /* the program on this machine sees that the connection is closed */
    c->tcp = NULL;
    call_free(c);
}

static const struct tcp_ops tcp_ops = {
    .on_read = on_read, .on_end = on_tcp_end, .on_drain = on_tcp_drain, .on_close = on_tcp_close
};

/* ---- from the task's machine ---- */

static void on_started(struct stream *s, void *arg)
{
    struct call *c = arg;
    c->stream = s;
    c->started = true;
    tcp_set_arg(c->tcp, &tcp_ops, c);
    tcp_pause(c->tcp, false);
}

static int on_frame(enum stream_type type, struct span p, void *arg)
{
    struct call *c = arg;
    if (type == SF_DATA) {
        int rc = tcp_write(c->tcp, p.p, p.len);
        if (rc == 0 && tcp_queued(c->tcp) > QUEUE_MAX)
            stream_pause(c->stream, true);
        return rc;
    }
    if (type != SF_END)
        return -EPROTO;
    c->stream_ended = true;
    tcp_end(c->tcp);
    if (is_over(c))
        call_free(c);
    return 0;
}

static void on_drain(struct stream *s, void *arg)
{
    struct call *c = arg;
    (void)s;
    if (is_over(c))
        call_free(c);
    else
        tcp_pause(c->tcp, false);
}

static void on_end(struct stream *s, const struct err *e, void *arg)
{
    struct call *c = arg;
    c->stream = NULL;
    stream_close(s);
    if (!c->started || e->num != ECONNRESET)
        complain(c->f, e);
    call_free(c);
}

static const struct stream_ops stream_ops = {
    .on_started = on_started, .on_frame = on_frame, .on_drain = on_drain, .on_end = on_end
};

/* While the stream is not open, the connection is not read, so this is never called. */
static void on_no_read(struct tcp *t, const char *p, size_t n, void *arg)
{
    (void)t;
    (void)p;
    (void)n;
    (void)arg;
}

static const struct tcp_ops waiting_ops = { .on_read = on_no_read, .on_close = on_tcp_close };

static void on_accept(struct tcp *t, void *arg)
{
    struct forward *f = arg;
    struct err e = { 0 };
    struct call *c = f->n_calls < CONNECTIONS_MAX ? calloc(1, sizeof *c) : NULL;
    if (!c)
        return; /* the loop closes it */
    *c = (struct call){ .f = f, .tcp = t, .next = f->calls };
    f->calls = c;
    f->n_calls++;
    tcp_pause(t, true);
    tcp_set_arg(t, &waiting_ops, c);
    char what[32];
    (void)snprintf(what, sizeof what, "forward %u", f->port);
    Tony__StreamRequest r = TONY__STREAM_REQUEST__INIT;
    r.kind = TONY__STREAM_REQUEST__KIND__CONNECT;
    r.port = f->port;
    if (stream_open(f->job, f->task, what, &r, &stream_ops, c, &c->stream, &e) < 0) {
        complain(f, &e);
        call_free(c);
    }
}

/* ---- the port ---- */

int forward_open(struct stream_job *j, const char *task, uint16_t local, uint16_t port,
                 struct forward **out, struct err *e)
{
    struct forward *f = calloc(1, sizeof *f);
    if (!f || !(f->task = str_dup(task))) {
        free(f);
        return err_set(e, ENOMEM, "cannot forward a port: %m"), -EXIT_CLUSTER;
    }
    f->job = j;
    f->port = port;
    if (listener_open_tcp(j->loop, "127.0.0.1", local, on_accept, f, &f->listener, e) < 0) {
        if (e->num == EADDRINUSE)
            err_hint(e, "another program uses it: write LOCAL:%u with a free port, or 0:%u", port,
                     port);
        forward_close(f);
        return -EXIT_MISUSE;
    }
    listener_own_peers(f->listener);
    *out = f;
    return 0;
}

uint16_t forward_port(const struct forward *f)
{
    return listener_port(f->listener);
}

void forward_close(struct forward *f)
{
    if (!f)
        return;
    while (f->calls)
        call_free(f->calls);
    listener_close(f->listener);
    free(f->task);
    free(f);
}

/* ---- the command ---- */

static int parse(const char *text, uint16_t *out_local, uint16_t *out_port, struct err *e)
{
    const char *colon = strchr(text, ':');
    int64_t local = 0, port = 0;
    int rc = str_i64(span_of(colon ? colon + 1 : text), 1, UINT16_MAX, "port", &port, e);
    if (rc == 0 && colon)
        rc =
            str_i64(span_mem(text, (size_t)(colon - text)), 0, UINT16_MAX, "local port", &local, e);
    if (rc < 0)
        return rc;
    *out_port = (uint16_t)port;
    *out_local = (uint16_t)(colon ? local : port);
    return 0;
}

static void on_signal(int signo, void *arg)
{
    (void)signo;
    loop_stop(arg);
}

/* Before it listens, the command opens one stream to the task and runs `true` there. So a wrong
 * name of a job or a task is reported at once, not at the first connection. */
struct probe {
    struct loop *loop;
    struct err e;
    bool over, failed;
};

static void probe_over(struct probe *p)
{
    p->over = true;
    loop_stop(p->loop);
}

static void probe_started(struct stream *s, void *arg)
{
    (void)s;
    (void)arg;
}

static int probe_frame(enum stream_type type, struct span text, void *arg)
{
    (void)text;
    if (type == SF_EXIT)
        probe_over(arg);
    return 0;
}

static void probe_end(struct stream *s, const struct err *e, void *arg)
{
    struct probe *p = arg;
    (void)s; /* probe() closes it */
    p->e = *e;
    p->failed = true;
    probe_over(p);
}

static const struct stream_ops probe_ops = { .on_started = probe_started,
                                             .on_frame = probe_frame,
                                             .on_end = probe_end };

static int probe(struct stream_job *j, const char *task, struct err *e)
{
    struct probe p = { .loop = j->loop };
    struct stream *s = NULL;
    ProtobufCBinaryData word = { .data = (uint8_t *)(uintptr_t) "true", .len = 4 };
    Tony__StreamRequest r = TONY__STREAM_REQUEST__INIT;
    r.kind = TONY__STREAM_REQUEST__KIND__EXEC;
    r.argv = &word;
    r.n_argv = 1;
    int rc = stream_open(j, task, "forward", &r, &probe_ops, &p, &s, e);
    while (rc == 0 && !p.over)
        (void)loop_run(j->loop);
    stream_close(s);
    if (rc == 0 && p.failed) {
        *e = p.e;
        return e->num == ENOENT || e->num == EACCES || e->num == EAGAIN ? -EXIT_MISUSE
                                                                        : -EXIT_CLUSTER;
    }
    return rc;
}

static int run(struct stream_job *j, const char *task, size_t n, const char *const *ports,
               struct err *e)
{
    static const int signos[] = { SIGINT, SIGTERM, SIGHUP };
    struct forward *all[FORWARDS_MAX] = { 0 };
    struct loop_signal *signals[ARRAY_LEN(signos)] = { 0 };
    int rc = probe(j, task, e);
    /* Handle signals before the ports are printed: the program that reads them may send one. */
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(signos); i++)
        signals[i] = loop_signal_new(j->loop, signos[i], on_signal, j->loop);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        uint16_t local = 0, port = 0;
        rc = parse(ports[i], &local, &port, e) < 0 ? -EXIT_MISUSE
                                                   : forward_open(j, task, local, port, &all[i], e);
        if (rc == 0)
            (void)printf("127.0.0.1:%u -> %s port %u\n", forward_port(all[i]), task, port);
    }
    if (rc == 0 && client_flush_stdout() != EXIT_DONE)
        rc = (err_set(e, EPIPE, "cannot write to standard output: %m"), -EXIT_CLUSTER);
    if (rc == 0)
        (void)loop_run(j->loop);
    for (size_t i = 0; i < ARRAY_LEN(signos); i++)
        loop_signal_free(signals[i]);
    for (size_t i = 0; i < n; i++)
        forward_close(all[i]);
    return rc;
}

int cmd_forward(struct client *c)
{
    struct err e = { 0 };
    struct stream_job j;
    int rc = stream_job_open(c, c->o.args[0], &j, &e);
    if (rc < 0)
        return client_fail(-rc, &e);
    rc = run(&j, c->o.args[1], c->o.n_args - 2, c->o.args + 2, &e);
    stream_job_done(&j);
    return rc < 0 ? client_fail(-rc, &e) : EXIT_DONE;
}
