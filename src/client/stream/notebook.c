/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notebook: runs JupyterLab in a container of the cluster, like the NotebookSubmitter of TonY. It
 * is a job without roles, whose port is forwarded to this machine. The job belongs to this command:
 * Ctrl-C ends both.
 *
 * Jupyter itself ends an idle job: it ends kernels that have had no work for the time of --idle,
 * and then exits. This file makes Jupyter's token, and passes it in the environment.
 */
#include <errno.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/job/jobconf.h"
#include "client/stream/forward.h"
#include "client/stream/stream.h"
#include "conf/conf.h"
#include "loop/loop.h"

enum {
    TOKEN_BYTES = 24,
    /* A notebook that nobody uses for this time is stopped: the default, and the least value that
     * --idle accepts. */
    IDLE_DEFAULT_MS = 2 * 3600 * 1000,
    IDLE_MIN_MS = 10 * 1000,
    DAY_MS = 24 * 3600 * 1000, /* as in the original */
};

struct notebook {
    struct client *c;
    char token[2 * TOKEN_BYTES + 1];
    uint16_t port; /* of Jupyter on its machine; 0 = not known yet */
    char task[64];
    char state[32];   /* shown last */
    char *jupyter;    /* the command that starts Jupyter, unless the user gives another one */
    const char *path; /* of the page that the user opens */
};

