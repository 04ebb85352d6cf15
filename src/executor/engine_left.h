/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The containers of podman or docker that may be left after a kill.
 *
 * An engine removes its container when the command has ended (--rm). If the engine itself is killed
 * (by the kernel, since it is in the control group of the task; by the executor; or because its
 * executor was killed), it cannot: podman then keeps a dead container in its list, and docker lets
 * the container run on. So before an executor starts an engine, it writes the file
 *
 *   jobs/<id>/engines/<name of the container>        the path of the engine
 *
 * The executor removes the file only if the engine has exited by itself. For each file that stays,
 * the keeper calls `podman rm --force NAME` when the container has ended. If the keeper was killed,
 * `tony-executor --cleanup` removes these containers together with the other remains of the job.
 */
#ifndef TONY_EXECUTOR_ENGINE_LEFT_H
#define TONY_EXECUTOR_ENGINE_LEFT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/vec.h"

struct err;
struct keeper;

/* ---- the executor ---- */

/* The engine of this path will run the container of this name. */
int left_note(const char *job_dir, const char *name, const char *engine, struct err *e);
/* The engine has exited by itself. */
void left_forget(const char *job_dir, const char *name);

/* ---- the keeper ---- */

struct left {
    int64_t look_at_ms; /* when to look for files; INT64_MAX = no container has ended */
    pid_t pid;          /* the engine that removes containers; 0 = none runs */
    int64_t kill_at_ms; /* of the process pid */
    unsigned n_failed;  /* how often it failed for `names` in a row */
    struct strv names;  /* of the containers that it removes */
};

void left_look(struct left *l); /* a container has ended */
/* Start to remove what is left of containers that do not run. Returns true as long as an engine
 * removes them, or will be tried again. */
bool left_remove(struct keeper *k);
bool left_exited(struct keeper *k, pid_t pid, int status); /* was it the engine that removes? */
bool left_is_busy(const struct left *l);
void left_tick(struct left *l, int64_t now_ms);
int64_t left_deadline(const struct left *l);
void left_done(struct left *l);

/* ---- without a keeper ---- */

/* Remove what is left of all containers of the job. Blocks for LEFT_LIMIT_MS at most. */
void left_remove_all(const char *job_dir);

#endif
