/* SPDX-License-Identifier: Apache-2.0 */
/* The measured costs of a resize (job/costs.h): the parts of one measurement. A replay of the
 * journal and a job restored from a snapshot must have the same measurements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/base.h"
#include "drive.h"
#include "job/job_int.h"

#define ELASTIC "worker*4/restart/on/max9/scope-job/min2/cap8"

static void reports_step(struct drive *d, const char *task, uint64_t step)
{
    uint32_t slot = drive_slot(d, task);
    assert_int_equal(
        drive_feed(d, &(struct job_event){ .type = EV_PROGRESS, .progress = { slot, step, 0 } }),
        0);
}

/* Prints the number of measurements and the last one: "2 resize 1000+100+500+700 redone 0", in the
 * order save, stop, start, warm-up. */
static void describe(const struct job *j, char *out, size_t size)
{
    const struct costs *c = &j->costs;
    const struct cost_sample *s = &c->recent[(c->n + COSTS_KEPT - 1) % COSTS_KEPT];

    if (!c->n)
        (void)snprintf(out, size, "none");
    else
        (void)snprintf(out, size, "%u %s %d+%d+%d+%d redone %d", c->n,
                       s->by_resize ? "resize" : "restart", (int)s->ms[COST_SAVE],
                       (int)s->ms[COST_STOP], (int)s->ms[COST_START], (int)s->ms[COST_WARM],
                       (int)s->ms[COST_REDONE]);
}

/* The job, a replay of its journal, and a job restored from its snapshot must have these
 * measurements. */
static void check(const struct drive *d, const char *expected)
{
    char live[120], again[120], restored[120];
    struct job *replayed = drive_replay(d, d->journal.n), *copy = drive_restored(d->spec, d->job);

    describe(d->job, live, sizeof live);
    describe(replayed, again, sizeof again);
    describe(copy, restored, sizeof restored);
    job_free(replayed);
    job_free(copy);
    assert_string_equal(live, expected);
    assert_string_equal(again, expected);
    assert_string_equal(restored, expected);
}

static void test_parts(void **state)
{
    static const struct {
        const char *name, *script; /* from the resize until the new generation has started */
        uint64_t step;             /* then 700 ms pass, and this step is reported; 0 = none */
        const char *expected;
    } rows[] = {
        { "nothing is saved", "mute:worker:0 resize:worker=2 +300 heal:worker:0 worker:0=0", 9,
          "1 resize 0+300+0+700 redone 4000" },
        { "all save for it",
          "mute:worker:0 mute:worker:1 resize:worker=2 +200 save:worker:0 save:worker:1 "
          "save:worker:2 save:worker:3 +100 heal:worker:0 heal:worker:1 worker:0=0 worker:1=0",
          9, "1 resize 200+100+0+700 redone 0" },
        { "no new step", "resize:worker=2", 1, "none" },
        { "no progress but a checkpoint", "resize:worker=2 +50 save:worker:0 save:worker:1", 0,
          "1 resize 0+0+0+-1 redone 4000" },
        { "a new master", "resize:worker=2 master", 9, "none" },
        { "another failure", "resize:worker=2 +10 worker:1=3 +5000", 9,
          "1 restart 0+0+0+5700 redone 10" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        drive_init(&d, ELASTIC " grace=60000");
        d.spec->checkpoint_grace_ms = 60000;
        drive_run(&d, "go +1000 save:worker:0 save:worker:1 save:worker:2 save:worker:3 +4000");
        reports_step(&d, "worker:0", 3);
        drive_run(&d, rows[i].script);
        drive_run(&d, "+700");
        if (rows[i].step)
            reports_step(&d, "worker:0", rows[i].step);
        print_message("%s\n", rows[i].name);
        check(&d, rows[i].expected);
        drive_done(&d);
    }
}

static uint32_t n_recorded(const struct drive *d, const char *event)
{
    uint32_t n = 0;
    for (size_t i = 0; i < d->journal.n; i++)
        n += strstr(d->journal.v[i], event) != NULL;
    return n;
}

/* Of all reports of progress, only the one that ends the measurement is in the journal. */
static void test_journal(void **state)
{
    struct drive d;

    (void)state;
    drive_init(&d, ELASTIC);
    drive_run(&d, "go +1000");
    reports_step(&d, "worker:0", 3);
    drive_run(&d, "resize:worker=2 +500");
    reports_step(&d, "worker:1", 0);
    assert_int_equal(n_recorded(&d, "\"progress\""), 0);
    reports_step(&d, "worker:1", 1);
    reports_step(&d, "worker:1", 2);
    assert_int_equal(n_recorded(&d, "\"progress\""), 1);
    drive_done(&d);
}

static void test_estimate(void **state)
{
    enum { NO = COST_UNKNOWN };
    static const struct cost_sample samples[] = {
        { true, { 3000, 1000, 6000, NO, 0 } },   { false, { 0, 90, 7000, 4000, 9000 } },
        { true, { 2000, 1000, 6500, 4500, 0 } }, { true, { 90000, 1000, NO, 3000, 0 } },
        { true, { 4000, 2000, 6100, 5000, 0 } }, { true, { 1000, 2000, 100, 100, 50 } },
    };
    static const int64_t expected[] = { 10000, 14000, 13500, 14500, 14100, 13100 };
    struct drive d;
    AUTO(buf_done) struct buf text = { 0 };
    int64_t ms = 0;

    (void)state;
    drive_init(&d, ELASTIC);
    drive_run(&d, "go");
    assert_false(job_resize_cost(d.job, &ms));
    for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
        d.job->costs.recent[d.job->costs.n++ % COSTS_KEPT] = samples[i];
        assert_true(job_resize_cost(d.job, &ms));
        assert_int_equal(ms, expected[i]);
    }
    assert_int_equal(job_status_json(d.job, false, &text), 0);
    assert_non_null(
        strstr(buf_cstr(&text), "\"resize_cost\":{\"total_ms\":13100,\"save_ms\":2000"));
    drive_done(&d);

    drive_init(&d, "worker*4/live/min2/cap8");
    drive_run(&d, "go");
    for (uint32_t r = 0; r < d.spec->n_roles; r++)
        d.spec->roles[r].says_bounds = true;
    assert_true(job_resize_cost(d.job, &ms));
    assert_int_equal(ms, 0);
    drive_done(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_journal),
        cmocka_unit_test(test_estimate),
    };
    return cmocka_run_group_tests_name("job_costs", tests, NULL, NULL);
}
