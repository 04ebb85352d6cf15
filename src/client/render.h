/*
 * Progress of one job for people, on standard error: in place on a terminal, else a line at each
 * change.
 */
#ifndef TONY_CLIENT_RENDER_H
#define TONY_CLIENT_RENDER_H

#include <jansson.h>
#include <stdbool.h>

struct buf;
struct client;
struct render;

struct render *render_new(struct client *c, const char *application_id); /* NULL = no memory */
/* state: of the job; summary: docs/json.md; may be NULL. */
void render_update(struct render *r, const char *state, const json_t *summary);
/* Append "1 registered, 2 running" of an entry of `roles`, in the order of a task's life. */
void render_role(const json_t *role, struct buf *out);
/* "  step 120/1000, 3 m 05 s left" of a role; nothing when it told of none. */
/* "worker:1 ended with signal 9 at step 120: restarted, ..."; false = nothing began again. */
bool render_restart(const json_t *summary, struct buf *out);
void render_steps(const json_t *role, struct buf *out);
/* Why the job waits for the pool or pauses, in words; "" = it does neither. */
void render_waiting(const json_t *summary, char *out, size_t n);
/* A state that is not the job's own yet (YARN's), and why it waits; why may be "". */
void render_state(struct render *r, const char *state, const char *why);
/* A line that stays, above the progress. */
void render_say(struct render *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Print what is still held back, take the progress off the screen, and free. NULL is fine. */
void render_free(struct render *r);

/* The same for a job that lies elsewhere: where its logs and its history are, and the log of the
 * task that is the cause; NULL = not known. */
void render_verdict_at(struct client *c, const char *application_id, const char *logs,
                       const char *history, const char *cause_log, const json_t *summary);
/* The end: verdict and places on stdout, the first cause with the last lines of its stderr on
 * stderr. dir: the job's, as it will lie. */
void render_verdict(struct client *c, const char *application_id, const char *dir,
                    const json_t *summary);

#endif
