# SPDX-License-Identifier: Apache-2.0
"""Nodes with addresses of their own, whose cables are pulled."""

import pathlib
import shutil
import tempfile

import pytest
from lib_network import NetworkSlurm
from lib_slurm import USER, wait_until
from lib_tony import Tony
from test_slurm import LONG, RESTARTS, app_of

SPARE = {**RESTARTS, "tony.slurm.nodes": 2, "tony.slurm.spare-nodes": 1, "tony.task.master-away-limit": 2000}


@pytest.fixture(scope="module")
def network():
    base = pathlib.Path(tempfile.mkdtemp(prefix="tn-", dir="/tmp"))
    base.chmod(0o755)
    slurm = NetworkSlurm(base / "c", nodes=3)
    try:
        yield slurm.start()
    finally:
        slurm.stop()
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def tony(network):
    for node in network.names:
        network.plug_in(node)
    network.repair()
    base = pathlib.Path(tempfile.mkdtemp(prefix="th-", dir="/tmp"))
    shutil.chown(base, USER)
    yield Tony(network, base, USER)
    shutil.rmtree(base, ignore_errors=True)


def test_a_job_on_three_machines(tony, network):
    app = app_of(tony("run", tony.job_file("hostname; echo $TONY_TASK")))
    said = {tony("logs", app, f"worker:{i}", "--stdout").stdout.splitlines()[0] for i in range(3)}
    assert said == set(network.names)
    assert {t["node"] for t in tony.status(app)["tasks"]} == set(network.names)


@pytest.mark.slow
def test_the_cable_of_a_node(tony, network):
    """Its task runs on the spare node. When the cable is back, nothing of the job is left on the node."""
    app = tony.submit(LONG, instances=2, conf=SPARE)
    status = tony.await_running(app, 2)
    first = network.job(tony.number(app), "%B")
    victim = next(t for t in status["tasks"] if t["node"] != first)
    network.pull(victim["node"])

    def task():
        return next(t for t in tony.status(app)["tasks"] if t["task"] == victim["task"])
    now = wait_until(lambda: (t := task())["attempt"] == 2 and t["state"] == "running" and t, "the task runs on another node", limit=180)
    assert now["node"] != victim["node"]
    assert victim["node"] in tony("why", app).stdout
    network.plug_in(victim["node"])
    wait_until(lambda: not [p for p in tony.processes(app) if p in network.processes(victim["node"])], "nothing of the job is left there", limit=120)
    assert sorted(t["attempt"] for t in tony.await_running(app, 2)["tasks"]) == [1, 2]
    tony("stop", app)
    wait_until(lambda: not network.jobs(), "nothing is left in Slurm's queue")
