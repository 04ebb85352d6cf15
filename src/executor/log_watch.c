/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/log_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/container.h"
#include "executor/executor_int.h"
#include "storage/log_times.h"

enum {
    WATCHES_MAX = 64,     /* the master has fewer */
    PIECE_MAX = 64 << 10, /* bytes of one LogPiece */
    PIECE_LEAST = 512,
    COUNT_MAX = 32 << 20, /* bytes that one look reads only to count their lines: about 5 ms */
    TAIL_MAX = 1 << 20,   /* the last lines are searched in this many bytes at the end of a log */
    INTERVAL_MIN_MS = 50,
    REPLACED_LOOK_MS = 1000, /* between two looks whether a log was renamed */
    RANKS_MAX = 1024,
};

static char piece[PIECE_MAX]; /* the text that is being sent; the executor has one thread */

/* ---- the files ---- */

static int open_log(const struct executor *x, uint32_t attempt, const char *name, uint32_t rank)
{
    return executor_open_log(x, name, attempt, rank, &(struct err){ 0 });
}

static void close_logs(struct log_watch *w)
{
    for (size_t i = 0; i < w->logs.n; i++)
        close_p(&w->logs.v[i].fd);
    w->logs.n = 0;
}

static const Tony__LogPlace *place_of(const struct log_watch *w, const struct watched_log *l)
{
    for (size_t i = 0; i < w->ask->n_places; i++) {
        const Tony__LogPlace *p = w->ask->places[i];
        if (p->attempt == w->attempt && p->rank == l->rank && !p->is_stderr == !l->is_stderr)
            return p;
    }
    return NULL;
}

/* The start of the last n lines. */
static int64_t tail_start(int fd, int64_t size, uint64_t n)
{
    int64_t at = size, floor = MAX(size - TAIL_MAX, (int64_t)0);
    bool last_byte = true;
    while (at > floor && n > 0) {
        size_t len = (size_t)MIN((int64_t)sizeof piece, at - floor);
        if (pread(fd, piece, len, at - (off_t)len) != (ssize_t)len)
            return at; /* the file was truncated meanwhile */
        for (size_t k = len; k > 0; k--, at--) {
            if (piece[k - 1] == '\n' && !last_byte && --n == 0)
                return at;
            last_byte = false;
        }
    }
    return at;
}

/* The offset at which to begin, if the request names no offset for this log. */
static int64_t first_offset(const struct executor *x, const struct log_watch *w,
                            const struct watched_log *l, int fd)
{
    struct stat st;
    int64_t at = 0;
    if (w->later || fstat(fd, &st) == -1)
        return 0;
    if (w->ask->since_ms) {
        AUTO(close_p) int times = open_log(x, w->attempt, LOG_TIMES_NAME, 0);
        at = log_times_since(times, fd, w->ask->since_ms, l->rank, l->is_stderr);
    }
    return w->ask->has_lines ? MAX(at, tail_start(fd, st.st_size, w->ask->lines)) : at;
}

static void try_open(const struct executor *x, struct log_watch *w, struct watched_log *l)
{
    int fd = open_log(x, w->attempt, l->is_stderr ? "stderr" : "stdout", l->rank);
    if (fd < 0)
        return;
    const Tony__LogPlace *p = place_of(w, l);
    l->fd = fd;
    l->at = p ? p->offset : first_offset(x, w, l, fd);
    l->file = p ? p->file : 0;
}

/* Watch the logs of this attempt from now on. If there is no memory, some of them are missing. */
static void set_attempt(const struct executor *x, struct log_watch *w, uint32_t attempt)
{
    uint32_t n = MIN(MAX(x->role->ranks, 1u), (uint32_t)RANKS_MAX);
    w->later = w->due_ms != 0;
    close_logs(w);
    w->attempt = attempt;
    for (uint32_t rank = 0; attempt && rank < n; rank++) {
        struct watched_log l = { .rank = rank, .fd = -1 };
        if (w->ask->one_rank && w->ask->rank != rank)
            continue;
        if (w->ask->want_stdout)
            (void)vec_push(&w->logs, l);
        l.is_stderr = true;
        if (w->ask->want_stderr)
            (void)vec_push(&w->logs, l);
    }
    for (size_t i = 0; i < w->logs.n; i++)
        try_open(x, w, &w->logs.v[i]);
}

