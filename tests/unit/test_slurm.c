/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm without Slurm: what its commands print, the size of an allocation, and the batch script. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "cluster/slurm/slurm_int.h"
#include "conf/conf.h"
#include "conf_spec_world.h"
#include "slurm/commands.h"

/* ---- output of commands ---- */

static void nodes_of_sinfo(void **state)
{
    (void)state;
    slurm_nodes v = { 0 };
    const struct slurm_choice of_default = { .default_only = true };
    static const char text[] = "n1|all*|8|4000|gpu:a100:4(S:0-1),gpu:2|idle\n"
                               "n1|short|8|4000|gpu:a100:4(S:0-1),gpu:2|idle\n"
                               "n2|all*|8|4000|gpu:6|mix\n"
                               "n3|all*|64+|250000|(null)|alloc\n"
                               "n4|all*|8|4000|(null)|down*\n"
                               "n5|all*|8|4000|(null)|drain\n"
                               "n6|all*|x|4000|(null)|idle\n"
                               "n7|all*|8|4000\n"
                               "\n"
                               "n8|all*|4|1000|gpu:v100,craynetwork:2|idle~\n"
                               "n9|short|1|1|(null)|idle\n";
    assert_int_equal(slurm_parse_nodes(span_of(text), &(struct slurm_choice){ 0 }, &v), 0);
    assert_int_equal(v.n, 4);
    v.n = 0;
    assert_int_equal(slurm_parse_nodes(span_of(text), &of_default, &v), 0);
    assert_int_equal(v.n, 3);
    assert_int_equal(v.v[0].n, 2);
    assert_int_equal(v.v[0].gpus, 6);
    assert_int_equal(v.v[1].vcores, 64);
    assert_int_equal(v.v[1].memory_mib, 250000);
    assert_int_equal(v.v[2].gpus, 1);
    v.n = 0; /* without a default partition all count */
    assert_int_equal(slurm_parse_nodes(span_of("a|p|1|1|x|idle\nb|q|1|1|x|idle"), &of_default, &v),
                     0);
    assert_int_equal(v.v[0].n, 2);
    v.n = 0; /* those that return later, but for excluded ones */
    const struct slurm_choice later = { .unusable = true, .exclude = "n[1,3-4],n8" };
    assert_int_equal(slurm_parse_nodes(span_of(text), &later, &v), 0);
    assert_int_equal(v.n, 3);
    assert_int_equal(v.v[0].gpus, 6);
    assert_int_equal(v.v[1].n, 1); /* n5, which is drained */
    v.n = 0;                       /* sbatch judges what cannot be read here */
    const struct slurm_choice strange = { .exclude = "n[1-" };
    assert_int_equal(slurm_parse_nodes(span_of(text), &strange, &v), 0);
    assert_int_equal(v.n, 4);
    vec_done(&v);
}

static void uses_of_sinfo(void **state)
{
    (void)state;
    slurm_uses v = { 0 };
    static const char text[] = "n1|3/5/0/8|4000|1200|gpu:a100:4(S:0-1)|gpu:a100:2(IDX:0-1)|mix|\n"
                               "n2|0/0/8/8|4000|0|(null)|(null)|down*|\n"
                               "n3|8/0/0/8|64000|N/A|(null)||alloc|\n"
                               "n4|8/0/0|4000|0|(null)|(null)|idle|\n"
                               "|0/8/0/8|4000|0|(null)|(null)|idle|\n"
                               "n5|0/8/0/8|much|0|(null)|(null)|idle|\n"
                               "n6|0/8/0/8|4000\n\n";
    assert_int_equal(slurm_parse_uses(span_of(text), &v), 0);
    assert_int_equal(v.n, 3);
    assert_string_equal(v.v[0].name, "n1");
    assert_true(v.v[0].usable && !v.v[1].usable && v.v[2].usable);
    assert_int_equal(v.v[0].capacity.vcores, 8);
    assert_int_equal(v.v[0].used.vcores, 3);
    assert_int_equal(v.v[0].capacity.memory_mib, 4000);
    assert_int_equal(v.v[0].used.memory_mib, 1200);
    assert_int_equal(v.v[0].capacity.gpus, 4);
    assert_int_equal(v.v[0].used.gpus, 2);
    assert_int_equal(v.v[2].used.memory_mib, 0);
    slurm_uses_done(&v);
}

