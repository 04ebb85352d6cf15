# SPDX-License-Identifier: Apache-2.0
"""
kill -9 of the pool, the master, the keeper, executors and clients: harmless deaths go unnoticed, the others
are reported.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from conftest import wait_until
from lib_jobs import Gated, alive, ended, kill9, lab, make_lab  # noqa: F401 (fixtures)
from lib_points import make_points_lab  # noqa: F401 (fixture)

# no task dies of silence
QUICK = {"tony.task.kill-grace-ms": 500, "tony.task.heartbeat-interval-ms": 100, "tony.task.max-missed-heartbeats": 1000}


def test_one_master_is_enough(lab):
    """An undisturbed job needs one master and one keeper from its start to its end."""
    for command in ("true", "sleep 0.2"):
        app = lab.submit(lab.workers(command, n=2))
        assert lab.run("wait", app).returncode == 0
        lab.in_history(app)
        assert lab.status(app)["epoch"] == 1
    lab.settled()


# ---- the pool ----

def test_a_new_pool_adopts_a_running_job(lab):
    job = Gated(lab, 3).running()
    old = job.kill("pool")
    job.release(1, 7)
    assert lab.json("pool", "start")["pid"] != old
    job.release(2, 255)
    job.release(0, 0)
    assert job.over()["roles"][0]["failed"] == 2
    assert job.codes() == [0, 7, 255]
    job.started_once()
    lab.settled()


def test_without_any_pool_tasks_and_jobs_end(make_lab):
    """For a while no pool can be started. The job runs to its end, and the next pool knows the result."""
    lab = make_lab(copy=True)
    good, bad, still = Gated(lab, 2).running(), Gated(lab, 2).running(), Gated(lab, 2).running()
    away = lab.bin / "gone"
    (lab.bin / "tony-pool").rename(away)
    ended(good.kill("pool"))
    good.release_all()
    bad.release(1, 7)
    bad.release(0, 0)
    still.release(1, 9)
    for job in (good, bad):
        lab.in_history(job.app)
    assert not lab.pids("pool")
    away.rename(lab.bin / "tony-pool")
    good.over("SUCCEEDED")
    bad.over()
    assert bad.codes() == [0, 7]
    assert lab.status(still.app)["state"] == "RUNNING"
    doc = lab.json("pool", "start")
    assert [j["application_id"] for j in doc["jobs"]] == [still.app]
    assert doc["used"]["memory_mib"] > 0
    still.release(0, 0)
    still.over()
    assert still.codes() == [0, 9]
    for job in (good, bad, still):
        job.started_once()
    lab.settled()


def test_the_pool_is_killed_when_a_job_has_ended_and_the_next_one_waits(make_lab):
    """
    The keeper has sent its last report, but the pool has not read it. No other keeper is there, and no client, which could
    start a pool for the job that waits.
    """
    lab = make_lab(site={"pool.memory": "300m"})
    job = Gated(lab, role={"memory": "200m"}).running()
    waits = lab.submit(lab.workers("true", role={"memory": "200m"}))
    pool = lab.one("pool")
    os.kill(pool, signal.SIGSTOP)
    job.release(0)
    wait_until((lab.home / "history" / job.app).exists, "the job has ended")
    kill9(pool)
    wait_until((lab.home / "history" / waits).exists, "the next job has run")
    assert lab.one("pool", other_than=pool) != pool
    lab.settled()


def test_a_pool_that_ends_with_its_last_job_is_not_restarted(lab):
    job = Gated(lab).running()
    keeper = lab.one("keeper", job.app)
    assert lab.run("pool", "stop", "--force").returncode == 0
    ended(keeper)
    assert "keeper.pool_restart" not in (lab.home / "history" / job.app / "keeper.log").read_text()
    assert not lab.pids("pool")
    lab.settled()


def test_pool_killed_again_and_again(lab):
    job = Gated(lab, 2).running()
    for _ in range(5):
        pid = lab.json("pool", "start")["pid"]
        kill9(pid)
        ended(pid)
    job.release_all()
    job.over()
    job.started_once()
    lab.settled()


def test_pool_killed_while_it_accepts_jobs(lab):
    """Each client that got an id has a job; each other client sees an error; no job is incomplete."""
    path = lab.workers("true", role={"memory": "8m"})
    clients = []
    for i in range(12):
        clients.append(lab.start("submit", path))
        if i % 4 == 3:
            kill9(*lab.pids("pool"))
    ids = []
    for p in clients:
        out, err = p.communicate(timeout=60)
        assert (p.returncode == 0) == bool(out.strip()), (p.returncode, out, err)
        assert p.returncode == 0 or err.strip()
        ids += out.split()
    assert len(set(ids)) == len(ids)
    lab.json("pool", "start")
    for app in ids:
        assert lab.run("wait", app).returncode == 0
        lab.in_history(app)
    lab.settled()
    assert set(ids) <= set(lab.jobs_on_disk())


def test_waiting_jobs_outlive_pools(make_lab):
    lab = make_lab(site={"pool.memory": "256m"})
    first = Gated(lab, role={"memory": "200m"}).running()
    later = [Gated(lab, role={"memory": "200m"}) for _ in range(3)]
    for _ in range(3):
        pid = lab.json("pool", "start")["pid"]
        kill9(pid)
        ended(pid)
    assert [lab.state(j.app) for j in later] == ["WAITING"] * 3
    for job in (first, *later):
        job.running().release(0)
        job.over()
        job.started_once()
    lab.settled()


def test_the_idle_pool_killed(lab):
    pid = lab.json("pool", "start")["pid"]
    kill9(pid)
    ended(pid)
    assert lab.run("run", lab.workers("true")).returncode == 0
    lab.settled()


# ---- the master ----

def test_master_killed_twice_in_a_row(lab):
    job = Gated(lab, 3).running()
    first = job.kill("master")
    job.kill("master", other_than=first)
    wait_until(lambda: lab.status(job.app).get("epoch") == 3 and all(t["connected"] for t in lab.tasks(job.app).values()),
               "the third master has its executors back")
    assert all(t["state"] == "running" for t in lab.tasks(job.app).values())
    wait_until(lambda: re.search(r"master\.back +executors=3 ", (lab.dir(job.app) / "master.log").read_text()), "it says so")
    job.release(2, 0)
    job.release(1, 3)
    job.release(0, 0)
    assert job.over()["roles"][0]["failed"] == 1
    assert job.codes() == [0, 3, 0]
    job.started_once()
    lab.settled()


def test_master_killed_again_and_again(lab):
    """
    A killed master is not faulty, however often it happens. A master that dies by itself is given up (see
    below).
    """
    job = Gated(lab, 2).running()
    master = lab.one("master", job.app)
    for _ in range(7):
        kill9(master)
        master = lab.one("master", job.app, other_than=master)
    job.release_all()
    job.over()
    job.started_once()
    lab.settled()


def test_tasks_that_end_while_there_is_no_master(lab):
    """Tasks end while there is no master: it is stopped, so that it cannot receive the reports, and then killed."""
    job = Gated(lab, 4).running()
    master = lab.one("master", job.app)
    os.kill(master, signal.SIGSTOP)
    job.release_all()
    kill9(master)
    job.over("SUCCEEDED")
    assert job.codes() == [0, 0, 0, 0]
    job.started_once()
    lab.settled()


def test_a_task_ends_between_hello_and_welcome(lab):
    """
    The executor tells the next master in its hello that the task runs. The task ends before the master's
    answer.
    """
    for _ in range(4):
        job = Gated(lab).running()
        executor, old = lab.executor_of(job.pid(0)), lab.one("master", job.app)

        def n_sockets():
            found = 0
            for fd in os.listdir(f"/proc/{executor}/fd"):
                try:
                    found += os.readlink(f"/proc/{executor}/fd/{fd}").startswith("socket:")
                except FileNotFoundError:
                    pass  # closed meanwhile
            return found
        connected = n_sockets()
        kill9(old)
        new = lab.one("master", job.app, other_than=old)
        while n_sockets() < connected:  # stopped most of the time, so that it executes little before it is stopped again
            os.kill(new, signal.SIGCONT)
            os.kill(new, signal.SIGSTOP)
        job.release(0, 0)
        try:
            os.kill(new, signal.SIGCONT)
        except ProcessLookupError:
            pass  # they connected before the test looked: the master was never stopped, and the job is over
        job.over()
        job.started_once()
    lab.settled()


def test_the_first_cause_survives_the_master(lab):
    """Four tasks end while the master is stopped; then it is killed. The next master finds which one failed first."""
    job = Gated(lab, 4).running()
    master = lab.one("master", job.app)
    os.kill(master, signal.SIGSTOP)
    for i, code in ((2, 12), (1, 11), (3, 0), (0, 10)):
        job.release(i, code)
    kill9(master)
    doc = job.over("FAILED")
    assert (doc["cause"]["task"], doc["cause"]["exit_code"]) == ("worker:2", 12)
    assert job.codes() == [10, 11, 12, 0]
    lab.settled()


def test_master_killed_as_soon_as_it_is_there(lab):
    """The master is killed before its registration, during it, and while it launches containers. The job succeeds
    each time."""
    for n_kills in (1, 2, 2):
        job = Gated(lab, 3)
        last = None
        for _ in range(n_kills):
            last = job.kill("master", other_than=last)
        job.running()
        job.release_all()
        doc = job.over()
        assert doc["epoch"] >= n_kills
        job.started_once()
    lab.settled()


@pytest.mark.parametrize("order", [(2, 1, 3, 0), (0, 1, 2, 3), (3, 1, 2, 0), (1, 3, 0, 2)])
def test_the_first_cause_may_be_reported_late(lab, order):
    """A stopped master receives all failures at once, and still finds which was the first."""
    job = Gated(lab, 4).running()
    master = lab.one("master", job.app)
    os.kill(master, signal.SIGSTOP)
    for i in order:
        job.release(i, 10 + i)
    os.kill(master, signal.SIGCONT)
    doc = job.over("FAILED")
    assert (doc["cause"]["task"], doc["cause"]["exit_code"]) == (f"worker:{order[0]}", 10 + order[0])
    lab.settled()


@pytest.mark.parametrize("event, n", [("allocated", 1), ("registered", 1), ("registered", 3), ("attempt_started", 1)])
def test_master_killed_right_after_an_event(lab, event, n):
    """The master is killed as soon as the journal has the event. The next master carries out the missing actions,
    and none twice."""
    job = Gated(lab, 3)
    master = lab.one("master", job.app)
    wait_until(lambda: job.recorded(event) >= n, event, pause=0)
    kill9(master)
    job.running()
    job.release_all()
    job.over()
    job.started_once()
    lab.settled()


def test_master_killed_at_the_end(lab):
    """
    After the end of the last task the verdict is the same, whether it was recorded before the kill or after
    it.
    """
    for code, state in ((0, "SUCCEEDED"), (3, "FAILED")) * 2:
        job = Gated(lab, 2).running()
        master = lab.one("master", job.app)
        job.release(1, 0)
        job.release(0, code, wait=False)
        wait_until(lambda: job.recorded("attempt_ended") == 2, "the last end is in the journal", pause=0)
        kill9(master)
        job.over(state)
        assert job.codes() == [code, 0]
        job.started_once()
    lab.settled()


def test_followers_come_back_to_the_next_master(lab):
    job = Gated(lab, 2, owned=True).running()
    waiting = lab.start("wait", job.app)
    job.kill("master")
    job.kill("pool")
    job.release(1)
    job.release(0, 4)
    out, err = job.client.communicate(timeout=60)
    assert job.client.returncode == 1, err
    assert "exit code 4" in out
    assert waiting.wait(60) == 1
    waiting.communicate()
    job.over("FAILED")
    lab.settled()


def test_a_stop_that_the_master_had_accepted_goes_on(lab):
    job = Gated(lab, 2, before="trap '' TERM;", conf={"tony.task.kill-grace-ms": 10000}).running()
    lab.ok("kill", job.app, "--no-wait")
    wait_until(lambda: job.recorded("stop"), "the stop is in the journal")
    job.kill("master")
    doc = job.over("KILLED")
    assert doc["exit_code"] == 3
    lab.settled()


def test_a_master_that_always_dies_ends_the_job(make_lab):
    lab = make_lab(copy=True)
    script = lab.bin / "tony-master"
    script.unlink()
    script.write_text("#!/bin/sh\necho this master is broken >&2\nexit 1\n")
    script.chmod(0o755)
    r = lab.run("run", lab.workers("true"))
    assert r.returncode == 1, r.stderr
    app = lab.jobs_on_disk()[0]
    doc = lab.status(app)
    assert doc["state"] == "FAILED" and "master" in doc["message"], doc
    lab.settled()


# ---- the first master and the keeper's socket ----

def test_the_first_master_connects_before_its_keeper_runs(make_lab):
    """The pool makes the keeper's socket. So the first master connects at its first attempt, and does not try again and again."""
    lab = make_lab(copy=True)
    gate, real = lab.base / "keeper may run", lab.bin / "real"
    real.mkdir()
    (lab.bin / "tony-executor").rename(real / "tony-executor")
    script = lab.bin / "tony-executor"
    script.write_text(f"#!/bin/sh\nuntil [ -e '{gate}' ]; do sleep 0.02; done\nexec {real}/tony-executor \"$@\"\n")
    script.chmod(0o755)
    (real / "tony-master").symlink_to(lab.bin / "tony-master")  # the keeper looks beside itself
    app = lab.submit(lab.workers("true"))
    path = f"{(lab.home / 'pool/runtime').read_text().strip()}/{int(app.rsplit('_', 1)[1])}.k"

    def ends():
        """The sockets with this name: the one that listens, and that of each connection to it."""
        return sum(line.split()[-1] == path for line in pathlib.Path("/proc/net/unix").read_text().splitlines())
    wait_until(lambda: ends() == 2, "a connection of the master")
    assert "keeper." not in (lab.home / "jobs" / app / "keeper.log").read_text()
    gate.touch()
    assert lab.run("wait", app).returncode == 0
    lab.in_history(app)
    log = (lab.home / "history" / app / "keeper.log").read_text()
    assert log.count("keeper.master_") == 1 and "keeper.master_found" in log  # the keeper works with that master
    lab.settled()


