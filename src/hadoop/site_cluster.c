/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the addresses of the cluster's servers in its site files. */
#include "hadoop/site_int.h"

#include <errno.h>
#include <stdlib.h>

#include "base/base.h"
#include "loop/tcp.h"

/* ---- lists of addresses ---- */

int site_addresses_add(struct site_addresses *a, const char *host, uint16_t port)
{
    struct site_address one = { str_dup(host), port };
    if (!one.host || vec_push(a, one) < 0) {
        free(one.host);
        return -ENOMEM;
    }
    return 0;
}

void site_addresses_done(struct site_addresses *a)
{
    for (size_t i = 0; i < a->n; i++)
        free(a->v[i].host);
    vec_done(a);
}

int site_addresses_copy(const struct site_addresses *from, struct site_addresses *out)
{
    struct site_addresses a = { 0 };
    for (size_t i = 0; i < from->n; i++) {
        if (site_addresses_add(&a, from->v[i].host, from->v[i].port) < 0) {
            site_addresses_done(&a);
            return -ENOMEM;
        }
    }
    *out = a;
    return 0;
}

int site_addresses_parse(struct site_addresses *a, const char *text, uint16_t default_port,
                         struct err *e)
{
    struct span rest = span_of(text), field;
    while (span_split(&rest, ',', &field)) {
        char host[TCP_HOST_MAX + 1];
        uint16_t port = 0;
        AUTO(free_p) char *one = span_dup(span_trim(field));
        if (!one)
            return err_set(e, ENOMEM, "cannot read an address: %m");
        int rc = tcp_split(one, default_port, host, &port, e);
        if (rc < 0)
            return rc;
        if (site_addresses_add(a, host, port) < 0)
            return err_set(e, ENOMEM, "cannot read an address: %m");
    }
    return 0;
}

char *site_addresses_text(const struct site_addresses *a)
{
    struct buf b = { 0 };
    for (size_t i = 0; i < a->n; i++) {
        bool v6 = strchr(a->v[i].host, ':') != NULL;
        (void)buf_addf(&b, "%s%s%s%s:%u", i > 0 ? "," : "", v6 ? "[" : "", a->v[i].host,
                       v6 ? "]" : "", a->v[i].port);
    }
    char *out = b.failed ? NULL : buf_steal(&b);
    buf_done(&b);
    return out;
}

/* ---- an address by its key ---- */

static bool is_any(const char *host)
{
    return str_eq(host, "0.0.0.0") || str_eq(host, "::");
}

/* 1: added; 0: the key is not set; negative */
static int add_by_key(struct site *s, const char *key, uint16_t default_port,
                      struct site_addresses *out, struct err *e)
{
    const char *v = site_get(s, key);
    if (!v)
        return 0;
    struct site_addresses one = { 0 };
    if (strstr(v, "${"))
        return site_bad(s, key, e, "is '%s': it has a variable that is not known", v);
    int rc = site_addresses_parse(&one, v, default_port, e);
    if (rc < 0) {
        site_addresses_done(&one);
        return rc == -ENOMEM ? rc : err_wrap(e, rc, "%s: %s", site_origin(s, key), key);
    }
    if (one.n != 1)
        rc = site_bad(s, key, e, "is '%s', which is not one address", v);
    else if (is_any(one.v[0].host) || one.v[0].port == 0)
        rc = site_bad(s, key, e, "is '%s', to which no client can connect", v);
    else
        rc = site_addresses_add(out, one.v[0].host, one.v[0].port) < 0
                 ? err_set(e, ENOMEM, "cannot read an address: %m")
                 : 1;
    site_addresses_done(&one);
    return rc;
}

/* ---- the ResourceManager ---- */

static const struct {
    const char *key;
    uint16_t port;
} services[SITE_SERVICE_COUNT] = {
    [SITE_RM_CLIENT] = { "yarn.resourcemanager.address", 8032 },
    [SITE_RM_SCHEDULER] = { "yarn.resourcemanager.scheduler.address", 8030 },
    [SITE_RM_ADMIN] = { "yarn.resourcemanager.admin.address", 8033 },
    [SITE_RM_WEB] = { "yarn.resourcemanager.webapp.address", 8088 },
};

#define HOSTNAME "yarn.resourcemanager.hostname"

static int rm_hint(struct err *e, int rc, const char *suffix)
{
    if (rc == -EINVAL)
        (void)err_hint(e,
                       "set %s%s in yarn-site.xml, or let HADOOP_CONF_DIR name the directory "
                       "with the cluster's own",
                       HOSTNAME, suffix);
    return rc;
}

