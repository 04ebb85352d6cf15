/* SPDX-License-Identifier: Apache-2.0 */
/* The client's options, and the jobs that they describe. Tests in tests/e2e cover its requests to a
 * pool. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/job/jobconf.h"
#include "cluster/local/local.h"
#include "conf/conf.h"
#include "storage/jobfile.h"
#include "storage/store.h"
#include "torture.h"

#define ALL (~UINT64_C(0))

static int count(char *const *argv)
{
    int n = 0;
    while (argv[n])
        n++;
    return n;
}

static void test_forms_of_options(void **state)
{
    (void)state;
    static const struct {
        const char *argv[5];
        enum option_id id;
        const char *value; /* NULL: an option without a value */
    } cases[] = {
        { { "--src_dir", "x" }, OPT_SRC_DIR, "x" },
        { { "-src_dir", "x" }, OPT_SRC_DIR, "x" },
        { { "--src-dir", "x" }, OPT_SRC_DIR, "x" },
        { { "--src_dir=x" }, OPT_SRC_DIR, "x" },
        { { "-src_dir=x" }, OPT_SRC_DIR, "x" },
        { { "--src_dir=" }, OPT_SRC_DIR, "" },
        { { "--conf", "a=b=c" }, OPT_CONF, "a=b=c" },
        { { "--conf=a=b=c" }, OPT_CONF, "a=b=c" },
        { { "--task_params", "--lr 1" }, OPT_TASK_PARAMS, "--lr 1" },
        { { "--json" }, OPT_JSON, NULL },
        { { "-json" }, OPT_JSON, NULL },
        { { "-f" }, OPT_FOLLOW, NULL },
        { { "--follow" }, OPT_FOLLOW, NULL },
        { { "-n", "5" }, OPT_N, "5" },
        { { "-n5" }, OPT_N, "5" },
        { { "--no-wait" }, OPT_NO_WAIT, NULL },
        { { "--no_wait" }, OPT_NO_WAIT, NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *const *argv = (char *const *)(uintptr_t)cases[i].argv;
        struct options o = { 0 };
        struct err e = { 0 };
        int rc = options_parse(count(argv), argv, ALL, &o, &e);
        if (rc < 0)
            fail_msg("'%s': %s", argv[0], e.msg);
        assert_int_equal(o.n, 1);
        assert_int_equal(o.n_args, 0);
        assert_true(options_has(&o, cases[i].id));
        if (cases[i].value)
            assert_string_equal(options_get(&o, cases[i].id), cases[i].value);
        else
            assert_null(options_get(&o, cases[i].id));
        options_done(&o);
    }
}

static void test_arguments_and_order(void **state)
{
    (void)state;
    static const char *const words[] = { "a.yaml", "--conf", "x=1",    "-", "--conf",
                                         "x=2",    "--",     "--json", NULL };
    char *const *argv = (char *const *)(uintptr_t)words;
    struct options o = { 0 };
    assert_int_equal(options_parse(count(argv), argv, ALL, &o, NULL), 0);
    assert_int_equal(o.n_args, 3);
    assert_string_equal(o.args[0], "a.yaml");
    assert_string_equal(o.args[1], "-");
    assert_string_equal(o.args[2], "--json");
    assert_int_equal(o.n, 2);
    assert_string_equal(o.v[0].value, "x=1");
    assert_string_equal(o.v[1].value, "x=2");
    options_done(&o);
}

static void test_wrong_options_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *argv[5];
        option_mask allowed;
        const char *sentence, *hint;
    } cases[] = {
        { { "--jsn" }, ALL, "unknown option '--jsn'", "did you mean '--json'?" },
        { { "--zzzzzz" },
          ALL,
          "unknown option '--zzzzzz'",
          "--help lists the options of this command" },
        { { "--json" },
          OPT_BIT(OPT_HELP),
          "unknown option '--json'",
          "--help lists the options of this command" },
        { { "--json=1" }, ALL, "option '--json' takes no value", "" },
        { { "--conf" }, ALL, "option '--conf' needs a value (KEY=VALUE)", "" },
        { { "--cluster", "a", "--cluster", "b" }, ALL, "option '--cluster' is given twice", "" },
        { { "-x" }, ALL, "unknown option '-x'", "--help lists the options of this command" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *const *argv = (char *const *)(uintptr_t)cases[i].argv;
        struct options o = { 0 };
        struct err e = { 0 };
        int rc = options_parse(count(argv), argv, cases[i].allowed, &o, &e);
        assert_int_equal(rc, -EINVAL);
        assert_string_equal(e.msg, cases[i].sentence);
        assert_string_equal(e.hint, cases[i].hint);
        options_done(&o);
    }
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc;
        int64_t value;
    } cases[] = { { "1", 0, 1 },
                  { "10", 0, 10 },
                  { "0", -ERANGE, 0 },
                  { "11", -ERANGE, 0 },
                  { "x", -EINVAL, 0 } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *const words[] = { "-n", cases[i].text, NULL };
        char *const *argv = (char *const *)(uintptr_t)words;
        struct options o = { 0 };
        int64_t got = -1;
        assert_int_equal(options_parse(2, argv, ALL, &o, NULL), 0);
        assert_int_equal(options_int(&o, OPT_N, 1, 10, 5, &got, NULL), cases[i].rc);
        assert_int_equal(got, cases[i].rc == 0 ? cases[i].value : -1);
        options_done(&o);
    }
    struct options none = { 0 };
    int64_t got = -1;
    assert_int_equal(options_int(&none, OPT_N, 1, 10, 5, &got, NULL), 0);
    assert_int_equal(got, 5);
}

