# SPDX-License-Identifier: Apache-2.0
"""
The system removes the runtime directory when the user's last session ends, and programs that clean /tmp remove
old sockets and files. Running jobs survive this, and every command finds them again.
"""

import fcntl
import os
import shutil

import pytest
from conftest import wait_until
from lib_jobs import Gated, ended, kill9, lab, make_lab  # noqa: F401 (fixtures)


def running(lab, n=2):
    """A running job, and the pids that must not change."""
    job = Gated(lab, n).running()
    return job, [lab.one("keeper", job.app), *sorted(lab.pids("executor", job.app)), *[job.pid(i) for i in range(n)]]


def undisturbed(lab, job, pids, master=None):
    """The commands work, no process was replaced, and the job ends as if nothing had happened."""
    assert lab.status(job.app)["state"] == "RUNNING"
    assert [j["state"] for j in lab.json("list")["jobs"]] == ["RUNNING"]
    now = [lab.one("keeper", job.app), *sorted(lab.pids("executor", job.app)), *[job.pid(i) for i in range(job.n)]]
    assert now == pids
    if master:
        assert lab.one("master", job.app) == master
    lab.json("pool", "start")
    assert len(lab.pids("pool")) == 1
    client = lab.start("wait", job.app)
    job.release_all()
    out, err = client.communicate(timeout=60)
    assert client.returncode == 0, (out, err)
    job.over()
    job.started_once()
    lab.settled()


@pytest.mark.parametrize("command", ["list", "status", "logs", "pool"])
def test_the_runtime_directory_is_removed_then_a_command(lab, command):
    job, pids = running(lab)
    master = lab.one("master", job.app)
    shutil.rmtree(lab.base / "run" / "tony")
    lab.ok(command, *{"list": [], "pool": ["status"]}.get(command, [job.app]))
    undisturbed(lab, job, pids, master)


def test_the_runtime_directory_is_removed_then_another_job_is_submitted(lab):
    job, pids = running(lab)
    pool = lab.one("pool")
    shutil.rmtree(lab.base / "run" / "tony")
    assert lab.run("run", lab.workers("true")).returncode == 0
    assert lab.one("pool") == pool
    job.release_all()
    job.over()
    job.started_once()


def test_the_runtime_directory_is_removed_and_the_pool_dies(lab):
    """No command is needed: the keeper starts a pool, which finds the keeper by its lock."""
    job, pids = running(lab)
    shutil.rmtree(lab.base / "run" / "tony")
    old = job.kill("pool")
    lab.one("pool", other_than=old)
    undisturbed(lab, job, pids)


def test_the_runtime_directory_is_removed_and_the_master_dies(lab):
    job, pids = running(lab)
    shutil.rmtree(lab.base / "run" / "tony")
    old = job.kill("master")
    lab.one("master", job.app, other_than=old)
    undisturbed(lab, job, pids)
    assert lab.status(job.app)["epoch"] == 2


def test_the_session_ends_and_its_runtime_directory_cannot_come_back(lab):
    """The runtime directory disappears for good, as at a logout without lingering. The programs make their sockets
    again below /tmp, and find each other there."""
    job, pids = running(lab)
    shutil.rmtree(lab.base / "run")
    lab.ok("list")
    wait_until(lambda: lab.status(job.app)["state"] == "RUNNING", "the master listens again")
    record = (lab.home / "pool/runtime").read_text().strip()
    try:
        assert record.startswith(f"/tmp/tony-{os.geteuid()}/")
        old = job.kill("master")  # the next one listens there, and the executors have to find it
        lab.one("master", job.app, other_than=old)
        (lab.base / "run").mkdir(mode=0o700)  # the user logs in again
        undisturbed(lab, job, pids)
    finally:
        shutil.rmtree(record, ignore_errors=True)


@pytest.mark.parametrize("pattern", ["pool.sock", "*.k", "*.m", "*"])
def test_a_cleaner_removes_sockets(lab, pattern):
    job, pids = running(lab)
    found = list((lab.base / "run" / "tony").glob(f"*/{pattern}"))
    assert found
    for path in found:
        path.unlink()
    os.utime(lab.home / "jobs" / job.app / "exits", (0, 0))  # the master was started long ago
    if pattern == "*.k":  # only a new pool connects to the keeper
        old = job.kill("pool")
        lab.one("pool", other_than=old)
    undisturbed(lab, job, pids)


def test_lock_files_are_removed(lab):
    """Without its lock file a keeper seems dead. It is found among the processes, and nothing is killed."""
    job, pids = running(lab)
    for path in (lab.home / "pool/locks").iterdir():
        path.unlink()
    old = job.kill("pool")
    lab.one("pool", other_than=old)
    undisturbed(lab, job, pids)


def test_a_home_serves_one_machine_at_a_time(lab):
    """Two machines mount the same TONY_HOME. While a pool of the other machine holds its lock, tony refuses to
    start one here."""
    lab.json("pool", "start")
    pool = lab.one("pool")
    kill9(pool)
    ended(pool)
    with open(lab.home / "pool/locks/pool", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate()
        lock.write("17 elsewhere.example\n")
        lock.flush()
        r = lab.run("submit", lab.workers("true"))
    assert r.returncode == 4
    assert "runs on another machine (process 17 of host elsewhere.example)" in r.stderr and "set TONY_HOME" in r.stderr
