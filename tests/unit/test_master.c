/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The master in a small world (master_world.h): whole jobs, messages to followers, stops, and
 * owners that disappear.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/util.h"
#include "base/vec.h"
#include "history/history.h"
#include "job/job.h"
#include "loop/loop.h"
#include "master/master_int.h"
#include "master_world.h"
#include "proto/tony.pb-c.h"

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

static void followers_get_the_first_cause(void **state)
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

static void a_stop_is_answered_when_it_is_durable(void **state)
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

static void a_resize_is_answered_when_it_is_durable(void **state)
{
    (void)state;
    static const struct script scripts[] = { { .task = "worker:0", .hangs = true },
                                             { .task = "worker:1", .hangs = true },
                                             { 0 } };
    struct world w;
    world_init(&w, two_workers, scripts);
    w.resize_roles[0] = "worker";
    w.resize_to = 1;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_true(w.resize_answered);
    const char *answer = buf_cstr(&w.resize_answer);
    assert_non_null(strstr(answer, w.id));
    assert_non_null(strstr(answer, "resize\":{")); /* the current resize, or the last one */
    assert_non_null(strstr(answer, "{\"name\":\"worker\",\"from\":2,\"to\":1"));
    assert_null(strstr(answer, "cause"));
    assert_int_equal(w.refused_num, 0);
    assert_string_equal(buf_cstr(&w.bounds), "1:1..2 1:1..1 ");
    assert_int_equal(world_alive(&w), 0);
    world_done(&w);
}

/* The task reports a step again and again, the last one at least 20 ms after the first, so that its
 * pace is known. */
static void report_often(struct world *w)
{
    struct master *m = w->master;
    struct job_event ev = { .type = EV_PROGRESS, .progress = { .total = UINT32_MAX } };
    int64_t began = clock_mono_ms(), first = 0, due = m->outlook_due_ms, n_looks = 0;
    for (bool is_last = false; !is_last;) {
        is_last = first && clock_mono_ms() >= first + 20;
        ev.progress.step++;
        assert_int_equal(master_feed(m, &ev), 0);
        master_flush(m);
        n_looks += m->outlook_due_ms != due;
        due = m->outlook_due_ms;
        first = first ? first : clock_mono_ms();
    }
    assert_true(n_looks <= 1 + (clock_mono_ms() - began) / 1000);
}

/* When a job will end is computed from all of its tasks. So the master does not compute it after
 * each event, but at most once a second. It then needs no further event to do so. */
static void the_scheduler_gets_the_end(void **state)
{
    (void)state;
    static const struct script scripts[] = { { .task = "worker:0", .until_outlook = true },
                                             { .task = "worker:1" },
                                             { 0 } };
    struct world w;
    world_init(&w, two_workers, scripts);
    w.on_running = report_often;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_string_equal(w.finish_state, "SUCCEEDED");
    assert_true(w.n_outlooks >= 1);
    world_done(&w);
}

static void fail_at(struct world *w, uint32_t slot, uint64_t us)
{
    struct job_event ev = { .type = EV_ATTEMPT_ENDED,
                            .attempt_ended = { .slot = slot,
                                               .generation = 1,
                                               .attempt = 1,
                                               .reason = END_EXITED,
                                               .exit_code = 1 } };
    assert_int_equal(master_feed_end(w->master, &ev, us), 0);
}

/* Both tasks fail in one millisecond, and the master hears of worker:0 last. */
static void fail_both(struct world *w)
{
    uint64_t us;
    while ((us = (uint64_t)clock_mono_us()) % 1000 < 300 || us % 1000 > 600)
        ;
    fail_at(w, 1, us);
    fail_at(w, 0, us - 200);
}

/* The first failure is found also if two are less than a millisecond apart. */
static void two_failures_in_one_millisecond(void **state)
{
    (void)state;
    static const char *const conf[] = { BASIC, "tony.worker.instances=2", "tony.worker.memory=64m",
                                        "tony.application.fail-on-worker-failure-enabled=true",
                                        NULL };
    static const struct script scripts[] = { { .task = "worker:0", .hangs = true },
                                             { .task = "worker:1", .hangs = true },
                                             { 0 } };
    struct world w;
    world_init(&w, conf, scripts);
    w.on_running = fail_both;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_non_null(strstr(w.diagnostics, "worker:0"));
    world_done(&w);
}

