/* SPDX-License-Identifier: Apache-2.0 */
/* Values in layers: which layer wins, the origin of a value, appended values; lists, environments,
 * resources; encoding and decoding. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "conf/conf.h"
#include "torture.h"

static void set_ok(struct conf *c, enum conf_layer layer, const char *key, const char *value,
                   const char *origin, bool final)
{
    struct err e = { 0 };
    if (conf_set(c, layer, key, value, origin, final, &e) < 0)
        fail_msg("%s", e.msg);
}

static void test_layers(void **state)
{
    (void)state;
    static const char key[] = "tony.application.name";
    struct conf *c = conf_new();
    assert_string_equal(conf_get(c, key), "TensorFlowApplication");
    assert_string_equal(conf_origin(c, key), "default");
    set_ok(c, CL_SITE, key, "site", "site file s:1", false);
    assert_string_equal(conf_get(c, key), "site");
    set_ok(c, CL_JOB, key, "job", "j:2", false);
    assert_string_equal(conf_get(c, key), "job");
    assert_string_equal(conf_origin(c, key), "j:2");
    /* A lower layer that is read later. */
    set_ok(c, CL_SITE, key, "late site", "site file s:9", false);
    assert_string_equal(conf_get(c, key), "job");
    set_ok(c, CL_CONF, key, "conf", "--conf", false);
    set_ok(c, CL_OPTION, key, "option", "--name", false);
    assert_string_equal(conf_get(c, key), "conf");
    set_ok(c, CL_CONF, key, "conf 2", "--conf", false);
    assert_string_equal(conf_get(c, key), "conf 2");
    conf_free(c);
}

static void test_final(void **state)
{
    (void)state;
    static const char key[] = "tony.application.timeout";
    struct err e = { 0 };
    struct conf *c = conf_new();
    set_ok(c, CL_SITE, key, "1000", "site file s.xml:3", true);
    assert_int_equal(-EINVAL, conf_set(c, CL_JOB, key, "2000", "j.yaml:7", false, &e));
    assert_string_equal(e.msg,
                        "j.yaml:7: 'tony.application.timeout' cannot be changed: it is final "
                        "in site file s.xml:3");
    assert_true(*e.hint);
    set_ok(c, CL_CONF, key, "1000", "--conf", false); /* setting the same value again is allowed */
    assert_string_equal(conf_get(c, key), "1000");
    assert_string_equal(conf_origin(c, key), "site file s.xml:3");
    conf_free(c);
    /* a final value that is read later still wins */
    c = conf_new();
    set_ok(c, CL_JOB, key, "2000", "j", false);
    set_ok(c, CL_SITE, key, "1000", "s", true);
    assert_string_equal(conf_get(c, key), "1000");
    conf_free(c);
}

static void test_appended(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        bool appends;
    } keys[] = {
        { "tony.containers.envs", true },      { "tony.execution.envs", true },
        { "tony.containers.resources", true }, { "tony.worker.env", false },
        { "tony.worker.resources", false },    { "tony.application.tags", false },
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        struct conf *c = conf_new();
        set_ok(c, CL_SITE, keys[i].key, "s=0", "s:1", false);
        /* The list of the later file replaces the earlier one. */
        set_ok(c, CL_JOB, keys[i].key, "a=1", "j:1", false);
        assert_string_equal(conf_get(c, keys[i].key), "a=1");
        set_ok(c, CL_OPTION, keys[i].key, "b=2", "--shell_env", false);
        set_ok(c, CL_CONF, keys[i].key, "c=3", "--conf", false);
        set_ok(c, CL_CONF, keys[i].key, "d=4", "--conf", false);
        assert_string_equal(conf_get(c, keys[i].key), keys[i].appends ? "a=1,b=2,c=3,d=4" : "d=4");
        assert_string_equal(conf_origin(c, keys[i].key),
                            keys[i].appends ? "j:1, --shell_env, --conf, --conf" : "--conf");
        conf_free(c);
    }
    struct conf *c = conf_new();
    set_ok(c, CL_CONF, keys[0].key, "a=x\\", "--conf", false);
    set_ok(c, CL_CONF, keys[0].key, "b=2", "--conf", false);
    struct strv env = { 0 };
    assert_int_equal(0, conf_env_parse(span_of(conf_get(c, keys[0].key)), &env, NULL));
    assert_int_equal(env.n, 2);
    assert_string_equal(env.v[0], "a=x\\");
    strv_done(&env);
    conf_free(c);
}

