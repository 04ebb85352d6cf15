"""examples/digits for real, killed at random: whoever dies, the model is the one of a run that nobody disturbed, in every bit."""

from lib_digits import Training, undisturbed
from lib_jobs import make_lab  # noqa: F401 (fixture)

# Whoever has made the step that the file PAUSE names waits until the file is gone: however fast they train, it is not over before the blow.
PAUSER = """
import json, os, socket, time
pause = os.environ.get("PAUSE", "")
def named():
    try:
        return int(open(pause).read())
    except OSError:
        return None
class Socket(socket.socket):
    def send(self, data, *args):
        n = super().send(data, *args)
        while data[:1] == b"{" and json.loads(data).get("step") == (named() or -1):
            time.sleep(0.01)
        return n
socket.socket = Socket
"""


def test_the_digits_survive_a_few_kills(make_lab):
    """Master, pool, and then an executor with the master, while it trains: tests/soak kills hundreds of times."""
    lab = make_lab()
    pauser, pause = lab.base / "pauser", lab.base / "pause"
    pauser.mkdir()
    (pauser / "sitecustomize.py").write_text(PAUSER)
    pause.write_text("60")
    training = Training(lab, 1, 4, 10, "--shell_env", f"PYTHONPATH={pauser}", "--shell_env", f"PAUSE={pause}")
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
