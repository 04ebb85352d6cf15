#include "client/why.h"

#include <stdio.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/render.h"

enum {
    WIDTH = 100,
    LABEL = 12, /* columns before the text */
    TASKS_NAMED = 8,
    OTHERS_SHOWN = 5,
    DONE_SHOWN = 8,
};

/* "  label     text", broken between words; a word that is too long stays whole. */
static void say(struct buf *out, const char *label, const char *text)
{
    size_t col = LABEL;
    struct span rest = span_of(text), word;
    (void)buf_addf(out, "  %-*s", LABEL - 2, label);
    for (bool first = true; span_split(&rest, ' ', &word); first = false) {
        if (!first && col + 1 + word.len > WIDTH) {
            (void)buf_addf(out, "\n%*s", LABEL, "");
            col = LABEL;
        } else if (!first) {
            (void)buf_addc(out, ' ');
            col++;
        }
        (void)buf_addf(out, "%.*s", (int)word.len, word.p);
        col += word.len;
    }
    (void)buf_addc(out,
                   '\n'); /* a failed append shows in out->failed; then there is less to read */
}

static bool flag(const json_t *obj, const char *key)
{
    return json_is_true(json_object_get(obj, key));
}

/* Counted from when the first task was started. */
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
    const char *reason = doc_str(failure, "reason");
    int64_t signal = doc_int(failure, "signal", 0);
    if (str_eq(reason, "killed_by_master"))
        (void)str_copy(out, n, "was failing when it was stopped");
    else if (signal)
        (void)snprintf(out, n, "signal %lld", (long long)signal);
    else if (json_is_integer(json_object_get(failure, "exit_code")))
        (void)snprintf(out, n, "exit code %lld", (long long)doc_int(failure, "exit_code", 0));
    else
        (void)str_copy(out, n, reason);
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
    int64_t attempt = doc_int(cause, "attempt", 1);
    if (!colon || attempt < 1) /* it never started */
        return NULL;
    return str_printf("%s/logs/%.*s-%s/%lld/stderr", dir, (int)(colon - task), task, colon + 1,
                      (long long)attempt);
}

/* ---- the first ---- */

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

static void say_tail(const json_t *cause, struct buf *out)
{
    struct span tail = span_trim(span_of(doc_str(cause, "stderr_tail"))), line;
    if (tail.len)
        (void)buf_adds(out, "  last lines of its stderr:\n");
    while (tail.len && span_split(&tail, '\n', &line))
        (void)buf_addf(out, "    %.*s\n", (int)line.len, line.p);
}

/* ---- the others ---- */

/* Who failed only because of it, in one line. */
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
    (void)buf_addf(&text, " lost a peer; that is a consequence, no cause");
    say(out, "victims", buf_cstr(&text));
}

static void say_others(const json_t *doc, const json_t *first, struct buf *out)
{
    size_t i, n = 0;
    json_t *f;
    json_array_foreach(json_object_get(doc, "failures"), i, f)
    {
        char since[64], end[40];
        if (f == first || flag(f, "victim") || json_is_string(json_object_get(f, "done")) ||
            n == OTHERS_SHOWN)
            continue;
        AUTO(free_p)
        char *text = str_printf("%s, %s: %s; %s", doc_str(f, "task"),
                                since_text(doc, doc_int(f, "at_ms", 0), since, sizeof since),
                                end_text(f, end, sizeof end), doc_str(f, "what"));
        say(out, n++ ? "" : "also", text ? text : doc_str(f, "task"));
    }
}

