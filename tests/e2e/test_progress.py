# SPDX-License-Identifier: Apache-2.0
"""The messages of a task on its socket, and progress that tony finds in its logs."""

import json
import os
import pathlib
import shlex
import socket
import sys
import textwrap

from conftest import ROOT, wait_until
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)

PYTHON = "/usr/bin/python3"
# say(line) sends a line on one connection. heard() returns the next line of the answer. wait() waits until
# the test writes to the pipe GATE.
SAY = """
import json, os, socket, sys, time
sys.path.insert(0, {client!r})
s = socket.socket(socket.AF_UNIX)
s.connect("\\0" + os.environ["TONY_TASK_SOCKET"][1:])
f = s.makefile("rw")
def say(line):
    f.write(line + "\\n"); f.flush()
def heard():
    return f.readline().strip()
def wait():
    while True:
        with open(os.environ["GATE"]) as gate:
            line = gate.readline()
        if line:    # empty: an earlier writer has just closed the pipe
            return line.strip()
"""


def program(text):
    return f"{PYTHON} -c {shlex.quote(SAY.format(client=str(ROOT / 'clients/python')) + textwrap.dedent(text))}"


class Talk:
    """One task that runs `text` and waits for the test."""

    def __init__(self, tony, tmp_path, text, n=1, **more):
        self.tony = tony
        self.gate = tmp_path / "gate"
        os.mkfifo(self.gate)
        path = tony.workers(program(text), n=n, env={"GATE": str(self.gate)}, **more)
        self.app = tony.submit(path)

    def until(self, condition, what):
        return wait_until(lambda: condition(self.tony.status(self.app)), what, pause=0.05)

    def open(self, word=""):
        self.gate.write_text(word + "\n")

    def over(self, code=0):
        r = self.tony.run("wait", self.app)
        assert r.returncode == code, r.stdout + r.stderr
        return self.tony.status(self.app)


def test_progress_is_shown(tony, tmp_path):
    t = Talk(tony, tmp_path, """
        say('{"step": 1, "total": 1000}')
        say('{"step": 2}')
        wait()
        say('{"step": 250, "metrics": {"loss": 0.5}}')
        wait()
        say('{"step": 1000}')""")
    t.until(lambda d: d["roles"][0]["step"] == 2, "step 2 is known")
    t.open()
    doc = t.until(lambda d: d["roles"][0]["step"] == 250 and d, "step 250 is known")
    assert doc["roles"][0]["total"] == 1000 and doc["tasks"][0]["step"] == 250
    assert 0 < doc["roles"][0]["left_ms"] < 600000
    text = tony.ok("status", t.app)
    assert "step 250/1000, " in text and " left" in text
    row = next(j for j in tony.json("list")["jobs"] if j["application_id"] == t.app)
    assert (row["step"], row["total"]) == (250, 1000)
    assert "250/1000" in tony.ok("list")
    t.open()
    doc = t.over()
    # The last report counts, although it arrived just before the end. It is still known when only the journal
    # is left.
    assert (doc["roles"][0]["step"], doc["roles"][0]["total"], doc["roles"][0]["left_ms"]) == (1000, 1000, None)


def test_run_prints_steps(tony):
    r = tony.run("run", tony.workers(program("""
        for i in range(1, 4):
            say(json.dumps({"step": i * 10, "total": 30}))
        say('{"ask": "stop"}'); heard()         # all was read""")))
    assert r.returncode == 0
    assert "step 30/30" in r.stderr


def test_progress_is_found_in_logs(tony, tmp_path):
    """
    Progress bars with \\r on stderr, lines that are cut in the middle, and text that only looks like
    progress.
    """
    t = Talk(tony, tmp_path, r"""
        print("loading 7 files", flush=True)
        for i in (1, 2, 3):
            sys.stderr.write(f"\rtrain: {i}"); sys.stderr.flush()
            if i > 1:
                wait()      # until the line before was seen, and so the half of this one
            sys.stderr.write(f"0/400 [loss 0.{i}]"); sys.stderr.flush()
        sys.stderr.write("\r"); sys.stderr.flush()
        wait()
        print("train: 400/400")""", role={"progress-pattern": "train: ([0-9]+)/([0-9]+)"})
    for step in (10, 20):
        t.until(lambda d: d["roles"][0]["step"] == step, f"step {step} is seen")
        t.open()
    doc = t.until(lambda d: d["roles"][0]["step"] == 30 and d, "step 30 is seen")
    assert doc["roles"][0]["total"] == 400
    t.open()
    assert t.over()["roles"][0]["step"] == 400


