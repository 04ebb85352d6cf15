"""Processes that sleep and clocks that jump: no healthy task dies of it, and none is duplicated."""

import os
import signal
import time

import pytest
from conftest import wait_until
from lib_jobs import Gated, kill9, lab, make_lab  # noqa: F401 (fixtures)
from lib_points import make_points_lab  # noqa: F401 (fixture)

BEAT_MS, DEAD_BEATS = 100, 20
CONF = {"tony.task.heartbeat-interval-ms": BEAT_MS, "tony.task.max-missed-heartbeats": DEAD_BEATS, "tony.task.restarts.node-lost": 4,
        "tony.client.away-limit": 1000}
HOUR_MS = 3600_000


def connected(lab, job):
    return all(t["connected"] and not t["suspect"] for t in lab.tasks(job.app).values())


def untouched(lab, job):
    """It ends as if nothing had been."""
    wait_until(lambda: connected(lab, job), "all are back")
    job.release_all()
    doc = job.over()
    assert doc["restarts"] == 0, doc
    job.started_once()
    lab.settled()


def test_everything_is_frozen(lab):
    """For longer than a silence that kills: pool, keeper, master, executors and tasks."""
    job = Gated(lab, 3, conf=CONF).running()
    wait_until(lambda: connected(lab, job), "all are there")
    frozen = [p.pid for p in lab.processes_all() if p.kind == "pool" or p.app == job.app]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + 1.5 * BEAT_MS * DEAD_BEATS / 1000
    wait_until(lambda: time.monotonic() > until, "that time is over", pause=0.05)
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    untouched(lab, job)


def test_the_master_is_frozen(lab):
    job = Gated(lab, 3, conf=CONF).running()
    wait_until(lambda: connected(lab, job), "all are there")
    master = lab.one("master", job.app)
    os.kill(master, signal.SIGSTOP)
    until = time.monotonic() + 1.5 * BEAT_MS * DEAD_BEATS / 1000
    wait_until(lambda: time.monotonic() > until, "that time is over", pause=0.05)
    os.kill(master, signal.SIGCONT)
    untouched(lab, job)


def test_an_executor_that_sleeps_is_suspected_and_comes_back(lab):
    job = Gated(lab, 2, conf={**CONF, "tony.task.max-missed-heartbeats": 1000}).running()
    executor = lab.executor_of(job.pid(1))
    os.kill(executor, signal.SIGSTOP)
    wait_until(lambda: lab.tasks(job.app)["worker:1"]["suspect"], "it is suspected")
    os.kill(executor, signal.SIGCONT)
    wait_until(lambda: not lab.tasks(job.app)["worker:1"]["suspect"], "it is heard of again")
    untouched(lab, job)


@pytest.mark.parametrize("ms", [HOUR_MS, -HOUR_MS])
def test_the_wall_clock_jumps(make_points_lab, ms):
    """While the job runs, and between two masters."""
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
