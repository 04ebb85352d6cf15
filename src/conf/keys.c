/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of keys. Each row defines the type, the bounds, the default and the help of a key;
 * docs/keys.md is generated from it. A name may have <placeholders>: each stands for letters,
 * digits, '-' and '_'. An exact row wins over a pattern.
 *
 * Defaults are those of TonY's own defaults file. Where that file has only a placeholder
 * (/path/to/...), the key is unset.
 */
#include "conf/conf.h"
#include "runtime/frameworks.h"

/* clang-format off */
#define YEARS_MS 315360000000 /* ten years: enough for any job, and sums of such times cannot overflow */
#define YEARS_S 315360000
#define COUNT_MAX 100000 /* tasks of one job */
#define MEM_MAX 67108864 /* 64 TiB in MiB */
#define GPUS_MAX 100000
#define RANKS_MAX 1024 /* more than any machine has cores or GPUs */

#define BARE(type, key, dflt, effect, since, secret, help) \
    { key, sizeof(key) - 1, dflt, INT64_MIN, INT64_MAX, "", NULL, since, help, type, effect, secret }
#define STR(key, dflt, effect, since, help) BARE(CT_STR, key, dflt, effect, since, false, help)
#define SECRET(key, dflt, effect, since, help) BARE(CT_STR, key, dflt, effect, since, true, help)
#define LIST(key, dflt, effect, since, help) BARE(CT_LIST, key, dflt, effect, since, false, help)
/* A list of rising numbers. */
#define LEVELS(key, dflt, min, max, effect, since, help) \
    { key, sizeof(key) - 1, dflt, min, max, "", NULL, since, help, CT_LIST, effect, false }
#define ENVS(key, dflt, effect, since, help) BARE(CT_ENVS, key, dflt, effect, since, false, help)
#define BOOL(key, dflt, effect, since, help) BARE(CT_BOOL, key, dflt, effect, since, false, help)
#define INT(key, dflt, min, max, unit, effect, since, help) \
    { key, sizeof(key) - 1, dflt, min, max, unit, NULL, since, help, CT_INT, effect, false }
#define REAL(key, dflt, min, max, effect, since, help) \
    { key, sizeof(key) - 1, dflt, min, max, "", NULL, since, help, CT_REAL, effect, false }
#define MEM(key, dflt, min, max, effect, since, help) \
    { key, sizeof(key) - 1, dflt, min, max, "MiB", NULL, since, help, CT_MEM, effect, false }
#define ENUM(key, dflt, choices, effect, since, help) \
    { key, sizeof(key) - 1, dflt, INT64_MIN, INT64_MAX, "", choices, since, help, CT_ENUM, effect, false }

#define TONY "TonY"
#define TONY5 "TonY 0.5"
#define OURS "tony 1"

/* Such a key is refused: a job must not run without a constraint that its user has set. */
#define NO_PLACEMENT "This release does not support placement constraints; choose nodes by tony.<role>.node-label and tony.<role>.resource-types."

