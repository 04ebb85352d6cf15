# SPDX-License-Identifier: Apache-2.0
"""
On one machine, the cost of one task does not grow with the number of tasks: processor time, bytes read and
written, memory.
"""

import os
import pathlib
import re
import resource
import subprocess

import pytest
from conftest import BIN, make_base, own_tony, wait_until  # noqa: F401 (fixture)
from lib_jobs import Lab

POOL = {"pool.memory": "64g"}
SMALL = {"memory": "4m", "vcores": 0}
TASKS_MAX = 2000  # each task needs two processes, and an open file of the master

FILES_MAX, PROCESSES_MAX = (resource.getrlimit(limit)[1] for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
pytestmark = [
    pytest.mark.skipif(b"__asan_init" in (BIN / "tony-executor").read_bytes(), reason="build: a sanitizer needs memory for each executor"),
    pytest.mark.skipif(0 <= FILES_MAX < 2 * TASKS_MAX or 0 <= PROCESSES_MAX < 4 * TASKS_MAX, reason="hardware: this machine allows too few files or processes"),
]


@pytest.fixture
def lab(own_tony):  # noqa: F811
    made = Lab(make_base(), site=POOL)
    own_tony.made.append(made)
    return made


def processor_ms_per_task(lab, n):
    """
    Processor time of pool, keeper, master, executors and tasks. The pool is a child of this process and the
    ancestor of all others.
    """
    pool = subprocess.Popen([BIN / "tony-pool", "--foreground"], env=lab.env, cwd=lab.base, stdin=subprocess.DEVNULL)
    wait_until(lambda: lab.pool_pid() == pool.pid, "the pool runs")
    r = lab.run("run", lab.workers("true", n=n, role=SMALL), timeout=120)
    assert r.returncode == 0, r.stderr[-2000:]
    lab.quiet()
    lab.ok("pool", "stop")
    _, status, used = os.wait4(pool.pid, 0)
    pool.returncode = status
    return (used.ru_utime + used.ru_stime) * 1000 / n


@pytest.mark.slow
@pytest.mark.alone("measures processor time")
def test_processor_time_of_a_task(lab):
    """
    If the time of a job grew with the square of its tasks, the ratio would be 4. The test tries three times,
    because other load disturbs some runs.
    """
    found = []
    for _ in range(3):
        few, many = processor_ms_per_task(lab, 500), processor_ms_per_task(lab, TASKS_MAX)
        if many <= 1.5 * few:
            return
        found.append((few, many))
    pytest.fail(f"ms for each of 500 tasks, and for each of 2000: {found}")


def numbers(pid, name):
    text = pathlib.Path(f"/proc/{pid}/{name}").read_text()
    return {key: int(value) for key, value in re.findall(r"^(\w+):\s+(\d+)", text, re.M)}


def bytes_moved(pid):
    io = numbers(pid, "io")
    return io["rchar"] + io["wchar"]


def measure_running(lab, n):
    """
    While n tasks run: the bytes for each task in keeper and master, and the bytes and the memory of the
    newest executor.
    """
    app = lab.submit(lab.workers("exec sleep 1000", n=n, role=SMALL, conf={"tony.application.addresses-in-environment": False}))
    wait_until(lambda: lab.n_running(app) == n, "all tasks run", 60, 0.2)
    keeper, master = lab.one("keeper", app), lab.one("master", app)
    newest = int(pathlib.Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()[-1])
    found = {"keeper": bytes_moved(keeper) / n, "master": bytes_moved(master) / n, "executor": bytes_moved(newest),
             "memory_kib": numbers(newest, "smaps_rollup")["Anonymous"]}
    lab.ok("kill", app, timeout=60)
    lab.quiet()
    return found


@pytest.mark.slow
@pytest.mark.alone("a thousand tasks")
def test_bytes_and_memory_of_a_task(lab):
    """No executor gets or reads a list of all tasks, and a process that the keeper forks does not keep the
    keeper's list. The test tries three times: the longer a run takes, the more an executor reads."""
    found = []
    for _ in range(3):
        few, many = measure_running(lab, 250), measure_running(lab, 1000)
        found.append((few, many))
        if (many["keeper"] <= 1.2 * few["keeper"]
                and many["master"] <= 4 * few["master"]  # this test asks for status documents, with some hundred bytes for each task
                and many["executor"] <= few["executor"] + 4096  # 1000 addresses take 18 KB
                and many["memory_kib"] <= few["memory_kib"] + 96):
            return
    pytest.fail(f"bytes and memory of 250 tasks, and of 1000: {found}")
