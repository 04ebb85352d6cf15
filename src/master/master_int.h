/* What the files of master/ share: begin.c (start), events.c (in), actions.c (out), executors.c,
 * clients.c, end.c; of a master on a cluster also places.c, logs.c, page.c, archive.c, own.c. */
#ifndef TONY_MASTER_MASTER_INT_H
#define TONY_MASTER_MASTER_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/vec.h"
#include "codec/tls.h"
#include "history/replay.h"
#include "job/job.h"
#include "loop/loop.h"
#include "master/master.h"
#include "storage/journal.h"

struct archive;
struct call;
struct copies;
struct history_job;
struct http_server;
struct job_file;
struct job_spec;
struct place;
struct sched;
struct sched_config;
struct sched_container;
struct sched_event;
typedef struct Tony__Frame Tony__Frame;
typedef struct Tony__LogData Tony__LogData;
typedef struct Tony__ReadLog Tony__ReadLog;

enum master_phase {
    MP_NONE = 0,
    MP_STARTING, /* the scheduler has not said yet what is there: events wait outside */
    MP_RUNNING,
    MP_BREAKING, /* the journal cannot be written: all is being stopped, nothing is fed any more */
    MP_ENDING,   /* verdict written; followers and the scheduler are being told, the rest kept */
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

/* A client's question for a log that its executor has not answered yet. */
struct log_question {
    struct peer *asker;
    uint32_t number; /* the asker's */
    uint32_t ours, slot;
};

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
    bool *awaited;           /* by slot: a master before us had its executor, we do not yet */
    uint32_t n_awaited, n_back;

    struct role_welcome *welcomes; /* by role index */
    size_t n_welcomes;
    uint64_t addresses_version; /* grows with each registration */
    uint64_t peers_version;     /* of the addresses that running tasks were told last */
    struct {
        struct packed *frame;
        bool moved; /* for one only */
        bool peers; /* no Start, but the addresses alone */
        uint32_t generation, attempt, restart_count;
        uint64_t addresses_version;
        char *checkpoint; /* tasks may have theirs in several places */
    } start;              /* the last Start that was packed: most tasks get the very same */

    struct { /* of a driver of the user's: Horovod's debug mode */
        uint32_t generation;
        char address[300];           /* host:port of its server; "" = not known */
        char *text;                  /* NULL = not known */
        VEC(struct job_action) held; /* starts that wait for it */
    } plan;

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
    bool sched_told, cleared; /* what the last waits are for */
    int64_t told_ms;
    uint32_t n_to_stop;       /* MP_BREAKING: containers that have not ended yet */
    bool *to_stop;            /* by slot */
    char *breaking_why;
    /* blocked.c; why: NULL = the journal can be written */
    char *blocked_why;
    int64_t blocked_job_ms;   /* where the job's time stands still */
    int64_t blocked_since_ms, blocked_retry_ms, blocked_said_ms;
    struct history_job
        *stands; /* the job as the journal has it, once that cannot be written any more */

    VEC(struct log_question) questions;
    uint32_t last_question;

