/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of the policy. They come from the site file. `tony pool set` changes them, and the
 * pool writes the changes into the file pool/policy, so the next pool reads them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "codec/json.h"
#include "conf/conf.h"
#include "pool/pool_int.h"
#include "pool/sharing.h"

enum { FILE_MAX = 65536 };

#define PREFIX "tony.pool.policy"

static const char *const keys[SHARING_KEYS] = {
    PREFIX,
    PREFIX ".theta1",
    PREFIX ".theta2",
    PREFIX ".loss-max",
    PREFIX ".adjust-max",
    PREFIX ".reserve",
    PREFIX ".levels",
    PREFIX ".payback",
    PREFIX ".resize-cost",
    PREFIX ".interval",
    PREFIX ".resize-limit",
    PREFIX ".time-limit",
};

static const char by_command[] = "tony pool set";

/* ---- values ---- */

/* Build the settings: those of the site, replaced by those of set[]. */
static int build(const struct pool *p, char *const set[], struct conf **out, struct err *e)
{
    AUTO(conf_freep) struct conf *c = conf_new();
    struct conf_entry x;
    int rc = c ? 0 : err_set(e, ENOMEM, "cannot read the settings of the policy: %m");
    for (size_t i = 0; rc == 0 && conf_at(p->conf, i, &x); i++)
        if (str_starts(x.key, PREFIX) && !str_eq(x.origin, "default"))
            rc = conf_set(c, x.final ? CL_SITE : CL_OPTION, x.key, x.value, x.origin, x.final, e);
    for (size_t i = 0; rc == 0 && i < SHARING_KEYS; i++)
        if (set[i])
            rc = conf_set(c, CL_CONF, keys[i], set[i], by_command, false, e);
    if (rc == 0)
        *out = TAKE(c);
    return rc;
}

const char *sharing_name(const struct pool *p)
{
    const struct part_policy *policy = p->sharing.settings.policy;
    return policy ? policy->name : "fifo";
}

/* Use other settings from now on. The targets of the old ones are dropped, but jobs that were
 * already asked to change may still change. */
static void take(struct pool *p, const struct conf *c)
{
    bool divided = sharing_divides(p);
    policy_settings_read(c, &p->sharing.settings);
    p->sharing.decided_on = 0;
    sharing_drop_targets(p);
    if (divided || sharing_divides(p))
        log_event(LOG_INFO, "policy.set", f_str("policy", sharing_name(p)));
}

static void set_done(char *set[])
{
    for (size_t i = 0; i < SHARING_KEYS; i++)
        free(TAKE(set[i]));
}

void sharing_conf_done(struct sharing *y)
{
    set_done(y->set);
}

/* ---- the file ---- */

static char *file_of(const struct pool *p)
{
    return fs_join(p->paths.pool, "policy");
}

static int save(const struct pool *p, char *const set[], struct err *e)
{
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(free_p) char *path = file_of(p);
    const char *sep = "";
    (void)buf_addc(&text, '{');
    for (size_t i = 0; i < SHARING_KEYS; i++) {
        if (!set[i])
            continue;
        (void)buf_addf(&text, "%s\"%s\":", sep, keys[i]);
        (void)json_add_str(&text, span_of(set[i]));
        sep = ",";
    }
    (void)buf_adds(&text, "}\n");
    if (!path || text.failed)
        return err_set(e, ENOMEM, "cannot write the settings of the policy: %m");
    return fs_write_atomic(AT_FDCWD, path, buf_span(&text), 0600, true, e);
}

static int load_file(const struct pool *p, char *set[], struct err *e)
{
    AUTO(free_p) char *path = file_of(p);
    AUTO(buf_done) struct buf text = { .max = FILE_MAX };
    AUTO(json_freep) json_t *o = NULL;
    if (!path)
        return err_set(e, ENOMEM, "cannot read the settings of the policy: %m");
    int rc = fs_read(AT_FDCWD, path, &text, e);
    if (rc == -ENOENT)
        return 0;
    if (rc == 0)
        rc = json_parse(path, buf_span(&text), &o, e);
    for (size_t i = 0; rc == 0 && i < SHARING_KEYS; i++) {
        const char *value = json_str(o, keys[i], NULL);
        if (value && !(set[i] = str_dup(value)))
            rc = err_set(e, ENOMEM, "cannot read '%s': %m", path);
    }
    return rc;
}

