/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "simulate/trace_int.h"

enum {
    TRACE_MEMORY_MAX = 1 << 30,
    FIELDS_MAX = PART_TYPES_MAX + 8,
    WORDS_MAX = 2 + TRACE_LEVELS_MAX
};

struct reader {
    const char *what;
    unsigned line;
    struct trace *t;
    VEC(struct part_amount) nodes;
    VEC(struct trace_job) jobs;
    struct map ids; /* of the jobs */
    bool header;    /* the line with the names of the columns was there */
    struct err *e;
};

static int no_memory(const struct reader *r)
{
    return err_set(r->e, ENOMEM, "%s: cannot read it: %m", r->what);
}

/* Put the name of the text and the line number, if there is one, in front of the error. */
static int at_line(const struct reader *r, int rc)
{
    if (rc < 0 && r->line == 0)
        return err_wrap(r->e, rc, "%s", r->what);
    return rc < 0 ? err_wrap(r->e, rc, "%s:%u", r->what, r->line) : rc;
}

static int read_int(const struct reader *r, struct span s, const char *name, int64_t min,
                    int64_t max, int64_t *out)
{
    return at_line(r, str_i64(s, min, max, name, out, r->e));
}

/* A decimal number; strtod() alone would accept "inf", "nan" and hexadecimal ones. */
int trace_real(struct span s, const char *name, double min, double max, double *out, struct err *e)
{
    char text[64], *end;
    bool plain = s.len > 0 && s.len < sizeof text;
    for (size_t i = 0; i < s.len && plain; i++)
        plain = strchr("0123456789.eE+-", s.p[i]) != NULL && s.p[i] != '\0';
    if (!plain)
        return err_set(e, EINVAL, "%s: '%.*s' is not a number", name, (int)MIN(s.len, (size_t)40),
                       s.p);
    memcpy(text, s.p, s.len);
    text[s.len] = '\0';
    double v = strtod(text, &end);
    if (*end != '\0' || end == text)
        return err_set(e, EINVAL, "%s: '%s' is not a number", name, text);
    if (!(v >= min && v <= max))
        return err_set(e, EINVAL, "%s: %s is outside of %g to %g", name, text, min, max);
    *out = v;
    return 0;
}

static int read_real(const struct reader *r, struct span s, const char *name, double min,
                     double max, double *out)
{
    return at_line(r, trace_real(s, name, min, max, out, r->e));
}

/* Split a line at blanks. Returns the number of words; max + 1 if there are more than `max`. */
static size_t split_words(struct span s, struct span *words, size_t max)
{
    struct span rest = span_trim(s), word;
    size_t n = 0;
    while (span_split(&rest, ' ', &word)) {
        if (word.len == 0)
            continue;
        if (n == max)
            return max + 1;
        words[n++] = word;
    }
    return n;
}

/* ---- lines with a setting ---- */

static int need_types(const struct reader *r)
{
    if (r->t->cluster.n_types > 0)
        return 0;
    return at_line(r, err_set(r->e, EINVAL, "a line '# resources' must come first"));
}

static int read_types(struct reader *r, const struct span *words, size_t n)
{
    struct part_cluster *c = &r->t->cluster;
    if (n == 0 || n > PART_TYPES_MAX)
        return at_line(r,
                       err_set(r->e, EINVAL, "resources: there must be 1 to %d", PART_TYPES_MAX));
    if (c->n_types > 0)
        return at_line(r, err_set(r->e, EINVAL, "resources: an earlier line has them"));
    const char **types = arena_alloc(&r->t->arena, n * sizeof *types);
    if (!types)
        return no_memory(r);
    for (size_t k = 0; k < n; k++) {
        types[k] = arena_dup(&r->t->arena, words[k].p, words[k].len);
        if (!types[k])
            return no_memory(r);
        if (span_has_control(words[k]) || words[k].len > 40)
            return at_line(r, err_set(r->e, EINVAL, "resources: a name has 1 to 40 bytes"));
    }
    c->types = types;
    c->n_types = (uint32_t)n;
    return 0;
}

