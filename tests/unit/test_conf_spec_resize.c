/* SPDX-License-Identifier: Apache-2.0 */
/* The typed job: restarts, and the keys of a resize. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "conf/conf.h"
#include "conf_spec_world.h"

static void test_restarts(void **state)
{
    (void)state;
    struct job_spec *s = built(CMD ROLE("w", 1));
    const struct role_spec *r = &s->roles[0];
    assert_int_equal(r->restart, RESTART_UNSET);
    assert_int_equal(r->restart_scope, SCOPE_UNSET);
    assert_int_equal(r->max_restarts, 3);
    assert_int_equal(r->restart_window_ms, 0);
    assert_int_equal(r->restart_delay_ms, 0);
    assert_int_equal(r->spares, 0);
    assert_int_equal(s->restarts[END_PREEMPTED], 8);
    assert_int_equal(s->restarts[END_NODE_LOST], 4);
    assert_int_equal(s->restarts[END_EXITED], 0);
    assert_int_equal(s->node_max_failures, 3);
    job_spec_free(s);

    s = built(CMD ROLE("w", 2) "tony.w.restart=On-Failure\ntony.w.restart-scope=job\n"
                               "tony.w.max-restarts=-1\ntony.w.restart-window=60000\n"
                               "tony.w.restart-delay=5\ntony.w.retry-on=3, 10-20\n"
                               "tony.w.no-retry-on=12\ntony.w.spares=2\ntony.w.memory=10m\n"
                               "tony.task.restarts.node-lost=0\n");
    r = &s->roles[0];
    assert_int_equal(r->restart, RESTART_ON_FAILURE);
    assert_int_equal(r->restart_scope, SCOPE_JOB);
    assert_int_equal(r->max_restarts, -1);
    assert_int_equal(r->restart_window_ms, 60000);
    assert_int_equal(r->restart_delay_ms, 5);
    assert_int_equal(r->retry_on.n, 2);
    assert_int_equal(r->retry_on.v[1].from, 10);
    assert_int_equal(r->retry_on.v[1].to, 20);
    assert_int_equal(r->no_retry_on.v[0].to, 12);
    assert_int_equal(s->restarts[END_NODE_LOST], 0);
    struct job_demand d;
    job_spec_demand(s, &d);
    assert_int_equal(d.n_containers, 4); /* spares need containers, too */
    assert_int_equal(d.memory_mib, 40);
    job_spec_free(s);

    static const char *const bad[] = { "x", "256", "5-3", "-1", "3-", "1 2" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err e = { 0 };
        AUTO(free_p) char *text = str_printf("%stony.w.retry-on=%s\n", CMD ROLE("w", 1), bad[i]);
        if (build(text, &s, &e) == 0 || !strstr(e.msg, "exit code") || !strstr(e.msg, "j:"))
            fail_msg("'%s': %s", bad[i], e.msg);
    }
}

static void test_resize_keys(void **state)
{
    (void)state;
    struct job_spec *s = built(CMD ROLE("w", 2));
    const struct role_spec *r = &s->roles[0];
    assert_int_equal(r->resize, RESIZE_UNSET);
    assert_int_equal(r->min_instances, 1);
    assert_null(r->resume_command);
    assert_int_equal(s->resize_timeout_ms, 600000);
    assert_int_equal(s->am.min_instances, 1);
    job_spec_free(s);

    s = built(CMD ROLE("w", 3) "tony.w.resize=Never\ntony.w.min-instances=3\n"
                               "tony.w.max-instances=3\ntony.w.resume-command= go on \n"
                               "tony.resize.timeout=0\n");
    r = &s->roles[0];
    assert_int_equal(r->resize, RESIZE_NEVER);
    assert_int_equal(r->min_instances, 3);
    assert_string_equal(r->resume_command, "go on");
    assert_string_equal(r->command, "x");
    assert_int_equal(s->resize_timeout_ms, 0);
    job_spec_free(s);

    s = built(CMD ROLE("w", 1) "tony.w.resume-command=  \n");
    /* An empty command does not count: the other command is run. */
    assert_null(s->roles[0].resume_command);
    job_spec_free(s);

    static const char *const bad[] = { "resize=sometimes",    "resize=",
                                       "min-instances=0",     "min-instances=-1",
                                       "min-instances=1.5",   "min-instances=99999999999999999999",
                                       "min-instances=100001" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err e = { 0 };
        AUTO(free_p) char *text = str_printf("%stony.w.%s\n", CMD ROLE("w", 1), bad[i]);
        if (build(text, &s, &e) == 0)
            fail_msg("'%s' is taken", bad[i]);
    }
    struct err e = { 0 };
    assert_true(build(CMD ROLE("w", 1) "tony.resize.timeout=-1\n", &s, &e) < 0);
    /* refused: tony.resize.* would be ambiguous. */
    assert_true(build(CMD ROLE("resize", 1), &s, &e) < 0);
}

