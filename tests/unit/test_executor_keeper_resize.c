/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper of a job that is resized: what it wants of the pool, grants, and gives back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/util.h"
#include "node_world.h"
#include "storage/gpulock.h"

enum { LONG_MS = 60000 };

/* The state for which UNTIL waits: the conditions of world_until() take no argument. */
static struct {
    uint64_t mib;
    uint32_t heard, n;
    int slot;
} wait_for;

static bool holds_mib(struct world *w)
{
    return w->holds.memory_mib == wait_for.mib;
}

static bool has_heard(struct world *w)
{
    return w->holds.heard == wait_for.heard;
}

static bool wants_n(struct world *w)
{
    return w->holds.wants_n == wait_for.n;
}

static bool has_max(struct world *w)
{
    return w->holds.max_containers == wait_for.n;
}

static bool end_known(struct world *w)
{
    return (w->holds.ends_late_ms > 0) == (wait_for.n > 0);
}

static bool has_cost(struct world *w)
{
    return w->holds.cost_ms == wait_for.n;
}

static bool slot_granted(struct world *w)
{
    return w->slots[wait_for.slot].granted;
}

static bool slot_refused(struct world *w)
{
    return w->slots[wait_for.slot].refused;
}

static bool slot_completed(struct world *w)
{
    return w->slots[wait_for.slot].completed;
}

static bool is_cancelled(struct world *w)
{
    return w->cancelled == wait_for.n;
}

static bool has_wishes(struct world *w)
{
    return w->n_wishes == (int)wait_for.n;
}

/* A process has no environment for a moment, while it becomes another program. */
static bool tasks_alive(struct world *w)
{
    return world_tasks_alive(w) == (int)wait_for.n;
}

#define UNTIL(condition, field, value)                                                             \
    do {                                                                                           \
        wait_for.field = (value);                                                                  \
        assert_true(world_until(w, condition, LONG_MS));                                           \
    } while (0)

/* A keeper that may hold 100 MiB, and two containers of 40 that run; the pool is connected. */
static struct world *running_job(const char *args)
{
    struct world *w = world_new(args);
    w->command = "exec sleep 1000";
    world_register(w, 1);
    world_listen(w);
    world_pool_dial(w);
    world_ask(w, 2, 40, 0);
    world_launch(w, 2);
    assert_true(world_until(w, all_started, LONG_MS));
    return w;
}

static const struct world_wants four[] = {
    { 0, 40, 0 }, { 1, 40, 0 }, { 200, 40, 0 }, { 250, 40, 0 }
};

/* The answer to the asks before it: what was sent earlier has been handled. */
static void after_cancel(struct world *w, uint32_t number)
{
    world_cancel(w, 77, number);
    UNTIL(is_cancelled, n, number);
}

/* Until the wall clock shows a later time than this. */
static void clock_passes(int64_t wall_ms)
{
    int64_t deadline = clock_mono_ms() + LONG_MS;
    while (clock_wall_ms() <= wall_ms && clock_mono_ms() < deadline)
        (void)poll(NULL, 0, 1);
    assert_true(clock_wall_ms() > wall_ms);
}

static void end_job(struct world *w)
{
    world_finish(w, "SUCCEEDED");
    assert_int_equal(world_wait_keeper(w, LONG_MS), 0);
    world_free(w);
}

static void grows_when_the_pool_has_room(void **state)
{
    (void)state;
    struct world *w = running_job("--memory-mib 100");
    assert_int_equal(w->holds.memory_mib, 100);
    assert_int_equal(w->holds.wants_n, 0);
    world_want(w, four, 4);
    world_request(w, &four[2], 2);
    UNTIL(wants_n, n, 4);
    assert_int_equal(w->holds.memory_mib, 100); /* it has not more than it was given */
    assert_int_equal(w->holds.wants_mib, 160);
    after_cancel(w, 1);
    assert_false(w->slots[200].granted || w->slots[200].refused);
    world_admit(w, 1, 160, NULL, 0);
    UNTIL(slot_granted, slot, 250);
    assert_true(w->slots[200].granted);
    UNTIL(has_heard, heard, 1);
    assert_int_equal(w->holds.memory_mib, 160);
    /* an offer of more than it wants is taken as far as it wants */
    world_admit(w, 2, 500, NULL, 0);
    UNTIL(has_heard, heard, 2);
    assert_int_equal(w->holds.memory_mib, 160);
    end_job(w);
}

