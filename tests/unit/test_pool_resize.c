/* SPDX-License-Identifier: Apache-2.0 */
/* The pool and resized jobs: running jobs, through their keepers, and waiting jobs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "codec/json.h"
#include "loop/loop.h"
#include "pool_world.h"

/* ---- observations ---- */

static char *job_text(const struct world *w, const char *id, const char *name)
{
    AUTO(free_p) char *dir = paths_job(&w->paths, id);
    AUTO(free_p) char *path = fs_join(dir, name);
    struct buf text = { 0 };
    (void)fs_read(AT_FDCWD, path, &text, NULL);
    char *s = str_dup(buf_cstr(&text));
    buf_done(&text);
    return s;
}

/* Waits until the job's file begins with this text. */
static void await_text(struct world *w, const char *id, const char *name, const char *want)
{
    int64_t deadline = clock_mono_ms() + DEADLINE_MS;
    for (;;) {
        AUTO(free_p) char *is = job_text(w, id, name);
        if (str_starts(is, want))
            return;
        if (clock_mono_ms() > deadline)
            fail_msg("'%s' of %s is '%s', not '%s'", name, id, is, want);
        world_pause_ms(5);
    }
}

static int64_t used_mib(struct world *w)
{
    world_ask(w, ASK(POOL_STATUS), "", false);
    return json_int(json_object_get(w->json, "used"), "memory_mib", -1);
}

static void await_used(struct world *w, int64_t mib)
{
    int64_t deadline = clock_mono_ms() + DEADLINE_MS, is;
    while ((is = used_mib(w)) != mib) {
        if (clock_mono_ms() > deadline)
            fail_msg("%lld MiB are used, not %lld", (long long)is, (long long)mib);
        world_pause_ms(5);
    }
}

/* The place in the queue of a running job's extension; 0 = it has none. */
static int64_t await_wish(struct world *w, const char *id)
{
    int64_t deadline = clock_mono_ms() + DEADLINE_MS;
    for (;;) {
        world_ask(w, ASK(POOL_STATUS), "", false);
        const json_t *wants = json_object_get(world_find_job(w, id), "wants");
        if (wants)
            return json_int(wants, "place", -1);
        if (clock_mono_ms() > deadline)
            fail_msg("job %s wants nothing", id);
        world_pause_ms(5);
    }
}

static const char *state_of(struct world *w, const char *id)
{
    world_ask(w, ASK(POOL_STATUS), "", false);
    return json_str(world_find_job(w, id), "state", "");
}

static void submit_running(struct world *w, struct want want, char id[APP_ID_MAX])
{
    world_submit(w, want, id);
    world_await_state(w, id, "RUNNING");
}

/* ---- a running job ---- */

static void test_grows_and_shrinks(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX];
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "30m" }, a);
    world_tell_keeper(w, a, "want 80 0");
    await_text(w, a, "holds", "80 ");
    assert_int_equal(used_mib(w), 80);
    await_text(w, a, "admitted", "{\"memory_mib\":80,");
    world_submit(w, (struct want){ .memory = "50m" }, b);
    assert_string_equal(state_of(w, b), "WAITING");
    world_tell_keeper(w, a, "want 20 0"); /* queued jobs are admitted into what it gives back */
    world_await_state(w, b, "RUNNING");
    assert_int_equal(used_mib(w), 70);
    await_text(w, a, "admitted", "{\"memory_mib\":20,");
}

/* An extension waits behind the jobs that came before it, and before those that came later. */
static void test_waits_its_turn(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX], c[APP_ID_MAX], d[APP_ID_MAX], late[APP_ID_MAX];
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "30m" }, a);
    submit_running(w, (struct want){ .memory = "50m" }, b);
    world_submit(w, (struct want){ .memory = "30m" }, c);
    world_tell_keeper(w, a, "want 60 0");
    assert_int_equal(await_wish(w, a), 2);
    submit_running(w, (struct want){ .memory = "10m", .priority = "5" }, d);
    world_submit(w, (struct want){ .memory = "10m" }, late); /* it would fit */
    world_ask(w, ASK(POOL_STATUS), "", false);
    assert_string_equal(json_str(world_find_job(w, late), "behind", ""), a);
    assert_string_equal(json_str(json_object_get(world_find_job(w, a), "wants"), "behind", ""), c);
    assert_int_equal(json_int(world_find_job(w, late), "place", 0), 3);
    world_tell_keeper(w, b, "end");
    await_text(w, a, "holds", "60 ");
    world_await_state(w, c, "RUNNING");
    assert_string_equal(state_of(w, late), "WAITING");
    assert_int_equal(used_mib(w), 100);
    world_tell_keeper(w, c, "end");
    world_await_state(w, late, "RUNNING");
}

