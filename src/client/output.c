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
    AUTO(buf_done) struct buf text = { 0 };
    va_list ap;
    va_start(ap, fmt);
    (void)buf_adds(&text, "tony: ");
    (void)buf_vaddf(&text, fmt, ap);
    va_end(ap);
    (void)buf_addc(&text, '\n');
    /* Continue if the terminal is closed. */
    (void)fs_write_all(STDERR_FILENO, text.p, text.len);
}

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

int client_print_json(json_t *doc)
{
    errno = 0;
    bool printed = doc && json_dumpf(doc, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) == 0 &&
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
