/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job without roles has one task, and on a cluster it runs in the master's own container.
 *
 * This file is a back-end between the master and the back-end of the cluster. It grants one
 * container, the master's own. To launch it, it starts an executor as a child process of the
 * master, and it reports the end of that process as the end of the container. The back-end of the
 * cluster gets only the calls that concern the whole application: open, fate, finish and close. The
 * executor connects to the master like any other executor.
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

struct single_node {
    const struct sched_ops *ops;
    struct master *m;
    const struct sched_ops *cluster_ops;
    struct sched *cluster_sched;
    struct sched_config cfg;
    struct loop_timer *answer_timer; /* calls the master back after its request has returned */
    struct loop_timer *kill_timer;   /* the end of the grace period */
    bool granted, grant_due;         /* grant_due: SE_ALLOCATED was not reported yet */
    bool launched;
    bool end_due, ended; /* end_due: SE_COMPLETED was not reported yet; ended: it was */
    pid_t pid;           /* of the executor; 0 = none runs */
    int pidfd;
    struct loop_fd *exit_watch;
    int exit_code;
    enum end_reason reason;
    char launch_error[300];
};

static struct single_node *from_sched(struct sched *s)
{
    return (struct single_node *)(void *)s;
}

/* ---- the executor ---- */

static int write_key(const struct single_node *single, const char *path, struct err *e)
{
    struct tls_key key = { 0 };
    struct credentials c = { 0 };
    AUTO(buf_done) struct buf text = { 0 };
    job_key_container(single->m->remote->key, single->m->remote->container_id, &key);
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

static int build_env(const struct single_node *single, const char *key_path, struct strv *env)
{
    const char *host = single->m->remote->address;
    int rc = 0;
    for (char **v = environ; *v && rc == 0; v++)
        if (!str_starts(*v, "HADOOP_TOKEN_FILE_LOCATION="))
            rc = strv_push(env, *v);
    if (rc == 0)
        rc = strv_pushf(env, "HADOOP_TOKEN_FILE_LOCATION=%s", key_path);
    if (rc == 0)
        rc = strv_pushf(env, "TONY_MASTER_ADDRESS=%s:%u", host ? host : "127.0.0.1",
                        listener_port(single->m->listener));
    return rc == 0 ? strv_pushf(env, "TONY_SLOT=0") : rc;
}

/* Open a file in the log directory of the container. If there is no such directory, duplicate
 * stderr. */
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

void single_node_open_log(void)
{
    int fd = open_log("master.log");
    if (fd >= 0)
        log_setup(fd, LOG_INFO, false); /* the file stays open until the process ends */
}

/* Runs in the child. */
static void exec_executor(int log_fd, char *const *env)
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

static int start_executor(struct single_node *single, struct err *e)
{
    AUTO(free_p) char *key_path = fs_join(single->m->job_dir, "executor.tokens");
    struct strv env = { 0 };
    int rc = key_path ? write_key(single, key_path, e)
                      : err_set(e, ENOMEM, "no memory to write the executor's key");
    if (rc == 0 && build_env(single, key_path, &env) < 0)
        rc = err_set(e, ENOMEM, "no memory to start the executor");
    AUTO(close_p) int log_fd = rc == 0 ? open_log("executor.log") : -1;
    if (rc == 0) {
        single->pid = fork();
        if (single->pid == 0)
            exec_executor(log_fd, env.v);
        rc = single->pid == -1 ? err_set(e, errno, "cannot start the executor: %m") : 0;
    }
    strv_done(&env);
    if (rc < 0)
        return rc;
    single->pidfd = (int)syscall(SYS_pidfd_open, single->pid, 0);
    single->exit_watch =
        single->pidfd >= 0 ? loop_fd_new(single->cfg.loop, single->pidfd, on_executor_exit, single)
                           : NULL;
    if (!single->exit_watch)
        return err_set(e, errno ? errno : ENOMEM, "cannot watch the executor: %m");
    log_event(LOG_INFO, "own.launched", f_int("pid", single->pid));
    return 0;
}

static void reap(struct single_node *single)
{
    siginfo_t info = { 0 };
    if (single->pid <= 0 || waitid(P_PID, (id_t)single->pid, &info, WEXITED) == -1)
        return;
    single->pid = 0;
    single->exit_code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

static void report_end_soon(struct single_node *single, enum end_reason reason)
{
    single->reason = single->reason ? single->reason : reason;
    single->end_due = true;
    loop_timer_set(single->answer_timer, clock_mono_ms());
}

static void on_executor_exit(void *arg)
{
    struct single_node *single = arg;
    loop_fd_free(TAKE(single->exit_watch));
    close(single->pidfd);
    single->pidfd = -1;
    reap(single);
    log_event(LOG_INFO, "own.ended", f_int("code", single->exit_code));
    report_end_soon(single, END_EXITED);
}

/* ---- events for the master ---- */

static struct sched_container container(const struct single_node *single)
{
    const struct master_remote *r = single->m->remote;
    return (struct sched_container){ .id = r->container_id,
                                     .gpus = "",
                                     .node = r->node,
                                     .log_url = r->log_url,
                                     .exit_code = single->exit_code,
                                     .reason = single->reason,
                                     .detail =
                                         *single->launch_error ? single->launch_error : NULL };
}

static void report(struct single_node *single, enum sched_event_type type)
{
    struct sched_container c = container(single);
    single->cfg.on_event(&(struct sched_event){ .type = type, .containers = &c, .n = 1 },
                         single->cfg.arg);
}

static void on_answer_timer(void *arg)
{
    struct single_node *single = arg;
    bool grant = single->grant_due, end = single->end_due && !single->ended;
    single->grant_due = single->end_due = false;
    single->ended |= end;
    if (grant)
        report(single, SE_ALLOCATED);
    if (end)
        report(single, SE_COMPLETED);
}

static void on_kill_timer(void *arg)
{
    struct single_node *single = arg;
    if (single->pid > 0)
        (void)kill(single->pid, SIGKILL); /* it may have exited already */
}

/* ---- requests of the master ---- */

static int single_node_request(struct sched *s, const struct sched_ask *asks, size_t n,
                               struct err *e)
{
    struct single_node *single = from_sched(s);
    (void)asks;
    (void)e;
    if (n == 0 || single->granted)
        return 0;
    single->granted = single->grant_due = true;
    loop_timer_set(single->answer_timer, clock_mono_ms());
    return 0;
}

static int single_node_cancel(struct sched *s, const uint32_t *slots, size_t n, struct err *e)
{
    struct single_node *single = from_sched(s);
    (void)slots;
    (void)n;
    (void)e;
    if (single->grant_due)
        single->granted = single->grant_due = false;
    return 0;
}

static int single_node_release(struct sched *s, const char *const *ids, size_t n, struct err *e)
{
    (void)s;
    (void)ids;
    (void)n;
    (void)e;
    return 0; /* the container is the master's own: it cannot be given back */
}

static int single_node_launch(struct sched *s, const struct sched_container *c, size_t n,
                              struct err *e)
{
    struct single_node *single = from_sched(s);
    struct err why = { 0 };
    (void)c;
    (void)e;
    if (n == 0 || single->launched)
        return 0;
    single->launched = true;
    if (start_executor(single, &why) < 0) {
        (void)str_copy(single->launch_error, sizeof single->launch_error, why.msg);
        log_err(LOG_ERROR, "own.launch", &why);
        if (single->pid > 0)
            (void)kill(single->pid, SIGKILL); /* single_node_close() reaps it */
        report_end_soon(single, END_LAUNCH_FAILED);
    }
    return 0;
}

static int single_node_stop(struct sched *s, const char *id, uint32_t grace_ms, struct err *e)
{
    struct single_node *single = from_sched(s);
    (void)id;
    (void)e;
    if (single->pid > 0) {
        single->reason = END_KILLED_BY_MASTER;
        (void)kill(single->pid, grace_ms ? SIGTERM : SIGKILL); /* it may have exited already */
        loop_timer_set(single->kill_timer, clock_mono_ms() + grace_ms);
    } else if (single->granted && !single->ended && !single->end_due) {
        report_end_soon(single, END_KILLED_BY_MASTER);
    }
    return 0;
}

static int single_node_finish(struct sched *s, const char *state, const char *diagnostics,
                              void (*done)(void *arg), struct err *e)
{
    struct single_node *single = from_sched(s);
    return single->cluster_ops->finish(single->cluster_sched, state, diagnostics, done, e);
}

static int single_node_fate(struct sched *s, int64_t within_ms,
                            void (*done)(bool over, const char *who, const char *text, void *arg),
                            void *arg)
{
    struct single_node *single = from_sched(s);
    return single->cluster_ops->fate
               ? single->cluster_ops->fate(single->cluster_sched, within_ms, done, arg)
               : -EOPNOTSUPP;
}

static void single_node_close(struct sched *s)
{
    struct single_node *single = from_sched(s);
    if (single->cluster_sched)
        single->cluster_ops->close(single->cluster_sched);
    if (single->pid > 0) {
        (void)kill(single->pid, SIGKILL);
        reap(single);
    }
    loop_fd_free(single->exit_watch);
    if (single->pidfd >= 0)
        close(single->pidfd);
    loop_timer_free(single->answer_timer);
    loop_timer_free(single->kill_timer);
    free(single);
}

const struct sched_ops sched_single_node = {
    .name = "own",      /* sched_find() does not know it: single_node_open() opens it */
    .gives_back = true, /* as on a cluster; without effect, since there is only one container */
    .request = single_node_request,
    .cancel = single_node_cancel,
    .release = single_node_release,
    .launch = single_node_launch,
    .stop = single_node_stop,
    .fate = single_node_fate,
    .finish = single_node_finish,
    .close = single_node_close,
};

int single_node_open(struct master *m, const struct sched_ops *cluster_ops,
                     const struct sched_config *cfg, struct sched **out, struct err *e)
{
    struct single_node *single = calloc(1, sizeof *single);
    if (!single)
        return err_set(e, ENOMEM, "no memory to start the master");
    *single = (struct single_node){
        .ops = &sched_single_node, .m = m, .cluster_ops = cluster_ops, .cfg = *cfg, .pidfd = -1
    };
    single->answer_timer = loop_timer_new(cfg->loop, on_answer_timer, single);
    single->kill_timer = loop_timer_new(cfg->loop, on_kill_timer, single);
    int rc = single->answer_timer && single->kill_timer
                 ? 0
                 : err_set(e, ENOMEM, "no memory to start the master");
    if (rc == 0)
        rc = cluster_ops->open(cfg, &single->cluster_sched, e);
    if (rc < 0) {
        single_node_close((struct sched *)(void *)single);
        return rc;
    }
    *out = (struct sched *)(void *)single;
    return 0;
}
