/* SPDX-License-Identifier: Apache-2.0 */
/* The information that clients get about a job: the status document, the views, and when followers
 * are notified of a change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "base/base.h"
#include "codec/json.h"
#include "drive.h"
#include "job/job.h"
#include "torture.h"

static json_t *status(const struct drive *d, bool full)
{
    AUTO(buf_done) struct buf text = { 0 };
    struct err e = { 0 };
    json_t *doc = NULL;
    assert_int_equal(job_status_json(d->job, full, &text), 0);
    if (json_parse("status", buf_span(&text), &doc, &e) < 0)
        fail_msg("%s\n%s", e.msg, buf_cstr(&text));
    return doc;
}

/* The value at a path such as "tasks.1.reason", as text. */
static void at(json_t *doc, const char *path, char *out, size_t size)
{
    struct span rest = span_of(path), word;
    json_t *v = doc;
    while (span_split(&rest, '.', &word)) {
        AUTO(free_p) char *key = span_dup(word);
        int64_t i = 0;
        v = json_is_array(v) && str_i64(word, 0, 1000, "index", &i, NULL) == 0
                ? json_array_get(v, (size_t)i)
                : json_object_get(v, key);
    }
    AUTO(free_p)
    char *text =
        v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS) : str_dup("(absent)");
    str_copy(out, size, text);
}

struct expectation {
    const char *path, *value;
};

static void check(const struct drive *d, const struct expectation *x, size_t n)
{
    json_t *doc = status(d, true);
    for (size_t i = 0; i < n; i++) {
        char value[800];
        at(doc, x[i].path, value, sizeof value);
        if (!str_eq(value, x[i].value))
            fail_msg("%s: %s, not %s", x[i].path, value, x[i].value);
    }
    json_decref(doc);
}
#define CHECK(d, ...)                                                                              \
    check(d, (const struct expectation[])__VA_ARGS__,                                              \
          sizeof((const struct expectation[])__VA_ARGS__) / sizeof(struct expectation))

/* A task between two attempts has no process, so it is not counted as running. */
static void test_between_attempts(void **state)
{
    struct drive d;

    (void)state;
    drive_init(&d, "worker*2/on/scope-job");
    drive_run(&d, "go mute:worker:1 worker:1=3");
    CHECK(&d, { { "generation", "2" },
                { "tasks.0.state", "\"registered\"" },
                { "tasks.1.state", "\"renewing\"" },
                { "roles.0.registered", "1" },
                { "roles.0.placed", "1" },
                { "roles.0.running", "0" } });
    drive_done(&d);

    drive_init(&d, "worker*1 lost=1 lease=100000");
    drive_run(&d, "go mute:worker:0 +60000"); /* its container was given up */
    CHECK(&d, { { "tasks.0.state", "\"replacing\"" },
                { "roles.0.waiting", "1" },
                { "roles.0.running", "0" } });
    drive_done(&d);
}

/* Decision 0008: a job that is over does not wait for attempts that may live on, but names them.
 * The lease is 100 s, the grace 5 s, the margin 3 s. */