    /* of a master on a cluster only */
    const struct master_remote *remote;
    struct tls_key client_key;
    char *host; /* our own, as others reach it; NULL = not known yet */
    struct http_server *page;
    uint16_t page_port;   /* 0 = no page is served */
    struct place *places; /* by slot */
    struct archive *archive;
    struct copies *copies;   /* NULL: there is no other master after us */
    struct job_actions held; /* until what stands in the journal is stored elsewhere */
    struct call *calls;
    struct loop_signal *term;
    struct loop_timer *term_timer;
    bool terminated;
    bool sched_gone; /* the scheduler does not know us any more, and we were not told to end */
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
void master_stored(void *arg); /* what stands in the journal is stored elsewhere, too */

/* ---- executors.c ---- */
void executor_hello(struct peer *p, const Tony__Frame *f);
void executor_frame(struct peer *p, const Tony__Frame *f);
void executor_gone(struct peer *p, bool broke); /* else its own side has closed it */
void executor_start(struct master *m, const struct job_action *a);
void executor_stop_attempt(struct master *m, const struct job_action *a);
void executor_ack(struct master *m, const struct job_action *a);
void executor_renew(struct master *m, const struct job_action *a);
void executor_moved(struct master *m, const struct job_action *a); /* a spare became a task */
void executors_peers(struct master *m); /* the addresses of all, to all that run */
bool executor_finish(struct master *m, uint32_t slot,
                     uint32_t grace_ms); /* false: it is not connected */

/* ---- welcome.c ---- */
int welcome_build(struct master *m, struct err *e);
void welcome_done(struct master *m);
int welcome_send(struct master *m, struct peer *p, const struct slot_view *v);
/* Both borrowed; NULL = no memory. */
struct packed *start_frame(struct master *m, const struct job_action *a, const struct slot_view *v);
struct packed *peers_frame(struct master *m);

/* ---- plan.c: of a driver of the user's, who has the rendezvous server ---- */
typedef struct Tony__TaskWord Tony__TaskWord;
void plan_told(struct master *m, uint32_t slot, const Tony__TaskWord *w);
/* Is this start one that cannot be without the plan? Then it is kept until that is there. */
bool plan_awaited(struct master *m, const struct job_action *a);
void plan_forget(struct master *m);

/* ---- clients.c ---- */
int clients_listen(struct master *m, struct err *e);
void peer_refuse(struct peer *p, int num, const char *message);
void peers_close(struct master *m);
/* A connection whose other side has shown that it is of the job. */
void peer_take(struct master *m, struct conn *c);
void clients_notify(
    void *arg); /* an update to the followers, if something has changed and it is time */
void clients_answer_stops(struct master *m);
/* May this peer, who has shown to be whoever it is, speak for that container (NULL: as a client)?
 */
bool peer_may(const struct peer *p, const char *container);
void clients_tell_end(struct master *m);
void clients_let_go(struct master *m); /* those who follow, when they have all there is to hear */
size_t clients_queued(const struct master *m); /* bytes that the kernel has not taken yet */

/* ---- logs.c: a client reads a task's log through us ---- */
void logs_ask(struct peer *client, const Tony__ReadLog *q);
void logs_answer(struct peer *executor, const Tony__LogData *a);
void logs_executor_gone(struct master *m, uint32_t slot);
void logs_client_gone(struct peer *client);

/* ---- places.c: where the containers are ---- */
int places_open(struct master *m, struct err *e);
void places_close(struct master *m);
void places_seen(struct master *m, const struct sched_container *c);
void places_move(struct master *m, uint32_t slot, uint32_t from);
const char *places_log_url(const struct master *m, uint32_t slot); /* NULL = not known */
const char *places_node(const struct master *m, uint32_t slot);    /* likewise */
/* The names of the files of the slot's last attempt there begin with "stdout" and "stderr" and end
 * with this: "", ".2", ... */
void places_log_suffix(const struct master *m, uint32_t slot, char *out, size_t n);
char *places_tracking_url(const struct master *m); /* the caller's; NULL = there is none */
/* The status document with all that we know. for_all: for readers who may not see logs. */
int master_status_json(const struct master *m, bool full, bool for_all, struct buf *out);

/* ---- calls.c: executors that a master before us has started ---- */
void calls_begin(struct master *m, const struct sched_container *c);
void calls_close(struct master *m);

/* ---- page.c, page_serve.c ---- */
int page_open(struct master *m, struct err *e);
void page_close(struct master *m);
int page_html(const struct master *m, struct buf *out);

/* ---- own.c: a back-end in front of another one, for a job whose task runs beside its master ----
 */
extern const struct sched_ops sched_own;
/* Our log to a file of its own: the task's stderr is that of the container. */
void own_log(void);
int own_open(struct master *m, const struct sched_ops *behind, const struct sched_config *cfg,
             struct sched **out, struct err *e);

/* ---- term.c: the cluster wants us gone ---- */
int term_open(struct master *m, struct err *e);
bool term_on_broken(struct master *m); /* false: nothing is to be done about it */

/* ---- blocked.c ---- */
/* The journal could not be written: false when there is no use in waiting. */
bool blocked_begin(struct master *m, const struct err *why);
bool blocked_waits(const struct master *m); /* it is not time yet to try again */
void blocked_end(struct master *m);         /* it could be written */
void blocked_look(struct master *m);        /* what others may be told meanwhile */

/* ---- end.c ---- */
void master_finish(struct master *m);                       /* ACT_FINISH */
void master_break(struct master *m, const struct err *why); /* the journal cannot be written */
void master_break_on_sched(struct master *m, const struct sched_event *ev);

#endif
