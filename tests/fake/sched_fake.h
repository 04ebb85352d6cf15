/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scripted scheduler. It implements scheduler.h like any back-end, but outside src/.
 *
 * fake_cluster_new() makes the cluster: the containers that are granted, launched and ended. It
 * outlives a master. Each open() by a master is answered with the containers that the cluster
 * knows. A table of rules says what happens after a request or a launch; the first rule that fits
 * counts. No callback runs inside a call: answers wait until fake_cluster_run(now) delivers those
 * that are due. If sched_config has a loop, the cluster runs itself with a timer.
 */
#ifndef TONY_TESTS_SCHED_FAKE_H
#define TONY_TESTS_SCHED_FAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/scheduler.h"

#define FAKE_ANY UINT32_MAX

struct fake_rule {
    uint32_t slot;    /* FAKE_ANY: each slot */
    int64_t grant_ms; /* ms from the request to the grant; -1 = not before fake_cluster_answer() */
    const char *refuse;  /* not NULL: refused after grant_ms, for this reason */
    int64_t complete_ms; /* ms from the launch until the container ends by itself; -1 = never */
    int exit_code;       /* the exit code at that end */
    enum end_reason reason;
    int64_t stop_ms; /* ms from a stop to the end; -1 = the end is never confirmed */
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
    unsigned n_launches, n_stops, n_completions /* completions that a master was told */;
};

struct fake_cluster;

struct fake_cluster *fake_cluster_new(const struct fake_rule *rules,
                                      size_t n); /* rules are borrowed */
void fake_cluster_free(struct fake_cluster *c);
/* For sched_ops.open(), which has no parameter for a cluster: the cluster of the last call is
 * used. */
const struct sched_ops *sched_fake_ops(struct fake_cluster *c);

/* Called inside launch and stop. A test that plays the executors may schedule their next steps
 * here. */
struct fake_hooks {
    void (*launched)(const struct fake_container *c, void *arg);
    void (*stopped)(const struct fake_container *c, uint32_t grace_ms, void *arg);
    /* Called inside resize() with the whole demand of the job. May be NULL. */
    void (*resized)(const struct sched_ask *whole, size_t n, void *arg);
    void *arg;
};
void fake_cluster_hooks(struct fake_cluster *c, const struct fake_hooks *h);
/* An executor ended by itself (complete_ms of its rule should be -1). The connected master is told,
 * or the next one. */
void fake_cluster_exit(struct fake_cluster *c, const char *id, int exit_code,
                       enum end_reason reason);

/* The cluster gives up the container's node. No master is told. */
void fake_cluster_forget(struct fake_cluster *c, const char *id);
/* The scheduler's own wish, SE_SHRINK or SE_GROW: the job may hold n containers in total. The
 * master that is connected when it is due is told; without a master it is dropped. why is borrowed
 * until then. */
int fake_cluster_wish(struct fake_cluster *c, enum sched_event_type type, size_t n,
                      int64_t deadline_ms, const char *why);
/* Answers a request whose rule says never: refuses it with this reason; NULL = grants it. -ENOENT:
 * no such request waits. */
int fake_cluster_answer(struct fake_cluster *c, uint32_t slot, const char *refuse);
size_t fake_cluster_n_waiting(const struct fake_cluster *c); /* requests without an answer so far */
/* Number of slots in the last resize(); 0 = there was none. */
size_t fake_cluster_whole(const struct fake_cluster *c);
/* Does the last resize() name this slot? Also true if there was none. */
bool fake_cluster_in_whole(const struct fake_cluster *c, uint32_t slot);
/* All calls of bounds(), each as "1..4 "; "" = there was none. */
const char *fake_cluster_bounds(const struct fake_cluster *c);
/* Number of requests for slots that the last resize() did not name: an error of the master. */
unsigned fake_cluster_n_beyond(const struct fake_cluster *c);
/* From now on resize() fails with this errno; 0 = it succeeds. */
void fake_cluster_fail_resize(struct fake_cluster *c, int num);

/* When the next event is due; INT64_MAX = there is none. */
int64_t fake_cluster_next(const struct fake_cluster *c);
void fake_cluster_run(struct fake_cluster *c, int64_t now_ms);
size_t fake_cluster_n(const struct fake_cluster *c);
const struct fake_container *fake_cluster_at(const struct fake_cluster *c, size_t i);
/* The state that the master reported at the end; NULL = not yet. */
const char *fake_cluster_finished(const struct fake_cluster *c);

#endif