# ---- the pool and the master ----

@pytest.mark.parametrize("pause", [0, 0.02])
def test_pool_and_master_killed(lab, pause):
    job = Gated(lab, 3).running()
    pool, master = lab.one("pool"), lab.one("master", job.app)
    kill9(pool)
    time.sleep(pause)  # no condition to wait for: two ways of dying
    kill9(master)
    job.release(1, 7)
    job.release(2, 0)
    job.release(0, 0)
    job.over()
    assert job.codes() == [0, 7, 0]
    job.started_once()
    lab.settled()


# ---- the keeper ----

DAEMON = "(setsid sh -c 'echo $$ >> daemons; exec sleep 100' &) ; (env -i setsid sh -c 'echo $$ >> daemons; exec sleep 100' &) ;"


def daemons(job):
    """The pids of daemons that each task's command left in other sessions."""
    def look():
        try:
            found = [int(x) for x in (job.dir / "daemons").read_text().split()]
        except FileNotFoundError:
            return None
        return found if len(found) == 2 * job.n else None
    return wait_until(look, "the daemons run")


@pytest.fixture(params=[{}, {"TONY_CGROUPS": "none"}], ids=["", "no-cgroups"])
def any_lab(request, make_lab):
    """A lab with control groups, if this machine has them, and one without."""
    return make_lab(**request.param)


