# SPDX-License-Identifier: Apache-2.0
"""
With control groups v1, the groups of a job's containers are used again by the next job (src/cgroup/spare.h). Each pool
here is in a memory group of its own, so that no other pool takes its spare groups.
"""
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from conftest import wait_until
from lib_jobs import Gated, kill9, lab, make_lab  # noqa: F401 (fixtures)
from test_restart import Runs

N = 10
SMALL = {"memory": "16m", "vcores": 0}
TOP = Path("/sys/fs/cgroup/memory")


def own_group():
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.split(":")[1] == "memory":
            return TOP / line.split(":")[2].lstrip("/")
    return None


@pytest.fixture
def apart(lab):
    """A lab whose pool is in a new memory group; lab.groups is the directory of its jobs' groups."""
    own = own_group()
    if not own or not os.access(own / "tasks", os.W_OK):
        pytest.skip("there are no control groups of version 1 here")
    base = Path(tempfile.mkdtemp(prefix="tony-test-", dir=own))
    try:
        (base / "tasks").write_text("0")
        lab.ok("pool", "start")
    finally:
        (own / "tasks").write_text("0")
    lab.groups = base / f"tony-{os.geteuid()}"
    yield lab
    lab.stop()
    wait_until(lambda: not lab.groups.exists(), "the pool has removed its groups")
    base.rmdir()


def groups_of(lab, app):
    """{name: inode} of the groups of the job's containers."""
    return {g.name: g.stat().st_ino for g in (lab.groups / app.removeprefix("application_")).iterdir() if g.is_dir()}


def spare_of(lab):
    """{name: inode} of the spare groups, which wait for the next job."""
    return {g.name: g.stat().st_ino for g in lab.groups.glob("spare-*/*") if g.is_dir()}


def run(lab, n=N, before="", role=SMALL, codes=None, state="SUCCEEDED"):
    job = Gated(lab, n, before=before, role=role).running()
    groups = groups_of(lab, job.app)
    for i in range(n):
        job.release(i)
    job.over(state)
    lab.settled()
    return groups


def test_the_next_job_has_the_same_groups(apart):
    lab = apart
    first = run(lab)
    assert len(first) == N and spare_of(lab) == first
    assert [p.name for p in lab.groups.glob("spare-*")] == [f"spare-{N}-{16 << 20}"]
    job = Gated(lab, N + 2, role={"memory": "24m", "vcores": 0}).running()
    second = groups_of(lab, job.app)
    assert not spare_of(lab)
    assert {name: second[name] for name in first} == first and len(second) == N + 2
    for name in second:
        group = lab.groups / job.app.removeprefix("application_") / name
        assert (group / "memory.limit_in_bytes").read_text() == f"{24 << 20}\n"
        assert (group / "cgroup.procs").read_text().split()
    other = Gated(lab, N, role=SMALL).running()  # this job uses all spare groups
    assert not set(groups_of(lab, other.app).values()) & set(second.values())
    job.release_all()
    job.over()
    lab.in_history(job.app)
    wait_until(lambda: spare_of(lab) == second, "the first that ends leaves its groups")
    other.release_all()
    other.over()
    lab.settled()
    assert spare_of(lab) == second


def test_a_smaller_job_leaves_the_groups_that_it_does_not_use(apart):
    lab = apart
    first = run(lab)
    run(lab, 2)
    assert spare_of(lab) == first
    assert [p.name for p in lab.groups.glob("spare-*")] == [f"spare-{N}-{16 << 20}"]
    run(lab, 2, role={"memory": "24m", "vcores": 0})
    assert spare_of(lab) == first
    assert [p.name for p in lab.groups.glob("spare-*")] == [f"spare-2-{24 << 20}"], "the others have the other limit"


def test_a_process_in_a_group_that_was_not_used_ends(apart):
    """A task that runs as root may have moved there."""
    lab = apart
    first = run(lab)
    job = Gated(lab, 1, role=SMALL).running()
    stray = subprocess.Popen(["sleep", "1000"])
    try:
        (lab.groups / job.app.removeprefix("application_") / "01_000007/tasks").write_text(str(stray.pid))
        job.release_all()
        job.over()
        assert stray.wait(60) == -9
        lab.settled()
        assert set(spare_of(lab)) == set(first) - {"01_000007"}
        assert [p.name for p in lab.groups.glob("spare-*")] == [f"spare-6-{16 << 20}"]
    finally:
        stray.kill()
        stray.wait()


