/*
 * A Hadoop cluster as one command sees it: its site files, the connections, and one question at a
 * time.
 */
#include <errno.h>
#include <pwd.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/yarn.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"
#include "loop/http.h"
#include "loop/loop.h"
#include "storage/jobkey.h"

enum {
    RETRY_INTERVAL_MAX_MS = 5000, /* Hadoop's own 30 s would be a minute and a half of silence */
    KILL_EVERY_MS = 200,
    KEY_FILE_MAX = 4096,
};

/* ---- whose commands these are ---- */

bool yarn_wanted(struct client *c)
{
    const char *option = options_get(&c->o, OPT_CLUSTER);
    if (option)
        return str_eq(option, "yarn");
    const char *dir = getenv("HADOOP_CONF_DIR");
    if (dir && *dir)
        return true;
    AUTO(conf_freep) struct conf *conf = conf_new();
    if (!conf || conf_load_site(conf, NULL) < 0)
        return false;
    const char *cluster = conf_get(conf, "tony.cluster");
    return cluster && str_eq(cluster, "yarn");
}

/* ---- site files ---- */

static char *user_name(void)
{
    const char *named = getenv("HADOOP_USER_NAME"); /* as Hadoop's own clients without Kerberos */
    if (named && *named)
        return str_dup(named);
    struct passwd *pw = getpwuid(getuid());
    return pw ? str_dup(pw->pw_name) : str_printf("%u", (unsigned)getuid());
}

static int add_path(struct yarn *y, const char *key, bool *any, struct err *e)
{
    const char *path = conf_get(y->conf, key);
    if (!path || !*path)
        return 0;
    *any = true;
    if (str_starts(path, "file://"))
        path += strlen("file://");
    int rc = site_add_file(y->site, path, e);
    return rc < 0 ? err_wrap(e, rc, "%s", conf_origin(y->conf, key)) : 0;
}

static int load_site(struct yarn *y, struct err *e)
{
    const char *dir = getenv("HADOOP_CONF_DIR");
    if (!dir || !*dir)
        dir = getenv("YARN_CONF_DIR");
    y->site = site_new(e);
    if (!y->site)
        return -EXIT_CLUSTER;
    bool any = false;
    int rc = site_set_default(y->site, "user.name", y->user);
    if (rc < 0)
        (void)err_set(e, -rc, "cannot read the cluster's configuration: %m");
    if (rc == 0 && dir && *dir) {
        any = true;
        rc = site_add_dir(y->site, dir, e);
    }
    if (rc == 0)
        rc = add_path(y, "tony.application.hdfs-conf-path", &any, e);
    if (rc == 0)
        rc = add_path(y, "tony.application.yarn-conf-path", &any, e);
    if (rc == 0 && !any) {
        (void)err_set(e, EINVAL, "it is not known where the YARN cluster is");
        rc = err_hint(e, "set HADOOP_CONF_DIR to the directory with core-site.xml, hdfs-site.xml "
                         "and yarn-site.xml of the cluster");
    }
    return rc < 0 ? -EXIT_MISUSE : 0;
}

static int check_security(struct yarn *y, struct err *e)
{
    bool secure = false;
    const char *key = "tony.application.security.enabled";
    if (site_secure(y->site, &secure, e) < 0)
        return -EXIT_MISUSE;
    if (secure) {
        const char *at = site_origin(y->site, "hadoop.security.authentication");
        (void)err_set(
            e, EOPNOTSUPP,
            "%s: the cluster authenticates by Kerberos, which this release does not speak",
            at ? at : "core-site.xml");
        return -EXIT_MISUSE;
    }
    const char *origin = conf_origin(y->conf, key);
    if (conf_bool(y->conf, key) && origin && !str_eq(origin, "default")) {
        (void)err_set(e, EINVAL, "%s: '%s' demands a secure cluster, and this one is not", origin,
                      key);
        err_hint(e, "leave the key out to run on a cluster without Kerberos");
        return -EXIT_MISUSE;
    }
    if (y->hdfs.https) {
        (void)err_set(e, EOPNOTSUPP,
                      "WebHDFS of '%s' is served by https only, which this release "
                      "does not speak",
                      y->hdfs.fs);
        err_hint(e, "dfs.http.policy says so; HTTP_AND_HTTPS is understood");
        return -EXIT_MISUSE;
    }
    return 0;
}

