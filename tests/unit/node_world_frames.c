/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames that the test exchanges with the keeper, as its master and as its pool, and with the
 * executors, as their master.
 */
#include "node_world.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/util.h"

/* ---- sending ---- */

#define SEND(l, which, case_, msg)                                                                 \
    do {                                                                                           \
        Tony__Frame f_ = TONY__FRAME__INIT;                                                        \
        f_.body_case = TONY__FRAME__BODY_##case_;                                                  \
        f_.which = (msg);                                                                          \
        (void)link_send((l), &f_);                                                                 \
    } while (0)

static bool is_registered(struct world *w)
{
    return w->registered;
}

void world_register(struct world *w, uint32_t epoch)
{
    w->epoch = epoch;
    w->registered = false;
    w->n_parts = w->n_registered = w->n_registered_done = 0;
    assert_int_equal(link_dial(&w->link, w->socket_k), 0);
    Tony__RegisterMaster m = TONY__REGISTER_MASTER__INIT;
    m.version = 1;
    m.epoch = epoch;
    m.pid = getpid();
    SEND(&w->link, register_master, REGISTER_MASTER, &m);
    assert_true(world_until(w, is_registered, WORLD_ANSWER_MS));
}

static bool has_state(struct world *w)
{
    return w->n_states > 0;
}

void world_pool_dial(struct world *w)
{
    link_close(&w->pool); /* close an earlier connection */
    assert_int_equal(link_dial(&w->pool, w->socket_k), 0);
    Tony__PoolHello m = TONY__POOL_HELLO__INIT;
    m.version = 1;
    m.pid = getpid();
    w->n_states = 0;
    SEND(&w->pool, pool_hello, POOL_HELLO, &m);
    assert_true(world_until(w, has_state, WORLD_ANSWER_MS));
}

void world_listen(struct world *w)
{
    struct err e = { 0 };
    w->listen_fd = link_listen(w->socket_m, &e);
    assert_true(w->listen_fd >= 0);
}

static bool all_answered(struct world *w)
{
    for (int i = 0; i < w->n; i++)
        if (!w->slots[i].granted && !w->slots[i].refused)
            return false;
    return true;
}

void world_ask(struct world *w, int n, uint64_t memory_mib, uint32_t gpus)
{
    Tony__Ask asks[WORLD_SLOTS], *list[WORLD_SLOTS];
    for (int i = 0; i < n; i++) {
        tony__ask__init(&asks[i]);
        asks[i].slot = (uint32_t)i;
        asks[i].memory_mib = memory_mib;
        asks[i].gpus = gpus;
        list[i] = &asks[i];
    }
    Tony__RequestContainers m = TONY__REQUEST_CONTAINERS__INIT;
    m.asks = list;
    m.n_asks = (size_t)n;
    w->n = n;
    SEND(&w->link, request_containers, REQUEST_CONTAINERS, &m);
    assert_true(world_until(w, all_answered, WORLD_ANSWER_MS));
}

static void send_asks(struct world *w, const struct world_wants *from, size_t m, bool whole)
{
    Tony__Ask asks[WORLD_SLOTS], *list[WORLD_SLOTS];
    for (size_t i = 0; i < m; i++) {
        tony__ask__init(&asks[i]);
        asks[i].slot = from[i].slot;
        asks[i].memory_mib = from[i].memory_mib;
        asks[i].gpus = from[i].gpus;
        asks[i].vcores = 1;
        list[i] = &asks[i];
    }
    Tony__WantContainers want = TONY__WANT_CONTAINERS__INIT;
    Tony__RequestContainers request = TONY__REQUEST_CONTAINERS__INIT;
    want.whole = request.asks = list;
    want.n_whole = request.n_asks = m;
    if (whole)
        SEND(&w->link, want_containers, WANT_CONTAINERS, &want);
    else
        SEND(&w->link, request_containers, REQUEST_CONTAINERS, &request);
}

void world_want(struct world *w, const struct world_wants *asks, size_t m)
{
    send_asks(w, asks, m, true);
}

void world_request(struct world *w, const struct world_wants *asks, size_t m)
{
    send_asks(w, asks, m, false);
}

