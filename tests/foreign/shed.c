/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cluster 'shed', which is outside src/: the client's side of a cluster, as another project
 * would write it (docs/add-a-backend.md). A job is one command, which a shell runs in the directory
 * $SHED/<application id>/; there is no master.
 *
 *     pid    of the shell, which leads a process group
 *     out    what the command writes
 *     exit   the exit code, once it has ended
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/remote.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "loop/loop.h"

enum { LOOK_MS = 20, FILE_MAX = 1 << 20 };

extern const struct cluster_ops shed;

struct shed {
    struct cluster_head head;
    const char *dir;
};

struct cluster_watch {
    struct cluster_watch_head head;
    struct loop_timer *timer;
};

static struct shed *shed_of(struct cluster *k)
{
    return (struct shed *)(void *)k;
}

/* The process group in the text of the file pid. */
static pid_t group_of(const char *text)
{
    int64_t n = 0;
    return str_i64(span_trim(span_of(text)), 2, INT32_MAX, "pid", &n, NULL) < 0 ? INT32_MAX
                                                                                : (pid_t)n;
}

static int no_memory(struct err *e)
{
    (void)err_set(e, ENOMEM, "the shed has no memory");
    return -EXIT_CLUSTER;
}

/* The text of a file of a job. The caller frees it; NULL = there is none. */
static char *read_file(struct cluster *k, const char *id, const char *name)
{
    AUTO(free_p) char *path = str_printf("%s/%s/%s", shed_of(k)->dir, id, name);
    AUTO(buf_done) struct buf text = { .max = FILE_MAX };
    if (!path || fs_read(AT_FDCWD, path, &text, NULL) < 0)
        return NULL;
    return span_dup(buf_span(&text));
}

static bool is_here(void)
{
    return getenv("SHED") != NULL;
}

static int open_shed(const struct cluster_config *cfg, struct cluster **out, struct err *e)
{
    struct shed *s = calloc(1, sizeof *s);
    if (!s || !host_loop(cfg->host, e)) {
        free(s);
        return no_memory(e);
    }
    s->head = (struct cluster_head){ &shed, *cfg };
    s->dir = getenv("SHED");
    *out = (struct cluster *)(void *)s;
    if (s->dir)
        return 0;
    (void)err_set(e, EINVAL, "the variable SHED is not set");
    return -EXIT_MISUSE;
}

static void close_shed(struct cluster *k)
{
    free(shed_of(k));
}

/* ---- a new job ---- */

static int plan(struct cluster *k, struct cluster_job *j, struct cluster_plan *out, struct err *e)
{
    (void)k;
    (void)e;
    out->refused = !j->spec->single_node;
    if (out->refused)
        (void)err_set(&out->why, EINVAL, "the shed runs single commands, and no roles");
    else
        (void)strv_pushf(&out->shown, "sh -c '%s'", j->spec->am.command);
    return 0;
}

static int stage(struct cluster *k, struct cluster_job *j, struct err *e)
{
    struct cluster_plan p = { 0 };
    (void)plan(k, j, &p, e);
    if (p.refused)
        *e = p.why;
    bool refused = p.refused;
    cluster_plan_done(&p);
    return refused ? -EXIT_MISUSE : 0;
}

static void run(const char *dir, const char *command)
{
    int out = chdir(dir) == 0 ? open("out", O_CREAT | O_WRONLY | O_APPEND, 0600) : -1;
    if (setpgid(0, 0) == -1 || out == -1 || dup2(out, 1) == -1 || dup2(out, 2) == -1)
        _exit(1);
    AUTO(free_p) char *line = str_printf("(%s); echo $? >exit.new; mv exit.new exit", command);
    (void)execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(1);
}

static int submit(struct cluster *k, struct cluster_job *j, bool owned,
                  struct cluster_submitted *out, struct err *e)
{
    app_id_format(out->id, clock_wall_ms(), 1);
    AUTO(free_p) char *dir = str_printf("%s/%s", shed_of(k)->dir, out->id);
    AUTO(free_p) char *file = dir ? fs_join(dir, "pid") : NULL;
    AUTO(buf_done) struct buf pid_text = { 0 };
    if (!file || fs_mkdirs(dir, 0700, e) < 0)
        return no_memory(e);
    if (owned)
        signals_hold();
    pid_t pid = fork();
    if (pid == 0)
        run(dir, j->spec->am.command);
    if (pid > 0) /* as the child does: whoever is later fails, and the group exists now */
        (void)setpgid(pid, pid);
    if (pid == -1 || buf_addf(&pid_text, "%d", (int)pid) < 0 ||
        fs_write_atomic(AT_FDCWD, file, buf_span(&pid_text), 0600, false, e) < 0)
        return no_memory(e);
    (void)strv_pushf(&out->said, "the shed runs %s", out->id);
    return 0;
}

/* ---- jobs that were submitted ---- */

