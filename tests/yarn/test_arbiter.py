# SPDX-License-Identifier: Apache-2.0
"""tony arbiter: it divides a queue among the jobs of one user while they run."""

import contextlib
import json
import os
import signal

import pytest
from lib_cluster import wait_until
from lib_kills import Victims, await_reported
from lib_tony import Tony

WAIT = "while :; do sleep 600; done"
POLICY = """
conf:
  tony.application.num-client-rm-connect-retries: 60
  tony.pool.policy: drf
  tony.pool.policy.interval: 200
  tony.pool.policy.resize-limit: 60000
"""


@pytest.fixture
def site(tony):
    (tony.base / "site" / "tony-site.yaml").write_text(POLICY)
    yield
    for app in tony.cluster.live_apps():  # of a test that failed
        tony.cluster.kill_app(app)


def elastic(tony, n, low, high, **top):
    """Two nodes have 8 GiB each; a master takes 128 MiB, a worker 1 GiB."""
    role = {"memory": "1g", "min-instances": low, "max-instances": high, "resize": "live"}
    return tony.submit(tony.workers(WAIT, n=n, role=role, **top))


def running(tony, app):
    return sum(r["running"] for r in tony.status(app).get("roles", []))


@contextlib.contextmanager
def arbiter(tony, *args):
    p = tony.start("arbiter", "run", "--queue", "default", *args, stdout=open(tony.base / "arbiter.out", "a"),
                   stderr=open(tony.base / "arbiter.err", "a"))
    try:
        yield p
    finally:
        p.kill()
        p.wait(10)


def said(tony):
    return (tony.base / "arbiter.out").read_text() + (tony.base / "arbiter.err").read_text()


def until(tony, condition, what):
    try:
        wait_until(condition, what)
    except AssertionError as e:
        raise AssertionError(f"{e}; the arbiter said:\n{said(tony)[-3000:]}") from None


@pytest.mark.slow
def test_two_jobs_share_a_queue(tony, site):
    """
    The first job has nearly all, and the second one waits for its containers. The arbiter lets the first one shrink; it
    is killed and started again; when the second job has ended, the first one has all again.
    """
    first = elastic(tony, 12, 2, 12)
    wait_until(lambda: running(tony, first) == 12, "the first job runs")
    second = elastic(tony, 6, 4, 12, conf={"tony.application.weight": 1})
    wait_until(lambda: tony.status(second)["state"] == "WAITING" and "tasks" in tony.status(second), "its master runs")
    assert running(tony, second) == 0
    with arbiter(tony):
        until(tony, lambda: running(tony, second) >= 4, "the second job runs")
        # Seven fit beside one master, eight on a node without any. Of 15 containers the first job gets 8, also if
        # one of the others then fits on no node.
        until(tony, lambda: sorted([running(tony, first), running(tony, second)]) in ([6, 8], [7, 7], [7, 8]), "each has half")
    doc = tony.status(first)
    assert doc["state"] == "RUNNING" and doc["restarts"] == 0
    assert "the arbiter of queue 'default', policy drf" in doc["last_resize"]["why"], doc["last_resize"]
    with arbiter(tony):
        tony.ok("kill", second)
        until(tony, lambda: running(tony, first) == 12, "the first job has all again")
    assert "->" in said(tony)
    tony.ok("kill", first)


def test_it_only_says(tony, site):
    """--dry-run asks no master; a job without bounds, one that may not be resized, and an unknown queue."""
    app = elastic(tony, 2, 1, 4)
    fixed = tony.submit(tony.workers(WAIT, n=2))
    wait_until(lambda: running(tony, app) == 2 and running(tony, fixed) == 2, "both run")
    doc = json.loads(tony.ok("arbiter", "run", "--queue", "default", "--once", "--dry-run", "--json"))
    assert doc["nodes"] == 2 and doc["policy"] == "drf" and doc["queue"] == "default"
    assert [(j["application_id"], j["has"], j["target"]) for j in doc["jobs"]] == [(app, 2, 4)]
    assert doc["jobs"][0]["why"] and "gap" not in doc, doc
    at = ("arbiter", "run", "--queue", "default", "--once", "--dry-run", "--policy", "dorm", "--conf", "tony.pool.policy.time-limit=1s")
    out = tony.ok(*at)  # each decision of dorm says how good it is
    assert "queue 'default', policy 'dorm': utilization " in out and "best possible), loss of fairness " in out, out
    assert 0 <= json.loads(tony.ok(*at, "--json"))["gap"] <= 1
    assert running(tony, app) == 2 and "resizes" not in tony.status(app)
    out = tony.ok("arbiter", "run", "--cluster", "yarn", "--queue", "default", "--once")
    assert f"{app}  2 -> 4" in out, out
    wait_until(lambda: running(tony, app) == 4, "it grows")
    assert tony.status(fixed)["roles"][0]["instances"] == 2
    tony.ok("kill", app)
    tony.ok("kill", fixed)


