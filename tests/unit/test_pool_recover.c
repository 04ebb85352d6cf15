/* SPDX-License-Identifier: Apache-2.0 */
/* A new pool finds the jobs of earlier pools, and removes the remaining files of finished jobs. */
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

static void test_adopts(void **state)
{
    struct world *w = *state;
    char run[APP_ID_MAX], ended[APP_ID_MAX], dead[APP_ID_MAX], wait[APP_ID_MAX], next[APP_ID_MAX];
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "30m" }, run);
    world_submit(w, (struct want){ .memory = "30m" }, ended);
    world_submit(w, (struct want){ .memory = "30m" }, dead);
    world_submit(w, (struct want){ .memory = "70m" }, wait);
    world_await_state(w, run, "RUNNING");
    world_await_state(w, ended, "RUNNING");
    world_await_state(w, dead, "RUNNING");
    world_kill_pool(w);

    world_tell_keeper(w, ended, "end");
    world_tell_keeper(w, dead, "die");
    AUTO(free_p) char *half = str_printf("%s/.new-%s", w->paths.jobs, "application_1_0001");
    assert_int_equal(mkdir(half, 0700), 0);
    AUTO(free_p) char *history = paths_history(&w->paths, ended);
    AUTO(free_p) char *lock = paths_job_lock(&w->paths, dead);
    int64_t deadline = clock_mono_ms() + DEADLINE_MS;
    int fd = open(lock, O_RDWR | O_CLOEXEC);
    while ((access(history, F_OK) == -1 || flock(fd, LOCK_EX | LOCK_NB) == -1) &&
           clock_mono_ms() < deadline)
        world_pause_ms(5);
    (void)close(fd);

    world_open_pool(w);
    world_await_state(w, run, "RUNNING");
    world_await_state(w, dead, "RUNNING");
    assert_int_equal(world_count_lives(w, run), 1);
    assert_int_equal(world_count_lives(w, dead), 2);
    assert_null(world_find_job(w, ended));
    assert_string_equal(json_str(world_find_job(w, wait), "state", ""), "WAITING");
    assert_int_equal(json_int(json_object_get(w->json, "used"), "memory_mib", 0), 60);
    assert_int_equal(access(half, F_OK), -1);
    world_submit(w, (struct want){ .memory = "10m" }, next);
    assert_true(str_ends(next, "_0005")); /* no id is used twice */
    world_tell_keeper(w, run, "end");
    world_await_state(w, wait, "RUNNING");
}

static void test_numbers_survive(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX];
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "10m" }, a);
    world_await_state(w, a, "RUNNING");
    world_tell_keeper(w, a, "end");
    world_await_state(w, a, "");
    world_kill_pool(w);
    AUTO(free_p) char *next = fs_join(w->paths.pool, "next");
    assert_int_equal(unlink(next), 0); /* a crash may lose the file */
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "10m" }, b);
    assert_true(str_ends(b, "_0002"));
}

static void make_file(const char *dir, const char *name, const char *text)
{
    AUTO(free_p) char *path = fs_join(dir, name);
    assert_int_equal(fs_mkdirs(dir, 0700, NULL), 0);
    assert_int_equal(fs_write_atomic(AT_FDCWD, path, span_of(text), 0600, false, NULL), 0);
}