static int read_addresses(struct yarn *y, struct err *e)
{
    int rc = site_rm(y->site, SITE_RM_CLIENT, &y->rm, e);
    if (rc == 0)
        rc = site_rm(y->site, SITE_RM_SCHEDULER, &y->scheduler, e);
    if (rc == 0)
        rc = site_hdfs(y->site, &y->hdfs, e);
    if (rc < 0)
        return -EXIT_MISUSE;
    struct site_addresses web = { 0 };
    if (site_rm(y->site, SITE_RM_WEB, &web, NULL) == 0 && web.n)
        y->web = str_printf(strchr(web.v[0].host, ':') ? "[%s]:%u" : "%s:%u", web.v[0].host,
                            (unsigned)web.v[0].port);
    site_addresses_done(&web);
    return check_security(y, e);
}

static void set_patience(struct yarn *y)
{
    int64_t interval = 0,
            tries = conf_int(y->conf, "tony.application.num-client-rm-connect-retries");
    if (site_ms(y->site, "yarn.resourcemanager.connect.retry-interval.ms", 1, 30000, &interval,
                NULL) < 0)
        interval = RETRY_INTERVAL_MAX_MS;
    interval = MAX(MIN(interval, (int64_t)RETRY_INTERVAL_MAX_MS), (int64_t)100);
    y->patience_ms = interval * MIN(MAX(tries, (int64_t)1), (int64_t)1000);
}

/* ---- connections ---- */

static void on_rm_retry(const struct rpc_error *why, uint32_t next_ms, void *arg)
{
    struct yarn *y = arg;
    (void)next_ms;
    if (y->said_waiting)
        return;
    y->said_waiting = true;
    client_note("waiting for the ResourceManager: %s", why->err.msg);
}

static int make_clients(struct yarn *y, struct err *e)
{
    const struct rpc_client_options o = {
        .loop = y->loop,
        .what = "the ResourceManager",
        .protocol = YARN_CLIENT_PROTOCOL,
        .addresses = &y->rm,
        .user = y->user,
        .idle_ms = UINT32_MAX,
        .retry_max_ms = 1000,
        .on_retry = on_rm_retry,
        .arg = y,
    };
    int rc = rpc_client_new(&o, &y->rpc, e);
    struct strv nodes = { 0 };
    for (size_t i = 0; rc == 0 && i < y->hdfs.http.n; i++) {
        const struct site_address *a = &y->hdfs.http.v[i];
        rc = strv_pushf(&nodes, strchr(a->host, ':') ? "[%s]:%u" : "%s:%u", a->host,
                        (unsigned)a->port);
        if (rc < 0)
            (void)err_set(e, ENOMEM, "cannot reach the cluster: %m");
    }
    const struct webhdfs_config cfg = { .namenodes = (const char *const *)nodes.v,
                                        .n_namenodes = nodes.n,
                                        .user = y->user,
                                        .try_ms = y->patience_ms };
    if (rc == 0)
        rc = webhdfs_new(y->loop, &cfg, &y->fs, e);
    strv_done(&nodes);
    return rc < 0 ? -EXIT_CLUSTER : 0;
}

static int load_own_conf(struct client *c, struct yarn *y, struct err *e)
{
    y->own_conf = conf_new();
    y->conf = y->own_conf;
    if (!y->own_conf) {
        (void)err_set(e, ENOMEM, "cannot read the configuration: %m");
        return -EXIT_CLUSTER;
    }
    int rc = conf_load_site(y->own_conf, e);
    for (size_t i = 0; rc == 0 && i < c->o.n; i++) {
        if (c->o.v[i].id != OPT_CONF)
            continue;
        struct span value = span_of(c->o.v[i].value), key;
        (void)span_split(&value, '=', &key);
        AUTO(free_p)
        char *k = span_dup(span_trim(key)), *v = span_dup(value.p ? span_trim(value) : SPAN(""));
        rc = k && v ? conf_set(y->own_conf, CL_CONF, k, v, "--conf", false, e)
                    : err_set(e, ENOMEM, "cannot read the configuration: %m");
    }
    return rc < 0 ? -EXIT_MISUSE : 0;
}

