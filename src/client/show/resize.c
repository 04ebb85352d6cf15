/* SPDX-License-Identifier: Apache-2.0 */
#include "client/show/resize.h"

#include <errno.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/show/render.h"
#include "codec/json.h"

enum {
    SIZE_MAX_TASKS = 100000,        /* of a job */
    TIMEOUT_MAX_MS = 11 * 86400000, /* 11 days */
};

/* ---- what is wanted ---- */

static int parse_size(const char *word, struct cluster_resize *w, struct err *e)
{
    const char *equals = strchr(word, '=');
    int64_t n = 0;
    if (!equals || equals == word) {
        (void)err_set(e, EINVAL, "'%s' is not ROLE=N, a role and its new number of tasks", word);
        return err_hint(e, "as in: tony resize last worker=8");
    }
    AUTO(free_p) char *role = span_dup(span_mem(word, (size_t)(equals - word)));
    if (!role)
        return err_set(e, ENOMEM, "cannot read the command line: %m");
    AUTO(free_p) char *what = str_printf("the number of tasks of role '%s'", role);
    int rc = str_i64(span_of(equals + 1), 1, SIZE_MAX_TASKS, what ? what : role, &n, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < w->sizes.n; i++)
        if (str_eq(w->sizes.v[i].role, role))
            return err_set(e, EINVAL, "role '%s' is given twice", role);
    struct cluster_resize_role size = { role, (uint32_t)n };
    if (vec_push(&w->sizes, size) < 0)
        return err_set(e, ENOMEM, "cannot read the command line: %m");
    (void)TAKE(role);
    return 0;
}

static void wish_done(struct cluster_resize *w)
{
    for (size_t i = 0; i < w->sizes.n; i++)
        free(w->sizes.v[i].role);
    vec_done(&w->sizes);
}

/* Parse arguments of the form ROLE=N. -EINVAL or -ERANGE: e has a sentence. */
static int wish_parse(const char *const *words, size_t n, struct cluster_resize *out, struct err *e)
{
    struct cluster_resize w = { .within_ms = 0 };
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = parse_size(words[i], &w, e);
    if (rc < 0)
        wish_done(&w);
    else
        *out = w;
    return rc;
}

/* ---- waiting for the end of the resize ---- */

struct watch {
    struct client *c;
    const char *id;
    int64_t asked_ms;      /* identifies the resize */
    char state[24];        /* the state that was printed last */
    int64_t n_done_before; /* completed resizes of the job before this one */
    json_t *this_resize;   /* the member `resize` of the first document that has it */
    bool has_ended;        /* a document without this resize has come */
    bool was_replaced;
    /* this resize was done, and in the same update the next one had begun or ended */
    bool was_followed;
    bool over;         /* the wait is over: the resize has ended and its leaving tasks, too */
    int64_t n_leaving; /* leaving tasks in the last update */
    json_t *last_doc;  /* the document with `last_resize` */
};

static void say_time(const char *text)
{
    char time[16];
    time_of_day(clock_wall_ms(), time, sizeof time);
    client_note("%s %s", time, text);
}

static void say_state(struct watch *w, const json_t *summary)
{
    const char *state = doc_str(json_object_get(summary, "resize"), "state");
    AUTO(buf_done) struct buf text = { 0 };
    if (str_eq(w->state, state) || !render_resize(summary, &text))
        return;
    (void)str_copy(w->state, sizeof w->state, state);
    say_time(buf_cstr(&text));
}

static bool has_outcome(const json_t *doc, const char *outcome)
{
    return str_eq(doc_str(json_object_get(doc, "last_resize"), "outcome"), outcome);
}

static bool is_done(const struct watch *w)
{
    return w->has_ended && !w->was_replaced &&
           (w->was_followed || has_outcome(w->last_doc, "done"));
}

/* The numbers of tasks before and after the resize. */
static const json_t *sizes_of(const struct watch *w)
{
    return w->this_resize ? w->this_resize : json_object_get(w->last_doc, "last_resize");
}

/* A resize is done as soon as its leaving tasks do not belong to the job any more. They may still
 * run, because they save a checkpoint first: continue to wait until they have ended. But a gang
 * forms anew only when all tasks that left it have ended. So if another resize forms the gang now,
 * that resize causes the leaving tasks of this update. */