/* Add the address of one ResourceManager. suffix: "" or its id, such as ".rm1". */
static int add_rm(struct site *s, enum site_service service, const char *suffix,
                  struct site_addresses *out, struct err *e)
{
    AUTO(free_p) char *key = str_printf("%s%s", services[service].key, suffix);
    AUTO(free_p) char *host_key = str_printf("%s%s", HOSTNAME, suffix);
    if (!key || !host_key)
        return err_set(e, ENOMEM, "cannot read the site files: %m");
    int rc = add_by_key(s, key, services[service].port, out, e);
    if (rc == 0)
        rc = add_by_key(s, host_key, services[service].port, out, e);
    if (rc == 0)
        rc = err_set(e, EINVAL,
                     "the address of the resource manager is not known: neither %s nor %s is set",
                     key, host_key);
    return rc < 0 ? rm_hint(e, rc, suffix) : 0;
}

int site_rm(struct site *s, enum site_service service, struct site_addresses *out, struct err *e)
{
    bool ha = false;
    int rc = site_bool(s, "yarn.resourcemanager.ha.enabled", false, &ha, e);
    if (rc < 0)
        return rc;
    if (!ha)
        return add_rm(s, service, "", out, e);
    const char *ids = site_get(s, "yarn.resourcemanager.ha.rm-ids");
    if (!ids)
        return err_set(e, EINVAL,
                       "yarn.resourcemanager.ha.enabled is true, but "
                       "yarn.resourcemanager.ha.rm-ids is not set");
    struct span rest = span_of(ids), field;
    while (rc == 0 && span_split(&rest, ',', &field)) {
        field = span_trim(field);
        if (field.len == 0)
            continue;
        AUTO(free_p) char *suffix = str_printf(".%.*s", (int)field.len, field.p);
        rc = suffix ? add_rm(s, service, suffix, out, e)
                    : err_set(e, ENOMEM, "cannot read the site files: %m");
    }
    if (rc == 0 && out->n == 0)
        rc = site_bad(s, "yarn.resourcemanager.ha.rm-ids", e, "the list is empty");
    return rc;
}

/* ---- the NameNode ---- */

struct web { /* the keys and the default port of http or of https addresses */
    const char *key;
    uint16_t port;
};

static bool in_list(const char *list, struct span word)
{
    struct span rest = span_of(list), field;
    while (list && span_split(&rest, ',', &field))
        if (span_eq(span_trim(field), word))
            return true;
    return false;
}

/* Add one NameNode. suffix: "", ".ns" or ".ns.nn". The host comes from its web key, else from its
 * RPC address. */
static int add_nn(struct site *s, const struct web *web, const char *suffix,
                  const char *host_default, struct site_addresses *out, struct err *e)
{
    AUTO(free_p) char *key = str_printf("%s%s", web->key, suffix);
    AUTO(free_p) char *rpc = str_printf("dfs.namenode.rpc-address%s", suffix);
    if (!key || !rpc)
        return err_set(e, ENOMEM, "cannot read the site files: %m");
    struct site_addresses one = { 0 };
    uint16_t port = web->port;
    const char *v = site_get(s, key), *host = host_default;
    int rc = 0;
    if (v) {
        rc = site_addresses_parse(&one, v, web->port, e);
        if (rc < 0)
            rc = err_wrap(e, rc, "%s: %s", site_origin(s, key), key);
        else if (one.n == 1)
            port = one.v[0].port;
        if (rc == 0 && one.n == 1 && !is_any(one.v[0].host))
            host = one.v[0].host;
    }
    struct site_addresses by_rpc = { 0 };
    if (rc == 0 && !host && site_get(s, rpc)) {
        rc = add_by_key(s, rpc, 8020, &by_rpc, e);
        host = rc > 0 ? by_rpc.v[0].host : NULL;
        rc = rc > 0 ? 0 : rc;
    }
    if (rc == 0 && !host)
        rc = err_set(e, EINVAL,
                     "the web address of the name node is not known: neither %s nor %s is set", key,
                     rpc);
    else if (rc == 0 && port == 0)
        rc = site_bad(s, key, e, "is '%s', to which no client can connect", v);
    else if (rc == 0 && site_addresses_add(out, host, port) < 0)
        rc = err_set(e, ENOMEM, "cannot read the site files: %m");
    site_addresses_done(&one);
    site_addresses_done(&by_rpc);
    return rc;
}

/* Add all NameNodes of a nameservice. */
static int add_nameservice(struct site *s, const struct web *web, const char *ns,
                           struct site_addresses *out, struct err *e)
{
    AUTO(free_p) char *list_key = str_printf("dfs.ha.namenodes.%s", ns);
    AUTO(free_p) char *single = str_printf(".%s", ns);
    if (!list_key || !single)
        return err_set(e, ENOMEM, "cannot read the site files: %m");
    const char *list = site_get(s, list_key);
    if (!list)
        return add_nn(s, web, single, NULL, out, e);
    struct span rest = span_of(list), field;
    int rc = 0;
    while (rc == 0 && span_split(&rest, ',', &field)) {
        field = span_trim(field);
        AUTO(free_p) char *suffix = str_printf(".%s.%.*s", ns, (int)field.len, field.p);
        rc = suffix ? add_nn(s, web, suffix, NULL, out, e)
                    : err_set(e, ENOMEM, "cannot read the site files: %m");
    }
    return rc;
}

