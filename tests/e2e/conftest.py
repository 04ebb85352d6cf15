# SPDX-License-Identifier: Apache-2.0
"""
Fixtures that run the real programs. Each test run has its own TONY_HOME, and a failed test shows all logs.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TONY_BIN") or pathlib.Path(os.environ.get("TONY_BUILD", ROOT / "build")) / "bin")
PROGRAMS = ("tony", "tony-pool", "tony-master", "tony-executor", "tony-pack", "tony-gpu", "tony-exact")
NOBODY = 65534
TEST_LIMIT_S = 300


def app_of(done):
    """The application id of a `tony run` that has ended: in its last lines, after what the tasks wrote."""
    return re.search(r"^job (application_\d+_\d+) ", done.stdout, re.M).group(1)


def wait_until(condition, what, limit=60.0, pause=0.01):
    """Waits until condition() returns a true value, and returns that. At the deadline the test fails with the text
    `what`."""
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"within {limit} s: {what}"
        time.sleep(pause)


def processes_with(variable):
    """{pid: command line} of the processes whose environment contains `variable`, such as b"K=V". Zombies have no
    environment, so they are not found."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            environ = pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0")
            if variable in environ:
                cmdline = pathlib.Path("/proc", entry, "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(entry)] = cmdline.decode(errors="replace").strip()
        except OSError:
            continue
    found.pop(os.getpid(), None)
    return {pid: line for pid, line in found.items() if line}


class Tony:
    """
    The program `tony` with a home. copy: the programs are copied, so that a test can remove one. as_nobody:
    if root runs the tests, tony runs as a user who may not read and write everything.
    """

    def __init__(self, base, copy=False, as_nobody=False, **extra):
        self.base = pathlib.Path(base)
        self.home = self.base / "home"
        self.bin = BIN
        self.user = {}
        if as_nobody and os.geteuid() == 0:
            copy = True  # user nobody may not enter BIN
            self.user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        if copy:
            self.bin = self.base / "bin"
            self.bin.mkdir()
            for name in PROGRAMS:
                if (BIN / name).exists():
                    shutil.copy2(BIN / name, self.bin / name)
        self.env = {
            "PATH": f"{self.bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.base),
            "LANG": "C.UTF-8",
            "TONY_HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.base / "run"),
            **extra,
        }
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "LLVM_PROFILE_FILE", "GCOV_PREFIX", "GCOV_PREFIX_STRIP"):
            if name in os.environ:
                self.env[name] = os.environ[name]
        (self.base / "run").mkdir(mode=0o700, exist_ok=True)
        if self.user:
            self.give(self.base, self.base / "run")
        self.n_files = 0

    def give(self, *paths):
        """Give these files to the user who runs tony."""
        for path in paths if self.user else ():
            os.chown(path, NOBODY, NOBODY)

    # ---- running it ----

    def run(self, *args, timeout=60, cwd=None, env=None, **kw):
        """Accepts any exit code; stdout and stderr are text."""
        return subprocess.run([str(self.bin / "tony"), *map(str, args)], env={**self.env, **(env or {})}, cwd=cwd or self.base,
                              stdin=subprocess.DEVNULL, stdout=kw.pop("stdout", subprocess.PIPE), stderr=subprocess.PIPE,
                              text=True, timeout=timeout, **self.user, **kw)

    def ok(self, *args, **kw):
        """The stdout of a command that must succeed."""
        r = self.run(*args, **kw)
        assert r.returncode == 0, f"tony {args}: exit {r.returncode}\n{r.stdout}\n{r.stderr}"
        return r.stdout

    def json(self, *args, **kw):
        return json.loads(self.ok(*args, "--json", **kw))

    def start(self, *args, cwd=None, env=None, **kw):
        """A Popen, for a command that the test interrupts."""
        return subprocess.Popen([str(self.bin / "tony"), *map(str, args)], env={**self.env, **(env or {})}, cwd=cwd or self.base,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                **self.user, **kw)

    # ---- jobs ----

    def job_file(self, roles=None, directory=None, **top):
        """
        Makes a job file from a dict (JSON is YAML). roles: {"worker": {...}}; the default memory is small.
        """
        doc = {"name": "test", "framework": "generic", **top}
        if roles is not None:
            doc["roles"] = {name: {"memory": "64m", **role} for name, role in roles.items()}
        self.n_files += 1
        path = pathlib.Path(directory or self.base) / f"job{self.n_files}.yaml"
        path.write_text(json.dumps(doc, indent=1))
        return path

    def workers(self, command, n=1, directory=None, role=None, **top):
        return self.job_file({"worker": {"instances": n, "command": command, **(role or {})}}, directory, **top)

    def submit(self, path, *args):
        return self.ok("submit", path, *args).strip()

    def status(self, app):
        return self.json("status", app)

    def state(self, app):
        return self.status(app)["state"]

    def await_state(self, app, *states, limit=60):
        return wait_until(lambda: (lambda s: s if s["state"] in states else None)(self.status(app)),
                          f"job {app} in {states}", limit, 0.03)

    def tasks(self, app):
        return {t["task"]: t for t in self.json("tasks", app)["tasks"]}

    def dir(self, app):
        """The job's directory: live or in the history."""
        for where in ("jobs", "history"):
            if (self.home / where / app).is_dir():
                return self.home / where / app
        raise AssertionError(f"no directory of {app}")

    def in_history(self, app, limit=60):
        return wait_until(lambda: (self.home / "history" / app).is_dir() and self.home / "history" / app,
                          f"{app} in the history", limit)

    def log(self, app, task, stream="stdout", attempt=1):
        return (self.dir(app) / "logs" / task.replace(":", "-") / str(attempt) / stream).read_text()

    def log_so_far(self, app, task, *args, **kw):
        """Like log(), for a task that may have no log yet: to wait for its output."""
        try:
            return self.log(app, task, *args, **kw)
        except FileNotFoundError:
            return ""

    def jobs_on_disk(self):
        return sorted(p.name for where in ("jobs", "history") for p in (self.home / where).glob("*"))

    def journal(self, app):
        return [json.loads(line) for line in (self.dir(app) / "journal").read_text().splitlines()]

    def pool_pid(self):
        return self.json("pool", "status").get("pid")

    # ---- the end ----

    def processes(self):
        return processes_with(b"TONY_HOME=" + os.fsencode(self.home))

    def processes_of_jobs(self):
        """The processes of this home, except for the pool and its standby: the keeper and the master that it keeps
        ready for the next job."""
        return {pid: line for pid, line in self.processes().items() if "tony-pool" not in line and not line.startswith("tony-standby")}

    def stop(self):
        """Ends the pool with all its jobs. Returns the processes that are left after that, and kills them."""
        mine = self.home.is_dir() and os.access(self.home, os.W_OK)
        if mine:
            self.run("pool", "stop", "--force")
        deadline = time.monotonic() + 60
        n_empty = 0  # look several times: a dying process may just have started another one
        while time.monotonic() < deadline:
            left = self.processes()
            n_empty = 0 if left else n_empty + 1
            if n_empty == 2:
                break
            if mine and any("tony-pool" in line for line in left.values()):
                # A client that missed a killed pool may have been starting another one just then.
                self.run("pool", "stop", "--force")
            time.sleep(0.02)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return left

    def logs_text(self, newer_than):
        parts = []
        for pattern in ("pool/pool.log", "*/application_*/*.log", "*/application_*/journal", "*/application_*/exits",
                        "*/application_*/logs/*/*/*"):
            for path in sorted(self.home.glob(pattern)):
                try:
                    if path.stat().st_mtime < newer_than:
                        continue
                    text = path.read_text(errors="replace")
                except OSError:
                    continue
                parts.append(f"---- {path}\n{text[-4000:]}")
        return "\n".join(parts[-40:])


