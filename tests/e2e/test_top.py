# SPDX-License-Identifier: Apache-2.0
"""`tony top`: one table without a terminal; on a terminal in place, which it restores however it ends."""

import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import termios

import pytest
from conftest import wait_until
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)
from test_metrics import FAST, metrics
from test_progress import Talk

ENTER, LEAVE = b"\033[?1049h", b"\033[?1049l"


class Screen:
    """tony on a pseudo-terminal of 100 by 20 characters."""

    def __init__(self, lab, *args, leader=()):
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (20, 100))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.text = b""
        os.set_blocking(self.master, False)
        self.p = subprocess.Popen([*leader, str(lab.bin / "tony"), *args], env={**lab.env, "TERM": "xterm"}, stdin=slave, stdout=slave, stderr=slave,
                                  preexec_fn=self.own_terminal, cwd=lab.base)

    def own_terminal(self):
        os.setsid()
        os.close(os.open(os.ttyname(0), os.O_RDWR))  # it becomes the controlling terminal: Ctrl-C and Ctrl-Z work

    def read(self):
        try:
            self.text += os.read(self.master, 65536)
        except BlockingIOError:
            pass
        return self.text

    def last(self):
        """The text of the last drawn screen, without escape sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.read().split(b"\033[H")[-1].decode(errors="replace"))

    def until(self, condition, what):
        return wait_until(lambda: condition(self.last()), f"{what}; the screen is:\n{self.last()}", limit=20, pause=0.05)

    def type(self, keys):
        os.write(self.master, keys)

    def is_restored(self):
        self.read()
        now = termios.tcgetattr(self.slave)
        return self.text.rindex(LEAVE) > self.text.rindex(ENTER) and now[:4] == self.before[:4]

    def ended(self):
        return wait_until(lambda: self.read() is not None and self.p.poll() is not None and (self.p.returncode,), "tony has ended")[0]


@pytest.fixture
def screen(lab):
    """screen(...): a Screen whose program ends with the test."""
    made = []

    def make(*args, **kw):
        made.append(Screen(lab, *args, **kw))
        return made[-1]
    yield make
    for s in made:
        os.killpg(s.p.pid, signal.SIGKILL) if s.p.poll() is None else None
        s.p.wait()
        os.close(s.master)
        os.close(s.slave)


def two_workers(lab, tmp_path):
    t = Talk(lab, tmp_path, """
        say('{"step": 7, "total": 70}')
        if os.environ["TASK_INDEX"] == "1":
            b = bytearray(50 << 20)
        while not os.path.exists(os.environ["GATE"] + ".go"):
            time.sleep(0.05)""", n=2, conf=FAST, role={"memory": "200m"})
    t.until(lambda d: metrics(d, 1).get("memory_bytes", 0) > 50 << 20 and metrics(d, 0).get("step") == 7, "both are measured")
    return t


def test_one_table_without_a_terminal(lab, tmp_path):
    t = two_workers(lab, tmp_path)
    lines = lab.ok("top", t.app).splitlines()
    assert lines[0].split()[:4] == ["TASK", "STATE", "STEP", "STEPS/S"]
    assert lines[1].startswith("worker:0 ") and lines[2].startswith("worker:1 ")
    assert " running " in lines[1] and " 7/70 " in lines[1] and " 200 MB " in lines[1]
    jobs = lab.ok("top")
    assert len(jobs.splitlines()) == 2 and "RUNNING" in jobs and "7/70" in jobs and " 400 MB " in jobs
    assert "\033" not in jobs
    (tmp_path / "gate.go").touch()
    t.over()
    r = lab.run("top")
    assert r.returncode == 0 and r.stdout.splitlines() == [jobs.splitlines()[0]] and "no job is live" in r.stderr
    assert "SUCCEEDED" in lab.ok("top", t.app)
    lab.settled()


def test_keys(lab, screen, tmp_path):
    t = two_workers(lab, tmp_path)
    s = screen("top")
    s.until(lambda x: "1 live job" in x and "RUNNING" in x, "the job is shown")
    s.type(b"\r")
    s.until(lambda x: "worker:0" in x and "worker:1" in x and t.app in x, "Enter shows its tasks")
    s.type(b"m")
    s.until(lambda x: "by memory" in x and x.index("worker:1") < x.index("worker:0"), "the one with more memory is the first")
    s.type(b"r")
    s.until(lambda x: "reversed" in x and x.index("worker:0") < x.index("worker:1"), "and then the last")
    s.type(b"n\033[B")
    s.until(lambda x: "by name" in x, "sorted by name")
    wait_until(lambda: re.search(rb"\x1b\[7mworker:1", s.read().split(b"\033[H")[-1]), "the arrow has chosen the second row")
    termios.tcsetwinsize(s.master, (8, 60))
    os.kill(s.p.pid, signal.SIGWINCH)
    s.until(lambda x: max(map(len, x.replace("\r", "").split("\n"))) <= 60, "the smaller window is used")
    s.type(b"\033")
    s.until(lambda x: "1 live job" in x, "Esc goes back to the jobs")
    s.type(b"q")
    assert s.ended() == 0 and s.is_restored()
    (tmp_path / "gate.go").touch()
    t.over()


def test_a_terminal_of_80_columns_shows_all(lab, screen, tmp_path):
    """All columns, a history bar in each row, and all keys fit into the usual size of a terminal."""
    t = two_workers(lab, tmp_path)
    s = screen("top", t.app)
    termios.tcsetwinsize(s.master, (24, 80))
    os.kill(s.p.pid, signal.SIGWINCH)

    def fits(x):
        lines = x.replace("\r", "").split("\n")
        rows = [row for row in lines if row.startswith("worker:")]
        return (len(lines) > 3 and max(map(len, lines)) <= 80 and "q quit" in lines[1] and lines[2].endswith("MEMORY    LIMIT GPU% HISTORY") and
                len(rows) == 2 and all(re.search(r" 7/70 .* 200 MB +- .*\S$", row) for row in rows))
    s.until(fits, "everything is there")
    s.type(b"gr")
    s.until(lambda x: "by GPU, reversed; n t s c m g sort, r reverse; arrows, Esc jobs, q quit" in x, "so are the keys")
    (tmp_path / "gate.go").touch()
    t.over()


@pytest.mark.parametrize("how", ["SIGTERM", "SIGHUP", "SIGINT", "ctrl-c"])
def test_the_terminal_is_restored(screen, how):
    s = screen("top")
    s.until(lambda x: "0 live jobs" in x, "the table is shown")
    assert termios.tcgetattr(s.slave)[3] & (termios.ICANON | termios.ECHO) == 0
    if how == "ctrl-c":
        s.type(b"\x03")
    else:
        s.p.send_signal(getattr(signal, how))
    assert s.ended() == -(signal.SIGINT if how == "ctrl-c" else getattr(signal, how))
    assert s.is_restored()


# As a shell with job control does: the program has a process group of its own, in the foreground. The kernel
# does not suspend a group whose session has no such shell.
SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_it_can_be_suspended(screen):
    s = screen("top", leader=(sys.executable, "-c", SHELL))
    s.until(lambda x: "0 live jobs" in x, "the table is shown")
    pid = int(pathlib.Path(f"/proc/{s.p.pid}/task/{s.p.pid}/children").read_text())
    s.type(b"\x1a")  # Ctrl-Z
    wait_until(lambda: pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T", "it is stopped")
    wait_until(s.is_restored, "the terminal is as before")
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: s.read().rindex(ENTER) > s.text.rindex(LEAVE), "it is back")
    n = len(s.text)
    wait_until(lambda: b"live jobs" in s.read()[n:], "and draws again")
    s.type(b"q")
    assert s.ended() == 0 and s.is_restored()
