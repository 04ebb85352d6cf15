/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to masters and to the pool: asks a question and waits for the answer. */
#ifndef TONY_CLUSTER_LINK_H
#define TONY_CLUSTER_LINK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "cluster/cluster.h"

struct conn;
typedef struct Tony__Frame Tony__Frame;

enum {
    ANSWER_MS = 30000, /* timeout of an answer of a pool or master */
};

/* Send the hello, the first frame of every connection of a client. */
int link_hello(struct cluster_host *h, struct conn *conn);
/* Connect to a socket of the pool or of a master, and send the hello. *out has no ops yet: call
 * conn_set_arg(). */
int link_dial(struct cluster_host *h, const char *socket_path, struct conn **out, struct err *e);

struct answer {
    int64_t wait_ms;    /* set by the caller: the timeout; 0 = ANSWER_MS */
    bool wait_is_total; /* set by the caller: wait_ms is for the whole answer, not for each part */
    size_t max;         /* set by the caller: of json; 0 = JOB_STATUS_MAX */
    struct buf json;    /* of Answer and JobUpdate */
    char *application_id, *job_dir; /* of Submitted */
    bool refused; /* *e is the refusal of the other side, not an error of the connection */
};
void answer_done(struct answer *a);

/* Parse the text of a document. The caller frees *out. -EBADMSG: it is damaged. */
int status_parse(struct span text, json_t **out, struct err *e);

/* Send a frame, and wait for one Answer, Submitted, JobUpdate or Refused. After success or a
 * refusal the conn stays open, without ops. After another error it is closed and *conn is NULL. */
int link_ask(struct cluster_host *h, struct conn **conn, const Tony__Frame *ask, struct answer *out,
             struct err *e);

/* Does this error mean that the other process died? Then its successor can be asked. */
bool link_broke(int rc);

/* Send one ClientAsk, with or without waiting for the answer. what: a Tony__ClientAsk__What. */
int link_send_stop(struct conn *conn, const char *application_id, const char *reason,
                   bool checkpoint);
int link_send_ask(struct conn *conn, int what, const char *application_id, const char *reason);
int link_ask_what(struct cluster_host *h, struct conn **conn, int what, const char *application_id,
                  bool force, struct answer *out, struct err *e);

#endif
