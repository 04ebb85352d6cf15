/* SPDX-License-Identifier: Apache-2.0 */
#include "client/job/output.h"

#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/show/lines.h"
#include "client/show/render.h"
#include "client/show/sink.h"
#include "conf/conf.h"
#include "loop/loop.h"

enum {
    TICK_MS = 1000, /* between two calls of on_timer() */
    /* as in src/master/log_watch.c: with more tasks, `auto` shows only the chief's output */
    AUTO_TASKS = 4,
    REST_MAX = 16 << 10, /* output_rest() shows at most this many bytes of each log */
    /* of jobs with more tasks, output_rest() shows nothing: `tony logs` does */
    REST_TASKS_MAX = 1000,
};

/* ---- the options ---- */

int log_choice_parse(const char *text, size_t len, struct cluster_log_choice *out, struct err *e)
{
    const char *colon = memrchr(text, ':', len);
    size_t role_len = colon ? (size_t)(colon - text) : len;
    *out = (struct cluster_log_choice){ .role = text, .role_len = role_len, .index = -1 };
    if (!role_len)
        return err_set(e, EINVAL, "'%.*s' is not a task: write ROLE:INDEX, such as worker:0",
                       (int)len, text);
    return colon ? str_i64(span_mem(colon + 1, len - role_len - 1), 0, UINT32_MAX, "task index",
                           &out->index, e)
                 : 0;
}

static int parse_output(const char *text, struct output_wish *out, struct err *e)
{
    static const struct {
        const char *word;
        enum cluster_output which;
    } words[] = {
        { "auto", CLUSTER_OUTPUT_AUTO },
        { "all", CLUSTER_OUTPUT_ALL },
        { "chief", CLUSTER_OUTPUT_CHIEF },
        { "none", CLUSTER_OUTPUT_NONE },
    };
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (str_eq(text, words[i].word)) {
            out->which = words[i].which;
            return 0;
        }
    }
    struct span rest = span_of(text), one;
    int rc = 0;
    out->which = CLUSTER_OUTPUT_CHOSEN;
    while (rc == 0 && span_split(&rest, ',', &one)) {
        if (out->n_chosen == OUTPUT_TASKS_MAX)
            return err_set(e, E2BIG, "--output names more than %d tasks", OUTPUT_TASKS_MAX);
        rc = log_choice_parse(one.p, one.len, &out->chosen[out->n_chosen++], e);
    }
    if (rc < 0)
        err_hint(e, "--output is all, chief, none, or tasks such as worker:0,ps");
    return rc;
}

int output_wish(const struct client *c, struct output_wish *out, struct err *e)
{
    const char *text = options_get(&c->o, OPT_OUTPUT);
    bool quiet = options_has(&c->o, OPT_QUIET), json = options_has(&c->o, OPT_JSON);
    *out = (struct output_wish){ .which = quiet || json ? CLUSTER_OUTPUT_NONE : CLUSTER_OUTPUT_AUTO,
                                 .quiet = quiet };
    return text ? parse_output(text, out, e) : 0;
}

int output_check(const struct output_wish *w, const struct job_spec *s, struct err *e)
{
    enum { ROLES_MAX = 64 };
    const char *names[ROLES_MAX];
    size_t n = MIN(s->n_roles, (size_t)ROLES_MAX);
    for (size_t i = 0; i < n; i++)
        names[i] = s->roles[i].name;
    for (size_t k = 0; k < w->n_chosen; k++) {
        const struct cluster_log_choice *x = &w->chosen[k];
        AUTO(free_p) char *role = strndup(x->role, x->role_len);
        const struct role_spec *r = NULL;
        for (size_t i = 0; role && i < s->n_roles && !r; i++)
            r = str_eq(s->roles[i].name, role) ? &s->roles[i] : NULL;
        if (role && !r) {
            const char *near = str_nearest(role, names, n);
            (void)err_set(e, EINVAL, "--output: the job has no role '%s'", role);
            return near ? err_hint(e, "did you mean '%s'?", near)
                        : err_hint(e, "--output is all, chief, none, or tasks such as %s:0",
                                   n ? names[0] : "worker");
        }
        if (r && x->index >= (int64_t)r->instances)
            client_note("role '%s' has %u tasks: the output of %s:%lld is shown if the job grows",
                        role, r->instances, role, (long long)x->index);
    }
    return 0;
}

