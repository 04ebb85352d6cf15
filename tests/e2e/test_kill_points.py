# SPDX-License-Identifier: Apache-2.0
"""
A program is killed at a named point instead of a random moment: at each record of the journal, at each line
of `exits`, in the middle of a write. tests/soak/test_kill_points.py tests each system call of each program.
"""

import pytest
from lib_points import N, make_points_lab, one_point  # noqa: F401 (fixture)


@pytest.fixture
def lab(make_points_lab):
    return make_points_lab()


def every(lab, program, scope, filter, at_least, **kw):
    number = 1
    while one_point(lab, program, number, scope, filter=filter, **kw):
        number += 1
    assert number > at_least, f"there were only {number - 1} points '{filter}' of {program}"
    lab.settled()


def test_the_master_after_each_record(lab):
    every(lab, "master", "job", "done write /", 8)


def test_the_master_before_each_record_and_again_while_it_recovers(lab):
    for number, second in ((1, 1), (3, 1), (6, 2), (8, 3), (9, 1), (11, 2)):
        one_point(lab, "master", number, "job", filter="call write /", second=(second, "done write /"))
    lab.settled()


def test_the_master_in_the_middle_of_a_record(lab):
    for number in (1, 2, 5, 8):
        assert one_point(lab, "master", number, "task", filter="call write /", action="torn")
    lab.settled()


def test_the_keeper_dies_after_each_line_of_exits(lab):
    every(lab, "keeper", "task", "/exits", 5, harmless=False)


def test_the_keeper_when_the_job_is_in_the_history(lab):
    every(lab, "keeper", "task", "call unlink", 3, harmless=False)


def test_the_pool_while_it_starts_a_job(lab):
    for number in range(1, 8):
        one_point(lab, "pool", number, "role", filter="/jobs/")
    lab.settled()


@pytest.mark.parametrize("kind", ["task", "executor"])
def test_another_process_dies_at_a_record_of_the_master(lab, kind):
    """The master is stopped at the record; meanwhile another process dies."""
    def victim(lab, job):
        return [p.pid for p in lab.processes_all(job.app) if p.kind == kind and ("task.sh" in p.line or kind == "executor")][-1:]
    for number in (4, 6, 8, 10):
        one_point(lab, "master", number, "job", filter="done write */journal", victim=victim, harmless=False)
    lab.settled()


def test_an_executor_dies_before_it_sends_a_report(lab):
    for number in (1, 3, 5):
        one_point(lab, f"executor-{N - 1}", number, "task", filter="call send", harmless=False)
    lab.settled()
