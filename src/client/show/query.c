/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list, status, tasks: print what is known about jobs, as a table or as JSON.
 */
#include <errno.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/pool/forecast.h"
#include "client/pool/pool_policy.h"
#include "client/show/list_filter.h"
#include "client/show/names.h"
#include "client/show/render.h"
#include "client/show/why.h"
#include "codec/json.h"

enum { LIST_DEFAULT = 20, LIST_MAX = 1000000 };

/* ---- list ---- */

/* Ask the pool for the reasons why jobs wait. If the pool does not answer, no reason is added. */
static void add_reasons(struct client *c, json_t *rows)
{
    json_t *doc = pool_reasons(c), *job, *row;
    size_t i, k;
    json_array_foreach(json_object_get(json_object_get(doc, "decision"), "jobs"), k, job)
    {
        json_array_foreach(rows, i, row)
        {
            if (str_eq(doc_str(row, "state"), "WAITING") && !json_object_get(row, "why") &&
                str_eq(doc_str(row, "application_id"), doc_str(job, "application_id")))
                (void)json_object_set_new(row, "why", json_string(doc_str(job, "why")));
        }
    }
    json_decref(doc);
}

/* Add what only the pool knows of waiting jobs: why they wait, and when they will start. */
static void add_waiting(struct client *c, json_t *rows)
{
    struct forecast *f = NULL;
    bool any = false;
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) any |= str_eq(doc_str(row, "state"), "WAITING");
    if (!any)
        return;
    add_reasons(c, rows);
    f = forecast_load(c);
    json_array_foreach(f ? rows : NULL, i, row)
    {
        json_t *expected = str_eq(doc_str(row, "state"), "WAITING")
                               ? forecast_json(f, doc_str(row, "application_id"))
                               : NULL;
        if (expected)
            (void)json_object_set_new(row, "expected", expected);
    }
    forecast_free(f);
}

static void add_start(const json_t *waiting, struct buf *out)
{
    int64_t place = doc_int(json_object_get(waiting, "expected"), "place", 0);
    if (place > 0)
        (void)buf_addf(out, "%splace %lld in the queue", out->len ? "; " : "", (long long)place);
    (void)buf_addf(out, "%sstarts: ", out->len ? "; " : "");
    (void)forecast_times(waiting, out); /* tony why also says what the estimate rests on */
}

/* The cell PROGRESS; "" = nothing is known. */
static void progress_cell(const json_t *row, struct buf *out)
{
    int64_t restarts = doc_int(row, "restarts", 0);
    if (doc_int(row, "step", 0) > 0)
        render_steps(row, out);
    if (restarts)
        (void)buf_addf(out, "%s%lld restart%s", out->len ? ", " : "", (long long)restarts,
                       restarts > 1 ? "s" : "");
    (void)buf_adds(out, doc_str(row, "why"));
    if (doc_str(row, "note")[0])
        (void)buf_addf(out, "%s%s", out->len ? "; " : "", doc_str(row, "note"));
    if (json_is_object(json_object_get(row, "expected")))
        add_start(row, out);
}

/* The third column shows the number of tasks. If the list has jobs of several clusters, it shows
 * the cluster. */
static void list_table(struct client *c, const json_t *rows)
{
    AUTO(json_freep) json_t *shown = names_shown(c, rows, false); /* for sentences about jobs */
    bool progress = false, clusters = false;
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        AUTO(buf_done) struct buf text = { 0 };
        progress_cell(json_array_get(shown, i), &text);
        progress = progress || text.len;
        clusters = clusters || doc_str(row, "cluster")[0];
    }
    struct table t = { .n_cols = progress ? 7 : 6 };
    table_add(&t, "APPLICATION", "NAME", "STATE", clusters ? "CLUSTER" : "TASKS", "SUBMITTED",
              "RAN", progress ? "PROGRESS" : NULL, NULL);
    json_array_foreach(rows, i, row)
    {
        char tasks[16], submitted[32], ran[32] = "", name[NAMES_CELL_MAX];
        (void)snprintf(tasks, sizeof tasks, "%lld", (long long)doc_int(row, "tasks", 0));
        local_time(doc_int(row, "submitted_ms", 0), submitted, sizeof submitted);
        if (doc_int(row, "ran_ms", -1) >= 0 && !str_eq(doc_str(row, "state"), "WAITING"))
            (void)str_duration(doc_int(row, "ran_ms", 0), ran, sizeof ran);
        AUTO(buf_done) struct buf text = { 0 };
        progress_cell(json_array_get(shown, i), &text);
        const char *steps = buf_cstr(&text);
        table_add(&t, doc_str(row, "application_id"), names_cell(doc_str(row, "name"), name),
                  doc_str(row, "state"), clusters ? doc_str(row, "cluster") : tasks, submitted, ran,
                  progress ? steps + strspn(steps, " ") : NULL, NULL);
    }
    table_print(&t);
}

