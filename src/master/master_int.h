/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a master, and the functions that its files share.
 *
 *   master.c        the program
 *   startup.c       opens and closes the master
 *   events.c        turns scheduler events and timers into events of the core, and journals them
 *   actions.c       writes the journal and carries out the actions that the core returned
 *   sched_tell.c    tells the scheduler of the job's containers, of its bounds, and of its end
 *   executors.c     frames from and to executors
 *   clients.c       connections, and the requests of clients
 *   events_answer.c the answer to `tony events`: a part of the journal
 *   welcome.c       the frames Welcome and Start
 *   cluster_spec.c  the addresses of all tasks
 *   driver_plan.c   the plan of a Horovod driver of the user's
 *   blocked.c       waits for a full disk
 *   compact.c       replaces the journal by a snapshot
 *   metrics.c       the metrics of the tasks, and their file
 *   streams.c       connects clients with tasks: exec, forward, cp
 *   log_watch.c     passes on what tasks write, while they write it
 *   ran.c           what the job has requested and run, for the digest in its final status
 *   shutdown.c      reports the verdict and exits
 *
 * Used only by a master on a cluster:
 *
 *   yarn/yarn.c, yarn/home.c    start on YARN
 *   yarn/single_node.c          runs the task of a job without roles in the master's container
 *   reconnect.c                 connects a new master to the executors of the one before it
 *   copies.c, copies_read.c     copy the journal and the metrics to HDFS for the next master, and
 *                               read them there
 *   yarn/queued_resize.c        takes the resize that a client left before there was a master
 *   archive.c, yarn/hdfs.c      write the history to HDFS, and remove the staging directory
 *   hook_child.c                on YARN: the call at the end of the job, by a child of the master
 *   termination.c               handles SIGTERM
 *   locations.c                 the node and the log URL of each container; the status document
 *   logs.c                      task logs that a client reads through the master
 *   page.c, page_server.c       the web page of the job
 *   share.c                     answers an arbiter
 *   wished_nodes.c              the nodes on which an arbiter wants the containers
 */
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
struct copies;
struct history_job;
struct log_watch;
struct http_server;
struct job_file;
struct job_spec;
struct location;
struct master_metrics;
struct queued_resize;
struct reconnect;
struct sched;
struct sched_config;
struct sched_container;
struct sched_event;
typedef struct Tony__Beat Tony__Beat;
typedef struct Tony__ClientAsk Tony__ClientAsk;
struct stream;
typedef struct Tony__Frame Tony__Frame;
typedef struct Tony__LogData Tony__LogData;
typedef struct Tony__LogPiece Tony__LogPiece;
typedef struct Tony__WatchLogs Tony__WatchLogs;
typedef struct Tony__ReadLog Tony__ReadLog;
typedef struct Tony__ResizeJob Tony__ResizeJob;
typedef struct Tony__SizeWish Tony__SizeWish;
typedef struct Tony__OpenStream Tony__OpenStream;
typedef struct Tony__StreamHello Tony__StreamHello;
typedef struct Tony__StreamRefused Tony__StreamRefused;

enum master_phase {
    MP_NONE = 0,
    MP_STARTING, /* before SE_REGISTERED: executors that connect are turned away */
    MP_RUNNING,
    MP_JOURNAL_FAILED, /* the journal cannot be written: the master stops all containers and feeds
                          the core no more events */
    MP_ENDING,  /* the verdict is in the journal: the master reports it and stores the history */
    MP_EXITING, /* the loop was told to stop */
};

enum peer_kind { PEER_NONE = 0, PEER_NEW, PEER_EXECUTOR, PEER_CLIENT };

