# SPDX-License-Identifier: Apache-2.0
"""
Restarts of a task, a role, the gang and the whole job, after failures, kills and losses. If the container is
alive, the task restarts in it.
"""

import json
import os
import pathlib
import signal
import sys
import time

import pytest
from conftest import ROOT, wait_until
from lib_jobs import ended, kill9, lab, make_lab  # noqa: F401 (fixtures)

# no task dies of silence
QUICK = {"tony.task.kill-grace-ms": 2000, "tony.task.heartbeat-interval-ms": 200, "tony.task.max-missed-heartbeats": 1000}

# Each run records its name. Then it does what the test's file for this run says, or waits for that file.
TASK = r"""
me=$TONY_ROLE$TONY_INDEX
mkdir -p $DIR/$me
env > $DIR/$me/env$TONY_ATTEMPT.new; mv $DIR/$me/env$TONY_ATTEMPT.new $DIR/$me/env$TONY_ATTEMPT
echo $$ > $DIR/$me/pid$TONY_ATTEMPT
echo run $TONY_ATTEMPT; echo err $TONY_ATTEMPT >&2
while ! [ -e $DIR/$me/do$TONY_ATTEMPT ]; do sleep 0.02; done
exit $(cat $DIR/$me/do$TONY_ATTEMPT)
"""


class Runs:
    """A job whose runs end as the test says, each on its own."""

    def __init__(self, lab, roles, conf=None, **top):
        self.lab = lab
        self.dir = lab.base / f"runs{lab.n_files}"
        self.dir.mkdir()
        script = self.dir / "task.sh"
        script.write_text(TASK)
        roles = {name: {"command": f"bash {script}", "env": {"DIR": str(self.dir)}, **role} for name, role in roles.items()}
        self.app = lab.submit(lab.job_file(roles, conf={**QUICK, **(conf or {})}, **top))

    def path(self, task, what):
        return self.dir / task.replace(":", "") / what

    def env(self, task, attempt=1, limit=60):
        """The environment of one run, once it runs."""
        path = self.path(task, f"env{attempt}")
        wait_until(path.exists, f"{task} runs for time {attempt}", limit)
        return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)

    def pid(self, task, attempt=1):
        self.env(task, attempt)
        path = self.path(task, f"pid{attempt}")
        return int(wait_until(lambda: path.exists() and path.read_text(), f"{task}'s pid"))

    def ends(self, task, attempt, code):
        self.env(task, attempt)
        new = self.path(task, "new")
        new.write_text(str(code))
        new.rename(self.path(task, f"do{attempt}"))

    def over(self, state="SUCCEEDED"):
        self.lab.in_history(self.app)
        doc = self.lab.status(self.app)
        assert doc["state"] == state, doc
        return doc

    def ran(self, task):
        return sorted(int(p.name[3:]) for p in self.path(task, "").glob("env*") if p.name[3:].isdigit())


def test_a_worker_that_fails_twice_and_then_succeeds(lab):
    job = Runs(lab, {"worker": {"instances": 2, "restart": "on-failure"}})
    other = job.pid("worker:1")
    container = job.env("worker:0")["TONY_CONTAINER_ID"]
    address = job.env("worker:0")["TONY_ADDRESS"]
    for attempt in (1, 2):
        job.ends("worker:0", attempt, 3)
    env = job.env("worker:0", 3)
    assert (env["TONY_ATTEMPT"], env["TONY_RESTART_COUNT"], env["ATTEMPT_NUMBER"], env["TONY_GENERATION"]) == ("3", "2", "2", "1")
    assert env["SESSION_ID"] == "0" and "NUM_AM_RETRIES" not in env
    assert env["TONY_CONTAINER_ID"] == container, "in the same container"
    assert env["TONY_ADDRESS"] == address, "where its peers know it"
    live = lab.status(job.app)
    assert live["restarts"] == 2 and live["generation"] == 1, live
    assert "restarts  2; the last: worker:0 ended with exit code 3" in lab.run("status", job.app).stdout
    job.ends("worker:0", 3, 0)
    job.ends("worker:1", 1, 0)
    doc = job.over()
    assert job.pid("worker:1") == other and job.ran("worker:1") == [1]
    tasks = {t["task"]: t for t in doc["tasks"]}
    assert (tasks["worker:0"]["attempt"], tasks["worker:0"]["result"], tasks["worker:1"]["attempt"]) == (3, "SUCCEEDED", 1)
    for attempt in (1, 2, 3):
        assert lab.log(job.app, "worker:0", "stdout", attempt) == f"run {attempt}\n"
        assert lab.log(job.app, "worker:0", "stderr", attempt) == f"err {attempt}\n"
    lab.settled()


