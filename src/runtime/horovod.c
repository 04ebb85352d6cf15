/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Horovod with gloo: the ranks meet at the key-value server beside rank 0
 * (src/rendezvous/horovod.c). As in Horovod's own launcher, ranks are counted host by host, and
 * hosts in the order of their first task: the libraries assume that the ranks of one host have
 * consecutive numbers. The cross rank of a rank is the number of hosts before its own that have a
 * rank with the same local rank.
 */
#include "runtime/runtime_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"

struct host {
    char *name;
    uint32_t ranks;
};

struct hosts {
    VEC(struct host) list;
    size_t task_host; /* index of the host of this task */
    uint32_t local;   /* local rank of this rank on its host */
    bool found;       /* the task is among the tracked tasks: task_host and local are valid */
};

static void hosts_done(struct hosts *h)
{
    for (size_t i = 0; i < h->list.n; i++)
        free(h->list.v[i].name);
    vec_done(&h->list);
}

/* Find the host of this name, or add it. Searches from the last host to the first: neighbouring
 * tasks are often on the same host. */
static int host_index(struct hosts *h, const char *name, size_t *out)
{
    for (size_t i = h->list.n; i-- > 0;)
        if (str_eq(h->list.v[i].name, name)) {
            *out = i;
            return 0;
        }
    struct host one = { .name = str_dup(name) };
    *out = h->list.n;
    if (one.name && vec_push(&h->list, one) == 0)
        return 0;
    free(one.name);
    return -ENOMEM;
}

/* Count the ranks of each host, and find this task among them. */
static int hosts_count(struct hosts *h, const struct rt_input *in)
{
    struct rt_walk w = { .roles = in->roles, .n = in->n_roles };
    struct rt_task t;
    char host[RT_ADDRESS_MAX];
    while (runtime_walk(&w, &t)) {
        size_t i = 0;
        if (!runtime_host(t.address, host, sizeof host))
            host[0] = '\0';
        if (host_index(h, host, &i) < 0)
            return -ENOMEM;
        if (t.index == in->index && str_eq(t.role, in->role)) {
            h->found = true;
            h->task_host = i;
            h->local = h->list.v[i].ranks + in->local_rank;
        }
        h->list.v[i].ranks += t.ranks;
    }
    return 0;
}

static int set_numbers(const struct rt_slot *s, struct strv *out)
{
    int rc = 0;
    rc |= strv_env_set(out, "HOROVOD_HOSTNAME", s->host);
    rc |= rt_set_u32(out, "HOROVOD_RANK", s->rank);
    rc |= rt_set_u32(out, "HOROVOD_SIZE", s->size);
    rc |= rt_set_u32(out, "HOROVOD_LOCAL_RANK", s->local_rank);
    rc |= rt_set_u32(out, "HOROVOD_LOCAL_SIZE", s->local_size);
    rc |= rt_set_u32(out, "HOROVOD_CROSS_RANK", s->cross_rank);
    rc |= rt_set_u32(out, "HOROVOD_CROSS_SIZE", s->cross_size);
    return rc;
}

/* The entry of the driver's plan for this rank: same host, same local rank. NULL: there is none. */
static const struct rt_slot *find_planned(const struct hosts *h, const struct rt_input *in)
{
    for (size_t i = 0; i < in->n_plan; i++)
        if (in->plan[i].local_rank == h->local &&
            str_eq(in->plan[i].host, h->list.v[h->task_host].name))
            return &in->plan[i];
    return NULL;
}

/* Set the variables of the user's own driver: the number of ranks of each host
 * ("10.0.0.1:2,10.0.0.2:1"), and the directory into which the driver writes its plan. */
static int set_driver(const struct rt_input *in, const struct hosts *h, struct strv *out)
{
    AUTO(buf_done) struct buf text = { 0 };
    const char *dir = strv_env_get(out, "PWD");
    buf_adds(&text, "CLUSTER_WORKER_LIST=");
    for (size_t i = 0; i < h->list.n; i++)
        buf_addf(&text, "%s%s:%u", i ? "," : "", h->list.v[i].name, h->list.v[i].ranks);
    AUTO(free_p) char *copy = str_dup(dir ? dir : ".");
    int rc = copy ? strv_env_set(out, "DRIVER_OUTPUT_PATH", copy) : -ENOMEM;
    return rc < 0 || !rt_sets_growing(in) ? rc : rt_set_pair(out, &text);
}

