/*
 * The pool as a program, with keepers that are this test program itself: PATH leads to it under the
 * name tony-executor, and main() looks at its arguments: pool_keeper.c.
 */
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
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "codec/frame.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "history/history.h"
#include "job/job.h"
#include "loop/loop.h"
#include "pool/leftovers.h"
#include "pool/pool.h"
#include "pool_keeper.h"
#include "proto/tony.pb-c.h"
#include "storage/jobfile.h"
#include "storage/paths.h"

enum { DEADLINE_MS = 20000 };

/* ---- the world of a test ---- */

struct world {
    char dir[64];
    struct paths paths;
    struct loop *loop;
    struct conn *conn;
    pid_t pool;
    const char *conf[4];
    /* the last answer */
    int num; /* of a refusal */
    char text[512], hint[256];
    char id[APP_ID_MAX];
    json_t *json;
    char state[32], master[128];
    int exit_code;
    bool finished, closed;
    unsigned updates;
};

static pid_t start_pool(struct world *w)
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
        (void)execv("/proc/self/exe", argv); /* libuv does not live through a fork alone */
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

static int setup(void **state)
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
    (void)unsetenv("TONY_APPLICATION_ID");
    if (paths_open(&w->paths, &e) < 0 || !(w->loop = loop_new(&e)))
        return -1;
    w->conf[0] = "tony.pool.memory=100m";
    w->conf[1] = "tony.pool.gpus=0";
    *state = w;
    return 0;
}

static void forget(struct world *w)
{
    json_decref(w->json);
    w->json = NULL;
    w->num = 0;
    w->text[0] = w->hint[0] = w->state[0] = w->master[0] = '\0';
    w->finished = false;
}

/* Keepers of this test that still live, or are only being started. */
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
        (void)leftovers_kill(id, DEADLINE_MS);
    }
}

