/* SPDX-License-Identifier: Apache-2.0 */
/* The output of commands: errors, notes, JSON documents, tables and times. */
#include <errno.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"

int client_fail(int code, const struct err *e)
{
    AUTO(buf_done) struct buf text = { 0 };
    (void)buf_addf(&text, "tony: %s\n", e->msg[0] ? e->msg : "out of memory");
    if (e->hint[0])
        (void)buf_addf(&text, "  hint: %s\n", e->hint);
    else if (e->num == EMFILE)
        (void)buf_adds(&text, "  hint: raise the limit on open files (ulimit -n)\n");
    /* If stderr fails, there is nowhere to report it. */
    (void)fs_write_all(STDERR_FILENO, text.p, text.len);
    return code;
}

void client_note(const char *fmt, ...)
{
    AUTO(buf_done) struct buf raw = { 0 };
    AUTO(buf_done) struct buf text = { 0 };
    va_list ap;
    va_start(ap, fmt);
    (void)buf_vaddf(&raw, fmt, ap);
    va_end(ap);
    (void)buf_adds(&text, "tony: ");
    client_shown(&text, buf_span(&raw), false);
    (void)buf_addc(&text, '\n');
    /* Continue if the terminal is closed. */
    (void)fs_write_all(STDERR_FILENO, text.p, text.len);
}

/* ---- text of programs and of other users ---- */

/* Returns the end of the escape sequence that begins at p. *out_color: does the sequence only set
 * colours? */
static const char *skip_escape(const char *p, const char *end, bool *out_color)
{
    *out_color = false;
    if (++p == end)
        return p;
    if (*p == ']') { /* up to BEL or ESC \ */
        while (p < end && *p != '\a' && *p != '\033')
            p++;
        return p < end && *p == '\a' ? p + 1 : MIN(p + 2, end);
    }
    bool is_csi = *p == '[', plain = is_csi; /* plain: parameters as those of colours */
    /* 0x20 to 0x3f: parameters and intermediate bytes, as in ESC [ 3 1 m and ESC ( B */
    for (p += is_csi; p < end && *p >= 0x20 && *p < 0x40 && (is_csi || *p < 0x30); p++)
        plain = plain && ((*p >= '0' && *p <= '9') || *p == ';' || *p == ':');
    if (p == end || (unsigned char)*p < 0x20 || (unsigned char)*p >= 0x80)
        return p; /* a control character, or one that is not ASCII, ends the sequence */
    *out_color = plain && *p == 'm';
    return p + 1;
}

/* The length of the control character that begins at p; 0 = another character begins there. */
static size_t control_len(const char *p, const char *end)
{
    unsigned char c = (unsigned char)*p;
    if (c < 0x20 || c == 0x7f)
        return 1;
    bool is_c1 = c == 0xc2 && p + 1 < end && (unsigned char)p[1] >= 0x80 &&
                 (unsigned char)p[1] < 0xa0; /* in UTF-8: a terminal reads U+009B as "ESC [" */
    return is_c1 ? 2 : 0;
}

/* The length of the UTF-8 character that begins at p; 0 = no valid one does. */
static size_t utf8_len(const char *p, const char *end)
{
    unsigned char c = (unsigned char)*p;
    size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    return n <= (size_t)(end - p) && span_utf8(span_mem(p, n), NULL) ? n : 0;
}

void client_shown(struct buf *out, struct span text, bool colors)
{
    bool colored = false;
    for (const char *p = text.p, *end = text.p + text.len, *next; p < end; p = next) {
        size_t control = control_len(p, end), n = control ? control : utf8_len(p, end);
        bool is_color = false;
        next = p + MAX(n, (size_t)1);
        if (*p == '\033')
            next = skip_escape(p, end, &is_color);
        colored = colored || (is_color && colors);
        if (n == 0) /* two such bytes could become a control character without what is between */
            (void)buf_addc(out, '?');
        else if (!control || *p == '\t' || (is_color && colors))
            (void)buf_add(out, p, (size_t)(next - p));
    }
    if (colored)
        (void)buf_adds(out, "\033[0m");
}

static bool has_controls(struct span text)
{
    for (const char *p = text.p, *end = text.p + text.len; p < end; p++)
        if (control_len(p, end))
            return true;
    return false;
}

/* Is there text with control characters anywhere in the document? */
static bool doc_has_controls(const json_t *v)
{
    const char *key;
    json_t *member;
    size_t i;
    if (json_is_string(v))
        return has_controls(span_of(json_string_value(v)));
    json_object_foreach((json_t *)v, key, member)
    {
        if (doc_has_controls(member))
            return true;
    }
    json_array_foreach(v, i, member)
    {
        if (doc_has_controls(member))
            return true;
    }
    return false;
}

/* The end of a log has lines; in any other text a newline could feign a line of tony. */
static json_t *shown_string(const char *text, bool lines)
{
    AUTO(buf_done) struct buf out = { 0 };
    struct span rest = span_of(text), line;
    for (bool first = true; rest.len && span_split(&rest, '\n', &line); first = false) {
        if (!first)
            (void)buf_addc(&out, lines ? '\n' : ' ');
        client_shown(&out, line, false);
    }
    return out.failed ? NULL : json_string(out.len ? buf_cstr(&out) : "");
}

