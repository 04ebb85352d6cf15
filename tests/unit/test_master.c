/*
 * The master in a small world (master_world.h): whole jobs, what followers hear, stops, owners that
 * vanish.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/util.h"
#include "base/vec.h"
#include "history/history.h"
#include "job/job.h"
#include "loop/loop.h"
#include "master_world.h"

#define BASIC                                                                                      \
    "tony.application.name=t", "tony.containers.command=./run", "tony.application.framework=generic"

static const char *const two_workers[] = { BASIC, "tony.worker.instances=2",
                                           "tony.worker.memory=64m", NULL };

static void all_ends_well(void **state)
{
    (void)state;
    static const struct script scripts[] = { { .task = "worker:0", .run_ms = 5 }, { 0 } };
    struct world w;
    world_init(&w, two_workers, scripts);
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_false(w.timed_out);
    assert_int_equal(w.n_runs[0], 1);
    assert_int_equal(w.n_runs[1], 1);
    assert_int_equal(w.n_asks, 2);
    assert_int_equal(w.n_ask_calls, 1);
    assert_int_equal(w.n_launch_calls, 1);
    assert_string_equal(w.finish_state, "SUCCEEDED");
    assert_int_equal(w.n_finished, 1);
    assert_string_equal(w.client_state, "SUCCEEDED");
    assert_int_equal(w.client_code, 0);
    assert_true(w.n_updates >= 2);
    assert_int_equal(world_alive(&w), 0);
    world_done(&w);
}

static void the_first_cause_is_told(void **state)
{
    (void)state;
    static const struct script scripts[] = { { .task = "worker:0", .hangs = true },
                                             { .task = "worker:1", .exit_code = 3, .run_ms = 2 },
                                             { 0 } };
    static const char *const conf[] = { BASIC, "tony.worker.instances=2",
                                        "tony.application.fail-on-worker-failure-enabled=true",
                                        NULL };
    struct world w;
    world_init(&w, conf, scripts);
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_string_equal(w.client_state, "FAILED");
    assert_int_equal(w.client_code, 1);
    assert_non_null(strstr(buf_cstr(&w.client_json), "worker:1"));
    assert_non_null(strstr(buf_cstr(&w.client_json), "exit code 3"));
    assert_int_equal(world_alive(&w), 0);
    world_done(&w);
}

static void an_executor_that_dies(void **state)
{
    (void)state;
    static const struct script scripts[] = {
        { .task = "worker:0", .dies_first = true, .run_ms = 2 },
        { .task = "worker:1", .run_ms = 2, .exit_code = 1 },
        { 0 }
    };
    struct world w;
    world_init(&w, two_workers, scripts);
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_string_equal(w.client_state, "FAILED");
    assert_int_equal(world_alive(&w), 0);
    world_done(&w);
}

static void a_stop_is_answered_when_written(void **state)
{
    (void)state;
    static const struct script scripts[] = { { .task = "worker:0", .hangs = true },
                                             { .task = "worker:1", .hangs = true },
                                             { 0 } };
    struct world w;
    world_init(&w, two_workers, scripts);
    w.stop_when_running = true;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_true(w.stop_answered);
    assert_string_equal(w.client_state, "KILLED");
    assert_int_equal(w.client_code, 3);
    assert_int_equal(world_alive(&w), 0);
    world_done(&w);
}

static void an_owner_that_vanishes(void **state)
{
    (void)state;
    static const struct script scripts[] = { { .task = "worker:0", .hangs = true },
                                             { .task = "worker:1", .hangs = true },
                                             { 0 } };
    static const char *const conf[] = { BASIC, "tony.worker.instances=2",
                                        "tony.client.away-limit=40", NULL };
    struct world w;
    world_init(&w, conf, scripts);
    w.owns = w.client_leaves_after_start = true;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_false(w.timed_out);
    assert_string_equal(w.finish_state, "KILLED");
    assert_int_equal(world_alive(&w), 0);
    world_done(&w);
}

static void a_follower_that_vanishes_does_no_harm(void **state)
{
    (void)state;
    static const struct script scripts[] = { { .task = "worker:0", .run_ms = 120 },
                                             { .task = "worker:1", .run_ms = 120 },
                                             { 0 } };
    static const char *const conf[] = { BASIC, "tony.worker.instances=2",
                                        "tony.client.away-limit=20", NULL };
    struct world w;
    world_init(&w, conf, scripts);
    w.client_leaves_after_start = true;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_string_equal(w.finish_state, "SUCCEEDED");
    world_done(&w);
}

static void one_after_the_other_in_fcfs(void **state)
{
    (void)state;
    static const char *const conf[] = { BASIC, "tony.worker.instances=8", "tony.worker.memory=16m",
                                        "tony.application.distributed-mode=FCFS", NULL };
    struct world w;
    world_init(&w, conf, NULL);
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_string_equal(w.client_state, "SUCCEEDED");
    for (int i = 0; i < 8; i++)
        assert_int_equal(w.n_runs[i], 1);
    world_done(&w);
}

static void the_journal_is_the_history(void **state)
{
    (void)state;
    static const struct script scripts[] = { { .task = "worker:1", .exit_code = 9 },
                                             { .task = "worker:0", .exit_code = 9, .run_ms = 30 },
                                             { 0 } };
    struct world w;
    world_init(&w, two_workers, scripts);
    assert_int_equal(world_run(&w), MASTER_OVER);
    struct history_job *h = NULL;
    assert_int_equal(history_load(w.job_dir, &h, NULL), 0);
    struct job_verdict v;
    job_verdict(h->job, &v);
    assert_int_equal(v.state, JOB_FAILED);
    assert_non_null(strstr(v.message, "worker:1"));
    struct slot_view s;
    job_slot(h->job, 1, &s);
    assert_int_equal(s.exit_code, 9);
    assert_string_equal(s.tail, "Traceback\nValueError");
    assert_true(h->started_wall_ms > 0 && h->ended_wall_ms >= h->started_wall_ms);
    history_free(h);
    world_done(&w);
}

/* ---- marks of the clock ---- */

