/* SPDX-License-Identifier: Apache-2.0 */
/* A command beside the task: in its working directory, with its environment, in its control group
 * and its image. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/proctree.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/command.h"
#include "executor/engine.h"
#include "executor/executor_int.h"
#include "executor/launch_error.h"
#include "executor/stream_int.h"

enum {
    HANGUP_MS = 500, /* between HUP and KILL */
    SWEEP_MS = 10,   /* between two rounds of KILL */
    SWEEP_ROUNDS_MAX = 200,
    STOP_AFTER_ROUNDS = 3,
    END_OF_INPUT = 4, /* Ctrl-D */
    GRANT_MIN = 64 << 10,
};

struct running {
    struct stream_side *s;
    pid_t pid;
    int in_fd, out_fd, err_fd; /* -1 = closed; with a terminal in_fd == out_fd, and err_fd is -1 */
    bool tty;
    struct buf in;     /* bytes for the command */
    bool in_ended;     /* the client sends no more */
    uint32_t to_grant; /* bytes that the command has read, and the client may send again */
    bool exited;
    int status;
    int64_t kill_at_ms; /* INT64_MAX = not hung up */
    int64_t sweep_at_ms;
    unsigned sweeps;
    bool swept; /* no process of the command is alive */
};

/* ---- starting ---- */

struct start {
    struct command command;
    int in[2], out[2], err[2]; /* pipes; with a terminal in[0], out[1] and err[1] are its slave */
    int report[2];             /* the child writes the errno of a failed exec */
    char cgroup[CGROUP_PATH_MAX + 16];
};

static char *argument(const ProtobufCBinaryData *a)
{
    return memchr(a->data ? a->data : (const unsigned char *)"", 0, a->len)
               ? NULL
               : strndup(a->len ? (const char *)a->data : "", a->len);
}

static int find_program(const struct stream_side *s, const char *word, char **out, struct err *e)
{
    AUTO(free_p) char *here = str_printf("%s/%s", s->x->workdir, word);
    if (strchr(word, '/'))
        *out = str_dup(word);
    else
        *out = command_on_path(word, strv_env_get(&s->env, "PATH"));
    if (!*out && here && access(here, X_OK) == 0)
        *out = TAKE(here);
    if (!*out)
        return err_set(e, ENOENT, "there is no program '%s' on the PATH of the task", word);
    return 0;
}

static const char *shell_of(const struct stream_side *s)
{
    const char *set = strv_env_get(&s->env, "SHELL");
    if (set && set[0] == '/' && access(set, X_OK) == 0 && !str_ends(set, "/nologin") &&
        !str_ends(set, "/false"))
        return set;
    return access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
}

static int fill_command(struct stream_side *s, struct command *c, struct err *e)
{
    const Tony__StreamRequest *r = s->request;
    AUTO(strv_done) struct strv argv = { 0 };
    int rc = 0;
    for (size_t i = 0; i < r->n_argv && rc == 0; i++) {
        char *word = argument(&r->argv[i]);
        rc = word ? strv_take(&argv, word) : -EINVAL;
    }
    if (rc == -EINVAL)
        return err_set(e, EINVAL, "an argument contains a NUL byte");
    if (rc == 0 && s->x->engine) {
        char mark[STREAM_MARK_MAX];
        stream_mark(s->x, s->id, mark);
        return engine_exec(s->x, &argv, r->tty, r->input, r->term, mark, c, e);
    }
    if (rc == 0 && argv.n == 0) {
        rc = strv_push(&argv, shell_of(s));
        c->path = str_dup(shell_of(s));
    } else if (rc == 0) {
        rc = find_program(s, argv.v[0], &c->path, e);
    }
    if (rc < 0 || !c->path)
        return e->num ? -e->num : err_set(e, ENOMEM, "cannot start the command: %m");
    c->argv = argv;
    argv = (struct strv){ 0 };
    return 0;
}

static void set_size(int fd, uint32_t rows, uint32_t columns)
{
    struct winsize w = { .ws_row = (unsigned short)MIN(rows, 10000u),
                         .ws_col = (unsigned short)MIN(columns, 10000u) };
    if (rows && columns)
        (void)ioctl(fd, TIOCSWINSZ, &w); /* the command then sees another size */
}

