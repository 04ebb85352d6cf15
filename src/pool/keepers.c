/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/proctree.h"
#include "job/job.h"
#include "loop/loop.h"
#include "pool/pool_int.h"
#include "proto/tony.pb-c.h"
#include "storage/alive.h"
#include "storage/gpulock.h"

enum {
    READY_LIMIT_MS = 10000, /* a keeper that does not listen after this time is killed */
    /* A keeper that this pool has started is killed if it lives, but the pool cannot connect to it
     * for this time. */
    LOST_LIMIT_MS = 30000,
    LOOK_MIN_MS = 2, /* pause between two checks of a lost keeper; it grows up to LOOK_MAX_MS */
    LOOK_MAX_MS = 200,
    RENEW_MS = 1000, /* pause between two requests to a keeper to make its socket again */
    LEFTOVERS_LIMIT_MS = 10000, /* longest time to kill the processes that a dead keeper has left */
    EXECUTORS_MS = 1000,        /* in which an executor without keeper ends its task and exits */
    LAST_LINES = 20,            /* the end of a log in which the pool searches for an error */
    LAST_BYTES = 4096,
    EXIT_MISUSE = 2, /* exit codes of a keeper; see executor/executor.h */
    EXIT_GPU_TAKEN = 3,
    EXIT_ABORTED = 4,
};

/* What happens to the keeper of a job. The table at the end of "losing one" says what the pool does
 * then, in each phase of the job. */
enum keeper_event {
    KEEPER_LISTENS,    /* the keeper that the pool has started can be connected to */
    KEEPER_UNREACHED,  /* it does not listen, or the pool cannot connect to it */
    KEEPER_TOLD_STATE, /* a KeeperState of a job that is not finished */
    KEEPER_CLOSED,     /* the connection has ended */
    KEEPER_EXITED,     /* the pool has reaped the keeper */
    KEEPER_TIME_IS_UP, /* the job's timer has fired */
    KEEPER_EVENTS,
};

static void happens(struct pool_job *j, enum keeper_event event);
static void keeper_lost(struct pool_job *j);

static void set_timer(struct pool_job *j, int64_t in_ms)
{
    loop_timer_set(j->timer, clock_mono_ms() + in_ms);
}

/* ---- the reason in a log of the job ----
 * It becomes the end of the sentence "the job's master could not be run: ...". */

/* Find the line that may say why a program died: the last line with the level `error`; else the
 * last line, unless its level is info or warn. A last line without a level may come from abort().
 */
static struct span telling_line(struct span text)
{
    struct span line, last = { 0 }, error = { 0 };
    while (span_split(&text, '\n', &line)) {
        if (span_trim(line).len == 0)
            continue;
        last = span_trim(line);
        if (span_has(last, " error "))
            error = last;
    }
    bool idle = span_has(last, " info ") || span_has(last, " warn ");
    return error.len ? error : idle ? (struct span){ 0 } : last;
}

/* Copy that line of one of the job's logs to out; "" if there is none. */
static void copy_telling_line(const struct pool_job *j, const char *name, char *out, size_t n)
{
    AUTO(free_p) char *dir = paths_job(&j->pool->paths, j->id);
    AUTO(free_p) char *path = dir ? fs_join(dir, name) : NULL;
    AUTO(buf_done) struct buf text = { 0 };
    out[0] = '\0';
    if (!path || fs_tail(AT_FDCWD, path, LAST_LINES, LAST_BYTES, &text, NULL) < 0)
        return;
    struct span line = telling_line(buf_span(&text));
    (void)snprintf(out, n, "%.*s", (int)line.len, line.p ? line.p : "");
}

static void set_fatal(struct pool_job *j, const char *what, const char *log)
{
    char log_line[256];
    copy_telling_line(j, log, log_line, sizeof log_line);
    free(j->fatal);
    j->fatal = log_line[0]
                   ? str_printf("%s: %s", what, log_line)
                   : str_dup(what); /* no memory: NULL, and the keeper is started once more */
}

/* ---- the connection ---- */

