/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small world around a real master, in its own loop: a scheduler, executors that speak the real
 * frames over the real socket, and a client. All of it outlives the master, which may be killed at
 * any write to its journal and started again.
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

/* What the task of a slot does. */
struct script {
    const char *task; /* "worker:1" is role and index; NULL ends a table */
    int exit_code;
    unsigned run_ms;
    bool hangs;      /* until it is stopped, or until the lost container's task has ended */
    bool dies_first; /* its executor dies with the task, unreported */
};

struct box { /* a container and the executor in it */
    struct world *w;
    uint32_t slot;
    bool lost;                 /* see world_lose() */
    struct listener *listener; /* of the executor, once it is lost: for the next master's call */
    char id[40];
    bool told, launched, completed, completed_told, given_back;
    int exit_code;
    enum end_reason reason;
    struct conn *conn;
    struct loop_timer *timer; /* of the executor: dial again */
    struct loop_timer *work;  /* of the task: it ends */
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
    int64_t busy_ms;       /* after the end a node owes an answer for so long */
    int64_t busy_since_ms; /* when that was asked first */
    bool still_busy;       /* the last answer */
    char finish_state[16];
    struct box boxes[64];
    unsigned n_boxes, n_asks, n_ask_calls, n_launch_calls, n_stop_calls;

    /* what is to go wrong */
    unsigned n_writes;      /* of all masters so far */
    unsigned kill_at;       /* the master dies after this write; 0 = never */
    const char *kill_event; /* the first master dies after it has written this event ... */
    const char *kill_slot;  /* ... of this slot; NULL = the event has none */
    uint32_t lost_slot;     /* slot + 1: see world_lose(); 0 = none */
    bool lists_older;       /* the second master hears of an older container of that slot as well */
    bool lost_ended;        /* the task in the lost container has ended */
    unsigned n_calls;       /* of masters to the executor there */
    unsigned fail_at;       /* this write and all later ones fail */
    unsigned fail_n;        /* only so many of them; 0 = all */
    int fail_errno;
    unsigned fail_syncs; /* the next so many syncs of the journal fail with fail_errno */
    bool drop_unsynced;  /* and then the file loses what was not synced before */
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
    /* asked once something runs, on the client's connection; NULL = nothing is. A name may be that
     * of no role. */
    const char *resize_roles[3], *resize_id; /* resize_id NULL = of this job */
    uint32_t resize_to;
    unsigned resize_when; /* so many tasks run; 0 = as 1 */
    bool resize_asked, resize_answered;
    struct buf resize_answer;
    struct buf bounds; /* what each master told the scheduler: "1:1..2 " by that of epoch 1 */
    int refused_num;
    char refused[480], refused_hint[240];
    struct buf client_json;
    bool other_clock;               /* executors run on a machine that has just been booted */
    bool client_errs_after_start;   /* it asks what a master cannot answer, and is refused */
    bool client_leaves_after_start; /* its connection breaks when a task runs, and does not come
                                       back */

    /* a master on a cluster: everybody dials it over TLS, and it has files elsewhere */
    struct master_remote remote; /* with a key: the world is remote */
    struct job_key key;
    struct {
        struct strv log;         /* what was done with them, in order: "mkdirs /h/app 700", ... */
        int fail;                /* every operation, with this errno */
        bool hang;               /* none ends */
        const char *slow_event;  /* the put of a copy of the journal with this text takes a while */
        bool slow;               /* it has begun */
        unsigned n_running_then; /* tasks that ran when it ended */
        bool holds;              /* puts of copies of the journal end in world_files_release() */
        struct world_op {
            webhdfs_done_fn *done;
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
        bool holds_request; /* it is not found before world_files_release_request() */
    } files;
    void (*on_running)(struct world *w);   /* once, when the first task runs */
    void (*before_write)(struct world *w); /* of the journal */
    bool ran;
    uint32_t reads_log_of; /* slot + 1; 0 = none: the client asks for it when the task runs */
    unsigned n_logs;       /* answers */
    uint32_t log_num;      /* errno of the last one */
    char log_text[200];    /* its data, or its message */
    bool box_hides_log;    /* executors do not answer */
    char diagnostics[600]; /* of finish() */
    const char *fate;      /* what the scheduler says when the master is told to end: "over",
                              "another"; NULL = it cannot say */
    void (*fate_done)(bool over, const char *who, const char *text, void *arg);
    void *fate_arg;
    struct loop_timer *fate_timer;

    unsigned lines_before;     /* of the journal, before write kill_at */
    unsigned n_running_at_end; /* tasks that ran when the scheduler was told that the job is over:
                                  must be 0 */

    bool reads_spec_file; /* what executors say of themselves */
    struct {              /* the last that was heard of the cluster spec */
        unsigned n_starts, n_peers;
        uint64_t bytes;
        char file[200], file_text[200], in_start[200], in_peers[200];
    } spec;

    struct loop_timer *watchdog;
    bool timed_out;
    unsigned n_runs[64]; /* by slot: how often a command was run */
    int exits_asked[64]; /* by slot: the exit code with which its rank was to end; 0 = none */
};

/* conf: "key=value" strings, NULL-terminated. */
void world_init(struct world *w, const char *const *conf, const struct script *scripts);
void world_done(struct world *w);
/* Start a master, and the next one when it crashed, until one ends with another code than
 * MASTER_CRASHED. */
enum master_exit world_run(struct world *w);
/* Before the first run: the master is on a cluster of many machines. */
void world_go_remote(struct world *w);
void world_files_release(struct world *w); /* see files.holds */
void world_files_release_request(struct world *w);
/* Dial the master as whoever; remote worlds only. */
int world_dial(struct world *w, const char *identity, const struct tls_key *key,
               const struct conn_ops *ops, void *arg, struct conn **out);
/* One master only. */
enum master_exit world_run_once(struct world *w);
void world_break_sched(struct world *w);     /* it does not know the master any more */
unsigned world_alive(const struct world *w); /* containers */
/* Cut n whole lines off the end of the journal: a crash in which the kernel had not taken them. */
void world_cut_journal(struct world *w, unsigned n);
unsigned world_journal_lines(const struct world *w);

#endif
