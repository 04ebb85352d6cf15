/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of the store, and their commands. */
#include "rendezvous/tcpstore.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/util.h"
#include "rendezvous/tcpstore_int.h"

enum { NUMBER_MAX = 24, WATCH_REGISTERED = 3, WATCHES_MAX = 1024 /* watches of one client */ };

struct tcpstore *tcpstore_new(size_t max_bytes, uint64_t seed)
{
    struct tcpstore *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->max_bytes = max_bytes;
    s->seed = seed | 1;
    return s;
}

void tcpstore_free(struct tcpstore *s)
{
    if (!s)
        return;
    while (s->clients)
        tcpstore_leave(s->clients);
    keys_done(s);
    free(s);
}

size_t tcpstore_used(const struct tcpstore *s)
{
    return s->used;
}

size_t tcpstore_n_clients(const struct tcpstore *s)
{
    return s->n_clients;
}

struct tcpstore_client *tcpstore_any(const struct tcpstore *s)
{
    return s->clients;
}

/* ---- clients ---- */

struct tcpstore_client *tcpstore_join(struct tcpstore *s, void *user)
{
    struct tcpstore_client *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->s = s;
    c->user = user;
    c->in.max = TCPSTORE_MESSAGE_MAX + TCPSTORE_OUT_PAUSE;
    c->out.max = TCPSTORE_MESSAGE_MAX + TCPSTORE_OUT_PAUSE;
    c->next = s->clients;
    if (c->next)
        c->next->prev = c;
    s->clients = c;
    s->n_clients++;
    return c;
}

static void ready_remove(struct tcpstore_client *c)
{
    struct tcpstore *s = c->s;
    if (!c->is_ready)
        return;
    *(c->ready_prev ? &c->ready_prev->ready_next : &s->ready) = c->ready_next;
    *(c->ready_next ? &c->ready_next->ready_prev : &s->ready_tail) = c->ready_prev;
    c->ready_prev = c->ready_next = NULL;
    c->is_ready = false;
}

static void ready_add(struct tcpstore_client *c)
{
    struct tcpstore *s = c->s;
    if (c->is_ready)
        return;
    c->is_ready = true;
    c->ready_prev = s->ready_tail;
    *(s->ready_tail ? &s->ready_tail->ready_next : &s->ready) = c;
    s->ready_tail = c;
}

struct tcpstore_client *tcpstore_ready(struct tcpstore *s)
{
    struct tcpstore_client *c = s->ready;
    if (c)
        ready_remove(c);
    return c;
}

void tcpstore_leave(struct tcpstore_client *c)
{
    if (!c)
        return;
    struct tcpstore *s = c->s;
    wait_end(c);
    watch_end(c);
    ready_remove(c);
    *(c->prev ? &c->prev->next : &s->clients) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    s->used -= c->in.cap + c->out.cap;
    s->n_clients--;
    buf_done(&c->in);
    buf_done(&c->out);
    free(c);
}

void *tcpstore_user(const struct tcpstore_client *c)
{
    return c->user;
}

bool tcpstore_broken(const struct tcpstore_client *c)
{
    return c->broken;
}

/* ---- output to clients ---- */

/* Append to a buffer of a client, and count the memory in s->used, which has a limit. */
static int add_counted(struct tcpstore *s, struct buf *b, const void *p, size_t n, struct err *e)
{
    size_t cap = b->cap;
    int rc = n > b->cap - b->len ? store_room(s, n, e) : 0;
    if (rc == 0 && buf_add(b, p, n) < 0)
        rc = err_set(e, ENOBUFS,
                     "a client of torch's store does not read: more than %d bytes wait for it",
                     TCPSTORE_MESSAGE_MAX);
    s->used += b->cap - cap;
    return rc;
}

static void free_counted(struct tcpstore *s, struct buf *b)
{
    s->used -= b->cap;
    buf_done(b);
}

static void answer_bytes(struct tcpstore_client *c, const void *p, size_t n)
{
    if (!c->broken && n > 0 && add_counted(c->s, &c->out, p, n, NULL) < 0)
        c->broken = true;
    ready_add(c);
}

