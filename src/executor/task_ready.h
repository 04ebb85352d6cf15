/*
 * Whether a task is ready, seen from outside: something listens on its port, or a file is there
 * (tony.<role>.ready, docs/job-files.md). Only where others wait for it, and only until it is.
 */
#ifndef TONY_EXECUTOR_TASK_READY_H
#define TONY_EXECUTOR_TASK_READY_H

#include <stdbool.h>
#include <stdint.h>

struct task_ready;

/* how: "port", "port:N", "file:PATH". NULL = nothing of it can be seen from outside, or no memory.
 */
struct task_ready *task_ready_new(const char *how);
void task_ready_free(struct task_ready *w);
/* An attempt begins. port: its own; host: where others find it, besides the loopback; may be "".
 * after_ms: not to be looked at before, and at most so often. */
void task_ready_begin(struct task_ready *w, const char *workdir, uint16_t port, const char *host,
                      int64_t now_ms, uint32_t after_ms);
/* Look now. True once, when it is. */
bool task_ready_look(struct task_ready *w, int64_t now_ms);
int64_t task_ready_due(const struct task_ready *w); /* INT64_MAX = it is ready */
/* To be polled for reading; -1 = none. task_ready_event() when it is readable. */
int task_ready_fd(const struct task_ready *w);
void task_ready_event(struct task_ready *w, int64_t now_ms);

#endif
