/* SPDX-License-Identifier: Apache-2.0 */
#include "hadoop/ids.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/err.h"
#include "base/str.h"

/* Parse the next number of *rest; numbers are separated by "_". false: there is none, or it is too
 * large. */
static bool next_number(struct span *rest, int64_t max, int64_t *out)
{
    struct span field;
    if (!rest->p || !span_split(rest, '_', &field) || field.len == 0)
        return false;
    for (size_t i = 0; i < field.len; i++)
        if (field.p[i] < '0' || field.p[i] > '9')
            return false; /* strtol() would accept signs and blanks */
    return str_i64(field, 0, max, "number", out, NULL) == 0;
}

/* The part of s after `prefix`. p is NULL if s does not begin with it. */
static struct span after(struct span s, const char *prefix)
{
    size_t n = strlen(prefix);
    if (!span_starts(s, prefix))
        return (struct span){ 0 };
    return span_mem(s.p + n, s.len - n);
}

static bool next_app(struct span *rest, struct yarn_app *out)
{
    int64_t ts, id;
    if (!next_number(rest, INT64_MAX, &ts) || !next_number(rest, INT32_MAX, &id))
        return false;
    *out = (struct yarn_app){ .cluster = ts, .id = (int32_t)id };
    return true;
}

static int refuse(struct err *e, const char *what, struct span s, const char *form)
{
    return err_set(e, EINVAL, "'%.*s' is not a valid %s: it must look like %s",
                   (int)(s.len > 100 ? 100 : s.len), s.p ? s.p : "", what, form);
}

int yarn_app_parse(struct span s, struct yarn_app *out, struct err *e)
{
    struct span rest = after(s, "application_");
    struct yarn_app a;
    if (!next_app(&rest, &a) || rest.p)
        return refuse(e, "application id", s, "application_1700000000000_0001");
    *out = a;
    return 0;
}

int yarn_container_parse(struct span s, struct yarn_container *out, struct err *e)
{
    const int64_t seq_max = (INT64_C(1) << YARN_EPOCH_SHIFT) - 1;
    struct span rest = after(s, "container_");
    struct yarn_app a;
    int64_t epoch = 0, n, seq;
    bool good = true;
    if (rest.len > 0 && rest.p[0] == 'e') {
        rest.p++;
        rest.len--;
        good = next_number(&rest, (1 << 23) - 1, &epoch);
    }
    good = good && next_app(&rest, &a) && next_number(&rest, INT32_MAX, &n) &&
           next_number(&rest, seq_max, &seq) && !rest.p;
    if (!good)
        return refuse(e, "container id", s, "container_e01_1700000000000_0001_01_000002");
    *out = (struct yarn_container){ .attempt = { .app = a, .attempt = (int32_t)n },
                                    .id = epoch << YARN_EPOCH_SHIFT | seq };
    return 0;
}

const char *yarn_app_text(const struct yarn_app *a, char *buf)
{
    (void)snprintf(buf, YARN_ID_TEXT_MAX, "application_%" PRId64 "_%04" PRId32, a->cluster, a->id);
    return buf;
}

const char *yarn_container_text(const struct yarn_container *c, char *buf)
{
    int64_t epoch = c->id >> YARN_EPOCH_SHIFT;
    int64_t seq = c->id & ((INT64_C(1) << YARN_EPOCH_SHIFT) - 1);
    char e[32] = "";
    if (epoch != 0)
        (void)snprintf(e, sizeof e, "e%02" PRId64 "_", epoch);
    (void)snprintf(buf, YARN_ID_TEXT_MAX,
                   "container_%s%" PRId64 "_%04" PRId32 "_%02" PRId32 "_%06" PRId64, e,
                   c->attempt.app.cluster, c->attempt.app.id, c->attempt.attempt, seq);
    return buf;
}

bool yarn_app_eq(const struct yarn_app *a, const struct yarn_app *b)
{
    return a->cluster == b->cluster && a->id == b->id;
}

bool yarn_container_eq(const struct yarn_container *a, const struct yarn_container *b)
{
    return a->id == b->id && a->attempt.attempt == b->attempt.attempt &&
           yarn_app_eq(&a->attempt.app, &b->attempt.app);
}

bool yarn_app_get(const Hadoop__ApplicationId *m, struct yarn_app *out)
{
    if (!m || !m->has_id || !m->has_cluster_timestamp)
        return false;
    *out = (struct yarn_app){ .cluster = m->cluster_timestamp, .id = m->id };
    return true;
}

bool yarn_attempt_get(const Hadoop__ApplicationAttemptId *m, struct yarn_attempt *out)
{
    struct yarn_app a;
    if (!m || !m->has_attempt_id || !yarn_app_get(m->application_id, &a))
        return false;
    *out = (struct yarn_attempt){ .app = a, .attempt = m->attempt_id };
    return true;
}

bool yarn_container_get(const Hadoop__ContainerId *m, struct yarn_container *out)
{
    struct yarn_attempt a;
    if (!m || !m->has_id || !yarn_attempt_get(m->app_attempt_id, &a))
        return false;
    *out = (struct yarn_container){ .attempt = a, .id = m->id };
    return true;
}

Hadoop__ApplicationId *yarn_app_msg(struct yarn_id_msg *m, const struct yarn_app *a)
{
    hadoop__application_id__init(&m->app);
    m->app.has_id = m->app.has_cluster_timestamp = true;
    m->app.id = a->id;
    m->app.cluster_timestamp = a->cluster;
    return &m->app;
}

Hadoop__ApplicationAttemptId *yarn_attempt_msg(struct yarn_id_msg *m, const struct yarn_attempt *a)
{
    hadoop__application_attempt_id__init(&m->attempt);
    m->attempt.application_id = yarn_app_msg(m, &a->app);
    m->attempt.has_attempt_id = true;
    m->attempt.attempt_id = a->attempt;
    return &m->attempt;
}

Hadoop__ContainerId *yarn_container_msg(struct yarn_id_msg *m, const struct yarn_container *c)
{
    hadoop__container_id__init(&m->container); /* clears field 1, which YARN does not use */
    m->container.app_attempt_id = yarn_attempt_msg(m, &c->attempt);
    m->container.has_id = true;
    m->container.id = c->id;
    return &m->container;
}
