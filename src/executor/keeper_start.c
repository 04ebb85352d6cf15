/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/keeper_start.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/lockfile.h"
#include "base/log.h"
#include "base/proctree.h"
#include "base/standby.h"
#include "base/str.h"
#include "base/title.h"
#include "base/util.h"
#include "cgroup/tree.h"
#include "executor/crew.h"
#include "executor/keeper_int.h"
#include "executor/ports.h"
#include "storage/alive.h"
#include "storage/gpulock.h"

enum {
    LOCK_PATIENCE_MS = 1000, /* a process that only tests the lock holds it for a moment */
    LEFTOVER_PATIENCE_MS = 5000,
    /* Between two tries: flock() has no timeout, and the leftover processes of a task are not
     * children of this process, so their end causes no SIGCHLD. */
    PAUSE_MS = 10,
};

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000L }, NULL);
}

/* ---- arguments ---- */

static int parse_gpus(struct keeper *k, const char *text, struct err *e)
{
    struct span rest = span_of(text), item;
    while (text[0] && span_split(&rest, ',', &item)) {
        int64_t index;
        if (str_i64(item, 0, 1 << 20, "--gpus", &index, e) < 0)
            return -EINVAL;
        if (k->n_gpus == GPUS_MAX)
            return err_set(e, EINVAL, "--gpus names more than %d devices", GPUS_MAX);
        k->gpus[k->n_gpus++] = (uint32_t)index;
    }
    return 0;
}

/* For the tasks of this node: their executors are forks of the keeper. */
static int parse_ports(const char *text, struct err *e)
{
    int64_t first, last;
    int rc = str_range(span_of(text), 1, UINT16_MAX, "--port-range", &first, &last, e);
    if (rc == 0)
        ports_allow((uint16_t)first, (uint16_t)last);
    return rc;
}

enum option_id {
    O_KEEPER = 1,
    O_MEMORY,
    O_VCORES,
    O_GPUS,
    O_GPU_LOCKS,
    O_READY_FD,
    O_LOCK_FD,
    O_LISTEN_FD,
    O_MASTER_PID,
    O_HEAD,
    O_NODE,
    O_NODE_NAME,
    O_MASTER_HOST,
    O_RUN,
    O_PORT_RANGE,
};

static const struct option options[] = {
    { "keeper", required_argument, NULL, O_KEEPER },
    { "memory-mib", required_argument, NULL, O_MEMORY },
    { "vcores", required_argument, NULL, O_VCORES },
    { "gpus", required_argument, NULL, O_GPUS },
    { "gpu-locks", required_argument, NULL, O_GPU_LOCKS },
    { "ready-fd", required_argument, NULL, O_READY_FD },
    { "lock-fd", required_argument, NULL, O_LOCK_FD },
    { "listen-fd", required_argument, NULL, O_LISTEN_FD },
    { "master-pid", required_argument, NULL, O_MASTER_PID },
    { "head", no_argument, NULL, O_HEAD },
    { "node", required_argument, NULL, O_NODE },
    { "node-name", required_argument, NULL, O_NODE_NAME },
    { "master-host", required_argument, NULL, O_MASTER_HOST },
    { "run", required_argument, NULL, O_RUN },
    { "port-range", required_argument, NULL, O_PORT_RANGE },
    { NULL, 0, NULL, 0 },
};

/* Set an option whose value is a number. */
static int set_number(struct keeper *k, int option, const char *name, const char *text,
                      struct err *e)
{
    enum { INDEX_MAX = 1 << 20 }; /* of a node or a run */
    char what[32];
    int64_t v = 0, max = INT32_MAX;
    if (option == O_MEMORY)
        max = INT64_MAX >> 20; /* in bytes it still fits into 64 bits */
    else if (option == O_NODE || option == O_RUN)
        max = INDEX_MAX;
    (void)snprintf(what, sizeof what, "--%s", name);
    int rc = str_i64(span_of(text), 0, max, what, &v, e);
    if (rc < 0)
        return rc;
    switch (option) {
    case O_MEMORY:
        k->memory_mib = (uint64_t)v;
        break;
    case O_VCORES:
        k->node.vcores = (uint32_t)v;
        break;
    case O_NODE:
        k->kind = KEEPER_OF_NODE;
        k->node.index = (uint32_t)v;
        break;
    case O_RUN:
        k->run = (uint32_t)v;
        break;
    case O_READY_FD:
        k->ready_fd = (int)v;
        break;
    case O_LOCK_FD:
        k->lock_fd = (int)v;
        break;
    case O_LISTEN_FD:
        k->listen_fd = (int)v;
        break;
    case O_MASTER_PID:
        k->master_pid = (pid_t)v;
        break;
    default:
        break;
    }
    return 0;
}

