/* SPDX-License-Identifier: Apache-2.0 */
/* The rules as tables: a job, a script of events (tests/fake/drive.h), and how the job ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "drive.h"
#include "job/job.h"

struct row {
    const char *job, *script;
    enum job_state state;
    const char *message, *cause, *results; /* NULL: not checked; cause "": no task is named */
};

static void check(const struct row *r)
{
    struct drive d;
    struct job_verdict v;
    AUTO(buf_done) struct buf results = { 0 };
    const char *trouble = NULL;

    drive_init(&d, r->job);
    drive_run(&d, r->script);
    job_verdict(d.job, &v);
    drive_results(&d, &results);
    if (v.state != r->state)
        trouble = "state";
    else if (r->message && !str_eq(v.message, r->message))
        trouble = "message";
    else if (r->cause && *r->cause ? v.cause_slot != drive_slot(&d, r->cause)
                                   : r->cause && v.cause_slot != UINT32_MAX)
        trouble = "cause";
    else if (r->results && !str_eq(buf_cstr(&results), r->results))
        trouble = "results";
    else if (v.state >= JOB_SUCCEEDED && v.exit_code != (v.state == JOB_SUCCEEDED ? 0
                                                         : v.state == JOB_KILLED  ? 3
                                                                                  : 1))
        trouble = "exit code";
    else if ((v.state >= JOB_SUCCEEDED) != (d.n_acts[ACT_FINISH] > 0))
        trouble = "finish";
    for (uint32_t i = 0; v.state >= JOB_SUCCEEDED && i < job_n_slots(d.job); i++) {
        struct slot_view slot;
        job_slot(d.job, i, &slot);
        if (slot.state != SLOT_ENDED || slot.result == RES_NONE)
            trouble = "a slot's state";
    }
    if (trouble)
        fail_msg("%s of [%s] after [%s]: %s \"%s\" cause %d, %s", trouble, r->job, r->script,
                 job_state_name(v.state), v.message, (int)v.cause_slot, buf_cstr(&results));
    drive_done(&d);
}

static void check_all(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check(&rows[i]);
}

/* The success rules of tony-compat 2.8, row by row. */
static void test_success_rules(void **state)
{
    static const struct row rows[] = {
        { "worker*2", "go worker:0=0 worker:1=0", JOB_SUCCEEDED, "all 2 tasks succeeded", "",
          "worker:0=S worker:1=S" },
        { "worker*2", "go worker:0=0", JOB_RUNNING, NULL, NULL, "worker:0=S worker:1=running" },
        /* the chief is worker:0 if there is no role chief */
        { "worker*2", "go worker:0=3", JOB_FAILED, "task 'worker:0' failed with exit code 3",
          "worker:0", "worker:0=F worker:1=X" },
        { "chief*1 worker*2", "go worker:0=3", JOB_RUNNING, NULL, NULL,
          "chief:0=running worker:0=F worker:1=running" },
        { "chief*1 worker*2", "go chief:0=2", JOB_FAILED, "task 'chief:0' failed with exit code 2",
          "chief:0", "chief:0=F worker:0=X worker:1=X" },
        { "chief*2", "go chief:1=2", JOB_FAILED, "task 'chief:1' failed with exit code 2",
          "chief:1", "chief:0=X chief:1=F" },
        { "chief*1 worker*1", "go chief:0=0", JOB_RUNNING, NULL, NULL,
          "chief:0=S worker:0=running" },
        { "trainer*2", "go trainer:0=1", JOB_RUNNING, NULL, NULL, "trainer:0=F trainer:1=running" },
        { "chief*0 worker*2", "go worker:0=3", JOB_FAILED, NULL, "worker:0", NULL },
        /* another tracked role: the job goes on, and one success is enough */
        { "worker*3", "go worker:2=1 worker:0=0 worker:1=0", JOB_SUCCEEDED,
          "succeeded, though 1 of 3 tasks did not", "", "worker:0=S worker:1=S worker:2=F" },
        { "trainer*2", "go trainer:0=1 trainer:1=4", JOB_FAILED,
          "task 'trainer:0' failed with exit code 1", "trainer:0", "trainer:0=F trainer:1=F" },
        { "trainer*2", "go trainer:0=1 trainer:1=0", JOB_SUCCEEDED, NULL, "", NULL },
        /* fail-on-worker-failure: any role but a sidecar */
        { "worker*3 fail=1", "go worker:2=1", JOB_FAILED, NULL, "worker:2",
          "worker:0=X worker:1=X worker:2=F" },
        { "worker*1 tb*1/sidecar fail=1", "go tb:0=1", JOB_RUNNING, NULL, NULL,
          "worker:0=running tb:0=F" },
        /* stop-on-failure */
        { "worker*2 eval*1/stop", "go eval:0=1", JOB_FAILED, NULL, "eval:0",
          "worker:0=X worker:1=X eval:0=F" },
        { "worker*2 eval*1", "go eval:0=1 worker:0=0 worker:1=0", JOB_SUCCEEDED, NULL, "", NULL },
        /* untracked: its failure fails the job, exit 0 does not, and the job does not wait for
         * it */
        { "worker*1 ps*1/untracked", "go ps:0=1", JOB_FAILED, "task 'ps:0' failed with exit code 1",
          "ps:0", "worker:0=X ps:0=F" },
        { "worker*1 ps*1/untracked", "go ps:0=0", JOB_RUNNING, NULL, NULL,
          "worker:0=running ps:0=S" },
        { "worker*1 ps*1/untracked", "go worker:0=0", JOB_SUCCEEDED, "the task succeeded", "",
          "worker:0=S ps:0=X" },
        /* sidecar: its result is ignored */
        { "worker*1 tb*1/sidecar", "go tb:0=1 worker:0=0", JOB_SUCCEEDED, NULL, "",
          "worker:0=S tb:0=F" },
        { "worker*1 tb*1/sidecar", "go worker:0=0", JOB_SUCCEEDED, NULL, "", "worker:0=S tb:0=X" },
        { "worker*1 tb*1/sidecar/stop", "go tb:0=1", JOB_RUNNING, NULL, NULL, NULL },
        /* a failure before the registration fails the job, except that of a sidecar */
        { "chief*1 worker*2", "mute:worker:1 go grant:worker:1 worker:1!1", JOB_FAILED,
          "task 'worker:1' ended before it started: exit code 1", "worker:1",
          "chief:0=X worker:0=X worker:1=F" },
        { "chief*1 worker*2", "deny:worker:1 go", JOB_FAILED,
          "task 'worker:1' could not be started: too large (launch_failed)", "worker:1", NULL },
        { "worker*1 tb*1/sidecar", "deny:tb:0 go worker:0=0", JOB_SUCCEEDED, NULL, "",
          "worker:0=S tb:0=F" },
        { "worker*1 tb*1/sidecar", "mute:tb:0 go grant:tb:0 tb:0!0 worker:0=0", JOB_SUCCEEDED, NULL,
          "", "worker:0=S tb:0=F" },
        /* no role is tracked: all are waited for */
        { "ps*2/untracked", "go ps:0=0", JOB_RUNNING, NULL, NULL, NULL },
        { "ps*2/untracked", "go ps:0=0 ps:1=0", JOB_SUCCEEDED, NULL, "", NULL },
        { "ps*2/untracked", "go ps:0=0 ps:1=2", JOB_FAILED, NULL, "ps:1", NULL },
        /* the first final status wins */
        { "worker*2 ps*1/untracked", "go mute:ps:0 worker:0=0 worker:1=0 ps:0=1@1000 +1",
          JOB_SUCCEEDED, NULL, "", NULL },
        { "worker*2", "go mute:worker:1 worker:0=1 stop worker:1=0 +1", JOB_FAILED, NULL,
          "worker:0", NULL },
        { "worker*2", "go mute:worker:1 stop worker:1=1 +1", JOB_KILLED, "killed by ann@host 7", "",
          NULL },
        /* single node */
        { "single=1", "go driver:0=0", JOB_SUCCEEDED, "the task succeeded", "", "driver:0=S" },
        { "single=1", "go driver:0=1", JOB_FAILED, "task 'driver:0' failed with exit code 1",
          "driver:0", "driver:0=F" },
    };
    (void)state;
    check_all(rows, ARRAY_LEN(rows));
}

