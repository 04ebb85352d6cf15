# SPDX-License-Identifier: Apache-2.0
"""
One real Hadoop cluster for all tests of one pytest process; see tests/fixtures/hadoop/hadoop-cluster. A test
may break the cluster, and should repair it. If it does not, the cluster is repaired here before the next
test. A test fails if it leaves an application running.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import pytest
from lib_cluster import MASTERS, Cluster, wait_until
from lib_tony import BIN, Tony

TEST_LIMIT_S = 900  # a test takes about 10 s; the machine may be busy
# Room for hundreds of small containers, and heartbeats so fast that a test need not wait for them. The limits
# on silence are Hadoop's default of 10 minutes; a test that needs such an end sets a shorter limit.
OPTIONS = ["--nodemanagers", "2", "--nm-memory-mb", "8192", "--nm-vcores", "128", "--nm-heartbeat-ms", "200", "--pmem-check",
           # GPUs (2 on each node, none of them real) and licences (3 on each node), which Hadoop only counts
           *[x for s in ("yarn:yarn.resource-types=yarn.io/gpu,example.com/licence", "nm:yarn.nodemanager.resource-type.yarn.io/gpu=2",
                         f"yarn:yarn.resourcemanager.am.max-attempts={MASTERS}",
                         "nm:yarn.nodemanager.resource-type.example.com/licence=3") for x in ("--set", s)]]


@pytest.fixture(scope="session")
def the_cluster():
    base = pathlib.Path(tempfile.mkdtemp(prefix="ty-", dir="/tmp"))
    cluster = Cluster(base / "c")
    try:
        cluster.start(*OPTIONS)
        yield cluster
        cluster.stop()
        left = cluster.processes()
        assert not left, f"processes left over: {left}"
    finally:
        with contextlib.suppress(AssertionError):
            cluster.stop()
        shutil.rmtree(base, ignore_errors=True)


def end_applications(cluster):
    """
    Ends all applications. Returns the ids of those that still ran. An application whose client already has
    the verdict may need a moment to end.
    """
    deadline = time.monotonic() + 120
    while (live := cluster.live_apps()) and time.monotonic() < deadline:
        time.sleep(0.1)
    for app in live:
        cluster.kill_app(app)
    for app in live:
        cluster.await_app(app, "FINISHED", "FAILED", "KILLED")
    return live


@pytest.fixture
def cluster(the_cluster):
    """
    The cluster. It works at the start of the test. At the end it must work, and have no application and no
    process of one.
    """
    the_cluster.repair()
    yield the_cluster
    mended = the_cluster.repair()
    live = end_applications(the_cluster)
    deadline = time.monotonic() + 120
    while (left := the_cluster.processes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not live, f"applications left over: {live}"
    assert not left, f"processes left over: {left}"
    if mended:
        print(f"had to be mended: {mended}")


@pytest.fixture
def base():
    """A directory for one test."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="tu-", dir="/tmp"))
    yield path
    for home in path.rglob("tony/pool"):  # a test that also used the pool of this machine
        subprocess.run([BIN / "tony", "pool", "stop", "--force"], env={**os.environ, "HOME": str(path), "TONY_HOME": str(home.parent)},
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
    for folder in path.rglob("*"):
        if folder.is_dir() and not folder.is_symlink():
            folder.chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


def staging(cluster):
    """Files staged for single applications of any user."""
    return [f"{user}/{name}" for user in cluster.ls("/user") for name in cluster.ls(f"/user/{user}/.tony")
            if name.startswith("application_")]


@pytest.fixture
def tony(cluster, base):
    """
    `tony` on its own machine. Files that its jobs staged must be gone at the end; if a master was killed, the
    next job removes them.
    """
    assert (BIN / "tony").exists(), f"no programs in {BIN}: build first, or set TONY_BIN"
    before = staging(cluster)
    t = Tony(base, cluster)
    yield t

    def cleared():
        return set(staging(cluster)) <= set(before) or bool(cluster.live_apps())
    try:
        wait_until(cleared, "staging directories removed", 5, 0.1)
    except AssertionError:
        t.ok("run", t.workers("true"))
        wait_until(cleared, "staging directories removed by the next client", pause=0.1)


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
    """A failed test shows the daemons' complaints and the containers' logs from its time."""
    outcome = yield
    report = outcome.get_result()
    if report.when != "call" or not report.failed or "the_cluster" not in item.funcargs:
        return
    cluster = item.funcargs["the_cluster"]
    parts = []
    for path in sorted(cluster.dir.glob("nm/nm*/logs/*/*/*")):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime >= call.start and path.stat().st_size > 0:
                parts.append(f"---- {path}\n{path.read_text(errors='replace')[-3000:]}")
    report.sections.append(("containers", "\n".join(parts[-30:])))
    with contextlib.suppress(OSError):
        lines = [x for log in ("rm", "nm1", "nm2") for x in (cluster.dir / "logs" / f"{log}.log").read_text().splitlines()[-400:]
                 if " WARN " in x or " ERROR " in x]
        report.sections.append(("daemons", "\n".join(lines[-40:])))