/* The other end of one connection. */
struct peer {
    struct master *m;
    struct conn *conn;
    enum peer_kind kind;
    /* PEER_EXECUTOR: */
    uint32_t slot;
    bool reads_spec_file;  /* it can read the addresses from a file, so Start may leave them out */
    uint64_t spec_version; /* addresses_version of the last Peers that it was sent; 0 = none */
    bool abort_refused;    /* one of its RankAborts was refused, and that was logged */
    VEC(uint32_t) metric_names; /* the numbers of the names that its Beats have named so far */
    /* PEER_CLIENT: */
    bool follows;             /* it gets a JobUpdate at each change */
    bool owns;                /* if all owners disconnect, the job is stopped after a time */
    bool stop_answer_due;     /* its STOP is answered once the stop is in the journal */
    bool resize_answer_due;   /* its ResizeJob is answered once the resize is in the journal */
    struct peer *prev, *next; /* in the list of all peers */
};

/* The Welcome of one role: the facts that are equal for all its tasks. */
struct role_welcome;

/* A client's ReadLog that the executor has not answered yet. */
struct log_question {
    struct peer *client;
    uint32_t client_number;   /* number of the ReadLog that the client sent */
    uint32_t executor_number; /* number of the ReadLog that was sent to the executor */
    uint32_t slot;
};

struct asked {
    uint64_t memory_mib;
    uint32_t vcores, gpus;
    bool done;
};

struct master {
    struct loop *loop;
    struct paths *paths;
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
    int64_t last_written_ms;       /* job time of the last record */
    struct buf scratch;            /* the text of one record */
    int64_t t0_job_ms, t0_mono_ms; /* job time, and monotonic clock, when this master started */
    struct job_actions actions;    /* to be carried out; their strings are our copies */
    bool notify_pending;           /* stands for all ACT_NOTIFY among these actions */

    const struct sched_ops *sched_ops;
    struct sched *sched;
    /* The last sched_ops.bounds() of this registration; 0 = none. */
    uint32_t sent_bounds_min, sent_bounds_max;
    int64_t sent_cost_ms;
    /* The end that the last sched_ops.outlook() of this registration gave, as times of the loop.
     * sent_ends_late = 0: there was no call; -1: the end was unknown. */
    int64_t sent_ends_early, sent_ends_late;
    int64_t outlook_due_ms; /* job_outlook() is not called before this time of the loop */
    struct loop_timer *outlook_timer;
    struct listener *listener;
    struct peer *peers;
    uint32_t n_slots;        /* length of the arrays that are indexed by slot */
    struct peer **executors; /* by slot; NULL = not connected */
    /* Executors that were registered with an earlier master and have not reconnected yet. */
    bool *executor_expected; /* by slot */
    struct asked *asked;     /* by slot: the last request, for ran.c */
    uint32_t n_executors_expected, n_executors_back;

    struct buf secrets;            /* storage/secrets.h; empty = the job has none */
    struct hook_child *hook_child; /* NULL = none was started */
    struct role_welcome *welcomes; /* by role index */
    size_t n_welcomes;
    uint64_t addresses_version; /* grows when the address of a task may have changed */
    struct {                    /* cluster_spec.c: the addresses of all tasks, rendered */
        bool rendered;
        uint64_t version; /* addresses_version when they were rendered */
        uint32_t generation;
        int64_t rendered_ms;
        int64_t due_ms;       /* a rendering that can wait is not done before this time */
        size_t bytes;         /* of the JSON text */
        char *path;           /* the file that all tasks share; NULL: there is none */
        struct packed *peers; /* on a cluster: the message for each executor */
        struct packed *whole; /* the second part of a Start with all addresses; NULL: not needed */
        uint64_t whole_version;
        uint32_t whole_generation;
        int64_t whole_ms;
        bool tell;                            /* running tasks must get the new addresses */
        uint64_t sent_version;                /* the version of the addresses that they have */
        VEC(struct act_start) waiting_starts; /* starts that wait for the next rendering */
        uint32_t n_rendered;                  /* number of renderings so far */
        struct loop_timer *later;             /* the next rendering */
        int64_t later_ms;                     /* when it is set to fire; 0 = it is not set */
    } cluster_spec;
    struct { /* welcome.c: the last Start frame, and its inputs; most tasks get the same frame */
        struct packed *frame;
        bool moved; /* the task has the container of a spare: the frame is for this task only */
        bool apart; /* the frame leaves out the addresses: the executor has them in a file */
        uint32_t generation, attempt, restart_count;
        uint64_t addresses_version;
        char *checkpoint; /* path from which the task resumes; NULL = none */
    } start;