def test_keeper_killed_ends_the_job(any_lab):
    lab = any_lab
    job = Gated(lab, 2, before=DAEMON).running()
    mine = daemons(job)
    tasks = [job.pid(i) for i in range(2)]
    executors = lab.pids("executor", job.app)
    master = lab.one("master", job.app)
    job.kill("keeper")
    for pid in (master, *executors, *tasks, *mine):
        ended(pid)
    doc = job.over("FAILED")
    assert doc["exit_code"] == 1
    assert "was lost: the keeper of the job (tony-keeper) has ended" in doc["message"], doc["message"]
    assert all(f["known"] == "keeper_lost" for f in doc["failures"]), doc["failures"]
    said = " ".join(lab.ok("why", job.app).split())
    assert "the process of tony that watched it was killed or has failed" in said and "dmesg | grep -i oom" in said, said
    assert "look at the node" not in said, "there is no other node"
    assert all(t["exit_code"] is None and t["reason"] != "exited" for t in doc["tasks"]), "how they ended is not known"
    job.started_once()
    r = lab.run("wait", job.app)
    assert r.returncode == 1
    lab.settled()


def test_pool_and_keeper_killed(any_lab):
    lab = any_lab
    job = Gated(lab, 2, before=DAEMON).running()
    mine = daemons(job)
    pool, keeper = lab.one("pool"), lab.one("keeper", job.app)
    kill9(keeper, pool)
    lab.json("pool", "start")
    job.over("FAILED")
    for pid in mine:
        ended(pid)
    job.started_once()
    lab.settled()