/* If the file cannot be used, or the site's file now contradicts it, the pool starts with the
 * site's settings. */
int sharing_conf_load(struct pool *p, struct err *e)
{
    AUTO(conf_freep) struct conf *c = NULL;
    struct err why = { 0 };
    if (load_file(p, p->sharing.set, &why) < 0 || build(p, p->sharing.set, &c, &why) < 0) {
        log_err(LOG_WARN, "policy.file", &why);
        set_done(p->sharing.set);
        int rc = build(p, p->sharing.set, &c, e);
        if (rc < 0)
            return rc;
    }
    take(p, c);
    return 0;
}

/* ---- tony pool set ---- */

static int find_key(struct span name, size_t *out, struct err *e)
{
    const char *names[SHARING_KEYS];
    for (size_t i = 0; i < SHARING_KEYS; i++) {
        const char *full = keys[i], *brief = full + strlen(i ? PREFIX "." : "tony.pool.");
        names[i] = brief;
        if (span_eqs(name, full) || span_eqs(name, brief)) {
            *out = i;
            return 0;
        }
    }
    AUTO(free_p) char *text = span_dup(name);
    (void)err_set(e, EINVAL, "the pool's policy has no setting '%s'", text ? text : "");
    const char *near = text ? str_nearest(text, names, SHARING_KEYS) : NULL;
    return near ? err_hint(e, "did you mean '%s'?", near)
                : err_hint(e, "'tony pool set' alone prints all settings");
}

static int set_one(char *set[], const char *word, struct err *e)
{
    const char *eq = strchr(word, '=');
    size_t i = 0;
    if (!eq) {
        (void)err_set(e, EINVAL, "'%s' is not KEY=VALUE", word);
        return err_hint(e, "for example: tony pool set policy=dorm theta1=0.1");
    }
    int rc = find_key(span_mem(word, (size_t)(eq - word)), &i, e);
    if (rc < 0)
        return rc;
    free(TAKE(set[i]));
    if (eq[1] && !(set[i] = str_dup(eq + 1)))
        return err_set(e, ENOMEM, "cannot change the policy: %m");
    return 0;
}

int sharing_conf_set(struct pool *p, char *const *words, size_t n, struct err *e)
{
    AUTO(conf_freep) struct conf *c = NULL;
    char *set[SHARING_KEYS] = { 0 };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < SHARING_KEYS; i++)
        if (p->sharing.set[i] && !(set[i] = str_dup(p->sharing.set[i])))
            rc = err_set(e, ENOMEM, "cannot change the policy: %m");
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = set_one(set, words[i], e);
    if (rc == 0)
        rc = build(p, set, &c, e);
    if (rc == 0)
        rc = save(p, set, e);
    if (rc == 0) {
        set_done(p->sharing.set);
        memcpy(p->sharing.set, set, sizeof set);
        take(p, c);
        return 0;
    }
    set_done(set);
    return rc;
}

int sharing_conf_report(const struct pool *p, struct buf *out)
{
    AUTO(conf_freep) struct conf *c = NULL;
    struct err e = { 0 };
    int rc = build(p, p->sharing.set, &c, &e);
    if (rc < 0)
        return rc;
    (void)buf_addf(out, "{\"policy\":\"%s\",\"settings\":[", sharing_name(p));
    for (size_t i = 0; i < SHARING_KEYS; i++) {
        const char *value = conf_get(c, keys[i]);
        (void)buf_addf(out, "%s{\"key\":\"%s\",\"value\":", i ? "," : "", keys[i]);
        (void)(value ? json_add_str(out, span_of(value)) : buf_adds(out, "null"));
        (void)buf_adds(out, ",\"origin\":");
        (void)json_add_str(out, span_of(conf_origin(c, keys[i])));
        (void)buf_addc(out, '}');
    }
    (void)buf_adds(out, "]}");
    return out->failed ? -ENOMEM : 0;
}
