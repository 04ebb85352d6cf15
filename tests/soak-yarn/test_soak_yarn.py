# SPDX-License-Identifier: Apache-2.0
"""
Tests on a real Hadoop: jobs that compete for containers, hundreds of containers, and daemons that are killed
at random. The kills go on for TONY_SOAK_S seconds (an hour by
default), from TONY_SEED on (by default a new seed each time).
"""

import os
import random
import time

import pytest
from lib_gangs import two_jobs_of_sixty_percent

SOAK_S = float(os.environ.get("TONY_SOAK_S", "3600"))
SEED = int(os.environ.get("TONY_SEED", random.SystemRandom().randrange(1, 1 << 30)))
ROUNDS = int(os.environ.get("TONY_GANG_ROUNDS", "20"))


def test_two_jobs_of_sixty_percent(tony, cluster):
    for n in range(ROUNDS):
        began = time.monotonic()
        two_jobs_of_sixty_percent(tony)
        print(f"round {n}: {time.monotonic() - began:.0f} s", flush=True)


@pytest.mark.parametrize("n", [200, 250])
def test_hundreds_of_containers(tony, cluster, n):
    """As many as the two NodeManagers can run; all start and all end."""
    r = tony.run("run", tony.workers("true", n=n, conf={"tony.application.fail-on-worker-failure-enabled": "true"}), timeout=600)
    assert r.returncode == 0, r.stderr


def test_daemons_die_at_random(tony, cluster):
    """Whichever daemon dies and restarts, and whenever: the job succeeds, without unnecessary attempts."""
    dice = random.Random(SEED)
    print(f"seed {SEED}", flush=True)
    until, n = time.monotonic() + SOAK_S / 3, 0
    while time.monotonic() < until or n == 0:
        p, app, pids = tony.gated(dice.randint(1, 6))
        for daemon in dice.sample(cluster.names(), dice.randint(1, 3)):
            time.sleep(dice.random() * 2)  # a random moment
            cluster.signal(daemon)
            if dice.random() < 0.5:
                cluster.up()
        cluster.up()
        assert all(os.path.exists(f"/proc/{pid}") for pid in pids), "a task has not outlived its daemons"
        tony.let_go(p)
        assert len(cluster.attempts(app)) == 1
        n += 1
    print(f"{n} jobs", flush=True)