def test_tasks_with_different_limits(apart):
    """The next job sets the limit of each group itself."""
    lab = apart
    job = Runs(lab, {"worker": {**SMALL, "instances": N}, "second": {"memory": "24m", "vcores": 0, "instances": N}})
    for role in ("worker", "second"):
        for i in range(N):
            job.pid(f"{role}:{i}")
            job.ends(f"{role}:{i}", 1, 0)
    job.over()
    lab.settled()
    assert len(spare_of(lab)) == 2 * N and (lab.groups / "spare-0-0").is_dir()
    job = Gated(lab, 2 * N, role=SMALL).running()
    for name in groups_of(lab, job.app):
        group = lab.groups / job.app.removeprefix("application_") / name
        assert (group / "memory.limit_in_bytes").read_text() == f"{16 << 20}\n"
    job.release_all()
    job.over()


@pytest.mark.parametrize("before", [
    "[ $TASK_INDEX != 3 ] || mkdir $(ls -d /sys/fs/cgroup/memory/$(sed -n s/.*:memory:.//p /proc/self/cgroup))/below;",
    "[ $TASK_INDEX != 3 ] || echo 1 > /sys/fs/cgroup/memory/$(sed -n s/.*:memory:.//p /proc/self/cgroup)/memory.oom_control;",
    "[ $TASK_INDEX != 3 ] || echo 20m > /sys/fs/cgroup/memory/$(sed -n s/.*:memory:.//p /proc/self/cgroup)/memory.limit_in_bytes;",
    "[ $TASK_INDEX != 3 ] || head -c 2m /dev/zero > /dev/shm/$TONY_CONTAINER_ID;",
], ids=["below", "oom_control", "limit", "shm"])
def test_a_group_that_is_not_like_new_is_removed(apart, before):
    """worker:3 changes its group, or leaves memory in it."""
    lab = apart
    first = run(lab, before=before)
    for left in Path("/dev/shm").glob(f"container_{(lab.home / 'pool/start').read_text().strip()}_*"):
        left.unlink()
    spare = spare_of(lab)
    assert set(first) - set(spare) == {"01_000004"}, "the other groups are kept"
    second = run(lab)
    assert all(second[name] == spare[name] for name in spare) and second["01_000004"] != first["01_000004"]


def test_a_group_in_which_a_task_was_killed_for_memory_is_removed(apart):
    lab = apart
    eat = "[ $TASK_INDEX != 3 ] || exec python3 -c \"b = b'x' * (64 << 20)\";"
    app = lab.submit(lab.workers(eat, n=N, role=SMALL, conf={"tony.application.fail-on-worker-failure-enabled": True}))
    assert lab.run("wait", app).returncode != 0
    lab.settled()
    assert "01_000004" not in spare_of(lab)
    assert len(run(lab)) == N


def test_the_keeper_is_killed(apart):
    """A job that another keeper has continued leaves no groups, and loses none of its own."""
    lab = apart
    first = run(lab)
    job = Gated(lab, N, role=SMALL, conf={"tony.task.restarts.node-lost": 3}).running()
    assert groups_of(lab, job.app) == first
    before = job.pid(0)
    kill9(lab.pids("keeper", job.app)[0])
    wait_until(lambda: job.starts(0)[-1] != before, "the tasks restart")
    lab.ok("kill", job.app)
    job.over("KILLED")
    lab.settled()
    assert not spare_of(lab)


def test_the_pool_is_killed(apart):
    """A killed pool leaves the groups; the next one uses them."""
    lab = apart
    first = run(lab)
    kill9(lab.pool_pid())
    assert spare_of(lab) == first
    own = own_group()
    (lab.groups.parent / "tasks").write_text("0")
    try:
        lab.ok("pool", "start")
    finally:
        (own / "tasks").write_text("0")
    assert run(lab) == first
