/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of the back-end `slurm` share. It runs in the master, in the batch
 * step of the job, on the loop thread.
 *
 * slurm.c   the functions of struct sched_ops, and the events
 * nodes.c   the connections of the keepers, one keeper on each node
 * notice.c  what happens when Slurm announces that it will end this run of the job
 * parts.c   the components of a heterogeneous job
 * place.c   which node gets which container
 * further.c, further_ask.c   further allocations, if this one is too small
 *
 * A hold is a slot that the job has requested, from the request to the end of its container. It
 * waits until place.c has found a node with enough room, then the keeper of the node is asked, then
 * the keeper grants a container. struct slurm owns the nodes and the holds.
 */
#ifndef TONY_SCHEDULER_SLURM_SLURM_INT_H
#define TONY_SCHEDULER_SLURM_SLURM_INT_H

#include "base/vec.h"
#include "proto/tony.pb-c.h"
#include "scheduler/scheduler.h"
#include "scheduler/slurm/further.h"
#include "storage/jobkey.h"

struct conn;
struct listener;
struct loop_signal;
struct loop_timer;
struct slurm_question; /* notice.c */

struct room {
    uint64_t memory_mib;
    uint32_t vcores, gpus;
    uint32_t part; /* component; 0 in an ordinary allocation */
};

enum { PARTS_MAX = 8 }; /* of cluster/slurm: SLURM_PARTS_MAX */
struct part_role {
    uint32_t part;
    char *name;
};

enum node_state {
    NODE_EXPECTED = 1, /* its keeper has not connected to this master yet */
    NODE_REGISTERING,  /* its keeper is sending its containers */
    NODE_READY,
    NODE_AWAY, /* the connection has ended; the node is lost at lost_at_ms */
    NODE_LOST, /* its containers were reported as lost */
};

struct node {
    struct slurm *s;
    uint32_t index;
    enum node_state state;
    char *name;          /* NULL until its keeper has connected */
    struct conn *conn;   /* NULL = none */
    int64_t heard_ms;    /* when its keeper last sent a frame */
    int64_t lost_at_ms;  /* NODE_AWAY: when the node counts as lost */
    uint64_t started_ms; /* of its keeper, by the clock of the node */
    struct room has;     /* what the job has of the node */
    bool avoid;          /* its keeper refused a request: place containers elsewhere if possible */
    /* Containers that are stopped because this master does not know them. While there are any, the
     * node gets no others. */
    uint32_t n_unknown;
    uint64_t n_ends, n_acked; /* ends that the keeper has reported, and those acknowledged to it */
    /* NODE_REGISTERING: the containers that its keeper has listed so far, the room of each, and
     * their texts. The list is freed when it was compared with the holds, or reported. */
    VEC(struct sched_container) listed;
    VEC(struct room) listed_room;
    struct strv listed_texts;
};

enum hold_state {
    HOLD_WAITING = 1, /* for a node with enough room */
    HOLD_ASKED,       /* the keeper of `node` was asked */
    HOLD_GRANTED,     /* the container has the id `id` */
};

/* A slot that the job has requested, and its container. */
struct hold {
    uint32_t slot; /* must be the first member: scheduler/slots.h */
    enum hold_state state;
    struct room room;
    struct node *node;   /* NULL while the hold is waiting */
    char *id;            /* of the container; NULL = none was granted */
    bool withdrawn;      /* HOLD_ASKED: give the container back when it is granted */
    bool launch, stop;   /* what the master wants; repeated when the keeper reconnects */
    bool launched;       /* the keeper has confirmed it */
    bool told;           /* SE_PREEMPTING was reported for the container */
    uint32_t grace_ms;   /* of `stop` */
    int64_t waits_since; /* HOLD_WAITING */
};

enum { NOTICE_OTHERS = 3 }; /* signals that the master ignores */
/* The state of notice.c: what Slurm has announced, and the questions to slurmctld about it. A set
 * of reasons is a sum of enum ask_why. */
struct notice {
    struct loop_signal *usr1, *others[NOTICE_OTHERS];
    struct loop_timer
        *timer; /* asks slurmctld about the time limit, or whether the job still runs */
    struct slurm_question *q; /* the question under way; NULL = none */
    unsigned ask_again;       /* the reasons that came meanwhile: on_done() asks for them */
    /* Slurm takes the nodes: the tasks save a checkpoint and end, nothing is placed any more, and
     * the job goes back into Slurm's queue. */
    bool leaving;
    bool requeue_asked; /* the master has put the job back, or Slurm has */
    bool cancel_asked;  /* but the job has ended: scancel takes it out of the queue */
    int64_t end_ms;     /* leaving: when Slurm ends the job */
    bool limit_known;   /* the time limit is at limit_ms, and the timer acts on it */
    int64_t limit_ms;
    int64_t
        step_ends_ms; /* TERM came to a keeper: its step ends until then, or not at all; 0 = no */
    bool step_over;   /* the batch script reports that a step of the keepers has ended */
    struct loop_timer
        *again; /* slurmctld did not answer: asks for the reasons of silent_why again */
    unsigned silent_why;
    int64_t silent_since_ms; /* the first question without an answer; 0 = the last one had one */
};

