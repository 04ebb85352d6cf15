/*
 * A job read back from its directory, live or finished: job.conf and journal replayed through the same core that ran it.
 */
#ifndef TONY_HISTORY_HISTORY_H
#define TONY_HISTORY_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    struct job *job;      /* after the last record */
    int64_t started_wall_ms, ended_wall_ms; /* 0 = not known */
    int64_t now_ms; /* of the job's own time, as a master would say that read the journal now */
    bool torn;            /* the last line was cut (a crash); what stands is good */
};
/* Errors: -ENOENT no such job, -EBADMSG damaged (line named). */
int history_load(const char *dir, struct history_job **out, struct err *e);
void history_free(struct history_job *h);
void history_freep(struct history_job **h);

/* One line of `tony list`, cheap: of a finished job the file `summary` beside its journal (written by history_summarize; when it is
 * missing, and for live jobs, the journal is replayed). */
struct history_row {
    char *application_id, *name, *user, *state;
    bool live;
    int64_t submitted_wall_ms, started_wall_ms, ended_wall_ms;
    int64_t ran_ms; /* job_ran_ms(); -1 = not known */
    uint32_t n_tasks;
};
struct history_rows {
    struct history_row *v;
    size_t n, cap;
};
/* All jobs, newest first, at most max (0 = all). A damaged job appears with state "DAMAGED". */
int history_list(const struct paths *p, size_t max, struct history_rows *out, struct err *e);
void history_rows_done(struct history_rows *r);

/* Write dir/summary: what history_list wants to know of a finished job. Only a shortcut, so it is not synced. */
int history_summarize(const char *dir, const struct job *job, const struct job_file *f,
                      const struct job_spec *spec, int64_t started_wall_ms, int64_t ended_wall_ms,
                      struct err *e);

/* Remove from the directory `history` the jobs that were over more than age_ms before now_ms: how many. */
int history_retain(const char *history, int64_t age_ms, int64_t now_ms, struct err *e);

/* The first event of every job. Strings are borrowed from f and application_id. */
struct job_event;
struct job_event history_submitted(const struct job_file *f, const char *application_id);
/* SUCCEEDED, FAILED or KILLED? */
bool history_decided(const struct job *job);

/* End a job that has no master (killed while waiting, or its master can never be started): appends the events and moves it to history/.
 * The caller holds the job's lock and knows that nothing of the job is alive. ev: EV_STOP or EV_LAUNCH_FAILED_JOB. May be repeated:
 * a job that has a verdict, or is in history already, is fine. When the disk takes no more records the job is moved all the
 * same: one in history without a verdict reads as failed. */
int history_abort(const struct paths *p, const char *application_id, const struct job_event *ev, struct err *e);

#endif