static void note_leaving(struct watch *w, const json_t *summary)
{
    int64_t n = doc_int(summary, "leaving", 0);
    AUTO(buf_done) struct buf text = { 0 };
    bool is_others = w->was_followed && str_eq(w->state, "forming");
    w->over = n == 0 || is_others || !is_done(w);
    if (!w->over && n != w->n_leaving) {
        render_sizes(sizes_of(w), &text);
        (void)buf_addf(&text, ": waits for %lld leaving %s to end", (long long)n,
                       n == 1 ? "task" : "tasks");
        say_time(buf_cstr(&text));
    }
    w->n_leaving = n;
}

/* Handle the first document without this resize, which means that it has ended. If the scheduler
 * has demanded another size meanwhile, a second resize may be under way or have ended, too. Then
 * the number of completed resizes says whether this one was completed. */
static void note_end(struct watch *w, const json_t *doc)
{
    bool other = json_is_object(json_object_get(doc, "resize"));
    int64_t n = doc_int(doc, "resizes", 0) - w->n_done_before;
    w->has_ended = true;
    w->was_followed = w->this_resize && (other ? n > 0 : n > 1);
    w->was_replaced = other && !w->was_followed;
    w->last_doc = json_incref((json_t *)(uintptr_t)doc);
}

/* Called with each update; true: the wait is over. */
static bool on_update(const char *state, const json_t *read, void *arg)
{
    struct watch *w = arg;
    AUTO(json_freep) json_t *summary = doc_shown(read, false);
    const json_t *on = json_object_get(summary, "resize");
    (void)state;
    if (!summary)
        return false;
    if (!w->has_ended && json_is_object(on) && doc_int(on, "asked_ms", -1) == w->asked_ms) {
        say_state(w, summary);
        return false;
    }
    if (!w->has_ended)
        note_end(w, summary);
    note_leaving(w, summary);
    return w->over;
}

/* If HDFS accepts no copy of the journal, a master answers after a few seconds without it. If that
 * master dies, the next one, on another node, does not know of the resize. */
static void say_lost_with_master(const struct watch *w, struct err *e)
{
    (void)err_set(e, ECANCELED, "the resize of job %s was lost with its master", w->id);
    err_hint(e, "ask for it again");
}

/* Print how the resize ended. Returns the exit code. */
static int say_end(const struct watch *w)
{
    AUTO(buf_done) struct buf text = { 0 };
    struct err e = { 0 };
    const json_t *last = json_object_get(w->last_doc, "last_resize");
    if (is_done(w)) {
        render_sizes(sizes_of(w), &text);
        if (!w->was_followed && doc_str(last, "detail")[0]) /* it was completed in part */
            (void)buf_addf(&text, "; %s", doc_str(last, "detail"));
        /* tasks for which the command did not wait */
        int64_t n = w->over ? 0 : doc_int(w->last_doc, "leaving", 0);
        if (n > 0)
            (void)buf_addf(&text, "; %lld %s still leaving", (long long)n,
                           n == 1 ? "task is" : "tasks are");
        (void)printf("job %s was resized: %s\n", w->id, buf_cstr(&text));
        return client_flush_stdout();
    }
    if (w->was_replaced)
        (void)err_set(&e, ECANCELED, "the resize of job %s was replaced by a newer one", w->id);
    else if (doc_int(last, "at_ms", -1) >= w->asked_ms && render_last_resize(w->last_doc, &text))
        (void)err_set(&e, ECANCELED, "job %s was not resized: %s", w->id, buf_cstr(&text));
    else if (render_is_final(doc_str(w->last_doc, "state")))
        (void)err_set(&e, ECANCELED, "job %s ended before it was resized", w->id);
    else
        say_lost_with_master(w, &e);
    return client_fail(EXIT_JOB_FAILED, &e);
}

static json_t *resize_members(const json_t *doc)
{
    static const char *const members[] = { "application_id", "state",   "resize", "last_resize",
                                           "resizes",        "resized", "leaving" };
    json_t *out = json_object();
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        json_t *v = json_object_get(doc, members[i]);
        if (v)
            (void)json_object_set(out, members[i], v); /* without memory, a member is missing */
    }
    return out;
}

static int wait_for_end(struct watch *w, resize_follow_fn *follow, void *arg)
{
    struct err e = { 0 };
    struct follow_options o = { .detach_on_signal = true, .on_update = on_update, .arg = w };
    struct follow_result r = { 0 };
    int rc = follow(arg, &o, &r, &e);
    if (rc < 0)
        return client_fail(-rc, &e);
    bool left = r.detached && !w->over;
    if (!w->over && r.summary)
        (void)on_update("", r.summary, w); /* the job is over */
    follow_result_done(&r);
    if (left) {
        client_note("not waiting any longer; the resize of job %s goes on: tony status %s", w->id,
                    w->id);
        return EXIT_JOB_FAILED;
    }
    if (!options_has(&w->c->o, OPT_JSON))
        return say_end(w);
    json_t *doc = resize_members(w->last_doc);
    if (w->over)
        (void)json_object_del(doc, "leaving"); /* those tasks have ended by now */
    int code = client_print_json(doc);
    return code ? code : is_done(w) ? EXIT_DONE : EXIT_JOB_FAILED;
}

