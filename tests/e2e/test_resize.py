# SPDX-License-Identifier: Apache-2.0
"""tony resize: requests, refusals, and the effect on the tasks."""

import json
import re
import signal

import pytest
from conftest import wait_until
from lib_jobs import kill9, make_lab  # noqa: F401 (fixture)

WAIT = "while :; do sleep 600; done"


def saves(path):
    """A command that saves a checkpoint when it gets SIGTERM. Saving ends when the test removes the file."""
    return f"trap 'while [ -e {path} ]; do sleep 0.02; done; exit 0' TERM; echo ready; while :; do sleep 0.05; done"


def all_ready(tony, app, n):
    """The tasks listen for the signal."""
    wait_until(lambda: all(tony.log_so_far(app, f"worker:{i}") for i in range(n)), f"{n} tasks of {app} are ready", pause=0.03)


def running(tony, app, n):
    wait_until(lambda: sum(r["running"] for r in tony.status(app)["roles"]) == n, f"{n} tasks of {app} run", pause=0.03)


@pytest.fixture
def job(tony):
    """Submits a job with this many workers, waits until they run, and kills it at the end."""
    made = []

    def make(n, command=WAIT, role=None, **top):
        app = tony.submit(tony.workers(command, n=n, role=role, **top))
        made.append(app)
        running(tony, app, n)
        return app

    yield make
    for app in made:
        tony.run("kill", app)


# ---- errors that the client finds itself ----


@pytest.mark.parametrize("words, sentence, hint", [
    ([], "needs a role and its new number of tasks: ROLE=N", "worker=8"),
    (["worker"], "'worker' is not ROLE=N", "worker=8"),
    (["=3"], "'=3' is not ROLE=N", ""),
    (["worker="], "the number of tasks of role 'worker'", ""),
    (["worker=two"], "must be a whole number", ""),
    (["worker=0"], "must be at least 1", ""),
    (["worker=-1"], "must be at least 1", ""),
    (["worker=100001"], "must be at most 100000", ""),
    (["worker=99999999999999999999"], "between", ""),
    (["worker=3", "worker=3"], "role 'worker' is given twice", ""),
    (["wroker=3"], "has no role 'wroker'", "did you mean 'worker'?"),
    (["worker=3", "zzz=3"], "has no role 'zzz'", "tony status"),
    (["worker=2"], "has worker 2 already; nothing would change", ""),
    (["worker=3", "--timeout", "10"], "--timeout must be a time", "10m"),
    (["worker=3", "--timeout", "0s"], "--timeout must be between 1 ms and 11 days, not '0s'", ""),
    (["worker=3", "--timeout", "20d"], "--timeout must be between 1 ms and 11 days, not '20d'", ""),
])
def test_misuse(tony, job, words, sentence, hint):
    app = job(2)
    r = tony.run("resize", app, *words)
    assert r.returncode == 2 and r.stdout == "", r.stdout
    assert sentence in r.stderr and hint in r.stderr, r.stderr
    assert "resize" not in tony.status(app) and "last_resize" not in tony.status(app)


def test_an_ended_job_cannot_be_resized(tony):
    app = tony.submit(tony.workers("true"))
    tony.await_state(app, "SUCCEEDED")
    r = tony.run("resize", app, "worker=2")
    assert r.returncode == 1 and "is over: SUCCEEDED" in r.stderr, r.stderr


def test_a_job_that_is_not_there(tony):
    assert tony.run("resize", "application_1700000000000_0099", "worker=2").returncode == 2


# ---- refusals by the job's master ----


@pytest.mark.parametrize("role, words, sentence", [
    ({"resize": "never"}, ["worker=1"], "tony.worker.resize is 'never'"),
    ({"min-instances": 2}, ["worker=1"], "tony.worker.min-instances"),
    ({"max-instances": 3}, ["worker=4"], "tony.worker.max-instances"),
])
def test_wrong_requests_are_refused(tony, job, role, words, sentence):
    app = job(3, role=role)
    r = tony.run("resize", app, *words)
    assert r.returncode == 1 and sentence in r.stderr, r.stderr
    doc = tony.status(app)
    assert doc["roles"][0]["running"] == 3 and "resize" not in doc


def test_a_job_without_roles(tony):
    app = tony.submit(tony.job_file(command=WAIT))
    tony.await_state(app, "RUNNING")
    r = tony.run("resize", app, "driver=2")
    assert r.returncode == 1 and "one task" in r.stderr, r.stderr
    tony.ok("kill", app)


# ---- live ----

