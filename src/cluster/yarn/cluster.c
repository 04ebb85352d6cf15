/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Hadoop cluster for the duration of one command: its site files and the connections.
 */
#include <errno.h>
#include <pwd.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/yarn/yarn.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"
#include "loop/http.h"
#include "loop/loop.h"
#include "storage/jobkey.h"

enum {
    LONG_WAIT_MS = 3000,
    ANSWER_WAIT_MS = 20000, /* for a server that is up, but busy */
    /* With Hadoop's default of 30 s, the command would print nothing for 90 s. */
    RETRY_INTERVAL_MAX_MS = 5000,
};

/* ---- site files ---- */

static char *user_name(void)
{
    /* Hadoop's own clients do the same if there is no Kerberos. */
    const char *named = getenv("HADOOP_USER_NAME");
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
        (void)err_set(e, EINVAL,
                      "cannot find the YARN cluster: HADOOP_CONF_DIR is not set, and the job names "
                      "no site files");
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
            "%s: the cluster authenticates users with Kerberos, which tony does not support yet",
            at ? at : "core-site.xml");
        return -EXIT_MISUSE;
    }
    const char *origin = conf_origin(y->conf, key);
    if (conf_bool(y->conf, key) && origin && !str_eq(origin, "default")) {
        (void)err_set(e, EINVAL,
                      "%s: '%s' requires a cluster with Kerberos, and this cluster has none",
                      origin, key);
        err_hint(e, "leave the key out to run on a cluster without Kerberos");
        return -EXIT_MISUSE;
    }
    if (y->hdfs.https) {
        (void)err_set(e, EOPNOTSUPP,
                      "'%s' serves WebHDFS only by https, which tony does not support yet",
                      y->hdfs.fs);
        err_hint(e, "the cluster's hdfs-site.xml decides this: dfs.http.policy can be HTTP_ONLY or "
                    "HTTP_AND_HTTPS");
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
            tries = y->head.cfg.hasty
                        ? 1
                        : conf_int(y->conf, "tony.application.num-client-rm-connect-retries");
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
    host_note(y->host, "waiting for the ResourceManager: %s", why->err.msg);
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
        .reach_ms = (uint32_t)MIN(y->patience_ms, (int64_t)INT32_MAX),
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

static void yarn_free(struct yarn *y)
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
    yarn_submission_free(y->staged);
    job_key_wipe(&y->key, sizeof y->key);
    free(y->web);
    free(y->user);
    free(y->home);
    free(y->dir);
    free(y->history);
    free(y);
}

int yarn_open(const struct cluster_config *cfg, struct yarn **out, struct err *e)
{
    struct yarn *y = calloc(1, sizeof *y);
    if (!y) {
        (void)err_set(e, ENOMEM, "cannot reach the cluster: %m");
        return -EXIT_CLUSTER;
    }
    y->head = (struct cluster_head){ &cluster_yarn, *cfg };
    y->host = cfg->host;
    y->conf = cfg->conf;
    /* Log messages of the libraries appear only with --verbose, except errors. */
    log_setup(STDERR_FILENO, y->host->verbose ? LOG_INFO : LOG_ERROR, false);
    y->loop = host_loop(y->host, e);
    y->user = user_name();
    int rc = y->loop && y->user ? 0 : -EXIT_CLUSTER;
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

static void on_long_wait(void *arg)
{
    const struct yarn_join *j = arg;
    host_note(j->host, "waiting for %s", j->waits_for);
}

void yarn_join_wait(struct yarn_join *j)
{
    struct loop_timer *t = j->waits_for && j->n ? loop_timer_new(j->loop, on_long_wait, j) : NULL;
    if (t)
        loop_timer_set(t, clock_mono_ms() + LONG_WAIT_MS);
    while (j->n)
        (void)loop_run(j->loop); /* every request has its own deadline, so the loop ends */
    loop_timer_free(t);
}

int64_t yarn_deadline(const struct yarn *y)
{
    return clock_mono_ms() + MAX(y->patience_ms, (int64_t)ANSWER_WAIT_MS);
}

int yarn_exit_code(const struct err *e)
{
    return e->num == EINVAL || e->num == ERANGE || e->num == E2BIG || e->num == ENAMETOOLONG
               ? EXIT_MISUSE
               : EXIT_CLUSTER;
}

/* Copy what fits, without a partial UTF-8 character at the end. */
static void copy_cut(struct span text, char *out, size_t n)
{
    size_t len = MIN(text.len, n - 1), bad = 0;
    if (len < text.len && !span_utf8(span_mem(text.p, len), &bad) && len - bad < 4)
        len = bad; /* the cut is inside a character: leave that character out */
    memcpy(out, text.p ? text.p : "", len);
    out[len] = 0;
}

void yarn_first_line(const char *text, char *out, size_t n)
{
    struct span rest = span_trim(span_of(text ? text : "")), line = { "", 0 };
    (void)span_split(&rest, '\n', &line);
    copy_cut(span_trim(line), out, n);
}

void yarn_waiting_text(const char *diagnostics, char *out, size_t n)
{
    static const char *const figures[] = { "Details :", "Last Node which was processed" };
    struct span text = span_of(diagnostics ? diagnostics : "");
    if (text.len && text.p[0] == '[' && strchr(text.p, ']'))
        text = span_of(strchr(text.p, ']') + 1);
    for (size_t i = 0; i < ARRAY_LEN(figures); i++) {
        const char *at = text.len ? memmem(text.p, text.len, figures[i], strlen(figures[i])) : NULL;
        if (at)
            text.len = (size_t)(at - text.p);
    }
    const char *end = text.len ? memchr(text.p, '\n', text.len) : NULL;
    text = span_trim(end ? span_mem(text.p, (size_t)(end - text.p)) : text);
    if (text.len && text.p[text.len - 1] == '.')
        text.len--;
    copy_cut(text, out, n);
}

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

/* Hadoop's own clients, too, take the home directory from their configuration, without a
 * request. */
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
