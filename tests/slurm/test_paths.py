# SPDX-License-Identifier: Apache-2.0
"""Homes with signs that a shell, sbatch or Slurm reads in its own way."""

import shutil

import pytest
from lib_slurm import wait_until
from lib_tony import Tony
from test_slurm import LONG, app_of


@pytest.mark.parametrize("name", ["it's \"a b\" #1 `id`", "50%j%%u;& Käfer-日本", "back\\slash %j"])
def test_a_home_with_a_strange_name(tony, slurm, name):
    base = tony.base / name
    base.mkdir()
    shutil.chown(base, tony.user)
    other = Tony(slurm, base, tony.user)
    done = other("run", other.job_file("pwd; echo here; [ $TASK_INDEX != 0 ] || exit 3"), ok=False)
    app = app_of(done)
    assert done.returncode == 1 and "exit code 3" in done.stdout, done.stdout + done.stderr
    assert other("logs", app, "worker:0", "--stdout").stdout.splitlines()[1] == "here"
    assert (other.history(app) / "batch.log").exists(), [str(p) for p in other.history(app).iterdir()]
    assert (other.history(app) / "nodes/0.log").exists()
    app = other("submit", other.job_file(LONG)).stdout.strip()
    other.await_running(app, 3)
    other("stop", app)
    assert other.status(app)["state"] == "KILLED"
    wait_until(lambda: not slurm.jobs(), "nothing is left")


def test_a_home_with_a_line_break_is_refused(tony, slurm):
    tony.env["TONY_HOME"] = str(tony.base / "a\nb")
    done = tony("submit", tony.job_file("true"), ok=False)
    assert done.returncode == 2 and "TONY_HOME" in done.stderr and "line break" in done.stderr, (done.returncode, done.stderr)
    assert not slurm.jobs()


@pytest.mark.parametrize("name", ["a & '; rm -rf /; ' #%j", "x" * 300 + "Käfer 日本", "line\nbreak"])
def test_a_job_with_a_strange_name(tony, slurm, name):
    done = tony("run", "--name", name, tony.job_file("true"), ok=False)
    if done.returncode == 2: # a name that tony does not take on any cluster
        assert "name" in done.stderr, done.stderr
        return
    assert done.returncode == 0, done.stdout + done.stderr
    shown = slurm.job(tony.number(app_of(done)), "%j")
    assert shown.startswith("tony-") and " " not in shown and "\n" not in shown, shown
