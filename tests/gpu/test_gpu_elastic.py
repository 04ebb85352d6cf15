# SPDX-License-Identifier: Apache-2.0
"""
The policy dorm resizes trainings on a real GPU (examples/elastic). Each worker should have a GPU of its own. As the
machine may have only one, all workers share GPU 0 here, and add up their gradients through gloo.
"""

import json
import re
import sys
from collections import Counter

import pytest
from conftest import ROOT, wait_until
from lib_jobs import make_lab  # noqa: F401 (fixture)

LIMIT_S = 200
STEPS_OF_AN_EPOCH = 50
SITE = {"pool.memory": "32g", "pool.policy": "dorm", "pool.policy.interval": 200, "pool.policy.payback": 0}


class Training:
    """A job with 1 to 4 workers. It waits at the step `pause`."""

    def __init__(self, lab, epochs, workers, pause=0, args=()):
        self.lab = lab
        self.pause = lab.base / f"pause-{epochs}"
        if pause:
            self.pause.write_text(str(pause))
        env = f"CUDA_VISIBLE_DEVICES=0,PYTHONPATH={ROOT / 'tests/fixtures/pauser'},PAUSE={self.pause}"
        command = f"{sys.executable} train_pytorch.py --backend gloo --say-samples --save-every 200 --epochs {epochs}"
        conf = {"command": command, "env": env, "memory": "8g", "instances": workers}
        conf = [word for key, value in conf.items() for word in ("--conf", f"tony.worker.{key}={value}")]
        self.app = lab.ok("submit", ROOT / "examples/elastic/pytorch.yaml", *conf, *args).strip()

    def doc(self):
        return json.loads(self.lab.run("status", self.app, "--json").stdout)

    def log(self):
        return "\n".join(p.read_text() for p in sorted(self.lab.dir(self.app).glob("logs/worker-*/*/stdout")))

    def trains_with(self, n, after=0):
        """Waits until n workers have trained beyond the step `after`."""
        def is_so():
            doc = self.doc()
            assert doc.get("exit_code") is None, self.lab.run("why", self.app).stdout
            running = [t for t in doc["tasks"] if t["state"] == "running"]
            return len(running) == n and all((t["step"] or 0) > after for t in running) and doc
        return wait_until(is_so, f"{n} workers of {self.app} train", LIMIT_S, 0.05)

    def result(self):
        """(accuracy, loss)"""
        self.pause.unlink(missing_ok=True)
        assert self.lab.run("wait", self.app, timeout=LIMIT_S).returncode == 0, self.lab.run("why", self.app).stdout
        found = re.findall(r"accuracy (\S+) loss (\S+)", self.log())
        assert len(found) == 1, self.log()[-2000:]
        return float(found[0][0]), float(found[0][1])

    def check_samples(self, epochs):
        taken = Counter()
        for line in re.findall(r"^samples (.*)", self.log(), re.M):
            step, *samples = map(int, line.split())
            taken.update((step // STEPS_OF_AN_EPOCH, sample) for sample in samples)
        assert taken == Counter({(e, sample): 1 for e in range(epochs) for sample in range(2000)})


def test_a_second_training_comes_and_ends(make_lab):  # noqa: F811
    """The first one has 4 workers, then fewer beside the second one, then 4 again. No sample is left out or taken
    twice, and both end as if they had been alone."""
    lab = make_lab(site=SITE)
    first = Training(lab, 60, 2, pause=2500)
    first.trains_with(4, 20)
    second = Training(lab, 20, 2, pause=500)
    fewer = wait_until(lambda: (lambda d: d.get("resizes") == 1 and d)(first.doc()), "the first training shrinks", LIMIT_S, 0.05)
    assert fewer["roles"][0]["instances"] < 4
    print(lab.ok("pool", "why"))
    second.trains_with(4 - fewer["roles"][0]["instances"], 20)
    results = [second.result()]
    first.pause.write_text("2900")
    wait_until(lambda: (lambda d: d.get("resizes") == 2 and d["roles"][0]["instances"] == 4)(first.doc()), "the first training grows",
               LIMIT_S, 0.05)
    print(json.dumps(first.doc()["resize_cost"], indent=1))
    results.insert(0, first.result())
    first.check_samples(60)
    second.check_samples(20)
    for epochs, (accuracy, loss) in zip((60, 20), results):
        alone = Training(lab, epochs, 1, args=("--conf", "tony.worker.max-instances=1"))
        wanted, wanted_loss = alone.result()
        assert loss == pytest.approx(wanted_loss, rel=0.02) and accuracy == pytest.approx(wanted, abs=0.01)
    lab.settled()