static void names_of_nodes(void **state)
{
    (void)state;
    static const struct {
        const char *list, *names; /* NULL: the list is damaged */
    } cases[] = { { "n1", "n1" },
                  { "n[1-3]", "n1 n2 n3" },
                  { "n[08-11,3],m5", "n08 n09 n10 n11 n3 m5" },
                  { "r[1-2]n[1-2]x", "r1n1x r1n2x r2n1x r2n2x" },
                  { "[1-2]", "1 2" },
                  { "a,,b", "a b" },
                  { "", "" },
                  { "n[3-1]", "" },
                  { "n[1-", NULL },
                  { "n[1-x]", NULL },
                  { "n[-2]", NULL },
                  { "n[0-999999999]", NULL },
                  { "a[1]b[1]c[1]d[1]e[1]f", NULL } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct strv v = { 0 };
        AUTO(buf_done) struct buf text = { 0 };
        int rc = slurm_expand_nodes(span_of(cases[i].list), &v);
        assert_int_equal(rc, cases[i].names ? 0 : -EBADMSG);
        for (size_t k = 0; k < v.n; k++)
            assert_int_equal(buf_addf(&text, "%s%s", k ? " " : "", v.v[k]), 0);
        if (cases[i].names)
            assert_string_equal(text.len ? buf_cstr(&text) : "", cases[i].names);
        strv_done(&v);
    }
}

static void jobs_of_squeue(void **state)
{
    (void)state;
    slurm_helds v = { 0 };
    static const char text[] = "12|RUNNING|n[1-2]|tony-x\n"
                               "13|PENDING||tony-further-application_1_0001\n"
                               "14+0|RUNNING|n3|a component\n"
                               "15|RUNNING|n[3|damaged\n"
                               "16|RUNNING\n"
                               "17|COMPLETING|n4|a|b\n";
    assert_int_equal(slurm_parse_helds(span_of(text), &v), 0);
    assert_int_equal(v.n, 3);
    assert_string_equal(v.v[0].number, "12");
    assert_string_equal(v.v[0].state, "RUNNING");
    assert_int_equal(v.v[0].nodes.n, 2);
    assert_string_equal(v.v[0].nodes.v[1], "n2");
    assert_int_equal(v.v[1].nodes.n, 0);
    assert_string_equal(v.v[1].name, "tony-further-application_1_0001");
    assert_string_equal(v.v[2].name, "a|b");
    slurm_helds_done(&v);
}

static void jobs_that_wait_for_nodes(void **state)
{
    (void)state;
    slurm_wanteds v = { 0 };
    static const char text[] =
        "2|Resources|cpu=6,mem=7500M,node=3,billing=6|gres:gpu:1|wrap|\n"
        "3|Priority|cpu=3,mem=1.95G,node=2,billing=3,gres/gpu=3|N/A|a|b|\n"
        "4|None|cpu=1,node=1|gres/gpu:a100:2|tony-further-application_1_0001|\n"
        "5|BeginTime|cpu=1,mem=4000M,node=1|N/A|later|\n"
        "6|Dependency|cpu=1,mem=4000M,node=1|N/A|later|\n"
        "7|Resources|cpu=1,mem=4000M|N/A|no nodes|\n"
        "8|Resources|cpu=1,mem=x,node=0|N/A|no nodes|\n"
        "x|Resources|cpu=1,mem=1M,node=1|N/A|no number|\n"
        "9|Resources\n";
    assert_int_equal(slurm_parse_wanteds(span_of(text), &v), 0);
    assert_int_equal(v.n, 3);
    assert_string_equal(v.v[0].number, "2");
    assert_string_equal(v.v[0].name, "wrap");
    assert_int_equal(v.v[0].nodes, 3);
    assert_int_equal(v.v[0].each.memory_mib, 2500);
    assert_int_equal(v.v[0].each.vcores, 2);
    assert_int_equal(v.v[0].each.gpus, 1);
    assert_string_equal(v.v[1].name, "a|b");
    assert_int_equal(v.v[1].each.memory_mib, 999); /* 1.95 GiB of two nodes, rounded up */
    assert_int_equal(v.v[1].each.vcores, 2);
    assert_int_equal(v.v[1].each.gpus, 2);
    assert_int_equal(v.v[2].each.memory_mib, 0);
    assert_int_equal(v.v[2].each.gpus, 2);
    vec_done(&v);
}

