/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The local back-end against a keeper that the test plays: its messages, its handling of the
 * answers, and its end.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/util.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "scheduler/scheduler.h"
#include "storage/paths.h"

struct stage {
    char dir[64];
    char id[APP_ID_MAX];
    struct loop *loop;
    struct listener *listener;
    struct conn *keeper; /* the keeper's side of the connection */
    const struct sched_ops *ops;
    struct sched *sched;
    struct loop_timer *watchdog;
    bool timed_out;
    char heard[512]; /* messages to the keeper, and calls to the master: "> asks 3, < allocated
                        container_1:0[0,2]" */
    uint32_t epoch;
    bool drop_on_register, refuse;
    bool refuse_whole; /* the pool refuses the whole demand of the job */
    bool refuse_late;  /* it refuses the first demand after the master has sent the second one */
    unsigned n_wanted;
    bool finish_done;
    /* The calls of the master after it has registered; NULL = those of a whole job. */
    void (*script)(struct stage *s);
    bool in_parts; /* the keeper's answer to the registration has two parts */
    /* The journal has the ends when the back-end asks for the n-th time; 0 = never. */
    unsigned stored_at, n_stored_asked;
    unsigned n_grants; /* of a script's keeper; each grant gets a new id */
};

static void note(struct stage *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(struct stage *s, const char *fmt, ...)
{
    size_t n = strlen(s->heard);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(s->heard + n, sizeof s->heard - n, fmt, ap);
    va_end(ap);
}

/* ---- the keeper ---- */

static void keeper_send(struct stage *s, const Tony__Frame *f)
{
    assert_int_equal(conn_send(s->keeper, f), 0);
}

static void keeper_registered(struct stage *s)
{
    Tony__Container a = TONY__CONTAINER__INIT, b = TONY__CONTAINER__INIT, *list[] = { &a, &b };
    a.id = (char *)(uintptr_t) "c_1";
    a.launched = true;
    b.id = (char *)(uintptr_t) "c_2";
    b.slot = 1;
    b.completed = true;
    b.exit_status = 137;
    b.reason = (Tony__Reason)99; /* a reason that only a later version knows */
    Tony__Registered r = TONY__REGISTERED__INIT;
    r.n_containers = s->in_parts ? 1 : 2;
    r.containers = list;
    r.more = s->in_parts;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_REGISTERED;
    f.registered = &r;
    keeper_send(s, &f);
    if (!s->in_parts)
        return;
    r.containers = list + 1;
    r.more = false;
    keeper_send(s, &f);
}

static void keeper_allocate(struct stage *s, const Tony__RequestContainers *q)
{
    Tony__Container v[8], *list[8];
    uint32_t gpus[] = { 0, 2 }, refused = 7;
    Tony__ContainersAllocated a = TONY__CONTAINERS_ALLOCATED__INIT;
    static char ids[8][8];
    for (size_t i = 0; i < q->n_asks; i++) {
        tony__container__init(&v[i]);
        (void)snprintf(ids[i], sizeof ids[i], "c_%u", q->asks[i]->slot);
        v[i].id = ids[i];
        v[i].slot = q->asks[i]->slot;
        v[i].n_gpus = q->asks[i]->gpus;
        v[i].gpus = gpus;
        list[i] = &v[i];
    }
    a.n_containers = q->n_asks;
    a.containers = list;
    a.n_refused_slots = 1;
    a.refused_slots = &refused;
    a.why = (char *)(uintptr_t) "too large";
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_CONTAINERS_ALLOCATED;
    f.containers_allocated = &a;
    keeper_send(s, &f);
}

static void keeper_complete(struct stage *s, const char *id)
{
    Tony__Container c = TONY__CONTAINER__INIT, *list[] = { &c };
    c.id = (char *)(uintptr_t)id;
    c.slot = 3;
    c.completed = true;
    c.exit_status = 143;
    c.reason = TONY__REASON__KILLED_BY_MASTER;
    c.age_us = 1500;
    c.detail = (char *)(uintptr_t) "stopped";
    Tony__ContainersCompleted m = TONY__CONTAINERS_COMPLETED__INIT;
    m.n_containers = 1;
    m.containers = list;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_CONTAINERS_COMPLETED;
    f.containers_completed = &m;
    keeper_send(s, &f);
}

/* For scripts: the ids are g1, g2, ... in the order of the grants. */
static void keeper_grant(struct stage *s, uint32_t slot)
{
    char id[16];
    Tony__Container c = TONY__CONTAINER__INIT, *list[] = { &c };
    (void)snprintf(id, sizeof id, "g%u", ++s->n_grants);
    c.id = id;
    c.slot = slot;
    Tony__ContainersAllocated a = TONY__CONTAINERS_ALLOCATED__INIT;
    a.n_containers = 1;
    a.containers = list;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_CONTAINERS_ALLOCATED;
    f.containers_allocated = &a;
    keeper_send(s, &f);
}

static void keeper_confirm(struct stage *s, const Tony__CancelAsks *m)
{
    for (size_t i = 0; i < m->n_slots; i++)
        note(s, "> cancel %u, ", m->slots[i]);
    Tony__ContainersAllocated a = TONY__CONTAINERS_ALLOCATED__INIT;
    a.cancelled = m->number;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_CONTAINERS_ALLOCATED;
    f.containers_allocated = &a;
    keeper_send(s, &f);
}

static void keeper_wishes(struct stage *s, bool grow, uint32_t n)
{
    Tony__SizeWish w = TONY__SIZE_WISH__INIT;
    w.n_containers = n;
    w.deadline_ms = 1500;
    w.grow = grow;
    w.why = (char *)(uintptr_t) "others wait";
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_SIZE_WISH;
    f.size_wish = &w;
    keeper_send(s, &f);
}

static void keeper_refuse_whole(struct stage *s)
{
    uint32_t slots[] = { 8, 70000 };
    Tony__ContainersAllocated a = TONY__CONTAINERS_ALLOCATED__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    a.n_refused_slots = ARRAY_LEN(slots);
    a.refused_slots = slots;
    a.not_asked = true;
    a.why = (char *)(uintptr_t) "too large";
    f.body_case = TONY__FRAME__BODY_CONTAINERS_ALLOCATED;
    f.containers_allocated = &a;
    keeper_send(s, &f);
}

/* The keeper has sent these before it received the second demand: it refuses slot 5, which was
 * asked for, and the whole demand in the name of slot 8. Then it refuses slot 6 for the second one.
 */
static void keeper_refuses_late(struct stage *s)
{
    uint32_t slots[] = { 5, 8, 6 };
    for (size_t i = 0; i < ARRAY_LEN(slots); i++) {
        Tony__ContainersAllocated a = TONY__CONTAINERS_ALLOCATED__INIT;
        Tony__Frame f = TONY__FRAME__INIT;
        a.n_refused_slots = 1;
        a.refused_slots = &slots[i];
        a.not_asked = i == 1;
        a.demand = i < 2 ? 2 : 3;
        a.why = (char *)(uintptr_t) "too large";
        f.body_case = TONY__FRAME__BODY_CONTAINERS_ALLOCATED;
        f.containers_allocated = &a;
        keeper_send(s, &f);
    }
}

static void keeper_wanted(struct stage *s, const Tony__WantContainers *m)
{
    uint64_t mib = 0;
    for (size_t i = 0; i < m->n_whole; i++)
        mib += m->whole[i]->memory_mib;
    note(s, "> whole of %zu with %u MiB, ", m->n_whole, (unsigned)mib);
    if (s->refuse_late) {
        if (++s->n_wanted == 2)
            keeper_refuses_late(s);
        return;
    }
    if (s->refuse_whole)
        keeper_refuse_whole(s);
    else
        keeper_wishes(s, false, 2);
    keeper_wishes(s, true, 9);
}

static void keeper_refuse(struct stage *s)
{
    Tony__Refused r = TONY__REFUSED__INIT;
    r.num = ESTALE;
    r.message = (char *)(uintptr_t) "a newer master is here";
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_REFUSED;
    f.refused = &r;
    keeper_send(s, &f);
}

static void keeper_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct stage *s = arg;
    switch ((int)f->body_case) {
    case TONY__FRAME__BODY_REGISTER_MASTER:
        note(s, "> register %u, ", f->register_master->epoch);
        if (s->drop_on_register) {
            conn_close(c);
            s->keeper = NULL;
        } else if (s->refuse) {
            keeper_refuse(s);
        } else {
            keeper_registered(s);
        }
        break;
    case TONY__FRAME__BODY_WANT_CONTAINERS:
        keeper_wanted(s, f->want_containers);
        break;
    case TONY__FRAME__BODY_SIZE_BOUNDS:
        note(s, "> from %u to %u, ", f->size_bounds->min_containers,
             f->size_bounds->max_containers);
        break;
    case TONY__FRAME__BODY_CANCEL_ASKS:
        keeper_confirm(s, f->cancel_asks);
        break;
    case TONY__FRAME__BODY_REQUEST_CONTAINERS:
        for (size_t i = 0; s->script && i < f->request_containers->n_asks; i++)
            keeper_grant(s, f->request_containers->asks[i]->slot);
        if (s->script)
            break;
        note(s, "> asks %zu (%u MiB), ", f->request_containers->n_asks,
             (unsigned)f->request_containers->asks[0]->memory_mib);
        keeper_allocate(s, f->request_containers);
        break;
    case TONY__FRAME__BODY_LAUNCH_CONTAINERS:
        note(s, "> launch %zu %s, ", f->launch_containers->n_containers,
             f->launch_containers->containers[0]->id);
        break;
    case TONY__FRAME__BODY_STOP_CONTAINER:
        note(s, "> stop %s %u, ", f->stop_container->id, f->stop_container->grace_ms);
        keeper_complete(s, f->stop_container->id);
        break;
    case TONY__FRAME__BODY_RELEASE_CONTAINERS:
        note(s, "> release %zu %s, ", f->release_containers->n_ids, f->release_containers->ids[0]);
        break;
    case TONY__FRAME__BODY_ACK_COMPLETED:
        note(s, "> ack %u, ", (unsigned)f->ack_completed->n);
        loop_stop(s->loop);
        break;
    case TONY__FRAME__BODY_FINISH_JOB:
        note(s, "> finish %s, ", f->finish_job->state);
        break;
    default:
        fail_msg("the keeper heard frame %d", (int)f->body_case);
    }
}

