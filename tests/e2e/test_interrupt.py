# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C on a terminal, in every command that may take time: its exit code, the terminal, and nothing is left."""

import os
import pathlib
import re
import select
import signal
import sys

import pytest
from conftest import ROOT, wait_until
from test_open import TASK
from test_streams import Terminal, marked, stream_processes

sys.path.insert(0, str(ROOT / "tests"))
from lib_notebook import STAND_IN  # noqa: E402

DIES = -signal.SIGINT  # a shell shows 130
# the client dies of the signal, or reports that its child did
SLEEP = ("sh", "-c", "echo rea''dy; sleep 7540; exit 130")


class Screen(Terminal):
    """Keeps all that it has shown, and reads on while the test waits: a program must not block on a full terminal."""

    def drain(self):
        while select.select([self.master], [], [], 0)[0]:
            self.text += os.read(self.master, 65536)
        return self.text

    def shows(self, pattern):
        wait_until(lambda: re.search(pattern, self.drain()), f"{pattern} is shown", pause=0.05)

    def ended(self):
        wait_until(lambda: self.drain() is not None and self.p.poll() is not None, "the command has ended", pause=0.05)
        self.drain()
        return self.p.returncode

    def left_on_screen(self):
        """Modes of the terminal that are still on: the second screen, a hidden cursor, a mouse."""
        modes = {}
        for mode, on in re.findall(rb"\x1b\[\?(\d+)([hl])", self.text):
            modes[mode] = on
        return [mode for mode, on in modes.items() if on == (b"l" if mode == b"25" else b"h")]


def of_session(sid):
    """Processes of the session that the client has begun, zombies too."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = pathlib.Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == sid and int(entry) != sid:
            found.append(int(entry))
    return found


@pytest.fixture
def scene(tony, tmp_path):
    """A job whose task has written a line and announced a page; files that the commands need."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "page.py").write_text(TASK)
    tony.app = tony.submit(tony.workers("echo ready; exec python3 page.py", src=str(tmp_path / "src")))
    wait_until(lambda: tony.status(tony.app).get("tensorboard"), "the page is announced")
    os.mkfifo(tmp_path / "fifo.yaml")  # nobody writes to it: a command that reads it waits
    with open(tmp_path / "big", "wb") as f:
        f.truncate(4 << 30)
    (tmp_path / "v" / "bin").mkdir(parents=True)
    (tmp_path / "v" / "bin" / "python").write_text(STAND_IN)
    (tmp_path / "v" / "bin" / "python").chmod(0o755)
    yield tony
    tony.run("kill", tony.app)


# command, its arguments (APP, TMP and JOB are replaced), what it shows before Ctrl-C (None: it has handled no signal, so
# any moment will do), its exit code
COMMANDS = {
    "run": (["run", "JOB"], rb"ready", 3),
    "logs": (["logs", "APP", "-f"], rb"ready", DIES),
    "top": (["top", "APP"], rb"worker:0", DIES),
    "exec": (["exec", "APP", "worker:0", "--", *SLEEP], rb"ready", 130),
    "exec -it": (["exec", "APP", "worker:0", "-it", "--", *SLEEP], rb"ready", 130),
    "shell": (["shell", "APP", "worker:0"], None, 130),
    "forward": (["forward", "APP", "worker:0", "0:9"], rb"127.0.0.1:\d+ ->", 0),
    "open": (["open", "APP", "--no-browser"], rb"http://127.0.0.1:\d+/lab", 0),
    "cp": (["cp", "APP", "TMP/big", "worker:0:whole"], None, 130),
    "notebook": (["notebook", "--memory", "64m", "--src_dir", "TMP/src", "--python_venv", "TMP/v"], rb"http://127.0.0.1:\d+/lab", 0),
    "wait": (["wait", "APP"], None, DIES),
    "wait --any": (["wait", "APP", "APP", "--any"], None, DIES),
    "events": (["events", "APP", "-f"], rb'"event":', DIES),
    "metrics": (["metrics", "APP"], None, DIES),
    "status": (["status", "APP"], None, DIES),
    "simulate": (["simulate", "TMP/fifo.yaml"], None, DIES),
    "plan": (["plan", "TMP/fifo.yaml"], None, DIES),
    "submit": (["submit", "TMP/fifo.yaml"], None, DIES),
}


def master_of(tony):
    return next(pid for pid, line in tony.processes().items() if "tony-master" in line.split()[0] and tony.app in line)


def get_ready(name, tony, t):
    """Brings the command into the state in which Ctrl-C has the effect that the table names."""
    if name == "cp":
        part = pathlib.Path(tony.ok("exec", tony.app, "worker:0", "--", "pwd").strip())
        wait_until(lambda: t.drain() is not None and list(part.glob(".tony-*")), "the copy has begun")
    elif name == "shell":
        t.send(b"sleep 7540\n")
        wait_until(lambda: t.drain() is not None and marked(tony, tony.app, "7540"), "the shell runs a command")


@pytest.mark.takes(10)
@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c(scene, tmp_path, name):
    args, ready, code = COMMANDS[name]
    words = {"APP": scene.app, "JOB": str(scene.workers("echo ready; exec sleep 600"))}
    args = [words.get(a, a.replace("TMP", str(tmp_path))) for a in args]
    before = set(scene.jobs_on_disk())
    held = master_of(scene) if name in ("metrics", "status") else None
    if held:
        os.kill(held, signal.SIGSTOP)  # so the command waits for an answer
    t = Screen(scene, *args)
    try:
        if ready:
            t.shows(ready)
        get_ready(name, scene, t)
        t.send(b"\x03")
        if name == "shell":
            wait_until(lambda: t.drain() is not None and not marked(scene, scene.app, "7540"), "the key has reached the shell's command")
            t.send(b"exit\n")
        assert t.ended() == code, t.text
        assert t.is_restored() and t.left_on_screen() == [], t.text
        wait_until(lambda: not of_session(t.p.pid), "no process of the client is left")
    finally:
        t.close()
        if held:
            os.kill(held, signal.SIGCONT)
    wait_until(lambda: not stream_processes(scene) and not marked(scene, scene.app, "7540"), "no stream is left")
    for app in set(scene.jobs_on_disk()) - before:
        scene.await_state(app, "KILLED")
    task = scene.tasks(scene.app)["worker:0"]
    assert (task["state"], task["attempt"]) == ("running", 1), "the job goes on"
