/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims on the GPUs of a machine, so that the pools of two users, or of two homes of one user, do
 * not give out the same device (decision 0024).
 *
 * A claim is a file <dir>/tony-gpu-<index>-<random> that belongs to the user who has claimed the
 * device, that only this user can open, and that a process holds locked. The file is locked before
 * it gets that name. So no other user can make, hold or take the claim of somebody: they see only
 * that it exists, and in /proc/locks that it is locked.
 *
 * Two processes may claim a device at the same time. Each first makes its own claim, and then looks
 * for others. So at least one of them sees the other, withdraws and tries again a little later.
 *
 * The directory is /tmp, or that of TONY_GPU_LOCKS. Every user who may make files in it can claim
 * devices.
 */
#ifndef TONY_STORAGE_GPULOCK_H
#define TONY_STORAGE_GPULOCK_H

#include <stdbool.h>
#include <stdint.h>

struct buf;
struct err;

/* TONY_GPU_LOCKS of the environment, or "/tmp". */
const char *gpulock_dir(void);
/* Claim a device. Returns a descriptor, which holds the claim as long as it, or a copy of it that a
 * child has inherited, is open. -EWOULDBLOCK: another process claims the device; e names its
 * user, pid and program. */
int gpulock_take(const char *dir, uint32_t index, struct err *e);
/* Withdraw the claim, also if children have inherited the descriptor, and set *fd to -1. */
void gpulock_release(int *fd);
/* Does any process claim the device? */
bool gpulock_is_held(const char *dir, uint32_t index);
/* The same. If a process claims it, e has the sentence of gpulock_take(). */
bool gpulock_holder(const char *dir, uint32_t index, struct err *e);
/* Does any process claim the device? Then append "user 1000, process 17, tony-executor"; without the
 * user if it is the own one, and without what is not known. */
bool gpulock_describe(const char *dir, uint32_t index, struct buf *out);
/* Set the times of all claims of this user to now: programs that clean /tmp remove old files. */
void gpulock_refresh(const char *dir);

#endif
