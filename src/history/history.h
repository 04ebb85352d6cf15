/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a live or finished job from its directory. It feeds the events of the journal to the same
 * core (src/job) that ran the job, with the configuration of job.conf. So the result is the state
 * that the master had.
 */
#ifndef TONY_HISTORY_HISTORY_H
#define TONY_HISTORY_HISTORY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/vec.h"

struct err;
struct job;
struct job_file;
struct job_spec;
struct paths;

struct history_job {
    char *dir;
    struct job_file *file;
    struct job_spec *spec;
    struct job *job;                        /* the state after the last record of the journal */
    int64_t started_wall_ms, ended_wall_ms; /* 0 = unknown */
    int64_t now_ms; /* now, in the job's own time (replay.h); a new master would start with it */
    /* A crash cut off a part of the journal's last line. The lines before it are valid. */
    bool torn;
};
/* Read a job. The caller frees *out with history_free(). -ENOENT: no such job; -EBADMSG: a file is
 * damaged, and the error names the line. */
int history_load(const char *dir, struct history_job **out, struct err *e);
void history_free(struct history_job *h);
void history_freep(struct history_job **h);

/* One line of `tony list`. For a finished job it comes from the file `summary` next to the journal,
 * which history_summarize() has written; if that is missing, from status.json. If both are missing,
 * or if the job is live, the journal is replayed, which takes longer. */
struct history_row {
    char *application_id, *name, *user, *state;
    char *note; /* a sentence: when the machine stopped under the job; NULL = nothing to say */
    bool live;
    int64_t submitted_wall_ms, started_wall_ms, ended_wall_ms;
    int64_t ran_ms; /* job_ran_ms(); -1 = unknown */
    uint32_t n_tasks;
};
struct history_rows {
    struct history_row *v;
    size_t n, cap;
};
/* List the jobs, newest first, at most max (0 = all). A job with a damaged journal has the state
 * "DAMAGED", or "NEWER" if a newer version of tony wrote it. The caller frees *out with
 * history_rows_done(). */
int history_list(const struct paths *p, size_t max, struct history_rows *out, struct err *e);
/* The same without the live jobs. */
int history_list_finished(const struct paths *p, size_t max, struct history_rows *out,
                          struct err *e);
void history_rows_done(struct history_rows *r);
/* The name of a live or finished job. The caller frees it. NULL: no such job, or its files cannot
 * be read. */
char *history_name(const struct paths *p, const char *id);
/* How long a live job has run so far, from its journal; -1 = unknown. */
int64_t history_ran_ms(const struct paths *p, const char *id);
/* Read a row from the text of a file `summary`. It sets neither application_id nor live. The caller
 * frees the row with those of a list. -EBADMSG: it is damaged; -EINVAL: its format is newer than
 * ours. */
int history_row_parse(struct span summary, struct history_row *row);

/* Write dir/summary, from which history_list() reads a row about a finished job: status.json of a
 * job with many tasks is long. The file is not synced to disk either. */
int history_summarize(const char *dir, const struct job *job, const struct job_file *f,
                      const struct job_spec *spec, int64_t started_wall_ms, int64_t ended_wall_ms,
                      struct err *e);

/*
 * status.json: the final status of a finished job, which its master writes once, next to the
 * journal. It is the document of job_status_json() with two more members: "format", and "version",
 * the version of tony that wrote it. `tony status`, `why` and `list` read it, so what they say of a
 * finished job does not depend on the rules of a later version. The file is not synced to disk: if
 * a power cut damages it, or if it is larger than JOB_STATUS_MAX, the journal is replayed.
 */
/* Make the text of the file from job_status_json()'s. -ENOMEM, -EINVAL. */
int history_status_text(struct span status, struct buf *out);
/* The reverse; without "format" and "version". -EBADMSG: damaged; -EINVAL: the format is newer than
 * ours. The caller gives *out back with json_decref(). */
int history_status_parse(struct span text, json_t **out, struct err *e);
int history_write_status(const char *dir, struct span status, struct err *e);
/* -ENOENT: there is none; -EBADMSG and -EINVAL as above. */
int history_read_status(const char *dir, json_t **out, struct err *e);
/* The status of a live or finished job: of status.json, or if that is missing or damaged, of the
 * replayed journal. Errors: as of history_read_status() and history_load(). */
int history_status(const char *dir, json_t **out, struct err *e);
/* As history_status(), without the list of the tasks, which may be long. */
int history_status_brief(const char *dir, json_t **out, struct err *e);

/* Remove the jobs in the directory `history` that ended more than age_ms before now_ms (wall time).
 * Returns the number of removed jobs, or -errno. */
int history_retain(const char *history, int64_t age_ms, int64_t now_ms, struct err *e);

/* Make the first event of a job, EV_SUBMITTED. It borrows its strings from f and application_id. */
struct job_event;
struct job_event history_submitted(const struct job_file *f, const char *application_id);
/* Is the job's state final: SUCCEEDED, FAILED or KILLED? */
bool history_decided(const struct job *job);

/* End a job that has no master: it was killed while it waited, or its master cannot be started.
 * Appends the final events to its journal and moves its directory to history/.
 *
 * ev      EV_STOP or EV_LAUNCH_FAILED_JOB
 * Caller  holds the job's lock and knows that no process of the job is alive
 * Repeat  harmless: a job that has a verdict only moves, a job in history/ stays as it is
 *
 * If the disk accepts no more records, the directory is moved without them. history_load()
 * reports a job in history/ without a verdict as FAILED. */
int history_abort(const struct paths *p, const char *application_id, const struct job_event *ev,
                  struct err *e);

#endif
