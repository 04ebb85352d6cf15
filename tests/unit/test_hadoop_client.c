/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "hadoop/rpc_client.h"
#include "hadoop/site.h"
#include "hadoop/token.h"
#include "hadoop/yarn.h"
#include "hadoop_server.h"
#include "loop/loop.h"
#include "loop/tcp.h"

static char token_id[] = "\x0a\x0a\x0a\x06\x08\x01\x10\x80\x89\x7a\x10\x01\x10\x07";
static char token_password[] = "\0\1\2\3\4\5\6\7\x8\x9\xa\xb\xc\xd\xe\xf\x10\x11\x12\x13";
static char token_kind[] = "NMToken";
static char none[] = "";
static const struct token token = { token_id, token_password, 14, 20, token_kind, none };

/* A service on a port. It serves one connection after the other. */
struct world {
    struct loop *loop;
    struct listener *listener;
    struct tcp *tcp;
    struct server server;
    unsigned connections;
    unsigned close_first;  /* closes this many connections at their first call */
    unsigned refuse_first; /* refuses this many calls with refuse_class */
    bool silent;           /* the service listens and sends nothing */
    uint32_t reach_ms;
    const char *refuse_class;
    bool with_qop;
    struct rpc_client *client;
    struct loop_timer *watchdog;
    /* results of the calls */
    unsigned done, failed;
    struct rpc_error error;
    bool free_in_callback;
};

static void server_reset(struct world *w)
{
    server_done(&w->server);
    server_init(&w->server);
    w->server.qop = w->with_qop ? "auth-int" : "auth";
}

static void serve_close(struct tcp *t, const struct err *e, void *arg)
{
    struct world *w = arg;
    (void)e;
    if (w->tcp == t)
        w->tcp = NULL;
}

static void serve_read(struct tcp *t, const char *p, size_t n, void *arg)
{
    struct world *w = arg;
    size_t before = w->server.calls.n;
    if (w->silent)
        return;
    server_feed(&w->server, p, n);
    for (size_t i = before; i < w->server.calls.n; i++) {
        if (w->close_first > 0) {
            w->close_first--;
            w->tcp = NULL;
            tcp_close(t);
            return;
        }
        if (w->refuse_first > 0) {
            w->refuse_first--;
            server_refuse(&w->server, w->server.calls.v[i].id, 1, 1, w->refuse_class, "why\nat x");
        } else {
            server_answer(&w->server, w->server.calls.v[i].id, SPAN(""));
        }
    }
    if (w->server.out.len > 0)
        (void)tcp_write(t, w->server.out.p, w->server.out.len);
    buf_clear(&w->server.out);
}

static const struct tcp_ops serve_ops = { .on_read = serve_read, .on_close = serve_close };

static void on_accept(struct tcp *t, void *arg)
{
    struct world *w = arg;
    tcp_close(TAKE(w->tcp));
    server_reset(w);
    w->connections++;
    w->tcp = t;
    tcp_set_arg(t, &serve_ops, w);
}

static void too_long(void *arg)
{
    (void)arg;
    fail_msg("the test has taken too long");
}

static void world_open(struct world *w, bool with_token, bool listening, uint16_t first_port)
{
    struct err e = { 0 };
    struct site_addresses a = { 0 };
    w->loop = loop_new(&e);
    assert_non_null(w->loop);
    server_init(&w->server);
    w->watchdog = loop_timer_new(w->loop, too_long, NULL);
    loop_timer_set(w->watchdog, clock_mono_ms() + 60000);
    assert_int_equal(listener_open_tcp(w->loop, "127.0.0.1", 0, on_accept, w, &w->listener, &e), 0);
    uint16_t port = listener_port(w->listener);
    if (!listening) {
        listener_close(w->listener);
        w->listener = NULL;
    }
    if (first_port)
        assert_int_equal(site_addresses_add(&a, "127.0.0.1", first_port), 0);
    assert_int_equal(site_addresses_add(&a, "127.0.0.1", port), 0);
    struct rpc_client_options o = { .loop = w->loop,
                                    .what = "the resource manager",
                                    .reach_ms = w->reach_ms,
                                    .protocol = YARN_CLIENT_PROTOCOL,
                                    .addresses = &a,
                                    .user = "alice",
                                    .token = with_token ? &token : NULL };
    assert_int_equal(rpc_client_new(&o, &w->client, &e), 0);
    site_addresses_done(&a);
}