/* ---- jobs from options ---- */

struct place {
    char dir[64];
};

static int make_place(void **state)
{
    static struct place p;
    (void)snprintf(p.dir, sizeof p.dir, "/tmp/test-client-XXXXXX");
    if (!mkdtemp(p.dir) || chdir(p.dir) == -1)
        return -1;
    if (mkdir("src", 0700) == -1 || mkdir("home", 0700) == -1 ||
        fs_write_atomic(AT_FDCWD, "a.txt", SPAN("a"), 0600, false, NULL) < 0)
        return -1;
    char home[96];
    (void)snprintf(home, sizeof home, "%s/home", p.dir);
    (void)setenv("TONY_HOME", home, 1);
    (void)setenv("XDG_RUNTIME_DIR", p.dir, 1);
    (void)setenv("TONY_CONF_DIR", "/nonexistent", 1);
    *state = &p;
    return 0;
}

static int remove_place(void **state)
{
    struct place *p = *state;
    return chdir("/") == -1 || fs_remove_tree(AT_FDCWD, p->dir, NULL) < 0 ? -1 : 0;
}

static int load(const char *const *argv, struct cluster_job *out, struct err *e)
{
    static const struct command run = { .name = "run" };
    struct client c = { .cmd = &run, .host = { .version = "test" } };
    int rc = options_parse(count((char *const *)(uintptr_t)argv), (char *const *)(uintptr_t)argv,
                           ALL, &c.o, e);
    if (rc == 0)
        rc = client_job_load(&c, out, e);
    options_done(&c.o);
    return rc;
}

static const char *const full[] = { "-executes",
                                    "train.py",
                                    "-task_params",
                                    "--lr 1",
                                    "-src_dir",
                                    "src",
                                    "-python_venv",
                                    "src",
                                    "-python_binary_path",
                                    "bin/python",
                                    "-shell_env",
                                    "A=1,2",
                                    "-shell_env",
                                    "B",
                                    "-container_env",
                                    "C=3",
                                    "-conf",
                                    "tony.worker.instances=2",
                                    "-conf",
                                    "tony.worker.resources=a.txt::b",
                                    "-conf",
                                    "tony.application.framework=generic",
                                    NULL };

