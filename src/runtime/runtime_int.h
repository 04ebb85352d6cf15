/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers that the frameworks share: the numbers and addresses of a rank, and setting variables.
 */
#ifndef TONY_RUNTIME_RUNTIME_INT_H
#define TONY_RUNTIME_RUNTIME_INT_H

#include "runtime/frameworks.h"
#include "runtime/runtime.h"

#define X(name) extern const struct runtime runtime_##name;
FRAMEWORKS(X)
#undef X

/* Equal to enum role_kind of the job specification. */
enum rt_kind { RT_TRACKED = 1, RT_UNTRACKED, RT_SIDECAR };

enum { RT_ADDRESS_MAX = 280 }; /* a host name of 255 bytes, a port, and brackets */

/* The numbers and addresses of one rank. Only tracked roles are counted: first the chief, then the
 * others in the order of the job file. */
struct rt_place {
    bool ranked;         /* the role is tracked: rank, group_rank, role_rank, role_size are valid */
    uint32_t rank;       /* global, over all ranks of all tracked tasks */
    uint32_t world_size; /* number of global ranks */
    uint32_t group_rank; /* number of the task among the tracked tasks */
    uint32_t n_groups;   /* number of tracked tasks */
    uint32_t role_rank;  /* among the ranks of its role */
    uint32_t role_size;  /* ranks of its role */
    uint32_t local_size; /* ranks of its task */
    const char *master;  /* host:port of rank 0; NULL = it has not registered */
    const char *task_address; /* host:port of this task; NULL = unknown */
    char master_text[RT_ADDRESS_MAX], task_address_text[RT_ADDRESS_MAX];
};
void rt_place(const struct rt_input *in, struct rt_place *out);

/* Split "host:port" at the last colon; the host of "[::1]:80" is "::1". *out_port points into
 * address. false: not an address (may be NULL), or the host is too long. */
bool rt_split_address(const char *address, char *host, size_t n_host, const char **out_port);

/* The first role with that name and at least one task, or NULL. */
const struct rt_role *rt_role_named(const struct rt_role *roles, size_t n, const char *role);
struct rt_host_port {
    char host[RT_ADDRESS_MAX];
    char port[RT_ADDRESS_MAX]; /* long, because `tony plan` writes words in place of numbers */
};
/* Host and port of one task, or of the text of an address. false: the task has not registered, or
 * the text is not an address. */
bool rt_task_address(const struct rt_input *in, const char *role, uint32_t index,
                     struct rt_host_port *out);
bool rt_parse_address(const char *address, struct rt_host_port *out);

/* Set K=V unless env has K (the user has set it). */
int rt_set_default(struct strv *env, const char *key, const char *value);
int rt_setf(struct strv *env, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int rt_set_u32(struct strv *env, const char *key, uint32_t v);
/* Set "K=V" from a buffer, or replace the variable K. Takes the bytes of the buffer, so that a long
 * spec is not copied. */
int rt_set_pair(struct strv *env, struct buf *pair);
/* Must env() set the variables of runtime.growing? */
static inline bool rt_sets_growing(const struct rt_input *in)
{
    return !in->first_addresses_only && !in->file_only;
}
/* Set NAME=<the cluster spec as JSON>, if rt_sets_growing(). */
int rt_set_spec(const struct rt_input *in, const char *name, struct strv *env);

/* growing.c: remove variables of rt->growing that are too long; -E2BIG if one of them is needed. */
int rt_limit_growing(const struct runtime *rt, const struct rt_input *in, struct strv *env,
                     struct err *e);

/* For struct runtime: .unnoticed of every role; .lives_with_new of no role. */
bool rt_every_role(const char *role);
bool rt_gang_restarts(const char *role, bool chief, bool has_ps);

#endif
