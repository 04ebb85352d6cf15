# SPDX-License-Identifier: Apache-2.0
"""The measurements of bench/yarn. Each returns rows for the table."""
import contextlib
import json
import os
import signal
import statistics
import subprocess
import time

from measure import row
from world import Missing, program_of, private_kib, status_kib

START_GOAL, EXIT_GOAL_MS = 1.5, 150.0
MASTER_GOAL_KIB, EXECUTOR_GOAL_KIB = 12 << 10, 1536
SYNCHRONOUS = "capacity:yarn.scheduler.capacity.schedule-asynchronously.enable=false"
LIMIT_S = 120


class Run:
    """
    One application. Its tasks record when each started and ended; the client's times are added. All are ms of
    CLOCK_REALTIME.
    """

    def __init__(self, world, command, n, extra=None):
        self.n, self.world = n, world
        world.n_runs += 1
        self.dir = world.base / f"run{world.n_runs}"
        self.dir.mkdir()
        os.mkfifo(self.dir / "gate")
        self.gate = os.open(self.dir / "gate", os.O_RDWR | os.O_CLOEXEC)
        argv = command(f"{world.stamp} {self.dir}", n, **(extra or {}))
        with open(self.dir.with_suffix(".out"), "wb") as out:
            self.started = time.time() * 1e3
            self.client = subprocess.Popen(argv, env=world.env, cwd=world.base, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def output(self):
        return self.dir.with_suffix(".out").read_text(errors="replace")[-1500:]

    def stamps(self):
        """The lines in the files of the tasks that have written."""
        found = [p.read_text().split() for p in self.dir.iterdir() if p.name.isdigit()]
        return [[float(t) for t in f] for f in found if f]

    def running(self, count=None, limit_s=LIMIT_S):
        """
        Waits until this many tasks (default: all) have started. Returns the ms from the client's start to the
        last of them.
        """
        deadline = time.monotonic() + limit_s
        while len(stamps := self.stamps()) < (count or self.n):
            if self.client.poll() is not None:
                raise Missing(f"the client ended with {self.client.returncode} before its tasks ran: {self.output()}")
            if time.monotonic() > deadline:
                raise Missing(f"{len(stamps)} of {count or self.n} tasks run after {limit_s} s: {self.output()}")
            time.sleep(0.005)
        return max(s[0] for s in stamps) - self.started

    def finish(self):
        """Opens the gate. Returns the ms from the last exit of a task to the client's exit."""
        os.close(self.gate)
        self.gate = -1
        try:
            code = self.client.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Missing(f"the client does not end: {self.output()}") from None
        ended = time.time() * 1e3
        if code != 0:
            raise Missing(f"the client ended with {code}: {self.output()}")
        return ended - max(s[1] for s in self.stamps())

    def close(self):
        if self.gate != -1:
            os.close(self.gate)
        if self.client.poll() is None:
            self.client.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.client.wait(timeout=20)
            self.client.kill()
        self.client.wait()


class World:
    def __init__(self, base, cluster, bin_dir):
        self.base, self.cluster, self.n_runs = base, cluster, 0
        self.tony_bin = self.program(bin_dir / "tony")
        self.floor_bin = self.program(bin_dir.parent / "bench" / "yarn-floor")
        self.stamp = self.program(bin_dir.parent / "bench" / "yarn-stamp")
        (base / "run").mkdir(mode=0o700)
        self.env = {"PATH": f"{bin_dir}:/usr/bin:/bin", "HOME": str(base), "LANG": "C.UTF-8", "TONY_HOME": str(base / "tony"),
                    "XDG_RUNTIME_DIR": str(base / "run"), "HADOOP_CONF_DIR": str(cluster.dir / "conf")}

    @staticmethod
    def program(path):
        if not os.access(path, os.X_OK):
            raise Missing(f"there is no '{path}': build first, or give --bin")
        return str(path)

    def floor(self, command, n):
        p = self.cluster.state["ports"]
        at = "127.0.0.1:{}".format
        return [self.floor_bin, "--rm", at(p["rm"]), "--scheduler", at(p["rm_sched"]), "--namenode", at(p["nn"]),
                "--webhdfs", f"http://{at(p['nn_http'])}/webhdfs/v1", str(n), command]

    def tony(self, command, n, **conf):
        # The name does not depend on the run: so a second submission is the same job.
        job = {"name": f"bench-{n}", "framework": "generic", "command": command,
               "roles": {"worker": {"instances": n, "memory": "64m"}}, "conf": {"tony.am.memory": "64m", **conf}}
        path = self.base / f"run{self.n_runs}.yaml"
        path.write_text(json.dumps(job))
        return [self.tony_bin, "run", "--cluster", "yarn", str(path)]

    @contextlib.contextmanager
    def run(self, command, n, extra=None):
        run = Run(self, command, n, extra)
        try:
            yield run
        finally:
            run.close()

    def once(self, command, n):
        with self.run(command, n) as run:
            return run.running(), run.finish()

    def commands(self):
        return {"floor": self.floor, "tony": self.tony}

    def processes(self, program):
        return [pid for pid in self.cluster.processes() if program_of(pid) == program]


def warm_up(world):
    """The first applications on new daemons take seconds longer than later ones."""
    for _ in range(2):
        for command in world.commands().values():
            world.once(command, 8)


def launch(world, args, notes):
    rows = []
    for mode, settings in (("asynchronous", []), ("synchronous", [SYNCHRONOUS])):
        world.cluster.restart("rm", settings=settings)
        for command in world.commands().values():
            world.once(command, 8)
        start, leave = {}, {}
        for i in range(args.reps):
            for name, command in sorted(world.commands().items(), reverse=i % 2 == 1):
                a, b = world.once(command, 8)
                start.setdefault(name, []).append(a)
                leave.setdefault(name, []).append(b)
        ms = {name: round(statistics.median(t), 1) for name, t in start.items()}
        spread = {name: [round(min(t), 1), round(max(t), 1)] for name, t in start.items()}
        rows.append(row(f"{mode}: start to 8 tasks running / floor", ms["tony"] / ms["floor"], "x", START_GOAL, ms=ms, min_max_ms=spread,
                        reps=args.reps))
        ms = {name: round(statistics.median(t), 1) for name, t in leave.items()}
        spread = {name: [round(min(t), 1), round(max(t), 1)] for name, t in leave.items()}
        rows.append(row(f"{mode}: last exit to the client's", ms["tony"], "ms", EXIT_GOAL_MS, ms=ms, min_max_ms=spread))
        rows.append(row(f"{mode}: the same, the slowest", max(leave["tony"]), "ms", 1000.0))
    world.cluster.restart("rm")
    return rows


def localized(cluster):
    """The paths of the files that the nodes cache for the user over all jobs. They come from the directories,
    since the nodes update their metrics only every ten seconds."""
    return {str(path) for path in cluster.dir.glob("nm/*/local/usercache/*/filecache/*/*")}


def again(world, args, notes):
    """Two submissions of the same job: what the second one uploads."""
    cluster, home = world.cluster, "/user/root/.tony"
    world.once(world.tony, 8)
    cache, before = cluster.tree(home + "/cache"), localized(cluster)
    with world.run(world.tony, 8) as run:
        run.running()
        staged = {name: status["length"] for name, status in cluster.tree(home).items() if name.startswith("application_")}
        fresh = set(cluster.tree(home + "/cache")) - set(cache)
        after = localized(cluster)
        run.finish()
    own = {name.split("/", 1)[1]: size for name, size in staged.items() if not name.split("/", 1)[1].startswith("journal")}
    notes.append("again: a second submission staged " + ", ".join(f"{name} ({size} bytes)" for name, size in sorted(own.items())))
    return [row("second submission: new files in the cache", len(fresh), "files", 0),
            row("second submission: its own configuration", sum(own.values()) / 1024, "KiB", files=len(own)),
            row("second submission: new files in the nodes' caches", len(after - before), "files", 0, had=len(before))]


def stopped(world, args, notes):
    """A job of a hundred containers. One NodeManager is stopped when the first container is granted. The
    containers on other nodes must not wait for it."""
    cluster, first_come = world.cluster, {"tony.application.distributed-mode": "FCFS"}
    with world.run(world.tony, 100, first_come) as run:
        undisturbed = run.running()
        run.finish()
    before = {a["id"] for a in cluster.apps()}  # the client ends before the ResourceManager reports FINISHED
    with world.run(world.tony, 100, first_come) as run:
        deadline = time.monotonic() + LIMIT_S
        while not (apps := [a for a in cluster.apps(states="RUNNING") if a["id"] not in before]):
            if time.monotonic() > deadline:
                raise Missing("the job does not run")
            time.sleep(0.005)
        port = {str(cluster.state["ports"][nm]): nm for nm in cluster.names()[3:]}
        home = port[apps[0]["amHostHttpAddress"] and cluster.attempts(apps[0]["id"])[0]["nodeId"].rpartition(":")[2]]
        victim = next(nm for nm in cluster.names()[3:] if nm != home)
        cluster.signal(victim, "STOP")
        try:
            attempt = cluster.attempts(apps[0]["id"])[0]["appAttemptId"]

            def living():
                found = cluster.rm(f"apps/{apps[0]['id']}/appattempts/{attempt}/containers").get("container", [])
                return len(found), sum(port[c["nodeId"].rpartition(":")[2]] == home for c in found) - 1
            while living()[0] < 101 and time.monotonic() < deadline:
                time.sleep(0.02)
            n = living()[1]
            took = run.running(max(n, 1))
        finally:
            cluster.signal(victim, "CONT")
        run.running()
        run.finish()
    return [row(f"{n} containers beside a stopped node / 100 undisturbed", took / undisturbed, "x", 1.0,
                ms={"beside": round(took, 1), "undisturbed": round(undisturbed, 1)})]


def memory(world, args, notes):
    with world.run(world.tony, 8) as run:
        run.running()
        masters, executors = world.processes("tony-master"), world.processes("tony-executor")
        if len(masters) != 1 or len(executors) < 8:
            raise Missing(f"{len(masters)} masters and {len(executors)} executors of a job with 8 tasks")
        rows = [row("master with 8 tasks, resident", status_kib(masters[0], "VmRSS"), "KiB", MASTER_GOAL_KIB),
                row("executor of 8, resident (largest)", max(status_kib(p, "VmRSS") for p in executors), "KiB", EXECUTOR_GOAL_KIB,
                    private_kib=statistics.median(private_kib(p) for p in executors))]
        run.finish()
    return rows
