/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration: the table of keys, the layers of values with their origins, and the typed job that
 * is built from them.
 *
 * Layers, from the lowest to the highest: built-in defaults, site file
 * ($TONY_CONF_DIR/tony-site.xml or .yaml), job file, options, --conf. The value of a higher layer
 * wins. If the site file marks a value as final, another value in a higher layer is an error that
 * names both origins.
 *
 * Four keys are appended to: if an option or --conf sets tony.containers.envs, tony.execution.envs,
 * tony.containers.resources or tony.application.secrets, its value is added to the earlier one.
 *
 * Keys, defaults and meaning come from TonY 0.5. Keys that only tony has are marked "tony 1".
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
struct rt_job; /* runtime/runtime.h */
struct rt_role;

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
    CT_REAL,
    CT_COUNT
};

/* The effect of setting the key in this release; `tony doctor --keys` prints it. */
enum conf_effect {
    CE_NONE = 0,
    CE_ACTS,  /* the key has its effect */
    CE_YARN,  /* effect only with --cluster yarn; elsewhere known and validated */
    CE_SLURM, /* effect only with --cluster slurm; elsewhere known and validated */
    CE_LATER, /* known and validated, but without effect in this release */
    /* Accepted without effect, mostly about the JVM or the portal of TonY; `help` says why. */
    CE_JVM,
    CE_REFUSED, /* setting it is an error; `help` says what to do instead */
    CE_COUNT,
};

struct conf_key {
    const char *name; /* "tony.<role>.memory", "tony.task.max-total-<resource>", "tony.cluster" */
    size_t name_len;
    const char *dflt;    /* the default as text; NULL = unset */
    int64_t min, max;    /* CT_INT, CT_REAL and CT_MEM (MiB) */
    const char *unit;    /* "ms", "s", "MiB", "" */
    const char *choices; /* CT_ENUM: "GANG|FCFS", compared without case */
    const char *since;   /* "TonY", "TonY 0.5", "tony 1" */
    const char *help;    /* one sentence */
    enum conf_type type;
    enum conf_effect effect;
    bool secret; /* tony does not print the value */
};

const struct conf_key *conf_keys(size_t *out_n);
/* The row for a key. *out_part is the part of the key that stands for the first placeholder, such
 * as the role; empty if there is none. NULL: unknown key. */
const struct conf_key *conf_key_find(struct span key, struct span *out_part);
/* Check a value against its row. The error names the key. */
int conf_check_value(const struct conf_key *row, const char *key, const char *value, struct err *e);
/* For "did you mean"; NULL = no similar key. */
const char *conf_key_nearest(const char *key, struct buf *scratch);
/* Letters, digits, '-' and '_', at most 63 of them; no reserved name. */
bool conf_role_name_ok(struct span name, struct err *e);
/* For a key of the table: it is marked secret. For another name, such as that of a variable: it
 * contains secret, password, token, credential or private-key. */
bool conf_key_is_secret(const char *key);

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
/* Check key and value against the table, and set the key. */
int conf_set(struct conf *c, enum conf_layer layer, const char *key, const char *value,
             const char *origin, bool final, struct err *e);
/* Load a file: XML if it ends in .xml or begins with '<', else YAML. <final> counts only in the
 * site file. Every error names the file and the line. */
int conf_load_file(struct conf *c, enum conf_layer layer, const char *path, struct err *e);
int conf_load_text(struct conf *c, enum conf_layer layer, const char *name, struct span text,
                   bool xml, struct err *e);
/* Load $TONY_CONF_DIR/tony-site.xml or .yaml. It is no error if there is none. */
int conf_load_site(struct conf *c, struct err *e);

const char *conf_get(const struct conf *c, const char *key); /* NULL = unset; borrowed */
const char *conf_origin(const struct conf *c, const char *key);
/* Of a key of type CT_INT or CT_MEM; 0 if unset. */
int64_t conf_int(const struct conf *c, const char *key);
double conf_real(const struct conf *c, const char *key); /* of type CT_REAL; 0 if unset */
bool conf_bool(const struct conf *c, const char *key);
/* Iterate over all entries, defaults included, in order of first appearance: i from 0 until
 * false. */
