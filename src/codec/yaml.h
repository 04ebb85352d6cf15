/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML text -> a small tree of nodes with line numbers. Only what a configuration needs: one
 * document of mappings, lists and text. Anchors, aliases, tags, keys that are not text, repeated
 * keys, NUL and what is not UTF-8 are refused, so that a small file cannot become a large tree, and
 * a file that looks alike twice means the same twice.
 *
 * Scalars stay text; nothing is guessed from their look but "nothing at all" (ynode_is_null).
 * Errors are sentences "<name>:<line>: ..."; -EINVAL wrong text, -EFBIG past a ceiling, -ENOMEM.
 */
#ifndef TONY_CODEC_YAML_H
#define TONY_CODEC_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

enum {
    YAML_TEXT_MAX = 4 << 20, /* a job of some thousand roles is below 1 MiB */
    YAML_DEPTH_MAX = 64,     /* job files need 4 */
    YAML_NODES_MAX = 100000,
};

enum ynode_kind { YN_NONE = 0, YN_SCALAR, YN_LIST, YN_MAP };

struct ynode {
    enum ynode_kind kind;
    bool quoted;     /* a scalar in quotes or a block: never null */
    uint32_t line;   /* from 1 */
    const char *key; /* of a member of a mapping, else NULL */
    uint32_t key_line;
    const char *text; /* of a scalar, NUL-terminated without NUL inside */
    size_t len;
    struct ynode *first, *last, *next; /* members, in the order of the text */
    size_t n;
};

struct ydoc; /* owns the nodes */

/* name is for messages only. *out has at least a root; of an empty text it is a null scalar. */
int ydoc_parse(const char *name, struct span text, struct ydoc **out, struct err *e);
const struct ynode *ydoc_root(const struct ydoc *d);
void ydoc_free(struct ydoc *d);
void ydoc_freep(struct ydoc **d);

bool ynode_is_null(const struct ynode *n); /* nothing, ~ or null, not in quotes */
const struct ynode *ynode_get(const struct ynode *map, const char *key); /* NULL = not there */
const char *ynode_kind_name(const struct ynode *n); /* "a list", "a mapping", "text" */

#endif
