# SPDX-License-Identifier: Apache-2.0
"""`tony open`: the page that a task has announced, and TensorBoard of a finished job."""

import re
import signal
import subprocess
import urllib.request

import pytest
from conftest import wait_until

# Serves its path as the page, and announces itself.
TASK = r"""
import http.server, os, socket
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"page " + self.path.encode())
    def log_message(self, *a): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Page)
s = socket.socket(socket.AF_UNIX)
s.connect("\0" + os.environ["TONY_TASK_SOCKET"][1:])
s.sendall(b'{"tensorboard": "http://node.example:%d/lab?token=secret"}\n' % server.server_port)
server.serve_forever()
"""


@pytest.fixture
def page(tony, tmp_path):
    (tmp_path / "page.py").write_text(TASK)
    app = tony.submit(tony.workers("python3 page.py", n=2, src=str(tmp_path)))
    wait_until(lambda: tony.status(app).get("tensorboard"), "the page is announced")
    yield app
    tony.run("kill", app)


def test_open_forwards_the_page_of_a_task(tony, page):
    wait_until(lambda: tony.tasks(page)["worker:1"]["tensorboard"], "the second page")
    for args in ((), ("worker:1",), ("tensorboard",)):
        p = subprocess.Popen([str(tony.bin / "tony"), "open", page, *args], env=tony.env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        url = p.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/lab\?token=secret", url), url
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert answer.read() == b"page /lab?token=secret"
        p.send_signal(signal.SIGINT)
        assert p.wait(30) == 0
        assert p.communicate()[1] == ""


def test_without_a_page_the_user_is_told(tony):
    app = tony.submit(tony.workers("sleep 600"))
    tony.await_state(app, "RUNNING")
    r = tony.run("open", app)
    assert r.returncode == 2 and "no running task has announced a page" in r.stderr
    for name in ("worker", "worker:0", "tensorboard"):
        assert f"no running task of {name} has announced a page" in tony.run("open", app, name).stderr
    for name in ("worker:5", "wor", "worker:", "x"):
        r = tony.run("open", app, name)
        assert r.returncode == 2 and f"job '{app}' has no task and no role '{name}'" in r.stderr and f"tony tasks {app}" in r.stderr
    tony.run("kill", app)


def test_a_browser_is_started_where_there_is_one(tony, page, tmp_path):
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    (bin_dir / "xdg-open").write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/seen\n')
    (bin_dir / "xdg-open").chmod(0o755)
    env = {**tony.env, "PATH": f"{bin_dir}:{tony.env['PATH']}", "DISPLAY": ":7"}
    p = subprocess.Popen([str(tony.bin / "tony"), "open", page], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    url = p.stdout.readline()
    wait_until(lambda: (tmp_path / "seen").exists() and (tmp_path / "seen").read_text() == url, "the browser got the URL")
    p.send_signal(signal.SIGTERM)
    assert p.wait(30) == 0
    p.communicate()


def test_tensorboard_of_a_finished_job(tony, tmp_path):
    events, bin_dir = tmp_path / "events dir", tmp_path / "bin"
    bin_dir.mkdir()
    app = tony.submit(tony.workers("true"), "--conf", f"tony.application.tensorboard-log-dir={events}",
                      "--conf", "tony.tensorboard.memory=64m", "--conf", "tony.tensorboard.command=true")
    tony.run("wait", app)
    tony.in_history(app)
    r = tony.run("open", app)
    assert r.returncode == 2 and "pip install tensorboard" in r.stderr and str(events) in r.stderr
    r = tony.run("open", app, "--logdir", tmp_path / "none")
    assert r.returncode == 2 and f"there is no directory '{tmp_path}/none'" in r.stderr
    (bin_dir / "tensorboard").write_text('#!/bin/sh\necho "$@"\n')
    (bin_dir / "tensorboard").chmod(0o755)
    env = {"PATH": f"{bin_dir}:{tony.env['PATH']}"}
    assert tony.ok("open", app, env=env) == f"--logdir {events} --host 127.0.0.1 --port 0\n"
    assert tony.ok("open", app, "--logdir", bin_dir, env=env) == f"--logdir {bin_dir} --host 127.0.0.1 --port 0\n"
    plain = tony.submit(tony.workers("true"))
    tony.run("wait", plain)
    tony.in_history(plain)
    r = tony.run("open", plain)
    assert r.returncode == 2 and "--logdir" in r.stderr
