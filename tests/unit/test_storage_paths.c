/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths: usable and unusable homes, the runtime directory that all programs of a home use, ids;
 * which processes are alive.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "storage/alive.h"
#include "storage/paths.h"

static char root[64];

static char *at(const char *name)
{
    return fs_join(root, name);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/tony-paths-XXXXXX");
    umask(022);
    return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return fs_remove_tree(AT_FDCWD, root, NULL);
}

/* Each home is below root, with a runtime directory in it, so that nothing is left behind. */
static void use_home(const char *home)
{
    AUTO(free_p) char *path = at(home);
    assert_int_equal(setenv("TONY_HOME", path, 1), 0);
    assert_int_equal(setenv("XDG_RUNTIME_DIR", root, 1), 0);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    if (stat(path, &st) == -1)
        fail_msg("'%s' is not there", path);
    return st.st_mode & 07777;
}

static void test_new_home(void **state)
{
    (void)state;
    use_home("a/b/home");
    AUTO(paths_done) struct paths p = { 0 };
    struct err e = { 0 };
    if (paths_open(&p, &e) < 0)
        fail_msg("%s", e.msg);
    AUTO(free_p) char *home = at("a/b/home"), *runtime = at("tony/");
    assert_string_equal(p.home, home);
    const char *const dirs[] = { p.home, p.pool, p.jobs, p.store, p.history, p.runtime };
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        assert_int_equal(mode_of(dirs[i]), 0700);
    assert_true(str_starts(p.runtime, runtime));
    assert_int_equal(strlen(p.runtime), strlen(runtime) + 12);
    AUTO(paths_done) struct paths again = { 0 };
    assert_int_equal(paths_open(&again, &e), 0);
    assert_string_equal(again.runtime, p.runtime);
}

/* A program without XDG_RUNTIME_DIR, or with another one, finds the first program's sockets. */
static void test_runtime_is_agreed_on(void **state)
{
    (void)state;
    use_home("agreed");
    AUTO(paths_done) struct paths a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
    assert_int_equal(paths_open(&a, NULL), 0);
    unsetenv("XDG_RUNTIME_DIR");
    assert_int_equal(paths_open(&b, NULL), 0);
    assert_string_equal(a.runtime, b.runtime);
    AUTO(free_p) char *other = at("other-runtime");
    assert_int_equal(mkdir(other, 0700), 0);
    setenv("XDG_RUNTIME_DIR", other, 1);
    assert_int_equal(paths_open(&c, NULL), 0);
    assert_string_equal(a.runtime, c.runtime);
    /* If it is missing, it is made again in the same place if possible. */
    assert_int_equal(fs_remove_tree(AT_FDCWD, a.runtime, NULL), 0);
    assert_int_equal(paths_open(&d, NULL), 0);
    assert_string_equal(a.runtime, d.runtime);
    assert_int_equal(mode_of(d.runtime), 0700);
}

static void test_the_runtime_directory_is_chosen_again(void **state)
{
    (void)state;
    use_home("anew");
    AUTO(free_p) char *first = at("first-runtime"), *second = at("second-runtime");
    assert_int_equal(mkdir(first, 0700), 0);
    assert_int_equal(mkdir(second, 0700), 0);
    setenv("XDG_RUNTIME_DIR", first, 1);
    AUTO(paths_done) struct paths a = { 0 }, b = { 0 }, c = { 0 };
    assert_int_equal(paths_open(&a, NULL), 0);
    assert_int_equal(fs_remove_tree(AT_FDCWD, first, NULL), 0); /* the user has logged out */
    setenv("XDG_RUNTIME_DIR", second, 1);
    assert_int_equal(paths_open(&b, NULL), 0);
    assert_true(str_starts(b.runtime, second));
    /* A moved home does not use the sockets of the old home. */
    AUTO(free_p) char *from = at("anew"), *to = at("moved");
    assert_int_equal(rename(from, to), 0);
    setenv("TONY_HOME", to, 1);
    assert_int_equal(paths_open(&c, NULL), 0);
    assert_string_not_equal(b.runtime, c.runtime);
}

static void test_runtime_that_is_too_long(void **state)
{
    (void)state;
    use_home("long-runtime");
    AUTO(buf_done) struct buf dir = { 0 };
    buf_addf(&dir, "%s/", root);
    for (int i = 0; i < 60; i++)
        buf_addc(&dir, 'x');
    assert_int_equal(fs_mkdirs(buf_cstr(&dir), 0700, NULL), 0);
    setenv("XDG_RUNTIME_DIR", buf_cstr(&dir), 1);
    AUTO(paths_done) struct paths p = { 0 };
    struct err e = { 0 };
    if (paths_open(&p, &e) < 0)
        fail_msg("%s", e.msg);
    assert_true(str_starts(p.runtime, "/tmp/tony-"));
    AUTO(free_p) char *socket = paths_socket(&p, "application_1767225600000_4294967295", "lock");
    assert_true(strlen(socket) < sizeof(((struct sockaddr_un *)0)->sun_path));
    assert_int_equal(fs_remove_tree(AT_FDCWD, p.runtime, NULL), 0);
}

