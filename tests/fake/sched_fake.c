/* SPDX-License-Identifier: Apache-2.0 */
#include "sched_fake.h"

#include <errno.h>
#include <stdio.h>

#include "base/base.h"
#include "loop/loop.h"

enum due_kind {
    DUE_REGISTERED = 1,
    DUE_GRANT,
    DUE_REFUSE,
    DUE_END,
    DUE_TELL,
    DUE_WISH,
    DUE_FINISHED
};

struct due {
    enum due_kind kind;
    int64_t at;
    uint64_t order; /* for events at the same time: first come, first served */
    uint32_t slot;
    size_t container;
    int exit_code;
    enum end_reason reason;
    /* of a wish of the scheduler */
    enum sched_event_type wish;
    size_t n;
    int64_t deadline_ms;
    const char *why; /* also why fake_cluster_answer() refuses a request */
};

struct fake_cluster {
    const struct fake_rule *rules;
    size_t n_rules;
    struct fake_hooks hooks;
    /* Indexed by the last number of their ids, which count from 1. */
    VEC(struct fake_container) containers;
    VEC(size_t) newest;   /* by slot: number of its newest container; 0 = none */
    VEC(struct due) dues; /* a heap: dues.v[0] is due first */
    int64_t now;
    uint64_t order;
    struct sched *master; /* the back-end of the connected master; NULL = none */
    char finished[32];
    VEC(uint32_t) waiting; /* requests whose rule says never */
    VEC(uint32_t) whole;   /* from the last resize() */
    struct buf bounds;     /* text of all calls of bounds() */
    unsigned n_beyond;
    int fail_resize;
};

struct sched {
    const struct sched_ops *ops;
    struct fake_cluster *cluster;
    struct sched_config cfg;
    struct loop_timer *timer;
    bool registered;
    void (*done)(void *arg);
};

static const struct fake_rule friendly = { .slot = FAKE_ANY, .complete_ms = -1 };
static struct fake_cluster *chosen;

static const struct fake_rule *rule_for(const struct fake_cluster *c, uint32_t slot)
{
    for (size_t i = 0; i < c->n_rules; i++) {
        if (c->rules[i].slot == FAKE_ANY || c->rules[i].slot == slot)
            return &c->rules[i];
    }
    return &friendly;
}

static void rearm(struct fake_cluster *c)
{
    int64_t next = fake_cluster_next(c);
    if (c->master && c->master->timer && next != INT64_MAX)
        loop_timer_set(c->master->timer, next);
}

/* ---- due events, in order ---- */

static bool is_before(const struct due *a, const struct due *b)
{
    return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static int due_push(struct fake_cluster *c, struct due d)
{
    int rc = vec_push(&c->dues, d);
    size_t at = c->dues.n - 1;
    for (; rc == 0 && at > 0 && is_before(&d, &c->dues.v[(at - 1) / 2]); at = (at - 1) / 2)
        c->dues.v[at] = c->dues.v[(at - 1) / 2];
    if (rc == 0)
        c->dues.v[at] = d;
    return rc;
}

static struct due due_pop(struct fake_cluster *c)
{
    struct due first = c->dues.v[0], last = c->dues.v[--c->dues.n];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < c->dues.n && is_before(&c->dues.v[child + 1], &c->dues.v[child]))
            child++;
        if (child >= c->dues.n || is_before(&last, &c->dues.v[child]))
            break;
        c->dues.v[at] = c->dues.v[child];
        at = child;
    }
    c->dues.v[at] = last;
    return first;
}

static int plan(struct fake_cluster *c, struct due d, int64_t after)
{
    if (c->master && c->master->cfg.loop)
        c->now = clock_mono_ms();
    d.at = c->now + after;
    d.order = ++c->order;
    int rc = due_push(c, d);
    rearm(c);
    return rc;
}

/* ---- calls of the test ---- */

struct fake_cluster *fake_cluster_new(const struct fake_rule *rules, size_t n)
{
    struct fake_cluster *c = calloc(1, sizeof *c);
    if (c) {
        c->rules = rules;
        c->n_rules = n;
    }
    return c;
}

void fake_cluster_free(struct fake_cluster *c)
{
    if (!c)
        return;
    vec_done(&c->containers);
    vec_done(&c->newest);
    vec_done(&c->dues);
    vec_done(&c->waiting);
    vec_done(&c->whole);
    buf_done(&c->bounds);
    free(c);
}

void fake_cluster_hooks(struct fake_cluster *c, const struct fake_hooks *h)
{
    c->hooks = *h;
}

size_t fake_cluster_n(const struct fake_cluster *c)
{
    return c->containers.n;
}

