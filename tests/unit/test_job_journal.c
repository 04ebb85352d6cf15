/* Events to journal records and back, replays of every prefix, lack of memory, and what it all
 * costs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <malloc.h>

#include "base/base.h"
#include "drive.h"
#include "job/job.h"
#include "torture.h"

static void check_same(const struct job_event *a, const struct job_event *b)
{
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->limit, b->limit);
    assert_int_equal(a->group, b->group);
    assert_int_equal(a->slot, b->slot);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->generation, b->generation);
    assert_int_equal(a->attempt, b->attempt);
    assert_int_equal(a->rank, b->rank);
    assert_true(str_eq(a->container, b->container));
    assert_int_equal(a->exit_code, b->exit_code);
    assert_int_equal(a->signal, b->signal);
    assert_int_equal(a->reason, b->reason);
    assert_true(a->age_us == b->age_us);
    assert_true(a->wall_ms == b->wall_ms);
    assert_true(a->value_ms == b->value_ms);
    assert_true(a->step == b->step && a->total == b->total);
    assert_int_equal(a->pid, b->pid);
    assert_int_equal(a->tb_port, b->tb_port);
    assert_int_equal(a->running, b->running);
    assert_int_equal(a->launched, b->launched);
    assert_true(str_eq(a->who, b->who) && str_eq(a->text, b->text) && str_eq(a->tail, b->tail));
}

static void test_round_trip(void **state)
{
    struct job_event ev = { .slot = UINT32_MAX,
                            .limit = LIMIT_SILENCE,
                            .group = 3,
                            .epoch = 4,
                            .generation = 5,
                            .attempt = 6,
                            .rank = 7,
                            .container = "container_1_0001_01_000001",
                            .exit_code = -1,
                            .signal = 9,
                            .reason = END_OUT_OF_MEMORY,
                            .age_us = 1u << 31,
                            .wall_ms = 1790000000000,
                            .value_ms = -5,
                            .step = INT64_MAX,
                            .total = 1,
                            .pid = 4000000,
                            .tb_port = 65535,
                            .running = true,
                            .launched = true,
                            .who = "ann \"the boss\" \\ \x01",
                            .text = "caf\xc3\xa9 \xf0\x9f\x98\x80\n\ttab",
                            .tail = "Traceback:\r\n  \x7f" };
    (void)state;
    for (int t = EV_NONE + 1; t < EV_COUNT; t++) {
        for (int empty = 0; empty < 2; empty++) {
            AUTO(buf_done) struct buf line = { 0 };
            struct job_event in = empty ? (struct job_event){ 0 } : ev, out;
            int64_t t_ms = 0;
            void *holder = NULL;
            struct err e = { 0 };
            in.type = (enum job_event_type)t;
            assert_int_equal(job_event_encode(&in, 123456789, &line), 0);
            assert_null(strchr(buf_cstr(&line), '\n'));
            if (job_event_decode(buf_span(&line), &out, &t_ms, &holder, &e))
                fail_msg("%s: %s", buf_cstr(&line), e.msg);
            assert_true(t_ms == 123456789);
            check_same(&in, &out);
            job_event_release(holder);
        }
    }
    AUTO(buf_done) struct buf line = { 0 };
    assert_int_equal(job_event_encode(&(struct job_event){ .type = EV_NONE }, 0, &line), -EINVAL);
    assert_int_equal(job_event_encode(&(struct job_event){ .type = EV_COUNT }, 0, &line), -EINVAL);
    assert_string_equal(job_event_name(EV_COUNT), "none");
}

static void test_records_look_like_this(void **state)
{
    AUTO(buf_done) struct buf line = { 0 };
    struct job_event ev = { .type = EV_ATTEMPT_ENDED,
                            .slot = 0,
                            .generation = 1,
                            .attempt = 1,
                            .exit_code = 3,
                            .reason = END_EXITED,
                            .age_us = 812,
                            .tail = "boom\n" };
    (void)state;
    assert_int_equal(job_event_encode(&ev, 1234, &line), 0);
    assert_string_equal(
        buf_cstr(&line),
        "{\"e\":\"attempt_ended\",\"t\":1234,\"slot\":0,\"generation\":1,\"attempt\":1,"
        "\"exit_code\":3,\"reason\":\"exited\",\"age_us\":812,\"tail\":\"boom\\n\"}");
}

/* The last 4 KiB of a tail, the first KiB of a text, whole characters; what is no UTF-8 does not
 * spoil the journal. */
