/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of commands, and the help that is generated from it.
 */
#include <errno.h>

#include "base/base.h"
#include "client/arbiter/arbiter.h"
#include "client/client_int.h"
#include "client/monitor/metrics_cmd.h"
#include "client/monitor/top.h"
#include "client/policy/allocate.h"
#include "client/policy/simulate.h"
#include "client/show/resize.h"
#include "client/stream/forward.h"

#define JOB_OPTIONS                                                                                \
    (OPT_BIT(OPT_CONF_FILE) | OPT_BIT(OPT_CONF) | OPT_BIT(OPT_CLUSTER) | OPT_BIT(OPT_EXECUTES) |   \
     OPT_BIT(OPT_TASK_PARAMS) | OPT_BIT(OPT_SRC_DIR) | OPT_BIT(OPT_PYTHON_VENV) |                  \
     OPT_BIT(OPT_PYTHON_BINARY) | OPT_BIT(OPT_SHELL_ENV) | OPT_BIT(OPT_CONTAINER_ENV) |            \
     OPT_BIT(OPT_HDFS_CLASSPATH) | OPT_BIT(OPT_TENSORBOARD) | OPT_BIT(OPT_DEBUG) |                 \
     OPT_BIT(OPT_INSTANCES) | OPT_BIT(OPT_GPUS) | OPT_BIT(OPT_MEMORY) | OPT_BIT(OPT_FRAMEWORK) |   \
     OPT_BIT(OPT_JOB_NAME) | OPT_BIT(OPT_ENV) | OPT_BIT(OPT_SECRET) | OPT_BIT(OPT_SET) |           \
     OPT_BIT(OPT_NO_CHECKS) | OPT_BIT(OPT_VERBOSE))

/* The options of commands about one existing job. */
#define WHERE_OPTIONS (OPT_BIT(OPT_CLUSTER) | OPT_BIT(OPT_CONF) | OPT_BIT(OPT_VERBOSE))

#define APP_TEXT                                                                                   \
    "APP is an application id, its number alone, or `last`: the last job that you submitted from " \
    "this machine, to any cluster. "