/* The end of a job, in this order. */
enum finish_step {
    NOT_FINISHING,
    NODES_FINISH, /* slurm_finish(): wait until the keepers of the nodes have ended */
    HEAD_FINISHES /* the head keeper was told to move the job's directory to the history */
};

struct slurm {
    const struct sched_ops *ops; /* must be the first member: every struct sched begins with it */
    struct sched_config cfg;
    struct listener *listener;
    struct conn *head;         /* to the head keeper */
    struct loop_timer *turn;   /* place containers, and send what is due, in the next turn */
    struct loop_timer *tick;   /* once a second */
    int64_t tick_due_ms;       /* when it should fire; 0 = it was not set yet */
    struct loop_timer *finish; /* after slurm_finish(): waits for the keepers to end */
    int64_t opened_ms;
    /* notice_fate() waits for an answer, and then calls this function; NULL = it does not wait. */
    void (*fate_done)(bool over, const char *who, const char *text, void *arg);
    uint32_t n_nodes;             /* of the first allocation */
    uint32_t n_parts;             /* components; 0 = an ordinary allocation */
    uint32_t part_end[PARTS_MAX]; /* the number after the last node of each component */
    VEC(struct part_role) part_roles;
    uint32_t run; /* how often Slurm has put the job back into its queue */
    struct notice notice;
    struct furthers further;
    VEC(struct node *) nodes;
    VEC(struct hold) holds;  /* sorted by slot */
    bool registered;         /* SE_REGISTERED was reported */
    int64_t register_by_ms;  /* a new master does not wait longer for the keepers */
    int64_t gather_until_ms; /* 0 = no node was ready yet */
    bool ack_due; /* keepers have reported ends that must be acknowledged, at ack_at_ms */
    int64_t ack_at_ms;
    uint32_t demand_n;     /* containers of the whole demand */
    char *refused_demand;  /* why the allocation can never hold it; NULL = it can */
    uint32_t refused_slot; /* a new slot of that demand; SCHED_NO_SLOT = the refusal was told */
    enum finish_step finishing;
    int64_t finish_by_ms; /* from this time on, NODES_FINISH waits no longer */
    char *final_state;
    void (*finish_done)(void *arg);
};

/* slurm.c */
struct hold *hold_find(struct slurm *s, uint32_t slot);
struct hold *hold_by_id(struct slurm *s, const char *id);
int hold_add(struct slurm *s, uint32_t slot, struct hold **out); /* -EEXIST: *out is there */
void hold_remove(struct slurm *s, struct hold *h);
void slurm_emit(struct slurm *s, const struct sched_event *ev);
void slurm_broken(struct slurm *s, const char *why);
void slurm_turn_soon(struct slurm *s);
/* Could the nodes that are ready hold all requests of the job at the same time? If they could, a
 * waiting request only waits for the end of another container. */
bool slurm_all_fit(struct slurm *s);

/* nodes.c */
int nodes_listen(struct slurm *s, struct err *e);
void nodes_close(struct slurm *s);
void nodes_tick(struct slurm *s, int64_t now_ms);
/* This process did not run for late_ms: that time does not count for the limits on the silence and
 * the absence of keepers. */
void nodes_forgive(struct slurm *s, int64_t late_ms, int64_t now_ms);
void nodes_acknowledge(struct slurm *s);
/* Report SE_REGISTERED, if the keepers of all nodes have told their containers, or it is time. */
void nodes_register(struct slurm *s, int64_t now_ms);
void node_send_launch(struct node *n, const struct hold *h);
void node_send_stop(struct node *n, const char *id, uint32_t grace_ms);
void node_send_release(struct node *n, const char *id);
int node_send_asks(struct node *n, const struct sched_ask *asks, size_t n_asks);
void node_send_finish(struct node *n, const char *state);

/* notice.c */
int notice_open(struct slurm *s, struct err *e);
void notice_close(struct slurm *s);
void notice_turn(struct slurm *s);
void notice_tick(struct slurm *s, int64_t now_ms);
void notice_of_node(struct slurm *s, const struct node *n, uint32_t signal);
/* The job ends. If it was put back into Slurm's queue, take it out. true: that is under way. */
bool notice_cancels(struct slurm *s);
bool notice_explains_lost_nodes(const struct slurm *s);
int notice_fate(struct slurm *s,
                void (*done)(bool over, const char *who, const char *text, void *arg));

/* parts.c */
/* text: TONY_SLURM_COMPONENTS; "" = an ordinary allocation. 0, -EINVAL or -ENOMEM. */
int parts_read(struct slurm *s, const char *text, struct err *e);
void parts_done(struct slurm *s);
uint32_t part_of_role(const struct slurm *s, const char *role);
uint32_t part_of_node(const struct slurm *s, uint32_t index);

/* place.c */
/* Choose nodes for the waiting holds, and ask their keepers. */
void place_waiting(struct slurm *s);
/* Can the nodes that are ready hold all of these at the same time? */
bool place_fits(const struct slurm *s, const struct room *rooms, size_t n);
bool room_fits(const struct room *room, const struct room *free);
/* How many further nodes of this size do the waiting holds need? Those that fit no such node do not
 * count. */
uint32_t place_missing(struct slurm *s, const struct room *has);

#endif