static void test_unusable_homes(void **state)
{
    (void)state;
    AUTO(free_p) char *file = at("file"), *open_dir = at("open");
    assert_int_equal(fs_write_atomic(AT_FDCWD, file, SPAN("x"), 0600, false, NULL), 0);
    assert_int_equal(mkdir(open_dir, 0755), 0);
    assert_int_equal(chmod(open_dir, 01777), 0);
    AUTO(buf_done) struct buf longest = { 0 };
    while (longest.len < 3000)
        buf_adds(&longest, "a/");
    const struct {
        const char *home;
        int rc;
        const char *says;
    } rows[] = {
        { "file", -ENOTDIR, "file" },
        { "file/below", -ENOTDIR, "file/below" },
        { "open", -EPERM, "all users can write to directory" },
        { buf_cstr(&longest), -ENAMETOOLONG, "the limit is 2048" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        use_home(rows[i].home);
        AUTO(paths_done) struct paths p = { 0 };
        struct err e = { 0 };
        int rc = paths_open(&p, &e);
        if (rc != rows[i].rc || !strstr(e.msg, rows[i].says) || !e.hint[0])
            fail_msg("row %zu: %d, %s; %s", i, rc, e.msg, e.hint);
    }
    assert_int_equal(setenv("TONY_HOME", "/proc/tony", 1), 0);
    struct err e = { 0 };
    AUTO(paths_done) struct paths p = { 0 };
    assert_true(paths_open(&p, &e) < 0);
    unsetenv("TONY_HOME");
    unsetenv("HOME");
    assert_int_equal(paths_open(&p, &e), -ENOENT);
    assert_non_null(strstr(e.msg, "and HOME is not set to an absolute path"));
}

/* An existing home keeps its permissions, as it may serve other purposes; the files in it are
 * private. */
static void test_existing_home(void **state)
{
    (void)state;
    AUTO(free_p) char *dir = at("existing");
    assert_int_equal(mkdir(dir, 0755), 0);
    assert_int_equal(chmod(dir, 0775), 0);
    use_home("existing");
    AUTO(paths_done) struct paths p = { 0 };
    assert_int_equal(paths_open(&p, NULL), 0);
    assert_int_equal(mode_of(dir), 0755); /* only the group's write permission is removed */
    assert_int_equal(mode_of(p.jobs), 0700);
    AUTO(free_p) char *link = at("home-link");
    assert_int_equal(symlink(dir, link), 0);
    use_home("home-link");
    AUTO(paths_done) struct paths q = { 0 };
    assert_int_equal(paths_open(&q, NULL), 0);
    assert_string_equal(q.home, dir);
    assert_string_equal(q.runtime, p.runtime);
}

static void test_other_users_home(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    AUTO(free_p) char *dir = at("theirs");
    assert_int_equal(mkdir(dir, 0755), 0);
    assert_int_equal(chown(dir, 65534, 65534), 0);
    use_home("theirs");
    AUTO(paths_done) struct paths p = { 0 };
    struct err e = { 0 };
    assert_int_equal(paths_open(&p, &e), -EPERM);
    assert_non_null(strstr(e.msg, "belongs to user 65534, not to user 0"));
    assert_int_equal(rmdir(dir), 0); /* no file was made in it */
}

/* Read-only use: works for any owner, makes nothing, and connects only to sockets of this user. */
static void test_a_read_only_home(void **state)
{
    (void)state;
    AUTO(free_p) char *dir = at("looked-at");
    use_home("looked-at");
    struct err e = { 0 };
    AUTO(paths_done) struct paths none = { 0 }, bare = { 0 }, full = { 0 }, look = { 0 };
    assert_int_equal(paths_open_read_only(&none, &e), -ENOENT);
    assert_non_null(strstr(e.msg, dir));

    assert_int_equal(mkdir(dir, 0755), 0);
    if (geteuid() == 0)
        assert_int_equal(chown(dir, 65534, 65534), 0);
    assert_int_equal(paths_open_read_only(&bare, &e), 0);
    assert_string_equal(bare.home, dir);
    assert_null(bare.runtime);
    assert_null(paths_socket(&bare, "application_1767225600000_0001", "m"));
    assert_int_equal(errno, ENOENT);
    if (geteuid() == 0)
        assert_int_equal(chown(dir, 0, 0), 0);
    assert_int_equal(rmdir(dir), 0); /* no file was made in it */

    assert_int_equal(paths_open(&full, &e), 0);
    assert_int_equal(paths_open_read_only(&look, &e), 0);
    assert_string_equal(look.history, full.history);
    assert_string_equal(look.runtime, full.runtime);
    assert_int_equal(chmod(full.runtime, 0755), 0);
    paths_done(&look);
    assert_int_equal(paths_open_read_only(&look, &e), 0);
    assert_null(look.runtime);
}

static void test_ids(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        int64_t start;
        uint32_t number;
        bool ok;
    } rows[] = {
        { "application_1767225600000_0001", 1767225600000, 1, true },
        { "application_1767225600000_12345", 1767225600000, 12345, true },
        { "application_1_4294967295", 1, UINT32_MAX, true },
        { "application_1_4294967296", 0, 0, false },
        { "application_1_1", 0, 0, false }, /* not in tony's form */
        { "application_1_00001", 0, 0, false },
        { "application_-1_0001", 0, 0, false },
        { "application_1_0001/..", 0, 0, false },
        { "application__0001", 0, 0, false },
        { "application_1", 0, 0, false },
        { "../../etc", 0, 0, false },
        { "", 0, 0, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int64_t start = 0;
        uint32_t number = 0;
        struct err e = { 0 };
        int rc = app_id_parse(rows[i].id, &start, &number, &e);
        if ((rc == 0) != rows[i].ok || start != rows[i].start || number != rows[i].number)
            fail_msg("'%s': %d", rows[i].id, rc);
        if (rc == 0) {
            char again[APP_ID_MAX];
            app_id_format(again, start, number);
            assert_string_equal(again, rows[i].id);
        } else {
            assert_int_equal(rc, -EINVAL);
        }
    }
}

static void test_find_job(void **state)
{
    (void)state;
    use_home("find");
    AUTO(paths_done) struct paths p = { 0 };
    assert_int_equal(paths_open(&p, NULL), 0);
    const char *id = "application_5_0007";
    AUTO(free_p) char *live = paths_job(&p, id), *old = paths_history(&p, id), *found = NULL;
    bool is_live;
    struct err e = { 0 };
    assert_int_equal(paths_find_job(&p, id, &found, &is_live, &e), -ENOENT);
    assert_non_null(strstr(e.msg, id));
    assert_int_equal(mkdir(live, 0700), 0);
    assert_int_equal(paths_find_job(&p, id, &found, &is_live, &e), 0);
    assert_true(is_live);
    assert_string_equal(found, live);
    free(TAKE(found));
    assert_int_equal(rename(live, old), 0);
    assert_int_equal(paths_find_job(&p, id, &found, &is_live, &e), 0);
    assert_false(is_live);
    assert_string_equal(found, old);
    AUTO(free_p) char *none = NULL;
    assert_int_equal(paths_find_job(&p, "../find", &none, &is_live, &e), -EINVAL);
    AUTO(free_p) char *socket = paths_socket(&p, id, "k"), *want = fs_join(p.runtime, "7.k");
    assert_string_equal(socket, want);
    assert_null(paths_socket(&p, "nonsense", "k"));
}

static void test_program(void **state)
{
    (void)state;
    AUTO(free_p) char *self = paths_program("sh"), *none = paths_program("tony-no-such-program");
    assert_non_null(self);
    assert_null(none);
}

/* A zombie has ended: it holds no lock and no socket. */
/* A process with the name and command line of a keeper. Its effective user is the present one. */
static pid_t start_like_keeper(const char *program, const char *line, uid_t real)
{
    int up[2];
    char byte, line_copy[64], arg[] = "1000";
    char *argv[] = { line_copy, arg, NULL };
    (void)snprintf(line_copy, sizeof line_copy, "%s", line);
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (setsid() == -1 || setresuid(real, geteuid(), geteuid()) == -1)
            _exit(1);
        (void)execv(program, argv);
        _exit(1);
    }
    assert_true(pid > 0);
    close(up[1]);
    assert_int_equal(read(up[0], &byte, 1), 0); /* it is closed by execv() */
    close(up[0]);
    return pid;
}

