/* SPDX-License-Identifier: Apache-2.0 */
/* The call to systemd's manager for a scope, beside managers that refuse it, end, or do not answer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "cgroup/scope.h"

enum behaviour { IS_SILENT = 1, REFUSES, ENDS, SENDS_TOO_MUCH };

static char dir[] = "/tmp/tony-test-scope-XXXXXX";

/* An error message in the format of D-Bus, in the byte order of this machine: its body is a text.
 */
static void send_error(int fd, const char *text, uint32_t body_len)
{
    char message[512] = { 0 };
    const uint32_t one = 1, serial = 1, no_fields = 0, text_len = (uint32_t)strlen(text);
    message[0] = *(const char *)&one ? 'l' : 'B';
    message[1] = 3;
    message[3] = 1;
    memcpy(message + 4, &body_len, 4);
    memcpy(message + 8, &serial, 4);
    memcpy(message + 12, &no_fields, 4);
    memcpy(message + 16, &text_len, 4);
    memcpy(message + 20, text, text_len + 1);
    (void)!write(fd, message, 16 + 4 + text_len + 1);
}

static void read_line(int fd)
{
    char byte = 0;
    while (byte != '\n' && read(fd, &byte, 1) == 1)
        ;
}

static _Noreturn void manage(int listener, enum behaviour what)
{
    static const char denied[] = "Access denied";
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = accept(listener, NULL, NULL);
    read_line(fd);
    (void)!write(fd, "OK 0123\r\n", 9);
    read_line(fd);
    if (what == REFUSES)
        send_error(fd, denied, 4 + sizeof denied);
    else if (what == SENDS_TOO_MUCH)
        send_error(fd, denied, 1 << 30);
    else if (what == ENDS)
        (void)shutdown(fd, SHUT_WR);
    for (;;)
        pause();
}

static pid_t start_manager(enum behaviour what)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    (void)snprintf(at.sun_path, sizeof at.sun_path, "%s/systemd/private", dir);
    (void)unlink(at.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 1), 0);
    pid_t pid = fork();
    if (pid == 0)
        manage(fd, what);
    close(fd);
    return pid;
}

static void on_alarm(int signo)
{
    (void)signo;
}

/* One signal interrupts the wait for the answer. */
static void interrupt_once(void)
{
    struct sigaction act = { .sa_handler = on_alarm };
    struct itimerval once = { .it_value = { .tv_usec = 200000 } };
    assert_int_equal(sigaction(SIGALRM, &act, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &once, NULL), 0);
}

static void a_manager_that_gives_no_scope(void **state)
{
    static const struct {
        enum behaviour what;
        int num;
        const char *text;
    } rows[] = {
        { REFUSES, EACCES, "systemd refuses a scope: Access denied" },
        { ENDS, EPIPE, "systemd does not answer" },
        { SENDS_TOO_MUCH, EBADMSG, "systemd sent a message that is too long" },
        { IS_SILENT, ETIMEDOUT, "systemd does not answer" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = { 0 };
        pid_t pid = start_manager(rows[i].what);
        if (rows[i].what == IS_SILENT)
            interrupt_once();
        assert_int_equal(scope_enter(false, &e), -rows[i].num);
        assert_int_equal(e.num, rows[i].num);
        assert_true(str_starts(e.msg, rows[i].text));
        (void)kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
}

static int setup(void **state)
{
    char path[64];
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof path, "%s/systemd", dir);
    (void)signal(SIGPIPE, SIG_IGN);
    return mkdir(path, 0700) == 0 && setenv("XDG_RUNTIME_DIR", dir, 1) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    char path[64];
    (void)state;
    (void)snprintf(path, sizeof path, "%s/systemd/private", dir);
    (void)unlink(path);
    *strrchr(path, '/') = '\0';
    (void)rmdir(path);
    (void)rmdir(dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manager_that_gives_no_scope),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