/* A role waits until another role has started, is ready, or has succeeded. */
static void test_roles_that_wait_for_others(void **state)
{
#define PS "ps*2/untracked worker*2<ps:ready"
#define NEVER(what) "role 'worker' cannot begin, since it waits for 'ps' to " what ": task 'ps:0' "
    static const struct row rows[] = {
        /* all get their containers at once; only the start waits */
        { PS, "go", JOB_RUNNING, NULL, NULL,
          "ps:0=running ps:1=running worker:0=registered worker:1=registered" },
        { PS, "go ready:ps:0", JOB_RUNNING, NULL, NULL,
          "ps:0=running ps:1=running worker:0=registered worker:1=registered" },
        { PS, "go ready:ps:0 ready:ps:1", JOB_RUNNING, NULL, NULL,
          "ps:0=running ps:1=running worker:0=running worker:1=running" },
        { PS, "go ready:ps:0 master ready:ps:1 worker:0=0 worker:1=0", JOB_SUCCEEDED, NULL, "",
          "ps:0=X ps:1=X worker:0=S worker:1=S" },
        { PS, "go ready:ps:0 lose:ps:0 master ready:ps:1", JOB_FAILED, NULL, "ps:0", NULL },
        { PS " gang=0", "mute:ps:1 go ready:ps:0 grant:ps:1 reg:ps:1", JOB_RUNNING, NULL, NULL,
          "ps:0=running ps:1=running worker:0=registered worker:1=registered" },
        { PS " gang=0", "go ready:ps:0 ready:ps:1", JOB_RUNNING, NULL, NULL,
          "ps:0=running ps:1=running worker:0=running worker:1=running" },
        /* a task that has ended with 0 is ready; a task that failed never is */
        { PS, "go ps:0=0 ready:ps:1", JOB_RUNNING, NULL, NULL,
          "ps:0=S ps:1=running worker:0=running worker:1=running" },
        { PS, "go ps:0=1", JOB_FAILED, "task 'ps:0' failed with exit code 1", "ps:0",
          "ps:0=F ps:1=X worker:0=X worker:1=X" },
        { "ps*2/sidecar worker*1<ps:ready", "go ps:0=1", JOB_FAILED,
          NEVER("become ready") "failed with exit code 1", "", "ps:0=F ps:1=X worker:0=X" },
        { "ps*2/sidecar worker*1<ps:ready", "go ready:ps:0 ps:0=1 ready:ps:1", JOB_RUNNING, NULL,
          NULL, "ps:0=F ps:1=running worker:0=running" },
        { "ps*1 worker*1<ps:ready c*1", "go ps:0=3 c:0=0", JOB_FAILED,
          NEVER("become ready") "failed with exit code 3", "ps:0", "ps:0=F worker:0=X c:0=X" },
        { "ps*1 worker*1/sidecar<ps:ready c*1", "go ps:0=3 c:0=0", JOB_SUCCEEDED, NULL, "",
          "ps:0=F worker:0=X c:0=S" },
        /* a restarted task waits again */
        { "ps*1/on worker*1/on/scope-task<ps:ready", "go ready:ps:0 ps:0=1 worker:0=1", JOB_RUNNING,
          NULL, NULL, "ps:0=running worker:0=registered" },
        { "ps*1/on worker*1/on/scope-task<ps:ready", "go ready:ps:0 ps:0=1 worker:0=1 ready:ps:0",
          JOB_RUNNING, NULL, NULL, "ps:0=running worker:0=running" },
        { "ps*1/on/scope-job worker*1<ps:ready", "go ready:ps:0 ps:0=1", JOB_RUNNING, NULL, NULL,
          "ps:0=running worker:0=registered" },
        { "ps*1/on/scope-job worker*1<ps:ready", "go ready:ps:0 ps:0=1 ready:ps:0", JOB_RUNNING,
          NULL, NULL, "ps:0=running worker:0=running" },
        { "ps*2/on/scope-role worker*1<ps:ready", "go ready:ps:0 ps:1=1 ready:ps:1", JOB_RUNNING,
          NULL, NULL, "ps:0=running ps:1=running worker:0=registered" },
        { PS " retries=1", "go ready:ps:0 ready:ps:1 worker:0=1", JOB_RUNNING, NULL, NULL,
          "ps:0=running ps:1=running worker:0=registered worker:1=registered" },
        /* condition: started */
        { "ps*2 worker*1<ps:started", "go", JOB_RUNNING, NULL, NULL,
          "ps:0=running ps:1=running worker:0=running" },
        { "a*1 b*1 c*1 after=a<b:started after=b<c:started", "go", JOB_RUNNING, NULL, NULL,
          "a:0=running b:0=running c:0=running" },
        { "a*1 b*1 c*1 after=a<b:started after=b<c:started gang=0", "mute:c:0 go grant:c:0 reg:c:0",
          JOB_RUNNING, NULL, NULL, "a:0=running b:0=running c:0=running" },
        { "a*1 b*1 c*1/on/scope-job after=a<b:started after=b<c:started", "go c:0=1", JOB_RUNNING,
          NULL, NULL, "a:0=running b:0=running c:0=running" },
        { "a*1 b*1<a:started c*1<b:started", "mute:b:0 go", JOB_WAITING, NULL, NULL,
          "a:0=registered b:0=waiting c:0=registered" },
        { "a*1/sidecar b*1<a:started", "mute:a:0 go grant:a:0 a:0!1", JOB_FAILED,
          "role 'b' cannot begin, since it waits for 'a' to start: task 'a:0' ended before it "
          "started: exit code 1",
          "", "a:0=F b:0=X" },
        { "a*1/sidecar b*1<a:started", "mute:b:0 go grant:b:0 reg:b:0 a:0=1", JOB_RUNNING, NULL,
          NULL, "a:0=F b:0=running" },
        /* condition: succeeded; containers are not requested before */
        { "prep*2 worker*1<prep:succeeded", "go prep:0=0", JOB_RUNNING, NULL, NULL,
          "prep:0=S prep:1=running worker:0=held" },
        { "prep*2 worker*1<prep:succeeded", "go prep:0=0 prep:1=0", JOB_RUNNING, NULL, NULL,
          "prep:0=S prep:1=S worker:0=running" },
        { "prep*2 worker*1<prep", "go prep:0=0 prep:1=1", JOB_RUNNING, NULL, NULL,
          "prep:0=S prep:1=F worker:0=running" },
        { "prep*2 worker*1<prep:succeeded", "go prep:1=1", JOB_FAILED,
          "role 'worker' cannot begin, since it waits for 'prep' to succeed: task 'prep:1' failed "
          "with exit code 1",
          "prep:1", "prep:0=X prep:1=F worker:0=X" },
        { "prep*1/on worker*1<prep:succeeded", "go prep:0=1 prep:0=0", JOB_RUNNING, NULL, NULL,
          "prep:0=S worker:0=running" },
        { "a*1 b*1<a:succeeded c*1<b:ready", "go", JOB_RUNNING, NULL, NULL,
          "a:0=running b:0=held c:0=held" },
        { "a*1 b*1<a:succeeded c*1<b:ready", "go a:0=0", JOB_RUNNING, NULL, NULL,
          "a:0=S b:0=running c:0=registered" },
    };
    (void)state;
    check_all(rows, ARRAY_LEN(rows));
}

