# SPDX-License-Identifier: Apache-2.0
"""
Real PyTorch: a script for torchrun, unchanged. A torch of the 2.x line is tested only in the soak, because it
takes 5.5 GB.
"""

import pathlib

import pytest
from lib_frameworks import RUN_LIMIT_S, environment

SCRIPT = pathlib.Path(__file__).with_name("lib_torchrun.py")
DEBIAN = "/usr/bin/python3"


def python_of(name):
    return environment("torch", optional=True) / "python3" if name == "torch" else DEBIAN


def train(t, python, steps, die=(), n=2, ranks=2):
    """Runs a training in which one rank kills itself in each generation; `die` has the rank and the step for each
    generation. Ranks that have saved more steps do not wait for the others."""
    folder = t.base / f"snapshots{t.n_files}"
    folder.mkdir()
    path = t.workers(f"{python} -u {SCRIPT} {folder} {steps}", n=n, framework="pytorch",
                     role={"ranks": ranks, "memory": "4g", "restart": "on-failure", "max-restarts": 40},
                     env={"DIE": ",".join(f"{i} {rank} {step}" for i, (rank, step) in enumerate(die)), "OMP_NUM_THREADS": "1"}, conf={
                         "tony.task.checkpoint-dir": str(folder), "tony.task.checkpoint-pattern": r"step-([0-9]+)"})
    app = t.submit(path)
    t.run("wait", app, timeout=RUN_LIMIT_S * (1 + len(die)))
    doc = t.status(app)
    assert doc["state"] == "SUCCEEDED", doc
    assert doc["generation"] == 1 + len(die)
    return app


def said(t, app, attempt, n=2, ranks=2):
    """The output of each rank, in the order of the ranks."""
    return [t.log(app, f"worker:{i}", f"stdout.{k}" if k else "stdout", attempt).splitlines() for i in range(n) for k in range(ranks)]


@pytest.mark.slow
def test_rank_0_dies_and_the_training_goes_on(own_tony):
    """Two tasks have two ranks each. Rank 0 is killed after its 5th step. The store survives, and all ranks resume
    from the snapshot."""
    check_goes_on(own_tony(), "debian")


def check_goes_on(t, name):
    app = train(t, python_of(name), 12, die=[(0, 5)])
    assert [lines[0] for lines in said(t, app, 1)] == [f"rank {r} of 4 local {r % 2} from 0 again 0" for r in range(4)]
    again = said(t, app, 2)
    assert [lines[0] for lines in again] == [f"rank {r} of 4 local {r % 2} from 5 again 1" for r in range(4)]
    weights = {lines[-1].split(" weights ")[1] for lines in again}
    assert len(weights) == 1, "all have the same model"
    assert [lines[-1].split()[1] for lines in again] == ["1", "2", "1", "2"], "a group of two of them was formed late"
    assert all(abs(float(w) - 1) < 0.5 for w in weights.pop().split()[:8]), "it has learned"
