/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the keys about the restart of a role's tasks.
 */
#include <errno.h>
#include <stdlib.h>
#include <strings.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/spec_int.h"

enum { CODE_MAX = 255 };

static int one_code(struct build *b, const char *key, struct span text, struct code_list *out)
{
    struct span rest = text, first;
    int64_t from = 0, to = 0;
    struct err unused = { 0 };
    (void)span_split(&rest, '-', &first);
    int rc = str_i64(span_trim(first), 0, CODE_MAX, "exit code", &from, &unused);
    to = from;
    if (rc == 0 && rest.p)
        rc = str_i64(span_trim(rest), from, CODE_MAX, "exit code", &to, &unused);
    if (rc < 0) {
        (void)build_fail(b, key, EINVAL, "'%.*s' is neither an exit code nor a range of them",
                         (int)MIN(text.len, (size_t)40), text.p);
        return err_hint(b->e, "write codes from 0 to 255, as in '3, 10-20'");
    }
    struct code_range *grown = reallocarray(out->v, out->n + 1, sizeof *grown);
    if (!grown)
        return build_no_memory(b);
    out->v = grown;
    grown[out->n++] = (struct code_range){ (int)from, (int)to };
    return 0;
}

static int build_codes(struct build *b, const char *key, struct code_list *out)
{
    const char *v = conf_get(b->c, key);
    struct strv items = { 0 };
    int rc = v && conf_list_parse(span_of(v), &items) < 0 ? build_no_memory(b) : 0;
    for (size_t i = 0; i < items.n && rc == 0; i++)
        rc = one_code(b, key, span_of(items.v[i]), out);
    strv_done(&items);
    return rc;
}

unsigned build_choice(const struct build *b, const char *key, const char *const *names, unsigned n)
{
    const char *v = conf_get(b->c, key);
    for (unsigned i = 0; v && i < n; i++)
        if (strcasecmp(v, names[i]) == 0)
            return i + 1;
    return 0;
}

uint32_t role_spec_restarts(const struct role_spec *r)
{
    if (r->restart == RESTART_NEVER || (r->restart == RESTART_UNSET && !r->retry_on.n))
        return 0;
    /* cannot be cut off: the key has a maximum that fits into 32 bits. */
    return r->max_restarts < 0 ? INT32_MAX : (uint32_t)r->max_restarts;
}

int build_restart(struct build *b, struct role_spec *r)
{
    static const char *const policies[] = { "never", "on-failure", "always" };
    static const char *const scopes[] = { "task", "role", "job" };
    char key[ROLE_KEY_MAX];
    r->restart =
        (enum restart_policy)build_choice(b, role_key(key, r->name, "restart"), policies, 3);
    r->restart_scope =
        (enum restart_scope)build_choice(b, role_key(key, r->name, "restart-scope"), scopes, 3);
    r->max_restarts = conf_int(b->c, role_key(key, r->name, "max-restarts"));
    r->restart_window_ms = (uint64_t)conf_int(b->c, role_key(key, r->name, "restart-window"));
    r->restart_delay_ms = (uint64_t)conf_int(b->c, role_key(key, r->name, "restart-delay"));
    r->spares = (uint32_t)conf_int(b->c, role_key(key, r->name, "spares"));
    int rc = build_codes(b, role_key(key, r->name, "retry-on"), &r->retry_on);
    return rc == 0 ? build_codes(b, role_key(key, r->name, "no-retry-on"), &r->no_retry_on) : rc;
}
