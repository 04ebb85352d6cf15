/* SPDX-License-Identifier: Apache-2.0 */
/* Failures on each node, and nodes that the job avoids because of them: see nodes.h. */
#include <errno.h>
#include <stdlib.h>

#include "codec/json.h"
#include "job/job_int.h"

/* The index of the node; -1 = there is none of this name. */
static int32_t find_node(const struct job *j, const char *name)
{
    return (int32_t)(uintptr_t)map_get(&j->nodes.by_name, name) - 1;
}

static void node_done(struct node *n)
{
    free(n->name);
    free(n->times);
    *n = (struct node){ 0 };
}

int nodes_reserve(struct job *j, const char *name)
{
    if (!name || j->nodes.n >= NODES_MAX || find_node(j, name) >= 0)
        return 0;
    if (vec_reserve(&j->nodes, j->nodes.n + 1) < 0)
        return -ENOMEM;
    if (!j->nodes.times)
        j->nodes.times = calloc(j->spec->node_max_failures + 1, sizeof *j->nodes.times);
    if (!j->nodes.times)
        return -ENOMEM;
    /* The value NULL means that there is no such node yet; nodes_enter() may set it later. */
    return map_set(&j->nodes.by_name, name, NULL, NULL);
}

int32_t nodes_enter(struct job *j, const char **name)
{
    int32_t known = *name ? find_node(j, *name) : -1;

    if (known >= 0 || !*name || j->nodes.n >= NODES_MAX)
        return known;
    /* nodes_reserve() has made room in the map and in the array, so nothing here can fail. */
    (void)map_set(&j->nodes.by_name, *name, (void *)(uintptr_t)(j->nodes.n + 1), NULL);
    j->nodes.v[j->nodes.n] =
        (struct node){ .name = event_take(name), .times = TAKE(j->nodes.times), .until_ms = -1 };
    return (int32_t)j->nodes.n++;
}

/* Tell the scheduler to avoid the node (on) or to allow it again. */
static void tell_avoid(struct job *j, const struct node *n, bool on)
{
    job_act(j, ACT_AVOID)->avoid = (struct act_avoid){ .node = n->name, .on = on };
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
    bool too_often = n->n >= max && j->now_ms - oldest <= (int64_t)j->spec->node_window_ms;
    bool may_avoid =
        (uint64_t)(j->nodes.n_out + 1) * 100 <= j->nodes.n * (uint64_t)NODES_OUT_PERCENT;
    if (!too_often || !may_avoid || n->until_ms >= 0)
        return;
    n->until_ms = j->now_ms + (int64_t)j->spec->node_window_ms;
    j->nodes.n_out++;
    tell_avoid(j, n, true);
    limits_job(j);
}

bool nodes_is_avoided(const struct job *j, int32_t node)
{
    return node >= 0 && j->nodes.v[node].until_ms >= 0;
}

int64_t nodes_due(const struct job *j)
{
    int64_t due = INT64_MAX;

    for (size_t i = 0; i < j->nodes.n && j->nodes.n_out; i++) {
        if (j->nodes.v[i].until_ms >= 0)
            due = MIN(due, j->nodes.v[i].until_ms);
    }
    return due;
}

int nodes_fired(struct job *j, struct err *e)
{
    if (nodes_due(j) > j->now_ms)
        return job_refuse(e, EPROTO, "no avoided node may be used again yet");
    for (size_t i = 0; i < j->nodes.n; i++) {
        struct node *n = &j->nodes.v[i];
        if (n->until_ms < 0 || n->until_ms > j->now_ms)
            continue;
        n->until_ms = -1;
        n->n = 0;
        j->nodes.n_out--;
        tell_avoid(j, n, false);
    }
    limits_job(j);
    return 0;
}

void nodes_announce(struct job *j)
{
    for (size_t i = 0; i < j->nodes.n && j->nodes.n_out; i++) {
        if (j->nodes.v[i].until_ms >= 0)
            tell_avoid(j, &j->nodes.v[i], true);
    }
}

void nodes_left_out_json(const struct job *j, struct buf *out)
{
    const char *comma = "";

    if (!j->nodes.n_out)
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

void nodes_done(struct job *j)
{
    for (size_t i = 0; i < j->nodes.n; i++)
        node_done(&j->nodes.v[i]);
    free(j->nodes.v);
    free(j->nodes.times);
    map_done(&j->nodes.by_name, NULL);
}

void nodes_bad_json(const struct job *j, struct buf *out)
{
    bool any = false;

    for (size_t i = 0; i < j->nodes.n; i++) {
        const struct node *n = &j->nodes.v[i];
        if (!n->n)
            continue;
        (void)buf_adds(out, any ? ",{\"node\":" : ",\"bad_nodes\":[{\"node\":");
        (void)json_add_str(out, span_of(n->name));
        (void)buf_addf(out, ",\"failures\":%u", n->n);
        (void)buf_addf(out, ",\"left_out\":%s}", n->until_ms >= 0 ? "true" : "false");
        any = true;
    }
    if (any)
        (void)buf_addc(out, ']');
}
