/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives one real tony-master through a job of many tasks, for bench/scale:
 *
 *     scale-drive SCENARIO TASKS COMMAND...
 *
 * COMMAND starts the master; the arguments "--epoch 1 APPLICATION_ID" are added to it. $TONY_HOME
 * names an empty directory. This process plays all peers of the master, over the sockets that the
 * real ones use: the keeper that grants containers, one executor for each task, and clients. No
 * command is run.
 *
 * On success it prints one line: the number of events, the final state of the job, and the master's
 * peak of resident memory in KiB. An event is one message about one task that the master receives:
 * a container is granted or has ended, an executor has registered, an attempt has started or ended,
 * the task reports its progress or a checkpoint.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "storage/jobfile.h"
#include "storage/paths.h"

enum {
    DIALS_MAX = 256,  /* executors that connect at the same time */
    OTHER_FILES = 64, /* descriptors besides one for each executor */
    ROUNDS = 20,      /* reports of progress of each task, in the scenario "follow" */
    CHECKPOINTS = 3,  /* checkpoints of each task, in the scenario "checkpoint" */
    TICK_MS = 1,
};

#define JOB_ID_TIME 1700000000000

/* the structs of protobuf-c have no const, but packing changes nothing */
#define MUTABLE(p) ((char *)(uintptr_t)(p))

/* ---- the scenarios ---- */

struct world;

struct scenario {
    const char *name;
    const char *const *conf; /* KEY=VALUE, NULL-terminated: in addition to those of all jobs */
    /* All tasks run; times: how often this has happened, from 1. */
    void (*on_all_run)(struct world *w, unsigned times);
    void (*on_word)(struct world *w); /* the master has handled all messages that were sent */
    bool follows;                     /* a client follows the job from its beginning */
    bool older;                       /* the executors do not read a file of addresses */
    bool grows;                       /* the job begins with half of the tasks */
    const char *verdict;
};

/* A container and the executor in it. */
struct box {
    struct world *w;
    uint32_t slot, index;
    char id[48];
    struct conn *conn;
    bool launched, greeted, running, lost;
    uint32_t generation, attempt, ports_used;
};

struct world {
    struct loop *loop;
    struct loop_timer *tick;
    struct paths paths;
    char id[APP_ID_MAX];
    const struct scenario *scenario;
    uint32_t n_tasks;
    pid_t master;
    int master_status;
    long peak_kib; /* contains the memory of this process when it started the master: 3 MiB */
    struct listener *listener;
    struct conn *keeper;
    VEC(struct box *) boxes;   /* all that were granted so far */
    VEC(struct box *) to_dial; /* launched, not connected */
    VEC(struct box *) ended;   /* the master does not know of their end yet */
    struct box **at;           /* by slot */
    uint32_t n_dialling, n_running;
    unsigned times_all_ran, times_told, round;
    uint64_t n_events;
    struct conn *follower, *asker;
    bool answer_due;
    char state[16];
};

static _Noreturn void die(const char *what, const struct err *e)
{
    fprintf(stderr, "scale-drive: %s%s%s\n", what, e ? ": " : "", e ? e->msg : "");
    exit(1);
}

static void must(int rc, const char *what)
{
    if (rc < 0)
        die(what, NULL);
}

/* ---- messages of an executor ---- */

static void say(struct box *b, int body, void *message)
{
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = (Tony__Frame__BodyCase)body;
    f.beat = message; /* all members of the union are pointers */
    must(conn_send(b->conn, &f), "an executor cannot send");
    b->w->n_events++;
}

static void say_ended(struct box *b, int exit_code, bool killed)
{
    if (!b->running)
        return;
    Tony__AttemptEnded x = TONY__ATTEMPT_ENDED__INIT;
    x.generation = b->generation;
    x.attempt = b->attempt;
    x.exit_code = killed ? 0 : exit_code;
    x.signal = killed ? SIGTERM : 0;
    x.reason = killed ? TONY__REASON__KILLED_BY_MASTER : TONY__REASON__EXITED;
    x.stderr_tail = MUTABLE(exit_code ? "Traceback (most recent call last)\nValueError: 7\n" : "");
    x.ended_mono_us = (uint64_t)clock_mono_us();
    b->running = false;
    b->w->n_running--;
    say(b, TONY__FRAME__BODY_ATTEMPT_ENDED, &x);
}

