/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the copies of a file: see copies.h. */
#include "master/copies.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "loop/loop.h"

enum { KEEP_CAP = 1 << 20 }; /* bytes of memory that are kept between two writes */

/* The names of events in the log. */
static const struct {
    const char *not_copied, *not_listed, *not_removed;
} events[] = {
    [COPIES_JOURNAL] = { "journal.not_copied", "journal.copies_not_listed",
                         "journal.copy_not_removed" },
    [COPIES_METRICS] = { "metrics.not_copied", "metrics.copies_not_listed",
                         "metrics.copy_not_removed" },
};

/* One copy: records first to last, which are the bytes from `from` to `to` of the file. last 0 = no
 * copy. */
struct piece {
    uint64_t segment, first, last, from, to;
};

struct copies {
    struct copies_config cfg;
    char *dir, *file;
    uint64_t segment;             /* number of its first record */
    uint64_t written, stored;     /* bytes of the segment: in the file, in the copies */
    uint64_t written_n, stored_n; /* the last record of each */
    uint64_t older_n;             /* the last record that an older set has */
    struct piece base;
    struct piece tails[COPIES_TAILS]; /* the newest is the last one */
    size_t n_tails;
    unsigned ranks[COPIES_TAILS];

    struct piece sending; /* the file that is being written, or has to be written again */
    size_t n_merged;      /* tails that it replaces */
    struct buf text;      /* the bytes of that file */
    struct strv garbage;  /* names of files to remove; the last one is next */
    bool under_way;       /* HDFS has not answered a put, list or remove yet */
    bool list_due;        /* list the directory, to find files that are not in the set */
    bool list_again;      /* removing failed: set list_due after the next put */
    bool covered;         /* an older set still has all records of the file */

    bool hurried, stopped;
    int64_t waits_since; /* hurried: since when the action waits */
    int64_t begin_ms;    /* records are collected until then */
    int64_t next_ms;     /* no operation starts before, because one has failed */
    bool complained;     /* a failure was logged, and no put has succeeded since */
    bool gave_up;        /* an action has waited for COPIES_PATIENCE_MS */
    struct loop_timer *timer;
};

static void on_timer(void *arg);

static int no_memory(const char *file, struct err *e)
{
    return err_set(e, ENOMEM, "no memory to copy '%s'", file);
}

static void tell_stored(const struct copies *c)
{
    if (c->cfg.on_stored)
        c->cfg.on_stored(c->cfg.arg);
}

/* ---- life ---- */

static void begin_set(struct copies *c, uint64_t first_n, uint64_t size, uint64_t last_n)
{
    c->segment = first_n;
    c->written = size;
    c->written_n = last_n;
    c->stored = c->stored_n = 0;
    c->base = c->sending = (struct piece){ 0 };
    c->n_tails = c->n_merged = 0;
    copies_plan_begin(c->ranks);
}

int copies_new(const struct copies_config *cfg, struct copies **out, struct err *e)
{
    struct copies *c = calloc(1, sizeof *c);
    if (c) {
        c->cfg = *cfg;
        c->dir = str_dup(cfg->dir);
        c->file = str_dup(cfg->file);
        c->text.max = COPIES_PIECE_MAX;
        c->timer = loop_timer_new(cfg->loop, on_timer, c);
        begin_set(c, cfg->first_n, cfg->size, cfg->last_n);
        c->covered = true; /* this master has read the file from an older set */
        c->older_n = cfg->last_n;
    }
    if (!c || !c->dir || !c->file || !c->timer) {
        copies_free(c);
        return no_memory(cfg->file, e);
    }
    if (c->written > 0)
        loop_timer_set(c->timer, clock_mono_ms() + cfg->delay_ms);
    *out = c;
    return 0;
}

void copies_free(struct copies *c)
{
    if (!c)
        return;
    loop_timer_free(c->timer);
    buf_done(&c->text);
    strv_done(&c->garbage);
    free(c->dir);
    free(c->file);
    free(c);
}

/* ---- which files to merge ---- */

void copies_plan_begin(unsigned *ranks)
{
    for (unsigned i = 0; i < COPIES_TAILS; i++)
        ranks[i] = i; /* C(i, i + 1) = 0 bursts */
}

unsigned copies_plan(unsigned *ranks)
{
    unsigned i = 0, merged = 0;
    while (i + 1 < COPIES_TAILS && ranks[i] + 1 == ranks[i + 1])
        i++;
    for (unsigned k = 0; k <= i; k++) /* tail k + 1 is not empty if its rank is above k */
        merged += ranks[k] > k;
    ranks[i]++;
    for (unsigned k = 0; k < i; k++)
        ranks[k] = k;
    return merged;
}

/* ---- state ---- */

static bool has_new(const struct copies *c)
{
    return c->stored < c->written;
}

bool copies_stored(const struct copies *c)
{
    return c->stopped || c->covered || c->gave_up || !has_new(c);
}

uint64_t copies_stored_n(const struct copies *c)
{
    return copies_stored(c) ? UINT64_MAX : MAX(c->older_n, c->stored_n);
}