static void world_close(struct world *w)
{
    rpc_client_free(w->client);
    tcp_close(w->tcp);
    listener_close(w->listener);
    loop_timer_free(w->watchdog);
    loop_free(w->loop);
    server_done(&w->server);
}

static void on_done(struct world *w, const struct rpc_error *e)
{
    if (e) {
        w->failed++;
        w->error = *e;
    } else {
        w->done++;
    }
    if (w->free_in_callback)
        rpc_client_free(TAKE(w->client));
    if (!w->client || rpc_client_pending(w->client) == 0)
        loop_stop(w->loop);
}

static void on_metrics(const Hadoop__GetClusterMetricsResponse *r, const struct rpc_error *e,
                       void *arg)
{
    assert_true((r != NULL) != (e != NULL));
    on_done(arg, e);
}

static void on_start(const Hadoop__StartContainersResponse *r, const struct rpc_error *e, void *arg)
{
    assert_true((r != NULL) != (e != NULL));
    on_done(arg, e);
}

static struct rpc_call *ask(struct world *w, int64_t limit_ms)
{
    Hadoop__GetClusterMetricsRequest rq = HADOOP__GET_CLUSTER_METRICS_REQUEST__INIT;
    struct rpc_call *call = yarn_get_cluster_metrics(
        w->client, &rq, limit_ms ? clock_mono_ms() + limit_ms : 0, on_metrics, w);
    assert_non_null(call);
    return call;
}

static void start(struct world *w)
{
    Hadoop__StartContainersRequest rq = HADOOP__START_CONTAINERS_REQUEST__INIT;
    assert_non_null(yarn_start_containers(w->client, &rq, 0, on_start, w));
}

static void test_calls_end_in_any_order(void **state)
{
    (void)state;
    for (int row = 0; row < 3; row++) {
        struct world w = { .with_qop = row == 2 };
        world_open(&w, row > 0, true, 0);
        for (int i = 0; i < 20; i++)
            (void)ask(&w, 0);
        rpc_call_cancel(ask(&w, 0));
        assert_int_equal(w.done, 0); /* callbacks never run inside the call */
        (void)loop_run(w.loop);
        assert_int_equal(w.done, 20);
        assert_int_equal(w.failed, 0);
        assert_int_equal(w.connections, 1);
        assert_string_equal(rpc_client_local(w.client), "127.0.0.1");
        (void)ask(&w, 0); /* the same connection is used again */
        (void)loop_run(w.loop);
        assert_int_equal(w.done, 21);
        assert_int_equal(w.connections, 1);
        world_close(&w);
    }
}

/* If a connection breaks after a call was sent, the call is repeated only if it is idempotent. */
static void test_calls_on_a_broken_connection(void **state)
{
    (void)state;
    struct world w = { .close_first = 2 };
    world_open(&w, true, true, 0);
    (void)ask(&w, 0);
    (void)loop_run(w.loop);
    assert_int_equal(w.done, 1);
    assert_int_equal(w.connections, 3);
    assert_int_equal(server_find(&w.server, "getClusterMetrics")->retry, 2);
    tcp_close(TAKE(w.tcp)); /* closed while idle: the client does not notice */
    (void)ask(&w, 0);
    (void)loop_run(w.loop);
    assert_int_equal(w.done, 2);

    w.close_first = 1;
    start(&w);
    (void)loop_run(w.loop);
    assert_int_equal(w.failed, 1);
    assert_int_equal(w.error.kind, RPC_FAULT_BROKEN);
    assert_true(w.error.maybe_done);
    world_close(&w);
}

