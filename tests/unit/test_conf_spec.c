/* SPDX-License-Identifier: Apache-2.0 */
/* The typed job: roles, kinds, commands, stages, caps, groups, demand; and each kind of job that is
 * refused. */
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

/* Prints "worker:2 T ! <ps; ": role:instances, kind (T U S), ! = stop on failure, < = the roles it
 * waits for. */
static void print_roles(const struct job_spec *s, struct buf *b)
{
    static const char kinds[] = {
        [ROLE_TRACKED] = 'T', [ROLE_UNTRACKED] = 'U', [ROLE_SIDECAR] = 'S'
    };
    for (size_t i = 0; i < s->n_roles; i++) {
        const struct role_spec *r = &s->roles[i];
        assert_int_equal(0, buf_addf(b, "%s:%u %c%s", r->name, r->instances, kinds[r->kind],
                                     r->stop_on_failure ? "!" : ""));
        for (size_t k = 0; k < r->n_waits_for; k++)
            assert_int_equal(0, buf_addf(b, "<%s", s->roles[r->waits_for[k]].name));
        for (size_t k = 0; k < r->n_needs; k++)
            assert_int_equal(0, buf_addf(b, "+%s", s->roles[r->needs[k]].name));
        for (size_t k = 0; k < r->n_gates; k++)
            assert_int_equal(0, buf_addf(b, "%c%s", r->gates[k].ready ? '^' : '~',
                                         s->roles[r->gates[k].role].name));
        for (size_t k = 0; k < r->n_stops; k++)
            assert_int_equal(0, buf_addf(b, "/%s", s->roles[r->stops[k]].name));
        if (r->ready)
            assert_int_equal(0, buf_addf(b, " %s", r->ready));
        assert_int_equal(0, buf_adds(b, "; "));
    }
}