void world_cancel(struct world *w, uint32_t slot, uint32_t number)
{
    Tony__CancelAsks m = TONY__CANCEL_ASKS__INIT;
    m.slots = &slot;
    m.n_slots = 1;
    m.number = number;
    SEND(&w->link, cancel_asks, CANCEL_ASKS, &m);
}

void world_ack_completed(struct world *w, uint64_t n)
{
    Tony__AckCompleted m = TONY__ACK_COMPLETED__INIT;
    m.n = n;
    SEND(&w->link, ack_completed, ACK_COMPLETED, &m);
}

void world_admit(struct world *w, uint32_t number, uint64_t memory_mib, const uint32_t *gpus,
                 size_t n_gpus)
{
    Tony__Admit m = TONY__ADMIT__INIT;
    m.number = number;
    m.memory_mib = memory_mib;
    m.gpus = (uint32_t *)(uintptr_t)gpus;
    m.n_gpus = n_gpus;
    SEND(&w->pool, admit, ADMIT, &m);
}

void world_refuse(struct world *w, uint32_t number, uint32_t wants_number, const char *why)
{
    Tony__Admit m = TONY__ADMIT__INIT;
    m.number = number;
    m.memory_mib = w->holds.memory_mib;
    m.gpus = w->holds.gpus;
    m.n_gpus = w->holds.n_gpus;
    m.wants_number = wants_number;
    m.refused = (char *)(uintptr_t)why;
    SEND(&w->pool, admit, ADMIT, &m);
}

void world_bounds(struct world *w, uint32_t min, uint32_t max)
{
    world_cost(w, min, max, -1);
}

void world_cost(struct world *w, uint32_t min, uint32_t max, int64_t cost_ms)
{
    Tony__SizeBounds m = TONY__SIZE_BOUNDS__INIT;
    m.min_containers = min;
    m.max_containers = max;
    m.cost_known = cost_ms >= 0;
    m.cost_ms = m.cost_known ? (uint64_t)cost_ms : 0;
    SEND(&w->link, size_bounds, SIZE_BOUNDS, &m);
}

void world_outlook(struct world *w, bool known, uint64_t min_ms, uint64_t max_ms)
{
    Tony__Outlook m = TONY__OUTLOOK__INIT;
    m.known = known;
    m.left_min_ms = min_ms;
    m.left_max_ms = max_ms;
    SEND(&w->link, outlook, OUTLOOK, &m);
}

void world_wish(struct world *w, bool grow, uint32_t n, uint64_t deadline_ms)
{
    Tony__SizeWish m = TONY__SIZE_WISH__INIT;
    m.grow = grow;
    m.n_containers = n;
    m.deadline_ms = deadline_ms;
    m.why = (char *)(uintptr_t) "others wait";
    SEND(&w->pool, size_wish, SIZE_WISH, &m);
}

void world_launch(struct world *w, int n)
{
    Tony__Container c[WORLD_SLOTS], *list[WORLD_SLOTS];
    for (int i = 0; i < n; i++) {
        tony__container__init(&c[i]);
        c[i].id = w->slots[i].container;
        c[i].slot = (uint32_t)i;
        c[i].plain = w->plain;
        list[i] = &c[i];
    }
    Tony__LaunchContainers m = TONY__LAUNCH_CONTAINERS__INIT;
    m.containers = list;
    m.n_containers = (size_t)n;
    SEND(&w->link, launch_containers, LAUNCH_CONTAINERS, &m);
}

void world_run(struct world *w, int n, const char *command)
{
    w->command = command;
    if (!w->registered)
        world_register(w, 1);
    if (w->listen_fd < 0)
        world_listen(w);
    world_ask(w, n, 64, 0);
    world_launch(w, n);
    assert_true(world_until(w, all_completed, WORLD_ANSWER_MS));
}

void world_start(struct world *w, int slot, uint32_t attempt)
{
    char list[WORLD_SLOTS * 40] = "";
    for (int i = 0; i < w->n; i++) {
        size_t at = strlen(list);
        if (w->slots[i].hello)
            snprintf(list + at, sizeof list - at, "%s\"127.0.0.1:%u\"", i ? "," : "",
                     w->slots[i].port);
        else
            snprintf(list + at, sizeof list - at, "%s\"\"", i ? "," : "");
    }
    Tony__SpecRole role = TONY__SPEC_ROLE__INIT, *roles[1] = { &role };
    role.name = (char *)"worker";
    role.addresses = list;
    role.n = (uint32_t)w->n;
    role.kind = 1;
    Tony__ClusterSpec spec = TONY__CLUSTER_SPEC__INIT;
    spec.generation = 1;
    spec.roles = roles;
    spec.n_roles = 1;
    Tony__Start m = TONY__START__INIT;
    m.generation = 1;
    m.attempt = attempt;
    m.spec = &spec;
    SEND(&w->slots[slot].link, start, START, &m);
}

