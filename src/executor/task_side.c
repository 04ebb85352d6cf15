/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/task_side.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/driver.h"
#include "executor/executor_int.h"
#include "executor/task_message.h"
#include "executor/task_ready.h"

enum {
    WINDOW_MS = 100,
    WINDOW_BYTES = 32 << 10, /* per WINDOW_MS: about 10,000 lines a second, 5 % of a core */
    REFUSED_MAX = 256,       /* connections of other users per WINDOW_MS: 1.3 % of a core */
    READ_MAX = 4 << 10,
    NEWS_PAUSE_MS =
        250, /* pause between two reports of progress; checkpoints are reported at once */
    BACKLOG = 64,
    DRIVE_MS = 50,  /* pause between two looks for the plan of a driver */
    BOARD_MS = 500, /* pause between two looks for TensorBoard */
};

void task_side_init(struct task_side *t)
{
    *t = (struct task_side){ .listen_fd = -1 };
    for (size_t i = 0; i < ARRAY_LEN(t->conns); i++)
        t->conns[i].fd = -1;
}

/* Listen on an abstract name, which the kernel chooses. It needs no file, which would have to be
 * removed, and four system calls for each container. An abstract socket has no permissions, so
 * is_ours() checks the user of each connection. */
static int listen_abstract(char name[TASK_NAME_MAX])
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    socklen_t len = sizeof at;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1)
        return -1;
    if (bind(fd, (const struct sockaddr *)&at, offsetof(struct sockaddr_un, sun_path)) == -1 ||
        listen(fd, BACKLOG) == -1 || getsockname(fd, (struct sockaddr *)&at, &len) == -1) {
        close(fd);
        return -1;
    }
    size_t n = len - offsetof(struct sockaddr_un, sun_path);
    (void)snprintf(name, TASK_NAME_MAX, "@%.*s", (int)MIN(n - 1, (size_t)TASK_NAME_MAX - 2),
                   at.sun_path + 1);
    return fd;
}

void task_side_open(struct executor *x)
{
    struct task_side *t = &x->task;
    const Tony__Welcome *w = x->role;
    if (t->listen_fd < 0)
        t->listen_fd = listen_abstract(t->name);
    if (!t->watch && (w->progress_pattern[0] || w->checkpoint_dir[0]))
        t->watch = task_watch_new(w->progress_pattern, w->checkpoint_dir, w->checkpoint_pattern,
                                  w->checkpoint_marker);
    if (!t->waited && w->ready[0])
        t->waited = task_ready_new(w->ready);
}

/* ---- to the master ---- */

static bool has_news(const struct task_side *t)
{
    return t->new_progress || t->new_checkpoint || t->new_tensorboard || t->new_ready;
}

/* Other tasks may wait for checkpoints and readiness, so these are reported without a pause. */
static bool is_urgent(const struct task_side *t)
{
    return t->new_checkpoint || t->new_ready;
}

/* Report checkpoints in the order in which they were saved. If that fails, task_side_again()
 * repeats it. */
static void send_checkpoints(struct executor *x)
{
    struct task_side *t = &x->task;
    for (unsigned i = 0; i < TASK_SAVED_MAX && x->greeted; i++) {
        struct task_saved *s = &t->saved[(t->n_saved + i) % TASK_SAVED_MAX];
        if (!s->path || s->reported)
            continue;
        Tony__TaskWord w = TONY__TASK_WORD__INIT;
        w.generation = s->generation;
        w.attempt = s->attempt;
        w.checkpoint = s->path;
        w.checkpoint_step = s->step;
        w.checkpoint_parts = s->parts;
        Tony__Frame f = TONY__FRAME__INIT;
        f.body_case = TONY__FRAME__BODY_TASK_WORD;
        f.task_word = &w;
        s->reported = executor_send(x, &f) == 0;
    }
    t->new_checkpoint = false;
}

