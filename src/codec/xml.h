/*
 * Hadoop's configuration XML -> its properties in order, with line numbers:
 *   <configuration><property><name/><value/><final/><description/><source/><tag/></property>...</configuration>
 * A property may also be written as attributes: <property name="k" value="v" final="true"/>.
 *
 * Document types and entities of one's own are refused outright (so nothing can expand, and nothing
 * is fetched), and so is XInclude, unless the caller takes includes. Names and values are trimmed.
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
};

struct xml_prop {
    const char *name, *value; /* NUL-terminated, in the document's memory */
    uint32_t line;            /* of <name>, from 1 */
    bool final;
};

struct xml_conf {
    const struct xml_prop *v;
    size_t n;
};

int xml_conf_parse(const char *name, struct span text, struct xml_conf **out, struct err *e);
void xml_conf_free(struct xml_conf *x);
void xml_conf_freep(struct xml_conf **x);

#endif