static const struct command table[] = {
    { .name = "run",
      .usage = "run [JOBFILE] [options], or run [-n N] [options] -- COMMAND [ARGUMENT ...]",
      .summary = "run a job and follow it until its end",
      .examples =
          "  tony run job.yaml\n"
          "  tony run -n 4 --memory 4g -- python3 train.py --lr 0.1\n"
          "  tony run job.yaml --worker.instances 4 --set roles.worker.memory=2g\n"
          "  tony run --src_dir . --executes 'python3 train.py' --conf tony.worker.instances=2\n",
      .text = "A COMMAND after -- needs no job file: its tasks are those of the role worker. If "
              "it names a file of the current directory, this directory is shipped. The framework "
              "is then generic unless --framework names another. The output of the tasks is shown "
              "with their names in front: of all tasks if there are at most 4, else of the chief; "
              "--output chooses. If a task writes faster than people read, lines are left out and "
              "counted; tony logs has them. Without JOBFILE and --conf_file, ./tony.xml is used "
              "when it is there. Ctrl-C asks the job to stop, and so does closing the terminal; "
              "a second Ctrl-C stops waiting for that. If this client dies, the job is stopped "
              "after tony.client.away-limit; a job of tony submit needs no client. The exit code "
              "is the job's: 0 succeeded, 1 failed, 3 killed or out of its time.",
      .options = JOB_OPTIONS | OPT_BIT(OPT_JSON) | OPT_BIT(OPT_OUTPUT) | OPT_BIT(OPT_QUIET),
      .max_args = 1,
      .takes_command = true,
      .fn = cmd_run },
    { .name = "submit",
      .usage = "submit [JOBFILE] [options] [-- COMMAND ...]",
      .summary = "submit a job without following it; print its application id",
      .examples = "  APP=$(tony submit job.yaml) && tony wait $APP\n",
      .text = "When the id is printed, the job is on disk. It then runs without this command.",
      .options = JOB_OPTIONS | OPT_BIT(OPT_JSON),
      .max_args = 1,
      .takes_command = true,
      .fn = cmd_submit },
    { .name = "list",
      .usage = "list [options]",
      .summary = "list jobs, newest first",
      .examples = "  tony list\n  tony list --all --json\n"
                  "  tony list --state failed,killed --since 2d --name 'train*'\n",
      .text = "Without -n or --all only the 20 newest are listed.",
      .options = OPT_BIT(OPT_STATE) | OPT_BIT(OPT_NAME) | OPT_BIT(OPT_USER) | OPT_BIT(OPT_SINCE) |
                 OPT_BIT(OPT_JSON) | OPT_BIT(OPT_N) | OPT_BIT(OPT_ALL) | WHERE_OPTIONS,
      .fn = cmd_list },
    { .name = "status",
      .usage = "status APP [--json]",
      .summary = "show the state of a job, or how it ended and why",
      .examples = "  tony status last\n  tony status 12 --json\n",
      .text = APP_TEXT,
      .options = OPT_BIT(OPT_JSON) | WHERE_OPTIONS,
      .min_args = 1,
      .max_args = 1,
      .fn = cmd_status },
    { .name = "tasks",
      .usage = "tasks APP [--json]",
      .summary = "list the tasks of a job with state, address and exit",
      .examples = "  tony tasks last\n",
      .text = APP_TEXT,
      .options = OPT_BIT(OPT_JSON) | WHERE_OPTIONS,
      .min_args = 1,
      .max_args = 1,
      .fn = cmd_tasks },
    { .name = "metrics",
      .usage = "metrics APP [TASK...] [--name NAME] [--csv|--json|--plot]",
      .summary = "show what tasks used and reported over time",
      .examples = "  tony metrics last\n  tony metrics last worker:0 --name loss --plot\n"
                  "  tony metrics 12 worker --csv > metrics.csv\n",
      .text = APP_TEXT "TASK is ROLE:INDEX, or ROLE for all of its tasks. Works for running and "
                       "finished jobs. docs/metrics.md lists the names and units. --plot and the "
                       "history bar show rates of cpu_ms, read_bytes and written_bytes.",
      .options = OPT_BIT(OPT_NAME) | OPT_BIT(OPT_CSV) | OPT_BIT(OPT_JSON) | OPT_BIT(OPT_DRAW) |
                 WHERE_OPTIONS,
      .min_args = 1,
      .max_args = 1000,
      .fn = cmd_metrics },
    { .name = "top",
      .usage = "top [APP]",
      .summary = "watch what jobs, or the tasks of one job, use",
      .examples = "  tony top\n  tony top last\n  tony top last > table.txt\n",
      .text = APP_TEXT "On a terminal the table is renewed each 2 s: arrows choose, Enter shows "
                       "the tasks of a job, Esc goes back, n t s c m g sort by name, state, step, "
                       "CPU, memory or GPU, r reverses, q quits. Elsewhere it is printed once. "
                       "CPU is in percent of a core, GPU the mean of the GPUs.",
      .options = WHERE_OPTIONS,
      .max_args = 1,
      .fn = cmd_top },
    { .name = "why",
      .usage = "why APP [--json]",
      .summary = "explain what failed first and what to do, or what a job waits for",
      .examples = "  tony why last\n",
      .text = APP_TEXT "Tasks that failed only because of another one are listed apart from the "
                       "first cause.",
      .options = OPT_BIT(OPT_JSON) | WHERE_OPTIONS,
      .min_args = 1,
      .max_args = 1,
      .fn = cmd_why },
    { .name = "logs",
      .usage = "logs APP [TASK...] [options]",
      .summary = "print what the tasks of a job wrote",
      .examples = "  tony logs last worker:1 --stderr -n 50\n  tony logs last -f\n"
                  "  tony logs last worker:0 ps --since 10m --grep 'loss|error'\n",
      .text = APP_TEXT "TASK is ROLE:INDEX, or ROLE for all of its tasks; without it all tasks "
                       "are shown, standard output first. If there are several files, each gets a "
                       "heading. With -f or --grep each line gets the name of its task instead. "
                       "-f goes on through restarts until the tasks have ended; Ctrl-C ends only "
                       "this command. --since is exact to about 10 s.",
      .options = WHERE_OPTIONS | OPT_BIT(OPT_STDOUT) | OPT_BIT(OPT_STDERR) | OPT_BIT(OPT_N) |
                 OPT_BIT(OPT_FOLLOW) | OPT_BIT(OPT_ATTEMPT) | OPT_BIT(OPT_RANK) |
                 OPT_BIT(OPT_SINCE) | OPT_BIT(OPT_GREP),
      .min_args = 1,
      .max_args = 1000,
      .fn = cmd_logs },
    { .name = "wait",
      .usage = "wait APP... [--all|--any] [--json]",
      .summary = "wait for jobs to end; the exit code is that of the job",
      .examples = "  tony wait last\n  tony wait 12 13 14\n  tony wait 12 13 --any\n",
      .text = APP_TEXT "Of several jobs it waits for all, and the exit code is the first one, in "
                       "the order of the command, that is not 0. With --any it waits for the "
                       "first one that ends, and prints only that.",
      .options = OPT_BIT(OPT_JSON) | OPT_BIT(OPT_ALL) | OPT_BIT(OPT_ANY) | WHERE_OPTIONS,
      .min_args = 1,
      .max_args = SIZE_MAX,
      .fn = cmd_wait },
    { .name = "events",
      .usage = "events APP [-f]",
      .summary = "print the events of a job as lines of JSON",
      .examples =
          "  tony events last\n"
          "  tony events 12 -f | jq -r 'select(.event == \"task\") | .task + \" \" + .state'\n",
      .text = APP_TEXT "Live or finished. With -f it continues until the job is over. "
                       "docs/json.md lists the events.",
      .options = OPT_BIT(OPT_FOLLOW) | WHERE_OPTIONS,
      .min_args = 1,
      .max_args = 1,
      .fn = cmd_events },
    { .name = "stop",
      .usage = "stop APP [--checkpoint] [--no-wait]",
      .summary = "stop a job; with --checkpoint the tasks save their work first",
      .examples = "  tony stop 12 --checkpoint\n",
      .text = APP_TEXT "With --checkpoint tony first asks each task to save a checkpoint, by a "
                       "signal and on its socket, and waits for tony.task.checkpoint-grace. If a "
                       "task handles neither, tony stops it at once. `tony kill` cuts the wait "
                       "short.",
      .options = OPT_BIT(OPT_CHECKPOINT) | OPT_BIT(OPT_NO_WAIT) | WHERE_OPTIONS,
      .min_args = 1,
      .max_args = 1,
      .fn = cmd_kill },
    { .name = "kill",
      .usage = "kill APP [--no-wait]",
      .summary = "stop a job: SIGTERM to its tasks, a grace period, SIGKILL",
      .examples = "  tony kill 12\n",
      .text = APP_TEXT "Returns when the job is over, unless --no-wait. If the job is already "
                       "over, nothing happens.",
      .options = OPT_BIT(OPT_NO_WAIT) | WHERE_OPTIONS,
      .min_args = 1,
      .max_args = 1,
      .fn = cmd_kill },
    { .name = "resize",
      .usage = "resize APP ROLE=N [ROLE=N ...] [--wait] [--timeout TIME] [--reason TEXT] [--json]",
      .summary = "change the number of tasks of a job",
      .examples =
          "  tony resize last worker=8\n"
          "  tony resize 12 worker=2 ps=1 --wait --timeout 30m --reason 'room for others'\n",
      .text = APP_TEXT "A growing job trains on until its new containers are there. It keeps its "
                       "size if they do not come in time. tony.<role>.resize says what happens to "
                       "the tasks then. A job that still waits only changes its request. With "
                       "--wait the exit code is 0 when the resize is done and the tasks that "
                       "leave have ended, 1 when it was given up; Ctrl-C stops the waiting, not "
                       "the resize.",
      .options = OPT_BIT(OPT_TIMEOUT) | OPT_BIT(OPT_REASON) | OPT_BIT(OPT_WAIT) |
                 OPT_BIT(OPT_JSON) | WHERE_OPTIONS,
      .min_args = 1,
      .max_args = 1 + RESIZE_ROLES_MAX,
      .fn = cmd_resize },
    { .name = "exec",
      .usage = "exec APP TASK [-i] [-t] -- COMMAND [ARGUMENT ...]",
      .summary = "run a command beside a task",
      .examples = "  tony exec last worker:0 -- nvidia-smi\n"
                  "  tony exec last worker:0 -it -- python3\n"
                  "  tony exec 12 worker:1 -i -- tar x < data.tar\n",
      .text = APP_TEXT "The command has the working directory, the environment, the limits and "
                       "the image of the task. It does not belong to the task: it is stopped when "
                       "the task ends, and does not delay that. The exit code is that of the "
                       "command, or 128 + n if signal n ended it.",
      .options = OPT_BIT(OPT_TTY) | OPT_BIT(OPT_INPUT) | OPT_BIT(OPT_IT) | WHERE_OPTIONS,
      .min_args = 2,
      .max_args = SIZE_MAX,
      .fn = cmd_exec },
    { .name = "shell",
      .usage = "shell APP TASK",
      .summary = "open a shell beside a task: exec -it with the user's shell",
      .examples = "  tony shell last worker:0\n",
      .text = APP_TEXT,
      .options = WHERE_OPTIONS,
      .min_args = 2,
      .max_args = 2,
      .fn = cmd_shell },
    { .name = "forward",
      .usage = "forward APP TASK [LOCAL:]PORT ...",
      .summary = "connect local ports to ports of a task's machine",
      .examples = "  tony forward last worker:0 8888\n"
                  "  tony forward last worker:0 8080:80 6006\n",
      .text = APP_TEXT "Listens on 127.0.0.1 and prints the addresses. If LOCAL is 0, a free port "
                       "is taken. Ctrl-C ends it.",
      .options = WHERE_OPTIONS,
      .min_args = 3,
      .max_args = 2 + FORWARDS_MAX,
      .fn = cmd_forward },
    { .name = "open",
      .usage = "open APP [TASK] [--no-browser] [--logdir DIR]",
      .summary = "open TensorBoard, or another page that a task announced",
      .examples = "  tony open last\n  tony open 12 --logdir /data/run12\n",
      .text = APP_TEXT "Forwards the port, prints the URL, and opens a browser where there is "
                       "one; Ctrl-C ends it. For a finished job it starts TensorBoard over the "
                       "directory that the job file names as "
                       "tony.application.tensorboard-log-dir, or DIR.",
      .options = WHERE_OPTIONS | OPT_BIT(OPT_NO_BROWSER) | OPT_BIT(OPT_LOGDIR),
      .min_args = 1,
      .max_args = 2,
      .fn = cmd_open },
    { .name = "cp",
      .usage = "cp APP TASK:PATH LOCAL, or cp APP LOCAL TASK:PATH",
      .summary = "copy files and directories from a task, or to it",
      .examples = "  tony cp last worker:0:model.pt .\n"
                  "  tony cp last data/ worker:0:/tmp/data\n",
      .text = APP_TEXT "A relative PATH begins at the working directory of the task. Directories "
                       "are copied with all that is in them, except sockets, pipes, devices, and "
                       "links that lead out of them. If the target is an existing directory, the "
                       "copy is made in it.",
      .options = WHERE_OPTIONS | OPT_BIT(OPT_VERBOSE),
      .min_args = 3,
      .max_args = 3,
      .fn = cmd_cp },
    { .name = "notebook",
      .usage = "notebook [--gpus N] [--memory SIZE] [--src_dir DIR] [--python_venv PATH]\n"
               "                 [--idle TIME] [options]",
      .summary = "run JupyterLab in a container of the cluster",
      .examples = "  tony notebook --memory 8g --gpus 1\n"
                  "  tony notebook --src_dir . --python_venv ~/venv --idle 30m\n",
      .text = "Runs JupyterLab as a job without roles, forwards its port, and prints the URL with "
              "its token. Jupyter must be installed there, or in the virtual environment. Ctrl-C "
              "ends the job. It also ends after --idle without a kernel at work. Save what you "
              "want to keep outside of the working directory. --executes runs another command in "
              "place of JupyterLab, which must listen on $TB_PORT. Jupyter takes the token from "
              "its environment.",
      .options = (JOB_OPTIONS & ~OPT_BIT(OPT_INSTANCES)) | OPT_BIT(OPT_IDLE),
      .fn = cmd_notebook },
    { .name = "init",
      .usage = "init [FILE] [--from-torchrun LINE] [--force]",
      .summary = "write a commented job file for this directory",
      .examples = "  tony init\n"
                  "  tony init --from-torchrun \"torchrun --nproc-per-node 4 train.py --lr 0.1\"\n",
      .text = "Looks for the program, its framework and a virtual environment, or translates a "
              "line of torchrun, accelerate launch, deepspeed, horovodrun, mpiexec, mpirun or "
              "srun. FILE is job.yaml unless another is named.",
      .options = OPT_BIT(OPT_FROM_LINE) | OPT_BIT(OPT_FORCE),
      .max_args = 1,
      .fn = cmd_init },
    { .name = "azkaban",
      .usage = "azkaban [FILE] [options]",
      .summary = "run a job that a properties file of Azkaban describes",
      .examples = "  command=tony azkaban                in a job of Azkaban with type=command\n"
                  "  tony azkaban job.properties --cluster local\n",
      .text = "Takes the properties that Azkaban has written into the file that JOB_PROP_FILE "
              "names, or into FILE: tony.*, worker_env.*, executes, src_dir and the others of "
              "TonY's own job type. Options win over properties. Like `tony run` it follows the "
              "job, and stops it when Azkaban kills the flow.",
      .options = (JOB_OPTIONS & ~OPT_BIT(OPT_CONF_FILE)) | OPT_BIT(OPT_JSON),
      .max_args = 1,
      .fn = cmd_azkaban },
    { .name = "plan",
      .usage = "plan [JOBFILE] [options] [-- COMMAND ...]",
      .summary = "show what a job would request, run and ship, without running it",
      .examples = "  tony plan job.yaml\n  tony plan job.yaml --when\n",
      .options = JOB_OPTIONS | OPT_BIT(OPT_JSON) | OPT_BIT(OPT_WHEN),
      .max_args = 1,
      .takes_command = true,
      .fn = cmd_plan },
    { .name = "pool",
      .usage = "pool status|start|stop|set|why|enable|disable [options] [KEY=VALUE]...",
      .summary = "control the pool that runs jobs on this machine",
      .examples = "  tony pool status --json\n  tony pool stop\n"
                  "  tony pool set policy=dorm loss-max=0.2 payback=1h\n"
                  "  tony pool why\n",
      .text = "It is started when needed and ends by itself after tony.pool.idle-timeout without "
              "a job. `stop` refuses while jobs are live, unless --force, which kills them. `set` "
              "changes the policy by which the pool divides the machine, and prints its settings; "
              "a time is a number of ms, or has a unit: " STR_MS_FORMS
              ". `why` explains its last decision (docs/pool-policy.md). `enable` lets systemd "
              "start the pool with the machine, and jobs that ran before a reboot continue from "
              "their checkpoints; `disable` undoes it. Without it only jobs with restart-on-boot "
              "continue.",
      .options = OPT_BIT(OPT_JSON) | OPT_BIT(OPT_FORCE),
      .min_args = 1,
      .max_args = 16,
      .words = "status start stop set why enable disable",
      .fn = cmd_pool },
    { .name = "allocate",
      .usage = "allocate [--policy NAME] [--exact] [--time-limit TIME] < INSTANCE",
      .summary = "divide a cluster among jobs, without running any",
      .examples = "  tony allocate < instance.json\n"
                  "  tony allocate --policy drf < instance.json\n",
      .text = "Reads nodes and jobs as JSON from standard input, and prints which job gets how "
              "many containers on which nodes, and why. docs/allocate.md has the format and the "
              "policies.",
      .options = OPT_BIT(OPT_POLICY) | OPT_BIT(OPT_TIME_LIMIT) | OPT_BIT(OPT_EXACT),
      .fn = cmd_allocate },
    { .name = "simulate",
      .usage = "simulate TRACE [--policy NAME,NAME] [--nodes LIST] [--json]\n"
               "                 [--plot FILE [--charts LIST]] [--exact [--time-limit TIME]]\n"
               "                 [--format NAME] [--columns LIST] [--elastic LOW,HIGH,EXPONENT]\n"
               "       tony simulate --from-history [--cluster NAME] [--policy NAME,NAME]\n"
               "                 [--nodes LIST] [--json]\n"
               "       tony simulate --generate KIND [--seed N] [--jobs N]",
      .summary = "compare policies on the jobs of a trace",
      .examples = "  tony simulate trace.csv\n"
                  "  tony simulate trace.csv --policy fifo,drf --json\n"
                  "  tony simulate trace.csv --nodes '20x64,512,8 80x64,256,0'\n"
                  "  tony simulate --generate heavy --seed 7 > trace.csv\n",
      .text = "Prints utilization, completion times, loss of fairness and adjustments, one column "
              "a policy. docs/simulate.md has the format of TRACE and what the figures mean.",
      .options = OPT_BIT(OPT_POLICY) | OPT_BIT(OPT_NODES) | OPT_BIT(OPT_JSON) |
                 OPT_BIT(OPT_GENERATE) | OPT_BIT(OPT_SEED) | OPT_BIT(OPT_JOBS) | OPT_BIT(OPT_PLOT) |
                 OPT_BIT(OPT_FORMAT) | OPT_BIT(OPT_COLUMNS) | OPT_BIT(OPT_ELASTIC) |
                 OPT_BIT(OPT_FROM_HISTORY) | OPT_BIT(OPT_CLUSTER) | OPT_BIT(OPT_CHARTS) |
                 OPT_BIT(OPT_EXACT) | OPT_BIT(OPT_TIME_LIMIT) | OPT_BIT(OPT_ESTIMATES),
      .max_args = 1,
      .fn = cmd_simulate },
    { .name = "arbiter",
      .usage = "arbiter run|start|stop|status|key --queue NAME [--cluster yarn|slurm]\n"
               "                 [--policy NAME] [--once] [--dry-run] [--conf KEY=VALUE] [--json]",
      .summary = "divide a queue of YARN, or a partition of Slurm, among running jobs",
      .examples = "  tony arbiter run --queue ml\n"
                  "  tony arbiter run --queue ml --policy drf --once --dry-run\n"
                  "  tony arbiter start --queue ml\n"
                  "  tony arbiter start --cluster slurm --queue gpu\n",
      .text = "`run` asks the masters of the jobs in the queue to shrink or to grow, as a policy "
              "says, until it is killed. Jobs run on without it. `start` runs it as a job of its "
              "own on the cluster; `stop` ends that job, and `status` shows it. On YARN `key` "
              "prints the public key with which it may resize the jobs of other users. "
              "docs/arbiter.md says which jobs it may resize.",
      .options = OPT_BIT(OPT_CLUSTER) | OPT_BIT(OPT_QUEUE) | OPT_BIT(OPT_POLICY) |
                 OPT_BIT(OPT_ONCE) | OPT_BIT(OPT_DRY_RUN) | OPT_BIT(OPT_CONF) | OPT_BIT(OPT_JSON),
      .min_args = 1,
      .max_args = 1,
      .words = "run start stop status key",
      .fn = cmd_arbiter },
    { .name = "doctor",
      .usage = "doctor [--cluster NAME] [--keys] [--json]",
      .summary = "show what this machine offers, and what is wrong with it",
      .examples =
          "  tony doctor\n  tony doctor --cluster slurm\n  tony doctor --keys | grep memory\n",
      .text = "Checks the programs of tony, memory, GPUs, control groups, TONY_HOME and the site "
              "file; with --cluster yarn or slurm also that cluster. If something is wrong, the "
              "exit code is 1.",
      .options = OPT_BIT(OPT_CLUSTER) | OPT_BIT(OPT_KEYS) | OPT_BIT(OPT_JSON),
      .fn = cmd_doctor },
    { .name = "version",
      .usage = "version [--json]",
      .summary = "print the version of this program",
      .options = OPT_BIT(OPT_JSON),
      .fn = cmd_version },
    { .name = "completion",
      .usage = "completion bash|zsh|fish",
      .summary = "print the completion script of a shell",
      .examples = "  source <(tony completion bash)\n  tony completion fish | source\n",
      .text = "make install and the packages install these scripts. They complete commands, "
              "options, jobs and tasks.",
      .min_args = 1,
      .max_args = SIZE_MAX,
      .words = "bash zsh fish",
      .fn = cmd_completion },
    { .name = "help",
      .usage = "help [COMMAND]",
      .summary = "list the commands, or show the help of one command",
      .max_args = 1,
      .fn = cmd_help },
};

