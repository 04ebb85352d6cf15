/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decision 0008: while an attempt may still run in a container, its slot gets no other container.
 * Tables as in test_job_restart.c: a job, a script (tests/fake/drive.h), and the result. In these
 * tables the lease is 100 s, the grace 5 s, the margin 3 s.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/base.h"
#include "drive.h"
#include "job/job_int.h"

/* "worker:0=running/2.1": state, attempt.generation */
static void describe(const struct drive *d, struct buf *out)
{
    for (uint32_t i = 0; i < job_n_slots(d->job); i++) {
        struct slot_view v;
        job_slot(d->job, i, &v);
        (void)buf_addf(out, "%s%s:%u=%s/%u.%u", i ? " " : "", v.role, v.index,
                       slot_state_name(v.state), v.attempt, v.generation);
    }
}

static void check_states(const struct drive *d, const char *job, const char *script,
                         const char *want)
{
    AUTO(buf_done) struct buf slots = { 0 };

    describe(d, &slots);
    if (!str_eq(buf_cstr(&slots), want))
        fail_msg("[%s] after [%s]:\n%s\nnot\n%s", job, script, buf_cstr(&slots), want);
}

static void check_replay(const struct drive *d)
{
    struct job *again = drive_replay(d, d->journal.n);

    for (uint32_t i = 0; i < job_n_slots(d->job); i++) {
        assert_int_equal(again->slots[i].state, d->job->slots[i].state);
        assert_int_equal(again->slots[i].given_up, d->job->slots[i].given_up);
        assert_int_equal(again->slots[i].stop_us, d->job->slots[i].stop_us);
    }
    job_free(again);
}

struct row {
    const char *job, *script, *slots;
};

static void check_rows(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct drive d;
        drive_init(&d, rows[i].job);
        drive_run(&d, rows[i].script);
        check_states(&d, rows[i].job, rows[i].script, rows[i].slots);
        check_replay(&d);
        drive_done(&d);
    }
}

#define GANG "worker*2/on/scope-job lost=1 lease=100000 nodes=2"
#define GANG_WITHOUT_BUDGET "worker*2/on/scope-job lost=0 lease=100000 nodes=2"
#define ONE "worker*1 lost=1 lease=100000 nodes=2"

/* A new master does not see the container. The attempt may still run in it in each of these states,
 * not only in RUNNING. */
static void test_a_new_master_waits_in_every_state(void **state)
{
    static const struct row rows[] = {
        /* running */
        { ONE, "go mute:worker:0 lose:worker:0 master +107000", "worker:0=replacing/1.1" },
        { ONE, "go mute:worker:0 lose:worker:0 master +112000", "worker:0=waiting/1.1" },
        /* halting: the gang restarts, and the attempt was told to stop */
        { GANG, "go mute:worker:1 worker:0=1 lose:worker:1 master +107000",
          "worker:0=registered/1.1 worker:1=replacing/1.1" },
        { GANG, "go mute:worker:1 worker:0=1 lose:worker:1 master +112000",
          "worker:0=registered/1.1 worker:1=waiting/1.1" },
        /* replacing: the cluster gave up the node before the old master died */
        { ONE, "go mute:worker:0 worker:0!lost +90000 lose:worker:0 master +90000",
          "worker:0=replacing/1.1" },
        { ONE, "go mute:worker:0 worker:0!lost +90000 lose:worker:0 master +112000",
          "worker:0=waiting/1.1" },
        /* replacing: the executor was silent */
        { ONE, "go mute:worker:0 +60000 lose:worker:0 master +107000", "worker:0=replacing/1.1" },
        { ONE, "go mute:worker:0 +60000 lose:worker:0 master +112000", "worker:0=waiting/1.1" },
        /* the cluster says that the node is lost only after the new master has begun */
        { GANG, "go mute:worker:1 worker:0=1 +2000 worker:1!lost +5000",
          "worker:0=registered/1.1 worker:1=replacing/1.1" },
        /* with a pool, the keeper has killed the processes of a lost container */
        { "worker*2/on/scope-job lost=1 lease=100000",
          "go mute:worker:1 worker:0=1 lose:worker:1 master +1",
          "worker:0=registered/1.1 worker:1=waiting/1.1" },
        { "worker*1 lost=1 lease=100000", "go mute:worker:0 +60000 lose:worker:0 master +1",
          "worker:0=waiting/1.1" },
        /* no attempt ran in it: its executor did not register */
        { "worker*1 launch=2 lost=1 reg=5000 lease=100000 nodes=2",
          "mute:worker:0 go grant:worker:0 +5000 worker:0!lost +1", "worker:0=waiting/0.0" },
        { "worker*1 launch=2 lost=1 reg=5000 lease=100000 nodes=2",
          "mute:worker:0 go grant:worker:0 +5000 lose:worker:0 master +1", "worker:0=waiting/0.0" },
        /* between two attempts no process runs */
        { "worker*1/on lost=1 lease=100000 nodes=2",
          "go mute:worker:0 worker:0=1 lose:worker:0 master +1", "worker:0=waiting/1.1" },
    };
    (void)state;
    check_rows(rows, ARRAY_LEN(rows));
}

