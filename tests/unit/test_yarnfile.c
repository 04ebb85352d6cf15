/* SPDX-License-Identifier: Apache-2.0 */
/*
 * yarn.json: each part is written and read back; damaged or invalid files are refused.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "scheduler/yarn/yarnfile.h"
#include "torture.h"

static struct yarn_file *sample(void)
{
    struct yarn_file *f = calloc(1, sizeof *f);
    f->user = str_dup("ann");
    f->queue = str_dup("root.default");
    f->default_fs = str_dup("hdfs://ns");
    f->protection = str_dup("privacy");
    f->staging = str_dup("/user/ann/.tony/application_1_0001");
    f->history = str_dup("/user/ann/.tony/hist\xc3\xb6ry");
    f->am_expiry_ms = 900000;
    f->https = true;
    assert_int_equal(strv_push(&f->rm, "rm1:8032") | strv_push(&f->rm, "rm2:8032"), 0);
    assert_int_equal(strv_push(&f->scheduler, "rm1:8030"), 0);
    assert_int_equal(strv_push(&f->namenodes, "nn:9870"), 0);
    struct yarn_resource r = { .name = str_dup("tony-executor"),
                               .role = str_dup(""),
                               .scheme = str_dup("hdfs"),
                               .host = str_dup("ns"),
                               .file = str_dup("/user/ann/.tony/cache/0a/tony-executor"),
                               .port = -1,
                               .size = 1234567890123,
                               .timestamp_ms = 1767225600123,
                               .visibility = YARN_PRIVATE };
    assert_int_equal(vec_push(&f->resources, r), 0);
    struct yarn_resource a = { .name = str_dup("venv"),
                               .role = str_dup("worker"),
                               .scheme = str_dup("file"),
                               .host = str_dup(""),
                               .file = str_dup("/a b/venv.tar.gz"),
                               .port = 8020,
                               .size = -1,
                               .archive = true,
                               .visibility = YARN_PUBLIC };
    assert_int_equal(vec_push(&f->resources, a), 0);
    struct yarn_role w = { .name = str_dup("worker"), .label = str_dup("gpu") };
    assert_int_equal(strv_push(&w.types, "yarn.io/gpu=2"), 0);
    assert_int_equal(strv_push(&w.env, "A=b=\"c\""), 0);
    assert_int_equal(vec_push(&f->roles, w), 0);
    struct yarn_role all = { .name = str_dup("") };
    assert_int_equal(vec_push(&f->roles, all), 0);
    return f;
}

static void test_there_and_back(void **state)
{
    AUTO(yarn_file_freep) struct yarn_file *f = sample(), *g = NULL;
    AUTO(buf_done) struct buf text = { 0 }, again = { 0 };
    struct err e = { 0 };
    (void)state;

    assert_int_equal(yarn_file_encode(f, &text, &e), 0);
    if (yarn_file_decode(buf_span(&text), &g, &e) < 0)
        fail_msg("%s: %s", e.msg, buf_cstr(&text));
    assert_string_equal(g->user, "ann");
    assert_string_equal(g->history, f->history);
    assert_int_equal(g->am_expiry_ms, 900000);
    assert_true(g->https && !g->keep_containers);
    assert_int_equal(g->rm.n, 2);
    assert_string_equal(g->rm.v[1], "rm2:8032");
    assert_int_equal(g->resources.n, 2);
    assert_int_equal(g->resources.v[0].port, -1);
    assert_true(g->resources.v[0].timestamp_ms == 1767225600123);
    assert_int_equal(g->resources.v[1].visibility, YARN_PUBLIC);
    assert_true(g->resources.v[1].archive);
    const struct yarn_role *w = yarn_file_role(g, "worker"), *all = yarn_file_role(g, "");
    assert_string_equal(strv_env_get(&w->types, "yarn.io/gpu"), "2");
    assert_string_equal(strv_env_get(&w->env, "A"), "b=\"c\"");
    assert_string_equal(w->label, "gpu");
    assert_non_null(all);
    assert_null(all->label);
    assert_null(yarn_file_role(g, "ps"));
    assert_int_equal(yarn_file_encode(g, &again, &e), 0);
    assert_string_equal(buf_cstr(&text), buf_cstr(&again));
}

/* Each row: a piece of the text, its replacement, and the member that the error names. */
static void test_damaged(void **state)
{
    static const struct {
        const char *from, *to, *named;
    } rows[] = {
        { "\"format\":1", "\"format\":2", "format" },
        { "\"user\":\"ann\"", "\"user\":\"\"", "user" },
        { "\"user\":\"ann\"", "\"user\":7", "user" },
        { "\"staging\":\"/", "\"staging\":\"", "staging" },
        { "\"history\":\"/", "\"history\":\"", "history" },
        { "[\"rm1:8032\",\"rm2:8032\"]", "[]", "rm" },
        { "[\"rm1:8030\"]", "[8030]", "scheduler" },
        { "[\"nn:9870\"]", "\"nn:9870\"", "namenodes" },
        { "\"https\":true", "\"https\":1", "https" },
        { "\"am_expiry_ms\":900000", "\"am_expiry_ms\":-1", "am_expiry_ms" },
        { "\"port\":-1", "\"port\":0", "resources.port" },
        { "\"port\":-1", "\"port\":70000", "port" },
        { "\"type\":\"FILE\"", "\"type\":\"PATTERN\"", "resources.type" },
        { "\"visibility\":\"PUBLIC\"", "\"visibility\":\"ALL\"", "resources.visibility" },
        { "\"file\":\"/user", "\"file\":\"user", "resources.file" },
        { "\"name\":\"venv\"", "\"name\":\"/venv\"", "resources.name" },
        { "\"name\":\"venv\"", "\"name\":null", "name" },
        { "yarn.io/gpu=2", "yarn.io/gpu", "roles.types" },
        { "yarn.io/gpu=2", "yarn.io/gpu=-2", "roles.types" },
        { "yarn.io/gpu=2", "=2", "roles.types" },
        { "A=b=", "=b ", "roles.env" },
        { "\"label\":\"gpu\"", "\"label\":[]", "label" },
        { "\"resources\":[", "\"resources\":{},\"r\":[", "resources" },
        { "\"roles\":[", "\"roles\":[3,", "name" },
    };
    AUTO(yarn_file_freep) struct yarn_file *f = sample();
    AUTO(buf_done) struct buf text = { 0 };
    (void)state;
    assert_int_equal(yarn_file_encode(f, &text, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO(buf_done) struct buf bad = { 0 };
        AUTO(yarn_file_freep) struct yarn_file *g = NULL;
        struct err e = { 0 };
        char quoted[80];
        const char *at = strstr(buf_cstr(&text), rows[i].from);
        if (!at)
            fail_msg("'%s' is not in %s", rows[i].from, buf_cstr(&text));
        (void)buf_add(&bad, text.p, (size_t)(at - text.p));
        (void)buf_adds(&bad, rows[i].to);
        assert_int_equal(buf_adds(&bad, at + strlen(rows[i].from)), 0);
        (void)snprintf(quoted, sizeof quoted, "'%s'", rows[i].named);
        if (yarn_file_decode(buf_span(&bad), &g, &e) != -EBADMSG || g || !strstr(e.msg, quoted))
            fail_msg("'%s': %s", rows[i].to, e.msg);
    }
    for (size_t n = 0; n + 1 < text.len; n++) { /* cut at each byte */
        AUTO(yarn_file_freep) struct yarn_file *g = NULL;
        assert_true(yarn_file_decode((struct span){ text.p, n }, &g, NULL) < 0);
    }
}

static void test_invalid_members_are_not_encoded(void **state)
{
    AUTO(yarn_file_freep) struct yarn_file *f = sample();
    AUTO(buf_done) struct buf text = { 0 };
    struct err e = { 0 };
    (void)state;
    f->resources.v[0].visibility = YARN_VISIBILITY_NONE;
    assert_int_equal(yarn_file_encode(f, &text, &e), -EINVAL);
    assert_int_equal(text.len, 0);
    f->resources.v[0].visibility = YARN_APPLICATION;
    free(TAKE(f->user));
    assert_int_equal(yarn_file_encode(f, &text, &e), -EINVAL);
    f->user = str_dup("\xff");
    assert_int_equal(yarn_file_encode(f, &text, &e), -EINVAL);
}

static int read_it(void *arg)
{
    AUTO(yarn_file_freep) struct yarn_file *g = NULL;
    int rc = yarn_file_decode(buf_span(arg), &g, NULL);
    /* jansson reports a lack of memory like unreadable text, and may lose bytes of a name */
    return rc == -EINVAL || rc == -EBADMSG ? -ENOMEM : rc;
}

static int write_it(void *arg)
{
    AUTO(buf_done) struct buf text = { 0 };
    return yarn_file_encode(arg, &text, NULL);
}

static void test_no_memory(void **state)
{
    AUTO(yarn_file_freep) struct yarn_file *f = sample();
    AUTO(buf_done) struct buf text = { 0 };
    (void)state;
    assert_int_equal(yarn_file_encode(f, &text, NULL), 0);
    (void)torture(read_it, &text);
    (void)torture(write_it, f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_invalid_members_are_not_encoded),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("yarnfile", tests, NULL, NULL);
}
