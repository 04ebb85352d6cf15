# SPDX-License-Identifier: Apache-2.0
"""The end of a run that Slurm announces: time limit, preemption, requeue; and a lost first node."""

import contextlib
import datetime
import json
import os
import re
import shlex
import shutil
import signal
import textwrap
import time

import pytest
from lib_slurm import GRACE_S, wait_until
from test_slurm import LONG, RESTARTS

# A training that counts steps. It saves the last one when it is asked to (USR2), and ends. It says where it began after
# its first step, so that there is something to save.
TRAINING = r"""
import json, os, signal, socket, sys, time
side = socket.socket(socket.AF_UNIX)
side.connect("\0" + os.environ["TONY_TASK_SOCKET"].lstrip("@"))
step = first = int(os.environ.get("TONY_CHECKPOINT_STEP") or 0)
def save(*_):
    side.sendall(json.dumps({"step": step, "checkpoint": f"/data/{step}"}).encode() + b"\n")
    sys.exit(0)
signal.signal(signal.SIGUSR2, save)
while step < int(sys.argv[1]):
    time.sleep(0.05)
    step += 1
    if step == first + 1:
        print("begins at", first, flush=True)
"""


def training(tony, steps, **conf):
    """A job of two tasks that save a checkpoint on SIGUSR2."""
    (tony.base / "train.py").write_text(textwrap.dedent(TRAINING))
    conf = {**RESTARTS, "tony.task.checkpoint-signal": "USR2", "tony.slurm.nodes": 2, **conf}
    return tony.job_file(f"exec /usr/bin/python3 {shlex.quote(str(tony.base / 'train.py'))} {steps}", instances=2, conf=conf)


def await_training(tony, app):
    """Both tasks handle the signal."""
    tony.await_running(app, 2)
    for task in ("worker:0", "worker:1"):
        wait_until(lambda: "begins" in tony("logs", app, task, "--stdout").stdout, f"{task} trains")


def outputs(tony, app, task="worker:0"):
    return [p.read_text() for p in sorted((tony.history(app) / "logs" / task.replace(":", "-")).glob("*/stdout"))]


def begin_again(slurm, number, limit=60, *more):
    """
    Slurm holds a job that was put back for two minutes; an administrator may shorten that. But a node takes no job in
    the second in which the credential of its last run was revoked: slurmctld then ends the job. more: other changes.
    """
    wait_until(lambda: slurm.job(number) == "PENDING", "the job is back in the queue", limit=limit)
    seen = int(time.time())
    wait_until(lambda: time.time() > seen + 2, "the second of the revocation is over")
    done = slurm.run("scontrol", "update", f"JobId={number}", "StartTime=now", *more)
    assert done.returncode == 0, done.stderr


def limit_comes_near(tony, slurm, app, seconds):
    """
    The job has only these seconds left, and Slurm sends its notice (--signal=B:USR1@N). A time limit that is so short
    from the start would not do: Slurm looks each 30 s for jobs whose notice is due, and might find this one before its
    tasks train, or find its second run.
    """
    number = tony.number(app)
    done = slurm.run("scontrol", "update", f"JobId={number}", f"EndTime=now+{seconds}")
    assert done.returncode == 0, done.stderr
    done = slurm.run("scancel", "--batch", "--signal=USR1", number, user=tony.user)
    assert done.returncode == 0, done.stderr


LIMITED = {"tony.slurm.time-limit": 3600000, "tony.task.checkpoint-grace": 60000}


def test_a_time_limit_lets_the_tasks_save(tony, slurm):
    app = tony("submit", training(tony, 100000, **LIMITED)).stdout.strip()
    await_training(tony, app)
    limit_comes_near(tony, slurm, app, 60)
    wait_until(lambda: tony.status(app)["state"] == "KILLED", "the job ends")
    doc = tony.status(app)
    assert "time limit" in json.dumps(doc) and doc["checkpoint"]["path"].startswith("/data/"), doc
    wait_until(lambda: slurm.job(tony.number(app)) == "FAILED", "Slurm shows that the job has not succeeded")


