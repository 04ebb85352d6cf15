/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends what the task writes to clients that watch it (proto/tony.proto, WatchLogs). The executor
 * reads the log files; the task and its files do not know about it.
 *
 * Each watch has a window: the bytes that may be sent until the master allows more. A lossy watch
 * sends at most `piece_max` bytes of each log in each interval, the newest ones, and counts the
 * rest. So a task may write any amount: the cost is that of reading it once, to count its lines.
 */
#ifndef TONY_EXECUTOR_LOG_WATCH_H
#define TONY_EXECUTOR_LOG_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"
#include "proto/tony.pb-c.h"
#include "storage/log_mark.h"

struct executor;

struct watched_log {
    uint32_t rank;
    bool is_stderr;
    int fd;                          /* -1 = not open: the file may not exist yet */
    int64_t at;                      /* everything before was sent or left out */
    uint32_t file;                   /* as in LogPiece */
    struct log_mark mark;            /* of `at` */
    int64_t looked_ms;               /* when the executor looked for another file of this name */
    uint64_t left_bytes, left_lines; /* left out since the last piece */
    bool more_lines;                 /* some of these bytes were not read, and not counted */
    bool cut;                        /* `at` is inside a line whose beginning was left out */
};

struct log_watch {
    Tony__TailLogs *ask; /* a copy */
    uint64_t window;
    uint32_t attempt; /* the attempt whose logs these are; 0 = none yet */
    bool later;       /* not the attempt that ran when the watch began: its logs are sent whole */
    VEC(struct watched_log) logs;
    int64_t due_ms; /* INT64_MAX = nothing more can come from this attempt */
};

struct log_watches {
    VEC(struct log_watch) v;
};

void log_watches_ask(struct executor *x, const Tony__TailLogs *m);
void log_watches_more(struct executor *x, const Tony__MoreLogs *m);
void log_watches_clear(struct executor *x); /* the master asks again on each connection */
void log_watches_begin(struct executor *x); /* an attempt has begun */
void log_watches_end(struct executor *x);   /* all its processes are dead: send the rest */
int64_t log_watches_deadline(const struct executor *x);
void log_watches_tick(struct executor *x, int64_t now_ms);

#endif