def test_max_restarts_and_retry_on(lab):
    job = Runs(lab, {"worker": {"instances": 1, "max-restarts": 1, "retry-on": "7, 130-140"}})
    job.ends("worker:0", 1, 7)
    kill9(job.pid("worker:0", 2))
    doc = job.over("FAILED")
    assert doc["message"] == "task 'worker:0' was killed by signal 9 (SIGKILL)", doc
    assert job.ran("worker:0") == [1, 2]
    job = Runs(lab, {"worker": {"instances": 1, "retry-on": "7"}})
    job.ends("worker:0", 1, 8)
    job.over("FAILED")
    assert job.ran("worker:0") == [1]
    lab.settled()


def test_without_a_policy_a_failure_is_one(lab):
    job = Runs(lab, {"worker": {"instances": 1}})
    job.ends("worker:0", 1, 1)
    assert job.over("FAILED")["restarts"] == 0
    assert job.ran("worker:0") == [1]
    lab.settled()


def test_a_gang_is_formed_anew_after_a_kill(lab):
    job = Runs(lab, {"worker": {"instances": 3, "restart": "on-failure", "restart-scope": "job"}})
    old = [job.pid(f"worker:{i}") for i in range(3)]
    before = [job.env(f"worker:{i}") for i in range(3)]
    kill9(old[1])
    after = [job.env(f"worker:{i}", 2) for i in range(3)]
    for pid in old:
        ended(pid)
    assert {e["TONY_GENERATION"] for e in after} == {"2"}
    assert {e["CLUSTER_SPEC"] for e in after} == {after[0]["CLUSTER_SPEC"]}, "all know the same"
    assert [e["TONY_CONTAINER_ID"] for e in after] == [e["TONY_CONTAINER_ID"] for e in before], "what lived was kept"
    was, now = (set(json.loads(e[0]["CLUSTER_SPEC"])["worker"]) for e in (before, after))
    assert not was & now, "no port of the old generation"
    assert [e["TONY_ADDRESS"] for e in after] == json.loads(after[0]["CLUSTER_SPEC"])["worker"]
    for i in range(3):
        job.ends(f"worker:{i}", 2, 0)
    assert job.over()["generation"] == 2
    lab.settled()


def test_pytorch_restarts_the_gang_without_a_scope(lab):
    """The framework decides which tasks restart."""
    job = Runs(lab, {"worker": {"instances": 2, "restart": "on-failure"}}, framework="pytorch")
    job.env("worker:0")
    job.ends("worker:1", 1, 1)
    for i in range(2):
        env = job.env(f"worker:{i}", 2)
        assert env["TORCHELASTIC_RESTART_COUNT"] == "1" and env["TONY_GENERATION"] == "2"
        job.ends(f"worker:{i}", 2, 0)
    job.over()
    lab.settled()


def test_a_role_restarts(lab):
    job = Runs(lab, {"chief": {"instances": 1}, "worker": {"instances": 2, "restart": "on-failure", "restart-scope": "role"}})
    job.env("chief:0"), job.env("worker:0")
    job.ends("worker:1", 1, 1)
    for i in range(2):
        assert job.env(f"worker:{i}", 2)["TONY_GENERATION"] == "1"
        job.ends(f"worker:{i}", 2, 0)
    job.ends("chief:0", 1, 0)
    job.over()
    assert job.ran("chief:0") == [1]
    lab.settled()


def test_a_lost_executor_costs_a_container_only(lab):
    """
    The job has no restart policy. But the loss was not the task's own failure, so it restarts. Its peers find
    the new address in their file.
    """
    job = Runs(lab, {"worker": {"instances": 2}})
    before = [job.env(f"worker:{i}") for i in range(2)]
    spec = pathlib.Path(before[0]["TONY_SPEC_FILE"])
    assert json.loads(spec.read_text()) == json.loads(before[0]["CLUSTER_SPEC"])
    old = job.pid("worker:1")
    kill9(lab.executor_of(old))
    after = job.env("worker:1", 2)
    ended(old)
    assert after["TONY_CONTAINER_ID"] != before[1]["TONY_CONTAINER_ID"]
    wait_until(lambda: json.loads(spec.read_text())["worker"][1] == after["TONY_ADDRESS"], "the peer's file has the new address")
    assert json.loads(spec.read_text()) == json.loads(after["CLUSTER_SPEC"])
    assert job.ran("worker:0") == [1]
    for i, attempt in ((0, 1), (1, 2)):
        job.ends(f"worker:{i}", attempt, 0)
    assert job.over()["restarts"] == 1
    lab.settled()


