# SPDX-License-Identifier: Apache-2.0
"""Jobs without a job file: `tony run -n 4 -- COMMAND`, and the options that change single values."""

import json
import re

import pytest


@pytest.fixture
def here(tony, tmp_path):
    (tmp_path / "train.py").write_text(
        "import json, os, sys\nprint(json.dumps([sys.argv[1:], os.environ['TASK_INDEX'], os.environ.get('K')]))\n")
    return tmp_path


def app_of(text):
    return re.search(r"application_\d+_\d{4,}", text).group()


def test_run_without_a_job_file(tony, here):
    odd = ["--lr", "0.1", "it's", "a b", "$X", "", "*", "ü"]
    out = tony.ok("run", "-n", 2, "--memory", "64m", "--env", "K=a,b c", "--", "python3", "train.py", *odd, cwd=here)
    app = app_of(out)
    for i in range(2):
        assert json.loads(tony.log(app, f"worker:{i}")) == [odd, str(i), "a,b c"]
    doc = tony.status(app)
    assert doc["name"] == "train"


def test_a_program_needs_no_source(tony, here):
    app = tony.ok("submit", "--memory", "64m", "--name", "say", "--", "echo", "hello", cwd="/").strip()
    assert tony.run("wait", app).returncode == 0
    assert tony.log(app, "worker:0") == "hello\n" and tony.status(app)["name"] == "say"


def plan(tony, *args, **kw):
    return json.loads(tony.ok("plan", *args, "--json", **kw))


def test_options_change_single_values_of_a_job_file(tony):
    path = tony.workers("true", n=1)
    doc = plan(tony, path, "--worker.instances", 4, "--set", "roles.worker.memory=100m", "--worker.gpus=0", "--set", "framework=pytorch",
               "--set", "name=other")
    text = json.dumps(doc)
    assert '"instances": 4' in text and '"memory_mib": 100' in text and '"pytorch"' in text and '"other"' in text
    assert '"instances": 3' in json.dumps(plan(tony, path, "-n", 3))
    # --conf and --set are equal; the last one wins
    assert '"instances": 2' in json.dumps(plan(tony, path, "--worker.instances", 4, "--conf", "tony.worker.instances=2"))


@pytest.mark.parametrize("args, words", [
    (["--set", "no-such=1"], "job files have no key with this name"), (["--set", "framework"], "needs NAME=VALUE"),
    (["--worker.memory"], "needs a value"), (["--worker.memori", "1g"], "tony.worker.memori"),
    (["--wroker.instances", "2"], "the job has no role 'wroker'"), (["--set", "roles.workers.instances=2"], "did you mean 'worker'? --conf tony."),
    (["-n", "0"], "--instances must be at least 1"), (["--env", "HOME"], "--env HOME=\"$HOME\""),
    (["--", "true"], "both a job file (or --executes) and a command after '--'")])
def test_wrong_options_are_refused(tony, args, words):
    r = tony.run("plan", tony.workers("true"), *args)
    assert r.returncode == 2 and words in r.stderr, r.stderr


def test_an_option_may_add_a_role(tony):
    for option in (["--evaluator.instances", "1"], ["--conf", "tony.workers.instances=1"]):
        doc = plan(tony, tony.workers("true"), *option, "--set", "command=true")
        assert len({c["role"] for c in doc["containers"]}) == 2, doc


def test_the_home_directory_is_not_shipped(tony):
    (tony.base / "script.py").write_text("")
    r = tony.run("run", "--", "python3", "script.py", cwd=tony.base)
    assert r.returncode == 2 and "tony would ship all of directory" in r.stderr and "--src_dir" in r.stderr
    (tony.base / "script.py").unlink()
