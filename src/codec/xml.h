/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hadoop's configuration XML -> its properties in order, with line numbers:
 *   <configuration><property><name/><value/><final/><description/><source/><tag/></property>...</configuration>
 * A property may also be written as attributes: <property name="k" value="v" final="true"/>.
 *
 * Document types and entities of one's own are refused outright (so nothing can expand, and nothing
 * is fetched), and so is XInclude but by xml_site_parse(). Names and values are trimmed.
 * Repeated keys are given as they stand: only the caller knows whether the later one may win.
 * Errors are sentences "<name>:<line>: ..."; -EINVAL wrong text, -EFBIG past a ceiling, -ENOMEM.
 */
#ifndef TONY_CODEC_XML_H
#define TONY_CODEC_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

enum {
    XML_TEXT_MAX = 4 << 20, /* the largest Hadoop site files are below 200 KiB */
    XML_DEPTH_MAX = 64,     /* four are needed; descriptions may hold markup */
    XML_PROPS_MAX = 100000,
    XML_INCLUDES_MAX = 8, /* open at once: an include in the fallback of an include ... */
};

struct xml_prop {
    const char *name, *value; /* NUL-terminated, in the document's memory */
    uint32_t line;            /* of <name>, from 1 */
    bool final;
    /* xml_site_parse() only: no property but <xi:include>. name is NULL, value its href, and the
     * n_fallback entries behind it count only when that cannot be read (has_fallback). */
    bool include, has_fallback;
    uint32_t n_fallback;
};

struct xml_conf {
    const struct xml_prop *v;
    size_t n;
};

int xml_conf_parse(const char *name, struct span text, struct xml_conf **out, struct err *e);
/* The same for the files of a cluster, which are not ours to be strict with: includes are given,
 * and what Hadoop passes over is passed over here: unknown elements, text between elements,
 * properties without a name or a value. */
int xml_site_parse(const char *name, struct span text, struct xml_conf **out, struct err *e);
void xml_conf_free(struct xml_conf *x);
void xml_conf_freep(struct xml_conf **x);

#endif
