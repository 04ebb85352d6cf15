/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the source files of the pool share.
 *
 *   start.c        from the command line to a pool that listens
 *   pool.c         the list of jobs, admission, the end
 *   admission.c    which jobs of the queue may start (admission.h)
 *   machine.c      the resources of the machine (machine.h)
 *   keepers.c      starts keepers, connects to them, and replaces dead ones
 *   keeper_stop.c  stops a job that has a keeper
 *   clients.c      requests of clients
 *   submit.c       a submission becomes a job's directory
 *   resize.c       resizes a waiting job
 *   extend.c       the limits of a running job that is resized
 *   recover.c      takes over the jobs of an earlier pool
 *   boot.c         the jobs that ran when the machine stopped
 *   hooks.c        starts the calls at the ends of jobs
 *   page.c         the page for Prometheus
 *   scrape.c       asks the masters for the metrics of their tasks
 *   sweep.c        cleans up after finished jobs
 *   reports.c, queue_report.c  JSON documents for clients
 *   sharing*.c     a policy divides the machine among jobs (sharing.h)
 *   share.c        from the jobs to the policy, and back (share.h)
 *   costs.c        the measured costs of resizes (costs.h)
 *   service.c      the service that each job has attained (service.h)
 *   children.c     child processes
 *   ready_dir.c    the directory of the next job, made before it comes
 *   standby.c      keeper and master of the next job, started before it comes
 *   tidy.c         removes old store entries and old history, refreshes claims on GPUs
 *
 * Thread  All functions run on the loop thread, except those that are passed to loop_work(). Such a
 *         function gets copies of what it needs: the job may end meanwhile. When it has returned,
 *         the loop finds the job again by its id.
 * Owner   A struct pool_job belongs to the list of the pool until pool_job_remove(), which also
 *         closes the connections and timers that point to the job.
 * Errors  A function with a parameter `e` returns 0, or -errno with a sentence for the user in *e.
 */
#ifndef TONY_POOL_POOL_INT_H
#define TONY_POOL_POOL_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/base.h"
#include "base/lockfile.h"
#include "pool/admission.h"
#include "pool/machine.h"
#include "pool/sharing.h"
#include "proto/tony.pb-c.h"
#include "storage/paths.h"

struct child;
struct client;
struct conf;
struct conn;
struct ending;
struct http_answer;
struct job_event;
struct job_spec;
struct listener;
struct loop;
struct loop_fd;
struct loop_signal;
struct loop_timer;
struct metrics_merge;
struct pool;
struct resizing;
struct scrape;
struct submission;

#define JOB_PHASES(X)                                                                              \
    X(PH_WAITING, "WAITING")   /* in the queue; no process of the job is alive */                  \
    X(PH_STARTING, "STARTING") /* admitted; its new keeper does not listen yet */                  \
    X(PH_GREETING, "STARTING") /* connected to the keeper, which has not told its state yet */     \
    X(PH_LIVE, "RUNNING")      /* the keeper has told its state */                                 \
    X(PH_LOST, "STARTING")     /* connection to the keeper lost; the pool checks if it is dead */  \
    X(PH_CLEANING, "STARTING") /* the keeper is dead; the pool removes what it has left */         \
    X(PH_ADOPTING, "STARTING") /* as PH_CLEANING; the pool kills the orphans it has inherited */

enum job_phase {
    PH_NONE = 0,
#define X(id, name) id,
    JOB_PHASES(X)
#undef X
        PH_COUNT,
};

enum {
    /* If a job's keepers die more than DEATHS_MAX times within DEATHS_WINDOW_MS, the pool starts no
     * other one and ends the job. */
    DEATHS_MAX = 3,
    DEATHS_WINDOW_MS = 60000,
    /* The death of a keeper that was connected for at least this long is not counted: the retry
     * budgets of the job's tasks limit how often that can happen. */
    KEEPER_WORKED_MS = 1000,
    /* If other pools use the GPUs of a job, the pool tries to get them again after this time. */
    GPU_PAUSE_MS = 1000,
};

