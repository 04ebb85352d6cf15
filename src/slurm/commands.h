/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of Slurm, for clients (cluster/slurm) and masters (scheduler/slurm): running them,
 * and reading what they write. No library of Slurm is used, since its ABI differs between sites.
 *
 * command.c  runs a command
 * parse.c    reads the output of sinfo, squeue, scontrol and sbatch
 * parse_queue.c  reads what they print about a whole partition
 * ask.c      questions about a job
 * why.c      what its answers mean, in words
 *
 * Thread  All functions may run on any thread. Those with a time limit block for that long at most.
 */
#ifndef TONY_SLURM_COMMANDS_H
#define TONY_SLURM_COMMANDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/vec.h"

/* ---- running a command ---- */

struct slurm_answer {
    int status; /* exit code; 128 + n after signal n */
    struct buf out, err;
};
/* Run a command with this text as its standard input (NULL = nothing), for at most limit_ms.
 * -ENOENT: there is no such command on this machine; -ETIMEDOUT. */
int slurm_run(const char *const *argv, const char *input, int limit_ms, struct slurm_answer *out,
              struct err *e);
void slurm_answer_done(struct slurm_answer *a);
/* The text that the command wrote to stderr, as one line without the name of the command. The
 * caller frees it. */
char *slurm_words(const struct slurm_answer *a);
/* Say that the command failed, with its words. Returns -EIO. */
int slurm_failed(const struct slurm_answer *a, const char *command, struct err *e);

/* ---- the nodes of a partition ---- */

struct slurm_node { /* nodes with the same resources */
    uint32_t n;
    uint64_t memory_mib;
    uint32_t vcores, gpus;
};
typedef VEC(struct slurm_node) slurm_nodes;
struct slurm_choice {
    bool default_only;   /* only nodes of the default partition, if there is one */
    bool unusable;       /* also nodes that run no jobs now: they are down, drained or booting */
    const char *exclude; /* without these nodes: "n[1-3],n7"; NULL = all */
};
/* Read the output of sinfo -h -N -o SLURM_NODE_FIELDS, which names a node once for each of its
 * partitions. 0 or -ENOMEM. Damaged lines are skipped. */
#define SLURM_NODE_FIELDS "%N|%P|%c|%m|%G|%t"
int slurm_parse_nodes(struct span text, const struct slurm_choice *which, slurm_nodes *out);

/* ---- what is taken in a partition, for an arbiter ---- */

struct slurm_amounts {
    uint64_t memory_mib;
    uint32_t vcores, gpus;
};
struct slurm_use { /* a node */
    char *name;
    struct slurm_amounts capacity, used; /* used: by all jobs of all users and partitions */
    bool usable;                         /* it runs jobs, or may later */
};
typedef VEC(struct slurm_use) slurm_uses;
/* Read the output of sinfo -h -N -p PARTITION -O SLURM_USE_FIELDS. Damaged lines are skipped. 0 or
 * -ENOMEM. The caller ends *out, also after an error. */
#define SLURM_USE_FIELDS                                                                           \
    "NodeList:|,CPUsState:|,Memory:|,AllocMem:|,Gres:|,GresUsed:|,StateCompact:|"
int slurm_parse_uses(struct span text, slurm_uses *out);
void slurm_uses_done(slurm_uses *v);

struct slurm_held { /* a job, and the nodes that it has */
    char number[32], state[24], name[120];
    struct strv nodes;
};
typedef VEC(struct slurm_held) slurm_helds;
/* Read the output of squeue -h -o SLURM_HELD_FIELDS. Damaged lines and heterogeneous jobs are
 * skipped. 0 or -ENOMEM. The caller ends *out, also after an error. */
#define SLURM_HELD_FIELDS "%i|%T|%N|%j"
int slurm_parse_helds(struct span text, slurm_helds *out);
void slurm_helds_done(slurm_helds *v);
struct slurm_wanted { /* a job that waits until nodes are free */
    char number[32], name[120];
    uint32_t nodes;
    struct slurm_amounts each; /* of a node */
};
typedef VEC(struct slurm_wanted) slurm_wanteds;
/* Read the output of squeue -h -t PENDING -O SLURM_WANTED_FIELDS. Skipped: damaged lines, and jobs
 * that wait for something else, such as a date or another job. 0 or -ENOMEM. */
