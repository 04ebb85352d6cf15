/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small world around a real master, in the same loop: a scheduler, executors that use the real
 * frames and the real socket, and a client. The world outlives the master: a test may kill the
 * master at any write to the journal, and start it again.
 */
#ifndef TONY_TESTS_MASTER_WORLD_H
#define TONY_TESTS_MASTER_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/reason.h"
#include "base/vec.h"
#include "codec/tls.h"
#include "hadoop/webhdfs.h"
#include "master/master.h"
#include "storage/jobkey.h"
#include "storage/journal.h"
#include "storage/paths.h"

struct conn;
struct conn_ops;
struct loop_timer;
struct sched_config;

/* The script of one slot's task. */
struct script {
    const char *task; /* "worker:1" is role and index; NULL ends a table */
    int exit_code;
    unsigned run_ms;
    bool hangs; /* runs until it is stopped, or until the task in the lost container has ended */
    bool until_outlook; /* runs until the scheduler is told when the job will end */
    bool dies_first;    /* its executor dies with the task and does not report the end */
};

struct box { /* a container and the executor in it */
    struct world *w;
    uint32_t slot;
    bool lost;                 /* see world_lose() in master_world_int.h */
    struct listener *listener; /* of a lost executor: it listens here for the next master */
    char id[40];
    bool told, launched, completed, completed_told, given_back;
    int exit_code;
    enum end_reason reason;
    struct conn *conn;
    struct loop_timer *timer; /* of the executor: when it reconnects */
    struct loop_timer *work;  /* of the task: when it ends */
    bool until_outlook;
    uint32_t epoch_seen, generation, attempt;
    bool greeted, running, ended, acked, killed;
    int task_code;
};

struct world {
    struct loop *loop;
    struct paths paths;
    char home[64];
    char id[APP_ID_MAX];
    char *job_dir;
    const struct script *scripts;
    struct master *master;
    uint32_t epoch;
    struct master_probe probe;

    /* the scheduler */
    struct sched_config *sched; /* NULL: no master is connected */
    bool say_registered, n_boxes_full, finished;
    struct loop_timer *pump;
    void (*finish_done)(void *arg);
    int64_t busy_ms;       /* how long a node reports that it is busy after the end of the job */
    int64_t busy_since_ms; /* when the master first asked for that */
    long listened_at;      /* the port of the master to which a peer connected last */
    bool still_busy;       /* the last answer of the node to that */
    char finish_state[16];
    struct box boxes[64];
    unsigned n_boxes, n_asks, n_ask_calls, n_launch_calls, n_stop_calls;
    char wished[200]; /* "SLOT=NODE " for each request that prefers a node */

    /* the failures that happen */
    unsigned n_writes;      /* writes of all masters so far */
    unsigned kill_at;       /* the master dies after this write; 0 = never */
    const char *kill_event; /* the first master dies after it has written this event ... */
    const char *kill_slot;  /* ... for this slot; NULL = the event has no slot */
    uint32_t lost_slot;     /* slot + 1 of the container that world_lose() loses; 0 = none */
    bool lost_is_dead;      /* the lost container's executor has died before it ever connected */
    bool lost_port_used;    /* with lost_is_dead: another process listens at one of its ports */
    bool gives_back;        /* the flag of that name that the scheduler reports (scheduler.h) */
    bool lists_older; /* the scheduler also lists an older container of that slot to the second
                         master */
    bool lost_ended;  /* the task in the lost container has ended */
    unsigned n_calls; /* how often masters connected to the executor there */
    unsigned fail_at; /* this write and all later ones fail */
    unsigned fail_n;  /* how many writes fail; 0 = all */
    int fail_errno;
    unsigned fail_syncs; /* how many of the next syncs of the journal fail with fail_errno */
    bool drop_unsynced;  /* a failed sync also loses the bytes that were not synced before */
    struct journal_probe journal_probe;
    int64_t journal_synced; /* bytes of the journal at its last sync */
    unsigned n_masters;
    bool stop_when_running; /* the client asks to stop once a task runs */