static void on_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct pool_job *j = arg;
    (void)c;
    if (f->body_case == TONY__FRAME__BODY_REFUSED) {
        log_event(LOG_WARN, "keeper.refused", f_str("job", j->id),
                  f_str("why", f->refused->message));
        return;
    }
    if (f->body_case != TONY__FRAME__BODY_KEEPER_STATE)
        return; /* a keeper of a newer version may send other frames */
    const Tony__KeeperState *s = f->keeper_state;
    if (s->finished) {
        log_event(LOG_INFO, "job.finished", f_str("job", j->id), f_str("state", s->state));
        sweep_after(j->pool, TAKE(j->keeper), j->id);
        pool_job_over(j);
        return;
    }
    if (str_eq(s->state, "MASTER_FAILED") && !j->fatal)
        set_fatal(j, "it ended again and again", "master.log");
    if (j->phase != PH_LIVE)
        log_event(LOG_INFO, "keeper.live", f_str("job", j->id), f_int("pid", s->pid));
    happens(j, KEEPER_TOLD_STATE);
    bool known = j->gpus_known;
    j->gpus_known = true;
    if (extension_heard(j, s) || !known || j->pool->hear_until_ms) /* jobs may wait for this */
        pool_admit(j->pool);
}

static void on_close(struct conn *c, const struct err *e, void *arg)
{
    struct pool_job *j = arg;
    (void)c;
    j->keeper = NULL;
    log_event(LOG_WARN, "keeper.gone", f_str("job", j->id),
              f_str("why", e->num ? e->msg : "it closed"));
    happens(j, KEEPER_CLOSED);
    if (j->wish.open) /* its extension leaves the queue until the pool has reconnected */
        pool_admit(j->pool);
}

static const struct conn_ops keeper_ops = { NULL, on_frame, on_close };

static int dial(struct pool_job *j, struct err *e)
{
    AUTO(free_p) char *path = paths_socket(&j->pool->paths, j->id, "k");
    if (!path)
        return err_set(e, ENOMEM, "cannot dial a keeper: %m");
    int rc = conn_dial_unix(j->pool->loop, path, &keeper_ops, j, &j->keeper, e);
    if (rc < 0)
        return rc;
    j->admit_number = 0; /* the number counts the Admits of one connection */
    Tony__PoolHello hello = TONY__POOL_HELLO__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    hello.version = TONY__VERSION__PROTOCOL_VERSION;
    hello.pid = getpid();
    f.body_case = TONY__FRAME__BODY_POOL_HELLO;
    f.pool_hello = &hello;
    rc = conn_send(j->keeper, &f);
    if (rc < 0) {
        conn_close(TAKE(j->keeper));
        return err_set(e, -rc, "cannot greet the keeper of '%s': %m", j->id);
    }
    return 0;
}

/* ---- starting one ---- */

static void ready_done(struct pool_job *j)
{
    loop_fd_free(TAKE(j->ready));
    if (j->ready_fd >= 0)
        (void)close(j->ready_fd);
    j->ready_fd = -1;
}

static void on_ready(void *arg)
{
    struct pool_job *j = arg;
    char byte;
    ssize_t n = read(j->ready_fd, &byte, 1);
    if (n == -1 && (errno == EAGAIN || errno == EINTR))
        return;
    ready_done(j);
    happens(j, n == 1 ? KEEPER_LISTENS : KEEPER_UNREACHED);
}

static void on_timer(void *arg)
{
    happens(arg, KEEPER_TIME_IS_UP);
}

static void on_keeper_exit(void *arg, int code)
{
    struct pool_job *j = arg;
    j->child = NULL;
    j->exit_code = code;
    log_event(code ? LOG_WARN : LOG_INFO, "keeper.exited", f_str("job", j->id),
              f_int("code", code));
    happens(j, KEEPER_EXITED);
}

