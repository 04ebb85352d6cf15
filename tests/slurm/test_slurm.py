# SPDX-License-Identifier: Apache-2.0
"""Jobs on a real Slurm with three nodes, as an ordinary user."""

import json
import os
import re
import signal
import time

import pytest
from lib_slurm import wait_until

LONG = "while :; do sleep 5.5; done"
RESTARTS = {"tony.worker.restart": "on-failure", "tony.worker.max-restarts": 9, "tony.worker.restart-scope": "task",
            "tony.application.distributed-mode": "FCFS"}


def app_of(done):
    """The application id of a `tony run` that has ended, in the lines after what the tasks wrote."""
    return re.search(r"^job (application_\d+_\d+) ", done.stdout, re.M).group(1)


def test_a_job_runs_and_its_results_stay(tony, slurm):
    done = tony("run", tony.job_file("echo $TASK_INDEX of $CLUSTER_SPEC; echo bad >&2", instances=4))
    assert "SUCCEEDED" in done.stdout and "job of Slurm" not in done.stdout
    app = app_of(done)
    status = tony.status(app)
    assert status["state"] == "SUCCEEDED" and status["live"] is False
    assert {t["node"] for t in status["tasks"]} == set(slurm.names), "the tasks are spread over the nodes"
    assert json.loads(tony("logs", app, "worker:3", "--stdout").stdout.split(" of ")[1].strip())["worker"]
    assert "bad" in tony("logs", app, "worker:1", "--stderr").stdout
    wait_until(lambda: slurm.job(tony.number(app)) == "COMPLETED", "Slurm shows the result")
    row = json.loads(tony("list", "--cluster", "slurm", "--json").stdout)["jobs"][0]
    assert row["application_id"] == app and row["state"] == "SUCCEEDED"
    assert app not in tony("list", "--cluster", "local", ok=False).stdout


def test_last_and_the_filters_of_the_list(tony):
    """`last` is the job that this user has submitted last, to whichever cluster; --cluster chooses among them."""
    good, bad = (app_of(tony("run", tony.job_file(command, instances=1), ok=False)) for command in ("true", "exit 3"))

    def last(*options):
        return json.loads(tony("status", "last", *options, "--json").stdout)["application_id"]

    def listed(*options):
        apps = [row["application_id"] for row in json.loads(tony("list", *options, "--json").stdout)["jobs"]]
        return [app for app in apps if app in (good, bad)]
    assert last() == bad
    here = tony("submit", "--cluster", "local", "-n", "1", "--memory", "32m", "--", "true").stdout.strip()
    try:
        assert last() == here and last("--cluster", "slurm") == bad
        assert listed("--cluster", "slurm") == [bad, good] and listed("--cluster", "local") == []
        assert listed("--cluster", "slurm", "--state", "failed") == [bad] and listed("--cluster", "slurm", "--state", "succeeded,killed") == [good]
        assert listed("--cluster", "slurm", "--name", "x*") == [bad, good] and listed("--cluster", "slurm", "--name", "y") == []
        assert listed("--cluster", "slurm", "--since", "1h") == [bad, good] and listed("--cluster", "slurm", "--since", "1ms") == []
        assert listed("--cluster", "slurm", "--user", "nobody-of-that-name") == [] and listed("--cluster", "slurm", "--user", tony.user) == [bad, good]
    finally:
        tony("wait", here, ok=False)
        tony("pool", "stop", "--force", ok=False)


def test_a_failure_is_told_by_tony_and_by_slurm(tony, slurm):
    done = tony("run", tony.job_file("exit 7"), ok=False)
    app = app_of(done)
    assert done.returncode == 1 and "exit" in done.stdout
    wait_until(lambda: slurm.job(tony.number(app)) == "FAILED", "Slurm shows the failure")


def test_tasks_get_their_gpus_and_nothing_of_slurm(tony):
    done = tony("run", tony.job_file("env | grep -E '^(SLURM|CUDA_VISIBLE)'", instances=2, gpus=2, conf={"tony.slurm.nodes": 2}))
    app = app_of(done)
    for task in ("worker:0", "worker:1"):
        assert tony("logs", app, task, "--stdout").stdout.strip() == "CUDA_VISIBLE_DEVICES=0,1"


def test_plan_shows_the_script_that_runs(tony):
    path = tony.job_file("true", conf={"tony.slurm.time-limit": 90000, "tony.slurm.partition": "short", "tony.slurm.account": "a1",
                                       "tony.slurm.extra-arguments": "--comment=hello"})
    shown = tony("plan", path).stdout
    for line in ("--partition=short", "--time=2", "--account=a1", "--comment=hello", "--nodes=3", "--no-kill", "--requeue", "--signal=B:USR1@110"):
        assert f"#SBATCH {line}\n" in shown
    app = app_of(tony("run", path))
    script = (tony.history(app) / "script").read_text()
    assert [x for x in script.splitlines() if x.startswith("#SBATCH") and app not in x] == [
        x for x in shown.splitlines() if x.startswith("#SBATCH") and "APPLICATION_ID" not in x]


