/* SPDX-License-Identifier: Apache-2.0 */
/* Each cell of each state table of the core. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "drive.h"
#include "job/job_int.h"

static const char slot_states[][12] = { "absent",     "held",    "waiting",  "placed",
                                        "registered", "running", "halting",  "renewing",
                                        "replacing",  "leaving", "stopping", "draining",
                                        "ended" };

/* The table as designed, written a second time: each input with the next state and the actions for
 * each state; "-" = refused. */
/* clang-format off */
static const char *const designed[IN_COUNT] = {
    /*                 absent held          waiting       placed                   registered               running                  halting                  renewing                 replacing                 leaving                 stopping                 draining                  ended */
    [IN_WANT] =       "-      waiting/ask   -             -                        -                        -                        -                        -                        -                         -                       -                        -                         -",
    [IN_GRANT] =      "-      placed/launch placed/launch -                        -                        -                        -                        -                        -                         -                       -                        -                         -",
    [IN_REFUSE] =     "-      -             ended         -                        -                        -                        -                        -                        -                         -                       -                        -                         -",
    [IN_REGISTER] =   "-      -             -             registered               registered               running/start            halting/renew            renewing/renew           replacing/finish_executor leaving/finish_executor stopping/finish_executor draining/finish_executor  -",
    [IN_READY] =      "-      -             -             -                        registered               -                        registered               registered               replacing/finish_executor leaving/finish_executor stopping/finish_executor draining/finish_executor  -",
    [IN_START] =      "-      -             -             -                        running/start            -                        -                        -                        -                         -                       -                        -                         -",
    [IN_RETURN] =     "-      -             -             -                        registered               running                  halting/stop_attempt     renewing/renew           replacing/finish_executor leaving/stop_attempt    stopping/stop_attempt    draining/finish_executor  -",
    [IN_END] =        "-      -             -             -                        draining                 draining                 -                        -                        replacing                 leaving                 draining                 -                         -",
    [IN_GONE] =       "-      -             -             ended                    ended                    ended                    ended                    ended                    ended                     absent                  ended                    ended                     -",
    [IN_STOP] =       "absent  ended  ended  stopping/stop_container  stopping/finish_executor  stopping/stop_attempt  stopping/stop_attempt  stopping/finish_executor  stopping  leaving/finish_executor  stopping  draining  ended",
    [IN_SILENT] =     "-      -             -             stopping/stop_container  stopping/stop_container  stopping/stop_container  -                        stopping/stop_container  -                         -                       -                        -                         -",
    [IN_OVERDUE] =    "-      -             -             -                        -                        -                        replacing/stop_container -                        replacing/stop_container  leaving/stop_container  stopping/stop_container  draining/stop_container   -",
    [IN_ABANDON] =    "absent ended         ended         ended                    ended                    ended                    ended                    ended                    ended                     absent                  ended                    ended                     ended",
    [IN_YIELD] =      "-      -             held/cancel   held/stop_container      held/stop_container      -                        -                        held/stop_container      -                         -                       -                        -                         -",
    [IN_RETRY] =      "-      -             -             -                        renewing/renew           renewing/renew           renewing/renew           -                        -                         -                       -                        -                         -",
    [IN_LOST] =       "-      -             -             held                     held                     held                     held                     held                     held                      absent                  -                        -                         -",
    [IN_DROP] =       "-      -             -             replacing/stop_container replacing/stop_container replacing/stop_container replacing/stop_container replacing/stop_container -                         -                       -                        -                         replacing/finish_executor",
    [IN_AGAIN] =      "absent held          waiting       placed                   renewing/renew           halting/stop_attempt     halting                  renewing/renew           replacing                 leaving                 replacing                replacing/finish_executor held",
    [IN_TAKE] =       "-      registered    -             -                        -                        -                        -                        -                        -                         -                       -                        -                         -",
    [IN_LEND] =       "-      -             -             -                        ended                    -                        -                        -                        -                         -                       -                        -                         -",
    [IN_JOIN] =       "held   -             -             -                        -                        -                        -                        -                        -                         -                       -                        -                         -",
    [IN_LEAVE] =      "absent absent        absent/cancel leaving/stop_container   leaving/finish_executor  leaving/stop_attempt     leaving                  leaving/finish_executor  leaving                   leaving                 leaving                  leaving/finish_executor   absent",
    [IN_REISSUE] =    "absent held          waiting/ask   placed/launch            registered               running                  halting                  renewing                 replacing/stop_container  leaving                 stopping/stop_container  draining/stop_container   ended",
};
/* clang-format on */

