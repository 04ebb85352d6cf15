# SPDX-License-Identifier: Apache-2.0
"""TONY_HOME becomes full: at submission, and while a job runs or ends."""

import contextlib
import os
import shutil
import signal
import subprocess

import pytest
from lib_slurm import wait_until
from test_slurm import LONG, RESTARTS

pytestmark = [pytest.mark.slow, pytest.mark.takes(60)]


@pytest.fixture
def small(tony, slurm):
    """A home of 40 MiB. Nodes that are started afterwards have it, too."""
    def restart():
        for node in slurm.names:
            slurm.power_off(node)
        slurm.repair()
    tony.home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m,mode=700", "none", tony.home], check=True)
    try:
        shutil.chown(tony.home, tony.user)
        restart()
        yield tony.home / "filler"
    finally:
        for job in slurm.jobs():
            slurm.run("scancel", "--signal=KILL", job)
        subprocess.run(["umount", "--lazy", tony.home], check=True)
        restart()


@contextlib.contextmanager
def full(filler):
    with open(filler, "ab", buffering=0) as f, contextlib.suppress(OSError):
        while True:
            f.write(bytes(1 << 16))
    with open(filler, "ab", buffering=0) as f, contextlib.suppress(OSError):
        while True:
            f.write(b"x")
    try:
        yield
    finally:
        filler.unlink()


def attempts(tony, app):
    return sorted(t["attempt"] for t in tony.await_running(app, 3)["tasks"])


def test_a_home_that_is_full_for_a_while(tony, slurm, small):
    app = tony.submit(f"echo begins; {LONG}", conf=RESTARTS)
    tony.await_running(app, 3)
    with full(small):
        done = tony("submit", tony.job_file("true"), ok=False)
        assert done.returncode == 4 and "No space left on device" in done.stderr, done
        os.kill(tony.processes("tony-keeper ", " node 1")[0], signal.SIGKILL)
        wait_until(lambda: "No space left on device" in (tony.status(app).get("trouble") or ""), "the job tells its trouble")
    assert attempts(tony, app)[:2] == [1, 1], "only the task of the killed keeper has restarted, perhaps in vain at first"
    assert not tony.status(app).get("trouble")
    tony("stop", app)
    assert tony.status(app)["state"] == "KILLED" and "begins" in tony("logs", app).stdout
    assert "SUCCEEDED" in tony("run", tony.job_file("true")).stdout


def test_a_job_that_ends_while_its_home_is_full(tony, slurm, small):
    go = tony.base / "go"
    app = tony.submit(f"echo begins; until [ -e {go} ]; do sleep 0.2; done; exit 3")
    tony.await_running(app, 3)
    with full(small):
        go.touch()
        wait_until(lambda: not tony.processes("-c echo"), "the commands have ended")
        wait_until(lambda: "No space left on device" in (tony.status(app).get("trouble") or "") or not tony.status(app)["live"], "the job tells its trouble")
    wait_until(lambda: not tony.status(app)["live"], "the job ends when there is room again")
    doc = tony.status(app)
    assert doc["state"] == "FAILED" and doc["exit_code"] == 1 and "exit code 3" in doc["message"], doc
    wait_until(lambda: not slurm.jobs(), "nothing is left in Slurm's queue")
    assert tony("events", app).returncode == 0 and "begins" in tony("logs", app).stdout


def test_a_master_that_dies_while_its_home_is_full(tony, slurm, small):
    """The next one cannot write the journal, so the job ends; and the message names the reason."""
    app = tony.submit(LONG, conf=RESTARTS)
    tony.await_running(app, 3)
    with full(small):
        os.kill(tony.processes("tony-master", "--cluster")[0], signal.SIGKILL)
        wait_until(lambda: not slurm.jobs(), "Slurm has ended the job")
        wait_until(lambda: not tony.status(app)["live"], "the job is over")
    doc = tony.status(app)
    assert doc["state"] == "FAILED" and f"the file system of '{tony.home}' is full" in doc["message"], doc
