# SPDX-License-Identifier: Apache-2.0
"""The page of the pool: OpenMetrics text, as promtool and a real Prometheus read it."""

import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from conftest import ROOT, wait_until
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)

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
    app = page.submit(page.workers("sleep 600", role={"memory": "512m"}))
    wait_until(lambda: page.state(app) == "RUNNING", "the job runs")
    done = subprocess.run(["promtool", "check", "metrics"], input=get(page.url + "/metrics", "*/*")[1], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    with prometheus(tmp_path, page.url + "/metrics") as query:
        query.until(f'tony_job_memory_limit_bytes{{application_id="{app}"}}', lambda found: [v for _, v in found] == [GIB / 2])
        assert [v for _, v in query('tony_pool_jobs{state="RUNNING"}')] == [1] and [v for _, v in query("up")] == [1]
