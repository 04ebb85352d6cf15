/* SPDX-License-Identifier: Apache-2.0 */
/* Which jobs `tony list` shows: --state, --name, --user and --since. */
#ifndef TONY_CLIENT_SHOW_LIST_FILTER_H
#define TONY_CLIENT_SHOW_LIST_FILTER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct client;
struct err;

struct list_filter {
    const char *states, *name, *user; /* borrowed; NULL = any */
    int64_t since_ms;                 /* wall time of the submission; 0 = any */
    bool any;                         /* at least one of them is set */
};

/* Read the options. -EINVAL: a state or a time is not valid. */
int list_filter_open(const struct client *c, struct list_filter *out, struct err *e);
/* Remove the rows (docs/json.md, "list") that the filter does not want. */
void list_filter_apply(const struct list_filter *f, json_t *rows);

#endif
