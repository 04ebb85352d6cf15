# SPDX-License-Identifier: Apache-2.0
"""Further allocations: nodes that join a running job, in place of a lost one, or because the job grows."""

import contextlib
import json
import os
import signal

import pytest
from lib_slurm import wait_until
from test_slurm import LONG, RESTARTS

AWAY = {"tony.task.master-away-limit": 2000}


@contextlib.contextmanager
def taken(slurm, tony, node):
    """A job of somebody else has the node."""
    holder = slurm.run("sbatch", "--parsable", "-w", node, "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600", user=tony.user, cwd="/").stdout.strip()
    wait_until(lambda: slurm.job(holder) == "RUNNING", f"{node} is taken")
    try:
        yield
    finally:
        slurm.run("scancel", "--signal=KILL", holder)


def further(slurm, app):
    """The numbers of the further allocations that have not ended."""
    return slurm.run("squeue", "-h", "-n", f"tony-further-{app}", "-o", "%i").stdout.split()


def await_attempt(tony, app, task, attempt):
    """The task, as soon as this attempt runs."""
    def runs():
        doc = next(t for t in tony.status(app)["tasks"] if t["task"] == task)
        return doc if doc["state"] == "running" and doc["attempt"] == attempt else None
    return wait_until(runs, f"attempt {attempt} of {task} runs", limit=120)


def lose_a_node(tony, slurm, app):
    """The task on a node that loses its power, which is not the first one."""
    status = tony.await_running(app, 2)
    batch_host = slurm.job(tony.number(app), "%B")
    victim = next(t for t in status["tasks"] if t["node"] != batch_host)
    slurm.power_off(victim["node"])
    return victim


def free_node(slurm, tony, app):
    used = {t["node"] for t in tony.status(app)["tasks"]}
    return next(n for n in slurm.names if n not in used)


def ends_with_everything(tony, slurm, app, state="KILLED"):
    wait_until(lambda: tony.status(app)["state"] == state, f"the job is {state}")
    wait_until(lambda: not slurm.jobs(), "nothing is left in Slurm's queue")


def kill(tony, *words):
    os.kill(tony.processes(*words)[0], signal.SIGKILL)


@pytest.mark.slow
def test_a_lost_node_is_replaced_by_a_further_allocation(tony, slurm):
    """The replacement has to wait for a node. Whatever dies meanwhile and afterwards, it comes, and goes with the job."""
    app = tony.submit(LONG, instances=2, conf={**RESTARTS, "tony.task.master-away-limit": 20000, "tony.slurm.nodes": 2})
    tony.await_running(app, 2)
    third = free_node(slurm, tony, app)
    with taken(slurm, tony, third):
        victim = lose_a_node(tony, slurm, app)
        waits = wait_until(lambda: further(slurm, app), "a further allocation waits")
        words = wait_until(lambda: tony.status(app).get("awaits"), "the status tells it")
        assert "1 further node" in words, words
        assert f"job {waits[0]} of Slurm" in tony("why", app).stdout + words
        kill(tony, "tony-master", "--cluster")
        wait_until(lambda: tony.status(app)["epoch"] == 2, "the next master answers")
        wait_until(lambda: waits[0] in tony.status(app).get("awaits", ""), "it knows the allocation")
        assert further(slurm, app) == waits
    assert await_attempt(tony, app, victim["task"], 2)["node"] == third
    assert "awaits" not in tony.status(app)
    kill(tony, "tony-master", "--cluster")
    wait_until(lambda: tony.status(app)["epoch"] == 3, "the next master answers")
    tony.await_running(app, 2)
    await_attempt(tony, app, victim["task"], 2)
    kill(tony, "tony-keeper ", " node 2")
    assert await_attempt(tony, app, victim["task"], 3)["node"] == third
    assert further(slurm, app) == waits
    tony("stop", app)
    ends_with_everything(tony, slurm, app)


