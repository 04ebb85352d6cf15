# SPDX-License-Identifier: Apache-2.0
"""The page of the pool: OpenMetrics text, as promtool and a real Prometheus read it."""

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest
from conftest import wait_until
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)

GIB = 1 << 30


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


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
    assert shutil.which("promtool") and shutil.which("prometheus"), "tools/install-deps check installs prometheus"
    app = page.submit(page.workers("sleep 600", role={"memory": "512m"}))
    wait_until(lambda: page.state(app) == "RUNNING", "the job runs")
    done = subprocess.run(["promtool", "check", "metrics"], input=get(page.url + "/metrics", "*/*")[1], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    config, port = tmp_path / "prometheus.yml", free_port()
    config.write_text(json.dumps({"scrape_configs": [{"job_name": "tony", "scrape_interval": "1s", "scrape_timeout": "1s",
                                                      "static_configs": [{"targets": [f"127.0.0.1:{page.port}"]}]}]}))
    p = subprocess.Popen(["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data",
                          f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def query(what):
        try:
            url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": what})
            return [float(x["value"][1]) for x in json.loads(get(url)[1])["data"]["result"]]
        except OSError:
            return []
    try:
        wait_until(lambda: query(f'tony_job_memory_limit_bytes{{application_id="{app}"}}') == [GIB / 2], "Prometheus has scraped the page")
        assert query('tony_pool_jobs{state="RUNNING"}') == [1] and query("up") == [1]
    finally:
        p.terminate()
        p.wait(30)
