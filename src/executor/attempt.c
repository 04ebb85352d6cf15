/* SPDX-License-Identifier: Apache-2.0 */
/* One attempt: starts the command, watches it, stops it, and finds out how it ended. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/proctree.h"
#include "base/sockowner.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/command.h"
#include "executor/crew.h"
#include "executor/engine.h"
#include "executor/executor_int.h"
#include "executor/launch_error.h"

enum {
    RESCAN_MS = 20,        /* between two rounds of SIGKILL */
    ENGINE_ROUNDS = 150,   /* of RESCAN_MS, in which podman or docker kills the container itself */
    ENGINE_FAILED = 125,   /* the exit code of podman and docker for an error of their own */
    HARD_AFTER_ROUNDS = 3, /* then SIGSTOP all before SIGKILL: they may fork as fast as they die */
    STRAYS_MS = 150,       /* the node sends KILL 250 ms after TERM */
    TAIL_MAX = 4096,       /* as in tail.c */
    /* Timer slack: the kernel wakes the heartbeats of 1000 executors together, not one by one. */
    SLACK_NS = 20 * 1000 * 1000,
    SLACK_DEFAULT_NS = 0,
};

bool attempt_alive(const struct attempt *a)
{
    return a->state == ATTEMPT_RUNNING || a->state == ATTEMPT_STOPPING ||
           a->state == ATTEMPT_KILLING;
}

int64_t attempt_deadline(const struct attempt *a)
{
    int64_t at = INT64_MAX;
    if (a->state == ATTEMPT_RUNNING)
        at = a->save_until_ms ? MIN(a->deadline_ms, a->save_until_ms) : a->deadline_ms;
    if (a->state == ATTEMPT_STOPPING)
        at = MIN(a->strays_at_ms ? MIN(a->strays_at_ms, a->kill_at_ms) : a->kill_at_ms,
                 a->look_at_ms);
    if (a->state == ATTEMPT_KILLING)
        at = a->rescan_at_ms;
    return at;
}

void attempt_forget(struct attempt *a)
{
    logs_close(&a->logs);
    buf_done(&a->tail);
    free(a->ranks);
    *a = (struct attempt){ .generation = a->generation,
                           .number = a->number,
                           .logs = { .out_fd = -1, .err_fd = -1 } };
}

/* The other executors of a crew may have to be on time. */
static void set_slack(const struct executor *x, unsigned long ns)
{
    if (!x->cfg->in_crew)
        prctl(PR_SET_TIMERSLACK, ns);
}

/* ---- the end ---- */

static enum end_reason reason_of(struct attempt *a)
{
    if (a->forced)
        return a->forced;
    return a->pid == 0 || a->exec_errno ? END_LAUNCH_FAILED : END_EXITED;
}

static void note_oom(struct executor *x, uint64_t used)
{
    struct attempt *a = &x->a;
    char of[32], most[32];
    a->forced = END_OUT_OF_MEMORY;
    snprintf(a->detail, sizeof a->detail, "used %s of its %s of memory",
             str_size(used, most, sizeof most), str_size(x->cfg->memory_bytes, of, sizeof of));
}

static void keep_result(struct executor *x, enum end_reason reason)
{
    struct attempt *a = &x->a;
    struct exit_record *r = x->cfg->record;
    r->reason = (uint8_t)reason;
    r->exit_code = WIFEXITED(a->status) ? WEXITSTATUS(a->status) : 0;
    r->signal = WIFSIGNALED(a->status) ? WTERMSIG(a->status) : 0;
    r->at_us = a->ended_us;
    (void)str_copy(r->detail, sizeof r->detail, a->detail);
    r->ended = 1;
}

void attempt_message(const struct executor *x, Tony__AttemptEnded *out)
{
    const struct attempt *a = &x->a;
    tony__attempt_ended__init(out);
    out->generation = a->generation;
    out->attempt = a->number;
    out->rank = a->rank;
    out->exit_code = WIFEXITED(a->status) ? WEXITSTATUS(a->status) : 0;
    out->signal = WIFSIGNALED(a->status) ? WTERMSIG(a->status) : 0;
    out->reason = (Tony__Reason)x->cfg->record->reason;
    int64_t age = clock_mono_us() - a->ended_us;
    out->age_us = age > 0 ? (uint64_t)age : 0;
    out->ended_mono_us = (uint64_t)a->ended_us;
    out->step = x->task.step;
    out->total = x->task.total;
    out->detail = (char *)a->detail;
    out->stderr_tail = (char *)buf_cstr(&a->tail);
    out->max_rss_bytes = a->max_rss;
    out->cpu_ms = a->cpu_ms;
    out->ran_ms = a->started_us ? (uint64_t)((a->ended_us - a->started_us) / 1000) : 0;
}