static void keeper_closed(struct conn *c, const struct err *e, void *arg)
{
    (void)c;
    (void)e;
    ((struct stage *)arg)->keeper = NULL;
}

static const struct conn_ops keeper_ops = { .on_frame = keeper_frame, .on_close = keeper_closed };

static void keeper_accept(struct conn *c, void *arg)
{
    struct stage *s = arg;
    s->keeper = c;
    conn_set_arg(c, &keeper_ops, s);
}

/* ---- the master's side: each answer leads to the next call ---- */

static void finish_done(void *arg)
{
    struct stage *s = arg;
    s->finish_done = true;
    note(s, "< done");
    loop_stop(s->loop);
}

static void on_registered(struct stage *s, const struct sched_event *ev)
{
    assert_int_equal(ev->n, 2);
    assert_string_equal(ev->containers[0].id, "c_1");
    assert_true(ev->containers[0].launched && !ev->containers[0].completed);
    assert_true(ev->containers[1].completed);
    assert_int_equal(ev->containers[1].exit_code, 137);
    assert_int_equal(ev->containers[1].reason, END_UNKNOWN);
    note(s, "< registered, ");
    if (s->script) {
        s->script(s);
        return;
    }
    struct sched_ask asks[] = { { .slot = 3, .memory_mib = 64, .gpus = 2 },
                                { .slot = 4, .memory_mib = 1 } };
    assert_int_equal(s->ops->request(s->sched, asks, 2, NULL), 0);
}