def test_no_job_grows_into_what_others_wait_for(tony, site):
    """A job without bounds waits for two containers of 4 GiB, and less than that is free. YARN would serve the older job first."""
    app = elastic(tony, 8, 1, 12)
    other = tony.submit(tony.workers(WAIT, n=4, role={"memory": "1g"}))
    wait_until(lambda: running(tony, app) == 8 and running(tony, other) == 4, "both run")
    wait_until(lambda: once(tony)[app][1] > 8, "it may grow")
    waits = tony.submit(tony.workers(WAIT, n=2, role={"memory": "4g"}))
    wait_until(lambda: "tasks" in tony.status(waits), "its master asks for containers")
    wait_until(lambda: once(tony) == {app: (8, 8)}, "it may not grow any more")
    said = tony.ok("arbiter", "run", "--queue", "default", "--once")
    assert "stay free, since other jobs wait for them" in said, said
    assert running(tony, app) == 8 and "resizes" not in tony.status(app)
    for job in (waits, other, app):
        tony.ok("kill", job)


@pytest.mark.parametrize("args,code,sentence", [
    (["run"], 2, "--queue"),
    (["walk", "--queue", "default"], 2, "no 'walk'"),
    (["run", "--queue", "nosuch", "--once"], 2, "no queue 'nosuch'"),
    (["run", "--queue", "default", "--policy", "fifo2"], 2, "fifo2"),
    (["run", "--queue", "default", "--policy", "srtf"], 2, "stops running jobs"),
    (["run", "--queue", "default", "--policy", "static"], 2, "never resizes"),
])
def test_what_is_refused(tony, args, code, sentence):
    r = tony.run("arbiter", *args)
    assert r.returncode == code and sentence in r.stderr, (r.returncode, r.stderr)



# ---- as an application of its own ----


@contextlib.contextmanager
def arbiter_app(tony, *args):
    app = tony.ok("arbiter", "start", "--queue", "default", *args).strip()
    try:
        yield app
    finally:
        tony.run("arbiter", "stop", "--queue", "default")
        tony.cluster.await_app(app, "FINISHED", "FAILED", "KILLED")


def arbiter_pids(tony, program="tony-arbiter"):
    """The pids of the arbiter itself, without the shells that start it."""
    return [pid for pid, line in tony.cluster.processes().items() if line.split()[0].endswith(program) and "run" in line]


@pytest.mark.slow
def test_an_application_of_its_own(tony, site):
    """`tony arbiter start` starts an arbiter as a job. `status` finds it, a second start is refused, it divides
    the queue, continues after its task and its master were killed, and `stop` ends it."""
    r = tony.run("arbiter", "status", "--queue", "default")
    assert r.returncode == 1 and "you have no arbiter" in r.stderr, r.stderr
    first = elastic(tony, 10, 2, 10)
    wait_until(lambda: running(tony, first) == 10, "the first job runs")
    with arbiter_app(tony) as app:
        doc = tony.json("arbiter", "status", "--queue", "root.default")
        assert (doc["application_id"], doc["queue"]) == (app, "root.default")
        r = tony.run("arbiter", "start", "--queue", "default")
        assert r.returncode == 2 and app in r.stderr and "already" in r.stderr, r.stderr
        wait_until(lambda: arbiter_pids(tony), "the arbiter runs", 120)
        assert all(j["application_id"] != app for j in tony.json("list")["jobs"]), "it is no job of the user's list"

        before = arbiter_pids(tony)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: set(arbiter_pids(tony)) - set(before), "its task is started again", 120)
        await_reported(tony, app)
        Victims(tony, app, "tony-arbiter").kill("master")
        wait_until(lambda: tony.json("arbiter", "status", "--queue", "default")["attempt"] == 2, "a second master", 120, 0.2)

        second = elastic(tony, 6, 4, 12)
        wait_until(lambda: running(tony, second) >= 4, "the second job runs", 240, 0.2)
        assert "the arbiter of queue 'default', policy drf" in tony.status(first)["last_resize"]["why"]
        tony.ok("kill", second)
        wait_until(lambda: running(tony, first) >= 8, "the first job has the room again", 240, 0.2)
        assert "->" in tony.ok("logs", app)
        out = tony.ok("arbiter", "stop", "--queue", "default")
        assert tony.run("arbiter", "status", "--queue", "default").returncode == 1, out
    assert running(tony, first) >= 8
    tony.ok("kill", first)