static int build_argv(const struct pool_job *j, struct strv *argv)
{
    AUTO(buf_done) struct buf gpus = { 0 };
    for (uint32_t i = 0; i < j->needs.gpus; i++)
        (void)buf_addf(&gpus, "%s%u", i ? "," : "", j->gpus[i]);
    int rc = gpus.failed ? -ENOMEM : strv_push(argv, j->pool->executor);
    const char *const fixed[] = { "--keeper",  j->id, "--ready-fd",  "3",
                                  "--lock-fd", "4",   "--listen-fd", "5" };
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(fixed); i++)
        rc = strv_push(argv, fixed[i]);
    if (rc == 0)
        rc = strv_push(argv, "--memory-mib");
    if (rc == 0)
        rc = strv_pushf(argv, "%llu", (unsigned long long)j->needs.memory_mib);
    if (rc == 0)
        rc = strv_push(argv, "--vcores");
    if (rc == 0)
        rc = strv_pushf(argv, "%u", j->vcores);
    if (rc == 0 && j->needs.gpus > 0)
        rc = strv_push(argv, "--gpus");
    if (rc == 0 && j->needs.gpus > 0)
        rc = strv_push(argv, buf_cstr(&gpus));
    return rc;
}

int keeper_env(const struct pool *p, const char *id, struct strv *env)
{
    int rc = 0;
    for (char **x = environ; rc == 0 && *x; x++)
        rc = strv_push(env, *x);
    if (rc == 0)
        rc = strv_env_set(env, "TONY_HOME", p->paths.home);
    if (rc == 0)
        rc = strv_env_set(env, "TONY_APPLICATION_ID", id);
    return rc;
}

int pool_find_executor(struct pool *p, struct err *e)
{
    if (!p->executor && !(p->executor = paths_program("tony-executor")))
        return err_set(e, ENOENT,
                       "cannot find the program 'tony-executor' beside this one or on PATH");
    return 0;
}

/* Start tony-executor with these arguments; its output goes to the job's keeper.log. */
static int spawn_executor(struct pool_job *j, const struct strv *argv, int fd3, const char *lock,
                          const struct spawn_companion *companion,
                          void (*on_exit)(void *arg, int code), struct child **out, struct err *e)
{
    AUTO(strv_done) struct strv env = { 0 };
    AUTO(free_p) char *dir = paths_job(&j->pool->paths, j->id);
    AUTO(free_p) char *log = dir ? fs_join(dir, "keeper.log") : NULL;
    AUTO(free_p) char *socket = companion ? paths_socket(&j->pool->paths, j->id, "k") : NULL;
    if (!log || (companion && !socket) || keeper_env(j->pool, j->id, &env) < 0)
        return err_set(e, ENOMEM, "cannot start a keeper: %m");
    if (companion && (*out = standby_take(j,
                                          &(struct standby_job){ .keeper_argv = argv->v,
                                                                 .master_argv = companion->argv,
                                                                 .keeper_log = log,
                                                                 .master_log = companion->log,
                                                                 .lock = lock,
                                                                 .socket = socket,
                                                                 .ready_fd = fd3 },
                                          on_exit)))
        return 0;
    struct spawn s = { .program = j->pool->executor,
                       .argv = argv->v,
                       .envp = env.v,
                       .fd3 = fd3,
                       .lock = lock,
                       .socket = socket,
                       .log = log,
                       .new_session = true,
                       .companion = companion };
    return child_spawn(j->pool, &s, on_exit, j, out, e);
}

/*
 * The first master of a job starts at the same time as its keeper, as the keeper's child. If the
 * keeper started the master later, the first task would start later by the time of an execve().
 *
 * This is not done for a job with GPUs. Its keeper may find that other pools use the devices. Then
 * the job must wait again, and the journal of a waiting job must have no record.
 */
struct first_master {
    struct strv argv;
    char *log;
    struct spawn_companion c;
};

static void first_master_done(struct first_master *m)
{
    strv_done(&m->argv);
    free(m->log);
}