static enum job_action_type action_named(const char *s)
{
    static const struct {
        const char *name;
        enum job_action_type type;
    } names[] = { { "ask", ACT_ASK },
                  { "cancel", ACT_CANCEL },
                  { "launch", ACT_LAUNCH },
                  { "start", ACT_START },
                  { "stop_attempt", ACT_STOP_ATTEMPT },
                  { "finish_executor", ACT_FINISH_EXECUTOR },
                  { "stop_container", ACT_STOP_CONTAINER },
                  { "renew", ACT_RENEW } };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (str_eq(names[i].name, s))
            return names[i].type;
    }
    return ACT_NONE;
}

static void leave(struct drive *d, uint32_t slot)
{
    assert_int_equal(vec_reserve(&d->acts, 32), 0);
    d->job->out = &d->acts;
    assert_int_equal(slot_step(d->job, slot, IN_LEAVE, NULL, NULL), 0);
    d->job->out = NULL;
    d->acts.n = 0;
}

/* Two roles, so that the job goes on whatever happens to the slot under test, worker:0. */
static void bring_to(struct drive *d, const char *state)
{
    static const struct {
        const char *state, *job, *script;
    } ways[] = {
        { "held", "chief*1 worker*1<chief", "go" },
        { "waiting", "chief*1 worker*1", "mute:worker:0 go" },
        { "placed", "chief*1 worker*1", "mute:worker:0 go grant:worker:0" },
        { "registered", "chief*1 worker*1",
          "mute:worker:0 mute:chief:0 go grant:worker:0 reg:worker:0" },
        { "running", "chief*1 worker*1", "go mute:worker:0" },
        { "halting", "chief*1/on/scope-job worker*1", "go mute:worker:0 chief:0=1" },
        { "renewing", "chief*1/on/scope-job worker*1/on", "go mute:worker:0 worker:0=1" },
        { "replacing", "chief*1 worker*1 lost=2 lease=600000", "go mute:worker:0 +60000" },
        { "stopping", "chief*1 worker*1", "go mute:worker:0 stop" },
        { "draining", "chief*1 worker*1", "go mute:worker:0 worker:0=0" },
        { "absent", "chief*1 worker*1", "mute:worker:0 go" },
        { "leaving", "chief*1 worker*1", "go mute:worker:0" },
        { "ended", "chief*1 worker*1", "go worker:0=0" },
    };
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        if (str_eq(ways[i].state, state)) {
            struct slot_view v;
            drive_init(d, ways[i].job);
            drive_run(d, ways[i].script);
            if (str_eq(state, "absent") || str_eq(state, "leaving"))
                leave(d, drive_slot(d, "worker:0"));
            job_slot(d->job, drive_slot(d, "worker:0"), &v);
            assert_string_equal(slot_state_name(v.state), state);
            return;
        }
    }
    fail_msg("no way to %s", state);
}

static void check_cell(const char *from, enum slot_input in, const char *want)
{
    struct drive d;
    struct err e = { 0 };
    char to[32];
    str_copy(to, sizeof to, want);
    char *act = strchr(to, '/');
    if (act)
        *act++ = 0;
    bring_to(&d, from);

    uint32_t slot = drive_slot(&d, "worker:0");
    struct slot_end end = { .reason = END_EXITED, .at_us = job_now(d.job) * 1000 };
    assert_int_equal(vec_reserve(&d.acts, 32), 0);
    d.job->out = &d.acts;
    d.acts.n = 0;
    int rc = slot_step(d.job, slot, in, &end, &e);
    d.job->out = NULL;

    const char *now = slot_state_name(d.job->slots[slot].state);
    enum job_action_type did = d.acts.n ? d.acts.v[0].type : ACT_NONE;
    bool refused = str_eq(want, "-");
    if (rc != refused || (refused && !*e.msg) || !str_eq(now, refused ? from : to) ||
        did != (act ? action_named(act) : ACT_NONE) || d.acts.n > 1)
        fail_msg("%s x %s: rc %d '%s', now %s, action %d, but designed: %s", from,
                 slot_input_name(in), rc, e.msg, now, (int)did, want);
    if (act) {
        const struct job_action *a = &d.acts.v[0];
        uint32_t grace_ms = in == IN_OVERDUE ? 0 : 5000;
        assert_int_equal(a->of_slot.slot, slot);
        if (a->type == ACT_STOP_ATTEMPT)
            assert_int_equal(a->stop_attempt.grace_ms, grace_ms);
        if (a->type == ACT_FINISH_EXECUTOR)
            assert_int_equal(a->finish_executor.grace_ms, grace_ms);
        if (a->type == ACT_STOP_CONTAINER)
            assert_int_equal(a->stop_container.grace_ms, grace_ms);
    }
    drive_done(&d);
}

