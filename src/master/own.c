/*
 * A job without roles has one task, which runs beside its master, in the master's container. The
 * back-end of the cluster never hears of it: this one stands in front of it, grants the container
 * in which we are, starts an executor there as our child, and tells how it ended. Nothing else is
 * different: it dials us like any other.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "hadoop/token.h"
#include "loop/tcp.h"
#include "master/master_int.h"
#include "scheduler/scheduler.h"
#include "storage/jobkey.h"

struct own {
    const struct sched_ops *ops;
    struct master *m;
    const struct sched_ops *behind;
    struct sched *sched; /* of the one behind */
    struct sched_config cfg;
    struct loop_timer *soon; /* answers never come before the question's return */
    struct loop_timer *kill;
    bool granted, grant_due, launched, end_due, ended;
    pid_t pid;
    int pidfd;
    struct loop_fd *watch;
    int exit_code;
    enum end_reason reason;
    char why[300];
};

static struct own *own_of(struct sched *s)
{
    return (struct own *)(void *)s;
}

/* ---- the executor ---- */

static int write_key(const struct own *o, const char *path, struct err *e)
{
    struct tls_key key = { 0 };
    struct credentials c = { 0 };
    AUTO(buf_done) struct buf text = { 0 };
    job_key_container(o->m->remote->key, o->m->remote->container_id, &key);
    int rc = credentials_add_secret(&c, CONTAINER_KEY_SECRET, span_mem(key.bytes, key.len));
    if (rc == 0)
        rc = credentials_write(&c, &text);
    if (rc == 0)
        rc = fs_write_atomic(AT_FDCWD, path, buf_span(&text), 0600, false, e);
    else
        rc = err_set(e, -rc, "cannot write the executor's key: %m");
    job_key_wipe(&key, sizeof key);
    if (text.p)
        job_key_wipe(text.p, text.len);
    credentials_done(&c);
    return rc;
}

static int build_env(const struct own *o, const char *key_path, struct strv *env)
{
    const char *host = o->m->remote->address;
    int rc = 0;
    for (char **v = environ; *v && rc == 0; v++)
        if (!str_starts(*v, "HADOOP_TOKEN_FILE_LOCATION=") && !str_starts(*v, "TONY_OWNED="))
            rc = strv_push(env, *v);
    if (rc == 0)
        rc = strv_pushf(env, "HADOOP_TOKEN_FILE_LOCATION=%s", key_path);
    if (rc == 0)
        rc = strv_pushf(env, "TONY_MASTER_ADDRESS=%s:%u", host ? host : "127.0.0.1",
                        listener_port(o->m->listener));
    return rc == 0 ? strv_pushf(env, "TONY_SLOT=0") : rc;
}

/* A file of the container's log directory; where there is none, what stderr is. */
static int open_log(const char *file)
{
    const char *dirs = getenv("LOG_DIRS");
    struct span rest = span_of(dirs ? dirs : ""), dir;
    while (span_split(&rest, ',', &dir)) {
        AUTO(free_p) char *name = span_dup(dir);
        AUTO(free_p) char *path = name && *name ? fs_join(name, file) : NULL;
        int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640) : -1;
        if (fd >= 0)
            return fd;
    }
    return fcntl(2, F_DUPFD_CLOEXEC, 3);
}

void own_log(void)
{
    int fd = open_log("master.log");
    if (fd >= 0)
        log_setup(fd, LOG_INFO, false); /* open to the end */
}

static void child(int log_fd, char *const *env)
{
    static const char path[] = "./tony-executor";
    char *argv[] = { (char *)(uintptr_t) "tony-executor", (char *)(uintptr_t) "--container", NULL };
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGXFSZ, SIG_DFL);
    (void)dup2(log_fd, 1);
    (void)dup2(log_fd, 2);
    execve(path, argv, env);
    fprintf(stderr, "tony-master: cannot run '%s': %m\n", path);
    _exit(127);
}

static void on_executor_exit(void *arg);

static int spawn(struct own *o, struct err *e)
{
    AUTO(free_p) char *key_path = fs_join(o->m->job_dir, "executor.tokens");
    struct strv env = { 0 };
    int rc = key_path ? write_key(o, key_path, e) : err_set(e, ENOMEM, "no memory");
    if (rc == 0 && build_env(o, key_path, &env) < 0)
        rc = err_set(e, ENOMEM, "no memory to start the executor");
    AUTO(close_p) int log_fd = rc == 0 ? open_log("executor.log") : -1;
    if (rc == 0) {
        o->pid = fork();
        if (o->pid == 0)
            child(log_fd, env.v);
        rc = o->pid == -1 ? err_set(e, errno, "cannot start the executor: %m") : 0;
    }
    strv_done(&env);
    if (rc < 0)
        return rc;
    o->pidfd = (int)syscall(SYS_pidfd_open, o->pid, 0);
    o->watch = o->pidfd >= 0 ? loop_fd_new(o->cfg.loop, o->pidfd, on_executor_exit, o) : NULL;
    if (!o->watch)
        return err_set(e, errno ? errno : ENOMEM, "cannot watch the executor: %m");
    log_event(LOG_INFO, "own.launched", f_int("pid", o->pid));
    return 0;
}