    struct { /* driver_plan.c */
        uint32_t generation;
        char address[300]; /* host:port of the driver's rendezvous server; "" = not known */
        char *text;        /* NULL = not known */
        VEC(struct act_start) waiting_starts; /* delayed until the plan is known */
    } driver_plan;

    struct loop_timer *deadline_timer; /* the next job_deadline() */
    struct loop_timer *stall_timer;    /* fires late if this process was not running */
    int64_t stall_check_due_ms;
    struct loop_timer *notify_timer; /* the next update of the followers */
    int64_t notified_ms;             /* time of their last update */
    bool update_due;                 /* the job has changed since their last update */
    uint32_t n_owners;
    bool stop_answers_due;   /* some peer has stop_answer_due */
    bool resize_answers_due; /* some peer has resize_answer_due */

    /* shutdown.c */
    struct loop_timer *end_timer;
    int64_t end_deadline_ms; /* the master exits at this time at the latest */
    bool sched_accepted;     /* the scheduler has accepted the verdict */
    int64_t sched_accepted_ms;
    bool staging_removed; /* the staging directory is removed, or there is none */
    /* Of MP_JOURNAL_FAILED: */
    uint32_t n_containers_stopping;
    bool *container_stopping; /* by slot */
    char *journal_failed_why;

    /* blocked.c */
    char *blocked_why;      /* NULL = the journal can be written */
    int64_t blocked_job_ms; /* the job time, which does not advance meanwhile */
    int64_t blocked_since_ms, blocked_retry_ms, blocked_logged_ms;
    /* The job as the journal on disk describes it. If the core has a verdict that could not be
     * written, followers are shown this job instead. NULL = they are shown `job`. */
    struct history_job *job_on_disk;

    struct master_metrics *metrics;

    VEC(struct log_question) log_questions;
    uint32_t last_log_question; /* the last executor_number */
    VEC(struct log_watch *) log_watches;
    uint32_t last_log_watch; /* the last id */

    struct stream *streams; /* streams.c */
    unsigned n_streams;
    uint32_t last_stream; /* the last id of a stream */

    /* Of a master on a cluster only: */
    const struct master_remote *remote;
    struct tls_key client_key;
    char *host; /* the name by which other machines reach this master; NULL = not known yet */
    struct http_server *page;
    uint16_t page_port;         /* 0 = no page is served */
    struct location *locations; /* by slot */
    struct { /* wished_nodes.c: where an arbiter wants the containers of a role */
        uint32_t role;
        VEC(struct wished_node {
            char *node;
            uint32_t n_left; /* containers that no request has asked for yet */
        })
        v;
    } wished_nodes;
    struct archive *archive;
    struct copies *copies; /* NULL = the cluster starts no other master after this one */
    /* actions that wait until HDFS has a copy of their records */
    struct job_actions delayed_actions;
    bool notify_delayed; /* stands for all ACT_NOTIFY among the delayed actions */
    struct reconnect *reconnects;
    struct queued_resize *queued_resize; /* NULL = none can be there */
    /* termination.c */
    struct loop_signal *sigterm;
    struct loop_timer *termination_timer;
    bool terminating;  /* the end of this master's container is being handled */
    bool sched_broken; /* SE_BROKEN came before SIGTERM */
};

/* ---- master.c ---- */
void master_exit_now(struct master *m, enum master_exit code); /* stops the loop */

/* ---- startup.c: master_open(), master_close(), and: ---- */
int master_grow_slots(struct master *m); /* extend the arrays to job_n_slots() entries; -ENOMEM */

/* ---- events.c ---- */
int64_t master_now(const struct master *m); /* job time */
/* Feed one event to the core. Its record goes to the journal's buffer, its actions to the next
 * flush. 0 = applied, 1 = refused, negative = the master exits. */
