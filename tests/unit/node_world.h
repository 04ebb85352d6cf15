/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job on a keeper and executors of the real program, with this test as its master and, where
 * wanted, as its pool.
 *
 * The keeper is started from a directory of its own, where the program tony-master only sleeps: the
 * test dials the keeper and listens for executors in its place.
 */
#ifndef TONY_TESTS_NODE_WORLD_H
#define TONY_TESTS_NODE_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/vec.h"
#include "executor/link.h"
#include "proto/tony.pb-c.h"

enum { WORLD_SLOTS = 256 };

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
    uint64_t age_us, beats, rss;
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
    struct link link; /* to the keeper, as master */
    struct link pool; /* to the keeper, as pool */
    int listen_fd;
    uint32_t epoch;
    bool registered;
    int n_registered;      /* containers that Registered told of */
    int n_registered_done; /* of these completed */
    /* from the pool's connection */
    bool finished;
    int n_states;
    char state[32];
    struct world_holds {
        uint64_t memory_mib, wants_mib;
        uint32_t gpus[8], n_gpus, wants_gpus, wants_n, wants_number, heard;
        uint32_t min_containers, max_containers;
        int64_t wants_since_ms;
    } holds; /* the last KeeperState */
    /* from the master's connection */
    uint32_t cancelled; /* the last number that was confirmed */
    int n_wishes;
    uint32_t wish_n;
    uint64_t wish_ms;
    bool wish_grows;
    char why[300]; /* of the last refusal, or wish */
    /* what tasks are given */
    const char *command, *framework, *mode, *env; /* env: "K=V" */
    uint32_t heartbeat_ms, kill_grace_ms, master_away_ms;
    uint64_t execution_timeout_ms;
    Tony__Mount **mounts;
    size_t n_mounts;
    bool hold_start, hold_ack, keep_after_ack;
    bool deaf; /* nobody reads what the keeper says when it is ready */
    int n;     /* slots in use */
    struct world_slot slots[WORLD_SLOTS];
};

/* setup: args are options of the keeper besides its id, or NULL */
struct world *world_new(const char *args);
void world_free(
    struct world *w); /* kills what is left, checks that nothing is, removes the directory */
int world_teardown(void **state); /* after each test: the same for one that failed */
void world_start_keeper(struct world *w, const char *args);

void world_register(struct world *w,
                    uint32_t epoch); /* dial, RegisterMaster, wait for Registered */
void world_listen(struct world *w);
void world_ask(struct world *w, int n, uint64_t memory_mib,
               uint32_t gpus); /* slots 0..n-1, waits for the grants */
void world_launch(struct world *w, int n);
void world_run(struct world *w, int n,
               const char *command); /* ask, launch, until all are completed */
void world_start(struct world *w, int slot, uint32_t attempt);
void world_stop(struct world *w, int slot, uint32_t grace_ms, Tony__Reason reason);
void world_stop_container(struct world *w, int slot, uint32_t grace_ms);
void world_ack(struct world *w, int slot, uint32_t attempt, bool finish);
void world_finish(struct world *w, const char *state);
void world_pool_dial(struct world *w);
/* Of a job that is resized: m asks, as the whole or to be granted; nothing is waited for. */
struct world_wants {
    uint32_t slot;
    uint64_t memory_mib;
    uint32_t gpus;
};
void world_want(struct world *w, const struct world_wants *asks, size_t m);
void world_request(struct world *w, const struct world_wants *asks, size_t m);
void world_cancel(struct world *w, uint32_t slot, uint32_t number);
/* As the pool. */
void world_admit(struct world *w, uint32_t number, uint64_t memory_mib, const uint32_t *gpus,
                 size_t n_gpus);
void world_refuse(struct world *w, uint32_t number, uint32_t wants_number, const char *why);
void world_bounds(struct world *w, uint32_t min, uint32_t max);
void world_wish(struct world *w, bool grow, uint32_t n, uint64_t deadline_ms);
void world_drop_master(struct world *w); /* close everything the test holds as master */

/* Handle what comes until done(w) or the deadline; false: the deadline. */
bool world_until(struct world *w, bool (*done)(struct world *w), int ms);
bool all_hello(struct world *w);
bool all_started(struct world *w);
bool all_ended(struct world *w);
bool all_completed(struct world *w);
bool never(struct world *w);
bool world_is_finished(struct world *w);        /* as the pool was told */
int world_wait_keeper(struct world *w, int ms); /* its exit code; -1: it lives; 1000 + signal */

/* The job ends in order: keeper gone with 0, moved to history, no task, no socket, no lock. Frees
 * w. */
void world_end_well(struct world *w);

/* Processes that carry this job in their environment, the keeper and executors left out. */
int world_tasks_alive(struct world *w);
char *world_read(struct world *w, const char *path); /* absolute, or relative to the job's
                                                        directory; borrowed until the next call */

#endif
