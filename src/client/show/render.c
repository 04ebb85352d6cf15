/* SPDX-License-Identifier: Apache-2.0 */
#include "client/show/render.h"

#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/show/names.h"
#include "client/show/sink.h"
#include "client/show/why.h"
#include "codec/json.h"
#include "loop/loop.h"

enum {
    /* Minimum time between two batches of plain lines, except the first and the last one. */
    PLAIN_MS = 200,
    REDRAW_MS = 100, /* minimum time between two redraws */
    TICK_MS = 1000,  /* redraw interval for the clock on a terminal */
    STEP_MS = 10000, /* minimum time between two plain lines about steps */
    ROWS_AROUND = 7, /* rows for the verdict, the paths, and some earlier output */
};

struct role_seen {
    char *name, *text;
    int64_t said_step_ms;
    /* The rate of its steps: a mean in which the last seconds count most. */
    int64_t step, step_ms;
    double rate; /* per second; 0 = not known */
};

struct render {
    struct client *c;
    char application_id[APP_ID_MAX];
    struct loop_timer *timer;
    json_t *summary; /* the newest status document, perhaps not shown yet */
    char state[24], waiting[256], said_state[24], said_waiting[256];
    bool said_tensorboard;
    VEC(struct role_seen) roles;
    int64_t shown_ms, started_ms;
    int64_t restarts;        /* the last number that was printed; -1 = no summary was received */
    char resize[240];        /* the last text printed about a resize; "" = no resize is running */
    int64_t resize_ended_ms; /* end of the last printed resize; -1 = no summary was received */
    unsigned drawn;          /* lines of the progress on the terminal, above the cursor */
    bool pending;
    struct sink *sink; /* NULL = write to standard error directly */
};

/* ---- texts about roles ---- */

void render_role(const json_t *role, struct buf *out)
{
    static const char *const states[] = { "waiting",   "placed", "registered", "running",
                                          "succeeded", "failed", "finished" };
    size_t start = out->len;
    for (size_t i = 0; i < ARRAY_LEN(states); i++) {
        int64_t n = doc_int(role, states[i], 0);
        if (n > 0)
            (void)buf_addf(out, "%s%lld %s", out->len > start ? ", " : "", (long long)n, states[i]);
    }
    if (doc_int(role, "suspect", 0) > 0)
        (void)buf_addf(out, ", %lld silent", (long long)doc_int(role, "suspect", 0));
    if (doc_int(role, "spares", 0) > 0)
        (void)buf_addf(out, ", %lld spare", (long long)doc_int(role, "spares", 0));
    if (doc_int(role, "leaving", 0) > 0)
        (void)buf_addf(out, ", %lld leaving", (long long)doc_int(role, "leaving", 0));
    if (doc_str(role, "waits_for")[0])
        (void)buf_addf(out, ": waits for %s", doc_str(role, "waits_for"));
}

/* Why the attempt was lost, if that is known: when its machine stopped, for example. */
static const char *lost_detail(const json_t *summary, const json_t *restart)
{
    size_t i;
    json_t *f;
    json_array_foreach(json_object_get(summary, "failures"), i, f)
    {
        if (str_eq(doc_str(f, "reason"), "node_lost") && doc_str(f, "detail")[0] &&
            str_eq(doc_str(f, "task"), doc_str(restart, "task")) &&
            doc_int(f, "attempt", 0) == doc_int(restart, "attempt", 0))
            return doc_str(f, "detail");
    }
    return NULL;
}

bool render_restart(const json_t *summary, struct buf *out)
{
    const json_t *r = json_object_get(summary, "last_restart");
    const json_t *saved = json_object_get(summary, "checkpoint");
    int64_t signal = doc_int(r, "signal", 0), step = doc_int(r, "step", 0);
    if (!json_is_object(r))
        return false;
    (void)buf_adds(out, doc_str(r, "task"));
    if (signal)
        (void)buf_addf(out, " ended with signal %lld", (long long)signal);
    else if (json_is_integer(json_object_get(r, "exit_code")))
        (void)buf_addf(out, " ended with exit code %lld", (long long)doc_int(r, "exit_code", 0));
    else
        (void)buf_addf(out, " ended (%s)", doc_str(r, "reason"));
    if (step > 0)
        (void)buf_addf(out, " at step %lld", (long long)step);
    const char *lost = lost_detail(summary, r);
    if (lost || doc_str(r, "what")[0])
        (void)buf_addf(out, ", %s", lost ? lost : doc_str(r, "what"));
    (void)buf_addf(out, ": %s", doc_str(r, "done"));
    if (doc_int(summary, "generation", 1) > 1)
        (void)buf_addf(out, ", generation %lld", (long long)doc_int(summary, "generation", 1));
    if (json_is_object(saved))
        (void)buf_addf(out, ", from the checkpoint of step %lld",
                       (long long)doc_int(saved, "step", 0));
    return true;
}