static int add_nodes(struct reader *r, struct span count, const struct span *amounts, size_t n)
{
    struct part_amount capacity = { 0 };
    int64_t copies = 0;
    int rc = need_types(r);
    if (rc == 0 && n != r->t->cluster.n_types)
        rc =
            at_line(r, err_set(r->e, EINVAL, "nodes: there must be a count and %" PRIu32 " amounts",
                               r->t->cluster.n_types));
    if (rc == 0)
        rc = read_int(r, count, "count of nodes", 1, PART_NODES_MAX, &copies);
    for (size_t k = 0; k < n && rc == 0; k++)
        rc = read_int(r, amounts[k], r->t->cluster.types[k], 0, PART_AMOUNT_MAX, &capacity.v[k]);
    if (rc == 0 && r->nodes.n + (size_t)copies > PART_NODES_MAX)
        rc = at_line(r, err_set(r->e, EINVAL, "there are more than %d nodes", PART_NODES_MAX));
    if (rc == 0 && vec_reserve(&r->nodes, r->nodes.n + (size_t)copies) < 0)
        rc = no_memory(r);
    for (; rc == 0 && copies > 0; copies--)
        r->nodes.v[r->nodes.n++] = capacity;
    return rc;
}

static int read_levels(struct reader *r, const struct span *words, size_t n)
{
    if (n > TRACE_LEVELS_MAX)
        return at_line(
            r, err_set(r->e, EINVAL, "las: there are more than %d levels", TRACE_LEVELS_MAX));
    for (size_t v = 0; v < n; v++) {
        double *level = &r->t->levels[v];
        int rc = read_real(r, words[v], "las", 0, SECONDS_MAX, level);
        if (rc == 0 && v > 0 && *level <= level[-1])
            rc = at_line(r, err_set(r->e, EINVAL, "las: the levels do not rise"));
        if (rc < 0)
            return rc;
    }
    r->t->n_levels = (uint32_t)n;
    return 0;
}

/* Settings of one number. Other names are comments. */
static int read_number(struct reader *r, struct span name, const struct span *words, size_t n)
{
    const struct {
        const char *name;
        double *out;
        double min;
    } numbers[] = {
        { "resize_s", &r->t->resize_s, 0 },   { "interval_s", &r->t->interval_s, 0 },
        { "payback_s", &r->t->payback_s, 0 }, { "repack", &r->t->repack, 0 },
        { "horizon_s", &r->t->horizon_s, 1 },
    };
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        if (!span_eqs(name, numbers[i].name))
            continue;
        if (n != 1)
            return at_line(r,
                           err_set(r->e, EINVAL, "%s: needs exactly one number", numbers[i].name));
        return read_real(r, words[0], numbers[i].name, numbers[i].min, SECONDS_MAX, numbers[i].out);
    }
    return 0;
}

static int read_setting(struct reader *r, struct span line)
{
    struct span words[WORDS_MAX];
    line.p++;
    line.len--;
    size_t n = split_words(line, words, WORDS_MAX);
    if (n == 0)
        return 0;
    struct span name = words[0];
    n--;
    if (span_eqs(name, "resources"))
        return read_types(r, words + 1, n);
    if (span_eqs(name, "nodes") && n == 0)
        return at_line(r, err_set(r->e, EINVAL, "nodes: there must be a count and amounts"));
    if (span_eqs(name, "nodes"))
        return add_nodes(r, words[1], words + 2, n - 1);
    if (span_eqs(name, "las"))
        return read_levels(r, words + 1, n);
    if (span_eqs(name, "theta") && n != 2)
        return at_line(r, err_set(r->e, EINVAL, "theta: needs exactly two numbers"));
    if (span_eqs(name, "theta")) {
        int rc = read_real(r, words[1], "theta", 0, 1, &r->t->theta1);
        return rc < 0 ? rc : read_real(r, words[2], "theta", 0, 1, &r->t->theta2);
    }
    return n > WORDS_MAX - 1 ? 0 : read_number(r, name, words + 1, n);
}