/* Append the jobs of one cluster. */
static int add_jobs(struct client *c, const struct cluster_ops *ops, size_t max, json_t *rows,
                    bool *out_more, struct err *e)
{
    struct cluster *k = NULL;
    bool more = false;
    int rc = client_open(c, ops, NULL, &k, e);
    if (rc == 0)
        rc = ops->list(k, max, rows, &more, e);
    *out_more = *out_more || more;
    return rc;
}

/* The jobs of this machine, beside those of a remote cluster. */
static int add_jobs_here(struct client *c, size_t max, json_t *rows, bool *out_more, struct err *e)
{
    const struct cluster_ops *here = cluster_at(0);
    json_t *found = json_array(), *row;
    size_t i;
    int rc = add_jobs(c, here, max, found, out_more, e);
    json_array_foreach(found, i, row)
    {
        (void)json_object_set_new(row, "cluster", json_string(here->name));
        (void)json_array_append(rows, row);
    }
    json_decref(found);
    return rc;
}

/* Print the rows. Returns an exit code. */
static int print_list(struct client *c, const struct cluster_ops *ops, json_t *rows, bool unknown,
                      bool filtered, bool more)
{
    if (options_has(&c->o, OPT_JSON))
        return client_print_json(json_pack("{s:O}", "jobs", rows));
    if (json_array_size(rows))
        list_table(c, rows);
    else if (filtered)
        client_note("no job matches --state, --name, --user and --since");
    else if (ops->remote && !unknown)
        client_note("no jobs of yours on %s", ops->title);
    else if (!ops->remote)
        client_note("no jobs in %s", c->host.paths.home);
    int code = client_flush_stdout();
    if (more)
        client_note("there are more: --all shows them");
    return code;
}

int cmd_list(struct client *c)
{
    struct err e = { 0 };
    int64_t n;
    int64_t dflt = options_has(&c->o, OPT_ALL) ? 0 : LIST_DEFAULT;
    bool chosen = options_has(&c->o, OPT_CLUSTER), more = false, unknown = false;
    struct cluster *k = NULL;
    struct list_filter filter;
    if (options_int(&c->o, OPT_N, 1, LIST_MAX, dflt, &n, &e) < 0 ||
        list_filter_open(c, &filter, &e) < 0)
        return client_fail(EXIT_MISUSE, &e);
    size_t most = filter.any ? 0 : (size_t)n; /* of one cluster; 0 = all */
    const struct cluster_ops *ops = client_wanted(c);
    if (!ops) {
        int rc = client_open_wanted(c, &k, &e); /* for its error */
        return client_fail(-rc, &e);
    }
    json_t *all = json_array(), *rows = json_array();
    int rc = add_jobs(c, ops, most, all, &more, &e);
    if (rc < 0 && ops->remote && !chosen) { /* show the jobs of this machine nevertheless */
        unknown = true;
        client_note("the cluster's jobs are not known: %s", e.msg);
    }
    if (ops->remote && !chosen)
        rc = add_jobs_here(c, most, all, &more, &e);
    int code = rc < 0 ? client_fail(-rc, &e) : EXIT_DONE;
    if (rc == 0) {
        cluster_add_ends(&c->host, all);
        size_t n_jobs = json_array_size(all);
        list_filter_apply(&filter, all);
        more = list_newest(all, (size_t)n, rows) || more;
        if (!ops->remote)
            add_waiting(c, rows);
        code = print_list(c, ops, rows, unknown, n_jobs > 0 && filter.any, more);
    }
    json_decref(all);
    json_decref(rows);
    return unknown && code == EXIT_DONE ? EXIT_CLUSTER : code;
}

