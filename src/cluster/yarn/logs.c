/* SPDX-License-Identifier: Apache-2.0 */
/*
 * logs of a job on YARN. While the job runs, the master passes each request on to the executor of
 * the task. After the end, the client reads the pages of the NodeManagers, or of the site's log
 * server. If both fail, it prints where the log was.
 */
#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "cluster/link.h"
#include "cluster/yarn/pages.h"
#include "cluster/yarn/yarn.h"
#include "hadoop/yarn.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

enum {
    PIECE = 256 << 10,
    PAGE_MAX = 64 << 20,
    LOOK_MS = 200, /* interval of the requests with --follow */
    ANSWER_WAIT_MS = 30000,
    /* Give up if for this time there is neither a master nor an end of the job. */
    NO_MASTER_MS = 10000,
};

#define N_STREAMS 2
static const char *const streams[N_STREAMS] = { "stdout", "stderr" };

struct place { /* the position up to which the log of one rank was shown */
    uint32_t slot, rank;
    int64_t attempt;
    int64_t at[N_STREAMS]; /* bytes shown; -1: nothing yet, and only the last lines are wanted */
    bool missing;          /* the log cannot be read, and the user was told */
};

struct logs {
    struct yarn *y;
    char id[APP_ID_MAX];
    const char *role; /* NULL = all */
    size_t role_len;
    int64_t index, attempt, lines, rank; /* rank: -1 = all */
    bool want[N_STREAMS], follow, heads;
    char last[200]; /* heading of the text that was printed last */
    json_t *doc;    /* the newest status document */
    VEC(struct place) places;
    /* the connection to the master of a live job */
    struct conn *master;
    uint32_t number, last_number; /* of the request under way; 0 = a request for the status */
    struct yarn_join join;        /* n = 1: a request is under way */
    json_t *answer;
    struct buf piece;
    int64_t at, size;
    int num;
};

/* ---- which tasks to show ---- */

static bool wanted(const struct logs *l, const json_t *task)
{
    const char *role = doc_str(task, "role");
    return !l->role || (strlen(role) == l->role_len && memcmp(role, l->role, l->role_len) == 0 &&
                        (l->index < 0 || doc_int(task, "index", -1) == l->index));
}

static const json_t *tasks_of(const struct logs *l)
{
    return json_object_get(l->doc, "tasks");
}

static bool is_over(const struct logs *l)
{
    return json_is_integer(json_object_get(l->doc, "exit_code"));
}

/* Did the document come from the ResourceManager, because the master does not answer? See
 * add_silence(). */
static bool is_silent(const struct logs *l)
{
    return !tasks_of(l) && str_eq(doc_str(l->doc, "state"), "RUNNING");
}

static bool all_ended(const struct logs *l)
{
    bool ended = true;
    size_t i;
    json_t *task;
    json_array_foreach(tasks_of(l), i, task) if (wanted(l, task)) ended =
        ended && str_eq(doc_str(task, "state"), "ended");
    return ended || is_over(l);
}

static size_t count_wanted(const struct logs *l)
{
    size_t n = 0, i;
    json_t *task;
    json_array_foreach(tasks_of(l), i, task) n += wanted(l, task);
    return n;
}

static size_t count_logs(const struct logs *l)
{
    size_t n = 0, i;
    json_t *task;
    json_array_foreach(tasks_of(l), i, task) if (wanted(l, task)) n +=
        l->rank < 0 ? (size_t)doc_int(task, "ranks", 1) : 1;
    return n;
}

/* ---- printing ---- */

static int write_text(struct logs *l, const char *task, const char *stream, uint32_t rank,
                      struct span text)
{
    char head[sizeof l->last];
    if (!text.len)
        return 0;
    (void)snprintf(head, sizeof head, rank ? "%s %s.%u" : "%s %s", task, stream, rank);
    if (l->heads && !str_eq(l->last, head)) {
        AUTO(buf_done) struct buf line = { 0 };
        (void)buf_addf(&line, "%s==> %s <==\n", l->last[0] ? "\n" : "", head);
        /* If this fails, writing the text fails too, and is reported. */
        (void)fs_write_all(STDOUT_FILENO, line.p, line.len);
    }
    (void)str_copy(l->last, sizeof l->last, head);
    return fs_write_all(STDOUT_FILENO, text.p, text.len);
}

