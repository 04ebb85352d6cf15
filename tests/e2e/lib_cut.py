# SPDX-License-Identifier: Apache-2.0
"""
Nodes that can be cut off: network namespaces around a router, with a real master in one and real executors in
the others (tests/nodes).
"""

import os
import shutil
import signal
import subprocess
import time

import pytest
from conftest import BIN, make_base, remove_base, wait_until
from lib_jobs import alive, kill9

PROGRAM = BIN.parent / "tests" / "nodes" / "nodes-master"
APP = "application_1700000000000_0001"
LEASE_MS = 6000  # longer than a busy machine keeps a master silent

# Each run looks for another live run of the same task. It ignores TERM, so that the whole grace is used.
TASK = r"""
trap '' TERM
exec 9>> $DIR/lock$TONY_INDEX
flock -n 9; [ $? != 1 ] || echo "$TONY_INDEX $TONY_ATTEMPT" >> $DIR/double
echo "$TONY_ATTEMPT $$" >> $DIR/began$TONY_INDEX
until [ -e $DIR/end ]; do sleep 0.05; done
echo "$TONY_ATTEMPT" >> $DIR/done$TONY_INDEX
"""


def can_cut():
    if os.geteuid() != 0 or not PROGRAM.exists() or not shutil.which("ip"):
        return False
    r = subprocess.run(["unshare", "-n", "ip", "link", "add", "ve0", "type", "veth", "peer", "name", "ve1"], capture_output=True)
    return r.returncode == 0