bool conf_at(const struct conf *c, size_t i, struct conf_entry *out);

/* Write the final configuration as text (a JSON list), and read it. Order, origin and final are
 * kept. */
int conf_encode(const struct conf *c, struct buf *out, struct err *e);
/* The same for files that other users can read: "***" takes the place of each value whose key, or
 * whose variable in an environment, conf_key_is_secret() takes for a secret. */
int conf_encode_masked(const struct conf *c, struct buf *out, struct err *e);
/* Would conf_encode_masked() hide anything? */
bool conf_has_secrets(const struct conf *c);
int conf_decode(struct span text, struct conf **out, struct err *e);

/* ---- lists and environments in one value ---- */

/*
 * Lists: items separated by commas. Items are trimmed, empty ones are dropped. '\,' is a comma
 * inside an item; TonY has no way to write one.
 *
 * Environments: as in TonY, "A=1, B, C=3", also in brackets. An item without '=' has an empty
 * value. A later item replaces an earlier one of the same name.
 *
 * Each function appends to its output. 0 or -errno.
 */
int conf_list_parse(struct span text, struct strv *out);
/* Parse a list of rising numbers from min to max, at most n_max of them. 0 or -errno. */
int conf_levels_parse(const char *text, double min, double max, const char *what, double *out,
                      size_t n_max, size_t *out_n, struct err *e);
enum { CONF_LEVELS_MAX = 16 };
/* Writes the item so that conf_list_parse() gives it back. */
int conf_list_add(struct buf *list, struct span item);
int conf_env_parse(struct span text, struct strv *out, struct err *e);
/* Writes the variable so that conf_env_parse() gives it back. */
int conf_env_add(struct buf *list, const char *name, struct span value);

/* "[interpreter ]<executes>[ <task_params>]". If the job has a virtual environment, a relative path
 * of the interpreter means a file in venv/. NULL = no memory. */
char *conf_build_command(const char *executes, const char *task_params, const char *python_binary,
                         bool has_venv);

/* ---- the typed job ---- */

enum role_kind {
    ROLE_NONE = 0,
    ROLE_TRACKED,   /* the job waits for it */
    ROLE_UNTRACKED, /* the job does not wait for it; its failure fails the job */
    ROLE_SIDECAR,   /* the job does not wait for it; its failure is ignored */
};

/* tony.<role>.restart: after which ends is a task restarted? */
enum restart_policy {
    RESTART_UNSET = 0, /* if its container is lost or preempted, but not if the task itself fails */
    RESTART_NEVER,     /* never */
    RESTART_ON_FAILURE, /* also if the task fails */
    RESTART_ALWAYS,     /* also if the task succeeds */
};

/* tony.<role>.restart-scope: which tasks are restarted together with a failed one? */
enum restart_scope {
    SCOPE_UNSET = 0, /* the framework decides (runtime.h) */
    SCOPE_TASK,      /* only the task itself */
    SCOPE_ROLE,      /* all tasks of its role */
    SCOPE_JOB,       /* all tasks of the job */
};

struct code_range { /* exit codes from..to; 128 + n stands for signal n */
    int from, to;
};

struct code_list {
    struct code_range *v;
    size_t n;
};

struct resource_spec { /* SRC[::NAME][#archive] */
    char *source; /* path or URL as given; relative ones start at the job file's directory or the
                     current one */
    char *name;   /* name in the working directory */
    bool archive;
};

struct role_gate { /* tasks of `role` must all have started, or be ready */
    uint32_t role;
    bool ready;
};

enum resize_policy {
    /* Not set: RESIZE_LIVE if the framework can add a member to a running job, else
     * RESIZE_RESTART. */
    RESIZE_UNSET = 0,
    RESIZE_RESTART, /* all tasks save a checkpoint, stop, and restart with the new size */
    RESIZE_LIVE,    /* tasks are added or stopped; the other tasks continue */
    RESIZE_NEVER,
};

