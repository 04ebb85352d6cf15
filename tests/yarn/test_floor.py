# SPDX-License-Identifier: Apache-2.0
"""The application of bench/yarn uses nothing of tony. Problems that it has here are not tony's."""

import os
import subprocess

import pytest
from lib_cluster import wait_until
from lib_tony import BUILD


@pytest.mark.parametrize("settings", [
    pytest.param([], id="asynchronous"),
    pytest.param(["capacity:yarn.scheduler.capacity.schedule-asynchronously.enable=false"], id="synchronous", marks=pytest.mark.slow)])
def test_the_floor_runs(cluster, base, settings):
    os.mkfifo(base / "gate")
    gate = os.open(base / "gate", os.O_RDWR | os.O_CLOEXEC)
    mark = cluster.mark()
    if settings:
        cluster.restart("rm", settings=settings)  # the fixture restores the settings
    p = cluster.state["ports"]
    at = "127.0.0.1:{}".format
    client = subprocess.Popen([str(BUILD / "bench" / "yarn-floor"), "--rm", at(p["rm"]), "--scheduler", at(p["rm_sched"]), "--namenode",
                               at(p["nn"]), "--webhdfs", f"http://{at(p['nn_http'])}/webhdfs/v1", "8",
                               f"{BUILD / 'bench' / 'yarn-stamp'} {base}"], stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: sum(x.name.isdigit() for x in base.iterdir()) == 8 or client.poll() is not None, "eight tasks")
        assert client.poll() is None, client.stderr.read()
        os.close(gate)
        assert client.wait(timeout=300) == 0, client.stderr.read()
        assert [len(x.read_text().split()) for x in base.iterdir() if x.name.isdigit()] == [2] * 8
    finally:
        client.kill()
        client.wait()
    if not settings:
        assert not cluster.complaints(mark)
