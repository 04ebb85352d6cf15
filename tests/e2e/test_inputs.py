# SPDX-License-Identifier: Apache-2.0
"""Unusual input: strange texts, places and directories; and the messages for it."""

import json
import os
import re
import subprocess

import pytest

from test_bad_input import GOOD_ROLE, refused

ROLE = ("--conf", "tony.worker.instances=1", "--conf", "tony.worker.memory=32m")
NOT_UTF8 = os.fsdecode(b"x\xff")
# Variables of a task that `tony plan` does not list: those of the machine, and the one that hides its GPUs.
NOT_PLANNED = {"PATH", "HOME", "LANG", *(["CUDA_VISIBLE_DEVICES"] if os.path.exists("/dev/nvidiactl") else [])}


# ---- texts ----

@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("args", [
    ("--executes", "true " + NOT_UTF8),
    ("--executes", "true", "--shell_env", "A=" + NOT_UTF8),
    ("--executes", "true", "--conf", "tony.application.name=" + NOT_UTF8),
], ids=["command", "environment", "conf"])
def test_options_that_are_not_utf8_are_refused(tony, tmp_path, command, args):
    refused(tony, tmp_path, *args, *ROLE, sentence="is not UTF-8", command=command)


def test_a_directory_that_is_not_utf8(tony, tmp_path):
    place = tmp_path / NOT_UTF8
    place.mkdir()
    (place / "src").mkdir()
    for command in "run", "plan":
        r = subprocess.run([os.fsencode(a) for a in ("tony", command, "--src_dir", "src", "--executes", "true", *ROLE)], cwd=place,
                           env=tony.env, capture_output=True)
        assert r.returncode == 2, r
        assert b"is not UTF-8" in r.stderr


@pytest.mark.parametrize("text, where, sentence", [
    ("roles:\n  worker: {instances: 1, memory: 16m, command: 'true " + "x" * 140000 + "'}\n", "job.yaml:2", "131071"),
    (GOOD_ROLE + "env:\n  A: b\n  LONG: '" + "x" * 140000 + "'\n", "job.yaml:3", "131071"),
    (GOOD_ROLE + "name: " + "x" * 300 + "\n", "job.yaml:3", "255"),
], ids=["command", "variable", "name"])
def test_text_that_no_program_can_receive(tony, tmp_path, text, where, sentence):
    (tmp_path / "job.yaml").write_text(text)
    refused(tony, tmp_path, "job.yaml", where=where, sentence=sentence)


@pytest.mark.parametrize("text, where", [
    ("framework: generic\nroles:\n  worker: {memory: 1g}\n", "job.yaml:3"),
    ("# nothing\nname: x\n", "job.yaml:2"),
], ids=["a role without instances", "no role"])
def test_an_empty_job_is_refused_with_a_line(tony, tmp_path, text, where):
    (tmp_path / "job.yaml").write_text(text)
    refused(tony, tmp_path, "job.yaml", where=where, sentence="neither")


@pytest.mark.parametrize("text, where, sentence", [
    ("roles:\n  a: {instances: 1, memory: 16m, command: x}\n  b: {instances: 1000, command: x}\n", "job.yaml:3", "default"),
    ("roles:\n  a: {instances: 1, memory: 16m, command: x}\n  b:\n    instances: 1\n    gpus: 99\n    memory: 16m\n    command: x\n", "job.yaml:5",
     "99 GPUs"),
    ("command: x\nconf:\n  tony.am.gpus: 50\n  tony.am.memory: 16m\n", "job.yaml:3", "50 GPUs"),
], ids=["memory by default", "GPUs", "GPUs of a single command"])
def test_a_job_that_is_too_large_is_refused_with_a_line(tony, tmp_path, text, where, sentence):
    (tmp_path / "job.yaml").write_text(text)
    refused(tony, tmp_path, "job.yaml", where=where, sentence=sentence)


@pytest.mark.parametrize("text", [
    "src: text\n" + GOOD_ROLE,
    "venv: text\n" + GOOD_ROLE,
    "resources: ['text#archive']\n" + GOOD_ROLE,
    "conf:\n  tony.worker.resources: 'text#archive'\n" + GOOD_ROLE,
], ids=["src", "venv", "resource", "resource of a role"])
def test_an_invalid_archive_is_refused_with_a_line(tony, tmp_path, text):
    (tmp_path / "text").write_text("hello")
    (tmp_path / "job.yaml").write_text(text)
    refused(tony, tmp_path, "job.yaml", where="job.yaml:2" if text.startswith("conf") else "job.yaml:1", sentence="cannot unpack")


@pytest.mark.parametrize("text, hint", [
    ("src: src\nresources: [text]\n" + GOOD_ROLE, "::NAME"),
    ("src: src\nvenv: env\n" + GOOD_ROLE, "appears as venv/"),
], ids=["resource", "venv"])
def test_a_shipped_name_that_src_has_already(tony, tmp_path, text, hint):
    for name in "src", "env", "src/venv":
        (tmp_path / name).mkdir()
    (tmp_path / "text").write_text("hello")
    (tmp_path / "src" / "text").write_text("another")
    (tmp_path / "job.yaml").write_text(text)
    assert hint in refused(tony, tmp_path, "job.yaml", where="job.yaml:2", sentence="already")