int yarn_open(struct client *c, const struct conf *conf, struct yarn **out, struct err *e)
{
    struct yarn *y = calloc(1, sizeof *y);
    if (!y) {
        (void)err_set(e, ENOMEM, "cannot reach the cluster: %m");
        return -EXIT_CLUSTER;
    }
    y->c = c;
    y->conf = conf;
    /* What the libraries log beside their errors is for who asked for it. */
    log_setup(STDERR_FILENO, options_has(&c->o, OPT_VERBOSE) ? LOG_INFO : LOG_ERROR, false);
    y->loop = client_loop(c, e);
    y->user = user_name();
    int rc = y->loop && y->user ? 0 : -EXIT_CLUSTER;
    if (rc == 0 && !conf)
        rc = load_own_conf(c, y, e);
    if (rc == 0)
        rc = load_site(y, e);
    if (rc == 0)
        rc = read_addresses(y, e);
    if (rc == 0) {
        set_patience(y);
        rc = make_clients(y, e);
    }
    if (rc < 0) {
        yarn_free(y);
        return rc;
    }
    *out = y;
    return 0;
}

void yarn_free(struct yarn *y)
{
    if (!y)
        return;
    rpc_client_free(y->rpc);
    webhdfs_free(y->fs);
    http_free(y->http);
    site_addresses_done(&y->rm);
    site_addresses_done(&y->scheduler);
    site_hdfs_done(&y->hdfs);
    site_free(y->site);
    conf_free(y->own_conf);
    free(y->web);
    free(y->user);
    free(y->home);
    free(y->dir);
    free(y->history);
    free(y);
}

void yarn_freep(struct yarn **y)
{
    yarn_free(*y);
}

struct http *yarn_http(struct yarn *y, struct err *e)
{
    if (!y->http)
        y->http = http_new(y->loop, e);
    return y->http;
}

/* ---- waiting ---- */

void yarn_join_end(struct yarn_join *j, const struct err *e)
{
    if (e && e->num && !j->e.num)
        j->e = *e;
    if (--j->n == 0)
        loop_stop(j->loop);
}

void yarn_join_wait(struct yarn_join *j)
{
    while (j->n)
        (void)loop_run(j->loop); /* everything that is begun has a deadline of its own */
}

int64_t yarn_deadline(const struct yarn *y)
{
    return clock_mono_ms() + y->patience_ms;
}

int yarn_exit_code(const struct err *e)
{
    return e->num == EINVAL || e->num == ERANGE || e->num == E2BIG || e->num == ENAMETOOLONG
               ? EXIT_MISUSE
               : EXIT_CLUSTER;
}

void yarn_first_line(const char *text, char *out, size_t n)
{
    struct span rest = span_trim(span_of(text ? text : "")), line = { "", 0 };
    (void)span_split(&rest, '\n', &line);
    line = span_trim(line);
    (void)snprintf(out, n, "%.*s", (int)MIN(line.len, (size_t)1000), line.p);
}

struct one { /* one operation that is waited for */
    struct yarn *y;
    struct yarn_join join;
    struct buf *out;
    int *out_status;
    struct yarn_report *report;
    bool killed;
};

/* ---- home ---- */

static int set_home(struct yarn *y, const char *home, struct err *e)
{
    const char *place = conf_get(y->conf, "tony.history.location");
    free(TAKE(y->home));
    free(TAKE(y->dir));
    free(TAKE(y->history));
    y->home = str_dup(home);
    y->dir = str_printf("%s/.tony", home);
    if (place && str_starts(place, "hdfs://")) {
        const char *slash = strchr(place + strlen("hdfs://"), '/');
        y->history = str_dup(slash ? slash : "/");
    } else {
        y->history = place && *place == '/' ? str_dup(place)
                     : place && *place      ? str_printf("%s/%s", home, place)
                                            : str_printf("%s/.tony/history", home);
    }
    if (y->home && y->dir && y->history)
        return 0;
    (void)err_set(e, ENOMEM, "cannot reach the cluster: %m");
    return -EXIT_CLUSTER;
}

/* As Hadoop's own clients have it: from their configuration, without asking. */
int yarn_home(struct yarn *y, struct err *e)
{
    if (y->home)
        return 0;
    const char *prefix = site_get(y->site, "dfs.user.home.dir.prefix");
    AUTO(free_p) char *home = str_printf("%s/%s", prefix ? prefix : "/user", y->user);
    if (home)
        return set_home(y, home, e);
    (void)err_set(e, ENOMEM, "cannot reach the cluster: %m");
    return -EXIT_CLUSTER;
}

/* ---- reports ---- */

void yarn_report_done(struct yarn_report *r)
{
    free(r->user);
    free(r->queue);
    free(r->name);
    free(r->host);
    free(r->url);
    free(r->diagnostics);
    free(r->type);
    *r = (struct yarn_report){ 0 };
}

static char *copy_text(const char *s)
{
    return str_dup(s && !str_eq(s, "N/A") ? s : "");
}

