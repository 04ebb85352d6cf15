/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decisions of the policy. The pool keeps them in memory for `tony pool why` and `tony why`,
 * and appends them to the file pool/decisions as lines of JSON.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/json.h"
#include "pool/pool_int.h"
#include "pool/sharing.h"

static const char *const verdicts[] = {
    [PART_WAITS] = "waits", [PART_NEVER] = "never",     [PART_STARTS] = "starts",
    [PART_KEEPS] = "keeps", [PART_CHANGES] = "changes", [PART_STOPS] = "stops",
};

static const struct sharing_record *last(const struct pool *p)
{
    const struct sharing *y = &p->sharing;
    return y->records.n ? &y->records.v[y->records.n - 1] : NULL;
}

static const struct sharing_result *result_in(const struct sharing_record *r, const char *id,
                                              bool extension)
{
    for (size_t i = 0; r && i < r->n; i++)
        if (r->jobs[i].extension == extension && str_eq(r->jobs[i].id, id))
            return &r->jobs[i];
    return NULL;
}

const struct sharing_result *sharing_last_result(const struct pool *p, const char *id,
                                                 bool extension)
{
    return sharing_divides(p) ? result_in(last(p), id, extension) : NULL;
}

/* ---- as JSON ---- */

static void add_str(struct buf *out, const char *key, const char *value)
{
    (void)buf_addf(out, "\"%s\":", key);
    (void)json_add_str(out, span_of(value)); /* the callers look at out->failed */
}

static void add_real(struct buf *out, const char *key, double v)
{
    if (isfinite(v))
        (void)buf_addf(out, "\"%s\":%.6g,", key, v);
}

/* The sentence about the job. If its start is decided, and other jobs have to shrink before, it
 * names one of them: it may take long until that job has saved a checkpoint. */
static void add_why(const struct pool *p, const struct sharing_result *w, struct buf *out)
{
    bool starts = w->target.verdict == PART_STARTS && !w->extension;
    const struct pool_job *j = starts ? pool_job_find(p, w->id) : NULL, *by = NULL;
    int64_t within_ms = 0;
    int n = j ? sharing_start_waits(j, &within_ms, &by) : -1;
    AUTO(buf_done) struct buf text = { 0 };
    char limit[32], more[32] = "";
    (void)buf_adds(&text, w->target.why);
    if (n > 1)
        (void)snprintf(more, sizeof more, " and %d more", n - 1);
    if (n > 0)
        (void)buf_addf(&text, "; it waits until job '%s'%s %s become smaller, %s at most", by->id,
                       more, n > 1 ? "have" : "has", str_duration(within_ms, limit, sizeof limit));
    add_str(out, "why", buf_cstr(&text));
}

static void add_result(const struct pool *p, const struct sharing_result *w, struct buf *out)
{
    const struct part_target *t = &w->target;
    (void)buf_addc(out, '{');
    add_str(out, "application_id", w->id);
    (void)buf_addc(out, ',');
    add_str(out, "name", w->name);
    (void)buf_addf(
        out,
        ",\"extension\":%s,\"elastic\":%s,\"verdict\":\"%s\",\"had\":%u,\"containers\":%u,"
        "\"fair\":%u,\"since_ms\":%lld,",
        w->extension ? "true" : "false", w->elastic ? "true" : "false", verdicts[t->verdict],
        w->had, t->n, t->ideal, (long long)w->since_wall_ms);
    add_why(p, w, out);
    (void)buf_addc(out, ',');
    /* Nothing changes a job of fixed size that has its containers. */
    bool is_settled = !w->elastic && t->n > 0 && w->pin == SHARE_FREE;
    add_str(out, "would_change", is_settled ? "" : share_hint(t->verdict, t->because, w->pin));
    (void)buf_addc(out, '}');
}

static void add_record(const struct pool *p, const struct sharing_record *r, const char *id,
                       struct buf *out)
{
    const struct part_metrics *m = &r->metrics;
    const char *sep = "";
    (void)buf_addf(out, "{\"number\":%llu,\"at_ms\":%lld,\"took_ms\":%lld,\"policy\":\"%s\",",
                   (unsigned long long)r->number, (long long)r->wall_ms, (long long)r->took_ms,
                   r->policy);
    add_real(out, "utilization", m->utilization);
    add_real(out, "loss", m->loss);
    add_real(out, "loss_bound", m->loss_bound);
    add_real(out, "upper_bound", m->upper_bound);
    add_real(out, "gap", part_gap(m));
    (void)buf_addf(out, "\"adjusted\":%u,\"admitted\":%u,\"relaxed\":%s,\"jobs\":[", m->adjusted,
                   m->admitted, m->relaxed ? "true" : "false");
    for (size_t i = 0; i < r->n; i++) {
        if (id[0] && !str_eq(r->jobs[i].id, id))
            continue;
        (void)buf_adds(out, sep);
        add_result(p, &r->jobs[i], out);
        sep = ",";
    }
    (void)buf_adds(out, "]}");
}