# ---- limits of queues ----

LIMITS = ["capacity:yarn.scheduler.capacity." + x for x in (
    "root.queues=default,a", "root.default.capacity=50", "root.a.capacity=50", "root.a.maximum-capacity=50", "root.a.queues=ml,other",
    "root.a.ml.capacity=50", "root.a.ml.maximum-capacity=50", "root.a.ml.user-limit-factor=10", "root.a.ml.maximum-am-resource-percent=1",
    "root.a.other.capacity=50", "root.a.other.maximum-capacity=100", "root.second.capacity=0")]


@pytest.mark.slow
def test_the_limits_of_a_queue_and_of_those_above(tony, cluster, site):
    """ml may have half of a, and a half of the 16 GiB: a master of 128 MiB and 3 workers of 1000 MiB, which YARN rounds up to 1 GiB."""
    with cluster.changed(*LIMITS, restart=["rm"]):
        role = {"memory": "1000m", "min-instances": 1, "max-instances": 12, "resize": "live"}
        app = tony.submit(tony.workers(WAIT, role=role, conf={"tony.yarn.queue": "ml"}))
        wait_until(lambda: running(tony, app) == 1, "it runs")
        for queue in ("ml", "root.a.ml"):
            doc = json.loads(tony.ok("arbiter", "run", "--queue", queue, "--once", "--dry-run", "--json"))
            assert [(j["has"], j["target"]) for j in doc["jobs"]] == [(1, 3)], doc
        tony.ok("arbiter", "run", "--queue", "ml", "--once")
        wait_until(lambda: running(tony, app) == 3, "it has what the queue may have")
        r = tony.run("arbiter", "run", "--queue", "b.ml", "--once")
        assert r.returncode == 2 and "no queue 'b.ml'" in r.stderr, r.stderr
        tony.ok("kill", app)
        cluster.await_app(app, "FINISHED", "FAILED", "KILLED")


@pytest.mark.slow
def test_a_start_in_a_full_queue(tony, cluster, site):
    """
    The queue may have 12 GiB, and jobs hold all of it: an arbiter that is started there waits. In another queue it
    starts, and makes room in the full one.
    """
    with cluster.changed("capacity:yarn.scheduler.capacity.root.default.maximum-capacity=75", restart=["rm"]):
        first = elastic(tony, 11, 2, 11)
        wait_until(lambda: running(tony, first) == 11, "the first job runs")
        rest = tony.submit(tony.workers(WAIT, role={"memory": "768m"}))
        wait_until(lambda: running(tony, rest) == 1, "a job that has the rest runs")
        app = tony.ok("arbiter", "start", "--queue", "default").strip()
        assert tony.json("arbiter", "status", "--queue", "default")["state"] == "ACCEPTED"
        second = elastic(tony, 3, 2, 4)
        r = tony.run("arbiter", "start", "--queue", "default", "--conf", "tony.yarn.queue=second")
        assert r.returncode == 2 and f"{app}" in r.stderr and "tony arbiter stop" in r.stderr, r.stderr
        assert tony.json("arbiter", "status", "--queue", "default")["state"] == "ACCEPTED", "it still waits"
        tony.ok("arbiter", "stop", "--queue", "default")
        with arbiter_app(tony, "--conf", "tony.yarn.queue=second") as app:
            wait_until(lambda: running(tony, second) >= 2, "the second job has room", 240, 0.2)
            assert cluster.app(app)["queue"].endswith("second")
            assert running(tony, first) < 11 and tony.status(first)["restarts"] == 0
        for job in (first, rest, second):
            tony.ok("kill", job)
            cluster.await_app(job, "FINISHED", "FAILED", "KILLED")


