/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "base/base.h"
#include "hadoop/webhdfs.h"
#include "loop/loop.h"
#include "loop/tcp.h"

enum { DEADLINE_MS = 60000 };

/* A server that gives its answers in order and records the requests. "@" in an answer stands for
 * its own address: it is NameNode and DataNode. */
struct world {
    struct loop *l;
    struct webhdfs *fs;
    struct listener *s;
    const char *const *answers;
    unsigned n; /* answers given */
    char asked[12][400];
    char at[32];
    int num;
    char msg[480], text[200];
    struct files_stat last;
    size_t n_stats;
    bool changed;
    uint64_t n_bytes;
};

static void give_up(void *arg)
{
    (void)arg;
    fail_msg("nothing happened for %d ms", DEADLINE_MS);
}

static void on_read(struct tcp *t, const char *p, size_t n, void *arg)
{
    struct world *w = arg;
    assert_in_range(w->n, 0, ARRAY_LEN(w->asked) - 1);
    if (!memmem(p, n, " HTTP/1.1\r\n", 11)) /* a body that arrived separately from its head */
        return;
    size_t len = MIN(strcspn(p, "\r"), sizeof w->asked[0] - 1);
    memcpy(w->asked[w->n], p, len);
    w->asked[w->n][len] = '\0';
    const char *a = w->answers[w->n++];
    if (!a)
        fail_msg("asked too often: %s", w->asked[w->n - 1]);
    AUTO(buf_done) struct buf out = { 0 }, body = { 0 };
    struct span rest = span_of(a), status;
    (void)span_split(&rest, '|', &status);
    for (size_t i = 0; i < rest.len; i++)
        (void)(rest.p[i] == '@' ? buf_adds(&body, w->at) : buf_addc(&body, rest.p[i]));
    if (span_eqs(status, "307"))
        (void)buf_addf(&out, "HTTP/1.1 307 x\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n",
                       buf_cstr(&body));
    else
        (void)buf_addf(&out, "HTTP/1.1 %.*s x\r\nContent-Length: %zu\r\n\r\n%s", (int)status.len,
                       status.p, body.len, buf_cstr(&body));
    (void)tcp_write(t, out.p, out.len);
}

static void on_close(struct tcp *t, const struct err *e, void *arg)
{
    (void)t;
    (void)e;
    (void)arg;
}

static const struct tcp_ops ops = { .on_read = on_read, .on_close = on_close };

static void on_accept(struct tcp *t, void *arg)
{
    tcp_set_arg(t, &ops, arg);
}

static void on_done(const struct files_result *r, const struct err *e, void *arg)
{
    struct world *w = arg;
    w->num = e->num;
    (void)str_copy(w->msg, sizeof w->msg, e->msg);
    if (r) {
        (void)str_copy(w->text, sizeof w->text, r->text ? r->text : "");
        w->n_stats = r->n_stats;
        if (r->n_stats > 0)
            w->last = r->stats[r->n_stats - 1]; /* its strings are freed after the callback */
        w->changed = r->changed;
        w->n_bytes = r->n_bytes;
        if (r->data.p)
            (void)snprintf(w->text, sizeof w->text, "%.*s", (int)r->data.len, r->data.p);
    }
    loop_stop(w->l);
}

static void world_open(struct world *w, const char *const *answers, unsigned n_namenodes)
{
    struct err e = { 0 };
    *w = (struct world){ .l = loop_new(&e), .answers = answers };
    struct loop_timer *late = loop_timer_new(w->l, give_up, NULL);
    loop_timer_set(late, clock_mono_ms() + DEADLINE_MS);
    assert_int_equal(listener_open_tcp(w->l, "127.0.0.1", 0, on_accept, w, &w->s, &e), 0);
    (void)snprintf(w->at, sizeof w->at, "127.0.0.1:%u", listener_port(w->s));
    const char *const nodes[] = { w->at, w->at };
    const struct webhdfs_config cfg = {
        .namenodes = nodes, .n_namenodes = n_namenodes, .user = "me", .try_ms = -1
    };
    assert_int_equal(webhdfs_new(w->l, &cfg, &w->fs, &e), 0);
}

