/* SPDX-License-Identifier: Apache-2.0 */
/* Writes settings as an XML file of Hadoop (site.h). */
#include <errno.h>

#include "base/base.h"
#include "hadoop/site_int.h"

static void add_escaped(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            (void)buf_adds(out, "&lt;");
        else if (*text == '&')
            (void)buf_adds(out, "&amp;");
        else
            (void)buf_addc(out, *text);
    }
}

int site_write(struct site *s, struct buf *out)
{
    (void)buf_adds(out, "<configuration>\n");
    for (struct map_entry *x = map_next(&s->props, NULL); x; x = map_next(&s->props, x)) {
        const char *value = site_get(s, x->key);
        if (!value)
            continue;
        (void)buf_adds(out, "<property><name>");
        add_escaped(out, x->key);
        (void)buf_adds(out, "</name><value>");
        add_escaped(out, value);
        (void)buf_adds(out, "</value></property>\n");
    }
    (void)buf_adds(out, "</configuration>\n");
    return out->failed ? -ENOMEM : 0; /* a failure of one of the above sets it */
}
