/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's side of a Hadoop cluster: the declarations that its files share
 * (docs/decisions/0006-yarn.md).
 *
 * A function that returns an `int` and has a parameter `e` returns 0 or minus the exit code. If its
 * comment mentions -errno, it returns 0 or -errno instead.
 */
#ifndef TONY_CLUSTER_YARN_YARN_H
#define TONY_CLUSTER_YARN_YARN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/vec.h"
#include "cluster/remote.h"
#include "cluster/yarn/table.h"
#include "codec/tls.h"
#include "hadoop/ids.h"
#include "hadoop/rpc_client.h"
#include "hadoop/site.h"
#include "hadoop/webhdfs.h"
#include "scheduler/yarn/yarnfile.h"
#include "storage/paths.h"

struct conf;
struct http;
struct job_spec;
struct loop;

/* ---- cluster.c: the cluster, for the duration of one command ---- */

struct submission;

struct yarn {
    struct cluster_head head;
    struct cluster_host *host;
    const struct conf *conf; /* of the job or the site; borrowed */
    struct loop *loop;
    struct site *site;
    struct site_hdfs hdfs;
    struct site_addresses rm, scheduler;
    char *web; /* "host:port" of the ResourceManager's pages; NULL = not known */
    char *user;
    char *home, *dir, *history; /* after yarn_home(): /user/ada, /user/ada/.tony, ... */
    int64_t patience_ms;        /* how long to try to reach a ResourceManager or NameNode */
    struct rpc_client *rpc;
    struct webhdfs *fs;
    struct http *http; /* after yarn_http() */
    bool said_waiting;
    struct submission *staged; /* between stage() and submit() */
    /* The key of the job that was submitted or asked for last. */
    char key_id[APP_ID_MAX];
    struct tls_key key;
    bool watching;      /* a watch exists: no function may run the loop from inside its calls */
    bool never_started; /* the watch killed the job after tony.am.startup-timeout */
};

/* Why the watch killed such a job. */
#define YARN_NEVER_STARTED "the master did not start within tony.am.startup-timeout"

static inline struct yarn *yarn_of(struct cluster *k)
{
    return (struct yarn *)(void *)k;
}

/* Read the site files and make the clients. It sends no request. */
int yarn_open(const struct cluster_config *cfg, struct yarn **out, struct err *e);
void yarn_freep(struct yarn **y);
struct http *yarn_http(struct yarn *y, struct err *e);
/* Find the home directory of the user, and set home, dir and history. */
int yarn_home(struct yarn *y, struct err *e);

/* Waits for several operations at once; the loop is that of the host. The caller adds 1 to n for
 * each that it starts; yarn_join_end() subtracts 1; yarn_join_wait() runs the loop until n is 0. */
struct yarn_join {
    struct loop *loop;
    unsigned n;
    struct err e; /* the first failure that was given to yarn_join_end() */
    /* Noted if the wait takes long; may be NULL. Then host is not NULL. */
    const char *waits_for;
    const struct cluster_host *host;
};
void yarn_join_end(struct yarn_join *j, const struct err *e);
void yarn_join_wait(struct yarn_join *j);

int64_t yarn_deadline(const struct yarn *y);
/* The exit code for an error of the cluster: EXIT_MISUSE if the user has to change the job, else
 * EXIT_CLUSTER. */
int yarn_exit_code(const struct err *e);
/* Copy the first line of a text, without white space at its ends. */
void yarn_first_line(const char *text, char *out, size_t n);
/* Copy the reason why an application waits from its diagnostics, without the time at the start and
 * the figures at the end, which change in every report. */
void yarn_waiting_text(const char *diagnostics, char *out, size_t n);

/* ---- one.c: single operations; each waits for its result ---- */

struct yarn_report { /* a copy of the report of an application */
    Hadoop__YarnApplicationState state;
    Hadoop__FinalApplicationStatus final;
    char id[APP_ID_MAX];
    char *user, *queue, *name, *host, *url, *diagnostics, *type;
    int rpc_port;
    int32_t attempt;
    int64_t submitted_ms, started_ms, finished_ms;
    int64_t used_memory_mib, used_vcores, containers;
};
int yarn_report_copy(const Hadoop__ApplicationReport *from, struct yarn_report *out);
void yarn_report_done(struct yarn_report *r);
/* Get the report of an application. -ENOENT: the ResourceManager does not know it. */
int yarn_report(struct yarn *y, const char *id, struct yarn_report *out, struct err *e);
/* The path of a URL in the file system of this cluster. The caller frees it. NULL with e set: the
 * URL is of another file system. Call yarn_home() before. */
