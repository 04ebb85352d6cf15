# SPDX-License-Identifier: Apache-2.0
"""
The job of examples/ with the real Horovod, which takes minutes to build (tools/install-frameworks horovod).
"""

import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "frameworks"))
from lib_frameworks import EXAMPLES, environment, run  # noqa: E402


@pytest.fixture
def own(own_tony):
    return own_tony()


def test_the_digits_are_learned(own):
    r = run(own, environment("horovod"), EXAMPLES / "horovod/job.yaml")
    assert r.returncode == 0, r.said[-6000:]
    assert float(re.search(r"accuracy (0\.\d+)", r.logs)[1]) >= 0.93, r.logs
    assert sorted(re.findall(r"rank (\d) of 2, local (\d) of 2", r.logs)) == [("0", "0"), ("1", "1")]
