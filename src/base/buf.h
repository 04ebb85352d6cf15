/*
 * struct span: borrowed bytes. struct buf: owned, growing bytes born with a maximum.
 *
 * A buf always has a NUL after its last byte once anything was added, so `buf_cstr()` is free. An
 * append that would pass `max` or that finds no memory sets `failed`, leaves the content as it was
 * and makes all later appends fail: append freely, then look at the result of the last one or at
 * `failed` once.
 */
#ifndef TONY_BASE_BUF_H
#define TONY_BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

struct err;

struct span {
    const char *p;
    size_t len;
};

#define SPAN(lit) ((struct span){ "" lit, sizeof(lit) - 1 })
static inline struct span span_of(const char *s)
{
    return (struct span){ s, s ? strlen(s) : 0 };
}
static inline struct span span_mem(const void *p, size_t len)
{
    return (struct span){ p, len };
}
bool span_eq(struct span a, struct span b);
bool span_eqs(struct span a, const char *s);
bool span_starts(struct span a, const char *prefix);
bool span_has(struct span a, const char *text); /* anywhere */
struct span span_trim(struct span a); /* ASCII white space at both ends */
/* The next field; false when *rest is used up (its p is NULL then). "a,,b," has the fields a, "", b
 * and ""; "" has one, "". */
bool span_split(struct span *rest, char sep, struct span *out);
char *span_dup(struct span a);                      /* NUL-terminated copy; NULL = no memory */
bool span_utf8(struct span a, size_t *out_bad_at);  /* valid UTF-8 without NUL? */
unsigned span_line_at(struct span text, size_t at); /* counted from 1 */
/* Anything in it that a terminal could take for a command: C0, DEL, or C1 in UTF-8? */
bool span_has_control(struct span a);

struct buf {
    char *p;
    size_t len;
    size_t cap;
    size_t max; /* 0 = BUF_MAX_DEFAULT */
    bool failed;
};

#define BUF_MAX_DEFAULT ((size_t)64 << 20) /* nothing we build in memory is meant to be larger */

void buf_done(struct buf *b);  /* frees; b is as new with its max kept */
void buf_clear(struct buf *b); /* keeps the memory, forgets content and failure */
int buf_add(struct buf *b, const void *p, size_t len); /* 0, -ENOMEM or -EMSGSIZE */
int buf_adds(struct buf *b, const char *s);
int buf_addc(struct buf *b, char c);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_vaddf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
void *buf_reserve(struct buf *b,
                  size_t len); /* room for len more bytes at the end, or NULL; then buf_commit() */
void buf_commit(struct buf *b, size_t len);
void buf_consume(struct buf *b, size_t len); /* drops the first len bytes */
const char *buf_cstr(const struct buf *b);   /* "" when empty; borrowed */
char *buf_steal(struct buf *b); /* the bytes, NUL-terminated, now the caller's; NULL = no memory */
static inline struct span buf_span(const struct buf *b)
{
    return (struct span){ b->p, b->len };
}

/* Read fd to its end, or refuse with -EFBIG when it holds more than max. */
int buf_fill_fd(struct buf *b, int fd, struct err *e);

#endif
