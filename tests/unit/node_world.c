/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of the keeper and its job: directories, start, end, and what must be gone afterwards.
 */
#include "node_world.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "marked_processes.h"
#include "storage/paths.h"

static void copy_program(const char *from, const char *to)
{
    AUTO(buf_done) struct buf text = { 0 };
    struct err e = { 0 };
    assert_int_equal(fs_read(AT_FDCWD, from, &text, &e), 0);
    int fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    assert_true(fd >= 0);
    assert_int_equal(fs_write_all(fd, text.p, text.len), 0);
    close(fd);
}

static void write_text(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(fs_write_all(fd, text, strlen(text)), 0);
    close(fd);
}

void world_start_keeper(struct world *w, const char *args)
{
    char program[128];
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    if (w->deaf)
        close(ready[0]);
    snprintf(program, sizeof program, "%s/bin/tony-executor", w->dir);
    w->keeper = fork();
    if (w->keeper == 0) {
        const char *argv[32] = { "tony-executor", "--keeper", w->app, "--ready-fd", "9",
                                 "--gpu-locks",   w->dir };
        int n = 7;
        AUTO(free_p) char *rest = args ? strdup(args) : NULL;
        char *save = NULL;
        for (char *a = rest ? strtok_r(rest, " ", &save) : NULL; a && n < 31;
             a = strtok_r(NULL, " ", &save))
            argv[n++] = a;
        char log[256];
        snprintf(log, sizeof log, "%s/keeper.log", w->job_dir);
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(fd, 1);
        dup2(fd, 2);
        dup2(ready[1], 9);
        close_range(10, ~0U, 0);
        close_range(3, 8, 0);
        execv(program, (char *const *)argv);
        _exit(126);
    }
    close(ready[1]);
    if (w->deaf)
        return;
    struct pollfd p = { .fd = ready[0], .events = POLLIN };
    char byte;
    assert_int_equal(poll(&p, 1, WORLD_ANSWER_MS), 1);
    /* End of file: the keeper did not start; the test reports that later. */
    (void)!read(ready[0], &byte, 1);
    close(ready[0]);
}

static struct world *current;

int world_teardown(void **state)
{
    (void)state;
    if (current)
        world_free(current); /* the test failed before it freed its world */
    return 0;
}