void render_sizes(const json_t *resize, struct buf *out)
{
    size_t i;
    json_t *role;
    json_array_foreach(json_object_get(resize, "roles"), i, role)
    {
        (void)buf_addf(out, "%s%s %lld to %lld", i ? ", " : "", doc_str(role, "name"),
                       (long long)doc_int(role, "from", 0), (long long)doc_int(role, "to", 0));
    }
}

/* Append how many of the new containers have a registered executor. */
static void add_registered(const json_t *resize, struct buf *out)
{
    int64_t wanted = 0, there = 0;
    size_t i;
    json_t *role;
    json_array_foreach(json_object_get(resize, "roles"), i, role)
    {
        int64_t more = doc_int(role, "to", 0) - doc_int(role, "from", 0);
        wanted += MAX(more, (int64_t)0);
        there += doc_int(role, "registered", 0);
    }
    if (wanted > 0)
        (void)buf_addf(out, " (%lld of %lld are there)", (long long)there, (long long)wanted);
}

bool render_resize(const json_t *summary, struct buf *out)
{
    const json_t *r = json_object_get(summary, "resize");
    if (!json_is_object(r))
        return false;
    render_sizes(r, out);
    if (json_is_true(json_object_get(r, "awaits_checkpoint"))) {
        (void)buf_adds(out, ": waits until the job has saved its next checkpoint");
    } else if (str_eq(doc_str(r, "state"), "waiting")) {
        (void)buf_adds(out, ": waits for its containers");
        add_registered(r, out);
    } else {
        (void)buf_adds(out, ": the tasks stop, and start again with the new size");
    }
    return true;
}

bool render_last_resize(const json_t *summary, struct buf *out)
{
    static const struct {
        const char *outcome, *text;
    } outcomes[] = {
        { "done", "done" },
        { "timed_out", "given up, since it was not ready in time" },
        { "refused", "given up" },
        { "replaced", "withdrawn, or replaced by a newer one" },
    };
    const json_t *r = json_object_get(summary, "last_resize");
    const char *text = doc_str(r, "outcome"), *detail = doc_str(r, "detail");
    if (!json_is_object(r))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(outcomes); i++)
        if (str_eq(doc_str(r, "outcome"), outcomes[i].outcome))
            text = outcomes[i].text;
    render_sizes(r, out);
    (void)buf_addf(out, ": %s%s%s", text, detail[0] ? ": " : "", detail);
    return true;
}

bool render_resize_cost(const json_t *summary, struct buf *out)
{
    static const struct {
        const char *member, *text;
    } parts[] = {
        { "save_ms", "save" },
        { "stop_ms", "stop" },
        { "start_ms", "start" },
        { "warm_ms", "warm-up" },
        { "redone_ms", "work that is done again" },
    };
    const json_t *cost = json_object_get(summary, "resize_cost");
    const char *comma = ": ";
    char text[32];

    if (doc_int(cost, "measured", 0) == 0)
        return false;
    (void)buf_addf(out, "a resize costs this job about %s",
                   str_duration(doc_int(cost, "total_ms", 0), text, sizeof text));
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        int64_t ms = doc_int(cost, parts[i].member, 0);
        if (ms == 0)
            continue;
        (void)buf_addf(out, "%s%s %s", comma, parts[i].text, str_duration(ms, text, sizeof text));
        comma = ", ";
    }
    return true;
}

static struct role_seen *role_seen_of(struct render *r, const char *name)
{
    for (size_t i = 0; i < r->roles.n; i++)
        if (str_eq(r->roles.v[i].name, name))
            return &r->roles.v[i];
    struct role_seen s = { .name = str_dup(name), .text = str_dup("") };
    if (!s.name || !s.text || vec_push(&r->roles, s) < 0) {
        free(s.name);
        free(s.text);
        return NULL;
    }
    return &r->roles.v[r->roles.n - 1];
}

