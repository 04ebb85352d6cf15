/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the OpenMetrics texts of several jobs together. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "metrics/metrics.h"

struct merged_family {
    char *name, *type, *help;
    struct buf samples;
};

struct metrics_merge {
    VEC(struct merged_family) families; /* in the order of their first use */
    VEC(char *) names;                  /* of the metrics that programs report themselves */
    size_t n_bytes;                     /* length of all texts together */
};

struct metrics_merge *metrics_merge_new(void)
{
    return calloc(1, sizeof(struct metrics_merge));
}

void metrics_merge_free(struct metrics_merge *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->families.n; i++) {
        struct merged_family *f = &m->families.v[i];
        free(f->name);
        free(f->type);
        free(f->help);
        buf_done(&f->samples);
    }
    vec_done(&m->families);
    for (size_t i = 0; i < m->names.n; i++)
        free(m->names.v[i]);
    vec_done(&m->names);
    free(m);
}

/* ---- one text ---- */

#define TYPE "# TYPE "
#define HELP "# HELP "

static bool take_prefix(struct span *s, const char *prefix)
{
    if (!span_starts(*s, prefix))
        return false;
    s->p += strlen(prefix);
    s->len -= strlen(prefix);
    return true;
}

static bool is_printable(struct span s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.p[i] < 0x20)
            return false;
    return true;
}

static bool is_sample_of(struct span line, struct span name, bool counter)
{
    if (line.len <= name.len || memcmp(line.p, name.p, name.len) != 0)
        return false;
    line.p += name.len;
    line.len -= name.len;
    if (counter && !take_prefix(&line, "_total"))
        return false;
    return line.len > 1 && (line.p[0] == '{' || line.p[0] == ' ');
}

static int bad_form(struct span line, struct err *e)
{
    return err_set(e, EBADMSG, "unexpected line '%.*s' in a text of metrics",
                   (int)MIN(line.len, (size_t)80), line.p ? line.p : "");
}

/* The position of text_walk() in a metrics text: the current family and the current sample. */
struct walk {
    struct span name, type, help; /* of the current family */
    struct span sample;           /* len 0: the family begins */
};

static int walk_head(struct span *rest, struct span line, struct walk *w)
{
    struct span name;
    struct span type = line;
    if (!take_prefix(&type, TYPE) || !span_split(&type, ' ', &name) || name.len == 0)
        return -EBADMSG;
    if (!span_eqs(type, "gauge") && !span_eqs(type, "counter"))
        return -EBADMSG;
    struct span help, help_name;
    if (!span_split(rest, '\n', &help) || !take_prefix(&help, HELP) ||
        !span_split(&help, ' ', &help_name) || !span_eq(help_name, name) || !is_printable(help))
        return -EBADMSG;
    *w = (struct walk){ .name = name, .type = type, .help = help };
    return 0;
}

static int text_walk(struct span text, int (*fn)(void *arg, const struct walk *w), void *arg,
                     struct err *e)
{
    struct span rest = text, line;
    struct walk w = { 0 };
    bool ended = false;
    while (span_split(&rest, '\n', &line)) {
        int rc = 0;
        if (ended && line.len == 0 && !rest.p)
            return 0;
        if (ended || line.len == 0 || !is_printable(line))
            return bad_form(line, e);
        if (span_eqs(line, "# EOF")) {
            ended = true;
            continue;
        }
        if (line.p[0] == '#')
            rc = walk_head(&rest, line, &w);
        else if (w.name.len && is_sample_of(line, w.name, span_eqs(w.type, "counter")))
            w.sample = line;
        else
            rc = -EBADMSG;
        if (rc == 0)
            rc = fn(arg, &w);
        if (rc == -EBADMSG)
            return bad_form(line, e);
        if (rc < 0)
            return err_set(e, -rc, "cannot merge metrics: %m");
    }
    return bad_form(line, e); /* the text lacks its last line, "# EOF" */
}

/* ---- adding ---- */

static struct merged_family *find_family(const struct metrics_merge *m, struct span name)
{
    for (size_t i = 0; i < m->families.n; i++)
        if (span_eqs(name, m->families.v[i].name))
            return &m->families.v[i];
    return NULL;
}

static int add_family(struct metrics_merge *m, const struct walk *w)
{
    struct merged_family f = { .name = span_dup(w->name),
                               .type = span_dup(w->type),
                               .help = span_dup(w->help) };
    int rc = f.name && f.type && f.help ? vec_push(&m->families, f) : -ENOMEM;
    if (rc < 0) {
        free(f.name);
        free(f.type);
        free(f.help);
    }
    return rc;
}

/* First pass: check the text, and make the families that are new. If the text is refused, new
 * families stay without samples. */
static int on_check(void *arg, const struct walk *w)
{
    struct metrics_merge *m = arg;
    const struct merged_family *f = find_family(m, w->name);
    if (f)
        return span_eqs(w->type, f->type) ? 0 : -EBADMSG;
    return m->families.n < METRICS_FAMILIES_MAX ? add_family(m, w) : -EBADMSG;
}

/* May the text have samples of this metric, which a program reports itself? The number of names is
 * limited. */
static int admit_name(struct metrics_merge *m, struct span sample, bool *out)
{
    static const char label[] = ",name=\"";
    const char *at = memmem(sample.p, sample.len, label, strlen(label));
    *out = false;
    if (!at)
        return 0;
    struct span name = { at + strlen(label), sample.len - (size_t)(at - sample.p) - strlen(label) };
    const char *end = memchr(name.p, '"', name.len);
    if (!end)
        return 0;
    name.len = (size_t)(end - name.p);
    for (size_t i = 0; i < m->names.n && !*out; i++)
        *out = span_eqs(name, m->names.v[i]);
    if (*out || m->names.n >= METRICS_TEXT_NAMES_MAX)
        return 0;
    char *copy = span_dup(name);
    int rc = copy ? vec_push(&m->names, copy) : -ENOMEM;
    if (rc < 0)
        free(copy);
    *out = rc == 0;
    return rc;
}

static int on_add(void *arg, const struct walk *w)
{
    struct metrics_merge *m = arg;
    struct merged_family *f = find_family(m, w->name);
    bool shown = true;
    int rc = 0;
    if (w->sample.len == 0)
        return 0;
    if (str_eq(f->name, METRICS_TEXT_VALUE))
        rc = admit_name(m, w->sample, &shown);
    if (rc == 0 && shown)
        rc = buf_add(&f->samples, w->sample.p, w->sample.len);
    if (rc == 0 && shown)
        rc = buf_addc(&f->samples, '\n');
    return rc;
}

int metrics_merge_add(struct metrics_merge *m, struct span text, struct err *e)
{
    if (text.len > METRICS_MERGE_MAX - m->n_bytes)
        return err_set(e, EFBIG, "the metrics of all jobs have more than %d MiB",
                       METRICS_MERGE_MAX >> 20);
    int rc = text_walk(text, on_check, m, e);
    if (rc == 0)
        rc = text_walk(text, on_add, m, e);
    if (rc == 0)
        m->n_bytes += text.len;
    return rc;
}

int metrics_merge_text(const struct metrics_merge *m, bool open, struct buf *out)
{
    for (size_t i = 0; i < m->families.n; i++) {
        const struct merged_family *f = &m->families.v[i];
        (void)metrics_text_family(out, open, f->name, f->type, f->help);
        (void)buf_add(out, f->samples.p, f->samples.len);
    }
    return out->failed ? -ENOMEM : 0;
}
