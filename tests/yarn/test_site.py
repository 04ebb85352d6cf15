# SPDX-License-Identifier: Apache-2.0
"""
A site that uses many options which are off in Hadoop by default: encrypted RPC, scheduling in node
heartbeats, access lists, preemption, a stopped queue, and nodes that are soon given up. All tests here share
these settings: the daemons start with them once.
"""

import contextlib
import os
import re
import signal

import pytest
from lib_cluster import wait_until
from lib_nodes import ONE_A_NODE, STRICT, ancestor, decided, gone, spread
from lib_tony import APP, Tony

# The fixture `site` restarts three daemons before the first test and after the last one.
pytestmark = [pytest.mark.slow, pytest.mark.takes(95), pytest.mark.xdist_group("site")]
PEOPLE = ("alice", "bob", "carol")
SETTINGS = [
    "yarn:hadoop.rpc.protection=privacy",
    "yarn:yarn.nm.liveness-monitor.expiry-interval-ms=12000",
    "yarn:yarn.acl.enable=true", "yarn:yarn.admin.acl=root,dr.who",  # the user of requests for pages without a name
    "yarn:yarn.resourcemanager.scheduler.monitor.enable=true",
    *["capacity:yarn.scheduler.capacity." + x for x in (
        "schedule-asynchronously.enable=false", "root.acl_submit_applications=*", "root.acl_administer_queue=root",
        "root.queues=default,second,closed", "root.closed.capacity=0", "root.closed.state=STOPPED")],
    *["capacity:yarn.resourcemanager.monitor.capacity.preemption." + x for x in (
        "monitoring_interval=300", "max_wait_before_kill=500", "total_preemption_per_round=1.0", "natural_termination_factor=1.0",
        "max_ignored_over_capacity=0.0")],
]


@pytest.fixture(scope="module", autouse=True)
def site(the_cluster):
    the_cluster.repair()
    with the_cluster.usually(*SETTINGS, restart=["rm", "nm1", "nm2"]):
        yield


def test_privacy_and_synchronous_scheduling(tony, cluster):
    r = tony.run("run", tony.workers("true", n=8))
    assert r.returncode == 0, r.stderr
    said = "\n".join(cluster.container_log(APP.search(r.stdout).group(), "stderr").values())
    assert "yarn.registered" in said, said


def test_a_stopped_queue(tony, cluster):
    r = tony.run("run", tony.workers("true", conf={"tony.yarn.queue": "closed"}))
    assert r.returncode == 2 and "closed" in r.stderr and re.search("STOPPED|stopped", r.stderr), r.stderr


def test_access_lists_for_view_and_kill(tony, cluster, base):
    people = {}
    for user in PEOPLE:
        cluster.make_home(user)
        (base / user).mkdir()
        people[user] = Tony(base / user, cluster, HADOOP_USER_NAME=user)
    alice, bob, carol = people.values()
    try:
        app = alice.submit(alice.workers("sleep 600", conf={"tony.application.acl-view": "bob", "tony.application.acl-modify": "bob"}))
        alice.await_state(app, "RUNNING")
        assert cluster.app(app)["user"] == "alice"
        # Reported by the ResourceManager: only alice has the master's key.
        assert bob.status(app)["yarn_state"] == "RUNNING"
        r = carol.run("kill", app)  # 4: her command is right, and the cluster refuses it
        assert r.returncode == 4 and "carol" in r.stderr, r.stderr
        assert cluster.app(app)["state"] == "RUNNING"
        assert bob.run("kill", app).returncode == 0
        assert cluster.await_app(app, "KILLED", "FINISHED")["finalStatus"] == "KILLED"
        assert alice.run("wait", app).returncode == 3
        wait_until(lambda: app not in cluster.ls("/user/alice/.tony"), "its staging directory removed", 180, 0.1)
    finally:
        for user in PEOPLE:
            cluster.remove(f"/user/{user}")


def test_preempted_for_another_queue(tony, cluster):
    p, app, _ = tony.gated(14, role={"memory": "1g"}, conf=STRICT)
    r = tony.run("run", tony.workers("true", n=6, role={"memory": "1g"}, conf={"tony.yarn.queue": "second"}))
    assert r.returncode == 0, r.stderr
    # Also if the node first reports that the ResourceManager had the container killed.
    decided(tony, p, app, None, "preempted")


def test_a_nodemanager_killed_for_good(tony, cluster):
    p, app, nm, pid, task = spread(tony, cluster)
    executor = ancestor(cluster, pid, "tony-executor")
    # The node is lost to the job, too: its executor does not answer, so nobody can know that the task has ended.
    os.kill(executor, signal.SIGSTOP)
    try:
        cluster.signal(nm)
        said = decided(tony, p, app, task, "node_lost")
    finally:
        os.kill(executor, signal.SIGCONT)
    wait_until(gone(pid), "the lost task ended: no NodeManager does it", 180)
    cluster.up()
    # The job ended before the lease of the task was over: another job could write to the same checkpoints.
    orphan, = tony.status(app)["orphans"]
    assert orphan["task"] == task and orphan["until_ms"] > tony.status(app)["times"]["ended_ms"], orphan
    assert f"{task} on {orphan['node']} may still run" in " ".join(said.split()), said


def test_a_task_of_a_lost_node_restarts(tony, cluster):
    """On another node, or on the same one when it is back: this cluster has no third one."""
    p, app, nm, pid, task = spread(tony, cluster, conf={"tony.task.restarts.node-lost": 4})
    cluster.signal(nm)
    wait_until(gone(pid), "the lost task ended", 180)
    cluster.up()
    tony.let_go(p)
    assert len(cluster.attempts(app)) == 1


def test_the_masters_node_stops_answering(tony, cluster):
    """
    The node stops answering, and no connection breaks. Clients that follow the job find the next master. When
    the node is back, the first master does not disturb the second.
    """
    p, app, _ = tony.gated(1, role=ONE_A_NODE)
    master, = [pid for pid, line in cluster.processes().items() if line.startswith("./tony-master")]
    nm = cluster.containers(app)[cluster.environ(master)["CONTAINER_ID"]]["nm"]
    try:
        os.kill(master, signal.SIGSTOP)
        cluster.signal(nm, "STOP")
        wait_until(lambda: len(cluster.attempts(app)) == 2, "another master", 180, 0.1)
        tony.let_go(p)
        cluster.await_app(app, "FINISHED")
    finally:
        cluster.signal(nm, "CONT")
        with contextlib.suppress(ProcessLookupError):  # its node may have ended it already
            os.kill(master, signal.SIGCONT)
    wait_until(gone(master), "the first master gone", 180)
    assert tony.status(app)["state"] == "SUCCEEDED"
