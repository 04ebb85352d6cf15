/* SPDX-License-Identifier: Apache-2.0 */
/* Submission to a ResourceManager. The test starts a process that answers as a script says. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/job/jobconf.h"
#include "cluster/yarn/submit.h"
#include "codec/hdts.h"
#include "conf/conf.h"
#include "hadoop/rpc.h"
#include "hadoop/token.h"
#include "hadoop/yarn.h"
#include "hadoop_server.h"
#include "loop/http.h"
#include "loop/loop.h"
#include "torture.h"

/* ---- the ResourceManager ---- */

enum { FORGOTTEN = -1, SCRIPT_MAX = 8 };

struct script {              /* shared between the test and that process */
    int reports[SCRIPT_MAX]; /* states to report, or FORGOTTEN; the last one repeats */
    unsigned n_reports, at;
    unsigned n_submits;
    size_t len; /* of the last submission's bytes */
    unsigned char body[16384];
};

struct rm {
    pid_t pid;
    uint16_t port;
    struct script *script;
};

static void answer(struct server *s, int32_t id, const ProtobufCMessage *m)
{
    unsigned char text[4096];
    if (protobuf_c_message_get_packed_size(m) > sizeof text)
        abort();
    server_answer(s, id, span_mem(text, protobuf_c_message_pack(m, text)));
}

static void report(struct server *s, int32_t id, struct script *k)
{
    int state = k->reports[MIN(k->at, k->n_reports - 1)];
    k->at++;
    if (state == FORGOTTEN) {
        server_refuse(s, id, 1, 1, "org.apache.hadoop.yarn.exceptions.ApplicationNotFoundException",
                      "Application doesn't exist in RM.");
        return;
    }
    Hadoop__ApplicationReport r = HADOOP__APPLICATION_REPORT__INIT;
    r.has_yarn_application_state = true;
    r.yarn_application_state = (Hadoop__YarnApplicationState)state;
    r.diagnostics = (char *)"no such\nqueue";
    r.user = (char *)"ada";
    Hadoop__GetApplicationReportResponse a = HADOOP__GET_APPLICATION_REPORT_RESPONSE__INIT;
    a.application_report = &r;
    answer(s, id, &a.base);
}

static void serve_call(struct server *s, const struct server_call *c, struct script *k)
{
    if (str_eq(c->method, "getApplicationReport")) {
        report(s, c->id, k);
    } else if (str_eq(c->method, "submitApplication")) {
        k->n_submits++;
        k->len = MIN(c->body.len, sizeof k->body);
        memcpy(k->body, c->body.p, k->len);
        server_answer(s, c->id, SPAN(""));
    } else {
        abort();
    }
}

static void serve(int fd, struct script *k)
{
    struct server s;
    char text[65536];
    size_t done = 0;
    server_init(&s);
    for (ssize_t n; (n = read(fd, text, sizeof text)) > 0;) {
        server_feed(&s, text, (size_t)n);
        for (; done < s.calls.n; done++)
            serve_call(&s, &s.calls.v[done], k);
        if (fs_write_all(fd, s.out.p, s.out.len) < 0)
            break;
        buf_clear(&s.out);
    }
    server_done(&s);
    (void)close(fd);
}

static void rm_open(struct rm *rm)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    rm->script =
        mmap(NULL, sizeof *rm->script, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(rm->script != MAP_FAILED);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    rm->port = ntohs(at.sin_port);
    rm->pid = fork();
    assert_true(rm->pid >= 0);
    if (rm->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)signal(SIGPIPE, SIG_IGN);
        for (;;) {
            int one = accept(fd, NULL, NULL);
            if (one >= 0)
                serve(one, rm->script);
        }
    }
    (void)close(fd);
}

static void rm_close(struct rm *rm)
{
    (void)kill(rm->pid, SIGKILL);
    (void)waitpid(rm->pid, NULL, 0);
    (void)munmap(rm->script, sizeof *rm->script);
}

static void rm_script(struct rm *rm, const int *states, unsigned n)
{
    *rm->script = (struct script){ .n_reports = n };
    memcpy(rm->script->reports, states, n * sizeof *states);
}

/* ---- the client ---- */

static const char job_text[] = "name: digits\n"
                               "command: 'true'\n"
                               "roles: {worker: {instances: 2, memory: 1g}}\n"
                               "conf:\n"
                               "  tony.yarn.queue: research\n"
                               "  tony.application.tags: Red,blue\n"
                               "  tony.application.priority: 7\n"
                               "  tony.application.timeout: 60000\n"
                               "  tony.application.acl-view: 'ada,bob staff'\n"
                               "  tony.application.node-label: fast\n"
                               "  tony.am.gpus: 1\n"
                               "  tony.docker.enabled: 'true'\n"
                               "  tony.docker.am.image: 'img:1'\n"
                               "  tony.containers.envs: \"A=with \\\"quotes\\\"\"\n";