/* The master tells the scheduler the bounds of the job after each registration. It does so also
 * when a task has ended, because its role then keeps its size. */
static void the_scheduler_gets_the_bounds(void **state)
{
    (void)state;
    static const struct script scripts[] = { { .task = "worker:0", .run_ms = 2 },
                                             { .task = "worker:1", .run_ms = 300 },
                                             { 0 } };
    struct world w;
    world_init(&w, two_workers, scripts);
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_string_equal(buf_cstr(&w.bounds), "1:1..2 1:2..2 ");
    world_done(&w);
    world_init(&w, two_workers, scripts);
    w.kill_at = 3;
    assert_int_equal(world_run_once(&w), MASTER_CRASHED);
    assert_string_equal(buf_cstr(&w.bounds), "1:1..2 ");
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_string_equal(buf_cstr(&w.bounds), "1:1..2 2:1..2 2:2..2 ");
    world_done(&w);
}

/* Another program may send requests that tony's own client never sends: they are refused as
 * well. */
static void a_resize_that_is_refused(void **state)
{
    (void)state;
    static const struct script scripts[] = { { .task = "worker:0", .hangs = true },
                                             { .task = "worker:1", .hangs = true },
                                             { 0 } };
    static const struct {
        const char *roles[2], *id, *sentence, *hint;
        uint32_t to;
        int num;
    } rows[] = {
        { { "wroker" }, NULL, "the job has no role 'wroker'", "did you mean 'worker'?", 1, ENOENT },
        { { "am" }, NULL, "the job has no role 'am'", "", 1, ENOENT },
        { { "" }, NULL, "the job has no role ''", "", 1, ENOENT },
        { { "worker=1,worker" }, NULL, "the job has no role 'worker=1,worker'", "", 1, ENOENT },
        { { "worker", "worker" }, NULL, "names role 'worker' twice", "", 1, EINVAL },
        { { "worker" }, "application_1_0001", "the master of another job", "", 1, ENOENT },
        { { "worker" }, NULL, "instances", "ask for at least 1", 0, EINVAL }, /* the core's refusal
                                                                               */
        { { "worker" }, NULL, "instances", "", UINT32_MAX, ERANGE },          /* also the core's */
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct world w;
        world_init(&w, two_workers, scripts);
        w.resize_roles[0] = rows[i].roles[0];
        w.resize_roles[1] = rows[i].roles[1];
        w.resize_id = rows[i].id;
        w.resize_to = rows[i].to;
        assert_int_equal(world_run(&w), MASTER_OVER);
        if (w.resize_answered || w.refused_num != rows[i].num ||
            !strstr(w.refused, rows[i].sentence) || !strstr(w.refused_hint, rows[i].hint))
            fail_msg("row %zu: %d %s (%s)", i, w.refused_num, w.refused, w.refused_hint);
        assert_string_equal(w.client_state, "KILLED"); /* killed by the stop that followed */
        world_done(&w);
    }
}

/* The owner's connection breaks, or the master closes it. */
static void an_owner_disconnects(void **state)
{
    bool errs = *state != NULL;
    static const struct script scripts[] = { { .task = "worker:0", .hangs = true },
                                             { .task = "worker:1", .hangs = true },
                                             { 0 } };
    static const char *const conf[] = { BASIC, "tony.worker.instances=2",
                                        "tony.client.away-limit=40", NULL };
    struct world w;
    world_init(&w, conf, scripts);
    w.owns = true;
    w.client_errs_after_start = errs;
    w.client_leaves_after_start = !errs;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_false(w.timed_out);
    assert_string_equal(w.finish_state, "KILLED");
    assert_non_null(strstr(w.diagnostics, "its client was away"));
    assert_int_equal(world_alive(&w), 0);
    world_done(&w);
}