/* Any user can run su under the name of root's keeper. */
static void test_a_false_keeper(void **state)
{
    (void)state;
    static const char id[] = "application_1_0001";
    char dir[] = "/tmp/alive-XXXXXX", program[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(program, sizeof program, "%s/tony-keeper", dir);
    assert_int_equal(symlink("/bin/sleep", program), 0);
    const uid_t reals[] = { geteuid(), 65533 };
    for (size_t i = 0; i < (geteuid() == 0 ? 2 : 1); i++) {
        pid_t pid = start_like_keeper(program, "tony-keeper application_1_0001 more", reals[i]);
        assert_int_equal(alive_keeper(id), i == 0);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_false(alive_keeper(id));
    }
    assert_int_equal(unlink(program), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void test_processes(void **state)
{
    (void)state;
    siginfo_t info;
    assert_true(alive_process(getpid()));
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            (void)pause();
    assert_true(pid > 0);
    assert_true(alive_process(pid));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_false(alive_process(pid));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(alive_process(pid));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_home),
        cmocka_unit_test(test_runtime_is_agreed_on),
        cmocka_unit_test(test_the_runtime_directory_is_chosen_again),
        cmocka_unit_test(test_runtime_that_is_too_long),
        cmocka_unit_test(test_unusable_homes),
        cmocka_unit_test(test_existing_home),
        cmocka_unit_test(test_other_users_home),
        cmocka_unit_test(test_a_read_only_home),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_find_job),
        cmocka_unit_test(test_program),
        cmocka_unit_test(test_a_false_keeper),
        cmocka_unit_test(test_processes),
    };
    return cmocka_run_group_tests_name("storage paths", tests, setup, teardown);
}
