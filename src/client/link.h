/*
 * Connections to the pool and to masters: dialling, starting the pool, one question with one
 * answer.
 */
#ifndef TONY_CLIENT_LINK_H
#define TONY_CLIENT_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct client;
struct conn;
struct conn_ops;
typedef struct Tony__Frame Tony__Frame;

enum {
    POOL_START_MS = 10000, /* the pool's start, from nothing to its ready byte */
    ANSWER_MS = 30000,     /* a pool or master that says nothing for so long is stuck */
};

/* Dial the pool; when nobody listens and start is set, start it and dial again. *out has no ops
 * yet: conn_set_arg(). The hello has been sent. -ENOENT or -ECONNREFUSED when it does not run and
 * start is not set. */
int link_dial_pool(struct client *c, bool start, struct conn **out, struct err *e);
/* The first frame of every connection of ours. */
int link_hello(struct client *c, struct conn *conn);
/* Dial a master's socket. */
int link_dial_master(struct client *c, const char *socket_path, struct conn **out, struct err *e);

struct answer {
    int64_t wait_ms;                /* the caller's: give up after so long; 0 = ANSWER_MS */
    struct buf json;                /* of Answer and JobUpdate */
    char *application_id, *job_dir; /* of Submitted */
    bool refused; /* *e is what the other side said, not what happened to the connection */
};
void answer_done(struct answer *a);

/* Send and wait for one Answer, Submitted, JobUpdate or Refused. The conn stays open on success and
 * on refusal, without ops; else it is closed and *conn is NULL. */
int link_ask(struct client *c, struct conn **conn, const Tony__Frame *ask, struct answer *out,
             struct err *e);

/* Did the other side go away, so that asking its successor makes sense? */
bool link_broke(int rc);

/* One ClientAsk: sent and not waited for, or with its answer. what: a Tony__ClientAsk__What. */
int link_send_stop(struct conn *conn, const char *application_id, const char *reason,
                   bool checkpoint);
int link_send_ask(struct conn *conn, int what, const char *application_id, const char *reason);
int link_ask_what(struct client *c, struct conn **conn, int what, const char *application_id,
                  bool force, struct answer *out, struct err *e);

/* The same to the pool, for questions that can be asked twice: a pool that goes away is asked again
 * when it is back. start: also when none runs; else -ENOENT or -ECONNREFUSED. */
int link_ask_pool(struct client *c, bool start, int what, const char *application_id, bool force,
                  struct answer *out, struct err *e);

#endif
