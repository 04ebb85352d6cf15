/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events that the shell feeds to the core, and the actions that the core returns: one struct
 * for each.
 *
 * The lists in this file are the only description of events and actions. The structs, the names,
 * the journal's encoding and decoding (event.c), and the list in docs/journal.md are made from
 * them.
 *
 * How to read a list:
 *
 *   EVENT(type, name, whose, durable, text)
 *     type     constant in enum job_event_type
 *     name     the member of struct job_event, and the event's name in journal and log
 *     whose    OF_JOB; OF_SLOT: the first field is `slot`; OF_CONTAINER: the first two are `slot`
 *              and `container`; OF_ATTEMPT: the first three are `slot`, `generation`, `attempt`
 *     durable  DURABLE: the master writes the event to the journal before it acts on it; PASSING:
 *              it does not, and the next master knows nothing of the event (job_must_record() has
 *              the exception)
 *   FIELD(of, kind, name, text)
 *     of       the name of the event or action; the list passes it through
 *     kind     the field's type in C and in the journal (record.h)
 *     name     the member of the C struct, and the JSON member in the journal
 *
 * A field with the value 0, false or NULL is left out of a journal record, except `slot`.
 */
#ifndef TONY_JOB_EVENT_H
#define TONY_JOB_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/reason.h"
#include "job/record.h"

struct err;

/* clang-format off */

/* ---- events ---- */

#define JOB_EVENTS(EVENT) \
    EVENT(EV_SUBMITTED, submitted, OF_JOB, DURABLE, "the job was accepted; the first event of every job") \
    EVENT(EV_MASTER_STARTED, master_started, OF_JOB, DURABLE, "a master has taken over the job") \
    EVENT(EV_RESYNCED, resynced, OF_JOB, DURABLE, "the scheduler has named all containers that it still knows: every other container is lost") \
    EVENT(EV_CONTAINER_SEEN, container_seen, OF_CONTAINER, DURABLE, "between master_started and resynced: the scheduler still knows this container") \
    EVENT(EV_ALLOCATED, allocated, OF_CONTAINER, DURABLE, "the scheduler granted a container") \
    EVENT(EV_ALLOCATION_REFUSED, allocation_refused, OF_SLOT, DURABLE, "the scheduler can never grant a container for this slot") \
    EVENT(EV_COMPLETED, completed, OF_CONTAINER, DURABLE, "the scheduler says that a container has ended") \
    EVENT(EV_PREEMPTING, preempting, OF_CONTAINER, DURABLE, "the scheduler will take a container") \
    EVENT(EV_REGISTERED, registered, OF_CONTAINER, DURABLE, "an executor has reserved its ports and waits for a Start") \
    EVENT(EV_EXECUTOR_GONE, executor_gone, OF_CONTAINER, PASSING, "the connection to an executor is closed") \
    EVENT(EV_EXECUTOR_BACK, executor_back, OF_CONTAINER, PASSING, "an executor that had registered has reconnected") \
    EVENT(EV_ATTEMPT_STARTED, attempt_started, OF_ATTEMPT, DURABLE, "an executor has started the command") \
    EVENT(EV_ATTEMPT_ENDED, attempt_ended, OF_ATTEMPT, DURABLE, "the executor reports how the command ended") \
    EVENT(EV_BEAT, beat, OF_SLOT, PASSING, "an executor has sent a heartbeat") \
    EVENT(EV_PROGRESS, progress, OF_SLOT, PASSING, "a task has reported its progress. Only a report that ends a measurement of what a resize costs is written to the journal") \
    EVENT(EV_CHECKPOINT, checkpoint, OF_ATTEMPT, DURABLE, "a task has saved a checkpoint, or its part of one") \
    EVENT(EV_TENSORBOARD, tensorboard, OF_SLOT, DURABLE, "a task serves a TensorBoard") \
    EVENT(EV_TASK_READY, task_ready, OF_ATTEMPT, DURABLE, "a task is ready: tasks that wait for it may start") \
    EVENT(EV_CLIENT_OWNS, client_owns, OF_JOB, DURABLE, "a client that owns the job is connected") \
    EVENT(EV_CLIENT_AWAY, client_away, OF_JOB, DURABLE, "the last client that owns the job is gone") \
    EVENT(EV_STOP, stop, OF_JOB, DURABLE, "a client stops the job") \
    EVENT(EV_STALLED, stalled, OF_JOB, PASSING, "the master itself did not run for this time, so the silence of executors in it does not count. With 0 ms: a mark of the time; only this one is written to the journal") \
    EVENT(EV_TIMER, timer, OF_SLOT, DURABLE, "a limit has expired") \
    EVENT(EV_SUSPECT, suspect, OF_SLOT, PASSING, "an executor sent no heartbeat for three intervals") \
    EVENT(EV_RESIZE, resize, OF_JOB, DURABLE, "a client asks for other numbers of tasks") \
    EVENT(EV_SHRINK, shrink, OF_JOB, DURABLE, "the scheduler demands that the job has at most this many containers") \
    EVENT(EV_GROW, grow, OF_JOB, DURABLE, "the scheduler offers the job containers, up to this many in all") \
    EVENT(EV_LAUNCH_FAILED_JOB, launch_failed_job, OF_JOB, DURABLE, "no master could be started or run; the job ends") \
    EVENT(EV_DECIDED_RESTART, decided_restart, OF_JOB, DURABLE, "the decision about the next event: an attempt has failed, or tasks restart (job/decisions.h)") \
    EVENT(EV_DECIDED_RESIZE, decided_resize, OF_JOB, DURABLE, "the decision about the next event: a resize begins or ends") \
    EVENT(EV_DECIDED_VERDICT, decided_verdict, OF_JOB, DURABLE, "the decision about the next event: the job gets its verdict, or another one")

