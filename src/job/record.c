/* SPDX-License-Identifier: Apache-2.0 */
#include "job/record.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/json.h"

#define TIME_MAX_MS ((int64_t)1 << 52) /* 140,000 years; in microseconds they still fit into 64 bits */

static const char *const limit_names[LIMIT_COUNT] = {
#define X(id, name) [id] = name,
    JOB_LIMITS(X)
#undef X
};

/* ---- writing: without a JSON library, since every event is written ---- */

void record_add_number(struct buf *out, int64_t v)
{
    char digits[24], *p = digits + sizeof digits;
    uint64_t left = v < 0 ? -(uint64_t)v : (uint64_t)v;

    do
        *--p = (char)('0' + left % 10);
    while (left /= 10);
    if (v < 0)
        *--p = '-';
    (void)buf_add(out, p, (size_t)(digits + sizeof digits - p)); /* shows in out->failed */
}

static bool is_text(enum field_kind kind)
{
    return kind == F_TEXT || kind == F_LIST || kind == F_TAIL;
}

static bool is_inside_character(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* Append a JSON string. A text that is too long loses its end, a tail its beginning. Both are cut
 * between two UTF-8 characters. */
static void add_text(struct buf *out, const char *s, enum field_kind kind)
{
    size_t len = strlen(s), max = kind == F_TAIL   ? JOB_TAIL_MAX
                                  : kind == F_TEXT ? JOB_TEXT_MAX
                                                   : SIZE_MAX;

    if (len > max && kind == F_TAIL) {
        for (s += len - max, len = max; len > 0 && is_inside_character(*s); len--)
            s++;
    } else if (len > max) {
        for (len = max; len > 0 && is_inside_character(s[len]);)
            len--;
    }
    (void)json_add_str(out, span_mem(s, len));
}

void record_add_key(struct buf *out, const char *name)
{
    (void)buf_add(out, ",\"", 2);
    (void)buf_add(out, name, strlen(name));
    (void)buf_add(out, "\":", 2);
}

static void add_name(struct buf *out, const char *key, const char *value)
{
    record_add_key(out, key);
    (void)buf_addc(out, '"');
    (void)buf_adds(out, value);
    (void)buf_addc(out, '"');
}

void record_add_int(struct buf *out, const char *name, int64_t value)
{
    record_add_key(out, name);
    record_add_number(out, value);
}

static int64_t number_of(enum field_kind kind, const char *at)
{
    uint32_t u32;
    int i;
    int64_t i64;

    switch (kind) {
    case F_SLOT:
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
    case F_FLAG:
        return *(const bool *)at;
    case F_NONE:
    case F_TEXT:
    case F_LIST:
    case F_TAIL:
    case F_COUNT:
        break;
    }
    return 0;
}

/* The nearest number that record_read() accepts. A broken executor may report any number, and the
 * journal must stay readable. */
static int64_t in_range(enum field_kind kind, int64_t v)
{
    if (kind == F_U64)
        return v & INT64_MAX;
    return kind == F_I64 ? MIN(MAX(v, -TIME_MAX_MS), TIME_MAX_MS) : v;
}

static void add_field(struct buf *out, const struct field *f, const char *at)
{
    if (is_text(f->kind)) {
        const char *s;
        memcpy(&s, at, sizeof s);
        if (s) {
            record_add_key(out, f->name);
            add_text(out, s, f->kind);
        }
        return;
    }
    int64_t v = number_of(f->kind, at);
    if (!v && f->kind != F_SLOT)
        return;
    if (f->kind == F_REASON)
        add_name(out, f->name, end_reason_name((enum end_reason)v));
    else if (f->kind == F_LIMIT)
        add_name(out, f->name, (uint64_t)v < LIMIT_COUNT ? limit_names[v] : "none");
    else if (f->kind == F_FLAG)
        record_add_key(out, f->name), (void)buf_adds(out, "true");
    else
        record_add_int(out, f->name, in_range(f->kind, v));
}

void record_add(struct buf *out, const struct field *fields, const void *from)
{
    for (const struct field *f = fields; f->name; f++)
        add_field(out, f, (const char *)from + f->offset);
}

bool record_field_same(const struct field *f, const void *a, const void *b)
{
    const char *x = (const char *)a + f->offset, *y = (const char *)b + f->offset;

    if (!is_text(f->kind))
        return number_of(f->kind, x) == number_of(f->kind, y);
    const char *s, *t;
    memcpy(&s, x, sizeof s);
    memcpy(&t, y, sizeof t);
    return str_eq(s, t);
}

/* ---- reading ---- */

static int bad_member(struct err *e, const char *key, const char *why)
{
    return err_set(e, EBADMSG, "journal record: '%.40s' %s", key, why);
}

const struct field *record_field(const struct field *fields, const char *name)
{
    for (const struct field *f = fields; f->name; f++)
        if (str_eq(f->name, name))
            return f;
    return NULL;
}

static int read_number(const struct field *f, const json_t *v, int64_t *out, struct err *e)
{
    static const struct {
        int64_t min, max;
    } ranges[F_COUNT] = {
        [F_SLOT] = { 0, UINT32_MAX },       [F_U32] = { 0, UINT32_MAX },
        [F_INT] = { INT32_MIN, INT32_MAX }, [F_I64] = { -TIME_MAX_MS, TIME_MAX_MS },
        [F_U64] = { 0, INT64_MAX },
    };
    if (!json_is_integer(v))
        return bad_member(e, f->name, "is not a whole number");
    *out = json_integer_value(v);
    if (*out < ranges[f->kind].min || *out > ranges[f->kind].max)
        return bad_member(e, f->name, "is out of range");
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
    return *out ? 0 : bad_member(e, f->name, "has an unknown value");
}

static int read_text(const struct field *f, const json_t *v, char *at, struct err *e)
{
    const char *s = json_string_value(v);

    if (!s)
        return bad_member(e, f->name, "is not a text");
    memcpy(at, &s, sizeof s);
    return 0;
}

int record_read(const struct field *f, const json_t *v, void *to, struct err *e)
{
    char *at = (char *)to + f->offset;
    int64_t number = 0;
    uint32_t u32 = 0;
    int i, rc;

    switch (f->kind) {
    case F_TEXT:
    case F_LIST:
    case F_TAIL:
        return read_text(f, v, at, e);
    case F_FLAG:
        if (!json_is_boolean(v))
            return bad_member(e, f->name, "is neither true nor false");
        *(bool *)at = json_is_true(v);
        return 0;
    case F_REASON:
    case F_LIMIT:
        rc = read_name(f, v, &u32, e);
        if (rc == 0)
            memcpy(at, &u32, sizeof u32);
        return rc;
    case F_SLOT:
    case F_U32:
        rc = read_number(f, v, &number, e);
        u32 = (uint32_t)number;
        if (rc == 0)
            memcpy(at, &u32, sizeof u32);
        return rc;
    case F_INT:
        rc = read_number(f, v, &number, e);
        i = (int)number;
        if (rc == 0)
            memcpy(at, &i, sizeof i);
        return rc;
    case F_I64:
    case F_U64:
        rc = read_number(f, v, &number, e);
        if (rc == 0)
            memcpy(at, &number, sizeof number);
        return rc;
    case F_NONE:
    case F_COUNT:
        break;
    }
    return bad_member(e, f->name, "has an unknown kind");
}
