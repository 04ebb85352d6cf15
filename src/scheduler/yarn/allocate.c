/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heartbeat: allocate calls to the ResourceManager. For the ResourceManager, an ask is the
 * number of wanted containers (0 or 1) for the key (priority, slot). Each allocate call contains
 * the asks that have changed. A changed ask is sent with each call until the answer to a call that
 * contained the ask has certainly arrived.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "codec/arena.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include "scheduler/slots.h"
#include "scheduler/yarn/yarn_int.h"

/* ---- asks ---- */

struct ask *yarn_find_ask(const struct yarn *y, uint32_t slot)
{
    size_t at = slots_place(y->asks.v, y->asks.n, sizeof *y->asks.v, slot);
    return at < y->asks.n && y->asks.v[at].slot == slot ? &y->asks.v[at] : NULL;
}

static struct ask *ask_get(struct yarn *y, uint32_t slot)
{
    size_t at = slots_place(y->asks.v, y->asks.n, sizeof *y->asks.v, slot);
    if (at < y->asks.n && y->asks.v[at].slot == slot)
        return &y->asks.v[at];
    if (vec_push(&y->asks, (struct ask){ 0 }) < 0)
        return NULL;
    memmove(&y->asks.v[at + 1], &y->asks.v[at], (y->asks.n - 1 - at) * sizeof *y->asks.v);
    y->asks.v[at] = (struct ask){ .slot = slot };
    return &y->asks.v[at];
}

/* The role of a slot. If an earlier master requested the slot, this one may not have an ask for it;
 * the slots of the submitted job are numbered in the order of its roles. */
const char *yarn_slot_role(const struct yarn *y, uint32_t slot)
{
    const struct job_spec *s = y->cfg.spec;
    const struct ask *a = yarn_find_ask(y, slot);
    uint32_t at = slot;
    if (a && a->role)
        return a->role;
    for (size_t r = 0; s && r < s->n_roles; at -= s->roles[r++].instances)
        if (at < s->roles[r].instances)
            return s->roles[r].name;
    return "";
}

int yarn_learn_roles(struct yarn *y, const struct sched_ask *whole, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct ask *a = whole[i].role ? ask_get(y, whole[i].slot) : NULL;
        if (whole[i].role && !a)
            return -ENOMEM;
        if (a && !a->role && !(a->role = str_dup(whole[i].role)))
            return -ENOMEM;
    }
    for (struct map_entry *x = map_next(&y->boxes, NULL); x; x = map_next(&y->boxes, x)) {
        struct box *b = x->value;
        const char *role = yarn_slot_role(y, b->slot);
        if (str_eq(b->role, role))
            continue;
        char *copy = str_dup(role);
        if (!copy)
            return -ENOMEM;
        free(b->role);
        b->role = copy;
    }
    return 0;
}

static const char *role_amount(const struct yarn *y, const char *role, const char *type)
{
    const struct yarn_role *r = yarn_file_role(y->file, role);
    return r ? strv_env_get(&r->types, type) : NULL;
}

static uint64_t parse_amount(const char *s)
{
    int64_t v = 0;
    return s && str_i64(span_of(s), 0, INT64_MAX, "amount", &v, NULL) == 0 ? (uint64_t)v : 0;
}

/* The amount of a resource type, other than memory and vcores, that a container of the ask needs.
 */
static uint64_t yarn_amount(const struct yarn *y, const struct ask *a, const char *type)
{
    const char *s = role_amount(y, a->role, type);
    s = s ? s : role_amount(y, "", type);
    return !s && str_eq(type, "yarn.io/gpu") ? a->gpus : parse_amount(s);
}

