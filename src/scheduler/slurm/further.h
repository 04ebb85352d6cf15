/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Further allocations (docs/decisions/0030-further-allocations.md).
 *
 * Slurm does not enlarge an allocation. If the nodes of this one cannot hold what the job asks for,
 * because a node was lost or the job has grown, the master submits a further batch job. Its batch
 * step starts the keepers of its nodes, which connect to this master like those of the first
 * allocation. Their numbers follow those of the first allocation, and no number is used twice.
 *
 * The file further.json has all further allocations that have not ended. It is written before
 * sbatch is run, so a master that is killed leaves none behind: the next master asks squeue for the
 * jobs with the name that only the further allocations of this job have.
 */
#ifndef TONY_SCHEDULER_SLURM_FURTHER_H
#define TONY_SCHEDULER_SLURM_FURTHER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"
#include "slurm/commands.h"

struct err;
struct node;
struct room;
struct slurm;
struct further_question; /* further_ask.c */

enum further_state {
    FURTHER_ASKING = 1, /* sbatch was run, and its answer is not known */
    FURTHER_QUEUED,     /* it waits in Slurm's queue, or its keepers are starting */
    FURTHER_JOINED,     /* the keeper of one of its nodes has connected */
    FURTHER_LEAVING,    /* to be cancelled */
};

struct further {
    enum further_state state;
    uint32_t base, n;      /* its nodes have the numbers base to base + n - 1 */
    char number[32];       /* of its job in Slurm; "" = not known */
    struct slurm_state is; /* FURTHER_QUEUED: what squeue has said */
    int64_t asked_ms;      /* FURTHER_QUEUED: when squeue was asked about it */
    int64_t cancel_at_ms; /* FURTHER_LEAVING: scancel was run, and its processes may not have ended:
                             look again at this time */
    int64_t idle_since_ms; /* FURTHER_JOINED: none of its nodes has had a container since then; 0 =
                              one of them has one */
};

struct furthers {
    VEC(struct further) v;
    bool allowed; /* the client has written a script for them */
    /* Ask squeue which further allocations of this job Slurm has: the earlier master may have died
     * before it recorded the last one. */
    bool find;
    bool cancel_found;   /* those that squeue names are of an earlier run of the job: cancel them */
    bool of_earlier_run; /* nodes of a further allocation had joined an earlier run of the job */
    uint32_t next;       /* the number of the next node */
    char *failed;   /* why the requests that wait now can get no further nodes; NULL = they can */
    char *awaits;   /* for people: the further allocations that are awaited; NULL = none */
    uint32_t lacks; /* the nodes that submit() is about to ask for; 0 = none */
    int64_t lacks_since_ms; /* `lacks` has not changed since then */
    int64_t
        surplus_since_ms; /* since then more nodes are asked for than needed; 0 = they are not */
    struct further_question *q;      /* the question to Slurm under way; NULL = none */
    int64_t ask_at_ms, ask_pause_ms; /* the next question to squeue about the queue */
    int64_t again_ms;                /* Slurm has not answered: ask nothing before this time */
};

/* ---- further.c ---- */

int further_open(struct slurm *s, struct err *e);
void further_close(struct slurm *s);
/* Ask for further allocations, or give them up. */
void further_turn(struct slurm *s, int64_t now_ms);
/* How many nodes of the first allocation have never connected to this master? */
uint32_t further_n_absent(const struct slurm *s);
/* Could a further allocation hold a container of this size? */
bool further_can_hold(const struct slurm *s, const struct room *room);
/* The further allocation to which the node of this number belongs; NULL: none. */
struct further *further_of_node(struct slurm *s, uint32_t index);
bool further_has_node(const struct further *f, const struct node *n);
void further_joins(struct slurm *s, struct further *f);
/* How many nodes have joined the allocation? */
uint32_t further_nodes(const struct slurm *s);
/* Write further.json. */
int further_save(struct slurm *s, struct err *e);
void further_remove(struct slurm *s, struct further *f);
void further_leave(struct slurm *s, struct further *f);
/* No further allocation can be had for what is asked now. Takes the text. */
void further_fails(struct slurm *s, char *why);

/* ---- further_ask.c: the questions to Slurm, one at a time, on a thread ---- */

/* Ask the next question that is due. */
void further_ask(struct slurm *s, int64_t now_ms);
void further_forget_question(struct slurm *s);

#endif