/* ---- lines with a job ---- */

static int check_header(struct reader *r, const struct span *fields, size_t n)
{
    uint32_t n_types = r->t->cluster.n_types;
    static const char *const after[] = {
        "weight", "min", "max", "static", "duration_s", "exponent"
    };
    bool right = n == n_types + 8 && span_eqs(fields[0], "id") && span_eqs(fields[1], "arrival_s");
    for (uint32_t k = 0; k < n_types && right; k++)
        right = span_eqs(fields[2 + k], r->t->cluster.types[k]);
    for (size_t i = 0; i < ARRAY_LEN(after) && right; i++)
        right = span_eqs(fields[2 + n_types + i], after[i]);
    r->header = true;
    if (right)
        return 0;
    return at_line(r, err_set(r->e, EINVAL,
                              "the columns must be id,arrival_s,<resources>,weight,min,max,static,"
                              "duration_s,exponent"));
}

static int read_counts(struct reader *r, const struct span *fields, struct trace_job *job)
{
    int64_t v[4];
    int rc = read_int(r, fields[0], "weight", 1, PART_WEIGHT_MAX, &v[0]);
    if (rc == 0)
        rc = read_int(r, fields[1], "min", 1, PART_CONTAINERS_MAX, &v[1]);
    if (rc == 0)
        rc = read_int(r, fields[2], "max", v[1], PART_CONTAINERS_MAX, &v[2]);
    if (rc == 0)
        rc = read_int(r, fields[3], "static", v[1], v[2], &v[3]);
    if (rc < 0)
        return rc;
    job->weight = (uint32_t)v[0];
    job->min = (uint32_t)v[1];
    job->max = (uint32_t)v[2];
    job->fixed = (uint32_t)v[3];
    return 0;
}

static int read_job(struct reader *r, const struct span *fields, size_t n)
{
    uint32_t n_types = r->t->cluster.n_types;
    struct trace_job job = { 0 };
    int64_t any = 0;
    if (n != n_types + 8)
        return at_line(r, err_set(r->e, EINVAL, "the line has %zu fields, but needs %" PRIu32, n,
                                  n_types + 8));
    if (fields[0].len == 0 || fields[0].len > 200 || span_has_control(fields[0]) ||
        !span_utf8(fields[0], NULL))
        return at_line(r, err_set(r->e, EINVAL, "id: must have 1 to 200 bytes of text"));
    if (r->jobs.n == TRACE_JOBS_MAX)
        return at_line(r, err_set(r->e, EINVAL, "there are more than %d jobs", TRACE_JOBS_MAX));
    double earliest = r->jobs.n > 0 ? r->jobs.v[r->jobs.n - 1].arrival_s : 0;
    int rc = read_real(r, fields[1], "arrival_s", 0, SECONDS_MAX, &job.arrival_s);
    if (rc == 0 && job.arrival_s < earliest)
        rc = at_line(r, err_set(r->e, EINVAL, "arrival_s: the job arrives before the one above"));
    for (uint32_t k = 0; k < n_types && rc == 0; k++) {
        rc = read_int(r, fields[2 + k], r->t->cluster.types[k], 0, PART_AMOUNT_MAX,
                      &job.demand.v[k]);
        any |= job.demand.v[k];
    }
    if (rc == 0 && any == 0)
        rc = at_line(r, err_set(r->e, EINVAL, "the job demands nothing"));
    if (rc == 0)
        rc = read_counts(r, &fields[2 + n_types], &job);
    if (rc == 0)
        rc = read_real(r, fields[6 + n_types], "duration_s", 1e-3, SECONDS_MAX, &job.duration_s);
    if (rc == 0)
        rc = read_real(r, fields[7 + n_types], "exponent", 0.01, 2, &job.exponent);
    if (rc < 0)
        return rc;
    job.id = arena_dup(&r->t->arena, fields[0].p, fields[0].len);
    if (!job.id)
        return no_memory(r);
    if (map_has(&r->ids, job.id))
        return at_line(r, err_set(r->e, EINVAL, "id: '%s' is the id of an earlier job", job.id));
    return map_set(&r->ids, job.id, r, NULL) < 0 || vec_push(&r->jobs, job) < 0 ? no_memory(r) : 0;
}