/* An extension that was withdrawn no longer blocks other jobs. */
static void test_an_extension_is_withdrawn(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX], c[APP_ID_MAX];
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "30m" }, a);
    submit_running(w, (struct want){ .memory = "50m" }, b);
    world_tell_keeper(w, a, "want 60 0");
    assert_int_equal(await_wish(w, a), 1);
    world_submit(w, (struct want){ .memory = "20m" }, c);
    assert_string_equal(state_of(w, c), "WAITING");
    assert_string_equal(json_str(world_find_job(w, c), "behind", ""), a);
    world_tell_keeper(w, a, "want 30 0");
    world_await_state(w, c, "RUNNING");
    assert_int_equal(used_mib(w), 100);
    assert_null(json_object_get(world_find_job(w, a), "wants"));
}

static void test_more_than_the_machine(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX];
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "30m" }, a);
    world_tell_keeper(w, a, "want 101 0");
    await_text(w, a, "refused",
               "1 the job needs 101 MB of memory (101 MiB) for its new size, the pool has "
               "100 MB (100 MiB)");
    world_tell_keeper(w, a, "want 50 1");
    await_text(w, a, "refused", "2 the job needs 1 GPUs for its new size, the pool has 0");
    assert_int_equal(used_mib(w), 30);
    world_tell_keeper(w, a, "want 100 0");
    await_text(w, a, "holds", "100 ");
}

/* Until the keeper has answered, the pool counts its offer as held. */
static void test_an_unanswered_offer_counts_as_held(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX];
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "30m" }, a);
    world_tell_keeper(w, a, "be deaf");
    AUTO(free_p) char *dir = paths_job(&w->paths, a);
    AUTO(free_p) char *word = fs_join(dir, "do");
    for (int i = 0; i < 10000 && access(word, F_OK) == 0; i++)
        world_pause_ms(5);
    world_tell_keeper(w, a, "want 80 0");
    await_used(w, 80);
    await_text(w, a, "holds", "30 "); /* the keeper has not accepted it */
    for (int i = 0; i < 10000 && access(word, F_OK) == 0; i++)
        world_pause_ms(5);
    world_tell_keeper(w, a, "want 20 0"); /* the keeper's message crosses the offer */
    await_text(w, a, "holds", "20 ");
    world_submit(w, (struct want){ .memory = "50m" }, b);
    assert_string_equal(state_of(w, b), "WAITING");
    assert_int_equal(used_mib(w), 80);
    world_kill_pool(w); /* a new connection resolves that */
    world_open_pool(w);
    world_await_state(w, b, "RUNNING");
    await_used(w, 70);
}

static void test_gpus(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX], c[APP_ID_MAX];
    w->conf[1] = "tony.pool.gpus=4";
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "10m", .gpus = "1" }, a);
    submit_running(w, (struct want){ .memory = "10m", .gpus = "1" }, b);
    await_text(w, a, "holds", "10 0");
    await_text(w, b, "holds", "10 1");
    world_tell_keeper(w, a, "want 20 3");
    await_text(w, a, "holds", "20 0,2,3");
    world_submit(w, (struct want){ .memory = "10m", .gpus = "2" }, c);
    assert_string_equal(state_of(w, c), "WAITING");
    world_kill_pool(w);
    world_open_pool(w);
    assert_string_equal(state_of(w, c), "WAITING");
    world_tell_keeper(w, a, "want 20 1");
    await_text(w, c, "holds", "10 2,3");
    world_tell_keeper(w, b, "end");
    world_tell_keeper(w, a, "want 20 2");
    await_text(w, a, "holds", "20 0,1");
}

/* ---- deaths of pool and keeper ---- */

static void test_a_new_pool_knows_what_a_job_holds(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX], c[APP_ID_MAX];
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "30m" }, a);
    world_tell_keeper(w, a, "want 80 0");
    await_text(w, a, "holds", "80 ");
    world_kill_pool(w);
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "30m" }, b);
    assert_string_equal(state_of(w, b), "WAITING");
    world_await_state(w, a, "RUNNING");
    assert_string_equal(state_of(w, b), "WAITING");
    assert_int_equal(used_mib(w), 80);
    /* a keeper that asks again keeps its place before later jobs */
    world_tell_keeper(w, a, "want 75 0");
    world_await_state(w, a, "RUNNING");
    await_used(w, 75);
    world_tell_keeper(w, a, "want 99 0");
    assert_int_equal(await_wish(w, a), 2);
    world_kill_pool(w);
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "10m" }, c);
    assert_int_equal(await_wish(w, a), 2);
    assert_string_equal(json_str(world_find_job(w, c), "state", ""), "WAITING");
    assert_string_equal(json_str(world_find_job(w, c), "behind", ""), a);
}

