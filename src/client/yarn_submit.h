/*
 * What the files about a submission to YARN share.
 */
#ifndef TONY_CLIENT_YARN_SUBMIT_H
#define TONY_CLIENT_YARN_SUBMIT_H

#include "base/buf.h"
#include "client/yarn.h"
#include "storage/jobkey.h"

struct submission {
    struct yarn *y;
    struct client_job *j;
    bool owned;
    struct yarn_facts facts;
    struct yarn_staging staging;
    struct yarn_app app;
    char id[APP_ID_MAX];
    char *dir; /* of this job in HDFS */
    bool made; /* dir may be there */
    struct job_key key;
    struct tls_key client_key;
    struct buf job_conf, yarn_json;
    bool carried; /* both, in the launch context: they are not staged */
    struct job_file_at {
        const char *name;
        int64_t size, mtime_ms;
    } files[2]; /* job.conf, yarn.json: of the master's container */
    struct yarn_join join, key_join;
    char key_text[JOB_KEY_HEX]; /* until the key is written */
    struct strv texts;          /* strings of the context */
};

/* ---- yarn_json.c: what the master is told of the cluster ---- */

/* Fills s->yarn_json. Minus the exit code. */
int submission_yarn_json(struct submission *s, struct err *e);
/* The runtime's variables of a role's containers, as TonY has them. 0, -ENOMEM. */
int submission_docker_env(const struct client_job *j, const char *role, struct strv *out);
/* The class path that programs of Hadoop find their jars by; the caller's, NULL = no memory. */
char *submission_class_path(const struct yarn *y, const struct client_job *j);

/* How many masters there may be, one after the other. */
int32_t submission_max_attempts(const struct submission *s);

/* ---- yarn_context.c: what the ResourceManager is told ---- */

/* Hands the job over, again if a ResourceManager restarts before it has written it down. Minus the
 * exit code. */
int submission_send(struct submission *s, struct err *e);

#endif