/* Set the timer for the next step, and for the end of the patience of a waiting action. */
static void arm(struct copies *c)
{
    int64_t next = INT64_MAX;
    if (!c->under_way && (c->garbage.n || c->list_due))
        next = c->next_ms;
    else if (!c->under_way && has_new(c))
        next = MAX(c->begin_ms, c->next_ms);
    if (c->hurried)
        next = MIN(next, c->waits_since + c->cfg.patience_ms);
    if (next != INT64_MAX)
        loop_timer_set(c->timer, MAX(next, clock_mono_ms()));
}

static void put_failed(struct copies *c, const struct err *e)
{
    if (!c->complained)
        log_err(LOG_WARN, events[c->cfg.kind].not_copied, e);
    c->complained = true;
    c->next_ms = clock_mono_ms() + c->cfg.retry_ms;
}

/* ---- writing a file ---- */

static char *piece_name(const struct copies *c, const struct piece *p)
{
    return str_printf("%04" PRIu32 "-%012" PRIu64 "-%012" PRIu64 "-%012" PRIu64, c->cfg.epoch,
                      p->segment, p->first, p->last);
}

static char *path_of(const struct copies *c, const struct piece *p)
{
    AUTO(free_p) char *name = piece_name(c, p);
    return name ? fs_join(c->dir, name) : NULL;
}