static void ended_containers_are_given_back(void **state)
{
    (void)state;
    struct world *w = running_job("--memory-mib 100");
    world_want(w, four, 1);
    UNTIL(wants_n, n, 1);
    UNTIL(holds_mib, mib, 80); /* the other container still runs */
    world_stop_container(w, 1, 0);
    UNTIL(slot_completed, slot, 1);
    UNTIL(holds_mib, mib, 40);
    world_admit(w, 1, 100, NULL, 0); /* one that was on its way, of a wish before */
    UNTIL(has_heard, heard, 1);
    assert_int_equal(w->holds.memory_mib, 40);
    end_job(w);
}

static void a_demand_is_withdrawn(void **state)
{
    (void)state;
    struct world *w = running_job("--memory-mib 80");
    world_want(w, four, 4);
    world_request(w, &four[2], 2);
    UNTIL(wants_n, n, 4);
    world_cancel(w, 200, 1);
    world_cancel(w, 250, 2);
    world_want(w, four, 2);
    UNTIL(wants_n, n, 2);
    world_admit(w, 1, 160, NULL, 0);
    UNTIL(has_heard, heard, 1);
    assert_int_equal(w->holds.memory_mib, 80);
    assert_false(w->slots[200].granted);
    end_job(w);
}

/* Only what needs more than there is: a container that comes in place of another is granted. */
static void a_demand_above_the_machine_is_refused(void **state)
{
    (void)state;
    struct world *w = running_job("--memory-mib 80");
    world_want(w, four, 4);
    world_request(w, &four[2], 1);
    UNTIL(wants_n, n, 4);
    world_refuse(w, 1, 7, "of another wish");
    UNTIL(has_heard, heard, 1);
    after_cancel(w, 1);
    assert_false(w->slots[200].refused);
    world_refuse(w, 2, w->holds.wants_number, "the machine is too small");
    UNTIL(slot_refused, slot, 200);
    assert_string_equal(w->why, "the machine is too small");
    world_request(w, &four[3], 1); /* one that comes later */
    UNTIL(slot_refused, slot, 250);
    w->slots[1].granted = false;
    world_stop_container(w, 1, 0);
    UNTIL(slot_completed, slot, 1);
    world_request(w, &four[1], 1);
    UNTIL(slot_granted, slot, 1);
    /* another wish is another question */
    world_want(w, four, 3);
    world_request(w, &four[2], 1);
    UNTIL(wants_n, n, 3);
    world_admit(w, 3, 120, NULL, 0);
    UNTIL(slot_granted, slot, 200);
    end_job(w);
}

/* The master asks for the containers of a later stage when that stage comes. It hears of the
 * refusal at once, through the slot with the highest number, and once. */
static void a_demand_of_a_later_stage_is_refused(void **state)
{
    (void)state;
    struct world *w = running_job("--memory-mib 80");
    world_want(w, four, 4);
    UNTIL(wants_n, n, 4);
    world_refuse(w, 1, w->holds.wants_number, "the machine is too small");
    UNTIL(slot_refused, slot, 250);
    assert_string_equal(w->why, "the machine is too small");
    w->slots[250].refused = false;
    world_request(w, &four[2], 1); /* refused as usual */
    UNTIL(slot_refused, slot, 200);
    after_cancel(w, 1);
    assert_false(w->slots[250].refused);
    end_job(w);
}

/* The master has sent an ask for the slot that the refusal names, before it heard of the refusal.
 * The ask fits, so it is granted. The master ignores the refusal of that slot, and hears of
 * another. */
static void a_refusal_crosses_a_request_for_its_slot(void **state)
{
    (void)state;
    struct world *w = running_job("--memory-mib 120");
    world_want(w, four, 4);
    UNTIL(wants_n, n, 4);
    world_refuse(w, 1, w->holds.wants_number, "the machine is too small");
    UNTIL(slot_refused, slot, 250);
    w->slots[250].refused = false;
    world_request(w, &four[3], 1);
    UNTIL(slot_granted, slot, 250);
    after_cancel(w, 1);
    assert_true(w->slots[200].refused);
    assert_false(w->slots[250].refused);
    w->slots[200].refused = false;
    world_request(w, &four[2], 1); /* it does not fit */
    UNTIL(slot_refused, slot, 200);
    end_job(w);
}

