# SPDX-License-Identifier: Apache-2.0
"""
tony resize on YARN works as on the pool; the client asks the job's master over TLS. Masters die during the
resize.
"""

import json
import re
import time

import pytest
from lib_cluster import wait_until
from lib_kills import await_reported
from lib_resize_job import PointsJob
from lib_tony import ROOT
from test_second_master import kill_master

WAIT = "while :; do sleep 600; done"


def n_running(tony, app):
    return sum(r["running"] for r in tony.status(app).get("roles", []))


def test_resize(tony, cluster):
    app = tony.submit(tony.workers(WAIT, n=3))
    wait_until(lambda: n_running(tony, app) == 3, "three run")
    for words, code, sentence in ((["wroker=2"], 2, "did you mean 'worker'?"), (["worker=3"], 2, "nothing would change"),
                                  (["worker=0"], 2, "at least 1")):
        r = tony.run("resize", app, *words)
        assert r.returncode == code and sentence in r.stderr, r.stderr
    out = tony.ok("resize", app, "worker=1", "--wait", "--reason", "room for others")
    assert "was resized: worker 3 to 1" in out, out
    wait_until(lambda: n_running(tony, app) == 1, "one runs")
    doc = json.loads(tony.ok("resize", app, "worker=2", "--wait", "--json"))
    assert doc["application_id"] == app and doc["resizes"] == 2 and doc["last_resize"]["outcome"] == "done"
    wait_until(lambda: n_running(tony, app) == 2, "two run")
    doc = tony.status(app)
    assert doc["restarts"] == 0 and doc["roles"][0]["instances"] == 2
    tony.ok("kill", app)
    r = tony.run("resize", app, "worker=1")
    assert r.returncode == 1 and "is over" in r.stderr, r.stderr


# ---- a job that waits in its queue ----

BIG = {"tony.am.memory": "8g"}  # a master that needs a whole node, of which the cluster has two


@pytest.fixture
def full(tony):
    """Runs a job that fills the cluster, so the next job waits for its master. Returns a function that ends it."""
    apps = [tony.submit(tony.workers(WAIT, role={"memory": "8g"}, conf=BIG))]
    wait_until(lambda: n_running(tony, apps[0]) == 1, "the task that fills the other node")

    def end():
        while apps:
            tony.ok("kill", apps.pop())

    yield end
    end()


def sizes(tony, app):
    return {r["name"]: r["instances"] for r in tony.status(app).get("roles", [])}


def resizes_in(tony, cluster, app):
    """The events `resize` in the journal of a finished job."""
    path = f"/user/root/.tony/history/{app}/journal"
    wait_until(lambda: cluster.exists(path), "the journal in the history")  # the client hears of the end before that
    return [line for line in cluster.read(path).splitlines() if '"e":"resize"' in line]


def test_a_queued_job_is_resized(tony, cluster, full, base):
    """The master takes the last request before it asks for containers, as if a client had asked it."""
    role = {"min-instances": 2, "max-instances": 5}
    app = tony.submit(tony.workers(f"while [ ! -e {base}/go ]; do sleep 0.1; done", n=2, role=role, conf=BIG))
    assert sizes(tony, app) == {"worker": 2}
    for words, code, sentence in ((["wroker=3"], 2, "did you mean 'worker'?"), (["worker=2"], 2, "nothing would change"),
                                  (["worker=6"], 1, "max-instances"), (["worker=1"], 1, "min-instances")):
        r = tony.run("resize", app, *words)
        assert r.returncode == code and sentence in r.stderr, r.stderr
    assert sizes(tony, app) == {"worker": 2}
    out = tony.ok("resize", app, "worker=5", "--wait", "--timeout", "1s")
    assert f"job {app} asks for the new size" in out, out
    assert sizes(tony, app) == {"worker": 5}
    doc = json.loads(tony.ok("resize", app, "worker=3", "--json", "--reason", "less will do"))
    assert doc == {"application_id": app, "resized": True}
    doc = tony.status(app)
    assert doc["state"] == "WAITING" and sizes(tony, app) == {"worker": 3}
    assert "worker" in tony.ok("status", app)
    full()
    wait_until(lambda: n_running(tony, app) == 3, "three run")
    doc = tony.status(app)
    assert doc["last_resize"]["outcome"] == "done" and doc["last_resize"]["why"] == "less will do", doc["last_resize"]
    assert doc["last_resize"]["roles"] == [{"name": "worker", "from": 2, "to": 3}] and doc["resizes"] == 1
    assert re.fullmatch(r"root@\S+ pid \d+", doc["last_resize"]["who"]) and doc["restarts"] == 0 and doc["generation"] == 1
    out = tony.ok("resize", app, "worker=2", "--wait")
    assert "was resized: worker 3 to 2" in out, out
    (base / "go").touch()
    assert tony.run("wait", app).returncode == 0
    events = resizes_in(tony, cluster, app)
    assert len(events) == 2 and "worker=3" in events[0] and "worker=2" in events[1], events


