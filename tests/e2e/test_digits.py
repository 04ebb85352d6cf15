# SPDX-License-Identifier: Apache-2.0
"""
The real examples/digits, with random kills: whichever process dies, the model equals that of an undisturbed
run, bit by bit.
"""

import signal

import pytest
from lib_digits import Training, pauser, undisturbed
from lib_jobs import make_lab  # noqa: F401 (fixture)


@pytest.mark.slow
@pytest.mark.xdist_group("training")  # each uses all cores
@pytest.mark.takes(7)
def test_the_digits_survive_a_few_kills(make_lab):
    """While it trains, the master is killed, then the pool, then an executor with the master. tests/soak does this
    hundreds of times."""
    signal.alarm(900)  # the steps have their own limits, and some start PyTorch
    lab = make_lab()
    pause = lab.base / "pause"
    pause.write_text("60")
    training = Training(lab, 1, 4, 10, *pauser(lab, pause))
    training.await_step(20)
    training.strike("master")
    training.await_step(40)
    training.strike("pool", "master")
    training.await_step(60)
    training.strike("executor", "master")
    pause.unlink()
    assert training.over() == undisturbed(lab, epochs=4)
    assert training.formations() == 2
    lab.settled()
