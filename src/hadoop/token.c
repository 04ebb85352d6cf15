/* SPDX-License-Identifier: Apache-2.0 */
#include "hadoop/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "hadoop/rpc.h"
#include "proto/hadoop_yarn.pb-c.h"

static void wipe_free(char *p, size_t n)
{
    if (p)
        explicit_bzero(p, n);
    free(p);
}

void token_done(struct token *t)
{
    free(t->identifier);
    wipe_free(t->password, t->password_len);
    free(t->kind);
    free(t->service);
    *t = (struct token){ 0 };
}

static int token_fill(struct span id, struct span password, struct span kind, struct span service,
                      struct token *out)
{
    struct token t = { span_dup(id), span_dup(password), id.len,
                       password.len, span_dup(kind),     span_dup(service) };
    if (!t.identifier || !t.password || !t.kind || !t.service) {
        token_done(&t);
        return -ENOMEM;
    }
    *out = t;
    return 0;
}

int token_copy(const struct token *from, struct token *out)
{
    return token_fill(span_mem(from->identifier, from->identifier_len),
                      span_mem(from->password, from->password_len), span_of(from->kind),
                      span_of(from->service), out);
}

int token_from_msg(const Hadoop__Token *m, struct token *out)
{
    return token_fill(span_mem(m->identifier.data, m->identifier.len),
                      span_mem(m->password.data, m->password.len), span_of(m->kind),
                      span_of(m->service), out);
}

void token_to_msg(const struct token *t, Hadoop__Token *out)
{
    hadoop__token__init(out);
    out->identifier.data = (uint8_t *)t->identifier;
    out->identifier.len = t->identifier_len;
    out->password.data = (uint8_t *)t->password;
    out->password.len = t->password_len;
    out->kind = t->kind;
    out->service = t->service;
}

/* ---- Writable ---- */

int64_t writable_vlong(struct writable *r)
{
    if (r->bad || r->p == r->end) {
        r->bad = true;
        return 0;
    }
    int first = (signed char)*r->p++;
    if (first >= -112)
        return first;
    bool negative = first < -120;
    int n = negative ? -120 - first : -112 - first; /* n is 1 to 8 */
    if (r->end - r->p < n) {
        r->bad = true;
        return 0;
    }
    uint64_t v = 0;
    for (int i = 0; i < n; i++)
        v = v << 8 | *r->p++;
    if (v > INT64_MAX) {
        r->bad = true;
        return 0;
    }
    return negative ? -1 - (int64_t)v : (int64_t)v;
}

/* A variable-length number, then that many bytes. */
static struct span writable_bytes(struct writable *r, size_t max)
{
    int64_t n = writable_vlong(r);
    if (r->bad || n < 0 || (uint64_t)n > max || n > r->end - r->p) {
        r->bad = true;
        return SPAN("");
    }
    struct span s = span_mem(r->p, (size_t)n);
    r->p += n;
    return s;
}

int writable_put_vlong(struct buf *out, int64_t v)
{
    if (v >= -112 && v <= 127)
        return buf_addc(out, (char)v);
    bool negative = v < 0;
    uint64_t m = negative ? (uint64_t)(-1 - v) : (uint64_t)v;
    int n = 8;
    while (n > 1 && m >> (8 * (n - 1)) == 0)
        n--;
    int rc = buf_addc(out, (char)(negative ? -120 - n : -112 - n));
    for (int i = n - 1; i >= 0; i--)
        rc = buf_addc(out, (char)(m >> (8 * i)));
    return rc;
}

static int writable_put_bytes(struct buf *out, struct span s)
{
    (void)writable_put_vlong(out, (int64_t)s.len); /* a failure sets out->failed */
    return buf_add(out, s.p ? s.p : "", s.len);
}

static bool has_nul(struct span s)
{
    return s.len > 0 && memchr(s.p, '\0', s.len) != NULL;
}

/* Read a text. NUL bytes are refused: C strings would be cut there. */
static struct span text_of(struct writable *r)
{
    struct span s = writable_bytes(r, TOKEN_BYTES_MAX);
    if (has_nul(s))
        r->bad = true;
    return s;
}