/* Another user can bind a port that is reserved for the task before the task does. Then the task
 * fails, and nothing that it writes says whose port it is. */
static void note_port(struct executor *x)
{
    struct attempt *a = &x->a;
    const uint16_t ports[] = { x->port, x->tb_port };
    size_t n = strlen(a->detail);
    uid_t uid;
    for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
        if (!ports[i] || !sock_port_is_foreign(ports[i], &uid))
            continue;
        (void)snprintf(a->detail + n, sizeof a->detail - n,
                       "%sa process of user %u listens at port %u, which is reserved for this task",
                       n ? "; " : "", (unsigned)uid, ports[i]);
        return;
    }
}

/* The program has failed, and no reason is known: say which rank it was, if the attempt has several
 * ranks, and who has taken its port. A program that a signal has ended did not fail to bind one. */
static void note_failure(struct executor *x)
{
    struct attempt *a = &x->a;
    if (!a->status || a->forced || a->detail[0])
        return;
    if (a->ranks)
        (void)snprintf(a->detail, sizeof a->detail, "local rank %u of %u", a->rank, x->role->ranks);
    if (WIFEXITED(a->status))
        note_port(x);
}

/* All ranks wait for the plan of the driver. A driver that exits without one has failed, even if
 * its exit code is 0. */
static void note_driver(struct executor *x)
{
    struct attempt *a = &x->a;
    if (!x->task.drives || x->task.ready || a->forced || a->status != 0)
        return;
    a->status = 1 << 8;
    (void)str_copy(a->detail, sizeof a->detail, "it ended without a plan of the ranks");
}

/* A cluster that ends a job sends TERM to all its processes, one after the other. */
static bool may_be_of_cluster(const struct executor *x, enum end_reason reason)
{
    int status = x->a.status;
    bool term =
        WIFSIGNALED(status) ? WTERMSIG(status) == SIGTERM : WEXITSTATUS(status) == 128 + SIGTERM;
    return x->cfg->remote && executor_has_keeper(x) && reason == END_EXITED && term && !x->leaving;
}

/* No process of the attempt is alive: find out why it ended, store the result, and report it. */
static void finish(struct executor *x)
{
    struct attempt *a = &x->a;
    task_side_end(x);
    task_metrics_end(x);
    if (a->in_cgroup && !a->forced && cgroup_oom_kills(&x->cfg->cgroup) > a->oom_before)
        note_oom(x, cgroup_memory_max(&x->cfg->cgroup));
    else if (!a->forced && engine_oom_killed(x))
        note_oom(x, x->cfg->memory_bytes);
    if (x->engine && !a->engine_failed && !a->engine_gave_up)
        engine_forget(x);
    enum end_reason reason = reason_of(a);
    note_failure(x);
    note_driver(x);
    keep_result(x, reason);
    if (reason != END_EXITED || a->status != 0)
        tail_keep(x, reason, &a->tail);
    else if (x->role && x->role->preprocess)
        params_keep(x, &a->tail);
    a->state = ATTEMPT_ENDED;
    log_times_end(x);
    close_p(&a->logs.out_fd);
    close_p(&a->logs.err_fd);
    set_slack(x, SLACK_DEFAULT_NS);
    if (x->cfg->remote)
        log_event(LOG_INFO, "task.ended", f_int("attempt", a->number),
                  f_int("exit", x->cfg->record->exit_code), f_int("signal", x->cfg->record->signal),
                  f_str("reason", end_reason_name(reason)), f_str("detail", a->detail));
    log_watches_end(x);
    if (may_be_of_cluster(x, reason))
        x->report_at_ms = clock_mono_ms() + CLUSTER_TERM_MS;
    if (x->greeted)
        attempt_report_end(x); /* else: with the next ExecutorHello, or after the next Welcome */
    streams_kill(x);           /* after the report: they do not delay the end of the task */
}

void attempt_report_end(struct executor *x)
{
    if (x->node_reports_end || x->report_at_ms)
        return;
    Tony__AttemptEnded ended;
    attempt_message(x, &ended);
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_ATTEMPT_ENDED;
    f.attempt_ended = &ended;
    (void)executor_send(x, &f); /* after a failure, the next ExecutorHello has the end */
}

