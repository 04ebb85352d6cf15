/* SPDX-License-Identifier: Apache-2.0 */
/* `tony simulate`: what each policy would do with the jobs of a trace, as one table. */
#include "client/policy/simulate.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/policy/allocate.h"
#include "client/policy/exact.h"
#include "client/policy/replay.h"
#include "client/policy/simulate_table.h"
#include "codec/json.h"
#include "simulate/foreign.h"
#include "simulate/generate.h"
#include "simulate/plot.h"
#include "simulate/real.h"
#include "simulate/simulate.h"

enum {
    POLICIES_MAX = 16,
    TRACE_BYTES_MAX = 256 << 20,
    SOLVER_LIMIT_MS = 10 * 1000, /* for each integer program, without --time-limit */
    SOLVER_LIMIT_MAX_MS = 24 * 3600 * 1000,
};

/* The policies that are simulated without --policy. */
static const char *const usual[] = { "static", "fifo", "drf", "dorm", "las", "srtf" };

struct chosen {
    const struct part_policy *v[POLICIES_MAX];
    size_t n;
    bool real; /* the list has "real": the jobs as they really ran, which is no policy */
};

static int choose(const char *list, struct chosen *out, struct err *e)
{
    struct span rest = span_of(list), name;
    if (!list) {
        for (size_t i = 0; i < ARRAY_LEN(usual); i++)
            if (part_policy_find(usual[i]))
                out->v[out->n++] = part_policy_find(usual[i]);
        return 0;
    }
    while (span_split(&rest, ',', &name)) {
        AUTO(free_p) char *word = span_dup(name);
        if (!word)
            return err_set(e, ENOMEM, "cannot read the command line: %m");
        if (str_eq(word, "real")) {
            out->real = true;
            continue;
        }
        if (out->n == POLICIES_MAX)
            return err_set(e, EINVAL, "more than %d policies", POLICIES_MAX);
        int rc = client_policy(word, &out->v[out->n], e);
        if (rc < 0)
            return rc;
        out->n++;
    }
    return 0;
}

/* Read the trace of another cluster, which needs nodes from the command line. */
static int load_foreign(const struct client *c, const char *path, struct span text, struct trace *t,
                        struct err *e)
{
    const char *format = options_get(&c->o, OPT_FORMAT), *elastic = options_get(&c->o, OPT_ELASTIC);
    struct foreign_options o = { .format = format && !str_eq(format, "auto") ? format : NULL,
                                 .columns = options_get(&c->o, OPT_COLUMNS) };
    struct foreign_result result;
    int rc = elastic ? foreign_elastic(span_of(elastic), &o, e) : 0;
    if (rc == 0)
        rc = foreign_parse(path, text, &o, t, &result, e);
    if (rc < 0)
        return rc;
    if (result.left_out > 0)
        client_note("%s: %zu job%s left out: never run, not ended, or without a demand", path,
                    result.left_out, result.left_out == 1 ? " is" : "s are");
    if (options_has(&c->o, OPT_NODES))
        return 0;
    AUTO(buf_done) struct buf types = { 0 };
    for (uint32_t k = 0; k < t->cluster.n_types; k++)
        (void)buf_addf(&types, "%s%s", k ? "," : "", t->cluster.types[k]);
    (void)err_set(e, EINVAL, "%s: this trace does not say which nodes there are", path);
    return err_hint(e, "give --nodes 'COUNTx%s'", buf_cstr(&types));
}

static int load(const struct client *c, const char *path, struct trace *t, struct err *e)
{
    AUTO(buf_done) struct buf text = { .max = TRACE_BYTES_MAX };
    AUTO(close_p) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return err_set(e, errno, "cannot open trace '%s': %m", path);
    int rc = buf_fill_fd(&text, fd, e);
    if (rc < 0)
        return err_wrap(e, rc, "trace '%s'", path);
    bool chosen = options_has(&c->o, OPT_COLUMNS) || options_has(&c->o, OPT_FORMAT);
    struct span trace = buf_span(&text);
    if (span_starts(trace, "\xef\xbb\xbf")) /* a byte order mark, as some programs write it */
        trace = span_mem(trace.p + 3, trace.len - 3);
    if (chosen || foreign_is(trace))
        return load_foreign(c, path, trace, t, e);
    if (options_has(&c->o, OPT_ELASTIC))
        return err_set(e, EINVAL,
                       "--elastic is for traces of other clusters; '%s' has the columns min, max "
                       "and exponent",
                       path);
    return trace_parse(path, trace, t, e);
}