/* A new pool must not admit the job behind an extension before it has heard of the extension. */
static void test_a_new_pool_waits_for_extensions(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX], c[APP_ID_MAX];
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "30m" }, a);
    submit_running(w, (struct want){ .memory = "50m" }, b);
    world_tell_keeper(w, a, "want 60 0");
    assert_int_equal(await_wish(w, a), 1);
    /* A new pool compares times in ms: a job of the same ms could be placed before the
     * extension. */
    for (int64_t asked = clock_wall_ms(); clock_wall_ms() == asked;)
        continue;
    world_submit(w, (struct want){ .memory = "20m" }, c);
    assert_string_equal(state_of(w, c), "WAITING");
    world_kill_pool(w);
    world_open_pool(w);
    assert_int_equal(await_wish(w, a), 1);
    assert_string_equal(json_str(world_find_job(w, c), "state", ""), "WAITING");
    assert_string_equal(json_str(world_find_job(w, c), "behind", ""), a);
    world_tell_keeper(w, b, "end");
    await_text(w, a, "holds", "60 ");
    world_await_state(w, c, "RUNNING");
}

/* A keeper does not answer a new pool: the file says what the job may hold. */
static void test_a_frozen_keeper(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX], small[APP_ID_MAX];
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "30m" }, a);
    world_tell_keeper(w, a, "want 80 0");
    await_text(w, a, "holds", "80 ");
    world_kill_pool(w);
    pid_t keeper = world_keeper_pid(w, a);
    assert_int_equal(kill(keeper, SIGSTOP), 0);
    world_open_pool(w);
    world_submit(w, (struct want){ .memory = "30m" }, b);
    world_submit(w, (struct want){ .memory = "20m", .priority = "1" }, small);
    world_await_state(w, small, "RUNNING"); /* the pool waits for it, but not for ever */
    assert_string_equal(state_of(w, b), "WAITING");
    assert_int_equal(used_mib(w), 100);
    assert_int_equal(kill(keeper, SIGCONT), 0);
    world_await_state(w, a, "RUNNING");
    assert_int_equal(used_mib(w), 100);
}

/* A waiting extension ends with its keeper, and no longer blocks other jobs. */
static void test_an_extension_ends_with_its_keeper(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX], c[APP_ID_MAX];
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "30m" }, a);
    submit_running(w, (struct want){ .memory = "50m" }, b);
    world_tell_keeper(w, a, "want 60 0");
    assert_int_equal(await_wish(w, a), 1);
    world_submit(w, (struct want){ .memory = "20m" }, c);
    assert_string_equal(state_of(w, c), "WAITING");
    world_tell_keeper(w, a, "die");
    world_await_state(w, c, "RUNNING");
    world_await_state(w, a, "RUNNING");
    assert_int_equal(used_mib(w), 100);
}

static void test_a_new_keeper_has_the_size(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX];
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "30m" }, a);
    world_tell_keeper(w, a, "want 80 0");
    await_text(w, a, "holds", "80 ");
    world_submit(w, (struct want){ .memory = "30m" }, b);
    for (int round = 0; round < 2; round++) {
        AUTO(free_p) char *dir = paths_job(&w->paths, a);
        AUTO(free_p) char *holds = fs_join(dir, "holds");
        (void)unlink(holds);
        if (round) /* and the pool, too */
            world_kill_pool(w);
        world_tell_keeper(w, a, "die");
        if (round)
            world_open_pool(w);
        await_text(w, a, "holds", "80 ");
        world_await_state(w, a, "RUNNING");
        assert_string_equal(state_of(w, b), "WAITING");
        assert_int_equal(used_mib(w), 80);
    }
    assert_int_equal(world_count_lives(w, a), 3);
}

/* ---- the pool's wish to resize ---- */

