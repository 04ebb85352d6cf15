/* SPDX-License-Identifier: Apache-2.0 */
/* open: the page that a task has announced, such as its TensorBoard. For a finished job, it starts
 * a TensorBoard that reads the directory of the job's events. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/stream/forward.h"
#include "client/stream/stream.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include "storage/jobfile.h"

/* ---- a running job ---- */

/* A page that a task has announced: "http://host:6006/path". */
struct page {
    const char *task; /* borrowed from the document */
    bool tls;
    uint16_t port;
    const char *path; /* "" or "/..." */
};

static bool is_word(const char *name)
{
    return str_eq(name, "tensorboard") || str_eq(name, "notebook");
}

static bool parse_url(const char *url, struct page *out)
{
    int64_t port = 0;
    out->tls = str_starts(url, "https://");
    if (!out->tls && !str_starts(url, "http://"))
        return false;
    const char *host = strstr(url, "://") + 3;
    const char *end = host + strcspn(host, "/?#");
    const char *colon = end;
    while (colon > host && *colon != ':')
        colon--;
    bool given = *colon == ':';
    if (given && str_i64(span_mem(colon + 1, (size_t)(end - colon - 1)), 1, UINT16_MAX, "port",
                         &port, NULL) < 0)
        return false;
    out->port = (uint16_t)(given ? port : out->tls ? 443 : 80);
    out->path = end;
    return true;
}

/* Does `name` mean the page of this task? name: a task, a role, or one of the words tensorboard and
 * notebook, which mean any page; NULL = any page. */
static bool is_meant(const char *task, const char *name)
{
    size_t n = name ? strlen(name) : 0;
    if (!name || is_word(name))
        return true;
    return str_starts(task, name) && (task[n] == '\0' || task[n] == ':');
}

static int find_page(const json_t *doc, const char *name, struct page *out, struct err *e)
{
    size_t i;
    json_t *task;
    const char *bad = NULL;
    bool found = !name || is_word(name);
    json_array_foreach(json_object_get(doc, "tasks"), i, task)
    {
        const char *url = doc_str(task, "tensorboard");
        out->task = doc_str(task, "task");
        found = found || is_meant(out->task, name);
        if (!*url || !is_meant(out->task, name) || !str_eq(doc_str(task, "state"), "running"))
            continue;
        if (parse_url(url, out))
            return 0;
        bad = url;
    }
    if (bad)
        return err_set(e, EINVAL,
                       "the task announced the address '%s', which is not the URL of a page", bad);
    if (!found) {
        (void)err_set(e, ENOENT, "job '%s' has no task and no role '%s'",
                      doc_str(doc, "application_id"), name);
        return err_hint(e, "tony tasks %s lists its tasks", doc_str(doc, "application_id"));
    }
    (void)err_set(e, ENOENT, "no running task%s%s has announced a page", name ? " of " : "",
                  name ? name : "");
    return err_hint(e, "a task announces it on its socket (docs/task-socket.md); tony forward "
                       "reaches any port");
}

/* Show the page in a browser, if there is one. A failure does not matter: the URL is printed, too.
 */