/* ---- the lines ---- */

/* With a progress display on the terminal, the lines go above it. With --json, standard output has
 * the document only. */
static int put(const char *p, size_t n, bool is_stderr, void *arg)
{
    struct output *o = arg;
    bool json = options_has(&o->c->o, OPT_JSON);
    int fd = is_stderr || json ? STDERR_FILENO : STDOUT_FILENO;
    struct sink *s = fd == STDERR_FILENO ? o->err : o->out;
    if (o->render && o->c->tty && isatty(fd))
        render_text(o->render, p, n, fd);
    else if (s)
        sink_put(s, p, n);
    return 0;
}

static void on_timer(void *arg)
{
    struct output *o = arg;
    int64_t now = clock_mono_ms();
    for (size_t i = 0; i < ARRAY_LEN(o->lines); i++)
        if (o->lines[i])
            (void)lines_tick(o->lines[i], now); /* put() does not fail */
    loop_timer_set(o->timer, now + TICK_MS);
}

void output_open(struct output *o, struct client *c, struct render *render)
{
    *o = (struct output){ .c = c, .render = render };
    o->out = sink_new(c->host.loop, STDOUT_FILENO);
    o->err = sink_new(c->host.loop, STDERR_FILENO);
    for (size_t i = 0; i < ARRAY_LEN(o->lines); i++) {
        bool to_err = i || options_has(&c->o, OPT_JSON);
        const struct lines_config cfg = {
            .prefix = true,
            .color = to_err ? c->color : c->out_color,
            .terminal = isatty(to_err ? STDERR_FILENO : STDOUT_FILENO),
            .put = put,
            .arg = o,
        };
        o->lines[i] = lines_new(&cfg);
    }
    o->timer = loop_timer_new(c->host.loop, on_timer, o);
    if (o->timer)
        loop_timer_set(o->timer, clock_mono_ms() + TICK_MS);
    if (render)
        render_set_sink(render, o->err);
}

/* ---- what was shown ---- */

static struct shown_log *shown_of(struct output *o, const char *task, const char *stream,
                                  uint32_t rank)
{
    for (size_t i = 0; i < o->shown.n; i++) {
        struct shown_log *s = &o->shown.v[i];
        if (s->rank == rank && str_eq(s->task, task) && str_eq(s->stream, stream))
            return s;
    }
    return NULL;
}

static void note_shown(struct output *o, const struct cluster_log_text *t)
{
    const char *stream = str_eq(t->stream, "stderr") ? "stderr" : "stdout";
    struct shown_log *s = shown_of(o, t->task, stream, t->rank);
    struct shown_log new = { .task = str_dup(t->task), .stream = stream, .rank = t->rank };
    if (!s && new.task && vec_push(&o->shown, new) == 0)
        s = &o->shown.v[o->shown.n - 1];
    else
        free(new.task);
    if (!s)
        return; /* no memory: output_rest() shows text again */
    if (s->attempt != t->attempt)
        *s = (struct shown_log){ s->task, s->stream, s->rank, t->attempt, 0, false };
    if (t->offset >= 0)
        s->to = t->offset + (int64_t)t->text.len;
    s->ended = s->ended || t->end;
}

void output_add(struct output *o, const struct cluster_log_text *t)
{
    struct lines *l = o->lines[str_eq(t->stream, "stderr")];
    note_shown(o, t);
    if (l)
        (void)lines_add(l, t, clock_mono_ms()); /* without memory, lines are missing */
    if (t->end && o->lines[1])
        (void)lines_add(o->lines[1], t, clock_mono_ms());
}

static int64_t shown_to(const char *task, const char *stream, uint32_t rank, uint32_t attempt,
                        void *arg)
{
    const struct shown_log *s = shown_of(arg, task, stream, rank);
    return s && s->attempt == attempt ? s->to : -1;
}

static int add_rest(const struct cluster_log_text *t, void *arg)
{
    struct lines *l = ((struct output *)arg)->lines[str_eq(t->stream, "stderr")];
    return l ? lines_add(l, t, clock_mono_ms()) : 0;
}

