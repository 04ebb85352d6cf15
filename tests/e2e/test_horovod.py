# SPDX-License-Identifier: Apache-2.0
"""
Horovod's rendezvous with stand-ins that speak like its ranks. The server is tony's, new for each generation,
or the user's driver.
"""

import json
import os
import re
import signal

import pytest
from conftest import app_of, wait_until
from lib_horovod import DRIVER, RANK
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)

PYTHON = "/usr/bin/python3"

@pytest.fixture
def job(tmp_path):
    (tmp_path / "rank.py").write_text(RANK)
    (tmp_path / "driver.py").write_text(DRIVER)

    def write(env=None, roles=None, **conf):
        path = tmp_path / "job.yaml"
        path.write_text(json.dumps({
            "name": "hvd", "framework": "horovod", "command": f"{PYTHON} {tmp_path}/rank.py", "env": env or {}, "conf": conf,
            "roles": {"worker": {"instances": 3, "memory": "128m", **(roles or {})}}}))
        return path

    return write


def said(tony, app, attempt=1):
    out = {}
    for i in range(3):
        found = re.findall(r"rank (\d) of 3 local (\d) 3 cross 0 1 stale (\S+)", tony.log(app, f"worker:{i}", attempt=attempt))
        assert len(found) == 1, tony.log(app, f"worker:{i}", "stderr", attempt=attempt)
        out[i] = found[0]
    return out


def test_ranks_meet(tony, job):
    r = tony.run("run", job())
    assert r.returncode == 0, r.stdout + r.stderr
    assert said(tony, app_of(r)) == {i: (str(i), str(i), "None") for i in range(3)}


def test_the_master_is_killed_while_they_meet(lab, job, tmp_path):  # noqa: F811
    """The death of the master does not disturb the ranks: their server runs beside rank 0 and keeps all data."""
    app = lab.submit(job({"GATE": str(tmp_path / "gate")}))
    wait_until(lambda: lab.state(app) == "RUNNING" and lab.n_running(app) == 3, "the ranks run")
    os.kill(lab.one("master", app), signal.SIGKILL)
    (tmp_path / "gate").write_text("")
    lab.run("wait", app)
    doc = lab.status(app)
    assert (doc["state"], doc["generation"]) == ("SUCCEEDED", 1) and doc["epoch"] > 1, doc
    assert said(lab, app) == {i: (str(i), str(i), "None") for i in range(3)}


def test_a_new_generation_gets_an_empty_server(tony, job):
    r = tony.run("run", job({"AGAIN": "1"}, {"restart": "on-failure"}))
    assert r.returncode == 0, r.stdout + r.stderr
    app = app_of(r)
    assert tony.json("status", app)["generation"] == 2
    assert said(tony, app, attempt=2) == {i: (str(i), str(i), "None") for i in range(3)}


def test_a_driver_of_the_user_s_own(tony, job, tmp_path):
    """The ranks wait for the driver's plan and follow it; the driver ends with the job."""
    path = job(**{"tony.horovod.driver.mode.debug": True, "tony.driver.command": f"{PYTHON} {tmp_path}/driver.py",
                  "tony.driver.memory": "128m"})
    r = tony.run("run", path)
    assert r.returncode == 0, r.stdout + r.stderr
    app = app_of(r)
    assert said(tony, app) == {i: (str(2 - i), str(i), "None") for i in range(3)}
    assert tony.log(app, "driver:0") == "workers 127.0.0.1:3\n"
    assert {t["task"]: t["result"] for t in tony.json("tasks", app)["tasks"]}["driver:0"] == "FINISHED"


def test_a_driver_that_fails(tony, job):
    r = tony.run("run", job(**{"tony.horovod.driver.mode.debug": True, "tony.driver.command": "exit 4"}))
    assert r.returncode == 1 and "driver:0" in r.stdout and "exit code 4" in r.stdout, r.stdout + r.stderr


def test_a_driver_that_ends_without_a_plan(tony, job):
    r = tony.run("run", job(**{"tony.horovod.driver.mode.debug": True, "tony.driver.command": "true"}))
    assert r.returncode == 1 and "driver:0" in r.stdout and "it ended without a plan of the ranks" in r.stdout, r.stdout + r.stderr


def test_an_invalid_plan_of_the_drivers(tony, job):
    bad = """sh -c 'echo "[{}]" > 5____HOROVOD_RENDEZVOUS_SERVER____; sleep 1000'"""
    r = tony.run("run", job(**{"tony.horovod.driver.mode.debug": True, "tony.driver.command": bad}))
    assert r.returncode == 1 and "the driver's plan is not a list of slots" in r.stdout, r.stdout + r.stderr


def test_without_a_server(tony, job):
    r = tony.run("run", job(**{"tony.horovod.mode.test.fast.fail": True}))
    assert r.returncode == 1 and "there is no rendezvous server" in r.stdout, r.stdout + r.stderr


@pytest.mark.parametrize("conf, why", [
    ({"tony.driver.memory": "1g"}, "tony.horovod.driver.mode.debug"),
    ({"tony.horovod.driver.mode.debug": True}, "tony.driver.command"),
    ({"tony.application.distributed-mode": "FCFS"}, "GANG"),
], ids=["a driver", "no driver", "FCFS"])
def test_wrong_driver_settings_are_refused(tony, job, conf, why):
    r = tony.run("run", job(**conf))
    assert r.returncode == 2 and why in r.stderr, r.stderr
