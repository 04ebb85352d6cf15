/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "metrics/metrics.h"

#define OPEN "application/openmetrics-text"

bool metrics_text_is_open(struct span accept)
{
    return accept.len && memmem(accept.p, accept.len, OPEN, strlen(OPEN));
}

const char *metrics_text_type(bool open)
{
    return open ? OPEN "; version=1.0.0; charset=utf-8"
                : "text/plain; version=0.0.4; charset=utf-8";
}

int metrics_text_family(struct buf *out, bool open, const char *name, const char *type,
                        const char *help)
{
    const char *suffix = !open && str_eq(type, "counter") ? "_total" : "";
    return buf_addf(out, "# TYPE %s%s %s\n# HELP %s%s %s\n", name, suffix, type, name, suffix,
                    help);
}

int metrics_text_end(struct buf *out, bool open)
{
    return open ? buf_adds(out, "# EOF\n") : out->failed ? -ENOMEM : 0;
}
