# SPDX-License-Identifier: Apache-2.0
"""
Each program dies at each record that the master writes from a resize until the end of the job: in both modes,
while the job grows and while it shrinks. The master also dies before each record, in the middle of it, and at
each step of the segments of its journal.
"""

import pytest
from lib_points import make_points_lab  # noqa: F401 (fixture)
from lib_resize import SHAPES, VICTIMS, resize_point


def every(lab, shape, victim, at_least, **kw):
    number = 1
    while what := resize_point(lab, shape, victim, number, **kw):
        print(f"{shape}: {victim} at {number}: {what.partition(' ')[0]} {what.rpartition('/')[2]}", flush=True)
        number += 1
    assert number > at_least, f"there were only {number - 1} points"
    lab.settled()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("victim", VICTIMS)
def test_at_every_record_of_a_resize(make_points_lab, shape, victim):  # noqa: F811
    every(make_points_lab(), shape, victim, 4)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("action", ["kill", "torn"])
def test_the_master_before_and_in_every_record_of_a_resize(make_points_lab, shape, action):  # noqa: F811
    every(make_points_lab(), shape, "master", 4, action=action, filter="call write */journal ")


@pytest.mark.parametrize("shape", SHAPES)
def test_the_master_at_every_step_of_a_segment_within_a_resize(make_points_lab, shape):  # noqa: F811
    every(make_points_lab(TONY_TEST_SEGMENT="0"), shape, "master", 40, filter="journal")
