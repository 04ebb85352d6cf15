/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of several tasks, the times of logs, and the record of submitted jobs. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "client/show/lines.h"
#include "cluster/cluster.h"
#include "codec/json.h"
#include "storage/log_times.h"
#include "storage/submitted.h"

/* ---- lines ---- */

static struct buf shown;

static int put(const char *p, size_t n, bool is_stderr, void *arg)
{
    (void)arg;
    return is_stderr ? buf_adds(&shown, "!") | buf_add(&shown, p, n) : buf_add(&shown, p, n);
}

static struct lines *open_lines(bool terminal, const regex_t *grep)
{
    buf_clear(&shown);
    const struct lines_config cfg = {
        .prefix = true, .terminal = terminal, .grep = grep, .put = put
    };
    return lines_new(&cfg);
}

static void add(struct lines *l, const char *task, const char *text, int64_t now_ms)
{
    const struct cluster_log_text t = {
        .task = task, .stream = "stdout", .attempt = 1, .text = span_of(text)
    };
    assert_int_equal(lines_add(l, &t, now_ms), 0);
}

static void expect_shown(const char *text)
{
    assert_string_equal(buf_cstr(&shown), text);
    buf_clear(&shown);
}

static void pieces_become_lines(void **state)
{
    (void)state;
    struct lines *l = open_lines(false, NULL);
    add(l, "worker:0", "one\ntw", 0);
    add(l, "worker:1", "uno\n", 0);
    expect_shown("worker:0 | one\nworker:1 | uno\n");
    add(l, "worker:0", "o\n\nthree", 0);
    expect_shown("worker:0 | two\nworker:0 | \n");
    struct cluster_log_text t = {
        .task = "worker:10", .stream = "stderr", .rank = 1, .attempt = 1, .text = SPAN("x\n")
    };
    assert_int_equal(lines_add(l, &t, 0), 0);
    expect_shown("!worker:10.1 | x\n");
    t = (struct cluster_log_text){
        .task = "worker:0", .stream = "stdout", .attempt = 1, .left_bytes = 2048, .left_lines = 1204
    };
    assert_int_equal(lines_add(l, &t, 0), 0);
    expect_shown("worker:0    | three\nworker:0    | [1,204 lines (2 KB) left out]\n");
    t.left_lines = 0; /* a part of a long line */
    assert_int_equal(lines_add(l, &t, 0), 0);
    expect_shown("worker:0    | [2 KB left out]\n");
    add(l, "worker:1", "end", 0);
    assert_int_equal(lines_end(l), 0);
    expect_shown("worker:1    | end\n");
    lines_free(l);
}

static void only_colours_reach_the_terminal(void **state)
{
    (void)state;
    struct lines *l = open_lines(true, NULL);
    add(l, "a:0", "\033[31mred\033[0m\033[2J \033]0;title\a\033(B\x07tab\t\xc2\x9bz\xc3\xa4\n", 0);
    expect_shown("a:0 | \033[31mred\033[0m tab\tz\xc3\xa4\033[0m\n");
    /* ESC [ > 4 m changes the keyboard, and a control character ends a sequence. */
    add(l, "a:0", "a\033[>4;2mb\033[\x0emc\033[38:5:1md\033[\n", 0);
    expect_shown("a:0 | abmc\033[38:5:1md\033[0m\n");
    /* Without what is between them, c2 and 9b would be the control character U+009B, "ESC [". */
    add(l, "a:0",
        "a\xc2\x01\x9b"
        "2Jb\xc2\033[K\x9bz\n",
        0);
    expect_shown("a:0 | a??2Jb??z\n");
    /* A character that is not ASCII ends a sequence, and is shown. */
    add(l, "a:0", "a\033\xc3\xa9\033[\xc3\xa9z\n", 0);
    expect_shown("a:0 | a\xc3\xa9\xc3\xa9z\n");
    add(l, "a:0", "half\r50 %\r\n", 0);
    expect_shown("a:0 | 50 %\n");
    add(l, "a:0", "\r1 %\r2 %", 5000);
    expect_shown("a:0 | 1 %\n");
    add(l, "a:0", "\r3 %\r4 %", 5100);
    expect_shown("");
    assert_int_equal(lines_tick(l, 5900), 0);
    expect_shown("");
    assert_int_equal(lines_tick(l, 6000), 0);
    expect_shown("a:0 | 3 %\n");
    lines_free(l);
    l = open_lines(false, NULL);
    add(l, "a:0", "\033[2J\r1 %\n", 0); /* elsewhere the text is not changed */
    expect_shown("a:0 | \033[2J\r1 %\n");
    lines_free(l);
}