static void on_allocated(struct stage *s, const struct sched_event *ev)
{
    for (size_t i = 0; i < ev->n; i++)
        note(s, "< %s:%u[%s], ", ev->containers[i].id, ev->containers[i].slot,
             ev->containers[i].gpus);
    if (s->script) {
        if (ev->containers[0].slot == 5)
            loop_stop(s->loop);
        return;
    }
    const char *ids[] = { ev->containers[1].id };
    assert_int_equal(s->ops->release(s->sched, ids, 1, NULL), 0);
    assert_int_equal(s->ops->launch(s->sched, ev->containers, 1, NULL), 0);
    assert_int_equal(s->ops->stop(s->sched, ev->containers[0].id, 500, NULL), 0);
}

static void on_event(const struct sched_event *ev, void *arg)
{
    struct stage *s = arg;
    if (ev->type == SE_REGISTERED) {
        on_registered(s, ev);
    } else if (ev->type == SE_ALLOCATED) {
        on_allocated(s, ev);
    } else if (ev->type == SE_REFUSED) {
        note(s, "< refused %u %s, ", ev->slot, ev->text);
    } else if (ev->type == SE_COMPLETED) {
        const struct sched_container *c = &ev->containers[0];
        note(s, "< completed %s %d %s %u %s, ", c->id, c->exit_code, end_reason_name(c->reason),
             (unsigned)c->age_us, c->detail);
        assert_int_equal(s->ops->finish(s->sched, "FAILED", "why", finish_done, NULL), 0);
    } else if (ev->type == SE_SHRINK || ev->type == SE_GROW) {
        note(s, "< %s to %zu in %lld ms: %s, ", ev->type == SE_GROW ? "grow" : "shrink", ev->n,
             (long long)ev->deadline_ms, ev->text);
        if (ev->type == SE_GROW)
            loop_stop(s->loop);
    } else if (ev->type == SE_BROKEN) {
        note(s, "< broken: %s", ev->text);
        loop_stop(s->loop);
    }
}

