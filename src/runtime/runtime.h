/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns the cluster spec (the tasks of the job and their addresses) into the environment of one
 * rank of one task. No function here reads a file, a clock or a socket.
 *
 * Each framework is one const struct in a file of its own; runtime_find() looks it up by the value
 * of tony.application.framework. Hosts are numeric addresses. Global ranks count the ranks of all
 * tracked roles: those of the role "chief" first, then role by role in the order of the job file.
 */
#ifndef TONY_RUNTIME_RUNTIME_H
#define TONY_RUNTIME_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/vec.h"

struct err;

/* One role of the job. Its addresses come as an array, or as the JSON text that the master
 * rendered. */
struct rt_role {
    const char *name;
    const char *const *addresses; /* host:port by index; NULL or "" = has not registered */
    uint32_t n;
    uint32_t kind;    /* enum role_kind: 1 tracked, 2 untracked, 3 sidecar */
    uint32_t ranks;   /* per task; 0 = 1 */
    struct span list; /* if list.p is set, it replaces addresses: "a:1","b:2", no brackets */
};

/* One rank in the plan of a user's own Horovod driver (tony.horovod.driver.mode.debug). */
struct rt_slot {
    char host[280];
    uint32_t rank, size, local_rank, local_size, cross_rank, cross_size;
};

/* The input of runtime_env(): the job, the task and its rank. All pointers are borrowed. */
struct rt_input {
    const char *application_id, *distributed_mode; /* GANG, FCFS */
    const struct rt_role *roles;
    size_t n_roles;
    const char *role; /* the task's own role and index */
    uint32_t index;
    uint32_t local_rank; /* the rank's number within the task */
    uint32_t generation, restart_count, max_restarts;
    uint32_t session; /* how often the whole job was restarted */
    bool chief;
    bool single_node;   /* the job has no roles; its command runs in the master's place */
    uint32_t n_tracked; /* TASK_NUM */
    uint16_t tb_port;   /* for TensorBoard; 0 = none */
    bool server;        /* the framework's rendezvous server listens at the address of rank 0 */
    const char *driver; /* host:port of the rendezvous server of a user's own driver, or NULL */
    const struct rt_slot *plan; /* the driver's numbers for the ranks; NULL = tony numbers them */
    size_t n_plan;
    const char *spec_file; /* TONY_SPEC_FILE: absolute path of the cluster spec as JSON, or NULL */
    const char *address;   /* host:port of this task; NULL = look it up in roles */
    struct span spec;      /* the cluster spec as JSON, if the caller has it already */
    /* If one of the next two is true, env() must not set the variables of runtime.growing. */
    bool first_addresses_only; /* roles have only the first address (see runtime_needs_all()) */
    bool file_only;            /* tony.application.addresses-in-environment is false */
    size_t variable_max; /* bytes of one variable, "NAME=value" and NUL; 0 = RT_VARIABLE_MAX */
    size_t total_max;    /* bytes of all variables with a pointer to each; 0 = not limited */
};

enum {
    /* MAX_ARG_STRLEN of Linux: 32 pages, here of 4 KiB. Machines with larger pages allow more, but
     * the same job must find the same variables on each machine. */
    RT_VARIABLE_MAX = 128 << 10,
};

/* A variable whose length grows with the number of tasks or of hosts. */
struct rt_growing {
    const char *name;
    /* Programs fail, or train alone, without it. If it is too long, tony refuses the job. */
    bool needed;
};

/* Which addresses does env() read, beside the address of the task itself? */
enum rt_addresses {
    RT_ALL = 0, /* the addresses of all tasks */
    RT_GROWING, /* the addresses of all tasks, but only for the variables of runtime.growing */
    RT_FIRST,   /* the address of the first task of each role */
};

struct runtime {
    const char *name;
    /* Refuse a job that the framework cannot run; NULL = it runs any job. roles: names, instance
     * counts and kinds. */
    int (*check)(const struct rt_role *roles, size_t n, struct err *e);
    /* Add the framework's variables to env; a variable that env has already is replaced. */
    int (*env)(const struct rt_input *in, struct strv *env, struct err *e);
    const struct rt_growing *growing; /* ended by an entry without a name; NULL = there are none */
    enum rt_addresses addresses;
    bool waits_for_spec; /* false: a task starts without waiting for the gang (standalone) */
    bool needs_gang;     /* distributed-mode FCFS is refused */
    bool no_tensorboard; /* no task gets TB_PORT */
    /* Programs bind the task's port without SO_REUSEADDR. So the executor, which has reserved the
     * port with a socket of its own, closes that socket when it starts the task. */
    bool frees_port;
    /* The name (in src/rendezvous) of the rendezvous server that the executor of rank 0 runs; NULL
     * = none. Each generation gets a new server. It runs if the job has at least server_from ranks
     * (0 means 1). */
    const char *server;
    uint32_t server_from;
    /* Does a task of this role run until it is stopped? Such roles are untracked, unless the job
     * file names the untracked roles itself. NULL = no role does. */
    bool (*serves)(const struct rt_role *roles, size_t n, const char *role);
    /* Would the other tasks wait for ever for a task of this role that died? Then tony fails the
     * job when such a task has failed and is not retried. NULL = no role is like this. */
    bool (*unnoticed)(const char *role);
    /* Can the other tasks continue when a task of this role is replaced in a running gang? If not,
     * the whole gang restarts. NULL = they can, for each role. */
    bool (*lives_with_new)(const char *role, bool chief, bool has_ps);
    /* The tasks of a gang read the list of their peers only once, when they start. A task can be
     * replaced at the same address, but no task can be added. */
    bool fixed_gang;
};

