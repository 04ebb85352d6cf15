/* SPDX-License-Identifier: Apache-2.0 */
/* Grants containers, launches them, stops them, and handles their ends. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/proctree.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "executor/crew.h"
#include "executor/executor_int.h"
#include "executor/keeper_int.h"
#include "executor/ports.h"

enum {
    LAUNCH_BATCH = 32,     /* forks in one turn of the loop: about 3 ms */
    STOP_MARGIN_MS = 2000, /* for the executor to exit, after the grace period of its task */
};

/* ---- granting ---- */

static uint32_t free_gpus(const struct keeper *k)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n_gpus; i++)
        n += !k->gpu_used[i];
    return n;
}

static void mark_gpu(struct keeper *k, uint32_t device, bool used)
{
    for (uint32_t i = 0; i < k->n_gpus; i++)
        if (k->gpus[i] == device)
            k->gpu_used[i] = used;
}

static int take_gpus(struct keeper *k, struct container *c, uint32_t n)
{
    c->gpus = n ? calloc(n, sizeof *c->gpus) : NULL;
    if (n && !c->gpus)
        return -ENOMEM;
    for (uint32_t i = 0; i < k->n_gpus && c->n_gpus < n; i++)
        if (!k->gpu_used[i]) {
            k->gpu_used[i] = true;
            c->gpus[c->n_gpus++] = k->gpus[i];
        }
    return 0;
}

void container_name(const struct keeper *k, uint32_t number, char out[CONTAINER_ID_MAX])
{
    (void)snprintf(out, CONTAINER_ID_MAX, "container_%lld_%04u_%02u_%06u", (long long)k->cluster_ms,
                   k->number, node_life(k), number);
}

/* When the container ends, it moves to `ends`. Make room there now, because an end cannot be
 * refused. */
static struct container *grant(struct keeper *k, const struct ask *a)
{
    struct container *c =
        vec_reserve(&k->ends, k->ends.n + k->live.n + 1) < 0 ? NULL : container_new(k);
    if (!c)
        return NULL;
    if (take_gpus(k, c, a->gpus) < 0) {
        container_free(k, c);
        return NULL;
    }
    c->number = ++k->n_granted;
    container_name(k, c->number, c->id);
    c->state = CONTAINER_GRANTED;
    c->slot = a->slot;
    c->memory_mib = a->memory_mib;
    c->vcores = a->vcores;
    c->kill_at_ms = INT64_MAX;
    k->groups.mixed = k->groups.mixed || (c->number > 1 && k->groups.limit != c->memory_mib << 20);
    k->groups.limit = c->memory_mib << 20;
    k->used_mib += a->memory_mib;
    k->used_vcores += a->vcores;
    slots_find(k, c->slot)->asked = false;
    live_add(k, c);
    return c;
}

static bool fits_ever(const struct keeper *k, const struct ask *a)
{
    return (!k->memory_mib || a->memory_mib <= MAX(k->memory_mib, k->want.memory_mib)) &&
           a->gpus <= MAX(k->n_gpus, k->want.gpus);
}

static bool fits_now(const struct keeper *k, const struct ask *a)
{
    return (!k->memory_mib || k->used_mib + a->memory_mib <= k->memory_mib) &&
           a->gpus <= free_gpus(k);
}

/* Grant in the order of the asks: a small ask does not overtake a large one that does not fit. */
void containers_grant(struct keeper *k)
{
    AUTO(free_p)
    struct container **granted = k->asks.n ? calloc(k->asks.n, sizeof(struct container *)) : NULL;
    size_t n = 0;
    if (!granted)
        return;
    uint64_t vcores = k->used_vcores;
    while (n < k->asks.n && fits_now(k, &k->asks.v[n])) {
        struct container *c = grant(k, &k->asks.v[n]);
        if (!c)
            break; /* no memory: tried again when a container ends */
        granted[n++] = c;
    }
    k->asks.n -= n;
    memmove(k->asks.v, k->asks.v + n, k->asks.n * sizeof *k->asks.v);
    if (k->asks.n == 0)
        vec_done(&k->asks);
    if (k->used_vcores != vcores)
        cgroup_job_weight(&k->cgroup, k->used_vcores);
    if (n)
        master_tell_granted(k, granted, n, NULL, 0, NULL);
}

