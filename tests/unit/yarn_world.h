/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scripted ResourceManager and two NodeManagers, "n0" and "n1", below the YARN back-end, at the
 * level of the calls of hadoop/yarn.h: each call is answered a moment later by what the world says.
 * Containers are given to the nodes in turn.
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
    K_REGISTER,
    K_ALLOCATE,
    K_FINISH,
    K_START,
    K_STOP,
    K_STATUS,
    K_COUNT
};
enum { BOXES_MAX = 300 };

struct rpc_client { /* of the test, in place of the real one */
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
    struct buf said; /* events, in order */
    struct strv ids; /* of what was granted */

    bool want[BOXES_MAX], grants, launches;
    uint32_t
        far_slot; /* the one that is asked for of those that `want` has no room for; 0 = none */
    int granted_gpus;
    int n_calls[K_COUNT], n_answered[K_COUNT], n_asks, n_racks;
    int32_t id;
    struct fake_box boxes[BOXES_MAX];
    int n_boxes, told /* granted, up to */;
    int complete[64], n_complete;
    struct {
        enum rpc_fault kind;
        const char *class_name, *line;
        bool maybe_done;
    } fail[K_COUNT]; /* the next call of the kind */
    struct {
        const char *class_name, *message;
    } refuse;         /* of the next container started */
    bool silent_node; /* n1 answers nothing */
    bool holds;       /* the ResourceManager does not answer an allocate yet */
    bool roll;        /* a new token with each answer */
    int finish_after;
    char env[2000], command[200], diagnostics[100], page[100];
    size_t n_tokens, n_resources;
    bool finished;
    bool second; /* the master is another's successor: it gets kept[] and the ends in complete[] */
    bool not_stored;
    int attempt;         /* that runs now, by the report; 0 = 1 */
    int killed_after;    /* reports */
    int preempt[2];      /* boxes + 1 that are to go: in a strict contract, and in the other kind */
    const char *health;  /* of n0, in the next answer */
    char detail[300];    /* of the last end */
    struct strv avoided; /* "+n1", "-n1": of the last request that had any */
    float progress;
    int n_stored;       /* questions */
    int n_asked_before; /* allocates, when it was registered */
    int want_n;         /* of `said`, for until() */
    const char *want_text;
    int64_t deadline;
    bool timed_out;
} * w;

/* A master's back-end that has registered, and what is left of it cleared away: of each test. */
int world_setup(void **state);
int world_teardown(void **state);
void world_open(uint32_t epoch);

void world_until(const char *text, int n); /* it was said n times */
void world_pass(int ms);
/* However busy the machine is. */
#define WORLD_UNTIL(condition)                                                                     \
    do {                                                                                           \
        for (int i_ = 0; i_ < 60000 && !(condition); i_++)                                         \
            world_pass(1);                                                                         \
        assert_true(condition);                                                                    \
    } while (0)
void world_hurry(uint32_t times); /* pauses are divided by it; reset by setup */
void world_ask(uint32_t from, uint32_t n, uint64_t memory_mib); /* of role worker */
void world_grant(uint32_t slot);                                /* unasked */
void world_ends(int box, int status);                           /* the ResourceManager says so */
void world_begin_finish(const char *state, const char *why);
void world_finish(const char *state, const char *why); /* until it is done */

#endif
