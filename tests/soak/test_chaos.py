"""
Processes killed at random moments for TONY_SOAK_S seconds (an hour by default), from TONY_SEED on (else a new seed each time).
"""

import os
import random
import time

import pytest
from lib_chaos import Storm
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)

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
        for _ in range(100):  # a new home now and then, so that a long history is no part of it
            storm.round(**SHAPES[shape])
            if time.monotonic() >= until:
                break
        lab.settled()
        assert not lab.stop()
        kills, jobs, seed = kills + storm.n_kills, jobs + storm.n_jobs, seed + 1
        print(f"{jobs} jobs, {kills} kills {storm.killed}", flush=True)
