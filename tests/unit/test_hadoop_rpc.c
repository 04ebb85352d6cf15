/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "base/base.h"
#include "hadoop/rpc.h"
#include "hadoop/token.h"
#include "hadoop_server.h"
#include "proto/hadoop_yarn.pb-c.h"
#include "torture.h"

#define PROTOCOL "org.apache.hadoop.yarn.api.ApplicationClientProtocolPB"
#define Y "org.apache.hadoop.yarn.exceptions."

static char token_id[] = "\x0a\x0a\x0a\x06\x08\x01\x10\x80\x89\x7a\x10\x01\x10\x07";
static char token_password[] = "\0\1\2\3\4\5\6\7\x8\x9\xa\xb\xc\xd\xe\xf\x10\x11\x12\x13";
static char token_kind[] = "YARN_AM_RM_TOKEN";
static char token_service[] = "";
static const struct token token = { token_id, token_password, 14, 20, token_kind, token_service };

static struct rpc_conn *make(bool with_token, unsigned qops)
{
    struct rpc_conn_config cfg = {
        .protocol = PROTOCOL, .user = "alice", .token = with_token ? &token : NULL, .qops = qops
    };
    for (int i = 0; i < RPC_CLIENT_ID; i++)
        cfg.client_id[i] = (uint8_t)(0x10 + i);
    struct rpc_conn *c = rpc_conn_new(&cfg);
    assert_non_null(c);
    return c;
}

static int call(struct rpc_conn *c, const char *method, uint32_t id, struct span body)
{
    struct rpc_request rq = { .method = method, .id = id, .body = body };
    return rpc_conn_call(c, &rq);
}

static void to_server(struct rpc_conn *c, struct server *s)
{
    struct buf *out = rpc_conn_out(c);
    server_feed(s, out->p, out->len);
    buf_clear(out);
}

/* Feeds the server's output in pieces; counts the replies and keeps the last one. */
static int from_server(struct rpc_conn *c, struct server *s, size_t piece, struct rpc_reply *last)
{
    int n = 0;
    for (size_t at = 0; at < s->out.len; at += piece) {
        size_t len = MIN(piece, s->out.len - at);
        if (rpc_conn_feed(c, span_mem(s->out.p + at, len)) < 0)
            break;
        struct rpc_reply r;
        int rc;
        while ((rc = rpc_conn_next(c, &r)) == 1) {
            *last = r;
            n++;
        }
        if (rc < 0)
            break;
    }
    buf_clear(&s->out);
    return n;
}

static void talk(struct rpc_conn *c, struct server *s, size_t piece)
{
    struct rpc_reply r;
    for (int i = 0; i < 10 && (rpc_conn_out(c)->len > 0 || s->out.len > 0); i++) {
        to_server(c, s);
        assert_int_equal(from_server(c, s, piece, &r), 0);
    }
}

/* ---- bytes recorded from real servers ---- */

static const char first_call[] =
    "hrpc\x09\0\0"
    "\0\0\0\x5d\x1a\x08\x02\x10\0\x18\x05\x22\x10\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b"
    "\x1c\x1d"
    "\x1e\x1f\x28\x01\x41\x12\x07\x0a\x05"
    "alice\x1a\x36" PROTOCOL
    "\0\0\0\x6a\x1a\x08\x02\x10\0\x18\0\x22\x10\x10\x11\x12\x13\x14\x15\x16"
    "\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x28\0\x4d\x0a\x11getNewApplication\x12\x36" PROTOCOL
    "\x18\x01\0";

static const char first_answer[] =
    "\0\0\0\x54\x1a\x08\0\x10\0\x18\x09\x3a\x10\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c"
    "\x1d"
    "\x1e\x1f\x40\0\x38\x0a\x09\x08\x01\x10\x80\xd0\x95\xff\xbc\x31\x12\x2b\x08\x80\x40\x10\x04\x1a"
    "\x14"
    "\x0a\x09memory-mb\x10\x80\x40\x1a\x02Mi\x20\0\x1a\x0e\x0a\x06vcores\x10\x04\x1a\0\x20\0";

