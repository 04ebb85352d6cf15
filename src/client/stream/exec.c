/* SPDX-License-Identifier: Apache-2.0 */
/* exec, shell: a command beside a task, with the user's terminal or pipes. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/stream/stream.h"
#include "client/stream/terminal.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

enum {
    OUT_MAX = 256 << 10, /* bytes that wait for standard output; then the stream is not read */
    READ_SIZE = 32 << 10,
    /* Bytes that a pipe or terminal takes without waiting, once poll() calls it writable. */
    SAFE_WRITE = 4096,
    INTERRUPTS_MAX = 3, /* after this many, the client ends even if the command runs on */
};

/* Standard output or standard error. */
struct sink {
    struct exec *x;
    int fd;
    bool own_fd;  /* this process has opened fd itself, and fd never blocks */
    bool regular; /* a file: poll() does not know it, and a write does not wait */
    bool broken;  /* the reader has closed its end */
    struct loop_fd *watch;
    struct buf queued;
};

struct exec {
    struct client *c;
    struct loop *loop;
    struct stream *stream;
    struct terminal terminal;
    bool tty, input;
    struct sink out, err;
    struct loop_fd *in_watch;
    bool in_regular, in_ended;
    size_t window; /* how many bytes of input may still be sent to the command */
    struct loop_signal *signals[8];
    unsigned n_signals, n_interrupts;
    bool started, over, paused;
    int code;
    struct err why;
    bool failed;
};

static void end(struct exec *x, int code)
{
    if (x->over)
        return;
    x->over = true;
    x->code = code;
    loop_stop(x->loop);
}

/* ---- output ---- */

static void sink_open(struct sink *s, struct exec *x, int fd)
{
    struct stat st;
    char path[32];
    *s = (struct sink){ .x = x, .fd = fd, .queued.max = OUT_MAX + STREAM_DATA_MAX };
    s->regular = fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || st.st_rdev == makedev(1, 3));
    if (s->regular || S_ISSOCK(st.st_mode))
        return;
    /* O_NONBLOCK belongs to the open file, which other programs share. So open it once more. */
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY | O_APPEND);
    if (own >= 0) {
        s->fd = own;
        s->own_fd = true;
    }
}

static ssize_t sink_write(const struct sink *s, const char *p, size_t n)
{
    ssize_t rc;
    do
        rc = write(s->fd, p, s->own_fd || s->regular ? n : MIN(n, (size_t)SAFE_WRITE));
    while (rc == -1 && errno == EINTR);
    return rc == -1 ? -errno : rc;
}

static bool is_writable(const struct sink *s)
{
    struct pollfd p = { .fd = s->fd, .events = POLLOUT };
    return s->own_fd || s->regular || (poll(&p, 1, 0) == 1 && p.revents & POLLOUT);
}

/* The reader has closed its end: exit as a command that SIGPIPE has killed. */
static void sink_broke(struct sink *s, int num)
{
    s->broken = true;
    buf_done(&s->queued);
    if (num == EPIPE) {
        end(s->x, 128 + SIGPIPE);
    } else {
        (void)err_set(&s->x->why, num, "cannot write the command's output: %m");
        s->x->failed = true;
        end(s->x, EXIT_CLUSTER);
    }
}

static void update_pause(struct exec *x)
{
    bool pause = x->out.queued.len > OUT_MAX || x->err.queued.len > OUT_MAX;
    if (pause == x->paused || !x->stream)
        return;
    x->paused = pause;
    stream_pause(x->stream, pause);
}

static void sink_ready(void *arg)
{
    struct sink *s = arg;
    size_t done = 0;
    while (done < s->queued.len && !s->broken && is_writable(s)) {
        ssize_t n = sink_write(s, s->queued.p + done, s->queued.len - done);
        if (n == -EAGAIN)
            break;
        if (n < 0) {
            sink_broke(s, (int)-n);
            return;
        }
        done += (size_t)n;
    }
    buf_consume(&s->queued, done);
    if (s->queued.len == 0)
        loop_fd_free(TAKE(s->watch));
    update_pause(s->x);
    if (s->x->over && s->queued.len == 0)
        loop_stop(s->x->loop);
}

static int sink_add(struct sink *s, struct span text)
{
    if (s->broken)
        return 0;
    while (text.len > 0 && s->queued.len == 0 && is_writable(s)) {
        ssize_t n = sink_write(s, text.p, text.len);
        if (n == -EAGAIN)
            break;
        if (n < 0) {
            sink_broke(s, (int)-n);
            return 0;
        }
        text.p += n;
        text.len -= (size_t)n;
    }
    if (text.len == 0)
        return 0;
    if (buf_add(&s->queued, text.p, text.len) < 0)
        return -ENOMEM;
    if (!s->watch && (s->watch = loop_fd_new(s->x->loop, s->fd, sink_ready, s)))
        loop_fd_want(s->watch, false, true);
    update_pause(s->x);
    return s->watch ? 0 : -ENOMEM;
}

