/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pool/ask.h"

#include <errno.h>

#include "client/client_int.h"

int pool_ask(struct client *c, const struct cluster_question *q, json_t **out, bool *out_refused,
             struct err *e)
{
    const struct cluster_ops *ops;
    bool refused = false;
    for (size_t i = 0; (ops = cluster_at(i)); i++)
        if (ops->ask_pool) {
            int rc = ops->ask_pool(&c->host, q, out, &refused, e);
            if (out_refused)
                *out_refused = refused;
            return rc;
        }
    return err_set(e, EOPNOTSUPP, "no cluster of this program has a pool");
}
