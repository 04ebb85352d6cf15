/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives the core by hand, without scheduler, executors or time: a job in one line of text, a
 * script of words, and an answer to each action at once, unless the script says otherwise.
 *
 * Job: "worker*2 ps*1/untracked tb*1/sidecar eval*1/stop prep*1 train*2<prep", and settings;
 *   train*2<prep:succeeded,ps:ready; chief*1/stops-ps, of a role that stands before it
 *   gang=0 fail=1 single=1      fail: fail-on-worker-failure
 *   app=1000 alloc= reg= exec=  time limits in ms
 *   beat= missed= grace= away=
 *   after=a<b:started      where a stands before b
 *   gives=1                the scheduler grants gangs in parts
 *   limit=train/10000/prep/ignored
 *   retries=1 lease=       of the whole job; lease of an executor without a master
 *   lost= pre= disk= launch=   budgets per task and reason
 *   nogrant=2              slots from this number on wait for grant:
 *   nodes=5 nodefail=3 nodewin=60000   containers lie on n0 n1 ... in turn
 * roles also: worker*4/restart/live/fixed/min2/cap8: how they are resized, and within which bounds
 * and of roles: "worker*4/on/always/never/scope-task/scope-role/scope-job/max3/win1000/delay100/
 *   retry3-5/noretry9/spares1"
 *
 * Script:
 *   go                     submitted, a master, a resync
 *   +500                   half a second goes by, with beats and what becomes due
 *   worker:1=3             its attempt ended with exit code 3; =-9: by signal 9; =oom, lost,
 *                          timeout, launch, disk, preempt, killed
 *   worker:1=3@40          ... 40 ms ago
 *   worker:1!137           its container completed so, with no word from the executor
 *   mute:worker:1          nothing answers for it any more; heal:worker:1 ends that
 *   deny:worker:1          its container is refused when it is requested
 *   refuse:worker:1        its container is refused now, requested or not
 *   ready:ps:0             it says that it is
 *   save:worker:1          it has saved a checkpoint, of a later step each time
 *   take:worker:1          its container will be taken in 16 s
 *   grant: reg: beat:      one event for a slot, e.g. reg:worker:1; also gone: back:
 *   stop owns away         client
 *   abort                  pool
 *   resize:worker=4,ps=2   a client asks for it; shrink:3 grow:8 the scheduler does
 *   master                 a new master, everything is seen and comes back
 *   lose:worker:1          the next resync does not see it
 */
#ifndef TONY_TESTS_DRIVE_H
#define TONY_TESTS_DRIVE_H

#include "base/base.h"
#include "conf/conf.h"
#include "job/job.h"

struct drive_slot {
    bool mute, deny, lost;
    uint32_t asked;     /* the slot that the container was asked for as */
    char container[32]; /* what the scheduler and the executor know, "" = none */
    bool launched, registered, running, started;
    uint32_t generation, attempt;
};

struct drive {
    struct job_spec *spec;
    struct job *job;
    struct drive_slot *slots;
    uint32_t n_slots;
    uint32_t no_grant;       /* slots from this one on are granted nothing by themselves */
    struct job_actions acts; /* not carried out yet */
    int64_t now, next_beat;
    uint32_t epoch, n_containers, n_nodes;
    int n_peers;
    uint64_t step;     /* of the newest checkpoint */
    char avoided[256]; /* "+n1 -n1 " */
    bool gives_back;
    struct strv journal;
    unsigned n_acts[ACT_COUNT];
    int rc; /* of the last feed */
    struct err e;
    char last_ack[64];
};

struct job_spec *drive_spec(
    const char *text); /* aborts on bad text; job_spec_free()'s shape, freed by drive_spec_free() */
void drive_spec_free(struct job_spec *s);

void drive_init(struct drive *d, const char *job);
void drive_done(struct drive *d);
int drive_feed(struct drive *d, const struct job_event *ev); /* and the answers to what it asks */
void drive_run(struct drive *d, const char *script);
uint32_t drive_slot(const struct drive *d, const char *task); /* aborts when there is none */
void drive_results(const struct drive *d,
                   struct buf *out); /* "worker:0=S worker:1=F": S F X(finished) L(ost) or state */
/* Goes on from the first n records as a new master does: what the job believes to be there is there
 * (seen) or all of it is lost. */
void drive_resume(struct drive *d, size_t n, bool seen);
/* A job replayed from the first n records, as a new master would have it. */
struct job *drive_replay(const struct drive *d, size_t n);
/* Sets every field that the event has, whatever its type: generation, attempt, container and limit
 * to these, other numbers to `number`, other texts to `text`. */
struct drive_values {
    uint32_t slot, generation, attempt;
    const char *container, *text;
    enum job_limit limit;
    enum end_reason reason;
    uint32_t number;
    bool flag;
};
void drive_fill(struct job_event *ev, const struct drive_values *v);
/* A new job made from the snapshot of j; fails the test when its own snapshot differs. */
struct job *drive_restored(const struct job_spec *spec, const struct job *j);
int drive_record(const char *record, struct job_event *ev, int64_t *t, void **holder);
/* Appends what a master writes after it has fed ev: the decisions and the event. */
void drive_write(struct strv *journal, const struct job *j, const struct job_event *ev);

#endif
