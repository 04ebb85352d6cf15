/*
 * Where everything lies. $TONY_HOME (default ~/.tony), ours:
 *
 *   pool/                           start (cluster start ms), next (last number given),
 *                                   runtime (the path of the runtime directory), pool.log
 *   jobs/<application id>/          0700, one per live job
 *     job.conf key journal exits master.log keeper.log
 *     containers/<container id>/    working directory
 *     logs/<role>-<index>/<attempt>/ stdout, stderr, executor.log
 *   store/                          content by digest
 *   history/<application id>/       finished jobs, moved there whole
 *
 * Sockets and locks lie in a runtime directory with a short path, $XDG_RUNTIME_DIR/tony/<hash>/ or
 * /tmp/tony-<uid>/<hash>/, 0700, owner checked, <hash> = 12 hex digits of the real path of
 * TONY_HOME. The choice is recorded in the home, so that programs with other environments meet.
 * In there: pool.sock pool.lock; per job number N: N.k (keeper) N.m (master) N.lock.
 */
#ifndef TONY_STORAGE_PATHS_H
#define TONY_STORAGE_PATHS_H

#include <stdint.h>

struct err;

struct paths {
    char *home, *pool, *jobs, *store, *history; /* absolute, real */
    char *runtime;
};

/* Resolve and create what is missing, check owner and modes. Errors: another user's directory,
 * read-only, no space, path too long. */
int paths_open(struct paths *out, struct err *e);
/* For looking only, where that fails (read-only, another user's): nothing is made or checked, and
 * what is missing is missing. runtime is NULL unless the recorded one is there and ours. */
int paths_open_look(struct paths *out, struct err *e);
void paths_done(struct paths *p);

enum { APP_ID_MAX = 64 };
/* "application_<cluster start ms>_<number, 4 digits at least>" */
void app_id_format(char out[APP_ID_MAX], int64_t start_ms, uint32_t number);
int app_id_parse(const char *id, int64_t *out_start_ms, uint32_t *out_number, struct err *e);

char *paths_job(const struct paths *p, const char *app_id);     /* jobs/<id> */
char *paths_history(const struct paths *p, const char *app_id); /* history/<id> */
char *paths_socket(const struct paths *p, const char *app_id,
                   const char *suffix); /* runtime/<number>.<suffix>; "k", "m", "lock"; NULL
                                           without a runtime */
char *paths_pool_socket(const struct paths *p);
char *paths_pool_lock(const struct paths *p);
/* The directory of a job wherever it is now; -ENOENT with a sentence. *out_live tells which. */
int paths_find_job(const struct paths *p, const char *app_id, char **out_dir, _Bool *out_live,
                   struct err *e);
/* The program beside the running one (/proc/self/exe), else on PATH: "tony-pool". */
char *paths_program(const char *name);

#endif