void render_steps(const json_t *role, struct buf *out)
{
    int64_t step = doc_int(role, "step", 0), total = doc_int(role, "total", 0);
    int64_t left_ms = doc_int(role, "left_ms", -1);
    char left[32];
    if (step <= 0)
        return;
    (void)buf_addf(out, "  step %lld", (long long)step);
    if (total <= 0)
        return;
    (void)buf_addf(out, "/%lld", (long long)total);
    if (left_ms >= 0 && total > step)
        (void)buf_addf(out, ", %s left", str_duration(left_ms, left, sizeof left));
}

void render_least(const json_t *waiting, struct buf *out)
{
    const json_t *needs = json_object_get(waiting, "needs");
    const json_t *least = json_object_get(waiting, "least");
    int64_t memory = doc_int(least, "memory_mib", 0), gpus = doc_int(least, "gpus", 0);
    char size[32];

    if (!least || (memory == doc_int(needs, "memory_mib", 0) && gpus == doc_int(needs, "gpus", 0)))
        return;
    (void)buf_addf(out, ", at least %s", str_size((uint64_t)memory << 20, size, sizeof size));
    if (gpus)
        (void)buf_addf(out, " and %lld GPU%s", (long long)gpus, gpus == 1 ? "" : "s");
}

void render_waiting(const json_t *summary, char *out, size_t n)
{
    const json_t *w = json_object_get(summary, "waiting");
    const char *trouble = doc_str(summary, "trouble");
    (void)str_copy(out, n, doc_str(summary, "pausing"));
    if (trouble[0])
        (void)snprintf(out, n, "%s; nothing new begins until it can be", trouble);
    if (!json_is_object(w))
        return;
    char need[32], have[32];
    const json_t *needs = json_object_get(w, "needs"), *free_ = json_object_get(w, "free");
    int64_t gpus = doc_int(needs, "gpus", 0);
    AUTO(buf_done) struct buf b = { 0 };
    (void)buf_addf(&b, "needs %s",
                   str_size((uint64_t)doc_int(needs, "memory_mib", 0) << 20, need, sizeof need));
    if (gpus)
        (void)buf_addf(&b, " and %lld GPUs", (long long)gpus);
    render_least(w, &b);
    (void)buf_addf(&b, "; free: %s",
                   str_size((uint64_t)doc_int(free_, "memory_mib", 0) << 20, have, sizeof have));
    if (gpus)
        (void)buf_addf(&b, " and %lld GPUs", (long long)doc_int(free_, "gpus", 0));
    if (doc_str(w, "behind")[0] && !json_is_object(json_object_get(w, "policy")))
        (void)buf_addf(&b, "; behind %s", doc_str(w, "behind"));
    if (doc_str(w, "held")[0])
        (void)buf_addf(&b, "; %s", doc_str(w, "held"));
    (void)str_copy(out, n, buf_cstr(&b));
}

bool render_policy(const json_t *summary, struct buf *why, struct buf *change)
{
    const json_t *waiting = json_object_get(json_object_get(summary, "waiting"), "policy");
    const json_t *policy = waiting ? waiting : json_object_get(summary, "policy");
    const json_t *word = json_object_get(policy, "word");
    char held[32];
    if (!json_is_object(word) || (!waiting && !json_is_true(json_object_get(word, "elastic"))))
        return false;
    (void)str_duration(MAX(clock_wall_ms() - doc_int(word, "since_ms", 0), (int64_t)0), held,
                       sizeof held);
    int64_t n = doc_int(word, "containers", 0);
    if (waiting)
        (void)buf_addf(why, "policy '%s', for %s: ", doc_str(policy, "name"), held);
    else
        (void)buf_addf(why, "%lld container%s for %s, fair: %lld; policy '%s': ", (long long)n,
                       n == 1 ? "" : "s", held, (long long)doc_int(word, "fair", 0),
                       doc_str(policy, "name"));
    (void)buf_adds(why, doc_str(word, "why"));
    const char *hint = doc_str(word, "would_change");
    if (hint[0]) /* some are sentences: "it can start when ..." */
        (void)buf_addf(change, "%s%s", str_starts(hint, "it ") ? "" : "changed by: ", hint);
    return true;
}

