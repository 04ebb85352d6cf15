/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives the core by hand, without scheduler, executors or time. The job is one line of text, and a
 * script of words says what happens. Each action of the core is answered at once, unless the script
 * says otherwise.
 *
 * Job: "worker*2 ps*1/untracked tb*1/sidecar eval*1/stop prep*1 train*2<prep", and settings;
 *   train*2<prep:succeeded,ps:ready; chief*1/stops-ps, for a role that is before it in the text
 *   gang=0 fail=1 single=1      fail: fail-on-worker-failure
 *   app=1000 alloc= reg= exec=  time limits in ms
 *   beat= missed= grace= away=
 *   after=a<b:started      where a is before b
 *   gives=1                the scheduler grants gangs in parts
 *   limit=train/10000/prep/ignored
 *   retries=1 lease=       of the whole job; lease of an executor without a master
 *   lost= pre= disk= launch=   budgets per task and reason
 *   nogrant=2              slots from this number on wait for grant:
 *   nodes=5 nodefail=3 nodewin=60000   containers are on n0 n1 ... in turn
 * roles also: worker*4/restart/live/fixed/min2/cap8: how they are resized, and within which bounds
 * and for roles: "worker*4/on/always/never/scope-task/scope-role/scope-job/max3/win1000/delay100/
 *   retry3-5/noretry9/spares1"
 *
 * Script:
 *   go                     submitted, a master, a resync
 *   +500                   half a second passes, with heartbeats and all timers that become due
 *   worker:1=3             its attempt ended with exit code 3; =-9: by signal 9; =oom, lost,
 *                          timeout, launch, disk, preempt, killed
 *   worker:1=3@40          ... 40 ms ago
 *   worker:1!137           its container ended with this code, without a report of the executor
 *   mute:worker:1          its executor answers nothing; heal:worker:1 ends that
 *   deny:worker:1          its container is refused when it is requested
 *   refuse:worker:1        its container is refused now, requested or not
 *   ready:ps:0             it reports that it is ready
 *   save:worker:1          it has saved a checkpoint, each time of a later step
 *   take:worker:1          the scheduler will take its container in 16 s
 *   grant: reg: beat:      one event for a slot, e.g. reg:worker:1; also gone: back:
 *   stop owns away         client
 *   abort                  pool
 *   resize:worker=4,ps=2   a client asks for it; shrink:3 grow:8: the scheduler does
 *   master                 a new master; all containers are reported, and all executors reconnect
 *   lose:worker:1          each later resync does not report its container
 *   lostby:worker:1        each later resync reports that its container was lost; diedby: that it
 *                          has ended for an unknown reason
 */
#ifndef TONY_TESTS_DRIVE_H
#define TONY_TESTS_DRIVE_H

#include "base/base.h"
#include "conf/conf.h"
#include "job/job.h"

struct drive_slot {
    bool mute, deny, lost;
    enum end_reason reported; /* how each later resync reports that the container has ended */
    uint32_t asked;           /* the slot for which the container was requested */
    char container[32]; /* the container that the scheduler and the executor know; "" = none */
    bool launched, registered, running, started;
    uint32_t generation, attempt;
};

struct drive {
    struct job_spec *spec;
    struct job *job;
    struct drive_slot *slots;
    uint32_t n_slots;
    uint32_t no_grant;       /* the script must grant slots from this one on */
    struct job_actions acts; /* actions that were not carried out yet */
    int64_t now, next_beat;
    uint32_t epoch, n_containers, n_nodes;
    int n_peers;
    uint64_t step;     /* step of the newest checkpoint */
    const char *host;  /* of the executors' addresses; NULL = 127.0.0.1 */
    char avoided[256]; /* text of all avoid actions: "+n1 -n1 " */
    bool gives_back;
    struct strv journal;
    unsigned n_acts[ACT_COUNT];
    bool notes_acts;  /* append each action, but ACT_NOTIFY and ACT_ACK, to `noted` */
    struct buf noted; /* "sync, stop_attempt worker:1 save 2000 grace 1000, peers" */
    int rc;           /* result of the last feed */
    struct err e;
    char last_ack[64];
};

/* Aborts if the text is wrong. Free with drive_spec_free(). */
struct job_spec *drive_spec(const char *text);
void drive_spec_free(struct job_spec *s);

void drive_init(struct drive *d, const char *job);
void drive_done(struct drive *d);
/* Also feeds the answers to the core's actions. */
int drive_feed(struct drive *d, const struct job_event *ev);
void drive_run(struct drive *d, const char *script);
uint32_t drive_slot(const struct drive *d, const char *task); /* aborts if there is no such task */
/* "worker:0=S worker:1=F": S, F, X (finished), L (lost), or the state. */
void drive_results(const struct drive *d, struct buf *out);
/* Goes on from the first n records as a new master does. seen: all containers of the job still
 * exist; otherwise all are lost. */
void drive_resume(struct drive *d, size_t n, bool seen);
/* A job replayed from the first n records, as a new master would replay it. */
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
/* A new job made from the snapshot of j; fails the test if its own snapshot differs. */
struct job *drive_restored(const struct job_spec *spec, const struct job *j);
int drive_record(const char *record, struct job_event *ev, int64_t *t, void **holder);
/* Appends the records that a master writes after it has fed ev: the decisions and the event. */
void drive_write(struct strv *journal, const struct job *j, const struct job_event *ev);

#endif
