# SPDX-License-Identifier: Apache-2.0
"""
A job that is resized while its processes die at named points of its master (lib_points.py), and checks of the
result. Its tasks are tests/fixtures/steps.sh: they record when they begin and what they do.
"""

import json
import os
import signal
import threading
import time

from conftest import ROOT, wait_until
from lib_jobs import kill9, replay_one, stat_of
from lib_points import scene

TASK = ROOT / "tests" / "fixtures" / "steps.sh"

# mode, and the number of workers before and after
SHAPES = {"restart, grows": ("restart", 2, 3), "restart, shrinks": ("restart", 3, 2), "live, grows": ("live", 2, 3),
          "live, shrinks": ("live", 3, 2)}
# The process that dies: True if no task notices it. The executors are the one that started first, and the one
# that started last.
VICTIMS = {"master": True, "pool": True, "client": True, "keeper": False, "first executor": False, "last executor": False}
AFTER = "journal decided_resize"  # the write of the resize to the journal begins with this text


class ResizedJob:
    """
    The job, its client that waits for the resize, and the notes of the tasks. charges: ends of its containers
    that it survives.
    """

    def __init__(self, lab, mode, n, charges=0, max_restarts=0):
        self.lab, self.mode, self.n = lab, mode, n
        self.dir = lab.base / f"r{lab.n_files}"
        self.dir.mkdir()
        role = {"instances": n, "command": f"bash {TASK}", "env": {"DIR": str(self.dir)}, "memory": "16m", "resize": mode,
                "restart": "on-failure", "restart-scope": "job" if mode == "restart" else "task", "max-restarts": max_restarts}
        conf = {"tony.task.kill-grace-ms": 2000, "tony.task.heartbeat-interval-ms": 200, "tony.task.max-missed-heartbeats": 1000}
        conf.update({f"tony.task.restarts.{reason}": charges for reason in ("node-lost", "launch-failed")})
        self.path = lab.job_file({"worker": role}, conf=conf)
        self.app = self.client = self.said = None

    def lines(self, name):
        try:
            return (self.dir / name).read_text().splitlines()
        except FileNotFoundError:
            return []

    def runs(self, i):
        """(attempt, generation, number of workers) of each run of the task."""
        return [tuple(map(int, line.split())) for line in self.lines(f"began{i}")]

    def submit(self):
        self.app = self.lab.submit(self.path)
        wait_until(lambda: all(self.lines(f"steps{i}") for i in range(self.n)), "all tasks train")
        return self

    def resize(self, n):
        """A client asks for the resize and waits."""
        self.client = self.lab.start("resize", self.app, f"worker={n}", "--wait")

    def client_said(self):
        """Waits for the end of the client, and returns its exit code and output."""
        if not self.said:
            out, err = self.client.communicate(timeout=120)
            self.said = self.client.returncode, out + err
        return self.said

    def steady(self):
        """The job has one size, all its tasks run and make progress. Returns this size."""
        def look():
            r = self.lab.run("status", self.app, "--json")
            doc = json.loads(r.stdout) if r.returncode == 0 else {}
            role = (doc.get("roles") or [{}])[0]
            done = doc.get("state") == "RUNNING" and "resize" not in doc and role["running"] == role["instances"]
            assert doc.get("exit_code") is None, f"the job has ended: {doc}"
            return role["instances"] if done else None
        n = wait_until(look, "the job has one size and runs", 120, 0.02)
        before = [len(self.lines(f"steps{i}")) for i in range(n)]
        wait_until(lambda: all(len(self.lines(f"steps{i}")) > before[i] for i in range(n)), "all of its tasks train on", 120, 0.02)
        return n

    def end(self):
        """Lets the tasks end with 0, and checks the job."""
        (self.dir / "go").touch()
        self.lab.run("wait", self.app, timeout=120)
        self.lab.in_history(self.app, 120)
        return self.lab.status(self.app)

    def check_runs(self, doc):
        """No task ran twice at once, or with an older attempt, or ended with anything but its last run."""
        assert doc["state"] == "SUCCEEDED", doc["message"]
        assert not self.lines("double"), f"two runs of one task lived at once: {self.lines('double')}"
        for t in doc["tasks"]:
            i, runs = t["index"], self.runs(t["index"])
            attempts, generations = [r[0] for r in runs], [r[1] for r in runs]
            assert attempts == sorted(set(attempts)), f"worker:{i} was started twice as one run: {runs}"
            assert generations == sorted(generations), f"an older generation of worker:{i} came back: {runs}"
            assert t["exit_code"] == 0 and t["attempt"] == attempts[-1], (t, runs)
            assert self.lines(f"done{i}")[-1] == str(attempts[-1]), "its last run did not come to its end"
            steps = [int(x) for x in self.lines(f"steps{i}")]
            assert steps == list(range(1, len(steps) + 1)), f"a step of worker:{i} is lost or was done twice: {steps}"
        names = [p.name for p in self.lab.dir(self.app).glob("journal*")]
        assert names == ["journal"], names
        replay_one(self.lab.home / "history" / self.app)

    def check(self, doc, old, new, harmless, charges):
        self.check_runs(doc)
        size = len(doc["tasks"])
        last = doc["last_resize"]
        code, text = self.client_said()
        assert size == (new if last["outcome"] == "done" else old), (size, last)
        assert doc["restarts"] <= charges, f"{doc['restarts']} restarts were charged"
        if code >= 0:  # the run was not killed
            assert code == (0 if size == new else 1), f"{size} workers, but the client says {code}: {text}"
        if self.mode == "restart" and size == new:
            assert all(self.runs(i)[-1][2] == size for i in range(size)), [self.runs(i) for i in range(size)]
        if harmless:
            assert size == new, f"the resize was lost: {last}"
            for i in range(max(old, new)):
                n = 2 if self.mode == "restart" and i < min(old, new) else 1
                assert [r[0] for r in self.runs(i)] == list(range(1, n + 1)), f"worker:{i} ran {self.runs(i)}"


