/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the copies of a file: see copies.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "master/copies.h"
#include "storage/journal.h"

/* ---- names ---- */

/* Read `len` digits at *at, then the character `behind`, and move *at past both. */
static bool take_digits(const char **at, size_t len, char behind, uint64_t *out)
{
    int64_t n = 0;
    if (strspn(*at, "0123456789") != len || (*at)[len] != behind ||
        str_i64(span_mem(*at, len), 0, INT64_MAX, "number", &n, NULL) < 0)
        return false;
    *out = (uint64_t)n;
    *at += len + (behind != '\0');
    return true;
}

/* The epoch has at least 4 digits. A master with a number above 9999 writes more, without zeros in
 * front. */
static bool take_epoch(const char **at, uint32_t *out)
{
    size_t len = strspn(*at, "0123456789");
    uint64_t n = 0;
    if (len < 4 || (len > 4 && **at == '0') || !take_digits(at, len, '-', &n) || n > UINT32_MAX)
        return false;
    *out = (uint32_t)n;
    return true;
}

int copies_parse_name(const char *name, struct copies_piece *out)
{
    struct copies_piece p = { 0 };
    if (!take_epoch(&name, &p.epoch) || !take_digits(&name, 12, '-', &p.segment) ||
        !take_digits(&name, 12, '-', &p.first) || !take_digits(&name, 12, '\0', &p.last) ||
        p.segment == 0 || p.first < p.segment || p.last < p.first)
        return -EINVAL;
    *out = p;
    return 0;
}

/* ---- putting the file together ---- */

/* The names of events in the log, and words of messages. */
static const struct {
    const char *unfinished, *unknown, *of;
} words[] = {
    [COPIES_JOURNAL] = { "journal.copy_unfinished", "journal.copy_unknown", "the journal" },
    [COPIES_METRICS] = { "metrics.copy_unfinished", "metrics.copy_unknown", "the metrics" },
};

/* "record 4 is", "records 4 to 7 are", or the same with bytes. */
static const char *range(enum copies_kind kind, uint64_t first, uint64_t last,
                         char out[static JOURNAL_RANGE_MAX])
{
    if (kind == COPIES_JOURNAL)
        return journal_range(first, last, out, JOURNAL_RANGE_MAX);
    (void)snprintf(out, JOURNAL_RANGE_MAX, "bytes %" PRIu64 " to %" PRIu64 " are", first, last);
    return out;
}

/* A file of bytes: its length says what it has. */
static void check_bytes(struct copies_piece *p)
{
    uint64_t most = p->last - p->first + 1;
    if (p->text.len <= most)
        p->has_last = p->first - 1 + p->text.len;
    else
        (void)err_set(&p->damage, EBADMSG, "copy '%s' has %zu bytes, and its name says %" PRIu64,
                      p->name, p->text.len, most);
}

/* Find out which records the file really has. */
static void check_piece(struct copies_piece *p)
{
    struct journal_reader r;
    struct journal_record rec;
    int rc;
    p->has_last = p->first - 1;
    p->damage = (struct err){ 0 };
    if (p->kind == COPIES_METRICS) {
        check_bytes(p);
        return;
    }
    journal_reader_part(&r, buf_span(&p->text), p->first);
    while ((rc = journal_reader_next(&r, &rec, &p->damage)) == 1)
        p->has_last = rec.n;
    if (rc < 0)
        (void)err_wrap(&p->damage, rc, "copy '%s'", p->name);
    else if (p->has_last > p->last)
        (void)err_set(&p->damage, EBADMSG,
                      "copy '%s' holds record %" PRIu64 ", which its name excludes", p->name,
                      p->has_last);
}

static bool is_whole(const struct copies_piece *p)
{
    return !p->damage.num && p->has_last == p->last;
}

/* Find the base of the newest segment whose base is complete. 0 with *out NULL: there is none. If a
 * newer segment has an incomplete base and no tails, its master died while writing the base, and
 * the older set still exists. If it has tails, its base was complete once, so that is an error. */
