/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the cluster `slurm` share.
 *
 * slurm.c    the table
 * shape.c    the size of the allocation, or of one of its components
 * parts.c    one allocation, or components for roles with different needs
 * options.c  the options of sbatch
 * script.c   the batch script
 * submit.c   plan, stage and submit
 * adopt.c    jobs whose client died during the submission
 * jobs.c     what Slurm and the files say about a job
 * logs.c     what tasks wrote
 * shared.c   finished jobs in tony.history.location
 * watch.c    following
 * arbiter.c  what tony arbiter needs of Slurm
 * doctor.c   what doctor says
 */
#ifndef TONY_CLUSTER_SLURM_SLURM_INT_H
#define TONY_CLUSTER_SLURM_SLURM_INT_H

#include "base/vec.h"
#include "cluster/cluster.h"
#include "slurm/commands.h"

static inline struct cluster_host *slurm_host(const struct cluster *k)
{
    return ((const struct cluster_head *)(const void *)k)->cfg.host;
}

struct slurm_shape {
    uint32_t nodes;      /* spare nodes included */
    uint64_t memory_mib; /* of one node, for containers */
    uint32_t vcores, gpus;
    uint64_t overhead_mib; /* of tony's own processes on a node, besides memory_mib */
};

enum {
    SLURM_PARTS_MAX = 8,
    SLURM_OVERHEAD_MIB = 96,     /* of head keeper, master, srun and the keeper of a node */
    SLURM_OVERHEAD_TASK_MIB = 8, /* of an executor */
};

/* The size of the request to Slurm: of one allocation, or of the components of a heterogeneous job.
 */
struct slurm_size {
    uint32_t n;
    struct slurm_shape v[SLURM_PARTS_MAX];
    /* Of each role its component, and of each component its constraint. An ordinary allocation has
     * neither. */
    uint32_t *of_role;
    char *constraint[SLURM_PARTS_MAX]; /* NULL = none */
};
/* The last answer of squeue about a job that has not ended. Commands that look often use the answer
 * again for some time: slurm_report(). */
struct slurm_recent {
    char id[APP_ID_MAX];
    int64_t ask_at_ms, pause_ms; /* when to ask again, and the pause that ends then */
    struct slurm_state state;    /* state "": the job has no number in Slurm yet */
};
struct slurm_cluster {
    struct cluster_head head;
    VEC(struct slurm_recent) recent;
    /* After slurm_stage(): */
    char *programs; /* the directory with tony-master and tony-executor */
    struct slurm_size size;
    char *note; /* what the user should know of the size; NULL = nothing */
};

/* ---- shape.c ---- */

/* Choose the number of nodes, and what is asked of each. wanted: tony.slurm.nodes, 0 = as few as
 * possible. -ERANGE: the nodes cannot hold the job. */
int slurm_choose_shape(const struct job_spec *s, const slurm_nodes *nodes, uint32_t wanted,
                       uint32_t spare, struct slurm_shape *out, struct err *e);
/* The same for the roles of which only[i] is set; NULL = all. out_idle_gpus: nodes, spare ones not
 * counted, that get GPUs although no task there uses one. */
int slurm_choose_shape_of(const struct job_spec *s, const bool *only, const slurm_nodes *nodes,
                          uint32_t wanted, uint32_t spare, struct slurm_shape *out,
                          uint32_t *out_idle_gpus, struct err *e);
/* Take as many nodes as the shape says from the list. */
void slurm_take_nodes(slurm_nodes *nodes, const struct slurm_shape *s);

/* ---- parts.c ---- */

/* Choose one allocation or components. -ERANGE: the nodes cannot hold the job; -EINVAL: keys of the
 * job contradict each other. */
int slurm_choose_size(const struct conf *c, const struct job_spec *s, const slurm_nodes *nodes,
                      struct slurm_size *out, struct err *e);
void slurm_size_done(struct slurm_size *z);
uint32_t slurm_size_nodes(const struct slurm_size *z);

/* ---- options.c ---- */

/* The partition that the keys of the job name, else the variable SBATCH_PARTITION. NULL = the
 * default one of the cluster. */
const char *slurm_partition_of(const struct conf *c);
/* The time limit of the job, in whole minutes as Slurm wants it. 0 = that of the partition. */
int64_t slurm_limit_ms(const struct conf *c);
/* Refuse keys that cannot become options of sbatch. 0, -EINVAL or -ENOMEM. */
int slurm_check_options(const struct conf *c, const struct job_spec *s, struct err *e);
/* Append a line of a batch script with an option. Without a value (NULL or "") append nothing. */
void slurm_add_option(struct buf *out, const char *name, const char *value);
/* Append the options of the keys that all allocations of the job share. constraint: that of a
 * component; NULL = it has none of its own. */
void slurm_add_keys(const struct conf *c, const char *constraint, struct buf *out);
/* Append tony.slurm.extra-arguments: a line for each item. */
void slurm_add_extra(const struct conf *c, struct buf *out);

/* ---- script.c ---- */

/* How long before its time limit the job begins to end. */
int64_t slurm_needs_ms(const struct job_spec *s);
/* The batch script of a job. dir: its directory; programs: NULL = not known yet. 0 or -ENOMEM. */
int slurm_script(const struct conf *c, const struct job_spec *s, const struct slurm_size *size,
                 const char *id, const char *home, const char *programs, struct buf *out);