/* A program that brings frameworks of its own defines this list, ended by NULL; see
 * docs/add-a-framework.md. */
extern const struct runtime *const runtime_more[] __attribute__((weak));

const struct runtime *runtime_find(const char *framework); /* NULL = unknown */
const char *const *runtime_names(size_t *out_n);
/* -EINVAL: the framework cannot run a job of these roles. roles: names, instance counts and kinds.
 */
int runtime_check(const struct runtime *rt, const struct rt_role *roles, size_t n, bool gang,
                  struct err *e);

/* A job before any of its tasks runs: no address is known yet. */
struct rt_job {
    const struct rt_role *roles; /* names, instance counts, kinds and ranks */
    size_t n_roles;
    bool gang;      /* distributed-mode: true = GANG, false = FCFS */
    bool local;     /* all tasks run on this machine: each host is 127.0.0.1 */
    bool file_only; /* as in struct rt_input */
};
/* -E2BIG: a variable that the framework needs is too long even with the shortest possible
 * addresses. */
int runtime_check_lengths(const struct runtime *rt, const struct rt_job *job, struct err *e);
/* The length of one variable of runtime.growing, in bytes of "NAME=value" and NUL. Tasks may have
 * values of different length; this is the longest of them. */
struct rt_length {
    const char *name;
    bool needed;
    size_t least; /* if all addresses have the shortest IPv4 form */
    size_t most;  /* if all addresses have the longest IPv4 form */
};
enum { RT_LENGTHS_MAX = 8 };
/* The lengths of the growing variables that the job's tasks get, at most RT_LENGTHS_MAX of them.
 * *out_n is 0 in FCFS mode and with file_only: the tasks get no such variable. */
int runtime_lengths(const struct runtime *rt, const struct rt_job *job,
                    struct rt_length out[static RT_LENGTHS_MAX], size_t *out_n, struct err *e);
/* The same check for tasks that have registered: roles have the addresses of all of them. Call it
 * before the tasks of a gang start. -E2BIG or -ENOMEM. */
int runtime_check_addresses(const struct runtime *rt, const struct rt_role *roles, size_t n,
                            struct err *e);
/* Does the framework need a variable that grows with the number of tasks? */
bool runtime_needs_growing(const struct runtime *rt);
/* Does runtime_env() need the addresses of all tasks? If not, the first address of each role is
 * enough, and the caller may set in->first_addresses_only. spec_bytes: length of the cluster spec
 * as JSON. */
bool runtime_needs_all(const struct runtime *rt, const struct rt_input *in, size_t spec_bytes);
/* Sets the variables that all frameworks share, then the framework's own. Leaves out the variables
 * of runtime.growing that are too long. -E2BIG: the framework needs one that is too long. */
int runtime_env(const struct runtime *rt, const struct rt_input *in, struct strv *env,
                struct err *e);
/* The number of ranks of all tracked roles. */
uint32_t runtime_world_size(const struct rt_role *roles, size_t n);
/* Copies host:port of one task to out. false: it has not registered, or out is too short. */
bool runtime_address(const struct rt_role *r, uint32_t index, char *out, size_t n);

/* Visits the tracked tasks in the order of their ranks, in one pass over all addresses. */
struct rt_task {
    const char *role;
    uint32_t role_index, index; /* number of the role among the roles, of the task in its role */
    uint32_t rank, ranks;       /* the task's first rank, and how many it has */
    char address[280];          /* host:port; "" = has not registered */
};
struct rt_walk {
    const struct rt_role *roles; /* the caller sets roles and n, and zeros everything else */
    size_t n;
    /* The task that the next call of runtime_walk() returns: */
    int pass; /* 0: the role "chief"; 1: all other roles */
    size_t role;
    uint32_t index, rank;
    struct span rest; /* its address and those of the tasks behind it in the role's list */
};
/* true: *out is the next task; false: all tasks were visited. */
bool runtime_walk(struct rt_walk *w, struct rt_task *out);
/* Copies the host of "host:port" to out, without brackets. false: not an address, or too long. */
bool runtime_host(const char *address, char *out, size_t n);
/* Appends {"worker":["h:p",...],...}: all roles in order, but neither roles without a registered
 * task nor the two that the caller names (NULL = none). */
int runtime_spec_json(const struct rt_role *roles, size_t n, const char *skip_role_a,
                      const char *skip_role_b, struct buf *out);
/* The inverse of runtime_spec_json(): let the list of each role point into its part of the text. A
 * role that the text lacks gets an empty list. -EINVAL: the text is not a spec of these roles. */
int runtime_spec_lists(struct span json, struct rt_role *roles, size_t n);
/* If a task of a running gang is lost: can the other tasks continue with a replacement? If not, all
 * tasks restart together. True if the framework is unknown or NULL. */
bool runtime_lives_with_new(const char *framework, const char *role, bool chief, bool gang,
                            bool has_ps);
/* Can a task be added to this role, or removed from it, while the other tasks continue? This
 * demands more than replacing a task: the others must accept that the number of their peers
 * changes. */
bool runtime_takes_more(const char *framework, const char *role, bool chief, bool gang,
                        bool has_ps);
/* Does this task reserve a port for TensorBoard? Each task of the role tensorboard does. If the job
 * lacks that role, the chief does. */
bool runtime_wants_tb_port(const char *framework, const char *role, bool chief,
                           bool has_tensorboard_role);

#endif