/* When a role ends, other roles are stopped; that is not their failure. */
static void test_stops(void **state)
{
    static const struct row rows[] = {
        { "ps*2 worker*2/stops-ps", "go worker:0=0", JOB_RUNNING, NULL, NULL,
          "ps:0=running ps:1=running worker:0=S worker:1=running" },
        { "ps*2 worker*2/stops-ps", "go worker:0=0 worker:1=0", JOB_SUCCEEDED,
          "2 of 4 tasks succeeded, the others were stopped by the end of a role", "",
          "ps:0=X ps:1=X worker:0=S worker:1=S" },
        { "ps*1 worker*2/stops-ps", "go worker:1=1 worker:0=0", JOB_SUCCEEDED,
          "succeeded, though 1 of 3 tasks did not", "", "ps:0=X worker:0=S worker:1=F" },
        { "ps*1 trainer*1/stops-ps", "go trainer:0=1", JOB_FAILED, NULL, "trainer:0",
          "ps:0=X trainer:0=F" },
        { "ps*1 worker*1/on/stops-ps", "go worker:0=1", JOB_RUNNING, NULL, NULL,
          "ps:0=running worker:0=running" },
        { "ps*1/untracked worker*1/stops-ps eval*1", "go worker:0=0", JOB_RUNNING, NULL, NULL,
          "ps:0=X worker:0=S eval:0=running" },
        { "ps*1 worker*1/stops-ps eval*1<ps", "go mute:ps:0 worker:0=0", JOB_RUNNING, NULL, NULL,
          "ps:0=stopping worker:0=S eval:0=held" },
        { "ps*1 worker*1/stops-ps eval*1<ps:succeeded", "go worker:0=0", JOB_RUNNING, NULL, NULL,
          "ps:0=X worker:0=S eval:0=running" },
        { "ps*1 worker*1/stops-ps", "go mute:ps:0 worker:0=0 master heal:ps:0 +60000",
          JOB_SUCCEEDED, NULL, "", "ps:0=X worker:0=S" },
        /* a stopped role that has not begun never begins, and stops its own roles in turn */
        { "c*1 b*1/stops-c<c:succeeded a*1/stops-b", "go a:0=0", JOB_SUCCEEDED, NULL, "",
          "c:0=X b:0=X a:0=S" },
        { "c*1 b*1/stops-c a*1/stops-b", "go a:0=0", JOB_SUCCEEDED, NULL, "", "c:0=X b:0=X a:0=S" },
        /* the gang restarts, and so does the role that was stopped */
        { "ps*1 worker*1/stops-ps eval*1/on/scope-job", "go worker:0=0 eval:0=1", JOB_RUNNING, NULL,
          NULL, "ps:0=running worker:0=running eval:0=running" },
    };
    (void)state;
    check_all(rows, ARRAY_LEN(rows));
}

