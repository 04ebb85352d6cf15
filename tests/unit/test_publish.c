/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of finished jobs in a directory that users share, and what a reader believes. */
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
#include "storage/publish.h"

#define ID "application_1700000000000_0001"

static char base[] = "/tmp/publish-XXXXXX";
static char job[100], shared[100];

static const char *at(const char *dir, const char *name)
{
    static char path[2][300];
    static unsigned i;
    i = !i;
    (void)snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}

static void write_text(const char *dir, const char *name, const char *text, mode_t mode)
{
    struct err e = { 0 };
    assert_int_equal(fs_write_atomic(AT_FDCWD, at(dir, name), span_of(text), mode, false, &e), 0);
}

static mode_t mode_of(const char *dir, const char *name)
{
    struct stat st;
    return lstat(at(dir, name), &st) == 0 ? st.st_mode & 07777 : 0;
}

static int setup(void **state)
{
    (void)state;
    (void)str_copy(base, sizeof base, "/tmp/publish-XXXXXX");
    if (!mkdtemp(base))
        return -1;
    (void)snprintf(job, sizeof job, "%s/job", base);
    (void)snprintf(shared, sizeof shared, "%s/shared/of/all", base);
    if (mkdir(job, 0700) == -1 || mkdir(at(job, "logs"), 0700) == -1)
        return -1;
    write_text(job, "journal", "j", 0600);
    write_text(job, "logs/stdout", "out", 0666);
    write_text(job, "key", "k", 0600);
    write_text(job, "secrets", "s", 0600);
    write_text(job, PUBLISH_FILE, shared, 0600);
    return symlink("/etc/passwd", at(job, "link"));
}

static int teardown(void **state)
{
    (void)state;
    return fs_remove_tree(AT_FDCWD, base, NULL);
}

static void values_of_the_key(void **state)
{
    (void)state;
    assert_string_equal(publish_place("/a/b"), "/a/b");
    assert_string_equal(publish_place("file:///a"), "/a");
    static const char *const others[] = { NULL, "", "a/b", "hdfs://n/a", "file://a" };
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_null(publish_place(others[i]));
}

static void a_copy_has_no_secret_and_no_link(void **state)
{
    (void)state;
    struct err e = { 0 };
    uid_t owner = 1;
    assert_int_equal(publish_job(job, ID, &e), 0);
    AUTO(free_p) char *to = str_dup(at(shared, ID));
    assert_int_equal(mode_of(to, "."), 0750);
    assert_int_equal(mode_of(to, "logs"), 0750);
    assert_int_equal(mode_of(to, "journal"), 0640);
    assert_int_equal(mode_of(to, "logs/stdout"), 0640);
    static const char *const left_out[] = { "key", "secrets", "link", PUBLISH_FILE };
    for (size_t i = 0; i < ARRAY_LEN(left_out); i++)
        assert_int_equal(mode_of(to, left_out[i]), 0);
    assert_int_equal(publish_check(shared, ID, &owner, &e), 0);
    assert_int_equal(owner, getuid());
    assert_int_equal(publish_job(job, ID, &e), -EEXIST);
    assert_int_equal(publish_check(shared, "application_1_0002", &owner, &e), -ENOENT);
    assert_int_equal(unlink(at(job, PUBLISH_FILE)), 0);
    assert_int_equal(publish_job(job, "application_1_0002", &e), 0);
    assert_int_equal(mode_of(shared, "application_1_0002"), 0);
}

static void what_is_not_believed(void **state)
{
    (void)state;
    struct err e = { 0 };
    uid_t owner;
    assert_int_equal(publish_job(job, ID, &e), 0);
    AUTO(free_p) char *to = str_dup(at(shared, ID));
    assert_int_equal(chmod(at(to, "logs/stdout"), 0660), 0);
    assert_int_equal(publish_check(shared, ID, &owner, &e), -EPERM);
    assert_int_equal(chmod(at(to, "logs/stdout"), 0640), 0);
    assert_int_equal(chmod(at(to, "logs"), 0757), 0);
    assert_int_equal(publish_check(shared, ID, &owner, &e), -EPERM);
    assert_int_equal(chmod(at(to, "logs"), 0750), 0);
    assert_int_equal(publish_check(shared, ID, &owner, &e), 0);
    assert_int_equal(mkfifo(at(to, "logs/pipe"), 0640), 0);
    assert_int_equal(publish_check(shared, ID, &owner, &e), -EPERM);
    assert_int_equal(unlink(at(to, "logs/pipe")), 0);
    assert_int_equal(symlink("journal", at(to, "logs/link")), 0);
    assert_int_equal(publish_check(shared, ID, &owner, &e), -EPERM);
    assert_int_equal(unlink(at(to, "logs/link")), 0);
    assert_int_equal(link(at(to, "journal"), at(shared, "second-name")), 0);
    assert_int_equal(publish_check(shared, ID, &owner, &e), -EPERM);
    assert_int_equal(unlink(at(shared, "second-name")), 0);
    assert_int_equal(publish_check(shared, ID, &owner, &e), 0);
    if (chown(at(to, "journal"), 12345, (gid_t)-1) == 0) { /* as root */
        assert_int_equal(publish_check(shared, ID, &owner, &e), -EPERM);
        assert_int_equal(chown(to, 12345, (gid_t)-1), 0);
        assert_int_equal(publish_check(shared, ID, &owner, &e), -EPERM);
    }
    assert_int_equal(symlink(to, at(shared, "application_1_0002")), 0);
    assert_int_equal(publish_check(shared, "application_1_0002", &owner, &e), -EPERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_the_key),
        cmocka_unit_test_setup_teardown(a_copy_has_no_secret_and_no_link, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_not_believed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
