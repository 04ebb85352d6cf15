/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of several masters for Prometheus, which the page of the pool merges into one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "metrics/metrics.h"
#include "torture.h"

#define GAUGE "# TYPE g gauge\n# HELP g A gauge.\n"
#define COUNTER "# TYPE c counter\n# HELP c A counter.\n"
#define VALUE "# TYPE tony_task_value gauge\n# HELP tony_task_value A number.\n"
#define END "# EOF\n"

static int merge(struct metrics_merge *m, const char *text)
{
    struct err e = { 0 };
    int rc = metrics_merge_add(m, span_of(text), &e);
    assert_true(rc == 0 || e.msg[0]);
    return rc;
}

static int merge_two(void *arg)
{
    (void)arg;
    struct buf text = { 0 }, old = { 0 };
    struct metrics_merge *m = metrics_merge_new();
    int rc = m ? metrics_merge_add(
                     m, SPAN(GAUGE "g{j=\"1\"} 1\ng 2\n" COUNTER "c_total{j=\"1\"} 3\n" END), NULL)
               : -ENOMEM;
    if (rc == 0)
        rc = metrics_merge_add(
            m, SPAN(COUNTER "c_total{j=\"2\"} 4\n" GAUGE "g{j=\"2\"} 5\n" VALUE END), NULL);
    if (rc == 0)
        rc = metrics_merge_text(m, true, &text);
    if (rc == 0)
        rc = metrics_merge_text(m, false, &old);
    if (rc == 0) {
        assert_string_equal(buf_cstr(&text),
                            GAUGE "g{j=\"1\"} 1\ng 2\ng{j=\"2\"} 5\n" COUNTER
                                  "c_total{j=\"1\"} 3\nc_total{j=\"2\"} 4\n" VALUE);
        assert_true(span_has(buf_span(&old), "# TYPE c_total counter\n"));
    }
    metrics_merge_free(m);
    buf_done(&text);
    buf_done(&old);
    return rc;
}

static void families_of_several_jobs_stand_together(void **state)
{
    (void)state;
    assert_int_equal(merge_two(NULL), 0);
    (void)torture(merge_two, NULL);
}

static void other_texts_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "g 1\n" END,
        GAUGE "g 1\n",
        GAUGE "g 1" END,
        GAUGE "h 1\n" END,
        GAUGE "g\n" END,
        GAUGE "gg 1\n" END,
        COUNTER "c 1\n" END,
        GAUGE "g 1\n\n" END,
        GAUGE "g 1\n" END "g 2\n",
        "# TYPE g gauge\ng 1\n" END,
        "# TYPE g histogram\n# HELP g x\n" END,
        "# TYPE g gauge\n# HELP h x\n" END,
        "# TYPE  gauge\n# HELP  x\n" END,
        GAUGE "g 1\t\n" END,
        "# TYPE g counter\n# HELP g It was a gauge.\n" END,
        "# other\n" END,
    };
    struct metrics_merge *m = metrics_merge_new();
    struct buf text = { 0 };
    assert_int_equal(merge(m, GAUGE END), 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (merge(m, bad[i]) != -EBADMSG)
            fail_msg("text %zu is accepted", i);
    assert_int_equal(merge(m, GAUGE "g 7\n" END), 0);
    assert_int_equal(metrics_merge_text(m, true, &text), 0);
    assert_true(span_has(buf_span(&text), "g 7\n"));
    assert_false(span_has(buf_span(&text), "g 1\n"));
    metrics_merge_free(m);
    buf_done(&text);
}

static void names_of_programs_are_bounded(void **state)
{
    (void)state;
    struct metrics_merge *m = metrics_merge_new();
    struct buf text = { 0 };
    for (int job = 0; job < 2; job++) {
        struct buf one = { 0 };
        (void)buf_adds(&one, VALUE);
        for (int i = 0; i < 40; i++)
            (void)buf_addf(&one, "tony_task_value{j=\"%d\",name=\"n%d\"} 1\n", job, 30 * job + i);
        (void)buf_adds(&one, "tony_task_value 1\ntony_task_value{j=\"1\",name=\"} 1\n" END);
        assert_int_equal(merge(m, buf_cstr(&one)), 0);
        buf_done(&one);
    }
    assert_int_equal(metrics_merge_text(m, true, &text), 0);
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += text.p[i] == '\n';
    assert_int_equal(n, 2 + 40 + 34); /* 40 names, 10 of them again, and 24 more */
    assert_true(span_has(buf_span(&text), "{j=\"1\",name=\"n30\"}"));
    assert_false(span_has(buf_span(&text), "\"n64\""));
    metrics_merge_free(m);
    buf_done(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_of_several_jobs_stand_together),
        cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(names_of_programs_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