static int find_base(struct copies_piece *v, size_t n, struct copies_piece **out, struct err *e)
{
    char missing[JOURNAL_RANGE_MAX];
    *out = NULL;
    for (size_t i = 0; i < n; i++) {
        struct copies_piece *p = &v[i];
        if (p->first == p->segment && is_whole(p) && (!*out || p->segment > (*out)->segment))
            *out = p;
    }
    for (size_t i = 0; i < n; i++) {
        const struct copies_piece *p = &v[i];
        if ((*out && p->segment <= (*out)->segment) || (p->first == p->segment && !p->damage.num))
            continue;
        if (p->damage.num) {
            *e = p->damage;
            return -e->num;
        }
        return err_set(e, EBADMSG, "the copies of %s are not whole: %s missing before '%s'",
                       words[p->kind].of, range(p->kind, p->segment, p->first - 1, missing),
                       p->name);
    }
    return 0;
}

static int no_memory(enum copies_kind kind, struct err *e)
{
    return err_set(e, ENOMEM, "no memory for %s of the master before this one", words[kind].of);
}

/* The records of p that follow record `behind`. */
static struct span records_behind(const struct copies_piece *p, uint64_t behind)
{
    struct journal_reader r;
    struct journal_record rec = { .n = p->first - 1 };
    if (p->kind == COPIES_METRICS) {
        size_t from = (size_t)(MAX(behind, p->first - 1) - (p->first - 1));
        return span_mem(p->text.p + from, p->text.len - from);
    }
    journal_reader_part(&r, buf_span(&p->text), p->first);
    while (rec.n < behind && journal_reader_next(&r, &rec, NULL) == 1)
        ;
    size_t from = (size_t)r.end;
    while (rec.n < p->has_last && journal_reader_next(&r, &rec, NULL) == 1)
        ;
    return span_mem(p->text.p + from, (size_t)r.end - from);
}

/* Append the records of p that follow record `behind`. */
static int append(struct buf *out, const struct copies_piece *p, uint64_t behind, struct err *e)
{
    struct span text = records_behind(p, behind);
    return buf_add(out, text.p, text.len) < 0 ? no_memory(p->kind, e) : 0;
}

/* The file was put together up to record `last`. Does the name of a file say that it has later
 * records? The file that the master wrote when it died may be cut short anywhere. But if a later
 * file exists, the earlier ones were complete once, so that is an error. */
static int check_rest(const struct copies_piece *v, size_t n, uint64_t segment, uint64_t last,
                      struct err *e)
{
    const struct copies_piece *short_one = NULL, *later = NULL;
    char missing[JOURNAL_RANGE_MAX];
    for (size_t i = 0; i < n; i++) {
        if (v[i].segment != segment || v[i].last <= last)
            continue;
        if (v[i].damage.num) {
            *e = v[i].damage;
            return -e->num;
        }
        if (v[i].first > last + 1 && (!later || v[i].first < later->first))
            later = &v[i];
        else if (v[i].first <= last + 1)
            short_one = &v[i];
    }
    if (later)
        return err_set(e, EBADMSG, "the copies of %s are not whole: %s missing before '%s'%s%s%s",
                       words[later->kind].of,
                       range(later->kind, last + 1, later->first - 1, missing), later->name,
                       short_one ? "; '" : "", short_one ? short_one->name : "",
                       short_one ? "' is cut short" : "");
    if (short_one)
        log_event(LOG_WARN, words[short_one->kind].unfinished, f_str("file", short_one->name),
                  f_int("last", (int64_t)last));
    return 0;
}

int copies_assemble(enum copies_kind kind, struct copies_piece *v, size_t n, struct buf *out,
                    struct err *e)
{
    struct copies_piece *base, *next;
    for (size_t i = 0; i < n; i++) {
        v[i].kind = kind;
        check_piece(&v[i]);
    }
    int rc = find_base(v, n, &base, e);
    if (rc < 0 || !base)
        return rc;
    uint64_t last = base->first - 1;
    for (next = base; rc == 0 && next;) {
        rc = append(out, next, last, e);
        last = next->has_last;
        next = NULL;
        for (size_t i = 0; i < n; i++)
            if (v[i].segment == base->segment && v[i].first <= last + 1 && v[i].has_last > last &&
                (!next || v[i].has_last > next->has_last))
                next = &v[i];
    }
    if (rc == 0)
        rc = check_rest(v, n, base->segment, last, e);
    return rc < 0 ? rc : 1;
}