/* -EINVAL: not a token; -ENOMEM */
static int token_read(struct writable *r, struct token *out)
{
    struct span id = writable_bytes(r, TOKEN_BYTES_MAX);
    struct span password = writable_bytes(r, TOKEN_BYTES_MAX);
    struct span kind = text_of(r);
    struct span service = text_of(r);
    if (r->bad)
        return -EINVAL;
    return token_fill(id, password, kind, service, out);
}

static void token_write(const struct token *t, struct buf *out)
{
    (void)writable_put_bytes(out, span_mem(t->identifier, t->identifier_len));
    (void)writable_put_bytes(out, span_mem(t->password, t->password_len));
    (void)writable_put_bytes(out, span_of(t->kind));
    (void)writable_put_bytes(out, span_of(t->service));
}

/* ---- URL text ---- */

static void wipe_done(struct buf *b)
{
    if (b->p)
        explicit_bzero(b->p, b->cap);
    buf_done(b);
}

/* ---- credentials ---- */

void credentials_done(struct credentials *c)
{
    for (size_t i = 0; i < c->tokens.n; i++) {
        free(c->tokens.v[i].alias);
        token_done(&c->tokens.v[i].token);
    }
    for (size_t i = 0; i < c->secrets.n; i++) {
        free(c->secrets.v[i].alias);
        wipe_free(c->secrets.v[i].p, c->secrets.v[i].len);
    }
    vec_done(&c->tokens);
    vec_done(&c->secrets);
}

/* Add a token. Takes t. */
static int add_token(struct credentials *c, struct span alias, struct token t)
{
    struct credentials_token entry = { span_dup(alias), t };
    if (entry.alias && vec_push(&c->tokens, entry) == 0)
        return 0;
    free(entry.alias);
    token_done(&entry.token);
    return -ENOMEM;
}

static int add_secret(struct credentials *c, struct span alias, struct span secret)
{
    struct credentials_secret entry = { span_dup(alias), span_dup(secret), secret.len };
    if (entry.alias && entry.p && vec_push(&c->secrets, entry) == 0)
        return 0;
    free(entry.alias);
    wipe_free(entry.p, entry.len);
    return -ENOMEM;
}

int credentials_add_token(struct credentials *c, const char *alias, const struct token *t)
{
    struct token copy;
    int rc = token_copy(t, &copy);
    return rc < 0 ? rc : add_token(c, span_of(alias), copy);
}

int credentials_add_secret(struct credentials *c, const char *alias, struct span secret)
{
    return add_secret(c, span_of(alias), secret.p ? secret : SPAN(""));
}

const struct token *credentials_find(const struct credentials *c, const char *kind)
{
    for (size_t i = 0; i < c->tokens.n; i++)
        if (str_eq(c->tokens.v[i].token.kind, kind))
            return &c->tokens.v[i].token;
    return NULL;
}

struct span credentials_secret(const struct credentials *c, const char *alias)
{
    for (size_t i = 0; i < c->secrets.n; i++)
        if (str_eq(c->secrets.v[i].alias, alias))
            return span_mem(c->secrets.v[i].p, c->secrets.v[i].len);
    return (struct span){ 0 };
}

static int bad_storage(struct err *e, const struct writable *r, const unsigned char *start)
{
    return err_set(e, EINVAL,
                   "the token storage cannot be read: it is cut off or damaged near byte %zu",
                   (size_t)(r->p - start));
}

static int64_t count_of(struct writable *r)
{
    int64_t n = writable_vlong(r);
    if (n < 0 || n > CREDENTIALS_ENTRIES_MAX)
        r->bad = true;
    return r->bad ? 0 : n;
}

static int read_v0(struct writable *r, struct credentials *c)
{
    int rc = 0;
    for (int64_t n = count_of(r); n > 0 && rc == 0 && !r->bad; n--) {
        struct span alias = text_of(r);
        struct token t;
        rc = token_read(r, &t);
        if (rc == 0)
            rc = add_token(c, alias, t);
    }
    for (int64_t n = rc == 0 ? count_of(r) : 0; n > 0 && rc == 0 && !r->bad; n--) {
        struct span alias = text_of(r);
        struct span secret = writable_bytes(r, TOKEN_BYTES_MAX);
        if (!r->bad)
            rc = add_secret(c, alias, secret);
    }
    return rc < 0 ? rc : r->bad ? -EINVAL : 0;
}

