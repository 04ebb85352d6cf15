/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate/foreign.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "codec/json.h"
#include "simulate/trace_int.h"

enum { TRACE_MEMORY_MAX = 1 << 30, FIELDS_MAX = 256, FIELD_NAME_MAX = 64 };

/* The possible meanings of a column. */
#define ROLES(X)                                                                                   \
    X(ROLE_ID, "id", NULL, 1)                                                                      \
    X(ROLE_SUBMIT, "submit", NULL, 1)                                                              \
    X(ROLE_START, "start", NULL, 1)                                                                \
    X(ROLE_END, "end", NULL, 1)                                                                    \
    X(ROLE_DURATION, "duration", NULL, 1)                                                          \
    X(ROLE_INSTANCES, "instances", NULL, 1)                                                        \
    X(ROLE_NODES, "nodes", NULL, 1)                                                                \
    X(ROLE_CORES, "cores", "cores", 1)                                                             \
    X(ROLE_CORE_PERCENT, "core_percent", "core_percent", 1)                                        \
    X(ROLE_MEMORY_MIB, "memory_mib", "memory_mib", 1)                                              \
    X(ROLE_MEMORY_GIB, "memory_gib", "memory_mib", 1024)                                           \
    X(ROLE_GPUS, "gpus", "gpus", 1)                                                                \
    X(ROLE_GPU_PERCENT, "gpu_percent", "gpu_percent", 1)

enum role {
#define ROLE_ENUM(id, ...) id,
    ROLES(ROLE_ENUM) ROLE_COUNT
};

static const struct {
    const char *name; /* in --columns */
    const char *type; /* of resource */
    double unit;      /* the amount of the type that the number 1 in the column stands for */
} roles[ROLE_COUNT] = {
#define ROLE_ROW(id, name, type, unit) [id] = { name, type, unit },
    ROLES(ROLE_ROW)
};

enum { IS_GPU = 1 << ROLE_GPUS | 1 << ROLE_GPU_PERCENT };

/*
 * The formats. A CSV has a format if its header has all columns named here. PAI's file has no
 * header: it is known by its number of columns. Sources: the README files of
 * S-Lab-System-Group/HeliosData, alibaba/clusterdata (cluster-trace-gpu-v2020) and
 * msr-fiddle/philly-traces.
 */
static const struct format {
    const char *name;
    const char *columns;  /* as in --columns */
    const char *headless; /* the columns of a file without a header; NULL: it has one */
} formats[] = {
    { "helios",
      "id=job_id,submit=submit_time,duration=duration,gpus=gpu_num,cores=cpu_num,nodes=node_num",
      NULL },
    { "pai",
      "id=job_name,submit=start_time,start=start_time,end=end_time,instances=inst_num,"
      "core_percent=plan_cpu,memory_gib=plan_mem,gpu_percent=plan_gpu",
      "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,"
      "gpu_type" },
    { "philly", "id=jobid,submit=submitted_time,start=start_time,end=end_time,gpus=gpus", NULL },
};

const char foreign_formats[] = "helios, pai, philly";

struct reader {
    const char *what;
    unsigned line;
    const struct foreign_options *o;
    struct trace *t;
    struct foreign_result *result;
    struct err *e;
    VEC(struct trace_job) jobs;
    int column[ROLE_COUNT]; /* of each role; -1: none */
    int type[ROLE_COUNT];   /* of each role: index of its type of resource; -1: none */
};

static int no_memory(const struct reader *r)
{
    return err_set(r->e, ENOMEM, "%s: cannot read it: %m", r->what);
}

static int at_line(const struct reader *r, int rc)
{
    return rc < 0 ? err_wrap(r->e, rc, "%s:%u", r->what, r->line) : rc;
}

/* ---- one job */

/* The values of a line. NAN: the line has no value for this. */
struct facts {
    struct span id;
    double v[ROLE_COUNT];
};

/* "2020-06-09 18:41:01", or with a T between, or a number of seconds. Empty, "None" and "null":
 * NAN. Dates are taken as UTC; only their differences count. */