/* ---- writing ---- */

/* A failed write of progress must not stop the command. */
static void write_progress(const struct render *r, const struct buf *text)
{
    if (r->sink && !r->c->tty)
        sink_put(r->sink, text->p, text->len);
    else
        (void)fs_write_all(STDERR_FILENO, text->p, text->len);
}

/* ---- output as plain lines ---- */

static void plain_line(struct buf *out, const char *text)
{
    char time[16];
    time_of_day(clock_wall_ms(), time, sizeof time);
    (void)buf_addf(out, "%s %s\n", time, text);
}

static void plain_roles(struct render *r, int64_t now, struct buf *out)
{
    size_t i;
    json_t *role;
    json_array_foreach(json_object_get(r->summary, "roles"), i, role)
    {
        struct role_seen *s = role_seen_of(r, doc_str(role, "name"));
        if (!s)
            continue;
        AUTO(buf_done) struct buf text = { 0 };
        render_role(role, &text);
        bool changed = !str_eq(s->text, buf_cstr(&text)), steps = doc_int(role, "step", 0) > 0;
        bool step_due = steps && now - s->said_step_ms >= STEP_MS;
        if (!changed && !step_due)
            continue;
        free(s->text);
        s->text = str_dup(buf_cstr(&text));
        if (steps)
            s->said_step_ms = now;
        render_steps(role, &text);
        AUTO(free_p) char *line = str_printf("%s: %s", s->name, buf_cstr(&text));
        if (line && text.len)
            plain_line(out, line);
    }
}

bool render_is_final(const char *state)
{
    return str_eq(state, "SUCCEEDED") || str_eq(state, "FAILED") || str_eq(state, "KILLED");
}

static void plain_show(struct render *r, int64_t now)
{
    AUTO(buf_done) struct buf out = { 0 };
    bool over = render_is_final(r->state); /* the job is over, so the verdict will be printed */
    if (!over && (!str_eq(r->state, r->said_state) || !str_eq(r->waiting, r->said_waiting))) {
        AUTO(free_p)
        char *line = str_printf("job %s%s%s", r->state, r->waiting[0] ? ": " : "", r->waiting);
        plain_line(&out, line ? line : r->state);
        (void)str_copy(r->said_state, sizeof r->said_state, r->state);
        (void)str_copy(r->said_waiting, sizeof r->said_waiting, r->waiting);
    }
    plain_roles(r, now, &out);
    const char *board = doc_str(r->summary, "tensorboard");
    if (board[0] && !r->said_tensorboard) {
        AUTO(free_p) char *line = str_printf("tensorboard %s", board);
        plain_line(&out, line ? line : board);
        r->said_tensorboard = true;
    }
    write_progress(r, &out);
}

/* ---- output in place, on a terminal ---- */

static void terminal_size(unsigned *out_width, unsigned *out_height)
{
    struct winsize ws = { 0 };
    (void)ioctl(STDERR_FILENO, TIOCGWINSZ, &ws); /* if it fails, the size stays unknown */
    *out_width = ws.ws_col > 20 ? ws.ws_col : 80;
    *out_height = ws.ws_row > 4 ? ws.ws_row : 24;
}

/* Append one line, cut to the terminal's width: a wrapped line could not be erased later. */
static void tty_line(struct render *r, struct buf *out, const char *text, unsigned width)
{
    size_t cols = 0, len = 0;
    for (; text[len]; len++) {
        bool starts = ((unsigned char)text[len] & 0xc0) != 0x80;
        if (starts && ++cols >= width)
            break;
    }
    (void)buf_addf(out, "%.*s\033[K\n", (int)len, text);
    r->drawn++;
}

static void tty_up(struct render *r, struct buf *out)
{
    if (r->drawn)
        (void)buf_addf(out, "\033[%uA\r", r->drawn);
    r->drawn = 0;
}