/* A new pool takes over a waiting job with all its facts: its owner, and how long it may wait. */
static void test_adopts_the_waiting(void **state)
{
    struct world *w = *state;
    char first[APP_ID_MAX], left[APP_ID_MAX], own[APP_ID_MAX], free_[APP_ID_MAX], old[APP_ID_MAX];
    AUTO(buf_done) struct buf text = { 0 };
    int64_t start_ms;
    uint32_t number;
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "60m" }, first);
    world_await_state(w, first, "RUNNING");
    world_submit(w, (struct want){ .memory = "60m", .away = "1", .owned = true }, left);
    world_submit(w, (struct want){ .memory = "60m", .away = "60000", .owned = true }, own);
    world_submit(w, (struct want){ .memory = "60m", .away = "1" }, free_);
    world_kill_pool(w);
    assert_int_equal(app_id_parse(first, &start_ms, &number, NULL), 0);
    app_id_format(old, start_ms, 60);
    AUTO(free_p) char *dir = paths_job(&w->paths, old);
    encode_job(&(struct want){ .memory = "60m", .allocation = "1" }, &text);
    make_file(dir, "job.conf", buf_cstr(&text));

    world_open_pool(w);
    world_await_state(w, left, ""); /* the client did not reconnect */
    world_check_verdict(w, left, JOB_KILLED, 3, "client");
    world_await_state(w, old, "");
    world_check_verdict(w, old, JOB_FAILED, 1, "waited for its containers");
    world_await_state(w, own, "WAITING");
    world_await_state(w, free_, "WAITING");
    world_await_state(w, first, "RUNNING");
}

/* ---- rests of finished jobs ---- */

static bool was_cleaned(const struct world *w, const char *id)
{
    AUTO(free_p) char *note = fs_join(w->paths.home, "cleaned");
    AUTO(buf_done) struct buf text = { 0 };
    return fs_read(AT_FDCWD, note, &text, NULL) == 0 && strstr(buf_cstr(&text), id);
}

static void await_cleaned(struct world *w, const char *id)
{
    int64_t deadline = clock_mono_ms() + DEADLINE_MS;
    while (!was_cleaned(w, id)) {
        if (clock_mono_ms() > deadline)
            fail_msg("nobody cleaned up after %s", id);
        world_pause_ms(5);
    }
}

static void await_gone(const char *path)
{
    int64_t deadline = clock_mono_ms() + DEADLINE_MS;
    while (access(path, F_OK) == 0) {
        if (clock_mono_ms() > deadline)
            fail_msg("'%s' is still there", path);
        world_pause_ms(5);
    }
}

/* A keeper is killed when its job is already in history: the job keeps its result, and the files
 * that are left are removed. */
static void test_keeper_dies_late(void **state)
{
    static const char *const words[] = { "end, die", "end, die later", "move, die" };
    struct world *w = *state;
    world_open_pool(w);
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        char id[APP_ID_MAX];
        world_submit(w, (struct want){ .memory = "10m" }, id);
        world_await_state(w, id, "RUNNING");
        AUTO(free_p) char *sock = paths_socket(&w->paths, id, "k");
        AUTO(free_p) char *lock = paths_job_lock(&w->paths, id);
        assert_int_equal(access(sock, F_OK), 0);
        world_tell_keeper(w, id, words[i]);
        world_await_state(w, id, "");
        if (i == 1) {
            await_gone(sock);
            await_gone(lock);
            assert_false(was_cleaned(w, id)); /* no clean-up program was needed */
        } else {
            await_cleaned(w, id);
        }
    }
}

static bool has(const char *dir, const char *name)
{
    AUTO(free_p) char *path = fs_join(dir, name);
    return access(path, F_OK) == 0;
}

/* The same if the pool was killed, too. */
static void test_sweeps_at_its_start(void **state)
{
    struct world *w = *state;
    char first[APP_ID_MAX], id[APP_ID_MAX], kept[APP_ID_MAX];
    int64_t start_ms;
    uint32_t number;
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "10m" }, first);
    world_await_state(w, first, "RUNNING");
    world_kill_pool(w);

    assert_int_equal(app_id_parse(first, &start_ms, &number, NULL), 0);
    app_id_format(id, start_ms, 70);
    app_id_format(kept, start_ms, 71);
    AUTO(free_p) char *ended = str_printf("%s/ended/%s", w->paths.pool, id);
    make_file(ended, "cgroups", "");
    AUTO(free_p) char *ended_kept = str_printf("%s/ended/%s", w->paths.pool, kept);
    make_file(ended_kept, "cgroups", "");
    AUTO(free_p) char *lock = paths_job_lock(&w->paths, kept);
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* the keeper is still cleaning up */
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    make_file(w->paths.runtime, "72.k", ""); /* only sockets and the lock */
    make_file(w->paths.runtime, "72.m", "");
    make_file(w->paths.locks, "72", "");
    make_file(w->paths.runtime, "x.k", "");

    world_open_pool(w);
    await_cleaned(w, id);
    world_await_state(w, first, "RUNNING");
    assert_false(was_cleaned(w, kept));
    assert_int_equal(access(lock, F_OK), 0);
    assert_false(has(w->paths.runtime, "72.k"));
    assert_false(has(w->paths.runtime, "72.m"));
    assert_false(has(w->paths.locks, "72"));
    assert_true(has(w->paths.runtime, "x.k"));
    AUTO(free_p) char *live = paths_socket(&w->paths, first, "k");
    assert_int_equal(access(live, F_OK), 0);
    (void)close(fd);
}

