# SPDX-License-Identifier: Apache-2.0
"""
Nodes are lost, become unhealthy or full, or are given to other jobs; NameNode and DataNode stop. The job's
message gives the true reason.
"""

import shutil

import pytest
from lib_cluster import wait_until
from lib_nodes import ONE_A_NODE, decided, gone, master_log, spread
from lib_tony import BIN


@pytest.mark.slow
@pytest.mark.takes(19)
@pytest.mark.parametrize("settings, words", [
    pytest.param(["nm:yarn.nodemanager.health-checker.script.path={base}/ill", "nm:yarn.nodemanager.health-checker.interval-ms=500"],
                 "ran hot", id="unhealthy"),
    pytest.param(["nm:yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage=0.0",
                  "nm:yarn.nodemanager.disk-health-checker.interval-ms=500"], "local-dirs", id="out_of_disk"),
])
def test_an_unhealthy_node(tony, cluster, base, settings, words):
    (base / "ill").write_text("#!/bin/sh\necho ERROR it ran hot\n")
    (base / "ill").chmod(0o755)
    p, app, nm, pid, task = spread(tony, cluster)
    with cluster.changed(*[s.replace("{base}", str(base)) for s in settings], restart=[nm], wait=False):
        wait_until(gone(pid), "the task ended", 180)
    said = decided(tony, p, app, task, "node_lost", "disk_failed")
    assert words in said + master_log(cluster, app), said  # the reason of the node


@pytest.mark.slow
def test_a_job_waits_for_a_running_node(tony, cluster):
    """The job waits, reports that, and goes on once there is a node."""
    with cluster.changed("nm:yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage=0.0", restart=["nm1", "nm2"],
                         wait=False):
        wait_until(lambda: {n["state"] for n in cluster.nodes()} <= {"UNHEALTHY", "LOST"}, "no node is well", 180, 0.1)
        p = tony.start("run", tony.workers("true"))
        wait_until(lambda: cluster.live_apps() or p.poll() is not None, "the submission")
    out, err = p.communicate(timeout=300)
    assert p.returncode == 0 and "no running node" in err, out + err


@pytest.mark.slow
def test_a_token_that_expired(tony, cluster, base):
    """
    The master can use a grant only after the container's token has expired. That is no failure of the task.
    """
    programs = base / "bin"
    shutil.copytree(BIN, programs, ignore=lambda d, names: [n for n in names if n.endswith(".p")])
    (programs / "tony-master").write_text(f"#!/bin/sh\nwhile [ ! -e {base}/begin ]; do sleep 0.05; done\nexec {BIN}/tony-master \"$@\"\n")
    with cluster.changed("yarn:yarn.resourcemanager.rm.container-allocation.expiry-interval-ms=3000",
                         "yarn:yarn.resourcemanager.nodemanagers.heartbeat-interval-ms=3000", restart=["rm"]):
        mark = cluster.mark()
        job = tony.workers("true", n=2, role=ONE_A_NODE)
        p = tony.start("run", job, executable=str(programs / "tony"))
        wait_until(lambda: any("tony-master" in line for line in cluster.processes().values()), "the master's container", 180)
        app, = cluster.live_apps()
        master_at, = {c["nm"] for c in cluster.containers(app).values()}
        other = {"nm1": "nm2", "nm2": "nm1"}[master_at]
        cluster.signal(other, "STOP")
        try:
            (base / "begin").write_text("")
            wait_until(lambda: any("Expired" in line and "Timed out" in line for line in cluster.log_since(mark, "rm")),
                       "the ResourceManager gives the container up", 180)
        finally:
            cluster.signal(other, "CONT")
        out, err = p.communicate(timeout=300)
        assert p.returncode == 0 or "expired" in out, out + err


@pytest.mark.slow
def test_namenode_and_datanode_restarted(tony, cluster):
    p, app, _ = tony.gated(2)
    for daemon in ("nn", "dn"):
        cluster.signal(daemon)
        cluster.up()
    tony.let_go(p)
    assert tony.status(app)["state"] == "SUCCEEDED"  # read from the history in HDFS


@pytest.mark.slow
def test_the_namenode_is_away_at_the_end(tony, cluster):
    """The verdict does not depend on HDFS. The next client removes the files that are left there."""
    p, app, _ = tony.gated(2)
    cluster.signal("nn")
    try:
        tony.let_go(p)
        assert cluster.await_app(app, "FINISHED")["finalStatus"] == "SUCCEEDED"  # its master has gone, and has removed nothing
    finally:
        cluster.up()
    assert app in cluster.ls("/user/root/.tony")
    assert tony.run("run", tony.workers("true")).returncode == 0
    assert app not in cluster.ls("/user/root/.tony")


@pytest.mark.takes(12)
def test_the_client_is_killed(tony, cluster):
    """`run` owns its job, which ends soon after the client; `submit` does not."""
    p, app, pids = tony.gated(conf={"tony.client.away-limit": 10000})
    p.kill()
    p.communicate()
    assert cluster.await_app(app, "FINISHED", "KILLED", limit=180)["finalStatus"] == "KILLED"
    wait_until(gone(pids[0]), "the task gone")
    assert "client" in tony.status(app)["message"]
