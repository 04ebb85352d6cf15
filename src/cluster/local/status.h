/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the status document of a job (docs/json.md): from its master, the pool or its directory. */
#ifndef TONY_CLUSTER_LOCAL_STATUS_H
#define TONY_CLUSTER_LOCAL_STATUS_H

#include <jansson.h>

struct cluster_host;
struct err;

/* The caller frees *out. It has the members "directory" and "live" besides those of the core. */
int status_load(struct cluster_host *h, const char *id, json_t **out, struct err *e);

/* Ask only the master of the job. 0, or -errno if no master answers; prints no error. */
int status_of_master(struct cluster_host *h, const char *id, json_t **out);

#endif
