# SPDX-License-Identifier: Apache-2.0
"""
Jobs that do not fit into the cluster together, and a cluster that cannot give what a job needs. `make soak`
repeats them 20 times.
"""

import re

import pytest
from lib_gangs import MIB, two_jobs_of_sixty_percent, workers


@pytest.mark.slow
@pytest.mark.takes(50)
def test_two_jobs_of_sixty_percent(tony):
    assert "given back" in (said := two_jobs_of_sixty_percent(tony)), said  # otherwise the jobs did not compete


@pytest.mark.slow
def test_a_gang_that_cannot_be_had_in_time(tony, cluster):
    filling, app, _ = tony.gated(12, role={"memory": f"{MIB}m"})
    r = tony.run("run", workers(tony, 8, "second", **{"tony.container.allocation.timeout": 4000}), timeout=300)
    said = r.stdout + r.stderr
    assert r.returncode == 1, said
    missing, of, what = re.search(r"(\d+) of (\d+) containers were not granted within 4 s: (.*)", said).groups()
    assert of == "8" and 4 <= int(missing) <= 8 and what.startswith(f"{missing} of 'worker' (1 GB, 1 core)"), said
    assert cluster.app(app)["state"] == "RUNNING"  # the other job kept its containers
    tony.let_go(filling)
