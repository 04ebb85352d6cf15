/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds how tony watches progress and checkpoints, and how it asks a task for a checkpoint.
 */
#include <errno.h>
#include <regex.h>
#include <signal.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/spec_int.h"

enum { PATTERN_MAX = 256 };

/* Check a pattern before any node uses it. References to groups are refused: matching them can take
 * exponential time. */
static int check_pattern(struct build *b, const char *key, const char *text)
{
    regex_t re;
    char why[120];
    if (strlen(text) > PATTERN_MAX)
        return build_fail(b, key, EINVAL, "the pattern is longer than %d bytes", PATTERN_MAX);
    for (const char *p = text; *p; p++)
        if (*p == '\\' && *++p >= '1' && *p <= '9')
            return build_fail(b, key, EINVAL, "a pattern cannot refer to its own groups ('\\%c')",
                              *p);
        else if (!*p)
            break;
    int rc = regcomp(&re, text, REG_EXTENDED);
    if (rc != 0) {
        (void)regerror(rc, &re, why, sizeof why);
        return build_fail(b, key, EINVAL, "'%.80s' is not an extended regular expression: %s", text,
                          why);
    }
    size_t groups = re.re_nsub;
    regfree(&re);
    if (groups)
        return 0;
    (void)build_fail(b, key, EINVAL, "the pattern '%.80s' has no group", text);
    return err_hint(b->e, "the first group is the step: 'step ([0-9]+)'");
}

static int copy(struct build *b, const char *key, char **out)
{
    const char *v = conf_get(b->c, key);
    if (v && *v && !(*out = str_dup(v)))
        return build_no_memory(b);
    return 0;
}

static int build_checkpoints(struct build *b)
{
    static const char dir[] = "tony.task.checkpoint-dir",
                      pattern[] = "tony.task.checkpoint-pattern";
    struct job_spec *s = b->s;
    int rc = copy(b, dir, &s->checkpoint_dir);
    if (rc == 0)
        rc = copy(b, pattern, &s->checkpoint_pattern);
    if (rc == 0)
        rc = copy(b, "tony.task.checkpoint-marker", &s->checkpoint_marker);
    if (rc == 0 && s->checkpoint_pattern)
        rc = check_pattern(b, pattern, s->checkpoint_pattern);
    if (rc < 0 || !s->checkpoint_dir || s->checkpoint_pattern)
        return rc;
    (void)build_fail(b, dir, EINVAL, "a directory of checkpoints needs a pattern of their names");
    return err_hint(b->e, "tony.task.checkpoint-pattern: 'step-([0-9]+)\\.pt'");
}

static int signal_of(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {
        { "TERM", SIGTERM }, { "USR1", SIGUSR1 }, { "USR2", SIGUSR2 },
        { "INT", SIGINT },   { "HUP", SIGHUP },
    };
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        if (str_eq(name, signals[i].name))
            return signals[i].number;
    return SIGTERM;
}

int build_watch(struct build *b)
{
    struct job_spec *s = b->s;
    char key[ROLE_KEY_MAX];
    int rc = build_checkpoints(b);
    s->checkpoint_grace_ms = (uint32_t)conf_int(b->c, "tony.task.checkpoint-grace");
    s->checkpoint_signal = signal_of(conf_get(b->c, "tony.task.checkpoint-signal"));
    for (size_t i = 0; i < s->n_roles && rc == 0; i++) {
        struct role_spec *r = &s->roles[i];
        rc = copy(b, role_key(key, r->name, "progress-pattern"), &r->progress_pattern);
        if (rc == 0 && r->progress_pattern)
            rc = check_pattern(b, key, r->progress_pattern);
    }
    return rc;
}
