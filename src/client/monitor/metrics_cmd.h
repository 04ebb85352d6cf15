/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TONY_CLIENT_MONITOR_METRICS_CMD_H
#define TONY_CLIENT_MONITOR_METRICS_CMD_H

#include "base/buf.h"

struct client;

int cmd_metrics(struct client *c);

#endif