/* ---- from a node or a log server ---- */

static bool fetch(struct logs *l, const char *url, struct buf *out)
{
    int status = 0;
    struct err e = { 0 };
    buf_clear(out);
    return url && yarn_get(l->y, url, PAGE_MAX, out, &status, &e) == 0 && status == 200;
}

/* The name of a log file: "stdout", or "stdout.2" for the second attempt in one container. For a
 * rank other than 0, "stdout.1.3": rank 3 of the first attempt. The caller frees it. */
static char *file_of(const json_t *task, const char *stream, uint32_t rank)
{
    const char *file = stream;
    size_t i, n = strlen(stream);
    json_t *name;
    json_array_foreach(json_object_get(task, "logs"), i, name)
    {
        const char *s = json_string_value(name);
        if (s && str_starts(s, stream) && (!s[n] || s[n] == '.'))
            file = s;
    }
    return rank ? str_printf("%s%s.%u", file, file[n] ? "" : ".1", rank) : str_dup(file);
}

static void say_missing(struct logs *l, const json_t *task, struct place *p)
{
    const char *server = site_get(l->y->site, "yarn.log.server.web-service.url");
    if (p->missing)
        return;
    p->missing = true;
    client_note("the log of %s can no longer be read from its node%s%s; it was at %s%s",
                doc_str(task, "task"), server ? ", nor from " : "", server ? server : "",
                doc_str(task, "log_url"),
                server ? "" : ", and 'yarn logs' has it if the cluster collects logs");
}

/* Print the page of a log from the position that was shown already to its end. */
static int show_page(struct logs *l, const json_t *task, size_t s, struct place *p)
{
    const char *url = doc_str(task, "log_url");
    if (!url[0])
        return 0; /* the task never had a container */
    AUTO(free_p) char *file = file_of(task, streams[s], p->rank);
    if (!file)
        return -ENOMEM;
    AUTO(buf_done) struct buf page = { .max = PAGE_MAX + 1 };
    AUTO(free_p) char *node = yarn_page_of_node(url, file);
    AUTO(free_p)
    char *server = yarn_page_of_server(site_get(l->y->site, "yarn.log.server.web-service.url"),
                                       doc_str(task, "container"), file);
    if (!fetch(l, node, &page) && !fetch(l, server, &page)) {
        say_missing(l, task, p);
        return 0;
    }
    struct span text = yarn_page_text(buf_span(&page));
    int64_t size = (int64_t)text.len;
    if (p->at[s] < 0)
        text = yarn_page_tail(text, l->lines);
    else
        text = span_mem(text.p + MIN(p->at[s], size), (size_t)(size - MIN(p->at[s], size)));
    p->at[s] = MAX(size, p->at[s]);
    return write_text(l, doc_str(task, "task"), streams[s], p->rank, text);
}

/* ---- from the executor, by way of the master ---- */

static void on_frame(struct conn *conn, const Tony__Frame *f, void *arg)
{
    struct logs *l = arg;
    (void)conn;
    if (!l->join.n)
        return;
    if (f->body_case == TONY__FRAME__BODY_ANSWER && l->number == 0) {
        const Tony__Answer *a = f->answer;
        l->answer =
            a->json.len ? json_loadb((const char *)a->json.data, a->json.len, 0, NULL) : NULL;
    } else if (f->body_case == TONY__FRAME__BODY_LOG_DATA && l->number &&
               f->log_data->number == l->number) {
        const Tony__LogData *d = f->log_data;
        buf_clear(&l->piece);
        l->num = (int)d->num;
        l->at = d->offset;
        l->size = d->size;
        if (buf_add(&l->piece, d->data.data, d->data.len) < 0)
            l->num = ENOMEM;
    } else {
        return;
    }
    yarn_join_end(&l->join, NULL);
}