static int make_token(struct notebook *n, struct err *e)
{
    unsigned char bytes[TOKEN_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return err_set(e, errno, "cannot make a token: %m");
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(n->token + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

/* ---- the job ---- */

/* PWD is the working directory. With --venv, tony links the environment there as venv/. */
static char *command(const struct notebook *n, int64_t idle_ms)
{
    const struct options *o = &n->c->o;
    bool venv = options_has(o, OPT_PYTHON_VENV);
    long long idle_s = (idle_ms + 999) / 1000;
    return str_printf("exec %s --no-browser --allow-root --ip=127.0.0.1 --port=\"$TB_PORT\" "
                      "--ServerApp.port_retries=0 --ServerApp.root_dir=. "
                      "--ServerApp.shutdown_no_activity_timeout=%lld "
                      "--MappingKernelManager.cull_idle_timeout=%lld "
                      "--MappingKernelManager.cull_interval=%lld "
                      "--MappingKernelManager.cull_connected=True",
                      venv ? "venv/bin/python -m jupyterlab" : "jupyter lab", idle_s, idle_s,
                      MIN(idle_s, 60LL));
}

static int push(struct client *c, enum option_id id, const char *fmt, const char *value)
{
    struct option_value v = { id, NULL };
    if (strv_pushf(&c->o.made, "%s%s", fmt, value) < 0)
        return -ENOMEM;
    v.value = c->o.made.v[c->o.made.n - 1];
    if (vec_push(&c->o, v) < 0)
        return -ENOMEM;
    memmove(c->o.v + 1, c->o.v, (c->o.n - 1) * sizeof *c->o.v);
    c->o.v[0] = v; /* the first, so that --conf of the user wins */
    return 0;
}

/* Remove the options that set values of the role worker: for a job without roles, fill_options()
 * sets the same values of tony.am instead. */
static void drop_options_of_worker(struct options *o)
{
    size_t n = 0;
    for (size_t i = 0; i < o->n; i++)
        if (o->v[i].id != OPT_GPUS && o->v[i].id != OPT_MEMORY && o->v[i].id != OPT_JOB_NAME)
            o->v[n++] = o->v[i];
    o->n = n;
}

/* The option becomes --conf KEY=VALUE. An error names the option that the user has typed. */
static int push_checked(struct client *c, const char *key, enum option_id id, const char *value,
                        struct err *e)
{
    AUTO(free_p) char *pair = str_printf("%s=", key);
    const struct conf_key *row = conf_key_find(span_of(key), NULL);
    int rc = row ? conf_check_value(row, option_name(id), value, e) : 0;
    if (rc < 0)
        return rc;
    return pair && push(c, OPT_CONF, pair, value) == 0
               ? 0
               : err_set(e, ENOMEM, "cannot make the job: %m");
}

/* Turn the options of this command into those of a job without roles. */
static int fill_options(struct notebook *n, struct err *e)
{
    struct client *c = n->c;
    const char *idle = options_get(&c->o, OPT_IDLE), *gpus = options_get(&c->o, OPT_GPUS);
    const char *memory = options_get(&c->o, OPT_MEMORY), *name = options_get(&c->o, OPT_JOB_NAME);
    int64_t idle_ms = IDLE_DEFAULT_MS;
    char day[24];
    if (idle && str_ms(span_of(idle), IDLE_MIN_MS, INT32_MAX, "--idle", &idle_ms, e) < 0)
        return -EINVAL;
    drop_options_of_worker(&c->o); /* the strings stay valid: they point into argv */
    n->jupyter = command(n, idle_ms);
    c->default_am_command = n->jupyter;
    (void)snprintf(day, sizeof day, "%d", DAY_MS);
    if ((gpus && push_checked(c, "tony.am.gpus", OPT_GPUS, gpus, e) < 0) ||
        (memory && push_checked(c, "tony.am.memory", OPT_MEMORY, memory, e) < 0))
        return -e->num;
    int rc = n->jupyter ? 0 : -ENOMEM;
    if (rc == 0)
        rc = push(c, OPT_ENV, "JUPYTER_TOKEN=", n->token);
    if (rc == 0)
        rc = push(c, OPT_CONF, "tony.application.name=", name ? name : "notebook");
    if (rc == 0)
        rc = push(c, OPT_CONF, "tony.application.timeout=", day);
    return rc < 0 ? err_set(e, -rc, "cannot make the job: %m") : 0;
}

/* A job file, or --executes as in TonY, may give another command. It also gets Jupyter's token in
 * the environment. */
static int check_job(struct notebook *n, const struct cluster_job *j, struct err *e)
{
    if (!j->spec->single_node) {
        (void)err_set(e, EINVAL, "a notebook is a job without roles, and this job has roles");
        return err_hint(e, "leave tony.ROLE.instances out of the job file");
    }
    n->path = str_eq(conf_get(j->conf, "tony.am.command"), n->jupyter) ? "lab" : "";
    return 0;
}

/* ---- waiting for Jupyter ---- */

static bool on_update(const char *state, const json_t *summary, void *arg)
{
    struct notebook *n = arg;
    int64_t port = 0;
    const char *url = doc_str(summary, "tensorboard"), *colon = strrchr(url, ':');
    if (!str_eq(n->state, state)) {
        (void)str_copy(n->state, sizeof n->state, state);
        client_note("the notebook is %s", state);
    }
    if (!colon || colon == url)
        return false;
    const char *end = colon + 1 + strspn(colon + 1, "0123456789");
    if (str_i64(span_mem(colon + 1, (size_t)(end - colon - 1)), 1, UINT16_MAX, "port", &port,
                NULL) < 0)
        return false;
    n->port = (uint16_t)port;
    /* The program that reads the URL may send a signal: hold it until serve() follows the job. */
    signals_hold();
    return true;
}

static bool until_end(const char *state, const json_t *summary, void *arg)
{
    (void)state;
    (void)summary;
    (void)arg;
    return false;
}

/* The user's browser runs on another machine if the user has come by ssh. */
static void say_ssh(uint16_t port)
{
    char host[256];
    if (getenv("SSH_CONNECTION") && gethostname(host, sizeof host) == 0)
        client_note("for a browser on your own machine, run there: ssh -N -L %u:127.0.0.1:%u %.*s",
                    port, port, (int)sizeof host - 1, host);
}

/* Forward the port, and follow the job to its end. */
static int serve(struct notebook *n, struct cluster *k, const char *id, struct follow_result *r,
                 struct err *e)
{
    struct stream_job j;
    struct forward *f = NULL;
    int rc = stream_job_of(n->c, k, id, &j, e);
    if (rc == 0)
        rc = forward_open(&j, "driver:0", 0, n->port, &f, e);
    if (rc == 0) {
        (void)printf("http://127.0.0.1:%u/%s?token=%s\n", forward_port(f), n->path, n->token);
        (void)client_flush_stdout();
        client_note(
            "Ctrl-C ends the notebook; files that you want to keep must be saved outside of "
            "it (tony cp %s driver:0:FILE .)",
            id);
        say_ssh(forward_port(f));
        struct follow_options o = { .owns_job = true, .signals = true, .on_update = until_end };
        rc = cluster_follow(k, id, &o, r, e);
    }
    forward_close(f);
    stream_job_done(&j);
    return rc;
}

static int follow(struct notebook *n, struct cluster *k, const char *id, struct err *e)
{
    struct follow_result r = { 0 };
    struct follow_options o = {
        .owns_job = true, .signals = true, .on_update = on_update, .arg = n
    };
    int rc = cluster_follow(k, id, &o, &r, e);
    if (rc == 0 && !r.finished && n->port) {
        follow_result_done(&r);
        rc = serve(n, k, id, &r, e);
    }
    if (rc == 0 && r.finished)
        client_note("notebook %s: %s", doc_str(r.summary, "state"), doc_str(r.summary, "message"));
    if (rc == 0 && r.finished && r.exit_code == EXIT_JOB_FAILED)
        client_note(
            "tony logs %s shows what Jupyter wrote; if it is missing: pip install jupyterlab", id);
    if (rc == 0 && r.finished) {
        const char *state = doc_str(r.summary, "state");
        cluster_settle(k, id, state, str_eq(state, "KILLED"));
    }
    /* The user ends a notebook by a signal: that is no failure. */
    int code = rc < 0 ? rc : r.exit_code == EXIT_STOPPED ? EXIT_DONE : r.exit_code;
    follow_result_done(&r);
    return code;
}

int cmd_notebook(struct client *c)
{
    struct err e = { 0 };
    struct notebook n = { .c = c };
    struct cluster_job job;
    struct cluster *k = NULL;
    struct cluster_submitted s = { .id = "" };
    if (make_token(&n, &e) < 0)
        return client_fail(EXIT_CLUSTER, &e);
    int rc = fill_options(&n, &e) < 0 || client_job_load(c, &job, &e) < 0 ? -EXIT_MISUSE : 0;
    if (rc < 0) {
        free(n.jupyter);
        return client_fail(EXIT_MISUSE, &e);
    }
    rc = check_job(&n, &job, &e) < 0 ? -EXIT_MISUSE : 0;
    if (rc == 0)
        rc = client_submit(c, &job, true, &k, &s, &e);
    if (rc == 0)
        for (size_t i = 0; i < s.said.n; i++)
            client_note("%s", s.said.v[i]);
    if (rc == 0)
        rc = follow(&n, k, s.id, &e);
    int code = rc < 0 ? client_fail(-rc, &e) : rc;
    cluster_submitted_done(&s);
    cluster_ops_close(TAKE(c->cluster)); /* it uses the configuration of the job */
    client_job_done(&job);
    free(n.jupyter);
    return code;
}
