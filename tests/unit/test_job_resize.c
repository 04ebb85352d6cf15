/* SPDX-License-Identifier: Apache-2.0 */
/* A job that changes its size: the steps, the refusals, and crashes, which must not leave it
 * between two sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/base.h"
#include "drive.h"
#include "job/job_int.h"
#include "resize_rows.h"

/* "ps 2-1 train 9-2": the roles of the last resize in the status document. */
static void changed_roles(const struct drive *d, struct buf *out)
{
    AUTO(buf_done) struct buf text = { 0 };
    size_t i;
    json_t *role;
    assert_int_equal(job_status_json(d->job, true, &text), 0);
    json_t *doc = json_loadb(text.p, text.len, 0, NULL);
    json_array_foreach(json_object_get(json_object_get(doc, "last_resize"), "roles"), i, role)(void)
        buf_addf(out, "%s%s %lld-%lld", out->len ? " " : "",
                 json_string_value(json_object_get(role, "name")),
                 (long long)json_integer_value(json_object_get(role, "from")),
                 (long long)json_integer_value(json_object_get(role, "to")));
    json_decref(doc);
}

static void test_restart(void **state)
{
    static const struct resize_row rows[] = {
        /* the new task has a container at once: the gang forms again with it */
        { "worker*2/restart", "go resize:worker=3", "worker:0=2.2 worker:1=2.2 worker:2=2.1",
          "steady", RESIZED },
        { "worker*3/restart", "go resize:worker=1", "worker:0=2.2", "steady", RESIZED },
        { "worker*3/restart ps*2/restart", "go resize:worker=1,ps=3",
          "worker:0=2.2 ps:0=2.2 ps:1=2.2 ps:2=2.1", "steady", RESIZED },
        /* 2 -> 4 -> 1 -> 3: a slot that is used again continues the numbers of its attempts */
        { "worker*2/restart", "go resize:worker=4 resize:worker=1 resize:worker=3",
          "worker:0=4.4 worker:1=4.3 worker:2=4.2", "steady", RESIZED },
        /* the resize waits for the new container while the job runs on */
        { "worker*1/restart", "go resize:worker=2 +1000", "worker:0=2.2 worker:1=2.1", "steady",
          0 },
        /* the resize waits for a task that does not end */
        { "worker*3/restart", "go mute:worker:2 resize:worker=2 +1000",
          "worker:0=registered worker:1=registered", "forming", 0 },
        { "worker*2/restart tb*1/sidecar", "go resize:worker=3",
          "worker:0=2.2 worker:1=2.2 worker:2=2.1 tb:0=1.1", "steady", RESIZED },
        { "worker*2/restart gang=0", "go resize:worker=3", "worker:0=2.2 worker:1=2.2 worker:2=2.1",
          "steady", RESIZED },
        /* no task starts beside one of the old generation, also without a gang */
        { "worker*3/restart gang=0", "go mute:worker:2 resize:worker=2 +1000",
          "worker:0=registered worker:1=registered", "forming", 0 },
    };
    (void)state;
    resize_check_all(rows, ARRAY_LEN(rows));
}

/* The sizes of all roles are recorded, also if they are longer than other texts of a record. */
static void test_many_roles(void **state)
{
    enum { ROLES = 70, GROWN = 3 };
    AUTO(buf_done) struct buf job = { 0 }, script = { 0 };
    struct drive d;

    (void)state;
    for (int i = 0; i < ROLES; i++)
        (void)buf_addf(&job, "%sa-role-with-a-long-name-%02d*1/live", i ? " " : "", i);
    (void)buf_adds(&script, "go resize:");
    for (int i = ROLES - 50; i < ROLES; i++)
        (void)buf_addf(&script, "%sa-role-with-a-long-name-%02d=%d", i > ROLES - 50 ? "," : "", i,
                       i < ROLES - GROWN ? 1 : 20);
    drive_init(&d, buf_cstr(&job));
    drive_run(&d, buf_cstr(&script));
    assert_int_equal(job_n_tasks(d.job), ROLES + GROWN * 19);
    assert_int_equal(d.job->resize.outcome, RESIZED);
    struct job *again = drive_replay(&d, d.journal.n);
    assert_int_equal(job_n_tasks(again), ROLES + GROWN * 19);
    assert_int_equal(again->resize.outcome, RESIZED);
    job_free(again);
    drive_done(&d);
}