def test_the_spec_file_of_a_stopped_executor_is_current(lab):
    """
    worker:0's executor is stopped while worker:1 moves to another container. The master writes the file, so
    it has the new address at once.
    """
    job = Runs(lab, {"worker": {"instances": 2}}, conf={"tony.task.heartbeat-interval-ms": 10000})
    spec = pathlib.Path(job.env("worker:0")["TONY_SPEC_FILE"])
    job.env("worker:1")
    away, lost = (lab.executor_of(job.pid(f"worker:{i}")) for i in range(2))
    os.kill(away, signal.SIGSTOP)
    try:
        master = lab.one("master", job.app)
        kill9(master)  # this also cuts the connection to the stopped executor
        lab.one("master", job.app, other_than=master)
        kill9(lost)
        after = job.env("worker:1", 2)
        wait_until(lambda: json.loads(spec.read_text())["worker"][1] == after["TONY_ADDRESS"], "the peer's file has the new address")
    finally:
        os.kill(away, signal.SIGCONT)
    for i, attempt in ((0, 1), (1, 2)):
        job.ends(f"worker:{i}", attempt, 0)
    job.over()
    lab.settled()


def test_a_job_without_roles_restarts(lab):
    """The executor is lost, then the task fails by itself: tony.am.retry-count allows that."""
    job = Runs(lab, {"worker": {"instances": 1}})  # only its script is used
    job.ends("worker:0", 1, 0)
    job.over()
    here = lab.base / "alone"
    here.mkdir()
    path = lab.base / "alone.yaml"
    path.write_text(json.dumps({"name": "alone", "framework": "generic", "command": f"bash {job.dir / 'task.sh'}", "env": {"DIR": str(here)},
                                "conf": {**QUICK, "tony.am.memory": "64m", "tony.am.retry-count": 1}}))
    job.dir, job.app = here, lab.submit(path)
    kill9(lab.executor_of(job.pid("driver:0")))
    assert "NUM_AM_RETRIES" not in job.env("driver:0", 2)
    job.ends("driver:0", 2, 3)
    env = job.env("driver:0", 3)
    assert (env["NUM_AM_RETRIES"], env["SESSION_ID"], env["TONY_RESTART_COUNT"]) == ("1", "1", "2")
    job.ends("driver:0", 3, 4)
    doc = job.over("FAILED")
    assert (doc["restarts"], doc["retries"], doc["message"]) == (2, 1, "task 'driver:0' failed with exit code 4"), doc
    lab.settled()


def test_the_keeper_is_killed(lab):
    """All containers die with the keeper, and the job goes on in others."""
    job = Runs(lab, {"worker": {"instances": 2}})
    old = [job.pid(f"worker:{i}") for i in range(2)]
    kill9(lab.one("keeper", job.app))
    for i in range(2):
        job.env(f"worker:{i}", 2)
        ended(old[i])
        job.ends(f"worker:{i}", 2, 0)
    job.over()
    assert job.ran("worker:0") == job.ran("worker:1") == [1, 2]
    lab.settled()


@pytest.mark.takes(5)
def test_the_keeper_is_killed_again_and_again(lab):
    """A keeper that has worked for a while is not faulty, however many were killed before."""
    # The job makes progress, so there are no pauses.
    save = f"{sys.executable} {ROOT}/clients/python/tony_task.py checkpoint $TONY_ATTEMPT /data/step"
    app = lab.submit(lab.workers(f"{save}; test $TONY_ATTEMPT = 5 || sleep 600", conf={"tony.task.restarts.node-lost": 9}))
    for run in range(1, 5):
        wait_until(lambda: lab.status(app).get("checkpoint", {}).get("step") == run, f"run {run} has saved")
        since = time.monotonic()
        wait_until(lambda: time.monotonic() > since + 1.1, "its keeper has worked for a while", pause=0.05)
        kill9(lab.one("keeper", app))
    doc = lab.await_state(app, "SUCCEEDED", "FAILED")
    assert doc["state"] == "SUCCEEDED" and doc["tasks"][0]["attempt"] == 5, doc
    lab.settled()


