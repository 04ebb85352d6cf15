/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a process of a task. */
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/executor_int.h"

enum { ARGS_MAX = 4096, TIMER_SLACK_NS = 50000 /* the default of the kernel */ };

/* Run a script without a #! line by a shell, as a shell does. */
static void exec_script(const struct spawn *s)
{
    const char *argv[ARGS_MAX];
    size_t n = 0;
    argv[n++] = s->shell;
    argv[n++] = s->path;
    for (size_t i = 1; s->argv[i] && n < ARGS_MAX - 1; i++)
        argv[n++] = s->argv[i];
    argv[n] = NULL;
    execve(s->shell, (char *const *)argv, s->env);
}

/* Runs in the child, which shares the memory of the waiting parent. It makes only system calls, and
 * writes only the results in *s. */
static _Noreturn void child(struct spawn *s, pid_t parent)
{
    s->began = true;
    if (s->own_group)
        setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127); /* the parent died before PR_SET_PDEATHSIG was set */
    if (s->cgroup_procs && s->cgroup_fd < 0) {
        int rc = cgroup_enter(s->cgroup_procs);
        if (rc < 0)
            s->cgroup_errno = -rc;
        if (rc < 0 && s->needs_cgroup)
            _exit(127);
    }
    if (s->cpus)
        sched_setaffinity(0, sizeof *s->cpus, s->cpus);
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    setrlimit(RLIMIT_NOFILE, &s->nofile);
    umask(s->umask);
    sigset_t none;
    sigemptyset(&none);
    if (dup2(s->out_fd, 1) == -1 || dup2(s->err_fd, 2) == -1 || chdir(s->workdir) == -1) {
        s->exec_errno = errno;
        _exit(127);
    }
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(s->path, s->argv, s->env);
    if (errno == ENOEXEC)
        exec_script(s);
    s->exec_errno = errno;
    _exit(127);
}

/*
 * vfork() into a control group of v2. Entering the group later would make the kernel stop all forks
 * of the machine for 10 to 15 ms (measured).
 *
 * glibc has no function for it, and syscall() does not do: parent and child share the stack, and
 * the child would overwrite the return address of syscall(). So the system call is made in this
 * function, whose frame the child does not leave: child() never returns.
 */
#if defined(__x86_64__) && defined(SYS_clone3)
__attribute__((noinline)) static pid_t vfork_into(struct spawn *s, pid_t parent)
{
    struct clone_args args = { .flags = CLONE_VM | CLONE_VFORK | CLONE_INTO_CGROUP,
                               .exit_signal = SIGCHLD,
                               .cgroup = (uint64_t)(unsigned)s->cgroup_fd };
    long pid;
    __asm__ volatile("syscall"
                     : "=a"(pid)
                     : "0"((long)SYS_clone3), "D"(&args), "S"(sizeof args)
                     : "rcx", "r11", "memory");
    if (pid == 0)
        child(s, parent);
    return (pid_t)pid;
}
#elif defined(__aarch64__) && defined(SYS_clone3)
__attribute__((noinline)) static pid_t vfork_into(struct spawn *s, pid_t parent)
{
    struct clone_args args = { .flags = CLONE_VM | CLONE_VFORK | CLONE_INTO_CGROUP,
                               .exit_signal = SIGCHLD,
                               .cgroup = (uint64_t)(unsigned)s->cgroup_fd };
    register long number __asm__("x8") = SYS_clone3;
    register long first __asm__("x0") = (long)&args;
    register long second __asm__("x1") = sizeof args;
    __asm__ volatile("svc 0" : "+r"(first) : "r"(number), "r"(second) : "memory");
    if (first == 0)
        child(s, parent);
    return (pid_t)first;
}
#else
static pid_t vfork_into(struct spawn *s, pid_t parent)
{
    (void)s;
    (void)parent;
    return -ENOSYS;
}
#endif

/*
 * Start the child in its group. 0 = that is not possible here, and there is no child: the kernel is
 * older than 5.7, or it refuses, or it has killed the child at once.
 *
 * The last happens on some kernels if cgroup.kill was ever written in this group. Linux counts
 * these writes in each group, and kills a child that is made while the count changes. But for
 * CLONE_INTO_CGROUP, cgroup_css_set_fork() reads the count of the parent's group, and
 * cgroup_post_fork() compares it with that of the child's group. Such a child dies before its first
 * instruction. Seen on 6.1 of Debian 12 and on 6.18, not on 6.12 of Debian 13.
 */
static pid_t start_in_group(struct spawn *s, pid_t parent)
{
    pid_t pid = s->cgroup_fd >= 0 ? vfork_into(s, parent) : 0;
    if (pid > 0 && !s->began) {
        while (waitpid(pid, NULL, 0) == -1 && errno == EINTR)
            ;
        return 0;
    }
    return pid > 0 ? pid : 0;
}

/* vfork() copies no memory, and lets a failed execve() return its errno without a pipe. The
 * executor has no signal handlers, so no other code runs in the shared memory. */
pid_t spawn_task(struct spawn *s)
{
    pid_t parent = getpid();
    s->began = false;
    s->exec_errno = s->cgroup_errno = 0;
    pid_t pid = start_in_group(s, parent);
    if (pid > 0)
        return pid;
    s->cgroup_fd = -1; /* it enters the group later */
    pid = vfork();
    if (pid == 0)
        child(s, parent);
    return pid == -1 ? -errno : pid;
}