struct world *world_new(const char *args)
{
    struct world *w = current = calloc(1, sizeof *w);
    char path[256];
    assert_non_null(w);
    /* another run of this test may be active; the job's id must be unique, because leftovers are
     * found by it */
    snprintf(w->app, sizeof w->app, "application_%lld_0007", 1700000000000LL + getpid());
    w->link.fd = w->pool.fd = w->listen_fd = -1;
    w->framework = "generic";
    w->mode = "GANG";
    w->heartbeat_ms = 200;
    w->kill_grace_ms = 600000; /* tests that stop a task never wait for its TERM grace to end */
    for (int i = 0; i < WORLD_SLOTS; i++)
        w->slots[i].link.fd = -1;
    snprintf(w->dir, sizeof w->dir, "/tmp/tony-node-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->home, sizeof w->home, "%s/home", w->dir);
    snprintf(path, sizeof path, "%s/run", w->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    setenv("TONY_HOME", w->home, 1);
    setenv("XDG_RUNTIME_DIR", path, 1);
    snprintf(path, sizeof path, "%s/bin", w->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    AUTO(free_p) char *from = str_printf("%s/bin/tony-executor", getenv("TONY_BUILD"));
    snprintf(path, sizeof path, "%s/bin/tony-executor", w->dir);
    copy_program(from, path);
    snprintf(path, sizeof path, "%s/bin/tony-master", w->dir);
    write_text(
        path,
        "#!/bin/sh\necho \"$@\" >> \"$TONY_HOME/masters\"\n[ -e \"$TONY_HOME/die\" ] && exit 9\n"
        "[ -e \"$TONY_HOME/final\" ] && exit 4\n"
        "[ -e \"$TONY_HOME/litter\" ] && {\n"
        "env -i setsid sh -c \"echo \\$\\$ > $TONY_HOME/litter; exec sleep 1000\" &\n}\n"
        "exec sleep 1000\n",
        0755);
    snprintf(path, sizeof path, "%s/bin/tony-pool", w->dir);
    write_text(path, "#!/bin/sh\necho $$ >> \"$TONY_HOME/pools\"\nexec sleep 100\n", 0755);
    struct paths p;
    struct err e = { 0 };
    assert_int_equal(paths_open(&p, &e), 0);
    AUTO(free_p)
    char *job = paths_job(&p, w->app), *k = paths_socket(&p, w->app, "k"),
         *m = paths_socket(&p, w->app, "m"), *lock = paths_job_lock(&p, w->app);
    assert_int_equal(mkdir(job, 0700), 0);
    AUTO(free_p) char *key = str_printf("%s/key", job);
    write_text(key, "secret", 0600);
    snprintf(w->job_dir, sizeof w->job_dir, "%s", job);
    snprintf(w->socket_k, sizeof w->socket_k, "%s", k);
    snprintf(w->socket_m, sizeof w->socket_m, "%s", m);
    snprintf(w->lock, sizeof w->lock, "%s", lock);
    paths_done(&p);
    if (args)
        world_start_keeper(w, args);
    return w;
}

static void kill_all_with(const char *want)
{
    for (int i = 0; i < 500 && marked_processes(want, true) > 0; i++)
        usleep(2000);
}

int world_tasks_alive(struct world *w)
{
    char want[300];
    snprintf(want, sizeof want, "TONY_LOG_DIR=%s", w->job_dir);
    /* These are tasks: the keeper and the executors do not have this variable. */
    return marked_processes(want, false);
}

void world_drop_master(struct world *w)
{
    link_close(&w->link);
    for (int i = 0; i < WORLD_SLOTS; i++)
        link_close(&w->slots[i].link);
    if (w->listen_fd >= 0)
        close(w->listen_fd);
    w->listen_fd = -1;
    w->registered = false;
}

static void show(const char *path)
{
    AUTO(buf_done) struct buf text = { 0 };
    if (fs_read(AT_FDCWD, path, &text, NULL) == 0 && text.len)
        print_message("# %s:\n%s\n", path, buf_cstr(&text));
}

void world_free(struct world *w)
{
    char want[300], path[300];
    world_drop_master(w);
    link_close(&w->pool);
    if (w->keeper > 0) {
        kill(w->keeper, SIGKILL);
        waitpid(w->keeper, NULL, 0);
    }
    snprintf(want, sizeof want, "TONY_HOME=%s", w->home);
    kill_all_with(want);
    if (getenv("TONY_TEST_SHOW")) {
        snprintf(path, sizeof path, "%s/keeper.log", w->job_dir);
        show(path);
        snprintf(path, sizeof path, "%s/exits", w->job_dir);
        show(path);
    }
    snprintf(path, sizeof path, "%s/cgroups", w->job_dir);
    AUTO(buf_done) struct buf text = { 0 };
    /* The test killed the keeper: let another one clean up. */
    if (fs_read(AT_FDCWD, path, &text, NULL) == 0) {
        world_start_keeper(w, "");
        kill(w->keeper, SIGTERM);
        (void)world_wait_keeper(w, 5000);
        kill_all_with(want); /* that keeper has started a pool */
    }
    struct err e = { 0 };
    (void)fs_remove_tree(AT_FDCWD, w->dir, &e);
    current = NULL;
    free(w);
}

int world_wait_keeper(struct world *w, int ms)
{
    int64_t until = clock_mono_ms() + ms;
    int status;
    for (;;) {
        if (waitpid(w->keeper, &status, WNOHANG) == w->keeper) {
            w->keeper = 0;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
        }
        if (clock_mono_ms() > until)
            return -1;
        (void)world_until(w, never, 5);
    }
}

char *world_read(struct world *w, const char *path)
{
    static struct buf text;
    char full[400];
    buf_clear(&text);
    snprintf(full, sizeof full, "%s%s%s", path[0] == '/' ? "" : w->job_dir,
             path[0] == '/' ? "" : "/", path);
    (void)fs_read(AT_FDCWD, full, &text, NULL);
    return text.p ? text.p : (char *)"";
}

/* ---- the end ---- */

bool world_is_finished(struct world *w)
{
    return w->finished;
}

void world_end_well(struct world *w)
{
    char path[300];
    world_pool_dial(w);
    world_finish(w, "SUCCEEDED");
    assert_int_equal(world_wait_keeper(w, WORLD_ANSWER_MS), 0);
    assert_true(world_until(w, world_is_finished, WORLD_ANSWER_MS));
    assert_string_equal(w->state, "SUCCEEDED");
    assert_int_equal(access(w->socket_k, F_OK), -1);
    assert_int_equal(access(w->socket_m, F_OK), -1); /* also the socket that the test left behind */
    assert_int_equal(access(w->lock, F_OK), -1);
    assert_int_equal(access(w->job_dir, F_OK), -1);
    snprintf(path, sizeof path, "%s/history/%s/exits", w->home, w->app);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/history/%s/key", w->home, w->app);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof path, "%s/history/%s/containers", w->home, w->app);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof path, "%s/history/%s/cgroups", w->home, w->app);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof path, "%s/pool/ended/%s", w->home, w->app);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(world_tasks_alive(w), 0);
    world_free(w);
}
