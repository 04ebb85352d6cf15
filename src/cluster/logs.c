/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_logs(): reads the logs of a job whose master is on another machine. While the job runs,
 * the client asks the master for parts of the logs, and the master passes each request on to the
 * executor of the task. The logs of ended tasks are read from where the cluster keeps them
 * (kept_log() of its table).
 *
 * With --follow the client asks once, and the executors send new text as soon as there is some
 * (log_watch.h). The client also requests the status of the job, each STATUS_MS or less often if
 * there are many tasks. The status tells when the tasks have ended.
 */
#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/link.h"
#include "cluster/log_watch.h"
#include "cluster/remote.h"
#include "codec/json.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "storage/log_times.h"

enum {
    PIECE = 256 << 10,
    LOOK_MS = 200, /* pause before the status is requested again, if there is no master */
    /* With cluster_log_wish.from: of a log of which nothing was shown, only its last lines. */
    REST_LINES = 100,
    /* With --follow: the interval of the requests for the status is STATUS_PER_TASK_MS for each
     * task, from STATUS_MS to STATUS_MAX_MS. A master needs about 10 us for each task in the
     * status. */
    STATUS_MS = 500,
    STATUS_PER_TASK_MS = 5,
    STATUS_MAX_MS = 5000,
    ANSWER_WAIT_MS = 30000, /* timeout for an answer of the master */
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
    bool shown;            /* with --follow: the attempt has ended, and its logs were shown */
};

struct logs {
    struct cluster *k;
    struct cluster_host *h;
    const char *id;
    const struct cluster_log_wish *w;
    cluster_log_fn *fn;
    void *arg;
    bool several; /* more than one log is shown */
    json_t *doc;  /* the newest status document */
    VEC(struct place) places;
    /* the connection to the master of a live job */
    struct conn *master;
    uint32_t number, last_number; /* of the request under way; 0 = a request for the status */
    bool asking;                  /* a request is under way: await_answer() runs the loop */
    struct err failed;            /* of that request */
    json_t *answer;
    struct buf piece;
    int64_t at, size;
    int num;
    /* with --follow */
    bool watches;             /* the master on this connection was asked for new text */
    struct log_places passed; /* the text that it has sent */
    int fn_rc;                /* a negative result of fn */
    struct loop_timer *timer;
    bool pausing; /* wait_for_status() runs the loop */
};

/* ---- which tasks to show ---- */

static bool is_task_wanted(const struct logs *l, const json_t *task)
{
    return cluster_log_wants(l->w->tasks, l->w->n_tasks, json_str(task, "role", ""),
                             json_int(task, "index", -1));
}

/* The number of the task in messages. Masters of tony 0.1.0 do not tell it: it was the index. */
static uint32_t slot_of(const json_t *task, size_t index)
{
    return (uint32_t)json_int(task, "slot", (int64_t)index);
}

