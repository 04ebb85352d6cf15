/*
 * Events as journal payloads:
 * {"e":"registered","t":120,"slot":3,"container":"...","text":"127.0.0.1:40123","pid":71}.
 *
 * One table says which members there are; those with the value 0 are left out. Writing is by hand
 * (it is on the path of every event), reading through jansson.
 */
#include <errno.h>
#include <jansson.h>
#include <stddef.h>
#include <string.h>

#include "base/str.h"
#include "codec/json.h"
#include "job/job_int.h"

enum { EVENT_JSON_MAX = 128 << 10 }; /* a tail of 4 KiB and three texts, each byte escaped to six */
#define TIME_MAX_MS ((int64_t)1 << 52) /* 140,000 years; a thousand times as many us still fit */

/* slot_event: "slot" is written even when it is 0. */
static const struct {
    const char *name;
    bool durable, slot_event;
} events[EV_COUNT] = {
#define X(id, text) [id].name = text,
    JOB_EVENTS(X)
#undef X
#define ROW(id, d, s) [id].durable = d, [id].slot_event = s
        ROW(EV_SUBMITTED, true, false),
    ROW(EV_MASTER_STARTED, true, false),
    ROW(EV_RESYNCED, true, false),
    ROW(EV_CONTAINER_SEEN, true,
        true), /* what is lost, is lost because it was not seen: a replay must know */
    ROW(EV_ALLOCATED, true, true),
    ROW(EV_ALLOCATION_REFUSED, true, true),
    ROW(EV_COMPLETED, true, true),
    ROW(EV_PREEMPTING, true, true),
    ROW(EV_REGISTERED, true, true),
    ROW(EV_EXECUTOR_GONE, false, true),
    ROW(EV_EXECUTOR_BACK, false, true),
    ROW(EV_ATTEMPT_STARTED, true, true),
    ROW(EV_ATTEMPT_ENDED, true, true),
    ROW(EV_BEAT, false, true),
    ROW(EV_PROGRESS, false, true),
    ROW(EV_CHECKPOINT, true, true),
    ROW(EV_TENSORBOARD, true, true),
    ROW(EV_TASK_READY, true, true),
    ROW(EV_CLIENT_OWNS, true, false),
    ROW(EV_CLIENT_AWAY, true, false),
    ROW(EV_STOP, true, false),
    ROW(EV_STALLED, false, false),
    ROW(EV_TIMER, true, true),
    ROW(EV_SUSPECT, false, true),
    ROW(EV_SHRINK, false, false),
    ROW(EV_LAUNCH_FAILED_JOB, true, false),
#undef ROW
};

static const char *const limit_names[LIMIT_COUNT] = {
#define X(id, name) [id] = name,
    JOB_LIMITS(X)
#undef X
};

enum field_kind {
    F_NONE = 0,
    F_U32,
    F_INT,
    F_I64,
    F_U64,
    F_BOOL,
    F_STR,
    F_TAIL,
    F_REASON,
    F_LIMIT
};

static const struct field {
    const char *name;
    enum field_kind kind;
    size_t offset;
} fields[] = {
#define FIELD(member, kind)                                                                        \
    {                                                                                              \
#member, kind, offsetof(struct job_event, member)                                          \
    }
    FIELD(slot, F_U32),     FIELD(limit, F_LIMIT),    FIELD(group, F_U32),
    FIELD(epoch, F_U32),    FIELD(generation, F_U32), FIELD(attempt, F_U32),
    FIELD(rank, F_U32),     FIELD(container, F_STR),  FIELD(exit_code, F_INT),
    FIELD(signal, F_INT),   FIELD(reason, F_REASON),  FIELD(age_us, F_U64),
    FIELD(wall_ms, F_I64),  FIELD(value_ms, F_I64),   FIELD(step, F_U64),
    FIELD(total, F_U64),    FIELD(pid, F_U32),        FIELD(tb_port, F_U32),
    FIELD(running, F_BOOL), FIELD(launched, F_BOOL),  FIELD(who, F_STR),
    FIELD(text, F_STR),     FIELD(tail, F_TAIL),      FIELD(node, F_STR),
#undef FIELD
};

const char *job_event_name(enum job_event_type t)
{
    return t > EV_NONE && t < EV_COUNT ? events[t].name : "none";
}

bool job_is_durable(enum job_event_type t)
{
    return t > EV_NONE && t < EV_COUNT && events[t].durable;
}

/* ---- writing ---- */

