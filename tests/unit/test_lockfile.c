/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/lockfile.h"

static char dir[] = "/tmp/tony-lock-XXXXXX", path[64], other[64];

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/lock", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    (void)unlink(path);
    (void)unlink(other);
    return rmdir(dir);
}

static void one_holds_it(void **state)
{
    (void)state;
    assert_int_equal(lockfile_take(path, false), -ENOENT);
    assert_false(lockfile_is_held(path));
    int fd = lockfile_take(path, true);
    assert_true(fd >= 0);
    assert_int_equal(lockfile_take(path, true), -EWOULDBLOCK);
    assert_true(lockfile_is_held(path));
    close(fd);
    assert_false(lockfile_is_held(path));
}

/* A file that was locked and unlinked is not the lock any more. */
static void an_unlinked_file_does_not_count(void **state)
{
    (void)state;
    int old = lockfile_take(path, true);
    assert_int_equal(unlink(path), 0);
    assert_false(lockfile_is_held(path));
    assert_false(lockfile_inherit(old, path));
    int fd = lockfile_take(path, true);
    assert_true(fd >= 0);
    assert_false(lockfile_inherit(old, path));
    assert_true(lockfile_inherit(fd, path));
    close(old);
    assert_true(lockfile_is_held(path));
    close(fd);
}

/* A process that only asks does not hold the lock. The file may be readable only. */
static void askers_do_not_hold_it(void **state)
{
    (void)state;
    int fd = lockfile_take(path, true), asker = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && asker >= 0);
    assert_int_equal(chmod(path, 0400), 0);
    assert_true(lockfile_is_held(path));
    close(fd);
    assert_int_equal(flock(asker, LOCK_SH | LOCK_NB), 0);
    assert_false(lockfile_is_held(path));
    close(asker);
    assert_int_equal(unlink(path), 0);
}

static void no_symbolic_links(void **state)
{
    (void)state;
    (void)unlink(path);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(lockfile_take(path, true), -ELOOP);
    assert_int_equal(access(other, F_OK), -1);
    assert_int_equal(unlink(path), 0);
    assert_false(lockfile_inherit(-1, path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_holds_it),
        cmocka_unit_test(an_unlinked_file_does_not_count),
        cmocka_unit_test(askers_do_not_hold_it),
        cmocka_unit_test(no_symbolic_links),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