/* The two ends of a terminal. */
static int open_terminal(const struct stream_side *s, struct running *r, int *out_slave,
                         struct err *e)
{
    char name[64];
    AUTO(close_p) int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master == -1 || grantpt(master) == -1 || unlockpt(master) == -1 ||
        ptsname_r(master, name, sizeof name) != 0)
        return err_set(e, errno, "cannot make a terminal: %m");
    int slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave == -1)
        return err_set(e, errno, "cannot open the terminal '%s': %m", name);
    set_size(slave, s->request->rows ? s->request->rows : 24,
             s->request->columns ? s->request->columns : 80);
    r->in_fd = r->out_fd = master;
    master = -1;
    *out_slave = slave;
    return 0;
}

static void close_pair(int p[2])
{
    close_p(&p[0]);
    close_p(&p[1]);
}

static int open_ends(struct stream_side *s, struct running *r, struct start *st, struct err *e)
{
    if (r->tty) {
        int slave = -1;
        int rc = open_terminal(s, r, &slave, e);
        if (rc < 0)
            return rc;
        st->in[0] = st->out[1] = slave;
        st->err[1] = -1;
        return fd_nonblock(r->in_fd, true);
    }
    bool input = s->request->input;
    if ((input ? pipe2(st->in, O_CLOEXEC) == -1
               : (st->in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) == -1) ||
        pipe2(st->out, O_CLOEXEC) == -1 || pipe2(st->err, O_CLOEXEC) == -1)
        return err_set(e, errno, "cannot make a pipe: %m");
    r->in_fd = input ? st->in[1] : -1;
    r->out_fd = st->out[0];
    r->err_fd = st->err[0];
    if (input)
        (void)fd_nonblock(r->in_fd, true);
    (void)fd_nonblock(r->out_fd, true);
    (void)fd_nonblock(r->err_fd, true); /* cannot fail: the executor has made these pipes */
    return 0;
}

static void child_fail(int fd, int num)
{
    (void)!write(fd, &num, sizeof num);
    _exit(127);
}

