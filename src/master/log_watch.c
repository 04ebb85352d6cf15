/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients watch the logs of tasks: `tony run`, and `tony logs --follow` on a cluster. The master
 * asks the executors of these tasks, and passes on what they send. It reads no file and keeps no
 * text.
 *
 * Cost     An executor sends only if there is new text, and not more often than interval_ms, which
 *          grows with the number of watched tasks: all of them send at most 500 times a second.
 * Memory   The text under way is limited by the window of each task, and for a lossy watch by
 *          CLIENT_QUEUE_MAX: if its client does not read, text is left out and counted.
 * Restarts For each watched task the master knows up to where the text was passed on. If another
 *          executor of the task connects, the master asks it for the rest.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "master/master_int.h"
#include "proto/tony.pb-c.h"

enum {
    WATCHES_MAX = 64, /* of all clients; an executor takes as many */
    AUTO_TASKS = 4,   /* WatchLogs.AUTO: all tasks if there are not more */
    /* An executor sends new text at most once in an interval: INTERVAL_PER_TASK_MS for each
     * watched task, from INTERVAL_MIN_MS to INTERVAL_MAX_MS. */
    INTERVAL_MIN_MS = 100,
    INTERVAL_MAX_MS = 5000,
    INTERVAL_PER_TASK_MS = 2,
    PIECE_MAX = 64 << 10, /* bytes of one log that it sends at once */
    /* Of a lossy watch: 160 KB/s of each log if few tasks are watched. No person reads faster. */
    LOSSY_PIECE = 16 << 10,
    LOSSY_PIECE_OF_MANY = 4 << 10,
    MANY_TASKS = 16,
    WINDOWS = 8 << 20, /* of all tasks of a watch together */
    WINDOW_MIN = 16 << 10,
    WINDOW_MAX = 256 << 10,
    CLIENT_QUEUE_MAX = 1 << 20, /* bytes that the client's connection has not accepted yet */
    LOOK_MS = 20,               /* between two looks at a full queue */
};

struct seen { /* text up to here was passed on */
    uint32_t attempt, rank;
    bool is_stderr;
    int64_t offset;
    uint32_t file;
};

struct tap { /* a watch at the executor of one task */
    bool asked;
    uint64_t used;                   /* bytes of the window since the last MoreLogs */
    uint64_t lost_bytes, lost_lines; /* not passed on, because the client did not read */
    VEC(struct seen) seen;
};

struct log_watch {
    uint32_t id; /* the number in messages with executors */
    struct peer *client;
    Tony__WatchLogs *ask; /* a copy */
    struct loop_timer *timer;
    uint64_t window;
    struct tap *taps; /* by slot */
    size_t n_taps;
    bool owes; /* MoreLogs wait for the client's queue */
};

/* ---- which tasks ---- */

static bool is_chosen(const Tony__WatchLogs *ask, const struct slot_view *v)
{
    for (size_t i = 0; i < ask->n_chosen; i++)
        if (str_eq(ask->chosen[i]->role, v->role) &&
            (!ask->chosen[i]->one || ask->chosen[i]->index == v->index))
            return true;
    return false;
}

/* The chief, or the first task of a job without a chief. */
static bool is_chief(const struct master *m, uint32_t slot, const struct slot_view *v)
{
    struct slot_view other;
    if (v->chief || slot != job_task(m->job, 0, 0))
        return v->chief;
    for (uint32_t i = 0; i < job_n_slots(m->job); i++) {
        job_slot(m->job, i, &other);
        if (other.chief && !other.spare)
            return false;
    }
    return true;
}

static bool wants(const struct master *m, const struct log_watch *w, uint32_t slot)
{
    struct slot_view v;
    job_slot(m->job, slot, &v);
    if (v.spare)
        return false;
    switch ((int)w->ask->which) {
    case TONY__WATCH_LOGS__WHICH__ALL:
        return true;
    case TONY__WATCH_LOGS__WHICH__CHOSEN:
        return is_chosen(w->ask, &v);
    case TONY__WATCH_LOGS__WHICH__AUTO:
        return job_n_tasks(m->job) <= AUTO_TASKS || is_chief(m, slot, &v);
    default:
        return is_chief(m, slot, &v);
    }
}

static uint32_t count_wanted(const struct master *m, const struct log_watch *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < job_n_slots(m->job); i++)
        n += wants(m, w, i);
    return MAX(n, 1u);
}

/* ---- to the executors ---- */

static struct tap *tap_of(struct log_watch *w, uint32_t slot)
{
    if (slot < w->n_taps)
        return &w->taps[slot];
    size_t n = MAX(slot + (size_t)1, 2 * w->n_taps);
    struct tap *more = realloc(w->taps, n * sizeof *more);
    if (!more)
        return NULL;
    for (size_t i = w->n_taps; i < n; i++)
        more[i] = (struct tap){ .asked = false };
    w->taps = more;
    w->n_taps = n;
    return &w->taps[slot];
}

