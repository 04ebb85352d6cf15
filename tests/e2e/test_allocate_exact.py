# SPDX-License-Identifier: Apache-2.0
"""`tony allocate --exact`, and the fast search of `dorm` compared with the exact solver."""

import ctypes
import json
import os
import random
import signal
import subprocess

import pytest
from conftest import BIN
from test_allocate import SLOW, Checked, answer, golden


def solver_there():
    try:
        ctypes.CDLL("libCbcSolver.so.3")
    except OSError:
        return False
    return (BIN / "tony-exact").exists()


HANG_S = 270  # a program that runs for longer hangs; a test may take 300 s

pytestmark = pytest.mark.skipif(not solver_there(), reason="optional: no libCbcSolver.so.3 (apt-get install coinor-libcbc3)")


def solve(instance, time_ms=200000, search_ms=0, may_crash=False):
    """
    The answer of the solver alone: without time for the search, tony-exact has only the present state to begin with.
    may_crash: CBC 2.10 sometimes crashes when its time is over; then there is no answer, as if nothing was proved. (The
    client prints the answer of the search then.)
    """
    memory_mib = 1 << 24 if "asan" in str(BIN) else 4096  # the sanitizer reserves terabytes of addresses
    done = subprocess.run([str(BIN / "tony-exact"), str(time_ms * SLOW), str(search_ms), str(memory_mib)], input=json.dumps(instance),
                          capture_output=True, text=True, timeout=60 + time_ms * SLOW / 1000)
    if may_crash and done.returncode == -signal.SIGSEGV:
        return {}
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# alloc-15 and alloc-17 take the solver alone more than a minute
@pytest.mark.parametrize("path", [p for p in golden("alloc-") if p.id not in ("alloc-15-eight", "alloc-17-sixty")])
def test_the_solver_alone_finds_the_known_optimum(path):
    case = json.loads(path.read_text())
    result, known = solve(case["instance"]), case["answer"]["objective"]
    Checked(case, result).compare()
    assert result["proved"] and result["utilization"] == pytest.approx(known["utilization"], rel=1e-9)
    assert (result["adjusted"], result["changed"]) == (known["adjusted"], known["changed"])


def test_the_exact_answer_proves_what_the_search_cannot():
    """tests/data/partition/golden/exact-01: the search gets no proof, the solver takes about a second (and far less than its limit on any machine)."""
    case = json.loads([p for p in golden("exact-01")][0].values[0].read_text())
    fast, _ = answer(case["instance"])
    assert not fast.get("proved"), "take a harder instance"
    exact, _ = answer(case["instance"], "--exact", "--time-limit", f"{HANG_S - 60}s", hang_s=HANG_S)
    Checked(case, exact).compare()
    assert exact["proved"]


def test_the_bound_of_the_search_is_not_below_the_optimum():
    """tests/data/partition/golden/exact-02: a search that priced jobs of equal demands together had a bound below it."""
    case = json.loads([p for p in golden("exact-02")][0].values[0].read_text())
    fast, _ = answer(case["instance"])
    best = solve(case["instance"])
    assert best["proved"] and best["utilization"] == pytest.approx(case["optimum"], rel=1e-9)
    assert fast["upper_bound"] >= case["optimum"] - 1e-8 and fast["utilization"] == pytest.approx(case["optimum"], rel=1e-9)


def made(rng, jobs, nodes):
    """An instance: jobs that hold what first fit gave them, and jobs that wait."""
    groups = [[rng.choice([8, 12, 16, 24]), rng.choice([32, 64, 96]), rng.choice([0, 0, 2, 4])] for _ in range(min(3, nodes))]
    capacity = [groups[rng.randrange(len(groups))] for _ in range(nodes)]
    free, apps = [list(c) for c in capacity], []
    running = rng.randrange(jobs + 1)
    for i in range(jobs):
        low = rng.randint(1, 3)
        app = {"id": f"a{i}", "demand": [rng.randint(1, 8), rng.choice([2, 4, 8, 16]), rng.choice([0, 0, 0, 1])],
               "weight": rng.randint(1, 4), "min": low, "max": low + rng.randint(0, 12)}
        at, want = {}, rng.randint(app["min"], app["max"])
        order = rng.sample(range(nodes), nodes)
        for node in order if i < running else []:
            while sum(at.values()) < want and all(f >= d for f, d in zip(free[node], app["demand"])) and rng.random() < 0.8:
                free[node] = [f - d for f, d in zip(free[node], app["demand"])]
                at[node] = at.get(node, 0) + 1
        if sum(at.values()) >= app["min"]:
            app["at"] = sorted(map(list, at.items()))
            app.update({"pinned": True} if rng.random() < 0.1 else {"lost": True} if rng.random() < 0.1 else {})
        else:
            for node, n in at.items():
                free[node] = [f + n * d for f, d in zip(free[node], app["demand"])]
        apps.append(app)
    instance = {"kind": "allocate", "resources": ["cores", "memory_gib", "gpus"], "nodes": [{"capacity": c} for c in capacity],
                "apps": sorted(apps, key=lambda a: "at" not in a), "theta1": rng.choice([0.05, 0.1, 0.2]), "theta2": rng.choice([0.1, 0.3, 0.5])}
    if rng.random() < 0.3:
        instance["loss_max"] = rng.choice([0.2, 0.5, 0.8])
    return instance


