/* SPDX-License-Identifier: Apache-2.0 */
/* The table of `tony simulate`: a column for each policy, and a row for each figure. */
#ifndef TONY_CLIENT_POLICY_SIMULATE_TABLE_H
#define TONY_CLIENT_POLICY_SIMULATE_TABLE_H

#include <stdbool.h>

#include "base/vec.h"
#include "simulate/simulate.h"

struct sim_column {
    const char *name; /* borrowed: of the policy, or "real" */
    bool is_real;     /* the real run: some figures are unknown */
    bool is_empty;    /* no job ran: it has no figures */
    struct sim_result result;
};

struct sim_table {
    VEC(struct sim_column) columns;
};

/* Print the table. If its columns need more than 80 characters beside each other, print several
 * tables, one below the other. With estimates, a line for each policy follows. */
void sim_table_print(const struct sim_table *t, bool estimates);
void sim_table_done(struct sim_table *t);

#endif