static void on_watchdog(void *arg)
{
    struct stage *s = arg;
    s->timed_out = true;
    loop_stop(s->loop);
}

static bool is_stored(void *arg)
{
    struct stage *s = arg;
    return ++s->n_stored_asked >= s->stored_at && s->stored_at;
}

static int open_sched(struct stage *s, struct err *e)
{
    struct sched_config cfg = { .loop = s->loop,
                                .epoch = s->epoch,
                                .application_id = s->id,
                                .job_dir = s->dir,
                                .runtime_dir = s->dir,
                                .stored = is_stored,
                                .on_event = on_event,
                                .arg = s };
    return s->ops->open(&cfg, &s->sched, e);
}

static void keeper_listen(void *arg)
{
    struct stage *s = arg;
    struct err e = { 0 };
    char path[100];
    (void)snprintf(path, sizeof path, "%s/12.k", s->dir);
    assert_int_equal(listener_open_unix(s->loop, path, keeper_accept, s, &s->listener, &e), 0);
}

static void stage_init(struct stage *s)
{
    struct err e = { 0 };
    *s = (struct stage){ .dir = "/tmp/tony-l-XXXXXX", .epoch = 4, .ops = sched_find("local") };
    assert_non_null(mkdtemp(s->dir));
    assert_non_null(s->ops);
    app_id_format(s->id, 1, 12);
    s->loop = loop_new(&e);
    s->watchdog = loop_timer_new(s->loop, on_watchdog, s);
    loop_timer_set(s->watchdog, clock_mono_ms() + 60000);
    keeper_listen(s);
}

static void stage_run(struct stage *s)
{
    struct err e = { 0 };
    assert_int_equal(open_sched(s, &e), 0);
    assert_string_equal(s->heard, ""); /* no callback before open() has returned */
    (void)loop_run(s->loop);
    assert_false(s->timed_out);
    s->ops->close(s->sched);
}