void world_stop(struct world *w, int slot, uint32_t grace_ms, Tony__Reason reason)
{
    Tony__StopAttempt m = TONY__STOP_ATTEMPT__INIT;
    m.generation = 1;
    m.attempt = 1;
    m.grace_ms = grace_ms;
    m.reason = reason;
    SEND(&w->slots[slot].link, stop_attempt, STOP_ATTEMPT, &m);
}

void world_want_own_beats(struct world *w, int slot)
{
    Tony__OwnBeats m = TONY__OWN_BEATS__INIT;
    SEND(&w->slots[slot].link, own_beats, OWN_BEATS, &m);
}

void world_stop_container(struct world *w, int slot, uint32_t grace_ms)
{
    Tony__StopContainer m = TONY__STOP_CONTAINER__INIT;
    m.id = w->slots[slot].container;
    m.grace_ms = grace_ms;
    SEND(&w->link, stop_container, STOP_CONTAINER, &m);
}

void world_ack(struct world *w, int slot, uint32_t attempt, bool finish)
{
    Tony__AckEnded m = TONY__ACK_ENDED__INIT;
    m.generation = 1;
    m.attempt = attempt;
    m.finish = finish;
    SEND(&w->slots[slot].link, ack_ended, ACK_ENDED, &m);
}

void world_finish(struct world *w, const char *state)
{
    Tony__FinishJob m = TONY__FINISH_JOB__INIT;
    m.state = (char *)(uintptr_t)state;
    SEND(&w->link, finish_job, FINISH_JOB, &m);
    /* The stand-in for the master does not end by itself, as a real one does. */
    AUTO(buf_done) struct buf text = { 0 };
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", w->keeper, w->keeper);
    if (w->keeper > 0 && fs_read(AT_FDCWD, path, &text, NULL) == 0 && text.len)
        kill((pid_t)strtol(text.p, NULL, 10), SIGTERM);
}

static void welcome(struct world *w, struct link *l, uint32_t slot)
{
    char log_dir[256];
    snprintf(log_dir, sizeof log_dir, "%s/logs", w->job_dir);
    Tony__Welcome m = TONY__WELCOME__INIT;
    Tony__KeyValue kv = TONY__KEY_VALUE__INIT, *kvs[1] = { &kv };
    m.epoch = w->epoch;
    m.application_id = (char *)(uintptr_t)w->app;
    m.role = (char *)"worker";
    m.index = slot;
    m.heartbeat_ms = w->heartbeat_ms;
    m.quiet_ms = w->quiet_ms;
    m.framework = (char *)(uintptr_t)w->framework;
    m.distributed_mode = (char *)(uintptr_t)w->mode;
    m.command = (char *)(uintptr_t)w->command;
    m.log_dir = log_dir;
    m.kill_grace_ms = w->kill_grace_ms;
    m.master_away_ms = w->master_away_ms;
    m.execution_timeout_ms = w->execution_timeout_ms;
    m.mounts = w->mounts;
    m.n_mounts = w->n_mounts;
    m.n_tracked = (uint32_t)w->n;
    m.chief = slot == 0;
    m.job_name = (char *)"test";
    if (w->env) {
        static char key[64];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(w->env, "="), w->env);
        kv.key = key;
        kv.value = (char *)(uintptr_t)strchr(w->env, '=') + 1;
        m.execution_env = kvs;
        m.n_execution_env = 1;
    }
    SEND(l, welcome, WELCOME, &m);
}

/* ---- receiving ---- */

static void copy(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "");
}

static void on_ended(struct world *w, int slot, const Tony__AttemptEnded *m)
{
    struct world_slot *s = &w->slots[slot];
    s->ended = true;
    s->n_ended++;
    s->exit_code = m->exit_code;
    s->signal = m->signal;
    s->reason = m->reason;
    s->age_us = m->age_us;
    copy(s->detail, sizeof s->detail, m->detail);
    copy(s->tail, sizeof s->tail, m->stderr_tail);
    if (!w->hold_ack)
        world_ack(w, slot, m->attempt, !w->keep_after_ack);
}

