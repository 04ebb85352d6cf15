# SPDX-License-Identifier: Apache-2.0
"""
The core with random events (tests/unit/test_job_random.c), for about TONY_SOAK_S seconds (an hour by default)
instead of a few.
"""

import os
import pathlib
import subprocess

from conftest import BIN

SOAK_S = float(os.environ.get("TONY_SOAK_S", "3600"))
EVENTS_A_SECOND = 200_000  # approximately, on a slow machine


def test_random_jobs():
    program = pathlib.Path(BIN).parent / "tests" / "unit" / "test_job_random"
    n = max(1_000_000, min(4_000_000_000, int(SOAK_S * EVENTS_A_SECOND)))
    r = subprocess.run([program], env={**os.environ, "TONY_EVENTS": str(n)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       timeout=10 * SOAK_S + 600)
    print(r.stdout)
    assert r.returncode == 0, r.stdout