@pytest.mark.parametrize("jobs, nodes, count, time_ms, worst, mean", [(4, 3, 5, 10000, 0.005, 0.0005),
                                                                     pytest.param(7, 6, 15, 5000, 0.02, 0.005, marks=pytest.mark.slow),
                                                                     pytest.param(14, 12, 5, 5000, 0.02, 0.01, marks=pytest.mark.slow)])
def test_the_search_against_the_solver(jobs, nodes, count, time_ms, worst, mean):
    rng, gaps, proved = random.Random(20 * jobs + nodes), [], 0
    for number in range(count):
        instance = made(rng, jobs, nodes)
        fast, best = answer(instance)[0], solve(instance, time_ms, may_crash=True)
        where = f"instance {number}: {json.dumps(instance)}"
        if not best.get("proved"):
            continue
        proved += 1
        assert fast["admitted"] == best["admitted"], where
        assert fast.get("relaxed", False) == best["relaxed"], where
        assert fast["utilization"] <= best["utilization"] + 1e-8, where
        assert fast["upper_bound"] >= best["utilization"] - 1e-8, where
        if fast.get("proved") and fast["utilization"] >= best["utilization"] - 1e-9 and jobs * nodes <= 40:
            assert (fast["adjusted"], fast["changed"]) == (best["adjusted"], best["changed"]), where
        gaps.append(1 - fast["utilization"] / best["utilization"] if best["utilization"] else 0)
        assert gaps[-1] <= worst, where
    print(f"{jobs} jobs on {nodes} nodes: {proved} of {count} proved, gap mean {sum(gaps) / max(1, len(gaps)):.2%}, worst {max(gaps, default=0):.2%}")
    assert proved > 0
    assert sum(gaps) / len(gaps) <= mean


# ---- limits and failures

def ask(instance, *args, **env):
    return subprocess.run([str(BIN / "tony"), "allocate", "--exact", *args], input=json.dumps(instance), capture_output=True, text=True,
                          timeout=HANG_S, env={**os.environ, **env})


def hard():
    return json.loads([p for p in golden("alloc-17")][0].values[0].read_text())["instance"]


def test_at_the_deadline_the_fast_answer_is_printed():
    done = ask(hard(), "--time-limit", "20ms")
    assert done.returncode == 0 and json.loads(done.stdout)["upper_bound"] > 0
    assert "the exact solver has not ended within 0.02 s; this is the answer of the fast search" in done.stderr


def test_a_missing_solver_is_named():
    done = ask(hard(), TONY_CBC="/nonexistent/libcbc.so")
    assert (done.returncode, done.stdout) == (4, "")
    assert "cannot load the solver: /nonexistent/libcbc.so" in done.stderr and "apt-get install coinor-libcbc3" in done.stderr


def test_a_library_that_is_no_solver():
    done = ask(hard(), TONY_CBC="libm.so.6")
    assert done.returncode == 4 and "cannot use the solver in 'libm.so.6'" in done.stderr


def test_only_for_dorm():
    done = ask(hard(), "--policy", "drf")
    assert done.returncode == 2 and "--exact is for the policy 'dorm', not for 'drf'" in done.stderr


# ---- tony simulate --exact

def simulated(tony, trace, *args, **env):
    done = tony.run("simulate", trace, "--policy", "dorm", "--json", *args, env=env, timeout=HANG_S)
    rows = json.loads(done.stdout) if done.returncode == 0 else [{}]
    return {k: v for k, v in rows[0].items() if "decide" not in k and "longest" not in k}, done


@pytest.mark.slow
@pytest.mark.skipif("asan" in str(BIN), reason="build: a sanitizer needs more memory than the solver may have")
def test_each_decision_of_a_simulation(tony, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text(tony.ok("simulate", "--generate", "small", "--jobs", "14", "--seed", "1"))
    quick, _ = simulated(tony, trace)
    exact, done = simulated(tony, trace, "--exact", "--time-limit", "1m")
    # What is best for each decision need not be best for the day, but the two cannot be far from each other.
    assert exact != quick and exact["util_5h"] == pytest.approx(quick["util_5h"], rel=0.03) and done.stderr == "", (exact, quick, done.stderr)
    # A solver without time changes nothing, and this is said.
    late, done = simulated(tony, trace, "--exact", "--time-limit", "1ms")
    # The two runs add the terms of the bounds in another order.
    assert late == pytest.approx(quick, rel=1e-9) and "the solver had no answer within 0.001 s for " in done.stderr, done.stderr


def test_a_simulation_without_a_solver(tony, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text(tony.ok("simulate", "--generate", "small", "--jobs", "2"))
    _, done = simulated(tony, trace, "--exact", TONY_CBC="/nonexistent.so")
    assert done.returncode == 4 and "cannot load the solver" in done.stderr and "apt-get install coinor-libcbc3" in done.stderr
    done = tony.run("simulate", trace, "--policy", "drf", "--exact")
    assert done.returncode == 2 and "--exact is for the policy 'dorm'" in done.stderr