# ---- deaths in the middle of an exchange ----


class Exchange:
    """
    The first job gives half of its containers to the second one. `steps` are the moments at which something is killed:
    each is a condition that becomes true during the exchange.
    """

    def __init__(self, tony):
        self.tony, self.gate = tony, tony.base / "gate"
        command = f"while [ ! -e {self.gate} ]; do sleep 0.2; done"
        role = {"memory": "1g", "min-instances": 2, "max-instances": 12, "resize": "live"}
        self.first = tony.submit(tony.workers(command, n=12, role=role))
        wait_until(lambda: running(tony, self.first) == 12, "the first job runs")
        await_reported(tony, self.first)
        self.second = tony.submit(tony.workers(command, n=6, role={**role, "min-instances": 4}))
        wait_until(lambda: "tasks" in tony.status(self.second), "the master of the second job runs")
        self.steps = {
            "asked": lambda: tony.status(self.first).get("resizes") or running(tony, self.first) < 12,
            "shrunk": lambda: running(tony, self.first) < 12,
            "started": lambda: running(tony, self.second) > 0,
        }
        self.process = None

    def start_arbiter(self):
        self.process = self.tony.start("arbiter", "run", "--queue", "default", stdout=open(self.tony.base / "arbiter.out", "a"),
                                       stderr=open(self.tony.base / "arbiter.err", "a"))

    def kill_arbiter(self):
        self.process.kill()
        self.process.wait(10)

    def check(self):
        tony, jobs = self.tony, (self.first, self.second)

        def halves():
            return sorted(running(tony, app) for app in jobs) in ([6, 8], [7, 7], [7, 8])

        until(tony, halves, "each has half")
        # No container is held beside those of the tasks and of the masters.
        until(tony, lambda: halves() and all(tony.cluster.app(app)["runningContainers"] == running(tony, app) + 1 for app in jobs), "no other container")
        self.kill_arbiter()
        self.gate.write_text("")
        for app in jobs:
            doc = tony.await_state(app, "SUCCEEDED", "FAILED", "KILLED")
            assert doc["state"] == "SUCCEEDED", doc


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["arbiter", "first", "second"])
def test_deaths_in_an_exchange(tony, site, victim):
    x = Exchange(tony)
    x.start_arbiter()
    try:
        for name, reached in x.steps.items():
            until(tony, reached, name)
            if victim == "arbiter":
                x.kill_arbiter()
                x.start_arbiter()
            elif name == ("asked" if victim == "first" else "started"):
                app = getattr(x, victim)
                if victim == "second":
                    until(tony, lambda: running(tony, app) >= 4, "the second job runs")
                    await_reported(tony, app)
                Victims(tony, app, "gate").kill("master")
        x.check()
    finally:
        x.kill_arbiter()
        for app in (x.first, x.second):
            tony.run("kill", app)


# ---- jobs of other users ----


@contextlib.contextmanager
def another_user(tony, tmp_path_factory, name, keys):
    """The machine of another user. Without Kerberos, HADOOP_USER_NAME says who that is. keys: of the site's file."""
    base = tmp_path_factory.mktemp(name)
    other = Tony(base, tony.cluster, HADOOP_USER_NAME=name)
    (base / "site" / "tony-site.yaml").write_text(POLICY + f"  tony.yarn.arbiter-keys: {json.dumps(keys)}\n")
    tony.cluster.make_home(name)
    yield other


def once(tony, **kw):
    """{application: (containers that it has, containers that the arbiter would give it)}, by --once --dry-run."""
    doc = json.loads(tony.ok("arbiter", "run", "--queue", "default", "--once", "--dry-run", "--json", **kw))
    return {j["application_id"]: (j["has"], j["target"]) for j in doc["jobs"]}


