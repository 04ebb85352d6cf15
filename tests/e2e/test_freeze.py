# SPDX-License-Identifier: Apache-2.0
"""Processes that are stopped and clocks that jump: no healthy task dies of it, and no task runs twice."""

import os
import signal
import time

import pytest
from conftest import wait_until
from lib_jobs import Gated, kill9, lab, make_lab  # noqa: F401 (fixtures)
from lib_points import make_points_lab  # noqa: F401 (fixture)

BEAT_MS = 100
# With a limit of 1000 heartbeats no task dies here. With 60, a task that is frozen for 7 s would, but not one
# that only waits for a busy machine.
CONF = {"tony.task.heartbeat-interval-ms": BEAT_MS, "tony.task.max-missed-heartbeats": 1000, "tony.task.restarts.node-lost": 4}
MORTAL, FROZEN_S = {**CONF, "tony.task.max-missed-heartbeats": 60}, 7
HOUR_MS = 3600_000


def connected(lab, job):
    return all(t["connected"] and not t["suspect"] for t in lab.tasks(job.app).values())


def untouched(lab, job):
    """The job ends normally."""
    wait_until(lambda: connected(lab, job), "all are back")
    job.release_all()
    doc = job.over()
    assert doc["restarts"] == 0, doc
    job.started_once()
    lab.settled()


@pytest.mark.takes(7)
def test_processes_frozen_for_longer_than_the_limit_continue(make_lab):
    """
    Frozen for longer than the silence limit. In one home pool, keeper, master, executors and tasks are
    frozen, in the other only the master.
    """
    whole, one = make_lab(), make_lab()
    jobs = {lab: Gated(lab, 3, conf=MORTAL).running() for lab in (whole, one)}
    for lab, job in jobs.items():
        wait_until(lambda: connected(lab, job), "all are there")
    masters = [lab.one("master", job.app) for lab, job in jobs.items()]
    others = [p.pid for p in whole.processes_all() if (p.kind == "pool" or p.app == jobs[whole].app) and p.pid not in masters]
    for pid in masters + others:
        os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + FROZEN_S
    wait_until(lambda: time.monotonic() > until, "that time is over", pause=0.05)
    for pid in others + masters:  # the masters, which judge the silence, continue last
        os.kill(pid, signal.SIGCONT)
    for lab, job in jobs.items():
        untouched(lab, job)


def test_an_executor_that_sleeps_is_suspected_and_comes_back(lab):
    job = Gated(lab, 2, conf=CONF).running()
    executor = lab.executor_of(job.pid(1))
    os.kill(executor, signal.SIGSTOP)
    wait_until(lambda: lab.tasks(job.app)["worker:1"]["suspect"], "it is suspected")
    os.kill(executor, signal.SIGCONT)
    wait_until(lambda: not lab.tasks(job.app)["worker:1"]["suspect"], "it is heard of again")
    untouched(lab, job)


@pytest.mark.takes(8)
def test_a_keeper_that_hangs_costs_no_task(lab):
    """The keeper sends the heartbeats of quiet executors. When they are missing, the master asks each executor."""
    conf = {**CONF, "tony.task.heartbeat-interval-ms": 1000, "tony.task.max-missed-heartbeats": 6}
    job = Gated(lab, 2, conf=conf).running()
    wait_until(lambda: connected(lab, job), "all are there")
    keeper = lab.one("keeper", job.app)
    os.kill(keeper, signal.SIGSTOP)
    until = time.monotonic() + 8
    wait_until(lambda: time.monotonic() > until, "that time is over", pause=0.05)
    assert all(t["connected"] for t in lab.tasks(job.app).values())
    os.kill(keeper, signal.SIGCONT)
    untouched(lab, job)


@pytest.mark.parametrize("ms", [HOUR_MS, -HOUR_MS])
def test_the_wall_clock_jumps(make_points_lab, ms):
    """The clock jumps while the job runs, and between two masters."""
    lab = make_points_lab()
    job = Gated(lab, 2, conf={**CONF, "tony.application.timeout": HOUR_MS // 2}).running()
    wait_until(lambda: connected(lab, job), "all are there")
    lab.wall_is_wrong_by(ms)
    first = lab.one("master", job.app)
    kill9(first)
    lab.one("master", job.app, other_than=first)
    wait_until(lambda: connected(lab, job), "the next master has them")
    lab.wall_is_wrong_by(0)
    untouched(lab, job)