int sharing_report(const struct pool *p, const char *id, struct buf *out)
{
    const struct sharing_record *r = last(p);
    (void)buf_addf(out, "{\"policy\":\"%s\",\"now_ms\":%lld,\"decision\":", sharing_name(p),
                   (long long)clock_wall_ms());
    if (r && sharing_divides(p))
        add_record(p, r, id, out);
    else
        (void)buf_adds(out, "null");
    (void)buf_addc(out, '}');
    return out->failed ? -ENOMEM : 0;
}

void sharing_add_result(const struct pool *p, const char *id, struct buf *out)
{
    const struct sharing_result *w = sharing_last_result(p, id, false);
    const struct sharing_record *r = last(p);
    if (!w)
        return;
    (void)buf_addf(out, ",\"policy\":{\"name\":\"%s\",\"decision\":%llu,\"word\":", r->policy,
                   (unsigned long long)r->number);
    add_result(p, w, out);
    (void)buf_addc(out, '}');
}

/* Append "; X starts, Y grows" for the jobs that get more by this decision. */
static void add_receivers(const struct sharing_record *r, struct buf *out)
{
    enum { SHOWN = 2 };
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) {
        const struct sharing_result *x = &r->jobs[i];
        bool starts = x->target.verdict == PART_STARTS;
        if (!starts && (x->target.verdict != PART_CHANGES || x->target.n <= x->had))
            continue;
        if (n++ < SHOWN)
            (void)buf_addf(out, "%s%s %s", n == 1 ? "; " : ", ", x->id,
                           starts ? "starts" : "grows");
    }
    if (n > SHOWN)
        (void)buf_addf(out, " and %zu more", n - SHOWN);
}

void sharing_reason(const struct pool *p, const struct sharing_result *w, char *out, size_t n)
{
    const struct sharing_record *r = last(p);
    AUTO(buf_done) struct buf text = { 0 };
    (void)buf_addf(&text, "the pool's policy '%s', decision %llu: %s", sharing_name(p),
                   (unsigned long long)(r ? r->number : 0), w->target.why);
    if (r && w->target.n < w->had)
        add_receivers(r, &text);
    (void)str_copy(out, n, buf_cstr(&text)); /* if it is too long, it is cut */
}

/* ---- keeping ---- */

/* The highest number of a decision in the file; 0 = there is none. If the disk was full, the number
 * in a line may be cut off and so too small: then that of another line is higher. out: the decision
 * with this number; NULL = it cannot be read. */
static uint64_t highest_number_in(const char *path, json_t **out)
{
    static const char head[] = "{\"number\":";
    AUTO(buf_done) struct buf text = { .max = SHARING_FILE_READ_MAX };
    uint64_t number = 0;
    struct span rest, line, newest = { 0 };
    struct err ignored = { 0 };

    if (!path || fs_read(AT_FDCWD, path, &text, NULL) < 0)
        return 0;
    rest = buf_span(&text);
    while (span_split(&rest, '\n', &line))
        if (span_starts(line, head)) {
            uint64_t n = strtoull(line.p + strlen(head), NULL, 10);
            newest = n >= number ? line : newest;
            number = MAX(number, n);
        }
    if (newest.len)
        (void)json_parse(path, newest, out, &ignored);
    return number;
}

void sharing_why_init(struct pool *p)
{
    AUTO(free_p) char *path = fs_join(p->paths.pool, "decisions");
    AUTO(free_p) char *old = fs_join(p->paths.pool, "decisions.1");
    json_t **before = &p->sharing.before;
    uint64_t number = highest_number_in(path, before);

    p->sharing.number = number ? number : highest_number_in(old, before);
}

static void append(const struct pool *p, const struct sharing_record *r)
{
    AUTO(buf_done) struct buf line = { 0 };
    AUTO(free_p) char *path = fs_join(p->paths.pool, "decisions");
    AUTO(free_p) char *old = fs_join(p->paths.pool, "decisions.1");
    struct stat st;
    add_record(p, r, "", &line);
    (void)buf_addc(&line, '\n');
    if (!path || !old || line.failed) {
        log_event(LOG_WARN, "pool.no_memory", f_str("for", "pool/decisions"));
        return;
    }
    if (stat(path, &st) == 0 && st.st_size > SHARING_FILE_MAX)
        (void)rename(path, old); /* if this fails, the file continues to grow */
    AUTO(close_p)
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = fd == -1 ? -errno : fs_write_all(fd, line.p, line.len);
    if (rc < 0)
        log_event(LOG_WARN, "policy.decisions", f_str("file", path), f_int("rc", rc));
}

