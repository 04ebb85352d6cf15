/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration: one table of keys, layers of values that remember their origin, and the typed job
 * that comes out of them.
 *
 * Layers, later wins: built-in default -> site file ($TONY_CONF_DIR/tony-site.xml or .yaml) -> job
 * file -> options -> --conf. A value marked final in the site file wins over all (a later one is
 * refused with both origins, as an error). Multi-value keys (tony.containers.envs,
 * tony.execution.envs, tony.containers.resources): a --conf or option value is appended. Source of
 * keys, defaults and meaning: TonY 0.5; ours are marked since "tony 1".
 */
#ifndef TONY_CONF_CONF_H
#define TONY_CONF_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/reason.h"
#include "base/vec.h"

struct err;

/* ---- the table of keys ---- */

enum conf_type {
    CT_NONE = 0,
    CT_STR,
    CT_INT,
    CT_BOOL,
    CT_LIST,
    CT_MEM,
    CT_ENVS,
    CT_ENUM,
    CT_COUNT
};

/* What setting the key does in this release; `tony doctor --keys` prints it. */
enum conf_effect {
    CE_NONE = 0,
    CE_ACTS,  /* honoured */
    CE_YARN,  /* only with --cluster yarn: known and validated, no effect elsewhere */
    CE_LATER, /* known and validated; not acted on in this release */
    CE_JVM,   /* accepted, no meaning here, mostly of the JVM or the portal of the original; `help`
                 says why */
    CE_REFUSED, /* setting it is an error, `help` says what to do instead */
    CE_COUNT,
};

struct conf_key {
    const char *name; /* "tony.<role>.memory", "tony.task.max-total-<resource>", "tony.cluster" */
    const char *dflt; /* as text; NULL = unset */
    int64_t min, max; /* CT_INT and CT_MEM (MiB) */
    const char *unit; /* "ms", "s", "MiB", "" */
    const char *choices; /* CT_ENUM: "GANG|FCFS", compared without case */
    const char *since;   /* "TonY", "TonY 0.5", "tony 1" */
    const char *help;    /* one sentence */
    enum conf_type type;
    enum conf_effect effect;
    bool secret; /* its value is masked wherever it is shown */
};

const struct conf_key *conf_keys(size_t *out_n);
/* The row for a concrete key; *out_role is the matched <role> (or <G>...) part, if any. NULL:
 * unknown. */
const struct conf_key *conf_key_find(struct span key, struct span *out_part);
const char *conf_key_nearest(const char *key,
                             struct buf *scratch); /* for "did you mean"; NULL if none is near */
bool conf_role_name_ok(struct span name,
                       struct err *e);    /* letters, digits, - _; not reserved; 63 at most */
bool conf_key_is_secret(const char *key); /* flagged, or its name says so (secret, password, token,
                                             credential, private-key) */

/* ---- layered values ---- */

struct conf; /* opaque */

struct conf_entry {
    const char *key, *value;
    const char *origin; /* "default", "site file /etc/tony/tony-site.xml:12", "job.yaml:7",
                           "--conf", "--executes" */
    bool final;
};

struct conf *conf_new(void); /* with the defaults in it; NULL = no memory */
void conf_free(struct conf *c);
void conf_freep(struct conf **c);

enum conf_layer { CL_NONE = 0, CL_DEFAULT, CL_SITE, CL_JOB, CL_OPTION, CL_CONF };
/* Validates key and value against the table. */
int conf_set(struct conf *c, enum conf_layer layer, const char *key, const char *value,
             const char *origin, bool final, struct err *e);
/* A file by its suffix: .xml, else YAML. site: TonY/Hadoop's <final> is honoured. Every error names
 * file and line. */
int conf_load_file(struct conf *c, enum conf_layer layer, const char *path, struct err *e);
int conf_load_text(struct conf *c, enum conf_layer layer, const char *name, struct span text,
                   bool xml, struct err *e);
/* $TONY_CONF_DIR/tony-site.{xml,yaml} if there; a missing one is fine. */
int conf_load_site(struct conf *c, struct err *e);

const char *conf_get(const struct conf *c, const char *key); /* NULL = unset; borrowed */
const char *conf_origin(const struct conf *c, const char *key);
int64_t conf_int(const struct conf *c,
                 const char *key); /* of a key whose row says CT_INT or CT_MEM; 0 if unset */
bool conf_bool(const struct conf *c, const char *key);
/* In order of first appearance. Iterates set entries, defaults included: i from 0 until false. */
bool conf_at(const struct conf *c, size_t i, struct conf_entry *out);

/* The final configuration as text (a JSON list) and back. Round trip keeps order, origin, final. */
int conf_encode(const struct conf *c, struct buf *out, struct err *e);
int conf_decode(struct span text, struct conf **out, struct err *e);
struct json_t;
int conf_decode_json(const struct json_t *list, struct conf **out,
                     struct err *e); /* when it was parsed already */

/* ---- values that hold several things ---- */

/*
 * Lists: items separated by commas and trimmed, empty ones dropped. A comma in an item is written
 * '\,' (TonY has no way to write one). Environments: TonY's "A=1, B, C=3", also in brackets; an
 * item without '=' has an empty value; a later one replaces an earlier one. Each appends to its
 * output. 0 or -errno.
 */
