# SPDX-License-Identifier: Apache-2.0
"""
The same scenarios on every cluster. tests/e2e, tests/yarn and tests/slurm run them with `from scenarios import *`, each
with a fixture `on`: tony on its cluster. What differs between clusters is a row of DIFFERS, and docs/clusters.md.
"""

import json
import pathlib
import tempfile
import time

import pytest

__all__ = ["test_success", "test_failure", "test_a_restart_resumes_from_a_checkpoint", "test_stop_with_a_checkpoint", "test_stages",
           "test_spares_and_queue", "test_streams", "test_shrink", "test_plan_is_run", "test_which_tasks_restart", "test_tasks_meet",
           "test_progress_and_tensorboard"]

# What a scenario may expect on each cluster.
DIFFERS = {
    "node": {"local": False, "yarn": True, "slurm": True},  # tasks name their node
}

TALK = ("import json, os, signal, socket, sys, time\n"
        "side = socket.socket(socket.AF_UNIX)\n"
        "side.connect(chr(0) + os.environ['TONY_TASK_SOCKET'].lstrip('@'))\n"
        "def say(**words): side.sendall(json.dumps(words).encode() + b'\\n')\n")


class On:
    """tony on a cluster. run: a function that runs it with these words, and returns a CompletedProcess."""

    def __init__(self, run, base, cluster):
        self.run, self.base, self.cluster = run, pathlib.Path(base), cluster

    def ok(self, *args):
        done = self.run(*args)
        assert done.returncode == 0, f"tony {args}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def job(self, roles, conf=None, **top):
        path = pathlib.Path(self.directory("job.yaml", "")) / "job.yaml"
        roles = {name: {"instances": 1, "memory": "64m", "vcores": 1, **role} for name, role in roles.items()}
        conf = {"tony.am.memory": "128m", **(conf or {})}
        path.write_text(json.dumps({"name": "scenario", "framework": "generic", "roles": roles, "conf": conf, **top}))
        return path

    def program(self, text):
        """A file with a Python program, which tasks on other machines get as shipped content."""
        return self.directory("main.py", TALK + text)

    def directory(self, name, text):
        """A directory with one file, which is shipped."""
        path = pathlib.Path(tempfile.mkdtemp(prefix="src-", dir=self.base))
        path.chmod(0o755)
        (path / name).write_text(text)
        return str(path)

    def finish(self, path):
        """The status of a job that has run to its end."""
        app = self.ok("submit", "--cluster", self.cluster, path).strip()
        self.run("wait", app)
        return self.status(app)

    def row(self, app):
        """The job in `tony list`."""
        rows = json.loads(self.ok("list", "--cluster", self.cluster, "--json"))["jobs"]
        return next(row for row in rows if row["application_id"] == app)

    def status(self, app):
        return json.loads(self.ok("status", app, "--json"))

    def running(self, path, n):
        """The id of a job, as soon as n tasks run."""
        app = self.ok("submit", "--cluster", self.cluster, path).strip()
        self.until(app, lambda doc: [t["state"] for t in doc.get("tasks") or []].count("running") == n, f"{n} tasks run")
        return app

    def until(self, app, condition, what, limit=90):
        deadline = time.monotonic() + limit
        while not condition(doc := self.status(app)):
            assert time.monotonic() < deadline, f"within {limit} s: {what}: {doc}"
            time.sleep(0.1)
        return doc

    def log(self, app, task, *args):
        return self.ok("logs", app, task, "--stdout", *args)


def test_success(on):
    doc = on.finish(on.job({"worker": {"instances": 2, "command": "echo $TASK_INDEX $WORD; cat f"}},
                           src=on.directory("f", "shipped\n"), env={"WORD": "a b"}))
    assert doc["state"] == "SUCCEEDED" and doc["live"] is False
    assert on.log(doc["application_id"], "worker:1") == "1 a b\nshipped\n"
    assert all(bool(t.get("node")) == DIFFERS["node"][on.cluster] for t in doc["tasks"])
    row = on.row(doc["application_id"])  # the row is right even if the cluster does not know the end yet
    assert row["state"] == "SUCCEEDED" and row["live"] is False, row


