/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/quiet.h"

#include "base/util.h"
#include "executor/executor_int.h"

static bool is_possible(const struct executor *x, int64_t now_ms)
{
    return x->greeted && now_ms >= x->own_until_ms && !x->leaving && x->cfg->keeper &&
           !x->cfg->remote && x->role->quiet_ms && x->a.state == ATTEMPT_RUNNING && !x->server.s &&
           (x->a.in_cgroup || x->engine_apart || !x->cfg->memory_bytes);
}

bool quiet_now(const struct executor *x)
{
    return x->cfg->record->quiet_until_ms != 0;
}

bool quiet_renew(struct executor *x, int64_t now_ms)
{
    struct exit_record *r = x->cfg->record;
    if (!is_possible(x, now_ms)) {
        r->quiet_until_ms = 0;
        return false;
    }
    r->beat_ms = x->role->heartbeat_ms;
    /* The keeper speaks for this executor one heartbeat longer than until its own next one,
     * because on a loaded machine this process may wake up late. */
    r->quiet_until_ms = now_ms + x->role->quiet_ms + x->role->heartbeat_ms;
    x->beat_at_ms = now_ms + x->role->quiet_ms;
    if (x->cfg->in_crew) /* at whole heartbeats, so that those of a crew wake up together */
        x->beat_at_ms -= x->beat_at_ms % x->role->heartbeat_ms;
    return true;
}

void quiet_check(struct executor *x, int64_t now_ms)
{
    if (!quiet_now(x) || is_possible(x, now_ms))
        return;
    x->cfg->record->quiet_until_ms = 0;
    x->beat_at_ms = MIN(x->beat_at_ms, now_ms + x->role->heartbeat_ms);
}
