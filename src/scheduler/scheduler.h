/*
 * What a master wants from any scheduler: one table of functions, with the contract above each
 * member.
 *
 * Back-ends: local (pool and keeper), yarn, slurm; `fake` lives with the tests, built like a
 * stranger's would be. One thread, the loop's; answers come through the event callback, never
 * before the function that caused them returned. Calls can be repeated: asking for a slot that has
 * a container, launching what runs, stopping what is gone do nothing.
 */
#ifndef TONY_SCHEDULER_SCHEDULER_H
#define TONY_SCHEDULER_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/reason.h"

struct err;
struct job_key;  /* storage/jobkey.h */
struct job_spec; /* conf/conf.h */
struct loop;
struct sched; /* a back-end's own state; begins with const struct sched_ops *ops */

struct sched_ask {
    uint32_t slot; /* request id; the answer carries it */
    uint64_t memory_mib;
    uint32_t vcores, gpus;
    const char *role; /* borrowed */
};

enum sched_event_type {
    SE_NONE = 0,
    SE_REGISTERED, /* containers: all that are known of this job, ended ones included (resync); then
                      normal work begins. text: the host under which others reach this
                      master, NULL on the pool */
    SE_ALLOCATED,  /* container */
    SE_REFUSED,    /* slot, text: can never be had */
    SE_COMPLETED,  /* container with its end */
    SE_SHRINK,     /* n, deadline_ms from now */
    SE_BROKEN, /* text: the scheduler is gone for good; the master should end (it is started again
                  or not) */
    SE_PREEMPTING, /* containers that the scheduler wants back for others, each told once;
                      deadline_ms from now it takes them: SE_COMPLETED with END_PREEMPTED */
    SE_COUNT,
};

#define SCHED_NO_SLOT UINT32_MAX

struct sched_container {
    const char *id; /* borrowed for the call */
    uint32_t slot;  /* SCHED_NO_SLOT: not known, of one that completed while there was no master */
    const char *gpus; /* "0,2" or "" */
    bool launched, completed;
    int exit_code; /* of the container: code, or 128 + signal */
    enum end_reason reason;
    uint64_t age_us;
    uint64_t ended_mono_us; /* CLOCK_MONOTONIC of the end on this machine; 0 = elsewhere */
    const char *detail;
    const char *node;    /* the node manager it is on, "host:port"; NULL = this machine */
    const char *log_url; /* the page of its logs; NULL = none */
};

struct sched_event {
    enum sched_event_type type;
    const struct sched_container *containers;
    size_t n;
    uint32_t slot;
    int64_t deadline_ms;
    const char *text;
};

struct sched_config {
    struct loop *loop;
    uint32_t epoch;
    const char *application_id, *job_dir, *runtime_dir;
    /* Of clusters of many machines; 0 and NULL on the pool. */
    uint16_t master_port; /* executors and clients dial it (TLS), where we reach the cluster from */
    uint16_t page_port;   /* of the read-only page, for a tracking URL; 0 = none */
    const struct job_key *key;   /* containers' keys are derived from it; borrowed while open */
    const struct job_spec *spec; /* borrowed while open; NULL is possible in tests */
    const char *container_id;    /* the master's own; NULL = the environment's CONTAINER_ID */
    const char *token_file;      /* NULL = the environment's HADOOP_TOKEN_FILE_LOCATION */
    /* Would a master after this one know of all ends that were told? Until it says so (it never
     * takes long) the scheduler is not to be told that we have heard of them. NULL = yes. */
    bool (*stored)(void *arg);
    /* How far the job is, 0 to 1, for the cluster's lists. NULL = not known. */
    float (*progress)(void *arg);
    void (*on_event)(const struct sched_event *ev, void *arg);
    void *arg;
};

struct sched_ops {
    const char *name;
    /* The cluster grants containers one by one, also to gangs that will never be whole: an
     * incomplete one has to give back what it has (EV_MASTER_STARTED tells the core). false: jobs
     * are admitted whole, and cancel may be NULL. */
    bool gives_back;
    /* Connect and register this master. SE_REGISTERED follows. */
    int (*open)(const struct sched_config *cfg, struct sched **out, struct err *e);
    /* Ask for containers; each answered by SE_ALLOCATED or SE_REFUSED, in any order, perhaps much
     * later. */
    int (*request)(struct sched *s, const struct sched_ask *asks, size_t n, struct err *e);
    /* Take back asks that were not answered; no SE_ALLOCATED comes for these slots until they are
     * asked for again. */
    int (*cancel)(struct sched *s, const uint32_t *slots, size_t n, struct err *e);
    /* Give back a container that was granted and not launched. */
    int (*release)(struct sched *s, const char *const *ids, size_t n, struct err *e);
    /* Start executors in granted containers. A failure comes as SE_COMPLETED with
     * END_LAUNCH_FAILED. */
    int (*launch)(struct sched *s, const struct sched_container *c, size_t n, struct err *e);
    /* End a container with everything in it: TERM, grace_ms, KILL. SE_COMPLETED follows. */
    int (*stop)(struct sched *s, const char *id, uint32_t grace_ms, struct err *e);
    /* Its executor is not heard of any more: learn soon how the container ended, if it did. May be
     * NULL. */
    void (*look)(struct sched *s, const char *id);
    /* Leave this node (sched_container.node) out of new requests, or take it in again. May be NULL.
     */
    void (*avoid)(struct sched *s, const char *node, bool avoid);
    /* This master was told to end by its own node. Is the whole application over, and in whose
     * words (text, NULL = not over: another master comes)? done comes within within_ms, not before
     * it has returned; who: a user's name, NULL = not known. May be NULL: nobody can say. */
    int (*fate)(struct sched *s, int64_t within_ms,
                void (*done)(bool over, const char *who, const char *text, void *arg), void *arg);
    /* More or fewer containers later on (elastic partitions): -EOPNOTSUPP where a back-end cannot.
     */
    int (*resize_wanted)(struct sched *s, uint32_t n_containers, struct err *e);
    /* The job is over (SUCCEEDED, FAILED, KILLED) and no task of it runs. Containers whose
     * executors have not ended yet are the back-end's to end. No event follows. done is called when
     * the scheduler has it. */
    int (*finish)(struct sched *s, const char *state, const char *diagnostics,
                  void (*done)(void *arg), struct err *e);
    /* After done: are answers to us still under way, whose senders would complain that we are
     * gone? Who can wait a moment does. May be NULL. */
    bool (*busy)(const struct sched *s);
    void (*close)(struct sched *s);
};

const struct sched_ops *sched_find(const char *name); /* NULL = unknown */

#endif