static void on_close(struct conn *conn, const struct err *why, void *arg)
{
    struct logs *l = arg;
    struct err e = *why;
    (void)conn;
    l->master = NULL;
    if (!e.num)
        (void)err_set(&e, ECONNRESET, "the master has closed the connection");
    if (l->join.n)
        yarn_join_end(&l->join, &e);
}

static void late(void *arg)
{
    struct logs *l = arg;
    struct err e = { 0 };
    (void)err_set(&e, ETIMEDOUT, "the master does not answer");
    if (l->join.n)
        yarn_join_end(&l->join, &e);
}

static const struct conn_ops ops = { .on_frame = on_frame, .on_close = on_close };

static int await_answer(struct logs *l)
{
    struct loop_timer *t = loop_timer_new(l->y->loop, late, l);
    if (!t)
        return -ENOMEM;
    loop_timer_set(t, clock_mono_ms() + ANSWER_WAIT_MS);
    l->join = (struct yarn_join){ .loop = l->y->loop, .n = 1 };
    yarn_join_wait(&l->join);
    loop_timer_free(t);
    return -l->join.e.num;
}

static int read_piece(struct logs *l, const struct place *p, int64_t attempt, const char *stream,
                      int64_t offset)
{
    if (!l->master)
        return -ECONNRESET;
    l->last_number = l->last_number == UINT32_MAX ? 1 : l->last_number + 1;
    Tony__ReadLog ask = TONY__READ_LOG__INIT;
    ask.number = l->number = l->last_number;
    ask.slot = p->slot;
    ask.rank = p->rank;
    ask.attempt = (uint32_t)attempt;
    ask.stream = (char *)(uintptr_t)stream;
    ask.offset = offset;
    ask.max = PIECE;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_READ_LOG;
    f.read_log = &ask;
    int rc = conn_send(l->master, &f);
    return rc < 0 ? rc : await_answer(l);
}

/* Print a log from the position that was shown already to its present end. 1: the executor has
 * ended, and only the node has the file. */
static int copy_rest(struct logs *l, const json_t *task, size_t s, struct place *p)
{
    int64_t attempt = l->attempt ? l->attempt : p->attempt;
    for (;;) {
        bool from_end = p->at[s] < 0;
        int rc = read_piece(l, p, attempt, streams[s], from_end ? -(int64_t)PIECE : p->at[s]);
        if (rc < 0)
            return rc;
        if (l->num)
            return l->num == ESTALE ? 1 : 0; /* the file does not exist yet, or never will */
        struct span text = buf_span(&l->piece);
        if (from_end)
            text = yarn_page_tail(text, l->lines);
        if ((rc = write_text(l, doc_str(task, "task"), streams[s], p->rank, text)) < 0)
            return rc;
        p->at[s] = l->at + (int64_t)l->piece.len;
        if (p->at[s] >= l->size || l->piece.len == 0)
            return 0;
    }
}

/* ---- the status of the job ---- */

static void take_doc(struct logs *l, json_t *doc)
{
    json_decref(l->doc);
    l->doc = doc;
}

/* Request the status document over the open connection to the master. */
static int ask_status(struct logs *l)
{
    l->number = 0;
    int rc = link_send_ask(l->master, TONY__CLIENT_ASK__WHAT__STATUS, l->id, "");
    if (rc == 0)
        rc = await_answer(l);
    json_t *doc = TAKE(l->answer);
    if (rc == 0 && json_is_array(json_object_get(doc, "tasks"))) {
        take_doc(l, doc);
        return 0;
    }
    json_decref(doc);
    return rc < 0 ? rc : -EPROTO;
}