def test_an_empty_src_dir_ships_nothing(tony):
    plan = tony.json("plan", "--executes", "true", "--src_dir", "", *ROLE)
    assert plan["ship"] == []


def test_warnings_are_printed(tony):
    r = tony.run("plan", "--executes", "true", "--conf", "tony.am.retry-count=2")
    assert r.returncode == 0
    assert "tony: --conf: 'tony.am.retry-count' has no effect" in r.stderr


def test_keys_of_the_machine_are_not_a_jobs(tony):
    r = tony.run("plan", "--executes", "true", "--conf", "tony.pool.memory=1g", "--conf", "tony.history.retention-sec=5")
    assert r.returncode == 0
    assert r.stderr == "tony: without effect here: tony.history.retention-sec, tony.pool.memory (it counts only in the site's file)\n"


@pytest.mark.parametrize("args, hint", [(["--src_dir", "nowhere"], "current directory"), (["job.yaml"], "its own directory"),
                                        (["job.xml"], "current directory")])
def test_where_relative_paths_start(tony, tmp_path, args, hint):
    (tmp_path / "job.yaml").write_text("command: x\nsrc: nowhere\n")
    (tmp_path / "job.xml").write_text("<configuration><property><name>tony.containers.command</name><value>x</value></property>"
                                      "<property><name>tony.application.src-dir</name><value>nowhere</value></property></configuration>")
    r = tony.run("run", *args, *(["--executes", "x"] if args[0][0] == "-" else []), cwd=tmp_path)
    assert r.returncode == 2 and hint in r.stderr.splitlines()[1]


@pytest.mark.parametrize("text", ["\ufeff" + GOOD_ROLE, GOOD_ROLE.replace("\n", "\r\n")], ids=["BOM", "CRLF"])
def test_texts_of_other_systems(tony, tmp_path, text):
    (tmp_path / "job.yaml").write_bytes(text.encode())
    assert tony.json("plan", tmp_path / "job.yaml")["tasks"][0]["command"] == "true"


# ---- places ----

def test_a_relative_home(own_tony):
    t = own_tony(TONY_HOME="home")
    path = t.workers("pwd; echo $TONY_HOME")
    r = t.run("run", path, cwd=t.base)
    assert r.returncode == 0, r.stderr
    assert str(t.home) in t.log(re.search(r"^job (application_\w+) ", r.stdout, re.M).group(1), "worker:0")
    assert t.run("pool", "stop", cwd=t.base).returncode == 0


def test_a_relative_site_directory(own_tony, tmp_path):
    t = own_tony(TONY_CONF_DIR="site")
    (t.base / "site").mkdir()
    (t.base / "site" / "tony-site.yaml").write_text("conf: {tony.pool.memory: 777m}\n")
    assert t.json("pool", "start", cwd=t.base)["capacity"]["memory_mib"] == 777


@pytest.mark.skipif(os.geteuid() != 0, reason="files are given to another user")
@pytest.mark.parametrize("name", ["pool", "jobs", "store", "history"])
def test_a_part_of_home_is_another_users(own_tony, name):
    t = own_tony()
    t.ok("list")
    os.chown(t.home / name, 12345, 12345)
    r = t.run("submit", t.workers("true"))
    assert r.returncode == 4
    assert f"'{t.home}/{name}' belongs to user 12345" in r.stderr and "hint: " in r.stderr
    os.chown(t.home / name, 0, 0)


def test_the_hint_about_a_path_that_is_too_long(own_tony):
    r = own_tony(TONY_HOME="/tmp/" + "/".join(["x" * 200] * 20)).run("list")
    assert r.returncode == 4
    assert "hint: set TONY_HOME to a shorter path" in r.stderr


# ---- damage ----

@pytest.mark.takes(5)
@pytest.mark.parametrize("command", ["kill", "wait"])
def test_a_job_directory_without_a_job(own_tony, command):
    t = own_tony()
    t.ok("pool", "start")
    app = "application_1700000000000_0001"
    (t.home / "jobs" / app).mkdir(mode=0o700)
    r = t.run(command, app)
    assert r.returncode == 4
    assert app in r.stderr
    (t.home / "jobs" / app).rmdir()


def test_logs_of_a_damaged_job(own_tony):
    t = own_tony()
    app = t.submit(t.workers("echo hello"))
    t.run("wait", app)
    journal = t.in_history(app) / "journal"
    journal.write_bytes(journal.read_bytes().replace(b"{", b"\0", 1))
    r = t.run("logs", app, "worker:0", "--stdout")
    assert r.returncode == 0
    assert "hello\n" in r.stdout and "damaged" in r.stderr
    assert t.run("status", app).returncode == 0  # its final status is in another file
    (t.in_history(app) / "status.json").unlink()
    assert t.run("status", app).returncode == 4