static int take_v1(const Hadoop__Credentials *m, struct credentials *c)
{
    int rc = 0;
    if (m->n_tokens > CREDENTIALS_ENTRIES_MAX || m->n_secrets > CREDENTIALS_ENTRIES_MAX)
        return -EINVAL;
    for (size_t i = 0; i < m->n_tokens && rc == 0; i++) {
        struct token t;
        if (!m->tokens[i]->token)
            return -EINVAL;
        rc = token_from_msg(m->tokens[i]->token, &t);
        if (rc == 0)
            rc = add_token(c, span_of(m->tokens[i]->alias), t);
    }
    for (size_t i = 0; i < m->n_secrets && rc == 0; i++) {
        const Hadoop__CredentialsEntry *s = m->secrets[i];
        rc = add_secret(c, span_of(s->alias),
                        s->has_secret && s->secret.data ? span_mem(s->secret.data, s->secret.len)
                                                        : SPAN(""));
    }
    return rc;
}

/* Read a delimited Credentials message, with nothing after it. */
static int read_v1(struct writable *r, struct credentials *c)
{
    uint64_t len = 0;
    for (unsigned shift = 0;; shift += 7) {
        if (r->p == r->end || shift > 28)
            return -EINVAL;
        unsigned char byte = *r->p++;
        len |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            break;
    }
    if (len != (uint64_t)(r->end - r->p))
        return -EINVAL;
    Hadoop__Credentials *m = (Hadoop__Credentials *)rpc_unpack(&hadoop__credentials__descriptor,
                                                               span_mem(r->p, (size_t)len));
    if (!m)
        return -EINVAL;
    int rc = take_v1(m, c);
    hadoop__credentials__free_unpacked(m, NULL);
    return rc;
}

int credentials_read(struct span text, struct credentials *out, struct err *e)
{
    static const char magic[] = "HDTS";
    if (text.len > CREDENTIALS_MAX)
        return err_set(e, EINVAL, "the token storage cannot be read: larger than %d MiB",
                       CREDENTIALS_MAX >> 20);
    if (text.len < 5 || memcmp(text.p, magic, 4) != 0)
        return err_set(e, EINVAL, "the token storage cannot be read: it does not begin with HDTS");
    const unsigned char *start = (const unsigned char *)text.p;
    struct writable r = { start + 5, start + text.len, false };
    AUTO(credentials_done) struct credentials c = { 0 };
    int rc;
    if (start[4] == 0)
        rc = read_v0(&r, &c);
    else if (start[4] == 1)
        rc = read_v1(&r, &c);
    else
        return err_set(e, EINVAL, "the token storage cannot be read: version %d is not known here",
                       start[4]);
    if (rc == -ENOMEM)
        return err_set(e, ENOMEM, "the token storage cannot be read: %m");
    if (rc < 0)
        return bad_storage(e, &r, start);
    *out = c;
    c = (struct credentials){ 0 };
    return 0;
}

int credentials_read_file(const char *path, struct credentials *out, struct err *e)
{
    AUTO(wipe_done) struct buf text = { .max = CREDENTIALS_MAX };
    int rc = fs_read(AT_FDCWD, path, &text, e);
    if (rc < 0)
        return rc;
    rc = credentials_read(buf_span(&text), out, e);
    return rc < 0 ? err_wrap(e, rc, "'%s'", path) : 0;
}

int credentials_write(const struct credentials *c, struct buf *out)
{
    static const char head[] = "HDTS"; /* its terminating NUL is the version byte 0 */
    (void)buf_add(out, head, sizeof head);
    (void)writable_put_vlong(out, (int64_t)c->tokens.n);
    for (size_t i = 0; i < c->tokens.n; i++) {
        (void)writable_put_bytes(out, span_of(c->tokens.v[i].alias));
        token_write(&c->tokens.v[i].token, out);
    }
    int rc = writable_put_vlong(out, (int64_t)c->secrets.n);
    for (size_t i = 0; i < c->secrets.n; i++) {
        (void)writable_put_bytes(out, span_of(c->secrets.v[i].alias));
        rc = writable_put_bytes(out, span_mem(c->secrets.v[i].p, c->secrets.v[i].len));
    }
    return rc;
}