    /* the client */
    struct conn *client;
    struct loop_timer *client_timer;
    bool owns, stop_asked, stop_answered;
    unsigned n_updates, n_finished;
    int client_code;
    char client_state[16];
    /* Roles in the client's resize request; NULL = the client sends none. A name may be unknown to
     * the job. */
    const char *resize_roles[3], *resize_id; /* NULL = this job */
    uint32_t resize_to;
    unsigned resize_when; /* number of running tasks at which the client asks; 0 = 1 */
    bool resize_asked, resize_answered;
    struct buf resize_answer;
    unsigned n_outlooks; /* how often the scheduler was told when the job will end */
    int64_t ends_in_ms;  /* the last of these times; < 0 = unknown */
    struct buf bounds; /* the bounds that each master told the scheduler: "1:1..2 " from the master
                          of epoch 1 */
    int refused_num;
    char refused[480], refused_hint[240];
    struct buf client_json;
    bool other_clock; /* the executors' monotonic clock is near 0, as right after a boot */
    bool client_errs_after_start;   /* the client sends a request that the master must refuse */
    bool client_leaves_after_start; /* its connection breaks when a task runs, and it does not
                                       reconnect */

    /* A master on a cluster: each peer connects to it over TLS, and its files are elsewhere. */
    struct master_remote remote; /* has a key if the world is remote */
    struct job_key key;
    struct {
        struct buf conf; /* the text of job.conf in the history */
        struct strv log; /* the operations on these files, in order: "mkdirs /h/app 700", ... */
        int fail;        /* each operation fails with this errno */
        bool hang;       /* no operation ends */
        const char *slow_event;  /* the put of a journal copy that contains this text is slow */
        bool slow;               /* that put has begun */
        unsigned n_running_then; /* tasks that ran when the slow put ended */
        bool holds;              /* puts of journal copies wait for world_files_release() */
        struct world_op {
            files_done_fn *done;
            void *arg;
            enum world_op_kind {
                WORLD_PLAIN = 0,
                WORLD_RMDIR,
                WORLD_RENAME,
                WORLD_LIST,
                WORLD_GET
            } kind;
        } waiting[16], held;
        unsigned n_waiting;
        struct buf request; /* /s/queued/1, which a client has left; empty = there is none */
        bool taken;         /* it is /s/taken/1 now */
        bool holds_request; /* no listing shows it before world_files_release_request() */
    } files;
    void (*on_running)(struct world *w);   /* called once, when the first task runs */
    void (*before_write)(struct world *w); /* called before each write of the journal */
    bool ran;
    uint32_t
        reads_log_of;   /* slot + 1: the client reads the log of this task when it runs; 0 = none */
    unsigned n_logs;    /* answers to that */
    uint32_t log_num;   /* errno of the last of these answers */
    char log_text[200]; /* its data, or its message */
    bool box_hides_log; /* executors do not answer requests for their log */
    char diagnostics[600]; /* the text that the master gave to finish() */
    const char *fate;      /* what the scheduler answers when it tells the master to end: "over",
                              "another"; NULL = nothing */
    void (*fate_done)(bool over, const char *who, const char *text, void *arg);
    void *fate_arg;
    struct loop_timer *fate_timer;

    unsigned lines_before;     /* lines of the journal before write kill_at */
    unsigned n_running_at_end; /* tasks that ran when the scheduler was told that the job is over;
                                  must be 0 */

    bool reads_spec_file; /* executors report that they read the file with the cluster spec */
    struct {              /* the last message about the cluster spec */
        unsigned n_starts, n_peers;
        uint64_t bytes;
        char file[200], file_text[200], in_start[200], in_peers[200];
    } spec;

    struct loop_timer *watchdog;
    bool timed_out;
    unsigned n_runs[64]; /* by slot: how often its command was started */
    int exits_asked[64]; /* by slot: the exit code that the master asked its rank to exit with; 0 =
                            none */
};

/* conf: "key=value" strings, NULL-terminated. */
void world_init(struct world *w, const char *const *conf, const struct script *scripts);
void world_done(struct world *w);
/* Start a master, and another one after each crash, until a master returns a code other than
 * MASTER_CRASHED. */
enum master_exit world_run(struct world *w);
/* Call before the first run: the master then runs on a cluster with many machines. */
void world_go_remote(struct world *w);
void world_files_release(struct world *w); /* see files.holds */
void world_files_release_request(struct world *w);
/* Connect to the master under the given identity; only in remote worlds. */
int world_dial(struct world *w, const char *identity, const struct tls_key *key,
               const struct conn_ops *ops, void *arg, struct conn **out);
/* Runs one master. */
enum master_exit world_run_once(struct world *w);
void world_break_sched(struct world *w);     /* the scheduler forgets the master */
unsigned world_alive(const struct world *w); /* containers that are alive */
/* Cut the last n lines off the journal, as after a crash before the kernel had written them. */
void world_cut_journal(struct world *w, unsigned n);
unsigned world_journal_lines(const struct world *w);

#endif