enum { MARK_MS = 20, MARKS = 3 };

static unsigned n_marks(const struct world *w)
{
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(free_p) char *path = fs_join(w->job_dir, "journal");
    unsigned n = 0;
    assert_int_equal(fs_read(AT_FDCWD, path, &text, NULL), 0);
    for (const char *p = buf_cstr(&text); (p = strstr(p, "\"stalled\"")); p++)
        n++;
    return n;
}

static struct loop_timer *looks;

/* The tasks end when there are enough. */
static void look_for_marks(void *arg)
{
    struct world *w = arg;
    bool all_run = w->boxes[0].work && w->boxes[1].work;
    if (all_run && n_marks(w) >= MARKS)
        for (int i = 0; i < 2; i++)
            loop_timer_set(w->boxes[i].work, clock_mono_ms());
    else
        loop_timer_set(looks, clock_mono_ms() + MARK_MS / 4);
}

static void start_looking(struct world *w)
{
    looks = loop_timer_new(w->loop, look_for_marks, w);
    loop_timer_set(looks, clock_mono_ms());
}

/* A quiet job still says now and then what time it is, for a next master. */
static void the_clock_leaves_marks(void **state)
{
    (void)state;
    static const struct script scripts[] = { { .task = "worker:0", .run_ms = 3600000 },
                                             { .task = "worker:1", .run_ms = 3600000 },
                                             { 0 } };
    struct world w;
    world_init(&w, two_workers, scripts);
    w.probe.mark_ms = MARK_MS;
    w.on_running = start_looking;
    int64_t from = clock_mono_ms();
    assert_int_equal(world_run(&w), MASTER_OVER);
    loop_timer_free(looks);
    assert_in_range(n_marks(&w), MARKS, (clock_mono_ms() - from) / MARK_MS + 1);
    AUTO(history_freep) struct history_job *h = NULL;
    assert_int_equal(history_load(w.job_dir, &h, NULL), 0);
    assert_int_equal(job_state(h->job), JOB_SUCCEEDED);
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ends_well),
        cmocka_unit_test(the_first_cause_is_told),
        cmocka_unit_test(an_executor_that_dies),
        cmocka_unit_test(a_stop_is_answered_when_written),
        cmocka_unit_test(an_owner_that_vanishes),
        cmocka_unit_test(a_follower_that_vanishes_does_no_harm),
        cmocka_unit_test(one_after_the_other_in_fcfs),
        cmocka_unit_test(the_journal_is_the_history),
        cmocka_unit_test(the_clock_leaves_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
