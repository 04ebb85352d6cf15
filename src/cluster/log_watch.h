/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a master for the output of tasks (proto/tony.proto, WatchLogs). It remembers the position up
 * to which each log was received, so that the next connection continues there.
 */
#ifndef TONY_CLUSTER_LOG_WATCH_H
#define TONY_CLUSTER_LOG_WATCH_H

#include "cluster/cluster.h"

struct conn;
typedef struct Tony__LogPiece Tony__LogPiece;

struct log_place {
    uint32_t slot, attempt, rank;
    bool is_stderr;
    int64_t offset;
    uint32_t file; /* as in LogPiece */
};

struct log_watch_wish {
    enum cluster_output which;
    const struct cluster_log_choice *chosen; /* of CLUSTER_OUTPUT_CHOSEN */
    size_t n_chosen;
    bool want_stdout, want_stderr;
    bool lossy;    /* the master may leave text out if a task writes faster than people read */
    int64_t rank;  /* -1 = all */
    int64_t lines; /* send only this many last lines of a log that has no place yet; -1 = all */
    int64_t since_ms;
};

struct log_places {
    VEC(struct log_place) v;
};

/* Send the request on an open connection to a master. 0 or -errno. */
int log_watch_send(struct conn *master, const struct log_watch_wish *w,
                   const struct log_places *places);
/* Take a piece: *out borrows from it. False: this text came before, or the piece makes no sense. */
bool log_watch_take(struct log_places *places, const Tony__LogPiece *p,
                    struct cluster_log_text *out);

#endif
