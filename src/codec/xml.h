/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses Hadoop's configuration XML into a list of properties, in order, with line numbers:
 *   <configuration><property><name/><value/><final/><description/><source/><tag/></property>...</configuration>
 * A property may also be written as attributes: <property name="k" value="v" final="true"/>.
 *
 * Document types and entity definitions are refused, so nothing is expanded or fetched. XInclude is
 * refused, too, except by xml_site_parse(). Names and values are trimmed. Repeated keys are all
 * returned: the caller decides which one wins. Errors are sentences "<name>:<line>: ..."; -EINVAL
 * invalid text, -EFBIG a limit is exceeded, -ENOMEM.
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
    XML_DEPTH_MAX = 64,     /* four are needed; descriptions may contain markup */
    XML_PROPS_MAX = 100000,
    /* Open at the same time: an include inside the fallback of another include, and so on. */
    XML_INCLUDES_MAX = 8,
};

struct xml_prop {
    const char *name, *value; /* NUL-terminated; valid until xml_conf_free() */
    uint32_t line;            /* of <name>, from 1 */
    bool final;
    /* xml_site_parse() only: this entry is an <xi:include>. name is NULL and value is its href. If
     * that file does not exist (and has_fallback is set), the next n_fallback entries take its
     * place. */
    bool include, has_fallback;
    uint32_t n_fallback;
};

struct xml_conf {
    const struct xml_prop *v;
    size_t n;
};

int xml_conf_parse(const char *name, struct span text, struct xml_conf **out, struct err *e);
/* As xml_conf_parse(), but for the site files of a cluster, which Hadoop has accepted already.
 * Includes are returned. What Hadoop ignores is ignored: unknown elements, text between elements,
 * properties without a name or a value. */
int xml_site_parse(const char *name, struct span text, struct xml_conf **out, struct err *e);
void xml_conf_free(struct xml_conf *x);
void xml_conf_freep(struct xml_conf **x);

#endif