struct role_spec {
    char *name;
    uint32_t instances;
    int64_t max_instances;     /* -1 = no cap */
    uint32_t min_instances;    /* a resize may not go below this; at least 1 */
    bool says_bounds;          /* both bounds are set: a policy of the pool may resize the role */
    enum resize_policy resize; /* what a resize of the job does to the tasks of this role */
    char *resume_command;      /* replaces `command` when the job resumes from a checkpoint; NULL =
                                  `command` */
    uint64_t memory_mib;
    uint32_t vcores, gpus;
    uint32_t ranks; /* processes of each task, at least 1 */
    char *command;
    char *memory_origin; /* origin of the memory value, for messages; may be "default" */
    struct strv env;     /* K=V, of this role's tasks */
    struct resource_spec *resources;
    size_t n_resources;
    enum role_kind kind;
    bool stop_on_failure;
    uint32_t *waits_for; /* roles whose tasks must all have completed before containers for this
                            role are requested */
    size_t n_waits_for;
    uint32_t *needs; /* the roles of waits_for whose tasks must all have succeeded */
    size_t n_needs;
    struct role_gate *gates; /* its tasks start only when all of these are open */
    size_t n_gates;
    uint32_t *stops; /* roles that are stopped when all tasks of this role have ended */
    size_t n_stops;
    char *ready; /* how its tasks become ready: "port", "port:N", "file:PATH" or "word"; NULL = no
                    role waits for that */
    enum restart_policy restart;
    enum restart_scope restart_scope;
    int64_t max_restarts;       /* restarts after a failure of the task itself; -1 = no limit */
    uint64_t restart_window_ms; /* time in which max_restarts is counted; 0 = the whole job */
    uint64_t restart_delay_ms;  /* pause before the first restart; doubles with each further one */
    struct code_list retry_on, no_retry_on;
    uint32_t spares;    /* spare containers besides those of the instances */
    char *docker_image; /* cluster local: image of the container in which the command runs; NULL =
                           none */
    char *progress_pattern; /* pattern that finds the progress in the output; NULL = none */
};

struct group_timeout { /* tony.application.dependency.<role>.timeout.after.<group>[.ignored] */
    uint32_t role;
    uint32_t *members; /* roles of the group */
    size_t n_members;
    uint64_t timeout_ms;
    bool ignored;
    char *group;
};

/* The role of the single task that tony.application.enable-preprocess runs. All other tasks wait
 * for it. */
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
    bool gang;                   /* all tasks must be registered before one starts; false = FCFS */
    bool addresses_in_file_only; /* tasks get TONY_SPEC_FILE, but not CLUSTER_SPEC, TF_CONFIG and
                                    other variables with addresses */
    int priority;
    uint32_t weight; /* for policies of the pool that divide the machine; at least 1 */
    double budget;   /* policy `market`; 0 = the weight */
    /* Does the job continue after the machine has stopped? -1: as the pool does by default. */
    int restart_on_boot;
    struct role_spec *roles;
    size_t n_roles;
    uint32_t n_tasks; /* sum over all roles */
    bool single_node; /* No role has instances: the command runs as one task 'driver:0'. It has the
                         resources tony.am.*, and on YARN it runs in the master's container. */
    bool horovod_driver;    /* the user's role 'driver' runs the rendezvous server */
    bool horovod_fast_fail; /* for tests: no rendezvous server */
    bool preprocess;        /* the last role is PREPROCESS_ROLE */
    struct role_spec am;    /* name "am": memory, vcores, gpus, command, resources */
    struct strv container_env, execution_env;
    struct strv secrets; /* NAME=env:VARIABLE or NAME=file:PATH; storage/secrets.h has the values */
    struct resource_spec *resources; /* of all containers */
    size_t n_resources;
    char *src, *venv, *python_binary;
    bool fail_on_worker_failure;
    bool streams;         /* exec, forward and cp are allowed */
    bool server;          /* the executor of rank 0's task runs the framework's server */
    uint32_t server_role; /* rank 0 belongs to the first task of this role */
    uint64_t app_timeout_ms, allocation_timeout_ms, registration_timeout_ms,
        execution_timeout_ms; /* 0 = none */
    uint32_t heartbeat_ms, max_missed_heartbeats, metrics_ms;
    bool gpu_metrics;
    int64_t client_away_ms;         /* -1 = never */
    uint16_t port_first, port_last; /* the ports of masters and executors; 0 = not set */
    uint64_t resize_timeout_ms; /* time limit for the grant of containers that a larger size needs;
                                   0 = none */
    uint64_t max_total[TOTAL_COUNT]; /* of all roles; 0 = no cap */
    uint32_t kill_grace_ms, master_away_ms, stderr_lines;
    uint32_t umask; /* of tasks */
    uint32_t am_retry_count;
    uint32_t restarts[END_COUNT]; /* for each reason: how often a task is restarted after it was
                                     stopped for that reason; 0 = never */
    uint32_t node_max_failures;   /* 0 = failures are not counted by node */
    uint64_t node_window_ms;
    struct group_timeout *group_timeouts;
    size_t n_group_timeouts;
    char *tensorboard_log_dir;
    char *on_end, *on_end_secret; /* storage/hook.h; NULL = not set */
    bool requeue_at_limit;        /* cluster slurm: tony.slurm.requeue-at-limit */
    char *slurm_exclude;          /* cluster slurm: tony.slurm.exclude; NULL = not set */
    char *docker_mounts;          /* cluster local: "SRC:DST[:MODE],..."; NULL = none */
    /* Directory and name pattern of checkpoints, and the file that marks a complete one. NULL: only
     * the tasks report checkpoints. */
    char *checkpoint_dir, *checkpoint_pattern, *checkpoint_marker;
    uint32_t checkpoint_grace_ms; /* time for a checkpoint before a task is stopped */
    int checkpoint_signal;        /* signal that asks a task for a checkpoint */
    struct strv warnings;         /* warnings for the user */
};

