# SPDX-License-Identifier: Apache-2.0
"""`tony simulate --from-history`: the finished jobs of a pool under other policies, beside what really happened."""

import pytest
from conftest import wait_until
from lib_jobs import make_lab  # noqa: F401 (fixture)

MIB = 64


def submitted(lab, app):
    return lab.status(app)["times"]["submitted_wall_ms"]


def test_the_history_of_a_pool(make_lab):  # noqa: F811
    """The pool has room for one job, so the second one waits. With twice the room, both would have started at once."""
    lab = make_lab(site={"pool.memory": f"{MIB}m"})
    first = lab.submit(lab.workers("while ! [ -e go ]; do sleep 0.05; done", n=1, role={"memory": f"{MIB}m"}))
    lab.await_state(first, "RUNNING")
    second = lab.submit(lab.workers("true", n=1, role={"memory": f"{MIB}m"}))
    lab.await_state(second, "WAITING")
    # In the simulation the first job starts when it is submitted. Let it run until it overlaps with the second one there, too.
    gap = submitted(lab, second) - submitted(lab, first)
    wait_until(lambda: lab.status(first)["ran_ms"] > gap + 100, "the first job runs long enough")
    lab.run("kill", first)
    for app in (first, second):
        lab.in_history(app)
    ran = {app: lab.status(app)["ran_ms"] / 1000 for app in (first, second)}

    def simulate(nodes):
        return {row["policy"]: row for row in lab.json("simulate", "--from-history", "--policy", "fifo,dorm", "--nodes", nodes)}
    small, large = simulate(f"1x{MIB},0"), simulate(f"1x{2 * MIB},0")
    assert set(small) == {"real", "fifo", "dorm"}
    # With room for both, a job takes only its run time.
    assert large["fifo"]["jct_mean_s"] == pytest.approx(sum(ran.values()) / 2, abs=0.002)
    # In the small cluster the second job waits in the simulation as in reality. tony's own time to start a job is in "real" only.
    assert small["fifo"]["jct_mean_s"] > large["fifo"]["jct_mean_s"]
    assert small["real"]["jct_mean_s"] >= small["fifo"]["jct_mean_s"] - 0.01
    # Utilization is a mean over at least one second.
    assert small["real"]["util"] == pytest.approx(sum(ran.values()) / max(1, small["real"]["end_s"]), rel=0.01)
    head, *lines = lab.ok("simulate", "--from-history", "--policy", "fifo").splitlines()
    assert head.split() == ["policy", "real", "fifo"]
    assert [line.split()[0] for line in lines if line.split()[1] == "-"] == ["loss", "overhead_%", "lost_container_s", "gap_%"]


def test_no_history(make_lab):  # noqa: F811
    lab = make_lab()
    done = lab.run("simulate", "--from-history")
    assert done.returncode == 2 and "the history has no finished job that ran" in done.stderr
    done = lab.run("simulate", "--from-history", "trace.csv")
    assert done.returncode == 2 and "--from-history takes no TRACE" in done.stderr


def test_a_job_that_was_resized(make_lab):  # noqa: F811
    """The history has the containers that the job held at each time. The simulation computes the job's work from
    them, and the chart shows them."""
    lab = make_lab(site={"pool.memory": f"{4 * MIB}m"})
    role = {"memory": f"{MIB}m", "min-instances": 1, "max-instances": 4, "resize": "live"}
    app = lab.submit(lab.workers("sleep 1000", n=1, role=role))
    lab.await_state(app, "RUNNING")
    lab.ok("resize", app, "worker=3", "--wait")
    before = lab.status(app)["ran_ms"]
    wait_until(lambda: lab.status(app)["ran_ms"] > 2 * before + 500, "it ran longer with three tasks than with one")
    lab.run("kill", app)
    lab.in_history(app)
    ran = lab.status(app)["ran_ms"] / 1000
    svg = lab.base / "day.svg"
    real, fifo = lab.json("simulate", "--from-history", "--policy", "real,fifo", "--nodes", f"1x{4 * MIB},0", "--plot", svg, "--charts", "partitions")
    assert (real["policy"], real["adjustments"], fifo["policy"]) == ("real", 1, "fifo")
    assert lab.json("simulate", "--from-history", "--policy", "real") == [real]  # the site file has the same capacity
    held = real["util"] * 4 * max(1, real["end_s"])
    assert 2 * ran < held < 3 * ran + 1
    # With its fixed size, one container, the same work takes longer.
    assert 0.5 * (3 ** 0.9 + 1) * ran < fifo["jct_mean_s"] <= 3 ** 0.9 * ran + 0.01
    text = svg.read_text()
    assert "real: the part of the cluster" in text and "fifo: the part" in text and "Utilization" not in text and text.count("<path fill='hsl(0,") == 2
    done = lab.run("simulate", "--from-history", "--policy", "real", "--plot", svg, "--charts", "gantt")
    assert done.returncode == 2 and "there is no chart 'gantt'" in done.stderr


def test_real_needs_a_history(make_lab):  # noqa: F811
    lab = make_lab()
    trace = lab.base / "t.csv"
    trace.write_text(lab.ok("simulate", "--generate", "small", "--jobs", "2"))
    done = lab.run("simulate", trace, "--policy", "real")
    assert done.returncode == 2 and "needs --from-history" in done.stderr