int master_feed(struct master *m, const struct job_event *ev);
/* The same for a request of a client: *e says why it was refused. */
int master_feed_asked(struct master *m, const struct job_event *ev, struct err *e);
/* The scheduler or an arbiter asks the job to have at most n_containers in all (grow false), or
 * allows it up to n_containers (grow true). 0: the job will do it; -errno: e says why not. */
struct size_wish {
    bool grow;
    uint32_t n_containers;
    int64_t within_ms;
    const char *why;   /* for people */
    bool saved;        /* as in struct sched_event */
    const char *leave; /* of a shrink: as in EV_SHRINK; NULL = the core chooses */
};
int master_size_wish(struct master *m, const struct size_wish *w, struct err *e);
/* The same for EV_COMPLETED and EV_ATTEMPT_ENDED. ended_mono_us: the monotonic clock of this
 * machine at the end, from which the age_us of the event is computed. 0 = not known: the age_us of
 * the event counts. Sets cause and cause_line of the event; cause_line is valid during the call
 * only. */
int master_feed_end(struct master *m, struct job_event *ev, uint64_t ended_mono_us);
void master_on_sched(const struct sched_event *ev, void *arg);
int master_timers_open(struct master *m, struct err *e);
void master_timer_arm(struct master *m); /* set deadline_timer */

/* ---- actions.c ---- */
/* Write the journal, then carry out the actions. The loop calls it before it blocks. */
void master_flush(void *arg);
void master_drop_actions(struct master *m);
/* Drop each action from index `from` on that repeats a waiting action. */
void actions_merge(struct master *m, size_t from);
/* HDFS has a copy of all journal records, or the wait for it was given up. */
void master_on_copied(void *arg);
/* Are the records of all events in the journal, and on a cluster also in its copies? An event that
 * was fed since the last flush has its record in neither, also if the copies are complete. */
bool master_is_stored(const struct master *m);

/* ---- sched_tell.c: all return 0, or a negative errno if the scheduler is gone ---- */
struct sched_ask sched_ask_of(const struct master *m, uint32_t slot); /* what this slot needs */

/* ran.c */
void ran_asked(struct master *m, const struct sched_ask *a); /* it is about to be requested */
/* Add what earlier masters have requested. */
void ran_continue(struct master *m);
/* Append the member `plan` of the status document of a job that is over. */
void ran_members(const struct master *m, struct buf *out);
/* Tell the scheduler which containers a job that was resized wants to hold. */
int sched_tell_shape(struct master *m, struct err *e);
/* Tell the scheduler the least and the largest number of containers that the job takes, and the
 * cost of a resize. Nothing is sent if these are unchanged. */
int sched_tell_bounds(struct master *m, struct err *e);
/* Tell the scheduler when the job will end, if that has changed. The end is computed at most once a
 * second; an earlier call sets a timer. */
int sched_tell_outlook(struct master *m, struct err *e);
void sched_tell_outlook_later(void *arg); /* outlook_timer has fired */

/* ---- executors.c ---- */
void executor_hello(struct peer *p, const Tony__Frame *f);
void executor_frame(struct peer *p, const Tony__Frame *f);
/* broke: the connection broke; false = the executor, or its kernel, has closed it. */
void executor_disconnected(struct peer *p, bool broke);
/* The heartbeats of the slot's executor are missing, perhaps because the keeper hangs, which sends
 * them for it. Ask the executor to send its own. */
void executor_ask_beats(struct master *m, uint32_t slot);
void executor_start(struct master *m, const struct act_start *a);
void executor_stop_attempt(struct master *m, const struct act_stop_attempt *a);
void executor_ack(struct master *m, const struct act_ack *a);
void executor_renew(struct master *m, const struct act_renew *a);
/* ACT_TAKE: the slot a->slot now has the container, and so the executor, of the spare a->from. */
void executor_take_spare(struct master *m, const struct act_take *a);
/* Tell the executor to end. false = it is not connected. */
bool executor_finish(struct master *m, uint32_t slot, uint32_t grace_ms);

