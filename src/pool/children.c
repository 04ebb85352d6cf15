#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/pool_int.h"

/* The loop's library starts no processes here, so SIGCHLD is ours. */
struct child {
    struct child *next;
    pid_t pid;
    void (*on_exit)(void *arg, int code);
    void *arg;
};

static int spawn_now(const struct spawn *s, pid_t *out_pid)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t all, none;
    const char *log = s->log ? s->log : "/dev/null";
    (void)sigfillset(&all);
    (void)sigemptyset(&none);
    /* What fails in preparing fails in posix_spawn() as well, with the same errno. */
    (void)posix_spawn_file_actions_init(&fa);
    (void)posix_spawnattr_init(&attr);
    (void)posix_spawnattr_setflags(&attr, (short)((s->new_session ? POSIX_SPAWN_SETSID : 0) |
                                                  POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK));
    (void)posix_spawnattr_setsigdefault(&attr, &all);
    (void)posix_spawnattr_setsigmask(&attr, &none);
    (void)posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_addopen(&fa, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_APPEND,
                                           0600);
    (void)posix_spawn_file_actions_adddup2(&fa, STDOUT_FILENO, STDERR_FILENO);
    if (s->fd3 >= 0)
        (void)posix_spawn_file_actions_adddup2(&fa, s->fd3, 3); /* also clears close-on-exec */
    int rc = posix_spawn(out_pid, s->program, &fa, &attr, s->argv, s->envp);
    (void)posix_spawn_file_actions_destroy(&fa);
    (void)posix_spawnattr_destroy(&attr);
    return -rc;
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

pid_t child_pid(const struct child *c)
{
    return c->pid;
}

void children_reap(int signo, void *arg)
{
    struct pool *p = arg;
    (void)signo;
    for (struct child **at = &p->children; *at;) {
        struct child *c = *at;
        int status;
        pid_t pid = waitpid(c->pid, &status, WNOHANG);
        if (pid == 0 || (pid == -1 && errno == EINTR)) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        int code = pid == -1           ? -1
                   : WIFEXITED(status) ? WEXITSTATUS(status)
                                       : 128 + WTERMSIG(status);
        if (c->on_exit) {
            c->on_exit(c->arg, code); /* may start others: they go to the front */
            free(c);
            at = &p->children; /* so begin again; the list is short */
            continue;
        }
        free(c);
    }
}

void children_free(struct pool *p)
{
    while (p->children) {
        struct child *c = p->children;
        p->children = c->next;
        free(c);
    }
}
