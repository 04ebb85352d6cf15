# SPDX-License-Identifier: Apache-2.0
"""
The disk becomes full while a job runs. Running tasks go on, nothing new starts, and the job goes on once
there is room.
"""

import contextlib
import errno
import json
import os
import resource
import threading

import pytest

from conftest import wait_until
from lib_jobs import kill9
from lib_points import make_points_lab  # noqa: F401 (fixture)


def fill(path):
    """Fills the disk to its last byte."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for size in (4096, 1):
        try:
            while True:
                os.write(fd, b"x" * size)
        except OSError:
            pass
    os.close(fd)


@contextlib.contextmanager
def kept_full(path):
    """Fills the disk, and again whatever is freed meanwhile, such as the files of containers that have ended. Ends with room."""
    over = threading.Event()

    def refill():
        while not over.wait(0.001):
            fill(path)
    fill(path)
    thread = threading.Thread(target=refill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        path.unlink()


def hears(run, words):
    """Reads the output of `tony run` until it contains these words."""
    said = ""
    while words not in said:
        line = run.stderr.readline()
        assert line, f"it never said '{words}': {said}"
        said += line
    return said


AGAIN = {"restart": "on-failure", "max-restarts": 9, "restart-scope": "task"}


def waiting_job(tony, n=60, **role):
    """n tasks that wait for the flag. Returns the application once all of them run."""
    flag = tony.base / "go"
    job = tony.workers(f"while [ ! -e {flag} ]; do sleep 0.05; done", n=n, role={"memory": "16m", "vcores": 0, **role})
    run = tony.start("run", job)
    live = wait_until(lambda: [p for p in (tony.home / "jobs").glob("application_*")], "a live job")
    app = live[0].name
    wait_until(lambda: any(r["running"] == n for r in tony.status(app)["roles"]), "all tasks running")
    return flag, run, app


def test_the_disk_fills_while_a_job_runs(small_disk):
    tony = small_disk
    flag, run, app = waiting_job(tony)
    with kept_full(tony.home / "filler"):
        flag.touch()  # now there are sixty ends to record
        doc = wait_until(lambda: (lambda d: "trouble" in d and d)(tony.status(app)), "it says so")
        assert "No space left" in doc["trouble"] and doc["state"] == "RUNNING" and doc["exit_code"] is None, doc
        assert "No space left" in tony.ok("status", app) and "trouble" in tony.ok("why", app)
        assert run.poll() is None
        hears(run, "No space left")
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0 and "SUCCEEDED" in out, out + err
    tony.in_history(app)
    doc = tony.status(app)
    assert doc["epoch"] == 1 and "trouble" not in doc and doc["roles"][0]["succeeded"] == 60
    lines = (tony.home / "history" / app / "exits").read_text().splitlines()
    assert len([1 for line in lines if "container" in json.loads(line)]) == 60


def test_restarts_wait_for_room(small_disk):
    """A failed task restarts only after the failure could be recorded."""
    tony = small_disk
    flag, run, app = waiting_job(tony, **AGAIN)

    def processes_of_tasks():
        """The process ids of the tasks. A master that does not know them yet reports the process of the executor,
        which may have up to 16 tasks: wait until it knows them."""
        pids = [t["pid"] for t in tony.status(app)["tasks"]]
        return not any("tony-executor" in line for pid, line in tony.processes().items() if pid in pids) and pids
    pids = wait_until(processes_of_tasks, "the pids of all tasks")
    filler = tony.home / "filler"
    fill(filler)
    killed = [i >= 10 for i in range(60)]
    kill9(*pids[10:])  # more ends than fit into the last block of the journal
    wait_until(lambda: "trouble" in tony.status(app), "it says so")
    begun = list((tony.home / "jobs" / app / "logs").glob("worker-*/2"))
    assert len(begun) < sum(killed), "some are not written yet, whichever"
    master = [p for p, line in tony.processes().items() if "tony-master" in line]
    kill9(*master)  # the new master finds the same full disk, and no records of these ends
    wait_until(lambda: tony.status(app)["epoch"] == 2 and "trouble" in tony.status(app), "the next master says so, too")
    filler.unlink()
    # A task that started with the last room may have found none for its logs, and started again.
    doc = wait_until(lambda: (lambda d: all(t["state"] == "running" and t["attempt"] > killed[i] for i, t in enumerate(d["tasks"])) and d)(
        tony.status(app)), "all run, and those that were killed again")
    attempts = [t["attempt"] for t in doc["tasks"]]
    assert all(attempt == 1 for attempt, was in zip(attempts, killed) if not was), "the others went on"
    assert doc["restarts"] == sum(attempts) - 60, "each of them was counted, once"
    flag.touch()
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, out + err
    assert "restarted" in err and "No space left" in err, err
    tony.in_history(app)


def test_kill_ends_a_job_whose_journal_is_blocked(small_disk):
    tony = small_disk
    _, run, app = waiting_job(tony, **AGAIN)
    filler = tony.home / "filler"
    fill(filler)
    kill9(*[t["pid"] for t in tony.status(app)["tasks"]][10:])
    wait_until(lambda: "trouble" in tony.status(app), "it says so")
    assert tony.run("kill", app).returncode == 0
    out, err = run.communicate(timeout=60)
    assert run.returncode == 1 and "No space left" in out + err, out + err
    tony.in_history(app)
    wait_until(lambda: not tony.processes_of_jobs(), "no process of the job is left")
    assert tony.status(app)["state"] == "FAILED"
    more = tony.home / "filler2"
    fill(more)  # the end of the job has made some room
    r = tony.run("run", tony.workers("true"))  # another job is refused, with the reason
    assert r.returncode != 0 and "No space left" in r.stderr, r.stderr
    filler.unlink()
    more.unlink()
    assert tony.run("wait", app).returncode == 1
    assert tony.run("run", tony.workers("true")).returncode == 0


# ---- a disk where only the sync reports that it is full: NFS, and quotas ----


@pytest.mark.parametrize("num", [errno.ENOSPC, errno.EDQUOT])
def test_the_sync_finds_the_disk_full(make_points_lab, num):
    """A new generation needs a durable record. It waits until a sync succeeds, and begins once."""
    tony = make_points_lab()
    flag, run, app = waiting_job(tony, n=3, **{**AGAIN, "restart-scope": "job"})
    tony.sync_fails(num)
    kill9(tony.status(app)["tasks"][1]["pid"])
    doc = wait_until(lambda: (lambda d: "trouble" in d and d)(tony.status(app)), "it says so")
    assert "durable" in doc["trouble"] and os.strerror(num) in doc["trouble"], doc["trouble"]
    assert doc["state"] == "RUNNING" and run.poll() is None
    hears(run, os.strerror(num))
    assert not list((tony.home / "jobs" / app / "logs").glob("worker-*/2")), "nothing begins before that"
    tony.sync_fails(0)
    doc = wait_until(lambda: (lambda d: all(t["attempt"] == 2 and t["state"] == "running" for t in d["tasks"]) and d)(tony.status(app)),
                     "all of them run again")
    assert doc["restarts"] == 1 and doc["epoch"] == 1 and "trouble" not in doc
    flag.touch()
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, out + err
    tony.in_history(app)
    assert [r["n"] for r in tony.journal(app)] == list(range(1, len(tony.journal(app)) + 1))


def test_the_sync_fails_for_another_reason(make_points_lab):
    """The content of such a disk is unknown: the job ends."""
    tony = make_points_lab()
    _, run, app = waiting_job(tony, n=3, **{**AGAIN, "restart-scope": "job"})
    tony.sync_fails(errno.EIO)
    kill9(tony.status(app)["tasks"][1]["pid"])
    out, err = run.communicate(timeout=60)
    assert run.returncode == 1 and "Input/output error" in out + err, out + err
    tony.sync_fails(0)
    tony.in_history(app)
    assert tony.status(app)["state"] == "FAILED"


# ---- `ulimit -f` of the shell that starts the pool ----


def limited(tony, size, *args):
    """
    Runs tony with its pool. No file may grow beyond `size` bytes, and SIGXFSZ has its default action, which
    kills.
    """
    return tony.run(*args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))


def test_a_job_file_above_the_file_size_limit(own_tony):
    tony = own_tony()
    r = limited(tony, 0, "run", tony.workers("true"))
    assert r.returncode == 4 and "File too large" in r.stderr and "ulimit -f" in r.stderr, r.stderr
    assert not tony.processes()
    r = limited(tony, 2048, "run", tony.workers("true"))
    assert r.returncode == 4 and "job.conf" in r.stderr and "File too large" in r.stderr and "ulimit -f" in r.stderr, r.stderr
    assert tony.jobs_on_disk() == []
    assert tony.json("pool", "status")["jobs"] == [], "the pool lives"


def test_the_journal_reaches_the_limit_of_files(own_tony):
    """There will be no room later either: the job does not wait. It fails and says why."""
    tony = own_tony()
    r = limited(tony, 8192, "run", tony.workers("true", n=60, role={"memory": "16m", "vcores": 0}))
    # If not even the verdict fits any more, the reason is not in the journal, and the message names what it can be.
    assert r.returncode == 1 and "ulimit -f" in r.stdout, r.stdout + r.stderr
    app, = tony.jobs_on_disk()
    tony.in_history(app)
    assert tony.status(app)["state"] == "FAILED"
    wait_until(lambda: not tony.processes_of_jobs(), "no process of the job is left")
    assert limited(tony, 8192, "run", tony.workers("true")).returncode == 0, "a small one fits"


def test_tasks_get_sigxfsz_at_the_file_size_limit(own_tony):
    """They get SIGXFSZ. tony's own processes ignore it, and their children do not inherit that."""
    tony = own_tony()
    big = tony.base / "big"
    r = limited(tony, 65536, "run", tony.workers(f"head -c 100000 /dev/zero > {big}; kill -XFSZ $$"))
    assert r.returncode == 1 and "SIGXFSZ" in r.stdout, r.stdout + r.stderr
    assert "ulimit -f" in r.stdout + r.stderr and big.stat().st_size == 65536
