/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of src/conf share: entries, raw access, and the small parsers of list values.
 */
#ifndef TONY_CONF_INT_H
#define TONY_CONF_INT_H

#include "base/map.h"
#include "conf/conf.h"

struct entry {
    const char *key, *value, *origin;
    const struct conf_key
        *row; /* NULL: a key of somebody else's (Hadoop's), or of another version of ours */
    enum conf_layer layer;
    bool final;
    bool from_xml;
    bool borrowed; /* the three strings are literals */
};

struct conf {
    struct entry *v; /* in order of first appearance */
    size_t n, cap;
    struct map index; /* key -> position + 1 */
    char *job_file;   /* as the user named it; what no line is to blame for is said of it */
};

struct entry *conf_find(const struct conf *c, const char *key);
/* Put an entry without any check or rule of layers; strings are copied unless borrowed. */
int conf_put(struct conf *c, const struct entry *x, struct err *e);
/* Defaults that are not there yet. */
int conf_add_defaults(struct conf *c, struct err *e);
/* conf_set() of a key that may be foreign, with the mark of its file's syntax. */
int conf_set_from(struct conf *c, const struct entry *x, bool foreign_ok, struct err *e);
/* Does value fit the row? The sentence names the key. */
int conf_check_value(const struct conf_key *row, const char *key, const char *value, struct err *e);

/* "tony.<role>.memory" against a key; parts are what stands for the first and second placeholder.
 */
bool conf_key_match(const char *pattern, struct span key, struct span parts[2]);
bool conf_role_reserved(struct span name);

#endif