static int connect_master(struct logs *l, struct err *e)
{
    struct yarn_report r = { 0 };
    int rc = yarn_report(l->y, l->id, &r, e);
    if (rc == 0)
        rc = yarn_dial_master(l->y, &r, &ops, l, &l->master, e);
    yarn_report_done(&r);
    return rc;
}

/* Get the newest status document, and connect to the master if there is one. Errors: minus the exit
 * code. */
static int refresh(struct logs *l, struct err *e)
{
    if (l->master && ask_status(l) == 0)
        return 0;
    conn_close(TAKE(l->master));
    json_t *doc = NULL;
    struct err none = { 0 };
    int rc = yarn_status(l->y, l->id, &doc, e);
    if (rc < 0)
        return rc;
    take_doc(l, doc);
    if (!is_over(l) && tasks_of(l))
        /* If this fails, the master is probably ending. The next refresh() finds that out. */
        (void)connect_master(l, &none);
    return 0;
}

/* ---- showing ---- */

static int show_stream(struct logs *l, const json_t *task, size_t s, struct place *p)
{
    int rc = l->master ? copy_rest(l, task, s, p) : is_over(l) ? 1 : 0;
    if (rc == 1 && l->attempt && l->attempt != p->attempt) {
        if (!p->missing)
            client_note("only the last attempt of %s, %lld, can be read now", doc_str(task, "task"),
                        (long long)p->attempt);
        p->missing = true;
        return 0;
    }
    if (rc == 1)
        rc = show_page(l, task, s, p);
    /* After these errors the next round asks again. */
    return rc == -ECONNRESET || rc == -EPIPE || rc == -ETIMEDOUT ? 0 : rc;
}

/* A new attempt has new files: first print the rest of the old ones. */
static int show_task(struct logs *l, const json_t *task, struct place *p)
{
    int64_t attempt = doc_int(task, "attempt", 0);
    bool is_new_attempt = p->attempt > 0 && attempt != p->attempt && !l->attempt;
    int rc = 0;
    for (size_t s = 0; is_new_attempt && rc == 0 && s < N_STREAMS; s++)
        if (l->want[s] && l->master && (rc = copy_rest(l, task, s, p)) > 0)
            rc = 0;
    if (is_new_attempt)
        *p = (struct place){ .slot = p->slot, .rank = p->rank, .attempt = attempt };
    p->attempt = attempt;
    for (size_t s = 0; rc >= 0 && s < N_STREAMS; s++)
        if (l->want[s])
            rc = show_stream(l, task, s, p);
    return rc == -ECONNRESET || rc == -EPIPE ? 0 : rc;
}

static int show_round(struct logs *l)
{
    size_t i, at = 0; /* index into places, which lists the ranks of all tasks */
    json_t *task;
    int rc = 0;
    json_array_foreach(tasks_of(l), i, task)
    {
        int64_t n = MIN(doc_int(task, "ranks", 1), (int64_t)UINT16_MAX);
        for (int64_t rank = 0; rank < n; rank++, at++) {
            struct place p = { .slot = (uint32_t)i, .rank = (uint32_t)rank };
            for (size_t s = 0; s < N_STREAMS; s++)
                p.at[s] = l->lines >= 0 ? -1 : 0;
            if (at >= l->places.n && vec_push(&l->places, p) < 0)
                return -ENOMEM;
            if (rc == 0 && wanted(l, task) && (l->rank < 0 || l->rank == rank))
                rc = show_task(l, task, &l->places.v[at]);
        }
    }
    return rc;
}

/* There is no task to show. 0: a task may appear later; *out_done: do not wait for it. */
static int no_tasks(struct logs *l, bool *out_done, struct err *e)
{
    const char *message = doc_str(l->doc, "message");
    *out_done = true;
    if (tasks_of(l)) {
        (void)err_set(e, ENOENT, "job '%s' has no such task", l->id);
        err_hint(e, "tony tasks %s lists them", l->id);
        return -EXIT_MISUSE;
    }
    if (is_over(l)) {
        (void)err_set(e, ENOENT, "the master of '%s' has left no record of tasks%s%s", l->id,
                      message[0] ? ": " : "", message);
        err_hint(e, "yarn logs -applicationId %s has what the cluster has collected", l->id);
        return -EXIT_CLUSTER;
    }
    *out_done = !l->follow;
    if (!l->follow)
        client_note("nothing can be read yet: job %s is %s", l->id, doc_str(l->doc, "state"));
    return 0;
}