static int first_master_build(struct pool_job *j, struct strv *keeper_argv, struct first_master *m)
{
    enum { DIGITS = 10 };
    const char *const argv[] = { "tony-master", "--epoch", "1", j->id };
    AUTO(free_p) char *dir = paths_job(&j->pool->paths, j->id);
    m->log = dir ? fs_join(dir, "master.log") : NULL;
    int rc = m->log ? strv_pushf(keeper_argv, "--master-pid=%0*d", DIGITS, 0) : -ENOMEM;
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(argv); i++)
        rc = strv_push(&m->argv, argv[i]);
    if (rc < 0)
        return rc;
    char *option = keeper_argv->v[keeper_argv->n - 1];
    m->c = (struct spawn_companion){ .program = j->pool->master,
                                     .argv = m->argv.v,
                                     .log = m->log,
                                     .pid_text = option + strlen(option) - DIGITS,
                                     .pid_digits = DIGITS };
    return 0;
}

static bool wants_first_master(struct pool_job *j)
{
    struct pool *p = j->pool;
    if (!j->fresh || j->needs.gpus > 0)
        return false;
    /* If the program is missing, the keeper reports that. */
    return p->master || (p->master = paths_program("tony-master"));
}

static int spawn_keeper(struct pool_job *j, struct err *e)
{
    AUTO(strv_done) struct strv argv = { 0 };
    AUTO(first_master_done) struct first_master master = { 0 };
    int rc = pool_find_executor(j->pool, e);
    if (rc < 0)
        return rc;
    AUTO(free_p) char *lock = paths_job_lock(&j->pool->paths, j->id);
    int fds[2];
    bool two = wants_first_master(j);
    j->fresh = false;
    if (!lock || build_argv(j, &argv) < 0 || (two && first_master_build(j, &argv, &master) < 0))
        return err_set(e, ENOMEM, "cannot start a keeper: %m");
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) == -1)
        return err_set(e, errno, "cannot make a pipe: %m");
    j->exit_code = -1;
    rc = spawn_executor(j, &argv, fds[1], lock, two ? &master.c : NULL, on_keeper_exit, &j->child,
                        e);
    (void)close(fds[1]);
    j->ready_fd = fds[0];
    if (rc == 0 && !(j->ready = loop_fd_new(j->pool->loop, j->ready_fd, on_ready, j))) {
        (void)kill(child_pid(j->child), SIGKILL);
        rc = err_set(e, ENOMEM, "cannot watch a keeper: %m");
    }
    if (rc < 0)
        ready_done(j);
    return rc;
}

void keeper_start(struct pool_job *j)
{
    struct err e = { 0 };
    j->was_admitted = true;
    j->gpus_known = true;
    j->phase = PH_STARTING;
    extension_forget(j);
    if (!j->fresh)
        boot_forget(j);
    int rc = spawn_keeper(j, &e);
    if (rc < 0) {
        log_err(LOG_ERROR, "keeper.start", &e);
        if (!j->fatal)
            j->fatal = str_printf("its keeper cannot be started: %s", e.msg);
        keeper_lost(j);
        return;
    }
    set_timer(j, READY_LIMIT_MS);
    log_event(LOG_INFO, "keeper.started", f_str("job", j->id), f_int("pid", child_pid(j->child)),
              f_int("memory_mib", (int64_t)j->needs.memory_mib), f_int("gpus", j->needs.gpus));
}

/* ---- losing one ---- */

/* Record the death of a keeper. Returns true if the job's keepers have died more than DEATHS_MAX
 * times within DEATHS_WINDOW_MS. A keeper that was connected for KEEPER_WORKED_MS does not count.
 */
static bool dies_too_often(struct pool_job *j)
{
    int64_t now = clock_mono_ms(), oldest = j->deaths[0], since = j->live_since_ms;
    j->live_since_ms = 0;
    if (since && j->lost_since_ms - since >= KEEPER_WORKED_MS)
        return false;
    for (size_t i = 1; i < DEATHS_MAX; i++)
        j->deaths[i - 1] = j->deaths[i];
    j->deaths[DEATHS_MAX - 1] = now;
    return oldest != 0 && now - oldest < DEATHS_WINDOW_MS;
}

