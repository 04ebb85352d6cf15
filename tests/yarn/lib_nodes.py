# SPDX-License-Identifier: Apache-2.0
"""Jobs with a task on each node, and the messages about a lost task."""

import os
import pathlib
import re

from lib_cluster import wait_until

ONE_A_NODE = {"memory": "5g"}  # a node has 8 GiB
# With these settings nothing restarts: a loss fails the job, and the message gives the reason.
STRICT = {"tony.application.fail-on-worker-failure-enabled": "true",
          **{f"tony.task.restarts.{why}": 0 for why in ("node-lost", "preempted", "disk-failed")}}


def spread(tony, cluster, conf=None, **top):
    """
    A gated job with a task on each node. Returns its client, its id, the NodeManager that has a task but not
    the master, and the pid and name of that task.
    """
    p, app, pids = tony.gated(2, role=ONE_A_NODE, conf={**STRICT, **(conf or {})}, **top)
    master = cluster.app(app)["amContainerLogs"]
    live = cluster.containers(app)
    other, = {c["nm"] for c in live.values()} - {c["nm"] for cid, c in live.items() if cid in master}
    for pid in pids:
        env = wait_until(lambda pid=pid: cluster.environ(pid), "an environment: it is empty in the middle of an exec")
        if live[env["CONTAINER_ID"]]["nm"] == other:
            return p, app, other, pid, env["TONY_TASK"]
    raise AssertionError("no task on the other node")


def ancestor(cluster, pid, program):
    """The pid of the nearest ancestor of this process that runs this program: tony-executor, or tony-master."""
    lines = cluster.processes()
    while not lines.get(pid, "").removeprefix("./").startswith(program):
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        assert pid > 1, program
    return pid


def gone(pid):
    return lambda: not os.path.exists(f"/proc/{pid}")


def master_log(cluster, app):
    return "\n".join(text for cid, text in cluster.container_log(app, "stderr").items() if "job." in text)


def decided(tony, p, app, task, *reasons):
    """A job that lost a task from outside has failed, and its message gives the reason."""
    out, err = p.communicate(timeout=300)
    # before a preemption the master may be told, and then it ends the container itself
    assert "preempted" in reasons or re.search("container.ended .*reason=(%s)" % "|".join(reasons), master_log(tony.cluster, app)), out + err
    cause = tony.status(app)["cause"]
    assert p.returncode == 1 and cause["task"] == (task or cause["task"]) and cause["reason"] in reasons, out + err
    assert tony.tasks(app)[cause["task"]]["result"] == "LOST" and f"'{cause['task']}'" in out, out + err
    return out + err
