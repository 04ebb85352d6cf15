"""Horovod's rendezvous by stand-ins that speak as its ranks do: our server, fresh for each generation, or one of the user's."""

import json
import os
import re
import signal

import pytest
from conftest import wait_until
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)

PYTHON = "/usr/bin/python3"

# A rank: it puts what the others need, waits for theirs, and says what it found.
RANK = r'''
import os, sys, time, urllib.error, urllib.request
e = os.environ
url = "http://%s:%s" % (e["HOROVOD_GLOO_RENDEZVOUS_ADDR"], e["HOROVOD_GLOO_RENDEZVOUS_PORT"])
rank, size = int(e["HOROVOD_RANK"]), int(e["HOROVOD_SIZE"])
def ask(method, key, body=None):
    try:
        return urllib.request.urlopen(urllib.request.Request(url + key, data=body, method=method), timeout=30).read()
    except urllib.error.HTTPError as error:
        assert error.code == 404, error
        return None
stale = ask("GET", "/global/left-over")
ask("PUT", "/global/%d" % rank, b"\0rank %d" % rank)
while "GATE" in e and not os.path.exists(e["GATE"]):
    time.sleep(0.02)
for other in range(size):
    while (said := ask("GET", "/global/%d" % other)) is None:
        time.sleep(0.01)
    assert said == b"\0rank %d" % other, said
ask("PUT", "/global/left-over", b"x")
print("rank", rank, "of", size, "local", e["HOROVOD_LOCAL_RANK"], e["HOROVOD_LOCAL_SIZE"], "cross", e["HOROVOD_CROSS_RANK"],
      e["HOROVOD_CROSS_SIZE"], "stale", stale, flush=True)
ask("PUT", "/global/done-%d" % rank, b"1")
while any(ask("GET", "/global/done-%d" % other) is None for other in range(size)):
    time.sleep(0.01)
if rank == 1 and e["TONY_GENERATION"] == "1" and "AGAIN" in e:
    sys.exit(3)
if "AGAIN" in e and e["TONY_GENERATION"] == "1":
    time.sleep(1000)  # it would fail by its peer's end
'''

# A driver as the original lets the user bring one: a server of its own, and the plan in a file beside it.
DRIVER = r'''
import http.server, json, os, threading
store = {}
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, code, body=b""):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer(200, store[self.path]) if self.path in store else self.answer(404)
    def do_PUT(self):
        store[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200)
    def log_message(self, *a):
        pass
server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Handler)
print("workers", os.environ["CLUSTER_WORKER_LIST"], flush=True)
(host, n), = [x.split(":") for x in os.environ["CLUSTER_WORKER_LIST"].split(",")]
n = int(n)
# not the order that we would have given: the plan is the driver's
plan = [{"hostname": host, "rank": n - 1 - i, "localRank": i, "crossRank": 0, "size": n, "localSize": n, "crossSize": 1}
        for i in range(n)]
path = os.path.join(os.environ["DRIVER_OUTPUT_PATH"], "%d____HOROVOD_RENDEZVOUS_SERVER____" % server.server_port)
with open(path, "w") as f:
    json.dump(plan, f)
server.serve_forever()
'''


@pytest.fixture
def job(tmp_path):
    (tmp_path / "rank.py").write_text(RANK)
    (tmp_path / "driver.py").write_text(DRIVER)

    def write(env=None, roles=None, **conf):
        path = tmp_path / "job.yaml"
        path.write_text(json.dumps({
            "name": "hvd", "framework": "horovod", "command": f"{PYTHON} {tmp_path}/rank.py", "env": env or {}, "conf": conf,
            "roles": {"worker": {"instances": 3, "memory": "128m", **(roles or {})}}}))
        return path

    return write


