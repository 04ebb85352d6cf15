/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jobs that this user has submitted with this TONY_HOME, and to which cluster: the file
 * `submitted` of TONY_HOME. So `last`, and the number of a job, mean the right job of any cluster.
 * Lines of words:
 *
 *     submitted <wall clock in ms> <cluster> <application id> <host> <place>
 *     ended <wall clock in ms> <application id> <state>
 *
 * <host> is the machine of the client: several machines may share a home. <place> says which
 * cluster of this kind it is, such as the address of the ResourceManager; "-" = there is only one.
 * A client writes the second line when the master tells it the verdict, because the cluster learns
 * of the end later.
 *
 * Writers hold the lock `submitted.lock`. A crash may leave a line without an end; readers pass
 * over lines that they do not understand. When the file reaches SUBMITTED_MAX bytes, the older half
 * of its lines is removed.
 */
#ifndef TONY_STORAGE_SUBMITTED_H
#define TONY_STORAGE_SUBMITTED_H

#include <stdbool.h>
#include <stdint.h>

#include "storage/paths.h"

struct err;

enum { SUBMITTED_MAX = 64 << 10, SUBMITTED_WORD_MAX = 256 };

struct submitted {
    int64_t at_ms;
    char cluster[32], id[APP_ID_MAX], place[SUBMITTED_WORD_MAX];
};

/* Append a job. It is not on disk before submitted_sync(). place: NULL = "-". 0; 1: the file is
 * new; -errno. */
int submitted_add(const struct paths *p, const char *cluster, const char *id, const char *place,
                  struct err *e);
int submitted_end(const struct paths *p, const char *id, const char *state,
                  struct err *e); /* 0 or -errno */
/* home: TONY_HOME. is_new: as submitted_add() says. It may be called on another thread. */
int submitted_sync(const char *home, bool is_new);

/* Find a job by its id, its number, or "last": the newest one that was submitted from this machine.
 * cluster: only of this one; NULL = of any. 0, -ENOENT, or another -errno. */
int submitted_find(const struct paths *p, const char *cluster, const char *word,
                   struct submitted *out);
/* The final state of a job, if a client has heard it. 0 or -ENOENT. */
int submitted_state(const struct paths *p, const char *id, char *out, size_t n);

#endif