/* Check the whole configuration (roles, commands, dependencies without cycle, limits) and build the
 * job. Errors name key and origin. */
int job_spec_build(const struct conf *c, struct job_spec **out, struct err *e);
void job_spec_free(struct job_spec *s);
void job_spec_freep(struct job_spec **s);
/* How many restarts may follow failures of the task itself; a very large number = no limit. */
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

/* The resources that the job holds at its peak, if each role keeps its containers until its end.
 * Memory and GPUs are exact. A job without roles counts tony.am.*. */
struct job_demand {
    uint64_t memory_mib;
    uint32_t gpus, vcores;
    uint32_t n_containers;
    uint64_t largest_memory_mib; /* of one container */
    uint32_t largest_gpus;
};
void job_spec_demand(const struct job_spec *s, struct job_demand *out);
/* Which roles hold containers at the peak, if role i has instances[i]? Sets counts[i] for each
 * role: true for all roles that do not take part in dependencies, and for the set of the others
 * that needs most. If one set needs most memory and another one most GPUs, both count. Both arrays
 * have s->n_roles entries. */
void job_spec_peak_roles(const struct job_spec *s, const uint32_t *instances, bool *counts);

/* How a policy may resize a job: one of its roles says both bounds, and may be resized. With n
 * instances of that role, the job needs fixed + n * each. */
struct job_elastic {
    const struct role_spec *role;
    uint32_t min, max;        /* instances; 1 <= min < max */
    uint64_t each_memory_mib; /* of one instance */
    uint32_t each_gpus, each_vcores;
    uint64_t fixed_memory_mib; /* of all other containers */
    uint32_t fixed_gpus, fixed_vcores;
    uint32_t fixed_containers;
};
/* false: a policy may resize no role, or more than one; or the needs of an instance depend on the
 * size, because roles of different stages use the same resources one after the other. */
bool job_spec_elastic(const struct job_spec *s, struct job_elastic *out);

/* The roles as runtime/runtime.h takes them, with n[i] tasks of role i; n = NULL: as many as the
 * job file says. They borrow their names from s. The caller frees the array; NULL = no memory. */
struct rt_role *job_spec_rt_roles(const struct job_spec *s, const uint32_t *n);
/* The job as runtime_lengths() takes it, with the first n_roles of these roles, which it borrows.
 */
void job_spec_rt_job(const struct job_spec *s, const struct rt_role *roles, size_t n_roles,
                     struct rt_job *out);

/* "SRC[::NAME][#archive]" */
int resource_parse(struct span text, struct resource_spec *out, struct err *e);
void resource_done(struct resource_spec *r);

#endif
