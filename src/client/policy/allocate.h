/* SPDX-License-Identifier: Apache-2.0 */
/* `tony allocate` and the names of the policies. */
#ifndef TONY_CLIENT_POLICY_ALLOCATE_H
#define TONY_CLIENT_POLICY_ALLOCATE_H

struct client;
struct err;
struct part_policy;

int cmd_allocate(struct client *c);

/* The policy of this name. -EINVAL: there is no such policy; the hint lists all policies. */
int client_policy(const char *name, const struct part_policy **out, struct err *e);

#endif