static void test_every_slot_cell(void **state)
{
    unsigned n_cells = 0;

    (void)state;
    for (enum slot_input in = IN_NONE + 1; in < IN_COUNT; in++) {
        struct span rest = span_of(designed[in]), word;
        size_t column = 0;
        while (span_split(&rest, ' ', &word)) {
            if (!word.len)
                continue;
            AUTO(free_p) char *want = span_dup(word);
            check_cell(slot_states[column++], in, want);
            n_cells++;
        }
        assert_int_equal(column, ARRAY_LEN(slot_states));
    }
    assert_int_equal(n_cells, (SLOT_STATE_COUNT - 1) * (IN_COUNT - 1));
}

/* Which events the job accepts in which state. The slot in the event is running, or as far as the
 * state allows. */
static void test_every_job_cell(void **state)
{
    static const struct {
        const char *name, *script;
    } states[] = {
        { "NEW", "" },
        { "WAITING", "submit" },
        { "RUNNING", "go mute:worker:0" },
        { "STOPPING", "go mute:worker:0 stop" },
        { "SUCCEEDED", "go worker:0=0" },
        { "FAILED", "go worker:0=1" },
        { "KILLED", "go stop" },
    };
    /* One letter for each state, in the order above: y accepted, n refused. */
    static const struct {
        enum job_event_type type;
        const char *applied;
    } rows[] = {
        { EV_SUBMITTED, "ynnnnnn" },
        { EV_MASTER_STARTED, "nyyyyyy" },
        { EV_RESYNCED, "nnnnnnn" },
        { EV_CONTAINER_SEEN, "nnnnnnn" },
        { EV_ALLOCATED, "nnnnnnn" },
        { EV_ALLOCATION_REFUSED, "nnnnnnn" },
        { EV_COMPLETED, "nnyynnn" },
        { EV_PREEMPTING, "nnynnnn" },
        { EV_REGISTERED, "nnyynnn" },
        { EV_EXECUTOR_GONE, "nnyynnn" },
        { EV_EXECUTOR_BACK, "nnyynnn" },
        { EV_ATTEMPT_STARTED, "nnyynnn" },
        { EV_ATTEMPT_ENDED, "nnyynnn" },
        { EV_BEAT, "nnyynnn" },
        { EV_PROGRESS, "nnynnnn" },
        { EV_CHECKPOINT, "nnyynnn" },
        { EV_TENSORBOARD, "nyyynnn" },
        { EV_TASK_READY, "nnynnnn" },
        { EV_CLIENT_OWNS, "nyyynnn" },
        { EV_CLIENT_AWAY, "nyyynnn" },
        { EV_STOP, "nyynnnn" },
        { EV_STALLED, "nyyynnn" },
        { EV_TIMER, "nyynnnn" },
        { EV_SUSPECT, "nnynnnn" },
        { EV_SHRINK, "nnnnnnn" },
        { EV_RESIZE, "nnnnnnn" },
        { EV_GROW, "nnnnnnn" },
        { EV_LAUNCH_FAILED_JOB, "nyyynnn" },
        { EV_DECIDED_RESTART, "nnnnnnn" }, /* only in a replay */
        { EV_DECIDED_RESIZE, "nnnnnnn" },
        { EV_DECIDED_VERDICT, "nnnnnnn" },
    };
    (void)state;
    assert_int_equal(ARRAY_LEN(rows), EV_COUNT - 1);
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        for (size_t s = 0; s < ARRAY_LEN(states); s++) {
            struct drive d;
            struct err e = { 0 };
            drive_init(&d, "worker*1");
            drive_run(&d, states[s].script);
            assert_string_equal(job_state_name(job_state(d.job)), states[s].name);
            struct job_event ev = { .type = rows[r].type };
            drive_fill(&ev, &(struct drive_values){ .container = "c0.1",
                                                    .generation = ev.type != EV_REGISTERED,
                                                    .attempt = 1,
                                                    .limit = LIMIT_APPLICATION,
                                                    .reason = END_EXITED,
                                                    .text = "x" });
            if (ev.type == EV_MASTER_STARTED)
                ev.master_started.epoch = 9;
            int rc = job_feed(d.job, &ev, d.now, &d.acts, &e);
            if (rc != (rows[r].applied[s] == 'n') || (rc && !*e.msg))
                fail_msg("%s in %s: %d '%s'", job_event_name(rows[r].type), states[s].name, rc,
                         e.msg);
            drive_done(&d);
        }
    }
}