static void test_orphans(void **state)
{
#define LOST "worker*2 lost=0 lease=100000 nodes=2"
#define ORPHAN_OF(slot, attempt, node, until)                                                      \
    "[{\"attempt\":" attempt ",\"index\":" slot ",\"node\":" node ",\"role\":\"worker\","          \
    "\"task\":\"worker:" slot "\",\"until_ms\":" until "}]"
    static const struct {
        const char *job, *script, *orphans;
    } rows[] = {
        { LOST, "go +1000 mute:worker:1 worker:1!lost +1000", "(absent)" }, /* not over yet */
        { LOST, "go +1000 mute:worker:1 worker:1!lost +1000 worker:0=0",
          ORPHAN_OF("1", "1", "\"n0\"", "109000") },
        /* its lease was over before the end of the job */
        { LOST, "go +1000 mute:worker:1 worker:1!lost +109000 worker:0=0", "(absent)" },
        /* its executor had reported the end of the task */
        { LOST, "go +1000 mute:worker:1 worker:1=0 worker:1!lost worker:0=0", "(absent)" },
        { LOST, "go +1000 mute:worker:1 worker:1!lost worker:1=killed worker:0=0", "(absent)" },
        /* no attempt ran in the container */
        { "worker*2 gang=0 lost=0 lease=100000 nodes=2 nogrant=1",
          "go +1000 mute:worker:1 grant:worker:1 worker:1!lost worker:0=0", "(absent)" },
        /* the job was stopped while the slot waited for its lease, or left */
        { "worker*1 lost=1 lease=100000 nodes=2", "go +1000 mute:worker:0 worker:0!lost stop +1",
          ORPHAN_OF("0", "1", "\"n1\"", "109000") },
        { "worker*2/live lost=1 lease=100000 nodes=2",
          "go +1000 mute:worker:1 resize:worker=1 worker:1!lost stop +1",
          ORPHAN_OF("1", "1", "\"n0\"", "109000") },
        /* the journal may lack its first start */
        { "worker*2 lost=1 gives=1 lease=100000 nodes=2",
          "mute:worker:1 go +1000 master mute:worker:0 worker:0!lost stop +1",
          ORPHAN_OF("0", "0", "\"n1\"", "109000") },
        /* nothing was started in it, and its end was not confirmed */
        { "worker*2 lease=100000 nodes=2", "mute:worker:1 go grant:worker:1 +1000 stop +300000",
          "(absent)" },
        /* its end was not confirmed, long before the end of the job: it may still have a master */
        { "worker*2/on/scope-task lost=0 lease=100000", "go +1000 mute:worker:1 +300000 worker:0=0",
          ORPHAN_OF("1", "1", "null", "409000") },
        /* in the pool: its end was not confirmed */
        { "worker*1 lease=100000", "go +1000 mute:worker:0 stop +300000",
          ORPHAN_OF("0", "1", "null", "132000") },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        char live[400], replayed[400];
        drive_init(&d, rows[i].job);
        drive_run(&d, rows[i].script);
        json_t *doc = status(&d, false);
        at(doc, "orphans", live, sizeof live);
        json_decref(doc);
        struct job *job = d.job;
        d.job = drive_replay(&d, d.journal.n);
        doc = status(&d, true);
        at(doc, "orphans", replayed, sizeof replayed);
        json_decref(doc);
        if (!str_eq(live, rows[i].orphans) || !str_eq(replayed, rows[i].orphans))
            fail_msg("[%s]:\n%s\n%s\nnot\n%s", rows[i].script, live, replayed, rows[i].orphans);
        job_free(d.job);
        d.job = job;
        drive_done(&d);
    }
}