/* A large ask in front holds up the small ones behind it, until it is taken back. */
static void requests_are_withdrawn(void **state)
{
    (void)state;
    struct world *w = running_job("--memory-mib 100");
    struct world_wants asks[] = { { 5, 60, 0 }, { 6, 20, 0 } };
    world_request(w, asks, 2);
    after_cancel(w, 1);
    assert_false(w->slots[6].granted);
    world_cancel(w, 5, 2);
    UNTIL(slot_granted, slot, 6);
    UNTIL(is_cancelled, n, 2);
    world_cancel(w, 6, 3); /* granted and not launched: its room is free again */
    UNTIL(is_cancelled, n, 3);
    world_cancel(w, 0, 4); /* what runs, runs on */
    UNTIL(is_cancelled, n, 4);
    struct world_wants again = { 7, 20, 0 };
    world_request(w, &again, 1);
    UNTIL(slot_granted, slot, 7);
    UNTIL(tasks_alive, n, 2);
    end_job(w);
}

static bool is_free(const struct world *w, int gpu)
{
    return !gpulock_is_held(w->dir, (uint32_t)gpu);
}

static void gpus_come_and_go(void **state)
{
    (void)state;
    struct world *w = world_new("--memory-mib 100 --gpus 1");
    world_register(w, 1);
    world_pool_dial(w);
    world_ask(w, 1, 10, 1);
    char path[200];
    snprintf(path, sizeof path, "%s/tony-gpu-3-other", w->dir);
    int other = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* another user's pool */
    assert_int_equal(flock(other, LOCK_EX), 0);
    struct world_wants three[] = { { 0, 10, 1 }, { 1, 10, 1 }, { 2, 10, 1 } };
    world_want(w, three, 3);
    world_request(w, &three[1], 2);
    UNTIL(wants_n, n, 3);
    world_admit(w, 1, 100, (uint32_t[]){ 1, 2, 3 }, 3);
    UNTIL(has_heard, heard, 1);
    assert_int_equal(w->holds.n_gpus, 2); /* one that is locked is not taken */
    UNTIL(slot_granted, slot, 1);
    assert_int_equal(w->slots[1].gpus[0], 2);
    assert_false(w->slots[2].granted || is_free(w, 2));
    close(other);
    world_admit(w, 2, 100, (uint32_t[]){ 1, 2, 3 }, 3);
    UNTIL(slot_granted, slot, 2);
    assert_int_equal(w->slots[2].gpus[0], 3);
    assert_false(is_free(w, 3));
    world_want(w, three, 1);
    UNTIL(wants_n, n, 1);
    assert_int_equal(w->holds.n_gpus, 3); /* they are in use */
    world_cancel(w, 1, 1);
    UNTIL(is_cancelled, n, 1);
    UNTIL(holds_mib, mib, 20);
    assert_int_equal(w->holds.n_gpus, 2);
    assert_true(is_free(w, 2));
    assert_false(is_free(w, 1) || is_free(w, 3));
    end_job(w);
}

/* A new pool is told what the job holds and wants, and nothing that the old one sent counts. */
static void a_new_pool(void **state)
{
    (void)state;
    struct world *w = running_job("--memory-mib 80");
    world_want(w, four, 4);
    world_request(w, &four[2], 2);
    UNTIL(wants_n, n, 4);
    world_admit(w, 1, 120, NULL, 0);
    UNTIL(slot_granted, slot, 200);
    UNTIL(holds_mib, mib, 120);
    int64_t since = w->holds.wants_since_ms;
    assert_true(since > 0);
    clock_passes(since); /* a keeper that counts again would tell a later time */
    struct link old = w->pool;
    w->pool = (struct link){ .fd = -1 };
    world_pool_dial(w);
    assert_int_equal(w->holds.memory_mib, 120);
    assert_int_equal(w->holds.wants_mib, 160);
    assert_int_equal(w->holds.heard, 0);
    assert_true(w->holds.wants_since_ms == since); /* its place in the queue stays */
    struct link new = w->pool;
    w->pool = old;
    world_admit(w, 2, 160, NULL, 0);
    world_wish(w, true, 4, 60000); /* of the same connection: the keeper reads it after the Admit */
    old = w->pool;
    w->pool = new;
    UNTIL(has_wishes, n, 1);
    assert_false(w->slots[250].granted);
    world_admit(w, 1, 160, NULL, 0);
    UNTIL(slot_granted, slot, 250);
    link_close(&old);
    end_job(w);
}

