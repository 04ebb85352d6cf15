/* SPDX-License-Identifier: Apache-2.0 */
/* The real executor in a container of a cluster: starts, ends, stops, and masters that are
 * replaced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "container_world.h"

static bool is_started(void)
{
    return w->started;
}

static bool is_ended(void)
{
    return w->ended;
}

static bool never(void)
{
    return false;
}

/* ---- tests ---- */

static void what_is_missing(void **state)
{
    (void)state;
    static const struct {
        const char *without, *with, *says;
    } rows[] = {
        { "CONTAINER_ID=", NULL, "no CONTAINER_ID" },
        { "TONY_MASTER_ADDRESS=", NULL, "no TONY_MASTER_ADDRESS" },
        { "TONY_SLOT=", NULL, "no TONY_SLOT" },
        { "HADOOP_TOKEN_FILE_LOCATION=", NULL, "no HADOOP_TOKEN_FILE_LOCATION" },
        { "LOG_DIRS=", NULL, "no LOG_DIRS" },
        { NULL, "TONY_MASTER_ADDRESS=node7:4242", "'node7:4242'" },
        { NULL, "TONY_MASTER_ADDRESS=127.0.0.1", "'127.0.0.1'" },
        { NULL, "TONY_MASTER_ADDRESS=127.0.0.1:0", "'127.0.0.1:0'" },
        { NULL, "TONY_MASTER_ADDRESS=[::1:5", "'[::1:5'" },
        { NULL, "TONY_SLOT=-1", "TONY_SLOT" },
        { NULL, "TONY_SLOT=x", "TONY_SLOT" },
        { NULL, JOB_KEY_PORTS_ENV "=7", JOB_KEY_PORTS_ENV },
        { NULL, "HADOOP_TOKEN_FILE_LOCATION=/no/such/file", "'/no/such/file'" },
        { NULL, "HADOOP_TOKEN_FILE_LOCATION=/dev/null", "'/dev/null'" },
        { NULL, "LOG_DIRS=/no/such,/no/either", "'/no/such,/no/either'" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *more[] = { rows[i].with, NULL };
        (void)unlink(path_of("log1/executor.log"));
        launch(rows[i].without, more);
        if (exit_status() != 2 || !strstr(text_of("log1/executor.log"), rows[i].says))
            fail_msg("row %zu: %d, %s", i, w->status, text_of("log1/executor.log"));
    }
    const char *const tokens[][2] = { { "another", SECRET }, { "tony.container.key", "s" } };
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
        write_tokens(tokens[i][0], tokens[i][1]);
        launch(NULL, NULL);
        assert_int_equal(exit_status(), 2);
        assert_non_null(strstr(text_of("log1/executor.log"), "tony.container.key"));
    }
    assert_int_equal(w->n_dials, 0);
}

