/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stops a task that runs in containers of podman or docker, one for each rank. The *engine* of a
 * rank is the process `podman run` or `docker run`; it exits when its container has ended. The
 * executor sends TERM to the processes in the container itself: engine_signal() says why.
 */
#include <signal.h>

#include "base/clock.h"
#include "executor/engine.h"
#include "executor/executor_int.h"

enum { LOOK_MS = 50 };

static uint32_t n_engines(const struct attempt *a)
{
    return a->ranks ? a->n_ranks : 1;
}

/* The engine of this rank; 0 = it has exited. */
static pid_t engine_of(const struct attempt *a, uint32_t rank)
{
    if (a->ranks)
        return a->ranks[rank].exited ? 0 : a->ranks[rank].pid;
    return a->exited ? 0 : a->pid;
}

/* Have the processes of the command of this rank got TERM? */
static bool *told_of(struct attempt *a, uint32_t rank)
{
    return a->ranks ? &a->ranks[rank].told : &a->told;
}

/* Send TERM to the command of this rank, unless it has got it. If there is no container yet, the
 * first call sends TERM to the engine, so that it starts none. Returns true if the container runs,
 * or may still be started. */
static bool tell(struct executor *x, uint32_t rank, bool first_time)
{
    struct attempt *a = &x->a;
    bool *told = told_of(a, rank);
    pid_t engine = engine_of(a, rank);
    if (!*told)
        *told = engine_signal(x, rank, SIGTERM, false) > 0;
    if (*told && engine)
        return true; /* the engine exits when the container has ended */
    if (engine_has_container(x, rank))
        return true;
    if (first_time && engine) {
        a->engine_gave_up = true;
        (void)kill(engine, SIGTERM);
    }
    return engine != 0;
}

/* Returns when to look again; 0 = nothing is left to wait for. */
static int64_t tell_all(struct executor *x, bool first_time)
{
    struct attempt *a = &x->a;
    bool any_left = false, must_look = false;
    for (uint32_t rank = 0; rank < n_engines(a); rank++) {
        bool left = tell(x, rank, first_time);
        any_left |= left;
        must_look |= left && (!*told_of(a, rank) || !engine_of(a, rank));
    }
    if (!any_left)
        return 0;
    return must_look ? clock_mono_ms() + LOOK_MS : INT64_MAX;
}

int64_t engine_stop(struct executor *x)
{
    return tell_all(x, true);
}

int64_t engine_stop_again(struct executor *x)
{
    return tell_all(x, false);
}
