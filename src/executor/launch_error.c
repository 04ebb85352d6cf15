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

/* Bytes of all strings as Linux counts them: each with its NUL and a pointer to it. */
static size_t size_of_all(char *const *strings, const char **out_longest)
{
    size_t sum = 0, most = 0;
    *out_longest = "";
    for (size_t i = 0; strings && strings[i]; i++) {
        size_t n = strlen(strings[i]) + 1;
        sum += n + sizeof strings[i];
        if (n > most) {
            most = n;
            *out_longest = strings[i];
        }
    }
    return sum;
}

static void too_long(struct err *e, const char *path, char *const *argv, char *const *env)
{
    const char *argument, *variable;
    size_t arguments = size_of_all(argv, &argument), variables = size_of_all(env, &variable);
    (void)err_set(e, E2BIG,
                  "cannot run '%.200s': Argument list too long: Linux does not take arguments of "
                  "%zu bytes and an environment of %zu together; the longest variable is '%.*s' "
                  "with %zu",
                  path, arguments, variables, (int)MIN(strcspn(variable, "="), (size_t)60),
                  variable, strlen(variable) + 1);
}

void launch_error(struct err *e, const char *path, char *const *argv, char *const *env, int num)
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
    } else if (num == E2BIG) {
        too_long(e, path, argv, env);
    } else {
        (void)err_set(e, num, "cannot run '%s': %m", path);
    }
}