static void send_news(struct executor *x, int64_t now)
{
    struct task_side *t = &x->task;
    Tony__TaskWord w = TONY__TASK_WORD__INIT;
    if (!x->greeted || !has_news(t))
        return;
    w.generation = x->a.generation;
    w.attempt = x->a.number;
    if (t->new_progress) {
        w.step = t->step;
        w.total = t->total;
    }
    if (t->new_tensorboard)
        w.tensorboard_url = t->tensorboard;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_TASK_WORD;
    f.task_word = &w;
    w.ready = t->new_ready;
    if (t->new_ready && t->plan) {
        w.plan = t->plan;
        w.plan_port = t->plan_port;
    }
    bool more = t->new_progress || t->new_tensorboard || t->new_ready;
    t->new_progress = t->new_tensorboard = t->new_ready = false;
    t->sent_ms = now;
    send_checkpoints(x);
    if (more && x->greeted)
        (void)executor_send(x, &f); /* after a failure, task_side_again() repeats it */
}

static void send_news_soon(struct executor *x)
{
    int64_t now = clock_mono_ms();
    if (is_urgent(&x->task) || now - x->task.sent_ms >= NEWS_PAUSE_MS)
        send_news(x, now);
}

void task_side_again(struct executor *x)
{
    struct task_side *t = &x->task;
    t->new_progress = t->new_progress || t->step || t->total;
    for (size_t i = 0; i < TASK_SAVED_MAX; i++) {
        t->saved[i].reported = false;
        t->new_checkpoint = t->new_checkpoint || t->saved[i].path;
    }
    t->new_tensorboard = t->new_tensorboard || t->tensorboard;
    t->new_ready = t->new_ready || t->ready;
    if (x->a.number)
        send_news(x, clock_mono_ms());
}

/* ---- what the task reports ---- */

static void note_progress(struct task_side *t, bool has_total, uint64_t step, uint64_t total)
{
    t->new_progress = true;
    t->step = step;
    if (has_total)
        t->total = total;
}

static void note_ready(struct task_side *t)
{
    t->new_ready = t->new_ready || !t->ready;
    t->ready = true;
}

/* Takes path. */
static void note_checkpoint(struct executor *x, char *path, uint64_t step, uint32_t parts)
{
    struct task_side *t = &x->task;
    struct task_saved *at = NULL;
    for (size_t i = 0; i < TASK_SAVED_MAX && !at; i++)
        if (t->saved[i].path && t->saved[i].step == step)
            at = &t->saved[i];
    if (!at)
        at = &t->saved[t->n_saved++ % TASK_SAVED_MAX];
    free(at->path);
    *at = (struct task_saved){ .path = path,
                               .step = step,
                               .parts = parts,
                               .generation = x->a.generation,
                               .attempt = x->a.number };
    t->new_checkpoint = true;
}

/* Make a path absolute: the next attempt may have another working directory. 0; -EINVAL: it is too
 * long then; -ENOMEM. */
static int full_path(const struct executor *x, const char *path, char **out, struct err *e)
{
    bool whole = path[0] == '/' || strstr(path, "://") || !x->workdir;
    AUTO(free_p) char *full = whole ? str_dup(path) : str_printf("%s/%s", x->workdir, path);
    if (!full)
        return err_set(e, ENOMEM, "no memory for the path of a checkpoint");
    size_t len = strlen(full);
    if (len > TASK_PATH_MAX)
        return err_set(
            e, EINVAL,
            "the path of the checkpoint has %zu bytes with the working directory, and may "
            "have %d",
            len, TASK_PATH_MAX);
    *out = TAKE(full);
    return 0;
}

/* path: of the checkpoint, absolute; taken if it is used. */
static void note_message(struct executor *x, const struct task_message *w, char **path)
{
    struct task_side *t = &x->task;
    if (!attempt_alive(&x->a))
        return;
    if (w->checkpoint) {
        if (t->new_checkpoint) /* report each: the newest one of this task may not be the one that
                                  all have */
            send_news(x, clock_mono_ms());
        note_checkpoint(x, TAKE(*path), w->has_step ? w->step : t->step, w->parts);
    }
    if ((w->has_step || w->has_total) && !(w->checkpoint && w->step < t->step))
        note_progress(t, w->has_total, w->has_step ? w->step : t->step, w->total);
    if (w->tensorboard && !str_eq(t->tensorboard, w->tensorboard)) {
        free(t->tensorboard);
        t->tensorboard = str_dup(w->tensorboard);
        t->new_tensorboard = t->tensorboard != NULL;
    }
    if (w->ready)
        note_ready(t);
}