void containers_drop_asks(struct keeper *k)
{
    for (size_t i = 0; i < k->asks.n; i++)
        slots_find(k, k->asks.v[i].slot)->asked = false;
    k->asks.n = 0;
}

/* The master may repeat an ask. If the slot has a container already, answer with that container. */
void containers_ask(struct keeper *k, const struct ask *asks, size_t n)
{
    AUTO(free_p) struct container **again = calloc(n + 1, sizeof(struct container *));
    AUTO(free_p) uint32_t *refused = calloc(n + 1, sizeof *refused);
    size_t n_again = 0, n_refused = 0;
    if (!again || !refused)
        return; /* no memory: a new master repeats the asks */
    for (size_t i = 0; i < n; i++) {
        struct slot_use *use = slots_get(k, asks[i].slot);
        if (!use || !fits_ever(k, &asks[i]) || k->state != KEEPER_RUNNING)
            refused[n_refused++] = asks[i].slot;
        else if (use->container)
            again[n_again++] = use->container;
        else if (use->asked)
            continue;
        else if (vec_push(&k->asks, asks[i]) < 0)
            refused[n_refused++] = asks[i].slot;
        else
            use->asked = true;
    }
    if (n_again || n_refused)
        master_tell_granted(k, again, n_again, refused, n_refused,
                            "it is more than what was admitted for this job");
    resize_refuse(k);
    containers_grant(k);
}

/* Free the memory and GPUs of the container, and grant waiting asks. */
static void give_back(struct keeper *k, struct container *c)
{
    k->used_mib -= c->memory_mib;
    k->used_vcores -= c->vcores;
    for (uint32_t i = 0; i < c->n_gpus; i++)
        mark_gpu(k, c->gpus[i], false);
    (void)resize_give_back(k);
    if (k->asks.n)
        containers_grant(k);
}

void container_release(struct keeper *k, struct container *c)
{
    if (c->state != CONTAINER_GRANTED)
        return;
    live_remove(k, c);
    give_back(k, c);
    container_free(k, c);
}

/* ---- launching ---- */

void container_queue(struct keeper *k, struct container *c)
{
    if (c->state != CONTAINER_GRANTED || k->state != KEEPER_RUNNING ||
        vec_push(&k->to_launch, c->number) < 0)
        return; /* launched already; or no memory */
    c->state = CONTAINER_QUEUED;
    k->n_alive++;
    k->n_most = MAX(k->n_most, k->n_alive);
}

static void gpus_text(const struct container *c, char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < c->n_gpus && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, i ? ",%u" : "%u", c->gpus[i]);
}

/* Everything that the i-th executor of a process has to know. It is complete before the fork,
 * because the child has no containers in its memory. */
static void configure(const struct keeper *k, const struct container *c, size_t i,
                      struct executor_config *out)
{
    static char ids[CREW_MAX][CONTAINER_ID_MAX], gpus[GPUS_MAX * 11]; /* no crew has GPUs */
    char *id = ids[i];
    (void)str_copy(id, sizeof ids[i], c->id);
    gpus_text(c, gpus, sizeof gpus);
    *out = (struct executor_config){ .application_id = k->app_id,
                                     .container_id = id,
                                     .home = k->paths.home,
                                     .job_dir = k->job_dir,
                                     .spare_dir = k->spare_dir,
                                     .master_socket = k->master_socket,
                                     .gpus = gpus,
                                     .machine_has_gpus = k->machine_has_gpus,
                                     .slot = c->slot,
                                     .memory_bytes = c->memory_mib << 20,
                                     .record = c->record,
                                     .keeper = getpid(),
                                     .nofile = k->nofile };
    if (k->kind == KEEPER_OF_NODE)
        out->remote = node_remote(k, c, id);
    (void)cgroup_of(&k->cgroup, id, &out->cgroup);
}

/* Runs in the child, which becomes the executors. It closes all descriptors of the keeper except
 * the first three, and keeps a copy of most of the keeper's memory. */
static _Noreturn void become_executors(const struct executor_config *cfgs, size_t n)
{
    close_range(3, ~0U, 0);
    executors_run(cfgs, n);
}