static void on_executor(struct world *w, struct link *l, const Tony__Frame *f, int slot)
{
    struct world_slot *s = slot >= 0 ? &w->slots[slot] : NULL;
    if (f->body_case == TONY__FRAME__BODY_EXECUTOR_HELLO) {
        const Tony__ExecutorHello *h = f->executor_hello;
        s = &w->slots[h->slot];
        assert_string_equal(h->container_id, s->container);
        s->hello = true;
        s->n_hellos++;
        s->executor = h->pid;
        s->port = h->ports[0];
        s->tb_port = h->tb_port;
        s->hello_attempt = h->attempt;
        s->running_at_hello = h->running;
        welcome(w, l, h->slot);
        link_close(&s->link);
        s->link = *l;
        *l = (struct link){ .fd = -1 };
        for (size_t i = 0; i < h->n_unacked; i++)
            on_ended(w, (int)h->slot, h->unacked[i]);
        if (!w->hold_start && !h->attempt)
            world_start(w, (int)h->slot, 1);
    } else if (f->body_case == TONY__FRAME__BODY_ATTEMPT_STARTED) {
        s->started = true;
        s->task = f->attempt_started->pid;
    } else if (f->body_case == TONY__FRAME__BODY_ATTEMPT_ENDED) {
        on_ended(w, slot, f->attempt_ended);
    } else if (f->body_case == TONY__FRAME__BODY_BEAT) {
        s->beats++;
    }
}

static void on_container(struct world *w, const Tony__Container *c, bool completed)
{
    struct world_slot *s = &w->slots[c->slot];
    if (completed && strcmp(s->container, c->id) == 0) {
        s->completed = true;
        s->n_completed++;
        s->exit_status = c->exit_status;
        s->completed_reason = c->reason;
        copy(s->completed_detail, sizeof s->completed_detail, c->detail);
    } else if (!completed) {
        s->granted = true;
        copy(s->container, sizeof s->container, c->id);
        s->n_gpus = MIN(c->n_gpus, (size_t)8);
        for (size_t i = 0; i < s->n_gpus; i++)
            s->gpus[i] = c->gpus[i];
    }
}

static void on_state(struct world *w, const Tony__KeeperState *s)
{
    Tony__EndHeard heard = TONY__END_HEARD__INIT;
    w->n_states++;
    w->finished = s->finished;
    if (s->finished) /* else the keeper would wait */
        SEND(&w->pool, end_heard, END_HEARD, &heard);
    copy(w->state, sizeof w->state, s->state);
    w->holds = (struct world_holds){ .memory_mib = s->memory_mib,
                                     .wants_mib = s->wants_memory_mib,
                                     .n_gpus = (uint32_t)s->n_gpus,
                                     .wants_gpus = s->wants_gpus,
                                     .wants_n = s->wants_containers,
                                     .wants_number = s->wants_number,
                                     .heard = s->admit_heard,
                                     .min_containers = s->min_containers,
                                     .max_containers = s->max_containers,
                                     .ends_early_ms = s->ends_early_ms,
                                     .ends_late_ms = s->ends_late_ms,
                                     .cost_ms = s->cost_known ? (int64_t)s->cost_ms : -1,
                                     .wants_since_ms = s->wants_since_ms };
    for (size_t i = 0; i < s->n_gpus && i < 8; i++)
        w->holds.gpus[i] = s->gpus[i];
}

static void on_allocated(struct world *w, const Tony__ContainersAllocated *a)
{
    for (size_t i = 0; i < a->n_containers; i++)
        on_container(w, a->containers[i], false);
    for (size_t i = 0; i < a->n_refused_slots; i++)
        w->slots[a->refused_slots[i]].refused = true;
    if (a->n_refused_slots)
        copy(w->why, sizeof w->why, a->why);
    if (a->cancelled)
        w->cancelled = a->cancelled;
}

