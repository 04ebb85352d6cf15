/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content store, copies of trees, and tony-pack. Unpacked content equals the source and is
 * stored once. Content that cannot be shipped is refused with its name, and leaves nothing behind.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "storage/storage.h"
#include "storage/tree.h"

static char root[64];

/* Takes the place of the C library's function. It fails with this errno, unless that is 0. */
static int sync_errno;
int sync_file_range(int fd, off64_t offset, off64_t n, unsigned flags)
{
    (void)fd;
    (void)offset;
    (void)n;
    (void)flags;
    errno = sync_errno;
    return sync_errno ? -1 : 0;
}

static char *at(const char *name)
{
    return fs_join(root, name);
}

static void store_p(struct store **s)
{
    store_free(*s);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/tony-storage-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    AUTO(free_p) char *store = at("home/store");
    log_setup(-1, LOG_ERROR, false);
    umask(022);
    return fs_mkdirs(store, 0700, NULL);
}

static int teardown(void **state)
{
    (void)state;
    return fs_remove_tree(AT_FDCWD, root, NULL);
}

/* ---- making and comparing trees ---- */

struct node {
    const char *path;
    mode_t mode;      /* 0 = a symbolic link */
    const char *text; /* NULL = a directory; for a link: its target */
};

static const struct node plain[] = {
    { "train.py", 0644, "print('x')\n" },
    { "run.sh", 0755, "#!/bin/sh\n" },
    { "secret", 0600, "s" },
    { "locked", 0444, "read only" },
    { "wide", 0666, "w" },
    { "empty", 0644, "" },
    { "dir", 0755, NULL },
    { "dir/deep", 0700, NULL },
    { "dir/deep/file", 0640, "deep" },
    { "dir/nothing", 0755, NULL },
    { "link", 0, "dir/deep/file" },
    { "dangling", 0, "not/there" },
    { "out", 0, "/etc/passwd" },
    { "up", 0, "../../elsewhere" },
    { "dirlink", 0, "dir" },
    { "with space and \xc3\xbc", 0644, "name" },
    { "bad\xff\nname", 0644, "bytes" },
};

static void make_node(const char *dir, const struct node *n)
{
    AUTO(free_p) char *path = fs_join(dir, n->path);
    if (n->mode == 0) {
        assert_int_equal(symlink(n->text, path), 0);
    } else if (!n->text) {
        assert_int_equal(mkdir(path, n->mode), 0);
        assert_int_equal(chmod(path, n->mode), 0);
    } else {
        assert_int_equal(fs_write_atomic(AT_FDCWD, path, span_of(n->text), n->mode, false, NULL),
                         0);
        assert_int_equal(chmod(path, n->mode), 0);
    }
}

static void make_tree(const char *dir, const struct node *nodes, size_t n)
{
    assert_int_equal(fs_mkdirs(dir, 0755, NULL), 0);
    for (size_t i = 0; i < n; i++)
        make_node(dir, &nodes[i]);
}

static unsigned count_entries(const char *dir)
{
    unsigned n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (const struct dirent *x; (x = readdir(d));)
        n += !str_eq(x->d_name, ".") && !str_eq(x->d_name, "..");
    closedir(d);
    return n;
}

/* clear: permission bits that the copy must not have; set: bits that its directories must have. */
static void check_node(const char *dir, const struct node *n, mode_t clear, mode_t set)
{
    AUTO(free_p) char *path = fs_join(dir, n->path);
    struct stat st;
    if (lstat(path, &st) == -1)
        fail_msg("'%s' is missing", path);
    if (n->mode == 0) {
        char target[256] = "";
        assert_true(S_ISLNK(st.st_mode));
        assert_true(readlink(path, target, sizeof target - 1) > 0);
        assert_string_equal(target, n->text);
        return;
    }
    mode_t want = (n->mode & ~clear) | (n->text ? 0 : set);
    if ((st.st_mode & 07777) != want)
        fail_msg("'%s' has mode %o, not %o", path, (unsigned)st.st_mode & 07777, (unsigned)want);
    if (!n->text) {
        assert_true(S_ISDIR(st.st_mode));
        return;
    }
    AUTO(buf_done) struct buf text = { 0 };
    assert_int_equal(fs_read(AT_FDCWD, path, &text, NULL), 0);
    assert_string_equal(buf_cstr(&text), n->text);
}