static void world_close(struct world *w)
{
    webhdfs_free(w->fs);
    loop_free(w->l);
}

#define REMOTE(exception, message)                                                                 \
    "{\"RemoteException\":{\"exception\":\"" exception "\",\"message\":\"" message "\"}}"

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        int num;
        const char *says;
    } rows[] = {
        { "403|" REMOTE("AccessControlException", "Permission denied: user=me\\n\\tat a.b"), EACCES,
          "user 'me' has no permission for '/a b' in HDFS: Permission denied: user=me" },
        { "404|" REMOTE("FileNotFoundException", "x"), ENOENT, "there is no '/a b'" },
        { "403|" REMOTE("RetriableException", "SafeModeException: Name node is in safe mode."),
          EAGAIN, "is in safe mode" },
        { "403|" REMOTE("StandbyException", "x"), EAGAIN, "standby" },
        { "403|" REMOTE("DSQuotaExceededException", "x"), EDQUOT, "quota" },
        { "403|" REMOTE("FileAlreadyExistsException", "x"), EEXIST, "exists already" },
        { "401|", EPERM, "Kerberos" },
        { "404|<html>", EOPNOTSUPP, "does not serve WebHDFS" },
        { "200|{\"boolean\":", EPROTO, "" },
        { "200|{\"boolean\":1}", EPROTO, "has no value true or false" },
        { "200|{\"boolean\":false}", EIO,
          "cannot make directory '/a b' in HDFS: the NameNode answered 'false' without a "
          "reason" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct world w;
        const char *const answers[] = { rows[i].answer, NULL };
        world_open(&w, answers, 1);
        assert_int_equal(webhdfs_mkdirs(w.fs, "/a b", 0700, on_done, &w, NULL, NULL), 0);
        (void)loop_run(w.l);
        if (w.num != rows[i].num || !strstr(w.msg, rows[i].says))
            fail_msg("row %zu: %d %s", i, w.num, w.msg);
        assert_string_equal(w.asked[0],
                            "PUT /webhdfs/v1/a%20b?op=MKDIRS&user.name=me&permission=700 HTTP/1.1");
        world_close(&w);
    }
}

static void test_other_namenode(void **state)
{
    (void)state;
    static const char *const answers[] = { "403|" REMOTE("StandbyException", "x"),
                                           "200|{\"Path\":\"/user/me\"}", NULL };
    struct world w;
    world_open(&w, answers, 2);
    assert_int_equal(webhdfs_home(w.fs, on_done, &w, NULL, NULL), 0);
    (void)loop_run(w.l);
    assert_string_equal(w.text, "/user/me");
    world_close(&w);
}

/* A DataNode fails: it is excluded, and the file is written again, over what was written of it. */
static void test_put(void **state)
{
    (void)state;
    static const char *const answers[] = {
        "307|http://@/dn1?x=%20",
        "500|" REMOTE("IOException", "disk"),
        "307|http://@/dn2",
        "201|",
        NULL,
    };
    struct world w;
    world_open(&w, answers, 1);
    const struct webhdfs_put put = { .path = "/f", .mode = 0600, .data = SPAN("hello") };
    assert_int_equal(webhdfs_put(w.fs, &put, on_done, &w, NULL, NULL), 0);
    (void)loop_run(w.l);
    assert_string_equal(w.msg, "");
    assert_int_equal(w.n_bytes, 5);
    assert_int_equal(w.n, 4);
    assert_string_equal(w.asked[0], "PUT /webhdfs/v1/f?op=CREATE&user.name=me"
                                    "&overwrite=false&permission=600 HTTP/1.1");
    assert_string_equal(w.asked[1], "PUT /dn1?x=%20 HTTP/1.1");
    assert_non_null(strstr(w.asked[2], "&excludedatanodes=127.0.0.1%3A"));
    assert_non_null(strstr(w.asked[2], "&overwrite=true"));
    world_close(&w);
}

