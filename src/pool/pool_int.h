/*
 * What the files of the pool share.
 *
 *   start.c      from the command line to a pool that listens
 *   pool.c       the list of jobs, admission, the end
 *   keepers.c    start, dial, lose and replace keepers
 *   clients.c    requests
 *   submit.c     a submission becomes a job's directory
 *   recover.c    what an earlier pool left
 *   sweep.c      what is left of jobs that are over
 *   reports.c    JSON for people
 *   children.c   processes we start
 *   tidy.c       what the store need not keep
 */
#ifndef TONY_POOL_POOL_INT_H
#define TONY_POOL_POOL_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/base.h"
#include "pool/admission.h"
#include "pool/machine.h"
#include "storage/paths.h"

struct child;
struct client;
struct conf;
struct conn;
struct ending;
struct job_event;
struct listener;
struct loop;
struct loop_fd;
struct loop_signal;
struct loop_timer;
struct pool;
struct submission;

#define JOB_PHASES(X)                                                                              \
    X(PH_WAITING, "WAITING")   /* in the queue; no process of it lives */                          \
    X(PH_STARTING, "STARTING") /* admitted; its keeper was started, or is being dialled */         \
    X(PH_LIVE, "RUNNING")      /* its keeper is connected */                                       \
    X(PH_LOST, "STARTING")     /* the connection to its keeper broke: is it dead? */               \
    X(PH_CLEANING, "STARTING") /* it is dead; what it left is being removed */                     \
    X(PH_ADOPTING, "STARTING") /* the same; what came to us is being killed */

enum job_phase {
    PH_NONE = 0,
#define X(id, name) id,
    JOB_PHASES(X)
#undef X
        PH_COUNT,
};

enum {
    DEATHS_MAX = 3,           /* a keeper that dies more often than this ... */
    DEATHS_WINDOW_MS = 60000, /* ... within this time is not started again */
    KEEPER_WORKED_MS = 1000,  /* who worked for so long does not count: its tasks are charged */
};

struct pool_job {
    struct pool *pool;
    char id[APP_ID_MAX];
    uint32_t number;
    char *name;
    int priority;
    struct admission_amount needs;
    uint32_t vcores, n_containers;
    int64_t client_away_ms;
    enum job_phase phase;

    /* waiting */
    bool owned;            /* a client's going away ends it */
    int64_t not_before_ms; /* its GPUs are held outside this pool: look again then; 0 = at once */
    struct loop_timer *away;
    int64_t allocation_ms; /* it fails when it waits for longer; 0 = never */
    int64_t waited_ms;     /* before this pool */
    struct loop_timer *limit;
    char behind[APP_ID_MAX]; /* "" = nobody of this pool */
    uint32_t place;

    /* admitted */
    uint32_t gpus[MACHINE_GPUS_MAX]; /* needs.gpus of them */
    bool gpus_known;                 /* an adopted job's keeper must say first */
    bool was_admitted;               /* it has, or had, a keeper */
    bool fresh;                      /* no keeper was ever started for it, by no pool */
    char *master_socket;
    struct conn *keeper;
    struct child *child; /* the keeper, when it is ours and not reaped */
    int exit_code;       /* of that child; -1 = not known */
    int ready_fd;
    struct loop_fd *ready;
    struct loop_timer *timer; /* the next look, or the limit of the keeper's start */
    int64_t live_since_ms, lost_since_ms, adopt_by_ms;
    int64_t deaths[DEATHS_MAX];
    char *fatal;          /* why it is to be ended instead of started again */
    char *stop_who;       /* somebody asked for its end: then it is a stop, not a failure */
    struct conn *stopper; /* a stop on its way to the master */
    struct loop_timer *stop_timer;
    int64_t stop_deadline_ms;
};

struct pool_client {
    struct pool *pool;
    struct conn *conn;
    struct pool_client *next, *prev;
    struct pool_job *job; /* followed; NULL = none */
    bool owns, follows;
    struct submission *submission; /* being made durable */
    int64_t stop_by_ms;  /* POOL_STOP: refused then, unless all has ended by itself; 0 = none */
    bool waits_for_stop; /* POOL_STOP with force: the answer comes when all is over */
    char program[64];
};

struct pool {
    struct loop *loop;
    struct paths paths;
    struct conf *conf;
    struct machine machine;
    struct admission_amount left; /* not held by admitted jobs */
    int lock_fd;
    struct listener *listener;
    struct loop_timer *idle, *gpu_retry, *tidy, *patience;
    struct loop_signal *sigchld, *sigterm, *sigint;
    struct child *children;
    int64_t idle_ms;  /* -1 = never */
    int64_t start_ms; /* of the ids: when this home was first used */
    int64_t started_wall_ms;
    uint32_t last_number;
    VEC(struct pool_job *) jobs; /* live ones, in order of arrival */
    struct pool_client *clients;
    struct ending *endings; /* keepers of jobs that are over */
    size_t n_submissions;
    bool adopts;             /* what dead keepers leave comes to us */
    bool stopping;           /* nothing new is taken; the end comes with the last job */
    bool ended;              /* the loop is being taken down: start nothing */
    char *executor, *master; /* paths of the programs; looked up at first use */
};

/* pool.c */
struct pool_job *pool_job_new(struct pool *p, const char *id,
                              struct err *e); /* in the list; NULL with e set */
void pool_job_remove(
    struct pool_job *j); /* out of the list, its followers are told nothing any more; frees */