static int teardown(void **state)
{
    struct world *w = *state;
    if (w->pool > 0) {
        (void)kill(w->pool, SIGKILL);
        (void)waitpid(w->pool, NULL, 0);
    }
    kill_keepers(w);
    forget(w);
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

/* ---- talking to the pool ---- */

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
    if (c != w->conn) { /* a follower's, while another connection is being talked on */
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

/* Until something has come. */
static void wait_word(struct world *w)
{
    struct loop_timer *t = loop_timer_new(w->loop, late, w);
    loop_timer_set(t, clock_mono_ms() + DEADLINE_MS);
    (void)loop_run(w->loop);
    loop_timer_free(t);
}

static struct conn *dial(struct world *w)
{
    static const struct conn_ops ops = { NULL, on_frame, on_close };
    AUTO(free_p) char *path = paths_pool_socket(&w->paths);
    struct err e = { 0 };
    struct conn *c;
    if (conn_dial_unix(w->loop, path, &ops, w, &c, &e) < 0)
        fail_msg("%s", e.msg);
    w->closed = false;
    return w->conn = c;
}

static void ask_on(struct world *w, struct conn *c, int what, const char *id, bool force)
{
    Tony__ClientAsk ask = TONY__CLIENT_ASK__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    ask.what = (Tony__ClientAsk__What)what;
    ask.application_id = (char *)id;
    ask.who = (char *)"tester";
    ask.force = force;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &ask;
    forget(w);
    assert_int_equal(conn_send(c, &f), 0);
}

static void ask(struct world *w, int what, const char *id, bool force)
{
    ask_on(w, w->conn, what, id, force);
    wait_word(w);
}

static void send_submit(struct world *w, struct span text, bool owned)
{
    Tony__Submit s = TONY__SUBMIT__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    s.version = TONY__VERSION__PROTOCOL_VERSION;
    s.conf = (ProtobufCBinaryData){ .data = (uint8_t *)text.p, .len = text.len };
    s.owned = owned;
    f.body_case = TONY__FRAME__BODY_SUBMIT;
    f.submit = &s;
    forget(w);
    w->id[0] = '\0';
    assert_int_equal(conn_send(w->conn, &f), 0);
    while (!w->id[0] && !w->num) /* a follower may hear of it first */
        wait_word(w);
}

/* The id goes to out; fails when it is refused. */
static void submit(struct world *w, struct want j, char out[APP_ID_MAX])
{
    AUTO(buf_done) struct buf text = { 0 };
    encode_job(&j, &text);
    send_submit(w, buf_span(&text), j.owned);
    if (w->num)
        fail_msg("refused: %s", w->text);
    assert_true(w->id[0] != '\0');
    if (out)
        (void)str_copy(out, APP_ID_MAX, w->id);
}

static void tell_keeper(const struct world *w, const char *id, const char *word)
{
    AUTO(free_p) char *dir = paths_job(&w->paths, id);
    AUTO(free_p) char *path = fs_join(dir, "do");
    assert_int_equal(fs_write_atomic(AT_FDCWD, path, span_of(word), 0600, false, NULL), 0);
}

static const json_t *find_job(const struct world *w, const char *id)
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

static void pause_ms(int ms)
{
    (void)poll(NULL, 0, ms);
}

/* Until the pool says so of the job; "" = that it is not there. */
static void await_state(struct world *w, const char *id, const char *state)
{
    int64_t deadline = clock_mono_ms() + DEADLINE_MS;
    for (;;) {
        ask(w, TONY__CLIENT_ASK__WHAT__POOL_STATUS, "", false);
        const json_t *j = find_job(w, id);
        const char *is = j ? json_str(j, "state", "") : "";
        if (str_eq(is, state))
            return;
        if (clock_mono_ms() > deadline)
            fail_msg("job %s is '%s', not '%s'", id, is, state);
        pause_ms(5);
    }
}

/* How many keepers the job has had. */
static unsigned count_lives(const struct world *w, const char *id)
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

static void open_pool(struct world *w)
{
    w->pool = start_pool(w);
    (void)dial(w);
}

static void await_pool_end(struct world *w)
{
    int status;
    pid_t pid = 0;
    int64_t deadline = clock_mono_ms() + DEADLINE_MS;
    while ((pid = waitpid(w->pool, &status, WNOHANG)) == 0 && clock_mono_ms() < deadline)
        pause_ms(2);
    assert_int_equal(pid, w->pool);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    w->pool = 0;
}

static void check_verdict(const struct world *w, const char *id, enum job_state state, int code,
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

#define ASK(what) TONY__CLIENT_ASK__WHAT__##what

/* ---- tests ---- */

static void test_one_job(void **state)
{
    struct world *w = *state;
    char id[APP_ID_MAX];
    struct stat st;
    open_pool(w);
    ask(w, ASK(POOL_STATUS), "", false);
    assert_int_equal(json_int(w->json, "pid", 0), w->pool);
    assert_int_equal(json_int(json_object_get(w->json, "capacity"), "memory_mib", 0), 100);
    assert_int_equal(json_int(json_object_get(w->json, "used"), "memory_mib", -1), 0);

    submit(w, (struct want){ .memory = "30m", .instances = "2" }, id);
    assert_true(str_ends(id, "_0001"));
    AUTO(free_p) char *dir = paths_job(&w->paths, id);
    AUTO(free_p) char *key = fs_join(dir, "key");
    AUTO(free_p) char *owned = fs_join(dir, "owned");
    assert_int_equal(stat(key, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, 32);
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(access(owned, F_OK), -1);

    await_state(w, id, "RUNNING");
    assert_int_equal(json_int(json_object_get(w->json, "used"), "memory_mib", 0), 60);
    ask(w, ASK(FOLLOW), id, false);
    assert_string_equal(w->state, "STARTING");
    AUTO(free_p) char *master = paths_socket(&w->paths, id, "m");
    assert_string_equal(w->master, master);

    tell_keeper(w, id, "end");
    wait_word(w); /* the end, from history, where there is no verdict: the fake writes none */
    assert_true(w->finished);
    await_state(w, id, "");
    assert_int_equal(count_lives(w, id), 0); /* moved */
    ask(w, ASK(FOLLOW), id, false);
    assert_true(w->finished);
    ask(w, ASK(FOLLOW), "application_1_0009", false);
    assert_int_equal(w->num, ENOENT);
}

static void test_waiting(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX], c[APP_ID_MAX], d[APP_ID_MAX];
    open_pool(w);
    submit(w, (struct want){ .memory = "60m" }, a);
    submit(w, (struct want){ .memory = "50m" }, b);
    submit(w, (struct want){ .memory = "10m" }, c); /* would fit, but b comes first */
    await_state(w, a, "RUNNING");
    ask(w, ASK(STATUS), b, false);
    assert_string_equal(json_str(w->json, "state", ""), "WAITING");
    assert_string_equal(json_str(w->json, "application_id", ""), b);
    assert_int_equal(json_array_size(json_object_get(w->json, "tasks")), 1);
    const json_t *waiting = json_object_get(w->json, "waiting");
    assert_int_equal(json_int(json_object_get(waiting, "needs"), "memory_mib", 0), 50);
    assert_int_equal(json_int(json_object_get(waiting, "free"), "memory_mib", 0), 40);
    assert_string_equal(json_str(waiting, "behind", ""), a);
    ask(w, ASK(FOLLOW), c, false);
    assert_string_equal(w->state, "WAITING");
    assert_string_equal(json_str(json_object_get(w->json, "waiting"), "behind", ""), b);

    struct conn *follower = w->conn;
    (void)dial(w);
    submit(w, (struct want){ .memory = "50m", .priority = "3" }, d);
    ask(w, ASK(POOL_JOBS), "", false);
    assert_string_equal(json_str(find_job(w, d), "behind", ""), a);
    assert_string_equal(json_str(find_job(w, b), "behind", ""), d);
    assert_int_equal(json_int(find_job(w, c), "place", 0), 3);

    tell_keeper(w, a, "end");
    await_state(w, d, "RUNNING");
    await_state(w, b, "RUNNING");
    ask(w, ASK(POOL_JOBS), "", false);
    assert_string_equal(json_str(find_job(w, c), "state", ""), "WAITING");
    tell_keeper(w, d, "end");
    await_state(w, c, "RUNNING");
    assert_true(w->updates > 0); /* it heard that it stood further back */
    struct conn *other = w->conn;
    w->conn = follower;
    ask_on(w, follower, ASK(FOLLOW), c, false);
    while (!str_eq(w->state, "STARTING"))
        wait_word(w);
    conn_close(other);
}

static void test_kill_waiting(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX];
    open_pool(w);
    submit(w, (struct want){ .memory = "60m" }, a);
    submit(w, (struct want){ .memory = "60m", .owned = true }, b);
    AUTO(free_p) char *dir = paths_job(&w->paths, b);
    AUTO(free_p) char *owned = fs_join(dir, "owned");
    assert_int_equal(access(owned, F_OK), 0); /* for the master */
    ask(w, ASK(STOP), b, false);
    assert_non_null(w->json);
    check_verdict(w, b, JOB_KILLED, 3, NULL);
    assert_int_equal(access(dir, F_OK), -1);
    ask(w, ASK(STOP), b, false);
    assert_int_equal(w->num, ENOENT);
    ask(w, ASK(STOP), a, false); /* its master is to be asked */
    assert_string_equal(w->state, "STARTING");
    assert_true(w->master[0] != '\0');
}

static void test_owner_goes_away(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], gone[APP_ID_MAX], left[APP_ID_MAX], back[APP_ID_MAX];
    open_pool(w);
    submit(w, (struct want){ .memory = "60m", .away = "100" }, a);
    struct conn *first = w->conn;
    (void)dial(w);
    submit(w, (struct want){ .memory = "60m", .away = "100", .owned = true }, gone);
    conn_close(w->conn);
    (void)dial(w);
    submit(w, (struct want){ .memory = "60m", .away = "100", .owned = true }, left);
    ask(w, ASK(OWN), left, false);
    ask_on(w, w->conn, ASK(LEAVE), left, false);
    conn_finish(w->conn);
    (void)dial(w);
    submit(w, (struct want){ .memory = "60m", .away = "60000", .owned = true }, back);
    conn_close(w->conn);
    w->conn = first;
    await_state(w, gone, "");
    check_verdict(w, gone, JOB_KILLED, 3, NULL);
    pause_ms(150);
    await_state(w, left, "WAITING");
    await_state(w, back, "WAITING");
    await_state(w, a, "RUNNING");
}

static void test_refusals(void **state)
{
    struct world *w = *state;
    AUTO(buf_done) struct buf text = { 0 };
    open_pool(w);
    send_submit(w, SPAN("{}"), false);
    assert_int_equal(w->num, EINVAL);
    send_submit(w, SPAN(""), false);
    assert_int_equal(w->num, EINVAL);

    encode_job(&(struct want){ .memory = "51m", .instances = "2" }, &text);
    send_submit(w, buf_span(&text), false);
    assert_int_equal(w->num, ERANGE);
    assert_non_null(strstr(w->text, "102 MiB"));
    assert_non_null(strstr(w->text, "100 MiB"));
    assert_non_null(strstr(w->text, "job.yaml:1"));

    buf_clear(&text);
    encode_job(&(struct want){ .instances = "1" }, &text); /* TonY's default of 2 GB */
    send_submit(w, buf_span(&text), false);
    assert_int_equal(w->num, ERANGE);
    assert_non_null(strstr(w->text, "default"));
    assert_non_null(strstr(w->hint, "tony.worker.memory"));

    ask(w, ASK(POOL_STATUS), "", false); /* it lives on, and nothing is left behind */
    assert_int_equal(json_array_size(json_object_get(w->json, "jobs")), 0);
    assert_int_equal(rmdir(w->paths.jobs), 0);

    buf_clear(&text);
    encode_job(&(struct want){ .memory = "10m" }, &text);
    send_submit(w, buf_span(&text), false); /* a directory that cannot be made */
    assert_int_equal(w->num, ENOENT);
    assert_int_equal(mkdir(w->paths.jobs, 0700), 0);
    submit(w, (struct want){ .memory = "10m" }, NULL);
}

static void test_keeper_dies(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX];
    open_pool(w);
    submit(w, (struct want){ .memory = "60m" }, a);
    await_state(w, a, "RUNNING");
    for (unsigned death = 1; death <= 3; death++) {
        tell_keeper(w, a, "die");
        int64_t deadline = clock_mono_ms() + DEADLINE_MS;
        while (count_lives(w, a) <= death && clock_mono_ms() < deadline)
            pause_ms(5);
        assert_int_equal(count_lives(w, a), death + 1);
        await_state(w, a, "RUNNING");
    }
    ask(w, ASK(FOLLOW), a, false);
    tell_keeper(w, a, "die"); /* once too often */
    wait_word(w);
    assert_true(w->finished);
    assert_string_equal(w->state, "FAILED");
    assert_int_equal(w->exit_code, 1);
    check_verdict(w, a, JOB_FAILED, 1, "again and again");
}

