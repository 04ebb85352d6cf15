/* SPDX-License-Identifier: Apache-2.0 */
/* The file `exits` on a full disk, and with texts that are no UTF-8. */
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
    };
    return cmocka_run_group_tests_name("executor_exits", tests, set_up, tear_down);
}
