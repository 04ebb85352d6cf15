/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of the core share. These parts have their own state and header:
 *
 *   slot.h        one slot; slot_step() is the only function that changes its state (slot.c)
 *   restart.h     which tasks restart after an end, and when (restart.c, restart_rules.c, mend.c)
 *   resize.h      the job changes its number of tasks (the files resize*.c)
 *   limits.h      deadlines (limits.c, deadlines.c)
 *   nodes.h       failures for each node (nodes.c)
 *   checkpoint.h  the checkpoints of the tasks (checkpoint.c)
 *   failures.h    the failures, and which of them was the first (verdict.c, failures.c)
 *   costs.h       what it costs the job to form its gang anew (costs.c)
 *   decisions.h   what the rules decided, for the journal and for replays (decisions.c)
 *
 * This header declares the functions of these files:
 *
 *   job.c         making and freeing a job, dispatch of events
 *   view.c        functions that read the state
 *   policy.c      requests of containers, the start of a gang, the meaning of an end, stopping
 *   depends.c     roles that wait for other roles, and roles that the end of another role stops
 *   addresses.c   whether the addresses of a gang fit into the environment of its tasks
 *   recover.c     a new master: which containers still exist, and which are requested again
 *   snapshot.c    writes the whole state as records (snapshot.h)
 *   snapshot_read.c  reads these records, and restores the state
 *   event.c       the tables of events and actions; writes and reads events as JSON (record.c)
 *   status.c      the status document
 *   outlook.c     how long the job will still run
 */
#ifndef TONY_JOB_INT_H
#define TONY_JOB_INT_H

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "cause/cause.h"
#include "conf/conf.h"
#include "job/checkpoint.h"
#include "job/costs.h"
#include "job/decisions.h"
#include "job/failures.h"
#include "job/job.h"
#include "job/limits.h"
#include "job/nodes.h"
#include "job/resize.h"
#include "job/restart.h"
#include "job/slot.h"

/* The longest time that an event may be old, some 35 years: a broken executor may say anything. */
#define JOB_AGE_MAX_US ((int64_t)1 << 50)

enum {
    /* Two gangs that each have half of a cluster would wait for each other for ever. So a gang that
     * gets no further container for this time gives its containers back. The jitter makes one of
     * the two do so first. */
    GANG_HOLD_MS = 30000,
    GANG_HOLD_JITTER_MS = 10000,
    GANG_PAUSE_MIN_MS = 5000, /* doubles each time */
    GANG_PAUSE_MAX_MS = 60000,
    GANG_PAUSE_JITTER_MS = 5000,
};

/*
 * A role, or the spares of a role. Its members are the slots with an index below n. A resize makes
 * further slots: they are joining, leaving or absent, and have counters of their own.
 */
struct role {
    uint32_t n;       /* instances: the number of members */
    uint32_t n_first; /* instances at the start of the job; spares have indices from this one on */
    uint32_t *slots;  /* ids of its slots, by index */
    uint32_t n_slots;
    uint32_t of;  /* its own number; for the spares of a role, the number of that role */
    bool forming; /* its tasks restart together, in the same generation (scope "role") */
    bool gated;   /* one of its registered slots restarts alone, but waits for other roles first */
    struct tally tally;
    uint32_t n_unmet;    /* roles that must end before this one requests containers */
    bool awaited;        /* the job does not end before its tasks have ended */
    bool stopped;        /* the end of another role has stopped it */
    enum role_kind kind; /* from the spec; a group limit may change it to untracked */
    /* Counters over its members, kept by slot_count(). */
    uint32_t n_state[SLOT_STATE_COUNT], n_result[RES_LOST + 1], n_settled;
    uint32_t n_started, n_ready; /* members for which waiting roles need not wait (depends.c) */
    /* Members that start together with the gang: on their way to their attempt, and registered. */
    uint32_t n_forming, n_set_up;
    uint32_t n_outside[SLOT_STATE_COUNT]; /* counts its slots that are not members */
};

/* The timeout of a role after a group of other roles (conf.h, struct group_timeout). */
struct group {
    bool armed;     /* the group is done, and the timeout runs */
    bool over;      /* the timeout has expired */
    int64_t due_ms; /* when it expires */
};

/* The requests of a gang. */
struct gang {
    bool gives_back;      /* the scheduler grants containers one by one, not the whole gang */
    int64_t asked_ms;     /* since when the gang has waited for containers; -1 = it does not wait */
    uint32_t round;       /* how often the gang gave its containers back since it last started */
    int64_t granted_ms;   /* time of the last grant */
    int64_t pause_due_ms; /* when the gang requests containers again; INT64_MAX = no pause */
    /* For people, about the last time that the gang gave its containers back: */
    uint32_t had, wanted; /* containers */
    int64_t after_ms;     /* how long the gang had waited */
};