/* ---- welcome.c ---- */
int welcome_build(struct master *m, struct err *e);
void welcome_done(struct master *m);
bool welcome_allows_quiet(const struct master *m); /* executor/quiet.h */
/* May one process run this task beside others (executor/crew.h)? Not if its executor has to do more
 * than to start one process and to watch it. */
bool welcome_is_plain(const struct master *m, uint32_t slot);
struct plan; /* storage/plan.h */
/* Add what the executors of role i get. */
void welcome_plan(const struct master *m, size_t i, const char *role, struct plan *p);
int welcome_send(struct master *m, struct peer *p, const struct slot_view *v);
/* The Start frame of a slot. apart: the executor has the addresses in a file. The result is
 * borrowed and valid until the next call; NULL = no memory. */
struct packed *start_frame(struct master *m, const struct act_start *a, const struct slot_view *v,
                           bool apart);

/* ---- cluster_spec.c ---- */
typedef struct Tony__ClusterSpec Tony__ClusterSpec;
typedef struct Tony__Start Tony__Start;
int cluster_spec_open(struct master *m, struct err *e);
void cluster_spec_close(struct master *m);
/* Before a Start is sent: render the addresses again if they have changed. In FCFS mode they may
 * lag behind. 0 or -ENOMEM; a disk that does not take the file leaves cluster_spec.path NULL. */
int cluster_spec_refresh_for_start(struct master *m, const struct peer *p);
/* Must this start wait, because addresses have changed and the next rendering is not due yet? Then
 * it is stored until they are rendered. */
bool cluster_spec_awaited(struct master *m, const struct peer *p, const struct act_start *a);
void cluster_spec_start_waiting(struct master *m); /* sends the stored Start messages now */
/* Does this executor read the addresses from a file, so that its Start needs only the first one? */
bool cluster_spec_is_separate(const struct master *m, const struct peer *p);
/* On a cluster: send Peers, unless the executor has this version. 0 or -errno of the connection. */
int cluster_spec_send(struct master *m, struct peer *p);
/* Addresses have changed: make them known to one running task, or to all. */
void cluster_spec_announce(struct master *m, struct peer *p);
void cluster_spec_announce_to_all(struct master *m);
/* Pack a frame whose member *field is the cluster spec with only the first address of each role.
 * NULL = no memory. */
struct packed *cluster_spec_pack_firsts(const struct master *m, Tony__Frame *f,
                                        Tony__ClusterSpec **field);
/* A Start with all addresses has two parts: this one, and cluster_spec.whole, which all tasks
 * share. NULL = no memory. */
struct packed *cluster_spec_pack_before_whole(const struct master *m, const Tony__Start *s);

/* ---- driver_plan.c ---- */
typedef struct Tony__TaskWord Tony__TaskWord;
/* The driver's executor has sent the plan: store it, and carry out the starts that waited. */
void driver_plan_received(struct master *m, uint32_t slot, const Tony__TaskWord *w);
/* Does this start need a plan that is not known yet? Then it is stored until the plan comes. */
bool driver_plan_delays_start(struct master *m, const struct act_start *a);
void driver_plan_clear(struct master *m);

/* ---- clients.c ---- */
int clients_listen(struct master *m, struct err *e);
/* The system may have removed the socket of this master: if it is missing, make it again. */
void clients_listen_again(void *master);
/* Send Refused, and close the connection. message NULL: only close it. Frees p. */
void peer_refuse(struct peer *p, int num, const char *message);
void peers_close(struct master *m);
/* Take the connection of a peer, which is not one any more. Frees p. */
struct conn *peer_detach(struct peer *p);
/* Make a peer of an open connection. On a cluster its TLS handshake has proved a key of the job. */
void peer_new(struct master *m, struct conn *c);

/* shutdown.c */
/* The history is stored, or storing it has failed: report the verdict to the scheduler. */
void history_kept(const struct err *e, void *arg);

/* hook_child.c: the process of a master on YARN that makes the call at the end of the job */
/* Start it for the request in `parent`. If this fails, it is logged. */
void hook_child_start(struct master *m, const char *parent);
bool hook_child_runs(struct master *m);
/* The verdict should be reported to YARN, which starts no other master afterwards. true: wait a
 * little for the call; history_kept() is called again with *e. */