/* Print that the scheduler has refused the resize. For a short time the job had the new size. */
static int say_refused(const struct watch *w, const json_t *doc)
{
    if (!options_has(&w->c->o, OPT_JSON))
        return say_end(w);
    int code = client_print_json(resize_members(doc));
    return code ? code : EXIT_JOB_FAILED;
}

/* The resize was accepted, and the user does not wait for its end. Perhaps the job had the size
 * already. */
static int say_accepted(const struct watch *w, const json_t *doc)
{
    AUTO(buf_done) struct buf text = { 0 };
    if (options_has(&w->c->o, OPT_JSON))
        return client_print_json(resize_members(doc));
    if (render_resize(doc, &text))
        (void)printf("job %s is being resized: %s\n", w->id, buf_cstr(&text));
    else if (is_done(w))
        return say_end(w);
    else if (json_is_object(json_object_get(doc, "last_resize")))
        /* the request was for the present size, so a waiting resize has ended */
        (void)printf("job %s keeps its size\n", w->id);
    else
        (void)printf("job %s asks for the new size\n", w->id); /* the job waits in the pool */
    return client_flush_stdout();
}

int resize_answered(struct client *c, const char *id, json_t *doc, resize_follow_fn *follow,
                    void *arg)
{
    const json_t *on = json_object_get(doc, "resize");
    struct watch watch = { .c = c,
                           .id = id,
                           .asked_ms = doc_int(on, "asked_ms", 0),
                           .n_done_before = doc_int(doc, "resizes", 0),
                           .this_resize = json_incref(json_object_get(doc, "resize")) };
    int code;
    bool waits = options_has(&c->o, OPT_WAIT);
    if (!json_is_object(on)) /* the resize was completed at once */
        note_end(&watch, doc);
    if (waits && (json_is_object(on) || !on_update("", doc, &watch))) {
        signals_hold(); /* until follow() handles them */
        say_state(&watch, doc);
        code = wait_for_end(&watch, follow, arg);
    } else if (waits && has_outcome(doc, "refused")) {
        code = say_refused(&watch, doc);
    } else {
        code = say_accepted(&watch, doc);
    }
    json_decref(watch.last_doc);
    json_decref(watch.this_resize);
    json_decref(doc);
    return code;
}

/* ---- the command ---- */

struct asked {
    struct cluster *k;
    const char *id;
};

static int follow_asked(void *arg, const struct follow_options *o, struct follow_result *out,
                        struct err *e)
{
    const struct asked *a = arg;
    return cluster_follow(a->k, a->id, o, out, e);
}

int cmd_resize(struct client *c)
{
    struct err e = { 0 };
    AUTO(wish_done) struct cluster_resize w = { .within_ms = 0 };
    const char *timeout = options_get(&c->o, OPT_TIMEOUT);
    if (c->o.n_args < 2) {
        (void)err_set(&e, EINVAL, "tony resize needs a role and its new number of tasks: ROLE=N");
        err_hint(&e, "as in: tony resize %s worker=8", c->o.args[0]);
        return client_fail(EXIT_MISUSE, &e);
    }
    int rc = wish_parse(&c->o.args[1], c->o.n_args - 1, &w, &e);
    if (rc == 0 && timeout)
        rc =
            str_ms(span_of(timeout), 1, TIMEOUT_MAX_MS, option_name(OPT_TIMEOUT), &w.within_ms, &e);
    if (rc < 0)
        return client_fail(EXIT_MISUSE, &e);
    w.reason = options_get(&c->o, OPT_REASON);
    json_t *doc = NULL;
    char id[APP_ID_MAX];
    struct cluster *k = NULL;
    rc = client_find(c, c->o.args[0], &k, id, &e);
    if (rc == 0)
        rc = cluster_resize_checked(k, id, &w, &doc, &e);
    if (rc < 0)
        return client_fail(-rc, &e);
    if (options_has(&c->o, OPT_WAIT))
        resize_await_refusal(k, id, &doc);
    struct asked asked = { k, id };
    return resize_answered(c, id, doc, follow_asked, &asked);
}
