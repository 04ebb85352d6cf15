# SPDX-License-Identifier: Apache-2.0
"""How often a client asks slurmctld: each command of Slurm that tony runs is counted by a wrapper."""

import json
import os
import re
import shutil
import time

import pytest
from lib_slurm import wait_until
from test_slurm import LONG

COUNTED = ("squeue", "scontrol", "sinfo", "sbatch", "scancel")


@pytest.fixture
def calls(tony):
    """A function that tells which commands were run since the last call."""
    bin_dir, log = tony.base / "wrappers", tony.base / "calls"
    bin_dir.mkdir()
    log.touch()
    log.chmod(0o666)
    for name in COUNTED:
        path = bin_dir / name
        path.write_text(f'#!/bin/sh\necho {name} "$@" >> {log}\nexec {shutil.which(name)} "$@"\n')
        path.chmod(0o755)
    tony.env["PATH"] = f"{bin_dir}:{os.environ['PATH']}"
    seen = 0

    def since(full=False):
        nonlocal seen
        lines = log.read_text().splitlines()
        fresh, seen = lines[seen:], len(lines)
        return [line if full else line.split()[0] for line in fresh]
    return since


def test_a_waiting_job_is_asked_for_with_growing_pauses(tony, slurm, calls):
    holder = slurm.run("sbatch", "--parsable", "-N3", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 60", user=tony.user, cwd="/").stdout.strip()
    wait_until(lambda: slurm.job(holder) == "RUNNING", "the nodes are taken")
    try:
        begun, asked = time.monotonic(), []
        client = tony.start("run", tony.job_file("true"))
        wait_until(lambda: asked.extend(calls()) or asked.count("squeue") >= 4, "it has asked four times", 60)
        assert asked[:2] == ["sinfo", "sbatch"] and set(asked[2:]) == {"squeue"}, asked
        assert time.monotonic() - begun > 7, "the pauses between them are 1, 2 and 4 s; a busy machine makes them longer"
        calls()
        tony("list", "--cluster", "slurm")
        assert calls().count("squeue") <= 2, "one for the list; the client may ask once meanwhile"
    finally:
        slurm.run("scancel", "--signal=KILL", holder)
    assert client.wait(60) == 0


def test_commands_for_a_waiting_job_ask_with_growing_pauses(tony, slurm, calls):
    """Those that look several times a second, until the job has a master."""
    conf = {"tony.slurm.extra-arguments": "--hold", "tony.worker.max-instances": 3}
    one, two = (tony("submit", tony.job_file("true", conf=conf)).stdout.strip() for _ in range(2))
    for words in (("resize", one, "worker=2"), ("wait", one, two), ("logs", one, "--follow"), ("events", one, "--follow"),
                  ("exec", one, "worker:0", "--", "true")):
        calls()
        begun, client, asked = time.monotonic(), tony.start(*words), []
        wait_until(lambda: asked.extend(calls()) or len(asked) >= (6 if "wait" in words else 3) or client.poll() is not None, f"{words}: asked")
        assert client.poll() is not None or time.monotonic() - begun > 2.5, f"{words}: the pauses are 1 and 2 s; a busy machine makes them longer"
        assert set(asked) <= {"squeue"} and len(asked) < 8, (words, asked)
        client.kill()
        client.communicate()
    tony("stop", one)
    tony("stop", two)
    wait_until(lambda: not slurm.jobs(), "nothing is left")


def test_who_follows_the_logs_of_a_waiting_job_learns_its_end(tony, slurm):
    app = tony("submit", tony.job_file("true", conf={"tony.slurm.extra-arguments": "--hold"})).stdout.strip()
    client = tony.start("logs", app, "--follow")
    slurm.run("scancel", json.loads((tony.home / "jobs" / app / "slurm.json").read_text())["job"], user=tony.user)
    said = client.communicate(timeout=60)[0]
    assert "journal" not in said, said
    assert tony.status(app)["state"] == "KILLED"


def test_nothing_is_asked_while_the_master_answers(tony, slurm, calls):
    client = tony.start("run", tony.job_file(f"echo here; {LONG}"))
    app = wait_until(lambda: [p.name for p in (tony.home / "jobs").glob("application_*")], "the job is submitted")[0]
    tony.await_running(app, 3)
    next(line for line in client.stdout if "here" in line)  # the client has reached the master, too
    calls()
    for _ in range(3):
        tony.status(app)
    tony("logs", app, "-n", "1")
    time.sleep(2.5)  # nothing is to happen
    assert calls(full=True) == []
    tony("list", "--cluster", "slurm")
    assert calls() == ["squeue"]
    tony("stop", app)
    assert client.wait(60) == 3
    assert "scancel" not in calls()


def test_doctor(tony, slurm, calls):
    """What it says about Slurm, by four questions and one command on the nodes."""
    found = {f["name"]: f["value"] for f in json.loads(tony("doctor", "--cluster", "slurm", "--json", ok=False).stdout)["checks"]}
    assert re.match(r"slurm-wlm [\d.]+, all\*: 3 nodes; short: 3 nodes, time limit 10:00; high: 3 nodes$", found["slurm"]), found["slurm"]
    assert "jobs may be preempted, with a notice" in found["slurm limits"]
    assert found["slurm nodes"] == "3 idle nodes can use TONY_HOME"
    assert sorted(calls()) == ["scontrol", "sinfo", "sinfo", "sinfo"]


def test_doctor_without_slurm(tony, slurm):
    slurm.controller_off()
    found = {f["name"]: f for f in json.loads(tony("doctor", "--cluster", "slurm", "--json", ok=False).stdout)["checks"]}
    assert found["slurm"]["state"] == "wrong" and "Unable to contact slurm controller" in found["slurm"]["value"], found["slurm"]
    (tony.base / "few").mkdir()
    for name in ("setpriv", "sinfo", "bash"):
        (tony.base / "few" / name).symlink_to(shutil.which(name))
    tony.env["PATH"] = str(tony.base / "few")
    found = {f["name"]: f for f in json.loads(tony("doctor", "--cluster", "slurm", "--json", ok=False).stdout)["checks"]}
    assert found["slurm"]["value"] == "these commands are not in PATH: sbatch, squeue, scancel, scontrol"
