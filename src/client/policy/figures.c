/* SPDX-License-Identifier: Apache-2.0 */
#include "client/policy/figures.h"

#include <math.h>

#include "base/base.h"

void decision_figures_text(const struct decision_figures *f, struct buf *out)
{
    (void)buf_addf(out, "utilization %.3g", f->utilization);
    if (f->gap > 0)
        (void)buf_addf(out, " (at most %.2g %% below the best possible)", 100 * f->gap);
    else if (!isnan(f->gap))
        (void)buf_adds(out, " (the best possible)");
    (void)buf_addf(out, ", loss of fairness %.3g; %lld adjusted, %lld started", f->loss,
                   (long long)f->adjusted, (long long)f->admitted);
}
