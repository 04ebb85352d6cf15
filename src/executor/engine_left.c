/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/engine_left.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/executor_int.h"
#include "executor/keeper_int.h"

extern char **environ;

enum {
    BATCH_MAX = 64,        /* containers that one call of an engine removes */
    LEFT_LIMIT_MS = 30000, /* for all tries: docker waits 10 s for a container that resists */
    RETRY_MS = 500,
    TRIES = 3,
    WAIT_LOOK_MS = 20,
    ENGINE_PATH_MAX = 4096,
};

static char *file_of(const char *job_dir, const char *name)
{
    return str_printf("%s/engines/%s", job_dir, name);
}

/* ---- the executor ---- */

int left_note(const char *job_dir, const char *name, const char *engine, struct err *e)
{
    AUTO(free_p) char *dir = str_printf("%s/engines", job_dir);
    AUTO(free_p) char *path = file_of(job_dir, name);
    if (!dir || !path)
        return err_set(e, ENOMEM, "cannot prepare the container: %m");
    if (mkdir(dir, 0700) == -1 && errno != EEXIST)
        return err_set(e, errno, "cannot make '%s': %m", dir);
    return fs_write_atomic(AT_FDCWD, path, span_of(engine), 0600, false, e);
}

void left_forget(const char *job_dir, const char *name)
{
    AUTO(free_p) char *path = file_of(job_dir, name);
    if (path)
        (void)unlink(path); /* if it stays, the keeper asks the engine once more, without harm */
}

/* ---- what is left ---- */

/* Does the executor of this container run? k NULL: no executor of the job runs. */
static bool is_running(const struct keeper *k, const char *name)
{
    for (const struct container *c = k ? k->live.first : NULL; c; c = c->after) {
        AUTO(free_p) char *part = str_printf("-%s-", c->id);
        if (c->state == CONTAINER_RUNNING && (!part || strstr(name, part)))
            return true;
    }
    return false;
}

static char *engine_of(const char *job_dir, const char *name)
{
    AUTO(free_p) char *path = file_of(job_dir, name);
    AUTO(buf_done) struct buf text = { .max = ENGINE_PATH_MAX };
    if (!path || fs_read(AT_FDCWD, path, &text, NULL) < 0 || !text.len)
        return NULL;
    return str_dup(buf_cstr(&text));
}

/* The containers that are left of one engine. *out_engine NULL: none is left. */
static void find(const char *job_dir, const struct keeper *k, char **out_engine, struct strv *names)
{
    AUTO(free_p) char *dir = str_printf("%s/engines", job_dir);
    DIR *d = dir ? opendir(dir) : NULL;
    *out_engine = NULL;
    for (struct dirent *x; d && names->n < BATCH_MAX && (x = readdir(d));) {
        if (strncmp(x->d_name, "tony-", 5) != 0 || strchr(x->d_name, '.') ||
            is_running(k, x->d_name))
            continue; /* with a dot: a file that is being written */
        AUTO(free_p) char *engine = engine_of(job_dir, x->d_name);
        if (!engine || access(engine, X_OK) == -1)
            left_forget(job_dir, x->d_name); /* damaged by a power loss, or uninstalled */
        else if ((!*out_engine || str_eq(*out_engine, engine)) &&
                 strv_push(names, x->d_name) == 0 && !*out_engine)
            *out_engine = TAKE(engine);
    }
    if (d)
        (void)closedir(d);
}

bool left_any(const char *job_dir)
{
    AUTO(free_p) char *engine = NULL;
    AUTO(strv_done) struct strv names = { 0 };
    find(job_dir, NULL, &engine, &names);
    return engine != NULL;
}

/* Start `podman rm --force --volumes --ignore NAME...`. 0: it cannot be started. */
static pid_t start(const char *engine, const struct strv *names)
{
    AUTO(strv_done) struct strv argv = { 0 };
    AUTO(close_p) int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    const char *slash = strrchr(engine, '/');
    bool podman = str_eq(slash ? slash + 1 : engine, "podman");
    const char *const first[] = { engine, "rm", "--force", "--volumes" };
    int rc = null >= 0 ? 0 : -errno;
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(first); i++)
        rc = strv_push(&argv, first[i]);
    if (rc == 0 && podman)
        rc = strv_push(&argv, "--ignore"); /* names of containers that are removed already */
    for (size_t i = 0; rc == 0 && i < names->n; i++)
        rc = strv_push(&argv, names->v[i]);
    if (rc < 0)
        return 0;
    struct spawn s = { .cgroup_fd = -1,
                       .umask = UMASK_DEFAULT,
                       .path = engine,
                       .shell = engine,
                       .workdir = "/",
                       .argv = argv.v,
                       .env = environ,
                       .out_fd = null,
                       .err_fd = null };
    (void)getrlimit(RLIMIT_NOFILE, &s.nofile);
    pid_t pid = spawn_task(&s);
    return pid < 0 ? 0 : pid;
}

