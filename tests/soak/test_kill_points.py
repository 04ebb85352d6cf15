# SPDX-License-Identifier: Apache-2.0
"""
Each program is killed before each system call that has an effect outside the program (tests/points/points.c).
The jobs restart a task, a role or the gang, or have a spare. The master is also killed at each step of a new
segment of its journal. Then two masters in a row are killed at random points, and other processes while the
master is stopped at a point. TONY_SOAK_S limits the time of the random part; TONY_SEED repeats it.
"""

import os
import random
import time

import pytest
from lib_points import make_points_lab, one_point  # noqa: F401 (fixture)

SOAK_S = float(os.environ.get("TONY_SOAK_S", "3600"))
SEED = int(os.environ.get("TONY_SEED", random.SystemRandom().randrange(1, 1 << 30)))
SHAPES = {"task": ("task", 0), "role": ("role", 0), "job": ("job", 0), "job and a spare": ("job", 1)}
HARMLESS = ("pool", "master")  # the programs whose deaths no task notices


@pytest.fixture
def lab(make_points_lab):
    return make_points_lab()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("program", ["master", "pool", "keeper", "executor-0", "executor-1", "executor-2"])
def test_each_program_dies_at_each_point(lab, program, shape):
    scope, spares = SHAPES[shape]
    number = 1
    while one_point(lab, program, number, scope, spares=spares, harmless=program in HARMLESS):
        number += 1
    assert number > 5, "the program comes to more points than that"
    lab.settled()


@pytest.mark.parametrize("shape", SHAPES)
def test_every_torn_record(lab, shape):
    scope, spares = SHAPES[shape]
    for program, file in (("master", "call write /"), ("keeper", "/exits")):
        number = 1
        while one_point(lab, program, number, scope, file, "torn", spares, harmless=program in HARMLESS):
            number += 1
    lab.settled()


@pytest.mark.parametrize("shape", SHAPES)
def test_every_point_of_every_segment(make_points_lab, shape):  # noqa: F811
    """The master begins a new segment of its journal after each write."""
    scope, spares = SHAPES[shape]
    lab = make_points_lab(TONY_TEST_SEGMENT="0")
    number = 1
    while one_point(lab, "master", number, scope, filter="journal", spares=spares):
        number += 1
    assert number > 60, "there are ten points a segment, and one segment a write"
    number = 1
    while one_point(lab, "master", number, scope, filter="call write */journal", action="torn", spares=spares):
        number += 1
    lab.settled()


def _kind(*kinds):
    def victim(lab, job):
        found = [p for p in lab.processes_all(job.app) if p.kind in kinds and (p.kind != "task" or "task.sh" in p.line)]
        found += [p for p in lab.processes_all() if p.kind == "pool" and "pool" in kinds]
        random.shuffle(found)
        return [next((p.pid for p in found if p.kind == kind), 0) or -1 for kind in kinds if any(p.kind == kind for p in found)]
    return victim


def test_two_masters_die_at_random_points(make_points_lab):
    until = time.monotonic() + SOAK_S / 4
    rnd = random.Random(SEED)
    random.seed(SEED)
    print(f"seed {SEED}", flush=True)
    n = {}
    while time.monotonic() < until:
        lab = make_points_lab()
        for _ in range(50):
            scope, spares = SHAPES[rnd.choice(list(SHAPES))]
            how = rnd.choice(["twice", "twice", "task", "executor", "keeper", "pool", "executor+task", "pool+executor"])
            number = rnd.randrange(1, 55)
            if how == "twice":
                one_point(lab, "master", number, scope, spares=spares, second=(rnd.randrange(1, 40), "call "))
            else:
                one_point(lab, "master", number, scope, spares=spares, victim=_kind(*how.split("+")), harmless=how == "pool")
            n[how] = n.get(how, 0) + 1
            if time.monotonic() >= until:
                break
        lab.settled()
        assert not lab.stop()
        print(n, flush=True)