static void test_wrong_values_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *sentence, *hint;
    } cases[] = {
        { "tony.worker.instances", "two",
          "o: 'tony.worker.instances' must be a whole number, not 'two'", "" },
        { "tony.worker.instances", "-1", "o: 'tony.worker.instances' must be at least 0, not -1",
          "" },
        { "tony.worker.instances", "1.5", "o: 'tony.worker.instances' must be a whole number", "" },
        { "tony.worker.instances", "",
          "o: 'tony.worker.instances' must be a whole number, but it is empty", "" },
        { "tony.worker.instances", "100001", "o: 'tony.worker.instances' must be at most 100000",
          "" },
        { "tony.worker.instances", "99999999999999999999",
          "o: 'tony.worker.instances' must be between", "" },
        { "tony.worker.memory", "0", "o: 'tony.worker.memory' must be at least 1 MiB", "" },
        { "tony.worker.memory", "1.5g", "o: 'tony.worker.memory' must be a size", "" },
        { "tony.worker.memory", "lots", "o: 'tony.worker.memory' must be a size", "" },
        { "tony.worker.memory", "-2g", "o: 'tony.worker.memory' must be at least", "" },
        { "tony.worker.memory", "100000t", "o: 'tony.worker.memory' must be at most", "" },
        { "tony.worker.gpus", "-1", "o: 'tony.worker.gpus' must be at least 0", "" },
        { "tony.resize.timeout", "20x", "o: 'tony.resize.timeout' must be a time, not '20x'",
          "write a number of ms, or a number and its unit: 500ms, 90s, 10m, 2h, 1d" },
        { "tony.resize.timeout", "-5s",
          "o: 'tony.resize.timeout' must be between 0 ms and 3650 days, not '-5s'", "" },
        { "tony.resize.timeout", "1.5", "o: 'tony.resize.timeout' must be a whole number", "" },
        { "tony.pool.policy.resize-limit", "999ms",
          "o: 'tony.pool.policy.resize-limit' must be between 1 second and 1 day, not '999ms'",
          "" },
        { "tony.history.retention-sec", "1500ms",
          "o: 'tony.history.retention-sec' must be a whole number of seconds, not '1500ms'", "" },
        { "tony.worker.instances", "2s", "o: 'tony.worker.instances' must be a whole number", "" },
        { "tony.resize.timeout", "-5", "o: 'tony.resize.timeout' must be at least 0, not -5", "" },
        { "tony.worker.vcores", "x", "o: 'tony.worker.vcores' must be a whole number", "" },
        { "tony.docker.enabled", "maybe",
          "o: 'tony.docker.enabled' must be true or false, not 'maybe'", "" },
        { "tony.application.framework", "pytorhc",
          "o: 'tony.application.framework' must be one of tensorflow, pytorch, mxnet, horovod, "
          "jax, mpi, xgboost, lightgbm, ray, dask, standalone, generic, "
          "not 'pytorhc'",
          "did you mean 'pytorch'?" },
        { "tony.application.distributed-mode", "gan",
          "o: 'tony.application.distributed-mode' must be one of", "'GANG'" },
        { "tony.pool.policy", "dormouse", "o: 'tony.pool.policy' must be one of", "" },
        { "tony.pool.policy", " LAS",
          "o: 'tony.pool.policy' cannot be 'las': that policy stops running jobs, and the pool "
          "cannot "
          "put a running job back into the queue",
          "las-elastic resizes jobs instead" },
        { "tony.pool.policy.levels", "60,x", "o: 'tony.pool.policy.levels' must be a number", "" },
        { "tony.pool.policy.levels", "60, 60",
          "o: the numbers of 'tony.pool.policy.levels' must rise, but 60 is not above 60", "" },
        { "tony.pool.policy.levels", "-1", "o: 'tony.pool.policy.levels' must be between 0 and",
          "" },
        { "tony.pool.policy.levels", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17",
          "o: 'tony.pool.policy.levels' has 17 numbers; the limit is 16", "" },
        { "tony.pool.policy", "srtf", "o: 'tony.pool.policy' cannot be 'srtf'", "" },
        { "tony.execution.envs", "A=1,=2",
          "o: 'tony.execution.envs': the variable in '=2' has no name", "NAME=VALUE" },
        { "tony.worker.instaces", "1", "o: unknown key 'tony.worker.instaces'",
          "did you mean 'tony.worker.instances'?" },
        { "tony.task.instances", "1",
          "o: unknown key 'tony.task.instances': 'task' cannot be the name of a role: it is "
          "reserved",
          "" },
        { "dfs.replication", "1", "o: unknown key 'dfs.replication': keys begin with 'tony.'",
          "doctor --keys" },
        { "worker.memory", "1", "o: unknown key 'worker.memory'",
          "did you mean 'tony.worker.memory'?" },
        { "", "1", "o: unknown key ''", "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = { 0 };
        struct conf *c = conf_new();
        int rc = conf_set(c, CL_CONF, cases[i].key, cases[i].value, "o", false, &e);
        if (rc >= 0)
            fail_msg("%s=%s is taken", cases[i].key, cases[i].value);
        if (!str_starts(e.msg, cases[i].sentence) || !strstr(e.hint, cases[i].hint))
            fail_msg("%s=%s: '%s' hint '%s'", cases[i].key, cases[i].value, e.msg, e.hint);
        conf_free(c);
    }
}

