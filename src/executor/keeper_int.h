/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: the parent of all processes of one job on one machine. It grants containers within
 * the limits that the pool has admitted, and forks the executors. It writes each exit to the file
 * `exits` before it reports it. It restarts the master when the master dies. When the job is over,
 * it removes the processes and files that the job has left.
 *
 * keeper.c            the loop
 * keeper_start.c      the options, the locks, the sockets and the state of a new keeper
 * keeper_end.c        moves the job to the history
 * keeper_master.c     the master's process and its requests
 * keeper_pool.c       the pool's connection, and restarting the pool
 * keeper_containers.c granting, launching, stopping, ending
 * keeper_table.c      the memory of containers, and the ways to find them
 * keeper_resize.c     changes the limits when the job is resized
 * keeper_exits.c      the file `exits`
 * keeper_sockets.c    makes the sockets again after the system has removed them
 * keeper_ends.c       the list of ended containers, and what is removed when they are forgotten
 * keeper_beats.c      the heartbeats of executors whose task only runs
 * keeper_node.c       the keeper of a node of a cluster: its connection to the master
 * keeper_run.c        the runs of a job that a cluster starts again
 *
 * A container is in one of two lists. While it is alive or granted it is in `live`. When it has
 * ended, the keeper writes it to `exits` and moves it to `ends`. It leaves `ends` when the master
 * says that the journal has its end (AckCompleted). So memory, `exits` and the list for a new
 * master do not grow with the age of the job.
 */
#ifndef TONY_EXECUTOR_KEEPER_INT_H
#define TONY_EXECUTOR_KEEPER_INT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/reason.h"
#include "cgroup/place.h"
#include "executor/cgroup.h"
#include "executor/container.h"
#include "executor/engine_left.h"
#include "executor/executor.h"
#include "executor/link.h"
#include "executor/record.h"
#include "storage/jobkey.h"
#include "storage/paths.h"

enum container_state {
    CONTAINER_GRANTED = 1,
    CONTAINER_QUEUED,   /* the keeper has to fork its executor */
    CONTAINER_RUNNING,  /* its executor is a child of the keeper */
    CONTAINER_DRAINING, /* the executor has died; the keeper kills its orphans */
    CONTAINER_ENDED,
};

enum { CONTAINER_ID_MAX = 80, GPUS_MAX = 64 };

/* The control groups of the first containers (groups_kept()) stay when these are forgotten, until no
 * container has ended for GROUPS_IDLE_MS: so a job whose tasks all end at the same time ends
 * without waiting for their removal, and the next job can use them (cgroup/spare.h). The kernel has
 * at most 65,535 memory groups. */
enum { GROUPS_KEPT = 1024, GROUPS_IDLE_MS = 2000, GROUPS_BATCH = 32 };

enum container_key { BY_PID, BY_NUMBER, BY_COUNT }; /* the indexes in which containers are found */

struct container {
    char id[CONTAINER_ID_MAX];
    enum container_state state;
    uint32_t slot, vcores, n_gpus;
    uint64_t memory_mib;
    uint32_t *gpus;
    pid_t pid;
    uint32_t number;                   /* the last part of its id */
    struct container *before, *after;  /* in the list `live`, in the order of their grants */
    struct container *chain[BY_COUNT]; /* the next one with the same hash in each index */
    bool stopped;                      /* the master has asked to stop it */
    bool plain;                        /* the master says: its executor may be one of a crew */
    bool in_crew;                      /* its executor shares a process with others: crew.h */
    uint32_t n_others;                 /* how many containers that process had besides */
    int64_t kill_at_ms;                /* after a stop: see kill_late() */
    bool late;                         /* its executor has not reacted to a stop in time */
    int exit_code, signal; /* of the task if its executor has recorded them, else of the executor */
    enum end_reason reason;
    int64_t ended_us;
    char *detail;
    struct exit_record *record;
    struct record_block *block; /* that of the record */
    uint32_t line_len;          /* bytes of its line in `exits` */
};

/* A hash table of containers. */
struct container_index {
    struct container **heads; /* the first container of each chain */
    uint32_t n, n_heads;      /* n_heads is a power of two */
};

/* The knowledge of this keeper about a slot. There is an entry for each slot that was ever
 * requested. */
struct slot_use {
    uint32_t slot;               /* must be the first member: scheduler/slots.h */
    bool asked;                  /* it is in `asks` */
    bool ended;                  /* a container of it has ended */
    struct container *container; /* the one in `live`; NULL = none */
};