static void say_progress(struct box *b, uint64_t step)
{
    Tony__TaskWord x = TONY__TASK_WORD__INIT;
    x.generation = b->generation;
    x.attempt = b->attempt;
    x.step = step;
    x.total = 1000;
    say(b, TONY__FRAME__BODY_TASK_WORD, &x);
}

static void say_checkpoint(struct box *b, uint64_t step)
{
    char path[200];
    (void)snprintf(path, sizeof path, "hdfs://cluster/user/someone/runs/%s/step-%09llu/rank-%05u",
                   b->w->id, (unsigned long long)step, b->index);
    Tony__TaskWord x = TONY__TASK_WORD__INIT;
    x.generation = b->generation;
    x.attempt = b->attempt;
    x.checkpoint = path;
    x.checkpoint_step = step;
    say(b, TONY__FRAME__BODY_TASK_WORD, &x);
}

/* ---- the life of an executor ---- */

static void is_running(struct world *w)
{
    if (++w->n_running == w->n_tasks)
        w->times_all_ran++; /* on_tick() continues */
}

static void on_start(struct box *b, const Tony__Start *s)
{
    if (b->running)
        die("a task was started twice", NULL);
    Tony__AttemptStarted x = TONY__ATTEMPT_STARTED__INIT;
    b->generation = x.generation = s->generation;
    b->attempt = x.attempt = s->attempt;
    b->running = true;
    x.pid = 100000 + (int32_t)b->slot;
    say(b, TONY__FRAME__BODY_ATTEMPT_STARTED, &x);
    is_running(b->w);
}

static uint32_t port_of(const struct box *b)
{
    return 20000 + (b->slot * 7 + b->generation * 13 + b->ports_used) % 40000;
}

static void on_renew(struct box *b, const Tony__Renew *r)
{
    b->ports_used += r->fresh ? 1 : 0;
    uint32_t ports[1] = { port_of(b) };
    Tony__Ready x = TONY__READY__INIT;
    x.generation = r->generation;
    x.host = MUTABLE("127.0.0.1");
    x.n_ports = 1;
    x.ports = ports;
    say(b, TONY__FRAME__BODY_READY, &x);
}

/* The executor and its container have ended: on_tick() sends the keeper's report. */
static void leaves(struct box *b)
{
    if (b->running)
        b->w->n_running--;
    b->running = b->greeted = false;
    conn_close(TAKE(b->conn));
    must(vec_push(&b->w->ended, b), "no memory");
    if (b->w->at[b->slot] == b)
        b->w->at[b->slot] = NULL;
}

static void on_executor_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct box *b = arg;
    (void)c; /* b->conn */
    switch ((int)f->body_case) {
    case TONY__FRAME__BODY_WELCOME:
        b->greeted = true;
        b->w->n_dialling--;
        break;
    case TONY__FRAME__BODY_START:
        on_start(b, f->start);
        break;
    case TONY__FRAME__BODY_RENEW:
        on_renew(b, f->renew);
        break;
    case TONY__FRAME__BODY_STOP_ATTEMPT:
        say_ended(b, 0, true);
        break;
    case TONY__FRAME__BODY_ACK_ENDED:
        if (f->ack_ended->finish)
            leaves(b);
        break;
    case TONY__FRAME__BODY_FINISH_EXECUTOR:
        leaves(b);
        break;
    case TONY__FRAME__BODY_REFUSED:
        die(f->refused->message, NULL);
    default:
        break;
    }
}

static void on_executor_open(struct conn *c, void *arg)
{
    struct box *b = arg;
    uint32_t ports[1] = { port_of(b) };
    Tony__ExecutorHello x = TONY__EXECUTOR_HELLO__INIT;
    (void)c; /* b->conn */
    x.version = TONY__VERSION__PROTOCOL_VERSION;
    x.slot = b->slot;
    x.container_id = b->id;
    x.host = MUTABLE("127.0.0.1");
    x.n_ports = 1;
    x.ports = ports;
    x.pid = 50000 + (int32_t)b->slot;
    x.reads_spec_file = !b->w->scenario->older;
    say(b, TONY__FRAME__BODY_EXECUTOR_HELLO, &x);
}

/* The master closes connections only when it ends. */
static void on_executor_close(struct conn *c, const struct err *e, void *arg)
{
    struct box *b = arg;
    (void)c;
    (void)e;
    b->conn = NULL;
}