static void send_wish(struct world *w, const char *id, bool grow, uint32_t n)
{
    Tony__SizeWish wish = TONY__SIZE_WISH__INIT;
    Tony__ClientAsk ask = TONY__CLIENT_ASK__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    wish.n_containers = n;
    wish.deadline_ms = 60000;
    wish.grow = grow;
    wish.why = (char *)"others wait";
    ask.what = TONY__CLIENT_ASK__WHAT__WISH;
    ask.application_id = (char *)id;
    ask.wish = &wish;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &ask;
    world_send(w, &f);
}

static void test_wish(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX];
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "60m" }, a);
    world_submit(w, (struct want){ .memory = "60m" }, b);
    send_wish(w, a, false, 2);
    assert_non_null(w->json);
    await_text(w, a, "wish", "shrink 2 60000 others wait");
    send_wish(w, a, true, 9);
    await_text(w, a, "wish", "grow 9 60000 others wait");
    send_wish(w, b, false, 2);
    assert_int_equal(w->num, EAGAIN);
    send_wish(w, "application_1_0009", false, 2);
    assert_int_equal(w->num, ENOENT);
    world_ask(w, ASK(WISH), a, false); /* for no reason */
    assert_int_equal(w->num, EINVAL);
}

static void await_bounds(struct world *w, const char *id, int64_t min, int64_t max)
{
    for (int i = 0;; i++) {
        world_ask(w, ASK(POOL_STATUS), "", false);
        const json_t *bounds = json_object_get(world_find_job(w, id), "bounds");
        if (json_int(bounds, "min", -1) == min && json_int(bounds, "max", -1) == max)
            return;
        if (i > 2000)
            fail_msg("the bounds of job %s are not %lld and %lld", id, (long long)min,
                     (long long)max);
        world_pause_ms(5);
    }
}

/* The pool knows the bounds of a running job, and so does the next pool. */
static void test_bounds(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX];
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "60m" }, a);
    world_ask(w, ASK(POOL_STATUS), "", false);
    assert_null(json_object_get(world_find_job(w, a), "bounds"));
    world_tell_keeper(w, a, "bounds 1 4000000000");
    await_bounds(w, a, 1, 4000000000);
    world_tell_keeper(w, a, "bounds 2 5");
    await_bounds(w, a, 2, 5);
    world_kill_pool(w);
    world_open_pool(w);
    await_bounds(w, a, 2, 5);
    world_tell_keeper(w, a, "die"); /* the next keeper has not heard from a master */
    await_bounds(w, a, -1, -1);
}

static void await_outlook(struct world *w, const char *id, bool known)
{
    for (int i = 0;; i++) {
        world_ask(w, ASK(QUEUE), "", false);
        const json_t *left = json_object_get(world_find_job(w, id), "left_ms");
        if (json_is_object(left) == known)
            return;
        if (i > 2000)
            fail_msg("the end of job %s is %sknown", id, known ? "not " : "");
        world_pause_ms(5);
    }
}

/* The pool knows when a running job will end, and so does the next pool. */
static void test_outlook(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX];
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "60m" }, a);
    await_outlook(w, a, false);
    world_tell_keeper(w, a, "outlook 6000 9000");
    await_outlook(w, a, true);
    const json_t *left = json_object_get(world_find_job(w, a), "left_ms");
    assert_in_range(json_int(left, "min", -1), 5000000, 6000000);
    assert_in_range(json_int(left, "max", -1), 8000000, 9000000);
    assert_string_equal(json_str(w->json, "policy", ""), "fifo");
    world_kill_pool(w);
    world_open_pool(w);
    await_outlook(w, a, true);
    world_tell_keeper(w, a, "die"); /* the next keeper has not heard from a master */
    await_outlook(w, a, false);
}

/* ---- a waiting job ---- */

static void send_resize(struct world *w, const char *id, const char *role, uint32_t n)
{
    Tony__RoleSize one = TONY__ROLE_SIZE__INIT, *list[] = { &one };
    Tony__ResizeJob m = TONY__RESIZE_JOB__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    one.role = (char *)role;
    one.instances = n;
    m.application_id = (char *)id;
    m.who = (char *)"tester@here 1";
    m.roles = list;
    m.n_roles = role ? 1 : 0;
    f.body_case = TONY__FRAME__BODY_RESIZE_JOB;
    f.resize_job = &m;
    world_send(w, &f);
}

