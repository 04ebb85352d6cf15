/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A master on a cluster, in the small world of master_world.h: the cluster ends it, and the next
 * master hears that the cluster has given up a node.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/clock.h"
#include "codec/hdts.h"
#include "codec/json.h"
#include "job/job_int.h"
#include "loop/http.h"
#include "loop/loop.h"
#include "master/master_int.h"
#include "master_remote.h"
#include "master_world.h"
#include "proto/tony.pb-c.h"

/* ---- the cluster ends the master ---- */

static void terminate(struct world *w)
{
    (void)w;
    (void)kill(getpid(), SIGTERM);
}

/* A job on a cluster whose two tasks never end. on_running: called when they run. */
static void hanging_job(struct world *w, void (*on_running)(struct world *w))
{
    static const struct script scripts[] = { { .task = "worker:0", .hangs = true },
                                             { .task = "worker:1", .hangs = true },
                                             { 0 } };
    world_init(w, two_workers, scripts);
    log_setup(open("/dev/null", 1), LOG_ERROR, false);
    world_go_remote(w);
    w->on_running = on_running;
}

static void killed_by_the_cluster(void **state)
{
    (void)state;
    struct world w;
    hanging_job(&w, terminate);
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_string_equal(w.finish_state, "KILLED");
    assert_string_equal(w.client_state, "KILLED");
    assert_non_null(strstr(w.diagnostics, "the application was killed"));
    world_done(&w);
}

static size_t logged_at(const struct world *w, const char *line)
{
    size_t i = 0;
    while (i < w->files.log.n && !str_eq(w->files.log.v[i], line))
        i++;
    return i;
}

static void killed_by_somebody(void **state)
{
    (void)state;
    struct world w;
    hanging_job(&w, terminate);
    w.remote.journal_dir = "/s/journal";
    w.fate = "over";
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_int_equal(w.n_masters, 1);
    assert_string_equal(w.finish_state, "KILLED");
    assert_non_null(strstr(w.diagnostics, "killed by ann"));
    /* removed early, because there may be no time at the end */
    size_t cleared = logged_at(&w, "remove /s"), told = logged_at(&w, "finish");
    assert_true(cleared < told && told < w.files.log.n);
    world_done(&w);
}

static void is_forgotten(struct world *w)
{
    world_break_sched(w);
}

/* The scheduler refuses the master before the node's signal arrives. */
static void the_scheduler_refuses_a_killed_master(void **state)
{
    (void)state;
    struct world w;
    hanging_job(&w, is_forgotten);
    w.remote.journal_dir = "/s/journal";
    w.fate = "over";
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_int_equal(w.n_masters, 1);
    assert_string_equal(w.client_state, "KILLED");
    assert_true(logged_at(&w, "remove /s") < w.files.log.n);
    assert_true(logged_at(&w, "put " H "/status.json 600") < w.files.log.n);
    world_done(&w);
}

/* Only the master's container ends. The next master finds the same state, and a journal where it
 * looks for it. */
static void the_masters_node_goes_down(void **state)
{
    (void)state;
    static const struct script scripts[] = { { .task = "worker:0", .run_ms = 300 },
                                             { .task = "worker:1", .run_ms = 300 },
                                             { 0 } };
    struct world w;
    bool copied = false;
    world_init(&w, two_workers, scripts);
    log_setup(open("/dev/null", 1), LOG_ERROR, false);
    world_go_remote(&w);
    w.on_running = terminate;
    w.remote.journal_dir = "/s/journal";
    w.fate = "another";
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_int_equal(w.n_masters, 2);
    assert_string_equal(w.finish_state, "SUCCEEDED");
    assert_int_equal(w.n_runs[0], 1);
    assert_int_equal(w.n_runs[1], 1);
    for (size_t i = 0; i < w.files.log.n; i++)
        copied |= str_starts(w.files.log.v[i], "put /s/journal/0002-000000000001-000000000001-");
    assert_true(copied); /* by the second master; the first may have had no time */
    world_done(&w);
}

