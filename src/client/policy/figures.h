/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a decision, in the words of `tony pool why` and `tony arbiter`. */
#ifndef TONY_CLIENT_POLICY_FIGURES_H
#define TONY_CLIENT_POLICY_FIGURES_H

#include <stdint.h>

struct buf;

struct decision_figures {
    double utilization, loss;
    double gap; /* part_gap(); NAN: the policy has no upper bound */
    int64_t adjusted, admitted;
};

/* Append "utilization 1.2 (at most 1.3 % below the best possible), loss of fairness 0.1; 1
 * adjusted, 0 started". */
void decision_figures_text(const struct decision_figures *f, struct buf *out);

#endif
