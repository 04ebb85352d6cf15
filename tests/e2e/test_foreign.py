# SPDX-License-Identifier: Apache-2.0
"""A framework outside src/: programs that are linked with one more file run its jobs."""

import pytest

from conftest import BIN

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
    app = r.stdout.split()[1]
    frames = set()
    for i in range(2):
        part, mine, known, frame = foreign.ok("logs", app, f"bead:{i}", "--stdout").split()[-4:]
        assert part == "bead" and mine == known and mine.startswith("127.0.0.1:"), (part, mine, known)
        frames.add(frame)
    assert len(frames) == 1
    tasks = {t["task"]: t["result"] for t in foreign.json("tasks", app)["tasks"]}
    assert tasks["frame:0"] == "FINISHED", tasks


def test_the_job_ends_if_the_peers_do_not_notice_a_death(foreign):
    """Without `unnoticed` the other bead would go on, and the job with it."""
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
