# SPDX-License-Identifier: Apache-2.0
"""A job's requests to the scheduler besides memory: labels, resource types, queues, priority."""

import json
import re
import urllib.request

import pytest
from lib_cluster import ANSWER_S, wait_until
from lib_tony import APP

LABELS = ["yarn:yarn.node-labels.enabled=true", "yarn:yarn.node-labels.fs-store.root-dir=file://{dir}/tmp/labels",
          "capacity:yarn.scheduler.capacity.root.accessible-node-labels=*", "capacity:yarn.scheduler.capacity.root.accessible-node-labels.fast.capacity=100",
          "capacity:yarn.scheduler.capacity.root.default.accessible-node-labels=*",
          "capacity:yarn.scheduler.capacity.root.default.accessible-node-labels.fast.capacity=100",
          "capacity:yarn.scheduler.capacity.root.default.accessible-node-labels.fast.maximum-capacity=100",
          "capacity:yarn.scheduler.capacity.root.second.accessible-node-labels= "]


def allocated(cluster, app):
    a = cluster.app(app)
    return {u["resourceName"] if "resourceName" in u else u["name"]: int(u["value"])
            for u in a["resourceInfo"]["resourceUsagesByPartition"][0]["used"]["resourceInformations"]["resourceInformation"]}


def test_gpus_and_resource_types(tony, cluster):
    p, app, pids = tony.gated(2, role={"gpus": 2}, conf={"tony.worker.resource-types": "example.com/licence=1"})
    assert {k: v for k, v in allocated(cluster, app).items() if "/" in k} == {"yarn.io/gpu": 4, "example.com/licence": 2}
    r = tony.run("run", tony.workers("true", role={"gpus": 1}, conf={"tony.container.allocation.timeout": 2000}))
    assert r.returncode == 1, r.stdout + r.stderr  # all four are in use
    tony.let_go(p)


@pytest.mark.parametrize("role, conf, wanted", [
    ({"gpus": 3}, {}, r"3 of yarn\.io/gpu.* 2\b"),
    ({}, {"tony.worker.resource-types": "example.com/license=1"}, r"did you mean 'example\.com/licence'"),
])
def test_more_of_a_resource_than_the_cluster_has(tony, cluster, role, conf, wanted):
    r = tony.run("run", tony.workers("true", role=role, conf=conf))
    assert r.returncode == 2 and re.search(wanted, r.stderr, re.S) and not APP.search(r.stderr), r.stderr


def test_more_of_a_resource_than_all_nodes_have_now(tony):
    """The client only prints a note, because the cluster may get further nodes."""
    r = tony.run("plan", tony.workers("true", role={"instances": 5, "gpus": 1}))
    assert r.returncode == 0 and re.search(r"5 of yarn\.io/gpu at once.* 4 now", r.stderr), r.stdout + r.stderr


@pytest.mark.slow
def test_gpus_on_a_cluster_without_gpus(tony, cluster):
    with cluster.changed("yarn:yarn.resource-types=", "nm:yarn.nodemanager.resource-type.yarn.io/gpu=",
                         "nm:yarn.nodemanager.resource-type.example.com/licence=", restart=["rm", "nm1", "nm2"]):
        r = tony.run("run", tony.workers("true", role={"gpus": 1}))
    assert r.returncode == 2 and "yarn.io/gpu" in r.stderr and ":" in r.stderr, r.stderr


# ---- labels ----

@pytest.fixture
def labelled(cluster):
    """nm2 has the label `fast`, which is a partition of its own; nm1 has no label."""

    def admin(path, doc):
        request = urllib.request.Request(f"http://127.0.0.1:{cluster.state['ports']['rm_http']}/ws/v1/cluster/{path}?user.name=root",
                                         method="POST", data=json.dumps(doc).encode(), headers={"Content-Type": "application/json"})
        with cluster.opener.open(request, timeout=ANSWER_S) as answer:
            answer.read()

    with cluster.changed(*[x.replace("{dir}", str(cluster.dir)) for x in LABELS], restart=["rm"]):
        admin("add-node-labels", {"nodeLabelInfo": [{"name": "fast", "exclusivity": "true"}]})
        node = next(n["id"] for n in cluster.nodes() if n["id"].endswith(f":{cluster.state['ports']['nm2']}"))
        admin("replace-node-to-labels", {"nodeToLabels": [{"nodeId": node, "labels": ["fast"]}]})
        wait_until(lambda: any(n.get("nodeLabels") == ["fast"] for n in cluster.nodes()), "the node's label")
        yield cluster


def nodes_of(cluster, app):
    """The NodeManager of each container of the master and the tasks."""
    live = cluster.containers(app)
    master = cluster.app(app)["amContainerLogs"]
    return {("am" if cid in master else "task"): c["nm"] for cid, c in live.items()}


@pytest.mark.slow
@pytest.mark.takes(26)
def test_node_labels(tony, labelled):
    p, app, _ = tony.gated(conf={"tony.worker.node-label": "fast"})
    assert nodes_of(labelled, app) == {"am": "nm1", "task": "nm2"}
    tony.let_go(p)
    p, app, _ = tony.gated(conf={"tony.am.node-label": "fast"})
    assert nodes_of(labelled, app) == {"am": "nm2", "task": "nm1"}
    tony.let_go(p)
    p, app, _ = tony.gated(conf={"tony.application.node-label": "fast"})
    assert nodes_of(labelled, app) == {"am": "nm2", "task": "nm2"}
    tony.let_go(p)
    r = tony.run("run", tony.workers("true", conf={"tony.worker.node-label": "fat"}))
    assert r.returncode == 2 and "'fast'" in r.stderr and "'fat'" in r.stderr, r.stderr
    r = tony.run("run", tony.workers("true", conf={"tony.worker.node-label": "fast", "tony.yarn.queue": "second"}), timeout=300)
    # 1 and not 2: a client cannot see which labels a queue may use, so the job begins, and its request for a
    # container is refused
    assert r.returncode == 1 and "fast" in r.stdout + r.stderr and "second" in r.stdout + r.stderr, r.stdout + r.stderr


def test_a_label_on_a_cluster_without_labels(tony, cluster):
    r = tony.run("run", tony.workers("true", conf={"tony.worker.node-label": "fast"}))
    assert r.returncode == 2 and "fast" in r.stderr and "yarn.node-labels.enabled" in r.stderr, r.stderr


# ---- queue, priority, tags, type ----

def test_priority_and_type(tony, cluster):
    p, app, _ = tony.gated(conf={"tony.application.priority": 7, "tony.application.type": "MINE", "tony.yarn.queue": "root.second"})
    report = cluster.app(app)
    assert (report["priority"], report["applicationType"], report["queue"].rpartition(".")[2]) == (7, "MINE", "second")
    tony.let_go(p)
