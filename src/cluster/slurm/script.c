/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The batch script. `tony plan` shows it, and sbatch gets it on its standard input.
 *
 * It starts the keeper of each node by a step of its own, and the head keeper beside them. A keeper
 * that a signal has killed is restarted. The script ends when the head keeper does, with its exit
 * code.
 *
 * The script of a further allocation, which the master submits if this one has become too small,
 * starts only keepers. They get the address of the master from the file `address`.
 */
#include <errno.h>

#include "base/base.h"
#include "cluster/slurm/slurm_int.h"
#include "conf/conf.h"

enum { MINUTE_MS = 60000 };

/* ---- the options of sbatch ---- */

/* A newline would begin another line of the script. */
static void add_option(struct buf *out, const char *name, const char *value)
{
    if (!value || !*value || strpbrk(value, "\n\r"))
        return;
    (void)buf_addf(out, "#SBATCH %s=%s\n", name, value);
}

static const char *set_value(const struct conf *c, const char *key)
{
    const char *v = conf_get(c, key);
    return v && *v ? v : NULL;
}

static bool is_default(const struct conf *c, const char *key)
{
    const char *origin = conf_origin(c, key);
    return !origin || str_eq(origin, "default");
}

/* constraint: that of a component; NULL = it has none of its own. */
static void add_keys(const struct conf *c, const char *constraint, struct buf *out)
{
    static const struct {
        const char *key, *option;
    } plain[] = {
        { "tony.slurm.account", "--account" },
        { "tony.slurm.qos", "--qos" },
        { "tony.slurm.reservation", "--reservation" },
        { "tony.slurm.licenses", "--licenses" },
    };
    const char *partition = set_value(c, "tony.slurm.partition");
    if (!partition && !is_default(c, "tony.yarn.queue"))
        partition = set_value(c, "tony.yarn.queue");
    if (!constraint)
        constraint = set_value(c, "tony.slurm.constraint");
    if (!constraint)
        constraint = set_value(c, "tony.application.node-label");
    add_option(out, "--partition", partition);
    add_option(out, "--constraint", constraint);
    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        add_option(out, plain[i].option, set_value(c, plain[i].key));
    int64_t limit_ms = conf_int(c, "tony.slurm.time-limit");
    if (limit_ms)
        (void)buf_addf(out, "#SBATCH --time=%lld\n",
                       (long long)((limit_ms + MINUTE_MS - 1) / MINUTE_MS));
    int64_t nice = conf_int(c, "tony.slurm.nice"),
            priority = conf_int(c, "tony.application.priority");
    if (nice == 0 && priority < 0)
        nice = -priority;
    if (nice)
        (void)buf_addf(out, "#SBATCH --nice=%lld\n", (long long)nice);
}

static void add_extra(const struct conf *c, struct buf *out)
{
    struct strv list = { 0 };
    const char *text = set_value(c, "tony.slurm.extra-arguments");
    if (text && conf_list_parse(span_of(text), &list) < 0)
        out->failed = true;
    for (size_t i = 0; i < list.n; i++)
        if (!strpbrk(list.v[i], "\n\r"))
            (void)buf_addf(out, "#SBATCH %s\n", list.v[i]);
    strv_done(&list);
}

/* The nodes of the first allocation. The master chooses those of further ones. */
static void add_nodes(const struct conf *c, const struct slurm_shape *shape, struct buf *out)
{
    (void)buf_addf(out, "#SBATCH --nodes=%u\n", shape->nodes);
    add_option(out, "--nodelist", set_value(c, "tony.slurm.nodelist"));
    add_option(out, "--exclude", set_value(c, "tony.slurm.exclude"));
}