static void a_task(void **state)
{
    (void)state;
    char line[200];
    w->command =
        "env; echo group=$(ps -o pgid= -p $$ | tr -d ' ') cwd=$(pwd); echo bad >&2; exit 7";
    launch(NULL, (const char *const[]){ "LD_LIBRARY_PATH=/x", "KEYSTORE_FILE_LOCATION=/k", NULL });
    pid_t group = w->executor;
    assert_int_equal(exit_status(), 7);
    assert_int_equal(w->slot, 3);
    assert_string_equal(w->container, CONTAINER);
    assert_string_equal(w->identity, "executor " CONTAINER);
    assert_string_equal(w->host, "127.0.0.1");
    assert_true(w->port_told > 0);
    assert_int_equal(w->exit_code, 7);
    assert_int_equal(w->reason, TONY__REASON__EXITED);
    assert_string_equal(w->tail, "bad\n");
    assert_int_equal(w->n_ended, 1);
    /* the executor's stderr is on the second disk, so the task's files are, too */
    assert_int_equal(access(path_of("log0/stdout"), F_OK), -1);
    assert_string_equal(text_of("log1/stderr"), "bad\n");
    char *text = text_of("log1/stdout");
    snprintf(line, sizeof line, "group=%d cwd=%s\n", group, w->work);
    assert_non_null(strstr(text, line));
    static const char *const there[] = {
        "JAVA_HOME=/opt/java\n",
        "HADOOP_HDFS_HOME=/opt/no/hadoop\n",
        "LOCAL_DIRS=/a,/b\n",
        "CONTAINER_ID=" CONTAINER "\n",
        "TONY_CONTAINER_ID=" CONTAINER "\n",
        "HOME=/home/\n",
        "LD_LIBRARY_PATH=/x\n",
        "PATH=/usr/bin:/bin\n",
        "JOB_NAME=worker\n",
        "AM_HOST=127.0.0.1\n",
        "AM_PORT=",
        "LOG_DIRS=",
        "SKIP_HADOOP_PATH=true\n",
        "CLUSTER_SPEC={\"worker\":[\"127.0.0.1:",
    };
    for (size_t i = 0; i < ARRAY_LEN(there); i++)
        if (!strstr(text, there[i]))
            fail_msg("no %s in\n%s", there[i], text);
    static const char *const not_there[] = { "HADOOP_TOKEN_FILE_LOCATION", "TONY_MASTER_ADDRESS",
                                             "TONY_SLOT", "MALLOC_ARENA_MAX", "KEYSTORE" };
    for (size_t i = 0; i < ARRAY_LEN(not_there); i++)
        if (strstr(text, not_there[i]))
            fail_msg("%s in\n%s", not_there[i], text);
    snprintf(line, sizeof line, "TONY_LOG_DIR=%s\n", w->logs[1]);
    assert_non_null(strstr(text, line));
    snprintf(line, sizeof line, "TONY_SPEC_FILE=%s/.tony-spec.json\n", w->work);
    assert_non_null(strstr(text, line));
    assert_non_null(strstr(text_of("work/.tony-spec.json"), "{\"worker\":[\"127.0.0.1:"));
}

static bool first_hello(void)
{
    return w->n_hellos > 0;
}

/* All addresses come in Peers and go into the container's own file; the Start relies on that
 * file. */
static void addresses_come_before_the_start(void **state)
{
    (void)state;
    static const char json[] = "{\"worker\":[\"10.0.0.1:1\",\"10.0.0.2:2\",\"10.0.0.3:3\"]}";
    w->hold_start = w->keep = true;
    w->command = "echo \"$CLUSTER_SPEC\"; cat $TONY_SPEC_FILE; echo; echo $TONY_MASTER_ADDR";
    launch(NULL, NULL);
    assert_true(until(first_hello, LONG_MS));
    send_peers_and_start(1, "\"10.0.0.1:1\",\"10.0.0.2:2\",\"10.0.0.3:3\"", 3);
    assert_true(until(is_ended, LONG_MS));
    assert_int_equal(w->exit_code, 0);
    char want[300];
    snprintf(want, sizeof want, "%s\n%s\n10.0.0.1\n", json, json);
    assert_string_equal(text_of("log1/stdout"), want);
    send_ack(1, true);
    assert_int_equal(exit_status(), 0);
}

static void no_path_from_the_node(void **state)
{
    (void)state;
    w->command = "env";
    launch("PATH=", NULL);
    assert_int_equal(exit_status(), 0);
    assert_non_null(strstr(text_of("log1/stdout"), "PATH=/usr/local/sbin:/usr/local/bin:"));
}

static void logs_go_to_the_first_usable_directory(void **state)
{
    (void)state;
    char dirs[300];
    snprintf(dirs, sizeof dirs, "LOG_DIRS=/no/such, %s", w->logs[0]);
    w->command = "echo here";
    launch(NULL, (const char *const[]){ dirs, NULL });
    assert_int_equal(exit_status(), 0);
    assert_string_equal(text_of("log0/stdout"), "here\n");
}

