/* SPDX-License-Identifier: Apache-2.0 */
/* Start and end of the keeper: its locks, its masters, its pools. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "node_world.h"
#include "storage/gpulock.h"

enum { LONG_MS = 60000 };

static int count_lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static const char *masters(struct world *w)
{
    return world_read(w, "../../masters");
}

static pid_t child_of(pid_t pid)
{
    char path[64];
    pid_t child = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%d", &child) != 1)
        child = 0;
    if (f)
        fclose(f);
    return child;
}

static bool is_refused(struct world *w)
{
    return strcmp(w->state, "REFUSED") == 0;
}

static void the_masters_process(void **state)
{
    (void)state;
    struct world *w = world_new("");
    for (int i = 1; i <= 3; i++) {
        for (int t = 0; t < 4000 && count_lines(masters(w)) < i; t++)
            usleep(5000);
        assert_int_equal(count_lines(masters(w)), i);
        usleep(20000);
        kill(child_of(w->keeper), SIGKILL);
    }
    for (int t = 0; t < 4000 && count_lines(masters(w)) < 4; t++)
        usleep(5000);
    AUTO(free_p)
    char *four = str_printf("--epoch 1 %s\n--epoch 2 %s\n--epoch 3 %s\n--epoch 4 %s\n", w->app,
                            w->app, w->app, w->app);
    assert_string_equal(masters(w), four);
    /* a master of an older epoch is refused */
    assert_int_equal(link_dial(&w->link, w->socket_k), 0);
    Tony__RegisterMaster m = TONY__REGISTER_MASTER__INIT;
    m.epoch = 3;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_REGISTER_MASTER;
    f.register_master = &m;
    (void)link_send(&w->link, &f);
    assert_true(world_until(w, is_refused, LONG_MS));
    link_close(&w->link);
    world_register(w, 4);
    world_end_well(w);
}

/* Clients that wait for the end of the job keep connections open. They neither keep a new master
 * away nor make the keeper spin. */
