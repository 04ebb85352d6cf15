"""What a job asks of the scheduler beyond memory: labels, resource types, queues, priority, and who may see and end it."""

import contextlib
import re
import subprocess

import pytest
from lib_cluster import wait_until
from lib_tony import APP, Tony

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


def test_gpus_and_other_types_by_name(tony, cluster):
    p, app, pids = tony.gated(2, role={"gpus": 2}, conf={"tony.worker.resource-types": "example.com/licence=1"})
    assert {k: v for k, v in allocated(cluster, app).items() if "/" in k} == {"yarn.io/gpu": 4, "example.com/licence": 2}
    r = tony.run("run", tony.workers("true", role={"gpus": 1}, conf={"tony.container.allocation.timeout": 2000}))
    assert r.returncode == 1, r.stdout + r.stderr  # all four are taken
    tony.let_go(p)


@pytest.mark.parametrize("role, conf, wanted", [
    ({"gpus": 3}, {}, r"3 of yarn\.io/gpu.* 2\b"),
    ({"instances": 5, "gpus": 1}, {}, r"5 of yarn\.io/gpu at once.* 4\b"),
    ({}, {"tony.worker.resource-types": "example.com/license=1"}, r"did you mean 'example\.com/licence'"),
])
def test_more_of_a_type_than_there_is(tony, cluster, role, conf, wanted):
    r = tony.run("run", tony.workers("true", role=role, conf=conf))
    assert r.returncode == 2 and re.search(wanted, r.stderr, re.S) and not APP.search(r.stderr), r.stderr


@pytest.mark.slow
def test_gpus_where_there_are_none(tony, cluster):
    with cluster.changed("yarn:yarn.resource-types=", "nm:yarn.nodemanager.resource-type.yarn.io/gpu=",
                         "nm:yarn.nodemanager.resource-type.example.com/licence=", restart=["rm", "nm1", "nm2"]):
        r = tony.run("run", tony.workers("true", role={"gpus": 1}))
    assert r.returncode == 2 and "yarn.io/gpu" in r.stderr and ":" in r.stderr, r.stderr


# ---- labels ----

@pytest.fixture
def labelled(cluster):
    """nm2 has the label `fast`, which is its own partition; nm1 has none."""
    yarn = str(cluster.dir / "bin" / "yarn")

    def admin(*args):
        done = subprocess.run([yarn, "rmadmin", *args], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]

    labels = [x.replace("{dir}", str(cluster.dir)) for x in LABELS]
    with cluster.changed(*labels[:2], restart=["rm"]):
        admin("-addToClusterNodeLabels", "fast(exclusive=true)")
        cluster.restart("rm", settings=labels)
        node = f"127.0.0.1:{cluster.state['ports']['nm2']}"
        node = next(n["id"] for n in cluster.nodes() if n["id"].endswith(f":{cluster.state['ports']['nm2']}")) or node
        admin("-replaceLabelsOnNode", f"{node}=fast")
        wait_until(lambda: any(n.get("nodeLabels") == ["fast"] for n in cluster.nodes()), "the node's label")
        yield cluster


def nodes_of(cluster, app):
    """NodeManagers by container: the master's and the tasks'."""
    live = cluster.containers(app)
    master = cluster.app(app)["amContainerLogs"]
    return {("am" if cid in master else "task"): c["nm"] for cid, c in live.items()}


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
    assert r.returncode in (1, 2) and "fast" in r.stdout + r.stderr and "second" in r.stdout + r.stderr, r.stdout + r.stderr


def test_a_label_where_there_are_none(tony, cluster):
    r = tony.run("run", tony.workers("true", conf={"tony.worker.node-label": "fast"}))
    assert r.returncode == 2 and "fast" in r.stderr and "yarn.node-labels.enabled" in r.stderr, r.stderr


# ---- queue, priority, tags, type ----

def test_priority_and_type(tony, cluster):
    p, app, _ = tony.gated(conf={"tony.application.priority": 7, "tony.application.type": "MINE", "tony.yarn.queue": "root.second"})
    report = cluster.app(app)
    assert (report["priority"], report["applicationType"], report["queue"].rpartition(".")[2]) == (7, "MINE", "second")
    tony.let_go(p)


# ---- who may ----

@pytest.fixture
def guarded(cluster):
    with cluster.changed("yarn:yarn.acl.enable=true", "yarn:yarn.admin.acl=root", "capacity:yarn.scheduler.capacity.root.acl_submit_applications=*",
                         "capacity:yarn.scheduler.capacity.root.acl_administer_queue=root", restart=["rm", "nm1", "nm2"]):
        for user in ("alice", "bob", "carol"):
            cluster.make_home(user)
        yield cluster
        for user in ("alice", "bob", "carol"):
            cluster.remove(f"/user/{user}")


def test_who_may_see_and_end_a_job(guarded, base):
    people = {}
    for user in ("alice", "bob", "carol"):
        (base / user).mkdir()
        people[user] = Tony(base / user, guarded, HADOOP_USER_NAME=user)
    alice, bob, carol = people.values()
    app = alice.submit(alice.workers("sleep 600", conf={"tony.application.acl-view": "bob", "tony.application.acl-modify": "bob"}))
    alice.await_state(app, "RUNNING")
    assert guarded.app(app)["user"] == "alice"
    assert bob.status(app)["yarn_state"] == "RUNNING"  # the ResourceManager's word: the master's key is alice's
    r = carol.run("kill", app)
    assert r.returncode in (2, 4) and "carol" in r.stderr, r.stderr
    assert guarded.app(app)["state"] == "RUNNING"
    assert bob.run("kill", app).returncode == 0
    assert guarded.await_app(app, "KILLED", "FINISHED")["finalStatus"] == "KILLED"
    assert alice.run("wait", app).returncode == 3
    wait_until(lambda: app not in guarded.ls("/user/alice/.tony"), "its staging directory removed", 180, 0.1)


@pytest.fixture(autouse=True)
def nothing_left_of_guests(cluster):
    yield
    with contextlib.suppress(OSError):
        for user in ("alice", "bob", "carol"):
            cluster.remove(f"/user/{user}")
