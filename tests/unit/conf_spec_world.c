/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "conf/conf.h"
#include "conf_spec_world.h"

int set_lines(struct conf *c, const char *lines, struct err *e)
{
    struct span rest = span_of(lines), line;
    int rc = 0;
    for (unsigned n = 1; rc == 0 && span_split(&rest, '\n', &line); n++) {
        char key[256], origin[16];
        const char *eq = memchr(line.p, '=', line.len);
        if (!eq)
            continue;
        (void)snprintf(key, sizeof key, "%.*s", (int)(eq - line.p), line.p);
        (void)snprintf(origin, sizeof origin, "j:%u", n);
        char *value = span_dup(span_mem(eq + 1, line.len - (size_t)(eq - line.p) - 1));
        rc = conf_set(c, CL_JOB, key, value, origin, false, e);
        free(value);
    }
    return rc;
}

int build(const char *lines, struct job_spec **out, struct err *e)
{
    struct conf *c = conf_new();
    assert_non_null(c);
    int rc = set_lines(c, lines, e);
    if (rc == 0)
        rc = job_spec_build(c, out, e);
    conf_free(c);
    return rc;
}

struct job_spec *built(const char *lines)
{
    struct err e = { 0 };
    struct job_spec *s = NULL;
    if (build(lines, &s, &e) < 0)
        fail_msg("%s\n%s (%s)", lines, e.msg, e.hint);
    return s;
}