static int read_line(struct reader *r, struct span line)
{
    struct span fields[FIELDS_MAX + 1], field, rest = line;
    size_t n = 0;
    if (line.len == 0)
        return 0;
    if (line.p[0] == '#')
        return read_setting(r, line);
    int rc = need_types(r);
    if (rc < 0)
        return rc;
    while (n <= FIELDS_MAX && span_split(&rest, ',', &field))
        fields[n++] = span_trim(field);
    return r->header ? read_job(r, fields, n) : check_header(r, fields, n);
}

/* ---- a trace ---- */

/* Move the nodes and jobs into the arena. */
static int settle(struct reader *r)
{
    struct trace *t = r->t;
    if (t->cluster.n_types == 0 || r->nodes.n == 0)
        return err_set(r->e, EINVAL, "%s: it has no line '# %s'", r->what,
                       t->cluster.n_types == 0 ? "resources" : "nodes");
    if (!r->header)
        return err_set(r->e, EINVAL, "%s: it has no line with the names of the columns", r->what);
    struct part_amount *nodes = arena_alloc(&t->arena, r->nodes.n * sizeof *nodes);
    t->jobs = arena_alloc(&t->arena, (r->jobs.n + 1) * sizeof *t->jobs);
    if (!nodes || !t->jobs)
        return no_memory(r);
    memcpy(nodes, r->nodes.v, r->nodes.n * sizeof *nodes);
    if (r->jobs.n > 0)
        memcpy(t->jobs, r->jobs.v, r->jobs.n * sizeof *t->jobs);
    t->cluster.nodes = nodes;
    t->cluster.n_nodes = (uint32_t)r->nodes.n;
    t->n_jobs = r->jobs.n;
    return 0;
}

int trace_parse(const char *what, struct span text, struct trace *out, struct err *e)
{
    struct err ignored;
    struct reader r = { .what = what, .t = out, .e = e ? e : &ignored };
    struct span rest = text, line;
    int rc = 0;
    *out = (struct trace){ .horizon_s = 86400,
                           .theta1 = part_defaults.theta1,
                           .theta2 = part_defaults.theta2,
                           .arena = { .max = TRACE_MEMORY_MAX } };
    while (rc == 0 && span_split(&rest, '\n', &line)) {
        r.line++;
        rc = read_line(&r, span_trim(line));
    }
    if (rc == 0)
        rc = settle(&r);
    vec_done(&r.nodes);
    vec_done(&r.jobs);
    map_done(&r.ids, NULL);
    return rc;
}

int trace_set_nodes(struct trace *t, struct span list, struct err *e)
{
    struct err ignored;
    struct reader r = { .what = "--nodes", .t = t, .e = e ? e : &ignored };
    struct span rest = list, group, amount;
    int rc = 0;
    while (rc == 0 && span_split(&rest, ' ', &group)) {
        struct span amounts[PART_TYPES_MAX + 1];
        size_t n = 0;
        const char *x = group.len ? memchr(group.p, 'x', group.len) : NULL;
        if (group.len == 0)
            continue; /* between two blanks, or at an end of the list */
        if (!x) {
            rc = at_line(&r, err_set(r.e, EINVAL, "'%.*s' is not COUNTxAMOUNT,AMOUNT,..",
                                     (int)MIN(group.len, (size_t)60), group.p));
            break;
        }
        struct span count = span_mem(group.p, (size_t)(x - group.p));
        struct span tail = span_mem(x + 1, group.len - count.len - 1);
        while (n <= PART_TYPES_MAX && span_split(&tail, ',', &amount))
            amounts[n++] = amount;
        rc = add_nodes(&r, count, amounts, n);
    }
    struct part_amount *nodes = NULL;
    if (rc == 0 && r.nodes.n == 0)
        rc = at_line(&r, err_set(r.e, EINVAL, "the list has no COUNTxAMOUNT,AMOUNT,.."));
    if (rc == 0 && !(nodes = arena_alloc(&t->arena, r.nodes.n * sizeof *nodes)))
        rc = no_memory(&r);
    if (rc == 0) {
        memcpy(nodes, r.nodes.v, r.nodes.n * sizeof *nodes);
        t->cluster.nodes = nodes;
        t->cluster.n_nodes = (uint32_t)r.nodes.n;
    }
    vec_done(&r.nodes);
    return rc;
}

