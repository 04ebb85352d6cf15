/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads TonY's and Hadoop's XML. Keys that do not begin with "tony." (yarn., dfs.) are kept.
 */
#include <errno.h>

#include "base/err.h"
#include "base/util.h"
#include "codec/xml.h"
#include "conf/load.h"

int load_xml(struct load *l, struct span text)
{
    AUTO(xml_conf_freep) struct xml_conf *x = NULL;
    int rc = xml_conf_parse(l->name, text, &x, l->e);
    struct span begin = span_trim(text);
    if (rc == -EINVAL && begin.len > 0 && begin.p[0] >= ' ' && begin.p[0] < 0x7f &&
        begin.p[0] != '<')
        return err_hint(l->e, "it does not look like XML: the name of a YAML file ends in .yaml");
    for (size_t i = 0; rc == 0 && i < x->n; i++)
        rc = load_set(l, x->v[i].name, x->v[i].value, x->v[i].line, x->v[i].final, true);
    return rc;
}
