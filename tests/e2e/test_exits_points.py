# SPDX-License-Identifier: Apache-2.0
"""
The keeper forgets the end of a container once the journal has it, and replaces its file `exits` by a shorter one.
The keeper, or the master, dies at each step of that. No finished task may run again, and no end may be lost.
"""

import json

import pytest
from conftest import wait_until
from lib_jobs import kill9
from lib_points import make_points_lab  # noqa: F401 (fixture)

QUICK = 3

# The points of one replacement, in order, and what the keeper does there.
STEPS = [
    ("call fdatasync */journal", "kill"),
    ("call write */exits.new", "kill"),
    ("call write */exits.new", "torn"),
    ("done write */exits.new", "kill"),
    ("call fdatasync */exits.new", "kill"),
    ("done fdatasync */exits.new", "kill"),
    ("call renameat exits", "kill"),
    ("done renameat exits", "kill"),
    ("call fsync */jobs/application_", "kill"),
    ("done fsync */jobs/application_", "kill"),
]


class Job:
    """Some tasks end at once. One task runs until the test lets it end."""

    def __init__(self, lab, n=QUICK):
        self.lab, self.n = lab, n
        self.dir = lab.base / f"x{lab.n_files}"
        self.dir.mkdir()
        roles = {"quick": {"instances": n, "command": f"echo run >> {self.dir}/quick$TONY_INDEX"},
                 "slow": {"instances": 1, "command": f"echo $$ >> {self.dir}/slow; until [ -e {self.dir}/go ]; do sleep 0.01; done"}}
        for role in roles.values():
            role.update(memory="16m", restart="on-failure", **{"restart-scope": "task", "max-restarts": 20})
        path = lab.job_file(roles, conf={"tony.task.max-missed-heartbeats": 1000})
        r = lab.run("submit", path)
        assert r.returncode == 0, r.stderr
        self.app = r.stdout.strip()

    def exits(self):
        return [json.loads(line) for line in (self.lab.dir(self.app) / "exits").read_text().splitlines()]

    def ends(self):
        return [x["container"] for x in self.exits() if "container" in x]

    def over(self):
        (self.dir / "go").touch()
        self.lab.run("wait", self.app)
        self.lab.in_history(self.app)
        doc = self.lab.status(self.app)
        assert doc["state"] == "SUCCEEDED", json.dumps(doc)
        for i in range(self.n):
            assert (self.dir / f"quick{i}").read_text() == "run\n", f"quick:{i} ran again after its end"
        assert not list(self.lab.dir(self.app).glob("exits.*"))
        return doc


@pytest.fixture
def lab(make_points_lab):  # noqa: F811
    return make_points_lab(TONY_TEST_EXITS="0")


@pytest.mark.parametrize("part", [0, 1])
def test_the_keeper_dies_at_each_step(make_points_lab, part):  # noqa: F811
    # 500 bytes: `exits` has the ends of all three tasks (two lines of 49 bytes and three of 163) before any is
    # forgotten. A task whose end nobody has written may run again.
    lab = make_points_lab(TONY_TEST_EXITS="500")
    for step, action in STEPS[part::2]:
        lab.disarm()
        lab.arm("keeper", 1, action, step)
        job = Job(lab)
        wait_until(lambda: lab.struck("keeper"), f"the keeper comes to '{step}'")
        job.over()
        lab.quiet()
    lab.settled()


def test_a_master_after_the_keeper_has_forgotten(lab):
    """The keeper has forgotten these ends, so the next master can learn them only from the journal."""
    job = Job(lab)
    wait_until(lambda: (job.dir / "slow").exists() and len(job.exits()) == 2 and not job.ends(), "the keeper has forgotten all ends")
    first = lab.one("master", job.app)
    kill9(first)
    lab.one("master", job.app, other_than=first)
    doc = job.over()
    assert doc["restarts"] == 0, doc["restarts"]
    lab.settled()


def test_a_master_that_dies_before_its_journal_has_the_end(lab):
    """The master has not acknowledged the ends, because it has not written them. The keeper reports them to the next master."""
    lab.arm("master", 1, "stop", "call write */journal *completed")
    job = Job(lab)
    wait_until(lambda: lab.struck("master"), "the master is about to write an end")
    wait_until(lambda: job.ends(), "the keeper has written an end")
    kill9(lab.one("master", job.app))
    wait_until(lambda: (job.dir / "slow").exists() and not job.ends(), "the next master has acknowledged all ends")
    assert {r["slot"] for r in lab.journal(job.app) if r["e"] == "completed"} == set(range(QUICK))
    doc = job.over()
    assert doc["restarts"] == 0, doc["restarts"]
    lab.settled()


def test_after_many_ends_exits_and_registration_are_short(lab):
    n = 120
    job = Job(lab, n)
    def ended():
        return {r["slot"] for r in lab.journal(job.app) if r["e"] == "completed"}

    def registered():
        return [x for x in (lab.dir(job.app) / "master.log").read_text().splitlines() if "master.registered" in x]

    wait_until(lambda: (job.dir / "slow").exists() and len(ended()) == n, "all quick tasks have ended")
    wait_until(lambda: not job.ends(), "the keeper has forgotten all ends")
    kill9(lab.one("master", job.app))
    wait_until(lambda: len(registered()) == 2, "the next master has registered")
    assert "containers=1 " in registered()[1] + " ", registered()
    job.over()
    lab.settled()