static int read_time(const struct reader *r, struct span s, const char *name, double *out)
{
    char text[32] = { 0 };
    struct tm tm = { 0 };
    *out = NAN;
    if (s.len == 0 || span_eqs(s, "None") || span_eqs(s, "null"))
        return 0;
    if (s.len < sizeof text)
        memcpy(text, s.p, s.len);
    char *end = strptime(text, "%Y-%m-%d", &tm);
    if (!end)
        return trace_real(s, name, 0, SECONDS_MAX, out, r->e);
    if (*end == ' ' || *end == 'T')
        end = strptime(end + 1, "%H:%M:%S", &tm);
    if (!end || *end || tm.tm_year < 0)
        return err_set(r->e, EINVAL, "%s: '%s' is not a time like 2020-06-09 18:41:01", name, text);
    *out = (double)timegm(&tm);
    return 0;
}

/* Amounts per container, rounded up. False: they are all 0. */
static bool set_demand(const struct reader *r, const struct facts *f, double containers,
                       struct part_amount *demand)
{
    bool any = false;
    for (int role = 0; role < ROLE_COUNT; role++) {
        int type = r->type[role];
        if (type < 0 || isnan(f->v[role]))
            continue;
        double amount = ceil(f->v[role] * roles[role].unit / containers - 1e-9);
        demand->v[type] = (int64_t)MIN(MAX(amount, 0.0), (double)PART_AMOUNT_MAX);
        any |= demand->v[type] > 0;
    }
    return any;
}

/* Without a column of instances: one container for each GPU, else one for each node. */
static double containers_of(const struct facts *f)
{
    double n = f->v[ROLE_INSTANCES];
    if (isnan(n) && f->v[ROLE_GPUS] >= 1)
        n = f->v[ROLE_GPUS];
    if (isnan(n) && f->v[ROLE_NODES] >= 1)
        n = f->v[ROLE_NODES];
    return isnan(n) ? 1 : MIN(MAX(floor(n), 1.0), (double)PART_CONTAINERS_MAX);
}

static int add_job(struct reader *r, const struct facts *f)
{
    const struct foreign_options *o = r->o;
    struct trace_job job = { .weight = 1, .exponent = 1, .duration_s = f->v[ROLE_DURATION] };
    double n = containers_of(f), arrival = f->v[ROLE_SUBMIT];
    bool each = !isnan(f->v[ROLE_INSTANCES]); /* the amounts are those of one instance */
    if (isnan(job.duration_s))
        job.duration_s = f->v[ROLE_END] - f->v[ROLE_START];
    if (!(job.duration_s > 0) || isnan(arrival) || !set_demand(r, f, each ? 1 : n, &job.demand)) {
        r->result->left_out++;
        return 0;
    }
    if (f->id.len == 0 || f->id.len > 200 || span_has_control(f->id) || !span_utf8(f->id, NULL) ||
        memchr(f->id.p, ',', f->id.len))
        return err_set(r->e, EINVAL, "id: must have 1 to 200 bytes of text without commas");
    if (r->jobs.n == TRACE_JOBS_MAX)
        return err_set(r->e, EINVAL, "there are more than %d jobs", TRACE_JOBS_MAX);
    job.arrival_s = arrival;
    job.duration_s = MIN(MAX(job.duration_s, 1e-3), SECONDS_MAX);
    job.fixed = job.min = job.max = (uint32_t)n;
    if (o->high > 0) {
        job.min = (uint32_t)MIN(MAX(floor(o->low * n), 1.0), n);
        job.max = (uint32_t)MIN(MAX(floor(o->high * n), n), (double)PART_CONTAINERS_MAX);
        job.exponent = o->exponent;
    }
    job.id = arena_dup(&r->t->arena, f->id.p, f->id.len);
    if (!job.id || vec_push(&r->jobs, job) < 0)
        return no_memory(r);
    return 0;
}

/* ---- columns */

static int role_of(struct span name)
{
    for (int role = 0; role < ROLE_COUNT; role++)
        if (span_eqs(name, roles[role].name))
            return role;
    return -1;
}

/* If the rest of the line begins with a field in quotes, take it with its comma. In quotes, commas
 * are text, and "" is a quote: it stays as it is. */
