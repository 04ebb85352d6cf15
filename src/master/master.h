/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The master of one job: the shell around the core, src/job.
 *
 * The master turns the messages of the scheduler, the executors and the clients, and the passing of
 * time, into events of the core. It writes these events to the journal, and only then carries out
 * the actions that the core returned. For all events of one turn of the loop it makes one write()
 * and one batch of actions.
 *
 * The master may be killed at any time. A new master restores all its state from the journal, the
 * scheduler and the executors.
 */
#ifndef TONY_MASTER_MASTER_H
#define TONY_MASTER_MASTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "codec/tls.h"

struct err;
struct job_key;
struct journal_probe;
struct loop;
struct master;
struct master_remote;
struct paths;
struct sched_ops;

/* The exit codes of a master. The keeper restarts the master unless it exited with MASTER_OVER,
 * MASTER_HOPELESS or MASTER_LEAVES. */
enum master_exit {
    MASTER_OVER = 0,    /* the master has reported the verdict to the scheduler and the followers */
    MASTER_CRASHED = 1, /* a new master may succeed */
    MASTER_MISUSE = 2,  /* wrong arguments */
    MASTER_HOPELESS = 4, /* every master would fail: job.conf or the journal cannot be read, or the
                            journal cannot be written */
    MASTER_LEAVES = 5,   /* the cluster ends this run of the job, and starts it again later */
};

/* For tests. */
struct master_probe {
    /* Called before (written = false) and after (true) each write to the journal, in both cases
     * before the actions. A negative errno from the first call makes the write fail with it. A 1
     * from either call stops the master at once, as if it had been killed there. */
    int (*on_write)(void *arg, bool written);
    void *arg;
    int64_t retry_ms; /* pause before a failed write is repeated; 0 = RETRY_MS of blocked.c */
    int64_t mark_ms;  /* replaces CLOCK_MARK_MS (history/replay.h); 0 = CLOCK_MARK_MS */
    const struct journal_probe *journal; /* storage/journal.h; NULL = none */
    int64_t segment_min;                 /* replaces JOURNAL_SEGMENT_MIN; 0 = JOURNAL_SEGMENT_MIN */
    size_t status_max;   /* replaces JOB_STATUS_MAX for the final status; 0 = JOB_STATUS_MAX */
    int64_t patience_ms; /* replaces PATIENCE_MS of queued_resize.c; 0 = PATIENCE_MS */
};

struct master_config {
    struct loop *loop;
    struct paths *paths; /* its runtime directory may change */
    const char *application_id;
    uint32_t epoch;
    const struct sched_ops *sched;      /* NULL = the back-end that the job names */
    const struct master_probe *probe;   /* NULL except in tests */
    const struct master_remote *remote; /* NULL = the whole job is on this machine */
};

/*
 * The settings of a master on a cluster, where tasks and clients are on other machines. They
 * connect over TCP with TLS, and prove that they know a key that is derived from `key`. The master
 * serves a web page. It copies the journal and the history to a file system that outlives its node.
 *
 * The master borrows all of it until master_close().
 */
struct master_remote {
    const struct job_key *key;
    struct tls_key resize_key; /* of an arbiter (storage/resizekey.h); len 0 = none */
    /* The values of the job's secrets (storage/secrets.h). With shared_dirs the master reads them
     * from the job's directory. */
    struct span secrets;
    const char *address; /* to listen on; NULL = every IPv4 address */
    /* All nodes see the job's directory under the same path, as on one machine: executors make
     * working directories and logs there, the journal needs no copies, and the keeper moves the
     * directory to the history. The master runs in no container of the cluster, and has no page.
     * All members below are NULL or 0 then. */
    bool shared_dirs;
    const char *container_id;      /* of the container in which the master runs */
    const char *node, *log_url;    /* of that container, for people; NULL = not known */
    const struct files_ops *files; /* the file system (base/files.h); NULL = store nothing */
    void *fs;                      /* the first argument of its functions */
    /* Absolute paths in that file system: */
    const char *history_dir; /* of all jobs; NULL = keep no history */
    bool history_is_shared;  /* its group has access: modes 0770 and 0660 */
    const char *staging_dir; /* removed when the job is over; NULL = none */
    const char *journal_dir; /* for copies of the journal (copies.h), which the next master reads;
                                NULL = the cluster starts no other master */
    const char *metrics_dir; /* the same for the file of metrics */
    int64_t archive_ms;      /* limit for writing the history at the end; 0 = ARCHIVE_MAX_MS */
};

/* Read the job, replay its journal, listen, and connect to the scheduler. The master borrows paths
 * and loop until master_close(). Errors: -EBADMSG, -EINVAL, -ENOENT the job cannot be read;
 * -ENOSPC, -EROFS, -EDQUOT its journal cannot be written; others. */
int master_open(const struct master_config *cfg, struct master **out, struct err *e);
void master_close(struct master *m); /* NULL is fine; do not call it in a callback of the master */

/* Valid after loop_run() has returned. */
enum master_exit master_exit_code(const struct master *m);

/* tony-master [--epoch E] APPLICATION_ID [--cluster], or tony-master --yarn */
int master_main(int argc, char **argv);

#endif
