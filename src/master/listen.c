/* SPDX-License-Identifier: Apache-2.0 */
/* The ports at which a master on a cluster listens: see tony.port-range. */
#include <errno.h>

#include "base/clock.h"
#include "base/err.h"
#include "conf/conf.h"
#include "master/master_int.h"

int master_listen(struct master *m, int (*open_at)(struct master *m, uint16_t port, struct err *e),
                  struct err *e)
{
    const struct job_spec *s = m->spec;
    uint32_t n = (uint32_t)s->port_last - s->port_first + 1;
    if (!s->port_first)
        return open_at(m, 0, e);
    /* Masters that start on one node at the same time begin at different ports. */
    uint32_t start = (uint32_t)(clock_mono_us() % n);
    for (uint32_t i = 0; i < n; i++) {
        struct err why = { 0 };
        int rc = open_at(m, (uint16_t)(s->port_first + (start + i) % n), &why);
        if (rc != -EADDRINUSE) {
            if (rc < 0 && e)
                *e = why;
            return rc;
        }
    }
    (void)err_set(e, EADDRINUSE, "all ports of tony.port-range (%u-%u) are in use on this node",
                  s->port_first, s->port_last);
    return err_hint(e, "choose a larger range");
}
