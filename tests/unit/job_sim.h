/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world for the core, in simulated time. It has a scheduler, executors, nodes, clients and
 * masters. Executors register, fail, fall silent, ignore a stop, or die. Connections break. The
 * cluster gives up nodes whose executors live on. Masters crash and replay. Clients send messages
 * that make no sense. A random generator decides what happens. After each event sim_feed() checks
 * the invariants.
 *
 * An executor obeys decision 0008. If it is cut off, does not answer (mute) or cannot be killed, it
 * counts as alive until its lease is over.
 *
 * The master writes each record before it carries out the actions that follow from it. It collects
 * the events of a turn of its loop; on a cluster it also waits for the copy of the journal, where
 * src/master/actions.c does. A crash loses the actions that were not carried out yet. In half of
 * the crashes it also loses the last records of the journal: those of the turn; on a cluster, those
 * that were not copied.
 */
#ifndef TONY_TESTS_JOB_SIM_H
#define TONY_TESTS_JOB_SIM_H

#include "base/base.h"
#include "conf/conf.h"
#include "job/job_int.h"
#include "job_sim_saves.h"
#include "sched_fake.h"

struct executor {
    char container[64];
    uint32_t slot, generation, attempt;
    uint32_t asked;   /* the slot for which its container was requested */
    uint32_t ready;   /* the generation for which it will report next that it is ready; 0 = none */
    int64_t heard_ms; /* when a master last received a message from it */
    int64_t dead_by_ms; /* by then it is dead, since a master has told it to end or has refused it;
                           INT64_MAX = neither has happened */
    int64_t lost_ms;    /* when the cluster gives up its node; 0 = it does not */
    int64_t taken_ms;   /* when the scheduler takes its container; 0 = never */
    int64_t saved_ms;   /* when its task has saved a checkpoint and ends; 0 = it saves none */
    uint64_t resumed_step;  /* the step from which its task has resumed */
    uint64_t saved_step;    /* the step of its task's last checkpoint */
    uint32_t saved_attempt; /* the attempt that saved this checkpoint */
    bool sidecar;
    bool alive, connected, registered, running, started_told, mute, unkillable, dying;
    bool cut;     /* its node cannot reach any master */
    bool pending; /* the master has not acknowledged the result */
    struct job_event result;
    int64_t ended_ms;
};

struct sim {
    uint64_t rng;
    struct job_spec *spec;
    struct job *job;
    struct job_actions acts;
    struct fake_cluster *cluster;
    struct sched *sched;
    VEC(struct executor) executors;
    struct strv journal;
    /* The first records of the journal that no crash can lose, and the actions that wait until the
     * others are stored as well. */
    size_t n_stored;
    struct job_actions delayed;
    int64_t delayed_ms;            /* since when the first of them waits */
    size_t granted_n[SAVES_SLOTS]; /* by slot: number of records up to the grant of its container */
    struct saves saves;
    int64_t now, next_beat;
    uint32_t epoch;
    bool finished, settling, gives_back;
    unsigned n_feeds, n_restarts;
    uint32_t n_nodes; /* of the cluster; 0 = the job runs in the pool. The even nodes are one rack,
                         the odd nodes another one. */
    char nodes[10][12];
    struct job_verdict verdict; /* when the job finished */
    char message[400];
};

/* Each event of this run as one line; "crash" stands for a new master. */
extern struct strv sim_trace;
/* Counted over all runs, for the summary: */
extern unsigned sim_given_back; /* requests that a gang withdrew */
extern unsigned sim_taken;      /* spare containers that were used */
extern unsigned sim_notices;    /* announcements that a container will be taken */
extern unsigned sim_resizes;    /* resizes that the job accepted */
extern unsigned sim_cut;        /* records that crashes lost */
extern unsigned sim_stalls;     /* times that the master did not run */
extern unsigned sim_lost;       /* executors whose node was given up while they lived */
/* attempts that still ran, after their lease was over, while a later attempt of the slot ran */
extern unsigned sim_orphans;

uint32_t sim_chance(struct sim *m, uint32_t n); /* 0 ... n-1 */
void sim_cluster(struct sim *m, const struct fake_rule *rules, size_t n);
void sim_open(struct sim *m);
int sim_feed(struct sim *m, const struct job_event *ev);
/* From now on the records so far are stored. Carries out the actions that wait for that. */
void sim_flush(struct sim *m);
void sim_done(struct sim *m);
/* Compares what a replay must restore exactly: the status document without the parts that are not
 * in the journal. */
void sim_same_job(const struct job *a, const struct job *b);
void sim_crash_master(struct sim *m);
void sim_executor_step(struct sim *m, size_t at);
void sim_lose_node(struct sim *m);
void sim_lose_rack_with_master(struct sim *m);
void sim_pass(struct sim *m, int64_t ms);
void sim_nonsense(struct sim *m);
void sim_client(struct sim *m);
void sim_resize(struct sim *m);
void sim_stall(struct sim *m);

/* ---- what the files of this simulation share ---- */

void sim_check(const struct sim *m);
void sim_check_one_attempt(const struct sim *m, const struct executor *a);
void sim_check_depends(const struct sim *m);
void sim_check_starts_allowed(const struct sim *m, const uint32_t *attempts);
void sim_check_end(struct sim *m);
struct executor *sim_executor_of(struct sim *m, const char *container); /* NULL = unknown */
struct executor *sim_executor_at(struct sim *m, uint32_t slot);
void sim_ends_attempt(struct sim *m, struct executor *x, enum end_reason reason, int exit_code,
                      int signal);
const char *sim_node_of(const struct sim *m, const char *container); /* NULL = the pool */

#endif
