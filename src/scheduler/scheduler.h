/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface between a master and a scheduler. A back-end is a table of functions, struct
 * sched_ops; the contract of each function is in the comment above it.
 *
 * Back-ends: `local` (pool and keeper of one machine), `yarn` and `slurm`. The tests have `fake`;
 * it is built outside src/, as a back-end of a third party would be.
 *
 * Thread   Call all functions on the loop thread.
 * Answers  An answer comes through on_event(), never before the function that caused it has
 *          returned.
 * Repeat   Every call may be repeated. These calls have no effect: requesting a slot that has a
 *          container, launching a running container, stopping an ended one.
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

/*
 * A request for one container.
 *
 * A slot is the number of a container that the job wants. It means the same task as long as the job
 * lives. When a job grows, its new slots have numbers that it has not used before. So a back-end
 * must accept every number but SCHED_NO_SLOT, also numbers above those of the job's first requests.
 */
struct sched_ask {
    uint32_t slot; /* the request's id: a slot of the job; the answer has the same number */
    uint64_t memory_mib;
    uint32_t vcores, gpus;
    const char *role; /* borrowed */
    /* Prefer this node (sched_container.node) for the container; borrowed. It is only a wish: the
     * back-end may choose another node, and need not wait for this one. If the request is repeated
     * while it is open, the last wish counts. NULL: any node. */
    const char *node;
};

enum sched_event_type {
    SE_NONE = 0,
    /* The first event. containers: all containers of this job that are granted or run, and all
     * ended ones whose end no master has acknowledged (sched_config.stored), so that a new master
     * can compare them with its journal. text: the host name under which other machines reach this
     * master; NULL for `local`. */
    SE_REGISTERED,
    /* containers: these were granted. */
    SE_ALLOCATED,
    /* slot: the scheduler can never grant this request; text: why. */
    SE_REFUSED,
    /* containers: these have ended; their fields say how. */
    SE_COMPLETED,
    /* The scheduler wants containers back. n: the number of containers that the job may keep;
     * deadline_ms: the time from now until the others must have ended; text: why, for people.
     * If n is below the least number of the job, the job shrinks to that least number. If the job's
     * gang is forming anew, the job keeps the request and shrinks once the gang has formed; the
     * deadline stays. */
    SE_SHRINK,
    /* The scheduler has room. n: the number of containers that the job may have in all;
     * deadline_ms: the time from now until the offer ends; text: why, for people. */
    SE_GROW,
    /* The connection to the scheduler is lost, and the back-end does not reconnect; text: why. The
     * master should exit; its parent decides whether to start another one. */
    SE_BROKEN,
    /* containers: the scheduler wants these back for other jobs, and takes them deadline_ms from
     * now. SE_COMPLETED with END_PREEMPTED follows then. There is one such event for each
     * container. */
    SE_PREEMPTING,
    /* The cluster ends the whole job deadline_ms from now, and does not start it again; text: why,
     * for people. */
    SE_ENDING,
    /* slots: a heartbeat of the executor of each of these, which has sent none itself. */
    SE_ALIVE,
    SE_COUNT,
};

#define SCHED_NO_SLOT UINT32_MAX

struct sched_container {
    const char *id;   /* this and all other strings are borrowed for the call */
    uint32_t slot;    /* SCHED_NO_SLOT: unknown; the container ended while no master was running */
    const char *gpus; /* indexes of its GPUs, "0,2", or "" */
    bool launched, completed;
    bool plain; /* launch(): one process may run this task beside others; a hint */
    /* The next five describe the end of a completed container. */
    int exit_code; /* exit code, or 128 + signal number */
    enum end_reason reason;
    uint64_t age_us;        /* time between its end and this event */
    uint64_t ended_mono_us; /* CLOCK_MONOTONIC of its end; 0 = it ran on another machine */
    const char *detail;     /* a sentence on why it ended; NULL = none */
    const char *node;       /* its node manager, "host:port"; NULL = this machine */
    const char *log_url;    /* the web page of its logs; NULL = none */
};

