# SPDX-License-Identifier: Apache-2.0
"""`tony allocate` on instances with known answers (tests/data/partition/golden), and on input that it must refuse."""

import importlib.machinery
import importlib.util
import json
import math
import os
import random
import resource
import subprocess

import pytest
from conftest import BIN, ROOT

GOLDEN = ROOT / "tests" / "data" / "partition" / "golden"
# Programs with sanitizers or counters are slower. Their time is not what a user would see.
SLOW = 20 if os.environ.get("TONY_SLOW_BUILD") or "asan" in str(BIN) or "cov" in str(BIN) else 1


def golden(prefix):
    return [pytest.param(path, id=path.stem) for path in sorted(GOLDEN.glob(prefix + "*.json"))]


def allocate(document, *args, hang_s=120):
    """
    Exit status, standard output, standard error, and the CPU time in ms (wall time would measure the other tests as well).
    hang_s: the program hangs if it runs for longer.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(BIN / "tony"), "allocate", *args], input=document, capture_output=True, text=True, timeout=hang_s)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    ms = 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return done.returncode, done.stdout, done.stderr, ms


def answer(instance, *args, hang_s=120):
    rc, out, errors, ms = allocate(json.dumps(instance), *args, hang_s=hang_s)
    assert rc == 0, errors
    assert errors == ""
    return json.loads(out), ms


# ---- kind drf

@pytest.mark.parametrize("path", golden("drf-"))
def test_fair_counts(path):
    case = json.loads(path.read_text())
    assert answer(case["instance"])[0]["counts"] == case["answer"]["counts"]


# ---- kind market

def market_utilities(instance, bids):
    weights, reserve = instance["weights"], instance.get("reserve", 0.0)
    users, machines = range(len(weights)), range(len(weights[0]))
    price = [reserve + sum(bids[i][j] for i in users) for j in machines]
    share = [[bids[i][j] / price[j] if bids[i][j] > 0 else 0.0 for j in machines] for i in users]
    return price, [sum(sorted((weights[i][j] * share[i][j] for j in machines), reverse=True)[:parallel(instance, i)]) for i in users]


def parallel(instance, i):
    machines = len(instance["weights"][0])
    return min(instance.get("parallel", [machines] * (i + 1))[i], machines)


@pytest.mark.parametrize("path", golden("market-"))
def test_market(path):
    case = json.loads(path.read_text())
    instance, weights = case["instance"], case["instance"]["weights"]
    result = answer(instance)[0]
    bids = result["bids"]
    price, utilities = market_utilities(instance, bids)
    for i, row in enumerate(bids):
        assert min(row) >= 0
        assert sum(row) == pytest.approx(instance["budgets"][i], rel=1e-9)
        # The marginal utility of money is the same wherever the user bids, and not larger elsewhere. A user that can use only some
        # machines compares only those it uses.
        marginal = [w * (p - x) / p ** 2 if p > 0 else 0.0 for w, p, x in zip(weights[i], price, row)]
        used = [m for m, x in zip(marginal, row) if x > 1e-9 * instance["budgets"][i]]
        assert max(used) - min(used) <= 1e-6 * max(used)
        assert sum(x > 0 for x in row) <= parallel(instance, i)
        if parallel(instance, i) == len(row):
            assert max(marginal) <= max(used) * (1 + 1e-6)
    # Another equilibrium than the known one may be right, but it must not be worse.
    known = sum(market_utilities(instance, case["answer"]["bids"])[1])
    assert sum(utilities) / known * case["answer"]["efficiency"] >= case["answer"]["efficiency"] - 0.01
    assert result["efficiency"] == pytest.approx(sum(utilities) / known * case["answer"]["efficiency"], rel=1e-6)
    assert result["uniformity"] == pytest.approx(min(utilities) / max(utilities), rel=1e-9)


# ---- kind allocate

class Checked:
    """An answer to an instance of kind `allocate`: refuses what is not feasible, and computes what it is worth."""

    def __init__(self, case, result):
        self.instance, self.known = case["instance"], case["answer"]
        self.apps = {app["id"]: app for app in self.instance["apps"]}
        self.nodes = [group["capacity"] for group in self.instance["nodes"] for _ in range(group.get("count", 1))]
        self.total = [sum(column) for column in zip(*self.nodes)]
        self.places = {name: dict(map(tuple, at)) for name, at in result["allocation"].items()}
        self.counts = {name: sum(at.values()) for name, at in self.places.items()}
        self.bound = result.get("upper_bound")
        self.feasible(result)
        self.admission()
        self.metrics()

    def feasible(self, result):
        free = [list(capacity) for capacity in self.nodes]
        for name, at in result["allocation"].items():
            assert len(at) == len(self.places[name]), f"{name} has a node twice"
            app = self.apps[name]
            for node, count in at:
                assert 0 <= node < len(self.nodes) and count > 0
                for k, demand in enumerate(app["demand"]):
                    free[node][k] -= count * demand
            assert app["min"] <= self.counts[name] <= app["max"], name
            if app.get("pinned"):
                assert self.places[name] == dict(map(tuple, app["at"])), name
        assert all(amount >= 0 for node in free for amount in node), "a node is over its capacity"

    def admission(self):
        running = {name for name, app in self.apps.items() if "at" in app}
        admitted = [name for name, app in self.apps.items() if "at" not in app and name in self.places]
        assert running <= set(self.places), "a running job is left out"
        assert admitted == self.known["admitted"]

    def metrics(self):
        dominant = {name: max(d / c for d, c in zip(app["demand"], self.total) if c) for name, app in self.apps.items()}
        self.loss = sum(dominant[name] * abs(count - self.known["ideal"][name]) for name, count in self.counts.items())
        self.used = sum(count * sum(d / c for d, c in zip(self.apps[name]["demand"], self.total) if c)
                        for name, count in self.counts.items())
        self.adjusted = self.changed = 0
        for name, app in self.apps.items():
            if "at" not in app:
                continue
            was, now = dict(map(tuple, app["at"])), self.places[name]
            moved = sum(abs(was.get(j, 0) - now.get(j, 0)) for j in set(was) | set(now))
            self.changed += moved
            self.adjusted += moved > 0 and not app.get("lost")
        assert self.loss <= self.known["objective"]["loss_bound"] + 1e-9
        assert self.adjusted <= self.known["objective"]["adjust_bound"]

    def best(self):
        return self.known["objective"]["utilization"] if self.known["proved"] else self.known["upper_bound"]

    def gap(self):
        return max(0.0, 1 - self.used / self.best())

    def compare(self):
        limits, known = self.known["limits"], self.known["objective"]
        if self.known["proved"]:
            assert self.used <= known["utilization"] + 1e-9, "better than what was proved to be best: the check is wrong"
        if limits["exact"]:
            assert self.used == pytest.approx(known["utilization"], rel=1e-9)
        if limits["ties"]:
            assert (self.adjusted, self.changed) == (known["adjusted"], known["changed"])
        assert self.gap() <= limits["gap"] + 1e-9
        if self.bound is not None:
            assert self.bound >= max(known["utilization"], self.used) - 1e-9, "the bound is below what is possible"


@pytest.mark.parametrize("path", golden("alloc-"))
def test_allocate(path):
    case = json.loads(path.read_text())
    result, ms = answer(case["instance"])
    checked = Checked(case, result)
    checked.compare()
    assert result["gap"] == pytest.approx(1 - checked.used / result["upper_bound"], abs=1e-7)
    assert result["gap"] == 0 or not result["proved"]
    assert ms <= case["answer"]["limits"]["ms"] * SLOW


# Random instances that once had a wrong answer; `note` says why.
@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in sorted((GOLDEN.parent / "admission").glob("*.json"))])
def test_the_longest_possible_part_of_the_queue_is_admitted(path):
    case = json.loads(path.read_text())
    result, ms = answer(case["instance"])
    Checked(case, result).compare()
    assert result["relaxed"] == (case["answer"]["status"] == "relaxed")
    assert ms <= case["answer"]["limits"]["ms"] * SLOW


def test_mean_gap():
    gaps = []
    for path in sorted(GOLDEN.glob("alloc-*.json")):
        case = json.loads(path.read_text())
        gaps.append(Checked(case, answer(case["instance"])[0]).gap())
    assert sum(gaps) / len(gaps) <= 0.01


@pytest.mark.parametrize("path", golden("alloc-"))
def test_the_check_accepts_the_known_answer(path):
    case = json.loads(path.read_text())
    Checked(case, case["answer"]).compare()


# ---- other policies and refused input

def mixed_cluster(seed):
    """200 new jobs and 1,000 nodes of 36 kinds. The GPUs are scarce, and some nodes have too few cores for all of theirs."""
    rnd = random.Random(seed)
    nodes = [{"capacity": [rnd.choice((32, 48, 64, 96)), rnd.choice((128, 256, 512)) * 1024, rnd.choice((0, 0, 0, 4, 8))]} for _ in range(1000)]
    apps = []
    for i in range(200):
        gpu = rnd.random() < 0.4
        demand = [rnd.choice((2, 3, 4, 6, 8)), rnd.choice((8, 12, 16, 24, 32)) * 1024, int(gpu)]
        apps.append({"id": f"a{i}", "demand": demand, "max": rnd.choice((8, 16, 32, 64, 128)), "weight": rnd.choice((1, 1, 2, 4)), "min": 1})
    return {"kind": "allocate", "resources": ["vcores", "memory_mib", "gpus"], "nodes": nodes, "apps": apps}


@pytest.mark.parametrize("seed", range(1, 7))
def test_scarce_gpus_on_many_kinds_of_nodes(seed):
    instance = mixed_cluster(seed)
    got, _ = answer(instance)
    fair, _ = answer({**instance, "kind": "drf"})
    known = {"admitted": [app["id"] for app in instance["apps"]], "ideal": fair["counts"], "objective": {"loss_bound": 1, "adjust_bound": 0}}
    used = Checked({"instance": instance, "answer": known}, got).used
    assert used == pytest.approx(got["utilization"]) and used >= 0.98 * got["upper_bound"], used / got["upper_bound"]


def bench_instance(shape, seed, jobs, nodes):
    loader = importlib.machinery.SourceFileLoader("bench_partition", str(ROOT / "bench" / "partition"))
    bench = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(bench)
    return bench.made(shape, seed, jobs, nodes)


def renumbered(instance, seed):
    """The same instance with the nodes in another order."""
    number = list(range(len(instance["nodes"])))
    random.Random(seed).shuffle(number)
    nodes = [instance["nodes"][old] for old in sorted(number, key=number.__getitem__)]
    apps = [{**app, "at": sorted([number[j], n] for j, n in app["at"])} if "at" in app else app for app in instance["apps"]]
    return {**instance, "nodes": nodes, "apps": apps}


@pytest.mark.parametrize("shape", ["gpus-queue", "large-queue", "common-queue", "fragmented-queue"])
def test_a_long_queue_is_admitted_in_its_order_whatever_the_numbers_of_the_nodes(shape):
    instance = bench_instance(shape, 1, 100, 200)
    got, _ = answer(instance)
    waiting = [app["id"] for app in instance["apps"] if "at" not in app]
    admitted = [name for name in waiting if name in got["allocation"]]
    assert admitted == waiting[:len(admitted)] and 0 < len(admitted) < len(waiting)
    fair, _ = answer({**instance, "kind": "drf", "apps": [app for app in instance["apps"] if app["id"] in got["allocation"]]})
    known = {"admitted": admitted, "ideal": fair["counts"],
             "objective": {"loss_bound": 2, "adjust_bound": math.ceil(0.3 * (len(instance["apps"]) - len(waiting)))}}
    first = Checked({"instance": instance, "answer": known}, got)
    other = renumbered(instance, 1)
    assert first.counts == Checked({"instance": other, "answer": known}, answer(other)[0]).counts


# Without the further patterns of a round, the first one has a gap of 1.5 %; without the shares of dorm_whole.c, the
# others have 3.5 and 3.8 %; without the second division from patterns 1.6 and 2.0 %.
@pytest.mark.parametrize("shape, seed, percent", [("gpus-waiting", 3, 0.1), ("fragmented-unequal", 3, 0.6), ("large-unequal", 2, 0.9)])
def test_a_large_division_is_close_to_its_bound_whatever_the_numbers_of_the_nodes(shape, seed, percent):
    instance = bench_instance(shape, seed, 200, 1000)
    got, _ = answer(instance)
    assert got["utilization"] <= got["upper_bound"] * (1 + 1e-9)
    assert 100 * (1 - got["utilization"] / got["upper_bound"]) < percent
    other, _ = answer(renumbered(instance, 1))
    counts, others = ({name: sum(n for _, n in places) for name, places in one["allocation"].items()} for one in (got, other))
    assert counts == others


def test_memory_with_very_many_demands(tmp_path):
    """10,000 jobs, no two of which need the same: the inverse of dorm_simplex.c would have 800 MB."""
    demands = random.Random(5).sample([[a, b] for a in range(16, 120) for b in range(16, 120)], 10000)
    apps = [{"id": f"a{i}", "demand": demand, "min": 1, "max": 1 + i % 20} for i, demand in enumerate(demands)]
    nodes = [{"capacity": [256, 256]}] * 10000
    (tmp_path / "in").write_text(json.dumps({"kind": "allocate", "resources": ["a", "b"], "nodes": nodes, "apps": apps}))
    with open(tmp_path / "in", "rb") as asked, open(tmp_path / "out", "wb") as told:
        child = subprocess.Popen([str(BIN / "tony"), "allocate"], stdin=asked, stdout=told)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0 and usage.ru_maxrss < 400 * 1024, (child.returncode, usage.ru_maxrss)
    got = json.loads((tmp_path / "out").read_text())
    assert got["utilization"] > 0.9 * got["upper_bound"]


@pytest.mark.parametrize("policy", ["static", "fifo", "backfill", "drf", "market", "las", "srtf", "srtf-elastic", "las-elastic"])
@pytest.mark.parametrize("path", golden("alloc-1"))
def test_each_policy_answers_within_the_bounds(path, policy):
    instance = json.loads(path.read_text())["instance"]
    result = answer(instance, "--policy", policy)[0]
    assert result["policy"] == policy
    assert set(result["why"]) == {app["id"] for app in instance["apps"]}
    nodes = [list(group["capacity"]) for group in instance["nodes"] for _ in range(group.get("count", 1))]
    for app in instance["apps"]:
        at = result["allocation"].get(app["id"], [])
        assert not at or app["min"] <= sum(n for _, n in at) <= app["max"]
        if app.get("pinned"):
            assert at == app["at"]
        for node, n in at:
            for k, demand in enumerate(app["demand"]):
                nodes[node][k] -= n * demand
    assert all(amount >= 0 for node in nodes for amount in node)


ONE = {"kind": "drf", "resources": ["cores"], "nodes": [{"capacity": [4]}], "apps": [{"id": "a", "demand": [1], "min": 1, "max": 2}]}


def changed(**members):
    return json.dumps({**ONE, **members})


def app(**members):
    return changed(apps=[{**ONE["apps"][0], **members}])


@pytest.mark.parametrize("text, sentence", [
    ("", "standard input:1: cannot be read as JSON"),
    ("{\n\"kind\": \"drf\",\n}", "standard input:3: cannot be read as JSON"),
    ("[]", "the document: must be an object"),
    (changed(kind="dorm"), "kind: must be 'allocate', 'drf' or 'market'"),
    (changed(resources=[]), "resources: must be a list of 1 to 8 names"),
    (changed(nodes=[{"count": 0, "capacity": [4]}]), "nodes[0].count: must be an integer from 1 to 100000"),
    (changed(nodes=[{"count": 99999, "capacity": [4]}] * 2), "nodes[1]: there are more than 100000 nodes"),
    (changed(nodes=[{"capacity": [4, 4]}]), "nodes[0].capacity: must be a list of 1 integers, as many as resources"),
    (changed(nodes=[{"capacity": [-1]}]), "nodes[0].capacity[0]: must be an integer from 0 to 1099511627776"),
    (changed(apps=ONE["apps"] * 2), "apps[1].id: 'a' is the id of an earlier one"),
    (app(demand=[1.5]), "apps[0].demand[0]: must be an integer from 0 to 1099511627776"),
    (app(demand=[0]), "job 'a': its containers demand nothing"),
    (app(min=3), "apps[0].max: must be an integer from 3 to 1000000"),
    (app(weight=0), "apps[0].weight: must be an integer from 1 to 10000"),
    (app(pinned=1), "apps[0].pinned: must be true or false"),
    (app(pinned=True), "job 'a': it is pinned but does not run"),
    (app(at=[[1, 1]]), "apps[0].at[0]: must be an integer from 0 to 0"),
    (app(at=[[0, 1], [0, 1]]), "job 'a': its places are not in the order of the nodes at node 0"),
    (app(at=[[0, 3]]), "job 'a': it runs with 3 containers, outside of its min 1 to its max 2"),
    (app(demand=[3], at=[[0, 2]]), "node 0: with job 'a' it holds more than its 4 of cores"),
    (app(at=[]), "apps[0].at: must be a list of at least one [node, containers]"),
    (app(budget=0), "apps[0].budget: must be a number from 1e-09 to 1e+15"),
    (changed(theta1=2), "theta1: must be a number from 0 to 1"),
    ('{"kind": "market", "weights": [[1, 2], [1]], "budgets": [1, 1]}', "weights[1]: must be a list as long as the first"),
    ('{"kind": "market", "weights": [[0, 0]], "budgets": [1]}', "weights[0]: must be above 0 for at least one machine"),
    ('{"kind": "market", "weights": [[1]], "budgets": [0]}', "budgets[0]: must be a number from 1e-09"),
])
def test_invalid_instances_are_refused(text, sentence):
    rc, out, errors, _ = allocate(text)
    assert (rc, out) == (2, "")
    assert sentence in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("apps, theta1", [(ONE["apps"], 0.1), ([{**ONE["apps"][0], "max": 9}], -0.0), ([], 0.1)])
def test_the_members_of_dorm_are_always_there(apps, theta1):
    """... also if they are false or 0. No number is written as -0."""
    rc, out, errors, _ = allocate(changed(kind="allocate", apps=apps, theta1=theta1))
    assert (rc, errors) == (0, "") and ": -0" not in out, out
    result = json.loads(out)
    assert result["relaxed"] is False and isinstance(result["proved"], bool), result
    assert result["gap"] == pytest.approx(1 - result["utilization"] / (result["upper_bound"] or 1) if apps else 0, abs=1e-9), result
    assert {"upper_bound", "loss_bound", "adjust_bound"} <= set(result), result
    assert not {"relaxed", "proved", "gap"} & set(answer(json.loads(changed(kind="allocate")), "--policy", "drf")[0])


def test_unknown_policy():
    rc, _, errors, _ = allocate("{}", "--policy", "drff")
    assert rc == 2
    assert "there is no policy 'drff'" in errors and "did you mean 'drf'?" in errors


@pytest.mark.parametrize("limit", ["0s", "5", "x"])
def test_a_bad_time_limit_is_refused(limit):
    rc, _, errors, _ = allocate("{}", "--time-limit", limit)
    assert rc == 2 and "--time-limit" in errors
