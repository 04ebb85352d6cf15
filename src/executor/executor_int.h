/* SPDX-License-Identifier: Apache-2.0 */
/* The executor: the process that runs the attempts of one container. On one machine the keeper
 * forks it; on a cluster it is a program of its own (container.h). One process may run several
 * executors (crew.h). An executor connects to the master and does what the master says. It exits
 * when the master says so, or after tony.task.master-away-limit without a master. */
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
#include "executor/log_watch.h"
#include "executor/record.h"
#include "executor/streams.h"
#include "executor/task_metrics.h"
#include "executor/task_side.h"
#include "executor/workdir.h"
#include "proto/tony.pb-c.h"

/* The settings of an executor at its start. In a forked executor the strings are in its copy of the
 * keeper's memory. */
struct executor_config {
    const char *application_id, *container_id, *home, *job_dir, *spare_dir;
    const char *master_socket; /* at the time of the fork; see dial_local() */
    struct remote *remote;     /* the way to a master on another machine; NULL = master_socket */
    const char *gpus;          /* "0,2" or "" */
    bool machine_has_gpus;     /* then CUDA_VISIBLE_DEVICES hides them from a task without GPUs */
    uint32_t slot;
    uint64_t memory_bytes; /* 0 = not limited */
    struct cgroup cgroup;
    struct exit_record *record;
    pid_t keeper;         /* has forked this executor; 0 = a node manager has started it */
    bool in_crew;         /* other executors run in this process, too; `cgroup` exists: crew.h */
    struct rlimit nofile; /* for tasks; the limit of the executor itself is raised */
};

enum {
    UMASK_DEFAULT = 022,
    /* If a cluster sends TERM to the processes of a node, all have it after this time. */
    CLUSTER_TERM_MS = 1000,
};

enum attempt_state {
    ATTEMPT_NONE = 0,
    ATTEMPT_RUNNING,
    ATTEMPT_STOPPING, /* TERM was sent; KILL follows at kill_at_ms */
    ATTEMPT_KILLING,  /* KILL was sent; some processes have not exited yet */
    ATTEMPT_ENDED,    /* the result is kept until the master acknowledges it */
};

/* A process of an attempt that has several: ranks.c. */
struct rank {
    pid_t pid; /* 0 = never ran */
    bool exited;
    bool told; /* as in struct attempt */
};

struct attempt {
    enum attempt_state state;
    uint32_t generation, number;
    pid_t pid;          /* of the first process, rank 0; 0 = never started */
    bool exited;        /* the process, or with several ranks the one that decides, was reaped */
    uint32_t rank;      /* the rank whose end decided */
    struct rank *ranks; /* the started processes; NULL if the attempt has only one */
    uint32_t n_ranks, n_alive;
    bool in_cgroup;
    int status, exec_errno;
    int exit_as;            /* report the end as an exit with this code; 0 = report what happened */
    enum end_reason forced; /* why the executor stopped it; END_NONE = it ended by itself */
    char detail[RECORD_DETAIL_MAX];
    int64_t started_us, ended_us;
    int64_t kill_at_ms, rescan_at_ms, deadline_ms; /* INT64_MAX = not set */
    /* A requested end: until then the task may save a checkpoint or end by itself; then TERM
     * follows. 0 = the end was not requested in this way. */
    int64_t save_until_ms;
    uint32_t save_grace_ms;
    /* ATTEMPT_STOPPING: processes that have left the process group are killed then; 0 = never. */
    int64_t strays_at_ms;
    unsigned kill_rounds;
    /* Only with a container image. The engine is podman or docker; it starts the command. */
    bool told;           /* the processes of the command have got TERM */
    bool engine_gave_up; /* the engine got TERM before it had started the command */
    /* The engine, or a process that it left behind, was killed; or the engine failed itself. So it
     * may not have removed its container. */
    bool engine_failed;
    int64_t look_at_ms; /* ATTEMPT_STOPPING: the next engine_stop_again() */
    uint64_t max_rss, cpu_ms, oom_before;
    struct logs logs;
    struct buf tail;
};

struct service;
struct crew;

struct executor {
    const struct executor_config *cfg;
    struct crew *crew; /* the executors of this process */
    bool over;         /* this executor has ended; others of the crew may run */
    struct link link;
    int port_fd, tb_fd;
    uint16_t port, tb_port;

    /* the master */
    uint32_t epoch;       /* the highest epoch whose Welcome this executor has accepted */
    bool greeted;         /* the master has sent Welcome on this connection */
    bool end_in_hello;    /* the ExecutorHello of this connection had the end of the attempt */
    int64_t own_until_ms; /* the master wants its own heartbeats until then: quiet.h */
    unsigned tries;       /* attempts to connect since the connection broke */
    char *master_socket;  /* where the socket of the master was found later; NULL = as configured */
    int64_t dial_at_ms, away_since_ms, beat_at_ms;
    /* On a cluster: sent_ms is the time of the last send. confirmed_ms is the latest sent_ms whose
     * bytes the master's machine has all confirmed; the lease begins then. */
    int64_t sent_ms, confirmed_ms;
    int64_t greet_by_ms; /* on a cluster: deadline for Welcome on this connection */
    Tony__Welcome *role; /* a copy of the first Welcome; NULL = none has come yet */