SEES = """python3 -uc '
import json, os, time
last = None
while True:
    n = len(json.load(open(os.environ["TONY_SPEC_FILE"]))["worker"])
    if n != last:
        print(n)
    last = n
    time.sleep(0.01)'"""


def test_live(tony, job):
    """The other tasks run on, and find the new number of tasks in TONY_SPEC_FILE. The resize uses up no retries."""
    app = job(3, SEES)
    wait_until(lambda: tony.log_so_far(app, "worker:0").split() == ["3"], "it sees three")
    pid = tony.tasks(app)["worker:0"]["pid"]
    out = tony.ok("resize", app, "worker=1", "--wait", "--reason", "room for others")
    assert "worker 3 to 1" in out
    wait_until(lambda: tony.log_so_far(app, "worker:0").split() == ["3", "1"], "it sees one")
    assert tony.tasks(app)["worker:0"]["pid"] == pid
    doc = json.loads(tony.ok("resize", app, "worker=2", "--wait", "--json", "--timeout", "10m"))
    assert doc["application_id"] == app and doc["resizes"] == 2
    assert doc["last_resize"]["outcome"] == "done"
    assert doc["last_resize"]["roles"] == [{"name": "worker", "from": 1, "to": 2}]
    running(tony, app, 2)
    wait_until(lambda: tony.log_so_far(app, "worker:0").split() == ["3", "1", "2"], "it sees two")
    doc = tony.status(app)
    assert doc["restarts"] == 0 and doc["roles"][0]["instances"] == 2
    assert "resizes   2; the last: worker 1 to 2: done" in tony.ok("status", app)


def test_wait_lasts_until_the_leaving_tasks_are_gone(tony, job, tmp_path):
    """
    The leaving tasks first save a checkpoint, which takes until the file is removed. The status shows them.
    """
    saving = tmp_path / "saving"
    saving.touch()
    app = job(3, saves(saving), role={"resize": "live"}, conf={"tony.task.checkpoint-grace": 600000})
    all_ready(tony, app, 3)
    waiter = tony.start("resize", app, "worker=1", "--wait")
    assert "worker 3 to 1: waits for 2 leaving tasks to end" in waiter.stderr.readline()
    role = tony.status(app)["roles"][0]
    assert (role["instances"], role["running"], role["leaving"]) == (1, 1, 2)
    assert {name: t["state"] for name, t in tony.tasks(app).items()} == {
        "worker:0": "running", "worker:1": "leaving", "worker:2": "leaving"}
    assert "1 running, 2 leaving" in tony.ok("status", app)
    assert waiter.poll() is None
    saving.unlink()
    out, err = waiter.communicate(timeout=60)
    assert waiter.returncode == 0 and out.endswith("was resized: worker 3 to 1\n"), (out, err)
    assert "leaving" not in tony.status(app)["roles"][0] and list(tony.tasks(app)) == ["worker:0"]


def test_without_wait_the_leaving_tasks_are_named(tony, job, tmp_path):
    saving = tmp_path / "saving"
    saving.touch()
    app = job(2, saves(saving), role={"resize": "live"}, conf={"tony.task.checkpoint-grace": 600000})
    all_ready(tony, app, 2)
    assert "worker 2 to 1; 1 task is still leaving" in tony.ok("resize", app, "worker=1")
    saving.unlink()
    wait_until(lambda: "leaving" not in tony.status(app)["roles"][0], "it has left")


# ---- restart ----


def test_restart(tony, job):
    """All tasks get the stop signal, and restart with the new number of tasks in their environment."""
    app = job(3, "trap 'exit 0' TERM; echo $TASK_NUM $TONY_GENERATION; while :; do sleep 0.05; done",
              role={"resize": "restart"})
    for i in range(3):
        wait_until(lambda i=i: tony.log_so_far(app, f"worker:{i}") == "3 1\n", f"worker:{i} runs")
    out = tony.ok("resize", app, "worker=2", "--wait")
    assert "was resized: worker 3 to 2" in out
    running(tony, app, 2)
    assert sorted(tony.tasks(app)) == ["worker:0", "worker:1"]
    for task in ("worker:0", "worker:1"):
        wait_until(lambda t=task: tony.log_so_far(app, t, attempt=2) == "2 2\n", f"{task} runs again")
    doc = tony.status(app)
    assert doc["generation"] == 2 and doc["restarts"] == 0


