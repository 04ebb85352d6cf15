/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Journals of released versions, tests/data/journals/<version>/<job>. job.conf and journal are as
 * that version wrote them. status.json is the output of its `tony status --json` without the paths
 * of its machine. This version must read them and print the same.
 */
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "codec/json.h"
#include "history/history.h"
#include "job/job.h"

static unsigned n_jobs;

/* Each member in the old output has the same value in the new one. */
static void check_same(const char *job, const char *where, json_t *then, json_t *now)
{
    const char *key;
    json_t *v;
    size_t i;

    if (json_is_object(then) && json_is_object(now)) {
        json_object_foreach(then, key, v)
        {
            AUTO(free_p) char *inner = str_printf("%s.%s", where, key);
            check_same(job, inner, v, json_object_get(now, key));
        }
        return;
    }
    if (json_is_array(then) && json_array_size(then) == json_array_size(now)) {
        json_array_foreach(then, i, v) check_same(job, where, v, json_array_get(now, i));
        return;
    }
    if (json_equal(then, now))
        return;
    AUTO(free_p) char *a = json_dumps(then, JSON_ENCODE_ANY);
    AUTO(free_p) char *b = now ? json_dumps(now, JSON_ENCODE_ANY) : NULL;
    fail_msg("%s%s: then %s, now %s", job, where, a, b ? b : "nothing");
}

static json_t *parse(struct span text)
{
    struct err e = { 0 };
    json_t *doc = NULL;
    if (json_parse("status", text, &doc, &e) < 0)
        fail_msg("%s", e.msg);
    return doc;
}

static void check_job(const char *dir)
{
    struct err e = { 0 };
    AUTO(history_freep) struct history_job *h = NULL;
    AUTO(free_p) char *path = fs_join(dir, "status.json");
    AUTO(buf_done) struct buf then_text = { 0 }, now_text = { 0 };

    if (history_load(dir, &h, &e) < 0 || fs_read(AT_FDCWD, path, &then_text, &e) < 0)
        fail_msg("%s: %s", dir, e.msg);
    assert_int_equal(job_status_json(h->job, true, &now_text), 0);
    AUTO(json_freep) json_t *then = parse(buf_span(&then_text)), *now = parse(buf_span(&now_text));
    (void)json_object_del(then, "live"); /* a member that the client adds */
    check_same(dir, "", then, now);
    n_jobs++;
}

static void check_all_in(const char *dir, void (*check)(const char *dir))
{
    DIR *d = opendir(dir);
    const struct dirent *entry;

    if (!d)
        fail_msg("no directory %s", dir);
    while ((entry = readdir(d))) {
        AUTO(free_p) char *path = fs_join(dir, entry->d_name);
        if (entry->d_name[0] != '.')
            check(path);
    }
    (void)closedir(d);
}

static void check_version(const char *dir)
{
    check_all_in(dir, check_job);
}

static void test_old_journals(void **state)
{
    const char *tests = getenv("TONY_TESTS");
    AUTO(free_p) char *dir = fs_join(tests ? tests : "tests", "data/journals");

    (void)state;
    check_all_in(dir, check_version);
    assert_true(n_jobs >= 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_old_journals) };
    return cmocka_run_group_tests_name("old_journals", tests, NULL, NULL);
}
