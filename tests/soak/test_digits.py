# SPDX-License-Identifier: Apache-2.0
"""
examples/digits with hundreds of kills: its processes die at random moments, between steps, and while a
checkpoint is half written. It runs for TONY_SOAK_S seconds (an hour by default), from TONY_SEED on. The model
is compared, bit by bit, with that of an undisturbed run.
"""

import os
import random
import time

from lib_digits import HARMLESS, KINDS, Training, undisturbed
from lib_jobs import make_lab  # noqa: F401 (fixture)

SOAK_S = float(os.environ.get("TONY_SOAK_S", "3600"))
SEED = int(os.environ.get("TONY_SEED", random.SystemRandom().randrange(1, 1 << 30)))
EPOCHS = 8
SAVE_EVERY = 10


# Slows down the writing of a checkpoint and its rename, so that a kill can hit these moments.
SLOW = """
import os, time
def slowly(f):
    def g(*args, **kw):
        time.sleep(0.1)
        return f(*args, **kw)
    return g
os.fsync, os.replace = slowly(os.fsync), slowly(os.replace)
"""


def moment(training, rnd, step):
    """
    Waits for a moment to kill: at some later step, or shortly after it; while a checkpoint is being written;
    or after a random time, perhaps while the gang forms. Returns the step.
    """
    how = rnd.random()
    if how < 0.3:
        training.await_half_a_checkpoint()
        return step
    if how < 0.8:
        step = training.await_step(step + rnd.randrange(1, 15))
    if how > 0.6:
        time.sleep(rnd.random() * (0.5 if how < 0.8 else 4))
    return step


def disturb(training, rnd):
    """Kills until the job is over. Returns the number of kills."""
    n, step = 0, 0
    while training.lives():
        step = moment(training, rnd, step)
        struck = training.strike_all() if rnd.random() < 0.03 else training.strike(*rnd.sample(KINDS, rnd.choice((1, 1, 1, 2, 3)), counts=(6, 6, 6, 6, 1)))
        n += len(struck)
        if struck - HARMLESS:
            step = max(0, step - SAVE_EVERY)  # the job resumes from a checkpoint
    return n


def test_the_model_is_the_same(make_lab, tmp_path):
    until = time.monotonic() + SOAK_S
    seed, kills, trainings = SEED, 0, 0
    plain = undisturbed(make_lab(), EPOCHS, SAVE_EVERY)
    (tmp_path / "sitecustomize.py").write_text(SLOW)
    while time.monotonic() < until:
        lab = make_lab()
        rnd = random.Random(seed)
        print(f"seed {seed}", flush=True)
        training = Training(lab, seed, EPOCHS, SAVE_EVERY, "--shell_env", f"PYTHONPATH={tmp_path}")
        kills += disturb(training, rnd)
        assert training.over() == plain, f"seed {seed}: {training.killed}"
        lab.settled()
        assert not lab.stop()
        seed, trainings = seed + 1, trainings + 1
        print(f"{trainings} trainings, {kills} kills, the last {training.killed}, {training.app}", flush=True)