static void test_keeper_refuses(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX];
    open_pool(w);
    submit(w, (struct want){ .memory = "60m" }, a);
    submit(w, (struct want){ .memory = "60m" }, b);
    AUTO(free_p) char *dir = paths_job(&w->paths, b);
    AUTO(free_p) char *refuse = fs_join(dir, "refuse");
    assert_int_equal(fs_write_atomic(AT_FDCWD, refuse, SPAN("x"), 0600, false, NULL), 0);
    await_state(w, a, "RUNNING");
    tell_keeper(w, a, "end");
    await_state(w, a, "");
    await_state(w, b, "");
    check_verdict(w, b, JOB_FAILED, 1, "no luck today");
}

static void test_master_failed(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX];
    open_pool(w);
    submit(w, (struct want){ .memory = "60m" }, a);
    await_state(w, a, "RUNNING");
    AUTO(free_p) char *dir = paths_job(&w->paths, a);
    AUTO(free_p) char *log = fs_join(dir, "master.log");
    assert_int_equal(
        fs_write_atomic(AT_FDCWD, log, SPAN("one\ntony-master: bad luck\n"), 0600, false, NULL), 0);
    ask(w, ASK(FOLLOW), a, false);
    tell_keeper(w, a, "fail");
    pause_ms(50);
    tell_keeper(w, a, "exit4");
    wait_word(w);
    assert_true(w->finished);
    check_verdict(w, a, JOB_FAILED, 1, "bad luck");
}