/* An unfinished submission that was never confirmed is removed; a directory that may be a job
 * stays. */
static void test_incomplete_submissions(void **state)
{
    static const struct {
        const char *conf, *beside; /* NULL: no such file */
        bool stays;
        const char *text; /* of the file beside job.conf */
    } rows[] = {
        { NULL, NULL, false },
        { "", NULL, false },
        { " \n", NULL, false },
        { "{\"format\":1,\"conf\":[", NULL, false },
        { "{\"format\":1}\n", NULL, true }, /* complete, although unusual */
        { "", "journal", true, "x" },       /* the job had started */
        { "", "journal", false },           /* the pool makes an empty one */
        { "{\"format\":1,\"conf\":[", "exits", true },
        { NULL, "logs", true },
        { NULL, "keeper.log", true },
    };
    struct world *w = *state;
    char first[APP_ID_MAX], id[APP_ID_MAX], mine[32];
    int64_t start_ms;
    uint32_t number;
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "10m" }, first);
    world_await_state(w, first, "RUNNING");
    world_kill_pool(w);
    assert_int_equal(app_id_parse(first, &start_ms, &number, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        app_id_format(id, start_ms, 80 + (uint32_t)i);
        AUTO(free_p) char *dir = paths_job(&w->paths, id);
        make_file(dir, "key", "k");
        if (rows[i].conf)
            make_file(dir, "job.conf", rows[i].conf);
        if (rows[i].beside)
            make_file(dir, rows[i].beside, rows[i].text ? rows[i].text : "");
    }
    pid_t dead = fork();
    if (dead == 0)
        _exit(0);
    assert_int_equal(waitpid(dead, NULL, 0), dead);
    AUTO(free_p) char *litter = str_printf(".tmp-%d-1", (int)dead);
    (void)snprintf(mine, sizeof mine, ".tmp-%d-1", (int)getpid());
    make_file(w->paths.pool, litter, "x");
    make_file(w->paths.pool, mine, "x"); /* a temporary file of a process that is alive */

    world_open_pool(w);
    world_ask(w, ASK(POOL_JOBS), "", false);
    assert_int_equal(json_array_size(json_object_get(w->json, "jobs")), 1);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        app_id_format(id, start_ms, 80 + (uint32_t)i);
        if (has(w->paths.jobs, id) != rows[i].stays)
            fail_msg("row %zu %s", i, rows[i].stays ? "is gone" : "stays");
    }
    assert_false(has(w->paths.pool, litter));
    assert_true(has(w->paths.pool, mine));
    world_submit(w, (struct want){ .memory = "10m" }, id);
    assert_true(str_ends(id, "_0090")); /* after all ids that exist, also those that were removed */
}

int main(int argc, char **argv)
{
    int code = world_other_program(argc, argv);
    if (code >= 0)
        return code;
#define T(fn) cmocka_unit_test_setup_teardown(fn, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_adopts),           T(test_numbers_survive),     T(test_adopts_the_waiting),
        T(test_keeper_dies_late), T(test_sweeps_at_its_start), T(test_incomplete_submissions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
