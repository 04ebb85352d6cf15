/* SPDX-License-Identifier: Apache-2.0 */
/* Restarts as tables: a job, a script (tests/fake/drive.h), and the result. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/base.h"
#include "drive.h"
#include "job/job_int.h"

/* Prints "worker:0=running/2.1": state or result, attempt.generation. */
static void describe(const struct drive *d, struct buf *out)
{
    static const char letters[] = "-SFXL";
    for (uint32_t i = 0; i < job_n_tasks(d->job); i++) {
        struct slot_view v;
        job_slot(d->job, i, &v);
        (void)buf_addf(out, "%s%s:%u=", i ? " " : "", v.role, v.index);
        if (v.result)
            (void)buf_addc(out, letters[v.result]);
        else
            (void)buf_adds(out, slot_state_name(v.state));
        (void)buf_addf(out, "/%u.%u", v.attempt, v.generation);
    }
}

struct row {
    const char *job, *script;
    enum job_state state;
    const char *tasks; /* NULL: not checked */
    const char *message;
};

static void check(const struct row *r)
{
    struct drive d;
    struct job_verdict v;
    AUTO(buf_done) struct buf tasks = { 0 };

    drive_init(&d, r->job);
    drive_run(&d, r->script);
    job_verdict(d.job, &v);
    describe(&d, &tasks);
    if (v.state != r->state || (r->tasks && !str_eq(buf_cstr(&tasks), r->tasks)) ||
        (r->message && !str_eq(v.message, r->message)))
        fail_msg("[%s] after [%s]:\n%s \"%s\"\n%s\nnot\n%s \"%s\"\n%s", r->job, r->script,
                 job_state_name(v.state), v.message, buf_cstr(&tasks), job_state_name(r->state),
                 r->message ? r->message : "", r->tasks ? r->tasks : "");
    /* a replay reaches the same state, and the job can go on from there */
    struct job *again = drive_replay(&d, d.journal.n);
    for (uint32_t i = 0; i < job_n_slots(d.job); i++) {
        assert_int_equal(again->slots[i].state, d.job->slots[i].state);
        assert_int_equal(again->slots[i].attempt, d.job->slots[i].attempt);
        assert_int_equal(again->slots[i].generation, d.job->slots[i].generation);
        assert_int_equal(again->slots[i].due_ms, d.job->slots[i].due_ms);
        assert_true(str_eq(again->slots[i].container, d.job->slots[i].container));
    }
    assert_int_equal(again->generation, d.job->generation);
    assert_int_equal(again->restarts.n, d.job->restarts.n);
    assert_int_equal(job_state(again), job_state(d.job));
    job_free(again);
    drive_done(&d);
}

static void check_all(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check(&rows[i]);
}