static void kill_pool(struct world *w)
{
    conn_close(TAKE(w->conn));
    assert_int_equal(kill(w->pool, SIGKILL), 0);
    assert_int_equal(waitpid(w->pool, NULL, 0), w->pool);
}

static void test_adopts(void **state)
{
    struct world *w = *state;
    char run[APP_ID_MAX], ended[APP_ID_MAX], dead[APP_ID_MAX], wait[APP_ID_MAX], next[APP_ID_MAX];
    open_pool(w);
    submit(w, (struct want){ .memory = "30m" }, run);
    submit(w, (struct want){ .memory = "30m" }, ended);
    submit(w, (struct want){ .memory = "30m" }, dead);
    submit(w, (struct want){ .memory = "70m" }, wait);
    await_state(w, run, "RUNNING");
    await_state(w, ended, "RUNNING");
    await_state(w, dead, "RUNNING");
    kill_pool(w);

    tell_keeper(w, ended, "end");
    tell_keeper(w, dead, "die");
    AUTO(free_p) char *half = str_printf("%s/.new-%s", w->paths.jobs, "application_1_0001");
    assert_int_equal(mkdir(half, 0700), 0);
    AUTO(free_p) char *history = paths_history(&w->paths, ended);
    AUTO(free_p) char *lock = paths_socket(&w->paths, dead, "lock");
    int64_t deadline = clock_mono_ms() + DEADLINE_MS;
    int fd = open(lock, O_RDWR | O_CLOEXEC);
    while ((access(history, F_OK) == -1 || flock(fd, LOCK_EX | LOCK_NB) == -1) &&
           clock_mono_ms() < deadline)
        pause_ms(5);
    (void)close(fd);

    open_pool(w);
    await_state(w, run, "RUNNING");
    await_state(w, dead, "RUNNING");
    assert_int_equal(count_lives(w, run), 1);
    assert_int_equal(count_lives(w, dead), 2);
    assert_null(find_job(w, ended));
    assert_string_equal(json_str(find_job(w, wait), "state", ""), "WAITING");
    assert_int_equal(json_int(json_object_get(w->json, "used"), "memory_mib", 0), 60);
    assert_int_equal(access(half, F_OK), -1);
    submit(w, (struct want){ .memory = "10m" }, next);
    assert_true(str_ends(next, "_0005")); /* no id twice */
    tell_keeper(w, run, "end");
    await_state(w, wait, "RUNNING");
}

