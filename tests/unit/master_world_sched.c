/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler of the master's world. It grants each request at once. Its events reach the master
 * from the timer w->pump, never from within a call of the master.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/util.h"
#include "loop/loop.h"
#include "master_world_int.h"
#include "scheduler/scheduler.h"

static struct world *the_world; /* the only way for sched_ops.open to find the world */

/* ---- events ---- */

void world_pump_soon(struct world *w)
{
    loop_timer_set(w->pump, clock_mono_ms());
}

static struct sched_container container_of(const struct box *b)
{
    bool remote = b->w->remote.key;
    return (struct sched_container){ .node = !remote           ? NULL
                                             : b->w->lost_slot ? "127.0.0.1:45454"
                                                               : "n1:45454",
                                     .log_url = remote ? "http://n1:8042/logs/<of it>" : NULL,
                                     .id = b->id,
                                     .slot = b->slot,
                                     .gpus = "",
                                     .launched = b->launched,
                                     .completed = b->completed,
                                     .exit_code = b->exit_code,
                                     .reason = b->reason };
}

static void say(struct world *w, enum sched_event_type type, bool (*pick)(struct box *b))
{
    struct sched_container list[64];
    size_t n = 0;
    if (type == SE_REGISTERED && w->lists_older && w->n_masters == 2)
        list[n++] = (struct sched_container){ .node = "127.0.0.1:45454",
                                              .id = "container_99",
                                              .slot = w->lost_slot - 1,
                                              .gpus = "",
                                              .launched = true };
    for (unsigned i = 0; i < w->n_boxes; i++)
        if (!w->boxes[i].given_back && !w->boxes[i].lost && pick(&w->boxes[i]))
            list[n++] = container_of(&w->boxes[i]);
    if (n > 0 || type == SE_REGISTERED)
        w->sched->on_event(&(struct sched_event){ .type = type,
                                                  .containers = list,
                                                  .n = n,
                                                  .text = w->remote.key ? "127.0.0.1" : NULL },
                           w->sched->arg);
}

static bool pick_all(struct box *b)
{
    b->told = true;
    b->completed_told = b->completed;
    return true;
}

static bool pick_granted(struct box *b)
{
    bool pick = !b->told;
    b->told = true;
    return pick;
}

static bool pick_completed(struct box *b)
{
    bool pick = b->completed && !b->completed_told;
    b->completed_told |= pick;
    return pick;
}

static void on_pump(void *arg)
{
    struct world *w = arg;
    if (!w->sched)
        return;
    if (w->say_registered) {
        w->say_registered = false;
        say(w, SE_REGISTERED, pick_all);
        return;
    }
    say(w, SE_ALLOCATED, pick_granted);
    say(w, SE_COMPLETED, pick_completed);
    if (w->finish_done) {
        void (*done)(void *) = TAKE(w->finish_done);
        done(w->sched->arg);
    }
}

/* ---- operations ---- */

struct fake {
    const struct sched_ops *ops;
};

static struct fake the_fake;

static int fake_open(const struct sched_config *cfg, struct sched **out, struct err *e)
{
    struct world *w = the_world;
    (void)e;
    w->sched = malloc(sizeof *w->sched);
    *w->sched = *cfg;
    w->say_registered = true;
    *out = (struct sched *)(void *)&the_fake;
    world_pump_soon(w);
    return 0;
}

static struct box *box_of_slot(struct world *w, uint32_t slot)
{
    for (unsigned i = 0; i < w->n_boxes; i++)
        if (w->boxes[i].slot == slot && !w->boxes[i].completed && !w->boxes[i].given_back &&
            !w->boxes[i].lost)
            return &w->boxes[i];
    return NULL;
}

static struct box *box_of_id(struct world *w, const char *id)
{
    for (unsigned i = 0; i < w->n_boxes; i++)
        if (str_eq(w->boxes[i].id, id))
            return &w->boxes[i];
    return NULL;
}

static int fake_request(struct sched *s, const struct sched_ask *asks, size_t n, struct err *e)
{
    struct world *w = the_world;
    (void)s;
    (void)e;
    w->n_ask_calls++;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(w->wished);
        if (asks[i].node)
            (void)snprintf(w->wished + len, sizeof w->wished - len, "%u=%s ", asks[i].slot,
                           asks[i].node);
        if (box_of_slot(w, asks[i].slot))
            continue;
        assert(w->n_boxes < ARRAY_LEN(w->boxes));
        struct box *b = &w->boxes[w->n_boxes++];
        *b = (struct box){ .w = w, .slot = asks[i].slot };
        (void)snprintf(b->id, sizeof b->id, "container_%u", w->n_boxes);
        w->n_asks++;
    }
    world_pump_soon(w);
    return 0;
}

static int fake_release(struct sched *s, const char *const *ids, size_t n, struct err *e)
{
    (void)s;
    (void)e;
    for (size_t i = 0; i < n; i++) {
        struct box *b = box_of_id(the_world, ids[i]);
        if (b && !b->launched)
            b->given_back = true;
    }
    return 0;
}

