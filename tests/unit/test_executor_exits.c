/* SPDX-License-Identifier: Apache-2.0 */
/* The file `exits` on a full disk, with texts that are no UTF-8, and with damaged lines. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/keeper_int.h"

static char dir[] = "/tmp/tony-test-exits-XXXXXX";

static struct keeper keeper_new(void)
{
    return (struct keeper){ .job_dir = dir, .exits_fd = -1, .app_id = "application_1_0001" };
}

static void read_exits(struct buf *out)
{
    AUTO(free_p) char *path = fs_join(dir, "exits");
    assert_int_equal(fs_read(AT_FDCWD, path, out, NULL), 0);
}

static void remove_exits(void)
{
    AUTO(free_p) char *path = fs_join(dir, "exits");
    (void)unlink(path);
}

/* More lines than are kept in memory: some are lost. Once the disk has room, all later ones are
 * written again. */
static void a_full_disk(void **state)
{
    (void)state;
    struct keeper k = keeper_new();
    struct err e = { 0 };
    assert_int_equal(exits_open(&k, &e), 0);
    int file = k.exits_fd;
    k.exits_fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(k.exits_fd >= 0);
    for (k.epoch = 1; k.epoch < 150000; k.epoch++) /* each line has at least 30 bytes */
        exits_add_master(&k);
    assert_true(k.exits_failed);
    assert_true(k.unwritten.len > 4000000 && k.unwritten.len <= 4 << 20);
    close(k.exits_fd);
    k.exits_fd = file;
    exits_write(&k);
    assert_false(k.exits_failed);
    k.epoch = 777777;
    exits_add_master(&k);
    AUTO(buf_done) struct buf text = { 0 };
    read_exits(&text);
    assert_true(span_has(buf_span(&text), "\n{\"master\":1,"));
    assert_false(span_has(buf_span(&text), "\n{\"master\":149999,"));
    assert_true(span_has(buf_span(&text), "\n{\"master\":777777,"));
    close(k.exits_fd);
    buf_done(&k.unwritten);
    remove_exits();
}

static void read_one(const char *want)
{
    struct keeper k = keeper_new();
    struct err e = { 0 };
    assert_int_equal(exits_open(&k, &e), 0);
    assert_int_equal(k.ends.n, 1);
    assert_string_equal(k.ends.v[0]->detail, want);
    assert_int_equal(k.ends.v[0]->exit_code, 3);
    close(k.exits_fd);
    buf_done(&k.unwritten);
    free(k.ends.v[0]->detail);
    free(k.ends.v);
}

static void texts_that_are_not_utf8(void **state)
{
    (void)state;
    struct keeper k = keeper_new();
    struct err e = { 0 };
    struct container c = { .id = "container_1_0001_01_000001",
                           .exit_code = 3,
                           .reason = END_EXITED,
                           .ended_us = clock_mono_us(),
                           .detail = (char *)"caf\xe9 \"\x01\" \xc3\xa9\xff" };
    assert_int_equal(exits_open(&k, &e), 0);
    exits_add_container(&k, &c);
    exits_write(&k);
    close(k.exits_fd);
    buf_done(&k.unwritten);
    read_one("caf\xef\xbf\xbd \"\x01\" \xc3\xa9\xef\xbf\xbd");
    remove_exits();

    /* written by 0.1.0 */
    static const char old[] =
        "{\"keeper\":1,\"pid\":1,\"wall_ms\":1}\n"
        "{\"container\":\"container_1_0001_01_000001\",\"slot\":0,\"code\":3,"
        "\"signal\":0,\"reason\":\"exited\",\"detail\":\"caf\xe9\",\"wall_ms\":1,"
        "\"mono_us\":1}\n";
    AUTO(free_p) char *path = fs_join(dir, "exits");
    assert_int_equal(fs_write_atomic(AT_FDCWD, path, span_of(old), 0600, false, NULL), 0);
    read_one("caf?");
    remove_exits();
}

static size_t file_lines(void)
{
    AUTO(buf_done) struct buf text = { 0 };
    read_exits(&text);
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += text.p[i] == '\n';
    return n;
}

/* Exits wait for exits_write(), which writes all of them. A master's line does not wait, and takes
 * those before it along. */
