/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A master on a cluster, in the small world of master_world.h. Each peer must prove that it knows
 * its key, and a key is valid only for its own identity. Logs are read through the master. It
 * stores its history elsewhere before the scheduler hears of the end. It serves a page.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "codec/hdts.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "loop/http.h"
#include "loop/loop.h"
#include "loop/tcp.h"
#include "master/master_int.h"
#include "master_remote.h"
#include "master_world.h"
#include "proto/tony.pb-c.h"

static void expect_log(const struct world *w, const char *const *lines)
{
    size_t i = 0;
    for (; lines[i]; i++) {
        if (i >= w->files.log.n)
            fail_msg("missing: %s", lines[i]);
        assert_string_equal(w->files.log.v[i], lines[i]);
    }
    if (w->files.log.n > i)
        fail_msg("too many: %s", w->files.log.v[i]);
}

static void all_ends_well(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, soon);
    world_go_remote(&w);
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_false(w.timed_out);
    assert_int_equal(w.n_runs[0], 1);
    assert_int_equal(w.n_runs[1], 1);
    assert_string_equal(w.finish_state, "SUCCEEDED");
    assert_string_equal(w.client_state, "SUCCEEDED");
    expect_log(&w, (const char *const[]){ "rmdir /s/queued", "mkdirs " H " 700",
                                          "put " H "/job.conf 600", "put " H "/journal 600",
                                          "put " H "/status.json 600", "put " H "/summary 600",
                                          "put " H "/metrics 600", "finish", "remove /s", NULL });
    const char *json = buf_cstr(&w.client_json); /* the last one belongs to the history */
    assert_non_null(strstr(json, "\"tracking_url\":\"http://127.0.0.1:"));
    assert_non_null(strstr(json, "\"log_url\":\"http://n0:8042/logs/master\""));
    assert_non_null(strstr(json,
                           "\"node\":\"n1:45454\",\"log_url\":\"http://n1:8042/logs/<of it>\","
                           "\"logs\":[\"stdout\",\"stderr\"]"));
    world_done(&w);
}

static bool in_range(long port)
{
    return port >= 28000 && port <= 28999;
}

/* The master and its page listen in the range. Ports of it that are in use are skipped. */
static void a_port_range(void **state)
{
    (void)state;
    static const char *const lines[] = { BASIC, "tony.worker.instances=1", "tony.worker.memory=64m",
                                         "tony.port-range=28000-28999", NULL };
    struct world w;
    world_init(&w, lines, soon);
    world_go_remote(&w);
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_true(in_range(w.listened_at));
    const char *page = strstr(buf_cstr(&w.client_json), "\"tracking_url\":\"http://127.0.0.1:");
    assert_non_null(page);
    long at = strtol(page + strlen("\"tracking_url\":\"http://127.0.0.1:"), NULL, 10);
    assert_true(in_range(at) && at != w.listened_at);
    world_done(&w);
}

/* Every port of the range but one is in use; then this one is, too. */
static int open_odd(void *arg, uint16_t port, struct err *e)
{
    (void)arg;
    return port == 28009 ? 1 : err_set(e, EADDRINUSE, "in use");
}

static int open_none(void *arg, uint16_t port, struct err *e)
{
    (void)arg;
    return err_set(e, port < 28000 || port > 28015 ? EIO : EADDRINUSE, "in use");
}

static void a_full_port_range(void **state)
{
    (void)state;
    struct err e = { 0 };
    assert_int_equal(tcp_open_among(28000, 28015, open_odd, NULL, &e), 1);
    assert_int_equal(tcp_open_among(28000, 28015, open_none, NULL, &e), -EADDRINUSE);
    assert_string_equal(e.msg,
                        "all ports of tony.port-range (28000-28015) are in use on this node");
}

/* A node that had just been started took 1.3 s. */
static void a_slow_node_does_not_block_the_job(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, soon);
    world_go_remote(&w);
    w.busy_ms = 1300;
    assert_int_equal(world_run(&w), MASTER_OVER);
    /* or this machine was stopped for much longer */
    assert_true(!w.still_busy || clock_mono_ms() - w.busy_since_ms > 2 * w.busy_ms);
    assert_string_equal(w.finish_state, "SUCCEEDED");
    world_done(&w);
}

