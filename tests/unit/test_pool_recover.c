/* What a pool finds of earlier ones, and what jobs that are over have left. */
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
    AUTO(free_p) char *lock = paths_socket(&w->paths, dead, "lock");
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
    assert_true(str_ends(next, "_0005")); /* no id twice */
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
    assert_int_equal(unlink(next), 0); /* a crash may take it */
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "10m" }, b);
    assert_true(str_ends(b, "_0002"));
}

int main(int argc, char **argv)
{
    int code = world_other_program(argc, argv);
    if (code >= 0)
        return code;
#define T(fn) cmocka_unit_test_setup_teardown(fn, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_adopts),
        T(test_numbers_survive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
