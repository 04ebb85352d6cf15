/* SPDX-License-Identifier: Apache-2.0 */
#include "client/show/why.h"

#include <ctype.h>
#include <stdio.h>

#include "base/base.h"
#include "cause/cause.h"
#include "client/client_int.h"
#include "client/pool/forecast.h"
#include "client/show/names.h"
#include "client/show/render.h"

/* The output and the prompt together fit a terminal of 80 columns and 24 rows. */
enum {
    WIDTH = 79,
    ROWS = 23,
    LABEL = 12, /* columns in front of the text */
    /* Of a longer list, this many are shown, and then "and N more". */
    TASKS_NAMED = 6,
    OTHERS_SHOWN = 2, /* other failures */
    DONE_SHOWN = 3,   /* earlier failures that tony handled, or nodes with failures */
    TAIL_MIN = 3,     /* lines of the task's output, however few rows are left */
};

static size_t columns(struct span text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += ((unsigned char)text.p[i] & 0xc0) != 0x80;
    return n;
}

/* Append " label text", wrapped at WIDTH. A word that is longer than a line is not broken. */
static void say(struct buf *out, const char *label, const char *text)
{
    size_t col = LABEL;
    struct span rest = span_of(text), word;
    (void)buf_addf(out, "  %-*s", LABEL - 2, label);
    for (bool first = true; span_split(&rest, ' ', &word); first = false) {
        if (!first && col + 1 + columns(word) > WIDTH) {
            (void)buf_addf(out, "\n%*s", LABEL, "");
            col = LABEL;
        } else if (!first) {
            (void)buf_addc(out, ' ');
            col++;
        }
        (void)buf_addf(out, "%.*s", (int)word.len, word.p);
        col += columns(word);
    }
    /* A failed append sets out->failed: the output is shorter then. */
    (void)buf_addc(out, '\n');
}

static bool flag(const json_t *obj, const char *key)
{
    return json_is_true(json_object_get(obj, key));
}

/* The time since the first task was started, as text. */
static const char *since_text(const json_t *doc, int64_t at_ms, char *out, size_t n)
{
    int64_t start = doc_int(json_object_get(doc, "times"), "started_ms", 0);
    char text[32];
    (void)snprintf(out, n, "%s after the start",
                   str_duration(MAX(at_ms - start, (int64_t)0), text, sizeof text));
    return out;
}

static const char *end_text(const json_t *failure, char *out, size_t n)
{
    const char *reason = doc_str(failure, "reason"), *known = doc_str(failure, "known");
    int64_t signal = doc_int(failure, "signal", 0);
    if (str_eq(reason, "killed_by_master"))
        (void)str_copy(out, n, "was failing when it was stopped");
    else if (signal)
        (void)snprintf(out, n, "signal %lld", (long long)signal);
    else if (json_is_integer(json_object_get(failure, "exit_code")))
        (void)snprintf(out, n, "exit code %lld", (long long)doc_int(failure, "exit_code", 0));
    else
        (void)str_copy(out, n,
                       str_eq(known, "executor_lost") ? "executor lost"
                       : str_eq(known, "keeper_lost") ? "keeper lost"
                                                      : reason);
    return out;
}

static const json_t *task_of(const json_t *doc, const char *name)
{
    size_t i;
    json_t *task;
    json_array_foreach(json_object_get(doc, "tasks"), i, task)
    {
        if (str_eq(doc_str(task, "task"), name))
            return task;
    }
    return NULL;
}

static const json_t *first_failure(const json_t *doc)
{
    size_t i;
    json_t *f;
    json_array_foreach(json_object_get(doc, "failures"), i, f)
    {
        if (flag(f, "first"))
            return f;
    }
    return NULL;
}

char *why_log(const char *dir, const json_t *doc)
{
    const json_t *cause = json_object_get(doc, "cause");
    const char *task = doc_str(cause, "task"), *colon = strrchr(task, ':');
    int64_t attempt = doc_int(cause, "attempt", 1), rank = doc_int(cause, "rank", 0);
    if (!colon || attempt < 1) /* no attempt was started: there is no log */
        return NULL;
    AUTO(free_p)
    char *path = str_printf("%s/logs/%.*s-%s/%lld/stderr", dir, (int)(colon - task), task,
                            colon + 1, (long long)attempt);
    return rank > 0 && path ? str_printf("%s.%lld", path, (long long)rank) : TAKE(path);
}

