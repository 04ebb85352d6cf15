/* SPDX-License-Identifier: Apache-2.0 */
/* The table of rendezvous servers. */
#include <errno.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "rendezvous/rendezvous_int.h"
#include "rendezvous/service.h"

static const struct service_ops *const services[] = {
    &service_horovod,
    &service_pmi,
    &service_tcpstore,
};

const struct service_ops *service_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(services); i++)
        if (str_eq(services[i]->name, name))
            return services[i];
    return NULL;
}

int service_open(const char *name, const struct service_config *cfg, struct service **out,
                 struct err *e)
{
    const struct service_ops *ops = service_find(name);
    if (!ops)
        return err_set(e, ENOENT, "there is no rendezvous server '%s'", name);
    return ops->open(cfg, out, e);
}

static const struct service_ops *ops_of(const struct service *s)
{
    return ((const struct service_head *)(const void *)s)->ops;
}

int service_begin(struct service *s, const struct service_job *job, struct err *e)
{
    return ops_of(s)->begin ? ops_of(s)->begin(s, job, e) : 0;
}

uint16_t service_port(const struct service *s)
{
    return ops_of(s)->port(s);
}

int service_fd(const struct service *s)
{
    return ops_of(s)->fd(s);
}

void service_turn(struct service *s)
{
    ops_of(s)->turn(s);
}

void service_tick(struct service *s, int64_t now_ms)
{
    if (ops_of(s)->tick)
        ops_of(s)->tick(s, now_ms);
}

void service_close(struct service *s)
{
    if (s)
        ops_of(s)->close(s);
}