char *yarn_path_of(const struct yarn *y, const char *url, struct err *e);
/* Read a whole file of HDFS. 0 or -errno. */
int yarn_read(struct yarn *y, const char *path, size_t max, struct buf *out, struct err *e);
/* GET a page of a NodeManager or a log server, following redirects. fn gets the body of an answer
 * with status 200, piece by piece; if it returns -errno, the reading ends with this error. 0 or
 * -errno. */
int yarn_get(struct yarn *y, const char *url, int (*fn)(const char *p, size_t n, void *arg),
             void *arg, int *out_status, struct err *e);
int yarn_owner(struct yarn *y, const char *path, char **out,
               struct err *e);                                    /* the caller frees *out */
int yarn_remove(struct yarn *y, const char *path, struct err *e); /* path may be missing */
/* Write a small file, which must not exist. 0 or -errno. */
int yarn_write(struct yarn *y, const char *path, struct span text, struct err *e);
int yarn_rename(struct yarn *y, const char *from, const char *to, struct err *e); /* 0 or -errno */
bool yarn_exists(struct yarn *y, const char *path); /* false: missing, or not known */
/* Read the client's key of a running job from its staging directory. 0 or -errno. */
int yarn_client_key(struct yarn *y, const char *id, struct tls_key *out, struct err *e);

/* ---- check.c: does the job fit into the cluster? ---- */

struct yarn_amount {
    char *name;
    int64_t n;
};
struct yarn_node {
    int64_t memory_mib, vcores;
    VEC(struct yarn_amount) types;
    struct strv labels;
};
struct yarn_facts {
    int64_t max_memory_mib, max_vcores; /* of one container; 0 = not known */
    VEC(struct yarn_amount) max_types;
    VEC(struct yarn_node) nodes; /* the running ones */
    struct strv types;           /* names that the ResourceManager knows */
    struct strv labels;
    bool queue_there, queue_runs, queue_is_parent;
    struct strv queue_labels, queues; /* queues: all leaf queues, if !queue_there */
};
void yarn_facts_done(struct yarn_facts *f);
/* -EINVAL: the job asks for too much, and e names the line of the job file. Warnings are added to
 * notes. */
int yarn_check(const struct yarn_facts *f, const struct cluster_job *j, struct strv *notes,
               struct err *e);
/* ask.c: start the requests for struct yarn_facts, in parallel to others. After
 * yarn_join_wait() call yarn_ask_finish(); then f has the answers. out_app NULL: do not request an
 * application id. */
struct yarn_ask;
int yarn_ask_begin(struct yarn *y, const struct cluster_job *j, struct yarn_join *join,
                   struct yarn_facts *f, struct yarn_app *out_app, struct yarn_ask **out,
                   struct err *e);
int yarn_ask_finish(struct yarn_ask *a, struct err *e);
void yarn_ask_free(struct yarn_ask *a);
/* The memory of the master's container. */
uint64_t yarn_master_memory_mib(const struct job_spec *s);
/* YARN rounds the memory of a container up to a multiple of it. */
int64_t yarn_unit_mib(const struct yarn *y);
/* The resource types of a role: "yarn.io/gpu=1" and tony.<role>.resource-types, checked. */
int yarn_role_types(const struct cluster_job *j, const char *role, uint32_t gpus, struct strv *out,
                    struct err *e);
/* The tags of tony.application.tags in lower case, as YARN requires. -EINVAL: one is not valid. */
int yarn_tags(const struct cluster_job *j, struct strv *out, struct err *e);
const char *yarn_role_label(const struct cluster_job *j, const char *role); /* NULL = none */

/* ---- stage.c: puts the files of a job into HDFS ---- */

struct yarn_staged {
    char *name, *role; /* as in yarn_file; role "" = all */
    bool archive, for_master, for_tasks;
    char *local; /* file or directory of this machine; NULL = it is in HDFS already */
    char *path;  /* in HDFS */
    char *digest;
    int64_t size, mtime_ms; /* once it is in HDFS */
    /* Used while staging: */
    bool known;    /* the cache has its directory */
    bool old;      /* set the modification time of that directory */
    bool there;    /* the file is in HDFS */
    bool optional; /* if it is missing in HDFS, that is a note and no error */
    bool is_dir;
    const char *origin; /* of a file in HDFS: the option or line that names it; borrowed */
    int fd;
    uint64_t sent, total;
    char *temp;
};
struct yarn_staging {
    struct yarn *y;
    struct cluster_job *j;
    VEC(struct yarn_staged) v;
    uint64_t bytes_sent, bytes_there;
    unsigned files_sent, files_there;
    bool cache_there;
    struct strv stale; /* paths in the cache that may be removed */
    struct yarn_join join;
    struct strv notes;
    int64_t drawn_ms; /* when the host was told about the progress last */
};
/* Fill v with the files that the job ships. Local files are copied into the local store first. */
int yarn_stage_collect(struct yarn_staging *s, struct err *e);
/* Start the requests for files that are in HDFS already. They run in parallel to others; call
 * yarn_home() before. */