static void test_a_call_that_is_refused(void **state)
{
    (void)state;
    struct world w = { .refuse_first = 1,
                       .refuse_class =
                           "org.apache.hadoop.yarn.exceptions.ApplicationNotFoundException" };
    world_open(&w, false, true, 0);
    (void)ask(&w, 0);
    (void)loop_run(w.loop);
    assert_int_equal(w.error.kind, RPC_FAULT_NOT_FOUND);
    assert_string_equal(w.error.line, "why");
    assert_non_null(strstr(w.error.err.msg, "the resource manager (127.0.0.1:"));
    assert_non_null(strstr(w.error.err.msg, "refused getClusterMetrics: why"));
    w.refuse_class = "org.apache.hadoop.ipc.RetriableException";
    w.refuse_first = 2;
    (void)ask(&w, 0);
    (void)loop_run(w.loop);
    assert_int_equal(w.done, 1);
    world_close(&w);
}

/* The first address is dead, and the second one answers. A wrong token ends the call at once, from
 * any address. */
static void test_next_address(void **state)
{
    (void)state;
    struct world w = { 0 };
    world_open(&w, true, true, 1);
    (void)ask(&w, 0);
    (void)loop_run(w.loop);
    assert_int_equal(w.done, 1);
    world_close(&w);
}

static void test_unreachable(void **state)
{
    (void)state;
    /* The call's own deadline, or that of an unreachable server. */
    for (int row = 0; row < 2; row++) {
        struct world w = { .reach_ms = row ? 400 : 0 };
        world_open(&w, false, false, 0);
        int64_t began = clock_mono_ms();
        (void)ask(&w, row ? 0 : 400);
        (void)loop_run(w.loop);
        assert_true(clock_mono_ms() - began >= 399);
        assert_int_equal(w.failed, 1);
        assert_int_equal(w.error.kind, RPC_FAULT_UNREACHABLE);
        assert_false(w.error.maybe_done);
        assert_true(
            str_starts(w.error.err.msg, "the resource manager: cannot connect to '127.0.0.1:"));
        assert_non_null(strstr(w.error.err.msg, "Connection refused"));
        world_close(&w);
    }
}

static void on_quiet(void *arg)
{
    loop_stop(arg);
}

/* The server is stopped: the calls end. While there are no calls the client does nothing; the next
 * call reconnects. */
static void test_a_server_without_an_answer(void **state)
{
    (void)state;
    struct world w = { .silent = true };
    world_open(&w, false, true, 0);
    for (int i = 0; i < 3; i++)
        (void)ask(&w, 50 + i % 2);
    (void)alarm(120); /* a timer that is always due starves the others */
    (void)loop_run(w.loop);
    assert_int_equal(w.failed, 3);
    assert_int_equal(w.error.kind, RPC_FAULT_TIMEOUT);
    struct loop_timer *t = loop_timer_new(w.loop, on_quiet, w.loop);
    assert_non_null(t);
    loop_timer_set(t, clock_mono_ms() + 20);
    (void)loop_run(w.loop);
    loop_timer_free(t);
    (void)alarm(0);
    assert_int_equal(w.connections, 1);
    w.silent = false;
    (void)ask(&w, 0);
    (void)loop_run(w.loop);
    assert_int_equal(w.done, 1);
    assert_int_equal(w.connections, 2);
    world_close(&w);
}

static void test_auth_ends_at_once(void **state)
{
    (void)state;
    struct world w = { 0 };
    world_open(&w, true, true, 1);
    rpc_client_free(w.client);
    struct site_addresses a = { 0 };
    struct err e = { 0 };
    char bad[] = "wrong";
    struct token other = { token_id, bad, 14, 5, token_kind, none };
    assert_int_equal(site_addresses_add(&a, "127.0.0.1", 1), 0);
    assert_int_equal(site_addresses_add(&a, "127.0.0.1", listener_port(w.listener)), 0);
    struct rpc_client_options o = { .loop = w.loop,
                                    .what = "the resource manager",
                                    .protocol = YARN_MASTER_PROTOCOL,
                                    .addresses = &a,
                                    .token = &other };
    assert_int_equal(rpc_client_new(&o, &w.client, &e), 0);
    site_addresses_done(&a);
    (void)ask(&w, 0);
    (void)ask(&w, 0);
    (void)loop_run(w.loop);
    assert_int_equal(w.failed, 2);
    assert_int_equal(w.connections, 1);
    assert_int_equal(w.error.kind, RPC_FAULT_AUTH);
    assert_non_null(strstr(w.error.err.msg, "token is gone"));
    assert_false(w.error.maybe_done);
    world_close(&w);
}