    struct cgroup_watch watch;
    char *spec_path;     /* the file with the cluster spec that the task knows; NULL = none */
    struct err spec_err; /* why this executor could not write a file of its own */
    char *workdir;
    char *engine;      /* program that runs the attempt in a container image; NULL = none */
    bool engine_apart; /* the containers have control groups of their own: engine_usage.c */
    struct engine_container *containers; /* one for each rank; NULL = not measured yet */
    uint32_t n_containers;
    struct err workdir_err; /* why there is no workdir */
    bool leaving;           /* the executor exits as soon as no attempt runs */
    bool node_reports_end;  /* the node has stopped the container and reports the reason itself */
    /* The task was ended by TERM. If the cluster sends TERM to the whole job, this process gets it
     * before this time, and does not report the end. Otherwise it reports the end at this time. 0 =
     * no report waits. */
    int64_t report_at_ms;
    /* The cluster has sent TERM to this process. The process does not exit before this time, so
     * that the keeper can stop it: the keeper would report an earlier exit as a failed task. 0 =
     * not set. */
    int64_t linger_until_ms;
    struct attempt a;
    struct task_side task;
    struct task_metrics metrics;
    struct usage_base reaped; /* only in a crew: what its reaped children have used */
    uint64_t reaped_cpu_us;
    struct streams streams;
    struct log_watches watches;
    struct log_times {
        int64_t due_ms, interval_ms; /* due_ms 0 = no attempt runs */
        int64_t sum;                 /* of the lengths that were written last */
        unsigned n_lines;
    } log_times;

    struct {                /* the rendezvous server for the ranks of all tasks: serve.c */
        struct service *s;  /* NULL = this executor has none */
        bool begun;         /* the server knows the ranks and answers them */
        struct err why_not; /* why this executor has none although it should */
        bool aborted;       /* abort_rank has asked to abort the job with abort_code */
        uint32_t abort_rank;
        int abort_code;
    } server;
};

/* The file creation mask of the task. */
static inline mode_t executor_umask(const struct executor *x)
{
    return x->role && x->role->has_umask ? (mode_t)x->role->umask : UMASK_DEFAULT;
}

/* Has a keeper forked this executor? Then the executor makes working directory and logs itself, and
 * tells the keeper its end. Otherwise a node manager has made them, and reports the end. */
static inline bool executor_has_keeper(const struct executor *x)
{
    return x->cfg->keeper != 0 || !x->cfg->remote;
}

/* executor.c: the life of one executor */
struct signalfd_siginfo;
void executor_begin(struct crew *c, struct executor *x, const struct executor_config *cfg);
/* Do what is due now. true: the executor has ended. */
bool executor_turn(struct executor *x);
int64_t executor_deadline(const struct executor *x); /* of executor_turn() */
void executor_begin_beats(struct executor *x);       /* a master has sent Welcome */
/* TERM, INT or HUP has come to this process. */
void executor_term(struct executor *x, const struct signalfd_siginfo *si);
/* In a crew: the keeper has set stop_asked in the record. */
void executor_stop_asked(struct executor *x);
uint32_t executor_grace_ms(const struct executor *x); /* the grace period of the job */
/* This container cannot be used: record the reason, and let the executor exit. */
void executor_give_up(struct executor *x, const struct err *e);
void executor_warn(struct executor *x, const char *event, const struct err *e);

/* executor_loop.c */
/* Run the executors of this process until all have ended: crew.h. n: at most CREW_MAX. */
_Noreturn void executors_run(const struct executor_config *cfgs, size_t n);

/* executor_frames.c */
void executor_frame(struct executor *x, const Tony__Frame *f); /* the master has sent f */
void executor_show_title(const struct executor *x);            /* ps shows its task and job */

/* executor_connection.c */
struct pollfd;
/* Send a frame. A failure closes the connection; the executor reconnects. */
int executor_send(struct executor *x, Tony__Frame *f);
/* The same, but the frame is sent only together with the next one. */
int executor_queue(struct executor *x, Tony__Frame *f);
void connection_lost(struct executor *x); /* close it; the executor reconnects */
/* A master has connected to this executor: use that connection. */
void connection_taken(struct executor *x, const struct link *line);
void connection_ready(struct executor *x, const struct pollfd *p); /* its descriptor is ready */
/* Connect, and stop the task when the lease is over, if it is time for that. */
void connection_tick(struct executor *x, int64_t now);
int64_t connection_deadline(const struct executor *x); /* of connection_tick() */
int connection_lease_ms(const struct executor *x);     /* the length of the lease */
void connection_renew_lease(struct executor *x);       /* if the master has confirmed bytes */

/* attempt.c */
void attempt_start(struct executor *x, const Tony__Start *s);
void attempt_stop(struct executor *x, uint32_t grace_ms, enum end_reason reason,
                  const char *detail);
/* Kill the attempt, and report its end as an exit with this code. */
void attempt_exit(struct executor *x, int exit_code);
/* Ask the task to save a checkpoint, wait save_ms for its end, then stop it. If the task has no way
 * to get that request, stop it at once. */