static void abort_job(struct pool_job *j)
{
    AUTO(free_p) char *text = TAKE(j->fatal);
    AUTO(free_p) char *who = TAKE(j->stop_who);
    struct job_event ev = { .type = EV_LAUNCH_FAILED_JOB,
                            .launch_failed_job = { .why = text, .stopped = j->lost_by_stop } };
    if (who)
        ev = (struct job_event){ .type = EV_STOP,
                                 .stop = { .who = who, .why = "the pool was stopped" } };
    else if (!text)
        ev.launch_failed_job.why = "its processes were ended without a verdict of its master";
    pool_job_abort(j, &ev);
}

/* Another pool, perhaps of another user, claims a GPU of the job: say which process. NULL: the
 * claim is gone meanwhile. */
static char *gpu_held(const struct pool_job *j)
{
    struct err e = { 0 };
    for (uint32_t i = 0; i < j->needs.gpus; i++)
        if (gpulock_holder(gpulock_dir(), j->gpus[i], &e))
            return str_dup(e.msg);
    return NULL;
}

static void wait_for_gpus(struct pool_job *j)
{
    free(j->held);
    j->held = gpu_held(j);
    log_event(LOG_WARN, "job.gpus_taken", f_str("job", j->id), f_int("again_in_ms", GPU_PAUSE_MS));
    j->phase = PH_WAITING;
    j->gpus_known = false;
    pool_retry_gpus_later(j);
    pool_admit(j->pool);
}

/*
 * No process of the job is alive any more: let it wait again, end it, or start another keeper. The
 * first row that applies decides. Its `why` becomes the reason for the end, unless there is one.
 */
enum fate { FATE_ENDS, FATE_WAITS, FATE_RESTARTS };

static const struct fate_row {
    enum { FATE_ALWAYS, FATE_IF_DOOMED, FATE_IF_EXIT_CODE, FATE_IF_TOO_OFTEN } when;
    int exit_code;
    enum fate fate;
    const char *why;
} fates[] = {
    { FATE_IF_DOOMED, 0, FATE_ENDS, NULL },
    { FATE_IF_EXIT_CODE, EXIT_GPU_TAKEN, FATE_WAITS, NULL },
    { FATE_IF_EXIT_CODE, EXIT_MISUSE, FATE_ENDS, "its keeper cannot be started" },
    { FATE_IF_TOO_OFTEN, 0, FATE_ENDS, "its keeper dies again and again" },
    { FATE_IF_EXIT_CODE, EXIT_ABORTED, FATE_ENDS, NULL },
    { FATE_ALWAYS, 0, FATE_RESTARTS, NULL },
};

static bool applies(const struct fate_row *row, struct pool_job *j)
{
    switch (row->when) {
    case FATE_IF_DOOMED:
        return j->fatal || j->stop_who;
    case FATE_IF_EXIT_CODE:
        return j->exit_code == row->exit_code;
    case FATE_IF_TOO_OFTEN:
        return dies_too_often(j);
    case FATE_ALWAYS:
        break;
    }
    return true;
}

static void decide(struct pool_job *j)
{
    const struct fate_row *row = fates;
    while (!applies(row, j))
        row++;
    if (row->why && !j->fatal)
        set_fatal(j, row->why, "keeper.log");
    if (row->fate == FATE_WAITS)
        wait_for_gpus(j);
    else if (row->fate == FATE_ENDS)
        abort_job(j);
    else
        keeper_start(j);
}

static void on_cleaned(void *arg, int code)
{
    struct pool_job *j = arg;
    j->child = NULL;
    if (code)
        log_event(LOG_WARN, "keeper.cleanup", f_str("job", j->id), f_int("code", code));
    decide(j);
}

/* Remove the control groups of the job, by the program tony-executor, which knows them. */
static void clean_groups(struct pool_job *j)
{
    AUTO(strv_done) struct strv argv = { 0 };
    struct err e = { 0 };
    int rc = pool_find_executor(j->pool, &e);
    if (rc == 0 && (strv_push(&argv, j->pool->executor) < 0 || strv_push(&argv, "--cleanup") < 0 ||
                    strv_push(&argv, j->id) < 0))
        rc = err_set(&e, ENOMEM, "cannot clean up after a keeper: %m");
    if (rc == 0)
        rc = spawn_executor(j, &argv, -1, NULL, NULL, on_cleaned, &j->child, &e);
    if (rc < 0) {
        log_err(LOG_WARN, "keeper.cleanup", &e);
        decide(j);
    }
}

