/* SPDX-License-Identifier: Apache-2.0 */
/* A job restored from a snapshot equals the replayed job. This holds at each record of each test
 * job, and after both get the records that follow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "base/base.h"
#include "drive.h"
#include "job/job_int.h"
#include "torture.h"

static const char *const lives[][2] = {
    { "worker*3", "go +100 save:worker:0 worker:0=0 worker:2=1 worker:1=0" },
    { "worker*2 ps*1/untracked tb*1/sidecar",
      "owned master owns +50 tb:0=1 save:worker:0 save:worker:1 +20 worker:1=0 worker:0=0" },
    { "prep*2 train*2<prep", "go prep:0=0 prep:1=3 +10 train:0=0 master train:1=0" },
    { "chief*1 worker*2/on/max2/win5000/delay100 missed=3",
      "go +500 mute:worker:1 +9000 heal:worker:1 worker:0=3 +200 worker:0=3 +200 chief:0=0 "
      "+30000" },
    { "worker*2/on/scope-job nodes=4 nodefail=1 nodewin=60000 lost=3",
      "go save:worker:0 save:worker:1 +50 worker:0=1 +3000 worker:1!lost +20000 worker:0=0 "
      "worker:1=0" },
    { "worker*2 gang=0 app=5000", "go worker:1=0 +6000" },
    { "chief*1 worker*2 limit=worker/1000/chief/ignored", "go chief:0=0 +2000" },
    { "worker*2 away=1000", "go owns away +500 master +1500" },
    { "worker*2 gives=1", "mute:worker:1 go +40001 heal:worker:1 +10001 worker:0=0 worker:1=0" },
    { "worker*3/spares2 lost=3 pre=2", "go +10 worker:1!lost +10 take:worker:0 +20000 stop +9000" },
    { "worker*2/restart retries=1",
      "go resize:worker=4 +100 resize:worker=1 +100 resize:worker=3 +9" },
    { "worker*3/live ps*1/fixed", "go resize:worker=5 +100 resize:worker=2 +100 stop +100" },
    { "worker*2/restart nogrant=2", "go resize:worker=3 +70000 worker:0=0 worker:1=0" },
    { "worker*4/restart",
      "go mute:worker:3 resize:worker=3 shrink:2 +9 shrink:1 +9 worker:3!0 +9" },
    { "worker*4/live/min2", "go shrink:1 +9" },
    { "worker*4/restart", "go save:worker:0 shrink-saved:3 +9 save:worker:0 +9" },
    { "worker*4/restart", "go mute:worker:3 resize:worker=3 shrink-saved:2 +9 worker:3!0 +9" },
    { "prep*1 ps*2/live train*2/restart<prep",
      "go resize:train=9 resize:ps=1 refuse:train:8 prep:0=0" },
    { "worker*4/restart/min2", "go mute:worker:3 resize:worker=3 shrink:1 +9 stop +9" },
    { "ps*2/on/scope-role worker*2/on/scope-task<ps:ready tb*1/sidecar<ps:started lost=2",
      "go ready:ps:0 ready:ps:1 +10 ps:0=1 +10 worker:0=2 ready:ps:0 +5 ready:ps:1 +5" },
    { "single=1", "go +5 master stop" },
};

static void feed(struct job *j, const char *record)
{
    struct job_event ev;
    struct job_actions acts = { 0 };
    void *holder;
    int64_t t;

    assert_int_equal(drive_record(record, &ev, &t, &holder), 0);
    struct err e = { 0 };
    if (job_feed(j, &ev, t, &acts, &e) != 0)
        fail_msg("%s: %s", record, e.msg);
    vec_done(&acts);
    job_event_release(holder);
}

static void check_same(const struct job *a, const struct job *b, const char *life, size_t n)
{
    AUTO(buf_done) struct buf x = { 0 }, y = { 0 }, p = { 0 }, q = { 0 };

    assert_int_equal(job_snapshot(a, &x), 0);
    assert_int_equal(job_snapshot(b, &y), 0);
    if (!str_eq(buf_cstr(&x), buf_cstr(&y)))
        fail_msg("[%s] restored at record %zu:\n%s\n-- but replayed:\n%s", life, n, buf_cstr(&y),
                 buf_cstr(&x));
    assert_int_equal(job_status_json(a, false, &p), 0);
    assert_int_equal(job_status_json(b, false, &q), 0);
    assert_string_equal(buf_cstr(&p), buf_cstr(&q));
    if ((job_deadline(a) == INT64_MAX) != (job_deadline(b) == INT64_MAX))
        fail_msg("[%s] restored at record %zu: deadline %lld, not %lld\n%s", life, n,
                 (long long)job_deadline(b), (long long)job_deadline(a), buf_cstr(&x));
}

static void test_every_record(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lives); i++) {
        struct drive d;
        drive_init(&d, lives[i][0]);
        drive_run(&d, lives[i][1]);
        for (size_t n = 1; n <= d.journal.n; n++) {
            /* A snapshot never separates a decision from its event. */
            if (strstr(d.journal.v[n - 1], "\"decided_"))
                continue;
            struct job *replayed = drive_replay(&d, n);
            struct job *restored = drive_restored(d.spec, replayed);
            check_same(replayed, restored, lives[i][1], n);
            job_replaying(replayed, true);
            job_replaying(restored, true);
            for (size_t k = n; k < d.journal.n; k++) {
                feed(replayed, d.journal.v[k]);
                feed(restored, d.journal.v[k]);
            }
            check_same(replayed, restored, lives[i][1], n);
            job_free(replayed);
            job_free(restored);
        }
        drive_done(&d);
    }
}

