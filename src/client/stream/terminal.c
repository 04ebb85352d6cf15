/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stream/terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"

/* The terminal that is in raw mode. Handlers of fatal signals and of exit() restore it. */
static const struct terminal *volatile raw_terminal;

static void restore_raw(void)
{
    const struct terminal *t = raw_terminal;
    raw_terminal = NULL;
    if (t)
        (void)tcsetattr(t->fd, TCSANOW, &t->before); /* safe in a signal handler */
}

static void on_crash(int signo)
{
    restore_raw();
    (void)raise(signo); /* SA_RESETHAND has restored the default action, so this ends the process */
}

static void watch_crashes(void)
{
    static const int signos[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS };
    static bool done;
    if (done)
        return;
    done = true;
    (void)atexit(restore_raw);
    struct sigaction a = { .sa_handler = on_crash, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER) };
    for (size_t i = 0; i < ARRAY_LEN(signos); i++)
        (void)sigaction(signos[i], &a, NULL); /* cannot fail for these signals */
}

void terminal_init(struct terminal *t, int fd)
{
    *t = (struct terminal){ .fd = fd };
    t->is_terminal = tcgetattr(fd, &t->before) == 0;
}

void terminal_raw(struct terminal *t)
{
    if (!t->is_terminal || t->raw)
        return;
    struct termios raw = t->before;
    cfmakeraw(&raw);
    watch_crashes();
    raw_terminal = t;
    t->raw = tcsetattr(t->fd, TCSADRAIN, &raw) == 0;
    if (!t->raw)
        raw_terminal = NULL;
}

void terminal_restore(struct terminal *t)
{
    if (!t->raw)
        return;
    t->raw = false;
    raw_terminal = NULL;
    /* A background process gets TTOU for this: ignore it, or the terminal would stay raw. */
    void (*old)(int) = signal(SIGTTOU, SIG_IGN);
    (void)tcsetattr(t->fd, TCSADRAIN, &t->before); /* fails only if the terminal is closed */
    (void)signal(SIGTTOU, old);
}