static void kill_round(struct executor *x)
{
    struct attempt *a = &x->a;
    a->state = ATTEMPT_KILLING;
    a->rescan_at_ms = clock_mono_ms() + RESCAN_MS;
    if (x->engine && a->kill_rounds < ENGINE_ROUNDS) { /* let the engine remove its container */
        if (a->kill_rounds++ == 0 && (!a->exited || a->engine_gave_up))
            engine_kill(x);
        return;
    }
    processes_kill(x, a->kill_rounds++ >= HARD_AFTER_ROUNDS + (x->engine ? ENGINE_ROUNDS : 0));
}

void attempt_reaped(struct executor *x, pid_t pid, int status, const struct rusage *used,
                    int64_t now_us)
{
    struct attempt *a = &x->a;
    if (!x->engine_apart) { /* else this is the client of the engine, and no process of the task */
        a->cpu_ms += (uint64_t)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) * 1000 +
                     (uint64_t)(used->ru_utime.tv_usec + used->ru_stime.tv_usec) / 1000;
        a->max_rss = MAX(a->max_rss, (uint64_t)used->ru_maxrss * 1024);
    }
    if (WIFSIGNALED(status) || WEXITSTATUS(status) == ENGINE_FAILED)
        a->engine_failed = true;
    if (a->ranks) {
        (void)ranks_exited(a, pid, a->exit_as ? a->exit_as << 8 : status, now_us);
    } else if (pid == a->pid && !a->exited) {
        a->exited = true;
        a->status = a->exit_as ? a->exit_as << 8 : status;
        a->ended_us = now_us;
    }
}

void attempt_look(struct executor *x, bool left)
{
    struct attempt *a = &x->a;
    if (x->engine && a->state == ATTEMPT_STOPPING)
        a->look_at_ms = clock_mono_ms();
    if (!attempt_alive(a) || !a->exited)
        return;
    if (!left)
        finish(x);
    else if (a->state == ATTEMPT_RUNNING && a->n_alive > 0)
        attempt_stop(x, x->role->kill_grace_ms, END_EXITED, ""); /* a rank has failed */
    else if (a->state != ATTEMPT_STOPPING) /* stopping: the others have their grace period */
        kill_round(x);
}

/* ---- the start ---- */

static void fail_launch(struct executor *x, const struct err *e)
{
    struct attempt *a = &x->a;
    executor_warn(x, "task.launch_failed", e);
    (void)str_copy(a->detail, sizeof a->detail, e->msg);
    if (e->num == ENOSPC || e->num == EDQUOT || e->num == EIO || e->num == EROFS)
        a->forced = END_DISK_FAILED; /* not the task's fault, and a retry may succeed */
    a->pid = 0;
    a->exited = true;
    a->status = 127 << 8;
    a->ended_us = clock_mono_us();
    finish(x);
}

/* Make the control group. Returns the file by which processes enter it; NULL = no group. */
static const char *enter_cgroup(struct executor *x, char procs[static CGROUP_PATH_MAX + 16])
{
    struct attempt *a = &x->a;
    if (x->cfg->cgroup.kind == CGROUP_NONE)
        return NULL;
    struct err ce = { 0 };
    a->in_cgroup = x->cfg->in_crew || cgroup_make(&x->cfg->cgroup, x->cfg->memory_bytes, &ce) == 0;
    if (!a->in_cgroup)
        executor_warn(x, "task.no_cgroup",
                      &ce); /* attempt_check_memory() watches the memory instead */
    else if (a->number > 1)
        a->oom_before = cgroup_oom_kills(&x->cfg->cgroup);
    cgroup_procs_path(&x->cfg->cgroup, procs);
    if (a->in_cgroup)
        cgroup_weigh(&x->cfg->cgroup, x->role->vcores);
    return a->in_cgroup ? procs : NULL;
}