/* ---- fetching ---- */

struct fetch {
    enum copies_kind kind;
    const struct files_ops *files;
    void *fs;
    char *dir, *path;
    VEC(struct copies_piece) pieces; /* the newest epoch last */
    size_t from;                     /* index of the first piece of the epoch that is read now */
    unsigned waiting, tries;
    bool file_is_missing; /* a file that was listed does not exist any more */
    /* In case that no master has written a complete base: */
    struct buf best;    /* the longest part of a base of the first segment */
    char *best_name;    /* name of the file with this part; NULL = there is no such base */
    uint64_t best_last; /* number of the last record in this part; 0 = it has none */
    char *unfinished;   /* name of an incomplete file */
    struct copies_found found;
    struct err why;
    copies_done_fn *done;
    void *arg;
};

static void forget_pieces(struct fetch *f)
{
    for (size_t i = 0; i < f->pieces.n; i++) {
        buf_done(&f->pieces.v[i].text);
        free(f->pieces.v[i].name);
    }
    vec_done(&f->pieces);
    f->pieces.v = NULL;
    f->pieces.n = f->pieces.cap = 0;
}

static void fetch_free(struct fetch *f)
{
    if (!f)
        return;
    forget_pieces(f);
    buf_done(&f->best);
    free(f->best_name);
    free(f->unfinished);
    free(f->dir);
    free(f->path);
    free(f);
}

static void fetch_over(struct fetch *f)
{
    if (f->why.num)
        f->found.size = 0;
    f->done(&f->found, &f->why, f->arg);
    fetch_free(f);
}

static void write_file(struct fetch *f, struct span text)
{
    f->found.size = text.len;
    if (text.len > 0)
        (void)fs_write_atomic(AT_FDCWD, f->path, text, 0600, false, &f->why);
    fetch_over(f);
}

/* This master has no complete base: it died while it wrote its first file. It relied on none of its
 * files. In case that no older set exists, keep the longest part of a base of the first segment. */
static void keep_best(struct fetch *f)
{
    for (size_t i = f->from; i < f->pieces.n; i++) {
        struct copies_piece *p = &f->pieces.v[i];
        struct buf text = { .max = SIZE_MAX / 4 };
        if (!f->unfinished && !(f->unfinished = str_dup(p->name)))
            (void)no_memory(f->kind, &f->why);
        if (p->first != 1 || p->segment != 1)
            continue;
        (void)append(&text, p, 0, &f->why);
        if (f->best_name && text.len <= f->best.len) {
            buf_done(&text);
            continue;
        }
        buf_done(&f->best);
        f->best = text;
        f->best_last = p->has_last;
        free(f->best_name);
        if (!(f->best_name = str_dup(p->name)))
            (void)no_memory(f->kind, &f->why);
    }
}

/* No master has written a complete base. */
static void no_set(struct fetch *f)
{
    if (f->unfinished && !f->best_name)
        (void)err_set(&f->why, EBADMSG,
                      "the copies of %s in '%s' are not whole: '%s' is cut short, and there is no "
                      "older set",
                      words[f->kind].of, f->dir, f->unfinished);
    if (f->why.num) {
        fetch_over(f);
        return;
    }
    if (f->best_name)
        log_event(LOG_WARN, words[f->kind].unfinished, f_str("file", f->best_name),
                  f_int("last", (int64_t)f->best_last));
    write_file(f, buf_span(&f->best));
}

static void read_epoch(struct fetch *f);
static void begin_listing(struct fetch *f);

/* All files of the epoch were read, or have failed. */
static void epoch_is_read(struct fetch *f)
{
    AUTO(buf_done) struct buf text = { .max = SIZE_MAX / 4 };
    /* The master of these files still runs and merges them: list the directory again. */
    if (f->file_is_missing && ++f->tries < COPIES_FETCH_TRIES) {
        f->file_is_missing = false;
        f->why = (struct err){ 0 };
        begin_listing(f);
        return;
    }
    int rc = f->why.num ? -f->why.num
                        : copies_assemble(f->kind, f->pieces.v + f->from, f->pieces.n - f->from,
                                          &text, &f->why);
    if (rc < 0) {
        fetch_over(f);
    } else if (rc > 0) {
        write_file(f, buf_span(&text));
    } else {
        keep_best(f);
        while (f->pieces.n > f->from) { /* continue with the epoch before */
            struct copies_piece *p = &f->pieces.v[--f->pieces.n];
            buf_done(&p->text);
            free(p->name);
        }
        read_epoch(f);
    }
}

