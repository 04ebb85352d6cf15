/*
 * The keeper: parent of all processes of one job. It grants containers within what the pool
 * admitted, forks executors from itself, writes down every exit before it tells anybody, starts the
 * master again when it dies, and takes everything away at the end.
 *
 * keeper.c            the loop
 * keeper_end.c        the job goes to the history
 * keeper_master.c     the master's process and what it asks for
 * keeper_pool.c       the pool's connection, and starting the pool again
 * keeper_containers.c granting, launching, stopping, ending
 * keeper_exits.c      the file `exits`
 */
#ifndef TONY_EXECUTOR_KEEPER_INT_H
#define TONY_EXECUTOR_KEEPER_INT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/reason.h"
#include "executor/cgroup.h"
#include "executor/executor.h"
#include "executor/link.h"
#include "executor/record.h"
#include "storage/paths.h"

enum container_state {
    CONTAINER_GRANTED = 1,
    CONTAINER_QUEUED,   /* to be forked */
    CONTAINER_RUNNING,  /* its executor is our child */
    CONTAINER_DRAINING, /* the executor is gone; what it left is being killed */
    CONTAINER_ENDED,
    CONTAINER_RELEASED, /* given back unused */
};

enum { CONTAINER_ID_MAX = 80, GPUS_MAX = 64 };

struct container {
    char id[CONTAINER_ID_MAX];
    enum container_state state;
    uint32_t slot, vcores, n_gpus;
    uint64_t memory_mib;
    uint32_t *gpus;
    pid_t pid;
    uint32_t next_by_pid;  /* chain of the pid table: number + 1 */
    bool stopped;          /* we were asked to end it */
    int64_t kill_at_ms;    /* after a stop: the executor itself is killed then */
    int exit_code, signal; /* of the executor, later of the task where that is known */
    enum end_reason reason;
    int64_t ended_us;
    char *detail;
    struct exit_record *record;
};

struct ask {
    uint32_t slot, vcores, gpus;
    uint64_t memory_mib;
};

enum peer_kind { PEER_NEW = 0, PEER_MASTER, PEER_POOL };

struct peer {
    struct link link;
    enum peer_kind kind;
};

enum keeper_state {
    KEEPER_RUNNING = 1,
    KEEPER_FINISHING,   /* the master said how the job ended */
    KEEPER_TAKING_DOWN, /* KillJob, SIGTERM, or a master that cannot live */
};

struct keeper {
    const char *app_id;
    int64_t cluster_ms;
    uint32_t number;
    struct paths paths;
    char *job_dir, *spare_dir, *ended_dir, *master_socket, *socket, *lock_path;
    int lock_fd, listen_fd, signal_fd, exits_fd, ready_fd;
    struct buf unwritten; /* lines for exits_fd that the disk did not take so far */
    bool exits_failed;
    struct cgroup_job cgroup;
    struct rlimit nofile; /* as it was given to us */
    bool machine_has_gpus;

    /* what the pool admitted */
    uint64_t memory_mib; /* 0 = no limit */
    uint32_t gpus[GPUS_MAX], n_gpus;
    bool gpu_used[GPUS_MAX];
    int gpu_fd[GPUS_MAX];
    const char *gpu_locks;

    enum keeper_state state;
    char final_state[16]; /* SUCCEEDED, FAILED, KILLED; MASTER_FAILED when no master said it */
    int64_t kill_at_ms;   /* when finishing: what still lives then is killed */

    /* the master */
    pid_t master_pid; /* 0 = none */
    uint32_t epoch;
    int64_t master_at_ms; /* when to start it; INT64_MAX = not wanted */
    int64_t master_began_ms, deaths[5];
    unsigned n_deaths; /* by its own doing */
    unsigned n_short;  /* lives, in a row */

    /* the pool */
    bool had_pool;      /* one has started us, or dialled us */
    int64_t pool_at_ms; /* when to start it again */
    unsigned pool_tries;

    struct {
        struct peer *v;
        size_t n, cap;
    } peers;

    /* containers by number - 1; those of earlier keepers are in `old` */
    struct {
        struct container **v;
        size_t n, cap;
    } containers, old;
    uint32_t life; /* how many keepers this job had, with us */
    struct {
        struct ask *v;
        size_t n, cap;
    } asks; /* not granted yet */
    struct {
        uint32_t *v; /* numbers - 1 */
        size_t n, cap, at;
    } to_launch, completed, draining;
    uint32_t *by_pid; /* heads, number; 0 = empty */
    uint32_t n_alive; /* queued, running or draining */
    uint64_t used_mib, used_vcores;
    int64_t next_kill_ms; /* the earliest kill_at_ms of all containers */
    bool look_for_orphans;
    struct exit_record *records; /* the block being given out */
    uint32_t n_records_left;
};

enum { PID_TABLE = 4096 };

/* keeper.c */
int keeper_main(int argc, char **argv);
void keeper_take_down(struct keeper *k, const char *why);
struct peer *keeper_peer(struct keeper *k, enum peer_kind kind); /* NULL = none */
void keeper_hear(struct keeper *k, struct peer *p);              /* all that came */
void keeper_send(struct keeper *k, struct peer *p, const Tony__Frame *f);

/* keeper_end.c */
int keeper_end(struct keeper *k);     /* an exit code */
void keeper_unlock(struct keeper *k); /* for good: sockets and lock have no names any more */
/* What a job that is over left to be removed; nothing there is fine. spare_dir: may be NULL */
void keeper_clear_ended(const char *ended_dir, const char *spare_dir);

/* keeper_master.c */
/* When we begin: the one that was started beside us, else one of our own. */
void master_first(struct keeper *k);
void master_start(struct keeper *k);
void master_died(struct keeper *k, int status);
void master_frame(struct keeper *k, struct peer *p, const Tony__Frame *f);
void master_tell_completed(struct keeper *k); /* all that is in k->completed, in one frame */
void master_tell_granted(struct keeper *k, const uint32_t *numbers, size_t n,
                         const uint32_t *refused, size_t n_refused, const char *why);

/* keeper_pool.c */
void pool_frame(struct keeper *k, struct peer *p, const Tony__Frame *f);
void pool_tell(struct keeper *k, bool finished);
void pool_gone(struct keeper *k);
/* One has started us and is to dial us now; not heard: it is dead already. */
void pool_expect(struct keeper *k, bool heard);
void pool_start_again(struct keeper *k, int64_t now_ms);

/* keeper_containers.c */
void containers_ask(struct keeper *k, const struct ask *asks, size_t n);
void containers_launch_some(struct keeper *k);
struct container *container_by_id(struct keeper *k, const char *id);
void container_queue(struct keeper *k, struct container *c);
void container_release(struct keeper *k, struct container *c);
void container_stop(struct keeper *k, struct container *c, uint32_t grace_ms);
void container_exited(struct keeper *k, struct container *c, int status);
struct container *container_by_pid(struct keeper *k, pid_t pid);
void containers_drain(
    struct keeper *k); /* kill what dead executors left; settle those that are clean */
void containers_tick(struct keeper *k, int64_t now_ms);
void containers_stop_all(struct keeper *k, uint32_t grace_ms);
void containers_free(struct keeper *k);

/* keeper_exits.c */
int exits_open(struct keeper *k,
               struct err *e); /* reads what earlier keepers wrote, begins a new life */
void exits_add_container(struct keeper *k, const struct container *c);
void exits_retry(struct keeper *k);
void exits_add_master(struct keeper *k);
void exits_add_master_exit(struct keeper *k, int status);

#endif