static bool is_stream_wanted(const struct logs *l, size_t stream)
{
    return stream == 0 ? l->w->want_stdout : l->w->want_stderr;
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
 * add_no_answer(). */
static bool is_silent(const struct logs *l)
{
    return !tasks_of(l) && str_eq(json_str(l->doc, "state", ""), "RUNNING");
}

static bool all_ended(const struct logs *l)
{
    bool ended = true;
    size_t i;
    json_t *task;
    json_array_foreach(tasks_of(l), i, task)
    {
        if (is_task_wanted(l, task) && !str_eq(json_str(task, "state", ""), "ended"))
            ended = false;
    }
    return ended || is_over(l);
}

static size_t count_wanted(const struct logs *l)
{
    size_t n = 0, i;
    json_t *task;
    json_array_foreach(tasks_of(l), i, task)
    {
        n += is_task_wanted(l, task);
    }
    return n;
}

static size_t count_logs(const struct logs *l)
{
    size_t n = 0, i;
    json_t *task;
    json_array_foreach(tasks_of(l), i, task)
    {
        if (is_task_wanted(l, task))
            n += l->w->rank < 0 ? (size_t)json_int(task, "ranks", 1) : 1;
    }
    return n;
}

/* ---- positions ---- */

/* The position in a log of which nothing was shown yet: see struct place. */
static int64_t first_at(const struct logs *l)
{
    return l->w->lines >= 0 ? -1 : 0;
}

static struct place new_place(uint32_t slot, uint32_t rank, int64_t at)
{
    return (struct place){ .slot = slot, .rank = rank, .at = { at, at } };
}

/* The attempt has new files: nothing of them was shown yet. */
static void begin_attempt(struct place *p, int64_t attempt, int64_t at)
{
    *p = new_place(p->slot, p->rank, at);
    p->attempt = attempt;
}

/* ---- printing ---- */

struct piece_of { /* the log whose text is handed on */
    struct logs *l;
    const char *task, *stream;
    uint32_t rank;
};

static int write_text(struct logs *l, const char *task, const char *stream, uint32_t rank,
                      struct span text)
{
    const struct cluster_log_text t = {
        .task = task,
        .stream = stream,
        .rank = rank,
        .several = l->several,
        .text = text,
        .offset = -1,
    };
    return text.len ? l->fn(&t, l->arg) : 0;
}

static int write_kept(struct span text, void *arg)
{
    const struct piece_of *p = arg;
    return write_text(p->l, p->task, p->stream, p->rank, text);
}

/* ---- of a task that has ended ---- */

static int take_times(struct span text, void *arg)
{
    return buf_add(arg, text.p, text.len);
}

/* --since: how long the kept log was at that time. 0 if that is not known. */
static int64_t kept_since(const struct logs *l, const struct cluster_kept_log *log)
{
    AUTO(buf_done) struct buf times = { .max = LOG_TIMES_TEXT_MAX };
    struct cluster_kept_log ask = *log;
    struct err unread = { 0 };
    int64_t size = 0;
    ask.stream = LOG_TIMES_NAME;
    ask.rank = 0;
    ask.lines = -1;
    if (cluster_head(l->k)->ops->kept_log(l->k, &ask, take_times, &times, &size, &unread) < 0)
        return 0;
    return log_times_length(buf_span(&times), l->w->since_ms, log->rank,
                            str_eq(log->stream, "stderr"));
}

/* Print the kept log from the position that was shown already to its end. */
static int show_kept(struct logs *l, const json_t *task, size_t s, struct place *p)
{
    const struct cluster_ops *ops = cluster_head(l->k)->ops;
    struct piece_of piece = { l, json_str(task, "task", ""), streams[s], p->rank };
    struct cluster_kept_log log = { .id = l->id,
                                    .task = task,
                                    .stream = streams[s],
                                    .rank = p->rank,
                                    .attempt = p->attempt,
                                    .from = MAX(p->at[s], (int64_t)0),
                                    .lines = p->at[s] >= 0 ? -1
                                             : l->w->from  ? REST_LINES
                                                           : l->w->lines };
    struct err e = { 0 };
    if (l->w->since_ms && p->at[s] == 0 && ops->kept_log)
        log.from = kept_since(l, &log);
    int64_t size = log.from;
    int rc = ops->kept_log ? ops->kept_log(l->k, &log, write_kept, &piece, &size, &e)
                           : err_set(&e, ENOENT, "the log of %s can no longer be read", piece.task);
    if (rc == -ENOENT && !p->missing)
        host_note(l->h, "%s", e.msg);
    p->missing = p->missing || rc == -ENOENT;
    p->at[s] = MAX(size, p->at[s]);
    return rc == -ENOENT ? 0 : rc;
}

/* ---- from the executor, by way of the master ---- */

static void end_pause(struct logs *l)
{
    l->pausing = false;
    loop_stop(l->h->loop);
}

static void request_over(struct logs *l, const struct err *e)
{
    l->asking = false;
    if (e)
        l->failed = *e;
    loop_stop(l->h->loop);
}

static void take_piece(struct logs *l, const Tony__LogPiece *p);

static void on_frame(struct conn *conn, const Tony__Frame *f, void *arg)
{
    struct logs *l = arg;
    (void)conn;
    if (f->body_case == TONY__FRAME__BODY_LOG_PIECE)
        take_piece(l, f->log_piece);
    if (!l->asking)
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
    request_over(l, NULL);
}

static void on_close(struct conn *conn, const struct err *why, void *arg)
{
    struct logs *l = arg;
    struct err e = *why;
    (void)conn;
    l->master = NULL;
    l->watches = false;
    if (!e.num)
        (void)err_set(&e, ECONNRESET, "the master has closed the connection");
    if (l->asking)
        request_over(l, &e);
    if (l->pausing)
        end_pause(l);
}

static void late(void *arg)
{
    struct logs *l = arg;
    struct err e = { 0 };
    (void)err_set(&e, ETIMEDOUT, "the master does not answer");
    if (l->asking)
        request_over(l, &e);
}

static const struct conn_ops master_ops = { .on_frame = on_frame, .on_close = on_close };

static int await_answer(struct logs *l)
{
    struct loop_timer *t = loop_timer_new(l->h->loop, late, l);
    if (!t)
        return -ENOMEM;
    loop_timer_set(t, clock_mono_ms() + ANSWER_WAIT_MS);
    l->failed = (struct err){ 0 };
    for (l->asking = true; l->asking;)
        (void)loop_run(l->h->loop);
    loop_timer_free(t);
    return -l->failed.num;
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
    ask.since_ms = l->w->since_ms;
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
    int64_t attempt = l->w->attempt ? l->w->attempt : p->attempt;
    for (;;) {
        bool from_end = p->at[s] < 0;
        int rc = read_piece(l, p, attempt, streams[s], from_end ? -(int64_t)PIECE : p->at[s]);
        if (rc < 0)
            return rc;
        if (l->num)
            return l->num == ESTALE ? 1 : 0; /* the file does not exist yet, or never will */
        struct span text = buf_span(&l->piece);
        if (from_end)
            text = text_tail(text, l->w->lines);
        if ((rc = write_text(l, json_str(task, "task", ""), streams[s], p->rank, text)) < 0)
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
    struct cluster_report r = { 0 };
    int rc = cluster_head(l->k)->ops->report(l->k, l->id, &r, e);
    if (rc == 0)
        rc = cluster_dial(l->k, &r, &master_ops, l, &l->master, e);
    cluster_report_done(&r);
    return rc;
}

/* Get the newest status document, and connect to the master if there is one. Errors: minus the exit
 * code. */
static int refresh(struct logs *l, struct err *e)
{
    if (l->master && ask_status(l) == 0)
        return 0;
    conn_close(TAKE(l->master));
    l->watches = false;
    json_t *doc = NULL;
    struct err none = { 0 };
    int rc = cluster_head(l->k)->ops->status(l->k, l->id, &doc, e);
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
    if (rc == 1 && l->w->attempt && l->w->attempt != p->attempt) {
        if (!p->missing)
            host_note(l->h, "only the last attempt of %s, %lld, can be read now",
                      json_str(task, "task", ""), (long long)p->attempt);
        p->missing = true;
        return 0;
    }
    if (rc == 1)
        rc = show_kept(l, task, s, p);
    /* After these errors the next round asks again. */
    return rc == -ECONNRESET || rc == -EPIPE || rc == -ETIMEDOUT ? 0 : rc;
}

/* A new attempt has new files: first print the rest of the old ones. */
static int show_task(struct logs *l, const json_t *task, struct place *p)
{
    int64_t attempt = json_int(task, "attempt", 0);
    bool is_new_attempt = p->attempt > 0 && attempt != p->attempt && !l->w->attempt;
    int rc = 0;
    for (size_t s = 0; is_new_attempt && rc == 0 && s < N_STREAMS; s++)
        if (is_stream_wanted(l, s) && l->master && (rc = copy_rest(l, task, s, p)) > 0)
            rc = 0;
    if (is_new_attempt)
        begin_attempt(p, attempt, 0);
    p->attempt = attempt;
    for (size_t s = 0; rc >= 0 && s < N_STREAMS; s++)
        if (is_stream_wanted(l, s))
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
        int64_t n = MIN(json_int(task, "ranks", 1), (int64_t)UINT16_MAX);
        for (int64_t rank = 0; rank < n; rank++, at++) {
            struct place p = new_place(slot_of(task, i), (uint32_t)rank, first_at(l));
            for (size_t s = 0; l->w->from && s < N_STREAMS; s++)
                p.at[s] = l->w->from(json_str(task, "task", ""), streams[s], (uint32_t)rank,
                                     (uint32_t)json_int(task, "attempt", 0), l->w->from_arg);
            if (at >= l->places.n && vec_push(&l->places, p) < 0)
                return -ENOMEM;
            if (rc == 0 && is_task_wanted(l, task) && (l->w->rank < 0 || l->w->rank == rank))
                rc = show_task(l, task, &l->places.v[at]);
        }
    }
    return rc;
}

/* There is no task to show. 0: a task may appear later; *out_done: do not wait for it. */
static int no_tasks(struct logs *l, bool *out_done, struct err *e)
{
    const char *message = json_str(l->doc, "message", "");
    *out_done = true;
    if (tasks_of(l)) {
        (void)err_set(e, ENOENT, "job '%s' does not have this task", l->id);
        err_hint(e, "tony tasks %s lists them", l->id);
        return -EXIT_MISUSE;
    }
    if (is_over(l)) {
        (void)err_set(e, ENOENT, "the master of job '%s' left no list of its tasks%s%s", l->id,
                      message[0] ? ": " : "", message);
        if (cluster_head(l->k)->ops->hint_logs)
            cluster_head(l->k)->ops->hint_logs(l->id, e);
        return -EXIT_CLUSTER;
    }
    *out_done = !l->w->follow;
    if (!l->w->follow)
        host_note(l->h, "nothing can be read yet: job %s is %s", l->id,
                  json_str(l->doc, "state", ""));
    return 0;
}

/* Show all text that exists now. *out_last: no more will follow. */
static int show_now(struct logs *l, bool *out_last, struct err *e)
{
    l->several = count_logs(l) > 1 || (is_stream_wanted(l, 0) && is_stream_wanted(l, 1));
    bool last = !l->w->follow || all_ended(l);
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

/* ---- following ---- */

/* Is the text pushed by the executors? An earlier attempt is read by requests: it is complete. */
static bool is_pushed(const struct logs *l)
{
    return l->w->follow && !l->w->attempt;
}

static struct place *place_at(struct logs *l, uint32_t slot, uint32_t rank)
{
    for (size_t i = 0; i < l->places.n; i++)
        if (l->places.v[i].slot == slot && l->places.v[i].rank == rank)
            return &l->places.v[i];
    return NULL;
}

static void take_piece(struct logs *l, const Tony__LogPiece *m)
{
    struct cluster_log_text text;
    struct place *p = place_at(l, m->slot, m->rank);
    if (m->end) /* the status tells whether the task still runs; show_end() reads what is missing */
        return;
    bool is_new = log_watch_take(&l->passed, m, &text);
    if (p && p->attempt < (int64_t)m->attempt)
        begin_attempt(p, m->attempt, 0);
    if (p && p->attempt == (int64_t)m->attempt && !p->shown)
        p->at[m->is_stderr] = m->offset + (int64_t)m->data.len;
    if (!is_new || (p && p->shown && p->attempt == (int64_t)m->attempt) || l->fn_rc < 0)
        return;
    text.several = l->several;
    l->fn_rc = l->fn(&text, l->arg);
    if (l->fn_rc < 0 && l->pausing)
        end_pause(l);
}

/* Ask the master for the text behind that which kept_log() has shown. */
static int watch(struct logs *l)
{
    const struct log_watch_wish w = { .which = l->w->n_tasks ? CLUSTER_OUTPUT_CHOSEN
                                                             : CLUSTER_OUTPUT_ALL,
                                      .chosen = l->w->tasks,
                                      .n_chosen = l->w->n_tasks,
                                      .want_stdout = l->w->want_stdout,
                                      .want_stderr = l->w->want_stderr,
                                      .rank = l->w->rank,
                                      .lines = l->w->lines,
                                      .since_ms = l->w->since_ms };
    if (!l->master || l->watches)
        return 0;
    int rc = log_watch_send(l->master, &w, &l->passed);
    l->watches = rc == 0;
    return rc == -ENOMEM ? rc : 0; /* if the connection is broken, refresh() makes another one */
}

/* A task has ended. Show the part of its logs that its executor had not sent before its end. */
static int show_end(struct logs *l, const json_t *task, struct place *p)
{
    int rc = 0;
    int64_t attempt = json_int(task, "attempt", 0);
    if (p->attempt != attempt)
        begin_attempt(p, attempt, p->attempt ? 0 : first_at(l));
    for (size_t s = 0; rc >= 0 && s < N_STREAMS; s++)
        if (is_stream_wanted(l, s))
            rc = show_kept(l, task, s, p);
    p->shown = true;
    return rc;
}

static int show_ended(struct logs *l)
{
    size_t i;
    json_t *task;
    int rc = 0;
    json_array_foreach(tasks_of(l), i, task)
    {
        bool ended = is_over(l) || str_eq(json_str(task, "state", ""), "ended");
        int64_t n = MIN(json_int(task, "ranks", 1), (int64_t)UINT16_MAX);
        for (int64_t rank = 0; rank < n && is_task_wanted(l, task) && rc >= 0; rank++) {
            struct place *p = place_at(l, slot_of(task, i), (uint32_t)rank);
            struct place new = new_place(slot_of(task, i), (uint32_t)rank, first_at(l));
            if (l->w->rank >= 0 && l->w->rank != rank)
                continue;
            if (!p && vec_push(&l->places, new) == 0)
                p = &l->places.v[l->places.n - 1];
            if (!p)
                return -ENOMEM;
            if (ended && (!p->shown || p->attempt != json_int(task, "attempt", 0)))
                rc = show_end(l, task, p);
        }
    }
    return rc;
}

/* Show what ended tasks have left, and let the executors of the others send. *out_last: all wanted
 * tasks have ended. */
static int follow_now(struct logs *l, bool *out_last, struct err *e)
{
    l->several = count_logs(l) > 1 || (is_stream_wanted(l, 0) && is_stream_wanted(l, 1));
    bool last = all_ended(l);
    int rc = show_ended(l);
    if (rc >= 0)
        rc = watch(l);
    if (rc >= 0)
        rc = l->fn_rc;
    if (rc < 0) {
        (void)err_set(e, -rc, "cannot show the logs: %m");
        return -EXIT_CLUSTER;
    }
    *out_last = last && (l->master || is_over(l));
    return 0;
}

static void on_timer(void *arg)
{
    struct logs *l = arg;
    if (l->pausing)
        end_pause(l);
}

/* Run the loop until it is time for the next status, or the connection ends. Text is shown
 * meanwhile. */
static int wait_for_status(struct logs *l)
{
    int64_t n = (int64_t)json_array_size(tasks_of(l)) * STATUS_PER_TASK_MS;
    int64_t pause = l->master ? MIN(MAX(n, (int64_t)STATUS_MS), (int64_t)STATUS_MAX_MS) : LOOK_MS;
    if (!l->timer && !(l->timer = loop_timer_new(l->h->loop, on_timer, l)))
        return -ENOMEM;
    loop_timer_set(l->timer, clock_mono_ms() + pause);
    for (l->pausing = true; l->pausing;)
        (void)loop_run(l->h->loop);
    loop_timer_stop(l->timer);
    return l->fn_rc;
}

static int show(struct logs *l, struct err *e)
{
    int64_t heard_ms = clock_mono_ms(), silent_ms = 0;
    for (bool last = false; !last;) {
        int rc = refresh(l, e);
        if (rc == -EXIT_CLUSTER && l->w->follow && cluster_is_silent(l->k, e, &silent_ms)) {
            host_pause(l->h, LOOK_MS);
            continue;
        }
        silent_ms = rc == 0 ? 0 : silent_ms;
        if (rc == 0 && is_pushed(l) && count_wanted(l)) {
            rc = follow_now(l, &last, e);
            if (rc == 0 && !last && wait_for_status(l) < 0) {
                (void)err_set(e, l->fn_rc ? -l->fn_rc : ENOMEM, "cannot show the logs: %m");
                rc = -EXIT_CLUSTER;
            }
            if (rc < 0)
                return rc;
            continue;
        }
        if (rc == 0)
            rc = count_wanted(l) ? show_now(l, &last, e) : is_silent(l) ? 0 : no_tasks(l, &last, e);
        if (rc < 0)
            return rc;
        int64_t now = clock_mono_ms();
        if (l->master || is_over(l) || (!tasks_of(l) && !is_silent(l)))
            heard_ms = now;
        if (!l->w->follow && now - heard_ms > NO_MASTER_MS) {
            (void)err_set(e, ETIMEDOUT, "the master of job '%s' does not answer", l->id);
            err_hint(e, "tony tasks %s shows where the log files are", l->id);
            return -EXIT_CLUSTER;
        }
        if (!last)
            host_pause(l->h, LOOK_MS);
    }
    return 0;
}

int remote_logs(struct cluster *k, const char *id, const struct cluster_log_wish *w,
                cluster_log_fn *fn, void *arg, struct err *e)
{
    struct logs l = {
        .k = k, .h = cluster_head(k)->cfg.host, .id = id, .w = w, .fn = fn, .arg = arg
    };
    int rc = host_loop(l.h, e) ? show(&l, e) : -EXIT_CLUSTER;
    conn_close(l.master);
    loop_timer_free(l.timer);
    buf_done(&l.piece);
    vec_done(&l.places);
    vec_done(&l.passed.v);
    json_decref(l.doc);
    json_decref(l.answer);
    return rc;
}

struct span text_tail(struct span text, int64_t n)
{
    size_t at = text.len;
    if (n < 0)
        return text;
    for (; at > 0 && n > 0; at--)
        if (text.p[at - 1] == '\n' && at != text.len && --n == 0)
            break;
    return span_mem(text.p + at, text.len - at);
}
