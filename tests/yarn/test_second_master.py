# SPDX-License-Identifier: Apache-2.0
"""The master dies and YARN starts another: the tasks go on undisturbed."""

import json
import os
import pathlib
import re
import shutil
import signal
import time

import pytest
from lib_cluster import MASTERS, wait_until


def masters(cluster):
    return [pid for pid, line in cluster.processes().items() if line.startswith("./tony-master")]


def kill_master(cluster, signo=signal.SIGKILL):
    pid, = wait_until(lambda: masters(cluster), "the master's process")
    os.kill(pid, signo)
    return pid


@pytest.fixture
def job(tony, base, cluster):
    """Workers that record when they begin and end. They end when the file `go` exists."""

    def make(n=3, end="exit 0", **top):
        command = f"echo begin >> {base}/$TASK_INDEX; while [ ! -e {base}/go ]; do sleep 0.05; done; echo end >> {base}/$TASK_INDEX; {end}"
        return tony.workers(command, n=n, **top)

    def said(n=3):
        return {i: (pathlib.Path(base) / str(i)).read_text().split() for i in range(n) if (pathlib.Path(base) / str(i)).exists()}

    make.said = said
    make.go = lambda: (pathlib.Path(base) / "go").touch()

    def begun(n=3):
        """
        Waits until all tasks have begun and their nodes have reported it: when a master dies, YARN ends
        containers that it does not know. Returns the application's id.
        """
        wait_until(lambda: len(said(n)) == n, "all tasks have begun")
        app, = cluster.live_apps()
        mine = app.partition("_")[2]
        wait_until(lambda: sum(mine in line and "from ACQUIRED to RUNNING" in line for line in cluster.log_since({}, "rm")) > n,
                   "the ResourceManager knows that all run")
        return app

    make.begun = begun
    return make


def followed(cluster, app, epoch=2):
    """The number of executors that the second master, or the given one, has welcomed."""
    return sum(f"epoch={epoch}" in text for text in cluster.container_log(app, "executor.log").values())


def test_tasks_continue_with_the_second_master(tony, cluster, job):
    """The job goes on, and its history has the metrics of before and after."""
    p = tony.start("run", job(conf={"tony.task.metrics-interval-ms": 200}))
    app = job.begun()
    wait_until(lambda: any(cluster.ls(f"/user/{user}/.tony/{app}/metrics") for user in cluster.ls("/user")), "HDFS has a copy of the metrics")
    killed_ms = time.time() * 1000
    kill_master(cluster)
    wait_until(lambda: followed(cluster, app) == 3, "all executors have the second master")
    tony.await_state(app, "RUNNING")  # the executors may know the second master before the ResourceManager does
    job.go()
    out, err = p.communicate(timeout=300)
    assert p.returncode == 0, out + err
    assert job.said() == {i: ["begin", "end"] for i in range(3)}
    report = cluster.await_app(app, "FINISHED")
    assert report["finalStatus"] == "SUCCEEDED" and len(cluster.attempts(app)) == 2
    assert json.loads(tony.ok("status", app, "--json"))["state"] == "SUCCEEDED"
    series = tony.json("metrics", app, "--name", "memory_bytes")["series"]
    assert [s["task"] for s in series] == ["worker:0", "worker:1", "worker:2"]
    for points in (s["points"] for s in series):
        assert points[0][0] < killed_ms < points[-1][0] and points[0][1] > 0
        assert [v for _, v in points].count(None) == 2, "a gap while there was no master, and the end"


def test_only_the_masters_container_ends(tony, cluster, job):
    """Only the master's container ends, as when its node goes down. The job continues with the next master."""
    p = tony.start("run", job())
    app = job.begun()
    kill_master(cluster, signal.SIGTERM)
    wait_until(lambda: followed(cluster, app) == 3, "all executors have the second master")
    job.go()
    out, err = p.communicate(timeout=300)
    assert p.returncode == 0, out + err
    assert job.said() == {i: ["begin", "end"] for i in range(3)}