/* Kill the orphans of dead keepers that have become children of the pool. A process of the job that
 * has removed TONY_APPLICATION_ID from its environment can only be found this way. */
static void clean_strangers(struct pool_job *j)
{
    if (children_kill_strangers(j->pool) > 0 && clock_mono_ms() < j->adopt_by_ms) {
        j->phase = PH_ADOPTING;
        set_timer(j, LOOK_MIN_MS);
        return;
    }
    j->phase = PH_CLEANING;
    clean_groups(j);
}

struct leftovers {
    struct pool *pool;
    char id[APP_ID_MAX];
};

/* -EBUSY: the keeper lives, although its lock is free, because its lock file was removed. */
static int kill_leftovers(void *arg)
{
    const struct leftovers *l = arg;
    return alive_keeper_renew(l->id)
               ? -EBUSY
               : proctree_kill_job(l->id, EXECUTORS_MS, LEFTOVERS_LIMIT_MS, NULL);
}

static void on_leftovers(void *arg, int rc)
{
    AUTO(free_p) struct leftovers *l = arg;
    struct pool_job *j = l->pool->ended ? NULL : pool_job_find(l->pool, l->id);
    if (!j)
        return;
    if (rc == -EBUSY) {
        log_event(LOG_WARN, "keeper.no_lock_file", f_str("job", j->id));
        j->phase = PH_LOST;
        set_timer(j, LOOK_MAX_MS);
        return;
    }
    if (rc != 0)
        log_event(LOG_WARN, "keeper.leftovers", f_str("job", j->id), f_int("rc", rc));
    j->adopt_by_ms = clock_mono_ms() + LEFTOVERS_LIMIT_MS;
    clean_strangers(j);
}

static void clean(struct pool_job *j)
{
    struct leftovers *l = calloc(1, sizeof *l);
    if (l) {
        l->pool = j->pool;
        (void)str_copy(l->id, sizeof l->id, j->id); /* always fits: both have APP_ID_MAX bytes */
        j->phase = PH_CLEANING;
        if (loop_work(j->pool->loop, kill_leftovers, on_leftovers, l) == 0)
            return;
        free(l);
    }
    j->phase = PH_LOST;
    set_timer(j, LOOK_MAX_MS); /* no memory: try again later */
}

static bool moved_to_history(const struct pool_job *j)
{
    AUTO(free_p) char *dir = NULL;
    _Bool live = true;
    return paths_find_job(&j->pool->paths, j->id, &dir, &live, NULL) == 0 && !live;
}

/* The keeper lives, but the pool cannot connect to it: perhaps its socket was removed. */
static void renew_keeper(struct pool_job *j, int dial_rc)
{
    int64_t now = clock_mono_ms();
    if (dial_rc != -ENOENT || now < j->renew_at_ms)
        return;
    j->renew_at_ms = now + RENEW_MS;
    if (alive_keeper_renew(j->id))
        log_event(LOG_WARN, "keeper.no_socket", f_str("job", j->id));
}

/* What the pool finds out about a keeper whose connection is lost. A keeper is alive if its lock is
 * held, or if this pool has started it and has not reaped it. */
enum sight { SIGHT_CONNECTED, SIGHT_ALIVE, SIGHT_JOB_FINISHED, SIGHT_DEAD };

static enum sight look(struct pool_job *j, int *out_rc)
{
    struct err e = { 0 };
    int rc = *out_rc = j->fatal ? -ECANCELED : dial(j, &e);
    if (rc == 0)
        return SIGHT_CONNECTED;
    if (j->child || job_is_kept(j))
        return SIGHT_ALIVE;
    return moved_to_history(j) ? SIGHT_JOB_FINISHED : SIGHT_DEAD;
}

static void greet(struct pool_job *j)
{
    j->phase = PH_GREETING;
    set_timer(j, READY_LIMIT_MS);
}

