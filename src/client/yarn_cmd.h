/*
 * The commands on the cluster `yarn`, for those of the cluster `local` to hand over to.
 */
#ifndef TONY_CLIENT_YARN_CMD_H
#define TONY_CLIENT_YARN_CMD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct buf;
struct client;
struct client_job;
struct err;

/* Is this command for it? By --cluster, else HADOOP_CONF_DIR, else the site's tony.cluster. */
bool yarn_wanted(struct client *c);

/* Each returns an exit code; what went wrong was said. word: an application id, its number, `last`.
 */
int yarn_cmd_run(struct client *c, struct client_job *j);
int yarn_cmd_submit(struct client *c, struct client_job *j);
int yarn_cmd_wait(struct client *c, const char *word);
int yarn_cmd_kill(struct client *c, const char *word);
int yarn_cmd_logs(struct client *c, const char *word);
int yarn_cmd_load(struct client *c, const char *word, json_t **out); /* the status document */
int yarn_cmd_list(struct client *c, size_t n);                       /* 0 = all */
/* A job file that lies in HDFS. -errno. */
int yarn_job_file(struct client *c, const char *url, struct buf *out, struct err *e);
/* For `doctor`: the cluster's entries in the list of findings. */
void yarn_doctor(struct client *c, json_t *checks);
/* For `plan`: what the cluster has in all, also when it refuses the job (minus the exit code, with
 * the reason); nothing of it is known: *out stays as it is. */
int yarn_plan(struct client *c, const struct client_job *j, json_t **out, struct err *e);

#endif
