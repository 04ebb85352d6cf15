# SPDX-License-Identifier: Apache-2.0
"""
Memory limits, with control groups and without. All processes of a task over its limit end, and the report has
the reason and the numbers. A task within its limit is not disturbed.
"""

import os
import re
import signal

import pytest
from conftest import wait_until
from lib_jobs import Gated, alive, kill9, lab, make_lab  # noqa: F401 (fixtures)

PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else "python3"
QUICK = {"tony.task.heartbeat-interval-ms": 100, "tony.task.max-missed-heartbeats": 1000, "tony.task.kill-grace-ms": 500}


def eat(mib, then=""):
    """The text of a command that writes to this much memory."""
    return f"{PYTHON} -c \"import time; x = b'x' * ({mib} << 20); {then}\""


def has_groups(tony):
    return tony.json("pool", "start")["cgroup"] != "none"


@pytest.fixture
def grouped(lab):
    """A home whose pool has control groups."""
    if not has_groups(lab):
        pytest.skip("this machine lets us make no control groups")
    lab.enforced = True
    return lab


@pytest.fixture
def sampled(make_lab):
    """A home whose pool has no control groups: the executor samples the memory of its task."""
    lab = make_lab(TONY_CGROUPS="none")
    assert not has_groups(lab)
    lab.enforced = False
    return lab


@pytest.fixture(params=["grouped", "sampled"])
def world(request):
    """A home whose pool has control groups, and one whose pool has none."""
    return request.getfixturevalue(request.param)


def is_out_of_memory(end, limit_mib):
    assert end["reason"] == "out_of_memory", end
    used, of = re.search(r"(\d[\d.]*)\s*\w* of its (\d[\d.]*)", end["detail"]).groups()
    assert float(of) == limit_mib
    return float(used)


def test_over_its_memory(world):
    path = world.workers(eat(300, "time.sleep(600)"), role={"memory": "64m"}, conf=QUICK)
    r = world.run("run", path)
    assert r.returncode == 1
    app = re.search(r"application_\d+_\d+", r.stdout).group()
    cause = world.status(app)["cause"]
    is_out_of_memory(cause, 64)
    # the number alone may be part of the job's id or of its milliseconds
    assert "memory" in r.stdout + r.stderr and not re.search(r"(code|status|exit) 137\b", r.stdout + r.stderr), "said in words, not as a number"
    world.settled()


def test_a_child_over_its_memory_ends_the_task(world):
    """The kernel kills only the child, so the shell that started it could continue. tony ends the whole task."""
    f = world.base / "went-on"
    path = world.workers(eat(300, "time.sleep(600)") + f"; sleep 600; touch {f}", role={"memory": "64m"}, conf=QUICK)
    r = world.run("run", path)
    assert r.returncode == 1
    app = re.search(r"application_\d+_\d+", r.stdout).group()
    is_out_of_memory(world.status(app)["cause"], 64)
    assert not f.exists(), "the rest went with it"
    world.settled()


def test_a_child_over_its_memory_at_the_very_end(grouped):
    """The child exceeds the memory just before the task's end: the shell exits with 0 before a sample is taken.
    Only the count of a control group shows it."""
    app = grouped.submit(grouped.workers(eat(300) + "; exit 3", role={"memory": "64m"}))
    assert grouped.run("wait", app).returncode == 1
    is_out_of_memory(grouped.status(app)["cause"], 64)
    grouped.settled()


def test_many_processes_together_over_the_memory(world):
    """Each process alone stays below the limit; their sum exceeds it."""
    n = 6
    one = eat(30, "time.sleep(600)")
    path = world.workers(" & ".join([one] * n) + " & wait", role={"memory": "100m"}, conf=QUICK)
    app = world.submit(path)
    assert world.run("wait", app).returncode == 1
    is_out_of_memory(world.status(app)["cause"], 100)
    world.settled()


def test_within_its_memory(world):
    """A task that uses half of its limit for several heartbeats is not killed. Pages that its processes share are
    counted once."""
    path = world.workers(f"{PYTHON} -c \"import os, time; x = b'x' * (60 << 20); [os.fork() for i in range(2)]; time.sleep(0.6)\"",
                         role={"memory": "160m"}, conf=QUICK)
    assert world.run("run", path).returncode == 0
    world.settled()


def test_a_task_over_its_memory_does_not_disturb_others(world):
    """Neither another job nor another task of the same job is affected."""
    other = Gated(world).running()
    command = "if [ $TASK_INDEX = 1 ]; then " + eat(300, "time.sleep(600)") + "; else sleep 0.3; fi"
    app = world.submit(world.workers(command, n=3, role={"memory": "64m"}, conf=QUICK))
    assert world.run("wait", app).returncode == 0, "the chief and another succeeded"
    tasks = world.tasks(app)
    is_out_of_memory(tasks["worker:1"], 64)
    assert tasks["worker:0"]["exit_code"] == tasks["worker:2"]["exit_code"] == 0
    other.release(0)
    other.over()
    world.settled()


def test_out_of_memory_and_the_executor_killed(grouped):
    """The control group outlives the executor: no process of the task is left."""
    lab = grouped
    job = Gated(lab, before=eat(20) + ";", role={"memory": "128m"}, conf=QUICK).running()
    groups = lab.cgroups()
    assert groups, "a running job has a group"
    kill9(lab.executor_of(job.pid(0)))
    job.over("FAILED")
    lab.settled()
    assert not lab.cgroups()


def test_a_killed_task_is_not_out_of_memory(world):
    """A task that another process kills by SIGKILL counts as exited by that signal, and not as out of memory."""
    job = Gated(world, conf=QUICK).running()
    kill9(job.pid(0))
    cause = job.over("FAILED")["cause"]
    assert (cause["signal"], cause["reason"]) == (signal.SIGKILL, "exited")
    world.settled()


def test_the_limit_is_set_before_the_task_runs(grouped):
    """The first process of a task is in the task's group, the executor is not."""
    lab = grouped
    job = Gated(lab, role={"memory": "96m"}).running()
    group = [line for line in open(f"/proc/{job.pid(0)}/cgroup") if "tony-" in line]
    assert group, "the task is in a group of ours"
    paths = [p for p in lab.cgroups() for p in ([p] + [os.path.join(p, d) for d in os.listdir(p)])]
    limits = []
    for p in paths:
        for name in ("memory.limit_in_bytes", "memory.max"):
            try:
                limits.append(open(os.path.join(p, name)).read().strip())
            except OSError:
                continue
    assert str(96 << 20) in limits, limits
    job.release(0)
    job.over()
    lab.settled()


def test_pool_and_keeper_report_control_groups(world):
    cgroup = world.json("pool", "status")["cgroup"]
    assert (cgroup in ("v1", "v2")) == world.enforced
    app = world.submit(world.workers("true"))
    assert world.run("wait", app).returncode == 0
    world.in_history(app)
    assert ("keeper.no_cgroups" in (world.dir(app) / "keeper.log").read_text()) != world.enforced
    world.settled()
