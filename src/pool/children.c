/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts the pool's child processes, such as keepers, and reaps them. A keeper is started together
 * with a companion, the first master of its job (struct spawn_companion in pool_int.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/proctree.h"
#include "pool/pool_int.h"

enum { BACKLOG = 64 }; /* of the program's socket; as in executor/link.c */

/* A child process of the pool. libuv starts no processes in the pool, so the pool handles SIGCHLD
 * itself. */
struct child {
    struct child *next;
    pid_t pid;
    void (*on_exit)(void *arg, int code);
    void *arg;
};

/* ---- between vfork() and execve(): the child runs in the pool's memory and may only make system
 * calls ---- */

static _Noreturn void exec_or_exit(const char *program, char *const *argv, char *const *envp,
                                   const char *log, int *out_errno)
{
    sigset_t none;
    (void)sigemptyset(&none);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd >= 0 && dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0) {
        if (fd > STDERR_FILENO)
            (void)close(fd);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        (void)execve(program, argv, envp);
    }
    *out_errno = errno;
    _exit(127);
}

/* AddressSanitizer stores the return address of vfork() in one place for each thread. This vfork()
 * runs in the child of another one. It would overwrite that address, and the pool would continue at
 * a wrong place. So use fork() then. */
#ifdef __SANITIZE_ADDRESS__
#define vfork_within fork
#else
#define vfork_within vfork
#endif

/* Start the companion of the program. If this fails, the program notices that the companion is
 * missing and starts it itself. */
__attribute__((noinline)) static void start_companion(const struct spawn_companion *c, char *envp[])
{
    pid_t parent = getpid(), pid = vfork_within();
    int unused = 0;
    if (pid == 0) {
        if (c->fd3 > 3)
            (void)dup2(c->fd3, 3); /* also clears close-on-exec */
        else if (c->fd3 == 3)
            (void)fcntl(3, F_SETFD, 0);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* stays set when it or its parent calls execve() */
        if (getppid() != parent)
            _exit(127);
        exec_or_exit(c->program, c->argv, envp, c->log, &unused);
    }
    if (pid > 0 && c->pid_text)
        for (size_t i = c->pid_digits; i-- > 0; pid /= 10)
            c->pid_text[i] = (char)('0' + pid % 10);
}

/* Replace the descriptor by a copy with a number from 6 on: the program gets its own files as
 * descriptors 0 to 5. */
static int raise_fd(int low)
{
    int fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, 6);
    if (low >= 0)
        (void)close(low);
    return fd;
}

int child_lock(const char *path)
{
    return raise_fd(lockfile_take(path, true)); /* the copy keeps the lock */
}

int child_listen(const char *path)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    size_t len = strlen(path);
    if (len >= sizeof at.sun_path)
        return -1;
    memcpy(at.sun_path, path, len + 1);
    (void)unlink(path); /* of a dead program: this process has the lock */
    int fd = raise_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    /* The directory has mode 0700, so no other user can connect between bind() and chmod(). */
    if (fd >= 0 && (bind(fd, (const struct sockaddr *)&at, sizeof at) == -1 ||
                    chmod(path, 0600) == -1 || listen(fd, BACKLOG) == -1)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static _Noreturn void child(const struct spawn *s, pid_t pool, int *out_errno)
{
    if (s->dies_with_pool) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* stays set at the execve() */
        if (getppid() != pool)
            _exit(127);
    }
    struct sigaction plain = { .sa_handler = SIG_DFL };
    for (int sig = 1; sig < 32; sig++)
        (void)sigaction(sig, &plain, NULL); /* fails for SIGKILL and SIGSTOP, which is fine */
    if (s->new_session)
        (void)setsid();
    int null = open("/dev/null", O_RDONLY);
    if (null == -1 || dup2(null, STDIN_FILENO) == -1) {
        *out_errno = errno;
        _exit(127);
    }
    if (null > STDERR_FILENO)
        (void)close(null);
    /* Take the lock before the program runs: if the pool dies now, the next pool sees from the lock
     * that this process exists. */
    int lock = s->lock ? child_lock(s->lock) : -1;
    int listener = s->socket && lock >= 0 ? child_listen(s->socket) : -1;
    if (s->companion) /* before descriptors 3 to 5 are set, which only the program may inherit */
        start_companion(s->companion, (char **)(uintptr_t)s->envp);
    if (s->fd3 == 3)
        (void)fcntl(3, F_SETFD, 0);
    else if (s->fd3 > 3)
        (void)dup2(s->fd3, 3); /* also clears close-on-exec */
    if (lock >= 0)
        (void)dup2(lock, 4);
    if (listener >= 0)
        (void)dup2(listener, 5);
    exec_or_exit(s->program, s->argv, s->envp, s->log ? s->log : "/dev/null", out_errno);
}

/* Start the program with vfork(): no memory is copied, and the child can report the errno of a
 * failed execve() in `num`. All signals are blocked meanwhile, since the pool's signal handlers
 * must not run in the child. */
static int spawn_now(const struct spawn *s, pid_t *out_pid)
{
    sigset_t all, before;
    int num = 0;
    pid_t pool = getpid();
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = vfork();
    if (pid == 0)
        child(s, pool, &num);
    if (pid == -1)
        num = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid > 0 && num)
        (void)waitpid(pid, NULL, 0);
    *out_pid = pid;
    return -num;
}

int child_spawn(struct pool *p, const struct spawn *s, void (*on_exit)(void *arg, int code),
                void *arg, struct child **out, struct err *e)
{
    struct child *c = calloc(1, sizeof *c);
    int rc = c ? spawn_now(s, &c->pid) : -ENOMEM;
    if (rc < 0) {
        free(c);
        return err_set(e, -rc, "cannot start '%s': %m", s->program);
    }
    c->on_exit = on_exit;
    c->arg = arg;
    c->next = p->children;
    p->children = c;
    *out = c;
    return 0;
}

void child_forget(struct child *c)
{
    if (c)
        c->on_exit = NULL;
}

void child_pass(struct child *c, void (*on_exit)(void *arg, int code), void *arg)
{
    c->on_exit = on_exit;
    c->arg = arg;
}

pid_t child_pid(const struct child *c)
{
    return c->pid;
}

static struct child *take_child(struct pool *p, pid_t pid)
{
    for (struct child **at = &p->children; *at; at = &(*at)->next)
        if ((*at)->pid == pid) {
            struct child *c = *at;
            *at = c->next;
            return c;
        }
    return NULL;
}

void children_reap(int signo, void *arg)
{
    struct pool *p = arg;
    int status;
    pid_t pid;
    (void)signo;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        struct child *c = take_child(p, pid); /* NULL: an orphan of a dead keeper */
        if (c && c->on_exit)
            c->on_exit(c->arg, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        free(c);
    }
}

static bool is_known(const struct pool *p, pid_t pid)
{
    for (const struct child *c = p->children; c; c = c->next)
        if (c->pid == pid)
            return true;
    return false;
}

unsigned children_kill_strangers(const struct pool *p)
{
    struct pids list = { 0 };
    unsigned n = 0;
    if (p->adopts)
        proctree_children(getpid(), &list);
    for (size_t i = 0; i < list.n; i++)
        if (!is_known(p, list.v[i])) {
            (void)kill(list.v[i], SIGKILL); /* if it is dead already, SIGCHLD reaps it */
            n++;
        }
    vec_done(&list);
    return n;
}

void children_free(struct pool *p)
{
    while (p->children) {
        struct child *c = p->children;
        p->children = c->next;
        free(c);
    }
}