static void test_first_call(void **state)
{
    (void)state;
    AUTO(rpc_conn_freep) struct rpc_conn *c = make(false, 0);
    assert_true(rpc_conn_ready(c));
    assert_int_equal(call(c, "getNewApplication", 0, SPAN("")), 0);
    struct buf *out = rpc_conn_out(c);
    assert_int_equal(out->len, sizeof first_call - 1);
    assert_memory_equal(out->p, first_call, out->len);

    struct rpc_reply r;
    for (size_t i = 0; i < sizeof first_answer - 2; i++) {
        assert_int_equal(rpc_conn_feed(c, span_mem(first_answer + i, 1)), 0);
        assert_int_equal(rpc_conn_next(c, &r), 0);
    }
    assert_int_equal(rpc_conn_feed(c, span_mem(first_answer + sizeof first_answer - 2, 1)), 0);
    assert_int_equal(rpc_conn_next(c, &r), 1);
    assert_true(r.ok);
    assert_int_equal(r.id, 0);
    Hadoop__GetNewApplicationResponse *m = (Hadoop__GetNewApplicationResponse *)rpc_unpack(
        &hadoop__get_new_application_response__descriptor, r.body);
    assert_non_null(m);
    assert_int_equal(m->application_id->id, 1);
    assert_int_equal(m->application_id->cluster_timestamp, 1700000000000);
    assert_int_equal(m->maximum_capability->memory, 8192);
    assert_string_equal(m->maximum_capability->resource_value_map[1]->key, "vcores");
    protobuf_c_message_free_unpacked(&m->base, NULL);
    assert_int_equal(rpc_conn_next(c, &r), 0);
}

static void test_ping_and_negotiate(void **state)
{
    (void)state;
    static const char ping[] =
        "\0\0\0\x1b\x1a\x08\x02\x10\0\x18\x07\x22\x10\x10\x11\x12\x13\x14\x15\x16"
        "\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x28\x01";
    AUTO(rpc_conn_freep) struct rpc_conn *c = make(false, 0);
    buf_clear(rpc_conn_out(c));
    assert_int_equal(rpc_conn_ping(c), 0);
    assert_true(span_eq(buf_span(rpc_conn_out(c)), span_mem(ping, sizeof ping - 1)));

    static const char negotiate[] =
        "hrpc\x09\0\xdf\0\0\0\x0e\x0a\x08\x02\x10\0\x18\x41\x22\0\x28\x01\x02\x10\x01";
    AUTO(rpc_conn_freep) struct rpc_conn *t = make(true, 0);
    assert_false(rpc_conn_ready(t));
    assert_int_equal(rpc_conn_ping(t), 0); /* no ping now */
    assert_true(span_eq(buf_span(rpc_conn_out(t)), span_mem(negotiate, sizeof negotiate - 1)));
}

static void check_packed(const ProtobufCMessage *m, const char *want, size_t n)
{
    uint8_t out[512];
    assert_int_equal(protobuf_c_message_get_packed_size(m), n);
    assert_int_equal(protobuf_c_message_pack(m, out), n);
    assert_memory_equal(out, want, n);
}