/* ---- sending ---- */

static void send_piece(struct executor *x, struct log_watch *w, struct watched_log *l,
                       const char *text, size_t len)
{
    Tony__LogPiece m = TONY__LOG_PIECE__INIT;
    m.number = w->ask->number;
    m.slot = x->cfg->slot;
    m.attempt = w->attempt;
    m.rank = l->rank;
    m.is_stderr = l->is_stderr;
    m.offset = l->at;
    m.data = (ProtobufCBinaryData){ .len = len, .data = (uint8_t *)(uintptr_t)text };
    m.left_out_bytes = l->left_bytes;
    m.left_out_lines = l->left_lines;
    m.more_lines = l->more_lines;
    m.file = l->file;
    l->at += (int64_t)len;
    log_mark_add(&l->mark, text, len);
    l->left_bytes = l->left_lines = 0;
    l->more_lines = false;
    w->window -= MIN((uint64_t)len, w->window);
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_LOG_PIECE;
    f.log_piece = &m;
    (void)executor_send(x, &f); /* after a failure the executor reconnects, and is asked again */
}

/* Tell the master that nothing more comes from this attempt. */
static void send_end(struct executor *x, const struct log_watch *w)
{
    Tony__LogPiece m = TONY__LOG_PIECE__INIT;
    m.number = w->ask->number;
    m.slot = x->cfg->slot;
    m.attempt = w->attempt;
    m.end = true;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_LOG_PIECE;
    f.log_piece = &m;
    (void)executor_send(x, &f);
}

static size_t piece_max(const struct log_watch *w)
{
    return MIN(MAX((size_t)w->ask->piece_max, (size_t)PIECE_LEAST), sizeof piece);
}

static size_t count_lines(const char *text, size_t n)
{
    size_t lines = 0;
    for (const char *p = text, *end = text + n; (p = memchr(p, '\n', (size_t)(end - p))); p++)
        lines++;
    return lines;
}

/* Leave out the text before `to`. */
static void leave_out(struct watched_log *l, int64_t to)
{
    int64_t counted = 0;
    l->left_bytes += (uint64_t)(to - l->at);
    l->cut = true;
    while (l->at < to && counted < COUNT_MAX) {
        ssize_t n = pread(l->fd, piece, (size_t)MIN((int64_t)sizeof piece, to - l->at), l->at);
        if (n <= 0)
            break;
        l->left_lines += count_lines(piece, (size_t)n);
        l->at += n;
        log_mark_add(&l->mark, piece, (size_t)n);
        counted += n;
        l->cut = piece[n - 1] != '\n';
    }
    if (l->at < to) {
        l->more_lines = l->cut = true;
        l->at = to;
        l->mark.n = 0;
    }
}

/* The length of the text up to the end of its last line. A progress bar ends its lines with \r. */
static size_t whole_lines(const char *text, size_t n)
{
    while (n > 0 && text[n - 1] != '\n' && text[n - 1] != '\r')
        n--;
    return n;
}