/* A time may have a unit. It is stored as the number that the key promises. */
static void test_times_have_units(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
        int64_t number;
    } cases[] = {
        { "tony.pool.policy.payback", "1h", 3600000 },
        { "tony.pool.policy.payback", "3600000", 3600000 },
        { "tony.pool.policy.payback", "0s", 0 },
        { "tony.pool.policy.interval", " 500 ms ", 500 },
        { "tony.application.timeout", "2D", 172800000 },
        { "tony.application.timeout", "-1", -1 },
        { "tony.worker.restart-delay", "90s", 90000 },
        { "tony.history.retention-sec", "30d", 2592000 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct conf *c = conf_new();
        AUTO(free_p) char *number = str_printf("%lld", (long long)cases[i].number);
        set_ok(c, CL_JOB, cases[i].key, cases[i].value, "j:1", false);
        assert_int_equal(conf_int(c, cases[i].key), cases[i].number);
        assert_string_equal(conf_get(c, cases[i].key), number);
        conf_free(c);
    }
    /* The same time in another form is the same value. */
    struct conf *c = conf_new();
    set_ok(c, CL_SITE, "tony.application.timeout", "1h", "s", true);
    set_ok(c, CL_JOB, "tony.application.timeout", "60m", "j", false);
    set_ok(c, CL_JOB, "tony.application.timeout", "3600000", "j", false);
    conf_free(c);
}

