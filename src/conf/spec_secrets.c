/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tony.application.secrets: which variables of the tasks are secrets, and where the client finds
 * their values. The configuration has no values, and no error here quotes what may be one: a user
 * who writes a value in place of its source must not find it in a log.
 */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "conf/spec_int.h"

static const char key[] = "tony.application.secrets";

/* Is this the name of a variable that a shell accepts: letters, digits and '_', no digit first? */
static bool is_variable(struct span name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.p[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && (i == 0 || c < '0' || c > '9'))
            return false;
    }
    return name.len > 0;
}

static int check(struct build *b, const char *ref)
{
    struct span from = span_of(ref), name;
    (void)span_split(&from, '=', &name);
    if (!is_variable(name)) {
        (void)build_fail(b, key, EINVAL,
                         "the name of a secret must be a valid name of an environment variable");
        return err_hint(b->e,
                        "a name has letters, digits and '_', and does not begin with a digit");
    }
    bool env = span_starts(from, "env:"), file = span_starts(from, "file:");
    if ((env && from.len > strlen("env:")) || (file && from.len > strlen("file:")))
        return 0;
    (void)build_fail(b, key, EINVAL, "secret '%.*s' must come from env:VARIABLE or file:PATH",
                     (int)name.len, name.p);
    return err_hint(b->e, "do not write the value of a secret into a configuration");
}

/* Check that the call at the end of the job names only secrets that the job has. */
static int check_use(struct build *b, const char *of, const char *name)
{
    if (strv_env_get(&b->s->secrets, name))
        return 0;
    (void)build_fail(b, of, EINVAL, "'%s' names no secret of the job", of);
    return err_hint(b->e,
                    "secrets are declared by --secret NAME, or by 'secrets:' in the job file");
}

/* A URL of another kind than http would be run as a command, again and again. The value is not
 * quoted: it may have a password. */
static int check_target(struct build *b, const char *target)
{
    size_t n = strspn(target, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");
    if (n == 0 || !str_starts(target + n, "://") || str_starts(target, "http://") ||
        str_starts(target, "https://"))
        return 0;
    return build_fail(b, "tony.application.on-end", EINVAL,
                      "'tony.application.on-end' must be a command, or a URL that begins with "
                      "http:// or https://");
}

int build_on_end(struct build *b)
{
    static const char prefix[] = "secret:";
    const char *target = b->s->on_end, *key_of = b->s->on_end_secret;
    int rc = 0;
    if (key_of && !target)
        return build_fail(b, "tony.application.on-end-secret", EINVAL,
                          "'tony.application.on-end-secret' needs tony.application.on-end");
    if (target && str_starts(target, prefix))
        rc = check_use(b, "tony.application.on-end", target + sizeof prefix - 1);
    else if (target)
        rc = check_target(b, target);
    return rc == 0 && key_of ? check_use(b, "tony.application.on-end-secret", key_of) : rc;
}

int build_secrets(struct build *b)
{
    const char *v = conf_get(b->c, key);
    struct strv *out = &b->s->secrets;
    int rc = v ? conf_env_parse(span_of(v), out, b->e) : 0;
    if (rc == 0 && out->n > SPEC_SECRETS_MAX)
        return build_fail(b, key, E2BIG, "the job has %zu secrets; the limit is %d", out->n,
                          SPEC_SECRETS_MAX);
    for (size_t i = 0; rc == 0 && i < out->n; i++)
        rc = check(b, out->v[i]);
    return rc;
}
