/* SPDX-License-Identifier: Apache-2.0 */
/* The client's end of a stream into a task: exec, forward, cp (docs/streams.md). */
#ifndef TONY_CLIENT_STREAM_STREAM_H
#define TONY_CLIENT_STREAM_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "cluster/cluster.h"
#include "codec/stream.h"

struct client;
struct conn;
struct err;
typedef struct Tony__StreamRequest Tony__StreamRequest;

/* A job that is running, and how its master is reached. Many streams may be opened through it. */
struct stream_job {
    struct client *c;
    struct loop *loop;
    char id[APP_ID_MAX];
    struct cluster *cluster;
    struct cluster_report report; /* where its master is */
};
/* word: an application id, a number, or "last". Returns 0, or minus the exit code. */
int stream_job_open(struct client *c, const char *word, struct stream_job *out, struct err *e);
/* The same for a job whose cluster is open and whose whole id is known. */
int stream_job_of(struct client *c, struct cluster *k, const char *id, struct stream_job *out,
                  struct err *e);
void stream_job_done(struct stream_job *j);

struct stream;
struct stream_ops {
    /* The task's side has answered the request with SF_STARTED. */
    void (*on_started)(struct stream *s, void *arg);
    /* As stream_reader.on_frame, without SF_STARTED and SF_FAILED. */
    int (*on_frame)(enum stream_type type, struct span payload, void *arg);
    void (*on_drain)(struct stream *s, void *arg); /* everything was sent; may be NULL */
    /* Called once: the stream could not be opened, has failed, or its connection has ended. The
     * caller then calls stream_close(). Not called after stream_close(). */
    void (*on_end)(struct stream *s, const struct err *e, void *arg);
};

/* Open a stream to a task ("worker:3"), and send the request. Returns at once; the rest comes by
 * ops. what: for the master's log. 0, or minus the exit code: on_end() is not called then. */
int stream_open(struct stream_job *j, const char *task, const char *what,
                const Tony__StreamRequest *request, const struct stream_ops *ops, void *arg,
                struct stream **out, struct err *e);
int stream_send(struct stream *s, enum stream_type type, const void *p, size_t n);
int stream_send_bytes(struct stream *s, const void *p, size_t n); /* whole frames */
size_t stream_unsent(const struct stream *s);
void stream_pause(struct stream *s, bool pause);
void stream_close(struct stream *s); /* NULL is accepted */

#endif
