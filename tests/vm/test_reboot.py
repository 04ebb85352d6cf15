# SPDX-License-Identifier: Apache-2.0
"""A machine that loses its power under a job, and boots again."""

import re

TIMES = r"the machine stopped after \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, and was booted again at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d"

# Saves a checkpoint each second, and goes on from the last one. It writes each step that it does.
TRAIN = """
import os, socket, time
def say(message):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\\0" + os.environ["TONY_TASK_SOCKET"].lstrip("@"))
        s.sendall(message.encode() + b"\\n")
os.makedirs("saved", exist_ok=True)
step = int(os.environ.get("TONY_CHECKPOINT_STEP") or 0)
with open("steps", "a") as log:
    log.write(f"from {step}\\n")
    while True:
        step += 1
        log.write(f"{step}\\n")
        log.flush()
        os.fsync(log.fileno())
        with open(f"saved/{step}", "w") as f:
            os.fsync(f.fileno())
        say('{"step": %d, "checkpoint": "%s"}' % (step, os.path.abspath(f"saved/{step}")))
        time.sleep(1)
"""


def train(user, **top):
    user.machine.write(user.user, "train.py", TRAIN)
    app = user.submit("cd $HOME; exec python3 train.py", **top)
    user.wait_for(lambda: len(steps(user)) > 4, "the task works")
    user.sh("sync")
    return app


def steps(user):
    return user.sh("cat steps || true").split("\n")


def lose_power(user):
    user.machine.lose_power()
    user.machine.boot()


def resumed_at(user):
    """The step from which the second attempt has resumed."""
    user.wait_for(lambda: sum(s.startswith("from") for s in steps(user)) == 2 and not steps(user)[-1].startswith("from"), "the task goes on")
    return int([s for s in steps(user) if s.startswith("from")][1].split()[1])


def told(user, app):
    """Checks that each command reports the loss of the job with its time."""
    for command in (f"status {app}", f"why {app}", "list"):
        text = " ".join(user.tony(*command.split()).split())
        assert re.search(TIMES, text), text


def test_a_job_goes_on_after_a_lost_power_supply(user):
    """The unit of systemd starts the pool without any command, and the job continues from its checkpoint."""
    machine = user.machine
    machine.ssh("root", "loginctl enable-linger user")
    try:
        app = train(user, **{"restart-on-boot": True})
        lose_power(user)
        assert resumed_at(user) >= 3
        doc = user.json("status", app)
        assert doc["state"] == "RUNNING" and doc["restarts"] == 1
        told(user, app)
        assert user.json("pool", "disable")["enabled"] is False
        user.tony("stop", app)
        assert user.over(app)["state"] == "KILLED"
    finally:
        machine.ssh("root", "loginctl disable-linger user")
        user.sh("rm -rf steps saved")


def test_all_jobs_go_on_with_an_enabled_pool(user):
    machine = user.machine
    machine.ssh("root", "loginctl enable-linger user")
    try:
        assert user.json("pool", "enable")["starts_at_boot"] is True
        app = train(user)
        lose_power(user)
        assert resumed_at(user) >= 3
        told(user, app)
        assert user.json("pool", "disable")["enabled"] is False
        user.tony("stop", app)
        user.over(app)
    finally:
        machine.ssh("root", "loginctl disable-linger user")
        user.sh("rm -rf steps saved")


def test_without_lingering_a_job_goes_on_with_the_next_command(user):
    """systemd starts nothing of this user at boot, and at a login it starts no pool."""
    doc = user.json("pool", "enable")
    assert doc["enabled"] is True and doc["starts_at_boot"] is False
    assert "loginctl enable-linger" in user.tony("pool", "enable", "2>&1")
    app = train(user)
    lose_power(user)
    assert user.sh("pgrep -c tony-keeper || true") == "0"
    user.tony("list")
    assert resumed_at(user) >= 3
    told(user, app)
    assert user.json("status", app)["restarts"] == 1
    assert user.json("pool", "disable")["enabled"] is False
    user.tony("stop", app)
    assert user.over(app)["state"] == "KILLED"
    user.sh("rm -rf steps saved")


def test_a_job_is_told_as_lost(user):
    """The pool is not enabled: no program of tony runs after the boot, and the next command reports what happened."""
    app = train(user)
    lose_power(user)
    assert user.sh("pgrep -c tony-keeper || true") == "0"
    user.tony("list")
    assert user.over(app)["state"] == "FAILED"
    told(user, app)
    assert "the job was lost" in user.tony("status", app)
    assert sum(s.startswith("from") for s in steps(user)) == 1
    user.sh("rm -rf steps saved")