static bool take_quoted(struct span *rest, struct span *out)
{
    struct span s = rest->p ? span_trim(*rest) : (struct span){ 0 };
    size_t end = 1, next;
    if (s.len < 2 || s.p[0] != '"')
        return false;
    while (end < s.len && (s.p[end] != '"' || (end + 1 < s.len && s.p[end + 1] == '"')))
        end += s.p[end] == '"' ? 2 : 1;
    next = end + 1;
    while (next < s.len && (s.p[next] == ' ' || s.p[next] == '\t'))
        next++;
    if (end >= s.len || (next < s.len && s.p[next] != ','))
        return false;
    *out = span_mem(s.p + 1, end - 1);
    *rest = next < s.len ? span_mem(s.p + next + 1, s.len - next - 1) : (struct span){ 0 };
    return true;
}

static size_t split(struct span line, struct span *fields)
{
    struct span field, rest = line;
    size_t n = 0;
    while (n <= FIELDS_MAX && (take_quoted(&rest, &field) || span_split(&rest, ',', &field)))
        fields[n++] = span_trim(field);
    return n;
}

/* List the types of resource for which the file has a column. */
static int set_types(struct reader *r)
{
    struct part_cluster *c = &r->t->cluster;
    const char **types = arena_alloc(&r->t->arena, PART_TYPES_MAX * sizeof *types);
    if (!types)
        return no_memory(r);
    for (int role = 0; role < ROLE_COUNT; role++) {
        r->type[role] = -1;
        if (!roles[role].type || r->column[role] < 0)
            continue;
        for (uint32_t k = 0; k < c->n_types && r->type[role] < 0; k++)
            if (str_eq(types[k], roles[role].type))
                return err_set(r->e, EINVAL, "%s: two columns for '%s'", r->what, types[k]);
        r->type[role] = (int)c->n_types;
        types[c->n_types++] = roles[role].type;
    }
    c->types = types;
    if (c->n_types > 0)
        return 0;
    (void)err_set(r->e, EINVAL, "%s: no column says what a job demands", r->what);
    return err_hint(r->e, "name one with --columns, such as gpus=gpu_num");
}

/* Find the columns of a list "role=name,..." among the fields of the header. need: fail if one is
 * missing. Returns how many are missing. */
static int find_columns(struct reader *r, struct span list, const struct span *fields, size_t n,
                        bool need)
{
    struct span rest = list, pair, name;
    int missing = 0;
    for (int role = 0; role < ROLE_COUNT; role++)
        r->column[role] = -1;
    while (span_split(&rest, ',', &pair)) {
        struct span column = pair;
        bool whole = span_split(&column, '=', &name) && column.len > 0;
        int role = whole ? role_of(name) : -1;
        if (role < 0) {
            (void)err_set(r->e, EINVAL, "--columns: '%.*s' is not MEANING=COLUMN", (int)pair.len,
                          pair.p);
            return err_hint(r->e, "the meanings are id, submit, start, end, duration, instances, "
                                  "nodes, cores, core_percent, memory_mib, memory_gib, gpus and "
                                  "gpu_percent");
        }
        for (size_t i = 0; i < n && r->column[role] < 0; i++)
            if (span_eq(fields[i], column))
                r->column[role] = (int)i;
        if (r->column[role] < 0 && need)
            return err_set(r->e, EINVAL, "%s:%u: there is no column '%.*s'", r->what, r->line,
                           (int)MIN(column.len, (size_t)FIELD_NAME_MAX), column.p);
        missing += r->column[role] < 0;
    }
    return missing;
}

static bool wanted(const struct reader *r, const struct format *f)
{
    return !r->o->format || str_eq(r->o->format, f->name);
}

/* Find the columns that the first line names. *is_job: the line is a job, because the file has
 * no header. */
static int read_header(struct reader *r, struct span line, bool *is_job)
{
    struct span fields[FIELDS_MAX + 1], names[FIELDS_MAX + 1];
    size_t n = split(line, fields);
    int rc = -EINVAL;
    *is_job = false;
    if (r->o->columns)
        return find_columns(r, span_of(r->o->columns), fields, n, true);
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        const struct format *f = &formats[i];
        if (!wanted(r, f))
            continue;
        rc = find_columns(r, span_of(f->columns), fields, n, false);
        if (rc <= 0)
            return rc;
        if (!f->headless || n != split(span_of(f->headless), names))
            continue;
        *is_job = true;
        return find_columns(r, span_of(f->columns), names, n, true);
    }
    (void)err_set(r->e, EINVAL, "%s:%u: the columns are not those of %s", r->what, r->line,
                  r->o->format ? r->o->format : "a known trace");
    return err_hint(r->e, "name them with --columns, such as submit=submit_time,duration=run_s,"
                          "gpus=gpu_num");
}