/* ---- the first failure ---- */

static void say_first(const json_t *doc, const json_t *f, struct buf *out)
{
    AUTO(buf_done) struct buf text = { 0 };
    char since[64], end[40];
    const char *node = doc_str(f, "node");
    int64_t attempt = doc_int(f, "attempt", 0), step = doc_int(f, "step", 0);
    (void)buf_addf(&text, "%s, %s", doc_str(f, "task"),
                   since_text(doc, doc_int(f, "at_ms", 0), since, sizeof since));
    if (attempt > 1)
        (void)buf_addf(&text, ", in its attempt %lld", (long long)attempt);
    else if (attempt == 0)
        (void)buf_adds(&text, ", before its command was started");
    if (node[0])
        (void)buf_addf(&text, ", on %s", node);
    if (step > 0)
        (void)buf_addf(&text, ", at step %lld", (long long)step);
    (void)buf_addf(&text, ": %s", end_text(f, end, sizeof end));
    say(out, "first", buf_cstr(&text));
}

static void say_meaning(const json_t *f, struct buf *out)
{
    const char *detail = doc_str(f, "detail"), *line = doc_str(f, "line");
    AUTO(free_p)
    char *what = str_printf("%s%s%s", doc_str(f, "what"), detail[0] ? ": " : "", detail);
    say(out, "cause", what ? what : doc_str(f, "what"));
    if (line[0] && !strstr(detail, line))
        say(out, "", line);
    say(out, "remedy", doc_str(f, "remedy"));
}

/* If the failure is a lost peer: the task that probably caused it. */
static void say_suspects(const json_t *f, struct buf *out)
{
    const json_t *left = json_object_get(f, "left_before"), *behind = json_object_get(f, "behind");
    char before[32];
    AUTO(free_p) char *text = NULL;
    if (json_is_object(left))
        text = str_printf("%s had succeeded %s before: too early for the others?",
                          doc_str(left, "task"),
                          str_duration(doc_int(left, "before_ms", 0), before, sizeof before));
    else if (json_is_object(behind))
        text = str_printf("%s is behind the others, at step %lld", doc_str(behind, "task"),
                          (long long)doc_int(behind, "step", 0));
    if (text)
        say(out, "perhaps", text);
}

static size_t rows_of(struct span text)
{
    struct span line;
    size_t rows = 0;
    while (text.len && span_split(&text, '\n', &line))
        rows += 1 + (columns(line) ? (columns(line) - 1) / (WIDTH + 1) : 0);
    return rows;
}

static void add_cut(struct buf *out, struct span line)
{
    enum { INDENT = 4, DOTS = 3 };
    size_t n = 0, cols = 0;
    bool fits = columns(line) + INDENT <= WIDTH;
    while (n < line.len && (fits || cols + INDENT + DOTS < WIDTH)) {
        cols += ((unsigned char)line.p[n] & 0xc0) != 0x80;
        n++;
    }
    while (n < line.len && ((unsigned char)line.p[n] & 0xc0) == 0x80)
        n++;
    (void)buf_addf(out, "    %.*s%s\n", (int)n, line.p, fits ? "" : "...");
}

/* Append the last lines of the cause's stderr, as many as fit into `rows`. */
static void say_tail(const json_t *cause, size_t rows, struct buf *out)
{
    const char *text = doc_str(cause, "stderr_tail");
    bool of_stdout = str_starts(text, CAUSE_STDOUT_MARK);
    struct span tail = span_of(text + (of_stdout ? sizeof CAUSE_STDOUT_MARK - 1 : 0)), line;
    while (tail.len && tail.p[0] == '\n')
        tail = span_mem(tail.p + 1, tail.len - 1);
    while (tail.len && isspace((unsigned char)tail.p[tail.len - 1]))
        tail.len--;
    size_t n = 0, max = MAX(rows, (size_t)TAIL_MIN);
    for (size_t i = tail.len; i > 0; i--)
        if (tail.p[i - 1] == '\n' && ++n == max) {
            tail = span_mem(tail.p + i, tail.len - i);
            break;
        }
    if (tail.len)
        (void)buf_addf(out, "  last lines of its %s:\n", of_stdout ? "stdout" : "stderr");
    while (tail.len && span_split(&tail, '\n', &line))
        add_cut(out, line);
}

