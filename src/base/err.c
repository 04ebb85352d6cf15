#include "base/err.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Where a text of n bytes may be cut without tearing a UTF-8 sequence apart. */
static size_t cut_at(const char *s, size_t n)
{
    while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80)
        n--;
    return n;
}

/* Names and values in a sentence come from users' files: nothing in them may break the line or
 * steer a terminal. */
static void one_line(char *s)
{
    for (; *s; s++) {
        if (*s == '\n' || *s == '\t' || *s == '\r')
            *s = ' ';
        else if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
    }
}

/* out may be what the arguments point into, so the text is made elsewhere first. */
static void put(char *out, size_t size, int num, const char *fmt, va_list ap)
    __attribute__((format(printf, 4, 0)));
static void put(char *out, size_t size, int num, const char *fmt, va_list ap)
{
    char text[1024];
    errno = num; /* for %m */
    int len = vsnprintf(text, sizeof text, fmt, ap);
    if (len < 0) {
        text[0] = '\0';
        len = 0;
    }
    if ((size_t)len >= size) {
        size_t keep = cut_at(text, size - sizeof "...");
        memcpy(text + keep, "...", sizeof "...");
    }
    one_line(text);
    (void)snprintf(out, size, "%s", text);
}

int err_vset(struct err *e, int num, const char *fmt, va_list ap)
{
    if (num <= 0)
        num = EIO;
    if (e) {
        put(e->msg, sizeof e->msg, num, fmt, ap);
        e->num = num;
        e->hint[0] = '\0';
    }
    errno = num; /* err_hint() finds it when there is no object */
    return -num;
}

int err_set(struct err *e, int num, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = err_vset(e, num, fmt, ap);
    va_end(ap);
    return rc;
}

int err_wrap(struct err *e, int rc, const char *fmt, ...)
{
    if (!e)
        return rc;
    char context[sizeof e->msg], text[2 * sizeof e->msg];
    va_list ap;
    va_start(ap, fmt);
    put(context, sizeof context, rc < 0 ? -rc : EIO, fmt, ap);
    va_end(ap);
    if (e->num == 0)
        e->num = rc < 0 ? -rc : EIO;
    if (e->msg[0] == '\0')
        (void)snprintf(e->msg, sizeof e->msg, "%s", strerror(e->num));
    int len = snprintf(text, sizeof text, "%s: %s", context, e->msg);
    if (len >= (int)sizeof e->msg)
        memcpy(text + cut_at(text, sizeof e->msg - sizeof "..."), "...", sizeof "...");
    memcpy(e->msg, text, strlen(text) + 1);
    return rc;
}

int err_hint(struct err *e, const char *fmt, ...)
{
    if (!e)
        return errno > 0 ? -errno : -EINVAL;
    va_list ap;
    va_start(ap, fmt);
    put(e->hint, sizeof e->hint, e->num, fmt, ap);
    va_end(ap);
    return -e->num;
}

void err_clear(struct err *e)
{
    if (!e)
        return;
    e->num = 0;
    e->msg[0] = '\0';
    e->hint[0] = '\0';
}
