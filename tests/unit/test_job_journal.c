/* SPDX-License-Identifier: Apache-2.0 */
/* Events to journal records and back, replays of each prefix, lack of memory, and the cost of
 * it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <malloc.h>
#include <time.h>

#include "base/base.h"
#include "drive.h"
#include "job/job.h"
#include "torture.h"

static void check_same(const struct job_event *a, const struct job_event *b)
{
    AUTO(buf_done) struct buf x = { 0 }, y = { 0 };
    assert_int_equal(a->type, b->type);
    record_add(&x, job_event_info(a->type)->fields, a);
    record_add(&y, job_event_info(b->type)->fields, b);
    assert_string_equal(x.len ? buf_cstr(&x) : "", y.len ? buf_cstr(&y) : "");
}

static void check_round_trip(const struct job_event *in, const struct drive_values *want)
{
    AUTO(buf_done) struct buf line = { 0 };
    struct job_event out;
    int64_t t_ms = 0;
    void *holder = NULL;
    struct err e = { 0 };

    assert_int_equal(job_event_encode(in, 123456789, &line), 0);
    assert_null(strchr(buf_cstr(&line), '\n'));
    if (job_event_decode(buf_span(&line), &out, &t_ms, &holder, &e))
        fail_msg("%s: %s", buf_cstr(&line), e.msg);
    assert_true(t_ms == 123456789);
    check_same(in, &out);
    for (const struct field *f = job_event_info(in->type)->fields; want && f->name; f++) {
        const char *text;
        memcpy(&text, (const char *)&out + f->offset, sizeof text);
        if (f->kind == F_TEXT || f->kind == F_LIST || f->kind == F_TAIL)
            assert_string_equal(text, str_eq(f->name, "container") ? want->container : want->text);
    }
    job_event_release(holder);
}

static void test_round_trip(void **state)
{
    const struct drive_values values = {
        .slot = UINT32_MAX,
        .generation = 5,
        .attempt = 6,
        .container = "container_1_0001_01_000001",
        .text = "caf\xc3\xa9 \"the boss\" \\ \x01\xf0\x9f\x98\x80\r\n\ttab \x7f",
        .limit = LIMIT_SILENCE,
        .reason = END_OUT_OF_MEMORY,
        .number = 65535,
        .flag = true,
    };
    (void)state;
    for (int t = EV_NONE + 1; t < EV_COUNT; t++) {
        struct job_event ev = { .type = (enum job_event_type)t };
        check_round_trip(&ev, NULL);
        drive_fill(&ev, &values);
        check_round_trip(&ev, &values);
    }
    check_round_trip(&(struct job_event){ .type = EV_ATTEMPT_ENDED,
                                          .attempt_ended = { .exit_code = -1,
                                                             .age_us = INT64_MAX,
                                                             .step = INT64_MAX,
                                                             .rank = UINT32_MAX } },
                     NULL);
    check_round_trip(&(struct job_event){ .type = EV_STALLED, .stalled = { .stalled_ms = -5 } },
                     NULL);
    /* a number outside the readers' range is written as the nearest number in it */
    static const int64_t huge[] = { INT64_MAX, INT64_MIN };
    for (size_t i = 0; i < ARRAY_LEN(huge); i++) {
        AUTO(buf_done) struct buf text = { 0 };
        const struct job_event ev = { .type = EV_STALLED, .stalled = { .stalled_ms = huge[i] } };
        struct job_event back;
        void *holder = NULL;
        int64_t t_ms;
        assert_int_equal(job_event_encode(&ev, 1, &text), 0);
        assert_int_equal(job_event_decode(buf_span(&text), &back, &t_ms, &holder, NULL), 0);
        assert_true(back.stalled.stalled_ms == (huge[i] > 0 ? 1 : -1) * ((int64_t)1 << 52));
        job_event_release(holder);
    }
    AUTO(buf_done) struct buf line = { 0 };
    assert_int_equal(job_event_encode(&(struct job_event){ .type = EV_NONE }, 0, &line), -EINVAL);
    assert_int_equal(job_event_encode(&(struct job_event){ .type = EV_COUNT }, 0, &line), -EINVAL);
    assert_string_equal(job_event_name(EV_COUNT), "none");
}