static bool is_wished(const struct output_wish *w, const json_t *tasks, size_t i, bool has_chief)
{
    const json_t *task = json_array_get(tasks, i);
    bool first = has_chief ? json_is_true(json_object_get(task, "chief")) : i == 0;
    switch (w->which) {
    case CLUSTER_OUTPUT_NONE:
        return false;
    case CLUSTER_OUTPUT_AUTO:
        return first || json_array_size(tasks) <= AUTO_TASKS;
    case CLUSTER_OUTPUT_CHIEF:
        return first;
    case CLUSTER_OUTPUT_ALL:
        return true;
    case CLUSTER_OUTPUT_CHOSEN:
        break;
    }
    return cluster_log_wants(w->chosen, w->n_chosen, doc_str(task, "role"),
                             doc_int(task, "index", -1));
}

static void rest_of_tasks(struct output *o, struct cluster *k, const char *id,
                          const struct output_wish *w, const json_t *tasks)
{
    struct cluster_log_choice *rest = calloc(REST_TASKS_MAX, sizeof *rest);
    size_t i, n = 0;
    bool has_chief = false;
    json_t *task;
    struct err unread = { 0 };
    json_array_foreach(tasks, i, task) has_chief |= json_is_true(json_object_get(task, "chief"));
    json_array_foreach(tasks, i, task)
    {
        const struct shown_log *s = shown_of(o, doc_str(task, "task"), "stdout", 0);
        const char *role = doc_str(task, "role");
        bool complete = s && s->ended && s->attempt == doc_int(task, "attempt", 0);
        if (rest && n < REST_TASKS_MAX && is_wished(w, tasks, i, has_chief) && !complete)
            rest[n++] =
                (struct cluster_log_choice){ role, strlen(role), doc_int(task, "index", 0) };
    }
    const struct cluster_log_wish wish = { .tasks = rest,
                                           .n_tasks = n,
                                           .over = true,
                                           .rank = -1,
                                           .lines = -1,
                                           .want_stdout = true,
                                           .want_stderr = true,
                                           .from = shown_to,
                                           .from_arg = o,
                                           .most = REST_MAX };
    if (n)
        /* If they cannot be read, the verdict says where the logs are. */
        (void)cluster_ops_of(k)->logs(k, id, &wish, add_rest, o, &unread);
    free(rest);
}

/* Has the text of all chosen tasks arrived? Then the list of tasks, which may be long, need not be
 * read. false: perhaps not. */
static bool is_complete(const struct output *o, const struct output_wish *w, const json_t *doc)
{
    int64_t n_tasks = 0, n_ended = 0;
    size_t i;
    json_t *role;
    json_array_foreach(json_object_get(doc, "roles"), i, role)
    {
        n_tasks += doc_int(role, "instances", 0);
    }
    for (i = 0; i < o->shown.n; i++)
        n_ended += o->shown.v[i].ended;
    if (w->which == CLUSTER_OUTPUT_CHOSEN)
        return false;
    bool only_chief = w->which == CLUSTER_OUTPUT_CHIEF ||
                      (w->which == CLUSTER_OUTPUT_AUTO && n_tasks > AUTO_TASKS);
    return n_ended > 0 && (only_chief || n_ended >= n_tasks);
}

void output_rest(struct output *o, struct cluster *k, const char *id, const struct output_wish *w,
                 const json_t *doc)
{
    json_t *own = NULL;
    struct err unread = { 0 };
    if (!w->which || is_complete(o, w, doc))
        return;
    if (!json_object_get(doc, "tasks") && cluster_ops_of(k)->status(k, id, &own, &unread) == 0)
        doc = own;
    if (json_is_array(json_object_get(doc, "tasks")))
        rest_of_tasks(o, k, id, w, json_object_get(doc, "tasks"));
    json_decref(own);
}

void output_close(struct output *o)
{
    for (size_t i = 0; i < ARRAY_LEN(o->lines); i++) {
        if (o->lines[i])
            (void)lines_end(o->lines[i]); /* as in output_add() */
        lines_free(o->lines[i]);
    }
    if (o->render)
        render_free(o->render);
    loop_timer_free(o->timer);
    if (o->err)
        sink_drain(o->err);
    if (o->out)
        sink_drain(o->out);
    sink_free(o->err);
    sink_free(o->out);
    for (size_t i = 0; i < o->shown.n; i++)
        free(o->shown.v[i].task);
    vec_done(&o->shown);
    *o = (struct output){ 0 };
}
