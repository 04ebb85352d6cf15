/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dependencies that roles declare by their own keys: depends-on, stops, ready.
 */
/* Limit for a path: the master sends it to each executor in its Welcome. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/spec_int.h"

enum { READY_MAX = 1000 };

int build_add_role(struct build *b, uint32_t **list, size_t *n, uint32_t role)
{
    for (size_t i = 0; i < *n; i++) {
        if ((*list)[i] == role)
            return 0;
    }
    uint32_t *grown = reallocarray(*list, *n + 1, sizeof *grown);
    if (!grown)
        return build_no_memory(b);
    *list = grown;
    grown[(*n)++] = role;
    return 0;
}

static int add_gate(struct build *b, struct role_spec *r, uint32_t on, bool ready)
{
    for (size_t i = 0; i < r->n_gates; i++) {
        if (r->gates[i].role == on) {
            r->gates[i].ready = r->gates[i].ready || ready;
            return 0;
        }
    }
    struct role_gate *grown = reallocarray(r->gates, r->n_gates + 1, sizeof *grown);
    if (!grown)
        return build_no_memory(b);
    r->gates = grown;
    grown[r->n_gates++] = (struct role_gate){ .role = on, .ready = ready };
    return 0;
}

static bool is_stopped_by_another(const struct job_spec *s, uint32_t role)
{
    for (size_t i = 0; i < s->n_roles; i++) {
        for (size_t k = 0; k < s->roles[i].n_stops; k++) {
            if (s->roles[i].stops[k] == role)
                return true;
        }
    }
    return false;
}

/* Warn if a role waits for the end of a role that tony does not stop before the end of the job:
 * unless that role ends by itself, the job never ends. */
static int warn_endless(struct build *b, const char *key, const struct role_spec *r, uint32_t on)
{
    const struct role_spec *other = &b->s->roles[on];
    if (other->kind == ROLE_TRACKED || is_stopped_by_another(b->s, on))
        return 0;
    return strv_pushf(&b->s->warnings,
                      "%s: role '%s' waits for the end of '%s', which is %s: it must end by itself",
                      conf_origin(b->c, key), r->name, other->name,
                      other->kind == ROLE_SIDECAR ? "a sidecar" : "untracked") < 0
               ? build_no_memory(b)
               : 0;
}

/* Add one item of depends-on: ROLE, or ROLE:CONDITION. */
static int add_dependency(struct build *b, const char *key, struct role_spec *r, char *item)
{
    uint32_t on = 0;
    char *colon = strchr(item, ':');
    const char *until = colon ? colon + 1 : "completed";
    if (colon)
        *colon = '\0';
    int rc = build_role_of(b, key, item, &on);
    if (rc < 0)
        return rc;
    if (str_eq(until, "started") || str_eq(until, "ready"))
        return add_gate(b, r, on, str_eq(until, "ready"));
    bool succeeded = str_eq(until, "succeeded");
    if (!succeeded && !str_eq(until, "completed")) {
        (void)build_fail(b, key, EINVAL, "'%s' cannot wait for '%s' to be '%s'", r->name, item,
                         until);
        return err_hint(b->e, "write started, ready, succeeded or completed, as in %s:ready", item);
    }
    rc = build_add_role(b, &r->waits_for, &r->n_waits_for, on);
    if (rc == 0 && succeeded)
        rc = build_add_role(b, &r->needs, &r->n_needs, on);
    return rc < 0 ? rc : warn_endless(b, key, r, on);
}

static int build_dependencies(struct build *b, struct role_spec *r)
{
    char key[ROLE_KEY_MAX];
    const char *v = conf_get(b->c, role_key(key, r->name, "depends-on"));
    struct strv items = { 0 };
    int rc = v && conf_list_parse(span_of(v), &items) < 0 ? build_no_memory(b) : 0;
    for (size_t i = 0; i < items.n && rc == 0; i++)
        rc = add_dependency(b, key, r, items.v[i]);
    strv_done(&items);
    return rc;
}

static int build_stops(struct build *b, uint32_t role)
{
    struct role_spec *r = &b->s->roles[role];
    char key[ROLE_KEY_MAX];
    const char *v = conf_get(b->c, role_key(key, r->name, "stops"));
    struct strv names = { 0 };
    int rc = v && conf_list_parse(span_of(v), &names) < 0 ? build_no_memory(b) : 0;
    for (size_t i = 0; i < names.n && rc == 0; i++) {
        uint32_t at = 0;
        rc = build_role_of(b, key, names.v[i], &at);
        if (rc == 0 && at == role)
            rc = build_fail(b, key, EINVAL, "role '%s' cannot stop itself", r->name);
        if (rc == 0)
            rc = build_add_role(b, &r->stops, &r->n_stops, at);
    }
    strv_done(&names);
    return rc;
}

static bool is_port(const char *text)
{
    int64_t port = 0;
    return str_i64(span_of(text), 1, 65535, "port", &port, NULL) == 0;
}

static int build_ready(struct build *b, struct role_spec *r, bool asked_for)
{
    char key[ROLE_KEY_MAX];
    const char *v = conf_get(b->c, role_key(key, r->name, "ready"));
    bool set = v && *v;
    if (!set && !asked_for)
        return 0;
    if (set && !str_eq(v, "port") && !str_eq(v, "word") &&
        !(str_starts(v, "port:") && is_port(v + 5)) &&
        !(str_starts(v, "file:") && v[5] && strlen(v) <= READY_MAX)) {
        (void)build_fail(b, key, EINVAL, "'%.80s' is not a valid condition for 'ready'", v);
        return err_hint(b->e, "write port (the task's port in the cluster spec), port:8080, "
                              "file:PATH, or word (the task reports it on TONY_TASK_SOCKET)");
    }
    bool plans = b->s->horovod_driver && str_eq(r->name, "driver");
    r->ready = str_dup(set ? v : plans ? "word" : "port");
    return r->ready ? 0 : build_no_memory(b);
}

static bool is_asked_for(const struct job_spec *s, uint32_t role)
{
    for (size_t i = 0; i < s->n_roles; i++) {
        for (size_t k = 0; k < s->roles[i].n_gates; k++) {
            if (s->roles[i].gates[k].role == role && s->roles[i].gates[k].ready)
                return true;
        }
    }
    return false;
}

/* Horovod's ranks start after its driver is ready, that is, after its executor has seen its
 * plan. */
static int build_driver_gates(struct build *b)
{
    struct job_spec *s = b->s;
    int64_t driver = build_role(b, "driver");
    int rc = 0;
    for (size_t i = 0; i < s->n_roles && rc == 0; i++)
        if ((int64_t)i != driver && s->roles[i].kind == ROLE_TRACKED)
            rc = add_gate(b, &s->roles[i], (uint32_t)driver, true);
    return rc;
}

int build_depends(struct build *b)
{
    struct job_spec *s = b->s;
    int rc = 0;
    for (uint32_t i = 0; i < s->n_roles && rc == 0; i++)
        rc = build_stops(b, i);
    for (uint32_t i = 0; i < s->n_roles && rc == 0; i++)
        rc = build_dependencies(b, &s->roles[i]);
    if (rc == 0 && s->horovod_driver)
        rc = build_driver_gates(b);
    for (uint32_t i = 0; i < s->n_roles && rc == 0; i++)
        rc = build_ready(b, &s->roles[i], is_asked_for(s, i));
    return rc;
}
