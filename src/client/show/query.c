/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list, status, tasks: print what is known about jobs, as a table or as JSON.
 */
#include <errno.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/pool/forecast.h"
#include "client/pool/pool_policy.h"
#include "client/show/render.h"
#include "cluster/link.h"
#include "cluster/local/job_keeper.h"
#include "cluster/local/status.h"
#include "cluster/yarn/cmd.h"
#include "history/history.h"
#include "proto/tony.pb-c.h"

enum { LIST_DEFAULT = 20, LIST_MAX = 1000000 };

/* ---- list ---- */

static json_t *time_or_null(int64_t wall_ms)
{
    return wall_ms > 0 ? json_integer(wall_ms) : json_null();
}

/* Progress of a live job; step 0 = none was reported. */
struct progress {
    int64_t step, total, restarts;
    json_t *role;    /* the first role that reported progress */
    char *why;       /* why it waits, if a policy of the pool gave a reason */
    json_t *waiting; /* {"expected": ...}: when it will start (forecast.h); NULL = unknown */
};

static void progress_done(struct progress *f, size_t n)
{
    for (size_t i = 0; f && i < n; i++) {
        json_decref(f[i].role);
        free(f[i].why);
        json_decref(f[i].waiting);
    }
    free(f);
}

/* Ask the pool for the reasons why jobs wait. If the pool does not answer, no reason is added. */
static void ask_reasons(struct client *c, const struct history_rows *rows,
                        struct progress *progress)
{
    struct answer a = { .wait_ms = POOL_POLICY_MS };
    bool any = false;
    for (size_t i = 0; i < rows->n; i++)
        any |= rows->v[i].live && str_eq(rows->v[i].state, "WAITING");
    if (any)
        (void)link_ask_pool(c, false, TONY__CLIENT_ASK__WHAT__POLICY_WHY, "", false, &a, NULL);
    json_t *doc = a.json.len ? json_loadb(a.json.p, a.json.len, 0, NULL) : NULL, *job;
    size_t k;
    json_array_foreach(json_object_get(json_object_get(doc, "decision"), "jobs"), k, job)
    {
        for (size_t i = 0; i < rows->n; i++)
            if (str_eq(rows->v[i].state, "WAITING") && !progress[i].why &&
                str_eq(rows->v[i].application_id, doc_str(job, "application_id")))
                progress[i].why = str_dup(doc_str(job, "why"));
    }
    json_decref(doc);
    answer_done(&a);
}

/* Add the expected starts of waiting jobs. */
static void add_forecast(struct client *c, const struct history_rows *rows,
                         struct progress *progress)
{
    struct forecast *f = NULL;
    for (size_t i = 0; i < rows->n; i++) {
        if (!rows->v[i].live || !str_eq(rows->v[i].state, "WAITING"))
            continue;
        if (!f && !(f = forecast_load(c)))
            return;
        json_t *expected = forecast_json(f, rows->v[i].application_id);
        if (expected)
            progress[i].waiting = json_pack("{s:o}", "expected", expected);
    }
    forecast_free(f);
}

/* Ask the masters for the progress: the journals have none. After the first timeout, ask no further
 * master. */
static struct progress *ask_progress(struct client *c, const struct history_rows *rows)
{
    struct progress *progress = calloc(rows->n + 1, sizeof *progress);
    int rc = progress ? 0 : -ENOMEM;
    for (size_t i = 0; i < rows->n && rc != -ETIMEDOUT; i++) {
        json_t *doc = NULL, *role;
        size_t k;
        if (!rows->v[i].live || !str_eq(rows->v[i].state, "RUNNING"))
            continue;
        rc = status_of_master(c, rows->v[i].application_id, &doc);
        if (rc < 0)
            continue;
        progress[i].restarts = doc_int(doc, "restarts", 0);
        json_array_foreach(json_object_get(doc, "roles"), k, role)
        {
            if (progress[i].role || doc_int(role, "step", 0) <= 0)
                continue;
            progress[i].role = json_incref(role);
            progress[i].step = doc_int(role, "step", 0);
            progress[i].total = doc_int(role, "total", 0);
        }
        json_decref(doc);
    }
    if (progress)
        ask_reasons(c, rows, progress);
    if (progress)
        add_forecast(c, rows, progress);
    return progress;
}

json_t *list_row_json(const struct history_row *r)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:i, s:o, s:o, s:o, s:o}", "application_id",
                     r->application_id, "name", r->name, "user", r->user, "state", r->state, "live",
                     r->live, "tasks", (int)r->n_tasks, "submitted_ms",
                     time_or_null(r->submitted_wall_ms), "started_ms",
                     time_or_null(r->started_wall_ms), "ended_ms", time_or_null(r->ended_wall_ms),
                     "ran_ms", r->ran_ms >= 0 ? json_integer(r->ran_ms) : json_null());
}

static json_t *list_json(const struct history_rows *rows, const struct progress *progress)
{
    json_t *jobs = json_array();
    for (size_t i = 0; i < rows->n; i++) {
        json_t *job = list_row_json(&rows->v[i]);
        if (progress && progress[i].role) {
            (void)json_object_set_new(job, "step", json_integer(progress[i].step));
            (void)json_object_set_new(job, "total", json_integer(progress[i].total));
            (void)json_object_set(job, "left_ms", json_object_get(progress[i].role, "left_ms"));
        }
        if (progress && progress[i].why)
            (void)json_object_set_new(job, "why", json_string(progress[i].why));
        if (progress && progress[i].waiting)
            (void)json_object_set(job, "expected",
                                  json_object_get(progress[i].waiting, "expected"));
        if (progress && progress[i].restarts)
            (void)json_object_set_new(job, "restarts", json_integer(progress[i].restarts));
        (void)json_array_append_new(jobs, job);
    }
    return json_pack("{s:o}", "jobs", jobs);
}