#define FIELDS_submitted(FIELD, of) \
    FIELD(of, TEXT, application_id, "") \
    FIELD(of, TEXT, user, "who submitted it") \
    FIELD(of, I64, wall_ms, "ms since 1970; for people only") \
    FIELD(of, FLAG, owned, "the job is killed when its client is away for tony.client.away-limit")
#define FIELDS_master_started(FIELD, of) \
    FIELD(of, U32, epoch, "counts masters, from 1") \
    FIELD(of, I64, wall_ms, "ms since 1970") \
    FIELD(of, I64, mono_ms, "monotonic clock of this machine; 0: the next master may run on another machine") \
    FIELD(of, FLAG, gives_back, "the scheduler grants a gang in parts, so an incomplete gang must give its containers back")
#define FIELDS_resynced(FIELD, of) \
    FIELD(of, TEXT, why, "why containers are lost, if that is known: the machine stopped, or the keeper has ended")
#define FIELDS_container_seen(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, TEXT, container, "") \
    FIELD(of, FLAG, launched, "its executor was started") \
    FIELD(of, TEXT, gpus, "device numbers: \"0,1\"") \
    FIELD(of, TEXT, node, "\"host:port\" of its node manager; missing: this machine")
#define FIELDS_allocated(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, TEXT, container, "") \
    FIELD(of, TEXT, gpus, "device numbers: \"0,1\"") \
    FIELD(of, TEXT, node, "\"host:port\" of its node manager; missing: this machine")
#define FIELDS_allocation_refused(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, TEXT, why, "")
#define FIELDS_completed(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, TEXT, container, "") \
    FIELD(of, INT, exit_code, "of the container: the code, or 128 + signal") \
    FIELD(of, REASON, reason, "") \
    FIELD(of, U64, age_us, "how long ago it ended") \
    FIELD(of, TEXT, detail, "the scheduler's sentence about the end") \
    FIELD(of, TEXT, cause, "name of the cause that the master recognized (cause/cause.h); missing in records of version 0.1.0") \
    FIELD(of, TEXT, cause_line, "the line of output that shows the cause")
#define FIELDS_preempting(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, TEXT, container, "") \
    FIELD(of, I64, within_ms, "the scheduler takes the container after this time")
#define FIELDS_registered(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, TEXT, container, "") \
    FIELD(of, U32, generation, "the generation for which the executor has prepared itself again; missing: it has just been launched") \
    FIELD(of, TEXT, address, "\"host:port\" of its first rank") \
    FIELD(of, U32, tb_port, "reserved for a TensorBoard") \
    FIELD(of, U32, pid, "of the executor")
#define FIELDS_executor_gone(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, TEXT, container, "") \
    FIELD(of, FLAG, broke, "true: the connection broke; false: the executor or its kernel has closed it")
#define FIELDS_executor_back(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, TEXT, container, "") \
    FIELD(of, U32, generation, "of its current or last attempt") \
    FIELD(of, U32, attempt, "") \
    FIELD(of, FLAG, running, "the attempt is running")
#define FIELDS_attempt_started(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, U32, generation, "") \
    FIELD(of, U32, attempt, "") \
    FIELD(of, U32, pid, "of the command")
