/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The standby: a keeper and a master for the next job, which the pool starts before the job comes
 * (base/standby.h). So the client does not wait for the start of two programs.
 *
 * The number of the next job is known, so both have its application id in their environment from
 * the start. All else is in the messages that the pool sends when it starts the job. Until then the
 * standby has opened no file of the pool. If it dies, or does not fit the job, the pool starts a
 * keeper in the usual way.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/standby.h"
#include "pool/pool_int.h"

enum { PID_DIGITS = 10 };

/* ---- the programs ---- */

/* Remember the program's file. false: it is not a program of ours, but a script that starts it. A
 * script could do anything at its start, so it is not started before the job comes. */
static bool note_file(const char *path, struct stat *out)
{
    char magic[4];
    AUTO(close_p) int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, magic, sizeof magic) == (ssize_t)sizeof magic &&
           memcmp(magic, "\177ELF", sizeof magic) == 0 && fstat(fd, out) == 0;
}

/* Is it still the same file? Another version of the programs may have been installed. */
static bool is_same_file(const char *path, const struct stat *then)
{
    struct stat now;
    return stat(path, &now) == 0 && now.st_dev == then->st_dev && now.st_ino == then->st_ino &&
           now.st_size == then->st_size && now.st_mtim.tv_sec == then->st_mtim.tv_sec &&
           now.st_mtim.tv_nsec == then->st_mtim.tv_nsec;
}

/* ---- its end ---- */

static void close_fds(struct standby *s)
{
    if (s->keeper_fd >= 0)
        (void)close(s->keeper_fd);
    if (s->master_fd >= 0)
        (void)close(s->master_fd);
    s->keeper_fd = s->master_fd = -1;
}

/* Both processes exit when their connections are closed. */
static void drop(struct standby *s)
{
    child_forget(s->keeper);
    s->keeper = NULL;
    close_fds(s);
}

static void on_exit_early(void *arg, int code)
{
    struct pool *p = arg;
    log_event(LOG_WARN, "standby.exited", f_str("job", p->standby.id), f_int("code", code));
    drop(&p->standby);
}

void standby_drop(struct pool *p)
{
    if (p->standby.keeper)
        drop(&p->standby);
}

void standby_done(struct pool *p)
{
    struct standby *s = &p->standby;
    if (!s->keeper)
        return;
    pid_t keeper = child_pid(s->keeper);
    drop(s);                     /* now both exit */
    (void)kill(keeper, SIGKILL); /* also if it was stopped; the kernel then kills its child */
    (void)waitpid(keeper, NULL, 0);
    if (p->adopts) /* the master is a child of the pool now */
        (void)waitpid(s->master_pid, NULL, 0);
}

/* ---- its start ---- */

static int spawn(struct pool *p, struct standby *s, int keeper_end, int master_end, struct err *e)
{
    /* The last argument makes room for the command lines that the processes show later. */
    enum { ROOM = 160 };
    char name[] = "tony-standby", option[] = "--standby", pid[] = "--master-pid=0000000000";
    char room[ROOM + 1];
    memset(room, ' ', ROOM);
    room[ROOM] = '\0';
    char *keeper_argv[] = { name, option, s->id, pid, room, NULL };
    char *master_argv[] = { name, option, s->id, room, NULL };
    AUTO(strv_done) struct strv env = { 0 };
    if (keeper_env(p, s->id, &env) < 0)
        return err_set(e, ENOMEM, "cannot start a standby: %m");
    struct spawn_companion master = { .program = p->master,
                                      .argv = master_argv,
                                      .log = "/dev/null",
                                      .fd3 = master_end,
                                      .pid_text = pid + strlen(pid) - PID_DIGITS,
                                      .pid_digits = PID_DIGITS };
    struct spawn keeper = { .program = p->executor,
                            .argv = keeper_argv,
                            .envp = env.v,
                            .fd3 = keeper_end,
                            .new_session = true,
                            .dies_with_pool = true,
                            .companion = &master };
    int rc = child_spawn(p, &keeper, on_exit_early, p, &s->keeper, e);
    s->master_pid = rc == 0 ? (pid_t)strtol(master.pid_text, NULL, 10) : 0;
    return rc;
}

static int start(struct pool *p, struct standby *s, struct err *e)
{
    int a[2] = { -1, -1 }, b[2] = { -1, -1 };
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, a) == -1 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, b) == -1) {
        int num = errno;
        if (a[0] >= 0) {
            (void)close(a[0]);
            (void)close(a[1]);
        }
        return err_set(e, num, "cannot make a connection to a standby: %m");
    }
    s->keeper_fd = a[0];
    s->master_fd = b[0];
    int rc = spawn(p, s, a[1], b[1], e);
    (void)close(a[1]);
    (void)close(b[1]);
    if (rc < 0)
        close_fds(s);
    return rc;
}

void standby_make(struct pool *p)
{
    struct standby *s = &p->standby;
    struct err e = { 0 };
    char id[APP_ID_MAX];
    if (p->ended || p->stopping || p->last_number == UINT32_MAX)
        return;
    app_id_format(id, p->start_ms, p->last_number + 1);
    if (s->keeper && str_eq(s->id, id))
        return;
    standby_drop(p);
    if (pool_find_executor(p, &e) < 0 ||
        (!p->master && !(p->master = paths_program("tony-master"))) ||
        !note_file(p->executor, &s->keeper_file) || !note_file(p->master, &s->master_file))
        return;
    (void)str_copy(s->id, sizeof s->id, id); /* always fits: both have APP_ID_MAX bytes */
    if (start(p, s, &e) < 0)
        log_err(LOG_WARN, "standby.start", &e);
}

/* ---- its job comes ---- */

static bool fits(const struct pool_job *j)
{
    const struct standby *s = &j->pool->standby;
    return s->keeper && str_eq(s->id, j->id) && s->master_pid > 0 &&
           is_same_file(j->pool->executor, &s->keeper_file) &&
           is_same_file(j->pool->master, &s->master_file);
}

static void close_all(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
}

/* The keeper gets the same descriptors as one that child_spawn() has started: the end of the pipe,
 * the job's lock and the socket. */
static int tell_keeper(const struct standby *s, const struct standby_job *x)
{
    int fds[] = { x->ready_fd, child_lock(x->lock), -1 };
    size_t n = fds[1] >= 0 ? 2 : 1;
    fds[2] = n == 2 ? child_listen(x->socket) : -1;
    n += fds[2] >= 0;
    int rc = standby_send(s->keeper_fd, x->keeper_log, x->keeper_argv, fds, n);
    close_all(fds + 1, 2); /* the keeper has copies, and with them the lock */
    return rc;
}

struct child *standby_take(struct pool_job *j, const struct standby_job *x,
                           void (*on_exit)(void *arg, int code))
{
    struct standby *s = &j->pool->standby;
    if (!fits(j))
        return NULL;
    /* The master begins while the pool makes lock and socket. If the master is dead, the job has
     * not been started yet, and the pool starts a keeper in the usual way. */
    if (standby_send(s->master_fd, x->master_log, x->master_argv, NULL, 0) < 0) {
        drop(s);
        return NULL;
    }
    struct child *keeper = TAKE(s->keeper);
    child_pass(keeper, on_exit, j);
    ready_lock_take(j->pool, x->lock);
    if (tell_keeper(s, x) < 0) /* on_exit() follows: the keeper was started, and has died */
        (void)kill(child_pid(keeper), SIGKILL);
    close_fds(s);
    return keeper;
}
