/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out from outside whether a task is ready: a program listens on its port, or a file exists
 * (tony.<role>.ready, docs/job-files.md). Used only if other tasks wait for it, and until it is
 * ready. */
#ifndef TONY_EXECUTOR_TASK_READY_H
#define TONY_EXECUTOR_TASK_READY_H

#include <stdbool.h>
#include <stdint.h>

struct task_ready;

/* how: "port", "port:N", "file:PATH". NULL = another text, or no memory. */
struct task_ready *task_ready_new(const char *how);
void task_ready_free(struct task_ready *w);
/* An attempt begins. port: of the task. host: its address besides the loopback; may be "".
 * after_ms: time until the first look, and the shortest pause between two looks. */
void task_ready_begin(struct task_ready *w, const char *workdir, uint16_t port, const char *host,
                      int64_t now_ms, uint32_t after_ms);
/* Look now. Returns true once: when the task has become ready. */
bool task_ready_check(struct task_ready *w, int64_t now_ms);
/* When to call task_ready_check() next; INT64_MAX = the task is ready. */
int64_t task_ready_due(const struct task_ready *w);
/* The caller polls this descriptor (-1 = none) and calls task_ready_event() when it is readable. */
int task_ready_fd(const struct task_ready *w);
void task_ready_event(struct task_ready *w, int64_t now_ms);

#endif
