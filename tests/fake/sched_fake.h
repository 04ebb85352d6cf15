/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scripted scheduler: implements scheduler.h like any back-end, outside src/.
 *
 * The cluster (what is granted, launched, ended) outlives a master: it is made by
 * fake_cluster_new(), and each open() by a master is answered with what it knows. What it does with
 * an ask or a launch says a table of rules; the first that fits counts. Nothing happens inside a
 * call: answers wait until fake_cluster_run(now) delivers those that are due. With a loop in
 * sched_config the cluster runs itself by a timer.
 */
#ifndef TONY_TESTS_SCHED_FAKE_H
#define TONY_TESTS_SCHED_FAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/scheduler.h"

#define FAKE_ANY UINT32_MAX

struct fake_rule {
    uint32_t slot;       /* FAKE_ANY: every one */
    int64_t grant_ms;    /* from ask to container; -1 = not before fake_cluster_answer() */
    const char *refuse;  /* not NULL: refused after grant_ms, for this reason */
    int64_t complete_ms; /* from launch to the container's end by itself; -1 = never */
    int exit_code;       /* then */
    enum end_reason reason;
    int64_t stop_ms; /* from stop to the end; -1 = it never confirms */
    const char *gpus;
};

enum fake_state { FAKE_NONE = 0, FAKE_GRANTED, FAKE_LAUNCHED, FAKE_ENDED, FAKE_RELEASED };

struct fake_container {
    char id[64];
    uint32_t slot;
    enum fake_state state;
    int exit_code;
    enum end_reason reason;
    int64_t ended_ms;
    unsigned n_launches, n_stops, n_completions /* told */;
};

struct fake_cluster;

struct fake_cluster *fake_cluster_new(const struct fake_rule *rules,
                                      size_t n); /* rules are borrowed */
void fake_cluster_free(struct fake_cluster *c);
/* sched_ops.open() has no room for the cluster: the one that was chosen last is meant. */
const struct sched_ops *sched_fake_ops(struct fake_cluster *c);

/* The world's side. Called inside launch and stop: who plays the executor may schedule what it will
 * do. */
struct fake_hooks {
    void (*launched)(const struct fake_container *c, void *arg);
    void (*stopped)(const struct fake_container *c, uint32_t grace_ms, void *arg);
    /* Inside resize(): the whole that the job wants to hold. May be NULL. */
    void (*resized)(const struct sched_ask *whole, size_t n, void *arg);
    void *arg;
};
void fake_cluster_hooks(struct fake_cluster *c, const struct fake_hooks *h);
/* An executor ended by itself (its rule's complete_ms should be -1). Told to the master that is
 * connected, or the next one. */
void fake_cluster_exit(struct fake_cluster *c, const char *id, int exit_code,
                       enum end_reason reason);

/* The cluster gives up the container's node without a word: no master hears of it again. */
void fake_cluster_forget(struct fake_cluster *c, const char *id);
/* The scheduler's own wish, SE_SHRINK or SE_GROW: the job may hold n containers in all. Told to the
 * master that is connected when it is due; without one it is forgotten. why is borrowed until then.
 */
int fake_cluster_wish(struct fake_cluster *c, enum sched_event_type type, size_t n,
                      int64_t deadline_ms, const char *why);
/* An ask whose rule says never is granted, or refused for this reason (NULL = granted). -ENOENT: no
 * such ask waits. */
int fake_cluster_answer(struct fake_cluster *c, uint32_t slot, const char *refuse);
size_t
fake_cluster_n_waiting(const struct fake_cluster *c); /* asks that nothing has answered yet */
/* How many slots the last resize() named; 0 = there was none. */
size_t fake_cluster_whole(const struct fake_cluster *c);
/* Does the last resize() name this slot? true also when there was none. */
bool fake_cluster_in_whole(const struct fake_cluster *c, uint32_t slot);
/* All calls of bounds(), each as "1..4 "; "" = there was none. */
const char *fake_cluster_bounds(const struct fake_cluster *c);
/* How many asks there were for slots that the last resize() did not name: a mistake of the master.
 */
unsigned fake_cluster_n_beyond(const struct fake_cluster *c);
/* From now on resize() fails with this errno; 0 = it succeeds. */
void fake_cluster_fail_resize(struct fake_cluster *c, int num);

int64_t
fake_cluster_next(const struct fake_cluster *c); /* when something is due; INT64_MAX = nothing */
void fake_cluster_run(struct fake_cluster *c, int64_t now_ms);
size_t fake_cluster_n(const struct fake_cluster *c);
const struct fake_container *fake_cluster_at(const struct fake_cluster *c, size_t i);
const char *fake_cluster_finished(
    const struct fake_cluster *c); /* the state it was told at the end; NULL = not yet */

#endif