/* fs.defaultFS names a host, but the keys may have the name of a nameservice. Find the nameservice
 * that has this address: ".ns", or "". */
static char *nameservice_of(struct site *s, const char *host, uint16_t port)
{
    const char *all = site_get(s, "dfs.nameservices");
    struct span rest = span_of(all), field;
    while (all && span_split(&rest, ',', &field)) {
        field = span_trim(field);
        AUTO(free_p)
        char *key = str_printf("dfs.namenode.rpc-address.%.*s", (int)field.len, field.p);
        struct site_addresses one = { 0 };
        struct err ignored = { 0 };
        bool same = key && add_by_key(s, key, 8020, &one, &ignored) > 0 &&
                    str_eq(one.v[0].host, host) && one.v[0].port == port;
        site_addresses_done(&one);
        if (same)
            return str_printf(".%.*s", (int)field.len, field.p);
    }
    return str_dup("");
}

static int no_fs(struct site *s, const char *key, const char *v, struct err *e)
{
    int rc = v ? site_bad(s, key, e, "is '%s': jobs are staged in HDFS (hdfs://...)", v)
               : err_set(e, EINVAL,
                         "the file system of the cluster is not known: fs.defaultFS is not set");
    (void)err_hint(e,
                   "set fs.defaultFS in core-site.xml, or let HADOOP_CONF_DIR name the directory "
                   "with the cluster's own");
    return rc;
}

/* Set fs, host, port and nameservice of *out from "hdfs://host[:port][/...]". */
static int parse_fs(struct site *s, const char *key, const char *v, struct site_hdfs *out,
                    struct err *e)
{
    if (!str_starts(v, "hdfs://") || strstr(v, "${"))
        return no_fs(s, key, v, e);
    const char *authority = v + strlen("hdfs://");
    size_t len = strcspn(authority, "/");
    if (len == 0)
        return no_fs(s, key, v, e);
    out->fs = str_printf("hdfs://%.*s", (int)len, authority);
    if (in_list(site_get(s, "dfs.nameservices"), span_mem(authority, len))) {
        out->host = str_printf("%.*s", (int)len, authority);
        out->nameservice = str_dup(out->host);
        out->port = -1;
        return out->fs && out->host && out->nameservice ? 0 : -ENOMEM;
    }
    char host[TCP_HOST_MAX + 1];
    uint16_t port = 0;
    AUTO(free_p) char *text = str_printf("%.*s", (int)len, authority);
    if (!text || !out->fs)
        return -ENOMEM;
    int rc = tcp_split(text, 8020, host, &port, e);
    if (rc < 0)
        return err_wrap(e, rc, "%s: %s", site_origin(s, key), key);
    if (is_any(host) || port == 0)
        return site_bad(s, key, e, "is '%s', to which no client can connect", v);
    out->host = str_dup(host);
    out->port = port;
    return out->host ? 0 : -ENOMEM;
}

static int fill_hdfs(struct site *s, struct site_hdfs *out, struct err *e)
{
    static const char policy_key[] = "dfs.http.policy";
    static const struct web http = { "dfs.namenode.http-address", 9870 };
    static const struct web https = { "dfs.namenode.https-address", 9871 };
    const char *key = site_get(s, "fs.defaultFS") ? "fs.defaultFS" : "fs.default.name";
    const char *v = site_get(s, key), *policy = site_get(s, policy_key);
    if (!v)
        return no_fs(s, key, v, e);
    int rc = parse_fs(s, key, v, out, e);
    if (rc < 0)
        return rc;
    out->https = str_eq(policy, "HTTPS_ONLY");
    const struct web *web = out->https ? &https : &http;
    if (out->nameservice)
        return add_nameservice(s, web, out->nameservice, &out->http, e);
    AUTO(free_p) char *suffix = nameservice_of(s, out->host, (uint16_t)out->port);
    if (!suffix)
        return -ENOMEM;
    return add_nn(s, web, suffix, out->host, &out->http, e);
}

int site_hdfs(struct site *s, struct site_hdfs *out, struct err *e)
{
    struct site_hdfs h = { 0 };
    int rc = fill_hdfs(s, &h, e);
    if (rc == 0) {
        *out = h;
        return 0;
    }
    site_hdfs_done(&h);
    return rc == -ENOMEM ? err_set(e, ENOMEM, "cannot read the site files: %m") : rc;
}

void site_hdfs_done(struct site_hdfs *h)
{
    free(h->fs);
    free(h->host);
    free(h->nameservice);
    site_addresses_done(&h->http);
    *h = (struct site_hdfs){ 0 };
}

int site_secure(struct site *s, bool *out, struct err *e)
{
    static const char key[] = "hadoop.security.authentication";
    const char *v = site_get(s, key);
    if (v && strcasecmp(v, "simple") != 0 && strcasecmp(v, "kerberos") != 0)
        return site_bad(s, key, e, "is '%s': simple and kerberos are known", v);
    *out = v && strcasecmp(v, "kerberos") == 0;
    return 0;
}
