/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An instance for the policies, and their answer, as JSON: the input and output of `tony allocate`.
 * docs/allocate.md has the format.
 *
 *   {"kind": "allocate", "resources": [...], "nodes": [{"count": 2, "capacity": [...]}],
 *    "apps": [{"id": "A", "demand": [...], "weight": 1, "min": 1, "max": 8, "at": [[node, n]],
 *              "pinned": true, "lost": true}],
 *    "theta1": 0.1, "theta2": 0.1, "loss_max": 0.35, "adjust_max": 2}
 *   {"kind": "drf", ...}      the counts of drf.h
 *   {"kind": "market", "weights": [[...]], "budgets": [...], "reserve": 0, "parallel": [...]}
 */
#ifndef TONY_PARTITION_INSTANCE_H
#define TONY_PARTITION_INSTANCE_H

#include "base/buf.h"
#include "partition/partition.h"

struct err;
struct part_solver;

/*
 * Append the answer to the instance in `text` to `answer`. `what` names the text in errors. policy:
 * the policy to ask; NULL = the policy that the kind names. limit: of the search. solver: for
 * `dorm`; NULL = none. 0; -EINVAL: the text is not an instance, `e` says which line or member is
 * wrong and why; -ENOMEM.
 */
int instance_answer(const char *what, struct span text, const struct part_policy *policy,
                    const struct part_limit *limit, const struct part_solver *solver,
                    struct buf *answer, struct err *e);

#endif
