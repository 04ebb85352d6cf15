# SPDX-License-Identifier: Apache-2.0
"""`tony simulate --from-history` with the jobs of a cluster: their histories in HDFS, and the nodes of the ResourceManager."""

import json

from lib_cluster import wait_until

WAIT = "while :; do sleep 600; done"
NODE_MIB = 8192  # of each of two nodes


def test_the_history_of_a_cluster(tony, cluster):
    """A job that was resized, and one of fixed size. They keep their histories where those of no other job are."""
    with open(tony.base / "site/tony-site.yaml", "w") as f:
        f.write("conf: {tony.application.num-client-rm-connect-retries: 60, tony.history.location: of-this-test}\n")
    none = tony.run("simulate", "--from-history", "--policy", "real")
    assert none.returncode == 2 and "the history has no finished job that ran" in none.stderr, none.stderr

    role = {"memory": "512m", "min-instances": 1, "max-instances": 4, "resize": "live"}
    app = tony.submit(tony.workers(WAIT, n=1, role=role))
    wait_until(lambda: sum(r["running"] for r in tony.status(app).get("roles", [])) == 1, "its task runs")
    tony.ok("resize", app, "worker=3", "--wait")
    before = tony.status(app)["ran_ms"]
    wait_until(lambda: tony.status(app)["ran_ms"] > 2 * before, "it ran as long with three tasks as with one")
    tony.ok("kill", app)
    cluster.await_app(app, "FINISHED", "KILLED")
    short = tony.run("run", "--json", tony.workers("true", role={"memory": "512m"}))
    assert short.returncode == 0, short.stderr
    cluster.await_app(json.loads(short.stdout)["application_id"], "FINISHED")  # its history is in HDFS before that

    rows = {row["policy"]: row for row in tony.json("simulate", "--from-history", "--cluster", "yarn", "--policy", "real,fifo")}
    real = rows["real"]
    assert real["adjustments"] == 1 and real["end_s"] > 0
    # The same with the nodes given by hand, which are those that the ResourceManager reports.
    by_hand = tony.json("simulate", "--from-history", "--policy", "real,fifo", "--nodes", f"2x{NODE_MIB},2")
    assert by_hand[0] == real
    ran = tony.status(app)["ran_ms"] / 1000
    held = real["util"] * 2 * NODE_MIB / 512 * real["end_s"]
    assert 1.9 * ran < held < 3 * ran + 60, (held, ran)
    # With --cluster local the command reads the history of this machine.
    here = tony.run("simulate", "--from-history", "--cluster", "local", "--policy", "real")
    assert here.returncode == 2 and "the history has no finished job that ran" in here.stderr
