# SPDX-License-Identifier: Apache-2.0
"""One small real run of each framework: its job in examples/, and the accuracy that it must reach."""

import os
import re
import shutil
import signal

import pytest

from conftest import processes_with, wait_until
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)
from lib_frameworks import EXAMPLES, EXAMPLES_LEARN, MPI_PROGRAM, environment, mpicc, results, run


@pytest.fixture
def own(own_tony):
    """
    Tasks find Python through the PATH of the process that started their pool, so each job has its own pool.
    """
    return own_tony()


def accuracy(r):
    found = re.findall(r"accuracy (0\.\d+)", r.logs)
    assert found, r.said[-6000:]
    return min(map(float, found))


@pytest.mark.parametrize("job, python, least", EXAMPLES_LEARN)
def test_the_digits_are_learned(own, job, python, least):
    r = run(own, environment(python), job)
    assert r.returncode == 0, r.said[-6000:]
    assert accuracy(r) >= least
    # servers do not end by themselves; they were stopped with the job, and that is not a failure
    assert set(results(own, r.app).values()) <= {"SUCCEEDED", "FINISHED"}
    # after it has reported the end, the keeper still removes files
    wait_until(lambda: not processes_with(b"TONY_APPLICATION_ID=" + r.app.encode()), "no process of the job is left")


def test_mxnet(own):
    r = run(own, environment("mxnet"), EXAMPLES / "mxnet/job.yaml")
    assert r.returncode == 0, r.said[-6000:]
    assert len(re.findall(r"largest error of a weight 0\.0", r.logs)) == 2, r.logs
    assert set(results(own, r.app).values()) == {"SUCCEEDED"}


@pytest.mark.slow
def test_a_task_that_ignores_term_is_killed(own):
    """
    TensorFlow's mirrored workers ignore TERM and train on. They are killed after the grace period, and have
    not failed.
    """
    src = own.base / "src"
    shutil.copytree(EXAMPLES / "tensorflow", src)
    script = (src / "train_mirrored.py").read_text()
    endless = script.replace("range(150)", "range(10**9)").replace("    loss = step(batches)", "    loss = step(batches); open('going', 'w').close()")
    assert endless.count("10**9") == endless.count("going") == 1
    (src / "train_mirrored.py").write_text(endless)
    worker = {"instances": 2, "memory": "2g", "command": "python3 train_mirrored.py", "ready": "file:going"}
    r = run(own, environment("main"), own.job_file(
        {"worker": worker, "evaluator": {"instances": 1, "command": "true", "depends-on": "worker:ready", "stops": "worker"}},
        framework="tensorflow", src=str(src), env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1"},
        conf={"tony.task.kill-grace-ms": 2000, "tony.application.fail-on-worker-failure-enabled": True}))
    assert r.returncode == 0, r.said[-6000:]
    tasks = {t["task"]: t for t in own.json("tasks", r.app)["tasks"]}
    assert {name: (t["result"], t["signal"]) for name, t in tasks.items()} == {
        "evaluator:0": ("SUCCEEDED", None), "worker:0": ("FINISHED", 9), "worker:1": ("FINISHED", 9)}, tasks


# ---- MPI without mpiexec, with Debian's MPICH ----

@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return mpicc(MPI_PROGRAM, tmp_path_factory.mktemp("mpi") / "ring")


def mpi_job(tony, program, what, *more):
    job = tony.base / "mpi.yaml"
    job.write_text(f"name: ring\nframework: mpi\ncommand: {program} {what}\nroles: {{worker: {{instances: 4, memory: 128m}}}}\n")
    return run(tony, None, job, *more)


def test_mpich_connects_without_mpiexec(tony, program):
    r = mpi_job(tony, program, "")
    assert r.returncode == 0, r.said
    assert sorted(re.findall(r"rank (\d) of 4 sum 10", r.logs)) == ["0", "1", "2", "3"]


def test_abort_ends_the_job_with_its_code(tony, program):
    r = mpi_job(tony, program, "abort")
    assert r.returncode == 1 and "worker:1" in r.stdout and "exit code 42" in r.stdout, r.said


def test_a_rank_that_dies_ends_the_others(tony, program):
    r = mpi_job(tony, program, "die")
    assert r.returncode == 1 and "worker:1" in r.stdout and "SIGKILL" in r.stdout, r.said


def test_ranks_meet_again_in_a_new_generation(tony, program):
    r = mpi_job(tony, program, "once", "--conf", "tony.worker.restart=on-failure")
    assert r.returncode == 0, r.said
    assert tony.json("status", r.app)["generation"] == 2



@pytest.mark.parametrize("what, state, code", [("", "SUCCEEDED", 0), ("abort", "FAILED", 42)], ids=["ends", "aborts"])
def test_the_master_is_killed_while_ranks_run(lab, program, what, state, code):  # noqa: F811
    """After the master's death the messages of the ranks to their server still arrive."""
    gate = lab.base / "gate"
    app = lab.submit(lab.workers(f"{program} '{what}' {gate}", n=4, framework="mpi", role={"memory": "128m"}))
    wait_until(lambda: lab.run("logs", app).stdout.count("sum 10") == 4, "the ranks have met")
    old = lab.one("master", app)
    os.kill(old, signal.SIGKILL)
    gate.write_text("")
    lab.run("wait", app)
    doc = lab.status(app)
    assert (doc["state"], doc["generation"]) == (state, 1) and doc["epoch"] > 1, doc
    if code:
        assert "worker:1" in doc["message"] and f"exit code {code}" in doc["message"], doc["message"]