def said(tony, app, attempt=1):
    out = {}
    for i in range(3):
        found = re.findall(r"rank (\d) of 3 local (\d) 3 cross 0 1 stale (\S+)", tony.log(app, f"worker:{i}", attempt=attempt))
        assert len(found) == 1, tony.log(app, f"worker:{i}", "stderr", attempt=attempt)
        out[i] = found[0]
    return out


def test_ranks_meet(tony, job):
    r = tony.run("run", job())
    assert r.returncode == 0, r.stdout + r.stderr
    assert said(tony, r.stdout.split()[1]) == {i: (str(i), str(i), "None") for i in range(3)}


def test_the_master_is_killed_while_they_meet(lab, job, tmp_path):  # noqa: F811
    """Their server is where rank 0 is, with all that they have said so far."""
    app = lab.submit(job({"GATE": str(tmp_path / "gate")}))
    wait_until(lambda: lab.state(app) == "RUNNING" and lab.n_running(app) == 3, "the ranks run")
    os.kill(lab.one("master", app), signal.SIGKILL)
    (tmp_path / "gate").write_text("")
    lab.run("wait", app)
    doc = lab.status(app)
    assert (doc["state"], doc["generation"]) == ("SUCCEEDED", 1) and doc["epoch"] > 1, doc
    assert said(lab, app) == {i: (str(i), str(i), "None") for i in range(3)}


def test_a_new_generation_finds_nothing_of_the_old(tony, job):
    r = tony.run("run", job({"AGAIN": "1"}, {"restart": "on-failure"}))
    assert r.returncode == 0, r.stdout + r.stderr
    app = r.stdout.split()[1]
    assert tony.json("status", app)["generation"] == 2
    assert said(tony, app, attempt=2) == {i: (str(i), str(i), "None") for i in range(3)}


def test_a_driver_of_the_user_s_own(tony, job, tmp_path):
    """The ranks wait for its plan, and take it; it ends with the job."""
    path = job(**{"tony.horovod.driver.mode.debug": True, "tony.driver.command": f"{PYTHON} {tmp_path}/driver.py",
                  "tony.driver.memory": "128m"})
    r = tony.run("run", path)
    assert r.returncode == 0, r.stdout + r.stderr
    app = r.stdout.split()[1]
    assert said(tony, app) == {i: (str(2 - i), str(i), "None") for i in range(3)}
    assert tony.log(app, "driver:0") == "workers 127.0.0.1:3\n"
    assert {t["task"]: t["result"] for t in tony.json("tasks", app)["tasks"]}["driver:0"] == "FINISHED"


def test_a_driver_that_fails(tony, job):
    r = tony.run("run", job(**{"tony.horovod.driver.mode.debug": True, "tony.driver.command": "exit 4"}))
    assert r.returncode == 1 and "driver:0" in r.stdout and "exit code 4" in r.stdout, r.stdout + r.stderr


def test_a_plan_that_is_none(tony, job):
    bad = """sh -c 'echo "[{}]" > 5____HOROVOD_RENDEZVOUS_SERVER____; sleep 1000'"""
    r = tony.run("run", job(**{"tony.horovod.driver.mode.debug": True, "tony.driver.command": bad}))
    assert r.returncode == 1 and "the driver's plan is no list of slots" in r.stdout, r.stdout + r.stderr


def test_without_a_server(tony, job):
    r = tony.run("run", job(**{"tony.horovod.mode.test.fast.fail": True}))
    assert r.returncode == 1 and "there is no rendezvous server" in r.stdout, r.stdout + r.stderr


@pytest.mark.parametrize("conf, why", [
    ({"tony.driver.memory": "1g"}, "tony.horovod.driver.mode.debug"),
    ({"tony.horovod.driver.mode.debug": True}, "tony.driver.command"),
    ({"tony.application.distributed-mode": "FCFS"}, "GANG"),
], ids=["a driver", "no driver", "FCFS"])
def test_what_is_refused(tony, job, conf, why):
    r = tony.run("run", job(**conf))
    assert r.returncode == 2 and why in r.stderr, r.stderr