/* All that a resized job wants to hold, as its keeper reports it (extend.c). All fields are 0 if
 * the job was not resized. */
struct pool_wish {
    /* the job wants more than it holds: an extension is in the queue */
    bool open;
    struct admission_amount needs; /* in all */
    uint32_t vcores, n_containers;
    uint32_t number;         /* wants_number of the KeeperState */
    uint32_t refused_number; /* number of the wish that the pool has refused; 0 = none */
    uint32_t arrival;        /* the extension is behind all jobs up to this number */
    uint32_t place;
    char behind[APP_ID_MAX];
};

struct pool_job {
    struct pool *pool;
    char id[APP_ID_MAX];
    uint32_t number;
    char *name;
    int priority;
    struct admission_amount needs; /* admitted: the most that the job may hold */
    uint32_t vcores, n_containers;
    int64_t submitted_wall_ms;
    int64_t client_away_ms;
    enum job_phase phase;

    /* While the job waits: */
    bool owned;            /* the job ends if its client goes away */
    int64_t not_before_ms; /* other pools use its GPUs: try again at this time; 0 = they do not */
    char *held; /* a sentence about the process that uses one of its GPUs; NULL = unknown or none */
    struct loop_timer *away; /* fires when its client has been away for client_away_ms */
    int64_t allocation_ms;   /* the longest time that the job may wait; 0 = no limit */
    int64_t waited_ms;       /* how long it had waited when this pool took it over */
    struct loop_timer *limit;
    char behind[APP_ID_MAX]; /* the job that it waits for; "" = no job of this pool */
    uint32_t place;

    /* admitted */
    uint32_t gpus[MACHINE_GPUS_MAX]; /* needs.gpus of them */
    /* false: the keeper of an adopted job has not reported them yet */
    bool gpus_known;
    struct pool_wish wish;
    /* The job may be resized to any number of containers from min to max; 0 = unknown. Its keeper
     * reports them again to a new pool. */
    uint32_t min_containers, max_containers;
    bool cost_known; /* the job has measured that a resize costs cost_ms of its work */
    uint64_t cost_ms;
    /* When the job will end, by the progress of its tasks: times of the monotonic clock. 0 =
     * unknown. */
    int64_t ends_early_ms, ends_late_ms;
    /* For policies (sharing.h): */
    struct pool_elastic elastic;
    struct pool_target target;
    uint32_t weight;
    double budget;
    struct service service;
    uint64_t timeout_ms; /* tony.application.timeout; 0 = none */
    int64_t started_ms;  /* when this pool admitted it; 0 = another pool did */
    bool conf_busy;      /* a thread writes its job.conf.new */
    bool decided_on;     /* at least one decision has included this job */
    /* decisions change the job only after this time; 0 = at any time */
    int64_t left_alone_until_ms;

    uint32_t admit_number; /* of the last Admit of this connection */
    bool was_admitted;     /* the job has a keeper, or had one */
    bool fresh;            /* no pool has ever started a keeper for it */
    int restart_on_boot;   /* tony.application.restart-on-boot; -1 = not set */
    bool interrupted;      /* the machine stopped, and the job continues with its next keeper */
    bool lost_by_stop;     /* the machine stopped, and the job ends: `fatal` says when that was */
    char *master_socket;
    struct conn *keeper;
    struct child *child; /* the keeper, if this pool started it and has not reaped it */
    int exit_code;       /* of that child; -1 = unknown */
    int ready_fd;        /* the keeper writes a byte to its other end once it listens */
    struct loop_fd *ready;
    struct loop_timer *timer; /* fires at the next check, or when the keeper's start times out */
    int64_t live_since_ms, lost_since_ms, adopt_by_ms, renew_at_ms;
    int64_t deaths[DEATHS_MAX]; /* times of the last deaths of its keepers, the oldest first */
    char *fatal;    /* why the job must end instead of getting another keeper; NULL = no reason */
    char *stop_who; /* who asked to stop the job: its state becomes KILLED, not FAILED */
    struct conn *stopper; /* carries the stop request to the master */
    struct loop_timer *stop_timer;
    int64_t stop_deadline_ms;
};