/* The node unpacks archives read-only, and several containers share an unpacked archive. */
static void source(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(mkdir(path_of("cache"), 0700), 0);
    assert_int_equal(mkdir(path_of("cache/sub"), 0700), 0);
    assert_int_equal(mkdir(path_of("work/tmp"), 0700), 0); /* made by the node */
    assert_int_equal(mkdir(path_of("cache/tmp"), 0700), 0);
    write_bytes(path_of("cache/tmp/f"), "tmp\n", 4, 0500);
    write_bytes(path_of("cache/sub/data"), "old\n", 4, 0500);
    write_bytes(path_of("cache/run.sh"), "cat tmp/f; echo new > sub/data; cat sub/data\n", 46,
                0500);
    AUTO(free_p) char *cache = str_dup(path_of("cache"));
    assert_int_equal(symlink(cache, path_of("work/.tony-src")), 0);
    w->src = true;
    w->command = "run.sh";
    launch(NULL, NULL);
    assert_int_equal(exit_status(), 0);
    assert_string_equal(text_of("log1/stdout"), "tmp\nnew\n");
    assert_string_equal(text_of("cache/sub/data"), "old\n");
    assert_int_equal(stat(path_of("work/sub/data"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

static void a_missing_source_directory_fails_the_task(void **state)
{
    (void)state;
    w->src = true;
    w->command = "true";
    launch(NULL, NULL);
    assert_int_equal(exit_status(), 127);
    assert_int_equal(w->reason, TONY__REASON__LAUNCH_FAILED);
    assert_non_null(strstr(w->detail, "'.tony-src'"));
}

static bool again(void)
{
    return w->n_hellos == 2;
}

static void a_cut_connection(void **state)
{
    (void)state;
    w->command = "echo begun; while [ ! -e go ]; do sleep 0.01; done; exit 3";
    launch(NULL, NULL);
    assert_true(until(is_started, LONG_MS));
    wait_said("begun");
    close_connections();
    assert_true(until(again, LONG_MS));
    assert_true(w->running);
    assert_int_equal(w->hello_attempt, 1);
    assert_int_equal(w->epoch_seen, 1);
    write_bytes(path_of("work/go"), "", 0, 0600);
    assert_int_equal(exit_status(), 3);
    assert_int_equal(w->n_ended, 1);
    assert_string_equal(text_of("log1/stdout"), "begun\n"); /* the command ran once */
}

/* An end that happened without a master is reported to the next master. An older master is not
 * obeyed. */
static void masters(void **state)
{
    (void)state;
    w->epoch = 2;
    w->command = "echo begun; while [ ! -e go ]; do sleep 0.01; done; echo over; exit 3";
    launch(NULL, NULL);
    assert_true(until(is_started, LONG_MS));
    wait_said("begun");
    close_p(&w->listen_fd);
    close_connections();
    write_bytes(path_of("work/go"), "", 0, 0600);
    wait_said("over");
    make_listener(); /* the next master listens at the same address */
    w->epoch = 1;
    assert_true(until(again, LONG_MS));
    assert_int_equal(w->epoch_seen, 2);
    assert_false(until(is_gone, 100)); /* the older master told it to finish */
    w->epoch = 3;
    close_connections();
    w->n_ended = 0;
    w->ended = false;
    assert_int_equal(exit_status(), 3);
    assert_int_equal(w->n_ended, 1);
    assert_true(w->unacked || w->ended);
    assert_int_equal(w->exit_code, 3);
}

/* The master is dead, and the next one has another address. It connects to the executor; from then
 * on the executor connects to that address. */
static void a_new_master_connects(void **state)
{
    (void)state;
    w->command = "echo begun; while [ ! -e go ]; do sleep 0.01; done; exit 3";
    launch(NULL, NULL);
    assert_true(until(is_started, LONG_MS));
    wait_said("begun");
    /* A caller with a wrong key is refused. */
    assert_false(connect_as_new_master("fedcba9876543210fedcba9876543210"));
    assert_int_equal(w->n_hellos, 1);
    close_p(&w->listen_fd);
    close_connections();
    w->port = 0;
    make_listener(); /* the next master's address */
    w->epoch = 2;
    w->moved = true;
    assert_true(connect_as_new_master(SECRET));
    assert_true(until(again, LONG_MS));
    assert_true(w->running);
    assert_int_equal(w->epoch_seen, 1);
    send_start(1); /* the new master does not know that the task runs */
    assert_true(until(is_started, LONG_MS));
    close_connections(); /* the executor now knows the new address */
    w->n_hellos = 1;
    assert_true(until(again, LONG_MS));
    assert_int_equal(w->epoch_seen, 2);
    w->n_ended = 0;
    write_bytes(path_of("work/go"), "", 0, 0600);
    assert_int_equal(exit_status(), 3);
    assert_int_equal(w->n_ended, 1);
    assert_string_equal(text_of("log1/stdout"), "begun\n"); /* the command ran once */
}

/* With tony.port-range the executor listens in that range, and the task does not see the variable.
 */
static void a_port_range(void **state)
{
    (void)state;
    const char *more[] = { JOB_KEY_PORTS_ENV "=28100-31900", NULL };
    w->command =
        "env | grep -c " JOB_KEY_PORTS_ENV "; echo begun; while [ ! -e go ]; do sleep 0.01; done";
    launch(NULL, more);
    assert_true(until(is_started, LONG_MS));
    wait_said("begun");
    assert_false(connect_as_new_master(SECRET)); /* the ports of the default range */
    w->ports = (struct job_ports){ 28100, 31900 };
    assert_true(connect_as_new_master(SECRET));
    write_bytes(path_of("work/go"), "", 0, 0600);
    assert_int_equal(exit_status(), 0);
    assert_string_equal(text_of("log1/stdout"), "0\nbegun\n");
}

/* A task has ended, and the new master's journal does not even contain its start. */
static void a_new_master_starts_an_ended_attempt(void **state)
{
    (void)state;
    w->command = "echo begun; exit 3";
    w->hold_ack = true;
    launch(NULL, NULL);
    assert_true(until(is_ended, LONG_MS));
    w->ended = false;
    w->n_ended = 0;
    w->hold_start = true;
    send_start(1);
    assert_true(until(is_ended, LONG_MS));
    assert_int_equal(w->exit_code, 3);
    send_ack(1, true);
    assert_int_equal(exit_status(), 3);
    assert_string_equal(text_of("log1/stdout"), "begun\n"); /* the command ran once */
}

static void wrong_key(void **state)
{
    (void)state;
    w->key = "fedcba9876543210fedcba9876543210";
    launch(NULL, NULL);
    assert_int_equal(exit_status(), 1);
    assert_int_equal(w->n_hellos, 0);
    assert_int_equal(w->n_dials, 3);
    char *log = text_of("log1/executor.log");
    assert_non_null(strstr(log, "different key for 'executor " CONTAINER "'"));
    assert_non_null(strstr(log, "127.0.0.1:"));
    assert_null(strstr(log, "0123456789abcdef"));
}

static bool dialled_often(void)
{
    return w->n_dials >= 6;
}

/* A stranger listens at the address of a dead master. The running task goes on. */
static void a_listener_with_a_wrong_key(void **state)
{
    (void)state;
    w->command = "echo begun; while [ ! -e go ]; do sleep 0.01; done";
    launch(NULL, NULL);
    wait_said("begun");
    w->key = "fedcba9876543210fedcba9876543210";
    close_connections();
    assert_true(until(dialled_often, LONG_MS));
    w->key = SECRET;
    assert_true(until(again, LONG_MS));
    assert_true(w->running);
    w->keep = true; /* the executor still works: it runs another attempt */
    write_bytes(path_of("work/go"), "", 0, 0600);
    assert_true(until(is_ended, LONG_MS));
    send_start(2);
    assert_true(until(is_ended, LONG_MS));
    assert_int_equal(w->attempt, 2);
    send_ack(2, true);
    assert_int_equal(exit_status(), 0);
}

static void the_task_ends_after_the_away_limit(void **state)
{
    (void)state;
    /* Counted from the start of the task; longer than a busy machine lets it wait. */
    w->away_ms = 6000;
    w->command = "echo begun; sleep 100";
    launch(NULL, NULL);
    wait_said("begun");
    close_p(&w->listen_fd);
    close_connections();
    assert_int_equal(exit_status(), 128 + SIGTERM);
    assert_non_null(strstr(text_of("log1/executor.log"), "there was no master"));
    assert_int_equal(processes(false), 0);
}

static void a_refused_executor_exits(void **state)
{
    (void)state;
    w->refuse = true;
    launch(NULL, NULL);
    assert_int_equal(exit_status(), 0);
    assert_int_equal(w->n_hellos, 1);
    assert_non_null(strstr(text_of("log1/executor.log"), "does not belong to the task any more"));
}

/* The master relies on the job's grace: a refused executor gives its task no longer one. If the
 * grace is 0, the task is killed without a TERM. */
static void a_running_executor_is_refused(void **state)
{
    (void)state;
    w->grace_ms = 0;
    w->command = "trap 'echo told; exit 7' TERM; echo begun; while :; do sleep 0.01; done";
    launch(NULL, NULL);
    wait_said("begun");
    w->refuse = true;
    close_connections();
    assert_int_equal(exit_status(), 128 + SIGKILL);
    assert_null(strstr(text_of("log1/stdout"), "told"));
    assert_int_equal(processes(false), 0);
}

/* TERM to the process group. The task dies of it; its daemon has its own session and does not. The
 * node reports why it did that, so the executor reports nothing. */
static void the_node_stops_it(void **state)
{
    (void)state;
    w->command =
        "setsid sh -c 'trap \"\" TERM; echo daemon; while :; do sleep 0.01; done' & sleep 100";
    launch(NULL, NULL);
    wait_said("daemon");
    kill(-w->executor, SIGTERM);
    assert_int_equal(exit_status(), 128 + SIGTERM);
    assert_int_equal(w->n_ended, 0);
    assert_int_equal(processes(false), 0);
}

/* The same with a task that ignores TERM: KILL ends the process group with the executor. Before
 * that, processes outside the group are gone. */
static bool all_are_there(void)
{
    return processes(false) == 4;
}

static bool daemon_is_gone(void)
{
    return processes(false) == 3; /* the executor, the shell, its sleep */
}

static void the_node_kills_it(void **state)
{
    (void)state;
    w->command = "trap '' TERM; setsid sh -c 'echo daemon; exec sleep 99' & "
                 "while :; do sleep 100; done";
    launch(NULL, NULL);
    pid_t group = w->executor;
    wait_said("daemon");
    assert_true(until(all_are_there, LONG_MS));
    kill(-group, SIGTERM);
    assert_true(until(daemon_is_gone, LONG_MS));
    assert_false(until(is_gone, 100));
    kill(-group, SIGKILL);
    assert_int_equal(exit_status(), 1000 + SIGKILL);
    int64_t end_ms = clock_mono_ms() + LONG_MS;
    while (processes(false) > 0 && clock_mono_ms() < end_ms)
        usleep(1000);
    assert_int_equal(processes(false), 0);
    assert_int_equal(w->n_ended, 0);
}

/* If the master had already asked for the stop, the executor reports the end, whatever the node
 * does then. */
static void the_master_stops_it(void **state)
{
    (void)state;
    w->command = "trap 'exit 5' TERM; echo begun; while :; do sleep 0.01; done";
    launch(NULL, NULL);
    wait_said("begun");
    Tony__FinishExecutor m = TONY__FINISH_EXECUTOR__INIT;
    m.grace_ms = 600000;
    SEND(finish_executor, FINISH_EXECUTOR, &m);
    assert_int_equal(exit_status(), 5);
    assert_int_equal(w->n_ended, 1);
    assert_int_equal(w->reason, TONY__REASON__KILLED_BY_MASTER);
}

/* The master ends the job before the task was started. That is no success of the task. */
static void it_ends_before_its_task(void **state)
{
    (void)state;
    w->hold_start = true;
    launch(NULL, NULL);
    assert_true(until(first_hello, LONG_MS));
    Tony__FinishExecutor m = TONY__FINISH_EXECUTOR__INIT;
    SEND(finish_executor, FINISH_EXECUTOR, &m);
    assert_int_equal(exit_status(), 128 + SIGTERM);
    assert_int_equal(w->n_ended, 0);
}

/* A preempted task saves a checkpoint and exits with 0. That does not count as the end of its
 * work. */
static void a_preempted_task_saves(void **state)
{
    (void)state;
    w->command = "trap 'echo saved; exit 0' USR1; echo begun; while :; do sleep 0.01; done";
    launch(NULL, NULL);
    wait_said("begun");
    Tony__StopAttempt m = TONY__STOP_ATTEMPT__INIT;
    m.generation = m.attempt = 1;
    m.reason = TONY__REASON__PREEMPTED;
    m.grace_ms = m.save_ms = 600000;
    m.save_signal = SIGUSR1;
    SEND(stop_attempt, STOP_ATTEMPT, &m);
    assert_true(until(is_ended, LONG_MS));
    assert_int_equal(w->reason, TONY__REASON__PREEMPTED);
    assert_string_equal(text_of("log1/stdout"), "begun\nsaved\n");
    (void)exit_status();
}

static void daemons_of_the_task_are_killed(void **state)
{
    (void)state;
    w->command = "(setsid setsid sleep 100 &); (setsid sh -c 'echo daemon; exec sleep 100' &); "
                 "while ! grep -q daemon $TONY_LOG_DIR/stdout; do sleep 0.01; done; exit 4";
    launch(NULL, NULL);
    assert_int_equal(exit_status(), 4);
    assert_int_equal(processes(false), 0);
    assert_int_equal(w->exit_code, 4);
    assert_int_equal(w->reason, TONY__REASON__EXITED);
}

static bool has_log(void)
{
    return w->n_logs > 0;
}

static void ask(uint32_t attempt, const char *stream, int64_t offset, uint32_t max)
{
    static uint32_t number;
    Tony__ReadLog m = TONY__READ_LOG__INIT;
    m.number = ++number;
    m.slot = 3;
    m.attempt = attempt;
    m.stream = (char *)(uintptr_t)stream;
    m.offset = offset;
    m.max = max;
    w->n_logs = 0;
    SEND(read_log, READ_LOG, &m);
    assert_true(until(has_log, LONG_MS));
    assert_int_equal(w->log_number, number);
}

static void ask_for(uint32_t attempt, const char *stream, int64_t offset, uint32_t max,
                    const char *text, int64_t at, int64_t size)
{
    ask(attempt, stream, offset, max);
    assert_int_equal(w->log_num, 0);
    assert_string_equal(w->log_text, text);
    assert_int_equal(w->log_offset, at);
    assert_int_equal(w->log_size, size);
}

static void attempts_and_logs(void **state)
{
    (void)state;
    w->hold_start = w->keep = true;
    w->command = "echo attempt-$TONY_ATTEMPT; echo e$TONY_ATTEMPT >&2; exit $TONY_ATTEMPT";
    launch(NULL, NULL);
    w->n_hellos = 0;
    bool (*hello)(void) = again;
    w->n_hellos = 1; /* the next hello is the second one */
    assert_true(until(hello, LONG_MS));
    ask(0, "stdout", 0, 100);
    assert_int_equal(w->log_num, ENOENT);
    send_start(5); /* earlier attempts ran elsewhere */
    assert_true(until(is_ended, LONG_MS));
    assert_int_equal(w->exit_code, 5);
    send_start(6);
    assert_true(until(is_ended, LONG_MS));
    assert_int_equal(w->exit_code, 6);
    assert_string_equal(text_of("log1/stdout"), "attempt-5\n");
    assert_string_equal(text_of("log1/stdout.2"), "attempt-6\n");
    assert_string_equal(text_of("log1/stderr"), "e5\n");
    assert_string_equal(text_of("log1/stderr.2"), "e6\n");

    ask_for(5, "stdout", 0, 100, "attempt-5\n", 0, 10);
    ask_for(6, "stdout", 0, 100, "attempt-6\n", 0, 10);
    ask_for(0, "stdout", 0, 100, "attempt-6\n", 0, 10);
    ask_for(0, "stderr", 0, 100, "e6\n", 0, 3);
    ask_for(5, "stdout", -3, 100, "-5\n", 7, 10);
    ask_for(5, "stdout", -300, 4, "atte", 0, 10);
    ask_for(5, "stdout", INT64_MIN, 4, "atte", 0, 10);
    ask_for(5, "stdout", 8, 100, "5\n", 8, 10);
    ask_for(5, "stdout", 800, 100, "", 10, 10);
    ask_for(5, "stdout", 0, 0, "", 0, 10);
    ask(4, "stdout", 0, 100);
    assert_int_equal(w->log_num, ENOENT);
    assert_non_null(strstr(w->log_message, "attempt 4"));
    ask(5, "../stdout", 0, 100);
    assert_int_equal(w->log_num, EINVAL);
    ask(0, "executor.log", 0, 1 << 20);
    assert_int_equal(w->log_num, 0);
    assert_non_null(strstr(w->log_text, "task.started"));
    assert_int_equal(unlink(path_of("log1/stdout")), 0);
    ask(5, "stdout", 0, 100);
    assert_int_equal(w->log_num, ENOENT);
    assert_non_null(strstr(w->log_message, "'stdout'"));

    AUTO(free_p) char *big = malloc(3 << 20);
    memset(big, 'x', 3 << 20);
    write_bytes(path_of("log1/stdout"), big, 3 << 20, 0600);
    ask(5, "stdout", 1, UINT32_MAX);
    assert_int_equal(w->log_num, 0);
    assert_int_equal(w->log_len, 1 << 20);
    assert_int_equal(w->log_size, 3 << 20);
    send_ack(6, true);
    assert_int_equal(exit_status(), 6);
    assert_int_equal(w->n_hellos, 2);
}

/* A node whose root directory is empty. */
static void an_empty_root(void **state)
{
    (void)state;
    char root[100], path[300];
    snprintf(root, sizeof root, "%s/root", w->dir);
    static const char *const dirs[] = { "", "/proc", "/dev", "/w", "/l" };
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        snprintf(path, sizeof path, "%s%s", root, dirs[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    struct buf program = { 0 };
    assert_int_equal(fs_read(AT_FDCWD, w->program, &program, NULL), 0);
    write_bytes(path_of("root/w/tony-executor"), program.p, program.len, 0700);
    program.len = 0;
    assert_int_equal(fs_read(AT_FDCWD, path_of("work/container_tokens"), &program, NULL), 0);
    write_bytes(path_of("root/w/container_tokens"), program.p, program.len, 0600);
    buf_done(&program);
    w->command = "tony-executor --version";
    w->executor = fork();
    if (w->executor == 0) {
        char address[60];
        snprintf(address, sizeof address, "TONY_MASTER_ADDRESS=127.0.0.1:%u", w->port);
        const char *env[] = { "CONTAINER_ID=" CONTAINER,
                              address,
                              "TONY_SLOT=0",
                              "LOG_DIRS=/l",
                              "HADOOP_TOKEN_FILE_LOCATION=/w/container_tokens",
                              w->mark,
                              NULL };
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        snprintf(path, sizeof path, "%s/proc", root);
        if (unshare(CLONE_NEWNS) == -1 ||
            mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == -1 ||
            mount("/proc", path, NULL, MS_BIND | MS_REC, NULL) == -1)
            _exit(77);
        snprintf(path, sizeof path, "%s/dev/null", root);
        if (mknod(path, S_IFCHR | 0666, makedev(1, 3)) == -1 || chroot(root) == -1 ||
            chdir("/w") == -1)
            _exit(77);
        int log = open("/l/executor.log", O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(log, 2);
        execle("/w/tony-executor", "tony-executor", "--container", (char *)NULL,
               (char *const *)(uintptr_t)env);
        _exit(126);
    }
    int status = exit_status();
    if (status == 77 || status == 126) /* the test is not root, or the program is not static */
        skip();
    assert_int_equal(status, 0);
    assert_non_null(strstr(text_of("root/l/stdout"), "tony-executor "));
}

/* ---- the master on IPv6 ---- */

static void ipv6(void **state)
{
    (void)state;
    char master[60];
    struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    socklen_t len = sizeof at;
    close_p(&w->listen_fd);
    w->listen_fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (w->listen_fd == -1 || bind(w->listen_fd, (struct sockaddr *)&at, sizeof at) == -1)
        skip();
    assert_int_equal(listen(w->listen_fd, 5), 0);
    assert_int_equal(getsockname(w->listen_fd, (struct sockaddr *)&at, &len), 0);
    snprintf(master, sizeof master, "TONY_MASTER_ADDRESS=[::1]:%u", ntohs(at.sin6_port));
    w->command = "true";
    launch(NULL, (const char *const[]){ master, NULL });
    assert_int_equal(exit_status(), 0);
    assert_string_equal(w->host, "[::1]");
}

static void a_waiting_executor_uses_little_memory(void **state)
{
    (void)state;
    w->command = "echo begun; sleep 100";
    launch(NULL, NULL);
    wait_said("begun");
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", w->executor);
    (void)until(never, 200); /* wait for some heartbeats */
    AUTO(buf_done) struct buf text = { 0 };
    assert_int_equal(fs_read(AT_FDCWD, path, &text, NULL), 0);
    const char *rss = strstr(buf_cstr(&text), "VmRSS:"), *own = strstr(buf_cstr(&text), "RssAnon:");
    assert_true(rss && own);
    long kib = strtol(rss + 6, NULL, 10), own_kib = strtol(own + 8, NULL, 10);
    print_message("# resident %ld KiB, of that our own %ld KiB\n", kib, own_kib);
#ifndef TONY_SANITIZED
    assert_true(own_kib <= 320);
    /* The other pages are the program's, which all executors share: about 1600 KiB with glibc 2.36.
     * The kernel maps 64 KiB around each page that is used. So if the text grows by a few bytes,
     * this may grow by 64 KiB. The static program of glibc 2.41 has 260 KiB more text. */
    assert_true(kib - own_kib <= (__GLIBC_MINOR__ >= 41 ? 2060 : 1800));
#endif
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, container_setup, container_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_missing),
        TEST(a_task),
        TEST(addresses_come_before_the_start),
        TEST(no_path_from_the_node),
        TEST(logs_go_to_the_first_usable_directory),
        TEST(source),
        TEST(a_missing_source_directory_fails_the_task),
        TEST(a_cut_connection),
        TEST(masters),
        TEST(a_new_master_connects),
        TEST(a_port_range),
        TEST(a_new_master_starts_an_ended_attempt),
        TEST(wrong_key),
        TEST(a_listener_with_a_wrong_key),
        TEST(the_task_ends_after_the_away_limit),
        TEST(a_refused_executor_exits),
        TEST(a_running_executor_is_refused),
        TEST(the_node_stops_it),
        TEST(the_node_kills_it),
        TEST(the_master_stops_it),
        TEST(it_ends_before_its_task),
        TEST(a_preempted_task_saves),
        TEST(daemons_of_the_task_are_killed),
        TEST(attempts_and_logs),
        TEST(an_empty_root),
        TEST(ipv6),
        TEST(a_waiting_executor_uses_little_memory),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
