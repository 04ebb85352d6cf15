/*
 * Failures per node: one that has had too many in a short time is left out of new requests for a
 * while. On one machine there are no nodes, and nothing of this happens.
 */
#include <errno.h>
#include <stdlib.h>

#include "codec/json.h"
#include "job/job_int.h"

static int32_t find(const struct job *j, const char *name)
{
    for (size_t i = 0; i < j->nodes.n; i++) {
        if (str_eq(j->nodes.v[i].name, name))
            return (int32_t)i;
    }
    return -1;
}

void node_done(struct node *n)
{
    free(n->name);
    free(n->times);
    *n = (struct node){ 0 };
}

int nodes_keep(struct job *j, const struct job_event *ev, struct node *out)
{
    uint32_t max = j->spec->node_max_failures;
    struct node n = { .until_ms = -1 };

    if (j->nodes.n >= NODES_MAX || find(j, ev->node) >= 0)
        return 0;
    n.name = str_dup(ev->node);
    n.times = calloc(max + 1, sizeof *n.times);
    if (!n.name || !n.times || vec_reserve(&j->nodes, j->nodes.n + 1) < 0) {
        node_done(&n);
        return -ENOMEM;
    }
    *out = n;
    return 0;
}

int32_t nodes_enter(struct job *j, const char *name, struct node *kept)
{
    if (!name)
        return -1;
    if (!kept->name)
        return find(j, name);
    j->nodes.v[j->nodes.n] = *kept; /* nodes_keep() made room */
    *kept = (struct node){ 0 };
    return (int32_t)j->nodes.n++;
}

static void avoid(struct job *j, const struct node *n, bool on)
{
    struct job_action *a = job_act(j, ACT_AVOID, 0);

    a->container = n->name;
    a->on = on;
    j->changed = true;
}

void nodes_failed(struct job *j, int32_t node)
{
    uint32_t max = j->spec->node_max_failures;

    if (node < 0 || !max)
        return;
    struct node *n = &j->nodes.v[node];
    n->times[n->n++ % max] = j->now_ms;
    int64_t oldest = n->times[n->n % max];
    bool often = n->n >= max && j->now_ms - oldest <= (int64_t)j->spec->node_window_ms;
    bool room = (uint64_t)(j->n_out + 1) * 100 <= j->nodes.n * (uint64_t)NODES_OUT_PERCENT;
    if (!often || !room || n->until_ms >= 0)
        return;
    n->until_ms = j->now_ms + (int64_t)j->spec->node_window_ms;
    j->n_out++;
    avoid(j, n, true);
    limits_job(j);
}

bool nodes_is_out(const struct job *j, int32_t node)
{
    return node >= 0 && j->nodes.v[node].until_ms >= 0;
}

int64_t nodes_due(const struct job *j)
{
    int64_t due = INT64_MAX;

    for (size_t i = 0; i < j->nodes.n && j->n_out; i++) {
        if (j->nodes.v[i].until_ms >= 0)
            due = MIN(due, j->nodes.v[i].until_ms);
    }
    return due;
}

int nodes_fired(struct job *j, struct err *e)
{
    if (nodes_due(j) > j->now_ms)
        return err_set(e, EPROTO, "no node is to be used again now"), 1;
    for (size_t i = 0; i < j->nodes.n; i++) {
        struct node *n = &j->nodes.v[i];
        if (n->until_ms < 0 || n->until_ms > j->now_ms)
            continue;
        n->until_ms = -1;
        n->n = 0;
        j->n_out--;
        avoid(j, n, false);
    }
    limits_job(j);
    return 0;
}

void nodes_announce(struct job *j)
{
    for (size_t i = 0; i < j->nodes.n && j->n_out; i++) {
        if (j->nodes.v[i].until_ms >= 0)
            avoid(j, &j->nodes.v[i], true);
    }
}

void nodes_status(const struct job *j, struct buf *out)
{
    const char *comma = "";

    if (!j->n_out)
        return;
    (void)buf_adds(out, ",\"nodes_left_out\":["); /* a failed append shows in out->failed */
    for (size_t i = 0; i < j->nodes.n; i++) {
        if (j->nodes.v[i].until_ms < 0)
            continue;
        (void)buf_adds(out, comma);
        (void)json_add_str(out, span_of(j->nodes.v[i].name));
        comma = ",";
    }
    (void)buf_addc(out, ']');
}

void nodes_free(struct job *j)
{
    for (size_t i = 0; i < j->nodes.n; i++)
        node_done(&j->nodes.v[i]);
    vec_done(&j->nodes);
}