static void a_follower_disconnects(void **state)
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

static void the_history_is_read_from_the_journal(void **state)
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

/* The master determines the cause when it hears of an end, and the record keeps it. So readers need
 * not determine it again. */
static void each_end_has_its_cause_in_the_journal(void **state)
{
    (void)state;
    static const struct script scripts[] = { { .task = "worker:1", .exit_code = 9 },
                                             { .task = "worker:0", .run_ms = 2 },
                                             { 0 } };
    struct world w;
    world_init(&w, two_workers, scripts);
    assert_int_equal(world_run(&w), MASTER_OVER);
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(free_p) char *path = fs_join(w.job_dir, "journal");
    assert_int_equal(fs_read(AT_FDCWD, path, &text, NULL), 0);
    struct span rest = buf_span(&text), line;
    unsigned n_ends = 0, n_failed = 0;
    while (rest.p && span_split(&rest, '\n', &line)) {
        bool attempt = span_has(line, "\"e\":\"attempt_ended\"");
        if (!attempt && !span_has(line, "\"e\":\"completed\""))
            continue;
        n_ends++;
        n_failed +=
            attempt && span_has(line, "\"cause\":\"exception\",\"cause_line\":\"ValueError\"");
        if (!span_has(line, "\"cause\":\""))
            fail_msg("no cause: %.*s", (int)line.len, line.p);
    }
    assert_in_range(n_ends, 2, 4); /* of two attempts, and of containers that end before the job */
    assert_int_equal(n_failed, 1);
    world_done(&w);
}

/* ---- clock records ---- */

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

/* Lets the tasks end once there are enough clock records. */
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

/* A job without events still records the time now and then, for the next master. */
static void the_time_is_recorded_without_events(void **state)
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

static const struct script at_once[] = { { .task = "worker:0", .run_ms = 1 }, { 0 } };

/* One file has all addresses for all tasks; a Start has only the first one. */
static void the_cluster_spec_is_a_file(void **state)
{
    (void)state;
    static const char json[] = "{\"worker\":[\"127.0.0.1:1000\",\"127.0.0.1:1001\"]}";
    struct world w;
    char path[200];
    world_init(&w, two_workers, at_once);
    w.reads_spec_file = true;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_string_equal(w.finish_state, "SUCCEEDED");
    assert_int_equal(w.spec.n_starts, 2);
    assert_int_equal(w.spec.n_peers, 0);
    snprintf(path, sizeof path, "%s/containers/.spec.json", w.job_dir);
    assert_string_equal(w.spec.file, path);
    assert_string_equal(w.spec.file_text, json);
    assert_int_equal(w.spec.bytes, strlen(json));
    assert_string_equal(w.spec.in_start, "worker 2 \"127.0.0.1:1000\"");
    world_done(&w);
}

/* Executors of an older version do not know the file: their Start has all addresses. */
static void older_executors_get_all_addresses(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, at_once);
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_string_equal(w.finish_state, "SUCCEEDED");
    assert_string_equal(w.spec.file, "");
    assert_int_equal(w.spec.bytes, 0);
    assert_string_equal(w.spec.in_start, "worker 2 \"127.0.0.1:1000\",\"127.0.0.1:1001\"");
    world_done(&w);
}

/* The same if the file cannot be written. */
static void no_room_for_the_file(void **state)
{
    (void)state;
    struct world w;
    char path[200];
    world_init(&w, two_workers, at_once);
    snprintf(path, sizeof path, "%s/containers", w.job_dir);
    /* A file in place of the directory. */
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    w.reads_spec_file = true;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_string_equal(w.finish_state, "SUCCEEDED");
    assert_string_equal(w.spec.file, "");
    assert_string_equal(w.spec.in_start, "worker 2 \"127.0.0.1:1000\",\"127.0.0.1:1001\"");
    world_done(&w);
}

/* ---- ranks that abort ---- */

