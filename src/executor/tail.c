/* The last words of a task that failed. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/executor_int.h"
#include "job/known.h"

enum {
    TAIL_MAX = 4096,
    TAIL_LINES = 20,
    LOOK_MAX =
        64 << 10, /* what is torn down may print thousands of lines after the one that counts */
    LINE_SHOWN_MAX = 1000,
};

/* What was stopped while it was failing may be the reason for it all: then it says so. */
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
        p++, least++; /* not in mid-character */
    return p;
}

/* The line that gives its end away stands first where it is not among the last ones. */
static int cut(struct span text, const struct known_end *end, unsigned lines, struct buf *out)
{
    struct span line = span_mem("", 0);
    size_t mark = out->len;
    (void)known_find(end, &line);
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

/* Beside "stderr" lies "stdout", with the same ending. */
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
    if (!err_path ||
        fs_tail(AT_FDCWD, err_path, UINT32_MAX, LOOK_MAX, &text, &unused) < 0)
        return;
    if (!span_trim(buf_span(&text)).len && !stopped) {
        AUTO(free_p) char *path = stdout_path(err_path);
        buf_clear(&text);
        if (!path || fs_tail(AT_FDCWD, path, UINT32_MAX, LOOK_MAX, &text, &unused) < 0 ||
            !span_trim(buf_span(&text)).len)
            return;
        (void)buf_adds(out, KNOWN_STDOUT_MARK);
    }
    struct known_end end = { .reason = reason,
                             .exit_code = x->cfg->record->exit_code,
                             .signal = x->cfg->record->signal,
                             .tail = buf_cstr(&text) };
    int rc = cut(buf_span(&text), &end, lines, out);
    if (rc < 0 || (stopped && !says_error(buf_span(out))))
        buf_done(out); /* no tail is better than no report */
}
