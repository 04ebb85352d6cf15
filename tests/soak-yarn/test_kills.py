# SPDX-License-Identifier: Apache-2.0
"""
A model is trained while TONY_KILLS of its tasks, executors and masters are killed at random: it is the same
in the end, bit by bit.
"""

import json
import os
import random

from lib_kills import KINDS, Victims
from lib_tony import ROOT

KILLS = int(os.environ.get("TONY_KILLS", "20"))
SEED = int(os.environ.get("TONY_SEED", random.SystemRandom().randrange(1, 1 << 30)))
JOB = ROOT / "examples" / "digits" / "job.yaml"


def command(folder):
    """If a second copy of a task starts while the first is alive, the job ends."""
    return (f"exec 9>{folder}/lock-$TONY_TASK; flock -n 9 || exit 99; "
            f"exec /usr/bin/python3 train.py --epochs 120 --save-every 10 --checkpoints {folder}")


def model(tony, app):
    return json.loads(tony.ok("logs", app, "worker:0", "--stdout").strip().splitlines()[-1])["model"]


def test_the_digits_are_the_same(tony, cluster, base):
    dice = random.Random(SEED)
    print(f"seed {SEED}", flush=True)
    args = ["--conf", "tony.am.memory=128m", "--conf", "tony.worker.restart=on-failure", "--conf", f"tony.worker.max-restarts={KILLS}",
            "--conf", f"tony.task.restarts.node-lost={KILLS}", "--conf", "tony.worker.no-retry-on=99",
            "--conf", "tony.am.max-attempts=30"]
    apps = []
    for n in range(2):
        (base / f"c{n}").mkdir()
        apps.append(tony.submit(JOB, *args, "--conf", f"tony.containers.command={command(base / f'c{n}')}"))
        if n == 1:
            victims, step = Victims(tony, apps[1], "train.py"), 0
            for _ in range(KILLS):
                step = victims.past(2, step + dice.randrange(30))
                victims.kill(dice.choice(KINDS), dice)
            print(f"killed {victims.dead}", flush=True)
        r = tony.run("wait", apps[n], timeout=600)
        assert r.returncode == 0, r.stdout + r.stderr + tony.ok("why", apps[n])
    assert model(tony, apps[1]) == model(tony, apps[0])