/* ---- further failures ---- */

/* Name in one line the tasks that failed only as a consequence. */
static void say_victims(const json_t *doc, const json_t *first, struct buf *out)
{
    AUTO(buf_done) struct buf text = { 0 };
    size_t i, n = 0;
    json_t *f;
    json_array_foreach(json_object_get(doc, "failures"), i, f)
    {
        if (f == first || !flag(f, "victim") || json_is_string(json_object_get(f, "done")))
            continue;
        if (n < TASKS_NAMED)
            (void)buf_addf(&text, "%s%s", n ? ", " : "", doc_str(f, "task"));
        n++;
    }
    if (n > TASKS_NAMED)
        (void)buf_addf(&text, " and %zu more", n - TASKS_NAMED);
    if (!n)
        return;
    (void)buf_addf(&text, " lost a peer: a consequence, not the cause");
    say(out, "victims", buf_cstr(&text));
}

static void say_more(size_t n, size_t shown, struct buf *out)
{
    char text[64];
    (void)snprintf(text, sizeof text, "and %zu more: see --json", n - MIN(n, shown));
    if (n > shown)
        say(out, "", text);
}

/* Append a failure in short form, without text that repeats the first failure. */
static void add_short(const json_t *doc, const json_t *first, const json_t *f, struct buf *out)
{
    int64_t start = doc_int(json_object_get(doc, "times"), "started_ms", 0);
    int64_t at = doc_int(f, "at_ms", 0) - start, attempt = doc_int(f, "attempt", 0);
    const char *node = doc_str(f, "node"), *line = doc_str(f, "line");
    char time[32], end[40];
    bool same = first && str_eq(doc_str(f, "known"), doc_str(first, "known")) &&
                str_eq(line, doc_str(first, "line"));
    (void)buf_addf(out, "%s", doc_str(f, "task"));
    if (attempt > 1 || json_is_string(json_object_get(f, "done")))
        (void)buf_addf(out, " attempt %lld", (long long)attempt);
    if (node[0])
        (void)buf_addf(out, " on %s", node);
    (void)buf_addf(out, " at %s: %s", str_duration(MAX(at, (int64_t)0), time, sizeof time),
                   end_text(f, end, sizeof end));
    bool lost = str_eq(doc_str(f, "reason"), "node_lost") && doc_str(f, "detail")[0];
    if (!same && !str_eq(doc_str(f, "known"), "keeper_lost")) /* its end says the same */
        (void)buf_addf(out, ", %s", doc_str(f, lost ? "detail" : "what"));
}

static void say_others(const json_t *doc, const json_t *first, struct buf *out)
{
    size_t i, n = 0;
    json_t *f;
    json_array_foreach(json_object_get(doc, "failures"), i, f)
    {
        if (f == first || flag(f, "victim") || json_is_string(json_object_get(f, "done")))
            continue;
        if (n >= OTHERS_SHOWN) {
            n++;
            continue;
        }
        AUTO(buf_done) struct buf text = { 0 };
        add_short(doc, first, f, &text);
        say(out, n++ ? "" : "also", buf_cstr(&text));
    }
    say_more(n, OTHERS_SHOWN, out);
}

/* Failures before, and how tony handled each. */
static void say_done(const json_t *doc, const json_t *first, struct buf *out)
{
    size_t i, n = 0;
    json_t *f;
    json_array_foreach(json_object_get(doc, "failures"), i, f)
    {
        const char *done = doc_str(f, "done");
        if (f == first || !done[0])
            continue;
        if (n >= DONE_SHOWN) {
            n++;
            continue;
        }
        AUTO(buf_done) struct buf text = { 0 };
        add_short(doc, first, f, &text);
        (void)buf_addf(&text, "; %s", done);
        say(out, n++ ? "" : "before", buf_cstr(&text));
    }
    say_more(n, DONE_SHOWN, out);
}

/* Say how to find out why a keeper of a job that runs again was killed. */
static void say_keeper(const json_t *doc, struct buf *out)
{
    size_t i;
    json_t *f;
    json_array_foreach(json_object_get(doc, "failures"), i, f)
    {
        if (!str_eq(doc_str(f, "known"), "keeper_lost"))
            continue;
        say(out, "remedy", doc_str(f, "remedy"));
        return;
    }
}

