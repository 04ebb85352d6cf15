/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A master answers a client that has the resize key only: it may ask two questions, and wish for
 * sizes within the bounds of the job. The test uses the simulated cluster of master_world.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "loop/loop.h"
#include "master/master_int.h"
#include "master_remote.h"
#include "master_world.h"
#include "proto/tony.pb-c.h"
#include "storage/jobkey.h"
#include "storage/resizekey.h"

static const char *const elastic[] = { BASIC,
                                       "tony.worker.instances=2",
                                       "tony.worker.memory=64m",
                                       "tony.worker.min-instances=2",
                                       "tony.worker.max-instances=4",
                                       "tony.worker.resize=live",
                                       NULL };
static const struct script a_while[] = { { .task = "worker:0", .run_ms = 300 },
                                         { .task = "worker:1", .run_ms = 300 },
                                         { .task = "worker:2", .run_ms = 300 },
                                         { 0 } };

#define NOT_ALLOWED "the key of this connection does not allow that"

/* A connection that sends one frame when the tasks run. */
struct arbiter {
    const char *identity;
    struct tls_key key;
    Tony__Frame *frame;
    struct conn *conn;
    bool opened, answered;
    char answer[200], refused[200];
    char wished[200]; /* the nodes that the master's requests preferred; see struct world */
    char leave[40];   /* the slots that the journal's record of the wish says should leave */
};

static struct arbiter *the_arbiter;

static void opened(struct conn *c, void *arg)
{
    struct arbiter *a = arg;
    a->opened = true;
    (void)conn_send(c, a->frame);
}

static void received(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct arbiter *a = arg;
    (void)c;
    if (f->body_case == TONY__FRAME__BODY_ANSWER) {
        a->answered = true;
        (void)snprintf(a->answer, sizeof a->answer, "%.*s", (int)f->answer->json.len,
                       (const char *)f->answer->json.data);
    }
    if (f->body_case == TONY__FRAME__BODY_JOB_UPDATE || f->body_case == TONY__FRAME__BODY_WELCOME)
        a->answered = true;
    if (f->body_case == TONY__FRAME__BODY_REFUSED)
        (void)str_copy(a->refused, sizeof a->refused, f->refused->message);
}

static void closed(struct conn *c, const struct err *e, void *arg)
{
    struct arbiter *a = arg;
    (void)c;
    (void)e;
    a->conn = NULL;
}

static const struct conn_ops ops = { .on_open = opened, .on_frame = received, .on_close = closed };

static void dial(struct world *w)
{
    struct arbiter *a = the_arbiter;
    assert_int_equal(world_dial(w, a->identity, &a->key, &ops, a, &a->conn), 0);
}

/* Find the member `leave` of the shrink in the journal. */
static void read_leave(const struct world *w, struct arbiter *out)
{
    static const char mark[] = "\"leave\":\"";
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(free_p) char *path = fs_join(w->job_dir, "journal");
    assert_int_equal(fs_read(AT_FDCWD, path, &text, NULL), 0);
    const char *at = strstr(buf_cstr(&text), mark);
    if (at)
        (void)snprintf(out->leave, sizeof out->leave, "%.*s",
                       (int)strcspn(at + sizeof mark - 1, "\""), at + sizeof mark - 1);
}

/* Run the job, and send the frame meanwhile. The job is not disturbed. */
static void ask_frame(const char *const *job, bool has_key, Tony__Frame *f, struct arbiter *out)
{
    struct world w;
    world_init(&w, job, a_while);
    world_go_remote(&w);
    log_setup(open("/dev/null", 1), LOG_ERROR, false);
    *out = (struct arbiter){ .identity = RESIZE_KEY_ARBITER, .key = { .len = 32 }, .frame = f };
    memset(out->key.bytes, 7, out->key.len);
    if (has_key)
        w.remote.resize_key = out->key;
    the_arbiter = out;
    w.on_running = dial;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_string_equal(w.client_state, "SUCCEEDED");
    conn_close(out->conn);
    (void)str_copy(out->wished, sizeof out->wished, w.wished);
    read_leave(&w, out);
    world_done(&w);
}

static void ask(const char *const *job, Tony__ClientAsk__What what, uint32_t n, const char *id,
                struct arbiter *out)
{
    Tony__SizeWish wish = TONY__SIZE_WISH__INIT;
    Tony__ClientAsk a = TONY__CLIENT_ASK__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    wish.n_containers = n;
    wish.grow = n > 2;
    wish.deadline_ms = 60000;
    a.what = what;
    a.wish = n ? &wish : NULL;
    a.application_id = (char *)(uintptr_t)id;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &a;
    ask_frame(job, true, &f, out);
}

