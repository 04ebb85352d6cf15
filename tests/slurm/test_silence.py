# SPDX-License-Identifier: Apache-2.0
"""slurmctld is killed or does not answer, while a job waits, runs, or needs another node."""

import json
import os
import shutil
import signal

import pytest
from lib_slurm import wait_until
from test_slurm import LONG, RESTARTS

# In the place of squeue and scancel. The real ones need up to 18 s to say the same.
SILENT = """#!/bin/sh
if [ -e {flag} ]; then
    echo {name} >> {flag}.calls
    echo "{name}: error: Unable to contact slurm controller (connect failure)" >&2
    exit 1
fi
exec {real} "$@"
"""


@pytest.fixture
def silence(tony):
    """While this file exists, Slurm does not answer to clients."""
    flag, programs = tony.base / "silence", tony.base / "silent"
    programs.mkdir(mode=0o755)
    for name in ("squeue", "scancel"):
        (programs / name).write_text(SILENT.format(flag=flag, name=name, real=shutil.which(name)))
        (programs / name).chmod(0o755)
    tony.env["PATH"] = f"{programs}:{os.environ['PATH']}"
    return flag


def test_clients_of_a_waiting_job(tony, slurm, silence):
    app = tony("submit", tony.job_file("true", conf={"tony.slurm.extra-arguments": "--hold"})).stdout.strip()
    silence.touch()
    logs, events = tony.start("logs", app, "--follow"), tony.start("events", app, "--follow")
    for client in (logs, events):
        assert "Unable to contact slurm controller" in client.stdout.readline()
    done = tony("list", "--cluster", "slurm")
    assert app in done.stdout and "Unable to contact slurm controller" in done.stderr and "not certain" in done.stderr, done
    done = tony("status", app, ok=False)
    assert done.returncode == 4 and "Unable to contact slurm controller" in done.stderr, done
    silence.unlink()
    slurm.run("scontrol", "release", json.loads((tony.home / "jobs" / app / "slurm.json").read_text())["job"])
    for client in (logs, events):
        said = client.communicate(timeout=60)[0]
        assert client.returncode == 0, said
    assert tony.status(app)["state"] == "SUCCEEDED"
    assert tony("list", "--cluster", "slurm").stderr == ""


def test_a_wait_for_several_jobs_tells_the_silence_once(tony, slurm, silence):
    """It went on asking, and said nothing."""
    held = {"tony.slurm.extra-arguments": "--hold"}
    one, two = (tony("submit", tony.job_file("true", instances=1, conf={**held, "tony.slurm.nodes": 1})).stdout.strip() for _ in range(2))
    silence.touch()
    client = tony.start("wait", one, two)
    said = [client.stdout.readline() for _ in range(2)]
    assert all("Unable to contact slurm controller" in line and "goes on asking" in line for line in said), said
    assert {app for app in (one, two) for line in said if app in line} == {one, two}, said
    calls = tony.base / "silence.calls"
    wait_until(lambda: calls.read_text().count("squeue") > 4, "it goes on asking")
    silence.unlink()
    for app in (one, two):
        slurm.run("scontrol", "release", json.loads((tony.home / "jobs" / app / "slurm.json").read_text())["job"])
    said = client.communicate(timeout=120)[0]
    assert client.returncode == 0 and "Unable" not in said, said


# In the place of squeue: the question for the paths of batch scripts takes as long as the file `slow` exists.
SLOW = """#!/bin/sh
case $* in *%o*)
    [ ! -e {base}/slow ] || echo $$ > {base}/asked
    while [ -e {base}/slow ]; do sleep 0.1; done
esac
exec {real} "$@"
"""


def test_a_question_about_a_removed_directory_does_not_halt_the_client(tony, slurm):
    """squeue is asked whether Slurm has the job. Meanwhile the client handles signals."""
    programs = tony.base / "slow-ones"
    programs.mkdir(mode=0o755)
    (programs / "squeue").write_text(SLOW.format(base=tony.base, real=shutil.which("squeue")))
    (programs / "squeue").chmod(0o755)
    tony.env["PATH"] = f"{programs}:{os.environ['PATH']}"
    client = tony.start("run", tony.job_file("true", conf={"tony.slurm.extra-arguments": "--hold"}))
    app = wait_until(lambda: [p.name for p in (tony.home / "jobs").glob("application_*")], "the job is submitted")[0]
    wait_until(lambda: tony.status(app)["state"] == "WAITING", "it waits")
    number = json.loads((tony.home / "jobs" / app / "slurm.json").read_text())["job"]
    (tony.base / "slow").touch()
    shutil.rmtree(tony.home / "jobs" / app)
    squeue = wait_until(lambda: (p := tony.base / "asked").exists() and p.read_text().strip(), "the client has asked")
    client.terminate()
    wait_until(lambda: "interrupt again" in client.stdout.readline(), "the client has got the signal")
    assert os.path.exists(f"/proc/{squeue}"), "the answer has not come yet"
    (tony.base / "slow").unlink()
    said = client.communicate(timeout=60)[0]
    assert client.returncode != 0 and f"was removed, but job {number} of Slurm has not ended" in " ".join(said.split()), said
    slurm.run("scancel", number)


