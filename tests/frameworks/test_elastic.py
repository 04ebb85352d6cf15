# SPDX-License-Identifier: Apache-2.0
"""The jobs of examples/elastic are resized while they train. They end with the result of an undisturbed run."""

import json
import os
import re
import sys
from collections import Counter

import pytest
from conftest import ROOT, wait_until
from lib_frameworks import EXAMPLES, RAY_IS_ALONE, RUN_LIMIT_S, environment
from lib_jobs import make_lab  # noqa: F401 (fixture)

ELASTIC = EXAMPLES / "elastic"
sys.path.insert(0, str(ELASTIC))
from elastic import Sampler  # noqa: E402

SIZES = (2, 3, 1)  # the number of workers at first, and after each resize


class Resized:
    """A job of examples/elastic. It pauses at a step (tests/fixtures/pauser) until the resize there was requested
    and is done. trains: the role whose program reports the steps. bin_dir: the directory of its Python."""

    def __init__(self, lab, name, trains, bin_dir, args=(), before=None):
        self.lab, self.trains, self.pause = lab, trains, lab.base / "pause"
        self.set_pause(before or 10 ** 9)
        env = f"PYTHONPATH={ROOT / 'tests/fixtures/pauser'},PAUSE={self.pause}"
        path = f"{bin_dir}:{lab.env['PATH']}" if bin_dir else lab.env["PATH"]
        self.app = lab.ok("submit", ELASTIC / f"{name}.yaml", "--conf", f"tony.{trains}.env={env}", *args, env={"PATH": path},
                          timeout=RUN_LIMIT_S).strip()

    def set_pause(self, step):
        self.pause.with_suffix(".new").write_text(str(step))
        os.replace(self.pause.with_suffix(".new"), self.pause)  # a reader finds either the old or the new step

    def doc(self):
        r = self.lab.run("status", self.app, "--json")  # the exit code is that of the job
        return json.loads(r.stdout) if r.stdout else {}

    def step(self):
        doc = self.doc()
        assert doc.get("exit_code") is None, f"the job has ended: {self.lab.run('why', self.app).stdout}\n{self.said()}"
        return max((t["step"] or 0 for t in doc.get("tasks", ()) if t["state"] == "running"), default=0)

    def resize(self, number, at, n, next_pause):
        """Resize number `number`: at the step `at`, to n workers."""
        wait_until(lambda: self.step() >= at, f"step {at} of {self.app}", RUN_LIMIT_S, 0.05)
        self.lab.ok("resize", self.app, f"worker={n}")
        if next_pause:  # a job that waits for containers may train on until there
            self.set_pause(next_pause)
        wait_until(lambda: self.doc().get("resizes") == number, f"resize {number} of {self.app}", RUN_LIMIT_S, 0.05)

    def said(self):
        logs = sorted(self.lab.dir(self.app).glob("logs/*/*/std*"))
        return "\n".join(f"---- {p}\n{p.read_text(errors='replace')[-2000:]}" for p in logs)

    def log(self, stream="stdout"):
        """The output of all attempts of all tasks that train."""
        return "\n".join(p.read_text() for p in sorted(self.lab.dir(self.app).glob(f"logs/{self.trains}-*/*/{stream}")))

    def result(self):
        """(accuracy, loss), which the program prints at its end."""
        self.pause.unlink(missing_ok=True)
        self.lab.run("wait", self.app, timeout=RUN_LIMIT_S)
        doc = self.lab.status(self.app)
        assert doc["state"] == "SUCCEEDED", self.lab.run("why", self.app).stdout + self.said()
        found = re.findall(r"accuracy (\S+) loss (\S+)", self.log())
        assert len(found) == 1, self.said()
        return float(found[0][0]), float(found[0][1])


def first_size(n):
    return "--conf", f"tony.worker.instances={n}"


def resized(lab, name, bin_dir, steps, args=(), sizes=SIZES):
    """A job that has been resized at these steps."""
    job = Resized(lab, name, "worker", bin_dir, (*first_size(sizes[0]), *args), before=steps[0])
    for number, (at, n) in enumerate(zip(steps, sizes[1:]), 1):
        job.resize(number, at, n, steps[number] if number < len(steps) else steps[-1] + 5)
    return job


def check_restarts(job, steps, sizes=SIZES):
    """Each generation had the right size, and resumed from the step before which it was resized or a later one."""
    doc = job.doc()
    assert (doc["resizes"], doc["generation"], doc["restarts"]) == (len(steps), len(steps) + 1, 0), doc
    begun = sorted((int(start), int(n)) for n, start in re.findall(r"rank 0 of (\d+) from step (\d+)", job.log()))
    assert [n for _, n in begun] == list(sizes) and begun[0][0] == 0, begun
    assert all(start >= at for at, (start, _) in zip(steps, begun[1:])), begun


def undisturbed(lab, name, trains, bin_dir, args=()):
    """(accuracy, loss) of one worker that trains alone."""
    return Resized(lab, name, trains, bin_dir, (*first_size(1), *args)).result()