static void a_shared_history(void **state)
{
    (void)state;
    static const char *const lines[] = { BASIC, "tony.worker.instances=1", "tony.worker.memory=64m",
                                         "tony.execution.envs=A=1,DB_PASSWORD=hunter2", NULL };
    struct world w;
    world_init(&w, lines, soon);
    world_go_remote(&w);
    w.remote.history_is_shared = true;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_string_equal(w.files.log.v[1], "mkdirs " H " 750");
    assert_string_equal(w.files.log.v[2], "put " H "/job.conf 640");
    for (size_t i = 0; i < w.files.log.n; i++) /* nothing that others could write */
        assert_false(str_ends(w.files.log.v[i], "660") || str_ends(w.files.log.v[i], "770"));
    assert_non_null(strstr(buf_cstr(&w.files.conf), "A=1,DB_PASSWORD=***"));
    assert_null(strstr(buf_cstr(&w.files.conf), "hunter2"));
    world_done(&w);
}

static void a_job_without_a_history_directory(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, soon);
    world_go_remote(&w);
    w.remote.history_dir = w.remote.staging_dir = NULL;
    assert_int_equal(world_run(&w), MASTER_OVER);
    expect_log(&w, (const char *const[]){ "finish", NULL });
    world_done(&w);
}

/* The verdict is reported, and the text says that the history could not be stored. */
static void a_history_that_fails(void **state)
{
    (void)state;
    struct world w;
    log_setup(open("/dev/null", 1), LOG_ERROR, false);
    world_init(&w, two_workers, soon);
    w.probe.patience_ms = 300;
    log_setup(open("/dev/null", 1), LOG_ERROR, false);
    world_go_remote(&w);
    w.files.fail = EACCES;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_string_equal(w.client_state, "SUCCEEDED");
    assert_string_equal(w.finish_state, "SUCCEEDED");
    assert_non_null(strstr(w.diagnostics, "(its history could not be written to '" H
                                          "': cannot do that: Permission denied)"));
    expect_log(&w, (const char *const[]){ "rmdir /s/queued", "mkdirs " H " 700", "mkdirs " H " 700",
                                          "finish", "remove /s", NULL });
    world_done(&w);
}

/* The final status is too large to be written. The journal has the same data, so it is stored. */
static void a_history_without_a_status(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, soon);
    log_setup(open("/dev/null", 1), LOG_ERROR, false);
    world_go_remote(&w);
    w.probe.status_max = 100;
    assert_int_equal(world_run(&w), MASTER_OVER);
    expect_log(&w, (const char *const[]){ "rmdir /s/queued", "mkdirs " H " 700",
                                          "put " H "/job.conf 600", "put " H "/journal 600",
                                          "put " H "/summary 600", "put " H "/metrics 600",
                                          "finish", "remove /s", NULL });
    assert_string_equal(w.finish_state, "SUCCEEDED");
    assert_null(strstr(w.diagnostics, "history"));
    world_done(&w);
}

static void expect_summary(const struct world *w, const char *state)
{
    AUTO(free_p) char *path = fs_join(w->job_dir, "summary");
    AUTO(free_p) char *member = str_printf("\"state\":\"%s\"", state);
    AUTO(buf_done) struct buf text = { .max = 4096 };
    assert_int_equal(fs_read(AT_FDCWD, path, &text, NULL), 0);
    if (!strstr(buf_cstr(&text), member))
        fail_msg("expected %s: %s", state, buf_cstr(&text));
}

static const char *const stored[] = { "rmdir /s/queued",
                                      "mkdirs " H " 700",
                                      "put " H "/job.conf 600",
                                      "put " H "/journal 600",
                                      "put " H "/status.json 600",
                                      "put " H "/summary 600",
                                      "put " H "/metrics 600",
                                      "finish",
                                      "remove /s",
                                      NULL };

/* The journal cannot be written from one of its writes on. The history is stored all the same: the
 * journal as far as it was written, and a status that says why the job failed. */
static void a_history_after_a_disk_failure(void **state)
{
    (void)state;
    unsigned n_stored = 0;
    enum master_exit code = MASTER_HOPELESS;
    for (unsigned k = 1; code == MASTER_HOPELESS; k++) {
        struct world w;
        world_init(&w, two_workers, soon);
        log_setup(open("/dev/null", 1), LOG_ERROR, false);
        world_go_remote(&w);
        w.fail_at = k;
        w.fail_errno = EFBIG;
        code = world_run(&w);
        assert_false(w.timed_out);
        assert_int_equal(world_alive(&w), 0);
        if (code == MASTER_HOPELESS && w.finish_state[0]) {
            n_stored++;
            expect_log(&w, stored);
            assert_string_equal(w.finish_state, "FAILED");
            assert_non_null(strstr(w.diagnostics, "File too large"));
            expect_summary(&w, "FAILED");
        }
        world_done(&w);
    }
    assert_true(n_stored > 0);
}

