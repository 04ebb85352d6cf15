/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest possible launcher of distributed jobs, as a reference for others. For each task it
 * starts a process that registers over a unix socket, waits until all have registered, and then
 * executes the command. The launcher reaps the tasks and ends with the first failure. It has no
 * journal, no logs, no limits and no supervision.
 *
 *     baseline N COMMAND [ARGUMENT...]
 */
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_MAX = 100000 };

__attribute__((noreturn)) static void die(const char *what)
{
    fprintf(stderr, "baseline: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* An abstract name: no file has to be removed afterwards. */
static socklen_t address(struct sockaddr_un *a, long pid)
{
    *a = (struct sockaddr_un){ .sun_family = AF_UNIX };
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "tony-baseline-%ld", pid);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Runs in the process of a task: register, wait for the start, execute the command. */
static void task(long launcher, char **command)
{
    struct sockaddr_un a;
    socklen_t len = address(&a, launcher);
    char word = 'r';
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s == -1 || connect(s, (struct sockaddr *)&a, len) == -1)
        die("connect");
    if (write(s, &word, 1) != 1 || read(s, &word, 1) != 1)
        die("register");
    execvp(command[0], command);
    die(command[0]);
}

static void start_all(long n, char **command)
{
    long self = getpid();
    for (long i = 0; i < n; i++) {
        pid_t child = fork();
        if (child == -1)
            die("fork");
        if (child == 0)
            task(self, command);
    }
}

static void release_all(int listener, int n)
{
    int *fds = calloc((size_t)n, sizeof *fds);
    if (!fds)
        die("memory");
    for (int i = 0; i < n; i++) {
        char word;
        fds[i] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fds[i] == -1 || read(fds[i], &word, 1) != 1)
            die("accept");
    }
    for (int i = 0; i < n; i++) {
        if (write(fds[i], "g", 1) != 1)
            die("release");
        close(fds[i]);
    }
    free(fds);
}

int main(int argc, char **argv)
{
    long n = argc >= 3 ? strtol(argv[1], NULL, 10) : 0;
    if (n < 1 || n > N_MAX) {
        fprintf(stderr, "usage: baseline N COMMAND [ARGUMENT...]\n");
        return 2;
    }
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files); /* if the limit is too low, accept() reports it */
    }
    struct sockaddr_un a;
    socklen_t len = address(&a, getpid());
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener == -1 || bind(listener, (struct sockaddr *)&a, len) == -1 ||
        listen(listener, 4096) == -1)
        die("listen");
    start_all(n, argv + 2);
    release_all(listener, (int)n);
    int failed = 0, status;
    for (long i = 0; i < n; i++) {
        if (wait(&status) == -1)
            die("wait");
        if (!failed && status != 0)
            failed = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return failed;
}
