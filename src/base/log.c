/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json_text.h"

enum {
    LINE_MAX_BYTES = 8192, /* fields that do not fit into a line are left out */
    VALUE_MAX = 2048,      /* bytes of one value; a longer value is cut with "..." */
    /* Names with the same hash share a slot and push each other out of it. Then their counts start
     * again, so the logger prints more lines, never fewer. */
    FLOOD_SLOTS = 64,
    NAME_MAX_BYTES = 48, /* bytes of a name in a flood slot; only log.hidden shows the cut name */
};

/* How often an event was logged in one second. */
struct flood {
    char name[NAME_MAX_BYTES];
    int64_t second;  /* the counted second, in s of the monotonic clock */
    unsigned count;  /* lines printed in that second */
    unsigned hidden; /* lines not printed in that second */
};

static struct {
    int fd;
    enum log_level level;
    bool json;
    atomic_flag busy; /* a try-lock for flood and any_hidden: threads of the thread pool log, too */
    bool any_hidden;
    struct flood flood[FLOOD_SLOTS];
} logger = { .fd = 2, .level = LOG_INFO, .busy = ATOMIC_FLAG_INIT };

void log_setup(int fd, enum log_level level, bool json)
{
    logger.fd = fd;
    logger.level = level;
    logger.json = json;
}

bool log_enabled(enum log_level level)
{
    return level >= logger.level;
}

struct line {
    char p[LINE_MAX_BYTES];
    size_t len;
};

/* Append n bytes, or as many as fit. One byte always stays free for the newline. */
static void put(struct line *l, const char *s, size_t n)
{
    size_t room = sizeof l->p - 1 - l->len;
    if (n > room)
        n = room;
    memcpy(l->p + l->len, s, n);
    l->len += n;
}

static void puts_(struct line *l, const char *s)
{
    put(l, s, strlen(s));
}

static void put_int(struct line *l, int64_t v)
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)v);
    put(l, digits, (size_t)n);
}

/* Append one valid byte of a value in quotes. */
static void put_byte(struct line *l, char c, bool json)
{
    char code[JSON_ESCAPE_MAX];
    size_t n = json_escape((unsigned char)c, code);
    if (n > 2 && !json)
        n = (size_t)snprintf(code, sizeof code, "\\x%02x", (unsigned char)c);
    put(l, n ? code : &c, n ? n : 1);
}

/* Append a value in quotes. Control characters are escaped. A byte that is not valid UTF-8 becomes
 * \xNN in text and '?' in JSON. */
static void put_quoted(struct line *l, const char *s, bool json)
{
    size_t left = strlen(s), bad, cut = left > VALUE_MAX ? VALUE_MAX : left;
    bool shortened = cut < left;
    left = cut;
    put(l, "\"", 1);
    while (left > 0) {
        if (span_utf8(span_mem(s, left), &bad))
            bad = left;
        for (; bad > 0 && left > 0; s++, left--, bad--)
            put_byte(l, *s, json);
        if (left > 0) {
            char code[8];
            if (json || shortened)
                put(l, "?", 1);
            else
                put(l, code, (size_t)snprintf(code, sizeof code, "\\x%02x", (unsigned char)*s));
            s++;
            left--;
        }
    }
    puts_(l, shortened ? "...\"" : "\"");
}

/* Can a line of text show the value s without quotes? */
static bool is_unquoted(const char *s)
{
    size_t len = 0;
    for (; s[len]; len++) {
        unsigned char c = (unsigned char)s[len];
        if (c <= 0x20 || c == 0x7f || c == '"' || c == '=' || c == '\\')
            return false;
    }
    return len > 0 && len <= VALUE_MAX && span_utf8(span_mem(s, len), NULL);
}