/* ---- status and tasks ---- */

/* How a task has ended: "exit 3" or "signal 9", or the reason if it says more, such as
 * "out_of_memory". */
static void ended_text(const json_t *task, char *out, size_t n)
{
    int64_t signal = doc_int(task, "signal", 0), code = doc_int(task, "exit_code", -1);
    const char *reason = doc_str(task, "reason");
    if (reason[0] && !str_eq(reason, "exited"))
        (void)str_copy(out, n, reason);
    else if (signal > 0)
        (void)snprintf(out, n, "signal %lld", (long long)signal);
    else if (code >= 0 && !json_is_null(json_object_get(task, "ended_ms")))
        (void)snprintf(out, n, "exit %lld", (long long)code);
    else
        (void)str_copy(out, n, "");
}

static void task_table(const json_t *tasks)
{
    size_t i;
    json_t *task;
    bool has_urls = false; /* the logs have URLs, as on a cluster */
    json_array_foreach(tasks, i, task) has_urls = has_urls || doc_str(task, "log_url")[0];
    struct table t = { .n_cols = 7 };
    table_add(&t, "TASK", "STATE", "RESULT", "END", "ATTEMPT", "ADDRESS", has_urls ? "LOG" : "GPUS",
              NULL);
    json_array_foreach(tasks, i, task)
    {
        char end[48], attempt[24];
        ended_text(task, end, sizeof end);
        (void)snprintf(attempt, sizeof attempt, "%lld", (long long)doc_int(task, "attempt", 0));
        table_add(&t, doc_str(task, "task"), doc_str(task, "state"), doc_str(task, "result"), end,
                  attempt, doc_str(task, "address"), doc_str(task, has_urls ? "log_url" : "gpus"),
                  NULL);
    }
    table_print(&t);
}

static void waiting_lines(const json_t *w)
{
    if (!json_is_object(w))
        return;
    const json_t *needs = json_object_get(w, "needs"), *have = json_object_get(w, "free");
    char need[32], spare[32];
    AUTO(buf_done) struct buf least = { 0 };
    render_least(w, &least);
    (void)printf("  needs     %s, %lld GPUs%s\n",
                 str_size((uint64_t)doc_int(needs, "memory_mib", 0) << 20, need, sizeof need),
                 (long long)doc_int(needs, "gpus", 0), buf_cstr(&least));
    (void)printf("  free      %s, %lld GPUs\n",
                 str_size((uint64_t)doc_int(have, "memory_mib", 0) << 20, spare, sizeof spare),
                 (long long)doc_int(have, "gpus", 0));
    if (doc_str(w, "behind")[0] && !json_is_object(json_object_get(w, "policy")))
        (void)printf("  behind    %s\n", doc_str(w, "behind"));
    AUTO(buf_done) struct buf lacks = { 0 };
    AUTO(buf_done) struct buf start = { 0 };
    if (doc_int(w, "place", 0) > 0)
        (void)printf("  place     %lld in the queue\n", (long long)doc_int(w, "place", 0));
    if (forecast_missing(w, &lacks))
        (void)printf("  lacks     %s\n", buf_cstr(&lacks));
    if (doc_str(w, "held")[0])
        (void)printf("  held      %s\n", doc_str(w, "held"));
    else if (forecast_text(w, &start))
        (void)printf("  starts    %s\n", buf_cstr(&start));
}