static void test_roles(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *roles;
    } cases[] = {
        { CMD ROLE("worker", 2), "worker:2 T; " },
        { CMD ROLE("zeta", 1) ROLE("alpha", 2) ROLE("ps", 1), "zeta:1 T; alpha:2 T; ps:1 U!; " },
        { CMD ROLE("worker", 2) ROLE("ps", 0), "worker:2 T; " },
        { CMD ROLE("worker", 2) "tony.ps.memory=1g\n", "worker:2 T; " },
        { CMD ROLE("w1", 1) ROLE("a-b_c", 1), "w1:1 T; a-b_c:1 T; " },
        { CMD ROLE("worker", 1) ROLE("tensorboard", 1), "worker:1 T; tensorboard:1 S; " },
        { CMD ROLE("worker", 1) ROLE("eval", 1) "tony.application.untracked.jobtypes=eval\n",
          "worker:1 T; eval:1 U; " },
        { CMD ROLE("worker", 1) ROLE("ps", 1) "tony.application.untracked.jobtypes=\n",
          "worker:1 T; ps:1 T!; " },
        { CMD ROLE("worker", 1)
              ROLE("ps", 1) "tony.application.untracked.jobtypes=\ntony.application.stop-on-"
                            "failure-jobtypes=worker, nobody\n",
          "worker:1 T!; ps:1 T; " },
        { CMD ROLE("worker", 1) ROLE("ps", 1) "tony.application.sidecar.jobtypes=ps\n",
          "worker:1 T; ps:1 U!; " }, /* the role is in both lists: its failure counts */
        { CMD ROLE("worker", 1) "tony.application.tensorboard-log-dir=/logs\n",
          "worker:1 T; tensorboard:1 S; " },
        { CMD ROLE("worker", 1)
              ROLE("tensorboard", 3) "tony.application.tensorboard-log-dir=/logs\n",
          "worker:1 T; tensorboard:1 S; " },
        /* stages */
        { CMD ROLE("a", 1) ROLE("b", 1) ROLE("c", 1) "tony.application.prepare-stage=a,b\n",
          "a:1 T; b:1 T; c:1 T<a<b; " },
        { CMD ROLE("a", 1) ROLE("b", 1) ROLE("c", 1) "tony.application.training-stage=a\n",
          "a:1 T<b<c; b:1 T; c:1 T; " },
        { CMD ROLE("a", 1) ROLE(
              "b", 1) "tony.application.training-stage=a\ntony.application.prepare-stage= b , b\n",
          "a:1 T<b; b:1 T; " },
        { CMD ROLE("a", 1) ROLE("ps", 1) ROLE("c", 1) "tony.application.prepare-stage=a,ps\n",
          "a:1 T; ps:1 U!; c:1 T<a; " }, /* no role waits for an untracked one */
        { CMD ROLE("w", 1) ROLE("ps", 1) "tony.application.prepare-stage=ps\n",
          "w:1 T; ps:1 U!; " },
        { CMD ROLE("a", 1) ROLE("b", 1) "tony.application.prepare-stage=a\n"
                                        "tony.application.tensorboard-log-dir=/l\n",
          "a:1 T; b:1 T<a; tensorboard:1 S; " },
        { CMD ROLE("a", 1)
              ROLE("b", 1) "tony.application.prepare-stage=a\ntony.application.training-stage=b\n"
                           "tony.application.tensorboard-log-dir=/l\n",
          "a:1 T; b:1 T<a; tensorboard:1 S; " },
        { CMD ROLE("a", 1) ROLE("b", 1) ROLE("c", 1) "tony.b.depends-on=a\ntony.c.depends-on=b,a\n",
          "a:1 T; b:1 T<a; c:1 T<b<a; " },
        { CMD ROLE("a", 1) ROLE("b", 1) "tony.application.prepare-stage=a\ntony.b.depends-on=a\n",
          "a:1 T; b:1 T<a; " },
        { CMD ROLE("a", 1) "tony.gone.depends-on=nobody\n", "a:1 T; " },
        /* conditions: + succeeded, ~ started, ^ ready; / = stops these roles */
        { CMD ROLE("a", 1) ROLE("b", 1) ROLE("c", 1) "tony.b.depends-on=a:completed\n"
                                                     "tony.c.depends-on=a:succeeded, b:started\n",
          "a:1 T; b:1 T<a; c:1 T<a+a~b; " },
        { CMD ROLE("a", 1) ROLE("b", 1) "tony.b.depends-on=a:started,a:ready,a:started\n",
          "a:1 T port; b:1 T^a; " },
        { CMD ROLE("a", 1) ROLE("b", 1) ROLE("c", 1) ROLE(
              "d", 1) "tony.d.depends-on=c:ready\ntony.c.depends-on=b:ready\ntony.b.depends-on=a\n"
                      "tony.b.ready=file:a/b\ntony.a.ready=word\ntony.c.ready=port:80\n",
          "a:1 T word; b:1 T<a file:a/b; c:1 T<a^b port:80; d:1 T<a^c; " },
        { CMD ROLE("a", 1) ROLE("b", 1) ROLE("c", 1) "tony.a.stops=c,b,c\n",
          "a:1 T/c/b; b:1 T; c:1 T; " },
        { CMD, "" },
        { CMD ROLE("worker", 0), "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf b = { 0 };
        struct job_spec *s = built(cases[i].lines);
        print_roles(s, &b);
        if (strcmp(buf_cstr(&b), cases[i].roles) != 0)
            fail_msg("%s gives %s", cases[i].lines, buf_cstr(&b));
        buf_done(&b);
        job_spec_free(s);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *sentence, *hint;
    } cases[] = {
        { CMD ROLE("worker", 1) "tony.port-range=20000\n",
          "j:3: tony.port-range must be a range such as 20000-20999, not '20000'", "" },
        { CMD ROLE("worker", 1) "tony.port-range=20000-19000\n",
          "j:3: tony.port-range: the first number, 20000, is larger than the last, 19000", "" },
        { CMD ROLE("worker", 1) "tony.port-range=1000-2000\n",
          "j:3: tony.port-range must be at least 1024, not 1000", "" },
        { CMD ROLE("worker", 1) "tony.port-range=20000-20014\n",
          "j:3: 'tony.port-range' has 15 ports; it needs 16 or more", "" },
        { "", "the job has neither a role with instances nor a command", "command:" },
        { "tony.worker.memory=1g\n", "j:1: the job has neither a role", "" },
        { "tony.containers.command= \n", "j:1: the job has neither a role", "" },
        { ROLE("worker", 2), "j:1: role 'worker' has no command", "tony.worker.command" },
        { CMD ROLE("a", 1) ROLE("b", 1) "tony.application.training-stage=a,chief\n",
          "j:4: 'tony.application.training-stage' names role 'chief', which has no instances",
          "tony.chief.instances" },
        { CMD ROLE("worker", 1) "tony.application.prepare-stage=wroker\n",
          "j:3: 'tony.application.prepare-stage' names role 'wroker'", "did you mean 'worker'?" },
        { CMD ROLE("a", 1)
              ROLE("b", 1) "tony.application.training-stage=a\ntony.application.prepare-stage=a\n",
          "j:4: role 'a' is in both the prepare and the training stage", "" },
        { CMD ROLE("a", 1) ROLE("b", 1)
              ROLE("c", 1) "tony.application.training-stage=a\ntony.application.prepare-stage=b\n",
          "j:5: role 'c' is in neither the prepare nor the training stage", "" },
        { CMD ROLE("a", 1) "tony.a.depends-on=b\n", "j:3: 'tony.a.depends-on' names role 'b'",
          "tony.b.instances" },
        { CMD ROLE("a", 1) ROLE("b", 1) "tony.a.depends-on=b:redy\n",
          "j:4: 'a' cannot wait for 'b' to be 'redy'", "b:ready" },
        { CMD ROLE("a", 1) ROLE("b", 1) "tony.a.depends-on=b:\n", "j:4: 'a' cannot wait for", "" },
        { CMD ROLE("a", 1) ROLE("b", 1) "tony.a.depends-on=b:ready\ntony.b.depends-on=a:started\n",
          "j:4: the roles are not a DAG", "" },
        { CMD ROLE("a", 1) "tony.a.ready=port:70000\n",
          "j:3: 'port:70000' is not a valid condition", "port:8080" },
        { CMD ROLE("a", 1) "tony.a.ready=file:\n", "j:3: 'file:' is not a valid condition", "" },
        { CMD ROLE("a", 1) "tony.a.ready=soon\n",
          "j:3: 'soon' is not a valid condition for 'ready'", "" },
        { CMD ROLE("a", 1) "tony.a.stops=a\n", "j:3: role 'a' cannot stop itself", "" },
        { CMD ROLE("a", 1) "tony.a.stops=b\n", "j:3: 'tony.a.stops' names role 'b'", "" },
        { CMD ROLE("a", 1) "tony.a.depends-on=a\n",
          "j:3: the roles are not a DAG, so none of them could start: "
          "'a' waits for 'a'",
          "" },
        { CMD ROLE("a", 1) ROLE("b", 1) ROLE("c", 1)
              ROLE("d", 1) "tony.a.depends-on=b\ntony.b.depends-on=c\ntony.c.depends-on=d,b\n",
          "j:7: the roles are not a DAG, so none of them could start: 'b' waits for 'c' waits for "
          "'b'",
          "" },
        { CMD ROLE("a", 1) ROLE("b", 1) "tony.application.prepare-stage=a\ntony.a.depends-on=b\n",
          "j:5: the roles are not a DAG", "stages" },
        { CMD ROLE("ps", 1),
          "j:2: the job would never end: it waits for none of its roles ('ps' is untracked)",
          "jobtypes" },
        { CMD "tony.application.tensorboard-log-dir=/l\n",
          "the job would never end: it waits for none of its roles ('tensorboard' is a sidecar)",
          "" },
        { CMD ROLE("foo", 2) "tony.foo.max-instances=1\n",
          "j:3: role 'foo' has 2 instances, which exceeds the 1 of tony.foo.max-instances",
          "raise" },
        { CMD ROLE("foo", 2) "tony.foo.min-instances=3\n",
          "j:3: role 'foo' has 2 instances, fewer than the 3 of tony.foo.min-instances", "lower" },
        { CMD ROLE("foo", 2) "tony.foo.min-instances=2\ntony.foo.max-instances=1\n",
          "j:4: role 'foo' has 2 instances, which exceeds the 1", "raise" },
        { CMD ROLE("w", 1) "tony.application.tensorboard-log-dir=d\ntony.tensorboard.resize=live\n",
          "j:4: role 'tensorboard' cannot be resized: a job has one TensorBoard", "never" },
        { CMD ROLE("w", 1) "tony.application.enable-preprocess=true\ntony.preprocess.resize=live\n",
          "j:4: role 'preprocess' cannot be resized: preprocessing is one task", "never" },
        { CMD ROLE("w", 1) "tony.application.enable-preprocess=true\n"
                           "tony.preprocess.min-instances=2\n",
          "j:4: role 'preprocess' cannot have 2 tasks: preprocessing is one task", "" },
        { CMD ROLE("w", 2) "tony.application.framework=horovod\ntony.driver.command=x\n"
                           "tony.horovod.driver.mode.debug=true\ntony.driver.resize=restart\n",
          "j:6: role 'driver' cannot be resized: Horovod has one driver", "never" },
        { CMD ROLE("a", 2) ROLE("b", 2) "tony.task.max-total-instances=3\n",
          "j:4: the job asks for 4 tasks in all, which exceeds the 3 of "
          "tony.task.max-total-instances",
          "raise" },
        { CMD ROLE("a", 2) "tony.a.gpus=5\ntony.task.max-total-gpus=5\n",
          "j:4: the job asks for 10 gpus in all, which exceeds the 5 of tony.task.max-total-gpus",
          "" },
        { CMD ROLE("a", 1)
              ROLE("b", 1) "tony.a.gpus=3\ntony.b.gpus=3\ntony.task.max-total-gpus=5\n",
          "j:6: the job asks for 6 gpus in all, which exceeds the 5", "" },
        { CMD ROLE("a", 2) "tony.task.max-total-memory=4095\n",
          "j:3: the job asks for 4096 MiB of memory in all, which exceeds the 4095", "" },
        { CMD ROLE("a", 2) "tony.a.vcores=3\ntony.task.max-total-vcores=5\n",
          "j:4: the job asks for 6 vcores in all", "" },
        { CMD ROLE("a", 1) "tony.task.max-total-instances=0\n",
          "j:3: the job asks for 1 tasks in all", "" },
        { CMD ROLE("a", 60000) ROLE("b", 60000), "j:3: the job has more than 100000 tasks in all",
          "" },
        { CMD ROLE("worker", 1) ROLE("slave", 1) "tony.application.framework=standalone\n",
          "j:4: framework 'standalone' runs exactly one task, not 2", "generic" },
        { CMD ROLE("worker", 2) "tony.application.framework=STANDALONE\n",
          "j:3: framework 'standalone' runs exactly one task, not 2", "" },
        { CMD ROLE("preprocess", 1) "tony.application.enable-preprocess=true\n",
          "j:3: role 'preprocess' cannot have this name", "another name" },
        { ROLE("w", 1) "tony.w.command=x\ntony.application.enable-preprocess=true\n",
          "j:3: 'tony.application.enable-preprocess' has no command to run", "tony.am.command" },
        { CMD "tony.application.name=\n", "j:2: the name of the job is empty", "" },
        { CMD "tony.application.name=a\tb\n", "j:2: the name of the job has a control character",
          "" },
        { CMD "tony.containers.resources=a,b::c::d\n",
          "j:2: resource 'b::c::d' has more than one '::'", "SRC" },
        { CMD ROLE("w", 1) "tony.w.resources=::x\n", "j:3: resource '::x' names no file", "" },
        { CMD ROLE("w", 1) "tony.application.dependency.w.timeout.after.G=5\n",
          "j:3: 'tony.application.dependency.w.timeout.after.G' names group 'G', which is not "
          "defined",
          "tony.application.group.G" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = { 0 };
        struct job_spec *s = NULL;
        int rc = build(cases[i].lines, &s, &e);
        if (rc != -EINVAL && rc != -ENOTSUP)
            fail_msg("%s gives %d %s", cases[i].lines, rc, e.msg);
        assert_null(s);
        if (!str_starts(e.msg, cases[i].sentence) || !strstr(e.hint, cases[i].hint))
            fail_msg("%s gives '%s' hint '%s'", cases[i].lines, e.msg, e.hint);
    }
}

static void test_many_roles(void **state)
{
    (void)state;
    struct buf b = { 0 };
    struct err e = { 0 };
    struct job_spec *s = NULL;
    assert_int_equal(0, buf_adds(&b, CMD));
    for (int i = 0; i < 2000; i++)
        assert_int_equal(0, buf_addf(&b, "tony.r%d.instances=1\n", i));
    assert_int_equal(0, build(buf_cstr(&b), &s, &e));
    assert_int_equal(s->n_roles, 2000);
    job_spec_free(s);
    s = NULL;
    assert_int_equal(0, buf_adds(&b, "tony.one-more.instances=1\n"));
    assert_int_equal(-EINVAL, build(buf_cstr(&b), &s, &e));
    assert_string_equal(e.msg, "j:2002: the job has more than 2000 roles");
    buf_done(&b);
}

static void test_caps_that_fit(void **state)
{
    (void)state;
    static const char *const cases[] = {
        CMD ROLE("foo", 2) "tony.foo.max-instances=2\n",
        CMD ROLE("foo", 2) "tony.foo.max-instances=-1\n",
        CMD ROLE("a", 4) "tony.task.max-total-instances=10\n", /* TonY counts 16 instances here and
                                                                  refuses the job */
        CMD ROLE("a", 2) ROLE("b", 2) "tony.task.max-total-instances=4\n",
        CMD ROLE("a", 1) "tony.a.gpus=5\ntony.task.max-total-gpus=10\n",
        CMD ROLE("a", 2) "tony.task.max-total-memory=4096\n",
        CMD ROLE("a", 2) "tony.task.max-total-fpgas=0\n",
        CMD "tony.task.max-total-instances=0\n",
        CMD ROLE("worker", 1) "tony.application.framework=standalone\n",
        CMD ROLE(
            "worker",
            1) "tony.application.framework=standalone\ntony.application.tensorboard-log-dir=/l\n",
        CMD "tony.application.framework=standalone\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        job_spec_free(built(cases[i]));
}

static void test_sizes_and_commands(void **state)
{
    (void)state;
    struct job_spec *s = built("tony.containers.command= all \n" ROLE("worker", 2) ROLE(
        "ps", 1) "tony.worker.memory=512m\ntony.worker.vcores=0\ntony.worker.gpus=2\n"
                 "tony.ps.command=own\ntony.worker.env=A=1,B=2\ntony.worker.resources=r.txt\n"
                 "tony.containers.resources=a.zip::x#archive,b\ntony.containers.envs=C=3\n"
                 "tony.execution.envs=[D=4, E]\ntony.worker.max-instances=5\n"
                 "tony.am.memory=1g\ntony.am.command=am\n");
    const struct role_spec *w = job_spec_role(s, "worker"), *ps = job_spec_role(s, "ps");
    assert_int_equal(w->memory_mib, 512);
    assert_string_equal(w->memory_origin, "j:4");
    assert_int_equal(w->vcores, 0);
    assert_int_equal(w->gpus, 2);
    assert_int_equal(w->max_instances, 5);
    assert_string_equal(w->command, "all");
    assert_int_equal(w->env.n, 2);
    assert_string_equal(strv_env_get(&w->env, "B"), "2");
    assert_int_equal(w->n_resources, 1);
    assert_string_equal(ps->command, "own");
    assert_int_equal(ps->memory_mib, 2048);
    assert_string_equal(ps->memory_origin, "default");
    assert_int_equal(ps->env.n, 0);
    assert_int_equal(s->n_resources, 2);
    assert_true(s->resources[0].archive);
    assert_string_equal(s->resources[0].name, "x");
    assert_string_equal(strv_env_get(&s->container_env, "C"), "3");
    assert_string_equal(strv_env_get(&s->execution_env, "E"), "");
    assert_int_equal(s->n_tasks, 3);
    assert_false(s->single_node);
    assert_int_equal(job_spec_role(s, "am")->memory_mib, 1024);
    assert_string_equal(s->am.command, "am");
    assert_null(job_spec_role(s, "nobody"));
    job_spec_free(s);
}

static void test_single_node(void **state)
{
    (void)state;
    struct job_demand d;
    struct job_spec *s =
        built("tony.containers.command=all\ntony.am.memory=3g\ntony.am.gpus=1\ntony.am.vcores=2\n");
    assert_true(s->single_node);
    assert_int_equal(s->n_tasks, 1);
    assert_int_equal(s->n_roles, 0);
    assert_string_equal(s->am.command, "all");
    job_spec_demand(s, &d);
    assert_int_equal(d.memory_mib, 3072);
    assert_int_equal(d.gpus, 1);
    assert_int_equal(d.vcores, 2);
    assert_int_equal(d.n_containers, 1);
    assert_int_equal(d.largest_memory_mib, 3072);
    assert_int_equal(d.largest_gpus, 1);
    job_spec_free(s);
    s = built("tony.am.command=own\n");
    assert_string_equal(s->am.command, "own");
    job_spec_free(s);
    s = built("tony.containers.command=x\ntony.worker.memory=1g\n");
    assert_true(s->single_node);
    assert_int_equal(s->warnings.n, 1);
    assert_string_equal(
        s->warnings.v[0],
        "j:2: role 'worker' has no instances, so its settings have no effect; the command runs "
        "alone");
    job_spec_free(s);
}

static void test_roles_that_are_no_part_of_the_job(void **state)
{
    (void)state;
    static const struct {
        const char *text, *warning; /* NULL = none */
    } rows[] = {
        { CMD ROLE("w", 1) "tony.ps.memory=1g\ntony.ps.vcores=2\n",
          "j:3: role 'ps' has no instances, so its settings have no effect" },
        { CMD ROLE("w", 1) "tony.ps.instances=0\ntony.ps.memory=1g\n", NULL },
        { CMD ROLE("w", 1) "tony.w.memory=1g\ntony.am.memory=1g\n", NULL },
        { CMD "tony.ps.command=x\n",
          "j:2: role 'ps' has no instances, so its settings have no effect; "
          "the command runs alone" },
        { CMD "tony.application.tensorboard-log-dir=d\ntony.tensorboard.vcores=1\n" ROLE("w", 1),
          NULL },
        { CMD ROLE("ps", 1) ROLE("w", 1) "tony.w.depends-on=ps\n",
          "j:4: role 'w' waits for the end of 'ps', which is untracked: it must end by itself" },
        { CMD ROLE("tensorboard", 1) ROLE("w", 1) "tony.w.depends-on=tensorboard\n",
          "j:4: role 'w' waits for the end of 'tensorboard', which is a sidecar: it must end by "
          "itself" },
        { CMD ROLE("v", 1) ROLE("w", 1) "tony.w.depends-on=v\n", NULL },
        { CMD ROLE("ps", 1) ROLE("w", 1) "tony.w.depends-on=ps:ready\n", NULL },
        { CMD ROLE("ps", 1) ROLE("w", 1) ROLE("v", 1) "tony.v.depends-on=ps\ntony.w.stops=ps\n",
          NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct job_spec *s = built(rows[i].text);
        size_t n = rows[i].warning ? 1 : 0;
        if (s->warnings.n != n || (n && strcmp(s->warnings.v[0], rows[i].warning) != 0))
            fail_msg("row %zu: %zu warnings: %s", i, s->warnings.n,
                     s->warnings.n ? s->warnings.v[0] : "none");
        job_spec_free(s);
    }
}

static void test_numbers(void **state)
{
    (void)state;
    struct job_spec *s = built(CMD ROLE("w", 1));
    assert_string_equal(s->name, "TensorFlowApplication");
    assert_string_equal(s->framework, "tensorflow");
    assert_string_equal(s->cluster, "local");
    assert_string_equal(s->queue, "default");
    assert_true(s->gang);
    assert_int_equal(s->app_timeout_ms, 0);
    assert_int_equal(s->allocation_timeout_ms, 0);
    assert_int_equal(s->registration_timeout_ms, 0);
    assert_int_equal(s->execution_timeout_ms, 0);
    assert_int_equal(s->heartbeat_ms, 1000);
    assert_int_equal(s->max_missed_heartbeats, 25);
    assert_int_equal(s->client_away_ms, 60000);
    assert_int_equal(s->kill_grace_ms, 5000);
    assert_int_equal(s->master_away_ms, 600000);
    assert_int_equal(s->stderr_lines, 20);
    assert_null(s->src);
    assert_int_equal(s->warnings.n, 0);
    job_spec_free(s);
    s = built(CMD ROLE(
        "worker",
        1) "tony.application.distributed-mode= fcfs\ntony.application.framework=PyTorch\n"
           "tony.application.timeout=7\ntony.container.allocation.timeout=8\n"
           "tony.container.registration.timeout=9\ntony.worker.timeout=10\ntony.client.away-limit=-"
           "1\n"
           "tony.application.priority=-3\ntony.application.fail-on-worker-failure-enabled=true\n"
           "tony.application.src-dir=/s\ntony.am.retry-count=2\ntony.docker.enabled=true\n");
    assert_false(s->gang);
    assert_string_equal(s->framework, "pytorch");
    assert_int_equal(s->app_timeout_ms, 7);
    assert_int_equal(s->allocation_timeout_ms, 8);
    assert_int_equal(s->registration_timeout_ms, 9);
    assert_int_equal(s->execution_timeout_ms, 10);
    assert_int_equal(s->client_away_ms, -1);
    assert_int_equal(s->priority, -3);
    assert_true(s->fail_on_worker_failure);
    assert_string_equal(s->src, "/s");
    assert_int_equal(s->am_retry_count, 2);
    assert_int_equal(s->warnings.n, 1);
    job_spec_free(s);
    /* the newer of the two key names wins */
    s = built(
        CMD ROLE("w", 1) "tony.worker.timeout=10\ntony.task.executor.execution-timeout-ms=0\n");
    assert_int_equal(s->execution_timeout_ms, 0);
    job_spec_free(s);
}

static void test_tensorboard(void **state)
{
    (void)state;
    struct job_spec *s =
        built(CMD ROLE("worker", 1) "tony.application.tensorboard-log-dir=hdfs://logs\n");
    const struct role_spec *tb = job_spec_role(s, "tensorboard");
    assert_string_equal(tb->command, "python3 sidecar_tensorboard.py");
    assert_int_equal(tb->vcores, 2);
    assert_int_equal(tb->memory_mib, 2048);
    assert_int_equal(tb->gpus, 0);
    assert_string_equal(strv_env_get(&s->execution_env, "TB_LOG_DIR"), "hdfs://logs");
    assert_string_equal(s->tensorboard_log_dir, "hdfs://logs");
    job_spec_free(s);
    s = built(CMD ROLE("worker",
                       1) "tony.application.tensorboard-log-dir=/l\ntony.tensorboard.command=own\n"
                          "tony.tensorboard.vcores=1\ntony.tensorboard.memory=64m\n");
    tb = job_spec_role(s, "tensorboard");
    assert_string_equal(tb->command, "own");
    assert_int_equal(tb->vcores, 1);
    assert_int_equal(tb->memory_mib, 64);
    job_spec_free(s);
    s = built(CMD ROLE(
        "worker",
        1) "tony.application.tensorboard-log-dir=/l\ntony.python-exec-path=venv/bin/python\n");
    assert_string_equal(job_spec_role(s, "tensorboard")->command,
                        "venv/bin/python sidecar_tensorboard.py");
    job_spec_free(s);
}

static void test_groups(void **state)
{
    (void)state;
    struct job_spec *s = built(CMD ROLE("chief", 1) ROLE("worker", 2) ROLE(
        "ps", 1) "tony.application.group.A=chief,gone\ntony.application.group.B=gone\n"
                 "tony.application.group.C=chief,ps\n"
                 "tony.application.dependency.worker.timeout.after.A=10\n"
                 "tony.application.dependency.gone.timeout.after.A=10\n"
                 "tony.application.dependency.ps.timeout.after.B=10\n"
                 "tony.application.dependency.worker.timeout.after.C=20\n"
                 "tony.application.dependency.worker.timeout.after.C.ignored=true\n");
    /* Absent roles are skipped, and the last group wins. */
    assert_int_equal(s->n_group_timeouts, 1);
    const struct group_timeout *g = &s->group_timeouts[0];
    assert_string_equal(s->roles[g->role].name, "worker");
    assert_string_equal(g->group, "C");
    assert_int_equal(g->timeout_ms, 20000);
    assert_true(g->ignored);
    assert_int_equal(g->n_members, 2);
    assert_string_equal(s->roles[g->members[1]].name, "ps");
    job_spec_free(s);
}

static void test_demand(void **state)
{
    (void)state;
    static const struct {
        const char *lines;
        unsigned mib, gpus, vcores, n, largest;
    } cases[] = {
        { CMD ROLE("w", 2), 4096, 0, 2, 2, 2048 },
        { CMD ROLE("w", 2) "tony.w.memory=100m\ntony.w.gpus=3\ntony.w.vcores=4\n", 200, 6, 8, 2,
          100 },
        /* stages do not run at the same time */
        { CMD ROLE("a", 3) ROLE("b", 2) "tony.b.depends-on=a\n", 6144, 0, 3, 3, 2048 },
        { CMD ROLE("a", 3) ROLE("b", 2) "tony.b.depends-on=a\ntony.b.memory=8g\n", 16384, 0, 3, 3,
          8192 },
        /* runs beside both */
        { CMD ROLE("a", 1) ROLE("b", 1) ROLE("c", 4) "tony.b.depends-on=a\n", 10240, 0, 5, 5,
          2048 },
        /* a chain a, b, c: a and c never run together either */
        { CMD ROLE("a", 1) ROLE("b", 1) ROLE("c", 1) "tony.b.depends-on=a\ntony.c.depends-on=b\n",
          2048, 0, 1, 1, 2048 },
        /* a before c, b before d: a may run beside d */
        { CMD ROLE("a", 5) ROLE("b", 1) ROLE("c", 1)
              ROLE("d", 5) "tony.c.depends-on=a\ntony.d.depends-on=b\ntony.a.memory=1\ntony.b."
                           "memory=1\ntony.c.memory=1\n"
                           "tony.d.memory=1\n",
          10, 0, 10, 10, 1 },
        { CMD ROLE("p", 2) ROLE("ps", 1)
              ROLE("w", 3) "tony.application.prepare-stage=p,ps\ntony.ps.gpus=1\ntony.p.gpus=4\n",
          8192, 9, 4, 4, 2048 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct job_demand d;
        struct job_spec *s = built(cases[i].lines);
        job_spec_demand(s, &d);
        if (d.memory_mib != cases[i].mib || d.gpus != cases[i].gpus ||
            d.vcores != cases[i].vcores || d.n_containers != cases[i].n ||
            d.largest_memory_mib != cases[i].largest)
            fail_msg("%s gives %llu MiB, %u gpus, %u cores, %u containers, largest %llu",
                     cases[i].lines, (unsigned long long)d.memory_mib, d.gpus, d.vcores,
                     d.n_containers, (unsigned long long)d.largest_memory_mib);
        job_spec_free(s);
    }
    /* too many roles to try each set: the sum is used, which is never too little */
    struct buf b = { 0 };
    struct job_demand d;
    assert_int_equal(0, buf_adds(&b, CMD ROLE("first", 1)));
    for (int i = 0; i < 40; i++)
        assert_int_equal(0,
                         buf_addf(&b, "tony.r%d.instances=1\ntony.r%d.depends-on=first\n", i, i));
    struct job_spec *s = built(buf_cstr(&b));
    job_spec_demand(s, &d);
    assert_int_equal(d.n_containers, 41);
    job_spec_free(s);
    buf_done(&b);
    /* huge requests do not overflow */
    s = built(CMD "tony.application.framework=generic\n" ROLE(
        "w", 100000) "tony.w.gpus=100000\ntony.w.vcores=100000\ntony.w.memory=64t\n");
    job_spec_demand(s, &d);
    assert_int_equal(d.gpus, UINT32_MAX);
    assert_int_equal(d.vcores, UINT32_MAX);
    assert_true(d.memory_mib == 67108864ull * 100000);
    job_spec_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_many_roles),
        cmocka_unit_test(test_caps_that_fit),
        cmocka_unit_test(test_sizes_and_commands),
        cmocka_unit_test(test_single_node),
        cmocka_unit_test(test_roles_that_are_no_part_of_the_job),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_tensorboard),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_demand),
    };
    return cmocka_run_group_tests_name("conf_spec", tests, NULL, NULL);
}
