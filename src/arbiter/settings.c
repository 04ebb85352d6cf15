/* SPDX-License-Identifier: Apache-2.0 */
#include "arbiter/settings.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"

#define PREFIX "tony.pool.policy"

/* The policy with this name, in upper or lower case. NULL: fifo, or no policy has the name. */
static const struct part_policy *find_policy(const char *value)
{
    AUTO(free_p) char *name = span_dup(span_trim(span_of(value)));
    for (char *s = name; s && *s; s++)
        *s = *s >= 'A' && *s <= 'Z' ? (char)(*s + 'a' - 'A') : *s;
    return name && !str_eq(name, "fifo") ? part_policy_find(name) : NULL;
}

void policy_settings_read(const struct conf *c, struct policy_settings *out)
{
    struct part_options o = part_defaults;
    o.theta1 = conf_real(c, PREFIX ".theta1");
    o.theta2 = conf_real(c, PREFIX ".theta2");
    if (conf_get(c, PREFIX ".loss-max"))
        o.loss_max = conf_real(c, PREFIX ".loss-max");
    if (conf_get(c, PREFIX ".adjust-max"))
        o.adjust_max = conf_int(c, PREFIX ".adjust-max");
    o.reserve = conf_real(c, PREFIX ".reserve");
    o.payback_s = (double)conf_int(c, PREFIX ".payback") / 1000;
    o.move_in_two = true; /* only for the arbiter: the pool has one node, so no job can move */
    o.repack = true;
    *out = (struct policy_settings){ .policy = find_policy(conf_get(c, PREFIX)),
                                     .options = o,
                                     .interval_ms = conf_int(c, PREFIX ".interval"),
                                     .resize_limit_ms = conf_int(c, PREFIX ".resize-limit"),
                                     .time_limit_ms = conf_int(c, PREFIX ".time-limit"),
                                     .resize_cost_ms = conf_int(c, PREFIX ".resize-cost") };
    size_t n_levels;
    (void)conf_levels_parse(conf_get(c, PREFIX ".levels"), 0, INFINITY, "the levels", out->levels,
                            ARRAY_LEN(out->levels), &n_levels, NULL);
    out->n_levels = (uint32_t)n_levels;
}

struct part_options policy_settings_options(const struct policy_settings *s)
{
    struct part_options o = s->options;
    o.levels = s->levels;
    o.n_levels = s->n_levels;
    return o;
}