/* A slot has ended without a report that its attempt is dead, and restarts later. */
static void test_a_lost_slot_without_budget_restarts_later(void **state)
{
    static const struct row rows[] = {
        /* its node was lost and it had no retries left: the gang restarts for another reason */
        { GANG_WITHOUT_BUDGET, "go worker:1!lost mute:worker:1 worker:0=1 +100000",
          "worker:0=registered/1.1 worker:1=replacing/1.1" },
        { GANG_WITHOUT_BUDGET, "go worker:1!lost mute:worker:1 worker:0=1 +112000",
          "worker:0=registered/1.1 worker:1=waiting/1.1" },
        /* the lease ended while nothing waited for it */
        { GANG_WITHOUT_BUDGET, "go worker:1!lost mute:worker:1 +112000 worker:0=1 +1",
          "worker:0=registered/1.1 worker:1=waiting/1.1" },
        /* a new master knows about it */
        { GANG_WITHOUT_BUDGET, "go worker:1!lost mute:worker:1 +90000 master worker:0=1 +90000",
          "worker:0=registered/1.1 worker:1=replacing/1.1" },
        /* the executor was silent, and its end was never confirmed */
        { GANG_WITHOUT_BUDGET, "go mute:worker:1 +60000 worker:0=1 +1",
          "worker:0=registered/1.1 worker:1=replacing/1.1" },
        { "worker*2/on/scope-job lost=0 lease=100000", "go mute:worker:1 +60000 worker:0=1 +1",
          "worker:0=registered/1.1 worker:1=replacing/1.1" },
        /* the whole job is retried */
        { "worker*1 lost=0 retries=1 lease=100000 nodes=2",
          "go worker:0!lost mute:worker:0 +100000", "worker:0=replacing/1.1" },
        { "worker*1 lost=0 retries=1 lease=100000 nodes=2",
          "go worker:0!lost mute:worker:0 +112000", "worker:0=waiting/1.1" },
        /* the attempt had ended: no process is left */
        { GANG_WITHOUT_BUDGET, "go mute:worker:1 worker:1=0 worker:1!lost worker:0=1 +1",
          "worker:0=registered/1.1 worker:1=waiting/1.1" },
        { "worker*2/on/scope-job lost=0 lease=100000",
          "go worker:1!lost mute:worker:1 worker:0=1 +1",
          "worker:0=registered/1.1 worker:1=waiting/1.1" },
    };
    (void)state;
    check_rows(rows, ARRAY_LEN(rows));
}