struct piece_get {
    struct fetch *f;
    size_t i;
};

static void on_got(const struct files_result *r, const struct err *e, void *arg)
{
    struct piece_get *g = arg;
    struct fetch *f = g->f;
    struct copies_piece *p = &f->pieces.v[g->i];
    f->file_is_missing |= e->num == ENOENT;
    if (e->num && !f->why.num) {
        f->why = *e;
        (void)err_wrap(&f->why, -e->num, "cannot read copy '%s' of %s", p->name, words[f->kind].of);
    }
    if (r && buf_add(&p->text, r->data.p, r->data.len) < 0 && !f->why.num)
        (void)no_memory(f->kind, &f->why);
    free(g);
    if (--f->waiting == 0)
        epoch_is_read(f);
}

static void get_piece(struct fetch *f, size_t i)
{
    struct piece_get *g = calloc(1, sizeof *g);
    AUTO(free_p) char *path = fs_join(f->dir, f->pieces.v[i].name);
    if (g)
        *g = (struct piece_get){ f, i };
    int rc =
        g && path ? f->files->get(f->fs, path, on_got, g, &f->why) : no_memory(f->kind, &f->why);
    if (rc < 0)
        free(g);
    else
        f->waiting++;
}

static void read_epoch(struct fetch *f)
{
    if (f->pieces.n == 0 || f->why.num) {
        no_set(f);
        return;
    }
    uint32_t epoch = f->pieces.v[f->pieces.n - 1].epoch;
    f->from = f->pieces.n;
    while (f->from > 0 && f->pieces.v[f->from - 1].epoch == epoch)
        f->from--;
    for (size_t i = f->from; i < f->pieces.n && !f->why.num; i++)
        get_piece(f, i);
    if (f->waiting == 0)
        fetch_over(f); /* no get could be started: f->why says why */
}

static int by_epoch(const void *a, const void *b)
{
    const struct copies_piece *x = a, *y = b;
    return x->epoch < y->epoch ? -1 : x->epoch > y->epoch;
}

static int add_piece(struct fetch *f, const char *name)
{
    struct copies_piece p;
    if (copies_parse_name(name, &p) < 0) {
        log_event(LOG_WARN, words[f->kind].unknown, f_str("file", name));
        return 0;
    }
    p.name = str_dup(name);
    p.text.max = SIZE_MAX / 4;
    if (p.name && vec_push(&f->pieces, p) == 0)
        return 0;
    free(p.name);
    return no_memory(f->kind, &f->why);
}

static void on_listed(const struct files_result *r, const struct err *e, void *arg)
{
    struct fetch *f = arg;
    forget_pieces(f);
    if (e->num && e->num != ENOENT)
        f->why = *e;
    for (size_t i = 0; r && i < r->n_stats && !f->why.num; i++)
        if (!r->stats[i].is_dir)
            (void)add_piece(f, r->stats[i].name);
    f->found.n_files = (unsigned)f->pieces.n;
    if (f->pieces.n)
        qsort(f->pieces.v, f->pieces.n, sizeof *f->pieces.v, by_epoch);
    read_epoch(f);
}

static void begin_listing(struct fetch *f)
{
    if (f->files->list(f->fs, f->dir, on_listed, f, &f->why) < 0)
        fetch_over(f);
}

int copies_fetch(enum copies_kind kind, const struct files_ops *files, void *fs, const char *dir,
                 const char *path, copies_done_fn *done, void *arg, struct err *e)
{
    struct fetch *f = calloc(1, sizeof *f);
    if (f)
        *f = (struct fetch){ .kind = kind,
                             .files = files,
                             .fs = fs,
                             .dir = str_dup(dir),
                             .path = str_dup(path),
                             .best.max = SIZE_MAX / 4,
                             .done = done,
                             .arg = arg };
    int rc = f && f->dir && f->path ? files->list(fs, dir, on_listed, f, e) : no_memory(kind, e);
    if (rc < 0)
        fetch_free(f);
    return rc;
}