def test_invalid_lines_on_the_socket(tony, tmp_path):
    """Invalid lines: the executor goes on and reports the error to the task, and the task ends normally."""
    t = Talk(tony, tmp_path, r"""
        bad = ['{', '[]', '"x"', '{"step": -1}', '{"step": 1.5}', '{"step": "7"}', '{"step": 99999999999999999999}', '{"ask": "time"}',
               '{"checkpoint": ""}', '{"checkpoint": "' + 'x' * 990 + '"}',  # with the working directory it is too long
               '{"checkpoint": "/a\\u0000b"}', '{"checkpoint": "' + 'x' * 2000 + '"}', '[' * 3000]
        for line in bad:
            say(line)
            got = json.loads(heard())
            assert set(got) == {"error"}, (line[:50], got)
        say('{"ask": "stop"}')
        assert json.loads(heard()) == {"stop": False}
        long = socket.socket(socket.AF_UNIX); long.connect("\0" + os.environ["TONY_TASK_SOCKET"][1:])
        try:
            long.sendall(b'{"step": 5' + b' ' * 100000)
        except OSError:
            pass
        assert b"error" in long.recv(1000)
        crowd = []
        for i in range(40):     # more than it takes; none of them says anything
            c = socket.socket(socket.AF_UNIX); c.setblocking(False)
            try:
                c.connect("\0" + os.environ["TONY_TASK_SOCKET"][1:])
            except OSError:
                break
            crowd.append(c)
        raw = os.fdopen(os.dup(s.fileno()), "wb", buffering=0)
        for i in range(2000):   # 1 MB without a word read
            raw.write(b'{"ask": "stop"}\n' * 32)
        print("said all", flush=True)
        wait()
        sys.exit(7)""")
    t.until(lambda d: d["tasks"][0]["state"] == "running", "it runs")
    wait_until(lambda: "said all" in tony.log_so_far(t.app, "worker:0"), "it could say it all")
    assert tony.state(t.app) == "RUNNING"
    t.open()
    assert t.over(1)["tasks"][0]["exit_code"] == 7


def test_the_client_file(tony):
    """clients/python does nothing without tony, and works the same from a shell."""
    client = ROOT / "clients/python/tony_task.py"
    app = tony.submit(tony.workers(f"{PYTHON} {client} progress 3 9 && {PYTHON} {client} checkpoint 3 out/step-3"))
    assert tony.run("wait", app).returncode == 0
    doc = tony.status(app)
    assert (doc["roles"][0]["step"], doc["roles"][0]["total"]) == (3, 9)
    assert doc["checkpoint"]["step"] == 3 and doc["checkpoint"]["path"].endswith("/out/step-3")
    assert os.system(f"{PYTHON} {client} progress 3 9") == 0
    assert pathlib.Path(client).read_text().count("import tony_task") >= 1


def test_the_client_file_keeps_a_checkpoint():
    """
    While the executor sleeps, the socket takes no more messages. The newest checkpoint is sent with the next
    one.
    """
    sys.path.insert(0, str(ROOT / "clients/python"))
    import tony_task
    name = f"tony-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0" + name)
        server.listen()
        task = tony_task.Task("@" + name)
        peer = server.accept()[0]
        peer.settimeout(60)
        for step in range(100000):
            task.progress(step)
        task.checkpoint(7, "/data/old")
        task.checkpoint(8, "/data/new")
        lines = peer.makefile("rb")
        first = json.loads(lines.readline())
        assert first == {"step": 0}
        while json.loads(lines.readline())["step"] < 100:
            pass
        task.progress(9)
        said = [json.loads(lines.readline())]
        while said[-1]["step"] != 9 or "checkpoint" in said[-1]:
            said.append(json.loads(lines.readline()))
        assert [w for w in said if "checkpoint" in w] == [{"step": 8, "checkpoint": "/data/new"}]


def test_a_new_master_gets_progress_and_checkpoint(make_lab, tmp_path):
    lab = make_lab()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    app = lab.submit(lab.workers(program("""
        say('{"step": 40, "total": 80}')
        say('{"step": 40, "checkpoint": "/data/step-40"}')
        wait()"""), env={"GATE": str(gate)}))
    known = lambda: (lambda d: d["roles"] and d["roles"][0]["step"] == 40 and "checkpoint" in d and d)(lab.status(app))
    wait_until(known, "it is known", pause=0.05)
    master = lab.one("master", app)
    os.kill(master, 9)
    lab.one("master", app, other_than=master)
    doc = wait_until(known, "a new master knows it", pause=0.05)
    assert doc["epoch"] == 2 and doc["checkpoint"]["path"] == "/data/step-40"
    gate.write_text("\n")
    assert lab.run("wait", app).returncode == 0
    assert json.loads(lab.ok("status", app, "--json"))["roles"][0]["step"] == 40


def test_checkpoints_reported_without_a_master(make_lab, tmp_path):
    """
    The next master learns of all checkpoints that were reported without a master, not only of the last one:
    the newest step that two tasks share may be older.
    """
    lab = make_lab()
    app = lab.submit(lab.workers(program("""
        me = os.environ["TASK_INDEX"]
        say('{"step": 1}')
        while not os.path.exists(os.environ["GO"]): time.sleep(0.02)
        for step in (10, 20) if me == "0" else (10, 20, 30, 40):
            say(json.dumps({"step": step, "checkpoint": f"/data/{me}/step-{step}", "parts": 2}))
        say('{"ask": "stop"}'); heard()         # all was read
        open(os.environ["GO"] + me, "w").close()
        while not os.path.exists(os.environ["GO"] + "end"): time.sleep(0.02)"""), n=2, env={"GO": str(tmp_path / "go")}))
    wait_until(lambda: all(t["step"] == 1 for t in lab.status(app)["tasks"]), "both run")
    keeper, master = lab.one("keeper", app), lab.one("master", app)
    os.kill(keeper, 19)
    try:
        os.kill(master, 9)
        (tmp_path / "go").touch()
        wait_until(lambda: (tmp_path / "go0").exists() and (tmp_path / "go1").exists(), "both have said what they saved")
    finally:
        os.kill(keeper, 18)
    doc = wait_until(lambda: (lambda d: "checkpoint" in d and d)(lab.status(app)), "a new master knows it", pause=0.05)
    wait_until(lambda: lab.status(app)["checkpoint"]["step"] == 20, "what both share")
    assert doc["epoch"] == 2
    (tmp_path / "goend").touch()
    assert lab.run("wait", app).returncode == 0