/* The monotonic clock of another machine means nothing here: the age in the executor's report
 * counts. */
static void monotonic_clocks_of_two_machines_differ(void **state)
{
    (void)state;
    struct world w;
    struct err e = { 0 };
    AUTO(buf_done) struct buf journal = { 0 };
    world_init(&w, two_workers, soon);
    world_go_remote(&w);
    w.other_clock = true;
    assert_int_equal(world_run(&w), MASTER_OVER);
    AUTO(free_p) char *path = fs_join(w.job_dir, "journal");
    assert_int_equal(fs_read(AT_FDCWD, path, &journal, &e), 0);
    assert_non_null(strstr(buf_cstr(&journal), "\"e\":\"attempt_ended\""));
    assert_null(strstr(buf_cstr(&journal), "age_us"));
    world_done(&w);
}

/* The machines share no directory: each executor gets all addresses once, before its Start. */
static void each_executor_gets_the_addresses_once(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, soon);
    world_go_remote(&w);
    w.reads_spec_file = true;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_string_equal(w.finish_state, "SUCCEEDED");
    assert_int_equal(w.spec.n_starts, 2);
    assert_int_equal(w.spec.n_peers, 2);
    assert_string_equal(w.spec.in_peers, "worker 2 \"127.0.0.1:1000\",\"127.0.0.1:1001\"");
    assert_string_equal(w.spec.in_start, "worker 2 \"127.0.0.1:1000\"");
    assert_string_equal(w.spec.file, "");
    assert_int_equal(w.spec.bytes, strlen("{\"worker\":[\"127.0.0.1:1000\",\"127.0.0.1:1001\"]}"));
    world_done(&w);
}

/* ---- the next master hears that the cluster has given up a node ---- */

static const struct script both_hang[] = { { .task = "worker:0", .hangs = true },
                                           { .task = "worker:1", .hangs = true },
                                           { 0 } };

static void run_with_a_lost_container(struct world *w)
{
    log_setup(open("/dev/null", 1), LOG_ERROR, false);
    world_go_remote(w);
    w->lost_slot = 2;
    assert_int_equal(world_run(w), MASTER_OVER);
    assert_int_equal(w->n_masters, 2);
    assert_int_equal(w->n_calls, 1);
    assert_true(w->lost_ended);
    assert_string_equal(w->finish_state, "SUCCEEDED");
    assert_int_equal(w->n_runs[0], 1);
}

static const char *const replaced[] = { BASIC, "tony.worker.instances=2",
                                        "tony.worker.restart-scope=task",
                                        "tony.task.restarts.node-lost=1", NULL };

/* No task ends before the executor in the lost container has ended its own task. This executor
 * hears of the second master only if the master connects to it; the lease is ten minutes. */
static void a_lost_task_is_contacted_and_replaced(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, replaced, both_hang);
    w.kill_event = "attempt_started";
    w.kill_slot = "1";
    run_with_a_lost_container(&w);
    assert_int_equal(w.n_runs[1], 2);
    world_done(&w);
}

/* The cluster also lists an older container of the slot: the master connects to that one, too. */
static void all_containers_of_a_slot_are_contacted(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, replaced, both_hang);
    w.kill_event = "attempt_started";
    w.kill_slot = "1";
    w.lists_older = true;
    run_with_a_lost_container(&w);
    assert_int_equal(w.n_runs[1], 2);
    world_done(&w);
}

/* The first master dies when the journal has the grant of slot 1's container. The cluster does not
 * list that container to the second master, so slot 1 waits for the lease: ten minutes. No executor
 * runs in the container. Runs the second master until it knows that (or, if another process uses a
 * port of the executor, until it has passed twice over all ports), and returns whether it knows. */
struct watch {
    struct world *w;
    struct loop_timer *timer;
    enum slot_state state; /* of slot 1 */
    bool known;
    int64_t first_left_ms, last_left_ms; /* when the core learned that; 0 = it does not know */
    int64_t until_ms;                    /* 0: until it is known */
};