const struct command *command_table(size_t *out_n)
{
    *out_n = ARRAY_LEN(table);
    return table;
}

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (str_eq(table[i].name, name))
            return &table[i];
    return NULL;
}

static void help_all(struct buf *out)
{
    static const char *const after[] = {
        "`tony help COMMAND` or `tony COMMAND --help` tells more. Results are written to standard "
        "output, all else to standard error.",
        "Exit codes: 0 succeeded; 1 the job failed; 2 misuse or a refused job; 3 the job was "
        "killed "
        "or exceeded a time limit; 4 the pool, the cluster or this machine has failed.",
        "TONY_HOME (~/.tony) holds jobs, logs and history; TONY_CONF_DIR the site's settings.",
        "Pages such as docs/keys.md, which help and messages name, are in share/doc/tony beside "
        "the "
        "installed programs (/usr/share/doc/tony of a package). Many are manual pages, too: man "
        "tony lists them.",
    };
    (void)buf_adds(out, "tony runs distributed machine-learning jobs.\n\n"
                        "  tony run job.yaml            run a job and follow it\n"
                        "  tony logs last worker:0      what a task of the last job wrote\n"
                        "  tony doctor                  what this machine offers\n\n"
                        "Commands\n");
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        (void)buf_addf(out, "  %-12s %s\n", table[i].name, table[i].summary);
    for (size_t i = 0; i < ARRAY_LEN(after); i++) {
        (void)buf_addc(out, '\n');
        help_wrap(out, after[i], 0);
    }
}