/* Make the group of a container. */
static bool has_group(const struct keeper *k, const struct container *c)
{
    struct cgroup g;
    struct err e = { 0 };
    uint64_t limit = c->memory_mib << 20;
    if (c->number <= k->cgroup.ready.n && limit == k->cgroup.ready.limit)
        return true; /* the last job has left it */
    return cgroup_of(&k->cgroup, c->id, &g) && cgroup_make(&g, limit, &e) == 0;
}

/* Only with its control group may an executor be one of a crew. */
static bool may_share(const struct keeper *k, struct container *c)
{
    c->in_crew = k->can_crew && c->plain && c->n_gpus == 0 && has_group(k, c);
    return c->in_crew;
}

/* Fork the process of the containers: one, or a crew. */
static pid_t launch(struct keeper *k, struct container *const *v, size_t n)
{
    static struct executor_config cfgs[CREW_MAX];
    for (size_t i = 0; i < n; i++) {
        if (record_take(k, v[i]) < 0)
            return -ENOMEM;
        configure(k, v[i], i, &cfgs[i]);
        cfgs[i].in_crew = v[i]->in_crew = n > 1;
        v[i]->n_others = (uint32_t)n - 1;
    }
    pid_t pid = fork();
    if (pid == 0)
        become_executors(cfgs, n);
    return pid == -1 ? -errno : pid;
}

static void settle(struct keeper *k, struct container *c);

static void launch_failed(struct keeper *k, struct container *c, int num)
{
    struct err e = { 0 };
    (void)err_set(&e, num, "cannot start an executor: %m%s", err_fork_cause(num));
    c->detail = str_dup(e.msg);
    c->reason = END_LAUNCH_FAILED;
    c->exit_code = 1;
    c->ended_us = clock_mono_us();
    settle(k, c);
}

static void launch_one_process(struct keeper *k, struct container *const *v, size_t n)
{
    pid_t pid = launch(k, v, n);
    for (size_t i = n; i-- > 0;) { /* container_by_pid() finds the last one first */
        if (pid < 0) {
            launch_failed(k, v[i], -pid);
            continue;
        }
        v[i]->pid = pid;
        v[i]->state = CONTAINER_RUNNING;
        pid_add(k, v[i]);
        beats_begin(k);
    }
}

/* In one process, as far as it gets their records. */
static void launch_all(struct keeper *k, struct container *const *v, size_t n)
{
    for (size_t i = 0, some; i < n; i += some) {
        some = MIN(n - i, MAX(record_room(k), (size_t)1));
        launch_one_process(k, v + i, some);
    }
}

/* How many executors a process gets, if n containers are launched now. The processes are of about
 * the same size, and there is one for each core if that leaves each enough. 1: n is too small. */
static size_t crew_size(const struct keeper *k, size_t n)
{
    cpu_set_t set;
    if (!k->can_crew || n < CREW_MIN)
        return 1;
    size_t cores = sched_getaffinity(0, sizeof set, &set) == 0 ? (size_t)CPU_COUNT(&set) : 1;
    size_t least = (n + CREW_MAX - 1) / CREW_MAX, n_crews = MAX(least, MIN(cores, n / CREW_MIN));
    return (n + n_crews - 1) / n_crews;
}

void containers_launch_some(struct keeper *k)
{
    if (k->to_launch.at < k->to_launch.n)
        ports_look(); /* once for all executors that are forked now */
    if (k->to_launch.at == 0 && k->to_launch.n >= LAUNCH_BATCH)
        (void)malloc_trim(0); /* give the freed buffers of large frames back to the kernel */
    struct container *crew[CREW_MAX];
    size_t n = 0;
    if (k->to_launch.at == 0)
        k->crew_size = crew_size(k, k->to_launch.n);
    for (int i = 0; i < LAUNCH_BATCH && k->to_launch.at < k->to_launch.n; i++) {
        struct container *c = container_by_number(k, k->to_launch.v[k->to_launch.at++]);
        if (!c || c->state != CONTAINER_QUEUED)
            continue; /* the container was stopped before its launch */
        if (k->crew_size > 1 && may_share(k, c))
            crew[n++] = c;
        else
            launch_all(k, &c, 1);
        if (n > 0 && n == k->crew_size) {
            launch_all(k, crew, n);
            n = 0;
        }
    }
    launch_all(k, crew, n);
    if (k->to_launch.at == k->to_launch.n)
        k->to_launch.at = k->to_launch.n = 0;
}