/* The verdict is in the journal, but syncing it fails. The ResourceManager, the client and the
 * history get the same verdict: the one that a reader of the journal finds. */
static void a_verdict_that_was_not_synced(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, soon);
    log_setup(open("/dev/null", 1), LOG_ERROR, false);
    world_go_remote(&w);
    w.fail_syncs = 1;
    w.fail_errno = EIO;
    assert_int_equal(world_run(&w), MASTER_HOPELESS);
    assert_int_equal(world_alive(&w), 0);
    expect_log(&w, stored);
    expect_summary(&w, "SUCCEEDED");
    assert_string_equal(w.client_state, "SUCCEEDED");
    assert_string_equal(w.finish_state, "SUCCEEDED");
    world_done(&w);
}

static void a_history_that_hangs(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, soon);
    log_setup(open("/dev/null", 1), LOG_ERROR, false);
    world_go_remote(&w);
    w.remote.archive_ms = 30;
    w.remote.staging_dir = NULL;
    w.files.hang = true;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_int_equal(w.n_finished, 1);
    assert_non_null(strstr(w.diagnostics, "HDFS takes too long"));
    world_done(&w);
}

/* ---- which peer may speak for which container ---- */

struct stranger {
    struct world *w;
    const char *identity;
    struct tls_key key;
    Tony__Frame *first;
    struct conn *conn;
    bool opened, welcomed, answered, closed;
    char refused[100];
};

static void stranger_open(struct conn *c, void *arg)
{
    struct stranger *s = arg;
    s->opened = true;
    (void)conn_send(c, s->first);
}

static void stranger_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct stranger *s = arg;
    (void)c;
    s->welcomed |= f->body_case == TONY__FRAME__BODY_WELCOME;
    s->answered |=
        f->body_case == TONY__FRAME__BODY_ANSWER || f->body_case == TONY__FRAME__BODY_JOB_UPDATE;
    if (f->body_case == TONY__FRAME__BODY_REFUSED)
        (void)str_copy(s->refused, sizeof s->refused, f->refused->message);
}

static void stranger_closed(struct conn *c, const struct err *e, void *arg)
{
    struct stranger *s = arg;
    (void)c;
    (void)e;
    s->closed = true;
    s->conn = NULL;
}

static const struct conn_ops stranger_ops = { .on_open = stranger_open,
                                              .on_frame = stranger_frame,
                                              .on_close = stranger_closed };

static struct stranger *the_stranger;

static void send_stranger(struct world *w)
{
    struct stranger *s = the_stranger;
    assert_int_equal(world_dial(w, s->identity, &s->key, &stranger_ops, s, &s->conn), 0);
}

static const struct script hangs[] = { { .task = "worker:0", .run_ms = 300 },
                                       { .task = "worker:1", .run_ms = 300 },
                                       { 0 } };

static void run_stranger(struct stranger *s, struct world *w)
{
    the_stranger = s;
    w->on_running = send_stranger;
    assert_int_equal(world_run(w), MASTER_OVER);
    assert_string_equal(w->client_state, "SUCCEEDED");
    assert_int_equal(w->n_runs[0], 1);
    assert_int_equal(w->n_runs[1], 1);
    conn_close(s->conn);
}

static void a_clients_key_is_not_valid_for_an_executor(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, hangs);
    world_go_remote(&w);
    Tony__ExecutorHello h = TONY__EXECUTOR_HELLO__INIT;
    h.version = TONY__VERSION__PROTOCOL_VERSION;
    h.container_id = (char *)(uintptr_t) "container_1";
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_EXECUTOR_HELLO;
    f.executor_hello = &h;
    struct stranger s = { .identity = JOB_KEY_CLIENT, .first = &f };
    job_key_client(&w.key, &s.key);
    run_stranger(&s, &w);
    assert_true(s.opened);
    assert_false(s.welcomed);
    assert_string_equal(s.refused, "the key of this connection does not allow that");
    world_done(&w);
}

