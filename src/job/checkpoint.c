/*
 * Which checkpoints the tasks have saved, and the newest that all of them share.
 *
 * A task tells of each one it has saved: its step, and where it lies. A step is whole when every
 * task that ever told of one has told of this step, or as many as the word itself says ("parts").
 * So where only rank 0 saves, its word alone is enough. What was whole stays so: a task that begins
 * to save later takes nothing back.
 */
#include <errno.h>
#include <stdlib.h>

#include "job/job_int.h"

enum { KEPT = 6 }; /* of one task: so far may the fastest be ahead of the slowest */

struct saved {
    uint64_t step;
    char *path; /* NULL = none */
};

struct checkpoints {
    struct saved v[KEPT];
};

void checkpoint_done(struct slot *s)
{
    for (size_t i = 0; s->saved && i < KEPT; i++)
        free(s->saved->v[i].path);
    free(s->saved);
    s->saved = NULL;
}

static struct saved *find(const struct slot *s, uint64_t step)
{
    for (size_t i = 0; s->saved && i < KEPT; i++)
        if (s->saved->v[i].path && s->saved->v[i].step == step)
            return &s->saved->v[i];
    return NULL;
}

/* A free place, else that of the lowest step; but what all share is kept. */
static struct saved *place(const struct job *j, struct slot *s)
{
    struct saved *best = NULL;

    for (size_t i = 0; i < KEPT; i++) {
        struct saved *x = &s->saved->v[i];
        if (!x->path)
            return x;
        if (j->has_checkpoint && x->step == j->checkpoint_step)
            continue;
        if (!best || x->step < best->step)
            best = x;
    }
    return best;
}

/* Every slot that ever told of a checkpoint knows this one, or `parts` of them do. */
static bool is_whole(const struct job *j, uint64_t step, uint32_t parts)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < j->n_slots; i++)
        n += find(&j->slots[i], step) != NULL;
    return parts ? n >= parts : n == j->n_savers;
}

int checkpoint_saved(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e)
{
    struct slot *s = &j->slots[ev->slot];

    if (!kept->text || !*kept->text)
        return err_set(e, EPROTO, "a checkpoint of slot '" SLOT_NAME "' without a path",
                       SLOT_ARGS(j, ev->slot)),
               1;
    if (!s->saved) {
        s->saved = calloc(1, sizeof *s->saved);
        if (!s->saved)
            return err_set(e, ENOMEM, "no memory for event '%s'", job_event_name(ev->type));
        j->n_savers++;
    }
    struct saved *x = find(s, ev->step);
    if (!x)
        x = place(j, s);
    free(x->path);
    *x = (struct saved){ .step = ev->step, .path = TAKE(kept->text) };
    if (!j->has_checkpoint || ev->step >= j->checkpoint_step) {
        if (is_whole(j, ev->step, ev->group)) {
            if (!j->has_checkpoint || ev->step > j->checkpoint_step)
                j->checkpoint_ms = j->now_ms;
            j->has_checkpoint = true;
            j->checkpoint_step = ev->step;
        }
    }
    j->changed = true;
    return 0;
}

const char *job_checkpoint(const struct job *j, uint32_t slot, uint64_t *out_step)
{
    const struct saved *x = j->has_checkpoint ? find(&j->slots[slot], j->checkpoint_step) : NULL;

    for (uint32_t i = 0; j->has_checkpoint && !x && i < j->n_slots; i++)
        x = find(&j->slots[i], j->checkpoint_step); /* it saves none of its own: the first one's */
    if (!x)
        return NULL;
    *out_step = x->step;
    return x->path;
}

const char *checkpoint_newest(const struct slot *s, uint64_t *out_step)
{
    const struct saved *best = NULL;

    for (size_t i = 0; s->saved && i < KEPT; i++)
        if (s->saved->v[i].path && (!best || s->saved->v[i].step > best->step))
            best = &s->saved->v[i];
    if (!best)
        return NULL;
    *out_step = best->step;
    return best->path;
}