/* ---- stopping ---- */

void container_stop(struct keeper *k, struct container *c, uint32_t grace_ms)
{
    c->stopped = true;
    if (c->state == CONTAINER_GRANTED) {
        container_release(k, c);
    } else if (c->state == CONTAINER_QUEUED) {
        c->reason = END_KILLED_BY_MASTER;
        c->ended_us = clock_mono_us();
        settle(k, c);
    } else if (c->state == CONTAINER_RUNNING) {
        union sigval grace = { .sival_int = (int)MIN(grace_ms, (uint32_t)INT32_MAX) };
        c->record->stop_grace_ms = grace_ms;
        c->record->stop_asked = 1;
        (void)sigqueue(c->pid, SIGTERM, grace); /* the pid is valid: the child was not reaped yet */
        int64_t at = clock_mono_ms() + grace_ms + STOP_MARGIN_MS;
        c->kill_at_ms = MIN(c->kill_at_ms, at);
        k->next_kill_ms = MIN(k->next_kill_ms, c->kill_at_ms);
    }
}

void containers_stop_all(struct keeper *k, uint32_t grace_ms)
{
    containers_drop_asks(k);
    for (struct container *c = k->live.first, *after; c; c = after) {
        after = c->after; /* container_stop() may remove c from the list */
        container_stop(k, c, grace_ms);
    }
}

/* Is there no other container of this crew that may run on? */
static bool crew_is_late(const struct keeper *k, pid_t pid)
{
    const struct container *c = container_by_pid(k, pid);
    while (c && c->late)
        c = container_next_by_pid(c);
    return !c;
}

/*
 * An executor has not ended in time. If it is alone, the keeper kills it; its task dies with it,
 * and orphans become children of the keeper.
 *
 * A crew is killed if this holds for all containers that it has left. Until then the keeper kills
 * the processes of the container, and waits. A crew that does not react for long also sends no
 * heartbeats, and the master then stops all its containers.
 *
 * If the executor has seen the request, it waits for a process that cannot die, and killing it
 * would not help: ask again, so that a crew that hangs since then is found.
 */
static void kill_late(struct keeper *k, struct container *c, int64_t now_ms)
{
    bool seen = c->in_crew && c->record->stop_seen;
    struct cgroup g;
    c->late = !seen;
    c->kill_at_ms = now_ms + STOP_MARGIN_MS;
    if (seen) {
        c->record->stop_seen = 0;
        c->record->stop_asked = 1;
        (void)sigqueue(c->pid, SIGTERM, (union sigval){ 0 });
    } else if (c->in_crew && !crew_is_late(k, c->pid)) {
        if (cgroup_of(&k->cgroup, c->id, &g) && cgroup_kill(&g) > 0)
            log_event(LOG_WARN, "keeper.crew_late", f_str("container", c->id));
    } else {
        (void)kill(c->pid, SIGKILL);
        c->kill_at_ms = INT64_MAX;
    }
}

void containers_tick(struct keeper *k, int64_t now_ms)
{
    if (now_ms < k->next_kill_ms)
        return;
    k->next_kill_ms = INT64_MAX;
    for (struct container *c = k->live.first; c; c = c->after) {
        if (c->state != CONTAINER_RUNNING)
            continue;
        if (c->kill_at_ms <= now_ms)
            kill_late(k, c, now_ms);
        k->next_kill_ms = MIN(k->next_kill_ms, c->kill_at_ms);
    }
}

/* ---- ending ---- */

/* No process of the container is alive: write the exit to `exits`, then report it. */
static void settle(struct keeper *k, struct container *c)
{
    c->state = CONTAINER_ENDED;
    k->n_alive--;
    slots_find(k, c->slot)->ended = true;
    record_give_back(k, c);
    live_remove(k, c);
    exits_add_container(k, c);
    ends_add(k, c);
    give_back(k, c);
}

