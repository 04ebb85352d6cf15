/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/kv.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>

#include "base/str.h"
#include "base/util.h"

struct value {
    size_t len;
    char bytes[];
};

void kv_init(struct kv *kv, size_t bytes_max)
{
    *kv = (struct kv){ .bytes_max = bytes_max };
}

void kv_done(struct kv *kv)
{
    map_done(&kv->map, free);
    kv->bytes = 0;
}

void kv_request_done(struct kv_request *r)
{
    buf_done(&r->in);
}

static int answer(struct buf *out, int status, const char *what, struct span body)
{
    buf_addf(out, "HTTP/1.0 %d %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", status,
             what, body.len);
    return buf_add(out, body.p, body.len) < 0 ? -ENOMEM : 1;
}

static int refuse(struct buf *out, int status, const char *what)
{
    return answer(out, status, what, SPAN(""));
}

static size_t cost(const char *key, size_t len)
{
    return strlen(key) + len + KV_KEY_COST;
}

static void forget(struct kv *kv, const char *key)
{
    struct value *v = map_remove(&kv->map, key);
    if (v)
        kv->bytes -= cost(key, v->len);
    free(v);
}

static int put(struct kv *kv, const char *key, struct span body, struct buf *out)
{
    const struct value *old = map_get(&kv->map, key);
    size_t had = old ? cost(key, old->len) : 0;
    if (kv->bytes - had + cost(key, body.len) > kv->bytes_max)
        return refuse(out, 507, "Insufficient Storage");
    struct value *v = malloc(sizeof *v + body.len);
    if (!v)
        return -ENOMEM;
    v->len = body.len;
    memcpy(v->bytes, body.p ? body.p : "", body.len);
    forget(kv, key);
    if (map_set(&kv->map, key, v, NULL) < 0) {
        free(v);
        return -ENOMEM;
    }
    kv->bytes += cost(key, body.len);
    return refuse(out, 200, "OK");
}

/* Carry out a request. key: "/scope/key". */
static int act(struct kv *kv, struct span method, const char *key, struct span body,
               struct buf *out)
{
    if (span_eqs(method, "PUT"))
        return put(kv, key, body, out);
    if (span_eqs(method, "DELETE")) {
        forget(kv, key);
        return refuse(out, 200, "OK");
    }
    if (!span_eqs(method, "GET"))
        return refuse(out, 405, "Method Not Allowed");
    const struct value *v = map_get(&kv->map, key);
    return v ? answer(out, 200, "OK", span_mem(v->bytes, v->len)) : refuse(out, 404, "Not Found");
}

/* The value of Content-Length; 0 without that header; -1: it is invalid or too large. */
static int64_t body_length(struct span headers)
{
    struct span line;
    while (span_split(&headers, '\n', &line)) {
        struct span name;
        int64_t n;
        if (!span_split(&line, ':', &name) || name.len != 14 ||
            strncasecmp(name.p, "Content-Length", 14) != 0)
            continue;
        if (str_i64(span_trim(line), 0, KV_BODY_MAX, "Content-Length", &n, NULL) < 0)
            return -1;
        return n;
    }
    return 0;
}

/* Look for the end of the headers. 0 = it has not arrived; 1 = it was found, or the request is
 * wrong and `out` has the answer. */
static int read_head(struct kv_request *r, struct buf *out)
{
    const char *end = memmem(r->in.p, r->in.len, "\r\n\r\n", 4);
    if (!end)
        return r->in.len > KV_HEAD_MAX ? refuse(out, 431, "Request Header Fields Too Large") : 0;
    r->head_len = (size_t)(end - r->in.p) + 4;
    int64_t n = r->head_len > KV_HEAD_MAX ? -1 : body_length(span_mem(r->in.p, r->head_len));
    if (n < 0)
        return refuse(out, 413, "Content Too Large");
    r->body_len = (size_t)n;
    return 1;
}

int kv_feed(struct kv *kv, struct kv_request *r, struct span bytes, struct buf *out)
{
    r->in.max = KV_HEAD_MAX + KV_BODY_MAX + 4;
    size_t room = r->head_len ? r->head_len + r->body_len - r->in.len : r->in.max - r->in.len;
    if (buf_add(&r->in, bytes.p, MIN(bytes.len, room)) < 0)
        return -ENOMEM;
    if (!r->head_len) {
        int rc = read_head(r, out);
        if (rc <= 0 || out->len)
            return rc;
    }
    if (r->in.len < r->head_len + r->body_len)
        return 0;
    struct span line = { 0 }, rest = span_mem(r->in.p, r->head_len), method = { 0 }, path = { 0 };
    span_split(&rest, '\r', &line);
    if (!span_split(&line, ' ', &method) || !span_split(&line, ' ', &path) || !line.p ||
        !span_starts(line, "HTTP/1.") || path.len < 2 || path.p[0] != '/' ||
        path.len > KV_KEY_MAX || memchr(path.p, '\0', path.len))
        return refuse(out, 400, "Bad Request");
    AUTO(free_p) char *key = span_dup(path);
    return key ? act(kv, method, key, span_mem(r->in.p + r->head_len, r->body_len), out) : -ENOMEM;
}