/* last: the task has ended, so a line without an end is complete. */
static void send_newest(struct executor *x, struct log_watch *w, struct watched_log *l,
                        int64_t size, bool last)
{
    size_t max = piece_max(w), from = 0;
    if (size - l->at > (int64_t)max)
        leave_out(l, size - (int64_t)max);
    ssize_t got = pread(l->fd, piece, (size_t)MIN(size - l->at, (int64_t)max), l->at);
    size_t n = got > 0 ? (size_t)got : 0;
    if (n && l->cut) { /* the rest of a line whose beginning is left out */
        const char *end = memchr(piece, '\n', n);
        from = end ? (size_t)(end - piece) + 1 : n;
        l->left_bytes += from;
        l->left_lines += end ? 1 : 0;
        l->cut = !end;
        l->at += (int64_t)from;
        log_mark_add(&l->mark, piece, from);
    }
    size_t len = n - from;
    if (!last && len) {
        size_t whole = whole_lines(piece + from, len);
        if (whole || len < max) /* else the line is longer than a piece */
            len = whole;
    }
    if (len > w->window)
        return; /* the client is slow: a later look sends it, or leaves it out */
    if (len || (last && l->left_bytes))
        send_piece(x, w, l, piece + from, len);
}

/* Send everything, as far as the window allows. */
static void send_all(struct executor *x, struct log_watch *w, struct watched_log *l, int64_t size,
                     bool last)
{
    while (l->at < size && w->window > 0 && x->greeted && (last || !link_unsent(&x->link))) {
        uint64_t want = MIN((uint64_t)(size - l->at), MIN(w->window, (uint64_t)piece_max(w)));
        ssize_t n = pread(l->fd, piece, (size_t)want, l->at);
        if (n <= 0)
            return;
        send_piece(x, w, l, piece, (size_t)n);
    }
}

/* The log begins again, at the start of this file. */
static void begin_again(struct watched_log *l, int fd)
{
    if (fd != l->fd)
        close_p(&l->fd);
    l->fd = fd;
    l->at = 0;
    l->file++;
    l->mark.n = 0;
    l->cut = false;
}

/* If the log was renamed and the program writes to a new file with its name: that file; else -1. */
static int open_next(const struct executor *x, const struct log_watch *w, struct watched_log *l,
                     bool last)
{
    int64_t now = clock_mono_ms();
    if (!last && now - l->looked_ms < REPLACED_LOOK_MS)
        return -1;
    l->looked_ms = now;
    int fd = open_log(x, w->attempt, l->is_stderr ? "stderr" : "stdout", l->rank);
    if (fd >= 0 && !log_was_replaced(l->fd, fd))
        close_p(&fd);
    return MAX(fd, -1);
}

/* Send what is new in one log. true: text is left that could not be sent yet. */
static bool send_log(struct executor *x, struct log_watch *w, struct watched_log *l, bool last)
{
    struct stat st;
    if (l->fd < 0)
        try_open(x, w, l);
    if (l->fd < 0)
        return false;
    /* First the look for another file: what the program wrote before to this one is sent below. */
    AUTO(close_p) int next = open_next(x, w, l, last);
    if (fstat(l->fd, &st) == -1 || !S_ISREG(st.st_mode))
        return false;
    if (log_was_truncated(&l->mark, l->fd, l->at, st.st_size))
        begin_again(l, l->fd);
    bool complete = last || next >= 0;
    if (st.st_size != l->at || (complete && l->left_bytes))
        (w->ask->lossy ? send_newest : send_all)(x, w, l, st.st_size, complete);
    if (l->at < st.st_size)
        return true;
    if (next < 0)
        return false;
    begin_again(l, next);
    next = -1;
    return send_log(x, w, l, last);
}

/* The same for all logs. */
static bool send_news(struct executor *x, struct log_watch *w, bool last)
{
    bool left = false;
    for (size_t i = 0; i < w->logs.n && x->greeted; i++)
        left = send_log(x, w, &w->logs.v[i], last) || left;
    return left;
}