static void help_one(const struct command *cmd, struct buf *out)
{
    if (cmd->examples)
        (void)buf_addf(out, "%s\n", cmd->examples);
    (void)buf_addf(out, "Usage: tony %s\n\n%c%s.\n", cmd->usage,
                   cmd->summary[0] >= 'a' && cmd->summary[0] <= 'z' ? cmd->summary[0] - 'a' + 'A'
                                                                    : cmd->summary[0],
                   cmd->summary + 1);
    if (cmd->text)
        help_wrap(out, cmd->text, 0);
    (void)buf_adds(out, "\nOptions\n");
    options_help(cmd->options | OPT_BIT(OPT_HELP), out);
}

int cmd_help(struct client *c)
{
    bool all = c->cmd->fn == cmd_help && !options_has(&c->o, OPT_HELP);
    const struct command *about = all ? NULL : c->cmd;
    if (c->o.n_args == 1) {
        for (size_t i = 0; i < ARRAY_LEN(table); i++)
            if (str_eq(table[i].name, c->o.args[0]))
                about = &table[i];
        if (!about) {
            const char *names[ARRAY_LEN(table)];
            for (size_t i = 0; i < ARRAY_LEN(table); i++)
                names[i] = table[i].name;
            struct err e;
            (void)err_set(&e, EINVAL, "there is no command '%s'", c->o.args[0]);
            const char *near = str_nearest(c->o.args[0], names, ARRAY_LEN(names));
            if (near)
                err_hint(&e, "did you mean '%s'?", near);
            else
                err_hint(&e, "tony help lists the commands");
            return client_fail(EXIT_MISUSE, &e);
        }
    }

    AUTO(buf_done) struct buf out = { 0 };
    if (about)
        help_one(about, &out);
    else
        help_all(&out);
    (void)fputs(buf_cstr(&out), stdout);
    return client_flush_stdout();
}

int cmd_version(struct client *c)
{
    if (options_has(&c->o, OPT_JSON))
        return client_print_json(json_pack("{s:s}", "version", c->host.version));
    (void)printf("tony %s\n", c->host.version);
    return client_flush_stdout();
}