#define FIELDS_attempt_ended(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, U32, generation, "") \
    FIELD(of, U32, attempt, "") \
    FIELD(of, U32, rank, "in a task of several ranks: the rank, counted from 0 within the task, whose end ended the attempt") \
    FIELD(of, INT, exit_code, "") \
    FIELD(of, INT, signal, "") \
    FIELD(of, REASON, reason, "") \
    FIELD(of, U64, age_us, "how long ago it ended") \
    FIELD(of, U64, step, "the last progress that the task reported") \
    FIELD(of, U64, total, "") \
    FIELD(of, TEXT, detail, "the executor's sentence about the end") \
    FIELD(of, TAIL, tail, "the last lines of stderr") \
    FIELD(of, TEXT, cause, "name of the cause that the master recognized (cause/cause.h); missing in records of version 0.1.0") \
    FIELD(of, TEXT, cause_line, "the line of output that shows the cause")
#define FIELDS_beat(FIELD, of) \
    FIELD(of, SLOT, slot, "")
#define FIELDS_progress(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, U64, step, "") \
    FIELD(of, U64, total, "0: unknown")
#define FIELDS_checkpoint(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, U32, generation, "") \
    FIELD(of, U32, attempt, "") \
    FIELD(of, U64, step, "") \
    FIELD(of, TEXT, path, "") \
    FIELD(of, U32, parts, "the number of tasks that each save a part of it; 0: the task did not say")
#define FIELDS_tensorboard(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, TEXT, url, "")
#define FIELDS_task_ready(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, U32, generation, "") \
    FIELD(of, U32, attempt, "")
#define FIELDS_client_owns(FIELD, of)
#define FIELDS_client_away(FIELD, of)
#define FIELDS_stop(FIELD, of) \
    FIELD(of, TEXT, who, "") \
    FIELD(of, TEXT, why, "") \
    FIELD(of, I64, save_ms, "time that tasks get to save a checkpoint first; 0: none")
#define FIELDS_stalled(FIELD, of) \
    FIELD(of, I64, stalled_ms, "")
#define FIELDS_timer(FIELD, of) \
    FIELD(of, SLOT, slot, "if the limit is that of a slot; else 0") \
    FIELD(of, LIMIT, limit, "") \
    FIELD(of, U32, group, "for the limit 'group': index of the group in the job's group timeouts")
#define FIELDS_suspect(FIELD, of) \
    FIELD(of, SLOT, slot, "")
#define FIELDS_resize(FIELD, of) \
    FIELD(of, TEXT, who, "") \
    FIELD(of, TEXT, why, "") \
    FIELD(of, LIST, targets, "role=instances, separated by commas: worker=8,ps=2") \
    FIELD(of, I64, within_ms, "if the new containers are not granted within this time, the job keeps its size; 0: tony.resize.timeout")
#define FIELDS_shrink(FIELD, of) \
    FIELD(of, U32, n_containers, "in all, spares included") \
    FIELD(of, I64, within_ms, "after this time the scheduler takes containers itself") \
    FIELD(of, TEXT, why, "") \
    FIELD(of, FLAG, saved, "if the gang would have to restart, it waits until a checkpoint is whole that is newer than this; without one, the job keeps its size") \
    FIELD(of, LIST, leave, "if the gang restarts, these slots leave first, in place of those with the highest indices; separated by commas")
#define FIELDS_grow(FIELD, of) \
    FIELD(of, U32, n_containers, "in all, spares included") \
    FIELD(of, I64, within_ms, "the offer ends after this time; 0: tony.resize.timeout") \
    FIELD(of, TEXT, why, "") \
    FIELD(of, FLAG, saved, "if the gang would have to restart, it waits until a checkpoint is whole that is newer than this; without one, the job keeps its size")
#define FIELDS_launch_failed_job(FIELD, of) \
    FIELD(of, TEXT, why, "") \
    FIELD(of, FLAG, stopped, "the machine stopped while the job ran, and the job does not go on; why tells when")
#define FIELDS_decided_restart(FIELD, of) \
    FIELD(of, TEXT, by, "name of the next event") \
    FIELD(of, U32, slot, "the slot whose attempt ended") \
    FIELD(of, U32, attempt, "the attempt that ended; 0: the failed job restarts as a whole") \
    FIELD(of, TEXT, scope, "what restarts: task, role, gang or job; missing: nothing") \
    FIELD(of, FLAG, elsewhere, "the next attempt needs another container") \
    FIELD(of, REASON, charge, "the budget that is charged; exited: the user's limit; missing: none") \
    FIELD(of, FLAG, in_row, "it follows soon after another restart, so its pause is longer") \
    FIELD(of, I64, due_ms, "the job time before which the next attempt must not start; 0: it may start at once")
