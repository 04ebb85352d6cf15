# SPDX-License-Identifier: Apache-2.0

# ---- functions of both scripts (src/cluster/slurm/keepers.sh) ----
#
# The lines above set these variables:
#   id         of the job
#   job        the directory of the job
#   programs   the directory of tony's programs
#   run        how often Slurm has started the job again; 0 at first
#   master     the address of the head node; "" = the node that has started the step
#   port_range tony.port-range, if it is set
# and define the function shares().
#
# Before it calls steps(), the rest of each script sets:
#   script       the path by which the keepers' nodes run this script
#   script_args  the first arguments of that run
#   over         the file that is written if the user has cancelled a step

# Remove a directory of this user. Shipped directories in it are read-only; a task may have made one that nobody may enter.
remove() {
    chmod -R u+rwX "$1"
    rm -rf "$1"
}

# Make a directory on this node for the sockets and locks of a keeper. The program that uses such a directory locks its
# file `lock`. So directories whose file is not locked belong to killed jobs: remove them first. Leave the directories of
# other users alone.
runtime_dir() {
    for d in /tmp/tony-slurm-*; do
        [ -L "$d" ] || [ ! -O "$d" ] || [ ! -O "$d/lock" ] || (flock -n 9 && remove "$d") 9< "$d/lock"
    done 2> /dev/null
    TONY_RUNTIME_DIR=$(mktemp -d /tmp/tony-slurm-XXXXXX) && true > "$TONY_RUNTIME_DIR/new" || {
        echo "node $SLURMD_NODENAME: cannot make a directory for sockets in /tmp, which the keeper of a node needs" >&2
        exit 1
    }
    export TONY_RUNTIME_DIR
    exec 8> "$TONY_RUNTIME_DIR/new"
    flock -n 8 && mv "$TONY_RUNTIME_DIR/new" "$TONY_RUNTIME_DIR/lock"
}

# The keeper of this node, restarted if a signal kills it. $1: the number of the first node of its step, $2: the nodes
# of the step, separated by commas, $3: their component.
node() {
    number=$1 IFS=,
    for name in $2; do
        [ "$name" != "$SLURMD_NODENAME" ] || break
        number=$((number + 1))
    done
    unset IFS
    exec 3>&1 >> "$job/nodes/$number.log" 2>&1
    shares "$3"
    set -- --memory-mib "$memory_mib" --vcores "$vcores"
    [ -z "$gpus" ] || set -- "$@" --gpus "$gpus"
    [ -z "${port_range:-}" ] || set -- "$@" --port-range "$port_range"
    runtime_dir
    trap : TERM USR1 USR2 INT HUP # scancel --signal=USR1 is for the tasks
    : "${master:=$SLURM_LAUNCH_NODE_IPADDR}"
    [ "$number" -ne 0 ] || echo "$master" > "$job/address"
    rc=129
    while [ $rc -gt 128 ]; do
        "$programs/tony-executor" --keeper "$id" --node "$number" \
            --node-name "$SLURMD_NODENAME" --master-host "$master" \
            --run "$run" "$@" 3>&-
        rc=$?
    done
    remove "$TONY_RUNTIME_DIR"
    if [ -n "${TONY_LOCAL:-}" ]; then # wait until the logs are on the first node
        echo "fetch $SLURMD_NODENAME $TONY_LOCAL" >&3
        n=0
        while [ ! -e "$TONY_LOCAL/fetched" ] && [ $n -lt 600 ]; do
            sleep 0.1
            n=$((n + 1))
        done
        remove "$TONY_LOCAL"
    fi
    exit $rc
}

# The command of a step on each of its nodes. It runs the script. If the node does not see TONY_HOME, the script is not
# there: then the command makes a directory, tells its name to the first node, and waits until the first node has sent
# all that the keeper needs.
start='
[ ! -r "$0" ] || exec /bin/sh "$0" "$@"
d=$(mktemp -d /tmp/tony-slurm-XXXXXX) || exit 1
exec 7> "$d/new" && flock -n 7 && mv "$d/new" "$d/lock"
echo "away $SLURMD_NODENAME $d"
n=0
while [ ! -e "$d/ready" ] && [ -d "$d" ] && [ $n -lt 36000 ]; do
    sleep 0.1
    n=$((n + 1))
done
job=${0%/*}
export TONY_LOCAL=$d
exec /bin/sh "$d/jobs/${job##*/}/${0##*/}" "$@"
'

# Run the command $2 on the node $1, which does not see TONY_HOME. The further arguments are its $0, $1, ...
on_node() {
    node=$1
    shift
    srun --quiet --overlap --mpi=none --cpu-bind=none --mem=0 --nodes=1 --ntasks=1 \
        ${part:+"--het-group=$part"} --nodelist="$node" /bin/sh -c "$@" 2>> "$log.err"
}

# Send all that the node $1 needs to its directory $2.
send() {
    : > "$job/nodes/sending-$1"
    : > "$job/nodes/away-$1"
    tar -C "$TONY_HOME" -cf - "programs/${programs##*/}/tony-executor" "jobs/$id/key" \
        "jobs/$id/${script##*/}" $(grep -o 'store/[df]-[0-9a-f]*' "$job/job.conf" | sort -u) |
        on_node "$1" 'mkdir -p "$0/jobs/$1/nodes" "$0/jobs/$1/logs" && tar -C "$0" -xf - &&
            : > "$0/ready" || { chmod -R u+rwX "$0"; rm -rf "$0"; }' "$2" "$id"
    rm -f "$job/nodes/sending-$1"
}

# Send the address of the master to the nodes in $log.away whenever it changes.
push() {
    while goes_on; do
        now=$(cat "$job/master.json" 2> /dev/null)
        while [ -n "$now" ] && read -r node dir; do
            sent=$job/nodes/away-$node
            [ ! -e "$sent" ] || [ "$(cat "$sent")" = "$now" ] ||
                echo "$now" | on_node "$node" 'cd "$0" && cat > new.json &&
                    mv new.json "jobs/$1/master.json"' "$dir" "$id" &&
                [ -e "$sent" ] && echo "$now" > "$sent"
        done < "$log.away"
        sleep 0.5
    done 2> /dev/null
}

# Fetch the logs of the node $1 from its directory $2.
fetch() {
    on_node "$1" 'cd "$0/jobs/$1" && tar -cf - logs nodes/*.log
        : > "$0/fetched"' "$2" "$id" < /dev/null | tar -C "$job" -xf -
    rm -f "$job/nodes/away-$1"
}

# Read what the nodes of a step write: carry out their requests, and print the rest. Returns the status of srun.
handle() {
    code=0 pushes=
    while read -r word node dir; do
        case $word in
        away)
            send "$node" "$dir"
            echo "$node $dir" >> "$log.away"
            [ -n "$pushes" ] || push &
            pushes=1
            ;;
        fetch) fetch "$node" "$dir" ;;
        ended) code=$node ;;
        *) echo "$word $node $dir" ;;
        esac
    done
    for node in $(echo "$names" | tr , ' '); do # also those that have failed
        rm -f "$job/nodes/away-$node"
    done
    return "$code"
}