static const struct conn_ops executor_ops = { .on_open = on_executor_open,
                                              .on_frame = on_executor_frame,
                                              .on_close = on_executor_close };

static void dial_some(struct world *w)
{
    struct err e = { 0 };
    AUTO(free_p) char *path = paths_socket(&w->paths, w->id, "m");
    while (path && w->to_dial.n > 0 && w->n_dialling < DIALS_MAX) {
        struct box *b = w->to_dial.v[w->to_dial.n - 1];
        int rc = conn_dial_unix(w->loop, path, &executor_ops, b, &b->conn, &e);
        if (rc == -EAGAIN) /* the listener's queue is full */
            return;
        if (rc < 0)
            die("cannot reach the master", &e);
        w->to_dial.n--;
        w->n_dialling++;
    }
}

/* ---- the keeper ---- */

static void keeper_says(struct world *w, int body, void *message)
{
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = (Tony__Frame__BodyCase)body;
    f.beat = message;
    must(conn_send(w->keeper, &f), "the keeper cannot send");
}

static void on_asked(struct world *w, const Tony__RequestContainers *r)
{
    Tony__Container *v = calloc(r->n_asks + 1, sizeof *v);
    Tony__Container **list = calloc(r->n_asks + 1, sizeof *list);
    Tony__ContainersAllocated x = TONY__CONTAINERS_ALLOCATED__INIT;
    if (!v || !list)
        die("no memory", NULL);
    for (size_t i = 0; i < r->n_asks; i++) {
        struct box *b = calloc(1, sizeof *b);
        if (!b || vec_push(&w->boxes, b) < 0)
            die("no memory", NULL);
        b->w = w;
        b->slot = b->index = r->asks[i]->slot;
        (void)snprintf(b->id, sizeof b->id, "container_%lld_0001_01_%06zu", (long long)JOB_ID_TIME,
                       w->boxes.n);
        w->at[b->slot] = b;
        tony__container__init(&v[i]);
        v[i].id = b->id;
        v[i].slot = b->slot;
        list[i] = &v[i];
    }
    x.n_containers = r->n_asks;
    x.containers = list;
    keeper_says(w, TONY__FRAME__BODY_CONTAINERS_ALLOCATED, &x);
    w->n_events += r->n_asks;
    free(v);
    free(list);
}

/* From the last to the first, so that dial_some() connects them in their order. */
static void on_launch(struct world *w, const Tony__LaunchContainers *l)
{
    for (size_t i = l->n_containers; i-- > 0;) {
        struct box *b = w->at[l->containers[i]->slot];
        if (!b || !str_eq(b->id, l->containers[i]->id) || b->launched)
            die("a container was launched that was not granted", NULL);
        b->launched = true;
        must(vec_push(&w->to_dial, b), "no memory");
    }
}

/* The last number of a container's id counts all containers from 1. */
static void on_stop(struct world *w, const Tony__StopContainer *s)
{
    const char *number = strrchr(s->id, '_');
    size_t n = number ? strtoul(number + 1, NULL, 10) : 0;
    if (n == 0 || n > w->boxes.n)
        die("a container was stopped that was never granted", NULL);
    if (w->boxes.v[n - 1]->conn)
        leaves(w->boxes.v[n - 1]);
}

static void on_keeper_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct world *w = arg;
    Tony__Registered registered = TONY__REGISTERED__INIT;
    (void)c; /* w->keeper */
    switch ((int)f->body_case) {
    case TONY__FRAME__BODY_REGISTER_MASTER:
        keeper_says(w, TONY__FRAME__BODY_REGISTERED, &registered);
        break;
    case TONY__FRAME__BODY_REQUEST_CONTAINERS:
        on_asked(w, f->request_containers);
        break;
    case TONY__FRAME__BODY_LAUNCH_CONTAINERS:
        on_launch(w, f->launch_containers);
        break;
    case TONY__FRAME__BODY_STOP_CONTAINER:
        on_stop(w, f->stop_container);
        break;
    case TONY__FRAME__BODY_FINISH_JOB:
        (void)str_copy(w->state, sizeof w->state, f->finish_job->state);
        break;
    default:
        break;
    }
}

static void on_keeper_close(struct conn *c, const struct err *e, void *arg)
{
    struct world *w = arg;
    (void)c;
    (void)e;
    w->keeper = NULL; /* the master is ending: on_tick() finds out how */
}