/* May the master submit further allocations? Not for a job with components. */
bool slurm_may_have_further(const struct conf *c, const struct slurm_size *size);
/* The batch script of further allocations. Its arguments are the number of its first node, and that
 * of the run of the job. 0 or -ENOMEM. */
int slurm_further_script(const struct conf *c, const struct slurm_size *size, const char *id,
                         const char *home, const char *programs, struct buf *out);

/* ---- shared.c ---- */

/* As local_find_app(). If TONY_HOME has no job with this id, and the directory of
 * tony.history.location has one, all paths of finished jobs lead there from now on. */
int slurm_find_app(struct cluster_host *h, const char *word, char out[APP_ID_MAX], struct err *e);
/* Append the jobs of that directory which TONY_HOME does not have. */
int slurm_shared_rows(struct cluster_host *h, size_t max, json_t *rows, bool *out_more,
                      struct err *e);

/* ---- submit.c ---- */

int slurm_plan(struct cluster *k, struct cluster_job *j, struct cluster_plan *out, struct err *e);
int slurm_stage(struct cluster *k, struct cluster_job *j, struct err *e);
int slurm_submit(struct cluster *k, struct cluster_job *j, bool owned,
                 struct cluster_submitted *out, struct err *e);

/* ---- jobs.c ---- */

/* Read a small file of the job. The caller frees it; NULL: it is not there, or damaged. */
json_t *slurm_read_json(const char *dir, const char *name);
/* The number that Slurm has given to the job in this directory. "" = it has none yet. */
void slurm_number(const char *dir, char out[static 32]);
int slurm_exit_code(const char *state);
/* Has a run of the job ended in order within the last minute? Slurm may show the exit code of its
 * batch script for a moment, before the job is back in the queue. */
bool slurm_has_left(const char *dir);
/* Fill r->at from master.json. false: no master has started yet. */
bool slurm_master(const char *dir, struct cluster_master *out);
/* Ask squeue for the job of this directory. If it has lost its first node, or if a signal has
 * killed its batch script, put it back into the queue: no process of the job may be left that
 * could. 0 or -errno: Slurm does not answer. Any thread. */
int slurm_ask_alive(const char *dir, const char *number, struct slurm_state *out, struct err *e);
/* Why a job whose state is SUSPENDED does not answer. */
#define SLURM_SUSPENDED "Slurm has suspended it; scontrol resume lets it go on"
/* The job has ended in Slurm without a verdict: write one, and move the job to the history. */
int slurm_settle(struct cluster_host *h, const char *id, const struct slurm_state *s,
                 struct err *e);
int slurm_report(struct cluster *k, const char *id, struct cluster_report *out, struct err *e);
int slurm_list(struct cluster *k, size_t max, json_t *rows, bool *out_more, struct err *e);

/* ---- logs.c ---- */

/* The members logs and kept_log of struct cluster_ops. */
int slurm_logs(struct cluster *k, const char *id, const struct cluster_log_wish *w,
               cluster_log_fn *fn, void *arg, struct err *e);
int slurm_kept_log(struct cluster *k, const struct cluster_kept_log *l,
                   int (*fn)(struct span text, void *arg), void *arg, int64_t *out_size,
                   struct err *e);

/* ---- adopt.c ---- */

/* Not a state of Slurm's: it does not know the job, since sbatch has never sent it. */
#define SLURM_NEVER "UNSUBMITTED"

int slurm_record_number(const char *dir, const char *number, struct err *e);
/* Ask Slurm for the number of a job whose client has not recorded it, and record it. number: "" =
 * Slurm does not know the job. -errno: Slurm does not answer. */
int slurm_find_number(const char *dir, char number[static 32], struct err *e);
/* TONY_HOME does not have the job (ENOENT). If Slurm does, somebody has removed its directory: say
 * so in e, which may be NULL. */
void slurm_explain_absence(const char *id, struct err *e);
/* A job without a number: is it certain that no client submits it now? */
bool slurm_is_given_up(const char *dir);
/* Find the numbers of all such jobs with one question, and end those that were given up. Without
 * such jobs, Slurm is not asked. */
void slurm_adopt_all(struct cluster_host *h);

/* ---- arbiter.c ---- */

extern const struct queue_ops queue_slurm;

/* ---- watch.c ---- */

int slurm_watch(struct cluster *k, const struct cluster_watch_config *cfg,
                struct cluster_watch **out, struct err *e);
void slurm_attend(struct cluster_watch *w, bool connected);
void slurm_stop(struct cluster_watch *w, enum cluster_stop how, const char *reason,
                bool checkpoint);
void slurm_unwatch(struct cluster_watch *w);

/* ---- doctor.c ---- */

/* The advice to a user whose nodes may not see TONY_HOME. */
#define SLURM_HOME_ADVICE                                                                          \
    "set TONY_HOME to a directory that this machine and the nodes share, or export this one to "   \
    "them under the same path (docs/slurm.md)"

/* A sentence without its period: why it is doubtful that nodes see TONY_HOME. The caller frees it.
 * NULL: there is no doubt, or a job has run there already. */
char *slurm_home_doubt(struct cluster_host *h);
void slurm_doctor(struct cluster_host *h, const struct conf *conf, cluster_finding_fn *add,
                  void *arg);

#endif