const struct fake_container *fake_cluster_at(const struct fake_cluster *c, size_t i)
{
    return &c->containers.v[i];
}

const char *fake_cluster_finished(const struct fake_cluster *c)
{
    return *c->finished ? c->finished : NULL;
}

static size_t container_named(const struct fake_cluster *c, const char *id)
{
    const char *number = strrchr(id, '_');
    size_t n = number ? strtoul(number + 1, NULL, 10) : 0;
    bool is = n > 0 && n <= c->containers.n && str_eq(c->containers.v[n - 1].id, id);
    return is ? n - 1 : c->containers.n;
}

static void end_container(struct fake_cluster *c, size_t i, int exit_code, enum end_reason reason)
{
    struct fake_container *x = &c->containers.v[i];
    if (x->state != FAKE_LAUNCHED && x->state != FAKE_GRANTED)
        return;
    x->state = FAKE_ENDED;
    x->exit_code = exit_code;
    x->reason = reason;
    x->ended_ms = c->now;
    (void)plan(c, (struct due){ .kind = DUE_TELL, .container = i }, 0);
}

void fake_cluster_exit(struct fake_cluster *c, const char *id, int exit_code,
                       enum end_reason reason)
{
    size_t i = container_named(c, id);
    if (i < c->containers.n)
        end_container(c, i, exit_code, reason);
}

void fake_cluster_forget(struct fake_cluster *c, const char *id)
{
    size_t i = container_named(c, id);
    if (i < c->containers.n && c->containers.v[i].state != FAKE_ENDED)
        c->containers.v[i].state = FAKE_RELEASED;
}

static struct sched_container view(const struct fake_cluster *c, const struct fake_container *x)
{
    return (struct sched_container){ .id = x->id,
                                     .slot = x->slot,
                                     .gpus = rule_for(c, x->slot)->gpus,
                                     .launched = x->n_launches > 0,
                                     .completed = x->state == FAKE_ENDED,
                                     .exit_code = x->exit_code,
                                     .reason = x->reason,
                                     .age_us = (uint64_t)(c->now - x->ended_ms) * 1000,
                                     .detail = "" };
}

static void tell(struct fake_cluster *c, const struct sched_event *ev)
{
    if (c->master && (c->master->registered || ev->type == SE_REGISTERED))
        c->master->cfg.on_event(ev, c->master->cfg.arg);
}

static void tell_all(struct fake_cluster *c)
{
    VEC(struct sched_container) known = { 0 };
    for (size_t i = 0; i < c->containers.n; i++) {
        if (c->containers.v[i].state != FAKE_RELEASED)
            (void)vec_push(&known, view(c, &c->containers.v[i]));
    }
    tell(c, &(struct sched_event){ .type = SE_REGISTERED, .containers = known.v, .n = known.n });
    vec_done(&known);
}

static void grant(struct fake_cluster *c, uint32_t slot)
{
    struct fake_container x = { .slot = slot, .state = FAKE_GRANTED };
    while (c->newest.n <= slot)
        if (vec_push(&c->newest, 0) < 0)
            return;
    size_t has = c->newest.v[slot];
    const struct fake_container *old = has ? &c->containers.v[has - 1] : NULL;
    if (old && (old->state == FAKE_GRANTED || old->state == FAKE_LAUNCHED) && !old->n_stops)
        return; /* requested twice, granted once */
    (void)snprintf(x.id, sizeof x.id, "container_1_0001_01_%06zu", c->containers.n + 1);
    if (vec_push(&c->containers, x) < 0)
        return;
    c->newest.v[slot] = c->containers.n;
    struct sched_container v = view(c, &x);
    tell(c, &(struct sched_event){ .type = SE_ALLOCATED, .containers = &v, .n = 1 });
}

static void happen(struct fake_cluster *c, const struct due *d)
{
    struct fake_container *x =
        d->kind == DUE_END || d->kind == DUE_TELL ? &c->containers.v[d->container] : NULL;

    switch (d->kind) {
    case DUE_REGISTERED:
        if (c->master) {
            c->master->registered = true;
            tell_all(c);
        }
        break;
    case DUE_GRANT:
        grant(c, d->slot);
        break;
    case DUE_REFUSE:
        tell(c, &(struct sched_event){ .type = SE_REFUSED,
                                       .slot = d->slot,
                                       .text = d->why ? d->why : rule_for(c, d->slot)->refuse });
        break;
    case DUE_WISH:
        tell(c, &(struct sched_event){
                    .type = d->wish, .n = d->n, .deadline_ms = d->deadline_ms, .text = d->why });
        break;
    case DUE_END:
        end_container(c, d->container, d->exit_code, d->reason);
        break;
    case DUE_TELL: {
        struct sched_container v = view(c, x);
        x->n_completions++;
        tell(c, &(struct sched_event){ .type = SE_COMPLETED, .containers = &v, .n = 1 });
        break;
    }
    case DUE_FINISHED:
        if (c->master && c->master->done)
            c->master->done(c->master->cfg.arg);
        break;
    }
}

