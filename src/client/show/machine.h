/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts about this machine for `tony doctor`, and for the checks before a job is accepted.
 */
#ifndef TONY_CLIENT_SHOW_MACHINE_H
#define TONY_CLIENT_SHOW_MACHINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct buf;
struct err;

int machine_memory(uint64_t *out_total, uint64_t *out_available); /* bytes; -errno */
int machine_gpus(json_t *gpus, struct err *e); /* appends what tony-gpu prints; within 10 s */
char *machine_which(const char *program);      /* on PATH; NULL = not there */

/* Run argv[0], a path, and append to out what it prints; errors_too: also on its standard error. If
 * the program has not closed its output within limit_ms, it is killed. Returns -errno, or 0 with
 * *out_status as waitpid() sets it. */
int machine_run(const char *const *argv, bool errors_too, int limit_ms, struct buf *out,
                int *out_status, struct err *e);

/* ---- engine.c: the program that runs tasks in images ---- */

enum engine_kind {
    ENGINE_MISSING,  /* neither podman nor docker is on PATH */
    ENGINE_READY,    /* podman, or docker whose service answers */
    ENGINE_SILENT,   /* docker whose service does not answer: it may have been stopped, or this user
                      * may not use it */
    ENGINE_ROOTLESS, /* docker in its rootless mode: tony cannot use it (docs/job-files.md) */
};

struct engine_found {
    enum engine_kind kind;
    char *path;       /* NULL: ENGINE_MISSING */
    char why[400];    /* the problem, as a sentence; "" = none */
    const char *hint; /* what the user can do */
};

/* Look for the engine that src/executor/engine.c will take, and ask docker what it is. Takes up to
 * 20 s if the service of docker hangs. */
void engine_look(struct engine_found *out);
void engine_found_done(struct engine_found *f);

#endif
