/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of other clusters (src/simulate/foreign.h): tests/data/traces, and text that is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/base.h"
#include "simulate/foreign.h"

struct want {
    const char *id;
    double arrival_s, duration_s;
    uint32_t n;
    int64_t demand[3];
};

static const struct {
    const char *file, *columns, *types[3];
    size_t left_out;
    struct want jobs[3];
} files[] = {
    /* One container for each GPU; a job without GPUs: one for each node. */
    { "helios.csv",
      NULL,
      { "cores", "gpus" },
      1,
      { { "71", 0, 3600, 8, { 4, 1 } },
        { "73", 300, 600, 1, { 6, 1 } },
        { "72", 600, 600, 2, { 6, 0 } } } },
    /* The amounts are those of one instance. */
    { "pai.csv",
      NULL,
      { "core_percent", "memory_mib", "gpu_percent" },
      1,
      { { "j-one", 0, 900, 1, { 600, 8192, 0 } }, { "j-one", 0, 900, 2, { 400, 16896, 50 } } } },
    /* All attempts together, with the GPUs of the last one. */
    { "philly.json",
      NULL,
      { "gpus" },
      1,
      { { "application_1_3", 0, 40, 1, { 1 } }, { "application_1_1", 60, 660, 3, { 1 } } } },
    { "other.csv",
      "id=name,submit=queued,duration=took,gpus=cards,memory_mib=memory",
      { "memory_mib", "gpus" },
      0,
      { { "b", 0, 30, 1, { 7, 1 } }, { "a", 10.5, 60, 2, { 50, 1 } } } },
};

static void read_file(const char *name, struct buf *text)
{
    AUTO(buf_done) struct buf path = { 0 };
    assert_int_equal(buf_addf(&path, "%s/data/traces/%s", getenv("TONY_TESTS"), name), 0);
    AUTO(close_p) int fd = open(buf_cstr(&path), O_RDONLY | O_CLOEXEC);
    assert_int_not_equal(fd, -1);
    assert_int_equal(buf_fill_fd(text, fd, NULL), 0);
}

static void known_files(void **state)
{
    (void)state;
    for (size_t f = 0; f < ARRAY_LEN(files); f++) {
        AUTO(buf_done) struct buf text = { 0 };
        AUTO(trace_done) struct trace t = { 0 };
        struct foreign_options o = { .columns = files[f].columns };
        struct foreign_result result;
        struct err e = { 0 };
        read_file(files[f].file, &text);
        assert_true(foreign_is(buf_span(&text)));
        if (foreign_parse(files[f].file, buf_span(&text), &o, &t, &result, &e) < 0)
            fail_msg("%s", e.msg);
        assert_int_equal(result.left_out, files[f].left_out);
        size_t n = 0, k = 0;
        for (; k < 3 && files[f].types[k]; k++)
            assert_string_equal(t.cluster.types[k], files[f].types[k]);
        assert_int_equal(t.cluster.n_types, k);
        for (; n < 3 && files[f].jobs[n].id; n++) {
            const struct want *want = &files[f].jobs[n];
            const struct trace_job *job = &t.jobs[n];
            assert_string_equal(job->id, want->id);
            assert_true(job->arrival_s == want->arrival_s && job->duration_s == want->duration_s);
            assert_int_equal(job->fixed, want->n);
            assert_int_equal(job->min, want->n);
            assert_int_equal(job->max, want->n);
            for (size_t d = 0; d < k; d++)
                assert_int_equal(job->demand.v[d], want->demand[d]);
        }
        assert_int_equal(t.n_jobs, n);
    }
}

static void elastic(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(trace_done) struct trace t = { 0 };
    struct foreign_options o = { 0 };
    struct foreign_result result;
    read_file("helios.csv", &text);
    assert_int_equal(foreign_elastic(SPAN("0.25,2,0.9"), &o, NULL), 0);
    assert_int_equal(foreign_parse("x", buf_span(&text), &o, &t, &result, NULL), 0);
    assert_int_equal(t.jobs[0].min, 2);
    assert_int_equal(t.jobs[0].max, 16);
    assert_true(t.jobs[0].exponent == 0.9);
    assert_int_equal(t.jobs[1].min, 1);
    static const char *const wrong[] = { "", "1", "1,2", "2,1,1", "0.5,2,1,1", "x,2,1", "0.5,2,3" };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_int_equal(foreign_elastic(span_of(wrong[i]), &o, NULL), -EINVAL);
}