static void stage_done(struct stage *s)
{
    conn_close(s->keeper);
    listener_close(s->listener);
    loop_timer_free(s->watchdog);
    loop_free(s->loop);
    (void)fs_remove_tree(AT_FDCWD, s->dir, NULL);
}

static void all_messages_of_a_job(void **state)
{
    (void)state;
    static const char all[] =
        "> register 4, < registered, > asks 2 (64 MiB), < c_3:3[0,2], < c_4:4[], "
        "< refused 7 too large, > release 1 c_4, > launch 1 c_3, > stop c_3 500, "
        "< completed c_3 143 killed_by_master 1500 stopped, > finish FAILED, < done";
    struct stage s;
    stage_init(&s);
    stage_run(&s);
    assert_true(s.finish_done);
    for (int i = 0; i < 1000 && strlen(s.heard) < sizeof all - 1; i++) {
        loop_timer_set(s.watchdog, clock_mono_ms() + 5);
        (void)loop_run(s.loop); /* the keeper reads the frames that are left for it */
    }
    assert_string_equal(s.heard, all);
    stage_done(&s);
}

static void the_keeper_disconnects(void **state)
{
    (void)state;
    struct stage s;
    stage_init(&s);
    s.drop_on_register = true;
    stage_run(&s);
    assert_non_null(strstr(s.heard, "< broken: "));
    struct err e = { 0 };
    stage_done(&s);
    (void)e;
}

static void a_keeper_that_refuses(void **state)
{
    (void)state;
    struct stage s;
    stage_init(&s);
    s.refuse = true;
    stage_run(&s);
    assert_non_null(strstr(s.heard, "< broken: a newer master is here"));
    stage_done(&s);
}

static void no_keeper_at_all(void **state)
{
    (void)state;
    struct stage s;
    struct err e = { 0 };
    stage_init(&s);
    listener_close(TAKE(s.listener));
    assert_true(open_sched(&s, &e) < 0);
    assert_non_null(strstr(e.msg, "keeper"));
    stage_done(&s);
}

/* The first master starts together with its keeper, which may listen later than the master
 * connects. */
static void the_keeper_listens_late(void **state)
{
    (void)state;
    struct stage s;
    stage_init(&s);
    listener_close(TAKE(s.listener));
    s.epoch = 1;
    s.refuse = true;
    struct loop_timer *later = loop_timer_new(s.loop, keeper_listen, &s);
    loop_timer_set(later, clock_mono_ms() + 5); /* after the first attempt, which open() makes */
    stage_run(&s);
    assert_non_null(strstr(s.heard, "< broken: a newer master is here"));
    loop_timer_free(later);
    stage_done(&s);
}

static void request_one(struct stage *s, uint32_t slot)
{
    struct sched_ask a = { .slot = slot, .memory_mib = 1 };
    assert_int_equal(s->ops->request(s->sched, &a, 1, NULL), 0);
}

static void cancel_one(struct stage *s, uint32_t slot)
{
    assert_int_equal(s->ops->cancel(s->sched, &slot, 1, NULL), 0);
}

static void asks_and_cancels(struct stage *s)
{
    cancel_one(s, 5); /* no request exists */
    request_one(s, 5);
    cancel_one(s, 5);
    cancel_one(s, 5); /* the request is no longer open */
    request_one(s, 4000000000);
    request_one(s, 5);
}

/* The keeper answers the first request before it hears that the request was withdrawn. */
static void a_cancel_that_crosses_the_grant(void **state)
{
    (void)state;
    struct stage s;
    stage_init(&s);
    s.script = asks_and_cancels;
    stage_run(&s);
    assert_string_equal(s.heard, "> register 4, < registered, > cancel 5, < g2:4000000000[], "
                                 "< g3:5[], ");
    stage_done(&s);
}

