# SPDX-License-Identifier: Apache-2.0
"""A framework outside src/: programs that are linked with one more file run its jobs."""

import pytest

from conftest import BIN, app_of

FOREIGN = BIN.parent / "tests" / "foreign"

pytestmark = pytest.mark.skipif(not (FOREIGN / "tony").exists(), reason="the tests are not built")


@pytest.fixture
def foreign(own_tony):
    t = own_tony()
    t.bin = FOREIGN
    return t


JOB = """
name: count
framework: abacus
roles:
  frame: {{instances: 1, memory: 64m, command: "echo $ABACUS_PART; sleep 1000"}}
  bead: {{instances: 2, memory: 64m, command: '{bead}'}}
"""


def run(tony, bead, *args):
    path = tony.base / "count.yaml"
    path.write_text(JOB.format(bead=bead))
    return tony.run("run", path, *args)


def test_a_framework_outside_src_sets_variables_and_runs_its_server(foreign):
    r = run(foreign, 'echo $ABACUS_PART $ABACUS_ADDRESS $TONY_ADDRESS $ABACUS_FRAME')
    assert r.returncode == 0, r.stdout + r.stderr  # the frame would sleep on, but ends with the job
    app = app_of(r)
    frames = set()
    for i in range(2):
        part, mine, known, frame = foreign.ok("logs", app, f"bead:{i}", "--stdout").split()[-4:]
        assert part == "bead" and mine == known and mine.startswith("127.0.0.1:"), (part, mine, known)
        frames.add(frame)
    assert len(frames) == 1
    tasks = {t["task"]: t["result"] for t in foreign.json("tasks", app)["tasks"]}
    assert tasks["frame:0"] == "FINISHED", tasks


def test_the_job_ends_if_the_peers_do_not_notice_a_death(foreign):
    """The framework `abacus` sets `.unnoticed`, which makes the job fail at the first death. Without it the other
    task would run on, and the job with it."""
    r = run(foreign, '[ $TASK_INDEX = 0 ] && exit 3; sleep 1000')
    assert r.returncode == 1 and "bead:0" in r.stdout, r.stdout + r.stderr


def test_the_framework_refuses_wrong_jobs(foreign):
    r = run(foreign, "true", "--conf", "tony.application.distributed-mode=FCFS")
    assert r.returncode == 2 and "abacus" in r.stderr, r.stderr
    r = run(foreign, "true", "--conf", "tony.frame.instances=2")
    assert r.returncode == 2 and "'frame'" in r.stderr, r.stderr


def test_programs_without_the_framework_refuse_it(tony):
    r = run(tony, "true")
    assert r.returncode == 2 and "must be one of" in r.stderr, r.stderr


# ---- a cluster outside src/ ----


@pytest.fixture
def shed(foreign):
    (foreign.base / "shed").mkdir()
    foreign.env["SHED"] = str(foreign.base / "shed")
    return foreign


def test_a_cluster_outside_src_runs_jobs(shed):
    r = shed.run("run", "--cluster", "shed", "--executes", "echo hello; exit 3")
    assert r.returncode == 1 and "the shed runs" in r.stderr, r.stdout + r.stderr
    app = app_of(r)
    assert f"job {app} FAILED" in r.stdout
    assert shed.ok("logs", app) == "hello\n"  # the variable SHED makes it the default
    doc = shed.json("status", app)
    assert (doc["state"], doc["exit_code"], doc["cluster"], doc["shed_state"]) == ("FAILED", 1, "shed", "SWEPT")
    assert shed.run("wait", app).returncode == 1


def test_kill_and_plan_work_on_a_foreign_cluster(shed):
    app = shed.ok("submit", "--cluster", "shed", "--executes", "sleep 1000").strip()
    assert shed.json("status", app)["state"] == "STARTING"
    r = shed.run("kill", app)
    assert r.returncode == 0 and "KILLED" in r.stderr, r.stderr
    assert "is over already" in shed.run("kill", app).stderr
    assert "sh -c 'true'" in shed.ok("plan", "--cluster", "shed", "--executes", "true")
    r = shed.run("run", "--cluster", "shed", "--executes", "true", "--conf", "tony.worker.instances=2")
    assert r.returncode == 2 and "no roles" in r.stderr, r.stderr


def test_other_programs_do_not_know_that_cluster(own_tony):
    t = own_tony()
    r = t.run("run", "--cluster", "shed", "--executes", "true")
    assert r.returncode == 2 and "--cluster: there is no cluster 'shed', only local, yarn" in r.stderr, r.stderr
    assert t.run("list", "--cluster", "locl").returncode == 2


def test_last_means_the_last_job_of_any_cluster(shed):
    """A record of what was submitted decides, not the cluster that commands would ask by default."""
    one = shed.ok("submit", "--cluster", "shed", "--executes", "sleep 1000").strip()
    two = shed.ok("submit", "--cluster", "local", "--executes", "sleep 1000", "--conf", "tony.am.memory=64m").strip()
    assert shed.json("status", "last")["application_id"] == two
    assert shed.json("status", "last", "--cluster", "shed")["application_id"] == one
    assert shed.run("kill", "last").returncode == 0
    assert (shed.state(one), shed.state(two)) == ("STARTING", "KILLED")
    three = shed.ok("submit", "--cluster", "shed", "--executes", "sleep 1000").strip()
    assert shed.run("kill", "last").returncode == 0
    assert (shed.state(one), shed.state(three)) == ("STARTING", "KILLED")
    assert shed.run("kill", one).returncode == 0