static const struct conn_ops keeper_ops = { .on_frame = on_keeper_frame,
                                            .on_close = on_keeper_close };

static void on_accept(struct conn *c, void *arg)
{
    struct world *w = arg;
    w->keeper = c;
    conn_set_arg(c, &keeper_ops, w);
}

/* All in one frame, as the real keeper reports containers that it has reaped together. */
static void tell_ended(struct world *w)
{
    size_t n = w->ended.n;
    Tony__Container *v = calloc(n + 1, sizeof *v);
    Tony__Container **list = calloc(n + 1, sizeof *list);
    Tony__ContainersCompleted x = TONY__CONTAINERS_COMPLETED__INIT;
    if (!v || !list)
        die("no memory", NULL);
    for (size_t i = 0; i < n; i++) {
        tony__container__init(&v[i]);
        v[i].id = w->ended.v[i]->id;
        v[i].slot = w->ended.v[i]->slot;
        v[i].completed = true;
        v[i].reason = w->ended.v[i]->lost ? TONY__REASON__NODE_LOST : TONY__REASON__EXITED;
        v[i].ended_mono_us = (uint64_t)clock_mono_us();
        list[i] = &v[i];
    }
    x.n_containers = n;
    x.containers = list;
    if (w->keeper && n > 0)
        keeper_says(w, TONY__FRAME__BODY_CONTAINERS_COMPLETED, &x);
    w->n_events += n;
    w->ended.n = 0;
    free(v);
    free(list);
}

/* ---- clients ---- */

static void on_client_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct world *w = arg;
    if (c == w->asker && f->body_case == TONY__FRAME__BODY_ANSWER)
        w->answer_due = false;
}

static void on_client_close(struct conn *c, const struct err *e, void *arg)
{
    struct world *w = arg;
    (void)e;
    if (c == w->follower)
        w->follower = NULL;
    if (c == w->asker)
        w->asker = NULL;
}

static const struct conn_ops client_ops = { .on_frame = on_client_frame,
                                            .on_close = on_client_close };

static void client_dials(struct world *w, struct conn **c)
{
    struct err e = { 0 };
    AUTO(free_p) char *path = paths_socket(&w->paths, w->id, "m");
    if (!path || (!*c && conn_dial_unix(w->loop, path, &client_ops, w, c, &e) < 0))
        die("a client cannot reach the master", &e);
}

static void client_asks(struct world *w, struct conn **c, Tony__ClientAsk__What what)
{
    Tony__ClientAsk x = TONY__CLIENT_ASK__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    client_dials(w, c);
    x.what = what;
    x.application_id = w->id;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &x;
    must(conn_send(*c, &f), "a client cannot send");
}

/* ---- what the tasks of each scenario do ---- */

static void all_end(struct world *w)
{
    for (uint32_t i = 0; i < w->n_tasks; i++)
        if (w->at[i])
            say_ended(w->at[i], 0, false);
}

static void end_at_once(struct world *w, unsigned times)
{
    (void)times;
    all_end(w);
}

static void fail_once(struct world *w, unsigned times)
{
    if (times == 1)
        say_ended(w->at[w->n_tasks / 2], 1, false);
    else
        all_end(w);
}

static void save_and_fail_once(struct world *w, unsigned times)
{
    for (unsigned k = 1; k <= CHECKPOINTS; k++)
        for (uint32_t i = 0; i < w->n_tasks; i++)
            say_checkpoint(w->at[i], 1000 * (times * CHECKPOINTS + k));
    fail_once(w, times);
}

/* Half of the nodes are lost at once: every second executor ends. */
static void lose_half(struct world *w, unsigned times)
{
    if (times > 1) {
        all_end(w);
        return;
    }
    for (uint32_t i = 0; i < w->n_tasks; i += 2) {
        w->at[i]->lost = true;
        leaves(w->at[i]);
    }
}

static void fail_half(struct world *w, unsigned times)
{
    if (times > 1) {
        all_end(w);
        return;
    }
    for (uint32_t i = 0; i < w->n_tasks; i += 2)
        say_ended(w->at[i], 1, false);
}

