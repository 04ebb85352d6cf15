# SPDX-License-Identifier: Apache-2.0
"""The pool makes the directory of the next job before the job comes."""
import os
import shutil

from conftest import wait_until


def ready(tony):
    return sorted(p.name for p in (tony.home / "pool/ready").glob("*") if p.is_dir())


def locks(tony):
    """Files that become the lock of a job."""
    return sorted(p.name for p in (tony.home / "pool/ready").glob("*.lock"))


def test_the_directory_of_the_next_job_is_ready(own_tony):
    tony = own_tony()
    tony.ok("pool", "start")
    wait_until(lambda: len(ready(tony)) == 1, "the first directory is ready")
    first = ready(tony)
    keys = set()
    for _ in range(3):
        app = tony.submit(tony.workers("sleep 600"))
        key = tony.home / "jobs" / app / "key"
        keys.add(key.read_bytes())
        assert (key.parent.stat().st_mode & 0o777, key.stat().st_mode & 0o777) == (0o700, 0o600)
        wait_until(lambda: len(ready(tony)) == 1 and ready(tony) != first, "another directory is ready")
        first = ready(tony)
        wait_until(lambda: locks(tony) == [f"{first[0]}.lock"], "another lock is ready, and the last one was used or removed")
        tony.ok("kill", app)
    assert len(keys) == 3
    tony.ok("pool", "stop")
    assert ready(tony) == locks(tony) == []


def test_jobs_start_without_a_ready_directory(own_tony):
    """The ready directory was removed, five jobs come at the same time, and a killed pool leaves one behind."""
    tony = own_tony()
    tony.ok("pool", "start")
    wait_until(lambda: len(ready(tony)) == 1, "the first directory is ready")
    shutil.rmtree(tony.home / "pool/ready")
    apps = [tony.submit(tony.workers("true")) for _ in range(5)]
    for app in apps:
        assert tony.run("wait", app).returncode == 0
    wait_until(lambda: len(ready(tony)) == 1, "a directory is ready")
    pool = tony.pool_pid()
    os.kill(pool, 9)
    wait_until(lambda: not os.path.exists(f"/proc/{pool}"), "the pool is dead")
    assert tony.run("run", tony.workers("true")).returncode == 0
    wait_until(lambda: len(ready(tony)) == 1, "what the dead pool has left is removed")