static void look_at_slot_1(void *arg)
{
    struct watch *x = arg;
    const struct slot *s = &x->w->master->job->slots[1];
    x->state = s->state;
    x->known = s->left_ms != 0;
    x->first_left_ms = x->first_left_ms ? x->first_left_ms : s->left_ms;
    x->last_left_ms = s->left_ms;
    bool over = x->known || x->w->n_calls >= 3;
    if (x->until_ms ? clock_mono_ms() >= x->until_ms : over)
        loop_stop(x->w->loop);
    else
        loop_timer_set(x->timer, clock_mono_ms() + 1);
}

static bool learns_that_no_executor_listens(bool port_used)
{
    struct world w;
    struct watch x = { .w = &w };
    world_init(&w, replaced, both_hang);
    log_setup(open("/dev/null", 1), LOG_ERROR, false);
    world_go_remote(&w);
    w.gives_back = w.lost_is_dead = true;
    w.lost_slot = 2;
    w.lost_port_used = port_used;
    w.kill_event = "allocated";
    w.kill_slot = "1";
    assert_int_equal(world_run_once(&w), MASTER_CRASHED);
    x.timer = loop_timer_new(w.loop, look_at_slot_1, &x);
    loop_timer_set(x.timer, clock_mono_ms());
    (void)world_run_once(&w);
    assert_false(w.timed_out);
    assert_int_equal(x.state, SLOT_REPLACING);
    loop_timer_free(x.timer);
    world_done(&w);
    return x.known;
}

/* Runs the second master for ROUNDS_MS. In this time it passes over all ports of the executor of
 * slot 1 at least three times, unless the machine is very busy. All ports refuse it. */
enum { ROUNDS_MS = 500 };

static void watch_the_rounds(const char *kill_event, struct watch *x)
{
    struct world w;
    *x = (struct watch){ .w = &w };
    world_init(&w, replaced, both_hang);
    log_setup(open("/dev/null", 1), LOG_ERROR, false);
    world_go_remote(&w);
    w.gives_back = w.lost_is_dead = true;
    w.lost_slot = 2;
    w.kill_event = kill_event;
    w.kill_slot = "1";
    assert_int_equal(world_run_once(&w), MASTER_CRASHED);
    x->until_ms = clock_mono_ms() + ROUNDS_MS;
    x->timer = loop_timer_new(w.loop, look_at_slot_1, x);
    loop_timer_set(x->timer, clock_mono_ms());
    (void)world_run_once(&w);
    assert_false(w.timed_out);
    assert_int_equal(x->state, SLOT_REPLACING);
    loop_timer_free(x->timer);
    world_done(&w);
}

/* Each report would move the end of the shortened lease: it would never come. */
static void refused_ports_are_reported_once(void **state)
{
    struct watch x;
    (void)state;
    watch_the_rounds("allocated", &x);
    assert_true(x.known);
    assert_int_equal(x.first_left_ms, x.last_left_ms);
}

/* An attempt has run in the container. Another machine may have the address by now, so refused
 * ports do not show that the attempt is dead. */
static void refused_ports_do_not_end_an_attempts_lease(void **state)
{
    struct watch x;
    (void)state;
    watch_the_rounds("attempt_started", &x);
    assert_false(x.known);
}

static void a_refused_port_shortens_the_lease(void **state)
{
    (void)state;
    assert_true(learns_that_no_executor_listens(false));
    assert_false(learns_that_no_executor_listens(true));
}

/* Two workers, of which a client takes one away when both run. */
static void init_shrinking(struct world *w)
{
    world_init(
        w,
        (const char *const[]){ BASIC, "tony.worker.instances=2", "tony.worker.resize=live", NULL },
        both_hang);
    w->resize_roles[0] = "worker";
    w->resize_to = 1;
    w->resize_when = 2;
}

