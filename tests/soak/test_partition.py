# SPDX-License-Identifier: Apache-2.0
"""
1,000,000 small random instances for each policy: the properties that every decision must have (tests/unit/test_partition_random.c).
`make check` tries the first 20,000. TONY_ROUNDS=n tries n.
"""

import os
import subprocess

import pytest
from conftest import BIN

ROUNDS = int(os.environ.get("TONY_ROUNDS", "1000000"))
PIECES = 10  # a failed piece does not hide what the others would find


@pytest.mark.parametrize("piece", range(PIECES))
def test_random_instances(piece):
    first, end = ROUNDS * piece // PIECES, ROUNDS * (piece + 1) // PIECES
    done = subprocess.run([BIN.parent / "tests" / "unit" / "test_partition_random"], capture_output=True, text=True, timeout=3600,
                          env={**os.environ, "TONY_SEED": str(first), "TONY_ROUNDS": str(end - first)})
    assert done.returncode == 0, done.stdout + done.stderr
