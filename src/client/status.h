/*
 * The status document of a job (docs/json.md) wherever it is: its master, the pool, or its
 * directory.
 */
#ifndef TONY_CLIENT_STATUS_H
#define TONY_CLIENT_STATUS_H

#include <jansson.h>

#include "base/buf.h"

struct client;
struct err;

/* The document out of its text; *out is the caller's. -EBADMSG. */
int status_parse(struct span text, json_t **out, struct err *e);
/* *out is the caller's. Adds "directory" and "live" to what the core says. */
int status_load(struct client *c, const char *application_id, json_t **out, struct err *e);

/* Only what its master says, if there is one that answers. 0 or -errno; nothing is said. */
int status_of_master(struct client *c, const char *application_id, json_t **out);

#endif