def test_a_job_goes_back_into_the_queue_at_its_time_limit(tony, slurm):
    client = tony.start("run", training(tony, 60, **LIMITED, **{"tony.slurm.requeue-at-limit": "true"}))
    app = wait_until(lambda: [p.name for p in (tony.home / "jobs").glob("application_*")], "the job is submitted")[0]
    await_training(tony, app)
    limit_comes_near(tony, slurm, app, 120)
    begin_again(slurm, tony.number(app), 60, "TimeLimit=60")
    said = client.communicate(timeout=120)[0]
    assert client.returncode == 0, said + tony.logs()
    doc = tony.status(app)
    assert doc["state"] == "SUCCEEDED" and doc["epoch"] == 2, doc
    first, second = outputs(tony, app)
    assert first == "begins at 0\n" and int(second.split()[2]) > 0, (first, second)


def test_a_requeue_continues_the_job(tony, slurm):
    """Without a notice, as `scontrol requeue` and a preemption without a grace time do it: nothing waits for a lease."""
    app = tony("submit", training(tony, 60)).stdout.strip()
    await_training(tony, app)
    number = tony.number(app)

    def may_be_requeued():
        found = re.search(r" Requeue=(\d)", slurm.run("scontrol", "show", "job", number).stdout)
        return found and found.group(1)
    assert may_be_requeued() == "1"
    assert slurm.run("scontrol", "requeue", number, user=tony.user).returncode == 0
    begin_again(slurm, number)
    wait_until(lambda: tony.status(app)["state"] == "SUCCEEDED", "the job succeeds", limit=60)
    doc = tony.status(app)
    wait_until(lambda: may_be_requeued() == "0", "a job that is over does not start once more, as Slurm 24.11 would do it after a preemption")
    assert doc["epoch"] == 2 and [t["attempt"] for t in doc["tasks"]] == [2, 2], json.dumps(doc["failures"]) + tony.logs()


def test_the_end_by_term_is_held_back(tony, slurm):
    """
    At the end of a run Slurm sends TERM to one process after the other, and the task may be the first. So its executor
    waits a second for a TERM of its own before it reports the end.
    """
    app = tony.submit(LONG, instances=1, conf={**RESTARTS, "tony.slurm.nodes": 1})
    tony.await_running(app, 1)
    os.kill(wait_until(lambda: tony.processes("-c while :"), "the command runs")[0], signal.SIGTERM)
    wait_until(lambda: tony.status(app)["restarts"] == 1, "the task is restarted")
    tony.await_running(app, 1)
    said = (tony.home / "jobs" / app / "nodes/0.log").read_text()
    ended, started = (datetime.datetime.fromisoformat(re.search(rf"(\S+)Z info +task.{what}", said).group(1))
                      for what in ("ended attempt=1", "started attempt=2"))
    assert (started - ended).total_seconds() > 0.9, said
    tony("stop", app)


def test_a_job_that_may_not_run_again_ends_with_its_nodes(tony, slurm):
    app = tony("submit", training(tony, 100000, **{"tony.slurm.requeue": "false"})).stdout.strip()
    tony.await_running(app, 2)
    assert slurm.run("scontrol", "requeue", tony.number(app), user=tony.user).returncode != 0
    tony("stop", app)


def test_a_cancelled_step_is_told_from_a_failure(tony, slurm):
    app = tony.submit(LONG, conf=RESTARTS)
    tony.await_running(app, 3)
    assert slurm.run("scancel", f"{tony.number(app)}.0", user=tony.user).returncode == 0
    wait_until(lambda: tony.status(app)["state"] == "KILLED", "the job ends", limit=60)
    assert "cancelled in Slurm" in json.dumps(tony.status(app))


# In the place of srun. SIGKILL follows the line of slurmstepd at once, so that it sometimes does not arrive.
LOSES_A_LINE = r"""#!/bin/bash
exec %s "$@" 2> >(exec grep --line-buffered -v 'CANCELLED AT' >&2)
"""


