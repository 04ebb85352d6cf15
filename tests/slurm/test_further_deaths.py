# SPDX-License-Identifier: Apache-2.0
"""Whatever dies while a job has nodes of a further allocation: what runs goes on, and nothing is left in Slurm's queue."""

import json
import os
import pathlib
import signal

import pytest
from lib_slurm import wait_until
from test_further import AWAY, await_attempt, ends_with_everything, further, kill
from test_notices import begin_again
from test_slurm import LONG, RESTARTS

pytestmark = pytest.mark.slow
GROWS = {**RESTARTS, **AWAY, "tony.slurm.nodes": 1, "tony.worker.min-instances": 1, "tony.worker.max-instances": 3}


def grown(tony, slurm):
    """
    The id of a job with one task in its first allocation, and two in a further one, and the number of that. The test tries
    three times: if the disk is slow, the master asks for the second task so late that it gets an allocation of its own.
    """
    for _ in range(3):
        app = tony.submit(LONG, instances=1, conf=GROWS)
        tony.await_running(app, 1)
        tony("resize", app, "worker=3", timeout=120)
        assert attempts(tony, app) == [1, 1, 1]
        jobs = further(slurm, app)
        if len(jobs) == 1:
            return app, jobs[0]
        tony("kill", app)
        ends_with_everything(tony, slurm, app)
    raise AssertionError(f"the job has {len(jobs)} further allocations")


def attempts(tony, app):
    return [t["attempt"] for t in sorted(tony.await_running(app, 3, limit=120)["tasks"], key=lambda t: t["task"])]


def epoch_or_silence(tony, app):
    """None: neither a master nor slurmctld answers, and `tony status` says so by its exit code."""
    done = tony("status", app, "--json", ok=False)
    assert done.returncode in (0, 4), done.stdout + done.stderr
    return json.loads(done.stdout)["epoch"] if done.returncode == 0 else None


def script_of(slurm, number):
    """The pid of the batch script of a job of Slurm."""
    found = []
    for node in slurm.names:
        for pid in slurm.processes(node):
            try:
                argv = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                parent = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
                above = pathlib.Path(f"/proc/{parent}/cmdline").read_bytes()
            except OSError:
                continue
            if f"job{int(number):05}/slurm_script".encode() in b" ".join(argv) and above.startswith(b"slurmstepd"):
                found.append(pid)
    (pid,) = found
    return pid


def test_processes_of_both_allocations_are_killed(tony, slurm):
    app, job = grown(tony, slurm)
    kill(tony, "tony-master", "--cluster")
    wait_until(lambda: tony.status(app)["epoch"] == 2, "the next master answers")
    assert attempts(tony, app) == [1, 1, 1]
    kill(tony, "tony-keeper ", " head")
    wait_until(lambda: tony.status(app)["epoch"] == 3, "the master of the next head keeper answers")
    assert attempts(tony, app) == [1, 1, 1]
    kill(tony, "tony-keeper ", " node 2")
    wait_until(lambda: sorted(attempts(tony, app)) == [1, 1, 2], "its task is restarted")
    assert further(slurm, app) == [job], "it has the same nodes"
    tony("stop", app)
    ends_with_everything(tony, slurm, app)


@pytest.mark.parametrize("how", ["script", "scancel"])
def test_a_further_allocation_ends(tony, slurm, how):
    """Its tasks are lost; they start again in another one."""
    app, job = grown(tony, slurm)
    if how == "script":
        os.kill(script_of(slurm, job), signal.SIGKILL)
    else:
        assert slurm.run("scancel", job, user=tony.user).returncode == 0
    wait_until(lambda: set(further(slurm, app)) - {job}, "another one is submitted", limit=120)
    await_attempt(tony, app, "worker:2", 2)
    assert attempts(tony, app) == [1, 2, 2]
    tony("stop", app)
    ends_with_everything(tony, slurm, app)


def test_slurmctld_is_away_while_processes_die(tony, slurm):
    app, job = grown(tony, slurm)
    slurm.controller_off()
    kill(tony, "tony-master", "--cluster")
    wait_until(lambda: epoch_or_silence(tony, app) == 2, "the next master answers")
    kill(tony, "tony-keeper ", " node 1")
    wait_until(lambda: sorted(attempts(tony, app)) == [1, 1, 2], "its task is restarted")
    slurm.controller_on()
    wait_until(lambda: slurm.states() == ["mix"] * 3, "all nodes are back")
    assert further(slurm, app) == [job]
    assert sorted(attempts(tony, app)) == [1, 1, 2]
    tony("stop", app)
    ends_with_everything(tony, slurm, app)


def test_slurmctld_is_away_when_the_job_ends(tony, slurm):
    """Nobody can cancel the further allocation; it ends by itself."""
    app, _ = grown(tony, slurm)
    slurm.controller_off()
    tony("stop", app)
    wait_until(lambda: tony.status(app)["state"] == "KILLED", "the job is over")
    wait_until(lambda: not tony.processes(app), "no process of it is left", limit=120)
    slurm.controller_on()
    ends_with_everything(tony, slurm, app)


def test_the_batch_script_of_the_job_is_killed(tony, slurm):
    """Slurm ends this run. The master puts the job back into the queue, and the further allocation of this run ends."""
    app, job = grown(tony, slurm)
    number = tony.number(app)
    os.kill(script_of(slurm, number), signal.SIGKILL)
    begin_again(slurm, number)
    wait_until(lambda: (tony.status(app).get("epoch") or 0) > 1, "the master of the next run answers", limit=120)
    assert attempts(tony, app) == [2, 2, 2]
    wait_until(lambda: job not in slurm.jobs(), "the further allocation of the earlier run has ended")
    tony("stop", app)
    ends_with_everything(tony, slurm, app)