static void forget_all(const char *job_dir, const struct strv *names)
{
    for (size_t i = 0; i < names->n; i++)
        left_forget(job_dir, names->v[i]);
}

static bool has_succeeded(int status)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Log that containers were not removed. did: what the engine did, such as "did not answer". */
static void warn_left(const char *did, const struct strv *names)
{
    log_event(LOG_WARN, "keeper.container_left", f_str("first", names->n ? names->v[0] : ""),
              f_int("n", (int64_t)names->n), f_str("the engine", did),
              f_int("limit_ms", LEFT_LIMIT_MS));
}

/* ---- the keeper ---- */

void left_done(struct left *l)
{
    strv_done(&l->names);
}

void left_look(struct left *l)
{
    l->look_at_ms = MIN(l->look_at_ms, clock_mono_ms());
}

bool left_holds(const struct left *l)
{
    return !l->gave_up && (l->pid || l->look_at_ms != INT64_MAX);
}

/* The files of `names` stay, so a later try finds them. */
static void give_up(struct left *l, const char *did)
{
    warn_left(did, &l->names);
    l->gave_up = true;
    l->n_failed = 0;
    l->look_at_ms = INT64_MAX;
}

bool left_remove(struct keeper *k)
{
    struct left *l = &k->left;
    if (l->pid || clock_mono_ms() < l->look_at_ms)
        return left_holds(l);
    AUTO(free_p) char *engine = NULL;
    strv_done(&l->names);
    find(k->job_dir, k, &engine, &l->names);
    l->look_at_ms = INT64_MAX;
    l->pid = engine ? start(engine, &l->names) : 0;
    l->timed_out = false;
    if (l->n_failed == 0)
        l->kill_at_ms = clock_mono_ms() + LEFT_LIMIT_MS;
    if (engine && !l->pid)
        give_up(l, "cannot be started");
    if (!engine)
        l->gave_up = false;
    if (!l->pid)
        k->look_for_orphans |= k->draining.n > 0; /* containers_drain() may have waited for this */
    return left_holds(l);
}

bool left_exited(struct keeper *k, pid_t pid, int status)
{
    struct left *l = &k->left;
    int64_t now = clock_mono_ms();
    if (!l->pid || pid != l->pid)
        return false;
    l->pid = 0;
    if (has_succeeded(status)) {
        log_event(LOG_INFO, "keeper.container_removed", f_str("first", l->names.v[0]),
                  f_int("n", (int64_t)l->names.n));
        forget_all(k->job_dir, &l->names);
        l->n_failed = 0;
        l->gave_up = false;
        l->look_at_ms = now; /* more may be left */
    } else if (l->timed_out || now >= l->kill_at_ms) {
        give_up(l, "did not answer in time");
    } else if (++l->n_failed >= TRIES) {
        give_up(l, "failed");
    } else {
        l->look_at_ms = now + RETRY_MS;
    }
    return true;
}

void left_tick(struct left *l, int64_t now_ms)
{
    if (!l->pid || l->timed_out || now_ms < l->kill_at_ms)
        return;
    l->timed_out = true;
    (void)kill(l->pid, SIGKILL); /* the keeper has not reaped it yet */
}

int64_t left_deadline(const struct left *l)
{
    if (l->pid)
        return l->timed_out ? INT64_MAX : l->kill_at_ms;
    return l->look_at_ms;
}

void left_stop(struct left *l)
{
    if (!l->pid)
        return;
    (void)kill(l->pid, SIGKILL);
    (void)waitpid(l->pid, NULL, 0);
    l->pid = 0;
}

/* ---- without a keeper ---- */

/* The exit status of the child; -1: it was killed because it took too long. */
static int wait_for(pid_t pid, int64_t until_ms)
{
    int status = -1;
    pid_t rc;
    while ((rc = waitpid(pid, &status, WNOHANG)) == 0 && clock_mono_ms() < until_ms)
        (void)poll(NULL, 0, WAIT_LOOK_MS);
    if (rc == pid)
        return status;
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    return -1;
}

bool left_remove_all(const char *job_dir)
{
    int64_t until_ms = clock_mono_ms() + LEFT_LIMIT_MS;
    for (unsigned n_failed = 0;;) {
        AUTO(free_p) char *engine = NULL;
        AUTO(strv_done) struct strv names = { 0 };
        find(job_dir, NULL, &engine, &names);
        if (!engine)
            return true;
        pid_t pid = start(engine, &names);
        int status = pid ? wait_for(pid, until_ms) : -1;
        if (status != -1 && has_succeeded(status)) {
            forget_all(job_dir, &names);
            n_failed = 0;
        } else if (!pid || clock_mono_ms() >= until_ms || ++n_failed >= TRIES) {
            warn_left(!pid           ? "cannot be started"
                      : status == -1 ? "did not answer in time"
                                     : "failed",
                      &names);
            return false;
        } else {
            (void)poll(NULL, 0, RETRY_MS);
        }
    }
}