static void note_spawned(struct executor *x, const struct spawn *sp, uint32_t rank, pid_t pid)
{
    struct attempt *a = &x->a;
    if (rank == 0)
        a->pid = pid;
    if (a->ranks) {
        a->ranks[a->n_ranks++].pid = pid;
        a->n_alive++;
    }
    if (sp->exec_errno) {
        struct err ee = { 0 };
        a->exec_errno = sp->exec_errno;
        launch_error(&ee, sp->path, sp->argv, sp->env, sp->exec_errno);
        (void)str_copy(a->detail, sizeof a->detail, ee.msg);
    }
    if (sp->cgroup_errno) {
        struct err ce = { 0 };
        a->in_cgroup = x->cfg->in_crew;
        (void)err_set(&ce, sp->cgroup_errno, "cannot enter control group '%s': %m",
                      x->cfg->cgroup.path);
        executor_warn(x, "task.no_cgroup", &ce);
        if (sp->needs_cgroup) { /* the process has exited; it is not the fault of the task */
            a->forced = END_UNKNOWN;
            (void)str_copy(a->detail, sizeof a->detail, ce.msg);
        }
    }
}

/* The command of this attempt. With a checkpoint to resume from it may be resume_command. */
static const char *command_of(const struct executor *x, const Tony__Start *s)
{
    const Tony__Welcome *w = x->role;
    return s->checkpoint[0] && w->resume_command[0] ? w->resume_command : w->command;
}

static int spawn_rank(struct executor *x, const Tony__Start *s, uint32_t rank, const char *procs,
                      struct err *e)
{
    struct attempt *a = &x->a;
    AUTO(strv_done) struct strv env = { 0 };
    AUTO(command_done) struct command command = { 0 };
    AUTO(close_p) int out_fd = -1;
    AUTO(close_p) int err_fd = -1;
    AUTO(close_p) int cgroup_fd = procs ? cgroup_open(&x->cfg->cgroup) : -1;
    cpu_set_t cores;
    int rc = task_environment(x, s, rank, &env, e);
    if (rc == 0)
        rc = x->role->docker_image[0]
                 ? engine_prepare(x, command_of(x, s), rank, &env, &command, e)
                 : command_prepare(command_of(x, s), x->workdir, &env, &command, e);
    if (rc == 0 && rank > 0)
        rc = ranks_logs_open(x, rank, &out_fd, &err_fd, e);
    if (rc < 0)
        return rc;
    if (x->engine_apart) { /* the limits are not for the client of the engine */
        procs = NULL;
        close_p(&cgroup_fd);
        cgroup_fd = -1;
        a->in_cgroup = false;
    }
    struct spawn sp = { .path = command.path,
                        .shell = command.shell,
                        .workdir = x->workdir,
                        .argv = command.argv.v,
                        .env = env.v,
                        .out_fd = rank ? out_fd : a->logs.out_fd,
                        .err_fd = rank ? err_fd : a->logs.err_fd,
                        .umask = executor_umask(x),
                        .cgroup_procs = procs,
                        .cgroup_fd = cgroup_fd,
                        .needs_cgroup = x->cfg->in_crew,
                        .own_group = executor_has_keeper(x),
                        .cpus = ranks_cores(x, rank, &cores),
                        .nofile = x->cfg->nofile };
    if (rank == 0)
        a->started_us = clock_mono_us();
    pid_t pid = spawn_task(&sp);
    if (pid < 0)
        return err_set(e, -pid, "cannot start a process: %m%s", err_fork_cause(-pid));
    note_spawned(x, &sp, rank, pid);
    return 0;
}

static int spawn(struct executor *x, const Tony__Start *s, struct err *e)
{
    struct attempt *a = &x->a;
    char procs[CGROUP_PATH_MAX + 16];
    const char *to = enter_cgroup(x, procs);
    int rc = ranks_init(a, x->role->ranks) < 0 ? err_set(e, ENOMEM, "cannot start a process: %m")
                                               : spawn_rank(x, s, 0, to, e);
    for (uint32_t i = 1; rc == 0 && i < x->role->ranks && !a->exec_errno; i++) {
        if (spawn_rank(x, s, i, a->in_cgroup ? to : NULL, e) == 0)
            continue;
        executor_warn(x, "task.launch_failed", e);
        attempt_stop(x, 0, END_LAUNCH_FAILED, e->msg); /* stop the ranks that run already */
        break;
    }
    return rc;
}

static void say_started(struct executor *x)
{
    Tony__AttemptStarted started = TONY__ATTEMPT_STARTED__INIT;
    started.generation = x->a.generation;
    started.attempt = x->a.number;
    started.pid = x->a.pid;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_ATTEMPT_STARTED;
    f.attempt_started = &started;
    (void)executor_send(x, &f); /* after a failure, the next ExecutorHello says what runs */
    if (x->cfg->remote)
        log_event(LOG_INFO, "task.started", f_int("attempt", x->a.number), f_int("pid", x->a.pid));
}

