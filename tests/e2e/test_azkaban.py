# SPDX-License-Identifier: Apache-2.0
"""tony azkaban, as Azkaban's ProcessJob calls it: with the properties in a file that JOB_PROP_FILE names."""

import json
import shutil
import signal

import pytest
from conftest import ROOT, wait_until
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)

# in the form in which Azkaban writes it: java.util.Properties.store()
PROPERTIES = ROOT / "tests/data/azkaban/train.properties"


@pytest.fixture
def flow(lab):
    """The working directory of a job of Azkaban."""
    where = lab.base / "work"
    (where / "code").mkdir(parents=True)
    (where / "code/train.sh").write_text('echo "$GREETING|$AZKABAN_INPUT_DATASET|${EMPTY-unset}"; for a; do echo "<$a>"; done\n')
    shutil.copy(PROPERTIES, where / "train_props_1_tmp")
    return where


def test_a_job_of_a_flow_runs(lab, flow):
    r = lab.run("azkaban", "--json", cwd=flow, env={"JOB_PROP_FILE": str(flow / "train_props_1_tmp")})
    assert r.returncode == 0, r.stderr
    doc = json.loads(r.stdout)
    assert doc["state"] == "SUCCEEDED" and doc["name"] == "nightly-digits" and len(doc["tasks"]) == 2
    lines = lab.ok("logs", doc["application_id"], "worker:1", "--stdout").splitlines()
    assert lines == ["hello from éazkaban|/data/a;/data/b|", "<--rate>", "<0.1>", "<--name>", "<two words>"]
    conf = (lab.home / "history" / doc["application_id"] / "job.conf").read_text()
    assert "azkaban.flow.execid:4711,azkaban.flow.flowid:nightly,azkaban.flow.projectname:digits_ and more" in conf


def test_options_win_and_the_default_source(lab, flow):
    (flow / "code").rename(flow / "src")
    path = flow / "train_props_1_tmp"
    path.write_text(path.read_text().replace("src_dir=code\n", ""))
    r = lab.run("azkaban", path, "--conf", "tony.worker.instances=1", "--json", cwd=flow)
    assert r.returncode == 0, r.stderr
    assert len(json.loads(r.stdout)["tasks"]) == 1


def test_killed_with_its_flow(lab, flow):
    """Azkaban sends SIGTERM to the process of the job."""
    (flow / "code/train.sh").write_text("sleep 600\n")
    p = lab.start("azkaban", cwd=flow, env={"JOB_PROP_FILE": str(flow / "train_props_1_tmp")})
    app = wait_until(lambda: next((x.name for x in (lab.home / "jobs").glob("application_*")), None), "the job")
    wait_until(lambda: lab.n_running(app) == 2, "both tasks run")
    p.send_signal(signal.SIGTERM)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 3, out + err
    assert lab.status(app)["state"] == "KILLED"
    lab.settled()


def test_what_is_wrong_is_told(lab, flow):
    for env, words in (({}, "JOB_PROP_FILE is not set"), ({"JOB_PROP_FILE": "/no/such/file"}, "/no/such/file")):
        r = lab.run("azkaban", cwd=flow, env=env)
        assert r.returncode == 2 and words in r.stderr, r.stderr
    (flow / "bad").write_text("a=1\nb=\\u12\n")
    r = lab.run("azkaban", "bad", cwd=flow)
    assert r.returncode == 2 and "bad:2: \\u needs four" in r.stderr
    (flow / "bad").write_text("tony.nosuch.key=1\nexecutes=true\n")
    r = lab.run("azkaban", "bad", cwd=flow)
    assert r.returncode == 2 and "tony.nosuch.key" in r.stderr
