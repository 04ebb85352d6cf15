/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tony top` on a terminal: keys, the screen, and signals. Without a terminal it prints one table.
 *
 * The terminal is restored whenever the program leaves it: at a normal end, before it is suspended,
 * and by a handler of every signal that ends it, because a request to a cluster may take long.
 */
#include "client/monitor/top.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/monitor/series.h"
#include "cluster/cluster.h"

enum {
    REFRESH_MS = 2000, /* between two updates of the screen */
    COLS_PLAIN = 200,  /* width of a table that is not written to a terminal */
    HEAD_LINES = 3,    /* title, keys, heading */
    KEYS_COLS = 105,   /* width of the line that explains each key */
};

/* ---- the terminal ---- */

static struct { /* signal handlers use it */
    volatile sig_atomic_t is_raw, changed;
    struct termios before, raw;
} terminal;

#define ENTER "\033[?1049h\033[?25l" /* the alternate screen, without a cursor */
#define LEAVE "\033[?25h\033[?1049l"

static void leave_terminal(void)
{
    if (!terminal.is_raw)
        return;
    terminal.is_raw = 0;
    (void)!write(STDOUT_FILENO, LEAVE, sizeof LEAVE - 1);
    (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &terminal.before);
}

static void enter_terminal(void)
{
    terminal.is_raw = 1;
    (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &terminal.raw);
    (void)!write(STDOUT_FILENO, ENTER, sizeof ENTER - 1);
}

static void on_end_signal(int signo)
{
    leave_terminal();
    (void)signal(signo, SIG_DFL);
    (void)raise(signo);
}

static void on_suspend(int signo)
{
    int saved = errno;
    sigset_t set;
    leave_terminal();
    (void)signal(signo, SIG_DFL);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, signo);
    /* the signal is pending until it is unblocked; the process stops at that point */
    (void)raise(signo);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    (void)signal(signo, on_suspend);
    enter_terminal();
    terminal.changed = 1;
    errno = saved;
}

static void on_window(int signo)
{
    (void)signo;
    terminal.changed = 1;
}

static int open_terminal(struct err *e)
{
    static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGSEGV, SIGBUS };
    struct sigaction end = { .sa_handler = on_end_signal }, stop = { .sa_handler = on_suspend },
                     window = { .sa_handler = on_window };
    if (tcgetattr(STDIN_FILENO, &terminal.before) == -1)
        return err_set(e, errno, "cannot use the terminal: %m");
    terminal.raw = terminal.before;
    terminal.raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO); /* ISIG stays: Ctrl-C and Ctrl-Z */
    terminal.raw.c_cc[VMIN] = 1;
    terminal.raw.c_cc[VTIME] = 0;
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        (void)sigaction(ends[i], &end, NULL);
    (void)sigaction(SIGTSTP, &stop, NULL);
    (void)sigaction(SIGWINCH, &window, NULL);
    (void)atexit(leave_terminal);
    enter_terminal();
    return 0;
}

static void window_size(unsigned *cols, unsigned *rows)
{
    struct winsize w;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col && w.ws_row;
    *cols = known ? w.ws_col : 80;
    *rows = known ? w.ws_row : 24;
}

/* ---- the screen ---- */

struct screen {
    struct client *c;
    struct top t;
    char chosen[APP_ID_MAX + 200]; /* the member `key` of the chosen row */
    size_t at, first;              /* its index, and the first row that is shown */
    char note[300];                /* the last error */
    bool unicode, over;
};

static void keep_choice(struct screen *s)
{
    for (size_t i = 0; i < s->t.n; i++)
        if (str_eq(s->t.v[i].key, s->chosen))
            s->at = i;
    s->at = MIN(s->at, s->t.n ? s->t.n - 1 : 0);
}

static void choose(struct screen *s, long by)
{
    long to = (long)s->at + by, last = (long)s->t.n - 1;
    s->at = (size_t)MAX(MIN(to, last), 0L);
    if (s->t.n)
        (void)str_copy(s->chosen, sizeof s->chosen, s->t.v[s->at].key);
}

static void add_line(struct buf *out, const char *before, const char *text, const char *after,
                     unsigned cols)
{
    (void)buf_addf(out, "%s%.*s\033[K%s\r\n", before, (int)cols, text, after);
}

static void draw(struct screen *s)
{
    static const char *const sorts[] = { "name", "state", "step", "CPU", "memory", "GPU" };
    unsigned cols, rows;
    AUTO(buf_done) struct buf out = { 0 };
    AUTO(buf_done) struct buf head = { 0 };
    char keys[200];
    bool color = s->c->out_color;
    window_size(&cols, &rows);
    size_t room = rows > HEAD_LINES + 1 ? rows - HEAD_LINES - 1 : 1;
    if (s->at < s->first)
        s->first = s->at;
    if (s->at >= s->first + room)
        s->first = s->at - room + 1;
    (void)snprintf(keys, sizeof keys, "by %s%s; %s r reverse; arrows, %s, q quit", sorts[s->t.sort],
                   s->t.reverse ? ", reversed" : "",
                   cols < KEYS_COLS ? "n t s c m g sort,"
                                    : "n name t state s step c CPU m memory g GPU",
                   s->t.app[0] ? "Esc jobs" : "Enter tasks");
    (void)buf_adds(&out, "\033[H");
    add_line(&out, "", s->note[0] ? s->note : s->t.title, "", cols);
    add_line(&out, color ? "\033[2m" : "", keys, color ? "\033[0m" : "", cols);
    top_head(&s->t, cols, &head);
    (void)buf_addf(&out, "%s%s\033[K%s\r\n", color ? "\033[1m" : "", buf_cstr(&head),
                   color ? "\033[0m" : "");
    for (size_t i = s->first; i < s->t.n && i < s->first + room; i++) {
        (void)buf_adds(&out, i == s->at ? "\033[7m" : "");
        top_line(&s->t, &s->t.v[i], cols, s->unicode, &out);
        (void)buf_addf(&out, "\033[K%s\r\n", i == s->at ? "\033[0m" : "");
    }
    (void)buf_adds(&out, "\033[J");
    if (fs_write_all(STDOUT_FILENO, out.p, out.len) < 0)
        s->over = true; /* the terminal is gone */
}

/* ---- keys ---- */

static void show_jobs(struct screen *s)
{
    (void)str_copy(s->chosen, sizeof s->chosen, s->t.app);
    s->t.app[0] = '\0';
    top_done(&s->t);
    s->t.n_rounds = 0;
}

static void show_tasks(struct screen *s)
{
    if (s->t.app[0] || s->at >= s->t.n)
        return;
    (void)str_copy(s->t.app, sizeof s->t.app, s->t.v[s->at].key);
    s->chosen[0] = '\0';
    s->at = s->first = 0;
    top_done(&s->t);
    s->t.n_rounds = 0;
}

static bool set_sort(struct screen *s, char key)
{
    static const char keys[] = "ntscmg";
    const char *p = key ? strchr(keys, key) : NULL;
    if (p) {
        s->t.sort = (enum top_sort)(p - keys);
        s->t.reverse = false;
    } else if (key == 'r') {
        s->t.reverse = !s->t.reverse;
    } else {
        return false;
    }
    top_sort(&s->t);
    s->at = s->first = 0;
    s->chosen[0] = '\0';
    return true;
}

/* Handle what was typed. true: the data must be asked for again. */
static bool on_keys(struct screen *s, const char *p, size_t n, bool may_go_back)
{
    for (size_t i = 0; i < n; i++) {
        bool sequence = p[i] == '\033' && i + 2 < n && (p[i + 1] == '[' || p[i + 1] == 'O');
        char key = sequence ? p[i + 2] : p[i];
        if (sequence) {
            i += 2;
            if (key == 'A' || key == 'B') {
                choose(s, key == 'A' ? -1 : 1);
            } else if (key == '5' || key == '6') { /* page up and down end with '~' */
                choose(s, key == '5' ? -10 : 10);
                i += i + 1 < n && p[i + 1] == '~';
            } else if (key == 'H' || key == 'F') {
                choose(s, key == 'H' ? -(long)s->t.n : (long)s->t.n);
            } else if (key == 'D' && s->t.app[0] && may_go_back) {
                show_jobs(s);
                return true;
            }
        } else if (key == 'q' || key == 'Q' || key == 4) {
            s->over = true;
        } else if (key == 'k' || key == 'j') {
            choose(s, key == 'k' ? -1 : 1);
        } else if ((key == '\n' || key == '\r') && !s->t.app[0]) {
            show_tasks(s);
            return true;
        } else if ((key == '\033' || key == 127 || key == 8) && s->t.app[0] && may_go_back) {
            show_jobs(s);
            return true;
        } else if (key == ' ') {
            return true;
        } else {
            (void)set_sort(s, key);
        }
    }
    return false;
}

static int64_t refresh(struct screen *s)
{
    struct err e = { 0 };
    s->note[0] = '\0';
    if (top_refresh(&s->t, &e) < 0)
        (void)str_copy(s->note, sizeof s->note, e.msg);
    str_mask_controls(s->note);
    str_mask_controls(s->t.title);
    keep_choice(s);
    return clock_mono_ms() + REFRESH_MS;
}

static int live(struct screen *s)
{
    struct err e = { 0 };
    if (open_terminal(&e) < 0)
        return client_fail(EXIT_CLUSTER, &e);
    int64_t due = refresh(s);
    while (!s->over) {
        char keys[64];
        struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
        draw(s);
        int64_t left = due - clock_mono_ms();
        terminal.changed = 0;
        int n = left > 0 ? poll(&p, 1, (int)left) : 0;
        ssize_t got = n > 0 ? read(STDIN_FILENO, keys, sizeof keys) : -2;
        if (got == 0 || (got == -1 && errno != EINTR && errno != EAGAIN))
            s->over = true; /* the terminal is gone */
        if ((got > 0 && on_keys(s, keys, (size_t)got, true)) || clock_mono_ms() >= due)
            due = s->over ? due : refresh(s);
    }
    leave_terminal();
    return EXIT_DONE;
}

static int print_once(struct screen *s)
{
    struct err e = { 0 };
    int rc = top_refresh(&s->t, &e);
    if (rc < 0)
        return client_fail(-rc, &e);
    AUTO(buf_done) struct buf out = { 0 };
    top_head(&s->t, COLS_PLAIN, &out);
    (void)buf_addc(&out, '\n');
    for (size_t i = 0; i < s->t.n; i++) {
        top_line(&s->t, &s->t.v[i], COLS_PLAIN, s->unicode, &out);
        (void)buf_addc(&out, '\n');
    }
    (void)fputs(buf_cstr(&out), stdout);
    int code = client_flush_stdout();
    if (s->t.n == 0)
        client_note(s->t.app[0] ? "the job has no tasks yet" : "no job is live");
    return code;
}

int cmd_top(struct client *c)
{
    struct err e = { 0 };
    struct screen s = { .c = c, .unicode = chart_unicode() };
    int rc = c->o.n_args ? client_find(c, c->o.args[0], &s.t.k, s.t.app, &e)
                         : client_open_wanted(c, &s.t.k, &e);
    if (rc < 0)
        return client_fail(-rc, &e);
    bool terminal_here =
        isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !str_eq(getenv("TERM"), "dumb");
    s.t.sort = c->o.n_args ? TOP_BY_NAME : TOP_BY_CPU;
    int code = terminal_here ? live(&s) : print_once(&s);
    top_done(&s.t);
    return code;
}
