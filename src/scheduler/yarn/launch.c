/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "codec/arena.h"
#include "conf/conf.h"
#include "scheduler/yarn/yarn_int.h"

/* A container does not inherit PATH from the NodeManager. Without this, bash would set its own
 * default, which ends with ".". */
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define COMMAND "exec ./tony-executor --container 1>/dev/null 2><LOG_DIR>/executor.log"

enum { LAUNCH_MAX = 64 << 20 };

static char *dup_text(struct arena *a, const char *s)
{
    return arena_dup(a, s, strlen(s));
}

static bool is_for_box(const struct yarn_resource *r, const struct box *b)
{
    return !*r->role || str_eq(r->role, b->role);
}

static int add_resources(struct arena *a, const struct yarn_file *f, const struct box *b,
                         Hadoop__ContainerLaunchContext *ctx)
{
    ctx->local_resources = arena_alloc(a, (f->resources.n + 1) * sizeof(void *));
    for (size_t i = 0; ctx->local_resources && i < f->resources.n; i++) {
        const struct yarn_resource *r = &f->resources.v[i];
        if (!is_for_box(r, b))
            continue;
        struct {
            Hadoop__LocalResourceEntry entry;
            Hadoop__LocalResource resource;
            Hadoop__Url url;
        } *m = arena_alloc(a, sizeof *m);
        if (!m)
            return -ENOMEM;
        hadoop__local_resource_entry__init(&m->entry);
        hadoop__local_resource__init(&m->resource);
        hadoop__url__init(&m->url);
        m->entry.key = r->name;
        m->entry.value = &m->resource;
        m->url.scheme = r->scheme;
        m->url.host = *r->host ? r->host : NULL;
        m->url.has_port = true; /* YARN reads a missing port as 0 */
        m->url.port = r->port;
        m->url.file = r->file;
        m->resource.resource = &m->url;
        m->resource.has_size = m->resource.has_timestamp = m->resource.has_type =
            m->resource.has_visibility = true;
        m->resource.size = r->size;
        m->resource.timestamp = r->timestamp_ms;
        m->resource.type =
            r->archive ? HADOOP__LOCAL_RESOURCE_TYPE__ARCHIVE : HADOOP__LOCAL_RESOURCE_TYPE__FILE;
        m->resource.visibility =
            r->visibility == YARN_PUBLIC    ? HADOOP__LOCAL_RESOURCE_VISIBILITY__PUBLIC
            : r->visibility == YARN_PRIVATE ? HADOOP__LOCAL_RESOURCE_VISIBILITY__PRIVATE
                                            : HADOOP__LOCAL_RESOURCE_VISIBILITY__APPLICATION;
        ctx->local_resources[ctx->n_local_resources++] = &m->entry;
    }
    return ctx->local_resources ? 0 : -ENOMEM;
}

/* Set all variables of from, each "NAME=VALUE"; NULL = none. */
static int add_variables(struct strv *env, const struct strv *from)
{
    int rc = 0;
    for (size_t i = 0; from && rc == 0 && i < from->n; i++) {
        struct span value = span_of(from->v[i]), name;
        (void)span_split(&value, '=', &name);
        AUTO(free_p) char *key = span_dup(name);
        rc = key ? strv_env_set(env, key, value.p ? value.p : "") : -ENOMEM;
    }
    return rc;
}

static const struct strv *role_env(const struct yarn *y, const char *role)
{
    const struct yarn_role *r = yarn_file_role(y->file, role);
    return r ? &r->env : NULL;
}

