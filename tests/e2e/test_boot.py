# SPDX-License-Identifier: Apache-2.0
"""
The machine stops under a job and is booted again. Here all processes of tony are killed, and the file with the
number of the boot is changed; tests/vm does it with a machine that loses its power.
"""

import json
import os
import re
import signal

import pytest
from conftest import wait_until
from lib_jobs import Gated, kill9, make_lab  # noqa: F401 (fixtures)

TIMES = r"the machine stopped after \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, and was booted again at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.fixture
def lab(make_lab):  # noqa: F811
    """A home of an ordinary user: if root called `tony pool enable`, it would install a unit of this machine."""
    return make_lab(as_nobody=True)


def stop_machine(lab, another=True):
    stopped = set()
    while left := {p.pid for p in lab.processes_all()} - stopped:
        for pid in left:  # all at once: a keeper would start another pool, and a pool another keeper
            os.kill(pid, signal.SIGSTOP)
        stopped |= left
    kill9(*stopped)
    wait_until(lambda: not lab.processes_all(), "all processes are dead")
    boot = lab.home / "pool" / "boot"
    assert boot.read_text() == open("/proc/sys/kernel/random/boot_id").read().strip()
    if another:
        boot.write_text("another-boot")


def row(lab, app):
    return next(j for j in lab.json("list")["jobs"] if j["application_id"] == app)


def one(lab, **top):
    return Gated(lab, 1, **top, conf={"tony.task.restarts.node-lost": 4, **top.pop("conf", {})}).running()


def test_without_restart_on_boot_a_job_fails_as_lost(lab):
    """The job file has no restart-on-boot, and the user has not called `tony pool enable`."""
    job = one(lab)
    stop_machine(lab)
    lab.json("pool", "start")
    lab.in_history(job.app)
    doc = lab.status(job.app)
    assert doc["state"] == "FAILED"
    text = lab.ok("status", job.app)
    assert re.search("the job was lost: " + TIMES, " ".join(text.split())), text
    assert re.search(TIMES, " ".join(lab.ok("why", job.app).split()))
    assert re.search(TIMES, row(lab, job.app)["note"])
    assert re.search(TIMES, lab.ok("list"))
    assert len(job.starts(0)) == 1
    lab.settled()


@pytest.mark.parametrize("how", ["key", "enabled"])
def test_a_job_goes_on(lab, how):
    top = {"restart-on-boot": True} if how == "key" else {}
    if how == "enabled":
        lab.json("pool", "enable")
    job = one(lab, **top)
    stop_machine(lab)
    lab.json("pool", "start")
    wait_until(lambda: len(job.starts(0)) == 2, "the task was started again")
    assert re.search(TIMES, " ".join(lab.ok("why", job.app).split())), lab.ok("why", job.app)
    assert re.search(TIMES, " ".join(lab.ok("status", job.app).split())), lab.ok("status", job.app)
    assert re.search(TIMES, row(lab, job.app)["note"])
    job.release_all()
    job.over()
    doc = lab.status(job.app)
    assert doc["state"] == "SUCCEEDED" and doc["restarts"] == 1
    assert re.search(TIMES, json.dumps(doc["failures"]))
    assert "note" not in row(lab, job.app)
    lab.settled()


def test_with_restart_on_boot_false_a_job_fails(lab):
    lab.json("pool", "enable")
    job = one(lab, **{"restart-on-boot": False})
    stop_machine(lab)
    lab.json("pool", "start")
    lab.in_history(job.app)
    assert lab.state(job.app) == "FAILED"
    lab.settled()


def test_no_boot_no_loss(lab):
    """All processes were killed, but the machine runs on: as before, each job goes on."""
    job = one(lab)
    stop_machine(lab, another=False)
    lab.json("pool", "start")
    wait_until(lambda: len(job.starts(0)) == 2, "the task was started again")
    assert "the machine stopped" not in lab.ok("status", job.app) + lab.ok("list")
    # The status tells of a stop of the machine once. The next loss of a keeper is no stop of the machine.
    stop_machine(lab)
    lab.json("pool", "enable")
    lab.json("pool", "start")
    wait_until(lambda: len(job.starts(0)) == 3, "the task was started again")
    assert re.search(TIMES, row(lab, job.app)["note"])
    kill9(lab.one("keeper", job.app))
    wait_until(lambda: len(job.starts(0)) == 4, "the task was started again")
    assert "note" not in row(lab, job.app)
    job.release_all()
    job.over()
    lab.settled()


def test_waiting_jobs_wait_on(lab):
    first = one(lab, **{"restart-on-boot": True})
    wide = lab.json("pool", "status")["capacity"]["memory_mib"]
    second = lab.submit(lab.workers("true", role={"memory": f"{wide}m"}))
    assert lab.state(second) == "WAITING"
    stop_machine(lab)
    lab.json("pool", "start")
    wait_until(lambda: len(first.starts(0)) == 2, "the task was started again")
    assert lab.state(second) == "WAITING" and "note" not in row(lab, second)
    first.release_all()
    first.over()
    assert lab.run("wait", second).returncode == 0
    lab.settled()


def test_the_unit_is_made_for_a_job_that_asks_for_it(lab):
    unit = lab.base / ".config/systemd/user/tony-pool.service"
    assert lab.run("run", lab.workers("true")).returncode == 0 and not unit.exists()
    r = lab.run("run", lab.workers("true", **{"restart-on-boot": True}))
    assert r.returncode == 0 and str(unit) in r.stderr and unit.exists()
    assert "tony pool disable" in r.stderr
    assert not (lab.home / "pool/enabled").exists()
    r = lab.run("run", lab.workers("true", **{"restart-on-boot": True}))
    assert r.returncode == 0 and str(unit) not in r.stderr
    lab.json("pool", "disable")
    assert not unit.exists()
    lab.settled()
