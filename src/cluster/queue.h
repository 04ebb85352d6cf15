/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `tony arbiter` needs of a cluster whose jobs it divides: a table of functions, struct
 * queue_ops, behind struct cluster_ops. A queue of YARN and a partition of Slurm are both called
 * "queue" here.
 *
 * The arbiter stores no state. In each round it looks at the whole queue, and asks the masters of
 * the jobs. The cluster remains the owner of every container.
 */
#ifndef TONY_CLUSTER_QUEUE_H
#define TONY_CLUSTER_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "arbiter/claims.h"
#include "arbiter/share.h"
#include "base/base.h"
#include "cluster/cluster.h"
#include "codec/tls.h"
#include "storage/resizekey.h"

typedef struct Tony__ClientAsk Tony__ClientAsk;

/* The keys of an arbiter that may resize jobs of other users. */
struct queue_keys {
    bool has; /* false: it resizes only jobs of its own user */
    struct arbiter_key secret, public;
};

/*
 * ---- nodes instead of containers ----
 *
 * Slurm gives a job whole shares of nodes, all of the same size, and not containers. A job has the
 * nodes of its first allocation until it ends. It grows by further allocations, and gives one back
 * when all nodes of it are free. So there the policies count nodes: each "container" of a decision
 * is a share of one node. A job has at most one share of each node.
 */
struct queue_share {
    uint32_t node;  /* index in the list of nodes */
    uint32_t group; /* 0 = of the first allocation; 1, 2, ... = of a further one, oldest first */
};
struct queue_step { /* of the elastic role; zeroed where the cluster gives containers */
    uint32_t base_nodes, base_n; /* nodes of the first allocation, and the instances there */
    uint32_t n;                  /* instances on each further node */
    uint32_t max_n;              /* instances at most */
};
struct queue_needs {
    struct share_needs share; /* gives_nodes: n, min, max and each_* are of nodes */
    struct queue_step step;
};

/* ---- one look at the queue ---- */

struct queue_node {
    char *name;                        /* as masters name the nodes of their containers */
    struct part_amount capacity, used; /* used: by all applications */
};

struct queue_job { /* a job of which this arbiter may resize a role, as far as the cluster knows */
    char id[APP_ID_MAX];
    char number[32]; /* of the cluster, if it has another name for the job; else "" */
    bool registered; /* for the key of this arbiter; false: a job of the arbiter's own user */
    char *key_tag, *size_tag; /* registered: what its client has said (storage/resizekey.h,
                                 arbiter/share.h); NULL = nothing */
    int64_t submitted_ms;
    bool has_master;
    bool had_master; /* the cluster starts another master; the containers of the job still run */
    char host[256];  /* of the master */
    uint16_t port;   /* 0 = not known */
    struct part_amount used;
    int priority;
    /* gives_nodes: */
    struct part_amount share; /* of one node */
    VEC(struct queue_share) shares;
    bool has_lost; /* it has nodes that are not in the list */
};

/* Resources that applications of the queue wait for. The arbiter does not let jobs grow into them,
 * unless it can resize the job that waits: then the policy decides. */
struct queue_wanted {
    char id[APP_ID_MAX]; /* of one of `jobs`; "" = of none */
    /* The sum of what all applications of the queue wait for: those of the arbiter's jobs, too. */
    bool of_all;
    bool further; /* nodes for the job `id`, which runs already: they join it */
    bool apart;   /* each piece on another node */
    uint32_t n;   /* pieces */
    struct part_amount each;
};

struct queue {                    /* end with queue_done() */
    VEC(struct queue_node) nodes; /* in the order of their names */
    VEC(struct queue_job) jobs;
    VEC(struct queue_wanted) wanted;
    struct part_amount used;  /* by all applications of the queue */
    bool has_limit;           /* false: the queue may have as much as the nodes have */
    struct part_amount limit; /* the most that all applications of the queue may have */
    int64_t master_ms;        /* how long to try to reach a master of the own user */
};
void queue_done(struct queue *q);

/* ---- the arbiter as an application of its own ---- */

struct queue_app { /* what the arbiter's job needs on this cluster */
    const char *queue;
    const char *conf_dir; /* a new directory of this machine, which the job ships */
    const char *in_task;  /* the name of that directory in the working directory of the task */
    json_t *conf, *env;   /* of the job file; members are added */
};

/* ---- the table ---- */

struct queue_ops {
    const char *what; /* in sentences: "queue", "partition" */
    bool gives_nodes; /* see above */
    /* The pause between two looks is at least this long. It grows while nothing changes, and while
     * the cluster does not answer. 0 = a look costs the cluster so little that the interval of the
     * policy decides alone. */
    int64_t pause_ms;
    /* Read the state of the queue. 0 or -errno; -EINVAL: there is no such queue. */
    int (*look)(struct cluster *k, const char *queue, const struct queue_keys *keys,
                struct queue *out, struct err *e);
    /* Read what a job needs. 1: *out is set. 0: a policy may resize no role of the job. -errno: the
     * caller tries it again in the next round. out_key: the key with which the caller asks the
     * job's master. It is set only for a registered job. For other jobs, key() of struct
     * cluster_ops gives the key. */
    int (*needs)(struct cluster *k, const struct queue_job *j, const struct queue_keys *keys,
                 struct queue_needs *out, struct tls_key *out_key, struct err *e);
    /* The private key of this user's arbiters. secret_write() makes it unless there is one. 0 or
     * -errno; secret_read(): -ENOENT: there is none. NULL: the arbiter resizes only jobs of its own
     * user; no_keys says why. */
    int (*secret_read)(struct cluster *k, struct arbiter_key *out, struct err *e);
    int (*secret_write)(struct cluster *k, const struct arbiter_key *key, struct err *e);
    const char *no_keys;
    /* The setting of the site's file with the public keys: "QUEUE=KEY,...". NULL if secret_read is.
     */
    const char *keys_setting;
    /* Find the live application that is the arbiter of the queue and of this user. not_id: an
     * application to skip; NULL = none. 0 or -errno; out->id is "" if there is none. */
    int (*find_app)(struct cluster *k, const char *queue, const char *not_id,
                    struct cluster_report *out, struct err *e);
    /* Prepare the job in which the arbiter will run. 0 or -errno. */
    int (*prepare_app)(struct cluster *k, struct queue_app *a, struct err *e);
    /* Settings that name files of this machine, ended by NULL. The arbiter's job does not get them:
     * prepare_app() ships what the files say. NULL = there are none. */
    const char *const *local_settings;
};

/* The beginning of the name of the arbiter's job; the name of the queue follows. */
#define QUEUE_APP_PREFIX "arbiter:"

/* ---- a question to a master ---- */

struct master_question {
    const char *host;
    uint16_t port;
    const char *identity; /* JOB_KEY_CLIENT or RESIZE_KEY_ARBITER */
    const struct tls_key *key;
    int64_t connect_ms, answer_ms; /* limits; that of the answer is for the whole of it */
    size_t answer_max;             /* bytes */
};
/* Ask a master, by TLS. Its texts have no control characters. 0 or -errno. The caller ends *out. */
int cluster_ask_master(struct cluster_host *h, const struct master_question *q,
                       const Tony__ClientAsk *ask, struct buf *out, struct err *e);

#endif
