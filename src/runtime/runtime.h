/*
 * What each framework wants to find: cluster spec -> environment of one rank. Pure: no files, no clock.
 *
 * A framework is one const struct in a table (runtime_find), chosen by tony.application.framework, in one file of its own.
 * Hosts are numeric addresses. Global ranks run over all tracked roles: chief first, then the order of the job file, times ranks.
 */
#ifndef TONY_RUNTIME_RUNTIME_H
#define TONY_RUNTIME_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"

struct err;

struct rt_role {
    const char *name;
    const char *const *addresses; /* host:port by index; NULL or "" = not there yet */
    uint32_t n;
    uint32_t kind;  /* enum role_kind: 1 tracked, 2 untracked, 3 sidecar */
    uint32_t ranks; /* per task; 0 = 1 */
    const char *list; /* unless NULL instead of addresses: a JSON list without brackets, "a:1","b:2" */
};

struct rt_slot { /* of a plan that a driver of the user's has made: Horovod's debug mode */
    char host[280];
    uint32_t rank, size, local_rank, local_size, cross_rank, cross_size;
};

struct rt_input {
    const char *application_id, *distributed_mode; /* GANG, FCFS */
    const struct rt_role *roles;
    size_t n_roles;
    const char *role; /* mine */
    uint32_t index;
    uint32_t local_rank; /* of this task's ranks */
    uint32_t generation, restart_count, max_restarts;
    uint32_t session;    /* how often the whole job began again */
    bool chief;
    bool single_node;    /* the command is the whole job, in the master's place */
    uint32_t n_tracked;  /* TASK_NUM */
    uint16_t tb_port;    /* 0 = none */
    bool server;         /* the server that the framework named is at the address of rank 0 */
    const char *driver;  /* host:port of one of the user's own in its stead; NULL = there is none */
    const struct rt_slot *plan; /* NULL: ranks are ours to give */
    size_t n_plan;
    const char *spec_file; /* absolute path of the file with the cluster spec as JSON; may be NULL */
};

struct runtime {
    const char *name;
    /* Refuse a job this framework cannot run; NULL = anything goes. role names with their instance counts and kinds. */
    int (*check)(const struct rt_role *roles, size_t n, struct err *e);
    /* Add variables to env (K=V, replacing). */
    int (*env)(const struct rt_input *in, struct strv *env, struct err *e);
    bool waits_for_spec;  /* false: tasks may start without the gang (standalone) */
    bool needs_gang;      /* refused with distributed-mode FCFS */
    bool spec_file;       /* tasks get the file TONY_SPEC_FILE, which is rewritten when an address changes */
    bool no_tensorboard;  /* no task gets TB_PORT */
    bool frees_port;      /* its programs bind their port without SO_REUSEADDR: it is let go when a task begins */
    /* The server beside rank 0 by which the ranks find each other, by its name in src/rendezvous, fresh for every
     * generation; NULL = none. It runs where there are at least server_from ranks (0 = 1). */
    const char *server;
    uint32_t server_from;
    /* A task of this role never ends by itself: untracked unless the job file names the untracked roles. NULL = none does. */
    bool (*serves)(const struct rt_role *roles, size_t n, const char *role);
    /* The others do not notice when a task of this role dies, or hang: if it fails for good, the job fails. NULL = they do. */
    bool (*unnoticed)(const char *role);
    /* A gang without one task can go on with a new one in its place; else all begin again together. NULL = it can. */
    bool (*lives_with_new)(const char *role, bool chief, bool has_ps);
};

/* Defined by a program that brings frameworks of its own, ended by NULL; docs/add-a-framework.md. */
extern const struct runtime *const runtime_more[] __attribute__((weak));

const struct runtime *runtime_find(const char *framework); /* NULL = unknown */
const char *const *runtime_names(size_t *out_n);
/* Can it run a job of these roles? names, instance counts and kinds. */
int runtime_check(const struct runtime *rt, const struct rt_role *roles, size_t n, bool gang, struct err *e);
/* Common variables of every framework, then the framework's own. */
int runtime_env(const struct runtime *rt, const struct rt_input *in, struct strv *env, struct err *e);
/* Ranks of all tracked roles. */
uint32_t runtime_world_size(const struct rt_role *roles, size_t n);
/* host:port of one task, in out; false: not there (yet). */
bool runtime_address(const struct rt_role *r, uint32_t index, char *out, size_t n);
/* The tracked tasks in the order of their ranks, one after the other: a thousand addresses are looked up in one pass. */
struct rt_task {
    const char *role;
    uint32_t role_index, index; /* of the role among the roles, of the task in it */
    uint32_t rank, ranks;       /* its first one, and how many it has */
    char address[280];          /* host:port; "" = not there yet */
};
struct rt_walk { /* begins as { .roles, .n } */
    const struct rt_role *roles;
    size_t n;
    int pass;
    size_t role;
    uint32_t index, rank;
    const char *at;
};
bool runtime_walk(struct rt_walk *w, struct rt_task *out);
/* "host:port" without its port, and without brackets; false when it is not one. */
bool runtime_host(const char *address, char *out, size_t n);
/* {"worker":["h:p",...],...} of all roles in order. Appends to out. */
struct buf;
int runtime_spec_json(const struct rt_role *roles, size_t n, const char *skip_role_a, const char *skip_role_b, struct buf *out);
/* When one task of a running gang is gone: can the others go on with a new one in its place? If not, all have to begin again
 * together. What is known of each framework; NULL or unknown: yes. */
bool runtime_lives_with_new(const char *framework, const char *role, bool chief, bool gang, bool has_ps);
/* Does this task reserve a TensorBoard port? chief without a tensorboard role, or role tensorboard. */
bool runtime_wants_tb_port(const char *framework, const char *role, bool chief, bool has_tensorboard_role);

#endif