/* "42 %  420/1000  12.4/s  46 s left"; without the percentage if the total is not known. */
static void add_progress(const struct role_seen *s, const json_t *role, struct buf *out)
{
    int64_t step = doc_int(role, "step", 0), total = doc_int(role, "total", 0);
    int64_t left_ms = doc_int(role, "left_ms", -1);
    char left[32];
    if (total > 0)
        (void)buf_addf(out, "%3.0f %%  %lld/%lld", 100.0 * (double)MIN(step, total) / (double)total,
                       (long long)step, (long long)total);
    else
        (void)buf_addf(out, "step %lld", (long long)step);
    if (s->rate > 0)
        (void)buf_addf(out, "  %.*f/s", s->rate < 10 ? 2 : s->rate < 100 ? 1 : 0, s->rate);
    if (left_ms >= 0 && total > step)
        (void)buf_addf(out, "  %s left", str_duration(left_ms, left, sizeof left));
}

/* "  [########............]  42 %  420/1000  12.4/s  46 s left". In a narrow terminal the bar is
 * shorter, or left out: the figures say more. */
static void add_bar(const struct role_seen *s, const json_t *role, unsigned width, struct buf *out)
{
    enum { BAR_LEAST = 4, BAR_MOST = 20, AROUND = 5 }; /* "  [" before the bar, "] " behind it */
    int64_t step = doc_int(role, "step", 0), total = doc_int(role, "total", 0);
    AUTO(buf_done) struct buf text = { 0 };
    char bar[BAR_MOST + 1];
    if (step <= 0)
        return;
    add_progress(s, role, &text);
    int cells = MIN((int)width - 1 - (int)out->len - (int)text.len - AROUND, (int)BAR_MOST);
    (void)buf_adds(out, "  ");
    if (total > 0 && cells >= BAR_LEAST) {
        memset(bar, '.', (size_t)cells);
        memset(bar, '#', (size_t)((double)MIN(step, total) / (double)total * cells));
        bar[cells] = 0;
        (void)buf_addf(out, "[%s] ", bar);
    }
    (void)buf_adds(out, buf_cstr(&text));
}

static void note_rate(struct role_seen *s, int64_t step, int64_t now)
{
    if (step < s->step || !s->step_ms) { /* the first one, or a restart from a checkpoint */
        s->rate = 0;
    } else if (step > s->step && now > s->step_ms) {
        double rate = 1000.0 * (double)(step - s->step) / (double)(now - s->step_ms);
        double weight = MIN((double)(now - s->step_ms) / 5000, 1.0);
        s->rate = s->rate > 0 ? s->rate + weight * (rate - s->rate) : rate;
    } else {
        return; /* no new step: keep the rate, so that it does not jump while a step takes long */
    }
    s->step = step;
    s->step_ms = now;
}

static void note_rates(struct render *r)
{
    size_t i;
    json_t *role;
    json_array_foreach(json_object_get(r->summary, "roles"), i, role)
    {
        int64_t step = doc_int(role, "step", 0);
        struct role_seen *s = step > 0 ? role_seen_of(r, doc_str(role, "name")) : NULL;
        if (s)
            note_rate(s, step, clock_mono_ms());
    }
}

static void tty_show(struct render *r, int64_t now)
{
    /* OTHER_LINES: the heading, the summary of further roles, and the line of the cursor. */
    enum { ROLES_SHOWN = 20, OTHER_LINES = 3 };
    AUTO(buf_done) struct buf out = { 0 };
    unsigned width, height;
    terminal_size(&width, &height);
    /* The lines must fit the height of the terminal: a line that has scrolled away cannot be
     * erased. */
    const char *board = doc_str(r->summary, "tensorboard");
    size_t shown = MIN((size_t)ROLES_SHOWN, (size_t)height - OTHER_LINES - (board[0] != 0));
    const json_t *roles = json_object_get(r->summary, "roles");
    tty_up(r, &out);
    char since[32];
    AUTO(free_p)
    char *head = str_printf("%s  %s  %s%s%s", r->application_id, r->state,
                            str_duration(now - r->started_ms, since, sizeof since),
                            r->waiting[0] ? "  " : "", r->waiting);
    tty_line(r, &out, head ? head : r->state, width);
    size_t i;
    json_t *role;
    json_array_foreach(roles, i, role)
    {
        struct role_seen *s = i < shown ? role_seen_of(r, doc_str(role, "name")) : NULL;
        if (!s)
            break;
        AUTO(buf_done) struct buf line = { 0 };
        (void)buf_addf(&line, "  %-12s ", s->name);
        render_role(role, &line);
        add_bar(s, role, width, &line);
        tty_line(r, &out, buf_cstr(&line), width);
    }
    if (json_array_size(roles) > shown) {
        char more[48];
        (void)snprintf(more, sizeof more, "  and %zu more roles", json_array_size(roles) - shown);
        tty_line(r, &out, more, width);
    }
    if (board[0]) {
        AUTO(free_p) char *line = str_printf("  %-12s %s", "tensorboard", board);
        tty_line(r, &out, line ? line : "", width);
    }
    (void)buf_adds(&out, "\033[J");
    /* A failed write of progress must not stop the command. */
    (void)fs_write_all(STDERR_FILENO, out.p, out.len);
}

