/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

static bool inside_sequence(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* Make s fit into size bytes. A sentence is too long mostly because of a path in its middle, and
 * the reason is at its end. So the middle is cut out, and "..." takes its place. Cuts lie between
 * UTF-8 characters. */
static void shorten(char *s, size_t size)
{
    size_t len = strlen(s);
    if (len < size)
        return;
    size_t tail = len - size / 3, head = size - sizeof "..." - size / 3;
    while (head > 0 && inside_sequence(s[head]))
        head--;
    while (inside_sequence(s[tail]))
        tail++;
    memcpy(s + head, "...", 3);
    memmove(s + head + 3, s + tail, len - tail + 1);
}

/* Format into out. An argument may point into out, so the text is made in another buffer first. */
static void put(char *out, size_t size, int num, const char *fmt, va_list ap)
    __attribute__((format(printf, 4, 0)));
static void put(char *out, size_t size, int num, const char *fmt, va_list ap)
{
    char text[5 << 10]; /* room for a path of PATH_MAX (4096) bytes and a sentence around it */
    errno = num;        /* vsnprintf() reads it for %m */
    if (vsnprintf(text, sizeof text, fmt, ap) < 0)
        text[0] = '\0';
    shorten(text, size);
    str_mask_controls(text); /* the text contains names and values from users' files */
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
    errno = num; /* if e is NULL, err_hint() takes the number from here */
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
    char context[sizeof e->msg], text[2 * sizeof e->msg + 2];
    va_list ap;
    va_start(ap, fmt);
    put(context, sizeof context, rc < 0 ? -rc : EIO, fmt, ap);
    va_end(ap);
    if (e->num == 0)
        e->num = rc < 0 ? -rc : EIO;
    if (e->msg[0] == '\0')
        (void)snprintf(e->msg, sizeof e->msg, "%s", strerror(e->num));
    (void)snprintf(text, sizeof text, "%s: %s", context, e->msg);
    shorten(text, sizeof e->msg);
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

const char *err_fork_cause(int num)
{
    return num == EAGAIN ? " (a limit on processes: ulimit -u)" : "";
}

void err_clear(struct err *e)
{
    if (!e)
        return;
    e->num = 0;
    e->msg[0] = '\0';
    e->hint[0] = '\0';
}