static void add_size(const struct conf *c, const struct slurm_shape *shape, struct buf *out)
{
    (void)buf_addf(out,
                   "#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=%u\n"
                   "#SBATCH --mem=%lluM\n",
                   shape->vcores, (unsigned long long)(shape->memory_mib + shape->overhead_mib));
    const char *type = set_value(c, "tony.slurm.gpu-type");
    if (shape->gpus && type)
        (void)buf_addf(out, "#SBATCH --gres=gpu:%s:%u\n", type, shape->gpus);
    else if (shape->gpus)
        (void)buf_addf(out, "#SBATCH --gres=gpu:%u\n", shape->gpus);
}

/* Letters, digits and a few others of the job's name. */
static void add_name(const char *name, struct buf *out)
{
    (void)buf_adds(out, "#SBATCH --job-name=tony-");
    for (size_t i = 0; name[i] && i < 60; i++) {
        bool plain = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
                     (name[i] >= '0' && name[i] <= '9') || strchr("._-", name[i]);
        (void)buf_addc(out, plain ? name[i] : '_');
    }
    (void)buf_addc(out, '\n');
}

/* ---- the rest of the script ---- */

/* A word for the shell. */
static void add_quoted(struct buf *out, const char *word)
{
    (void)buf_addc(out, '\'');
    for (; *word; word++) {
        if (*word == '\'')
            (void)buf_adds(out, "'\\''");
        else
            (void)buf_addc(out, *word);
    }
    (void)buf_addc(out, '\'');
}

static void add_variable(struct buf *out, const char *name, const char *value)
{
    if (!value)
        return;
    (void)buf_addf(out, "export %s=", name);
    add_quoted(out, value);
    (void)buf_addc(out, '\n');
}