void answer_u8(struct tcpstore_client *c, uint8_t v)
{
    answer_bytes(c, &v, sizeof v);
}

static void answer_u64(struct tcpstore_client *c, uint64_t v)
{
    v = htole64(v);
    answer_bytes(c, &v, sizeof v);
}

void answer_span(struct tcpstore_client *c, struct span v)
{
    answer_u64(c, v.len);
    answer_bytes(c, v.p, v.len);
}

struct span tcpstore_out(const struct tcpstore_client *c)
{
    return span_mem(c->out.p ? c->out.p + c->out_at : "", c->out.len - c->out_at);
}

void tcpstore_sent(struct tcpstore_client *c, size_t n)
{
    c->out_at += n;
    if (c->out_at < c->out.len)
        return;
    c->out_at = 0;
    if (c->out.cap > 4096)
        free_counted(c->s, &c->out);
    else
        buf_clear(&c->out);
}

bool tcpstore_paused(const struct tcpstore_client *c)
{
    return c->out.len - c->out_at > TCPSTORE_OUT_PAUSE;
}

/* ---- the commands ---- */

/* Take a field of a command. scan_command() has checked all lengths. */
static struct span take(const char **p)
{
    size_t len = (size_t)load_u64(*p);
    struct span v = span_mem(*p + 8, len);
    *p += 8 + len;
    return v;
}

static uint64_t take_u64(const char **p)
{
    uint64_t v = load_u64(*p);
    *p += 8;
    return v;
}

/* Parse a number as torch does: leading blanks, and text after the number, are ignored. */
static int number_of(const struct key *k, int64_t *out, struct err *e)
{
    char text[NUMBER_MAX], *end;
    size_t len = MIN(k->len, sizeof text - 1);
    if (len > 0)
        memcpy(text, k->value, len);
    text[len] = '\0';
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || errno)
        return err_set(e, EINVAL, "a client of torch's store adds to a value that is not a number");
    *out = v;
    return 0;
}

static int add_number(struct tcpstore_client *c, struct span name, int64_t by, int64_t *out,
                      struct err *e)
{
    struct key *k = key_get(c->s, name, e);
    char text[NUMBER_MAX];
    int64_t v = 0;
    if (!k)
        return -ENOMEM;
    int rc = k->present ? number_of(k, &v, e) : 0;
    if (rc == 0 && __builtin_add_overflow(v, by, &v))
        rc = err_set(e, ERANGE, "a number of torch's store would need more than 64 bits");
    int len = snprintf(text, sizeof text, "%lld", (long long)v);
    if (rc == 0)
        rc = key_set(c->s, k, span_mem(text, (size_t)len), e);
    if (rc < 0)
        key_tidy(c->s, k);
    *out = v;
    return rc;
}

static int do_add(struct tcpstore_client *c, const char *p, struct err *e)
{
    struct span name = take(&p);
    int64_t v;
    int rc = add_number(c, name, (int64_t)take_u64(&p), &v, e);
    if (rc == 0)
        answer_u64(c, (uint64_t)v);
    return rc;
}

static int set_one(struct tcpstore *s, struct span name, struct span value,
                   int (*fn)(struct tcpstore *s, struct key *k, struct span value, struct err *e),
                   struct err *e)
{
    struct key *k = key_get(s, name, e);
    int rc = k ? fn(s, k, value, e) : -ENOMEM;
    if (k && rc < 0)
        key_tidy(s, k);
    return rc;
}

static int do_set(struct tcpstore_client *c, const char *p, struct err *e)
{
    struct span name = take(&p);
    return set_one(c->s, name, take(&p), key_set, e);
}

static int do_append(struct tcpstore_client *c, const char *p, struct err *e)
{
    struct span name = take(&p);
    return set_one(c->s, name, take(&p), key_append, e);
}

static int do_push(struct tcpstore_client *c, const char *p, struct err *e)
{
    struct span name = take(&p);
    return set_one(c->s, name, take(&p), key_push, e);
}