static void record_done(struct sharing_record *r)
{
    free(r->jobs);
}

/* Is it the same result for the job: the same number of containers, and if it waits, for the same
 * reason? */
static bool same_result(const struct sharing_result *a, const struct sharing_result *b)
{
    bool waits = a->target.n == 0;
    return a->target.n == b->target.n && (!waits || a->target.because == b->target.because);
}

/* The time since which the job has had the same result, by the last decision of an earlier pool.
 * -1: it had another result. */
static int64_t since_of_earlier_pool(const struct pool *p, const struct sharing_result *w)
{
    const json_t *jobs = json_object_get(p->sharing.before, "jobs"), *job;
    size_t i;
    json_array_foreach(jobs, i, job)
    {
        const char *id = json_string_value(json_object_get(job, "application_id"));
        const char *change = json_string_value(json_object_get(job, "would_change"));
        int64_t n = json_integer_value(json_object_get(job, "containers"));
        int64_t since_ms = json_integer_value(json_object_get(job, "since_ms"));
        if (!id || !str_eq(id, w->id) ||
            json_is_true(json_object_get(job, "extension")) != w->extension)
            continue;
        const char *hint = share_hint(w->target.verdict, w->target.because, w->pin);
        bool same = n == w->target.n && (n > 0 || (change && str_eq(change, hint)));
        return same && since_ms > 0 && since_ms <= clock_wall_ms() ? since_ms : -1;
    }
    return -1;
}

/* Set since_wall_ms of each job: the time of the first decision in the last run of equal
 * results. before: NULL = this is the first decision of this pool. */
static void set_since(const struct pool *p, struct sharing_record *r,
                      const struct sharing_record *before)
{
    for (size_t i = 0; i < r->n; i++) {
        struct sharing_result *w = &r->jobs[i];
        const struct sharing_result *old = result_in(before, w->id, w->extension);
        int64_t earlier_ms = before || p->rebooted ? -1 : since_of_earlier_pool(p, w);
        w->since_wall_ms = old && same_result(w, old) ? old->since_wall_ms
                           : earlier_ms > 0           ? earlier_ms
                                                      : r->wall_ms;
    }
}

static void log_record(const struct sharing_record *r)
{
    char used[32], loss[32];
    uint32_t waiting = 0;
    for (size_t i = 0; i < r->n; i++)
        waiting += r->jobs[i].target.n == 0;
    (void)snprintf(used, sizeof used, "%.4f", r->metrics.utilization);
    (void)snprintf(loss, sizeof loss, "%.4f", r->metrics.loss);
    log_event(LOG_INFO, "policy.decided", f_int("number", (int64_t)r->number),
              f_str("policy", r->policy), f_str("utilization", used), f_str("loss", loss),
              f_int("adjusted", r->metrics.adjusted), f_int("started", r->metrics.admitted),
              f_int("jobs", (int64_t)r->n), f_int("waiting", waiting),
              f_int("took_ms", r->took_ms));
}

void sharing_keep(struct pool *p, struct sharing_result *jobs, size_t n,
                  const struct part_metrics *metrics, int64_t took_ms)
{
    struct sharing *y = &p->sharing;
    struct sharing_record r = { .number = ++y->number,
                                .wall_ms = clock_wall_ms(),
                                .took_ms = took_ms,
                                .metrics = *metrics,
                                .jobs = jobs,
                                .n = n };
    (void)str_copy(r.policy, sizeof r.policy, sharing_name(p)); /* all names are short */
    set_since(p, &r, last(p));
    json_decref(TAKE(y->before));
    log_record(&r);
    append(p, &r);
    if (y->records.n >= SHARING_KEPT) {
        record_done(&y->records.v[0]);
        memmove(&y->records.v[0], &y->records.v[1], (y->records.n - 1) * sizeof *y->records.v);
        y->records.n--;
    }
    if (vec_push(&y->records, r) < 0)
        record_done(&r); /* no memory: tony pool why shows an older decision */
}

void sharing_why_done(struct sharing *y)
{
    for (size_t i = 0; i < y->records.n; i++)
        record_done(&y->records.v[i]);
    vec_done(&y->records);
    json_decref(TAKE(y->before));
}