static void test_numbers_survive(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX];
    open_pool(w);
    submit(w, (struct want){ .memory = "10m" }, a);
    await_state(w, a, "RUNNING");
    tell_keeper(w, a, "end");
    await_state(w, a, "");
    kill_pool(w);
    AUTO(free_p) char *next = fs_join(w->paths.pool, "next");
    assert_int_equal(unlink(next), 0); /* a crash may take it */
    open_pool(w);
    submit(w, (struct want){ .memory = "10m" }, b);
    assert_true(str_ends(b, "_0002"));
}

static void test_second_pool(void **state)
{
    struct world *w = *state;
    open_pool(w);
    pid_t second = start_pool(w); /* is ready at once, and gone */
    int status;
    assert_int_equal(waitpid(second, &status, 0), second);
    assert_int_equal(status, 0);
    ask(w, ASK(POOL_STATUS), "", false);
    assert_int_equal(json_int(w->json, "pid", 0), w->pool);
}

static void test_ends_when_idle(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX];
    w->conf[2] = "tony.pool.idle-timeout=300";
    open_pool(w);
    pause_ms(400); /* a client is a reason to stay */
    submit(w, (struct want){ .memory = "10m" }, a);
    await_state(w, a, "RUNNING");
    conn_close(TAKE(w->conn));
    pause_ms(400); /* and so is a job */
    (void)dial(w);
    tell_keeper(w, a, "end");
    await_state(w, a, "");
    conn_close(TAKE(w->conn));
    (void)loop_run(w->loop); /* the closing takes a round of the loop */
    await_pool_end(w);
    AUTO(free_p) char *sock = paths_pool_socket(&w->paths);
    AUTO(free_p) char *lock = paths_pool_lock(&w->paths);
    assert_int_equal(access(sock, F_OK), -1);
    assert_int_equal(access(lock, F_OK), -1);
}

