# SPDX-License-Identifier: Apache-2.0
"""TensorBoard on the chief or beside the job, and its URL once it answers."""

import os
import pathlib
import shlex
import urllib.request

from conftest import wait_until
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)

PYTHON = "/usr/bin/python3"
# stands in for the module: serves the directory that its arguments name
MODULE = """
import argparse, functools, http.server
p = argparse.ArgumentParser()
p.add_argument("--logdir"); p.add_argument("--port", type=int); p.add_argument("--bind_all", action="store_true")
a = p.parse_args()
http.server.ThreadingHTTPServer(("", a.port), functools.partial(http.server.SimpleHTTPRequestHandler, directory=a.logdir)).serve_forever()
"""
# waits for the test, then serves on TB_PORT until it is killed
CHIEF = """
import http.server, os
open(os.environ["GATE"]).read()
http.server.HTTPServer(("", int(os.environ["TB_PORT"])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def fetched(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def url_of(lab, app):
    return wait_until(lambda: lab.status(app)["tensorboard"], "the address is known")


def test_on_the_chief(lab):
    gate = lab.base / "gate"
    os.mkfifo(gate)
    path = lab.job_file({"chief": {"instances": 1, "command": f"{PYTHON} -c {shlex.quote(CHIEF)}", "env": {"GATE": str(gate)}},
                         "worker": {"instances": 1, "command": "sleep 1000"}}, framework="tensorflow")
    p = lab.start("run", path)
    app = wait_until(lambda: next((d.name for d in (lab.home / "jobs").glob("application_*")), None), "the job is there")
    lab.await_state(app, "RUNNING")
    assert lab.status(app)["tensorboard"] is None, "nothing answers there yet"
    gate.write_text("go\n")
    url = url_of(lab, app)
    tasks = lab.tasks(app)
    assert (tasks["chief:0"]["tensorboard"], tasks["worker:0"]["tensorboard"]) == (url, None)
    assert "Directory listing" in fetched(url)
    assert url in lab.ok("status", app) and pathlib.Path(tasks["worker:0"]["log_dir"], "stderr").exists()
    lab.ok("kill", app)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 3 and f" tensorboard {url}\n" in err and f"/jobs/{app}/logs" in err, err
    lab.settled()


def test_the_url_that_the_task_reports_counts(lab):
    say = """
import os, socket, time
s = socket.socket(socket.AF_UNIX); s.connect("\\0" + os.environ["TONY_TASK_SOCKET"][1:])
s.send(b'{"tensorboard": "http://board.example:1/x"}\\n'); time.sleep(1000)"""
    app = lab.submit(lab.workers(f"{PYTHON} -c {shlex.quote(say)}"))
    assert url_of(lab, app) == "http://board.example:1/x"
    lab.ok("kill", app)


def test_tensorboard_runs_beside_the_job(lab):
    src = lab.base / "src"
    (src / "tensorboard").mkdir(parents=True)
    (src / "tensorboard/__init__.py").touch()
    (src / "tensorboard/main.py").write_text(MODULE)
    events = lab.base / "events"
    events.mkdir()
    (events / "events.out.tfevents.1").touch()
    done = lab.base / "done"
    path = lab.job_file({"worker": {"instances": 2, "command": "bash -c 'env; until [ -e $DONE ]; do sleep 0.1; done'", "env": {"DONE": str(done)}}},
                        conf={"tony.tensorboard.memory": "128m"}, src=str(src), framework="tensorflow")
    app = lab.submit(path, "--python_binary_path", PYTHON, "--sidecar_tensorboard_log_dir", events)
    url = url_of(lab, app)
    assert "events.out.tfevents.1" in fetched(url)
    assert lab.tasks(app)["tensorboard:0"]["tensorboard"] == url
    done.touch()
    lab.in_history(app)
    doc = lab.status(app)
    assert doc["state"] == "SUCCEEDED" and doc["tasks"][-1]["task"] == "tensorboard:0" and doc["tasks"][-1]["result"] == "FINISHED"
    assert "TB_PORT=" not in lab.log(app, "worker:0") and f"TB_LOG_DIR={events}\n" in lab.log(app, "worker:0")
    lab.settled()
