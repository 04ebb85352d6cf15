# SPDX-License-Identifier: Apache-2.0
"""
The master dies while it replaces its journal by a snapshot (src/storage/journal_segment.c): before and after
each step, with the real master and pool. In these tests a master begins a new segment after each write.
tests/soak tests all points of all segments.
"""

import pytest
from conftest import wait_until
from lib_jobs import stat_of
from lib_points import PointJob, go_on, make_points_lab, one_point  # noqa: F401 (fixture)

# The points of one new segment, in order. The number tells how often a master comes to such a point before
# its first segment. When it opens the journal, it removes the rest of an unfinished segment. When it first
# syncs the journal, it also syncs the directory.
STEPS = {
    "call unlinkat journal.new": 1,  # then the file is made
    "done unlinkat journal.new": 1,
    "call write */journal.new": 0,
    "done write */journal.new": 0,
    "call fdatasync */journal.new": 0,
    "done fdatasync */journal.new": 0,
    "call renameat journal": 0,
    "done renameat journal": 0,
    "call fsync */jobs/application_": 1,  # of the directory
    "done fsync */jobs/application_": 1,
}


@pytest.fixture
def lab(make_points_lab):  # noqa: F811
    return make_points_lab(TONY_TEST_SEGMENT="0")


def die(lab, step, segment, **kw):
    for _ in range(5):  # on a busy machine a master writes the records of several events at once: fewer segments
        what = one_point(lab, "master", STEPS[step] + segment, "job", filter=step, **kw)
        if what:
            return what
    pytest.fail(f"no master comes to '{step}' {segment} times")


@pytest.mark.parametrize("segment", [2, 7])
def test_at_each_step_of_a_new_segment(lab, segment):
    for step in STEPS:
        die(lab, step, segment)
    lab.settled()


def test_at_the_first_record_behind_a_snapshot(lab):
    """A new segment follows each write, so each write to the journal is the first one after a snapshot."""
    for number in (2, 5, 9):
        for filter, action in (("call write */journal ", "kill"), ("call write */journal ", "torn"), ("done write */journal ", "kill")):
            # On a busy machine a master writes the records of several events at once, so there may be fewer writes.
            assert any(one_point(lab, "master", n, "job", filter=filter, action=action) for n in range(number, 1, -1))
    lab.settled()


def test_two_masters_die_in_a_row(lab):
    for segment, second in ((1, (1, "call renameat journal")), (3, (1, "done renameat journal")), (6, (2, "call write */journal.new"))):
        die(lab, "call write */journal.new", segment, action="torn", second=second)
    lab.settled()


@pytest.mark.parametrize("step", ["call write */journal.new", "done fdatasync */journal.new", "call renameat journal"])
def test_the_next_master_removes_what_is_left_of_a_segment(lab, step):
    """
    It does so when it opens the journal. The test stops it before its first write, so before it begins its
    own segment.
    """
    lab.arm("master", 3, "kill", step)
    lab.arm("master", 1, "stop", "call write */journal ", life=2)
    job = PointJob(lab, "job").submit()
    wait_until(lambda: lab.struck("master", 2), "the next master is at its first record")
    wait_until(lambda: [p for p in lab.pids("master", job.app) if stat_of(p)[0] == "T"], "it is stopped")
    left = [p.name for p in lab.dir(job.app).glob("journal*")]
    go_on(lab, job.app)
    job.over()
    assert lab.struck("master") and left == ["journal"], left
    lab.settled()