/* Long lists are complete: the fields are compared, not only the text. */
static void test_long_lists(void **state)
{
    struct drive d;
    (void)state;
    drive_init(&d, "worker*1/on/max300/win900000000");
    drive_run(&d, "go");
    for (int i = 0; i < 200; i++)
        drive_run(&d, "worker:0=1 +90000");
    struct job *restored = drive_restored(d.spec, d.job);
    const struct tally *a = &d.job->slots[0].tally, *b = &restored->slots[0].tally;
    assert_int_equal(a->n, 200);
    assert_int_equal(b->n, 200);
    assert_true(a->n_times >= 200 && b->n_times >= 200);
    assert_memory_equal(a->times, b->times, 200 * sizeof *a->times);
    job_free(restored);
    drive_done(&d);
}

/* A snapshot with missing or wrong members is refused; nothing is lost silently. */
static void test_damaged(void **state)
{
    static const char *const bad[] = {
        "{}",
        "{\"e\":\"snapshot.nothing\"}",
        "{\"e\":\"snapshot.slot\",\"slot\":0}",
        "{\"e\":\"snapshot.job\",\"state\":\"BORED\"}",
        "{\"e\":\"snapshot.job\",\"state\":\"NEW\"}",
        "{\"e\":\"snapshot.job\",\"state\":\"RUNNING\",\"n_slots\":4294967295}",
        "{\"e\":\"snapshot.job\",\"state\":\"RUNNING\",\"ready\":\"7\"}",
        "{\"e\":\"snapshot.job\",\"state\":\"RUNNING\",\"ready\":\"x\"}",
        "{\"e\":\"snapshot.job\",\"state\":\"RUNNING\",\"new\":1}",
        "nonsense",
    };
    static const char *const then[] = {
        "{\"e\":\"snapshot.job\",\"state\":\"RUNNING\"}",
        "{\"e\":\"snapshot.role\",\"role\":9}",
        "{\"e\":\"snapshot.role\",\"role\":0,\"spares\":true}",
        "{\"e\":\"snapshot.slot\",\"slot\":9,\"state\":\"held\"}",
        "{\"e\":\"snapshot.slot\",\"slot\":0,\"state\":\"bored\"}",
        "{\"e\":\"snapshot.slot\",\"slot\":0,\"state\":\"held\",\"node\":3}",
        "{\"e\":\"snapshot.slot\",\"slot\":0,\"state\":\"held\",\"spent\":\"1,2,3,4,5,6,7,8,9,10,"
        "11,12,13\"}",
        "{\"e\":\"snapshot.slot\",\"slot\":0,\"state\":\"held\",\"spent\":\"-1\"}",
        "{\"e\":\"snapshot.slot\",\"slot\":0,\"state\":\"held\",\"spent\":\"4294967296\"}",
        "{\"e\":\"snapshot.costs\",\"parts\":\"4503599627370497\"}",
        "{\"e\":\"snapshot.role\",\"role\":0,\"kind\":4}",
        "{\"e\":\"snapshot.report\",\"slot\":7,\"path\":\"x\"}",
        "{\"e\":\"snapshot.group\",\"group\":0}",
        "{\"e\":\"snapshot.resize\",\"state\":\"odd\"}",
    };
    struct job_spec *spec = drive_spec("worker*2");
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad) + ARRAY_LEN(then); i++) {
        bool first = i < ARRAY_LEN(bad);
        const char *line = first ? bad[i] : then[i - ARRAY_LEN(bad)];
        struct job *j = job_new(spec, NULL);
        struct err e = { 0 };
        if (!first)
            assert_int_equal(
                job_restore(j, span_of("{\"e\":\"snapshot.job\",\"state\":\"RUNNING\"}"), &e), 0);
        if (job_restore(j, span_of(line), &e) != -EBADMSG || !*e.msg)
            fail_msg("taken: %s", line);
        job_free(j);
    }
    /* Each line is valid, and the snapshot is not. */