static void test_reading(void **state)
{
    (void)state;
    struct conf *c = conf_new();
    assert_int_equal(conf_int(c, "tony.worker.memory"), 2048);
    static const struct {
        const char *text;
        int64_t mib;
    } sizes[] = { { "2g", 2048 }, { "2M", 2 }, { "3", 3 }, { "2gb", 2048 }, { " 4096m ", 4096 } };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        set_ok(c, CL_CONF, "tony.worker.memory", sizes[i].text, "o", false);
        assert_int_equal(conf_int(c, "tony.worker.memory"), sizes[i].mib);
    }
    assert_int_equal(conf_int(c, "tony.client.away-limit"), 60000);
    assert_int_equal(conf_int(c, "tony.pool.memory"), 0);
    assert_null(conf_get(c, "tony.pool.memory"));
    assert_null(conf_get(c, "tony.nothing"));
    assert_int_equal(conf_int(c, "tony.nothing"), 0);
    assert_false(conf_bool(c, "tony.nothing"));
    assert_true(conf_bool(c, "tony.application.security.enabled"));
    set_ok(c, CL_CONF, "tony.application.security.enabled", "FALSE", "o", false);
    assert_false(conf_bool(c, "tony.application.security.enabled"));
    set_ok(c, CL_CONF, "tony.application.distributed-mode", "fcfs", "o", false); /* any case */
    conf_free(c);
    conf_free(NULL);
}

/* ---- lists ---- */

static void join_all(const struct strv *s, struct buf *out)
{
    for (size_t i = 0; i < s->n; i++)
        assert_int_equal(0, buf_addf(out, "<%s>", s->v[i]));
}

