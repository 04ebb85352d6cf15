/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface between a client and a cluster. It is the counterpart of scheduler/scheduler.h,
 * which connects a master to the same cluster. A cluster is a const table of functions, struct
 * cluster_ops; the contract of each member stands above it.
 *
 * Clusters: `local` (the pool of this machine), `yarn` and `slurm`. A cluster of a third party is
 * built outside src/ (clusters_more); tests/foreign/shed.c is one.
 *
 * Output   Nothing in src/cluster prints. A cluster returns values and errors, and tells the rest
 *          by host_note() and by the callbacks of the functions.
 * Errors   A function with a parameter `e` returns 0, or minus the exit code of the command (enum
 *          exit_code) with *e set: -EXIT_MISUSE if the user has to change the job or the command
 *          line, -EXIT_CLUSTER if the cluster has failed or does not answer. If the comment of a
 *          function mentions -errno, it returns 0 or -errno instead.
 * Waiting  A function waits for its result, and runs the loop of the host meanwhile. Only the
 *          functions of struct cluster_watch return at once.
 * Absent   A member that may be NULL says what its absence means.
 */
#ifndef TONY_CLUSTER_CLUSTER_H
#define TONY_CLUSTER_CLUSTER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/exit.h"
#include "base/vec.h"
#include "storage/paths.h"

struct conf; /* conf/conf.h */
struct conn; /* loop/loop.h */
struct conn_ops;
struct history_rows; /* history/history.h */
struct job_spec;     /* conf/conf.h */
struct loop;
struct queue_ops; /* cluster/queue.h */
struct ship_item; /* storage/store.h */
struct tls_key;   /* codec/tls.h */

/* ---- the host: the program that uses a cluster, for the duration of one command ---- */

struct cluster_sending { /* the progress of stage() */
    uint64_t sent, total;
    unsigned n_files; /* files that are being sent; 0 = everything was sent */
};

struct cluster_host {
    const char *version; /* of tony */
    const char *program; /* "tony run"; masters and the pool write it into their logs */
    bool verbose;        /* also note what only experts want to read */
    bool no_checks;      /* --no-checks: leave it to the cluster to refuse a job */
    /* tony.history.location of the site; NULL = not set. Borrowed. */
    const char *history_location;
    /* A sentence for the user, without a newline at its end. */
    void (*note)(const char *text, void *arg);
    /* Called at most ten times a second, and once with n_files 0. NULL: not wanted. */
    void (*sending)(const struct cluster_sending *s, void *arg);
    void *arg;
    /* Set by the functions below: */
    struct loop *loop;
    struct paths paths; /* of TONY_HOME */
    bool have_paths;
    bool looks_only; /* the paths can only be read; not_opened says why */
    struct err not_opened;
    int64_t renewed_ms; /* when a keeper was last asked to make its sockets again; 0 = never */
};

