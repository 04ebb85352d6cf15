# SPDX-License-Identifier: Apache-2.0
"""
One real master with many executors, which bench/scale_drive.c simulates. It stays responsive although all of
them act at the same time.
"""

import os
import re
import subprocess

import pytest
from conftest import BIN, make_base, remove_base

DRIVE = BIN.parent / "bench/scale-drive"
N = 400
SCENARIOS = ("gang", "fcfs", "restart", "checkpoint", "older", "alone", "replaced", "follow", "lost", "killed", "stopped", "grow")
VERDICTS = {"killed": "FAILED", "stopped": "KILLED"}


@pytest.fixture
def base():
    made = make_base()
    yield made
    remove_base(made)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_master_with_400_tasks(base, scenario):
    """A real master and 400 executors that bench/scale-drive plays: the job ends with the right verdict."""
    env = {**os.environ, "TONY_HOME": str(base / "home"), "XDG_RUNTIME_DIR": str(base)}
    r = subprocess.run([DRIVE, scenario, str(N), BIN / "tony-master"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                       timeout=240)
    assert r.returncode == 0, r.stderr[-4000:]
    events, state, _ = r.stdout.split()
    assert int(events) >= 4 * N and state == VERDICTS.get(scenario, "SUCCEEDED")
    # Each rendering of the addresses takes time in proportion to N. If each of N tasks changes an address,
    # one rendering must serve many changes.
    rendered = int(re.search(r"addresses\.rendered times=(\d+)", r.stderr).group(1))
    assert rendered <= N / 4
