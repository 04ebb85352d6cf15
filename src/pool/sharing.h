/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy of src/partition divides the machine among the jobs of the pool.
 *
 * With the policy `fifo`, which is the default, nothing in this file acts: jobs start in the order
 * of the queue (admission.h).
 *
 * A decision. When the queue, a job or the machine has changed, the pool decides again, on a
 *   thread, with a copy of the input (sharing.c). Two decisions are at least `interval` apart; one
 *   decision covers all changes in between. If a job has changed while the thread worked, the pool
 *   discards the result. While the last decision is being carried out, the pool decides only if new
 *   jobs have come.
 *
 * A target is the change that a decision wants from one job. It is in force until the job has made
 *   the change, or until its time limit (`resize-limit`). Later decisions see the job as if it had
 *   reached its target, and do not change it meanwhile.
 *
 *   START   The pool writes the number of instances into job.conf (resize.c), then admits the job.
 *   SHRINK  The pool asks the job to shrink (pool_job_wish()).
 *   GROW    Once memory and GPUs are free, the pool offers them. The job's master then asks for an
 *           extension.
 *   EXTEND  A user has resized the job: its extension may be granted.
 *
 * Only admission (pool_admit()) gives memory and GPUs to jobs. Under a policy it admits only jobs
 * and extensions that have a target. All targets together fit into the machine, so none of them has
 * to wait for another one.
 *
 * If a job does not reach its target in time, it keeps its size, and no decision changes it during
 * another `resize-limit`. The pool drops all targets that were not reached, and decides again.
 *
 * A new pool has no targets. It reads the settings (sharing_conf.c), learns from the keepers what
 * the jobs hold, and decides. From the file pool/decisions it knows since when each job has had its
 * size.
 */
#ifndef TONY_POOL_SHARING_H
#define TONY_POOL_SHARING_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arbiter/settings.h"
#include "base/base.h"
#include "partition/partition.h"
#include "pool/admission.h"
#include "pool/costs.h"
#include "pool/service.h"
#include "pool/share.h"
#include "storage/paths.h"

struct conf;
struct err;
struct job_spec;
struct loop_timer;
struct pool;
struct pool_job;

enum {
    SHARING_KEYS = 12,
    SHARING_KEPT = 100, /* decisions in memory */
    /* of the file pool/decisions; at this size it is renamed to decisions.1 */
    SHARING_FILE_MAX = 1 << 20,
    SHARING_FILE_READ_MAX = 1 << 28, /* one decision may be large */
    SHARING_ROLE_MAX = 64,           /* as long as the name of a role may be */
    SHARING_NAME_MAX = 96,
};

/* How a policy may resize a job: read from its job file. */
struct pool_elastic {
    /* one role has both bounds and may be resized; false: the job counts as one container */
    bool has;
    char role[SHARING_ROLE_MAX];
    struct admission_amount fixed, each; /* the job needs fixed + n * each */
    uint32_t fixed_containers;
    uint32_t min, max;
    bool says_restart; /* `resize: restart`: the job may be stopped without a newer checkpoint */
};

enum target_kind {
    TARGET_NONE = 0,
    TARGET_START,
    TARGET_SHRINK,
    TARGET_GROW,
    TARGET_EXTEND,
};

struct pool_target {
    enum target_kind kind;
    uint32_t n;     /* containers of the elastic role */
    bool ready;     /* START: job.conf has this number; SHRINK, GROW: the job was told */
    bool writing;   /* START: job.conf is being written */
    int64_t due_ms; /* the target is dropped at this time */
};

/* The result of the last decision for a job. */
struct sharing_result {
    char id[APP_ID_MAX];
    char name[SHARING_NAME_MAX]; /* of the job; a longer one is cut */
    bool extension;
    bool elastic; /* the job may be resized; false: it counts as one container */
    struct part_target target;
    enum share_pin pin;
    uint32_t had;          /* containers before */
    int64_t since_wall_ms; /* the time since which all decisions have had this result */
};

struct sharing_record {
    uint64_t number; /* counted in this TONY_HOME */
    int64_t wall_ms, took_ms;
    char policy[16];
    struct part_metrics metrics;
    struct sharing_result *jobs;
    size_t n;
};

struct sharing {
    struct policy_settings settings;
    char *set[SHARING_KEYS]; /* by `tony pool set`; NULL = the site's value */
    struct loop_timer *timer;
    struct sharing_round *round; /* the decision that a thread computes; NULL = none */
    bool changed;                /* something has changed since the last decision */
    /* time at which to decide again although nothing has changed (again_s); 0 = none */
    int64_t again_ms;
    int64_t decided_ms; /* when the last decision began; 0 = there was none */
    /* the hash of the input of the last decision; 0 = that decision changed something */
    uint64_t decided_on;
    uint64_t number;
    struct costs_table costs;
    struct service_file service;
    json_t *before; /* the last decision of an earlier pool, until this pool has decided; or NULL */
    VEC(struct sharing_record) records; /* the last SHARING_KEPT decisions, the newest at the end */
};

