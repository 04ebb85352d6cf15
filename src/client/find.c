/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the cluster of a command, and the job on it.
 */
#include <errno.h>

#include "base/base.h"
#include "client/client_int.h"
#include "conf/conf.h"

/* Apply the options --conf. Bad ones are errors only for commands with a job. */
static int set_conf_options(struct client *c, struct conf *conf, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->o.n; i++) {
        if (c->o.v[i].id != OPT_CONF)
            continue;
        struct span value = span_of(c->o.v[i].value), key;
        (void)span_split(&value, '=', &key);
        AUTO(free_p)
        char *k = span_dup(span_trim(key)), *v = span_dup(value.p ? span_trim(value) : SPAN(""));
        rc = k && v ? conf_set(conf, CL_CONF, k, v, "--conf", false, e)
                    : err_set(e, ENOMEM, "cannot read the configuration: %m");
    }
    return rc;
}

const struct conf *client_site(struct client *c, struct err *e)
{
    if (c->site)
        return c->site;
    AUTO(conf_freep) struct conf *conf = conf_new();
    if (!conf) {
        (void)err_set(e, ENOMEM, "cannot read the configuration: %m");
        return NULL;
    }
    if (conf_load_site(conf, e) < 0 || set_conf_options(c, conf, e) < 0)
        return NULL;
    return c->site = TAKE(conf);
}

int client_no_cluster(const char *name, struct err *e)
{
    enum { NAMES_MAX = 16 };
    const char *names[NAMES_MAX];
    AUTO(buf_done) struct buf all = { 0 };
    size_t n = 0;
    for (; n < NAMES_MAX && cluster_at(n); n++) {
        names[n] = cluster_at(n)->name;
        (void)buf_addf(&all, "%s%s", n ? ", " : "", names[n]);
    }
    (void)err_set(e, EINVAL, "there is no cluster '%s', only %s", name, buf_cstr(&all));
    const char *near = str_nearest(name, names, n);
    if (near)
        err_hint(e, "did you mean '%s'?", near);
    return -EXIT_MISUSE;
}

const struct cluster_ops *client_wanted(struct client *c)
{
    struct err unread = { 0 };
    return cluster_wanted(options_get(&c->o, OPT_CLUSTER), client_site(c, &unread));
}

int client_open(struct client *c, const struct cluster_ops *ops, const struct conf *conf,
                struct cluster **out, struct err *e)
{
    /* If the site file is damaged, the jobs of this machine can still be asked for: they need none
     * of its settings. */
    if (!conf && !(conf = client_site(c, e)) && ops->remote)
        return e->num == ENOMEM ? -EXIT_CLUSTER : -EXIT_MISUSE;
    if (!conf)
        err_clear(e);
    cluster_ops_close(TAKE(c->cluster));
    const struct cluster_config cfg = { .host = &c->host, .conf = conf };
    int rc = ops->open(&cfg, &c->cluster, e);
    *out = c->cluster;
    return rc;
}

int client_open_wanted(struct client *c, struct cluster **out, struct err *e)
{
    const struct cluster_ops *ops = client_wanted(c);
    return ops ? client_open(c, ops, NULL, out, e)
               : client_no_cluster(options_get(&c->o, OPT_CLUSTER), e);
}

/* Are these the settings of the cluster to which the job was submitted? */
static int check_place(const struct cluster *k, const char *id, const char *place, struct err *e)
{
    const struct cluster_ops *ops = cluster_ops_of(k);
    AUTO(free_p) char *now = ops->where ? ops->where(k) : NULL;
    if (!now || str_eq(place, "-") || str_eq(now, place))
        return 0;
    (void)err_set(e, EINVAL, "job '%s' was submitted to %s at %s, but the settings name %s", id,
                  ops->title, place, now);
    err_hint(e, "use the settings of that cluster, or name it with --cluster to ask this one");
    return -EXIT_MISUSE;
}

/* Look for the job in the record of what was submitted. If the user names the cluster (--cluster)
 * and an id, the place of the record is not compared with the settings. *out_found: *out and id are
 * set. */
static int find_recorded(struct client *c, const char *option, const char *word,
                         struct cluster **out, char id[APP_ID_MAX], bool *out_found, struct err *e)
{
    char place[CLUSTER_PLACE_MAX], whole[APP_ID_MAX];
    struct err unread = { 0 };
    const struct cluster_ops *ops = cluster_recorded(&c->host, option, word, whole, place);
    if (!ops)
        return 0;
    int rc = client_open(c, ops, NULL, out, e);
    if (rc == 0 && !option)
        rc = check_place(*out, whole, place, e);
    if (rc < 0)
        return rc;
    /* A job of this machine may have been removed: then `last` means the newest one that is there.
     */
    *out_found = ops->remote || ops->find(*out, whole, id, &unread) == 0;
    return *out_found && !str_copy(id, APP_ID_MAX, whole) ? -EXIT_MISUSE : 0;
}

int client_find(struct client *c, const char *word, struct cluster **out, char id[APP_ID_MAX],
                struct err *e)
{
    const char *option = options_get(&c->o, OPT_CLUSTER);
    struct err unread = { 0 };
    bool found = false;
    int rc = find_recorded(c, option, word, out, id, &found, e);
    if (rc < 0 || found)
        return rc;
    const struct cluster_ops *ops = cluster_of(&c->host, option, client_site(c, &unread), word);
    if (!ops)
        return client_no_cluster(option, e);
    rc = client_open(c, ops, NULL, out, e);
    return rc < 0 ? rc : ops->find(*out, word, id, e);
}