def test_a_spare_takes_over(lab):
    job = Runs(lab, {"worker": {"instances": 2, "spares": 1}})
    for i in range(2):
        job.env(f"worker:{i}")
    wait_until(lambda: lab.status(job.app)["roles"][0]["spares"] == 1, "the spare is ready")
    assert len(lab.pids("executor", job.app)) == 3
    assert len(json.loads(job.env("worker:0")["CLUSTER_SPEC"])["worker"]) == 2, "a spare is nobody's peer"
    assert [t["task"] for t in lab.status(job.app)["tasks"]] == ["worker:0", "worker:1"]
    kill9(lab.executor_of(job.pid("worker:1")))
    env = job.env("worker:1", 2)
    assert (env["TONY_TASK"], env["TASK_INDEX"], env["TONY_INDEX"]) == ("worker:1", "1", "1")
    names = [e["container"] for e in lab.journal(job.app) if e["e"] == "allocated"]
    assert env["TONY_CONTAINER_ID"] == names[2], "it was there before"
    assert lab.status(job.app)["roles"][0]["spares"] == 0
    kill9(lab.one("master", job.app))  # the next master also knows whose container it is
    wait_until(lambda: all(t["connected"] for t in lab.status(job.app)["tasks"]), "all are back")
    for i, attempt in ((0, 1), (1, 2)):
        job.ends(f"worker:{i}", attempt, 0)
    job.over()
    assert lab.log(job.app, "worker:1", "stdout", 2) == "run 2\n"
    lab.settled()


def test_with_retry_count_the_whole_job_restarts(lab):
    job = Runs(lab, {"prep": {"instances": 1}, "worker": {"instances": 2, "depends-on": "prep"}},
               conf={"tony.am.retry-count": 1})
    job.ends("prep:0", 1, 0)
    assert "NUM_AM_RETRIES" not in job.env("worker:1")
    job.ends("worker:0", 1, 1)
    job.ends("prep:0", 2, 0)
    for i in range(2):
        env = job.env(f"worker:{i}", 2)
        assert (env["SESSION_ID"], env["NUM_AM_RETRIES"], env["TONY_GENERATION"]) == ("1", "1", "2")
    job.ends("worker:1", 2, 0)
    job.ends("worker:0", 2, 5)
    doc = job.over("FAILED")
    assert (doc["retries"], doc["message"]) == (1, "task 'worker:0' failed with exit code 5"), doc
    lab.settled()


@pytest.mark.parametrize("scope", ["task", "job"])
def test_master_killed_while_it_restarts(lab, scope):
    """Whenever the master dies, each run starts once, and the job goes on."""
    job = Runs(lab, {"worker": {"instances": 2, "restart": "on-failure", "restart-scope": scope, "max-restarts": 50}})
    at = {0: 1, 1: 1}
    for _ in range(3):  # after more kills in a row the keeper would give up
        job.env("worker:0", at[0])
        job.env("worker:1", at[1])
        job.ends("worker:0", at[0], 9)
        kill9(lab.one("master", job.app))
        at[0] += 1
        at[1] += scope == "job"
        lab.run("kill", "--help")  # does not wait for anything: each kill comes at another moment
    for i in range(2):
        job.ends(f"worker:{i}", at[i], 0)
    job.over()
    assert job.ran("worker:0") == list(range(1, at[0] + 1))
    assert job.ran("worker:1") == list(range(1, at[1] + 1))
    lab.settled()


def test_a_stop_does_not_wait_for_the_restart_delay(lab):
    """The pause counts in job time; a stop does not wait for its end."""
    job = Runs(lab, {"worker": {"instances": 1, "restart": "on-failure", "restart-delay": 3600000}})
    job.ends("worker:0", 1, 1)
    wait_until(lambda: lab.tasks(job.app)["worker:0"]["state"] == "registered", "it pauses")
    assert lab.run("kill", job.app).returncode == 0
    job.over("KILLED")
    assert job.ran("worker:0") == [1]
    lab.settled()


def test_processes_of_an_attempt_end_before_the_next(lab):
    job = Runs(lab, {"worker": {"instances": 1, "restart": "on-failure",
                                "command": "[ $TONY_ATTEMPT = 1 ] || exec sh -c 'kill -0 $(cat left) 2>/dev/null && exit 1; exit 0'; "
                                           "setsid sleep 1000 & echo $! > left; exit 1"}})
    assert job.over()["restarts"] == 1
    lab.settled()
