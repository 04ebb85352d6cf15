/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroup/place.h"
#include "cgroup/spare.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include "pool/pool_int.h"
#include "storage/alive.h"

enum {
    EXIT_CANNOT = 1,
    EXIT_WRONG_USE = 2,
    LOCK_LIMIT_MS = 10000, /* for another pool that is starting or ending */
    LOCK_PAUSE_MS = 5,     /* between two tries to take its lock */
    /* After this time, the pool asks the holder of the lock to make its socket again. */
    RENEW_FIRST_MS = 50,
    RENEW_AGAIN_MS = 1000, /* between two such requests */
    LOG_MAX = 8 << 20,     /* a new pool renames a larger pool.log to pool.log.1 */
    LOOK_MS = 30000,       /* between two looks at the machine */
    HEAR_MS = 5000,        /* for the keepers of adopted jobs to report what they hold and want */
};

struct options {
    bool foreground, tidy;
    int ready_fd; /* -1 = none */
    struct conf *conf;
};

static const char usage[] =
    "usage: tony-pool [--foreground] [--ready-fd N] [--conf KEY=VALUE]...\n"
    "       tony-pool --tidy\n"
    "\n"
    "The scheduler of one machine for one user: admits jobs, starts a keeper for each. `tony` "
    "starts it when it\n"
    "is needed, and it ends by itself.\n"
    "\n"
    "  --foreground       do not go to the background\n"
    "  --ready-fd N       write a byte to descriptor N when the pool listens\n"
    "  --tidy             only remove what is old in TONY_HOME: shipped content, programs, "
    "history\n"
    "  --conf KEY=VALUE   set tony.pool.memory, tony.pool.gpus, tony.pool.idle-timeout, ...\n"
    "  --help, --version\n";

static int complain(int code, const struct err *e)
{
    (void)fprintf(stderr, "tony-pool: %s\n", e->msg);
    if (e->hint[0])
        (void)fprintf(stderr, "  hint: %s\n", e->hint);
    return code;
}

/* ---- options ---- */

static int set_conf(struct options *o, const char *arg, struct err *e)
{
    const char *eq = strchr(arg, '=');
    if (!eq || eq == arg)
        return err_set(e, EINVAL, "option '--conf %s' is not KEY=VALUE", arg);
    AUTO(free_p) char *key = span_dup(span_mem(arg, (size_t)(eq - arg)));
    if (!key)
        return err_set(e, ENOMEM, "cannot read the options: %m");
    return conf_set(o->conf, CL_CONF, key, eq + 1, "--conf", false, e);
}

static int set_ready_fd(struct options *o, const char *arg, struct err *e)
{
    int64_t fd;
    int rc = str_i64(span_of(arg), 3, 1 << 20, "option '--ready-fd'", &fd, e);
    if (rc == 0 && fcntl((int)fd, F_SETFD, FD_CLOEXEC) == -1)
        rc = err_set(e, errno, "descriptor %s of option '--ready-fd' is not open: %m", arg);
    if (rc == 0)
        o->ready_fd = (int)fd;
    return rc;
}

