/* SPDX-License-Identifier: Apache-2.0 */
/* A job that runs for days: its journal and the copies of it stay small, and a new master finds the
 * same state after each death of a master. bench/long measures the same with more tasks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../bench/long_job.h"
#include "base/base.h"
#include "conf/conf.h"
#include "master/compact.h"

enum {
    TASKS = 50,
    ROUNDS_PER_DAY = 86400000 / LONG_JOB_ROUND_MS,
    ROUNDS = 2 * ROUNDS_PER_DAY,
    SEGMENT_MIN = 64 << 10,
    BURST_MAX = 16 << 10, /* bytes that are written together */
};

static unsigned n_compared;

/* The journal has no progress: a new master knows only the progress in the last snapshot. */
static void drop_progress(struct buf *b)
{
    static const char *const members[] = { ",\"step\":", ",\"total\":", ",\"first_step\":",
                                           ",\"first_ms\":", ",\"step_ms\":" };
    struct buf out = { 0 };
    struct span rest = buf_span(b), line;
    while (span_split(&rest, '\n', &line)) {
        bool slot = span_starts(line, "{\"e\":\"snapshot.slot\"");
        for (size_t i = 0; i < line.len;) {
            size_t skip = 0;
            for (size_t k = 0; slot && k < ARRAY_LEN(members); k++)
                if (span_starts(span_mem(line.p + i, line.len - i), members[k]))
                    skip = strlen(members[k]);
            i += skip;
            while (skip && line.p[i] >= '0' && line.p[i] <= '9')
                i++;
            if (!skip)
                assert_int_equal(buf_addc(&out, line.p[i++]), 0);
        }
        assert_int_equal(buf_addc(&out, '\n'), 0);
    }
    buf_done(b);
    *b = out;
}

static void compare(struct long_job *l, void *arg)
{
    AUTO(buf_done) struct buf lives = { 0 }, restored = { 0 };
    struct replay r;
    struct err e = { 0 };
    struct job *job = job_new(l->spec, NULL);
    (void)arg;
    assert_non_null(job);
    if (replay_file(job, l->path, &r, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(job_snapshot(l->job, &lives), 0);
    assert_int_equal(job_snapshot(job, &restored), 0);
    drop_progress(&lives);
    drop_progress(&restored);
    assert_string_equal(buf_cstr(&lives), buf_cstr(&restored));
    job_free(job);
    n_compared++;
}

static void run(bool straggler)
{
    struct long_job l;
    struct err e = { 0 };
    struct job_spec *spec = NULL;
    char dir[] = "/tmp/tony-long-XXXXXX";
    assert_non_null(mkdtemp(dir));
    AUTO(free_p) char *path = str_printf("%s/journal", dir);
    AUTO(conf_freep) struct conf *conf = long_job_conf(TASKS, &e);
    assert_non_null(conf);
    assert_int_equal(job_spec_build(conf, &spec, &e), 0);
    assert_int_equal(long_job_open(&l, spec, path, SEGMENT_MIN, &e), 0);
    l.straggler = straggler;
    l.before_compaction = compare;
    n_compared = 0;
    if (long_job_begin(&l, &e) < 0 || long_job_rounds(&l, ROUNDS, &e) < 0)
        fail_msg("%s", e.msg);
    assert_true(l.n_records > (uint64_t)TASKS * (ROUNDS - ROUNDS_PER_DAY));
    assert_int_equal(l.n_segments, n_compared);
    assert_true(l.n_segments > 20);
    /* A segment is a snapshot and as many bytes of events, at least SEGMENT_MIN. */
    uint64_t events = MAX(l.most_snapshot, (uint64_t)SEGMENT_MIN) + BURST_MAX;
    assert_in_range(l.most_snapshot, 1, TASKS * (straggler ? 2000 : 1000));
    assert_in_range(l.most_journal, 1, l.most_snapshot + events);
    /* In addition, the events are copied a second time while files are merged, or a new snapshot is
     * copied. */
    assert_in_range(l.copies.most, 1, l.most_snapshot + events + MAX(l.most_snapshot, events));
    long_job_close(&l);
    job_spec_free(spec);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void two_days(void **state)
{
    (void)state;
    run(false);
}

/* A task stops reporting checkpoints. So no step is whole, and the job keeps five reports of each
 * task. */
static void two_days_with_a_straggler(void **state)
{
    (void)state;
    run(true);
}

/* The largest number of tasks of a job: the snapshot is larger than BUF_MAX_DEFAULT. */
static void a_hundred_thousand_tasks(void **state)
{
    struct long_job l;
    struct err e = { 0 };
    struct job_spec *spec = NULL;
    char dir[] = "/tmp/tony-long-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(dir));
    AUTO(free_p) char *path = str_printf("%s/journal", dir);
    AUTO(conf_freep) struct conf *conf = long_job_conf(100000, &e);
    assert_non_null(conf);
    assert_int_equal(job_spec_build(conf, &spec, &e), 0);
    assert_int_equal(long_job_open(&l, spec, path, JOURNAL_SEGMENT_MIN, &e), 0);
    l.straggler = true; /* the largest number of reports */
    if (long_job_begin(&l, &e) < 0 || long_job_rounds(&l, 3, &e) < 0 ||
        compact_journal(&l.journal, l.job, &l.replay, &e) < 0)
        fail_msg("%s", e.msg);
    assert_true(l.journal.size > (int64_t)BUF_MAX_DEFAULT);
    long_job_close(&l);
    job_spec_free(spec);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_days),
        cmocka_unit_test(two_days_with_a_straggler),
        cmocka_unit_test(a_hundred_thousand_tasks),
    };
    log_setup(2, LOG_WARN, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