static void test_long_and_foreign_texts(void **state)
{
    char tail[10000], text[5000];
    AUTO(buf_done) struct buf line = { 0 };
    struct job_event out;
    int64_t t;
    void *holder;

    (void)state;
    for (size_t i = 0; i + 1 < sizeof tail; i += 2)
        memcpy(tail + i, "\xc3\xa9", 2);
    tail[sizeof tail - 1] = 0;
    tail[sizeof tail - 2] = 'z'; /* so that the cut falls between the bytes of a character */
    memset(text, 'x', sizeof text);
    memcpy(text + 1023, "\xc3\xa9", 2);
    text[sizeof text - 1] = 0;
    struct job_event ev = {
        .type = EV_ATTEMPT_ENDED, .tail = tail, .text = text, .who = "bad \xff\xc3 bytes"
    };
    assert_int_equal(job_event_encode(&ev, 0, &line), 0);
    assert_int_equal(job_event_decode(buf_span(&line), &out, &t, &holder, NULL), 0);
    assert_int_equal(strlen(out.text), 1023);
    assert_int_equal(strlen(out.tail), 4095);
    assert_true(str_ends(out.tail, "\xc3\xa9z"));
    assert_true(span_utf8(span_of(out.tail), NULL) && span_utf8(span_of(out.who), NULL));
    job_event_release(holder);
}

static void test_bad_records(void **state)
{
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "1",
        "\"x\"",
        "{}",
        "null",
        "{\"e\":\"stop\"}",
        "{\"t\":1}",
        "{\"e\":\"nothing\",\"t\":1}",
        "{\"e\":7,\"t\":1}",
        "{\"e\":\"stop\",\"t\":-1}",
        "{\"e\":\"stop\",\"t\":1.5}",
        "{\"e\":\"stop\",\"t\":\"1\"}",
        "{\"e\":\"stop\",\"t\":99999999999999999}",
        "{\"e\":\"stop\",\"t\":1,\"x\":1}",
        "{\"e\":\"stop\",\"t\":1}x",
        "{\"e\":\"stop\",\"t\":1,\"t\":2}",
        "{\"e\":\"beat\",\"t\":1,\"slot\":-1}",
        "{\"e\":\"beat\",\"t\":1,\"slot\":4294967296}",
        "{\"e\":\"beat\",\"t\":1,\"slot\":true}",
        "{\"e\":\"beat\",\"t\":1,\"slot\":1e3}",
        "{\"e\":\"beat\",\"t\":1,\"slot\":null}",
        "{\"e\":\"stop\",\"t\":1,\"who\":3}",
        "{\"e\":\"stop\",\"t\":1,\"who\":\"a\\u0000b\"}",
        "{\"e\":\"completed\",\"t\":1,\"reason\":\"bored\"}",
        "{\"e\":\"completed\",\"t\":1,\"reason\":5}",
        "{\"e\":\"timer\",\"t\":1,\"limit\":\"patience\"}",
        "{\"e\":\"registered\",\"t\":1,\"running\":1}",
        "{\"e\":\"completed\",\"t\":1,\"exit_code\":2147483648}",
        "{\"e\":\"completed\",\"t\":1,\"age_us\":-1}",
        "{\"e\":\"submitted\",\"t\":1,\"wall_ms\":9223372036854775807}",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct job_event out = { .slot = 77 };
        int64_t t = 77;
        void *holder = NULL;
        struct err e = { 0 };
        if (job_event_decode(span_of(bad[i]), &out, &t, &holder, &e) >= 0 || !*e.msg || holder ||
            out.slot != 77 || t != 77)
            fail_msg("taken: %s", bad[i]);
    }
    AUTO(buf_done) struct buf big = { 0 };
    (void)buf_adds(&big, "{\"e\":\"stop\",\"t\":1,\"text\":\"");
    while (big.len < 200000)
        (void)buf_adds(&big, "xxxxxxxxxxxxxxxxxxxx");
    (void)buf_adds(&big, "\"}");
    struct job_event out;
    int64_t t;
    void *holder;
    assert_true(job_event_decode(buf_span(&big), &out, &t, &holder, NULL) < 0);
    /* what the journal's framing adds is not ours to refuse */
    static const char framed[] = "{\"n\":12,\"e\":\"stop\",\"t\":1,\"c\":\"1a2b3c4d\"}";
    assert_int_equal(job_event_decode(span_of(framed), &out, &t, &holder, NULL), 0);
    job_event_release(holder);
}

