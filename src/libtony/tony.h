/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtony: submit, follow and steer distributed machine-learning jobs from C. It does what the
 * commands of `tony` do, with the same code, and finds clusters as they do: the pool of this
 * machine, YARN, Slurm; with the environment variables TONY_HOME, TONY_CONF_DIR and
 * HADOOP_CONF_DIR.
 *
 *     struct tony_error e;
 *     struct tony *t = tony_open(&e);
 *     char id[TONY_ID_SIZE];
 *     int code;
 *     if (tony_submit(t, "job.yaml", NULL, id, &e) < 0 || tony_wait(t, id, &code, NULL, &e) < 0)
 *         fprintf(stderr, "%s\n", e.message);
 *     tony_close(t);
 *
 * Link with `pkg-config --cflags --libs tony`. Symbols have the version TONY_1; a program that is
 * linked with it works with every later libtony.so.0.
 *
 * - Results: functions return 0, or -TONY_E... with *e filled. e may be NULL.
 *
 * - Documents are JSON texts in UTF-8 with the members of `tony ... --json` (docs/json.md).
 *
 * - Units: names of times end in _ms. They are milliseconds; a point in time is milliseconds since
 *   1970.
 *
 * - Ownership: arguments are borrowed for the call. A text that is returned through `char **`
 *   belongs to the caller, who frees it with tony_free(). Arguments of callbacks are valid during
 *   the call.
 *
 * - Waiting: every function waits for its result. None prints, and none changes signal handlers.
 *
 * - Threads: a struct tony is used by one thread at a time. Different ones are independent, but all
 *   read the environment and the working directory of the process.
 *
 * - Jobs: a job is named by its application id, by its number alone, or by "last". It goes on
 *   whether or not the program does.
 */
#ifndef TONY_H
#define TONY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tony;

enum {
    TONY_ID_SIZE = 64, /* bytes of an application id, with its NUL */
    /* The codes of errors, equal to the exit codes of `tony`. */
    TONY_EMISUSE = 2,  /* the job or an argument is wrong, or there is no such job */
    TONY_ECLUSTER = 4, /* the pool, the cluster or this machine has failed; or no memory */
};

struct tony_error {
    int code;          /* TONY_EMISUSE or TONY_ECLUSTER */
    char message[256]; /* one sentence, without a newline */
    char hint[192];    /* what to try next; may be empty */
};

const char *tony_version(void); /* "0.2.0" */

/* NULL: no memory. */
struct tony *tony_open(struct tony_error *e);
void tony_close(struct tony *t); /* NULL is fine */
void tony_free(char *text);      /* NULL is fine */
/* Sentences for people that are no errors, such as warnings about a job file, go to fn. Without
 * this call they are dropped. */
void tony_on_note(struct tony *t, void (*fn)(const char *sentence, void *arg), void *arg);

/*
 * Submit a job.
 *
 * job_file  its path; NULL: the options describe the whole job
 * options   further words of `tony submit`, such as "--conf", "tony.worker.instances=4"; ends with
 *           NULL; may be NULL
 * id        gets the application id
 */
int tony_submit(struct tony *t, const char *job_file, const char *const *options,
                char id[TONY_ID_SIZE], struct tony_error *e);

/* The status document. */
int tony_status(struct tony *t, const char *job, char **out, struct tony_error *e);
/* Wait until the job is over. *out_code: 0 it has succeeded, 1 failed, 3 was killed or exceeded its
 * time. *out: the status document; out may be NULL. */
int tony_wait(struct tony *t, const char *job, int *out_code, char **out, struct tony_error *e);

/* Gets one event (docs/events.md). Returns 0, or another number to end tony_events(). */
typedef int tony_event_fn(const char *event, size_t len, void *arg);
/* Tell all events of a job so far; follow != 0: until it is over. */
int tony_events(struct tony *t, const char *job, int follow, tony_event_fn *fn, void *arg,
                struct tony_error *e);
/* The same for programs with an event loop: *out_fd is a file descriptor for poll(), from which the
 * caller reads the events, one on each line, and which ends when the job is over. A thread of the
 * library writes to it, with a session of its own. Closing the descriptor ends that thread. An
 * error ends the descriptor early, with a line {"event":"error","code":N,"message":TEXT}. */
int tony_events_fd(const char *job, int *out_fd, struct tony_error *e);

enum { TONY_STDOUT = 1, TONY_STDERR = 2 };
/* Gets a part of a log. Returns 0, or another number to end tony_logs(). */
typedef int tony_log_fn(const char *task, const char *stream, const char *text, size_t len,
                        void *arg);
/* Read logs. task: "worker:1", or NULL for all. streams: TONY_STDOUT, TONY_STDERR or both. lines:
 * the number of last lines of each log to read; -1 = all. follow != 0: until the tasks have ended.
 */
int tony_logs(struct tony *t, const char *job, const char *task, int streams, int64_t lines,
              int follow, tony_log_fn *fn, void *arg, struct tony_error *e);

/* The document of `tony metrics --json`. */
int tony_metrics(struct tony *t, const char *job, char **out, struct tony_error *e);

/* Ask for another number of tasks of a role. *out: the answer, the document of `tony resize
 * --json`; out may be NULL. The function returns when the request was accepted; the events tell
 * when the job has the new size. */
int tony_resize(struct tony *t, const char *job, const char *role, uint32_t instances,
                const char *reason, char **out, struct tony_error *e);

enum { TONY_STOP_CHECKPOINT = 1, TONY_STOP_NO_WAIT = 2 };
/* Stop a job. flags: TONY_STOP_CHECKPOINT: its tasks may save a checkpoint first;
 * TONY_STOP_NO_WAIT: return when the stop was accepted, and not only when the job is over. It is no
 * error if the job is over already. */
int tony_stop(struct tony *t, const char *job, int flags, struct tony_error *e);

#ifdef __cplusplus
}
#endif

#endif
