/*
 * The status document of a job (docs/json.md) wherever it is: its master, the pool, or its
 * directory.
 */
#ifndef TONY_CLIENT_STATUS_H
#define TONY_CLIENT_STATUS_H

#include <jansson.h>

struct client;
struct err;

/* *out is the caller's. Adds "directory" and "live" to what the core says. */
int status_load(struct client *c, const char *application_id, json_t **out, struct err *e);

#endif
