# SPDX-License-Identifier: Apache-2.0
"""Kills processes at random moments for some seconds; tests/soak does it for any time."""

import pytest
from lib_chaos import Storm
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)
from lib_resize_chaos import ResizeStorm


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_short_chaos(lab, seed):
    storm = Storm(lab, seed)
    while storm.n_kills < 12:
        storm.round()
    lab.settled()


def test_short_chaos_with_many_jobs(lab):
    storm = Storm(lab, 4)
    for _ in range(2):
        storm.round(n_jobs=6, n_strikes=5)
    lab.settled()


def test_short_chaos_with_resizes(lab):
    storm = ResizeStorm(lab, 5)
    storm.round(3, 15)
    lab.settled()
