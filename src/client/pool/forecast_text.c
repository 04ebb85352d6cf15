/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the expected starts of waiting jobs. */
#include <stdio.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/pool/forecast_int.h"
#include "client/show/names.h"

/* "4 m 10 s" or "9.0 s", without fractions of a second; below a second: "0 ms". */
static const char *span_text(int64_t ms, char *out, size_t n)
{
    return str_duration(ms - ms % 1000, out, n);
}

/* Append "progress of 2 jobs", with `text` before it. */
static void add_basis(struct buf *out, const json_t *rests, const char *key, const char *text,
                      bool *any)
{
    int64_t n = doc_int(rests, key, 0);
    if (n == 0)
        return;
    (void)buf_addf(out, "%s%s of %lld job%s", *any ? ", " : "; by ", text, (long long)n,
                   n == 1 ? "" : "s");
    *any = true;
}

static void add_rests(struct buf *out, const json_t *expected)
{
    const json_t *rests = json_object_get(expected, "rests_on");
    bool any = false;
    add_basis(out, rests, "progress", "the progress", &any);
    add_basis(out, rests, "history", "earlier runs", &any);
    add_basis(out, rests, "limit", "the time limit", &any);
    if (doc_str(rests, "unknown_id")[0])
        (void)buf_addf(
            out,
            "; it is unknown when %s ends: no progress of it is known, and it has no time limit",
            doc_str(rests, "unknown_id"));
}

static void add_times(struct buf *out, const json_t *x)
{
    int64_t early = doc_int(x, "early_ms", 0), likely = doc_int(x, "likely_ms", -1);
    int64_t late = doc_int(x, "late_ms", -1);
    char a[32], b[32], l[32];
    (void)span_text(early, a, sizeof a);
    (void)span_text(late, b, sizeof b);
    (void)span_text(likely, l, sizeof l);
    const json_t *shrinks = json_object_get(x, "shrinks"); /* NULL: it is in the queue already */
    if (late == 0 && json_array_size(shrinks) > 0)
        (void)buf_adds(out, "when the jobs below have become smaller");
    else if (late == 0 && !shrinks) /* perhaps jobs have to shrink first */
        (void)buf_adds(out, "by the pool's next decision");
    else if (late == 0)
        (void)buf_adds(out, "at once");
    else if (late > 0 && early < 1000)
        (void)buf_addf(out, "in at most %s", b);
    else if (late > 0 && str_eq(a, b))
        (void)buf_addf(out, "in %s", a);
    else if (late > 0)
        (void)buf_addf(out, "in %s to %s", a, b);
    else if (early >= 1000)
        (void)buf_addf(out, "not before %s from now", a);
    else
        (void)buf_adds(out, likely >= 1000 ? "at any time" : "unknown");
    if (likely >= 1000 && !str_eq(a, b))
        (void)buf_addf(out, ", likely in %s", l);
    if (json_is_true(json_object_get(x, "if_shrunk")))
        (void)buf_adds(out, " if other jobs become smaller in time");
}

static bool is_never(const json_t *expected)
{
    return json_is_true(json_object_get(expected, "never"));
}

bool forecast_times(const json_t *waiting, struct buf *out)
{
    const json_t *x = json_object_get(waiting, "expected");
    if (!json_is_object(x))
        return false;
    if (is_never(x))
        (void)buf_adds(out, "never: it does not fit into the empty machine");
    else
        add_times(out, x);
    return true;
}

bool forecast_text(const json_t *waiting, struct buf *out)
{
    const json_t *x = json_object_get(waiting, "expected");
    bool known = forecast_times(waiting, out);
    if (known && !is_never(x) && doc_int(x, "late_ms", -1) != 0)
        add_rests(out, x);
    return known;
}

bool forecast_missing(const json_t *waiting, struct buf *out)
{
    const json_t *x = json_object_get(waiting, "expected"), *m = json_object_get(x, "missing");
    int64_t memory = doc_int(m, "memory_mib", 0), gpus = doc_int(m, "gpus", 0);
    char size[32];
    if (is_never(x))
        return false; /* no job that ends or shrinks would help */
    if (memory > 0)
        (void)buf_adds(out, str_size((uint64_t)memory << 20, size, sizeof size));
    if (gpus > 0)
        (void)buf_addf(out, "%s%lld GPU%s", memory > 0 ? " and " : "", (long long)gpus,
                       gpus == 1 ? "" : "s");
    if ((memory > 0 || gpus > 0) && doc_str(x, "holder")[0])
        (void)buf_addf(out, "; %s holds most", doc_str(x, "holder"));
    return memory > 0 || gpus > 0;
}

/* "  lacks ..." and "  start ..." */
static void print_lines(const json_t *expected, const char *indent)
{
    json_t *w = json_pack("{s:O}", "expected", expected);
    AUTO(buf_done) struct buf start = { 0 };
    AUTO(buf_done) struct buf lacks = { 0 };
    if (doc_int(expected, "late_ms", -1) != 0 && forecast_missing(w, &lacks))
        (void)printf("%slacks: %s\n", indent, buf_cstr(&lacks));
    if (forecast_text(w, &start))
        (void)printf("%sexpected start: %s\n", indent, buf_cstr(&start));
    json_decref(w);
}

static void print_size(const json_t *containers)
{
    int64_t n = doc_int(containers, "start", 0);
    if (n > 0)
        (void)printf("  size at its start: %lld container%s, of %lld to %lld\n", (long long)n,
                     n == 1 ? "" : "s", (long long)doc_int(containers, "min", 0),
                     (long long)doc_int(containers, "max", 0));
}

void forecast_print_plan(struct client *c, const json_t *when)
{
    size_t i;
    json_t *job;
    if (doc_str(when, "unknown")[0]) {
        (void)printf("\nWhen it would start is unknown: %s.\n", doc_str(when, "unknown"));
        return;
    }
    (void)printf("\nIf it were submitted now, under the policy '%s':\n", doc_str(when, "policy"));
    print_lines(when, "  ");
    print_size(json_object_get(when, "containers"));
    json_array_foreach(json_object_get(when, "shrinks"), i, job)
    {
        (void)printf("  %s would shrink from %lld to %lld containers\n",
                     names_label(c, doc_str(job, "application_id")),
                     (long long)doc_int(job, "from", 0), (long long)doc_int(job, "to", 0));
    }
    json_array_foreach(json_object_get(when, "delays"), i, job)
    {
        char was[32], then[32];
        int64_t before = doc_int(job, "likely_ms", -1), after = doc_int(job, "then_likely_ms", -1);
        (void)printf("  %s would start later", names_label(c, doc_str(job, "application_id")));
        if (before >= 0 && after >= 0)
            (void)printf(": likely in %s, not in %s", span_text(after, then, sizeof then),
                         span_text(before, was, sizeof was));
        (void)printf("\n");
    }
    if (json_array_size(json_object_get(when, "shrinks")) +
            json_array_size(json_object_get(when, "delays")) ==
        0)
        (void)printf("  no other job would shrink or start later\n");
}

void forecast_print_queue(struct client *c, const json_t *waiting)
{
    size_t i;
    json_t *job;
    json_array_foreach(waiting, i, job)
    {
        const json_t *x = json_object_get(job, "expected");
        (void)printf("  %s\n    waits, place %lld in the queue\n",
                     names_label(c, doc_str(job, "application_id")),
                     (long long)doc_int(x, "place", 0));
        print_lines(x, "    ");
    }
}
