# SPDX-License-Identifier: Apache-2.0
"""
A home that cannot be written, or that belongs to another user: its jobs can be shown, and no file is made in
it.
"""

import contextlib
import os
import shutil
import subprocess

import pytest
from conftest import wait_until


def tree(path):
    """Everything that a change would show: names, modes, owners, times."""
    return {str(p.relative_to(path)): (s.st_mode, s.st_uid, s.st_size, s.st_mtime_ns)
            for p in [path, *path.rglob("*")] if (s := p.lstat())}


def finish(t):
    """Puts a failed and a successful job into the home, and stops its pool."""
    t.failed = t.submit(t.workers("echo lost >&2; exit 3", name="bad"))
    t.run("wait", t.failed)
    t.good = t.submit(t.workers("echo done", name="good"))
    t.run("wait", t.good)
    for app in (t.failed, t.good):
        t.in_history(app)
    wait_until(lambda: not any(line.startswith("tony-keeper ") or "--keeper" in line for line in t.processes().values()), "their keepers have removed the rest")
    t.ok("pool", "stop")
    wait_until(lambda: not t.processes(), "the pool has ended")
    return t


@pytest.fixture
def finished(own_tony):
    return finish(own_tony())


def looks(t):
    """All commands that only show something work, and change nothing."""
    before = tree(t.home)
    rows = t.json("list")["jobs"]
    assert [(r["name"], r["state"]) for r in rows] == [("good", "SUCCEEDED"), ("bad", "FAILED")]
    assert "good" in t.ok("list")
    status = t.json("status", t.failed)
    assert status["state"] == "FAILED" and status["cause"]["exit_code"] == 3 and status["live"] is False
    assert "worker:0" in t.ok("tasks", t.good)
    assert t.ok("logs", "last") .endswith("done\n")
    assert "lost" in t.ok("logs", t.failed, "worker:0", "--stderr", "-n", "1")
    assert t.run("wait", t.failed).returncode == 1
    assert t.run("kill", t.good).returncode == 0
    assert t.run("status", "77").returncode == 2
    assert tree(t.home) == before
    assert not t.processes()


@contextlib.contextmanager
def mounted_read_only(t):
    home = str(t.home)
    if subprocess.run(["mount", "--bind", home, home], capture_output=True).returncode:
        pytest.skip("cannot mount here")
    try:
        # The mount is busy while any process has a file open for writing.
        wait_until(lambda: subprocess.run(["mount", "-o", "remount,bind,ro", home], capture_output=True).returncode == 0,
                   f"'{home}' is read-only")
        yield
    finally:
        subprocess.run(["umount", "-l", home], check=True)


def refuses_to_write(t, sentence):
    r = t.run("submit", t.workers("true"))
    assert r.returncode == 4 and sentence in r.stderr
    assert not t.processes()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_a_home_of_another_user_can_be_shown(finished):
    t = finished
    for p in [t.home, *t.home.rglob("*")]:
        os.chown(p, 12345, 12345, follow_symlinks=False)
    looks(t)
    refuses_to_write(t, "belongs to user 12345")
    os.chown(t.home, 0, 0)


def test_control_characters_in_names_of_another_user_are_masked(finished):
    t = finished
    path = t.home / "history" / t.good / "summary"
    path.write_text(path.read_text().replace('"good"', '"a\\u001b[31mb\\u009b2Jc"'))
    assert " a?[31mb??2Jc " in t.ok("list")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_a_copy_of_the_history_alone(finished):
    t = finished
    for name in ("pool", "jobs", "store"):
        shutil.rmtree(t.home / name)
    os.chown(t.home, 12345, 12345)
    looks(t)
    os.chown(t.home, 0, 0)


def test_a_home_without_permission_to_write(own_tony):
    """
    A directory is missing and cannot be made. Wrong modes of existing directories are corrected as usual.
    """
    t = finish(own_tony(as_nobody=True))
    shutil.rmtree(t.home / "store")
    t.home.chmod(0o500)
    try:
        looks(t)
        refuses_to_write(t, str(t.home))
    finally:
        t.home.chmod(0o700)


def test_a_read_only_mount(finished):
    t = finished
    with mounted_read_only(t):
        looks(t)
        refuses_to_write(t, str(t.home))


def test_a_live_job_in_a_home_that_became_read_only(own_tony):
    """The master still answers; for a job without a master the files are read."""
    t = own_tony()
    app = t.submit(t.workers("echo up; sleep 60"))
    t.await_state(app, "RUNNING")
    try:
        with mounted_read_only(t):
            status = t.status(app)
            assert status["state"] == "RUNNING" and status["live"] is True
            assert status["tasks"][0]["connected"] is True
            assert t.json("list")["jobs"][0]["live"] is True
    finally:
        t.ok("kill", app)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_an_empty_home_of_another_user_is_an_error(own_tony):
    """An empty list would not show that this is the wrong home."""
    t = own_tony()
    t.home.mkdir(0o755)
    os.chown(t.home, 12345, 12345)
    r = t.run("list")
    assert r.returncode == 4 and "belongs to user 12345" in r.stderr and r.stdout == ""
    assert os.listdir(t.home) == []
    os.chown(t.home, 0, 0)