static void write_nodes(const struct part_cluster *c, struct buf *out)
{
    for (uint32_t j = 0; j < c->n_nodes;) {
        uint32_t first = j;
        size_t size = c->n_types * sizeof c->nodes[j].v[0];
        while (j < c->n_nodes && memcmp(c->nodes[j].v, c->nodes[first].v, size) == 0)
            j++;
        (void)buf_addf(out, "# nodes %" PRIu32, j - first);
        for (uint32_t k = 0; k < c->n_types; k++)
            (void)buf_addf(out, " %" PRId64, c->nodes[first].v[k]);
        (void)buf_adds(out, "\n");
    }
}

/* The shortest of two texts that is read as the same number. */
static void write_real(const char *before, double v, struct buf *out)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", v);
    if (strtod(text, NULL) != v)
        snprintf(text, sizeof text, "%.17g", v);
    (void)buf_addf(out, "%s%s", before, text);
}

static void write_settings(const struct trace *t, struct buf *out)
{
    write_real("# resize_s ", t->resize_s, out);
    write_real("\n# interval_s ", t->interval_s, out);
    if (t->payback_s > 0)
        write_real("\n# payback_s ", t->payback_s, out);
    if (t->repack > 0)
        write_real("\n# repack ", t->repack, out);
    write_real("\n# horizon_s ", t->horizon_s, out);
    write_real("\n# theta ", t->theta1, out);
    write_real(" ", t->theta2, out);
    for (uint32_t v = 0; v < t->n_levels; v++)
        write_real(v == 0 ? "\n# las " : " ", t->levels[v], out);
    (void)buf_adds(out, "\n");
}

int trace_write(const struct trace *t, struct buf *out)
{
    const struct part_cluster *c = &t->cluster;
    (void)buf_adds(out, "# resources");
    for (uint32_t k = 0; k < c->n_types; k++)
        (void)buf_addf(out, " %s", c->types[k]);
    (void)buf_adds(out, "\n");
    write_nodes(c, out);
    write_settings(t, out);
    (void)buf_adds(out, "id,arrival_s");
    for (uint32_t k = 0; k < c->n_types; k++)
        (void)buf_addf(out, ",%s", c->types[k]);
    (void)buf_adds(out, ",weight,min,max,static,duration_s,exponent\n");
    for (size_t i = 0; i < t->n_jobs; i++) {
        const struct trace_job *job = &t->jobs[i];
        (void)buf_adds(out, job->id);
        write_real(",", job->arrival_s, out);
        for (uint32_t k = 0; k < c->n_types; k++)
            (void)buf_addf(out, ",%" PRId64, job->demand.v[k]);
        (void)buf_addf(out, ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32, job->weight, job->min,
                       job->max, job->fixed);
        write_real(",", job->duration_s, out);
        write_real(",", job->exponent, out);
        (void)buf_adds(out, "\n");
    }
    return out->failed ? -ENOMEM : 0;
}

void trace_done(struct trace *t)
{
    arena_done(&t->arena);
    *t = (struct trace){ 0 };
}