/* Show all text that exists now. *out_last: no more will follow. */
static int show_now(struct logs *l, bool *out_last, struct err *e)
{
    l->heads = count_logs(l) > 1 || (l->want[0] && l->want[1]);
    bool last = !l->follow || all_ended(l);
    int rc = show_round(l);
    if (rc < 0) {
        (void)err_set(e, -rc, "cannot show the logs: %m");
        return -EXIT_CLUSTER;
    }
    /* Without a connection to the master the last round may be incomplete, unless the job is
     * over. */
    *out_last = last && (l->master || is_over(l));
    return 0;
}

static int show(struct logs *l, struct err *e)
{
    int64_t heard_ms = clock_mono_ms();
    for (bool last = false; !last;) {
        int rc = refresh(l, e);
        if (rc == 0)
            rc = count_wanted(l) ? show_now(l, &last, e) : is_silent(l) ? 0 : no_tasks(l, &last, e);
        if (rc < 0)
            return rc;
        int64_t now = clock_mono_ms();
        if (l->master || is_over(l) || (!tasks_of(l) && !is_silent(l)))
            heard_ms = now;
        if (!l->follow && now - heard_ms > NO_MASTER_MS) {
            (void)err_set(e, ETIMEDOUT, "the master of '%s' does not answer", l->id);
            err_hint(e, "tony tasks %s shows where the logs lie", l->id);
            return -EXIT_CLUSTER;
        }
        if (!last)
            yarn_pause(l->y, LOOK_MS);
    }
    return 0;
}

/* ---- the command ---- */

static int set_up(struct logs *l, const char *word, struct err *e)
{
    struct client *c = l->y->c;
    l->want[0] = options_has(&c->o, OPT_STDOUT) || !options_has(&c->o, OPT_STDERR);
    l->want[1] = options_has(&c->o, OPT_STDERR) || !options_has(&c->o, OPT_STDOUT);
    l->follow = options_has(&c->o, OPT_FOLLOW);
    if (options_int(&c->o, OPT_N, 0, INT32_MAX, -1, &l->lines, e) < 0 ||
        options_int(&c->o, OPT_ATTEMPT, 1, UINT32_MAX, 0, &l->attempt, e) < 0 ||
        options_int(&c->o, OPT_RANK, 0, UINT16_MAX, -1, &l->rank, e) < 0)
        return -EXIT_MISUSE;
    l->index = -1;
    if (c->o.n_args > 1) {
        const char *colon = strrchr(c->o.args[1], ':');
        l->role = c->o.args[1];
        l->role_len = colon ? (size_t)(colon - l->role) : strlen(l->role);
        if (colon && str_i64(span_of(colon + 1), 0, UINT32_MAX, "task index", &l->index, e) < 0)
            return -EXIT_MISUSE;
    }
    return yarn_find(l->y, word, l->id, e);
}

int yarn_cmd_logs(struct client *c, const char *word)
{
    struct err e = { 0 };
    AUTO(yarn_freep) struct yarn *y = NULL;
    struct logs l = { 0 };
    int rc = yarn_open(c, NULL, &y, &e);
    l.y = y;
    if (rc == 0)
        rc = set_up(&l, word, &e);
    if (rc == 0)
        rc = show(&l, &e);
    conn_close(l.master);
    buf_done(&l.piece);
    vec_done(&l.places);
    json_decref(l.doc);
    json_decref(l.answer);
    return rc < 0 ? client_fail(-rc, &e) : EXIT_DONE;
}