def test_a_queued_job_takes_its_resize_back(tony, cluster, full):
    """The second request says that the job is to keep its own size."""
    app = tony.submit(tony.workers("true", n=2, conf=BIG))
    tony.ok("resize", app, "worker=3")
    tony.ok("resize", app, "worker=2")
    full()
    assert tony.run("wait", app).returncode == 0
    doc = tony.status(app)
    assert len(doc["tasks"]) == 2 and "last_resize" not in doc and not resizes_in(tony, cluster, app)


@pytest.mark.slow
def test_a_resize_beside_the_start_of_the_master(tony, cluster):
    """Whether the request comes before the master, beside its start or after it: the job gets the size that the client was told."""
    answers = []
    for i in range(4):
        app = tony.submit(tony.workers(WAIT, n=1, role={"resize": "live"}))
        time.sleep(i * 0.3)  # no condition to wait for: four moments of the start
        answers.append(tony.ok("resize", app, "worker=2").strip().replace(app, "APP"))
        wait_until(lambda app=app: n_running(tony, app) == 2, f"two run after '{answers[-1]}'")
        doc = tony.status(app)
        assert doc["resizes"] == 1 and doc["last_resize"]["roles"] == [{"name": "worker", "from": 1, "to": 2}], doc
        tony.ok("kill", app)
    print(answers)
    assert all(re.match("job APP (asks for the new size|is being resized: |was resized: )", x) for x in answers), answers


def test_the_first_master_of_a_resized_job_dies(tony, cluster, full, base):
    """
    The first master dies when the resize is in its journal and in no copy. The second one reads the request again, and dies later; the
    client asks for another size then, and the third master must not go back to the request.
    """
    job = PointsJob(tony, "live", base, 2)
    job.arm(1, 1, "resize")
    app = job.app = tony.submit(job.path, "--conf", "tony.am.memory=8g")
    tony.ok("resize", app, "worker=3")
    full()
    job.steady(3)
    assert job.struck() == ["master.1.struck"]
    assert tony.status(app)["last_resize"]["roles"] == [{"name": "worker", "from": 2, "to": 3}]
    await_reported(tony, app)
    job.resize(1)
    await_reported(tony, app)
    kill_master(cluster)
    wait_until(lambda: tony.status(app).get("epoch") == 3, "the third master")
    job.steady(1)
    doc = job.end()
    job.check(doc)
    assert doc["resizes"] == 2 and len(doc["tasks"]) == 1, doc
    assert len(cluster.attempts(app)) == 3


def test_a_hostile_request(tony, cluster, full):
    """The job starts with its own size, and its log says why."""
    app = tony.submit(tony.workers("true", n=2, conf=BIG))
    cluster.put(f"/user/root/.tony/{app}/queued/7", b"\0\0\0\7no frame")
    assert sizes(tony, app) == {"worker": 2}
    full()
    assert tony.run("wait", app).returncode == 0
    assert len(tony.status(app)["tasks"]) == 2
    log = "".join(cluster.container_log(app, "stderr").values())
    assert "resize.refused" in log and "taken/7" in log, log


