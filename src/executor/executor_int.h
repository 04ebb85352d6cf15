/*
 * The executor: one process that looks after one container. Forked by the keeper, or a program of
 * its own on a cluster (container.h), it dials the master, runs the attempts it is told to, and
 * leaves when it is told to or when there has been no master for too long.
 */
#ifndef TONY_EXECUTOR_EXECUTOR_INT_H
#define TONY_EXECUTOR_EXECUTOR_INT_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/reason.h"
#include "base/vec.h"
#include "executor/cgroup.h"
#include "executor/container.h"
#include "executor/link.h"
#include "executor/record.h"
#include "executor/task_side.h"
#include "executor/workdir.h"
#include "proto/tony.pb-c.h"

/* All that an executor is born with; of a forked one the keeper's memory, which is its own copy. */
struct executor_config {
    const char *application_id, *container_id, *job_dir, *spare_dir, *master_socket;
    struct remote *remote; /* NULL = forked by a keeper */
    const char *gpus;      /* "0,2" or "" */
    bool machine_has_gpus; /* then a task without any is shown none */
    uint32_t slot;
    uint64_t memory_bytes; /* 0 = not limited */
    struct cgroup cgroup;
    struct exit_record *record;
    pid_t keeper;
    struct rlimit nofile; /* what tasks get: ours is raised */
};

enum attempt_state {
    ATTEMPT_NONE = 0,
    ATTEMPT_RUNNING,
    ATTEMPT_STOPPING, /* TERM was sent; KILL follows at kill_at_ms */
    ATTEMPT_KILLING,  /* KILL was sent; waiting until all are gone */
    ATTEMPT_ENDED,    /* result kept until it is acknowledged */
};

/* A process of an attempt that is one of several, beyond the first: ranks.c. */
struct rank {
    pid_t pid; /* 0 = never ran */
    bool exited;
};

struct attempt {
    enum attempt_state state;
    uint32_t generation, number;
    pid_t pid;     /* of the first process, rank 0; 0 = never ran */
    bool exited;   /* it was reaped, or what it is one of is decided: status, usage, ended_us */
    uint32_t rank; /* whose end decided */
    struct rank *ranks; /* all that were started, when there is more than one; else NULL */
    uint32_t n_ranks, n_alive;
    bool in_cgroup;
    int status, exec_errno;
    int exit_as;            /* its end is reported as an exit with this code; 0 = as what it is */
    enum end_reason forced; /* why we took it down; END_NONE = it ended by itself */
    char detail[RECORD_DETAIL_MAX];
    int64_t started_us, ended_us;
    int64_t kill_at_ms, rescan_at_ms, deadline_ms; /* INT64_MAX = not set */
    int64_t save_until_ms; /* it has time to end, or to save a checkpoint, and is stopped then */
    uint32_t save_grace_ms;
    int64_t
        strays_at_ms; /* while stopping: when what left our process group is killed; 0 = never */
    unsigned kill_rounds;
    uint64_t max_rss, cpu_ms, oom_before;
    struct logs logs;
    struct buf tail;
};

struct service;

struct executor {
    const struct executor_config *cfg;
    struct link link;
    int signal_fd;
    int port_fd, tb_fd;
    uint16_t port, tb_port;

    /* the master */
    uint32_t epoch; /* highest obeyed */
    bool greeted;   /* Welcome came on this connection */
    bool told;      /* our hello on it had the attempt's end */
    unsigned tries; /* dials since the connection broke */
    int64_t dial_at_ms, away_since_ms, beat_at_ms;
    /* Over a network: when we last said something, and the last time that we know the master's
     * machine to have heard of us since. */
    int64_t said_ms, heard_ms;
    int64_t greet_by_ms; /* over a network: how long a connection may go without Welcome */
    Tony__Welcome *role; /* the first Welcome, ours; NULL = none yet */

    struct cgroup_watch watch;
    char *spec_path; /* the file with the cluster spec that the task was told of; NULL = none */
    char *workdir;
    char *engine; /* that runs the attempt's processes in containers (engine.h); NULL = none does */
    struct err workdir_err; /* why there is none */
    bool leaving;           /* ends as soon as nothing runs */
    bool node_says;         /* the node stopped the container, and reports why */
    struct attempt a;
    struct task_side task;

    struct {                /* the framework's, for the ranks of all tasks */
        struct service *s;  /* NULL = not here */
        bool begun;         /* it knows who comes, and is listened to */
        struct err why_not; /* there is none, where there should be one */
        bool aborted;       /* this rank has asked it for the end of the job, with this code */
        uint32_t abort_rank;
        int abort_code;
    } server;
};