static void test_put_exists(void **state)
{
    (void)state;
    static const char *const answers[] = { "403|" REMOTE("FileAlreadyExistsException", "x"), NULL };
    struct world w;
    world_open(&w, answers, 1);
    const struct webhdfs_put put = { .path = "/f", .data = SPAN("hello") };
    assert_int_equal(webhdfs_put(w.fs, &put, on_done, &w, NULL, NULL), 0);
    (void)loop_run(w.l);
    assert_int_equal(w.num, EEXIST);
    assert_string_equal(w.msg, "cannot write '/f' in HDFS: '/f' exists already");
    assert_int_equal(w.n, 1);
    world_close(&w);
}

/* A redirect that cannot be followed, and a DataNode that refuses for a reason of the request. */
static void test_put_cannot(void **state)
{
    (void)state;
    static const struct {
        const char *answers[3];
        int num;
        const char *says;
    } rows[] = {
        { { "307|https://x/dn" }, EPROTONOSUPPORT, "the DataNode is at 'https://x/dn'" },
        { { "200|" },
          EPROTO,
          "the NameNode's answer does not say which DataNode to use (no redirect)" },
        { { "307|http://@/dn", "403|" REMOTE("DSQuotaExceededException", "x") }, EDQUOT, "quota" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct world w;
        world_open(&w, rows[i].answers, 1);
        const struct webhdfs_put put = { .path = "/f", .data = SPAN("hello") };
        assert_int_equal(webhdfs_put(w.fs, &put, on_done, &w, NULL, NULL), 0);
        (void)loop_run(w.l);
        if (w.num != rows[i].num || !strstr(w.msg, rows[i].says))
            fail_msg("row %zu: %d %s", i, w.num, w.msg);
        world_close(&w);
    }
}

static void test_list_and_get(void **state)
{
    (void)state;
    static const char *const answers[] = {
        "200|{\"DirectoryListing\":{\"partialListing\":{\"FileStatuses\":{\"FileStatus\":[{"
        "\"type\":\"FILE\",\"pathSuffix\":\"a&b\",\"permission\":\"644\",\"length\":7}]}},"
        "\"remainingEntries\":1}}",
        "200|{\"DirectoryListing\":{\"partialListing\":{\"FileStatuses\":{\"FileStatus\":[{"
        "\"type\":\"DIRECTORY\",\"pathSuffix\":\"c\",\"permission\":\"1777\","
        "\"modificationTime\":1700000000123}]}},\"remainingEntries\":0}}",
        "307|http://@/dn",
        "206|llo",
        NULL,
    };
    struct world w;
    world_open(&w, answers, 1);
    assert_int_equal(webhdfs_list(w.fs, "/d", on_done, &w, NULL, NULL), 0);
    (void)loop_run(w.l);
    assert_int_equal(w.n_stats, 2);
    assert_non_null(strstr(w.asked[1], "&startAfter=a%26b"));
    assert_true(w.last.is_dir);
    assert_int_equal(w.last.mode, 01777);
    assert_true(w.last.mtime_ms == 1700000000123);
    const struct webhdfs_get get = { .path = "/f", .offset = 2, .length = 3 };
    assert_int_equal(webhdfs_get(w.fs, &get, on_done, &w, NULL, NULL), 0);
    (void)loop_run(w.l);
    assert_string_equal(w.text, "llo");
    assert_non_null(strstr(w.asked[2], "&offset=2&length=3"));
    /* an invalid call, a cancelled one, and one that is left to webhdfs_free() */
    struct err e = { 0 };
    struct webhdfs_op *op;
    assert_int_equal(webhdfs_stat(w.fs, "relative", on_done, &w, NULL, &e), -EINVAL);
    assert_int_equal(webhdfs_stat(w.fs, "/x", on_done, &w, &op, &e), 0);
    webhdfs_cancel(op);
    assert_int_equal(webhdfs_stat(w.fs, "/x", on_done, &w, &op, &e), 0);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_other_namenode),
        cmocka_unit_test(test_put),        cmocka_unit_test(test_put_exists),
        cmocka_unit_test(test_put_cannot), cmocka_unit_test(test_list_and_get),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