struct pool_client {
    struct pool *pool;
    struct conn *conn;
    struct pool_client *next, *prev;
    struct pool_job *job;      /* followed; NULL = none */
    struct resizing *resizing; /* the resize of a waiting job that it has asked for; NULL = none */
    bool owns, follows;
    struct submission *submission; /* a thread writes it to disk; NULL = none */
    /* POOL_STOP without force: the request is refused at this time, unless all jobs have ended by
     * then. 0 = no request. */
    int64_t stop_by_ms;
    bool waits_for_stop; /* POOL_STOP was accepted: the answer comes when the pool ends */
    char program[64];    /* its name, for the log */
};

/* See standby.c. */
struct standby {
    struct child *keeper; /* NULL = there is none */
    char id[APP_ID_MAX];
    int keeper_fd, master_fd;
    pid_t master_pid;
    struct stat keeper_file, master_file; /* the programs when they were started */
};

struct pool {
    struct loop *loop;
    struct paths paths;
    struct conf *conf;
    struct machine machine;
    struct admission_amount left; /* the capacity that admitted jobs do not use */
    unsigned n_hooks_killed;      /* see hooks.c */
    struct sharing sharing;
    int lock_fd;
    struct listener *listener;
    struct loop_timer *idle, *gpu_retry, *tidy, *patience, *hear, *look, *prepare;
    /* The pool admits no job before all keepers of adopted jobs have reported what they hold and
     * want, or before this time. 0 = all have reported. */
    int64_t hear_until_ms;
    struct loop_signal *sigchld, *sigterm, *sigint, *sighup;
    struct child *children;
    int64_t idle_ms;  /* -1 = never */
    int64_t start_ms; /* when this home was first used; a part of every application id */
    int64_t started_wall_ms;
    uint32_t last_number;        /* the highest job number that was given */
    VEC(struct pool_job *) jobs; /* live jobs, in order of arrival */
    struct pool_client *clients;
    struct ending *endings; /* keepers of finished jobs that still clean up */
    size_t n_submissions;   /* submissions that a thread writes to disk */
    bool rebooted;          /* the last pool of this home ran before the present boot */
    bool adopts;   /* the pool is a subreaper: orphans of dead keepers become its children */
    bool stopping; /* the pool accepts no job and exits once the last one has ended */
    bool ended;    /* the loop is being closed: start nothing */
    struct {
        char *dir, *lock; /* NULL = there is none */
        uint32_t n_made;
        bool busy; /* a thread makes it */
    } ready;       /* ready_dir.c */
    struct standby standby;
    int64_t prepare_at_ms;    /* when the timer `prepare` fires; 0 = it is not set */
    struct http_server *page; /* NULL = there is none */
    struct scrape *scrape;    /* the answer of the page that is being made; NULL = none is */
    char *executor, *master;  /* paths of the programs; NULL until first used */
};

/* pool.c */
/* Make a job and add it to the list. NULL: e is set. */
struct pool_job *pool_job_new(struct pool *p, const char *id, struct err *e);
/* Remove a job from the list and free it. Clients that follow it get no message. */
void pool_job_remove(struct pool_job *j);
struct pool_job *pool_job_find(const struct pool *p, const char *id); /* NULL: no such live job */
bool pool_job_admitted(const struct pool_job *j);
const char *pool_phase_name(enum job_phase phase);
void pool_admit(struct pool *p); /* start all jobs that fit; tell the others their place */
/* Choose the devices j->gpus[from] and further ones, j->needs.gpus in all: the lowest free ones. */
void pool_choose_gpus(struct pool_job *j, uint32_t from);
/* Other pools use GPUs of the job: it waits for them, and tries again after GPU_PAUSE_MS. */
void pool_retry_gpus_later(struct pool_job *j);
/* The job is in history/, or its submission failed: tell its followers, remove it, admit others. */
void pool_job_over(struct pool_job *j);
/* End a job of which no process is alive: write a verdict to its journal, and remove it from the
 * list. */
