/* What the files of master/ share: begin.c (start), events.c (in), actions.c (out), executors.c,
 * clients.c, end.c. */
#ifndef TONY_MASTER_MASTER_INT_H
#define TONY_MASTER_MASTER_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "history/replay.h"
#include "job/job.h"
#include "loop/loop.h"
#include "master/master.h"
#include "storage/journal.h"

struct history_job;
struct job_file;
struct job_spec;
struct sched;
struct sched_event;
typedef struct Tony__Frame Tony__Frame;

enum master_phase {
    MP_NONE = 0,
    MP_STARTING, /* the scheduler has not said yet what is there: events wait outside */
    MP_RUNNING,
    MP_BREAKING, /* the journal cannot be written: all is being stopped, nothing is fed any more */
    MP_ENDING,   /* verdict written; followers and the scheduler are being told */
    MP_GONE,     /* the loop has been told to stop */
};

enum peer_kind { PEER_NONE = 0, PEER_NEW, PEER_EXECUTOR, PEER_CLIENT };

/* The other end of one connection. */
struct peer {
    struct master *m;
    struct conn *conn;
    enum peer_kind kind;
    uint32_t slot;      /* of an executor */
    bool follows, owns; /* of a client */
    bool stop_asked;    /* it waits for the answer to STOP, which is given once that is written */
    struct peer *prev, *next; /* all peers */
};

/* What every task of one role is told, built once. */
struct role_welcome;

struct master {
    struct loop *loop;
    const struct paths *paths;
    const struct master_probe *probe;
    char *application_id, *job_dir, *log_dir;
    uint32_t epoch;
    enum master_phase phase;
    enum master_exit exit_code;

    struct job_file *file;
    struct job_spec *spec;
    struct job *job;
    struct replay replay;

    struct journal journal;
    int64_t last_written_ms; /* job time of the last record */
    struct buf scratch;      /* one record's text */
    int64_t t0_job_ms, t0_mono_ms;
    struct job_actions actions; /* not yet carried out; containers are our copies */

    const struct sched_ops *sched_ops;
    struct sched *sched;
    struct listener *listener;
    struct peer *peers;
    struct peer **executors; /* by slot; NULL = not connected */

    struct role_welcome *welcomes; /* by role index */
    size_t n_welcomes;
    uint64_t addresses_version; /* grows with each registration */
    struct {
        struct packed *frame;
        uint32_t generation, attempt, restart_count;
        uint64_t addresses_version;
    } start; /* the last Start that was packed: most tasks get the very same */

    struct loop_timer *timer; /* the job's next deadline */
    struct loop_timer *tick;  /* notices when the process as a whole was held up */
    int64_t tick_due_ms;
    struct loop_timer *notify; /* the next update of the followers */
    int64_t notified_ms;       /* when they had the last one */
    bool dirty;                /* something has changed since */
    uint32_t n_owners;
    bool stop_answers; /* some peer has stop_asked */

    struct loop_timer *end; /* bounded waits at the end */
    int64_t end_by_ms;
    bool sched_told;
    uint32_t n_to_stop; /* MP_BREAKING: containers that have not ended yet */
    bool *to_stop;      /* by slot */
    char *breaking_why;
    struct history_job
        *stands; /* the job as the journal has it, once that cannot be written any more */
};

/* ---- master.c ---- */
void master_exit_now(struct master *m, enum master_exit code);

/* ---- begin.c: as in master.h ---- */

/* ---- events.c ---- */
int64_t master_now(const struct master *m); /* job time */
/* Give one event to the core, its record to the journal's buffer and its actions to the next flush.
 * 0 applied, 1 refused. */
int master_feed(struct master *m, const struct job_event *ev);
/* The end of something on this machine: ev->age_us is worked out from when it was. 0 = not known,
 * and the age that ev has counts. */
int master_feed_end(struct master *m, struct job_event *ev, uint64_t ended_mono_us);
void master_on_sched(const struct sched_event *ev, void *arg);
int master_timers_open(struct master *m, struct err *e);
void master_timer_arm(struct master *m);

/* ---- actions.c ---- */
void master_flush(void *arg); /* write, then carry out; called before the loop blocks */
void master_drop_actions(struct master *m);

/* ---- executors.c ---- */
void executor_hello(struct peer *p, const Tony__Frame *f);
void executor_frame(struct peer *p, const Tony__Frame *f);
void executor_gone(struct peer *p);
void executor_start(struct master *m, const struct job_action *a);
void executor_stop_attempt(struct master *m, const struct job_action *a);
void executor_ack(struct master *m, const struct job_action *a);
bool executor_finish(struct master *m, uint32_t slot,
                     uint32_t grace_ms); /* false: it is not connected */

/* ---- welcome.c ---- */
int welcome_build(struct master *m, struct err *e);
void welcome_done(struct master *m);
int welcome_send(struct master *m, struct peer *p, const struct slot_view *v);
struct packed *start_frame(struct master *m, const struct job_action *a,
                           uint32_t restart_count); /* borrowed; NULL = no memory */

/* ---- clients.c ---- */
int clients_listen(struct master *m, struct err *e);
void peer_refuse(struct peer *p, int num, const char *message);
void peers_close(struct master *m);
void clients_notify(
    void *arg); /* an update to the followers, if something has changed and it is time */
void clients_answer_stops(struct master *m);
void clients_tell_end(struct master *m);
size_t clients_queued(const struct master *m); /* bytes that the kernel has not taken yet */

/* ---- end.c ---- */
void master_finish(struct master *m);                       /* ACT_FINISH */
void master_break(struct master *m, const struct err *why); /* the journal cannot be written */
void master_break_on_sched(struct master *m, const struct sched_event *ev);

#endif