static void next_round(struct world *w)
{
    if (w->round == 0 || w->answer_due)
        return;
    if (w->round > ROUNDS) {
        w->round = 0;
        all_end(w);
        return;
    }
    for (uint32_t i = 0; i < w->n_tasks; i++)
        say_progress(w->at[i], w->round * 10 + i % 7);
    w->round++;
    w->answer_due = true;
    client_asks(w, &w->asker, TONY__CLIENT_ASK__WHAT__STATUS);
}

static void begin_rounds(struct world *w, unsigned times)
{
    w->round = times;
    next_round(w);
}

static void grow_once(struct world *w, unsigned times)
{
    Tony__RoleSize role = TONY__ROLE_SIZE__INIT, *roles[] = { &role };
    Tony__ResizeJob x = TONY__RESIZE_JOB__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    if (times > 1) {
        all_end(w);
        return;
    }
    w->n_tasks *= 2;
    role.role = MUTABLE("worker");
    role.instances = w->n_tasks;
    x.n_roles = 1;
    x.roles = roles;
    f.body_case = TONY__FRAME__BODY_RESIZE_JOB;
    f.resize_job = &x;
    client_dials(w, &w->asker);
    must(conn_send(w->asker, &f), "a client cannot send");
}

static void stop(struct world *w, unsigned times)
{
    (void)times;
    client_asks(w, &w->asker, TONY__CLIENT_ASK__WHAT__STOP);
}

static const char *const restarting[] = { "tony.worker.restart=on-failure",
                                          "tony.worker.restart-scope=job", NULL };
static const char *const alone[] = { "tony.worker.restart=on-failure",
                                     "tony.worker.restart-scope=task", NULL };
static const char *const fcfs[] = { "tony.application.distributed-mode=FCFS", NULL };
static const char *const lost[] = { "tony.worker.restart-scope=job", NULL };
static const char *const replaced[] = { "tony.worker.restart-scope=task", NULL };
static const char *const live[] = { "tony.worker.resize=live", NULL };
static const char *const plain[] = { NULL };

static const struct scenario scenarios[] = {
    { "gang", plain, end_at_once, .verdict = "SUCCEEDED" },
    { "fcfs", fcfs, end_at_once, .verdict = "SUCCEEDED" },
    { "restart", restarting, fail_once, .verdict = "SUCCEEDED" },
    { "alone", alone, fail_half, .verdict = "SUCCEEDED" },
    { "checkpoint", restarting, save_and_fail_once, .verdict = "SUCCEEDED" },
    { "older", restarting, save_and_fail_once, .older = true, .verdict = "SUCCEEDED" },
    { "replaced", replaced, lose_half, .verdict = "SUCCEEDED" },
    { "follow", plain, begin_rounds, next_round, .follows = true, .verdict = "SUCCEEDED" },
    { "lost", lost, lose_half, .verdict = "SUCCEEDED" },
    { "killed", plain, fail_half, .verdict = "FAILED" },
    { "stopped", plain, stop, .verdict = "KILLED" },
    { "grow", live, grow_once, .grows = true, .verdict = "SUCCEEDED" },
};

/* ---- time ---- */

static void on_tick(void *arg)
{
    struct world *w = arg;
    struct rusage used;
    if (wait4(w->master, &w->master_status, WNOHANG, &used) == w->master) {
        w->peak_kib = used.ru_maxrss;
        loop_stop(w->loop);
        return;
    }
    if (w->keeper && !*w->state) {
        dial_some(w);
        tell_ended(w);
        if (w->scenario->follows && w->boxes.n > 0 && !w->follower)
            client_asks(w, &w->follower, TONY__CLIENT_ASK__WHAT__FOLLOW);
        if (w->times_all_ran > w->times_told)
            w->scenario->on_all_run(w, ++w->times_told);
        else if (w->scenario->on_word)
            w->scenario->on_word(w);
    }
    loop_timer_set(w->tick, clock_mono_ms() + TICK_MS);
}

/* ---- the job, and its master ---- */

static void set(struct conf *c, const char *pair)
{
    struct err e = { 0 };
    AUTO(free_p) char *key = str_dup(pair);
    char *eq = key ? strchr(key, '=') : NULL;
    if (!eq)
        die(pair, NULL);
    *eq = '\0';
    if (conf_set(c, CL_JOB, key, eq + 1, "bench", false, &e) < 0)
        die(pair, &e);
}