struct job {
    const struct job_spec *spec;
    struct slot *slots;
    uint32_t n_slots;   /* slots that were ever made */
    uint32_t cap_slots; /* slots for which there is memory */
    struct role *roles; /* n_roles roles of the job file, then the roles of spares */
    uint32_t n_roles, n_all_roles;
    uint32_t n_tasks; /* members of all roles, spares not included */
    uint32_t *ready;  /* a stack: roles whose stage has come and that must request containers */
    uint32_t n_ready;
    struct group *groups;

    struct limits limits;
    struct gang gang;
    struct restarts restarts;
    struct nodes nodes;
    struct job_checkpoints checkpoints;
    struct failures failures;
    struct resize resize;
    struct costs costs;
    struct decisions decisions;
    struct {             /* the records of a snapshot that were read so far */
        uint32_t kinds;  /* bits, by enum snap_kind */
        uint32_t n_past; /* records of failures.past */
    } restored;

    enum job_state state;
    uint32_t epoch, generation;
    int64_t now_ms;
    uint32_t n_state[SLOT_STATE_COUNT];   /* counts the members of all roles, but not spares */
    uint32_t n_outside[SLOT_STATE_COUNT]; /* counts the slots that are not members */
    uint32_t n_awaited;                   /* tasks of awaited roles */
    uint32_t n_waited;                    /* those of them that have not ended */
    int64_t chief;      /* index of the role "chief"; -1: the slot chief_slot is the chief */
    int64_t chief_slot; /* -1: there is none, or `chief` says it */

    bool resyncing;    /* between EV_MASTER_STARTED and EV_RESYNCED */
    bool changed;      /* followers see a change: job_feed() adds one ACT_NOTIFY at its end */
    bool check_groups; /* a task has ended: a group of roles may be done */
    /* A task has ended. That may stop a role, or a role may wait for a thing that cannot happen. */
    bool check_depends;
    bool has_gates;   /* there is a role whose tasks start after those of another role */
    bool gates_moved; /* a task has started: tasks that waited for it may start */
    bool owned;       /* the job is killed if its client is away for too long */
    int64_t submitted_wall_ms, submitted_ms, started_ms, ended_ms;
    int64_t master_ms;  /* start of this master */
    int64_t stalled_ms; /* sum of the stalls of this master */
    int64_t beats_from; /* silence never counts from an earlier time (beat_clock(), limits.h) */
    int64_t client_due_ms;
    char *application_id, *user;
    int64_t tensorboard; /* the slot that last reported a TensorBoard; JOB_NO_SLOT = none did */
    char *stray;         /* id of a container that no slot needs; an action may point to it */

    /* The verdict is final when state is SUCCEEDED, FAILED or KILLED. */
    enum job_state decided; /* the verdict; JOB_NONE = none yet */
    bool by_task;           /* FAILED because of a task: the message names the first failure */
    bool own_words;         /* the message is complete: do not replace it by the first failure */
    uint32_t wait_ms;       /* how long tasks may end by themselves before they are stopped */
    uint32_t save_ms;       /* how long tasks may save a checkpoint before they are stopped */
    char message[JOB_MESSAGE_MAX];

    struct job_actions *out; /* where job_act() adds actions; set during job_feed() */
};