#define FIELDS_decided_resize(FIELD, of) \
    FIELD(of, TEXT, by, "name of the next event") \
    FIELD(of, TEXT, outcome, "began; or how the resize ended: done, timed_out, refused, replaced") \
    FIELD(of, LIST, targets, "only if it began: role=instances, separated by commas") \
    FIELD(of, LIST, by_restart, "only if it began: the roles that need a new gang for it, separated by commas") \
    FIELD(of, TEXT, detail, "only if it ended: why it was not done, or not as far as the scheduler demanded")
#define FIELDS_decided_verdict(FIELD, of) \
    FIELD(of, TEXT, by, "name of the next event") \
    FIELD(of, TEXT, state, "SUCCEEDED, FAILED or KILLED") \
    FIELD(of, INT, exit_code, "of `tony run`") \
    FIELD(of, FLAG, over, "every task has ended, so the verdict is final") \
    FIELD(of, TEXT, message, "the sentence that says why") \
    FIELD(of, FLAG, by_task, "the failure of a task is the reason") \
    FIELD(of, FLAG, own_words, "the message says more than that failure") \
    FIELD(of, FLAG, has_first, "slot, at_us and cause describe the first failure") \
    FIELD(of, U32, slot, "") \
    FIELD(of, I64, at_us, "when it failed, in microseconds of job time") \
    FIELD(of, TEXT, cause, "name of its cause (cause/cause.h)")

/* ---- actions: the shell carries them out in the order in which the core returns them ---- */

#define JOB_ACTIONS(ACTION) \
    ACTION(ACT_ASK, ask, "ask the scheduler for one container of the slot's role; the request's id is the slot") \
    ACTION(ACT_CANCEL, cancel, "withdraw the slot's request") \
    ACTION(ACT_RELEASE, release, "give back a container that was granted but is not needed") \
    ACTION(ACT_LAUNCH, launch, "start an executor in the container") \
    ACTION(ACT_START, start, "tell the executor to start the command, with the addresses of all slots") \
    ACTION(ACT_STOP_ATTEMPT, stop_attempt, "tell the executor to end the command") \
    ACTION(ACT_ACK, ack, "tell the executor that the end of this attempt is known") \
    ACTION(ACT_FINISH_EXECUTOR, finish_executor, "tell the executor to end the command, if one runs, and to exit") \
    ACTION(ACT_STOP_CONTAINER, stop_container, "tell the scheduler to end a container whose executor is unreachable or does not obey") \
    ACTION(ACT_RENEW, renew, "tell the executor that another attempt follows: it forgets the last one and registers again") \
    ACTION(ACT_TAKE, take, "note that the container of a spare now belongs to this slot") \
    ACTION(ACT_SHAPE, shape, "tell the scheduler all containers that the job wants now (job_wants()): they have changed") \
    ACTION(ACT_AVOID, avoid, "request no new containers on a node, or allow the node again") \
    ACTION(ACT_PEERS, peers, "send the new addresses to all running tasks") \
    ACTION(ACT_NOTIFY, notify, "tell clients that follow the job that something they see has changed") \
    ACTION(ACT_SYNC, sync, "make the journal durable before any later action") \
    ACTION(ACT_FINISH, finish, "the verdict is final and no task is alive: tell the scheduler, and exit")

#define FIELDS_ask(FIELD, of) \
    FIELD(of, SLOT, slot, "")
#define FIELDS_cancel(FIELD, of) \
    FIELD(of, SLOT, slot, "")
#define FIELDS_release(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, TEXT, container, "")
#define FIELDS_launch(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, TEXT, container, "")
#define FIELDS_start(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, U32, generation, "") \
    FIELD(of, U32, attempt, "")
#define FIELDS_stop_attempt(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, U32, generation, "") \
    FIELD(of, U32, attempt, "") \
    FIELD(of, U32, wait_ms, "first wait this time for the command to end by itself; 0: do not wait") \
    FIELD(of, U32, save_ms, "then give it this time to save a checkpoint; 0: none") \
    FIELD(of, U32, grace_ms, "then send SIGTERM, and SIGKILL after this time") \
    FIELD(of, REASON, reason, "the reason that the executor must report for the end")
#define FIELDS_ack(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, U32, generation, "") \
    FIELD(of, U32, attempt, "") \
    FIELD(of, FLAG, finish, "no other attempt follows: the executor may exit")
#define FIELDS_finish_executor(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, TEXT, container, "") \
    FIELD(of, U32, grace_ms, "")
#define FIELDS_stop_container(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, TEXT, container, "") \
    FIELD(of, U32, grace_ms, "")
#define FIELDS_renew(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, U32, generation, "of the next attempt") \
    FIELD(of, FLAG, fresh, "the generation is new: reserve other ports")
