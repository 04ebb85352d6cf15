# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: a home with a running pool, job files, the other launchers, and readings from /proc."""
import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from groups import Groups


class Missing(Exception):
    """A program that the measurement needs is missing."""


def read(path):
    try:
        return Path(path).read_text()
    except OSError:  # the process may have ended
        return ""


def pids():
    return [int(p) for p in os.listdir("/proc") if p.isdigit()]


def command_of(pid):
    return read(f"/proc/{pid}/cmdline").split("\0")[:-1]


def program_of(pid):
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).removesuffix(" (deleted)")
    except OSError:
        return ""


def environ(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return f.read()
    except OSError:
        return b""


def parent_of(pid):
    found = re.search(r"^PPid:\s+(\d+)", read(f"/proc/{pid}/status"), re.M)
    return int(found[1]) if found else 0


def status_kib(pid, field):
    found = re.search(rf"^{field}:\s+(\d+) kB", read(f"/proc/{pid}/status"), re.M)
    return int(found[1]) if found else 0


def private_kib(pid):
    """Memory that would become free if this process alone ended."""
    return sum(int(kib) for kib in re.findall(r"^Private_\w+:\s+(\d+) kB", read(f"/proc/{pid}/smaps_rollup"), re.M))


def cpu_ms(pid):
    """CPU time, in ns if the kernel reports it, else in ticks."""
    fields = read(f"/proc/{pid}/schedstat").split()
    if fields and int(fields[0]) > 0:
        return int(fields[0]) / 1e6
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK") if fields else 0.0


def spread_below(path):
    """
    Asks ext4 to put each directory in this one into another region of the disk, as the pool does for the directories of
    jobs. Else the floor would make its files where other programs have removed files shortly before: then it takes up to
    three times as long, and not the same time twice.
    """
    FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_TOPDIR_FL = 0x80086601, 0x40086602, 0x20000
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        flags = struct.unpack("l", fcntl.ioctl(fd, FS_IOC_GETFLAGS, b"\0" * 8))[0]
        fcntl.ioctl(fd, FS_IOC_SETFLAGS, struct.pack("l", flags | FS_TOPDIR_FL))
    except OSError:
        pass  # another file system
    finally:
        os.close(fd)


class World:
    def __init__(self, bin_dir, slurm=True):
        self.bin = bin_dir.resolve()
        self.notes = []
        self.base = self.groups = None
        self.with_slurm = slurm
        self.n_floors = 0

    def __enter__(self):
        self.tony = str(self.program(self.bin / "tony", "build first, or give --bin"))
        self.baseline = str(self.program(self.bin.parent / "bench/baseline", "build first"))
        self.floor = str(self.program(self.bin.parent / "bench/floor", "build first"))
        self.mpiexec = shutil.which("mpiexec.hydra") or shutil.which("mpiexec")
        if not self.mpiexec:
            raise Missing("there is no mpiexec; Debian's package is mpich")
        self.base = Path(tempfile.mkdtemp(prefix="tony-bench-"))
        # Sockets: in a tmpfs, as the runtime directory of a user is. mpiexec makes none.
        self.run = Path(tempfile.mkdtemp(prefix="tony-bench-", dir="/dev/shm"))
        self.env = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.base), "LANG": "C.UTF-8",
                    "TONY_HOME": str(self.base / "home"), "XDG_RUNTIME_DIR": str(self.run)}
        self.srun = self.start_slurm() if self.with_slurm else None
        self.start_pool()
        return self

    def __exit__(self, *_):
        try:
            self.call("pool", "stop", "--force", check=False)
            if self.groups:
                self.groups.close()
            if self.with_slurm:
                self.slurm("stop")
        finally:
            shutil.rmtree(self.base, ignore_errors=True)
            shutil.rmtree(self.run, ignore_errors=True)

    @staticmethod
    def program(path, hint):
        if not os.access(path, os.X_OK):
            raise Missing(f"there is no '{path}': {hint}")
        return path

    # ---- Slurm: a real one that runs only during the measurement ----

    def slurm(self, command):
        fixture = Path(__file__).resolve().parent.parent / "tests/fixtures/slurm/slurm-cluster"
        return subprocess.run([fixture, command, "--dir", self.base / "slurm"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=300)

    def start_slurm(self):
        """Path of srun; or None, with a note why its goals are not measured."""
        r = self.slurm("start")
        if r.returncode == 0:
            self.env["SLURM_CONF"] = str(self.base / "slurm/slurm.conf")
            return shutil.which("srun")
        self.notes.append(f"srun: its goals were not measured: {r.stderr.strip()}")
        return None

    # ---- tony ----

    def call(self, *args, check=True, timeout=300):
        r = subprocess.run([self.tony, *map(str, args)], env=self.env, cwd=self.base, stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, timeout=timeout)
        if check and r.returncode != 0:
            raise Missing(f"tony {' '.join(map(str, args))} ended with {r.returncode}: {r.stderr.strip()[-600:]}")
        return r.stdout

    def start_pool(self):
        self.call("pool", "start")
        home = f"TONY_HOME={self.env['TONY_HOME']}".encode()
        pool = next(p for p in pids() if program_of(p) == "tony-pool" and home in environ(p).split(b"\0"))
        self.groups = Groups(pool)
        if self.groups.why:
            self.notes.append(self.groups.why)

    def await_cleanup(self, limit_s=120):
        """
        Waits until the keepers of all finished jobs have ended. `tony run` returns earlier: the keeper removes the
        working directories and the control groups after that.
        """
        deadline = time.monotonic() + limit_s
        locks = self.base / "home/pool/locks"
        while any(lock.name != "pool" for lock in locks.iterdir()):
            if time.monotonic() > deadline:
                raise Missing(f"the clean-up after a job takes more than {limit_s} s")
            time.sleep(0.002)

    def job(self, n, command, memory="4m", **conf):
        """A job file of n tasks with a memory limit each, so small that a thousand fit."""
        path = self.base / f"job-{n}-{abs(hash((command, memory, tuple(conf.items()))))}.yaml"
        path.write_text(json.dumps({
            "name": f"bench-{n}", "framework": "generic", "command": command,
            "roles": {"worker": {"instances": n, "memory": memory, "vcores": 1}}, "conf": conf}))
        return str(path)

    def newest_job(self):
        ids = [p for where in ("jobs", "history") for p in (self.base / "home" / where).glob("application_*")]
        return max(ids, key=lambda p: int(p.name.rsplit("_", 1)[1]))

    def in_history(self, name, limit_s=30):
        path = self.base / "home/history" / name
        deadline = time.monotonic() + limit_s
        while not path.is_dir():
            if time.monotonic() > deadline:
                raise Missing(f"job {name} does not reach the history")
            time.sleep(0.005)
        return path

    # ---- all launchers ----

    def floor_command(self, n, words):
        """argv of bench/floor. Its files stay until the end: their removal would slow down those that are made next."""
        self.n_floors += 1
        where = self.base / "floor" / f"{time.time_ns()}-{self.n_floors}"  # ext4 chooses the region by the name
        if self.n_floors == 1:
            where.parent.mkdir()
            spread_below(where.parent)
        where.mkdir()
        return [self.floor, str(where), self.groups.ready(n), str(n), *words]

    def commands(self, n, command):
        """Returns {name: argv} of each launcher, for n tasks of a command; a function makes the argv of each run."""
        words = command.split()
        found = {"baseline": [self.baseline, str(n), *words],
                 "floor": lambda: self.floor_command(n, words),
                 "hydra": [self.mpiexec, "-bind-to", "none", "-n", str(n), *words],
                 "tony": [self.tony, "run", self.job(n, command)]}
        if self.srun:
            found["srun"] = [self.srun, "-n", str(n), "--overcommit", *words]
        return found

    def time(self, argv):
        """Milliseconds from start to exit. Then waits for what goes on after the exit."""
        argv = argv() if callable(argv) else argv
        with open(self.base / "out", "wb") as out:
            started = time.perf_counter()
            code = subprocess.run(argv, env=self.env, cwd=self.base, stdin=subprocess.DEVNULL, stdout=out, stderr=out).returncode
            ms = (time.perf_counter() - started) * 1000
        if code != 0:
            raise Missing(f"{' '.join(argv[:6])} ended with {code}: {read(self.base / 'out')[-600:]}")
        self.await_cleanup()
        return ms

    def start(self, argv):
        out = open(self.base / "out", "wb")
        return subprocess.Popen(argv, env=self.env, cwd=self.base, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    @staticmethod
    def tasks_running(marker, n, limit_s=120):
        """Waits for n processes with this command line; returns their pids."""
        deadline = time.monotonic() + limit_s
        while True:
            found = [p for p in pids() if command_of(p) == marker.split()]
            if len(found) == n:
                return found
            if time.monotonic() > deadline:
                raise Missing(f"{len(found)} of {n} tasks run after {limit_s} s")
            time.sleep(0.02)

    def all_running(self, n, limit_s=120):
        """Waits until the master of the newest job knows that all n tasks run."""
        deadline = time.monotonic() + limit_s
        while True:
            roles = json.loads(self.call("status", self.newest_job().name, "--json"))["roles"]
            if sum(r["running"] for r in roles) == n:
                return
            if time.monotonic() > deadline:
                raise Missing(f"the master does not know of {n} running tasks after {limit_s} s")
            time.sleep(0.02)

    def machine(self):
        model = re.search(r"^model name\s*:\s*(.*)", read("/proc/cpuinfo"), re.M)
        version = subprocess.run([self.mpiexec, "--version"], capture_output=True, text=True).stdout
        hydra = re.search(r"Version:\s*(\S+)", version)
        return {"cores": len(os.sched_getaffinity(0)), "model": model[1] if model else "unknown",
                "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
                "kernel": os.uname().release, "mpich": hydra[1] if hydra else "unknown",
                "tony": self.call("version").strip()}
