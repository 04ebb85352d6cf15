/* SPDX-License-Identifier: Apache-2.0 */
/* The pool: admission, requests, keepers, and its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codec/json.h"
#include "loop/loop.h"
#include "pool_world.h"

static void test_one_job(void **state)
{
    struct world *w = *state;
    char id[APP_ID_MAX];
    struct stat st;
    world_open_pool(w);
    world_ask(w, ASK(POOL_STATUS), "", false);
    assert_int_equal(json_int(w->json, "pid", 0), w->pool);
    assert_int_equal(json_int(json_object_get(w->json, "capacity"), "memory_mib", 0), 100);
    assert_int_equal(json_int(json_object_get(w->json, "used"), "memory_mib", -1), 0);

    world_submit(w, (struct want){ .memory = "30m", .instances = "2" }, id);
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

    world_await_state(w, id, "RUNNING");
    assert_int_equal(json_int(json_object_get(w->json, "used"), "memory_mib", 0), 60);
    world_ask(w, ASK(FOLLOW), id, false);
    assert_string_equal(w->state, "STARTING");
    AUTO(free_p) char *master = paths_socket(&w->paths, id, "m");
    assert_string_equal(w->master, master);

    world_tell_keeper(w, id, "end");
    /* The end as history gives it, without a verdict: the stand-in keeper writes none. */
    world_wait_word(w);
    assert_true(w->finished);
    world_await_state(w, id, "");
    assert_int_equal(world_count_lives(w, id), 0); /* its directory has been moved to history */
    world_ask(w, ASK(FOLLOW), id, false);
    assert_true(w->finished);
    world_ask(w, ASK(FOLLOW), "application_1_0009", false);
    assert_int_equal(w->num, ENOENT);
}

static void test_waiting(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX], c[APP_ID_MAX], d[APP_ID_MAX];
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "60m" }, a);
    world_submit(w, (struct want){ .memory = "50m" }, b);
    world_submit(w, (struct want){ .memory = "10m" }, c); /* it would fit, but job b comes first */
    world_await_state(w, a, "RUNNING");
    world_ask(w, ASK(STATUS), b, false);
    assert_string_equal(json_str(w->json, "state", ""), "WAITING");
    assert_string_equal(json_str(w->json, "application_id", ""), b);
    assert_int_equal(json_array_size(json_object_get(w->json, "tasks")), 1);
    const json_t *waiting = json_object_get(w->json, "waiting");
    assert_int_equal(json_int(json_object_get(waiting, "needs"), "memory_mib", 0), 50);
    assert_int_equal(json_int(json_object_get(waiting, "free"), "memory_mib", 0), 40);
    assert_string_equal(json_str(waiting, "behind", ""), a);
    world_ask(w, ASK(FOLLOW), c, false);
    assert_string_equal(w->state, "WAITING");
    assert_string_equal(json_str(json_object_get(w->json, "waiting"), "behind", ""), b);

    struct conn *follower = w->conn;
    (void)world_dial(w);
    world_submit(w, (struct want){ .memory = "50m", .priority = "3" }, d);
    world_ask(w, ASK(POOL_JOBS), "", false);
    assert_string_equal(json_str(world_find_job(w, d), "behind", ""), a);
    assert_string_equal(json_str(world_find_job(w, b), "behind", ""), d);
    assert_int_equal(json_int(world_find_job(w, c), "place", 0), 3);

    world_tell_keeper(w, a, "end");
    world_await_state(w, d, "RUNNING");
    world_await_state(w, b, "RUNNING");
    world_ask(w, ASK(POOL_JOBS), "", false);
    assert_string_equal(json_str(world_find_job(w, c), "state", ""), "WAITING");
    world_tell_keeper(w, d, "end");
    world_await_state(w, c, "RUNNING");
    assert_true(w->updates > 0); /* it was told its place in the queue */
    struct conn *other = w->conn;
    w->conn = follower;
    world_ask_on(w, follower, ASK(FOLLOW), c, false);
    while (!str_eq(w->state, "STARTING"))
        world_wait_word(w);
    conn_close(other);
}

