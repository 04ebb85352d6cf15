/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A master is killed at each write to its journal, also when only a part of the write has reached
 * the disk. In other runs the disk is full at each write. The job reaches the same end, no task
 * runs twice, and nothing is left behind.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "history/history.h"
#include "job/job.h"
#include "master_world.h"

#define BASIC                                                                                      \
    "tony.application.name=t", "tony.containers.command=./run", "tony.application.framework=generic"

struct scene {
    const char *name;
    const char *conf[10];
    struct script scripts[6];
    bool stop;
    const char *end; /* final state */
    int code;
    const char *cause; /* first cause in the summary; NULL = none */
    unsigned n_tasks;
};

static const struct scene scenes[] = {
    { .name = "two workers",
      .conf = { BASIC, "tony.worker.instances=2" },
      .scripts = { { .task = "worker:0", .run_ms = 3 } },
      .end = "SUCCEEDED",
      .n_tasks = 2 },
    { .name = "one fails",
      .conf = { BASIC, "tony.worker.instances=3",
                "tony.application.fail-on-worker-failure-enabled=true" },
      .scripts = { { .task = "worker:1", .exit_code = 3 },
                   { .task = "worker:0", .hangs = true },
                   { .task = "worker:2", .hangs = true } },
      .end = "FAILED",
      .code = 1,
      .cause = "worker:1",
      .n_tasks = 3 },
    { .name = "stages, ps and a sidecar",
      .conf = { BASIC, "tony.prep.instances=1", "tony.worker.instances=2", "tony.ps.instances=1",
                "tony.application.prepare-stage=prep",
                "tony.application.training-stage=worker,ps" },
      .scripts = { { .task = "ps:0", .hangs = true } },
      .end = "SUCCEEDED",
      .n_tasks = 3 /* the ps may be too late to run at all */ },
    { .name = "stopped",
      .conf = { BASIC, "tony.worker.instances=2" },
      .scripts = { { .task = "worker:0", .hangs = true }, { .task = "worker:1", .hangs = true } },
      .stop = true,
      .end = "KILLED",
      .code = 3,
      .n_tasks = 2 },
    { .name = "first come first served",
      .conf = { BASIC, "tony.worker.instances=3", "tony.application.distributed-mode=FCFS" },
      .end = "SUCCEEDED",
      .n_tasks = 3 },
};

/* Names the current run in failure messages. */
static char here[200];
#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            fail_msg("%s: %s", here, #cond);                                                       \
    } while (0)

static void begin(struct world *w, const struct scene *s)
{
    world_init(w, s->conf, s->scripts);
    w->stop_when_running = s->stop;
}

static void check_end(struct world *w, const struct scene *s)
{
    CHECK(!w->timed_out);
    CHECK(w->finished);
    CHECK(str_eq(w->finish_state, s->end));
    if (w->n_finished) { /* the client may be between two masters when the last one ends */
        CHECK(str_eq(w->client_state, s->end));
        CHECK(w->client_code == s->code);
        if (s->cause)
            CHECK(strstr(buf_cstr(&w->client_json), s->cause));
    }
    CHECK(world_alive(w) == 0);
    CHECK(w->n_running_at_end == 0);
    for (unsigned i = 0; i < s->n_tasks; i++)
        CHECK(w->n_runs[i] <= 1);
    if (str_eq(s->end, "SUCCEEDED"))
        for (unsigned i = 0; i < s->n_tasks; i++)
            CHECK(w->n_runs[i] == 1);

    struct history_job *h = NULL;
    CHECK(history_load(w->job_dir, &h, NULL) == 0);
    CHECK(str_eq(job_state_name(job_state(h->job)), s->end));
    history_free(h);
}

static unsigned plain_run(const struct scene *s)
{
    struct world w;
    (void)snprintf(here, sizeof here, "%s, undisturbed", s->name);
    begin(&w, s);
    CHECK(world_run(&w) == MASTER_OVER);
    check_end(&w, s);
    assert_int_equal(w.n_finished, 1);
    unsigned n = w.n_writes;
    world_done(&w);
    return n;
}

/* The master dies after write k, whose last `cut` records did not reach the disk. false: the job
 * had fewer writes. */
static bool killed_run(const struct scene *s, unsigned k, unsigned cut)
{
    struct world w;
    (void)snprintf(here, sizeof here, "%s, killed after write %u less %u records", s->name, k, cut);
    begin(&w, s);
    w.kill_at = k;
    enum master_exit code = world_run_once(&w);
    bool reached = true;
    if (code == MASTER_CRASHED) {
        reached = world_journal_lines(&w) >= w.lines_before + cut;
        if (reached)
            world_cut_journal(&w, cut);
        code = world_run(&w);
    }
    CHECK(code == MASTER_OVER);
    check_end(&w, s);
    world_done(&w);
    return reached;
}

static void killed_after_each_write(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        unsigned n = plain_run(&scenes[i]);
        for (unsigned k = 1; k <= n; k++)
            (void)killed_run(&scenes[i], k, 0);
    }
}

static void killed_within_each_write(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        unsigned n = plain_run(&scenes[i]);
        for (unsigned k = 1; k <= n; k++)
            for (unsigned cut = 1; killed_run(&scenes[i], k, cut) && cut < 5; cut++)
                ;
    }
}

