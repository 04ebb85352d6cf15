# SPDX-License-Identifier: Apache-2.0
"""When a job is over, its keeper makes log directories for the next job (src/executor/spare.h)."""
from conftest import wait_until
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)
from test_restart import Runs

N = 3


def spare(lab):
    """{number: inode} of the log directories that are ready."""
    return {int(p.name): p.stat().st_ino for p in (lab.home / "pool/spare/logs").glob("*")}


def logs(lab, app):
    """{task: inode} of its log directory."""
    return {p.name: p.stat().st_ino for p in (lab.dir(app) / "logs").iterdir()}


def run(lab, n=N):
    """A job that ends after the pool has connected to its keeper: a keeper without a pool prepares nothing."""
    go = lab.base / "go"
    go.unlink(missing_ok=True)
    app = lab.submit(lab.workers(f"until [ -e {go} ]; do sleep 0.02; done; echo $TASK_INDEX; echo err >&2", n=n))
    wait_until(lambda: f"keeper.live job={app}" in (lab.home / "pool/pool.log").read_text(), "the pool is connected")
    go.touch()
    lab.in_history(app)
    lab.settled()
    return app


def test_the_next_job_takes_them(lab):
    first = run(lab)
    ready = spare(lab)
    assert sorted(ready) == [1, 2, 3]
    second = run(lab)
    assert sorted(logs(lab, second).values()) == sorted(ready.values())
    assert sorted(spare(lab)) == [1, 2, 3] and not set(spare(lab).values()) & set(ready.values())
    for app in (first, second):
        for i in range(N):
            assert lab.log(app, f"worker:{i}") == f"{i}\n" and lab.log(app, f"worker:{i}", "stderr") == "err\n"
            d = lab.dir(app) / f"logs/worker-{i}/1"
            assert d.stat().st_mode & 0o777 == 0o700 and (d / "stdout").stat().st_mode & 0o777 == 0o600


def test_a_smaller_job_and_a_larger_one(lab):
    run(lab)
    ready = spare(lab)
    app = run(lab, 1)
    assert set(logs(lab, app).values()) < set(ready.values()), "one was taken"
    assert sorted(spare(lab)) == [1, 2, 3] and len(set(spare(lab).values()) & set(ready.values())) == 2, "the others stay"
    app = run(lab, 5)
    assert len(logs(lab, app)) == 5 and sorted(spare(lab)) == [1, 2, 3, 4, 5]


def test_the_second_attempt_of_a_task_takes_none(lab):
    run(lab)
    ready = spare(lab)
    job = Runs(lab, {"worker": {"instances": 1, "restart": "on-failure"}})
    job.ends("worker:0", 1, 1)
    job.env("worker:0", 2)
    assert set(spare(lab)) == {2, 3}
    job.ends("worker:0", 2, 0)
    job.over()
    assert logs(lab, job.app) == {"worker-0": ready[1]}
    assert sorted(p.name for p in (lab.dir(job.app) / "logs/worker-0").iterdir()) == ["1", "2"]
    lab.settled()
    assert sorted(spare(lab)) == [1, 2, 3]