static void test_kill_waiting(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX];
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "60m" }, a);
    world_submit(w, (struct want){ .memory = "60m", .owned = true }, b);
    AUTO(free_p) char *dir = paths_job(&w->paths, b);
    AUTO(free_p) char *owned = fs_join(dir, "owned");
    assert_int_equal(access(owned, F_OK), 0); /* a file for the master */
    world_ask(w, ASK(STOP), b, false);
    assert_non_null(w->json);
    world_check_verdict(w, b, JOB_KILLED, 3, NULL);
    assert_int_equal(access(dir, F_OK), -1);
    world_ask(w, ASK(STOP), b, false);
    assert_int_equal(w->num, ENOENT);
    world_ask(w, ASK(STOP), a, false); /* the pool refers the client to the master */
    assert_string_equal(w->state, "STARTING");
    assert_true(w->master[0] != '\0');
}

static void test_an_owner_disconnects(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], gone[APP_ID_MAX], back[APP_ID_MAX];
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "60m", .away = "100" }, a);
    struct conn *first = w->conn;
    (void)world_dial(w);
    world_submit(w, (struct want){ .memory = "60m", .away = "100", .owned = true }, gone);
    conn_close(w->conn);
    (void)world_dial(w);
    world_submit(w, (struct want){ .memory = "60m", .away = "60000", .owned = true }, back);
    conn_close(w->conn);
    w->conn = first;
    world_await_state(w, gone, "");
    world_check_verdict(w, gone, JOB_KILLED, 3, NULL);
    world_await_state(w, back, "WAITING");
    world_await_state(w, a, "RUNNING");
}

/* Checks which devices the job's keeper was given. */
static void check_gpus(struct world *w, const char *id, const char *want)
{
    AUTO(free_p) char *dir = paths_job(&w->paths, id);
    AUTO(free_p) char *path = fs_join(dir, "gpus");
    AUTO(buf_done) struct buf text = { 0 };
    world_await_state(w, id, "RUNNING");
    assert_int_equal(fs_read(AT_FDCWD, path, &text, NULL), 0);
    assert_string_equal(buf_cstr(&text), want);
}

/* The keepers' locks on the devices are a second protection; the stand-ins here take none. */
static void test_a_gpu_belongs_to_one_job(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX], c[APP_ID_MAX], d[APP_ID_MAX];
    w->conf[1] = "tony.pool.gpus=3";
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "20m", .gpus = "1" }, a);
    world_submit(w, (struct want){ .memory = "20m", .gpus = "2" }, b);
    check_gpus(w, a, "0");
    check_gpus(w, b, "1,2");
    world_submit(w, (struct want){ .memory = "20m", .gpus = "1" }, c);
    world_submit(w, (struct want){ .memory = "20m", .gpus = "1" }, d);
    world_await_state(w, c, "WAITING");
    world_tell_keeper(w, b, "end"); /* both jobs are admitted at once */
    check_gpus(w, c, "1");
    check_gpus(w, d, "2");
}

static void test_refusals(void **state)
{
    struct world *w = *state;
    AUTO(buf_done) struct buf text = { 0 };
    world_open_pool(w);
    world_send_submit(w, SPAN("{}"), false);
    assert_int_equal(w->num, EINVAL);
    world_send_submit(w, SPAN(""), false);
    assert_int_equal(w->num, EINVAL);

    encode_job(&(struct want){ .memory = "51m", .instances = "2" }, &text);
    world_send_submit(w, buf_span(&text), false);
    assert_int_equal(w->num, ERANGE);
    assert_non_null(strstr(w->text, "102 MiB"));
    assert_non_null(strstr(w->text, "100 MiB"));
    assert_non_null(strstr(w->text, "job.yaml:1"));

    buf_clear(&text);
    encode_job(&(struct want){ .instances = "1" }, &text); /* TonY's default is 2 GB */
    world_send_submit(w, buf_span(&text), false);
    assert_int_equal(w->num, ERANGE);
    assert_non_null(strstr(w->text, "default"));
    assert_non_null(strstr(w->hint, "tony.worker.memory"));

    world_ask(w, ASK(POOL_STATUS), "", false); /* the pool works on, and no file is left */
    assert_int_equal(json_array_size(json_object_get(w->json, "jobs")), 0);
    assert_int_equal(rmdir(w->paths.jobs), 0);

    buf_clear(&text);
    encode_job(&(struct want){ .memory = "10m" }, &text);
    world_send_submit(w, buf_span(&text), false); /* a directory that cannot be made */
    assert_int_equal(w->num, ENOENT);
    assert_int_equal(mkdir(w->paths.jobs, 0700), 0);
    world_submit(w, (struct want){ .memory = "10m" }, NULL);
}

