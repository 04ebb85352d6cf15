/* SPDX-License-Identifier: Apache-2.0 */
#include "pool_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/proctree.h"
#include "codec/frame.h"
#include "codec/json.h"
#include "history/history.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include "proto/tony.pb-c.h"

pid_t world_start_pool(struct world *w)
{
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char fd_text[12];
        char *argv[12] = { (char *)"tony-pool", (char *)"--foreground", (char *)"--ready-fd",
                           fd_text };
        int argc = 4;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)fcntl(fds[1], F_SETFD, 0);
        (void)snprintf(fd_text, sizeof fd_text, "%d", fds[1]);
        for (size_t i = 0; i < ARRAY_LEN(w->conf) && w->conf[i]; i++) {
            argv[argc++] = (char *)"--conf";
            argv[argc++] = (char *)w->conf[i];
        }
        (void)execv("/proc/self/exe", argv); /* libuv does not work in a fork without an exec */
        _exit(127);
    }
    (void)close(fds[1]);
    char byte;
    struct pollfd p = { .fd = fds[0], .events = POLLIN };
    assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    (void)close(fds[0]);
    return pid;
}

int world_setup(void **state)
{
    struct err e = { 0 };
    struct world *w = calloc(1, sizeof *w);
    char self[512], path[600];
    (void)snprintf(w->dir, sizeof w->dir, "/tmp/tony-test-pool-XXXXXX");
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (!mkdtemp(w->dir) || n < 0)
        return -1;
    self[n] = '\0';
    (void)snprintf(path, sizeof path, "%s/bin", w->dir);
    (void)mkdir(path, 0700);
    (void)setenv("PATH", path, 1);
    (void)snprintf(path, sizeof path, "%s/bin/tony-executor", w->dir);
    if (symlink(self, path) == -1)
        return -1;
    (void)snprintf(path, sizeof path, "%s/home", w->dir);
    (void)setenv("TONY_HOME", path, 1);
    (void)snprintf(path, sizeof path, "%s/run", w->dir);
    (void)mkdir(path, 0700);
    (void)setenv("XDG_RUNTIME_DIR", path, 1);
    (void)setenv("TONY_GPU_LOCKS", w->dir, 1);
    (void)unsetenv("TONY_APPLICATION_ID");
    if (paths_open(&w->paths, &e) < 0 || !(w->loop = loop_new(&e)))
        return -1;
    w->conf[0] = "tony.pool.memory=100m";
    w->conf[1] = "tony.pool.gpus=0";
    *state = w;
    return 0;
}

static void world_forget(struct world *w)
{
    json_decref(w->json);
    w->json = NULL;
    w->num = 0;
    w->text[0] = w->hint[0] = w->state[0] = w->master[0] = '\0';
    w->finished = false;
}

/* Kills keepers that this test has started, also those that are only starting. */
static void kill_keepers(const struct world *w)
{
    for (int number = 1; number < 12; number++) {
        char id[APP_ID_MAX];
        AUTO(buf_done) struct buf start = { 0 };
        AUTO(free_p) char *path = fs_join(w->paths.pool, "start");
        int64_t ms = 0;
        if (fs_read(AT_FDCWD, path, &start, NULL) < 0 ||
            str_i64(span_trim(buf_span(&start)), 1, INT64_MAX, "start", &ms, NULL) < 0)
            return;
        app_id_format(id, ms, (uint32_t)number);
        (void)proctree_kill_job(id, 0, DEADLINE_MS, NULL);
    }
}

int world_teardown(void **state)
{
    struct world *w = *state;
    if (w->pool > 0) {
        (void)kill(w->pool, SIGKILL);
        (void)waitpid(w->pool, NULL, 0);
    }
    kill_keepers(w);
    world_forget(w);
    loop_free(w->loop);
    if (getenv("TONY_TEST_SHOW")) {
        AUTO(buf_done) struct buf log = { 0 };
        AUTO(free_p) char *path = fs_join(w->paths.pool, "pool.log");
        (void)fs_read(AT_FDCWD, path, &log, NULL);
        (void)fprintf(stderr, "%s", buf_cstr(&log));
    }
    paths_done(&w->paths);
    int rc = fs_remove_tree(AT_FDCWD, w->dir, NULL);
    free(w);
    return rc;
}

/* ---- messages to and from the pool ---- */

static void take_json(struct world *w, const ProtobufCBinaryData *d)
{
    struct err e = { 0 };
    json_decref(w->json);
    w->json = NULL;
    if (json_parse("answer", span_mem(d->data, d->len), &w->json, &e) < 0)
        fail_msg("%s: %.*s", e.msg, (int)d->len, (const char *)d->data);
}

