/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that follows the output of all tasks of a master on a cluster, for bench/crowd:
 *
 *     follow FILE
 *
 * FILE has the port of the master at 127.0.0.1 and the key of its clients (tests/nodes). As `tony
 * logs --follow` it asks for all text, and shows nothing. At SIGTERM it prints how many bytes, lines
 * and tasks it has received.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "storage/jobkey.h"

enum { TASKS_MAX = 4096 };

struct follow {
    struct loop *loop;
    uint64_t bytes, lines;
    bool seen[TASKS_MAX];
};

static _Noreturn void die(const char *what, const struct err *e)
{
    fprintf(stderr, "follow: %s: %s\n", what, e->msg);
    exit(1);
}

static void on_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct follow *x = arg;
    (void)c;
    if (f->body_case == TONY__FRAME__BODY_REFUSED)
        die(f->refused->message, &(struct err){ 0 });
    if (f->body_case != TONY__FRAME__BODY_LOG_PIECE)
        return;
    const Tony__LogPiece *p = f->log_piece;
    x->bytes += p->data.len;
    for (size_t i = 0; i < p->data.len; i++)
        x->lines += p->data.data[i] == '\n';
    if (p->slot < TASKS_MAX)
        x->seen[p->slot] = true;
}

static void on_close(struct conn *c, const struct err *e, void *arg)
{
    (void)c;
    (void)arg;
    die("the connection has ended", e);
}

static const struct conn_ops ops = { .on_frame = on_frame, .on_close = on_close };

static void on_term(int signo, void *arg)
{
    struct follow *x = arg;
    (void)signo;
    loop_stop(x->loop);
}

static void send_questions(struct conn *c)
{
    Tony__ClientHello hello = TONY__CLIENT_HELLO__INIT;
    Tony__WatchLogs watch = TONY__WATCH_LOGS__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    hello.version = TONY__VERSION__PROTOCOL_VERSION;
    hello.program = (char *)(uintptr_t) "bench/follow";
    f.body_case = TONY__FRAME__BODY_CLIENT_HELLO;
    f.client_hello = &hello;
    int rc = conn_send(c, &f);
    watch.number = 1;
    watch.which = TONY__WATCH_LOGS__WHICH__ALL;
    watch.want_stdout = watch.want_stderr = true;
    f.body_case = TONY__FRAME__BODY_WATCH_LOGS;
    f.watch_logs = &watch;
    if (rc < 0 || conn_send(c, &f) < 0)
        die("cannot send", &(struct err){ 0 });
}

int main(int argc, char **argv)
{
    struct follow x = { 0 };
    struct err e = { 0 };
    struct tls_key key = { 0 };
    struct conn *c;
    AUTO(buf_done) struct buf text = { 0 };
    char *end;
    if (argc != 2)
        return 2;
    AUTO(close_p) int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    if (fd == -1 || buf_fill_fd(&text, fd, &e) < 0)
        die(argv[1], &e);
    long port = strtol(buf_cstr(&text), &end, 10);
    if (*end != ' ' || job_key_parse(span_of(end + 1), &key, &e) < 0)
        die(argv[1], &e);
    x.loop = loop_new(&e);
    struct loop_signal *term = x.loop ? loop_signal_new(x.loop, SIGTERM, on_term, &x) : NULL;
    const struct conn_target to = {
        .host = "127.0.0.1", .port = (uint16_t)port, .identity = JOB_KEY_CLIENT, .key = &key
    };
    if (!term || conn_dial_tls(x.loop, &to, &ops, &x, &c, &e) < 0)
        die("cannot connect", &e);
    send_questions(c);
    (void)loop_run(x.loop);
    unsigned tasks = 0;
    for (unsigned i = 0; i < TASKS_MAX; i++)
        tasks += x.seen[i];
    printf("%" PRIu64 " %" PRIu64 " %u\n", x.bytes, x.lines, tasks);
    conn_close(c);
    loop_signal_free(term);
    loop_free(x.loop);
    return 0;
}