/* Each event's struct begins with the fields that the lists in event.h give. */
static void test_what_events_begin_with(void **state)
{
    static const char *const begin[][3] = {
        [OF_JOB] = { NULL },
        [OF_SLOT] = { "slot" },
        [OF_CONTAINER] = { "slot", "container" },
        [OF_ATTEMPT] = { "slot", "generation", "attempt" },
    };
    const size_t at[][3] = {
        [OF_JOB] = { 0 },
        [OF_SLOT] = { offsetof(struct job_event, of_slot.slot) },
        [OF_CONTAINER] = { offsetof(struct job_event, of_container.slot),
                           offsetof(struct job_event, of_container.container) },
        [OF_ATTEMPT] = { offsetof(struct job_event, of_attempt.slot),
                         offsetof(struct job_event, of_attempt.generation),
                         offsetof(struct job_event, of_attempt.attempt) },
    };
    (void)state;
    for (int t = EV_NONE + 1; t < EV_COUNT; t++) {
        const struct event_info *info = job_event_info((enum job_event_type)t);
        for (size_t i = 0; i < 3 && begin[info->whose][i]; i++) {
            assert_string_equal(info->fields[i].name, begin[info->whose][i]);
            assert_int_equal(info->fields[i].offset, at[info->whose][i]);
        }
        assert_true((info->fields[0].kind == F_SLOT) == (info->whose != OF_JOB));
    }
}