static void test_live(void **state)
{
    static const struct resize_row rows[] = {
        { "worker*2/live", "go resize:worker=4",
          "worker:0=1.1 worker:1=1.1 worker:2=1.1 worker:3=1.1", "steady", RESIZED },
        { "worker*4/live", "go resize:worker=2", "worker:0=1.1 worker:1=1.1", "steady", RESIZED },
        { "worker*2/live", "go resize:worker=1 resize:worker=2", "worker:0=1.1 worker:1=1.2",
          "steady", RESIZED },
        { "worker*2/live ps*1/restart", "go resize:ps=2",
          "worker:0=2.2 worker:1=2.2 ps:0=2.2 ps:1=2.1", "steady", RESIZED },
        { "worker*2/live ps*1/fixed", "go resize:worker=3",
          "worker:0=1.1 worker:1=1.1 worker:2=1.1 ps:0=1.1", "steady", RESIZED },
    };
    (void)state;
    resize_check_all(rows, ARRAY_LEN(rows));
}

/* The status names the tasks that were told to leave and have not ended. */
static void check_leaving(const struct drive *d, int64_t leaving, size_t tasks, const char *state)
{
    AUTO(buf_done) struct buf text = { 0 };
    assert_int_equal(job_status_json(d->job, true, &text), 0);
    json_t *doc = json_loadb(text.p, text.len, 0, NULL);
    json_t *list = json_object_get(doc, "tasks");
    assert_non_null(list);
    const json_t *role = json_array_get(json_object_get(doc, "roles"), 0);
    assert_int_equal(json_integer_value(json_object_get(role, "leaving")), leaving);
    assert_int_equal(json_integer_value(json_object_get(role, "instances")), 2);
    assert_int_equal(json_array_size(list), tasks);
    assert_int_equal(json_integer_value(json_object_get(doc, "leaving")), leaving);
    const json_t *last = json_array_get(list, tasks - 2); /* before the task of ps */
    assert_string_equal(json_string_value(json_object_get(last, "state")), state);
    json_decref(doc);
}

static void test_leaving(void **state)
{
    struct drive d;
    AUTO(buf_done) struct buf text = { 0 };
    (void)state;
    drive_init(&d, "worker*4/live ps*1");
    drive_run(&d, "go mute:worker:3 resize:worker=2");
    resize_shape(&d, &text);
    assert_string_equal(buf_cstr(&text), "worker:0=1.1 worker:1=1.1 ps:0=1.1");
    assert_int_equal(d.job->resize.outcome, RESIZED);
    check_leaving(&d, 1, 4, "leaving");
    drive_run(&d, "worker:3!1");
    check_leaving(&d, 0, 3, "running");
    drive_done(&d);
}

static void test_before_the_start(void **state)
{
    static const struct resize_row rows[] = {
        { "worker*3/restart", "mute:worker:1 go resize:worker=1", "worker:0=1.1", "steady",
          RESIZED },
        { "worker*2/restart", "mute:worker:1 go resize:worker=3",
          "worker:0=registered worker:1=waiting worker:2=registered", "steady", RESIZED },
        /* a stage that has not begun */
        { "prep*1 train*2/restart<prep", "go resize:train=1 prep:0=0", "prep:0=ended train:0=1.1",
          "steady", RESIZED },
        { "prep*1 train*1/restart<prep", "go resize:train=2 prep:0=0",
          "prep:0=ended train:0=1.1 train:1=1.1", "steady", RESIZED },
    };
    (void)state;
    resize_check_all(rows, ARRAY_LEN(rows));
}