int yarn_each_type(const struct yarn *y, const struct ask *a,
                   int (*fn)(const char *type, uint64_t amount, void *arg), void *arg)
{
    AUTO(strv_done) struct strv seen = { 0 };
    const struct yarn_role *from[] = { yarn_file_role(y->file, a->role),
                                       yarn_file_role(y->file, "") };
    int rc = strv_env_set(&seen, "yarn.io/gpu", "");
    for (size_t r = 0; r < ARRAY_LEN(from); r++) {
        for (size_t i = 0; rc == 0 && from[r] && i < from[r]->types.n; i++) {
            const char *t = from[r]->types.v[i];
            AUTO(free_p) char *name = span_dup((struct span){ t, strcspn(t, "=") });
            rc = name ? strv_env_set(&seen, name, "") : -ENOMEM;
        }
    }
    for (size_t i = 0; rc == 0 && i < seen.n; i++) {
        seen.v[i][strcspn(seen.v[i], "=")] = 0;
        uint64_t n = yarn_amount(y, a, seen.v[i]);
        rc = n ? fn(seen.v[i], n, arg) : 0;
    }
    return rc;
}

int yarn_learn_max(struct yarn *y, const Hadoop__Resource *max)
{
    int rc = 0;
    y->max_memory = max ? max->memory : 0;
    y->max_vcores = max ? max->virtual_cores : 0;
    strv_done(&y->max_types);
    for (size_t i = 0; max && rc == 0 && i < max->n_resource_value_map; i++)
        rc = strv_pushf(&y->max_types, "%s=%lld", max->resource_value_map[i]->key,
                        (long long)max->resource_value_map[i]->value);
    return rc;
}

/* Why the cluster can never grant an ask. */
struct excess {
    const struct yarn *y;
    char text[300]; /* "" = it can */
};

static int check_type_fits(const char *type, uint64_t amount, void *arg)
{
    struct excess *t = arg;
    const char *has = strv_env_get(&t->y->max_types, type);
    if (parse_amount(has) < amount)
        (void)snprintf(t->text, sizeof t->text,
                       has ? "asks for %llu of '%s', and this cluster gives %s at most"
                           : "asks for %llu of '%s', which this cluster does not know",
                       (unsigned long long)amount, type, has);
    return 0;
}

/* Compare the ask with the largest possible container. */
static void find_excess(struct excess *t, const struct ask *a)
{
    const struct yarn *y = t->y;
    if (!y->max_memory)
        return;
    if (a->memory_mib > (uint64_t)y->max_memory)
        (void)snprintf(t->text, sizeof t->text,
                       "asks for %llu MiB, and this cluster gives a container %lld MiB at most",
                       (unsigned long long)a->memory_mib, (long long)y->max_memory);
    else if (y->max_vcores > 0 && a->vcores > (uint32_t)y->max_vcores)
        (void)snprintf(t->text, sizeof t->text,
                       "asks for %u vcores, and this cluster gives a container %d at most",
                       a->vcores, y->max_vcores);
    else
        (void)yarn_each_type(y, a, check_type_fits, t);
}

static void set_open(struct yarn *y, struct ask *a, bool open)
{
    if (a->open != open) {
        y->n_open += open ? 1 : -1u;
        if (open)
            y->open_since = clock_mono_ms();
    }
    a->open = open;
}

static bool has_box(const struct ask *a)
{
    for (const struct box *b = a->boxes; b; b = b->next_of_slot)
        if (b->state != BOX_ENDED && !b->stop_wanted && !b->released)
            return true;
    return false;
}

void yarn_unlink_slot(struct yarn *y, struct box *b)
{
    struct ask *a = yarn_find_ask(y, b->slot);
    for (struct box **at = a ? &a->boxes : NULL; at && *at; at = &(*at)->next_of_slot)
        if (*at == b) {
            *at = b->next_of_slot;
            return;
        }
}

/* Change the preferred node. The earlier one is kept until the ResourceManager has been told that
 * it is not wanted any more. */
static int set_node(struct ask *a, const char *node)
{
    if (str_eq(a->node, node))
        return 0;
    char *copy = node ? str_dup(node) : NULL;
    if (node && !copy)
        return -ENOMEM;
    if (a->node) {
        free(a->old_node);
        a->old_node = a->node;
    }
    a->node = copy;
    a->dirty |= a->open;
    return 0;
}

