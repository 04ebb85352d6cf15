# SPDX-License-Identifier: Apache-2.0
"""
A program dies at a record that the master writes during a resize: the master itself, its keeper, the pool, an
executor, or the client that waits for the resize. Only some records are tested here; tests/soak tests all.
"""

import pytest
from lib_points import make_points_lab  # noqa: F401 (fixture)
from lib_resize import SHAPES, resize_point

SOME = [
    ("restart, grows", [("master", 1), ("first executor", 2), ("keeper", 4), ("client", 2)]),
    ("restart, shrinks", [("master", 2), ("pool", 1), ("last executor", 3), ("keeper", 2)]),
    ("live, grows", [("master", 2), ("last executor", 2), ("keeper", 1), ("pool", 3)]),
    ("live, shrinks", [("master", 1), ("client", 1), ("first executor", 1), ("keeper", 2)]),
]


@pytest.fixture
def lab(make_points_lab):  # noqa: F811
    return make_points_lab()


@pytest.mark.parametrize("shape, blows", SOME, ids=[shape.replace(", ", "-") for shape, _ in SOME])
def test_a_process_dies_at_a_record_of_a_resize(lab, shape, blows):
    for victim, number in blows:
        assert resize_point(lab, shape, victim, number), f"there is no record {number}"
    lab.settled()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_master_dies_before_and_in_the_middle_of_a_record(lab, shape):
    # No record of the resize exists.
    assert resize_point(lab, shape, "master", 1, filter="call write */journal ")
    assert resize_point(lab, shape, "master", 1, action="torn", filter="call write */journal ")
    assert resize_point(lab, shape, "master", 3, action="torn", filter="call write */journal ")
    lab.settled()
