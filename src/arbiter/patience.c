/* SPDX-License-Identifier: Apache-2.0 */
#include "arbiter/patience.h"

#include "base/base.h"

bool patience_is_over(const struct patience *p, int64_t now_ms)
{
    return now_ms < p->until_ms;
}

void patience_pause(struct patience *p)
{
    p->since_ms = 0;
}

void patience_succeed(struct patience *p)
{
    *p = (struct patience){ 0 };
}

void patience_fail(struct patience *p, int64_t now_ms, int64_t limit_ms)
{
    int64_t pause_ms = limit_ms;
    for (uint32_t i = 0; i < p->failures && pause_ms < PATIENCE_MOST * limit_ms; i++)
        pause_ms *= 2;
    p->since_ms = 0;
    p->until_ms = now_ms + pause_ms;
    p->failures++;
}

bool patience_wait(struct patience *p, int64_t now_ms, int64_t limit_ms)
{
    if (patience_is_over(p, now_ms))
        return false;
    if (!p->since_ms)
        p->since_ms = now_ms;
    if (now_ms - p->since_ms <= limit_ms)
        return true;
    patience_fail(p, now_ms, limit_ms);
    return false;
}
