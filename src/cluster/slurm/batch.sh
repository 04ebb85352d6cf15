# SPDX-License-Identifier: Apache-2.0

# ---- the batch step: the keepers of all nodes, and the head keeper with the master (src/cluster/slurm/batch.sh) ----

[ -r "$job/key" ] || { echo "$job cannot be read on $(hostname)" >&2; exit 1; }
echo "$SLURM_JOB_ID" > "$job/slurm_id" && cp "$0" "$job/batch.sh" || {
    echo "node $SLURMD_NODENAME: cannot write to $job" >&2
    exit 1
}
runtime_dir
[ "$run" -eq 0 ] || rm -f "$job/master.json" # of the master of an earlier run
head=
trap '[ -z "$head" ] || kill -USR1 $head 2> /dev/null' USR1 # a notice: the run will end
trap : TERM USR2 INT HUP # scancel --signal is for the tasks
rm -f "$job/step_ended"
script=$job/batch.sh script_args= over=$job/step_ended
{
    trap : TERM
    trap '' USR1 USR2 INT HUP # also in what it starts
    all_steps
    while ! wait; do :; done # a signal ends a wait
    [ ! -d "$job" ] || echo 1 > "$over"
} 2>&1 &
step=$!
rc=129
while [ $rc -gt 128 ]; do
    "$programs/tony-executor" --keeper "$id" --head --run "$run" >> "$job/keeper.log" 2>&1 &
    head=$!
    wait $head
    rc=$?
    while kill -0 $head 2> /dev/null; do # a signal has ended the wait
        wait $head
        rc=$?
    done
done
n=0
while kill -0 $step 2> /dev/null && [ $n -lt 40 ]; do
    sleep 0.05
    n=$((n + 1))
done
# Without control groups, Slurm does not find what is left when this script has ended. It would be left on a node that was
# cut off: there an srun waits for ever.
end_children $$
for d in "$job" "$TONY_HOME/history/$id"; do # a later run has further allocations of its own
    [ ! -e "$d/further.json" ] || [ "$(cat "$d/run")" != "$run" ] || scancel -Q -n "tony-further-$id"
done
rm -rf "$TONY_RUNTIME_DIR"
# The job is over. Slurm 24.11 would nevertheless put it back into the queue if it has preempted an earlier run.
[ "$run" -eq 0 ] || [ -d "$job" ] || scontrol update "JobId=$SLURM_JOB_ID" Requeue=0 > /dev/null 2>&1
[ $rc -eq 0 ] || exit 1
