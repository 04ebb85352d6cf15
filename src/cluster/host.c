/* SPDX-License-Identifier: Apache-2.0 */
/* The host of a cluster (struct cluster_host): its notes, its loop and the paths of TONY_HOME. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "loop/loop.h"

enum { TIDY_AGAIN_S = 24 * 3600 };

void host_note(const struct cluster_host *h, const char *fmt, ...)
{
    if (!h->note)
        return;
    AUTO(buf_done) struct buf text = { 0 };
    va_list ap;
    va_start(ap, fmt);
    (void)buf_vaddf(&text, fmt, ap);
    va_end(ap);
    h->note(buf_cstr(&text), h->arg);
}

struct loop *host_loop(struct cluster_host *h, struct err *e)
{
    if (!h->loop)
        h->loop = loop_new(e);
    return h->loop;
}

int host_open_paths(struct cluster_host *h, struct err *e)
{
    if (h->have_paths && !h->looks_only)
        return 0;
    struct paths p;
    int rc = paths_open(&p, e);
    if (rc < 0)
        return rc;
    if (h->have_paths)
        paths_done(&h->paths);
    h->paths = p;
    h->have_paths = true;
    h->looks_only = false;
    /* The client may start the pool, which runs in another directory: it needs an absolute path. */
    return setenv("TONY_HOME", h->paths.home, 1) == 0
               ? 0
               : err_set(e, ENOMEM, "cannot set TONY_HOME: %m");
}

static bool can_be_looked_at(int num)
{
    return num == EROFS || num == EACCES || num == EPERM || fs_no_room(num);
}

int host_look_paths(struct cluster_host *h, struct err *e)
{
    if (h->have_paths || host_open_paths(h, e) == 0)
        return 0;
    if (!can_be_looked_at(e->num) || paths_open_read_only(&h->paths, NULL) < 0)
        return -e->num;
    h->have_paths = h->looks_only = true;
    h->not_opened = *e;
    err_clear(e);
    return 0;
}

void host_done(struct cluster_host *h)
{
    if (h->have_paths)
        paths_done(&h->paths);
    loop_free(h->loop);
    h->loop = NULL;
    h->have_paths = h->looks_only = false;
}

int host_spawn_pool(const char *const *args, int stderr_fd, int fd3, pid_t *out, struct err *e)
{
    AUTO(free_p) char *program = paths_program("tony-pool");
    char *argv[SPAWN_ARGS_MAX + 2] = { program };
    if (!program) {
        (void)err_set(e, ENOENT, "cannot find the program 'tony-pool' beside this one or on PATH");
        return err_hint(e, "install tony again; tony doctor shows which programs are missing");
    }
    for (size_t i = 0; i < SPAWN_ARGS_MAX && args[i]; i++)
        argv[i + 1] = (char *)args[i]; /* posix_spawn() does not change it */

    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t all, none;
    (void)sigfillset(&all);
    (void)sigemptyset(&none);
    /* These calls cannot fail in glibc; posix_spawn() reports every error. */
    (void)posix_spawn_file_actions_init(&fa);
    (void)posix_spawnattr_init(&attr);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETSIGMASK);
    (void)posix_spawnattr_setsigdefault(&attr, &all);
    (void)posix_spawnattr_setsigmask(&attr, &none);
    (void)posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDWR, 0);
    (void)posix_spawn_file_actions_addopen(&fa, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    /* dup2 clears close-on-exec, in glibc also if both numbers are equal. */
    (void)posix_spawn_file_actions_adddup2(&fa, stderr_fd >= 0 ? stderr_fd : STDOUT_FILENO,
                                           STDERR_FILENO);
    if (fd3 >= 0)
        (void)posix_spawn_file_actions_adddup2(&fa, fd3, 3);
    /* The program lives longer than the client: it must not keep the client's directory busy. */
    (void)posix_spawn_file_actions_addchdir_np(&fa, "/");
    int rc = posix_spawn(out, program, &fa, &attr, argv, environ);
    (void)posix_spawn_file_actions_destroy(&fa);
    (void)posix_spawnattr_destroy(&attr);
    return rc ? err_set(e, rc, "cannot start '%s': %m%s", program, err_fork_cause(rc)) : 0;
}

void host_tidy(const struct cluster_host *h)
{
    static const char *const args[] = { "--tidy", NULL };
    AUTO(free_p) char *stamp = fs_join(h->paths.pool, PATHS_TIDIED);
    struct stat st;
    struct err unused; /* the next client tries again */
    pid_t pid;
    int64_t age_s = stamp && stat(stamp, &st) == 0 ? clock_wall_ms() / 1000 - st.st_mtime : -1;
    if (!stamp || (age_s >= 0 && age_s < TIDY_AGAIN_S))
        return;
    if (host_spawn_pool(args, -1, -1, &pid, &unused) == 0)
        (void)waitpid(pid, NULL, 0); /* it goes on in the background */
}