/* Why a job waits under a policy of the pool. */
static void policy_lines(const json_t *doc)
{
    AUTO(buf_done) struct buf why = { 0 };
    AUTO(buf_done) struct buf change = { 0 };
    if (!render_policy(doc, &why, &change))
        return;
    bool waits = json_is_object(json_object_get(doc, "waiting"));
    (void)printf("  %-9s %s\n", waits ? "because" : "size", buf_cstr(&why));
    if (change.len)
        (void)printf("            %s\n", buf_cstr(&change));
}

static void role_lines(const json_t *roles)
{
    size_t i;
    json_t *role;
    json_array_foreach(roles, i, role)
    {
        AUTO(buf_done) struct buf text = { 0 };
        render_role(role, &text);
        render_steps(role, &text);
        (void)printf("  %-9s %s\n", doc_str(role, "name"), buf_cstr(&text));
    }
}

static void restart_lines(const json_t *doc)
{
    AUTO(buf_done) struct buf text = { 0 };
    int64_t n = doc_int(doc, "restarts", 0);
    size_t i;
    json_t *node;
    bool last = render_restart(doc, &text);
    if (n > 0)
        (void)printf("  restarts  %lld%s%s\n", (long long)n, last ? "; the last: " : "",
                     buf_cstr(&text));
    json_array_foreach(json_object_get(doc, "nodes_left_out"), i, node)
    {
        (void)printf("  left out  %s, which failed too often\n", json_string_value(node));
    }
}

/* Append the time until the resize times out; nothing if the resize has no limit. */
static void add_due(const json_t *doc, const json_t *resize, struct buf *out)
{
    int64_t now = doc_int(json_object_get(doc, "times"), "now_ms", -1);
    int64_t due = doc_int(resize, "due_ms", -1);
    char left[32];
    if (now >= 0 && due > now && str_eq(doc_str(resize, "state"), "waiting"))
        (void)buf_addf(out, ", for %s more at most", str_duration(due - now, left, sizeof left));
}

static void asked_for_by(const json_t *resize)
{
    const char *why = doc_str(resize, "why");
    if (doc_str(resize, "who")[0])
        (void)printf("            asked for by %s%s%s\n", doc_str(resize, "who"), *why ? ": " : "",
                     why);
}

/* Print "kept" of `resize`: a demand of the scheduler that came while the gang forms. */
static void kept_line(const json_t *resize)
{
    const json_t *kept = json_object_get(resize, "kept");
    int64_t n = doc_int(kept, "containers", 0);
    const char *why = doc_str(kept, "why");
    if (json_is_object(kept))
        (void)printf("            then the job shrinks: the scheduler asked for at most %lld "
                     "container%s%s%s\n",
                     (long long)n, n == 1 ? "" : "s", *why ? ": " : "", why);
}

static void resize_lines(const json_t *doc)
{
    AUTO(buf_done) struct buf on = { 0 };
    AUTO(buf_done) struct buf last = { 0 };
    AUTO(buf_done) struct buf cost = { 0 };
    const json_t *r = json_object_get(doc, "resize");
    int64_t n = doc_int(doc, "resizes", 0);
    if (render_resize(doc, &on)) {
        add_due(doc, r, &on);
        (void)printf("  resize    %s\n", buf_cstr(&on));
        asked_for_by(r);
        kept_line(r);
    }
    if (render_last_resize(doc, &last)) {
        (void)printf("  resizes   %lld; the last: %s\n", (long long)n, buf_cstr(&last));
        asked_for_by(json_object_get(doc, "last_resize"));
    }
    if (render_resize_cost(doc, &cost))
        (void)printf("            %s\n", buf_cstr(&cost));
}