static void a_job_by_its_script(void **state)
{
    (void)state;
    static const char text[] = "11|/home/ada/x.sh\n"
                               "damaged\n"
                               "x|/h/jobs/application_1_0001/script\n"
                               "12|/h/jobs/application_1_0001/script\n"
                               "13+0|/a|b/jobs/application_2_0001/script\n"
                               "13+1|/a|b/jobs/application_2_0001/script\n"
                               "14|\n"
                               "15|(null)\n";
    char number[32];
    assert_true(slurm_find_script(span_of(text), "/jobs/application_1_0001/script", number));
    assert_string_equal(number, "12");
    assert_true(slurm_find_script(span_of(text), "/jobs/application_2_0001/script", number));
    assert_string_equal(number, "13");
    assert_false(slurm_find_script(span_of(text), "/jobs/application_3_0001/script", number));
    assert_string_equal(number, "");
    assert_false(slurm_find_script(span_of(""), "/jobs/application_1_0001/script", number));
}

static void numbers_of_sbatch(void **state)
{
    (void)state;
    static const struct {
        const char *text, *number;
    } cases[] = { { "4711\n", "4711" },
                  { "4711;cluster\n", "4711" },
                  { " 12 ", "12" },
                  { "1\nwarning", "1" },
                  { "", NULL },
                  { "job 12", NULL },
                  { "12x", NULL },
                  { "-1", NULL },
                  { "11111111111111111111111111111111", NULL } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char number[32] = "?";
        int rc = slurm_parse_number(span_of(cases[i].text), number);
        if (!cases[i].number)
            assert_int_equal(rc, -EBADMSG);
        assert_string_equal(number, cases[i].number ? cases[i].number : "?");
    }
}

static void states_of_squeue(void **state)
{
    (void)state;
    struct slurm_state s;
    slurm_parse_state(span_of("PENDING|Resources\nRUNNING|None\n"), &s);
    assert_string_equal(s.state, "PENDING");
    assert_string_equal(s.reason, "Resources");
    assert_false(s.components);
    slurm_parse_state(span_of("PENDING|None|12+0\nPENDING|None|12+1\n"), &s);
    assert_string_equal(s.reason, "None");
    assert_true(s.components);
    slurm_parse_state(span_of("FAILED|JobLaunchFailure|12+1\nPENDING|BeginTime|12+0\n"), &s);
    assert_string_equal(s.state, "PENDING");
    assert_false(s.torn);
    slurm_parse_state(span_of("FAILED|JobLaunchFailure|12+1\nPENDING|Resources|12+0\n"), &s);
    assert_string_equal(s.state, "NODE_FAIL");
    assert_true(s.torn && slurm_state_is_over(s.state));
    slurm_parse_state(span_of("RUNNING|None|12+0\nRUNNING|None|12+1\n"), &s);
    assert_string_equal(s.state, "RUNNING");
    slurm_parse_state(span_of("PENDING|None|12\n"), &s);
    assert_false(s.components);
    static const struct {
        const char *line;
        bool headless;
    } heads[] = {
        { "RUNNING|None|12|n2|n[1-3]\n", false },
        { "RUNNING|None|12|n2|n2\n", false },
        { "RUNNING|None|12|n4|n[1-3]\n", true },
        { "RUNNING|None|12|n1|n[2-3,10]\n", true },
        { "PENDING|Resources|12|n/a|\n", false },
        { "RUNNING|None|12||n[1-2]\n", false },
        { "RUNNING|None|12|n1|\n", false },
        { "COMPLETING|None|12|n1|n2\n", false },
        { "RUNNING|None|12+1|n1|n[2-3]\nRUNNING|None|12+0|n1|n1\n", false },
        { "RUNNING|None|12+1|n4|n4\nRUNNING|None|12+0|n1|n[2-3]\n", true },
    };
    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        slurm_parse_state(span_of(heads[i].line), &s);
        assert_int_equal(s.headless, heads[i].headless);
    }
    slurm_parse_state(span_of(""), &s);
    assert_string_equal(s.state, "");
    assert_true(slurm_state_is_over(s.state));
    slurm_parse_state(span_of("A_STATE_WITH_A_NAME_THAT_IS_TOO_LONG|\x1b[0m"), &s);
    assert_int_equal(strlen(s.state), sizeof s.state - 1);
    assert_null(strchr(s.reason, '\x1b'));
}

