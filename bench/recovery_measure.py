# SPDX-License-Identifier: Apache-2.0
"""The measurements of bench/recovery. Each returns rows for the table. Times are CLOCK_MONOTONIC, taken by the tasks themselves."""
import contextlib
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import time

from measure import row
from world import Missing, command_of, environ, pids, program_of, read

N = 16
LIMIT_S = 60
TASK_GOAL_MS, GANG_GOAL, MASTER_GOAL_MS, SEEN_GOAL_MS = 50.0, 0.3, 300.0, 10.0
PYTHON = "/usr/bin/python3"


def now_ms():
    return time.clock_gettime(time.CLOCK_MONOTONIC) * 1e3


class Run:
    """A job that one launcher runs. Its tasks report when they start."""

    def __init__(self, world, argv):
        self.world = world
        self.path = world.base / f"s{time.monotonic_ns()}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.out = open(self.path.with_suffix(".out"), "wb")
        self.client = subprocess.Popen(argv(f"{world.bin.parent / 'bench/recovery-stamp'} {self.path}"), env=world.env, cwd=world.base,
                                       stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.out, start_new_session=True)
        self.pid_of = {}

    def started(self, n):
        """Name and start time of the next n tasks that start."""
        found = {}
        deadline = time.monotonic() + LIMIT_S
        while len(found) < n:
            self.socket.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                pid, us, who = self.socket.recv(200).decode().split(" ", 2)
            except TimeoutError:
                raise Missing(f"{len(found)} of {n} tasks have started within {LIMIT_S} s: "
                              f"{read(self.path.with_suffix('.out'))[-800:]}") from None
            found[who] = int(us) / 1e3
            self.pid_of[who] = int(pid)
        return found

    def kill(self, who):
        at = now_ms()
        os.kill(self.pid_of[who], signal.SIGKILL)
        return at

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.client.pid, signal.SIGTERM)
        try:
            self.client.wait(timeout=20)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.client.pid, signal.SIGKILL)
            self.client.wait()
        for pid in self.pid_of.values():
            if str(self.path) in command_of(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.socket.close()
        self.out.close()


class Ours(Run):
    """A job of tony with 16 workers."""

    def __init__(self, world, scope):
        def argv(command):
            path = world.base / f"recovery-{scope}-{time.monotonic_ns()}.yaml"
            path.write_text(json.dumps({
                "name": f"recovery-{scope}", "framework": "generic", "command": command,
                "roles": {"worker": {"instances": N, "memory": "4m", "vcores": 1, "restart": "on-failure", "restart-scope": scope}}}))
            return [world.tony, "run", str(path)]
        super().__init__(world, argv)
        self.first = self.started(N)
        self.job = world.newest_job()
        self.home = world.env["TONY_HOME"].encode()
        world.all_running(N)

    def master(self):
        app = self.job.name
        found = [p for p in pids() if program_of(p) == "tony-master" and self.home in environ(p) and app in command_of(p)]
        if len(found) != 1:
            raise Missing(f"{len(found)} masters of {app}")
        return found[0]

    def records(self):
        return [json.loads(line) for line in read(self.job / "journal").splitlines()]

    def seen_ms(self, killed_wall_ms):
        """An upper bound of the time from a kill until the master had the end in its journal. A record that has
        both times converts the job's time to wall time. Both are rounded down to whole ms."""
        found = self.records()
        anchor = next(r for r in found if r["e"] == "master_started")
        end = [r for r in found if r["e"] == "attempt_ended"][-1]
        return end["t"] - anchor["t"] + anchor["wall_ms"] + 2 - killed_wall_ms


def torchrun(command):
    """
    --redirects and --tee are set for one worker, because PyTorch 1.13 on Python 3.11 fails with their
    defaults.
    """
    return [PYTHON, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={N}", "--max_restarts=100",
            "--monitor_interval=0.1", "--redirects=0:1", "--tee=0:1", "--no_python", *command.split()]


def mpiexec_loop(world):
    return lambda command: ["/bin/sh", "-c", f"until {world.mpiexec} -bind-to none -n {N} {command}; do :; done"]


def own_start_ms(world, reps):
    """The time of the command itself, from the fork to its report."""
    got = []
    for _ in range(reps):
        at = now_ms()
        run = Run(world, str.split)
        got.append(run.started(1)["?"] - at)
        run.close()
    return statistics.median(got)


def task(world, reps, notes):
    """One of 16 tasks is killed; the others run on."""
    run = Ours(world, "task")
    took, seen = [], []
    try:
        for i in range(min(reps, N)):  # another task each time: a task that fails again pauses first
            who = f"worker:{i}"
            wall = time.time() * 1e3
            at = run.kill(who)
            found = run.started(1)
            if list(found) != [who]:
                raise Missing(f"{who} was killed, {list(found)} began")
            took.append(found[who] - at)
            seen.append(run.seen_ms(wall))
    finally:
        run.close()
    own = own_start_ms(world, reps)
    took.sort()
    return [row(f"one of {N} killed: runs again, less its own start", statistics.median(took) - own, "ms", TASK_GOAL_MS,
                min_ms=round(took[0], 1), max_ms=round(took[-1], 1), own_start_ms=round(own, 2)),
            row("a killed task is seen", statistics.median(seen), "ms", SEEN_GOAL_MS, max_ms=round(max(seen), 1))]


def gang(world, reps, notes):
    """One of 16 tasks is killed, and all restart."""
    launchers = {"tony": lambda: Ours(world, "job"), "mpiexec in a loop": lambda: Run(world, mpiexec_loop(world))}
    torch = subprocess.run([PYTHON, "-c", "import torch.distributed.run; print(torch.__version__)"], capture_output=True, text=True)
    if torch.returncode == 0:
        notes.append(f"torchrun is that of PyTorch {torch.stdout.strip()}")
        launchers["torchrun"] = lambda: Run(world, torchrun)
    else:
        notes.append("torchrun: it is not here (Debian's package is python3-torch), so its goal was not measured")
    took = {name: [] for name in launchers}
    for i in range(reps):
        for name in sorted(launchers, reverse=i % 2 == 1):
            run = launchers[name]()
            try:
                first = run.first if isinstance(run, Ours) else run.started(N)
                at = run.kill(sorted(first)[N // 2])
                took[name].append(max(run.started(N).values()) - at)
            finally:
                run.close()
    ms = {name: round(statistics.median(t), 1) for name, t in took.items()}
    spread = {name: [round(min(t), 1), round(max(t), 1)] for name, t in took.items()}
    rows = [row(f"gang of {N} formed anew / {name}", statistics.median(took["tony"]) / statistics.median(took[name]), "x",
                GANG_GOAL if name == "torchrun" else None, ms=ms, min_max_ms=spread, reps=reps)
            for name in sorted(took, reverse=True) if name != "tony"]
    notes.append("mpiexec cannot restart: a shell loop starts it again when all of it is gone")
    return rows


def master(world, reps, notes):
    """The master is killed; the time until the next one has all executors back, from its own log."""
    took = []
    for _ in range(reps):  # another job each time: a job is given up if its masters die again and again
        run = Ours(world, "task")
        try:
            log = run.job / "master.log"
            victim = run.master()
            at = time.time() * 1e3
            os.kill(victim, signal.SIGKILL)
            deadline = time.monotonic() + LIMIT_S
            while not (found := re.search(r"^(\S+) \S+ +master\.back .*executors=(\d+)", read(log), re.M)):
                if time.monotonic() > deadline:
                    raise Missing(f"the next master does not have its executors back after {LIMIT_S} s: {read(log)[-800:]}")
                time.sleep(0.005)
            if int(found[2]) != N:
                raise Missing(f"{found[2]} of {N} executors came back")
            took.append(wall_of(found[1]) - at)
        finally:
            run.close()
    return [row(f"master killed: the next has {N} executors", statistics.median(took), "ms", MASTER_GOAL_MS,
                min_ms=round(min(took), 1), max_ms=round(max(took), 1))]


def wall_of(text):
    """"2026-01-31T12:00:00.123Z" in ms."""
    from datetime import datetime
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1e3