/* The original's end-to-end tests about these rules, by their names there. */
static void test_scenarios_of_the_original(void **state)
{
    static const struct row rows[] = {
        /* SingleNodeTrainingShouldPass, ...ShouldFail */
        { "single=1", "go +1000 driver:0=0", JOB_SUCCEEDED, NULL, NULL, NULL },
        { "single=1", "go +1000 driver:0=1", JOB_FAILED, NULL, NULL, NULL },
        /* PSWorkerTrainingShouldFailMissedHeartbeat, for the reason that its name says */
        { "ps*1/untracked worker*1 missed=2", "go +500 mute:worker:0 +60000", JOB_FAILED,
          "task 'worker:0' was lost: no heartbeat for 3 s (node_lost)", "worker:0",
          "ps:0=X worker:0=L" },
        /* PSWorkerTrainingShouldPass, WorkerTrainingPyTorchShouldPass (ps has no instances) */
        { "ps*1/untracked/stop worker*1", "go worker:0=0", JOB_SUCCEEDED, NULL, NULL,
          "ps:0=X worker:0=S" },
        { "ps*0/untracked/stop worker*2", "go worker:0=0 worker:1=0", JOB_SUCCEEDED, NULL, NULL,
          NULL },
        /* PSWorkerTrainingShouldFail: both exit with 1 */
        { "ps*1/untracked/stop worker*1", "go +1000 mute:ps:0 worker:0=1@1 ps:0=1@2", JOB_FAILED,
          NULL, "ps:0", "ps:0=F worker:0=F" },
        /* AMStopsJobAfterWorker0Killed */
        { "ps*1/untracked/stop worker*1", "go worker:0!137", JOB_FAILED,
          "task 'worker:0' was killed by signal 9 (SIGKILL)", "worker:0", "ps:0=X worker:0=F" },
        /* NonChiefWorkerFail: what its name says */
        { "chief*1 ps*1/untracked/stop worker*1", "go worker:0=1 chief:0=0", JOB_SUCCEEDED, NULL,
          NULL, "chief:0=S ps:0=X worker:0=F" },
        /* TonyClientCallbackHandler: the worker SUCCEEDED, the ps FINISHED */
        { "ps*1/untracked/stop worker*1", "go +30 worker:0=0", JOB_SUCCEEDED, NULL, NULL,
          "ps:0=X worker:0=S" },
        /* TonyAllocationTimeoutShouldFail */
        { "worker*3 alloc=1000", "mute:worker:0 mute:worker:2 go +1000", JOB_FAILED,
          "2 of 3 containers were not granted within 1 s: 2 of 'worker' (512 MB, 1 core)", "",
          NULL },
        /* GroupDependencyTimeoutShouldPass (which expects -1) */
        { "chief*1 worker*2 limit=worker/10000/chief", "go +50 chief:0=0 +10000", JOB_FAILED, NULL,
          "", NULL },
        /* LostConnectionWithAMJobShouldFail: here a broken connection is no death, silence is */
        { "worker*1", "go gone:worker:0 +2000 back:worker:0 +5000", JOB_RUNNING, NULL, NULL, NULL },
        { "worker*1", "go gone:worker:0 mute:worker:0 +120000", JOB_FAILED, NULL, "worker:0",
          NULL },
    };
    (void)state;
    check_all(rows, ARRAY_LEN(rows));
}

