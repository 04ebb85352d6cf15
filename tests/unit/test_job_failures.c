/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several failures is the first cause, and the list of failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>

#include "base/base.h"
#include "codec/json.h"
#include "drive.h"
#include "job/job.h"
#include "job/job_int.h"
#include "torture.h"

#define LOST "RuntimeError: [pair.cc:598] Connection closed by peer\n"
#define ROOT "Traceback (most recent call last):\nValueError: no such digit\n"
#define KILLED "its executor was killed by signal 9"

static void end(struct drive *d, const char *task, struct ev_attempt_ended ev)
{
    ev.slot = drive_slot(d, task);
    ev.generation = d->slots[ev.slot].generation;
    ev.attempt = d->slots[ev.slot].attempt;
    if (!ev.reason)
        ev.reason = END_EXITED;
    (void)drive_feed(d, &(struct job_event){ .type = EV_ATTEMPT_ENDED, .attempt_ended = ev });
}

static json_t *failures(const struct drive *d, bool full)
{
    AUTO(buf_done) struct buf text = { 0 };
    struct err e = { 0 };
    json_t *doc = NULL;
    assert_int_equal(job_status_json(d->job, full, &text), 0);
    if (json_parse("status", buf_span(&text), &doc, &e) < 0)
        fail_msg("%s\n%s", e.msg, buf_cstr(&text));
    json_t *list = json_incref(json_object_get(doc, "failures"));
    json_decref(doc);
    return list;
}

static void check_cause(const struct drive *d, const char *task, const char *message)
{
    struct job_verdict v;
    job_verdict(d->job, &v);
    if (v.state != JOB_FAILED || v.cause_slot != drive_slot(d, task) || !strstr(v.message, message))
        fail_msg("%s, cause %d: %s", job_state_name(v.state), (int)v.cause_slot, v.message);
}