static void test_allocate_bytes(void **state)
{
    (void)state;
    static const char want[] = "\x0a\x29\x0a\x02\x08\x01\x12\x01\x2a\x1a\x1a\x08\x80\x10\x10\x02"
                               "\x1a\x13\x0a\x0byarn.io/gpu"
                               "\x10\x01\x1a\0\x20\0\x20\x03\x28\x01\x40\x07\x20\0\x2d\0\0\0\x3f";
    Hadoop__AllocateRequest m = HADOOP__ALLOCATE_REQUEST__INIT;
    Hadoop__ResourceRequest ask = HADOOP__RESOURCE_REQUEST__INIT, *asks[] = { &ask };
    Hadoop__Priority priority = HADOOP__PRIORITY__INIT;
    Hadoop__Resource resource = HADOOP__RESOURCE__INIT;
    Hadoop__ResourceInformation gpu = HADOOP__RESOURCE_INFORMATION__INIT, *infos[] = { &gpu };
    char any[] = "*", gpu_name[] = "yarn.io/gpu", none[] = "";
    priority.has_priority = true;
    priority.priority = 1;
    resource.has_memory = resource.has_virtual_cores = true;
    resource.memory = 2048;
    resource.virtual_cores = 2;
    gpu.key = gpu_name;
    gpu.has_value = true;
    gpu.value = 1;
    gpu.units = none;
    gpu.has_type = true;
    resource.n_resource_value_map = 1;
    resource.resource_value_map = infos;
    ask.priority = &priority;
    ask.resource_name = any;
    ask.capability = &resource;
    ask.has_num_containers = true;
    ask.num_containers = 3;
    ask.has_relax_locality = true;
    ask.relax_locality = true;
    ask.has_allocation_request_id = true;
    ask.allocation_request_id = 7;
    m.n_ask = 1;
    m.ask = asks;
    m.has_response_id = true;
    m.has_progress = true;
    m.progress = 0.5f;
    check_packed(&m.base, want, sizeof want - 1);

    static const char status[] = "\x10\x03\x20\x9c\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    Hadoop__ContainerStatus st = HADOOP__CONTAINER_STATUS__INIT;
    assert_int_equal(st.exit_status, -1000); /* absent */
    st.has_state = true;
    st.state = HADOOP__CONTAINER_STATE__C_COMPLETE;
    st.has_exit_status = true;
    st.exit_status = -100;
    check_packed(&st.base, status, sizeof status - 1);
}

static void test_start_bytes(void **state)
{
    (void)state;
    static const char want[] =
        "\x0a\x71\x0a\x45\x0a\x31\x0a\x06run."
        "sh\x12\x27\x0a\x18\x0a\x04hdfs\x12\x02nn\x18\xd4\x3e\x22\x09/a"
        "/run.sh\x10\x0c\x18\xfb\xd0\x95\xff\xbc\x31\x20\x02\x28\x03\x22\x06\x0a\x01"
        "A\x12\x01"
        "1\x2a\x08./run.sh\x12\x28\x0a\x02\x01\x02\x12\x01\x03\x1a\x0e"
        "ContainerToken\x22\x0f"
        "127.0.0.1:45454";
    char run[] = "run.sh", hdfs[] = "hdfs", nn[] = "nn", file[] = "/a/run.sh", a[] = "A",
         one[] = "1", cmd[] = "./run.sh", *cmds[] = { cmd }, kind[] = "ContainerToken",
         service[] = "127.0.0.1:45454";
    uint8_t id[] = { 1, 2 }, pw[] = { 3 };
    Hadoop__Url url = HADOOP__URL__INIT;
    url.scheme = hdfs;
    url.host = nn;
    url.has_port = true;
    url.port = 8020;
    url.file = file;
    Hadoop__LocalResource lr = HADOOP__LOCAL_RESOURCE__INIT;
    lr.resource = &url;
    lr.has_size = lr.has_timestamp = lr.has_type = lr.has_visibility = true;
    lr.size = 12;
    lr.timestamp = 1700000000123;
    lr.type = HADOOP__LOCAL_RESOURCE_TYPE__FILE;
    lr.visibility = HADOOP__LOCAL_RESOURCE_VISIBILITY__APPLICATION;
    Hadoop__LocalResourceEntry entry = HADOOP__LOCAL_RESOURCE_ENTRY__INIT, *entries[] = { &entry };
    entry.key = run;
    entry.value = &lr;
    Hadoop__StringPair env = HADOOP__STRING_PAIR__INIT, *envs[] = { &env };
    env.key = a;
    env.value = one;
    Hadoop__ContainerLaunchContext clc = HADOOP__CONTAINER_LAUNCH_CONTEXT__INIT;
    clc.n_local_resources = clc.n_environment = clc.n_command = 1;
    clc.local_resources = entries;
    clc.environment = envs;
    clc.command = cmds;
    Hadoop__Token t = HADOOP__TOKEN__INIT;
    t.identifier = (ProtobufCBinaryData){ 2, id };
    t.password = (ProtobufCBinaryData){ 1, pw };
    t.kind = kind;
    t.service = service;
    Hadoop__StartContainerRequest start = HADOOP__START_CONTAINER_REQUEST__INIT,
                                  *starts[] = { &start };
    start.container_launch_context = &clc;
    start.container_token = &t;
    Hadoop__StartContainersRequest m = HADOOP__START_CONTAINERS_REQUEST__INIT;
    m.n_start_container_request = 1;
    m.start_container_request = starts;
    check_packed(&m.base, want, sizeof want - 1);
}

