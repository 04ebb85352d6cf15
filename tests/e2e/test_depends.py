# SPDX-License-Identifier: Apache-2.0
"""
Roles that wait until others have started, are ready, or have succeeded; and roles that are stopped when
others end.
"""

import os
import shlex
import socket

import pytest
from conftest import ROOT, wait_until
from lib_jobs import kill9, lab, make_lab  # noqa: F401 (fixtures)
from test_restart import QUICK, Runs

PYTHON = "/usr/bin/python3"
# a server that obeys one command per line
SERVER = f"""
import os, socket, sys, time
sys.path.insert(0, {str(ROOT / 'clients/python')!r})
import tony_task
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
def bind(port, host=""):
    listening.bind((host, port)); listening.listen()
print("begun", flush=True)
while True:
    for line in open(os.environ["GATE"]):
        exec(line)
"""
OWN_PORT = "bind(int(os.environ['TONY_ADDRESS'].rsplit(':', 1)[1]))"


class Gated:
    """One server, and a worker that waits for it."""

    def __init__(self, lab, server, worker=None, conf=None, command="true"):
        self.lab = lab
        self.gate = lab.base / f"gate{lab.n_files}"
        os.mkfifo(self.gate)
        roles = {"server": {"instances": 1, "command": f"{PYTHON} -c {shlex.quote(SERVER)}", "env": {"GATE": str(self.gate)}, **server},
                 "worker": {"instances": 2, "command": command, "depends-on": "server:ready", "stops": "server", **(worker or {})}}
        self.app = lab.submit(lab.job_file(roles, conf={**QUICK, **(conf or {})}))

    def role(self, name):
        return next((r for r in self.lab.status(self.app)["roles"] if r["name"] == name), None)

    def begun(self):
        wait_until(lambda: (r := self.role("server")) and r["running"] == 1, "the server runs")
        wait_until(lambda: self.role("worker")["registered"] == 2, "the workers have their containers")
        return self

    def tell(self, line):
        self.gate.write_text(line + "\n")

    def over(self, state="SUCCEEDED"):
        self.lab.in_history(self.app)
        doc = self.lab.status(self.app)
        assert doc["state"] == state, doc
        return doc


@pytest.fixture
def free_port():
    """
    The port stays bound, so that no other process gets it; a program that sets SO_REUSEPORT can listen there.
    """
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        s.bind(("127.0.0.1", 0))
        yield s.getsockname()[1]


@pytest.mark.parametrize("how", ["own port", "port", "file", "nested file", "word"])
def test_ready(lab, how, free_port):
    ready, say = {
        "own port": (None, OWN_PORT),
        "port": (f"port:{free_port}", f"bind({free_port}, '127.0.0.1')"),
        "file": ("file:up", "open('up', 'w').close()"),
        "nested file": ("file:a/b/up", "os.makedirs('a/b'); open('a/b/up', 'w').close()"),
        "word": ("word", "tony_task.connect().ready()"),
    }[how]
    job = Gated(lab, {"ready": ready} if ready else {}).begun()
    role = job.role("worker")
    assert role["waits_for"] == "'server' to be ready" and role["running"] + role["succeeded"] == 0, role
    assert "waits for 'server' to be ready" in lab.ok("status", job.app)
    assert lab.tasks(job.app)["server:0"]["ready"] is False
    job.tell(say)
    doc = job.over()
    tasks = {t["task"]: t for t in doc["tasks"]}
    assert tasks["server:0"]["ready"] is True
    assert (tasks["server:0"]["result"], tasks["worker:1"]["result"]) == ("FINISHED", "SUCCEEDED")
    assert doc["message"] == "2 of 3 tasks succeeded, the others were stopped by the end of a role"
    names = [(e["e"], e.get("slot")) for e in lab.journal(job.app)]
    assert names.index(("task_ready", 0)) < names.index(("attempt_started", 1))
    lab.settled()


def test_the_first_task_knows_the_addresses_of_waiting_tasks(lab):
    """Waiting tasks have their containers: the first task to begin knows their addresses."""
    spec = "import json, os; print(len(json.loads(os.environ['CLUSTER_SPEC'])['worker']))"
    path = lab.job_file({"server": {"instances": 1, "command": f"{PYTHON} -c {shlex.quote(spec)}"},
                         "worker": {"instances": 3, "command": "true", "depends-on": "server:started"}}, framework="tensorflow")
    app = lab.ok("submit", path).strip()
    lab.in_history(app)
    assert lab.log(app, "server:0") == "3\n"