/* Nodes with two failures or more, and nodes that are excluded. */
static void say_nodes(const json_t *doc, struct buf *out)
{
    size_t i, n = 0;
    json_t *node;
    json_array_foreach(json_object_get(doc, "bad_nodes"), i, node)
    {
        int64_t failures = doc_int(node, "failures", 0);
        if (failures < 2 && !flag(node, "left_out"))
            continue;
        AUTO(free_p)
        char *text = str_printf("%s: %lld failures%s", doc_str(node, "node"), (long long)failures,
                                flag(node, "left_out") ? "; left out of new requests" : "");
        if (text && n < DONE_SHOWN)
            say(out, n++ ? "" : "nodes", text);
    }
}

/* Append the last resize, the user or policy that asked for it, and the reason. live: the job is
 * not over. Of a job that is over, only a resize that failed explains something. */
static void say_resize(const json_t *doc, bool live, struct buf *out)
{
    AUTO(buf_done) struct buf text = { 0 };
    const json_t *last = json_object_get(doc, "last_resize");
    const char *outcome = doc_str(last, "outcome"), *who = doc_str(last, "who");
    const char *why = doc_str(last, "why");
    int64_t at_ms = doc_int(last, "at_ms", -1);
    int64_t now_ms = doc_int(json_object_get(doc, "times"), "now_ms", -1);
    char ago[32];
    if (!outcome[0] || (!live && str_eq(outcome, "done")) || !render_last_resize(doc, &text))
        return;
    if (live && at_ms >= 0 && now_ms >= at_ms)
        (void)buf_addf(&text, ", %s ago", str_duration(now_ms - at_ms, ago, sizeof ago));
    if (who[0])
        (void)buf_addf(&text, "; asked for by %s%s%s", who, why[0] ? ": " : "", why);
    say(out, "resize", buf_cstr(&text));
}

void why_orphans(const json_t *doc, struct buf *out)
{
    const json_t *orphans = json_object_get(doc, "orphans");
    int64_t ended_ms = doc_int(json_object_get(doc, "times"), "ended_ms", 0), until_ms = 0;
    AUTO(buf_done) struct buf text = { 0 };
    char time[32];
    size_t i;
    json_t *x;
    json_array_foreach(orphans, i, x)
    {
        const char *node = doc_str(x, "node");
        until_ms = MAX(until_ms, doc_int(x, "until_ms", 0));
        if (i < TASKS_NAMED)
            (void)buf_addf(&text, "%s%s%s%s", i ? ", " : "", doc_str(x, "task"),
                           node[0] ? " on " : "", node);
    }
    size_t n = json_array_size(orphans);
    if (n > TASKS_NAMED)
        (void)buf_addf(&text, " and %zu more", n - TASKS_NAMED);
    if (n == 0)
        return;
    (void)buf_addf(&text,
                   " may still run, for at most %s after the end of the job; until then, start no "
                   "job that writes to the same checkpoints",
                   str_duration(MAX(until_ms - ended_ms, (int64_t)0), time, sizeof time));
    say(out, "orphans", buf_cstr(&text));
}

void why_left(const json_t *doc, struct buf *out)
{
    const json_t *left = json_object_get(doc, "containers_left");
    const char *engine = doc_str(json_array_get(left, 0), "engine"), *slash = strrchr(engine, '/');
    const char *program = slash ? slash + 1 : engine;
    size_t n = json_array_size(left), i;
    AUTO(buf_done) struct buf text = { 0 };
    json_t *x;
    if (n == 0)
        return;
    (void)buf_addf(&text,
                   "%s has not removed %zu container%s, and tony tries again; or call: ", program,
                   n, n == 1 ? "" : "s");
    (void)buf_addf(&text, "%s rm --force", program);
    json_array_foreach(left, i, x)
    {
        if (i < TASKS_NAMED)
            (void)buf_addf(&text, " %s", doc_str(x, "name"));
    }
    if (n > TASKS_NAMED)
        (void)buf_addf(&text, " and %zu more", n - TASKS_NAMED);
    say(out, "left", buf_cstr(&text));
}

/* If no task has caused the end of the job, but a time limit or a keeper that was killed: append
 * what to do about it. */