static void jobs_of_scontrol(void **state)
{
    (void)state;
    struct slurm_job j;
    char line[400], when[32];
    time_t end = time(NULL) + 3600;
    (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", localtime(&end));
    (void)snprintf(line, sizeof line,
                   "JobId=12 JobName=tony-x UserId=ada(1001) JobState=RUNNING Reason=None "
                   "Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1 EndTime=%s Deadline=N/A "
                   "PreemptTime=None Command=/tmp/x Comment=a JobState=FAILED\n",
                   when);
    assert_int_equal(slurm_parse_job(span_of(line), &j), 0);
    assert_string_equal(j.is.state, "RUNNING");
    assert_int_equal(j.end_s, end);
    assert_int_equal(j.preempt_s, 0);
    assert_int_equal(j.restarts, 2);
    assert_true(j.requeue);
    assert_int_equal(slurm_parse_job(span_of("JobState=RUNNING EndTime=Unknown Restarts=x"), &j),
                     0);
    assert_int_equal(j.end_s, 0);
    assert_int_equal(j.restarts, 0);
    /* components: the first end counts */
    static const char parts[] = "JobState=RUNNING EndTime=2030-01-02T00:00:00 PreemptTime=None\n"
                                "JobState=RUNNING EndTime=2030-01-01T00:00:00 "
                                "PreemptTime=2029-12-31T00:00:00\n";
    assert_int_equal(slurm_parse_job(span_of(parts), &j), 0);
    assert_true(j.preempt_s > 0 && j.end_s - j.preempt_s == 24 * 3600);
    assert_int_equal(slurm_parse_job(span_of("slurm_load_jobs error"), &j), -EBADMSG);
    assert_int_equal(slurm_parse_job(span_of(""), &j), -EBADMSG);
}

/* A batch script that a signal has killed is told from a job that was cancelled. */
static void a_killed_batch_script(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        uint32_t killed;
    } cases[] = {
        { "JobState=COMPLETING Reason=JobLaunchFailure ExitCode=0:9", 9 },
        { "JobState=FAILED Reason=JobLaunchFailure ExitCode=0:9", 9 },
        { "JobState=FAILED Reason=RaisedSignal:9(Killed) ExitCode=0:9", 9 },
        { "JobState=FAILED Reason=NonZeroExitCode ExitCode=1:0", 0 },
        { "JobState=CANCELLED Reason=None ExitCode=0:15", 0 },
        { "JobState=COMPLETING Reason=None ExitCode=0:15", 0 },
        { "JobState=TIMEOUT Reason=TimeLimit ExitCode=0:9", 0 },
        { "JobState=COMPLETING Reason=TimeLimit ExitCode=0:9", 0 },
        { "JobState=OUT_OF_MEMORY Reason=OutOfMemory ExitCode=0:125", 0 },
        { "JobState=PENDING Reason=JobLaunchFailure ExitCode=0:9", 0 },
        { "JobState=FAILED Reason=JobLaunchFailure ExitCode=0:", 0 },
        { "JobState=FAILED Reason=JobLaunchFailure ExitCode=0:x", 0 },
        { "JobState=FAILED Reason=JobLaunchFailure", 0 },
    };
    struct slurm_job j;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(slurm_parse_job(span_of(cases[i].line), &j), 0);
        assert_int_equal(j.killed, cases[i].killed);
    }
}