def test_what_slurm_cannot_give_is_refused_at_once(tony, slurm):
    for change, words in (({"memory": "9g"}, "cannot hold"), ({"conf": {"tony.slurm.nodes": 9}}, "cannot hold"),
                          ({"conf": {"tony.slurm.partition": "none"}}, "does not exist"),
                          ({"conf": {"tony.slurm.extra-arguments": "--array=0-2"}}, "one allocation"),
                          ({"conf": {"tony.slurm.time-limit": 30000, "tony.task.checkpoint-grace": 45000}}, "a time limit of 60 s leaves the job no time"),
                          ({"conf": {"tony.slurm.constraint": "nosuch"}}, "Invalid feature")):
        done = tony("submit", tony.job_file("true", **change), ok=False)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    assert not slurm.jobs() and not list((tony.home / "jobs").iterdir())


def test_whatever_dies_the_job_goes_on(tony):
    app = tony.submit(LONG, conf=RESTARTS)
    tony.await_running(app, 3)

    def kill(*words):
        os.kill(tony.processes(*words)[0], signal.SIGKILL)

    def attempts():
        return sorted(t["attempt"] for t in tony.await_running(app, 3)["tasks"])

    kill("tony-master", "--cluster")
    wait_until(lambda: tony.status(app)["epoch"] == 2, "the next master answers")
    assert attempts() == [1, 1, 1]
    for words, expected in ((("sleep 5.5",), [1, 1, 2]), (("tony-executor worker:",), None), (("tony-keeper ", " node 1"), None)):
        kill(*words)
        before = tony.status(app)["restarts"]
        wait_until(lambda: tony.status(app)["restarts"] >= max(before, 1), f"{words}: a task is restarted")
        assert not expected or attempts() == expected
    tony.await_running(app, 3)
    kill("tony-keeper ", " head")
    wait_until(lambda: tony.status(app)["epoch"] == 3, "the master of the next head keeper answers")
    tony.await_running(app, 3)
    tony("stop", app)
    assert tony.status(app)["state"] == "KILLED"


def test_the_controller_may_be_away(tony, slurm):
    app = tony.submit(LONG, conf=RESTARTS)
    tony.await_running(app, 3)
    slurm.controller_off()
    os.kill(tony.processes("sleep 5.5")[0], signal.SIGKILL)
    wait_until(lambda: tony.status(app)["restarts"] == 1, "a task is restarted without Slurm")
    tony.await_running(app, 3)
    slurm.controller_on()
    wait_until(lambda: slurm.job(tony.number(app)) == "RUNNING", "the controller knows the job")
    tony("stop", app)


def test_the_controller_may_be_killed(tony, slurm):
    """It forgets what it has not saved; it saves a job a few seconds after its start."""
    app = tony.submit(LONG, conf=RESTARTS)
    tony.await_running(app, 3)
    wait_until(lambda: slurm.job(tony.number(app)) == "RUNNING", "the job runs")
    seen, state = time.time(), slurm.dir / "state/job_state"
    wait_until(lambda: state.exists() and state.stat().st_mtime > seen, "slurmctld has saved its state", limit=120)
    slurm.end("slurmctld", signal.SIGKILL)
    os.kill(tony.processes("sleep 5.5")[0], signal.SIGKILL)
    wait_until(lambda: tony.status(app)["restarts"] == 1, "a task is restarted without Slurm")
    assert "RUNNING" in tony("list", "--cluster", "slurm").stdout
    slurm.controller_on()
    wait_until(lambda: slurm.job(tony.number(app)) == "RUNNING" and slurm.states() == ["mix"] * 3, "the controller knows the job")
    assert sorted(t["attempt"] for t in tony.await_running(app, 3)["tasks"]) == [1, 1, 2]
    tony("stop", app)
    assert tony.status(app)["state"] == "KILLED"


def test_scancel_is_told_from_a_failure(tony, slurm):
    client = tony.start("run", tony.job_file(LONG))
    app = wait_until(lambda: [p.name for p in (tony.home / "jobs").glob("application_*")], "the job is submitted")[0]
    tony.await_running(app, 3)
    assert slurm.run("scancel", tony.number(app), user=tony.user).returncode == 0
    assert client.wait(60) == 3, client.stdout.read()
    assert tony.status(app)["state"] == "KILLED"


