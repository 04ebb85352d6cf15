# SPDX-License-Identifier: Apache-2.0
"""
Helpers for tests that kill and count: finding a home's processes, tasks that wait for the test, and checks
for leftovers.
"""

import errno
import glob
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import time
from typing import NamedTuple

import pytest
from conftest import BIN, Tony, make_base, wait_until


class Process(NamedTuple):
    pid: int
    parent: int
    kind: str  # pool, keeper, master, executor, cleanup, client, task
    state: str  # a letter of /proc/<pid>/stat
    app: str  # "" = belongs to no job
    line: str


def stat_of(pid):
    """(state, parent) of a process, or None when it is gone."""
    try:
        text = pathlib.Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return None
    fields = text.rsplit(")", 1)[1].split()
    return fields[0], int(fields[1])


def alive(pid):
    found = stat_of(pid)
    return found is not None and found[0] not in "ZX"


def ended(pid, what=None, limit=60):
    """Wait until the process has ended; a zombie counts as ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([fd], [], [], limit)
        assert ready, f"within {limit} s: {what or f'process {pid}'} is gone"
    finally:
        os.close(fd)


def kill9(*pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Lab(Tony):
    """The home of one test, with functions that find its processes."""

    def __init__(self, base, site=None, **extra):
        super().__init__(base, **extra)
        if site:
            conf = self.base / "conf"
            conf.mkdir()
            (conf / "tony-site.yaml").write_text("conf:\n" + "".join(f"  tony.{k}: {v}\n" for k, v in site.items()))
            self.env["TONY_CONF_DIR"] = str(conf)

    # ---- processes ----

    def _scan_one(self, pid, marks):
        root = pathlib.Path("/proc", pid)
        environ = (root / "environ").read_bytes().split(b"\0")
        if marks.isdisjoint(environ):
            return None
        line = (root / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        state, parent = stat_of(pid)
        app = next((v[len(b"TONY_APPLICATION_ID="):].decode() for v in environ if v.startswith(b"TONY_APPLICATION_ID=")), "")
        program = os.path.basename(line.split(" ")[0])
        kind = {"tony-pool": "pool", "tony-master": "master", "tony": "client", "tony-keeper": "keeper", "tony-standby": "standby"}.get(program, "task")
        if program == "tony-executor":
            kind = "cleanup" if "--cleanup" in line else "keeper" if "--keeper" in line else "executor"
        named = re.search(r"application_\d+_\d+", line)
        if kind not in ("task", "pool", "standby") and named:
            app = named.group()
        if kind == "standby":
            app = ""  # a standby, whose job has not been submitted yet
        return Process(int(pid), parent, kind, state, app, line)

    def processes_all(self, app=None):
        """
        All processes of this home, with tasks and their leftovers. Zombies have no environment and are not
        found.
        """
        marks = {b"HOME=" + os.fsencode(self.base), b"TONY_HOME=" + os.fsencode(self.home)}
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            try:
                p = self._scan_one(entry, marks)
            except (OSError, TypeError):
                continue
            if p and p.state not in "ZX":
                found[p.pid] = p
        # An executor is a fork of its keeper. Until it has set its own title, it has the keeper's command line, and the
        # keeper as its parent.
        for pid, p in found.items():
            if p.kind == "keeper" and p.parent in found and found[p.parent].kind in ("keeper", "executor"):
                found[pid] = p._replace(kind="executor")
        return [p for p in found.values() if app is None or p.app == app]

    def processes(self):
        return {p.pid: p.line for p in self.processes_all()}

    def pids(self, kind, app=None):
        return [p.pid for p in self.processes_all(app) if p.kind == kind]

    def one(self, kind, app=None, limit=60, other_than=None):
        """Waits until there is exactly one process of this kind, and returns its pid."""
        def look():
            found = [p for p in self.pids(kind, app) if p != other_than]
            return found if len(found) == 1 else None
        return wait_until(look, f"one {kind} of {app or 'this home'}", limit)[0]

    def executor_of(self, task_pid):
        """The executor that is the ancestor of a task's process."""
        executors = set(self.pids("executor"))
        pid = task_pid
        while pid > 1 and pid not in executors:
            pid = stat_of(pid)[1]
        assert pid > 1, f"process {task_pid} has no executor above it"
        return pid

    def n_running(self, app):
        """The number of tasks that run now; a job that is starting has no roles yet."""
        return sum(r["running"] for r in self.status(app)["roles"])

    # ---- leftovers ----

    def cgroups(self):
        """Control groups of this home's jobs."""
        start = self.home / "pool" / "start"
        if not start.exists():
            return []
        return [p for p in glob.glob("/sys/fs/cgroup/**/tony-*/*", recursive=True)
                if os.path.isdir(p) and os.path.basename(p).startswith(start.read_text().strip() + "_")]

    def runtime_files(self):
        return sorted(p.name for p in (self.base / "run" / "tony").glob("*/*") if not p.name.startswith("pool."))

    def litter(self):
        """Files and groups that must not exist when no job is alive."""
        processes = self.processes_all()
        found = [f"process {p.pid} ({p.kind}): {p.line}" for p in processes if p.kind not in ("pool", "standby")]
        pools = [p.pid for p in processes if p.kind == "pool"]
        standby = [p for p in processes if p.kind == "standby"]  # a keeper of the pool, and its master
        if len(standby) > 2 or not all(p.parent in pools + [q.pid for q in standby] for p in standby):
            found.append(f"standbys {standby} of pools {pools}")
        if len(pools) > 1:
            found.append(f"pools {pools}")
        for entry in os.listdir("/proc"):
            stat = stat_of(entry) if entry.isdigit() else None
            if stat and stat[0] == "Z" and stat[1] in pools:
                found.append(f"zombie {entry} of the pool")
        found += [f"control group {p}" for p in self.cgroups()]
        found += [f"runtime file {p}" for p in self.runtime_files()]
        found += [f"lock {p.name}" for p in (self.home / "pool/locks").glob("[0-9]*")]
        found += [f"in jobs/: {p.name}" for p in (self.home / "jobs").glob("*")]
        for pattern in ("history/*/containers", "history/*/cgroups", "pool/ended/*", "store/.tmp-*", "pool/*.tmp*", "history/.*"):
            found += [f"file {p}" for p in self.home.glob(pattern)]
        return found

    def quiet(self, limit=60):
        """Waits until no job is alive and nothing is left of any."""
        deadline = time.monotonic() + limit
        while (left := self.litter()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not left, left

    def settled(self, limit=60):
        """The same. Then checks that the journal of each job can be replayed."""
        self.quiet(limit)
        for path in sorted((self.home / "history").glob("application_*")):
            replay_one(path)

    def stop(self):
        left = super().stop()
        for p in self.processes_all():
            kill9(p.pid)
        return left


def replay_program():
    build = pathlib.Path(os.environ.get("TONY_BUILD", BIN.parent))
    for path in (build / "tools" / "job-replay", build / "bin" / "job-replay"):
        if path.exists():
            return path
    return None


def replay_one(path):
    """The journal of a finished job replays to the reported end, and each prefix can be replayed, too."""
    program = replay_program()
    if not program or not (path / "journal").exists():
        return
    state = json.loads((path / "summary").read_text())["state"] if (path / "summary").exists() else None
    r = subprocess.run([program, *(["--expect", state] if state else []), path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, timeout=60)
    assert r.returncode == 0, f"{program.name} of {path}: exit {r.returncode}\n{r.stdout[-4000:]}"


@pytest.fixture
def make_lab(own_tony):
    """A factory of labs. own_tony stops them, looks for leftovers, and removes them."""
    def make(**kw):
        lab = Lab(make_base(), **kw)
        own_tony.made.append(lab)
        return lab
    return make


@pytest.fixture
def lab(make_lab):
    return make_lab()


# ---- tasks that end when and how the test says ----

class Gated:
    """
    A job whose tasks record that they started, and then wait for an exit code from the test. Each task has
    its own file and named pipe, so nothing depends on time: once the test has opened the pipe for writing,
    the task reads it. A lost task counts as a failure unless conf says otherwise (test_restart.py tests the
    other cases).
    """

    def __init__(self, lab, n=1, before="", role=None, args=(), owned=False, **top):
        self.lab, self.n = lab, n
        self.dir = lab.base / f"gated{lab.n_files}"
        self.dir.mkdir()
        for i in range(n):
            os.mkfifo(self.dir / f"gate{i}")
        lab.give(self.dir, *self.dir.iterdir())
        command = (f"cd {self.dir}; echo $$ >> starts$TASK_INDEX; {before} until read code < gate$TASK_INDEX; do :; done; "
                   "echo $code >> ends$TASK_INDEX; exit $code")
        top["conf"] = {"tony.task.restarts.node-lost": 0, **top.get("conf", {})}
        path = lab.workers(command, n=n, role=role, **top)
        self.client = None
        if owned:
            self.client = lab.start("run", path, *args)
            self.app = wait_until(lambda: next(iter(sorted(p.name for p in (lab.home / "jobs").glob("application_*"))), None),
                                  "the job is submitted")
        else:
            self.app = lab.submit(path, *args)

    def starts(self, i):
        try:
            return [int(x) for x in (self.dir / f"starts{i}").read_text().split()]
        except FileNotFoundError:
            return []

    def pid(self, i, limit=60):
        """The pid of the task's first process, once it runs."""
        return wait_until(lambda: self.starts(i), f"task {i} runs", limit)[-1]

    def running(self, limit=60):
        for i in range(self.n):
            self.pid(i, limit)
        return self

    def release(self, i, code=0, wait=True):
        pid = self.pid(i)

        def opened():
            try:
                return os.open(self.dir / f"gate{i}", os.O_WRONLY | os.O_NONBLOCK)
            except OSError as e:
                assert e.errno == errno.ENXIO, e
                return None
        fd = wait_until(opened, f"task {i} waits at its gate")
        os.write(fd, f"{code}\n".encode())
        os.close(fd)
        if wait:
            ended(pid, f"task {i} after it was released")
            wait_until(lambda: stat_of(pid) is None, f"task {i} is reaped, so its end has its time", pause=0.001)

    def release_all(self, code=0, wait=True):
        """The chief comes last: its failure would end the job."""
        for i in reversed(range(self.n)):
            self.release(i, code, wait)

    def recorded(self, event):
        """How often the journal has this event now."""
        for where in ("jobs", "history"):
            try:
                return (self.lab.home / where / self.app / "journal").read_bytes().count(b'"e":"%s"' % event.encode())
            except FileNotFoundError:
                continue
        return 0

    def started_once(self):
        counts = [len(self.starts(i)) for i in range(self.n)]
        assert counts == [1] * self.n, f"how often each task was started: {counts}"

    def over(self, *states, limit=60):
        """The status document once the job is in the history."""
        self.lab.in_history(self.app, limit)
        doc = self.lab.status(self.app)
        assert doc["state"] in (states or ("SUCCEEDED",)), doc
        return doc

    def codes(self):
        return [self.lab.tasks(self.app)[f"worker:{i}"]["exit_code"] for i in range(self.n)]

    def kill(self, kind, other_than=None):
        """kill -9 of the job's only process of a kind; returns its pid."""
        pid = self.lab.one(kind, None if kind == "pool" else self.app, other_than=other_than)
        kill9(pid)
        return pid