def test_failure(on):
    done = on.run("run", "--cluster", on.cluster, on.job({"worker": {"instances": 2, "command": "exit 7"}}))
    assert done.returncode == 1
    doc = on.status("last")
    assert doc["state"] == "FAILED" and doc["cause"]["exit_code"] == 7  # the other task may be killed before it starts
    assert "worker:" in on.run("why", doc["application_id"]).stdout


def test_a_restart_resumes_from_a_checkpoint(on):
    text = ("step = int(os.environ.get('TONY_CHECKPOINT_STEP') or 0)\n"
            "print('from', step, flush=True)\n"
            "if step: sys.exit(0)\n"
            "say(step=5, checkpoint='/data/5')\n"
            "time.sleep(1)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n")
    conf = {"tony.worker.restart": "on-failure", "tony.worker.max-restarts": 1}
    doc = on.finish(on.job({"worker": {"command": "exec /usr/bin/python3 main.py"}}, conf, src=on.program(text)))
    assert doc["state"] == "SUCCEEDED" and doc["tasks"][0]["attempt"] == 2
    assert on.log(doc["application_id"], "worker:0") == "from 5\n"


def test_stop_with_a_checkpoint(on):
    text = ("def save(*_):\n"
            "    say(step=9, checkpoint='/data/9')\n"
            "    sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, save)\n"
            "say(step=1, checkpoint='/data/1')\n"
            "time.sleep(600)\n")
    app = on.running(on.job({"worker": {"command": "exec /usr/bin/python3 main.py"}}, src=on.program(text)), 1)
    on.until(app, lambda doc: doc.get("checkpoint"), "the first checkpoint is known")
    on.ok("stop", app, "--checkpoint")
    doc = on.until(app, lambda doc: not doc["live"], "the job is over")
    assert doc["state"] == "KILLED" and doc["checkpoint"]["step"] == 9


def test_stages(on):
    conf = {"tony.application.prepare-stage": "prepare", "tony.application.training-stage": "worker"}
    doc = on.finish(on.job({"prepare": {"command": "true"}, "worker": {"command": "true"}}, conf))
    ended = {t["task"]: t for t in doc["tasks"]}
    assert doc["state"] == "SUCCEEDED"
    assert ended["prepare:0"]["ended_ms"] <= ended["worker:0"]["started_ms"]


def test_spares_and_queue(on):
    """A job with a spare and with more tasks than fit on one node of the tests."""
    doc = on.finish(on.job({"worker": {"instances": 6, "spares": 1, "command": "true"}}))
    assert doc["state"] == "SUCCEEDED" and len([t for t in doc["tasks"] if t["task"].startswith("worker")]) >= 6


def test_streams(on):
    app = on.running(on.job({"worker": {"instances": 2, "command": "echo there > file; exec sleep 600"}}), 2)
    done = on.run("exec", app, "worker:1", "--", "sh", "-c", "echo $TONY_TASK; exit 7")
    assert (done.returncode, done.stdout) == (7, "worker:1\n"), done.stderr
    back = pathlib.Path(on.directory("job.yaml", "")) / "back"
    back.parent.chmod(0o777)
    on.ok("cp", app, "worker:0:file", back)
    assert back.read_text() == "there\n"
    on.ok("stop", app)


def test_shrink(on):
    conf = {"tony.worker.resize": "live", "tony.application.distributed-mode": "FCFS"}
    app = on.running(on.job({"worker": {"instances": 3, "command": "exec sleep 600"}}, conf), 3)
    on.ok("resize", app, "worker=1")
    on.until(app, lambda doc: [t["state"] for t in doc["tasks"]].count("running") == 1, "one task is left")
    on.ok("stop", app)