static void sink_close(struct sink *s)
{
    loop_fd_free(s->watch);
    buf_done(&s->queued);
    if (s->own_fd)
        close(s->fd);
}

/* ---- input ---- */

/* Print why standard input cannot be read, unless it is a terminal that was closed: that is normal.
 */
static void tell_unreadable(int num)
{
    struct err e;
    (void)err_set(&e, num, "cannot read standard input: %m");
    client_note("%s; the command sees the end of its input", e.msg);
}

static void read_input(void *arg)
{
    struct exec *x = arg;
    char bytes[READ_SIZE];
    bool more = true;
    while (more && !x->in_ended && x->stream && x->window > 0) {
        ssize_t n = read(STDIN_FILENO, bytes, MIN(sizeof bytes, x->window));
        if (n == -1 && (errno == EINTR || errno == EAGAIN))
            break;
        if (n <= 0) {
            x->in_ended = true;
            if (n == -1 && !x->tty)
                tell_unreadable(errno);
            (void)stream_send(x->stream, SF_END, NULL, 0); /* a lost connection is reported */
            break;
        }
        x->window -= (size_t)n;
        (void)stream_send(x->stream, SF_DATA, bytes, (size_t)n);
        more = x->in_regular; /* otherwise the loop calls this function again when there is input */
    }
    if (x->in_watch)
        loop_fd_want(x->in_watch, x->window > 0 && !x->in_ended, false);
}

static void begin_input(struct exec *x)
{
    if (!x->input)
        return;
    x->window = STREAM_WINDOW;
    x->in_watch = loop_fd_new(x->loop, STDIN_FILENO, read_input, x);
    x->in_regular = !x->in_watch; /* a file, which poll() does not know */
    if (x->in_regular)
        read_input(x);
}

/* ---- signals ---- */

static void send_size(struct exec *x)
{
    struct winsize w;
    if (!x->stream || !x->tty || ioctl(STDIN_FILENO, TIOCGWINSZ, &w) == -1)
        return;
    unsigned char b[4] = { (unsigned char)(w.ws_row >> 8), (unsigned char)w.ws_row,
                           (unsigned char)(w.ws_col >> 8), (unsigned char)w.ws_col };
    (void)stream_send(x->stream, SF_RESIZE, b, sizeof b); /* a lost connection is reported */
}

static void send_signal(struct exec *x, int signo)
{
    unsigned char b = (unsigned char)signo;
    if (x->stream && x->started)
        (void)stream_send(x->stream, SF_SIGNAL, &b, 1); /* a lost connection is reported */
}

/* Another process has sent SIGTSTP to this one. (Ctrl-Z does not: in raw mode it is a byte for the
 * command.) */
static void suspend(struct exec *x)
{
    terminal_restore(&x->terminal);
    (void)raise(SIGSTOP);
    /* SIGCONT has continued the process */
    if (x->started && x->input)
        terminal_raw(&x->terminal);
    send_size(x);
}

static void on_signal(int signo, void *arg)
{
    struct exec *x = arg;
    if (signo == SIGWINCH) {
        send_size(x);
    } else if (signo == SIGTSTP) {
        suspend(x);
    } else if (!x->started || signo == SIGHUP ||
               (signo == SIGINT && ++x->n_interrupts >= INTERRUPTS_MAX)) {
        end(x, 128 + signo); /* closing the stream also ends the command */
    } else {
        send_signal(x, signo);
    }
}

