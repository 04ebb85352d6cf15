/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets: how a job names them, how the client reads them, and job.conf in a history. */
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
#include "conf/conf.h"
#include "storage/jobfile.h"
#include "storage/secrets.h"
#include "torture.h"

#define VALUE "hunter2-very-secret"
#define JOB "framework: generic\ncommand: 'true'\nroles: {w: {instances: 1}}\n"

static struct conf *load(const char *name, const char *text)
{
    struct conf *c = conf_new();
    struct err e = { 0 };
    assert_non_null(c);
    if (conf_load_text(c, CL_JOB, name, span_of(text), false, &e) < 0)
        fail_msg("%s", e.msg);
    return c;
}

static void named_in_a_job_file(void **state)
{
    (void)state;
    struct conf *c = load("dir/j.yaml", JOB "secrets:\n  A_TOKEN: {env: X}\n  B: {file: keys/b}\n"
                                            "  C: {file: /etc/c}\n");
    struct job_spec *s = NULL;
    struct err e = { 0 };
    assert_string_equal(conf_get(c, "tony.application.secrets"),
                        "A_TOKEN=env:X,B=file:dir/keys/b,C=file:/etc/c");
    /* options add to it */
    assert_int_equal(
        0, conf_set(c, CL_OPTION, "tony.application.secrets", "D=env:D", "--secret", false, &e));
    assert_int_equal(0, job_spec_build(c, &s, &e));
    assert_int_equal(s->secrets.n, 4);
    assert_string_equal(s->secrets.v[3], "D=env:D");
    /* where a secret comes from is no secret */
    struct buf text = { 0 };
    assert_int_equal(0, conf_encode_masked(c, &text, &e));
    assert_non_null(strstr(buf_cstr(&text), "A_TOKEN=env:X,B=file:dir/keys/b"));
    assert_false(conf_has_secrets(c));
    buf_done(&text);
    job_spec_free(s);
    conf_free(c);
}

/* A user may write the secret itself where its source belongs: no message may quote it. */
static void no_error_quotes_a_value(void **state)
{
    (void)state;
    static const char *const bad[] = {
        JOB "secrets: {A: " VALUE "}\n",
        JOB "secrets: {A: {value: " VALUE "}}\n",
        JOB "secrets: {A: {env: X, file: " VALUE "}}\n",
        JOB "secrets: {A: [" VALUE "]}\n",
        JOB "secrets: {A: {env: }}\n",
        JOB "secrets: [A=" VALUE "]\n",
        JOB "secrets: A=" VALUE "\n",
        JOB "secrets: 'A=env:'\n",
        JOB "secrets: {1A: {env: X}}\n",
        JOB "secrets: {'A B': {env: X}}\n",
        JOB "secrets: {'A=B': {env: X}}\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct conf *c = conf_new();
        struct job_spec *s = NULL;
        struct err e = { 0 };
        int rc = conf_load_text(c, CL_JOB, "j.yaml", span_of(bad[i]), false, &e);
        if (rc == 0)
            rc = job_spec_build(c, &s, &e);
        if (rc != -EINVAL)
            fail_msg("%s: %d %s", bad[i], rc, e.msg);
        assert_null(strstr(e.msg, VALUE));
        assert_null(strstr(e.hint, VALUE));
        assert_non_null(strstr(e.msg, "j.yaml:4"));
        conf_free(c);
    }
}

static void too_many(void **state)
{
    (void)state;
    struct conf *c = load("j", JOB);
    struct job_spec *s = NULL;
    struct err e = { 0 };
    struct buf list = { 0 };
    for (int i = 0; i < 65; i++)
        buf_addf(&list, "S%d=env:X,", i);
    assert_int_equal(
        0, conf_set(c, CL_JOB, "tony.application.secrets", buf_cstr(&list), "j:1", false, &e));
    assert_int_equal(-E2BIG, job_spec_build(c, &s, &e));
    buf_done(&list);
    conf_free(c);
}

static void write_file(const char *path, const char *bytes, size_t n, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(0, fs_write_all(fd, bytes, n));
    assert_int_equal(0, fchmod(fd, mode));
    close(fd);
}

static int gather(const char *ref, struct buf *out, struct strv *warnings, struct err *e)
{
    struct strv refs = { 0 };
    assert_int_equal(0, strv_push(&refs, ref));
    int rc = secrets_gather(&refs, out, warnings, e);
    strv_done(&refs);
    return rc;
}