static void look_again_later(struct pool_job *j, int dial_rc)
{
    int64_t lost_ms = clock_mono_ms() - j->lost_since_ms;
    if (j->child && lost_ms > LOST_LIMIT_MS)
        (void)kill(child_pid(j->child), SIGKILL);
    renew_keeper(j, dial_rc);
    set_timer(j, MAX((int64_t)LOOK_MIN_MS, MIN(lost_ms / 4, (int64_t)LOOK_MAX_MS)));
}

static void check_keeper(struct pool_job *j)
{
    int rc;
    switch (look(j, &rc)) {
    case SIGHT_CONNECTED:
        greet(j);
        break;
    case SIGHT_ALIVE:
        look_again_later(j, rc);
        break;
    case SIGHT_JOB_FINISHED: /* the keeper was killed after it had moved the job to history/ */
        sweep_job(j->pool, j->id);
        pool_job_over(j);
        break;
    case SIGHT_DEAD:
        clean(j);
        break;
    }
}

/* ---- what the pool does ---- */

static void keeper_lost(struct pool_job *j)
{
    j->phase = PH_LOST;
    j->lost_since_ms = clock_mono_ms();
    set_timer(j, 0);
}

static void connect_to_new(struct pool_job *j)
{
    struct err e = { 0 };
    if (dial(j, &e) == 0) {
        greet(j);
        return;
    }
    log_err(LOG_WARN, "keeper.dial", &e);
    keeper_lost(j);
}

static void lost_before_it_listened(struct pool_job *j)
{
    ready_done(j);
    keeper_lost(j);
}

static void too_slow(struct pool_job *j)
{
    log_event(LOG_WARN, "keeper.slow", f_str("job", j->id));
    if (j->child)
        (void)kill(child_pid(j->child), SIGKILL);
    ready_done(j);
    conn_close(TAKE(j->keeper));
    keeper_lost(j);
}

static void live(struct pool_job *j)
{
    loop_timer_stop(j->timer);
    j->live_since_ms = clock_mono_ms();
    j->phase = PH_LIVE;
}

static void look_now(struct pool_job *j)
{
    set_timer(j, 0);
}

/* An event without a function changes nothing: if a keeper exits while the pool is connected to it,
 * the connection ends, too. */
static void (*const reactions[PH_COUNT][KEEPER_EVENTS])(struct pool_job *j) = {
    [PH_STARTING] = { [KEEPER_LISTENS] = connect_to_new,
                      [KEEPER_UNREACHED] = keeper_lost,
                      [KEEPER_EXITED] = lost_before_it_listened,
                      [KEEPER_TIME_IS_UP] = too_slow },
    [PH_GREETING] = { [KEEPER_TOLD_STATE] = live,
                      [KEEPER_CLOSED] = keeper_lost,
                      [KEEPER_TIME_IS_UP] = too_slow },
    [PH_LIVE] = { [KEEPER_CLOSED] = keeper_lost },
    [PH_LOST] = { [KEEPER_EXITED] = look_now, [KEEPER_TIME_IS_UP] = check_keeper },
    [PH_ADOPTING] = { [KEEPER_TIME_IS_UP] = clean_strangers },
};

static void happens(struct pool_job *j, enum keeper_event event)
{
    void (*react)(struct pool_job *) = reactions[j->phase][event];
    if (react)
        react(j);
}

void keeper_reconnect(struct pool_job *j)
{
    j->was_admitted = true;
    j->exit_code = -1;
    keeper_lost(j);
}

int keeper_init(struct pool_job *j)
{
    j->ready_fd = -1;
    j->exit_code = -1;
    j->timer = loop_timer_new(j->pool->loop, on_timer, j);
    return j->timer ? 0 : -ENOMEM;
}

void keeper_forget(struct pool_job *j)
{
    ready_done(j);
    conn_close(TAKE(j->keeper));
    conn_close(TAKE(j->stopper));
    loop_timer_free(TAKE(j->timer));
    loop_timer_free(TAKE(j->stop_timer));
    child_forget(TAKE(j->child));
    free(TAKE(j->fatal));
    free(TAKE(j->held));
    free(TAKE(j->stop_who));
}