/* The variables that tasks get on the pool, too. Slurm sets HOME, USER and SHELL. */
static void add_environment(struct buf *out)
{
    static const char *const names[] = { "PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        add_variable(out, names[i], getenv(names[i]));
}

/* Both keepers need a directory of this node for their sockets and locks. Whoever uses one holds
 * its file `lock`, so the directories of killed jobs are found. */
static const char runtime_dir[] =
    "\n# a directory of this node for sockets and locks; those of killed jobs are removed\n"
    "runtime_dir() {\n"
    "    for d in /tmp/tony-slurm-*; do\n"
    "        [ ! -O \"$d/lock\" ] || (flock -n 9 && rm -rf \"$d\") 9< \"$d/lock\"\n"
    "    done 2> /dev/null\n"
    "    TONY_RUNTIME_DIR=$(mktemp -d /tmp/tony-slurm-XXXXXX) || exit 1\n"
    "    export TONY_RUNTIME_DIR\n"
    "    exec 8> \"$TONY_RUNTIME_DIR/new\"\n"
    "    flock -n 8 && mv \"$TONY_RUNTIME_DIR/new\" \"$TONY_RUNTIME_DIR/lock\"\n"
    "} 2> /dev/null\n";

/* What the keeper of a node may give to tasks. */
static void add_share(const struct slurm_shape *shape, struct buf *out)
{
    (void)buf_addf(out, "--memory-mib %llu --vcores %u%s", (unsigned long long)shape->memory_mib,
                   shape->vcores,
                   shape->gpus ? " ${CUDA_VISIBLE_DEVICES:+--gpus \"$CUDA_VISIBLE_DEVICES\"}" : "");
}

/* $1: the number of the first node of its step, $2: the nodes of the step; $3: the component. */
static void add_node_part(const struct slurm_size *z, struct buf *out)
{
    (void)buf_adds(out, "\n# the keeper of a node; restarted if a signal kills it\nnode() {\n"
                        "    number=$1 IFS=,\n"
                        "    for name in $2; do\n"
                        "        [ \"$name\" != \"$SLURMD_NODENAME\" ] || break\n"
                        "        number=$((number + 1))\n"
                        "    done\n"
                        "    unset IFS\n"
                        "    exec 3>&1 >> \"$job/nodes/$number.log\" 2>&1\n");
    if (z->n > 1)
        (void)buf_adds(out, "    case $3 in\n");
    for (uint32_t k = 0; k < z->n; k++) {
        if (z->n > 1)
            (void)buf_addf(out, "    %u) set -- ", k);
        else
            (void)buf_adds(out, "    set -- ");
        add_share(&z->v[k], out);
        (void)buf_adds(out, z->n > 1 ? " ;;\n" : "\n");
    }
    (void)buf_adds(out, z->n > 1 ? "    esac\n" : "");
    (void)buf_adds(
        out, "    runtime_dir\n    trap : TERM\n    : \"${master:=$SLURM_LAUNCH_NODE_IPADDR}\"\n"
             "    [ \"$number\" -ne 0 ] || echo \"$master\" > \"$job/address\"\n"
             "    rc=129\n    while [ $rc -gt 128 ]; do\n"
             "        \"$programs/tony-executor\" --keeper \"$id\" --node \"$number\" \\\n"
             "            --node-name \"$SLURMD_NODENAME\" --master-host \"$master\" \\\n"
             "            --run \"$run\" \"$@\" 3>&-\n"
             "        rc=$?\n    done\n    rm -rf \"$TONY_RUNTIME_DIR\"\n"
             "    if [ -n \"${TONY_LOCAL:-}\" ]; then # wait until the logs are on the first node\n"
             "        echo \"fetch $SLURMD_NODENAME $TONY_LOCAL\" >&3\n"
             "        n=0\n"
             "        while [ ! -e \"$TONY_LOCAL/fetched\" ] && [ $n -lt 600 ]; do\n"
             "            sleep 0.1\n            n=$((n + 1))\n        done\n"
             "        rm -rf \"$TONY_LOCAL\"\n    fi\n"
             "    exit $rc\n}\n"
             "[ \"${1:-}\" != node ] || node \"$2\" \"$3\" \"${4:-}\"\n");
}

/* For the master: of each component the number of its nodes and its roles. The nodes of the first
 * component have the first numbers. */
static void add_components(const struct job_spec *s, const struct slurm_size *z, struct buf *out)
{
    (void)buf_adds(out, "export TONY_SLURM_COMPONENTS='");
    for (uint32_t k = 0; k < z->n; k++) {
        (void)buf_addf(out, "%s%u", k ? " " : "", z->v[k].nodes);
        for (size_t i = 0; i < s->n_roles; i++)
            if (z->of_role[i] == k)
                (void)buf_addf(out, ":%s", s->roles[i].name);
    }
    (void)buf_adds(out, "'\n");
}

/* Each node has a step of its own: srun ends its whole step when a node that had lost its power
 * returns. With more than 8 nodes, a step has several of them: each step needs an srun on the first
 * node, which takes 4 MiB. An srun that has failed is started again for the nodes that still belong
 * to the allocation, unless a user has cancelled the step: then slurmstepd writes "CANCELLED AT".
 * It writes that also if srun has ended the step, and srun then says that the step is missing on a
 * node. If Slurm itself ends the job, "DUE TO" and the reason follow: the master asks slurmctld. */
static const char steps_part[] =
    "\n# runs on each node: with the script, which is not there if the node does not see "
    "TONY_HOME.\n"
    "# Then the first node sends all that the node needs into the directory that it names.\n"
    "start='\n"
    "[ ! -r \"$0\" ] || exec /bin/sh \"$0\" \"$@\"\n"
    "d=$(mktemp -d /tmp/tony-slurm-XXXXXX) || exit 1\n"
    "exec 7> \"$d/new\" && flock -n 7 && mv \"$d/new\" \"$d/lock\"\n"
    "echo \"away $SLURMD_NODENAME $d\"\n"
    "n=0\n"
    "while [ ! -e \"$d/ready\" ] && [ -d \"$d\" ] && [ $n -lt 36000 ]; do\n"
    "    sleep 0.1\n"
    "    n=$((n + 1))\n"
    "done\n"
    "job=${0%/*}\n"
    "export TONY_LOCAL=$d\n"
    "exec /bin/sh \"$d/jobs/${job##*/}/${0##*/}\" \"$@\"\n"
    "'\n"
    "\n# a command on the node $1, which does not see TONY_HOME\n"
    "on_node() {\n"
    "    node=$1\n"
    "    shift\n"
    "    srun --quiet --overlap --mpi=none --cpu-bind=none --mem=0 --nodes=1 --ntasks=1 \\\n"
    "        ${part:+\"--het-group=$part\"} --nodelist=\"$node\" /bin/sh -c \"$@\" 2>> "
    "\"$log.err\"\n"
    "}\n"
    "\n# send all that the node $1 needs to its directory $2\n"
    "send() {\n"
    "    : > \"$job/nodes/sending-$1\"\n"
    "    : > \"$job/nodes/away-$1\"\n"
    "    tar -C \"$TONY_HOME\" -cf - \"programs/${programs##*/}/tony-executor\" \"jobs/$id/key\" "
    "\\\n"
    "        \"jobs/$id/${script##*/}\" $(grep -o 'store/[df]-[0-9a-f]*' \"$job/job.conf\" | sort "
    "-u) |\n"
    "        on_node \"$1\" 'mkdir -p \"$0/jobs/$1/nodes\" \"$0/jobs/$1/logs\" && tar -C \"$0\" "
    "-xf - &&\n"
    "            : > \"$0/ready\" || rm -rf \"$0\"' \"$2\" \"$id\"\n"
    "    rm -f \"$job/nodes/sending-$1\"\n"
    "}\n"
    "\n# send the address of the master to these nodes whenever it changes\n"
    "push() {\n"
    "    while goes_on; do\n"
    "        now=$(cat \"$job/master.json\" 2> /dev/null)\n"
    "        while [ -n \"$now\" ] && read -r node dir; do\n"
    "            sent=$job/nodes/away-$node\n"
    "            [ ! -e \"$sent\" ] || [ \"$(cat \"$sent\")\" = \"$now\" ] ||\n"
    "                echo \"$now\" | on_node \"$node\" 'cd \"$0\" && cat > new.json &&\n"
    "                    mv new.json \"jobs/$1/master.json\"' \"$dir\" \"$id\" &&\n"
    "                [ -e \"$sent\" ] && echo \"$now\" > \"$sent\"\n"
    "        done < \"$log.away\"\n"
    "        sleep 0.5\n"
    "    done 2> /dev/null\n"
    "}\n"
    "\n# fetch the logs of the node $1 from its directory $2\n"
    "fetch() {\n"
    "    on_node \"$1\" 'cd \"$0/jobs/$1\" && tar -cf - logs nodes/*.log\n"
    "        : > \"$0/fetched\"' \"$2\" \"$id\" < /dev/null | tar -C \"$job\" -xf -\n"
    "    rm -f \"$job/nodes/away-$1\"\n"
    "}\n"
    "\n# what the nodes of a step write: their requests are handled, and the rest is logged\n"
    "handle() {\n"
    "    code=0 pushes=\n"
    "    while read -r word node dir; do\n"
    "        case $word in\n"
    "        away)\n"
    "            send \"$node\" \"$dir\"\n"
    "            echo \"$node $dir\" >> \"$log.away\"\n"
    "            [ -n \"$pushes\" ] || push &\n"
    "            pushes=1\n"
    "            ;;\n"
    "        fetch) fetch \"$node\" \"$dir\" ;;\n"
    "        ended) code=$node ;;\n"
    "        *) echo \"$word $node $dir\" ;;\n"
    "        esac\n"
    "    done\n"
    "    for node in $(echo \"$names\" | tr , ' '); do # also those that have failed\n"
    "        rm -f \"$job/nodes/away-$node\"\n"
    "    done\n"
    "    return \"$code\"\n"
    "}\n"
    "\n# whether the job, and this run of it, goes on\n"
    "goes_on() { [ -r \"$job/key\" ] && [ \"$(cat \"$job/run\")\" = \"$run\" ]; }\n"
    "\n# those of the nodes $1 that still belong to the allocation, separated by commas\n"
    "still_here() {\n"
    "    lists=$(squeue -h -j \"$SLURM_JOB_ID\" -o %N) || return\n"
    "    all=\" $(for l in $lists; do scontrol show hostnames \"$l\"; done | tr '\\n' ' ')\"\n"
    "    here= IFS=,\n"
    "    for name in $1; do\n"
    "        case $all in *\" $name \"*) here=$here${here:+,}$name ;; esac\n"
    "    done\n"
    "    unset IFS\n"
    "    echo \"$here\"\n"
    "}\n"
    "\n# a step: the number of its first node, the names of its nodes, their component\n"
    "step() {\n"
    "    trap 'ends=1' TERM\n"
    "    ends= quick=0 names=$2 part=$3 log=$job/nodes/step-$1\n"
    "    while :; do\n"
    "        n=$(($(echo \"$names\" | tr -cd , | wc -c) + 1)) began=$(date +%s)\n"
    "        {\n"
    "            srun --no-kill --kill-on-bad-exit=0 --wait=0 --mpi=none --input=none --overlap "
    "\\\n"
    "            --cpu-bind=none --mem=0 ${3:+\"--het-group=$3\"} --nodes=$n --ntasks=$n \\\n"
    "            --ntasks-per-node=1 --nodelist=\"$names\" \\\n"
    "            /bin/sh -c \"$start\" \"$script\" $script_args node \"$1\" \"$2\" $3 2> "
    "\"$log.err\"\n"
    "            echo \"ended $?\"\n"
    "        } | handle > \"$log.out\" && return\n"
    "        goes_on || return\n"
    "        cat \"$log.err\"\n"
    "        if ! grep -q 'missing step' \"$log.err\" &&\n"
    "            grep -h 'STEP .* CANCELLED AT' \"$log.out\" \"$log.err\" |\n"
    "            grep -qv ' DUE TO '; then\n"
    "            echo 1 > \"$over\"\n"
    "            return\n"
    "        fi\n"
    "        [ $(($(date +%s) - began)) -lt 60 ] || quick=0\n"
    "        quick=$((quick + 1))\n"
    "        while [ -z \"$ends\" ] && goes_on && [ $quick -lt 10 ]; do\n"
    "            sleep $quick\n"
    "            names=$(still_here \"$2\") && break\n"
    "        done\n"
    "        [ -z \"$ends\" ] && [ -n \"$names\" ] && goes_on && [ $quick -lt 10 ] || return\n"
    "        echo \"the keepers of $names start again\"\n"
    "    done\n"
    "}\n"
    "\n# the steps of the nodes $2, of which the first has the number $1; $3: their component\n"
    "steps() {\n"
    "    first=$1 part=$3\n"
    "    case $2 in\n"
    "    *[[,]*) set -- $(scontrol show hostnames \"$2\") ;;\n"
    "    *) set -- \"$2\" ;;\n"
    "    esac\n"
    "    per=$((($# + 7) / 8))\n"
    "    while [ $# -gt 0 ]; do\n"
    "        names=$1 n=1\n"
    "        shift\n"
    "        while [ $n -lt $per ] && [ $# -gt 0 ]; do\n"
    "            names=$names,$1 n=$((n + 1))\n"
    "            shift\n"
    "        done\n"
    "        step $first \"$names\" $part &\n"
    "        first=$((first + n))\n"
    "    done\n"
    "}\n";

/* Start the steps of all nodes. */
static void add_steps(const struct slurm_size *z, struct buf *out)
{
    uint32_t first = 0;
    (void)buf_adds(out,
                   "script=$job/batch.sh script_args= over=$job/step_ended\n{\n    trap : TERM\n");
    if (z->n == 1)
        (void)buf_adds(out, "    steps 0 \"$SLURM_JOB_NODELIST\"\n");
    for (uint32_t k = 0; z->n > 1 && k < z->n; k++) {
        (void)buf_addf(out, "    steps %u \"$SLURM_JOB_NODELIST_HET_GROUP_%u\" %u\n", first, k, k);
        first += z->v[k].nodes;
    }
}

static const char batch_part[] =
    "\n# the batch step: the keepers of all nodes, and the head keeper with the master\n"
    "[ -r \"$job/key\" ] || { echo \"$job cannot be read on $(hostname)\" >&2; exit 1; }\n"
    "runtime_dir\n"
    "echo \"$SLURM_JOB_ID\" > \"$job/slurm_id\"\n"
    "cp \"$0\" \"$job/batch.sh\"\n"
    "[ \"$run\" -eq 0 ] || rm -f \"$job/master.json\" # of the master of an earlier run\n"
    "head=\n"
    "trap '[ -z \"$head\" ] || kill -USR1 $head 2> /dev/null' USR1 # a notice: the run will end\n"
    "trap : TERM\n"
    "rm -f \"$job/step_ended\"\n";
static const char batch_rest[] =
    "    while ! wait; do :; done # TERM ends a wait\n"
    "    [ ! -d \"$job\" ] || echo 1 > \"$over\"\n"
    "} 2>&1 &\n"
    "step=$!\n"
    "rc=129\n"
    "while [ $rc -gt 128 ]; do\n"
    "    \"$programs/tony-executor\" --keeper \"$id\" --head --run \"$run\" >> \"$job/keeper.log\" "
    "2>&1 &\n"
    "    head=$!\n"
    "    wait $head\n"
    "    rc=$?\n"
    "    while kill -0 $head 2> /dev/null; do # a signal has ended the wait\n"
    "        wait $head\n"
    "        rc=$?\n"
    "    done\n"
    "done\n"
    "n=0\n"
    "while kill -0 $step 2> /dev/null && [ $n -lt 40 ]; do\n"
    "    sleep 0.05\n"
    "    n=$((n + 1))\n"
    "done\n"
    "for d in \"$job\" \"$TONY_HOME/history/$id\"; do\n"
    "    [ ! -e \"$d/further.json\" ] || scancel -Q -n \"tony-further-$id\"\n"
    "done\n"
    "rm -rf \"$TONY_RUNTIME_DIR\"\n"
    "[ $rc -eq 0 ] || exit 1\n";

/* The job may end, or Slurm may start it again, without a word to this allocation: then the script
 * ends, and Slurm all that it has started. */
static const char further_part[] =
    "\n# the keepers of all nodes; they end with the job, or with this run of it\n"
    "goes_on || exit 0\n"
    "trap : TERM\n"
    "script=$job/script.further script_args=\"$base $run\" over=/dev/null\n"
    "{\n"
    "    trap : TERM\n"
    "    steps \"$base\" \"$SLURM_JOB_NODELIST\"\n"
    "    wait\n"
    "} &\n"
    "step=$!\n"
    "n=0\n"
    "while kill -0 $step 2> /dev/null; do\n"
    "    sleep 1\n"
    "    n=$(((n + 1) % 15))\n"
    "    [ $n -ne 0 ] || goes_on || exit 0\n"
    "done\n";

/* Slurm's notice may come a minute early, and is passed on to the tasks when they need the time. */
static int64_t notice_s(const struct job_spec *s)
{
    enum { EARLY_S = 60, MARGIN_S = 15 };
    int64_t save_ms = (int64_t)s->checkpoint_grace_ms * (s->requeue_at_limit ? 2 : 1);
    return (save_ms + s->kill_grace_ms) / 1000 + EARLY_S + MARGIN_S;
}

/* Variables of both scripts. */
static void add_variables(const char *id, const char *home, const char *dir, const char *programs,
                          struct buf *out)
{
    (void)buf_adds(out, "unset SLURM_EXPORT_ENV\n");
    add_variable(out, "TONY_HOME", home);
    add_environment(out);
    add_variable(out, "id", id);
    add_variable(out, "job", dir);
    add_variable(out, "programs", programs);
    (void)buf_adds(out,
                   "if [ -n \"${TONY_LOCAL:-}\" ]; then # on a node that does not see TONY_HOME\n"
                   "    export TONY_SHARED_HOME=\"$TONY_HOME\" TONY_HOME=\"$TONY_LOCAL\"\n"
                   "    job=$TONY_HOME/jobs/$id programs=$TONY_HOME/programs/${programs##*/}\n"
                   "fi\n");
}

int slurm_script(const struct conf *c, const struct job_spec *s, const struct slurm_size *size,
                 const char *id, const char *home, const char *programs, struct buf *out)
{
    AUTO(free_p) char *dir = str_printf("%s/jobs/%s", home, id);
    if (!dir)
        return -ENOMEM;
    (void)buf_adds(out, "#!/bin/sh\n");
    for (uint32_t k = 0; k < size->n; k++) {
        (void)buf_adds(out, k ? "#SBATCH hetjob\n" : "");
        add_name(s->name ? s->name : "job", out);
        add_nodes(c, &size->v[k], out);
        add_size(c, &size->v[k], out);
        (void)buf_addf(out, "#SBATCH --no-kill\n#SBATCH --%s\n",
                       conf_bool(c, "tony.slurm.requeue") ? "requeue" : "no-requeue");
        if (k == 0)
            (void)buf_addf(out,
                           "#SBATCH --signal=B:USR1@%lld\n#SBATCH --export=NIL\n"
                           "#SBATCH --chdir=/\n#SBATCH --open-mode=append\n"
                           "#SBATCH --output=%s/batch.log\n",
                           (long long)notice_s(s), dir);
        add_keys(c, size->constraint[k], out);
        add_extra(c, out);
    }
    add_variables(id, home, dir, programs, out);
    if (size->n > 1)
        add_components(s, size, out);
    (void)buf_adds(out, "run=${SLURM_RESTART_COUNT:-0} base=0 master=\n");
    (void)buf_adds(out, runtime_dir);
    add_node_part(size, out);
    (void)buf_adds(out, steps_part);
    (void)buf_adds(out, batch_part);
    add_steps(size, out);
    (void)buf_adds(out, batch_rest);
    return out->failed ? -ENOMEM : 0;
}

bool slurm_may_have_further(const struct conf *c, const struct slurm_size *size)
{
    return size->n == 1 && conf_bool(c, "tony.slurm.further-allocations");
}

int slurm_further_script(const struct conf *c, const struct slurm_size *size, const char *id,
                         const char *home, const char *programs, struct buf *out)
{
    AUTO(free_p) char *dir = str_printf("%s/jobs/%s", home, id);
    if (!dir)
        return -ENOMEM;
    (void)buf_addf(out, "#!/bin/sh\n#SBATCH --job-name=tony-further-%s\n", id);
    add_size(c, &size->v[0], out);
    (void)buf_addf(out,
                   "#SBATCH --no-kill\n#SBATCH --no-requeue\n#SBATCH --export=NIL\n"
                   "#SBATCH --chdir=/\n#SBATCH --open-mode=append\n"
                   "#SBATCH --output=%s/further.log\n",
                   dir);
    add_keys(c, size->constraint[0], out);
    add_extra(c, out);
    add_variables(id, home, dir, programs, out);
    (void)buf_adds(out, "base=$1 run=$2 master=$(cat \"$job/address\")\nshift 2\n");
    (void)buf_adds(out, runtime_dir);
    add_node_part(size, out);
    (void)buf_adds(out, steps_part);
    (void)buf_adds(out, further_part);
    return out->failed ? -ENOMEM : 0;
}
