/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses YAML into a small tree of nodes with line numbers. Only the part that a configuration
 * needs: one document of mappings, lists and text. Refused are anchors, aliases, tags, keys that
 * are not text, repeated keys, NUL, and text that is not UTF-8. So a small file cannot become a
 * large tree, and no key can have two values.
 *
 * Scalars stay text; only "no value" is recognised (ynode_is_null). Errors are sentences
 * "<name>:<line>: ..."; -EINVAL invalid text, -EFBIG a limit is exceeded, -ENOMEM.
 */
#ifndef TONY_CODEC_YAML_H
#define TONY_CODEC_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

enum {
    YAML_TEXT_MAX = 4 << 20, /* a job with a thousand roles has less than 1 MiB */
    YAML_DEPTH_MAX = 64,     /* job files need 4 */
    YAML_NODES_MAX = 100000,
};

enum ynode_kind { YN_NONE = 0, YN_SCALAR, YN_LIST, YN_MAP };

struct ynode {
    enum ynode_kind kind;
    bool quoted;     /* a quoted scalar or a block: never null */
    uint32_t line;   /* line number, from 1 */
    const char *key; /* of a member of a mapping, else NULL */
    uint32_t key_line;
    const char *text; /* of a scalar, NUL-terminated without NUL inside */
    size_t len;
    struct ynode *first, *last, *next; /* members, in the order of the text */
    size_t n;
};

struct ydoc; /* owns the nodes */

/* name: for messages only. *out always has a root; for an empty text it is a null scalar. */
int ydoc_parse(const char *name, struct span text, struct ydoc **out, struct err *e);
const struct ynode *ydoc_root(const struct ydoc *d);
void ydoc_free(struct ydoc *d);
void ydoc_freep(struct ydoc **d);

bool ynode_is_null(const struct ynode *n);          /* empty, ~ or null, without quotes */
const char *ynode_kind_name(const struct ynode *n); /* "a list", "a mapping", "text" */

#endif
