/* SPDX-License-Identifier: Apache-2.0 */
/* The model parameters: a line in the output of the preprocess task, for the tasks that run after
 * it. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/executor_int.h"

enum {
    OUTPUT_MAX = 64 << 20, /* bytes of the output that are searched */
    PARAMS_MAX = 64 << 10, /* bytes; Linux allows 128 KiB for an environment variable */
};

/* The path of the stdout file that is beside this stderr file. */
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
        return; /* then the other tasks get no parameters */
    const char *at = text.len ? memmem(text.p, text.len, mark, sizeof mark - 1) : NULL;
    if (!at)
        return;
    at += sizeof mark - 1;
    size_t left = (size_t)(text.p + text.len - at);
    const char *end = memchr(at, '\n', left);
    size_t len = MIN(end ? (size_t)(end - at) : left, (size_t)PARAMS_MAX);
    if (!span_utf8(span_mem(at, len), NULL))
        return; /* protobuf strings must be UTF-8 */
    buf_clear(out);
    out->max = PARAMS_MAX + 1;
    (void)buf_add(out, at, len);
}
