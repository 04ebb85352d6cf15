/* SPDX-License-Identifier: Apache-2.0 */
/* The request for a resize that a client leaves for the first master of a job. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "codec/frame.h"
#include "proto/tony.pb-c.h"
#include "scheduler/yarn/resizefile.h"
#include "torture.h"

#define APP "application_1700000000000_0001"

static int encode(struct buf *out, struct err *e)
{
    Tony__RoleSize size = TONY__ROLE_SIZE__INIT, *list[] = { &size };
    Tony__ResizeJob r = TONY__RESIZE_JOB__INIT;
    size.role = (char *)(uintptr_t) "worker";
    size.instances = 3;
    r.application_id = (char *)(uintptr_t)APP;
    r.who = (char *)(uintptr_t) "ann@here pid 1";
    r.reason = (char *)(uintptr_t) "more";
    r.within_ms = 5;
    r.n_roles = 1;
    r.roles = list;
    return resize_file_encode(&r, out, e);
}

static void test_there_and_back(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(frame_freep) Tony__Frame *f = NULL;
    struct err e = { 0 };
    assert_int_equal(encode(&text, &e), 0);
    assert_int_equal(resize_file_decode(buf_span(&text), APP, &f, &e), 0);
    const Tony__ResizeJob *r = f->resize_job;
    assert_int_equal(r->n_roles, 1);
    assert_string_equal(r->roles[0]->role, "worker");
    assert_int_equal(r->roles[0]->instances, 3);
    assert_string_equal(r->who, "ann@here pid 1");
    assert_string_equal(r->reason, "more");
    assert_int_equal(r->within_ms, 5);
}

static void refused(struct span text, const char *app, const char *why)
{
    Tony__Frame *f = NULL;
    struct err e = { 0 };
    assert_int_equal(resize_file_decode(text, app, &f, &e), -EBADMSG);
    assert_null(f);
    if (!strstr(e.msg, why))
        fail_msg("'%s' lacks '%s'", e.msg, why);
    assert_int_equal(resize_file_decode(text, app, &f, NULL), -EBADMSG);
}

static void test_invalid_files_are_refused(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(buf_done) struct buf other = { 0 };
    struct err e = { 0 };
    assert_int_equal(encode(&text, &e), 0);
    refused(buf_span(&text), "application_1700000000000_0002", "it is for the job '" APP "'");
    for (size_t n = 0; n < text.len; n++)
        refused(span_mem(text.p, n), APP, "one whole message");
    assert_int_equal(buf_addc(&text, 0), 0);
    refused(buf_span(&text), APP, "one whole message");
    refused(SPAN("\0\0\0\0more"), APP, "one whole message");
    refused(SPAN("\xff\xff\xff\xffmore"), APP, "one whole message");
    refused(SPAN("\0\0\0\7no fram"), APP, "it is damaged");
    AUTO(free_p) char *large = calloc(1, RESIZE_FILE_MAX + 1);
    refused(span_mem(large, RESIZE_FILE_MAX + 1), APP, "the limit is 65536");

    Tony__ClientAsk ask = TONY__CLIENT_ASK__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &ask;
    assert_int_equal(frame_pack(&f, &other), 0);
    refused(buf_span(&other), APP, "another message");
}

static void test_a_request_that_is_too_large(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(free_p) char *reason = malloc(RESIZE_FILE_MAX + 1);
    Tony__ResizeJob r = TONY__RESIZE_JOB__INIT;
    struct err e = { 0 };
    memset(reason, 'x', RESIZE_FILE_MAX);
    reason[RESIZE_FILE_MAX] = 0;
    r.reason = reason;
    assert_int_equal(resize_file_encode(&r, &text, &e), -EMSGSIZE);
}

static void test_the_newest_file(void **state)
{
    (void)state;
    static const struct files_stat stats[] = {
        { .name = "9", .length = 90 },
        { .name = "10", .length = 100 },
        { .name = "2", .length = 20 },
        { .name = "11", .is_dir = true },
        { .name = "012" },
        { .name = "0" },
        { .name = "-12" },
        { .name = "12 " },
        { .name = "1000000000" },
        { .name = "99999999999999999999" },
        { .name = "12._COPYING_" },
        { .name = "" },
    };
    int64_t bytes = -1;
    assert_int_equal(resize_file_newest(NULL, stats, ARRAY_LEN(stats), &bytes), 10);
    assert_int_equal(bytes, 100);
    bytes = -1;
    assert_int_equal(resize_file_newest(NULL, stats + 3, ARRAY_LEN(stats) - 3, &bytes), 0);
    assert_int_equal(bytes, -1);
}

static int short_of_memory(void *ctx)
{
    (void)ctx;
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(frame_freep) Tony__Frame *f = NULL;
    struct err e = { 0 };
    int rc = encode(&text, &e);
    if (rc == 0)
        rc = resize_file_decode(buf_span(&text), APP, &f, &e);
    return rc == -EBADMSG ? -ENOMEM : rc; /* protobuf-c does not say why it gave up */
}

static void test_no_memory(void **state)
{
    (void)state;
    assert_true(torture(short_of_memory, NULL) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_invalid_files_are_refused),
        cmocka_unit_test(test_a_request_that_is_too_large),
        cmocka_unit_test(test_the_newest_file),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