static void job_init(struct cluster_job *j)
{
    struct err e = { 0 };
    *j = (struct cluster_job){ .conf = conf_new(), .cluster = &cluster_yarn };
    assert_non_null(j->conf);
    if (conf_load_text(j->conf, CL_JOB, "job.yaml", span_of(job_text), false, &e) < 0 ||
        job_spec_build(j->conf, &j->spec, &e) < 0)
        fail_msg("%s", e.msg);
}

struct handing { /* arguments of a submission, also for the torture test */
    struct rm *rm;
    struct cluster_job *job;
    struct loop *loop; /* NULL = the call makes its own */
    bool carried;      /* carries job.conf and yarn.json */
    struct err e;
};

static int yarn_init(struct yarn *y, struct cluster_host *host, const struct handing *h,
                     struct err *e)
{
    static char user[] = "ada", nn[] = "nn";
    *y = (struct yarn){ .head = { &cluster_yarn, { .host = host, .conf = h->job->conf } },
                        .host = host,
                        .conf = h->job->conf,
                        .user = user,
                        .patience_ms = 60000,
                        .hdfs = { .host = nn, .port = 8020 } };
    y->loop = host_loop(host, e);
    y->site = y->loop ? site_new(e) : NULL;
    if (!y->site || site_addresses_add(&y->rm, "127.0.0.1", h->rm->port) < 0)
        return err_set(e, ENOMEM, "no memory");
    const struct rpc_client_options o = { .loop = y->loop,
                                          .what = "the ResourceManager",
                                          .protocol = YARN_CLIENT_PROTOCOL,
                                          .addresses = &y->rm,
                                          .user = y->user,
                                          .idle_ms = UINT32_MAX,
                                          .reach_ms = 60000 };
    return rpc_client_new(&o, &y->rpc, e);
}

static int hand_over(void *arg)
{
    struct handing *h = arg;
    struct cluster_host c = { .version = "test", .loop = h->loop };
    struct yarn y;
    char id[] = "application_1700000000000_0007", dir[] = "/user/ada/.tony/x";
    h->e = (struct err){ 0 };
    int rc = yarn_init(&y, &c, h, &h->e);
    struct submission s = { .y = &y,
                            .j = h->job,
                            .app = { .cluster = 1700000000000, .id = 7 },
                            .dir = dir,
                            .join = { .loop = y.loop },
                            .carried = h->carried,
                            .files = { { "job.conf", !h->carried, 10, 1001 },
                                       { "yarn.json", !h->carried, 20, 1002 } } };
    (void)buf_adds(&s.job_conf, "the job");
    (void)buf_adds(&s.yarn_json, "the cluster");
    (void)str_copy(s.id, sizeof s.id, id);
    if (rc == 0)
        rc = submission_send(&s, &h->e);
    buf_done(&s.job_conf);
    buf_done(&s.yarn_json);
    rpc_client_free(y.rpc);
    site_addresses_done(&y.rm);
    site_free(y.site);
    if (h->loop)
        (void)loop_run(c.loop); /* frees the closed connections */
    else
        host_done(&c);
    return rc;
}

/* ---- results ---- */

static void test_repeated_submissions(void **state)
{
    (void)state;
    static const struct {
        int states[SCRIPT_MAX];
        unsigned n, submits;
    } rows[] = {
        { { HADOOP__YARN_APPLICATION_STATE__ACCEPTED }, 1, 1 },
        { { HADOOP__YARN_APPLICATION_STATE__NEW, HADOOP__YARN_APPLICATION_STATE__NEW_SAVING,
            HADOOP__YARN_APPLICATION_STATE__SUBMITTED, HADOOP__YARN_APPLICATION_STATE__RUNNING },
          4,
          1 },
        { { HADOOP__YARN_APPLICATION_STATE__NEW_SAVING, FORGOTTEN, FORGOTTEN,
            HADOOP__YARN_APPLICATION_STATE__NEW, HADOOP__YARN_APPLICATION_STATE__ACCEPTED },
          5,
          3 },
    };
    struct cluster_job job;
    struct rm rm;
    job_init(&job);
    rm_open(&rm);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct handing h = { .rm = &rm, .job = &job };
        rm_script(&rm, rows[i].states, rows[i].n);
        if (hand_over(&h) != 0)
            fail_msg("row %zu: %s", i, h.e.msg);
        assert_int_equal(rm.script->n_submits, rows[i].submits);
        assert_int_equal(rm.script->at, rows[i].n);
    }
    rm_close(&rm);
    client_job_done(&job);
}

