/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files about a submission to YARN share. */
#ifndef TONY_CLUSTER_YARN_SUBMIT_H
#define TONY_CLUSTER_YARN_SUBMIT_H

#include "arbiter/share.h"
#include "base/buf.h"
#include "cluster/yarn/yarn.h"
#include "storage/jobkey.h"
#include "storage/resizekey.h"

struct submission {
    struct yarn *y;
    struct cluster_job *j;
    bool owned;
    struct yarn_facts facts;
    struct yarn_staging staging;
    struct yarn_app app;
    char id[APP_ID_MAX];
    char *dir; /* the staging directory of this job in HDFS */
    bool made; /* dir may exist: remove it after a failure */
    struct job_key key;
    struct tls_key client_key;
    struct tls_key resize_key; /* len 0 = no arbiter of another user may resize the job */
    char resize_tag[RESIZE_TAG_MAX], size_tag[SHARE_TAG_MAX];
    struct buf job_conf, yarn_json;
    struct buf sealed; /* the secrets, encrypted; empty = the job has none */
    struct buf uses;   /* the list for sweep.c */
    bool carried;      /* job.conf and yarn.json are in the launch context, and not staged */
    struct job_file_at {
        const char *name;
        bool staged;
        int64_t size, mtime_ms;
    } files[3]; /* job.conf, yarn.json and SEALED_FILE, for the master's container */
    struct yarn_join join, key_join;
    char key_text[JOB_KEY_HEX]; /* the client's key, until it is written to HDFS */
};

/* ---- json.c: the file yarn.json, which describes the cluster to the master ---- */

/* Fill s->yarn_json. 0, or minus the exit code. */
int submission_yarn_json(struct submission *s, struct err *e);
/* The variables with which YARN runs the containers of a role in Docker, as in the original TonY. 0
 * or -ENOMEM. */
int submission_docker_env(const struct submission *s, const char *role, struct strv *out);
/* The class path for Hadoop's jars. The caller frees it; NULL = no memory. */
char *submission_class_path(const struct yarn *y, const struct cluster_job *j);

/* The highest number of masters, one after the other. */
int32_t submission_max_attempts(const struct submission *s);

/* ---- offer.c: registers the job with the arbiter of its queue ---- */

/* Make the resize key and the tags, if the site names the key of an arbiter of the queue and a
 * policy may resize the job. 0, or minus the exit code. */
int submission_offer(struct submission *s, struct err *e);

/* ---- context.c: the submission to the ResourceManager ---- */

/* Submit the job. If the ResourceManager restarts before it has stored the job, submit it again. 0,
 * or minus the exit code. */
int submission_send(struct submission *s, struct err *e);

#endif