#define SLURM_WANTED_FIELDS "JobID:|,Reason:|,tres-alloc:|,tres-per-node:|,Name:|"
int slurm_parse_wanteds(struct span text, slurm_wanteds *out);
/* Read the output of squeue -h -o SLURM_SCRIPT_FIELDS: the job whose batch script has a path that
 * ends in these words. false: there is none. */
#define SLURM_SCRIPT_FIELDS "%i|%o"
bool slurm_find_script(struct span text, const char *tail, char number[static 32]);
/* Append the names of a list such as "n[1-3,07],m5". -EBADMSG or -ENOMEM. */
int slurm_expand_nodes(struct span list, struct strv *out);

/* ---- a job ---- */

struct slurm_state { /* what squeue says */
    char state[24];  /* "PENDING"; "" = Slurm does not know the job (any more) */
    char reason[160];
    bool components; /* it is a heterogeneous job */
    bool headless;   /* it runs, but has lost the node of its batch script */
    bool torn;       /* a component has ended, and the first one waits for ever; state: NODE_FAIL */
};
/* Read the output of squeue -h -o SLURM_STATE_FIELDS. */
#define SLURM_STATE_FIELDS "%T|%r|%i|%B|%N"
void slurm_parse_state(struct span text, struct slurm_state *out);
bool slurm_state_is_over(const char *state); /* "" is over */
/* Why it waits, in words. never: it can never start. The caller frees it; NULL = no memory. */
char *slurm_why(const struct slurm_state *s, bool *out_never);
/* Does this error text of a command report a fault of Slurm, and not of the job? */
bool slurm_is_trouble(const char *words);
/* Read the number that sbatch --parsable prints: "4711" or "4711;cluster". -EBADMSG. */
int slurm_parse_number(struct span text, char out[static 32]);

struct slurm_job { /* what scontrol show job says */
    struct slurm_state is;
    int64_t end_s;     /* wall clock: when Slurm ends it; 0 = not known */
    int64_t preempt_s; /* since when Slurm wants its nodes for another job; 0 = it does not */
    uint32_t restarts; /* how often it was put back into the queue */
    bool requeue;      /* it was submitted with --requeue */
    uint32_t killed;   /* this signal has killed its batch script; 0 = none has */
};
/* Read the output of scontrol show job -o. -EBADMSG: it names no state. */
int slurm_parse_job(struct span text, struct slurm_job *out);

/* What the state of its job in Slurm means for this run of a job of tony. */
enum slurm_meaning {
    SLURM_UNKNOWN = 0, /* Slurm does not answer */
    SLURM_RUNS,        /* it runs; if it got a notice, its time limit is near */
    SLURM_PREEMPTS,    /* it runs until end_s, then another job gets its nodes */
    SLURM_REQUEUES,    /* this run ends; Slurm has put it back into its queue */
    SLURM_ENDS,        /* it was cancelled, or its time limit is over, or it has failed */
};
/* run: SLURM_RESTART_COUNT of the caller, 0 = the first run. */
enum slurm_meaning slurm_meaning_of(const struct slurm_job *j, uint32_t run);

/* The tasks of a job whose time limit is near begin to save a checkpoint this long before it. With
 * requeue_at_limit, they also have to end, and their nodes to tell so, before Slurm ends the run.
 */
enum { SLURM_LIMIT_MARGIN_MS = 10000 };
static inline int64_t slurm_limit_needs_ms(int64_t checkpoint_grace_ms, int64_t kill_grace_ms,
                                           bool requeue_at_limit)
{
    return SLURM_LIMIT_MARGIN_MS + kill_grace_ms + checkpoint_grace_ms * (requeue_at_limit ? 2 : 1);
}

/* Ask squeue for a job. 0, also if Slurm does not know the job, or -errno: Slurm does not answer.
 */
int slurm_ask(const char *number, struct slurm_state *out, struct err *e);
/* Ask scontrol for a job, for at most limit_ms. 0 or -errno; -ESRCH: Slurm does not know it. */
int slurm_ask_job(const char *number, int limit_ms, struct slurm_job *out, struct err *e);

/* A batch script may be killed again and again. If Slurm has started a job this often already, the
 * job ends. */
enum { SLURM_KILLED_MAX = 3 };

/* Put a job back into the queue, in at most limit_ms. 0; -EPERM: Slurm refuses that; another
 * -errno: Slurm does not answer. */
int slurm_put_back(const char *number, int limit_ms, struct err *e);
/* Cancel a job, in at most limit_ms. 0, also if it has ended, or -errno. */
int slurm_cancel_job(const char *number, int limit_ms, struct err *e);

#endif