/* ---- timing ---- */

static void show(struct render *r)
{
    int64_t now = clock_mono_ms();
    r->pending = false;
    r->shown_ms = now;
    if (r->c->tty)
        tty_show(r, now);
    else
        plain_show(r, now);
}

static void on_timer(void *arg)
{
    struct render *r = arg;
    if (r->pending || r->c->tty)
        show(r);
    if (r->c->tty)
        loop_timer_set(r->timer, clock_mono_ms() + TICK_MS);
}

struct render *render_new(struct client *c, const char *application_id)
{
    struct render *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->c = c;
    r->started_ms = clock_mono_ms();
    r->restarts = -1;
    r->resize_ended_ms = -1;
    (void)str_copy(r->application_id, sizeof r->application_id, application_id);
    r->timer = loop_timer_new(c->host.loop, on_timer, r);
    if (!r->timer) {
        free(r);
        return NULL;
    }
    return r;
}

static void show_soon(struct render *r)
{
    int64_t now = clock_mono_ms(), pause = r->c->tty ? REDRAW_MS : PLAIN_MS;
    bool new_state = !str_eq(r->state, r->said_state) && !r->c->tty;
    if (r->shown_ms == 0 || new_state || now - r->shown_ms >= pause) {
        show(r);
        if (r->c->tty)
            loop_timer_set(r->timer, now + TICK_MS);
        else
            loop_timer_stop(r->timer);
    } else if (!r->pending) {
        r->pending = true;
        loop_timer_set(r->timer, r->shown_ms + pause);
    }
}

void render_state(struct render *r, const char *state, const char *why)
{
    (void)str_copy(r->state, sizeof r->state, state);
    (void)str_copy(r->waiting, sizeof r->waiting, why);
    if (!str_eq(r->state, r->said_state) || !str_eq(r->waiting, r->said_waiting))
        show_soon(r);
}

static void say_now(struct render *r, const char *what, const struct buf *text)
{
    char time[16];
    time_of_day(clock_wall_ms(), time, sizeof time);
    render_say(r, "%s %s%.*s", time, what, (int)text->len, text->p);
}

/* Print the last restart and the number of restarts. Several restarts may lie between two
 * updates. */
static void say_restart(struct render *r)
{
    AUTO(buf_done) struct buf text = { 0 };
    int64_t n = doc_int(r->summary, "restarts", 0);
    bool news = r->restarts >= 0 && n > r->restarts && render_restart(r->summary, &text);
    if (news && n > r->restarts + 1)
        (void)buf_addf(&text, " (%lld restarts)", (long long)(n - r->restarts));
    r->restarts = n;
    if (news)
        say_now(r, "", &text);
}

/* Print a line when a resize begins, enters its next step, or ends. The number of containers that
 * are ready is not printed here; tony status shows it. */
static void say_resize(struct render *r)
{
    AUTO(buf_done) struct buf on = { 0 };
    AUTO(buf_done) struct buf ended = { 0 };
    AUTO(buf_done) struct buf key = { 0 };
    const json_t *now = json_object_get(r->summary, "resize");
    const json_t *last = json_object_get(r->summary, "last_resize");
    int64_t ended_ms = doc_int(last, "at_ms", 0);
    if (r->resize_ended_ms >= 0 && ended_ms > r->resize_ended_ms &&
        render_last_resize(r->summary, &ended))
        say_now(r, "resize: ", &ended);
    r->resize_ended_ms = ended_ms;
    if (json_is_object(now)) {
        render_sizes(now, &key);
        (void)buf_addf(&key, " %s %lld", doc_str(now, "state"),
                       (long long)doc_int(now, "asked_ms", 0));
    }
    if (!str_eq(r->resize, buf_cstr(&key)) && render_resize(r->summary, &on))
        say_now(r, "resize: ", &on);
    (void)str_copy(r->resize, sizeof r->resize, buf_cstr(&key));
}