/* The journal that a new master reads may lack the starts of the first attempts. */
static void test_a_first_start_may_be_missing(void **state)
{
    static const struct row rows[] = {
        { "worker*2 lost=1 gives=1 lease=100000 nodes=2",
          "mute:worker:1 go mute:worker:0 lose:worker:0 master +1000",
          "worker:0=replacing/0.0 worker:1=waiting/0.0" },
        { "worker*2 lost=1 gives=1 lease=100000 nodes=2",
          "mute:worker:1 go master mute:worker:0 worker:0!lost +1000",
          "worker:0=replacing/0.0 worker:1=waiting/0.0" },
        /* a resize was adding the slot */
        { "worker*1/live lost=1 gives=1 lease=100000 nodes=2 nogrant=2",
          "go resize:worker=3 master mute:worker:1 worker:1!lost +1000",
          "worker:0=running/1.1 worker:1=leaving/0.0 worker:2=absent/0.0" },
        { "worker*1/live lost=1 gives=1 lease=100000 nodes=2 nogrant=2",
          "go resize:worker=3 master mute:worker:1 worker:1!lost +112000",
          "worker:0=running/1.1 worker:1=absent/0.0 worker:2=absent/0.0" },
        /* the first master knows which attempts it has started */
        { "worker*2 lost=1 gives=1 lease=100000 nodes=2",
          "mute:worker:1 go mute:worker:0 worker:0!lost +1000",
          "worker:0=waiting/0.0 worker:1=waiting/0.0" },
        /* the registration may be missing as well */
        { "worker*2 lost=1 gives=1 lease=100000 nodes=2",
          "mute:worker:1 go grant:worker:1 lose:worker:1 master +100000",
          "worker:0=registered/0.0 worker:1=replacing/0.0" },
        { "worker*2 gang=0 lost=1 gives=1 lease=100000 nodes=2",
          "mute:worker:1 go grant:worker:1 lose:worker:1 master +112000",
          "worker:0=running/1.1 worker:1=waiting/0.0" },
        /* the machine is reachable, and no executor listens there */
        { "worker*2 lost=1 gives=1 lease=100000 nodes=2",
          "mute:worker:1 go grant:worker:1 lose:worker:1 master gone:worker:1 +4000",
          "worker:0=registered/0.0 worker:1=replacing/0.0" },
        { "worker*2 lost=1 gives=1 lease=100000 nodes=2",
          "mute:worker:1 go grant:worker:1 lose:worker:1 master gone:worker:1 +6000",
          "worker:0=registered/0.0 worker:1=waiting/0.0" },
    };
    (void)state;
    check_rows(rows, ARRAY_LEN(rows));
}

/* An executor was frozen, and its slot was given up. It runs on: it is told to end, and its lease
 * counts from its beats. */
static void test_an_executor_that_was_silent_runs_on(void **state)
{
    static const struct row rows[] = {
        { GANG_WITHOUT_BUDGET, "go mute:worker:1 +300000 beat:worker:1 worker:0=1 +1000",
          "worker:0=registered/1.1 worker:1=replacing/1.1" },
        { GANG_WITHOUT_BUDGET, "go mute:worker:1 +300000 beat:worker:1 worker:0=1 +112000",
          "worker:0=registered/1.1 worker:1=waiting/1.1" },
        { GANG_WITHOUT_BUDGET, "go mute:worker:1 +300000 worker:0=1 +1000",
          "worker:0=registered/1.1 worker:1=waiting/1.1" },
        /* it reports the end: nothing is left to wait for */
        { GANG_WITHOUT_BUDGET, "go mute:worker:1 +60000 worker:1=killed worker:0=1 +1000",
          "worker:0=registered/1.1 worker:1=waiting/1.1" },
    };
    static const struct {
        const char *job, *script;
        unsigned told;
    } ends[] = {
        { GANG_WITHOUT_BUDGET, "go mute:worker:1 +300000", 1 },
        { GANG, "go mute:worker:1 +60000", 1 }, /* it is to be replaced */
        { GANG, "go", 0 },
        { GANG_WITHOUT_BUDGET, "go mute:worker:1 worker:1=0", 0 }, /* its attempt has ended */
    };
    (void)state;
    check_rows(rows, ARRAY_LEN(rows));
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        struct drive d;
        drive_init(&d, ends[i].job);
        drive_run(&d, ends[i].script);
        unsigned before = d.n_acts[ACT_FINISH_EXECUTOR];
        drive_run(&d, "beat:worker:1");
        if (d.n_acts[ACT_FINISH_EXECUTOR] != before + ends[i].told)
            fail_msg("[%s]: %u", ends[i].script, d.n_acts[ACT_FINISH_EXECUTOR] - before);
        drive_done(&d);
    }
}