def test_pool_and_keeper_killed_then_wait(lab):
    """Without a pool no program writes the verdict. The next command starts a pool, which does."""
    job = Gated(lab, 1).running()
    pool, keeper = lab.one("pool"), lab.one("keeper", job.app)
    kill9(pool, keeper)
    ended(pool)
    ended(keeper)
    task = job.pid(0)
    ended(task, "the task dies with its keeper, also when there is no pool")
    assert lab.run("wait", job.app).returncode == 1
    job.over("FAILED")
    lab.settled()


def test_keeper_and_executors_killed(any_lab):
    """After the death of keeper and executors only the pool can find the background processes of the tasks. It
    kills them."""
    lab = any_lab
    job = Gated(lab, 2, before=DAEMON).running()
    other = Gated(lab, 1, before=DAEMON).running()
    mine, others = daemons(job), daemons(other)
    kill9(*lab.pids("executor", job.app), lab.one("keeper", job.app))
    job.over("FAILED")
    for pid in mine:
        ended(pid)
    assert all(alive(pid) for pid in others), "another job's"
    other.release(0)
    other.over()
    lab.settled()


def test_keeper_killed_when_a_task_had_ended(lab):
    """A result that the keeper had recorded before its death is kept."""
    job = Gated(lab, 2).running()
    job.release(1)
    wait_until(lambda: lab.tasks(job.app)["worker:1"]["result"] == "SUCCEEDED", "one task has ended")
    job.kill("keeper")
    doc = job.over("FAILED")
    tasks = {t["task"]: t for t in doc["tasks"]}
    assert (tasks["worker:1"]["result"], tasks["worker:1"]["exit_code"]) == ("SUCCEEDED", 0)
    assert tasks["worker:0"]["exit_code"] is None
    assert doc["cause"]["task"] == "worker:0"
    lab.settled()


