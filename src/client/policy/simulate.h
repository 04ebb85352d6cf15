/* SPDX-License-Identifier: Apache-2.0 */
/* `tony simulate`. */
#ifndef TONY_CLIENT_POLICY_SIMULATE_H
#define TONY_CLIENT_POLICY_SIMULATE_H

struct client;

int cmd_simulate(struct client *c);

#endif