static void test_stop(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX];
    open_pool(w);
    submit(w, (struct want){ .memory = "60m" }, a);
    submit(w, (struct want){ .memory = "60m" }, b);
    await_state(w, a, "RUNNING");
    ask(w, ASK(POOL_STOP), "", false);
    assert_int_equal(w->num, EBUSY);
    assert_non_null(strstr(w->text, a));
    assert_non_null(strstr(w->text, b));
    tell_keeper(w, a, "end");
    await_state(w, a, "");
    await_state(w, b, "RUNNING");
    ask(w, ASK(POOL_STOP), "", false); /* it might be about to end: refused only after a while */
    assert_int_equal(w->num, EBUSY);
    assert_non_null(strstr(w->text, b));
    tell_keeper(w, b, "end");
    ask(w, ASK(POOL_STOP), "", false);
    assert_int_equal(w->num, 0);
    assert_non_null(w->json);
    await_pool_end(w);
}

static void test_stop_by_force(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX];
    open_pool(w);
    submit(w, (struct want){ .memory = "60m" }, a);
    submit(w, (struct want){ .memory = "60m" }, b);
    await_state(w, a, "RUNNING");
    ask(w, ASK(POOL_STOP), "", true); /* no master answers here: after a while the keeper is told */
    assert_int_equal(w->num, 0);
    await_pool_end(w);
    check_verdict(w, a, JOB_KILLED, 3, NULL);
    check_verdict(w, b, JOB_KILLED, 3, NULL);
}

static void test_strange_words(void **state)
{
    struct world *w = *state;
    open_pool(w);
    ask(w, 99, "", false);
    assert_int_equal(w->num, EOPNOTSUPP);
    Tony__Beat beat = TONY__BEAT__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_BEAT;
    f.beat = &beat;
    assert_int_equal(conn_send(w->conn, &f), 0);
    wait_word(w);
    assert_int_equal(w->num, EPROTO);
    Tony__ClientHello hello = TONY__CLIENT_HELLO__INIT;
    hello.version = 77;
    f.body_case = TONY__FRAME__BODY_CLIENT_HELLO;
    f.client_hello = &hello;
    assert_int_equal(conn_send(w->conn, &f), 0);
    wait_word(w);
    assert_int_equal(w->num, EPROTO);
    assert_non_null(strstr(w->text, "version"));
}

int main(int argc, char **argv)
{
    if (str_eq(argv[0], "tony-pool"))
        return pool_main(argc, argv);
    if (argc >= 3 && (str_eq(argv[1], "--keeper") || str_eq(argv[1], "--cleanup")))
        _exit(fake_keeper_main(argc, argv)); /* what it leaks is no concern of these tests */
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_one_job),  T(test_waiting),         T(test_kill_waiting),   T(test_owner_goes_away),
        T(test_refusals), T(test_keeper_dies),     T(test_keeper_refuses), T(test_master_failed),
        T(test_adopts),   T(test_numbers_survive), T(test_second_pool),    T(test_ends_when_idle),
        T(test_stop),     T(test_stop_by_force),   T(test_strange_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