static const struct conf_key keys[] = {
    /* the job */
    STR("tony.application.name", "TensorFlowApplication", CE_ACTS, TONY, "Name of the job in lists. Without it, a YAML job file gives the job its own name, or that of its directory."),
    STR("tony.application.type", "TONY", CE_YARN, TONY, "Application type that YARN shows."),
    SECRET("tony.application.on-end", NULL, CE_ACTS, OURS, "When the job is over: a command that gets the status document on standard input, or a URL to which it is posted; repeated until it succeeds. secret:NAME takes it from a secret of the job. Also 'on-end' in a job file."),
    STR("tony.application.on-end-secret", NULL, CE_ACTS, OURS, "The secret of the job whose value signs what is posted: HMAC-SHA256 in the header X-Tony-Signature."),
    LIST("tony.application.tags", "", CE_YARN, TONY, "Tags that YARN shows."),
    ENUM("tony.application.framework", "tensorflow", FRAMEWORK_CHOICES + 1, CE_ACTS, TONY,
         "Framework of the tasks: decides which variables they get, and what follows when one of them fails."),
    ENUM("tony.application.distributed-mode", "GANG", "GANG|FCFS", CE_ACTS, TONY,
         "GANG: the tasks start when all have registered; FCFS: each starts at once."),
    BOOL("tony.application.addresses-in-environment", "true", CE_ACTS, OURS,
         "true: the addresses of all tasks are in CLUSTER_SPEC, TF_CONFIG, LIGHTGBM_MACHINES or CLUSTER_WORKER_LIST, depending on the framework; false: they are only in the file TONY_SPEC_FILE."),
    STR("tony.cluster", "local", CE_ACTS, OURS, "Where the job runs: local (this machine), yarn or slurm; also --cluster."),
    INT("tony.application.priority", "0", -1000, 1000, "", CE_ACTS, OURS, "Jobs with a higher number are admitted first."),
    INT("tony.application.weight", "1", 1, 10000, "", CE_ACTS, OURS, "Under the pool's policies dorm, drf and market, a job with twice the weight has a fair share that is twice as large."),
    BOOL("tony.application.restart-on-boot", NULL, CE_ACTS, OURS, "On the pool: if the machine stops while the job runs, does the job go on from its checkpoints after the next boot? Unset means: only if `tony pool enable` was used. Submitting a job with true makes the pool start with the machine. A job that does not go on ends with the state FAILED."),
    REAL("tony.application.budget", NULL, 0, 1000000000, CE_ACTS, OURS, "Under the pool's policy market, what the job can spend; more than 0. Unset means its weight."),
    STR("tony.application.src-dir", NULL, CE_ACTS, OURS, "Directory that is copied into each container, where commands start; also --src_dir."),
    STR("tony.application.python-venv", NULL, CE_ACTS, OURS, "Python environment, a directory or an archive, linked as venv/; also --python_venv."),
    STR("tony.application.python-binary-path", NULL, CE_ACTS, OURS,
        "Interpreter, absolute or relative to the environment; also --python_binary_path."),
    STR("tony.python-exec-path", NULL, CE_ACTS, TONY, "Interpreter of the job; set by the client."),
    BOOL("tony.application.enable-preprocess", "false", CE_ACTS, TONY, "Before all other tasks, one preprocess task runs tony.am.command, or the command of all roles if that is unset. It has tony.am.memory. The text that it prints after 'Model parameters: ' is the variable MODEL_PARAMS of all other tasks."),
    INT("tony.application.timeout", "0", -1, YEARS_MS, "ms", CE_ACTS, TONY, "The job is killed after it has run for this time; 0 means never."),
    LIST("tony.application.prepare-stage", NULL, CE_ACTS, TONY, "Roles that run before those of the training stage."),
    LIST("tony.application.training-stage", NULL, CE_ACTS, TONY, "Roles that wait until the tracked roles of the prepare stage have completed."),
    LIST("tony.application.untracked.jobtypes", "ps", CE_ACTS, TONY, "Roles that the job does not wait for; if one fails, the job fails."),
    LIST("tony.application.sidecar.jobtypes", "tensorboard", CE_ACTS, TONY, "Roles that the job does not wait for and whose failure is ignored."),
    LIST("tony.application.stop-on-failure-jobtypes", "ps", CE_ACTS, TONY, "If one task of these roles fails, the job fails at once."),
    BOOL("tony.application.fail-on-worker-failure-enabled", "false", CE_ACTS, TONY, "Any failed task fails the job at once."),
    LIST("tony.application.group.<group>", NULL, CE_ACTS, TONY5, "Roles that form a group for timeout.after."),
    INT("tony.application.dependency.<role>.timeout.after.<group>", NULL, 0, YEARS_S, "s", CE_ACTS, TONY5,
        "If the role still runs this long after the last task of the group has completed, the job fails."),
    BOOL("tony.application.dependency.<role>.timeout.after.<group>.ignored", "false", CE_ACTS, TONY5,
         "true: after that time the job does not fail, and no longer waits for the role."),
    STR("tony.application.tensorboard-log-dir", NULL, CE_ACTS, TONY, "Adds a sidecar role 'tensorboard' that shows this directory."),
    STR("tony.application.node-label", NULL, CE_YARN, TONY, "Node label for all containers."),
    STR("tony.application.acl-view", "*", CE_YARN, OURS, "Who may see the job: 'user1,user2 group1,group2', or * for all; the owner always may."),
    STR("tony.application.acl-modify", "", CE_YARN, OURS, "Who may kill the job besides its owner: 'user1,user2 group1,group2'; empty means no other user."),
    STR("tony.application.placement-spec", NULL, CE_REFUSED, TONY5, NO_PLACEMENT),
    INT("tony.application.num-client-rm-connect-retries", "3", 0, 1000000, "", CE_YARN, TONY, "How many retry intervals (yarn.resourcemanager.connect.retry-interval.ms, taken as 5 s at most) the client waits for a ResourceManager that does not answer."),
    BOOL("tony.application.security.enabled", "true", CE_YARN, TONY, "Demand a secure cluster; the default accepts an insecure one."),
    STR("tony.application.hdfs-conf-path", NULL, CE_YARN, TONY, "hdfs-site.xml to use, after those of HADOOP_CONF_DIR, and to ship."),
    STR("tony.application.yarn-conf-path", NULL, CE_YARN, TONY, "yarn-site.xml to use, after those of HADOOP_CONF_DIR, and to ship."),
    STR("tony.application.mapred-conf-path", NULL, CE_JVM, TONY, "tony does not use MapReduce."),
    STR("tony.application.hadoop.location", NULL, CE_YARN, TONY, "Hadoop's own archive, to be unpacked in each container."),
    STR("tony.application.hadoop.classpath", NULL, CE_YARN, TONY, "Class path inside that archive."),
    BOOL("tony.application.single-node", NULL, CE_JVM, TONY, "Obsolete: a job without roles runs its command alone."),
    STR("tony.yarn.queue", "default", CE_YARN, TONY, "Queue that the job is submitted to."),
    LIST("tony.yarn.arbiter-keys", "", CE_YARN, OURS, "QUEUE=KEY: the public key of the arbiter of a queue, for the site's file. The arbiter may resize jobs of all users that are submitted to that queue with this setting (docs/arbiter.md). In a job, an empty value says that it may not."),
    LIST("tony.other.namenodes", NULL, CE_JVM, TONY, "tony fetches no tokens: this release refuses a cluster with Kerberos."),
    STR("tony.gpu-exec-path", "nvidia-smi", CE_JVM, TONY, "tony finds GPUs without this program."),

    /* each role */
    INT("tony.<role>.instances", "0", 0, COUNT_MAX, "tasks", CE_ACTS, TONY, "Number of tasks; more than 0 makes the role part of the job."),
    INT("tony.<role>.max-instances", "-1", -1, COUNT_MAX, "tasks", CE_ACTS, TONY, "A larger number of instances is refused, also in a resize; -1 means no cap."),
    INT("tony.<role>.min-instances", "1", 1, COUNT_MAX, "tasks", CE_ACTS, OURS, "The job cannot be resized to fewer instances; at most tony.<role>.instances."),
    ENUM("tony.<role>.resize", NULL, "restart|live|never", CE_ACTS, OURS,
         "What happens to the tasks when the role is resized: restart: all save a checkpoint, stop and start as a new generation; live: tasks are added or stopped while the others run on; never: a resize is refused. Unset: live if the framework can add a task to a running job, else restart."),
    MEM("tony.<role>.memory", "2g", 1, MEM_MAX, CE_ACTS, TONY, "Memory of one task."),
    INT("tony.<role>.vcores", "1", 0, COUNT_MAX, "cores", CE_ACTS, TONY, "Cores of one task; a weight on one machine, 0 claims none."),
    INT("tony.<role>.gpus", "0", 0, GPUS_MAX, "devices", CE_ACTS, TONY, "GPUs of one task, as whole devices."),
    INT("tony.<role>.ranks", "1", 1, RANKS_MAX, "processes", CE_ACTS, OURS, "Processes that run the command in each task of the role, each with its own TONY_LOCAL_RANK; they share the task's memory, cores and GPUs."),
    STR("tony.<role>.command", NULL, CE_ACTS, TONY, "Command of the role, instead of tony.containers.command."),
    STR("tony.<role>.resume-command", NULL, CE_ACTS, OURS, "Run instead of the role's command when the task starts with a checkpoint to resume from (TONY_CHECKPOINT)."),
    LIST("tony.<role>.resources", NULL, CE_ACTS, TONY, "Files for the role: SRC[::NAME][#archive]."),
    ENVS("tony.<role>.env", NULL, CE_ACTS, OURS, "Environment of the role's tasks."),
    LIST("tony.<role>.depends-on", NULL, CE_ACTS, TONY, "Roles that this one waits for: ROLE, all of whose tasks must have completed (without effect in TonY), or ROLE:started, ROLE:ready, ROLE:succeeded."),
    STR("tony.<role>.ready", NULL, CE_ACTS, OURS, "How tasks become ready, for ROLE:ready: port (a program listens on the task's own port of the cluster spec), port:N, file:PATH (in its working directory), or word (only a message on TONY_TASK_SOCKET, which always counts). Unset: port, if a role waits for it."),
    LIST("tony.<role>.stops", NULL, CE_ACTS, OURS, "Roles that are stopped when all tasks of this one have ended."),
    STR("tony.<role>.progress-pattern", NULL, CE_ACTS, OURS, "Extended regular expression for lines of the role's output that report its progress: the first group is the step, the second, if there is one, the total."),
    ENUM("tony.<role>.restart", NULL, "never|on-failure|always", CE_ACTS, OURS,
         "When a task restarts. never: not at all; on-failure: also after a failure that the task caused itself; always: also after success. Unset: only after an end that the task did not cause (see tony.task.restarts.*)."),
    ENUM("tony.<role>.restart-scope", NULL, "task|role|job", CE_ACTS, OURS,
         "Which tasks restart together with a failed task: task: it alone; role: its role; job: the whole gang, as a new generation. Unset: task if the framework can replace a single member, else job."),
    INT("tony.<role>.max-restarts", "3", -1, 1000, "", CE_ACTS, OURS, "Limit of restarts after ends that a task of the role caused itself: for each task, or for all tasks of the role together if restart-scope is role or job; -1 means no limit."),
    INT("tony.<role>.restart-window", "0", 0, YEARS_MS, "ms", CE_ACTS, OURS, "max-restarts counts only the restarts within this time; 0 means all restarts of the job."),
    INT("tony.<role>.restart-delay", "0", 0, 86400000, "ms", CE_ACTS, OURS, "Pause before the first restart. It doubles with each restart that follows soon: from at least 1 s up to 1 min, or up to this value if it is longer."),
    LIST("tony.<role>.retry-on", NULL, CE_ACTS, OURS, "A task restarts only after these exit codes: 3, 10-20; 128 + n stands for signal n. Implies restart on-failure."),
    LIST("tony.<role>.no-retry-on", NULL, CE_ACTS, OURS, "A task never restarts after these exit codes."),
    INT("tony.<role>.spares", "0", 0, 1000, "containers", CE_ACTS, OURS, "Spare containers besides those of the instances: a spare replaces a lost container at once. Each is used once."),
    STR("tony.<role>.node-label", NULL, CE_YARN, TONY, "Node label for the role's containers."),
    LIST("tony.<role>.resource-types", NULL, CE_YARN, OURS, "Further resources of one task by YARN's names: yarn.io/fpga=1; GPUs have their own key."),
    STR("tony.<role>.placement-spec", NULL, CE_REFUSED, TONY5, NO_PLACEMENT),
    LIST("tony.<role>.allocation-tags", NULL, CE_REFUSED, TONY5, NO_PLACEMENT),
    STR("tony.docker.<role>.image", NULL, CE_ACTS, TONY, "Image of the role's containers."),

    /* all containers */
    STR("tony.containers.command", NULL, CE_ACTS, TONY, "Command of every role that has none of its own."),
    LIST("tony.containers.resources", NULL, CE_ACTS, TONY, "Files for all containers: SRC[::NAME][#archive]; --conf adds to it."),
    ENVS("tony.containers.envs", NULL, CE_ACTS, TONY, "Environment of master, executors and tasks; --conf adds to it."),
    ENVS("tony.execution.envs", NULL, CE_ACTS, TONY, "Environment of all tasks; --conf adds to it."),
    ENVS("tony.application.secrets", NULL, CE_ACTS, OURS, "Variables of all tasks whose values are read by the client and are in no configuration, log or history: NAME=env:VARIABLE or NAME=file:PATH; also --secret, and 'secrets' in a job file."),
    STR("tony.containers.placement-spec", NULL, CE_REFUSED, TONY5, NO_PLACEMENT),
    LIST("tony.containers.allocation-tags", NULL, CE_REFUSED, TONY5, NO_PLACEMENT),
    INT("tony.container.allocation.timeout", "-1", -1, YEARS_MS, "ms", CE_ACTS, TONY, "The job fails if not all tasks of a gang have a container within this time; -1 means never."),
    INT("tony.container.registration.timeout", "-1", -1, YEARS_MS, "ms", CE_ACTS, TONY5, "Time within which a task must register after it got its container; -1 means no limit."),
    INT("tony.resize.timeout", "600000", 0, YEARS_MS, "ms", CE_ACTS, OURS, "A job that grows waits this long for its new containers, and keeps its old size if they are not there by then; 0 means no limit."),
    BOOL("tony.docker.enabled", "false", CE_ACTS, TONY, "Run commands in containers of an image: on YARN by its Docker runtime, on the pool by podman or docker."),
    STR("tony.docker.containers.image", NULL, CE_ACTS, TONY, "Image of roles that have none of their own."),
    STR("tony.docker.containers.mount", NULL, CE_ACTS, TONY, "Directories of the machine that containers see in addition to the shipped files: SRC:DST:ro,SRC:DST:rw."),

    /* tasks */
    INT("tony.task.max-total-instances", "-1", -1, INT64_MAX, "tasks", CE_ACTS, TONY, "A job with more tasks in total is refused; -1 means no cap."),
    INT("tony.task.max-total-gpus", "-1", -1, INT64_MAX, "devices", CE_ACTS, TONY, "A job with more GPUs in total is refused; -1 means no cap."),
    INT("tony.task.max-total-<resource>", NULL, -1, INT64_MAX, "", CE_ACTS, TONY, "A job with more memory (MiB) or vcores in total is refused; -1 means no cap."),
    INT("tony.task.heartbeat-interval-ms", "1000", 50, 3600000, "ms", CE_ACTS, TONY, "Pause between two heartbeats of an executor."),
    INT("tony.task.max-missed-heartbeats", "25", 0, 1000000, "", CE_ACTS, TONY, "Number of missed heartbeats after which a task counts as dead; at least 3."),
    INT("tony.task.metrics-interval-ms", "5000", 100, 3600000, "ms", CE_ACTS, TONY, "Memory, CPU time, input and output, threads and GPUs of each task are measured in this interval."),
    BOOL("tony.task.gpu-metrics.enabled", "true", CE_ACTS, TONY, "Measure the GPUs of the tasks, too."),
    INT("tony.task.executor.execution-timeout-ms", "0", -1, YEARS_MS, "ms", CE_ACTS, TONY5, "A command that runs longer is stopped and has failed; 0 means never."),
    INT("tony.worker.timeout", "0", -1, YEARS_MS, "ms", CE_ACTS, TONY, "Older name of tony.task.executor.execution-timeout-ms; for all roles."),
    INT("tony.task.executor.registry-timeout-sec", "0", -1, YEARS_S, "s", CE_JVM, TONY5, "Executors do not poll; see tony.container.registration.timeout."),
    INT("tony.task.executor.execution.error-message-max-depth", "20", 0, 1000, "lines", CE_ACTS, TONY5, "Number of lines of a failed task's stderr that are kept."),
    INT("tony.task.kill-grace-ms", "5000", 0, 3600000, "ms", CE_ACTS, OURS, "Time between TERM and KILL when a task is stopped."),
    BOOL("tony.task.streams", "true", CE_ACTS, OURS, "false: tony exec, shell, forward, open, cp and notebook are refused. A site forbids them by a final value in its file."),
    STR("tony.task.umask", NULL, CE_ACTS, OURS, "File mode creation mask of tasks, in octal, such as 027; unset means that of the shell that submits the job."),
    STR("tony.task.checkpoint-dir", NULL, CE_ACTS, OURS, "Directory where checkpoints appear, for tasks that do not report them on TONY_TASK_SOCKET; relative to the working directory."),
    STR("tony.task.checkpoint-pattern", NULL, CE_ACTS, OURS, "Extended regular expression for the whole name of a checkpoint there; its first group is the step."),
    STR("tony.task.checkpoint-marker", NULL, CE_ACTS, OURS, "A checkpoint is complete when this file is in it, or beside it as NAME followed by this; unset means that it appears by a rename."),
    INT("tony.task.checkpoint-grace", "30000", 0, 86400000, "ms", CE_ACTS, OURS, "Time for a task to save a checkpoint before it is stopped, if the stop asks for a checkpoint."),
    ENUM("tony.task.checkpoint-signal", "TERM", "TERM|USR1|USR2|INT|HUP", CE_ACTS, OURS, "The signal that asks a task for a checkpoint; only processes that handle it get it."),
    INT("tony.task.master-away-limit", "600000", 1000, 4294967295, "ms", CE_ACTS, OURS, "An executor that has had no contact with a master for this time stops its task and ends."),
    INT("tony.task.restarts.preempted", "8", 0, 1000000, "", CE_ACTS, OURS, "How often a task restarts after the cluster preempted it."),
    INT("tony.task.restarts.node-lost", "4", 0, 1000000, "", CE_ACTS, OURS, "How often a task restarts after its node or executor was lost. What YARN ends together with a master is not counted."),
    INT("tony.task.restarts.disk-failed", "4", 0, 1000000, "", CE_ACTS, OURS, "How often a task restarts after a failed disk ended it."),
    INT("tony.task.restarts.launch-failed", "2", 0, 1000000, "", CE_ACTS, OURS, "How often a task restarts after its container did not start."),
    INT("tony.node.max-failures", "3", 0, 1000, "", CE_YARN, OURS, "After this number of failures on a node within tony.node.failure-window, the job requests no new containers there for the same time. It avoids at most a fifth of its nodes at the same time; 0 means that it avoids none."),
    INT("tony.node.failure-window", "3600000", 1, YEARS_MS, "ms", CE_YARN, OURS, "Time within which failures on a node count for tony.node.max-failures, and for which the job then avoids the node."),
    STR("tony.task.am.jvm.opts", "", CE_JVM, TONY, "tony uses no JVM."),
    STR("tony.task.executor.jvm.opts", "-Xmx1536m", CE_JVM, TONY, "tony uses no JVM."),
    STR("tony.task.default.jvm.opts", NULL, CE_JVM, TONY5, "tony uses no JVM."),

    /* the master */
    MEM("tony.am.memory", "2g", 1, MEM_MAX, CE_ACTS, TONY, "Memory of the master. On one machine it counts only if the job has no roles. On YARN, if it is not set, it is 128m and 1m for every 8 tasks, unless the master runs the command itself."),
    INT("tony.am.vcores", "1", 0, COUNT_MAX, "cores", CE_ACTS, TONY, "Cores of the master."),
    INT("tony.am.gpus", "0", 0, GPUS_MAX, "devices", CE_ACTS, TONY, "GPUs of the master."),
    STR("tony.am.command", NULL, CE_ACTS, TONY, "Command of a job without roles, instead of tony.containers.command."),
    LIST("tony.am.resources", NULL, CE_ACTS, TONY, "Files for the master: SRC[::NAME][#archive]."),
    STR("tony.am.node-label", NULL, CE_YARN, TONY5, "Node label for the master."),
    INT("tony.am.retry-count", "0", 0, 1000000, "", CE_ACTS, TONY, "How often the whole job restarts, with all its stages, after a failure; tasks see the number of restarts in NUM_AM_RETRIES."),
    INT("tony.am.max-attempts", "5", 1, 1000, "", CE_YARN, OURS, "YARN restarts a master that dies, until this number of masters have died within tony.am.attempt-window. The cluster's own limit (yarn.resourcemanager.am.max-attempts) counts if it is lower."),
    INT("tony.am.attempt-window", "10000", 1000, YEARS_MS, "ms", CE_YARN, OURS, "How long the death of a master counts for tony.am.max-attempts."),
    INT("tony.am.wait-client-signal-stop-timeout-sec", "15", 0, YEARS_S, "s", CE_JVM, TONY, "The master does not wait for the client."),
    INT("tony.am.startup-timeout", "0", -1, YEARS_MS, "ms", CE_YARN, TONY5, "The client kills a job whose master has not started within this time; 0 means never."),

    /* PyTorch */
    BOOL("tony.pytorch.store", "true", CE_ACTS, OURS, "true: tony serves the store by which the ranks find each other, at rank 0's address; false: for programs that serve it themselves at MASTER_ADDR:MASTER_PORT."),

    /* Horovod */
    BOOL("tony.horovod.mode.test", "false", CE_ACTS, TONY, "Test hook: in the original TonY there is no rendezvous server then; tony always runs one."),
    BOOL("tony.horovod.mode.test.fast.fail", "false", CE_ACTS, TONY, "Test hook: there is no rendezvous server, and the job fails."),
    BOOL("tony.horovod.driver.mode.debug", "false", CE_ACTS, TONY, "The user supplies Horovod's driver: tony.driver.command starts the rendezvous server and makes the plan of ranks."),

    /* client, pool, store */
    INT("tony.client.away-limit", "60000", -1, YEARS_MS, "ms", CE_ACTS, OURS, "A job of `tony run` is stopped when its client has been away for this time; -1 means never. On YARN this holds for a client that has reached the master of the job before."),
    INT("tony.pool.idle-timeout", "600000", -1, YEARS_MS, "ms", CE_ACTS, OURS, "The pool ends when it has had no job for this time; -1 means never."),
    INT("tony.pool.page-port", "0", 0, 65535, "port", CE_ACTS, OURS, "The pool serves its metrics for Prometheus at http://127.0.0.1:PORT/metrics (docs/metrics.md); 0: it has no page."),
    MEM("tony.pool.memory", NULL, 1, MEM_MAX, CE_ACTS, OURS, "Memory that the pool gives to jobs; unset means the memory of the machine minus the reserve."),
    MEM("tony.pool.memory-reserve", "512m", 0, MEM_MAX, CE_ACTS, OURS, "Memory of the machine that the pool does not give to jobs."),
    INT("tony.pool.vcores", NULL, 1, COUNT_MAX, "cores", CE_ACTS, OURS, "Cores that the pool gives to jobs; unset means those of the machine."),
    INT("tony.pool.gpus", NULL, 0, GPUS_MAX, "devices", CE_ACTS, OURS, "GPUs that the pool gives to jobs; unset means all GPUs of the machine."),
    ENUM("tony.pool.policy", "fifo", "fifo|backfill|static|drf|dorm|market|srtf-elastic|las-elastic", CE_ACTS, OURS,
         "How the pool divides the machine among jobs (docs/pool-policy.md). fifo, static: a queue; backfill: small jobs pass a large one if they do not delay it; drf, dorm, market, srtf-elastic and las-elastic also resize jobs that run. tony pool set changes it and the keys below while the pool runs."),
    REAL("tony.pool.policy.theta1", "0.1", 0, 1, CE_ACTS, OURS, "dorm: the bound on the loss of fairness is theta1 times twice the number of resource types, rounded up."),
    REAL("tony.pool.policy.theta2", "0.1", 0, 1, CE_ACTS, OURS, "dorm: a decision adjusts at most this part of the running jobs, rounded up."),
    REAL("tony.pool.policy.loss-max", NULL, 0, 1000, CE_ACTS, OURS, "dorm: the bound on the loss of fairness, instead of theta1."),
    INT("tony.pool.policy.adjust-max", NULL, 0, 1000000, "jobs", CE_ACTS, OURS, "dorm: a decision adjusts at most this number of running jobs, instead of theta2."),
    REAL("tony.pool.policy.reserve", "0", 0, 1000000, CE_ACTS, OURS, "market: the lowest price of the whole machine."),
    LEVELS("tony.pool.policy.levels", "60,600,6000", 0, 1000000000, CE_ACTS, OURS, "las-elastic: rising numbers of seconds, at most 16. A job has attained n seconds when it has held the whole machine for n seconds, or half of it for twice as long. The more of the numbers it has reached, the later it comes."),
    INT("tony.pool.policy.payback", "1800000", 0, 31536000000, "ms", CE_ACTS, OURS, "All policies that resize: no resize that costs more than it gains within this time (docs/partition.md). 0: costs do not count."),
    INT("tony.pool.policy.resize-cost", "10000", 0, 86400000, "ms", CE_ACTS, OURS, "The expected cost of a resize if neither the job nor another job of its name has been resized: the job does no new work for this time."),
    INT("tony.pool.policy.interval", "10000", 0, 86400000, "ms", CE_ACTS, OURS, "The pool waits at least this long between two decisions of a policy. One decision covers all changes in between."),
    INT("tony.pool.policy.resize-limit", "300000", 1000, 86400000, "ms", CE_ACTS, OURS, "A running job has this time to follow a decision. After that it keeps its size, and the policy does not change it during the same time once more."),
    INT("tony.pool.policy.time-limit", "500", 1, 60000, "ms", CE_ACTS, OURS, "dorm: the search for a better division ends after this time."),
    STR("tony.slurm.partition", NULL, CE_SLURM, OURS, "Partition of the job; several are separated by commas. Without it tony.yarn.queue counts if it is set, else the default partition of the site."),
    STR("tony.slurm.account", NULL, CE_SLURM, OURS, "Account that the job is charged to."),
    STR("tony.slurm.qos", NULL, CE_SLURM, OURS, "Quality of service."),
    STR("tony.slurm.constraint", NULL, CE_SLURM, OURS, "Features that the nodes must have, as sbatch --constraint takes them. Without it tony.application.node-label counts."),
    STR("tony.slurm.nodelist", NULL, CE_SLURM, OURS, "Nodes that the allocation must contain."),
    STR("tony.slurm.exclude", NULL, CE_SLURM, OURS, "Nodes that the allocation must not contain."),
    STR("tony.slurm.reservation", NULL, CE_SLURM, OURS, "Reservation from which the nodes are taken."),
    STR("tony.slurm.licenses", NULL, CE_SLURM, OURS, "Licences that the job needs, as sbatch --licenses takes them."),
    INT("tony.slurm.time-limit", "0", 0, YEARS_MS, "ms", CE_SLURM, OURS, "Time limit of the job in Slurm, rounded up to minutes; 0 means that of the partition."),
    INT("tony.slurm.nice", "0", 0, 1000000, "", CE_SLURM, OURS, "Lowers the priority of the job in Slurm by this number. A negative tony.application.priority does the same."),
    INT("tony.slurm.nodes", "0", 0, 100000, "nodes", CE_SLURM, OURS, "Number of nodes; 0 means as few as hold the job. The tasks are spread over them."),
    INT("tony.slurm.spare-nodes", "0", 0, 1000, "nodes", CE_SLURM, OURS, "Further nodes of the allocation in reserve: the tasks of a lost node restart there."),
    ENUM("tony.slurm.components", "auto", "auto|one|roles", CE_SLURM, OURS, "one: all roles share nodes of one size. roles: each role is a component of a heterogeneous job. auto: components only if roles have different node labels, if no node can hold all roles, or if nodes without tasks that use GPUs would get GPUs."),
    BOOL("tony.slurm.further-allocations", "true", CE_SLURM, OURS, "If a node is lost and no spare node has room for its tasks, or if the job grows (tony resize), its master submits further batch jobs, whose nodes join the job. false: it uses only its first allocation, as a job with components does."),
    STR("tony.slurm.gpu-type", NULL, CE_SLURM, OURS, "Type of the GPUs, as the site's Gres names it; unset means any."),
    BOOL("tony.slurm.requeue", "true", CE_SLURM, OURS, "If Slurm needs the nodes for another job, or the first node of the allocation fails, the job goes back into the queue of Slurm, and continues from its checkpoints when it starts again. false: it ends."),
    BOOL("tony.slurm.requeue-at-limit", "false", CE_SLURM, OURS, "Before its time limit is over, the job saves checkpoints and goes back into the queue of Slurm, instead of ending."),
    LIST("tony.slurm.extra-arguments", "", CE_SLURM, OURS, "Further options of sbatch, verbatim: --mail-type=END,--comment=x. They come last and so win over those of tony."),
    INT("tony.yarn.cache-age", "2592000000", 3600000, YEARS_MS, "ms", CE_YARN, OURS, "Content in <home>/.tony/cache in HDFS that no job has used for this time is removed; what a live job uses stays."),
    INT("tony.store.max-age", "604800000", 0, YEARS_MS, "ms", CE_ACTS, OURS, "Content that no live job uses is removed from the store after this time."),

    /* history and portal */
    STR("tony.port-range", NULL, CE_YARN, OURS, "FIRST-LAST: the ports at which masters, their pages, executors and tasks listen for other machines, for sites with a firewall: 20000-20999. A node needs three of them for each of its tasks, and at least 16. Unset means any free port for a master, its page and a task, and 20000-27999 for executors. Ports that a program chooses itself, such as those of gloo and NCCL, are not in it."),
    STR("tony.history.location", NULL, CE_YARN, TONY, "Directory in HDFS of finished jobs; unset means <home>/.tony/history."),
    STR("tony.history.intermediate", NULL, CE_JVM, TONY, "tony writes the history of a job directly to its final place."),
    STR("tony.history.finished", NULL, CE_JVM, TONY, "tony writes the history of a job directly to its final place."),
    INT("tony.history.mover-interval-ms", "300000", 0, YEARS_MS, "ms", CE_JVM, TONY, "There is nothing to move."),
    INT("tony.history.purger-interval-ms", "21600000", 0, YEARS_MS, "ms", CE_JVM, TONY, "There is no purger process."),
    INT("tony.history.retention-sec", "2592000", -1, YEARS_S, "s", CE_ACTS, TONY, "How long the history of finished jobs is kept; -1 means for ever. The pool reads it in the site's file."),
    STR("tony.history.finished-dir-timezone", "UTC", CE_JVM, TONY, "The names of directories have no dates."),
    STR("tony.portal.url", "https://localhost:19886", CE_JVM, TONY, "The portal of the original cannot show these jobs; use tony status, tony logs and the job's own page."),
    INT("tony.portal.cache.max-entries", "10000", 0, INT64_MAX, "", CE_JVM, TONY, "The portal has no such cache."),
    STR("tony.keytab.user", "user1", CE_JVM, TONY, "Only the portal of the original TonY uses this key."),
    STR("tony.keytab.location", NULL, CE_JVM, TONY, "Only the portal of the original TonY uses this key."),
    STR("tony.https.port", "19886", CE_JVM, TONY, "Only the portal of the original TonY uses this key."),
    STR("tony.https.keystore.path", NULL, CE_JVM, TONY, "Only the portal of the original TonY uses this key."),
    STR("tony.https.keystore.type", "JKS", CE_JVM, TONY, "Only the portal of the original TonY uses this key."),
    SECRET("tony.https.keystore.password", "password", CE_JVM, TONY, "Only the portal of the original TonY uses this key."),
    STR("tony.https.keystore.algorithm", "SunX509", CE_JVM, TONY, "Only the portal of the original TonY uses this key."),
    STR("tony.http.port", "disabled", CE_JVM, TONY, "Only the portal of the original TonY uses this key."),
    SECRET("tony.secret.key", "changeme", CE_JVM, TONY, "Only the portal of the original TonY uses this key."),
    STR("tony.version-info.version", NULL, CE_JVM, TONY, "The client of the original TonY writes this key."),
    STR("tony.version-info.revision", NULL, CE_JVM, TONY, "The client of the original TonY writes this key."),
    STR("tony.version-info.branch", NULL, CE_JVM, TONY, "The client of the original TonY writes this key."),
    STR("tony.version-info.user", NULL, CE_JVM, TONY, "The client of the original TonY writes this key."),
    STR("tony.version-info.date", NULL, CE_JVM, TONY, "The client of the original TonY writes this key."),
    STR("tony.version-info.url", NULL, CE_JVM, TONY, "The client of the original TonY writes this key."),
    STR("tony.version-info.checksum", NULL, CE_JVM, TONY, "The client of the original TonY writes this key."),
};
/* clang-format on */

const struct conf_key *conf_keys(size_t *out_n)
{
    *out_n = sizeof keys / sizeof *keys;
    return keys;
}