static void test_a_failed_submission(void **state)
{
    (void)state;
    static const int states[] = { HADOOP__YARN_APPLICATION_STATE__SUBMITTED,
                                  HADOOP__YARN_APPLICATION_STATE__FAILED };
    struct cluster_job job;
    struct rm rm;
    job_init(&job);
    rm_open(&rm);
    rm_script(&rm, states, ARRAY_LEN(states));
    struct handing h = { .rm = &rm, .job = &job };
    assert_int_equal(hand_over(&h), -EXIT_MISUSE);
    assert_string_equal(h.e.msg, "the cluster refused the job: no such");
    rm_close(&rm);
    client_job_done(&job);
}

/* The ResourceManager restarts without a store while the job runs: a follower is told so, and what
 * to do. */
static void test_the_resourcemanager_has_forgotten_the_job(void **state)
{
    (void)state;
    static const int states[] = { HADOOP__YARN_APPLICATION_STATE__ACCEPTED,
                                  HADOOP__YARN_APPLICATION_STATE__ACCEPTED, FORGOTTEN };
    static const char *const nobody[] = { "127.0.0.1:1" };
    const struct webhdfs_config cfg = {
        .namenodes = nobody, .n_namenodes = 1, .user = "ada", .try_ms = -1
    };
    struct cluster_job job;
    struct rm rm;
    struct yarn y;
    struct cluster_host c = { .version = "test" };
    struct follow_options o = { .owns_job = true };
    struct follow_result r;
    job_init(&job);
    rm_open(&rm);
    rm_script(&rm, states, ARRAY_LEN(states));
    struct handing h = { .rm = &rm, .job = &job };
    assert_int_equal(yarn_init(&y, &c, &h, &h.e), 0);
    assert_int_equal(webhdfs_new(y.loop, &cfg, &y.fs, &h.e), 0);
    assert_int_equal(cluster_follow((struct cluster *)(void *)&y, "application_1700000000000_0007",
                                    &o, &r, &h.e),
                     -EXIT_CLUSTER);
    assert_non_null(strstr(h.e.msg, "knows no application 'application_1700000000000_0007'"));
    assert_non_null(strstr(h.e.hint, "submit the job again"));
    webhdfs_free(y.fs);
    rpc_client_free(y.rpc);
    site_addresses_done(&y.rm);
    site_free(y.site);
    free(y.home);
    free(y.dir);
    free(y.history);
    host_done(&c);
    rm_close(&rm);
    client_job_done(&job);
}

/* ---- the history of a job ---- */

struct kept { /* status.json, as the NameNode has it */
    const char *author, *id, *user;
    char note[600];
};

static int serve_status(const char *path, const char *query, struct http_answer *a, void *arg,
                        struct err *e)
{
    const struct kept *k = arg;
    (void)path;
    (void)e;
    a->type = "application/json";
    if (strstr(query, "op=GETFILESTATUS"))
        return buf_addf(
            &a->body,
            "{\"FileStatus\":{\"type\":\"FILE\",\"pathSuffix\":\"\",\"permission\":\"640\","
            "\"length\":1,\"owner\":\"%s\",\"group\":\"g\"}}",
            k->author);
    return buf_addf(&a->body,
                    "{\"format\":1,\"version\":\"x\",\"application_id\":\"%s\",\"user\":\"%s\","
                    "\"state\":\"SUCCEEDED\",\"exit_code\":0}",
                    k->id, k->user);
}

static void keep_note(const char *text, void *arg)
{
    struct kept *k = arg;
    (void)str_copy(k->note, sizeof k->note, text);
}

#define JOB "application_1700000000000_0007"

/* In a shared directory of histories anybody may have written status.json. It counts only if the
 * user of the job has. */