/* The lease counts from the last message of the executor, for each limit. */
static void test_the_lease_counts_from_the_last_message(void **state)
{
    static const struct row rows[] = {
        /* the executor sends heartbeats and does not stop: the stop began 108 s before the lease
         * ends */
        { "worker*2/on/scope-job lease=100000 nodes=2",
          "go mute:worker:1 worker:0=1 +50000 beat:worker:1 +100000",
          "worker:0=registered/1.1 worker:1=replacing/1.1" },
        { "worker*2/on/scope-job lease=100000 nodes=2",
          "go mute:worker:1 worker:0=1 +50000 beat:worker:1 +115000",
          "worker:0=registered/1.1 worker:1=waiting/1.1" },
        /* the old master may have received messages until it died */
        { "worker*2/on/scope-job lease=100000 nodes=2",
          "go mute:worker:1 worker:0=1 +90000 master +90000",
          "worker:0=registered/1.1 worker:1=replacing/1.1" },
    };
    (void)state;
    check_rows(rows, ARRAY_LEN(rows));
}

/* A spare takes over a slot. When the connection of the slot's last executor closes, that must not
 * count for the executor of the spare. */
static void test_a_spare_has_a_connection_of_its_own(void **state)
{
    struct drive d;
    const char *job = "worker*1/spares1 lost=3 lease=100000 nodes=2";
    const char *script = "go mute:worker:1 gone:worker:0 worker:0!lost +5100";

    (void)state;
    drive_init(&d, job);
    drive_run(&d, script);
    check_states(&d, job, script, "worker:0=running/2.1 worker:1=ended/0.0");
    drive_run(&d, "worker:0!lost +6000");
    check_states(&d, job, "a second loss", "worker:0=replacing/2.1 worker:1=ended/0.0");
    drive_done(&d);
}

/* The master stood still, so it may not have read that the executor is back. */
static void test_the_lease_is_extended_after_a_stall(void **state)
{
    struct drive d;
    const char *script = "go mute:worker:0 gone:worker:0 worker:0!lost";

    (void)state;
    drive_init(&d, ONE);
    drive_run(&d, script);
    d.now += 10000;
    drive_feed(&d, &(struct job_event){ .type = EV_STALLED, .stalled = { .stalled_ms = 10000 } });
    drive_run(&d, "+4000");
    check_states(&d, ONE, script, "worker:0=replacing/1.1");
    drive_run(&d, "+1100");
    check_states(&d, ONE, script, "worker:0=waiting/1.1");
    drive_done(&d);
}

/* The scheduler cannot end a container on a lost node. The master can, if it reaches the
 * executor. */
static void test_a_reachable_executor_of_a_lost_node_is_told_to_end(void **state)
{
    static const char *const jobs[] = { ONE, "worker*2 lost=0 lease=100000 nodes=2" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        struct drive d;
        drive_init(&d, jobs[i]);
        drive_run(&d, "go");
        unsigned before = d.n_acts[ACT_FINISH_EXECUTOR];
        drive_run(&d, "worker:0!lost");
        assert_int_equal(d.n_acts[ACT_FINISH_EXECUTOR], before + 1);
        drive_done(&d);
    }
}

/* The first generation ends while the executors of slots whose first start may be missing have not
 * reconnected. The next generation waits until nothing runs in their containers. */
