/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/stream.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"

enum { ERRNO_MAX = 4095, REASON_MAX = 400 };

static bool is_data(enum stream_type type)
{
    return type == SF_DATA || type == SF_ERRORS;
}

void stream_header(enum stream_type type, size_t n, unsigned char out[static STREAM_HEADER])
{
    out[0] = (unsigned char)type;
    out[1] = (unsigned char)(n >> 16);
    out[2] = (unsigned char)(n >> 8);
    out[3] = (unsigned char)n;
}

int stream_add(struct buf *out, enum stream_type type, const void *p, size_t n)
{
    unsigned char header[STREAM_HEADER];
    if (n > (is_data(type) ? (size_t)STREAM_DATA_MAX : (size_t)STREAM_CONTROL_MAX))
        return -EMSGSIZE;
    stream_header(type, n, header);
    char *at = buf_reserve(out, STREAM_HEADER + n);
    if (!at)
        return -ENOMEM;
    memcpy(at, header, STREAM_HEADER);
    if (n)
        memcpy(at + STREAM_HEADER, p, n);
    buf_commit(out, STREAM_HEADER + n);
    return 0;
}

static void put_u32(uint32_t v, unsigned char out[static 4])
{
    for (int i = 0; i < 4; i++)
        out[i] = (unsigned char)(v >> (24 - 8 * i));
}

int stream_add_u32(struct buf *out, enum stream_type type, uint32_t value)
{
    unsigned char bytes[4];
    put_u32(value, bytes);
    return stream_add(out, type, bytes, sizeof bytes);
}

int stream_add_failed(struct buf *out, const struct err *why)
{
    unsigned char text[4 + sizeof why->msg];
    size_t n = MIN(strlen(why->msg), (size_t)REASON_MAX);
    put_u32((uint32_t)(why->num > 0 ? why->num : EIO), text);
    memcpy(text + 4, why->msg, n);
    return stream_add(out, SF_FAILED, text, 4 + n);
}

uint32_t stream_u32(struct span payload)
{
    uint32_t v = 0;
    for (size_t i = 0; payload.len >= 4 && i < 4; i++)
        v = v << 8 | (unsigned char)payload.p[i];
    return v;
}

int stream_failed(struct span payload, struct err *e)
{
    char text[REASON_MAX + 1];
    uint32_t num = stream_u32(payload);
    size_t n = payload.len > 4 ? MIN(payload.len - 4, sizeof text - 1) : 0;
    if (n)
        memcpy(text, payload.p + 4, n);
    text[n] = '\0';
    if (strlen(text) != n || !span_utf8(span_of(text), NULL))
        text[0] = '\0';
    str_mask_controls(text);
    return err_set(e, num > 0 && num <= ERRNO_MAX ? (int)num : EIO, "%s",
                   text[0] ? text : "the peer gave no reason");
}

static int begin(struct stream_reader *r, struct err *e)
{
    unsigned type = r->header[0];
    size_t n = (size_t)r->header[1] << 16 | (size_t)r->header[2] << 8 | r->header[3];
    if (type == SF_NONE || type >= SF_COUNT)
        return err_set(e, EPROTO, "the stream has a frame of the unknown type %u", type);
    size_t max = is_data((enum stream_type)type) ? STREAM_DATA_MAX : STREAM_CONTROL_MAX;
    if (n > max)
        return err_set(e, EPROTO, "the stream has a frame of %zu bytes; the limit is %zu", n, max);
    r->type = (enum stream_type)type;
    r->left = n;
    buf_clear(&r->control);
    return 0;
}

static int deliver(struct stream_reader *r, struct span payload, struct err *e)
{
    int rc = r->on_frame(r->type, payload, r->arg);
    if (rc < 0 && e && !e->num)
        (void)err_set(e, -rc, "the stream ended: %m");
    return rc;
}

/* Take the next piece of the payload. Returns its length, or -errno. */
static ssize_t take(struct stream_reader *r, const char *p, size_t n, struct err *e)
{
    n = MIN(n, r->left);
    r->left -= n;
    int rc = 0;
    if (is_data(r->type)) {
        if (n)
            rc = deliver(r, span_mem(p, n), e);
    } else if (buf_add(&r->control, p, n) < 0) {
        rc = err_set(e, ENOMEM, "cannot read a frame of a stream: %m");
    } else if (r->left == 0) {
        rc = deliver(r, buf_span(&r->control), e);
    }
    if (r->left == 0)
        r->n_header = 0;
    return rc < 0 ? rc : (ssize_t)n;
}

int stream_feed(struct stream_reader *r, const char *p, size_t n, struct err *e)
{
    if (!r->control.max)
        r->control.max = STREAM_CONTROL_MAX + 1;
    while (n > 0) {
        if (r->n_header < STREAM_HEADER) {
            r->header[r->n_header++] = (unsigned char)*p++;
            n--;
            if (r->n_header < STREAM_HEADER)
                continue;
            int rc = begin(r, e);
            if (rc < 0)
                return rc;
            if (r->left > 0)
                continue;
        }
        ssize_t took = take(r, p, n, e); /* of a frame without payload: 0 bytes */
        if (took < 0)
            return (int)took;
        p += took;
        n -= (size_t)took;
    }
    return 0;
}

void stream_reader_done(struct stream_reader *r)
{
    buf_done(&r->control);
}