/* The resize policy that a framework implies if the job file has none. */
static void test_resize_policies(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *role;
        enum resize_policy policy;
        bool warned;
    } rows[] = {
        { "tony.application.framework=pytorch\n" ROLE("worker", 2), "worker", RESIZE_RESTART,
          false },
        { "tony.application.framework=pytorch\ntony.worker.resize=never\n" ROLE("worker", 2),
          "worker", RESIZE_NEVER, false },
        { "tony.application.framework=pytorch\ntony.worker.resize=live\n" ROLE("worker", 2),
          "worker", RESIZE_LIVE, true },
        { "tony.application.framework=generic\n" ROLE("w", 2), "w", RESIZE_LIVE, false },
        { "tony.application.framework=generic\ntony.w.resize=restart\n" ROLE("w", 2), "w",
          RESIZE_RESTART, false },
        { "tony.application.framework=dask\n" ROLE("scheduler", 1) ROLE("worker", 2)
              ROLE("main", 1),
          "worker", RESIZE_LIVE, false },
        { "tony.application.framework=dask\n" ROLE("scheduler", 1) ROLE("worker", 2)
              ROLE("main", 1),
          "scheduler", RESIZE_RESTART, false },
        { ROLE("ps", 1) ROLE("worker", 2), "worker", RESIZE_RESTART, false },
        { ROLE("ps", 1) ROLE("worker", 2) "tony.application.distributed-mode=FCFS\n", "worker",
          RESIZE_LIVE, false },
        { ROLE("w", 2) "tony.application.tensorboard-log-dir=d\n", "tensorboard", RESIZE_NEVER,
          false },
        { ROLE("w", 2) "tony.application.enable-preprocess=true\n", "preprocess", RESIZE_NEVER,
          false },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO(free_p) char *text = str_printf("%s%s", CMD, rows[i].lines);
        struct job_spec *s = built(text);
        const struct role_spec *r = job_spec_role(s, rows[i].role);
        assert_non_null(r);
        if (role_spec_resize(s, r) != rows[i].policy)
            fail_msg("row %zu: %s", i, resize_policy_name(role_spec_resize(s, r)));
        bool warned = s->warnings.n && strstr(s->warnings.v[0], "do not notice new peers");
        if (warned != rows[i].warned)
            fail_msg("row %zu: %s", i, s->warnings.n ? s->warnings.v[0] : "no warning");
        job_spec_free(s);
    }
    struct job_spec *s = built(CMD);
    assert_int_equal(role_spec_resize(s, &s->am), RESIZE_NEVER);
    job_spec_free(s);
}

static void test_the_roles_of_the_peak(void **state)
{
    (void)state;
    static const struct {
        uint32_t instances[3]; /* of the roles prep, train and tb */
        const char *counts;
    } rows[] = { { { 1, 2, 1 }, "prep tb" },
                 { { 1, 4, 1 }, "train tb" },
                 { { 0, 1, 1 }, "train tb" } };
    struct job_spec *s = built(CMD ROLE("prep", 1) ROLE("train", 2) ROLE(
        "tb", 1) "tony.prep.memory=15g\ntony.train.memory=5g\ntony.train.depends-on=prep\n");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        bool counts[3] = { false };
        AUTO(buf_done) struct buf names = { 0 };
        job_spec_peak_roles(s, rows[i].instances, counts);
        for (size_t k = 0; k < 3; k++)
            if (counts[k])
                (void)buf_addf(&names, "%s%s", names.len ? " " : "", s->roles[k].name);
        assert_string_equal(buf_cstr(&names), rows[i].counts);
    }
    job_spec_free(s);
}

