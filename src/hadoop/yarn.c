/* SPDX-License-Identifier: Apache-2.0 */
#include "hadoop/yarn.h"

#include <string.h>

#include "base/base.h"

/* For each method: a function that delivers the answer in its own type, the method's row, and the
 * function that makes the call. */
#define YARN_DEFINE(fn, method, M, m, again)                                                       \
    static void deliver_##fn(void (*done)(void), const ProtobufCMessage *answer,                   \
                             const struct rpc_error *e, void *arg)                                 \
    {                                                                                              \
        void (*own)(const Hadoop__##M##Response *, const struct rpc_error *, void *) =             \
            (void (*)(const Hadoop__##M##Response *, const struct rpc_error *, void *))done;       \
        own((const Hadoop__##M##Response *)answer, e, arg);                                        \
    }                                                                                              \
    static const struct rpc_method method_##fn = { method, &hadoop__##m##_response__descriptor,    \
                                                   again, deliver_##fn };                          \
    struct rpc_call *yarn_##fn(                                                                    \
        struct rpc_client *c, const Hadoop__##M##Request *rq, int64_t deadline_ms,                 \
        void (*done)(const Hadoop__##M##Response *r, const struct rpc_error *e, void *arg),        \
        void *arg)                                                                                 \
    {                                                                                              \
        return rpc_client_call(c, &method_##fn, &rq->base, deadline_ms, (void (*)(void))done,      \
                               arg);                                                               \
    }
YARN_CALLS(YARN_DEFINE)

char *yarn_env_escape(const char *value)
{
    AUTO(buf_done) struct buf b = { 0 };
    for (const char *p = value; *p; p++) {
        if (strchr("\\\"`", *p))
            (void)buf_addc(&b, '\\');
        (void)buf_addc(&b, *p);
    }
    return b.failed ? NULL : buf_steal(&b);
}

static const char *enum_name(const ProtobufCEnumDescriptor *d, int v, size_t prefix)
{
    const ProtobufCEnumValue *x = protobuf_c_enum_descriptor_get_value(d, v);
    return x ? x->name + prefix : "UNKNOWN";
}

const char *yarn_app_state_name(Hadoop__YarnApplicationState s)
{
    return enum_name(&hadoop__yarn_application_state__descriptor, (int)s, 0);
}

bool yarn_app_state_is_final(Hadoop__YarnApplicationState s)
{
    return s == HADOOP__YARN_APPLICATION_STATE__FINISHED ||
           s == HADOOP__YARN_APPLICATION_STATE__FAILED ||
           s == HADOOP__YARN_APPLICATION_STATE__KILLED;
}

int64_t yarn_resource_value(const Hadoop__Resource *r, const char *name)
{
    if (!r)
        return 0;
    if (strcmp(name, "memory-mb") == 0 && r->has_memory)
        return r->memory;
    if (strcmp(name, "vcores") == 0 && r->has_virtual_cores)
        return r->virtual_cores;
    for (size_t i = 0; i < r->n_resource_value_map; i++)
        if (strcmp(r->resource_value_map[i]->key, name) == 0)
            return r->resource_value_map[i]->value;
    return 0;
}
