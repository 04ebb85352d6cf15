# SPDX-License-Identifier: Apache-2.0
"""
The series of a job of more than an hour, whose file is thinned meanwhile, beside what another program reads from /proc:
bench/metrics_proc.
"""

import os
import subprocess

import pytest
from conftest import BIN, ROOT

SECONDS = int(os.environ.get("TONY_SOAK_S", 4800))


@pytest.mark.parametrize("options", [[], ["--no-groups"]], ids=["groups", "no-groups"])
def test_the_series_are_what_proc_says(options, tmp_path):
    r = subprocess.run([ROOT / "bench/metrics_proc", "--seconds", str(SECONDS), "--keep", tmp_path, *options], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, env={**os.environ, "TONY_BUILD": str(BIN.parent)})
    assert r.returncode == 0, r.stdout