static void say_limit(const json_t *doc, struct buf *out)
{
    static const struct {
        const char *text, *remedy;
    } limits[] = {
        { "the application timeout of",
          "raise tony.application.timeout (0: none), or find out what takes so long" },
        { "waited for its containers for more than", "raise tony.container.allocation.timeout (-1: "
                                                     "none), or ask for less; tony list shows who "
                                                     "holds the room" },
        { "containers were not granted within", "raise tony.container.allocation.timeout (-1: "
                                                "none), or ask for less; tony list shows who "
                                                "holds the room" },
        { "its client was away for more than",
          "raise tony.client.away-limit (-1: none), or start it with tony submit" },
        { "its keeper dies again and again",
          "find out what ends the process of tony that watches the tasks: an administrator, a "
          "script, or the kernel because the whole machine has no memory left (dmesg | grep -i oom "
          "tells); keeper.log of the job has its last messages" },
    };
    const char *message = doc_str(doc, "message");
    for (size_t i = 0; i < ARRAY_LEN(limits); i++)
        if (strstr(message, limits[i].text))
            say(out, "remedy", limits[i].remedy);
}

void why_failed(const json_t *doc, const char *log, size_t used, struct buf *out)
{
    const json_t *cause = json_object_get(doc, "cause");
    /* Otherwise all failures were tolerated. */
    const json_t *first = json_is_object(cause) ? first_failure(doc) : NULL;
    AUTO(buf_done) struct buf after = { 0 };
    if (first) {
        say_first(doc, first, out);
        say_meaning(first, out);
        say_suspects(first, out);
    } else {
        say_limit(doc, out);
    }
    if (json_is_object(cause) && log && log[0])
        (void)buf_addf(&after, "  its log   %s\n", log);
    if (json_is_object(cause))
        say_victims(doc, first, &after);
    say_others(doc, first, &after);
    say_done(doc, first, &after);
    say_nodes(doc, &after);
    say_resize(doc, false, &after);
    why_orphans(doc, &after);
    why_left(doc, &after);
    used += rows_of(buf_span(out)) + rows_of(buf_span(&after)) + 1;
    if (json_is_object(cause))
        say_tail(cause, used < ROWS ? ROWS - used : 0, out);
    (void)buf_add(out, after.p, after.len);
}

/* ---- a job that is still live ---- */

/* Name the tasks in this state; NULL = those with the flag `suspect`. */
static void say_tasks(const json_t *doc, const char *state, const char *label, const char *why,
                      struct buf *out)
{
    AUTO(buf_done) struct buf text = { 0 };
    size_t i, n = 0;
    json_t *task;
    json_array_foreach(json_object_get(doc, "tasks"), i, task)
    {
        bool is = state ? str_eq(doc_str(task, "state"), state) : flag(task, "suspect");
        if (is && n++ < TASKS_NAMED)
            (void)buf_addf(&text, "%s%s", text.len ? ", " : "", doc_str(task, "task"));
    }
    if (n > TASKS_NAMED)
        (void)buf_addf(&text, " and %zu more", n - TASKS_NAMED);
    if (!n)
        return;
    (void)buf_addf(&text, ": %s", why);
    say(out, label, buf_cstr(&text));
}

/* Append the place in the queue, the resources that the job still needs to start, and its expected
 * start. */
static void say_forecast(const json_t *waiting, struct buf *out)
{
    AUTO(buf_done) struct buf lacks = { 0 };
    AUTO(buf_done) struct buf start = { 0 };
    char place[48];
    if (doc_int(waiting, "place", 0) > 0) {
        (void)snprintf(place, sizeof place, "%lld in the queue",
                       (long long)doc_int(waiting, "place", 0));
        say(out, "place", place);
    }
    if (forecast_missing(waiting, &lacks))
        say(out, "lacks", buf_cstr(&lacks));
    if (doc_str(waiting, "held")[0])
        say(out, "held", doc_str(waiting, "held"));
    else if (forecast_text(waiting, &start))
        say(out, "starts", buf_cstr(&start));
}