int yarn_report_copy(const Hadoop__ApplicationReport *from, struct yarn_report *out)
{
    struct yarn_app app = { 0 };
    char id[YARN_ID_TEXT_MAX];
    *out = (struct yarn_report){
        .state = from->yarn_application_state,
        .final = from->final_application_status,
        .user = copy_text(from->user),
        .queue = copy_text(from->queue),
        .name = copy_text(from->name),
        .host = copy_text(from->host),
        .url = copy_text(from->tracking_url),
        .diagnostics = copy_text(from->diagnostics),
        .type = copy_text(from->application_type),
        .rpc_port = from->rpc_port,
        .submitted_ms = from->has_submit_time ? from->submit_time : from->start_time,
        .started_ms = from->has_launch_time ? from->launch_time : 0,
        .finished_ms = from->finish_time,
    };
    if (yarn_app_get(from->application_id, &app))
        (void)str_copy(out->id, sizeof out->id, yarn_app_text(&app, id));
    struct yarn_attempt attempt;
    if (yarn_attempt_get(from->current_application_attempt_id, &attempt))
        out->attempt = attempt.attempt;
    const Hadoop__ApplicationResourceUsageReport *use = from->app_resource_usage;
    if (use) {
        out->used_memory_mib = yarn_resource_value(use->used_resources, "memory-mb");
        out->used_vcores = yarn_resource_value(use->used_resources, "vcores");
        out->containers = use->num_used_containers;
    }
    if (out->user && out->queue && out->name && out->host && out->url && out->diagnostics &&
        out->type)
        return 0;
    yarn_report_done(out);
    return -ENOMEM;
}

static void report_done(const Hadoop__GetApplicationReportResponse *r, const struct rpc_error *e,
                        void *arg)
{
    struct one *o = arg;
    struct err err = { 0 };
    if (e) {
        err = e->err;
        if (e->kind == RPC_FAULT_NOT_FOUND)
            err.num = ENOENT;
    } else if (!r->application_report || yarn_report_copy(r->application_report, o->report) < 0) {
        (void)err_set(&err, EPROTO, "the ResourceManager's answer holds no report");
    }
    yarn_join_end(&o->join, &err);
}

static bool app_message(const char *id, struct yarn_id_msg *m, Hadoop__ApplicationId **out,
                        struct err *e)
{
    struct yarn_app app;
    if (yarn_app_parse(span_of(id), &app, e) < 0)
        return false;
    *out = yarn_app_msg(m, &app);
    return true;
}

int yarn_report(struct yarn *y, const char *id, struct yarn_report *out, struct err *e)
{
    struct one o = { .y = y, .join = { .loop = y->loop, .n = 1 }, .report = out };
    struct yarn_id_msg m;
    Hadoop__GetApplicationReportRequest rq = HADOOP__GET_APPLICATION_REPORT_REQUEST__INIT;
    if (!app_message(id, &m, &rq.application_id, e))
        return -EINVAL;
    if (!yarn_get_application_report(y->rpc, &rq, yarn_deadline(y), report_done, &o))
        return err_set(e, ENOMEM, "cannot ask the ResourceManager: %m");
    yarn_join_wait(&o.join);
    if (!o.join.e.num)
        return 0;
    *e = o.join.e;
    if (e->num == ENOENT) {
        (void)err_set(e, ENOENT, "the cluster knows no application '%s'", id);
        err_hint(e, "tony list shows yours; the ResourceManager at %s forgets old ones",
                 rpc_client_address(y->rpc));
    }
    return -e->num;
}

static void kill_done(const Hadoop__KillApplicationResponse *r, const struct rpc_error *e,
                      void *arg)
{
    struct one *o = arg;
    if (r)
        o->killed = r->is_kill_completed;
    yarn_join_end(&o->join, e ? &e->err : NULL);
}

static void pause_over(void *arg)
{
    struct one *o = arg;
    yarn_join_end(&o->join, NULL);
}

static void pause_ms(struct yarn *y, int64_t ms)
{
    struct one o = { .y = y, .join = { .loop = y->loop, .n = 1 } };
    struct loop_timer *t = loop_timer_new(y->loop, pause_over, &o);
    if (!t)
        return;
    loop_timer_set(t, clock_mono_ms() + ms);
    yarn_join_wait(&o.join);
    loop_timer_free(t);
}

