# SPDX-License-Identifier: Apache-2.0
"""
A node on which tasks fail: after a few failures tony names it and avoids it in new requests. The failed tasks
go on elsewhere.
"""

import contextlib
import pathlib
import shutil
import tempfile

import pytest
from lib_cluster import Cluster, wait_until
from lib_tony import Tony


@pytest.fixture
def wide():
    """Six nodes with room for one task each: tony may avoid a fifth of five."""
    base = pathlib.Path(tempfile.mkdtemp(prefix="ty-", dir="/tmp"))
    cluster = Cluster(base / "c")
    try:
        cluster.start("--nodemanagers", "6", "--nm-memory-mb", "2048", "--nm-heartbeat-ms", "200")
        yield cluster
    finally:
        with contextlib.suppress(AssertionError):
            cluster.stop()
        shutil.rmtree(base, ignore_errors=True)


def test_a_bad_node(wide, base):
    """The node of worker:1 is bad: each task that runs there fails."""
    tony = Tony(base, wide)
    fails = f'test "$TONY_TASK" = worker:1 && mkdir {base}/chosen && echo $NM_PORT > {base}/bad; test "$NM_PORT" != "$(cat {base}/bad)"'
    command = f"until [ -e {base}/bad ] || [ $TONY_TASK = worker:1 ]; do sleep 0.1; done; {fails} && until [ -e {base}/end ]; do sleep 0.1; done"
    job = tony.workers(command, n=5, role={"memory": "1500m", "restart": "on-failure", "max-restarts": 4, "restart-delay": 10},
                       conf={"tony.application.fail-on-worker-failure-enabled": "true"})
    app = tony.submit(job)
    wait_until(lambda: (base / "bad").exists(), "the bad node", 300)
    bad = f"localhost:{(base / 'bad').read_text().strip()}"
    wait_until(lambda: tony.status(app).get("nodes_left_out") == [bad], "the node is left out", 120)
    wait_until(lambda: all(t["state"] == "running" for t in tony.tasks(app).values()), "all run", 120)
    why = tony.ok("why", app)
    assert bad in why and "left out" in why, why
    (base / "end").write_text("")
    assert tony.run("wait", app).returncode == 0
    doc = tony.tasks(app)["worker:1"]
    assert doc["attempt"] == 4 and doc["result"] == "SUCCEEDED", doc