/* Append what a live job waits for, and what has failed so far. */
static void why_not_over(const json_t *doc, struct buf *out)
{
    const char *state = doc_str(doc, "state");
    char waiting[256];
    render_waiting(doc, waiting, sizeof waiting);
    if (waiting[0])
        say(out, doc_str(doc, "trouble")[0] ? "trouble" : "waits", waiting);
    else if (str_eq(state, "STARTING"))
        say(out, "waits", "it was admitted, and its master is being started");
    else if (!json_is_array(json_object_get(doc, "tasks")))
        say(out, "waits",
            doc_str(doc, "message")[0] ? doc_str(doc, "message")
                                       : "for the cluster to start its master");
    if (doc_str(doc, "awaits")[0])
        say(out, "awaits", doc_str(doc, "awaits"));
    say_forecast(json_object_get(doc, "waiting"), out);
    AUTO(buf_done) struct buf policy = { 0 };
    AUTO(buf_done) struct buf change = { 0 };
    if (render_policy(doc, &policy, &change)) {
        bool waits = json_is_object(json_object_get(doc, "waiting"));
        say(out, waits ? "because" : "size", buf_cstr(&policy));
        if (change.len)
            say(out, "", buf_cstr(&change));
    }
    say_tasks(doc, "waiting", "waits", "a container was asked for and not granted yet", out);
    say_tasks(doc, "placed", "starts", "granted; its executor has not registered yet", out);
    say_tasks(doc, "registered", "ready", "registered; waits for the rest of the gang", out);
    /* While the job waits for the pool, all its tasks wait: say nothing about single tasks. */
    if (!json_is_object(json_object_get(doc, "waiting")))
        say_tasks(doc, "held", "held", "its turn has not come: roles that it waits for still run",
                  out);
    say_tasks(doc, "halting", "again", "is being stopped, then restarts", out);
    say_tasks(doc, "replacing", "again", "waits for another container", out);
    say_tasks(doc, "renewing", "again", "prepares its restart", out);
    say_tasks(doc, "stopping", "stops", "is being stopped", out);
    say_tasks(doc, NULL, "silent", "has missed three heartbeats", out);
    say_others(doc, NULL, out);
    say_done(doc, NULL, out);
    say_keeper(doc, out);
    say_nodes(doc, out);
    AUTO(buf_done) struct buf resize = { 0 };
    if (render_resize(doc, &resize))
        say(out, "resize", buf_cstr(&resize));
    say_resize(doc, true, out);
    if (!out->len)
        say(out, "nothing", "all tasks run, and none has failed");
}

/* ---- the command ---- */

static int why_json(json_t *doc)
{
    static const char *const members[] = {
        "application_id", "state",  "exit_code", "message",        "waiting",   "pausing",
        "trouble",        "awaits", "cause",     "failures",       "bad_nodes", "resize",
        "last_resize",    "policy", "orphans",   "containers_left"
    };
    json_t *out = json_object();
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        json_t *v = json_object_get(doc, members[i]);
        if (v)
            /* If this fails, the output lacks a member. */
            (void)json_object_set(out, members[i], v);
    }
    json_decref(doc);
    return client_print_json(out);
}

int cmd_why(struct client *c)
{
    json_t *doc = NULL;
    int code = query_load(c, &doc);
    if (code)
        return code;
    if (options_has(&c->o, OPT_JSON))
        return why_json(doc);
    json_t *read = doc;
    doc = names_shown(c, read, false);
    json_decref(read);
    const char *state = doc_str(doc, "state"), *message = doc_str(doc, "message");
    bool over = json_is_integer(json_object_get(doc, "exit_code"));
    AUTO(buf_done) struct buf out = { 0 };
    AUTO(buf_done) struct buf head = { 0 };
    (void)buf_addf(&head, "job %s %s%s%s\n", doc_str(doc, "application_id"), state,
                   message[0] ? ": " : "", message);
    (void)printf("job %s %s%s%s%s%s\n", doc_str(doc, "application_id"),
                 c->out_color ? state_color(state) : "", state, c->out_color ? "\033[0m" : "",
                 message[0] ? ": " : "", message);
    const json_t *task = task_of(doc, doc_str(json_object_get(doc, "cause"), "task"));
    AUTO(free_p) char *log = why_log(doc_str(doc, "directory"), doc);
    if (over)
        why_failed(doc, doc_str(task, "log_url")[0] ? doc_str(task, "log_url") : log,
                   rows_of(buf_span(&head)), &out);
    else
        why_not_over(doc, &out);
    (void)fputs(buf_cstr(&out), stdout);
    json_decref(doc);
    return client_flush_stdout();
}
