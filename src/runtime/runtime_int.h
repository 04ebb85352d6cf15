/*
 * What the frameworks share: who is who in the job, seen from one rank.
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

/* Where a rank stands. Only tracked roles are counted: chief first, then the order of the job file.
 */
enum { RT_ADDRESS_MAX = 280 }; /* a host name, and a port */

struct rt_place {
    bool ranked;         /* my role is tracked: the numbers below that are mine are valid */
    uint32_t rank;       /* global, over all ranks of all tracked tasks */
    uint32_t world_size; /* ranks of all tracked tasks */
    uint32_t group_rank; /* number of my task among the tracked tasks */
    uint32_t n_groups;   /* tracked tasks */
    uint32_t role_rank;  /* among the ranks of my role */
    uint32_t role_size;  /* ranks of my role */
    uint32_t local_size; /* ranks of my task */
    const char *master;  /* host:port of rank 0; NULL = not there yet */
    const char *mine;    /* host:port of this task; NULL = unknown */
    char master_text[RT_ADDRESS_MAX], mine_text[RT_ADDRESS_MAX];
};
void rt_place(const struct rt_input *in, struct rt_place *out);

/* Split "host:port" at the last colon ("[::1]:80" keeps its host without brackets). false when it
 * is not one. */
bool rt_split_address(const char *address, char *host, size_t n_host, const char **out_port);

/* The place of `role` among the roles, or NULL; and of its task `index` host and port, if it is there. */
const struct rt_role *rt_role_named(const struct rt_role *roles, size_t n, const char *role);
struct rt_at {
    char host[RT_ADDRESS_MAX], port[RT_ADDRESS_MAX]; /* words, in a plan of a job */
};
bool rt_task_at(const struct rt_input *in, const char *role, uint32_t index, struct rt_at *out);
bool rt_address_at(const char *address, struct rt_at *out);
/* Unless the user has set it. */
int rt_set_default(struct strv *env, const char *key, const char *value);
/* env K = "prefix<a>" */
int rt_setf(struct strv *env, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Answers for a struct runtime: a task of any role is meant; a gang with a member less is none. */
bool rt_any(const char *role);
bool rt_begins_whole(const char *role, bool chief, bool has_ps);

/* env K = number */
int rt_set_u32(struct strv *env, const char *key, uint32_t v);

/* "K=V" from a buffer, whose bytes are taken (specs are long: no copy is made); replaces. */
struct buf;
int rt_set_pair(struct strv *env, struct buf *pair);

#endif