static void test_keeper_dies(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX];
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "60m" }, a);
    world_await_state(w, a, "RUNNING");
    for (unsigned death = 1; death <= 3; death++) {
        world_tell_keeper(w, a, "die");
        int64_t deadline = clock_mono_ms() + DEADLINE_MS;
        while (world_count_lives(w, a) <= death && clock_mono_ms() < deadline)
            world_pause_ms(5);
        assert_int_equal(world_count_lives(w, a), death + 1);
        world_await_state(w, a, "RUNNING");
    }
    world_ask(w, ASK(FOLLOW), a, false);
    world_tell_keeper(w, a, "die"); /* one death too many */
    world_wait_word(w);
    assert_true(w->finished);
    assert_string_equal(w->state, "FAILED");
    assert_int_equal(w->exit_code, 1);
    world_check_verdict(w, a, JOB_FAILED, 1, "again and again");
}

static void test_keeper_refuses(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX];
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "60m" }, a);
    world_submit(w, (struct want){ .memory = "60m" }, b);
    AUTO(free_p) char *dir = paths_job(&w->paths, b);
    AUTO(free_p) char *refuse = fs_join(dir, "refuse");
    assert_int_equal(fs_write_atomic(AT_FDCWD, refuse, SPAN("x"), 0600, false, NULL), 0);
    world_await_state(w, a, "RUNNING");
    world_tell_keeper(w, a, "end");
    world_await_state(w, a, "");
    world_await_state(w, b, "");
    world_check_verdict(w, b, JOB_FAILED, 1, "no luck today");
}

static void test_master_failed(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX];
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "60m" }, a);
    world_await_state(w, a, "RUNNING");
    AUTO(free_p) char *dir = paths_job(&w->paths, a);
    AUTO(free_p) char *log = fs_join(dir, "master.log");
    assert_int_equal(
        fs_write_atomic(AT_FDCWD, log, SPAN("one\ntony-master: bad luck\n"), 0600, false, NULL), 0);
    world_ask(w, ASK(FOLLOW), a, false);
    world_tell_keeper(w, a, "fail");
    world_pause_ms(50);
    world_tell_keeper(w, a, "exit4");
    world_wait_word(w);
    assert_true(w->finished);
    world_check_verdict(w, a, JOB_FAILED, 1, "bad luck");
}

static void test_second_pool(void **state)
{
    struct world *w = *state;
    world_open_pool(w);
    pid_t second =
        world_start_pool(w); /* reports that it is ready, and exits: a pool runs already */
    int status;
    assert_int_equal(waitpid(second, &status, 0), second);
    assert_int_equal(status, 0);
    world_ask(w, ASK(POOL_STATUS), "", false);
    assert_int_equal(json_int(w->json, "pid", 0), w->pool);
}

static void test_ends_when_idle(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX];
    w->conf[2] = "tony.pool.idle-timeout=300";
    world_open_idle_pool(w);
    world_pause_ms(400); /* a client keeps the pool alive */
    world_submit(w, (struct want){ .memory = "10m" }, a);
    world_await_state(w, a, "RUNNING");
    conn_close(TAKE(w->conn));
    world_pause_ms(400); /* a job keeps the pool alive */
    (void)world_dial(w);
    world_tell_keeper(w, a, "end");
    world_await_state(w, a, "");
    conn_close(TAKE(w->conn));
    (void)loop_run(w->loop); /* the close takes one round of the loop */
    world_await_pool_end(w);
    AUTO(free_p) char *sock = paths_pool_socket(&w->paths);
    AUTO(free_p) char *lock = paths_pool_lock(&w->paths);
    assert_int_equal(access(sock, F_OK), -1);
    assert_int_equal(access(lock, F_OK), -1);
}