@pytest.mark.slow
def test_jobs_of_other_users(tony, site, tmp_path_factory):
    """
    ada's job is registered for the arbiter of this user, and gives half of the queue to a job of this user; eve's job is
    submitted without the key, and is left alone.
    """
    key = tony.ok("arbiter", "key", "--queue", "default").strip()
    assert key == tony.ok("arbiter", "key", "--queue", "default").strip(), "the same key again"
    with another_user(tony, tmp_path_factory, "ada", key) as ada, another_user(tony, tmp_path_factory, "eve", "") as eve:
        first = elastic(ada, 10, 2, 12)
        alone = elastic(eve, 2, 1, 12)
        wait_until(lambda: running(ada, first) == 10 and running(eve, alone) == 2, "both run")
        assert set(once(tony)) == {first}, "only the registered job is the arbiter's"
        # An arbiter of ada's own leaves the job to the one for whose key it is registered.
        assert once(ada) == {}
        second = elastic(tony, 6, 3, 12)
        with arbiter(tony):
            until(tony, lambda: running(tony, second) >= 3, "the second job runs")
            until(tony, lambda: running(ada, first) < 10, "ada's job gave something")
        doc = ada.status(first)
        assert doc["state"] == "RUNNING" and doc["restarts"] == 0
        assert "the arbiter of queue 'default', policy drf" in doc["last_resize"]["why"], doc["last_resize"]
        assert running(eve, alone) == 2 and "resizes" not in eve.status(alone)
        # The arbiter was killed. The next one knows the job of ada again.
        with arbiter(tony):
            tony.ok("kill", second)
            until(tony, lambda: running(ada, first) >= 10, "ada's job has the room again")
        ada.ok("kill", first)
        eve.ok("kill", alone)


@pytest.mark.slow
def test_a_waiting_job_of_another_user_and_a_new_master(tony, site, tmp_path_factory):
    """ada's job waits for room, also for that of its master. When its master is killed, the next one obeys, too."""
    with another_user(tony, tmp_path_factory, "ada", tony.ok("arbiter", "key", "--queue", "default").strip()) as ada:
        first = elastic(tony, 15, 2, 15)
        wait_until(lambda: running(tony, first) == 15, "the first job runs")
        second = elastic(ada, 4, 3, 12)
        with arbiter(tony):
            until(tony, lambda: running(ada, second) >= 3, "ada's job runs")
            await_reported(ada, second)
            Victims(ada, second, "sleep").kill("master")
            wait_until(lambda: ada.status(second).get("epoch") == 2 and running(ada, second) >= 3, "another master", 120)
            tony.ok("kill", first)
            until(tony, lambda: running(ada, second) == 12, "ada's job has all that it can use")
        ada.ok("kill", second)


def test_tags_that_are_not_ones_own(tony, site, tmp_path_factory):
    """A job with the tags of another job, or with tags for another arbiter, is not the arbiter's, or has no master that answers."""
    key = tony.ok("arbiter", "key", "--queue", "default").strip()
    with another_user(tony, tmp_path_factory, "ada", key) as ada, another_user(tony, tmp_path_factory, "eve", "") as eve:
        good = elastic(ada, 2, 1, 4)
        wait_until(lambda: running(ada, good) == 2, "it runs")
        tags = [t for t in tony.cluster.app(good)["applicationTags"].split(",") if t.startswith("tony-")]
        assert len(tags) == 2, tags
        copy = elastic(eve, 2, 1, 4, conf={"tony.application.tags": ",".join(tags)})
        wait_until(lambda: running(eve, copy) == 2, "the copy runs")
        assert once(tony) == {good: (2, 4)}, "the copy's master does not know the key of its tags"
        ada.ok("kill", good)
        eve.ok("kill", copy)


@pytest.mark.parametrize("keys,sentence", [
    ("ml", "is not QUEUE=KEY"),
    ("default=00", "64 hex digits"),
    (f"default={'0' * 64}", "is not valid"),
    (f"default={'1' * 64},root.default={'2' * 64}", "two keys"),
])
def test_keys_that_are_refused(tony, keys, sentence):
    r = tony.run("submit", tony.workers(WAIT, role={"min-instances": 1, "max-instances": 4}, conf={"tony.yarn.arbiter-keys": keys}))
    assert r.returncode == 2 and sentence in r.stderr, r.stderr