void host_note(const struct cluster_host *h, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
struct loop *host_loop(struct cluster_host *h, struct err *e); /* NULL: no memory */
/* Open TONY_HOME, and make its missing directories. 0 or -errno. */
int host_open_paths(struct cluster_host *h, struct err *e);
/* The same for commands that only read: the home may be read-only, or of another user. */
int host_look_paths(struct cluster_host *h, struct err *e);
void host_done(struct cluster_host *h);
/* Run the loop for this time. */
void host_pause(struct cluster_host *h, int64_t ms);
/* Start the program tony-pool in a session of its own, in the directory `/`, with /dev/null as
 * stdin and stdout. args: its arguments, at most SPAWN_ARGS_MAX, then NULL; stderr_fd: -1 =
 * /dev/null; fd3: becomes its descriptor 3, -1 = none. The child stays one of this process. 0 or
 * -errno. */
enum { SPAWN_ARGS_MAX = 2 };
int host_spawn_pool(const char *const *args, int stderr_fd, int fd3, pid_t *out, struct err *e);
/* For submit() of a cluster without pool, since the pool removes what is old in TONY_HOME each
 * hour: have this done by another process, once a day. It may take minutes, so this function does
 * not wait. */
void host_tidy(const struct cluster_host *h);
/* "user@host pid 4711": names this client in logs and messages. */
enum { LINK_CLIENT_MAX = 128 };
void link_describe_client(char out[static LINK_CLIENT_MAX]);

/* ---- a job ---- */

struct ship_remote {         /* a resource that the nodes fetch by its URL */
    char *url, *name, *role; /* role "" = every role */
    bool archive;
};

struct cluster_job { /* a checked job of the command line */
    struct conf *conf;
    struct job_spec *spec;
    const struct cluster_ops *cluster; /* that of tony.cluster */
    /* What the job ships from this machine, as job.conf lists it. ship_put() copies it into the
     * store of TONY_HOME, and sets the digests and paths. */
    struct ship_item *items;
    size_t n_items, cap_items;
    struct ship_remote *remote; /* only if the cluster takes URLs */
    size_t n_remote, cap_remote;
    const char *classpath; /* of --hdfs_classpath; borrowed; NULL = not given */
    char *scratch;         /* a directory with generated files, removed with the job; NULL = none */
    struct buf secrets;    /* the values of spec->secrets (storage/secrets.h) */
};

/* The line of the job file, or the option, that sets a key; names a resource of this name; or names
 * this item. Never NULL. */
const char *job_origin(const struct cluster_job *j, const char *key);
const char *ship_origin_of(const struct cluster_job *j, const char *name, const char *role);
const char *ship_origin(const struct cluster_job *j, const struct ship_item *it);
int ship_exit_code(const struct err *e); /* for an item that cannot be shipped */
/* Copy the items into the store. Call host_open_paths() before. */
int ship_put(struct cluster_host *h, struct cluster_job *j, struct err *e);
/* Check a file that will be unpacked as an environment. -EINVAL: it is no archive but a program. */
int venv_check_archive(const char *path, struct err *e);
/* The text of job.conf, which the job's master reads. 0 or -errno; -EILSEQ: a path or name is not
 * UTF-8. */
int job_conf_text(struct cluster_host *h, const struct cluster_job *j, struct buf *out,
                  struct err *e);

/* ---- what a cluster knows of an application ---- */

enum cluster_phase {
    CLUSTER_UNKNOWN = 0,
    CLUSTER_WAITING,  /* in the queue: it has no master, and never had one */
    CLUSTER_STARTING, /* it has got the resources for a master, which is not reachable yet */
    CLUSTER_RUNNING,  /* `at` says how its master is reached */
    CLUSTER_OVER,
};

/* How clients reach the master of a job by TLS; host and port are not set on clusters with dial().
 */
struct cluster_master {
    char *host;
    uint16_t port;
    int32_t attempt; /* rises with each new master; 0 = not known */
};

struct cluster_report { /* end with cluster_report_done() */
    char id[APP_ID_MAX];
    enum cluster_phase phase;
    char state[24]; /* the cluster's own word: "ACCEPTED", "PENDING" */
    struct cluster_master at;
    char *user, *queue, *name;
    bool own;      /* it is a job of this user */
    char *why;     /* why it waits, for people, the same while nothing changes; NULL = not known */
    char *message; /* what the cluster says about it, one line; NULL = nothing */
    char *url;     /* a page about the job; NULL = none */
    char
        *master_stderr; /* CLUSTER_OVER: last lines of a master that failed at its start; or NULL */
    int exit_code;      /* CLUSTER_OVER: of `tony run`, as far as the cluster knows */
    int64_t submitted_ms, started_ms, ended_ms; /* wall clock; 0 = not known */
    json_t *summary; /* a status document that the cluster itself has; NULL = none */
};
void cluster_report_done(struct cluster_report *r);
int cluster_report_copy(const struct cluster_report *from,
                        struct cluster_report *out); /* -ENOMEM */

/* ---- connections to masters ---- */

struct cluster; /* opened by struct cluster_ops */
/* Connect to the master that the report names, and send the hello. 0 or -errno; -ENOENT: the report
 * names no master; -ENOKEY: this client has no key for the master. */
int cluster_dial(struct cluster *k, const struct cluster_report *r, const struct conn_ops *ops,
                 void *arg, struct conn **out, struct err *e);

/* ---- watching an application, while it has no master ---- */

struct cluster_watch; /* a cluster's own state; begins with struct cluster_watch_head */

enum cluster_stop { CLUSTER_STOP = 1, CLUSTER_STOP_ALONE, CLUSTER_STOP_CONFIRMED };

struct cluster_watch_config { /* borrowed until unwatch(), as the id is */
    const char *id;
    bool owned; /* the watcher owns the job, as `tony run` does */
    /* The newest report, borrowed for the call. Called for the first time after watch() has
     * returned, then with each answer of the cluster, which may be the same as before. */
    void (*on_report)(const struct cluster_report *r, void *arg);
    /* The cluster does not answer, and the watch continues to ask. text: a sentence about that.
     * Called once for each silence. */
    void (*on_silent)(const char *text, void *arg);
    /* The cluster has accepted the stop. */
    void (*on_stopping)(void *arg);
    /* The watch has ended: the cluster has forgotten the job, or was silent for too long. code: the
     * exit code. No other call follows. */
    void (*on_lost)(int code, const struct err *why, void *arg);
    void *arg;
};

/* ---- the results of submit() and plan() ---- */

struct cluster_submitted {
    char id[APP_ID_MAX];
    json_t *staging;  /* what was sent, for --json (docs/json.md, "staging"); NULL = nothing */
    struct strv said; /* sentences for the user of `tony run`: where the job is, and its page */
};
void cluster_submitted_done(struct cluster_submitted *s);

struct cluster_plan {
    json_t *capacity;  /* {memory_mib, gpus, vcores, nodes} of the cluster; NULL = not known */
    bool refused;      /* the cluster would refuse the job, for ever */
    struct err why;    /* why it would refuse it, or why something is not known; num 0 = none */
    json_t *more;      /* members that are added to the document of `tony plan`; NULL = none */
    struct strv shown; /* lines that `tony plan` prints as they are, such as a script */
};
void cluster_plan_done(struct cluster_plan *p);

/* ---- logs ---- */

struct cluster_log_choice { /* borrowed text */
    const char *role;
    size_t role_len;
    int64_t index; /* -1 = all tasks of the role */
};
/* Is the task one of these? n = 0: every task is. */
bool cluster_log_wants(const struct cluster_log_choice *v, size_t n, const char *role,
                       int64_t index);

struct cluster_log_wish {
    const struct cluster_log_choice *tasks;
    size_t n_tasks;                /* 0 = all tasks */
    int64_t attempt, rank;         /* rank: -1 = all; attempt: 0 = the last */
    int64_t lines;                 /* only the last lines of each log; -1 = whole logs */
    int64_t since_ms;              /* only text that was written after this time; 0 = all */
    bool want_stdout, want_stderr; /* at least one */
    bool follow;                   /* continue until the wished tasks have ended */
    bool over;                     /* `tasks` exist and have ended: the caller knows it already */
    /* For logs of which a part was shown before: where to begin in each; -1: nothing was shown.
     * NULL: read whole logs. With it, at most the last `most` bytes of each log are read. It cannot
     * be combined with `lines`, `follow` or `attempt`. */
    int64_t (*from)(const char *task, const char *stream, uint32_t rank, uint32_t attempt,
                    void *arg);
    void *from_arg;
    int64_t most;
};

struct cluster_log_text {
    const char *task;   /* "worker:1" */
    const char *stream; /* "stdout" or "stderr" */
    uint32_t rank;
    uint32_t attempt; /* 0 = not known */
    bool several;     /* texts of other logs come too: a heading tells them apart */
    bool end;         /* of the output of cluster_follow(): all text of this attempt has come */
    struct span text;
    int64_t offset; /* of text in its log; -1 = not known */
    /* Text before this one that was left out, because the reader was too slow. more_lines: a
     * part of it was not counted. */
    uint64_t left_bytes, left_lines;
    bool more_lines;
};
/* 0, or -errno to end the reading with this error. */
typedef int cluster_log_fn(const struct cluster_log_text *t, void *arg);

struct cluster_kept_log { /* one log of a task that has ended */
    const char *id;
    const json_t *task; /* its entry in `tasks` of the status document */
    const char *stream;
    uint32_t rank;
    int64_t attempt;
    int64_t from;  /* leave out these bytes, which were shown already */
    int64_t lines; /* only the last lines; -1 = all; if not -1, from is 0 */
};

/* ---- resize ---- */

struct cluster_resize_role {
    char *role;
    uint32_t instances;
};
enum cluster_resized {
    CLUSTER_ASK_MASTER = 0, /* the cluster cannot do it: the job has a master, or will have one */
    CLUSTER_RESIZED,
    /* the request was left for the master; a master has started meanwhile, so ask it, too */
    CLUSTER_LEFT,
};
enum { RESIZE_ROLES_MAX = 64 }; /* of one command line */
struct cluster_resize {
    VEC(struct cluster_resize_role) sizes;
    int64_t within_ms;  /* 0 = the job's own tony.resize.timeout */
    const char *reason; /* borrowed; may be NULL */
};

/* ---- doctor ---- */

enum cluster_finding { CLUSTER_FINE = 1, CLUSTER_NOTE, CLUSTER_WRONG };
/* hint: what the user can do; may be NULL. */
typedef void cluster_finding_fn(const char *name, enum cluster_finding f, const char *hint,
                                const char *text, void *arg);

/* ---- the table ---- */

struct cluster_question {        /* to a pool */
    int what;                    /* a Tony__ClientAsk__What of proto/tony.proto */
    const char *id;              /* of a job; NULL = none */
    const char *const *settings; /* "KEY=VALUE" */
    size_t n_settings;
    bool start; /* start a pool if none runs */
    bool force;
    bool once;       /* the question may not be repeated if the pool dies */
    int64_t wait_ms; /* timeout; 0 = 30 s */
};

struct cluster_node { /* for simulations */
    int64_t memory_mib, gpus;
};
struct cluster_nodes {
    struct cluster_node *v;
    size_t n, cap;
};

struct cluster; /* a cluster's own state; begins with struct cluster_head */

struct cluster_config {
    struct cluster_host *host; /* borrowed until close() */
    /* The configuration of the job; for commands without a job, that of the site with --conf.
     * Borrowed until close(). NULL if the file of the site is damaged, and the cluster is not
     * remote. */
    const struct conf *conf;
    bool hasty; /* try once: the user should not wait for a server that is down */
};

struct cluster_head {
    const struct cluster_ops *ops;
    struct cluster_config cfg;
};

struct cluster_watch_head {
    struct cluster *cluster;
    const struct cluster_watch_config *cfg;
};

struct cluster_ops {
    /* ---- properties ---- */
    const char *name;  /* of tony.cluster and --cluster */
    const char *title; /* in sentences: "this machine's pool", "the cluster" */
    /* Tasks run on other machines: paths of this machine mean nothing there, a virtual environment
     * is shipped instead of used in place, and masters are reached by TLS. */
    bool remote;
    /* Nodes fetch resources by URL: "scheme://..." is left to the cluster. false: the client
     * refuses URLs. */
    bool takes_urls;
    /* Keys of the configuration with this effect act on this cluster (conf/conf.h, enum
     * conf_effect). 0 = no keys of its own. */
    int keys_effect;
    const char *keys_only; /* "only on YARN": why they have no effect elsewhere */
    /* Keys of other clusters that have an effect here, too, as the table of keys names them; NULL =
     * none. */
    const char *const *keys_also;
    /* The URL scheme of job files that read_file() reads: "hdfs". NULL = none. */
    const char *scheme;
    /* Why it is not known when a job will start, for `tony plan --when`. NULL: the pool knows. */
    const char *no_forecast;
    /* What `tony arbiter` needs of this cluster. NULL: it cannot divide the jobs of this cluster;
     * the texts say why, and what to do instead. */
    const struct queue_ops *queue;
    const char *no_arbiter, *no_arbiter_hint;
    /* Is this machine set up as a client of this cluster, by the environment of the user? Then
     * commands without --cluster go to it. It asks no server. NULL = never. */
    bool (*is_here)(void);

    /* ---- open and close ---- */
    /* Read the settings of the cluster, and make the clients of its protocols. It sends no request.
     * The caller frees *out by close(). */
    int (*open)(const struct cluster_config *cfg, struct cluster **out, struct err *e);
    void (*close)(struct cluster *k);

    /* ---- a new job ---- */
    /* Check the job against the resources and rules of the cluster, without changing anything, and
     * tell what would be asked. If the cluster does not answer, *out says so and nothing more.
     * Returns 0, or an error only if the plan cannot be made at all. */
    int (*plan)(struct cluster *k, struct cluster_job *j, struct cluster_plan *out, struct err *e);
    /* Check the job as plan() does, and put what it ships where its nodes find it. Nothing is sent
     * before the checks are complete. What is there already is not sent again; many clients may
     * stage at the same time. The cluster keeps the results for submit(). */
    int (*stage)(struct cluster *k, struct cluster_job *j, struct err *e);
    /* Submit the job that was staged. Returns as soon as the cluster has stored the job, so that it
     * survives this client. After an error there is no job, and nothing of it remains.
     *
     * owned: the caller will follow the job as its owner (`tony run`). INT, TERM and HUP are then
     * blocked, by signals_hold(), before the cluster can have the job; cluster_follow() handles
     * them. */
    int (*submit)(struct cluster *k, struct cluster_job *j, bool owned,
                  struct cluster_submitted *out, struct err *e);

    /* ---- jobs that were submitted ---- */
    /* Does a record on this machine say that the job is one of this cluster? word: an application
     * id, a number, or "last". It asks no server, and prints nothing. NULL = never. */
    bool (*knows)(struct cluster_host *h, const char *word);
    /* Which cluster of this kind the settings name, as one word, such as the address of its
     * ResourceManager. It is recorded with each job. The caller frees it. NULL = there is only
     * one. */
    char *(*where)(const struct cluster *k);
    /* Turn a word into the whole id of one of the user's jobs. A whole id is accepted without a
     * question. -EXIT_MISUSE: there is no such job. */
    int (*find)(struct cluster *k, const char *word, char out[APP_ID_MAX], struct err *e);
    /* What the cluster knows of a job now. 0 or -errno; -ENOENT: the cluster does not know it (it
     * never did, or has forgotten it); -EINVAL: the id cannot be one of this cluster. */
    int (*report)(struct cluster *k, const char *id, struct cluster_report *out, struct err *e);
    /* Connect to the master of a job by another way than TLS. *out has no ops yet. 0 or -errno.
     * NULL: by TLS, to the address of the report, with key(). */
    int (*dial)(struct cluster *k, const char *id, struct conn **out, struct err *e);
    /* The key with which a client of this user speaks to the master of a job (storage/jobkey.h). 0
     * or -errno; -ENOENT: there is none (the job is over, or of another user). NULL if dial() is
     * not NULL. While a watch of the job exists, this function must not run the loop, because it is
     * called from inside on_report(). So watch() reads the key before. */
    int (*key)(struct cluster *k, const char *id, struct tls_key *out, struct err *e);
    /* The final status document of a finished job, as its master has written it (status.json). 0 or
     * -errno; -ENOENT: there is none; -EINVAL: a newer tony wrote it. A document that another user
     * wrote is refused. */
    int (*history)(struct cluster *k, const char *id, json_t **out, struct err *e);
    /* Where the files of the job are, for people; over: of a finished job. The caller frees it;
     * NULL = nowhere. */
    char *(*place)(struct cluster *k, const char *id, bool over);
    /* The whole status document (docs/json.md). Clusters with a remote master use remote_status().
     */
    int (*status)(struct cluster *k, const char *id, json_t **out, struct err *e);
    /* For remote_status(): add what the cluster can know of a job without a master, such as its
     * roles. NULL = nothing. */
    void (*add_waiting)(struct cluster *k, const struct cluster_report *r, json_t *doc);
    /* Append the rows of `tony list --json` of this user's jobs, newest first, at most max (0 =
     * all). It costs the cluster one request. *out_more: there are more. */
    int (*list)(struct cluster *k, size_t max, json_t *rows, bool *out_more, struct err *e);

    /* ---- following ---- */
    /*
     * Watch a job for cluster_follow(), which needs the cluster while the job has no master, and if
     * the master was lost.
     *
     * Pace     While a job waits, the cluster is asked with growing pauses. While a master is
     *          attended, it is asked at most every few seconds, or not at all: only a new master
     *          and the end are of interest then.
     * Silence  The watch continues if the cluster does not answer, until a limit of its own.
     */
    int (*watch)(struct cluster *k, const struct cluster_watch_config *cfg,
                 struct cluster_watch **out, struct err *e);
    /* connected: the master has answered on its connection. Otherwise that connection was lost or
     * could not be made: on_report() follows soon, with a short pause if this repeats. It may be
     * called from inside on_report(). */
    void (*attend)(struct cluster_watch *w, bool connected);
    /*
     * Stop the job by the cluster. cluster_follow() asks the master to stop it; this function does
     * what the master does not do. Repeated calls replace each other.
     *
     * CLUSTER_STOP           there may be a master. The cluster acts if there never was one, or if
     *                        it has not confirmed the stop within some seconds.
     * CLUSTER_STOP_ALONE     this client cannot speak to the master: act at once
     * CLUSTER_STOP_CONFIRMED the master stops the job: do nothing
     *
     * on_stopping() or a report with CLUSTER_OVER follows.
     */
    void (*stop)(struct cluster_watch *w, enum cluster_stop how, const char *reason,
                 bool checkpoint);
    /* End the watch. It may wait up to two seconds for answers that are under way. */
    void (*unwatch)(struct cluster_watch *w);
    /* The job is over, its master has sent no verdict, and the report has no summary: make the
     * final document from the history, else from the report. *out_code: the exit code of `tony
     * run`. It is called when the watch has ended. */
    int (*verdict)(struct cluster *k, const struct cluster_report *r, json_t **out, int *out_code,
                   struct err *e);
    /* The job is over or forgotten, and everything was printed. Remove what a killed master has
     * left behind, or wait a short time until another process has removed it. killed: the job did
     * not end by itself. NULL = nothing to do. */
    void (*settle)(struct cluster *k, const char *id, bool killed);

    /* ---- the rest ---- */
    /* Read logs, as the wish says. -EXIT_MISUSE: no such task, attempt or rank. Clusters with a
     * remote master take remote_logs(), which asks the master as long as there is one. */
    int (*logs)(struct cluster *k, const char *id, const struct cluster_log_wish *w,
                cluster_log_fn *fn, void *arg, struct err *e);
    /* For remote_logs(): read a log that no executor has any more. The text may come in many calls.
     * *out_size: the size of the whole log. 0 or -errno; -ENOENT: the log is nowhere; e says where
     * it was. NULL: logs of finished tasks cannot be read. */
    int (*kept_log)(struct cluster *k, const struct cluster_kept_log *l,
                    int (*fn)(struct span text, void *arg), void *arg, int64_t *out_size,
                    struct err *e);
    /* Add a hint how users find logs of a job that tony does not find. NULL = there is no way. */
    void (*hint_logs)(const char *id, struct err *e);
    /* Resize a job that waits for its first master. Returns an enum cluster_resized, or minus the
     * exit code. CLUSTER_RESIZED: *out is the answer (docs/json.md, "resize"). NULL: the client
     * waits for the master. */
    int (*resize_waiting)(struct cluster *k, const char *id, const struct cluster_resize *w,
                          json_t **out, struct err *e);
    /* Read a file by a URL of `scheme`; at most out->max bytes. 0 or -errno. NULL if `scheme` is.
     */
    int (*read_file)(struct cluster *k, const char *url, struct buf *out, struct err *e);
    /* For `tony simulate --from-history`: the finished jobs of this user, a file of one of them,
     * and the nodes that the cluster has now. 0 or -errno. */
    int (*history_list)(struct cluster *k, struct history_rows *out, struct err *e);
    int (*history_file)(struct cluster *k, const char *id, const char *name, struct buf *out,
                        struct err *e);
    int (*nodes)(struct cluster *k, struct cluster_nodes *out,
                 struct err *e); /* NULL: this machine */
    /* Ask the pool of this cluster, which tony itself runs, for `tony pool` and what only a pool
     * can tell. 1: *out is the answer; 0: no pool runs, and q->start is false; or -errno.
     * *out_refused: *e is the refusal of the pool, and no error of the connection. NULL: the
     * cluster has no pool.
     */
    int (*ask_pool)(struct cluster_host *h, const struct cluster_question *q, json_t **out,
                    bool *out_refused, struct err *e);
    /* Add what `tony doctor` says about this cluster. conf: of the site. NULL = nothing. */
    void (*doctor)(struct cluster_host *h, const struct conf *conf, cluster_finding_fn *add,
                   void *arg);
};

/* ---- the record of submitted jobs (storage/submitted.h) ---- */

/* Record a job that was submitted. The record is on disk when this returns; with `later` a thread
 * writes it to the disk meanwhile. It cannot fail: without the record, `last` means another job.
 */
void cluster_remember(struct cluster *k, const char *id, bool later);
/* Record the verdict that the master has told this client. */
void cluster_remember_end(struct cluster *k, const char *id, const char *state);
/* Does the record of this machine say where the job is? word: an application id, a number, or
 * "last"; option: of --cluster, NULL = any cluster. *out_place: as of where(), "-" = not known. */
enum { CLUSTER_PLACE_MAX = 256 };
const struct cluster_ops *cluster_recorded(struct cluster_host *h, const char *option,
                                           const char *word, char out_id[APP_ID_MAX],
                                           char out_place[CLUSTER_PLACE_MAX]);
/* Set the state of rows of `tony list` whose end this client has heard before the cluster. */
void cluster_add_ends(struct cluster_host *h, json_t *rows);

/* Append the newest rows of `all` to `rows`, newest first, at most max (0 = all). true: there are
 * more. */
bool list_newest(json_t *all, size_t max, json_t *rows);

/* ---- finding a table ---- */

/* Clusters of a third party: a program that is linked with another file may define this list, which
 * ends with NULL. */
extern const struct cluster_ops *const clusters_more[] __attribute__((weak));

const struct cluster_ops *cluster_named(const char *name); /* NULL = unknown */
/* Cluster number i: 0 is `local`, the default. NULL = i is too large. */
const struct cluster_ops *cluster_at(size_t i);
/* The cluster of a command without a job: the one that `option` (of --cluster; NULL = not given)
 * names, else tony.cluster of the site, else the first one that is_here(), else `local`. NULL: the
 * name of the option is unknown. */
const struct cluster_ops *cluster_wanted(const char *option, const struct conf *site);
/* The same for a command about a job that was submitted: without an option, a record on this
 * machine decides first (knows()). */
const struct cluster_ops *cluster_of(struct cluster_host *h, const char *option,
                                     const struct conf *site, const char *word);

static inline const struct cluster_ops *cluster_ops_of(const struct cluster *k)
{
    return ((const struct cluster_head *)(const void *)k)->ops;
}

static inline void cluster_ops_close(struct cluster *k) /* NULL is fine */
{
    if (k)
        cluster_ops_of(k)->close(k);
}

/* ---- the metrics of a job, on any cluster ---- */

/* Append the metrics file of a job (storage/metrics_file.h): from its master while it runs, else
 * from its history. 0 or -errno; -ENOENT: it has none. */
int cluster_metrics(struct cluster *k, const char *id, struct buf *out, struct err *e);

/* ---- the events of a job, on any cluster ---- */

/* Gets one event (docs/json.md, "events"), borrowed. 0, or -errno to end the reading with it. */
typedef int cluster_event_fn(const json_t *event, void *arg);
/* Tell the events of a job so far; follow: until its verdict. 0 or -errno; -ENOENT: there is no
 * such job, or it has no history. */
int cluster_events(struct cluster *k, const char *id, bool follow, cluster_event_fn *fn, void *arg,
                   struct err *e);

/* ---- resizing a job, on any cluster ---- */

/* Check the wish against the roles in the status document of the job. EXIT_DONE, or an exit code
 * with *e set. */
int resize_check(const struct cluster_resize *w, const json_t *doc, struct err *e);
/* Ask the master, or the cluster if there is none. Retries while no master answers. *out: the
 * answer (docs/json.md "resize"), or a status document, which has the same members. */
int cluster_resize(struct cluster *k, const char *id, const struct cluster_resize *w, json_t **out,
                   struct err *e);
/* A role that has not started gets its new size at once. If this machine can never hold that size,
 * the master is told a moment later. Wait a short time for that: *doc becomes the status with the
 * refusal. */
void resize_await_refusal(struct cluster *k, const char *id, json_t **doc);

/* ---- following a job to its end, on any cluster ---- */

/* The tasks whose output cluster_follow() passes on. */
enum cluster_output {
    CLUSTER_OUTPUT_NONE = 0,
    CLUSTER_OUTPUT_AUTO, /* all tasks if there are at most 4, else the chief */
    CLUSTER_OUTPUT_CHIEF,
    CLUSTER_OUTPUT_ALL,
    CLUSTER_OUTPUT_CHOSEN,
};

struct follow_options {
    /* The client owns the job: the job stops tony.client.away-limit after the client has
     * disconnected. */
    bool owns_job;
    bool signals;     /* INT, TERM and HUP ask the job to stop; a second one stops waiting */
    const char *stop; /* ask the job to stop at once, with this reason; NULL = do not */
    bool checkpoint;  /* with `stop`: let the tasks save a checkpoint first */
    bool return_when_stopping; /* with `stop`: return as soon as the stop was accepted */
    /* INT, TERM and HUP make the function return, and do not stop the job: out->detached. Cannot be
     * combined with `signals`. */
    bool detach_on_signal;
    /* Called with each update of the master; true = stop following. May be NULL. */
    bool (*on_update)(const char *state, const json_t *summary, void *arg);
    /* For a display; each may be NULL. update: an update of the master or of the pool; summary may
     * be NULL. waits: the state of a job without a master; why is "" if it is not known. say: a
     * sentence. tasks: a document with the tasks of a remote job and the URLs of their logs, once.
     */
    void (*update)(const char *state, const json_t *summary, void *arg);
    void (*waits)(const char *state, const char *why, void *arg);
    void (*say)(const char *text, void *arg);
    void (*tasks)(const json_t *doc, void *arg);
    /* Pass on what tasks write, as the master sends it. Text is left out if a task writes faster
     * than people read, or if this client does not keep up. */
    enum cluster_output output;
    const struct cluster_log_choice *chosen; /* of CLUSTER_OUTPUT_CHOSEN */
    size_t n_chosen;
    void (*log)(const struct cluster_log_text *t, void *arg);
    void *arg;
};

struct follow_result {
    json_t *summary; /* of the last update; may be NULL */
    int exit_code;   /* of the job */
    /* The job has ended. false: `return_when_stopping`, on_update() or the user ended the wait
     * before that. */
    bool finished;
    bool detached; /* a signal ended the wait */
};
int cluster_follow(struct cluster *k, const char *id, const struct follow_options *o,
                   struct follow_result *out, struct err *e);
void follow_result_done(struct follow_result *r);
/* Block INT, TERM and HUP until cluster_follow() handles them. */
void signals_hold(void);

/* ---- what commands and libtony do with a job in the same way ---- */

/* A job that a client followed is over, and everything was printed: clean up, and record its state
 * for `tony list`. killed: see settle() of struct cluster_ops. */
void cluster_settle(struct cluster *k, const char *id, const char *state, bool killed);

struct cluster_stopped {
    bool was_over;  /* before it was asked to stop */
    bool finished;  /* false: it was asked to stop, and still stops */
    char state[24]; /* if it is over: that of tony, or if it was over before, the cluster's word */
};
/* Stop a job, unless it is over. checkpoint: its tasks may save one first. no_wait: return when its
 * master has accepted. 0, or minus the exit code. */
int cluster_stop(struct cluster *k, const char *id, bool checkpoint, bool no_wait,
                 struct cluster_stopped *out, struct err *e);
/* cluster_resize(), after resize_check() with the job's status. */
int cluster_resize_checked(struct cluster *k, const char *id, const struct cluster_resize *w,
                           json_t **out, struct err *e);

#endif
