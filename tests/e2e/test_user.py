# SPDX-License-Identifier: Apache-2.0
"""The user's settings that jobs keep: the umask, and whether the pool starts with the machine."""

import os
import pathlib

import pytest
from conftest import wait_until
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)


def run_with(lab, umask, *args):
    old = os.umask(umask)
    try:
        return lab.run(*args)
    finally:
        os.umask(old)


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o027, 0o077])
def test_tasks_make_files_with_the_users_umask(lab, umask):
    """Whatever umask the pool was started with: this job is not the first one of the pool."""
    out = lab.base / "made"
    assert lab.run("run", lab.workers("true")).returncode == 0
    assert run_with(lab, umask, "run", lab.workers(f"touch {out}; mkdir {out}.d")).returncode == 0
    assert out.stat().st_mode & 0o777 == 0o666 & ~umask
    assert out.with_name("made.d").stat().st_mode & 0o777 == 0o777 & ~umask


def test_a_job_may_say_its_umask(lab):
    out = lab.base / "made"
    r = run_with(lab, 0o022, "run", lab.workers(f"touch {out}", conf={"tony.task.umask": "007"}))
    assert r.returncode == 0 and out.stat().st_mode & 0o777 == 0o660
    for wrong in ("8", "1777", "u=rw", "-1"):
        r = lab.run("plan", lab.workers("true", conf={"tony.task.umask": wrong}))
        assert r.returncode == 2 and "tony.task.umask" in r.stderr, wrong


def test_exec_makes_files_with_the_mask_of_the_job(lab):
    app = lab.submit(lab.workers("pwd; sleep 1000", conf={"tony.task.umask": "027"}))
    wait_until(lambda: "/" in lab.log_so_far(app, "worker:0") if lab.n_running(app) else False, "it runs")
    here = pathlib.Path(lab.log_so_far(app, "worker:0").strip())
    lab.ok("exec", app, "worker:0", "--", "touch", "made")
    assert (here / "made").stat().st_mode & 0o777 == 0o640
    lab.ok("kill", app)
    lab.settled()


def test_the_pool_is_enabled_and_disabled(make_lab):
    lab = make_lab(as_nobody=True, TONY_CONF_DIR="/a b/100%\"")
    folder = lab.base / ".config/systemd/user"
    doc = lab.json("pool", "enable")
    assert doc["enabled"] and doc["unit"] == str(folder / "tony-pool.service")
    text = (folder / "tony-pool.service").read_text()
    assert f'Environment="TONY_HOME={lab.home}"\n' in text
    assert 'Environment="TONY_CONF_DIR=/a b/100%%\\""\n' in text
    assert f'ExecStart="{lab.bin}/tony-pool"\n' in text
    assert (folder / "default.target.wants/tony-pool.service").resolve() == folder / "tony-pool.service"
    assert lab.json("pool", "enable")["enabled"]  # again
    assert "with your first tony command after a boot" in lab.run("pool", "enable").stderr
    assert "\nConditionPathExists=/var/lib/systemd/linger/%u\n" in text
    assert not lab.json("pool", "disable")["enabled"]
    assert not list(folder.rglob("tony*"))
    assert not lab.json("pool", "disable")["enabled"]