static void on_keeper(struct world *w, const Tony__Frame *f)
{
    if (f->body_case == TONY__FRAME__BODY_REGISTERED) {
        w->registered = !f->registered->more;
        w->n_parts++;
        w->n_registered += (int)f->registered->n_containers;
        for (size_t i = 0; i < f->registered->n_containers; i++) {
            const Tony__Container *c = f->registered->containers[i];
            w->n_registered_done += c->completed;
            on_container(w, c, c->completed);
        }
    } else if (f->body_case == TONY__FRAME__BODY_CONTAINERS_ALLOCATED) {
        on_allocated(w, f->containers_allocated);
    } else if (f->body_case == TONY__FRAME__BODY_CONTAINERS_COMPLETED) {
        for (size_t i = 0; i < f->containers_completed->n_containers; i++)
            on_container(w, f->containers_completed->containers[i], true);
    } else if (f->body_case == TONY__FRAME__BODY_ALIVE) {
        for (size_t i = 0; i < f->alive->n_slots; i++)
            w->slots[f->alive->slots[i]].alive++;
    } else if (f->body_case == TONY__FRAME__BODY_KEEPER_STATE) {
        on_state(w, f->keeper_state);
    } else if (f->body_case == TONY__FRAME__BODY_SIZE_WISH) {
        w->n_wishes++;
        w->wish_n = f->size_wish->n_containers;
        w->wish_ms = f->size_wish->deadline_ms;
        w->wish_grows = f->size_wish->grow;
        copy(w->why, sizeof w->why, f->size_wish->why);
    } else if (f->body_case == TONY__FRAME__BODY_REFUSED) {
        copy(w->state, sizeof w->state, "REFUSED");
    }
}

static void hear(struct world *w, struct link *l, int slot)
{
    const Tony__Frame *f;
    struct err e = { 0 };
    int gone = link_fill(l);
    while (l->fd >= 0 && link_next(l, &f, &e) == 1) {
        if (slot >= 0)
            on_executor(w, l, f, slot);
        else
            on_keeper(w, f);
    }
    if (gone < 0)
        link_close(l);
}

/* The first frame of a new connection says which process it comes from. */
static void hear_new(struct world *w)
{
    struct link l;
    while (link_accept(w->listen_fd, &l) == 1) {
        const Tony__Frame *f;
        struct err e = { 0 };
        for (int i = 0; i < 1000 && l.fd >= 0; i++) {
            struct pollfd p = { .fd = l.fd, .events = POLLIN };
            (void)poll(&p, 1, 100);
            int gone = link_fill(&l);
            if (link_next(&l, &f, &e) == 1) {
                on_executor(w, &l, f, -1);
                break;
            }
            if (gone < 0)
                break;
        }
        link_close(&l);
    }
}

bool world_until(struct world *w, bool (*done)(struct world *w), int ms)
{
    int64_t until = clock_mono_ms() + ms;
    while (!done(w)) {
        struct pollfd p[3 + WORLD_SLOTS];
        int64_t left = until - clock_mono_ms();
        if (left <= 0)
            return false;
        p[0] = (struct pollfd){ .fd = w->link.fd, .events = POLLIN };
        p[1] = (struct pollfd){ .fd = w->pool.fd, .events = POLLIN };
        p[2] = (struct pollfd){ .fd = w->listen_fd, .events = POLLIN };
        for (int i = 0; i < w->n; i++)
            p[3 + i] = (struct pollfd){ .fd = w->slots[i].link.fd, .events = POLLIN };
        if (poll(p, (nfds_t)(3 + w->n), (int)MIN(left, (int64_t)100)) <= 0)
            continue;
        if (p[0].revents)
            hear(w, &w->link, -1);
        if (p[1].revents)
            hear(w, &w->pool, -1);
        for (int i = 0; i < w->n; i++)
            if (p[3 + i].revents && p[3 + i].fd == w->slots[i].link.fd)
                hear(w, &w->slots[i].link, i);
        if (p[2].revents)
            hear_new(w);
    }
    return true;
}

#define ALL(name, field)                                                                           \
    bool name(struct world *w)                                                                     \
    {                                                                                              \
        for (int i = 0; i < w->n; i++)                                                             \
            if (!w->slots[i].field)                                                                \
                return false;                                                                      \
        return true;                                                                               \
    }
ALL(all_hello, hello)
ALL(all_started, started)
ALL(all_ended, ended)
ALL(all_completed, completed)

bool never(struct world *w)
{
    (void)w;
    return false;
}
