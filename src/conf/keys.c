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

/* The help of keys for placement constraints, which are refused: a job must not run without a
 * constraint that its user has set. */
#define NO_PLACEMENT "This release does not support placement constraints; choose nodes by tony.<role>.node-label and tony.<role>.resource-types."

static const struct conf_key keys[] = {
    /* the job */
    STR("tony.application.name", "TensorFlowApplication", CE_ACTS, TONY, "Name of the job in lists. Unset, a YAML job file gives the job the name of the file, or that of its directory if the file is job.yaml or tony.yaml."),
    STR("tony.application.type", "TONY", CE_YARN, TONY, "Application type that the ResourceManager shows in its lists."),
    SECRET("tony.application.on-end", NULL, CE_ACTS, OURS, "Called when the job is over: a command, which gets the status document on standard input, or a URL to which the document is posted. The call is repeated until it succeeds, for at most a day (docs/events.md). secret:NAME takes the command or the URL from a secret of the job. In a job file also on-end."),
    STR("tony.application.on-end-secret", NULL, CE_ACTS, OURS, "Name of a secret of the job. Its value signs what is posted to the URL: HMAC-SHA256 in the header X-Tony-Signature."),
    LIST("tony.application.tags", "", CE_YARN, TONY, "Tags of the application that the ResourceManager shows, such as team:vision,nightly."),
    ENUM("tony.application.framework", "tensorflow", FRAMEWORK_CHOICES + 1, CE_ACTS, TONY,
         "Framework of the tasks. It decides which variables a task gets, and what follows when one of them fails (docs/frameworks.md)."),
    ENUM("tony.application.distributed-mode", "GANG", "GANG|FCFS", CE_ACTS, TONY,
         "When the tasks start. GANG: together, when all of them have a container and have registered. FCFS: each one as soon as it has its own."),
    BOOL("tony.application.addresses-in-environment", "true", CE_ACTS, OURS,
         "true: a task finds the addresses of all tasks in a variable: CLUSTER_SPEC, TF_CONFIG, LIGHTGBM_MACHINES or CLUSTER_WORKER_LIST, depending on the framework. false: it finds them only in the file that TONY_SPEC_FILE names."),
    STR("tony.cluster", "local", CE_ACTS, OURS, "Where the job runs: local (this machine), yarn or slurm. The option --cluster does the same."),
    INT("tony.application.priority", "0", -1000, 1000, "", CE_ACTS, OURS, "On the pool, jobs with a higher number are admitted first. On YARN, the priority of the application. On Slurm, a negative number lowers the priority (sbatch --nice)."),
    INT("tony.application.weight", "1", 1, 10000, "", CE_ACTS, OURS, "For the pool's policies dorm, drf and market: a job with weight 2 has a fair share that is twice as large as that of a job with weight 1."),
    BOOL("tony.application.restart-on-boot", NULL, CE_ACTS, OURS, "On the pool: does the job continue from its checkpoints if the machine stops and is booted again? true: yes, and submitting the job lets systemd start the pool with the machine. false: the job ends as FAILED. Unset: yes if tony pool enable was used."),
    REAL("tony.application.budget", NULL, 0, 1000000000, CE_ACTS, OURS, "For the pool's policy market: what the job can spend; more than 0. Unset: its weight."),
    STR("tony.application.src-dir", NULL, CE_ACTS, OURS, "Directory or archive whose content is copied into the working directory of each task. The option --src_dir does the same."),
    STR("tony.application.python-venv", NULL, CE_ACTS, OURS, "Python environment, a directory or an archive. Tasks find it as venv/ in their working directory. The option --python_venv does the same."),
    STR("tony.application.python-binary-path", NULL, CE_ACTS, OURS,
        "Interpreter that runs the command: an absolute path, or one inside the Python environment such as bin/python3. The option --python_binary_path does the same."),
    STR("tony.python-exec-path", NULL, CE_ACTS, TONY, "Interpreter of the job. The client sets it; job files do not need it."),
    BOOL("tony.application.enable-preprocess", "false", CE_ACTS, TONY, "true: before all other tasks, one task preprocess:0 runs tony.am.command, or the command of all roles if that is unset, with the resources of tony.am.*. The text that it prints after 'Model parameters: ' is the variable MODEL_PARAMS of all other tasks."),
    INT("tony.application.timeout", "0", -1, YEARS_MS, "ms", CE_ACTS, TONY, "tony stops the job when it has run for this time; its state is then KILLED. 0 or -1: no limit."),
    LIST("tony.application.prepare-stage", NULL, CE_ACTS, TONY, "Roles that run first, such as prepare. The roles of the training stage wait for them."),
    LIST("tony.application.training-stage", NULL, CE_ACTS, TONY, "Roles that start when the tracked roles of the prepare stage have completed, such as worker,ps."),
    LIST("tony.application.untracked.jobtypes", "ps", CE_ACTS, TONY, "Roles whose end the job does not wait for. If one of their tasks fails, the job fails."),
    LIST("tony.application.sidecar.jobtypes", "tensorboard", CE_ACTS, TONY, "Roles whose end the job does not wait for, and whose failures it ignores."),
    LIST("tony.application.stop-on-failure-jobtypes", "ps", CE_ACTS, TONY, "Roles of which a single failed task fails the job at once."),
    BOOL("tony.application.fail-on-worker-failure-enabled", "false", CE_ACTS, TONY, "true: the first tracked task that fails fails the job. false: other tasks than the chief may fail (docs/job-files.md)."),
    LIST("tony.application.group.<group>", NULL, CE_ACTS, TONY5, "Roles that form a group, for the timeout.after keys below: worker,chief."),
    INT("tony.application.dependency.<role>.timeout.after.<group>", NULL, 0, YEARS_S, "s", CE_ACTS, TONY5,
        "The job fails if the role still runs this time after the last task of the group has completed. Unset: no limit."),
    BOOL("tony.application.dependency.<role>.timeout.after.<group>.ignored", "false", CE_ACTS, TONY5,
         "true: when the time of timeout.after is over, the job does not fail, and no longer waits for the role."),
    STR("tony.application.tensorboard-log-dir", NULL, CE_ACTS, TONY, "Directory with the events of TensorBoard. tony adds a sidecar role tensorboard that shows it. The option --sidecar_tensorboard_log_dir does the same."),
    STR("tony.application.node-label", NULL, CE_YARN, TONY, "Node label for all containers. On Slurm it counts as the constraint of the nodes."),
    STR("tony.application.acl-view", "*", CE_YARN, OURS, "Users and groups that may see the job on YARN: 'user1,user2 group1,group2', or * for all. The owner always may."),
    STR("tony.application.acl-modify", "", CE_YARN, OURS, "Users and groups that may kill the job on YARN besides its owner: 'user1,user2 group1,group2'. Empty: nobody else."),
    STR("tony.application.placement-spec", NULL, CE_REFUSED, TONY5, NO_PLACEMENT),
    INT("tony.application.num-client-rm-connect-retries", "3", 0, 1000000, "", CE_YARN, TONY, "How long the client waits for a ResourceManager that does not answer: this number of times yarn.resourcemanager.connect.retry-interval.ms, of which at most 5 s count."),
    BOOL("tony.application.security.enabled", "true", CE_YARN, TONY, "Leave it unset, or set it to false. A job that sets true asks for a cluster with Kerberos, and is refused: tony does not support Kerberos."),
    STR("tony.application.hdfs-conf-path", NULL, CE_YARN, TONY, "A further hdfs-site.xml. tony reads it after the files of HADOOP_CONF_DIR, and ships it to the tasks."),
    STR("tony.application.yarn-conf-path", NULL, CE_YARN, TONY, "A further yarn-site.xml. tony reads it after the files of HADOOP_CONF_DIR, and ships it to the tasks."),
    STR("tony.application.mapred-conf-path", NULL, CE_JVM, TONY, "tony does not use MapReduce."),
    STR("tony.application.hadoop.location", NULL, CE_YARN, TONY, "URL of an archive of Hadoop, which is unpacked in each container: hdfs://nn/hadoop.tar.gz#hadoop gives it the name hadoop."),
    STR("tony.application.hadoop.classpath", NULL, CE_YARN, TONY, "Class path inside that archive. tony appends it to CLASSPATH."),
    BOOL("tony.application.single-node", NULL, CE_JVM, TONY, "Obsolete: a job without roles runs its command alone."),
    STR("tony.yarn.queue", "default", CE_YARN, TONY, "Queue to which the job is submitted. On Slurm it counts as the partition, if tony.slurm.partition is unset."),
    LIST("tony.yarn.arbiter-keys", "", CE_YARN, OURS, "For the site file: QUEUE=KEY, the public key of the arbiter of a queue (tony arbiter key prints it). The arbiter may then resize the jobs of all users that are submitted to that queue (docs/arbiter.md). An empty value in a job file forbids it for this job."),
    LIST("tony.other.namenodes", NULL, CE_JVM, TONY, "tony fetches no tokens: this release refuses a cluster with Kerberos."),
    STR("tony.gpu-exec-path", "nvidia-smi", CE_JVM, TONY, "tony finds GPUs without this program."),

    /* each role */
    INT("tony.<role>.instances", "0", 0, COUNT_MAX, "tasks", CE_ACTS, TONY, "Number of tasks of the role. A role with 0 is not part of the job."),
    INT("tony.<role>.max-instances", "-1", -1, COUNT_MAX, "tasks", CE_ACTS, TONY, "The largest number of tasks that the role may have, also after a resize. -1: no limit."),
    INT("tony.<role>.min-instances", "1", 1, COUNT_MAX, "tasks", CE_ACTS, OURS, "The smallest number of tasks that the role may have after a resize. At most tony.<role>.instances."),
    ENUM("tony.<role>.resize", NULL, "restart|live|never", CE_ACTS, OURS,
         "What a resize of the role does to running tasks. restart: all tasks of the job save a checkpoint, stop, and start again with the new size. live: tasks are added or stopped while the others run on. never: a resize is refused. Unset: live if the framework can add a task to a running job, else restart."),
    MEM("tony.<role>.memory", "2g", 1, MEM_MAX, CE_ACTS, TONY, "Memory of one task. A task that uses more is killed."),
    INT("tony.<role>.vcores", "1", 0, COUNT_MAX, "cores", CE_ACTS, TONY, "Cores of one task. On YARN and Slurm tony asks for this number. On one machine it is a weight and not a limit: if cores are short, CPU time is divided in proportion to it, and a job with 0 gets the least."),
    INT("tony.<role>.gpus", "0", 0, GPUS_MAX, "devices", CE_ACTS, TONY, "Number of GPUs of one task, as whole devices. A task with 0 sees no GPU."),
    INT("tony.<role>.ranks", "1", 1, RANKS_MAX, "processes", CE_ACTS, OURS, "Number of processes that run the command in each task of the role. Each has its own TONY_LOCAL_RANK; all share the memory, cores and GPUs of the task."),
    STR("tony.<role>.command", NULL, CE_ACTS, TONY, "Command of the role. Unset: tony.containers.command."),
    STR("tony.<role>.resume-command", NULL, CE_ACTS, OURS, "Command of a task that has a checkpoint to resume from (TONY_CHECKPOINT). Unset: the command of the role, as at the first start."),
    LIST("tony.<role>.resources", NULL, CE_ACTS, TONY, "Files for the tasks of the role: SRC[::NAME][#archive]. data.zip::set#archive unpacks data.zip into the directory set."),
    ENVS("tony.<role>.env", NULL, CE_ACTS, OURS, "Variables of the tasks of the role: LOG=debug,SEED=7."),
    LIST("tony.<role>.depends-on", NULL, CE_ACTS, TONY, "Roles for which this one waits, each as ROLE:CONDITION: store:ready,prep:succeeded. Conditions are started, ready, succeeded and completed (all tasks have ended). ROLE alone means completed; in TonY it has no effect."),
    STR("tony.<role>.ready", NULL, CE_ACTS, OURS, "When a task of this role is ready, for roles that wait for ROLE:ready. port: a program listens on the task's own port in the cluster spec. port:8080: on that port of the machine. file:PATH: the file exists, relative to the working directory. word: only the message {\"ready\": true} on TONY_TASK_SOCKET, which always counts. Unset: port, if a role waits for it."),
    LIST("tony.<role>.stops", NULL, CE_ACTS, OURS, "Roles that tony stops when all tasks of this role have ended. For servers that never end by themselves."),
    STR("tony.<role>.progress-pattern", NULL, CE_ACTS, OURS, "Extended regular expression for lines of the role's output that report progress: step ([0-9]+)/([0-9]+). The first group is the step, the second (if there is one) the number of all steps."),
    ENUM("tony.<role>.restart", NULL, "never|on-failure|always", CE_ACTS, OURS,
         "When a task restarts. never: not at all. on-failure: after each failure. always: also after success. Unset: only after an end that the task did not cause, such as a lost node (tony.task.restarts.*)."),
    ENUM("tony.<role>.restart-scope", NULL, "task|role|job", CE_ACTS, OURS,
         "Which tasks restart when one fails. task: only that one. role: all of its role. job: all tasks, together. Unset: task if the framework can replace a single member, else job."),
    INT("tony.<role>.max-restarts", "3", -1, 1000, "", CE_ACTS, OURS, "How often tasks of the role may restart after ends that they caused themselves. The limit holds for each task; if restart-scope is role or job, for all tasks of the role together. -1: no limit."),
    INT("tony.<role>.restart-window", "0", 0, YEARS_MS, "ms", CE_ACTS, OURS, "max-restarts counts only the restarts within this time: 3600000 for an hour. 0: all restarts since the job began."),
    INT("tony.<role>.restart-delay", "0", 0, 86400000, "ms", CE_ACTS, OURS, "Pause before the first restart. If the task fails again soon, the pause doubles: the second one has at least 1 s, the longest 1 min, or this value if it is longer."),
    LIST("tony.<role>.retry-on", NULL, CE_ACTS, OURS, "Exit codes after which a task restarts: 3,10-20. After others it does not. 128 + n stands for signal n. Setting it implies restart: on-failure."),
    LIST("tony.<role>.no-retry-on", NULL, CE_ACTS, OURS, "Exit codes after which a task never restarts: 2,64-78."),
    INT("tony.<role>.spares", "0", 0, 1000, "containers", CE_ACTS, OURS, "Number of containers that wait beside those of the tasks. A spare replaces a lost container at once, and is used once."),
    STR("tony.<role>.node-label", NULL, CE_YARN, TONY, "Node label for the containers of the role. On Slurm it is the constraint of its component."),
    LIST("tony.<role>.resource-types", NULL, CE_YARN, OURS, "Further resources of one task, by the names that YARN gives them: yarn.io/fpga=1. GPUs have their own key, tony.<role>.gpus."),
    STR("tony.<role>.placement-spec", NULL, CE_REFUSED, TONY5, NO_PLACEMENT),
    LIST("tony.<role>.allocation-tags", NULL, CE_REFUSED, TONY5, NO_PLACEMENT),
    STR("tony.docker.<role>.image", NULL, CE_ACTS, TONY, "Image in which the commands of the role run. Unset: tony.docker.containers.image."),

    /* all containers */
    STR("tony.containers.command", NULL, CE_ACTS, TONY, "Command of every role that has no command of its own."),
    LIST("tony.containers.resources", NULL, CE_ACTS, TONY, "Files for the tasks of all roles: SRC[::NAME][#archive]. --conf adds to the list of the job file."),
    ENVS("tony.containers.envs", NULL, CE_ACTS, TONY, "Variables of the job's master, of its executors and of all tasks: A=1,B=2. --conf adds to those of the job file."),
    ENVS("tony.execution.envs", NULL, CE_ACTS, TONY, "Variables of all tasks: A=1,B=2. --conf adds to those of the job file."),
    ENVS("tony.application.secrets", NULL, CE_ACTS, OURS, "Variables of all tasks whose values are in no configuration, log or history. The client reads each value from a variable or a file: API_KEY=env:API_KEY,TOKEN=file:/home/me/token. The option --secret and secrets in a job file do the same."),
    STR("tony.containers.placement-spec", NULL, CE_REFUSED, TONY5, NO_PLACEMENT),
    LIST("tony.containers.allocation-tags", NULL, CE_REFUSED, TONY5, NO_PLACEMENT),
    INT("tony.container.allocation.timeout", "-1", -1, YEARS_MS, "ms", CE_ACTS, TONY, "In GANG mode: the job fails if not all of its tasks have a container within this time. -1: no limit."),
    INT("tony.container.registration.timeout", "-1", -1, YEARS_MS, "ms", CE_ACTS, TONY5, "A task must register with the master within this time after it got its container; else it has failed. -1: no limit."),
    INT("tony.resize.timeout", "600000", 0, YEARS_MS, "ms", CE_ACTS, OURS, "How long a job that grows waits for its new containers. After this time it keeps its old size. 0: no limit."),
    BOOL("tony.docker.enabled", "false", CE_ACTS, TONY, "true: commands run in containers of an image. On YARN its nodes run them with Docker, on the pool podman does, or docker (docs/job-files.md)."),
    STR("tony.docker.containers.image", NULL, CE_ACTS, TONY, "Image of the roles that have none of their own."),
    STR("tony.docker.containers.mount", NULL, CE_ACTS, TONY, "Directories of the machine that a container sees besides the shipped files: /data:/data:ro,/scratch:/scratch:rw."),

    /* tasks */
    INT("tony.task.max-total-instances", "-1", -1, INT64_MAX, "tasks", CE_ACTS, TONY, "A job that asks for more tasks in all is refused. -1: no limit. For site files."),
    INT("tony.task.max-total-gpus", "-1", -1, INT64_MAX, "devices", CE_ACTS, TONY, "A job that asks for more GPUs in all is refused. -1: no limit. For site files."),
    INT("tony.task.max-total-<resource>", NULL, -1, INT64_MAX, "", CE_ACTS, TONY, "The resource is memory (in MiB) or vcores. A job that asks for more of it in all is refused. -1: no limit. For site files."),
    INT("tony.task.heartbeat-interval-ms", "1000", 50, 3600000, "ms", CE_ACTS, TONY, "Pause between two heartbeats that the executor of a task sends to the master."),
    INT("tony.task.max-missed-heartbeats", "25", 0, 1000000, "", CE_ACTS, TONY, "A task counts as lost after this number of missed heartbeats; a number below 3 counts as 3."),
    INT("tony.task.metrics-interval-ms", "5000", 100, 3600000, "ms", CE_ACTS, TONY, "tony measures memory, CPU time, input and output, threads and GPUs of each task once in this interval."),
    BOOL("tony.task.gpu-metrics.enabled", "true", CE_ACTS, TONY, "false: GPUs are not measured."),
    INT("tony.task.executor.execution-timeout-ms", "0", -1, YEARS_MS, "ms", CE_ACTS, TONY5, "A task whose command runs longer than this is stopped, and has failed. 0 or -1: no limit."),
    INT("tony.worker.timeout", "0", -1, YEARS_MS, "ms", CE_ACTS, TONY, "Older name of tony.task.executor.execution-timeout-ms. In spite of its name it holds for all roles."),
    INT("tony.task.executor.registry-timeout-sec", "0", -1, YEARS_S, "s", CE_JVM, TONY5, "Executors of tony do not poll the master; see tony.container.registration.timeout."),
    INT("tony.task.executor.execution.error-message-max-depth", "20", 0, 1000, "lines", CE_ACTS, TONY5, "How many of the last lines of a failed task's stderr tony keeps and shows."),
    INT("tony.task.kill-grace-ms", "5000", 0, 3600000, "ms", CE_ACTS, OURS, "When tony stops a task, it sends TERM, waits for this time, and sends KILL."),
    BOOL("tony.task.streams", "true", CE_ACTS, OURS, "false: tony exec, shell, forward, open, cp and notebook are refused for the job. A site forbids them for all jobs by a final value in the site file."),
    STR("tony.task.umask", NULL, CE_ACTS, OURS, "File mode creation mask of the tasks, in octal: 027. Unset: that of the shell from which the job is submitted."),
    STR("tony.task.checkpoint-dir", NULL, CE_ACTS, OURS, "Directory in which checkpoints appear, relative to the working directory. For programs that do not report them on TONY_TASK_SOCKET."),
    STR("tony.task.checkpoint-pattern", NULL, CE_ACTS, OURS, "Extended regular expression for the whole name of a checkpoint in that directory: model-([0-9]+)[.]pt. Its first group is the step."),
    STR("tony.task.checkpoint-marker", NULL, CE_ACTS, OURS, "Name of a file that says that a checkpoint is complete. It is in the checkpoint (a directory), or beside it as the name of the checkpoint followed by this text: .done. Unset: a checkpoint is complete as soon as it has its name, so the program must rename it."),
    INT("tony.task.checkpoint-grace", "30000", 0, 86400000, "ms", CE_ACTS, OURS, "How long tony waits for a task to save a checkpoint, if it has asked for one, before it stops the task."),
    ENUM("tony.task.checkpoint-signal", "TERM", "TERM|USR1|USR2|INT|HUP", CE_ACTS, OURS, "Signal by which tony asks a task for a checkpoint. Only processes that handle this signal get it."),
    INT("tony.task.master-away-limit", "600000", 1000, 4294967295, "ms", CE_ACTS, OURS, "An executor that has had no contact with a master of the job for this time stops its task and ends. So if a node cannot be reached, tony starts its tasks elsewhere only after this time."),
    INT("tony.task.restarts.preempted", "8", 0, 1000000, "", CE_ACTS, OURS, "How often a task restarts after the cluster has preempted it. It is no failure of the task, and max-restarts does not count it."),
    INT("tony.task.restarts.node-lost", "4", 0, 1000000, "", CE_ACTS, OURS, "How often a task restarts after its node, or the executor on it, was lost. Ends that YARN causes together with a master are not counted."),
    INT("tony.task.restarts.disk-failed", "4", 0, 1000000, "", CE_ACTS, OURS, "How often a task restarts after a failed disk of its node has ended it."),
    INT("tony.task.restarts.launch-failed", "2", 0, 1000000, "", CE_ACTS, OURS, "How often a task restarts after its container could not be started."),
    INT("tony.node.max-failures", "3", 0, 1000, "", CE_YARN, OURS, "After this number of failures on a node within tony.node.failure-window, the job asks for no containers there for the same time. It avoids at most a fifth of its nodes at once. 0: it avoids no node."),
    INT("tony.node.failure-window", "3600000", 1, YEARS_MS, "ms", CE_YARN, OURS, "How long a failure on a node counts for tony.node.max-failures, and how long the job then avoids the node."),
    STR("tony.task.am.jvm.opts", "", CE_JVM, TONY, "tony uses no JVM."),
    STR("tony.task.executor.jvm.opts", "-Xmx1536m", CE_JVM, TONY, "tony uses no JVM."),
    STR("tony.task.default.jvm.opts", NULL, CE_JVM, TONY5, "tony uses no JVM."),

    /* the master */
    MEM("tony.am.memory", "2g", 1, MEM_MAX, CE_ACTS, TONY, "Memory of the job's master on YARN; also of the task of a job without roles, and of the preprocess task. If it is unset, a master on YARN gets 128m, and 1m more for every 8 tasks."),
    INT("tony.am.vcores", "1", 0, COUNT_MAX, "cores", CE_ACTS, TONY, "Cores of the master on YARN; also of the task of a job without roles, and of the preprocess task."),
    INT("tony.am.gpus", "0", 0, GPUS_MAX, "devices", CE_ACTS, TONY, "GPUs of the master on YARN; also of the task of a job without roles, and of the preprocess task."),
    STR("tony.am.command", NULL, CE_ACTS, TONY, "Command of a job without roles. Unset: tony.containers.command."),
    LIST("tony.am.resources", NULL, CE_ACTS, TONY, "Files for the task of a job without roles, and for the preprocess task: SRC[::NAME][#archive]."),
    STR("tony.am.node-label", NULL, CE_YARN, TONY5, "Node label for the container of the master."),
    INT("tony.am.retry-count", "0", 0, 1000000, "", CE_ACTS, TONY, "How often the whole job starts again, with all its stages, when it has failed. Tasks see the number of these restarts in NUM_AM_RETRIES."),
    INT("tony.am.max-attempts", "5", 1, 1000, "", CE_YARN, OURS, "YARN restarts a master that dies, until this number of masters have died within tony.am.attempt-window. If the cluster's own limit (yarn.resourcemanager.am.max-attempts) is lower, it counts."),
    INT("tony.am.attempt-window", "10000", 1000, YEARS_MS, "ms", CE_YARN, OURS, "How long the death of a master counts for tony.am.max-attempts."),
    INT("tony.am.wait-client-signal-stop-timeout-sec", "15", 0, YEARS_S, "s", CE_JVM, TONY, "The master of tony does not wait for the client at the end of a job."),
    INT("tony.am.startup-timeout", "0", -1, YEARS_MS, "ms", CE_YARN, TONY5, "The client kills a job whose master has not started within this time. 0 or -1: no limit."),

    /* PyTorch */
    BOOL("tony.pytorch.store", "true", CE_ACTS, OURS, "true: tony runs the store by which the ranks find each other, at the address of rank 0. false: for programs that run it themselves at MASTER_ADDR:MASTER_PORT (docs/pytorch.md)."),

    /* Horovod */
    BOOL("tony.horovod.mode.test", "false", CE_ACTS, TONY, "A test hook of TonY, which then starts no rendezvous server. Without effect: tony always runs one."),
    BOOL("tony.horovod.mode.test.fast.fail", "false", CE_ACTS, TONY, "A test hook: there is no rendezvous server, and the job fails."),
    BOOL("tony.horovod.driver.mode.debug", "false", CE_ACTS, TONY, "true: you supply the driver of Horovod. tony.driver.command starts the rendezvous server and plans the ranks (docs/frameworks.md)."),

    /* client, pool, store */
    INT("tony.client.away-limit", "60000", -1, YEARS_MS, "ms", CE_ACTS, OURS, "A job of tony run is stopped when its client has been away for this time, for example because the laptop was closed. -1: never. On YARN only if that client has reached the master before."),
    INT("tony.pool.idle-timeout", "600000", -1, YEARS_MS, "ms", CE_ACTS, OURS, "The pool ends when it has had no job for this time; the next command starts it again. -1: never."),
    INT("tony.pool.page-port", "0", 0, 65535, "port", CE_ACTS, OURS, "The pool serves its metrics for Prometheus at http://127.0.0.1:PORT/metrics (docs/metrics.md). 0: it serves none."),
    MEM("tony.pool.memory", NULL, 1, MEM_MAX, CE_ACTS, OURS, "Memory that the pool gives to jobs. Unset: the memory of the machine less tony.pool.memory-reserve."),
    MEM("tony.pool.memory-reserve", "512m", 0, MEM_MAX, CE_ACTS, OURS, "Memory of the machine that the pool does not give to jobs, if tony.pool.memory is unset."),
    INT("tony.pool.vcores", NULL, 1, COUNT_MAX, "cores", CE_ACTS, OURS, "Number of cores that tony pool status and the metrics show. It limits no job: the pool counts memory and GPUs, and cores are weights. Unset: those of the machine."),
    INT("tony.pool.gpus", NULL, 0, GPUS_MAX, "devices", CE_ACTS, OURS, "Number of GPUs that the pool gives to jobs. Unset: all of the machine."),
    ENUM("tony.pool.policy", "fifo", "fifo|backfill|static|drf|dorm|market|srtf-elastic|las-elastic", CE_ACTS, OURS,
         "How the pool divides the machine among jobs (docs/pool-policy.md). fifo, static: jobs start in their order, with their full size. backfill: a small job passes a large one that waits, if this does not delay the large one. drf, dorm, market, srtf-elastic, las-elastic: jobs that run are resized, too. tony pool set changes this key and those below while the pool runs."),
    REAL("tony.pool.policy.theta1", "0.1", 0, 1, CE_ACTS, OURS, "For dorm: how unfair a decision may be. The bound on the loss of fairness is theta1 times twice the number of resource types, rounded up."),
    REAL("tony.pool.policy.theta2", "0.1", 0, 1, CE_ACTS, OURS, "For dorm: a decision resizes at most this part of the running jobs, rounded up: 0.1 is a tenth."),
    REAL("tony.pool.policy.loss-max", NULL, 0, 1000, CE_ACTS, OURS, "For dorm: the bound on the loss of fairness, in place of the one from theta1."),
    INT("tony.pool.policy.adjust-max", NULL, 0, 1000000, "jobs", CE_ACTS, OURS, "For dorm: a decision resizes at most this number of running jobs, in place of the part theta2."),
    REAL("tony.pool.policy.reserve", "0", 0, 1000000, CE_ACTS, OURS, "For market: the lowest price for which the whole machine is given."),
    LEVELS("tony.pool.policy.levels", "60,600,6000", 0, 1000000000, CE_ACTS, OURS, "For las-elastic: at most 16 rising numbers of seconds. A job has attained n seconds when it has held the whole machine for n seconds, or half of it for twice as long. The more of these numbers a job has reached, the later its turn comes."),
    INT("tony.pool.policy.payback", "1800000", 0, 31536000000, "ms", CE_ACTS, OURS, "For all policies that resize: a resize must gain back its cost within this time, else it is not made (docs/partition.md). 0: costs do not count."),
    INT("tony.pool.policy.resize-cost", "10000", 0, 86400000, "ms", CE_ACTS, OURS, "Expected cost of a resize: how long the job then does no new work. It counts until the pool has seen a resize of this job, or of another job with the same name."),
    INT("tony.pool.policy.interval", "10000", 0, 86400000, "ms", CE_ACTS, OURS, "The pool waits at least this long between two decisions of a policy. One decision covers all changes in between."),
    INT("tony.pool.policy.resize-limit", "300000", 1000, 86400000, "ms", CE_ACTS, OURS, "How long a running job may take to follow a decision. After that it keeps its size, and the policy leaves it alone for the same time."),
    INT("tony.pool.policy.time-limit", "500", 1, 60000, "ms", CE_ACTS, OURS, "For dorm: the search for a better division ends after this time."),
    STR("tony.slurm.partition", NULL, CE_SLURM, OURS, "Partition of the job: gpu; several are separated by commas. Unset: tony.yarn.queue if it is set, else the default partition of the site."),
    STR("tony.slurm.account", NULL, CE_SLURM, OURS, "Account that pays for the job (sbatch --account)."),
    STR("tony.slurm.qos", NULL, CE_SLURM, OURS, "Quality of service of the job (sbatch --qos)."),
    STR("tony.slurm.constraint", NULL, CE_SLURM, OURS, "Features that the nodes must have, as sbatch --constraint takes them: a100&nvlink. Unset: tony.application.node-label."),
    STR("tony.slurm.nodelist", NULL, CE_SLURM, OURS, "Nodes that the allocation must contain: node[01-04]."),
    STR("tony.slurm.exclude", NULL, CE_SLURM, OURS, "Nodes that the allocation must not contain: node07,node09."),
    STR("tony.slurm.reservation", NULL, CE_SLURM, OURS, "Name of the reservation from which the nodes are taken."),
    STR("tony.slurm.licenses", NULL, CE_SLURM, OURS, "Licences that the job needs, as sbatch --licenses takes them: matlab:2."),
    INT("tony.slurm.time-limit", "0", 0, YEARS_MS, "ms", CE_SLURM, OURS, "Time limit of the job in Slurm, rounded up to minutes: 14400000 for 4 hours. 0: that of the partition."),
    INT("tony.slurm.nice", "0", 0, 1000000, "", CE_SLURM, OURS, "Slurm lowers the priority of the job by this number (sbatch --nice). A negative tony.application.priority does the same."),
    INT("tony.slurm.nodes", "0", 0, 100000, "nodes", CE_SLURM, OURS, "Number of nodes over which the tasks are spread. 0: as few as can hold the job."),
    INT("tony.slurm.spare-nodes", "0", 0, 1000, "nodes", CE_SLURM, OURS, "Number of further nodes in the allocation, in reserve: the tasks of a lost node restart there."),
    ENUM("tony.slurm.components", "auto", "auto|one|roles", CE_SLURM, OURS, "Does the job ask Slurm for nodes of several sizes? one: no, all roles share nodes of one size. roles: each role gets nodes of its own, as a component of a heterogeneous job. auto: components only if roles have different node labels, if no node can hold all roles, or if nodes would get GPUs that no task there uses."),
    BOOL("tony.slurm.further-allocations", "true", CE_SLURM, OURS, "true: if a node is lost and no spare node has room for its tasks, or if the job grows, the master submits a further batch job, whose nodes join the job. false: the job uses only its first allocation. A job with components always does."),
    STR("tony.slurm.gpu-type", NULL, CE_SLURM, OURS, "Type of the GPUs, by its name in the site's Gres: a100. Unset: any type."),
    BOOL("tony.slurm.requeue", "true", CE_SLURM, OURS, "What happens if Slurm needs the nodes for another job, or if the first node fails. true: the job goes back into the queue, and continues from its checkpoints when Slurm starts it again. false: it ends."),
    BOOL("tony.slurm.requeue-at-limit", "false", CE_SLURM, OURS, "What happens shortly before the time limit. true: the job saves checkpoints, goes back into the queue, and continues later. false: it ends."),
    LIST("tony.slurm.extra-arguments", "", CE_SLURM, OURS, "Further options of sbatch, passed on as they are: --mail-type=END,--comment=x. They come last, so they win over those of tony."),
    INT("tony.yarn.cache-age", "2592000000", 3600000, YEARS_MS, "ms", CE_YARN, OURS, "tony removes content in <home>/.tony/cache of HDFS that no job has used for this time. What a live job uses stays."),
    INT("tony.store.max-age", "604800000", 0, YEARS_MS, "ms", CE_ACTS, OURS, "Content in TONY_HOME/store that no live job uses, and that no job has used for this time, is removed: by the pool each hour; on YARN and Slurm once a day, after a submission. It counts in the site file."),

    /* history and portal */
    STR("tony.port-range", NULL, CE_YARN, OURS, "FIRST-LAST, for sites with a firewall between the nodes: 20000-20999. Masters, their pages, executors and tasks listen for other machines only on these ports. A node needs three of them for each of its tasks; the range must have at least 16. Unset: any free port, but on YARN 20000-27999 for executors. Ports that a program chooses itself, such as those of gloo and NCCL, are not in it."),
    STR("tony.history.location", NULL, CE_YARN, TONY, "Directory in HDFS into which finished jobs are written. Unset: <home>/.tony/history. On Slurm: a directory that users share, into which each finished job is copied (docs/slurm.md)."),
    STR("tony.history.intermediate", NULL, CE_JVM, TONY, "tony writes the history of a job directly to its final place."),
    STR("tony.history.finished", NULL, CE_JVM, TONY, "tony writes the history of a job directly to its final place."),
    INT("tony.history.mover-interval-ms", "300000", 0, YEARS_MS, "ms", CE_JVM, TONY, "tony writes the history of a job directly to its final place, so nothing is moved."),
    INT("tony.history.purger-interval-ms", "21600000", 0, YEARS_MS, "ms", CE_JVM, TONY, "Old histories are removed without it; see tony.history.retention-sec."),
    INT("tony.history.retention-sec", "2592000", -1, YEARS_S, "s", CE_ACTS, TONY, "How long the history of finished jobs is kept. -1: for ever. It counts in the site file."),
    STR("tony.history.finished-dir-timezone", "UTC", CE_JVM, TONY, "The directories of the history have the names of the jobs, without dates."),
    STR("tony.portal.url", "https://localhost:19886", CE_JVM, TONY, "The portal of TonY cannot show jobs of tony. Use tony status, tony logs and the job's own page."),
    INT("tony.portal.cache.max-entries", "10000", 0, INT64_MAX, "", CE_JVM, TONY, "The portal of TonY cannot show jobs of tony."),
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