_Noreturn void executor_run(const struct executor_config *cfg);
void executor_warn(struct executor *x, const char *event, const struct err *e);
int executor_send(struct executor *x,
                  Tony__Frame *f); /* a failure closes the link; it is dialled again */

/* attempt.c */
void attempt_start(struct executor *x, const Tony__Start *s);
void attempt_stop(struct executor *x, uint32_t grace_ms, enum end_reason reason,
                  const char *detail);
/* It has asked for its end, which is reported as an exit with that code. */
void attempt_exit(struct executor *x, int exit_code);
/* Ask it to save a checkpoint, wait for its end, then stop it. At once where nobody would hear. */
void attempt_save(struct executor *x, uint32_t save_ms, int signal, uint32_t grace_ms,
                  enum end_reason reason);
/* Let it end by itself for so long, then stop it. */
void attempt_wait(struct executor *x, uint32_t wait_ms, uint32_t grace_ms);
void attempt_node_stops(struct executor *x, uint32_t grace_ms); /* TERM came from the node */
bool attempt_undecided(const struct attempt *a); /* runs, and nobody has stopped it so far */
void attempt_on_child(struct executor *x);       /* SIGCHLD */
void attempt_tick(struct executor *x, int64_t now_ms);
int64_t attempt_deadline(const struct attempt *a);
bool attempt_alive(const struct attempt *a);
void attempt_message(const struct executor *x, Tony__AttemptEnded *out); /* borrows from x */
void attempt_forget(struct attempt *a);
void attempt_tell(struct executor *x); /* the master: how it ended */
void attempt_sample(struct executor *x, uint64_t *out_rss,
                    uint64_t *out_cpu_ms); /* and act on too much memory */

/* tail.c */
void tail_keep(const struct executor *x, enum end_reason reason, struct buf *out);

/* renew.c */
struct rt_role;
void executor_renew(struct executor *x, const Tony__Renew *r);  /* another attempt will follow */
void executor_peers(struct executor *x, const Tony__Peers *p);  /* others have other addresses */
void executor_rename(struct executor *x, const Tony__Start *s); /* a spare becomes a task */
struct rt_role *
executor_roles(const Tony__ClusterSpec *spec,
               size_t *out_n); /* borrow from spec; the caller's; NULL = no memory */

/* params.c */
void params_keep(struct executor *x, struct buf *out); /* "Model parameters: ...", if it said so */

/* environment.c */
int task_environment(struct executor *x, const Tony__Start *s, uint32_t rank, struct strv *out,
                     struct err *e);

/* ranks.c: an attempt of several processes */
int ranks_init(struct attempt *a, uint32_t n); /* 0 or -ENOMEM; of one there is nothing to keep */
/* One of them was reaped: is all decided by that? */
bool ranks_exited(struct attempt *a, pid_t pid, int status, int64_t now_us);
/* The cores of one rank out of those that are the container's own; NULL = no particular ones. */
const cpu_set_t *ranks_cores(const struct executor *x, uint32_t rank, cpu_set_t *room);
/* Of what was started; name is "stdout" or "stderr". The caller's; NULL = no memory. */
char *ranks_log_path(const struct executor *x, const char *name, uint32_t rank);
int ranks_logs_open(const struct executor *x, uint32_t rank, int *out_fd, int *err_fd,
                    struct err *e);

/* serve.c: the framework's rendezvous server, in the executor of rank 0's task */
void serve_open(struct executor *x);  /* where it is this one's to serve */
void serve_renew(struct executor *x); /* the port is another one: with nothing of the old in it */
void serve_begin(struct executor *x, const Tony__Start *s);
int serve_fd(const struct executor *x); /* to be polled; -1 = there is none */
void serve_turn(struct executor *x);
void serve_tick(struct executor *x, int64_t now_ms);
void serve_tell(struct executor *x); /* the master: that a rank aborts, if one does */

/* spawn.c */
struct spawn {
    const char *path, *shell, *workdir;
    char *const *argv;
    char *const *env;
    bool own_group; /* a process group for the task */
    int out_fd, err_fd;
    const char *cgroup_procs; /* NULL = none */
    struct rlimit nofile;
    const cpu_set_t *cpus; /* NULL = all that we may use ourselves */
    /* results, written by the child */
    volatile int exec_errno, cgroup_errno;
};
pid_t spawn_task(struct spawn *s); /* -errno */

#endif