static void send_tail(struct master *m, struct log_watch *w, uint32_t slot, struct tap *t)
{
    uint32_t n_tasks = count_wanted(m, w);
    uint32_t interval = MIN(MAX(n_tasks * INTERVAL_PER_TASK_MS, (uint32_t)INTERVAL_MIN_MS),
                            (uint32_t)INTERVAL_MAX_MS);
    size_t n = t->seen.n;
    AUTO(free_p) Tony__LogPlace *places = calloc(n + 1, sizeof *places);
    AUTO(free_p) Tony__LogPlace **list = calloc(n + 1, sizeof *list);
    if (!places || !list)
        return; /* no memory: this client does not see the log of this task */
    for (size_t i = 0; i < n; i++) {
        const struct seen *s = &t->seen.v[i];
        tony__log_place__init(&places[i]);
        places[i].slot = slot;
        places[i].attempt = s->attempt;
        places[i].rank = s->rank;
        places[i].is_stderr = s->is_stderr;
        places[i].offset = s->offset;
        places[i].file = s->file;
        list[i] = &places[i];
    }
    w->window = MIN(MAX((uint64_t)WINDOWS / n_tasks, (uint64_t)WINDOW_MIN), (uint64_t)WINDOW_MAX);
    Tony__TailLogs a = TONY__TAIL_LOGS__INIT;
    a.number = w->id;
    a.want_stdout = w->ask->want_stdout;
    a.want_stderr = w->ask->want_stderr;
    a.lossy = w->ask->lossy;
    a.one_rank = w->ask->one_rank;
    a.rank = w->ask->rank;
    a.has_lines = w->ask->has_lines;
    a.lines = w->ask->lines;
    a.since_ms = w->ask->since_ms;
    a.places = list;
    a.n_places = n;
    a.interval_ms = interval;
    a.piece_max = !w->ask->lossy          ? PIECE_MAX
                  : n_tasks <= MANY_TASKS ? LOSSY_PIECE
                                          : LOSSY_PIECE_OF_MANY;
    a.window = w->window;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_TAIL_LOGS;
    f.tail_logs = &a;
    t->asked = true;
    t->used = 0;
    (void)conn_send(m->executors[slot]->conn, &f); /* if it is broken, the executor reconnects */
}

static void send_more(struct master *m, const struct log_watch *w, uint32_t slot, uint64_t bytes,
                      bool end)
{
    if (slot >= m->n_slots || !m->executors[slot])
        return;
    Tony__MoreLogs a = TONY__MORE_LOGS__INIT;
    a.number = w->id;
    a.bytes = bytes;
    a.end = end;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_MORE_LOGS;
    f.more_logs = &a;
    (void)conn_send(m->executors[slot]->conn, &f);
}

static void tail(struct master *m, struct log_watch *w, uint32_t slot)
{
    struct tap *t = m->executors[slot] && wants(m, w, slot) ? tap_of(w, slot) : NULL;
    if (t)
        send_tail(m, w, slot, t);
}

void log_watch_executor(struct master *m, uint32_t slot)
{
    for (size_t i = 0; i < m->log_watches.n; i++)
        tail(m, m->log_watches.v[i], slot);
}

/* ---- to the client ---- */

static bool is_client_slow(const struct log_watch *w)
{
    return conn_queued(w->client->conn) > CLIENT_QUEUE_MAX;
}

/* Let the executor send more, unless the client is slow: then the timer looks again. */
static void give_window(struct master *m, struct log_watch *w, uint32_t slot, struct tap *t)
{
    if (t->used < w->window / 2)
        return;
    if (!w->ask->lossy && is_client_slow(w)) {
        if (!w->owes)
            loop_timer_set(w->timer, clock_mono_ms() + LOOK_MS);
        w->owes = true;
        return;
    }
    send_more(m, w, slot, t->used, false);
    t->used = 0;
}

static void on_timer(void *arg)
{
    struct log_watch *w = arg;
    w->owes = false;
    for (uint32_t i = 0; i < w->n_taps; i++)
        give_window(w->client->m, w, i, &w->taps[i]);
}

/* Remember the place after this piece. Places of earlier attempts are not needed any more. */
static void note_place(struct tap *t, const Tony__LogPiece *p)
{
    struct seen now = { p->attempt, p->rank, p->is_stderr, p->offset + (int64_t)p->data.len,
                        p->file };
    for (size_t i = t->seen.n; i-- > 0;)
        if (t->seen.v[i].attempt < p->attempt)
            vec_remove_fast(&t->seen, i);
    for (size_t i = 0; i < t->seen.n; i++) {
        struct seen *s = &t->seen.v[i];
        if (s->rank == now.rank && s->is_stderr == now.is_stderr && s->attempt == now.attempt) {
            *s = now;
            return;
        }
    }
    (void)vec_push(&t->seen, now); /* without memory: after a new connection text comes twice */
}

