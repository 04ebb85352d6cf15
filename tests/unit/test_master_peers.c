/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executors whose connection, or whose place in the job, is not what the master expects: another
 * container, a newer connection, a Start that comes too late.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/clock.h"
#include "job/job_int.h"
#include "loop/loop.h"
#include "master/master_int.h"
#include "master_world_int.h"
#include "proto/tony.pb-c.h"

#define BASIC                                                                                      \
    "tony.application.name=t", "tony.containers.command=./run", "tony.application.framework=generic"

static const char *const two_workers[] = { BASIC, "tony.worker.instances=2", NULL };
static const struct script both_hang[] = { { .task = "worker:0", .hangs = true },
                                           { .task = "worker:1", .hangs = true },
                                           { 0 } };

static void end_job(struct world *w)
{
    assert_int_equal(
        master_feed(w->master, &(struct job_event){ .type = EV_STOP, .stop = { .who = "test" } }),
        0);
}

/* ---- a second connection for slot 0 ---- */

static struct {
    struct world *w;
    struct conn *conn;
    char container[40];
    unsigned n_welcomes, n_refused;
    char refused[200];
    size_t n_questions; /* of clients about the log of slot 0, when the master has answered */
} second;

static void second_opens(struct conn *c, void *arg)
{
    Tony__ExecutorHello h = TONY__EXECUTOR_HELLO__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    uint32_t port = 1000;
    (void)arg;
    h.version = TONY__VERSION__PROTOCOL_VERSION;
    h.container_id = second.container;
    h.host = (char *)(uintptr_t) "127.0.0.1";
    h.n_ports = 1;
    h.ports = &port;
    h.generation = h.attempt = 1;
    h.running = true;
    f.body_case = TONY__FRAME__BODY_EXECUTOR_HELLO;
    f.executor_hello = &h;
    assert_int_equal(conn_send(c, &f), 0);
}

static void second_answered(void)
{
    second.n_questions = second.w->master->log_questions.n;
    end_job(second.w);
}

static void second_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    (void)c;
    (void)arg;
    if (f->body_case == TONY__FRAME__BODY_WELCOME && second.n_welcomes++ == 0)
        second_answered();
    if (f->body_case == TONY__FRAME__BODY_REFUSED) {
        (void)snprintf(second.refused, sizeof second.refused, "%s", f->refused->message);
        if (second.n_refused++ == 0)
            second_answered();
    }
}

static void second_closed(struct conn *c, const struct err *e, void *arg)
{
    (void)c;
    (void)e;
    (void)arg;
    second.conn = NULL;
}

static const struct conn_ops second_ops = { .on_open = second_opens,
                                            .on_frame = second_frame,
                                            .on_close = second_closed };

static void connect_second(struct world *w, const char *container)
{
    second.w = w;
    (void)snprintf(second.container, sizeof second.container, "%s", container);
    assert_int_equal(world_dial_master(w, NULL, &second_ops, NULL, &second.conn), 0);
}

static void connect_with_another_container(struct world *w)
{
    connect_second(w, "container_of_nobody");
}

static void run_second(struct world *w, void (*on_running)(struct world *w))
{
    memset(&second, 0, sizeof second);
    world_init(w, two_workers, both_hang);
    w->on_running = on_running;
    assert_int_equal(world_run(w), MASTER_OVER);
    assert_false(w->timed_out);
    assert_int_equal(w->n_masters, 1);
    conn_close(second.conn);
    world_done(w);
}

/* A slot may have got another container since the executor was started. */
static void an_executor_of_another_container_is_refused(void **state)
{
    struct world w;
    (void)state;
    run_second(&w, connect_with_another_container);
    assert_int_equal(second.n_welcomes, 0);
    assert_string_equal(second.refused, "this container does not belong to the task any more");
}

static void ask_and_connect_again(struct world *w)
{
    struct master *m = w->master;
    Tony__ReadLog q = TONY__READ_LOG__INIT;
    struct peer *client = m->peers;
    while (client && client->kind != PEER_CLIENT)
        client = client->next;
    assert_non_null(client);
    q.number = 7001; /* the first number that the client of the world expects */
    q.stream = (char *)(uintptr_t) "stderr";
    w->box_hides_log = true;
    logs_ask(client, &q);
    assert_int_equal(m->log_questions.n, 1);
    connect_second(w, m->job->slots[0].container);
}

/* The master has sent a question for a log over the old connection, so no answer can come. It must
 * tell that to the client which waits for the log. */
static void a_newer_connection_ends_questions_to_the_old_one(void **state)
{
    struct world w;
    (void)state;
    run_second(&w, ask_and_connect_again);
    assert_int_equal(second.n_welcomes, 1);
    assert_int_equal(second.n_questions, 0);
}

/* ---- a Start that comes too late ---- */

static const char *const restarting[] = { BASIC,
                                          "tony.worker.instances=2",
                                          "tony.worker.restart=on-failure",
                                          "tony.worker.restart-scope=task",
                                          "tony.worker.restart-delay=60000",
                                          NULL };

static const struct act_start first_start = { .slot = 0, .generation = 1, .attempt = 1 };

/* The Start of attempt 1 may have waited for a copy of the journal while the attempt ended. */
static void start_too_late(struct world *w)
{
    struct master *m = w->master;
    const struct slot *s = &m->job->slots[0];
    struct job_event end = {
        .type = EV_ATTEMPT_ENDED,
        .attempt_ended = { .generation = 1, .attempt = 1, .exit_code = 1, .reason = END_EXITED }
    };
    struct job_event ready = {
        .type = EV_REGISTERED,
        .registered = { .container = s->container, .generation = 1, .address = "127.0.0.1:1000" }
    };
    struct act_start other = { .slot = 0, .generation = 1, .attempt = 2 };

    executor_start(m, &other); /* the slot has no such attempt */
    assert_int_equal(master_feed(m, &end), 0);
    assert_int_equal(s->state, SLOT_RENEWING);
    executor_start(m, &first_start);
    assert_int_equal(master_feed(m, &ready), 0);
    assert_int_equal(s->state, SLOT_REGISTERED); /* the pause before the restart */
    executor_start(m, &first_start);
    end_job(w);
}

static void a_late_start_is_not_sent(void **state)
{
    struct world w;
    (void)state;
    world_init(&w, restarting, both_hang);
    w.on_running = start_too_late;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_false(w.timed_out);
    assert_int_equal(w.spec.n_starts, 2); /* one for each task */
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_executor_of_another_container_is_refused),
        cmocka_unit_test(a_newer_connection_ends_questions_to_the_old_one),
        cmocka_unit_test(a_late_start_is_not_sent),
    };
    return cmocka_run_group_tests_name("master_peers", tests, NULL, NULL);
}
