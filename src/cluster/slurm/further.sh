# SPDX-License-Identifier: Apache-2.0

# ---- a further allocation: the keepers of all its nodes (src/cluster/slurm/further.sh) ----
#
# The job may end, or Slurm may start it again, and nobody tells this allocation. So the script looks each 15 s whether
# this run of the job goes on. When it ends, Slurm ends all that it has started.

goes_on || exit 0
trap : TERM
script=$job/script.further script_args="$base $run" over=/dev/null
{
    trap : TERM
    steps "$base" "$SLURM_JOB_NODELIST"
    wait
} &
step=$!
n=0
while kill -0 $step 2> /dev/null; do
    sleep 1
    n=$(((n + 1) % 15))
    [ $n -ne 0 ] || goes_on || exit 0
done
