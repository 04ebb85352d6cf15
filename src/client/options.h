/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of the command line: one table for all commands. Each command names the options that
 * it accepts.
 *
 * Long options are written with one dash or two, and with `_` or `-` between words: -src_dir X,
 * --src_dir X, --src-dir=X.
 */
#ifndef TONY_CLIENT_OPTIONS_H
#define TONY_CLIENT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"

struct err;
struct buf;

/* id, name, letter, argument (NULL = a flag), repeatable, help */
#define OPTIONS(X)                                                                                 \
    X(OPT_CONF_FILE, "conf_file", 0, "FILE", false, "the job file (YAML, or XML by its suffix)")   \
    X(OPT_CONF, "conf", 0, "KEY=VALUE", true,                                                      \
      "set any key (docs/keys.md); wins over the job file and other options")                      \
    X(OPT_CLUSTER, "cluster", 0, "NAME", false,                                                    \
      "where the job runs: local, yarn or slurm (tony.cluster)")                                   \
    X(OPT_EXECUTES, "executes", 0, "COMMAND", false,                                               \
      "command or script that each task runs, relative to src")                                    \
    X(OPT_TASK_PARAMS, "task_params", 0, "TEXT", false, "appended to --executes")                  \
    X(OPT_SRC_DIR, "src_dir", 0, "DIR", false,                                                     \
      "directory (or archive) copied to where each task starts")                                   \
    X(OPT_PYTHON_VENV, "python_venv", 0, "PATH", false,                                            \
      "virtual environment, a directory or an archive; tasks find it as venv/")                    \
    X(OPT_PYTHON_BINARY, "python_binary_path", 0, "PATH", false,                                   \
      "interpreter: absolute, or inside the venv")                                                 \
    X(OPT_SHELL_ENV, "shell_env", 0, "KEY=VALUE", true, "environment of the tasks' commands")      \
    X(OPT_CONTAINER_ENV, "container_env", 0, "KEY=VALUE", true,                                    \
      "environment of executors and commands")                                                     \
    X(OPT_HDFS_CLASSPATH, "hdfs_classpath", 0, "LIST", false,                                      \
      "files and directories of HDFS for all containers; no effect on cluster local")              \
    X(OPT_TENSORBOARD, "sidecar_tensorboard_log_dir", 0, "DIR", false,                             \
      "run TensorBoard beside the job, for the events in DIR")                                     \
    X(OPT_DEBUG, "debug", 0, NULL, false, "accepted because TonY has it; without effect")          \
    X(OPT_JSON, "json", 0, NULL, false, "print the result as JSON on stdout (docs/json.md)")       \
    X(OPT_N, "lines", 'n', "N", false,                                                             \
      "logs: only the last N lines; list: only the newest N jobs")                                 \
    X(OPT_ALL, "all", 'a', NULL, false,                                                            \
      "list: all jobs, not only the newest 20; wait: until all of them are over")                  \
    X(OPT_ANY, "any", 0, NULL, false, "wait only until the first of the jobs is over")             \
    X(OPT_FOLLOW, "follow", 'f', NULL, false,                                                      \
      "print what is new as it comes, until the tasks (events: the job) have ended")               \
    X(OPT_STDOUT, "stdout", 0, NULL, false, "only standard output")                                \
    X(OPT_STDERR, "stderr", 0, NULL, false, "only standard error")                                 \
    X(OPT_ATTEMPT, "attempt", 0, "N", false, "the log of the Nth attempt; default is the last")    \
    X(OPT_RANK, "rank", 0, "N", false, "only process N of a task with several processes (ranks)")  \
    X(OPT_OUTPUT, "output", 0, "WHAT", false,                                                      \
      "whose output is shown: all, chief, none, or tasks such as worker:0,ps; default is all of "  \
      "at most 4 tasks, else the chief")                                                           \
    X(OPT_QUIET, "quiet", 'q', NULL, false, "show no output of tasks and no progress")             \
    X(OPT_GREP, "grep", 0, "PATTERN", false,                                                       \
      "only lines that match this extended regular expression")                                    \
    X(OPT_NO_WAIT, "no-wait", 0, NULL, false, "return as soon as the request is accepted")         \
    X(OPT_CHECKPOINT, "checkpoint", 0, NULL, false,                                                \
      "let the tasks save a checkpoint first (tony.task.checkpoint-grace)")                        \
    X(OPT_TIMEOUT, "timeout", 0, "TIME", false,                                                    \
      "how long the job may wait for new containers: 90s, 10m, 2h (tony.resize.timeout)")          \
    X(OPT_REASON, "reason", 0, "TEXT", false, "why you resize; status and why show it")            \
    X(OPT_WAIT, "wait", 0, NULL, false, "return when the resize is done or has failed")            \
    X(OPT_FORCE, "force", 0, NULL, false,                                                          \
      "pool stop: kill the live jobs first; init: replace the file if it exists")                  \
    X(OPT_POLICY, "policy", 0, "NAME", false,                                                      \
      "the policy; simulate: several, separated by commas")                                        \
    X(OPT_TIME_LIMIT, "time-limit", 0, "TIME", false,                                              \
      "end the search after this time: 500ms, 10s; default is no limit")                           \
    X(OPT_EXACT, "exact", 0, NULL, false,                                                          \
      "let the solver CBC improve the answer (allocate), or each decision (simulate)")             \
    X(OPT_NODES, "nodes", 0, "LIST", false,                                                        \
      "use these nodes instead of the trace's: '15x12,131072,0 5x12,131072,1'")                    \
    X(OPT_GENERATE, "generate", 0, "KIND", false, "print a trace: small or heavy")                 \
    X(OPT_SEED, "seed", 0, "N", false, "start of the random numbers; default is 1")                \
    X(OPT_JOBS, "jobs", 0, "N", false, "how many jobs to generate; default is 50 or 2000")         \
    X(OPT_PLOT, "plot", 0, "FILE", false, "write charts into this file, as SVG")                   \
    X(OPT_CHARTS, "charts", 0, "LIST", false,                                                      \
      "which charts --plot writes: utilization, completion, partitions, held; default is all")     \
    X(OPT_FORMAT, "format", 0, "NAME", false,                                                      \
      "format of the trace: helios, pai or philly; default is auto")                               \
    X(OPT_COLUMNS, "columns", 0, "LIST", false,                                                    \
      "names of the columns of another CSV: submit=submit_time,duration=run_s,gpus=gpu_num")       \
    X(OPT_ELASTIC, "elastic", 0, "LIST", false,                                                    \
      "LOW,HIGH,EXPONENT: how the jobs of such a trace may be resized; default: not at all")       \
    X(OPT_FROM_HISTORY, "from-history", 0, NULL, false,                                            \
      "simulate the finished jobs of this TONY_HOME instead of a trace")                           \
    X(OPT_QUEUE, "queue", 0, "NAME", false,                                                        \
      "the queue of YARN, or the partition of Slurm, to divide")                                   \
    X(OPT_ESTIMATES, "estimates", 0, NULL, false,                                                  \
      "estimate when jobs will start, and compare with the truth")                                 \
    X(OPT_WHEN, "when", 0, NULL, false,                                                            \
      "estimate when the job would start, and which jobs it would delay")                          \
    X(OPT_ONCE, "once", 0, NULL, false, "decide once, and return")                                 \
    X(OPT_DRY_RUN, "dry-run", 0, NULL, false,                                                      \
      "decide, and only print what would be asked of the jobs")                                    \
    X(OPT_NAME, "name", 0, "NAME", true,                                                           \
      "metrics: only this one, such as loss; list: only jobs with this name, such as 'train*'")    \
    X(OPT_STATE, "state", 0, "STATE", false,                                                       \
      "only jobs in this state; several are separated by commas: failed,killed")                   \
    X(OPT_USER, "user", 0, "NAME", false, "only jobs of this user")                                \
    X(OPT_SINCE, "since", 0, "TIME", false, "only what is newer than this time: 90s, 10m, 2h, 3d") \
    X(OPT_CSV, "csv", 0, NULL, false, "print the values as CSV")                                   \
    X(OPT_DRAW, "plot", 0, NULL, false, "draw charts in the terminal")                             \
    X(OPT_KEYS, "keys", 0, NULL, false,                                                            \
      "list every configuration key, what it does here, and its default")                          \
    X(OPT_NO_CHECKS, "no-checks", 0, NULL, false,                                                  \
      "on YARN: submit the job even if the cluster can never run it")                              \
    X(OPT_INSTANCES, "instances", 'n', "N", false, "how many tasks of the role worker")            \
    X(OPT_GPUS, "gpus", 0, "N", false, "GPUs of each task of the role worker")                     \
    X(OPT_MEMORY, "memory", 0, "SIZE", false, "memory of each task of the role worker: 4g, 512m")  \
    X(OPT_FRAMEWORK, "framework", 0, "NAME", false,                                                \
      "pytorch, tensorflow, ... (docs/frameworks.md)")                                             \
    X(OPT_JOB_NAME, "name", 0, "NAME", false, "the name of the job in lists")                      \
    X(OPT_ENV, "env", 0, "KEY=VALUE", true,                                                        \
      "a variable of the tasks' commands; the same as --shell_env")                                \
    X(OPT_SECRET, "secret", 0, "NAME[=SOURCE]", true,                                              \
      "a variable of the tasks that is kept secret; its value comes from env:VARIABLE or "         \
      "file:PATH; without SOURCE from the variable NAME")                                          \
    X(OPT_SET, "set", 0, "NAME=VALUE", true,                                                       \
      "set any value by its name in job files: roles.worker.memory=2g; also --worker.memory 2g")   \
    X(OPT_LOGDIR, "logdir", 0, "DIR", false,                                                       \
      "the directory with the TensorBoard events of a finished job")                               \
    X(OPT_NO_BROWSER, "no-browser", 0, NULL, false, "only print the URL")                          \
    X(OPT_IDLE, "idle", 0, "TIME", false,                                                          \
      "end after this time without a kernel at work: 30m, 2h; default is 2h")                      \
    X(OPT_FROM_LINE, "from-torchrun", 0, "LINE", false,                                            \
      "translate this line of torchrun, accelerate launch, deepspeed, horovodrun, mpiexec, "       \
      "mpirun "                                                                                    \
      "or srun")                                                                                   \
    X(OPT_TTY, "tty", 't', NULL, false, "give the command a terminal")                             \
    X(OPT_INPUT, "interactive", 'i', NULL, false, "send standard input to the command")            \
    X(OPT_IT, "it", 0, NULL, false, "-i and -t: for a shell or another interactive program")       \
    X(OPT_VERBOSE, "verbose", 'v', NULL, false, "print what tony does, in more messages")          \
    X(OPT_HELP, "help", 'h', NULL, false, "show this help")

