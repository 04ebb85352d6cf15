/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/task_message.h"

#include <errno.h>
#include <jansson.h>

#include "base/err.h"
#include "codec/json.h"
#include "metrics/metrics.h"

enum { PARTS_MAX = 1000000 };

static int read_count(const json_t *obj, const char *key, int64_t max, bool *out_has, uint64_t *out,
                      struct err *e)
{
    const json_t *v = json_object_get(obj, key);
    if (!v)
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > max)
        return err_set(e, EINVAL, "'%s' is not a whole number from 0 to %lld", key, (long long)max);
    *out_has = true;
    *out = (uint64_t)json_integer_value(v);
    return 0;
}

static int read_text(const json_t *obj, const char *key, const char **out, struct err *e)
{
    const json_t *v = json_object_get(obj, key);
    const char *s = json_string_value(v);
    if (!v)
        return 0;
    if (!s || !*s || strlen(s) > TASK_PATH_MAX)
        return err_set(e, EINVAL, "'%s' is not a text of 1 to %d bytes", key, TASK_PATH_MAX);
    for (const char *p = s; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return err_set(e, EINVAL, "'%s' has a control character in it", key);
    *out = s;
    return 0;
}

static int read_ask(const json_t *obj, bool *out, struct err *e)
{
    const json_t *v = json_object_get(obj, "ask");
    const char *s = json_string_value(v);
    if (v && (!s || strcmp(s, "stop") != 0))
        return err_set(e, EINVAL, "'ask' can only be \"stop\"");
    *out = v != NULL;
    return 0;
}

static int read_ready(const json_t *obj, bool *out, struct err *e)
{
    const json_t *v = json_object_get(obj, "ready");
    if (v && !json_is_true(v))
        return err_set(e, EINVAL, "'ready' can only be true: a task that is ready stays ready");
    *out = v != NULL;
    return 0;
}

/* All of them, or none: a line with one bad metric is refused. */
static int read_metrics(const json_t *obj, const void **out, struct err *e)
{
    json_t *v = json_object_get(obj, "metrics"), *value;
    const char *name;
    int rc = 0;
    if (!v)
        return 0;
    if (!json_is_object(v))
        return err_set(
            e, EINVAL,
            "'metrics' must be an object of numbers, such as {\"metrics\": {\"loss\": 0.31}}");
    if (json_object_size(v) > METRICS_OWN_MAX)
        return err_set(e, E2BIG, "a task may report at most %d different metrics", METRICS_OWN_MAX);
    json_object_foreach(v, name, value)
    {
        rc = metric_name_check(span_of(name), e);
        if (rc == 0 && !json_is_number(value))
            rc = err_set(e, EINVAL, "metric '%s' is not a number", name);
        if (rc < 0)
            return rc;
    }
    *out = v;
    return 0;
}

int task_message_parse(struct span line, struct task_message *out, struct err *e)
{
    struct task_message w = { 0 };
    bool has_parts = false;
    uint64_t parts = 0;
    json_t *obj = NULL;
    int rc = json_parse("line", line, &obj, e);
    if (rc == 0 && !json_is_object(obj))
        rc = err_set(e, EINVAL, "a line must be one JSON object, such as {\"step\": 1}");
    if (rc == 0)
        rc = read_count(obj, "step", INT64_MAX, &w.has_step, &w.step, e);
    if (rc == 0)
        rc = read_count(obj, "total", INT64_MAX, &w.has_total, &w.total, e);
    if (rc == 0)
        rc = read_count(obj, "parts", PARTS_MAX, &has_parts, &parts, e);
    if (rc == 0)
        rc = read_text(obj, "checkpoint", &w.checkpoint, e);
    if (rc == 0)
        rc = read_text(obj, "tensorboard", &w.tensorboard, e);
    if (rc == 0)
        rc = read_ask(obj, &w.asks_stop, e);
    if (rc == 0)
        rc = read_ready(obj, &w.ready, e);
    if (rc == 0)
        rc = read_metrics(obj, &w.metrics, e);
    if (rc < 0) {
        json_decref(obj);
        return rc == -ENOMEM ? rc : -EINVAL;
    }
    w.parts = (uint32_t)parts;
    w.holder = obj;
    *out = w;
    return 0;
}

void task_message_done(struct task_message *w)
{
    json_decref(w->holder);
    *w = (struct task_message){ 0 };
}