#define FIELDS_take(FIELD, of) \
    FIELD(of, SLOT, slot, "") \
    FIELD(of, TEXT, container, "") \
    FIELD(of, U32, from, "the spare's slot")
#define FIELDS_shape(FIELD, of)
#define FIELDS_avoid(FIELD, of) \
    FIELD(of, TEXT, node, "") \
    FIELD(of, FLAG, on, "true: avoid the node; false: allow it again")
#define FIELDS_peers(FIELD, of)
#define FIELDS_notify(FIELD, of)
#define FIELDS_sync(FIELD, of)
#define FIELDS_finish(FIELD, of)

/* ---- what is generated from the lists ---- */

enum job_event_type {
    EV_NONE = 0,
#define EVENT(type, name, whose, durable, text) type,
    JOB_EVENTS(EVENT)
#undef EVENT
    EV_COUNT,
};

enum job_action_type {
    ACT_NONE = 0,
#define ACTION(type, name, text) type,
    JOB_ACTIONS(ACTION)
#undef ACTION
    ACT_COUNT,
};

#define FIELD(of, kind, name, text) field_##kind name;
#define EVENT(type, name, whose, durable, text) struct ev_##name { FIELDS_##name(FIELD, name) };
#define ACTION(type, name, text) struct act_##name { FIELDS_##name(FIELD, name) };
JOB_EVENTS(EVENT)
JOB_ACTIONS(ACTION)
#undef ACTION
#undef EVENT
#undef FIELD

/* An event. Its type selects the valid member. Strings are borrowed for the call. */
struct job_event {
    enum job_event_type type;
    union {
#define EVENT(type, name, whose, durable, text) struct ev_##name name;
        JOB_EVENTS(EVENT)
#undef EVENT
        /* The first fields of events OF_SLOT, OF_CONTAINER and OF_ATTEMPT (job_event_whose()). */
        struct { uint32_t slot; } of_slot;
        struct { uint32_t slot; const char *container; } of_container;
        struct { uint32_t slot, generation, attempt; } of_attempt;
    };
};

/* An action. Its type selects the valid member. Strings are valid until the next job_feed(). */
struct job_action {
    enum job_action_type type;
    union {
#define ACTION(type, name, text) struct act_##name name;
        JOB_ACTIONS(ACTION)
#undef ACTION
        /* The first field of all actions that have a field `slot`. */
        struct { uint32_t slot; } of_slot;
    };
};

/* clang-format on */

struct job_actions {
    struct job_action *v;
    size_t n, cap;
};

enum event_whose { OF_JOB = 0, OF_SLOT, OF_CONTAINER, OF_ATTEMPT };
enum event_durability { PASSING = 0, DURABLE };

const char *job_event_name(enum job_event_type t);     /* "none" if t is not an event */
enum job_event_type job_event_named(const char *name); /* EV_NONE: no event has this name */
enum event_whose job_event_whose(enum job_event_type t);
bool job_is_durable(enum job_event_type t);
/* The slot that the event is about; 0 if it is about the job. */
uint32_t job_event_slot(const struct job_event *ev);
/* Where *a has its string, a container or a node (no action has two); NULL = it has none. */
const char **job_action_text(struct job_action *a);
/* The slot that the action is about; JOB_ACTION_OF_JOB = none. */
#define JOB_ACTION_OF_JOB UINT32_MAX
uint32_t job_action_slot(const struct job_action *a);
bool job_action_same(const struct job_action *a, const struct job_action *b); /* field by field */

/* Appends one journal payload: {"e":"registered","t":<job ms>,"slot":3,...}. Number and checksum
 * are added by storage/journal.h. -EINVAL: no such event; -ENOMEM. */
int job_event_encode(const struct job_event *ev, int64_t t_ms, struct buf *out);
/*
 * Read a journal payload. Reads records of every released version: fields that version 0.1.0 called
 * "text" or "running" have names of their own now. Strings of *out point into *out_holder, which
 * job_event_release() frees. -EBADMSG: the record is damaged, or has a field or event that this
 * version does not know; the error names it.
 */
int job_event_decode(struct span json, struct job_event *out, int64_t *out_t_ms, void **out_holder,
                     struct err *e);
void job_event_release(void *holder);

/* ---- for the tables in docs/ ---- */

struct event_info {
    const char *name;
    enum event_whose whose;
    enum event_durability durable;
    const char *text;
    const struct field *fields; /* ends with a field of kind F_NONE */
};
const struct event_info *job_event_info(enum job_event_type t); /* NULL = no such event */

#endif