enum option_id {
#define X(id, ...) id,
    OPTIONS(X)
#undef X
        OPT_COUNT,
};
/* A set of options, one bit each. There are more than 64 options. */
typedef unsigned __int128 option_mask;
#define OPT_BIT(id) ((option_mask)1 << (id))
_Static_assert(OPT_COUNT <= 128, "option_mask has too few bits");

struct option_value {
    enum option_id id;
    const char *value; /* borrowed from argv; NULL for flags */
};

struct options {
    struct option_value *v;
    size_t n, cap;
    const char **args; /* the other arguments, in their order */
    size_t n_args, cap_args;
    size_t n_before;  /* number of args before a "--"; all of them if there is none */
    struct strv made; /* values that are not in argv */
};

/* argv: without the program and the command. allowed: OPT_BITs. -EINVAL: e has a sentence with the
 * nearest name. */
int options_parse(int argc, char *const *argv, option_mask allowed, struct options *out,
                  struct err *e);
void options_done(struct options *o);

bool options_has(const struct options *o, enum option_id id);
const char *options_get(const struct options *o, enum option_id id); /* NULL = not given */
/* The value of a number option; dflt if it was not given. */
int options_int(const struct options *o, enum option_id id, int64_t min, int64_t max, int64_t dflt,
                int64_t *out, struct err *e);

const char *option_name(enum option_id id); /* "--src_dir" */
/* Is the next word of the command line the value of this option, as with "--conf" but not with
 * "--conf=a=b" or "--json"? typed begins with a dash. */
bool options_takes_value(const char *typed);
void options_help(option_mask allowed, struct buf *out);
/* Append a text with line breaks between its words; the first line begins in column `indent`. */
void help_wrap(struct buf *out, const char *text, int indent);
void options_words(option_mask allowed, struct buf *out); /* "--conf --json ...", for completion */

#endif