int64_t fake_cluster_next(const struct fake_cluster *c)
{
    return c->dues.n ? c->dues.v[0].at : INT64_MAX;
}

void fake_cluster_run(struct fake_cluster *c, int64_t now_ms)
{
    c->now = MAX(c->now, now_ms);
    while (fake_cluster_next(c) <= c->now) {
        struct due one = due_pop(c);
        happen(c, &one);
    }
    rearm(c);
}

/* ---- resizing ---- */

int fake_cluster_wish(struct fake_cluster *c, enum sched_event_type type, size_t n,
                      int64_t deadline_ms, const char *why)
{
    return plan(
        c,
        (struct due){
            .kind = DUE_WISH, .wish = type, .n = n, .deadline_ms = deadline_ms, .why = why },
        0);
}

static bool forget_waiting(struct fake_cluster *c, uint32_t slot)
{
    for (size_t i = 0; i < c->waiting.n; i++) {
        if (c->waiting.v[i] != slot)
            continue;
        vec_remove_fast(&c->waiting, i);
        return true;
    }
    return false;
}

int fake_cluster_answer(struct fake_cluster *c, uint32_t slot, const char *refuse)
{
    if (!forget_waiting(c, slot))
        return -ENOENT;
    return plan(
        c, (struct due){ .kind = refuse ? DUE_REFUSE : DUE_GRANT, .slot = slot, .why = refuse }, 0);
}

size_t fake_cluster_n_waiting(const struct fake_cluster *c)
{
    return c->waiting.n;
}

size_t fake_cluster_whole(const struct fake_cluster *c)
{
    return c->whole.n;
}

bool fake_cluster_in_whole(const struct fake_cluster *c, uint32_t slot)
{
    for (size_t i = 0; i < c->whole.n; i++)
        if (c->whole.v[i] == slot)
            return true;
    return c->whole.n == 0;
}

unsigned fake_cluster_n_beyond(const struct fake_cluster *c)
{
    return c->n_beyond;
}

const char *fake_cluster_bounds(const struct fake_cluster *c)
{
    return buf_cstr(&c->bounds);
}

void fake_cluster_fail_resize(struct fake_cluster *c, int num)
{
    c->fail_resize = num;
}

/* ---- calls of the master ---- */

static void on_timer(void *arg)
{
    fake_cluster_run(arg, clock_mono_ms());
}

static int fake_open(const struct sched_config *cfg, struct sched **out, struct err *e)
{
    struct sched *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ENOMEM, "no memory for the fake scheduler");
    s->ops = sched_fake_ops(chosen);
    s->cluster = chosen;
    s->cfg = *cfg;
    if (cfg->loop && !(s->timer = loop_timer_new(cfg->loop, on_timer, chosen))) {
        free(s);
        return err_set(e, ENOMEM, "no memory for a timer");
    }
    chosen->master = s;
    chosen->waiting.n = 0; /* of the last master */
    *out = s;
    return plan(chosen, (struct due){ .kind = DUE_REGISTERED }, 0);
}