void yarn_stage_ask(struct yarn_staging *s);
int yarn_stage_answer(struct yarn_staging *s, struct err *e); /* after yarn_join_wait() */
int yarn_stage_send(struct yarn_staging *s, struct err *e);   /* send the missing files */
void yarn_stage_done(struct yarn_staging *s);
json_t *yarn_stage_json(const struct yarn_staging *s);
/* Remove cache entries that were not used for tony.yarn.cache-age, and staging directories of
 * finished jobs. It takes a limited time; errors are ignored. */
void yarn_sweep(struct yarn_staging *s, const char *own_id);

/* ---- submit.c ---- */

int yarn_stage(struct cluster *k, struct cluster_job *j, struct err *e);
int yarn_submit(struct cluster *k, struct cluster_job *j, bool owned, struct cluster_submitted *out,
                struct err *e);
void yarn_submission_free(struct submission *s); /* NULL is fine */

/* ---- offer.c ---- */

struct arbiter_key;
/* A queue may be given by its whole path or by the last part of it. */
bool arbiter_is_same_queue(const char *a, const char *b);
/* The public key of the arbiter of a queue, from tony.yarn.arbiter-keys. 1; 0: there is none;
 * -EINVAL.
 */
int arbiter_key_of_queue(const struct conf *c, const char *queue, struct arbiter_key *out,
                         struct err *e);

/* ---- queued.c: a job that waits for its first master ---- */

/* Read the job.conf of a job of this user that is not over, as it was submitted. 0 or -errno. */
int yarn_job_spec(struct yarn *y, const char *id, struct job_spec **out, struct err *e);
/* Does the job wait for its first master? */
bool yarn_is_queued(const struct yarn_report *r);
/* The member "roles" of the status document of such a job, with the sizes that a client has left
 * for its master. The caller frees it; NULL = not known. */
json_t *yarn_queued_roles(struct yarn *y, const char *id);
/* Check the wish, and leave it for the master. 1 = done; 0 = not possible: ask the master; or minus
 * the exit code. */
int yarn_queued_resize(struct yarn *y, const char *id, const struct cluster_resize *w,
                       struct err *e);
/* struct cluster_ops, resize_waiting */
int yarn_resize_waiting(struct cluster *k, const char *id, const struct cluster_resize *w,
                        json_t **out, struct err *e);

/* ---- watch.c ---- */

int yarn_watch(struct cluster *k, const struct cluster_watch_config *cfg,
               struct cluster_watch **out, struct err *e);
void yarn_attend(struct cluster_watch *w, bool connected);
void yarn_stop(struct cluster_watch *w, enum cluster_stop how, const char *reason, bool checkpoint);
void yarn_unwatch(struct cluster_watch *w);
/* The pause before the next report of a job without a master that was watched for watched_ms. */
int64_t yarn_watch_pause_ms(int64_t watched_ms);

/* ---- status.c ---- */

/* Turn a report of the ResourceManager into one of struct cluster_ops. -ENOMEM. */
int yarn_cluster_report(const struct yarn *y, const struct yarn_report *r,
                        struct cluster_report *out);
/* The rest as in struct cluster_ops. */
int yarn_ops_report(struct cluster *k, const char *id, struct cluster_report *out, struct err *e);
int yarn_history(struct cluster *k, const char *id, json_t **out, struct err *e);
int yarn_verdict(struct cluster *k, const struct cluster_report *r, json_t **out, int *out_code,
                 struct err *e);
void yarn_clear_staging(struct yarn *y, const char *id);
int yarn_find(struct cluster *k, const char *word, char out[APP_ID_MAX], struct err *e);
int yarn_list(struct cluster *k, size_t max, json_t *rows, bool *out_more, struct err *e);

/* ---- kept.c, doctor.c, replay.c ---- */

int yarn_kept_log(struct cluster *k, const struct cluster_kept_log *l,
                  int (*fn)(struct span text, void *arg), void *arg, int64_t *out_size,
                  struct err *e);
void yarn_doctor(struct cluster_host *h, const struct conf *site, cluster_finding_fn *add,
                 void *arg);
int yarn_history_list(struct cluster *k, struct history_rows *out, struct err *e);
int yarn_history_file(struct cluster *k, const char *id, const char *name, struct buf *out,
                      struct err *e);
int yarn_nodes(struct cluster *k, struct cluster_nodes *out, struct err *e);

#endif