static void test_gang_and_stages(void **state)
{
    static const struct row rows[] = {
        /* GANG: no task starts before the last one has registered */
        { "worker*3", "mute:worker:2 go", JOB_WAITING, NULL, NULL,
          "worker:0=registered worker:1=registered worker:2=waiting" },
        { "worker*3", "mute:worker:2 go grant:worker:2", JOB_WAITING, NULL, NULL,
          "worker:0=registered worker:1=registered worker:2=placed" },
        { "worker*3", "mute:worker:2 go grant:worker:2 reg:worker:2", JOB_RUNNING, NULL, NULL,
          "worker:0=running worker:1=running worker:2=running" },
        { "worker*1 tb*1/sidecar", "deny:tb:0 mute:worker:0 go grant:worker:0 reg:worker:0",
          JOB_RUNNING, NULL, NULL, "worker:0=running tb:0=F" },
        /* a member is lost before the start: the gang cannot start */
        { "chief*1 worker*2", "mute:worker:1 go worker:0!1", JOB_FAILED, NULL, "worker:0", NULL },
        /* FCFS: each task starts at once */
        { "worker*2 gang=0", "mute:worker:1 go", JOB_RUNNING, NULL, NULL,
          "worker:0=running worker:1=waiting" },
        { "worker*2 gang=0",
          "mute:worker:1 go worker:0=0 grant:worker:1 heal:worker:1 reg:worker:1 worker:1=0",
          JOB_SUCCEEDED, NULL, "", NULL },
        /* stages: requested only once all earlier stages have ended, with any exit code */
        { "prep*2 train*2<prep", "go", JOB_RUNNING, NULL, NULL,
          "prep:0=running prep:1=running train:0=held train:1=held" },
        { "prep*2 train*2<prep", "go prep:0=0", JOB_RUNNING, NULL, NULL,
          "prep:0=S prep:1=running train:0=held train:1=held" },
        { "prep*2 train*2<prep", "go prep:0=0 prep:1=1", JOB_RUNNING, NULL, NULL,
          "prep:0=S prep:1=F train:0=running train:1=running" },
        { "prep*2 train*2<prep", "go prep:0=0 prep:1=1 train:0=0 train:1=0", JOB_SUCCEEDED, NULL,
          NULL, NULL },
        /* ... and their containers have ended */
        { "prep*1 train*1<prep", "go mute:prep:0 prep:0=0", JOB_RUNNING, NULL, NULL,
          "prep:0=S train:0=held" },
        { "prep*1 train*1<prep", "go mute:prep:0 prep:0=0 prep:0!0", JOB_RUNNING, NULL, NULL,
          "prep:0=S train:0=running" },
        { "a*1 b*1<a c*1<a,b", "go a:0=0 b:0=0 c:0=0", JOB_SUCCEEDED, NULL, NULL, NULL },
        { "a*1 b*1<a c*2<a,b", "go a:0=0", JOB_RUNNING, NULL, NULL,
          "a:0=S b:0=running c:0=held c:1=held" },
        { "a*1 b*1<a c*1<a,b", "go a:0=0 b:0=0", JOB_RUNNING, NULL, NULL,
          "a:0=S b:0=S c:0=running" },
        { "a*1 b*1 c*1<a,b", "go b:0=0", JOB_RUNNING, NULL, NULL, "a:0=running b:0=S c:0=held" },
        { "a*0 b*1<a", "go b:0=0", JOB_SUCCEEDED, NULL, NULL, "b:0=S" },
        /* the second gang waits only for its own members; tasks of the first may still run */
        { "prep*1 ps*1/untracked train*2<prep", "go mute:train:1 prep:0=0", JOB_RUNNING, NULL, NULL,
          "prep:0=S ps:0=running train:0=registered train:1=waiting" },
        { "prep*1 train*1<prep", "go stop", JOB_KILLED, NULL, NULL, "prep:0=X train:0=X" },
        { "chief*1 train*1<chief", "go chief:0=1", JOB_FAILED, NULL, "chief:0",
          "chief:0=F train:0=X" },
    };
    (void)state;
    check_all(rows, ARRAY_LEN(rows));
}