/* ---- whole conversations ---- */

static const struct protection {
    const char *qop, *cipher, *name;
} protections[] = {
    { "auth", NULL, "auth" },
    { "auth-int", NULL, "auth-int" },
    { "auth-conf", "3des,rc4,des,rc4-56,rc4-40", "auth-conf" },
    { "auth-conf,auth-int,auth", "rc4", "auth-conf" },
};

/* Calls before the handshake ends, calls after it, and answers in another order; for each
 * protection and each small piece size. */
static void test_sasl_conversation(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(protections); i++) {
        for (size_t piece = 1; piece < 90; piece += piece < 5 ? 1 : 17) {
            struct server s;
            server_init(&s);
            s.qop = protections[i].qop;
            s.cipher = protections[i].cipher;
            AUTO(rpc_conn_freep) struct rpc_conn *c = make(true, 0);
            assert_int_equal(call(c, "early", 7, SPAN("abc")), 0);
            talk(c, &s, piece);
            assert_true(rpc_conn_ready(c));
            assert_string_equal(rpc_conn_protection(c), protections[i].name);
            assert_int_equal(s.calls.n, 1);
            assert_string_equal(s.protocol, PROTOCOL);
            assert_false(s.has_user); /* the token names the user */
            assert_int_equal(call(c, "second", 8, SPAN("")), 0);
            assert_int_equal(call(c, "third", 9, SPAN("x")), 0);
            assert_int_equal(rpc_conn_ping(c), 0);
            to_server(c, &s);
            assert_int_equal(s.pings, 1);
            assert_int_equal(s.calls.n, 3);
            assert_int_equal(s.calls.v[0].id, 7);
            assert_true(span_eqs(buf_span(&s.calls.v[0].body), "abc"));

            struct rpc_reply r = { 0 };
            static const int order[] = { 9, 7, 8 };
            for (size_t k = 0; k < ARRAY_LEN(order); k++) {
                server_answer(&s, order[k], SPAN("the answer"));
                assert_int_equal(from_server(c, &s, piece, &r), 1);
                assert_int_equal(r.id, order[k]);
                assert_true(r.ok);
                assert_true(span_eqs(r.body, "the answer"));
            }
            assert_null(rpc_conn_error(c));
            server_done(&s);
        }
    }
}

/* More than one slice, in both directions. */
static void test_large_messages(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf big = { 0 };
    while (big.len < 300000)
        (void)buf_addf(&big, "%zu,", big.len);
    for (size_t i = 0; i < ARRAY_LEN(protections); i++) {
        struct server s;
        server_init(&s);
        s.qop = protections[i].qop;
        s.cipher = protections[i].cipher;
        AUTO(rpc_conn_freep) struct rpc_conn *c = make(true, 0);
        assert_int_equal(call(c, "a", 0, buf_span(&big)), 0); /* held back */
        talk(c, &s, 100000);
        assert_int_equal(call(c, "b", 1, buf_span(&big)), 0);
        to_server(c, &s);
        assert_int_equal(s.calls.n, 2);
        struct rpc_reply r;
        for (int k = 0; k < 2; k++) {
            assert_true(span_eq(buf_span(&s.calls.v[k].body), buf_span(&big)));
            server_answer(&s, k, buf_span(&big));
            assert_int_equal(from_server(c, &s, 7919, &r), 1);
            assert_true(span_eq(r.body, buf_span(&big)));
        }
        server_done(&s);
    }
}

