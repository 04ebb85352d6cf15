/* SPDX-License-Identifier: Apache-2.0 */
/* The client's checks against the resources of a cluster, before it sends anything. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "client/job/jobconf.h"
#include "cluster/remote.h"
#include "cluster/yarn/pages.h"
#include "cluster/yarn/yarn.h"
#include "conf/conf.h"

/* Two nodes of 4 GiB and 8 cores; one has 2 GPUs and the label gpu. A container has at most 3
 * GiB. */
static void facts_init(struct yarn_facts *f)
{
    *f = (struct yarn_facts){
        .max_memory_mib = 3072, .max_vcores = 8, .queue_there = true, .queue_runs = true
    };
    struct yarn_node plain = { .memory_mib = 4096, .vcores = 8 }, gpu = plain;
    struct yarn_amount two = { .name = str_dup("yarn.io/gpu"), .n = 2 };
    assert_int_equal(vec_push(&gpu.types, two), 0);
    assert_int_equal(strv_push(&gpu.labels, "gpu"), 0);
    assert_int_equal(vec_push(&f->nodes, plain), 0);
    assert_int_equal(vec_push(&f->nodes, gpu), 0);
    assert_int_equal(strv_push(&f->types, "yarn.io/gpu"), 0);
    assert_int_equal(strv_push(&f->types, "yarn.io/fpga"), 0);
    assert_int_equal(strv_push(&f->labels, "gpu"), 0);
    assert_int_equal(strv_push(&f->queues, "default"), 0);
    assert_int_equal(strv_push(&f->queues, "research"), 0);
}

static void job_init(struct cluster_job *j, const char *text)
{
    struct err e = { 0 };
    *j = (struct cluster_job){ .conf = conf_new(), .cluster = &cluster_yarn };
    assert_non_null(j->conf);
    if (conf_load_text(j->conf, CL_JOB, "job.yaml", span_of(text), false, &e) < 0 ||
        job_spec_build(j->conf, &j->spec, &e) < 0)
        fail_msg("%s", e.msg);
}

static const char head[] = "cluster: yarn\ncommand: 'true'\n";