static void an_executors_key_is_not_valid_for_a_client(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, hangs);
    world_go_remote(&w);
    Tony__ClientAsk a = TONY__CLIENT_ASK__INIT;
    a.what = TONY__CLIENT_ASK__WHAT__STOP;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &a;
    struct stranger s = { .identity = "executor container_1", .first = &f };
    job_key_container(&w.key, "container_1", &s.key);
    run_stranger(&s, &w);
    assert_true(s.opened);
    assert_false(s.answered);
    assert_string_equal(s.refused, "the key of this connection does not allow that");
    world_done(&w);
}

static void an_executor_may_not_act_for_another_container(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, hangs);
    world_go_remote(&w);
    Tony__ExecutorHello h = TONY__EXECUTOR_HELLO__INIT;
    h.version = TONY__VERSION__PROTOCOL_VERSION;
    h.slot = 1;
    h.container_id = (char *)(uintptr_t) "container_2";
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_EXECUTOR_HELLO;
    f.executor_hello = &h;
    struct stranger s = { .identity = "executor container_1", .first = &f };
    job_key_container(&w.key, "container_1", &s.key);
    run_stranger(&s, &w);
    assert_false(s.welcomed);
    assert_string_equal(s.refused, "the key of this connection does not allow that");
    world_done(&w);
}

static void a_wrong_key(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, hangs);
    world_go_remote(&w);
    log_setup(open("/dev/null", 1), LOG_ERROR, false);
    Tony__ClientAsk a = TONY__CLIENT_ASK__INIT;
    a.what = TONY__CLIENT_ASK__WHAT__STATUS;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &a;
    struct stranger s = { .identity = JOB_KEY_CLIENT, .first = &f };
    job_key_container(&w.key, "container_3", &s.key);
    run_stranger(&s, &w);
    assert_false(s.opened);
    assert_true(s.closed);
    world_done(&w);
}

/* ---- logs ---- */

static void a_log_through_the_master(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, hangs);
    world_go_remote(&w);
    w.reads_log_of = 2;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_int_equal(w.n_logs, 1);
    assert_int_equal(w.log_num, 0);
    assert_string_equal(w.log_text, "stderr of slot 1 from -10");
    world_done(&w);
}

static void a_log_of_no_task(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, hangs);
    world_go_remote(&w);
    w.reads_log_of = 3;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_int_equal(w.n_logs, 1);
    assert_int_equal(w.log_num, ENOENT);
    assert_string_equal(w.log_text, "the job has no such task");
    world_done(&w);
}

/* The executor got the request and ends without an answer: the client hears where else to look. */
static void a_log_of_a_gone_executor(void **state)
{
    (void)state;
    static const struct script scripts[] = { { .task = "worker:0", .run_ms = 50 },
                                             { .task = "worker:1", .run_ms = 200 },
                                             { 0 } };
    struct world w;
    world_init(&w, two_workers, scripts);
    world_go_remote(&w);
    w.box_hides_log = true;
    w.reads_log_of = 1;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_int_equal(w.n_logs, 1);
    assert_int_equal(w.log_num, ESTALE);
    assert_string_equal(w.log_text, "the executor of task 'worker:0' is not connected; its log may "
                                    "be read at http://n1:8042/logs/<of it>");
    world_done(&w);
}

/* The executor connects anew before the master has noticed that the old connection broke. A request
 * that was sent on the old connection gets no answer there, so the master answers it. */
static void a_log_of_a_replaced_connection(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, hangs);
    world_go_remote(&w);
    log_setup(open("/dev/null", O_WRONLY | O_CLOEXEC), LOG_ERROR, false);
    w.box_hides_log = true;
    w.reads_log_of = 1;
    Tony__ExecutorHello h = TONY__EXECUTOR_HELLO__INIT;
    h.version = TONY__VERSION__PROTOCOL_VERSION;
    h.container_id = (char *)(uintptr_t) "container_1";
    h.generation = h.attempt = 1;
    h.running = true;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_EXECUTOR_HELLO;
    f.executor_hello = &h;
    struct stranger s = { .identity = "executor container_1", .first = &f };
    job_key_container(&w.key, "container_1", &s.key);
    the_stranger = &s;
    w.on_running = send_stranger;
    assert_int_equal(world_run(&w), MASTER_OVER);
    assert_true(s.welcomed);
    assert_int_equal(w.n_logs, 1);
    assert_int_equal(w.log_num, ESTALE);
    conn_close(s.conn);
    world_done(&w);
}

