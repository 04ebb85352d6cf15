# SPDX-License-Identifier: Apache-2.0
"""
bench/dorm --live: a scaled day of real trainings on a pool of this machine, once under each policy.

The day is one of `tony simulate --generate small`, `scale` times as fast, on half the machines: the fixed and the
largest number of containers are halved as well. The pool divides memory only. Its units stand for the cores of the
generated machines: a container of 2 cores is one unit, one of 4 cores and a GPU is two. Each training
(bench/dorm_train.py) makes a fixed number of steps, at a fixed rate for each worker.

With --gpus the pool has GPUs, too, which exist only as numbers, and each container of 4 cores and a GPU gets one. Each
worker locks its device, so a device that two live workers have is noticed.
"""
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import dorm_figures

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRAIN = ROOT / "bench/dorm_train.py"
UNITS, UNIT_MIB = 60, 96  # the pool; each unit is one container of the least demand
POLICIES = ("static", "drf", "dorm")
FIRST_S, SAMPLE_S, DAY_S = 5 * 3600, 600, 86400  # of the generated day
INTERVAL_MS = 1000  # between two decisions of the pool
OVERHEAD_GOAL = 5.0
# Two journals have a container's end and the next container's begin up to this much in the wrong order.
SLACK_S = 0.25
COLUMNS = ("id", "arrival_s", "units", "gpus", "weight", "min", "max", "static", "duration_s", "exponent")


class Trouble(Exception):
    """The measurement cannot be made."""