/* Version 0.1.0 had one struct for all events, and other names of fields in the journal. */
static void test_records_of_version_0_1_0(void **state)
{
    static const struct {
        const char *then, *now;
    } rows[] = {
        { "\"e\":\"submitted\",\"t\":0,\"wall_ms\":5,\"running\":true,\"who\":\"ann\",\"text\":"
          "\"application_1_0001\"",
          "\"e\":\"submitted\",\"t\":0,\"application_id\":\"application_1_0001\",\"user\":\"ann\","
          "\"wall_ms\":5,\"owned\":true" },
        { "\"e\":\"master_started\",\"t\":1,\"epoch\":1,\"wall_ms\":5,\"value_ms\":7,\"running\":"
          "true",
          "\"e\":\"master_started\",\"t\":1,\"epoch\":1,\"wall_ms\":5,\"mono_ms\":7,\"gives_back\":"
          "true" },
        { "\"e\":\"container_seen\",\"t\":1,\"slot\":0,\"container\":\"c\",\"launched\":true,"
          "\"text\":\"0\"",
          "\"e\":\"container_seen\",\"t\":1,\"slot\":0,\"container\":\"c\",\"launched\":true,"
          "\"gpus\":\"0\"" },
        { "\"e\":\"allocated\",\"t\":1,\"slot\":0,\"container\":\"c\",\"text\":\"0\",\"node\":"
          "\"n\"",
          "\"e\":\"allocated\",\"t\":1,\"slot\":0,\"container\":\"c\",\"gpus\":\"0\",\"node\":"
          "\"n\"" },
        { "\"e\":\"allocation_refused\",\"t\":1,\"slot\":0,\"text\":\"w\"",
          "\"e\":\"allocation_refused\",\"t\":1,\"slot\":0,\"why\":\"w\"" },
        { "\"e\":\"completed\",\"t\":1,\"slot\":0,\"container\":\"c\",\"text\":\"w\"",
          "\"e\":\"completed\",\"t\":1,\"slot\":0,\"container\":\"c\",\"detail\":\"w\"" },
        { "\"e\":\"preempting\",\"t\":1,\"slot\":0,\"container\":\"c\",\"value_ms\":9",
          "\"e\":\"preempting\",\"t\":1,\"slot\":0,\"container\":\"c\",\"within_ms\":9" },
        { "\"e\":\"registered\",\"t\":1,\"slot\":0,\"container\":\"c\",\"text\":\"h:1\"",
          "\"e\":\"registered\",\"t\":1,\"slot\":0,\"container\":\"c\",\"address\":\"h:1\"" },
        { "\"e\":\"attempt_ended\",\"t\":1,\"slot\":0,\"text\":\"w\",\"tail\":\"x\"",
          "\"e\":\"attempt_ended\",\"t\":1,\"slot\":0,\"detail\":\"w\",\"tail\":\"x\"" },
        { "\"e\":\"checkpoint\",\"t\":1,\"slot\":0,\"group\":2,\"text\":\"/p\"",
          "\"e\":\"checkpoint\",\"t\":1,\"slot\":0,\"path\":\"/p\",\"parts\":2" },
        { "\"e\":\"tensorboard\",\"t\":1,\"slot\":0,\"text\":\"u\"",
          "\"e\":\"tensorboard\",\"t\":1,\"slot\":0,\"url\":\"u\"" },
        { "\"e\":\"stop\",\"t\":1,\"value_ms\":3,\"who\":\"ann\",\"text\":\"w\"",
          "\"e\":\"stop\",\"t\":1,\"who\":\"ann\",\"why\":\"w\",\"save_ms\":3" },
        { "\"e\":\"launch_failed_job\",\"t\":1,\"text\":\"w\"",
          "\"e\":\"launch_failed_job\",\"t\":1,\"why\":\"w\"" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO(free_p) char *then = str_printf("{%s}", rows[i].then);
        AUTO(free_p) char *now = str_printf("{%s}", rows[i].now);
        AUTO(buf_done) struct buf line = { 0 };
        struct job_event ev;
        int64_t t;
        void *holder = NULL;
        struct err e = { 0 };
        if (job_event_decode(span_of(then), &ev, &t, &holder, &e))
            fail_msg("%s: %s", then, e.msg);
        assert_int_equal(job_event_encode(&ev, t, &line), 0);
        assert_string_equal(buf_cstr(&line), now);
        job_event_release(holder);
    }
}

static void test_text_of_the_records(void **state)
{
    AUTO(buf_done) struct buf line = { 0 };
    struct job_event ev = { .type = EV_ATTEMPT_ENDED,
                            .attempt_ended = { .slot = 0,
                                               .generation = 1,
                                               .attempt = 1,
                                               .exit_code = 3,
                                               .reason = END_EXITED,
                                               .age_us = 812,
                                               .tail = "boom\n",
                                               .cause = "exit_code" } };
    (void)state;
    assert_int_equal(job_event_encode(&ev, 1234, &line), 0);
    assert_string_equal(
        buf_cstr(&line),
        "{\"e\":\"attempt_ended\",\"t\":1234,\"slot\":0,\"generation\":1,\"attempt\":1,"
        "\"exit_code\":3,\"reason\":\"exited\",\"age_us\":812,\"tail\":\"boom\\n\","
        "\"cause\":\"exit_code\"}");
}

/* Only the last 4 KiB of a tail and the first KiB of a text are kept, in whole characters. Bytes
 * that are no UTF-8 do not damage the journal. */
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
    tail[sizeof tail - 2] = 'z'; /* so that the cut is inside a character */
    memset(text, 'x', sizeof text);
    memcpy(text + 1023, "\xc3\xa9", 2);
    text[sizeof text - 1] = 0;
    struct job_event ev = { .type = EV_ATTEMPT_ENDED,
                            .attempt_ended = { .tail = tail, .detail = text } };
    assert_int_equal(job_event_encode(&ev, 0, &line), 0);
    assert_int_equal(job_event_decode(buf_span(&line), &out, &t, &holder, NULL), 0);
    assert_int_equal(strlen(out.attempt_ended.detail), 1023);
    assert_int_equal(strlen(out.attempt_ended.tail), 4095);
    assert_true(str_ends(out.attempt_ended.tail, "\xc3\xa9z"));
    assert_true(span_utf8(span_of(out.attempt_ended.tail), NULL));
    job_event_release(holder);
    ev = (struct job_event){ .type = EV_STOP, .stop = { .who = "bad \xff\xc3 bytes" } };
    buf_clear(&line);
    assert_int_equal(job_event_encode(&ev, 0, &line), 0);
    assert_int_equal(job_event_decode(buf_span(&line), &out, &t, &holder, NULL), 0);
    assert_true(span_utf8(span_of(out.stop.who), NULL));
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
        "{\"e\":\"executor_gone\",\"t\":1,\"broke\":1}",
        "{\"e\":\"registered\",\"t\":1,\"running\":true}",
        "{\"e\":\"completed\",\"t\":1,\"exit_code\":2147483648}",
        "{\"e\":\"completed\",\"t\":1,\"age_us\":-1}",
        "{\"e\":\"submitted\",\"t\":1,\"wall_ms\":9223372036854775807}",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct job_event out = { .of_slot.slot = 77 };
        int64_t t = 77;
        void *holder = NULL;
        struct err e = { 0 };
        if (job_event_decode(span_of(bad[i]), &out, &t, &holder, &e) >= 0 || !*e.msg || holder ||
            out.of_slot.slot != 77 || t != 77)
            fail_msg("taken: %s", bad[i]);
    }
    AUTO(buf_done) struct buf big = { 0 };
    (void)buf_adds(&big, "{\"e\":\"stop\",\"t\":1,\"text\":\"");
    while (big.len < 600000)
        (void)buf_adds(&big, "xxxxxxxxxxxxxxxxxxxx");
    (void)buf_adds(&big, "\"}");
    struct job_event out;
    int64_t t;
    void *holder;
    assert_true(job_event_decode(buf_span(&big), &out, &t, &holder, NULL) < 0);
    /* members that the journal's framing adds are accepted */
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