/* ---- the page ---- */

static struct buf page, document;

static void look_at_page(struct world *w)
{
    assert_int_equal(page_html(w->master, &page), 0);
    assert_int_equal(master_status_json(w->master, true, true, &document), 0);
}

static void the_page(void **state)
{
    (void)state;
    struct world w;
    world_init(&w,
               (const char *const[]){ BASIC, "tony.worker.instances=2",
                                      "tony.execution.envs=SECRET=hush", NULL },
               soon);
    world_go_remote(&w);
    w.on_running = look_at_page;
    assert_int_equal(world_run(&w), MASTER_OVER);
    const char *html = buf_cstr(&page);
    static const char *const there[] = {
        "<title>t&lt;1&gt;</title>",
        "application_1700000000000_0001",
        "RUNNING",
        "worker:1",
        "<td>n1:45454</td>",
        "href=\"http://n1:8042/logs/&lt;of it&gt;/stderr?start=-65536\"",
        "href=\"status.json\"",
        "href=\"http://n0:8042/logs/master\"",
    };
    for (size_t i = 0; i < ARRAY_LEN(there); i++)
        if (!strstr(html, there[i]))
            fail_msg("'%s' is not in:\n%s", there[i], html);
    assert_null(strstr(html, "hush"));
    assert_null(strstr(html, "<script"));
    assert_null(strstr(buf_cstr(&document), "hush"));
    json_t *doc = NULL;
    struct err e = { 0 };
    assert_int_equal(json_parse("status", buf_span(&document), &doc, &e), 0);
    json_decref(doc);
    buf_done(&page);
    buf_done(&document);
    world_done(&w);
}

static struct http *web;
static struct {
    int status;
    char type[80];
    struct buf body;
} got[5];

static void on_got(struct http_call *c, const struct http_response *r, const struct err *e,
                   void *arg)
{
    size_t i = (size_t)(uintptr_t)arg;
    (void)c;
    if (e->num)
        fail_msg("%s", e->msg);
    struct span type = http_header(r, "content-type");
    got[i].status = r->status;
    (void)snprintf(got[i].type, sizeof got[i].type, "%.*s", (int)type.len, type.p ? type.p : "");
    (void)buf_add(&got[i].body, r->body.p, r->body.len);
}

static void browse(struct world *w)
{
    static const char *const paths[] = { "/", "/status.json", "/journal", "/metrics", "/metrics" };
    static const char *const open[] = { "Accept: application/openmetrics-text; version=1.0.0,*/*",
                                        NULL };
    struct err e = { 0 };
    web = http_new(w->loop, &e);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        AUTO(free_p)
        char *url = str_printf("http://127.0.0.1:%u%s", w->master->page_port, paths[i]);
        struct http_request q = {
            .method = "GET", .url = url, .done = on_got, .arg = (void *)(uintptr_t)i
        };
        if (i == 3)
            q.headers = open;
        assert_int_equal(http_send(web, &q, NULL, &e), 0);
    }
}

static void the_page_is_served(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, two_workers, hangs);
    world_go_remote(&w);
    w.on_running = browse;
    assert_int_equal(world_run(&w), MASTER_OVER);
    http_free(web);
    assert_int_equal(got[0].status, 200);
    assert_string_equal(got[0].type, "text/html; charset=utf-8");
    assert_non_null(strstr(buf_cstr(&got[0].body), "<h2>Tasks</h2>"));
    assert_int_equal(got[1].status, 200);
    assert_string_equal(got[1].type, "application/json");
    assert_non_null(strstr(buf_cstr(&got[1].body), "\"tasks\":["));
    assert_int_equal(got[2].status, 404);
    assert_int_equal(got[3].status, 200);
    assert_string_equal(got[3].type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert_non_null(
        strstr(buf_cstr(&got[3].body),
               "\ntony_job_tasks{application_id=\"application_1700000000000_0001\"} 2\n"));
    assert_true(str_ends(buf_cstr(&got[3].body), "\n# EOF\n"));
    assert_non_null(strstr(buf_cstr(&got[3].body), "# TYPE tony_task_cpu_seconds counter\n"));
    assert_string_equal(got[4].type, "text/plain; version=0.0.4; charset=utf-8");
    assert_non_null(strstr(buf_cstr(&got[4].body), "# TYPE tony_task_cpu_seconds_total counter\n"));
    assert_null(strstr(buf_cstr(&got[4].body), "# EOF"));
    for (size_t i = 0; i < ARRAY_LEN(got); i++)
        buf_done(&got[i].body);
    world_done(&w);
}