static int set_option(struct keeper *k, int option, const char *name, char *text, struct err *e)
{
    switch (option) {
    case O_KEEPER:
        k->app_id = text;
        return 0;
    case O_HEAD:
        k->kind = KEEPER_HEAD;
        return 0;
    case O_NODE_NAME:
        k->node.name = text;
        return 0;
    case O_MASTER_HOST:
        k->node.master_host = text;
        return 0;
    case O_GPU_LOCKS:
        k->gpu_locks = text;
        return 0;
    case O_GPUS:
        return parse_gpus(k, text, e);
    case O_PORT_RANGE:
        return parse_ports(text, e);
    default:
        return set_number(k, option, name, text, e);
    }
}

static int parse(struct keeper *k, int argc, char **argv, struct err *e)
{
    int option, at = 0, rc = 0;
    optind = 1;
    opterr = 0;
    while (rc == 0 && (option = getopt_long(argc, argv, "", options, &at)) != -1)
        rc = option == '?'
                 ? err_set(e, EINVAL, "unknown or incomplete option '%s'", argv[optind - 1])
                 : set_option(k, option, options[at].name, optarg, e);
    if (rc == 0 && (!k->app_id || optind != argc))
        rc = err_set(e, EINVAL,
                     "--keeper takes one argument besides its options: an application id");
    return rc < 0 ? rc : app_id_parse(k->app_id, &k->cluster_ms, &k->number, e);
}

/* ---- locks ---- */

static int lock_file(const char *path, struct err *e)
{
    for (int waited = 0;; waited += PAUSE_MS) {
        int fd = lockfile_take(path, true);
        if (fd >= 0)
            return fd;
        if (fd != -EWOULDBLOCK)
            return err_set(e, -fd, "cannot lock '%s': %m", path);
        if (waited >= LOCK_PATIENCE_MS) {
            char holder[128];
            alive_lock_holder(path, holder, sizeof holder);
            return err_set(e, EBUSY, "another keeper of this job runs (%s holds '%s')", holder,
                           path);
        }
        pause_ms(PAUSE_MS);
    }
}

int keeper_lock_gpu(const struct keeper *k, uint32_t index, struct err *e)
{
    return gpulock_take(k->gpu_locks ? k->gpu_locks : gpulock_dir(), index, e);
}

static int lock_gpus(struct keeper *k, struct err *e)
{
    for (uint32_t i = 0; i < k->n_gpus; i++) {
        k->gpu_fd[i] = keeper_lock_gpu(k, k->gpus[i], e);
        if (k->gpu_fd[i] < 0)
            return k->gpu_fd[i];
    }
    return 0;
}

/* ---- clean-up after an earlier keeper ---- */

void keeper_remove_cgroups(const char *dir_of_list)
{
    AUTO(free_p) char *path = str_printf("%s/cgroups", dir_of_list);
    AUTO(buf_done) struct buf text = { 0 };
    struct err unused;
    if (!path || fs_read(AT_FDCWD, path, &text, &unused) < 0)
        return;
    struct span rest = buf_span(&text), line;
    while (text.len > 0 && span_split(&rest, '\n', &line)) {
        AUTO(free_p) char *dir = span_dup(line);
        if (dir && strstr(dir, "/tony-")) /* a damaged file must not lead to other groups */
            cgroup_tree_remove(dir);
    }
    (void)unlink(path);
}

/* Kill the processes of the job that an earlier keeper has left. Its children have died with it;
 * others are found by a variable in their environment. */
static void remove_leftovers(const char *job_dir, const char *app_id)
{
    unsigned n_killed = 0;
    (void)proctree_kill_job(app_id, 0, LEFTOVER_PATIENCE_MS, &n_killed);
    keeper_remove_cgroups(job_dir);
    if (n_killed)
        log_event(LOG_WARN, "keeper.leftovers", f_int("killed", n_killed));
}

