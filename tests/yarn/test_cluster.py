# SPDX-License-Identifier: Apache-2.0
"""Tests of the fixture: the properties that the other tests rely on."""

import importlib.machinery
import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest
from lib_cluster import ANSWER_S, FIXTURE, wait_until


def submit_sleep(cluster, seconds=601):
    """
    An application with one container, whose master never registers. It is submitted through REST, without
    tony.
    """
    base = f"http://127.0.0.1:{cluster.state['ports']['rm_http']}/ws/v1/cluster"

    def post(path, doc=None):
        request = urllib.request.Request(f"{base}/{path}?user.name=root", method="POST", data=json.dumps(doc).encode() if doc else b"",
                                         headers={"Content-Type": "application/json", "Accept": "application/json"})
        with cluster.opener.open(request, timeout=ANSWER_S) as answer:
            return answer.read()

    app = json.loads(post("apps/new-application"))["application-id"]
    post("apps", {"application-id": app, "application-name": "sleep", "max-app-attempts": 1, "resource": {"memory": 64, "vCores": 1},
                  "am-container-spec": {"commands": {"command": f"sleep {seconds}"}}})
    return app


def test_all_daemons_run(cluster):
    assert cluster.names() == ["nn", "dn", "rm", "nm1", "nm2"]
    assert {n["state"] for n in cluster.nodes()} == {"RUNNING"} and len(cluster.nodes()) == 2
    cluster.put("/tmp/hello", b"hello")
    assert cluster.read("/tmp/hello") == "hello"
    cluster.remove("/tmp/hello")
    assert not cluster.exists("/tmp/hello")


def test_an_application_runs_and_is_killed(cluster):
    app = submit_sleep(cluster)
    wait_until(lambda: any(line.startswith("sleep 601") for line in cluster.processes().values()), "the container's process")
    assert list(cluster.containers(app)) and cluster.live_apps() == [app]
    cluster.kill_app(app)
    assert cluster.await_app(app, "KILLED")
    wait_until(lambda: not cluster.processes(), "its process gone")


@pytest.fixture
def script(monkeypatch):
    """Imports the program hadoop-cluster as a module."""
    loader = importlib.machinery.SourceFileLoader("hadoop_cluster", str(FIXTURE / "hadoop-cluster"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("hadoop_cluster", loader))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # otherwise Python writes a file beside the program
    loader.exec_module(module)
    return module


def test_a_taken_port_is_recognized_in_the_log(script, tmp_path):
    """
    This happens when several clusters start at the same time: the daemon dies, and its log has the reason.
    """
    (tmp_path / "logs").mkdir()
    st = {"dir": str(tmp_path), "options": {"nodemanagers": 1}, "procs": {}, "ports": {}}
    for line, why in (("java.net.BindException: Address already in use", True), ("java.lang.OutOfMemoryError", False)):
        (tmp_path / "logs" / "nn.log").write_text(f"Starting\nException in thread \"main\"\n{line}\n\tat somewhere\n")
        with pytest.raises(script.Failure) as e:
            script.daemons.wait_healthy(st, 0)
        assert isinstance(e.value, script.PortTaken) == why and "nn died" in str(e.value)


def test_start_retries_with_other_ports(script, tmp_path, monkeypatch):
    tries = []

    def boot(st, deadline):
        tries.append(st["ports"])
        if len(tries) < 3:
            raise script.PortTaken("nn died")

    monkeypatch.setattr(script, "boot", boot)
    monkeypatch.setattr(script, "show", lambda st: None)
    monkeypatch.setattr(sys, "argv", ["hadoop-cluster", "start", "--dir", str(tmp_path), "--nodemanagers", "1"])
    assert script.main() == 0
    assert len(tries) == 3 and tries[0] != tries[1] != tries[2]
    assert script.daemons.load(str(tmp_path))["ports"] == tries[2]


@pytest.mark.slow
@pytest.mark.takes(8)
def test_killed_daemons_are_restarted(cluster):
    """Daemons are killed and restart. Containers outlive them."""
    app = submit_sleep(cluster)
    pids = wait_until(lambda: [p for p, line in cluster.processes().items() if line.startswith("sleep 601")], "the container's process")
    dead = ["nn", "dn", "rm", list(cluster.containers(app).values())[0]["nm"]]
    old = {daemon: cluster.pid(daemon) for daemon in dead}
    for daemon in dead:
        cluster.signal(daemon)
    assert cluster.broken() == dead
    cluster.up()
    assert all(cluster.pid(daemon) != pid for daemon, pid in old.items()) and not cluster.broken()
    assert os.path.exists(f"/proc/{pids[0]}") and cluster.app(app)["state"] == "ACCEPTED"
    cluster.kill_app(app)
    cluster.await_app(app, "KILLED")


@pytest.mark.slow
def test_the_resourcemanager_restarts_at_another_address(cluster):
    cluster.signal("rm")
    cluster.up("--rm-at", "2")
    assert len(cluster.nodes()) == 2
    assert cluster.broken() == ["rm"] and cluster.repair() == ["rm"]
    assert len(cluster.nodes()) == 2 and not cluster.broken()


@pytest.mark.slow
def test_settings_are_changed_and_restored(cluster):
    key = "yarn.scheduler.capacity.schedule-asynchronously.enable"
    conf = cluster.dir / "conf" / "capacity-scheduler.xml"
    with cluster.changed(f"capacity:{key}=false", restart=["rm"]):
        assert f"<name>{key}</name><value>false" in conf.read_text()
    assert key not in conf.read_text() and not cluster.broken()


def test_the_guard_ends_the_processes_of_a_killed_test_run(tmp_path):
    """
    The guard ends the processes of a killed test run. Here a process with the cluster's mark stands for a
    daemon.
    """
    directory = tmp_path / "c"
    (directory / "nm").mkdir(parents=True)
    runner = subprocess.Popen(["sleep", "600"])
    marked = subprocess.Popen(["sleep", "601"], env={"PATH": "/usr/bin:/bin", "HADOOP_CLUSTER_FIXTURE_DIR": str(directory)})
    guard = subprocess.Popen([str(FIXTURE / "hadoop-cluster"), "guard", "--dir", str(directory), "--pid", str(runner.pid)])
    try:
        assert marked.poll() is None and guard.poll() is None
        runner.kill()
        runner.wait()
        assert guard.wait(timeout=60) == 0 and marked.wait(timeout=60) == -signal.SIGKILL
        assert not directory.exists()
    finally:
        for process in (runner, marked, guard):
            process.kill()
            process.wait()