void attempt_save(struct executor *x, uint32_t save_ms, int signal, uint32_t grace_ms,
                  enum end_reason reason);
/* Wait wait_ms for the task to end by itself, then stop it. */
void attempt_wait(struct executor *x, uint32_t wait_ms, uint32_t grace_ms);
void attempt_node_stops(struct executor *x, uint32_t grace_ms); /* the node has sent TERM */
bool attempt_undecided(const struct attempt *a); /* the attempt runs, and was not told to stop */
/* This child was reaped. */
void attempt_reaped(struct executor *x, pid_t pid, int status, const struct rusage *used,
                    int64_t now_us);
/* Children were reaped; left: processes of the attempt are alive. */
void attempt_look(struct executor *x, bool left);
void attempt_tick(struct executor *x, int64_t now_ms);
int64_t attempt_deadline(const struct attempt *a);
bool attempt_alive(const struct attempt *a);
void attempt_message(const struct executor *x, Tony__AttemptEnded *out); /* borrows from x */
void attempt_forget(struct attempt *a);
void attempt_report_end(struct executor *x); /* report the end to the master */
/* If the attempt uses more memory than it may, kill it. */
void attempt_check_memory(struct executor *x);

/* log_times.c */
void log_times_begin(struct executor *x);
void log_times_tick(struct executor *x, int64_t now_ms); /* with each heartbeat */
void log_times_end(struct executor *x);                  /* before the logs are closed */

/* tail.c */
void tail_keep(const struct executor *x, enum end_reason reason, struct buf *out);

/* renew.c */
struct rt_role;
void executor_renew(struct executor *x, const Tony__Renew *r);  /* prepare for another attempt */
void executor_rename(struct executor *x, const Tony__Start *s); /* a spare becomes a task */

/* spec.c: the cluster spec */
void executor_peers(struct executor *x, const Tony__Peers *p); /* addresses have changed */
/* The roles of a Start with their addresses. The addresses point into the Start or into text. */
struct spec {
    struct rt_role *roles;
    size_t n_roles;
    bool firsts;     /* only the first address of each role is known */
    struct span text; /* the cluster spec as JSON, if it was read from the file; borrowed */
};
/* all: if the Start has only the first address of each role, read all of them from the file. */
int spec_open(struct executor *x, const Tony__Start *s, bool all, struct spec *out, struct err *e);
void spec_done(struct spec *s);
/* The text that spec_open() has read stays for the other executors of the crew. Free it, unless one
 * of them will need it. No struct spec may be in use. */
void spec_forget(const struct crew *c);
/* Set x->spec_path to the file of the cluster spec. If the Start has all addresses, write the file
 * first. */
int spec_file_ready(struct executor *x, const Tony__Start *s, const struct spec *spec,
                    struct err *e);

/* params.c */
/* If the output of the preprocess task has a line "Model parameters: ...", copy it to out. */
void params_keep(struct executor *x, struct buf *out);

/* environment.c */
int task_environment(struct executor *x, const Tony__Start *s, uint32_t rank, struct strv *out,
                     struct err *e);

/* ranks.c: an attempt of several processes */
int ranks_init(struct attempt *a, uint32_t n); /* 0 or -ENOMEM; n = 1 allocates nothing */
/* One of the processes was reaped. Is the end of the attempt decided now? */
bool ranks_exited(struct attempt *a, pid_t pid, int status, int64_t now_us);
/* The cores to which a rank is bound; NULL = it is not bound. */
const cpu_set_t *ranks_cores(const struct executor *x, uint32_t rank, cpu_set_t *room);
/* The path of a log of a started rank; name is "stdout" or "stderr". The caller frees it; NULL = no
 * memory. */
char *ranks_log_path(const struct executor *x, const char *name, uint32_t rank);
int ranks_logs_open(const struct executor *x, uint32_t rank, int *out_fd, int *err_fd,
                    struct err *e);

/* serve.c: the framework's rendezvous server, in the executor of rank 0's task */
void serve_open(struct executor *x);  /* if Welcome says that this executor hosts the server */
void serve_renew(struct executor *x); /* replace it by an empty one, on the new port */
void serve_begin(struct executor *x, const Tony__Start *s);
int serve_fd(const struct executor *x); /* the descriptor to poll; -1 = none */
void serve_turn(struct executor *x);
void serve_tick(struct executor *x, int64_t now_ms);

/* spawn.c */
struct spawn {
    const char *path, *shell, *workdir;
    char *const *argv;
    char *const *env;
    bool own_group; /* a process group for the task */
    int out_fd, err_fd;
    mode_t umask;
    const char *cgroup_procs; /* NULL = none */
    bool needs_cgroup;        /* fail if the process cannot enter the group */
    int cgroup_fd;            /* start the process in this group; -1 = it enters by cgroup_procs */
    struct rlimit nofile;
    const cpu_set_t *cpus; /* NULL = those of the executor */
    /* results, written by the child */
    volatile bool began;
    volatile int exec_errno, cgroup_errno;
};
pid_t spawn_task(struct spawn *s); /* -errno */

#endif
