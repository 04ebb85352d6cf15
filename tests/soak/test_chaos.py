# SPDX-License-Identifier: Apache-2.0
"""
Kills processes at random moments for TONY_SOAK_S seconds (an hour by default). TONY_SEED gives the first seed
(by default a new one each time). Then it does the same, as long again, with jobs that are resized.
"""

import os
import random
import time

import pytest
from lib_chaos import Storm
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)
from lib_points import make_points_lab  # noqa: F401 (fixture)
from lib_resize_chaos import ResizeStorm

SOAK_S = float(os.environ.get("TONY_SOAK_S", "3600"))
SEED = int(os.environ.get("TONY_SEED", random.SystemRandom().randrange(1, 1 << 30)))
SHAPES = {
    "one job, one or two blows": {"n_jobs": 1, "n_strikes": 1},
    "one job, many blows": {"n_jobs": 1, "n_strikes": 6},
    "eight jobs, many blows": {"n_jobs": 8, "n_strikes": 8},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_chaos(make_lab, shape):
    until = time.monotonic() + SOAK_S / len(SHAPES)
    seed = SEED
    kills = jobs = 0
    while time.monotonic() < until:
        lab = make_lab()
        storm = Storm(lab, seed)
        print(f"seed {seed}", flush=True)
        for _ in range(100):  # a new home after each round, so that its history stays short
            storm.round(**SHAPES[shape])
            if time.monotonic() >= until:
                break
        lab.settled()
        assert not lab.stop()
        kills, jobs, seed = kills + storm.n_kills, jobs + storm.n_jobs, seed + 1
        print(f"{jobs} jobs, {kills} kills {storm.killed}", flush=True)


@pytest.mark.parametrize("jobs, steps", [(1, 8), (3, 20)])
def test_chaos_with_resizes(make_points_lab, jobs, steps):  # noqa: F811
    """Every second home has little room, and masters that often begin a new segment of their journal."""
    until = time.monotonic() + SOAK_S / 2
    seed, total = SEED, {}
    while time.monotonic() < until:
        lab = make_points_lab(TONY_TEST_SEGMENT="1000", site={"pool.memory": "160m"}) if seed % 2 else make_points_lab()
        storm = ResizeStorm(lab, seed)
        print(f"seed {seed}", flush=True)
        for _ in range(20):
            storm.round(jobs, steps)
            if time.monotonic() >= until:
                break
        lab.settled()
        assert not lab.stop()
        seed += 1
        total = {key: total.get(key, 0) + n for key, n in storm.n.items()}
        print(total, flush=True)