def test_the_sampler_divides_each_step():
    """For each number of ranks the parts of a step are disjoint, are its samples, and are never empty."""
    steps = {}
    for world in (1, 2, 3, 7):
        ranks = [list(Sampler(103, 10, 2, rank, world)) for rank in range(world)]
        for step, parts in enumerate(zip(*ranks)):
            assert all(parts)
            assert steps.setdefault(step, sorted(sum(parts, []))) == sorted(sum(parts, []))
    assert len(steps) == 20
    for epoch in (0, 10):
        assert sorted(sum((steps[epoch + i] for i in range(10)), [])) == list(range(103))
    assert list(Sampler(103, 10, 2, 1, 3, start=7)) == list(Sampler(103, 10, 2, 1, 3))[7:]
    with pytest.raises(ValueError, match="divided among 11 ranks"):
        Sampler(103, 10, 2, 0, 11)


@pytest.mark.takes(30)
def test_pytorch(make_lab):  # noqa: F811
    lab = make_lab()
    args = ("--conf", "tony.worker.command=/usr/bin/python3 train_pytorch.py --epochs 2 --say-samples")
    steps = (20, 70)  # one in each epoch of 50 steps
    job = resized(lab, "pytorch", None, steps, args)
    accuracy, loss = job.result()
    check_restarts(job, steps)
    taken = Counter()
    for line in re.findall(r"^samples (.*)", job.log(), re.M):
        step, *samples = map(int, line.split())
        taken.update((step // 50, sample) for sample in samples)
    assert taken == Counter({(epoch, sample): 1 for epoch in (0, 1) for sample in range(2000)}), "each sample once in each epoch"
    # Only the order in which gradients are added up differs. That may change the result for one image.
    wanted, wanted_loss = undisturbed(lab, "pytorch", "worker", None, args)
    assert loss == pytest.approx(wanted_loss, rel=1e-3) and accuracy == pytest.approx(wanted, abs=0.0026)
    lab.settled()


@pytest.mark.slow
@pytest.mark.takes(60)
def test_tensorflow(make_lab):  # noqa: F811
    lab, python = make_lab(), environment("main")
    args = ("--shell_env", "EPOCHS=3")
    steps, sizes = (20, 70), (1, 2, 1)  # each start of TensorFlow costs seconds
    job = resized(lab, "tensorflow", python, steps, args, sizes)
    accuracy, loss = job.result()
    check_restarts(job, steps, sizes)
    wanted, wanted_loss = undisturbed(lab, "tensorflow", "worker", python, args)
    assert loss == pytest.approx(wanted_loss, rel=1e-3) and accuracy == pytest.approx(wanted, abs=0.0026)
    lab.settled()


@pytest.mark.slow
@pytest.mark.takes(20)
def test_xgboost(make_lab):  # noqa: F811
    lab, python = make_lab(), environment("main")
    steps = (10, 20)
    job = resized(lab, "xgboost", python, steps)
    accuracy, loss = job.result()
    check_restarts(job, steps)
    # Each worker sorts its own rows into bins before they are merged, so other parts give slightly different bins.
    wanted, wanted_loss = undisturbed(lab, "xgboost", "worker", python)
    assert loss == pytest.approx(wanted_loss, rel=0.05) and accuracy == pytest.approx(wanted, abs=0.04)
    lab.settled()


@pytest.mark.slow
@RAY_IS_ALONE
def test_ray(make_lab):  # noqa: F811
    epochs = 10  # of 20 steps
    lab, python = make_lab(), environment("main")
    args = ("--shell_env", f"EPOCHS={epochs}")
    job = Resized(lab, "ray", "driver", python, args, before=10)

    def cluster_has(n):
        """Ray counts a worker some time after tony has started it."""
        wait_until(lambda: all("Ray runtime started" in lab.log_so_far(job.app, f"worker:{i}") for i in range(n)),
                   f"{n} workers belong to Ray's cluster", RUN_LIMIT_S, 0.05)

    cluster_has(2)
    job.resize(1, 10, 3, None)  # the driver still waits at this step
    cluster_has(3)
    at = 10
    while "on 3 workers" not in job.log():  # Ray gives tasks to a new worker some time after that
        at += 1
        job.set_pause(at)
        wait_until(lambda n=at: job.step() >= n, f"step {at} of {job.app}", RUN_LIMIT_S, 0.05)
    job.resize(2, at, 1, None)
    accuracy, loss = job.result()
    doc = job.doc()
    assert (doc["resizes"], doc["generation"], doc["restarts"]) == (2, 1, 0), doc
    # The steps go on without a gap, at last on the one worker that stayed.
    on = re.findall(r"step (\d+) on (\d+) workers", job.log())
    assert [int(step) for step, _ in on] == list(range(1, 20 * epochs + 1))
    assert at < 20 * epochs and {n for step, n in on if int(step) > at} == {"1"}, on
    # The same parts are added up in the same order: the result is the same, whoever computed them.
    wanted, wanted_loss = undisturbed(lab, "ray", "driver", python, args)
    assert (accuracy, loss) == (wanted, pytest.approx(wanted_loss, rel=1e-6))
    lab.settled()