void pool_job_abort(struct pool_job *j, const struct job_event *ev);
/* Start the timer of tony.container.allocation.timeout for a waiting job. Once the job has a
 * master, the master measures that time. */
void pool_job_limit_wait(struct pool_job *j);
void pool_stop(struct pool *p, const char *who); /* stop all jobs, then exit */
/* Call this after a job or a client has come or gone: starts or stops the idle timer, and ends a
 * stopping pool that has no job left. */
void pool_check_idle(struct pool *p);

/* Does a keeper hold the lock of this job? */
bool job_is_kept(const struct pool_job *j);

/* keepers.c */
int keeper_init(struct pool_job *j);
void keeper_start(struct pool_job *j);
/* Take over a job of an earlier pool: connect to its keeper, or clean up and start another one. */
void keeper_reconnect(struct pool_job *j);
/* keeper_stop.c: ask its master; if the master does not answer, ask its keeper. */
void keeper_stop_job(struct pool_job *j, const char *who);
int pool_find_executor(struct pool *p, struct err *e); /* sets p->executor */
/* The environment of a keeper: that of the pool, and the variables by which processes of a job are
 * found. */
int keeper_env(const struct pool *p, const char *id, struct strv *env);
/* Close the connections, timers and descriptors of j that belong to keepers.c. */
void keeper_forget(struct pool_job *j);

/* page.c */
void page_open(struct pool *p); /* if a key asks for the page; a failure is logged */
void page_close(struct pool *p);
/* The text of /metrics. tasks: what the masters have answered. */
int page_text(const struct pool *p, const struct metrics_merge *tasks, bool open, struct buf *out);
enum { PAGE_JOBS_MAX = 1000 }; /* jobs with samples of their own: labels must be bounded */

/* scrape.c */
/* Answer a request for /metrics when the masters of the live jobs have answered, or SCRAPE_MS have
 * passed. */
int scrape_answer(struct pool *p, struct http_answer *a, struct err *e);
void scrape_stop(struct pool *p);

/* clients.c */
void clients_accept(struct conn *c, void *arg);
void clients_tell(struct pool_job *j);     /* send a JobUpdate to each follower */
void clients_tell_end(struct pool_job *j); /* send the last one, from the history */
/* The resize is on the disk (e->num 0), or has failed: answer the client. */
void clients_resized(struct resizing *r, const struct err *e);
void clients_patience(void *arg);       /* callback of the timer `patience`; arg: the pool */
bool clients_want_stop(struct pool *p); /* no job is live: does a client wait for the pool's end? */
void clients_close(struct pool *p);     /* send the answers that are due, and close */
/* An owner of j has gone. If it was the last one and j waits, j ends after client_away_ms. */
void clients_owner_gone(struct pool_job *j);

/* submit.c */
struct resizing {
    struct pool *pool;
    char id[APP_ID_MAX];
    char *dir, *path, *new_path; /* the job's directory, job.conf, and job.conf.new */
    struct buf text;
    struct job_spec *spec;
    struct pool_client *client; /* NULL once the client has gone */
    bool by_policy;             /* a policy has asked for the resize, not a client */
    struct err e;               /* set by the thread */
};

struct submission {
    struct pool *pool;
    char id[APP_ID_MAX]; /* a copy: the job may end before it is on disk */
    char *dir, *jobs_dir;
    struct pool_client *client; /* NULL once the client has gone */
    struct err e;               /* set by the thread */
};
/* Check a job, make its directory and add it to the queue. Afterwards the caller calls pool_admit()
 * and starts submission_sync(). */
int submit(struct pool *p, struct span conf_text, struct span secrets, bool owned,
           struct submission **out, struct err *e);
/* Write the job's directory to disk. Runs on a thread; then the loop answers the client. */
int submission_sync(struct submission *s);
void submission_free(struct submission *s);
/* Fill j with the needs, priority and limits from job.conf in dir, for recover(). */
int submit_load(struct pool_job *j, const char *dir, struct err *e);
int submit_take_figures(struct pool_job *j, const struct job_spec *spec, struct err *e);
/* Could this job run if the machine had no other job? If not, e says what is missing. */
int submit_check_size(const struct pool *p, const struct job_spec *spec, struct err *e);
int submit_check_files(uint32_t n_containers, struct err *e);
int submit_mark_owned(const struct pool_job *j); /* the file `owned`, which the master reads */

