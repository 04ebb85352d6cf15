/* SPDX-License-Identifier: Apache-2.0 */
/* A job from one line of text: drive_spec() of drive.h. */
#include "drive_int.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

_Noreturn void drive_fail(const char *what, const char *text)
{
    (void)fprintf(stderr, "drive: no such %s: '%s'\n", what, text ? text : "");
    abort();
}

static struct role_spec *role_named(struct job_spec *s, struct span name)
{
    for (size_t i = 0; i < s->n_roles; i++) {
        if (span_eqs(name, s->roles[i].name))
            return &s->roles[i];
    }
    return NULL;
}

static uint32_t role_at(struct job_spec *s, struct span name)
{
    struct role_spec *r = role_named(s, name);
    assert(r);
    return (uint32_t)(r - s->roles);
}

int64_t drive_number(struct span text)
{
    int64_t n = 0;
    int rc = str_i64(text, -1000000000, 1000000000, "number", &n, NULL);
    assert(rc == 0);
    return n;
}

static void add_number(uint32_t **list, size_t *n, uint32_t role)
{
    *list = realloc(*list, (*n + 1) * sizeof **list);
    (*list)[(*n)++] = role;
}

static void add_gate(struct job_spec *s, struct role_spec *r, uint32_t on, bool ready)
{
    r->gates = realloc(r->gates, (r->n_gates + 1) * sizeof *r->gates);
    r->gates[r->n_gates++] = (struct role_gate){ .role = on, .ready = ready };
    for (size_t i = 0; i < s->roles[on].n_waits_for; i++) /* src/conf does the same */
        add_number(&r->waits_for, &r->n_waits_for, s->roles[on].waits_for[i]);
    if (ready && !s->roles[on].ready)
        s->roles[on].ready = str_dup("word");
}

static void add_waits(struct job_spec *s, struct role_spec *r, struct span list)
{
    struct span one, name;
    while (span_split(&list, ',', &one)) {
        (void)span_split(&one, ':', &name);
        uint32_t on = role_at(s, name);
        if (span_eqs(one, "started") || span_eqs(one, "ready")) {
            add_gate(s, r, on, span_eqs(one, "ready"));
            continue;
        }
        add_number(&r->waits_for, &r->n_waits_for, on);
        if (span_eqs(one, "succeeded"))
            add_number(&r->needs, &r->n_needs, on);
    }
}

static void add_codes(struct code_list *l, struct span text)
{
    struct span from;
    (void)span_split(&text, '-', &from);
    l->v = realloc(l->v, (l->n + 1) * sizeof *l->v);
    l->v[l->n++] =
        (struct code_range){ (int)drive_number(from), (int)drive_number(text.len ? text : from) };
}

static bool takes(struct span *text, const char *word)
{
    size_t len = strlen(word);
    if (text->len < len || memcmp(text->p, word, len) != 0)
        return false;
    *text = span_mem(text->p + len, text->len - len);
    return true;
}

static bool resize_flag(struct role_spec *r, struct span part)
{
    if (span_eqs(part, "restart"))
        r->resize = RESIZE_RESTART;
    else if (span_eqs(part, "live"))
        r->resize = RESIZE_LIVE;
    else if (span_eqs(part, "fixed"))
        r->resize = RESIZE_NEVER;
    else if (takes(&part, "min"))
        r->min_instances = (uint32_t)drive_number(part);
    else if (takes(&part, "cap"))
        r->max_instances = drive_number(part);
    else
        return false;
    return true;
}

static void restart_flag(struct role_spec *r, struct span part)
{
    if (resize_flag(r, part))
        return;
    if (span_eqs(part, "on"))
        r->restart = RESTART_ON_FAILURE;
    else if (span_eqs(part, "always"))
        r->restart = RESTART_ALWAYS;
    else if (span_eqs(part, "never"))
        r->restart = RESTART_NEVER;
    else if (span_eqs(part, "scope-task"))
        r->restart_scope = SCOPE_TASK;
    else if (span_eqs(part, "scope-role"))
        r->restart_scope = SCOPE_ROLE;
    else if (span_eqs(part, "scope-job"))
        r->restart_scope = SCOPE_JOB;
    else if (takes(&part, "max"))
        r->max_restarts = drive_number(part);
    else if (takes(&part, "win"))
        r->restart_window_ms = (uint64_t)drive_number(part);
    else if (takes(&part, "delay"))
        r->restart_delay_ms = (uint64_t)drive_number(part);
    else if (takes(&part, "retry"))
        add_codes(&r->retry_on, part);
    else if (takes(&part, "noretry"))
        add_codes(&r->no_retry_on, part);
    else if (takes(&part, "spares"))
        r->spares = (uint32_t)drive_number(part);
    else
        drive_fail("a role's flag", NULL);
}

static void add_role(struct job_spec *s, struct span text)
{
    struct span name, part, flags;
    bool more = span_split(&text, '*', &name);
    assert(more);
    s->roles = realloc(s->roles, (s->n_roles + 1) * sizeof *s->roles);
    struct role_spec *r = &s->roles[s->n_roles++];
    *r = (struct role_spec){ .name = span_dup(name),
                             .max_instances = -1,
                             .memory_mib = 512,
                             .vcores = 1,
                             .kind = ROLE_TRACKED,
                             .max_restarts = 3 };
    flags = text;
    (void)span_split(&text, '<', &flags);
    (void)span_split(&flags, '/', &part);
    r->instances = (uint32_t)drive_number(part);
    s->n_tasks += r->instances;
    while (span_split(&flags, '/', &part)) {
        if (span_eqs(part, "untracked"))
            r->kind = ROLE_UNTRACKED;
        else if (span_eqs(part, "sidecar"))
            r->kind = ROLE_SIDECAR;
        else if (span_eqs(part, "stop"))
            r->stop_on_failure = true;
        else if (takes(&part, "stops-"))
            add_number(&r->stops, &r->n_stops, role_at(s, part));
        else
            restart_flag(r, part);
    }
    if (text.len)
        add_waits(s, r, text);
}