static void reap(struct own *o)
{
    siginfo_t info = { 0 };
    if (o->pid <= 0 || waitid(P_PID, (id_t)o->pid, &info, WEXITED) == -1)
        return;
    o->pid = 0;
    o->exit_code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

static void tell_end(struct own *o, enum end_reason reason)
{
    o->reason = o->reason ? o->reason : reason;
    o->end_due = true;
    loop_timer_set(o->soon, clock_mono_ms());
}

static void on_executor_exit(void *arg)
{
    struct own *o = arg;
    loop_fd_free(TAKE(o->watch));
    close(o->pidfd);
    o->pidfd = -1;
    reap(o);
    log_event(LOG_INFO, "own.ended", f_int("code", o->exit_code));
    tell_end(o, END_EXITED);
}

/* ---- events ---- */

static struct sched_container container(const struct own *o)
{
    const struct master_remote *r = o->m->remote;
    return (struct sched_container){ .id = r->container_id,
                                     .gpus = "",
                                     .node = r->node,
                                     .log_url = r->log_url,
                                     .exit_code = o->exit_code,
                                     .reason = o->reason,
                                     .detail = *o->why ? o->why : NULL };
}

static void tell(struct own *o, enum sched_event_type type)
{
    struct sched_container c = container(o);
    o->cfg.on_event(&(struct sched_event){ .type = type, .containers = &c, .n = 1 }, o->cfg.arg);
}

static void on_soon(void *arg)
{
    struct own *o = arg;
    bool grant = o->grant_due, end = o->end_due && !o->ended;
    o->grant_due = o->end_due = false;
    o->ended |= end;
    if (grant)
        tell(o, SE_ALLOCATED);
    if (end)
        tell(o, SE_COMPLETED);
}

static void on_kill(void *arg)
{
    struct own *o = arg;
    if (o->pid > 0)
        (void)kill(o->pid, SIGKILL); /* it may have gone by itself */
}

/* ---- what the master asks for ---- */

static int own_request(struct sched *s, const struct sched_ask *asks, size_t n, struct err *e)
{
    struct own *o = own_of(s);
    (void)asks;
    (void)e;
    if (n == 0 || o->granted)
        return 0;
    o->granted = o->grant_due = true;
    loop_timer_set(o->soon, clock_mono_ms());
    return 0;
}

static int own_cancel(struct sched *s, const uint32_t *slots, size_t n, struct err *e)
{
    struct own *o = own_of(s);
    (void)slots;
    (void)n;
    (void)e;
    if (o->grant_due)
        o->granted = o->grant_due = false;
    return 0;
}

static int own_release(struct sched *s, const char *const *ids, size_t n, struct err *e)
{
    (void)s;
    (void)ids;
    (void)n;
    (void)e;
    return 0; /* it is ours whether we use it or not */
}

static int own_launch(struct sched *s, const struct sched_container *c, size_t n, struct err *e)
{
    struct own *o = own_of(s);
    struct err why = { 0 };
    (void)c;
    (void)e;
    if (n == 0 || o->launched)
        return 0;
    o->launched = true;
    if (spawn(o, &why) < 0) {
        (void)str_copy(o->why, sizeof o->why, why.msg);
        log_err(LOG_ERROR, "own.launch", &why);
        if (o->pid > 0)
            (void)kill(o->pid, SIGKILL); /* reaped at the end */
        tell_end(o, END_LAUNCH_FAILED);
    }
    return 0;
}

static int own_stop(struct sched *s, const char *id, uint32_t grace_ms, struct err *e)
{
    struct own *o = own_of(s);
    (void)id;
    (void)e;
    if (o->pid > 0) {
        o->reason = END_KILLED_BY_MASTER;
        (void)kill(o->pid, grace_ms ? SIGTERM : SIGKILL); /* it may have gone by itself */
        loop_timer_set(o->kill, clock_mono_ms() + grace_ms);
    } else if (o->granted && !o->ended && !o->end_due) {
        tell_end(o, END_KILLED_BY_MASTER);
    }
    return 0;
}

static int own_finish(struct sched *s, const char *state, const char *diagnostics,
                      void (*done)(void *arg), struct err *e)
{
    struct own *o = own_of(s);
    return o->behind->finish(o->sched, state, diagnostics, done, e);
}

static int own_fate(struct sched *s, int64_t within_ms,
                    void (*done)(bool over, const char *who, const char *text, void *arg),
                    void *arg)
{
    struct own *o = own_of(s);
    return o->behind->fate ? o->behind->fate(o->sched, within_ms, done, arg) : -EOPNOTSUPP;
}

static void own_close(struct sched *s)
{
    struct own *o = own_of(s);
    if (o->sched)
        o->behind->close(o->sched);
    if (o->pid > 0) {
        (void)kill(o->pid, SIGKILL);
        reap(o);
    }
    loop_fd_free(o->watch);
    if (o->pidfd >= 0)
        close(o->pidfd);
    loop_timer_free(o->soon);
    loop_timer_free(o->kill);
    free(o);
}

const struct sched_ops sched_own = {
    .name = "own", /* opened by own_open() */
    .gives_back = true, /* like the one behind it; there is no second container like this one */
    .request = own_request,
    .cancel = own_cancel,
    .release = own_release,
    .launch = own_launch,
    .stop = own_stop,
    .fate = own_fate,
    .finish = own_finish,
    .close = own_close,
};

int own_open(struct master *m, const struct sched_ops *behind, const struct sched_config *cfg,
             struct sched **out, struct err *e)
{
    struct own *o = calloc(1, sizeof *o);
    if (!o)
        return err_set(e, ENOMEM, "no memory to start the master");
    *o = (struct own){ .ops = &sched_own, .m = m, .behind = behind, .cfg = *cfg, .pidfd = -1 };
    o->soon = loop_timer_new(cfg->loop, on_soon, o);
    o->kill = loop_timer_new(cfg->loop, on_kill, o);
    int rc = o->soon && o->kill ? 0 : err_set(e, ENOMEM, "no memory to start the master");
    if (rc == 0)
        rc = behind->open(cfg, &o->sched, e);
    if (rc < 0) {
        own_close((struct sched *)(void *)o);
        return rc;
    }
    *out = (struct sched *)(void *)o;
    return 0;
}
