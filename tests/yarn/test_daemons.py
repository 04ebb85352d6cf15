# SPDX-License-Identifier: Apache-2.0
"""Daemons and tony's processes die, change or disappear while a job runs."""

import os
import signal

import pytest
from lib_cluster import wait_until
from lib_tony import APP


def alive(pids):
    return all(os.path.exists(f"/proc/{pid}") for pid in pids)


@pytest.mark.slow
def test_resourcemanager_restarted(tony, cluster):
    p, app, pids = tony.gated(2)
    cluster.signal("rm")
    cluster.up()
    assert alive(pids)
    cluster.await_app(app, "RUNNING")
    tony.let_go(p)
    assert cluster.await_app(app, "FINISHED")["finalStatus"] == "SUCCEEDED" and len(cluster.attempts(app)) == 1


@pytest.mark.slow
@pytest.mark.takes(10)
def test_resourcemanager_comes_back_at_its_other_address(tony, cluster):
    tony.env["HADOOP_CONF_DIR"] = str(cluster.dir / "conf-list")
    p, app, pids = tony.gated(2)
    cluster.signal("rm")
    cluster.up("--rm-at", "2")
    assert alive(pids)
    cluster.await_app(app, "RUNNING")
    tony.let_go(p)
    assert cluster.await_app(app, "FINISHED")["finalStatus"] == "SUCCEEDED" and len(cluster.attempts(app)) == 1


@pytest.mark.slow
def test_nodemanagers_restarted(tony, cluster):
    p, app, pids = tony.gated(2)
    cluster.signal("nm1")
    cluster.signal("nm2")
    cluster.up()
    assert alive(pids)
    tony.let_go(p)


def test_executor_killed(tony, cluster):
    p, app, pids = tony.gated(conf={"tony.task.restarts.node-lost": 0})
    executors = [k for k, v in cluster.processes().items() if v.startswith(("tony-executor", "./tony-executor"))]
    os.kill(executors[0], signal.SIGKILL)
    out, err = p.communicate(timeout=300)
    assert p.returncode == 1, err
    wait_until(lambda: not alive(pids), "the task gone with it")


def test_too_much_memory(tony, cluster):
    r = tony.run("run", tony.workers("exec /usr/bin/python3 -c 'import time; x = b\"x\" * (200 << 20); time.sleep(60)'"))
    said = r.stdout + r.stderr
    assert r.returncode == 1 and "out_of_memory" in r.stdout and "raise tony.worker.memory" in said, said
    assert "of 64 MB" in said, said  # the message has the task's limit


@pytest.mark.slow
def test_an_amrm_token_is_rolled(tony, cluster):
    with cluster.changed("yarn:yarn.am.liveness-monitor.expiry-interval-ms=9000",
                         "yarn:yarn.resourcemanager.am-rm-tokens.master-key-rolling-interval-secs=30", restart=["rm"]):
        p, app, pids = tony.gated(2)
        mark = cluster.mark()
        wait_until(lambda: any("Activating" in line for line in cluster.log_since(mark, "rm")), "the key rolled", 180, 0.5)
        tony.let_go(p)
        assert len(cluster.attempts(app)) == 1


# Each setting alone, and both together; test_site.py combines them with others.
@pytest.mark.slow
@pytest.mark.parametrize("setting", ["yarn:hadoop.rpc.protection=integrity", "yarn:hadoop.rpc.protection=privacy",
                                     "capacity:yarn.scheduler.capacity.schedule-asynchronously.enable=false"])
def test_one_setting(tony, cluster, setting):
    with cluster.changed(setting, restart=["rm", "nm1", "nm2"]):
        r = tony.run("run", tony.workers("true", n=8))
        assert r.returncode == 0, r.stderr
        cluster.await_app(APP.search(r.stdout).group(), "FINISHED")  # before its daemons are restarted


@pytest.mark.slow
@pytest.mark.takes(12)
def test_a_hundred_containers(tony, cluster):
    r = tony.run("run", tony.workers("true", n=100), timeout=300)
    assert r.returncode == 0, r.stderr