static void test_first_cause(void **state)
{
    static const struct row rows[] = {
        /* reported in the other order: the time of the failure decides */
        { "chief*1 worker*2",
          "go +1000 mute:worker:0 mute:worker:1 chief:0=1@5 worker:0=2@30 worker:1=3@20 "
          "heal:worker:0",
          JOB_FAILED, "task 'worker:0' failed with exit code 2", "worker:0",
          "chief:0=F worker:0=F worker:1=F" },
        { "worker*3",
          "go +1000 mute:worker:1 mute:worker:2 worker:0=1 +40 worker:1=2@39 worker:2=3@50",
          JOB_FAILED, "task 'worker:2' failed with exit code 3", "worker:2",
          "worker:0=F worker:1=X worker:2=F" },
        /* a task that tony stopped is neither a failure nor the cause */
        { "worker*2", "go +1000 mute:worker:1 worker:0=1 +40 worker:1=-15@10", JOB_FAILED, NULL,
          "worker:0", "worker:0=F worker:1=X" },
        { "worker*2", "go +1000 mute:worker:1 worker:0=1 +40 worker:1=-15@41", JOB_FAILED, NULL,
          "worker:0", "worker:0=F worker:1=X" },
        { "worker*2", "go +1000 mute:worker:1 worker:0=1@20 +5 worker:1=killed@50", JOB_FAILED,
          NULL, "worker:0", "worker:0=F worker:1=X" },
        { "worker*2", "go +1000 mute:worker:1 worker:0=1 +40 worker:1=1@10", JOB_FAILED, NULL,
          "worker:0", "worker:0=F worker:1=X" },
        /* killed by a signal before tony's stop: a failure */
        { "worker*2", "go +1000 mute:worker:1 worker:0=1 +5 worker:1=-9@50", JOB_FAILED,
          "task 'worker:1' was killed by signal 9 (SIGKILL)", "worker:1", "worker:0=F worker:1=F" },
        /* a sidecar is never the first cause */
        { "worker*1 tb*1/sidecar", "go +1000 tb:0=1 +10 worker:0=1", JOB_FAILED, NULL, "worker:0",
          NULL },
        /* the first failure was tolerated: the message also names the one that was not */
        { "chief*1 worker*2", "go worker:1=7 +2500 chief:0=3", JOB_FAILED,
          "task 'worker:1' failed with exit code 7; 2 s later task 'chief:0' failed with exit code "
          "3",
          "worker:1", NULL },
        { "chief*1 worker*2", "go worker:1=7 +900 chief:0=3", JOB_FAILED,
          "task 'worker:1' failed with exit code 7", "worker:1", NULL },
        { "worker*2 gang=0", "go worker:1=7 +2500 worker:0=3", JOB_FAILED, NULL, "worker:1", NULL },
        /* at the same time: the first report counts */
        { "worker*2", "go +1000 mute:worker:1 worker:0=1@10 worker:1=2@10", JOB_FAILED, NULL,
          "worker:0", NULL },
        /* a lost task died when it fell silent, before its peers failed */
        { "chief*1 worker*1 missed=5", "go +100 mute:worker:0 +4000 chief:0=1 +60000", JOB_FAILED,
          NULL, "chief:0", NULL },
        { "chief*1 worker*2 missed=5", "go +100 mute:worker:0 +6000 chief:0=1 +60000", JOB_FAILED,
          NULL, "worker:0", NULL },
    };
    (void)state;
    check_all(rows, ARRAY_LEN(rows));
}

static void test_messages(void **state)
{
    static const struct row rows[] = {
        { "worker*1", "go worker:0=3", JOB_FAILED, "task 'worker:0' failed with exit code 3", NULL,
          NULL },
        { "worker*1", "go worker:0=-11", JOB_FAILED,
          "task 'worker:0' was killed by signal 11 (SIGSEGV)", NULL, NULL },
        { "worker*1", "go worker:0=-40", JOB_FAILED, "task 'worker:0' was killed by signal 40",
          NULL, NULL },
        { "worker*1", "go worker:0=oom", JOB_FAILED,
          "task 'worker:0' ran out of memory: may use 512 MiB (out_of_memory)", NULL, NULL },
        { "worker*1 exec=1500", "go worker:0=timeout", JOB_FAILED,
          "task 'worker:0' ran longer than the 1500 ms that a task may (timed_out)", NULL, NULL },
        { "worker*1", "go worker:0=launch", JOB_FAILED,
          "task 'worker:0' could not be started (launch_failed)", NULL, NULL },
        { "worker*1", "go worker:0=preempt", JOB_FAILED,
          "task 'worker:0' was preempted by the scheduler (preempted)", NULL, "worker:0=L" },
        { "worker*1", "go worker:0!lost", JOB_FAILED, "task 'worker:0' was lost (node_lost)", NULL,
          "worker:0=L" },
        { "worker*1", "go worker:0=disk", JOB_FAILED,
          "task 'worker:0' was ended by a failed disk (disk_failed)", NULL, "worker:0=L" },
        { "worker*1", "go worker:0=unknown", JOB_FAILED,
          "task 'worker:0' ended for an unknown reason", NULL, "worker:0=F" },
        /* only the scheduler reports the end: 128 and a signal, or a code */
        { "worker*1", "go worker:0!137", JOB_FAILED,
          "task 'worker:0' was killed by signal 9 (SIGKILL)", NULL, NULL },
        { "worker*1", "go worker:0!4", JOB_FAILED, "task 'worker:0' failed with exit code 4", NULL,
          NULL },
        { "worker*1", "go worker:0!0", JOB_SUCCEEDED, NULL, NULL, NULL },
        { "worker*1", "mute:worker:0 go grant:worker:0 worker:0!137", JOB_FAILED,
          "task 'worker:0' was killed by signal 9 (SIGKILL) before it started", NULL, NULL },
        { "trainer*2", "go trainer:0=killed trainer:1=killed", JOB_FAILED, "no task succeeded", "",
          "trainer:0=X trainer:1=X" },
        { "worker*1", "go abort", JOB_FAILED, "the job's master could not be run: no such program",
          "", "worker:0=L" },
        { "worker*1", "submit abort", JOB_FAILED,
          "the job's master could not be run: no such program", "", "worker:0=L" },
        { "worker*1", "submit stop", JOB_KILLED, "killed by ann@host 7", "", "worker:0=X" },
        { "worker*1", "go mute:worker:0 stop abort", JOB_KILLED, "killed by ann@host 7", "",
          "worker:0=X" },
    };
    (void)state;
    check_all(rows, ARRAY_LEN(rows));
}

