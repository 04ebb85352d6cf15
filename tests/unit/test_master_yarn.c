/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files and variables that a master finds in its container. It reads all of them and makes a
 * directory; the error names a missing one.
 */
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
#include "hadoop/token.h"
#include "master/yarn/yarn.h"
#include "scheduler/yarn/yarnfile.h"
#include "storage/jobkey.h"
#include "storage/sealed.h"
#include "storage/secrets.h"

static char dir[64], before[4096];

static void put(const char *name, struct span text)
{
    struct err e = { 0 };
    if (fs_write_atomic(AT_FDCWD, name, text, 0600, false, &e) < 0)
        fail_msg("%s", e.msg);
}

static void put_yarn_json(const char *history)
{
    AUTO(buf_done) struct buf text = { 0 };
    struct err e = { 0 };
    struct yarn_file f = {
        .user = (char *)(uintptr_t) "ann",
        .queue = (char *)(uintptr_t) "default",
        .default_fs = (char *)(uintptr_t) "hdfs://nn:8020",
        .protection = (char *)(uintptr_t) "",
        .staging = (char *)(uintptr_t) "/user/ann/.tony/application_1700000000000_0007",
        .history = (char *)(uintptr_t)history,
    };
    (void)strv_push(&f.rm, "rm:8032");
    (void)strv_push(&f.scheduler, "rm:8030");
    (void)strv_push(&f.namenodes, "nn:9870");
    if (yarn_file_encode(&f, &text, &e) < 0)
        fail_msg("%s", e.msg);
    put("yarn.json", buf_span(&text));
    strv_done(&f.rm);
    strv_done(&f.scheduler);
    strv_done(&f.namenodes);
}

static void put_tokens(size_t key_len)
{
    AUTO(buf_done) struct buf text = { 0 };
    struct credentials c = { 0 };
    char key[64];
    memset(key, 'k', sizeof key);
    if (key_len > 0)
        assert_int_equal(credentials_add_secret(&c, JOB_KEY_SECRET, span_mem(key, key_len)), 0);
    assert_int_equal(credentials_write(&c, &text), 0);
    put("container_tokens", buf_span(&text));
    credentials_done(&c);
}

static int setup(void **state)
{
    (void)state;
    assert_non_null(getcwd(before, sizeof before));
    (void)str_copy(dir, sizeof dir, "/tmp/tony-y-XXXXXX");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chdir(dir), 0);
    AUTO(free_p) char *tokens = fs_join(dir, "container_tokens");
    (void)setenv("CONTAINER_ID", "container_e17_1700000000000_0007_02_000001", 1);
    (void)setenv("HADOOP_TOKEN_FILE_LOCATION", tokens, 1);
    (void)setenv("NM_HOST", "n1", 1);
    (void)setenv("NM_PORT", "45454", 1);
    (void)setenv("NM_HTTP_PORT", "8042", 1);
    put_yarn_json("/user/ann/.tony/history");
    put_tokens(JOB_KEY_BYTES);
    put("job.conf", SPAN("{}"));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_int_equal(chdir(before), 0);
    return fs_remove_tree(AT_FDCWD, dir, NULL);
}

