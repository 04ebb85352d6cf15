# SPDX-License-Identifier: Apache-2.0
"""Nodes that fail and return while their job runs."""

import contextlib
import os
import signal

import pytest
from lib_slurm import wait_until
from test_slurm import LONG, RESTARTS

SPARE = {**RESTARTS, "tony.slurm.nodes": 2, "tony.slurm.spare-nodes": 1, "tony.task.master-away-limit": 2000}


@pytest.mark.slow
@pytest.mark.parametrize("missed", [False, True])
def test_a_node_returns_while_its_job_runs(tony, slurm, missed):
    """
    Only the step of this node ends. The others run on, whether slurmctld has missed the node or not.
    """
    app = tony.submit(LONG, instances=2, conf=SPARE)
    status = tony.await_running(app, 2)
    number = tony.number(app)
    batch_host = slurm.job(number, "%B")
    victim = next(t for t in status["tasks"] if t["node"] != batch_host)
    slurm.power_off(victim["node"])
    if missed:
        wait_until(lambda: "down*" in slurm.states(), "slurmctld misses the node")
    slurm.power_on(victim["node"])

    def replaced():
        task = next(t for t in tony.status(app)["tasks"] if t["task"] == victim["task"])
        return task["state"] == "running" and task["attempt"] == 2
    wait_until(replaced, "the task runs on another node", limit=120)
    wait_until(lambda: "unk" not in str(slurm.states()) and "down*" not in slurm.states(), "the node has registered")
    doc = tony.await_running(app, 2)
    assert doc["epoch"] == 1 and sorted(t["attempt"] for t in doc["tasks"]) == [1, 2], doc
    assert slurm.job(number) == "RUNNING"
    tony("stop", app)


@pytest.mark.slow
def test_a_node_that_is_cut_off(tony, slurm):
    """
    All of its processes are halted: so its connections stay open, but nothing comes from it, as if its cable were pulled. When
    it is back, its keeper finds that its tasks have been replaced, and ends them.
    """
    app = tony.submit(LONG, instances=2, conf=SPARE)
    status = tony.await_running(app, 2)
    batch_host = slurm.job(tony.number(app), "%B")
    victim = next(t for t in status["tasks"] if t["node"] != batch_host)
    halted = slurm.processes(victim["node"])
    for pid in halted:
        os.kill(pid, signal.SIGSTOP)

    def task():
        return next(t for t in tony.status(app)["tasks"] if t["task"] == victim["task"])
    try:
        now = wait_until(lambda: (t := task())["attempt"] == 2 and t["state"] == "running" and t, "the task runs on another node", limit=180)
        assert now["node"] != victim["node"]
    finally:
        for pid in halted:
            with contextlib.suppress(ProcessLookupError):  # it was a zombie, which its parent has just reaped
                os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not [p for p in tony.processes(app) if p in slurm.processes(victim["node"])], "nothing of the job is left there", limit=120)
    assert sorted(t["attempt"] for t in tony.await_running(app, 2)["tasks"]) == [1, 2]
    tony("stop", app)
    wait_until(lambda: not slurm.jobs(), "nothing is left in Slurm's queue")