static void wants_three(struct stage *s)
{
    struct sched_ask whole[] = { { .slot = 0, .memory_mib = 10 },
                                 { .slot = 1, .memory_mib = 10 },
                                 { .slot = 70000, .memory_mib = 100, .gpus = 1 } };
    assert_int_equal(s->ops->bounds(s->sched, 2, 4000000000, -1, NULL), 0);
    assert_int_equal(s->ops->resize(s->sched, whole, 3, NULL), 0);
}

static void a_resize_and_requests_of_the_pool(void **state)
{
    (void)state;
    struct stage s;
    stage_init(&s);
    s.script = wants_three;
    stage_run(&s);
    assert_string_equal(s.heard, "> register 4, < registered, > from 2 to 4000000000, "
                                 "> whole of 3 with 120 MiB, "
                                 "< shrink to 2 in 1500 ms: others wait, "
                                 "< grow to 9 in 1500 ms: others wait, ");
    stage_done(&s);
}

static void wants_and_asks(struct stage *s)
{
    wants_three(s);
    request_one(s, 70000);
}

/* The keeper refuses the whole demand before it gets the request for slot 70000. Its answer to that
 * request counts. */
static void the_whole_demand_is_refused(void **state)
{
    (void)state;
    struct stage s;
    stage_init(&s);
    s.script = wants_and_asks;
    s.refuse_whole = true;
    stage_run(&s);
    assert_non_null(strstr(s.heard, "< refused 8 too large, < grow to 9"));
    assert_null(strstr(s.heard, "refused 70000"));
    stage_done(&s);
}

static void wants_more_and_less(struct stage *s)
{
    struct sched_ask whole[] = { { .slot = 5, .memory_mib = 10 },
                                 { .slot = 6, .memory_mib = 10 },
                                 { .slot = 8, .memory_mib = 90 } };
    assert_int_equal(s->ops->resize(s->sched, whole, 3, NULL), 0);
    assert_int_equal(s->ops->resize(s->sched, whole, 2, NULL), 0);
    request_one(s, 5);
    request_one(s, 6);
}

/* A refusal of an older demand does not end a resize to a smaller one. The request is repeated. */
static void a_refusal_of_an_older_demand(void **state)
{
    (void)state;
    struct stage s;
    stage_init(&s);
    s.script = wants_more_and_less;
    s.refuse_late = true;
    stage_run(&s);
    assert_null(strstr(s.heard, "< refused 5"));
    assert_null(strstr(s.heard, "< refused 8"));
    assert_non_null(strstr(s.heard, "< refused 6 too large"));
    stage_done(&s);
}

static void does_nothing(struct stage *s)
{
    (void)s;
}

/* The keeper may forget ends only when the journal has them. The parts of the registration are
 * reported as one. */
static void ends_are_acknowledged_when_stored(void **state)
{
    (void)state;
    struct stage s;
    stage_init(&s);
    s.script = does_nothing;
    s.in_parts = true;
    s.stored_at = 3;
    stage_run(&s);
    assert_string_equal(s.heard, "> register 4, < registered, > ack 1, ");
    assert_int_equal(s.n_stored_asked, 3);
    stage_done(&s);
}

static void only_known_back_ends(void **state)
{
    (void)state;
    assert_null(sched_find("nomad"));
    assert_null(sched_find(NULL));
    assert_string_equal(sched_find("local")->name, "local");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_messages_of_a_job),
        cmocka_unit_test(the_keeper_disconnects),
        cmocka_unit_test(a_keeper_that_refuses),
        cmocka_unit_test(no_keeper_at_all),
        cmocka_unit_test(the_keeper_listens_late),
        cmocka_unit_test(ends_are_acknowledged_when_stored),
        cmocka_unit_test(only_known_back_ends),
        cmocka_unit_test(a_cancel_that_crosses_the_grant),
        cmocka_unit_test(a_resize_and_requests_of_the_pool),
        cmocka_unit_test(the_whole_demand_is_refused),
        cmocka_unit_test(a_refusal_of_an_older_demand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