static void test_lists(void **state)
{
    (void)state;
    static const struct {
        const char *text, *items;
    } cases[] = {
        { "", "" },
        { " , ,, ", "" },
        { "a", "<a>" },
        { " a , b ", "<a><b>" },
        { "a b,c", "<a b><c>" },
        { "a\\,b,c", "<a,b><c>" },
        { "a\\\\,b", "<a\\><b>" },
        { "a\\\\\\,b", "<a\\,b>" },
        { "a\\b,c\\d", "<a\\b><c\\d>" },
        { "a\\", "<a\\>" },
        { "a\\\\", "<a\\>" },
        { "\\ a\\ ", "< a >" },
        { "a\\ b", "<a\\ b>" },
        { "C:\\dir\\x", "<C:\\dir\\x>" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct strv items = { 0 };
        struct buf b = { 0 };
        assert_int_equal(0, conf_list_parse(span_of(cases[i].text), &items));
        join_all(&items, &b);
        if (strcmp(buf_cstr(&b), cases[i].items) != 0)
            fail_msg("'%s' gives %s", cases[i].text, buf_cstr(&b));
        strv_done(&items);
        buf_done(&b);
    }
}

static void test_envs(void **state)
{
    (void)state;
    static const struct {
        const char *text, *items;
    } cases[] = {
        { "", "" },
        { "[]", "" },
        { "[foo=1, bar, baz=3]", "<foo=1><bar=><baz=3>" },
        { "a=1", "<a=1>" },
        { " a = 1 , b=2", "<a=1><b=2>" },
        { "a=b=c", "<a=b=c>" },
        { "a=1,a=2", "<a=2>" },
        { "a=1\\,2,b", "<a=1,2><b=>" },
        { "a=\\ x\\ ", "<a= x >" },
        { "a=[1]", "<a=[1]>" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct strv items = { 0 };
        struct buf b = { 0 };
        assert_int_equal(0, conf_env_parse(span_of(cases[i].text), &items, NULL));
        join_all(&items, &b);
        if (strcmp(buf_cstr(&b), cases[i].items) != 0)
            fail_msg("'%s' gives %s", cases[i].text, buf_cstr(&b));
        strv_done(&items);
        buf_done(&b);
    }
}

/* Each encoded list decodes to the same list, alone and among others. */
static void test_lists_round_trip(void **state)
{
    (void)state;
    static const char letters[] = { 'a', ',', '\\', ' ', '=', '\n' };
    char text[8];
    for (unsigned n = 1; n < 6 * 6 * 6 * 6 * 6; n++) {
        size_t len = 0;
        for (unsigned v = n; v > 0; v /= 6)
            text[len++] = letters[v % 6];
        struct buf b = { 0 };
        struct strv items = { 0 };
        struct span s = span_mem(text, len);
        assert_int_equal(0, conf_list_add(&b, SPAN("first")));
        assert_int_equal(0, conf_list_add(&b, s));
        assert_int_equal(0, conf_list_add(&b, SPAN("last")));
        assert_int_equal(0, conf_list_parse(buf_span(&b), &items));
        if (items.n != 3 || !span_eqs(s, items.v[1]))
            fail_msg("'%.*s' is written as '%s'", (int)len, text, buf_cstr(&b));
        strv_done(&items);
        buf_clear(&b);
        assert_int_equal(0, conf_env_add(&b, "X", s));
        assert_int_equal(0, conf_env_add(&b, "Y", s));
        assert_int_equal(0, conf_env_parse(buf_span(&b), &items, NULL));
        if (items.n != 2 || !span_eqs(s, items.v[0] + 2) || !span_eqs(s, items.v[1] + 2))
            fail_msg("X=Y='%.*s' is written as '%s'", (int)len, text, buf_cstr(&b));
        strv_done(&items);
        buf_done(&b);
    }
}

static void test_resources(void **state)
{
    (void)state;
    static const struct {
        const char *text, *source, *name;
        bool archive;
    } good[] = {
        { "test.zip", "test.zip", "test.zip", false },
        { "test.zip::ok.123", "test.zip", "ok.123", false },
        { "test.zip::ok#archive", "test.zip", "ok", true },
        { "test.zip#archive", "test.zip", "test.zip", true },
        { "test.zip#ARCHIVE", "test.zip", "test.zip", true },
        { "/a/b/c.txt", "/a/b/c.txt", "c.txt", false },
        { "/a/b/", "/a/b/", "b/", false },
        { "hdfs://nn:9000/x/y.zip#archive", "hdfs://nn:9000/x/y.zip", "y.zip", true },
        { " a ", "a", "a", false },
        { "a#b", "a#b", "a#b", false },
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct resource_spec r = { 0 };
        struct err e = { 0 };
        if (resource_parse(span_of(good[i].text), &r, &e) < 0)
            fail_msg("%s: %s", good[i].text, e.msg);
        assert_string_equal(r.source, good[i].source);
        if (i != 6) /* a trailing slash is not part of the name */
            assert_string_equal(r.name, good[i].name);
        else
            assert_string_equal(r.name, "b");
        assert_int_equal(r.archive, good[i].archive);
        resource_done(&r);
    }
    static const struct {
        const char *text, *sentence;
    } bad[] = {
        { "a::b::c", "resource 'a::b::c' has more than one '::'" },
        { "", "resource '' names no file" },
        { "#archive", "resource '#archive' names no file" },
        { "::b", "resource '::b' names no file" },
        { "a::", "resource 'a::' has no usable name" },
        { "a::../b", "resource 'a::../b' has no usable name" },
        { "a::..", "resource 'a::..' has no usable name" },
        { "a::/etc/passwd", "resource 'a::/etc/passwd' has no usable name" },
        { "/", "resource '/' has no usable name" },
        { "..", "resource '..' has no usable name" },
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct resource_spec r = { 0 };
        struct err e = { 0 };
        if (resource_parse(span_of(bad[i].text), &r, &e) != -EINVAL ||
            !str_starts(e.msg, bad[i].sentence) || !*e.hint)
            fail_msg("'%s': '%s'", bad[i].text, e.msg);
        assert_null(r.source);
    }
}

static void test_command(void **state)
{
    (void)state;
    static const struct {
        const char *executes, *params, *python;
        bool venv;
        const char *command;
    } cases[] = {
        { "train.py", NULL, NULL, false, "train.py" },
        { "train.py", "", "", true, "train.py" },
        { "train.py", "--x 1", NULL, false, "train.py --x 1" },
        { "train.py", NULL, "/usr/bin/python3", true, "/usr/bin/python3 train.py" },
        { "train.py", NULL, "bin/python", false, "bin/python train.py" },
        { "train.py", "-v", "bin/python", true, "venv/bin/python train.py -v" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *s =
            conf_build_command(cases[i].executes, cases[i].params, cases[i].python, cases[i].venv);
        assert_string_equal(s, cases[i].command);
        free(s);
    }
}

/* ---- encoding and decoding ---- */

static struct conf *example(void)
{
    struct conf *c = conf_new();
    set_ok(c, CL_SITE, "tony.application.timeout", "1000", "site file s.xml:3", true);
    set_ok(c, CL_JOB, "tony.zeta.instances", "1", "j.yaml:2", false);
    set_ok(c, CL_JOB, "tony.alpha.instances", "2", "j.yaml:3", false);
    set_ok(c, CL_OPTION, "tony.execution.envs", "A=\"1\\\",B=\xc3\xa4\n", "--shell_env", false);
    set_ok(c, CL_CONF, "tony.application.name", "x", "--conf", false);
    return c;
}

static void test_round_trip(void **state)
{
    (void)state;
    struct conf *c = example(), *d = NULL;
    struct buf one = { 0 }, two = { 0 };
    struct err e = { 0 };
    assert_int_equal(0, conf_encode(c, &one, &e));
    if (conf_decode(buf_span(&one), &d, &e) < 0)
        fail_msg("%s", e.msg);
    struct conf_entry x, y;
    size_t i = 0;
    for (; conf_at(c, i, &x); i++) {
        assert_true(conf_at(d, i, &y));
        assert_string_equal(x.key, y.key);
        assert_string_equal(x.value, y.value);
        assert_string_equal(x.origin, y.origin);
        assert_int_equal(x.final, y.final);
    }
    assert_false(conf_at(d, i, &y));
    assert_int_equal(0, conf_encode(d, &two, &e));
    assert_true(span_eq(buf_span(&one), buf_span(&two)));
    /* layers are kept: a final value stays final */
    assert_int_equal(-EINVAL,
                     conf_set(d, CL_CONF, "tony.application.timeout", "5", "--conf", false, &e));
    buf_done(&one);
    buf_done(&two);
    conf_free(c);
    conf_free(d);
}

/* A file that other users can read shows which secrets were set, and none of their values. */
static void test_masked(void **state)
{
    (void)state;
    struct conf *c = example(), *d = NULL;
    struct buf text = { 0 };
    struct err e = { 0 };
    set_ok(c, CL_JOB, "tony.containers.envs",
           "PLAIN=p\\,q,DB_PASSWORD=hunter2,HF_TOKEN=hunter3,EMPTY_SECRET=", "j.yaml:4", false);
    set_ok(c, CL_JOB, "tony.secret.key", "hunter4", "j.yaml:5", false);
    assert_int_equal(0, conf_encode_masked(c, &text, &e));
    assert_null(strstr(buf_cstr(&text), "hunter"));
    if (conf_decode(buf_span(&text), &d, &e) < 0)
        fail_msg("%s", e.msg);
    assert_string_equal(conf_get(d, "tony.containers.envs"),
                        "PLAIN=p\\,q,DB_PASSWORD=***,HF_TOKEN=***,EMPTY_SECRET=");
    assert_string_equal(conf_get(d, "tony.secret.key"), "***");
    assert_string_equal(conf_get(d, "tony.zeta.instances"), "1");
    assert_string_equal(conf_origin(d, "tony.secret.key"), "j.yaml:5");
    buf_done(&text);
    conf_free(c);
    conf_free(d);
}

static void test_decode(void **state)
{
    (void)state;
    struct conf *c = NULL;
    struct err e = { 0 };
    /* from another version: its default stays, its unknown key is kept, and keys that it lacks get
     * our default */
    assert_int_equal(
        0, conf_decode(
               SPAN("[[\"tony.yarn.queue\",\"old\"],[\"tony.new.thing\",\"1\",3,\"j\",false]]"), &c,
               &e));
    assert_string_equal(conf_get(c, "tony.yarn.queue"), "old");
    assert_string_equal(conf_get(c, "tony.new.thing"), "1");
    assert_string_equal(conf_get(c, "tony.application.framework"), "tensorflow");
    conf_free(c);
    static const char *const bad[] = {
        "",
        "{}",
        "[",
        "[1]",
        "[[]]",
        "[[\"a\"]]",
        "[[1,2]]",
        "[[\"a\",\"b\",3]]",
        "[[\"a\",\"b\",1,\"o\",false]]",
        "[[\"a\",\"b\",6,\"o\",false]]",
        "[[\"a\",\"b\",3,null,false]]",
        "[[\"a\",\"b\"],[\"a\",\"c\"]]",
        "[[\"tony.worker.instances\",\"two\",3,\"o\",false]]",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        c = NULL;
        e = (struct err){ 0 };
        if (conf_decode(span_of(bad[i]), &c, &e) != -EINVAL || !*e.msg || c)
            fail_msg("'%s' is taken", bad[i]);
    }
}

/* The text that conf_encode() writes is read without a JSON parser, any other text with one. */
static void test_decode_plain_and_any(void **state)
{
    (void)state;
    static const char plain[] =
        "[\n[\"tony.yarn.queue\",\"default\"],\n[\"tony.x\",\"1 \u00e9\",3,\"j:1\",true],\n"
        "[\"tony.am.vcores\",\"2\"]]";
    static const char any[] =
        "[[\"tony.yarn.queue\", \"default\"], [\"tony.x\", \"1 \\u00e9\", 3, \"j:1\", true],"
        " [\"tony.am.vcores\", \"2\"]]";
    const struct span texts[] = { span_of(plain), span_of(any) };
    struct buf shown[2] = { { 0 }, { 0 } };
    struct err e = { 0 };
    for (size_t i = 0; i < 2; i++) {
        struct conf *c = NULL;
        assert_int_equal(conf_decode(texts[i], &c, &e), 0);
        assert_int_equal(conf_encode(c, &shown[i], &e), 0);
        conf_free(c);
    }
    assert_string_equal(buf_cstr(&shown[0]), buf_cstr(&shown[1]));
    buf_done(&shown[0]);
    buf_done(&shown[1]);
    for (size_t n = 0; n < sizeof plain - 1; n++) { /* torn, or followed by a NUL */
        struct conf *c = NULL;
        assert_int_equal(conf_decode(span_mem(plain, n), &c, &e), -EINVAL);
        assert_null(c);
    }
    struct conf *c = NULL;
    assert_int_equal(conf_decode(span_mem(plain, sizeof plain), &c, &e), -EINVAL);
    assert_null(c);
}

static int encode_once(void *ctx)
{
    struct buf b = { 0 };
    struct err e = { 0 };
    int rc = conf_encode(ctx, &b, &e);
    buf_done(&b);
    return rc;
}

static int set_once(void *ctx)
{
    (void)ctx;
    struct err e = { 0 };
    struct conf *c = conf_new();
    int rc = c ? conf_set(c, CL_JOB, "tony.worker.instances", "2", "j:1", false, &e) : -ENOMEM;
    if (rc == 0)
        rc = conf_set(c, CL_JOB, "tony.execution.envs", "A=1,B=2", "j:2", false, &e);
    if (rc == 0)
        rc = conf_set(c, CL_CONF, "tony.execution.envs", "C=3", "--conf", false, &e);
    if (rc == 0)
        rc = conf_set(c, CL_CONF, "tony.application.framework", "pytorch", "--conf", false, &e);
    conf_free(c);
    return rc;
}

static void test_torture(void **state)
{
    (void)state;
    struct conf *c = example();
    assert_true(torture(set_once, NULL) > 20);
    assert_true(torture(encode_once, c) >= 1);
    conf_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_final),
        cmocka_unit_test(test_appended),
        cmocka_unit_test(test_wrong_values_are_refused),
        cmocka_unit_test(test_times_have_units),
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_envs),
        cmocka_unit_test(test_lists_round_trip),
        cmocka_unit_test(test_resources),
        cmocka_unit_test(test_command),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_decode_plain_and_any),
        cmocka_unit_test(test_masked),
        cmocka_unit_test(test_torture),
    };
    return cmocka_run_group_tests_name("conf", tests, NULL, NULL);
}
