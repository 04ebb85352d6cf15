# SPDX-License-Identifier: Apache-2.0
"""The measurements of bench/run. Each returns rows for the table: name, numbers, ratio, goal, and whether the goal
was met."""
import os
import re
import select
import signal
import statistics
import time

from world import Missing, command_of, cpu_ms, environ, parent_of, pids, private_kib, program_of, read, status_kib

# docs/architecture.md, "Speed and size": the largest allowed ratio to the peer.
HYDRA_GOAL = {1: 1.5, 64: 1.0, 256: 0.8, 1000: 0.6}
FLOOR_GOAL = 1.3  # from 16 tasks on
SRUN_GOAL = 0.35
GROWTH_GOAL = 4.6
KILL_HYDRA_GOAL, KILL_SRUN_GOAL = 1.5, 0.1
MASTER_GOAL_KIB, EXECUTOR_GOAL_KIB = 8 << 10, 1 << 10
HEARTBEAT_GOAL = 2.0
JOURNAL_GOAL = 5.0


def row(what, value, unit, goal=None, **figures):
    return {"what": what, "value": round(value, 4), "unit": unit, "goal": goal,
            "met": None if goal is None else value <= goal, **figures}


def alternate(world, commands, reps):
    """Returns the median time from start to exit of each command, in ms. The commands alternate, and each round
    begins with another one."""
    names = list(commands)
    times = {name: [] for name in names}
    for name in names:  # one run to fill the caches
        world.time(commands[name])
    for i in range(reps):
        for name in names[i % len(names):] + names[:i % len(names)]:
            times[name].append(world.time(commands[name]))
    return {name: statistics.median(t) for name, t in times.items()}, times


def launch(world, args, notes):
    sizes = (1, 16, 64) if args.quick else (1, 16, 64, 250, 256, 1000)
    rows, ours = [], {}
    for n in sizes:
        commands = world.commands(n, "/bin/true")
        if n == 250:  # only used by growth()
            commands = {"tony": commands["tony"]}
        reps = args.reps or (3 if args.quick else 7 if n <= 64 else 5)
        medians, times = alternate(world, commands, reps)
        ours[n] = medians["tony"]
        spread = {name: [round(min(t), 1), round(max(t), 1)] for name, t in times.items()}
        figures = {"ms": {k: round(v, 1) for k, v in medians.items()}, "min_max_ms": spread, "reps": reps}
        if "hydra" not in medians:
            continue
        rows.append(row(f"{n} instant tasks / hydra", medians["tony"] / medians["hydra"], "x", HYDRA_GOAL.get(n), **figures))
        rows.append(row(f"{n} instant tasks / floor", medians["tony"] / medians["floor"], "x",
                        FLOOR_GOAL if n >= 16 else None, **figures))
        rows.append(row(f"{n} instant tasks / baseline", medians["tony"] / medians["baseline"], "x", **figures))
        if "srun" in medians:
            rows.append(row(f"{n} instant tasks / srun", medians["tony"] / medians["srun"], "x",
                            SRUN_GOAL if n >= 64 else None, **figures))
    if 250 in ours:
        rows.append(row("growth, time(1000) / time(250)", ours[1000] / ours[250], "x", GROWTH_GOAL))
    return rows


def growth(world, args, notes):
    """Eight times as many tasks take at most eight times as long. Their cluster spec no longer fits into a variable."""
    few, many = (64, 512) if args.quick else (1000, 8000)
    commands = {str(n): [world.tony, "run", world.job(n, "/bin/true", memory="1m")] for n in (few, many)}
    medians, times = alternate(world, commands, args.reps or (1 if args.quick else 3))
    spread = {name: [round(min(t), 1), round(max(t), 1)] for name, t in times.items()}
    return [row(f"growth, time({many}) / time({few})", medians[str(many)] / medians[str(few)], "x", None if args.quick else many / few,
                ms={k: round(v, 1) for k, v in medians.items()}, min_max_ms=spread)]