struct ask {
    uint32_t slot, vcores, gpus;
    uint64_t memory_mib;
};

/* PEER_REGISTERING: a master that has not got all parts of Registered yet. */
enum peer_kind { PEER_NEW = 0, PEER_REGISTERING, PEER_MASTER, PEER_POOL };

struct peer {
    struct link link;
    enum peer_kind kind;
    uint64_t arrival;     /* connections are counted from 1 */
    uint32_t pool_number; /* PEER_POOL: counts the connections of pools, from 1 */
};

/* All containers that the job wants to hold since it was resized. */
struct wanted {
    uint32_t n; /* of containers; 0 = the job was not resized */
    uint64_t memory_mib;
    uint32_t vcores, gpus;
    uint32_t *slots;   /* sorted */
    uint32_t number;   /* counts the WantContainers of the master */
    int64_t since_ms;  /* wall clock: when the job began to want this many containers */
    char *refused;     /* why the machine can never give these containers; NULL = it can */
    bool refusal_sent; /* the master was told of it */
    /* The slot without an ask that the refusal has named; UINT32_MAX = it has named none. */
    uint32_t named_slot;
};

enum keeper_kind {
    KEEPER_OF_POOL = 0, /* of a job on one machine */
    KEEPER_HEAD,        /* of a job on a cluster: it has the master, and no containers */
    KEEPER_OF_NODE,     /* of a job on a cluster: it has the containers of a node, and no master */
};

/* KEEPER_OF_NODE: what keeper_node.c knows. */
struct keeper_node {
    const char *name, *master_host;
    uint32_t index, vcores;
    char *address_file; /* master.json of the job */
    struct job_key key;
    struct remote remote; /* the way to the master */
    bool has_master;      /* a master has registered on the present connection */
    unsigned tries;       /* attempts to connect since then */
    int64_t dial_at_ms, beat_at_ms, away_since_ms;
    int64_t started_ms; /* wall clock */
};

enum keeper_state {
    KEEPER_RUNNING = 1,
    KEEPER_FINISHING,   /* the master has sent FinishJob */
    KEEPER_TAKING_DOWN, /* KillJob, SIGTERM, or the master dies again and again */
};

struct keeper {
    enum keeper_kind kind;
    uint32_t run; /* on a cluster: how often the job was started again */
    /* KEEPER_HEAD, keeper_run.c: */
    int64_t run_look_ms;
    int64_t told_until_ms; /* after SIGTERM: no master is restarted before this time */
    bool leaves;           /* this run ends, the job does not */
    bool replaced;         /* the next run has begun */
    bool noticed;          /* a notice came while no master was connected */
    struct keeper_node node;
    const char *app_id;
    int64_t cluster_ms;
    uint32_t number;
    struct paths paths;
    char *job_dir, *spare_dir, *ended_dir, *master_socket, *socket, *lock_path;
    int lock_fd, listen_fd, signal_fd, exits_fd, ready_fd;
    struct buf unwritten; /* lines for exits_fd that could not be written yet */
    bool exits_failed;
    uint64_t exits_size;     /* bytes of the file `exits` */
    uint64_t exits_tried_at; /* exits_size when it could not be replaced; 0 = no such failure */
    struct {
        bool paths, place;
    } early; /* what a standby has found before its job came */
    struct place place;
    struct cgroup_job cgroup;
    struct rlimit nofile; /* the limit before the keeper raised its own */
    bool machine_has_gpus;
    bool can_crew; /* this machine has what crews need */

    /* what the pool admitted */
    uint64_t memory_mib; /* 0 = no limit. Raised and lowered by keeper_resize.c only */
    uint32_t gpus[GPUS_MAX], n_gpus;
    bool gpu_used[GPUS_MAX];
    int gpu_fd[GPUS_MAX];
    const char *gpu_locks;
    struct wanted want;
    uint32_t demand; /* number of the last WantContainers of this master; 0 = none has come */
    uint32_t min_containers, max_containers; /* the master's last SizeBounds; 0 = none has come */
    bool cost_known;                         /* in that SizeBounds */
    uint64_t cost_ms;
    int64_t ends_early_ms, ends_late_ms; /* from its last Outlook; 0 = unknown */
    uint32_t n_pools, admit_heard;       /* see Admit in tony.proto */
    struct {
        bool set, grow, saved;
        uint32_t n_containers;
        int64_t until_ms;
        char why[240];
    } wish; /* the pool's SizeWish; set: the master has not resized the job since */

