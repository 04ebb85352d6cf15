/* SPDX-License-Identifier: Apache-2.0 */
/* Which actions follow a word of a script, and in which order. The script answers each action at
 * once, so the answers' actions are in the list as well. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "drive.h"

struct row {
    const char *job, *before, *word, *actions;
};

static void check_all(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct drive d;
        drive_init(&d, rows[i].job);
        d.spec->checkpoint_grace_ms = 10000;
        d.spec->kill_grace_ms = 2000;
        drive_run(&d, rows[i].before);
        d.notes_acts = true;
        drive_run(&d, rows[i].word);
        const char *actions = buf_cstr(&d.noted);
        if (!str_eq(actions ? actions : "", rows[i].actions))
            fail_msg("[%s] [%s] %s: \"%s\", but designed: \"%s\"", rows[i].job, rows[i].before,
                     rows[i].word, actions, rows[i].actions);
        drive_done(&d);
    }
}

/* A task that leaves may save a checkpoint. The scheduler hears of the new demand, the other tasks
 * of the new addresses. The journal is durable before a task ends. */
static void test_a_resize(void **state)
{
    static const struct row rows[] = {
        { "worker*3/live", "go", "resize:worker=2",
          "shape, sync, stop_attempt worker:2 save 10000 grace 2000, peers, shape" },
        /* the scheduler takes the container in 16 s: half of that time is for saving */
        { "worker*3/live", "go", "shrink:2",
          "shape, sync, stop_attempt worker:2 save 8000 grace 2000, peers, shape" },
        { "worker*2/restart", "go", "resize:worker=1",
          "shape, sync, stop_attempt worker:1 save 10000 grace 2000, sync, "
          "stop_attempt worker:0 save 10000 grace 2000, shape, renew worker:0, "
          "start worker:0, shape" },
        { "worker*1/live gives=1", "go", "resize:worker=2",
          "shape, sync, ask worker:1, launch worker:1, sync, start worker:1, peers, shape" },
        { "worker*1/restart gives=1", "go", "resize:worker=2",
          "shape, sync, ask worker:1, launch worker:1, sync, "
          "stop_attempt worker:0 save 10000 grace 2000, shape, renew worker:0, sync, "
          "start worker:0, start worker:1, shape" },
        /* given up after tony.resize.timeout: the scheduler hears that the job wants no more
           containers */
        { "worker*1/live nogrant=1", "go resize:worker=2", "+600000", "cancel worker:1, shape" },
        /* a demand that is kept while the gang forms */
        { "worker*3/restart", "go mute:worker:2 resize:worker=2", "shrink:1", "sync" },
    };
    (void)state;
    check_all(rows, ARRAY_LEN(rows));
}

/* On a cluster that grants gangs in parts, a later master must know of each attempt that runs. */
static void test_a_restart(void **state)
{
    static const struct row rows[] = {
        { "worker*2/on/scope-task gives=1", "go", "worker:1=1",
          "sync, renew worker:1, sync, start worker:1, peers" },
        { "worker*2/on/scope-task", "go", "worker:1=1", "renew worker:1, start worker:1, peers" },
        { "worker*2/on/scope-job", "go", "worker:1=1",
          "sync, renew worker:1, stop_attempt worker:0 save 0 grace 2000, "
          "renew worker:0, start worker:0, start worker:1" },
    };
    (void)state;
    check_all(rows, ARRAY_LEN(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_resize),
        cmocka_unit_test(test_a_restart),
    };
    return cmocka_run_group_tests_name("job_actions", tests, NULL, NULL);
}