static void read_from_variables_and_files(void **state)
{
    const char *dir = *state;
    struct buf text = { 0 };
    struct strv refs = { 0 }, env = { 0 }, warnings = { 0 };
    struct err e = { 0 };
    AUTO(free_p) char *path = fs_join(dir, "b");
    setenv("TEST_SECRET_SOURCE", "a=b\nc", 1);
    write_file(path, "x y\n\n", 5, 0644);
    strv_push(&refs, "A=env:TEST_SECRET_SOURCE");
    strv_pushf(&refs, "B=file:%s", path);
    strv_push(&refs, "H=env:HOME");
    if (secrets_gather(&refs, &text, &warnings, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(warnings.n, 1);
    assert_non_null(strstr(warnings.v[0], path));
    strv_push(&env, "A=other");
    assert_int_equal(0, secrets_add_to(buf_span(&text), &env));
    assert_string_equal(strv_env_get(&env, "A"), "a=b\nc");
    assert_string_equal(strv_env_get(&env, "B"), "x y\n"); /* only one newline is taken away */
    secrets_hide_sources(&refs);
    assert_null(getenv("TEST_SECRET_SOURCE"));
    assert_non_null(getenv("HOME"));
    secrets_wipe(&text);
    strv_done(&env);
    strv_done(&refs);
    strv_done(&warnings);
}

static void unreadable_ones_are_refused(void **state)
{
    const char *dir = *state;
    AUTO(free_p) char *empty = str_printf("A=file:%s/empty", dir);
    AUTO(free_p) char *nul = str_printf("A=file:%s/nul", dir);
    AUTO(free_p) char *large = str_printf("A=file:%s/large", dir);
    AUTO(free_p) char *many = calloc(1, SECRETS_TEXT_MAX);
    memset(many, 'x', SECRETS_TEXT_MAX);
    write_file(strchr(empty, ':') + 1, "\n", 1, 0600);
    write_file(strchr(nul, ':') + 1, VALUE "\0x", sizeof VALUE + 1, 0600);
    write_file(strchr(large, ':') + 1, many, SECRETS_TEXT_MAX, 0600);
    setenv("TEST_EMPTY", "", 1);
    const struct {
        const char *ref, *words;
        int num;
    } cases[] = {
        { "A=env:NO_SUCH_VARIABLE", "'NO_SUCH_VARIABLE' is not set", EINVAL },
        { "A=env:TEST_EMPTY", "is empty", EINVAL },
        { "A=file:/no/such/file", "/no/such/file", ENOENT },
        { empty, "is empty", EINVAL },
        { nul, "NUL", EINVAL },
        { large, "more than 65536", E2BIG },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf text = { 0 };
        struct strv warnings = { 0 };
        struct err e = { 0 };
        assert_int_equal(-cases[i].num, gather(cases[i].ref, &text, &warnings, &e));
        if (!strstr(e.msg, cases[i].words))
            fail_msg("%s: %s", cases[i].ref, e.msg);
        assert_null(strstr(e.msg, VALUE));
        secrets_wipe(&text);
        strv_done(&warnings);
    }
}

static void the_file_of_a_job(void **state)
{
    const char *dir = *state;
    struct buf text = { 0 };
    struct err e = { 0 };
    assert_int_equal(-ENOENT, secrets_load(dir, &text, &e));
    AUTO(free_p) char *path = fs_join(dir, SECRETS_FILE);
    write_file(path, "A=1\0B=2\0", 8, 0600);
    assert_int_equal(0, secrets_load(dir, &text, &e));
    struct strv env = { 0 };
    assert_int_equal(0, secrets_add_to(buf_span(&text), &env));
    assert_int_equal(env.n, 2);
    secrets_remove(dir);
    assert_int_equal(-1, access(path, F_OK));
    secrets_remove(dir);
    static const struct span damaged[] = { { "A=1", 3 }, { "A\0", 2 }, { "=1\0", 3 }, { "\0", 1 } };
    for (size_t i = 0; i < ARRAY_LEN(damaged); i++)
        assert_int_equal(-EBADMSG, secrets_add_to(damaged[i], &env));
    strv_done(&env);
    secrets_wipe(&text);
}

static void job_conf_is_masked(void **state)
{
    const char *dir = *state;
    AUTO(free_p) char *path = fs_join(dir, "job.conf");
    char nobody[] = "u", host[] = "h", cwd[] = "/", version[] = "1";
    struct err e = { 0 };
    for (int with = 0; with < 2; with++) {
        struct conf *c = load("j", JOB);
        struct buf text = { 0 }, after = { 0 };
        if (with)
            assert_int_equal(0, conf_set(c, CL_OPTION, "tony.execution.envs",
                                         "PLAIN=1,DB_PASSWORD=" VALUE, "--shell_env", false, &e));
        assert_true(conf_has_secrets(c) == (with == 1));
        struct job_file f = { .conf = c,
                              .user = nobody,
                              .host = host,
                              .cwd = cwd,
                              .version = version,
                              .wall_ms = 5,
                              .pid = 7 };
        assert_int_equal(0, job_file_encode(&f, &text, &e));
        write_file(path, text.p, text.len, 0600);
        assert_int_equal(0, job_file_mask(dir, with ? NULL : &f, &e));
        assert_int_equal(0, fs_read(AT_FDCWD, path, &after, &e));
        assert_null(strstr(buf_cstr(&after), VALUE));
        assert_true(span_eq(buf_span(&text), buf_span(&after)) == (with == 0));
        struct job_file *back = NULL;
        assert_int_equal(0, job_file_decode(buf_span(&after), &back, &e));
        if (with)
            assert_string_equal(conf_get(back->conf, "tony.execution.envs"),
                                "PLAIN=1,DB_PASSWORD=***");
        assert_int_equal(back->pid, 7);
        job_file_free(back);
        buf_done(&text);
        buf_done(&after);
        conf_free(c);
    }
}

static int setup(void **state)
{
    char name[] = "/tmp/tony-secrets-XXXXXX";
    *state = mkdtemp(name) ? str_dup(name) : NULL;
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    (void)fs_remove_tree(AT_FDCWD, *state, NULL);
    free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_in_a_job_file),
        cmocka_unit_test(no_error_quotes_a_value),
        cmocka_unit_test(too_many),
        cmocka_unit_test_setup_teardown(read_from_variables_and_files, setup, teardown),
        cmocka_unit_test_setup_teardown(unreadable_ones_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(the_file_of_a_job, setup, teardown),
        cmocka_unit_test_setup_teardown(job_conf_is_masked, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
