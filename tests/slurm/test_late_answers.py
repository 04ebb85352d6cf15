# SPDX-License-Identifier: Apache-2.0
"""slurmctld does not answer while it ends a run of the job: the job goes back into the queue nevertheless, and continues."""

import contextlib
import os
import shutil
import signal

import pytest
from lib_slurm import wait_until
from test_further_deaths import script_of
from test_notices import LIMITED, await_training, begin_again, high_job, limit_comes_near, training

pytestmark = pytest.mark.slow

# In the place of scontrol: the first question about the job waits until slurmctld is stopped.
FIRST_WAITS = r"""#!/bin/sh
if [ "$1 $2" = "show job" ] && mkdir "$TONY_HOME/asked" 2> /dev/null; then
    until [ -e "$TONY_HOME/stopped" ]; do
        sleep 0.1
    done
fi
exec %s "$@"
"""


@contextlib.contextmanager
def silent(tony, slurm):
    """slurmctld is stopped with the first question of the master, until the master has got no answer."""
    wait_until((tony.home / "asked").exists, "the master asks")
    pid = slurm.procs["slurmctld"].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        (tony.home / "stopped").touch()
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def job(tony, **conf):
    """A training whose master runs the program above."""
    (tony.base / "waits").mkdir(mode=0o755)
    (tony.base / "waits/scontrol").write_text(FIRST_WAITS % shutil.which("scontrol"))
    (tony.base / "waits/scontrol").chmod(0o755)
    tony.env["PATH"] = f"{tony.base}/waits:{os.environ['PATH']}"
    app = tony("submit", training(tony, 1000000, **{"tony.task.master-away-limit": 2000, **conf})).stdout.strip()
    await_training(tony, app)
    return app


def no_answer(tony, app):
    """Or it is killed meanwhile: slurmd kills the processes of a requeued run without slurmctld."""
    log = tony.home / "jobs" / app / "master.log"
    return "slurm.silent" in log.read_text() or not tony.processes("tony-master", "--cluster")


def continues(tony, slurm, app, number):
    begin_again(slurm, number)
    wait_until(lambda: [t["attempt"] for t in tony.status(app).get("tasks", []) if t["state"] == "running"] == [2, 2],
               "both tasks train again", limit=90)
    tony("stop", app)


@pytest.mark.parametrize("notice", [False, True])
def test_a_preemption(tony, slurm, notice):
    if not notice:
        slurm.reconfigure(SlurmctldParameters="idle_on_node_suspend")
    try:
        app = job(tony, **{"tony.task.checkpoint-grace": 3000})
        number, high = tony.number(app), high_job(slurm, tony.user)
        with silent(tony, slurm):
            wait_until(lambda: no_answer(tony, app), "the master has got no answer")
        wait_until(lambda: slurm.job(high) in ("COMPLETING", "COMPLETED", ""), "the other job has run", limit=120, pause=0.2)
        continues(tony, slurm, app, number)
    finally:
        slurm.reconfigure()


def test_a_requeue(tony, slurm):
    app = job(tony)
    number = tony.number(app)
    assert slurm.run("scontrol", "requeue", number, user=tony.user).returncode == 0
    with silent(tony, slurm):
        wait_until(lambda: no_answer(tony, app), "the master has got no answer")
    continues(tony, slurm, app, number)


@pytest.mark.takes(40)
def test_a_cancelled_step_while_slurmctld_stays_silent(tony, slurm):
    """The master does not wait for the answer for ever."""
    tony.env["TONY_TEST_PATIENCE_MS"] = "3000"
    app = job(tony)
    assert slurm.run("scancel", f"{tony.number(app)}.0", user=tony.user).returncode == 0
    with silent(tony, slurm):
        wait_until((tony.home / "history" / app).exists, "the job ends", limit=120)
        doc = tony.status(app)
    assert doc["state"] == "KILLED" and "a step of tony's keepers has ended" in str(doc), doc


@pytest.mark.takes(60)
def test_a_time_limit_while_slurmctld_is_silent_for_long(tony, slurm):
    """The master still asks why it has got a notice, and puts the job back as soon as slurmctld returns."""
    tony.env["TONY_TEST_PATIENCE_MS"] = "1"
    app = job(tony, **LIMITED, **{"tony.slurm.requeue-at-limit": "true"})
    number = tony.number(app)
    limit_comes_near(tony, slurm, app, 120)
    with silent(tony, slurm):
        log = tony.home / "jobs" / app / "master.log"
        wait_until(lambda: log.read_text().count("slurm.silent") > 1, "the master has asked twice")
    begin_again(slurm, number, 60, "TimeLimit=60")
    wait_until(lambda: [t["attempt"] for t in tony.status(app).get("tasks", []) if t["state"] == "running"] == [2, 2],
               "both tasks train again", limit=90)
    tony("stop", app)


@pytest.mark.takes(50)
@pytest.mark.parametrize("is_long", [False, True])
def test_a_batch_script_that_is_killed_again_and_again(tony, slurm, is_long):
    """The job ends with the fourth kill, unless that run has lasted for ten minutes; or here for 1 ms."""
    if is_long:
        tony.env["TONY_TEST_PATIENCE_MS"] = "1"
    app = tony("submit", training(tony, 1000000)).stdout.strip()

    def trains(epoch):
        wait_until(lambda: tony.status(app).get("epoch") == epoch, f"the master of run {epoch} answers")
        tony.await_running(app, 2)
    for epoch in range(1, 4 + is_long):
        trains(epoch)
        number = tony.number(app)
        os.kill(script_of(slurm, number), signal.SIGKILL)
        begin_again(slurm, number)
    trains(4 + is_long)
    if is_long:
        tony("stop", app)
        return
    os.kill(script_of(slurm, number), signal.SIGKILL)
    wait_until((tony.home / "history" / app).exists, "the job ends")
    doc = tony.status(app)
    assert doc["state"] == "KILLED" and "a signal has killed its batch script" in str(doc), doc