static void the_pool_asks_for_a_resize(void **state)
{
    (void)state;
    struct world *w = running_job("--memory-mib 80");
    world_wish(w, false, 1, 600000);
    UNTIL(has_wishes, n, 1);
    assert_int_equal(w->wish_n, 1);
    assert_false(w->wish_grows);
    assert_in_range(w->wish_ms, 1, 600000);
    assert_string_equal(w->why, "others wait");
    /* a master that is started again is told, with what is left of the time */
    world_drop_master(w);
    world_listen(w);
    world_register(w, 1);
    UNTIL(has_wishes, n, 2);
    assert_in_range(w->wish_ms, 1, 600000);
    /* when the job was resized, it is over with */
    world_want(w, four, 1);
    UNTIL(wants_n, n, 1);
    world_drop_master(w);
    world_listen(w);
    world_register(w, 1);
    world_wish(w, true, 9, UINT64_MAX);
    UNTIL(has_wishes, n, 3);
    assert_true(w->wish_grows);
    assert_int_equal(w->wish_n, 9);
    end_job(w);
}

/* The keeper tells the pool how the job may be resized, and repeats it to the next pool. */
static void the_bounds_of_the_job(void **state)
{
    (void)state;
    struct world *w = running_job("--memory-mib 80");
    assert_int_equal(w->holds.max_containers, 0);
    world_bounds(w, 1, 7);
    UNTIL(has_max, n, 7);
    assert_int_equal(w->holds.min_containers, 1);
    world_bounds(w, 3, 4000000000);
    UNTIL(has_max, n, 4000000000);
    assert_int_equal(w->holds.min_containers, 3);
    assert_int_equal(w->holds.cost_ms, -1);
    world_cost(w, 3, 4000000000, 14000);
    UNTIL(has_cost, n, 14000);
    world_drop_master(w); /* they stay until the next master sends others */
    world_listen(w);
    w->holds.max_containers = 0;
    world_pool_dial(w);
    UNTIL(has_max, n, 4000000000);
    assert_int_equal(w->holds.cost_ms, 14000);
    world_register(w, 1);
    world_bounds(w, 2, 2);
    UNTIL(has_max, n, 2);
    assert_int_equal(w->holds.min_containers, 2);
    end_job(w);
}

/* The keeper tells the pool when the job will end, as times of the clock that both have. */
static void the_end_of_the_job(void **state)
{
    (void)state;
    struct world *w = running_job("--memory-mib 80");
    int64_t before = clock_mono_ms();
    world_outlook(w, true, 60000, 90000);
    UNTIL(end_known, n, 1);
    int64_t late = w->holds.ends_late_ms;
    assert_in_range(late, before + 90000, clock_mono_ms() + 90000);
    assert_int_equal(w->holds.ends_early_ms, late - 30000);
    world_drop_master(w);
    world_listen(w);
    w->holds.ends_late_ms = 0;
    world_pool_dial(w);
    UNTIL(end_known, n, 1);
    assert_int_equal(w->holds.ends_late_ms, late);
    world_register(w, 1);
    world_outlook(w, false, 0, 0);
    UNTIL(end_known, n, 0);
    end_job(w);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_teardown(fn, world_teardown)
    const struct CMUnitTest tests[] = {
        TEST(grows_when_the_pool_has_room),
        TEST(ended_containers_are_given_back),
        TEST(the_bounds_of_the_job),
        TEST(the_end_of_the_job),
        TEST(a_demand_is_withdrawn),
        TEST(a_demand_above_the_machine_is_refused),
        TEST(a_demand_of_a_later_stage_is_refused),
        TEST(a_refusal_crosses_a_request_for_its_slot),
        TEST(requests_are_withdrawn),
        TEST(gpus_come_and_go),
        TEST(a_new_pool),
        TEST(the_pool_asks_for_a_resize),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