static void test_limits(void **state)
{
    static const struct row rows[] = {
        { "worker*1 app=5000", "go +4999", JOB_RUNNING, NULL, NULL, NULL },
        { "worker*1 app=5000", "go +5000", JOB_KILLED,
          "killed: the application timeout of 5 s ran out", "", "worker:0=X" },
        { "worker*1 app=5000", "go +4000 worker:0=0 +5000", JOB_SUCCEEDED, NULL, NULL, NULL },
        { "worker*2 alloc=1000", "mute:worker:1 go +999", JOB_WAITING, NULL, NULL, NULL },
        { "worker*2 alloc=1000", "mute:worker:1 go +1000", JOB_FAILED,
          "1 of 2 containers were not granted within 1 s: 1 of 'worker' (512 MB, 1 core)", "",
          "worker:0=X worker:1=X" },
        { "worker*2 alloc=1000", "mute:worker:1 go +900 grant:worker:1 reg:worker:1 +2000",
          JOB_RUNNING, NULL, NULL, NULL },
        { "worker*2 alloc=1000 gang=0", "mute:worker:1 go +1000", JOB_RUNNING, NULL, NULL, NULL },
        { "prep*1 train*1<prep alloc=1000", "go +5000 mute:train:0 prep:0=0 +999", JOB_RUNNING,
          NULL, NULL, NULL },
        { "prep*1 train*1<prep alloc=1000", "go +5000 mute:train:0 prep:0=0 +1000", JOB_FAILED,
          "1 of 2 containers were not granted within 1 s: 1 of 'train' (512 MB, 1 core)", "",
          NULL },
        { "worker*2 reg=1000", "mute:worker:1 go +10 grant:worker:1 +999", JOB_WAITING, NULL, NULL,
          NULL },
        { "worker*2 reg=1000", "mute:worker:1 go +10 grant:worker:1 heal:worker:1 +1000",
          JOB_FAILED,
          "task 'worker:1' could not be started: its executor did not register within 1 s "
          "(launch_failed)",
          "worker:1", "worker:0=X worker:1=F" },
        /* heartbeats stop */
        { "worker*2 missed=5", "go +500 mute:worker:1 +4000", JOB_RUNNING, NULL, NULL,
          "worker:0=running worker:1=running" },
        { "worker*2 missed=5", "go +500 mute:worker:1 +6000", JOB_RUNNING, NULL, NULL,
          "worker:0=running worker:1=L" },
        { "worker*2 missed=5", "go +500 mute:worker:1 +4000 beat:worker:1 +4000", JOB_RUNNING, NULL,
          NULL, "worker:0=running worker:1=running" },
        { "worker*2 missed=5", "go +500 mute:worker:1 +4000 gone:worker:1 +500 back:worker:1 +4000",
          JOB_RUNNING, NULL, NULL, NULL },
        { "worker*2 missed=5", "go +500 mute:worker:0 +6000", JOB_STOPPING,
          "task 'worker:0' was lost: no heartbeat for 5 s (node_lost)", NULL, NULL },
        { "worker*2 missed=5", "go +500 mute:worker:0 +60000", JOB_FAILED,
          "task 'worker:0' was lost: no heartbeat for 5 s (node_lost)", "worker:0",
          "worker:0=L worker:1=X" },
        { "worker*2 missed=1", "go +500 mute:worker:1 +2000", JOB_RUNNING, NULL, NULL,
          "worker:0=running worker:1=running" },
        { "worker*2 missed=1", "go +500 mute:worker:1 +4000", JOB_RUNNING, NULL, NULL,
          "worker:0=running worker:1=L" },
        /* a task that does not end is stopped through the scheduler; without an answer the master
         * gives up */
        { "worker*1 grace=1000", "go mute:worker:0 stop +1000", JOB_STOPPING, NULL, NULL, NULL },
        { "worker*1 grace=1000", "go mute:worker:0 stop +30000", JOB_KILLED, NULL, NULL,
          "worker:0=X" },
        { "worker*2 grace=1000",
          "mute:worker:0 mute:worker:1 go grant:worker:0 grant:worker:1 reg:worker:1 stop",
          JOB_STOPPING, NULL, NULL, NULL },
        { "worker*2 grace=1000",
          "mute:worker:0 mute:worker:1 go grant:worker:0 grant:worker:1 reg:worker:1 stop "
          "heal:worker:0 +5000",
          JOB_STOPPING, NULL, NULL, "worker:0=X worker:1=stopping" },
        /* an executor that stays after its task has ended blocks the job only for a time */
        { "prep*1 train*1<prep", "go mute:prep:0 prep:0=0 +2000", JOB_RUNNING, NULL, NULL,
          "prep:0=S train:0=held" },
        { "prep*1 train*1<prep", "go mute:prep:0 prep:0=0 +1000 heal:prep:0 +2000", JOB_RUNNING,
          NULL, NULL, "prep:0=S train:0=running" },
        { "prep*1 train*1<prep", "go mute:prep:0 prep:0=0 +60000", JOB_RUNNING, NULL, NULL,
          "prep:0=S train:0=running" },
        /* the owner is away */
        { "worker*1 away=2000", "go owns away +1999", JOB_RUNNING, NULL, NULL, NULL },
        { "worker*1 away=2000", "go owns away +2000", JOB_KILLED,
          "killed: its client was away for more than 2 s", "", NULL },
        { "worker*1 away=2000", "go owns away +1000 owns +5000", JOB_RUNNING, NULL, NULL, NULL },
        { "worker*1 away=2000", "go +5000", JOB_RUNNING, NULL, NULL, NULL },
        { "worker*1 away=0", "go owns away +0", JOB_KILLED, NULL, NULL, NULL },
        { "worker*1 away=-1", "go owns away +5000", JOB_RUNNING, NULL, NULL, NULL },
        { "worker*1 away=2000", "owned master +2000", JOB_KILLED, NULL, "", NULL },
        { "worker*1 away=2000", "owned master +1000 owns +5000", JOB_RUNNING, NULL, NULL, NULL },
        { "worker*1 away=2000", "go owns +5000 master +1000", JOB_RUNNING, NULL, NULL, NULL },
        { "worker*1 away=2000", "go owns +5000 master +2000", JOB_KILLED, NULL, NULL, NULL },
        { "worker*1 away=2000", "go owns +5000 master +1000 owns +5000", JOB_RUNNING, NULL, NULL,
          NULL },
        /* groups */
        { "chief*1 worker*2 limit=worker/10000/chief", "go chief:0=0 +9999", JOB_RUNNING, NULL,
          NULL, NULL },
        { "chief*1 worker*2 limit=worker/10000/chief", "go chief:0=0 +10000", JOB_FAILED,
          "role 'worker' still ran 10 s after group 'A' had completed", "",
          "chief:0=S worker:0=X worker:1=X" },
        { "chief*1 worker*2 limit=worker/10000/chief",
          "go chief:0=0 +9000 worker:0=0 worker:1=0 +9000", JOB_SUCCEEDED, NULL, NULL, NULL },
        { "chief*1 worker*2 limit=worker/10000/chief/ignored", "go chief:0=0 +10000", JOB_SUCCEEDED,
          "the task succeeded", "", "chief:0=S worker:0=X worker:1=X" },
        /* no other task is left to wait for: the original counts that as a failure, too */
        { "ps*1/untracked worker*2 limit=worker/1000/ps/ignored", "go ps:0=0 +1000", JOB_FAILED,
          "no task is waited for any more, and none had succeeded", "",
          "ps:0=S worker:0=X worker:1=X" },
        { "chief*1 eval*1 worker*2 limit=worker/10000/chief/ignored",
          "go chief:0=0 +10000 worker:0=1", JOB_FAILED, NULL, "worker:0", NULL },
        { "chief*1 eval*1 worker*1 limit=worker/10000/chief+eval",
          "go chief:0=0 +20000 eval:0=0 +9999", JOB_RUNNING, NULL, NULL, NULL },
        { "chief*1 eval*1 worker*1 limit=worker/10000/chief+eval",
          "go chief:0=0 +20000 eval:0=0 +10000", JOB_FAILED, NULL, NULL, NULL },
        { "chief*1 worker*2 limit=worker/10000/chief", "go chief:0=0 +6000 worker:0=0 +4000",
          JOB_FAILED, NULL, NULL, NULL },
        /* counted from the moment when all tasks are scheduled */
        { "prep*1 worker*1<prep limit=worker/1000/prep",
          "go mute:worker:0 prep:0=0 +5000 grant:worker:0 reg:worker:0 +999", JOB_RUNNING, NULL,
          NULL, NULL },
    };
    (void)state;
    check_all(rows, ARRAY_LEN(rows));
}