static json_t *shown_copy(const json_t *v, const char *name, bool lines)
{
    const char *key;
    json_t *member, *copy;
    size_t i;
    if (json_is_string(v))
        return shown_string(json_string_value(v), lines || str_eq(name, "stderr_tail"));
    if (!json_is_object(v) && !json_is_array(v))
        return json_incref((json_t *)v);
    copy = json_is_object(v) ? json_object() : json_array();
    json_object_foreach((json_t *)v, key, member)
    {
        (void)json_object_set_new(copy, key, shown_copy(member, key, lines));
    }
    json_array_foreach(v, i, member)
    {
        (void)json_array_append_new(copy, shown_copy(member, name, lines));
    }
    return copy;
}

json_t *doc_shown(const json_t *doc, bool lines)
{
    return doc_has_controls(doc) ? shown_copy(doc, NULL, lines) : json_incref((json_t *)doc);
}

/* ---- documents and tables ---- */

/* num: the error of the last write. A reader that has closed its end, as `head -1` does, has seen
 * enough: that is no failure. */
static int write_failed(int num)
{
    struct err e;
    if (num == EPIPE)
        return EXIT_DONE;
    (void)err_set(&e, num, "cannot write the result to standard output: %m");
    return client_fail(EXIT_CLUSTER, &e);
}

int client_flush_stdout(void)
{
    errno = 0;
    return fflush(stdout) == 0 && !ferror(stdout) ? EXIT_DONE : write_failed(errno ? errno : EIO);
}

/* A piece of a JSON text, which ends with a whole character. jansson leaves DEL and C1 as they are,
 * and a terminal obeys them. They can only be in strings, so they are escaped. */
static int put_json(const char *p, size_t n, void *arg)
{
    FILE *out = arg;
    const char *end = p + n, *from = p;
    for (; p < end; p++) {
        size_t control = *p == '\n' ? 0 : control_len(p, end); /* a newline is between members */
        if (!control)
            continue;
        (void)fwrite(from, 1, (size_t)(p - from), out);
        (void)fprintf(out, "\\u%04x", (unsigned char)p[control - 1]);
        from = p + control;
        p = from - 1;
    }
    (void)fwrite(from, 1, (size_t)(end - from), out);
    return ferror(out) ? -1 : 0;
}

int client_print_json_line(const json_t *doc)
{
    errno = 0;
    bool printed = json_dump_callback(doc, put_json, stdout, JSON_COMPACT) == 0 &&
                   fputc('\n', stdout) != EOF && fflush(stdout) == 0;
    return printed ? 0 : errno ? -errno : -ENOMEM;
}

int client_print_json(json_t *doc)
{
    errno = 0;
    bool printed =
        doc &&
        json_dump_callback(doc, put_json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) == 0 &&
        fputc('\n', stdout) != EOF;
    int num = errno ? errno : ENOMEM;
    json_decref(doc);
    return printed ? client_flush_stdout() : write_failed(num);
}

void table_add(struct table *t, ...)
{
    va_list ap;
    va_start(ap, t);
    for (size_t i = 0; i < t->n_cols; i++) {
        const char *cell = va_arg(ap, const char *);
        if (strv_push(&t->cells, cell && cell[0] ? cell : "-") == 0)
            str_mask_controls(t->cells.v[t->cells.n - 1]);
        /* out of memory: leave the row out */
    }
    va_end(ap);
}

/* Count the columns of a UTF-8 text on a terminal: one for each character. */
static size_t columns(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

void table_print(struct table *t)
{
    enum { COLS_MAX = 16 };
    size_t width[COLS_MAX] = { 0 };
    for (size_t i = 0; i < t->cells.n; i++)
        width[i % t->n_cols] = MAX(width[i % t->n_cols], columns(t->cells.v[i]));
    for (size_t i = 0; i < t->cells.n; i++) {
        size_t col = i % t->n_cols;
        const char *cell = t->cells.v[i];
        if (col + 1 == t->n_cols)
            (void)printf("%s\n", cell);
        else
            (void)printf("%s%*s  ", cell, (int)(width[col] - columns(cell)), "");
    }
    strv_done(&t->cells);
}

const char *doc_str(const json_t *obj, const char *key)
{
    const char *s = json_string_value(json_object_get(obj, key));
    return s ? s : "";
}

int64_t doc_int(const json_t *obj, const char *key, int64_t dflt)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_integer(v) ? json_integer_value(v) : dflt;
}

static bool to_local(int64_t wall_ms, struct tm *out)
{
    time_t t = (time_t)(wall_ms / 1000);
    return wall_ms > 0 && localtime_r(&t, out);
}

void local_time(int64_t wall_ms, char *out, size_t n)
{
    struct tm tm;
    if (!to_local(wall_ms, &tm) || strftime(out, n, "%Y-%m-%d %H:%M:%S", &tm) == 0)
        (void)str_copy(out, n, "-");
}

void time_of_day(int64_t wall_ms, char *out, size_t n)
{
    struct tm tm;
    if (!to_local(wall_ms, &tm) || strftime(out, n, "%H:%M:%S", &tm) == 0)
        (void)str_copy(out, n, "-");
}

const char *state_color(const char *state)
{
    static const struct {
        const char *state, *color;
    } colors[] = {
        { "SUCCEEDED", "\033[32m" }, { "FAILED", "\033[31m" },  { "DAMAGED", "\033[31m" },
        { "KILLED", "\033[33m" },    { "RUNNING", "\033[36m" },
    };
    for (size_t i = 0; i < ARRAY_LEN(colors); i++)
        if (str_eq(colors[i].state, state))
            return colors[i].color;
    return "";
}
