# SPDX-License-Identifier: Apache-2.0
"""
examples/digits as a job to be killed: starting it, finding its processes, and comparing its model with the
expected one.
"""

import json
import random
import time

from conftest import ROOT, wait_until
from lib_jobs import kill9

PYTHON = "/usr/bin/python3"
JOB = ROOT / "examples/digits/job.yaml"
KINDS = ("task", "executor", "master", "pool", "keeper")
HARMLESS = {"master", "pool"}  # no task notices when these die
LIMIT_S = 300  # importing PyTorch took 80 s on a machine with 2000 runnable processes


def pauser(lab, pause):
    """
    Options for a job whose tasks stop while the file `pause` says so: see
    tests/fixtures/pauser/sitecustomize.py.
    """
    return ["--shell_env", f"PYTHONPATH={ROOT / 'tests/fixtures/pauser'}", "--shell_env", f"PAUSE={pause}"]


def _args(epochs, save_every):
    return ["--conf", f"tony.containers.command={PYTHON} train.py --epochs {epochs} --save-every {save_every}"]


def _last_line(lab, app):
    attempt = lab.tasks(app)["worker:0"]["attempt"]
    return json.loads(lab.log(app, "worker:0", attempt=attempt).strip().splitlines()[-1])


def result(lab, app, epochs):
    """The last line that rank 0 has printed: the result of the training."""
    assert lab.run("wait", app, timeout=LIMIT_S + epochs).returncode == 0, lab.ok("why", app)
    return _last_line(lab, app)


def undisturbed(lab, epochs, save_every=10):
    """The model of the same steps in a run without a kill."""
    return result(lab, lab.submit(JOB, *_args(epochs, save_every)), epochs)["model"]


def undisturbed_accuracy(lab, epochs, save_every=10):
    return result(lab, lab.submit(JOB, *_args(epochs, save_every)), epochs)["accuracy"]


class Training:
    """A training job whose processes the test kills."""

    def __init__(self, lab, seed, epochs, save_every=10, *args):
        self.lab, self.rnd = lab, random.Random(seed)
        self.killed = {}
        many = {"tony.worker.restart": "on-failure", "tony.worker.max-restarts": -1, "tony.task.restarts.node-lost": 20}
        conf = [x for k, v in many.items() for x in ("--conf", f"{k}={v}")]
        self.app = lab.submit(JOB, *_args(epochs, save_every), *conf, *args)

    def doc(self):
        """The status; None if no program answers."""
        r = self.lab.run("status", self.app, "--json")
        return json.loads(r.stdout) if r.returncode == 0 else None

    def step(self):
        doc = self.doc() or {}
        return max((t["step"] or 0 for t in doc.get("tasks", ()) if t["state"] == "running"), default=0)

    def lives(self):
        return (self.lab.home / "jobs" / self.app).is_dir()

    def await_step(self, step):
        """Waits until a task has trained this step, or the job is over. Returns the status."""
        def look():
            now = self.step()
            return (now,) if now >= step or not self.lives() else None
        return wait_until(look, f"step {step} of {self.app}", LIMIT_S, 0.02)[0]

    def await_half_a_checkpoint(self):
        """Waits until a checkpoint is being written or the job is over."""
        where = self.lab.home / "jobs" / self.app / "logs"
        wait_until(lambda: not self.lives() or any(where.glob("*/*/checkpoints/*.tmp*")), f"a checkpoint of {self.app}", LIMIT_S)

    def strike(self, *kinds):
        """kill -9 of one process of each kind at once."""
        found = self.lab.processes_all()
        victims = []
        for kind in kinds:
            mine = [p for p in found if p.kind == kind and (kind == "pool" or p.app == self.app)]
            if kind == "task":  # the ranks, not the shells that started them
                mine = [p for p in mine if "train.py" in p.line]
            if mine:
                victims.append(self.rnd.choice(mine))
                self.killed[kind] = self.killed.get(kind, 0) + 1
        kill9(*[p.pid for p in victims])
        return {p.kind for p in victims}

    def strike_all(self):
        """kill -9 of all processes, as if the machine had been switched off."""
        victims = [p for p in self.lab.processes_all() if p.kind == "pool" or p.app == self.app]
        kill9(*[p.pid for p in victims])
        self.killed["all"] = self.killed.get("all", 0) + 1
        return {p.kind for p in victims}

    def over(self, limit=LIMIT_S):
        """Waits for the end of the job and returns the model."""
        self.lab.run("wait", self.app, timeout=limit)
        self.lab.in_history(self.app)
        doc = self.lab.status(self.app)
        assert doc["state"] == "SUCCEEDED", f"{self.killed}\n{self.lab.ok('why', self.app)}\n{json.dumps(doc)}"
        return _last_line(self.lab, self.app)["model"]

    def formations(self):
        return self.lab.status(self.app)["generation"]
