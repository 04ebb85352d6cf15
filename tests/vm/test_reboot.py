# SPDX-License-Identifier: Apache-2.0
"""A machine that loses its power under a job, and boots again."""

COUNT = "f=$HOME/steps; while true; do n=$(cat $f 2>/dev/null || echo 0); echo $((n+1)) >$f.new; mv $f.new $f; echo step $n; sleep 1; done"


def steps(user):
    return int(user.sh("cat ~/steps || echo 0"))


def test_a_job_goes_on_after_a_lost_power_supply(user):
    """Without any command: the unit of systemd starts the pool, and the pool starts the job's task again."""
    machine = user.machine
    machine.ssh("root", "loginctl enable-linger user")
    try:
        assert user.json("pool", "enable")["starts_at_boot"] is True
        app, pid = user.running("echo $$ > started; sync; " + COUNT)
        user.wait_for(lambda: steps(user) > 2, "the task works")
        user.sh("sync")
        machine.lose_power()
        machine.boot()
        user.wait_for(lambda: int(user.sh("cat ~/started1") or pid) != pid or int(user.sh("pgrep -c tony-keeper || true") or 0) > 0,
                      "the task was started again")
        before = steps(user)
        user.wait_for(lambda: steps(user) > before, "the task goes on")
        doc = user.json("status", app)
        assert doc["state"] == "RUNNING" and doc["restarts"] == 1
        assert "was lost" in user.tony("why", app) or "lost" in user.tony("status", app)
        assert user.json("pool", "disable")["enabled"] is False
        user.tony("stop", app)
        assert user.over(app)["state"] == "KILLED"
    finally:
        machine.ssh("root", "loginctl disable-linger user")


def test_a_job_goes_on_with_the_next_command(user):
    """The pool is not enabled: nothing runs after the boot, until a command starts the pool."""
    app, _ = user.running("echo $$ > started; sync; " + COUNT)
    user.sh("sync")
    user.machine.lose_power()
    user.machine.boot()
    assert user.sh("pgrep -c tony-keeper || true") == "0"
    user.tony("status", app)
    user.wait_for(lambda: user.state(app) == "RUNNING" and user.json("status", app)["restarts"] == 1, "the task was started again")
    user.tony("stop", app)
    assert user.over(app)["state"] == "KILLED"
