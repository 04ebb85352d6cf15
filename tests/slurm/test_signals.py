# SPDX-License-Identifier: Apache-2.0
"""Signals that a user sends by scancel, and jobs that scontrol suspends."""

import json
import os
import signal
import time

import pytest
from lib_slurm import wait_until
from test_slurm import LONG, RESTARTS


@pytest.mark.parametrize("name, whole", [("USR1", []), ("USR2", ["--batch"]), ("USR2", ["--full"]), ("INT", []), pytest.param("HUP", ["--batch"], marks=pytest.mark.slow)])
def test_a_signal_of_the_user_is_for_the_tasks(tony, slurm, name, whole):
    """Slurm sends it to all processes of the steps, or also to the batch script. tony's own ones take no notice of it."""
    app = tony.submit(f"trap 'echo got {name}' {name}; echo ready; while :; do sleep 0.3 & wait; done", conf=RESTARTS)
    tony.await_running(app, 3)
    wait_until(lambda: tony("logs", app).stdout.count("ready") == 3, "the tasks handle the signal")
    assert slurm.run("scancel", *whole, f"--signal={name}", tony.number(app), user=tony.user).returncode == 0
    if whole != ["--batch"]:
        wait_until(lambda: tony("logs", app).stdout.count(f"got {name}") >= 3, "the tasks have got it")
    os.kill(tony.processes("tony-master", "--cluster")[0], signal.SIGKILL)  # so that all that is left must connect to the next one
    wait_until(lambda: tony.status(app)["epoch"] >= 2, "the next master answers")
    doc = tony.await_running(app, 3)
    assert [t["attempt"] for t in doc["tasks"]] == [1, 1, 1], doc
    tony("stop", app)


@pytest.mark.parametrize("name, number", [("INT", 2), pytest.param("HUP", 1, marks=pytest.mark.slow)])
def test_a_signal_that_ends_the_tasks_is_told(tony, slurm, name, number):
    """As on the pool: the tasks fail with this signal, and the rules of the job file decide about a restart."""
    app = tony.submit("exec sleep 600")
    tony.await_running(app, 3)
    wait_until(lambda: len(tony.processes("sleep 600")) == 3, "the commands run")
    assert slurm.run("scancel", f"--signal={name}", tony.number(app), user=tony.user).returncode == 0
    wait_until(lambda: not tony.status(app)["live"], "the job ends")
    doc = tony.status(app)
    assert doc["state"] == "FAILED" and f"was killed by signal {number} (SIG{name})" in doc["message"], doc


def test_a_signal_that_ends_the_steps_is_told(tony, slurm):
    """Slurm itself sends TERM to end the steps: tony takes it for that."""
    app = tony.submit(LONG, conf=RESTARTS)
    tony.await_running(app, 3)
    assert slurm.run("scancel", "--signal=TERM", tony.number(app), user=tony.user).returncode == 0
    wait_until(lambda: not tony.status(app)["live"], "the job ends")
    doc = tony.status(app)
    assert doc["state"] == "KILLED" and "got a signal there (scancel --signal)" in doc["message"], doc


def killed_script(tony, slurm):
    """A job whose batch script was killed, so that its master has put it back. Its master may live on: Slurm here has no control groups."""
    app = tony.submit(LONG, conf=RESTARTS)
    tony.await_running(app, 3)
    number = tony.number(app)
    assert slurm.run("scancel", "--signal=KILL", "--batch", number, user=tony.user).returncode == 0
    wait_until(lambda: slurm.job(number) == "PENDING", "the job is back in the queue")
    return app, number


@pytest.mark.slow
def test_a_stopped_job_leaves_the_queue_if_its_script_was_killed(tony, slurm):
    app, number = killed_script(tony, slurm)
    tony("stop", app)
    assert tony.status(app)["state"] == "KILLED"
    wait_until(lambda: slurm.job(number) != "PENDING", "the job has left the queue")


@pytest.mark.slow
def test_a_master_that_slurm_does_not_end_leaves(tony, slurm):
    """Its run is over, and it ends by itself."""
    app, _ = killed_script(tony, slurm)
    wait_until(lambda: not tony.processes("tony-master", "--cluster"), "the master has ended", limit=150)
    tony("stop", app)
    assert tony.status(app)["state"] == "KILLED", tony.status(app)


def test_a_suspended_job_is_told(tony, slurm):
    app = tony.submit(LONG, conf=RESTARTS)
    tony.await_running(app, 3)
    number = tony.number(app)
    assert slurm.run("scontrol", "suspend", number).returncode == 0
    try:
        doc = wait_until(lambda: (d := tony.status(app))["state"] == "SUSPENDED" and d, "its processes are halted")
        assert "scontrol resume lets it go on" in doc["message"], doc
        row = json.loads(tony("list", "--cluster", "slurm", "--state", "suspended", "--json").stdout)["jobs"][0]
        assert row["application_id"] == app and row["state"] == "SUSPENDED", row
    finally:
        slurm.run("scontrol", "resume", number)
    wait_until(lambda: tony.status(app)["state"] == "RUNNING", "the job runs on")
    assert [t["attempt"] for t in tony.await_running(app, 3)["tasks"]] == [1, 1, 1]
    tony("stop", app)


@pytest.mark.slow
@pytest.mark.takes(60)
def test_a_job_that_was_suspended_for_long_loses_no_task(tony, slurm):
    """For longer than keepers and tasks may be silent: nobody was, since the master did not run either."""
    app = tony.submit(LONG, conf=RESTARTS)
    tony.await_running(app, 3)
    number = tony.number(app)
    assert slurm.run("scontrol", "suspend", number).returncode == 0
    time.sleep(45)  # the limit on the silence of keepers is 30 s
    assert slurm.run("scontrol", "resume", number).returncode == 0
    wait_until(lambda: "master.stalled" in (tony.home / "jobs" / app / "master.log").read_text(), "the master runs again")
    os.kill(tony.processes("tony-master", "--cluster")[0], signal.SIGKILL)  # so that all that is left must connect to the next one
    wait_until(lambda: tony.status(app)["epoch"] == 2, "the next master answers")
    assert [t["attempt"] for t in tony.await_running(app, 3)["tasks"]] == [1, 1, 1]
    tony("stop", app)