static void show(const char *url)
{
    pid_t pid;
    posix_spawn_file_actions_t fa;
    char program[] = "xdg-open";
    AUTO(free_p) char *copy = str_dup(url);
    char *argv[] = { program, copy, NULL };
    if (!copy || (!getenv("DISPLAY") && !getenv("WAYLAND_DISPLAY")))
        return;
    (void)posix_spawn_file_actions_init(&fa);
    (void)posix_spawn_file_actions_addopen(&fa, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    (void)posix_spawn_file_actions_addopen(&fa, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    (void)posix_spawnp(&pid, program, &fa, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&fa);
}

static void on_signal(int signo, void *arg)
{
    (void)signo;
    loop_stop(arg);
}

static int serve(struct client *c, struct stream_job *j, const struct page *page, struct err *e)
{
    static const int signos[] = { SIGINT, SIGTERM, SIGHUP };
    struct loop_signal *signals[ARRAY_LEN(signos)] = { 0 };
    struct forward *f = NULL;
    int rc = forward_open(j, page->task, 0, page->port, &f, e);
    if (rc < 0)
        return rc;
    AUTO(free_p)
    char *url = str_printf("%s://127.0.0.1:%u%s", page->tls ? "https" : "http", forward_port(f),
                           *page->path ? page->path : "/");
    /* Handle signals before the URL is printed: the program that reads it may send one. */
    for (size_t i = 0; i < ARRAY_LEN(signos); i++)
        signals[i] = loop_signal_new(j->loop, signos[i], on_signal, j->loop);
    AUTO(buf_done) struct buf shown = { 0 };
    client_shown(&shown, span_of(url), false); /* a task has announced its path */
    (void)printf("%s\n", buf_cstr(&shown));
    rc = client_flush_stdout() == EXIT_DONE ? 0 : -EXIT_CLUSTER;
    if (rc < 0)
        (void)err_set(e, EPIPE, "cannot write to standard output: %m");
    if (rc == 0 && url && !options_has(&c->o, OPT_NO_BROWSER))
        show(url);
    if (rc == 0)
        (void)loop_run(j->loop);
    for (size_t i = 0; i < ARRAY_LEN(signos); i++)
        loop_signal_free(signals[i]);
    forward_close(f);
    return rc;
}

/* ---- a finished job ---- */

/* The directory of its events: --logdir, or tony.application.tensorboard-log-dir of its job.conf.
 * The caller frees it. */
static char *log_dir(struct client *c, struct cluster *k, const char *id)
{
    struct err unread = { 0 };
    const char *option = options_get(&c->o, OPT_LOGDIR);
    if (option)
        return str_dup(option);
    AUTO(free_p) char *dir = cluster_ops_of(k)->place(k, id, true);
    AUTO(free_p) char *path = dir ? fs_join(dir, "job.conf") : NULL;
    AUTO(buf_done) struct buf text = { .max = JOB_FILE_MAX };
    AUTO(job_file_freep) struct job_file *f = NULL;
    if (!path || fs_read_file(AT_FDCWD, path, &text, &unread) < 0 ||
        job_file_decode(buf_span(&text), &f, &unread) < 0)
        return NULL;
    return str_dup(conf_get(f->conf, "tony.application.tensorboard-log-dir"));
}

static bool on_path(const char *program)
{
    const char *path = getenv("PATH");
    struct span rest = span_of(path ? path : ""), dir;
    while (span_split(&rest, ':', &dir)) {
        AUTO(free_p) char *full = str_printf("%.*s/%s", (int)dir.len, dir.p, program);
        if (dir.len && full && access(full, X_OK) == 0)
            return true;
    }
    return false;
}

/* TensorBoard replaces this process: it prints its own URL, and ends with Ctrl-C. */
static int run_tensorboard(const char *dir, struct err *e)
{
    if (!on_path("tensorboard")) {
        (void)err_set(e, ENOENT, "there is no program 'tensorboard' on the PATH to show '%s'", dir);
        (void)err_hint(e, "install it with: pip install tensorboard");
        return EXIT_MISUSE;
    }
    client_note("TensorBoard shows %s; Ctrl-C ends it", dir);
    (void)execlp("tensorboard", "tensorboard", "--logdir", dir, "--host", "127.0.0.1", "--port",
                 "0", (char *)NULL);
    (void)err_set(e, errno, "cannot run 'tensorboard': %m");
    return EXIT_CLUSTER;
}

static int open_finished(struct client *c, struct cluster *k, const char *id, struct err *e)
{
    AUTO(free_p) char *dir = log_dir(c, k, id);
    struct stat st;
    /* Check only a directory from --logdir: a directory of the job file may be on other machines,
     * and TensorBoard also reads URLs. */
    bool here = options_has(&c->o, OPT_LOGDIR) && dir && !strstr(dir, "://");
    if (here && (stat(dir, &st) == -1 || !S_ISDIR(st.st_mode))) {
        (void)err_set(e, ENOENT, "there is no directory '%s' (option '--logdir')", dir);
        return EXIT_MISUSE;
    }
    if (dir && *dir)
        return run_tensorboard(dir, e);
    (void)err_set(e, ENOENT, "job '%s' is over, and its job file names no directory of events", id);
    (void)err_hint(e, "name the directory: tony open %s --logdir DIR", id);
    return EXIT_MISUSE;
}

/* ---- the command ---- */

int cmd_open(struct client *c)
{
    struct err e = { 0 };
    struct cluster *k = NULL;
    struct stream_job j;
    struct page page = { 0 };
    char id[APP_ID_MAX];
    AUTO(json_freep) json_t *doc = NULL;
    const char *name = c->o.n_args > 1 ? c->o.args[1] : NULL;
    int rc = client_find(c, c->o.args[0], &k, id, &e);
    if (rc == 0)
        rc = cluster_ops_of(k)->status(k, id, &doc, &e);
    if (rc < 0)
        return client_fail(-rc, &e);
    if (json_is_integer(json_object_get(doc, "exit_code")))
        return client_fail(open_finished(c, k, id, &e), &e);
    if (find_page(doc, name, &page, &e) < 0)
        return client_fail(EXIT_MISUSE, &e);
    rc = stream_job_open(c, id, &j, &e);
    if (rc < 0)
        return client_fail(-rc, &e);
    rc = serve(c, &j, &page, &e);
    stream_job_done(&j);
    return rc < 0 ? client_fail(-rc, &e) : EXIT_DONE;
}