int yarn_force_kill(struct yarn *y, const char *id, const char *why, struct err *e)
{
    int64_t deadline = yarn_deadline(y) + 10000;
    struct yarn_id_msg m;
    Hadoop__KillApplicationRequest rq = HADOOP__KILL_APPLICATION_REQUEST__INIT;
    if (!app_message(id, &m, &rq.application_id, e))
        return -EINVAL;
    rq.diagnostics = (char *)(uintptr_t)why;
    for (;;) {
        struct one o = { .y = y, .join = { .loop = y->loop, .n = 1 } };
        if (!yarn_kill_application(y->rpc, &rq, yarn_deadline(y), kill_done, &o))
            return err_set(e, ENOMEM, "cannot ask the ResourceManager: %m");
        yarn_join_wait(&o.join);
        if (o.join.e.num) {
            *e = o.join.e;
            return -e->num;
        }
        if (o.killed)
            return 0;
        if (clock_mono_ms() > deadline)
            return err_set(e, ETIMEDOUT, "application '%s' has not ended yet", id);
        pause_ms(y, KILL_EVERY_MS);
    }
}

/* ---- files and pages ---- */

static void read_done(const struct webhdfs_result *r, const struct err *e, void *arg)
{
    struct one *o = arg;
    struct err err = *e;
    if (r && buf_add(o->out, r->data.p, r->data.len) < 0)
        (void)err_set(&err, ENOMEM, "cannot keep what was read: %m");
    yarn_join_end(&o->join, &err);
}

int yarn_read(struct yarn *y, const char *path, size_t max, struct buf *out, struct err *e)
{
    struct one o = { .y = y, .join = { .loop = y->loop, .n = 1 }, .out = out };
    const struct webhdfs_get get = { .path = path, .max = max };
    int rc = webhdfs_get(y->fs, &get, read_done, &o, NULL, e);
    if (rc < 0)
        return rc;
    yarn_join_wait(&o.join);
    if (o.join.e.num)
        *e = o.join.e;
    return -o.join.e.num;
}

static void removed(const struct webhdfs_result *r, const struct err *e, void *arg)
{
    struct one *o = arg;
    (void)r;
    yarn_join_end(&o->join, e);
}

int yarn_remove(struct yarn *y, const char *path, struct err *e)
{
    struct one o = { .y = y, .join = { .loop = y->loop, .n = 1 } };
    int rc = webhdfs_delete(y->fs, path, true, removed, &o, NULL, e);
    if (rc < 0)
        return rc;
    yarn_join_wait(&o.join);
    if (o.join.e.num && e)
        *e = o.join.e;
    return -o.join.e.num;
}

static void page_done(struct http_call *c, const struct http_response *r, const struct err *e,
                      void *arg)
{
    struct one *o = arg;
    struct err err = *e;
    (void)c;
    if (r) {
        *o->out_status = r->status;
        if (buf_add(o->out, r->body.p, r->body.len) < 0)
            (void)err_set(&err, ENOMEM, "cannot keep what was read: %m");
    }
    yarn_join_end(&o->join, &err);
}

int yarn_get(struct yarn *y, const char *url, size_t max, struct buf *out, int *out_status,
             struct err *e)
{
    if (!yarn_http(y, e))
        return -e->num;
    struct one o = {
        .y = y, .join = { .loop = y->loop, .n = 1 }, .out = out, .out_status = out_status
    };
    const char *const headers[] = { "Accept: application/json, text/plain, */*", NULL };
    const struct http_request q = { .method = "GET",
                                    .url = url,
                                    .headers = headers,
                                    .body_max = max,
                                    .stall_ms = y->patience_ms,
                                    .done = page_done,
                                    .arg = &o };
    int rc = http_send(y->http, &q, NULL, e);
    if (rc < 0)
        return rc;
    yarn_join_wait(&o.join);
    if (o.join.e.num)
        *e = o.join.e;
    return -o.join.e.num;
}

int yarn_client_key(struct yarn *y, const char *id, struct tls_key *out, struct err *e)
{
    if (yarn_home(y, e) < 0)
        return -e->num;
    AUTO(free_p) char *path = str_printf("%s/%s/" JOB_KEY_CLIENT_FILE, y->dir, id);
    AUTO(buf_done) struct buf text = { .max = KEY_FILE_MAX };
    if (!path)
        return err_set(e, ENOMEM, "cannot read the key of job '%s': %m", id);
    int rc = yarn_read(y, path, KEY_FILE_MAX, &text, e);
    if (rc == 0)
        rc = job_key_parse(span_trim(buf_span(&text)), out, e);
    if (text.p)
        job_key_wipe(text.p, text.len);
    return rc < 0 ? err_wrap(e, rc, "cannot speak to the master of '%s'", id) : 0;
}
