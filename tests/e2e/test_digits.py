"""examples/digits for real, killed at random: whoever dies, the model is the one of a run that nobody disturbed, in every bit."""

from lib_digits import Training, undisturbed
from lib_jobs import make_lab  # noqa: F401 (fixture)


def test_the_digits_survive_a_few_kills(make_lab):
    """Master, pool, and then an executor with the master, while it trains: tests/soak kills hundreds of times."""
    lab = make_lab()
    training = Training(lab, seed=1, epochs=4)
    training.await_step(20)
    training.strike("master")
    training.await_step(40)
    training.strike("pool", "master")
    training.await_step(60)
    training.strike("executor", "master")
    assert training.over() == undisturbed(lab, epochs=4)
    assert training.formations() == 2
    lab.settled()
