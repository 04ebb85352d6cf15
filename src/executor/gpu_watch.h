/* SPDX-License-Identifier: Apache-2.0 */
/* Runs `tony-gpu --watch` for the GPUs of a container, and reads what it prints. */
#ifndef TONY_EXECUTOR_GPU_WATCH_H
#define TONY_EXECUTOR_GPU_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "metrics/metrics.h"

struct err;

struct gpu_watch;
/* program: the path of tony-gpu. gpus: "0,2"; "" = all that the process can see. NULL: e says why.
 */
struct gpu_watch *gpu_watch_new(const char *program, const char *gpus, uint32_t interval_ms,
                                struct err *e);
/* Kill it, unless its end was noted. The caller reaps it. */
void gpu_watch_free(struct gpu_watch *g);
void gpu_watch_note_end(struct gpu_watch *g); /* the caller has reaped it */
int gpu_watch_fd(const struct gpu_watch *g);
pid_t gpu_watch_pid(const struct gpu_watch *g);
/* Read what it has printed, and report each figure. false: it has ended. */
bool gpu_watch_read(struct gpu_watch *g,
                    void (*figure)(void *arg, unsigned gpu, enum metric_gpu which, double value),
                    void *arg);

#endif