    struct {
        bool tried_early, done_early; /* keeper_finish_early() */
        bool reported;                /* the last report to the pool is over */
        bool told_pool, lost_pool;    /* a pool was connected before it; none was after it */
        bool heard;                   /* the pool has answered it with EndHeard */
    } end;

    enum keeper_state state;
    char final_state[16]; /* SUCCEEDED, FAILED, KILLED; MASTER_FAILED = no master gave a verdict */
    int64_t kill_at_ms;   /* not KEEPER_RUNNING: remaining processes are killed then */

    /* the master */
    pid_t master_pid; /* 0 = none */
    uint32_t epoch;
    int64_t master_at_ms; /* when to start it; INT64_MAX = do not */
    int64_t master_began_ms, deaths[5];
    unsigned n_deaths; /* entries of deaths: exits that were not SIGKILL */
    unsigned n_short;  /* consecutive masters that died soon after their start */

    /* the pool */
    bool sockets_renewed; /* tell each master that registers to check that its socket exists */
    bool had_pool;        /* a pool has started this keeper, or has connected to it */
    int64_t pool_at_ms;   /* when to restart it; INT64_MAX = do not */
    unsigned pool_tries;

    struct {
        struct peer *v;
        size_t n, cap;
    } peers;
    uint64_t n_arrivals; /* of peers */

    uint32_t life; /* number of this keeper among the keepers of the job, from 1 */
    struct {
        struct container *first, *last;
        uint32_t n;
    } live;             /* containers that were granted and have not ended */
    uint32_t n_granted; /* number of the last container that this keeper has granted */
    struct {
        /* Ended containers, also of earlier keepers. Those before `at` are forgotten. */
        struct container **v;
        size_t n, cap, at;
        size_t n_reported;   /* ends before this index were reported to the present master */
        uint64_t n_acked;    /* how many ends that master has acknowledged */
        uint64_t line_bytes; /* sum of line_len of those that are not forgotten */
    } ends;
    struct {
        uint32_t v[SPARE_GROUPS_MAX]; /* numbers of containers */
        uint32_t n, n_removed;   /* the groups before n_removed are removed */
        int64_t at_ms;           /* when to remove the others; INT64_MAX = not set */
        uint64_t limit;          /* of the last granted container, in bytes */
        bool mixed;              /* another container had another limit */
    } groups;                    /* of forgotten containers: their control groups may still exist */
    struct {
        struct slot_use *v;
        size_t n, cap;
    } slots; /* in the order of their numbers */
    struct {
        struct ask *v;
        size_t n, cap;
    } asks; /* not granted yet; slot_use.asked is set for each */
    struct {
        uint32_t *v; /* numbers of containers */
        size_t n, cap, at;
    } to_launch;
    size_t crew_size; /* of the containers in to_launch; 1 = each gets a process */
    struct {
        struct container **v;
        size_t n, cap;
    } draining;
    struct container_index index[BY_COUNT];
    uint32_t n_alive; /* containers that are queued, running or draining */
    uint32_t n_most;  /* the largest n_alive */
    uint64_t used_mib, used_vcores;
    int64_t next_kill_ms; /* the earliest kill_at_ms of all containers */
    int64_t reap_at_ms;   /* when to call reap_all(); INT64_MAX = no child has ended */
    int64_t reaped_ms;    /* when it ran last */
    bool crew_at_reap;    /* then also call crew_look() for all crews */
    bool look_for_orphans;
    struct left left; /* containers of podman or docker */
    struct {
        uint32_t *v; /* slots: memory that keeper_beats.c uses again */
        size_t n, cap;
        int64_t at_ms; /* when to send the next Alive; INT64_MAX = no executor runs */
    } beats;
    struct {
        struct record_block **v; /* record_take() takes from the last one */
        size_t n, cap;
    } records;
    struct container *fresh; /* the block from which container_new() takes */
    uint32_t n_fresh_left;
    struct container *unused; /* containers to use again, chained by `after` */
};

/* keeper.c */
int keeper_main(int argc, char **argv);
void keeper_abort_job(struct keeper *k, const char *why);
struct peer *keeper_peer(struct keeper *k, enum peer_kind kind); /* NULL = none */
void keeper_read_frames(struct keeper *k, struct peer *p);       /* read and handle all frames */
void keeper_send(struct keeper *k, struct peer *p, const Tony__Frame *f);

