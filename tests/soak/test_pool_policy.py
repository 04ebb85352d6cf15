# SPDX-License-Identifier: Apache-2.0
"""
Jobs share the pool under a policy. Each process dies at each step of an exchange between two jobs. Then jobs come at random
moments for TONY_SOAK_S seconds (an hour by default), and processes die at random moments. A pool lives for
TONY_SOAK_DAY_S seconds (60). An hour on one pool: TONY_SOAK_S=21600 TONY_SOAK_DAY_S=3600, with one of the six variants.
"""

import os
import random
import time

import pytest
from lib_exchange import GROWS, SHRINKS, SITE, VICTIMS, Day, exchange
from lib_jobs import make_lab  # noqa: F401 (fixture)
from lib_points import make_points_lab  # noqa: F401 (fixture)

SOAK_S = float(os.environ.get("TONY_SOAK_S", "3600"))
DAY_S = float(os.environ.get("TONY_SOAK_DAY_S", "60"))
SEED = int(os.environ.get("TONY_SEED", random.SystemRandom().randrange(1, 1 << 30)))


def every(lab, at_least, *args, **kw):
    number = 1
    while what := exchange(lab, args[0], args[1], number, *args[2:], **kw):
        print(f"{args} {kw} at {number}: {what.partition(' ')[0]} {what.rpartition('/')[2]}", flush=True)
        number += 1
    assert number > at_least, f"there were only {number - 1} points"
    lab.settled()


@pytest.mark.parametrize("mode", ["restart", "live"])
@pytest.mark.parametrize("after", [SHRINKS, GROWS])
@pytest.mark.parametrize("victim", [None, *VICTIMS])
def test_at_every_record_of_the_first_job(make_points_lab, mode, after, victim):  # noqa: F811
    every(make_points_lab(site=SITE), 4, mode, "master", after, victim)


@pytest.mark.parametrize("mode", ["restart", "live"])
def test_at_every_record_of_the_second_job(make_points_lab, mode):  # noqa: F811
    every(make_points_lab(site=SITE), 4, mode, "master", "", life=2)


@pytest.mark.parametrize("mode", ["restart", "live"])
def test_the_pool_at_every_step(make_points_lab, mode):  # noqa: F811
    every(make_points_lab(site=SITE), 10, mode, "pool", "write */decisions", filter="call ")


@pytest.mark.parametrize("policy", ["dorm", "drf", "las-elastic"])
@pytest.mark.parametrize("kinds", [(), ("pool", "keeper", "master", "executor", "task")], ids=["undisturbed", "killed"])
def test_random_arrivals(make_lab, policy, kinds):  # noqa: F811
    until, seed, total = time.monotonic() + SOAK_S / 6, SEED, {}
    while time.monotonic() < until:
        lab = make_lab(site={**SITE, "pool.policy": policy, "pool.policy.loss-max": 0.3, "pool.policy.levels": "'0.5,2'"})
        print(f"seed {seed}", flush=True)
        day = Day(lab, seed, kinds)
        n = day.run(min(until, time.monotonic() + DAY_S))
        total = {k: total.get(k, 0) + v for k, v in n.items()}
        print(total, f"utilization {day.utilization:.1%}", flush=True)
        lab.settled()
        assert not lab.stop()
        seed += 1
