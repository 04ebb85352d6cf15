/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the state of resizes, also for the status document. Nothing here changes the job.
 */
#include "job/resize.h"

#include "codec/json.h"
#include "job/job_int.h"

bool job_was_resized(const struct job *j)
{
    return j->resize.state != RESIZE_STEADY || j->resize.outcome;
}

bool job_changes_size(const struct job *j)
{
    return j->resize.state != RESIZE_STEADY || j->n_outside[SLOT_LEAVING] > 0;
}

uint32_t job_role_target(const struct job *j, uint32_t role)
{
    return j->resize.target[role];
}

bool job_wants(const struct job *j, uint32_t slot)
{
    const struct slot *s = &j->slots[slot];

    if (job_is_spare(j, slot))
        return true;
    return s->index < MAX(j->resize.target[s->role], j->roles[s->role].n);
}

/* The roles whose number of instances changes. `to` has the new numbers; registered: add how many
 * new slots have registered. */
static void roles_json(const struct job *j, const uint32_t *to, bool registered, struct buf *out)
{
    const char *comma = "";

    (void)buf_adds(out, ",\"roles\":[");
    for (uint32_t r = 0; r < j->n_roles; r++) {
        const struct role *role = &j->roles[r];
        if (to[r] == j->resize.from[r])
            continue;
        (void)buf_addf(out, "%s{\"name\":", comma);
        (void)json_add_str(out, span_of(job_role_name(j, r)));
        (void)buf_addf(out, ",\"from\":%u,\"to\":%u", j->resize.from[r], to[r]);
        if (registered)
            (void)buf_addf(out, ",\"registered\":%u", role->n_outside[SLOT_REGISTERED]);
        (void)buf_addc(out, '}');
        comma = ",";
    }
    (void)buf_addc(out, ']');
}

const char *resize_outcome_name(enum resize_outcome o)
{
    static const char *const names[RESIZE_OUTCOME_COUNT] = {
#define X(id, name) [id] = name,
        RESIZE_OUTCOMES(X)
#undef X
    };
    return names[o];
}

/* Add "kept": a demand of the scheduler for fewer containers that came while the gang forms. */
static void kept_json(const struct kept_shrink *kept, struct buf *out)
{
    (void)buf_addf(out, ",\"kept\":{\"containers\":%u", kept->n_containers);
    if (kept->due_ms)
        (void)buf_addf(out, ",\"due_ms\":%lld", (long long)kept->due_ms);
    else
        (void)buf_adds(out, ",\"due_ms\":null");
    status_text(out, "why", kept->why);
    (void)buf_addc(out, '}');
}

void resize_json(const struct job *j, struct buf *out)
{
    const struct resize *z = &j->resize;

    if (z->n)
        (void)buf_addf(out, ",\"resizes\":%u", z->n);
    if (j->n_outside[SLOT_LEAVING])
        (void)buf_addf(out, ",\"leaving\":%u", j->n_outside[SLOT_LEAVING]);
    if (z->state == RESIZE_WAITING || z->state == RESIZE_FORMING) {
        (void)buf_addf(out, ",\"resize\":{\"state\":\"%s\"",
                       z->state == RESIZE_WAITING ? "waiting" : "forming");
        status_text(out, "who", z->who);
        status_text(out, "why", z->why);
        (void)buf_addf(out, ",\"asked_ms\":%lld", (long long)z->asked_ms);
        if (z->due_ms != INT64_MAX)
            (void)buf_addf(out, ",\"due_ms\":%lld", (long long)z->due_ms);
        else
            (void)buf_adds(out, ",\"due_ms\":null");
        if (resize_awaits_checkpoint(j))
            (void)buf_adds(out, ",\"awaits_checkpoint\":true");
        roles_json(j, z->target, true, out);
        if (z->kept.set)
            kept_json(&z->kept, out);
        (void)buf_addc(out, '}');
    } else if (z->outcome) {
        (void)buf_addf(out, ",\"last_resize\":{\"outcome\":\"%s\",\"at_ms\":%lld",
                       resize_outcome_name(z->outcome), (long long)z->ended_ms);
        status_text(out, "detail", *z->detail ? z->detail : NULL);
        status_text(out, "who", z->who);
        status_text(out, "why", z->why);
        roles_json(j, z->to, false, out);
        (void)buf_addc(out, '}');
    }
}