/* keeper_end.c */
int keeper_end(struct keeper *k); /* returns an exit code */
/* If all containers have ended and the master has sent FinishJob: move the job to the history,
 * before the master has exited. */
void keeper_finish_early(struct keeper *k);
void keeper_unlock(struct keeper *k); /* remove the sockets and the lock, then release the lock */
/* Remove the working directories and control groups of a job that is over. ended_dir need not
 * exist. spare_dir: may be NULL. */
void keeper_clear_ended(const char *ended_dir, const char *spare_dir);
/* Make the directory by which the pool sees that something of this job has to be removed. */
void keeper_mark_ended(const struct keeper *k);

/* keeper_master.c */
/* At the start: take over the master that --master-pid names, or start one. */
void master_take_over_or_start(struct keeper *k);
void master_start(struct keeper *k);
void master_notice(struct keeper *k); /* SIGUSR1: the cluster will end this run of the job */
void master_died(struct keeper *k, int status);
void master_frame(struct keeper *k, struct peer *p, const Tony__Frame *f);
/* Report the ends of which the master has not heard, or send further parts of Registered. */
void master_tell_ends(struct keeper *k);
void master_tell_granted(struct keeper *k, struct container *const *granted, size_t n,
                         const uint32_t *refused, size_t n_refused, const char *why);
/* The pool has refused the job's demand; the master has not asked for this slot's container. */
void master_tell_unasked(struct keeper *k, uint32_t slot, const char *why);
void master_tell_cancelled(struct keeper *k, uint32_t number);

/* keeper_node.c: these do nothing for keepers of another kind */
int node_open(struct keeper *k, struct err *e);
void node_tick(struct keeper *k, int64_t now);
int64_t node_deadline(const struct keeper *k);
void node_connected(struct keeper *k,
                    struct peer *p); /* a TCP connection was made, or has failed */
void node_registered(struct keeper *k, const Tony__RegisterMaster *m);
/* The cluster has sent this signal. */
void node_signalled(struct keeper *k, int signal);
/* The connection of an executor to the master. The next call overwrites it. NULL: the id is too
 * long. */
struct remote *node_remote(const struct keeper *k, const struct container *c, const char *id);
uint32_t node_life(const struct keeper *k); /* the part of container ids that names this keeper */
void node_done(struct keeper *k);

/* keeper_run.c: these do nothing for keepers of another kind than KEEPER_HEAD */
int run_open(struct keeper *k, struct err *e);
void run_tick(struct keeper *k, int64_t now_ms);
int64_t run_deadline(const struct keeper *k);
void run_told(struct keeper *k); /* SIGTERM */
int64_t run_pause_ms(const struct keeper *k);
void run_leave(struct keeper *k); /* end without a verdict */
int run_end(struct keeper *k);    /* returns an exit code */

/* keeper_pool.c */
void pool_frame(struct keeper *k, struct peer *p, const Tony__Frame *f);
void pool_tell(struct keeper *k, bool finished);
void pool_gone(struct keeper *k);
/* A pool has started this keeper and should connect soon. heard = false: that pool has died. */
void pool_await_connection(struct keeper *k, bool heard);
void pool_start_again(struct keeper *k, int64_t now_ms);
/* After the last report: wait until the pool has started the jobs that waited for the end of this
 * one. If the pool dies before, start another one for them. false: the pool has not answered. */
bool pool_hears_end(struct keeper *k);

/* keeper_sockets.c */
void sockets_renew(struct keeper *k); /* make this socket again if it is missing, tell the master */
void sockets_check(struct keeper *k); /* the same, if this keeper's socket is missing */
void sockets_tell_master(struct keeper *k, struct peer *p); /* p may be NULL */

/* keeper_table.c */
int table_open(struct keeper *k); /* -ENOMEM */
/* Zeroed; NULL: no memory. Forked processes do not have it in their memory. */
struct container *container_new(struct keeper *k);
void container_free(struct keeper *k, struct container *c);
/* Give the container the memory that it shares with its executor. Only the next executor that the
 * keeper forks has it in its memory. -ENOMEM. */
