# SPDX-License-Identifier: Apache-2.0
"""examples/digits is resized while it trains: it ends with the accuracy of a run without a resize."""

import os
import re
import signal

import pytest
from conftest import wait_until
from lib_digits import Training, pauser, result, undisturbed_accuracy
from lib_jobs import make_lab  # noqa: F401 (fixture)

EPOCHS = 6  # of 23 steps each
ONE_IMAGE = 1 / 360


def set_pause(path, step):
    path.with_suffix(".new").write_text(str(step))
    os.replace(path.with_suffix(".new"), path)  # a reader finds either the old or the new step


def resized(lab, first, sizes):
    """
    Train with `first` workers, then with each of the sizes. The training pauses until each resize was
    requested.
    """
    pause = lab.base / "pause"
    set_pause(pause, 20)
    training = Training(lab, 1, EPOCHS, 10, "--conf", f"tony.worker.instances={first}", "--conf", "tony.worker.memory=512m",
                        *pauser(lab, pause))
    for i, n in enumerate(sizes):
        at = 20 * (i + 1)
        assert training.await_step(at) >= at
        lab.ok("resize", training.app, f"worker={n}", "--reason", f"the test wants {n}")
        set_pause(pause, at + 20)  # the job may train on while it waits for containers
        wait_until(lambda i=i: (training.doc() or {}).get("resizes") == i + 1, f"resize {i + 1} of {training.app}", 100, 0.05)
    training.await_step(20 * len(sizes) + 20)
    pause.unlink()
    return training


def check(lab, training, sizes):
    end = result(lab, training.app, EPOCHS)
    assert end["workers"] == sizes[-1]
    doc = lab.status(training.app)
    assert doc["resizes"] == len(sizes) and doc["generation"] == len(sizes) + 1 and doc["restarts"] == 0
    begun = []
    for attempt, n in enumerate(sizes, 2):
        log = lab.log(training.app, "worker:0", attempt=attempt)
        assert f"rank 0 of {n}," in log
        begun.append(int(re.search(r"going on from step (\d+)", log).group(1)))
    # Each task was told in time and saved its current step: no step was trained twice.
    assert all(step >= 20 * i for i, step in enumerate(begun, 1)) and begun == sorted(begun), begun
    return end["accuracy"]


@pytest.mark.slow
@pytest.mark.xdist_group("training")  # each uses all cores
@pytest.mark.takes(20)
def test_the_digits_are_resized(make_lab):
    signal.alarm(900)  # the test starts PyTorch 12 times
    lab = make_lab()
    sizes = [4, 1, 3]
    training = resized(lab, 2, sizes)
    accuracy = check(lab, training, sizes)
    # The sums are rounded in another order. That may change the result for one image.
    assert abs(accuracy - undisturbed_accuracy(lab, EPOCHS)) < 1.5 * ONE_IMAGE
    lab.settled()