static void test_check(void **state)
{
    (void)state;
    static const struct {
        const char *job;
        const char *sentence; /* NULL: the job passes */
        const char *note;     /* of a job that passes; NULL = none */
    } cases[] = {
        { "roles: {worker: {instances: 2, memory: 1g}}\n", NULL },
        { "roles: {worker: {instances: 1, memory: 3g}}\n", NULL },
        { "roles:\n  worker:\n    instances: 1\n    memory: 3073m\n",
          "job.yaml:6: a 'worker' asks" },
        { "roles: {worker: {instances: 8, memory: 1g}}\n", NULL, "its master included" },
        { "roles: {worker: {instances: 8, memory: 1g}}\n"
          "conf: {tony.application.distributed-mode: FCFS}\n",
          NULL },
        { "roles: {worker: {instances: 1, memory: 1g, vcores: 9}}\n", "8 at most" },
        { "roles: {worker: {instances: 1, memory: 1g, gpus: 2}}\n", NULL },
        { "roles: {worker: {instances: 1, memory: 1g, gpus: 3}}\n", NULL,
          "no node of this cluster has more than 2 now" },
        { "roles: {worker: {instances: 2, memory: 1g, gpus: 2}}\n", NULL,
          "the whole cluster has 2 now" },
        { "roles: {worker: {instances: 1, memory: 1g}}\n"
          "conf: {tony.worker.resource-types: yarn.io/fpgs=1}\n",
          "knows no such resource" },
        { "roles: {worker: {instances: 1, memory: 1g}}\n"
          "conf: {tony.worker.resource-types: yarn.io/fpga}\n",
          "needs NAME=NUMBER" },
        { "roles: {worker: {instances: 1, memory: 1g}}\nconf: {tony.worker.node-label: gpu}\n",
          NULL },
        { "roles: {worker: {instances: 1, memory: 1g}}\nconf: {tony.worker.node-label: gpo}\n",
          "no node label 'gpo'" },
        { "roles: {worker: {instances: 1, memory: 1g}}\nconf: {tony.am.memory: 5g}\n", "a 'am'" },
        { "roles: {worker: {instances: 1, memory: 1g}}\nconf: {tony.application.tags: 'a b,C'}\n",
          NULL },
        { "roles: {worker: {instances: 1, memory: 1g}}\nconf: {tony.application.tags: "
          "'a,\xc3\xa4'}\n",
          "tag '\xc3\xa4' is not ASCII" },
        { "roles: {worker: {instances: 1, memory: 1g}}\n"
          "conf: {tony.application.tags: 'a,b,c,d,e,f,g,h,i,j,k'}\n",
          "has 11 tags; YARN allows at most 10" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct yarn_facts f;
        struct cluster_job j;
        struct strv notes = { 0 };
        struct err e = { 0 };
        AUTO(free_p) char *text = str_printf("%s%s", head, cases[i].job);
        facts_init(&f);
        job_init(&j, text);
        int rc = yarn_check(&f, &j, &notes, &e);
        if (!cases[i].sentence && rc < 0)
            fail_msg("%s: %s", cases[i].job, e.msg);
        if (!cases[i].sentence && notes.n != (cases[i].note != NULL))
            fail_msg("%s: %zu notes: %s", cases[i].job, notes.n, notes.n ? notes.v[0] : "");
        if (cases[i].note && !strstr(notes.v[0], cases[i].note))
            fail_msg("%s: %s", cases[i].job, notes.v[0]);
        if (cases[i].sentence && (rc == 0 || !strstr(e.msg, cases[i].sentence) || !e.hint[0]))
            fail_msg("%s: '%s', hint '%s'", cases[i].job, e.msg, e.hint);
        strv_done(&notes);
        client_job_done(&j);
        yarn_facts_done(&f);
    }
}

static void test_queue(void **state)
{
    (void)state;
    struct yarn_facts f;
    struct cluster_job j;
    struct strv notes = { 0 };
    struct err e = { 0 };
    facts_init(&f);
    job_init(&j, "cluster: yarn\ncommand: 'true'\nroles: {worker: {instances: 1, memory: 1g}}\n"
                 "conf:\n  tony.yarn.queue: reserch\n");
    f.queue_there = false;
    assert_int_equal(yarn_check(&f, &j, &notes, &e), 0);
    assert_int_equal(notes.n, 1);
    assert_string_equal(notes.v[0], "job.yaml:5: the cluster has no queue 'reserch' now; did you "
                                    "mean 'research'?");
    strv_done(&notes);
    f.queue_there = true;
    f.queue_runs = false;
    assert_int_equal(yarn_check(&f, &j, &notes, &e), 0);
    assert_non_null(strstr(notes.v[0], "is stopped"));
    strv_done(&notes);
    f.queue_is_parent = true;
    assert_int_equal(yarn_check(&f, &j, &notes, &e), 0);
    assert_non_null(strstr(notes.v[0], "holds other queues"));
    strv_done(&notes);
    client_job_done(&j);
    yarn_facts_done(&f);
}

/* More cores than the cluster has give only a note: most clusters schedule by memory alone. */
static void test_notes(void **state)
{
    (void)state;
    struct yarn_facts f;
    struct cluster_job j;
    struct strv notes = { 0 };
    struct err e = { 0 };
    facts_init(&f);
    job_init(&j, "cluster: yarn\ncommand: 'true'\n"
                 "roles: {worker: {instances: 3, memory: 1g, vcores: 8}}\n");
    assert_int_equal(yarn_check(&f, &j, &notes, &e), 0);
    assert_int_equal(notes.n, 1);
    assert_string_equal(notes.v[0], "the job asks for 24 cores at once, and the cluster has 16");
    strv_done(&notes);
    client_job_done(&j);
    yarn_facts_done(&f);
}

static void test_master(void **state)
{
    (void)state;
    static const struct {
        const char *job;
        uint64_t mib;
    } cases[] = {
        { "roles: {worker: {instances: 2}}\n", 128 },
        { "roles: {worker: {instances: 800}}\n", 228 },
        { "roles: {worker: {instances: 2}}\nconf: {tony.am.memory: 1g}\n", 1024 },
        { "", 2048 }, /* the command runs in the master's container */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct cluster_job j;
        AUTO(free_p) char *text = str_printf("%s%s", head, cases[i].job);
        job_init(&j, text);
        assert_int_equal(yarn_master_memory_mib(j.spec), cases[i].mib);
        client_job_done(&j);
    }
}

/* Messages of ResourceManager 3.5.0 while a job waits. */
static void test_waiting_text(void **state)
{
    (void)state;
    static const char activated[] =
        "[Sat Nov 21 15:51:30 +0000 2026] Application is Activated, waiting for resources to be "
        "assigned for AM.  Details : AM Partition = <DEFAULT_PARTITION> ; Partition Resource = "
        "<memory:16384, vCores:16> ; Queue's Absolute used capacity = 12.5 % ; ";
    static const struct {
        const char *diagnostics, *text;
    } cases[] = {
        { activated, "Application is Activated, waiting for resources to be assigned for AM" },
        { "AM container is launched, waiting for AM container to Register with RM",
          "AM container is launched, waiting for AM container to Register with RM" },
        { "[a time] Application is Activated, waiting.  Last Node which was processed for the "
          "application : localhost:1 ( Partition : [], Total resource : <memory:4096>,",
          "Application is Activated, waiting" },
        { "[a time] first\nsecond", "first" },
        { "Details : none", "" },
        { "[unclosed", "[unclosed" },
        { "", "" },
        { NULL, "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char out[400];
        yarn_waiting_text(cases[i].diagnostics, out, sizeof out);
        assert_string_equal(out, cases[i].text);
    }
}

#define HEAD "Container: c on n:1\nLogAggregationType: LOCAL\n====\nLogType:stdout\nLogLength:4\n"
#define FOOT "End of LogType:stdout.\n****\n\n"

static int add_text(struct span text, void *arg)
{
    return buf_add(arg, text.p, text.len);
}

static void test_page_text(void **state)
{
    (void)state;
    static const struct {
        const char *page, *text;
    } cases[] = {
        { HEAD "LogContents:\none\ntwo\n" FOOT, "one\ntwo\n" },
        { HEAD "LogContents:\n" FOOT, "" },
        /* a task may print the same lines itself */
        { HEAD "LogContents:\nLogContents:\nEnd of LogType:stdout\nx\n" FOOT,
          "LogContents:\nEnd of LogType:stdout\nx\n" },
        { HEAD "LogContents:\ncut off", "cut off" },
        { "bare text", "bare text" },
        { "", "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct span page = span_of(cases[i].page);
        for (size_t step = 1; step <= page.len + 1; step++) {
            AUTO(buf_done) struct buf text = { 0 };
            struct yarn_page g = { .fn = add_text, .arg = &text };
            for (size_t at = 0; at < page.len; at += step)
                assert_int_equal(yarn_page_feed(&g, page.p + at, MIN(step, page.len - at)), 0);
            assert_int_equal(yarn_page_end(&g), 0);
            assert_string_equal(buf_cstr(&text), cases[i].text);
            assert_true(yarn_page_size(&g) >= (int64_t)text.len);
        }
    }
}

static int count_text(struct span text, void *arg)
{
    size_t *largest = arg;
    *largest = MAX(*largest, text.len);
    return 0;
}

/* A log of any size passes in pieces; its header tells the size, also if only its end comes. */
static void test_large_page(void **state)
{
    (void)state;
    enum { PIECES = 4000 };
    static char piece[50000];
    size_t largest = 0;
    struct yarn_page g = { .fn = count_text, .arg = &largest };
    memset(piece, 'x', sizeof piece);
    assert_int_equal(yarn_page_feed(&g, HEAD, strlen(HEAD)), 0);
    assert_int_equal(yarn_page_feed(&g, "LogContents:\n", 13), 0);
    for (int i = 0; i < PIECES; i++)
        assert_int_equal(yarn_page_feed(&g, piece, sizeof piece), 0);
    assert_int_equal(yarn_page_feed(&g, FOOT, strlen(FOOT)), 0);
    assert_int_equal(yarn_page_end(&g), 0);
    assert_true(yarn_page_size(&g) == (int64_t)PIECES * (int64_t)sizeof piece);
    assert_in_range(largest, 1, 2 * sizeof piece);
    static const char part[] = "LogLength:1000\nLogContents:\nend";
    struct yarn_page h = { .fn = count_text, .arg = &largest };
    assert_int_equal(yarn_page_feed(&h, part, strlen(part)), 0);
    assert_int_equal(yarn_page_end(&h), 0);
    assert_int_equal(yarn_page_size(&h), 1000);
}

static int full(struct span text, void *arg)
{
    (void)text;
    (void)arg;
    return -EPIPE;
}

static void test_page_nobody_reads(void **state)
{
    (void)state;
    static const char page[] = HEAD "LogContents:\none\n" FOOT;
    struct yarn_page g = { .fn = full };
    assert_int_equal(yarn_page_feed(&g, page, strlen(page)), 0);
    assert_int_equal(yarn_page_end(&g), -EPIPE);
}

static void test_page_address(void **state)
{
    (void)state;
    static const struct {
        const char *node, *base, *url;
    } cases[] = {
        { "http://n:8042/node/containerlogs/container_1/me", NULL,
          "http://n:8042/ws/v1/node/containers/container_1/logs/stdout" },
        { "http://n:8042/node/containerlogs/container_1", NULL,
          "http://n:8042/ws/v1/node/containers/container_1/logs/stdout" },
        { "https://n:8042/node/containerlogs/container_1/me", NULL, NULL },
        { "http://n:8042", NULL, NULL },
        { "", NULL, NULL },
        { NULL, "http://h:19888/ws/v1/history",
          "http://h:19888/ws/v1/history/containers/container_1/logs/stdout" },
        { NULL, "h:19888/ws/v1/history//",
          "http://h:19888/ws/v1/history/containers/container_1/logs/stdout" },
        { NULL, "", NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(free_p)
        char *url = cases[i].node ? yarn_page_of_node(cases[i].node, "stdout")
                                  : yarn_page_of_server(cases[i].base, "container_1", "stdout");
        if (cases[i].url)
            assert_string_equal(url, cases[i].url);
        else
            assert_null(url);
    }
    assert_null(yarn_page_of_server("http://h", "", "stdout"));
}

static void test_page_tail(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t n;
        const char *tail;
    } cases[] = {
        { "a\nb\nc\n", 2, "b\nc\n" }, { "a\nb\nc", 1, "c" },      { "a\n", 0, "" },
        { "a\nb\n", 9, "a\nb\n" },    { "a\nb\n", -1, "a\nb\n" }, { "", 3, "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct span tail = text_tail(span_of(cases[i].text), cases[i].n);
        assert_int_equal(tail.len, strlen(cases[i].tail));
        assert_memory_equal(tail.p, cases[i].tail, tail.len);
    }
}

/* A client whose job waits in the queue: many of them must not load the ResourceManager. */
static void a_waiting_client_asks_less_often(void **state)
{
    (void)state;
    int64_t n = 0;
    for (int64_t t = 0; t < 60000; t += yarn_watch_pause_ms(t))
        n++;
    assert_int_equal(yarn_watch_pause_ms(0), 20); /* the launch of a job is not slowed down */
    assert_int_equal(yarn_watch_pause_ms(10000), 1000);
    assert_int_equal(n, 5000 / 20 + 5000 / 250 + 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_waiting_client_asks_less_often),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_notes),
        cmocka_unit_test(test_master),
        cmocka_unit_test(test_waiting_text),
        cmocka_unit_test(test_page_text),
        cmocka_unit_test(test_large_page),
        cmocka_unit_test(test_page_nobody_reads),
        cmocka_unit_test(test_page_address),
        cmocka_unit_test(test_page_tail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