static void test_the_document_from_start_to_end(void **state)
{
    struct drive d;

    (void)state;
    drive_init(&d, "chief*1 worker*2 ps*1/untracked");
    CHECK(&d, { { "state", "\"NEW\"" },
                { "application_id", "\"\"" },
                { "user", "null" },
                { "message", "null" },
                { "exit_code", "null" },
                { "cause", "(absent)" } });
    drive_run(&d, "submit");
    CHECK(&d, { { "state", "\"WAITING\"" },
                { "application_id", "\"application_1_0001\"" },
                { "user", "\"ann\"" },
                { "name", "\"test\"" },
                { "epoch", "0" },
                { "roles.1.name", "\"worker\"" },
                { "roles.1.instances", "2" },
                { "roles.1.waiting", "2" },
                { "times.submitted_wall_ms", "1000000" },
                { "times.started_ms", "null" },
                { "ran_ms", "0" },
                { "tasks.0.state", "\"held\"" },
                { "tasks.0.container", "null" },
                { "tasks.0.chief", "true" },
                { "tasks.1.chief", "false" } });
    d.now = 20;
    drive_feed(&d, &(struct job_event){ .type = EV_MASTER_STARTED,
                                        .master_started = { .epoch = ++d.epoch } });
    drive_run(&d, "mute:worker:1");
    drive_feed(&d, &(struct job_event){ .type = EV_RESYNCED });
    drive_feed(
        &d, &(struct job_event){ .type = EV_ALLOCATED,
                                 .allocated = { .slot = 2, .container = "box", .gpus = "0,3" } });
    CHECK(&d, { { "state", "\"WAITING\"" },
                { "epoch", "1" },
                { "generation", "1" },
                { "roles.1.placed", "1" },
                { "roles.1.registered", "1" },
                { "roles.1.waiting", "0" },
                { "tasks.2.container", "\"box\"" },
                { "tasks.2.gpus", "\"0,3\"" },
                { "tasks.2.connected", "false" },
                { "tasks.1.gpus", "\"\"" },
                { "tasks.1.connected", "true" },
                { "tasks.1.address", "\"127.0.0.1:40001\"" },
                { "tasks.1.attempt", "0" },
                { "tasks.1.pid", "101" } });
    d.now = 30;
    drive_feed(
        &d, &(struct job_event){
                .type = EV_REGISTERED,
                .registered = { .slot = 2, .container = "box", .address = "h:1", .tb_port = 6 } });
    d.slots[2] = (struct drive_slot){ .container = "box",
                                      .launched = true,
                                      .registered = true,
                                      .running = true,
                                      .started = true,
                                      .generation = 1,
                                      .attempt = 1 };
    drive_feed(&d, &(struct job_event){ .type = EV_PROGRESS,
                                        .progress = { .slot = 1, .step = 5, .total = 50 } });
    drive_feed(&d, &(struct job_event){ .type = EV_PROGRESS,
                                        .progress = { .slot = 2, .step = 3, .total = 50 } });
    drive_feed(&d, &(struct job_event){ .type = EV_TENSORBOARD,
                                        .tensorboard = { .slot = 0, .url = "http://old" } });
    drive_feed(&d, &(struct job_event){ .type = EV_TENSORBOARD,
                                        .tensorboard = { .slot = 0, .url = "http://h:6006" } });
    drive_feed(&d, &(struct job_event){
                       .type = EV_EXECUTOR_GONE,
                       .executor_gone = { .slot = 1, .container = d.slots[1].container } });
    d.now = 33;
    drive_feed(&d, &(struct job_event){
                       .type = EV_ATTEMPT_STARTED,
                       .attempt_started = { .slot = 2, .generation = 1, .attempt = 1, .pid = 9 } });
    CHECK(&d, { { "state", "\"RUNNING\"" },
                { "roles.1.running", "2" },
                { "roles.1.step", "5" },
                { "roles.1.total", "50" },
                { "tasks.2.step", "3" },
                { "tasks.2.attempt", "1" },
                { "tasks.2.started_ms", "33" },
                { "tasks.2.total", "50" },
                { "tasks.2.pid", "9" },
                { "tasks.2.connected", "true" },
                { "tasks.2.ended_ms", "null" },
                { "tasks.2.result", "null" },
                { "tasks.1.pid", "201" },
                { "tasks.1.connected", "false" },
                { "tasks.0.tensorboard", "\"http://h:6006\"" },
                { "tensorboard", "\"http://h:6006\"" },
                { "times.started_ms", "30" } });
    drive_run(&d, "back:worker:0 +67 worker:1=-9@10");
    CHECK(&d, { { "tasks.1.connected", "true" },
                { "tasks.2.state", "\"ended\"" },
                { "tasks.2.result", "\"FAILED\"" },
                { "tasks.2.signal", "9" },
                { "tasks.2.exit_code", "null" },
                { "tasks.2.reason", "\"exited\"" },
                { "tasks.2.ended_ms", "90" },
                { "tasks.2.connected", "false" },
                { "tasks.2.pid", "null" },
                { "roles.1.running", "1" },
                { "roles.1.failed", "1" },
                { "ran_ms", "70" },
                { "cause", "(absent)" } });
    drive_run(&d, "mute:ps:0 worker:0=4@20 chief:0=2");
    CHECK(&d, { { "state", "\"STOPPING\"" },
                { "message", "\"task 'worker:0' failed with exit code 4\"" },
                { "cause.task", "\"worker:0\"" },
                { "cause.exit_code", "4" },
                { "cause.signal", "null" },
                { "cause.attempt", "1" },
                { "cause.stderr_tail", "\"last words\\n\"" },
                { "roles.2.running", "1" },
                { "exit_code", "null" } });
    drive_run(&d, "+30 ps:0=killed");
    CHECK(&d, { { "state", "\"FAILED\"" },
                { "exit_code", "1" },
                { "ran_ms", "100" },
                { "times.ended_ms", "130" },
                { "roles.0.failed", "1" },
                { "roles.2.finished", "1" },
                { "tasks.3.result", "\"FINISHED\"" },
                { "tasks.3.reason", "\"killed_by_master\"" },
                { "tasks.3.state", "\"ended\"" } });
    json_t *summary = status(&d, false);
    assert_null(json_object_get(summary, "tasks"));
    assert_non_null(json_object_get(summary, "cause"));
    json_decref(summary);
    drive_done(&d);
}

static void test_succeeded_and_single_node(void **state)
{
    struct drive d;

    (void)state;
    drive_init(&d, "single=1");
    drive_run(&d, "go +10 driver:0=0");
    CHECK(&d, { { "state", "\"SUCCEEDED\"" },
                { "exit_code", "0" },
                { "roles.0.name", "\"driver\"" },
                { "roles.0.succeeded", "1" },
                { "tasks.0.task", "\"driver:0\"" },
                { "tasks.0.exit_code", "0" },
                { "tasks.0.chief", "true" } });
    assert_int_equal(job_slot_role(d.job, 0)->memory_mib, 2048);
    assert_int_equal(job_n_tracked(d.job), 1);
    drive_done(&d);
    drive_init(&d, "chief*1 worker*2 ps*1/untracked tb*1/sidecar");
    assert_int_equal(job_n_tracked(d.job), 3);
    assert_int_equal(job_slot_role(d.job, 4)->kind, ROLE_SIDECAR);
    drive_done(&d);
}