void render_update(struct render *r, const char *state, const json_t *summary)
{
    /* The core's state WAITING also covers waiting for containers. Users see WAITING only while the
     * pool has no room for the job, or the job pauses. */
    AUTO(json_freep) json_t *shown = names_shown(r->c, summary, false);
    bool queued = json_is_object(json_object_get(summary, "waiting")) ||
                  json_is_string(json_object_get(summary, "pausing"));
    (void)str_copy(r->state, sizeof r->state,
                   str_eq(state, "WAITING") && !queued ? "STARTING" : state);
    render_waiting(shown, r->waiting, sizeof r->waiting);
    if (shown) {
        json_decref(r->summary);
        r->summary = json_incref(shown);
        note_rates(r);
        say_restart(r);
        say_resize(r);
    }
    show_soon(r);
}

void render_say(struct render *r, const char *fmt, ...)
{
    AUTO(buf_done) struct buf out = { 0 };
    if (r->c->tty) {
        tty_up(r, &out);
        (void)buf_adds(&out, "\033[J");
    }
    va_list ap;
    va_start(ap, fmt);
    (void)buf_vaddf(&out, fmt, ap);
    va_end(ap);
    (void)buf_addc(&out, '\n');
    write_progress(r, &out);
    if (r->c->tty && r->shown_ms)
        show(r);
}

void render_set_sink(struct render *r, struct sink *s)
{
    r->sink = s;
}

/* The progress is drawn again a moment later: many texts may follow each other. */
void render_text(struct render *r, const char *p, size_t n, int fd)
{
    AUTO(buf_done) struct buf out = { 0 };
    if (r->drawn) {
        tty_up(r, &out);
        (void)buf_adds(&out, "\033[J");
    }
    if (buf_add(&out, p, n) < 0 || fs_write_all(fd, out.p, out.len) < 0 || !r->shown_ms)
        return;
    if (!r->pending)
        loop_timer_set(r->timer, clock_mono_ms() + REDRAW_MS);
    r->pending = true;
}

void render_free(struct render *r)
{
    if (!r)
        return;
    if (r->c->tty) {
        AUTO(buf_done) struct buf out = { 0 };
        tty_up(r, &out);
        (void)buf_adds(&out, "\033[J");
        (void)fs_write_all(STDERR_FILENO, out.p, out.len);
    } else if (r->pending) {
        show(r);
    }
    for (size_t i = 0; i < r->roles.n; i++) {
        free(r->roles.v[i].name);
        free(r->roles.v[i].text);
    }
    vec_done(&r->roles);
    json_decref(r->summary);
    loop_timer_free(r->timer);
    free(r);
}

/* ---- the verdict ---- */

void render_verdict(struct client *c, const char *application_id, const char *logs,
                    const char *history, const char *cause_log, const json_t *read)
{
    AUTO(json_freep) json_t *summary = doc_shown(read, false);
    const char *state = doc_str(summary, "state"), *message = doc_str(summary, "message");
    char ran[32];
    int64_t ran_ms = doc_int(summary, "ran_ms", -1);
    (void)printf("job %s %s%s%s", application_id, c->out_color ? state_color(state) : "", state,
                 c->out_color ? "\033[0m" : "");
    if (ran_ms >= 0)
        (void)printf(" %s %s", str_eq(state, "SUCCEEDED") ? "in" : "after",
                     str_duration(ran_ms, ran, sizeof ran));
    (void)printf("%s%s\n", message[0] ? ": " : "", message);
    (void)fflush(stdout); /* keep the order of the lines of stdout and stderr */
    AUTO(buf_done) struct buf why = { 0 };
    if (!str_eq(state, "SUCCEEDED"))
        why_failed(summary, cause_log, ROWS_AROUND, &why);
    else
        why_orphans(summary, &why);
    /* If stderr fails, there is nowhere to report it. */
    (void)fs_write_all(STDERR_FILENO, why.p, why.len);
    if (logs)
        (void)printf("  logs      %s\n", logs);
    if (history)
        (void)printf("  history   %s\n", history);
}
