/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call at the end of a job (tony.application.on-end). The user names a command, which gets the
 * status document on standard input, or a URL, to which tony posts the document.
 *
 * 1. When the job has its verdict, hook_leave() leaves a *request* on disk. A master does so before
 *    it tells its scheduler that the job is over: if it is killed earlier, the next master reaches
 *    the same verdict and does it.
 * 2. Another process calls hook_run(), which makes the call and repeats it with growing pauses
 *    until it succeeds. Then it removes the request. If the process is killed, the request stays,
 *    and a later process makes the call again.
 *
 * So the call is made at least once. The document has a member `delivery`, which is the same in
 * each repetition. No job waits for its call.
 *
 * A request is a directory <parent>/<application id>, mode 0700:
 *   body     the document that is sent
 *   request  JSON: {"format":1,"application_id","delivery","target","signature","state",
 *            "exit_code"}
 *
 * On one machine and on Slurm the parent is pool/on-end of TONY_HOME. If the processes on Slurm
 * could not deliver a request, the next pool takes it. On YARN the parent is in the master's
 * container.
 */
#ifndef TONY_STORAGE_HOOK_H
#define TONY_STORAGE_HOOK_H

#include <stdint.h>

#include "base/buf.h"

struct err;
struct job_spec;

/* The directory of the requests. The programs that make calls have the option --on-end. */
#define HOOK_DIR "on-end"
#define HOOK_LOG "on-end.log"

enum {
    HOOK_BODY_MAX = 1 << 20,            /* a longer document is sent without its list of tasks */
    HOOK_LIMIT_MS = 24 * 3600 * 1000,   /* on one machine: a request that is older is given up */
    HOOK_SLURM_LIMIT_MS = 30 * 1000,    /* the job keeps its allocation meanwhile */
    HOOK_YARN_LIMIT_MS = 5 * 60 * 1000, /* YARN kills a master ten minutes after its report */
    /* the part of this time before the master reports its end to YARN */
    HOOK_YARN_BEFORE_MS = 10 * 1000,
};

struct hook_end {
    const char *application_id, *state;
    int exit_code;
    const struct job_spec *spec;
    struct span secrets; /* storage/secrets.h */
    struct span status;  /* the status document */
};

/* Leave a request in `parent`, which is made if it is missing. 1: the job wants no call, or its
 * request is there already; 0: it was left; or -errno. */
int hook_leave(const char *parent, const struct hook_end *h, struct err *e);

/*
 * Make the call of one request, until it succeeds. Blocks, and starts processes; call it in a
 * process that does nothing else.
 *
 * log        a file to which the attempts are written; NULL = standard error
 * limit_ms   how long calls are repeated
 * Returns    0 it has succeeded, or another process is making the call, or there was no request; 1
 *            not within the limit, or the request was removed meanwhile (with its TONY_HOME), or a
 *            signal has ended hook_main(); or -errno. A request that is older than HOOK_LIMIT_MS
 *            is removed.
 */
int hook_run(const char *dir, const char *log, int64_t limit_ms, struct err *e);
/* The command line `PROGRAM --on-end DIR LIMIT_MS [LOG]`: runs hook_run(), and ends it and its call
 * at SIGTERM. Returns an exit code. */
int hook_main(int argc, char **argv);

#endif