static void test_stop(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX];
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "60m" }, a);
    world_submit(w, (struct want){ .memory = "60m" }, b);
    world_await_state(w, a, "RUNNING");
    world_ask(w, ASK(POOL_STOP), "", false);
    assert_int_equal(w->num, EBUSY);
    assert_non_null(strstr(w->text, a));
    assert_non_null(strstr(w->text, b));
    world_tell_keeper(w, a, "end");
    world_await_state(w, a, "");
    world_await_state(w, b, "RUNNING");
    /* The job may be about to end, so the refusal comes only after a while. */
    world_ask(w, ASK(POOL_STOP), "", false);
    assert_int_equal(w->num, EBUSY);
    assert_non_null(strstr(w->text, b));
    world_tell_keeper(w, b, "end");
    world_ask(w, ASK(POOL_STOP), "", false);
    assert_int_equal(w->num, 0);
    assert_non_null(w->json);
    world_await_pool_end(w);
}

static void test_stop_by_force(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX];
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "60m" }, a);
    world_submit(w, (struct want){ .memory = "60m" }, b);
    world_await_state(w, a, "RUNNING");
    /* No master answers: after a while the keeper is told. */
    world_ask(w, ASK(POOL_STOP), "", true);
    assert_int_equal(w->num, 0);
    world_await_pool_end(w);
    world_check_verdict(w, a, JOB_KILLED, 3, NULL);
    world_check_verdict(w, b, JOB_KILLED, 3, NULL);
}

/* While the pool ends its jobs it accepts no new ones, so that it comes to an end. */
static void test_no_submission_while_the_pool_stops(void **state)
{
    struct world *w = *state;
    AUTO(buf_done) struct buf text = { 0 };
    char a[APP_ID_MAX];
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "60m" }, a);
    world_await_state(w, a, "RUNNING");
    struct conn *stopper = w->conn;
    world_ask_on(w, stopper, ASK(POOL_STOP), "", true);
    (void)world_dial(w);
    do
        world_ask(w, ASK(POOL_STATUS), "", false);
    while (!json_is_true(json_object_get(w->json, "stopping")));
    encode_job(&(struct want){ .memory = "10m" }, &text);
    world_send_submit(w, buf_span(&text), false);
    assert_int_equal(w->num, ESHUTDOWN);
    assert_non_null(strstr(w->text, "being stopped"));
    world_tell_keeper(w, a, "end");
    world_await_pool_end(w);
}

static void test_unknown_requests_and_frames(void **state)
{
    struct world *w = *state;
    world_open_pool(w);
    world_ask(w, 99, "", false);
    assert_int_equal(w->num, EOPNOTSUPP);
    Tony__Beat beat = TONY__BEAT__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_BEAT;
    f.beat = &beat;
    assert_int_equal(conn_send(w->conn, &f), 0);
    world_wait_word(w);
    assert_int_equal(w->num, EPROTO);
    Tony__ClientHello hello = TONY__CLIENT_HELLO__INIT;
    hello.version = 77;
    f.body_case = TONY__FRAME__BODY_CLIENT_HELLO;
    f.client_hello = &hello;
    assert_int_equal(conn_send(w->conn, &f), 0);
    world_wait_word(w);
    assert_int_equal(w->num, EPROTO);
    assert_non_null(strstr(w->text, "version"));
}

int main(int argc, char **argv)
{
    int code = world_other_program(argc, argv);
    if (code >= 0)
        return code;
#define T(fn) cmocka_unit_test_setup_teardown(fn, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_one_job),
        T(test_waiting),
        T(test_kill_waiting),
        T(test_an_owner_disconnects),
        T(test_refusals),
        T(test_keeper_dies),
        T(test_keeper_refuses),
        T(test_a_gpu_belongs_to_one_job),
        T(test_master_failed),
        T(test_second_pool),
        T(test_ends_when_idle),
        T(test_stop),
        T(test_stop_by_force),
        T(test_no_submission_while_the_pool_stops),
        T(test_unknown_requests_and_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