static void files_and_variables_are_read(void **state)
{
    (void)state;
    struct master_home h;
    struct err e = { 0 };
    if (master_home_open(&h, &e) < 0)
        fail_msg("%s", e.msg);
    assert_string_equal(h.application_id, "application_1700000000000_0007");
    assert_string_equal(h.container_id, "container_e17_1700000000000_0007_02_000001");
    assert_int_equal(h.epoch, 2);
    assert_memory_equal(h.key.bytes, "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk", JOB_KEY_BYTES);
    assert_string_equal(h.yarn->user, "ann");
    assert_false(h.history_is_shared);
    assert_string_equal(h.node, "n1:45454");
    assert_string_equal(h.log_url, "http://n1:8042/node/containerlogs/"
                                   "container_e17_1700000000000_0007_02_000001/ann");
    AUTO(free_p) char *job = paths_job(&h.paths, h.application_id);
    AUTO(free_p) char *conf = fs_join(job, "job.conf");
    AUTO(buf_done) struct buf text = { 0 };
    struct stat st;
    assert_true(str_starts(job, dir));
    assert_int_equal(stat(job, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(fs_read(AT_FDCWD, conf, &text, &e), 0);
    assert_string_equal(buf_cstr(&text), "{}");
    master_home_done(&h);
}

/* Without the node's localization of files. */
static void files_come_with_the_tokens(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf text = { 0 }, yarn = { 0 }, read = { 0 };
    struct credentials c = { 0 };
    struct master_home h;
    struct err e = { 0 };
    assert_int_equal(fs_read(AT_FDCWD, "yarn.json", &yarn, &e), 0);
    assert_int_equal(unlink("yarn.json") + unlink("job.conf"), 0);
    char key[JOB_KEY_BYTES] = "";
    assert_int_equal(credentials_add_secret(&c, JOB_KEY_SECRET, span_mem(key, sizeof key)), 0);
    assert_int_equal(credentials_add_secret(&c, "tony.file.job.conf", SPAN("{\"carried\":1}")), 0);
    assert_int_equal(credentials_add_secret(&c, "tony.file.yarn.json", buf_span(&yarn)), 0);
    assert_int_equal(credentials_write(&c, &text), 0);
    put("container_tokens", buf_span(&text));
    credentials_done(&c);
    if (master_home_open(&h, &e) < 0)
        fail_msg("%s", e.msg);
    assert_string_equal(h.yarn->user, "ann");
    AUTO(free_p) char *job = paths_job(&h.paths, h.application_id);
    AUTO(free_p) char *conf = fs_join(job, "job.conf");
    struct stat st;
    assert_int_equal(fs_read(AT_FDCWD, conf, &read, &e), 0);
    assert_string_equal(buf_cstr(&read), "{\"carried\":1}");
    assert_int_equal(stat(conf, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    master_home_done(&h);
}

static void a_history_shared_by_users(void **state)
{
    (void)state;
    struct master_home h;
    struct err e = { 0 };
    put_yarn_json("/tony/history");
    assert_int_equal(master_home_open(&h, &e), 0);
    assert_true(h.history_is_shared);
    master_home_done(&h);
    put_yarn_json("/user/ann/.tonyx/history"); /* not next to the staging directory */
    assert_int_equal(master_home_open(&h, &e), 0);
    assert_true(h.history_is_shared);
    master_home_done(&h);
}

static void secrets_are_decrypted(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf text = { 0 };
    struct job_key key;
    struct master_home h;
    struct err e = { 0 };
    memset(&key, 'k', sizeof key);
    assert_int_equal(master_home_open(&h, &e), 0);
    assert_int_equal(h.secrets.len, 0);
    master_home_done(&h);
    assert_int_equal(
        sealed_write(&key, "application_1700000000000_0007", SPAN("A=1\0B=2\0"), &text, &e), 0);
    put(SEALED_FILE, buf_span(&text));
    if (master_home_open(&h, &e) < 0)
        fail_msg("%s", e.msg);
    assert_true(span_eq(buf_span(&h.secrets), SPAN("A=1\0B=2\0")));
    master_home_done(&h);
}

static void expect_refused(const char *part)
{
    struct master_home h;
    struct err e = { 0 };
    assert_true(master_home_open(&h, &e) < 0);
    if (!strstr(e.msg, part))
        fail_msg("'%s' is not in: %s", part, e.msg);
    master_home_done(&h);
}

static void missing_variables_and_tokens_are_named(void **state)
{
    (void)state;
    (void)unsetenv("CONTAINER_ID");
    expect_refused("CONTAINER_ID is not set");
    (void)setenv("CONTAINER_ID", "box", 1);
    expect_refused("box");
    (void)setenv("CONTAINER_ID", "container_1700000000000_0007_01_000001", 1);
    put_tokens(0);
    expect_refused("container_tokens");
    put_tokens(31);
    expect_refused("the job's key has 31 bytes, but must have 32");
    put("container_tokens", SPAN("nonsense"));
    expect_refused("container_tokens");
    (void)unlink("container_tokens");
    expect_refused("container_tokens");
    (void)unsetenv("HADOOP_TOKEN_FILE_LOCATION");
    expect_refused("HADOOP_TOKEN_FILE_LOCATION is not set");
}

static void missing_files_are_named(void **state)
{
    (void)state;
    put(SEALED_FILE, SPAN("TSE1 and not enough"));
    expect_refused("file 'secrets.sealed': the encrypted secrets are damaged");
    (void)unlink(SEALED_FILE);
    (void)unlink("job.conf");
    expect_refused("cannot read 'job.conf' in the container's directory");
    put("yarn.json", SPAN("{"));
    expect_refused("yarn.json");
    (void)unlink("yarn.json");
    expect_refused("yarn.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_and_variables_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(files_come_with_the_tokens, setup, teardown),
        cmocka_unit_test_setup_teardown(secrets_are_decrypted, setup, teardown),
        cmocka_unit_test_setup_teardown(a_history_shared_by_users, setup, teardown),
        cmocka_unit_test_setup_teardown(missing_variables_and_tokens_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(missing_files_are_named, setup, teardown),
    };
    return cmocka_run_group_tests_name("master_yarn", tests, NULL, NULL);
}
