# SPDX-License-Identifier: Apache-2.0
"""The page of the pool: OpenMetrics text, as promtool and a real Prometheus read it."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from conftest import ROOT, wait_until
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)
from test_gpu import fake_nvml
from test_metrics import FAST
from test_progress import Talk

sys.path.insert(0, str(ROOT / "tests"))
from lib_prometheus import free_port, prometheus  # noqa: E402

GIB = 1 << 30


@pytest.fixture
def page(make_lab):
    """A pool with a page. page.lab is its lab, page.url its address."""
    port = free_port()
    found = make_lab(site={"pool.page-port": port, "pool.memory": "2g", "pool.vcores": 3, "pool.gpus": 0})
    found.url = f"http://127.0.0.1:{port}"
    found.port = port
    return found


def get(url, accept="application/openmetrics-text; version=1.0.0"):
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=30) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples(text):
    return {name: float(value) for name, value in (x.rsplit(" ", 1) for x in text.splitlines() if not x.startswith("#"))}


def test_the_page_counts_jobs_and_what_they_hold(page):
    runs = page.submit(page.workers("sleep 600", 2, role={"memory": "512m"}))
    waits = page.submit(page.workers("true", 3, role={"memory": "512m"}))
    wait_until(lambda: page.state(runs) == "RUNNING", "the first job runs")
    kind, text = get(page.url + "/metrics")
    got = samples(text)
    assert kind.startswith("application/openmetrics-text; version=1.0.0") and text.endswith("# EOF\n")
    assert got["tony_pool_memory_capacity_bytes"] == 2 * GIB and got["tony_pool_memory_held_bytes"] == GIB
    assert got["tony_pool_vcores_capacity"] == 3 and got["tony_pool_gpus_held"] == 0
    assert got['tony_pool_jobs{state="WAITING"}'] == 1 and got['tony_pool_jobs{state="RUNNING"}'] == 1
    assert got[f'tony_job_admitted{{application_id="{runs}"}}'] == 1
    assert got[f'tony_job_admitted{{application_id="{waits}"}}'] == 0
    assert got[f'tony_job_memory_limit_bytes{{application_id="{waits}"}}'] == 1.5 * GIB
    with pytest.raises(urllib.error.HTTPError):
        get(page.url + "/other")


def of_task(app, task="worker:0", **more):
    return "{" + ",".join(f'{k}="{v}"' for k, v in {"application_id": app, "task": task, **more}.items()) + "}"


def families(text):
    """The names of the families in the order of the text, to check that each comes once."""
    return [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]


def test_the_page_has_the_tasks_of_all_jobs(make_lab, tmp_path):
    """The page has the memory, CPU and GPUs of the tasks and the numbers of their programs, as `tony top` shows
    them. Finished tasks are no longer there."""
    port = free_port()
    lab = make_lab(site={"pool.page-port": port, "pool.memory": "2g"},
                   TONY_NVML=fake_nvml(), FAKE_GPUS="1", TONY_GPU_LOCKS=str(tmp_path))
    url = f"http://127.0.0.1:{port}/metrics"
    tells = """
        for i in range(1, 6):
            say(json.dumps({"step": i, "metrics": {"loss": 1 / i}}))
        while not os.path.exists(os.environ["GATE"] + ".go"):
            time.sleep(0.05)
        """
    one = Talk(lab, tmp_path, tells, n=2, conf=FAST)
    (tmp_path / "two").mkdir()
    two = Talk(lab, tmp_path / "two", "wait()", n=1, role={"gpus": 1}, conf=FAST)

    def all_there():
        text = get(url)[1]
        got = samples(text)
        wanted = [f"tony_task_value{of_task(one.app, f'worker:{i}', name='loss')}" for i in (0, 1)]
        wanted += [f"tony_task_gpu_utilization_ratio{of_task(two.app, gpu='0')}"]
        wanted += [f"tony_task_memory_bytes{of_task(app)}" for app in (one.app, two.app)]
        return (text, got) if all(name in got for name in wanted) and got[wanted[0]] == got[wanted[1]] == 0.2 else None
    text, got = wait_until(all_there, "the page has the tasks")
    assert len(families(text)) == len(set(families(text))), "the samples of a family stand together"
    assert got[f'tony_job_tasks_running{{application_id="{one.app}"}}'] == 2
    assert got[f"tony_task_step{of_task(one.app)}"] == 5 and f"tony_task_cpu_seconds_total{of_task(one.app)}" in got
    assert got[f"tony_task_gpu_utilization_ratio{of_task(two.app, gpu='0')}"] == 0.5
    assert 1 << 20 < got[f"tony_task_memory_bytes{of_task(two.app)}"] < 1 << 30
    kind, old = get(url, "*/*")
    assert kind.startswith("text/plain") and "# TYPE tony_task_cpu_seconds_total counter" in old and "# EOF" not in old
    two.open()
    two.over()
    wait_until(lambda: two.app not in get(url)[1], "the job has left the page")
    (tmp_path / "gate.go").touch()
    one.over()
    lab.settled()


def test_a_master_that_stands_still_does_not_stop_the_page(page):
    """The page comes without the tasks of a master that is stopped. Neither a client that gives up nor one that
    waits at the same time changes that."""
    stands, goes = (page.submit(page.workers("sleep 600", role={"memory": "64m"}, conf=FAST)) for _ in range(2))
    memory = "tony_task_memory_bytes"
    wait_until(lambda: all(memory + of_task(app) in samples(get(page.url + "/metrics")[1]) for app in (stands, goes)), "both are measured")
    master = page.one("master", stands)
    os.kill(master, signal.SIGSTOP)
    try:
        with socket.create_connection(("127.0.0.1", page.port)) as s:
            s.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            time.sleep(0.1)  # it gives up while the page is made
        began = time.monotonic()
        got = samples(get(page.url + "/metrics")[1])
        assert memory + of_task(goes) in got and memory + of_task(stands) not in got
        assert got[f'tony_job_admitted{{application_id="{stands}"}}'] == 1 and time.monotonic() - began < 60
    finally:
        os.kill(master, signal.SIGCONT)
    wait_until(lambda: memory + of_task(stands) in samples(get(page.url + "/metrics")[1]), "it is there again")


def test_without_the_key_there_is_no_page(lab):
    lab.ok("pool", "start")
    assert "pool.page" not in (lab.home / "pool" / "pool.log").read_text()


def test_a_port_that_is_taken_does_not_stop_the_pool(page, tmp_path):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", page.port))
        s.listen()
        assert page.run("run", page.workers("true")).returncode == 0
        assert "pool.page" in (page.home / "pool" / "pool.log").read_text()


@pytest.mark.slow
def test_promtool_and_prometheus_read_it(page, tmp_path):
    assert shutil.which("promtool"), "tools/install-deps check installs prometheus"
    app = page.submit(page.workers("sleep 600", role={"memory": "512m"}, conf=FAST))
    wait_until(lambda: f"tony_task_cpu_seconds_total{of_task(app)}" in get(page.url + "/metrics")[1], "the job runs, and its task is measured")
    done = subprocess.run(["promtool", "check", "metrics"], input=get(page.url + "/metrics", "*/*")[1], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    with prometheus(tmp_path, page.url + "/metrics") as query:
        query.until(f'tony_job_memory_limit_bytes{{application_id="{app}"}}', lambda found: [v for _, v in found] == [GIB / 2])
        (labels, memory), = query.until("tony_task_memory_bytes", lambda found: found)
        assert labels["task"] == "worker:0" and labels["application_id"] == app and 1 << 16 < memory < 512 << 20
        assert [labels["task"] for labels, _ in query("tony_task_cpu_seconds_total")] == ["worker:0"]
        assert [v for _, v in query('tony_pool_jobs{state="RUNNING"}')] == [1] and [v for _, v in query("up")] == [1]
