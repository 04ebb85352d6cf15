/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.conf: each part of a job is written and read back; a damaged file is refused.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "conf/conf.h"
#include "storage/jobfile.h"
#include "storage/store.h"
#include "torture.h"

static struct job_file *sample(void)
{
    struct job_file *f = calloc(1, sizeof *f);
    struct err e = { 0 };
    f->conf = conf_new();
    assert_non_null(f->conf);
    if (conf_set(f->conf, CL_JOB, "tony.application.name", "a \"name\" with ]} and \\",
                 "job.yaml:3", false, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(conf_set(f->conf, CL_CONF, "tony.worker.instances", "2", "--conf", false, &e),
                     0);
    f->user = str_dup("ann");
    f->host = str_dup("host");
    f->cwd = str_dup("/home/ann/\xc3\xbc");
    f->version = str_dup("0.1.0");
    f->wall_ms = 1767225600123;
    f->pid = 4711;
    f->n_ship = 2;
    f->ship = calloc(2, sizeof *f->ship);
    f->ship[0] = (struct ship_item){ .kind = SHIP_SRC,
                                     .source = str_dup("/home/ann/src"),
                                     .name = str_dup(""),
                                     .role = str_dup(""),
                                     .digest = str_dup("0123"),
                                     .path = str_dup("/home/ann/.tony/store/d-0123"),
                                     .bytes = 1234567890123,
                                     .n_files = 17 };
    f->ship[1] = (struct ship_item){ .kind = SHIP_IN_PLACE,
                                     .source = str_dup("/venv"),
                                     .name = str_dup("venv"),
                                     .role = str_dup("worker"),
                                     .digest = str_dup(""),
                                     .path = str_dup("/venv") };
    return f;
}

static void encode(struct buf *out)
{
    AUTO(job_file_freep) struct job_file *f = sample();
    struct err e = { 0 };
    if (job_file_encode(f, out, &e) < 0)
        fail_msg("%s", e.msg);
}

static void test_round_trip(void **state)
{
    (void)state;
    AUTO(job_file_freep) struct job_file *a = sample(), *b = NULL;
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(buf_done) struct buf again = { 0 };
    struct err e = { 0 };
    assert_int_equal(job_file_encode(a, &text, &e), 0);
    if (job_file_decode(buf_span(&text), &b, &e) < 0)
        fail_msg("%s", e.msg);
    assert_string_equal(conf_get(b->conf, "tony.application.name"), "a \"name\" with ]} and \\");
    assert_string_equal(conf_origin(b->conf, "tony.application.name"), "job.yaml:3");
    assert_int_equal(b->n_ship, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(b->ship[i].kind, a->ship[i].kind);
        assert_string_equal(b->ship[i].source, a->ship[i].source);
        assert_string_equal(b->ship[i].name, a->ship[i].name);
        assert_string_equal(b->ship[i].role, a->ship[i].role);
        assert_string_equal(b->ship[i].digest, a->ship[i].digest);
        assert_string_equal(b->ship[i].path, a->ship[i].path);
        assert_true(b->ship[i].bytes == a->ship[i].bytes);
        assert_int_equal(b->ship[i].n_files, a->ship[i].n_files);
    }
    assert_string_equal(b->user, a->user);
    assert_string_equal(b->host, a->host);
    assert_string_equal(b->cwd, a->cwd);
    assert_string_equal(b->version, a->version);
    assert_true(b->wall_ms == a->wall_ms);
    assert_int_equal(b->pid, a->pid);
    assert_int_equal(job_file_encode(b, &again, &e), 0);
    assert_true(span_eq(buf_span(&text), buf_span(&again)));
}

/* No prefix of the text is accepted. */
static void test_cut_anywhere(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf text = { 0 };
    encode(&text);
    for (size_t len = 0; len + 1 < text.len; len++) { /* the newline at the end is not needed */
        AUTO(job_file_freep) struct job_file *f = NULL;
        struct err e = { 0 };
        if (job_file_decode(span_mem(text.p, len), &f, &e) == 0)
            fail_msg("cut at %zu of %zu", len, text.len);
        assert_null(f);
        assert_true(e.num > 0 && e.msg[0]);
    }
}

static void test_damaged(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "{}",
        "[]",
        "{\"format\":2,\"conf\":[],\"ship\":[],\"submit\":{}}",
        "{\"format\":1,\"conf\":[],\"ship\":[],\"submit\":{}}",
        "{\"format\":1,\"conf\":[],\"ship\":{},\"submit\":{\"user\":\"\",\"host\":\"\",\"cwd\":"
        "\"\",\"version\":\"\",\"wall_ms\":1}}",
        "{\"format\":1,\"conf\":[],\"ship\":[{\"kind\":\"what\"}],\"submit\":{\"user\":\"\","
        "\"host\":\"\",\"cwd\":\"\",\"version\":\"\",\"wall_ms\":1}}",
        "{\"format\":1,\"conf\":[],\"ship\":[],\"submit\":{\"user\":\"\",\"host\":\"\",\"cwd\":"
        "\"\",\"version\":\"\",\"wall_ms\":-1}}",
        "{\"format\":1,\"conf\":[],\"ship\":[],\"submit\":{\"user\":1,\"host\":\"\",\"cwd\":\"\","
        "\"version\":\"\",\"wall_ms\":1}}",
        "{\"format\":1,\"conf\":[[[,\"ship\":[]}",
        "{\"format\":1,\"conf\":7,\"ship\":[],\"submit\":{}}",
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO(job_file_freep) struct job_file *f = NULL;
        struct err e = { 0 };
        if (job_file_decode(span_of(rows[i]), &f, &e) == 0)
            fail_msg("row %zu was taken", i);
        assert_true(e.num > 0);
    }
    AUTO(job_file_freep) struct job_file *f = NULL;
    assert_int_equal(
        job_file_decode(
            SPAN("{\"format\":1,\"conf\":[],\"ship\":[],\"submit\":{\"user\":\"\",\"host\":\"\","
                 "\"cwd\":\"\",\"version\":\"\",\"wall_ms\":1}}"),
            &f, NULL),
        0);
}

static void test_names_that_are_not_text(void **state)
{
    (void)state;
    AUTO(job_file_freep) struct job_file *f = sample();
    free(f->ship[0].source);
    f->ship[0].source = str_dup("/bad\xff");
    AUTO(buf_done) struct buf text = { 0 };
    struct err e = { 0 };
    assert_int_equal(job_file_encode(f, &text, &e), -EILSEQ);
    assert_non_null(strstr(e.msg, "is not UTF-8"));
}

static int decode_once(void *ctx)
{
    struct buf *text = ctx;
    AUTO(job_file_freep) struct job_file *f = NULL;
    struct err e = { 0 };
    int rc = job_file_decode(buf_span(text), &f, &e);
    /* jansson reports a lack of memory like unreadable text */
    return rc == -EINVAL ? -ENOMEM : rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf text = { 0 };
    encode(&text);
    assert_true(torture(decode_once, &text) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_damaged),    cmocka_unit_test(test_names_that_are_not_text),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("storage jobfile", tests, NULL, NULL);
}