bool hook_child_delays(struct master *m, const struct err *e);
void hook_child_close(struct master *m);

/* events_answer.c */
/* Append the answer to ClientAsk JOURNAL (proto/tony.proto). */
int events_answer(const struct master *m, const Tony__ClientAsk *ask, struct buf *out,
                  struct err *e);
/* Send an update to all followers, if one is due. Sets notify_timer if it is too early. */
void clients_notify(void *arg);
void clients_answer_stops(struct master *m);
void clients_answer_resizes(struct master *m);
/* Check the request, and give it to the core as EV_RESIZE. 0 or -errno. */
int clients_feed_resize(struct master *m, const Tony__ResizeJob *a, struct err *e);
void clients_send_final_update(struct master *m);
void clients_disconnect_followers(struct master *m); /* those that have received all updates */
/* Bytes that the kernel has not accepted yet. */
size_t clients_unsent_bytes(const struct master *m);

/* ---- streams.c ---- */
/* A client wants a stream to a task. Frees p. */
void streams_open(struct peer *p, const Tony__OpenStream *o);
/* The process of a stream has connected. Frees p. */
void streams_hello(struct peer *p, const Tony__StreamHello *h);
void streams_refused(struct master *m, uint32_t slot, const Tony__StreamRefused *r);
void streams_close(struct master *m);

/* ---- share.c: answers to an arbiter ---- */
/* Append the answer to SHARE (docs/json.md "share"). 0 or -ENOMEM. */
int share_json(const struct master *m, struct buf *out);
/* Check the wish against the bounds of the job file, and give it to the core. 0, or -errno: the job
 * keeps its size. */
int share_wish(struct master *m, const Tony__SizeWish *a, struct err *e);

/* ---- logs.c ---- */
void logs_ask(struct peer *client, const Tony__ReadLog *q);
void logs_answer(struct peer *executor, const Tony__LogData *a);
void logs_executor_gone(struct master *m, uint32_t slot);
void logs_client_gone(struct peer *client);

/* ---- log_watch.c ---- */
void log_watch_begin(struct peer *client, const Tony__WatchLogs *a);
void log_watch_client_gone(struct peer *client);
void log_watch_executor(struct master *m, uint32_t slot); /* its executor has connected */
void log_watch_piece(struct peer *executor, const Tony__LogPiece *p);

/* ---- wished_nodes.c ---- */
/* Are the nodes of the wish valid, with at most this many containers? 0; -EINVAL. */
int wished_nodes_check(const Tony__SizeWish *w, uint32_t most, struct err *e);
/* Replace the wished nodes of the role. 0 or -ENOMEM. */
int wished_nodes_set(struct master *m, uint32_t role, const Tony__SizeWish *w, struct err *e);
void wished_nodes_forget(struct master *m);
/* The node that the next request for this slot should name; NULL = any. Valid until
 * wished_nodes_set().
 */
const char *wished_nodes_take(struct master *m, uint32_t slot);
/* Append the slots that should leave if the role shrinks to n tasks, because their nodes have more
 * containers than wished; separated by commas. 0 or -ENOMEM. */
int wished_nodes_choose_leavers(const struct master *m, uint32_t n, const Tony__SizeWish *w,
                                struct buf *out);
/* Repeat the open requests of the role with the wished nodes. Call it only if all actions of the
 * core have been carried out. 0 or -errno. */
int wished_nodes_repeat_asks(struct master *m, struct err *e);

/* ---- locations.c ---- */
int locations_open(struct master *m, struct err *e);
void locations_close(struct master *m);
int locations_grow(struct master *m, uint32_t n, uint32_t to); /* from n to `to` slots; -ENOMEM */
void locations_set(struct master *m, const struct sched_container *c);
/* The journal record that tells of the grant of the slot's container; 0 = a copy has it. */
void locations_granted(struct master *m, uint32_t slot, uint64_t record_n);
uint64_t locations_granted_n(const struct master *m, uint32_t slot);
void locations_move(struct master *m, uint32_t slot, uint32_t from);  /* a spare became a task */
const char *locations_log_url(const struct master *m, uint32_t slot); /* NULL = not known */
const char *locations_node(const struct master *m, uint32_t slot);    /* NULL = not known */
/* Write the suffix of the log files of the slot's last attempt to out: "" for stdout and stderr,
 * ".2" for stdout.2 and stderr.2, and so on. */