static void progress(struct drive *d, int64_t at, uint32_t slot, uint64_t step)
{
    d->now = at;
    drive_feed(d, &(struct job_event){ .type = EV_PROGRESS,
                                       .progress = { .slot = slot, .step = step, .total = 1000 } });
}

/* When the job will end follows from the pace of the tasks that report; a role that the job waits
 * for must have started. */
static void test_outlook(void **state)
{
    struct drive d;
    int64_t min_ms, max_ms;

    (void)state;
    drive_init(&d, "worker*2 ps*1/untracked");
    drive_run(&d, "submit");
    assert_false(job_outlook(d.job, &min_ms, &max_ms));
    drive_run(&d, "go");
    int64_t t = d.now;
    progress(&d, t + 1000, 0, 100);
    assert_false(job_outlook(d.job, &min_ms, &max_ms)); /* one report has no pace */
    progress(&d, t + 3000, 0, 300);                     /* 10 ms a step, 700 are left */
    assert_true(job_outlook(d.job, &min_ms, &max_ms));
    assert_int_equal(min_ms, 6300);
    assert_int_equal(max_ms, 7700);
    progress(&d, t + 3000, 1, 0);
    progress(&d, t + 4000, 1, 50); /* 20 ms a step, 950 are left: 19 s, and a quarter */
    assert_true(job_outlook(d.job, &min_ms, &max_ms));
    assert_int_equal(min_ms, 5400); /* of task 0, a second later */
    assert_int_equal(max_ms, 23750);
    drive_run(&d, "+10 worker:0=0 worker:1=0");
    assert_false(job_outlook(d.job, &min_ms, &max_ms));
    drive_done(&d);
}

