/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two subcommands of `tony pool`: the policy by which the pool divides the machine. Each returns
 * the exit code.
 */
#ifndef TONY_CLIENT_POOL_POLICY_H
#define TONY_CLIENT_POOL_POLICY_H

#include <jansson.h>

struct client;

/* tony pool set [KEY=VALUE]...: change settings, and print what holds now. Starts a pool. */
int pool_set(struct client *c);
/* tony pool why [APP]: print the last decision. */
int pool_why(struct client *c);
/* How long other commands wait for what the pool says of its policy: it may be frozen. */
enum { POOL_POLICY_MS = 500 };

/* Add the member "policy" to the status of a running job: what the policy's last decision says of
 * it. Adds nothing if there is none, or the pool does not answer. */
void pool_policy_add(struct client *c, json_t *doc);

#endif
