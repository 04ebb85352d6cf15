# SPDX-License-Identifier: Apache-2.0
"""Nodes with addresses of their own, whose cables are pulled."""

import pathlib
import shutil
import tempfile

import pytest
from lib_network import NetworkSlurm
from lib_slurm import USER, wait_until
from lib_tony import Tony
from test_notices import begin_again
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


@pytest.mark.slow
@pytest.mark.takes(120)
def test_the_cable_of_the_first_node(tony, network):
    """
    The master is there. Slurm starts the job again on other nodes, and what the first run has left ends: its master while the
    node is still cut off, its tasks by their leases. When the cable is back, nothing of the job is left on the node.
    """
    app = tony.submit(LONG, instances=2, conf={**RESTARTS, "tony.slurm.nodes": 2, "tony.task.master-away-limit": 2000})
    tony.await_running(app, 2)
    number = tony.number(app)
    first = network.job(number, "%B")

    def left(*words):
        return [p for p in tony.processes(app, *words) if p in network.processes(first)]
    network.pull(first)
    wait_until(lambda: tony.status(app) and network.job(number) == "PENDING", "the client has put the job back", limit=180, pause=0.5)
    begin_again(network, number)
    wait_until(lambda: tony.status(app).get("epoch") == 2, "another master has taken over", limit=120)
    now = tony.await_running(app, 2, limit=120)
    assert first not in {t["node"] for t in now["tasks"]}
    wait_until(lambda: not left("tony-master"), "the first master has ended")
    network.plug_in(first)
    wait_until(lambda: not left(), "nothing of the job is left there", limit=120)
    doc = tony.await_running(app, 2)
    assert doc["epoch"] == 2 and [(t["state"], t["attempt"]) for t in doc["tasks"]] == [("running", 2)] * 2, doc
    tony("stop", app)
    wait_until(lambda: not network.jobs(), "nothing is left in Slurm's queue")
