/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool as a program, with keepers that are the test program itself: PATH leads to it under the
 * name tony-executor, and main() asks world_other_program() first; see pool_keeper.h.
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
    int num; /* of a refusal */
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
/* As the pool or a keeper: an exit code; -1 = it is the test that is wanted. */
int world_other_program(int argc, char **argv);

pid_t world_start_pool(struct world *w);
void world_open_pool(struct world *w); /* starts and dials it */
/* One that had waited long enough before a busy machine let us dial is followed by the next. */
void world_open_idle_pool(struct world *w);
void world_kill_pool(struct world *w);
void world_await_pool_end(struct world *w);

struct conn *world_dial(struct world *w);
void world_wait_word(struct world *w); /* until something has come */
void world_ask(struct world *w, int what, const char *id, bool force);
void world_ask_on(struct world *w, struct conn *c, int what, const char *id, bool force);
void world_send(struct world *w, const Tony__Frame *f); /* and wait for the answer */
void world_send_submit(struct world *w, struct span text, bool owned);
/* The id goes to out; fails when it is refused. */
void world_submit(struct world *w, struct want j, char out[APP_ID_MAX]);

void world_tell_keeper(const struct world *w, const char *id, const char *word);
const json_t *world_find_job(const struct world *w, const char *id); /* in the last answer */
/* Until the pool says so of the job; "" = that it is not there. */
void world_await_state(struct world *w, const char *id, const char *state);
unsigned world_count_lives(const struct world *w, const char *id); /* how many keepers it has had */
pid_t world_keeper_pid(const struct world *w, const char *id);     /* of its only one so far */
void world_check_verdict(const struct world *w, const char *id, enum job_state state, int code,
                         const char *part);
void world_pause_ms(int ms);

#endif