struct pool_job *pool_job_find(const struct pool *p, const char *id); /* "" matches none */
bool pool_job_admitted(const struct pool_job *j);
const char *pool_phase_name(enum job_phase phase);
void pool_admit(struct pool *p); /* start whatever fits; say to the waiting where they stand */
void pool_job_over(struct pool_job *j); /* it lies in history (or was never there): tell its
                                           followers, forget it, admit others */
/* End a job that no process lives of any more, with a verdict in its journal, and forget it. */
void pool_job_abort(struct pool_job *j, const struct job_event *ev);
/* It has no master yet that would count: tony.container.allocation.timeout. */
void pool_job_limit_wait(struct pool_job *j);
void pool_stop(struct pool *p, const char *who); /* end all jobs, then ourselves */
void pool_look_idle(struct pool *p); /* to be called when a job or a client has gone or come */

/* A lock file, non-blocking: a descriptor, or -EWOULDBLOCK (somebody holds it), or -errno (-ENOENT:
 * not there, unless create). */
int pool_lock_file(const char *path, bool create);
/* Does a keeper hold the job's lock? */
bool job_is_kept(const struct pool_job *j);

/* keepers.c */
int keeper_init(struct pool_job *j);
void keeper_start(struct pool_job *j);
void keeper_look(struct pool_job *j); /* of an earlier pool's job: dial its keeper, or clean up and
                                         start another */
void keeper_stop_job(struct pool_job *j, const char *who); /* by its master, else by its keeper */
int pool_find_executor(struct pool *p, struct err *e);     /* p->executor is set then */
void keeper_forget(struct pool_job *j); /* lets go of all that belongs to the keeper's side of j */

/* clients.c */
void clients_accept(struct conn *c, void *arg);
void clients_tell(struct pool_job *j);     /* a JobUpdate to each follower */
void clients_tell_end(struct pool_job *j); /* the last one, from history */
void clients_submitted(struct submission *s,
                       const struct err *e); /* made durable, or not: e->num */
void clients_patience(void *arg);            /* of the timer `patience`; arg: the pool */
bool clients_want_stop(struct pool *p); /* nothing lives: does somebody wait to stop the pool? */
void clients_close(struct pool *p);     /* with the answers that are due */
bool job_has_owner(const struct pool_job *j);
void clients_owner_gone(
    struct pool_job *j); /* if it was the last: an owned, waiting job is ended after a while */

/* submit.c */
struct submission {
    struct pool *pool;
    char id[APP_ID_MAX]; /* the job may be over before it is durable */
    char *dir, *jobs_dir;
    struct pool_client *client; /* NULL when it went away */
    struct err e;               /* written by the thread */
};
/* Check, make the job's directory, put the job into the queue. The caller admits, and starts
 * submission_sync(). */
int submit(struct pool *p, const struct span conf_text, bool owned, struct submission **out,
           struct err *e);
int submission_sync(struct submission *s); /* on a thread; clients_submitted() follows */
void submission_free(struct submission *s);
/* The figures of a job from its directory, for recovery. */
int submit_load(struct pool_job *j, const char *dir, struct err *e);
int submit_mark_owned(const struct pool_job *j); /* the file `owned`, which the master reads */

/* reports.c */
int report_pool(const struct pool *p, bool all,
                struct buf *out); /* all: with the machine; else {"jobs":[...]} */
int report_waiting(const struct pool_job *j, bool full,
                   struct buf *out); /* the status document of a job nobody runs yet */
int report_starting(const struct pool_job *j, struct buf *out);

/* recover.c */
int recover(struct pool *p, struct err *e); /* ids and jobs of earlier pools */

/* sweep.c */
void sweep(struct pool *p);                     /* all jobs that are over and have left something */
void sweep_job(struct pool *p, const char *id); /* one of them; whose keeper lives is left alone */
/* Its keeper (taken) said that the job is over and closes when all is removed: see that it is. */
void sweep_after(struct pool *p, struct conn *keeper, const char *id);
void sweep_done(struct pool *p);
void sweep_sockets(const struct pool *p, const char *id); /* by who holds its lock */

/* tidy.c: content that nobody used for tony.store.max-age goes; now and then, on a thread */
void tidy(void *arg); /* of the timer `tidy`; arg: the pool */
void tidy_begin(struct pool *p);

/* children.c */
/* A child of the child, started before that becomes its program, so that both begin at once. It
 * dies with its parent. */
struct spawn_companion {
    const char *program;
    char *const *argv;
    const char *log;
    char *pid_text; /* its pid is written here, in so many digits: part of the parent's argv */
    size_t pid_digits;
};
struct spawn {
    const char *program;
    char *const *argv;
    char *const *envp;
    int fd3;          /* given as descriptor 3; -1 = none */
    const char *lock; /* a file that is locked, if nobody has it, and given as descriptor 4 */
    const char *log;  /* standard output and error are appended to this file; NULL = /dev/null */
    bool new_session;
    const struct spawn_companion *companion; /* NULL = none */
};
/* on_exit(arg, exit code or 128 + signal) when it has ended; child_forget() if arg goes before. */
int child_spawn(struct pool *p, const struct spawn *s, void (*on_exit)(void *arg, int code),
                void *arg, struct child **out, struct err *e);
void child_forget(struct child *c);
pid_t child_pid(const struct child *c);
/* KILL to our children that we did not start, which dead keepers have left; how many there were. */
unsigned children_kill_strangers(const struct pool *p);
void children_reap(int signo, void *arg); /* on SIGCHLD; arg: the pool */
void children_free(struct pool *p);

#endif