/* Number this rank without a driver's plan. */
static int set_numbers_without_plan(const struct hosts *h, struct strv *out)
{
    uint32_t rank = h->local, size = 0, cross = 0, cross_size = 0;
    for (size_t i = 0; i < h->list.n; i++) {
        const struct host *x = &h->list.v[i];
        size += x->ranks;
        rank += i < h->task_host ? x->ranks : 0;
        cross_size += x->ranks > h->local;
        cross += i < h->task_host && x->ranks > h->local;
    }
    struct rt_slot slot = { .rank = rank,
                            .size = size,
                            .local_rank = h->local,
                            .local_size = h->list.v[h->task_host].ranks,
                            .cross_rank = cross,
                            .cross_size = cross_size };
    /* The name fits: it comes from a buffer of the same size. */
    (void)str_copy(slot.host, sizeof slot.host, h->list.v[h->task_host].name);
    return set_numbers(&slot, out);
}

static int set_gloo(const struct rt_host_port *at, struct strv *out)
{
    int rc = 0;
    rc |= strv_env_set(out, "HOROVOD_CONTROLLER", "gloo");
    rc |= strv_env_set(out, "HOROVOD_CPU_OPERATIONS", "gloo");
    /* TonY's value: a rank may still be reading its data while the others wait for it */
    rc |= rt_set_default(out, "HOROVOD_GLOO_TIMEOUT_SECONDS", "2000");
    rc |= strv_env_set(out, "HOROVOD_GLOO_RENDEZVOUS_ADDR", at->host);
    rc |= strv_env_set(out, "HOROVOD_GLOO_RENDEZVOUS_PORT", at->port);
    return rc;
}

static int set_rank(const struct rt_input *in, const struct hosts *h, struct strv *out,
                    struct err *e)
{
    const struct rt_slot *slot = find_planned(h, in);
    struct rt_place place;
    struct rt_host_port at;
    rt_place(in, &place);
    if (!rt_parse_address(in->driver ? in->driver : in->server ? place.master : NULL, &at))
        return err_set(e, ENOTCONN, "there is no rendezvous server at which the ranks could meet");
    if (in->n_plan && !slot)
        return err_set(e, ENOENT, "the driver's plan has no local rank %u on host '%s'", h->local,
                       h->list.v[h->task_host].name);
    int rc = set_gloo(&at, out);
    rc |= slot ? set_numbers(slot, out) : set_numbers_without_plan(h, out);
    return rc ? -ENOMEM : 0;
}

static int env(const struct rt_input *in, struct strv *out, struct err *e)
{
    struct hosts h = { 0 };
    if (in->single_node)
        return 0;
    int rc = runtime_generic.env(in, out, e); /* CLUSTER_SPEC */
    if (rc == 0)
        rc = hosts_count(&h, in);
    if (rc == 0 && h.found)
        rc = set_rank(in, &h, out, e);
    else if (rc == 0 && str_eq(in->role, "driver"))
        rc = set_driver(in, &h, out);
    hosts_done(&h);
    return rc == -ENOMEM ? err_set(e, ENOMEM, "cannot build the environment for horovod: %m") : rc;
}

static bool serves(const struct rt_role *roles, size_t n, const char *role)
{
    (void)roles;
    (void)n;
    return str_eq(role, "driver");
}

static const struct rt_growing growing[] = { { "CLUSTER_SPEC", false },
                                             { "CLUSTER_WORKER_LIST", true },
                                             { 0 } };

const struct runtime runtime_horovod = {
    .name = "horovod",
    .env = env,
    .growing = growing,
    .waits_for_spec = true,
    .needs_gang = true,
    .server = "horovod",
    .serves = serves,
    .lives_with_new = rt_gang_restarts,
};