void locations_log_suffix(const struct master *m, uint32_t slot, char *out, size_t n);
/* The status document (docs/json.md). full: with every task. for_all: without text that tasks have
 * written, for readers who may not read logs. */
int master_status_json(const struct master *m, bool full, bool for_all, struct buf *out);

/* ---- queued_resize.c ---- */
int queued_resize_open(struct master *m, struct err *e); /* begins to look for it */
void queued_resize_close(struct master *m);
/* Must SE_REGISTERED wait, because it is not known yet whether there is such a resize? Then it is
 * reported again with the same text. */
bool queued_resize_delays(struct master *m, const struct sched_event *ev);
/* The master has begun its work: give the resize to the core, if one was found. */
void queued_resize_apply(struct master *m);

/* ---- reconnect.c ---- */
/* Connect to the executor of this container until it answers or is no longer needed. node:
 * "host:port" of its NodeManager. Does nothing on one machine, and for the first master of a job.
 */
void reconnect_executor(struct master *m, uint32_t slot, const char *container, const char *node);
void reconnect_close(struct master *m);

/* ---- page.c, page_server.c ---- */
int page_open(struct master *m, struct err *e);
void page_close(struct master *m);
int page_html(const struct master *m, struct buf *out);

/* ---- metrics.c ---- */
int metrics_open(struct master *m, struct err *e);
void metrics_close(struct master *m);
void metrics_on_beat(struct peer *p, const Tony__Beat *b);
/* The attempt of this slot has ended: its series end, and the metrics of the original are known. */
void metrics_on_end(struct master *m, uint32_t slot);
void metrics_finish(struct master *m); /* the job is over: end all series, and write the file */
void metrics_stop_copies(struct master *m); /* no other master needs the file */
/* Append `,"metrics":{...}` and so on to the status document. */
void metrics_job_members(const struct master *m, struct buf *out);
void metrics_task_members(const struct master *m, uint32_t slot, struct buf *out);
/* Append the latest values of the running tasks as text for Prometheus (docs/metrics.md); open: as
 * OpenMetrics. -ENOMEM. */
int metrics_text(const struct master *m, bool open, struct buf *out);
/* The file as it is now, for a client. -ENOENT: there is none. */
int metrics_file_text(struct master *m, struct buf *out, struct err *e);

/* ---- single_node.c ---- */
extern const struct sched_ops sched_single_node;
/* Write the master's log to master.log, because stderr of the container belongs to the task. */
void single_node_open_log(void);
int single_node_open(struct master *m, const struct sched_ops *cluster_ops,
                     const struct sched_config *cfg, struct sched **out, struct err *e);

/* ---- termination.c ---- */
int termination_open(struct master *m, struct err *e);
/* After SE_BROKEN: is the end of the application being handled? false: the master should exit. */
bool termination_on_sched_broken(struct master *m);

/* ---- compact.c ---- */
void compact_if_due(struct master *m); /* after a flush: replace the journal by a snapshot */

/* ---- blocked.c ---- */
/* Writing the journal failed with this error. false: a retry would not help. */
bool blocked_begin(struct master *m, const struct err *why);
bool blocked_must_wait(const struct master *m); /* it is too early to repeat the write */
void blocked_end(struct master *m);             /* the journal was written */
void blocked_load_job_on_disk(struct master *m);

/* ---- shutdown.c ---- */
void master_finish(struct master *m); /* ACT_FINISH: report the verdict, then exit */
/* The journal cannot be written: stop all containers, report the job as failed, then exit. */
void master_journal_failed(struct master *m, const struct err *why);
void journal_failed_on_sched(struct master *m, const struct sched_event *ev);

#endif
