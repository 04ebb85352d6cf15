/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to conf: reading one file.
 */
#ifndef TONY_CONF_LOAD_H
#define TONY_CONF_LOAD_H

#include "base/map.h"
#include "conf/conf_int.h"

struct load {
    struct conf *conf;
    enum conf_layer layer;
    const char *name; /* of the file, as the user gave it */
    struct map lines; /* key -> the line that set it */
    struct err *e;
};

int load_xml(struct load *l, struct span text);
int load_yaml(struct load *l, struct span text);
/* Set a key from a line of the file; refuses a key that the file has set already. */
int load_set(struct load *l, const char *key, const char *value, uint32_t line, bool final,
             bool xml);

#endif
