/* SPDX-License-Identifier: Apache-2.0 */
/* A job in Slurm: the watch of its client while Slurm does not answer, and the words about its end.
 * Programs of the test stand in for those of Slurm. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "cluster/slurm/slurm.h"
#include "cluster/slurm/slurm_int.h"
#include "conf/conf.h"
#include "history/history.h"
#include "job/job.h"
#include "loop/loop.h"
#include "storage/jobfile.h"
#include "storage/paths.h"

enum { DEADLINE_MS = 60000, NOBODY = 65534 };

static const char *const id = "application_1700000000000_0001";

struct world {
    char dir[64];
    char *job; /* the directory of the job */
    struct cluster_host host;
};

static void write_file(const char *dir, const char *name, const char *text, unsigned mode)
{
    struct err e = { 0 };
    AUTO(free_p) char *path = fs_join(dir, name);
    if (fs_mkdirs(dir, 0700, &e) < 0 ||
        fs_write_atomic(AT_FDCWD, path, span_of(text), (mode_t)mode, false, &e) < 0)
        fail_msg("%s", e.msg);
}

static void no_note(const char *text, void *arg)
{
    (void)text;
    (void)arg;
}

/* A home with one job. */
static void world_init(struct world *w)
{
    struct err e = { 0 };
    *w = (struct world){ .dir = "/tmp/tony-sj-XXXXXX", .host = { .note = no_note } };
    log_setup(2, LOG_ERROR + 1, false);
    assert_non_null(mkdtemp(w->dir));
    (void)setenv("TONY_HOME", w->dir, 1);
    (void)setenv("XDG_RUNTIME_DIR", w->dir, 1);
    assert_int_equal(host_look_paths(&w->host, &e), 0);
    w->job = paths_job(&w->host.paths, id);
    AUTO(conf_freep) struct conf *c = conf_new();
    assert_int_equal(conf_set(c, CL_JOB, "tony.worker.instances", "1", "t", false, &e), 0);
    assert_int_equal(conf_set(c, CL_JOB, "tony.containers.command", "./run", "t", false, &e), 0);
    struct job_file f = { .conf = c,
                          .user = (char *)(uintptr_t) "ann",
                          .host = (char *)(uintptr_t) "h",
                          .cwd = (char *)(uintptr_t) "/",
                          .version = (char *)(uintptr_t) "1",
                          .wall_ms = 1700000000000LL };
    AUTO(buf_done) struct buf text = { 0 };
    assert_int_equal(job_file_encode(&f, &text, &e), 0);
    write_file(w->job, "job.conf", buf_cstr(&text), 0600);
    write_file(w->job, "slurm_id", "17\n", 0600);
}

static void world_done(struct world *w)
{
    free(w->job);
    host_done(&w->host);
    (void)fs_remove_tree(AT_FDCWD, w->dir, NULL);
}

/* ---- the end ---- */

/* End the job, which Slurm calls FAILED, and check that its verdict contains this text. */
static void check_end(struct world *w, const char *text)
{
    struct err e = { 0 };
    struct slurm_state s = { .state = "FAILED" };
    struct job_verdict v;
    if (slurm_settle(&w->host, id, &s, &e) < 0)
        fail_msg("%s", e.msg);
    AUTO(free_p) char *done = paths_history(&w->host.paths, id);
    AUTO(history_freep) struct history_job *job = NULL;
    assert_int_equal(history_load(done, &job, &e), 0);
    job_verdict(job->job, &v);
    if (!strstr(v.message, text))
        fail_msg("'%s' is not in: %s", text, v.message);
}

static void a_quote_in_the_words_of_a_master(void **state)
{
    (void)state;
    struct world w;
    struct err why = { 0 };
    world_init(&w);
    /* as a master writes it */
    AUTO(free_p) char *path = fs_join(w.job, "master.log");
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    log_setup(fd, LOG_INFO, false);
    (void)err_set(&why, EINVAL, "key 'a' is \"b\", not \"c\" or 'd'");
    log_err(LOG_ERROR, "master.failed", &why);
    log_setup(2, LOG_ERROR + 1, false);
    close(fd);
    check_end(&w, "or 'd'");
    world_done(&w);
}

/* A quota, which statvfs() does not show: a limit for the size of files acts in the same way. The
 * journal of the job is small enough for it. */
static void the_quota_of_the_user_is_used_up(void **state)
{
    enum { LIMIT = 4000 };
    (void)state;
    struct world w;
    struct rlimit old, low;
    world_init(&w);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = LIMIT;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    check_end(&w, "there is no room for files in");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    world_done(&w);
}

