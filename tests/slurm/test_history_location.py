# SPDX-License-Identifier: Apache-2.0
"""tony.history.location on Slurm: a directory that users share gets a copy of each finished job, and clients read it there."""

import json
import os
import pathlib
import shutil
import stat
import subprocess

import pytest
from lib_slurm import wait_until
from test_slurm import LONG, app_of

OTHER = "daemon"  # another ordinary user who exists on each machine


@pytest.fixture
def shared(tony):
    """The shared directory. It is in the file of the site."""
    path = tony.base / "shared"
    path.mkdir()
    path.chmod(0o1777)
    tony.base.chmod(0o755)
    (tony.base / "tony-site.yaml").write_text(f"conf: {{tony.history.location: {path}}}\n")
    return path


def elsewhere(tony):
    """The same user with a TONY_HOME that has no job."""
    tony.env["TONY_HOME"] = str(tony.base / "elsewhere")


def listed(tony):
    return {row["application_id"]: row for row in json.loads(tony("list", "--cluster", "slurm", "--json").stdout)["jobs"]}


def test_a_finished_job_is_read_there(tony, shared):
    secret = tony.base / "token"
    secret.write_text("Xq7-of-the-history\n")
    secret.chmod(0o600)
    shutil.chown(secret, tony.user)
    path = tony.job_file("echo said by $TASK_INDEX; exit 7")
    path.write_text(json.dumps({**json.loads(path.read_text()), "secrets": {"A_TOKEN": {"file": "token"}}}))
    app = app_of(tony("run", path, ok=False))
    wait_until((shared / app).exists, "the copy is there")
    for top, dirs, files in os.walk(shared / app):
        for name in [*dirs, *files]:
            st = pathlib.Path(top, name).lstat()
            assert stat.S_IMODE(st.st_mode) == (0o750 if name in dirs else 0o640), (top, name)
        assert not {"key", "secrets"} & {*files}
        assert not any(b"Xq7-of" in pathlib.Path(top, name).read_bytes() for name in files)
    own = tony.status(app)
    assert list(listed(tony)) == [app]
    elsewhere(tony)
    row = listed(tony)[app]
    assert (row["state"], row["user"], row["live"], row["tasks"]) == ("FAILED", tony.user, False, 3), row
    there = tony.status(app)
    assert there["directory"] == str(shared / app)
    assert {**there, "directory": 0} == {**own, "directory": 0}
    assert "said by 0" in tony("logs", app, "worker:0", "--stdout").stdout  # its failure ends the others, perhaps before their line
    assert "7" in tony("why", app).stdout
    assert tony("wait", app, ok=False).returncode == 1


def test_another_user_reads_it(tony, slurm, shared):
    """The directory hands its group on."""
    shutil.chown(shared, group=OTHER)
    shared.chmod(0o3777)
    app = app_of(tony("run", tony.job_file("echo said by $TASK_INDEX", instances=1)))
    wait_until((shared / app).exists, "the copy is there")
    home = tony.base / "of-the-other"
    home.mkdir()
    shutil.chown(home, OTHER)
    theirs = {**tony.env, "TONY_HOME": str(home / "tony")}
    for words, expected in ((["list", "--cluster", "slurm", "--all"], app), (["status", app], "SUCCEEDED"), (["logs", app, "--stdout"], "said by 0")):
        done = slurm.run(tony.program, *words, user=OTHER, env=theirs, cwd=tony.base)
        assert done.returncode == 0 and expected in done.stdout, (words, done.stdout, done.stderr)


def test_a_job_that_slurm_ended_is_there_too(tony, slurm, shared):
    """A client writes its verdict."""
    app = tony.submit(LONG)
    tony.await_running(app, 3)
    assert slurm.run("scancel", "--signal=KILL", tony.number(app)).returncode == 0
    wait_until(lambda: not tony.status(app)["live"], "the job is over")
    wait_until((shared / app).exists, "the copy is there")
    elsewhere(tony)
    assert app in listed(tony)


def test_what_others_wrote_is_not_believed(tony, shared):
    app = app_of(tony("run", tony.job_file("true", instances=1)))
    wait_until((shared / app).exists, "the copy is there")
    forged = [f"{app[:-1]}{i}" for i in (6, 7, 8, 9)]
    group = (shared / app).group()
    owners = [f"{OTHER}:{group}", f"{tony.user}:{group}", f"{tony.user}:{group}", f"{OTHER}:root"]
    for name, owner in zip(forged, owners):
        shutil.copytree(shared / app, shared / name)
        subprocess.run(["chown", "-R", owner, shared / name], check=True)
    (shared / forged[1] / "job.conf").chmod(0o660)
    os.mkfifo(shared / forged[2] / "more", 0o640)
    shutil.chown(shared / forged[2] / "more", tony.user)
    elsewhere(tony)
    assert list(listed(tony)) == [app]
    for name, words in zip(forged, ("another user owns it", "others can write", "others can write", "Permission denied")):
        done = tony("status", name, ok=False)
        assert done.returncode != 0 and words in done.stderr, (name, done.stdout, done.stderr)


def test_a_directory_that_cannot_be_written_costs_no_job(tony, shared):
    shared.chmod(0o755)
    app = app_of(tony("run", tony.job_file("true", instances=1)))
    assert tony.status(app)["state"] == "SUCCEEDED"
    wait_until(lambda: "keeper.publish" in (tony.history(app) / "keeper.log").read_text(), "the log tells it")


def test_a_directory_in_hdfs_has_no_effect(tony):
    plan = tony("plan", tony.job_file("true", instances=1, conf={"tony.history.location": "histories"}))
    assert "on Slurm tony.history.location must be an absolute path" in plan.stdout + plan.stderr