/* role/ms/member+member[/ignored] */
static void add_group(struct job_spec *s, struct span text)
{
    struct span part, member;
    s->group_timeouts =
        realloc(s->group_timeouts, (s->n_group_timeouts + 1) * sizeof *s->group_timeouts);
    struct group_timeout *g = &s->group_timeouts[s->n_group_timeouts++];
    *g = (struct group_timeout){ .group = str_dup("A") };
    (void)span_split(&text, '/', &part);
    g->role = role_at(s, part);
    (void)span_split(&text, '/', &part);
    g->timeout_ms = (uint64_t)drive_number(part);
    (void)span_split(&text, '/', &part);
    g->members = calloc(8, sizeof *g->members);
    while (g->n_members < 8 && span_split(&part, '+', &member))
        g->members[g->n_members++] = role_at(s, member);
    g->ignored = span_eqs(text, "ignored");
}

static void set(struct job_spec *s, struct span key, struct span value)
{
    if (span_eqs(key, "limit")) {
        add_group(s, value);
        return;
    }
    if (span_eqs(key, "after")) {
        struct span role;
        (void)span_split(&value, '<', &role);
        add_waits(s, role_named(s, role), value);
        return;
    }
    int64_t v = drive_number(value);
    if (span_eqs(key, "gives") || span_eqs(key, "nodes") || span_eqs(key, "nogrant"))
        return; /* a setting of the scheduler, not of the job: see drive_init() */
    if (span_eqs(key, "gang"))
        s->gang = v;
    else if (span_eqs(key, "fail"))
        s->fail_on_worker_failure = v;
    else if (span_eqs(key, "app"))
        s->app_timeout_ms = (uint64_t)v;
    else if (span_eqs(key, "alloc"))
        s->allocation_timeout_ms = (uint64_t)v;
    else if (span_eqs(key, "reg"))
        s->registration_timeout_ms = (uint64_t)v;
    else if (span_eqs(key, "exec"))
        s->execution_timeout_ms = (uint64_t)v;
    else if (span_eqs(key, "beat"))
        s->heartbeat_ms = (uint32_t)v;
    else if (span_eqs(key, "missed"))
        s->max_missed_heartbeats = (uint32_t)v;
    else if (span_eqs(key, "grace"))
        s->kill_grace_ms = (uint32_t)v;
    else if (span_eqs(key, "away"))
        s->client_away_ms = v;
    else if (span_eqs(key, "retries"))
        s->am_retry_count = (uint32_t)v;
    else if (span_eqs(key, "lease"))
        s->master_away_ms = (uint32_t)v;
    else if (span_eqs(key, "lost"))
        s->restarts[END_NODE_LOST] = (uint32_t)v;
    else if (span_eqs(key, "pre"))
        s->restarts[END_PREEMPTED] = (uint32_t)v;
    else if (span_eqs(key, "disk"))
        s->restarts[END_DISK_FAILED] = (uint32_t)v;
    else if (span_eqs(key, "launch"))
        s->restarts[END_LAUNCH_FAILED] = (uint32_t)v;
    else if (span_eqs(key, "nodefail"))
        s->node_max_failures = (uint32_t)v;
    else if (span_eqs(key, "nodewin"))
        s->node_window_ms = (uint64_t)v;
    else if (span_eqs(key, "single"))
        s->single_node = v;
    else
        drive_fail("a setting", NULL);
}

struct job_spec *drive_spec(const char *text)
{
    struct job_spec *s = calloc(1, sizeof *s);
    struct span rest = span_of(text), word, key;

    *s = (struct job_spec){
        .name = str_dup("test"),
        .gang = true,
        .heartbeat_ms = 1000,
        .max_missed_heartbeats = 25,
        .client_away_ms = 60000,
        .kill_grace_ms = 5000,
        .resize_timeout_ms = 60000,
        .am = { .name = str_dup("am"), .instances = 1, .memory_mib = 2048, .kind = ROLE_TRACKED }
    };
    while (span_split(&rest, ' ', &word)) {
        if (!word.len)
            continue;
        if (memchr(word.p, '*', word.len)) {
            add_role(s, word);
        } else {
            (void)span_split(&word, '=', &key);
            set(s, key, word);
        }
    }
    return s;
}

void drive_spec_free(struct job_spec *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_roles; i++) {
        free(s->roles[i].name);
        free(s->roles[i].waits_for);
        free(s->roles[i].needs);
        free(s->roles[i].gates);
        free(s->roles[i].stops);
        free(s->roles[i].ready);
        free(s->roles[i].retry_on.v);
        free(s->roles[i].no_retry_on.v);
    }
    for (size_t i = 0; i < s->n_group_timeouts; i++) {
        free(s->group_timeouts[i].group);
        free(s->group_timeouts[i].members);
    }
    free(s->group_timeouts);
    free(s->roles);
    free(s->name);
    free(s->am.name);
    free(s);
}