static void only_matching_lines(void **state)
{
    (void)state;
    regex_t grep;
    assert_int_equal(regcomp(&grep, "^loss|b$", REG_EXTENDED), 0);
    struct lines *l = open_lines(false, &grep);
    add(l, "a:0", "loss 1\na loss\naab\nab c\n\n", 0);
    expect_shown("a:0 | loss 1\na:0 | aab\n");
    lines_free(l);
    regfree(&grep);
}

static void long_lines_are_put_out_in_parts(void **state)
{
    (void)state;
    struct lines *l = open_lines(false, NULL);
    AUTO(free_p) char *text = malloc((100 << 10) + 1);
    memset(text, 'x', 100 << 10);
    text[100 << 10] = 0;
    for (int i = 0; i < 10; i++) {
        add(l, "a:0", text, 0);
        assert_true(shown.len > 100 << 10);
        buf_clear(&shown);
    }
    lines_free(l);
}

/* ---- the times of a log ---- */

static void lengths_by_time(void **state)
{
    (void)state;
    struct span text =
        SPAN("1000 10 1 5 6\n2000 20 2 50 60\ndamaged\n3000 30\n4000 40 4 70 80\n50");
    assert_int_equal(log_times_length(text, 999, 0, false), 0);
    assert_int_equal(log_times_length(text, 1000, 0, false), 10);
    assert_int_equal(log_times_length(text, 2500, 0, true), 2);
    assert_int_equal(log_times_length(text, 3500, 0, false), 30);
    assert_int_equal(log_times_length(text, 3500, 0, true), 2);
    assert_int_equal(log_times_length(text, 9999, 1, false), 70);
    assert_int_equal(log_times_length(text, 9999, 1, true), 80);
    assert_int_equal(log_times_length(text, 9999, 2, true), 0);
    assert_int_equal(log_times_length(SPAN(""), 9999, 0, true), 0);
}

static int file_with(const char *dir, const char *name, const char *text)
{
    AUTO(free_p) char *path = fs_join(dir, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fs_write_all(fd, text, strlen(text)), 0);
    return fd;
}

static void since_starts_at_the_beginning_of_a_line(void **state)
{
    (void)state;
    char dir[] = "/tmp/tony-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    int log = file_with(dir, "stdout", "first\nsecond\nthird\n");
    int times = file_with(dir, "times", "1000 6 0\n2000 9 0\n3000 19 0\n");
    assert_int_equal(log_times_since(times, log, 500, 0, false), 0);
    assert_int_equal(log_times_since(times, log, 1500, 0, false), 6);
    assert_int_equal(log_times_since(times, log, 2500, 0, false), 13); /* 9 is within a line */
    assert_int_equal(log_times_since(times, log, 3500, 0, false), 19);
    assert_int_equal(log_times_since(-1, log, clock_wall_ms() - 60000, 0, false), 0);
    assert_int_equal(log_times_since(-1, log, clock_wall_ms() + 60000, 0, false), 19);
    assert_int_equal(ftruncate(log, 4), 0);
    assert_int_equal(log_times_since(times, log, 3500, 0, false), 0);
    close_p(&log);
    close_p(&times);
    assert_int_equal(fs_remove_tree(AT_FDCWD, dir, &(struct err){ 0 }), 0);
}

/* ---- submitted jobs ---- */