/* A crash after any record: the replay succeeds, and a new master brings the job to an end. */
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

/* An event is applied completely or not at all. If it is repeated until there is memory, the job
 * ends as it would have. */
static int life_without_memory(void *arg)
{
    const struct recorded *r = arg;
    struct err e = { 0 };
    struct job *j = job_new(r->d->spec, &e);
    if (!j)
        return -ENOMEM;
    struct job_actions acts = { 0 };
    int failed = 0;

    job_replaying(j, true);
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

/* ---- costs ---- */

static struct job_event started(uint32_t slot)
{
    return (struct job_event){ .type = EV_ATTEMPT_STARTED,
                               .attempt_started = {
                                   .slot = slot, .generation = 1, .attempt = 1, .pid = slot } };
}

static void feed(struct job *j, struct job_actions *acts, struct job_event ev, uint32_t slot)
{
    char container[64], address[32];
    (void)snprintf(container, sizeof container, "container_1790000000000_0001_01_%06u", slot);
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", 10000 + slot);
    if (job_event_whose(ev.type) != OF_JOB)
        ev.of_slot.slot = slot;
    if (job_event_whose(ev.type) == OF_CONTAINER)
        ev.of_container.container = container;
    if (ev.type == EV_REGISTERED)
        ev.registered.address = address;
    acts->n = 0;
    assert_int_equal(job_feed(j, &ev, 5, acts, NULL), 0);
}

/* The time that this process has computed; unlike the time of day, other processes add little to
 * it. */
static int64_t cpu_us(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* n tasks from the first event to the last; returns the microseconds of the core alone. */
static int64_t whole_life(unsigned n, size_t *out_bytes)
{
    char text[64];
    (void)snprintf(text, sizeof text, "worker*%u", n);
    struct job_spec *spec = drive_spec(text);
    struct job_actions acts = { 0 };
    size_t before = mallinfo2().uordblks;
    int64_t from = cpu_us();
    struct job *j = job_new(spec, NULL);

    feed(j, &acts, (struct job_event){ .type = EV_SUBMITTED }, 0);
    feed(j, &acts,
         (struct job_event){ .type = EV_MASTER_STARTED, .master_started = { .epoch = 1 } }, 0);
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
                 .type = EV_ATTEMPT_ENDED,
                 .attempt_ended = { .generation = 1, .attempt = 1, .reason = END_EXITED } },
             i);
    assert_int_equal(job_state(j), JOB_SUCCEEDED);
    int64_t took = cpu_us() - from;
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
        int64_t from = cpu_us();
        for (uint32_t k = 0; k < 4000; k++) {
            struct job_event ev = { .type = EV_REGISTERED,
                                    .registered = {
                                        .slot = k,
                                        .pid = 4000 + k,
                                        .address = "127.0.0.1:40000",
                                        .container = "container_1790000000000_0001_01_000001" } };
            (void)job_event_encode(&ev, k, &out);
        }
        assert_false(out.failed);
        encode = MIN(encode, cpu_us() - from);
    }
    print_message("# 1000 tasks: %lld us, %zu KiB; 16000 tasks: %lld us; 4000 records: %lld us\n",
                  (long long)small, bytes / 1024, (long long)large, (long long)encode);
#ifndef TONY_SANITIZED /* sanitizers' allocators do not support this measure, and are slow */
    assert_true(bytes < (size_t)1 << 20);
    assert_true(encode < 100000); /* 25 us a record: about ten times what it takes */
    /* Linear growth, with a margin for cold caches. */
    assert_true(large < small * 16 * 6 + 100000);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_what_events_begin_with),
        cmocka_unit_test(test_records_of_version_0_1_0),
        cmocka_unit_test(test_text_of_the_records),
        cmocka_unit_test(test_long_and_foreign_texts),
        cmocka_unit_test(test_bad_records),
        cmocka_unit_test(test_every_prefix),
        cmocka_unit_test(test_torture),
        cmocka_unit_test(test_costs),
    };
    return cmocka_run_group_tests_name("job_journal", tests, NULL, NULL);
}
