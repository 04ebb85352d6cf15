/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of the client share: the context of one command, output, finding a
 * job.
 *
 *   client.c      reads the command line, and calls the function of the command
 *   commands.c    the table of commands, and their help
 *   options.c     the table of options (options.h)
 *   completion.c  completion for shells
 *   find.c        which cluster a command or a job belongs to
 *   output.c      errors, notes, JSON documents, tables and times
 *   job/          commands that make jobs: run, submit, plan, init, and what they read and ship
 *   show/         commands that show jobs: list, status, why, logs, events, doctor
 *   monitor/      numbers of running jobs: top, metrics
 *   stream/       commands in a running task: exec, shell, cp, forward, notebook, open
 *   pool/         commands about the pool of this machine
 *   policy/       allocate and simulate
 *   arbiter/      tony arbiter (arbiter/arbiter.h)
 *
 * A process runs one command, on one thread. The function of a command gets the one struct client,
 * which client_main() frees, prints its own errors with client_fail(), and returns an exit code
 * (base/exit.h).
 */
#ifndef TONY_CLIENT_CLIENT_INT_H
#define TONY_CLIENT_CLIENT_INT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/vec.h"
#include "client/client.h"
#include "client/options.h"
#include "cluster/cluster.h"
#include "storage/paths.h"

struct conf;
struct job_names;

struct client {
    const struct command *cmd;
    struct options o;
    struct cluster_host host;
    char program[32];        /* of host */
    struct conf *site;       /* after client_site() */
    struct cluster *cluster; /* after client_open() */
    struct job_names *names; /* after names_shown() (show/names.h); NULL before */
    bool tty, color;         /* of stderr, where progress goes */
    bool drawn;              /* the progress of an upload is on the screen */
    bool out_color;          /* of stdout */
    /* For a command that makes its own job without roles (notebook): the command that the job runs
     * unless the user names another one. If it is set, the tony.xml of the current directory is not
     * read. */
    const char *default_am_command;
};

struct command {
    const char *name, *usage, *summary;
    const char *text;     /* paragraphs for --help; may be NULL */
    const char *examples; /* example command lines; --help prints them first */
    option_mask options;
    size_t min_args, max_args;
    bool takes_command; /* what stands behind a "--" does not count as arguments */
    const char *words;  /* the possible first arguments, separated by blanks; may be NULL */
    int (*fn)(struct client *c); /* returns an exit code */
};
const struct command *command_table(size_t *out_n);
const struct command *command_find(const char *name); /* NULL: there is no such command */

/* ---- the commands of commands.c ---- */
int cmd_run(struct client *c);
int cmd_submit(struct client *c);
int cmd_list(struct client *c);
int cmd_status(struct client *c);
int cmd_tasks(struct client *c);
int cmd_why(struct client *c);
int cmd_logs(struct client *c);
int cmd_events(struct client *c);
int cmd_wait(struct client *c);
int cmd_kill(struct client *c); /* kill and stop */
int cmd_resize(struct client *c);
int cmd_exec(struct client *c);
int cmd_shell(struct client *c);
int cmd_forward(struct client *c);
int cmd_cp(struct client *c);
int cmd_open(struct client *c);
int cmd_notebook(struct client *c);
int cmd_azkaban(struct client *c);
int cmd_init(struct client *c);
int cmd_plan(struct client *c);
int cmd_pool(struct client *c);
int cmd_doctor(struct client *c);
int cmd_version(struct client *c);
int cmd_completion(struct client *c);
/* Argument number n of a usage such as "logs APP [TASK] [options]", without brackets. The last
 * argument stands for all later ones if "..." follows it. False: there is no such argument. */
bool usage_argument(const char *usage, size_t n, struct span *out);
int cmd_help(struct client *c);

/* ---- output.c ---- */
/* Print "tony: <sentence>" and the hint on stderr. Returns code. */
int client_fail(int code, const struct err *e);
/* Print "tony: ..." on stderr. */
void client_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Append text of a program or of another user as a terminal may get it: without control characters
 * except tabs, and without escape sequences except, with colors, those that set colours. */
void client_shown(struct buf *out, struct span text, bool colors);
/* The document with all its texts as a terminal may get them; the caller frees it. lines: texts may
 * have several lines, as commands have; else only the end of a log has. */
json_t *doc_shown(const json_t *doc, bool lines);
/* Print doc on stdout as one line. 0 or -errno. */
int client_print_json_line(const json_t *doc);
/* Print doc on stdout. Takes doc. EXIT_DONE, or EXIT_CLUSTER if stdout cannot be written. */
int client_print_json(json_t *doc);
int client_flush_stdout(void);
/* A table: rows of n_cols cells (NULL = empty). The first row is the heading. All columns except
 * the last are padded. */
struct table {
    size_t n_cols;
    struct strv cells;
};
void table_add(struct table *t, ...) __attribute__((sentinel)); /* n_cols strings, then NULL */
void table_print(struct table *t);                              /* on stdout; frees the cells */
const char *doc_str(const json_t *obj, const char *key);        /* "" when absent or null */
int64_t doc_int(const json_t *obj, const char *key, int64_t dflt);
void local_time(int64_t wall_ms, char *out, size_t n);  /* "2026-01-31 12:00:00", or "-" */
void time_of_day(int64_t wall_ms, char *out, size_t n); /* "12:00:00" */
const char *state_color(const char *state); /* escape sequence for a job's or task's state */

/* ---- query.c ---- */
/* Load the status document of the job that the first argument names. Returns an exit code; errors
 * were printed. */
int query_load(struct client *c, json_t **out);

/* ---- job/quick.c ---- */
/* Append a word of a command, so that a shell reads it as this one word. 0, -ENOMEM, -EMSGSIZE. */
int client_quote(struct buf *out, const char *word);

/* ---- find.c ---- */
/* The configuration of the site, with --conf. It belongs to c. */
const struct conf *client_site(struct client *c, struct err *e);
/* The error for the name of a cluster that does not exist. Returns -EXIT_MISUSE. */
int client_no_cluster(const char *name, struct err *e);
/* The cluster of a command without a job; NULL = --cluster names none. */
const struct cluster_ops *client_wanted(struct client *c);
/* Open a cluster for this command; it belongs to c, and replaces the one before. conf: of a job;
 * NULL = of the site. 0, or minus the exit code. */
int client_open(struct client *c, const struct cluster_ops *ops, const struct conf *conf,
                struct cluster **out, struct err *e);
int client_open_wanted(struct client *c, struct cluster **out, struct err *e);
/* Open the cluster of a job that was submitted, and find the whole id. word: an application id, a
 * number, or `last`. 0, or minus the exit code. */
int client_find(struct client *c, const char *word, struct cluster **out, char id[APP_ID_MAX],
                struct err *e);

#endif
