/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that are found by a pattern: which are complete, and which are reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/fs.h"
#include "executor/task_side.h"

static char dir[] = "/tmp/tony-watch-XXXXXX";

static void make(const char *name)
{
    AUTO(free_p) char *path = str_printf("%s/%s", dir, name);
    AUTO(close_p) int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
}

static void make_dir(const char *name)
{
    AUTO(free_p) char *path = str_printf("%s/%s", dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void drop(const char *name)
{
    AUTO(free_p) char *path = str_printf("%s/%s", dir, name);
    assert_int_equal(remove(path), 0);
}

/* "5 7 ": the steps that are reported now, in this order. */
static void expect(struct task_watch *w, const char *steps)
{
    struct task_saved found[TASK_SAVED_MAX];
    AUTO(buf_done) struct buf text = { 0 };
    size_t n = task_watch_checkpoints(w, "/nowhere", found);
    for (size_t i = 0; i < n; i++) {
        assert_true(str_starts(found[i].path, dir));
        assert_int_equal(access(found[i].path, F_OK), 0);
        (void)buf_addf(&text, "%llu ", (unsigned long long)found[i].step);
        free(found[i].path);
    }
    assert_string_equal(buf_cstr(&text), steps);
}

static struct task_watch *watch(const char *pattern, const char *marker)
{
    struct err e = { 0 };
    (void)fs_remove_tree(AT_FDCWD, dir, &e);
    assert_int_equal(mkdir(dir, 0700), 0);
    struct task_watch *w = task_watch_new("", dir, pattern, marker);
    assert_non_null(w);
    return w;
}

static void by_name(void **state)
{
    struct task_watch *w = watch("step-([0-9]+)\\.pt", "");
    (void)state;
    expect(w, "");
    make("step-3.pt.tmp"); /* incomplete */
    make(".step-3.pt");
    make("step-.pt");
    make("astep-4.pt");
    make("step-99999999999999999999999.pt");
    expect(w, "");
    make("step-7.pt");
    make("step-5.pt"); /* both new ones are reported: other tasks may have saved only step 5 */
    expect(w, "5 7 ");
    expect(w, "");
    make("step-6.pt"); /* a lower step than the last one is reported, too */
    expect(w, "6 ");
    drop("step-7.pt"); /* a newer checkpoint took its place; reported again when it appears again */
    expect(w, "");
    make("step-7.pt");
    expect(w, "7 ");
    task_watch_free(w);
}

static void by_marker(void **state)
{
    struct task_watch *w = watch("a step ([0-9]+)", "DONE");
    (void)state;
    make_dir("a step 1");
    make_dir("a step 2");
    make_dir("a step 3");
    expect(w, "");
    make("a step 2/DONE");
    expect(w, "2 ");
    make("a step 3DONE"); /* the marker may also stand beside the checkpoint */
    make("a step 1/DONE");
    expect(w, "1 3 ");
    make("a step 4DONE"); /* a marker without a checkpoint */
    expect(w, "");
    task_watch_free(w);
}

static void thousands_of_files(void **state)
{
    struct task_watch *w = watch("step-([0-9]+)", "");
    char name[40];
    (void)state;
    for (int i = 0; i < 4000; i++) {
        (void)snprintf(name, sizeof name, i % 2 ? "step-%d" : "junk-%d", i);
        make(name);
    }
    expect(w, "3989 3991 3993 3995 3997 3999 ");
    expect(w, "");
    make("step-5"); /* exists already, and is far below the newest steps */
    make("step-4001");
    expect(w, "4001 ");
    task_watch_free(w);
}

/* Several names for one step: one of them counts. */
static void same_step(void **state)
{
    struct task_watch *w = watch("rank-[0-9]+-step-([0-9]+)", "");
    (void)state;
    make("rank-0-step-8");
    make("rank-1-step-8");
    expect(w, "8 ");
    expect(w, "");
    task_watch_free(w);
}

static void the_directory_is_missing(void **state)
{
    struct err e = { 0 };
    struct task_watch *w = watch("x-([0-9]+)", "");
    (void)state;
    make("x-1");
    expect(w, "1 ");
    assert_int_equal(fs_remove_tree(AT_FDCWD, dir, &e), 0);
    expect(w, "");
    task_watch_free(w);
}

/* Replaces the file, like a program that saves a step again. */
static void replace(const char *name)
{
    AUTO(free_p) char *from = str_printf("%s/tmp", dir), *to = str_printf("%s/%s", dir, name);
    make("tmp");
    assert_int_equal(rename(from, to), 0);
}

/* A checkpoint of an earlier attempt is not reported for this attempt, also if the attempt has a
 * new executor. */
static void by_another_attempt(void **state)
{
    struct err e = { 0 };
    (void)state;
    for (int same_executor = 0; same_executor < 2; same_executor++) {
        struct task_watch *w = watch("step-([0-9]+)", "");
        for (int i = 1; i <= 9; i++) {
            char name[16];
            (void)snprintf(name, sizeof name, "step-%d", i);
            make(name);
        }
        if (same_executor) {
            task_watch_begin(w, "/nowhere", true);
            expect(w, "4 5 6 7 8 9 "); /* the first attempt may resume from these */
        }
        task_watch_begin(w, "/nowhere", false);
        expect(w, "");
        make("step-11");
        expect(w, "11 ");
        replace("step-8"); /* the attempt has resumed from 7, and saved 8 again */
        expect(w, "8 ");
        expect(w, "");
        drop("step-9"); /* an older checkpoint among the newest ones is not new */
        drop("step-8");
        drop("step-7");
        expect(w, "");
        replace("step-11");
        expect(w, "11 ");
        task_watch_begin(w, "/nowhere", false);
        expect(w, "");
        task_watch_free(w);
    }
    struct task_watch *w = watch("step-([0-9]+)", "DONE");
    make("step-5"); /* incomplete: the task was killed */
    task_watch_begin(w, "/nowhere", false);
    expect(w, "");
    make("step-5DONE"); /* this attempt has completed it */
    expect(w, "5 ");
    task_watch_begin(w, "/nowhere", false);
    expect(w, "");
    replace("step-5DONE");
    expect(w, "5 ");
    assert_int_equal(fs_remove_tree(AT_FDCWD, dir, &e), 0);
    task_watch_begin(w, "/nowhere", false); /* the directory is made later */
    assert_int_equal(mkdir(dir, 0700), 0);
    make("step-6");
    make("step-6DONE");
    expect(w, "6 ");
    task_watch_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_name),
        cmocka_unit_test(by_marker),
        cmocka_unit_test(same_step),
        cmocka_unit_test(thousands_of_files),
        cmocka_unit_test(the_directory_is_missing),
        cmocka_unit_test(by_another_attempt),
    };
    struct err e = { 0 };
    if (!mkdtemp(dir))
        return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    (void)fs_remove_tree(AT_FDCWD, dir, &e);
    return rc;
}