static int find(struct cluster *k, const char *word, char out[APP_ID_MAX], struct err *e)
{
    (void)k;
    if (str_copy(out, APP_ID_MAX, word))
        return 0;
    (void)err_set(e, EINVAL, "'%s' is too long", word);
    return -EXIT_MISUSE;
}

static int report(struct cluster *k, const char *id, struct cluster_report *out, struct err *e)
{
    AUTO(free_p) char *pid = read_file(k, id, "pid");
    AUTO(free_p) char *code = read_file(k, id, "exit");
    *out = (struct cluster_report){ .own = true };
    if (!pid)
        return err_set(e, ENOENT, "there is no job '%s' in the shed", id);
    bool killed = !code && kill(-group_of(pid), 0) == -1;
    (void)str_copy(out->id, sizeof out->id, id);
    out->phase = code || killed ? CLUSTER_OVER : CLUSTER_STARTING; /* it never has a master */
    if (killed)
        out->exit_code = EXIT_STOPPED;
    else if (code && !span_eqs(span_trim(span_of(code)), "0"))
        out->exit_code = EXIT_JOB_FAILED;
    (void)str_copy(out->state, sizeof out->state, code || killed ? "SWEPT" : "SAWING");
    return 0;
}

static int history(struct cluster *k, const char *id, json_t **out, struct err *e)
{
    (void)k;
    (void)out;
    return err_set(e, ENOENT, "the shed has no history of '%s'", id);
}

static char *place(struct cluster *k, const char *id, bool over)
{
    (void)over;
    return str_printf("%s/%s", shed_of(k)->dir, id);
}

static int list(struct cluster *k, size_t max, json_t *rows, bool *out_more, struct err *e)
{
    (void)k;
    (void)max;
    (void)rows;
    (void)e;
    *out_more = false;
    return 0;
}

static int logs(struct cluster *k, const char *id, const struct cluster_log_wish *w,
                cluster_log_fn *fn, void *arg, struct err *e)
{
    AUTO(free_p) char *text = read_file(k, id, "out");
    struct cluster_log_text t = { .task = "driver:0", .stream = "stdout" };
    (void)w;
    if (!text) {
        (void)err_set(e, ENOENT, "job '%s' has written nothing", id);
        return -EXIT_MISUSE;
    }
    t.text = span_of(text);
    return fn(&t, arg) < 0 ? -EXIT_CLUSTER : 0;
}

/* ---- following ---- */

static void look(void *arg)
{
    struct cluster_watch *w = arg;
    struct cluster_report r;
    struct err e = { 0 };
    if (report(w->head.cluster, w->head.cfg->id, &r, &e) < 0) {
        w->head.cfg->on_lost(EXIT_MISUSE, &e, w->head.cfg->arg);
        return;
    }
    loop_timer_set(w->timer, clock_mono_ms() + LOOK_MS);
    w->head.cfg->on_report(&r, w->head.cfg->arg);
    cluster_report_done(&r);
}

static int watch(struct cluster *k, const struct cluster_watch_config *cfg,
                 struct cluster_watch **out, struct err *e)
{
    struct cluster_watch *w = calloc(1, sizeof *w);
    if (!w)
        return no_memory(e);
    w->head = (struct cluster_watch_head){ k, cfg };
    w->timer = loop_timer_new(shed_of(k)->head.cfg.host->loop, look, w);
    if (!w->timer) {
        free(w);
        return no_memory(e);
    }
    loop_timer_set(w->timer, clock_mono_ms());
    *out = w;
    return 0;
}

static void attend(struct cluster_watch *w, bool connected)
{
    (void)w;
    (void)connected; /* never: no job has a master */
}

static void stop(struct cluster_watch *w, enum cluster_stop how, const char *reason,
                 bool checkpoint)
{
    AUTO(free_p) char *pid = read_file(w->head.cluster, w->head.cfg->id, "pid");
    (void)how;
    (void)reason;
    (void)checkpoint;
    if (pid)
        (void)kill(-group_of(pid), SIGKILL);
}

static void unwatch(struct cluster_watch *w)
{
    loop_timer_free(w->timer);
    free(w);
}

static int verdict(struct cluster *k, const struct cluster_report *r, json_t **out, int *out_code,
                   struct err *e)
{
    (void)k;
    (void)e;
    *out_code = r->exit_code;
    *out = report_json(shed_of(k)->head.ops, r);
    return 0;
}

const struct cluster_ops shed = {
    .name = "shed",
    .title = "the shed",
    .remote = true,
    .no_forecast = "the shed runs everything at once",
    .is_here = is_here,
    .open = open_shed,
    .close = close_shed,
    .plan = plan,
    .stage = stage,
    .submit = submit,
    .find = find,
    .report = report,
    .history = history,
    .place = place,
    .status = remote_status,
    .list = list,
    .watch = watch,
    .attend = attend,
    .stop = stop,
    .unwatch = unwatch,
    .verdict = verdict,
    .logs = logs,
};

const struct cluster_ops *const clusters_more[] = { &shed, NULL };
