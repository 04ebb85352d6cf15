/* SPDX-License-Identifier: Apache-2.0 */
/* The job of the tests of a master on a cluster. */
#ifndef TONY_TESTS_MASTER_REMOTE_H
#define TONY_TESTS_MASTER_REMOTE_H

#include "master_world.h"

#define H "/h/application_1700000000000_0001" /* its directory in the history */
#define BASIC                                                                                      \
    "tony.application.name=t<1>", "tony.containers.command=./run",                                 \
        "tony.application.framework=generic"

static const char *const two_workers[] = { BASIC, "tony.worker.instances=2",
                                           "tony.worker.memory=64m", NULL };
static const struct script soon[] = { { .task = "worker:0", .run_ms = 20 }, { 0 } };

#endif
