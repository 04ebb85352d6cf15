/* Which checkpoint the next attempt of a task begins with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "drive.h"
#include "job/job.h"
#include "torture.h"

/* "0:10" slot 0 has saved step 10, at "/c/0/10"; "0:10/3": one of three parts */
static void feed(struct drive *d, const char *words)
{
    struct span rest = span_of(words), word;
    while (span_split(&rest, ' ', &word)) {
        unsigned slot, step, parts = 0;
        char path[32];
        AUTO(free_p) char *text = span_dup(word);
        assert_true(sscanf(text, "%u:%u/%u", &slot, &step, &parts) >= 2);
        (void)snprintf(path, sizeof path, "/c/%u/%u", slot, step);
        assert_int_equal(drive_feed(d, &(struct job_event){ .type = EV_CHECKPOINT,
                                                            .slot = slot,
                                                            .generation = 1,
                                                            .attempt = 1,
                                                            .step = step,
                                                            .group = parts,
                                                            .text = path }),
                         0);
    }
}

static void check(const struct job *j, uint32_t slot, const char *path)
{
    uint64_t step = 0;
    const char *got = job_checkpoint(j, slot, &step);
    if (!str_eq(got, path))
        fail_msg("%s, not %s", got ? got : "none", path ? path : "none");
    if (path)
        assert_int_equal(step, strtoull(strrchr(path, '/') + 1, NULL, 10));
}

static void test_the_newest_that_all_share(void **state)
{
    static const struct {
        const char *saved, *of0, *of2;
    } rows[] = {
        { "0:10", "/c/0/10", "/c/0/10" }, /* only rank 0 saves */
        { "0:10 0:20 0:30", "/c/0/30", "/c/0/30" },
        { "0:10 1:10 2:10 0:20 1:20", "/c/0/10", "/c/2/10" },
        { "0:10 1:10 2:10 0:20 1:20 2:20", "/c/0/20", "/c/2/20" },
        { "0:10 1:10 2:10 0:20 0:30 0:40 0:50 0:60 0:70 0:80 1:20", "/c/0/10", "/c/2/10" },
        { "0:10/3", NULL, NULL },
        { "0:10/3 1:10/3", NULL, NULL },
        { "0:10/3 1:10/3 2:10/3", "/c/0/10", "/c/2/10" },
        { "0:10/3 1:10/3 2:10/3 1:20/3 2:20/3", "/c/0/10", "/c/2/10" },
        { "0:0", "/c/0/0", "/c/0/0" },
        { "0:10 0:10", "/c/0/10", "/c/0/10" },
        { "0:20 1:10", "/c/0/20", "/c/0/20" }, /* what was whole stays so */
        { "0:20 1:20 0:5 1:5", "/c/0/20", "/c/0/20" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        drive_init(&d, "worker*3");
        drive_run(&d, "go");
        check(d.job, 0, NULL);
        feed(&d, rows[i].saved);
        check(d.job, 0, rows[i].of0);
        check(d.job, 2, rows[i].of2);
        /* a new master knows the same */
        struct job *again = drive_replay(&d, d.journal.n);
        check(again, 0, rows[i].of0);
        check(again, 2, rows[i].of2);
        job_free(again);
        drive_done(&d);
    }
}

static void test_what_is_refused(void **state)
{
    struct drive d;
    (void)state;
    drive_init(&d, "worker*2");
    drive_run(&d, "go");
    struct job_event ev = {
        .type = EV_CHECKPOINT, .slot = 1, .generation = 1, .attempt = 2, .step = 5, .text = "/c/5"
    };
    assert_int_equal(drive_feed(&d, &ev), 1); /* an attempt that never was */
    ev.attempt = 1;
    ev.text = NULL;
    assert_int_equal(drive_feed(&d, &ev), 1);
    ev.text = "/c/5";
    assert_int_equal(drive_feed(&d, &ev), 0);
    check(d.job, 0, "/c/5");
    drive_done(&d);
}

/* An executor that had no master tells what it kept when there is one again, of attempts before the
 * present one, too. */
static void test_what_is_told_late(void **state)
{
    struct drive d;
    (void)state;
    drive_init(&d, "worker*1/on");
    drive_run(&d, "go worker:0=1");
    struct job_event ev = {
        .type = EV_CHECKPOINT, .slot = 0, .generation = 1, .attempt = 1, .step = 5, .text = "/c/5"
    };
    assert_int_equal(drive_feed(&d, &ev), 0);
    check(d.job, 0, "/c/5");
    ev.generation = 2;
    ev.step = 6;
    assert_int_equal(drive_feed(&d, &ev), 1);
    drive_done(&d);
}

/* A stop with time to save gives it to every attempt; a second stop takes it away. */
static void test_a_stop_with_time_to_save(void **state)
{
    struct drive d;
    unsigned asked = 0, plain = 0;
    (void)state;
    drive_init(&d, "worker*2 grace=100");
    drive_run(&d, "go mute:worker:0 mute:worker:1");
    struct job_actions acts = { 0 };
    struct job_event ev = { .type = EV_STOP, .who = "ann", .value_ms = 20000 };
    assert_int_equal(job_feed(d.job, &ev, d.now, &acts, NULL), 0);
    for (size_t i = 0; i < acts.n; i++)
        asked += acts.v[i].type == ACT_STOP_ATTEMPT && acts.v[i].save_ms == 20000;
    assert_int_equal(asked, 2);
    /* nobody is taken for stuck before that time is over */
    assert_true(job_deadline(d.job) >= d.now + 20000 + 100);
    acts.n = 0;
    ev.value_ms = 5000;
    assert_int_equal(job_feed(d.job, &ev, d.now, &acts, NULL), 1);
    ev.value_ms = 0;
    acts.n = 0;
    assert_int_equal(job_feed(d.job, &ev, d.now, &acts, NULL), 0);
    for (size_t i = 0; i < acts.n; i++)
        plain += acts.v[i].type == ACT_STOP_ATTEMPT && acts.v[i].save_ms == 0;
    assert_int_equal(plain, 2);
    assert_true(job_deadline(d.job) < d.now + 20000);
    vec_done(&acts);
    drive_done(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_newest_that_all_share),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_what_is_told_late),
        cmocka_unit_test(test_a_stop_with_time_to_save),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