/* The id of each member of a role. */
#define FOR_MEMBERS(j, r, i)                                                                       \
    for (uint32_t at_##i = 0, i = 0;                                                               \
         at_##i < (j)->roles[r].n && ((i = (j)->roles[r].slots[at_##i]), true); at_##i++)
/* The id of each task that belongs to the job now; spares are not included. */
#define FOR_TASKS(j, i)                                                                            \
    for (uint32_t i = 0; i < (j)->n_slots; i++)                                                    \
        if (job_is_task((j), i))
/* The id of each spare. */
#define FOR_SPARES(j, i)                                                                           \
    for (uint32_t i = 0; i < (j)->n_slots; i++)                                                    \
        if (job_is_spare((j), i))

/* ---- event.c ---- */

/* Copy an event. The copy owns its strings, cut to JOB_TEXT_MAX and JOB_TAIL_MAX bytes. A handler
 * that keeps a string calls event_take(); event_copy_done() frees the others. 0 or -ENOMEM. */
int event_copy(const struct job_event *ev, struct job_event *out);
void event_copy_done(struct job_event *ev);
char *event_take(const char **text); /* the caller owns the string now, and *text is NULL */
/* For a handler that refuses its event: fill e as err_set() does, and return 1 (see job_feed()). */
int job_refuse(struct err *e, int num, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- job.c ---- */

/* Add an action to those that job_feed() returns; the caller fills in its fields. */
struct job_action *job_act(struct job *j, enum job_action_type type);
/* Make room for n more slots, so that job_add_slot() cannot fail. 0 or -ENOMEM. */
int job_reserve_slots(struct job *j, uint32_t n);
/* Add a slot to the role: SLOT_ABSENT, with the next index. Room was reserved. Returns its id. */
uint32_t job_add_slot(struct job *j, uint32_t role);
/* Give back a container that no slot needs; if its executor was launched, stop it. Takes
 * *container. */
void job_discard(struct job *j, uint32_t slot, bool launched, const char **container);
/* Set the container of a slot, in place of its last one. Takes all three strings. */
void job_place(struct job *j, struct slot *s, const char **container, const char **gpus,
               const char **node);

/* ---- view.c ---- */

bool job_over(const struct job *j); /* the verdict is final */
bool job_is_spare(const struct job *j, uint32_t slot);
/* Is the slot a task that belongs to the job now, or a spare? Slots that a resize adds or has
 * removed are not members. */
bool job_is_member(const struct job *j, const struct slot *s);
bool job_is_task(const struct job *j, uint32_t slot); /* a member, but not a spare */
struct role *job_role_of(const struct job *j, uint32_t slot);
const struct role_spec *job_role_spec(const struct job *j, uint32_t role);
const char *job_role_name(const struct job *j, uint32_t role);
bool job_is_chief(const struct job *j, uint32_t slot);
bool job_is_sidecar(const struct job *j, uint32_t role);       /* a sidecar, or spares of a role */
bool job_is_wanted(const struct job *j, const struct slot *s); /* has the slot's stage come? */

/* ---- policy.c ---- */

void policy_init(struct job *j);
/* Count the awaited tasks again; call it when slots have lost their result by a restart. */
void policy_recount(struct job *j);
void policy_stages(struct job *j); /* start the stages of the job again from the first */
void policy_registered(struct job *j, uint32_t slot);
/* Stop all tasks now, also those that were given time to save a checkpoint. */
void policy_stop_now(struct job *j);
/* Give up all containers, because no master runs that could watch them; the job ends now. */
void policy_abandon(struct job *j);
/* The last slot of the role has ended: the stage of other roles may have come. */
void policy_role_over(struct job *j, uint32_t role);
/* The slot has a result: decide what it means for the job. from: the slot's state before. */
void policy_settled(struct job *j, uint32_t slot, enum slot_state from, int64_t at_us);
void policy_group_due(struct job *j, uint32_t group); /* LIMIT_GROUP */
void policy_give_back(struct job *j);                 /* LIMIT_GANG */
void policy_ask_again(struct job *j);                 /* LIMIT_PAUSE */
void policy_announce(struct job *j); /* add the actions of the job's end; can be repeated */
/* After each event: request containers, start tasks, evaluate the results, stop tasks, and end the
 * job, as far as possible now. */
void policy_run(struct job *j);
/* Set the verdict and its message, unless the job has a verdict. */
void policy_decide(struct job *j, enum job_state verdict, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- depends.c ---- */

/* Adds `by` (1 or -1) to the counters n_started and n_ready of the role; called by slot_count(). */
void depends_count(struct role *r, const struct slot *s, int by);

/* May tasks of the role start? They may if all roles for which its gates wait have started, or are
 * ready. */
bool depends_open(const struct job *j, uint32_t role);
/* After tasks have ended: stop the roles that a role whose tasks have all ended stops. Decide that
 * the job has failed if a role waits for something that can never happen. */
void depends_check(struct job *j);
/* Append what the role still waits for before its tasks start, as the rest of a sentence: "'ps' to
 * be ready". false: it waits for no other role. */
bool depends_text(const struct job *j, uint32_t role, struct buf *out);

/* ---- addresses.c ---- */

/* Do the addresses of all tasks fit into the variables that the framework needs? All of them must
 * have registered. sizes: the number of tasks of each role; NULL = as they are now. If not, e says
 * which variable is too long. */
bool addresses_fit(const struct job *j, const uint32_t *sizes, struct err *e);
/* The same before the gang starts. If the addresses do not fit, the job fails. */
bool addresses_allow_start(struct job *j);

/* ---- recover.c ---- */

int recover_master_started(struct job *j, const struct ev_master_started *ev, struct err *e);
int recover_seen(struct job *j, struct ev_container_seen *ev, struct err *e);
int recover_resynced(struct job *j, const struct ev_resynced *ev, struct err *e);

#endif