static size_t bytes_allocated(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* The times of restarts take memory only in tasks that restart. */
static void test_memory_of_a_window(void **state)
{
    enum { TASKS = 10000, EACH_MAX = 1000, RESTARTS = 40 };
    struct drive d;
    (void)state;
    size_t before = bytes_allocated();
    drive_init(&d, "worker*10000/on/max1000/win900000000");
    assert_in_range(bytes_allocated() - before, 0, (size_t)TASKS * EACH_MAX);
    drive_done(&d);

    drive_init(&d, "worker*2/on/max40/win900000000");
    drive_run(&d, "go");
    for (int i = 0; i < RESTARTS; i++)
        drive_run(&d, "worker:1=1 +90000");
    const struct tally *t = &d.job->slots[1].tally;
    assert_int_equal(t->n, RESTARTS);
    assert_int_equal(t->n_times, RESTARTS);
    assert_null(d.job->slots[0].tally.times);
    drive_run(&d, "worker:1=1"); /* all of them are within the window */
    assert_int_equal(t->n, RESTARTS);
    drive_done(&d);
}

static void test_which_failures_restart(void **state)
{
    static const struct row rows[] = {
        /* by default a task does not restart for a failure that it caused itself */
        { "chief*1 worker*2", "go worker:0=1", JOB_RUNNING,
          "chief:0=running/1.1 worker:0=F/1.1 worker:1=running/1.1", NULL },
        { "chief*1 worker*2 lost=4 launch=4 pre=4 disk=4", "go worker:0=oom worker:1=-9",
          JOB_RUNNING, "chief:0=running/1.1 worker:0=F/1.1 worker:1=F/1.1", NULL },
        { "chief*1 worker*1 lost=4", "go worker:0=timeout", JOB_RUNNING,
          "chief:0=running/1.1 worker:0=F/1.1", NULL },
        /* on-failure: restarts after each of these failures, and not after exit code 0 */
        { "worker*1/on", "go worker:0=1", JOB_RUNNING, "worker:0=running/2.1", NULL },
        { "worker*1/on", "go worker:0=-9", JOB_RUNNING, "worker:0=running/2.1", NULL },
        { "worker*1/on", "go worker:0=oom", JOB_RUNNING, "worker:0=running/2.1", NULL },
        { "worker*1/on", "go worker:0=timeout", JOB_RUNNING, "worker:0=running/2.1", NULL },
        { "worker*1/on", "go worker:0=launch", JOB_RUNNING, "worker:0=running/2.1", NULL },
        { "worker*1/on", "go worker:0=1 worker:0=0", JOB_SUCCEEDED, "worker:0=S/2.1",
          "the task succeeded" },
        { "worker*1/never lost=4 pre=4", "go worker:0!137", JOB_FAILED, "worker:0=F/1.1", NULL },
        { "worker*1/never lost=4 pre=4", "go worker:0!lost", JOB_FAILED, "worker:0=L/1.1", NULL },
        { "worker*1/always/max1 ps*1/untracked", "go worker:0=0", JOB_RUNNING,
          "worker:0=running/2.1 ps:0=running/1.1", NULL },
        { "worker*1/always/max1 ps*1/untracked", "go worker:0=0 worker:0=0", JOB_SUCCEEDED,
          "worker:0=S/2.1 ps:0=X/1.1", NULL },
        /* limits */
        { "worker*1/on/max2", "go worker:0=1 worker:0=1 +2000", JOB_RUNNING, "worker:0=running/3.1",
          NULL },
        { "worker*1/on/max2", "go worker:0=1 worker:0=1 +2000 worker:0=7", JOB_FAILED,
          "worker:0=F/3.1", "task 'worker:0' failed with exit code 7" },
        { "worker*1/on/max0", "go worker:0=1", JOB_FAILED, "worker:0=F/1.1", NULL },
        { "worker*1/on/max-1", "go worker:0=1 worker:0=1 +5000 worker:0=1 +9000 worker:0=1 +9000",
          JOB_RUNNING, "worker:0=running/5.1", NULL },
        { "worker*1/on/max1/win60000", "go worker:0=1 +61000 worker:0=1 +5000", JOB_RUNNING,
          "worker:0=running/3.1", NULL },
        { "worker*1/on/max1/win60000", "go worker:0=1 +31000 worker:0=1 +5000", JOB_FAILED,
          "worker:0=F/2.1", NULL },
        { "worker*2/on/max1 chief*1", "go worker:0=1 worker:1=1", JOB_RUNNING,
          "worker:0=running/2.1 worker:1=running/2.1 chief:0=running/1.1", NULL },
        /* codes */
        { "worker*1/retry3-5/retry9", "go worker:0=4", JOB_RUNNING, "worker:0=running/2.1", NULL },
        { "worker*1/retry3-5/retry9", "go worker:0=9", JOB_RUNNING, "worker:0=running/2.1", NULL },
        { "worker*1/retry3-5", "go worker:0=6", JOB_FAILED, "worker:0=F/1.1", NULL },
        { "worker*1/on/noretry2", "go worker:0=2", JOB_FAILED, "worker:0=F/1.1", NULL },
        { "worker*1/on/noretry2", "go worker:0=3", JOB_RUNNING, "worker:0=running/2.1", NULL },
        { "worker*1/on/noretry139", "go worker:0=-11", JOB_FAILED, "worker:0=F/1.1", NULL },
        { "worker*1/on/retry2/noretry2", "go worker:0=2", JOB_FAILED, "worker:0=F/1.1", NULL },
        { "worker*1/never/retry2", "go worker:0=2", JOB_FAILED, "worker:0=F/1.1", NULL },
        /* failures from outside have their own budgets, and never use up the user's */
        { "worker*1/on/max1 pre=2 lost=1",
          "go worker:0!preempt worker:0!preempt +2000 worker:0=1 +4000", JOB_RUNNING,
          "worker:0=running/4.1", NULL },
        { "worker*1 pre=2", "go worker:0!preempt worker:0!preempt +2000 worker:0!preempt",
          JOB_FAILED, "worker:0=L/3.1",
          "task 'worker:0' was preempted by the scheduler (preempted); "
          "tony.task.restarts.preempted "
          "allows no more than 2 restarts" },
        { "worker*1 pre=1 lost=1 disk=1 launch=1",
          "go worker:0!preempt worker:0!lost +2000 worker:0!disk +30000 worker:0!launch +8000",
          JOB_RUNNING, "worker:0=running/5.1", NULL },
        /* the budget is full again once the task has saved a newer checkpoint; a budget of 0 stays
         * 0 */
        { "worker*2/scope-job lost=1",
          "go +1 save:worker:0 worker:1!lost +1 save:worker:0 worker:1!lost +1 save:worker:0 "
          "worker:1!lost +1",
          JOB_RUNNING, "worker:0=running/4.4 worker:1=running/4.4", NULL },
        { "worker*2/scope-job lost=1", "go +1 save:worker:0 worker:1!lost +1 worker:1!lost +1",
          JOB_RUNNING, "worker:0=running/2.2 worker:1=L/2.2", NULL },
        { "worker*2/scope-job lost=0", "go +1 save:worker:0 worker:1!lost +1", JOB_RUNNING,
          "worker:0=running/1.1 worker:1=L/1.1", NULL },
        { "worker*1 lost=1", "go worker:0!unknown", JOB_RUNNING, "worker:0=running/2.1", NULL },
        { "worker*1 lost=1", "go worker:0!unknown worker:0!lost", JOB_FAILED, "worker:0=L/2.1",
          NULL },
        { "worker*1 lost=1", "go worker:0!killed", JOB_FAILED, "worker:0=X/1.1", NULL },
        { "single=1 lost=4", "go driver:0!lost", JOB_RUNNING, "driver:0=running/2.1", NULL },
        { "single=1", "go driver:0!lost", JOB_FAILED, "driver:0=L/1.1", NULL },
        { "single=1 lost=4", "go driver:0=1", JOB_FAILED, "driver:0=F/1.1", NULL },
        /* the container ended before the task ran */
        { "worker*2 launch=1", "mute:worker:1 go grant:worker:1 worker:1!1", JOB_WAITING,
          "worker:0=registered/0.0 worker:1=waiting/0.0", NULL },
        { "worker*2 launch=1",
          "mute:worker:1 go grant:worker:1 worker:1!1 heal:worker:1 grant:worker:1 +1", JOB_RUNNING,
          "worker:0=running/1.1 worker:1=running/1.1", NULL },
        { "worker*2", "mute:worker:1 go grant:worker:1 worker:1!1", JOB_FAILED,
          "worker:0=X/0.0 worker:1=F/0.0", NULL },
        { "worker*1 launch=1 reg=5000", "mute:worker:0 go grant:worker:0 +5000", JOB_WAITING,
          "worker:0=replacing/0.0", NULL },
        /* On a node that was given up, the task may still run. Its executor's report shows the end,
         * or its lease, or that it closed the connection and did not reconnect. */
        { "worker*1 lost=1 lease=100000 nodes=2", "go worker:0!lost +1000", JOB_RUNNING,
          "worker:0=replacing/1.1", NULL },
        { "worker*1 lost=1 lease=100000 nodes=2", "go worker:0!lost +1000 worker:0=killed +1000",
          JOB_RUNNING, "worker:0=running/2.1", NULL },
        { "worker*1 lost=1 lease=100000 nodes=2", "go worker:0!lost +100000", JOB_RUNNING,
          "worker:0=replacing/1.1", NULL },
        { "worker*1 lost=1 lease=100000 nodes=2", "go worker:0!lost +115000", JOB_RUNNING,
          "worker:0=running/2.1", NULL },
        { "worker*1 lost=1 lease=100000 nodes=2", "go gone:worker:0 worker:0!lost +4000",
          JOB_RUNNING, "worker:0=replacing/1.1", NULL },
        { "worker*1 lost=1 lease=100000 nodes=2", "go gone:worker:0 worker:0!lost +6000",
          JOB_RUNNING, "worker:0=running/2.1", NULL },
        { "worker*1 lost=1 lease=100000 nodes=2", "go worker:0!lost stop +100", JOB_KILLED, NULL,
          NULL },
        { "worker*2/on/scope-job lost=1 lease=100000 nodes=2",
          "go mute:worker:1 worker:0=1 heal:worker:1 worker:1!lost +1000", JOB_RUNNING,
          "worker:0=registered/1.1 worker:1=replacing/1.1", NULL },
        { "worker*1 lost=0 lease=100000 nodes=2", "go worker:0!lost", JOB_FAILED, NULL, NULL },
        /* silence: the task is replaced once the scheduler reports its end, or its lease is over */
        { "worker*1 lost=1 lease=100000", "go mute:worker:0 +60000", JOB_RUNNING,
          "worker:0=replacing/1.1", NULL },
        { "worker*1 lost=1 lease=100000",
          "go mute:worker:0 +60000 worker:0!killed heal:worker:0 grant:worker:0 +1", JOB_RUNNING,
          "worker:0=running/2.1", NULL },
        { "worker*1 lost=1 lease=100000", "go mute:worker:0 +150000", JOB_RUNNING,
          "worker:0=waiting/1.1", NULL },
        /* a sidecar may have a policy, too */
        { "worker*1 tb*1/sidecar/on", "go tb:0=1", JOB_RUNNING,
          "worker:0=running/1.1 tb:0=running/2.1", NULL },
        { "worker*1 tb*1/sidecar lost=1", "go tb:0!lost", JOB_RUNNING,
          "worker:0=running/1.1 tb:0=running/2.1", NULL },
        /* a stop by the user is no failure */
        { "worker*1/always", "go stop", JOB_KILLED, "worker:0=X/1.1", NULL },
        { "worker*1/on/delay5000", "go worker:0=1 stop", JOB_KILLED, "worker:0=X/1.1", NULL },
    };
    (void)state;
    check_all(rows, ARRAY_LEN(rows));
}

static void test_which_tasks_restart(void **state)
{
    static const struct row rows[] = {
        { "worker*3/on/scope-task", "go worker:1=1", JOB_RUNNING,
          "worker:0=running/1.1 worker:1=running/2.1 worker:2=running/1.1", NULL },
        { "worker*2/on/scope-role ps*1/untracked", "go worker:1=1", JOB_RUNNING,
          "worker:0=running/2.1 worker:1=running/2.1 ps:0=running/1.1", NULL },
        { "worker*2/on/scope-job ps*1/untracked tb*1/sidecar", "go worker:1=1", JOB_RUNNING,
          "worker:0=running/2.2 worker:1=running/2.2 ps:0=running/2.2 tb:0=running/1.1", NULL },
        /* a task that had ended with 0 runs again with the others */
        { "worker*2/on/scope-job", "go worker:0=0 worker:1=1", JOB_RUNNING,
          "worker:0=running/2.2 worker:1=running/2.2", NULL },
        { "worker*2/on/scope-job", "go worker:0=0 worker:1=1 worker:0=0 worker:1=0", JOB_SUCCEEDED,
          "worker:0=S/2.2 worker:1=S/2.2", "all 2 tasks succeeded" },
        /* a stage that is over stays over; the next one has not begun */
        { "prep*1 train*2/on/scope-job<prep", "go prep:0=0 train:0=1", JOB_RUNNING,
          "prep:0=S/1.1 train:0=running/2.2 train:1=running/2.2", NULL },
        { "prep*2/on/scope-job train*1<prep", "go prep:1=1", JOB_RUNNING,
          "prep:0=running/2.2 prep:1=running/2.2 train:0=held/0.0", NULL },
        /* a tolerated failure before the restart is not the first cause after it */
        { "chief*1/on/scope-job/max1 worker*1", "go worker:0=3 chief:0=1 chief:0=4", JOB_FAILED,
          "chief:0=F/2.2 worker:0=X/2.2", "task 'chief:0' failed with exit code 4" },
        /* no task of the new generation begins while one of the old generation runs */
        { "worker*3/on/scope-job", "go mute:worker:2 worker:0=1 +1000", JOB_RUNNING,
          "worker:0=registered/1.1 worker:1=registered/1.1 worker:2=halting/1.1", NULL },
        { "worker*3/on/scope-job",
          "go mute:worker:2 worker:0=1 +1000 heal:worker:2 worker:2=killed +1", JOB_RUNNING,
          "worker:0=running/2.2 worker:1=running/2.2 worker:2=running/2.2", NULL },
        { "worker*2/on/scope-job lease=100000", "go mute:worker:1 worker:0=1 +30000", JOB_RUNNING,
          "worker:0=registered/1.1 worker:1=replacing/1.1", NULL },
        { "worker*2/on/scope-job gang=0", "go mute:worker:1 worker:0=1 +1000", JOB_RUNNING,
          "worker:0=registered/1.1 worker:1=halting/1.1", NULL },
        /* if a container ends between two attempts, it reports the end of the last attempt again */
        { "worker*2/on/scope-role lost=1",
          "go mute:worker:1 worker:0=1 worker:1=killed heal:worker:1 worker:1!killed +1000",
          JOB_RUNNING, "worker:0=running/2.1 worker:1=running/2.1", NULL },
        { "worker*2/on/max1 lost=1", "go mute:worker:1 worker:1=1 heal:worker:1 worker:1!1 +2000",
          JOB_RUNNING, "worker:0=running/1.1 worker:1=running/2.1", NULL },
        { "worker*2/on/max1 lost=1",
          "go mute:worker:1 worker:1=oom heal:worker:1 worker:1!oom +2000", JOB_RUNNING,
          "worker:0=running/1.1 worker:1=running/2.1", NULL },
        { "worker*2/on/scope-role", "go mute:worker:1 worker:0=1 +1000", JOB_RUNNING,
          "worker:0=registered/1.1 worker:1=halting/1.1", NULL },
        /* ends of tasks that were told to end use up no budget */
        { "worker*3/on/scope-job/max1", "go worker:0=1 +1000 worker:0=1", JOB_FAILED, NULL,
          "task 'worker:0' failed with exit code 1" },
        { "worker*3 lost=1", "go worker:0!lost worker:1!lost +5000", JOB_RUNNING,
          "worker:0=running/2.1 worker:1=running/2.1 worker:2=running/1.1", NULL },
        { "worker*3/scope-job lost=1",
          "go mute:worker:1 worker:0!lost worker:1!lost heal:worker:1 grant:worker:1 +5000",
          JOB_RUNNING, "worker:0=running/2.2 worker:1=running/2.2 worker:2=running/2.2", NULL },
        /* while a gang forms, no other task restarts for a lost one */
        { "worker*2/scope-job launch=1",
          "mute:worker:1 go grant:worker:1 worker:1!launch heal:worker:1 grant:worker:1 +1",
          JOB_RUNNING, "worker:0=running/1.1 worker:1=running/1.1", NULL },
    };
    (void)state;
    check_all(rows, ARRAY_LEN(rows));
}

static void test_when(void **state)
{
    static const struct row rows[] = {
        { "worker*1/on", "go worker:0=1", JOB_RUNNING, "worker:0=running/2.1", NULL },
        { "worker*1/on", "go worker:0=1 worker:0=1 +999", JOB_RUNNING, "worker:0=registered/2.1",
          NULL },
        { "worker*1/on", "go worker:0=1 worker:0=1 +1250", JOB_RUNNING, "worker:0=running/3.1",
          NULL },
        { "worker*1/on/delay4000", "go worker:0=1 +3999", JOB_RUNNING, "worker:0=registered/1.1",
          NULL },
        { "worker*1/on/delay4000", "go worker:0=1 +5000", JOB_RUNNING, "worker:0=running/2.1",
          NULL },
        { "worker*1/on/delay4000", "go worker:0=1 +5000 worker:0=1 +7999", JOB_RUNNING,
          "worker:0=registered/2.1", NULL },
        { "worker*1/on/delay4000", "go worker:0=1 +5000 worker:0=1 +10000", JOB_RUNNING,
          "worker:0=running/3.1", NULL },
        /* a task that ran for a long time starts with a full budget again */
        { "worker*1/on", "go worker:0=1 +600000 worker:0=1", JOB_RUNNING, "worker:0=running/3.1",
          NULL },
        /* so does a task that saved a newer checkpoint than any before */
        { "worker*2/on/scope-job/max9",
          "go +100 save:worker:0 worker:1=1 +100 save:worker:0 worker:1=1 +100 save:worker:0 "
          "worker:1=1",
          JOB_RUNNING, "worker:0=running/4.4 worker:1=running/4.4", NULL },
        { "worker*2/on/scope-job/max9", "go +100 save:worker:0 worker:1=1 +100 worker:1=1",
          JOB_RUNNING, "worker:0=registered/2.2 worker:1=registered/2.2", NULL },
        { "worker*2/on/scope-job/max9/delay4000",
          "go +1 save:worker:0 worker:1=1 +5000 save:worker:0 worker:1=1 +5000", JOB_RUNNING,
          "worker:0=running/3.3 worker:1=running/3.3", NULL },
        /* the gang pauses once for all its tasks */
        { "worker*2/on/scope-job/delay4000", "go worker:0=1 +3999", JOB_RUNNING,
          "worker:0=registered/1.1 worker:1=registered/1.1", NULL },
        { "worker*2/on/scope-job/delay4000", "go worker:0=1 +5000", JOB_RUNNING,
          "worker:0=running/2.2 worker:1=running/2.2", NULL },
        /* tasks without a gang that restart together also pause once */
        { "worker*2/on/scope-job/delay4000 gang=0", "go worker:0=1 +3999", JOB_RUNNING,
          "worker:0=registered/1.1 worker:1=registered/1.1", NULL },
        { "worker*2/on/scope-job/delay4000 gang=0", "go worker:0=1 +5000", JOB_RUNNING,
          "worker:0=running/2.2 worker:1=running/2.2", NULL },
        /* a role that forms again joins a gang that does */
        { "a*2/on/scope-role b*1/on/scope-job", "go mute:a:1 a:0=1 b:0=1 +10000", JOB_RUNNING,
          "a:0=registered/1.1 a:1=replacing/1.1 b:0=registered/1.1", NULL },
        /* a new master continues the pause */
        { "worker*2/on/delay4000", "go worker:0=1 +1000 master +4000", JOB_RUNNING,
          "worker:0=running/2.1 worker:1=running/1.1", NULL },
        { "worker*2/on/scope-job", "go mute:worker:1 worker:0=1 master heal:worker:1 master +10",
          JOB_RUNNING, "worker:0=running/2.2 worker:1=running/2.2", NULL },
        { "worker*2 lost=1", "go lose:worker:0 master +10", JOB_RUNNING,
          "worker:0=running/2.1 worker:1=running/1.1", NULL },
    };
    (void)state;
    check_all(rows, ARRAY_LEN(rows));
}

/* tests of tony.am.retry-count */
static void test_restarts_of_the_whole_job(void **state)
{
    static const struct row rows[] = {
        { "worker*2 retries=1", "go worker:0=1", JOB_RUNNING,
          "worker:0=running/2.2 worker:1=running/2.2", NULL },
        { "worker*2 retries=1", "go worker:0=1 worker:0=0 worker:1=0", JOB_SUCCEEDED,
          "worker:0=S/2.2 worker:1=S/2.2", "all 2 tasks succeeded" },
        { "worker*2 retries=1", "go worker:0=1 worker:0=5", JOB_FAILED,
          "worker:0=F/2.2 worker:1=X/2.2", "task 'worker:0' failed with exit code 5" },
        { "trainer*2 retries=2", "go trainer:0=1 trainer:1=1 +1", JOB_RUNNING,
          "trainer:0=running/2.2 trainer:1=running/2.2", NULL },
        { "trainer*1 retries=2", "go trainer:0=1 trainer:0=1 +999", JOB_RUNNING,
          "trainer:0=registered/2.2", NULL },
        { "trainer*1 retries=2", "go trainer:0=1 trainer:0=1 +2000", JOB_RUNNING,
          "trainer:0=running/3.3", NULL },
        /* begins again with the first stage */
        { "prep*1 train*1/stop<prep tb*1/sidecar retries=1", "go prep:0=0 train:0=1", JOB_RUNNING,
          "prep:0=running/2.2 train:0=held/1.1 tb:0=running/2.2", NULL },
        /* the first stage waits for the end of an attempt of a later stage */
        { "prep*1 train*2/stop<prep retries=1", "go prep:0=0 mute:train:1 train:0=1 +1000",
          JOB_RUNNING, "prep:0=registered/1.1 train:0=held/1.1 train:1=replacing/1.1", NULL },
        { "prep*1 train*1/stop<prep retries=1", "go prep:0=0 train:0=1 prep:0=0 train:0=0",
          JOB_SUCCEEDED, "prep:0=S/2.2 train:0=S/2.2", NULL },
        { "a*1/stop b*1 c*1<a retries=1", "go a:0=0 b:0=0 c:0=1 a:0=0 b:0=0 c:0=0", JOB_SUCCEEDED,
          "a:0=S/1.1 b:0=S/1.1 c:0=F/1.1", NULL },
        /* requests of a later stage are withdrawn */
        { "prep*1 train*2/stop<prep retries=1 launch=1",
          "mute:train:1 go prep:0=0 grant:train:1 train:1!launch train:0!1", JOB_RUNNING,
          "prep:0=running/2.2 train:0=held/0.0 train:1=held/0.0", NULL },
        /* only after the restarts of tasks are used up */
        { "worker*1/on/max1 retries=1", "go worker:0=1 worker:0=1 +1", JOB_RUNNING,
          "worker:0=running/3.2", NULL },
        { "worker*2 alloc=1000 retries=1",
          "mute:worker:1 go +1000 +100 grant:worker:1 reg:worker:1 +2000", JOB_RUNNING,
          "worker:0=running/1.2 worker:1=running/1.2", NULL },
        /* failures that a restart cannot repair */
        { "worker*2 retries=3", "deny:worker:1 go", JOB_FAILED, NULL, NULL },
        { "worker*2 retries=3", "go stop", JOB_KILLED, NULL, NULL },
        { "worker*2 retries=3", "go abort", JOB_FAILED, NULL, NULL },
        { "worker*2 retries=3 app=1000", "go +1000", JOB_KILLED, NULL, NULL },
        { "single=1 retries=3", "go driver:0=1", JOB_RUNNING, "driver:0=running/2.2", NULL },
        { "single=1 retries=1", "go driver:0=1 driver:0=0", JOB_SUCCEEDED, "driver:0=S/2.2", NULL },
        { "single=1 retries=1", "go driver:0=1 driver:0=7", JOB_FAILED, "driver:0=F/2.2",
          "task 'driver:0' failed with exit code 7" },
    };
    (void)state;
    check_all(rows, ARRAY_LEN(rows));
}

static void test_spares(void **state)
{
    struct drive d;
    struct slot_view v;
    static const struct row rows[] = {
        /* the spare takes over at once, although no container replaces the lost one */
        { "worker*2/spares1 lost=1", "go mute:worker:1 worker:1!lost +1", JOB_RUNNING,
          "worker:0=running/1.1 worker:1=running/2.1", NULL },
        { "worker*2/spares1/scope-job lost=1", "go worker:1!lost +1", JOB_RUNNING,
          "worker:0=running/2.2 worker:1=running/2.2", NULL },
        /* each spare is used once */
        { "worker*2/spares1 lost=2", "go worker:1!lost mute:worker:0 worker:0!lost +1", JOB_RUNNING,
          "worker:0=waiting/1.1 worker:1=running/2.1", NULL },
        /* the job does not wait for a spare, and ends it */
        { "worker*1/spares2", "mute:worker:1 go worker:0=0", JOB_SUCCEEDED, "worker:0=S/1.1",
          "the task succeeded" },
        { "worker*1/spares1", "deny:worker:1 go worker:0=0", JOB_SUCCEEDED, "worker:0=S/1.1",
          NULL },
        { "worker*1/spares1", "go worker:1!1 worker:0=0", JOB_SUCCEEDED, "worker:0=S/1.1", NULL },
        { "worker*1/spares1 gang=0 lost=1", "go worker:0!lost +1", JOB_RUNNING,
          "worker:0=running/2.1", NULL },
        /* a spare serves only its own role */
        { "worker*1 ps*1/untracked/spares1 lost=1", "go mute:worker:0 worker:0!lost +1",
          JOB_RUNNING, "worker:0=waiting/1.1 ps:0=running/1.1", NULL },
        /* another master knows which slot got the spare's container */
        { "worker*2/spares1 lost=1", "go worker:1!lost +1 master +5000", JOB_RUNNING,
          "worker:0=running/1.1 worker:1=running/2.1", NULL },
        /* the executor of the spare has sent heartbeats, also if that of the task was silent */
        { "worker*2/spares1 lost=3 missed=3", "go +10 mute:worker:1 +6100 worker:1!137 +1",
          JOB_RUNNING, "worker:0=running/1.1 worker:1=running/2.1", NULL },
        { "worker*2/spares1 lost=2", "go worker:1!lost +1 worker:1!lost +2000", JOB_RUNNING,
          "worker:0=running/1.1 worker:1=running/3.1", NULL },
    };
    (void)state;
    check_all(rows, ARRAY_LEN(rows));

    drive_init(&d, "worker*2/spares1 ps*1/untracked lost=1");
    drive_run(&d, "go");
    assert_int_equal(job_n_tasks(d.job), 3);
    assert_int_equal(job_n_slots(d.job), 4);
    job_slot(d.job, 3, &v);
    assert_true(v.spare);
    assert_int_equal(v.state, SLOT_REGISTERED);
    assert_string_equal(v.role, "worker");
    assert_int_equal(v.index, 2);
    drive_run(&d, "worker:0!lost");
    job_slot(d.job, 0, &v);
    assert_true(v.moved);
    assert_int_equal(v.elsewhere, 1); /* its first attempt ran elsewhere */
    assert_int_equal(v.tb_port, 6003);
    assert_true(v.connected);
    assert_int_equal(job_slot_now(d.job, 3), 0);
    assert_int_equal(d.n_acts[ACT_TAKE], 1);
    assert_int_equal(d.n_peers, 1);
    drive_done(&d);

    /* spares are requested only after all tasks have their containers */
    drive_init(&d, "worker*2/spares1 gang=0");
    drive_run(&d, "mute:worker:1 go grant:worker:1");
    job_slot(d.job, 0, &v);
    assert_int_equal(v.state, SLOT_RUNNING);
    job_slot(d.job, 1, &v);
    assert_int_equal(v.state, SLOT_PLACED);
    job_slot(d.job, 2, &v);
    assert_int_equal(v.state, SLOT_HELD);
    drive_done(&d);
}

static bool is_on(const struct drive *d, uint32_t slot, const char *node)
{
    struct slot_view v;
    job_slot(d->job, slot, &v);
    return v.node && str_eq(v.node, node);
}

static void test_nodes(void **state)
{
    struct drive d;
    struct job_verdict v;

    (void)state;
    /* Ten tasks on ten nodes, n1 .. n9 n0; worker:0 is on n1. */
    drive_init(&d, "chief*1 worker*9/on/max-1 nodes=10 nodefail=3 nodewin=60000");
    drive_run(&d, "go worker:0=1 worker:0=1 +5000");
    assert_string_equal(d.avoided, "");
    assert_true(is_on(&d, 1, "n2"));
    drive_run(&d, "worker:0=1 +10000");
    assert_string_equal(d.avoided, "+n2");
    assert_false(is_on(&d, 1, "n2")); /* it restarts on another node */
    assert_int_equal(d.n_acts[ACT_STOP_CONTAINER], 1);
    drive_run(&d, "worker:1=1 worker:1=1 +5000 worker:1=1 worker:2=1 worker:2=1 +5000 worker:2=1");
    assert_string_equal(d.avoided, "+n2 +n3"); /* at most a fifth of the nodes is avoided */
    assert_true(is_on(&d, 3, "n4"));
    drive_run(&d, "master");
    assert_string_equal(d.avoided, "+n2 +n3 +n2 +n3"); /* repeated for the new master's scheduler */
    drive_run(&d, "+70000");
    assert_string_equal(d.avoided, "+n2 +n3 +n2 +n3 -n2 -n3");
    drive_done(&d);

    /* failures that lie too far apart do not count against a node */
    drive_init(&d, "chief*1 worker*9/on/max-1 nodes=10 nodefail=3 nodewin=10000");
    drive_run(&d, "go worker:0=1 +20000 worker:0=1 +20000 worker:0=1 +20000");
    assert_string_equal(d.avoided, "");
    drive_done(&d);

    /* a task that fails at once on three nodes has a fault of its own */
    drive_init(&d, "chief*1 worker*1 nodes=10 launch=100");
    drive_run(&d, "go worker:0=launch +5000 worker:0=launch +5000");
    assert_int_equal(job_state(d.job), JOB_RUNNING);
    assert_int_equal(d.job->slots[1].result, RES_NONE);
    drive_run(&d, "worker:0=launch");
    assert_int_equal(d.job->slots[1].result, RES_FAILED);
    drive_done(&d);

    /* the message says so, and nothing is said of a budget that is not used up */
    drive_init(&d, "worker*1 nodes=10 launch=100");
    drive_run(&d, "go worker:0=launch +5000 worker:0=launch +5000 worker:0=launch");
    job_verdict(d.job, &v);
    assert_int_equal(v.state, JOB_FAILED);
    assert_non_null(strstr(v.message, "; it has ended so within 10 s on 3 nodes, so tony tries no "
                                      "other"));
    assert_null(strstr(v.message, "tony.task.restarts"));
    drive_done(&d);

    /* unless it worked on a node in between */
    drive_init(&d, "chief*1 worker*1 nodes=10 launch=100 lost=100");
    drive_run(&d, "go worker:0=launch +5000 worker:0=launch +30000 worker:0=lost +4000");
    drive_run(&d, "worker:0=launch +6000");
    assert_int_equal(d.job->slots[1].state, SLOT_RUNNING);
    drive_run(&d, "worker:0=launch"); /* the third node, but only the second since it worked */
    assert_int_equal(d.job->slots[1].result, RES_NONE);
    drive_done(&d);

    /* a preempted task moves, also if its executor reported first */
    drive_init(&d, "worker*2/scope-task pre=1");
    drive_run(&d, "go worker:1=preempt +1");
    assert_int_equal(d.n_acts[ACT_STOP_CONTAINER], 1);
    drive_done(&d);
}

/* A checkpoint that existed before is no progress. */
static void test_the_same_checkpoint_again(void **state)
{
    struct drive d;

    (void)state;
    for (uint64_t further = 0; further < 2; further++) {
        drive_init(&d, "worker*2/on/scope-job/max9");
        drive_run(&d, "go +100 save:worker:0 worker:1=1 +100");
        assert_int_equal(
            drive_feed(&d, &(struct job_event){ .type = EV_CHECKPOINT,
                                                .checkpoint = { .generation = 2,
                                                                .attempt = 2,
                                                                .step = d.step + further,
                                                                .path = "/x" } }),
            0);
        drive_run(&d, "worker:1=1");
        assert_int_equal(d.job->slots[1].state, further ? SLOT_RUNNING : SLOT_REGISTERED);
        drive_done(&d);
    }
}

/* The announcement that a container will be taken acts like the loss, before it. No other budget is
 * used. */
static void test_a_notice_of_preemption(void **state)
{
    static const struct row rows[] = {
        { "worker*2/scope-task pre=1", "go take:worker:1 +1", JOB_RUNNING,
          "worker:0=running/1.1 worker:1=running/2.1", NULL },
        { "worker*2/scope-job ps*1/untracked tb*1/sidecar pre=1", "go take:worker:1 +1",
          JOB_RUNNING,
          "worker:0=running/2.2 worker:1=running/2.2 ps:0=running/2.2 tb:0=running/1.1", NULL },
        { "worker*2/scope-role ps*1/untracked pre=1", "go take:worker:1 +1", JOB_RUNNING,
          "worker:0=running/2.1 worker:1=running/2.1 ps:0=running/1.1", NULL },
        /* several announcements at once are one restart; the loss itself costs nothing more */
        { "worker*3/scope-job pre=1",
          "go mute:worker:0 mute:worker:1 take:worker:0 take:worker:1 heal:worker:0 heal:worker:1 "
          "worker:0!preempt worker:1!preempt +1",
          JOB_RUNNING, "worker:0=running/2.2 worker:1=running/2.2 worker:2=running/2.2", NULL },
        /* a task that was being halted anyway moves to another node */
        { "worker*2/on/scope-job pre=0",
          "go mute:worker:1 worker:0=1 take:worker:1 heal:worker:1 worker:1=killed +1", JOB_RUNNING,
          "worker:0=running/2.2 worker:1=running/2.2", NULL },
        /* a task that saves gets time; no task of the next generation begins before the save
         * ends */
        { "worker*2/scope-job pre=1", "go mute:worker:0 take:worker:1 +16000", JOB_RUNNING,
          "worker:0=halting/1.1 worker:1=registered/1.1", NULL },
        { "worker*2/scope-job pre=1 lease=100000", "go mute:worker:0 take:worker:1 +20000",
          JOB_RUNNING, "worker:0=replacing/1.1 worker:1=registered/1.1", NULL },
        /* a new master keeps waiting */
        { "worker*2/scope-job pre=1",
          "go mute:worker:0 take:worker:1 +1000 master heal:worker:0 master +1", JOB_RUNNING,
          "worker:0=running/2.2 worker:1=running/2.2", NULL },
        /* without restarts only this task is stopped, and counts as preempted */
        { "worker*2/scope-job pre=0", "go take:worker:1 +1", JOB_RUNNING,
          "worker:0=running/1.1 worker:1=L/1.1", NULL },
        { "worker*2/never/scope-job pre=1", "go take:worker:1 worker:0=0", JOB_FAILED,
          "worker:0=S/1.1 worker:1=L/1.1",
          "task 'worker:1' was preempted by the scheduler "
          "(preempted)" },
        /* a task that does not run has nothing to save */
        { "worker*2/on/delay5000 pre=1", "go worker:1=1 take:worker:1 +16000", JOB_RUNNING,
          "worker:0=running/1.1 worker:1=running/2.1", NULL },
        { "worker*2 pre=1", "go mute:worker:0 mute:worker:1 stop take:worker:1", JOB_STOPPING,
          "worker:0=stopping/1.1 worker:1=stopping/1.1", NULL },
        /* fails at once on three nodes: a task that was preempted there does not count */
        { "worker*2/scope-task pre=9 nodes=5",
          "go take:worker:1 +5000 take:worker:1 +9000 take:worker:1 +20000 take:worker:1 +40000",
          JOB_RUNNING, "worker:0=running/1.1 worker:1=running/5.1", NULL },
    };

    (void)state;
    check_all(rows, ARRAY_LEN(rows));
}

/* No attempt begins in a container that will be taken: its slot asks for another one. If the budget
 * does not allow that, the container is used until it is taken. */
static void test_a_notice_before_the_start(void **state)
{
    static const char *const jobs[] = { "worker*2 gang=0 pre=0", "worker*2 gang=0 pre=1" };

    (void)state;
    for (unsigned again = 0; again < 2; again++) {
        struct drive d;
        drive_init(&d, jobs[again]);
        drive_run(&d, "mute:worker:1 go grant:worker:1");
        assert_int_equal(d.job->slots[1].state, SLOT_PLACED);
        AUTO(free_p) char *first = str_dup(d.job->slots[1].container);
        drive_run(&d, "take:worker:1");
        assert_int_equal(d.rc, 0);
        assert_int_equal(d.n_acts[ACT_STOP_CONTAINER], again);
        if (again)
            drive_run(&d, "heal:worker:1 worker:1!137 +1");
        assert_int_equal(d.job->slots[1].state, again ? SLOT_RUNNING : SLOT_PLACED);
        assert_int_equal(str_eq(d.job->slots[1].container, first), !again);
        assert_int_equal(d.job->slots[1].attempt, again);
        drive_done(&d);
    }
}

/* Counts the stops that the core asked for with this much time to save. */
static unsigned n_stops(const struct job_actions *acts, uint32_t save_ms)
{
    unsigned n = 0;

    for (size_t i = 0; i < acts->n; i++)
        n += acts->v[i].type == ACT_STOP_ATTEMPT && acts->v[i].stop_attempt.save_ms == save_ms;
    return n;
}

/* All tasks that are halted for it get a checkpoint stop, within the time that is left. */
static void test_time_to_save(void **state)
{
    struct drive d;
    struct job_actions acts = { 0 };
    struct job_event ev = { .type = EV_PREEMPTING,
                            .preempting = { .slot = 1, .within_ms = 16000 } };
    static const struct {
        const char *job;
        uint32_t grace_ms, save_ms;
        unsigned n;
    } rows[] = {
        { "worker*3/scope-job tb*1/sidecar pre=1", 60000, 8000, 3 },
        { "worker*3/scope-job tb*1/sidecar pre=1", 2000, 2000, 3 },
        { "worker*3/scope-role ps*1/untracked pre=1", 60000, 8000, 3 },
        { "worker*3/scope-task pre=1", 60000, 8000, 1 },
        { "worker*3/scope-job pre=0", 60000, 8000, 1 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        drive_init(&d, rows[i].job);
        d.spec->checkpoint_grace_ms = rows[i].grace_ms;
        drive_run(&d, "go");
        acts.n = 0;
        ev.preempting.container = d.slots[1].container;
        assert_int_equal(job_feed(d.job, &ev, d.now, &acts, NULL), 0);
        assert_int_equal(n_stops(&acts, rows[i].save_ms), rows[i].n);
        assert_int_equal(n_stops(&acts, 0), 0);
        for (size_t k = 0; k < acts.n; k++)
            assert_true(acts.v[k].type != ACT_STOP_ATTEMPT ||
                        acts.v[k].stop_attempt.grace_ms == 4000);
        drive_done(&d);
    }
    /* a task that reconnects to a new master is told again, with the time that is left */
    drive_init(&d, "worker*2/scope-job pre=1");
    d.spec->checkpoint_grace_ms = 60000;
    drive_run(&d, "go mute:worker:0 mute:worker:1 take:worker:1 +6000");
    acts.n = 0;
    struct job_event back = { .type = EV_EXECUTOR_BACK,
                              .executor_back = { .container = d.slots[0].container,
                                                 .generation = 1,
                                                 .attempt = 1,
                                                 .running = true } };
    assert_int_equal(job_feed(d.job, &back, d.now, &acts, NULL), 0);
    assert_int_equal(n_stops(&acts, 5000), 1);
    /* a plain stop of the job does not wait */
    drive_run(&d, "stop");
    assert_true(job_deadline(d.job) <= d.now + 5000 + JOB_STOP_MARGIN_MS);
    drive_done(&d);
    vec_done(&acts);
}

/* New ports for a new generation; the same ports for a task that rejoins its peers. */
static void test_ports(void **state)
{
    struct drive d;
    struct job_actions acts = { 0 };
    struct job_event end = {
        .type = EV_ATTEMPT_ENDED,
        .attempt_ended = { .generation = 1, .attempt = 1, .reason = END_EXITED, .exit_code = 1 }
    };
    static const bool whole[] = { false, true };

    (void)state;
    for (size_t w = 0; w < 2; w++) {
        drive_init(&d, whole[w] ? "worker*2/on/scope-job" : "worker*2/on/scope-task");
        drive_run(&d, "go");
        acts.n = 0;
        assert_int_equal(job_feed(d.job, &end, d.now, &acts, NULL), 0);
        bool renewed = false, acked = false, synced = false;
        for (size_t i = 0; i < acts.n; i++) {
            const struct job_action *a = &acts.v[i];
            if (a->type == ACT_SYNC)
                synced = true;
            if (a->type == ACT_RENEW) {
                renewed = true;
                assert_int_equal(a->renew.fresh, whole[w]);
                assert_int_equal(a->renew.generation, whole[w] ? 2 : 1);
                assert_int_equal(synced, whole[w]);
            }
            if (a->type == ACT_ACK) {
                acked = true;
                assert_false(a->ack.finish);
            }
        }
        assert_true(renewed && acked);
        /* its Ready message for the older generation is refused */
        struct job_event ready = {
            .type = EV_REGISTERED,
            .registered = { .container = d.slots[0].container, .address = "h:1", .generation = 1 }
        };
        assert_int_equal(job_feed(d.job, &ready, d.now, &acts, NULL), whole[w]);
        drive_done(&d);
    }
    vec_done(&acts);
}

/* While a slot pauses before its start, another one is replaced: now the slot has to wait for the
 * end of that one's attempt, and not for the pause. No timer is left. A job that was restored from
 * a snapshot has none either, and would refuse its event. */
static void test_a_pause_ends_when_another_slot_is_replaced(void **state)
{
    struct drive d;

    (void)state;
    drive_init(&d, "worker*2/on/delay4000/scope-job gang=0 pre=2");
    drive_run(&d, "go worker:0=1");
    assert_true(d.job->restarts.due_ms <= d.now + 5000);
    drive_run(&d, "mute:worker:1 take:worker:1");
    assert_int_equal(d.job->slots[0].state, SLOT_REGISTERED);
    assert_int_equal(d.job->slots[1].state, SLOT_REPLACING);
    assert_int_equal(d.job->restarts.due_ms, INT64_MAX);
    drive_run(&d, "heal:worker:1 worker:1!preempt +10000");
    assert_int_equal(d.job->slots[0].state, SLOT_RUNNING);
    assert_int_equal(d.job->slots[1].state, SLOT_RUNNING);
    drive_done(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pause_ends_when_another_slot_is_replaced),
        cmocka_unit_test(test_which_failures_restart),
        cmocka_unit_test(test_memory_of_a_window),
        cmocka_unit_test(test_which_tasks_restart),
        cmocka_unit_test(test_when),
        cmocka_unit_test(test_restarts_of_the_whole_job),
        cmocka_unit_test(test_spares),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_ports),
        cmocka_unit_test(test_a_notice_of_preemption),
        cmocka_unit_test(test_a_notice_before_the_start),
        cmocka_unit_test(test_time_to_save),
        cmocka_unit_test(test_the_same_checkpoint_again),
    };
    return cmocka_run_group_tests_name("job_restart", tests, NULL, NULL);
}
