/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/hdts.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* A read cursor. After the first failure all reads fail. */
struct rd {
    const unsigned char *p, *end;
    bool bad;
};

static unsigned take_byte(struct rd *r)
{
    if (r->bad || r->p == r->end) {
        r->bad = true;
        return 0;
    }
    return *r->p++;
}

static struct span take(struct rd *r, uint64_t n)
{
    if (r->bad || n > (uint64_t)(r->end - r->p)) {
        r->bad = true;
        return span_mem("", 0);
    }
    struct span s = span_mem(r->p, (size_t)n);
    r->p += n;
    return s;
}

/* Check a count or a length. */
static uint64_t checked(struct rd *r, uint64_t v, uint64_t max)
{
    if (v > max)
        r->bad = true;
    return r->bad ? 0 : v;
}

/* ---- version 0: Java's WritableUtils ---- */

/* Numbers from -112 to 127 are one byte. For others, the first byte says how many big-endian bytes
 * follow. Negative numbers are refused: the format has none. */
static uint64_t take_vlong(struct rd *r, uint64_t max)
{
    int first = (int8_t)take_byte(r);
    if (first >= 0)
        return checked(r, (uint64_t)first, max);
    if (first >= -112 || first < -120) { /* a negative number */
        r->bad = true;
        return 0;
    }
    uint64_t v = 0;
    for (int n = -112 - first; n > 0; n--)
        v = v << 8 | take_byte(r);
    return checked(r, v, max);
}

static struct span take_text(struct rd *r)
{
    return take(r, take_vlong(r, HDTS_MAX));
}

static bool find_writable(struct rd *r, const char *alias, struct span *out)
{
    bool found = false;
    for (uint64_t n = take_vlong(r, HDTS_ENTRIES_MAX); n > 0 && !r->bad; n--)
        for (int part = 0; part < 5; part++) /* alias, identifier, password, kind, service */
            (void)take_text(r);
    for (uint64_t n = take_vlong(r, HDTS_ENTRIES_MAX); n > 0 && !r->bad; n--) {
        struct span name = take_text(r), value = take_text(r);
        if (!found && span_eqs(name, alias)) {
            *out = value;
            found = true;
        }
    }
    return found;
}

/* ---- version 1: a delimited CredentialsProto ---- */

enum {
    WIRE_VARINT = 0,
    WIRE_64 = 1,
    WIRE_BYTES = 2,
    WIRE_32 = 5,
    FIELD_SECRETS = 2,
    KV_ALIAS = 1,
    KV_SECRET = 3
};

static uint64_t take_varint(struct rd *r)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        unsigned b = take_byte(r);
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80))
            return v;
    }
    r->bad = true;
    return 0;
}

/* Read the next field. *out: its bytes, if it has a length; other fields are skipped. */
static unsigned take_field(struct rd *r, struct span *out)
{
    uint64_t tag = take_varint(r);
    *out = span_mem("", 0);
    switch (tag & 7) {
    case WIRE_VARINT:
        (void)take_varint(r);
        break;
    case WIRE_64:
        (void)take(r, 8);
        break;
    case WIRE_32:
        (void)take(r, 4);
        break;
    case WIRE_BYTES:
        *out = take(r, take_varint(r));
        return tag >> 3 <= UINT32_MAX ? (unsigned)(tag >> 3) : 0;
    default:
        r->bad = true;
    }
    return 0;
}

static struct rd reader_of(struct span s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    return (struct rd){ p, p + s.len, false };
}

static bool find_proto(struct rd *r, const char *alias, struct span *out)
{
    bool found = false;
    struct rd body = reader_of(take(r, take_varint(r)));
    while (!r->bad && body.p < body.end && !body.bad) {
        struct span entry, field, name = span_mem("", 0), value = name;
        if (take_field(&body, &entry) != FIELD_SECRETS)
            continue;
        struct rd kv = reader_of(entry);
        while (kv.p < kv.end && !kv.bad) {
            unsigned number = take_field(&kv, &field);
            if (number == KV_ALIAS)
                name = field;
            else if (number == KV_SECRET)
                value = field;
        }
        body.bad |= kv.bad;
        if (!found && span_eqs(name, alias)) {
            *out = value;
            found = true;
        }
    }
    r->bad |= body.bad;
    return found;
}

int hdts_secret(struct span text, const char *alias, struct span *out, struct err *e)
{
    struct rd r = reader_of(text);
    struct span found;
    bool any;
    if (text.len < 5 || !span_starts(text, "HDTS"))
        return err_set(e, EINVAL, "this is not a token storage of Hadoop");
    r.p += 4;
    unsigned version = take_byte(&r);
    if (version > 1)
        return err_set(e, EINVAL, "a token storage of version %u cannot be read", version);
    any = version == 0 ? find_writable(&r, alias, &found) : find_proto(&r, alias, &found);
    if (r.bad)
        return err_set(e, EINVAL, "the token storage is damaged or cut short");
    if (!any)
        return err_set(e, ENOENT, "the token storage has no secret '%s'", alias);
    *out = found;
    return 0;
}
