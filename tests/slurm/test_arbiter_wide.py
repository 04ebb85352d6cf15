# SPDX-License-Identifier: Apache-2.0
"""tony arbiter on a Slurm of its own with five nodes: three jobs whose workers have GPUs. dorm and drf divide the nodes."""

import pathlib
import shutil
import tempfile

import pytest
from lib_slurm import Slurm, wait_until
from test_arbiter import LIMIT_S, SITE, Job, arbiter, until  # noqa: F401 (a fixture)

NODES = 5


@pytest.fixture
def slurm():
    base = pathlib.Path(tempfile.mkdtemp(prefix="ts-", dir="/tmp"))
    base.chmod(0o755)
    wide = Slurm(base / "c", nodes=NODES, gpus=2)
    try:
        yield wide.start()
    finally:
        wide.stop()
        shutil.rmtree(base, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["dorm", "drf"])
def test_three_jobs_share_five_nodes(tony, slurm, arbiter, policy):  # noqa: F811
    (tony.base / "tony-site.yaml").write_text(SITE.replace("drf", policy))
    jobs = [Job(tony, "first", 2, NODES)]
    arbiter.start()
    until(lambda: jobs[0].running() == NODES, "the first job has all nodes", *jobs)
    for name in ("second", "third"):
        jobs.append(Job(tony, name, 2, NODES))
        until(lambda: all(j.running() >= 1 for j in jobs) and sum(j.running() for j in jobs) == NODES, f"with {name}, all nodes are used", *jobs)
    for job in jobs[1:]:
        job.end()
    until(lambda: jobs[0].running() == NODES, "the first job has all nodes again", jobs[0])
    jobs[0].end()
    assert all(n > 0 for n in jobs[0].first_steps()[1:]), jobs[0].output()
    wait_until(lambda: not slurm.jobs(), "nothing is left in Slurm's queue", LIMIT_S)