static void the_share(void **state)
{
    struct arbiter a;
    (void)state;
    ask(elastic, TONY__CLIENT_ASK__WHAT__SHARE, 0, "", &a);
    assert_string_equal(a.refused, "");
    assert_string_equal(a.answer, "{\"runs\":true,\"changing\":false,\"instances\":2,\"target\":2,"
                                  "\"left_ms\":null,\"cost_ms\":0,"
                                  "\"nodes\":{\"n1:45454\":2}}");
}

static void a_job_without_bounds(void **state)
{
    struct arbiter a;
    (void)state;
    ask(two_workers, TONY__CLIENT_ASK__WHAT__SHARE, 0, "", &a);
    assert_string_equal(a.answer,
                        "{\"runs\":false,\"changing\":true,\"instances\":0,\"nodes\":{}}");
    ask(two_workers, TONY__CLIENT_ASK__WHAT__WISH, 2, "", &a);
    assert_string_equal(a.refused, "no role of the job may be resized by an arbiter");
}

static void sizes(void **state)
{
    struct arbiter a;
    (void)state;
    ask(elastic, TONY__CLIENT_ASK__WHAT__WISH, 1, "", &a);
    assert_string_equal(a.refused, "the job takes 2 to 4 containers, not 1");
    ask(elastic, TONY__CLIENT_ASK__WHAT__WISH, 5, "", &a);
    assert_string_equal(a.refused, "the job takes 2 to 4 containers, not 5");
    ask(elastic, TONY__CLIENT_ASK__WHAT__WISH, 0, "", &a);
    assert_string_equal(a.refused, "the request names no number of containers");
    ask(elastic, TONY__CLIENT_ASK__WHAT__WISH, 4, "application_1_0001", &a);
    assert_string_equal(a.refused, "this is the master of another job");
}

/* The holder of the resize key may be hostile: numbers without measure, and a reason that is long
 * and no text. The master refuses or cuts them, and the job goes on. */
static void hostile_wishes(void **state)
{
    enum { WHY = 1 << 20 };
    Tony__SizeWish wish = TONY__SIZE_WISH__INIT;
    Tony__ClientAsk question = TONY__CLIENT_ASK__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    struct arbiter a;
    (void)state;
    AUTO(free_p) char *why = malloc(WHY + 1);
    assert_non_null(why);
    memset(why, 0xff, WHY);
    why[WHY] = '\0';
    wish.why = why;
    wish.deadline_ms = UINT64_MAX;
    question.what = TONY__CLIENT_ASK__WHAT__WISH;
    question.wish = &wish;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &question;
    for (int grow = 0; grow <= 1; grow++) {
        wish.grow = grow != 0;
        wish.n_containers = UINT32_MAX;
        ask_frame(elastic, true, &f, &a);
        assert_string_equal(a.refused, "the job takes 2 to 4 containers, not 4294967295");
    }
    wish.n_containers = 3; /* accepted; the reason is cut */
    ask_frame(elastic, true, &f, &a);
    assert_string_equal(a.refused, "");
    assert_true(a.answered);
}

/* Where the containers should be. All containers of this cluster are on n1:45454. */
static void wish_nodes(const char *const *job, uint32_t n, const char *const *nodes,
                       const uint32_t *counts, struct arbiter *out)
{
    Tony__SizeWish wish = TONY__SIZE_WISH__INIT;
    Tony__NodeWish wishes[3], *list[3];
    Tony__ClientAsk question = TONY__CLIENT_ASK__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    for (; nodes[wish.n_nodes]; wish.n_nodes++) {
        Tony__NodeWish *w = list[wish.n_nodes] = &wishes[wish.n_nodes];
        tony__node_wish__init(w);
        w->node = (char *)(uintptr_t)nodes[wish.n_nodes];
        w->n_containers = counts[wish.n_nodes];
    }
    wish.nodes = list;
    wish.n_containers = n;
    wish.grow = n > 2;
    wish.deadline_ms = 60000;
    question.what = TONY__CLIENT_ASK__WHAT__WISH;
    question.wish = &wish;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &question;
    ask_frame(job, true, &f, out);
}

#define NODES(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define COUNTS(...) ((const uint32_t[]){ __VA_ARGS__ })