static void on_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct world *w = arg;
    /* This answer came for a follower while the test waits on another connection. */
    if (c != w->conn) {
        w->updates++;
        return;
    }
    if (f->body_case == TONY__FRAME__BODY_REFUSED) {
        w->num = (int)f->refused->num;
        (void)str_copy(w->text, sizeof w->text, f->refused->message);
        (void)str_copy(w->hint, sizeof w->hint, f->refused->hint);
    } else if (f->body_case == TONY__FRAME__BODY_ANSWER) {
        take_json(w, &f->answer->json);
    } else if (f->body_case == TONY__FRAME__BODY_SUBMITTED) {
        assert_true(str_copy(w->id, sizeof w->id, f->submitted->application_id));
        assert_int_equal(access(f->submitted->job_dir, F_OK), 0);
    } else if (f->body_case == TONY__FRAME__BODY_JOB_UPDATE) {
        const Tony__JobUpdate *u = f->job_update;
        w->updates++;
        take_json(w, &u->json);
        w->finished = u->finished;
        w->exit_code = u->exit_code;
        (void)str_copy(w->state, sizeof w->state, u->state);
        (void)str_copy(w->master, sizeof w->master, u->master_socket);
    } else {
        fail();
    }
    loop_stop(w->loop);
}

static void on_close(struct conn *c, const struct err *e, void *arg)
{
    struct world *w = arg;
    (void)e;
    if (w->conn == c)
        w->conn = NULL;
    w->closed = true;
    loop_stop(w->loop);
}

static void late(void *arg)
{
    (void)arg;
    fail_msg("nothing came from the pool for %d ms", DEADLINE_MS);
}

/* Waits for a frame. */
void world_wait_word(struct world *w)
{
    struct loop_timer *t = loop_timer_new(w->loop, late, w);
    loop_timer_set(t, clock_mono_ms() + DEADLINE_MS);
    (void)loop_run(w->loop);
    loop_timer_free(t);
}

static int try_dial(struct world *w, struct err *e)
{
    static const struct conn_ops ops = { NULL, on_frame, on_close };
    AUTO(free_p) char *path = paths_pool_socket(&w->paths);
    struct conn *c;
    int rc = conn_dial_unix(w->loop, path, &ops, w, &c, e);
    if (rc == 0) {
        w->closed = false;
        w->conn = c;
    }
    return rc;
}

struct conn *world_dial(struct world *w)
{
    struct err e = { 0 };
    if (try_dial(w, &e) < 0)
        fail_msg("%s", e.msg);
    return w->conn;
}

void world_ask_on(struct world *w, struct conn *c, int what, const char *id, bool force)
{
    Tony__ClientAsk ask = TONY__CLIENT_ASK__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    ask.what = (Tony__ClientAsk__What)what;
    ask.application_id = (char *)id;
    ask.who = (char *)"tester";
    ask.force = force;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &ask;
    world_forget(w);
    assert_int_equal(conn_send(c, &f), 0);
}

void world_ask(struct world *w, int what, const char *id, bool force)
{
    world_ask_on(w, w->conn, what, id, force);
    world_wait_word(w);
}

void world_send(struct world *w, const Tony__Frame *f)
{
    world_forget(w);
    assert_int_equal(conn_send(w->conn, f), 0);
    world_wait_word(w);
}

void world_send_submit(struct world *w, struct span text, bool owned)
{
    Tony__Submit s = TONY__SUBMIT__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    s.version = TONY__VERSION__PROTOCOL_VERSION;
    s.conf = (ProtobufCBinaryData){ .data = (uint8_t *)text.p, .len = text.len };
    s.owned = owned;
    f.body_case = TONY__FRAME__BODY_SUBMIT;
    f.submit = &s;
    world_forget(w);
    w->id[0] = '\0';
    assert_int_equal(conn_send(w->conn, &f), 0);
    while (!w->id[0] && !w->num) /* the follower's message may arrive before the answer */
        world_wait_word(w);
}

/* Submits a job and copies its id to out; fails the test if the pool refuses the job. */
void world_submit(struct world *w, struct want j, char out[APP_ID_MAX])
{
    AUTO(buf_done) struct buf text = { 0 };
    encode_job(&j, &text);
    world_send_submit(w, buf_span(&text), j.owned);
    if (w->num)
        fail_msg("refused: %s", w->text);
    assert_true(w->id[0] != '\0');
    if (out)
        (void)str_copy(out, APP_ID_MAX, w->id);
}

