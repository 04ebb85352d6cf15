/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "hadoop/site.h"
#include "torture.h"

#define P(k, v) "<property><name>" k "</name><value>" v "</value></property>"
#define FINAL(k, v) "<property><name>" k "</name><value>" v "</value><final>true</final></property>"

static char dir[64];

static void put(const char *name, const char *properties)
{
    AUTO(buf_done) struct buf b = { 0 };
    struct err e = { 0 };
    AUTO(free_p) char *path = fs_join(dir, name);
    (void)buf_addf(&b,
                   "<?xml version=\"1.0\"?>\n<configuration "
                   "xmlns:xi=\"http://www.w3.org/2001/XInclude\">\n%s\n</configuration>\n",
                   properties);
    assert_int_equal(fs_write_atomic(AT_FDCWD, path, buf_span(&b), 0600, false, &e), 0);
}

static int fresh(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/tony-site-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int gone(void **state)
{
    (void)state;
    struct err e = { 0 };
    return fs_remove_tree(AT_FDCWD, dir, &e);
}

static struct site *load(void)
{
    struct err e = { 0 };
    struct site *s = site_new(&e);
    assert_non_null(s);
    if (site_add_dir(s, dir, &e) < 0)
        fail_msg("%s", e.msg);
    return s;
}

static void refused(int num, const char *says)
{
    struct err e = { 0 };
    AUTO(site_freep) struct site *s = site_new(&e);
    int rc = site_add_dir(s, dir, &e);
    if (rc != -num || !strstr(e.msg, says))
        fail_msg("%d: %s", rc, e.msg);
}

static void test_order_and_final(void **state)
{
    (void)state;
    put("core-site.xml",
        P("a", " 1 ") P("a", "2") FINAL("b", "kept") P("b", "no")
            P("e", "") "<property><name>x</name></property>stray<odd><property/></odd>"
                       "<property><value>y</value><tag>z</tag><more>q</more></property>");
    put("yarn-site.xml", P("a", "3\n") P("b", "no"));
    AUTO(site_freep) struct site *s = load();
    assert_string_equal(site_get(s, "a"), "3");
    assert_string_equal(site_get(s, "b"), "kept");
    assert_null(site_get(s, "e"));
    assert_null(site_get(s, "x"));
    assert_null(site_get(s, "nothing"));
    assert_true(str_ends(site_origin(s, "a"), "yarn-site.xml:3"));
    assert_true(str_ends(site_origin(s, "b"), "core-site.xml:3"));
}

/* A written file reads back with the same values, and has no variables of this machine. */
static void test_write(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf text = { 0 };
    struct err e = { 0 };
    AUTO(free_p) char *path = fs_join(dir, "core-site.xml");
    put("core-site.xml",
        P("a", "x${b}") P("b", "1 &lt; 2 &amp; 3") P("home", "${user.name}/h") P("e", ""));
    {
        AUTO(site_freep) struct site *s = load();
        assert_int_equal(site_set_default(s, "user.name", "alice"), 0);
        assert_int_equal(site_write(s, &text), 0);
    }
    assert_null(strstr(buf_cstr(&text), "${"));
    assert_int_equal(fs_write_atomic(AT_FDCWD, path, buf_span(&text), 0600, false, &e), 0);
    AUTO(site_freep) struct site *again = load();
    assert_string_equal(site_get(again, "a"), "x1 < 2 & 3");
    assert_string_equal(site_get(again, "b"), "1 < 2 & 3");
    assert_string_equal(site_get(again, "home"), "alice/h");
    assert_null(site_get(again, "e"));
}

static void test_variables(void **state)
{
    (void)state;
    assert_int_equal(setenv("TONY_SITE_SET", "v", 1), 0);
    assert_int_equal(setenv("TONY_SITE_EMPTY", "", 1), 0);
    assert_int_equal(unsetenv("TONY_SITE_UNSET"), 0);
    put("core-site.xml",
        P("a", "x${b}y${b}") P("b", "${c}${c}") P("c", "1") P("loop", "${loop}!") P("n", "b")
            P("nested", "${${n}}") P("odd", "${unknown}/${c}/$c/${c")
                P("e1", "${env.TONY_SITE_SET}") P("e2", "${env.TONY_SITE_EMPTY:-d}")
                    P("e3", "[${env.TONY_SITE_EMPTY-d}]") P("e4", "${env.TONY_SITE_UNSET-d}")
                        P("e5", "${env.TONY_SITE_UNSET}") P("u", "/tmp/h-${user.name}"));
    AUTO(site_freep) struct site *s = load();
    assert_int_equal(site_set_default(s, "user.name", "alice"), 0);
    static const char *const rows[][2] = {
        { "a", "x11y11" },
        { "nested", "11" },
        { "odd", "${unknown}/1/$c/${c" },
        { "e1", "v" },
        { "e2", "d" },
        { "e3", "[]" },
        { "e4", "d" },
        { "e5", "${env.TONY_SITE_UNSET}" },
        { "u", "/tmp/h-alice" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_string_equal(site_get(s, rows[i][0]), rows[i][1]);
    /* A property that refers to itself ends. */
    assert_true(str_starts(site_get(s, "loop"), "${loop}!!!"));
}

static void test_includes(void **state)
{
    (void)state;
    put("core-site.xml",
        P("a", "1") "<xi:include href=\"more.xml\"/>" P(
            "b",
            "2") "<xi:include "
                 "href='none.xml'><xi:fallback>" P("f", "1") "<xi:include "
                                                             "href='also-none.xml'><xi:fallback>" P(
                                                                 "g",
                                                                 "1") "</xi:fallback></"
                                                                      "xi:include>" P(
                                                                          "h",
                                                                          "1") "</"
                                                                               "xi"
                                                                               ":f"
                                                                               "al"
                                                                               "lb"
                                                                               "ac"
                                                                               "k>"
                                                                               "</"
                                                                               "xi"
                                                                               ":i"
                                                                               "nc"
                                                                               "lu"
                                                                               "de"
                                                                               ">"
                                                                               "<x"
                                                                               "i:"
                                                                               "in"
                                                                               "cl"
                                                                               "ud"
                                                                               "e "
                                                                               "hr"
                                                                               "ef"
                                                                               "='"
                                                                               "mo"
                                                                               "re"
                                                                               ".x"
                                                                               "ml"
                                                                               "'>"
                                                                               "<x"
                                                                               "i:"
                                                                               "fa"
                                                                               "ll"
                                                                               "ba"
                                                                               "ck"
                                                                               ">" P(
                                                                                   "i",
                                                                                   "1") "</"
                                                                                        "xi:"
                                                                                        "fallback><"
                                                                                        "/xi:"
                                                                                        "include"
                                                                                        ">" P("z",
                                                                                              "1"));
    put("more.xml", P("a", "more") P("b", "more"));
    AUTO(site_freep) struct site *s = load();
    assert_string_equal(site_get(s, "a"), "more");
    assert_string_equal(site_get(s, "b"), "more"); /* the second include follows it */
    assert_string_equal(site_get(s, "f"), "1");
    assert_string_equal(site_get(s, "g"), "1");
    assert_string_equal(site_get(s, "h"), "1");
    assert_null(site_get(s, "i"));
    assert_string_equal(site_get(s, "z"), "1");
    assert_true(str_ends(site_origin(s, "a"), "more.xml:3"));
}

static void test_bad_includes(void **state)
{
    (void)state;
    put("core-site.xml", "<xi:include href=\"none.xml\"/>");
    refused(ENOENT, "core-site.xml:3: cannot read");
    put("core-site.xml", "<xi:include href=\"a.xml\"/>");
    put("a.xml", "<xi:include href=\"core-site.xml\"/>");
    refused(ELOOP, "includes itself");
    put("core-site.xml", "<xi:include href=\"http://example.com/x.xml\"/>");
    refused(EINVAL, "only files");
    put("core-site.xml", "<xi:include/>");
    refused(EINVAL, "no href");
    put("core-site.xml", "<xi:include href=\"/dev/zero\"/>");
    refused(EINVAL, "it is not a regular file");
    char name[32], text[64];
    for (int i = 0; i < SITE_INCLUDE_DEPTH_MAX + 2; i++) {
        (void)snprintf(name, sizeof name, i == 0 ? "core-site.xml" : "d%d.xml", i);
        (void)snprintf(text, sizeof text, "<xi:include href=\"d%d.xml\"/>", i + 1);
        put(name, text);
    }
    refused(EFBIG, "in each other");
    /* each file only once, but too many files */
    AUTO(buf_done) struct buf many = { 0 };
    put("one.xml", "");
    for (int i = 0; i < SITE_FILES_MAX + 1; i++)
        (void)buf_adds(&many, "<xi:include href='one.xml'/>");
    put("core-site.xml", many.p);
    refused(EFBIG, "more than 64 files");
}

static void test_no_files(void **state)
{
    (void)state;
    struct err e = { 0 };
    AUTO(site_freep) struct site *s = site_new(&e);
    assert_int_equal(site_add_dir(s, dir, &e), -ENOENT);
    assert_non_null(strstr(e.hint, "HADOOP_CONF_DIR"));
    put("core-site.xml", "<property");
    refused(EINVAL, "core-site.xml:");
}

static void test_types(void **state)
{
    (void)state;
    put("yarn-site.xml", P("n", "12") P("bad", "12x") P("t", "TRUE") P("ms", "1500") P("s", "30s")
                             P("ms2", "250 ms") P("h", "2h") P("badms", "2 weeks"));
    AUTO(site_freep) struct site *s = load();
    struct err e = { 0 };
    int64_t n = 0;
    bool b = false;
    assert_int_equal(site_bool(s, "t", false, &b, &e), 0);
    assert_true(b);
    assert_int_equal(site_bool(s, "none", false, &b, &e), 0);
    assert_false(b);
    assert_true(site_bool(s, "bad", false, &b, &e) < 0);
    assert_non_null(strstr(e.msg, "yarn-site.xml:3"));
    static const struct {
        const char *key;
        int64_t ms;
    } rows[] = { { "ms", 1500 }, { "s", 30000 }, { "ms2", 250 }, { "h", 7200000 }, { "none", 9 } };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(site_ms(s, rows[i].key, 1, 9, &n, &e), 0);
        assert_int_equal(n, rows[i].ms);
    }
    assert_true(site_ms(s, "badms", 1, 9, &n, &e) < 0);
}

/* Properties of yarn-site.xml, and the addresses or the refusal that they give. */
static void check_rm(const char *properties, enum site_service service, const char *want)
{
    put("yarn-site.xml", properties);
    AUTO(site_freep) struct site *s = load();
    struct site_addresses a = { 0 };
    struct err e = { 0 };
    int rc = site_rm(s, service, &a, &e);
    AUTO(free_p) char *text = site_addresses_text(&a);
    if (rc == 0 ? strcmp(text, want) != 0 : !strstr(e.msg, want))
        fail_msg("%s: %s %s", properties, text, e.msg);
    if (rc < 0)
        assert_non_null(strstr(e.hint, "yarn-site.xml"));
    site_addresses_done(&a);
}

#define RM "yarn.resourcemanager."

static void test_rm(void **state)
{
    (void)state;
    static const char ha[] = P(RM "ha.enabled", "true") P(RM "ha.rm-ids", "rm1, rm2")
        P(RM "hostname.rm1", "a") P(RM "address.rm2", "b:1") P(RM "hostname.rm2", "c");
    check_rm("", SITE_RM_CLIENT, "neither yarn.resourcemanager.address");
    check_rm(P(RM "hostname", "0.0.0.0"), SITE_RM_CLIENT, "to which no client can connect");
    check_rm(P(RM "hostname", "h") P(RM "address", "0.0.0.0:8032"), SITE_RM_CLIENT,
             "to which no client can connect");
    check_rm(P(RM "hostname", "${env.TONY_NOBODY}"), SITE_RM_CLIENT, "variable");
    check_rm(P(RM "hostname", "h"), SITE_RM_CLIENT, "h:8032");
    check_rm(P(RM "hostname", "h"), SITE_RM_SCHEDULER, "h:8030");
    check_rm(P(RM "hostname", "h"), SITE_RM_WEB, "h:8088");
    check_rm(P(RM "hostname", "h") P(RM "address", "${" RM "hostname}:77"), SITE_RM_CLIENT, "h:77");
    check_rm(P(RM "address", "[::1]:5"), SITE_RM_CLIENT, "[::1]:5");
    check_rm(ha, SITE_RM_CLIENT, "a:8032,b:1");
    check_rm(ha, SITE_RM_SCHEDULER, "a:8030,c:8030");
    check_rm(P(RM "ha.enabled", "true") P(RM "ha.rm-ids", "x"), SITE_RM_CLIENT, "hostname.x");
}

static void check_hdfs(const char *properties, const char *want)
{
    put("core-site.xml", properties);
    AUTO(site_freep) struct site *s = load();
    struct site_hdfs h = { 0 };
    struct err e = { 0 };
    char got[300] = "";
    int rc = site_hdfs(s, &h, &e);
    if (rc == 0) {
        AUTO(free_p) char *http = site_addresses_text(&h.http);
        (void)snprintf(got, sizeof got, "%s %s %d %s%s", h.fs, h.host, h.port, h.https ? "s:" : "",
                       http);
        site_hdfs_done(&h);
    }
    if (rc == 0 ? strcmp(got, want) != 0 : !strstr(e.msg, want))
        fail_msg("%s: %s %s", properties, got, e.msg);
}

#define NN "dfs.namenode."

static void test_hdfs(void **state)
{
    (void)state;
    check_hdfs("", "fs.defaultFS is not set");
    check_hdfs(P("fs.defaultFS", "file:///"), "staged in HDFS");
    check_hdfs(P("fs.defaultFS", "hdfs:///"), "staged in HDFS");
    check_hdfs(P("fs.defaultFS", "x"), "staged in HDFS");
    check_hdfs(P("fs.default.name", "hdfs://nn"), "hdfs://nn nn 8020 nn:9870");
    check_hdfs(P("fs.defaultFS", "hdfs://nn:9000/x"), "hdfs://nn:9000 nn 9000 nn:9870");
    check_hdfs(P("fs.defaultFS", "hdfs://nn") P(NN "http-address", "0.0.0.0:5"),
               "hdfs://nn nn 8020 nn:5");
    check_hdfs(P("fs.defaultFS", "hdfs://nn") P("dfs.http.policy", "HTTPS_ONLY"),
               "hdfs://nn nn 8020 s:nn:9871");
    check_hdfs(P("fs.defaultFS", "hdfs://ns") P("dfs.nameservices", "o,ns")
                   P("dfs.ha.namenodes.ns", "a,b") P(NN "http-address.ns.a", "h1:1")
                       P(NN "rpc-address.ns.b", "h2:8020"),
               "hdfs://ns ns -1 h1:1,h2:9870");
    check_hdfs(P("fs.defaultFS", "hdfs://ns") P("dfs.nameservices", "ns"), "is not known");
    check_hdfs(P("fs.defaultFS", "hdfs://nn:1") P("dfs.nameservices", "ns")
                   P(NN "rpc-address.ns", "nn:1") P(NN "http-address.ns", "w:2"),
               "hdfs://nn:1 nn 1 w:2");
    put("core-site.xml", P("hadoop.security.authentication", "kerberos"));
    AUTO(site_freep) struct site *s = load();
    bool secure = false;
    assert_int_equal(site_secure(s, &secure, NULL), 0);
    assert_true(secure);
}

static int load_once(void *ctx)
{
    (void)ctx;
    struct err e = { 0 };
    AUTO(site_freep) struct site *s = site_new(&e);
    if (!s)
        return -ENOMEM;
    struct site_hdfs h = { 0 };
    int rc = site_add_dir(s, dir, &e);
    if (rc < 0)
        return rc;
    rc = site_hdfs(s, &h, &e);
    site_hdfs_done(&h);
    return rc < 0 && torture_hit() ? -ENOMEM : 0; /* without memory, a value counts as unset */
}

static void test_no_memory(void **state)
{
    (void)state;
    put("core-site.xml",
        P("fs.defaultFS", "hdfs://${h}") P("h", "nn") "<xi:include href='o.xml'/>");
    put("o.xml", P("a", "1"));
    assert_true(torture(load_once, NULL) > 0);
}

#define WITH_DIR(t) cmocka_unit_test_setup_teardown(t, fresh, gone)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DIR(test_order_and_final),
        WITH_DIR(test_write),
        WITH_DIR(test_variables),
        WITH_DIR(test_includes),
        WITH_DIR(test_bad_includes),
        WITH_DIR(test_no_files),
        WITH_DIR(test_types),
        WITH_DIR(test_rm),
        WITH_DIR(test_hdfs),
        WITH_DIR(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
