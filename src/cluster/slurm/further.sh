# SPDX-License-Identifier: Apache-2.0

# ---- a further allocation: the keepers of all its nodes (src/cluster/slurm/further.sh) ----
#
# Nothing tells this allocation that the job has ended, or that Slurm has started it again. So the script looks each
# 15 s whether this run of the job goes on. If not, the script exits, and Slurm ends all processes that it has started.

goes_on || exit 0
trap : TERM USR1 USR2 INT HUP
script=$job/script.further script_args="$base $run" over=/dev/null
{
    trap : TERM
    trap '' USR1 USR2 INT HUP # also in what it starts
    steps "$base" "$SLURM_JOB_NODELIST"
    while ! wait; do :; done # TERM ends a wait
} &
step=$!
n=0
while kill -0 $step 2> /dev/null; do
    sleep 1
    n=$(((n + 1) % 15))
    [ $n -ne 0 ] || goes_on || break
done
end_children $$
exit 0