/* ---- a job without roles: its executor is a child of the master ---- */

static void run_beside(const char *script, struct world *w)
{
    static const char *const conf[] = { BASIC, NULL };
    struct err e = { 0 };
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    world_init(w, conf, NULL);
    world_go_remote(w);
    log_setup(open("/dev/null", O_WRONLY | O_CLOEXEC), LOG_ERROR, false);
    assert_int_equal(chdir(w->home), 0);
    (void)setenv("LOG_DIRS", w->home, 1);
    assert_int_equal(fs_write_atomic(AT_FDCWD, "tony-executor", span_of(script), 0755, false, &e),
                     0);
    assert_int_equal(world_run(w), MASTER_OVER);
    (void)unsetenv("LOG_DIRS");
    assert_int_equal(chdir(before), 0);
}

static void a_task_in_the_masters_container(void **state)
{
    (void)state;
    struct world w;
    AUTO(buf_done) struct buf env = { 0 };
    run_beside("#!/bin/sh\nenv > env.txt\ncat \"$HADOOP_TOKEN_FILE_LOCATION\" > key.txt\n"
               "echo \"$@\" >&2\nexit 3\n",
               &w);
    assert_int_equal(w.n_asks, 0); /* no container was requested */
    assert_string_equal(w.finish_state, "FAILED");
    AUTO(free_p) char *env_path = fs_join(w.home, "env.txt");
    assert_int_equal(fs_read(AT_FDCWD, env_path, &env, NULL), 0);
    assert_non_null(strstr(buf_cstr(&env), "TONY_SLOT=0\n"));
    assert_non_null(strstr(buf_cstr(&env), "TONY_MASTER_ADDRESS=127.0.0.1:"));
    AUTO(free_p) char *key_path = fs_join(w.home, "key.txt");
    AUTO(buf_done) struct buf text = { 0 };
    struct span secret;
    struct tls_key key;
    job_key_container(&w.key, w.remote.container_id, &key);
    assert_int_equal(fs_read(AT_FDCWD, key_path, &text, NULL), 0);
    assert_int_equal(hdts_secret(buf_span(&text), CONTAINER_KEY_SECRET, &secret, NULL), 0);
    assert_int_equal(secret.len, key.len);
    assert_memory_equal(secret.p, key.bytes, key.len);
    AUTO(free_p) char *log_path = fs_join(w.home, "executor.log");
    AUTO(buf_done) struct buf log = { 0 };
    assert_int_equal(fs_read(AT_FDCWD, log_path, &log, NULL), 0);
    assert_string_equal(buf_cstr(&log), "--container\n");
    world_done(&w);
}

static void no_executor_beside_the_master(void **state)
{
    (void)state;
    struct world w;
    run_beside("#!/nonexistent/interpreter\n", &w);
    assert_string_equal(w.finish_state, "FAILED");
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ends_well),
        cmocka_unit_test(a_port_range),
        cmocka_unit_test(a_full_port_range),
        cmocka_unit_test(a_slow_node_does_not_block_the_job),
        cmocka_unit_test(a_shared_history),
        cmocka_unit_test(a_job_without_a_history_directory),
        cmocka_unit_test(a_history_that_fails),
        cmocka_unit_test(a_history_without_a_status),
        cmocka_unit_test(a_history_after_a_disk_failure),
        cmocka_unit_test(a_verdict_that_was_not_synced),
        cmocka_unit_test(a_history_that_hangs),
        cmocka_unit_test(a_clients_key_is_not_valid_for_an_executor),
        cmocka_unit_test(an_executors_key_is_not_valid_for_a_client),
        cmocka_unit_test(an_executor_may_not_act_for_another_container),
        cmocka_unit_test(a_wrong_key),
        cmocka_unit_test(a_log_through_the_master),
        cmocka_unit_test(a_log_of_no_task),
        cmocka_unit_test(a_log_of_a_gone_executor),
        cmocka_unit_test(a_log_of_a_replaced_connection),
        cmocka_unit_test(the_page),
        cmocka_unit_test(the_page_is_served),
        cmocka_unit_test(a_task_in_the_masters_container),
        cmocka_unit_test(no_executor_beside_the_master),
    };
    return cmocka_run_group_tests_name("master_remote", tests, NULL, NULL);
}