/* Runs in the child. */
static _Noreturn void child(const struct stream_side *s, const struct running *r,
                            const struct start *st, pid_t parent)
{
    const struct executor *x = s->x;
    sigset_t none;
    (void)setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    if (r->tty)
        (void)ioctl(st->in[0], TIOCSCTTY, 0);
    if (st->cgroup[0])
        (void)cgroup_enter(st->cgroup); /* outside of it the command is only not limited */
    (void)setrlimit(RLIMIT_NOFILE, &x->cfg->nofile);
    umask(executor_umask(x));
    if (dup2(st->in[0], 0) == -1 || dup2(st->out[1], 1) == -1 ||
        dup2(r->tty ? st->out[1] : st->err[1], 2) == -1 || chdir(x->workdir) == -1)
        child_fail(st->report[1], errno);
    for (int sig = 1; sig < 32; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            (void)signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(st->command.path, st->command.argv.v, s->env.v);
    child_fail(st->report[1], errno);
    _exit(127);
}

static int spawn(struct stream_side *s, struct running *r, struct start *st, struct err *e)
{
    pid_t parent = getpid();
    int num = 0;
    if (pipe2(st->report, O_CLOEXEC) == -1)
        return err_set(e, errno, "cannot make a pipe: %m");
    if (s->x->a.in_cgroup)
        cgroup_procs_path(&s->x->cfg->cgroup, st->cgroup);
    r->pid = fork();
    if (r->pid == 0)
        child(s, r, st, parent);
    if (r->pid == -1)
        return err_set(e, errno, "cannot start a process: %m%s", err_fork_cause(errno));
    close_p(&st->report[1]);
    ssize_t n;
    do
        n = read(st->report[0], &num, sizeof num);
    while (n == -1 && errno == EINTR);
    if (n == (ssize_t)sizeof num) {
        const char *path = st->command.path;
        AUTO(free_p) char *below = path[0] == '/' ? NULL : fs_join(s->x->workdir, path);
        launch_error(e, below ? below : path, st->command.argv.v, s->env.v, num ? num : EIO);
        return -e->num;
    }
    return 0;
}

static int start(struct stream_side *s, struct running *r, struct err *e)
{
    struct start st = {
        .in = { -1, -1 }, .out = { -1, -1 }, .err = { -1, -1 }, .report = { -1, -1 }
    };
    int rc = fill_command(s, &st.command, e);
    if (rc == 0 && r->tty && s->request->term[0])
        rc = strv_env_set(&s->env, "TERM", s->request->term) < 0
                 ? err_set(e, ENOMEM, "cannot start the command: %m")
                 : 0;
    if (rc == 0)
        rc = open_ends(s, r, &st, e);
    if (rc == 0)
        rc = spawn(s, r, &st, e);
    close_pair(st.report);
    if (st.in[0] != st.out[1])
        close_p(&st.in[0]);
    close_p(&st.out[1]);
    close_p(&st.err[1]);
    command_done(&st.command);
    return rc;
}

/* ---- in an image ----
 * The process that the stream starts is the engine. It passes no signals on, and what the command
 * leaves in the background belongs to the container. */

/* Send a signal to all that the command has started in its container. Returns their number. */
static unsigned signal_inside(const struct running *r, int sig)
{
    char mark[STREAM_MARK_MAX];
    if (!r->s->x->engine)
        return 0;
    stream_mark(r->s->x, r->s->id, mark);
    return proctree_signal_inside(mark, sig);
}

/* ---- frames of the client ---- */

static void close_input(struct running *r)
{
    buf_clear(&r->in);
    if (r->tty)
        return; /* the terminal is also the output */
    close_p(&r->in_fd);
    r->in_fd = -1;
}

static void grant(struct running *r, size_t n)
{
    r->to_grant += (uint32_t)n;
    if (r->to_grant < GRANT_MIN && r->in.len > 0)
        return;
    if (stream_add_u32(&r->s->t.out, SF_WINDOW, r->to_grant) == 0)
        r->to_grant = 0;
}

static void write_input(struct running *r)
{
    size_t done = 0;
    while (r->in_fd >= 0 && done < r->in.len) {
        ssize_t n = write(r->in_fd, r->in.p + done, r->in.len - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == -1 && errno == EINTR) {
            continue;
        } else if (n == -1 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            break;
        } else { /* the command does not read any more: drop what the client still sends */
            done = r->in.len;
            if (!r->tty)
                close_input(r);
            break;
        }
    }
    if (r->in_fd < 0)
        done = r->in.len;
    if (done) {
        buf_consume(&r->in, MIN(done, r->in.len));
        grant(r, done);
    }
    if (r->in_ended && r->in.len == 0 && r->in_fd >= 0 && !r->tty)
        close_input(r);
}

static int on_data(struct running *r, struct span payload)
{
    if (r->in.len + payload.len > STREAM_WINDOW)
        return -EPROTO; /* more than the client was allowed to send */
    if (r->in_fd < 0) {
        grant(r, payload.len);
        return 0;
    }
    int rc = buf_add(&r->in, payload.p, payload.len);
    if (rc == 0)
        write_input(r);
    return rc;
}

static void on_end(struct running *r)
{
    const char end = END_OF_INPUT;
    if (r->tty && !r->in_ended)
        (void)buf_add(&r->in, &end, 1); /* as if the user had typed it */
    r->in_ended = true;
    write_input(r);
}

static int on_frame(enum stream_type type, struct span p, void *arg)
{
    struct running *r = arg;
    const unsigned char *b = (const unsigned char *)p.p;
    switch ((int)type) {
    case SF_DATA:
        return on_data(r, p);
    case SF_END:
        on_end(r);
        return 0;
    case SF_RESIZE:
        if (p.len == 4 && r->tty && r->out_fd >= 0)
            set_size(r->out_fd, (uint32_t)(b[0] << 8 | b[1]), (uint32_t)(b[2] << 8 | b[3]));
        return 0;
    case SF_SIGNAL:
        if (p.len == 1 && b[0] > 0 && b[0] < 32 && !r->exited && signal_inside(r, b[0]) == 0)
            (void)kill(-r->pid, b[0]);
        return 0;
    default:
        return -EPROTO;
    }
}

/* ---- the end ---- */

/* Kill all that the command has started, again and again until nothing is left. */
static void sweep(struct running *r)
{
    if (r->swept)
        return;
    unsigned n = proctree_signal(SIGKILL, r->sweeps++ >= STOP_AFTER_ROUNDS);
    if (n + signal_inside(r, SIGKILL) == 0 || r->sweeps > SWEEP_ROUNDS_MAX)
        r->swept = true;
    r->sweep_at_ms = clock_mono_ms() + SWEEP_MS;
}

static void hang_up(struct running *r)
{
    if (r->kill_at_ms != INT64_MAX || r->exited)
        return;
    if (signal_inside(r, SIGHUP) == 0)
        (void)proctree_signal(SIGHUP, false);
    (void)signal_inside(r, SIGCONT); /* a stopped process cannot handle the HUP */
    (void)proctree_signal(SIGCONT, false);
    r->kill_at_ms = clock_mono_ms() + HANGUP_MS;
}

static void reap(struct running *r)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0)
        if (pid == r->pid) {
            r->exited = true;
            r->status = status;
        }
    if (pid == -1 && errno == ECHILD && r->exited && !r->s->x->engine)
        r->swept = true;
    else if (r->exited)
        sweep(r);
}