def test_logs_of_a_job_that_has_none(own_tony):
    t = own_tony()
    t.ok("list")
    app = "application_1700000000000_0001"
    (t.home / "history" / app).mkdir(mode=0o700)
    r = t.run("logs", app)
    assert r.returncode == 4
    assert "job.conf" in r.stderr


def test_a_file_in_place_of_a_job(own_tony):
    t = own_tony()
    t.ok("list")
    app = "application_1700000000000_0001"
    (t.home / "history" / app).write_text("x")
    r = t.run("status", app)
    assert r.returncode == 2
    assert "there is no job" in r.stderr


def test_an_error_in_the_site_file_names_the_site_file(own_tony):
    t = own_tony()
    site = t.base / "tony-site.yaml"
    site.write_text("conf: {tony.pool.memory: lots}\n")
    job = t.workers("true")
    r = t.run("run", job, env={"TONY_CONF_DIR": str(t.base)})
    assert r.returncode == 2
    assert f"site file {site}:1: " in r.stderr and job.name not in r.stderr


# ---- the plan ----

@pytest.mark.parametrize("doc", [
    {"framework": "pytorch", "roles": {"worker": {"instances": 2, "env": {"X": "y"}}}, "env": {"X": "z", "W": "w"}},
    {"framework": "tensorflow", "roles": {"worker": {"instances": 2}, "chief": {"instances": 1}, "evaluator": {"instances": 1}, "ps": {"instances": 1}},
     "conf": {"tony.application.untracked.jobtypes": ""}},  # it may be stopped before it has written its environment
    {"framework": "generic", "roles": {"a": {"instances": 2}}},
    {"framework": "standalone", "roles": {"worker": {"instances": 1}}},
    {"framework": "horovod", "roles": {"worker": {"instances": 2}, "chief": {"instances": 1}}},
    {"framework": "mpi", "roles": {"worker": {"instances": 2}}},
    {"framework": "mxnet", "roles": {"scheduler": {"instances": 1}, "server": {"instances": 1}, "worker": {"instances": 1}}},
    {"framework": "xgboost", "roles": {"worker": {"instances": 2}}},
    {"framework": "lightgbm", "roles": {"worker": {"instances": 2}}},
    {"framework": "jax", "roles": {"worker": {"instances": 2}}},
    {"framework": "ray", "roles": {"head": {"instances": 1}, "worker": {"instances": 1}}, "conf": {"tony.application.untracked.jobtypes": ""}},
    {"framework": "dask", "roles": {"scheduler": {"instances": 1}, "worker": {"instances": 1}}, "conf": {"tony.application.untracked.jobtypes": ""}},
    {"framework": "tensorflow", "conf": {"tony.am.memory": "64m", "tony.application.python-binary-path": "bin/py"}},
], ids=["pytorch", "tensorflow", "generic", "standalone", "horovod", "mpi", "mxnet", "xgboost", "lightgbm", "jax", "ray", "dask", "single"])
def test_tasks_find_what_was_planned(tony, doc):
    """Each variable is there. If the plan knows its value, the value is the same."""
    path = tony.job_file(command="env", **doc)
    plan = {task["task"]: task for task in tony.json("plan", path)["tasks"]}
    app = tony.submit(path)
    assert tony.run("wait", app).returncode == 0
    for name, task in plan.items():
        real = dict(line.split("=", 1) for line in tony.ok("logs", app, name, "--stdout").splitlines() if "=" in line and "==>" not in line)
        assert set(real) - NOT_PLANNED == set(task["env"]), name
        for key, value in task["env"].items():
            assert "<" in value or real[key] == value, (name, key)


# ---- documents ----

def keys_of(doc, prefix=""):
    if isinstance(doc, dict):
        for key, value in doc.items():
            yield prefix + key
            yield from keys_of(value, prefix + key + ".")
    elif isinstance(doc, list) and doc:
        yield from keys_of(doc[0], prefix)


def test_each_member_of_a_json_document_is_documented(tony, tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "f").write_text("x")
    page = (pytest.importorskip("conftest").ROOT / "docs" / "json.md").read_text()
    app = tony.submit(tony.workers("echo e >&2; exit 3", n=2))
    tony.run("wait", app)
    documents = [tony.json("status", app), tony.json("list"), tony.json("tasks", app), tony.json("pool", "status"), tony.json("version"),
                 tony.json("plan", "--executes", "true", "--src_dir", tmp_path / "s", *ROLE), tony.json("doctor", "--keys")]
    free = ("env.", "tasks.env.", "tasks.metrics.")  # names of variables and of metrics, not of members
    for doc in documents:
        for key in keys_of(doc):
            name = key.split(".")[-1]
            if not key.startswith(free) and name not in ("env",):
                assert any(x in page for x in (f'"{name}"', f"`{name}`", f"[].{name}`")), f"{key} is not documented"
    json.dumps(documents)