def test_a_stop_that_slurm_does_not_hear_at_first(tony, slurm, silence):
    client = tony.start("run", tony.job_file("true", conf={"tony.slurm.extra-arguments": "--hold"}))
    app = wait_until(lambda: [p.name for p in (tony.home / "jobs").glob("application_*")], "the job is submitted")[0]
    wait_until(lambda: tony.status(app)["state"] == "WAITING", "it waits")
    silence.touch()
    client.terminate()
    wait_until(lambda: "Unable to contact" in client.stdout.readline(), "the client tells that Slurm does not answer")
    silence.unlink()
    client.communicate(timeout=60)
    assert tony.status(app)["state"] == "KILLED"
    wait_until(lambda: not slurm.jobs(), "the job has left Slurm's queue")


def test_munged_is_away(tony, slurm):
    """Nothing that runs needs it. Commands of Slurm say many lines about it, tony one."""
    app = tony.submit(LONG, conf=RESTARTS)
    tony.await_running(app, 3)
    slurm.end("munged", signal.SIGTERM)
    try:
        for words in (("submit", tony.job_file("true")), ("list", "--cluster", "slurm")):
            done = tony(*words, ok=False)
            assert "munged, by which Slurm knows its users, does not answer" in done.stderr and "encode" not in done.stderr, done
        os.kill(tony.processes("tony-keeper ", " node 1")[0], signal.SIGKILL)
        wait_until(lambda: sorted(t["attempt"] for t in tony.await_running(app, 3)["tasks"]) == [1, 1, 2], "the keeper and its task restart")
    finally:
        slurm.munged_on()
    assert app in tony("list", "--cluster", "slurm").stdout
    tony("stop", app)


@pytest.mark.slow
@pytest.mark.takes(100)
def test_slurmctld_is_killed_while_the_job_waits(tony, slurm):
    holder = slurm.run("sbatch", "--parsable", "-N3", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600", user=tony.user, cwd="/").stdout.strip()
    wait_until(lambda: slurm.job(holder) == "RUNNING", "the nodes are taken")
    client = tony.start("run", tony.job_file("echo begins"))
    app = wait_until(lambda: [p.name for p in (tony.home / "jobs").glob("application_*")], "the job is submitted")[0]
    wait_until(lambda: tony.status(app)["state"] == "WAITING", "it waits")
    saved = (slurm.dir / "state/job_state").stat().st_mtime
    wait_until(lambda: (slurm.dir / "state/job_state").stat().st_mtime > saved or slurm.job(holder, "%M") > "0:10", "slurmctld has saved its jobs")
    slurm.end("slurmctld")
    logs = tony.start("logs", app, "--follow")
    for words in (("status", app), ("stop", app), ("submit", tony.job_file("true"))):
        done = tony(*words, ok=False)
        assert done.returncode == 4 and "Unable to contact slurm controller" in done.stderr, done
    slurm.controller_on()
    wait_until(lambda: slurm.job(holder) == "RUNNING", "slurmctld is back")
    slurm.run("scancel", "--signal=KILL", holder)
    assert client.wait(120) == 0 and logs.wait(60) == 0
    assert tony.status(app)["state"] == "SUCCEEDED"


@pytest.mark.slow
@pytest.mark.takes(100)
def test_slurmctld_is_killed_while_a_node_is_replaced(tony, slurm):
    """The further allocation is asked for as soon as slurmctld is back; until then nothing else is lost."""
    app = tony.submit(LONG, instances=2, conf={**RESTARTS, "tony.slurm.nodes": 2, "tony.task.master-away-limit": 2000})
    status = tony.await_running(app, 2)
    victim = next(t for t in status["tasks"] if t["node"] != slurm.job(tony.number(app), "%B"))
    wait_until(lambda: slurm.job(tony.number(app), "%M") > "0:12", "slurmctld has saved that the job runs")
    slurm.end("slurmctld")
    slurm.power_off(victim["node"])
    log = tony.home / "jobs" / app / "master.log"
    wait_until(lambda: "further.silent" in log.read_text(), "the master has got no answer", limit=150)
    assert [t["attempt"] for t in tony.status(app)["tasks"] if t["task"] != victim["task"]] == [1]
    slurm.controller_on()

    def replaced():
        task = next(t for t in tony.status(app)["tasks"] if t["task"] == victim["task"])
        return task["state"] == "running" and task["attempt"] == 2
    wait_until(replaced, "the task runs on another node", limit=120)
    assert [t["attempt"] for t in tony.status(app)["tasks"] if t["task"] != victim["task"]] == [1]
    tony("stop", app)