int yarn_ask(struct yarn *y, const struct sched_ask *from)
{
    struct excess t = { .y = y };
    struct ask *a = ask_get(y, from->slot);
    if (!a)
        return -ENOMEM;
    char *role = str_dup(from->role ? from->role : yarn_slot_role(y, from->slot));
    if (!role)
        return -ENOMEM;
    free(a->role);
    a->role = role;
    a->memory_mib = MAX(from->memory_mib, (uint64_t)1);
    a->vcores = MAX(from->vcores, 1u);
    a->gpus = from->gpus;
    if (has_box(a))
        return 0;
    int rc = set_node(a, from->node);
    if (rc < 0 || a->open)
        return rc;
    find_excess(&t, a);
    if (*t.text)
        return report_later(y, from->slot, NULL, t.text);
    set_open(y, a, true);
    a->dirty = true;
    return 0;
}

void yarn_release(struct yarn *y, const struct yarn_container *id)
{
    for (size_t i = 0; i < y->releases.n; i++)
        if (yarn_container_eq(&y->releases.v[i].id, id))
            return;
    if (vec_push(&y->releases, (struct release){ .id = *id }) < 0)
        log_event(LOG_ERROR, "container.not_released"); /* no memory; YARN takes it back later */
    yarn_wake(y);
}

/* ---- nodes to avoid ---- */

/* YARN names nodes by their host; with yarn.scheduler.include-port-in-node-name, by host and port.
 * The caller passes both names: YARN ignores the wrong one. */
static int avoid_name(struct yarn *y, struct span name, bool avoid)
{
    for (size_t i = 0; i < y->avoided.n; i++) {
        struct avoided *a = &y->avoided.v[i];
        if (!span_eqs(name, a->host))
            continue;
        a->dirty |= a->avoid != avoid;
        a->avoid = avoid;
        return 0;
    }
    struct avoided a = { .host = span_dup(name), .avoid = avoid, .dirty = avoid };
    if (!a.host || vec_push(&y->avoided, a) < 0) {
        free(a.host);
        return -ENOMEM;
    }
    return 0;
}

int yarn_avoid(struct yarn *y, const char *node, bool avoid)
{
    const char *colon = strrchr(node, ':');
    int rc = avoid_name(y, span_of(node), avoid);
    if (rc == 0 && colon)
        rc = avoid_name(y, span_mem(node, (size_t)(colon - node)), avoid);
    yarn_wake(y);
    return rc;
}

static int add_avoided(struct yarn *y, struct arena *a, Hadoop__AllocateRequest *rq)
{
    Hadoop__ResourceBlacklistRequest *m = arena_alloc(a, sizeof *m);
    size_t n = y->avoided.n + 1;
    if (!m)
        return -ENOMEM;
    hadoop__resource_blacklist_request__init(m);
    m->blacklist_additions = arena_alloc(a, n * sizeof(char *));
    m->blacklist_removals = arena_alloc(a, n * sizeof(char *));
    if (!m->blacklist_additions || !m->blacklist_removals)
        return -ENOMEM;
    for (size_t i = 0; i < y->avoided.n; i++) {
        struct avoided *x = &y->avoided.v[i];
        if (!x->dirty)
            continue;
        if (x->avoid)
            m->blacklist_additions[m->n_blacklist_additions++] = x->host;
        else
            m->blacklist_removals[m->n_blacklist_removals++] = x->host;
        x->inflight = true;
        rq->blacklist_request = m;
    }
    return 0;
}

bool yarn_has_news(const struct yarn *y)
{
    for (size_t i = 0; i < y->avoided.n; i++)
        if (y->avoided.v[i].dirty)
            return true;
    for (size_t i = 0; i < y->asks.n; i++)
        if (y->asks.v[i].dirty)
            return true;
    return y->releases.n > 0;
}

