"""The real thing: a script written for torchrun, on Debian's PyTorch."""

import os

import pytest
from conftest import ROOT

PYTHON = "/usr/bin/python3"
SCRIPT = ROOT / "tests" / "e2e" / "lib_torchrun.py"
HERE = os.system(f"{PYTHON} -c 'import torch' 2>/dev/null") == 0


def train(t, python, steps, role=None, n=2, ranks=2, **env):
    snapshot = t.base / f"snapshot{t.n_files}"
    path = t.workers(f"{python} -u {SCRIPT} {snapshot} {steps}", n=n, framework="pytorch",
                     role={"ranks": ranks, "memory": "3g", **(role or {})}, env={k: str(v) for k, v in env.items()})
    app = t.submit(path)
    t.run("wait", app, timeout=110)
    doc = t.status(app)
    assert doc["state"] == "SUCCEEDED", doc
    return app, doc


def said(t, app, attempt=1, n=2, ranks=2):
    """What each rank has printed, in their order."""
    return [t.log(app, f"worker:{i}", f"stdout.{k}" if k else "stdout", attempt).splitlines() for i in range(n) for k in range(ranks)]


@pytest.mark.skipif(not HERE, reason="no PyTorch here")
def test_rank_0_dies_and_the_training_goes_on(tony):
    """2 tasks of 2 ranks; killed after its 5th step rank 0 takes nobody's store along: all go on from the snapshot, in one more formation."""
    app, doc = train(tony, PYTHON, 12, role={"restart": "on-failure"}, DIE="0 0 5", OMP_NUM_THREADS=1)
    assert doc["generation"] == 2
    assert [lines[0] for lines in said(tony, app)] == [f"rank {r} of 4 local {r % 2} from 0 again 0" for r in range(4)]
    again = said(tony, app, 2)
    assert [lines[0] for lines in again] == [f"rank {r} of 4 local {r % 2} from 5 again 1" for r in range(4)]
    weights = {lines[-1].split(" weights ")[1] for lines in again}
    assert len(weights) == 1, "all have the same model"
    assert [lines[-1].split()[1] for lines in again] == ["1", "2", "1", "2"]
    assert all(abs(float(w) - 1) < 0.5 for w in weights.pop().split()[:8]), "it has learned"