static int do_set_all(struct tcpstore_client *c, const char *p, struct err *e)
{
    int rc = 0;
    for (uint64_t n = take_u64(&p); n > 0 && rc == 0; n--) {
        struct span name = take(&p);
        rc = set_one(c->s, name, take(&p), key_set, e);
    }
    return rc;
}

/* Set the key if its value is `expected`, and answer with the value. These are torch's rules: a
 * missing key matches an empty `expected`; if it does not match, the answer is `expected`. */
static int do_compare_set(struct tcpstore_client *c, const char *p, struct err *e)
{
    struct span name = take(&p), expected = take(&p), desired = take(&p);
    struct key *k = key_find(c->s, name);
    bool there = k && k->present;
    int rc = 0;
    if (there ? span_eq(span_mem(k->value, k->len), expected) : expected.len == 0)
        rc = set_one(c->s, name, desired, key_set, e);
    else if (there)
        desired = span_mem(k->value, k->len);
    else
        desired = expected;
    if (rc == 0)
        answer_span(c, desired);
    return rc;
}

static void answer_value(struct tcpstore_client *c, struct span name)
{
    struct key *k = key_find(c->s, name);
    answer_span(c, k && k->present ? span_mem(k->value, k->len) : span_mem("", 0));
}

static void do_get_all(struct tcpstore_client *c, const char *p)
{
    for (uint64_t n = take_u64(&p); n > 0 && !c->broken; n--)
        answer_value(c, take(&p));
}

static void do_check(struct tcpstore_client *c, const char *p)
{
    bool ready = true;
    for (uint64_t n = take_u64(&p); n > 0; n--)
        ready = key_ready(key_find(c->s, take(&p))) && ready;
    answer_u8(c, !ready);
}

static int do_wait(struct tcpstore_client *c, const char *p, struct err *e)
{
    uint64_t n = take_u64(&p);
    struct span one, *names = n > 1 ? calloc(n, sizeof *names) : &one;
    if (!names)
        return err_set(e, ENOMEM, "no memory for a client of torch's store that waits");
    for (uint64_t i = 0; i < n; i++)
        names[i] = take(&p);
    ssize_t missing = wait_begin(c, names, n, e);
    if (n > 1)
        free(names);
    if (missing == 0)
        answer_u8(c, WAIT_OVER);
    return missing < 0 ? (int)missing : 0;
}

static int do_barrier(struct tcpstore_client *c, const char *p, struct err *e)
{
    struct span name = take(&p);
    int64_t size = (int64_t)take_u64(&p), come = 0;
    struct key *k = key_get(c->s, name, e);
    char text[NUMBER_MAX];
    if (!k)
        return -ENOMEM;
    int rc = k->present ? number_of(k, &come, e) : 0;
    if (rc < 0)
        return rc;
    come++;
    int len = snprintf(text, sizeof text, "%lld", (long long)come);
    if (come >= size) {
        rc = key_set(c->s, k, span_mem(text, (size_t)len), e); /* wakes the waiting clients */
        if (rc == 0)
            answer_u8(c, WAIT_OVER);
        return rc;
    }
    /* Clients that wait for this key must not be woken before the last one has come. */
    struct wait_list others = k->waits;
    k->waits = (struct wait_list){ 0 };
    rc = key_set(c->s, k, span_mem(text, (size_t)len), e);
    k->waits = others;
    if (rc == 0)
        rc = wait_change(c, k, e);
    if (rc < 0)
        key_tidy(c->s, k);
    return rc;
}

static int do_pop(struct tcpstore_client *c, const char *p)
{
    struct key *k = key_find(c->s, take(&p));
    answer_u64(c, k ? k->n_queue : 0);
    struct item *i = k ? key_pop(c->s, k) : NULL;
    if (!i)
        return 0;
    answer_span(c, span_mem(i->bytes, i->len));
    free(i);
    key_tidy(c->s, k);
    return 0;
}

static int do_watch(struct tcpstore_client *c, const char *p, struct err *e)
{
    struct key *k = c->watches.n < WATCHES_MAX ? key_get(c->s, take(&p), e) : NULL;
    if (!k || watch_begin(c, k) < 0) {
        if (k)
            key_tidy(c->s, k);
        return err_set(e, ENOBUFS, "a client of torch's store watches too many keys");
    }
    answer_u8(c, WATCH_REGISTERED);
    return 0;
}

