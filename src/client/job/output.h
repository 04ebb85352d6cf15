/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of `tony run` that shows the output of tasks (options --output and -q). Standard output
 * of the tasks goes to standard output; everything else goes to standard error.
 */
#ifndef TONY_CLIENT_JOB_OUTPUT_H
#define TONY_CLIENT_JOB_OUTPUT_H

#include "cluster/cluster.h"

struct client;
struct job_spec;
struct err;
struct lines;
struct loop_timer;
struct render;
struct sink;

enum { OUTPUT_TASKS_MAX = 64 }; /* the most tasks that --output may name */

struct output_wish {
    enum cluster_output which;
    bool quiet; /* no progress either */
    struct cluster_log_choice chosen[OUTPUT_TASKS_MAX];
    size_t n_chosen;
};
/* 0 or -EINVAL. The choices borrow from the command line. */
int output_wish(const struct client *c, struct output_wish *out, struct err *e);

/* Does the job have the tasks of --output? -EINVAL: it has no such role. A task that only a resize
 * could add is told as a note. */
int output_check(const struct output_wish *w, const struct job_spec *s, struct err *e);

struct shown_log { /* a log whose text was shown */
    char *task;
    const char *stream;
    uint32_t rank, attempt;
    int64_t to;
    bool ended; /* all text of the task's last attempt has come */
};

struct output {
    struct client *c;
    struct render *render; /* NULL = no progress is shown */
    struct sink *out, *err;
    struct lines *lines[2]; /* of standard output and standard error */
    struct loop_timer *timer;
    VEC(struct shown_log) shown;
};
/* Without memory, nothing is shown. */
void output_open(struct output *o, struct client *c, struct render *render);
void output_add(struct output *o, const struct cluster_log_text *t);
/* The job is over. Show the end of the logs of the chosen tasks, if the master has not sent it.
 * That happens if the tasks ended before this client connected to the master, or if an executor was
 * killed. doc: a status document, which may have no tasks; may be NULL. */
void output_rest(struct output *o, struct cluster *k, const char *id, const struct output_wish *w,
                 const json_t *doc);
/* Write the lines that are still queued, wait until they are read, and free o. */
void output_close(struct output *o);

/* Parse "worker:0" or "worker"; borrows the text. */
int log_choice_parse(const char *text, size_t len, struct cluster_log_choice *out, struct err *e);

#endif
