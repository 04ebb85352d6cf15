/*
 * The command line on a Hadoop cluster: what the files yarn_*.c share. Nothing of it is touched
 * unless a command is for the cluster `yarn` (docs/decisions/0006-yarn.md).
 *
 * Functions that return `int` with an err return 0 or, as a negative number, minus the exit code;
 * those that say -errno say so.
 */
#ifndef TONY_CLIENT_YARN_H
#define TONY_CLIENT_YARN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/vec.h"
#include "client/yarn_cmd.h"
#include "codec/tls.h"
#include "hadoop/ids.h"
#include "hadoop/rpc_client.h"
#include "hadoop/site.h"
#include "hadoop/webhdfs.h"
#include "scheduler/yarn/yarnfile.h"
#include "storage/paths.h"

struct client;
struct client_job;
struct conf;
struct conn;
struct follow_options;
struct follow_result;
struct http;
struct loop;

/* ---- yarn_cluster.c: a cluster as one command sees it ---- */

struct yarn {
    struct client *c;
    const struct conf *conf; /* of the job or the site; borrowed */
    struct conf *own_conf;   /* the same when it is ours to free, else NULL */
    struct loop *loop;
    struct site *site;
    struct site_hdfs hdfs;
    struct site_addresses rm, scheduler;
    char *web; /* "host:port" of the ResourceManager's pages; NULL = not known */
    char *user;
    char *home, *dir, *history; /* after yarn_home(): /user/ada, /user/ada/.tony, ... */
    int64_t patience_ms;        /* for a ResourceManager or NameNode that cannot be reached */
    struct rpc_client *rpc;
    struct webhdfs *fs;
    struct http *http; /* after yarn_http() */
    bool said_waiting;
};

/* Reads the site files and makes the clients; nobody is asked yet. conf may be NULL: the site's
 * file of tony is read. */
int yarn_open(struct client *c, const struct conf *conf, struct yarn **out, struct err *e);
void yarn_free(struct yarn *y);
void yarn_freep(struct yarn **y);
struct http *yarn_http(struct yarn *y, struct err *e);
/* The user's home directory and what is derived from it: home, dir, history. */
int yarn_home(struct yarn *y, struct err *e);

/* Several things under way at once: begin counts one more, end one less; wait runs the loop until
 * there is none. */
struct yarn_join {
    struct loop *loop;
    unsigned n;
    struct err e;          /* the first failure that was given to yarn_join_end() */
    const char *waits_for; /* said when it takes long; may be NULL */
};
void yarn_join_end(struct yarn_join *j, const struct err *e);
void yarn_join_wait(struct yarn_join *j);

int64_t yarn_deadline(const struct yarn *y);
/* An error of the cluster or of what was asked of it, as exit code: 2 for what the user can change
 * in his job, else 4. */
int yarn_exit_code(const struct err *e);
/* A text of the cluster's, fit for one line: without white space at its ends, the first line. */
void yarn_first_line(const char *text, char *out, size_t n);
/* Why an application waits, out of its diagnostics: without the time in front, and without the
 * figures behind, which are others in every report. */
void yarn_waiting_text(const char *diagnostics, char *out, size_t n);

/* Is this command for the cluster `yarn`? By --cluster, the site's tony.cluster, HADOOP_CONF_DIR.
 */
bool yarn_wanted(struct client *c);

/* ---- yarn_one.c: waiting for one thing ---- */

struct yarn_report { /* of an application, copied */
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
/* -errno; -ENOENT: the ResourceManager does not know it. */
int yarn_report(struct yarn *y, const char *id, struct yarn_report *out, struct err *e);
/* A whole file of HDFS, or a GET of a NodeManager's, the ResourceManager's or a log server's page,
 * redirects followed. -errno. */
/* The path of a URL in the cluster's own file system; the caller's, NULL with e set when it is
 * another's. Needs yarn_home(). */
char *yarn_path_of(const struct yarn *y, const char *url, struct err *e);
int yarn_read(struct yarn *y, const char *path, size_t max, struct buf *out, struct err *e);
int yarn_get(struct yarn *y, const char *url, size_t max, struct buf *out, int *out_status,
             struct err *e);
int yarn_remove(struct yarn *y, const char *path, struct err *e); /* what is not there is fine */
void yarn_pause(struct yarn *y, int64_t ms);
/* The client's key of a running job, out of its staging directory. -errno. */
int yarn_client_key(struct yarn *y, const char *id, struct tls_key *out, struct err *e);

/* ---- yarn_check.c: what the cluster can give ---- */

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
    int64_t max_memory_mib, max_vcores; /* of one container; 0 = not said */
    VEC(struct yarn_amount) max_types;
    VEC(struct yarn_node) nodes; /* that run */
    struct strv types;           /* names that the ResourceManager knows */
    struct strv labels;
    bool queue_there, queue_runs, queue_is_parent;
    struct strv queue_labels, queues; /* queues: all leaves, asked when the queue is not there */
};
void yarn_facts_done(struct yarn_facts *f);
/* -EINVAL with the line of the job file that asks for too much. Sentences that are no refusal are
 * added to notes. */