static void do_list_keys(struct tcpstore_client *c)
{
    const struct tcpstore *s = c->s;
    answer_u64(c, s->n_present);
    for (size_t i = 0; i < s->n_slots && !c->broken; i++)
        for (const struct key *k = s->slots[i]; k; k = k->next)
            if (k->present)
                answer_span(c, span_mem(k->name, k->name_len));
}

/* p: the bytes after the number of the command. */
static int carry_out(struct tcpstore_client *c, const char *p, struct err *e)
{
    const struct key *k;
    enum op op = c->scan.op;
    /* A new command ends the client's wait: a client has at most one command under way. */
    if (c->waits)
        wait_end(c);
    switch (op) {
    case OP_SET:
        return do_set(c, p, e);
    case OP_COMPARE_SET:
        return do_compare_set(c, p, e);
    case OP_GET:
        answer_value(c, take(&p));
        return 0;
    case OP_ADD:
        return do_add(c, p, e);
    case OP_CHECK:
        do_check(c, p);
        return 0;
    case OP_WAIT:
        return do_wait(c, p, e);
    case OP_N_KEYS:
        answer_u64(c, c->s->n_present);
        return 0;
    case OP_WATCH:
        return do_watch(c, p, e);
    case OP_DELETE:
        answer_u64(c, key_delete(c->s, take(&p)));
        return 0;
    case OP_APPEND:
        return do_append(c, p, e);
    case OP_GET_ALL:
        do_get_all(c, p);
        return 0;
    case OP_SET_ALL:
        return do_set_all(c, p, e);
    case OP_CANCEL_WAIT:
        answer_u8(c, WAIT_CANCELLED);
        return 0;
    case OP_PING:
        answer_bytes(c, p, 4);
        return 0;
    case OP_PUSH:
        return do_push(c, p, e);
    case OP_POP:
        return do_pop(c, p);
    case OP_QUEUE_LEN:
        k = key_find(c->s, take(&p));
        answer_u64(c, k ? k->n_queue : 0);
        return 0;
    case OP_LIST_KEYS:
        do_list_keys(c);
        return 0;
    case OP_BARRIER:
        return do_barrier(c, p, e);
    case OP_VALIDATE:
    case OP_NONE:
    case OP_COUNT:
        break;
    }
    return 0;
}

/* Carry out the complete commands in p. Returns how many bytes they take, or -errno. */
static ssize_t consume(struct tcpstore_client *c, const char *p, size_t n, bool more, struct err *e)
{
    size_t at = 0;
    while (at < n && !tcpstore_paused(c)) {
        ssize_t len = scan_command(c, p + at, n - at, more, e);
        int rc = len > 0 ? carry_out(c, p + at + 1, e) : (int)len;
        if (rc == 0 && c->broken)
            rc = err_set(e, ENOBUFS, "a client of torch's store does not read its answers");
        if (rc < 0)
            return rc;
        if (len == 0)
            break;
        scan_done(c);
        c->has_sent_command = true;
        at += (size_t)len;
    }
    return (ssize_t)at;
}

int tcpstore_feed(struct tcpstore_client *c, const char *p, size_t n, bool more, struct err *e)
{
    int rc = 0;
    /* The usual case: no bytes are left from before, so nothing is copied. */
    if (c->in.len == 0 && n > 0) {
        ssize_t done = consume(c, p, n, more, e);
        if (done < 0)
            return (int)done;
        return (size_t)done == n ? 0 : add_counted(c->s, &c->in, p + done, n - (size_t)done, e);
    }
    if (n > 0)
        rc = add_counted(c->s, &c->in, p, n, e);
    ssize_t done = rc < 0 ? rc : consume(c, c->in.p, c->in.len, more, e);
    if (done < 0)
        return (int)done;
    if ((size_t)done == c->in.len)
        free_counted(c->s, &c->in);
    else
        buf_consume(&c->in, (size_t)done);
    return 0;
}