static void pass_on(struct log_watch *w, uint32_t slot, struct tap *t, const Tony__LogPiece *p)
{
    char task[128];
    struct slot_view v;
    struct master *m = w->client->m;
    if (w->ask->lossy && is_client_slow(w) && !p->end) {
        t->lost_bytes += p->left_out_bytes + p->data.len;
        t->lost_lines += p->left_out_lines;
        for (size_t i = 0; i < p->data.len; i++)
            t->lost_lines += p->data.data[i] == '\n';
        return;
    }
    job_slot(m->job, slot, &v);
    (void)snprintf(task, sizeof task, "%s:%u", v.role, v.index);
    Tony__LogPiece a = *p; /* the bytes of data are not copied */
    a.number = w->ask->number;
    a.slot = slot;
    a.task = task;
    a.left_out_bytes += t->lost_bytes;
    a.left_out_lines += t->lost_lines;
    t->lost_bytes = t->lost_lines = 0;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_LOG_PIECE;
    f.log_piece = &a;
    (void)conn_send(w->client->conn, &f); /* on_close() handles a broken connection */
}

void log_watch_piece(struct peer *executor, const Tony__LogPiece *p)
{
    struct master *m = executor->m;
    for (size_t i = 0; i < m->log_watches.n; i++) {
        struct log_watch *w = m->log_watches.v[i];
        if (w->id != p->number)
            continue;
        struct tap *t = tap_of(w, executor->slot);
        if (!t || !t->asked)
            return;
        t->used += p->data.len;
        if (!p->end)
            note_place(t, p);
        pass_on(w, executor->slot, t, p);
        give_window(m, w, executor->slot, t);
        return;
    }
}

/* ---- begin and end ---- */

static void watch_free(struct log_watch *w)
{
    for (size_t i = 0; i < w->n_taps; i++)
        vec_done(&w->taps[i].seen);
    free(w->taps);
    loop_timer_free(w->timer);
    if (w->ask)
        tony__watch_logs__free_unpacked(w->ask, NULL);
    free(w);
}

static Tony__WatchLogs *copy_ask(const Tony__WatchLogs *a)
{
    size_t n = tony__watch_logs__get_packed_size(a);
    AUTO(free_p) unsigned char *bytes = malloc(n ? n : 1);
    if (!bytes)
        return NULL;
    tony__watch_logs__pack(a, bytes);
    return tony__watch_logs__unpack(NULL, n, bytes);
}

/* The client has had another connection before. Continue where the text of that connection ended.
 */
static void take_places(struct log_watch *w, uint32_t n_slots)
{
    for (size_t i = 0; i < w->ask->n_places; i++) {
        const Tony__LogPlace *p = w->ask->places[i];
        struct tap *t = p->slot < n_slots ? tap_of(w, p->slot) : NULL;
        struct seen s = { p->attempt, p->rank, p->is_stderr, MAX(p->offset, (int64_t)0), p->file };
        if (t)
            (void)vec_push(&t->seen, s); /* without memory, text comes twice */
    }
}

void log_watch_begin(struct peer *client, const Tony__WatchLogs *a)
{
    struct master *m = client->m;
    struct log_watch *w = m->log_watches.n < WATCHES_MAX ? calloc(1, sizeof *w) : NULL;
    if (w) {
        w->client = client;
        w->id = ++m->last_log_watch;
        w->ask = copy_ask(a);
        w->timer = loop_timer_new(m->loop, on_timer, w);
    }
    if (!w || !w->ask || !w->timer || vec_push(&m->log_watches, w) < 0) {
        log_event(LOG_WARN, "log_watch.refused", f_int("watches", (int64_t)m->log_watches.n));
        if (w)
            watch_free(w);
        return; /* the client sees no text; it can still read the logs */
    }
    take_places(w, job_n_slots(m->job));
    for (uint32_t i = 0; i < job_n_slots(m->job); i++)
        tail(m, w, i);
}

void log_watch_client_gone(struct peer *client)
{
    struct master *m = client->m;
    for (size_t i = m->log_watches.n; i-- > 0;) {
        struct log_watch *w = m->log_watches.v[i];
        if (w->client != client)
            continue;
        for (uint32_t k = 0; k < w->n_taps; k++)
            if (w->taps[k].asked)
                send_more(m, w, k, 0, true);
        vec_remove_fast(&m->log_watches, i);
        watch_free(w);
    }
}