static const struct {
    const char *job, *script;
} lives[] = {
    { "worker*3", "go +100 worker:0=0 worker:2=1 worker:1=0" },
    { "worker*2 ps*1/untracked tb*1/sidecar",
      "owned master owns +50 tb:0=1 +20 worker:1=0 worker:0=0" },
    { "prep*2 train*2<prep", "go prep:0=0 prep:1=3 +10 train:0=0 master train:1=0" },
    { "chief*1 worker*2 missed=3",
      "go +500 mute:worker:1 +9000 heal:worker:1 chief:0=0 worker:0=0 +30000" },
    { "chief*1 worker*3",
      "go mute:worker:0 mute:worker:1 chief:0=2 +10 worker:0=1@50 +3 heal:worker:1 worker:1=-15" },
    { "worker*2 reg=1000", "mute:worker:1 go grant:worker:1 heal:worker:1 +1500" },
    { "worker*2 gang=0 app=5000", "go worker:1=0 +6000" },
    { "chief*1 worker*2 limit=worker/1000/chief/ignored", "go chief:0=0 +2000" },
    { "worker*2 away=1000", "go owns away +500 master +1500" },
    { "worker*2", "deny:worker:1 go" },
    { "worker*2", "go lose:worker:1 master +5 worker:0=0" },
    { "single=1", "go +5 master stop" },
    { "worker*1", "submit abort" },
    { "worker*2 gives=1", "mute:worker:1 go +40001 heal:worker:1 +10001 worker:0=0 worker:1=0" },
};

/* A crash after any record: the replay never fails, and a new master brings the job to an end,
 * whatever it finds. */
static void test_every_prefix(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lives); i++) {
        struct drive d;
        drive_init(&d, lives[i].job);
        drive_run(&d, lives[i].script);
        struct job_verdict want, got;
        job_verdict(d.job, &want);
        if (want.state < JOB_SUCCEEDED)
            fail_msg("[%s] [%s] does not end", lives[i].job, lives[i].script);

        AUTO(buf_done) struct buf a = { 0 }, b = { 0 };
        drive_results(&d, &a);
        struct job *again = drive_replay(&d, d.journal.n);
        job_verdict(again, &got);
        assert_int_equal(got.state, want.state);
        assert_string_equal(got.message, want.message);
        assert_int_equal(got.cause_slot, want.cause_slot);
        struct drive view = { .job = again };
        drive_results(&view, &b);
        assert_string_equal(buf_cstr(&a), buf_cstr(&b));
        job_free(again);

        size_t n_records = d.journal.n;
        for (size_t n = 0; n <= 2 * n_records + 1; n++) {
            struct drive part;
            drive_init(&part, lives[i].job);
            for (size_t k = 0; k < n / 2; k++)
                assert_int_equal(strv_push(&part.journal, d.journal.v[k]), 0);
            drive_resume(&part, n / 2, n % 2);
            if (job_state(part.job) < JOB_STOPPING)
                drive_run(&part, "stop");
            drive_run(&part, "+60000");
            if (job_state(part.job) < JOB_SUCCEEDED)
                fail_msg("[%s] [%s] from record %zu: %s", lives[i].job, lives[i].script, n / 2,
                         job_state_name(job_state(part.job)));
            drive_done(&part);
        }
        drive_done(&d);
    }
}

/* ---- lack of memory ---- */

struct recorded {
    const struct drive *d;
    struct job_event *ev;
    int64_t *t;
    void **holder;
};

/* An event is applied whole or not at all: feed it again until there is memory, and the job ends as
 * it would have. */
static int life_without_memory(void *arg)
{
    const struct recorded *r = arg;
    struct err e = { 0 };
    struct job *j = job_new(r->d->spec, &e);
    if (!j)
        return -ENOMEM;
    struct job_actions acts = { 0 };
    int failed = 0;

    for (size_t i = 0; i < r->d->journal.n; i++) {
        int rc;
        acts.n = 0;
        while ((rc = job_feed(j, &r->ev[i], r->t[i], &acts, &e)) == -ENOMEM) {
            assert_int_equal(acts.n, 0);
            failed = rc;
        }
        assert_int_equal(rc, 0);
    }
    struct job_verdict a, b;
    job_verdict(r->d->job, &a);
    job_verdict(j, &b);
    assert_int_equal(a.state, b.state);
    assert_string_equal(a.message, b.message);
    AUTO(buf_done) struct buf json = { 0 };
    if (job_status_json(j, true, &json) < 0)
        failed = -ENOMEM;
    vec_done(&acts);
    job_free(j);
    return failed;
}

static void test_torture(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lives); i++) {
        struct drive d;
        drive_init(&d, lives[i].job);
        drive_run(&d, lives[i].script);
        struct recorded r = { .d = &d,
                              .ev = calloc(d.journal.n, sizeof *r.ev),
                              .t = calloc(d.journal.n, sizeof *r.t),
                              .holder = calloc(d.journal.n, sizeof *r.holder) };
        for (size_t k = 0; k < d.journal.n; k++)
            assert_int_equal(drive_record(d.journal.v[k], &r.ev[k], &r.t[k], &r.holder[k]), 0);
        assert_true(torture(life_without_memory, &r) > 5);
        for (size_t k = 0; k < d.journal.n; k++)
            job_event_release(r.holder[k]);
        free(r.ev);
        free(r.t);
        free(r.holder);
        drive_done(&d);
    }
}