/* Read the bytes of c->sending. They are whole records, because the master writes whole records. */
static int read_piece(struct copies *c, struct err *e)
{
    AUTO(close_p) int fd = open(c->file, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return err_set(e, errno, "cannot open '%s': %m", c->file);
    uint64_t n = c->sending.to - c->sending.from;
    if (n > COPIES_PIECE_MAX)
        return err_set(e, EFBIG, "a copy of '%s' would have %" PRIu64 " bytes; the limit is %d",
                       c->file, n, COPIES_PIECE_MAX);
    buf_clear(&c->text);
    char *to = buf_reserve(&c->text, (size_t)n);
    if (!to)
        return no_memory(c->file, e);
    for (uint64_t done = 0; done < n;) {
        ssize_t got = pread(fd, to + done, (size_t)(n - done), (off_t)(c->sending.from + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set(e, errno, "cannot read '%s': %m", c->file);
        if (got == 0)
            return err_set(e, EIO, "'%s' is shorter than what was written to it", c->file);
        done += (uint64_t)got;
    }
    buf_commit(&c->text, (size_t)n);
    return 0;
}

/* Choose the content of the next file: all new records, and the tails that the plan merges with
 * them. After a failure write the same file again, because HDFS may have a part of it. */
static void choose_piece(struct copies *c)
{
    unsigned ranks[COPIES_TAILS];
    if (c->sending.last)
        return;
    c->sending = (struct piece){ .segment = c->segment, .last = c->written_n, .to = c->written };
    c->n_merged = 0;
    if (c->base.last == 0) {
        c->sending.first = c->segment;
        return;
    }
    memcpy(ranks, c->ranks, sizeof ranks); /* add_stored_piece() changes c->ranks */
    c->n_merged = copies_plan(ranks);
    const struct piece *oldest = c->n_merged ? &c->tails[c->n_tails - c->n_merged] : NULL;
    c->sending.first = oldest ? oldest->first : c->stored_n + 1;
    c->sending.from = oldest ? oldest->from : c->stored;
}

static void add_garbage(struct copies *c, const struct piece *p)
{
    if (strv_take(&c->garbage, piece_name(c, p)) < 0)
        c->list_again = true; /* no memory: a listing will find the file */
}

/* HDFS has c->sending: add it to the set. */
static void add_stored_piece(struct copies *c)
{
    if (c->base.last == 0) {
        c->base = c->sending;
        c->list_due = true;
    } else {
        (void)copies_plan(c->ranks);
        for (size_t i = c->n_tails - c->n_merged; i < c->n_tails; i++)
            add_garbage(c, &c->tails[i]);
        c->n_tails -= c->n_merged;
        c->tails[c->n_tails++] = c->sending;
    }
    c->stored = c->sending.to;
    c->stored_n = c->sending.last;
    c->sending = (struct piece){ 0 };
    c->list_due |= c->list_again;
    c->list_again = false;
}

static void on_put(const struct files_result *r, const struct err *e, void *arg)
{
    struct copies *c = arg;
    (void)r;
    c->under_way = false;
    if (c->text.cap > KEEP_CAP)
        buf_done(&c->text);
    if (c->stopped)
        return;
    if (e->num) {
        put_failed(c, e);
    } else {
        c->complained = false;
        /* 0 = a new segment began meanwhile, and the file is not in its set: a listing finds it */
        if (c->sending.last)
            add_stored_piece(c);
    }
    if (!has_new(c)) {
        c->hurried = c->gave_up = c->covered = false;
        tell_stored(c);
    }
    arm(c);
}

static void put_next(struct copies *c)
{
    struct err e = { 0 };
    choose_piece(c);
    AUTO(free_p) char *path = path_of(c, &c->sending);
    int rc = path ? read_piece(c, &e) : no_memory(c->file, &e);
    if (rc == 0)
        rc = c->cfg.files->put(c->cfg.fs, path, 0600, buf_span(&c->text), on_put, c, &e);
    c->under_way = rc == 0;
    if (rc < 0)
        put_failed(c, &e);
}

/* ---- removing files that are not in the set ---- */

static bool is_same(const struct copies_piece *a, const struct piece *b)
{
    return b->last && a->segment == b->segment && a->first == b->first && a->last == b->last;
}

static bool in_set(const struct copies *c, const struct copies_piece *p)
{
    bool is = is_same(p, &c->base);
    for (size_t i = 0; i < c->n_tails; i++)
        is |= is_same(p, &c->tails[i]);
    return is;
}

/* No file is being written now, not even again after a failure: list_files() comes before the next
 * put_next(). So all files of this master that are not in the set are garbage. Files of later
 * masters, and files that are no copies, are not removed. */
static void on_listed(const struct files_result *r, const struct err *e, void *arg)
{
    struct copies *c = arg;
    c->under_way = false;
    if (c->stopped)
        return;
    if (e->num) {
        log_err(LOG_WARN, events[c->cfg.kind].not_listed, e);
        c->list_again = true;
    }
    /* Without a base, a new segment began meanwhile, and only the older set has the records. The
     * listing after the put of the base finds that set. */
    for (size_t i = 0; r && c->base.last && i < r->n_stats; i++) {
        struct copies_piece p;
        const char *name = r->stats[i].name;
        if (copies_parse_name(name, &p) < 0 || p.epoch > c->cfg.epoch ||
            (p.epoch == c->cfg.epoch && in_set(c, &p)))
            continue;
        if (strv_push(&c->garbage, name) < 0)
            c->list_again = true;
    }
    arm(c);
}

static void list_files(struct copies *c)
{
    struct err e = { 0 };
    c->list_due = false;
    c->under_way = c->cfg.files->list(c->cfg.fs, c->dir, on_listed, c, &e) == 0;
    if (!c->under_way) {
        log_err(LOG_WARN, events[c->cfg.kind].not_listed, &e);
        c->list_again = true;
    }
}

/* If removing fails, the file only takes space. The listing after the next put finds it again. */
static void on_removed(const struct files_result *r, const struct err *e, void *arg)
{
    struct copies *c = arg;
    (void)r;
    c->under_way = false;
    if (c->stopped)
        return;
    if (e->num) {
        log_err(LOG_WARN, events[c->cfg.kind].not_removed, e);
        c->list_again = true;
    }
    arm(c);
}

static void remove_next(struct copies *c)
{
    struct err e = { 0 };
    AUTO(free_p) char *name = c->garbage.v[--c->garbage.n];
    AUTO(free_p) char *path = fs_join(c->dir, name);
    c->garbage.v[c->garbage.n] = NULL;
    int rc =
        path ? c->cfg.files->remove(c->cfg.fs, path, on_removed, c, &e) : no_memory(c->file, &e);
    c->under_way = rc == 0;
    if (rc < 0) {
        log_err(LOG_WARN, events[c->cfg.kind].not_removed, &e);
        c->list_again = true;
    }
}

/* ---- steps ---- */

/* Files are removed before the next one is written, so that their number stays below the limit in
 * copies.h. */
static void on_timer(void *arg)
{
    struct copies *c = arg;
    int64_t now = clock_mono_ms();
    if (c->stopped)
        return;
    if (!c->under_way && now >= c->next_ms) {
        if (c->garbage.n)
            remove_next(c);
        else if (c->list_due)
            list_files(c);
        else if (has_new(c)) /* arm() has waited for begin_ms */
            put_next(c);
    }
    if (c->hurried && now >= c->waits_since + c->cfg.patience_ms) {
        c->gave_up = true;
        c->hurried = false;
        tell_stored(c);
    }
    arm(c);
}

void copies_wrote(struct copies *c, uint64_t size, uint64_t last_n)
{
    if (size <= c->written || c->stopped)
        return;
    bool begins = !has_new(c) && !c->under_way;
    c->written = size;
    c->written_n = last_n;
    c->covered = false;
    if (begins)
        c->begin_ms = clock_mono_ms() + c->cfg.delay_ms;
    arm(c);
}

void copies_segment(struct copies *c, uint64_t first_n, uint64_t size, uint64_t last_n)
{
    if (c->stopped)
        return;
    c->covered = c->covered || !has_new(c);
    c->older_n = c->covered ? c->written_n : MAX(c->older_n, c->stored_n);
    begin_set(c, first_n, size, last_n);
    c->begin_ms = clock_mono_ms() + (c->hurried ? 0 : c->cfg.delay_ms);
    arm(c);
}

void copies_hurry(struct copies *c)
{
    if (c->hurried || copies_stored(c))
        return;
    c->hurried = true;
    c->waits_since = c->begin_ms = clock_mono_ms();
    arm(c);
}

void copies_stop(struct copies *c)
{
    if (c->stopped)
        return;
    c->stopped = true;
    loop_timer_stop(c->timer);
    tell_stored(c);
}