static void nodes_of_a_wish(void **state)
{
    static const char *const restarts[] = { BASIC,
                                            "tony.worker.instances=3",
                                            "tony.worker.memory=64m",
                                            "tony.worker.min-instances=2",
                                            "tony.worker.max-instances=4",
                                            "tony.worker.resize=restart",
                                            NULL };
    struct arbiter a;
    (void)state;
    /* Two containers are on n1; the wish has three there and one on n2. */
    wish_nodes(elastic, 4, NODES("n1:45454", "n2:8041"), COUNTS(3, 1), &a);
    assert_string_equal(a.refused, "");
    assert_string_equal(a.wished, "2=n1:45454 3=n2:8041 ");
    /* It names fewer nodes than containers: the rest may be anywhere. */
    wish_nodes(elastic, 4, NODES("n2:8041"), COUNTS(1), &a);
    assert_string_equal(a.wished, "2=n2:8041 ");
    /* The size stays: the job already has its containers, so nothing is requested. */
    wish_nodes(elastic, 2, NODES("n2:8041"), COUNTS(2), &a);
    assert_string_equal(a.refused, "");
    assert_string_equal(a.wished, "");
    /* One container should stay on n1. Index 0 always stays, so the others should leave. */
    wish_nodes(restarts, 2, NODES("n1:45454", "n2:8041"), COUNTS(1, 1), &a);
    assert_string_equal(a.refused, "");
    assert_string_equal(a.leave, "1");
    wish_nodes(restarts, 2, NODES("n1:45454"), COUNTS(2), &a);
    assert_string_equal(a.leave, "2");

    wish_nodes(elastic, 4, NODES("n1:45454", "n2:8041"), COUNTS(3, 2), &a);
    assert_string_equal(a.refused, "the nodes of the request have more than 4 containers");
    wish_nodes(elastic, 4, NODES("n1:45454"), COUNTS(0), &a);
    assert_string_equal(a.refused, "the request names a node without containers");
    wish_nodes(elastic, 4, NODES("n1\n"), COUNTS(1), &a);
    assert_string_equal(a.refused, "the request names an invalid node");
    assert_string_equal(a.wished, "");
}

static void nothing_else(void **state)
{
    static const Tony__ClientAsk__What whats[] = {
        TONY__CLIENT_ASK__WHAT__STATUS, TONY__CLIENT_ASK__WHAT__FOLLOW, TONY__CLIENT_ASK__WHAT__OWN,
        TONY__CLIENT_ASK__WHAT__STOP,   TONY__CLIENT_ASK__WHAT__QUEUE,
    };
    Tony__ResizeJob resize = TONY__RESIZE_JOB__INIT;
    Tony__ReadLog log = TONY__READ_LOG__INIT;
    Tony__ExecutorHello hello = TONY__EXECUTOR_HELLO__INIT;
    Tony__Frame frames[] = { TONY__FRAME__INIT, TONY__FRAME__INIT, TONY__FRAME__INIT };
    struct arbiter a;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(whats); i++) {
        ask(elastic, whats[i], 0, "", &a);
        assert_true(a.opened);
        assert_false(a.answered);
        assert_string_equal(a.refused, NOT_ALLOWED);
    }
    frames[0].body_case = TONY__FRAME__BODY_RESIZE_JOB;
    frames[0].resize_job = &resize;
    frames[1].body_case = TONY__FRAME__BODY_READ_LOG;
    frames[1].read_log = &log;
    frames[2].body_case = TONY__FRAME__BODY_EXECUTOR_HELLO;
    frames[2].executor_hello = &hello;
    for (size_t i = 0; i < ARRAY_LEN(frames); i++) {
        ask_frame(elastic, true, &frames[i], &a);
        assert_false(a.answered);
        assert_string_equal(a.refused, NOT_ALLOWED);
    }
}

/* A job that was not registered has no such key. */
static void no_key(void **state)
{
    Tony__ClientAsk question = TONY__CLIENT_ASK__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    struct arbiter a;
    (void)state;
    question.what = TONY__CLIENT_ASK__WHAT__SHARE;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &question;
    ask_frame(elastic, false, &f, &a);
    assert_false(a.opened);
    assert_null(a.conn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_share),       cmocka_unit_test(a_job_without_bounds),
        cmocka_unit_test(sizes),           cmocka_unit_test(nothing_else),
        cmocka_unit_test(no_key),          cmocka_unit_test(hostile_wishes),
        cmocka_unit_test(nodes_of_a_wish),
    };
    return cmocka_run_group_tests_name("master_share", tests, NULL, NULL);
}