static void watch_signals(struct exec *x)
{
    static const int all[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
    static const int with_tty[] = { SIGWINCH, SIGTSTP };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        /* If this fails, the signal has its usual effect. */
        x->signals[x->n_signals++] = loop_signal_new(x->loop, all[i], on_signal, x);
    for (size_t i = 0; i < ARRAY_LEN(with_tty) && x->tty; i++)
        x->signals[x->n_signals++] = loop_signal_new(x->loop, with_tty[i], on_signal, x);
}

/* ---- frames ---- */

static void on_started(struct stream *s, void *arg)
{
    struct exec *x = arg;
    x->stream = s;
    x->started = true;
    if (x->tty && x->input) /* if input is not read, Ctrl-C must stay a signal */
        terminal_raw(&x->terminal);
    send_size(x);
    begin_input(x);
}

static int on_frame(enum stream_type type, struct span p, void *arg)
{
    struct exec *x = arg;
    const unsigned char *b = (const unsigned char *)p.p;
    switch ((int)type) {
    case SF_DATA:
        return sink_add(&x->out, p);
    case SF_ERRORS:
        return sink_add(&x->err, p);
    case SF_WINDOW:
        x->window = MIN(x->window + stream_u32(p), (size_t)STREAM_WINDOW);
        read_input(x);
        return 0;
    case SF_EXIT:
        if (p.len != 2)
            return -EPROTO;
        end(x, b[0] ? 128 + b[0] : b[1]);
        return 0;
    default:
        return -EPROTO;
    }
}

static void on_end(struct stream *s, const struct err *e, void *arg)
{
    struct exec *x = arg;
    stream_close(s);
    x->stream = NULL;
    if (x->over)
        return;
    x->why = *e;
    x->failed = true;
    end(x, e->num == ENOENT || e->num == EACCES || e->num == EAGAIN || e->num == EINVAL
               ? EXIT_MISUSE
               : EXIT_CLUSTER);
}

static const struct stream_ops ops = { .on_started = on_started,
                                       .on_frame = on_frame,
                                       .on_end = on_end };

/* ---- the command ---- */

static void fill_request(const struct exec *x, Tony__StreamRequest *r, ProtobufCBinaryData *argv,
                         size_t n, const char *const *words)
{
    const char *term = getenv("TERM");
    struct winsize w = { 0 };
    if (x->tty)
        (void)ioctl(STDIN_FILENO, TIOCGWINSZ, &w); /* without a terminal the size is 0 */
    for (size_t i = 0; i < n; i++)
        argv[i] = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)words[i],
                                         .len = strlen(words[i]) };
    *r = (Tony__StreamRequest)TONY__STREAM_REQUEST__INIT;
    r->kind = TONY__STREAM_REQUEST__KIND__EXEC;
    r->argv = argv;
    r->n_argv = n;
    r->tty = x->tty;
    r->input = x->input;
    r->rows = w.ws_row;
    r->columns = w.ws_col;
    r->term = (char *)(uintptr_t)(x->tty && term && span_utf8(span_of(term), NULL) ? term : "");
}

/* Write what is left of the output. A reader may stall; a second signal ends the wait. */
static void drain(struct exec *x)
{
    while ((x->out.queued.len > 0 && !x->out.broken) || (x->err.queued.len > 0 && !x->err.broken)) {
        unsigned before = x->n_interrupts;
        (void)loop_run(x->loop);
        if (x->n_interrupts != before || x->failed)
            break;
    }
}

static int run(struct exec *x, struct stream_job *j, const char *task, size_t n,
               const char *const *words)
{
    struct err e = { 0 };
    AUTO(free_p) ProtobufCBinaryData *argv = calloc(n + 1, sizeof *argv);
    Tony__StreamRequest r;
    AUTO(free_p) char *what = str_printf("exec %.100s", n ? words[0] : "(shell)");
    if (!argv || !what)
        return err_set(&e, ENOMEM, "cannot start the command: %m"), client_fail(EXIT_CLUSTER, &e);
    str_mask_controls(what);
    if (!span_utf8(span_of(what), NULL))
        what[4] = '\0';
    fill_request(x, &r, argv, n, words);
    sink_open(&x->out, x, STDOUT_FILENO);
    sink_open(&x->err, x, STDERR_FILENO);
    int rc = stream_open(j, task, what, &r, &ops, x, &x->stream, &e);
    if (rc == 0)
        watch_signals(x);
    while (rc == 0 && !x->over)
        (void)loop_run(x->loop);
    loop_fd_free(TAKE(x->in_watch));
    if (x->code < 128 + SIGHUP || x->started)
        drain(x);
    stream_close(TAKE(x->stream)); /* the task's side waits for it */
    terminal_restore(&x->terminal);
    sink_close(&x->out);
    sink_close(&x->err);
    for (unsigned i = 0; i < x->n_signals; i++)
        loop_signal_free(x->signals[i]);
    if (rc < 0)
        return client_fail(-rc, &e);
    return x->failed ? client_fail(x->code, &x->why) : x->code;
}

static int exec(struct client *c, bool tty, bool input, size_t n, const char *const *words)
{
    struct err e = { 0 };
    struct stream_job j;
    struct exec x = { .c = c, .tty = tty, .input = input };
    if (tty && !isatty(STDIN_FILENO))
        client_note("standard input is not a terminal; the command gets one of 24 rows and 80 "
                    "columns");
    terminal_init(&x.terminal, STDIN_FILENO);
    int rc = stream_job_open(c, c->o.args[0], &j, &e);
    if (rc < 0)
        return client_fail(-rc, &e);
    x.loop = j.loop;
    int code = run(&x, &j, c->o.args[1], n, words);
    stream_job_done(&j);
    return code;
}

int cmd_exec(struct client *c)
{
    struct err e = { 0 };
    bool both = options_has(&c->o, OPT_IT);
    if (c->o.n_args < 3) {
        (void)err_set(&e, EINVAL, "tony exec needs a job, a task and a command");
        err_hint(&e, "as in: tony exec last worker:0 -- nvidia-smi");
        return client_fail(EXIT_MISUSE, &e);
    }
    return exec(c, both || options_has(&c->o, OPT_TTY), both || options_has(&c->o, OPT_INPUT),
                c->o.n_args - 2, c->o.args + 2);
}

int cmd_shell(struct client *c)
{
    bool tty = isatty(STDIN_FILENO);
    return exec(c, tty, true, 0, NULL);
}
