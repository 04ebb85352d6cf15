/* Reading the copies of a journal: see copies.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "master/copies.h"
#include "storage/journal.h"

enum { FILES_MAX = 10000, TEXT_MAX = 512 << 20, NAME_LEN = 13 };

/* ---- joining ---- */

void copies_text_done(struct copies_text *t)
{
    buf_done(&t->text);
    vec_done(&t->at);
}

/* The number of the record that the file begins with; 0 = none. */
static uint64_t first_number(struct span file)
{
    static const char head[] = "{\"n\":";
    int64_t n = 0;
    if (file.len <= sizeof head || memcmp(file.p, head, sizeof head - 1) != 0)
        return 0;
    const char *digits = file.p + sizeof head - 1;
    size_t len = 0;
    while (len < 19 && sizeof head - 1 + len < file.len && digits[len] >= '0' && digits[len] <= '9')
        len++;
    if (str_i64(span_mem(digits, len), 1, INT64_MAX, "n", &n, NULL) < 0)
        return 0;
    return (uint64_t)n;
}

int copies_join(struct copies_text *out, struct span file)
{
    uint64_t n = first_number(file);
    size_t pos = 0;
    struct span record;
    bool torn = false;
    if (n == 0 || n > out->at.n + 1) { /* of a master whose earlier file we do not have */
        log_event(LOG_WARN, "journal.gap", f_int("has", (int64_t)out->at.n),
                  f_int("next", (int64_t)n));
        return 0;
    }
    if (n <= out->at.n) {
        out->text.len = out->at.v[n - 1];
        out->at.n = n - 1;
    }
    struct err e = { 0 };
    int rc;
    while ((rc = journal_next(file, &pos, &n, &record, &torn, &e)) == 1) {
        size_t begins = out->text.len;
        if (buf_add(&out->text, record.p, record.len) < 0 || buf_addc(&out->text, '\n') < 0 ||
            vec_push(&out->at, begins) < 0)
            return -ENOMEM;
    }
    if (rc < 0) /* what follows it in there is not to be had; what other files say may be */
        log_err(LOG_WARN, "journal.damaged", &e);
    return 0;
}

/* ---- fetching ---- */

struct piece {
    struct fetch *f;
    char *name;
    struct buf text;
};

struct fetch {
    const struct archive_files *files;
    void *fs;
    char *dir, *path;
    VEC(struct piece *) pieces;
    unsigned waiting;
    struct err why;
    copies_done_fn *done;
    void *arg;
};

static void fetch_over(struct fetch *f, uint64_t size)
{
    const struct copies_found found = { .size = size, .n_files = (unsigned)f->pieces.n };
    f->done(&found, &f->why, f->arg);
    for (size_t i = 0; i < f->pieces.n; i++) {
        buf_done(&f->pieces.v[i]->text);
        free(f->pieces.v[i]->name);
        free(f->pieces.v[i]);
    }
    vec_done(&f->pieces);
    free(f->dir);
    free(f->path);
    free(f);
}

static void join_all(struct fetch *f)
{
    struct copies_text t = { .text.max = TEXT_MAX };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < f->pieces.n; i++)
        rc = copies_join(&t, buf_span(&f->pieces.v[i]->text));
    if (rc < 0)
        (void)err_set(&f->why, ENOMEM, "no memory for the journal of the master before this one");
    else if (t.text.len)
        (void)fs_write_atomic(AT_FDCWD, f->path, buf_span(&t.text), 0600, false, &f->why);
    fetch_over(f, f->why.num ? 0 : t.text.len);
    copies_text_done(&t);
}

static void on_got(const struct webhdfs_result *r, const struct err *e, void *arg)
{
    struct piece *p = arg;
    struct fetch *f = p->f;
    if (e->num && !f->why.num)
        f->why = *e;
    if (r && buf_add(&p->text, r->data.p, r->data.len) < 0 && !f->why.num)
        (void)err_set(&f->why, ENOMEM, "no memory for the journal");
    if (--f->waiting > 0)
        return;
    if (f->why.num)
        fetch_over(f, 0);
    else
        join_all(f);
}

static int add_piece(struct fetch *f, const char *name)
{
    struct piece *p = calloc(1, sizeof *p);
    if (p) {
        p->f = f;
        p->name = str_dup(name);
        p->text.max = TEXT_MAX;
    }
    if (p && p->name && vec_push(&f->pieces, p) == 0)
        return 0;
    if (p)
        free(p->name);
    free(p);
    return -ENOMEM;
}

static bool is_ours(const struct webhdfs_stat *s)
{
    size_t digits = strspn(s->name, "0123456789");
    return !s->is_dir && strlen(s->name) == NAME_LEN && digits == 4 && s->name[4] == '-' &&
           strspn(s->name + 5, "0123456789") == NAME_LEN - 5;
}

/* In the order of their names, which is the list's. */
static void on_listed(const struct webhdfs_result *r, const struct err *e, void *arg)
{
    struct fetch *f = arg;
    int rc = 0;
    if (e->num && e->num != ENOENT)
        f->why = *e;
    for (size_t i = 0; r && rc == 0 && i < r->n_stats && f->pieces.n < FILES_MAX; i++)
        if (is_ours(&r->stats[i]))
            rc = add_piece(f, r->stats[i].name);
    if (rc < 0)
        (void)err_set(&f->why, ENOMEM, "no memory for the journal");
    if (f->why.num || f->pieces.n == 0) {
        fetch_over(f, 0);
        return;
    }
    f->waiting = 1; /* until all have been asked for */
    for (size_t i = 0; i < f->pieces.n && !f->why.num; i++) {
        AUTO(free_p) char *path = fs_join(f->dir, f->pieces.v[i]->name);
        f->waiting++;
        if (!path || f->files->get(f->fs, path, on_got, f->pieces.v[i], &f->why) < 0) {
            f->waiting--;
            if (!f->why.num)
                (void)err_set(&f->why, ENOMEM, "no memory for the journal");
        }
    }
    if (--f->waiting == 0)
        fetch_over(f, 0);
}

int copies_fetch(const struct archive_files *files, void *fs, const char *dir, const char *path,
                 copies_done_fn *done, void *arg, struct err *e)
{
    struct fetch *f = calloc(1, sizeof *f);
    if (f)
        *f = (struct fetch){ .files = files,
                             .fs = fs,
                             .dir = str_dup(dir),
                             .path = str_dup(path),
                             .done = done,
                             .arg = arg };
    int rc = f && f->dir && f->path ? files->list(fs, dir, on_listed, f, e)
                                    : err_set(e, ENOMEM, "no memory for the journal");
    if (rc < 0 && f) {
        free(f->dir);
        free(f->path);
        free(f);
    }
    return rc;
}
