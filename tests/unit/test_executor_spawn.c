/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that start in a control group of v2, which the test mounts for itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/proctree.h"
#include "base/vec.h"
#include "cgroup/find.h"
#include "cgroup/tree.h"
#include "executor/executor_int.h"

extern char **environ;

static char mounted[] = "/tmp/tony-test-cgroup-XXXXXX";
static struct cgroup group = { .kind = CGROUP_V2 };

/* Start a shell that runs `command` in the group, with the pipe `out` as its standard output. */
static pid_t start(const char *command, int out)
{
    char procs[CGROUP_PATH_MAX + 16];
    char *argv[] = { (char *)"sh", (char *)"-c", (char *)(uintptr_t)command, NULL };
    cgroup_procs_path(&group, procs);
    struct spawn s = { .path = "/bin/sh",
                       .shell = "/bin/sh",
                       .workdir = "/",
                       .argv = argv,
                       .env = environ,
                       .out_fd = out,
                       .err_fd = 2,
                       .cgroup_procs = procs,
                       .needs_cgroup = true,
                       .cgroup_fd = cgroup_open(&group),
                       .nofile = { 1024, 1024 } };
    assert_true(s.cgroup_fd >= 0);
    int fd = s.cgroup_fd;
    pid_t pid = spawn_task(&s);
    close(fd);
    assert_int_equal(s.exec_errno, 0);
    assert_true(pid > 0);
    return pid;
}

static int status_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void await_line(int in, const char *want)
{
    char line[256] = "";
    for (size_t n = 0; n + 1 < sizeof line && read(in, line + n, 1) == 1 && line[n] != '\n'; n++)
        ;
    line[strcspn(line, "\n")] = '\0';
    assert_string_equal(line, want);
}

/* As in a restart: all processes of the group are killed, and the group is used again. */
static void a_group_is_used_again_after_a_kill(void **state)
{
    (void)state;
    int pipes[2];
    if (!group.path[0])
        skip(); /* not root, or a kernel without control groups v2 */
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(cgroup_kill(&group), 0); /* there is nothing to kill */
    for (int round = 0; round < 3; round++) {
        pid_t first = start("echo up; sleep 1000", pipes[1]);
        await_line(pipes[0], "up");
        assert_true(cgroup_kill(&group) >= 1);
        int status = status_of(first);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGKILL);
        while (cgroup_kill(&group)) /* `sleep` is dying */
            sched_yield();
        status = status_of(start("sed -n 's/^0:://p' /proc/self/cgroup", pipes[1]));
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        await_line(pipes[0], strrchr(group.path, '/'));
    }
    close(pipes[0]);
    close(pipes[1]);
}

static unsigned n_in_group(void)
{
    struct pids list = { 0 };
    cgroup_list(&group, &list);
    unsigned n = (unsigned)list.n;
    vec_done(&list);
    return n;
}

/* A task may make groups below its own, and move its processes there. They are found, killed and
 * removed with the group of the task. */
static void groups_that_a_task_has_made(void **state)
{
    (void)state;
    int pipes[2];
    char command[3 * CGROUP_PATH_MAX], own[CGROUP_PATH_MAX + 16];
    if (!group.path[0])
        skip(); /* not root, or a kernel without control groups v2 */
    assert_int_equal(pipe(pipes), 0);
    (void)snprintf(own, sizeof own, "%s/own", group.path);
    (void)snprintf(
        command, sizeof command,
        "mkdir -p '%s/deeper'; echo $$ > '%s/deeper/cgroup.procs'; echo up; exec sleep 1000", own,
        own);
    pid_t first = start(command, pipes[1]);
    await_line(pipes[0], "up");
    assert_int_equal(n_in_group(), 1);
    assert_int_equal(cgroup_tree_rmdir(group.path), -EBUSY);
    assert_int_equal(cgroup_kill(&group), 1);
    assert_int_equal(WTERMSIG(status_of(first)), SIGKILL);
    assert_int_equal(cgroup_kill(&group), 0);
    assert_int_equal(cgroup_tree_rmdir(group.path), 0);
    assert_int_equal(access(group.path, F_OK), -1);

    assert_int_equal(mkdir(group.path, 0755), 0);
    first = start(command, pipes[1]);
    await_line(pipes[0], "up");
    assert_int_equal(signal(SIGCHLD, SIG_IGN) == SIG_ERR, 0); /* the kernel reaps the process */
    cgroup_tree_remove(group.path);
    assert_int_equal(signal(SIGCHLD, SIG_DFL) == SIG_ERR, 0);
    assert_int_equal(access(group.path, F_OK), -1);
    assert_int_equal(mkdir(group.path, 0755), 0);
    close(pipes[0]);
    close(pipes[1]);
}

/* A mount of control groups that only this process sees. Needs root. */
static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(mounted))
        return -1;
    if (unshare(CLONE_NEWNS) == -1 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == -1 ||
        mount("none", mounted, "cgroup2", 0, NULL) == -1)
        return 0;
    (void)snprintf(group.path, sizeof group.path, "%s/tony-test-%d", mounted, getpid());
    if (mkdir(group.path, 0755) == -1)
        group.path[0] = '\0';
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (group.path[0])
        cgroup_tree_remove(group.path);
    (void)umount(mounted);
    (void)rmdir(mounted);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_is_used_again_after_a_kill),
        cmocka_unit_test(groups_that_a_task_has_made),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
