/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a master for what tasks write (proto/tony.proto, WatchLogs), and remembers how far the text
 * has come, so that another connection continues there.
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
    bool lossy;    /* text that comes faster than people read may be left out */
    int64_t rank;  /* -1 = all */
    int64_t lines; /* of a log without a place: only the last lines; -1 = all */
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