/* ---- lines */

static int read_job(struct reader *r, struct span line)
{
    struct span fields[FIELDS_MAX + 1];
    struct facts f = { 0 };
    char number[24];
    size_t n = split(line, fields);
    int rc = 0;
    snprintf(number, sizeof number, "%u", r->line);
    f.id = span_of(number);
    for (int role = 0; role < ROLE_COUNT && rc == 0; role++) {
        int column = r->column[role];
        f.v[role] = NAN;
        if (column < 0)
            continue;
        if ((size_t)column >= n)
            return err_set(r->e, EINVAL, "the line has only %zu fields", n);
        struct span s = fields[column];
        if (role == ROLE_ID)
            f.id = s;
        else if (role == ROLE_SUBMIT || role == ROLE_START || role == ROLE_END)
            rc = read_time(r, s, roles[role].name, &f.v[role]);
        else if (s.len > 0)
            rc = trace_real(s, roles[role].name, 0, (double)PART_AMOUNT_MAX, &f.v[role], r->e);
    }
    return rc < 0 ? rc : add_job(r, &f);
}

static int read_csv(struct reader *r, struct span text)
{
    struct span rest = text, line;
    bool header = false;
    while (span_split(&rest, '\n', &line)) {
        bool is_job = header;
        int rc = 0;
        r->line++;
        line = span_trim(line);
        if (line.len == 0)
            continue;
        if (!header) {
            rc = read_header(r, line, &is_job);
            if (rc == 0)
                rc = set_types(r);
            if (rc < 0)
                return rc;
            header = true;
        }
        if (is_job)
            rc = at_line(r, read_job(r, line));
        if (rc < 0)
            return rc;
    }
    return header ? 0 : err_set(r->e, EINVAL, "%s: it is empty", r->what);
}

/* ---- Philly's cluster_job_log: a list of objects */

/* The time of all attempts, and the GPUs of the last one. */
static int read_attempts(struct reader *r, const json_t *attempts, struct facts *f)
{
    double run = 0, gpus = 0;
    size_t i, d;
    json_t *attempt, *detail;
    json_array_foreach(attempts, i, attempt)
    {
        double start, end, n = 0;
        int rc = read_time(r, span_of(json_str(attempt, "start_time", "")), "start_time", &start);
        if (rc == 0)
            rc = read_time(r, span_of(json_str(attempt, "end_time", "")), "end_time", &end);
        if (rc < 0)
            return rc;
        if (isnan(start) || isnan(end))
            continue;
        json_array_foreach(json_object_get(attempt, "detail"), d, detail)
        {
            n += (double)json_array_size(json_object_get(detail, "gpus"));
        }
        run += MAX(end - start, 0.0);
        gpus = n > 0 ? n : gpus;
    }
    f->v[ROLE_DURATION] = run;
    f->v[ROLE_GPUS] = gpus;
    return 0;
}

static int read_philly(struct reader *r, struct span text)
{
    AUTO(json_freep) json_t *root = NULL;
    size_t i;
    json_t *row;
    int rc = json_parse(r->what, text, &root, r->e);
    if (rc < 0)
        return rc;
    if (!json_is_array(root))
        return err_set(r->e, EINVAL, "%s: must be a list of jobs", r->what);
    for (int role = 0; role < ROLE_COUNT; role++)
        r->column[role] = role == ROLE_GPUS ? 0 : -1;
    rc = set_types(r);
    for (i = 0; rc == 0 && i < json_array_size(root); i++) {
        struct facts f;
        row = json_array_get(root, i);
        for (int role = 0; role < ROLE_COUNT; role++)
            f.v[role] = NAN;
        f.id = span_of(json_str(row, "jobid", ""));
        rc = read_time(r, span_of(json_str(row, "submitted_time", "")), "submitted_time",
                       &f.v[ROLE_SUBMIT]);
        if (rc == 0)
            rc = read_attempts(r, json_object_get(row, "attempts"), &f);
        if (rc == 0)
            rc = add_job(r, &f);
        if (rc < 0)
            rc = err_wrap(r->e, rc, "%s: [%zu]", r->what, i);
    }
    return rc;
}