static void look(struct executor *x, struct log_watch *w, int64_t now_ms)
{
    uint32_t pause = MAX(w->ask->interval_ms, (uint32_t)INTERVAL_MIN_MS);
    bool over = w->attempt != x->a.number || !attempt_alive(&x->a);
    w->due_ms = now_ms + pause;
    if (link_unsent(&x->link)) /* the connection is busy: do not delay heartbeats further */
        return;
    bool left = send_news(x, w, over);
    if (over && (!left || w->ask->lossy)) {
        if (w->attempt == x->a.number)
            w->due_ms = INT64_MAX; /* until log_watches_begin(), or a larger window */
        else
            set_attempt(x, w, x->a.number);
    } else if (left && !w->ask->lossy && w->window > 0) {
        w->due_ms = now_ms + 1;
    }
}

/* ---- frames of the master ---- */

static void remove_watch(struct executor *x, size_t i)
{
    struct log_watch *w = &x->watches.v.v[i];
    close_logs(w);
    vec_done(&w->logs);
    tony__tail_logs__free_unpacked(w->ask, NULL);
    vec_remove_fast(&x->watches.v, i);
}

static size_t find_watch(const struct executor *x, uint32_t number)
{
    size_t i = 0;
    while (i < x->watches.v.n && x->watches.v.v[i].ask->number != number)
        i++;
    return i;
}

static Tony__TailLogs *copy_ask(const Tony__TailLogs *m)
{
    size_t n = tony__tail_logs__get_packed_size(m);
    AUTO(free_p) unsigned char *bytes = malloc(n ? n : 1);
    if (!bytes)
        return NULL;
    tony__tail_logs__pack(m, bytes);
    return tony__tail_logs__unpack(NULL, n, bytes);
}

void log_watches_ask(struct executor *x, const Tony__TailLogs *m)
{
    size_t i = find_watch(x, m->number);
    if (i < x->watches.v.n)
        remove_watch(x, i);
    struct log_watch w = { .ask = x->watches.v.n < WATCHES_MAX ? copy_ask(m) : NULL,
                           .window = m->window };
    if (!w.ask)
        return;
    if (vec_push(&x->watches.v, w) < 0) {
        tony__tail_logs__free_unpacked(w.ask, NULL);
        return;
    }
    struct log_watch *new = &x->watches.v.v[x->watches.v.n - 1];
    set_attempt(x, new, m->n_places ? m->places[0]->attempt : x->a.number);
    look(x, new, clock_mono_ms());
}

void log_watches_more(struct executor *x, const Tony__MoreLogs *m)
{
    size_t i = find_watch(x, m->number);
    if (i == x->watches.v.n)
        return;
    if (m->end) {
        remove_watch(x, i);
        return;
    }
    struct log_watch *w = &x->watches.v.v[i];
    bool waited = w->window == 0 || w->due_ms == INT64_MAX;
    w->window += m->bytes;
    if (waited)
        w->due_ms = clock_mono_ms();
}

void log_watches_clear(struct executor *x)
{
    while (x->watches.v.n)
        remove_watch(x, 0);
}

void log_watches_begin(struct executor *x)
{
    for (size_t i = 0; i < x->watches.v.n; i++)
        x->watches.v.v[i].due_ms = clock_mono_ms();
}

void log_watches_end(struct executor *x)
{
    for (size_t i = 0; i < x->watches.v.n && x->greeted; i++) {
        struct log_watch *w = &x->watches.v.v[i];
        bool left = send_news(x, w, true);
        if (w->attempt != x->a.number && (!left || w->ask->lossy)) {
            set_attempt(x, w, x->a.number);
            left = send_news(x, w, true);
        }
        if (w->attempt == x->a.number && !left)
            send_end(x, w);
    }
}

int64_t log_watches_deadline(const struct executor *x)
{
    int64_t at = INT64_MAX;
    for (size_t i = 0; i < x->watches.v.n && x->greeted; i++)
        at = MIN(at, x->watches.v.v[i].due_ms);
    return at;
}

void log_watches_tick(struct executor *x, int64_t now_ms)
{
    for (size_t i = 0; i < x->watches.v.n && x->greeted; i++)
        if (now_ms >= x->watches.v.v[i].due_ms)
            look(x, &x->watches.v.v[i], now_ms);
}
