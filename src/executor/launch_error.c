/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/launch_error.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"

enum { HEAD = 256 }; /* the kernel looks for the interpreter in as many bytes (BINPRM_BUF_SIZE) */

/* The interpreter in the first line of a script, without its argument. False: it is no script. */
static bool interpreter_of(struct span head, struct span *out)
{
    struct span line;
    if (!span_starts(head, "#!") || !span_split(&head, '\n', &line))
        return false;
    size_t i = 2;
    while (i < line.len && (line.p[i] == ' ' || line.p[i] == '\t'))
        i++;
    size_t end = i;
    while (end < line.len && line.p[end] != ' ' && line.p[end] != '\t')
        end++;
    *out = span_mem(line.p + i, end - i);
    return true;
}

void launch_error(struct err *e, const char *path, int num)
{
    char head[HEAD];
    struct span interpreter;
    AUTO(close_p) int fd = num == ENOENT ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    ssize_t n = fd >= 0 ? read(fd, head, sizeof head) : -1;
    struct span seen = span_mem(head, n > 0 ? (size_t)n : 0);

    if (interpreter_of(seen, &interpreter)) {
        bool dos = interpreter.len > 0 && interpreter.p[interpreter.len - 1] == '\r';
        interpreter.len -= dos;
        (void)err_set(e, num, "cannot run '%s': its interpreter '%.*s'%s is not there", path,
                      (int)interpreter.len, interpreter.p, dos ? " + carriage return" : "");
        str_mask_controls(e->msg);
    } else if (span_starts(seen, "\x7f"
                                 "ELF")) {
        (void)err_set(e, num, "cannot run '%s': its program loader is not there", path);
    } else {
        (void)err_set(e, num, "cannot run '%s': %m", path);
    }
}