int conf_list_parse(struct span text, struct strv *out);
int conf_list_add(struct buf *list, struct span item); /* item written so that it parses back */
int conf_env_parse(struct span text, struct strv *out, struct err *e);
int conf_env_add(struct buf *list, const char *name, struct span value); /* likewise */

/* "[interpreter ]<executes>[ <task_params>]"; the interpreter is taken from venv/ when relative and
 * there is one. NULL = no memory. */
char *conf_build_command(const char *executes, const char *task_params, const char *python_binary,
                         bool has_venv);

/* ---- the typed job ---- */

enum role_kind {
    ROLE_NONE = 0,
    ROLE_TRACKED,   /* the job waits for it */
    ROLE_UNTRACKED, /* not waited for; its failure fails the job */
    ROLE_SIDECAR,   /* not waited for; its failure is ignored */
};

enum restart_policy { /* tony.<role>.restart */
                      RESTART_UNSET =
                          0, /* not for what the task itself does; but for what happens to it */
                      RESTART_NEVER,      /* whatever the reason */
                      RESTART_ON_FAILURE, /* also when it fails by itself */
                      RESTART_ALWAYS,     /* also when it ends well */
};

enum restart_scope {                  /* tony.<role>.restart-scope */
                     SCOPE_UNSET = 0, /* the framework says (runtime.h) */
                     SCOPE_TASK,      /* only the task itself */
                     SCOPE_ROLE,      /* all tasks of its role */
                     SCOPE_JOB,       /* the gang is formed anew */
};

struct code_range { /* exit codes from..to; 128 + n stands for signal n */
    int from, to;
};

struct code_list {
    struct code_range *v;
    size_t n;
};

struct resource_spec { /* SRC[::NAME][#archive] */
    char *source; /* path or URL as given (relative ones against the job file's directory or the
                     cwd) */
    char *name;   /* in the working directory */
    bool archive;
};

struct role_gate { /* all tasks of `role` have started, or are ready */
    uint32_t role;
    bool ready;
};

enum resize_policy {
    RESIZE_UNSET = 0, /* RESIZE_LIVE if its framework can take a new member, else RESIZE_RESTART */
    RESIZE_RESTART,   /* the gang saves a checkpoint, stops, and forms anew with the new size */
    RESIZE_LIVE,      /* tasks are added or told to leave, and the others run on */
    RESIZE_NEVER,
};

struct role_spec {
    char *name;
    uint32_t instances;
    int64_t max_instances;     /* -1 = no cap */
    uint32_t min_instances;    /* the job may be resized down to these; at least 1 */
    enum resize_policy resize; /* how its tasks take part when the job changes its size */
    char *resume_command;      /* run instead of command when the job resumes from a checkpoint;
                                  NULL = command */
    uint64_t memory_mib;
    uint32_t vcores, gpus;
    uint32_t ranks; /* processes of each task, at least 1 */
    char *command;
    char *memory_origin; /* for messages: where the memory value came from, "default" included */
    struct strv env;     /* K=V, of this role's tasks */
    struct resource_spec *resources;
    size_t n_resources;
    enum role_kind kind;
    bool stop_on_failure;
    uint32_t *waits_for; /* indices of roles all of whose tasks must have completed before this one
                            is requested */
    size_t n_waits_for;
    uint32_t *needs; /* of these, those whose tasks must all have succeeded */
    size_t n_needs;
    struct role_gate *gates; /* it is requested, but its tasks begin no sooner */
    size_t n_gates;
    uint32_t *stops; /* roles that are stopped when all of its tasks have ended */
    size_t n_stops;
    char *ready; /* how its tasks become ready: "port", "port:N", "file:PATH", "word"; NULL = nobody
                    asks */
    enum restart_policy restart;
    enum restart_scope restart_scope;
    int64_t max_restarts;       /* for what the task does itself; -1 = no limit */
    uint64_t restart_window_ms; /* in which max_restarts counts; 0 = over the whole job */
    uint64_t restart_delay_ms;  /* before the first restart; doubles */
    struct code_list retry_on, no_retry_on;
    uint32_t spares;        /* containers kept ready besides the instances */
    char *docker_image;     /* on the pool: its command runs in a container of it; NULL = not */
    char *progress_pattern; /* what in its output tells its progress; NULL = nothing does */
};

struct group_timeout { /* tony.application.dependency.<role>.timeout.after.<group>[.ignored] */
    uint32_t role;
    uint32_t *members; /* roles of the group */
    size_t n_members;
    uint64_t timeout_ms;
    bool ignored;
    char *group;
};

/* What tony.application.enable-preprocess runs: one task, for which all others wait. */
#define PREPROCESS_ROLE "preprocess"

/* The resources that tony.task.max-total-<resource> limits. A limit is for all roles together. */
#define TOTALS(X)                                                                                  \
    X(TOTAL_INSTANCES, "instances", "tasks")                                                       \
    X(TOTAL_MEMORY, "memory", "MiB of memory")                                                     \
    X(TOTAL_VCORES, "vcores", "vcores")                                                            \
    X(TOTAL_GPUS, "gpus", "gpus")