#define HELIOS "job_id,gpu_num,cpu_num,node_num,submit_time,duration\n"

static void fields_in_quotes(void **state)
{
    (void)state;
    AUTO(trace_done) struct trace t = { 0 };
    struct foreign_options o = { 0 };
    struct foreign_result result;
    struct err e = { 0 };
    const char text[] = "user,\"job_id\", \"gpu_num\" ,cpu_num,node_num,submit_time,duration\n"
                        "\"a, b\",\"one\",2,4,1,0,60\n"
                        "\"says \"\"c, d\"\"\" , two ,\"1\",4,1,5,\"60\"\n"
                        "\"\",\"th\"\"ree\",1,4,1,6,60\n";
    if (foreign_parse("x", span_of(text), &o, &t, &result, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(t.n_jobs, 3);
    assert_string_equal(t.jobs[0].id, "one");
    assert_int_equal(t.jobs[0].fixed, 2);
    assert_string_equal(t.jobs[1].id, "two");
    assert_true(t.jobs[1].duration_s == 60);
    assert_string_equal(t.jobs[2].id, "th\"\"ree");
    /* A quote without its end is text. */
    const char open[] = HELIOS "\"a,1,4,1,0,60\n";
    trace_done(&t);
    t = (struct trace){ 0 };
    if (foreign_parse("x", span_of(open), &o, &t, &result, &e) < 0)
        fail_msg("%s", e.msg);
    assert_string_equal(t.jobs[0].id, "\"a");
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *format, *columns, *sentence;
    } cases[] = {
        { "", NULL, NULL, "x: it is empty" },
        { "a,b\n1,2\n", NULL, NULL, "x:1: the columns are not those of a known trace" },
        { HELIOS "1,1,1,1,0,60\n", "pai", NULL, "x:1: the columns are not those of pai" },
        { HELIOS, "slurm", NULL,
          "there is no format 'slurm'; the formats are helios, pai, philly" },
        { HELIOS "1,1,1,1,0,60\n2,x,1,1,0,60\n", NULL, NULL, "x:3: gpus: 'x' is not a number" },
        { HELIOS "1,-1,1,1,0,60\n", NULL, NULL, "x:2: gpus: -1 is outside of 0 to" },
        { HELIOS "1,1,1,1,2020-13-01 00:00:00,60\n", NULL, NULL,
          "x:2: submit: '2020-13-01 00:00:00' is not a number" },
        { HELIOS "1,1,1,1,2020-12-01 25:00:00,60\n", NULL, NULL,
          "x:2: submit: '2020-12-01 25:00:00' is not a time like 2020-06-09 18:41:01" },
        { HELIOS "1,1\n", NULL, NULL, "x:2: the line has only 2 fields" },
        { HELIOS "1,1,1,1,0,0\n", NULL, NULL, "x: no job in it has run to its end" },
        { HELIOS ",1,1,1,0,9\n", NULL, NULL, "x:2: id: must have 1 to 200 bytes" },
        { "a,b\n1,2\n", NULL, "submit=a,gpus=c", "x:1: there is no column 'c'" },
        { "a,b\n1,2\n", NULL, "submit=a,cards=b", "--columns: 'cards=b' is not MEANING=COLUMN" },
        { "a,b\n1,2\n", NULL, "submit=a", "x: no column says what a job demands" },
        { "a,b\n1,2\n", NULL, "memory_mib=a,memory_gib=b", "x: two columns for 'memory_mib'" },
        { "{}", NULL, NULL, "x: must be a list of jobs" },
        { "[{\"jobid\": \"a\", \"submitted_time\": \"later\", \"attempts\": []}]", NULL, NULL,
          "x: [0]: submitted_time: 'later' is not a number" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(trace_done) struct trace t = { 0 };
        struct foreign_options o = { .format = cases[i].format, .columns = cases[i].columns };
        struct foreign_result result;
        struct err e = { 0 };
        int rc = foreign_parse("x", span_of(cases[i].text), &o, &t, &result, &e);
        if (rc != -EINVAL || strncmp(e.msg, cases[i].sentence, strlen(cases[i].sentence)) != 0)
            fail_msg("case %zu: %d '%s', not '%s'", i, rc, e.msg, cases[i].sentence);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_files),
        cmocka_unit_test(elastic),
        cmocka_unit_test(fields_in_quotes),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