static void exits_of_a_turn(void **state)
{
    (void)state;
    struct keeper k = keeper_new();
    struct err e = { 0 };
    struct container c = { .id = "container_1_0001_01_000001", .reason = END_EXITED };
    assert_int_equal(exits_open(&k, &e), 0);
    assert_int_equal(file_lines(), 1);
    for (int i = 0; i < 100; i++)
        exits_add_container(&k, &c);
    assert_int_equal(file_lines(), 1);
    exits_write(&k);
    assert_int_equal(file_lines(), 101);
    exits_add_container(&k, &c);
    exits_add_master(&k);
    assert_int_equal(file_lines(), 103);
    for (int i = 0; i < 40000; i++) /* more than may wait */
        exits_add_container(&k, &c);
    exits_write(&k);
    assert_int_equal(file_lines(), 40103);
    close(k.exits_fd);
    buf_done(&k.unwritten);
    remove_exits();
}

/* ---- lines that no keeper has written ---- */

#define END_OF(n)                                                                                  \
    "{\"container\":\"container_1_0001_01_00000" n "\",\"slot\":0,\"code\":3,\"signal\":0,"        \
    "\"reason\":\"exited\",\"detail\":\"\",\"wall_ms\":1,\"mono_us\":1}"

/* Reads a file with this text: n ends are found, and `lines` lines cannot be read, which the log
 * tells if there are any. */
static void read_damaged(struct span text, size_t n, int lines)
{
    struct keeper k = keeper_new();
    struct err e = { 0 };
    AUTO(free_p) char *path = fs_join(dir, "exits"), *log = fs_join(dir, "log");
    assert_int_equal(fs_write_atomic(AT_FDCWD, path, text, 0600, false, NULL), 0);
    AUTO(close_p) int log_fd = open(log, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    log_setup(log_fd, LOG_WARN, false);
    int rc = exits_open(&k, &e);
    log_setup(open("/dev/null", O_WRONLY | O_CLOEXEC), LOG_ERROR, false);
    assert_int_equal(rc, 0);
    AUTO(buf_done) struct buf said = { 0 }, file = { 0 };
    assert_int_equal(fs_read(AT_FDCWD, log, &said, NULL), 0);
    AUTO(free_p) char *want = str_printf("lines=%d ", lines);
    assert_int_equal(span_has(buf_span(&said), "keeper.exits_unreadable"), lines > 0);
    assert_int_equal(span_has(buf_span(&said), want), lines > 0);
    assert_int_equal(k.ends.n, n);
    for (size_t i = 0; i < k.ends.n; i++) {
        assert_int_equal(k.ends.v[i]->exit_code, 3);
        free(k.ends.v[i]->detail);
    }
    free(k.ends.v);
    close(k.exits_fd);
    buf_done(&k.unwritten);
    read_exits(&file); /* the line of this keeper is a line of its own */
    assert_true(span_has(buf_span(&file), "\n{\"keeper\":2,") ||
                span_has(buf_span(&file), "\n{\"keeper\":1,"));
    remove_exits();
    (void)unlink(log);
}

static void fill_with(struct buf *out, char c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_addc(out, c);
}

static void damaged_lines(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1,
                                    100,
                                    (16 << 10) - 1,
                                    16 << 10,
                                    (16 << 10) + 1,
                                    (64 << 10) - 1,
                                    64 << 10,
                                    (64 << 10) + 1,
                                    1 << 20 };
    static const char first[] = "{\"keeper\":1,\"pid\":1,\"wall_ms\":1}\n" END_OF("1") "\n";
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (int c = 0; c < 2; c++) {
            AUTO(buf_done) struct buf text = { 0 };
            buf_addf(&text, "%s", first);
            fill_with(&text, c ? 'x' : '\0', sizes[i]);
            read_damaged(buf_span(&text), 1, 1); /* the end of the file is torn */
            buf_addf(&text, "\n%s\n", END_OF("2"));
            read_damaged(buf_span(&text), 2, 1);
            fill_with(&text, c ? '{' : '\xff', sizes[i]);
            buf_addf(&text, "\n%s", END_OF("3")); /* without a newline */
            read_damaged(buf_span(&text), 3, 2);
        }
    static const char odd[] =
        "[]\n{}\n5\n{\"container\":5}\n{\"container\":\"\"}\n{\"keeper\":-1}\n"
        "{\"master\":\"a\"}\n\n{\"master_exit\":1,\"code\":0}\n" END_OF("1") "\n";
    read_damaged(span_of(odd), 1, 7);
    read_damaged(span_of(first), 1, 0);
}

static int set_up(void **state)
{
    (void)state;
    log_setup(open("/dev/null", O_WRONLY | O_CLOEXEC), LOG_ERROR, false);
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(texts_that_are_not_utf8),
        cmocka_unit_test(exits_of_a_turn),
        cmocka_unit_test(damaged_lines),
    };
    return cmocka_run_group_tests_name("executor_exits", tests, set_up, tear_down);
}
