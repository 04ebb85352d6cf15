/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper of a job and the pool of a home as processes, found without their sockets.
 *
 * The sockets may be missing although the processes live: the system removes the runtime directory
 * at the end of a user's last session, and programs that clean /tmp remove old sockets. So before
 * anything of a job is removed, its keeper must be known to be dead, and a process that lives can
 * be asked to make its socket again.
 */
#ifndef TONY_STORAGE_ALIVE_H
#define TONY_STORAGE_ALIVE_H

#include <stdbool.h>
#include <sys/types.h>

struct paths;

/* Write this process into its lock file, for alive_lock_holder(). A failure is ignored. */
void alive_sign_lock(int lock_fd);
/* Describe the process that holds the lock, for a message: "process 17 of host a". If the file does
 * not name it: "another process". */
void alive_lock_holder(const char *lock_path, char *out, unsigned long size);
/* Does another machine hold the lock? Then TONY_HOME is on a file system that both mount. */
bool alive_is_elsewhere(const char *lock_path);

/* Is it a process that has not ended? A zombie has. */
bool alive_process(pid_t pid);
/* Does a process of this user run as the keeper of the job? Reads all of /proc. */
bool alive_keeper(const char *application_id);
/* Ask the keeper of the job, or the pool, to make its sockets again if they are missing; the keeper
 * passes it on to the master. Returns before that is done. false: there is no such process. */
bool alive_keeper_renew(const char *application_id);
bool alive_pool_renew(const struct paths *p);

#endif
