# SPDX-License-Identifier: Apache-2.0
"""
Long runs of PyTorch: a rank is killed again and again, and the model equals that of an undisturbed run with
torchrun.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

FRAMEWORKS = pathlib.Path(__file__).resolve().parents[1] / "frameworks"
sys.path.insert(0, str(FRAMEWORKS))
_spec = importlib.util.spec_from_file_location("frameworks_torch", FRAMEWORKS / "test_torch.py")
short = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(short)

TIMES = int(os.environ.get("TONY_TORCH_KILLS", 20))


def by_torchrun(python, folder, steps):
    folder.mkdir()
    # torch 1.13 fails without redirection on a current Python
    out = subprocess.run([python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "4", "--redirects", "1", "--tee", "1",
                          short.SCRIPT, folder, str(steps)], check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
    found = {line.split(" weights ")[1] for line in out.splitlines() if " weights " in line}
    assert len(found) == 1, out
    return found.pop()


@pytest.mark.parametrize("name", ["debian", "torch"])
def test_the_result_is_that_of_torchrun(own_tony, name):
    """
    Rank 0 and others are killed in turn, at later and later steps. The result is the same to the last printed
    digit.
    """
    t = own_tony()
    python = short.python_of(name)
    steps = 2 * TIMES + 4
    app = short.train(t, python, steps, die=[(0 if i % 2 == 0 else i % 4, 2 * i + 1) for i in range(TIMES)])
    last = short.said(t, app, TIMES + 1)
    assert {lines[-1].split(" weights ")[1] for lines in last} == {by_torchrun(python, t.base / "plain", steps)}


def test_training_continues_on_pytorch_2(own_tony):
    short.check_goes_on(own_tony(), "torch")


@pytest.mark.parametrize("name, ranks", [("debian", 16), ("torch", 1)])
def test_64_ranks(own_tony, name, ranks):
    """
    All ranks meet, rank 0 is killed, all meet again. If an import takes 300 MB, each task has one rank, which
    forks the others.
    """
    t = own_tony()
    script = pathlib.Path(__file__).with_name("lib_many.py")
    path = t.workers(f"{short.python_of(name)} -u {script}", n=4, framework="pytorch", env={"FORKS": str(16 // ranks), "OMP_NUM_THREADS": "1"},
                     role={"ranks": ranks, "memory": "5g", "restart": "on-failure"})
    app = t.submit(path)
    t.run("wait", app, timeout=1200)
    doc = t.status(app)
    assert (doc["state"], doc["generation"]) == ("SUCCEEDED", 2), doc
    said = "".join(t.log(app, f"worker:{i}", f"stdout.{k}" if k else "stdout", 2) for i in range(4) for k in range(ranks))
    assert sorted(said.splitlines()) == sorted(f"rank {r} of 64 is through" for r in range(64))
