/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of tony's programs in a home, and which of them are removed. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "storage/paths.h"
#include "storage/programs.h"

static const int64_t hour = 3600 * 1000, day = 24 * hour;
static char base[] = "/tmp/programs-XXXXXX";
static struct paths paths;

static char *at(const char *name)
{
    char *path = fs_join(base, name);
    assert_non_null(path);
    return path;
}

static void write_text(const char *name, const char *text)
{
    AUTO(free_p) char *path = at(name);
    assert_int_equal(fs_write_atomic(AT_FDCWD, path, span_of(text), 0700, false, NULL), 0);
}

static void make_dir(const char *name, int64_t age_ms)
{
    AUTO(free_p) char *path = at(name);
    assert_int_equal(fs_mkdirs(path, 0700, NULL), 0);
    time_t then = (time_t)((clock_wall_ms() - age_ms) / 1000);
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){ { then, 0 }, { then, 0 } }, 0),
                     0);
}

static bool is_there(const char *name)
{
    AUTO(free_p) char *path = at(name);
    return access(path, F_OK) == 0;
}

static int setup(void **state)
{
    (void)state;
    (void)str_copy(base, sizeof base, "/tmp/programs-XXXXXX");
    if (!mkdtemp(base))
        return -1;
    paths = (struct paths){ .home = at("home"), .jobs = at("home/jobs") };
    make_dir("home/jobs", 0);
    make_dir("installed", 0);
    write_text("installed/tony-master", "the master");
    write_text("installed/tony-executor", "the executor");
    AUTO(free_p) char *installed = at("installed");
    return setenv("PATH", installed, 1);
}

static int teardown(void **state)
{
    (void)state;
    free(paths.home);
    free(paths.jobs);
    return fs_remove_tree(AT_FDCWD, base, NULL);
}

static char *put(void)
{
    struct err e = { 0 };
    char *dir = NULL;
    if (programs_put(&paths, "1.2", &dir, &e) < 0)
        fail_msg("%s", e.msg);
    return dir;
}

static int gc(int64_t max_age_ms)
{
    struct err e = { 0 };
    return programs_gc(&paths, max_age_ms, clock_wall_ms(), &e);
}

static void test_one_copy_of_each_build(void **state)
{
    (void)state;
    AUTO(free_p) char *first = put(), *second = put();
    assert_string_equal(first, second);
    AUTO(free_p)
    char *master = fs_join(first, "tony-master"),
         *executor = fs_join(first, "tony-executor");
    assert_int_equal(access(master, X_OK), 0);
    assert_int_equal(access(executor, X_OK), 0);
    write_text("installed/tony-master", "another master");
    AUTO(free_p) char *other = put();
    assert_string_not_equal(first, other);
    AUTO(free_p) char *gone = at("installed/tony-executor"), *none = NULL;
    assert_int_equal(unlink(gone), 0);
    struct err e = { 0 };
    assert_int_equal(programs_put(&paths, "1.2", &none, &e), -ENOENT);
    assert_string_equal(e.msg, "cannot find the programs 'tony-master' and 'tony-executor'");
}

static void test_each_use_keeps_it(void **state)
{
    (void)state;
    AUTO(free_p) char *dir = put();
    AUTO(free_p) char *name = str_printf("home/programs/%s", strrchr(dir, '/') + 1);
    make_dir(name, 30 * day);
    AUTO(free_p) char *again = put();
    assert_int_equal(gc(7 * day), 0);
    assert_true(is_there(name));
    make_dir(name, 30 * day);
    assert_int_equal(gc(7 * day), 1);
    assert_false(is_there(name));
}

static void test_what_is_removed(void **state)
{
    (void)state;
    assert_int_equal(gc(day), 0); /* there are no programs */
    make_dir("home/programs/1.0-old", 3 * day);
    make_dir("home/programs/1.0-young", day / 2);
    make_dir("home/programs/1.0-live", 3 * day);
    make_dir("home/programs/.new-77", 2 * hour); /* its client was killed */
    make_dir("home/programs/.new-78", hour / 2); /* its client may copy yet */
    write_text("home/programs/notes", "no directory of ours");
    make_dir("home/jobs/application_1_0001", 0);
    write_text("home/jobs/application_1_0001/script", "programs=/home/u/.tony/programs/1.0-live\n");
    make_dir("home/jobs/application_1_0002", 0); /* without a script: a job of the pool */
    assert_int_equal(gc(day), 1);
    assert_false(is_there("home/programs/1.0-old"));
    assert_true(is_there("home/programs/1.0-young"));
    assert_true(is_there("home/programs/1.0-live"));
    assert_false(is_there("home/programs/.new-77"));
    assert_true(is_there("home/programs/.new-78"));
    assert_true(is_there("home/programs/notes"));
    assert_int_equal(gc(0), 1); /* at least an hour */
    assert_false(is_there("home/programs/1.0-young"));
}

static void test_an_unreadable_script_keeps_all(void **state)
{
    (void)state;
    make_dir("home/programs/1.0-old", 3 * day);
    make_dir("home/jobs/application_1_0001/script", 0); /* a directory, not a file */
    assert_int_equal(gc(day), -EINVAL);
    assert_true(is_there("home/programs/1.0-old"));
}

/* Machines that share a home may have processes with the same pid. A client that copies, or that
 * removes old programs, leaves the directory of another one alone. */
static void test_another_machine_has_this_pid(void **state)
{
    (void)state;
    AUTO(free_p) char *name = str_printf("home/programs/.new-%d", (int)getpid());
    AUTO(free_p) char *half = str_printf("%s/tony-master", name);
    make_dir(name, 0);
    write_text(half, "as far as the other client has copied it");
    AUTO(free_p) char *dir = put();
    AUTO(free_p) char *master = fs_join(dir, "tony-master"), *other = at(half);
    AUTO(buf_done) struct buf text = { 0 };
    assert_int_equal(fs_read(AT_FDCWD, master, &text, NULL), 0);
    assert_string_equal(buf_cstr(&text), "the master");
    make_dir("home/programs/1.0-old", 3 * day);
    assert_int_equal(gc(day), 1);
    assert_false(is_there("home/programs/1.0-old"));
    buf_clear(&text);
    assert_int_equal(fs_read(AT_FDCWD, other, &text, NULL), 0);
    assert_string_equal(buf_cstr(&text), "as far as the other client has copied it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_copy_of_each_build, setup, teardown),
        cmocka_unit_test_setup_teardown(test_each_use_keeps_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_unreadable_script_keeps_all, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_machine_has_this_pid, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