static int fake_request(struct sched *s, const struct sched_ask *asks, size_t n, struct err *e)
{
    (void)e;
    for (size_t i = 0; i < n; i++) {
        const struct fake_rule *r = rule_for(s->cluster, asks[i].slot);
        s->cluster->n_beyond += !fake_cluster_in_whole(s->cluster, asks[i].slot);
        if (r->grant_ms < 0) {
            (void)forget_waiting(s->cluster, asks[i].slot); /* a repeated request waits once */
            if (vec_push(&s->cluster->waiting, asks[i].slot) < 0)
                return -ENOMEM;
            continue;
        }
        int rc =
            plan(s->cluster,
                 (struct due){ .kind = r->refuse ? DUE_REFUSE : DUE_GRANT, .slot = asks[i].slot },
                 r->grant_ms);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int fake_cancel(struct sched *s, const uint32_t *slots, size_t n, struct err *e)
{
    struct fake_cluster *c = s->cluster;
    struct due *dues = c->dues.v;
    size_t n_dues = c->dues.n;
    AUTO(free_p) uint32_t *sorted = calloc(n + 1, sizeof *sorted);

    if (!sorted)
        return err_set(e, ENOMEM, "no memory to cancel asks");
    memcpy(sorted, slots, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_number);
    for (size_t i = 0; i < n; i++)
        (void)forget_waiting(c, slots[i]);
    c->dues.n = 0; /* the events that stay are pushed again, each at or before its old place */
    for (size_t i = 0; i < n_dues; i++) {
        struct due d = dues[i];
        bool ask = d.kind == DUE_GRANT || d.kind == DUE_REFUSE;
        if (!ask || !bsearch(&d.slot, sorted, n, sizeof *sorted, by_number))
            (void)due_push(c, d); /* cannot fail: there is room */
    }
    return 0;
}

static int fake_release(struct sched *s, const char *const *ids, size_t n, struct err *e)
{
    (void)e;
    for (size_t i = 0; i < n; i++) {
        size_t at = container_named(s->cluster, ids[i]);
        if (at < s->cluster->containers.n && s->cluster->containers.v[at].state == FAKE_GRANTED)
            s->cluster->containers.v[at].state = FAKE_RELEASED;
    }
    return 0;
}

static int fake_launch(struct sched *s, const struct sched_container *c, size_t n, struct err *e)
{
    (void)e;
    for (size_t i = 0; i < n; i++) {
        size_t at = container_named(s->cluster, c[i].id);
        if (at == s->cluster->containers.n || s->cluster->containers.v[at].state != FAKE_GRANTED)
            continue; /* ended, or launched before: ignored */
        struct fake_container *x = &s->cluster->containers.v[at];
        const struct fake_rule *r = rule_for(s->cluster, x->slot);
        x->state = FAKE_LAUNCHED;
        x->n_launches++;
        if (r->complete_ms >= 0)
            (void)plan(s->cluster,
                       (struct due){ .kind = DUE_END,
                                     .container = at,
                                     .exit_code = r->exit_code,
                                     .reason = r->reason },
                       r->complete_ms);
        if (s->cluster->hooks.launched)
            s->cluster->hooks.launched(x, s->cluster->hooks.arg);
    }
    return 0;
}

static int fake_stop(struct sched *s, const char *id, uint32_t grace_ms, struct err *e)
{
    size_t at = container_named(s->cluster, id);

    (void)e;
    if (at == s->cluster->containers.n)
        return 0;
    struct fake_container *x = &s->cluster->containers.v[at];
    int64_t after = rule_for(s->cluster, x->slot)->stop_ms;
    x->n_stops++;
    if (s->cluster->hooks.stopped)
        s->cluster->hooks.stopped(x, grace_ms, s->cluster->hooks.arg);
    else if (after >= 0)
        return plan(s->cluster,
                    (struct due){ .kind = DUE_END,
                                  .container = at,
                                  .exit_code = 143,
                                  .reason = END_KILLED_BY_MASTER },
                    after);
    return 0;
}

static int fake_resize(struct sched *s, const struct sched_ask *whole, size_t n, struct err *e)
{
    struct fake_cluster *c = s->cluster;
    if (c->fail_resize)
        return err_set(e, c->fail_resize, "the fake scheduler cannot resize the job: %m");
    if (vec_reserve(&c->whole, n) < 0)
        return err_set(e, ENOMEM, "no memory to resize the job");
    for (size_t i = 0; i < n; i++)
        c->whole.v[i] = whole[i].slot;
    c->whole.n = n;
    if (c->hooks.resized)
        c->hooks.resized(whole, n, c->hooks.arg);
    return 0;
}

static int fake_bounds(struct sched *s, uint32_t min, uint32_t max, int64_t cost_ms, struct err *e)
{
    (void)cost_ms;
    return buf_addf(&s->cluster->bounds, "%u..%u ", min, max) < 0
               ? err_set(e, ENOMEM, "no memory to note how the job may be resized")
               : 0;
}

static int fake_finish(struct sched *s, const char *state, const char *diagnostics,
                       void (*done)(void *arg), struct err *e)
{
    (void)diagnostics;
    (void)e;
    str_copy(s->cluster->finished, sizeof s->cluster->finished, state);
    s->done = done;
    return plan(s->cluster, (struct due){ .kind = DUE_FINISHED }, 0);
}

static void fake_close(struct sched *s)
{
    if (!s)
        return;
    if (s->cluster->master == s)
        s->cluster->master = NULL;
    loop_timer_free(s->timer);
    free(s);
}

const struct sched_ops *sched_fake_ops(struct fake_cluster *c)
{
    static const struct sched_ops ops = {
        .name = "fake",
        .open = fake_open,
        .request = fake_request,
        .cancel = fake_cancel,
        .release = fake_release,
        .launch = fake_launch,
        .stop = fake_stop,
        .resize = fake_resize,
        .bounds = fake_bounds,
        .finish = fake_finish,
        .close = fake_close,
    };
    chosen = c;
    return &ops;
}