static void test_job_of_options(void **state)
{
    struct place *p = *state;
    struct cluster_job j;
    struct err e = { 0 };
    if (load(full, &j, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(j.spec->n_roles, 1);
    assert_string_equal(j.spec->roles[0].command, "venv/bin/python train.py --lr 1");
    assert_string_equal(conf_get(j.conf, "tony.python-exec-path"), "venv/bin/python");
    assert_string_equal(strv_env_get(&j.spec->execution_env, "A"), "1,2");
    assert_string_equal(strv_env_get(&j.spec->execution_env, "B"), "");
    assert_string_equal(strv_env_get(&j.spec->container_env, "C"), "3");

    static const struct {
        enum ship_kind kind;
        const char *file, *name, *role;
    } items[] = { { SHIP_SRC, "src", "", "" },
                  { SHIP_IN_PLACE, "src", "venv", "" },
                  { SHIP_FILE, "a.txt", "b", "worker" } };
    assert_int_equal(j.n_items, ARRAY_LEN(items));
    for (size_t i = 0; i < ARRAY_LEN(items); i++) {
        AUTO(free_p) char *source = fs_join(p->dir, items[i].file);
        assert_int_equal(j.items[i].kind, items[i].kind);
        assert_string_equal(j.items[i].source, source);
        assert_string_equal(j.items[i].name, items[i].name);
        assert_string_equal(j.items[i].role, items[i].role);
    }
    client_job_done(&j);
}

/* Two resources with the same name in one container must be the same file; otherwise the job is
 * refused. */
static void test_names_in_one_place(void **state)
{
    (void)state;
    static const struct {
        const char *all, *worker, *ps, *says; /* says: text of the refusal; NULL = accepted */
        size_t n_items;
    } rows[] = {
        { "a.txt,a.txt,a.txt::b", "", "", NULL, 2 },
        { "", "a.txt,a.txt", "a.txt", NULL, 2 },
        { "a.txt", "a.txt", "a.txt,b.txt", NULL, 2 },
        { "", "a.txt::x,b.txt", "b.txt::x", NULL, 3 }, /* the containers differ */
        { "", "a.txt::x,b.txt::x", "", "would both be 'x'", 0 },
        { "", "a.txt::x", "a.txt::x,b.txt::x", "would both be 'x'", 0 },
        { "a.txt::x", "", "b.txt::x", "would both be 'x'", 0 },
        { "a.txt::x,b.txt::x", "", "", "would both be 'x'", 0 },
        { "a.txt,a.txt,b.txt::a.txt", "", "", "would both be 'a.txt'", 0 },
    };
    assert_int_equal(fs_write_atomic(AT_FDCWD, "b.txt", SPAN("b"), 0600, false, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO(free_p) char *all = str_printf("tony.containers.resources=%s", rows[i].all);
        AUTO(free_p) char *worker = str_printf("tony.worker.resources=%s", rows[i].worker);
        AUTO(free_p) char *ps = str_printf("tony.ps.resources=%s", rows[i].ps);
        const char *const argv[] = { "-executes", "true",
                                     "-conf",     "tony.worker.instances=1",
                                     "-conf",     "tony.ps.instances=1",
                                     "-conf",     all,
                                     "-conf",     worker,
                                     "-conf",     ps,
                                     NULL };
        struct cluster_job j = { 0 };
        struct err e = { 0 };
        int rc = load(argv, &j, &e);
        if (rc < 0 && !rows[i].says)
            fail_msg("row %zu: %s", i, e.msg);
        if (rows[i].says && (rc == 0 || !strstr(e.msg, rows[i].says) || !strstr(e.hint, "::NAME")))
            fail_msg("row %zu: %d '%s', '%s'", i, rc, e.msg, e.hint);
        assert_int_equal(j.n_items, rows[i].n_items);
        client_job_done(&j);
    }
}

static void test_many_resources(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    AUTO(buf_done) struct buf list = { 0 };
    (void)buf_adds(&list, "tony.containers.resources=a.txt");
    for (int i = 0; i < MANY; i++)
        (void)buf_addf(&list, ",a.txt::n%d,a.txt::n%d", i, i);
    const char *const argv[] = { "-executes", "true",          "-conf", "tony.worker.instances=1",
                                 "-conf",     buf_cstr(&list), NULL };
    struct cluster_job j;
    struct err e = { 0 };
    if (load(argv, &j, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(j.n_items, MANY + 1);
    for (int i = 0; i < MANY; i++) { /* each once, in the job's order */
        char name[16];
        (void)snprintf(name, sizeof name, "n%d", i);
        assert_string_equal(j.items[i + 1].name, name);
    }
    client_job_done(&j);

    for (int i = MANY; i < JOB_FILE_SHIP_MAX; i++)
        (void)buf_addf(&list, ",a.txt::n%d", i);
    const char *const too_many[] = {
        "-executes", "true", "-conf", "tony.worker.instances=1", "-conf", buf_cstr(&list), NULL
    };
    assert_int_equal(load(too_many, &j, &e), -E2BIG); /* refused before anything is stored */
    assert_non_null(strstr(e.msg, "10001"));
    assert_non_null(strstr(e.hint, "directory"));
}

static int load_full(void *ctx)
{
    (void)ctx;
    struct cluster_job j;
    struct err e = { 0 };
    int rc = load(full, &j, &e);
    if (rc == 0)
        client_job_done(&j);
    return rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    (void)torture(load_full, NULL);
}

static void test_find(void **state)
{
    struct place *p = *state;
    static const char *const dirs[] = {
        "jobs/application_100_0007",      "history/application_100_0009",
        "history/application_90_0012",    "history/application_80_0007",
        "jobs/.new-application_100_0099", "history/other"
    };
    struct cluster_host h = { 0 };
    struct err e = { 0 };
    char id[APP_ID_MAX];
    assert_int_equal(local_find_app(&h, "last", id, &e), -ENOENT);
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        AUTO(free_p) char *path = str_printf("%s/home/%s", p->dir, dirs[i]);
        assert_int_equal(fs_mkdirs(path, 0700, NULL), 0);
    }
    static const struct {
        const char *word, *id;
        int rc;
    } cases[] = {
        { "last", "application_100_0009", 0 },
        { "7", "application_100_0007", 0 },
        { "12", "application_90_0012", 0 },
        { "0012", "application_90_0012", 0 },
        { "application_80_0007", "application_80_0007", 0 },
        { "99", "", -ENOENT },
        { "application_100_0099", "", -ENOENT },
        { "0", "", -EINVAL },
        { "", "", -EINVAL },
        { "../x", "", -EINVAL },
        { "application_100_0009/..", "", -EINVAL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int rc = local_find_app(&h, cases[i].word, id, &e);
        if (rc != cases[i].rc)
            fail_msg("'%s': %d, %s", cases[i].word, rc, e.msg);
        if (rc == 0)
            assert_string_equal(id, cases[i].id);
    }
    host_done(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms_of_options),
        cmocka_unit_test(test_arguments_and_order),
        cmocka_unit_test(test_wrong_options_are_refused),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test_setup_teardown(test_job_of_options, make_place, remove_place),
        cmocka_unit_test_setup_teardown(test_names_in_one_place, make_place, remove_place),
        cmocka_unit_test_setup_teardown(test_many_resources, make_place, remove_place),
        cmocka_unit_test_setup_teardown(test_no_memory, make_place, remove_place),
        cmocka_unit_test_setup_teardown(test_find, make_place, remove_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