def test_run_prints_the_steps_of_a_resize(tony, tmp_path):
    """
    One line when the job begins to stop the tasks, and one when the resize is complete. The tasks save until
    the file is gone, so no state is missed.
    """
    saving = tmp_path / "saving"
    saving.touch()
    follower = tony.start("run", tony.workers(saves(saving), n=2, role={"resize": "restart"}))
    app = re.search(r"application_\d+_\d+", follower.stderr.readline()).group()
    running(tony, app, 2)
    all_ready(tony, app, 2)
    tony.ok("resize", app, "worker=1")
    lines = []
    while "resize: " not in (lines or [""])[-1]:
        lines.append(follower.stderr.readline())
        assert lines[-1], lines
    assert lines[-1].endswith("resize: worker 2 to 1: the tasks stop, and start again with the new size\n")
    saving.unlink()
    wait_until(lambda: tony.status(app).get("resizes") == 1, "it is done")
    running(tony, app, 1)
    tony.ok("kill", app)
    _, err = follower.communicate(timeout=60)
    assert "resize: worker 2 to 1: done" in err, err


# ---- a resize that can never happen ----

POOL = "the job needs {} MB of memory ({} MiB) for its new size, the pool has 200 MB (200 MiB)"


def test_more_than_the_pool_has(make_lab):
    lab = make_lab(site={"pool.memory": "200m"})
    app = lab.submit(lab.workers(WAIT, role={"resize": "live"}))
    running(lab, app, 1)
    r = lab.run("resize", app, "worker=4", "--wait")
    assert r.returncode == 1 and "worker 1 to 4: given up: " in r.stderr and POOL.format(256, 256) in r.stderr, r.stderr
    assert lab.status(app)["roles"][0]["instances"] == 1
    lab.ok("kill", app)


def test_more_than_the_pool_has_for_a_later_stage(make_lab):
    """
    The containers are requested when the stage begins. The pool refuses the new size at once, and the role
    keeps the old one.
    """
    lab = make_lab(site={"pool.memory": "200m"})
    go = lab.base / "go"
    app = lab.submit(lab.job_file({
        "prep": {"instances": 1, "command": f"until [ -e {go} ]; do sleep 0.02; done"},
        "train": {"instances": 1, "command": "true", "depends-on": "prep:succeeded"}}))
    wait_until(lambda: lab.status(app)["roles"][0]["running"] == 1, "prep runs")
    lab.ok("resize", app, "train=2", "--wait")
    assert lab.status(app)["last_resize"]["outcome"] == "done"
    lab.run("resize", app, "train=5")  # the resize counts as complete until the pool has answered
    wait_until(lambda: lab.status(app)["last_resize"]["outcome"] == "refused", "it is refused")
    r = lab.run("resize", app, "train=4", "--wait")
    detail = "role 'train' cannot have 4 tasks: " + POOL.format(256, 256)
    assert r.returncode == 1 and "was not resized: train 2 to 4: given up: " + detail in r.stderr, r.stdout + r.stderr
    last = lab.status(app)["last_resize"]
    assert last["detail"] == detail and last["roles"] == [{"name": "train", "from": 2, "to": 4}]
    r = lab.run("resize", app, "train=4", "--wait", "--json")
    assert r.returncode == 1 and json.loads(r.stdout)["last_resize"]["outcome"] == "refused", r.stdout + r.stderr
    doc = lab.status(app)
    assert doc["state"] == "RUNNING" and doc["resizes"] == 1 and [r["instances"] for r in doc["roles"]] == [1, 2]
    assert "cannot have 4 tasks" in lab.ok("status", app)
    first = lab.one("master", app)  # the next master reads the same state
    kill9(first)
    lab.one("master", app, other_than=first)
    wait_until(lambda: lab.status(app)["epoch"] == 2, "the next master answers")
    assert lab.status(app)["last_resize"]["outcome"] == "refused"
    go.touch()
    lab.await_state(app, "SUCCEEDED")
    assert sorted(lab.tasks(app)) == ["prep:0", "train:0", "train:1"]


# ---- a resize that must wait ----


def test_the_reason_is_shown(tony, job):
    """`tony status` and `tony why` show the text of --reason."""
    app = job(2, role={"resize": "live"})
    tony.ok("resize", app, "worker=1", "--wait", "--reason", "the queue is full")
    assert tony.status(app)["last_resize"]["why"] == "the queue is full"
    assert "the queue is full" in tony.ok("status", app)