def test_a_job_that_runs_again_says_that_its_keeper_was_killed(lab):
    job = Gated(lab, 1, conf={"tony.task.restarts.node-lost": 3}).running()
    job.kill("keeper")
    wait_until(lambda: len(job.starts(0)) == 2, "the task was started again")
    text = " ".join(lab.ok("why", job.app).split())
    assert re.search(r"worker:0 attempt 1 at \S+ m?s: keeper lost; restarted", text), text
    assert "dmesg | grep -i oom" in text and "look at the node" not in text, text
    job.release_all()
    job.over()
    lab.settled()


def test_keeper_killed_as_soon_as_it_is_there(lab):
    """However early the keeper is killed, the job ends by itself, whether or not its tasks have run."""
    for i in range(3):
        gate = lab.base / f"gate{i}"
        app = lab.submit(lab.workers(f"until [ -e {gate} ]; do sleep 0.02; done"))
        kill9(lab.one("keeper", app))
        gate.touch()
        code = lab.run("wait", app).returncode
        lab.in_history(app)
        assert code == {"SUCCEEDED": 0, "FAILED": 1}[lab.state(app)]
    lab.settled()


def test_a_killed_keeper_does_not_disturb_another_job(lab):
    job, other = Gated(lab, 1).running(), Gated(lab, 1).running()
    job.kill("keeper")
    job.over("FAILED")
    assert alive(other.pid(0))
    other.release(0)
    other.over()
    other.started_once()
    lab.settled()


# ---- executors ----

