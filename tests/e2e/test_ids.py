# SPDX-License-Identifier: Apache-2.0
"""
Application ids differ between two homes of a user: processes of a dead keeper are found by their id alone.
"""

import fcntl
import os
import pathlib
import time


def test_two_homes_get_different_start_times(own_tony):
    first, second = own_tony(), own_tony()
    first.ok("pool", "start")
    last = pathlib.Path(f"/tmp/tony-{os.getuid()}/last-start")
    # As if the first pool had started in the millisecond in which the second will start.
    with last.open("r+") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        taken = max(int(f.read()), int(time.time() * 1000)) + 10_000
        f.seek(0)
        f.write(f"{taken}\n")
    second.ok("pool", "start")
    starts = [int((t.home / "pool/start").read_text()) for t in (first, second)]
    assert starts[0] != starts[1]
    assert starts[1] > taken, "the number was given before"


def test_temporary_files_of_dead_processes_are_removed(own_tony):
    t = own_tony()
    t.ok("pool", "start")
    t.ok("pool", "stop")
    dead, alive = t.home / "pool/.tmp-4194303-0", t.home / f"pool/.tmp-{os.getpid()}-0"
    dead.write_text("half")
    alive.write_text("somebody is at it")
    t.ok("pool", "start")
    assert not dead.exists()
    assert alive.exists()
    alive.unlink()
