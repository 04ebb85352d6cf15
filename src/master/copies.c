#include "master/copies.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "loop/loop.h"

enum { PIECE_MAX = 64 << 20 };

struct copies {
    struct copies_config cfg;
    char *dir, *journal;
    uint64_t written, stored,
        sending; /* bytes of the journal; sending: up to, when one is under way */
    unsigned number;
    struct buf text; /* of the one under way */
    bool under_way, hurried, stopped;
    int64_t waits_since;      /* hurried: that somebody waits */
    int64_t next_ms;          /* not before, after a failure */
    bool complained, gave_up; /* for those who wait now */
    struct loop_timer *timer;
};

static void on_timer(void *arg);

int copies_new(const struct copies_config *cfg, struct copies **out, struct err *e)
{
    struct copies *c = calloc(1, sizeof *c);
    if (c) {
        c->cfg = *cfg;
        c->dir = str_dup(cfg->dir);
        c->journal = str_dup(cfg->journal);
        c->written = c->stored = cfg->stored;
        c->text.max = PIECE_MAX;
        c->timer = loop_timer_new(cfg->loop, on_timer, c);
    }
    if (!c || !c->dir || !c->journal || !c->timer) {
        copies_free(c);
        return err_set(e, ENOMEM, "no memory to copy the journal");
    }
    *out = c;
    return 0;
}

void copies_free(struct copies *c)
{
    if (!c)
        return;
    loop_timer_free(c->timer);
    buf_done(&c->text);
    free(c->dir);
    free(c->journal);
    free(c);
}

bool copies_stored(const struct copies *c)
{
    return c->stopped || c->stored >= c->written || c->gave_up;
}

/* The timer is for the next try and for those who wait. */
static void rearm(struct copies *c, int64_t next)
{
    if (c->hurried && !c->gave_up)
        next = MIN(next, c->waits_since + COPIES_PATIENCE_MS);
    if (next != INT64_MAX)
        loop_timer_set(c->timer, next);
}

/* ---- one file ---- */

/* All that is new, as far as it fits: the journal's writes are whole records, but a piece of it
 * that was cut by the limit ends where its last one does. */
static int read_new(struct copies *c, struct err *e)
{
    AUTO(close_p) int fd = open(c->journal, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return err_set(e, errno, "cannot open '%s': %m", c->journal);
    size_t n = (size_t)MIN(c->written - c->stored, (uint64_t)PIECE_MAX / 2);
    buf_clear(&c->text);
    char *to = buf_reserve(&c->text, n);
    if (!to)
        return err_set(e, ENOMEM, "no memory to copy the journal");
    ssize_t got = pread(fd, to, n, (off_t)c->stored);
    if (got < 0)
        return err_set(e, errno, "cannot read '%s': %m", c->journal);
    while (got > 0 && to[got - 1] != '\n')
        got--;
    buf_commit(&c->text, (size_t)got);
    return got > 0 ? 0 : err_set(e, EIO, "'%s' is shorter than was written", c->journal);
}

static void failed(struct copies *c, const struct err *e)
{
    if (!c->complained)
        log_err(LOG_WARN, "journal.not_copied", e);
    c->complained = true;
    c->next_ms = clock_mono_ms() + COPIES_RETRY_MS;
    rearm(c, c->next_ms);
}

static void on_put(const struct webhdfs_result *r, const struct err *e, void *arg)
{
    struct copies *c = arg;
    (void)r;
    c->under_way = false;
    if (c->stopped)
        return;
    if (e->num) { /* the same name again: what is there of it, if anything, is replaced */
        failed(c, e);
    } else {
        c->complained = false;
        c->stored = c->sending;
        c->number++;
        c->next_ms = 0;
        if (c->stored < c->written)
            loop_timer_set(c->timer, clock_mono_ms());
    }
    if (c->stored >= c->written) {
        c->hurried = c->gave_up = false;
        c->cfg.on_stored(c->cfg.arg);
    }
}

static void put_new(struct copies *c)
{
    struct err e = { 0 };
    AUTO(free_p)
    char *path = str_printf("%s/%04u-%08u", c->dir, c->cfg.epoch, c->number);
    int rc = path ? read_new(c, &e) : err_set(&e, ENOMEM, "no memory to copy the journal");
    if (rc == 0) {
        c->sending = c->stored + c->text.len;
        rc = c->cfg.files->put(c->cfg.fs, path, 0600, buf_span(&c->text), on_put, c, &e);
    }
    c->under_way = rc == 0;
    if (rc < 0)
        failed(c, &e);
}

static void on_timer(void *arg)
{
    struct copies *c = arg;
    int64_t now = clock_mono_ms();
    if (c->stopped)
        return;
    if (!c->under_way && c->stored < c->written && now >= c->next_ms)
        put_new(c);
    if (c->hurried && !c->gave_up && now >= c->waits_since + COPIES_PATIENCE_MS) {
        c->gave_up = true;
        c->cfg.on_stored(c->cfg.arg);
    }
    if (!c->under_way && c->stored < c->written)
        rearm(c, MAX(c->next_ms, now + 1));
    else
        rearm(c, INT64_MAX);
}

void copies_wrote(struct copies *c, uint64_t size)
{
    if (size <= c->written || c->stopped)
        return;
    bool begins = c->stored >= c->written && !c->under_way;
    c->written = size;
    if (begins)
        loop_timer_set(c->timer, clock_mono_ms() + COPIES_DELAY_MS);
}

void copies_hurry(struct copies *c)
{
    if (c->hurried || copies_stored(c))
        return;
    c->hurried = true;
    c->waits_since = clock_mono_ms();
    rearm(c, c->under_way ? INT64_MAX : MAX(c->waits_since, c->next_ms));
}

void copies_stop(struct copies *c)
{
    if (c->stopped)
        return;
    c->stopped = true;
    loop_timer_stop(c->timer);
    c->cfg.on_stored(c->cfg.arg);
}