def test_executor_killed(any_lab):
    """All processes of the container are killed, also those in other sessions. The message names the task."""
    lab = any_lab
    job = Gated(lab, 2, before=DAEMON, conf={**QUICK, "tony.application.fail-on-worker-failure-enabled": True}).running()
    mine = daemons(job)
    task = job.pid(1)
    kill9(lab.executor_of(task))
    ended(task)
    doc = job.over("FAILED")
    for pid in mine:
        ended(pid)
    assert doc["cause"]["task"] == "worker:1", doc
    assert doc["cause"]["exit_code"] is None and "executor" in str(doc["cause"]["detail"]), doc["cause"]
    assert {t["task"]: t["result"] for t in doc["tasks"]}["worker:0"] == "FINISHED"
    job.started_once()
    lab.settled()


def test_tasks_that_never_began_have_no_exit_code(make_points_lab):
    """
    The job failed before the gang was complete: the other tasks are released, and none of their commands ran.
    """
    lab = make_points_lab()
    lab.arm("keeper", 10, "stop", "call fork")  # so the gang is not complete when an executor is killed
    app = lab.submit(lab.workers("true", n=400, role={"memory": "4m", "vcores": 0},
                                 conf={"tony.application.fail-on-worker-failure-enabled": True,
                                       "tony.task.restarts.node-lost": 0}))
    wait_until(lambda: lab.struck("keeper"), "some executors were started")
    kill9(wait_until(lambda: lab.pids("executor", app), "an executor")[0])
    os.kill(lab.one("keeper", app), signal.SIGCONT)
    lab.in_history(app)
    doc = lab.status(app)
    exits = [json.loads(line) for line in (lab.dir(app) / "exits").read_text().splitlines()]
    lost = {f"worker:{x['slot']}" for x in exits if "killed by signal 9" in x.get("detail", "")}
    assert doc["cause"]["task"] in lost and len(lost) <= 16, "those of one process"
    for t in doc["tasks"]:
        assert t["attempt"] or t["exit_code"] is None, t
        assert t["result"] in ("SUCCEEDED", "FINISHED") or t["task"] in lost, t
    lab.settled()


def test_executor_and_task_killed_at_once(lab):
    job = Gated(lab, 2).running()
    task = job.pid(0)
    kill9(lab.executor_of(task), task)
    doc = job.over("FAILED")
    assert doc["cause"]["task"] == "worker:0"
    lab.settled()


def test_all_executors_and_the_master_killed(lab):
    job = Gated(lab, 3).running()
    tasks = [job.pid(i) for i in range(3)]
    kill9(lab.one("master", job.app), *lab.pids("executor", job.app))
    for pid in tasks:
        ended(pid)
    doc = job.over("FAILED")
    assert doc["cause"]["task"] in ("worker:0", "worker:1", "worker:2")
    job.started_once()
    lab.settled()


@pytest.mark.takes(8)
def test_an_executor_that_hangs_is_given_up(lab):
    """The executor is stopped by SIGSTOP. It misses its heartbeats, so it counts as dead, and its task is killed.
    (A busy machine does not delay an executor for that long.)"""
    job = Gated(lab, 2, conf={"tony.task.heartbeat-interval-ms": 100, "tony.task.max-missed-heartbeats": 60,
                              "tony.task.kill-grace-ms": 100,
                              "tony.application.fail-on-worker-failure-enabled": True}).running()
    task = job.pid(0)
    os.kill(lab.executor_of(task), signal.SIGSTOP)
    doc = job.over("FAILED")
    ended(task)
    assert doc["cause"]["task"] == "worker:0", doc
    lab.settled()


# ---- clients ----

@pytest.mark.parametrize("also", [(), ("pool",), ("master",), ("pool", "master")])
def test_owner_killed(lab, also):
    """
    The job of a dead `tony run` is stopped after tony.client.away-limit, whichever other process dies, too.
    """
    job = Gated(lab, owned=True, conf={**QUICK, "tony.client.away-limit": 300}).running()
    victims = [lab.one(kind, None if kind == "pool" else job.app) for kind in also]
    job.client.kill()
    job.client.communicate()
    kill9(*victims)  # On a busy machine the limit may be over by now, and the master may have ended.
    doc = job.over("KILLED")
    assert "client" in doc["message"], doc
    lab.settled()


def test_owner_killed_without_an_away_limit(lab):
    job = Gated(lab, owned=True, conf={"tony.client.away-limit": -1}).running()
    job.client.kill()
    job.client.communicate()
    job.kill("master")
    job.release(0)
    job.over("SUCCEEDED")
    lab.settled()