static void test_a_resize_times_out(void **state)
{
    static const struct resize_row rows[] = {
        /* the timeout of a minute is set in drive_init() */
        { "worker*2/restart nogrant=2", "go resize:worker=3 +59000", "worker:0=1.1 worker:1=1.1",
          "waiting", 0 },
        { "worker*2/restart nogrant=2", "go resize:worker=3 +61000", "worker:0=1.1 worker:1=1.1",
          "steady", RESIZE_TIMED_OUT },
        { "worker*2/restart nogrant=2", "go resize:worker=3 resize:worker=2",
          "worker:0=1.1 worker:1=1.1", "steady", RESIZE_REPLACED },
        { "worker*2/restart nogrant=2", "go resize:worker=3 resize:worker=1", "worker:0=2.2",
          "steady", RESIZED },
        /* live: all new containers, or the old size */
        { "worker*2/live nogrant=3", "go resize:worker=4 +61000", "worker:0=1.1 worker:1=1.1",
          "steady", RESIZE_TIMED_OUT },
        { "worker*2/live ps*2/live nogrant=4", "go resize:worker=4,ps=1 +61000",
          "worker:0=1.1 worker:1=1.1 ps:0=1.1 ps:1=1.1", "steady", RESIZE_TIMED_OUT },
        /* requested again by the next master, if the request was lost with the last one */
        { "worker*2/restart nogrant=2", "go resize:worker=3 master grant:worker:2",
          "worker:0=2.2 worker:1=2.2 worker:2=2.1", "steady", RESIZED },
        /* a restart with the old size comes first */
        { "worker*2/restart/on/max5 nogrant=2", "go resize:worker=3 worker:1=1",
          "worker:0=1.1 worker:1=1.2", "waiting", 0, true },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        resize_check(&rows[i]);
}

static void test_a_new_container_ends(void **state)
{
    static const char *const ends[] = { "worker:2!1", "worker:2!lost", "worker:2!preempt" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        struct drive d;
        AUTO(buf_done) struct buf text = { 0 };
        drive_init(&d, "worker*2/restart nogrant=2");
        drive_run(&d, "go resize:worker=3 mute:worker:2 grant:worker:2");
        drive_run(&d, ends[i]);
        resize_shape(&d, &text);
        assert_string_equal(buf_cstr(&text), "worker:0=1.1 worker:1=1.1");
        assert_int_equal(d.job->resize.outcome, RESIZE_REFUSED);
        assert_int_equal(job_state(d.job), JOB_RUNNING);
        drive_done(&d);
    }
    struct drive d;
    drive_init(&d, "worker*2/restart nogrant=2");
    drive_run(&d, "go resize:worker=3");
    drive_feed(&d, &(struct job_event){ .type = EV_ALLOCATION_REFUSED,
                                        .allocation_refused = { .slot = 2, .why = "too large" } });
    assert_int_equal(d.job->resize.outcome, RESIZE_REFUSED);
    assert_string_equal(d.job->resize.detail, "'worker:2' could not join: too large");
    assert_int_equal(job_state(d.job), JOB_RUNNING);
    assert_int_equal(d.job->slots[2].state, SLOT_ABSENT);
    drive_done(&d);
}

/* The job starts while a resize waits for a slot that is leaving. The other new slot is requested
 * by the same event: a replay has no other one. */
static void test_a_resize_goes_on_when_the_job_starts(void **state)
{
    struct drive d;

    (void)state;
    drive_init(&d, "worker*3/live nogrant=1");
    drive_run(&d, "go grant:worker:2 mute:worker:2 resize:worker=2 resize:worker=4");
    assert_int_equal(d.job->slots[2].state, SLOT_LEAVING);
    drive_run(&d, "grant:worker:1");
    assert_int_equal(d.job->slots[0].state, SLOT_RUNNING);
    assert_int_equal(d.job->slots[3].state, SLOT_ASKED);
    drive_done(&d);
}

/* The last worker ends while new tasks of ps are about to join. Its end stops ps, and with it the
 * resize: nothing would stop the new tasks. */
static void test_a_role_that_is_stopped_does_not_grow(void **state)
{
    struct drive d;

    (void)state;
    /* the new task waits until another task has restarted */
    drive_init(&d, "a*1/on/delay60000/scope-task ps*1/untracked/live worker*1/stops-ps gang=0");
    drive_run(&d, "go a:0=1 resize:ps=2");
    assert_int_equal(d.job->resize.state, RESIZE_WAITING);
    drive_run(&d, "worker:0=0 +80000");
    assert_int_equal(d.job->resize.outcome, RESIZE_REFUSED);
    assert_int_equal(d.job->roles[1].n, 1);
    assert_int_equal(d.job->slots[0].state, SLOT_RUNNING);
    drive_done(&d);
}

/* The same holds for a role of which a task has ended for good, as if that had happened before the
 * request: a new gang would run the finished task again. */
static void test_a_role_with_an_ended_task_keeps_its_size(void **state)
{
    static const struct resize_row rows[] = {
        { "worker*2/restart nogrant=2", "go resize:worker=3 worker:1=0 +1000",
          "worker:0=1.1 worker:1=ended", "steady", RESIZE_REFUSED },
        { "worker*2/live nogrant=2", "go resize:worker=3 worker:1=0 +1000",
          "worker:0=1.1 worker:1=ended", "steady", RESIZE_REFUSED },
        { "worker*3/live ps*1/untracked/live nogrant=4", "go resize:ps=2 worker:1=0 +1000",
          "worker:0=1.1 worker:1=ended worker:2=1.1 ps:0=1.1", "waiting", 0 },
        { "worker*3/restart", "go shrink-saved:2 worker:2=0 save:worker:0 save:worker:1 +1000",
          "worker:0=1.1 worker:1=1.1 worker:2=ended", "steady", RESIZE_REFUSED },
    };
    static const struct resize_row stopped[] = {
        /* the end of role a stops the workers, which have not ended yet; b runs on */
        { "worker*2/live/sidecar a*1/stops-worker b*1 nogrant=4",
          "go mute:worker:0 mute:worker:1 resize:worker=3 a:0=0",
          "worker:0=stopping worker:1=stopping a:0=ended b:0=1.1", "steady", RESIZE_REFUSED },
    };
    struct drive d;

    (void)state;
    resize_check_all(rows, ARRAY_LEN(rows));
    resize_check_all(stopped, ARRAY_LEN(stopped));
    drive_init(&d, "worker*2/restart nogrant=2");
    drive_run(&d, "go resize:worker=3 worker:1=0 +1000");
    assert_string_equal(d.job->resize.detail,
                        "role 'worker' keeps its size: one of its tasks has ended");
    drive_done(&d);
}

/* A new task of a role waits for the tasks that the role needs, also if the role runs already. */
static void test_a_new_task_waits_for_other_roles(void **state)
{
    static const struct resize_row rows[] = {
        { "ps*1/untracked/on/scope-task worker*1/live<ps:ready gang=0",
          "go ready:ps:0 ps:0=1 resize:worker=2", "ps:0=1.2 worker:0=1.1", "waiting", 0, true },
        { "ps*1/untracked/on/scope-task worker*1/live<ps:ready gang=0",
          "go ready:ps:0 ps:0=1 resize:worker=2 ready:ps:0", "ps:0=1.2 worker:0=1.1 worker:1=1.1",
          "steady", RESIZED, true },
    };

    (void)state;
    resize_check_all(rows, ARRAY_LEN(rows));
}

/* The scheduler refuses a container that a resize has added to a role that has not started. The
 * role gets its old size back, and the job does not fail. */
static void test_a_later_stage_is_refused(void **state)
{
    static const struct {
        const char *job, *script, *refused, *then, *shape;
        enum job_state state;
        bool in_part; /* the resize has also changed another role */
    } rows[] = {
        /* the stage has not begun: no container was requested, and the slot number stands for the
         * whole demand */
        { "prep*1 train*2/restart<prep", "go resize:train=9", "train:8", "prep:0=0",
          "prep:0=ended train:0=1.1 train:1=1.1", JOB_RUNNING },
        { "prep*1 train*2/restart<prep", "go resize:train=9", "train:0", "prep:0=0",
          "prep:0=ended train:0=1.1 train:1=1.1", JOB_RUNNING },
        /* back to the size before the last resize */
        { "prep*1 train*2/restart<prep", "go resize:train=3 resize:train=9", "train:8", "prep:0=0",
          "prep:0=ended train:0=1.1 train:1=1.1 train:2=1.1", JOB_RUNNING },
        /* the stage has begun, and the containers were requested */
        { "prep*1 train*2/restart<prep nogrant=3", "go resize:train=3 prep:0=0", "train:2", "+1",
          "prep:0=ended train:0=1.1 train:1=1.1", JOB_RUNNING },
        /* no task of the job has begun */
        { "worker*2/restart nogrant=2", "mute:worker:1 go resize:worker=3", "worker:2",
          "heal:worker:1 grant:worker:1", "worker:0=1.1 worker:1=1.1", JOB_RUNNING },
        /* the other role keeps its new size */
        { "prep*1 ps*3/live train*2/restart<prep", "go resize:ps=1,train=9 ps:1=0 ps:2=0",
          "train:8", "prep:0=0", "prep:0=ended ps:0=1.1 train:0=1.1 train:1=1.1", JOB_RUNNING,
          true },
        /* one of the first tasks is refused: the job cannot run */
        { "prep*1 train*2/restart<prep nogrant=2", "go resize:train=3 prep:0=0", "train:1", "+1",
          NULL, JOB_FAILED },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        AUTO(buf_done) struct buf text = { 0 };
        drive_init(&d, rows[i].job);
        drive_run(&d, rows[i].script);
        drive_feed(&d, &(struct job_event){
                           .type = EV_ALLOCATION_REFUSED,
                           .allocation_refused = { .slot = drive_slot(&d, rows[i].refused),
                                                   .why = "too large" } });
        drive_run(&d, rows[i].then);
        resize_shape(&d, &text);
        if (job_state(d.job) != rows[i].state ||
            (rows[i].shape && !str_eq(buf_cstr(&text), rows[i].shape)))
            fail_msg("row %zu: %s, %s, %s", i, job_state_name(job_state(d.job)), buf_cstr(&text),
                     d.e.msg);
        if (rows[i].shape) {
            assert_int_equal(d.job->resize.outcome, rows[i].in_part ? RESIZED : RESIZE_REFUSED);
            assert_non_null(strstr(d.job->resize.detail, " tasks: too large"));
            assert_int_equal(d.job->resize.n, i == 2 || rows[i].in_part);
        }
        struct job *again = drive_replay(&d, d.journal.n);
        assert_int_equal(job_state(again), rows[i].state);
        assert_int_equal(again->resize.outcome, d.job->resize.outcome);
        assert_int_equal(again->resize.n, d.job->resize.n);
        assert_int_equal(job_n_tasks(again), job_n_tasks(d.job));
        job_free(again);
        drive_done(&d);
    }
}

/* A role that has not started gets an impossible size, and another resize begins before the
 * scheduler refuses that. The newest change is taken back first. */
static void test_an_older_size_is_refused(void **state)
{
    static const char two_trains[] = "prep*1 ps*2/live train*2/restart<prep";
    static const struct {
        const char *job, *script, *shape;
        enum resize_outcome outcome;
        const char *detail;
        uint32_t n;        /* resizes that were done */
        const char *roles; /* of last_resize */
    } rows[] = {
        /* the newer resize is done, and stays */
        { two_trains, "go resize:train=9 resize:ps=1 refuse:train:8 prep:0=0",
          "prep:0=ended ps:0=1.1 train:0=1.1 train:1=1.1", RESIZED,
          "role 'train' cannot have 9 tasks: too large", 2, "ps 2-1 train 9-2" },
        /* the newer resize waits: it goes first; the scheduler refuses the rest once more */
        { "prep*1 ps*2/live train*2/restart<prep nogrant=5",
          "go resize:train=9 resize:ps=3 refuse:train:8",
          "prep:0=1.1 ps:0=1.1 ps:1=1.1 train:0=held "
          "train:1=held train:2=held train:3=held train:4=held train:5=held train:6=held "
          "train:7=held train:8=held",
          RESIZE_REFUSED, "the scheduler cannot hold the job with this size: too large", 1,
          "ps 2-3" },
        { "prep*1 ps*2/live train*2/restart<prep nogrant=5",
          "go resize:train=9 resize:ps=3 refuse:train:8 refuse:train:8",
          "prep:0=1.1 ps:0=1.1 ps:1=1.1 train:0=held train:1=held", RESIZE_REFUSED,
          "role 'train' cannot have 9 tasks: too large", 1, "ps 2-3" },
        /* the same role twice: its size before, and then the size before all of them */
        { "prep*1 train*2/restart<prep", "go resize:train=9 resize:train=4 refuse:train:3",
          "prep:0=1.1 train:0=held train:1=held", RESIZE_REFUSED,
          "role 'train' cannot have 4 tasks: too large", 1, "train 9-4" },
        { "prep*1 train*2/restart<prep", "go resize:train=3 resize:train=9 refuse:train:8",
          "prep:0=1.1 train:0=held train:1=held train:2=held", RESIZE_REFUSED,
          "role 'train' cannot have 9 tasks: too large", 1, "train 3-9" },
        { "prep*1 train*2/restart<prep",
          "go resize:train=3 resize:train=9 refuse:train:8 refuse:train:2",
          "prep:0=1.1 train:0=held train:1=held", RESIZE_REFUSED,
          "role 'train' cannot have 3 tasks: too large", 1, "train 3-9" },
        /* its stage has come: it has requested the containers */
        { "prep*1 ps*2/live train*2/restart<prep nogrant=5",
          "go resize:train=3 resize:ps=1 prep:0=0 refuse:train:2",
          "prep:0=ended ps:0=1.1 train:0=1.1 train:1=1.1", RESIZED,
          "role 'train' cannot have 3 tasks: too large", 2, "ps 2-1 train 3-2" },
        /* the demand of the scheduler came between the two */
        { "prep*1 ps*3/live train*2/restart/max9<prep",
          "go resize:train=9 shrink:11 refuse:train:6 prep:0=0",
          "prep:0=ended ps:0=1.1 ps:1=1.1 ps:2=1.1 train:0=1.1 train:1=1.1", RESIZE_REFUSED,
          "role 'train' cannot have 7 tasks: too large", 1, "train 9-7" },
        /* no task of the job has begun */
        { "worker*2/restart ps*2/restart nogrant=4",
          "mute:worker:1 go resize:worker=3 resize:ps=1 refuse:worker:2 heal:worker:1 "
          "grant:worker:1",
          "worker:0=1.1 worker:1=1.1 ps:0=1.1", RESIZED,
          "role 'worker' cannot have 3 tasks: too large", 2, "worker 3-2 ps 2-1" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        AUTO(buf_done) struct buf text = { 0 }, roles = { 0 };
        drive_init(&d, rows[i].job);
        drive_run(&d, rows[i].script);
        resize_shape(&d, &text);
        const struct resize *z = &d.job->resize;
        changed_roles(&d, &roles);
        if (!str_eq(buf_cstr(&text), rows[i].shape) || z->outcome != rows[i].outcome ||
            !str_eq(z->detail, rows[i].detail) || z->n != rows[i].n ||
            !str_eq(buf_cstr(&roles), rows[i].roles))
            fail_msg("[%s] [%s]: %s, %s, '%s', %u, %s", rows[i].job, rows[i].script,
                     buf_cstr(&text), resize_outcome_name(z->outcome), z->detail, z->n,
                     buf_cstr(&roles));
        struct job *again = drive_replay(&d, d.journal.n);
        struct job *restored = drive_restored(d.spec, d.job);
        assert_int_equal(again->resize.outcome, z->outcome);
        assert_string_equal(again->resize.detail, z->detail);
        assert_int_equal(again->resize.n, z->n);
        assert_int_equal(job_n_tasks(again), job_n_tasks(d.job));
        job_free(restored);
        job_free(again);
        drive_done(&d);
    }
}

/* The scheduler was told the demand of the job while a task had ended. When that task restarts, the
 * scheduler gets the new demand before the request for the container. */
static void test_an_ended_task_restarts_after_the_demand(void **state)
{
    struct drive d;
    struct job_actions acts = { 0 };
    size_t shape = SIZE_MAX, ask = SIZE_MAX, n_shapes = 0;

    (void)state;
    drive_init(&d, "worker*2/restart/on/scope-job/max9");
    drive_run(&d, "go resize:worker=3 worker:1=0 worker:2!0");
    const struct drive_slot *s = &d.slots[0];
    struct job_event end = { .type = EV_ATTEMPT_ENDED,
                             .attempt_ended = { .generation = s->generation,
                                                .attempt = s->attempt,
                                                .exit_code = 1,
                                                .reason = END_EXITED } };
    assert_int_equal(job_feed(d.job, &end, d.now, &acts, NULL), 0);
    for (size_t i = acts.n; i-- > 0;) {
        if (acts.v[i].type == ACT_SHAPE)
            shape = i, n_shapes++;
        else if (acts.v[i].type == ACT_ASK)
            ask = i;
    }
    assert_int_equal(n_shapes, 1);
    assert_true(ask < acts.n && shape < ask);
    vec_done(&acts);
    drive_done(&d);
}

static void test_requests_that_are_refused(void **state)
{
    static const struct {
        const char *job, *script, *why;
    } rows[] = {
        { "worker*2", "go resize:worker=2", "the job has this size already" },
        { "worker*2", "go resize:worker=0", "tony.worker.min-instances is 1" },
        { "worker*4/min2", "go resize:worker=1", "tony.worker.min-instances is 2" },
        { "worker*2/cap3", "go resize:worker=4", "tony.worker.max-instances is 3" },
        { "worker*2", "go resize:wroker=4", "the job has no role 'wroker'" },
        { "worker*2", "go resize:worker=x", "number of instances" },
        { "worker*2", "go resize:worker", "number of instances" },
        { "worker*2/fixed", "go resize:worker=3", "tony.worker.resize is 'never'" },
        { "worker*2", "go worker:1=0 resize:worker=3", "a task of role 'worker' has ended" },
        { "ps*1/untracked/live worker*1/stops-ps eval*1 gang=0",
          "go mute:ps:0 worker:0=0 resize:ps=2", "role 'ps' is being stopped" },
        { "ps*1/untracked/live/cap3 worker*1/stops-ps/fixed eval*1/fixed gang=0",
          "go mute:ps:0 worker:0=0 grow:4", "the job has this size already" },
        { "worker*3/restart", "go mute:worker:2 resize:worker=2 resize:worker=3",
          "the job is changing its size" },
        /* repeated because the master died before it answered: EALREADY in each state */
        { "worker*3/restart", "go mute:worker:2 resize:worker=2 resize:worker=2",
          "the job is being resized to this size already" },
        { "worker*2/restart nogrant=2", "go resize:worker=3 resize:worker=3",
          "the job is being resized to this size already" },
        { "worker*2", "go stop resize:worker=3", "" },
        { "single=1", "go resize:driver=2", "a job without roles has one task" },
        { "worker*2", "go resize:worker=100001", "more than 100000 tasks in all" },
        { "worker*2/min2", "go shrink:1", "this job cannot run with fewer than 2 containers" },
        { "worker*2", "go grow:4", "the job has this size already" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        drive_init(&d, rows[i].job);
        drive_run(&d, rows[i].script);
        if (d.rc != 1 || !strstr(d.e.msg, rows[i].why))
            fail_msg("[%s] [%s]: %d '%s'", rows[i].job, rows[i].script, d.rc, d.e.msg);
        drive_done(&d);
    }
}

/* A crash after any record of a resize: the job then runs with the old or the new size, whether or
 * not the scheduler still knows its containers. */
static void test_every_prefix(void **state)
{
    static const char *const lives[][2] = {
        { "worker*2/restart lost=9",
          "go resize:worker=4 +100 resize:worker=1 +100 resize:worker=3 +100" },
        { "worker*3/live lost=9", "go resize:worker=5 +100 resize:worker=2 +100" },
        { "worker*2/restart lost=9 nogrant=2",
          "go resize:worker=3 grant:worker:2 reg:worker:2 +100" },
        { "worker*2/restart gives=1 lost=9", "go resize:worker=3 +100 resize:worker=2 +100" },
        { "worker*4/restart lost=9",
          "go mute:worker:3 resize:worker=3 shrink:2 +100 worker:3!0 +100" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lives); i++) {
        struct drive d;
        drive_init(&d, lives[i][0]);
        drive_run(&d, lives[i][1]);
        size_t n_records = d.journal.n;
        for (size_t n = 4; n <= 2 * n_records + 1; n++) {
            struct drive part;
            drive_init(&part, lives[i][0]);
            part.no_grant = UINT32_MAX;
            part.n_containers = 1000; /* ids that were not used before */
            for (size_t k = 0; k < n / 2; k++)
                assert_int_equal(strv_push(&part.journal, d.journal.v[k]), 0);
            drive_resume(&part, n / 2, n % 2);
            drive_run(&part, "+120000 +120000");
            AUTO(buf_done) struct buf text = { 0 };
            resize_shape(&part, &text);
            for (uint32_t r = 0; r < job_n_roles(part.job); r++)
                for (uint32_t k = 0; k < job_role_tasks(part.job, r); k++) {
                    struct slot_view v;
                    job_slot(part.job, job_task(part.job, r, k), &v);
                    if (v.state != SLOT_RUNNING)
                        fail_msg("[%s] [%s] from record %zu, %s: %s, %s", lives[i][0], lives[i][1],
                                 n / 2, n % 2 ? "seen" : "lost", buf_cstr(&text),
                                 resize_state(&part));
                }
            assert_string_equal(resize_state(&part), "steady");
            drive_done(&part);
        }
        drive_done(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_many_roles),
        cmocka_unit_test(test_live),
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_before_the_start),
        cmocka_unit_test(test_a_resize_times_out),
        cmocka_unit_test(test_a_new_container_ends),
        cmocka_unit_test(test_a_later_stage_is_refused),
        cmocka_unit_test(test_a_resize_goes_on_when_the_job_starts),
        cmocka_unit_test(test_a_role_that_is_stopped_does_not_grow),
        cmocka_unit_test(test_a_role_with_an_ended_task_keeps_its_size),
        cmocka_unit_test(test_a_new_task_waits_for_other_roles),
        cmocka_unit_test(test_an_older_size_is_refused),
        cmocka_unit_test(test_an_ended_task_restarts_after_the_demand),
        cmocka_unit_test(test_requests_that_are_refused),
        cmocka_unit_test(test_every_prefix),
    };
    return cmocka_run_group_tests_name("job_resize", tests, NULL, NULL);
}