static void test_resize_a_waiting_job(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX], c[APP_ID_MAX];
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "60m" }, a);
    world_submit(w, (struct want){ .memory = "20m", .instances = "3" }, b);
    world_submit(w, (struct want){ .memory = "10m" }, c);
    send_resize(w, b, "worker", 5);
    assert_non_null(w->json);
    assert_true(json_is_true(json_object_get(w->json, "resized")));
    world_ask(w, ASK(STATUS), b, false);
    assert_int_equal(json_array_size(json_object_get(w->json, "tasks")), 5);
    const json_t *waiting = json_object_get(w->json, "waiting");
    assert_int_equal(json_int(json_object_get(waiting, "needs"), "memory_mib", 0), 100);
    AUTO(free_p) char *conf = job_text(w, b, "job.conf");
    assert_non_null(strstr(conf, "tony resize by tester@here 1"));

    send_resize(w, b, "worker", 2); /* now the job fits */
    assert_non_null(w->json);
    world_await_state(w, b, "RUNNING");
    await_text(w, b, "holds", "40 ");
    assert_int_equal(used_mib(w), 100);
    send_resize(w, b, "worker", 1);
    assert_int_equal(w->num, EREMOTE);
    assert_non_null(strstr(w->text, "has a master"));
    world_tell_keeper(w, a, "end");
    world_await_state(w, c, "RUNNING");
}

static void test_a_resize_that_cannot_be(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX];
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "60m" }, a);
    world_submit(w, (struct want){ .memory = "20m", .instances = "3", .max_instances = "6" }, b);
    static const struct {
        const char *role;
        uint32_t n;
        int num;
        const char *text;
    } rows[] = {
        { "worker", 6, ERANGE, "the job needs 120 MB of memory at once" },
        { "worker", 7, EINVAL, "tony.worker.max-instances is 6" },
        { "worker", 0, EINVAL, "cannot have 0 instances" },
        { "ps", 1, ENOENT, "the job has no role 'ps'" },
        { "", 1, ENOENT, "the job has no role ''" },
        { NULL, 0, EINVAL, "the request for a resize names no role" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        send_resize(w, b, rows[i].role, rows[i].n);
        if (w->num != rows[i].num || !strstr(w->text, rows[i].text))
            fail_msg("row %zu: %d '%s'", i, w->num, w->text);
    }
    send_resize(w, "application_1_0009", "worker", 2);
    assert_int_equal(w->num, ENOENT);
    world_ask(w, ASK(STATUS), b, false);
    assert_int_equal(json_array_size(json_object_get(w->json, "tasks")), 3);
    AUTO(free_p) char *dir = paths_job(&w->paths, b);
    AUTO(free_p) char *left = fs_join(dir, "job.conf.new");
    assert_int_equal(access(left, F_OK), -1);
}

static void test_a_resize_outlives_the_pool(void **state)
{
    struct world *w = *state;
    char a[APP_ID_MAX], b[APP_ID_MAX];
    world_open_pool(w);
    submit_running(w, (struct want){ .memory = "60m" }, a);
    world_submit(w, (struct want){ .memory = "20m", .instances = "3" }, b);
    send_resize(w, b, "worker", 5);
    assert_non_null(w->json);
    world_kill_pool(w);
    AUTO(free_p) char *dir = paths_job(&w->paths, b);
    AUTO(free_p) char *left = fs_join(dir, "job.conf.new"); /* from an unfinished resize */
    assert_int_equal(fs_write_atomic(AT_FDCWD, left, span_of("{"), 0600, false, NULL), 0);
    world_open_pool(w);
    world_await_state(w, a, "RUNNING");
    assert_int_equal(access(left, F_OK), -1);
    world_ask(w, ASK(STATUS), b, false);
    assert_int_equal(json_array_size(json_object_get(w->json, "tasks")), 5);
    world_tell_keeper(w, a, "end");
    await_text(w, b, "holds", "100 ");
}

int main(int argc, char **argv)
{
    int code = world_other_program(argc, argv);
    if (code >= 0)
        return code;
#define T(fn) cmocka_unit_test_setup_teardown(fn, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_grows_and_shrinks),
        T(test_waits_its_turn),
        T(test_an_extension_is_withdrawn),
        T(test_more_than_the_machine),
        T(test_an_unanswered_offer_counts_as_held),
        T(test_gpus),
        T(test_a_new_pool_knows_what_a_job_holds),
        T(test_a_new_pool_waits_for_extensions),
        T(test_a_frozen_keeper),
        T(test_an_extension_ends_with_its_keeper),
        T(test_a_new_keeper_has_the_size),
        T(test_wish),
        T(test_bounds),
        T(test_outlook),
        T(test_resize_a_waiting_job),
        T(test_a_resize_that_cannot_be),
        T(test_a_resize_outlives_the_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