static int load_history(struct client *c, struct trace *t, struct replayed *past, struct err *e)
{
    int rc = replay_cluster(c, t, past, e);
    if (rc == 0 && past->left_out > 0)
        client_note("%zu job%s left out: never run, or with damaged files", past->left_out,
                    past->left_out == 1 ? " is" : "s are");
    return rc;
}

/* Add the completion and waiting times. On failure, the members are missing. */
static json_t *add_times(json_t *row, const struct sim_result *r)
{
    json_t *times =
        json_pack("{s:f,s:f,s:f,s:f,s:f,s:f}", "jct_mean_s", r->jct.mean_s, "jct_median_s",
                  r->jct.median_s, "jct_p95_s", r->jct.p95_s, "wait_mean_s", r->wait.mean_s,
                  "wait_median_s", r->wait.median_s, "wait_p95_s", r->wait.p95_s);
    (void)json_object_update(row, times);
    json_decref(times);
    return row;
}

static json_t *result_json(const char *policy, const struct sim_result *r)
{
    json_t *row = json_pack("{s:s,s:f,s:f,s:f,s:I,s:f,s:f,s:I,s:f,s:f,s:I,s:f}", "policy", policy,
                            "util_5h", r->util_5h, "util", r->util, "loss", r->loss, "adjustments",
                            (json_int_t)r->adjustments, "overhead_percent", r->overhead_percent,
                            "lost_container_s", r->lost_s, "decisions", (json_int_t)r->decisions,
                            "decide_s", r->decide_s, "longest_decision_s", r->longest_s,
                            "never_run", (json_int_t)r->never, "end_s", r->end_s);
    if (row && !isnan(r->gap)) {
        (void)json_object_set_new(row, "gap_percent", json_real(100 * r->gap));
        (void)json_object_set_new(row, "worst_gap_percent", json_real(100 * r->gap_worst));
    }
    return add_times(row, r);
}

/* Add the errors of the estimated starts. */
static json_t *add_estimates(json_t *row, const struct estimates_result *x)
{
    json_t *doc = json_pack("{s:I, s:I, s:f, s:f, s:f}", "samples", (json_int_t)x->n, "open",
                            (json_int_t)x->n_open, "median_error_s", x->error_s, "median_wait_s",
                            x->wait_s, "within_percent", x->within_percent);
    (void)json_object_set_new(row, "estimates", doc); /* on failure, the member is missing */
    return row;
}

/* Say how many jobs the policies have left out: one line for all policies of the same number. */
static void note_never(const struct sim_table *t)
{
    for (size_t i = 0; i < t->columns.n; i++) {
        AUTO(buf_done) struct buf names = { 0 };
        size_t never = t->columns.v[i].result.never;
        bool is_told = never == 0;
        for (size_t k = 0; k < t->columns.n; k++) {
            if (t->columns.v[k].result.never != never)
                continue;
            is_told = is_told || k < i;
            (void)buf_addf(&names, "%s%s", names.len ? ", " : "", t->columns.v[k].name);
        }
        if (!is_told)
            client_note("%s: %zu job%s can never run and %s left out", buf_cstr(&names), never,
                        never == 1 ? "" : "s", never == 1 ? "is" : "are");
    }
}

/* Add a result to rows (--json), or else to the table. Takes json. */
static int add_result(json_t *rows, json_t *json, struct sim_table *table,
                      const struct sim_column *column, struct err *e)
{
    int rc = rows ? json_array_append_new(rows, json) : vec_push(&table->columns, *column);
    return rc < 0 ? err_set(e, ENOMEM, "cannot print the result: %m") : 0;
}

/* One run of the command: what the options ask for, and the jobs. */
struct run {
    bool json, history, exact, estimates;
    struct chosen policies;
    struct exact_solver solver; /* if exact */
    unsigned charts;            /* of enum plot_chart */
    int64_t seed;
    struct trace t;
    struct replayed past; /* if history */
};

static void run_done(struct run *r)
{
    trace_done(&r->t);
}

/* Put the real run of the jobs before the simulations. rows: NULL, or the list for --json; plot:
 * NULL, or charts. */
static int add_real(const struct run *run, json_t *rows, struct sim_table *table, struct plot *plot,
                    struct err *e)
{
    struct sim_column c = { .name = "real", .is_real = true };
    struct sim_result *r = &c.result;
    if (plot)
        plot_policy(plot, c.name);
    if (sim_real(&run->t, &run->past.real, plot ? plot_events(plot) : NULL, r) < 0)
        return err_set(e, ENOMEM, "cannot simulate: %m");
    json_t *json =
        rows ? json_pack("{s:s,s:f,s:f,s:I,s:f}", "policy", c.name, "util_5h", r->util_5h, "util",
                         r->util, "adjustments", (json_int_t)r->adjustments, "end_s", r->end_s)
             : NULL;
    return add_result(rows, rows ? add_times(json, r) : NULL, table, &c, e);
}