# ---- where ----

def nodes_of(tony, app):
    """The number of workers on each node."""
    found = {}
    for t in tony.status(app).get("tasks", []):
        if t.get("node") and t["state"] == "running":
            found[t["node"]] = found.get(t["node"], 0) + 1
    return found


@pytest.mark.slow
def test_the_containers_of_a_job_that_waits_need_whole_nodes(tony, site):
    """
    A job with containers of 3 GiB waits. Two of them need 6 of the 8 GiB of a node. Without a word about nodes, the
    other job would give back the containers of its last tasks, which are on both nodes.
    """
    command = f"while [ ! -e {tony.base / 'gate'} ]; do sleep 0.2; done"
    role = {"memory": "1g", "min-instances": 2, "max-instances": 14, "resize": "restart"}
    small = tony.submit(tony.workers(command, n=14, role=role))
    wait_until(lambda: running(tony, small) == 14, "the first job runs")
    await_reported(tony, small)
    large = tony.submit(tony.workers(command, n=3, role={"memory": "3g", "min-instances": 3, "max-instances": 4, "resize": "live"}))
    wait_until(lambda: "tasks" in tony.status(large), "its master runs")
    with arbiter(tony):
        until(tony, lambda: running(tony, large) >= 3, "the second job runs")
        until(tony, lambda: running(tony, small) >= 2, "the first job runs again")
    indices = sorted(t["index"] for t in tony.status(small)["tasks"])
    assert indices == list(range(len(indices))), indices
    assert 0 < sum(nodes_of(tony, small).values()) <= 7
    (tony.base / "gate").write_text("")
    for app in (small, large):
        doc = tony.await_state(app, "SUCCEEDED", "FAILED", "KILLED")
        assert doc["state"] == "SUCCEEDED", doc


def asked_nodes(cluster, app):
    """The number of containers that the application asks of YARN on each node."""
    found, nodes = {}, {n["id"] for n in cluster.nodes()}
    for r in cluster.app(app).get("resourceRequests", []):
        if r["resourceName"] in nodes and r["numContainers"]:
            found[r["resourceName"]] = found.get(r["resourceName"], 0) + r["numContainers"]
    return found


@pytest.fixture
def on_heartbeats(cluster):
    """The scheduler gives containers only when a node reports. Usually it also gives them for two intervals after that."""
    with cluster.changed("capacity:yarn.scheduler.capacity.schedule-asynchronously.enable=false", restart=["rm"]):
        yield


@pytest.mark.slow
def test_a_job_grows_on_the_nodes_of_the_decision(tony, cluster, site, on_heartbeats):
    """
    YARN is asked for the containers on these nodes. It need not obey: it waits for a node for as many heartbeats as there
    are nodes, which are two. So the NodeManagers stand still until the ResourceManager has all requests. Without heartbeats
    it gives no container.
    """
    app = elastic(tony, 2, 2, 7)
    wait_until(lambda: running(tony, app) == 2, "the job runs")
    before, daemons = nodes_of(tony, app), cluster.names()[3:]
    for nm in daemons:
        cluster.signal(nm, "STOP")
    try:
        with arbiter(tony, "--json"):
            asked = wait_until(lambda: (lambda a: a if sum(a.values()) == 5 else None)(asked_nodes(cluster, app)), "five are asked for")
            for nm in daemons:
                cluster.signal(nm, "CONT")
            until(tony, lambda: running(tony, app) == 7, "it has grown")
    finally:
        for nm in daemons:
            cluster.signal(nm, "CONT")
    lines = [json.loads(line) for line in (tony.base / "arbiter.out").read_text().splitlines()]
    wished = [j["nodes"] for line in lines for j in line["jobs"] if j["target"] == 7]
    more = [{node: n - before.get(node, 0) for node, n in w.items() if n > before.get(node, 0)} for w in wished]
    assert asked in more, (wished, before, asked)
    assert all(list(w) == sorted(w) for w in wished), "the nodes have the order of their names"
    tony.ok("kill", app)