static void status_text(struct client *c, const json_t *doc)
{
    const char *state = doc_str(doc, "state"), *message = doc_str(doc, "message");
    (void)printf("%s  %s  %s%s%s\n", doc_str(doc, "application_id"), doc_str(doc, "name"),
                 c->out_color ? state_color(state) : "", state, c->out_color ? "\033[0m" : "");
    if (message[0])
        (void)printf("  %s\n", message);
    waiting_lines(json_object_get(doc, "waiting"));
    policy_lines(doc);
    if (doc_str(doc, "trouble")[0])
        (void)printf("  trouble   %s; nothing new begins until it can be\n",
                     doc_str(doc, "trouble"));
    if (doc_str(doc, "awaits")[0])
        (void)printf("  awaits    %s\n", doc_str(doc, "awaits"));
    if (doc_str(doc, "pausing")[0])
        (void)printf("  pauses    %s\n", doc_str(doc, "pausing"));
    role_lines(json_object_get(doc, "roles"));
    char ran[32];
    if (doc_int(doc, "ran_ms", -1) >= 0 && !str_eq(doc_str(doc, "state"), "WAITING"))
        (void)printf("  ran       %s\n", str_duration(doc_int(doc, "ran_ms", 0), ran, sizeof ran));
    restart_lines(doc);
    resize_lines(doc);
    const json_t *saved = json_object_get(doc, "checkpoint");
    if (saved)
        (void)printf("  checkpoint  step %lld, %s\n", (long long)doc_int(saved, "step", 0),
                     doc_str(saved, "path"));
    if (doc_str(doc, "tensorboard")[0])
        (void)printf("  tensorboard  %s\n", doc_str(doc, "tensorboard"));
    const json_t *cause = json_object_get(doc, "cause");
    if (json_is_object(cause) && !str_eq(state, "SUCCEEDED")) {
        if (!strstr(message, doc_str(cause, "detail")))
            (void)printf("  cause     %s: %s\n", doc_str(cause, "task"), doc_str(cause, "detail"));
        struct span tail = span_trim(span_of(doc_str(cause, "stderr_tail"))), line;
        while (tail.len && span_split(&tail, '\n', &line))
            (void)printf("    %.*s\n", (int)line.len, line.p);
        (void)printf("  more      tony why %s\n", doc_str(doc, "application_id"));
    }
    AUTO(buf_done) struct buf left = { 0 };
    why_left(doc, &left);
    (void)printf("%s", left.len ? buf_cstr(&left) : "");
    const char *dir = doc_str(doc, "directory");
    if (dir[0]) /* unknown for a job on YARN that has no master yet */
        (void)printf("  directory %s\n", dir);
    if (dir[0] && !doc_str(doc, "cluster")[0])
        (void)printf("  logs      %s/logs/<role>-<index>/<attempt>/\n", dir);
}

int query_load(struct client *c, json_t **out)
{
    struct err e = { 0 };
    char id[APP_ID_MAX];
    struct cluster *k = NULL;
    int rc = client_find(c, c->o.args[0], &k, id, &e);
    if (rc == 0)
        rc = cluster_ops_of(k)->status(k, id, out, &e);
    if (rc < 0)
        return client_fail(-rc, &e);
    if (!cluster_ops_of(k)->no_forecast) {
        pool_policy_add(c, *out);
        forecast_add(c, *out);
    }
    return EXIT_DONE;
}

int cmd_status(struct client *c)
{
    json_t *doc = NULL;
    int code = query_load(c, &doc);
    if (code)
        return code;
    if (options_has(&c->o, OPT_JSON))
        return client_print_json(doc);
    json_t *shown = names_shown(c, doc, false);
    status_text(c, shown);
    json_decref(shown);
    json_decref(doc);
    return client_flush_stdout();
}

int cmd_tasks(struct client *c)
{
    json_t *doc = NULL;
    int code = query_load(c, &doc);
    if (code)
        return code;
    json_t *tasks = json_object_get(doc, "tasks");
    if (options_has(&c->o, OPT_JSON)) {
        json_t *out = json_pack("{s:O?, s:O?, s:O?}", "application_id",
                                json_object_get(doc, "application_id"), "state",
                                json_object_get(doc, "state"), "tasks", tasks);
        json_decref(doc);
        return client_print_json(out);
    }
    if (tasks)
        task_table(tasks);
    else
        client_note("nothing is known of its tasks: job %s is %s%s%s",
                    doc_str(doc, "application_id"), doc_str(doc, "state"),
                    *doc_str(doc, "message") ? ": " : "", doc_str(doc, "message"));
    json_decref(doc);
    return client_flush_stdout();
}