static int exit_code(int rc)
{
    return rc == -ENOMEM || rc == -EIO ? EXIT_CLUSTER : EXIT_MISUSE;
}

static void plot_freep(struct plot **p)
{
    plot_free(*p);
}

static int write_plot(struct plot *p, unsigned charts, const char *path, struct err *e)
{
    AUTO(buf_done) struct buf page = { .max = TRACE_BYTES_MAX };
    AUTO(close_p) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd == -1)
        return err_set(e, errno, "cannot write charts to '%s': %m", path);
    int rc = plot_write(p, charts, &page);
    if (rc == 0)
        rc = fs_write_all(fd, page.p, page.len);
    return rc < 0 ? err_set(e, -rc, "cannot write charts to '%s': %m", path) : 0;
}

/* Read the value of a number option. Without the option, *out stays unchanged. */
static int option_number(const struct client *c, enum option_id id, int64_t min, int64_t max,
                         int64_t *out, struct err *e)
{
    const char *text = options_get(&c->o, id);
    return text ? str_i64(span_of(text), min, max, option_name(id), out, e) : 0;
}

/* The solver of --exact. */
static int open_solver(const struct client *c, const struct chosen *policies,
                       struct exact_solver *out, struct err *e)
{
    const char *text = options_get(&c->o, OPT_TIME_LIMIT);
    int64_t limit_ms = SOLVER_LIMIT_MS;
    bool dorm = false;
    for (size_t i = 0; i < policies->n; i++)
        dorm |= str_eq(policies->v[i]->name, "dorm");
    if (!dorm)
        return err_set(e, EINVAL, "--exact is for the policy 'dorm', which is not chosen");
    if (text && str_ms(span_of(text), 1, SOLVER_LIMIT_MAX_MS, option_name(OPT_TIME_LIMIT),
                       &limit_ms, e) < 0)
        return -EINVAL;
    return exact_solver_init(out, limit_ms, e);
}

static int generate(const struct client *c)
{
    AUTO(trace_done) struct trace t = { 0 };
    AUTO(buf_done) struct buf text = { .max = TRACE_BYTES_MAX };
    int64_t seed = 1, jobs = 0;
    struct err e = { 0 };
    int rc = option_number(c, OPT_SEED, 0, INT64_MAX, &seed, &e);
    if (rc == 0)
        rc = option_number(c, OPT_JOBS, 1, TRACE_JOBS_MAX, &jobs, &e);
    if (rc == 0 && c->o.n_args > 0)
        rc = err_set(&e, EINVAL, "--generate prints a trace, so it takes no TRACE");
    if (rc == 0)
        rc = trace_generate(options_get(&c->o, OPT_GENERATE), (uint64_t)seed, (size_t)jobs, &t, &e);
    if (rc == 0 && trace_write(&t, &text) < 0)
        rc = err_set(&e, ENOMEM, "cannot write the trace: %m");
    if (rc < 0)
        return client_fail(exit_code(rc), &e);
    (void)fwrite(text.p, 1, text.len, stdout); /* client_flush_stdout() reports a failure */
    return client_flush_stdout();
}

/* Read the options. -ENOENT: the exact solver is not installed. */
static int read_options(const struct client *c, struct run *r, struct err *e)
{
    const char *charts = options_get(&c->o, OPT_CHARTS);
    *r = (struct run){ .json = options_has(&c->o, OPT_JSON),
                       .history = options_has(&c->o, OPT_FROM_HISTORY),
                       .exact = options_has(&c->o, OPT_EXACT),
                       .estimates = options_has(&c->o, OPT_ESTIMATES),
                       .charts = PLOT_ALL,
                       .seed = 1 };
    if (r->history && c->o.n_args > 0)
        return err_set(e, EINVAL, "--from-history takes no TRACE");
    if (r->history && options_has(&c->o, OPT_ELASTIC))
        return err_set(e, EINVAL, "--elastic is for traces of other clusters, not for histories");
    if (!r->history && c->o.n_args != 1)
        return err_set(e, EINVAL, "no TRACE is given");
    int rc = choose(options_get(&c->o, OPT_POLICY), &r->policies, e);
    if (rc == 0 && r->exact)
        rc = open_solver(c, &r->policies, &r->solver, e);
    if (rc == 0 && r->policies.real && !r->history)
        rc =
            err_set(e, EINVAL,
                    "the policy 'real' shows what the pool really did, so it needs --from-history");
    if (rc == 0)
        rc = option_number(c, OPT_SEED, 0, INT64_MAX, &r->seed, e);
    return rc == 0 && charts ? plot_charts(charts, &r->charts, e) : rc;
}