/* ---- sharing.c: when and what is decided ---- */

int sharing_init(struct pool *p, struct err *e); /* reads the settings */
void sharing_done(struct pool *p);
bool sharing_divides(const struct pool *p); /* false: fifo */
/* A part of the input of decisions has changed. The pool decides later, from the loop. */
void sharing_changed(struct pool *p);
/* Fill j->elastic from the job's specification. */
void sharing_read_job(struct pool_job *j, const struct job_spec *spec);

/* Set *s to the input of a decision about the job. s->id is not set. */
void sharing_describe(const struct pool_job *j, struct share_job *s);
/* The same for the waiting extension of the job. false: it has none. */
bool sharing_describe_extension(const struct pool_job *j, struct share_job *s);
/* The memory and GPUs that must be free for the start of the waiting job: under a policy that
 * resizes, its smallest size is enough. */
struct admission_amount sharing_least(const struct pool_job *j);
/* The job has reported the cost of a resize: store it for other jobs of its name. */
void sharing_learn(const struct pool_job *j);

/* ---- sharing_targets.c: carries decisions out ---- */

/* Under a policy: may this job be admitted now, or this extension be granted? */
bool sharing_allows(const struct pool_job *j, bool extension);
/* Set the target of the job from the decision. true: the job has to change. */
bool sharing_aim(struct pool_job *j, const struct part_target *t, bool extension);
/* Called after each admission: removes reached targets, asks jobs to shrink, offers free memory
 * and GPUs to others. */
void sharing_carry_out(struct pool *p);
/* Drop the targets of jobs that have not reached them in time. Returns the next time at which this
 * has to be done; INT64_MAX = there is none. */
int64_t sharing_give_up(struct pool *p);
void sharing_drop_targets(struct pool *p);
/* The job waits, and its start is decided. Sets *out_ms to the time within which the jobs that have
 * to shrink before are asked to do so (0 = none has to), and *out to one of those (NULL = none).
 * Returns how many have to; -1 = the start is not decided. */
int sharing_start_waits(const struct pool_job *j, int64_t *out_ms, const struct pool_job **out);
/* The number of containers of its elastic role that the running job holds. false: unknown. */
bool sharing_count(const struct pool_job *j, uint32_t *out);
/* The job's keeper is dead. Perhaps it had not passed the pool's wish on to a master: send the wish
 * again to the next keeper. */
void sharing_keeper_died(struct pool_job *j);
/* Is the extension within the job's target to grow? */
bool sharing_extension_fits_target(const struct pool_job *j);
void sharing_sized(struct pool_job *j, int rc); /* TARGET_START: job.conf was changed, or rc */

/* ---- sharing_conf.c: the settings ---- */

int sharing_conf_load(struct pool *p, struct err *e);
/* Change settings: words are KEY=VALUE, with or without "tony.pool.policy." before KEY; an empty
 * VALUE restores the site's value. All settings are changed, or none. 0 or -errno: e names the
 * key. */
int sharing_conf_set(struct pool *p, char *const *words, size_t n, struct err *e);
int sharing_conf_report(const struct pool *p, struct buf *out); /* JSON; docs/json.md */
void sharing_conf_done(struct sharing *y);
const char *sharing_name(const struct pool *p);

/* ---- sharing_why.c: the decisions, with their reasons ---- */

/* Later decisions get higher numbers than those in pool/decisions. */
void sharing_why_init(struct pool *p);
/* Store a decision, log it, and append it to pool/decisions. Takes jobs. */
void sharing_keep(struct pool *p, struct sharing_result *jobs, size_t n,
                  const struct part_metrics *metrics, int64_t took_ms);
/* The last result for a job; NULL = there is none, or the policy is fifo. */
const struct sharing_result *sharing_last_result(const struct pool *p, const char *id,
                                                 bool extension);
int sharing_report(const struct pool *p, const char *id, struct buf *out); /* "" = all jobs */
/* Append ,"policy":{...} for a job; nothing if there is no result for it. */
void sharing_add_result(const struct pool *p, const char *id, struct buf *out);
/* The reason that a job is given when the last decision resizes it: the policy, the sentence of the
 * decision, and for a job that shrinks the jobs that get the room. */
void sharing_reason(const struct pool *p, const struct sharing_result *w, char *out, size_t n);
void sharing_why_done(struct sharing *y);

#endif
