# SPDX-License-Identifier: Apache-2.0
"""The client dies while sbatch runs: a wrapper of sbatch kills it, before or after Slurm has got the job."""

import contextlib
import json
import os
import shutil

import pytest
from lib_slurm import wait_until
from test_slurm import LONG

REAL = shutil.which("sbatch")
BEFORE = "kill -9 $PPID\n"
AFTER = f'{REAL} "$@" > /dev/null\nkill -9 $PPID\n'


def wrap(tony, text):
    """Each sbatch of the client runs these lines instead."""
    path = tony.base / "wrappers" / "sbatch"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    tony.env["PATH"] = f"{path.parent}:{os.environ['PATH']}"


def unwrap(tony):
    tony.env["PATH"] = os.environ["PATH"]


def dies(tony, text, command="true", **kw):
    """Submit a job. The application of the client that has died."""
    wrap(tony, text)
    done = tony("submit", tony.job_file(command, **kw), ok=False)
    assert done.returncode == -9, done.stderr
    unwrap(tony)
    app, = [p.name for p in (tony.home / "jobs").glob("application_*")]
    assert not (tony.home / "jobs" / app / "slurm_id").exists() or text == AFTER
    return app


def make_old(tony, app):
    """So old that its client cannot be alive."""
    os.utime(tony.home / "jobs" / app / "slurm.json", (1, 1))


def rows(tony):
    return {row["application_id"]: row for row in json.loads(tony("list", "--cluster", "slurm", "--json").stdout)["jobs"]}


@contextlib.contextmanager
def all_nodes_taken(tony, slurm):
    holder = slurm.run("sbatch", "--parsable", "-N3", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600", user=tony.user, cwd="/").stdout.strip()
    wait_until(lambda: slurm.job(holder) == "RUNNING", "the nodes are taken")
    try:
        yield
    finally:
        slurm.run("scancel", "--signal=KILL", holder)


def test_it_is_stopped_before_slurm_has_it(tony, slurm):
    app = dies(tony, BEFORE)
    assert tony.status(app)["state"] == "WAITING"
    tony("stop", app, timeout=60)
    assert tony.status(app)["state"] == "KILLED"
    assert "it was stopped before Slurm had it" in tony("status", app).stdout


@pytest.mark.parametrize("who", ["status", "list", "submit", "wait"])
def test_it_is_given_up(tony, slurm, who):
    """Slurm has never got it. While its client may be alive, nothing is decided."""
    app = dies(tony, BEFORE)
    assert rows(tony)[app]["live"] and tony.status(app)["state"] == "WAITING"
    make_old(tony, app)
    if who == "list":
        assert not rows(tony)[app]["live"]
    elif who == "wait":
        tony("wait", app, ok=False, timeout=60)
    elif who == "submit":
        tony("run", tony.job_file("true"))
        assert not (tony.home / "jobs" / app).exists()
    assert tony.status(app)["state"] == "FAILED"
    assert "Slurm never got the job" in " ".join(tony("status", app).stdout.split())


@pytest.mark.parametrize("who", ["status", "list", "stop", "wait"])
def test_it_waits_in_slurm(tony, slurm, who):
    """Slurm has got it. Its number is found, and the job goes on, or can be stopped."""
    with all_nodes_taken(tony, slurm):
        app = dies(tony, AFTER)
        make_old(tony, app)
        if who == "status":
            assert tony.status(app)["slurm_state"] == "PENDING"
        elif who == "list":
            assert rows(tony)[app]["slurm_state"] == "PENDING"
        elif who == "stop":
            tony("stop", app)
            wait_until(lambda: tony.status(app)["state"] == "KILLED", "the job is stopped")
        elif who == "wait":
            client = tony.start("wait", app)
            wait_until(lambda: "job" in json.loads((tony.home / "jobs" / app / "slurm.json").read_text()), "the number is found")
    if who != "stop":
        assert wait_until(lambda: (s := tony.status(app)["state"]) in ("SUCCEEDED", "FAILED", "KILLED") and s, "it ends") == "SUCCEEDED"
    if who == "wait":
        assert client.wait(60) == 0, client.stdout.read()
    wait_until(lambda: not slurm.jobs(), "nothing is left in Slurm's queue")


def test_it_has_started(tony, slurm):
    """The batch script has written the number."""
    app = dies(tony, AFTER, LONG)
    tony.await_running(app, 3)
    tony("stop", app)
    assert tony.status(app)["state"] == "KILLED"


@pytest.mark.parametrize("read", [True, False])
def test_it_is_stopped_while_its_client_submits_it(tony, slurm, read):
    """The client is slow, not dead. It cancels the job in Slurm, if sbatch has already read the script."""
    copy = f'cp "$2" {tony.base}/copy\nset -- "$1" {tony.base}/copy\n' if read else ""
    wrap(tony, f'{copy}touch {tony.base}/called\nwhile [ ! -e {tony.base}/go ]; do sleep 0.05; done\nexec {REAL} "$@"\n')
    with all_nodes_taken(tony, slurm):
        client = tony.start("submit", tony.job_file("true"))
        wait_until((tony.base / "called").exists, "sbatch was called")
        app, = [p.name for p in (tony.home / "jobs").glob("application_*")]
        tony("stop", app, timeout=60)
        (tony.base / "go").touch()
        said = client.communicate(timeout=60)[0]
        assert client.returncode == 3 and "was stopped while it was submitted" in said, said
        assert tony.status(app)["state"] == "KILLED"
    wait_until(lambda: not slurm.jobs(), "nothing is left in Slurm's queue")


def test_directories_of_other_submissions(tony, slurm):
    """That of a client of another machine, which has the same pid, is left alone. That of a client that has died is removed later."""
    jobs, path = tony.home / "jobs", tony.job_file("true", instances=1)
    tony("run", path)
    old = jobs / ".slurm-old"
    old.mkdir()
    (old / "job.conf").touch()
    shutil.chown(old, tony.user)
    os.utime(old, (0, 0))
    line = f"mkdir {jobs}/.slurm-$$ && touch {jobs}/.slurm-$$/job.conf && exec {tony.program} run {path}"
    done = slurm.run("sh", "-c", line, user=tony.user, env=tony.env, cwd=tony.base)
    assert done.returncode == 0, done.stdout + done.stderr
    left = list(jobs.glob(".slurm-*"))
    assert len(left) == 1 and left[0] != old and (left[0] / "job.conf").exists(), left
