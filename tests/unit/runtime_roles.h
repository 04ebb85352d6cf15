/* SPDX-License-Identifier: Apache-2.0 */
/* Roles that several tests of the environment use. */
#ifndef TONY_TESTS_RUNTIME_ROLES_H
#define TONY_TESTS_RUNTIME_ROLES_H

#include "runtime/runtime.h"

enum { TRACKED = 1, UNTRACKED, SIDECAR };

static const char *const one[] = { "10.0.0.9:9001" };

/* Uneven: host a has 3 of the tasks, b has 2, c has 1. */
static const char *const uneven[] = { "10.0.0.1:1", "10.0.0.2:2", "10.0.0.1:3",
                                      "10.0.0.3:4", "10.0.0.1:5", "10.0.0.2:6" };
static const struct rt_role uneven_workers[] = { { "worker", uneven, 6, TRACKED, 1 },
                                                 { "driver", one, 1, UNTRACKED, 1 } };

#endif
