# SPDX-License-Identifier: Apache-2.0
"""The pool starts a keeper and a master for the next job before the job comes: the standby."""
import os
import shutil
import signal

import pytest

from conftest import BIN, wait_until
from lib_points import PointJob, make_points_lab  # noqa: F401


def standby(tony):
    """Pids of the keeper and the master of the standby, once both wait; None before."""
    found = {}
    for pid, line in tony.processes().items():
        try:
            name = open(f"/proc/{pid}/comm").read().strip()
        except OSError:
            continue
        if line.startswith("tony-standby --standby ") and name == "tony-standby":
            found["--master-pid=" in line] = pid
    return (found[True], found[False]) if len(found) == 2 else None


def ready(tony):
    return wait_until(lambda: standby(tony), "a standby waits")


def processes_of(tony, app):
    """Pids of the keeper and the master of a job."""
    lines = tony.processes()
    keepers = [pid for pid, line in lines.items() if line == f"tony-keeper {app}"]
    masters = [pid for pid, line in lines.items() if line == f"tony-master --epoch 1 {app}"]
    return (keepers[0], masters[0]) if len(keepers) == len(masters) == 1 else None


def start(tony):
    app = tony.submit(tony.workers("sleep 600"))
    wait_until(lambda: tony.json("status", app)["state"] == "RUNNING", "the job runs")
    return app


def test_a_job_gets_the_standby(own_tony):
    tony = own_tony()
    tony.ok("pool", "start")
    first = ready(tony)
    app = start(tony)
    wait_until(lambda: processes_of(tony, app) == first, "they are the job's keeper and master, and no fork of one has its name")
    assert [open(f"/proc/{pid}/comm").read().strip() for pid in first] == ["tony-keeper", "tony-master"]
    other = ready(tony)  # another standby, for the next job, is started while this job runs
    assert not set(first) & set(other)
    second = start(tony)
    wait_until(lambda: processes_of(tony, second) == other, "the other one is that of the second job")
    tony.ok("kill", app)
    tony.ok("kill", second)
    last = ready(tony)
    tony.ok("pool", "stop")
    assert not any(os.path.exists(f"/proc/{pid}/environ") and pid in tony.processes() for pid in last)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("which", [0, 1])
def test_a_standby_dies(own_tony, which, number):
    """After the death of its standby the pool starts the next job in the usual way."""
    tony = own_tony()
    tony.ok("pool", "start")
    pids = ready(tony)
    os.kill(pids[which], number)
    wait_until(lambda: pids[which] not in tony.processes(), "it is dead")
    app = start(tony)
    wait_until(lambda: processes_of(tony, app), "keeper and master have their names")
    assert not set(processes_of(tony, app)) & set(pids)
    tony.ok("kill", app)
    ready(tony)


@pytest.mark.parametrize("which", [0, 1])
def test_a_standby_dies_after_its_job_has_come(own_tony, which):
    tony = own_tony()
    tony.ok("pool", "start")
    pids = ready(tony)
    os.kill(pids[which], signal.SIGSTOP)
    app = tony.submit(tony.workers("true"))
    os.kill(pids[which], signal.SIGKILL)
    assert tony.run("wait", app).returncode == 0


def test_the_pool_is_killed(own_tony):
    tony = own_tony()
    tony.ok("pool", "start")
    pids = ready(tony)
    os.kill(tony.pool_pid(), signal.SIGKILL)
    wait_until(lambda: not set(pids) & set(tony.processes()), "the standby has exited")
    assert tony.run("run", tony.workers("true")).returncode == 0


@pytest.mark.parametrize("name", ["tony-executor", "tony-master"])
def test_another_version_is_installed(own_tony, name):
    tony = own_tony(copy=True)
    tony.ok("pool", "start")
    old = ready(tony)
    shutil.copy2(BIN / name, tony.bin / "new")
    (tony.bin / "new").replace(tony.bin / name)
    app = start(tony)
    wait_until(lambda: processes_of(tony, app), "keeper and master have their names")
    assert not set(processes_of(tony, app)) & set(old)
    tony.ok("kill", app)


def test_a_script_is_not_started_early(own_tony):
    tony = own_tony(copy=True)
    (tony.bin / "real").mkdir()
    (tony.bin / "tony-master").rename(tony.bin / "real/tony-master")
    (tony.bin / "tony-master").write_text(f"#!/bin/sh\necho started >> {tony.base}/log\nexec {tony.bin}/real/tony-master \"$@\"\n")
    (tony.bin / "tony-master").chmod(0o755)
    assert tony.run("run", tony.workers("true")).returncode == 0
    assert tony.run("run", tony.workers("true")).returncode == 0
    assert (tony.base / "log").read_text() == "started\n" * 2
    assert standby(tony) is None


@pytest.mark.parametrize("point", ["call sendmsg", "done sendmsg"])
@pytest.mark.parametrize("number", [1, 2])
def test_the_pool_dies_while_it_hands_the_job_over(make_points_lab, number, point):
    """The pool sends a message to the standby's master, then one to its keeper, and dies before one of them. The
    next pool starts the job."""
    lab = make_points_lab()
    lab.arm("pool", number, filter=point)
    lab.ok("pool", "start")
    ready(lab)
    job = PointJob(lab, "task").submit()
    job.over(harmless=False)
    assert lab.struck("pool")
    lab.settled()