/* The job shrinks, and the master dies before it has told the task to leave. */
static void a_lost_task_is_contacted_and_leaves(void **state)
{
    (void)state;
    struct world w;
    init_shrinking(&w);
    w.kill_event = "resize";
    run_with_a_lost_container(&w);
    assert_int_equal(w.n_runs[1], 1);
    world_done(&w);
}

/* A task that is told to stop may exit with 0. If the copy of the journal lacked the resize, the
 * next master would take that for the end of its work. */
static void nothing_stops_before_the_resize_is_stored(void **state)
{
    (void)state;
    struct world w;
    init_shrinking(&w);
    world_go_remote(&w);
    w.remote.journal_dir = "/s/journal";
    w.files.slow_event = "\"e\":\"resize\"";
    /* The client stops the job once it has its answer. */
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_int_equal(w.files.n_running_then, 2);
    assert_string_equal(w.finish_state, "KILLED");
    world_done(&w);
}

/* If the next master did not know the container and its node were lost, it would start a second
 * task beside one that may still run there. */
static void nothing_starts_before_its_grant_is_stored(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, soon);
    world_go_remote(&w);
    w.remote.journal_dir = "/s/journal";
    w.files.slow_event = "\"e\":\"allocated\"";
    w.files.n_running_then = 99;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_int_equal(w.files.n_running_then, 0);
    assert_string_equal(w.finish_state, "SUCCEEDED");
    world_done(&w);
}

/* A copy of older records is complete when a client has asked for a resize, and before the record
 * of the resize is written. */
static void copied_before_the_write(struct world *w)
{
    if (!w->master->resize_answers_due || !w->files.held.done)
        return;
    world_files_release(w);
    assert_true(w->master->resize_answers_due);
    w->before_write = NULL;
}

static void hold_copies(struct world *w)
{
    w->files.holds = true;
}

static void an_old_copy_of_the_journal_sends_no_answer(void **state)
{
    (void)state;
    struct world w;
    init_shrinking(&w);
    world_go_remote(&w);
    w.remote.journal_dir = "/s/journal";
    w.on_running = hold_copies;
    w.before_write = copied_before_the_write;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_null(w.before_write); /* the hook has run */
    assert_true(w.resize_answered);
    world_done(&w);
}

/* The last master let the job grow, and no copy of its journal has that record. */
static void a_container_without_a_slot_is_ended(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, soon);
    log_setup(open("/dev/null", 1), LOG_ERROR, false);
    world_go_remote(&w);
    w.boxes[w.n_boxes++] = (struct box){ .w = &w, .slot = 2, .id = "of slot 2", .launched = true };
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_string_equal(w.finish_state, "SUCCEEDED");
    assert_int_equal(w.n_stop_calls, 1);
    assert_int_equal(w.boxes[0].reason, END_KILLED_BY_MASTER);
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_executor_gets_the_addresses_once),
        cmocka_unit_test(monotonic_clocks_of_two_machines_differ),
        cmocka_unit_test(killed_by_the_cluster),
        cmocka_unit_test(killed_by_somebody),
        cmocka_unit_test(the_scheduler_refuses_a_killed_master),
        cmocka_unit_test(the_masters_node_goes_down),
        cmocka_unit_test(a_lost_task_is_contacted_and_replaced),
        cmocka_unit_test(all_containers_of_a_slot_are_contacted),
        cmocka_unit_test(a_refused_port_shortens_the_lease),
        cmocka_unit_test(refused_ports_are_reported_once),
        cmocka_unit_test(refused_ports_do_not_end_an_attempts_lease),
        cmocka_unit_test(a_lost_task_is_contacted_and_leaves),
        cmocka_unit_test(a_container_without_a_slot_is_ended),
        cmocka_unit_test(nothing_stops_before_the_resize_is_stored),
        cmocka_unit_test(an_old_copy_of_the_journal_sends_no_answer),
        cmocka_unit_test(nothing_starts_before_its_grant_is_stored),
    };
    return cmocka_run_group_tests_name("master_remote_ends", tests, NULL, NULL);
}
