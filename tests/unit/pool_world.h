/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool as a program. Its keepers are the test program itself: PATH contains a link to it named
 * tony-executor, and main() calls world_other_program() first; see pool_keeper.h.
 */
#ifndef TONY_TESTS_UNIT_POOL_WORLD_H
#define TONY_TESTS_UNIT_POOL_WORLD_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/base.h"
#include "job/job.h"
#include "pool_keeper.h"
#include "proto/tony.pb-c.h"
#include "storage/paths.h"

struct conn;
struct loop;

enum { DEADLINE_MS = 60000 };

#define ASK(what) TONY__CLIENT_ASK__WHAT__##what

struct world {
    char dir[64];
    struct paths paths;
    struct loop *loop;
    struct conn *conn;
    pid_t pool;
    const char *conf[4];
    /* the last answer */
    int num; /* errno of a refusal */
    char text[512], hint[256];
    char id[APP_ID_MAX];
    json_t *json;
    char state[32], master[128];
    int exit_code;
    bool finished, closed;
    unsigned updates;
};

int world_setup(void **state);
int world_teardown(void **state);
/* If this process was started as the pool or as a keeper, runs it and returns its exit code; -1 =
 * this process is the test. */
int world_other_program(int argc, char **argv);

pid_t world_start_pool(struct world *w);
void world_open_pool(struct world *w); /* starts the pool and connects to it */
/* If this pool ended before a busy machine let the test connect, the next pool is used. */
void world_open_idle_pool(struct world *w);
void world_kill_pool(struct world *w);
void world_await_pool_end(struct world *w);

struct conn *world_dial(struct world *w);
void world_wait_word(struct world *w); /* waits for a frame */
void world_ask(struct world *w, int what, const char *id, bool force);
void world_ask_on(struct world *w, struct conn *c, int what, const char *id, bool force);
void world_send(struct world *w, const Tony__Frame *f); /* sends a frame and waits for the answer */
void world_send_submit(struct world *w, struct span text, bool owned);
/* Submits a job and copies its id to out; fails the test if the pool refuses the job. */
void world_submit(struct world *w, struct want j, char out[APP_ID_MAX]);

void world_tell_keeper(const struct world *w, const char *id, const char *word);
const json_t *world_find_job(const struct world *w, const char *id); /* in the last answer */
/* Waits until the pool reports this state for the job; "" = until it does not know the job. */
void world_await_state(struct world *w, const char *id, const char *state);
/* Number of keepers that were started for the job. */
unsigned world_count_lives(const struct world *w, const char *id);
pid_t world_keeper_pid(const struct world *w, const char *id); /* pid of the job's only keeper */
void world_check_verdict(const struct world *w, const char *id, enum job_state state, int code,
                         const char *part);
void world_pause_ms(int ms);

#endif