static void test_a_missing_start_does_not_outlive_its_generation(void **state)
{
#define FCFS "worker*2/live/on/scope-job gang=0 lost=9 gives=1 lease=100000 nodes=2 nogrant=1"
    static const struct row rows[] = {
        /* a live resize was adding the slot */
        { FCFS,
          "go grant:worker:1 reg:worker:1 resize:worker=3 mute:worker:2 grant:worker:2 master "
          "worker:0=1 +1000",
          "worker:0=registered/1.1 worker:1=registered/1.1 worker:2=leaving/0.0" },
        { FCFS,
          "go grant:worker:1 reg:worker:1 resize:worker=3 mute:worker:2 grant:worker:2 master "
          "worker:0=1 +1000 worker:2!killed +1000",
          "worker:0=running/2.2 worker:1=running/2.2 worker:2=waiting/0.0" },
        /* it is a task of the job */
        { FCFS, "go mute:worker:1 grant:worker:1 master worker:0=1 +1000",
          "worker:0=registered/1.1 worker:1=replacing/0.0" },
        { FCFS, "go mute:worker:1 grant:worker:1 master worker:0=1 +1000 worker:1!killed +1000",
          "worker:0=running/2.2 worker:1=waiting/0.0" },
        /* the first master knows which attempts it has started */
        { FCFS, "go mute:worker:1 grant:worker:1 worker:0=1 +1000",
          "worker:0=running/2.2 worker:1=placed/0.0" },
        /* the starts of later generations are stored first */
        { FCFS,
          "go grant:worker:1 reg:worker:1 worker:0=1 resize:worker=3 mute:worker:2 "
          "grant:worker:2 master worker:0=1 +2000",
          "worker:0=running/3.3 worker:1=running/3.3 worker:2=placed/0.0" },
        /* the new slots of this resize start only with the new gang */
        { "worker*2/restart lost=9 gives=1 lease=100000 nodes=2 nogrant=2",
          "go resize:worker=3 master grant:worker:2 reg:worker:2 +1000",
          "worker:0=running/2.2 worker:1=running/2.2 worker:2=running/1.2" },
        { "worker*2/restart/on/scope-job lost=9 gives=1 lease=100000 nodes=2 nogrant=2",
          "go resize:worker=3 mute:worker:2 grant:worker:2 master worker:0=1 +1000",
          "worker:0=running/2.2 worker:1=running/2.2 worker:2=placed/0.0" },
    };
    (void)state;
    check_rows(rows, ARRAY_LEN(rows));
}

/* When a master dies, YARN ends the containers that no node has reported yet. Their restarts are
 * not charged, whatever their slots were doing. `spent` is charged to the budget for lost nodes,
 * which is 1. */