static int load_jobs(struct client *c, struct run *r, struct err *e)
{
    const char *nodes = options_get(&c->o, OPT_NODES);
    int rc = r->history ? load_history(c, &r->t, &r->past, e) : load(c, c->o.args[0], &r->t, e);
    return rc == 0 && nodes ? trace_set_nodes(&r->t, span_of(nodes), e) : rc;
}

/* On a terminal: say which policy is being simulated, since that may take minutes. NULL: remove the
 * line. */
static void show_progress(const struct client *c, const struct run *r, const char *policy, size_t i)
{
    if (!c->tty)
        return;
    AUTO(free_p)
    char *line =
        policy ? str_printf("\rsimulating %s (%zu of %zu)\033[K", policy, i + 1, r->policies.n)
               : str_dup("\r\033[K");
    if (line)
        (void)fs_write_all(STDERR_FILENO, line, strlen(line)); /* only for people */
}

/* Simulate one policy. plot: NULL, or charts. Returns an exit code, with e set if it is not 0. */
static int simulate(struct run *r, const struct part_policy *policy, struct plot *plot,
                    struct sim_result *out, struct err *e)
{
    struct sim_options o = { .clock_us = clock_mono_us,
                             .estimates = r->estimates,
                             .estimates_seed = (uint64_t)r->seed,
                             .solver = r->exact ? &r->solver.solver : NULL };
    if (plot) {
        plot_policy(plot, policy->name);
        o.events = plot_events(plot);
    }
    int rc = sim_run(&r->t, policy, &o, out, e);
    return rc < 0 ? exit_code(rc) : EXIT_DONE;
}

static int simulate_each(const struct client *c, struct run *r, json_t *rows,
                         struct sim_table *table, struct plot *plot, struct err *e)
{
    if (r->history && add_real(r, rows, table, plot, e) < 0)
        return EXIT_CLUSTER;
    for (size_t i = 0; i < r->policies.n; i++) {
        struct sim_column x = { .name = r->policies.v[i]->name };
        show_progress(c, r, x.name, i);
        int code = simulate(r, r->policies.v[i], plot, &x.result, e);
        show_progress(c, r, NULL, i);
        if (code != EXIT_DONE)
            return code;
        json_t *json = rows ? result_json(x.name, &x.result) : NULL;
        if (json && r->estimates)
            json = add_estimates(json, &x.result.estimates);
        x.is_empty = x.result.never == r->t.n_jobs;
        if (add_result(rows, json, table, &x, e) < 0)
            return EXIT_CLUSTER;
    }
    return EXIT_DONE;
}

static int simulate_all(const struct client *c, struct run *r)
{
    struct err e = { 0 };
    const char *chart = options_get(&c->o, OPT_PLOT);
    AUTO(plot_freep) struct plot *plot = chart ? plot_new(&r->t) : NULL;
    AUTO(json_freep) json_t *rows = r->json ? json_array() : NULL;
    AUTO(sim_table_done) struct sim_table table = { 0 };
    if ((chart && !plot) || (r->json && !rows)) {
        err_set(&e, ENOMEM, "cannot simulate: %m");
        return client_fail(EXIT_CLUSTER, &e);
    }
    int code = simulate_each(c, r, rows, &table, plot, &e);
    sim_table_print(&table, r->estimates); /* after a failure, too: the policies before it */
    (void)fflush(stdout); /* so that notes follow the table; a failure is reported at the end */
    note_never(&table);
    if (code != EXIT_DONE)
        return client_fail(code, &e);
    if (r->exact && r->solver.silent > 0)
        client_note("the solver had no answer within %.3g s for %" PRIu64 " of %" PRIu64
                    " programs; there the answer of the fast search counts",
                    (double)r->solver.limit_ms / 1000, r->solver.silent, r->solver.asked);
    if (plot && write_plot(plot, r->charts, chart, &e) < 0)
        return client_fail(EXIT_CLUSTER, &e);
    return r->json ? client_print_json(TAKE(rows)) : client_flush_stdout();
}

int cmd_simulate(struct client *c)
{
    if (options_has(&c->o, OPT_GENERATE))
        return generate(c);
    AUTO(run_done) struct run r = { .json = false };
    struct err e = { 0 };
    int rc = read_options(c, &r, &e);
    if (rc == -ENOENT)
        return client_fail(EXIT_CLUSTER, &e);
    if (rc == 0)
        rc = load_jobs(c, &r, &e);
    return rc < 0 ? client_fail(exit_code(rc), &e) : simulate_all(c, &r);
}
