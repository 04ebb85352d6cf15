# SPDX-License-Identifier: Apache-2.0
"""
Two jobs share a pool under a policy, and processes die at named points of the exchange (lib_points.py): the first job
shrinks for the second one, and grows again when that one ends. The tasks are tests/fixtures/steps.sh.
"""

import collections
import json
import pathlib
import random
import threading
import time

from conftest import wait_until
from lib_jobs import alive, kill9
from lib_points import scene
from lib_resize import TASK, ResizedJob, Striker, started

ROOM = 4  # containers in the pool
EACH_MIB = 16
SITE = {"pool.memory": f"{ROOM * EACH_MIB}m", "pool.policy": "drf", "pool.policy.interval": 50, "pool.policy.resize-limit": 20000}

# The write of the first resize to the journal, and of the second one.
SHRINKS, GROWS = "decided_resize*shrink", "decided_resize*grow"
VICTIMS = ("pool", "keeper", "first executor", "last executor", "task")


class Guard(threading.Thread):
    """A thread that checks all the time that no more containers live at once than the pool has room for."""

    def __init__(self, lab):
        super().__init__(daemon=True)
        self.lab, self.most, self.looks, self.over = lab, 0, 0, threading.Event()
        self.held_s, self.began = 0.0, time.monotonic()  # container seconds since the thread began
        self.start()

    def containers(self):
        """The containers in which a program runs."""
        found = []
        for p in self.lab.processes_all():
            try:
                environ = pathlib.Path("/proc", str(p.pid), "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            found += [(e, p.pid) for e in environ if e.startswith(b"TONY_CONTAINER_ID=") and p.kind == "task"]
        # The list was not made at one moment. Those that still live now have all lived at one moment.
        return {e for e, pid in found if alive(pid)}

    def run(self):
        last = self.began
        while not self.over.wait(0.005):
            n, now = len(self.containers()), time.monotonic()
            self.held_s, last = self.held_s + n * (now - last), now
            self.most = max(self.most, n)
            self.looks += 1

    def utilization(self):
        """The part of the pool's room in which programs ran, as the processes show it."""
        return self.held_s / ROOM / (time.monotonic() - self.began)

    def await_look(self):
        """Wait for a look that has begun after this call. With thousands of processes beside them, a look takes a second."""
        n = self.looks
        wait_until(lambda: self.looks >= n + 2, "the guard has looked", 60, 0.005)

    def end(self):
        self.over.set()
        self.join(30)
        assert self.looks > 0 and 0 < self.most <= ROOM, f"{self.most} containers lived at once, in {self.looks} looks"


class Sharer(ResizedJob):
    """An elastic job that survives the loss of its processes."""

    def __init__(self, lab, mode, n, weight=1):
        super().__init__(lab, mode, n)
        role = {"instances": n, "command": f"bash {TASK}", "env": {"DIR": str(self.dir)}, "memory": f"{EACH_MIB}m", "resize": mode,
                "min-instances": 1, "max-instances": ROOM, "restart": "on-failure", "max-restarts": 9,
                "restart-scope": "job" if mode == "restart" else "task"}
        if mode == "never":
            del role["min-instances"]
        conf = {"tony.task.kill-grace-ms": 2000, "tony.task.heartbeat-interval-ms": 200, "tony.task.max-missed-heartbeats": 1000,
                "tony.task.restarts.node-lost": 9, "tony.task.restarts.launch-failed": 9}
        self.path = lab.job_file({"worker": role}, conf=conf, weight=weight)

    def send(self):
        """Submits the job. If the pool dies before it has answered, it may have accepted the job nevertheless."""
        known = set(self.lab.jobs_on_disk())
        def try_it():
            r = self.lab.run("submit", self.path)
            if r.returncode == 0:
                return r.stdout.strip()
            return next((x for x in self.lab.jobs_on_disk() if x not in known and not x.startswith(".")), None)
        self.app = wait_until(try_it, "a submission", 60)
        return self

    def size(self):
        """The number of its tasks, if all of them run and no resize is under way; else 0."""
        doc = self.lab.run("status", self.app, "--json")
        if doc.returncode:
            return 0
        doc = json.loads(doc.stdout)
        assert doc.get("exit_code") is None, f"the job has ended: {doc}"
        role = (doc.get("roles") or [{}])[0]
        whole = doc.get("state") == "RUNNING" and "resize" not in doc and role.get("running") == role.get("instances")
        return role["instances"] if whole else 0

    def trains_on(self):
        n = self.size()
        before = [len(self.lines(f"steps{i}")) for i in range(n)]
        wait_until(lambda: all(len(self.lines(f"steps{i}")) > before[i] for i in range(n)), f"{self.app} trains on", 60, 0.02)


def victims_of(lab, job, victim):
    if victim == "pool":
        return lab.pids("pool")
    if victim == "task":
        return [p.pid for p in lab.processes_all(job.app) if p.kind == "task" and "steps.sh" in p.line][:1]
    if victim == "keeper":
        return lab.pids("keeper", job.app)
    executors = sorted(lab.pids("executor", job.app), key=started)
    return executors[:1] if victim == "first executor" else executors[-1:]


def await_sizes(jobs, wanted):
    def look():
        return [j.size() for j in jobs] == wanted
    wait_until(look, f"the jobs have {wanted} tasks", 120, 0.02)
    for j in jobs:
        j.trains_on()


def exchange(lab, mode, program, number, after=SHRINKS, victim=None, life=1, filter="done write */journal "):
    """Two jobs exchange containers, and one process dies: the program, at its number-th point after the point with
    the text `after`. With `victim`, the program is only stopped at the point, and a process of this kind of the
    first job dies. Returns the point, or None if the program does not reach that many."""
    lab.disarm()
    lab.run("pool", "stop", "--force")
    lab.arm(program, number, "stop" if victim else "kill", filter, life=life, after=after)
    first, second = Sharer(lab, mode, ROOM), Sharer(lab, mode, ROOM)
    guard, striker = Guard(lab), None
    try:
        first.send()
        await_sizes([first], [ROOM])
        guard.await_look()
        if victim:
            striker = Striker(lab, first, lambda: victims_of(lab, first, victim))
        second.send()
        await_sizes([first, second], [2, 2])
        check_end(second)
        await_sizes([first], [ROOM])
        check_end(first)
        if striker:
            striker.end()
        guard.end()
        what = lab.struck(program, life)
        lab.quiet()
    except BaseException as e:
        raise AssertionError(f"{mode}: {victim or 'it'} dies at {program} {number} {filter!r} after {after!r} ({lab.struck(program, life)}): {e}\n"
                             + "\n".join(scene(lab, j) for j in (first, second) if j.app)) from e
    finally:
        guard.over.set()
        if striker:
            striker.over.set()
    return what


def check_end(job):
    doc = job.end()
    job.check_runs(doc)


class Day:
    """Jobs come at random moments under a policy, train for a while and end; meanwhile processes die at random moments."""

    # Deaths in one job. A job whose keepers die four times, each within its first second, is given up; and Sharer permits
    # nine restarts for each kind of failure.
    MOST = {"keeper": 3, "executor": 4, "task": 4}

    def __init__(self, lab, seed, kinds):
        self.lab, self.rnd, self.kinds = lab, random.Random(seed), kinds
        self.jobs, self.deaths = [], collections.Counter()
        self.n = {"jobs": 0, "resizes": 0, "decisions": 0, **{f"{kind} killed": 0 for kind in kinds}}

    def come(self):
        mode = self.rnd.choice(("restart", "live", "live", "never"))
        job = Sharer(self.lab, mode, self.rnd.randint(1, ROOM), weight=self.rnd.choice((1, 1, 2)))
        job.send()
        job.ends_at = time.monotonic() + 0.5 + self.rnd.random() ** 2 * 5
        self.jobs.append(job)
        self.n["jobs"] += 1

    def kill(self):
        kind = self.rnd.choice(self.kinds)
        found = [p for p in self.lab.processes_all() if p.kind == kind and (kind != "task" or "steps.sh" in p.line)]
        found = [p for p in found if kind not in self.MOST or self.deaths[kind, p.app] < self.MOST[kind]]
        if not found:
            return
        p = self.rnd.choice(sorted(found))
        self.deaths[kind, p.app] += 1
        kill9(p.pid)
        self.n[f"{kind} killed"] += 1

    def leave(self):
        """Ends the jobs whose time is over, as soon as all their tasks run."""
        for job in [j for j in self.jobs if time.monotonic() > j.ends_at]:
            if job.size():
                self.over(job)

    def over(self, job):
        doc = job.end()
        job.check_runs(doc)
        self.n["resizes"] += doc.get("resizes", 0)
        self.jobs.remove(job)

    def run(self, until):
        guard = Guard(self.lab)
        try:
            while time.monotonic() < until or self.jobs:
                time.sleep(self.rnd.random() ** 2 * 0.3)
                late = time.monotonic() >= until
                if not late and len(self.jobs) < 5 and self.rnd.random() < 0.4:
                    self.come()
                elif self.kinds and not late and self.rnd.random() < 0.4:
                    self.kill()
                self.leave()
            self.utilization = guard.utilization()
            guard.end()
            self.lab.quiet()
        except BaseException as e:
            raise AssertionError(f"after {self.n}: {e}\n" + "\n".join(scene(self.lab, j) for j in self.jobs)) from e
        finally:
            guard.over.set()
        decisions = self.lab.home / "pool" / "decisions"
        self.n["decisions"] = len(decisions.read_text().splitlines()) if decisions.exists() else 0
        return self.n