/* -1: start the pool; otherwise the exit code of the program. */
static int read_options(int argc, char **argv, struct options *o, struct err *e)
{
    static const struct option longs[] = {
        { "foreground", no_argument, NULL, 'f' },
        { "ready-fd", required_argument, NULL, 'r' },
        { "conf", required_argument, NULL, 'c' },
        { "tidy", no_argument, NULL, 't' },
        { "help", no_argument, NULL, 'h' },
        { "version", no_argument, NULL, 'v' },
        { 0 },
    };
    int c, rc = 0;
    optind = 1;
    while (rc == 0 && (c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        if (c == 'f') {
            o->foreground = true;
        } else if (c == 'r') {
            rc = set_ready_fd(o, optarg, e);
        } else if (c == 't') {
            o->tidy = true;
        } else if (c == 'c') {
            rc = set_conf(o, optarg, e);
        } else if (c == 'h') {
            (void)fputs(usage, stdout);
            return 0;
        } else if (c == 'v') {
            (void)printf("tony-pool %s\n", TONY_VERSION);
            return 0;
        } else {
            return EXIT_WRONG_USE; /* getopt_long() has printed the reason */
        }
    }
    if (rc == 0 && optind < argc)
        rc = err_set(e, EINVAL, "tony-pool takes no argument '%s'", argv[optind]);
    return rc < 0 ? complain(EXIT_WRONG_USE, e) : -1;
}

/* ---- into the background ---- */

/* If a process of a job has started this pool, execute the program again without the job's
 * variables. proctree_kill_job() kills every process that has TONY_APPLICATION_ID in its
 * environment. It reads /proc/<pid>/environ, which shows the environment at the last execve(), so
 * unsetenv() alone is not enough. */
static void leave_job(char **argv)
{
    if (!getenv("TONY_APPLICATION_ID"))
        return;
    (void)unsetenv("TONY_APPLICATION_ID");
    (void)unsetenv("TONY_CONTAINER_ID");
    for (int fd = 3; fd < 1024; fd++) { /* keep the descriptor of --ready-fd open */
        int flags = fcntl(fd, F_GETFD);
        if (flags != -1)
            (void)fcntl(fd, F_SETFD, flags & ~FD_CLOEXEC);
    }
    (void)execv("/proc/self/exe", argv);
    /* Without /proc this fails. Then cleaning up after the job may kill this pool, and the next
     * client starts another one. */
}

/* Runs in the parent: stays in the foreground until the pool is ready. Returns the exit code. */
static int await_background(pid_t pid, int fd)
{
    char byte;
    ssize_t n;
    do
        n = read(fd, &byte, 1);
    while (n == -1 && errno == EINTR);
    if (n == 1)
        return 0;
    int status;
    while (waitpid(pid, &status, 0) == -1)
        if (errno != EINTR)
            return EXIT_CANNOT;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_CANNOT;
}

/* Fork. In the child, which becomes the pool, returns -1. In the parent, returns the exit code; if
 * the caller has given --ready-fd, the parent does not wait and exits at once. */
static int into_background(struct options *o, struct err *e)
{
    int fds[2] = { -1, -1 };
    if (o->ready_fd < 0 && pipe2(fds, O_CLOEXEC) == -1)
        return complain(EXIT_CANNOT, (err_set(e, errno, "cannot make a pipe: %m"), e));
    pid_t pid = fork();
    if (pid == -1)
        return complain(
            EXIT_CANNOT,
            (err_set(e, errno, "cannot go to the background: %m%s", err_fork_cause(errno)), e));
    if (pid > 0 && o->ready_fd >= 0)
        _exit(0);
    if (pid > 0) {
        (void)close(fds[1]);
        return await_background(pid, fds[0]);
    }
    (void)setsid(); /* fails only for a group leader, which a child is not */
    if (o->ready_fd < 0) {
        (void)close(fds[0]);
        o->ready_fd = fds[1];
    }
    return -1;
}

/* Close all descriptors inherited from the process that started the pool, except --ready-fd.
 * be_ready() replaces standard error later, since the start of the pool may still fail. */
static void close_strangers(const struct options *o)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        (void)dup2(null, STDIN_FILENO);
        if (!o->foreground)
            (void)dup2(null, STDOUT_FILENO);
    }
    unsigned last = 3;
    if (o->ready_fd >= 3) {
        if (o->ready_fd > 3)
            (void)close_range(3, (unsigned)o->ready_fd - 1, 0);
        last = (unsigned)o->ready_fd + 1;
    }
    (void)close_range(last, ~0U,
                      0); /* fails on kernels before 5.9: they stay open, with little harm */
    (void)!chdir("/");    /* "/" always exists */
}

static void be_ready(const struct options *o, int log_fd)
{
    if (o->ready_fd >= 0) {
        (void)!write(o->ready_fd, "r", 1); /* fails if the process that waited has exited */
        (void)close(o->ready_fd);
    }
    if (!o->foreground && log_fd >= 0) {
        (void)dup2(log_fd, STDERR_FILENO);
        (void)dup2(log_fd, STDOUT_FILENO);
    }
}

/* ---- one pool per home ---- */

/* A program that another pool has started has its socket until the execve(), also if that pool was
 * killed meanwhile. So look whether the process that has called listen() is alive. */
static bool is_pool_listening(struct pool *p)
{
    AUTO(free_p) char *path = paths_pool_socket(&p->paths);
    static const struct conn_ops none;
    struct conn *c = NULL;
    uid_t uid;
    pid_t pid;
    if (!path || conn_dial_unix(p->loop, path, &none, NULL, &c, NULL) < 0)
        return false;
    bool has_ended = conn_peer(c, &uid, &pid) == 0 && pid > 0 && !alive_process(pid);
    conn_close(c);
    return !has_ended;
}

