/* SPDX-License-Identifier: Apache-2.0 */
/* Files: reading, atomic writing, directories, removal of awkward trees, tails. Each test has a
 * directory of its own. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "torture.h"

struct place {
    char dir[64];
    char path[4096];
    struct err e;
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    assert_non_null(p);
    (void)snprintf(p->dir, sizeof p->dir, "/tmp/tony-test-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    torture_arm(0, false);
    (void)fs_remove_tree(AT_FDCWD, p->dir, NULL);
    int left = access(p->dir, F_OK) == 0;
    free(p);
    return left;
}

static const char *in(struct place *p, const char *name)
{
    (void)snprintf(p->path, sizeof p->path, "%s/%s", p->dir, name);
    return p->path;
}

static void put(const char *path, const char *text)
{
    AUTO(close_p) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(fs_write_all(fd, text, strlen(text)), 0);
}

static void test_any_named(void **state)
{
    struct place *p = *state;
    assert_false(fs_any_named(p->dir, "a-"));
    assert_int_equal(fs_mkdirs(in(p, "b/a-1"), 0700, &p->e), 0);
    assert_false(fs_any_named(p->dir, "a-"));
    assert_true(fs_any_named(in(p, "b"), "a-"));
    assert_false(fs_any_named(in(p, "none"), "a-"));
}

static void test_join(void **state)
{
    (void)state;
    static const char *const cases[][3] = { { "/a", "b", "/a/b" },
                                            { "/a/", "b", "/a/b" },
                                            { "/", "b", "/b" },
                                            { "", "b", "/b" },
                                            { "a", "b/c", "a/b/c" } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(free_p) char *s = fs_join(cases[i][0], cases[i][1]);
        assert_string_equal(s, cases[i][2]);
    }
}

static void test_read(void **state)
{
    struct place *p = *state;
    put(in(p, "f"), "content");
    struct buf b = { .max = 7 };
    assert_int_equal(fs_read(AT_FDCWD, p->path, &b, &p->e), 0);
    assert_string_equal(buf_cstr(&b), "content");
    buf_clear(&b);
    put(p->path, "contents");
    assert_int_equal(fs_read(AT_FDCWD, p->path, &b, &p->e), -EFBIG);
    assert_non_null(strstr(p->e.msg, "the content is larger than 7 bytes"));
    assert_non_null(strstr(p->e.msg, p->path));
    assert_int_equal(fs_read(AT_FDCWD, in(p, "none"), &b, &p->e), -ENOENT);
    assert_non_null(strstr(p->e.msg, "No such file"));
    buf_clear(&b);
    assert_int_equal(fs_read(AT_FDCWD, p->dir, &b, &p->e), -EISDIR);
    buf_done(&b);
}

static unsigned entries(const char *dir)
{
    DIR *d = opendir(dir);
    assert_non_null(d);
    unsigned n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void test_write_atomic(void **state)
{
    struct place *p = *state;
    struct stat st;
    AUTO(close_p) int dirfd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mode_t mask = umask(022);
    for (int sync = 0; sync < 2; sync++) {
        assert_int_equal(fs_write_atomic(dirfd, "f", SPAN("first"), 0600, sync, &p->e), 0);
        assert_int_equal(fs_write_atomic(AT_FDCWD, in(p, "f"), SPAN("second"), 0640, sync, &p->e),
                         0);
    }
    umask(mask);
    assert_int_equal(stat(in(p, "f"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    struct buf b = { 0 };
    assert_int_equal(fs_read(dirfd, "f", &b, NULL), 0);
    assert_string_equal(buf_cstr(&b), "second");
    buf_done(&b);
    /* The longest possible name. */
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    assert_int_equal(fs_write_atomic(dirfd, name, SPAN("x"), 0600, true, &p->e), 0);
    /* A failed write says why, leaves no temporary file and does not change the file. */
    assert_int_equal(mkdir(in(p, "d"), 0700), 0);
    assert_int_equal(fs_write_atomic(dirfd, "d", SPAN("x"), 0600, false, &p->e), -EISDIR);
    assert_string_equal(p->e.msg, "cannot write 'd': Is a directory");
    assert_int_equal(fs_write_atomic(dirfd, "no/f", SPAN("x"), 0600, false, &p->e), -ENOENT);
    assert_int_equal(entries(p->dir), 3);
}