MEMORY_DIR, MEMORY_DIR_FREE = "/dev/shm", 4 << 30


def base_dir():
    """
    The directory for the files of tests: in memory if there is room. On ext4 the creation of a file takes longer the
    more files were removed in the minutes before, and the tests remove many.
    """
    try:
        s = os.statvfs(MEMORY_DIR)
    except OSError:
        return "/tmp"
    usable = os.access(MEMORY_DIR, os.W_OK) and not s.f_flag & os.ST_NOEXEC and s.f_bavail * s.f_frsize >= MEMORY_DIR_FREE
    return MEMORY_DIR if usable else "/tmp"


def make_base():
    # Short, because the directory of the sockets is in it.
    return pathlib.Path(tempfile.mkdtemp(prefix="te-", dir=base_dir()))


def remove_base(base):
    for path in base.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="session")
def common_tony():
    assert (BIN / "tony").exists(), f"no programs in {BIN}: build first, or set TONY_BIN"
    base = make_base()
    t = Tony(base)
    yield t
    left = t.stop()
    live = sorted(p.name for p in (t.home / "jobs").glob("*")) if (t.home / "jobs").is_dir() else []
    sockets = [p.name for p in (base / "run").rglob("*") if p.is_socket()]
    remove_base(base)
    assert not left, f"processes left over: {left}"
    assert not live, f"live jobs left over: {live}"
    assert not sockets, f"sockets left over: {sockets}"


@pytest.fixture
def tony(common_tony):
    """One TONY_HOME and pool for all tests that do not damage them."""
    return common_tony


@pytest.fixture
def own_tony():
    """A TONY_HOME and pool for one test. A factory: own_tony(KEY=VALUE, ...) sets variables."""
    made = []

    def make(**extra):
        t = Tony(make_base(), **extra)
        made.append(t)
        return t

    make.made = made
    yield make
    problems = []
    for t in made:
        left = t.stop()
        remove_base(t.base)
        if left:
            problems.append(f"processes left over: {left}")
    assert not problems, problems


@pytest.fixture
def small_disk(own_tony):
    """A TONY_HOME on a file system of 3 MB."""
    tony = own_tony()
    tony.home.mkdir(0o700)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", str(tony.home)], capture_output=True)
    if mounted.returncode:
        pytest.skip("cannot mount a small file system here")
    yield tony
    tony.stop()
    subprocess.run(["umount", "-l", str(tony.home)], check=True)


@pytest.fixture(autouse=True)
def limit():
    """No test blocks the suite for ever."""

    def late(signo, frame):
        raise TimeoutError(f"the test took longer than {TEST_LIMIT_S} s")

    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(TEST_LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        homes = []
        if "own_tony" in item.funcargs:
            homes += item.funcargs["own_tony"].made
        if "common_tony" in item.funcargs or "tony" in item.funcargs:
            homes.append(item.funcargs.get("tony") or item.funcargs["common_tony"])
        for t in homes:
            report.sections.append((f"logs in {t.home}", t.logs_text(call.start)))