static void many_silent_connections(void **state)
{
    enum { N = 200 };
    struct link idle[N];
    (void)state;
    struct world *w = world_new("");
    for (int t = 0; t < 4000 && count_lines(masters(w)) < 1; t++)
        usleep(5000);
    world_register(w, 1);
    for (int i = 0; i < N; i++)
        while (link_dial(&idle[i], w->socket_k) < 0)
            usleep(1000); /* the queue of the socket is full for a moment */
    world_drop_master(w);
    kill(child_of(w->keeper), SIGKILL);
    for (int t = 0; t < 4000 && count_lines(masters(w)) < 2; t++)
        usleep(5000);
    world_register(w, 2);
    struct timespec before, after;
    clockid_t cpu;
    assert_int_equal(clock_getcpuclockid(w->keeper, &cpu), 0);
    clock_gettime(cpu, &before);
    usleep(300000);
    clock_gettime(cpu, &after);
    assert_true((after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec <
                100000000L);
    world_end_well(w);
    for (int i = 0; i < N; i++)
        link_close(&idle[i]);
}

static void touch(struct world *w, const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", w->home, name);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static bool is_master_failed(struct world *w)
{
    return strcmp(w->state, "MASTER_FAILED") == 0;
}

static void a_master_that_always_exits(void **state)
{
    static const struct {
        const char *flag;
        int n_masters;
    } rows[] = { { "die", 5 }, { "final", 1 } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct world *w = world_new(NULL);
        touch(w, rows[i].flag);
        world_start_keeper(w, "");
        if (i == 0)
            world_pool_dial(w);
        assert_int_equal(world_wait_keeper(w, LONG_MS), 4);
        if (i == 0) {
            assert_true(world_until(w, is_master_failed, LONG_MS));
            assert_false(w->finished);
        }
        assert_int_equal(count_lines(masters(w)), rows[i].n_masters);
        assert_int_equal(access(w->job_dir, F_OK), 0); /* the pool removes it */
        assert_int_equal(access(w->socket_k, F_OK), -1);
        assert_int_equal(access(w->lock, F_OK), -1);
        world_free(w);
    }
}

/* The control groups of the job; "" = none. The caller frees the text. */
static char *groups(struct world *w)
{
    char *text = str_dup(world_read(w, "cgroups"));
    assert_non_null(text);
    return text;
}

static void assert_no_groups(const char *list)
{
    struct span rest = span_of(list), line;
    while (rest.len && span_split(&rest, '\n', &line)) {
        AUTO(free_p) char *dir = span_dup(line);
        if (dir[0] && access(dir, F_OK) == 0)
            fail_msg("control group '%s' is left", dir);
    }
}

static void the_keeper_is_told_to_end(void **state)
{
    char path[300];
    (void)state;
    for (int by_pool = 0; by_pool < 2; by_pool++) {
        struct world *w = world_new("");
        w->command = "setsid sleep 100 & trap '' TERM; while :; do sleep 0.1; done";
        world_pool_dial(w);
        world_register(w, 1);
        world_listen(w);
        world_ask(w, 3, 64, 0);
        world_launch(w, 3);
        assert_true(world_until(w, all_started, LONG_MS));
        AUTO(free_p) char *had = groups(w);
        if (by_pool) {
            Tony__KillJob m = TONY__KILL_JOB__INIT;
            Tony__Frame f = TONY__FRAME__INIT;
            f.body_case = TONY__FRAME__BODY_KILL_JOB;
            f.kill_job = &m;
            (void)link_send(&w->pool, &f);
        } else {
            kill(w->keeper, SIGTERM);
        }
        assert_int_equal(world_wait_keeper(w, LONG_MS), 4);
        assert_int_equal(world_tasks_alive(w), 0);
        /* Keeper, master, the master's exit, containers. */
        assert_int_equal(count_lines(world_read(w, "exits")), 2 + 1 + 3);
        /* the job's directory is kept, takes no room, and blocks no other job */
        snprintf(path, sizeof path, "%s/containers", w->job_dir);
        assert_int_equal(access(path, F_OK), -1);
        snprintf(path, sizeof path, "%s/cgroups", w->job_dir);
        assert_int_equal(access(path, F_OK), -1);
        assert_no_groups(had);
        assert_int_equal(access(w->socket_k, F_OK), -1);
        assert_int_equal(access(w->socket_m, F_OK), -1);
        assert_int_equal(access(w->lock, F_OK), -1);
        world_free(w);
    }
}

static bool first_completed(struct world *w)
{
    return w->slots[0].completed;
}

/* Waits until this file of the job contains a pid. */
static pid_t await_pid(struct world *w, const char *pattern)
{
    char full[400];
    int64_t until = clock_mono_ms() + LONG_MS;
    snprintf(full, sizeof full, "%s%s%s", pattern[0] == '/' ? "" : w->job_dir,
             pattern[0] == '/' ? "" : "/", pattern);
    for (;;) {
        glob_t found = { 0 };
        pid_t pid = 0;
        if (glob(full, 0, NULL, &found) == 0)
            pid = (pid_t)strtol(world_read(w, found.gl_pathv[0]), NULL, 10);
        globfree(&found);
        if (pid > 0)
            return pid;
        if (clock_mono_ms() > until)
            fail_msg("no process wrote '%s'", full);
        (void)world_until(w, never, 5);
    }
}

/* A zombie counts as dead: its parent may reap it late. */
static bool is_dead(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    AUTO(buf_done) struct buf text = { 0 };
    if (fs_read(AT_FDCWD, path, &text, NULL) < 0 || text.len == 0)
        return true;
    const char *name_end = strrchr(buf_cstr(&text), ')');
    return name_end && (name_end[2] == 'Z' || name_end[2] == 'X');
}

static void await_death(struct world *w, pid_t pid)
{
    for (int64_t until = clock_mono_ms() + LONG_MS; !is_dead(pid);) {
        if (clock_mono_ms() > until)
            fail_msg("process %d lives", pid);
        (void)world_until(w, never, 2);
    }
}

/* kill -9 of the keeper: all processes of the job die. The next keeper knows which containers had
 * ended, and continues their numbers. */
static void keeper_killed_once(const char *cgroups)
{
    setenv("TONY_CGROUPS", cgroups, 1);
    struct world *w = world_new("");
    w->command =
        "[ $TASK_INDEX = 0 ] && exit 4; setsid sh -c 'setsid sleep 100 & sleep 100' & "
        "[ $TASK_INDEX = 1 ] && env -i setsid sh -c 'echo $$ > nameless; exec sleep 100' & "
        "sleep 100";
    world_register(w, 1);
    world_listen(w);
    world_ask(w, 3, 64, 0);
    world_launch(w, 3);
    assert_true(world_until(w, all_started, LONG_MS));
    assert_true(world_until(w, first_completed, LONG_MS));
    pid_t nameless = await_pid(w, "containers/*_000002/nameless");
    AUTO(free_p) char *had = groups(w);
    kill(w->keeper, SIGKILL);
    assert_int_equal(world_wait_keeper(w, LONG_MS), 1009);
    world_drop_master(w);
    w->slots[0].completed = false;
    world_start_keeper(w, "");
    unsetenv("TONY_CGROUPS");
    assert_int_equal(world_tasks_alive(w), 0); /* also daemons of the dead keeper's tasks */
    /* A process without the job in its environment is found only through its control group. */
    if (had[0])
        assert_true(is_dead(nameless));
    else
        (void)kill(nameless, SIGKILL); /* the pool would reap it; here it is a child of the test */
    world_register(w, 2);
    assert_int_equal(w->n_registered, 1);
    assert_int_equal(w->n_registered_done, 1);
    assert_int_equal(w->slots[0].exit_status, 4);
    world_listen(w);
    w->command = "true";
    for (int i = 0; i < 3; i++)
        w->slots[i] = (struct world_slot){ .link.fd = -1 };
    world_ask(w, 3, 64, 0);
    AUTO(free_p) char *third = str_printf("container%s_02_000003", strchr(w->app, '_'));
    assert_string_equal(w->slots[2].container, third);
    world_launch(w, 3);
    assert_true(world_until(w, all_completed, LONG_MS));
    world_end_well(w);
}

static void keeper_killed(void **state)
{
    (void)state;
    keeper_killed_once("");
    keeper_killed_once("none");
}

static void second_keeper_is_refused(void **state)
{
    (void)state;
    struct world *w = world_new("");
    pid_t first = w->keeper;
    world_start_keeper(w, "");
    assert_int_equal(world_wait_keeper(w, LONG_MS), 5);
    w->keeper = first;
    world_register(w, 1);
    world_end_well(w);
}

static void gpus_are_locked(void **state)
{
    char args[200];
    (void)state;
    struct world *w = world_new(NULL);
    snprintf(args, sizeof args, "--gpus 0,1 --gpu-locks %s", w->dir);
    char lock[128];
    snprintf(lock, sizeof lock, "%s/tony-gpu-1-other", w->dir);
    int fd = open(lock, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    world_start_keeper(w, args);
    assert_int_equal(world_wait_keeper(w, LONG_MS), 3);
    assert_non_null(strstr(world_read(w, "keeper.log"), "GPU 1 is used by another job"));
    close(fd);
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(symlink("/etc/passwd", lock), 0);
    world_start_keeper(w, args); /* a symbolic link is no claim */
    world_register(w, 1);
    world_end_well(w);
}

static int pools_before;

static const char *pools(struct world *w)
{
    char path[200];
    snprintf(path, sizeof path, "%s/pools", w->home); /* the job may already be over */
    return world_read(w, path);
}

static bool another_pool(struct world *w)
{
    return count_lines(pools(w)) > pools_before;
}

static void the_pool_is_started_again(void **state)
{
    (void)state;
    struct world *w = world_new("");
    world_register(w, 1);
    world_pool_dial(w);
    (void)world_until(w, never, 50);
    pools_before = count_lines(pools(w)); /* none, unless this test was slow */
    link_close(&w->pool);
    assert_true(world_until(w, another_pool, LONG_MS));
    const char *last = pools(w);
    for (int i = 0; i < pools_before; i++)
        last = strchr(last, '\n') + 1;
    pid_t pool = (pid_t)strtol(last, NULL, 10);
    assert_true(pool > 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pool);
    FILE *f = fopen(path, "r");
    int parent = 0;
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*d (%*[^)]) %*c %d", &parent), 1);
    fclose(f);
    assert_int_not_equal(parent, w->keeper); /* otherwise the pool would be killed as an orphan */
    world_end_well(w);
}

/* The pool dies before it can hear from the keeper, or afterwards and before it has connected. */
static void a_pool_that_dies_early(void **state)
{
    (void)state;
    for (int deaf = 0; deaf < 2; deaf++) {
        struct world *w = world_new(NULL);
        w->deaf = deaf;
        world_start_keeper(w, "");
        pools_before = 0;
        assert_true(world_until(w, another_pool, LONG_MS));
        world_register(w, 1);
        world_end_well(w);
    }
}

static bool has_spare_logs(const struct world *w)
{
    char path[300];
    snprintf(path, sizeof path, "%s/pool/spare/logs/1", w->home);
    return access(path, F_OK) == 0;
}

/* No pool is there to hear of the end, and queued jobs may wait for the resources: the keeper
 * starts a pool. It makes no log directories for a next job: it has to make the call at the end of
 * the job at once. */
static void a_job_without_a_pool_ends(void **state)
{
    (void)state;
    struct world *w = world_new("");
    world_run(w, 1, "true");
    link_close(&w->pool);
    world_finish(w, "SUCCEEDED");
    assert_int_equal(world_wait_keeper(w, LONG_MS), 0);
    assert_false(has_spare_logs(w));
    pools_before = 0;
    assert_true(world_until(w, another_pool, LONG_MS));
    world_free(w);
}

/* Empty working directories are kept for the next job; files of a task are removed. */
static void working_directories_are_kept(void **state)
{
    (void)state;
    char path[300];
    struct world *w = world_new("");
    world_run(w, 2, "[ $TASK_INDEX = 0 ] || touch mine");
    world_pool_dial(w);
    world_finish(w, "SUCCEEDED");
    assert_int_equal(world_wait_keeper(w, LONG_MS), 0);
    snprintf(path, sizeof path, "%s/pool/spare/1", w->home);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/pool/spare/2", w->home);
    assert_int_equal(access(path, F_OK), -1);
    world_free(w);
}

/* If pool/ended cannot be made, the working directories are removed where they are. */
static void directories_that_cannot_be_moved_are_removed(void **state)
{
    (void)state;
    struct world *w = world_new("");
    touch(w, "pool/ended");
    world_run(w, 2, "mkdir -p a/b; touch a/b/c");
    AUTO(free_p) char *had = groups(w);
    world_end_well(w);
    assert_no_groups(had);
}

/* The keeper reports the end before the slow clean-up. So the pool can start the next job on the
 * devices at once, and clients need not wait. */
static void the_end_is_reported_before_the_clean_up(void **state)
{
    char byte;
    struct link client;
    (void)state;
    struct world *w = world_new("--gpus 0");
    assert_true(gpulock_is_held(w->dir, 0));
    world_run(w, 1, "for i in $(seq 1000); do : > file$i; done");
    assert_int_equal(link_dial(&client, w->socket_k), 0); /* the client waits for the end */
    world_pool_dial(w);
    world_finish(w, "SUCCEEDED");
    assert_true(world_until(w, world_is_finished, LONG_MS));
    assert_int_equal(recv(client.fd, &byte, 1, MSG_DONTWAIT), 0);
    assert_false(gpulock_is_held(w->dir, 0));
    link_close(&client);
    assert_int_equal(world_wait_keeper(w, LONG_MS), 0);
    world_free(w);
}

/* If the master dies, the keeper kills also those of its children that have no mark of the job. */
static void children_of_a_dead_master_are_killed(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    touch(w, "litter");
    world_start_keeper(w, "");
    AUTO(free_p) char *path = str_printf("%s/litter", w->home);
    pid_t litter = await_pid(w, path);
    world_register(w, 1);
    world_end_well(w);
    assert_true(is_dead(litter));
}

static void pause_keeper(struct world *w)
{
    int status;
    kill(w->keeper, SIGSTOP);
    assert_int_equal(waitpid(w->keeper, &status, WUNTRACED), w->keeper);
    assert_true(WIFSTOPPED(status));
}

static bool has_master(struct world *w)
{
    return count_lines(masters(w)) > 0;
}

/* A master reports how the job ended, and is dead when the keeper reads the report. */
static void the_report_of_a_dead_master_is_read(void **state)
{
    (void)state;
    struct world *w = world_new("");
    world_pool_dial(w);
    world_register(w, 1);
    assert_true(world_until(w, has_master, LONG_MS));
    pid_t master = child_of(w->keeper);
    pause_keeper(w);
    world_finish(w, "FAILED");
    await_death(w, master);
    link_close(&w->link);
    kill(w->keeper, SIGCONT);
    assert_int_equal(world_wait_keeper(w, LONG_MS), 0);
    assert_true(world_until(w, world_is_finished, LONG_MS));
    assert_string_equal(w->state, "FAILED");
    /* The job's directory has been moved. */
    AUTO(free_p) char *path = str_printf("%s/masters", w->home);
    assert_int_equal(count_lines(world_read(w, path)), 1);
    world_free(w);
}

/* The same with a master that no longer reads: the keeper cannot write to it, but still reads its
 * report. */
static void the_report_of_a_master_that_stopped_reading(void **state)
{
    (void)state;
    struct world *w = world_new("--memory-mib 100");
    world_pool_dial(w);
    w->command = "true";
    w->hold_ack = true;
    world_register(w, 1);
    world_listen(w);
    world_ask(w, 1, 64, 0);
    world_launch(w, 1);
    assert_true(world_until(w, all_ended, LONG_MS));
    Tony__Ask ask = TONY__ASK__INIT, *asks[1] = { &ask };
    ask.slot = 1; /* this request waits for the end of the first container */
    ask.memory_mib = 64;
    Tony__RequestContainers m = TONY__REQUEST_CONTAINERS__INIT;
    m.asks = asks;
    m.n_asks = 1;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_REQUEST_CONTAINERS;
    f.request_containers = &m;
    assert_int_equal(link_send(&w->link, &f), 0);
    world_pool_dial(w); /* the keeper's answer shows that it has read the earlier frames */
    pid_t master = child_of(w->keeper), executor = w->slots[0].executor;
    pause_keeper(w);
    world_ack(w, 0, 1, true);
    await_death(w, executor);
    Tony__FinishJob end = TONY__FINISH_JOB__INIT;
    end.state = (char *)"SUCCEEDED";
    f.body_case = TONY__FRAME__BODY_FINISH_JOB;
    f.finish_job = &end;
    assert_int_equal(link_send(&w->link, &f), 0);
    link_close(&w->link);
    kill(w->keeper, SIGCONT);
    for (int64_t until = clock_mono_ms() + LONG_MS;
         !strstr(world_read(w, "exits"), "\"container\"") && clock_mono_ms() < until;)
        (void)world_until(w, never, 2);
    kill(master, SIGTERM);
    assert_int_equal(world_wait_keeper(w, LONG_MS), 0);
    assert_true(world_until(w, world_is_finished, LONG_MS));
    assert_string_equal(w->state, "SUCCEEDED");
    world_free(w);
}

/* ---- heartbeats of quiet executors ---- */

static uint64_t mark[2];

static void set_mark(struct world *w)
{
    for (int i = 0; i < 2; i++)
        mark[i] = w->slots[i].alive;
}

static bool both_are_vouched_for(struct world *w)
{
    return w->slots[0].alive >= mark[0] + 3 && w->slots[1].alive >= mark[1] + 3;
}

/* The first one is missing in ten heartbeats of the keeper. */
static bool first_is_missing(struct world *w)
{
    if (w->slots[0].alive != mark[0])
        set_mark(w);
    return w->slots[1].alive >= mark[1] + 10;
}

static bool first_beats_itself(struct world *w)
{
    return w->slots[0].beats > mark[0];
}

static void one_heartbeat_for_all_quiet_executors(void **state)
{
    (void)state;
    struct world *w = world_new("");
    w->command = "/bin/sleep 1000";
    w->heartbeat_ms = 50;
    w->quiet_ms = 200;
    world_register(w, 1);
    world_listen(w);
    world_ask(w, 2, 0, 0); /* without a limit of memory nothing has to be sampled */
    world_launch(w, 2);
    assert_true(world_until(w, all_started, LONG_MS));
    assert_true(world_until(w, both_are_vouched_for, LONG_MS));
    uint64_t own = w->slots[0].beats + w->slots[1].beats;
    set_mark(w);
    assert_true(world_until(w, both_are_vouched_for, LONG_MS));
    assert_int_equal(w->slots[0].beats + w->slots[1].beats, own);
    /* the keeper vouches for no executor that hangs */
    kill(w->slots[0].executor, SIGSTOP);
    set_mark(w);
    assert_true(world_until(w, first_is_missing, LONG_MS));
    kill(w->slots[0].executor, SIGCONT);
    set_mark(w);
    assert_true(world_until(w, both_are_vouched_for, LONG_MS));
    /* an executor that is asked sends its own */
    world_want_own_beats(w, 0);
    mark[0] = w->slots[0].beats + 3;
    assert_true(world_until(w, first_beats_itself, LONG_MS));
    set_mark(w);
    assert_true(world_until(w, first_is_missing, LONG_MS));
    world_stop_container(w, 0, 0);
    world_stop_container(w, 1, 0);
    assert_true(world_until(w, all_completed, LONG_MS));
    world_end_well(w);
}

#define TEST(f) cmocka_unit_test_teardown(f, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_masters_process),
        TEST(many_silent_connections),
        TEST(a_master_that_always_exits),
        TEST(the_keeper_is_told_to_end),
        TEST(keeper_killed),
        TEST(second_keeper_is_refused),
        TEST(gpus_are_locked),
        TEST(the_pool_is_started_again),
        TEST(a_pool_that_dies_early),
        TEST(a_job_without_a_pool_ends),
        TEST(working_directories_are_kept),
        TEST(directories_that_cannot_be_moved_are_removed),
        TEST(the_end_is_reported_before_the_clean_up),
        TEST(children_of_a_dead_master_are_killed),
        TEST(the_report_of_a_dead_master_is_read),
        TEST(the_report_of_a_master_that_stopped_reading),
        TEST(one_heartbeat_for_all_quiet_executors),
    };
    if (getenv("ONLY"))
        cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