class Striker(threading.Thread):
    """Waits until the master is stopped at its point, kills others, and lets the master go on."""

    def __init__(self, lab, job, victims):
        super().__init__(daemon=True)
        self.lab, self.job, self.victims = lab, job, victims
        self.over, self.error = threading.Event(), None
        self.start()

    def run(self):
        try:
            while not self.lab.struck("master"):
                if self.over.wait(0.005):
                    return
            self.strike()
        except BaseException as e:  # end() raises it
            self.error = e

    def strike(self):
        def stopped():
            return [p for p in self.lab.pids("master", self.job.app) if (stat_of(p) or "?")[0] == "T"]
        masters = wait_until(lambda: stopped(), "the master is stopped")
        kill9(*self.victims())
        for pid in masters:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:  # it died with its keeper
                pass

    def end(self):
        self.over.set()
        self.join(120)
        if self.error:
            raise self.error


def victims_of(lab, job, victim):
    """The pids of the processes that die."""
    if victim == "client":
        return [job.client.pid]
    if victim == "pool":
        return lab.pids("pool")
    if victim == "keeper":
        return lab.pids("keeper", job.app)
    executors = sorted(lab.pids("executor", job.app), key=started)
    return executors[:1] if victim == "first executor" else executors[-1:]


def started(pid):
    """The start of the process, in ticks since the machine's start."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return int(f.read().rpartition(")")[2].split()[19]), pid
    except OSError:
        return 0, pid


def resize_point(lab, shape, victim, number, action="kill", filter="done write */journal "):
    """Runs one job with one resize and one death, at the master's number-th point of this kind after the record of
    the resize. Returns the point, or None if there are not that many."""
    mode, old, new = SHAPES[shape]
    harmless = VICTIMS[victim]
    charges = 0 if harmless else 1 if "executor" in victim else max(old, new)
    lab.disarm()
    lab.arm("master", number, action if victim == "master" else "stop", filter, after=AFTER)
    job = ResizedJob(lab, mode, old, charges=min(charges, 1))
    striker = None
    try:
        job.submit()
        if victim != "master":
            striker = Striker(lab, job, lambda: victims_of(lab, job, victim))
        job.resize(new)
        job.client_said()
        job.steady()
        doc = job.end()
        if striker:
            striker.end()
        job.check(doc, old, new, harmless, charges)
        what = lab.struck("master")
        lab.quiet()
    except BaseException as e:
        raise AssertionError(f"{shape}: {victim} dies ({action}) at {number} {filter!r} ({lab.struck('master')}): {e}\n"
                             f"{job.said}\n{scene(lab, job)}") from e
    finally:
        if striker:
            striker.over.set()
        if job.client and job.client.poll() is None:
            job.client.kill()
            job.client.wait()
    return what