static void check_tree(const char *dir, const struct node *nodes, size_t n, mode_t clear,
                       mode_t set)
{
    for (size_t i = 0; i < n; i++)
        check_node(dir, &nodes[i], clear, set);
}

static struct store *open_store(void)
{
    AUTO(free_p) char *dir = at("home/store");
    struct store *s = NULL;
    struct err e = { 0 };
    if (store_open(dir, &s, &e) < 0)
        fail_msg("%s", e.msg);
    return s;
}

/* Number of entries and unfinished entries in the store, without its lock and cache. */
static unsigned stored(void)
{
    AUTO(free_p) char *dir = at("home/store");
    unsigned n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (const struct dirent *x; (x = readdir(d));)
        n += x->d_name[0] != '.' ? !str_eq(x->d_name, "lock") && !str_eq(x->d_name, "cache")
                                 : str_starts(x->d_name, ".tmp");
    closedir(d);
    return n;
}

static struct ship_item item(enum ship_kind kind, const char *name)
{
    return (struct ship_item){
        .kind = kind, .source = at(name), .name = str_dup("n"), .role = str_dup("")
    };
}

static void put_ok(struct ship_item *it)
{
    AUTO(store_p) struct store *s = open_store();
    struct err e = { 0 };
    if (store_put(s, it, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(e.num, 0);
}

/* ---- tests ---- */

static void test_copy(void **state)
{
    (void)state;
    AUTO(free_p) char *from = at("copy-from"), *to = at("copy-to");
    make_tree(from, plain, ARRAY_LEN(plain));
    assert_int_equal(mkdir(to, 0755), 0);
    int fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err e = { 0 };
    if (tree_copy(from, fd, &e) < 0)
        fail_msg("%s", e.msg);
    close(fd);
    check_tree(to, plain, ARRAY_LEN(plain), 0, 0700);
    assert_int_equal(count_entries(to), count_entries(from));
    free(to);
    to = at("nowhere");
    assert_int_equal(tree_copy(to, AT_FDCWD, &e), -ENOENT);
    assert_non_null(strstr(e.msg, "nowhere"));
}

static void test_copy_large_and_times(void **state)
{
    (void)state;
    AUTO(free_p) char *from = at("large"), *to = at("large-to"), *file = at("large/file");
    AUTO(free_p) char *copy = at("large-to/file");
    AUTO(buf_done) struct buf want = { 0 };
    AUTO(buf_done) struct buf got = { 0 };
    for (int i = 0; i < 300000; i++)
        buf_addf(&want, "%d,", i);
    assert_int_equal(mkdir(from, 0755), 0);
    assert_int_equal(mkdir(to, 0755), 0);
    assert_int_equal(fs_write_atomic(AT_FDCWD, file, buf_span(&want), 0644, false, NULL), 0);
    const struct timespec times[2] = { { 1000000, 5 }, { 1000000, 5 } };
    assert_int_equal(utimensat(AT_FDCWD, file, times, 0), 0);
    int fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(tree_copy(from, fd, NULL), 0);
    close(fd);
    assert_int_equal(fs_read(AT_FDCWD, copy, &got, NULL), 0);
    assert_true(span_eq(buf_span(&want), buf_span(&got)));
    struct stat st;
    assert_int_equal(stat(copy, &st), 0);
    assert_int_equal(st.st_mtim.tv_sec, 1000000);
}

static void test_put_src(void **state)
{
    (void)state;
    AUTO(free_p) char *src = at("src"), *git = at("src/.git"), *head = at("src/.git/HEAD");
    AUTO(free_p) char *cache = at("src/dir/__pycache__"), *ignored = at("src/.gitignore");
    make_tree(src, plain, ARRAY_LEN(plain));
    assert_int_equal(mkdir(git, 0755), 0);
    assert_int_equal(mkdir(cache, 0755), 0);
    assert_int_equal(fs_write_atomic(AT_FDCWD, head, SPAN("x"), 0644, false, NULL), 0);
    assert_int_equal(fs_write_atomic(AT_FDCWD, ignored, SPAN("x"), 0644, false, NULL), 0);
    unsigned before = stored();

    AUTO(ship_item_done) struct ship_item a = item(SHIP_SRC, "src"), b = item(SHIP_SRC, "src");
    put_ok(&a);
    assert_int_equal(stored(), before + 1);
    check_tree(a.path, plain, ARRAY_LEN(plain), 0, 0700);
    assert_int_equal(count_entries(a.path), count_entries(src) - 1);
    AUTO(free_p) char *skipped = fs_join(a.path, ".git");
    AUTO(free_p) char *skipped2 = fs_join(a.path, "dir/__pycache__");
    assert_int_equal(access(skipped, F_OK), -1);
    assert_int_equal(access(skipped2, F_OK), -1);
    assert_int_equal(a.n_files, 15); /* all except the three directories and .gitignore */

    put_ok(&b); /* ignored files change nothing */
    assert_string_equal(a.digest, b.digest);
    assert_int_equal(stored(), before + 1);
}

static void test_put_dir_is_read_only(void **state)
{
    (void)state;
    AUTO(free_p) char *dir = at("vocab");
    make_tree(dir, plain, ARRAY_LEN(plain));
    AUTO(ship_item_done) struct ship_item it = item(SHIP_DIR, "vocab");
    put_ok(&it);
    check_tree(it.path, plain, ARRAY_LEN(plain), 0222, 0500);
    struct stat st;
    assert_int_equal(stat(it.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0555);
    check_tree(dir, plain, ARRAY_LEN(plain), 0, 0); /* the source is unchanged */
}

/* The same content from two places is stored once; any difference gives another entry. */
static void test_digests(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct node nodes[3];
        bool same;
    } rows[] = {
        { "base", { { "a", 0644, "1" }, { "d", 0755, NULL }, { "l", 0, "a" } }, true },
        { "again", { { "d", 0755, NULL }, { "l", 0, "a" }, { "a", 0644, "1" } }, true },
        { "content", { { "a", 0644, "2" }, { "d", 0755, NULL }, { "l", 0, "a" } }, false },
        { "longer", { { "a", 0644, "11" }, { "d", 0755, NULL }, { "l", 0, "a" } }, false },
        { "name", { { "b", 0644, "1" }, { "d", 0755, NULL }, { "l", 0, "a" } }, false },
        { "mode", { { "a", 0755, "1" }, { "d", 0755, NULL }, { "l", 0, "a" } }, false },
        { "dir mode", { { "a", 0644, "1" }, { "d", 0700, NULL }, { "l", 0, "a" } }, false },
        { "link", { { "a", 0644, "1" }, { "d", 0755, NULL }, { "l", 0, "b" } }, false },
        { "kind", { { "a", 0644, "1" }, { "d", 0644, "" }, { "l", 0, "a" } }, false },
        { "kind of link", { { "a", 0644, "1" }, { "d", 0755, NULL }, { "l", 0644, "a" } }, false },
        { "nested", { { "d", 0755, NULL }, { "d/a", 0644, "1" }, { "l", 0, "a" } }, false },
    };
    char *digests[ARRAY_LEN(rows)] = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO(free_p) char *name = str_printf("digest-%zu", i);
        AUTO(free_p) char *dir = at(name);
        make_tree(dir, rows[i].nodes, 3);
        AUTO(ship_item_done) struct ship_item it = item(SHIP_DIR, name);
        put_ok(&it);
        digests[i] = str_dup(it.digest);
        for (size_t k = 0; k < i; k++) {
            bool same = rows[i].same && rows[k].same;
            if (str_eq(digests[k], digests[i]) != same)
                fail_msg("'%s' and '%s': %s", rows[k].name, rows[i].name,
                         same ? "differ" : "are the same");
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        free(digests[i]);
}

static void age(const char *path, int seconds)
{
    /* Only ctime counts, and a program cannot set it: wait until the file is old enough for the
     * cache. */
    (void)path;
    (void)nanosleep(&(struct timespec){ seconds, 200000000 }, NULL);
}

static void test_cache(void **state)
{
    (void)state;
    AUTO(free_p) char *dir = at("cached"), *file = at("cached/train.py"), *store = at("home/store");
    make_tree(dir, plain, ARRAY_LEN(plain));
    age(file, 2);
    AUTO(free_p) char *other = at("other"), *other_file = at("other/train.py");
    make_tree(other, plain, ARRAY_LEN(plain));
    age(other_file, 2);
    AUTO(ship_item_done)
    struct ship_item a = item(SHIP_SRC, "cached"), b = item(SHIP_SRC, "cached"),
                     o = item(SHIP_DIR, "other");
    put_ok(&o);
    AUTO(ship_item_done)
    struct ship_item c = item(SHIP_SRC, "cached"), d = item(SHIP_SRC, "cached");
    put_ok(&a);
    AUTO(free_p) char *list = fs_join(store, "cache");
    AUTO(buf_done) struct buf text = { 0 };
    assert_int_equal(fs_read(AT_FDCWD, list, &text, NULL), 0);
    assert_non_null(strstr(buf_cstr(&text), a.digest));
    assert_non_null(strstr(buf_cstr(&text), o.digest)); /* each source has its row in the cache */

    /* The cache is trusted: a forged row is believed, which shows that the content was not read. */
    AUTO(free_p) char *fake = str_printf("%s/d-%064d", store, 7);
    assert_int_equal(mkdir(fake, 0755), 0);
    char *found = strstr(text.p, a.digest);
    (void)snprintf(found, 65, "%064d", 7);
    found[64] = ' ';
    assert_int_equal(fs_write_atomic(AT_FDCWD, list, buf_span(&text), 0600, false, NULL), 0);
    put_ok(&b);
    assert_string_equal(b.path, fake);
    assert_int_equal(b.n_files, a.n_files);
    /* A row for an entry that does not exist is ignored. */
    assert_int_equal(rmdir(fake), 0);
    put_ok(&c);
    assert_string_equal(c.digest, a.digest);
    /* A change that keeps the size is noticed. */
    assert_int_equal(fs_write_atomic(AT_FDCWD, file, SPAN("print('y')\n"), 0644, false, NULL), 0);
    put_ok(&d);
    assert_string_not_equal(d.digest, a.digest);
    /* A damaged cache is ignored. */
    assert_int_equal(fs_write_atomic(AT_FDCWD, list, SPAN("x y z\n\0\xff\n\n"), 0600, false, NULL),
                     0);
    AUTO(ship_item_done) struct ship_item f = item(SHIP_SRC, "cached");
    put_ok(&f);
}

static void test_put_file(void **state)
{
    (void)state;
    AUTO(free_p) char *plain_file = at("words.txt"), *script = at("tool.sh");
    assert_int_equal(fs_write_atomic(AT_FDCWD, plain_file, SPAN("words"), 0644, false, NULL), 0);
    assert_int_equal(fs_write_atomic(AT_FDCWD, script, SPAN("words"), 0755, false, NULL), 0);
    AUTO(ship_item_done)
    struct ship_item a = item(SHIP_FILE, "words.txt"), b = item(SHIP_FILE, "tool.sh");
    put_ok(&a);
    put_ok(&b);
    assert_string_not_equal(a.digest, b.digest); /* the mode is part of the digest */
    assert_non_null(strstr(a.path, "/f-"));
    struct stat st;
    assert_int_equal(stat(a.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0444);
    assert_int_equal(stat(b.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0555);
    AUTO(buf_done) struct buf text = { 0 };
    assert_int_equal(fs_read(AT_FDCWD, a.path, &text, NULL), 0);
    assert_string_equal(buf_cstr(&text), "words");
}

static void test_in_place(void **state)
{
    (void)state;
    AUTO(free_p) char *dir = at("venv"), *link = at("venv-link");
    assert_int_equal(mkdir(dir, 0755), 0);
    assert_int_equal(symlink("venv", link), 0);
    unsigned before = stored();
    AUTO(ship_item_done) struct ship_item it = item(SHIP_IN_PLACE, "venv-link");
    put_ok(&it);
    assert_string_equal(it.path, dir);
    assert_string_equal(it.digest, "");
    assert_int_equal(stored(), before);
}

static void test_refusals(void **state)
{
    (void)state;
    AUTO(free_p)
    char *fifo_dir = at("zfifo"), *fifo = at("zfifo/pipe"), *file = at("afile"), *dir = at("adir");
    AUTO(free_p) char *null_link = at("null");
    assert_int_equal(mkdir(fifo_dir, 0755), 0);
    assert_int_equal(mkdir(dir, 0755), 0);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(symlink("/dev/null", null_link), 0);
    assert_int_equal(fs_write_atomic(AT_FDCWD, file, SPAN("x"), 0644, false, NULL), 0);
    static const struct {
        enum ship_kind kind;
        const char *name;
        int rc;
        const char *says;
    } rows[] = {
        { SHIP_SRC, "zfifo", -EINVAL, "zfifo/pipe' is a named pipe" },
        { SHIP_SRC, "nothing", -ENOENT, "nothing" },
        { SHIP_DIR, "afile", -ENOTDIR, "is not a directory" },
        { SHIP_FILE, "adir", -EISDIR, "is a directory" },
        { SHIP_FILE, "null", -EINVAL, "neither a file nor a directory" },
        { SHIP_ARCHIVE, "adir", -EISDIR, "is a directory" },
        { SHIP_IN_PLACE, "afile", -ENOTDIR, "is not a directory" },
        { SHIP_IN_PLACE, "nothing", -ENOENT, "nothing" },
        { SHIP_SRC, "", -EINVAL, "contains TONY_HOME" },
        { SHIP_SRC, "home", -EINVAL, "is TONY_HOME" },
        { SHIP_NONE, "afile", -EINVAL, "unknown kind 0" },
    };
    unsigned before = stored();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO(ship_item_done) struct ship_item it = item(rows[i].kind, rows[i].name);
        AUTO(store_p) struct store *s = open_store();
        struct err e = { 0 };
        int rc = store_put(s, &it, &e);
        if (rc != rows[i].rc || !strstr(e.msg, rows[i].says))
            fail_msg("row %zu: %d, %s", i, rc, e.msg);
    }
    assert_int_equal(stored(), before);
}

/* Runs as a user who may not read everything. Root may, so the test changes its user for this
 * time. */
static void test_unreadable(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    AUTO(free_p)
    char *dir = at("unreadable"), *file = at("unreadable/hidden"), *to = at("unreadable-to");
    make_tree(dir, &(struct node){ "hidden", 0600, "x" }, 1);
    assert_int_equal(mkdir(to, 0777), 0);
    assert_int_equal(chmod(to, 0777), 0);
    assert_int_equal(chmod(root, 0755), 0);
    int fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(seteuid(65534), 0);
    struct err e = { 0 };
    int rc = tree_copy(dir, fd, &e);
    assert_int_equal(seteuid(0), 0);
    close(fd);
    assert_int_equal(rc, -EACCES);
    assert_non_null(strstr(e.msg, file));
}

static void test_too_deep(void **state)
{
    (void)state;
    AUTO(free_p) char *dir = at("deep");
    AUTO(buf_done) struct buf path = { 0 };
    buf_adds(&path, dir);
    for (unsigned i = 0; i < STORE_MAX_DEPTH + 1; i++)
        buf_adds(&path, "/d");
    assert_int_equal(fs_mkdirs(buf_cstr(&path), 0755, NULL), 0);
    unsigned before = stored();
    AUTO(ship_item_done) struct ship_item it = item(SHIP_SRC, "deep");
    AUTO(store_p) struct store *s = open_store();
    struct err e = { 0 };
    assert_int_equal(store_put(s, &it, &e), -EFBIG);
    assert_non_null(strstr(e.msg, "directories deep"));
    assert_int_equal(stored(), before);
}

static pid_t start_writer(const char *file)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = open(file, O_WRONLY | O_APPEND | O_CLOEXEC);
    while (getppid() != 1 && write(fd, "more\n", 5) == 5)
        (void)nanosleep(&(struct timespec){ 0, 20000 }, NULL);
    _exit(0);
}

/* A writer changes a file all the time: the put gives up, names the file, and stores nothing. On a
 * busy machine the writer may not run during the copy; then the copy is right, and the test tries
 * again. */
static void test_changing_source(void **state)
{
    (void)state;
    AUTO(free_p) char *dir = at("busy"), *file = at("busy/log");
    make_tree(dir, &(struct node){ "log", 0644, "x" }, 1);
    struct err e = { 0 };
    unsigned before = 0;
    int rc = 0;
    int64_t deadline_ms = clock_mono_ms() + 30000;
    pid_t pid = start_writer(file);
    while (pid > 0 && rc == 0 && clock_mono_ms() < deadline_ms) {
        AUTO(ship_item_done) struct ship_item it = item(SHIP_SRC, "busy");
        AUTO(store_p) struct store *s = open_store();
        before = stored();
        rc = store_put(s, &it, &e);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(rc, -EBUSY);
    assert_non_null(strstr(e.msg, "busy/log' is being changed"));
    assert_int_equal(stored(), before);
    AUTO(ship_item_done) struct ship_item quiet = item(SHIP_SRC, "busy");
    put_ok(&quiet); /* once the writer has stopped, the put succeeds */
}

static void test_full_disk(void **state)
{
    (void)state;
    AUTO(free_p) char *dir = at("big");
    AUTO(buf_done) struct buf text = { 0 };
    while (text.len < 3 << 20)
        buf_adds(&text, "0123456789abcdef0123456789abcdef");
    make_tree(dir, &(struct node){ "big", 0644, buf_cstr(&text) }, 1);
    unsigned before = stored();
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    const struct rlimit low = { 1 << 20, old.rlim_max };
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    AUTO(ship_item_done) struct ship_item it = item(SHIP_SRC, "big");
    struct err e = { 0 };
    struct store *s = open_store();
    int rc = store_put(s, &it, &e);
    store_free(s);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(rc, -EFBIG);
    assert_non_null(strstr(e.msg, "big/big"));
    assert_int_equal(stored(), before);
}

/* Network file systems report a full disk or quota only when the copy is written out. */
static void test_full_when_written_out(void **state)
{
    static const int errors[] = { ENOSPC, EDQUOT, EIO };
    (void)state;
    AUTO(free_p) char *dir = at("late");
    make_tree(dir, &(struct node){ "model", 0644, "written out too late" }, 1);
    unsigned before = stored();
    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        AUTO(store_p) struct store *s = open_store();
        AUTO(ship_item_done) struct ship_item it = item(SHIP_SRC, "late");
        struct err e = { 0 };
        sync_errno = errors[i];
        int rc = store_put(s, &it, &e);
        sync_errno = 0;
        assert_int_equal(rc, -errors[i]);
        assert_non_null(strstr(e.msg, "cannot write the copy of"));
        assert_int_equal(stored(), before);
    }
}

static void test_parallel_puts(void **state)
{
    (void)state;
    AUTO(free_p) char *dir = at("parallel");
    make_tree(dir, plain, ARRAY_LEN(plain));
    for (int i = 0; i < 200; i++) {
        AUTO(free_p) char *name = str_printf("f%d", i);
        make_node(dir, &(struct node){ name, 0644, name });
    }
    unsigned before = stored();
    enum { N = 6 };
    pid_t pids[N];
    for (int i = 0; i < N; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct ship_item it = item(SHIP_SRC, "parallel");
            struct store *s = NULL;
            AUTO(free_p) char *store = at("home/store");
            int rc = store_open(store, &s, NULL);
            rc = rc < 0 ? rc : store_put(s, &it, NULL);
            store_free(s);
            ship_item_done(&it);
            free(TAKE(store)); /* _exit() runs no cleanup */
            _exit(rc < 0 ? 1 : 0);
        }
    }
    for (int i = 0; i < N; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(stored(), before + 1);
}

static void test_survey(void **state)
{
    (void)state;
    AUTO(free_p) char *dir = at("survey");
    make_tree(dir, plain, ARRAY_LEN(plain));
    unsigned before = stored();
    AUTO(ship_item_done) struct ship_item it = item(SHIP_SRC, "survey");
    struct err e = { 0 };
    assert_int_equal(store_survey(&it, &e), 0);
    assert_int_equal(it.n_files, 14);
    assert_true(it.bytes > 20 && it.bytes < 100);
    assert_int_equal(stored(), before);
}

static void test_sweep_and_gc(void **state)
{
    (void)state;
    AUTO(free_p)
    char *store = at("home/store"), *jobs = at("home/jobs"), *a = at("gc-a"), *b = at("gc-b");
    make_tree(a, &(struct node){ "f", 0644, "gc a" }, 1);
    make_tree(b, &(struct node){ "f", 0644, "gc b" }, 1);
    AUTO(ship_item_done)
    struct ship_item ia = item(SHIP_SRC, "gc-a"), ib = item(SHIP_DIR, "gc-b"),
                     ic = item(SHIP_FILE, "gc-b/f");
    put_ok(&ia);
    put_ok(&ib);
    put_ok(&ic);
    AUTO(free_p)
    char *job = at("home/jobs/application_1_0001"),
         *conf = at("home/jobs/application_1_0001/job.conf");
    assert_int_equal(fs_mkdirs(job, 0700, NULL), 0);
    AUTO(buf_done) struct buf text = { 0 };
    buf_addf(&text, "{\"path\":\"%s\",\"file\":\"%s\"}", ia.path, ic.path);
    assert_int_equal(fs_write_atomic(AT_FDCWD, conf, buf_span(&text), 0600, false, NULL), 0);
    struct err e = { 0 };
    int64_t now = clock_wall_ms(), hour = 3600 * 1000;
    /* All entries are younger than an hour. */
    assert_int_equal(store_gc(store, jobs, 0, now, &e), 0);
    assert_int_equal(access(ib.path, F_OK), 0);
    assert_true(store_gc(store, jobs, 5 * hour, now + 4 * hour, &e) == 0);
    assert_true(store_gc(store, jobs, 3 * hour, now + 4 * hour, &e) > 0);
    assert_int_equal(access(ia.path, F_OK), 0); /* a live job uses it */
    assert_int_equal(access(ic.path, F_OK), 0);
    assert_int_equal(access(ib.path, F_OK), -1);
    /* While a client uses the store nothing is removed. */
    AUTO(store_p) struct store *s = open_store();
    assert_int_equal(fs_remove_tree(AT_FDCWD, job, NULL), 0);
    assert_int_equal(store_gc(store, jobs, hour, now + 4 * hour, &e), 0);
    assert_int_equal(access(ia.path, F_OK), 0);
    store_free(TAKE(s));
    assert_int_equal(store_gc(store, jobs, hour, now + 4 * hour, &e), 2);
    assert_int_equal(stored(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy),          cmocka_unit_test(test_copy_large_and_times),
        cmocka_unit_test(test_put_src),       cmocka_unit_test(test_put_dir_is_read_only),
        cmocka_unit_test(test_digests),       cmocka_unit_test(test_cache),
        cmocka_unit_test(test_put_file),      cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_too_deep),      cmocka_unit_test(test_changing_source),
        cmocka_unit_test(test_full_disk),     cmocka_unit_test(test_full_when_written_out),
        cmocka_unit_test(test_parallel_puts), cmocka_unit_test(test_survey),
        cmocka_unit_test(test_sweep_and_gc),
    };
    return cmocka_run_group_tests_name("storage", tests, setup, teardown);
}