/* start.c */
/* Make the directory and the standby for the next job, ms milliseconds from now. If this is due
 * earlier already, the earlier time stays. */
void pool_prepare_in(struct pool *p, int64_t ms);
/* The pool prepares for the next job this long after a submission. If it did so at once, it would
 * take processor time from the start of the submitted job. */
enum { PREPARE_MS = 50 };

/* standby.c */
void standby_make(struct pool *p); /* for the next job, unless there is one */
void standby_drop(struct pool *p);
void standby_done(struct pool *p); /* the pool ends: wait until it is gone */
/* The pool sends this to the standby when the job comes. */
struct standby_job {
    char *const *keeper_argv, *const *master_argv;
    const char *keeper_log, *master_log, *lock, *socket;
    int ready_fd;
};
/* The standby becomes the keeper and the master of the job, as after child_spawn(). NULL: there is
 * no standby for this job. */
struct child *standby_take(struct pool_job *j, const struct standby_job *x,
                           void (*on_exit)(void *arg, int code));

/* ready_dir.c */
void ready_dir_make(struct pool *p); /* on a thread, unless there is one */
/* Move it to path. false: there is none, or it cannot be moved. */
bool ready_dir_take(struct pool *p, const char *path);
/* Give a job that has no lock file yet one, with this path. It is not locked. If there is none
 * ready, nothing happens. */
void ready_lock_take(struct pool *p, const char *path);
void ready_dir_done(struct pool *p);
/* Make a job's directory with the files that each job has. */
int job_dir_make(const char *dir, struct err *e);
/* Add a file to it. */
int job_dir_write(const char *dir, const char *name, const void *bytes, size_t n, struct err *e);

/* hooks.c */
/* Start a process for the call at the end of a job, if one is due. only: of this job; NULL = of
 * each job. */
void hooks_start(struct pool *p, const char *only);

/* resize.c */
/* Resize a waiting job: change its numbers of instances. clients_resized() follows. */
int resize_waiting(struct pool_client *c, const Tony__ResizeJob *m, struct err *e);
/* The same for a policy, with a number for one role. sharing_sized() follows, unless this fails. */
int resize_by_policy(struct pool_job *j, const char *role, uint32_t n, struct err *e);
void resize_cleanup(const struct pool_job *j); /* remove the job.conf.new of a dead pool */

/* extend.c */
void extension_load(struct pool_job *j); /* read the file `admitted`, if there is one */
/* A KeeperState has come. true: the queue has changed, and the caller calls pool_admit(). */
bool extension_heard(struct pool_job *j, const Tony__KeeperState *s);
struct admission_amount extension_lacks(const struct pool_job *j); /* wanted beyond j->needs */
/* give the job what it wants: memory and GPUs are free */
void extension_grant(struct pool_job *j);
void extension_forget(struct pool_job *j); /* the keeper is dead; the next one asks again */
/*
 * Tell the job another size. The keeper passes it on to the master.
 *
 * grow = false  the job should hold at most n_containers in all after deadline_ms
 * grow = true   the job may hold n_containers in all, if it asks for them within deadline_ms
 *
 * saved: the job changes only if no work is lost. If its gang has to restart, it waits for its next
 * checkpoint.
 *
 * The caller decides that; the pool does not store it. -EAGAIN: the job's keeper is not connected.
 */
int pool_job_wish(struct pool_job *j, bool grow, uint32_t n_containers, int64_t deadline_ms,
                  bool saved, const char *why, struct err *e);

/* reports.c */
/* The answer to POOL_STATUS (all = true: with the machine) or POOL_JOBS ({"jobs":[...]}). */
int report_pool(const struct pool *p, bool all, struct buf *out);
/* queue_report.c: the answer to QUEUE. */
int report_queue(const struct pool *p, struct buf *out);
/* The status document of a job that has no master yet. */
int report_waiting(const struct pool_job *j, bool full, struct buf *out);
int report_starting(const struct pool_job *j, struct buf *out);

