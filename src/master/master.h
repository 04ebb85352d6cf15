/*
 * The master of one job: the shell around src/job. It turns what comes in (scheduler, executors,
 * clients, time) into events, writes them to the journal, and only then carries out the actions
 * that came back. It has no state that a new master could not get back from the journal, the
 * scheduler and the executors: it may die at any instant.
 *
 * All events of one turn of the loop are one write() to the journal and one batch of actions.
 */
#ifndef TONY_MASTER_MASTER_H
#define TONY_MASTER_MASTER_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct job_key;
struct loop;
struct master;
struct master_remote;
struct paths;
struct sched_ops;

/* Exit codes; the keeper starts a master again that ended with another one than the first and the
 * last. */
enum master_exit {
    MASTER_OVER = 0, /* the job has its verdict, the scheduler and the followers have been told */
    MASTER_CRASHED = 1,  /* a new master may do better */
    MASTER_MISUSE = 2,   /* wrong arguments */
    MASTER_HOPELESS = 4, /* no master can run this job: job.conf or journal unreadable, or the
                            journal cannot be written */
};

/* For tests: called before (written false) and after each write to the journal, before any action.
 * Before: a negative errno fails the write with it. After: 1 ends the master at once, as if killed
 * there. */
struct master_probe {
    int (*on_write)(void *arg, bool written);
    void *arg;
    int64_t retry_ms; /* between two tries of a write that failed; 0 = as always */
    int64_t mark_ms; /* instead of CLOCK_MARK_MS (history/replay.h); 0 = that */
};

struct master_config {
    struct loop *loop;
    const struct paths *paths;
    const char *application_id;
    uint32_t epoch;
    const struct sched_ops *sched;      /* NULL: the one that the job names */
    const struct master_probe *probe;   /* NULL but in tests */
    const struct master_remote *remote; /* NULL: all that is the job's is on this machine */
};

/*
 * What a master has beyond that whose tasks and clients are on other machines: they dial it over
 * TCP and show that they know a key that only they were given, its page is served, and what is to
 * outlive its node is put elsewhere. All is borrowed for the master's life.
 */
struct master_remote {
    const struct job_key *key;
    const char *address;               /* to listen on; NULL = every IPv4 address */
    const char *container_id;          /* in which the master runs */
    const char *node, *log_url;        /* of that container, for people; NULL = not known */
    bool owned;                        /* a client will follow as the job's owner */
    const struct archive_files *files; /* archive.h; NULL = nothing is kept */
    void *fs;                          /* the first argument of its functions */
    const char *history_dir; /* in those files: of all jobs, absolute; NULL = keep nothing */
    bool history_is_shared;  /* others of our group may read it */
    const char *staging_dir; /* removed at the end; NULL = nothing is */
    /* In those files: the journal is copied there, for another master after this one; NULL = there
     * will be none. journal_there: so many bytes of it are, the file in the job's directory has
     * just been put together from it. */
    const char *journal_dir;
    uint64_t journal_there;
    int64_t archive_ms;      /* how long keeping may hold up the end; 0 = ARCHIVE_MAX_MS */
};

/* Read the job, replay its journal, listen, open the scheduler. The paths and the loop are borrowed
 * for the master's life. Errors: -EBADMSG, -EINVAL, -ENOENT the job cannot be read; -ENOSPC,
 * -EROFS, -EDQUOT its journal cannot be written; others. */
int master_open(const struct master_config *cfg, struct master **out, struct err *e);
void master_close(struct master *m); /* NULL is fine; not in one of its own callbacks */

/* After loop_run() has returned. */
enum master_exit master_exit_code(const struct master *m);

/* tony-master [--epoch E] APPLICATION_ID, or tony-master --yarn */
int master_main(int argc, char **argv);

#endif