static void add_number(struct buf *out, bool negative, uint64_t v)
{
    char digits[24], *p = digits + sizeof digits;

    do
        *--p = (char)('0' + v % 10);
    while (v /= 10);
    if (negative)
        *--p = '-';
    (void)buf_add(out, p,
                  (size_t)(digits + sizeof digits - p)); /* a failed append shows in out->failed */
}

static void add_int(struct buf *out, int64_t v)
{
    add_number(out, v < 0, v < 0 ? -(uint64_t)v : (uint64_t)v);
}

static void add_text(struct buf *out, const char *s, bool tail)
{
    size_t len = strlen(s), max = tail ? JOB_TAIL_MAX : JOB_TEXT_MAX;

    if (len <= max) {
        (void)json_add_str(out, span_mem(s, len));
    } else if (!tail) {
        for (len = max;
             len > 0 && ((unsigned char)s[len] & 0xc0) == 0x80;) /* not within a character */
            len--;
        (void)json_add_str(out, span_mem(s, len));
    } else {
        for (s += len - max, len = max; len > 0 && ((unsigned char)*s & 0xc0) == 0x80; len--)
            s++;
        (void)json_add_str(out, span_mem(s, len));
    }
}

static void add_key(struct buf *out, const char *name)
{
    (void)buf_add(out, ",\"", 2);
    (void)buf_add(out, name, strlen(name));
    (void)buf_add(out, "\":", 2);
}

static void add_name(struct buf *out, const char *key, const char *value)
{
    add_key(out, key);
    (void)buf_addc(out, '"');
    (void)buf_adds(out, value);
    (void)buf_addc(out, '"');
}

static int64_t field_number(const struct field *f, const struct job_event *ev)
{
    const char *at = (const char *)ev + f->offset;
    uint32_t u32;
    int i;
    int64_t i64;

    switch (f->kind) {
    case F_U32:
    case F_REASON: /* an enum is as wide as an unsigned */
    case F_LIMIT:
        memcpy(&u32, at, sizeof u32);
        return u32;
    case F_INT:
        memcpy(&i, at, sizeof i);
        return i;
    case F_I64:
    case F_U64:
        memcpy(&i64, at, sizeof i64);
        return i64;
    case F_BOOL:
        return *(const bool *)at;
    case F_NONE:
    case F_STR:
    case F_TAIL:
        break;
    }
    return 0;
}

static void add_field(const struct field *f, const struct job_event *ev, bool slot_event,
                      struct buf *out)
{
    if (f->kind == F_STR || f->kind == F_TAIL) {
        const char *s;
        memcpy(&s, (const char *)ev + f->offset, sizeof s);
        if (s) {
            add_key(out, f->name);
            add_text(out, s, f->kind == F_TAIL);
        }
        return;
    }
    int64_t v = field_number(f, ev);
    if (!v && !(slot_event && f->offset == offsetof(struct job_event, slot)))
        return;
    if (f->kind == F_REASON) {
        add_name(out, f->name, end_reason_name((enum end_reason)v));
    } else if (f->kind == F_LIMIT) {
        add_name(out, f->name, (uint64_t)v < LIMIT_COUNT ? limit_names[v] : "none");
    } else {
        add_key(out, f->name);
        if (f->kind == F_BOOL)
            (void)buf_adds(out, "true");
        else
            add_int(out, f->kind == F_U64 ? v & INT64_MAX : v);
    }
}

int job_event_encode(const struct job_event *ev, int64_t t_ms, struct buf *out)
{
    if ((unsigned)ev->type >= EV_COUNT || !events[ev->type].name)
        return -EINVAL;
    (void)buf_adds(out, "{\"e\":\"");
    (void)buf_adds(out, events[ev->type].name);
    (void)buf_adds(out, "\",\"t\":");
    add_int(out, t_ms);
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        add_field(&fields[i], ev, events[ev->type].slot_event, out);
    return buf_addc(out, '}');
}

/* ---- reading ---- */

static int wrong(struct err *e, const char *key, const char *why)
{
    return err_set(e, EBADMSG, "journal record: '%.40s' %s", key, why);
}