# Does the job go on, and is this still its run?
goes_on() { [ -r "$job/key" ] && [ "$(cat "$job/run")" = "$run" ]; }

# Print those of the nodes $1 that still belong to the allocation, separated by commas.
still_here() {
    lists=$(squeue -h -j "$SLURM_JOB_ID" -o %N) || return
    all=" $(for l in $lists; do scontrol show hostnames "$l"; done | tr '\n' ' ')"
    here= IFS=,
    for name in $1; do
        case $all in *" $name "*) here=$here${here:+,}$name ;; esac
    done
    unset IFS
    echo "$here"
}

# Has a user cancelled the step? slurmstepd then writes "CANCELLED AT". It writes that in two other cases, too: if srun has
# ended the step (then srun says "missing step"), and if Slurm ends the job (then "DUE TO" and the reason follow, and the
# master asks slurmctld). But SIGKILL follows at once, so the line may be lost. Then srun's "Job step aborted" is left, and
# no other error than that the tasks were killed. If srun itself ends a step, it also says why.
is_cancelled() {
    ! grep -q 'missing step' "$log.err" || return 1
    lines=$(grep -h 'STEP .* CANCELLED AT' "$log.out" "$log.err")
    if [ -n "$lines" ]; then
        echo "$lines" | grep -qv ' DUE TO '
    else
        grep -q 'Job step aborted' "$log.err" && ! grep -q 'forcing job termination' "$log.err" &&
            ! grep 'error:' "$log.err" | grep -Eqv ': tasks? [^ ]+: (Killed|Terminated)$'
    fi
}

# Run a step, and start it again if it fails. $1: the number of its first node, $2: the names of its nodes, separated
# by commas, $3: their component.
#
# srun ends its whole step when a node that had lost its power returns, so srun is started again for the nodes that
# still belong to the allocation. It is not if a user has cancelled the step.
step() {
    trap 'ends=1' TERM
    ends= quick=0 names=$2 part=$3 log=$job/nodes/step-$1
    while :; do
        n=$(($(echo "$names" | tr -cd , | wc -c) + 1)) began=$(date +%s)
        {
            srun --no-kill --kill-on-bad-exit=0 --wait=0 --mpi=none --input=none --overlap \
            --cpu-bind=none --mem=0 ${3:+"--het-group=$3"} --nodes=$n --ntasks=$n \
            --ntasks-per-node=1 --nodelist="$names" \
            /bin/sh -c "$start" "$script" $script_args node "$1" "$2" $3 2> "$log.err"
            echo "ended $?"
        } | handle > "$log.out" && return
        goes_on || return
        cat "$log.err"
        if is_cancelled; then
            echo 1 > "$over"
            return
        fi
        [ $(($(date +%s) - began)) -lt 60 ] || quick=0
        quick=$((quick + 1))
        while [ -z "$ends" ] && goes_on && [ $quick -lt 10 ]; do
            sleep $quick
            names=$(still_here "$2") && break
        done
        [ -z "$ends" ] && [ -n "$names" ] && goes_on && [ $quick -lt 10 ] || return
        echo "the keepers of $names start again"
    done
}

# End all processes that the process $1 has started, and those that these have started. Each is halted first, so that it
# starts no other one.
end_children() {
    for list in /proc/"$1"/task/*/children; do
        children=
        read -r children < "$list"
        for pid in $children; do
            end_tree "$pid"
        done
    done
} 2> /dev/null

end_tree() {
    kill -STOP "$1" || return
    end_children "$1"
    kill -KILL "$1"
}

# Start the steps of the nodes $2, of which the first has the number $1; $3: their component. Each node has a step of
# its own, but there are at most 8 steps, since an srun takes 4 MiB on the first node.
steps() {
    first=$1 part=$3
    case $2 in
    *[[,]*) set -- $(scontrol show hostnames "$2") ;;
    *) set -- "$2" ;;
    esac
    per=$((($# + 7) / 8))
    while [ $# -gt 0 ]; do
        names=$1 n=1
        shift
        while [ $n -lt $per ] && [ $# -gt 0 ]; do
            names=$names,$1 n=$((n + 1))
            shift
        done
        step $first "$names" $part &
        first=$((first + n))
    done
}

# step() runs this script with these arguments on each node.
[ "${1:-}" != node ] || node "$2" "$3" "${4:-}"