def test_a_cancelled_step_of_which_a_line_is_lost(tony, slurm):
    (tony.base / "loses").mkdir(mode=0o755)
    (tony.base / "loses/srun").write_text(LOSES_A_LINE % shutil.which("srun"))
    (tony.base / "loses/srun").chmod(0o755)
    tony.env["PATH"] = f"{tony.base}/loses:{os.environ['PATH']}"
    test_a_cancelled_step_is_told_from_a_failure(tony, slurm)


def test_an_srun_is_killed(tony, slurm):
    """Its step runs on, so the node has two keepers for a moment. The older one ends, and leaves the younger one alone."""
    def task():
        return next(t for t in tony.status(app)["tasks"] if t["node"] == "n2")
    app = tony.submit(LONG, conf=RESTARTS)
    tony.await_running(app, 3)
    for _ in range(2):
        before = task()["attempt"]
        for pid in tony.processes("srun", "--nodelist=n2"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: (t := task())["attempt"] > before and t["state"] == "running", "the task of this node runs again")
    wait_until(lambda: len(tony.processes("tony-keeper", " node ")) == 3, "each node has one keeper")
    doc = tony.await_running(app, 3)
    assert [t["attempt"] for t in doc["tasks"] if t["node"] != "n2"] == [1, 1] and slurm.job(tony.number(app)) == "RUNNING", doc
    tony("stop", app)
    assert tony.status(app)["state"] == "KILLED"


def test_slurmd_may_be_stopped_and_started(tony, slurm):
    app = tony.submit(LONG, conf=RESTARTS)
    tony.await_running(app, 3)
    for node in slurm.names:
        slurm.slurmd_off(node)
    for node in slurm.names:
        slurm.slurmd_on(node)
    wait_until(lambda: slurm.states() == ["mix"] * 3, "all nodes are back")
    doc = tony.await_running(app, 3)
    assert doc["epoch"] == 1 and [t["attempt"] for t in doc["tasks"]] == [1, 1, 1]
    tony("stop", app)


def lose_the_first_node(tony, slurm, **conf):
    """A training whose first node loses its power: the id of the job, and its number in Slurm."""
    app = tony("submit", training(tony, 200, **{"tony.task.master-away-limit": 2000, **conf})).stdout.strip()
    await_training(tony, app)
    number = tony.number(app)
    slurm.power_off(slurm.job(number, "%B"))
    return app, number


@pytest.mark.slow
@pytest.mark.parametrize("who", ["status", "wait"])
def test_the_first_node_loses_its_power(tony, slurm, who):
    """
    Because of --no-kill, Slurm lets the job run on without its first node. A client that asks about the job puts it back
    into the queue, and the next run continues it on other nodes.
    """
    app, number = lose_the_first_node(tony, slurm)
    client = tony.start("wait", app) if who == "wait" else None
    wait_until(lambda: (client or tony.status(app)) and slurm.job(number) == "PENDING", "the job is back in the queue", limit=180, pause=0.5)
    begin_again(slurm, number)
    wait_until(lambda: tony.status(app)["state"] == "SUCCEEDED", "the job succeeds", limit=120)
    assert tony.status(app)["epoch"] == 2
    assert not client or client.wait(60) == 0


@pytest.mark.slow
def test_the_first_node_of_a_job_that_may_not_run_again(tony, slurm):
    app, _ = lose_the_first_node(tony, slurm, **{"tony.slurm.requeue": "false"})
    wait_until(lambda: not tony.status(app)["live"], "the job is over", limit=180, pause=0.5)
    doc = tony.status(app)
    assert doc["state"] == "FAILED" and "first node of the job is lost" in str(doc), doc
    wait_until(lambda: not slurm.jobs(), "nothing is left in Slurm's queue")