/* Why has a container ended whose executor has recorded nothing? */
static char *tell_executor_died(const struct container *c)
{
    AUTO(buf_done) struct buf text = { 0 };
    const char *name = c->signal ? sigabbrev_np(c->signal) : NULL;
    if (c->signal)
        buf_addf(&text, "its executor was killed by signal %d", c->signal);
    else
        buf_addf(&text, "its executor exited with code %d", c->exit_code);
    if (name)
        buf_addf(&text, " (SIG%s)", name);
    if (c->n_others)
        buf_addf(&text, "; the executors of %u other tasks were in the same process", c->n_others);
    return text.failed ? NULL : buf_steal(&text);
}

/* If the executor has recorded the end of its task, that counts, not the exit status of the
 * executor. */
static void take_record(struct container *c)
{
    const struct exit_record *r = c->record;
    if (r->ended) {
        c->exit_code = r->exit_code;
        c->signal = r->signal;
        c->reason = (enum end_reason)r->reason;
        c->ended_us = r->at_us;
        c->detail = r->detail[0] ? strndup(r->detail, sizeof r->detail) : NULL;
    } else if (c->stopped) {
        c->reason = END_KILLED_BY_MASTER;
    } else {
        c->reason = r->clean ? END_EXITED : END_UNKNOWN;
        if (!r->clean)
            c->detail = tell_executor_died(c);
    }
}

void container_exited(struct keeper *k, struct container *c, int status)
{
    pid_remove(k, c);
    c->ended_us = clock_mono_us();
    c->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    c->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    bool clean = c->record->clean;
    if (c->in_crew && clean) /* the status is that of the process */
        c->exit_code = c->signal = 0;
    left_look(&k->left);
    take_record(c);
    /* The cluster ends this run of the job. If it is not over, the next run reads the end. */
    if (k->kind == KEEPER_OF_NODE && k->state == KEEPER_TAKING_DOWN)
        c->reason = END_PREEMPTED;
    if (clean) {
        settle(k, c);
        return;
    }
    log_event(LOG_WARN, "keeper.executor_died", f_str("container", c->id),
              f_int("signal", c->signal), f_int("code", c->exit_code));
    c->state = CONTAINER_DRAINING;
    k->look_for_orphans = true;
    if (vec_push(&k->draining, c) < 0)
        settle(k, c); /* no memory: do not wait for the orphans; the keeper kills them anyway */
}

void crew_look(struct keeper *k, pid_t pid)
{
    struct container *c = pid ? container_by_pid(k, pid) : k->live.first, *next;
    for (; c; c = next) {
        next = pid ? container_next_by_pid(c) : c->after;
        if (c->state == CONTAINER_RUNNING && c->in_crew && c->record->clean)
            container_exited(k, c, 0);
    }
}

/* Kill all children that are not the master, an executor or the engine of left_remove(), with their
 * descendants: they are orphans of a dead executor. Returns how many children there were. */
static unsigned kill_orphans(struct keeper *k)
{
    struct pids children = { 0 }, descendants = { 0 };
    unsigned n = 0;
    proctree_children(getpid(), &children);
    for (size_t i = 0; i < children.n; i++) {
        if (children.v[i] == k->master_pid || children.v[i] == k->left.pid ||
            container_by_pid(k, children.v[i]))
            continue;
        descendants.n = 0;
        proctree_below(children.v[i], &descendants);
        (void)kill(children.v[i], SIGKILL);
        for (size_t b = 0; b < descendants.n; b++)
            (void)kill(descendants.v[b], SIGKILL);
        n++;
    }
    vec_done(&children);
    vec_done(&descendants);
    return n;
}

void containers_drain(struct keeper *k)
{
    unsigned left = kill_orphans(k);
    for (size_t i = 0; i < k->draining.n; i++) {
        struct cgroup g;
        if (cgroup_of(&k->cgroup, k->draining.v[i]->id, &g))
            left += cgroup_kill(&g);
    }
    k->look_for_orphans = left > 0;
    if (left)
        return; /* SIGCHLD or the timer continues */
    if (k->draining.n && left_remove(k))
        return; /* docker lets a container run on: its end continues */
    for (size_t i = 0; i < k->draining.n; i++)
        settle(k, k->draining.v[i]);
    k->draining.n = 0;
}