class Net:
    """
    A router R between the master's machine M and n nodes. It can silently drop packets, separately for each
    direction.
    """

    def __init__(self, n):
        self.holders = {}
        try:
            for name in ["R", "M", *range(n)]:
                self.holders[name] = subprocess.Popen(["unshare", "-n", "sleep", "3600"])
            own = os.readlink("/proc/self/ns/net")
            for p in self.holders.values():
                wait_until(lambda p=p: os.readlink(f"/proc/{p.pid}/ns/net") != own, "a namespace of its own")
            self.inside("R", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            for name in ["M", *range(n)]:
                self._link(name)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _subnet(name):
        return 0 if name == "M" else name + 1

    def _link(self, name):
        s = self._subnet(name)
        self.inside("R", "ip", "link", "add", f"to{name}", "type", "veth", "peer", "name", "eth0", "netns", str(self.holders[name].pid))
        self.inside("R", "ip", "address", "add", f"10.77.{s}.1/24", "dev", f"to{name}")
        self.inside("R", "ip", "link", "set", f"to{name}", "up")
        for args in (["address", "add", f"10.77.{s}.2/24", "dev", "eth0"], ["link", "set", "lo", "up"], ["link", "set", "eth0", "up"],
                     ["route", "add", "default", "via", f"10.77.{s}.1"]):
            self.inside(name, "ip", *args)

    def inside(self, name, *argv, check=True):
        return subprocess.run(["nsenter", "-t", str(self.holders[name].pid), "-n", *argv], check=check, capture_output=True, text=True)

    def drop_to(self, node):
        self.inside("R", "ip", "route", "add", "blackhole", f"10.77.{self._subnet(node)}.2/32")

    def drop_from(self, node):
        self.inside("R", "ip", "rule", "add", "iif", f"to{node}", "table", str(100 + node))
        self.inside("R", "ip", "route", "add", "blackhole", "default", "table", str(100 + node))

    def heal(self, node):
        self.inside("R", "ip", "route", "del", "blackhole", f"10.77.{self._subnet(node)}.2/32", check=False)
        self.inside("R", "ip", "rule", "del", "iif", f"to{node}", "table", str(100 + node), check=False)
        self.inside("R", "ip", "route", "flush", "table", str(100 + node), check=False)

    def lost_segments(self, node):
        """How often TCP on the node had to retransmit."""
        names, values = [line.split() for line in self.inside(node, "cat", "/proc/net/snmp").stdout.splitlines() if line.startswith("Tcp:")]
        return int(values[names.index("RetransSegs")])

    def close(self):
        for p in self.holders.values():
            p.kill()
            p.wait()


class Cluster:
    """A job with one worker on each node."""

    def __init__(self, n=2, n_tasks=None, **conf):
        self.base, self.n, self.n_tasks = make_base(), n, n_tasks or n
        self.net = Net(n)
        self.dir = self.base / "tasks"
        self.dir.mkdir()
        script = self.dir / "task.sh"
        script.write_text(TASK)
        (self.base / "run").mkdir(mode=0o700)
        keys = {"tony.application.name": "cut", "tony.application.framework": "generic", "tony.cluster": "yarn",
                "tony.worker.instances": self.n_tasks, "tony.worker.memory": "64m", "tony.worker.command": f"bash {script}",
                "tony.execution.envs": f"DIR={self.dir}", "tony.task.heartbeat-interval-ms": 100, "tony.task.max-missed-heartbeats": 1000,
                "tony.task.kill-grace-ms": 300, "tony.task.master-away-limit": LEASE_MS, "tony.task.restarts.node-lost": 1000,
                "tony.node.max-failures": 1000, "tony.application.distributed-mode": "FCFS", **conf}
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TONY_HOME": str(self.base / "home"), "XDG_RUNTIME_DIR": str(self.base / "run"),
               "TONY_EXECUTOR": str(BIN / "tony-executor"), "HOME": str(self.base)}
        (self.base / "home").mkdir(mode=0o700)
        with open(self.base / "master.log", "wb") as log:
            self.master = subprocess.Popen(
                ["nsenter", "-t", str(self.net.holders["M"].pid), "-n", str(PROGRAM), "10.77.0.2",
                 ",".join(str(self.net.holders[i].pid) for i in range(n)), *[f"{k}={v}" for k, v in keys.items()]],
                env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.env_mark = b"TONY_HOME=" + os.fsencode(self.base / "home")

    def lines(self, name):
        try:
            return (self.dir / name).read_text().splitlines()
        except FileNotFoundError:
            return []

    def runs(self, task):
        """(attempt, pid) of each run of the task that began."""
        return [tuple(map(int, line.split())) for line in self.lines(f"began{task}")]

    def live(self, task):
        return [run for run in self.runs(task) if alive(run[1])]

    def running(self, task, attempt=1, limit=60):
        return wait_until(lambda: next((pid for a, pid in self.runs(task) if a == attempt), None), f"run {attempt} of task {task}", limit)

    def node_of(self, task):
        """The node on which the task's latest run began."""
        ns = os.readlink(f"/proc/{self.runs(task)[-1][1]}/ns/net")
        return next(i for i in range(self.n) if os.readlink(f"/proc/{self.net.holders[i].pid}/ns/net") == ns)

    # ---- trouble ----

    def cut(self, node, how="both", given_up=True):
        """Drops the packets to the node, from the node, or both (`how`), and the master can neither start nor stop
        containers on it. given_up: the master learns at once that the node's containers are lost."""
        self._mark("cut", node, True)
        if how in ("to", "both"):
            self.net.drop_to(node)
        if how in ("from", "both"):
            self.net.drop_from(node)
        if given_up:
            self._mark("given-up", node, True)

    def heal(self, node):
        self.net.heal(node)
        self._mark("given-up", node, False)
        self._mark("cut", node, False)

    def _mark(self, what, node, on):
        path = self.base / "home" / f"{what}-{node}"
        path.touch() if on else path.unlink(missing_ok=True)

    # ---- the end ----

    def one_each(self, limit=60):
        """Waits until each task has exactly one live run."""
        wait_until(lambda: all(len(self.live(i)) == 1 and self.live(i) == self.runs(i)[-1:] for i in range(self.n_tasks)),
                   "one live run of each task", limit, 0.05)
        self.no_doubles()

    def no_doubles(self):
        assert not self.lines("double"), f"two runs of a task lived at once (task, run): {self.lines('double')}"
        for i in range(self.n_tasks):
            runs = [a for a, _ in self.runs(i)]
            assert runs == sorted(set(runs)), f"runs of task {i}: {runs}"

    def over(self, limit=60):
        (self.dir / "end").touch()
        assert self.master.wait(limit) == 0
        assert "SUCCEEDED" in (self.base / "master.log").read_text()
        self.no_doubles()

    def log(self):
        parts = [f"---- {p}\n{p.read_text(errors='replace')[-6000:]}" for p in
                 [self.base / "master.log", *sorted((self.base / "home").glob("container_*/executor.log")), *sorted(self.dir.glob("began*"))]]
        return "\n".join(parts)

    def close(self):
        if self.master.poll() is None:
            self.master.send_signal(signal.SIGKILL)
        self.master.wait()
        deadline = time.monotonic() + 10
        while (left := self._processes()) and time.monotonic() < deadline:
            kill9(*left)
            time.sleep(0.02)
        self.net.close()
        remove_base(self.base)

    def _processes(self):
        found = []
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and int(entry) != os.getpid() and self.env_mark in open(f"/proc/{entry}/environ", "rb").read().split(b"\0"):
                    found.append(int(entry))
            except OSError:
                pass
        return found


@pytest.fixture
def make_cluster():
    if not can_cut():
        pytest.skip("network namespaces are for root, and need ip and unshare")
    made = []

    def make(*args, **kw):
        made.append(Cluster(*args, **kw))
        return made[-1]
    yield make
    for c in made:
        print(c.log())  # shown when the test failed
        c.close()