def test_an_allocation_that_waits_goes_with_the_job(tony, slurm):
    app = tony.submit(LONG, instances=2, conf={**RESTARTS, **AWAY, "tony.slurm.nodes": 2})
    tony.await_running(app, 2)
    with taken(slurm, tony, free_node(slurm, tony, app)):
        lose_a_node(tony, slurm, app)
        wait_until(lambda: further(slurm, app), "a further allocation waits")
        tony("stop", app)
        wait_until(lambda: not further(slurm, app), "it is cancelled")
    ends_with_everything(tony, slurm, app)


@pytest.mark.slow
def test_a_further_allocation_that_is_cancelled_while_it_waits_is_told(tony, slurm):
    app = tony.submit(LONG, instances=2, conf={**RESTARTS, **AWAY, "tony.slurm.nodes": 2})
    tony.await_running(app, 2)
    with taken(slurm, tony, free_node(slurm, tony, app)):
        lose_a_node(tony, slurm, app)
        waits = wait_until(lambda: further(slurm, app), "a further allocation waits")
        assert slurm.run("scancel", waits[0], user=tony.user).returncode == 0
        wait_until(lambda: "CANCELLED" in json.dumps(tony.status(app)["failures"]), "the task fails for this reason", limit=120)
        tony("stop", app, ok=False)
        wait_until(lambda: not tony.status(app)["live"], "the job is over")
    wait_until(lambda: not slurm.jobs(), "nothing is left in Slurm's queue")


@pytest.mark.slow
def test_a_further_allocation_that_dies_is_replaced(tony, slurm):
    app = tony.submit(LONG, instances=2, conf={**RESTARTS, **AWAY, "tony.slurm.nodes": 2})
    victim = lose_a_node(tony, slurm, app)
    await_attempt(tony, app, victim["task"], 2)
    job = further(slurm, app)
    assert slurm.run("scancel", "--signal=KILL", job[0], user=tony.user).returncode == 0
    wait_until(lambda: set(further(slurm, app)) - set(job), "another one is submitted", limit=120)
    await_attempt(tony, app, victim["task"], 3)
    tony("stop", app)
    ends_with_everything(tony, slurm, app)


@pytest.mark.slow
def test_a_job_grows_and_shrinks_by_further_allocations(tony, slurm):
    app = tony.submit(LONG, instances=1, conf={**RESTARTS, "tony.slurm.nodes": 1, "tony.worker.min-instances": 1, "tony.worker.max-instances": 3})
    tony.await_running(app, 1)
    tony("resize", app, "worker=3", timeout=120)
    status = tony.await_running(app, 3, limit=90)
    assert {t["node"] for t in status["tasks"]} == set(slurm.names)
    assert len(further(slurm, app)) == 1, "one allocation of two nodes"
    tony("resize", app, "worker=1", timeout=120)
    wait_until(lambda: not further(slurm, app), "its nodes are given back")
    tony.await_running(app, 1)
    tony("stop", app)
    ends_with_everything(tony, slurm, app)


def test_an_earlier_run_leaves_the_further_allocations_of_the_next_one(tony, slurm):
    """A run that was cut off, and reconnects: the file `run` has the number of the next one, which has further allocations."""
    app = tony.submit(LONG)
    tony.await_running(app, 3)
    number, job = tony.number(app), tony.home / "jobs" / app
    of_next = slurm.run("sbatch", "--parsable", "--hold", "-o", "/dev/null", "-J", f"tony-further-{app}", "--wrap", "true", user=tony.user, cwd="/").stdout.strip()
    (job / "further.json").write_text(json.dumps({"run": 1, "next": 4, "list": [{"state": "queued", "base": 3, "nodes": 1, "job": of_next}]}))
    (job / "run").write_text("1\n")
    wait_until(lambda: slurm.job(number) not in ("RUNNING", "COMPLETING"), "the run has ended")
    assert slurm.job(of_next) == "PENDING"
    assert not tony.status(app)["live"]
    wait_until(lambda: not slurm.jobs(), "the client has cancelled the further allocation of a job that is over")


def test_plan_says_whether_a_job_may_have_further_nodes(tony, slurm):
    path = tony.job_file("true")
    assert "tony.slurm.further-allocations" in tony("plan", path).stdout
    path = tony.job_file("true", conf={"tony.slurm.further-allocations": "false"})
    assert "replaced only by a spare node" in tony("plan", path).stdout
