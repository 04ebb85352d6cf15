/* SPDX-License-Identifier: Apache-2.0 */
/* The keys tony.pool.policy and those below it, as the pool and the arbiter use them. */
#ifndef TONY_ARBITER_SETTINGS_H
#define TONY_ARBITER_SETTINGS_H

#include <stdint.h>

#include "conf/conf.h"
#include "partition/partition.h"

struct policy_settings {
    const struct part_policy *policy; /* NULL = fifo: no policy divides */
    struct part_options options; /* without the levels: see policy_settings_options() */
    double levels[CONF_LEVELS_MAX];
    uint32_t n_levels;
    int64_t interval_ms, resize_limit_ms, time_limit_ms;
    int64_t resize_cost_ms; /* for a job whose cost is unknown */
};

/* The configuration has checked the values: a policy of another name than those of
 * partition/partition.h counts as fifo. */
void policy_settings_read(const struct conf *c, struct policy_settings *out);
/* The options with the levels of *s, which must outlive them. */
struct part_options policy_settings_options(const struct policy_settings *s);

#endif
