#include "sched_fake.h"

#include <errno.h>
#include <stdio.h>

#include "base/base.h"
#include "loop/loop.h"

enum due_kind { DUE_REGISTERED = 1, DUE_GRANT, DUE_REFUSE, DUE_END, DUE_TELL, DUE_FINISHED };

struct due {
    enum due_kind kind;
    int64_t at;
    uint64_t order; /* of the same moment: first come first served */
    uint32_t slot;
    size_t container;
    int exit_code;
    enum end_reason reason;
};

struct fake_cluster {
    const struct fake_rule *rules;
    size_t n_rules;
    struct fake_hooks hooks;
    VEC(struct fake_container) containers;
    VEC(struct due) dues;
    int64_t now;
    uint64_t order;
    struct sched *master; /* connected */
    char finished[32];
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

static int plan(struct fake_cluster *c, struct due d, int64_t after)
{
    if (c->master && c->master->cfg.loop)
        c->now = clock_mono_ms();
    d.at = c->now + after;
    d.order = ++c->order;
    int rc = vec_push(&c->dues, d);
    rearm(c);
    return rc;
}

/* ---- the world's side ---- */

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
    vec_done(&c->dues);
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
    size_t i = 0;
    while (i < c->containers.n && !str_eq(c->containers.v[i].id, id))
        i++;
    return i;
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
    for (size_t i = 0; i < c->containers.n; i++) {
        if (c->containers.v[i].slot == slot &&
            (c->containers.v[i].state == FAKE_GRANTED ||
             c->containers.v[i].state == FAKE_LAUNCHED) &&
            !c->containers.v[i].n_stops)
            return; /* asked for twice, granted once */
    }
    (void)snprintf(x.id, sizeof x.id, "container_1_0001_01_%06zu", c->containers.n + 1);
    if (vec_push(&c->containers, x) < 0)
        return;
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
        tell(c, &(struct sched_event){
                    .type = SE_REFUSED, .slot = d->slot, .text = rule_for(c, d->slot)->refuse });
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

static const struct due *first_due(const struct fake_cluster *c)
{
    const struct due *first = NULL;
    for (size_t i = 0; i < c->dues.n; i++) {
        const struct due *d = &c->dues.v[i];
        if (!first || d->at < first->at || (d->at == first->at && d->order < first->order))
            first = d;
    }
    return first;
}

int64_t fake_cluster_next(const struct fake_cluster *c)
{
    const struct due *d = first_due(c);
    return d ? d->at : INT64_MAX;
}

void fake_cluster_run(struct fake_cluster *c, int64_t now_ms)
{
    c->now = MAX(c->now, now_ms);
    for (const struct due *d; (d = first_due(c)) && d->at <= c->now;) {
        struct due one = *d;
        vec_remove_fast(&c->dues, (size_t)(d - c->dues.v));
        happen(c, &one);
    }
    rearm(c);
}

/* ---- the back-end's side ---- */

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
    *out = s;
    return plan(chosen, (struct due){ .kind = DUE_REGISTERED }, 0);
}

static int fake_request(struct sched *s, const struct sched_ask *asks, size_t n, struct err *e)
{
    (void)e;
    for (size_t i = 0; i < n; i++) {
        const struct fake_rule *r = rule_for(s->cluster, asks[i].slot);
        if (r->grant_ms < 0)
            continue;
        int rc =
            plan(s->cluster,
                 (struct due){ .kind = r->refuse ? DUE_REFUSE : DUE_GRANT, .slot = asks[i].slot },
                 r->grant_ms);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int fake_cancel(struct sched *s, const uint32_t *slots, size_t n, struct err *e)
{
    struct fake_cluster *c = s->cluster;

    (void)e;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = c->dues.n; k-- > 0;) {
            enum due_kind kind = c->dues.v[k].kind;
            if ((kind == DUE_GRANT || kind == DUE_REFUSE) && c->dues.v[k].slot == slots[i])
                vec_remove_fast(&c->dues, k);
        }
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
            continue; /* gone, or launched before: no harm */
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

static int fake_resize(struct sched *s, uint32_t n_containers, struct err *e)
{
    (void)s;
    (void)n_containers;
    return err_set(e, EOPNOTSUPP, "the fake scheduler cannot resize a job");
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
        .resize_wanted = fake_resize,
        .finish = fake_finish,
        .close = fake_close,
    };
    chosen = c;
    return &ops;
}