void yarn_replay(struct yarn *y)
{
    for (size_t i = 0; i < y->asks.n; i++) {
        y->asks.v[i].dirty = y->asks.v[i].open;
        y->asks.v[i].inflight = false;
    }
    for (size_t i = 0; i < y->releases.n; i++)
        y->releases.v[i].inflight = false;
    for (size_t i = 0; i < y->avoided.n; i++) {
        y->avoided.v[i].dirty = y->avoided.v[i].avoid;
        y->avoided.v[i].inflight = false;
    }
    y->doubtful = false;
}

int64_t yarn_beat_ms(const struct yarn *y)
{
    int64_t open_ms = clock_mono_ms() - y->open_since, ms = YARN_BEAT_MS;
    if (y->n_open)
        ms = open_ms < YARN_BEAT_SOON_MS ? (int64_t)YARN_BEAT_FAST_MS
                                         : MIN(open_ms / YARN_BEAT_SHARE, (int64_t)YARN_BEAT_MS);
    if (y->beat_soon)
        ms = YARN_BEAT_FAST_MS;
    if (y->file->am_expiry_ms)
        ms = MIN(ms, MAX(y->file->am_expiry_ms / 3, (int64_t)YARN_BEAT_FAST_MS));
    return ms;
}

/* ---- the request ---- */

static int add_releases(struct yarn *y, struct arena *a, Hadoop__AllocateRequest *rq)
{
    rq->release = arena_alloc(a, (y->releases.n + 1) * sizeof(void *));
    for (size_t i = 0; rq->release && i < y->releases.n; i++) {
        struct yarn_id_msg *id = arena_alloc(a, sizeof *id);
        if (!id)
            return -ENOMEM;
        rq->release[rq->n_release++] = yarn_container_msg(id, &y->releases.v[i].id);
        y->releases.v[i].inflight = true;
        if (y->single_release)
            break;
    }
    return rq->release ? 0 : -ENOMEM;
}

/* ---- the answer ---- */

int yarn_take_tokens(struct yarn *y, Hadoop__NmToken **v, size_t n)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct node *node = node_get(y, v[i]->node_id, NULL);
        rc = node && v[i]->token ? node_token(node, v[i]->token) : -ENOMEM;
    }
    return rc;
}

struct box *yarn_adopt(struct yarn *y, const Hadoop__Container *c, bool launched)
{
    struct box *b = calloc(1, sizeof *b);
    if (!b || !yarn_container_get(c->id, &b->key))
        goto failed;
    (void)yarn_container_text(&b->key, b->id);
    b->slot = (uint32_t)c->allocation_request_id;
    b->state = launched ? BOX_STARTED : BOX_GRANTED;
    b->role = str_dup(yarn_slot_role(y, b->slot));
    b->node = node_get(y, c->node_id, c->node_http_address);
    b->log_url = str_printf("http%s://%s/node/containerlogs/%s/%s", y->file->https ? "s" : "",
                            c->node_http_address ? c->node_http_address : "", b->id, y->file->user);
    if (!b->role || !b->node || !b->log_url ||
        (c->container_token && token_from_msg(c->container_token, &b->token) < 0) ||
        vec_push(&b->node->boxes, b) < 0)
        goto failed;
    struct ask *a = ask_get(y, b->slot);
    if (a && map_set(&y->boxes, b->id, b, NULL) == 0) {
        b->next_of_slot = a->boxes;
        a->boxes = b;
        return b;
    }
    box_leave_node(b);
failed:
    if (b)
        box_free(b);
    return NULL;
}

struct shortfall {
    const Hadoop__Container *c;
    char text[240];
};

/* Does the granted container have the amount that the ask needs? */
static int check_type_granted(const char *type, uint64_t amount, void *arg)
{
    struct shortfall *s = arg;
    int64_t has = 0;
    for (size_t i = 0; s->c->resource && i < s->c->resource->n_resource_value_map; i++)
        if (str_eq(s->c->resource->resource_value_map[i]->key, type))
            has = s->c->resource->resource_value_map[i]->value;
    if ((uint64_t)has < amount)
        (void)snprintf(s->text, sizeof s->text,
                       "the cluster granted %lld of %llu '%s': it does not know this resource",
                       (long long)has, (unsigned long long)amount, type);
    return 0;
}

