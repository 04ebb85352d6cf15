/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a checked job of the command line: the layers of configuration, the job spec, and the files
 * to ship. */
#ifndef TONY_CLIENT_JOB_JOBCONF_H
#define TONY_CLIENT_JOB_JOBCONF_H

#include <stdbool.h>
#include <stddef.h>

struct client;
struct conf;
struct err;
struct job_spec;
struct ship_item;

struct ship_remote {         /* a resource that is in the file system of the cluster already */
    char *url, *name, *role; /* role "" = every role */
    bool archive;
};

struct client_job {
    struct conf *conf;
    struct job_spec *spec;
    bool yarn; /* on the cluster yarn; false = local */
    struct ship_item *items;
    size_t n_items, cap_items;
    struct ship_remote *remote; /* used on YARN only */
    size_t n_remote, cap_remote;
    char *scratch; /* a directory with generated files, removed by client_job_done(); NULL = none */
};

/* Load and check the job, without writing anything. All errors except -ENOMEM are faults of the
 * user (EXIT_MISUSE). */
int client_job_load(struct client *c, struct client_job *out, struct err *e);
void client_job_done(struct client_job *j);

/* ship.c */
/* Fill items from the spec, and check that each source exists. */
int ship_collect(struct client_job *j, struct err *e);
/* Copy the items into the store. 0, or minus the exit code. */
int ship_put(struct client *c, struct client_job *j, struct err *e);
void ship_remote_done(struct ship_remote *r);
int ship_exit_code(const struct err *e); /* for an item that cannot be shipped */

#endif
