/*
 * From the command line to a checked job: layers of configuration, the typed job, and what is to be
 * shipped.
 */
#ifndef TONY_CLIENT_JOBCONF_H
#define TONY_CLIENT_JOBCONF_H

#include <stdbool.h>
#include <stddef.h>

struct client;
struct conf;
struct err;
struct job_spec;
struct ship_item;

struct ship_remote {         /* a resource that lies in the cluster's file system already */
    char *url, *name, *role; /* role "" = every role */
    bool archive;
};

struct client_job {
    struct conf *conf;
    struct job_spec *spec;
    bool yarn; /* else local */
    struct ship_item *items;
    size_t n_items, cap_items;
    struct ship_remote *remote; /* on YARN only */
    size_t n_remote, cap_remote;
    char *scratch; /* a directory of ours with generated files, removed by client_job_done(); NULL =
                      none */
};

/* Everything up to, and without, writing anything. Errors are the user's (exit 2) but for memory.
 */
int client_job_load(struct client *c, struct client_job *out, struct err *e);
void client_job_done(struct client_job *j);

/* ship.c */
int ship_collect(struct client_job *j,
                 struct err *e); /* fill items from spec; looks at each source */
/* Into the store. 0, or the exit code, negative. */
int ship_put(struct client *c, struct client_job *j, struct err *e);
const char *ship_origin(const struct client_job *j, const struct ship_item *it);
void ship_remote_done(struct ship_remote *r);
int ship_exit_code(const struct err *e); /* whose fault it is that an item cannot be shipped */

#endif