static int fake_launch(struct sched *s, const struct sched_container *c, size_t n, struct err *e)
{
    (void)s;
    (void)e;
    the_world->n_launch_calls++;
    for (size_t i = 0; i < n; i++) {
        struct box *b = box_of_id(the_world, c[i].id);
        if (!b || b->launched || b->completed || b->given_back)
            continue;
        b->launched = true;
        b->timer = loop_timer_new(the_world->loop, world_box_dial, b);
        loop_timer_set(b->timer, clock_mono_ms());
    }
    return 0;
}

static int fake_stop(struct sched *s, const char *id, uint32_t grace_ms, struct err *e)
{
    struct box *b = box_of_id(the_world, id);
    (void)s;
    (void)e;
    (void)grace_ms;
    the_world->n_stop_calls++;
    if (b && !b->lost) /* the cluster cannot reach a lost container */
        world_box_complete(b, 143, END_KILLED_BY_MASTER);
    return 0;
}

void world_end_leftovers(struct world *w)
{
    for (unsigned i = 0; i < w->n_boxes; i++) {
        w->n_running_at_end += w->boxes[i].running;
        world_box_complete(&w->boxes[i], 143, END_KILLED_BY_MASTER);
    }
}

static int fake_finish(struct sched *s, const char *state, const char *diagnostics,
                       void (*done)(void *arg), struct err *e)
{
    struct world *w = the_world;
    (void)s;
    (void)e;
    (void)str_copy(w->diagnostics, sizeof w->diagnostics, diagnostics);
    (void)strv_push(&w->files.log, "finish");
    w->finished = true;
    world_end_leftovers(w);
    (void)str_copy(w->finish_state, sizeof w->finish_state, state);
    w->finish_done = done;
    world_pump_soon(w);
    return 0;
}

static void fake_close(struct sched *s)
{
    (void)s;
    free(TAKE(the_world->sched));
    the_world->finish_done = NULL;
}

void world_break_sched(struct world *w)
{
    const struct sched_event ev = { .type = SE_BROKEN, .text = "it is forgotten" };
    w->sched->on_event(&ev, w->sched->arg);
}

static int fake_fate(struct sched *s, int64_t within_ms,
                     void (*done)(bool over, const char *who, const char *text, void *arg),
                     void *arg)
{
    struct world *w = the_world;
    (void)s;
    (void)within_ms;
    if (!w->fate)
        return -EOPNOTSUPP;
    w->fate_done = done;
    w->fate_arg = arg;
    loop_timer_set(w->fate_timer, clock_mono_ms());
    return 0;
}

static void fate_is_known(void *arg)
{
    struct world *w = arg;
    bool over = str_eq(w->fate, "over");
    if (w->master)
        w->fate_done(over, over ? "ann" : NULL, over ? "killed by ann" : NULL, w->fate_arg);
}

static bool fake_busy(const struct sched *s)
{
    struct world *w = the_world;
    int64_t now = clock_mono_ms();
    (void)s;
    if (!w->busy_since_ms)
        w->busy_since_ms = now;
    w->still_busy = now - w->busy_since_ms < w->busy_ms;
    return w->still_busy;
}

static int fake_bounds(struct sched *s, uint32_t min, uint32_t max, int64_t cost_ms, struct err *e)
{
    struct world *w = the_world;
    (void)s;
    (void)e;
    if (cost_ms > 0)
        return buf_addf(&w->bounds, "%u:%u..%u costs %lld ", w->sched->epoch, min, max,
                        (long long)cost_ms);
    return buf_addf(&w->bounds, "%u:%u..%u ", w->sched->epoch, min, max);
}

static int fake_outlook(struct sched *s, int64_t min_ms, int64_t max_ms, struct err *e)
{
    struct world *w = the_world;
    (void)s;
    (void)min_ms;
    (void)e;
    w->n_outlooks++;
    w->ends_in_ms = max_ms;
    for (unsigned i = 0; i < w->n_boxes; i++)
        if (w->boxes[i].running && w->boxes[i].until_outlook)
            loop_timer_set(w->boxes[i].work, clock_mono_ms());
    return 0;
}

struct sched_ops world_sched_ops = {
    .name = "world",
    .open = fake_open,
    .request = fake_request,
    .release = fake_release,
    .launch = fake_launch,
    .stop = fake_stop,
    .bounds = fake_bounds,
    .outlook = fake_outlook,
    .fate = fake_fate,
    .finish = fake_finish,
    .busy = fake_busy,
    .close = fake_close,
};
static struct fake the_fake = { .ops = &world_sched_ops };

/* ---- life ---- */

void world_sched_init(struct world *w)
{
    the_world = w;
    w->pump = loop_timer_new(w->loop, on_pump, w);
    w->fate_timer = loop_timer_new(w->loop, fate_is_known, w);
}

void world_sched_done(struct world *w)
{
    loop_timer_free(TAKE(w->pump));
    loop_timer_free(TAKE(w->fate_timer));
    the_world = NULL;
}