static void record_cgroups(struct keeper *k)
{
    AUTO(free_p) char *path = str_printf("%s/cgroups", k->job_dir);
    AUTO(buf_done) struct buf text = { 0 };
    if (k->cgroup.memory)
        buf_addf(&text, "%s\n", k->cgroup.memory);
    if (k->cgroup.cpu)
        buf_addf(&text, "%s\n", k->cgroup.cpu);
    struct err e = { 0 };
    if (path && text.len && fs_write_atomic(AT_FDCWD, path, buf_span(&text), 0600, false, &e) < 0)
        log_err(LOG_WARN, "keeper.cgroups", &e); /* only needed if this keeper is killed */
}

/* ---- start ---- */

static void make_job_dirs(const struct keeper *k)
{
    static const char *const names[] = { "containers", "logs" };
    if (k->kind == KEEPER_HEAD)         /* the pool does that for its jobs */
        fs_spread_below(k->paths.jobs); /* takes effect for later jobs */
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        AUTO(free_p) char *dir = str_printf("%s/%s", k->job_dir, names[i]);
        if (dir)
            (void)mkdir(dir, 0700); /* if it fails, the executors try it and report the error */
    }
}

/* Reset signals, umask and limits, so that tasks do not inherit those with which the pool was
 * started. */
static int own_process(struct keeper *k, struct err *e)
{
    (void)setsid(); /* fails if it is a session leader already */
    if (k->ready_fd >= 0)
        (void)fcntl(k->ready_fd, F_SETFD, FD_CLOEXEC);
    unsetenv("TONY_APPLICATION_ID"); /* a pool that this keeper starts is no part of the job */
    for (int sig = 1; sig < 32; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            (void)signal(sig, SIG_DFL);
    struct sigaction children = { .sa_handler = SIG_DFL, .sa_flags = SA_NOCLDSTOP };
    sigaction(SIGCHLD, &children, NULL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, CREW_SIGNAL);
    if (k->kind != KEEPER_OF_POOL)
        sigaddset(&set, SIGUSR1); /* a notice of the cluster; on nodes it is for the tasks */
    sigaddset(&set, SIGPIPE);     /* of --ready-fd: the pool may have died */
    sigaddset(&set, SIGXFSZ);     /* blocked, so that a write beyond `ulimit -f` fails. Not ignored:
                                     tasks would inherit that, but they get an empty signal mask */
    sigprocmask(SIG_SETMASK, &set, NULL);
    k->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (k->signal_fd == -1)
        return err_set(e, errno, "cannot watch signals: %m");
    int null = open("/dev/null", O_RDONLY);
    if (null == -1 || dup2(null, 0) == -1)
        return err_set(e, errno, "cannot open '/dev/null': %m");
    if (null > 2)
        close(null);
    umask(077);
    if (chdir("/") == -1)
        return err_set(e, errno, "cannot change the working directory to '/': %m");
    if (getrlimit(RLIMIT_NOFILE, &k->nofile) == 0) {
        struct rlimit most = { k->nofile.rlim_max, k->nofile.rlim_max };
        (void)setrlimit(RLIMIT_NOFILE, &most); /* the master needs one descriptor for each task */
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "tony-keeper");
    if (k->kind == KEEPER_OF_NODE)
        title_set("tony-keeper %s node %u", k->app_id, k->node.index);
    else /* the pool finds it by this text (storage/alive.c) */
        title_set("tony-keeper %s%s", k->app_id, k->kind == KEEPER_HEAD ? " head" : "");
    return 0;
}

static void free_paths(struct keeper *k)
{
    free(TAKE(k->job_dir));
    free(TAKE(k->spare_dir));
    free(TAKE(k->ended_dir));
    free(TAKE(k->socket));
    free(TAKE(k->master_socket));
    free(TAKE(k->lock_path));
    paths_done(&k->paths);
}

static int set_paths(struct keeper *k, struct err *e)
{
    int rc = paths_open(&k->paths, e);
    if (rc < 0)
        return rc;
    k->job_dir = paths_job(&k->paths, k->app_id);
    k->spare_dir = str_printf("%s/spare", k->paths.pool);
    k->ended_dir = str_printf("%s/ended/%s", k->paths.pool, k->app_id);
    k->socket = paths_socket(&k->paths, k->app_id, "k");
    k->master_socket = paths_socket(&k->paths, k->app_id, "m");
    k->lock_path = paths_job_lock(&k->paths, k->app_id);
    return k->job_dir && k->spare_dir && k->ended_dir && k->socket && k->master_socket &&
                   k->lock_path
               ? 0
               : err_set(e, ENOMEM, "cannot start: %m");
}

/* Does the job exist? Ask again when the lock is held: an earlier keeper may have ended the job. */
static int find_job(const struct keeper *k, struct err *e)
{
    return access(k->job_dir, W_OK) == 0
               ? 0
               : err_set(e, errno, "cannot find job '%s' in TONY_HOME: %m", k->app_id);
}

static int lock_job(struct keeper *k, struct err *e)
{
    int rc = find_job(k, e);
    if (rc < 0)
        return rc;
    bool inherited = lockfile_inherit(k->lock_fd, k->lock_path);
    if (!inherited || link_inherit(k->listen_fd, k->socket) < 0)
        k->listen_fd = -1; /* keeper_start() makes a socket */
    if (!inherited)
        k->lock_fd = lock_file(k->lock_path, e);
    if (k->lock_fd < 0)
        return k->lock_fd;
    alive_sign_lock(k->lock_fd);
    rc = find_job(k, e);
    if (rc < 0)
        (void)unlink(k->lock_path); /* no other keeper will remove it */
    return rc;
}

static void say_ready(struct keeper *k)
{
    if (k->ready_fd < 0)
        return;
    bool pool_lives = write(k->ready_fd, "1", 1) == 1;
    close(k->ready_fd);
    k->ready_fd = -1;
    pool_await_connection(k, pool_lives);
}

static void reset(struct keeper *k)
{
    *k = (struct keeper){ .state = KEEPER_RUNNING,
                          .lock_fd = -1,
                          .listen_fd = -1,
                          .exits_fd = -1,
                          .ready_fd = -1,
                          .cgroup.kind = CGROUP_NONE,
                          .kill_at_ms = INT64_MAX,
                          .next_kill_ms = INT64_MAX,
                          .reap_at_ms = INT64_MAX,
                          .left = { .look_at_ms = INT64_MAX, .kill_at_ms = INT64_MAX },
                          .groups.at_ms = INT64_MAX,
                          .beats.at_ms = INT64_MAX,
                          .master_at_ms = INT64_MAX,
                          .pool_at_ms = INT64_MAX };
}

/* Is the directory of the sockets still the right one? The pool made the job's socket there. */
static bool sockets_agree(const struct keeper *k)
{
    return k->listen_fd >= 0 && link_inherit(k->listen_fd, k->socket) == 0;
}

/* The keeper of the next job, a standby of the pool: do what needs only the job's number, and wait
 * for the job. Returns false if it does not come. */
static bool await_job(struct keeper *k, int *argc, char ***argv)
{
    struct err unused = { 0 };
    k->app_id = (*argv)[2];
    k->early.paths = set_paths(k, &unused) == 0;
    k->early.place = true;
    place_survey(&k->place);
    *argc = standby_wait("tony-executor", (*argv)[3], argv);
    (void)prctl(PR_SET_PDEATHSIG, 0); /* from now on it outlives the pool */
    return *argc > 0;
}

static int open_paths(struct keeper *k, struct err *e)
{
    if (!k->early.paths || !sockets_agree(k)) {
        free_paths(k);
        int rc = set_paths(k, e);
        if (rc < 0)
            return rc;
    }
    return table_open(k) < 0 ? err_set(e, ENOMEM, "cannot start: %m") : 0;
}

int keeper_start(struct keeper *k, int argc, char **argv, struct err *e)
{
    reset(k);
    if (argc > 3 && str_eq(argv[1], "--standby") && !await_job(k, &argc, &argv))
        return KEEPER_FAILED;
    if (parse(k, argc, argv, e) < 0)
        return KEEPER_MISUSE;
    log_setup(2, LOG_INFO, false);
    if (own_process(k, e) < 0 || open_paths(k, e) < 0 ||
        (k->kind == KEEPER_OF_NODE && node_open(k, e) < 0))
        return KEEPER_FAILED;
    int rc = lock_job(k, e);
    if (rc < 0)
        return rc == -EBUSY ? KEEPER_ALREADY : KEEPER_FAILED;
    for (size_t i = 0; i < GPUS_MAX; i++)
        k->gpu_fd[i] = -1;
    rc = k->kind == KEEPER_OF_POOL ? lock_gpus(k, e) : 0; /* a cluster has chosen the GPUs itself */
    if (rc < 0)
        return rc == -EWOULDBLOCK ? KEEPER_GPU_TAKEN : KEEPER_FAILED;
    if (run_open(k, e) < 0 || exits_open(k, e) < 0)
        return KEEPER_FAILED;
    if (k->life > 1 && k->kind != KEEPER_HEAD) {
        remove_leftovers(k->job_dir, k->app_id);
        left_look(&k->left);
        k->left.gave_up = left_any(k->job_dir); /* the pool's `--cleanup` has already waited */
    }
    if (k->kind != KEEPER_OF_NODE && k->listen_fd < 0 &&
        (k->listen_fd = link_listen(k->socket, e)) < 0)
        return KEEPER_FAILED;
    /* Starting the master takes longer than the rest of this function, so begin with it. */
    if (k->kind != KEEPER_OF_NODE)
        master_take_over_or_start(k);
    const char *fake = getenv("TONY_NVML");
    make_job_dirs(k);
    k->machine_has_gpus = k->n_gpus > 0 || (fake && fake[0]) || access("/dev/nvidiactl", F_OK) == 0;
    struct err why = { 0 };
    cgroup_job_open(&k->cgroup, k->app_id, k->early.place ? &k->place : NULL, &why);
    if (k->cgroup.kind == CGROUP_NONE)
        log_err(LOG_WARN, "keeper.no_cgroups", &why); /* memory is sampled instead */
    if (k->life > 1)
        k->cgroup.ready.n = 0; /* the names of its containers are others */
    k->can_crew = k->kind == KEEPER_OF_POOL && k->cgroup.kind != CGROUP_NONE &&
                  access("/proc/thread-self/children", R_OK) == 0;
    record_cgroups(k);
    say_ready(k);
    return 0;
}

void keeper_start_done(struct keeper *k)
{
    node_done(k);
    left_done(&k->left);
    resize_done(k);
    cgroup_job_done(&k->cgroup);
    free_paths(k);
}

/* Remove what podman or docker has left of a job without a keeper. If that fails, pool/ended/<id>
 * makes the pool try again later. For a live job the next keeper tries again. */
static void remove_containers(struct keeper *k)
{
    AUTO(free_p) char *history = paths_history(&k->paths, k->app_id);
    bool live = access(k->job_dir, F_OK) == 0;
    const char *dir = live ? k->job_dir : history;
    if (!dir || !left_any(dir))
        return;
    if (!live)
        keeper_mark_ended(k);
    if (!left_remove_all(dir))
        return;
    AUTO(free_p) char *engines = str_printf("%s/engines", dir);
    if (engines && !live)
        (void)rmdir(engines);
    if (!live)
        (void)rmdir(k->ended_dir);
}

/* Clean up after a keeper that was killed: for the next keeper of a live job, or for a job in the
 * history whose keeper had not removed everything yet. */
static int cleanup(struct keeper *k, struct err *e)
{
    int rc = set_paths(k, e);
    if (rc < 0)
        return KEEPER_FAILED;
    k->lock_fd = lock_file(k->lock_path, e);
    if (k->lock_fd < 0)
        return k->lock_fd == -EBUSY ? KEEPER_ALREADY : KEEPER_FAILED;
    remove_leftovers(k->job_dir, k->app_id);
    keeper_clear_ended(k->ended_dir, k->spare_dir);
    remove_containers(k);
    if (access(k->job_dir, F_OK) == -1)
        keeper_unlock(k);
    close_p(&k->lock_fd);
    return KEEPER_OK;
}

int keeper_cleanup(const char *application_id, struct err *e)
{
    struct keeper k = {
        .app_id = application_id, .lock_fd = -1, .listen_fd = -1, .cgroup.kind = CGROUP_NONE
    };
    if (app_id_parse(application_id, &k.cluster_ms, &k.number, e) < 0)
        return KEEPER_MISUSE;
    int rc = cleanup(&k, e);
    keeper_start_done(&k);
    return rc;
}
