/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "conf/conf.h"
#include "storage/store.h"

void plan_ask(struct plan *p, const char *role, uint32_t n, uint64_t memory_mib, uint32_t vcores,
              uint32_t gpus, uint32_t ranks)
{
    if (n && strv_pushf(&p->lines, "ask %s %u %" PRIu64 " %u %u %u", role, n, memory_mib, vcores,
                        gpus, MAX(ranks, 1u)) < 0)
        p->rc = -ENOMEM;
}

void plan_run(struct plan *p, const char *role, const char *name, const char *value)
{
    if (value && *value &&
        strv_pushf(&p->lines, "run %s %s=%zu:%s", role, name, strlen(value), value) < 0)
        p->rc = -ENOMEM;
}

void plan_ship(struct plan *p, const char *role, const char *name, const char *entry)
{
    AUTO(free_p) char *key = str_printf("ship %s", name ? name : "");
    size_t len = entry ? strlen(entry) : 0;
    const char *digest = len >= DIGEST_HEX - 1 ? entry + len - (DIGEST_HEX - 1) : "";
    bool is_digest = *digest && strspn(digest, "0123456789abcdef") == DIGEST_HEX - 1;
    if (!key)
        p->rc = -ENOMEM;
    else
        plan_run(p, role, key, is_digest ? digest : "in place");
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int plan_digest(struct plan *p, char out[DIGEST_HEX])
{
    AUTO(buf_done) struct buf text = { 0 };
    if (p->rc < 0)
        return p->rc;
    if (p->lines.n)
        qsort(p->lines.v, p->lines.n, sizeof *p->lines.v, by_text);
    (void)buf_adds(&text, "tony plan 1\n");
    for (size_t i = 0; i < p->lines.n; i++)
        (void)buf_addf(&text, "%s\n", p->lines.v[i]);
    return text.failed ? -ENOMEM : digest_text("plan", buf_cstr(&text), out);
}

void plan_done(struct plan *p)
{
    strv_done(&p->lines);
}

/* ---- a job that has not run yet ---- */

static void add_env(struct plan *p, const char *role, const char *kind, const struct strv *env)
{
    for (size_t i = 0; i < env->n; i++) {
        const char *eq = strchr(env->v[i], '=');
        AUTO(free_p)
        char *name = eq ? str_printf("%s %.*s", kind, (int)(eq - env->v[i]), env->v[i]) : NULL;
        if (name)
            plan_run(p, role, name, eq + 1);
        else if (eq)
            p->rc = -ENOMEM;
    }
}

bool plan_is_secret(const struct job_spec *s, const char *variable)
{
    size_t n = strlen(variable);
    for (size_t i = 0; i < s->secrets.n; i++)
        if (strncmp(s->secrets.v[i], variable, n) == 0 && s->secrets.v[i][n] == '=')
            return true;
    return false;
}

static void add_secrets(struct plan *p, const char *role, const struct strv *secrets)
{
    for (size_t i = 0; i < secrets->n; i++) {
        AUTO(free_p)
        char *name = str_printf("secret %.*s", (int)strcspn(secrets->v[i], "="), secrets->v[i]);
        if (name)
            plan_run(p, role, name, "set");
        else
            p->rc = -ENOMEM;
    }
}

/* Later variables replace earlier ones of the same name. */
static int join_env(struct strv *to, const struct strv *from)
{
    for (size_t i = 0; i < from->n; i++) {
        const char *eq = strchr(from->v[i], '=');
        AUTO(free_p)
        char *key = eq ? span_dup(span_mem(from->v[i], (size_t)(eq - from->v[i]))) : NULL;
        if (eq && (!key || strv_env_set(to, key, eq + 1) < 0))
            return -ENOMEM;
    }
    return 0;
}

static void add_role(struct plan *p, const struct job_spec *s, const struct role_spec *r,
                     const char *name, uint32_t n, const struct ship_item *items, size_t n_items)
{
    struct strv container = { 0 }, task = { 0 };
    if (join_env(&container, &s->container_env) < 0 || join_env(&task, &s->execution_env) < 0 ||
        join_env(&task, &r->env) < 0)
        p->rc = -ENOMEM;
    plan_ask(p, name, n, r->memory_mib, r->vcores, r->gpus, r->ranks);
    plan_run(p, name, "command", r->command);
    plan_run(p, name, "resume", r->resume_command);
    plan_run(p, name, "framework", s->framework);
    plan_run(p, name, "mode", s->gang ? "GANG" : "FCFS");
    plan_run(p, name, "image", r->docker_image);
    plan_run(p, name, "ready", r->ready);
    plan_run(p, name, "python", s->python_binary);
    add_env(p, name, "env", &container);
    add_env(p, name, "task env", &task);
    add_secrets(p, name, &s->secrets);
    for (size_t i = 0; i < n_items; i++)
        if (!items[i].role || !*items[i].role || str_eq(items[i].role, r->name))
            plan_ship(p, name, items[i].name, items[i].digest);
    strv_done(&container);
    strv_done(&task);
}

int plan_of_job(const struct job_spec *s, const struct ship_item *items, size_t n_items,
                char out[DIGEST_HEX])
{
    AUTO(plan_done) struct plan p = { 0 };
    for (size_t i = 0; i < s->n_roles; i++)
        if (s->roles[i].instances)
            add_role(&p, s, &s->roles[i], s->roles[i].name,
                     s->roles[i].instances + s->roles[i].spares, items, n_items);
    if (s->single_node)
        add_role(&p, s, &s->am, "driver", 1, items, n_items);
    return plan_digest(&p, out);
}