/* ---- a trace */

/* A total order, so that the order of equal arrivals does not depend on the C library. */
static int by_arrival(const void *a, const void *b)
{
    const struct trace_job *x = a, *y = b;
    if (x->arrival_s != y->arrival_s)
        return x->arrival_s < y->arrival_s ? -1 : 1;
    int order = strcmp(x->id, y->id);
    if (order == 0 && x->fixed != y->fixed)
        order = x->fixed < y->fixed ? -1 : 1;
    if (order == 0 && x->duration_s != y->duration_s)
        order = x->duration_s < y->duration_s ? -1 : 1;
    return order ? order : memcmp(&x->demand, &y->demand, sizeof x->demand);
}

/* Sort the jobs, let the first one arrive at 0, and move them into the arena. */
static int settle(struct reader *r)
{
    struct trace *t = r->t;
    if (r->jobs.n == 0)
        return err_set(r->e, EINVAL, "%s: no job in it has run to its end", r->what);
    t->jobs = arena_alloc(&t->arena, r->jobs.n * sizeof *t->jobs);
    if (!t->jobs)
        return no_memory(r);
    qsort(r->jobs.v, r->jobs.n, sizeof *r->jobs.v, by_arrival);
    double first = r->jobs.v[0].arrival_s;
    for (size_t i = 0; i < r->jobs.n; i++) {
        t->jobs[i] = r->jobs.v[i];
        t->jobs[i].arrival_s -= first;
    }
    t->n_jobs = r->jobs.n;
    t->horizon_s = MAX(t->jobs[t->n_jobs - 1].arrival_s, 1.0);
    return 0;
}

bool foreign_is(struct span text)
{
    text = span_trim(text);
    return text.len > 0 && text.p[0] != '#';
}

int foreign_elastic(struct span text, struct foreign_options *o, struct err *e)
{
    struct span rest = text, part;
    double v[3];
    static const char *const names[] = { "LOW of --elastic", "HIGH of --elastic",
                                         "EXPONENT of --elastic" };
    static const double limits[3][2] = { { 0, 1 }, { 1, 1000 }, { 0.01, 2 } };
    size_t n = 0;
    for (; n < 3 && span_split(&rest, ',', &part); n++) {
        int rc = trace_real(part, names[n], limits[n][0], limits[n][1], &v[n], e);
        if (rc < 0)
            return rc;
    }
    if (n < 3 || rest.len > 0)
        return err_set(e, EINVAL, "--elastic must be LOW,HIGH,EXPONENT, such as 0.25,2,0.9");
    o->low = v[0];
    o->high = v[1];
    o->exponent = v[2];
    return 0;
}

int foreign_parse(const char *what, struct span text, const struct foreign_options *o,
                  struct trace *out, struct foreign_result *result, struct err *e)
{
    struct err ignored;
    struct foreign_result left = { 0 };
    struct reader r = { .what = what, .o = o, .t = out, .e = e ? e : &ignored, .result = &left };
    *out = (struct trace){ .theta1 = part_defaults.theta1,
                           .theta2 = part_defaults.theta2,
                           .arena = { .max = TRACE_MEMORY_MAX } };
    bool known = !o->format;
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        known |= wanted(&r, &formats[i]);
    struct span body = span_trim(text);
    int rc;
    if (!known)
        rc = err_set(r.e, EINVAL, "there is no format '%s'; the formats are %s", o->format,
                     foreign_formats);
    else if (body.len > 0 && (body.p[0] == '[' || body.p[0] == '{'))
        rc = read_philly(&r, text);
    else
        rc = read_csv(&r, text);
    if (rc == 0)
        rc = settle(&r);
    if (rc == 0)
        *result = left;
    vec_done(&r.jobs);
    return rc;
}