enum total {
#define X(id, key, unit) id,
    TOTALS(X)
#undef X
        TOTAL_COUNT,
};

struct job_spec {
    char *name, *framework /* lower case */, *queue, *cluster /* local, yarn, slurm */;
    bool gang;                   /* else FCFS */
    bool addresses_in_file_only; /* no CLUSTER_SPEC, TF_CONFIG, ...: tasks read TONY_SPEC_FILE */
    int priority;
    struct role_spec *roles;
    size_t n_roles;
    uint32_t n_tasks;       /* all instances */
    bool single_node;       /* no role has instances: the command runs as one task 'driver:0' with
                               tony.am.* resources in the master's place */
    bool horovod_driver;    /* a role 'driver' of the user's has the rendezvous server */
    bool horovod_fast_fail; /* test: there is none */
    bool preprocess;        /* the last role is PREPROCESS_ROLE */
    struct role_spec am;    /* name "am": memory, vcores, gpus, command, resources */
    struct strv container_env, execution_env;
    struct resource_spec *resources; /* of all containers */
    size_t n_resources;
    char *src, *venv, *python_binary;
    bool fail_on_worker_failure;
    bool server;          /* the framework's is beside the task that has rank 0: the first */
    uint32_t server_role; /* of this role */
    uint64_t app_timeout_ms, allocation_timeout_ms, registration_timeout_ms,
        execution_timeout_ms; /* 0 = none */
    uint32_t heartbeat_ms, max_missed_heartbeats, metrics_ms;
    int64_t client_away_ms; /* -1 never */
    uint64_t
        resize_timeout_ms; /* for the containers of a larger size to be granted; 0 = no limit */
    uint64_t max_total[TOTAL_COUNT]; /* of all roles; 0 = no cap */
    uint32_t kill_grace_ms, master_away_ms, stderr_lines;
    uint32_t am_retry_count;
    uint32_t restarts[END_COUNT]; /* by reason: how often a task is started again for what was done
                                     to it; 0 = not at all */
    uint32_t node_max_failures;   /* 0 = nodes are not judged */
    uint64_t node_window_ms;
    struct group_timeout *group_timeouts;
    size_t n_group_timeouts;
    char *tensorboard_log_dir;
    char *docker_mounts; /* on the pool: "SRC:DST[:MODE],..."; NULL = none */
    /* Where checkpoints appear, how they are named, what makes one whole; NULL = tasks say so. */
    char *checkpoint_dir, *checkpoint_pattern, *checkpoint_marker;
    uint32_t checkpoint_grace_ms; /* what a task gets to save one before it is stopped */
    int checkpoint_signal;        /* that asks for it */
    struct strv warnings;         /* sentences for the user; nothing that is an error */
};

/* Check the whole (roles, commands, stages form a DAG, caps, totals) and build it. Errors name key
 * and origin. */
int job_spec_build(const struct conf *c, struct job_spec **out, struct err *e);
void job_spec_free(struct job_spec *s);
void job_spec_freep(struct job_spec **s);
/* How often its own failures may be followed by another attempt; a very large number = no limit. */
uint32_t role_spec_restarts(const struct role_spec *r);
const struct role_spec *job_spec_role(const struct job_spec *s, const char *name);
/* How a task of the role takes part in a resize: RESIZE_RESTART, RESIZE_LIVE or RESIZE_NEVER. */
enum resize_policy role_spec_resize(const struct job_spec *s, const struct role_spec *r);
const char *resize_policy_name(enum resize_policy policy); /* "restart", "live", "never" */
/* May a job that has `now` instances of each role have `target` of them? Both have s->n_roles
 * entries. Checks the bounds of the roles, their policies, the caps on totals, and what the
 * framework demands. 0, or -EINVAL with a sentence that names the role and the key. */
int job_spec_check_size(const struct job_spec *s, const uint32_t *now, const uint32_t *target,
                        struct err *e);
/* Do the caps on totals allow sizes[i] instances of each role i? */
bool job_spec_in_caps(const struct job_spec *s, const uint32_t *sizes);

/* What the job holds at its peak over its stages (kept to the end): memory and GPUs exactly;
 * single-node charges tony.am.*. */
struct job_demand {
    uint64_t memory_mib;
    uint32_t gpus, vcores;
    uint32_t n_containers;
    uint64_t largest_memory_mib; /* of one container */
    uint32_t largest_gpus;
};
void job_spec_demand(const struct job_spec *s, struct job_demand *out);
/* Which roles hold the peak if role i has instances[i]? counts[i] is set for each: all that never
 * wait for each other, and of those that do the set that needs most. Both have s->n_roles entries.
 * If one set needs most memory and another most GPUs, both count. */
void job_spec_peak_roles(const struct job_spec *s, const uint32_t *instances, bool *counts);

/* "SRC[::NAME][#archive]" */
int resource_parse(struct span text, struct resource_spec *out, struct err *e);
void resource_done(struct resource_spec *r);

#endif