/* The victims report first and end first. The job waits for all of them. */
static void test_a_victim_is_not_the_cause(void **state)
{
    static const struct {
        int64_t victim_ms, root_ms;
        const char *cause;
    } rows[] = {
        { 100, 100, "worker:2" },   { 100, 900, "worker:2" },   { 900, 100, "worker:2" },
        { 100, 10099, "worker:2" }, { 100, 10200, "worker:1" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        bool root_first = rows[i].root_ms < rows[i].victim_ms;
        struct drive d;
        drive_init(&d, "worker*3");
        drive_run(&d, "go");
        for (int k = 0; k < 2; k++) {
            bool root = (k == 0) == root_first;
            d.now = root ? rows[i].root_ms : rows[i].victim_ms;
            end(&d, root ? "worker:2" : "worker:1",
                (struct ev_attempt_ended){ .exit_code = 1, .tail = root ? ROOT : LOST });
        }
        d.now += 5;
        end(&d, "worker:0", (struct ev_attempt_ended){ .exit_code = 1, .tail = LOST });
        check_cause(&d, rows[i].cause, "failed with exit code 1");
        drive_done(&d);
    }
}

/* All are victims: the cause is outside the job, and the first victim is named. */
static void test_only_victims(void **state)
{
    struct drive d;
    (void)state;
    drive_init(&d, "worker*2 fail=1");
    drive_run(&d, "go mute:worker:0");
    end(&d, "worker:1", (struct ev_attempt_ended){ .exit_code = 1, .tail = LOST });
    end(&d, "worker:0", (struct ev_attempt_ended){ .exit_code = 1, .tail = LOST, .age_us = 3000 });
    check_cause(&d, "worker:0", "exit code 1");
    drive_done(&d);
}

/* The end of a silent executor dates from the beginning of its silence, so it comes before the
 * failure of a task that fails later, but is heard of at once. */
static void test_silence_dates_from_its_beginning(void **state)
{
    struct drive d;
    (void)state;
    drive_init(&d, "worker*2 beat=1000 missed=25");
    drive_run(&d, "go +3000 mute:worker:0 +10000 worker:1=1 +60000");
    check_cause(&d, "worker:0", "no heartbeat");
    drive_done(&d);
}

/* The task had printed its traceback when tony stopped it, before it had ended. */
static void test_a_task_is_stopped_while_it_fails(void **state)
{
    static const struct {
        struct ev_attempt_ended ev;
        const char *cause, *message;
    } rows[] = {
        { { .reason = END_KILLED_BY_MASTER, .signal = SIGTERM, .tail = ROOT },
          "worker:1",
          "was failing when it was stopped" },
        { { .reason = END_KILLED_BY_MASTER, .exit_code = 1, .tail = ROOT },
          "worker:1",
          "failed with exit code 1" },
        /* it ended by itself before any stop */
        { { .reason = END_EXITED, .exit_code = 5 }, "worker:1", "failed with exit code 5" },
        { { .reason = END_EXITED, .exit_code = 1, .tail = LOST }, "worker:0", "exit code 1" },
        { { .reason = END_EXITED }, "worker:0", "exit code 1" },
        { { .reason = END_KILLED_BY_MASTER, .signal = SIGTERM, .tail = LOST },
          "worker:0",
          "failed with exit code 1" },
        { { .reason = END_KILLED_BY_MASTER, .signal = SIGTERM },
          "worker:0",
          "failed with exit code 1" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        drive_init(&d, "worker*2 fail=1");
        drive_run(&d, "go mute:worker:1");
        end(&d, "worker:0", (struct ev_attempt_ended){ .exit_code = 1, .tail = LOST });
        end(&d, "worker:1", rows[i].ev);
        check_cause(&d, rows[i].cause, rows[i].message);
        json_t *list = failures(&d, true);
        size_t n = str_eq(rows[i].cause, "worker:1") ? 2 : 1;
        assert_int_equal(json_array_size(list), n);
        json_t *first = json_array_get(list, n - 1);
        assert_true(json_is_true(json_object_get(first, "first")));
        assert_string_equal(json_str(first, "task", ""), rows[i].cause);
        json_decref(list);
        drive_done(&d);
    }
}

/* A task that exits without an error message is not always the victim of a task that is lost while
 * it is being stopped. */
static void test_a_task_is_lost_while_it_is_stopped(void **state)
{
    static const struct {
        const char *tail;
        struct ev_attempt_ended ev;
        const char *cause;
    } rows[] = {
        { NULL, { .reason = END_UNKNOWN, .detail = KILLED }, "worker:0" },
        { LOST, { .reason = END_UNKNOWN, .detail = KILLED }, "worker:1" },
        { NULL, { .reason = END_NODE_LOST }, "worker:0" },
        { LOST, { .reason = END_NODE_LOST }, "worker:1" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        drive_init(&d, "worker*2 fail=1");
        drive_run(&d, "go mute:worker:1");
        end(&d, "worker:0", (struct ev_attempt_ended){ .exit_code = 3, .tail = rows[i].tail });
        d.now += 200;
        end(&d, "worker:1", rows[i].ev);
        check_cause(&d, rows[i].cause, "");
        drive_done(&d);
    }
}

/* The cause that an event carries counts. The core reads the tail only if there is none, as in
 * journals of version 0.1.0, or if only a newer version knows its name. */
static void test_the_cause_of_the_event_counts(void **state)
{
    static const struct {
        struct ev_attempt_ended ev;
        const char *known, *line;
    } rows[] = {
        { { .exit_code = 1, .tail = ROOT, .cause = "nan", .cause_line = "loss is nan" },
          "nan",
          "loss is nan" },
        { { .exit_code = 1, .tail = ROOT, .cause = "disk_full" }, "disk_full", "" },
        { { .exit_code = 1, .tail = ROOT, .cause = "of_2050", .cause_line = "x" },
          "exception",
          "ValueError: no such digit" },
        { { .exit_code = 1, .tail = ROOT }, "exception", "ValueError: no such digit" },
        { { .reason = END_NODE_LOST, .cause = "node_lost" }, "node_lost", "" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        drive_init(&d, "worker*2 fail=1");
        drive_run(&d, "go");
        end(&d, "worker:1", rows[i].ev);
        json_t *list = failures(&d, true), *first = json_array_get(list, 0);
        assert_string_equal(json_str(first, "known", ""), rows[i].known);
        assert_string_equal(json_str(first, "line", "?"), rows[i].line);
        json_decref(list);
        drive_done(&d);
    }
}

/* The cause in the event also counts when two failures are compared: a victim, and a stopped
 * task. */
static void test_the_cause_of_the_event_is_weighed(void **state)
{
    static const struct {
        const char *stopped, *cause;
    } rows[] = { { "exception", "worker:1" }, { "lost_peer", "worker:0" }, { "none", "worker:0" } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        drive_init(&d, "worker*2 fail=1");
        drive_run(&d, "go mute:worker:1");
        end(&d, "worker:0", (struct ev_attempt_ended){ .exit_code = 1, .cause = "lost_peer" });
        end(&d, "worker:1",
            (struct ev_attempt_ended){ .reason = END_KILLED_BY_MASTER,
                                       .exit_code = 1,
                                       .tail = i == 2 ? ROOT : NULL,
                                       .cause = rows[i].stopped });
        check_cause(&d, rows[i].cause, "failed with exit code 1");
        drive_done(&d);
    }
}

static void test_the_list(void **state)
{
    struct drive d;
    (void)state;
    drive_init(&d, "worker*40");
    drive_run(&d, "go");
    assert_null(failures(&d, true));
    for (int i = 0; i < 30; i++) {
        char task[16];
        (void)snprintf(task, sizeof task, "worker:%d", 30 - i);
        d.now += 10;
        end(&d, task, (struct ev_attempt_ended){ .exit_code = 40 + i, .tail = i ? LOST : ROOT });
    }
    json_t *list = failures(&d, true);
    assert_int_equal(json_array_size(list), JOB_FAILURES_SHOWN);
    for (int i = 0; i < JOB_FAILURES_SHOWN; i++) {
        const json_t *f = json_array_get(list, (size_t)i);
        assert_int_equal(json_int(f, "exit_code", -1), 40 + i);
        assert_int_equal(json_flag(f, "first", false), i == 0);
        assert_int_equal(json_flag(f, "victim", false), i != 0);
        assert_string_equal(json_str(f, "known", ""), i ? "lost_peer" : "exception");
        assert_string_equal(json_str(f, "stderr_tail", ""), i ? LOST : ROOT);
    }
    assert_string_equal(json_str(json_array_get(list, 0), "line", ""), "ValueError: no such digit");
    json_decref(list);
    list = failures(&d, false); /* followers get the list at each change */
    assert_null(json_object_get(json_array_get(list, 0), "stderr_tail"));
    json_decref(list);

    AUTO(buf_done) struct buf text = { 0 };
    assert_int_equal(
        job_status_json_more(d.job, true, &(struct job_status_more){ .no_tail = true }, &text), 0);
    assert_null(strstr(buf_cstr(&text), "no such digit"));
    drive_done(&d);
}

/* Failures before the last attempt, and what the job did about each. */
static void test_the_list_of_earlier_failures(void **state)
{
    struct drive d;
    (void)state;
    drive_init(&d, "worker*2");
    drive_run(&d, "go");
    d.now = 50;
    end(&d, "worker:1", (struct ev_attempt_ended){ .exit_code = 7, .tail = ROOT });
    for (int i = 0; i < JOB_FAILURES_KEPT + 3; i++)
        failures_keep(d.job, drive_slot(&d, "worker:1"), RESTARTED_TASK);
    json_t *list = failures(&d, true);
    assert_int_equal(json_array_size(list), JOB_FAILURES_SHOWN);
    assert_string_equal(json_str(json_array_get(list, 0), "done", ""), "restarted");
    json_decref(list);
    drive_done(&d);
}

/* The victim reports first, and all tasks are halted for it. The first cause reports while it is
 * being halted. */
static void test_the_first_cause_reports_while_it_is_halted(void **state)
{
    struct drive d;
    (void)state;
    drive_init(&d, "worker*2/on/scope-job");
    drive_run(&d, "go mute:worker:1");
    end(&d, "worker:0", (struct ev_attempt_ended){ .exit_code = 1, .tail = LOST });
    end(&d, "worker:1", (struct ev_attempt_ended){ .exit_code = 1, .tail = ROOT });
    json_t *list = failures(&d, true);
    assert_int_equal(json_array_size(list), 2);
    const json_t *root = json_array_get(list, 0);
    if (json_flag(root, "victim", true))
        root = json_array_get(list, 1);
    assert_string_equal(json_str(root, "task", ""), "worker:1");
    assert_string_equal(json_str(root, "line", ""), "ValueError: no such digit");
    assert_string_equal(json_str(root, "done", ""), "gang formed anew");
    json_decref(list);
    drive_done(&d);
}

/* Tasks that are halted and end because of that, or because they lost a peer, are not listed. */
static void test_halted_tasks_are_no_failures(void **state)
{
    struct drive d;
    (void)state;
    drive_init(&d, "worker*3/on/scope-job");
    drive_run(&d, "go mute:worker:1 mute:worker:2");
    end(&d, "worker:0", (struct ev_attempt_ended){ .exit_code = 1, .tail = LOST });
    end(&d, "worker:1",
        (struct ev_attempt_ended){ .signal = SIGTERM, .reason = END_KILLED_BY_MASTER });
    end(&d, "worker:2", (struct ev_attempt_ended){ .exit_code = 1, .tail = LOST });
    json_t *list = failures(&d, true);
    assert_int_equal(json_array_size(list), 1);
    assert_string_equal(json_str(json_array_get(list, 0), "task", ""), "worker:0");
    json_decref(list);
    drive_done(&d);
}

/* A node on which tasks fail again and again is named, and avoided. */
static void test_nodes(void **state)
{
    struct drive d;
    (void)state;
    drive_init(&d, "chief*1 worker*9/on/max-1 nodes=10 nodefail=3 nodewin=60000");
    drive_run(&d, "go worker:1=3 +2000 worker:1=3 +4000 worker:1=3");
    AUTO(buf_done) struct buf text = { 0 };
    struct err e = { 0 };
    json_t *doc = NULL;
    assert_int_equal(job_status_json(d.job, false, &text), 0);
    assert_int_equal(json_parse("status", buf_span(&text), &doc, &e), 0);
    const json_t *nodes = json_object_get(doc, "bad_nodes"),
                 *list = json_object_get(doc, "failures");
    assert_int_equal(json_array_size(nodes), 1);
    const json_t *node = json_array_get(nodes, 0);
    assert_int_equal(json_int(node, "failures", 0), 3);
    assert_true(json_flag(node, "left_out", false));
    assert_int_equal(json_array_size(list), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *f = json_array_get(list, i);
        assert_string_equal(json_str(f, "node", ""), json_str(node, "node", "?"));
        assert_int_equal(json_int(f, "attempt", 0), (int64_t)i + 1);
        assert_true(json_str(f, "done", "")[0] != 0);
    }
    json_decref(doc);
    drive_done(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_victim_is_not_the_cause),
        cmocka_unit_test(test_only_victims),
        cmocka_unit_test(test_silence_dates_from_its_beginning),
        cmocka_unit_test(test_the_first_cause_reports_while_it_is_halted),
        cmocka_unit_test(test_halted_tasks_are_no_failures),
        cmocka_unit_test(test_a_task_is_stopped_while_it_fails),
        cmocka_unit_test(test_a_task_is_lost_while_it_is_stopped),
        cmocka_unit_test(test_the_cause_of_the_event_counts),
        cmocka_unit_test(test_the_cause_of_the_event_is_weighed),
        cmocka_unit_test(test_the_list),
        cmocka_unit_test(test_the_list_of_earlier_failures),
        cmocka_unit_test(test_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
