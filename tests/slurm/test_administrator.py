# SPDX-License-Identifier: Apache-2.0
"""What an administrator or the owner changes in Slurm while a job runs: time limit, hold, nodes. And a filled range of ports."""

import contextlib
import random
import shutil
import socket

import pytest
from lib_slurm import wait_until
from test_notices import LIMITED, await_training, limit_comes_near, training
from test_slurm import LONG, RESTARTS


@pytest.mark.slow
def test_a_time_limit_that_is_raised_after_the_notice(tony, slurm):
    """The master asks slurmctld again before it lets the tasks save: the job runs on."""
    app = tony("submit", training(tony, 100000, **LIMITED)).stdout.strip()
    await_training(tony, app)
    limit_comes_near(tony, slurm, app, 95)
    log = tony.home / "jobs" / app / "master.log"
    wait_until(lambda: "slurm.limit_ahead" in log.read_text(), "the master knows of the limit")
    done = slurm.run("scontrol", "update", f"JobId={tony.number(app)}", "EndTime=now+3600")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: log.read_text().count("slurm.limit_ahead") == 2, "the master knows that it was raised")
    doc = tony.await_running(app, 2)
    assert "slurm.time_limit" not in log.read_text() and not doc.get("checkpoint"), doc
    tony("stop", app)


def test_a_job_that_is_put_back_and_held(tony, slurm):
    app = tony.submit(LONG, conf=RESTARTS)
    tony.await_running(app, 3)
    number = tony.number(app)
    assert slurm.run("scontrol", "requeuehold", number, user=tony.user).returncode == 0
    doc = wait_until(lambda: (d := tony.status(app))["state"] == "WAITING" and d["message"] and d, "it waits")
    assert "it is held; scontrol release lets it go" in doc["message"], doc
    assert slurm.run("scontrol", "release", number, user=tony.user).returncode == 0
    wait_until(lambda: "its start time has not come" in tony.status(app)["message"], "the next reason is told")
    tony("stop", app)
    assert tony.status(app)["state"] == "KILLED"


@pytest.mark.parametrize("state", ["DRAIN", pytest.param("FAIL", marks=pytest.mark.slow)])
def test_a_node_that_is_to_take_no_more_jobs(tony, slurm, state):
    """What runs there runs on."""
    app = tony.submit(LONG, conf=RESTARTS)
    tony.await_running(app, 3)
    assert slurm.run("scontrol", "update", "NodeName=n2", f"State={state}", "Reason=test").returncode == 0
    try:
        assert [t["attempt"] for t in tony.await_running(app, 3)["tasks"]] == [1, 1, 1]
        tony("stop", app)
    finally:
        assert slurm.run("scontrol", "update", "NodeName=n2", "State=RESUME").returncode == 0


def test_a_directory_that_is_removed(tony, slurm):
    """Nothing is killed because files are missing, but no client can connect any more."""
    app = tony.submit(LONG, conf=RESTARTS)
    tony.await_running(app, 3)
    number = tony.number(app)
    shutil.rmtree(tony.home / "jobs" / app)
    for words in (("status", app), ("stop", app), ("logs", app)):
        done = tony(*words, ok=False)
        assert done.returncode in (2, 4) and f"was removed, but job {number} of Slurm has not ended" in done.stderr, done
        assert f"scancel {number} ends it" in done.stderr, done
    assert len(tony.processes("-c while :")) == 3
    assert slurm.run("scancel", number, user=tony.user).returncode == 0
    wait_until(lambda: not tony.processes("tony-") and not slurm.jobs(), "nothing of the job is left")
    done = tony("status", app, ok=False)
    assert done.returncode == 2 and "there is no job" in done.stderr, done


@contextlib.contextmanager
def taken_ports(n):
    """The first of 16 ports, of which n are taken."""
    while True:
        first = random.randrange(10000, 20000)
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + 16):
                    s = held.enter_context(socket.socket())
                    s.bind(("0.0.0.0", port))
                    if port < first + n:
                        s.listen()
                    else:
                        s.close()
            except OSError:
                continue
            yield first
            return


@pytest.mark.parametrize("n, what", [(16, "the job's master could not be run"), (13, "could not be started")])
def test_a_port_range_that_is_full(tony, n, what):
    with taken_ports(n) as first:
        done = tony("run", tony.job_file("true", conf={"tony.port-range": f"{first}-{first + 15}"}), ok=False)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and what in said and "all ports of tony.port-range" in said, said
