/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the progress of one job on standard error: on a terminal in place, otherwise a line at each
 * change. */
#ifndef TONY_CLIENT_SHOW_RENDER_H
#define TONY_CLIENT_SHOW_RENDER_H

#include <jansson.h>
#include <stdbool.h>

struct buf;
struct client;
struct render;

struct render *render_new(struct client *c, const char *application_id); /* NULL = no memory */
/* state: of the job; summary: docs/json.md; may be NULL. */
void render_update(struct render *r, const char *state, const json_t *summary);
/* Append "1 registered, 2 running" for an entry of `roles`, in the order of a task's states. */
void render_role(const json_t *role, struct buf *out);
/* Append "worker:1 ended with signal 9 at step 120: restarted, ..."; false = no restart. */
bool render_restart(const json_t *summary, struct buf *out);
/* Append "  step 120/1000, 3 m 05 s left" for a role; nothing if it has reported no progress. */
void render_steps(const json_t *role, struct buf *out);
/* Append "worker 2 to 4, ps 1 to 2" for `resize` or `last_resize`. */
void render_sizes(const json_t *resize, struct buf *out);
/* Append "worker 2 to 4: waits for its containers (1 of 2 are there)"; false = the job is not being
 * resized. */
bool render_resize(const json_t *summary, struct buf *out);
/* Append "worker 2 to 4: done"; false = no resize has ended. */
bool render_last_resize(const json_t *summary, struct buf *out);
/* Append "a resize costs this job about 14.0 s: save 3.0 s, start 11.0 s"; false = nothing was
 * measured. */
bool render_resize_cost(const json_t *summary, struct buf *out);
/* Is the job over in this state? */
bool render_is_final(const char *state);
/* Append ", at least 1 GB and 1 GPU": with this the waiting job may start. Nothing if that is all
 * that it needs. */
void render_least(const json_t *waiting, struct buf *out);
/* Why the job waits for the pool or pauses; "" = it does neither. */
void render_waiting(const json_t *summary, char *out, size_t n);
/* If a policy of the pool lets the job wait or has set its size (pool_policy_add()): append the
 * reason, and "changed by: ..." (nothing if that is not known). */
bool render_policy(const json_t *summary, struct buf *why, struct buf *change);
/* Show a state of the cluster while the job has no master, and why it waits ("" = not known). */
void render_state(struct render *r, const char *state, const char *why);
/* Write lines of the tasks to this terminal, above the progress, which is on the same terminal. */
void render_text(struct render *r, const char *p, size_t n, int fd);
struct sink;
/* Write lines to this sink, if the progress is not on a terminal. It is borrowed. */
void render_set_sink(struct render *r, struct sink *s);
/* Print a permanent line above the progress. */
void render_say(struct render *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Print delayed lines, remove the progress from the screen, and free r. NULL is fine. */
void render_free(struct render *r);

/* Print the verdict and the places on stdout, and the first cause with the last lines of its stderr
 * on stderr. logs, history: where they are; cause_log: the log of the task that is the cause; NULL
 * = not known. */
void render_verdict(struct client *c, const char *application_id, const char *logs,
                    const char *history, const char *cause_log, const json_t *summary);

#endif
