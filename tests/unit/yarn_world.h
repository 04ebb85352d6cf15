/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scripted ResourceManager and two NodeManagers, "n0" and "n1": this file defines the functions
 * of hadoop/yarn.h that the YARN back-end calls. Each call is answered a moment later, as struct
 * world says. Containers go to the two nodes in turn.
 */
#ifndef TONY_TESTS_YARN_WORLD_H
#define TONY_TESTS_YARN_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/vec.h"
#include "hadoop/rpc_error.h"

struct loop;
struct loop_timer;
struct rpc_call;
struct sched;

enum kind {
    K_NODES,
    K_REPORT,
    K_TIMEOUTS,
    K_REGISTER,
    K_ALLOCATE,
    K_FINISH,
    K_START,
    K_STOP,
    K_STATUS,
    K_COUNT
};
enum { BOXES_MAX = 300 };

struct rpc_client { /* replaces the real one in the test */
    char *protocol, *host, *token;
    int n_retired;
};

struct fake_box {
    uint32_t slot;
    int starts, stops;
    bool granted, ended, released;
    int exit_status, looks;
    char node[32];
};

extern struct world {
    struct loop *loop;
    struct loop_timer *timer, *tick;
    struct rpc_call *first;
    struct sched *s;
    char dir[64];
    struct buf said;      /* the back-end's events, in order */
    struct buf node_asks; /* a line "SLOT NODE CONTAINERS" for each entry that names a node */
    struct strv ids;      /* ids of the granted containers */

    bool want[BOXES_MAX], grants, launches;
    uint32_t far_slot; /* the one requested slot that `want` has no room for; 0 = none */
    int granted_gpus;
    int n_calls[K_COUNT], n_answered[K_COUNT], n_asks, n_racks;
    int32_t id;
    struct fake_box boxes[BOXES_MAX];
    int n_boxes;
    int told; /* the back-end has learned of the boxes below this number */
    int complete[64], n_complete;
    struct {
        enum rpc_fault kind;
        const char *class_name, *line;
        bool maybe_done;
    } fail[K_COUNT]; /* the next call of this kind fails */
    struct {
        const char *class_name, *message;
    } refuse;         /* for the next container start */
    bool silent_node; /* n1 does not answer */
    bool holds;       /* the ResourceManager holds back its answer to allocate */
    bool roll;        /* each answer has a new token */
    int finish_after; /* this number of calls of finish are answered with "not done yet" */
    char env[2000], command[200], diagnostics[100], page[100];
    char expires[64]; /* the LIFETIME that was set last */
    int64_t time_left_ms;
    const struct job_spec *spec; /* NULL = none */
    size_t n_tokens, n_resources;
    bool finished;
    bool second; /* the master is a successor: it gets the containers of its predecessor, and the
                    ends in complete[] */
    bool not_stored;    /* the journal has not stored the master's records yet */
    int attempt;        /* the attempt that runs by the application report; 0 = attempt 1 */
    int killed_after;   /* the report of this number says that the application was killed */
    int preempt[2];     /* boxes + 1 to preempt: by a strict contract, and by the other kind */
    const char *health; /* health report of n0, in the next answer */
    char detail[300];   /* why the last container ended */
    /* The changes of the list of avoided nodes in the last request that had any: "+n1" adds a node,
     * "-n1" removes it. */
    struct strv avoided;
    float progress;
    int n_stored;       /* calls of is_stored() by the back-end */
    int n_asked_before; /* calls of allocate at the registration */
    int want_n;         /* what world_until() waits for */
    const char *want_text;
    int64_t deadline;
    bool timed_out;
} * w;

/* cmocka's functions around each test: the first makes a back-end that has registered. */
int world_setup(void **state);
int world_teardown(void **state);
void world_open(uint32_t epoch);

void world_until(const char *text, int n); /* waits until the text has been said n times */
void world_pass(int ms);
/* Waits as long as a busy machine needs. */
#define WORLD_UNTIL(condition)                                                                     \
    do {                                                                                           \
        for (int i_ = 0; i_ < 60000 && !(condition); i_++)                                         \
            world_pass(1);                                                                         \
        assert_true(condition);                                                                    \
    } while (0)
void world_hurry(uint32_t times); /* divides pauses by this number; setup resets it */
void world_ask(uint32_t from, uint32_t n, uint64_t memory_mib); /* in role worker */
void world_grant(uint32_t slot);                                /* without a request */
void world_ends(int box, int status); /* reported by the ResourceManager */
void world_begin_finish(const char *state, const char *why);
void world_finish(const char *state, const char *why); /* waits until it is done */

#endif