@pytest.mark.parametrize("code", [0, 3])
def test_a_task_that_handles_term_at_a_requeue(tony, slurm, code):
    """It ends at once, with a code of its own. That is no end of the task: it runs again, without a charge to its budget."""
    command = f"trap 'exit {code}' TERM; [ -e {tony.base}/go ] && exit 0; echo begins; sleep 600 & wait"
    app = tony.submit(command, instances=6, conf={"tony.slurm.nodes": 2})
    tony.await_running(app, 6)
    for i in range(6):
        wait_until(lambda: "begins" in tony("logs", app, f"worker:{i}", "--stdout").stdout, "the task handles TERM")
    number = tony.number(app)
    assert slurm.run("scontrol", "requeue", number, user=tony.user).returncode == 0
    (tony.base / "go").touch()
    begin_again(slurm, number)
    wait_until(lambda: tony.status(app)["state"] == "SUCCEEDED", "the job succeeds", limit=60)
    assert [t["attempt"] for t in tony.status(app)["tasks"]] == [2] * 6, tony.logs()


def high_job(slurm, user):
    """A job that takes the nodes of others, and ends soon."""
    done = slurm.run("sbatch", "--parsable", "-p", "high", "-N3", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1", user=user, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_preempted_job_saves_and_continues(tony, slurm):
    """The site sends a notice. The tasks save, and the nodes are free before the grace time is over."""
    app = tony("submit", training(tony, 60, **{"tony.task.checkpoint-grace": 5000})).stdout.strip()
    await_training(tony, app)
    number, begun = tony.number(app), time.monotonic()
    high = high_job(slurm, tony.user)
    wait_until(lambda: slurm.job(high) in ("COMPLETING", "COMPLETED", ""), "the other job has run", pause=0.2)
    assert time.monotonic() - begun < GRACE_S, "it did not wait for the grace time"
    begin_again(slurm, number)
    wait_until(lambda: tony.status(app)["state"] == "SUCCEEDED", "the job succeeds", limit=60)
    begun_at = [line.split()[2] for text in outputs(tony, app) for line in text.splitlines()]
    assert begun_at[0] == "0" and int(begun_at[-1]) > 0, f"it continues from its checkpoint: {outputs(tony, app)}{tony.logs()}"


# In the place of scontrol: the answer about the job comes when the steps of the keepers have ended, and 2 s later.
LATE_ANSWER = r"""#!/bin/sh
if [ "$1 $2" = "show job" ]; then
    n=0
    until [ -e "$(echo "$TONY_HOME"/jobs/application_*/step_ended)" ] || [ $n -gt 40 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    sleep 2
fi
exec %s "$@"
"""


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True])
def test_a_preemption_without_a_notice(tony, slurm, late):
    """
    Slurm sends TERM to the tasks, which die of it. The job continues without a charge to its budgets for failures, also
    if the keepers have ended when slurmctld says why.
    """
    if late:
        (tony.base / "late").mkdir(mode=0o755)
        (tony.base / "late/scontrol").write_text(LATE_ANSWER % shutil.which("scontrol"))
        (tony.base / "late/scontrol").chmod(0o755)
        tony.env["PATH"] = f"{tony.base}/late:{os.environ['PATH']}"
    slurm.reconfigure(SlurmctldParameters="idle_on_node_suspend")
    try:
        app = tony("submit", training(tony, 200)).stdout.strip()
        await_training(tony, app)
        number, high = tony.number(app), high_job(slurm, tony.user)
        wait_until(lambda: slurm.job(high) in ("COMPLETING", "COMPLETED", ""), "the other job has run", limit=90, pause=0.2)
        begin_again(slurm, number)
        wait_until(lambda: tony.status(app)["state"] == "SUCCEEDED", "the job succeeds", limit=60)
        assert [t["attempt"] for t in tony.status(app)["tasks"]] == [2, 2]
    finally:
        slurm.reconfigure()


@pytest.mark.slow
def test_a_time_limit_of_slurm_itself(tony, slurm):
    """Slurm looks at time limits in a slow loop; here it sends the notice itself."""
    done = tony("run", training(tony, 100000, **{"tony.slurm.time-limit": 60000, "tony.task.checkpoint-grace": 5000}), ok=False, timeout=240)
    assert done.returncode == 3 and "KILLED" in done.stdout
    doc = tony.status(re.search(r"^job (application_\w+) ", done.stdout, re.M).group(1))
    assert doc["checkpoint"], doc