/* recover.c */
int recover(struct pool *p, struct err *e); /* reads the ids and takes over jobs of earlier pools */

/* boot.c */
void boot_read(struct pool *p);         /* sets p->rebooted; before recover() */
void boot_record(const struct pool *p); /* after recover() */
/* The job ran when the machine stopped. Sets j->fatal, unless the job continues. */
void boot_lost(struct pool_job *j, const char *dir);
void boot_forget(struct pool_job *j); /* another keeper is about to start */

/* sweep.c */
/* Remove the sockets, working directories and control groups of all finished jobs whose keeper died
 * before it had removed them. */
void sweep(struct pool *p);
void sweep_job(struct pool *p,
               const char *id); /* the same for one job; no-op if its keeper lives */
/* The keeper has reported the end of the job and still cleans up; it closes the connection when it
 * has finished. Wait for that; if the keeper dies before, clean up. Takes the connection. */
void sweep_after(struct pool *p, struct conn *keeper, const char *id);
/* Tell such a keeper that the pool has started the jobs that waited for the end of its job. */
void sweep_tell_heard(struct pool *p, const char *id);
void sweep_done(struct pool *p);
/* Remove the sockets and the lock file of a job. The caller holds the lock. */
void sweep_sockets(const struct pool *p, const char *id);

/* tidy.c: once an hour, on a thread, removes store entries and copies of programs that were not
 * used for tony.store.max-age, and history older than tony.history.retention-sec. */
void tidy(void *arg); /* callback of the timer `tidy`; arg: the pool */
void tidy_begin(struct pool *p);
/* The same now, without a pool and in the background. 0 or -errno. */
int tidy_once(const struct conf *conf, struct err *e);

/* children.c */
/* A second program that the child starts as its own child, just before it executes the first one.
 * So both programs start at the same time. The companion gets SIGKILL when its parent dies. */
struct spawn_companion {
    const char *program;
    char *const *argv;
    const char *log;
    int fd3;        /* becomes descriptor 3 of the program; 0 = none */
    char *pid_text; /* in the parent's argv: the companion's pid is written here in decimal */
    size_t pid_digits;
};
struct spawn {
    const char *program;
    char *const *argv;
    char *const *envp;
    int fd3;          /* becomes descriptor 3 of the program; -1 = none */
    const char *lock; /* a file: if it can be locked, it becomes descriptor 4; NULL = none */
    /* a unix socket: if the lock was taken, it is made before the companion starts, and becomes
     * descriptor 5, on which the program listens; NULL = none */
    const char *socket;
    const char *log; /* standard output and error are appended to this file; NULL = /dev/null */
    bool new_session;
    bool dies_with_pool;                     /* by SIGKILL, also before it executes the program */
    const struct spawn_companion *companion; /* NULL = none */
};
/* Start a program. When it ends, the pool calls on_exit(arg, exit code or 128 + signal number). If
 * arg becomes invalid before, call child_forget(). */
int child_spawn(struct pool *p, const struct spawn *s, void (*on_exit)(void *arg, int code),
                void *arg, struct child **out, struct err *e);
void child_forget(struct child *c);
void child_pass(struct child *c, void (*on_exit)(void *arg, int code), void *arg);
/* Open and lock a file. -1: another process holds the lock. */
int child_lock(const char *path);
/* Make the unix socket on which the child will listen. Its companion can connect to it at once, and
 * need not try again and again until the child has started. -1: the child makes it itself, and
 * reports what fails. */
int child_listen(const char *path);
pid_t child_pid(const struct child *c);
/* Send SIGKILL to the children that this pool did not start: orphans of dead keepers. Returns their
 * number. */
unsigned children_kill_strangers(const struct pool *p);
void children_reap(int signo, void *arg); /* handler of SIGCHLD; arg: the pool */
void children_free(struct pool *p);

#endif
