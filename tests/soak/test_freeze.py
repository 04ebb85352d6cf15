# SPDX-License-Identifier: Apache-2.0
"""
Processes are frozen for as long as happens in practice, with the default heartbeats: no task dies of it, and
nothing is done twice.
"""

import os
import signal
import time

import pytest
from conftest import wait_until
from lib_digits import Training, undisturbed
from lib_jobs import Gated, lab, make_lab  # noqa: F401 (fixtures)
from lib_points import make_points_lab  # noqa: F401 (fixture)

HOUR_MS = 3600_000
LEASE = {"tony.task.restarts.node-lost": 4}


def frozen(pids, seconds):
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until, "that time is over", limit=seconds + 60, pause=0.05)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def untouched(lab, job):
    wait_until(lambda: all(t["connected"] and not t["suspect"] for t in lab.tasks(job.app).values()), "all are back")
    job.release_all()
    assert job.over()["restarts"] == 0
    job.started_once()
    lab.settled()


@pytest.mark.parametrize("whole", [False, True])
def test_an_executor_sleeps_for_20_s(lab, whole):
    """The executor is frozen for 20 s, alone or with its task."""
    job = Gated(lab, 3, conf=LEASE).running()
    task = job.pid(1)
    frozen([lab.executor_of(task), *([task] if whole else [])], 20)
    untouched(lab, job)


def test_everything_sleeps_for_10_s(lab):
    job = Gated(lab, 3, conf=LEASE).running()
    frozen([p.pid for p in lab.processes_all() if p.kind == "pool" or p.app == job.app], 10)
    untouched(lab, job)


@pytest.mark.parametrize("ms", [HOUR_MS, -HOUR_MS])
def test_the_clock_is_wrong_for_longer_than_a_lease(make_points_lab, ms):
    lab = make_points_lab()
    job = Gated(lab, 2, conf=LEASE).running()
    lab.wall_is_wrong_by(ms)
    until = time.monotonic() + 30
    wait_until(lambda: time.monotonic() > until, "that time is over", limit=90, pause=0.05)
    lab.wall_is_wrong_by(0)
    untouched(lab, job)


@pytest.mark.parametrize("kinds, seconds", [(("executor",), 20), (("executor", "task"), 20), (("pool", "keeper", "master", "executor", "task"), 10)])
def test_a_frozen_training_continues(make_lab, kinds, seconds):
    """
    One executor is frozen for 20 s, also together with its rank, or all processes for 10 s. The model is the
    same, and nothing restarts.
    """
    lab = make_lab()
    training = Training(lab, seed=1, epochs=20)
    training.await_step(50)
    mine = [p for p in lab.processes_all() if p.kind in kinds and (p.kind == "pool" or p.app == training.app)]
    if seconds == 20:
        one = next(p.pid for p in mine if p.kind == "executor")
        mine = [p for p in mine if one in (p.pid, p.kind == "task" and lab.executor_of(p.pid))]
    frozen([p.pid for p in mine], seconds)
    assert training.over() == undisturbed(lab, epochs=20)
    assert training.formations() == 1
    lab.settled()