#define ONE_FAILURE "{\"e\":\"snapshot.failures\",\"n_past\":1}\n"
    static const char *const wholes[] = {
        "{\"e\":\"snapshot.failures\",\"first\":9}",
        "{\"e\":\"snapshot.failures\",\"fatal\":3}",
        "{\"e\":\"snapshot.restarts\",\"kind\":\"task\",\"slot\":7}",
        "{\"e\":\"snapshot.role\",\"role\":0,\"instances\":5,\"kind\":1}",
        "{\"e\":\"snapshot.resize\",\"state\":\"waiting\",\"target\":\"3\"}",
        "{\"e\":\"snapshot.checkpoints\",\"has\":true,\"first\":2}",
        "{\"e\":\"snapshot.slot\",\"slot\":1,\"state\":\"held\",\"lent_to\":3}",
        ONE_FAILURE,
        ONE_FAILURE "{\"e\":\"snapshot.past\",\"slot\":2}",
        ONE_FAILURE "{\"e\":\"snapshot.past\",\"slot\":0,\"node\":1}",
    };
#undef ONE_FAILURE
    for (size_t i = 0; i < ARRAY_LEN(wholes); i++) {
        struct job *j = job_new(spec, NULL);
        struct err e = { 0 };
        assert_int_equal(
            job_restore(j, span_of("{\"e\":\"snapshot.job\",\"state\":\"RUNNING\"}"), &e), 0);
        struct span rest = span_of(wholes[i]), line;
        while (span_split(&rest, '\n', &line))
            if (line.len && job_restore(j, line, &e) != 0)
                fail_msg("%s: %s", wholes[i], e.msg);
        if (job_restored(j, &e) != -EBADMSG || !*e.msg)
            fail_msg("taken: %s", wholes[i]);
        job_free(j);
    }
    struct job *nothing = job_new(spec, NULL);
    assert_int_equal(job_restored(nothing, NULL), -EBADMSG);
    job_free(nothing);
    static const char *const singles[] = { "gang",        "restarts", "failures",
                                           "checkpoints", "costs",    "job" };
    for (size_t i = 0; i < ARRAY_LEN(singles); i++) {
        struct job *j = job_new(spec, NULL);
        struct err e = { 0 };
        AUTO(free_p) char *line = str_printf("{\"e\":\"snapshot.%s\"}", singles[i]);
        (void)job_restore(j, span_of("{\"e\":\"snapshot.job\",\"state\":\"RUNNING\"}"), &e);
        if (job_restore(j, span_of(line), &e) != (str_eq(singles[i], "job") ? -EBADMSG : 0) ||
            job_restore(j, span_of(line), &e) != -EBADMSG)
            fail_msg("a second record was taken: %s", line);
        job_free(j);
    }
    drive_spec_free(spec);
}

struct whole {
    const struct drive *d;
    struct buf lines; /* the snapshot that was written with enough memory */
};

/* Covers only the writing: jansson, which reads snapshots, has errors of its own without memory. A
 * snapshot that could be written is whole. */
static int snapshot_without_memory(void *arg)
{
    const struct whole *whole = arg;
    AUTO(buf_done) struct buf lines = { 0 };
    int rc = job_snapshot(whole->d->job, &lines);

    if (rc == 0)
        assert_string_equal(buf_cstr(&lines), buf_cstr(&whole->lines));
    return rc;
}

static void test_torture(void **state)
{
    struct drive d;
    struct whole whole = { .d = &d };

    (void)state;
    drive_init(&d, "worker*2/on/max3/win1000 ps*1/untracked nodes=3 nodefail=2 lost=2");
    drive_run(&d, "go save:worker:0 worker:1=1 +100 worker:0!lost +100 resize:worker=3");
    assert_int_equal(job_snapshot(d.job, &whole.lines), 0);
    assert_true(torture(snapshot_without_memory, &whole) > 2);
    buf_done(&whole.lines);
    drive_done(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_record),
                                        cmocka_unit_test(test_long_lists),
                                        cmocka_unit_test(test_damaged),
                                        cmocka_unit_test(test_torture) };
    return cmocka_run_group_tests_name("job_snapshot", tests, NULL, NULL);
}
