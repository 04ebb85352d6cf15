"""A disk that fills while a job runs: what happens can no longer be written down, so the job ends, in order, and says why."""

import os
import subprocess

import pytest

from conftest import wait_until


@pytest.fixture
def small_disk(own_tony):
    tony = own_tony()
    tony.home.mkdir(0o700)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", str(tony.home)], capture_output=True)
    if mounted.returncode:
        pytest.skip("cannot mount a small file system here")
    yield tony
    tony.stop()
    subprocess.run(["umount", "-l", str(tony.home)], check=True)


def fill(path):
    """To the last byte, and it stays so."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for size in (4096, 1):
        try:
            while True:
                os.write(fd, b"x" * size)
        except OSError:
            pass
    os.close(fd)


def test_the_disk_fills_while_a_job_runs(small_disk):
    tony = small_disk
    flag = tony.base / "go"
    job = tony.workers(f"while [ ! -e {flag} ]; do sleep 0.05; done", n=60, role={"memory": "16m", "vcores": 0})
    run = tony.start("run", job)
    live = wait_until(lambda: [p for p in (tony.home / "jobs").glob("application_*")], "a live job")
    app = live[0].name
    wait_until(lambda: any(r["running"] == 60 for r in tony.status(app)["roles"]), "all tasks running")
    filler = tony.home / "filler"
    fill(filler)
    flag.touch()  # sixty ends are to be written now
    out, err = run.communicate(timeout=60)
    assert run.returncode == 1, out + err
    assert "journal" in out + err and "No space left" in out + err
    tony.in_history(app)
    wait_until(lambda: not [c for c in tony.processes().values() if "tony-pool" not in c], "no process of the job is left")
    assert tony.status(app)["state"] == "FAILED"
    filler.unlink()
    assert tony.run("wait", app).returncode == 1
    assert tony.run("run", tony.workers("true")).returncode == 0
