# SPDX-License-Identifier: Apache-2.0
"""The cluster spec: the file that each task finds, and variables that are too long for the environment."""

import json
import subprocess

import pytest
from conftest import wait_until
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)

N = 120
# With a stack of 512 KiB, Linux allows 128 KiB of arguments and environment. The executor reserves 16 KiB of
# that for arguments. This padding leaves room for all variables except those that name 120 tasks (2.2 kB).
PAD = "x" * 111500
PATIENT = {"tony.task.heartbeat-interval-ms": 10000}  # on a busy machine no task is lost
WAY_OUT = {"tony.application.addresses-in-environment": False}


def specs(lab, app, role="worker"):
    """The output of each task of the role."""
    return [json.loads(p.read_text()) for p in sorted((lab.dir(app) / "logs").glob(f"{role}-*/1/stdout"))]


@pytest.mark.parametrize("framework", ["generic", "pytorch", "tensorflow", "standalone"])
def test_each_task_finds_the_file(lab, framework):
    n = 1 if framework == "standalone" else 3
    app = lab.submit(lab.workers("cat $TONY_SPEC_FILE", n=n, framework=framework))
    assert lab.run("wait", app).returncode == 0
    found = specs(lab, app)
    assert len(found) == n and all(spec == found[0] for spec in found)
    assert len(set(found[0]["worker"])) == n
    lab.settled()


def test_with_fcfs_the_spec_file_is_updated(lab):
    """A task that starts before the others register finds their addresses in the file later."""
    command = "until grep -qE '(127[0-9.:]+.*){3}' $TONY_SPEC_FILE; do sleep 0.02; done"
    r = lab.run("run", lab.workers(command, n=3, conf={"tony.application.distributed-mode": "FCFS"}))
    assert r.returncode == 0, r.stderr
    lab.settled()


def test_addresses_only_in_the_file(lab):
    """With this option no variable has the addresses, for any framework."""
    command = 'test -z "$CLUSTER_SPEC$TF_CONFIG" && cat $TONY_SPEC_FILE'
    app = lab.submit(lab.workers(command, n=2, framework="tensorflow", conf=WAY_OUT))
    assert lab.run("wait", app).returncode == 0
    assert len(specs(lab, app)[1]["worker"]) == 2
    lab.settled()


@pytest.fixture
def short(make_lab):
    """A lab whose pool was started with little room for environments."""
    lab = make_lab(site={"pool.memory": "64g"})
    subprocess.run(["bash", "-c", "ulimit -s 512; exec tony pool start"], env=lab.env, check=True, timeout=60)
    return lab


def many(lab, command, **top):
    return lab.workers(command, n=N, role={"memory": "4m", "vcores": 0}, env={"PAD": PAD}, **{**top, "conf": {**PATIENT, **top.get("conf", {})}})


def test_variables_that_are_too_long_are_left_out(short):
    app = short.submit(many(short, 'test -z "$CLUSTER_SPEC" -a -n "$PAD" && cat $TONY_SPEC_FILE'))
    assert short.run("wait", app, timeout=60).returncode == 0
    assert all(len(set(spec["worker"])) == N for spec in specs(short, app))
    short.settled()


def test_a_needed_variable_that_is_too_long_fails_the_task(short):
    """
    The number of tasks did not show the problem before the start. The failure report says it, and its hint
    helps.
    """
    path = many(short, "true", framework="tensorflow")
    app = short.submit(path)
    assert short.run("wait", app, timeout=60).returncode == 1
    doc = short.status(app)
    assert "framework 'tensorflow', such as TF_CONFIG, need" in doc["message"], doc["message"]
    why = " ".join(short.ok("why", app).split())
    assert "longer than Linux takes" in why and "TONY_SPEC_FILE" in why and "--help" not in why, why
    r = short.run("run", path, "--conf", "tony.application.addresses-in-environment=false", timeout=60)
    assert r.returncode == 0, r.stderr
    short.settled()


BIG = {"memory": "1m", "vcores": 0}


@pytest.mark.parametrize("command", ["run", "submit", "plan"])
def test_refused_before_anything_starts(own_tony, tmp_path, command):
    tony = own_tony()
    path = tmp_path / "big.yaml"
    path.write_text(json.dumps({"framework": "tensorflow", "command": "true", "roles": {"worker": {"instances": 8000, **BIG}}}))
    r = tony.run(command, path)
    assert r.returncode == 2
    assert "needs CLUSTER_SPEC with at least 136" in r.stderr and "Linux takes 131072" in r.stderr, r.stderr
    assert "TONY_SPEC_FILE" in r.stderr and "tony.application.addresses-in-environment" in r.stderr
    assert not (tony.home / "jobs").exists() or not list((tony.home / "jobs").iterdir())


def plan(tony, tmp_path, framework, n, *more):
    path = tmp_path / "big.yaml"
    path.write_text(json.dumps({"framework": framework, "command": "true", "roles": {"worker": {"instances": n, **BIG}}}))
    return tony.ok("plan", path, *more), tony.json("plan", path, *more)


def test_plan_says_what_is_left_out(own_tony, tmp_path):
    tony = own_tony()
    text, doc = plan(tony, tmp_path, "generic", 8000)
    assert doc["too_long"] == [{"variable": "CLUSTER_SPEC", "bytes_least": 136026, "bytes_most": 144026, "limit": 131072,
                                "needed": False, "left_out": "yes"}]
    assert "CLUSTER_SPEC is left out of the environment" in text and "TONY_SPEC_FILE" in text
    assert "CLUSTER_SPEC" not in doc["tasks"][0]["env"] and "TONY_SPEC_FILE" in doc["tasks"][0]["env"]


def test_plan_says_what_may_be_left_out(own_tony, tmp_path):
    text, doc = plan(own_tony(), tmp_path, "tensorflow", 7500)
    assert [(v["variable"], v["left_out"], v["needed"]) for v in doc["too_long"]] == [
        ("CLUSTER_SPEC", "maybe", True), ("TF_CONFIG", "maybe", True)]
    assert "TF_CONFIG may be too long for the environment" in text and "fails before any task starts" in text
    assert "CLUSTER_SPEC" in doc["tasks"][0]["env"]
    assert 0 < doc["tasks_omitted"] == 7500 - len(doc["tasks"]) and len(json.dumps(doc)) < 32 << 20


def test_plan_says_nothing_of_a_small_job(own_tony, tmp_path):
    text, doc = plan(own_tony(), tmp_path, "tensorflow", 100)
    assert doc["too_long"] == [] and "too long" not in text and "left out" not in text


def test_plan_with_addresses_only_in_the_file(own_tony, tmp_path):
    text, doc = plan(own_tony(), tmp_path, "tensorflow", 8000, "--conf", "tony.application.addresses-in-environment=false")
    assert doc["too_long"] == [] and "TF_CONFIG" not in doc["tasks"][0]["env"]