@pytest.mark.parametrize("change", [{}, {"framework": "pytorch"}], ids=["generic", "pytorch"])
def test_plan_is_run(on, change):
    """The digest of `tony plan` is the same on all clusters, and equals the digest of what was requested, run and
    shipped."""
    path = on.job({"worker": {"instances": 2, "command": "true", "spares": 1}, "extra": {"memory": "96m", "command": "sh f"}},
                  src=on.directory("f", "exit 0\n"), env={"A": "b c"}, **change)
    plans = {c: json.loads(on.run("plan", "--cluster", c, path, "--json").stdout)["digest"] for c in ("local", "yarn", "slurm")}
    assert len(set(plans.values())) == 1, plans
    doc = on.finish(path)
    assert doc["state"] == "SUCCEEDED" and doc["plan"] == {"planned": plans[on.cluster], "ran": plans[on.cluster]}
    other = on.job({"worker": {"instances": 2, "command": "true", "spares": 1}, "extra": {"memory": "97m", "command": "sh f"}},
                   src=on.directory("f", "exit 0\n"), env={"A": "b c"}, **change)
    assert json.loads(on.run("plan", "--cluster", on.cluster, other, "--json").stdout)["digest"] != plans[on.cluster]


@pytest.mark.parametrize("scope, attempts", [("task", [1, 2, 1]), ("role", [1, 2, 2]), ("job", [2, 2, 2])])
def test_which_tasks_restart(on, scope, attempts):
    """One task fails while all run."""
    conf = {"tony.worker.restart": "on-failure", "tony.worker.max-restarts": 1, "tony.worker.restart-scope": scope,
            "tony.application.distributed-mode": "FCFS"}
    command = "until [ -e go ] && [ $TONY_ATTEMPT = 1 ]; do sleep 0.1; done; exit 3"
    app = on.running(on.job({"helper": {"command": "exec sleep 600"}, "worker": {"instances": 2, "command": command}}, conf), 3)
    on.ok("exec", app, "worker:0", "--", "touch", "go")

    def as_expected(doc):
        return [t["attempt"] for t in sorted(doc["tasks"], key=lambda t: t["task"]) if t["state"] == "running"] == attempts
    doc = on.until(app, as_expected, f"the attempts are {attempts}")
    assert doc["state"] == "RUNNING"
    on.ok("stop", app)


def test_tasks_meet(on):
    """The tasks find the first one by CLUSTER_SPEC, also on other nodes, and its port is free."""
    text = ("spec, rank = json.loads(os.environ['CLUSTER_SPEC'])['worker'], int(os.environ['TASK_INDEX'])\n"
            "at, n = (spec[0].rpartition(':')[0], int(spec[0].rpartition(':')[2])), len(spec)\n"
            "if rank == 0:\n"
            "    server = socket.create_server(('', at[1]))\n"
            "    met = sorted(int(server.accept()[0].makefile().readline()) for _ in range(n - 1))\n"
            "    print('met', *met)\n"
            "    sys.exit(met != list(range(1, n)))\n"
            "deadline = time.monotonic() + 60\n"
            "while True:\n"
            "    try:\n"
            "        socket.create_connection(at, 5).sendall(b'%d\\n' % rank)\n"
            "        break\n"
            "    except OSError:\n"
            "        if time.monotonic() > deadline:\n"
            "            raise\n"
            "        time.sleep(0.1)\n")
    doc = on.finish(on.job({"worker": {"instances": 3, "command": "exec /usr/bin/python3 main.py"}}, src=on.program(text)))
    assert doc["state"] == "SUCCEEDED", doc
    assert on.log(doc["application_id"], "worker:0") == "met 1 2\n"


def test_progress_and_tensorboard(on):
    """Progress and TensorBoard's address are in the status, and in `tony list`, while the job runs."""
    text = ("say(step=3, total=10)\n"
            "if os.environ['TONY_TASK'].startswith('tensorboard'):\n"
            "    import http.server\n"
            "    http.server.HTTPServer(('', int(os.environ['TB_PORT'])), http.server.SimpleHTTPRequestHandler).serve_forever()\n"
            "time.sleep(600)\n")
    command = "exec /usr/bin/python3 main.py"
    app = on.running(on.job({"worker": {"command": command}, "tensorboard": {"command": command}}, src=on.program(text)), 2)
    doc = on.until(app, lambda doc: doc.get("tensorboard") and all(t["step"] == 3 for t in doc["tasks"] if t["role"] == "worker"), "both are known")
    assert doc["tensorboard"].startswith("http"), doc
    on.ok("stop", app)
