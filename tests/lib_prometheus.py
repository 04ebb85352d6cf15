# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus that scrapes one page."""

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def prometheus(directory, url):
    """Prometheus scrapes `url` each second. Gives a function: the samples of an expression, as (labels, value); [] if there are none."""
    assert shutil.which("prometheus"), "tools/install-deps check installs prometheus"
    at, port = urllib.parse.urlsplit(url), free_port()
    config = directory / "prometheus.yml"
    config.write_text(json.dumps({"scrape_configs": [{"job_name": "tony", "scrape_interval": "1s", "scrape_timeout": "1s", "metrics_path": at.path,
                                                      "static_configs": [{"targets": [at.netloc]}]}]}))
    log = open(directory / "prometheus.log", "wb")
    p = subprocess.Popen(["prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory}/data",
                          f"--web.listen-address=127.0.0.1:{port}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def query(what):
        assert p.poll() is None, (directory / "prometheus.log").read_text()
        try:
            asked = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": what})
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return [(x["metric"], float(x["value"][1])) for x in json.loads(answer.read())["data"]["result"]]
        except OSError:
            return []  # it is starting

    def until(what, condition, limit=120):
        deadline = time.monotonic() + limit
        while not condition(found := query(what)):
            assert time.monotonic() < deadline, f"{what}: {found}; up: {query('up')}\n{(directory / 'prometheus.log').read_text()}"
            time.sleep(0.1)
        return found
    query.until = until
    try:
        yield query
    finally:
        p.terminate()
        try:
            p.wait(60)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
        log.close()