static int refuse_lock(const char *path, struct err *e)
{
    char holder[128];
    alive_lock_holder(path, holder, sizeof holder);
    if (!alive_is_elsewhere(path))
        return err_set(e, EBUSY, "another pool (%s) holds '%s', but does not listen", holder, path);
    (void)err_set(e, EBUSY, "the pool of this TONY_HOME runs on another machine (%s)", holder);
    return err_hint(e, "a TONY_HOME serves one machine at a time: set TONY_HOME to another "
                       "directory on this one");
}

/* Take the lock of this home. 1: this process holds it; 0: another pool runs; -errno.
 *
 * If another pool holds the lock but does not listen, it is starting or ending, or its socket was
 * removed. In the last case it makes the socket again when it is asked to. */
static int take_lock(struct pool *p, struct err *e)
{
    AUTO(free_p) char *path = paths_pool_lock(&p->paths);
    if (!path)
        return err_set(e, ENOMEM, "cannot start the pool: %m");
    int64_t now = clock_mono_ms(), deadline_ms = now + LOCK_LIMIT_MS,
            renew_ms = now + RENEW_FIRST_MS;
    for (;; now = clock_mono_ms()) {
        int fd = lockfile_take(path, true);
        if (fd >= 0) {
            p->lock_fd = fd;
            alive_sign_lock(fd);
            return 1;
        }
        if (fd != -EWOULDBLOCK)
            return err_set(e, -fd, "cannot lock '%s': %m", path);
        if (is_pool_listening(p))
            return 0;
        if (now >= deadline_ms || alive_is_elsewhere(path))
            return refuse_lock(path, e);
        if (now >= renew_ms) {
            (void)alive_pool_renew(&p->paths);
            renew_ms = now + RENEW_AGAIN_MS;
        }
        (void)poll(NULL, 0, LOCK_PAUSE_MS);
    }
}

static void drop_lock(struct pool *p)
{
    AUTO(free_p) char *path = paths_pool_lock(&p->paths);
    if (p->lock_fd < 0)
        return;
    if (path)
        (void)unlink(path); /* before the lock is released, see base/lockfile.h */
    (void)close(p->lock_fd);
    p->lock_fd = -1;
}

/* ---- life ---- */

static int open_log(const struct pool *p, struct err *e)
{
    AUTO(free_p) char *path = fs_join(p->paths.pool, "pool.log");
    AUTO(free_p) char *old = fs_join(p->paths.pool, "pool.log.1");
    struct stat st;
    if (!path || !old)
        return err_set(e, ENOMEM, "cannot open the pool's log: %m");
    if (stat(path, &st) == 0 && st.st_size > LOG_MAX)
        (void)rename(path, old); /* if this fails, the log grows further */
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd == -1)
        return err_set(e, errno, "cannot open log '%s': %m", path);
    log_setup(fd, LOG_INFO, false);
    return fd;
}

static void on_idle(void *arg)
{
    struct pool *p = arg;
    if (p->jobs.n > 0 || p->clients)
        return;
    log_event(LOG_INFO, "pool.idle", f_int("ms", p->idle_ms));
    p->stopping = true;
    pool_check_idle(p);
}

static void on_gpu_retry(void *arg)
{
    pool_admit(arg);
}

/* HEAR_MS is over: admit jobs even if a keeper has not answered. */
static void on_hear(void *arg)
{
    struct pool *p = arg;
    p->hear_until_ms = 0;
    pool_admit(p);
}

static void on_term(int signo, void *arg)
{
    struct pool *p = arg;
    log_event(LOG_INFO, "pool.signal", f_int("signal", signo));
    loop_stop(p->loop); /* running jobs continue; their keepers start another pool */
}

/* ---- the sockets ---- */

static int listen_again(struct pool *p, struct err *e)
{
    AUTO(free_p) char *socket = paths_pool_socket(&p->paths);
    if (!socket)
        return err_set(e, ENOMEM, "cannot listen: %m");
    return listener_open_unix(p->loop, socket, clients_accept, p, &p->listener, e);
}

static void renew_job(struct pool_job *j)
{
    char *master = paths_socket(&j->pool->paths, j->id, "m");
    if (master) {
        free(j->master_socket);
        j->master_socket = master;
    }
    if (j->phase == PH_LIVE)
        (void)alive_keeper_renew(j->id);
}

