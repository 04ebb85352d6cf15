/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A master that cannot write its journal: events that arrive meanwhile do not make it grow, and the
 * job's time stops.
 */
#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "history/history.h"
#include "job/job.h"
#include "loop/loop.h"
#include "master/master_int.h"
#include "master_world.h"

#define BASIC                                                                                      \
    "tony.application.name=t", "tony.containers.command=./run", "tony.application.framework=generic"

static const char *const two_workers[] = { BASIC, "tony.worker.instances=2",
                                           "tony.worker.memory=64m", NULL };

static const struct script scripts[] = { { .task = "worker:0", .run_ms = 50 },
                                         { .task = "worker:1", .run_ms = 50 },
                                         { 0 } };

enum { ROUNDS = 1000, A_ROUND = 1000 };

static struct {
    size_t n_actions, memory, pending;
    bool done;
} seen;

/* Progress of both tasks, and a report about an unknown attempt, which the master acknowledges. */
static void feed_some(struct master *m, unsigned round)
{
    for (unsigned i = 0; i < A_ROUND; i++) {
        struct job_event ev = { .type = EV_PROGRESS,
                                .progress = { .slot = i % 2, .step = round * A_ROUND + i } };
        struct job_event stale = { .type = EV_ATTEMPT_ENDED,
                                   .attempt_ended = {
                                       .slot = i % 2, .generation = 1, .attempt = 7 } };
        assert_int_equal(master_feed(m, &ev), 0);
        if (i % 10 == 0)
            assert_int_equal(master_feed(m, &stale), 1);
    }
    master_flush(m);
}

/* The disk is full before a checkpoint is recorded. */
static void block(struct world *w)
{
    struct master *m = w->master;
    w->fail_at = w->n_writes + 1;
    w->fail_errno = ENOSPC;
    struct job_event saved = {
        .type = EV_CHECKPOINT,
        .checkpoint = { .slot = 0, .generation = 1, .attempt = 1, .step = 1, .path = "/c/1" }
    };
    assert_int_equal(master_feed(m, &saved), 0);
    master_flush(m);
    assert_non_null(m->blocked_why);
}

static void fill_the_disk(struct world *w)
{
    struct master *m = w->master;
    block(w);
    for (unsigned round = 1; round <= ROUNDS; round++) {
        feed_some(m, round);
        assert_non_null(m->blocked_why);
        if (round == 2) { /* from here on the buffers no longer grow */
            seen.n_actions = m->actions.n;
            seen.pending = m->journal.pending.len;
            seen.memory = mallinfo2().uordblks;
        }
    }
    assert_int_equal(m->actions.n, seen.n_actions);
    assert_int_equal(m->journal.pending.len, seen.pending);
    assert_true(mallinfo2().uordblks <= seen.memory + 4096);
    print_message("# after 2,000 and after %d events: %zu actions, %zu bytes\n", ROUNDS * A_ROUND,
                  m->actions.n, seen.memory);
    seen.done = true;
    w->fail_at = 0; /* the disk has room again */
}

static void a_million_events_while_blocked(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, scripts);
    log_setup(-1, LOG_ERROR, false);
    w.probe.retry_ms = 1;
    w.on_running = fill_the_disk;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_true(seen.done);
    assert_int_equal(w.n_masters, 1);
    assert_string_equal(w.finish_state, "SUCCEEDED");
    world_done(&w);
}

enum { HOUR_MS = 3600 * 1000 };

/* The master cannot write its journal for an hour. The test sets the start of the master's clock
 * back instead of waiting. */
static void an_hour_without_room(struct world *w)
{
    struct master *m = w->master;
    block(w);
    int64_t before = master_now(m);
    m->t0_mono_ms -= HOUR_MS;
    assert_int_equal(master_now(m), before);
    w->fail_at = 0;
    blocked_end(m);
    assert_in_range(master_now(m) - before, 0, HOUR_MS / 60);
    seen.done = true;
}

static void the_jobs_time_stops(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, scripts);
    log_setup(-1, LOG_ERROR, false);
    w.on_running = an_hour_without_room;
    seen.done = false;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_true(seen.done);
    assert_string_equal(w.finish_state, "SUCCEEDED");
    world_done(&w);
}

/* All tasks end while the disk is full. A verdict counts only once it is in the journal: until then
 * followers see the job as it is on disk, and then the verdict. */
static void end_without_room(struct world *w)
{
    struct master *m = w->master;
    block(w);
    for (uint32_t slot = 0; slot < 2; slot++) {
        struct job_event end = {
            .type = EV_ATTEMPT_ENDED,
            .attempt_ended = { .slot = slot, .generation = 1, .attempt = 1, .reason = END_EXITED }
        };
        assert_int_equal(master_feed(m, &end), 0);
    }
    /* The timer of the updates may come before master_flush(). */
    m->update_due = true;
    m->notified_ms = 0;
    clients_notify(m);
    assert_false(m->update_due);
    const struct history_job *on_disk = m->job_on_disk;
    assert_non_null(on_disk);
    master_flush(m);
    assert_int_equal(job_state(m->job), JOB_SUCCEEDED);
    assert_ptr_equal(m->job_on_disk, on_disk); /* it is read once */
    assert_int_equal(job_state(m->job_on_disk->job), JOB_RUNNING);
    w->fail_at = 0;
    m->blocked_retry_ms = 0;
    master_flush(m);
    assert_null(m->blocked_why);
    assert_null(m->job_on_disk);
    seen.done = true;
}

static void the_verdict_is_shown_when_it_is_on_disk(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, scripts);
    log_setup(-1, LOG_ERROR, false);
    w.on_running = end_without_room;
    seen.done = false;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_true(seen.done);
    assert_string_equal(w.finish_state, "SUCCEEDED");
    assert_int_equal(w.n_finished, 1);
    assert_string_equal(w.client_state, "SUCCEEDED");
    world_done(&w);
}

/* Checkpoints must be recorded, so they cannot be merged. */
static void save_until_the_limit(struct world *w)
{
    struct master *m = w->master;
    char path[4000];
    memset(path, 'p', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    block(w);
    for (uint64_t step = 2; m->blocked_why && !seen.done; step++) {
        seen.pending = journal_unwritten(&m->journal);
        struct job_event saved = {
            .type = EV_CHECKPOINT,
            .checkpoint = { .slot = 0, .generation = 1, .attempt = 1, .step = step, .path = path }
        };
        assert_int_equal(master_feed(m, &saved), 0);
        m->blocked_retry_ms = 0; /* the time of the next attempt to write has come */
        master_flush(m);
        seen.done = step > 100000;
    }
}

static void too_many_records_end_the_job(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, scripts);
    log_setup(-1, LOG_ERROR, false);
    w.on_running = save_until_the_limit;
    seen.done = false;
    assert_int_equal(world_run(&w), MASTER_HOPELESS);
    assert_false(seen.done);
    assert_in_range(seen.pending, (16 << 20) - 8192, 16 << 20);
    assert_int_equal(world_alive(&w), 0);
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million_events_while_blocked),
        cmocka_unit_test(the_jobs_time_stops),
        cmocka_unit_test(the_verdict_is_shown_when_it_is_on_disk),
        cmocka_unit_test(too_many_records_end_the_job),
    };
    return cmocka_run_group_tests_name("master_blocked", tests, NULL, NULL);
}
