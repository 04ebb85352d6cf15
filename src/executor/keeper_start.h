/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a keeper: arguments, lock, GPUs, clean-up after earlier keepers, the socket. */
#ifndef TONY_EXECUTOR_KEEPER_START_H
#define TONY_EXECUTOR_KEEPER_START_H

#include <stdint.h>

struct err;
struct keeper;

/* 0, or the exit code (enum keeper_exit) with e set. */
int keeper_start(struct keeper *k, int argc, char **argv, struct err *e);
void keeper_start_done(struct keeper *k); /* frees memory */
/* Returns a descriptor that holds the lock of the GPU. -EWOULDBLOCK: another job has the lock. */
int keeper_lock_gpu(const struct keeper *k, uint32_t index, struct err *e);
int keeper_cleanup(const char *application_id, struct err *e);
/* Remove the control groups that the file dir_of_list/cgroups names, and the file. */
void keeper_remove_cgroups(const char *dir_of_list);

#endif
