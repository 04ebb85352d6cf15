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
 *
 * The service of docker may hang, or may not run. So all waiting for an engine ends after
 * LEFT_LIMIT_MS: the keeper then lets the task and the job end. The files move with the job to the
 * history, where `tony status` names the containers. pool/ended/<id> makes the pool call
 * `--cleanup`, which tries again: at the end of the job, when a pool starts, and once an hour.
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
    int64_t kill_at_ms; /* of the process pid: LEFT_LIMIT_MS after the first try for `names` */
    unsigned n_failed;  /* how often it failed for `names` in a row */
    bool timed_out;     /* kill_at_ms has come, and the process pid was killed */
    bool gave_up;       /* the last `names` could not be removed: nothing waits for an engine now */
    struct strv names;  /* of the containers that it removes */
};

void left_look(struct left *l); /* a container has ended */
/* Start to remove what is left of containers that do not run. Returns left_holds(). */
bool left_remove(struct keeper *k);
bool left_exited(struct keeper *k, pid_t pid, int status); /* was it the engine that removes? */
/* Should the end of a task and of the job wait? Only while an engine removes containers or will be
 * tried again, and has not failed before. */
bool left_holds(const struct left *l);
void left_tick(struct left *l, int64_t now_ms);
int64_t left_deadline(const struct left *l);
/* The job has ended: kill the engine that removes containers, if one still runs. */
void left_stop(struct left *l);
void left_done(struct left *l);

/* ---- without a keeper ---- */

/* Are containers recorded in this directory, jobs/<id> or history/<id>? */
bool left_any(const char *job_dir);
/* Remove what is left of all containers of the job. Blocks for LEFT_LIMIT_MS at most. Returns true
 * if none is left. */
bool left_remove_all(const char *job_dir);

#endif