static void the_last_job_of_any_cluster(void **state)
{
    (void)state;
    char dir[] = "/tmp/tony-test-XXXXXX", text[32];
    assert_non_null(mkdtemp(dir));
    const struct paths p = { .home = dir };
    struct submitted s;
    struct err e = { 0 };
    assert_int_equal(submitted_find(&p, NULL, "last", &s), -ENOENT);
    assert_int_equal(submitted_add(&p, "local", "application_1_0007", NULL, &e), 1);
    assert_int_equal(submitted_add(&p, "yarn", "application_2_0007", "rm:8032", &e), 0);
    assert_int_equal(submitted_add(&p, "local", "application_1_0008", NULL, &e), 0);
    assert_int_equal(submitted_end(&p, "application_2_0007", "SUCCEEDED", &e), 0);
    assert_int_equal(submitted_sync(dir, true), 0);
    assert_int_equal(submitted_sync(dir, false), 0);
    assert_int_equal(submitted_find(&p, NULL, "last", &s), 0);
    assert_string_equal(s.id, "application_1_0008");
    assert_int_equal(submitted_find(&p, NULL, "7", &s), 0);
    assert_string_equal(s.id, "application_2_0007");
    assert_string_equal(s.cluster, "yarn");
    assert_string_equal(s.place, "rm:8032");
    assert_int_equal(submitted_find(&p, "local", "7", &s), 0);
    assert_string_equal(s.id, "application_1_0007");
    assert_string_equal(s.place, "-");
    assert_int_equal(submitted_find(&p, NULL, "application_1_0007", &s), 0);
    assert_int_equal(submitted_find(&p, NULL, "9", &s), -ENOENT);
    assert_int_equal(submitted_state(&p, "application_2_0007", text, sizeof text), 0);
    assert_string_equal(text, "SUCCEEDED");
    assert_int_equal(submitted_state(&p, "application_1_0007", text, sizeof text), -ENOENT);
    assert_int_equal(fs_remove_tree(AT_FDCWD, dir, &(struct err){ 0 }), 0);
}

/* `tony list --cluster yarn` opens no home of its own before it looks for ends. */
static void a_list_shows_ends_that_the_cluster_does_not_know(void **state)
{
    (void)state;
    char home[] = "/tmp/tony-test-XXXXXX";
    assert_non_null(mkdtemp(home));
    AUTO(free_p) char *runtime = str_printf("%s/run", home);
    assert_int_equal(mkdir(runtime, 0700), 0);
    assert_int_equal(setenv("TONY_HOME", home, 1), 0);
    assert_int_equal(setenv("XDG_RUNTIME_DIR", runtime, 1), 0);
    const struct paths p = { .home = home };
    struct err e = { 0 };
    assert_int_equal(submitted_end(&p, "application_2_0007", "FAILED", &e), 0);
    struct cluster_host h = { .version = "test" };
    json_t *rows = json_pack("[{s:s, s:s, s:b}, {s:s, s:s, s:b}]", "application_id",
                             "application_2_0007", "state", "RUNNING", "live", 1, "application_id",
                             "application_2_0008", "state", "RUNNING", "live", 1);
    cluster_add_ends(&h, rows);
    assert_string_equal(json_str(json_array_get(rows, 0), "state", ""), "FAILED");
    assert_true(json_is_false(json_object_get(json_array_get(rows, 0), "live")));
    assert_string_equal(json_str(json_array_get(rows, 1), "state", ""), "RUNNING");
    json_decref(rows);
    host_done(&h);
    assert_int_equal(fs_remove_tree(AT_FDCWD, home, &e), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_become_lines),
        cmocka_unit_test(only_colours_reach_the_terminal),
        cmocka_unit_test(only_matching_lines),
        cmocka_unit_test(long_lines_are_put_out_in_parts),
        cmocka_unit_test(lengths_by_time),
        cmocka_unit_test(since_starts_at_the_beginning_of_a_line),
        cmocka_unit_test(the_last_job_of_any_cluster),
        cmocka_unit_test(a_list_shows_ends_that_the_cluster_does_not_know),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    buf_done(&shown);
    return failed;
}