struct sched_event {
    enum sched_event_type type;
    const struct sched_container *containers;
    size_t n; /* number of containers; SE_SHRINK, SE_GROW: the number that the job may have;
                 SE_ALIVE: of slots */
    uint32_t slot;
    const uint32_t *slots;
    int64_t deadline_ms;
    /* SE_SHRINK, SE_GROW: no work may be lost. If the gang would have to restart, it waits for a
     * newer checkpoint. If none comes within deadline_ms, the job keeps its size, and the scheduler
     * takes nothing. */
    bool saved;
    const char *text;
    /* SE_REGISTERED: on these nodes (sched_container.node) nothing of the job runs besides
     * `containers`. Other containers of an earlier master there have ended, for this reason.
     * all_clean: that is so on every node. */
    const char *const *clean;
    size_t n_clean;
    bool all_clean;
    enum end_reason clean_reason;
};

struct sched_config {
    struct loop *loop;
    uint32_t epoch;
    const char *application_id, *job_dir, *runtime_dir;
    /* The next ones are for clusters of several machines; 0 and NULL for `local`. */
    /* The TLS port of this master, to which executors and clients connect. Its host is the address
     * from which this machine reaches the cluster. */
    uint16_t master_port;
    uint16_t page_port;          /* port of the read-only page, for the tracking URL; 0 = none */
    const struct job_key *key;   /* the keys of containers are derived from it; borrowed */
    const struct job_spec *spec; /* as it was submitted; borrowed until close(); tests may
                                    pass NULL */
    const char *container_id;    /* of this master; NULL = $CONTAINER_ID */
    const char *token_file;      /* NULL = $HADOOP_TOKEN_FILE_LOCATION */
    /* Has the journal stored every SE_COMPLETED that the back-end has reported, so that the next
     * master knows of it? The back-end acknowledges completed containers to the scheduler only
     * after this returns true, which takes a short time. NULL = always true. */
    bool (*stored)(void *arg);
    /* The master ends the job this long after open() (tony.application.timeout). A cluster that can
     * end an application at a given time does so a little later, in case the master fails to. 0 =
     * the job has no limit. */
    int64_t time_left_ms;
    /* The progress of the job, 0 to 1, for the cluster's list of applications. NULL = unknown. */
    float (*progress)(void *arg);
    /* `local` only: the sockets of this machine were made again. The master checks its own. */
    void (*on_sockets)(void *arg);
    void (*on_event)(const struct sched_event *ev, void *arg);
    void *arg;
};

