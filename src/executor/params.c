/* What a task that runs before the others has for them: a line of its output. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/executor_int.h"

enum {
    OUTPUT_MAX = 64 << 20, /* in which the line is looked for */
    PARAMS_MAX = 64 << 10, /* a variable of an environment may have twice as much */
};

/* Its standard output lies beside its standard error, under the same name but for that. */
static char *output_path(const struct logs *l)
{
    static const char err[] = "stderr";
    char *path = str_dup(l->err_path);
    char *name = path ? strrchr(path, '/') : NULL;
    char *at = name ? strstr(name, err) : NULL;
    if (at)
        memcpy(at, "stdout", sizeof err - 1);
    return path;
}

void params_keep(struct executor *x, struct buf *out)
{
    static const char mark[] = "Model parameters: ";
    AUTO(free_p) char *path = output_path(&x->a.logs);
    AUTO(buf_done) struct buf text = { .max = OUTPUT_MAX };
    if (!path || fs_read(AT_FDCWD, path, &text, NULL) < 0)
        return; /* nobody could be told; the tasks find no parameters */
    const char *at = text.len ? memmem(text.p, text.len, mark, sizeof mark - 1) : NULL;
    if (!at)
        return;
    at += sizeof mark - 1;
    size_t left = (size_t)(text.p + text.len - at);
    const char *end = memchr(at, '\n', left);
    size_t len = MIN(end ? (size_t)(end - at) : left, (size_t)PARAMS_MAX);
    if (!span_utf8(span_mem(at, len), NULL))
        return; /* nothing that could be passed on */
    buf_clear(out);
    out->max = PARAMS_MAX + 1;
    (void)buf_add(out, at, len);
}
