/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two subcommands of `tony pool`: the policy by which the pool divides the machine. Each returns
 * the exit code.
 */
#ifndef TONY_CLIENT_POOL_POLICY_H
#define TONY_CLIENT_POOL_POLICY_H

struct client;

/* tony pool set [KEY=VALUE]...: change settings, and print what holds now. Starts a pool. */
int pool_set(struct client *c);
/* tony pool why [APP]: print the last decision. */
int pool_why(struct client *c);

#endif