static int read_number(const struct field *f, const json_t *v, int64_t *out, struct err *e)
{
    static const struct {
        int64_t min, max;
    } ranges[] = {
        [F_U32] = { 0, UINT32_MAX },
        [F_INT] = { INT32_MIN, INT32_MAX },
        [F_I64] = { -TIME_MAX_MS, TIME_MAX_MS },
        [F_U64] = { 0, INT64_MAX },
    };
    if (!json_is_integer(v))
        return wrong(e, f->name, "is not a whole number");
    *out = json_integer_value(v);
    if (*out < ranges[f->kind].min || *out > ranges[f->kind].max)
        return wrong(e, f->name, "is out of its range");
    return 0;
}

static int read_name(const struct field *f, const json_t *v, uint32_t *out, struct err *e)
{
    const char *s = json_string_value(v);

    *out = 0;
    if (f->kind == F_REASON && s)
        *out = (uint32_t)end_reason_parse(s);
    for (uint32_t i = 1; f->kind == F_LIMIT && s && i < LIMIT_COUNT; i++)
        *out = str_eq(limit_names[i], s) ? i : *out;
    return *out ? 0 : wrong(e, f->name, "has a value that is not known");
}

static int read_field(const struct field *f, const json_t *v, struct job_event *ev, struct err *e)
{
    char *at = (char *)ev + f->offset;
    int64_t number = 0;
    uint32_t u32;
    int i, rc;

    switch (f->kind) {
    case F_STR:
    case F_TAIL: {
        const char *s = json_string_value(v);
        if (!s)
            return wrong(e, f->name, "is not a text");
        memcpy(at, &s, sizeof s);
        return 0;
    }
    case F_BOOL:
        if (!json_is_boolean(v))
            return wrong(e, f->name, "is neither true nor false");
        *(bool *)at = json_is_true(v);
        return 0;
    case F_REASON:
    case F_LIMIT:
        rc = read_name(f, v, &u32, e);
        if (rc == 0)
            memcpy(at, &u32, sizeof u32);
        return rc;
    case F_U32:
    case F_INT:
    case F_I64:
    case F_U64:
        rc = read_number(f, v, &number, e);
        if (rc < 0)
            return rc;
        break;
    case F_NONE:
        break;
    }
    if (f->kind == F_U32) {
        u32 = (uint32_t)number;
        memcpy(at, &u32, sizeof u32);
    } else if (f->kind == F_INT) {
        i = (int)number;
        memcpy(at, &i, sizeof i);
    } else {
        memcpy(at, &number, sizeof number);
    }
    return 0;
}

static enum job_event_type event_named(const char *name)
{
    for (int t = EV_NONE + 1; t < EV_COUNT; t++) {
        if (str_eq(events[t].name, name))
            return (enum job_event_type)t;
    }
    return EV_NONE;
}

static int read_member(const char *key, const json_t *v, struct job_event *ev, int64_t *t_ms,
                       struct err *e)
{
    if (str_eq(key, "e")) {
        ev->type = event_named(json_string_value(v));
        return ev->type ? 0 : wrong(e, key, "names no event");
    }
    if (str_eq(key, "t")) {
        *t_ms = json_is_integer(v) ? json_integer_value(v) : -1;
        return *t_ms >= 0 && *t_ms <= TIME_MAX_MS ? 0 : wrong(e, key, "is not a job time");
    }
    if (str_eq(key, "n") || str_eq(key, "c")) /* the journal's own: number and checksum */
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        if (str_eq(fields[i].name, key))
            return read_field(&fields[i], v, ev, e);
    }
    return wrong(e, key, "is not a member of a record (a newer version's?)");
}

int job_event_decode(struct span json, struct job_event *out, int64_t *out_t_ms, void **out_holder,
                     struct err *e)
{
    AUTO(json_freep) json_t *obj = NULL;
    struct job_event ev = { 0 };
    int64_t t_ms = -1;
    const char *key;
    json_t *v;

    if (json.len > EVENT_JSON_MAX)
        return err_set(e, EBADMSG, "journal record of %zu bytes, which none can have", json.len);
    int rc = json_parse("journal record", json, &obj, e);
    if (rc < 0)
        return rc;
    if (!json_is_object(obj))
        return err_set(e, EBADMSG, "journal record: not an object");
    json_object_foreach(obj, key, v)
    {
        rc = read_member(key, v, &ev, &t_ms, e);
        if (rc < 0)
            return rc;
    }
    if (!ev.type || t_ms < 0)
        return wrong(e, ev.type ? "t" : "e", "is missing");
    *out = ev;
    *out_t_ms = t_ms;
    *out_holder = TAKE(obj);
    return 0;
}

void job_event_release(void *holder)
{
    json_decref(holder);
}
