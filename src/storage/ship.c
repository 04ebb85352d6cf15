/* SPDX-License-Identifier: Apache-2.0 */
/* An item that a job ships (store.h): its release, and the names of its kinds. */
#include <stdlib.h>

#include "storage/store.h"

void ship_item_done(struct ship_item *it)
{
    free(it->source);
    free(it->name);
    free(it->role);
    strv_done(&it->leave_out);
    free(it->digest);
    free(it->path);
    *it = (struct ship_item){ 0 };
}

static const char *const names[] = {
    [SHIP_SRC] = "src",         [SHIP_DIR] = "dir",           [SHIP_FILE] = "file",
    [SHIP_ARCHIVE] = "archive", [SHIP_IN_PLACE] = "in_place",
};

const char *ship_kind_name(enum ship_kind kind)
{
    return (size_t)kind < sizeof names / sizeof *names && names[kind] ? names[kind] : "none";
}

enum ship_kind ship_kind_parse(const char *name)
{
    for (size_t i = SHIP_SRC; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0)
            return (enum ship_kind)i;
    }
    return SHIP_NONE;
}