static void test_free_and_retire(void **state)
{
    (void)state;
    struct world w = { .free_in_callback = true };
    world_open(&w, true, true, 0);
    for (int i = 0; i < 5; i++)
        (void)ask(&w, 0);
    (void)loop_run(w.loop);
    assert_int_equal(w.done, 1);
    world_close(&w);

    struct world r = { 0 };
    world_open(&r, true, true, 0);
    (void)ask(&r, 0);
    rpc_client_retire(r.client);
    (void)loop_run(r.loop);
    assert_int_equal(r.done, 1);
    r.client = NULL; /* the callback has freed the client */
    world_close(&r);
}

static void test_ends(void **state)
{
    (void)state;
    static const struct {
        int32_t status;
        const char *diagnostics;
        enum end_reason reason;
        int code;
        const char *says;
    } rows[] = {
        { 0, "", END_EXITED, 0, "ended well" },
        { 3, NULL, END_EXITED, 3, "code 3" },
        { 137, NULL, END_EXITED, 137, "signal 9" },
        { 127, NULL, END_EXITED, 127, "not found" },
        { -1000, "N/A\nfile changed on src filesystem", END_LAUNCH_FAILED, -1, "changed on src" },
        { -100, NULL, END_NODE_LOST, -1, "node" },
        { -101, NULL, END_DISK_FAILED, -1, "disks" },
        { -102, NULL, END_PREEMPTED, -1, "preempted" },
        { -104,
          "[x]Container [pid=1] is running 22MB beyond the 'PHYSICAL' memory limit. Current usage: "
          "150.3 MB of 128 MB physical memory used; 1.2 GB of 268.8 MB virtual memory used.",
          END_OUT_OF_MEMORY, -1, "150.3 MB of 128 MB" },
        { -103,
          "Current usage: 1 MB of 128 MB physical memory used; 1.2 GB of 268.8 MB virtual memory "
          "used.",
          END_OUT_OF_MEMORY, -1, "1.2 GB of 268.8 MB" },
        { -105, NULL, END_KILLED_BY_MASTER, -1, "master" },
        { 154, NULL, END_NODE_LOST, -1, "restarted" },
        { -77, "odd", END_UNKNOWN, -1, "-77: odd" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct yarn_end e;
        yarn_end_of(rows[i].status, rows[i].diagnostics, "tony.worker.memory", &e);
        assert_int_equal(e.reason, rows[i].reason);
        assert_int_equal(e.exit_code, rows[i].code);
        if (!strstr(e.sentence, rows[i].says))
            fail_msg("%d: %s", rows[i].status, e.sentence);
        if (e.reason == END_OUT_OF_MEMORY)
            assert_non_null(strstr(e.hint, "tony.worker.memory"));
    }
    assert_string_equal(yarn_app_state_name(HADOOP__YARN_APPLICATION_STATE__ACCEPTED), "ACCEPTED");
    assert_string_equal(yarn_app_state_name((Hadoop__YarnApplicationState)99), "UNKNOWN");
}

int main(void)
{
    log_setup(2, LOG_WARN, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_end_in_any_order),
        cmocka_unit_test(test_calls_on_a_broken_connection),
        cmocka_unit_test(test_a_call_that_is_refused),
        cmocka_unit_test(test_next_address),
        cmocka_unit_test(test_unreachable),
        cmocka_unit_test(test_auth_ends_at_once),
        cmocka_unit_test(test_a_server_without_an_answer),
        cmocka_unit_test(test_free_and_retire),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