/* The limit on file sizes stands in for a full disk. */
static void test_write_atomic_disk_full(void **state)
{
    struct place *p = *state;
    put(in(p, "f"), "old");
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = { 1000, 1000 };
        static char big[5000];
        signal(SIGXFSZ, SIG_IGN);
        int rc = setrlimit(RLIMIT_FSIZE, &limit);
        if (rc == 0)
            rc = fs_write_atomic(AT_FDCWD, p->path, span_mem(big, sizeof big), 0600, false, NULL);
        _exit(rc == -EFBIG ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(entries(p->dir), 1);
    struct buf b = { 0 };
    assert_int_equal(fs_read(AT_FDCWD, p->path, &b, NULL), 0);
    assert_string_equal(buf_cstr(&b), "old");
    buf_done(&b);
}

static void test_mkdirs(void **state)
{
    struct place *p = *state;
    struct stat st;
    assert_int_equal(fs_mkdirs(in(p, "a/b//c/"), 0700, &p->e), 0);
    assert_int_equal(stat(in(p, "a/b/c"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(fs_mkdirs(p->path, 0700, &p->e), 0);
    put(in(p, "f"), "");
    assert_int_equal(fs_mkdirs(p->path, 0700, &p->e), -ENOTDIR);
    assert_int_equal(fs_mkdirs(in(p, "f/x"), 0700, &p->e), -ENOTDIR);
    assert_non_null(strstr(p->e.msg, "cannot make directory '"));
    assert_int_equal(fs_mkdirs("", 0700, &p->e), -ENOENT);
    assert_int_equal(symlink("a", in(p, "link")), 0);
    assert_int_equal(fs_mkdirs(in(p, "link/x"), 0700, &p->e), 0);
    assert_int_equal(stat(in(p, "a/x"), &st), 0);
    assert_int_equal(symlink("nowhere", in(p, "dangling")), 0);
    assert_int_equal(fs_mkdirs(p->path, 0700, &p->e), -ENOENT);
    assert_non_null(strstr(p->e.msg, "dangling' is a symbolic link whose target does not exist"));
    assert_true(p->e.hint[0]);
    assert_int_equal(fs_mkdirs(in(p, "dangling/x"), 0700, &p->e), -ENOENT);
    assert_non_null(strstr(p->e.msg, "dangling' is a symbolic link whose target does not exist"));
    static char longer[5000];
    memset(longer, 'x', sizeof longer - 1);
    assert_int_equal(fs_mkdirs(longer, 0700, &p->e), -ENAMETOOLONG);
}

static void test_private_dir(void **state)
{
    struct place *p = *state;
    struct stat st;
    assert_int_equal(fs_private_dir(in(p, "d"), &p->e), 0);
    assert_int_equal(stat(p->path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(chmod(p->path, 0755), 0);
    assert_int_equal(fs_private_dir(p->path, &p->e), 0);
    assert_int_equal(stat(p->path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(symlink("d", in(p, "link")), 0);
    assert_int_equal(fs_private_dir(p->path, &p->e), -EPERM);
    assert_non_null(strstr(p->e.msg, "is a symbolic link"));
    put(in(p, "f"), "");
    assert_int_equal(fs_private_dir(p->path, &p->e), -ENOTDIR);
    assert_int_equal(fs_private_dir(in(p, "none/d"), &p->e), -ENOENT);
    if (geteuid() != 0)
        return;
    assert_int_equal(chown(in(p, "d"), 12345, 12345), 0);
    assert_int_equal(fs_private_dir(p->path, &p->e), -EPERM);
    assert_non_null(strstr(p->e.msg, "belongs to user 12345, not to user 0"));
}

static void test_tail(void **state)
{
    struct place *p = *state;
    static const struct {
        const char *text;
        unsigned n;
        size_t max;
        const char *want;
    } cases[] = {
        { "a\nb\nc\n", 2, 100, "b\nc\n" },
        { "a\nb\nc", 2, 100, "b\nc" },
        { "a\nb\nc\n", 9, 100, "a\nb\nc\n" },
        { "a\n\n\n", 2, 100, "\n\n" },
        { "\n", 1, 100, "\n" },
        { "", 3, 100, "" },
        { "a\nb\n", 0, 100, "" },
        { "one long line", 1, 4, "line" },
        { "a\nbcd\n", 2, 4, "bcd\n" },
        { "gr\xc3\xbc\n", 1, 2, "\n" }, /* the cut is not inside a character */
        { "bad \xff\xc3 byte\n", 1, 100, "bad ?? byte\n" },
        { "x\n\xf0\x9f\x98\x80!", 1, 100, "\xf0\x9f\x98\x80!" },
        { "abc", 1, 0, "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf b = { 0 };
        put(in(p, "f"), cases[i].text);
        assert_int_equal(fs_tail(AT_FDCWD, p->path, cases[i].n, cases[i].max, &b, &p->e), 0);
        assert_string_equal(buf_cstr(&b), cases[i].want);
        buf_done(&b);
    }
    struct buf b = { 0 };
    AUTO(close_p) int fd = open(in(p, "f"), O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_int_equal(write(fd, "a\0b\n", 4), 4);
    assert_int_equal(fs_tail(AT_FDCWD, p->path, 1, 100, &b, NULL), 0);
    assert_string_equal(buf_cstr(&b), "a?b\n");
    assert_int_equal(fs_tail(AT_FDCWD, in(p, "none"), 1, 100, &b, &p->e), -ENOENT);
    assert_int_equal(fs_tail(AT_FDCWD, p->dir, 1, 100, &b, &p->e), -EINVAL);
    assert_int_equal(mkfifo(in(p, "fifo"), 0600), 0); /* the call must not wait for a writer */
    assert_int_equal(fs_tail(AT_FDCWD, p->path, 1, 100, &b, &p->e), -EINVAL);
    buf_clear(&b);
    assert_int_equal(fs_read_file(AT_FDCWD, p->path, &b, &p->e), -EINVAL);
    assert_int_equal(fs_read_file(AT_FDCWD, "/dev/zero", &b, &p->e), -EINVAL);
    assert_int_equal(b.len, 0);
    assert_int_equal(fs_read_file(AT_FDCWD, in(p, "f"), &b, &p->e), 0);
    assert_int_equal(b.len, 4);
    assert_int_equal(symlink("f", in(p, "link")), 0);
    assert_int_equal(fs_open_file(AT_FDCWD, p->path, O_NOFOLLOW, &p->e), -ELOOP);
    buf_done(&b);
}

static void test_remove_simple(void **state)
{
    struct place *p = *state;
    assert_int_equal(fs_remove_tree(AT_FDCWD, in(p, "none"), &p->e), 0);
    assert_int_equal(fs_remove_tree(AT_FDCWD, in(p, "none/none"), &p->e), 0);
    put(in(p, "f"), "x");
    assert_int_equal(fs_remove_tree(AT_FDCWD, p->path, &p->e), 0);
    assert_int_equal(mkdir(in(p, "empty"), 0700), 0);
    AUTO(close_p) int dirfd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(fs_remove_tree(dirfd, "empty", &p->e), 0);
    put(in(p, "f"), "x");
    assert_int_equal(fs_remove_tree(AT_FDCWD, in(p, "f/x"), &p->e), -ENOTDIR);
    assert_int_equal(entries(p->dir), 1);
}

/* Links are removed and never followed, neither inside the tree nor at its root. */
static void test_remove_links(void **state)
{
    struct place *p = *state;
    assert_int_equal(fs_mkdirs(in(p, "kept/sub"), 0700, NULL), 0);
    put(in(p, "kept/sub/file"), "x");
    assert_int_equal(fs_mkdirs(in(p, "tree/sub"), 0700, NULL), 0);
    assert_int_equal(symlink("../kept", in(p, "tree/dir-link")), 0);
    assert_int_equal(symlink("../../kept/sub/file", in(p, "tree/sub/file-link")), 0);
    assert_int_equal(symlink("nowhere", in(p, "tree/dangling")), 0);
    assert_int_equal(mkfifo(in(p, "tree/fifo"), 0600), 0);
    assert_int_equal(symlink("kept", in(p, "top-link")), 0);
    assert_int_equal(fs_remove_tree(AT_FDCWD, in(p, "tree"), &p->e), 0);
    assert_int_equal(fs_remove_tree(AT_FDCWD, in(p, "top-link"), &p->e), 0);
    assert_int_equal(access(in(p, "kept/sub/file"), F_OK), 0);
    assert_int_equal(entries(p->dir), 1);
}

static void test_remove_many(void **state)
{
    struct place *p = *state;
    char name[64];
    for (int d = 0; d < 3; d++) {
        (void)snprintf(name, sizeof name, "tree/%d", d);
        assert_int_equal(fs_mkdirs(in(p, name), 0700, NULL), 0);
        for (int f = 0; f < 1000; f++) {
            (void)snprintf(name, sizeof name, "tree/%d/a-file-with-some-name-%d", d, f);
            put(in(p, name), "");
        }
    }
    assert_int_equal(fs_remove_tree(AT_FDCWD, in(p, "tree"), &p->e), 0);
    assert_int_equal(entries(p->dir), 0);
}

/* A tree that is deeper than the limits on descriptors and on path lengths, with several such
 * branches. */
static void test_remove_deep(void **state)
{
    struct place *p = *state;
    enum { DEPTH = 3000 };
    for (int branch = 0; branch < 3; branch++) {
        char name[32];
        (void)snprintf(name, sizeof name, "tree/%d", branch);
        assert_int_equal(fs_mkdirs(in(p, name), 0700, NULL), 0);
        int fd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        for (int i = 0; i < DEPTH; i++) {
            assert_int_equal(mkdirat(fd, "deeper", 0700), 0);
            if (i % 100 == 0)
                assert_int_equal(symlinkat("/", fd, "link"), 0);
            int next = openat(fd, "deeper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            assert_true(next >= 0);
            close(fd);
            fd = next;
        }
        close(fd);
    }
    struct rlimit old, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    few = old;
    few.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int rc = fs_remove_tree(AT_FDCWD, in(p, "tree"), &p->e);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    if (rc < 0)
        fail_msg("%s", p->e.msg);
    assert_int_equal(entries(p->dir), 0);
}

/* Runs as user nobody in a child if the test runs as root: root passes any permission. */
static void test_remove_without_permission(void **state)
{
    struct place *p = *state;
    assert_int_equal(chmod(p->dir, 0777), 0);
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) == -1 || setuid(65534) == -1))
            _exit(10);
        if (fs_mkdirs(in(p, "tree/closed/inner"), 0700, NULL) < 0)
            _exit(11);
        put(in(p, "tree/closed/inner/file"), "x");
        put(in(p, "tree/closed/file"), "x");
        if (chmod(in(p, "tree/closed/inner"), 0) == -1 || chmod(in(p, "tree/closed"), 0500) == -1 ||
            chmod(in(p, "tree"), 0) == -1)
            _exit(12);
        struct err e = { 0 };
        int rc = fs_remove_tree(AT_FDCWD, in(p, "tree"), &e);
        if (rc < 0)
            fprintf(stderr, "%s\n", e.msg);
        _exit(rc < 0 ? 13 : 0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(entries(p->dir), 0);
}

/* The error names an entry that cannot be removed; all other entries are removed. */
static void test_remove_says_what_failed(void **state)
{
    struct place *p = *state;
    if (geteuid() != 0)
        return; /* this test needs a file of another user */
    assert_int_equal(fs_mkdirs(in(p, "tree/theirs"), 0755, NULL), 0);
    assert_int_equal(chmod(p->dir, 0777), 0);
    put(in(p, "tree/theirs/stuck"), "x");
    assert_int_equal(chown(in(p, "tree"), 65534, 65534), 0);
    pid_t child = fork();
    if (child == 0) {
        if (setgid(65534) == -1 || setuid(65534) == -1)
            _exit(10);
        put(in(p, "tree/mine"), "x");
        struct err e = { 0 };
        int rc = fs_remove_tree(AT_FDCWD, in(p, "tree"), &e);
        if (rc != -EACCES && rc != -EPERM)
            _exit(11);
        if (!strstr(e.msg, "/tree': '") || access(in(p, "tree/mine"), F_OK) == 0)
            _exit(12);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(access(in(p, "tree/theirs/stuck"), F_OK), 0);
}

/* Removal allocates nothing, so it also works without memory. */
static void test_remove_allocates_nothing(void **state)
{
    struct place *p = *state;
    assert_int_equal(fs_mkdirs(in(p, "tree/a/b/c"), 0700, NULL), 0);
    torture_arm(1, true);
    int rc = fs_remove_tree(AT_FDCWD, in(p, "tree"), &p->e);
    torture_arm(0, false);
    assert_int_equal(rc, 0);
}

static void test_nonblock(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(fd_nonblock(fds[0], true), 0);
    char c;
    assert_int_equal(read(fds[0], &c, 1), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(fd_nonblock(fds[0], false), 0);
    assert_int_equal(fcntl(fds[0], F_GETFL) & O_NONBLOCK, 0);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(fd_nonblock(-1, true), -EBADF);
    assert_int_equal(fs_write_all(-1, "x", 1), -EBADF);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_any_named),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_nonblock),
        T(test_read),
        T(test_write_atomic),
        T(test_write_atomic_disk_full),
        T(test_mkdirs),
        T(test_private_dir),
        T(test_tail),
        T(test_remove_simple),
        T(test_remove_links),
        T(test_remove_many),
        T(test_remove_deep),
        T(test_remove_without_permission),
        T(test_remove_says_what_failed),
        T(test_remove_allocates_nothing),
    };
    return cmocka_run_group_tests_name("base_fs", tests, NULL, NULL);
}