struct sched_ops {
    const char *name;
    /* true: the cluster grants containers one by one. It may grant a part of a gang and never the
     * rest, so the job must give that part back after a time (EV_MASTER_STARTED tells this to the
     * core). false: the scheduler admits a job as a whole, and each resize as a whole. */
    bool gives_back;
    /* Connect and register this master. SE_REGISTERED follows. The caller frees *out by close(). */
    int (*open)(const struct sched_config *cfg, struct sched **out, struct err *e);
    /* Request containers. SE_ALLOCATED or SE_REFUSED answers each request, in any order, possibly
     * after hours. */
    int (*request)(struct sched *s, const struct sched_ask *asks, size_t n, struct err *e);
    /* Withdraw unanswered requests. No SE_ALLOCATED comes for these slots until they are requested
     * again. Slots whose request was answered, or that were never requested, are skipped. */
    int (*cancel)(struct sched *s, const uint32_t *slots, size_t n, struct err *e);
    /* Give back containers that were granted but not launched. */
    int (*release)(struct sched *s, const char *const *ids, size_t n, struct err *e);
    /* Start executors in granted containers. If this fails, SE_COMPLETED with END_LAUNCH_FAILED
     * follows. */
    int (*launch)(struct sched *s, const struct sched_container *c, size_t n, struct err *e);
    /* Stop a container and all its processes: SIGTERM, and SIGKILL after grace_ms. SE_COMPLETED
     * follows. */
    int (*stop)(struct sched *s, const char *id, uint32_t grace_ms, struct err *e);
    /* The master has lost the connection to the executor of this container. The back-end should
     * soon find out whether the container has ended; SE_COMPLETED follows if it has. May be NULL.
     */
    void (*look)(struct sched *s, const char *id);
    /* avoid = true: place no new container on this node (sched_container.node); false: allow the
     * node again. May be NULL. */
    void (*avoid)(struct sched *s, const char *node, bool avoid);
    /* The node of this master has told it to exit. Find out whether the whole application has
     * ended. done is called once, within within_ms, but not before this function has returned:
     *
     *   over   the application has ended; false: the cluster will start another master
     *   who    the user who ended it; NULL = unknown
     *   text   why it ended. If it has not: the cluster ends this run of the job and starts it
     *          again later, and this is why; NULL: only this master has to exit
     *
     * A back-end that knows that SIGKILL comes later may take longer. May be NULL: the back-end
     * cannot find out. */
    int (*fate)(struct sched *s, int64_t within_ms,
                void (*done)(bool over, const char *who, const char *text, void *arg), void *arg);
    /*
     * Declare the whole demand of a job that was resized: one entry for each slot, spares included.
     * From now on the job has at most these containers. If roles never run at the same time
     * (stages), whole has only those that need most, as job_spec_demand() counts them. Before the
     * first call the demand is that of the submitted job. NULL: jobs cannot be resized.
     *
     * Order     The caller declares the new demand first, then requests the new containers. If the
     *           back-end has no room yet, it answers these requests later. If the machine can never
     *           hold the whole demand, SE_REFUSED answers each request that exceeds what the job
     *           has now.
     * Stages    Slots of a later stage have no request yet. If the machine can never hold the
     * demand because of them, one SE_REFUSED names a slot of the demand that has neither a
     *           container nor a request. The core then takes the resize back.
     * Less      If the new demand is smaller, the caller stops the superfluous containers and
     *           cancels the requests for slots that are not in it. Once these containers have
     *           ended, the back-end gives their room to other jobs.
     * Undo      A call with the old demand withdraws the new one.
     * Restart   A back-end forgets the demand when the master ends, or earlier. So the master of a
     *           job that was ever resized calls this after each SE_REGISTERED, before it requests
     *           containers.
     */
    int (*resize)(struct sched *s, const struct sched_ask *whole, size_t n, struct err *e);
    /*
     * Tell the scheduler that it may resize the job to any number of containers from min to max: by
     * SE_SHRINK to at least min, and by SE_GROW to at most max. The numbers count as those of the
     * two events do: all tasks of all roles, also tasks that have ended or whose stage has not
     * come, and all spares. min equal to max: the job keeps its number of containers. NULL: the
     * back-end has no use for the numbers.
     *
     * When      After each SE_REGISTERED, and whenever one of the numbers has changed: a resize has
     *           begun or ended, a task has ended, or the job is ending.
     * Keep      The back-end keeps the numbers at least until the master ends.
     * Forming   While the gang forms anew, max is the present number.
     * Cost      cost_ms: the job does no new work for about this time because of a resize; < 0: the
     *           job has not measured that. Call again whenever it has changed.
     * Refusal   The master may refuse a number between the two if the framework of the job does not
     *           allow it.
     */
    int (*bounds)(struct sched *s, uint32_t min, uint32_t max, int64_t cost_ms, struct err *e);
    /*
     * Tell the scheduler how long the job will still run if it keeps its size: between *left_min_ms
     * and *left_max_ms, both >= 0. left_max_ms < 0: that is unknown. It is an expectation, not a
     * promise. NULL: the back-end has no use for it.
     *
     * When      After each SE_REGISTERED, and when the expected end has moved, at most once a
     *           second.
     */
    int (*outlook)(struct sched *s, int64_t left_min_ms, int64_t left_max_ms, struct err *e);
    /* What the back-end awaits from the cluster for requests that are open, as a text for people;
     * NULL: nothing that it knows of. Valid until the next turn of the loop. May be NULL. */
    const char *(*awaits)(const struct sched *s);
    /* Report that the job is over, with its state (SUCCEEDED, FAILED or KILLED). No task of the job
     * runs any more; the back-end stops the containers whose executors still run. No event follows.
     * done is called once the scheduler has accepted the report. */
    int (*finish)(struct sched *s, const char *state, const char *diagnostics,
                  void (*done)(void *arg), struct err *e);
    /* Called after finish() is done. Are answers to this master still under way? If the master
     * exits now, their senders log an error; so a master that can wait does so for a short time.
     * May be NULL: no answer is ever under way. */
    bool (*busy)(const struct sched *s);
    void (*close)(struct sched *s);
};

const struct sched_ops *sched_find(const char *name); /* NULL = unknown */

#endif
