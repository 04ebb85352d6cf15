/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "codec/arena.h"
#include "conf/conf.h"
#include "hadoop/launch.h"
#include "scheduler/yarn/yarn_int.h"

#define COMMAND "exec ./tony-executor --container 1>/dev/null 2><LOG_DIR>/executor.log"

enum { LAUNCH_MAX = 64 << 20 };

static bool is_for_box(const struct yarn_resource *r, const struct box *b)
{
    return !*r->role || str_eq(r->role, b->role);
}

static int add_files(struct arena *a, const struct yarn_file *f, const struct box *b,
                     Hadoop__ContainerLaunchContext *ctx)
{
    static const Hadoop__LocalResourceVisibility visibilities[] = {
        [YARN_PUBLIC] = HADOOP__LOCAL_RESOURCE_VISIBILITY__PUBLIC,
        [YARN_PRIVATE] = HADOOP__LOCAL_RESOURCE_VISIBILITY__PRIVATE,
        [YARN_APPLICATION] = HADOOP__LOCAL_RESOURCE_VISIBILITY__APPLICATION,
    };
    struct launch_file *v = arena_alloc(a, (f->resources.n + 1) * sizeof *v);
    size_t n = 0;
    for (size_t i = 0; v && i < f->resources.n; i++) {
        const struct yarn_resource *r = &f->resources.v[i];
        if (is_for_box(r, b))
            v[n++] = (struct launch_file){ .name = r->name,
                                           .scheme = r->scheme,
                                           .host = r->host,
                                           .path = r->file,
                                           .port = r->port,
                                           .size = r->size,
                                           .mtime_ms = r->timestamp_ms,
                                           .archive = r->archive,
                                           .visibility = visibilities[r->visibility] };
    }
    return v ? launch_set_files(a, ctx, v, n) : -ENOMEM;
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
    int rc = strv_env_set(&env, "PATH", LAUNCH_PATH);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(sources); i++)
        rc = launch_add_variables(&env, sources[i]);
    if (rc == 0)
        rc = strv_env_set(&env, "TONY_MASTER_ADDRESS", address);
    if (rc == 0)
        rc = strv_env_set(&env, "TONY_SLOT", slot);
    (void)snprintf(ports, sizeof ports, "%u-%u", spec ? spec->port_first : 0,
                   spec ? spec->port_last : 0);
    if (rc == 0 && spec && spec->port_first)
        rc = strv_env_set(&env, JOB_KEY_PORTS_ENV, ports);
    return rc == 0 ? launch_set_env(a, ctx, &env) : rc;
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
        Hadoop__Token token;
    } *m = arena_alloc(a, sizeof *m);
    Hadoop__ContainerLaunchContext *ctx = m ? launch_new(a, COMMAND) : NULL;
    if (!ctx)
        return NULL;
    hadoop__start_container_request__init(&m->rq);
    token_to_msg(&b->token, &m->token);
    m->rq.container_launch_context = ctx;
    m->rq.container_token = &m->token;
    return add_files(a, y->file, b, ctx) == 0 && add_env(a, y, b, ctx) == 0 &&
                   add_secret(y, b, secret, ctx) == 0
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
