/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy of src/partition divides the machine among the jobs of the pool.
 *
 * With the policy `fifo`, which is the default, nothing in this file acts: jobs start in the order
 * of the queue (admission.h).
 *
 * A decision. When the queue, a job or the machine has changed, the pool decides again, on a
 *   thread, with a copy of what it knows (sharing.c). Two decisions are at least `interval` apart;
 *   what happens in between is decided together. If a job has changed while the thread worked, the
 *   result is thrown away. Nothing is decided while the last decision is being carried out, unless
 *   jobs have come since.
 *
 * A target is what a decision wants of one job. It is in force until the job has done it, or until
 *   its time (`resize-limit`) is over. Later decisions see the job as if it had reached its target,
 *   and do not change it meanwhile.
 *
 *   START   The pool writes the number of instances into job.conf (resize.c), then admits the job.
 *   SHRINK  The pool asks the job to shrink (pool_job_wish()).
 *   GROW    Once there is room, the pool offers it. The job's master then asks for an extension.
 *   EXTEND  A user has resized the job: its extension may be granted.
 *
 * Admission stays the only place that gives memory and GPUs away (pool_admit()). Under a policy it
 * admits those jobs and extensions for which there is a target, and no others. All targets together
 * fit into the machine, so none of them has to wait for another one.
 *
 * A job that does not reach its target in time is left as it is. All targets that are not reached
 * are dropped then, the job is not changed for the same time again, and the pool decides anew.
 *
 * A new pool knows no targets. It reads the settings (sharing_conf.c), hears from the keepers what
 * the jobs hold, and decides.
 */
#ifndef TONY_POOL_SHARING_H
#define TONY_POOL_SHARING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arbiter/settings.h"
#include "base/base.h"
#include "partition/partition.h"
#include "pool/admission.h"
#include "pool/costs.h"
#include "pool/share.h"
#include "storage/paths.h"

struct conf;
struct err;
struct job_spec;
struct loop_timer;
struct pool;
struct pool_job;

enum {
    SHARING_KEYS = 11,
    SHARING_KEPT = 100,         /* decisions in memory */
    SHARING_FILE_MAX = 1 << 20, /* of the file pool/decisions; then it becomes decisions.1 */
    SHARING_ROLE_MAX = 64,      /* as long as the name of a role may be */
};

/* How a policy may resize a job: read from its job file. */
struct pool_elastic {
    bool has; /* one role has both bounds and may be resized; else the job is one container */
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
    int64_t due_ms; /* the end of its time */
};

/* What the last decision said of a job. */
struct sharing_result {
    char id[APP_ID_MAX];
    bool extension;
    bool elastic; /* it may be resized; else it counts as one container */
    struct part_target target;
    uint32_t had;          /* containers before */
    int64_t since_wall_ms; /* since when the decisions say the same of it */
};

struct sharing_record {
    uint64_t number; /* counted by this pool */
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
    struct sharing_round *round; /* a thread decides; NULL = none does */
    bool changed;                /* something has changed since the last decision */
    int64_t again_ms; /* then jobs that the costs of resizes held back may start; 0 = none waits */
    int64_t decided_ms;  /* when the last decision began; 0 = there was none */
    uint64_t decided_on; /* the hash of its input; 0 = it changed something */
    uint64_t number;
    struct costs_table costs;
    VEC(struct sharing_record) records; /* the last SHARING_KEPT decisions, the newest at the end */
};

/* ---- sharing.c: when and what is decided ---- */

int sharing_init(struct pool *p, struct err *e); /* reads the settings */
void sharing_done(struct pool *p);
bool sharing_divides(const struct pool *p); /* false: fifo */
/* Something has changed that a decision depends on. Decides later, from the loop. */
void sharing_changed(struct pool *p);
/* Fill j->elastic from the job's specification. */
void sharing_read_job(struct pool_job *j, const struct job_spec *spec);

/* What a decision about the job relies on. s->id is not set. */
void sharing_describe(const struct pool_job *j, struct share_job *s);
/* The same of an extension that waits. false: there is none. */
bool sharing_describe_extension(const struct pool_job *j, struct share_job *s);
/* The job has told what a resize costs it: note that for other jobs of its name. */
void sharing_learn(const struct pool_job *j);

/* ---- sharing_targets.c: carries decisions out ---- */

/* Under a policy: may this job be admitted now, or this extension be granted? */
bool sharing_allows(const struct pool_job *j, bool extension);
/* Take what was decided for the job. true: something is to be done. */
bool sharing_aim(struct pool_job *j, const struct part_target *t, bool extension);
/* After each admission: notice targets that were reached, ask jobs to shrink, offer room. */
void sharing_carry_out(struct pool *p);
/* Drop the targets of jobs that have not reached them in time. Returns the next time at which this
 * has to be done; INT64_MAX = there is none. */
int64_t sharing_give_up(struct pool *p);
void sharing_drop_targets(struct pool *p);
/* How many containers of its elastic role does the running job hold? false: that is unknown. */
bool sharing_count(const struct pool_job *j, uint32_t *out);
/* The job's keeper is dead, and may have taken a wish with it that no master has heard: the next
 * keeper gets it again. */
void sharing_keeper_died(struct pool_job *j);
/* Is the extension within the job's target to grow? */
bool sharing_wish_is_ours(const struct pool_job *j);
void sharing_sized(struct pool_job *j, int rc); /* job.conf was changed for TARGET_START, or not */

/* ---- sharing_conf.c: the settings ---- */

int sharing_conf_load(struct pool *p, struct err *e);
/* Change settings: words are KEY=VALUE, with or without "tony.pool.policy." before KEY; no VALUE
 * means the site's. All or none of them are taken. 0 or -errno: e names the key. */
int sharing_conf_set(struct pool *p, char *const *words, size_t n, struct err *e);
int sharing_conf_report(const struct pool *p, struct buf *out); /* JSON; docs/json.md */
void sharing_conf_done(struct sharing *y);
const char *sharing_name(const struct pool *p);

/* ---- sharing_why.c: what was decided, and why ---- */

/* Keep a decision, log it, and append it to pool/decisions. jobs: takes it. */
void sharing_keep(struct pool *p, struct sharing_result *jobs, size_t n,
                  const struct part_metrics *metrics, int64_t took_ms);
/* The last result for a job; NULL = there is none, or the policy is fifo. */
const struct sharing_result *sharing_last_result(const struct pool *p, const char *id,
                                                 bool extension);
int sharing_report(const struct pool *p, const char *id, struct buf *out); /* "" = all jobs */
/* Append ,"policy":{...} for a job; nothing if there is no result for it. */
void sharing_add_result(const struct pool *p, const char *id, struct buf *out);
/* The reason that a job is given when it is resized. */
void sharing_reason(const struct pool *p, const struct part_target *t, char *out, size_t n);
void sharing_why_done(struct sharing *y);

#endif