static void test_a_loss_with_the_master_is_not_charged(void **state)
{
#define LIVE "worker*1/live/on/scope-task lost=1 gives=1 lease=100000 nodes=2 nogrant=1"
    static const struct {
        const char *job, *script, *slots;
        uint32_t slot, spent;
    } rows[] = {
        /* a live resize has started the task: the new master does not find its container */
        { LIVE,
          "go resize:worker=2 grant:worker:1 reg:worker:1 mute:worker:1 lose:worker:1 master "
          "+112000",
          "worker:0=running/1.1 worker:1=waiting/1.1", 1, 0 },
        { LIVE,
          "go resize:worker=2 grant:worker:1 reg:worker:1 mute:worker:1 lostby:worker:1 "
          "master +112000",
          "worker:0=running/1.1 worker:1=waiting/1.1", 1, 0 },
        /* and again, with the next master */
        { LIVE,
          "go resize:worker=2 grant:worker:1 reg:worker:1 mute:worker:1 lostby:worker:1 "
          "master +112000 heal:worker:1 grant:worker:1 reg:worker:1 mute:worker:1 master "
          "+112000",
          "worker:0=running/1.1 worker:1=waiting/2.1", 1, 0 },
        /* its first start may have been missing in the journal */
        { "worker*2 gang=0 lost=1 gives=1 lease=100000 nodes=2 nogrant=1",
          "go mute:worker:1 grant:worker:1 lostby:worker:1 master +112000",
          "worker:0=running/1.1 worker:1=waiting/0.0", 1, 0 },
        /* a new master heard of the loss only after it had resynced: the node is to blame */
        { ONE, "go mute:worker:0 master worker:0!lost +112000", "worker:0=waiting/1.1", 0, 1 },
        /* the budget was spent before */
        { ONE,
          "go mute:worker:0 worker:0!lost +112000 heal:worker:0 grant:worker:0 reg:worker:0 "
          "mute:worker:0 lostby:worker:0 master +112000",
          "worker:0=waiting/2.1", 0, 1 },
        /* its executor died */
        { ONE, "go mute:worker:0 worker:0!unknown +1", "worker:0=waiting/1.1", 0, 1 },
        { ONE, "go mute:worker:0 diedby:worker:0 master +1", "worker:0=waiting/1.1", 0, 1 },
        /* with the pool, the keeper has died */
        { "worker*1 lost=1 lease=100000", "go mute:worker:0 lose:worker:0 master +1",
          "worker:0=waiting/1.1", 0, 1 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        drive_init(&d, rows[i].job);
        drive_run(&d, rows[i].script);
        check_states(&d, rows[i].job, rows[i].script, rows[i].slots);
        struct job *again = drive_replay(&d, d.journal.n);
        const struct job *jobs[] = { d.job, again };
        for (size_t k = 0; k < ARRAY_LEN(jobs); k++)
            if (jobs[k]->slots[rows[i].slot].spent[END_NODE_LOST] != rows[i].spent)
                fail_msg("[%s]: %u charged, not %u", rows[i].script,
                         jobs[k]->slots[rows[i].slot].spent[END_NODE_LOST], rows[i].spent);
        check_replay(&d);
        job_free(again);
        drive_done(&d);
    }
}

/* With a budget of 0 no lost task restarts, also after the death of a master. */
static void test_a_loss_with_the_master_needs_a_budget(void **state)
{
    static const struct row rows[] = {
        { "worker*2/on/scope-task lost=0 lease=100000 nodes=2",
          "go mute:worker:1 lose:worker:1 master +112000",
          "worker:0=running/1.1 worker:1=ended/1.1" },
        { "worker*2/never lost=1 lease=100000 nodes=2",
          "go mute:worker:1 lose:worker:1 master +112000",
          "worker:0=running/1.1 worker:1=ended/1.1" },
    };
    (void)state;
    check_rows(rows, ARRAY_LEN(rows));
}

/* The nodes are not to blame either: the job does not avoid them. */
static void test_a_loss_with_the_master_blames_no_node(void **state)
{
    struct drive d;

    (void)state;
    drive_init(&d, "worker*6/on/scope-task lost=9 lease=100000 nodes=6 nodefail=1 nodewin=600000");
    drive_run(&d, "go mute:worker:1 lostby:worker:1 master +112000");
    assert_string_equal(d.avoided, "");
    drive_run(&d, "worker:2!lost");
    assert_string_equal(d.avoided, "+n3");
    drive_done(&d);
}

/* ---- a job that shrinks ---- */

static void leave(struct drive *d, uint32_t slot)
{
    struct slot *s = &d->job->slots[slot];

    assert_int_equal(vec_reserve(&d->acts, 32), 0);
    slot_uncount(d->job, s);
    d->job->roles[s->role].n--;
    d->job->n_tasks--;
    slot_count(d->job, s);
    policy_recount(d->job);
    d->job->out = &d->acts;
    assert_int_equal(slot_step(d->job, slot, IN_LEAVE, NULL, NULL), 0);
    d->job->out = NULL;
    d->acts.n = 0;
}

static void test_a_leaving_slot_waits_as_well(void **state)
{
    static const struct {
        const char *before, *after;
        enum slot_state want;
    } rows[] = {
        { "go mute:worker:1", "worker:1!lost +100000", SLOT_LEAVING },
        { "go mute:worker:1", "worker:1!lost +112000", SLOT_ABSENT },
        { "go mute:worker:1", "lose:worker:1 master +100000", SLOT_LEAVING },
        { "go mute:worker:1", "lose:worker:1 master +112000", SLOT_ABSENT },
        { "go mute:worker:1", "worker:1!lost +1000 worker:1=killed", SLOT_ABSENT },
        { "go mute:worker:1", "worker:1!killed", SLOT_ABSENT },
        { "go mute:worker:1", "worker:1!lost stop +1", SLOT_ABSENT }, /* no task waits any more */
        { "go mute:worker:1 worker:1!lost", "+1000", SLOT_LEAVING },
        { "go mute:worker:1 worker:1!lost", "+112000", SLOT_ABSENT },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        drive_init(&d, "worker*2 lost=0 lease=100000 nodes=2");
        drive_run(&d, rows[i].before);
        leave(&d, drive_slot(&d, "worker:1"));
        drive_run(&d, rows[i].after);
        if (d.job->slots[1].state != rows[i].want)
            fail_msg("[%s] leaves [%s]: %s", rows[i].before, rows[i].after,
                     slot_state_name(d.job->slots[1].state));
        drive_done(&d);
    }
}

/* A resize stops a container, and its end is not confirmed: its executor is silent, and the
 * scheduler does not answer. The slot leaves, and the gang forms anew, only when the lease is
 * over.
 */
static void test_a_resize_waits_for_the_lease(void **state)
{
    static const struct row rows[] = {
        { "worker*3/live lease=100000 nodes=2", "go mute:worker:2 resize:worker=2 +100000",
          "worker:0=running/1.1 worker:1=running/1.1 worker:2=leaving/1.1" },
        { "worker*3/live lease=100000 nodes=2", "go mute:worker:2 resize:worker=2 +115000",
          "worker:0=running/1.1 worker:1=running/1.1 worker:2=absent/1.1" },
        /* a beat prolongs it */
        { "worker*3/live lease=100000 nodes=2",
          "go mute:worker:2 resize:worker=2 +50000 beat:worker:2 +100000",
          "worker:0=running/1.1 worker:1=running/1.1 worker:2=leaving/1.1" },
        { "worker*3/restart lease=100000 nodes=2", "go mute:worker:2 resize:worker=2 +100000",
          "worker:0=registered/1.1 worker:1=registered/1.1 worker:2=leaving/1.1" },
        { "worker*3/restart lease=100000 nodes=2", "go mute:worker:2 resize:worker=2 +115000",
          "worker:0=running/2.2 worker:1=running/2.2 worker:2=absent/1.1" },
        /* the scheduler confirms it */
        { "worker*3/restart lease=100000 nodes=2",
          "go mute:worker:2 resize:worker=2 +50000 worker:2!killed",
          "worker:0=running/2.2 worker:1=running/2.2 worker:2=absent/1.1" },
    };
    (void)state;
    check_rows(rows, ARRAY_LEN(rows));
}

/* ---- job_deadline() is never late ---- */

static void test_a_heartbeat_ends_a_suspicion(void **state)
{
    struct drive d;
    struct slot_view v;

    (void)state;
    drive_init(&d, "worker*1 missed=25");
    drive_run(&d, "go +100 mute:worker:0 +3900");
    job_slot(d.job, 0, &v);
    assert_true(v.suspect);
    drive_run(&d, "+15000 beat:worker:0");
    assert_true(job_deadline(d.job) <= d.now + 3000);
    drive_run(&d, "+3100");
    job_slot(d.job, 0, &v);
    assert_true(v.suspect);
    drive_done(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_new_master_waits_in_every_state),
        cmocka_unit_test(test_a_lost_slot_without_budget_restarts_later),
        cmocka_unit_test(test_a_first_start_may_be_missing),
        cmocka_unit_test(test_an_executor_that_was_silent_runs_on),
        cmocka_unit_test(test_the_lease_counts_from_the_last_message),
        cmocka_unit_test(test_a_spare_has_a_connection_of_its_own),
        cmocka_unit_test(test_the_lease_is_extended_after_a_stall),
        cmocka_unit_test(test_a_reachable_executor_of_a_lost_node_is_told_to_end),
        cmocka_unit_test(test_a_missing_start_does_not_outlive_its_generation),
        cmocka_unit_test(test_a_loss_with_the_master_is_not_charged),
        cmocka_unit_test(test_a_loss_with_the_master_needs_a_budget),
        cmocka_unit_test(test_a_loss_with_the_master_blames_no_node),
        cmocka_unit_test(test_a_leaving_slot_waits_as_well),
        cmocka_unit_test(test_a_resize_waits_for_the_lease),
        cmocka_unit_test(test_a_heartbeat_ends_a_suspicion),
    };
    return cmocka_run_group_tests_name("job_lease", tests, NULL, NULL);
}
