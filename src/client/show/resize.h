/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command `tony resize`: what follows the answer of the master or of the cluster.
 *
 * Exit codes:
 *
 *   EXIT_DONE        the resize was accepted, or with --wait is done
 *   EXIT_JOB_FAILED  the resize was refused, or has failed
 *   EXIT_MISUSE      the arguments are wrong, and no request was sent
 *   EXIT_CLUSTER     the cluster or the master does not answer
 */
#ifndef TONY_CLIENT_SHOW_RESIZE_H
#define TONY_CLIENT_SHOW_RESIZE_H

#include <jansson.h>

struct client;
struct err;
struct follow_options;
struct follow_result;

/* A function that follows the job: 0, or minus the exit code with *e set. */
typedef int resize_follow_fn(void *arg, const struct follow_options *o, struct follow_result *out,
                             struct err *e);

/* Print the answer, or with --wait wait for the end of the resize. Returns an exit code. doc: the
 * answer (docs/json.md "resize"), or a status document, which has the same members; takes it. */
int resize_answered(struct client *c, const char *id, json_t *doc, resize_follow_fn *follow,
                    void *arg);

#endif
