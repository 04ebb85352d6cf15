/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command `tony resize`: the parts that are equal for jobs on this machine and on a cluster.
 *
 * Exit codes:
 *
 *   EXIT_DONE        the resize was accepted, or with --wait is done
 *   EXIT_JOB_FAILED  the resize was refused, or has failed
 *   EXIT_MISUSE      the arguments are wrong, and no request was sent
 *   EXIT_CLUSTER     the pool or the master does not answer
 */
#ifndef TONY_CLIENT_SHOW_RESIZE_H
#define TONY_CLIENT_SHOW_RESIZE_H

#include <jansson.h>
#include <stdint.h>

#include "base/vec.h"

struct answer;
struct client;
struct conn;
struct err;
struct follow_options;
struct follow_result;

enum { RESIZE_ROLES_MAX = 64 }; /* of one command line */

struct resize_size {
    char *role;
    uint32_t instances;
};

struct resize_wish {
    VEC(struct resize_size) sizes;
    int64_t within_ms;  /* 0 = the job's own tony.resize.timeout */
    const char *reason; /* borrowed; may be NULL */
};

/* Check the wish against the roles in the status document of the job. EXIT_DONE, or an exit code
 * with *e set. */
int resize_wish_check(const struct resize_wish *w, const json_t *doc, struct err *e);

/* Send the request to the pool or the master at the other end of conn. As link_ask(). */
int resize_ask(struct client *c, struct conn **conn, const char *id, const struct resize_wish *w,
               struct answer *out, struct err *e);

/* A function that follows the job: 0, or minus the exit code with *e set. */
typedef int resize_follow_fn(void *arg, const struct follow_options *o, struct follow_result *out,
                             struct err *e);

/* Print the answer, or with --wait wait for the end of the resize. Returns an exit code. doc: the
 * answer (docs/json.md "resize"), or a status document, which has the same members; takes it. */
int resize_answered(struct client *c, const char *id, json_t *doc, resize_follow_fn *follow,
                    void *arg);

#endif