static void on_granted(struct yarn *y, const Hadoop__Container *c)
{
    struct yarn_container key;
    int64_t id = c->allocation_request_id;
    struct ask *a = id >= 0 && id < SCHED_NO_SLOT ? yarn_find_ask(y, (uint32_t)id) : NULL;

    if (!yarn_container_get(c->id, &key) || box_find(y, c->id))
        return;           /* the ResourceManager has repeated the grant */
    if (!a || !a->open) { /* the ask was withdrawn while the grant was under way */
        log_event(LOG_INFO, "container.surplus", f_int("slot", id));
        yarn_release(y, &key);
        return;
    }
    set_open(y, a, false);
    y->open_since = clock_mono_ms();
    struct shortfall s = { .c = c };
    (void)yarn_each_type(y, a, check_type_granted, &s);
    if (*s.text) {
        yarn_release(y, &key);
        yarn_emit(
            y, &(struct sched_event){ .type = SE_REFUSED, .slot = (uint32_t)id, .text = s.text });
        return;
    }
    struct box *b = yarn_adopt(y, c, false);
    if (!b) {
        yarn_broken(y, "no memory for a container");
        return;
    }
    struct sched_container v;
    box_view(b, &v);
    log_event(LOG_INFO, "container.granted", f_str("container", b->id), f_int("slot", b->slot),
              f_str("node", b->node->id));
    yarn_emit(y, &(struct sched_event){ .type = SE_ALLOCATED, .containers = &v, .n = 1 });
}

static void on_container_completed(struct yarn *y, const Hadoop__ContainerStatus *s)
{
    struct box *b = box_find(y, s->container_id);
    if (!b)
        return;
    box_end(y, b, s->exit_status, s->diagnostics);
    box_forget(y, b);
}

/* An allocate call has ended. If it certainly arrived, its asks and releases are complete. If it
 * did not, or if the answer may belong to an earlier call, send them again. */
static void settle_request(struct yarn *y, bool arrived)
{
    size_t kept = 0;
    for (size_t i = 0; i < y->asks.n; i++) {
        struct ask *a = &y->asks.v[i];
        if (a->inflight && !arrived)
            a->dirty = true;
        if (a->inflight && arrived && !a->dirty) {
            free(a->old_node);
            a->old_node = NULL;
        }
        a->inflight = false;
    }
    for (size_t i = 0; i < y->avoided.n; i++) {
        y->avoided.v[i].dirty |= y->avoided.v[i].inflight && !arrived;
        y->avoided.v[i].inflight = false;
    }
    for (size_t i = 0; i < y->releases.n; i++) {
        struct release r = y->releases.v[i];
        if (r.inflight && arrived)
            continue;
        r.inflight = false;
        y->releases.v[kept++] = r;
    }
    y->releases.n = kept;
}

/* Store the nodes' reports on their health. Call this before the ends of containers are handled: a
 * node may be the reason of an end, and the report is quoted then. */
static void note_node_reports(struct yarn *y, const Hadoop__AllocateResponse *r)
{
    for (size_t i = 0; i < r->n_updated_nodes; i++) {
        const Hadoop__NodeReport *x = r->updated_nodes[i];
        bool healthy = x->node_state == HADOOP__NODE_STATE__NS_RUNNING;
        if (!x->node_id || !x->node_id->host)
            continue;
        AUTO(free_p) char *name = str_printf("%s:%d", x->node_id->host, x->node_id->port);
        struct node *n = name ? map_get(&y->nodes, name) : NULL;
        if (n) {
            free(n->health);
            n->health = healthy || !x->health_report || !*x->health_report
                            ? NULL
                            : str_dup(x->health_report); /* NULL: no memory for the report */
        }
        if (!healthy)
            log_event(LOG_WARN, "node.changed", f_str("node", name ? name : x->node_id->host),
                      f_int("state", x->node_state),
                      f_str("health", x->health_report ? x->health_report : ""));
    }
}

