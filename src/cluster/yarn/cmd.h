/* SPDX-License-Identifier: Apache-2.0 */
/* The commands for jobs on the cluster `yarn`. The commands for local jobs call them. */
#ifndef TONY_CLUSTER_YARN_CMD_H
#define TONY_CLUSTER_YARN_CMD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct buf;
struct client;
struct client_job;
struct err;

/* Is this command for the cluster `yarn`? --cluster decides; without it HADOOP_CONF_DIR; without
 * that tony.cluster of the site. */
bool yarn_wanted(struct client *c);

/* Each prints its errors and returns an exit code. word: an application id, a number, or `last`. */
int yarn_cmd_run(struct client *c, struct client_job *j);
int yarn_cmd_submit(struct client *c, struct client_job *j);
int yarn_cmd_wait(struct client *c, const char *word);
int yarn_cmd_kill(struct client *c, const char *word);
struct resize_wish;
int yarn_cmd_resize(struct client *c, const char *word, const struct resize_wish *w);
int yarn_cmd_logs(struct client *c, const char *word);
int yarn_cmd_load(struct client *c, const char *word, json_t **out); /* the status document */
int yarn_cmd_list(struct client *c, size_t n);                       /* 0 = all */
/* Read a job file from HDFS. 0 or -errno. */
int yarn_job_file(struct client *c, const char *url, struct buf *out, struct err *e);
/* For `doctor`: add the findings about the cluster. */
void yarn_doctor(struct client *c, json_t *checks);
/* For `plan`: the resources of the cluster. If the cluster refuses the job: minus the exit code
 * with the reason in e, and *out is set as well. If nothing is known of the cluster, *out is not
 * changed. */
int yarn_plan(struct client *c, const struct client_job *j, json_t **out, struct err *e);

#endif