def test_a_new_master_knows_which_tasks_are_ready(lab):
    job = Gated(lab, {"ready": "word"}).begun()
    kill9(lab.one("master", job.app))
    wait_until(lambda: lab.tasks(job.app)["server:0"]["connected"], "the executor has found the new master")
    assert job.role("worker")["registered"] == 2
    job.tell("tony_task.connect().ready()")
    job.over()
    lab.settled()


def test_after_a_gang_restart_the_workers_wait_again(lab):
    """After a restart of the gang the workers wait again: the `ready` file of the earlier attempt does not count."""
    job = Gated(lab, {"ready": "file:up"}, {"restart": "on-failure", "restart-scope": "job"},
                command="bash -c 'exit $((TONY_ATTEMPT == 1))'").begun()
    job.tell("open('up', 'w').close()")
    wait_until(lambda: lab.status(job.app)["generation"] == 2, "the gang begins again")
    wait_until(lambda: job.role("server")["running"] == 1 and job.role("worker")["registered"] == 2, "the workers wait again")
    wait_until(lambda: lab.log_so_far(job.app, "server:0", attempt=2) == "begun\n", "it is at its gate")
    job.tell("os.utime('up')")
    job.over()
    lab.settled()


def test_never_ready(lab):
    job = Gated(lab, {"ready": "word"}, conf={"tony.application.sidecar.jobtypes": "server"}).begun()
    job.tell("sys.exit(7)")
    doc = job.over("FAILED")
    assert doc["message"] == ("role 'worker' cannot begin, since it waits for 'server' to become ready: "
                              "task 'server:0' failed with exit code 7")


def test_a_role_that_waits_for_success_fails_with_the_other_role(lab):
    job = Runs(lab, {"prep": {"instances": 2}, "worker": {"instances": 1, "depends-on": "prep:succeeded"}})
    job.ends("prep:0", 1, 0)
    job.ends("prep:1", 1, 4)
    doc = job.over("FAILED")
    assert doc["message"].endswith("waits for 'prep' to succeed: task 'prep:1' failed with exit code 4"), doc
    assert (doc["cause"]["task"], doc["cause"]["stderr_tail"]) == ("prep:1", "err 1\n") and not job.ran("worker:0")


def test_stops(lab):
    """
    Servers end with the tasks that they serve, while the job goes on. A server that ignores TERM is killed,
    and has not failed.
    """
    deaf = "bash -c 'trap \"\" TERM; echo > up; while :; do sleep 0.1; done'"
    job = Runs(lab, {"ps": {"instances": 2, "command": deaf, "ready": "file:up"},
                     "worker": {"instances": 1, "depends-on": "ps:ready", "stops": "ps"}, "eval": {"instances": 1}},
               conf={"tony.task.kill-grace-ms": 200, "tony.application.untracked.jobtypes": ""})
    job.ends("worker:0", 1, 0)
    wait_until(lambda: lab.tasks(job.app)["ps:1"]["result"] == lab.tasks(job.app)["ps:0"]["result"] == "FINISHED", "both are stopped")
    assert lab.state(job.app) == "RUNNING"
    job.ends("eval:0", 1, 0)
    job.over()
    lab.settled()


def test_wrong_dependencies_are_refused(lab):
    def refusal(**worker):
        r = lab.run("run", lab.job_file({"server": {"instances": 1, "command": "x"}, "worker": {"instances": 1, "command": "x", **worker}}))
        assert r.returncode == 2, r.stdout + r.stderr
        return r.stderr
    assert "'worker' cannot wait for 'server' to be 'up'" in refusal(**{"depends-on": "server:up"})
    assert "is not a valid condition for 'ready'" in refusal(ready="socket")
    assert "the roles are not a DAG" in refusal(**{"depends-on": "worker:ready"})
    plan = lab.json("plan", lab.job_file({"server": {"instances": 1, "command": "true"},
                                          "worker": {"instances": 1, "command": "true", "depends-on": "server:ready"}}))
    assert plan["containers"][1]["waits_for"] == ["server:ready"] and plan["demand"]["containers"] == 2