int record_take(struct keeper *k, struct container *c);
/* How many records can be taken for executors of the same process; 0 = no memory. */
size_t record_room(struct keeper *k);
void record_give_back(struct keeper *k, struct container *c);
/* Add to `live`: the container has its number and its slot. slots_get() was called for the slot. */
void live_add(struct keeper *k, struct container *c);
void live_remove(struct keeper *k, struct container *c);
/* c->pid was set, or is about to be cleared. */
void pid_add(struct keeper *k, struct container *c);
void pid_remove(struct keeper *k, struct container *c);
/* Among those of `live`; NULL = none. */
struct container *container_by_pid(const struct keeper *k, pid_t pid);
/* The next one with the same pid: of the same crew. */
struct container *container_next_by_pid(const struct container *c);
struct container *container_by_number(const struct keeper *k, uint32_t number);
struct container *container_by_id(const struct keeper *k, const char *id);
struct slot_use *slots_get(struct keeper *k, uint32_t slot);        /* makes it; NULL = no memory */
struct slot_use *slots_find(const struct keeper *k, uint32_t slot); /* NULL = never requested */
void table_free(struct keeper *k);

/* keeper_containers.c */
/* The id of a container that this keeper has granted. */
void container_name(const struct keeper *k, uint32_t number, char out[CONTAINER_ID_MAX]);
void containers_ask(struct keeper *k, const struct ask *asks, size_t n);
void containers_grant(struct keeper *k); /* grant the asks that fit now */
void containers_launch_some(struct keeper *k);
void containers_drop_asks(struct keeper *k); /* forget all asks */
void container_queue(struct keeper *k, struct container *c);
void container_release(struct keeper *k, struct container *c);
void container_stop(struct keeper *k, struct container *c, uint32_t grace_ms);
/* Its process has exited. */
void container_exited(struct keeper *k, struct container *c, int status);
/* CREW_SIGNAL: end the containers of the crew with this pid whose executors have ended; 0 = of all
 * crews. */
void crew_look(struct keeper *k, pid_t pid);
/* Kill orphans of dead executors. Containers without any are ended. */
void containers_drain(struct keeper *k);
void containers_tick(struct keeper *k, int64_t now_ms);
void containers_stop_all(struct keeper *k, uint32_t grace_ms);

/* keeper_resize.c */
void resize_want(struct keeper *k, const Tony__WantContainers *m);
void resize_admitted(struct keeper *k, const struct peer *p, const Tony__Admit *m);
void resize_refuse(struct keeper *k);    /* refuse asks that the machine can never fulfil */
bool resize_give_back(struct keeper *k); /* lower the limits; true: the pool was told */
void resize_cancel(struct keeper *k, const Tony__CancelAsks *m);
void resize_bounds(struct keeper *k, const Tony__SizeBounds *m);
void resize_outlook(struct keeper *k, const Tony__Outlook *m);
void resize_wish(struct keeper *k, const Tony__SizeWish *m);
void resize_tell_wish(struct keeper *k); /* pass the pool's wish on, if a master is connected */
void resize_done(struct keeper *k);

/* keeper_exits.c */
enum {
    EXITS_MIN = 1 << 20, /* bytes of `exits` that are worth a new file; about 5000 ends */
};
/* Read the exits of earlier keepers into `ends`, and add a line for this one. */
int exits_open(struct keeper *k, struct err *e);
/* Add the line of a container that has ended. exits_write() has to follow before the end is
 * reported. Sets c->line_len. */
void exits_add_container(struct keeper *k, struct container *c);
void exits_write(struct keeper *k); /* write the lines that were added, or try it again */
/* These write at once. */
void exits_add_master(struct keeper *k);
void exits_add_master_exit(struct keeper *k, int status);
/* Is so much of `exits` forgotten that a shorter file should replace it? */
bool exits_wants_rewrite(const struct keeper *k);
void exits_rewrite(struct keeper *k);

/* keeper_ends.c */
/* Its line is in `exits`, and vec_reserve() has made room for it in `ends`. */
void ends_add(struct keeper *k, struct container *c);
/* The journal has the first n of the ends that were reported to the present master. */
void ends_acked(struct keeper *k, uint64_t n);
uint32_t groups_kept(const struct keeper *k); /* the groups of this many first containers stay */
void groups_tick(struct keeper *k, int64_t now_ms); /* remove groups of forgotten containers */

/* keeper_beats.c */
void beats_begin(struct keeper *k); /* an executor was forked */
void beats_tick(struct keeper *k, int64_t now_ms);

#endif
