/* SPDX-License-Identifier: Apache-2.0 */
#include "hadoop/launch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "base/util.h"
#include "hadoop/yarn.h"

/* The messages do not change their strings. */
#define MUTABLE(p) ((char *)(uintptr_t)(p))

Hadoop__ContainerLaunchContext *launch_new(struct arena *a, const char *command)
{
    struct {
        Hadoop__ContainerLaunchContext ctx;
        char *command[1];
    } *m = arena_alloc(a, sizeof *m);
    if (!m)
        return NULL;
    hadoop__container_launch_context__init(&m->ctx);
    m->command[0] = MUTABLE(command);
    m->ctx.command = m->command;
    m->ctx.n_command = 1;
    return &m->ctx;
}

static Hadoop__LocalResourceEntry *new_file(struct arena *a, const struct launch_file *f)
{
    struct {
        Hadoop__LocalResourceEntry entry;
        Hadoop__LocalResource resource;
        Hadoop__Url url;
    } *m = arena_alloc(a, sizeof *m);
    if (!m)
        return NULL;
    hadoop__local_resource_entry__init(&m->entry);
    hadoop__local_resource__init(&m->resource);
    hadoop__url__init(&m->url);
    m->entry.key = MUTABLE(f->name);
    m->entry.value = &m->resource;
    m->url.scheme = MUTABLE(f->scheme);
    m->url.host = *f->host ? MUTABLE(f->host) : NULL;
    m->url.has_port = true; /* YARN reads a missing port as 0 */
    m->url.port = f->port;
    m->url.file = MUTABLE(f->path);
    m->resource.resource = &m->url;
    m->resource.has_size = m->resource.has_timestamp = m->resource.has_type =
        m->resource.has_visibility = true;
    m->resource.size = f->size;
    m->resource.timestamp = f->mtime_ms;
    m->resource.type =
        f->archive ? HADOOP__LOCAL_RESOURCE_TYPE__ARCHIVE : HADOOP__LOCAL_RESOURCE_TYPE__FILE;
    m->resource.visibility = f->visibility;
    return &m->entry;
}

int launch_set_files(struct arena *a, Hadoop__ContainerLaunchContext *ctx,
                     const struct launch_file *v, size_t n)
{
    ctx->local_resources = arena_alloc(a, (n + 1) * sizeof(void *));
    ctx->n_local_resources = 0;
    for (size_t i = 0; ctx->local_resources && i < n; i++) {
        Hadoop__LocalResourceEntry *entry = new_file(a, &v[i]);
        if (!entry)
            return -ENOMEM;
        ctx->local_resources[ctx->n_local_resources++] = entry;
    }
    return ctx->local_resources ? 0 : -ENOMEM;
}

static Hadoop__StringPair *new_variable(struct arena *a, const char *variable)
{
    Hadoop__StringPair *p = arena_alloc(a, sizeof *p);
    const char *equals = strchr(variable, '=');
    AUTO(free_p) char *value = equals ? yarn_env_escape(equals + 1) : NULL;
    if (!p || !value)
        return NULL;
    hadoop__string_pair__init(p);
    p->key = arena_dup(a, variable, (size_t)(equals - variable));
    p->value = arena_dup(a, value, strlen(value));
    return p->key && p->value ? p : NULL;
}

int launch_set_env(struct arena *a, Hadoop__ContainerLaunchContext *ctx, const struct strv *env)
{
    ctx->environment = arena_alloc(a, (env->n + 1) * sizeof(void *));
    ctx->n_environment = 0;
    for (size_t i = 0; ctx->environment && i < env->n; i++) {
        Hadoop__StringPair *p = new_variable(a, env->v[i]);
        if (!p)
            return -ENOMEM;
        ctx->environment[ctx->n_environment++] = p;
    }
    return ctx->environment ? 0 : -ENOMEM;
}

int launch_add_variables(struct strv *env, const struct strv *from)
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