static void say_abort(struct world *w, uint32_t from, uint32_t generation, uint32_t rank,
                      int exit_code)
{
    Tony__RankAborts x = TONY__RANK_ABORTS__INIT;
    Tony__Frame f = TONY__FRAME__INIT;

    x.generation = generation;
    x.rank = rank;
    x.exit_code = exit_code;
    f.body_case = TONY__FRAME__BODY_RANK_ABORTS;
    f.rank_aborts = &x;
    for (unsigned i = 0; i < w->n_boxes; i++)
        if (w->boxes[i].slot == from)
            assert_int_equal(conn_send(w->boxes[i].conn, &f), 0);
}

static void both_say_abort(struct world *w)
{
    w->ran = true;
    say_abort(w, 1, 1, 0, 7); /* refused: the executor of worker:1 runs no server */
    say_abort(w, 1, 1, 1, 8); /* also refused for its own rank */
    say_abort(w, 0, 2, 1, 6); /* no rank of generation 2 runs */
    say_abort(w, 0, 1, 1, 9);
}

/* The ranks' server runs in the executor of rank 0's task. Only a report from this executor
 * counts. */
static void an_abort_counts_only_from_the_servers_executor(void **state)
{
    (void)state;
    static const struct script scripts[] = { { .task = "worker:0", .hangs = true },
                                             { .task = "worker:1", .hangs = true },
                                             { 0 } };
    static const char *const conf[] = { "tony.application.name=t",
                                        "tony.containers.command=./run",
                                        "tony.application.framework=mpi",
                                        "tony.worker.instances=2",
                                        "tony.application.fail-on-worker-failure-enabled=true",
                                        NULL };
    struct world w;
    world_init(&w, conf, scripts);
    w.on_running = both_say_abort;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_false(w.timed_out);
    assert_int_equal(w.exits_asked[0], 0);
    assert_int_equal(w.exits_asked[1], 9);
    assert_string_equal(w.client_state, "FAILED");
    assert_non_null(strstr(buf_cstr(&w.client_json), "exit code 9"));
    world_done(&w);
}

/* The executors know a master with a higher epoch: this one must not decide anything any more. */
static void know_a_newer_master(struct world *w)
{
    for (unsigned i = 0; i < w->n_boxes; i++)
        w->boxes[i].epoch_seen = 99;
}

static void a_superseded_master_ends(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, (const char *const[]){ BASIC, "tony.worker.instances=2", NULL }, NULL);
    log_setup(open("/dev/null", O_WRONLY), LOG_ERROR, false);
    w.before_write = know_a_newer_master;
    assert_int_equal(world_run_once(&w), MASTER_CRASHED);
    assert_false(w.timed_out);
    assert_int_equal(w.n_runs[0] + w.n_runs[1], 0);
    assert_false(w.finished);
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ends_well),
        cmocka_unit_test(followers_get_the_first_cause),
        cmocka_unit_test(an_executor_that_dies),
        cmocka_unit_test(a_stop_is_answered_when_it_is_durable),
        cmocka_unit_test(a_resize_is_answered_when_it_is_durable),
        cmocka_unit_test(the_scheduler_gets_the_bounds),
        cmocka_unit_test(the_scheduler_gets_the_end),
        cmocka_unit_test(two_failures_in_one_millisecond),
        cmocka_unit_test(a_resize_that_is_refused),
        cmocka_unit_test(an_owner_disconnects),
        cmocka_unit_test_prestate(an_owner_disconnects, (void *)"errs"),
        cmocka_unit_test(a_follower_disconnects),
        cmocka_unit_test(one_after_the_other_in_fcfs),
        cmocka_unit_test(the_history_is_read_from_the_journal),
        cmocka_unit_test(each_end_has_its_cause_in_the_journal),
        cmocka_unit_test(the_time_is_recorded_without_events),
        cmocka_unit_test(the_cluster_spec_is_a_file),
        cmocka_unit_test(older_executors_get_all_addresses),
        cmocka_unit_test(no_room_for_the_file),
        cmocka_unit_test(an_abort_counts_only_from_the_servers_executor),
        cmocka_unit_test(a_superseded_master_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
