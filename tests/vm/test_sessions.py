# SPDX-License-Identifier: Apache-2.0
"""A job of a user who logs out and in again. Each command of these tests is a login session of its own."""

import pytest


@pytest.fixture(params=["session", "linger"])
def login(user, request):
    verb = "enable-linger" if request.param == "linger" else "disable-linger"
    user.machine.ssh("root", f"loginctl {verb} user")
    yield user
    user.sh("tony pool stop --force")
    user.machine.ssh("root", "loginctl disable-linger user")


def test_a_job_lives_on_after_the_session_that_submitted_it(login):
    app, pid = login.running()
    assert [j["state"] for j in login.json("list")["jobs"]] == ["RUNNING"]
    assert login.state(app) == "RUNNING"
    assert login.sh(f"ps -o pid= -p {pid}")
    login.tony("stop", app)
    assert login.over(app)["state"] == "KILLED"


def test_the_runtime_directory_is_removed(login):
    """root removes it, as the session manager does; the user cannot make it again."""
    app, pid = login.running()
    login.machine.ssh("root", "umount -l /run/user/1000; rm -rf /run/user/1000")
    env = "unset XDG_RUNTIME_DIR; "
    assert app in login.sh(env + "tony list")
    assert "RUNNING" in login.sh(env + f"tony status {app}")
    assert login.sh(f"ps -o pid= -p {pid}")
    assert "/tmp/tony-1000/" in login.sh("cat ~/.tony/pool/runtime")
    login.tony("stop", app)
    assert login.over(app)["restarts"] == 0


def test_an_enabled_pool_outlives_a_user_who_does_not_linger(user):
    """The manager of such a user ends at the last logout, with all that runs below it. So its unit starts no pool."""
    user.tony("pool", "enable")
    user.tony("pool", "stop", "--force")
    user.machine.ssh("root", "loginctl terminate-user user; true")
    user.wait_for(lambda: user.machine.out("root", "systemctl is-active user@1000.service || true") == "inactive", "the user's manager has ended")
    user.sh("timeout 60 systemctl --user is-system-running --wait || true")  # a login: the manager starts, and its units
    app, pid = user.running()
    assert "user@1000.service" not in user.sh(f"cat /proc/{pid}/cgroup ~/.tony/pool/pool.log")
    user.machine.ssh("root", "systemctl stop user@1000.service")
    assert user.state(app) == "RUNNING" and user.sh(f"ps -o pid= -p {pid}")
    user.tony("stop", app)
    assert user.over(app)["restarts"] == 0
    user.tony("pool", "disable")


KILLS = "/etc/systemd/logind.conf.d/kills.conf"


def test_a_session_manager_that_kills_what_a_session_leaves(user):
    """doctor says that jobs end at the logout. A user who lingers is safe: there the pool is below the user's manager."""
    root = lambda command: user.machine.ssh("root", command)  # noqa: E731
    root(f"mkdir -p {KILLS.rpartition('/')[0]}; printf '[Login]\\nKillUserProcesses=yes\\n' > {KILLS}; systemctl restart systemd-logind")
    logout = lambda: next((c for c in user.json("doctor")["checks"] if c["name"] == "logout"), None)  # noqa: E731
    try:
        found = logout()
        assert found["state"] == "note" and "jobs end when you log out" in found["value"] and "enable-linger" in found["hint"]
        user.tony("pool", "stop")
        root("loginctl enable-linger user")
        user.wait_for(lambda: user.machine.out("root", "systemctl is-active user@1000.service || true") == "active", "the user's manager runs")
        assert logout() is None
        app, pid = user.running()
        user.machine.ssh("other", "true")
        assert user.state(app) == "RUNNING" and user.sh(f"ps -o pid= -p {pid}")
        user.tony("stop", app)
        assert user.over(app)["restarts"] == 0
    finally:
        user.sh("tony pool stop --force; true")
        root(f"rm {KILLS}; systemctl restart systemd-logind; loginctl disable-linger user")
