/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of src/conf: entries, and access without checks.
 */
#ifndef TONY_CONF_INT_H
#define TONY_CONF_INT_H

#include "base/map.h"
#include "conf/conf.h"

struct entry {
    const char *key, *value, *origin;
    const struct conf_key
        *row; /* NULL: a key that tony does not know, of Hadoop or of another version of tony */
    enum conf_layer layer;
    bool final;
    bool from_xml;
    bool borrowed; /* the three strings are literals */
};

struct conf {
    struct entry *v; /* in order of first appearance */
    size_t n, cap;
    struct map index; /* key -> position + 1 */
    /* the path as the user gave it; named by errors that do not concern one line of it */
    char *job_file;
};

struct entry *conf_find(const struct conf *c, const char *key);
/* Set an entry without any check. The strings are copied, unless x->borrowed. */
int conf_put(struct conf *c, const struct entry *x, struct err *e);
/* Add the defaults of keys that are not set. */
int conf_add_defaults(struct conf *c, struct err *e);
/* As conf_set(). foreign_ok: keys that do not begin with "tony." are accepted. */
int conf_set_from(struct conf *c, const struct entry *x, bool foreign_ok, struct err *e);

/* Match a key against a pattern such as "tony.<role>.memory". parts: the texts that stand for the
 * first and second placeholder. */
bool conf_key_match(const char *pattern, struct span key, struct span parts[2]);

#endif