/* Did a task end before or after tony stopped it? Reported times are rounded down to milliseconds.
 * An end by a signal of tony must not count as earlier than the stop because of that. */
static void test_an_end_before_or_after_the_stop(void **state)
{
    static const struct {
        int64_t stop_us, at_us;
        enum end_reason reason;
        int exit_code, signal;
        uint32_t attempt;
        enum slot_result result;
    } rows[] = {
        { -1, 5000, END_EXITED, 0, 0, 1, RES_SUCCEEDED },
        { -1, 5000, END_EXITED, 1, 0, 1, RES_FAILED },
        { -1, 5000, END_EXITED, 0, 15, 1, RES_FAILED },
        { -1, 5000, END_EXITED, 0, 0, 0, RES_FAILED }, /* the task never ran */
        { -1, 5000, END_KILLED_BY_MASTER, 0, 15, 1, RES_FINISHED },
        { -1, 5000, END_NODE_LOST, 0, 0, 1, RES_LOST },
        { -1, 5000, END_PREEMPTED, 0, 0, 1, RES_LOST },
        { -1, 5000, END_DISK_FAILED, 0, 0, 1, RES_LOST },
        { -1, 5000, END_OUT_OF_MEMORY, 0, 0, 1, RES_FAILED },
        { -1, 5000, END_TIMED_OUT, 0, 0, 1, RES_FAILED },
        { -1, 5000, END_LAUNCH_FAILED, 0, 0, 1, RES_FAILED },
        { -1, 5000, END_UNKNOWN, 0, 0, 1, RES_FAILED },
        { 5000, 4999, END_EXITED, 1, 0, 1, RES_FAILED },
        { 5000, 4999, END_EXITED, 0, 0, 1, RES_SUCCEEDED },
        { 5000, 5000, END_EXITED, 1, 0, 1, RES_FINISHED },
        { 5000, 5000, END_EXITED, 0, 0, 1, RES_FINISHED },
        { 5000, 5000, END_NODE_LOST, 0, 0, 1, RES_FINISHED },
        { 5000, 4100, END_EXITED, 0, 15, 1, RES_FINISHED },
        { 5000, 4100, END_EXITED, 0, 9, 1, RES_FINISHED },
        { 5000, 4100, END_EXITED, 0, 11, 1, RES_FAILED },
        { 5000, 3900, END_EXITED, 0, 9, 1, RES_FAILED },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct slot s = { .stop_us = rows[i].stop_us, .attempt = rows[i].attempt };
        struct slot_end end = { .reason = rows[i].reason,
                                .exit_code = rows[i].exit_code,
                                .signal = rows[i].signal,
                                .at_us = rows[i].at_us };
        if (verdict_result(&s, &end) != rows[i].result)
            fail_msg("row %zu: %d", i, (int)verdict_result(&s, &end));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_slot_cell),
        cmocka_unit_test(test_every_job_cell),
        cmocka_unit_test(test_an_end_before_or_after_the_stop),
    };
    return cmocka_run_group_tests_name("job_table", tests, NULL, NULL);
}
