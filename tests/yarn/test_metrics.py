# SPDX-License-Identifier: Apache-2.0
"""Metrics of tasks on a cluster: from the master while the job runs, from the history afterwards."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.request

import pytest
from lib_cluster import wait_until
from lib_tony import BUILD, ROOT

sys.path.insert(0, str(ROOT / "tests"))
from lib_prometheus import prometheus  # noqa: E402


def check_openmetrics(url, app):
    """Families are whole and have a type, samples are well-formed, the text ends with EOF, and promtool takes it."""
    def get(accept):
        with urllib.request.urlopen(urllib.request.Request(url + "metrics", headers={"Accept": accept}), timeout=30) as answer:
            return answer.headers["Content-Type"], answer.read().decode()
    kind, text = get("application/openmetrics-text; version=1.0.0, */*")
    assert kind.startswith("application/openmetrics-text") and text.endswith("# EOF\n")
    assert shutil.which("promtool"), "tools/install-deps check installs prometheus"
    done = subprocess.run(["promtool", "check", "metrics"], input=get("*/*")[1], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    family, seen, values = "", set(), {}
    for line in text.splitlines()[:-1]:
        if line.startswith("# TYPE "):
            family, kind = line.split()[2:]
            assert family not in seen and kind in ("gauge", "counter")
            seen.add(family)
        elif not line.startswith(f"# HELP {family} "):
            name, labels, value = re.fullmatch(r'(\w+)\{((?:\w+="[^"\\\n]*",?)+)\} (-?[0-9.e+-]+)', line).groups()
            assert name == family + ("_total" if kind == "counter" else "")
            assert f'application_id="{app}"' in labels
            values.setdefault(name, []).append(float(value))
    assert values["tony_job_tasks_running"] == [2] and values["tony_task_value"] == [0.25, 0.25]
    assert len(values["tony_task_memory_bytes"]) == len(values["tony_task_cpu_seconds_total"]) == 2
    assert values["tony_task_gpu_utilization_ratio"] == [0.5, 0.51] * 2


def test_metrics_while_it_runs_and_from_the_history(tony, cluster, base):
    command = (f"/usr/bin/python3 {ROOT}/clients/python/tony_task.py metrics loss=0.25; "
               f"while [ ! -e {base}/go ]; do sleep 0.1; done")
    nvml, = (BUILD / "tests" / "fixtures").glob("*fake_nvml*.so")  # a stand-in for NVIDIA's library with two devices
    app = tony.submit(tony.workers(command, n=2, role={"gpus": 1}, conf={"tony.task.metrics-interval-ms": "500",
                                                                         "tony.containers.envs": f"TONY_NVML={nvml}"}))

    def series(name):
        r = tony.run("metrics", app, "--name", name, "--json")
        return {s["task"]: s["points"] for s in json.loads(r.stdout)["series"]} if r.returncode == 0 else {}

    both = {"worker:0", "worker:1"}
    wait_until(lambda: set(series("loss")) == set(series("memory_bytes")) == set(series("gpu1_percent")) == both, "the master has both tasks")
    assert [p[1] for p in series("loss")["worker:1"]] == [0.25]
    check_openmetrics(tony.json("status", app)["tracking_url"], app)
    lines = tony.ok("top", app).splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["worker:0", "running"], ["worker:1", "running"]]
    pathlib.Path(base, "go").touch()
    tony.ok("wait", app)
    cluster.await_app(app, "FINISHED")
    points = series("loss")["worker:0"]
    assert points[0][1] == 0.25 and points[-1][1] is None
    doc = tony.json("status", app)
    for task in doc["tasks"]:
        assert task["metrics"]["loss"] == 0.25 and task["metrics"]["MAX_MEMORY_BYTES"] > 1 << 20
        assert task["metrics"]["gpu0_percent"] == 50 and task["metrics"]["MAX_GPU_UTILIZATION"] == 51


@pytest.mark.slow
@pytest.mark.takes(20)
def test_a_real_prometheus_scrapes_the_master(tony, cluster, base):
    """It stores what the page says, with labels of bounded sets: the job, its tasks, the first 64 names of programs."""
    many = " ".join(f"own{i}={i}" for i in range(80))
    command = (f"/usr/bin/python3 {ROOT}/clients/python/tony_task.py metrics {many}; "
               f"while [ ! -e {base}/go ]; do sleep 0.1; done")
    app = tony.submit(tony.workers(command, n=2, conf={"tony.task.metrics-interval-ms": "500"}))
    wait_until(lambda: all("own79" in (t.get("metrics") or {}) for t in tony.json("status", app).get("tasks") or [{}]), "both tasks are measured")
    with prometheus(base, tony.json("status", app)["tracking_url"] + "metrics") as query:
        both = {"worker:0", "worker:1"}
        found = query.until("tony_task_memory_bytes", lambda found: {m.get("task") for m, _ in found} == both)
        assert all(v > 1 << 20 and m["application_id"] == app for m, v in found)
        # The processes of `sleep 0.1` end one after the other, so the counter grows while Prometheus scrapes it.
        query.until("rate(tony_task_cpu_seconds_total[1m])", lambda found: len(found) == 2 and all(v > 0 for _, v in found))
        own = query("tony_task_value")
        assert len(own) == 2 * 64 and all(v == int(m["name"][3:]) for m, v in own)
        assert [v for _, v in query("tony_job_tasks_running")] == [2] and [v for _, v in query("up")] == [1]
        everything = query('{__name__=~"tony_.*"}')
        assert {x for m, _ in everything for x in m} <= {"__name__", "application_id", "task", "gpu", "name", "job", "instance"}
    pathlib.Path(base, "go").touch()
    tony.ok("wait", app)
    cluster.await_app(app, "FINISHED")