/* ---- what it costs ---- */

static struct job_event started(uint32_t slot)
{
    return (struct job_event){
        .type = EV_ATTEMPT_STARTED, .slot = slot, .generation = 1, .attempt = 1, .pid = slot
    };
}

static void feed(struct job *j, struct job_actions *acts, struct job_event ev, uint32_t slot)
{
    char container[64], address[32];
    (void)snprintf(container, sizeof container, "container_1790000000000_0001_01_%06u", slot);
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", 10000 + slot);
    ev.slot = slot;
    if (ev.type == EV_ALLOCATED || ev.type == EV_REGISTERED)
        ev.container = container;
    if (ev.type == EV_REGISTERED)
        ev.text = address;
    acts->n = 0;
    assert_int_equal(job_feed(j, &ev, 5, acts, NULL), 0);
}

/* n tasks from the first event to the last; us for the core alone. */
static int64_t whole_life(unsigned n, size_t *out_bytes)
{
    char text[64];
    (void)snprintf(text, sizeof text, "worker*%u", n);
    struct job_spec *spec = drive_spec(text);
    struct job_actions acts = { 0 };
    size_t before = mallinfo2().uordblks;
    int64_t from = clock_mono_us();
    struct job *j = job_new(spec, NULL);

    feed(j, &acts, (struct job_event){ .type = EV_SUBMITTED }, 0);
    feed(j, &acts, (struct job_event){ .type = EV_MASTER_STARTED, .epoch = 1 }, 0);
    feed(j, &acts, (struct job_event){ .type = EV_RESYNCED }, 0);
    for (uint32_t i = 0; i < n; i++)
        feed(j, &acts, (struct job_event){ .type = EV_ALLOCATED }, i);
    for (uint32_t i = 0; i < n; i++)
        feed(j, &acts, (struct job_event){ .type = EV_REGISTERED }, i);
    for (uint32_t i = 0; i < n; i++)
        feed(j, &acts, started(i), i);
    for (uint32_t k = 0; k < 10; k++) {
        for (uint32_t i = 0; i < n; i++)
            feed(j, &acts, (struct job_event){ .type = EV_BEAT }, i);
    }
    *out_bytes = mallinfo2().uordblks - before - acts.cap * sizeof *acts.v;
    for (uint32_t i = 0; i < n; i++)
        feed(j, &acts,
             (struct job_event){
                 .type = EV_ATTEMPT_ENDED, .generation = 1, .attempt = 1, .reason = END_EXITED },
             i);
    assert_int_equal(job_state(j), JOB_SUCCEEDED);
    int64_t took = clock_mono_us() - from;
    job_free(j);
    vec_done(&acts);
    drive_spec_free(spec);
    return took;
}

static void test_costs(void **state)
{
    size_t bytes = 0, bytes_large = 0;
    int64_t small = INT64_MAX, large = INT64_MAX, encode = INT64_MAX;

    (void)state;
    for (int i = 0; i < 5; i++) {
        small = MIN(small, whole_life(1000, &bytes));
        large = MIN(large, whole_life(16000, &bytes_large));
        AUTO(buf_done) struct buf out = { 0 };
        int64_t from = clock_mono_us();
        for (uint32_t k = 0; k < 4000; k++) {
            struct job_event ev = { .type = EV_REGISTERED,
                                    .slot = k,
                                    .pid = 4000 + k,
                                    .text = "127.0.0.1:40000",
                                    .container = "container_1790000000000_0001_01_000001" };
            (void)job_event_encode(&ev, k, &out);
        }
        assert_false(out.failed);
        encode = MIN(encode, clock_mono_us() - from);
    }
    print_message("# 1000 tasks: %lld us, %zu KiB; 16000 tasks: %lld us; 4000 records: %lld us\n",
                  (long long)small, bytes / 1024, (long long)large, (long long)encode);
#ifndef TONY_SANITIZED /* whose allocator keeps no such books, and takes its time */
    assert_true(bytes < (size_t)1 << 20);
    assert_true(encode < 10000);
    assert_true(large < small * 16 * 6 +
                            100000); /* linear, with room for a busy machine and colder caches */
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_records_look_like_this),
        cmocka_unit_test(test_long_and_foreign_texts),
        cmocka_unit_test(test_bad_records),
        cmocka_unit_test(test_every_prefix),
        cmocka_unit_test(test_torture),
        cmocka_unit_test(test_costs),
    };
    return cmocka_run_group_tests_name("job_journal", tests, NULL, NULL);
}
