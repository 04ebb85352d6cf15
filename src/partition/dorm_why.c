/* SPDX-License-Identifier: Apache-2.0 */
#include "partition/dorm.h"

#include "base/util.h"

void dorm_why(struct dorm_search *s, uint32_t admitted, const struct part_job *jobs,
              struct part_decision *out)
{
    (void)s, (void)admitted, (void)jobs, (void)out;
}