void attempt_start(struct executor *x, const Tony__Start *s)
{
    struct attempt *a = &x->a;
    const Tony__Welcome *w = x->role;
    if (s->generation == a->generation && s->attempt == a->number) {
        if (attempt_alive(a))
            say_started(x); /* a new master repeats the Start of a running attempt */
        else if (a->state == ATTEMPT_ENDED)
            attempt_report_end(x); /* a new master has not received the end yet */
        return;
    }
    if (a->state != ATTEMPT_NONE || x->leaving || s->attempt < a->number) {
        struct err e = { 0 };
        (void)err_set(&e, EBUSY, "cannot start attempt %u: attempt %u is not over", s->attempt,
                      a->number);
        executor_warn(x, "task.start_refused", &e);
        return;
    }
    *a = (struct attempt){ .state = ATTEMPT_RUNNING,
                           .generation = s->generation,
                           .number = s->attempt,
                           .deadline_ms = INT64_MAX,
                           .kill_at_ms = INT64_MAX,
                           .rescan_at_ms = INT64_MAX,
                           .look_at_ms = INT64_MAX,
                           .logs = { .out_fd = -1, .err_fd = -1 },
                           .tail.max = TAIL_MAX + 1 };
    executor_rename(x, s);
    task_side_open(x);
    task_side_begin(x);
    serve_begin(x, s);
    struct err e = x->workdir ? x->server.why_not : x->workdir_err;
    int rc = x->workdir && !e.num ? 0 : -EIO;
    struct log_place at = { .log_dir = w->log_dir,
                            .role = w->role,
                            .index = w->index,
                            .spare_dir = x->cfg->spare_dir,
                            .container_id = x->cfg->container_id };
    if (rc == 0)
        rc = executor_has_keeper(x) ? logs_open(&at, s->attempt, &a->logs, &e)
                                    : remote_logs_open(x->cfg->remote, s->attempt, &a->logs, &e);
    if (rc == 0)
        rc = spawn(x, s, &e);
    spec_forget(x->crew);
    if (rc < 0) {
        fail_launch(x, &e);
        return;
    }
    if (w->execution_timeout_ms)
        a->deadline_ms = clock_mono_ms() + (int64_t)w->execution_timeout_ms;
    set_slack(x, SLACK_NS);
    task_metrics_begin(x);
    log_watches_begin(x);
    log_times_begin(x);
    say_started(x);
}

/* ---- stopping and watching ---- */

void attempt_stop(struct executor *x, uint32_t grace_ms, enum end_reason reason, const char *detail)
{
    struct attempt *a = &x->a;
    if (!attempt_alive(a))
        return;
    int64_t kill_at = clock_mono_ms() + grace_ms;
    if (!a->forced && !a->exited) {
        a->forced = reason;
        (void)str_copy(a->detail, sizeof a->detail, detail);
    }
    set_slack(x, SLACK_DEFAULT_NS);
    if (a->state == ATTEMPT_KILLING)
        return;
    if (grace_ms == 0) {
        kill_round(x);
        return;
    }
    if (a->state == ATTEMPT_STOPPING) {
        a->kill_at_ms = MIN(a->kill_at_ms, kill_at); /* the shorter of two grace periods applies */
        return;
    }
    a->state = ATTEMPT_STOPPING;
    a->kill_at_ms = kill_at;
    if (x->engine)
        a->look_at_ms = engine_stop(x);
    else
        (void)processes_signal(x, SIGTERM, false);
}

void attempt_exit(struct executor *x, int exit_code)
{
    if (!attempt_undecided(&x->a))
        return;
    x->a.exit_as = exit_code & 0xff;
    attempt_stop(x, 0, END_EXITED, "it aborted the job");
}

static unsigned signal_catchers(const struct executor *x, int signal)
{
    unsigned n = 0;
    if (!x->engine)
        return processes_signal(x, signal, true);
    for (uint32_t rank = 0; rank < MAX(x->role->ranks, 1u); rank++)
        n += engine_signal(x, rank, signal, true);
    return n;
}

/* Send the signal only to processes that catch it: it would kill the others, such as the shell
 * around the program, or processes that load its data. If no process catches the signal and the
 * task has no connection to the socket, the request cannot reach the task. */