static void add_start(const json_t *waiting, struct buf *out)
{
    int64_t place = doc_int(json_object_get(waiting, "expected"), "place", 0);
    if (place > 0)
        (void)buf_addf(out, "%splace %lld in the queue", out->len ? "; " : "", (long long)place);
    (void)buf_addf(out, "%sstarts: ", out->len ? "; " : "");
    (void)forecast_text(waiting, out);
}

static void list_table(const struct history_rows *rows, const struct progress *progress)
{
    bool any = false;
    for (size_t i = 0; progress && i < rows->n; i++)
        any = any || progress[i].role || progress[i].restarts || progress[i].why ||
              progress[i].waiting;
    struct table t = { .n_cols = any ? 7 : 6 };
    table_add(&t, "APPLICATION", "NAME", "STATE", "TASKS", "SUBMITTED", "RAN",
              any ? "PROGRESS" : NULL, NULL);
    for (size_t i = 0; i < rows->n; i++) {
        const struct history_row *r = &rows->v[i];
        char tasks[16], submitted[32], ran[32] = "";
        (void)snprintf(tasks, sizeof tasks, "%u", r->n_tasks);
        local_time(r->submitted_wall_ms, submitted, sizeof submitted);
        if (r->ran_ms >= 0)
            (void)str_duration(r->ran_ms, ran, sizeof ran);
        AUTO(buf_done) struct buf steps = { 0 };
        if (any && progress[i].role)
            render_steps(progress[i].role, &steps);
        if (any && progress[i].restarts)
            (void)buf_addf(&steps, "%s%lld restart%s", steps.len ? ", " : "",
                           (long long)progress[i].restarts, progress[i].restarts > 1 ? "s" : "");
        if (any && progress[i].why)
            (void)buf_adds(&steps, progress[i].why);
        if (any && progress[i].waiting)
            add_start(progress[i].waiting, &steps);
        const char *text = buf_cstr(&steps);
        table_add(&t, r->application_id, r->name, r->state, tasks, submitted, ran,
                  any ? text + strspn(text, " ") : NULL, NULL);
    }
    table_print(&t);
}

int cmd_list(struct client *c)
{
    struct err e = { 0 };
    int64_t n;
    int64_t dflt = options_has(&c->o, OPT_ALL) ? 0 : LIST_DEFAULT;
    if (options_int(&c->o, OPT_N, 1, LIST_MAX, dflt, &n, &e) < 0)
        return client_fail(EXIT_MISUSE, &e);
    if (yarn_wanted(c))
        return yarn_cmd_list(c, (size_t)n);
    if (client_look_paths(c, &e) < 0)
        return client_fail(EXIT_CLUSTER, &e);

    /* Read one more row than requested, to learn whether there are more. */
    struct history_rows rows = { 0 };
    if (history_list(&c->paths, n ? (size_t)n + 1 : 0, &rows, &e) < 0)
        return client_fail(EXIT_CLUSTER, &e);
    /* The home could not be opened: report that instead of an empty list. */
    if (rows.n == 0 && c->looks_only)
        return client_fail(EXIT_CLUSTER, &c->not_opened);
    bool more = n && rows.n > (size_t)n;
    size_t kept = rows.n;
    if (more)
        rows.n = (size_t)n;
    struct progress *progress = ask_progress(c, &rows);
    int code;
    if (options_has(&c->o, OPT_JSON)) {
        code = client_print_json(list_json(&rows, progress));
    } else {
        if (rows.n == 0)
            client_note("no jobs in %s", c->paths.home);
        else
            list_table(&rows, progress);
        code = client_flush_stdout();
        if (more)
            client_note("there are more: --all shows them");
    }
    progress_done(progress, rows.n);
    rows.n = kept;
    for (size_t i = 0; i < rows.n; i++)
        if (rows.v[i].live && start_pool_if_orphaned(c, rows.v[i].application_id))
            break; /* the pool that this call started takes care of all jobs */
    history_rows_done(&rows);
    return code;
}

/* ---- status and tasks ---- */

/* "exit 3" or "signal 9"; the reason instead, if it says more. */
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
    (void)printf("  needs     %s, %lld GPUs\n",
                 str_size((uint64_t)doc_int(needs, "memory_mib", 0) << 20, need, sizeof need),
                 (long long)doc_int(needs, "gpus", 0));
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
    if (forecast_text(w, &start))
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
        (void)printf("            changed by: %s\n", buf_cstr(&change));
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
    json_array_foreach(json_object_get(doc, "nodes_left_out"), i, node)(void)
        printf("  left out  %s, which failed too often\n", json_string_value(node));
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
    if (doc_str(doc, "pausing")[0])
        (void)printf("  pauses    %s\n", doc_str(doc, "pausing"));
    role_lines(json_object_get(doc, "roles"));
    char ran[32];
    if (doc_int(doc, "ran_ms", -1) >= 0)
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
    if (find_on_yarn(c, c->o.args[0]))
        return yarn_cmd_load(c, c->o.args[0], out);
    if (find_app(c, c->o.args[0], id, &e) < 0)
        return client_fail(find_exit_code(&e), &e);
    if (status_load(c, id, out, &e) < 0)
        return client_fail(EXIT_CLUSTER, &e);
    pool_policy_add(c, *out);
    forecast_add(c, *out);
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
    status_text(c, doc);
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
