/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two subcommands of `tony pool`: the policy by which the pool divides the machine. Each returns
 * the exit code.
 */
#ifndef TONY_CLIENT_POOL_POOL_POLICY_H
#define TONY_CLIENT_POOL_POOL_POLICY_H

#include <jansson.h>

struct client;

/* tony pool set [KEY=VALUE]...: change settings, and print all present settings. Starts a pool
 * if none runs. */
int pool_set(struct client *c);
/* tony pool why [APP]: print the last decision. */
int pool_why(struct client *c);
/* Timeout of other commands for the pool's answer about its policy: the pool may be frozen. */
enum { POOL_POLICY_MS = 500 };

/* Add the member "policy" to the status of a running job: the result of the policy's last decision
 * for this job. Adds nothing if there is no decision, or the pool does not answer. */
void pool_policy_add(struct client *c, json_t *doc);

/* The last decision of the pool, with the reasons why jobs wait. The caller frees it; NULL = the
 * pool does not answer. */
json_t *pool_reasons(struct client *c);

#endif
