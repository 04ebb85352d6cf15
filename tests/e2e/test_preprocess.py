# SPDX-License-Identifier: Apache-2.0
"""tony.application.enable-preprocess: one command runs before all tasks, and passes parameters to them."""

import json

from conftest import app_of, wait_until
from lib_jobs import kill9, lab, make_lab  # noqa: F401 (fixtures)

WORKER = {"worker": {"instances": 2, "memory": "64m", "command": 'echo "[$MODEL_PARAMS] $TASK_NUM $CLUSTER_SPEC"'}}


def job(tony, before, tmp_path, **conf):
    path = tmp_path / "job.json.yaml"
    path.write_text(json.dumps({"name": "pre", "framework": "generic", "roles": WORKER, "conf": {
        "tony.application.enable-preprocess": True, "tony.am.command": before, "tony.am.memory": "64m", **conf}}))
    return path


def test_parameters_reach_all_tasks(tony, tmp_path):
    before = r'echo ready; echo "so: Model parameters: --depth 3 \"x y\" é"; echo "Model parameters: second"; env | sort'
    r = tony.run("run", job(tony, before, tmp_path))
    assert r.returncode == 0, r.stdout + r.stderr
    app = app_of(r) if "\njob " in f"\n{r.stdout}" else tony.jobs_on_disk()[-1]
    for i in range(2):
        said = tony.log(app, f"worker:{i}")
        assert said.startswith('[--depth 3 "x y" é] 2 {"worker":'), said
        assert "preprocess" not in said, said
    env = tony.log(app, "preprocess:0")
    assert "PREPROCESSING_JOB=true" in env and "TONY_RANK=" not in env and "MODEL_PARAMS=" not in env, env
    tasks = {t["task"]: t for t in tony.json("tasks", app)["tasks"]}
    assert tasks["preprocess:0"]["result"] == "SUCCEEDED"


def test_preprocessing_without_parameters(tony, tmp_path):
    r = tony.run("run", job(tony, "true", tmp_path))
    assert r.returncode == 0, r.stdout + r.stderr
    app = app_of(r)
    assert tony.log(app, "worker:0").startswith("[] 2 ")


def test_a_failed_preprocessing_fails_the_job(tony, tmp_path):
    r = tony.run("run", job(tony, "echo Model parameters: x; exit 7", tmp_path))
    assert r.returncode == 1 and "preprocess:0" in r.stdout and "exit code 7" in r.stdout, r.stdout + r.stderr
    app = app_of(r)
    assert not (tony.home / "history" / app / "logs" / "worker-0").exists()


def test_a_new_master_knows_the_parameters(lab, tmp_path):
    """The parameters are in the journal, not only in the first master's memory."""
    tony = lab
    gate = tmp_path / "gate"
    WAIT = {"worker": {**WORKER["worker"], "depends-on": "gate:completed"}}
    path = tmp_path / "job.yaml"
    doc = {"name": "pre", "framework": "generic",
           "roles": {"gate": {"instances": 1, "memory": "64m", "command": f"while [ ! -e {gate} ]; do sleep 0.02; done"}, **WAIT},
           "conf": {"tony.application.enable-preprocess": True, "tony.am.command": "echo Model parameters: kept",
                    "tony.am.memory": "64m"}}
    path.write_text(json.dumps(doc))
    app = tony.ok("submit", path).strip().splitlines()[-1].split()[-1]
    state = lambda: {t["task"]: t["state"] for t in tony.json("tasks", app)["tasks"]}  # noqa: E731
    wait_until(lambda: state().get("gate:0") == "running", "the gate to run")
    kill9(lab.one("master", app))
    gate.touch()
    r = tony.run("wait", app)
    assert r.returncode == 0, r.stdout + r.stderr
    assert tony.log(app, "worker:1").startswith("[kept] 3 "), tony.log(app, "worker:1")