/* true: the task ends, and the command with it. */
static bool on_signals(struct running *r)
{
    struct signalfd_siginfo si;
    bool stop = false;
    while (read(r->s->signal_fd, &si, sizeof si) == (ssize_t)sizeof si) {
        if (si.ssi_signo == SIGCHLD)
            reap(r);
        else
            stop = true;
    }
    return stop;
}

static _Noreturn void report_end(struct running *r, bool stopped)
{
    struct tunnel *t = &r->s->t;
    struct err e = { 0 };
    if (stopped) {
        (void)err_set(&e, ESRCH, "the task is being stopped, and the command was stopped with it");
        tunnel_fail(t, &e);
    }
    unsigned char end[2] = { (unsigned char)(WIFSIGNALED(r->status) ? WTERMSIG(r->status) : 0),
                             (unsigned char)(WIFEXITED(r->status) ? WEXITSTATUS(r->status) : 0) };
    (void)tunnel_add(t, SF_EXIT, end, sizeof end);
    tunnel_finish(t);
}

/* ---- the loop ---- */

static void read_output(struct running *r, enum stream_type type, int *fd)
{
    ssize_t n = *fd >= 0 ? tunnel_add_from(&r->s->t, type, *fd) : -EAGAIN;
    if (n > 0 || (n == -EAGAIN && !r->swept))
        return;
    if (r->in_fd == *fd)
        r->in_fd = -1;
    close_p(fd); /* its end; a terminal returns EIO */
    *fd = -1;
}

static int timeout_of(const struct running *r)
{
    int64_t at = r->exited && !r->swept ? r->sweep_at_ms : r->kill_at_ms;
    if (at == INT64_MAX)
        return -1;
    return (int)MAX(MIN(at - clock_mono_ms(), (int64_t)1000), (int64_t)0);
}

static void on_time(struct running *r)
{
    int64_t now = clock_mono_ms();
    if (r->exited && !r->swept && now >= r->sweep_at_ms) {
        reap(r);
    } else if (now >= r->kill_at_ms) {
        (void)signal_inside(r, SIGKILL);
        (void)proctree_signal(SIGKILL, false);
        r->kill_at_ms = now + SWEEP_MS;
    }
}

static void run(struct running *r, bool *out_stopped)
{
    struct tunnel *t = &r->s->t;
    struct err e = { 0 };
    while (!r->exited || !r->swept || r->out_fd >= 0 || r->err_fd >= 0) {
        bool room = tunnel_has_room(t) || t->ended;
        struct pollfd p[] = {
            { .fd = r->s->signal_fd, .events = POLLIN },
            { .fd = t->ended ? -1 : t->fd, .events = tunnel_events(t, true) },
            { .fd = room ? r->out_fd : -1, .events = POLLIN },
            { .fd = room ? r->err_fd : -1, .events = POLLIN },
            { .fd = r->in.len ? r->in_fd : -1, .events = POLLOUT },
        };
        bool drain = r->swept && room; /* no process writes any more: read until the end */
        if (poll(p, ARRAY_LEN(p), drain ? 0 : timeout_of(r)) == -1)
            continue;
        if (p[0].revents && on_signals(r)) {
            *out_stopped = true;
            hang_up(r);
        }
        if (p[4].revents)
            write_input(r);
        if (p[2].revents || drain)
            read_output(r, SF_DATA, &r->out_fd);
        if (p[3].revents || drain)
            read_output(r, SF_ERRORS, &r->err_fd);
        if (!t->ended && (tunnel_flush(t) < 0 ||
                          (p[1].revents && tunnel_ready(t, p[1].revents, true, &e) < 0))) {
            t->ended = true;
            hang_up(r); /* the client, or the master, has gone */
        }
        if (t->ended)
            t->out.len = t->out_at = 0;
        on_time(r);
    }
}

_Noreturn void stream_exec(struct stream_side *s)
{
    struct running r = { .s = s,
                         .in_fd = -1,
                         .out_fd = -1,
                         .err_fd = -1,
                         .tty = s->request->tty,
                         .in.max = STREAM_WINDOW + 1,
                         .kill_at_ms = INT64_MAX };
    struct err e = { 0 };
    bool stopped = false;
    if (start(s, &r, &e) < 0)
        tunnel_fail(&s->t, &e);
    s->t.reader = (struct stream_reader){ .on_frame = on_frame, .arg = &r };
    (void)tunnel_add(&s->t, SF_STARTED, NULL, 0);
    run(&r, &stopped);
    report_end(&r, stopped);
}
