/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job with a real keeper and real executors. The test plays the master and, if wanted, the pool.
 *
 * The keeper is started from a directory in which the program tony-master only sleeps. The test
 * connects to the keeper and listens for executors in its place.
 */
#ifndef TONY_TESTS_NODE_WORLD_H
#define TONY_TESTS_NODE_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/vec.h"
#include "executor/link.h"
#include "proto/tony.pb-c.h"

enum {
    WORLD_SLOTS = 256,
    WORLD_ANSWER_MS = 60000, /* an answer that takes longer fails the test */
};

struct world_slot {
    char container[80];
    struct link link;
    bool granted, refused, hello, started, ended, completed, running_at_hello;
    int n_hellos, n_ended, n_completed;
    uint32_t port, tb_port, hello_attempt;
    pid_t executor, task;
    uint32_t gpus[8];
    size_t n_gpus;
    /* of the last AttemptEnded */
    int exit_code, signal;
    Tony__Reason reason;
    uint64_t age_us;
    uint64_t beats, alive; /* heartbeats: of the executor, and of the keeper in its place */
    char detail[256], tail[5000];
    /* of ContainersCompleted */
    int exit_status;
    Tony__Reason completed_reason;
    char completed_detail[256];
};

struct world {
    char dir[64], home[96], job_dir[200], socket_k[160], socket_m[160], lock[160];
    char app[48];
    pid_t keeper;
    struct link link; /* connection to the keeper, as its master */
    struct link pool; /* connection to the keeper, as its pool */
    int listen_fd;
    uint32_t epoch;
    bool registered;
    int n_parts;           /* Registered messages, in answer to the last RegisterMaster */
    int n_registered;      /* containers listed in them */
    int n_registered_done; /* those of them that have completed */
    /* received on the pool's connection */
    bool finished;
    int n_states;
    char state[32];
    struct world_holds {
        uint64_t memory_mib, wants_mib;
        uint32_t gpus[8], n_gpus, wants_gpus, wants_n, wants_number, heard;
        uint32_t min_containers, max_containers;
        int64_t ends_early_ms, ends_late_ms;
        int64_t cost_ms; /* -1: not known */
        int64_t wants_since_ms;
    } holds; /* the last KeeperState */
    /* received on the master's connection */
    uint32_t cancelled; /* the last number that was confirmed */
    int n_wishes;
    uint32_t wish_n;
    uint64_t wish_ms;
    bool wish_grows;
    char why[300]; /* reason of the last refusal or wish */
    /* what the tasks are started with */
    const char *command, *framework, *mode, *env; /* env: "K=V" */
    uint32_t heartbeat_ms, quiet_ms, kill_grace_ms, master_away_ms;
    uint64_t execution_timeout_ms;
    Tony__Mount **mounts;
    size_t n_mounts;
    bool plain; /* world_launch(): the executors may be a crew */
    bool hold_start, hold_ack, keep_after_ack;
    bool deaf; /* the test does not wait until the keeper reports that it is ready */
    int n;     /* slots in use */
    struct world_slot slots[WORLD_SLOTS];
};

/* For setup. args: options of the keeper besides its id, or NULL. */
struct world *world_new(const char *args);
/* Kills the processes that are left, and removes the directory. */
void world_free(struct world *w);
int world_teardown(void **state); /* runs after each test: does the same after a failed test */
void world_start_keeper(struct world *w, const char *args);
int world_wait_keeper(struct world *w, int ms); /* its exit code; -1: it lives; 1000 + signal */
void world_drop_master(struct world *w); /* closes the connections that the test holds as master */
bool world_is_finished(struct world *w); /* the keeper has told the pool that the job is over */

/* The job ends in order: keeper gone with 0, moved to history, no task, no socket, no lock. Frees
 * w. */
void world_end_well(struct world *w);

/* Number of processes with this job in their environment, without the keeper and the executors. */
int world_tasks_alive(struct world *w);
char *world_read(struct world *w, const char *path); /* absolute, or relative to the job's
                                                        directory; borrowed until the next call */

/* ---- implemented in node_world_frames.c ---- */

/* Connects, sends RegisterMaster, waits for Registered. */
void world_register(struct world *w, uint32_t epoch);
void world_listen(struct world *w);
/* Asks for slots 0..n-1 and waits for the grants. */
void world_ask(struct world *w, int n, uint64_t memory_mib, uint32_t gpus);
void world_launch(struct world *w, int n);
/* Asks, launches, and waits until all have completed. */
void world_run(struct world *w, int n, const char *command);
void world_start(struct world *w, int slot, uint32_t attempt);
void world_stop(struct world *w, int slot, uint32_t grace_ms, Tony__Reason reason);
void world_want_own_beats(struct world *w, int slot);
void world_stop_container(struct world *w, int slot, uint32_t grace_ms);
void world_ack(struct world *w, int slot, uint32_t attempt, bool finish);
void world_finish(struct world *w, const char *state);
void world_pool_dial(struct world *w);
/* For a resized job: m requests, sent as the whole want or as requests for containers. Neither call
 * waits for an answer. */
struct world_wants {
    uint32_t slot;
    uint64_t memory_mib;
    uint32_t gpus;
};
void world_want(struct world *w, const struct world_wants *asks, size_t m);
void world_request(struct world *w, const struct world_wants *asks, size_t m);
void world_cancel(struct world *w, uint32_t slot, uint32_t number);
void world_ack_completed(struct world *w, uint64_t n); /* the journal has the first n ends */
/* These act as the pool. */
void world_admit(struct world *w, uint32_t number, uint64_t memory_mib, const uint32_t *gpus,
                 size_t n_gpus);
void world_refuse(struct world *w, uint32_t number, uint32_t wants_number, const char *why);
void world_bounds(struct world *w, uint32_t min, uint32_t max);
void world_outlook(struct world *w, bool known, uint64_t min_ms, uint64_t max_ms);
void world_cost(struct world *w, uint32_t min, uint32_t max, int64_t cost_ms); /* < 0: not known */
void world_wish(struct world *w, bool grow, uint32_t n, uint64_t deadline_ms);

/* Handle events until done(w) is true; false: the deadline came first. */
bool world_until(struct world *w, bool (*done)(struct world *w), int ms);
bool all_hello(struct world *w);
bool all_started(struct world *w);
bool all_ended(struct world *w);
bool all_completed(struct world *w);
bool never(struct world *w);

#endif