def day_of(tony, n_jobs, seed, scale, gpus):
    """The rows of the day: dicts with the COLUMNS, and the number of steps. gpus: of the pool; 0 = no job asks for one."""
    made = subprocess.run([tony, "simulate", "--generate", "small", "--jobs", str(n_jobs), "--seed", str(seed)], stdout=subprocess.PIPE,
                          text=True, check=True).stdout
    lines = [line for line in made.splitlines() if not line.startswith("#")]
    names = lines[0].split(",")
    rows = []
    for line in lines[1:]:
        old = dict(zip(names, line.split(",")))
        gpu = int(old["gpus"]) > 0
        fixed, most = (int(old["static"]), int(old["max"])) if gpu else (int(old["static"]) // 2, int(old["max"]) // 2)
        duration_s = float(old["duration_s"]) / scale
        steps = max(4, round(duration_s * fixed))  # one worker makes one step in a second
        rows.append({"id": old["id"], "arrival_s": float(old["arrival_s"]) / scale, "units": 2 if gpu else 1,
                     "gpus": 1 if gpu and gpus else 0, "weight": int(old["weight"]),
                     "min": 1, "max": most, "static": fixed, "duration_s": steps / fixed, "exponent": 1, "steps": steps})
    return rows


def capacity_of(gpus):
    return {"units": UNITS, **({"gpus": gpus} if gpus else {})}


def simulated(tony, rows, policy, stall_s, scale, capacity):
    """What `tony simulate` says of the same day, with stalls of this length."""
    columns = [c for c in COLUMNS if c != "gpus" or "gpus" in capacity]
    head = ["# resources " + " ".join(capacity), "# nodes 1 " + " ".join(map(str, capacity.values())), f"# resize_s {stall_s:.3f}", f"# interval_s {INTERVAL_MS / 1000}",
            f"# horizon_s {max(1.0, DAY_S / scale):.3f}", "# theta 0.1 0.1", ",".join(columns)]
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write("\n".join(head + [",".join(str(row[c]) for c in columns) for row in rows]) + "\n")
        file.flush()
        out = subprocess.run([tony, "simulate", file.name, "--policy", policy, "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(out)[0]


def write_digits(path):
    """scikit-learn's handwritten digits, without loading scikit-learn."""
    import gzip
    import numpy as np
    found = importlib.util.find_spec("sklearn")
    if not found:
        raise Trouble("scikit-learn is missing, whose handwritten digits are the data: apt-get install python3-sklearn")
    with gzip.open(pathlib.Path(found.submodule_search_locations[0]) / "datasets/data/digits.csv.gz") as f:
        table = np.loadtxt(f, delimiter=",")
    table = table[np.random.RandomState(1).permutation(len(table))]
    np.savez(path, x=table[:, :64] / 16, y=table[:, 64].astype(int))


def train_args(row, data):
    return [sys.executable, str(TRAIN), "--data", str(data), "--steps", str(row["steps"]), "--seed", str(int(row["id"][1:]) + 1)]


class Watch(threading.Thread):
    """Reads /proc ten times a second, and keeps the largest number of units of containers in which trainings ran
    at the same moment."""

    def __init__(self, base, units_of):
        super().__init__(daemon=True)
        self.mark, self.units_of, self.most, self.over = b"HOME=" + os.fsencode(base), units_of, 0, threading.Event()

    def look(self):
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = pathlib.Path("/proc", pid, "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if self.mark in words:
                env = dict(w.split(b"=", 1) for w in words if b"=" in w)
                if b"TONY_CONTAINER_ID" in env:
                    found[env[b"TONY_CONTAINER_ID"]] = (pid, env.get(b"TONY_JOB_NAME", b"").decode())
        # The list was not made at one moment. The processes that still live now have all lived at one moment.
        return sum(self.units_of.get(name, 1) for pid, name in found.values() if self.lives(pid))

    @staticmethod
    def lives(pid):
        try:
            return pathlib.Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    def run(self):
        while not self.over.wait(0.1):
            self.most = max(self.most, self.look())


class Day:
    """The jobs of one day under one policy, in a home of their own."""

    def __init__(self, binaries, policy, rows, data, base, gpus):
        self.tony, self.policy, self.rows, self.data = str(binaries / "tony"), policy, rows, data
        self.base = base
        self.home = base / "home"
        (base / "run").mkdir(mode=0o700)
        (base / "conf").mkdir()
        (base / "devices").mkdir()
        settings = {"memory": f"{UNITS * UNIT_MIB}m", "gpus": gpus, "policy": policy, "policy.interval": INTERVAL_MS, "policy.theta1": 0.1,
                    "policy.theta2": 0.1}
        (base / "conf/tony-site.yaml").write_text("conf:\n" + "".join(f"  tony.pool.{k}: {v}\n" for k, v in settings.items()))
        self.env = {"PATH": f"{binaries}:/usr/bin:/bin", "HOME": str(base), "LANG": "C.UTF-8", "TONY_HOME": str(self.home),
                    "XDG_RUNTIME_DIR": str(base / "run"), "TONY_CONF_DIR": str(base / "conf"), "TONY_GPU_LOCKS": str(base / "devices")}
        self.apps = {}

    def call(self, *args, check=True, timeout=1800):
        r = subprocess.run([self.tony, *args], env=self.env, cwd=self.base, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, timeout=timeout)
        if check and r.returncode != 0:
            raise Trouble(f"tony {' '.join(args)} ended with {r.returncode}: {r.stderr.strip()[-600:]}")
        return r.stdout

    def job_file(self, row):
        command = " ".join([*train_args(row, self.data), "--checkpoints", str(self.base / "checkpoints" / row["id"])])
        if row["gpus"]:
            command += f" --devices {self.base / 'devices'}"
        role = {"instances": row["static"], "min-instances": row["min"], "max-instances": row["max"], "resize": "restart",
                "gpus": row["gpus"], "memory": f"{row['units'] * UNIT_MIB}m", "command": command}
        path = self.base / f"{row['id']}.yaml"
        path.write_text(json.dumps({"name": row["id"], "framework": "generic", "weight": row["weight"], "roles": {"worker": role}}))
        return path

    def run(self):
        """Submit each job when it arrives, wait for all, and return the finished jobs."""
        files = {row["id"]: self.job_file(row) for row in self.rows}
        self.call("pool", "start")
        self.watch = Watch(self.base, {row["id"]: row["units"] for row in self.rows})
        self.watch.start()
        began, self.day_ms = time.monotonic(), time.time_ns() // 1000000
        for row in self.rows:
            time.sleep(max(0.0, began + row["arrival_s"] - time.monotonic()))
            self.apps[row["id"]] = self.call("submit", str(files[row["id"]])).strip()
        for app in self.apps.values():
            self.call("wait", app, check=False)
        self.watch.over.set()
        self.watch.join()
        return self.read()

    def read(self):
        """The finished jobs, as the list, the status and the files of the history have them."""
        deadline = time.monotonic() + 60
        missing = set(self.apps.values())
        while missing and time.monotonic() < deadline:
            missing = {app for app in missing if not (self.home / "history" / app / "status.json").exists()}
            time.sleep(0.05)
        listed = {job["application_id"]: job for job in json.loads(self.call("list", "--json"))["jobs"]}
        jobs = []
        for row in self.rows:
            app = self.apps[row["id"]]
            if app not in missing and app in listed:
                status = json.loads(self.call("status", app, "--json"))
                jobs.append(dorm_figures.Job(row, self.home / "history" / app, self.day_ms, listed[app], status))
        return jobs

    def doubles(self):
        """A line for each time that a worker found its device in use by another one."""
        path = self.base / "devices" / "double"
        return path.read_text().splitlines() if path.exists() else []

    def draw(self, path):
        """A picture of what each job held."""
        self.call("simulate", "--from-history", "--policy", "real", "--plot", str(path), "--charts", "partitions")

    def stop(self):
        self.call("pool", "stop", "--force", check=False)


class Fair:
    """The fair shares of jobs, as `tony allocate` computes them. For the same jobs `tony allocate` is called only
    once."""

    def __init__(self, tony, capacity):
        self.tony, self.capacity, self.known = tony, capacity, {}

    def __call__(self, rows):
        if rows not in self.known:
            n = len(self.capacity)
            apps = [{"id": i, "demand": [units, gpus][:n], "weight": weight, "min": 1, "max": most} for i, units, gpus, weight, most in rows]
            asked = json.dumps({"kind": "drf", "resources": list(self.capacity), "nodes": [{"capacity": list(self.capacity.values())}],
                                "apps": apps})
            out = subprocess.run([self.tony, "allocate"], input=asked, stdout=subprocess.PIPE, text=True, check=True).stdout
            self.known[rows] = [json.loads(out)["counts"].get(app["id"], 0) for app in apps]
        return self.known[rows]


def measure(binaries, rows, policies, scale, gpus, keep):
    """{policy: (figures, faults, simulated)}. keep: a directory for the homes, or None."""
    tony = str(binaries / "tony")
    capacity = capacity_of(gpus)
    fair = Fair(tony, capacity)
    found = {}
    base = pathlib.Path(tempfile.mkdtemp(prefix="tony-day-", dir="/tmp"))
    try:
        data = base / "digits.npz"
        write_digits(data)
        alone = {row["id"]: json.loads(subprocess.run([*train_args(row, data), "--alone"], stdout=subprocess.PIPE, text=True,
                                                      check=True).stdout) for row in rows}
        for policy in policies:
            (base / policy).mkdir()
            day = Day(binaries, policy, rows, data, base / policy, gpus)
            print(f"{policy}: {len(rows)} jobs, the last arrives after {rows[-1]['arrival_s']:.0f} s", file=sys.stderr, flush=True)
            try:
                jobs = day.run()
                day.draw(base / f"{policy}.svg")
            finally:
                day.stop()
            wrong = dorm_figures.faults(jobs, rows, capacity, alone, day.watch.most, SLACK_S)
            wrong += [f"a GPU was given twice: {line}" for line in day.doubles()]
            if not jobs:
                raise Trouble(f"{policy}: no job is in the history: {'; '.join(wrong)}")
            figures = dorm_figures.figures(jobs, capacity, FIRST_S / scale, SAMPLE_S / scale, fair)
            figures["most units seen at once"] = day.watch.most
            found[policy] = (figures, wrong, simulated(tony, rows, policy, figures["median stall s"], scale, capacity))
        return found
    finally:
        if keep:
            shutil.copytree(base, keep, dirs_exist_ok=True, ignore=lambda d, names: [n for n in names if n == "run"])
        shutil.rmtree(base, ignore_errors=True)


# name, of the figures, of a simulated row, and how the ratio to static is made (None: there is none)
ROWS = (
    ("utilization, first part", "utilization, first part", None, lambda a, static: a / static),
    ("utilization, whole day", "utilization", None, lambda a, static: a / static),
    ("GPUs, whole day", "GPUs", None, lambda a, static: a / static),
    ("mean completion, s", "mean completion s", "jct_mean_s", lambda a, static: static / a),
    ("fairness loss", "fairness loss", None, lambda a, static: static / a),
    ("adjustments", "adjustments", "adjustments", None),
    ("overhead, %", "overhead %", "overhead_percent", None),
    ("lost at starts, %", "lost at starts %", None, None),
    ("lost at ends, %", "lost at ends %", None, None),
    ("median stall, s", "median stall s", None, None),
    ("last job ends, s", "end s", "end_s", None),
    ("most units seen at once", "most units seen at once", None, None),
)


def print_table(found, scale, n_jobs, gpus):
    print(f"{n_jobs} jobs, {scale:g} times as fast as generated; {UNITS} units, {gpus} GPUs. In brackets: simulated, with the median stall")
    print("".ljust(26) + "".join(policy.rjust(22) for policy in found) + "   ratio to static")
    for name, key, of_sim, ratio in ROWS:
        if key == "GPUs" and not gpus:
            continue
        cells = [f"{figures[key]:.2f}" + (f" ({sim[of_sim]:.2f})" if of_sim else "") for figures, _, sim in found.values()]
        static = found["static"][0][key] if "static" in found else 0
        ratios = [f"{policy} {ratio(figures[key], static):.2f}" for policy, (figures, _, _) in found.items()
                  if ratio and static and figures[key] and policy != "static"]
        print(name.ljust(26) + "".join(cell.rjust(22) for cell in cells) + "   " + ", ".join(ratios))


def main(binaries, n_jobs, seed, scale, policies, gpus, keep, as_json):
    rows = day_of(str(binaries / "tony"), n_jobs, seed, scale, gpus)
    print(f"{len(rows)} jobs, which run {statistics.mean(r['duration_s'] for r in rows):.0f} s on average with their fixed size", file=sys.stderr)
    found = measure(binaries, rows, policies, scale, gpus, keep)
    if as_json:
        print(json.dumps({p: {"figures": f, "faults": wrong, "simulated": sim} for p, (f, wrong, sim) in found.items()}, indent=1))
    else:
        print_table(found, scale, len(rows), gpus)
    wrong = [f"{policy}: {fault}" for policy, (_, faults, _) in found.items() for fault in faults]
    for line in wrong:
        print(line, file=sys.stderr)
    if "dorm" in found:
        met = found["dorm"][0]["overhead %"] <= OVERHEAD_GOAL
        print(f"goal: overhead of dorm at most {OVERHEAD_GOAL:g} %: {'pass' if met else 'MISS'}", file=sys.stderr)
    print("no job lost, nothing given twice, all results right" if not wrong else f"{len(wrong)} faults", file=sys.stderr)
    return 1 if wrong else 0