static void test_many_answers_at_once(void **state)
{
    (void)state;
    struct server s;
    server_init(&s);
    AUTO(rpc_conn_freep) struct rpc_conn *c = make(false, 0);
    for (uint32_t i = 0; i < 500; i++)
        assert_int_equal(call(c, "m", i, SPAN("")), 0);
    to_server(c, &s);
    assert_string_equal(s.user, "alice");
    assert_int_equal(s.calls.n, 500);
    for (int i = 499; i >= 0; i--)
        server_answer(&s, i, SPAN("y"));
    struct rpc_reply r;
    assert_int_equal(from_server(c, &s, 1 << 20, &r), 500);
    assert_int_equal(r.id, 0);
    server_done(&s);
}

/* ---- refusals ---- */

static void test_error_of_a_call(void **state)
{
    (void)state;
    static const struct {
        const char *class_name, *message;
        int detail;
        enum rpc_fault kind;
        const char *line;
    } rows[] = {
        { Y "ApplicationMasterNotRegisteredException", "Not in cache.\n\tat a.b\n\tat c.d", 1,
          RPC_FAULT_NOT_REGISTERED, "Not in cache." },
        { Y "ApplicationAttemptNotFoundException", Y "ApplicationAttemptNotFoundException: gone", 1,
          RPC_FAULT_ATTEMPT_NOT_FOUND, "gone" },
        { Y "InvalidApplicationMasterRequestException", "already registered", 1,
          RPC_FAULT_INVALID_REQUEST, "already registered" },
        { Y "InvalidResourceRequestException", "too much", 1, RPC_FAULT_INVALID_RESOURCE,
          "too much" },
        { Y "InvalidLabelResourceRequestException", "", 1, RPC_FAULT_INVALID_RESOURCE, "" },
        { Y "InvalidContainerReleaseException", "x", 1, RPC_FAULT_INVALID_RELEASE, "x" },
        { Y "ApplicationNotFoundException", "x", 1, RPC_FAULT_NOT_FOUND, "x" },
        { Y "NMNotYetReadyException", "x", 1, RPC_FAULT_NOT_READY, "x" },
        { Y "InvalidContainerException", "x", 1, RPC_FAULT_INVALID_CONTAINER, "x" },
        { Y "YarnException", "x", 1, RPC_FAULT_APPLICATION, "x" },
        { "java.io.IOException", "x", 1, RPC_FAULT_APPLICATION, "x" },
        { NULL, NULL, 1, RPC_FAULT_APPLICATION, "" },
        { "org.apache.hadoop.ipc.StandbyException", "x", 1, RPC_FAULT_STANDBY, "x" },
        { "org.apache.hadoop.ipc.RetriableException", "x", 1, RPC_FAULT_RETRIABLE, "x" },
        { "org.apache.hadoop.security.AccessControlException", "x", 1, RPC_FAULT_AUTH, "x" },
        { "org.apache.hadoop.security.token.SecretManager$InvalidToken", "x", 1, RPC_FAULT_AUTH,
          "x" },
        { "x.Unknown", "Unknown method foo", 2, RPC_FAULT_PROTOCOL, "Unknown method foo" },
        { "x.Unknown", "x", 15, RPC_FAULT_AUTH, "x" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct server s;
        server_init(&s);
        AUTO(rpc_conn_freep) struct rpc_conn *c = make(false, 0);
        struct rpc_reply r;
        assert_int_equal(call(c, "m", 3, SPAN("")), 0);
        to_server(c, &s);
        server_refuse(&s, 3, 1, rows[i].detail, rows[i].class_name, rows[i].message);
        assert_int_equal(from_server(c, &s, 1000, &r), 1);
        assert_false(r.ok);
        assert_int_equal(r.id, 3);
        assert_int_equal(r.error.kind, rows[i].kind);
        assert_string_equal(r.error.line, rows[i].line);
        assert_true(r.error.err.msg[0] != '\0');
        if (i == 0)
            assert_true(span_eqs(r.error.detail, "at a.b\n\tat c.d"));
        /* the connection stays usable */
        assert_int_equal(call(c, "n", 4, SPAN("")), 0);
        to_server(c, &s);
        server_answer(&s, 4, SPAN(""));
        assert_int_equal(from_server(c, &s, 1000, &r), 1);
        assert_true(r.ok);
        server_done(&s);
    }
}

static void test_simple_refused(void **state)
{
    (void)state;
    struct server s;
    server_init(&s);
    AUTO(rpc_conn_freep) struct rpc_conn *c = make(false, 0);
    struct rpc_reply r;
    server_refuse(&s, -1, 2, 15, "org.apache.hadoop.security.AccessControlException",
                  "SIMPLE authentication is not enabled.  Available:[TOKEN, KERBEROS]");
    assert_int_equal(from_server(c, &s, 1, &r), 0);
    const struct rpc_error *e = rpc_conn_error(c);
    assert_non_null(e);
    assert_int_equal(e->kind, RPC_FAULT_AUTH);
    assert_non_null(strstr(e->err.hint, "Kerberos"));
    assert_int_equal(call(c, "m", 0, SPAN("")), -EPIPE);
    assert_int_equal(rpc_conn_ping(c), -EPIPE);
    assert_true(rpc_conn_feed(c, SPAN("x")) < 0);
    rpc_conn_eof(c, NULL); /* has no effect */
    assert_int_equal(rpc_conn_error(c)->kind, RPC_FAULT_AUTH);
    server_done(&s);
}

static void test_sasl_refusals(void **state)
{
    (void)state;
    for (int row = 0; row < 6; row++) {
        struct server s;
        server_init(&s);
        const char *says = "";
        switch (row) {
        case 0:
            s.password = "AAAA";
            says = "token is gone";
            break;
        case 1:
            s.bad_rspauth = true;
            says = "did not prove";
            break;
        case 2:
            s.mechanism = "SCRAM-SHA-256";
            says = "SCRAM-SHA-256";
            break;
        case 3:
            s.simple = true;
            says = "does not accept tokens";
            break;
        case 4:
            s.qop = "auth-conf";
            s.cipher = "3des";
            says = "no protection that tony supports";
            break;
        default:
            s.id = "AAAA";
            says = "token is gone";
            break;
        }
        AUTO(rpc_conn_freep) struct rpc_conn *c = make(true, 0);
        assert_int_equal(call(c, "m", 0, SPAN("")), 0);
        talk(c, &s, 3);
        const struct rpc_error *e = rpc_conn_error(c);
        assert_non_null(e);
        assert_int_equal(e->kind, RPC_FAULT_AUTH);
        if (!strstr(e->err.msg, says))
            fail_msg("row %d: %s", row, e->err.msg);
        assert_int_equal(s.calls.n, 0);
        /* the message has no credentials */
        assert_null(strstr(e->err.msg, "CgoKBggBEICJehABEAc"));
        server_done(&s);
    }
}

static void test_changed_packets_are_refused(void **state)
{
    (void)state;
    for (int conf = 0; conf < 2; conf++) {
        struct server s;
        server_init(&s);
        s.qop = conf ? "auth-conf" : "auth-int";
        s.cipher = conf ? "rc4" : NULL;
        AUTO(rpc_conn_freep) struct rpc_conn *c = make(true, 0);
        talk(c, &s, 1000);
        assert_int_equal(call(c, "m", 0, SPAN("")), 0);
        to_server(c, &s);
        s.spoil_mac = true;
        server_answer(&s, 0, SPAN("x"));
        struct rpc_reply r;
        assert_int_equal(from_server(c, &s, 1000, &r), 0);
        assert_int_equal(rpc_conn_error(c)->kind, RPC_FAULT_PROTOCOL);
        assert_non_null(strstr(rpc_conn_error(c)->err.msg, "changed on its way"));
        server_done(&s);
    }
}

/* Once protection is agreed, an unprotected answer is refused. */
static void test_unprotected_answer(void **state)
{
    (void)state;
    for (int row = 0; row < 2; row++) {
        struct server s;
        server_init(&s);
        s.qop = "auth-int";
        AUTO(rpc_conn_freep) struct rpc_conn *c = make(true, 0);
        talk(c, &s, 1000);
        assert_int_equal(call(c, "m", 0, SPAN("")), 0);
        s.wrapping = false;
        if (row == 0)
            server_answer(&s, 0, SPAN("x"));
        else
            server_refuse(&s, 0, 1, 1, Y "YarnException", "x");
        struct rpc_reply r;
        assert_int_equal(from_server(c, &s, 1000, &r), 0);
        assert_non_null(strstr(rpc_conn_error(c)->err.msg, "not signed or encrypted"));
        server_done(&s);
    }
}

/* A server that accepts the client without a proof, or answers before its proof, is refused. */
static void test_answer_before_the_handshake(void **state)
{
    (void)state;
    struct server s;
    struct rpc_reply r;
    server_init(&s);
    AUTO(rpc_conn_freep) struct rpc_conn *c = make(true, 0);
    assert_int_equal(call(c, "m", 0, SPAN("")), 0);
    server_answer(&s, 0, SPAN("x"));
    assert_int_equal(from_server(c, &s, 1000, &r), 0);
    assert_int_equal(rpc_conn_error(c)->kind, RPC_FAULT_PROTOCOL);
    server_done(&s);
}

static void test_answers_of_other_servers(void **state)
{
    (void)state;
    static const struct {
        struct span bytes;
        const char *says;
        bool eof;
    } rows[] = {
        { SPAN("HTTP/1.1 404 Not Found\r\n"), "web server", false },
        { SPAN("\0\0\0\0"), "does not speak Hadoop RPC", false },
        { SPAN("\x7f\xff\xff\xff"), "does not speak Hadoop RPC", false },
        { SPAN("SSH-2.0-OpenSSH_9.2\r\n"), "does not speak Hadoop RPC", false },
        { SPAN("\0\0\0\1\5"), "cannot be decoded", false },
        { SPAN("\0\0\0\5\4\x08\0\x10\0"), "cannot be decoded", false }, /* the message is missing */
        { SPAN("\0\0\0\7\4\x08\0\x10\0\0x"), "cannot be decoded",
          false }, /* more bytes after the message */
        { SPAN("\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\3a.B\0\0\0\7too old"), "version 9", false },
        { SPAN("\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\3a.B\0\0\0\7too old"), "too old", false },
        { SPAN("\xff\xff\xff\xff\xff\xff\xff\xff\0\0"), "version 9", true },
        { SPAN("\0\0\0\x20"), "closed the connection", true },
        { SPAN(""), "closed the connection", true },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO(rpc_conn_freep) struct rpc_conn *c = make(false, 0);
        struct rpc_reply r;
        int rc = 0;
        for (size_t k = 0; k < rows[i].bytes.len && rc == 0; k++) {
            rc = rpc_conn_feed(c, span_mem(rows[i].bytes.p + k, 1));
            if (rc == 0)
                rc = rpc_conn_next(c, &r);
        }
        if (rows[i].eof) {
            assert_int_equal(rc, 0);
            assert_null(rpc_conn_error(c));
            rpc_conn_eof(c, NULL);
        }
        assert_non_null(rpc_conn_error(c));
        if (!strstr(rpc_conn_error(c)->err.msg, rows[i].says))
            fail_msg("row %zu: %s", i, rpc_conn_error(c)->err.msg);
    }
}

static void test_fatal_ends_all(void **state)
{
    (void)state;
    struct server s;
    server_init(&s);
    AUTO(rpc_conn_freep) struct rpc_conn *c = make(false, 0);
    struct rpc_reply r;
    server_refuse(&s, 5, 2, 13, "x.Y", "x.Y: cannot parse\n\tat z");
    assert_int_equal(from_server(c, &s, 1000, &r), 0);
    assert_int_equal(rpc_conn_error(c)->kind, RPC_FAULT_PROTOCOL);
    assert_string_equal(rpc_conn_error(c)->line, "cannot parse");
    assert_true(span_eqs(rpc_conn_error(c)->detail, "at z"));
    server_done(&s);
}

static void test_too_large(void **state)
{
    (void)state;
    AUTO(rpc_conn_freep) struct rpc_conn *c = make(false, 0);
    char byte = 0;
    assert_int_equal(call(c, "m", 0, span_mem(&byte, (size_t)RPC_FRAME_MAX + 1)), -EMSGSIZE);
    assert_null(rpc_conn_error(c));
    assert_int_equal(call(c, "m", 0, SPAN("")), 0);
}

/* The server's side of a recorded conversation: the client's nonce is fixed. */
struct script {
    struct buf handshake, answers;
};

static int replay(void *ctx)
{
    const struct script *t = ctx;
    struct rpc_conn_config cfg = {
        .protocol = PROTOCOL, .user = "alice", .token = &token, .cnonce = "OA6MHXh6VqTrRk"
    };
    AUTO(rpc_conn_freep) struct rpc_conn *c = rpc_conn_new(&cfg);
    if (!c)
        return -ENOMEM;
    int rc = call(c, "m", 0, SPAN("abc")), n = 0;
    const struct buf *const parts[] = { &t->handshake, &t->answers };
    for (size_t i = 0; i < 2 && rc == 0; i++) {
        rc = rpc_conn_feed(c, buf_span(parts[i]));
        struct rpc_reply r;
        while (rc == 0 && (rc = rpc_conn_next(c, &r)) == 1) {
            n++;
            rc = 0;
        }
    }
    if (rc == 0)
        assert_int_equal(n, 2);
    /* without memory, a frame that cannot be unpacked looks like a damaged one */
    return rc < 0 && torture_hit() ? -ENOMEM : rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    struct script t = { 0 };
    struct server s;
    server_init(&s);
    s.qop = "auth-conf";
    s.cipher = "rc4";
    struct rpc_conn_config cfg = {
        .protocol = PROTOCOL, .user = "alice", .token = &token, .cnonce = "OA6MHXh6VqTrRk"
    };
    AUTO(rpc_conn_freep) struct rpc_conn *c = rpc_conn_new(&cfg);
    struct rpc_reply r;
    assert_int_equal(call(c, "m", 0, SPAN("abc")), 0);
    for (int i = 0; i < 3; i++) {
        to_server(c, &s);
        (void)buf_add(&t.handshake, s.out.p, s.out.len);
        assert_int_equal(from_server(c, &s, 1000, &r), 0);
    }
    assert_true(s.ready);
    server_answer(&s, 0, SPAN("x"));
    server_refuse(&s, 1, 1, 1, Y "YarnException", "why\nwhere");
    (void)buf_add(&t.answers, s.out.p, s.out.len);
    assert_true(torture(replay, &t) > 0);
    buf_done(&t.handshake);
    buf_done(&t.answers);
    server_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_call),
        cmocka_unit_test(test_ping_and_negotiate),
        cmocka_unit_test(test_allocate_bytes),
        cmocka_unit_test(test_start_bytes),
        cmocka_unit_test(test_sasl_conversation),
        cmocka_unit_test(test_large_messages),
        cmocka_unit_test(test_many_answers_at_once),
        cmocka_unit_test(test_error_of_a_call),
        cmocka_unit_test(test_simple_refused),
        cmocka_unit_test(test_sasl_refusals),
        cmocka_unit_test(test_changed_packets_are_refused),
        cmocka_unit_test(test_unprotected_answer),
        cmocka_unit_test(test_answer_before_the_handshake),
        cmocka_unit_test(test_answers_of_other_servers),
        cmocka_unit_test(test_fatal_ends_all),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
