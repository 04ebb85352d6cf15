/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of events and actions, made from the lists of event.h; and events as journal payloads:
 * {"e":"registered","t":120,"slot":3,"container":"...","address":"127.0.0.1:40123","pid":71}
 */
#include "job/event.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/json.h"
#include "job/job_int.h"

/* Bytes of a record. The longest is a decided_resize of a job that has SPEC_ROLES_MAX roles with
 * names of 63 characters: 280 KiB. */
enum { EVENT_JSON_MAX = 512 << 10 };
#define TIME_MAX_MS ((int64_t)1 << 52) /* as in record.c */

/* ---- the tables ---- */

/* clang-format off */
#define EVENT_FIELD(of, kind, name, text) \
    { #name, F_##kind, offsetof(struct job_event, of.name), text },
#define ACTION_FIELD(of, kind, name, text) \
    { #name, F_##kind, offsetof(struct job_action, of.name), text },

#define EVENT(type, name, whose, durable, text) \
    static const struct field event_fields_##name[] = { FIELDS_##name(EVENT_FIELD, name) { 0 } };
JOB_EVENTS(EVENT)
#undef EVENT
#define ACTION(type, name, text) \
    static const struct field action_fields_##name[] = { FIELDS_##name(ACTION_FIELD, name) { 0 } };
JOB_ACTIONS(ACTION)
#undef ACTION

static const struct event_info events[EV_COUNT] = {
#define EVENT(type, name, whose, durable, text) \
    [type] = { #name, whose, durable, text, event_fields_##name },
    JOB_EVENTS(EVENT)
#undef EVENT
};

static const struct field *const actions[ACT_COUNT] = {
#define ACTION(type, name, text) [type] = action_fields_##name,
    JOB_ACTIONS(ACTION)
#undef ACTION
};
/* clang-format on */

/* Fields that have another name in journals of version 0.1.0 (format 1). */
static const struct {
    enum job_event_type type;
    const char *old_name, *name;
} renamed[] = {
    { EV_SUBMITTED, "text", "application_id" },
    { EV_SUBMITTED, "who", "user" },
    { EV_SUBMITTED, "running", "owned" },
    { EV_MASTER_STARTED, "value_ms", "mono_ms" },
    { EV_MASTER_STARTED, "running", "gives_back" },
    { EV_CONTAINER_SEEN, "text", "gpus" },
    { EV_ALLOCATED, "text", "gpus" },
    { EV_ALLOCATION_REFUSED, "text", "why" },
    { EV_COMPLETED, "text", "detail" },
    { EV_PREEMPTING, "value_ms", "within_ms" },
    { EV_REGISTERED, "text", "address" },
    { EV_ATTEMPT_ENDED, "text", "detail" },
    { EV_CHECKPOINT, "text", "path" },
    { EV_CHECKPOINT, "group", "parts" },
    { EV_TENSORBOARD, "text", "url" },
    { EV_STOP, "text", "why" },
    { EV_STOP, "value_ms", "save_ms" },
    { EV_STALLED, "value_ms", "stalled_ms" },
    { EV_LAUNCH_FAILED_JOB, "text", "why" },
};

const struct event_info *job_event_info(enum job_event_type t)
{
    return t > EV_NONE && t < EV_COUNT ? &events[t] : NULL;
}

const char *job_event_name(enum job_event_type t)
{
    const struct event_info *info = job_event_info(t);
    return info ? info->name : "none";
}

enum event_whose job_event_whose(enum job_event_type t)
{
    const struct event_info *info = job_event_info(t);
    return info ? info->whose : OF_JOB;
}

bool job_is_durable(enum job_event_type t)
{
    const struct event_info *info = job_event_info(t);
    return info && info->durable == DURABLE;
}

uint32_t job_event_slot(const struct job_event *ev)
{
    return job_event_whose(ev->type) != OF_JOB ? ev->of_slot.slot : 0;
}

static const struct field *action_fields(const struct job_action *a)
{
    static const struct field none[] = { { 0 } };

    return a->type > ACT_NONE && a->type < ACT_COUNT ? actions[a->type] : none;
}

const char **job_action_text(struct job_action *a)
{
    for (const struct field *f = action_fields(a); f->name; f++)
        if (f->kind == F_TEXT)
            return (const char **)(void *)((char *)a + f->offset);
    return NULL;
}

uint32_t job_action_slot(const struct job_action *a)
{
    const struct field *f = action_fields(a);

    return f->name && f->kind == F_SLOT ? a->of_slot.slot : JOB_ACTION_OF_JOB;
}

bool job_action_same(const struct job_action *a, const struct job_action *b)
{
    if (a->type != b->type)
        return false;
    for (const struct field *f = action_fields(a); f->name; f++)
        if (!record_field_same(f, a, b))
            return false;
    return true;
}

/* ---- copies ---- */

static const char **text_at(struct job_event *ev, const struct field *f)
{
    return (const char **)(void *)((char *)ev + f->offset);
}

int event_copy(const struct job_event *ev, struct job_event *out)
{
    const struct event_info *info = job_event_info(ev->type);

    *out = *ev;
    bool whole = true;
    for (const struct field *f = info ? info->fields : NULL; f && f->name; f++) {
        if (f->kind != F_TEXT && f->kind != F_LIST && f->kind != F_TAIL)
            continue;
        const char **at = text_at(out, f), *s = *at;
        size_t len = s ? strlen(s) : 0;
        if (f->kind == F_TAIL && len > JOB_TAIL_MAX)
            s += len - JOB_TAIL_MAX;
        size_t max = f->kind == F_TAIL ? JOB_TAIL_MAX : f->kind == F_TEXT ? JOB_TEXT_MAX : SIZE_MAX;
        *at = s && whole ? strndup(s, MIN(len, max)) : NULL;
        whole &= !s || *at;
    }
    if (!whole)
        event_copy_done(out);
    return whole ? 0 : -ENOMEM;
}

void event_copy_done(struct job_event *ev)
{
    const struct event_info *info = job_event_info(ev->type);

    for (const struct field *f = info ? info->fields : NULL; f && f->name; f++)
        if (f->kind == F_TEXT || f->kind == F_LIST || f->kind == F_TAIL)
            free(event_take(text_at(ev, f)));
    ev->type = EV_NONE;
}

char *event_take(const char **text)
{
    char *s = (char *)(uintptr_t)*text;

    *text = NULL;
    return s;
}

int job_refuse(struct err *e, int num, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)err_vset(e, num, fmt, ap);
    va_end(ap);
    return 1;
}

/* ---- the journal ---- */

int job_event_encode(const struct job_event *ev, int64_t t_ms, struct buf *out)
{
    const struct event_info *info = job_event_info(ev->type);

    if (!info)
        return -EINVAL;
    (void)buf_adds(out, "{\"e\":\"");
    (void)buf_adds(out, info->name);
    (void)buf_addc(out, '"');
    record_add_int(out, "t", t_ms);
    record_add(out, info->fields, ev);
    return buf_addc(out, '}');
}

static int bad_member(struct err *e, const char *key, const char *why)
{
    return err_set(e, EBADMSG, "journal record: '%.40s' %s", key, why);
}

enum job_event_type job_event_named(const char *name)
{
    for (int t = EV_NONE + 1; name && t < EV_COUNT; t++)
        if (str_eq(events[t].name, name))
            return (enum job_event_type)t;
    return EV_NONE;
}

static const struct field *field_of(enum job_event_type type, const char *name)
{
    const struct field *f = record_field(events[type].fields, name);

    for (size_t i = 0; !f && i < ARRAY_LEN(renamed); i++)
        if (renamed[i].type == type && str_eq(renamed[i].old_name, name))
            f = record_field(events[type].fields, renamed[i].name);
    return f;
}

/* Is this a member of every record? The caller reads "e" and "t"; storage/journal.h adds "n" and
 * "c". */
static bool is_common(const char *key)
{
    return str_eq(key, "e") || str_eq(key, "t") || str_eq(key, "n") || str_eq(key, "c");
}

static int read_event(const json_t *obj, struct job_event *ev, int64_t *t_ms, struct err *e)
{
    const json_t *t = json_object_get(obj, "t");
    const char *key;
    json_t *v;

    if (!json_object_get(obj, "e") || !t)
        return bad_member(e, t ? "e" : "t", "is missing");
    ev->type = job_event_named(json_string_value(json_object_get(obj, "e")));
    if (!ev->type)
        return bad_member(e, "e", "names no event");
    *t_ms = json_is_integer(t) ? json_integer_value(t) : -1;
    if (*t_ms < 0 || *t_ms > TIME_MAX_MS)
        return bad_member(e, "t", "is not a job time");
    json_object_foreach((json_t *)(uintptr_t)obj, key, v)
    {
        if (is_common(key))
            continue;
        const struct field *f = field_of(ev->type, key);
        int rc =
            f ? record_read(f, v, ev, e)
              : bad_member(e, key, "is not a member of this event's record (a newer version's?)");
        if (rc < 0)
            return rc;
    }
    return 0;
}

int job_event_decode(struct span json, struct job_event *out, int64_t *out_t_ms, void **out_holder,
                     struct err *e)
{
    AUTO(json_freep) json_t *obj = NULL;
    struct job_event ev = { 0 };
    int64_t t_ms = -1;

    if (json.len > EVENT_JSON_MAX)
        return err_set(e, EBADMSG, "journal record of %zu bytes: none is longer than %d", json.len,
                       EVENT_JSON_MAX);
    int rc = json_parse("journal record", json, &obj, e);
    if (rc < 0)
        return rc;
    if (!json_is_object(obj))
        return err_set(e, EBADMSG, "journal record: not an object");
    rc = read_event(obj, &ev, &t_ms, e);
    if (rc < 0)
        return rc;
    *out = ev;
    *out_t_ms = t_ms;
    *out_holder = TAKE(obj);
    return 0;
}

void job_event_release(void *holder)
{
    json_decref(holder);
}