static void write_job(const struct world *w)
{
    struct err e = { 0 };
    char instances[64];
    AUTO(conf_freep) struct conf *c = conf_new();
    AUTO(free_p) char *dir = paths_job(&w->paths, w->id);
    AUTO(free_p) char *path = dir ? fs_join(dir, "job.conf") : NULL;
    AUTO(buf_done) struct buf text = { 0 };
    if (!c || !path)
        die("no memory", NULL);
    (void)snprintf(instances, sizeof instances, "tony.worker.instances=%u", w->n_tasks);
    set(c, "tony.application.name=scale");
    set(c, instances);
    set(c, "tony.worker.command=true");
    /* 10,000 addresses do not fit into the environment. */
    set(c, "tony.application.addresses-in-environment=false");
    set(c, "tony.task.heartbeat-interval-ms=3600000"); /* no heartbeats: they are not measured */
    for (const char *const *pair = w->scenario->conf; *pair; pair++)
        set(c, *pair);
    struct job_file f = { .conf = c,
                          .user = MUTABLE("bench"),
                          .host = MUTABLE("localhost"),
                          .cwd = MUTABLE("/"),
                          .version = MUTABLE("1"),
                          .wall_ms = clock_wall_ms() };
    if (job_file_encode(&f, &text, &e) < 0 || fs_mkdirs(dir, 0700, &e) < 0 ||
        fs_write_atomic(AT_FDCWD, path, buf_span(&text), 0600, false, &e) < 0)
        die("job.conf", &e);
}

/* The master inherits the limit of open files of this process. */
static void start_master(struct world *w, char **command)
{
    struct strv argv = { 0 };
    for (; *command; command++)
        must(strv_push(&argv, *command), "no memory");
    must(strv_push(&argv, "--epoch"), "no memory");
    must(strv_push(&argv, "1"), "no memory");
    must(strv_push(&argv, w->id), "no memory");
    w->master = fork();
    if (w->master == 0) {
        (void)execvp(argv.v[0], argv.v);
        _exit(127);
    }
    if (w->master == -1)
        die("cannot start the master", NULL);
    strv_done(&argv);
}

static void raise_files(uint32_t n_tasks)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r); /* checked below */
    }
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur >= (rlim_t)n_tasks + OTHER_FILES)
        return;
    fprintf(stderr,
            "scale-drive: %u tasks need %u open files, and this process may have %llu: raise the "
            "limit with ulimit -Hn\n",
            n_tasks, n_tasks + OTHER_FILES, (unsigned long long)r.rlim_cur);
    exit(77);
}

static const struct scenario *scenario_named(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(scenarios); i++)
        if (str_eq(scenarios[i].name, name))
            return &scenarios[i];
    return NULL;
}

int main(int argc, char **argv)
{
    struct world w = { 0 };
    struct err e = { 0 };
    int64_t n = 0;
    if (argc < 4 || !(w.scenario = scenario_named(argv[1])) ||
        str_i64(span_of(argv[2]), 2, 1000000, "tasks", &n, &e) < 0) {
        fprintf(stderr, "usage: scale-drive SCENARIO TASKS COMMAND...\n");
        return 2;
    }
    w.n_tasks = (uint32_t)n;
    log_setup(2, LOG_WARN, false);
    raise_files(w.n_tasks);
    app_id_format(w.id, JOB_ID_TIME, 1);
    if (paths_open(&w.paths, &e) < 0)
        die("cannot begin", &e);
    if (w.scenario->grows)
        w.n_tasks /= 2;
    write_job(&w);
    AUTO(free_p) char *keeper = paths_socket(&w.paths, w.id, "k");
    w.at = calloc((size_t)n, sizeof *w.at);
    w.loop = loop_new(&e);
    if (!keeper || !w.at || !w.loop ||
        listener_open_unix(w.loop, keeper, on_accept, &w, &w.listener, &e) < 0)
        die("cannot play the keeper", &e);
    start_master(&w, argv + 3);
    w.tick = loop_timer_new(w.loop, on_tick, &w);
    if (!w.tick)
        die("no memory", NULL);
    loop_timer_set(w.tick, clock_mono_ms());
    (void)loop_run(w.loop);
    if (!WIFEXITED(w.master_status) || WEXITSTATUS(w.master_status) != 0)
        die("the master did not end well", NULL);
    if (!str_eq(w.state, w.scenario->verdict))
        die("the job has another end than it should have", NULL);
    printf("%" PRIu64 " %s %ld\n", w.n_events, w.state, w.peak_kib);
    return 0;
}