static void test_allowed_and_refused_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *lines;
        uint32_t target[3];
        const char *refusal; /* NULL = allowed */
    } rows[] = {
        { ROLE("w", 2), { 1 }, NULL },
        { ROLE("w", 2) "tony.application.framework=generic\n", { 100000 }, NULL },
        { ROLE("w", 2), { 100000 }, "needs CLUSTER_SPEC with at least" },
        { ROLE("w", 2), { 0 }, "role 'w' cannot have 0 instances: tony.w.min-instances is 1" },
        { ROLE("w", 2), { 100001 }, "the job would have more than 100000 tasks in all" },
        { ROLE("w", 2) ROLE("v", 2), { 100000, 1 }, "more than 100000 tasks" },
        { ROLE("w", 2), { UINT32_MAX }, "more than 100000 tasks" },
        { ROLE("w", 2) "tony.w.min-instances=2\n", { 1 }, "tony.w.min-instances is 2" },
        { ROLE("w", 2) "tony.w.max-instances=4\n", { 4 }, NULL },
        { ROLE("w", 2) "tony.w.max-instances=4\n", { 5 }, "tony.w.max-instances is 4" },
        { ROLE("w", 2) "tony.w.resize=never\n", { 3 }, "tony.w.resize is 'never'" },
        { ROLE("w", 2) "tony.w.resize=never\n", { 2 }, NULL },
        { ROLE("w", 2) ROLE("v", 1) "tony.task.max-total-instances=4\n", { 2, 2 }, NULL },
        { ROLE("w", 2) ROLE("v", 1) "tony.task.max-total-instances=4\n",
          { 3, 2 },
          "the job would have 5 tasks in all: tony.task.max-total-instances is 4" },
        { ROLE("w", 2) "tony.w.gpus=2\ntony.task.max-total-gpus=4\n", { 3 }, "6 gpus in all" },
        { ROLE("w", 2) "tony.task.max-total-gpus=0\n", { 3 }, NULL },
        { ROLE("w", 1) "tony.application.framework=standalone\n", { 2 }, "exactly one task" },
        { ROLE("head", 1) ROLE("w", 1) "tony.application.framework=ray\n", { 2, 1 }, "one task" },
        { ROLE("w", 1) "tony.application.enable-preprocess=true\n", { 1, 2 }, "'preprocess'" },
        { ROLE("w", 1) "tony.application.enable-preprocess=true\n", { 2, 1 }, NULL },
        { "", { 2 }, "a job without roles has one task" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = { 0 };
        AUTO(free_p) char *text = str_printf("%s%s", CMD, rows[i].lines);
        struct job_spec *s = built(text);
        uint32_t now[3] = { 0 };
        for (size_t k = 0; k < s->n_roles; k++)
            now[k] = s->roles[k].instances;
        int rc = job_spec_check_size(s, now, rows[i].target, &e);
        if (rc != (rows[i].refusal ? -EINVAL : 0) ||
            (rows[i].refusal && !strstr(e.msg, rows[i].refusal)))
            fail_msg("row %zu: %d %s", i, rc, e.msg);
        job_spec_free(s);
    }
}

/* A job file of a version without restarts is read as a job without restarts. */
static void test_jobs_of_older_versions(void **state)
{
    struct conf *c;
    struct err e = { 0 };
    struct job_spec *s;
    (void)state;
    assert_int_equal(conf_decode(span_of("[[\"tony.w.instances\",\"1\",3,\"j\",false],"
                                         "[\"tony.containers.command\",\"true\",3,\"j\",false]]"),
                                 &c, &e),
                     0);
    assert_int_equal(job_spec_build(c, &s, &e), 0);
    assert_int_equal(s->restarts[END_NODE_LOST], 0);
    assert_int_equal(s->restarts[END_PREEMPTED], 0);
    job_spec_free(s);
    conf_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restarts),
        cmocka_unit_test(test_resize_keys),
        cmocka_unit_test(test_resize_policies),
        cmocka_unit_test(test_the_roles_of_the_peak),
        cmocka_unit_test(test_allowed_and_refused_sizes),
        cmocka_unit_test(test_jobs_of_older_versions),
    };
    return cmocka_run_group_tests_name("conf_spec", tests, NULL, NULL);
}