/* ---- a client that waits ---- */

struct watcher {
    struct loop *loop;
    int n_silent;
};

static void on_report(const struct cluster_report *r, void *arg)
{
    (void)r;
    (void)arg;
}

static void on_silent(const char *text, void *arg)
{
    struct watcher *x = arg;
    assert_non_null(strstr(text, "connect failure"));
    x->n_silent++;
    loop_stop(x->loop);
}

static void on_stopping(void *arg)
{
    (void)arg;
}

static void on_lost(int code, const struct err *why, void *arg)
{
    (void)code;
    (void)arg;
    fail_msg("the watch has ended: %s", why->msg);
}

static void too_late(void *arg)
{
    (void)arg;
    fail_msg("nothing happened for %d ms", DEADLINE_MS);
}

static void await_silence(struct watcher *x, int n)
{
    struct loop_timer *t = loop_timer_new(x->loop, too_late, NULL);
    loop_timer_set(t, clock_mono_ms() + DEADLINE_MS);
    while (x->n_silent < n)
        loop_run(x->loop);
    loop_timer_free(t);
}

/* Slurm is not asked while the client is connected to the master. So the silence after that is
 * another one: its time counts from its beginning, and the user is told of it. */
static void silence_before_a_master_and_after_it(void **state)
{
    (void)state;
    struct world w;
    struct err e = { 0 };
    world_init(&w);
    AUTO(free_p) char *programs = fs_join(w.dir, "programs");
    AUTO(free_p) char *before = str_dup(getenv("PATH"));
    AUTO(free_p) char *path = str_printf("%s:%s", programs, before);
    write_file(programs, "squeue", "#!/bin/sh\necho 'squeue: error: connect failure' >&2\nexit 1\n",
               0700);
    (void)setenv("PATH", path, 1);
    struct cluster_config c = { .host = &w.host };
    struct cluster *k = NULL;
    struct cluster_watch *watch = NULL;
    struct watcher x = { .loop = host_loop(&w.host, &e) };
    const struct cluster_watch_config cfg = { .id = id,
                                              .on_report = on_report,
                                              .on_silent = on_silent,
                                              .on_stopping = on_stopping,
                                              .on_lost = on_lost,
                                              .arg = &x };
    assert_int_equal(cluster_slurm.open(&c, &k, &e), 0);
    assert_int_equal(slurm_watch(k, &cfg, &watch, &e), 0);
    await_silence(&x, 1);
    slurm_attend(watch, true);
    slurm_attend(watch, false);
    await_silence(&x, 2);
    slurm_unwatch(watch);
    cluster_slurm.close(k);
    (void)setenv("PATH", before, 1);
    world_done(&w);
}

/* ---- the scripts ---- */

/* The function `remove` of the batch script. */
static char *remove_function(void)
{
    struct conf *c = conf_new();
    const struct slurm_size size = { .n = 1, .v = { { 2, 1000, 4, 1, 100 } } };
    AUTO(buf_done) struct buf text = { 0 };
    assert_int_equal(slurm_further_script(c, &size, id, "/h", "/p", &text), 0);
    conf_free(c);
    const char *begin = strstr(buf_cstr(&text), "\nremove() {\n");
    const char *end = begin ? strstr(begin, "\n}\n") : NULL;
    assert_non_null(end);
    return strndup(begin, (size_t)(end + 3 - begin));
}

/* A node's copy of the job has directories that are read-only, and one that nobody may enter. An
 * ordinary user removes them; for root they are as all others. */
static void a_copy_of_the_job_is_removed_from_a_node(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    AUTO(free_p) char *function = remove_function();
    AUTO(free_p)
    char *script =
        str_printf("%s\nmkdir -p copy/shipped/a copy/work/hidden/b && echo x > copy/shipped/a/f && "
                   "chmod 500 copy/shipped/a copy/shipped && chmod 0 copy/work/hidden && "
                   "remove copy; [ ! -e copy ]",
                   function);
    assert_int_equal(chmod(w.dir, 0777), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (chdir(w.dir) == -1 ||
            (geteuid() == 0 && (setgid(NOBODY) == -1 || setuid(NOBODY) == -1)))
            _exit(1);
        (void)execlp("sh", "sh", "-c", script, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quote_in_the_words_of_a_master),
        cmocka_unit_test(the_quota_of_the_user_is_used_up),
        cmocka_unit_test(silence_before_a_master_and_after_it),
        cmocka_unit_test(a_copy_of_the_job_is_removed_from_a_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
