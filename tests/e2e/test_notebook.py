# SPDX-License-Identifier: Apache-2.0
"""`tony notebook`: with a stand-in for Jupyter, and slowly with the real one."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from conftest import wait_until

# In place of venv/bin/python -m jupyterlab: serves its arguments and its token, until /stop is asked for.
JUPYTER = """#!/usr/bin/python3
import http.server, json, os, sys, threading
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(json.dumps([sys.argv[1:], os.environ["JUPYTER_TOKEN"], os.listdir(".")]).encode())
        if self.path == "/stop": threading.Thread(target=server.shutdown).start()
    def log_message(self, *a): pass
port = next(int(a.split("=")[1]) for a in sys.argv if a.startswith("--port="))
server = http.server.HTTPServer(("127.0.0.1", port), Page)
server.serve_forever()
"""


def start(tony, *args):
    p = subprocess.Popen([str(tony.bin / "tony"), "notebook", *map(str, args)], env=tony.env, cwd=tony.base, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    url = p.stdout.readline().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/lab\?token=[0-9a-f]{48}", url), url + p.stderr.read()
    return p, url


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read()


@pytest.fixture
def venv(tmp_path):
    (tmp_path / "v" / "bin").mkdir(parents=True)
    (tmp_path / "v" / "bin" / "python").write_text(JUPYTER)
    (tmp_path / "v" / "bin" / "python").chmod(0o755)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "work.ipynb").touch()
    return tmp_path


@pytest.mark.parametrize("how", ["int", "stop"])
def test_a_notebook(tony, venv, how):
    p, url = start(tony, "--memory", "64m", "--src_dir", venv / "src", "--python_venv", venv / "v", "--idle", "30m")
    args, token, files = json.loads(get(url))
    assert url.endswith(token) and "work.ipynb" in files
    assert args[:2] == ["-m", "jupyterlab"] and "--ip=127.0.0.1" in args
    assert "--ServerApp.shutdown_no_activity_timeout=1800" in args and "--MappingKernelManager.cull_idle_timeout=1800" in args
    if how == "int":
        p.send_signal(signal.SIGINT)
    else:
        with contextlib.suppress(OSError):  # the stream ends with the task, perhaps before the answer has passed
            get(url.split("/lab")[0] + "/stop")
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0 and "worker" not in err, err
    app = re.search(r"application_\d+_\d+", err).group()
    assert tony.state(app) == ("KILLED" if how == "int" else "SUCCEEDED")


def test_without_jupyter_the_user_is_told(tony):
    r = tony.run("notebook", "--memory", "64m")
    assert r.returncode == 1 and "pip install jupyterlab" in r.stderr
    r = tony.run("notebook", "--idle", "soon")
    assert r.returncode == 2 and "--idle" in r.stderr


@pytest.mark.slow
@pytest.mark.takes(120)
def test_a_real_jupyter(tony, tmp_path):
    """A kernel computes, and the notebook ends by itself when it is idle."""
    venv = tmp_path / "jupyter"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([venv / "bin" / "pip", "install", "-q", "jupyterlab"], check=True, timeout=240)
    p, url = start(tony, "--memory", "1g", "--python_venv", venv, "--idle", "10s")
    base, token = url.split("/lab?token=")
    assert b"JupyterLab" in get(url)
    made = json.loads(urllib.request.urlopen(urllib.request.Request(
        f"{base}/api/kernels", data=b"{}", headers={"Authorization": f"token {token}", "Content-Type": "application/json"}), timeout=60).read())
    wait_until(lambda: json.loads(get(f"{base}/api/kernels?token={token}"))[0]["id"] == made["id"], "the kernel runs")
    with pytest.raises(urllib.error.HTTPError):
        get(f"{base}/api/kernels?token=wrong")
    out, err = p.communicate(timeout=200)
    assert p.returncode == 0, err
    app = re.search(r"application_\d+_\d+", err).group()
    assert tony.state(app) == "SUCCEEDED"