static void test_forged_history(void **state)
{
    (void)state;
    static const struct {
        struct kept kept;
        int rm;           /* what the ResourceManager knows: the job is of ada, or nothing */
        const char *note; /* NULL = it is believed */
    } rows[] = {
        { { "ada", JOB, "ada" }, FORGOTTEN, NULL },
        { { "ada", "application_1700000000000_0008", "ada" },
          FORGOTTEN,
          "it is about another job" },
        { { "mallory", JOB, "ada" },
          HADOOP__YARN_APPLICATION_STATE__FAILED,
          "'mallory' wrote it, but the job belongs to 'ada'" },
        { { "mallory", JOB, "mallory" },
          HADOOP__YARN_APPLICATION_STATE__FAILED,
          "'mallory' wrote it, but the job belongs to 'ada'" },
        { { "mallory", JOB, "ada" },
          FORGOTTEN,
          "'mallory' wrote it, but the job belongs to 'ada'" },
        { { "bob", JOB, "bob" },
          FORGOTTEN,
          NULL }, /* a job of bob, whom nobody else can claim to be */
    };
    static const struct http_page pages[] = { { "/webhdfs/v1/h/" JOB "/status.json",
                                                serve_status } };
    struct cluster_job job;
    struct rm rm;
    job_init(&job);
    rm_open(&rm);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct kept kept = rows[i].kept;
        struct cluster_host host = { .version = "test", .note = keep_note, .arg = &kept };
        struct handing h = { .rm = &rm, .job = &job };
        struct yarn y;
        struct http_server *nn = NULL;
        char at[40];
        const char *const nodes[] = { at };
        json_t *doc = NULL;
        rm_script(&rm, &rows[i].rm, 1);
        assert_int_equal(yarn_init(&y, &host, &h, &h.e), 0);
        assert_int_equal(http_server_open(y.loop, "127.0.0.1", 0, pages, 1, &kept, &nn, &h.e), 0);
        (void)snprintf(at, sizeof at, "127.0.0.1:%u", http_server_port(nn));
        const struct webhdfs_config cfg = {
            .namenodes = nodes, .n_namenodes = 1, .user = "ada", .try_ms = -1
        };
        assert_int_equal(webhdfs_new(y.loop, &cfg, &y.fs, &h.e), 0);
        y.home = str_dup("/user/ada");
        y.dir = str_dup("/user/ada/.tony");
        y.history = str_dup("/h");
        int rc = yarn_history((struct cluster *)(void *)&y, JOB, &doc, &h.e);
        if ((rc == 0) != (rows[i].note == NULL) || (doc != NULL) != (rc == 0))
            fail_msg("row %zu: %d %s", i, rc, h.e.msg);
        if (rows[i].note && !strstr(kept.note, rows[i].note))
            fail_msg("row %zu: '%s'", i, kept.note);
        json_decref(doc);
        webhdfs_free(y.fs);
        http_server_close(nn);
        rpc_client_free(y.rpc);
        site_addresses_done(&y.rm);
        site_free(y.site);
        free(y.home);
        free(y.dir);
        free(y.history);
        loop_free(host.loop);
    }
    rm_close(&rm);
    client_job_done(&job);
}

static const char *env_of(const Hadoop__ContainerLaunchContext *l, const char *name)
{
    for (size_t i = 0; i < l->n_environment; i++)
        if (str_eq(l->environment[i]->key, name))
            return l->environment[i]->value;
    return "";
}

static bool carries(const Hadoop__ContainerLaunchContext *l, const char *alias, const char *text)
{
    struct span tokens = span_mem((const char *)l->tokens.data, l->tokens.len), found;
    return hdts_secret(tokens, alias, &found, NULL) == 0 && span_eqs(found, text);
}

static void check_launch(const Hadoop__ContainerLaunchContext *l, bool carried)
{
    assert_int_equal(l->n_command, 1);
    assert_non_null(strstr(l->command[0], "./tony-master --yarn"));
    assert_string_equal(env_of(l, "YARN_CONTAINER_RUNTIME_TYPE"), "docker");
    assert_string_equal(env_of(l, "YARN_CONTAINER_RUNTIME_DOCKER_IMAGE"), "img:1");
    assert_string_equal(env_of(l, "A"), "with \\\"quotes\\\"");
    assert_non_null(strstr(env_of(l, "PATH"), "/usr/bin"));
    assert_int_equal(l->n_local_resources, carried ? 0 : 2);
    if (!carried) {
        assert_string_equal(l->local_resources[1]->key, "yarn.json");
        assert_int_equal(l->local_resources[1]->value->size, 20);
        assert_int_equal(l->local_resources[1]->value->timestamp, 1002);
        assert_string_equal(l->local_resources[1]->value->resource->file,
                            "/user/ada/.tony/x/yarn.json");
    }
    assert_true(carries(l, "tony.file.job.conf", "the job") == carried);
    assert_true(carries(l, "tony.file.yarn.json", "the cluster") == carried);
    assert_int_equal(l->n_application_acls, 2);
    assert_string_equal(l->application_acls[0]->acl, "ada,bob staff");
    assert_string_equal(l->application_acls[1]->acl, " ");
    assert_true(l->tokens.len > 32 && memcmp(l->tokens.data, "HDTS", 4) == 0);
}

