/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of the client share: the context of one command, output, finding a
 * job. */
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
#include "storage/paths.h"

struct history_row;
struct loop;

struct client {
    const struct command *cmd;
    struct options o;
    const char *version;
    struct paths paths; /* after client_open_paths() or client_look_paths() */
    bool have_paths;
    bool looks_only; /* the paths can only be read; not_opened says why */
    struct err not_opened;
    int64_t renewed_ms; /* when it last asked a keeper to make its sockets again; 0 = never */
    struct loop *loop;  /* after client_loop() */
    bool tty, color;   /* of stderr, where progress goes */
    bool out_color;    /* of stdout */
};

struct command {
    const char *name, *usage, *summary;
    const char *text;     /* paragraphs for --help; may be NULL */
    const char *examples; /* example command lines; --help prints them first */
    option_mask options;
    size_t min_args, max_args;
    const char *words; /* the possible first arguments, separated by blanks; may be NULL */
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
int cmd_wait(struct client *c);
int cmd_kill(struct client *c); /* kill and stop */
int cmd_resize(struct client *c);
int cmd_plan(struct client *c);
int cmd_pool(struct client *c);
int cmd_doctor(struct client *c);
int cmd_version(struct client *c);
int cmd_completion(struct client *c);
int cmd_help(struct client *c);

/* ---- client.c ---- */
int client_open_paths(struct client *c, struct err *e); /* makes missing directories */
/* The same for commands that only read: the home may be read-only, or of another user. */
int client_look_paths(struct client *c, struct err *e);
struct loop *client_loop(struct client *c, struct err *e);

/* ---- output.c ---- */
/* Print "tony: <sentence>" and the hint on stderr. Returns code. */
int client_fail(int code, const struct err *e);
/* Print "tony: ..." on stderr. */
void client_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
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
/* One job of `tony list --json` (docs/json.md); NULL = no memory. */
json_t *list_row_json(const struct history_row *r);

/* ---- find.c ---- */
/* "application_..._0012", "12" or "last" -> the whole id. -ENOENT, -EINVAL. */
int find_app(struct client *c, const char *word, char out[APP_ID_MAX], struct err *e);
/* Is this a job on YARN? A job that $TONY_HOME knows is local. For others yarn_wanted() decides. */
bool find_on_yarn(struct client *c, const char *word);
/* The exit code for an error of find_app(). */
int find_exit_code(const struct err *e);

#endif