static void put_field(struct line *l, const struct log_field *f, bool json)
{
    if (json) {
        put(l, ",", 1);
        put_quoted(l, f->key, true);
        put(l, ":", 1);
    } else {
        put(l, " ", 1);
        puts_(l, f->key);
        put(l, "=", 1);
    }
    if (f->type == LOG_F_INT)
        put_int(l, f->num);
    else if (!f->str)
        puts_(l, json ? "null" : "-");
    else if (json || !is_unquoted(f->str))
        put_quoted(l, f->str, json);
    else
        puts_(l, f->str);
}

static void write_line(enum log_level level, const char *name, const struct log_field *f)
{
    static const char *const names[] = {
        [LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error"
    };
    const char *word = level >= LOG_DEBUG && level <= LOG_ERROR ? names[level] : "error";
    bool json = logger.json;
    char when[32];
    struct line l;
    l.len = 0;
    (void)clock_iso8601(clock_wall_ms(), when, sizeof when);
    if (json) {
        puts_(&l, "{\"time\":");
        put_quoted(&l, when, true);
        puts_(&l, ",\"level\":");
        put_quoted(&l, word, true);
        puts_(&l, ",\"event\":");
        put_quoted(&l, name, true);
    } else {
        puts_(&l, when);
        put(&l, " ", 1);
        puts_(&l, word);
        put(&l, "  ", 6 - strlen(word));
        puts_(&l, name);
    }
    for (; f->type != LOG_F_END; f++) {
        size_t before = l.len;
        put_field(&l, f, json);
        if (l.len >= sizeof l.p - 2) { /* no room: leave out the whole field, or JSON would break */
            l.len = before;
            break;
        }
    }
    if (json)
        put(&l, "}", 1);
    l.p[l.len++] = '\n';
    ssize_t rc;
    do {
        rc = write(logger.fd, l.p, l.len);
    } while (rc == -1 && errno == EINTR);
    /* If write() fails, the line is lost: there is no other place to report it. */
}

static struct flood *flood_slot(const char *name)
{
    unsigned h = 5381;
    for (const char *s = name; *s; s++)
        h = h * 33 + (unsigned char)*s;
    return &logger.flood[h % FLOOD_SLOTS];
}

static void flood_report(struct flood *x)
{
    unsigned hidden = x->hidden;
    x->hidden = 0;
    if (hidden > 0)
        write_line(LOG_WARN, "log.hidden",
                   (const struct log_field[]){
                       f_str("event", x->name), f_int("count", hidden), { 0, LOG_F_END, 0, 0 } });
}

/* Count the event. true: it was logged too often in this second and must not be printed. */
static bool count_and_check_flood(const char *name)
{
    if (atomic_flag_test_and_set(&logger.busy))
        return false; /* another thread is counting; one line too many does no harm */
    int64_t second = clock_mono_ms() / 1000;
    if (logger.any_hidden) {
        logger.any_hidden = false;
        for (size_t i = 0; i < FLOOD_SLOTS; i++) {
            if (logger.flood[i].hidden > 0 && logger.flood[i].second == second)
                logger.any_hidden = true;
            else
                flood_report(&logger.flood[i]);
        }
    }
    struct flood *x = flood_slot(name);
    if (x->second != second || strncmp(x->name, name, sizeof x->name - 1) != 0) {
        flood_report(x); /* x may count another name with the same hash: report it before reuse */
        (void)snprintf(x->name, sizeof x->name, "%s", name);
        x->second = second;
        x->count = 0;
    }
    bool hide = x->count >= LOG_BURST;
    if (hide) {
        x->hidden++;
        logger.any_hidden = true;
    } else {
        x->count++;
    }
    atomic_flag_clear(&logger.busy);
    return hide;
}

void log_fields(enum log_level level, const char *name, const struct log_field *f)
{
    int saved = errno;
    if (log_enabled(level) && !count_and_check_flood(name))
        write_line(level, name, f);
    errno = saved;
}

void log_err(enum log_level level, const char *name, const struct err *e)
{
    if (e->hint[0])
        log_event(level, name, f_str("error", e->msg), f_str("hint", e->hint));
    else
        log_event(level, name, f_str("error", e->msg));
}