/* Report SE_PREEMPTING once for each container; YARN repeats the notice in each answer until the
 * container ends. With a negotiable contract, the master could give back other containers instead.
 * tony gives back none, so YARN takes the named ones. */
static void report_preempting(struct yarn *y, Hadoop__PreemptionContainer *const *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct box *b = v[i]->id ? box_find(y, v[i]->id) : NULL;
        if (!b || b->preempting || b->state == BOX_ENDED || b->stop_wanted)
            continue;
        b->preempting = true;
        struct sched_container c;
        box_view(b, &c);
        log_event(LOG_WARN, "container.preempting", f_str("container", b->id),
                  f_int("slot", b->slot));
        yarn_emit(y, &(struct sched_event){ .type = SE_PREEMPTING,
                                            .containers = &c,
                                            .n = 1,
                                            .deadline_ms = YARN_PREEMPT_MS });
    }
}

static void on_preemption(struct yarn *y, const Hadoop__AllocateResponse *r)
{
    if (r->preempt && r->preempt->strict_contract)
        report_preempting(y, r->preempt->strict_contract->container,
                          r->preempt->strict_contract->n_container);
    if (r->preempt && r->preempt->contract)
        report_preempting(y, r->preempt->contract->container, r->preempt->contract->n_container);
}

/* Containers of earlier masters that YARN reports only in the answer to a heartbeat. Before
 * SE_REGISTERED they are adopted; after it they are released. */
static void take_late_containers(struct yarn *y, const Hadoop__AllocateResponse *r)
{
    for (size_t i = 0; i < r->n_containers_from_previous_attempts; i++) {
        const Hadoop__Container *c = r->containers_from_previous_attempts[i];
        struct yarn_container key;
        if (box_find(y, c->id) || !yarn_container_get(c->id, &key))
            continue;
        if (y->registered || !yarn_adopt(y, c, true))
            yarn_release(y, &key);
    }
}

static void on_answer(struct yarn *y, const Hadoop__AllocateResponse *r)
{
    settle_request(y, !y->call_doubtful);
    y->doubtful = false;
    y->single_ask = y->single_ask && yarn_has_news(y);
    y->single_release = y->single_release && y->releases.n > 0;
    y->last_id = r->response_id;
    y->failing_since = 0;
    y->n_unexpected = 0;
    int rc = r->am_rm_token ? yarn_new_token(y, r->am_rm_token) : 0;
    if (rc == 0)
        rc = yarn_take_tokens(y, r->nm_tokens, r->n_nm_tokens);
    if (rc < 0) {
        yarn_broken(y, "no memory for the tokens of the cluster");
        return;
    }
    if (y->finishing) /* the job is over: ignore the answer */
        return;
    note_node_reports(y, r);
    y->answer_had_ends = r->n_completed_container_statuses > 0;
    if (!y->registered) {
        take_late_containers(y, r);
        yarn_tell_registered(y, r->completed_container_statuses, r->n_completed_container_statuses);
        return;
    }
    for (size_t i = 0; i < r->n_completed_container_statuses && y->phase != YP_OVER; i++)
        on_container_completed(y, r->completed_container_statuses[i]);
    for (size_t i = 0; i < r->n_allocated_containers && y->phase != YP_OVER; i++)
        on_granted(y, r->allocated_containers[i]);
    take_late_containers(y, r);
    if (y->phase != YP_OVER)
        on_preemption(y, r);
}

/* Take the response id from an error such as "... expect responseId to be 7 but get 5". */
static bool adopt_response_id(struct yarn *y, const char *line)
{
    static const char mark[] = "expect responseId to be ";
    const char *at = strstr(line, mark);
    int64_t id;
    if (!at)
        return false;
    at += sizeof mark - 1;
    if (str_i64((struct span){ at, strspn(at, "0123456789") }, 0, INT32_MAX, "id", &id, NULL) < 0)
        return false;
    y->last_id = (int32_t)id;
    return true;
}