/* Callback of the timer `look`: a virtual machine may get more memory, and a group another limit.
 * Jobs that run keep what they have; a policy decides again, and waiting jobs may start. */
static void look_at_machine(void *arg)
{
    struct pool *p = arg;
    loop_timer_set(p->look, clock_mono_ms() + LOOK_MS);
    if (p->ended || !machine_look_again(p->conf, &p->machine))
        return;
    log_event(LOG_INFO, "machine.changed", f_int("memory_mib", (int64_t)p->machine.memory_mib),
              f_int("vcores", p->machine.vcores));
    p->sharing.decided_on = 0;
    sharing_changed(p);
    if (p->hear_until_ms == 0) /* else on_hear() admits */
        pool_admit(p);
}

/* Sockets are missing: make that of the pool again, and pass the request on to all keepers. */
static void on_hangup(int signo, void *arg)
{
    struct pool *p = arg;
    struct err e = { 0 };
    (void)signo;
    look_at_machine(p);
    standby_drop(p); /* it may know another directory of sockets */
    pool_prepare_in(p, PREPARE_MS);
    int rc = paths_renew_runtime(&p->paths, &e);
    AUTO(free_p) char *socket = paths_pool_socket(&p->paths);
    if (rc == 0 && socket && access(socket, F_OK) == 0)
        return;
    if (rc >= 0) {
        listener_close(TAKE(p->listener)); /* before the new one: it removes the old socket */
        rc = listen_again(p, &e);
    }
    if (rc < 0) {
        log_err(LOG_ERROR, "pool.sockets", &e); /* the next request tries again */
        return;
    }
    log_event(LOG_WARN, "pool.sockets_renewed", f_str("dir", p->paths.runtime));
    for (size_t i = 0; i < p->jobs.n; i++)
        renew_job(p->jobs.v[i]);
}

/* Move the pool to a control group in which it can make groups for tasks. If this fails, executors
 * measure the memory of their tasks at intervals, instead of letting the kernel limit it. */
static void place_enter_or_log(void)
{
    struct place place;
    struct err e = { 0 };
    place_survey(&place);
    if (place_enter(&place, &e) < 0)
        log_err(LOG_WARN, "pool.no_control_group", &e);
}

/* ---- what is made before the next job comes ---- */

static void on_prepare(void *arg)
{
    struct pool *p = arg;
    p->prepare_at_ms = 0;
    ready_dir_make(p);
    standby_make(p);
}

void pool_prepare_in(struct pool *p, int64_t ms)
{
    int64_t at = clock_mono_ms() + ms;
    if (p->ended || (p->prepare_at_ms && p->prepare_at_ms <= at))
        return;
    p->prepare_at_ms = at;
    loop_timer_set(p->prepare, at);
}

static int open_all(struct pool *p, struct err *e)
{
    p->prepare = loop_timer_new(p->loop, on_prepare, p);
    p->idle = loop_timer_new(p->loop, on_idle, p);
    p->gpu_retry = loop_timer_new(p->loop, on_gpu_retry, p);
    p->tidy = loop_timer_new(p->loop, tidy, p);
    p->look = loop_timer_new(p->loop, look_at_machine, p);
    p->patience = loop_timer_new(p->loop, clients_patience, p);
    p->hear = loop_timer_new(p->loop, on_hear, p);
    p->sigchld = loop_signal_new(p->loop, SIGCHLD, children_reap, p);
    p->sigterm = loop_signal_new(p->loop, SIGTERM, on_term, p);
    p->sigint = loop_signal_new(p->loop, SIGINT, on_term, p);
    if (getsid(0) == getpid()) /* else the signal comes from a terminal, and should end the pool */
        p->sighup = loop_signal_new(p->loop, SIGHUP, on_hangup, p);
    if (!p->prepare || !p->idle || !p->gpu_retry || !p->tidy || !p->look || !p->patience ||
        !p->hear || !p->sigchld || !p->sigterm || !p->sigint)
        return err_set(e, ENOMEM, "cannot start the pool: %m");
    p->idle_ms = conf_int(p->conf, "tony.pool.idle-timeout");
    p->started_wall_ms = clock_wall_ms();
    place_enter_or_log();
    machine_survey(p->conf, &p->machine);
    log_event(LOG_INFO, "pool.started", f_str("version", TONY_VERSION),
              f_str("home", p->paths.home), f_int("pid", getpid()),
              f_int("memory_mib", (int64_t)p->machine.memory_mib),
              f_int("vcores", p->machine.vcores), f_int("gpus", p->machine.n_gpus),
              f_str("cgroup", p->machine.cgroup));
    loop_timer_set(p->look, clock_mono_ms() + LOOK_MS);
    fs_spread_below(p->paths.jobs);
    boot_read(p);
    int rc = sharing_init(p, e);
    if (rc == 0)
        rc = recover(p, e);
    if (rc == 0)
        boot_record(p);
    p->hear_until_ms = clock_mono_ms() + HEAR_MS;
    loop_timer_set(p->hear, p->hear_until_ms);
    if (rc == 0)
        rc = listen_again(p, e);
    if (rc == 0)
        page_open(p);
    return rc;
}