def test_owner_killed_while_its_job_waits(make_lab):
    lab = make_lab(site={"pool.memory": "256m"})
    first = Gated(lab, role={"memory": "200m"}).running()
    p = lab.start("run", lab.workers("true", role={"memory": "200m"}, conf={"tony.client.away-limit": 200}))
    app = wait_until(lambda: next((j["application_id"] for j in lab.json("list")["jobs"] if j["application_id"] != first.app), None),
                     "the second job is there")
    p.kill()
    p.communicate()
    lab.await_state(app, "KILLED")
    first.release(0)
    first.over()
    lab.settled()


def test_the_pool_killed_while_an_owned_job_waits(make_lab):
    """When the pool dies, the client of the waiting job starts another pool and stays the job's owner."""
    lab = make_lab(site={"pool.memory": "256m"})
    first = Gated(lab, role={"memory": "200m"}).running()
    p = lab.start("run", lab.workers("true", role={"memory": "200m"}))
    wait_until(lambda: len(lab.json("list")["jobs"]) == 2, "the second job is there")
    first.kill("pool")
    wait_until(lambda: lab.json("pool", "status").get("running"), "another pool")
    first.release(0)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0, err
    lab.settled()


# ---- at the very end ----

@pytest.mark.parametrize("others", [(), ("pool",)], ids=["keeper", "keeper-and-pool"])
def test_keeper_killed_while_it_removes_directories(make_points_lab, others):
    """
    The job is in the history, so it is over. Another process removes what its keeper had not removed yet.
    """
    lab = make_points_lab()
    lab.arm("keeper", 1, "stop", "call unlinkat left-by-the-task")
    # the gate is in another directory: $OLDPWD is the container's directory
    job = Gated(lab, before='touch "$OLDPWD/left-by-the-task";').running()
    keeper, pools = lab.one("keeper", job.app), [lab.one(kind) for kind in others]
    job.release(0, wait=False)
    wait_until(lambda: lab.struck("keeper"), "it is about to remove the file")
    assert list((lab.home / "history").glob(job.app)) and any((lab.home / "pool" / "ended").iterdir())
    kill9(keeper, *pools)
    lab.json("pool", "start")
    lab.settled()
    assert job.over("SUCCEEDED")["epoch"] == 1, "nobody was asked again how it ended"


@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL], ids=["goes-on", "dies"])
def test_the_master_hangs_when_the_job_is_over(make_points_lab, end):
    """The keeper moves the job to the history when the master has reported the end, before the master exits."""
    lab = make_points_lab()
    lab.arm("master", 2, "stop", "call unlink *.m")  # the first is before it listens
    job = Gated(lab).running()
    master = lab.one("master", job.app)
    job.release(0, wait=False)
    wait_until(lambda: lab.struck("master"), "the master is about to remove its socket")
    wait_until((lab.home / "history" / job.app).is_dir, "the job is in the history")
    assert alive(master)
    os.kill(master, end)
    assert job.over("SUCCEEDED")["epoch"] == 1
    lab.settled()


def test_a_keeper_that_only_waits_for_its_master_starts_no_pool(make_points_lab):
    """The pool may be stopped when the job is over, and stays stopped."""
    lab = make_points_lab()
    lab.arm("master", 2, "stop", "call unlink *.m")  # the first is before it listens
    job = Gated(lab).running()
    keeper, master = lab.one("keeper", job.app), lab.one("master", job.app)
    job.release(0, wait=False)
    wait_until(lambda: lab.struck("master"), "the master is about to remove its socket")
    wait_until((lab.home / "history" / job.app).is_dir, "the job is in the history")
    assert alive(keeper) and alive(master)
    lab.ok("pool", "stop")
    kill9(master)
    ended(keeper)
    assert lab.pids("pool") == []
    lab.settled()