def test_the_message_names_the_user_who_killed_the_job(tony, cluster, job):
    p = tony.start("run", job(), "--json")
    app = job.begun()
    cluster.kill_app(app)
    out, err = p.communicate(timeout=300)
    assert p.returncode == 3, out + err
    assert json.loads(out)["state"] == "KILLED" and re.search("killed by (user )?root", json.loads(out)["message"])


def test_tasks_that_end_without_a_master(tony, cluster, job):
    """The tasks end while there is no master: their exit codes count."""
    p = tony.start("run", job(end="exit $((TASK_INDEX + 3))"), "--json")
    app = job.begun()
    kill_master(cluster)
    job.go()
    out, err = p.communicate(timeout=300)
    doc = json.loads(out)
    assert p.returncode == 1, out + err
    assert doc["state"] == "FAILED" and doc["cause"]["task"] in ("worker:0", "worker:1", "worker:2")
    assert doc["cause"]["exit_code"] == 3 + int(doc["cause"]["task"][-1])
    assert job.said() == {i: ["begin", "end"] for i in range(3)}


def test_a_stop_survives_the_master(tony, cluster, job):
    """
    Once the client was told that the job is being stopped, the death of the master does not change that.
    """
    path = job(conf={"tony.task.kill-grace-ms": 20000})
    app = tony.submit(path)
    assert job.begun() == app
    wait_until(lambda: tony.status(app)["state"] == "RUNNING", "the job runs")
    kill_master(cluster)
    assert tony.run("kill", app).returncode == 0
    assert cluster.await_app(app, "FINISHED", "KILLED")["finalStatus"] == "KILLED"


def test_masters_die_in_a_row(tony, cluster, job):
    """
    One master dies before it has read anything, another one just after its recovery. No task notices, and the
    last master can still start a task.
    """
    p = tony.start("run", job())
    app = job.begun()
    dead = {kill_master(cluster)}

    def kill_next(ready):
        pid, = wait_until(lambda: ready() and [pid for pid in masters(cluster) if pid not in dead], "another master", pause=0.01)
        os.kill(pid, signal.SIGKILL)
        dead.add(pid)

    kill_next(lambda: True)
    kill_next(lambda: any("master.registered" in text and "epoch=3" in text for text in cluster.container_log(app, "stderr").values()))
    wait_until(lambda: followed(cluster, app, 4) == 3, "all executors have the fourth master")
    assert job.said() == {i: ["begin"] for i in range(3)}
    executor = next(pid for pid, line in cluster.processes().items()
                    if line.startswith(("tony-executor", "./tony-executor")) and cluster.environ(pid)["TONY_SLOT"] == "1")
    os.kill(executor, signal.SIGKILL)
    wait_until(lambda: job.said()[1] == ["begin", "begin"], "the lost task has begun again")
    job.go()
    out, err = p.communicate(timeout=300)
    assert p.returncode == 0, out + err
    assert job.said() == {0: ["begin", "end"], 1: ["begin", "begin", "end"], 2: ["begin", "end"]}
    assert len(cluster.attempts(app)) == 4


def test_too_many_masters(tony, cluster, job, base):
    """This site allows two masters: when the second dies, the job and its containers end."""
    shutil.copytree(cluster.dir / "conf", base / "conf")
    tony.env["HADOOP_CONF_DIR"] = str(base / "conf")
    site = base / "conf" / "yarn-site.xml"
    row = "<name>yarn.resourcemanager.am.max-attempts</name><value>%d</value>"
    assert row % MASTERS in site.read_text()
    site.write_text(site.read_text().replace(row % MASTERS, row % 2))
    p = tony.start("run", job(n=1, conf={"tony.am.attempt-window": 3600000}))
    app = job.begun(1)
    first = kill_master(cluster)
    wait_until(lambda: followed(cluster, app) == 1, "the executor has the second master")
    assert kill_master(cluster) != first
    out, _ = p.communicate(timeout=300)
    assert p.returncode != 0 and app in out
    assert cluster.await_app(app, "FAILED")
    wait_until(lambda: not cluster.processes(), "nothing of it runs")