static void check_context(bool carried)
{
    static const int states[] = { HADOOP__YARN_APPLICATION_STATE__ACCEPTED };
    struct cluster_job job;
    struct rm rm;
    job_init(&job);
    rm_open(&rm);
    rm_script(&rm, states, ARRAY_LEN(states));
    struct handing h = { .rm = &rm, .job = &job, .carried = carried };
    assert_int_equal(hand_over(&h), 0);
    Hadoop__SubmitApplicationRequest *rq = (Hadoop__SubmitApplicationRequest *)rpc_unpack(
        &hadoop__submit_application_request__descriptor, span_mem(rm.script->body, rm.script->len));
    assert_non_null(rq);
    const Hadoop__ApplicationSubmissionContext *c = rq->application_submission_context;
    assert_int_equal(c->application_id->id, 7);
    assert_string_equal(c->application_name, "digits");
    assert_string_equal(c->queue, "research");
    assert_int_equal(c->priority->priority, 7);
    assert_int_equal(c->n_application_tags, 2);
    assert_string_equal(c->application_tags[0], "red");
    assert_true(c->has_max_app_attempts && c->max_app_attempts > 0);
    assert_string_equal(c->node_label_expression, "fast");
    assert_string_equal(c->application_type, "TONY");
    /* The master sets it: time in the queue does not count. */
    assert_int_equal(c->n_application_timeouts, 0);
    assert_int_equal(c->resource->n_resource_value_map, 1);
    assert_string_equal(c->resource->resource_value_map[0]->key, "yarn.io/gpu");
    assert_int_equal(c->resource->resource_value_map[0]->value, 1);
    check_launch(c->am_container_spec, carried);
    protobuf_c_message_free_unpacked(&rq->base, NULL);
    rm_close(&rm);
    client_job_done(&job);
}

/* The cluster's limit on masters, under the names that Hadoop gives it. */
static void test_max_attempts(void **state)
{
    (void)state;
    static const char *const keys[] = { NULL, "yarn.resourcemanager.am.max-attempts",
                                        "yarn.resourcemanager.am.global.max-attempts" };
    struct cluster_job job;
    struct err e = { 0 };
    job_init(&job);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        AUTO(buf_done) struct buf text = { 0 };
        char path[] = "/tmp/tony-site-XXXXXX";
        AUTO(close_p) int fd = mkstemp(path);
        struct yarn y = { .site = site_new(&e) };
        struct submission s = { .y = &y, .j = &job };
        assert_non_null(y.site);
        for (size_t k = 1; k <= i; k++) /* the later one counts; tony.am.max-attempts is 5 */
            (void)buf_addf(&text, "<property><name>%s</name><value>%zu</value></property>", keys[k],
                           k + 2);
        assert_true(dprintf(fd, "<configuration>%s</configuration>", buf_cstr(&text)) > 0);
        assert_int_equal(site_add_file(y.site, path, &e), 0);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(submission_max_attempts(&s), i + 2);
        site_free(y.site);
    }
    client_job_done(&job);
}

/* Everything that the ResourceManager is told, decoded from the bytes. */
static void test_context(void **state)
{
    (void)state;
    check_context(false);
    check_context(true);
}

/* Whichever allocation fails: the job is submitted or the error says why not, and nothing leaks. */
static int handed_or_said(void *arg)
{
    struct handing *h = arg;
    h->rm->script->at = 0;
    int rc = hand_over(h);
    if (rc < 0 && !h->e.msg[0])
        fail_msg("%d without a sentence", rc);
    return rc < 0 ? -ENOMEM : 0;
}

static void test_torture(void **state)
{
    (void)state;
    static const int states[] = { HADOOP__YARN_APPLICATION_STATE__ACCEPTED };
    struct cluster_job job;
    struct rm rm;
    job_init(&job);
    rm_open(&rm);
    rm_script(&rm, states, ARRAY_LEN(states));
    /* libuv aborts if it cannot grow its tables, so the loop is made before. */
    struct handing h = { .rm = &rm, .job = &job, .loop = loop_new(NULL) };
    assert_non_null(h.loop);
    assert_int_equal(handed_or_said(&h), 0);
    assert_true(torture(handed_or_said, &h) > 50);
    loop_free(h.loop);
    rm_close(&rm);
    client_job_done(&job);
}

int main(void)
{
    log_setup(STDERR_FILENO, LOG_ERROR, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeated_submissions),
        cmocka_unit_test(test_a_failed_submission),
        cmocka_unit_test(test_the_resourcemanager_has_forgotten_the_job),
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_max_attempts),
        cmocka_unit_test(test_forged_history),
        cmocka_unit_test(test_torture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