static int add_env(struct arena *a, const struct yarn *y, const struct box *b,
                   Hadoop__ContainerLaunchContext *ctx)
{
    AUTO(strv_done) struct strv env = { 0 };
    char address[96], slot[16], ports[16];
    const struct job_spec *spec = y->cfg.spec;
    (void)snprintf(address, sizeof address, strchr(y->host, ':') ? "[%s]:%u" : "%s:%u", y->host,
                   y->cfg.master_port);
    (void)snprintf(slot, sizeof slot, "%u", b->slot);
    /* A later source replaces variables of an earlier one; the order is that of the container of
     * the master. tony.containers.envs has to be in the launch context, because the NodeManager
     * itself reads some variables: YARN_CONTAINER_RUNTIME_TYPE and others. */
    const struct strv *sources[] = { role_env(y, ""), role_env(y, b->role),
                                     spec ? &spec->container_env : NULL };
    int rc = strv_env_set(&env, "PATH", DEFAULT_PATH);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(sources); i++)
        rc = add_variables(&env, sources[i]);
    if (rc == 0)
        rc = strv_env_set(&env, "TONY_MASTER_ADDRESS", address);
    if (rc == 0)
        rc = strv_env_set(&env, "TONY_SLOT", slot);
    (void)snprintf(ports, sizeof ports, "%u-%u", spec ? spec->port_first : 0,
                   spec ? spec->port_last : 0);
    if (rc == 0 && spec && spec->port_first)
        rc = strv_env_set(&env, JOB_KEY_PORTS_ENV, ports);
    ctx->environment = rc == 0 ? arena_alloc(a, env.n * sizeof(void *)) : NULL;
    for (size_t i = 0; ctx->environment && i < env.n; i++) {
        Hadoop__StringPair *p = arena_alloc(a, sizeof *p);
        char *name = dup_text(a, env.v[i]);
        if (!p || !name)
            return -ENOMEM;
        char *eq = strchr(name, '=');
        *eq = 0;
        AUTO(free_p) char *value = yarn_env_escape(eq + 1);
        hadoop__string_pair__init(p);
        p->key = name;
        p->value = value ? dup_text(a, value) : NULL;
        if (!p->value)
            return -ENOMEM;
        ctx->environment[ctx->n_environment++] = p;
    }
    return ctx->environment ? 0 : -ENOMEM;
}

/* Add the container's key, the only secret that an executor has. */
static int add_secret(const struct yarn *y, const struct box *b, struct buf *out,
                      Hadoop__ContainerLaunchContext *ctx)
{
    struct tls_key key;
    struct credentials c = { 0 };
    job_key_container(&y->key, b->id, &key);
    int rc = credentials_add_secret(&c, CONTAINER_KEY_SECRET, span_mem(key.bytes, key.len));
    if (rc == 0)
        rc = credentials_write(&c, out);
    credentials_done(&c);
    job_key_wipe(&key, sizeof key);
    ctx->has_tokens = true;
    ctx->tokens = (ProtobufCBinaryData){ .data = (uint8_t *)out->p, .len = out->len };
    return rc;
}

static Hadoop__StartContainerRequest *build_start(struct arena *a, const struct yarn *y,
                                                  const struct box *b, struct buf *secret)
{
    struct {
        Hadoop__StartContainerRequest rq;
        Hadoop__ContainerLaunchContext ctx;
        Hadoop__Token token;
        char *command[1];
    } *m = arena_alloc(a, sizeof *m);
    if (!m)
        return NULL;
    hadoop__start_container_request__init(&m->rq);
    hadoop__container_launch_context__init(&m->ctx);
    token_to_msg(&b->token, &m->token);
    m->rq.container_launch_context = &m->ctx;
    m->rq.container_token = &m->token;
    m->command[0] = dup_text(a, COMMAND);
    m->ctx.command = m->command;
    m->ctx.n_command = 1;
    return m->command[0] && add_resources(a, y->file, b, &m->ctx) == 0 &&
                   add_env(a, y, b, &m->ctx) == 0 && add_secret(y, b, secret, &m->ctx) == 0
               ? &m->rq
               : NULL;
}

struct rpc_call *
launch_send(struct node *n, struct box *const *v, size_t count, int64_t deadline_ms,
            void (*done)(const Hadoop__StartContainersResponse *, const struct rpc_error *, void *),
            struct err *e)
{
    struct arena a = { .max = LAUNCH_MAX };
    struct buf *secrets = calloc(count, sizeof *secrets);
    Hadoop__StartContainersRequest rq = HADOOP__START_CONTAINERS_REQUEST__INIT;
    rq.start_container_request = arena_alloc(&a, count * sizeof(void *));
    bool ok = secrets && rq.start_container_request;
    for (size_t i = 0; ok && i < count; i++) {
        rq.start_container_request[i] = build_start(&a, n->y, v[i], &secrets[i]);
        rq.n_start_container_request++;
        ok = rq.start_container_request[i] != NULL;
    }
    struct rpc_call *call =
        ok ? n->y->wire->start_containers(n->client, &rq, deadline_ms, done, n) : NULL;
    for (size_t i = 0; secrets && i < count; i++) {
        if (secrets[i].p)
            job_key_wipe(secrets[i].p, secrets[i].len);
        buf_done(&secrets[i]);
    }
    free(secrets);
    arena_done(&a);
    if (!call)
        (void)err_set(e, ENOMEM, "no memory to start containers");
    return call;
}
