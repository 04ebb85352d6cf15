/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes on which an arbiter wants the containers of the elastic role. They are only a wish: the
 * journal does not have them, and a new master has none. The requests for new containers name them
 * (sched_ask.node), until each node has been named as often as it lacks containers.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "conf/conf.h"
#include "master/master_int.h"
#include "proto/tony.pb-c.h"
#include "scheduler/scheduler.h"

enum { NODE_NAME_MAX = 300 };

void wished_nodes_forget(struct master *m)
{
    for (size_t i = 0; i < m->wished_nodes.v.n; i++)
        free(m->wished_nodes.v.v[i].node);
    vec_done(&m->wished_nodes.v);
}

/* "host:port": the text goes to the cluster and to the log. */
static bool is_node_name(const char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr(".-_:[]", s[i]))
            return false;
    return n > 0 && n <= NODE_NAME_MAX;
}

int wished_nodes_check(const Tony__SizeWish *w, uint32_t most, struct err *e)
{
    uint32_t left = most;
    for (size_t i = 0; i < w->n_nodes; i++) {
        const Tony__NodeWish *x = w->nodes[i];
        if (!is_node_name(x->node))
            return err_set(e, EINVAL, "the request names an invalid node");
        if (x->n_containers == 0)
            return err_set(e, EINVAL, "the request names a node without containers");
        if (x->n_containers > left)
            return err_set(e, EINVAL, "the nodes of the request have more than %u containers",
                           most);
        left -= x->n_containers;
    }
    return 0;
}

/* Subtract the containers that the role has already. */
static void subtract_present(struct master *m)
{
    uint32_t role = m->wished_nodes.role, n = job_role_tasks(m->job, role);
    for (uint32_t i = 0; i < n; i++) {
        struct slot_view v;
        uint32_t slot = job_task(m->job, role, i);
        job_slot(m->job, slot, &v);
        const char *node = v.container ? locations_node(m, slot) : NULL;
        for (size_t k = 0; node && k < m->wished_nodes.v.n; k++)
            if (str_eq(m->wished_nodes.v.v[k].node, node) && m->wished_nodes.v.v[k].n_left > 0) {
                m->wished_nodes.v.v[k].n_left--;
                break;
            }
    }
}

int wished_nodes_set(struct master *m, uint32_t role, const Tony__SizeWish *w, struct err *e)
{
    wished_nodes_forget(m);
    m->wished_nodes.role = role;
    for (size_t i = 0; i < w->n_nodes; i++) {
        struct wished_node x = { str_dup(w->nodes[i]->node), w->nodes[i]->n_containers };
        if (!x.node || vec_push(&m->wished_nodes.v, x) < 0) {
            free(x.node);
            wished_nodes_forget(m);
            return err_set(e, ENOMEM, "no memory for the nodes of the request");
        }
    }
    subtract_present(m);
    return 0;
}

const char *wished_nodes_take(struct master *m, uint32_t slot)
{
    struct slot_view v;
    job_slot(m->job, slot, &v);
    for (size_t k = 0; k < m->wished_nodes.v.n && !v.spare && v.role_index == m->wished_nodes.role;
         k++)
        if (m->wished_nodes.v.v[k].n_left > 0) {
            m->wished_nodes.v.v[k].n_left--;
            return m->wished_nodes.v.v[k].node;
        }
    return NULL;
}

int wished_nodes_choose_leavers(const struct master *m, uint32_t n, const Tony__SizeWish *w,
                                struct buf *out)
{
    uint32_t tasks = job_role_tasks(m->job, m->wished_nodes.role),
             n_left = tasks > n ? tasks - n : 0;
    AUTO(free_p) uint32_t *wished = calloc(w->n_nodes + 1, sizeof *wished);
    if (!wished)
        return -ENOMEM;
    for (size_t k = 0; k < w->n_nodes; k++)
        wished[k] = w->nodes[k]->n_containers;
    /* The task of index 0 stays, so it counts first; of the others, those with low indices stay. */
    for (uint32_t i = 0; i < tasks && n_left > 0 && w->n_nodes > 0; i++) {
        uint32_t slot = job_task(m->job, m->wished_nodes.role, i);
        const char *node = locations_node(m, slot);
        size_t k = 0;
        while (k < w->n_nodes && !(node && str_eq(w->nodes[k]->node, node) && wished[k] > 0))
            k++;
        if (k < w->n_nodes)
            wished[k]--;
        else if (node && i > 0) {
            (void)buf_addf(out, "%s%u", out->len ? "," : "", slot); /* sets out->failed */
            n_left--;
        }
    }
    return out->failed ? -ENOMEM : 0;
}

int wished_nodes_repeat_asks(struct master *m, struct err *e)
{
    VEC(struct sched_ask) asks = { 0 };
    uint32_t n = job_role_tasks(m->job, m->wished_nodes.role);
    int rc = 0;
    for (uint32_t i = 0; i < n && m->wished_nodes.v.n > 0 && rc == 0; i++) {
        struct slot_view v;
        uint32_t slot = job_task(m->job, m->wished_nodes.role, i);
        job_slot(m->job, slot, &v);
        if (v.state != SLOT_ASKED)
            continue;
        struct sched_ask ask = sched_ask_of(m, slot);
        ask.node = wished_nodes_take(m, slot);
        rc = ask.node ? vec_push(&asks, ask) : 0;
    }
    if (rc < 0)
        (void)err_set(e, ENOMEM, "no memory to speak to the scheduler");
    else if (asks.n > 0)
        rc = m->sched_ops->request(m->sched, asks.v, asks.n, e);
    vec_done(&asks);
    return rc;
}
