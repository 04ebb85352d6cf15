# SPDX-License-Identifier: Apache-2.0
"""
A process dies while two jobs share the pool under a policy: both go on, nothing is given twice, both end right. Only some
points are tested here; tests/soak tests all.
"""

import pytest
from lib_exchange import GROWS, SHRINKS, SITE, exchange
from lib_points import make_points_lab  # noqa: F401 (fixture)

# the program, which of its processes in order, the number of the point, the text after which points are counted, and
# the process that dies instead of the program
SOME = [
    ("master", 1, 1, SHRINKS, None), ("master", 1, 3, SHRINKS, None), ("master", 1, 2, GROWS, None),
    ("master", 1, 1, SHRINKS, "pool"), ("master", 1, 2, SHRINKS, "keeper"), ("master", 1, 3, SHRINKS, "first executor"),
    ("master", 1, 2, SHRINKS, "last executor"), ("master", 1, 1, GROWS, "pool"), ("master", 1, 2, GROWS, "keeper"),
    ("master", 1, 1, GROWS, "task"), ("master", 2, 3, "", None),
]


@pytest.fixture
def lab(make_points_lab):  # noqa: F811
    return make_points_lab(site=SITE)


@pytest.mark.parametrize("mode", ["restart", "live"])
@pytest.mark.parametrize("program, life, number, after, victim", SOME, ids=[f"{s[4] or s[0]}-{s[2]}-{s[3]}" for s in SOME])
def test_a_process_dies_in_an_exchange(lab, mode, program, life, number, after, victim):
    assert exchange(lab, mode, program, number, after, victim, life), "there is no such point"
    lab.settled()


@pytest.mark.parametrize("number", [3, 12, 20, 28])
def test_the_pool_dies_after_a_decision(lab, number):
    assert exchange(lab, "live", "pool", number, "write */decisions", filter="call "), "there is no such point"
    lab.settled()


@pytest.mark.parametrize("number", range(30, 37))
def test_the_pool_dies_after_it_has_resized_a_job_that_no_client_was_told_of(lab, number):
    """The client finds its job again, although its job.conf has another size now, and does not submit it twice."""
    assert exchange(lab, "restart", "pool", number, "write */decisions", filter="call "), "there is no such point"
    lab.settled()