static void remove_spare_groups(void)
{
    struct place place;
    place_survey(&place);
    if (place.kind == PLACE_V1)
        spare_groups_remove(place.dir);
}

static void close_all(struct pool *p)
{
    standby_done(p);
    remove_spare_groups();
    /* A client that connects from now on is refused. It starts the next pool, which waits for the
     * lock of this one. */
    page_close(p);
    listener_close(TAKE(p->listener));
    clients_close(p);
    loop_flush(p->loop); /* send the last answers */
    p->ended = true;
    while (p->jobs.n > 0)
        pool_job_remove(p->jobs.v[p->jobs.n - 1]);
}

static void raise_limits(void)
{
    struct rlimit lim;
    if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
        lim.rlim_cur = lim.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &lim); /* if this fails, jobs can have fewer tasks */
    }
}

static int serve(struct pool *p, struct options *o, struct err *e)
{
    if (!(p->loop = loop_new(e)))
        return EXIT_CANNOT;
    int rc = take_lock(p, e);
    if (rc == 0) {
        be_ready(o, -1); /* the process that waits can connect to the other pool */
        return 0;
    }
    int log_fd = rc < 0 ? rc : open_log(p, e);
    if (log_fd < 0)
        return EXIT_CANNOT;
    rc = open_all(p, e);
    if (rc < 0) {
        log_err(LOG_ERROR, "pool.start", e);
        return EXIT_CANNOT;
    }
    be_ready(o, log_fd);
    pool_admit(p);
    pool_check_idle(p);
    tidy_begin(p);
    on_prepare(p);
    (void)loop_run(p->loop);
    close_all(p);
    log_event(LOG_INFO, "pool.ended");
    return 0;
}

static void pool_done(struct pool *p)
{
    p->ended = true;
    while (p->jobs.n > 0)
        pool_job_remove(p->jobs.v[p->jobs.n - 1]);
    sweep_done(p);
    loop_free(p->loop);
    ready_dir_done(p);
    sharing_done(p);
    children_free(p);
    vec_done(&p->jobs);
    drop_lock(p);
    paths_done(&p->paths);
    free(p->executor);
    free(p->master);
}

static int run(struct options *o)
{
    struct err e = { 0 };
    struct pool p = { .lock_fd = -1, .conf = o->conf };
    int rc = paths_open(&p.paths, &e);
    if (rc < 0)
        return complain(EXIT_CANNOT, &e);
    if (!o->foreground && (rc = into_background(o, &e)) >= 0) {
        paths_done(&p.paths);
        return rc;
    }
    close_strangers(o);
    raise_limits();
    /* children_kill_strangers() needs this. Not in the foreground: there, the process may have had
     * children before it became a pool, and they must not be killed. */
    p.adopts = !o->foreground && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
    rc = serve(&p, o, &e);
    if (rc)
        (void)complain(rc, &e);
    pool_done(&p);
    return rc;
}

int pool_main(int argc, char **argv)
{
    struct err e = { 0 };
    AUTO(conf_freep) struct conf *conf = conf_new();
    struct options o = { .ready_fd = -1, .conf = conf };
    if (!conf)
        return complain(EXIT_CANNOT, (err_set(&e, ENOMEM, "cannot start the pool: %m"), &e));
    leave_job(argv);
    (void)umask(077); /* before the first directory is made */
    int rc = read_options(argc, argv, &o, &e);
    if (rc >= 0)
        return rc;
    if (conf_load_site(conf, &e) < 0)
        return complain(EXIT_CANNOT, &e);
    if (o.tidy)
        return tidy_once(conf, &e) < 0 ? complain(EXIT_CANNOT, &e) : 0;
    return run(&o);
}