static void test_new_master(void **state)
{
    static const struct row rows[] = {
        { "worker*2", "go master worker:0=0 worker:1=0", JOB_SUCCEEDED, NULL, NULL, NULL },
        { "worker*2", "mute:worker:1 go grant:worker:1 heal:worker:1 master worker:0=0 worker:1=0",
          JOB_SUCCEEDED, NULL, NULL, NULL },
        { "chief*1 worker*1", "go lose:worker:0 master chief:0=0", JOB_FAILED, NULL, "worker:0",
          "chief:0=S worker:0=L" },
        { "worker*1", "go lose:worker:0 master", JOB_FAILED,
          "task 'worker:0' was lost: the scheduler does not know its container any more "
          "(node_lost)",
          "worker:0", NULL },
        /* requested and not granted: the new master requests it again */
        { "worker*1", "mute:worker:0 go heal:worker:0 master worker:0=0", JOB_SUCCEEDED, NULL, NULL,
          NULL },
        /* the old master told it to stop: the new master does, too */
        { "worker*1", "go mute:worker:0 stop heal:worker:0 master", JOB_KILLED, NULL, NULL,
          "worker:0=X" },
        /* the acknowledgement was lost */
        { "prep*1 train*1<prep", "go mute:prep:0 prep:0=0 heal:prep:0 master train:0=0",
          JOB_SUCCEEDED, NULL, NULL, NULL },
        /* silence while there was no master does not count */
        { "worker*1 missed=3", "go +100 mute:worker:0 +2800 master +3000 heal:worker:0 +5000",
          JOB_RUNNING, NULL, NULL, NULL },
        { "worker*1", "go worker:0=0 master", JOB_SUCCEEDED, NULL, NULL, NULL },
    };
    (void)state;
    check_all(rows, ARRAY_LEN(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_success_rules),   cmocka_unit_test(test_roles_that_wait_for_others),
        cmocka_unit_test(test_stops),           cmocka_unit_test(test_scenarios_of_the_original),
        cmocka_unit_test(test_gang_and_stages), cmocka_unit_test(test_first_cause),
        cmocka_unit_test(test_messages),        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_new_master),
    };
    return cmocka_run_group_tests_name("job", tests, NULL, NULL);
}
