/* SPDX-License-Identifier: Apache-2.0 */
/* The last lines that a failed task has printed. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "cause/cause.h"
#include "executor/executor_int.h"

enum {
    TAIL_MAX = 4096,
    TAIL_LINES = 20,
    LOOK_MAX = 64 << 10, /* bytes; the line with the cause may be far from the end */
    LINE_SHOWN_MAX = 1000,
};

/* Does the text mention an error? A task that was stopped may have been failing already, and may be
 * the first cause. */
static bool says_error(struct span text)
{
    static const char *const words[] = { "rror", "xception", "terminate called", "ailed" };
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (span_has(text, words[i]))
            return true;
    return false;
}

static const char *last_lines(struct span text, unsigned lines, size_t max)
{
    const char *p = text.p + text.len, *least = text.len > max ? p - max : text.p;
    if (p > least && p[-1] == '\n')
        p--;
    for (unsigned n = 0; p > least; p--)
        if (p[-1] == '\n' && ++n == lines)
            break;
    while (p > text.p && p == least && ((unsigned char)*p & 0xc0) == 0x80)
        p++, least++; /* skip the rest of a cut UTF-8 character */
    return p;
}

/* Copy the last lines to out. If the line with the cause is not among them, put it in front. */
static int cut(struct span text, const struct cause_end *end, unsigned lines, struct buf *out)
{
    struct span line = span_mem("", 0);
    size_t mark = out->len;
    (void)cause_find(end, &line);
    const char *from = last_lines(text, lines, TAIL_MAX - mark);
    bool before = line.len && line.p >= text.p && line.p < from;
    if (before) {
        line.len = MIN(line.len, (size_t)LINE_SHOWN_MAX);
        from = last_lines(text, lines, TAIL_MAX - mark - line.len - 8);
        if (buf_add(out, line.p, line.len) < 0 || buf_adds(out, "\n[...]\n") < 0)
            return -ENOMEM;
    }
    return buf_add(out, from, (size_t)(text.p + text.len - from));
}

/* The path of the stdout file that belongs to this stderr file. */
static char *stdout_path(const char *err_path)
{
    const char *slash = strrchr(err_path, '/'), *name = slash ? slash + 1 : err_path;
    if (!str_starts(name, "stderr"))
        return NULL;
    return str_printf("%.*sstdout%s", (int)(name - err_path), err_path, name + 6);
}

void tail_keep(const struct executor *x, enum end_reason reason, struct buf *out)
{
    const struct attempt *a = &x->a;
    const Tony__Welcome *w = x->role;
    unsigned lines = w && w->stderr_tail_lines ? w->stderr_tail_lines : TAIL_LINES;
    AUTO(buf_done) struct buf text = { .max = LOOK_MAX + 1 };
    struct err unused;
    bool stopped = reason == END_KILLED_BY_MASTER;
    AUTO(free_p) char *further = a->rank ? ranks_log_path(x, "stderr", a->rank) : NULL;
    const char *err_path = a->rank ? further : a->logs.err_path;
    if (!err_path || fs_tail(AT_FDCWD, err_path, UINT32_MAX, LOOK_MAX, &text, &unused) < 0)
        return;
    if (!span_trim(buf_span(&text)).len && !stopped) {
        AUTO(free_p) char *path = stdout_path(err_path);
        buf_clear(&text);
        if (!path || fs_tail(AT_FDCWD, path, UINT32_MAX, LOOK_MAX, &text, &unused) < 0 ||
            !span_trim(buf_span(&text)).len)
            return;
        (void)buf_adds(out, CAUSE_STDOUT_MARK);
    }
    struct cause_end end = { .reason = reason,
                             .exit_code = x->cfg->record->exit_code,
                             .signal = x->cfg->record->signal,
                             .tail = buf_cstr(&text) };
    int rc = cut(buf_span(&text), &end, lines, out);
    if (rc < 0 || (stopped && !says_error(buf_span(out))))
        buf_done(out); /* report the end without a tail */
}