/* A change that followers can see is announced once; other changes are not announced. */
static void test_notices(void **state)
{
    static const struct {
        const char *script;
        struct job_event ev;
        unsigned n;
    } rows[] = {
        { "", { .type = EV_SUBMITTED }, 1 },
        { "go", { .type = EV_BEAT, .beat = { .slot = 0 } }, 0 },
        { "go mute:worker:0 +4000",
          { .type = EV_BEAT, .beat = { .slot = 0 } },
          1 }, /* it was suspected before */
        { "go", { .type = EV_SUSPECT, .suspect = { .slot = 0 } }, 1 },
        { "go", { .type = EV_PROGRESS, .progress = { .slot = 0, .step = 1 } }, 1 },
        { "go", { .type = EV_TENSORBOARD, .tensorboard = { .slot = 0, .url = "x" } }, 1 },
        { "go", { .type = EV_CLIENT_OWNS }, 0 },
        { "go", { .type = EV_STALLED }, 0 },
        { "go", { .type = EV_STOP }, 1 },
        { "go",
          { .type = EV_EXECUTOR_GONE, .executor_gone = { .slot = 0, .container = "c0.1" } },
          1 },
        { "go",
          { .type = EV_ATTEMPT_ENDED,
            .attempt_ended = { .slot = 0, .generation = 1, .attempt = 1, .reason = END_EXITED } },
          1 },
        { "go",
          { .type = EV_ATTEMPT_ENDED,
            .attempt_ended = { .slot = 0, .generation = 1, .attempt = 9, .reason = END_EXITED } },
          0 },
        { "go worker:0=0", { .type = EV_MASTER_STARTED, .master_started = { .epoch = 2 } }, 1 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        unsigned n = 0;
        drive_init(&d, "worker*1");
        drive_run(&d, rows[i].script);
        assert_true(job_feed(d.job, &rows[i].ev, d.now, &d.acts, NULL) >= 0);
        for (size_t k = 0; k < d.acts.n; k++)
            n += d.acts.v[k].type == ACT_NOTIFY;
        if (n != rows[i].n)
            fail_msg("row %zu (%s): %u notices", i, job_event_name(rows[i].ev.type), n);
        drive_done(&d);
    }
}

/* Names and texts from outside are escaped. */
static void test_foreign_texts(void **state)
{
    struct drive d;

    (void)state;
    drive_init(&d, "worker*1");
    d.spec->name[0] = '"';
    drive_feed(
        &d, &(struct job_event){ .type = EV_SUBMITTED,
                                 .submitted = { .application_id = "a\\\"b", .user = "\x01\xff" } });
    drive_feed(&d,
               &(struct job_event){ .type = EV_MASTER_STARTED, .master_started = { .epoch = 1 } });
    drive_feed(&d, &(struct job_event){ .type = EV_RESYNCED });
    drive_feed(&d, &(struct job_event){ .type = EV_ATTEMPT_ENDED,
                                        .attempt_ended = { .slot = 0,
                                                           .generation = 1,
                                                           .attempt = 1,
                                                           .reason = END_LAUNCH_FAILED,
                                                           .detail = "no \"such\"\nfile \xc3",
                                                           .tail = "\x1b[31m\t\xed\xa0\x80" } });
    json_decref(status(&d, true));
    drive_done(&d);
}

static int document_without_memory(void *arg)
{
    AUTO(buf_done) struct buf out = { 0 };
    return job_status_json(arg, true, &out);
}

static void test_no_memory(void **state)
{
    struct drive d;

    (void)state;
    drive_init(&d, "worker*40");
    drive_run(&d, "go");
    assert_true(torture(document_without_memory, d.job) > 3);
    drive_done(&d);
}

static void more_of_job(struct buf *out, void *arg)
{
    (void)buf_addf(out, ",\"tracking_url\":\"%s\"", (const char *)arg);
}

static void more_of_task(uint32_t slot, struct buf *out, void *arg)
{
    (void)arg;
    (void)buf_addf(out, ",\"node\":\"n%u\"", slot);
}

/* Without events the run time still grows, until the job is over. */
static void test_the_run_time_grows_without_events(void **state)
{
    static const struct {
        const char *script, *ran_ms, *now_ms;
    } rows[] = { { "go", "9000", "9000" }, { "go worker:0=0", "0", "0" } };
    struct job_status_more more = { .now_ms = 9000 };
    struct err e = { 0 };
    char value[200];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO(buf_done) struct buf text = { 0 };
        struct drive d;
        json_t *doc;
        drive_init(&d, "worker*1");
        drive_run(&d, rows[i].script);
        assert_int_equal(job_status_json_more(d.job, true, &more, &text), 0);
        assert_int_equal(json_parse("status", buf_span(&text), &doc, &e), 0);
        at(doc, "ran_ms", value, sizeof value);
        assert_string_equal(value, rows[i].ran_ms);
        at(doc, "times.now_ms", value, sizeof value);
        assert_string_equal(value, rows[i].now_ms);
        json_decref(doc);
        drive_done(&d);
    }
}

/* The master adds members to the core's document. Texts that tasks have written can be left out. */
static void test_members_that_the_master_adds(void **state)
{
    AUTO(buf_done) struct buf text = { 0 };
    struct job_status_more more = { more_of_job, more_of_task, (void *)(uintptr_t) "http://m/",
                                    false };
    struct err e = { 0 };
    struct drive d;
    json_t *doc;
    char value[200];

    (void)state;
    drive_init(&d, "worker*2");
    drive_run(&d, "go worker:0=3");
    for (int i = 0; i < 2; i++) {
        static const struct expectation rows[] = { { "tracking_url", "\"http://m/\"" },
                                                   { "tasks.0.node", "\"n0\"" },
                                                   { "tasks.1.node", "\"n1\"" },
                                                   { "tasks.1.index", "1" } };
        more.no_tail = i == 1;
        buf_clear(&text);
        assert_int_equal(job_status_json_more(d.job, true, &more, &text), 0);
        assert_int_equal(json_parse("status", buf_span(&text), &doc, &e), 0);
        for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
            at(doc, rows[r].path, value, sizeof value);
            assert_string_equal(value, rows[r].value);
        }
        at(doc, "cause.stderr_tail", value, sizeof value);
        if (more.no_tail)
            assert_string_equal(value, "null");
        else
            assert_string_not_equal(value, "null");
        json_decref(doc);
    }
    drive_done(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_document_from_start_to_end),
        cmocka_unit_test(test_between_attempts),
        cmocka_unit_test(test_orphans),
        cmocka_unit_test(test_succeeded_and_single_node),
        cmocka_unit_test(test_outlook),
        cmocka_unit_test(test_notices),
        cmocka_unit_test(test_foreign_texts),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_the_run_time_grows_without_events),
        cmocka_unit_test(test_members_that_the_master_adds),
    };
    return cmocka_run_group_tests_name("job_status", tests, NULL, NULL);
}