void attempt_save(struct executor *x, uint32_t save_ms, int signal, uint32_t grace_ms,
                  enum end_reason reason)
{
    struct attempt *a = &x->a;
    if (a->state != ATTEMPT_RUNNING || a->save_until_ms)
        return;
    /* However the attempt ends now, the reason is that its container is taken away. */
    if (reason == END_PREEMPTED && !a->exited)
        a->forced = reason;
    bool is_delivered = task_side_stop(x, save_ms);
    is_delivered = signal_catchers(x, signal) > 0 || is_delivered;
    if (!is_delivered) {
        attempt_stop(x, grace_ms, END_KILLED_BY_MASTER, "");
        return;
    }
    a->save_until_ms = clock_mono_ms() + save_ms;
    a->save_grace_ms = grace_ms;
}

void attempt_wait(struct executor *x, uint32_t wait_ms, uint32_t grace_ms)
{
    struct attempt *a = &x->a;
    if (a->state != ATTEMPT_RUNNING || a->save_until_ms)
        return;
    a->save_until_ms = clock_mono_ms() + wait_ms;
    a->save_grace_ms = grace_ms;
}

void attempt_tick(struct executor *x, int64_t now_ms)
{
    struct attempt *a = &x->a;
    if (!attempt_alive(a) || now_ms < attempt_deadline(a))
        return;
    if (a->state == ATTEMPT_RUNNING && a->save_until_ms && now_ms >= a->save_until_ms) {
        attempt_stop(x, a->save_grace_ms, END_KILLED_BY_MASTER, "");
        return;
    }
    if (a->state == ATTEMPT_RUNNING) {
        char detail[RECORD_DETAIL_MAX], text[32];
        a->deadline_ms = INT64_MAX;
        snprintf(detail, sizeof detail, "ran longer than the %s that a task may",
                 str_duration((int64_t)x->role->execution_timeout_ms, text, sizeof text));
        attempt_stop(x, x->role->kill_grace_ms, END_TIMED_OUT, detail);
        return;
    }
    if (a->state == ATTEMPT_STOPPING && a->strays_at_ms && now_ms >= a->strays_at_ms) {
        (void)remote_kill_strays();
        a->strays_at_ms = now_ms + RESCAN_MS; /* the executor is now the parent of their children */
        if (now_ms < a->kill_at_ms)
            return;
    }
    if (x->engine && a->state == ATTEMPT_STOPPING && now_ms < a->kill_at_ms) {
        a->look_at_ms = engine_stop_again(x);
        if (a->look_at_ms)
            return;
    }
    kill_round(x);
    children_reap(x->crew);
}

bool attempt_undecided(const struct attempt *a)
{
    return attempt_alive(a) && !a->exited && !a->forced;
}

void attempt_node_stops(struct executor *x, uint32_t grace_ms)
{
    attempt_stop(x, grace_ms, END_UNKNOWN, "the node stopped the container");
    if (x->a.state == ATTEMPT_STOPPING)
        x->a.strays_at_ms = clock_mono_ms() + STRAYS_MS;
}

/* Without a control group: the resident memory of all processes of the task. If the sum is above
 * the limit, measure again in a way that counts shared pages only once. */
static uint64_t sample_tree(struct executor *x)
{
    struct pids others = { 0 };
    task_metrics_others(x, &others);
    uint64_t rss = proctree_rss(&others, false);
    if (x->cfg->memory_bytes && rss > x->cfg->memory_bytes)
        rss = proctree_rss(&others, true);
    vec_done(&others);
    return rss;
}

void attempt_check_memory(struct executor *x)
{
    struct attempt *a = &x->a;
    uint64_t used = 0;
    if (!attempt_alive(a) || x->engine_apart) /* the engine has set the limits */
        return;
    const struct cgroup *g = &x->cfg->cgroup;
    uint64_t limit = x->cfg->memory_bytes;
    bool over;
    if (a->in_cgroup) {
        /* Then kill the other processes, too. task_metrics.c notes how much memory is used. */
        over = cgroup_watch_oom_kills(g, &x->watch) > a->oom_before;
    } else {
        used = sample_tree(x);
        over = limit && used > limit;
    }
    a->max_rss = MAX(a->max_rss, used);
    if (over && a->state == ATTEMPT_RUNNING && !a->forced) {
        note_oom(x, a->in_cgroup ? cgroup_memory_max(g) : used);
        kill_round(x);
    }
}
