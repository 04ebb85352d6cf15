# SPDX-License-Identifier: Apache-2.0
"""Sites with a firewall: a client that reaches the daemons and no master, and tony.port-range."""

import re

import pytest
from lib_cluster import wait_until
from lib_gateway import can_gateway, gateway


@pytest.mark.takes(30)
@pytest.mark.skipif(not can_gateway(), reason="needs root and network namespaces")
@pytest.mark.parametrize("firewall", ["refuses", pytest.param("drops", marks=pytest.mark.slow)])
def test_a_client_that_reaches_no_master(tony, cluster, base, firewall):
    """
    `tony run` says so once and follows the job through the ResourceManager. The job is not killed, although
    no client of it ever reached its master. A firewall may answer, or drop the packets without a word.
    """
    ports = range(28300, 28332)
    with gateway(cluster, base / "gw", ports if firewall == "drops" else ()) as inside:
        path = tony.workers("sleep 12", conf={"tony.client.away-limit": 2000, "tony.port-range": f"{ports[0]}-{ports[-1]}"})
        tony.wrap = inside
        r = tony.run("run", path)
    assert ("has not answered for 5 s" in r.stderr) == (firewall == "drops"), r.stderr
    assert r.returncode == 0 and "SUCCEEDED" in r.stdout, r.stdout + r.stderr
    assert r.stderr.count("cannot be reached from here") == 1 and "tony.port-range" in r.stderr, r.stderr
    assert re.search(r"127\.0\.0\.1:\d+", r.stderr) and "job RUNNING" in r.stderr, r.stderr


def test_what_the_resourcemanager_knows_of_a_master(tony, cluster):
    """
    Its port and those of the tasks are in tony.port-range. Its LIFETIME counts from its start, 2 minutes more than the job's
    own limit.
    """
    p, app, _ = tony.gated(conf={"tony.port-range": "28200-28299", "tony.application.timeout": 3600000})
    try:
        doc = cluster.app(app)
        assert 28200 <= int(doc["amRPCAddress"].rpartition(":")[2]) <= 28299, doc
        addresses = [t["address"] for t in tony.json("tasks", app)["tasks"]]
        assert addresses and all(28200 <= int(a.rpartition(":")[2]) <= 28299 for a in addresses), addresses
        limit, = wait_until(lambda: [t for t in cluster.rm(f"apps/{app}/timeouts")["timeouts"]["timeout"]
                                     if t["type"] == "LIFETIME" and t["expiryTime"] != "UNLIMITED"], "its LIFETIME")
        assert 3600 < limit["remainingTimeInSeconds"] <= 3720, limit
    finally:
        tony.let_go(p)
