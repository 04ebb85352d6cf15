# SPDX-License-Identifier: Apache-2.0
"""bench/dorm --live in a small size: real trainings under dorm, with the results of undisturbed ones."""

import json
import subprocess

import pytest
from conftest import BIN, ROOT


@pytest.mark.slow
@pytest.mark.xdist_group("training")  # each uses all cores
@pytest.mark.takes(20)
def test_a_day_of_three_jobs(tmp_path):
    """bench/dorm --live with three jobs; each worker of the GPU jobs has a device of its own."""
    done = subprocess.run(["/usr/bin/python3", ROOT / "bench/dorm", "--live", "--build", BIN.parent, "--jobs", "3", "--scale", "1500", "--policies",
                           "dorm", "--gpus", "5", "--json", "--keep", tmp_path / "kept"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    dorm = json.loads(done.stdout)["dorm"]
    figures = dorm["figures"]
    assert dorm["faults"] == [] and 1 <= figures["most units seen at once"] <= 60, dorm
    assert 0 < figures["utilization"] <= 1 and 0 <= figures["overhead %"] < 100 and figures["mean completion s"] > 0, dorm
    assert figures["GPUs"] > 0, figures
    assert len(list((tmp_path / "kept/dorm/home/history").glob("application_*"))) == 3
    assert (tmp_path / "kept/dorm.svg").read_text().count("<path fill") >= 3