def test_a_job_that_waits_is_followed_and_stopped(tony, slurm):
    holder = slurm.run("sbatch", "--parsable", "-N3", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 60", user=tony.user, cwd="/").stdout.strip()
    wait_until(lambda: slurm.job(holder) == "RUNNING", "the nodes are taken")
    try:
        client = tony.start("run", tony.job_file("true"))
        app = wait_until(lambda: [p.name for p in (tony.home / "jobs").glob("application_*")], "the job is submitted")[0]
        wait_until(lambda: tony("list", "--cluster", "slurm").stdout.count("WAITING"), "the list shows that it waits")
        assert any("free nodes" in line or "priority" in line for line in client.stdout), "the client says why it waits"
        tony("stop", app)
        assert client.wait(60) == 3
    finally:
        slurm.run("scancel", "--signal=KILL", holder)
    wait_until(lambda: not slurm.jobs(), "the job is gone")


def test_a_job_that_is_back_in_the_queue_is_stopped(tony, slurm):
    """Its master was killed, and so has left its address. `tony stop` waited for it for ever."""
    app = tony.submit(LONG, conf=RESTARTS)
    tony.await_running(app, 3)
    number, first = tony.number(app), slurm.job(tony.number(app), "%B")
    slurm.run("scontrol", "update", f"NodeName={first}", "State=DOWN", "Reason=test")
    try:
        wait_until(lambda: tony.status(app)["live"] and slurm.job(number) == "PENDING", "the client has put it back")
        tony("stop", app, timeout=60)
        assert tony.status(app)["state"] == "KILLED"
    finally:
        slurm.run("scontrol", "update", f"NodeName={first}", "State=RESUME")


def test_a_client_that_is_killed_takes_no_job_with_it(tony):
    client = tony.start("run", tony.job_file(LONG))
    app = wait_until(lambda: [p.name for p in (tony.home / "jobs").glob("application_*")], "the job is submitted")[0]
    tony.await_running(app, 3)
    client.kill()
    client.wait()
    tony.await_running(app, 3)
    tony("stop", app)


def test_a_node_without_power_is_replaced_by_a_spare_one(tony, slurm):
    conf = {**RESTARTS, "tony.slurm.nodes": 2, "tony.slurm.spare-nodes": 1, "tony.task.master-away-limit": 2000}
    app = tony.submit(LONG, instances=2, conf=conf)
    status = tony.await_running(app, 2)
    batch_host = slurm.job(tony.number(app), "%B")
    victim = next(t for t in status["tasks"] if t["node"] != batch_host)
    slurm.power_off(victim["node"])
    begun = time.monotonic()

    def replaced():
        task = next(t for t in tony.status(app)["tasks"] if t["task"] == victim["task"])
        return task if task["state"] == "running" and task["attempt"] == 2 else None
    task = wait_until(replaced, "the task runs on another node")
    assert task["node"] != victim["node"]
    assert time.monotonic() - begun > 2, "not before the lease is over"
    tony("stop", app)


@pytest.mark.parametrize("further", ["true", "false"])
def test_a_resize_beyond_the_cluster_is_refused(tony, further):
    """By Slurm, if the master may ask for further nodes; else by the master. The job goes on with its old size."""
    app = tony.submit(LONG, conf={**RESTARTS, "tony.worker.max-instances": 50, "tony.slurm.further-allocations": further})
    tony.await_running(app, 3)
    tony("resize", app, "worker=50", ok=False)
    doc = wait_until(lambda: (lambda d: d.get("last_resize") and d)(tony.status(app)), "the resize is over")
    why = "a further allocation can never start" if further == "true" else "has no room for 50 containers"
    assert doc["last_resize"]["outcome"] == "refused" and why in doc["last_resize"]["detail"], doc["last_resize"]
    assert "resize" not in doc or not doc["resize"], doc["resize"]
    tony.await_running(app, 3)
    tony("stop", app)


@pytest.mark.slow
def test_a_time_limit_is_told(tony, slurm):
    done = tony("run", tony.job_file(LONG, conf={"tony.slurm.time-limit": 60000}), ok=False, timeout=240)
    assert done.returncode == 3 and "KILLED" in done.stdout


def test_status_says_that_the_master_cannot_be_reached(tony, slurm):
    app = tony.submit(LONG)
    tony.await_running(app, 3)
    where = tony.home / "jobs" / app / "master.json"
    text = where.read_text()
    where.write_text(json.dumps({**json.loads(text), "port": 1}))  # nobody listens there
    doc = tony.status(app)
    assert doc["state"] == "RUNNING" and "tasks" not in doc, doc
    assert re.fullmatch(r"its master at \S+:1 cannot be reached from here: .*refused; this is what the cluster knows of it", doc["message"]), doc
    assert doc["message"] in tony("why", app).stdout
    where.write_text(text)
    assert len(tony.status(app)["tasks"]) == 3
    tony("stop", app)
