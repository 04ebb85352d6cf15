/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct span: borrowed bytes. struct buf: owned bytes that grow up to a maximum.
 *
 * Once anything has been added, a buf has a NUL after its last byte, so buf_cstr() copies nothing.
 *
 * If an append would exceed `max`, or if there is no memory, the append sets `failed` and leaves
 * the content unchanged. All later appends fail too. So a caller may append many times and then
 * check once: the result of the last append, or `failed`.
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
bool span_has(struct span a, const char *text); /* is text anywhere in a? */
struct span span_trim(struct span a);           /* a without ASCII white space at both ends */
/* Cut the next field off *rest. Returns false after the last field; rest->p is NULL then.
 * "a,,b," has the fields "a", "", "b" and ""; "" has one field, "". */
bool span_split(struct span *rest, char sep, struct span *out);
char *span_dup(struct span a); /* NUL-terminated copy, the caller frees it; NULL = no memory */
/* Is a valid UTF-8 without NUL? If not, *out_bad_at is the offset of the first bad byte (out_bad_at
 * may be NULL). */
bool span_utf8(struct span a, size_t *out_bad_at);
unsigned span_line_at(struct span text, size_t at); /* line number of offset at, counted from 1 */
/* Does a contain a character that a terminal could take for a command: C0, DEL, or C1 in UTF-8? */
bool span_has_control(struct span a);

struct buf {
    char *p;
    size_t len;
    size_t cap;
    size_t max; /* 0 = BUF_MAX_DEFAULT */
    bool failed;
};

#define BUF_MAX_DEFAULT ((size_t)64 << 20) /* 64 MiB: tony builds nothing larger in memory */

void buf_done(struct buf *b);  /* frees the bytes; b is empty and keeps its max */
void buf_clear(struct buf *b); /* keeps the memory; drops the content and resets `failed` */
/* All four append and return 0, -ENOMEM or -EMSGSIZE (more than max bytes). */
int buf_add(struct buf *b, const void *p, size_t len);
int buf_adds(struct buf *b, const char *s);
int buf_addc(struct buf *b, char c);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_vaddf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/* Make room for len more bytes at the end and return its address (NULL: no memory or more than max
 * bytes). The caller writes there and then calls buf_commit() with the number of bytes written. */
void *buf_reserve(struct buf *b, size_t len);
void buf_commit(struct buf *b, size_t len);
void buf_consume(struct buf *b, size_t len); /* drops the first len bytes */
const char *buf_cstr(const struct buf *b);   /* borrowed until b changes; "" when b is empty */
/* Hand over the bytes, NUL-terminated; the caller frees them. b becomes empty. NULL = no memory. */
char *buf_steal(struct buf *b);
static inline struct span buf_span(const struct buf *b)
{
    return (struct span){ b->p, b->len };
}

/* Append everything from fd's position to its end. -EFBIG: b would hold more than max bytes. */
int buf_fill_fd(struct buf *b, int fd, struct err *e);

#endif
