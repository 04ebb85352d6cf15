# SPDX-License-Identifier: Apache-2.0
"""A real JupyterLab for the tests of `tony notebook`, and a stand-in."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
URL = re.compile(r"http://127\.0\.0\.1:\d+/(lab)?\?token=[0-9a-f]{48}")

# A program in place of Jupyter: an HTTP server that answers with its arguments, its token and its directory, and ends
# at a request for /stop.
STAND_IN = """#!/usr/bin/python3
import http.server, json, os, sys, threading
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(json.dumps([sys.argv[1:], os.environ["JUPYTER_TOKEN"], os.listdir(".")]).encode())
        if self.path == "/stop": threading.Thread(target=server.shutdown).start()
    def log_message(self, *a): pass
port = next((int(a.split("=")[1]) for a in sys.argv if a.startswith("--port=")), None) or int(os.environ["TB_PORT"])
server = http.server.HTTPServer(("127.0.0.1", port), Page)
server.serve_forever()
"""


def jupyter():
    """The bin directory of a real JupyterLab. A missing one is a failure: a skipped test would look like a passed one."""
    where = subprocess.run([HERE.parent / "tools/install-frameworks", "--where"], capture_output=True, text=True, check=True).stdout.strip()
    found = pathlib.Path(where, "jupyter/bin")
    if not (found / "jupyter-lab").exists():
        pytest.fail(f"there is no {found}: tools/install-frameworks jupyter makes it", pytrace=False)
    return found


def need_browser():
    if not shutil.which("chromium"):
        pytest.skip("optional: no chromium: tools/install-deps browser")


def start(tony, *args, cwd=None):
    """Starts `tony notebook`. Returns its process and the URL that it has printed."""
    p = tony.start("notebook", *args, cwd=cwd)
    url = p.stdout.readline().strip()
    assert URL.fullmatch(url), url + p.stderr.read()
    return p, url


def use(how, url, code):
    """Runs this code in a cell, in a kernel or in a browser (notebook_user.py). Returns what the cell shows."""
    r = subprocess.run([jupyter() / "python3", HERE / "notebook_user.py", how, url, code], capture_output=True, text=True, timeout=600)
    assert r.returncode == 0, r.stderr
    return r.stdout


def environment():
    """Options with which a node of this machine finds the real JupyterLab, as if it was installed there."""
    return "--env", f"PATH={jupyter()}:{os.environ.get('PATH', '/usr/bin:/bin')}"