static void what_an_answer_means(void **state)
{
    (void)state;
    static const struct {
        struct slurm_job j;
        uint32_t run;
        enum slurm_meaning is;
    } cases[] = {
        { { .is = { .state = "RUNNING" } }, 0, SLURM_RUNS },
        { { .is = { .state = "RUNNING" }, .restarts = 1 }, 1, SLURM_RUNS },
        { { .is = { .state = "RUNNING" }, .preempt_s = 5 }, 0, SLURM_PREEMPTS },
        { { .is = { .state = "COMPLETING" } }, 0, SLURM_ENDS },
        { { .is = { .state = "COMPLETING" }, .restarts = 1 }, 0, SLURM_REQUEUES },
        { { .is = { .state = "COMPLETING" }, .restarts = 1 }, 1, SLURM_ENDS },
        { { .is = { .state = "PENDING" }, .restarts = 1 }, 1, SLURM_REQUEUES },
        { { .is = { .state = "REQUEUED" } }, 0, SLURM_REQUEUES },
        { { .is = { .state = "CANCELLED" } }, 0, SLURM_ENDS },
        { { .is = { .state = "TIMEOUT" } }, 0, SLURM_ENDS },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(slurm_meaning_of(&cases[i].j, cases[i].run), cases[i].is);
}

/* ---- a command ---- */

static void a_command_and_its_limit(void **state)
{
    (void)state;
    struct slurm_answer a;
    struct err e = { 0 };
    const char *const fails[] = { "sh", "-c", "cat; echo 'sbatch: error: no' >&2; exit 3", NULL };
    assert_int_equal(slurm_run(fails, "hello", 10000, &a, &e), 0);
    assert_int_equal(a.status, 3);
    assert_string_equal(buf_cstr(&a.out), "hello");
    char *words = slurm_words(&a);
    assert_string_equal(words, "no");
    free(words);
    slurm_answer_done(&a);
    const char *const hangs[] = { "sh", "-c", "exec sleep 100", NULL };
    assert_int_equal(slurm_run(hangs, NULL, 100, &a, &e), -ETIMEDOUT);
    slurm_answer_done(&a);
    const char *const missing[] = { "no-such-command-of-slurm", NULL };
    assert_int_equal(slurm_run(missing, NULL, 1000, &a, &e), -ENOENT);
    slurm_answer_done(&a);
}

/* ---- the size ---- */

enum { NODES_MAX = 3 };

/* The kinds of nodes of a partition, up to the first with n 0. End the list with vec_done(). */
static slurm_nodes nodes_of(const struct slurm_node kinds[static NODES_MAX])
{
    slurm_nodes v = { 0 };
    for (size_t k = 0; k < NODES_MAX && kinds[k].n; k++)
        assert_int_equal(vec_push(&v, kinds[k]), 0);
    return v;
}

static void sizes(void **state)
{
    (void)state;
    static const struct {
        const char *roles;
        struct slurm_node nodes[NODES_MAX];
        uint32_t wanted, spare;
        struct slurm_shape is; /* nodes 0: it does not fit */
    } cases[] = {
        { "tony.worker.instances=4\ntony.worker.memory=1g\n",
          { { 2, 4000, 8, 0 } },
          0,
          0,
          { 2, 3072, 3, 0, 0 } },
        { "tony.worker.instances=4\ntony.worker.memory=1g\n",
          { { 4, 4000, 8, 0 } },
          4,
          0,
          { 4, 1024, 1, 0, 0 } },
        { "tony.worker.instances=4\ntony.worker.memory=1g\n",
          { { 4, 4000, 8, 0 } },
          0,
          1,
          { 3, 3072, 3, 0, 0 } },
        /* a spare node that the partition does not have */
        { "tony.worker.instances=4\ntony.worker.memory=1g\n", { { 2, 4000, 8, 0 } }, 0, 1, { 0 } },
        /* the kind of node that needs fewer nodes */
        { "tony.worker.instances=4\ntony.worker.memory=1g\n",
          { { 9, 1500, 8, 0 }, { 1, 8000, 8, 0 } },
          0,
          0,
          { 1, 4096, 4, 0, 0 } },
        { "tony.worker.instances=2\ntony.worker.memory=1g\ntony.worker.gpus=1\n",
          { { 9, 4000, 8, 0 }, { 1, 4000, 8, 2 } },
          0,
          0,
          { 1, 2048, 2, 2, 0 } },
        { "tony.worker.instances=1\ntony.worker.memory=9g\n", { { 9, 4000, 8, 0 } }, 0, 0, { 0 } },
        { "tony.worker.instances=1\ntony.worker.vcores=9\n", { { 9, 90000, 8, 0 } }, 0, 0, { 0 } },
        { "tony.worker.instances=1\n", { { 0, 0, 0, 0 } }, 0, 0, { 0 } },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[300];
        (void)snprintf(text, sizeof text, CMD "tony.cluster=slurm\n%s", cases[i].roles);
        struct job_spec *s = built(text);
        slurm_nodes v = nodes_of(cases[i].nodes);
        struct slurm_shape is = { 0 };
        struct err e = { 0 };
        int rc = slurm_choose_shape(s, &v, cases[i].wanted, cases[i].spare, &is, &e);
        assert_int_equal(rc, cases[i].is.nodes ? 0 : -ERANGE);
        if (rc < 0)
            assert_true(e.msg[0]);
        assert_int_equal(is.nodes, cases[i].is.nodes);
        assert_int_equal(is.memory_mib, cases[i].is.memory_mib);
        assert_int_equal(is.vcores, cases[i].is.vcores);
        assert_int_equal(is.gpus, cases[i].is.gpus);
        vec_done(&v);
        job_spec_free(s);
    }
}

/* Is a job one allocation, or several components? Each row has the expected number of nodes of each
 * component, in order; 0, and words of the error, if the job must be refused. */
static void components(void **state)
{
    (void)state;
    static const char ps_and_gpus[] = "tony.ps.instances=2\ntony.ps.memory=1g\n"
                                      "tony.worker.instances=2\ntony.worker.memory=3g\n"
                                      "tony.worker.gpus=2\n";
    static const char small_ps[] = "tony.ps.instances=2\ntony.ps.memory=100m\n"
                                   "tony.worker.instances=2\ntony.worker.memory=3g\n"
                                   "tony.worker.gpus=2\n";
    static const struct {
        const char *roles, *more;
        struct slurm_node nodes[NODES_MAX];
        uint32_t n, of[3];
        const char *words;
    } cases[] = {
        /* the ps fit beside the workers, or not */
        { small_ps, "", { { 4, 4000, 8, 2 } }, 1, { 2 }, NULL },
        { ps_and_gpus, "", { { 4, 4000, 8, 2 } }, 2, { 1, 2 }, NULL },
        { ps_and_gpus, "tony.slurm.components=one\n", { { 4, 4000, 8, 2 } }, 1, { 3 }, NULL },
        { ps_and_gpus, "tony.slurm.nodes=4\n", { { 4, 4000, 8, 2 } }, 1, { 4 }, NULL },
        { small_ps, "tony.slurm.components=roles\n", { { 4, 4000, 8, 2 } }, 2, { 1, 2 }, NULL },
        { small_ps,
          "tony.slurm.components=roles\ntony.slurm.spare-nodes=1\n",
          { { 5, 4000, 8, 2 } },
          2,
          { 2, 3 },
          NULL },
        /* no kind of node holds both roles */
        { ps_and_gpus, "", { { 2, 1500, 8, 0 }, { 2, 4000, 8, 2 } }, 2, { 2, 2 }, NULL },
        /* there are too few nodes for two components, and one allocation is possible */
        { ps_and_gpus, "", { { 1, 4000, 8, 2 }, { 2, 4000, 8, 2 } }, 2, { 1, 2 }, NULL },
        { "tony.ps.instances=1\ntony.ps.memory=100m\ntony.worker.instances=2\n"
          "tony.worker.memory=3g\n",
          "tony.slurm.components=roles\n",
          { { 2, 4000, 8, 0 } },
          0,
          { 0 },
          "for the 2 components" },
        { small_ps, "tony.ps.node-label=fat\n", { { 4, 4000, 8, 2 } }, 2, { 1, 2 }, NULL },
        { small_ps,
          "tony.ps.node-label=fat\ntony.slurm.components=one\n",
          { { 4, 4000, 8, 2 } },
          0,
          { 0 },
          "different node labels" },
        { small_ps,
          "tony.ps.node-label=fat\ntony.slurm.nodes=3\n",
          { { 4, 4000, 8, 2 } },
          0,
          { 0 },
          "tony.slurm.nodes can only be used with one component" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(free_p)
        char *text = str_printf(CMD "tony.cluster=slurm\n%s%s", cases[i].roles, cases[i].more);
        struct conf *c = conf_new();
        struct job_spec *s = NULL;
        slurm_nodes v = nodes_of(cases[i].nodes);
        struct slurm_size is = { 0 };
        struct err e = { 0 };
        assert_int_equal(set_lines(c, text, &e), 0);
        assert_int_equal(job_spec_build(c, &s, &e), 0);
        int rc = slurm_choose_size(c, s, &v, &is, &e);
        if (rc != 0 && !cases[i].words)
            fail_msg("case %zu: %s", i, e.msg);
        if (cases[i].words && (rc == 0 || !strstr(e.msg, cases[i].words)))
            fail_msg("case %zu: %d %s", i, rc, e.msg);
        if (rc == 0 && is.n != cases[i].n)
            fail_msg("case %zu has %u components", i, is.n);
        for (uint32_t k = 0; rc == 0 && k < is.n; k++)
            assert_int_equal(is.v[k].nodes, cases[i].of[k]);
        slurm_size_done(&is);
        vec_done(&v);
        job_spec_free(s);
        conf_free(c);
    }
}

/* ---- the script ---- */

static char *script_of(const char *const *pairs)
{
    struct conf *c = conf_new();
    struct job_spec *s = NULL;
    struct err e = { 0 };
    const struct slurm_size shape = { .n = 1, .v = { { 2, 1000, 4, 1, 100 } } };
    struct buf text = { 0 };
    assert_non_null(c);
    for (size_t i = 0; pairs[i]; i += 2)
        assert_int_equal(conf_set(c, CL_JOB, pairs[i], pairs[i + 1], "j:1", false, &e), 0);
    assert_int_equal(conf_set(c, CL_JOB, "tony.worker.instances", "1", "j:1", false, &e), 0);
    assert_int_equal(conf_set(c, CL_JOB, "tony.containers.command", "x", "j:1", false, &e), 0);
    assert_int_equal(job_spec_build(c, &s, &e), 0);
    assert_int_equal(slurm_script(c, s, &shape, "application_1_0001", "/a b/it's", "/p", &text), 0);
    char *copy = str_dup(buf_cstr(&text));
    buf_done(&text);
    job_spec_free(s);
    conf_free(c);
    assert_non_null(copy);
    return copy;
}

static void check_texts(const char *text, const char *const *has, size_t n_has,
                        const char *const *lacks, size_t n_lacks)
{
    for (size_t i = 0; i < n_has && has[i]; i++)
        if (!strstr(text, has[i]))
            fail_msg("it lacks %s in\n%s", has[i], text);
    for (size_t i = 0; i < n_lacks && lacks[i]; i++)
        if (strstr(text, lacks[i]))
            fail_msg("it has %s in\n%s", lacks[i], text);
}

static void lines_of_the_script(void **state)
{
    (void)state;
    static const struct {
        const char *pairs[7];
        const char *has[3], *lacks;
    } cases[] = {
        { { NULL },
          { "#SBATCH --requeue\n", "#SBATCH --signal=B:USR1@", "#SBATCH --gres=gpu:1\n" },
          "--partition" },
        { { "tony.slurm.requeue", "false" }, { "#SBATCH --no-requeue\n" }, "--requeue\n" },
        { { "tony.yarn.queue", "gpu", "tony.application.node-label", "fast" },
          { "#SBATCH --partition=gpu\n", "#SBATCH --constraint=fast\n" },
          NULL },
        { { "tony.yarn.queue", "gpu", "tony.slurm.partition", "p" },
          { "#SBATCH --partition=p\n" },
          "=gpu\n" },
        { { "tony.application.priority", "-7" }, { "#SBATCH --nice=7\n" }, NULL },
        { { "tony.application.priority", "7" }, { "#SBATCH" }, "--nice" },
        { { "tony.slurm.time-limit", "60001" }, { "#SBATCH --time=2\n" }, NULL },
        { { "tony.slurm.gpu-type", "a100" }, { "#SBATCH --gres=gpu:a100:1\n" }, NULL },
        { { "tony.slurm.extra-arguments", "--mail-type=END,--comment=x" },
          { "#SBATCH --mail-type=END\n", "#SBATCH --comment=x\n" },
          NULL },
        { { "tony.application.name", "a b;c\"" }, { "#SBATCH --job-name=tony-a_b_c_\n" }, NULL },
        { { "tony.slurm.account", "a\nrm -rf" }, { "#SBATCH" }, "rm -rf\n" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *text = script_of(cases[i].pairs);
        check_texts(text, cases[i].has, ARRAY_LEN(cases[i].has), &cases[i].lacks, 1);
        assert_non_null(strstr(text, "export TONY_HOME='/a b/it'\\''s'\n"));
        free(text);
    }
}

/* The script of a further allocation says nothing about its nodes: the master gives their number
 * and the excluded nodes to sbatch. */
static void the_further_script(void **state)
{
    (void)state;
    static const char *const has[] = { "#SBATCH --job-name=tony-further-application_1_0001\n",
                                       "#SBATCH --no-requeue\n",
                                       "#SBATCH --gres=gpu:1\n",
                                       "#SBATCH --account=a\n",
                                       "#SBATCH --output=/h/jobs/application_1_0001/further.log\n",
                                       "--node \"$number\"" };
    static const char *const lacks[] = { "#SBATCH --nodes", "#SBATCH --signal",
                                         "#SBATCH --nodelist", "--exclude", "--head" };
    struct conf *c = conf_new();
    struct err e = { 0 };
    const struct slurm_size size = { .n = 1, .v = { { 2, 1000, 4, 1, 100 } } };
    struct buf text = { 0 };
    assert_non_null(c);
    assert_int_equal(conf_set(c, CL_JOB, "tony.slurm.account", "a", "j:1", false, &e), 0);
    assert_int_equal(conf_set(c, CL_JOB, "tony.slurm.nodelist", "n1", "j:1", false, &e), 0);
    assert_int_equal(conf_set(c, CL_JOB, "tony.slurm.exclude", "n9", "j:1", false, &e), 0);
    assert_int_equal(slurm_further_script(c, &size, "application_1_0001", "/h", "/p", &text), 0);
    check_texts(buf_cstr(&text), has, ARRAY_LEN(has), lacks, ARRAY_LEN(lacks));
    buf_done(&text);
    conf_free(c);
}

/* More time for a checkpoint: the notice comes earlier. */
static void the_notice_leaves_time(void **state)
{
    (void)state;
    static const struct {
        const char *pairs[5];
        int seconds;
    } cases[] = {
        { { "tony.task.checkpoint-grace", "10000", "tony.task.kill-grace-ms", "5000" }, 90 },
        { { "tony.task.checkpoint-grace", "100000", "tony.slurm.requeue-at-limit", "true" }, 275 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *text = script_of(cases[i].pairs), *at = strstr(text, "--signal=B:USR1@");
        assert_non_null(at);
        long n = strtol(at + strlen("--signal=B:USR1@"), NULL, 10);
        assert_in_range(n, cases[i].seconds - 5, cases[i].seconds + 30);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_of_sinfo),
        cmocka_unit_test(uses_of_sinfo),
        cmocka_unit_test(names_of_nodes),
        cmocka_unit_test(jobs_of_squeue),
        cmocka_unit_test(jobs_that_wait_for_nodes),
        cmocka_unit_test(a_job_by_its_script),
        cmocka_unit_test(numbers_of_sbatch),
        cmocka_unit_test(states_of_squeue),
        cmocka_unit_test(jobs_of_scontrol),
        cmocka_unit_test(a_killed_batch_script),
        cmocka_unit_test(what_an_answer_means),
        cmocka_unit_test(a_command_and_its_limit),
        cmocka_unit_test(sizes),
        cmocka_unit_test(components),
        cmocka_unit_test(lines_of_the_script),
        cmocka_unit_test(the_further_script),
        cmocka_unit_test(the_notice_leaves_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