/* The ResourceManager refuses a whole request because of one ask. To find out which, send the asks
 * one at a time. Then refuse all open asks of its role, which are equal. */
static void ask_refused(struct yarn *y, const char *why)
{
    const char *role = NULL;
    size_t n = 0;
    for (size_t i = 0; i < y->asks.n; i++) {
        n += y->asks.v[i].inflight;
        role = y->asks.v[i].inflight ? y->asks.v[i].role : role;
    }
    settle_request(y, false);
    if (n > 1) {
        y->single_ask = true;
        return;
    }
    for (size_t i = 0; role && i < y->asks.n; i++) {
        struct ask *a = &y->asks.v[i];
        if (a->dirty && str_eq(a->role, role)) {
            a->dirty = false;
            set_open(y, a, false);
            (void)report_later(y, a->slot, NULL, why);
        }
    }
}

static void release_refused(struct yarn *y, const char *why)
{
    if (y->releases.n > 1 && !y->single_release) {
        y->single_release = true;
    } else if (y->releases.n) {
        log_event(LOG_WARN, "container.not_released", f_str("why", why));
        y->releases.v[0] = y->releases.v[y->releases.n - 1];
        y->releases.n--;
    }
    settle_request(y, false);
}

static void on_allocate(const Hadoop__AllocateResponse *r, const struct rpc_error *e, void *arg)
{
    struct yarn *y = arg;
    y->call = NULL;
    y->next_ms = y->sent_ms;
    if (r && r->has_a_m_command && r->a_m_command == HADOOP__AM_COMMAND__AM_RESYNC) {
        yarn_replay(y);
        y->phase = YP_REGISTERING;
    } else if (r && r->has_a_m_command && r->a_m_command == HADOOP__AM_COMMAND__AM_SHUTDOWN) {
        yarn_broken(y, "the resource manager told this master to end");
    } else if (r) {
        on_answer(y, r);
    } else if (e->kind == RPC_FAULT_INVALID_RESOURCE) {
        ask_refused(y, *e->line ? e->line : e->err.msg);
    } else if (e->kind == RPC_FAULT_INVALID_RELEASE) {
        release_refused(y, e->err.msg);
    } else if (e->kind == RPC_FAULT_INVALID_REQUEST && adopt_response_id(y, e->line)) {
        settle_request(y, false);
    } else {
        settle_request(y, false);
        y->doubtful |= e->maybe_done;
        yarn_failed(y, e, "allocate");
    }
    yarn_step(y);
}

void yarn_heartbeat(struct yarn *y)
{
    struct arena a = { 0 };
    Hadoop__AllocateRequest rq = HADOOP__ALLOCATE_REQUEST__INIT;
    Hadoop__Priority priority = HADOOP__PRIORITY__INIT;
    priority.has_priority = true;
    priority.priority = YARN_PRIORITY;
    rq.has_response_id = rq.has_progress = true;
    rq.response_id = y->last_id;
    rq.progress = y->cfg.progress ? y->cfg.progress(y->cfg.arg) : 0;
    y->sent_ms = clock_mono_ms();
    y->beat_soon = false;
    y->call_doubtful = y->doubtful;
    if (yarn_add_asks(y, &a, &rq, &priority) == 0 && add_releases(y, &a, &rq) == 0 &&
        add_avoided(y, &a, &rq) == 0)
        y->call = y->wire->allocate(y->rm, &rq, y->sent_ms + YARN_CALL_MS, on_allocate, y);
    for (size_t i = 0; y->call && i < y->asks.n; i++)
        if (y->asks.v[i].inflight)
            y->asks.v[i].dirty = false; /* a later change sets it again */
    for (size_t i = 0; y->call && i < y->avoided.n; i++)
        if (y->avoided.v[i].inflight)
            y->avoided.v[i].dirty = false;
    if (!y->call)
        settle_request(y, false);
    arena_done(&a);
}