@pytest.mark.parametrize("command", ["wait", "status", "list", "kill", "run"])
def test_pool_and_keeper_killed_after_the_verdict(lab, command):
    """No process is left to move the job into the history: the next command has it done."""
    job = Gated(lab).running()
    keeper, pool = lab.one("keeper", job.app), lab.one("pool")
    os.kill(keeper, signal.SIGSTOP)
    job.release(0, wait=False)
    assert lab.run("wait", job.app).returncode == 0
    assert (lab.home / "jobs" / job.app).is_dir()
    kill9(pool, keeper)
    ended(pool)
    ended(keeper)  # a process that is still dying holds its lock
    args = {"list": [], "run": [lab.workers("true")]}.get(command, [job.app])
    lab.ok(command, *args)
    job.over("SUCCEEDED")
    job.started_once()
    lab.settled()


@pytest.mark.parametrize("command", ["status", "list"])
def test_pool_and_keeper_killed_then_a_command(lab, command):
    job = Gated(lab).running()
    pool, keeper = lab.one("pool"), lab.one("keeper", job.app)
    kill9(pool, keeper)
    ended(pool)
    ended(keeper)
    lab.ok(command, *([job.app] if command == "status" else []))
    job.over("FAILED")
    lab.settled()


# Plays a child of the pool before its execve(): it still has the pool's lock and its socket. Its parent, the pool, is
# dead.
FORK = """
import fcntl, os, socket, sys
lock = open(sys.argv[1], "a")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
os.path.exists(sys.argv[2]) and os.unlink(sys.argv[2])
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[2])
listener.listen()
if os.fork() == 0:
    os.open(sys.argv[3], os.O_RDONLY)  # until the test opens it, too
"""


@pytest.mark.parametrize("command", ["status", "list", "submit"])
def test_a_fork_of_the_killed_pool_is_still_dying(lab, command):
    """The kernel accepts connections on its socket, but no pool answers. So the command starts another pool, which
    waits until the lock is free."""
    job = Gated(lab).running()
    pool, keeper = lab.one("pool"), lab.one("keeper", job.app)
    socket = next((lab.base / "run/tony").glob("*/pool.sock"))
    os.kill(keeper, signal.SIGSTOP)  # stopped, because the keeper would start a pool otherwise
    kill9(pool)
    ended(pool)
    os.mkfifo(lab.base / "ends")
    subprocess.run([sys.executable, "-c", FORK, lab.home / "pool/locks/pool", socket, lab.base / "ends"], check=True, timeout=60,
                   env=lab.env)
    kill9(keeper)
    ended(keeper)
    client = lab.start(command, *({"status": [job.app], "list": [], "submit": [lab.workers("true")]}[command]))
    new = wait_until(lambda: lab.pids("pool"), "a pool starts")
    os.close(os.open(lab.base / "ends", os.O_WRONLY))
    assert client.wait(timeout=60) == 0
    assert lab.json("pool", "start")["pid"] in new
    job.over("FAILED")
    lab.settled()


@pytest.mark.parametrize("command", ["status", "list", "wait"])
def test_pool_killed_while_a_job_waits_then_a_command(make_lab, command):
    """Waiting jobs have no process: the next command starts the pool, which starts them."""
    lab = make_lab(site={"pool.memory": "256m"})
    first = Gated(lab, role={"memory": "200m"}).running()
    later = lab.submit(lab.workers("true", role={"memory": "200m"}))
    pool, keeper, master = lab.one("pool"), lab.one("keeper", first.app), lab.one("master", first.app)
    os.kill(keeper, signal.SIGSTOP)  # otherwise the keeper would start a pool
    kill9(pool)
    ended(pool)
    kill9(keeper, master)
    lab.ok(command, *([later] if command != "list" else []))
    lab.in_history(later)
    assert lab.state(later) == "SUCCEEDED"
    first.over("FAILED")
    lab.settled()


def test_stray_runtime_files_are_removed(lab):
    """Files of an old job's keeper are removed; other files stay."""
    assert lab.run("run", lab.workers("true")).returncode == 0
    lab.quiet()
    kill9(lab.one("pool"))
    runtime = next((lab.base / "run" / "tony").iterdir())
    for path in (runtime / "1.k", runtime / "1.m", lab.home / "pool/locks/1", lab.home / "pool/locks/7"):
        path.touch()
    (runtime / "notes").touch()
    lab.json("pool", "start")
    assert lab.runtime_files() == ["notes"]
    (runtime / "notes").unlink()
    lab.settled()