def test_a_job_of_another_version_waits(tony, cluster, full):
    """Its client has made no directory for requests: the client waits for the master, and says so."""
    app = tony.submit(tony.workers(WAIT, conf=BIG))
    cluster.remove(f"/user/root/.tony/{app}/queued")
    r = tony.run("resize", app, "worker=2", "--timeout", "1s")
    assert r.returncode == 4 and "has no master yet" in r.stderr and "ask again when it runs" in r.stderr, r.stderr
    tony.ok("kill", app)


# ---- masters that die at a record of a resize ----

@pytest.mark.takes(20)
@pytest.mark.parametrize("mode", ["restart", pytest.param("live", marks=pytest.mark.slow)])
def test_masters_die_during_a_resize(tony, cluster, base, mode):
    """
    A job of one worker grows to three, more than its first size, and shrinks to one. Twice a master dies when
    its journal has the resize and perhaps no copy has it; the next master dies soon after it has read the
    copies.
    """
    job = PointsJob(tony, mode, base)
    job.arm(1, 1, "resize")
    job.arm(2, 3, "resynced")
    job.app = tony.submit(job.path)
    job.steady(1)
    job.resize(3)
    assert job.struck() == ["master.1.struck", "master.2.struck"]
    job.arm(3, 1, "resize")
    job.arm(4, 2, "resynced")
    await_reported(tony, job.app)
    kill_master(cluster)  # the next master reads here where it has to die
    job.steady(3)
    job.resize(1)
    wait_until(lambda: len(job.struck()) == 4, "four masters have died where they were told to", 300)
    job.steady(1)
    doc = job.end()
    job.check(doc)
    assert doc["resizes"] == 2 and len(doc["tasks"]) == 1, doc
    # When the second master died, a live resize may have started a task in a container that no node had
    # reported yet. YARN ends such a container; the task restarts, and no budget is charged.
    assert doc["restarts"] <= (2 if mode == "live" else 0), "tasks have restarted that a resize does not touch"
    assert not job.charged(), job.charged()
    assert len(cluster.attempts(job.app)) == 6


@pytest.mark.slow
def test_the_digits_are_resized(tony, cluster, base):
    """
    examples/digits: from two workers to four, one and three while it trains, like the test in tests/e2e on
    the pool.
    """
    epochs, sizes, pause = 6, [4, 1, 3], base / "pause"
    command = f"/usr/bin/python3 train.py --epochs {epochs} --save-every 10 --checkpoints {base}"
    digits = [ROOT / "examples/digits/job.yaml", "--conf", f"tony.containers.command={command}", "--conf", "tony.worker.memory=512m"]

    def accuracy(app):
        r = tony.run("wait", app)
        assert r.returncode == 0, r.stdout + r.stderr + tony.ok("why", app)
        end = json.loads(tony.ok("logs", app, "worker:0", "--stdout").strip().splitlines()[-1])
        return end["accuracy"], end["workers"]

    def stand_still_at(step):
        pause.with_suffix(".new").write_text(str(step))
        pause.with_suffix(".new").rename(pause)  # a reader finds either the old or the new step

    base.mkdir(exist_ok=True)
    undisturbed, _ = accuracy(tony.submit(*digits[:2], digits[2].replace(str(base), str(base / "undisturbed")), *digits[3:]))
    stand_still_at(20)
    app = tony.submit(*digits, "--shell_env", f"PYTHONPATH={ROOT / 'tests/fixtures/pauser'}", "--shell_env", f"PAUSE={pause}")
    for i, n in enumerate(sizes):
        wait_until(lambda i=i: (tony.status(app).get("roles") or [{}])[0].get("step", 0) >= 20 * (i + 1), f"step {20 * (i + 1)}", 300, 0.1)
        tony.ok("resize", app, f"worker={n}")
        stand_still_at(20 * (i + 2))  # the job may train on while it waits for containers
        wait_until(lambda i=i: tony.status(app).get("resizes") == i + 1, f"resize to {n}", 300, 0.1)
    pause.unlink()
    resized, workers = accuracy(app)
    doc = tony.status(app)
    assert workers == sizes[-1] and doc["restarts"] == 0 and doc["generation"] == len(sizes) + 1
    # The sums are rounded in another order. That may change the result for one image.
    assert abs(resized - undisturbed) < 1.5 / 360