int yarn_check(const struct yarn_facts *f, const struct client_job *j, struct strv *notes,
               struct err *e);
/* yarn_ask.c. Begin the questions of yarn_check(), beside others: their answers are in f when the
 * join is over, then finish. out_app may be NULL: no new application is wanted. */
struct yarn_ask;
int yarn_ask_begin(struct yarn *y, const struct client_job *j, struct yarn_join *join,
                   struct yarn_facts *f, struct yarn_app *out_app, struct yarn_ask **out,
                   struct err *e);
int yarn_ask_finish(struct yarn_ask *a, struct err *e);
void yarn_ask_free(struct yarn_ask *a);
/* Of the master's container on YARN. */
uint64_t yarn_master_memory_mib(const struct client_job *j);
/* "yarn.io/gpu=1" and what tony.<role>.resource-types adds; checked. */
int yarn_role_types(const struct client_job *j, const char *role, uint32_t gpus, struct strv *out,
                    struct err *e);
/* tony.application.tags as YARN takes them: lower case; -EINVAL. */
int yarn_tags(const struct client_job *j, struct strv *out, struct err *e);
const char *yarn_role_label(const struct client_job *j, const char *role); /* NULL = none */
const char *yarn_origin(const struct client_job *j, const char *key);      /* never NULL */

/* ---- yarn_stage.c: content into HDFS ---- */

struct yarn_staged {
    char *name, *role; /* as in yarn_file; role "" = all */
    bool archive, for_master, for_tasks;
    char *local; /* file or directory of ours; NULL = it lies in HDFS already */
    char *path;  /* in HDFS */
    char *digest;
    int64_t size, mtime_ms; /* when it is there */
    /* work */
    bool known; /* its directory is in the cache */
    bool old;   /* and has to be touched */
    bool there;
    bool optional; /* missing in HDFS: a note, no error */
    bool is_dir;
    const char *origin; /* of what lies in HDFS: who names it; borrowed */
    int fd;
    uint64_t sent, total;
    char *temp;
};
struct yarn_staging {
    struct yarn *y;
    struct client_job *j;
    VEC(struct yarn_staged) v;
    uint64_t bytes_sent, bytes_there;
    unsigned files_sent, files_there;
    bool cache_there;
    struct strv stale; /* paths in the cache that may go */
    struct yarn_join join;
    struct strv notes;
    int64_t drawn_ms; /* progress */
    bool drawn;
};
/* Fill v from what the job ships; local content goes through the local store. */
int yarn_stage_collect(struct yarn_staging *s, struct err *e);
/* Ask what is there already, without waiting: begin may run beside other questions, and needs
 * yarn_home(). */
void yarn_stage_ask(struct yarn_staging *s);
int yarn_stage_answer(struct yarn_staging *s, struct err *e); /* after the join */
int yarn_stage_send(struct yarn_staging *s, struct err *e);   /* what is missing */
void yarn_stage_done(struct yarn_staging *s);
json_t *yarn_stage_json(const struct yarn_staging *s);
/* Remove what nobody has used for long, and staging directories of jobs that are over; bounded, and
 * failures are nobody's business. */
void yarn_sweep(struct yarn_staging *s, const char *own_id);

/* ---- yarn_submit.c ---- */

struct yarn_job { /* an accepted one */
    char id[APP_ID_MAX];
    struct tls_key key; /* the client's */
    json_t *staging;    /* what was sent */
};
int yarn_submit(struct yarn *y, struct client_job *j, bool owned, struct yarn_job *out,
                struct err *e);
void yarn_job_done(struct yarn_job *j);

/* ---- yarn_follow.c ---- */

/* key may be NULL: read it. As follow_job(), but returns minus the exit code on failure. */
int yarn_follow(struct yarn *y, const char *id, const struct tls_key *key,
                const struct follow_options *o, struct follow_result *out, struct err *e);

/* ---- yarn_status.c ---- */

/* The status document of a job, from its master, its history, or the ResourceManager's report.
 * Minus the exit code. */
int yarn_status(struct yarn *y, const char *id, json_t **out, struct err *e);
/* The same of a job that is over. -errno; -ENOENT: there is no history of it. */
int yarn_history(struct yarn *y, const char *id, json_t **out, struct err *e);
/* What the ResourceManager alone knows, as a status document. */
json_t *yarn_report_json(struct yarn *y, const struct yarn_report *r);
int yarn_exit_code_of(const struct yarn_report *r); /* of `tony run` */
/* A connection to a running job's master, greeted. -errno. */
struct conn_ops;
int yarn_dial_master(struct yarn *y, const struct yarn_report *r, const struct conn_ops *ops,
                     void *arg, struct conn **out, struct err *e);
/* "last" or a number -> the whole id of one of the user's applications. */
int yarn_find(struct yarn *y, const char *word, char out[APP_ID_MAX], struct err *e);
/* Rows as `tony list --json` has them, newest first. */
int yarn_list(struct yarn *y, json_t *jobs, struct err *e);

#endif
