# SPDX-License-Identifier: Apache-2.0
"""One real Slurm for all tests of a pytest process. A test may break it; it is repaired before the next one."""

import contextlib
import os
import pathlib
import shutil
import tempfile

import pytest
from lib_slurm import USER, Slurm, wait_until
from lib_tony import Tony

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scancel", "srun")


@pytest.fixture(scope="session")
def the_slurm():
    if os.geteuid() != 0:
        pytest.skip("slurmd runs tasks of others, so it needs root")
    missing = [x for x in PROGRAMS if not shutil.which(x)]
    assert not missing, f"there is no {missing[0]}; run tools/install-deps check"
    base = pathlib.Path(tempfile.mkdtemp(prefix="ts-", dir="/tmp"))
    base.chmod(0o755)
    slurm = Slurm(base / "c", nodes=3, gpus=2)
    try:
        yield slurm.start()
    finally:
        slurm.stop()
        shutil.rmtree(base, ignore_errors=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """The fixtures see whether the test has failed."""
    report = (yield).get_result()
    item.has_failed = getattr(item, "has_failed", False) or report.failed


@pytest.fixture
def slurm(the_slurm, request):
    """A test that has failed may leave jobs; they end here."""
    the_slurm.repair()
    yield the_slurm
    if "slurmctld" not in the_slurm.procs:
        the_slurm.controller_on()
    if not request.node.has_failed:
        with contextlib.suppress(AssertionError):  # the batch script ends a moment after the job
            wait_until(lambda: not the_slurm.jobs("PENDING", "RUNNING"), "no job runs", limit=10)
    left = the_slurm.jobs("PENDING", "RUNNING")
    for job in left:
        the_slurm.run("scancel", "--signal=KILL", job)
    wait_until(lambda: not the_slurm.jobs(), "no job is left")
    assert not left or request.node.has_failed, f"the test has left jobs: {left}"


@pytest.fixture
def tony(slurm):
    """tony as an ordinary user, with a home that all nodes see."""
    base = pathlib.Path(tempfile.mkdtemp(prefix="th-", dir="/tmp"))
    shutil.chown(base, USER)
    tony = Tony(slurm, base, USER)
    yield tony
    tony.end_clients()
    tony.end_pool()
    shutil.rmtree(base, ignore_errors=True)
