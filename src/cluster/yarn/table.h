/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster `yarn`: a Hadoop cluster (docs/decisions/0006-yarn.md). */
#ifndef TONY_CLUSTER_YARN_TABLE_H
#define TONY_CLUSTER_YARN_TABLE_H

#include "cluster/cluster.h"

extern const struct cluster_ops cluster_yarn;

#endif