def kill_once(world, argv, marker, n):
    """Milliseconds from the death of one task until the others, and until the launcher, have ended."""
    launcher = world.start(argv)
    try:
        tasks = world.tasks_running(marker, n)
        if argv[0] == world.tony:
            world.all_running(n)  # all tasks must run
        poller = select.poll()
        fds = {os.pidfd_open(pid): pid for pid in tasks + [launcher.pid]}
        for fd in fds:
            poller.register(fd, select.POLLIN)
        started = time.perf_counter()
        os.kill(tasks[n // 2], signal.SIGKILL)
        gone = {}
        while len(gone) < len(fds):
            ready = poller.poll(60000)
            if not ready:
                raise Missing(f"{len(fds) - len(gone)} processes live on, 60 s after one of {n} was killed ({argv[0]})")
            for fd, _ in ready:
                gone[fds[fd]] = (time.perf_counter() - started) * 1000
                poller.unregister(fd)
        for fd in fds:
            os.close(fd)
        return max(gone[p] for p in tasks), gone[launcher.pid]
    finally:
        if launcher.poll() is None:
            launcher.terminate()
        launcher.wait()


def kill(world, args, notes):
    n, marker = 16, "/bin/sleep 86399"
    commands = {"hydra": [world.mpiexec, "-bind-to", "none", "-n", str(n), *marker.split()],
                "tony": [world.tony, "run", world.job(n, marker, **{"tony.application.fail-on-worker-failure-enabled": True})]}
    if world.srun:
        commands["srun"] = [world.srun, "-K", "-n", str(n), "--overcommit", *marker.split()]
    reps = args.reps or (3 if args.quick else 7)
    got = {name: [] for name in commands}
    for i in range(reps):
        for name in sorted(commands, reverse=i % 2 == 1):
            got[name].append(kill_once(world, commands[name], marker, n))
    tasks = {name: statistics.median(t for t, _ in x) for name, x in got.items()}
    ends = {name: statistics.median(e for _, e in x) for name, x in got.items()}
    figures = {"ms": {k: round(v, 1) for k, v in tasks.items()},
               "launcher_exit_ms": {k: round(v, 1) for k, v in ends.items()}, "reps": reps}
    rows = [row("kill one of 16, all gone / hydra", tasks["tony"] / tasks["hydra"], "x", KILL_HYDRA_GOAL, **figures),
            row("kill one of 16, launcher ended / hydra", ends["tony"] / ends["hydra"], "x", ms={k: round(v, 1) for k, v in ends.items()})]
    if "srun" in tasks:
        rows.append(row("kill one of 16, all gone / srun -K", tasks["tony"] / tasks["srun"], "x", KILL_SRUN_GOAL, **figures))
    return rows


def memory(world, args, notes):
    """A thousand sleeping tasks: the memory of master and executors, and the cost of heartbeats."""
    n, marker = (64 if args.quick else 1000), "/bin/sleep 86398"
    watch_s = 3 if args.quick else 15
    launcher = world.start([world.tony, "run", world.job(n, marker, **{"tony.task.heartbeat-interval-ms": 1000})])
    try:
        world.tasks_running(marker, n)
        world.all_running(n)
        home = world.env["TONY_HOME"].encode()
        mine = [p for p in pids() if program_of(p) in ("tony-master", "tony-executor") and home in environ(p)
                and command_of(p)[:1] != ["tony-standby"]]  # of the next job
        masters = [p for p in mine if program_of(p) == "tony-master"]
        keepers = [p for p in mine if program_of(p) == "tony-executor" and command_of(p)[:1] and command_of(p)[0].startswith("tony-keeper ") and parent_of(p) not in mine]
        executors = [p for p in mine if p not in masters + keepers]
        if len(masters) != 1 or not 0 < len(executors) <= n:  # up to 16 tasks share an executor's process
            raise Missing(f"{len(masters)} masters and {len(executors)} executors for {n} tasks")
        master, private = masters[0], sum(private_kib(p) for p in executors)
        before = {p: cpu_ms(p) for p in mine}
        started = time.monotonic()
        time.sleep(watch_s)
        elapsed_ms = (time.monotonic() - started) * 1000
        spent = {p: cpu_ms(p) - before[p] for p in mine}
        share = 100 * sum(spent.values()) / elapsed_ms
        rows = [row(f"master with {n} tasks, resident", status_kib(master, "VmRSS"), "KiB", MASTER_GOAL_KIB),
                row(f"executors, private, for each of {n} tasks", private / n, "KiB", EXECUTOR_GOAL_KIB, processes=len(executors)),
                row("keeper, resident", max(status_kib(p, "VmRSS") for p in keepers) if keepers else 0, "KiB"),
                row(f"{n} tasks beating at 1 s, of a core", share, "%", HEARTBEAT_GOAL,
                    master_percent=round(100 * spent[master] / elapsed_ms, 2),
                    executors_percent=round(100 * sum(spent[p] for p in executors) / elapsed_ms, 2))]
        if args.quick:
            for r in rows:
                r["goal"] = r["met"] = None
    finally:
        name = world.newest_job().name
        world.call("kill", name, check=False)
        launcher.wait(timeout=120)
    return rows


def journal(world, args, notes):
    """The journal's share of a launch, from the master's own numbers."""
    rows = []
    for n in (1, 64) if args.quick else (1, 64, 1000):
        shares, parts = [], []
        for _ in range(3 if args.quick else 5):
            ms = world.time([world.tony, "run", world.job(n, "/bin/true")])
            log = read(world.in_history(world.newest_job().name) / "master.log")
            found = re.findall(r"journal\.closed .*?add_us=(\d+) write_us=(\d+) sync_us=(\d+)", log)
            if not found:
                notes.append("journal: master.log has no line journal.closed, so its share was not measured")
                return rows
            add, write, sync = (int(v) / 1000 for v in found[-1])
            shares.append(100 * (add + write + sync) / ms)
            parts.append({"total_ms": round(ms, 1), "add_ms": add, "write_ms": write, "sync_ms": sync})
        middle = sorted(zip(shares, range(len(shares))))[len(shares) // 2][1]
        rows.append(row(f"journal's share of {n} instant tasks", statistics.median(shares), "%", JOURNAL_GOAL, **parts[middle]))
    return rows