def test_ctrl_c_leaves_the_resize_on(tony, job, tmp_path):
    """The tasks take time to save: the resize is active until the file is gone."""
    saving = tmp_path / "saving"
    saving.touch()
    app = job(2, saves(saving), role={"resize": "restart"}, conf={"tony.task.checkpoint-grace": 600000})
    all_ready(tony, app, 2)
    waiter = tony.start("resize", app, "worker=1", "--wait")
    assert "worker 2 to 1: the tasks stop" in waiter.stderr.readline()
    assert "  resize    worker 2 to 1: " in tony.ok("status", app)
    assert "worker 2 to 1" in tony.ok("why", app)
    waiter.send_signal(signal.SIGINT)
    out, err = waiter.communicate(timeout=60)
    assert "goes on" in err, (out, err)
    assert tony.status(app)["resize"]["roles"] == [{"name": "worker", "from": 2, "to": 1, "registered": 0}]
    r = tony.run("resize", app, "worker=3")  # a resize that stops the gang is completed first
    assert r.returncode == 1 and "ask again" in r.stderr, r.stderr
    saving.unlink()
    wait_until(lambda: tony.status(app).get("resizes") == 1, "it is done")


def test_kill_does_not_wait_for_a_resize(tony, job):
    """
    The tasks may take ten minutes to save a checkpoint, and do. They end at the first SIGTERM, which only
    `tony kill` sends.
    """
    app = job(2, "trap : USR1; echo ready; while :; do sleep 0.05; done", role={"resize": "restart"},
              conf={"tony.task.checkpoint-grace": 600000, "tony.task.checkpoint-signal": "USR1", "tony.task.kill-grace-ms": 600000})
    all_ready(tony, app, 2)
    tony.ok("resize", app, "worker=1")
    wait_until(lambda: tony.status(app).get("resize"), "the tasks are told to stop")
    tony.ok("kill", app)
    assert tony.status(app)["state"] == "KILLED"


def test_the_master_dies_during_a_resize(make_lab):
    """The next master continues the resize, and clients that wait for it are told of its end."""
    lab = make_lab()
    saving = lab.base / "saving"
    saving.touch()
    app = lab.submit(lab.workers(saves(saving), n=2, role={"resize": "restart"}, conf={"tony.task.checkpoint-grace": 600000}))
    running(lab, app, 2)
    all_ready(lab, app, 2)
    waiter = lab.start("resize", app, "worker=1", "--wait")
    assert "worker 2 to 1: the tasks stop" in waiter.stderr.readline()
    first = lab.one("master", app)
    kill9(first)
    lab.one("master", app, other_than=first)
    saving.unlink()
    out, err = waiter.communicate(timeout=60)
    assert waiter.returncode == 0 and "was resized: worker 2 to 1" in out, out + err
    running(lab, app, 1)
    assert lab.status(app)["epoch"] == 2
    lab.ok("kill", app)
    lab.settled()


def test_a_task_that_had_ended_restarts_with_its_gang(make_lab):
    """
    A new master tells its keeper what the job holds. The container of an ended task is no longer part of
    that. Then the gang restarts.
    """
    lab = make_lab()
    script = f"cd {lab.base}; echo >> began$TASK_INDEX; until [ -s end$TASK_INDEX.$TONY_ATTEMPT ]; do sleep 0.02; done; exit $(cat end$TASK_INDEX.*)"
    role = {"resize": "restart", "restart": "on-failure", "restart-scope": "job", "max-restarts": 1}
    app = lab.submit(lab.workers(script, n=2, role=role))
    running(lab, app, 2)
    lab.ok("resize", app, "worker=3", "--wait")
    running(lab, app, 3)
    (lab.base / "end1.2").write_text("0")
    wait_until(lambda: lab.tasks(app)["worker:1"]["state"] == "ended", "worker:1 has ended")
    first = lab.one("master", app)
    kill9(first)
    lab.one("master", app, other_than=first)
    running(lab, app, 2)
    (lab.base / "end0.2").write_text("1")
    running(lab, app, 3)
    assert lab.status(app)["generation"] == 3
    lab.ok("kill", app)
    lab.settled()


def test_a_resize_that_times_out(tony, job):
    """The containers are never granted: the job keeps its size, and each client is told why."""
    app = job(2, role={"memory": "64m", "resize": "restart"}, conf={"tony.resize.timeout": 200})
    r = tony.run("resize", app, "worker=100000", "--wait", "--timeout", "300ms")
    assert r.returncode == 1 and "was not resized: worker 2 to 100000: given up" in r.stderr, r.stderr
    doc = tony.status(app)
    assert doc["roles"][0]["running"] == 2 and doc["last_resize"]["outcome"] in ("timed_out", "refused")
    assert "worker 2 to 100000: given up" in tony.ok("why", app)
    assert "resizes   0; the last: worker 2 to 100000: given up" in tony.ok("status", app)
