/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to the pool and to masters: connects, starts the pool, asks a question and waits for
 * the answer. */
#ifndef TONY_CLUSTER_LINK_H
#define TONY_CLUSTER_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct client;
struct conn;
struct conn_ops;
typedef struct Tony__Frame Tony__Frame;

enum {
    POOL_START_MS = 10000, /* for a pool to start, until its ready byte */
    ANSWER_MS = 30000,     /* timeout of an answer of a pool or master */
};

/* Connect to the pool, and send the hello. If no pool runs: with start, start one and connect;
 * otherwise -ENOENT or -ECONNREFUSED. *out has no ops yet: call conn_set_arg(). */
int link_dial_pool(struct client *c, bool start, struct conn **out, struct err *e);
/* Send the hello, the first frame of every connection of a client. */
int link_hello(struct client *c, struct conn *conn);
/* Connect to the master of a job of this home. If the system has removed the job's sockets, ask the
 * keeper to make them again and wait for them. */
int link_dial_master(struct client *c, const char *application_id, struct conn **out,
                     struct err *e);

struct answer {
    int64_t wait_ms;    /* set by the caller: the timeout; 0 = ANSWER_MS */
    bool wait_is_total; /* set by the caller: wait_ms is for the whole answer, not for each part */
    size_t max;         /* set by the caller: of json; 0 = JOB_STATUS_MAX */
    struct buf json;    /* of Answer and JobUpdate */
    char *application_id, *job_dir; /* of Submitted */
    bool refused; /* *e is the refusal of the other side, not an error of the connection */
};
void answer_done(struct answer *a);

/* Send a frame, and wait for one Answer, Submitted, JobUpdate or Refused. After success or a
 * refusal the conn stays open, without ops. After another error it is closed and *conn is NULL. */
int link_ask(struct client *c, struct conn **conn, const Tony__Frame *ask, struct answer *out,
             struct err *e);

/* Does this error mean that the other process died? Then its successor can be asked. */
bool link_broke(int rc);

/* Send one ClientAsk, with or without waiting for the answer. what: a Tony__ClientAsk__What. */
int link_send_stop(struct conn *conn, const char *application_id, const char *reason,
                   bool checkpoint);
int link_send_ask(struct conn *conn, int what, const char *application_id, const char *reason);
int link_ask_what(struct client *c, struct conn **conn, int what, const char *application_id,
                  bool force, struct answer *out, struct err *e);

/* "user@host pid 4711": names this client in logs and messages. */
enum { LINK_CLIENT_MAX = 128 };
void link_describe_client(char out[static LINK_CLIENT_MAX]);

/* Ask the pool. If the pool dies, ask the next one. Use this function only for requests that may be
 * repeated. start: start a pool if none runs; otherwise -ENOENT or -ECONNREFUSED. */
int link_ask_pool(struct client *c, bool start, int what, const char *application_id, bool force,
                  struct answer *out, struct err *e);

#endif