static void killed_many_times(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        struct world w;
        (void)snprintf(here, sizeof here, "%s, killed every third write", scenes[i].name);
        begin(&w, &scenes[i]);
        enum master_exit code = MASTER_CRASHED;
        /* Each master dies at its third write. */
        while (code == MASTER_CRASHED && w.n_masters < 40) {
            w.kill_at = w.n_writes + 3;
            code = world_run_once(&w);
        }
        CHECK(code == MASTER_OVER);
        check_end(&w, &scenes[i]);
        world_done(&w);
    }
}

/* Running tasks go on, no record is lost, and no action happens twice. */
static void the_disk_is_full_for_a_while(void **state)
{
    static const int nums[] = { ENOSPC, EIO, EDQUOT };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        unsigned n = plain_run(&scenes[i]);
        for (unsigned k = 1; k <= n; k++) {
            struct world w;
            (void)snprintf(here, sizeof here, "%s, no write from %u on for a while", scenes[i].name,
                           k);
            begin(&w, &scenes[i]);
            w.fail_at = k;
            w.fail_n = 1 + k % 4;
            w.fail_errno = nums[k % ARRAY_LEN(nums)];
            enum master_exit code = world_run(&w);
            /* a stop by the client does not wait for the disk */
            if (code == MASTER_HOPELESS && w.stop_when_running) {
                CHECK(w.n_running_at_end == 0);
            } else {
                CHECK(code == MASTER_OVER);
                CHECK(w.n_masters == 1);
                check_end(&w, &scenes[i]);
            }
            world_done(&w);
        }
    }
}

/* As on NFS and on disks with quotas: the write succeeds, the sync fails, and the kernel drops the
 * bytes. */
static void the_disk_is_full_when_it_is_synced(void **state)
{
    static const int nums[] = { ENOSPC, EDQUOT };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        for (unsigned k = 1; k <= 4; k++) {
            struct world w;
            (void)snprintf(here, sizeof here, "%s, %u syncs fail", scenes[i].name, k);
            begin(&w, &scenes[i]);
            w.fail_syncs = k;
            w.fail_errno = nums[k % ARRAY_LEN(nums)];
            w.drop_unsynced = k > 2;
            enum master_exit code = world_run(&w);
            CHECK(w.fail_syncs == 0 || w.stop_when_running);
            if (code == MASTER_HOPELESS && w.stop_when_running) {
                CHECK(w.n_running_at_end == 0);
            } else {
                CHECK(code == MASTER_OVER);
                CHECK(w.n_masters == 1);
                check_end(&w, &scenes[i]);
            }
            world_done(&w);
        }
    }
}

static void the_disk_fails_when_it_is_synced(void **state)
{
    (void)state;
    struct world w;
    (void)snprintf(here, sizeof here, "a sync fails with EIO");
    begin(&w, &scenes[0]);
    w.fail_syncs = 1;
    w.fail_errno = EIO;
    CHECK(world_run(&w) == MASTER_HOPELESS);
    CHECK(world_alive(&w) == 0);
    world_done(&w);
}

static void the_disk_is_gone_at_each_write(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        unsigned n = plain_run(&scenes[i]);
        for (unsigned k = 1; k <= n; k++) {
            struct world w;
            (void)snprintf(here, sizeof here, "%s, disk gone at write %u", scenes[i].name, k);
            begin(&w, &scenes[i]);
            w.fail_at = k;
            w.fail_errno = EFBIG;
            enum master_exit code = world_run(&w);
            CHECK(!w.timed_out);
            if (w.n_writes < k) { /* it put more records into each write than the plain run */
                CHECK(code == MASTER_OVER);
                world_done(&w);
                break;
            }
            CHECK(code == MASTER_HOPELESS);
            CHECK(!w.finished);
            CHECK(world_alive(&w) == 0);
            CHECK(w.n_running_at_end == 0);
            /* Followers are told what the journal has: how the job was ending, or else why it
             * cannot continue. */
            if (w.n_finished && !str_eq(w.client_state, scenes[i].end)) {
                CHECK(str_eq(w.client_state, "FAILED"));
                CHECK(w.client_code == 1);
                CHECK(strstr(buf_cstr(&w.client_json), "File too large"));
            }
            /* earlier records stay, and the pool can end the job later */
            struct history_job *h = NULL;
            CHECK(history_load(w.job_dir, &h, NULL) == 0);
            history_free(h);
            struct err e = { 0 };
            struct job_event ev = { .type = EV_LAUNCH_FAILED_JOB,
                                    .launch_failed_job = { .why = "the disk was full" } };
            CHECK(history_abort(&w.paths, w.id, &ev, &e) == 0);
            CHECK(history_abort(&w.paths, w.id, &ev, &e) == 0);
            AUTO(free_p) char *dir = paths_history(&w.paths, w.id);
            CHECK(history_load(dir, &h, NULL) == 0);
            CHECK(history_decided(h->job));
            history_free(h);
            world_done(&w);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_after_each_write),
        cmocka_unit_test(killed_within_each_write),
        cmocka_unit_test(killed_many_times),
        cmocka_unit_test(the_disk_is_full_for_a_while),
        cmocka_unit_test(the_disk_is_full_when_it_is_synced),
        cmocka_unit_test(the_disk_fails_when_it_is_synced),
        cmocka_unit_test(the_disk_is_gone_at_each_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
