/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world for the core in simulated time: a scheduler, executors that register, fail, fall silent,
 * ignore stops or die, connections that break, nodes that are given up while their executors live
 * on, masters that crash and replay, clients, nonsense. What happens is decided by chance; what
 * must hold after each event is asserted by sim_feed().
 *
 * An executor keeps to decision 0008. Nothing but its lease is known of one that is cut off, does
 * not answer (mute) or cannot be killed: it counts as alive until the lease is over.
 */
#ifndef TONY_TESTS_JOB_SIM_H
#define TONY_TESTS_JOB_SIM_H

#include "base/base.h"
#include "conf/conf.h"
#include "job/job_int.h"
#include "sched_fake.h"

struct executor {
    char container[64];
    uint32_t slot, asked /* as which it was */, generation, attempt, ready /* for a generation */;
    int64_t heard_ms; /* when a master last received what it said */
    int64_t
        dead_by_ms;   /* it was told or refused, and obeys: dead by then; INT64_MAX = it was not */
    int64_t lost_ms;  /* when the cluster gives up its node; 0 = it does not */
    int64_t taken_ms; /* when its container is taken; 0 = never */
    int64_t saved_ms; /* when its task has saved a checkpoint and ends; 0 = it does not */
    bool sidecar;
    bool alive, connected, registered, running, started_told, mute, unkillable, dying;
    bool cut;     /* no master can be reached from its node */
    bool pending; /* a result that was not acknowledged */
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
    int64_t now, next_beat;
    uint32_t epoch;
    bool finished, settling, gives_back;
    unsigned n_feeds, n_restarts;
    uint32_t n_nodes; /* 0: the pool. Two racks: nodes with even and odd numbers */
    char nodes[10][12];
    struct job_verdict verdict; /* at the finish */
    char message[400];
};

/* All that was fed for this seed, a line each; "crash": a new master. */
extern struct strv sim_trace;
extern unsigned sim_given_back, sim_taken; /* asks of gangs taken back; spares used */
extern unsigned sim_notices;               /* that a container will be taken */
extern unsigned sim_resizes;               /* that the job accepted */
extern unsigned sim_lost;                  /* executors whose node was given up while they lived */
extern unsigned sim_orphans; /* attempts that ran beside the next one, their lease being over */

uint32_t sim_chance(struct sim *m, uint32_t n); /* 0 ... n-1 */
void sim_cluster(struct sim *m, const struct fake_rule *rules, size_t n);
void sim_open(struct sim *m);
int sim_feed(struct sim *m, const struct job_event *ev);
void sim_check(const struct sim *m);
/* What a replay must find again, to the letter: the status document less what is not journalled. */
void sim_same_job(const struct job *a, const struct job *b);
void sim_crash_master(struct sim *m);
void sim_executor_step(struct sim *m, size_t at);
void sim_lose_node(struct sim *m);
void sim_lose_rack_with_master(struct sim *m);
void sim_pass(struct sim *m, int64_t ms);
void sim_nonsense(struct sim *m);
void sim_client(struct sim *m);
void sim_resize(struct sim *m);

#endif
