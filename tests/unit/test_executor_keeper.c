/* SPDX-License-Identifier: Apache-2.0 */
/* A real keeper with real executors: starts, ends, stops, deaths. */
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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "node_world.h"

enum { LONG_MS = 60000 };

static void exit_codes(void **state)
{
    static const struct {
        const char *command;
        int code, signal;
        Tony__Reason reason;
        int exit_status;
    } rows[] = {
        { "true", 0, 0, TONY__REASON__EXITED, 0 },
        { "/bin/false", 1, 0, TONY__REASON__EXITED, 1 },
        { "exit 3", 3, 0, TONY__REASON__EXITED, 3 },
        { "kill -9 $$", 0, 9, TONY__REASON__EXITED, 137 },
        { "kill -SEGV $$", 0, 11, TONY__REASON__EXITED, 139 },
        { "no-such-program-here", 127, 0, TONY__REASON__EXITED, 127 },
        { "   ", 127, 0, TONY__REASON__LAUNCH_FAILED, 127 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct world *w = world_new("");
        world_run(w, 1, rows[i].command);
        const struct world_slot *s = &w->slots[0];
        assert_int_equal(s->exit_code, rows[i].code);
        assert_int_equal(s->signal, rows[i].signal);
        assert_int_equal(s->reason, rows[i].reason);
        assert_int_equal(s->n_ended, 1);
        assert_int_equal(s->n_completed, 1);
        assert_int_equal(s->exit_status, rows[i].exit_status);
        assert_int_equal(s->completed_reason, rows[i].reason);
        assert_true(s->age_us < 5000000);
        world_end_well(w);
    }
}

static void a_failure_has_its_tail_and_exit_code(void **state)
{
    (void)state;
    struct world *w = world_new("");
    world_run(w, 1, "for i in 1 2 3; do echo line $i >&2; done; echo out; exit 5");
    assert_string_equal(w->slots[0].tail, "line 1\nline 2\nline 3\n");
    assert_string_equal(world_read(w, "logs/worker-0/1/stdout"), "out\n");
    assert_non_null(
        strstr(world_read(w, "exits"), "\"code\":5,\"signal\":0,\"reason\":\"exited\""));
    world_end_well(w);
}

static void environment_of_a_task(void **state)
{
    (void)state;
    setenv("TONY_STRANGE", "x", 1);
    struct world *w = world_new("--gpus 3,1,2");
    unsetenv("TONY_STRANGE");
    w->env = "MINE=yes we do";
    w->command = "env; pwd; ls -l /proc/self/fd; umask; ulimit -Sn; cat $TONY_SPEC_FILE; grep -i "
                 "-e sigign -e sigblk /proc/self/status";
    world_register(w, 1);
    world_listen(w);
    world_ask(w, 2, 64, 1);
    w->hold_start = true;
    world_launch(w, 2);
    assert_true(world_until(w, all_hello, LONG_MS));
    world_start(w, 0, 1);
    world_start(w, 1, 1);
    assert_true(world_until(w, all_completed, LONG_MS));
    const char *out = world_read(w, "logs/worker-1/1/stdout");
    char line[400];
    assert_non_null(strstr(out, "\nMINE=yes we do\n"));
    assert_non_null(strstr(out, "\nTONY_TASK=worker:1\n"));
    assert_non_null(strstr(out, "\nJOB_NAME=worker\n"));
    assert_non_null(strstr(out, "\nTASK_NUM=2\n"));
    assert_non_null(strstr(out, "\nCUDA_VISIBLE_DEVICES=1\n"));
    assert_null(strstr(out, "TONY_STRANGE"));
    assert_null(strstr(out, "TONY_HOME"));
    assert_null(strstr(out, "TB_PORT"));
    assert_non_null(strstr(out, "\n0022\n"));
    const char *ignored = strstr(out, "SigIgn:\t");
    assert_non_null(ignored);
    /* signals 32 and 33 belong to glibc: a process that was started by posix_spawn (by make, for
     * example) ignores them */
    assert_int_equal(strtoull(ignored + strlen("SigIgn:\t"), NULL, 16) & 0x7fffffff, 0);
    assert_non_null(strstr(out, "SigBlk:\t0000000000000000\n"));
    snprintf(line, sizeof line, "{\"worker\":[\"127.0.0.1:%u\",\"127.0.0.1:%u\"]}\n",
             w->slots[0].port, w->slots[1].port);
    assert_non_null(strstr(out, line));
    snprintf(line, sizeof line, "\n%s/containers/%s\n", w->job_dir, w->slots[1].container);
    assert_non_null(strstr(out, line));
    assert_null(strstr(out, " 4 -> ")); /* descriptors 0, 1, 2, and the one that ls opened */
    out = world_read(w, "logs/worker-0/1/stdout");
    assert_non_null(strstr(out, "\nCUDA_VISIBLE_DEVICES=3\n"));
    const char *tb = strstr(out, "\nTB_PORT=");
    assert_non_null(tb);
    assert_in_range(strtoul(tb + strlen("\nTB_PORT="), NULL, 10), 1024, 65535);
    assert_int_not_equal(strtoul(tb + strlen("\nTB_PORT="), NULL, 10), w->slots[0].port);
    world_end_well(w);
}

/* The task has made a file `up` in its working directory. */
static bool is_up(struct world *w)
{
    char pattern[400];
    glob_t found = { 0 };
    snprintf(pattern, sizeof pattern, "%s/containers/*/up", w->job_dir);
    bool up = glob(pattern, 0, NULL, &found) == 0;
    globfree(&found);
    return up;
}

static void a_stop_is_reported_with_its_reason(void **state)
{
    static const struct {
        const char *command;
        uint32_t grace_ms;
        Tony__Reason reason;
        int code, signal;
        int least_ms;
    } rows[] = {
        /* a test that waits for a grace longer than LONG_MS fails */
        { "touch up; exec sleep 100", 600000, TONY__REASON__KILLED_BY_MASTER, 0, 15, 0 },
        { "trap 'exit 7' TERM; touch up; while :; do sleep 0.05; done", 600000,
          TONY__REASON__PREEMPTED, 7, 0, 0 },
        { "trap '' TERM; touch up; while :; do sleep 0.05; done", 400,
          TONY__REASON__KILLED_BY_MASTER, 0, 9, 350 },
        { "touch up; exec sleep 100", 0, TONY__REASON__KILLED_BY_MASTER, 0, 9, 0 },
        /* the first process dies of TERM at once; its child uses the grace to print something */
        { "(trap 'sleep 0.2; echo bye; exit 0' TERM; touch up; while :; do sleep 0.05; done) & "
          "while ! [ -e up ]; do sleep 0.01; done; wait",
          600000, TONY__REASON__KILLED_BY_MASTER, 0, 15, 150 },
        /* a daemon in its own session is killed, too; on a busy machine the first process may need
         * seconds to die of TERM */
        { "setsid sh -c 'trap \"\" TERM; touch up; sleep 100' & sleep 100", 6000,
          TONY__REASON__KILLED_BY_MASTER, 0, 15, 250 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct world *w = world_new("");
        w->command = rows[i].command;
        world_register(w, 1);
        world_listen(w);
        world_ask(w, 1, 64, 0);
        world_launch(w, 1);
        assert_true(world_until(w, all_started, LONG_MS));
        assert_true(world_until(w, is_up, LONG_MS)); /* the process has set its traps */
        int64_t from = clock_mono_ms();
        world_stop(w, 0, rows[i].grace_ms, rows[i].reason);
        assert_true(world_until(w, all_ended, LONG_MS));
        int64_t took = clock_mono_ms() - from;
        assert_int_equal(w->slots[0].reason, rows[i].reason);
        assert_int_equal(w->slots[0].exit_code, rows[i].code);
        assert_int_equal(w->slots[0].signal, rows[i].signal);
        assert_true(took >= rows[i].least_ms);
        assert_int_equal(world_tasks_alive(w), 0);
        if (i == 4)
            assert_string_equal(world_read(w, "logs/worker-0/1/stdout"), "bye\n");
        assert_true(world_until(w, all_completed, LONG_MS));
        world_end_well(w);
    }
}

static void processes_of_a_task_end_with_it(void **state)
{
    static const char *const rows[] = {
        "setsid sleep 100 & exit 0",
        "(setsid sh -c 'sleep 100 & sleep 100' &) ; exit 0",
        "setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' >/dev/null 2>&1 & sleep "
        "0.1; exit 0",
        /* starts new processes until it is killed */
        "sh -c 'f() { setsid sleep 100 & [ -e stop ] || f; }; f' & sleep 0.05; exit 0",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct world *w = world_new("");
        w->command = rows[i];
        world_register(w, 1);
        world_listen(w);
        world_ask(w, 1, 512, 0); /* on a busy machine this task needs more than 64 MiB */
        world_launch(w, 1);
        assert_true(world_until(w, all_completed, LONG_MS));
        assert_int_equal(w->slots[0].exit_code, 0);
        assert_int_equal(w->slots[0].reason, TONY__REASON__EXITED);
        assert_int_equal(world_tasks_alive(w), 0);
        world_end_well(w);
    }
}

static void time_limit(void **state)
{
    (void)state;
    struct world *w = world_new("");
    w->execution_timeout_ms = 200;
    world_run(w, 1, "sleep 100");
    assert_int_equal(w->slots[0].reason, TONY__REASON__TIMED_OUT);
    assert_int_equal(w->slots[0].signal, 15);
    assert_non_null(strstr(w->slots[0].detail, "ran longer than"));
    world_end_well(w);
}

static void too_much_memory(void **state)
{
    static const struct {
        const char *cgroups, *command;
    } rows[] = {
        { "", "/usr/bin/python3 -c 'x = bytearray(400 << 20); import time; time.sleep(100)'" },
        /* the kernel kills the child; without tony the parent would go on */
        { "", "/usr/bin/python3 -c 'x = bytearray(400 << 20)'; echo survived; sleep 100" },
        /* only the executor checks the limit */
        { "none", "/usr/bin/python3 -c 'x = bytearray(400 << 20); import time; time.sleep(100)'; "
                  "sleep 100" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        setenv("TONY_CGROUPS", rows[i].cgroups, 1);
        struct world *w = world_new("");
        unsetenv("TONY_CGROUPS");
        world_run(w, 1, rows[i].command);
        assert_int_equal(w->slots[0].reason, TONY__REASON__OUT_OF_MEMORY);
        assert_non_null(strstr(w->slots[0].detail, "64"));
        assert_int_equal(w->slots[0].completed_reason, TONY__REASON__OUT_OF_MEMORY);
        assert_int_equal(world_tasks_alive(w), 0);
        world_end_well(w);
    }
}

/* Memory that several processes share counts once. */
static void shared_memory_counts_once(void **state)
{
    (void)state;
    setenv("TONY_CGROUPS", "none", 1);
    struct world *w = world_new("");
    unsetenv("TONY_CGROUPS");
    world_run(w, 1,
              "/usr/bin/python3 -c 'import os, time\nx = b\"x\" * (30 << 20)\n"
              "for i in range(4):\n if os.fork() == 0: time.sleep(1); os._exit(0)\ntime.sleep(1)'");
    assert_int_equal(w->slots[0].reason, TONY__REASON__EXITED);
    assert_int_equal(w->slots[0].exit_code, 0);
    world_end_well(w);
}

static bool nine_tasks(struct world *w)
{
    return world_tasks_alive(w) >= 9;
}

static void executor_killed(void **state)
{
    (void)state;
    struct world *w = world_new("");
    w->command = "setsid sleep 100 & (setsid setsid sleep 100 &); sleep 100";
    world_register(w, 1);
    world_listen(w);
    world_ask(w, 3, 64, 0);
    world_launch(w, 3);
    assert_true(world_until(w, all_started, LONG_MS));
    assert_true(world_until(w, nine_tasks, LONG_MS));
    for (int i = 0; i < 3; i++)
        kill(w->slots[i].executor, SIGKILL);
    assert_true(world_until(w, all_completed, LONG_MS));
    assert_int_equal(world_tasks_alive(w), 0); /* the processes were dead before the report */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(w->slots[i].exit_status, 137);
        assert_int_equal(w->slots[i].completed_reason, TONY__REASON__UNKNOWN);
        assert_non_null(strstr(w->slots[i].completed_detail, "signal 9"));
    }
    world_end_well(w);
}

/* The keeper reports what the executor recorded before it was killed. */
static void executor_killed_after_the_end(void **state)
{
    (void)state;
    struct world *w = world_new("");
    w->hold_ack = true;
    w->command = "exit 42";
    world_register(w, 1);
    world_listen(w);
    world_ask(w, 1, 64, 0);
    world_launch(w, 1);
    assert_true(world_until(w, all_ended, LONG_MS));
    kill(w->slots[0].executor, SIGKILL);
    assert_true(world_until(w, all_completed, LONG_MS));
    assert_int_equal(w->slots[0].exit_status, 42);
    assert_int_equal(w->slots[0].completed_reason, TONY__REASON__EXITED);
    world_end_well(w);
}

static bool all_twice(struct world *w)
{
    for (int i = 0; i < w->n; i++)
        if (w->slots[i].n_hellos < 2)
            return false;
    return true;
}

/* All tasks but the first have ended, and their executors have reaped them. */
static bool one_task(struct world *w)
{
    for (int i = 1; i < w->n; i++)
        if (kill(w->slots[i].task, 0) == 0)
            return false;
    return world_tasks_alive(w) == 1;
}

static void master_restart(void **state)
{
    (void)state;
    struct world *w = world_new("");
    w->command =
        "[ $TASK_INDEX = 0 ] && exec sleep 100; until [ -e end ]; do sleep 0.02; done; exit 6";
    world_register(w, 1);
    world_listen(w);
    world_ask(w, 4, 64, 0);
    world_launch(w, 4);
    assert_true(world_until(w, all_started, LONG_MS));
    world_drop_master(w);
    for (int i = 1; i < 4; i++) { /* meanwhile three tasks end */
        AUTO(free_p)
        char *path = str_printf("%s/containers/%s/end", w->job_dir, w->slots[i].container);
        close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    }
    assert_true(world_until(w, one_task, LONG_MS));
    int64_t ended_us = clock_mono_us();
    (void)world_until(w, never, 20);
    world_register(w, 1);
    assert_int_equal(w->n_registered, 4);
    assert_int_equal(w->n_registered_done, 0); /* their executors wait for the acknowledgement */
    for (int i = 0; i < 4; i++)
        assert_false(w->slots[i].ended);
    uint64_t least_us = (uint64_t)(clock_mono_us() - ended_us);
    world_listen(w);
    assert_true(world_until(w, all_twice, LONG_MS));
    for (int i = 1; i < 4; i++) {
        assert_true(w->slots[i].ended);
        assert_int_equal(w->slots[i].exit_code, 6);
        assert_true(w->slots[i].age_us >= least_us);
        assert_false(w->slots[i].running_at_hello);
    }
    assert_true(w->slots[0].running_at_hello);
    assert_false(w->slots[0].ended);
    world_stop(w, 0, 1000, TONY__REASON__KILLED_BY_MASTER);
    assert_true(world_until(w, all_completed, LONG_MS));
    for (int i = 0; i < 4; i++)
        assert_int_equal(w->slots[i].n_ended, 1);
    world_end_well(w);
}

static void tasks_end_if_the_master_stays_away(void **state)
{
    (void)state;
    struct world *w = world_new("");
    w->command = "trap 'sleep 0.1; exit 9' TERM; touch up; while :; do sleep 0.05; done";
    w->master_away_ms = 300;
    world_register(w, 1);
    world_listen(w);
    world_ask(w, 1, 64, 0);
    world_launch(w, 1);
    assert_true(world_until(w, all_started, LONG_MS));
    assert_true(world_until(w, is_up, LONG_MS)); /* the process has set its trap */
    close(w->listen_fd);
    w->listen_fd = -1;
    link_close(&w->slots[0].link);
    assert_true(world_until(w, all_completed, LONG_MS));
    assert_int_equal(w->slots[0].exit_status, 9);
    assert_non_null(strstr(w->slots[0].completed_detail, "no master"));
    world_end_well(w);
}

static void attempts_in_one_container(void **state)
{
    (void)state;
    struct world *w = world_new("");
    w->keep_after_ack = true;
    w->command = "echo attempt $TONY_ATTEMPT; touch seen$TONY_ATTEMPT; ls; exit $TONY_ATTEMPT";
    world_register(w, 1);
    world_listen(w);
    world_ask(w, 1, 64, 0);
    world_launch(w, 1);
    for (uint32_t n = 1; n <= 3; n++) {
        assert_true(world_until(w, all_ended, LONG_MS));
        assert_int_equal(w->slots[0].exit_code, n);
        w->slots[0].ended = false;
        if (n < 3)
            world_start(w, 0, n + 1);
    }
    assert_string_equal(world_read(w, "logs/worker-0/2/stdout"), "attempt 2\nseen1\nseen2\n");
    assert_false(w->slots[0].completed);
    world_start(w, 0, 2); /* of an older epoch: ignored */
    world_stop_container(w, 0, 100);
    assert_true(world_until(w, all_completed, LONG_MS));
    assert_int_equal(w->slots[0].n_ended, 3);
    world_end_well(w);
}

static void container_stopped_by_the_keeper(void **state)
{
    (void)state;
    struct world *w = world_new("");
    w->command = "sleep 100";
    world_register(w, 1);
    world_listen(w);
    world_ask(w, 4, 64, 0);
    world_stop_container(w, 3, 100); /* granted and never launched: given back */
    world_launch(w, 3);
    w->n = 3;
    assert_true(world_until(w, all_started, LONG_MS));
    kill(w->slots[1].executor, SIGSTOP); /* the executor does not react */
    int64_t from = clock_mono_ms();
    for (int i = 0; i < 3; i++)
        world_stop_container(w, i, i == 1 ? 200 : 600000);
    assert_true(world_until(w, all_completed, LONG_MS));
    assert_true(clock_mono_ms() - from >= 1500); /* the keeper waited so long for the executor */
    for (int i = 0; i < 3; i++)
        assert_int_equal(w->slots[i].completed_reason, TONY__REASON__KILLED_BY_MASTER);
    assert_int_equal(w->slots[0].exit_status, 143);
    assert_int_equal(w->slots[1].exit_status, 137);
    world_end_well(w);
}

static bool third_is_granted(struct world *w)
{
    return w->slots[2].granted;
}

static void grants_within_what_was_admitted(void **state)
{
    (void)state;
    struct world *w = world_new("--memory-mib 100 --gpus 0,5");
    w->command = "sleep 100";
    world_register(w, 1);
    world_listen(w);
    world_ask(w, 1, 101, 0);
    assert_true(w->slots[0].refused);
    w->slots[0].refused = false;
    world_ask(w, 1, 10, 3);
    assert_true(w->slots[0].refused);
    w->slots[0].refused = false;
    world_ask(w, 2, 50, 1);
    assert_int_equal(w->slots[0].n_gpus + w->slots[1].n_gpus, 2);
    assert_int_equal(w->slots[0].gpus[0], 0);
    assert_int_equal(w->slots[1].gpus[0], 5);
    char first[80];
    snprintf(first, sizeof first, "%s", w->slots[0].container);
    w->slots[0].granted = w->slots[1].granted = false;
    world_ask(w, 2, 50, 1); /* the same request again */
    assert_string_equal(w->slots[0].container, first);
    /* a request that does not fit waits for the end of another container */
    world_launch(w, 2);
    assert_true(world_until(w, all_started, LONG_MS));
    w->slots[2].granted = false;
    Tony__Ask ask = TONY__ASK__INIT, *asks[1] = { &ask };
    ask.slot = 2;
    ask.memory_mib = 50;
    ask.gpus = 1;
    Tony__RequestContainers m = TONY__REQUEST_CONTAINERS__INIT;
    m.asks = asks;
    m.n_asks = 1;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_REQUEST_CONTAINERS;
    f.request_containers = &m;
    (void)link_send(&w->link, &f);
    world_pool_dial(w); /* the keeper's answer shows that it has read the earlier frames */
    assert_false(w->slots[2].granted);
    world_stop_container(w, 0, 100);
    assert_true(world_until(w, third_is_granted, LONG_MS));
    assert_int_equal(w->slots[2].gpus[0], 0);
    world_stop_container(w, 1, 100);
    assert_true(world_until(w, all_completed, LONG_MS));
    world_end_well(w);
}

static void two_hundred(void **state)
{
    (void)state;
    struct world *w = world_new("");
    w->command = "true";
    w->hold_start = true;
    world_register(w, 1);
    world_listen(w);
    world_ask(w, 200, 64, 0);
    world_launch(w, 200);
    assert_true(world_until(w, all_hello, LONG_MS));
    for (int i = 0; i < 200; i++)
        world_start(w, i, 1);
    assert_true(world_until(w, all_completed, LONG_MS));
    for (int i = 0; i < 200; i++) {
        assert_int_equal(w->slots[i].n_ended, 1);
        assert_int_equal(w->slots[i].exit_code, 0);
        assert_int_equal(w->slots[i].n_completed, 1);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(w->slots[i].port, w->slots[k].port);
    }
    world_end_well(w);
}

static bool executors_are_zombies(struct world *w)
{
    for (int i = 0; i < w->n; i++) {
        char path[64];
        AUTO(buf_done) struct buf text = { 0 };
        snprintf(path, sizeof path, "/proc/%d/stat", w->slots[i].executor);
        if (fs_read(AT_FDCWD, path, &text, NULL) < 0 || !strstr(buf_cstr(&text), ") Z"))
            return false;
    }
    return true;
}

/* The keeper gets one SIGCHLD for many executors. The signal names only one of them. */
static void many_ends_in_one_signal(void **state)
{
    enum { N = 150 }; /* so many that the keeper pauses before it looks for the others */
    int status;
    (void)state;
    struct world *w = world_new("");
    w->command = "exec sleep 100";
    world_register(w, 1);
    world_listen(w);
    world_ask(w, N, 64, 0);
    world_launch(w, N);
    assert_true(world_until(w, all_started, LONG_MS));
    kill(w->keeper, SIGSTOP);
    assert_int_equal(waitpid(w->keeper, &status, WUNTRACED), w->keeper);
    for (int i = 0; i < N; i++)
        kill(w->slots[i].executor, i % 2 ? SIGKILL : SIGTERM);
    assert_true(world_until(w, executors_are_zombies, LONG_MS));
    kill(w->keeper, SIGCONT);
    assert_true(world_until(w, all_completed, LONG_MS));
    for (int i = 0; i < N; i++) {
        assert_int_equal(w->slots[i].n_completed, 1);
        if (i % 2)
            assert_int_equal(w->slots[i].exit_status, 137);
    }
    assert_int_equal(world_tasks_alive(w), 0);
    world_end_well(w);
}

/* ---- several executors in one process ---- */

static int n_completed(const struct world *w)
{
    int n = 0;
    for (int i = 0; i < w->n; i++)
        n += w->slots[i].n_completed;
    return n;
}

static bool one_completed(struct world *w)
{
    return n_completed(w) == 1;
}

/* false: this machine has no control groups that the test can use, so there is no crew. */
static bool crew_runs(struct world *w, int n, const char *command)
{
    w->command = command;
    w->plain = true;
    world_register(w, 1);
    world_listen(w);
    world_ask(w, n, 64, 0);
    world_launch(w, n);
    assert_true(world_until(w, all_started, LONG_MS));
    return w->slots[0].executor == w->slots[1].executor;
}

/* Each container of a crew is stopped and reported on its own. The death of the process is the end
 * of the others. */
static void a_crew_ends_one_by_one_or_together(void **state)
{
    (void)state;
    struct world *w = world_new("");
    if (!crew_runs(w, 12, "sleep 100 & sleep 100")) {
        world_teardown(state);
        skip();
    }
    for (int i = 0; i < 12; i++)
        assert_int_equal(w->slots[i].executor, w->slots[0].executor);
    world_stop_container(w, 3, 600000);
    assert_true(world_until(w, one_completed, LONG_MS));
    assert_int_equal(w->slots[3].n_completed, 1);
    assert_int_equal(w->slots[3].completed_reason, TONY__REASON__KILLED_BY_MASTER);
    assert_int_equal(w->slots[3].exit_status, 143);
    assert_int_equal(kill(w->slots[0].executor, SIGKILL), 0);
    assert_true(world_until(w, all_completed, LONG_MS));
    assert_int_equal(world_tasks_alive(w), 0);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(w->slots[i].n_completed, 1);
        if (i != 3)
            assert_int_equal(w->slots[i].completed_reason, TONY__REASON__UNKNOWN);
    }
    world_end_well(w);
}

static int wanted_alive;

static bool so_many_live(struct world *w)
{
    return world_tasks_alive(w) == wanted_alive;
}

/* The process does not react while one container is stopped. The keeper kills that task, and the
 * others live on. It kills the process when it has to stop all of them. */
static void a_crew_that_hangs(void **state)
{
    (void)state;
    struct world *w = world_new("");
    if (!crew_runs(w, 8, "sleep 100")) {
        world_teardown(state);
        skip();
    }
    wanted_alive = 7;
    kill(w->slots[0].executor, SIGSTOP);
    world_stop_container(w, 5, 100);
    if (!world_until(w, so_many_live, LONG_MS))
        fail_msg("%d tasks are alive, not %d; keeper.log:\n%s", world_tasks_alive(w), wanted_alive,
                 world_read(w, "keeper.log"));
    kill(w->slots[0].executor, SIGCONT);
    assert_true(world_until(w, one_completed, LONG_MS));
    assert_int_equal(w->slots[5].completed_reason, TONY__REASON__KILLED_BY_MASTER);
    assert_int_equal(world_tasks_alive(w), wanted_alive);
    kill(w->slots[0].executor, SIGSTOP);
    for (int i = 0; i < 8; i++)
        if (i != 5)
            world_stop_container(w, i, (uint32_t)(100 * i));
    assert_true(world_until(w, all_completed, LONG_MS));
    for (int i = 0; i < 8; i++)
        assert_int_equal(w->slots[i].completed_reason, TONY__REASON__KILLED_BY_MASTER);
    assert_int_equal(world_tasks_alive(w), 0);
    world_end_well(w);
}

/* Only the keeper may stop a crew. The reason of its death names the signal and the others. */
static void signals_to_a_crew(void **state)
{
    (void)state;
    struct world *w = world_new("");
    if (!crew_runs(w, 8, "sleep 100")) {
        world_teardown(state);
        skip();
    }
    kill(w->slots[0].executor, SIGTERM);
    kill(w->slots[0].executor, SIGINT);
    kill(w->slots[0].executor, SIGHUP);
    world_stop_container(w, 5, 600000); /* the process handles this after the signals */
    assert_true(world_until(w, one_completed, LONG_MS));
    assert_int_equal(w->slots[5].n_completed, 1);
    assert_int_equal(world_tasks_alive(w), 7);
    kill(w->slots[0].executor, SIGSEGV);
    assert_true(world_until(w, all_completed, LONG_MS));
    assert_string_equal(w->slots[0].completed_detail,
                        "its executor was killed by signal 11 (SIGSEGV); the executors of 7 other "
                        "tasks were in the same process");
    world_end_well(w);
}

static bool most_ended(struct world *w)
{
    for (int i = 0; i < w->n; i++)
        if (i % 3 && w->slots[i].n_ended == 0)
            return false;
    return true;
}

/* All end while the keeper is stopped: one CREW_SIGNAL stands for several crews. */
static void crews_that_end_while_the_keeper_is_away(void **state)
{
    enum { N = 100 };
    int status;
    (void)state;
    struct world *w = world_new("");
    if (!crew_runs(w, N, "sleep 100 & sleep 100")) {
        world_teardown(state);
        skip();
    }
    kill(w->keeper, SIGSTOP);
    assert_int_equal(waitpid(w->keeper, &status, WUNTRACED), w->keeper);
    for (int i = 0; i < N; i++)
        if (i % 3)
            world_stop(w, i, 0, TONY__REASON__KILLED_BY_MASTER);
    assert_true(world_until(w, most_ended, LONG_MS));
    kill(w->keeper, SIGCONT);
    for (int i = 0; i < N; i++)
        world_stop(w, i, 0, TONY__REASON__KILLED_BY_MASTER);
    assert_true(world_until(w, all_completed, LONG_MS));
    for (int i = 0; i < N; i++)
        assert_int_equal(w->slots[i].n_completed, 1);
    world_end_well(w);
}

#define TEST(f) cmocka_unit_test_teardown(f, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(exit_codes),
        TEST(a_failure_has_its_tail_and_exit_code),
        TEST(environment_of_a_task),
        TEST(a_stop_is_reported_with_its_reason),
        TEST(processes_of_a_task_end_with_it),
        TEST(time_limit),
        TEST(too_much_memory),
        TEST(shared_memory_counts_once),
        TEST(executor_killed),
        TEST(executor_killed_after_the_end),
        TEST(master_restart),
        TEST(tasks_end_if_the_master_stays_away),
        TEST(attempts_in_one_container),
        TEST(container_stopped_by_the_keeper),
        TEST(grants_within_what_was_admitted),
        TEST(two_hundred),
        TEST(many_ends_in_one_signal),
        TEST(a_crew_ends_one_by_one_or_together),
        TEST(a_crew_that_hangs),
        TEST(signals_to_a_crew),
        TEST(crews_that_end_while_the_keeper_is_away),
    };
    if (getenv("ONLY"))
        cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
