/*
 * The task's own side of a container: what its code says on the socket that TONY_TASK_SOCKET names
 * (docs/task-socket.md), and what is seen of it from outside, in its logs and in the directory of
 * its checkpoints. Nothing of it is needed to run a task, and nothing of it can hold the executor
 * up: lines, connections and bytes a second are bounded, and who does not read is not written to.
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
    TASK_SAVED_MAX = 6, /* as many as the master knows of one task */
};

/* A checkpoint that the task told of, or that was found. */
struct task_saved {
    char *path; /* NULL = none */
    uint64_t step;
    uint32_t parts, generation, attempt;
    bool told; /* the master, on this connection */
};

struct task_conn {
    int fd;    /* -1 = none */
    bool told; /* that it should stop */
    struct buf in;
};

struct task_side {
    int listen_fd;            /* -1 = there is none */
    char name[TASK_NAME_MAX]; /* "@..." */
    struct task_conn conns[TASK_CONNS_MAX];
    unsigned n_conns;
    int64_t window_ms; /* when the bytes below are allowed anew */
    uint32_t left;     /* bytes that are still read before */
    unsigned refused;  /* strangers and others that were turned away in this window */

    /* what the master is to know */
    uint64_t step, total;
    struct task_saved saved[TASK_SAVED_MAX]; /* a ring: what all tasks share need not be the last */
    unsigned n_saved;                        /* ever */
    char *tensorboard;
    bool ready; /* this attempt */
    bool new_progress, new_checkpoint, new_tensorboard, new_ready;
    int64_t sent_ms;

    bool stop; /* it was told, or is being told, to stop */
    uint32_t stop_ms;

    bool drives; /* a file of its own is looked for: driver.h */
    int64_t drive_due_ms;
    char *plan;
    uint16_t plan_port;

    struct task_ready *board; /* of TensorBoard's port; NULL = the task has none */
    uint16_t board_port;
    struct task_ready *waited; /* NULL = nobody waits, or only for its word */
    struct task_watch *watch;  /* NULL = there is nothing to watch */
};

void task_side_init(struct task_side *t);
/* Before the first attempt's environment is built. Without a socket the name is empty. */
void task_side_open(struct executor *x);
/* An attempt begins: what the last one said is no longer so; but its checkpoint still lies there.
 */
void task_side_begin(struct executor *x);
/* It was given this port for TensorBoard: tell the master where it is, when something is there. */
void task_side_board(struct executor *x, uint16_t port);
/* It has ended: read what it said last, and tell the master. */
void task_side_end(struct executor *x);
/* A new connection to a master: it may not have heard. */
void task_side_again(struct executor *x);
/* Tell whoever listens that the task should end within so long. Is there anybody? */
bool task_side_stop(struct executor *x, uint32_t within_ms);

size_t task_side_poll(const struct executor *x, struct pollfd out[TASK_POLL_MAX]);
void task_side_ready(struct executor *x, const struct pollfd *p, size_t n);
int64_t task_side_deadline(const struct executor *x);
void task_side_tick(struct executor *x, int64_t now_ms);

/* ---- task_watch.c ---- */

/* What of the role says that there is something to be watched; NULL = nothing. */
struct task_watch *task_watch_new(const char *progress, const char *dir, const char *pattern,
                                  const char *marker);
void task_watch_free(struct task_watch *w);
void task_watch_begin(struct task_watch *w);
/* Look at what was written to the two logs since the last time. True: *step, *total changed. */
bool task_watch_logs(struct task_watch *w, int out_fd, int err_fd, uint64_t *step, uint64_t *total);
/* The complete checkpoints that were not seen before, of the newest TASK_SAVED_MAX, the oldest
 * first; their number. The paths are the caller's. */
size_t task_watch_checkpoints(struct task_watch *w, const char *workdir,
                              struct task_saved out[TASK_SAVED_MAX]);
int64_t task_watch_due(const struct task_watch *w); /* INT64_MAX = never */
void task_watch_done(struct task_watch *w, int64_t now_ms);

#endif
