/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The information that the executor gets from the task: lines that the task's program sends on the
 * socket TONY_TASK_SOCKET (docs/task-socket.md), its logs, and the directory of its checkpoints.
 *
 * A task can run without using any of it. A task cannot block the executor with it: lines,
 * connections and bytes per second are limited, and answers that the task does not read are
 * dropped.
 */
#ifndef TONY_EXECUTOR_TASK_SIDE_H
#define TONY_EXECUTOR_TASK_SIDE_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct executor;
struct task_ready;
struct task_watch;

enum {
    TASK_CONNS_MAX = 8,
    TASK_POLL_MAX = TASK_CONNS_MAX + 2,
    TASK_NAME_MAX = 24,
    TASK_SAVED_MAX = 6, /* the core keeps the same number for each task */
};

/* A checkpoint that the task has reported, or that the executor has found. */
struct task_saved {
    char *path; /* NULL = none */
    uint64_t step;
    uint32_t parts, generation, attempt;
    bool reported; /* to the master, on this connection */
};

struct task_conn {
    int fd;         /* -1 = none */
    bool stop_sent; /* the task was told to stop, on this connection */
    struct buf in;
};

struct task_side {
    int listen_fd;            /* -1 = there is none */
    char name[TASK_NAME_MAX]; /* "@..." */
    struct task_conn conns[TASK_CONNS_MAX];
    unsigned n_conns;
    int64_t window_ms; /* when `left` and `refused` are reset */
    uint32_t left;     /* bytes that the executor still reads before window_ms */
    unsigned refused;  /* connections of other users, before window_ms */

    /* for the master */
    uint64_t step, total;
    struct task_saved
        saved[TASK_SAVED_MAX]; /* a ring of the newest: other tasks may have only older ones */
    unsigned n_saved;          /* in this attempt, also those not in the ring any more */
    char *tensorboard;
    bool ready; /* this attempt is ready */
    bool new_progress, new_checkpoint, new_tensorboard, new_ready;
    int64_t sent_ms;

    bool stop; /* the task should stop within stop_ms */
    uint32_t stop_ms;

    bool drives; /* the task is a driver: look for its plan file (driver.h) */
    int64_t drive_due_ms;
    char *plan;
    uint16_t plan_port;

    struct task_ready *board; /* finds TensorBoard on its port; NULL = the task has no such port */
    uint16_t board_port;
    struct task_ready *waited; /* NULL = nothing to look for: docs/job-files.md, ready */
    struct task_watch *watch;  /* NULL = there is nothing to watch */
};

void task_side_init(struct task_side *t);
void task_side_close(struct task_side *t); /* closes its descriptors */
/* Make the socket. Call it before the environment of the first attempt is built. If it fails, the
 * name is empty. */
void task_side_open(struct executor *x);
/* An attempt begins: forget what the last one has reported. Its checkpoints were sent to the
 * master, because only a connected master starts this attempt. */
void task_side_begin(struct executor *x);
/* The task got this port for TensorBoard. Report the URL when a program listens there. */
void task_side_board(struct executor *x, uint16_t port);
/* The attempt has ended: read its last lines and report them. */
void task_side_end(struct executor *x);
/* The executor has a new connection to the master: report everything again. */
void task_side_again(struct executor *x);
/* Tell the task to stop within within_ms. false: the task has no connection to the socket. */
bool task_side_stop(struct executor *x, uint32_t within_ms);

size_t task_side_poll(const struct executor *x, struct pollfd out[TASK_POLL_MAX]);
void task_side_ready(struct executor *x, const struct pollfd *p, size_t n);
int64_t task_side_deadline(const struct executor *x);
void task_side_tick(struct executor *x, int64_t now_ms);

/* ---- task_watch.c ---- */

/* Watch for progress and checkpoints as the role says. NULL = no memory. */
struct task_watch *task_watch_new(const char *progress, const char *dir, const char *pattern,
                                  const char *marker);
void task_watch_free(struct task_watch *w);
/* An attempt begins. first: it is the first one of the task. If not, the present checkpoints were
 * saved by earlier attempts, and are not reported again. */
void task_watch_begin(struct task_watch *w, const char *workdir, bool first);
/* Read the new text in both logs. true: *step or *total has changed. */
bool task_watch_logs(struct task_watch *w, int out_fd, int err_fd, uint64_t *step, uint64_t *total);
/* Find the new complete checkpoints among the newest TASK_SAVED_MAX. Returns their number; the
 * oldest is the first. The caller frees the paths. */
size_t task_watch_checkpoints(struct task_watch *w, const char *workdir,
                              struct task_saved out[TASK_SAVED_MAX]);
int64_t task_watch_due(const struct task_watch *w); /* when to look next */
void task_watch_done(struct task_watch *w, int64_t now_ms);

#endif
