/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least work with which the tasks of a job can be started on one machine, as a reference for
 * tony. For each task: a working directory, a log directory with the files stdout and stderr, one
 * vfork() and one execve(). If control groups were prepared, the process of a task enters its own.
 * The launcher reaps the tasks and ends with the first failure. It has no journal, no connection to
 * a task, no supervision and no clean-up.
 *
 *     floor DIR GROUPS N COMMAND [ARGUMENT...]
 *
 * DIR: an existing directory, for the directories of the tasks. GROUPS: the directory with the
 * control groups 0 to N-1, which the caller has made and limited; "-" = no groups.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_MAX = 100000, NAME_MAX_BYTES = 64 };

/* How the process of a task enters its group. */
enum entry { NO_GROUPS, BY_TASKS_FILE /* version 1 */, BY_CLONE /* version 2 */ };

struct task {
    char workdir[NAME_MAX_BYTES], enter[NAME_MAX_BYTES]; /* relative to DIR and to GROUPS */
    int out_fd, err_fd, group_fd;
};

__attribute__((noreturn)) static void die(const char *what)
{
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int open_log(int dir, const char *path)
{
    int fd = openat(dir, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd == -1)
        die(path);
    return fd;
}

static void make_files(int dir, long i, struct task *t)
{
    char path[NAME_MAX_BYTES];
    snprintf(t->workdir, sizeof t->workdir, "work-%ld", i);
    if (mkdirat(dir, t->workdir, 0700) == -1)
        die(t->workdir);
    snprintf(path, sizeof path, "log-%ld", i);
    if (mkdirat(dir, path, 0700) == -1)
        die(path);
    snprintf(path, sizeof path, "log-%ld/stdout", i);
    t->out_fd = open_log(dir, path);
    snprintf(path, sizeof path, "log-%ld/stderr", i);
    t->err_fd = open_log(dir, path);
}

/* Runs in the child. With BY_TASKS_FILE and NO_GROUPS it shares the memory of the waiting parent.
 */
__attribute__((noreturn)) static void run(const struct task *t, enum entry entry, int dir,
                                          int groups, char **command)
{
    if (entry == BY_TASKS_FILE) {
        int fd = openat(groups, t->enter, O_WRONLY | O_CLOEXEC);
        if (fd == -1 || write(fd, "0", 1) != 1)
            _exit(126);
        close(fd);
    }
    if (fchdir(dir) == -1 || chdir(t->workdir) == -1 || dup2(t->out_fd, 1) == -1 ||
        dup2(t->err_fd, 2) == -1)
        _exit(126);
    execv(command[0], command);
    _exit(127);
}

/* Version 2: the child starts in its group. It gets a copy of the memory, which is small here; so
 * this call needs no care for a shared stack, as vfork() does. */
static pid_t fork_into(int group_fd)
{
    struct clone_args args = { .flags = CLONE_INTO_CGROUP,
                               .exit_signal = SIGCHLD,
                               .cgroup = (uint64_t)(unsigned)group_fd };
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

static void start(int dir, int groups, enum entry entry, long i, char **command)
{
    struct task t = { .group_fd = -1 };
    make_files(dir, i, &t);
    snprintf(t.enter, sizeof t.enter, entry == BY_CLONE ? "%ld" : "%ld/tasks", i);
    if (entry == BY_CLONE) {
        t.group_fd = openat(groups, t.enter, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (t.group_fd == -1)
            die(t.enter);
    }
    pid_t pid = entry == BY_CLONE ? fork_into(t.group_fd) : vfork();
    if (pid == 0)
        run(&t, entry, dir, groups, command);
    if (pid == -1)
        die("fork");
    close(t.out_fd);
    close(t.err_fd);
    if (t.group_fd >= 0)
        close(t.group_fd);
}

int main(int argc, char **argv)
{
    long n = argc >= 5 ? strtol(argv[3], NULL, 10) : 0;
    if (n < 1 || n > N_MAX) {
        fprintf(stderr, "usage: floor DIR GROUPS N COMMAND [ARGUMENT...]\n");
        return 2;
    }
    int dir = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC), groups = -1;
    if (dir == -1)
        die(argv[1]);
    enum entry entry = NO_GROUPS;
    if (strcmp(argv[2], "-") != 0) {
        groups = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (groups == -1)
            die(argv[2]);
        entry = faccessat(groups, "0/tasks", F_OK, 0) == 0 ? BY_TASKS_FILE : BY_CLONE;
    }
    for (long i = 0; i < n; i++)
        start(dir, groups, entry, i, argv + 4);
    int failed = 0, status;
    for (long i = 0; i < n; i++) {
        if (wait(&status) == -1)
            die("wait");
        if (!failed && status != 0)
            failed = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return failed;
}