void world_tell_keeper(const struct world *w, const char *id, const char *word)
{
    AUTO(free_p) char *dir = paths_job(&w->paths, id);
    AUTO(free_p) char *path = fs_join(dir, "do");
    assert_int_equal(fs_write_atomic(AT_FDCWD, path, span_of(word), 0600, false, NULL), 0);
}

const json_t *world_find_job(const struct world *w, const char *id)
{
    size_t i;
    json_t *j;
    json_array_foreach(json_object_get(w->json, "jobs"), i, j)
    {
        if (str_eq(json_str(j, "application_id", ""), id))
            return j;
    }
    return NULL;
}

void world_pause_ms(int ms)
{
    (void)poll(NULL, 0, ms);
}

/* Waits until the pool reports this state for the job; "" = until it does not know the job. */
void world_await_state(struct world *w, const char *id, const char *state)
{
    int64_t deadline = clock_mono_ms() + DEADLINE_MS;
    for (;;) {
        world_ask(w, TONY__CLIENT_ASK__WHAT__POOL_STATUS, "", false);
        const json_t *j = world_find_job(w, id);
        const char *is = j ? json_str(j, "state", "") : "";
        if (str_eq(is, state))
            return;
        if (clock_mono_ms() > deadline)
            fail_msg("job %s is '%s', not '%s'", id, is, state);
        world_pause_ms(10);
    }
}

/* Number of keepers that were started for the job. */
unsigned world_count_lives(const struct world *w, const char *id)
{
    AUTO(free_p) char *dir = paths_job(&w->paths, id);
    DIR *d = opendir(dir);
    unsigned n = 0;
    if (!d)
        return 0;
    for (struct dirent *x; (x = readdir(d));)
        n += str_starts(x->d_name, "life-");
    (void)closedir(d);
    return n;
}

pid_t world_keeper_pid(const struct world *w, const char *id)
{
    AUTO(free_p) char *dir = paths_job(&w->paths, id);
    DIR *d = opendir(dir);
    pid_t pid = 0;
    assert_non_null(d);
    for (struct dirent *x; (x = readdir(d));)
        if (str_starts(x->d_name, "life-"))
            pid = (pid_t)strtol(x->d_name + strlen("life-"), NULL, 10);
    (void)closedir(d);
    assert_true(pid > 0);
    return pid;
}

void world_open_pool(struct world *w)
{
    w->pool = world_start_pool(w);
    (void)world_dial(w);
}

void world_open_idle_pool(struct world *w)
{
    for (;;) {
        struct err e = { 0 };
        w->pool = world_start_pool(w);
        if (try_dial(w, &e) == 0) {
            world_ask(w, TONY__CLIENT_ASK__WHAT__POOL_STATUS, "", false);
            if (w->json)
                return;
        }
        (void)waitpid(w->pool, NULL, 0);
    }
}

void world_await_pool_end(struct world *w)
{
    int status;
    pid_t pid = 0;
    int64_t deadline = clock_mono_ms() + DEADLINE_MS;
    while ((pid = waitpid(w->pool, &status, WNOHANG)) == 0 && clock_mono_ms() < deadline)
        world_pause_ms(2);
    assert_int_equal(pid, w->pool);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    w->pool = 0;
}

void world_check_verdict(const struct world *w, const char *id, enum job_state state, int code,
                         const char *part)
{
    AUTO(free_p) char *dir = paths_history(&w->paths, id);
    AUTO(history_freep) struct history_job *h = NULL;
    struct err e = { 0 };
    if (history_load(dir, &h, &e) < 0)
        fail_msg("%s", e.msg);
    struct job_verdict v;
    job_verdict(h->job, &v);
    assert_int_equal(v.state, state);
    assert_int_equal(v.exit_code, code);
    if (part && !strstr(v.message, part))
        fail_msg("'%s' is not in '%s'", part, v.message);
}

void world_kill_pool(struct world *w)
{
    conn_close(TAKE(w->conn));
    assert_int_equal(kill(w->pool, SIGKILL), 0);
    assert_int_equal(waitpid(w->pool, NULL, 0), w->pool);
}

int world_other_program(int argc, char **argv)
{
    if (str_eq(argv[0], "tony-pool"))
        return pool_main(argc, argv);
    if (argc >= 3 && (str_eq(argv[1], "--keeper") || str_eq(argv[1], "--cleanup")))
        _exit(fake_keeper_main(argc, argv)); /* leaks of the stand-in do not matter here */
    return -1;
}
