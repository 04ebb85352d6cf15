/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A master on a cluster takes the resize that a client left before there was a master, in the small
 * world of master_world.h.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "master/master_int.h"
#include "master_world.h"
#include "proto/tony.pb-c.h"
#include "scheduler/yarn/resizefile.h"

static const char *const two_workers[] = { "tony.application.name=t<1>",
                                           "tony.containers.command=./run",
                                           "tony.application.framework=generic",
                                           "tony.worker.instances=2",
                                           "tony.worker.memory=64m",
                                           "tony.worker.resize=live",
                                           "tony.worker.max-instances=4",
                                           NULL };
static const struct script soon[] = { { .task = "worker:0", .run_ms = 20 }, { 0 } };
static const struct script longer[] = { { .task = "worker:0", .run_ms = 600 },
                                        { .task = "worker:1", .run_ms = 600 },
                                        { 0 } };

static void world_begin(struct world *w, const struct script *scripts)
{
    world_init(w, two_workers, scripts);
    log_setup(open("/dev/null", O_WRONLY), LOG_ERROR, false);
    world_go_remote(w);
}

static void leave_request(struct world *w, const char *role, uint32_t n)
{
    Tony__RoleSize size = TONY__ROLE_SIZE__INIT, *list[] = { &size };
    Tony__ResizeJob r = TONY__RESIZE_JOB__INIT;
    struct err e = { 0 };
    size.role = (char *)(uintptr_t)role;
    size.instances = n;
    r.application_id = w->id;
    r.who = (char *)(uintptr_t) "ann@here pid 1";
    r.reason = (char *)(uintptr_t) "more machines";
    r.n_roles = 1;
    r.roles = list;
    assert_int_equal(resize_file_encode(&r, &w->files.request, &e), 0);
}

/* The job ends well after its tasks have run once, and its size was n. */
static void expect_size(struct world *w, unsigned n)
{
    assert_int_equal(world_run(w), MASTER_OVER);
    assert_false(w->timed_out);
    assert_string_equal(w->finish_state, "SUCCEEDED");
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(w->n_runs[i], i < n);
}

static void expect_resize(const struct world *w, const char *sizes)
{
    const char *json = buf_cstr(&w->client_json);
    assert_non_null(strstr(json, sizes));
    assert_non_null(strstr(json, "\"who\":\"ann@here pid 1\",\"why\":\"more machines\""));
    assert_non_null(strstr(json, "\"resizes\":1"));
}

static void test_a_waiting_job_grows(void **state)
{
    (void)state;
    struct world w;
    world_begin(&w, soon);
    leave_request(&w, "worker", 4);
    expect_size(&w, 4);
    expect_resize(&w, "{\"name\":\"worker\",\"from\":2,\"to\":4}");
    assert_string_equal(w.files.log.v[0], "rmdir /s/queued");
    assert_string_equal(w.files.log.v[1], "rename /s/queued /s/taken");
    assert_string_equal(w.files.log.v[2], "list /s/taken");
    assert_string_equal(w.files.log.v[3], "get /s/taken/1");
    world_done(&w);
}

static void test_a_waiting_job_shrinks(void **state)
{
    (void)state;
    struct world w;
    world_begin(&w, soon);
    leave_request(&w, "worker", 1);
    expect_size(&w, 1);
    expect_resize(&w, "{\"name\":\"worker\",\"from\":2,\"to\":1}");
    world_done(&w);
}

/* The requests that the master cannot read, or has to refuse: the job keeps its size. */
static void test_invalid_requests_are_ignored(void **state)
{
    (void)state;
    static const struct {
        const char *role;
        uint32_t n;
    } requests[] = { { NULL, 0 }, { "worker", 5 }, { "worker", 2 }, { "wroker", 3 }, { "am", 2 } };
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        struct world w;
        world_begin(&w, soon);
        if (requests[i].role)
            leave_request(&w, requests[i].role, requests[i].n);
        else
            assert_int_equal(buf_adds(&w.files.request, "no frame"), 0);
        expect_size(&w, 2);
        assert_null(strstr(buf_cstr(&w.client_json), "resize\""));
        world_done(&w);
    }
}

static void test_the_master_dies_after_it(void **state)
{
    (void)state;
    struct world w;
    world_begin(&w, soon);
    leave_request(&w, "worker", 3);
    w.kill_event = "resize";
    expect_size(&w, 3);
    assert_int_equal(w.n_masters, 2);
    expect_resize(&w, "{\"name\":\"worker\",\"from\":2,\"to\":3}");
    world_done(&w);
}

/* The first master has read the request, and nothing that it has written is left. */
static void test_the_master_dies_before_it_counts(void **state)
{
    (void)state;
    struct world w;
    world_begin(&w, soon);
    leave_request(&w, "worker", 3);
    w.kill_event = "resize";
    assert_int_equal(world_run_once(&w), MASTER_CRASHED);
    assert_true(w.files.taken);
    world_cut_journal(&w, world_journal_lines(&w));
    expect_size(&w, 3);
    expect_resize(&w, "{\"name\":\"worker\",\"from\":2,\"to\":3}");
    world_done(&w);
}

static void release(struct world *w)
{
    world_files_release_request(w);
}

/* HDFS does not answer for a while: the job starts with its own size, and grows later. */
static void test_a_request_is_found_late(void **state)
{
    (void)state;
    struct world w;
    world_begin(&w, longer);
    w.probe.patience_ms = 300;
    leave_request(&w, "worker", 3);
    w.files.holds_request = true;
    w.on_running = release;
    expect_size(&w, 3);
    expect_resize(&w, "{\"name\":\"worker\",\"from\":2,\"to\":3}");
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_waiting_job_grows),
        cmocka_unit_test(test_a_waiting_job_shrinks),
        cmocka_unit_test(test_invalid_requests_are_ignored),
        cmocka_unit_test(test_the_master_dies_after_it),
        cmocka_unit_test(test_the_master_dies_before_it_counts),
        cmocka_unit_test(test_a_request_is_found_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