static void answer(struct task_conn *c, const struct buf *text)
{
    /* if the task does not read, the answer is lost */
    (void)send(c->fd, text->p, text->len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void answer_stop(struct task_side *t, struct task_conn *c)
{
    AUTO(buf_done) struct buf text = { 0 };
    if (t->stop)
        (void)buf_addf(&text, "{\"stop\": true, \"within_ms\": %u}\n", t->stop_ms);
    else
        (void)buf_adds(&text, "{\"stop\": false}\n");
    c->stop_sent = t->stop;
    answer(c, &text);
}

static void answer_error(struct task_conn *c, const struct err *e)
{
    AUTO(buf_done) struct buf text = { 0 };
    (void)buf_adds(&text, "{\"error\": \"");
    for (const char *p = e->msg; *p; p++)
        (void)buf_addc(&text, *p == '"' || *p == '\\' || (unsigned char)*p < 0x20 ? '\'' : *p);
    (void)buf_adds(&text, "\"}\n");
    answer(c, &text);
}

static void on_line(struct executor *x, struct task_conn *c, struct span line)
{
    struct task_message w;
    struct err e = { 0 };
    AUTO(free_p) char *path = NULL;
    line = span_trim(line);
    if (!line.len)
        return;
    if (task_message_parse(line, &w, &e) < 0) {
        answer_error(c, &e);
        return;
    }
    if (w.checkpoint && full_path(x, w.checkpoint, &path, &e) < 0)
        answer_error(c, &e);
    else
        note_message(x, &w, &path);
    if (w.metrics && task_metrics_say(x, w.metrics, &e) < 0)
        answer_error(c, &e);
    if (w.asks_stop)
        answer_stop(&x->task, c);
    task_message_done(&w);
}

/* ---- connections ---- */

static void conn_end(struct task_side *t, struct task_conn *c)
{
    close(c->fd);
    c->fd = -1;
    buf_done(&c->in);
    t->n_conns--;
}

static void on_bytes(struct executor *x, struct task_conn *c)
{
    const char *end;
    while (c->in.len && (end = memchr(c->in.p, '\n', c->in.len))) {
        size_t len = (size_t)(end - c->in.p);
        on_line(x, c, span_mem(c->in.p, len));
        buf_consume(&c->in, len + 1);
    }
}

/* false: the connection was closed. */
static bool conn_read(struct executor *x, struct task_conn *c, size_t max)
{
    struct task_side *t = &x->task;
    if (c->in.len >= TASK_LINE_MAX) { /* a line that is too long */
        AUTO(buf_done) struct buf text = { 0 };
        (void)buf_addf(&text, "{\"error\": \"a line has at most %d bytes\"}\n", TASK_LINE_MAX - 1);
        answer(c, &text);
        conn_end(t, c);
        return false;
    }
    c->in.max = TASK_LINE_MAX + 1;
    char *room = buf_reserve(&c->in, MIN(MIN(max, (size_t)READ_MAX), TASK_LINE_MAX - c->in.len));
    ssize_t n = room ? recv(c->fd, room, MIN(MIN(max, (size_t)READ_MAX), TASK_LINE_MAX - c->in.len),
                            MSG_DONTWAIT)
                     : 0;
    if (n > 0) {
        buf_commit(&c->in, (size_t)n);
        t->left -= MIN(t->left, (uint32_t)n);
        on_bytes(x, c);
        return true;
    }
    if (n == -1 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (c->in.len) /* a last line without a newline */
        on_line(x, c, buf_span(&c->in));
    conn_end(t, c);
    return false;
}

static bool is_ours(int fd)
{
    struct ucred who;
    socklen_t len = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
           (who.uid == geteuid() || who.uid == 0);
}

static void accept_all(struct task_side *t)
{
    while (t->listen_fd >= 0 && t->n_conns < TASK_CONNS_MAX && t->refused < REFUSED_MAX) {
        int fd = accept4(t->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd == -1)
            return;
        if (!is_ours(fd)) {
            t->refused++;
            close(fd);
            continue;
        }
        for (size_t i = 0; i < ARRAY_LEN(t->conns); i++) {
            if (t->conns[i].fd >= 0)
                continue;
            t->conns[i] = (struct task_conn){ .fd = fd };
            t->n_conns++;
            break;
        }
    }
}

size_t task_side_poll(const struct executor *x, struct pollfd out[TASK_POLL_MAX])
{
    const struct task_side *t = &x->task;
    size_t n = 0;
    if (t->listen_fd >= 0 && t->n_conns < TASK_CONNS_MAX && t->refused < REFUSED_MAX)
        out[n++] = (struct pollfd){ .fd = t->listen_fd, .events = POLLIN };
    for (size_t i = 0; t->n_conns && t->left && i < ARRAY_LEN(t->conns); i++)
        if (t->conns[i].fd >= 0)
            out[n++] = (struct pollfd){ .fd = t->conns[i].fd, .events = POLLIN };
    if (t->waited && attempt_alive(&x->a) && task_ready_fd(t->waited) >= 0)
        out[n++] = (struct pollfd){ .fd = task_ready_fd(t->waited), .events = POLLIN };
    return n;
}

static void open_window(struct task_side *t)
{
    t->window_ms = clock_mono_ms() + WINDOW_MS;
    t->left = WINDOW_BYTES;
    t->refused = 0;
}

void task_side_ready(struct executor *x, const struct pollfd *p, size_t n)
{
    struct task_side *t = &x->task;
    for (size_t i = 0; i < n; i++) {
        if (!p[i].revents)
            continue;
        if (p[i].fd == t->listen_fd) {
            if (clock_mono_ms() >= t->window_ms)
                open_window(t);
            accept_all(t);
            continue;
        }
        if (t->waited && p[i].fd == task_ready_fd(t->waited)) {
            task_ready_event(t->waited, clock_mono_ms());
            continue;
        }
        for (size_t k = 0; k < ARRAY_LEN(t->conns); k++)
            if (t->conns[k].fd == p[i].fd && t->left)
                (void)conn_read(x, &t->conns[k], t->left);
    }
    if (n && has_news(t))
        send_news_soon(x);
}

/* ---- the life of an attempt ---- */

/* The address of this machine in the cluster; "" on one machine, or without a connection to the
 * master. */
static void find_own_host(struct executor *x, char host[static 80])
{
    if (x->cfg->remote && x->link.fd >= 0)
        (void)link_host(&x->link, host, 80); /* if it fails, only the loopback is tried */
}

void task_side_close(struct task_side *t)
{
    close_p(&t->listen_fd);
    for (size_t i = 0; i < ARRAY_LEN(t->conns); i++)
        if (t->conns[i].fd >= 0)
            conn_end(t, &t->conns[i]);
    task_watch_free(t->watch);
    task_ready_free(t->waited);
    task_ready_free(t->board);
    t->watch = NULL;
    t->waited = t->board = NULL;
}

void task_side_begin(struct executor *x)
{
    struct task_side *t = &x->task;
    t->step = t->total = 0;
    t->stop = t->new_progress = t->ready = t->new_ready = false;
    for (size_t i = 0; i < TASK_SAVED_MAX; i++)
        free(TAKE(t->saved[i].path));
    t->n_saved = 0;
    t->new_checkpoint = false;
    if (t->watch)
        task_watch_begin(t->watch, x->workdir, x->a.generation <= 1 && x->a.number <= 1);
    t->drives = x->role->driver && x->workdir;
    t->drive_due_ms = 0;
    free(TAKE(t->plan));
    if (t->drives)
        driver_forget(x->workdir);
    if (t->waited) {
        char host[80] = "";
        find_own_host(x, host);
        task_ready_begin(t->waited, x->workdir, x->port, host, 0, 0);
    }
    task_ready_free(t->board); /* the port of the last attempt */
    t->board = NULL;
    free(TAKE(t->tensorboard));
    t->new_tensorboard = false;
}

void task_side_board(struct executor *x, uint16_t port)
{
    struct task_side *t = &x->task;
    char host[80] = "";
    task_ready_free(t->board);
    t->board = task_ready_new("port");
    t->board_port = port;
    find_own_host(x, host);
    if (t->board)
        task_ready_begin(t->board, NULL, port, host, clock_mono_ms(), BOARD_MS);
}

/* If a program answers on the port for TensorBoard, report its URL, unless the task has reported
 * one. */
static void look_for_board(struct executor *x, int64_t now)
{
    struct task_side *t = &x->task;
    char host[80] = "";
    if (!task_ready_check(t->board, now) || t->tensorboard)
        return;
    find_own_host(x, host);
    t->tensorboard = str_printf(strchr(host, ':') ? "http://[%s]:%u" : "http://%s:%u",
                                host[0] ? host : "127.0.0.1", t->board_port);
    t->new_tensorboard = t->tensorboard != NULL;
}

static void read_watched(struct executor *x, int64_t now)
{
    struct task_side *t = &x->task;
    uint64_t step = t->step, total = t->total;
    if (!t->watch)
        return;
    if (task_watch_logs(t->watch, x->a.logs.out_fd, x->a.logs.err_fd, &step, &total))
        note_progress(t, true, step, total);
    struct task_saved found[TASK_SAVED_MAX];
    size_t n = task_watch_checkpoints(t->watch, x->workdir, found);
    for (size_t i = 0; i < n; i++)
        note_checkpoint(x, found[i].path, found[i].step, 0);
    task_watch_done(t->watch, now);
}

void task_side_end(struct executor *x)
{
    enum { LAST_BYTES = 64 << 10 };
    struct task_side *t = &x->task;
    int64_t now = 0;
    t->refused = 0;
    /* accept4() makes a socket before it sees that nobody has connected. */
    struct pollfd listens = { .fd = t->listen_fd, .events = POLLIN };
    if (poll(&listens, 1, 0) > 0)
        accept_all(t);
    for (size_t i = 0; t->n_conns && i < ARRAY_LEN(t->conns); i++) {
        /* all processes of the task are dead, so no more bytes will come */
        for (size_t read = 0; t->conns[i].fd >= 0 && read < LAST_BYTES; read += READ_MAX) {
            struct pollfd p = { .fd = t->conns[i].fd, .events = POLLIN };
            if (poll(&p, 1, 0) <= 0 || !conn_read(x, &t->conns[i], READ_MAX))
                break;
        }
    }
    if (t->watch)
        read_watched(x, now = clock_mono_ms());
    if (t->waited && task_ready_check(t->waited, now = clock_mono_ms())) /* a file remains */
        note_ready(t);
    if (t->drives && !t->ready && driver_read_plan(x->workdir, &t->plan_port, &t->plan))
        note_ready(t);
    if (has_news(t))
        send_news(x, now ? now : clock_mono_ms());
}

bool task_side_stop(struct executor *x, uint32_t within_ms)
{
    struct task_side *t = &x->task;
    bool anybody = false;
    t->stop = true;
    t->stop_ms = within_ms;
    for (size_t i = 0; i < ARRAY_LEN(t->conns); i++) {
        if (t->conns[i].fd < 0)
            continue;
        anybody = true;
        if (!t->conns[i].stop_sent)
            answer_stop(t, &t->conns[i]);
    }
    return anybody;
}

int64_t task_side_deadline(const struct executor *x)
{
    const struct task_side *t = &x->task;
    int64_t at = INT64_MAX;
    if (!attempt_alive(&x->a))
        return at;
    if (t->n_conns || t->refused)
        at = t->left && t->refused < REFUSED_MAX ? INT64_MAX : t->window_ms;
    if (has_news(t) && x->greeted)
        at = MIN(at, t->sent_ms + NEWS_PAUSE_MS);
    if (t->drives && !t->ready)
        at = MIN(at, t->drive_due_ms);
    if (t->waited && !t->ready)
        at = MIN(at, task_ready_due(t->waited));
    if (t->board && !t->tensorboard)
        at = MIN(at, task_ready_due(t->board));
    return t->watch ? MIN(at, task_watch_due(t->watch)) : at;
}

void task_side_tick(struct executor *x, int64_t now)
{
    struct task_side *t = &x->task;
    if ((!t->left || t->refused) && now >= t->window_ms)
        open_window(t);
    if (t->watch && attempt_alive(&x->a) && now >= task_watch_due(t->watch))
        read_watched(x, now);
    if (t->waited && !t->ready && attempt_alive(&x->a) && now >= task_ready_due(t->waited) &&
        task_ready_check(t->waited, now))
        note_ready(t);
    if (t->drives && !t->ready && attempt_alive(&x->a) && now >= t->drive_due_ms) {
        t->drive_due_ms = now + DRIVE_MS;
        if (driver_read_plan(x->workdir, &t->plan_port, &t->plan))
            note_ready(t);
    }
    if (t->board && !t->tensorboard && attempt_alive(&x->a) && now >= task_ready_due(t->board))
        look_for_board(x, now);
    if (has_news(t) && (is_urgent(t) || now - t->sent_ms >= NEWS_PAUSE_MS))
        send_news(x, now);
}
