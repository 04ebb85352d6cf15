/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The paths of all files of tony, and the directories that hold them.
 *
 * $TONY_HOME (default ~/.tony):
 *
 *   pool/                            files of the pool:
 *     start                          start time of the "cluster" in ms, a part of application ids
 *     next                           the number of the latest job
 *     runtime                        the path of the runtime directory
 *     locks/pool                     the lock of the pool
 *     locks/<job number>             the lock of a live job, held by its keeper
 *     pool.log
 *     tidied                         its time: when tony-pool --tidy has last ended,
 *                                    which a client of a cluster without pool starts
 *   jobs/<application id>/           one for each live job, mode 0700
 *     job.conf key journal exits master.log keeper.log
 *     containers/<container id>/     working directory of a container
 *     logs/<role>-<index>/<attempt>/ stdout, stderr, executor.log
 *   store/                           shipped content, named by its digest (store.h)
 *   programs/                        copies of tony's programs for the nodes of a cluster
 *                                    (programs.h)
 *   history/<application id>/        one for each finished job, moved here by a rename
 *
 * The runtime directory holds only sockets. Its path is short, since a socket's path has at most
 * 107 bytes: $XDG_RUNTIME_DIR/tony/<hash>/ or /tmp/tony-<uid>/<hash>/. <hash> is 12 hex digits, a
 * hash of the real path of TONY_HOME. The directory has mode 0700 and belongs to the user. Its path
 * is recorded in pool/runtime, so that programs with different environments find the same sockets.
 * It holds:
 *
 *   pool.sock
 *   <job number>.k .m                socket of the keeper, socket of the master
 *
 * The system may remove the runtime directory while jobs run: at the end of the user's last
 * session, or because /tmp is cleaned. Then each program makes its socket again, perhaps in another
 * runtime directory, when it is told to (storage/alive.h). A missing socket never means that a
 * process is dead: only a lock says that, and the locks are in TONY_HOME.
 *
 * On the nodes of a cluster, TONY_HOME is shared or a copy. There TONY_RUNTIME_DIR names the parent
 * of the runtime directory. The path is not recorded in TONY_HOME, and the locks are in the runtime
 * directory.
 */
#ifndef TONY_STORAGE_PATHS_H
#define TONY_STORAGE_PATHS_H

#include <stdint.h>

struct err;

#define PATHS_TIDIED "tidied" /* in pool/ */

struct paths {
    /* absolute; home without symbolic links */
    char *home, *pool, *locks, *jobs, *store, *history;
    char *runtime; /* may be NULL after paths_open_read_only() */
};

/* Find TONY_HOME and the runtime directory, make the missing directories, and check owners and
 * modes. -EPERM: a directory belongs to another user or is open to others; -EROFS or -EACCES: it
 * cannot be written; -ENOSPC; -ENAMETOOLONG. The caller frees *out with paths_done(). */
int paths_open(struct paths *out, struct err *e);
/* The same for a program that only reads, when paths_open() fails because the home is read-only or
 * belongs to another user. It makes and checks nothing, so a subdirectory may be missing. runtime
 * is NULL unless the recorded directory exists, belongs to this user and is closed to others. */
int paths_open_read_only(struct paths *out, struct err *e);
void paths_done(struct paths *p);
/* Make the runtime directory again if it is missing. If that is impossible, choose another one and
 * record it. 1: p->runtime has another path now; 0: it is the same; -errno. */
int paths_renew_runtime(struct paths *p, struct err *e);

enum { APP_ID_MAX = 64 };
/* An application id is "application_<cluster start in ms>_<job number, at least 4 digits>". */
void app_id_format(char out[APP_ID_MAX], int64_t start_ms, uint32_t number);
int app_id_parse(const char *id, int64_t *out_start_ms, uint32_t *out_number, struct err *e);

/* These return a new string, which the caller frees. NULL: no memory. */
char *paths_job(const struct paths *p, const char *app_id);     /* jobs/<id> */
char *paths_history(const struct paths *p, const char *app_id); /* history/<id> */
/* <runtime>/<job number>.<suffix>; suffix: "k" or "m". NULL: no runtime directory (errno is
 * ENOENT), not an id (EINVAL) or no memory. */
char *paths_socket(const struct paths *p, const char *app_id, const char *suffix);
/* The same with the runtime directory that is recorded in this home now. */
char *paths_find_socket(const char *home, const char *app_id, const char *suffix);
char *paths_pool_socket(const struct paths *p);
char *paths_pool_lock(const struct paths *p);
char *paths_job_lock(const struct paths *p, const char *app_id); /* NULL: as paths_socket() */
/* The directory of a job, which the caller frees. *out_live: it is in jobs/; else it is in
 * history/. -ENOENT: there is no such job. */
int paths_find_job(const struct paths *p, const char *app_id, char **out_dir, _Bool *out_live,
                   struct err *e);
/* The path of one of tony's programs, such as "tony-pool": beside the running program
 * (/proc/self/exe), else in ../libexec/tony seen from there, else in a directory of PATH. The
 * caller frees it. NULL: not found. */
char *paths_program(const char *name);

#endif
