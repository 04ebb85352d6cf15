/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/costs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "codec/json.h"

enum { FILE_MAX = COSTS_NAMES_MAX * (6 * COSTS_NAME_MAX + 64) };

static size_t find(const struct costs_table *t, const char *name)
{
    size_t i = 0;

    while (i < t->v.n && !str_eq(t->v.v[i].name, name))
        i++;
    return i;
}

static void remove_at(struct costs_table *t, size_t i)
{
    for (; i + 1 < t->v.n; i++)
        t->v.v[i] = t->v.v[i + 1];
    t->v.n--;
}

/* Put the cost at the end of the table. 0 or -ENOMEM. */
static int put(struct costs_table *t, const char *name, uint64_t ms)
{
    struct cost_of_name x = { .ms = ms };
    size_t at = find(t, name);

    if (!str_copy(x.name, sizeof x.name, name))
        return 0;
    if (at < t->v.n)
        remove_at(t, at);
    else if (t->v.n == COSTS_NAMES_MAX)
        remove_at(t, 0);
    return vec_push(&t->v, x);
}

int costs_load(struct costs_table *t, const char *dir, struct err *e)
{
    AUTO(buf_done) struct buf text = { .max = FILE_MAX };
    AUTO(json_freep) json_t *doc = NULL;
    struct err ignored = { 0 };
    const char *name;
    json_t *ms;

    t->path = fs_join(dir, "costs");
    if (!t->path)
        return err_set(e, ENOMEM, "cannot read what resizes cost: %m");
    if (fs_read(AT_FDCWD, t->path, &text, &ignored) < 0 ||
        json_parse(t->path, buf_span(&text), &doc, &ignored) < 0)
        return 0;
    json_object_foreach(doc, name, ms)
    {
        json_int_t v = json_integer_value(ms);
        if (json_is_integer(ms) && v >= 0 && put(t, name, (uint64_t)v) < 0)
            return err_set(e, ENOMEM, "cannot read what resizes cost: %m");
    }
    return 0;
}

static int save(const struct costs_table *t, struct err *e)
{
    AUTO(buf_done) struct buf text = { 0 };

    for (size_t i = 0; i < t->v.n; i++) {
        (void)buf_adds(&text, i ? "," : "{");
        (void)json_add_str(&text, span_of(t->v.v[i].name));
        (void)buf_addf(&text, ":%llu", (unsigned long long)t->v.v[i].ms);
    }
    (void)buf_adds(&text, "}\n");
    if (text.failed)
        return err_set(e, ENOMEM, "cannot write '%s': %m", t->path);
    return fs_write_atomic(AT_FDCWD, t->path, buf_span(&text), 0600, false, e);
}

int costs_learn(struct costs_table *t, const char *name, uint64_t ms, struct err *e)
{
    size_t at = name ? find(t, name) : 0;

    if (!name || !t->path || strlen(name) >= COSTS_NAME_MAX || (at < t->v.n && t->v.v[at].ms == ms))
        return 0;
    if (put(t, name, MIN(ms, (uint64_t)INT64_MAX)) < 0)
        return err_set(e, ENOMEM, "cannot store the cost of a resize of '%s': %m", name);
    return save(t, e);
}

bool costs_find(const struct costs_table *t, const char *name, uint64_t *out_ms)
{
    size_t at = name ? find(t, name) : t->v.n;

    if (at == t->v.n)
        return false;
    *out_ms = t->v.v[at].ms;
    return true;
}

void costs_done(struct costs_table *t)
{
    vec_done(&t->v);
    free(TAKE(t->path));
}