/* What was done about failures before. */
static void say_done(const json_t *doc, const json_t *first, struct buf *out)
{
    size_t i, n = 0;
    json_t *f;
    json_array_foreach(json_object_get(doc, "failures"), i, f)
    {
        char since[64], end[40];
        const char *done = doc_str(f, "done"), *node = doc_str(f, "node");
        if (f == first || !done[0] || n == DONE_SHOWN)
            continue;
        AUTO(free_p)
        char *text = str_printf("%s attempt %lld%s%s, %s: %s, %s; %s", doc_str(f, "task"),
                                (long long)doc_int(f, "attempt", 0), node[0] ? " on " : "", node,
                                since_text(doc, doc_int(f, "at_ms", 0), since, sizeof since),
                                end_text(f, end, sizeof end), doc_str(f, "what"), done);
        say(out, n++ ? "" : "before", text ? text : done);
    }
}

/* Where something failed more than once, or that is left out. */
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

void why_failed(const json_t *doc, const char *log, struct buf *out)
{
    const json_t *cause = json_object_get(doc, "cause"), *first = first_failure(doc);
    if (!json_is_object(cause)) {
        say_others(doc, NULL, out);
        say_done(doc, NULL, out);
        say_nodes(doc, out);
        return;
    }
    if (first) {
        say_first(doc, first, out);
        say_meaning(first, out);
    }
    say_tail(cause, out);
    if (log && log[0])
        (void)buf_addf(out, "  its log  %s\n", log);
    say_victims(doc, first, out);
    say_others(doc, first, out);
    say_done(doc, first, out);
    say_nodes(doc, out);
}

/* ---- a job that is not over ---- */

/* Tasks of a state, named. */
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

void why_not_over(const json_t *doc, struct buf *out)
{
    const char *state = doc_str(doc, "state");
    char waiting[256];
    render_waiting(doc, waiting, sizeof waiting);
    if (waiting[0])
        say(out, "waits", waiting);
    else if (str_eq(state, "STARTING"))
        say(out, "waits", "it was admitted, and its master is being started");
    else if (!json_is_array(json_object_get(doc, "tasks")))
        say(out, "waits",
            doc_str(doc, "message")[0] ? doc_str(doc, "message")
                                       : "for the cluster to start its master");
    say_tasks(doc, "waiting", "waits", "a container was asked for and not granted yet", out);
    say_tasks(doc, "placed", "starts", "granted; its executor has not registered yet", out);
    say_tasks(doc, "registered", "ready", "there, and waits until the whole gang is", out);
    say_tasks(doc, "held", "held", "its turn has not come: roles that it waits for still run", out);
    say_tasks(doc, "stopping", "stops", "told to end", out);
    say_tasks(doc, NULL, "silent", "nothing was heard of it for three heartbeats", out);
    say_others(doc, NULL, out);
    say_done(doc, NULL, out);
    say_nodes(doc, out);
    if (!out->len)
        say(out, "nothing", "all tasks run, and none has failed");
}

/* ---- the command ---- */

static int why_json(json_t *doc)
{
    static const char *const members[] = { "application_id", "state",    "exit_code",
                                           "message",        "waiting",  "pausing",
                                           "cause",          "failures", "bad_nodes" };
    json_t *out = json_object();
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        json_t *v = json_object_get(doc, members[i]);
        if (v)
            (void)json_object_set(out, members[i], v); /* a member less, if that */
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
    const char *state = doc_str(doc, "state"), *message = doc_str(doc, "message");
    bool over = json_is_integer(json_object_get(doc, "exit_code"));
    AUTO(buf_done) struct buf out = { 0 };
    (void)printf("job %s %s%s%s%s%s\n", doc_str(doc, "application_id"),
                 c->out_color ? state_color(state) : "", state, c->out_color ? "\033[0m" : "",
                 message[0] ? ": " : "", message);
    const json_t *task = task_of(doc, doc_str(json_object_get(doc, "cause"), "task"));
    AUTO(free_p) char *log = why_log(doc_str(doc, "directory"), doc);
    if (over)
        why_failed(doc, doc_str(task, "log_url")[0] ? doc_str(task, "log_url") : log, &out);
    else
        why_not_over(doc, &out);
    (void)fputs(buf_cstr(&out), stdout);
    json_decref(doc);
    return client_flush_stdout();
}
