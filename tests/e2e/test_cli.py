# SPDX-License-Identifier: Apache-2.0
"""The command line: help, wrong use, output. These tests need no pool."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import threading

import pytest
from conftest import BIN, wait_until
from lib_jobs import make_lab  # noqa: F401 (fixture)

COMMANDS = ["run", "submit", "list", "status", "tasks", "metrics", "top", "why", "logs", "wait", "stop", "kill", "exec", "shell", "forward", "open", "cp", "notebook", "init", "plan", "pool", "allocate", "simulate", "doctor", "version",
            "completion", "help"]


def test_help_lists_every_command(tony):
    out = tony.ok("--help")
    assert out == tony.ok("help") == tony.ok("-h")
    for name in COMMANDS:
        assert f"\n  {name} " in out
    for later in ("portal",):
        assert f"\n  {later}" not in out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command(tony, name):
    out = tony.ok(name, "--help")
    assert f"Usage: tony {name}" in out
    assert "--help" in out
    assert max(map(len, out.splitlines())) <= 100
    assert out == tony.ok("help", name)


@pytest.mark.parametrize("args, sentence, hint", [
    ([], "no command given", "tony help"),
    (["runn"], "unknown command 'runn'", "tony run"),
    (["statsu", "x"], "unknown command 'statsu'", "tony status"),
    (["--verbose"], "unknown option '--verbose'", "tony help"),
    (["run", "--exectues", "x"], "unknown option '--exectues'", "--executes"),
    (["run", "-src_dri", "x"], "unknown option '-src_dri'", "--src_dir"),
    (["run", "--conf"], "option '--conf' needs a value", "usage"),
    (["run", "--src_dir", "a", "--src_dir", "b"], "given twice", "usage"),
    (["list", "--json=yes"], "takes no value", "usage"),
    (["list", "extra"], "argument 'extra' is one too many for tony list", "usage"),
    (["list", "-n", "0"], "-n", ""),
    (["list", "-n", "many"], "many", ""),
    (["status"], "tony status needs APP", "usage: tony status APP"),
    (["simulate", "a", "b"], "argument 'b' is one too many", "hint: tony simulate --help shows the usage"),
    (["cp", "last"], "tony cp needs TASK:PATH LOCAL", "usage: tony cp APP"),
    (["wait"], "tony wait needs APP", "usage"),
    (["notebook", "--gpus", "x"], "'--gpus' must be a whole number, not 'x'", ""),
    (["notebook", "--memory", "x"], "'--memory' must be a size", ""),
    (["cp"], "tony cp needs APP TASK:PATH LOCAL", "usage"),
    (["forward", "last"], "tony forward needs TASK [LOCAL:]PORT", "usage"),
    (["status", "foo"], "'foo' is not an application id", "application_"),
    (["status", "application_1_9999"], "application_1_9999", ""),
    (["status", "99999"], "no job with number 99999", "tony list"),
    (["logs", "a", "b", ":"], "':' is not a task", ""),
    (["status", "a", "b"], "argument 'b' is one too many for tony status", "usage"),
    (["pool"], "needs a subcommand", "status|start|stop"),
    (["pool", "stat"], "'stat'", "start"),
    (["pool", "status", "--force"], "--force", ""),
    (["help", "statuss"], "no command 'statuss'", "status"),
    (["completion", "csh"], "csh", "bash"),
    (["run"], "no job is given", "--executes"),
    (["run", "-n", "2", "python3", "train.py"], "argument 'train.py' is one too many for tony run", "tony run -n 2 -- python3 ..."),
    (["run", "python3", "train.py", "--lr", "0.1"], "unknown option '--lr'", "tony run -n 2 -- python3 ..."),
    (["run", "no-such.yaml", "--lr", "0.1"], "unknown option '--lr'", "--help lists"),
    (["run", "a.yaml", "--conf_file", "b.yaml"], "two job files", ""),
])
def test_misuse_exits_2_in_a_line(own_tony, args, sentence, hint):
    tony = own_tony()
    r = tony.run(*args)
    assert r.returncode == 2
    assert r.stdout == ""
    lines = r.stderr.splitlines()
    assert 1 <= len(lines) <= 2, r.stderr
    assert lines[0].startswith("tony: ") and sentence in lines[0].replace("'--lines'", "-n").replace("--lines", "-n")
    if hint:
        assert hint in lines[1]
    assert not tony.processes()


def test_a_long_usage_is_one_line_without_gaps(own_tony):
    r = own_tony().run("notebook", "x")
    assert "[--python_venv PATH] [--idle TIME]" in r.stderr


def test_version(tony):
    version = tony.json("version")["version"]
    assert tony.ok("version") == tony.ok("--version") == f"tony {version}\n"


def test_results_that_cannot_be_written_are_an_error(tony):
    with open("/dev/full", "w") as full:
        r = tony.run("help", stdout=full)
    assert r.returncode == 4
    assert "No space left" in r.stderr


@pytest.mark.parametrize("closed, code", [("<&-", 0), (">&-", 4), ("2>&-", 0), ("<&- 2>&-", 0), ("<&- >&- 2>&-", 4)])
def test_without_standard_descriptors(own_tony, closed, code):
    """
    cron and daemons start programs without these descriptors. tony must not open a file under one of these
    numbers and take it for the terminal.
    """
    tony = own_tony()
    shell = ["sh", "-c", f'"$0" run "$1" {closed}', str(tony.bin / "tony"), str(tony.workers("true"))]
    r = subprocess.run(shell, env=tony.env, capture_output=True, text=True, timeout=60)
    assert r.returncode == code, r.stderr
    assert ("cannot write the result" in r.stderr) == (closed == ">&-")
    assert tony.status("last")["state"] == "SUCCEEDED"
    assert subprocess.run(["sh", "-c", f'"$0" {closed}', str(tony.bin / "tony-pool")], env=tony.env, timeout=60).returncode == 0


def words(tony, *typed):
    return tony.ok("completion", "words", "--", *typed).split()


def test_completion_words(tony, tmp_path):
    assert words(tony, "st") == ["status", "stop"]
    assert "run" in words(tony, "") and words(tony, "nonsense", "") == []
    assert words(tony, "logs", "--std") == ["--stdout", "--stderr"]
    assert words(tony, "pool", "sto") == ["stop"]
    assert words(tony, "run", "") == [":files"]
    assert words(tony, "run", "--conf_file", "") == [":files"]
    assert words(tony, "completion", "") == ["bash", "zsh", "fish"]

    path = tmp_path / "two.yaml"
    path.write_text("command: 'true'\nframework: generic\n"
                    "roles: {chief: {instances: 1, memory: 16m}, worker: {instances: 3, memory: 16m}}\n")
    app = tony.submit(path)
    tony.ok("wait", app)
    assert words(tony, "status", "")[:2] == ["last", app]  # the newest job comes first
    assert words(tony, "status", "--json", "la") == ["last"]
    assert words(tony, "logs", app, "w") == ["worker:0", "worker:1", "worker:2"]
    assert words(tony, "logs", "-n", "5", "last", "") == ["chief:0", "worker:0", "worker:1", "worker:2"]
    assert words(tony, "resize", app, "worker=2", "") == ["chief=", "worker="]
    assert words(tony, "logs", "no-job", "w") == []


def test_bash_completion(tony):
    script = tony.ok("completion", "bash")

    def complete(*typed):
        """The completions that bash offers. It splits words at ':' and '=', as COMP_WORDS here does."""
        line = " ".join(f"'{w}'" for w in typed)
        r = subprocess.run(["bash", "-c", f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(typed) - 1}; compopt() {{ :; }}; _tony; "
                                          'echo "${COMPREPLY[@]}"'], capture_output=True, text=True, check=True, env=tony.env)
        return r.stdout.split()

    program = str(tony.bin / "tony")
    assert complete(program, "st") == ["status", "stop"]
    assert "--stderr" in complete(program, "logs", "--std")
    assert complete(program, "pool", "sto") == ["stop"]
    app = tony.submit(tony.workers("true", n=2))
    tony.ok("wait", app)
    assert complete(program, "logs", app, "worker") == ["worker:0", "worker:1"]
    assert complete(program, "logs", app, "worker", ":") == ["0", "1"]
    assert complete(program, "logs", app, "worker", ":", "1") == ["1"]
    assert complete(program, "resize", app, "worker", "=", "2", "wo") == ["worker="]


def fish_offers(line, env, _):
    r = subprocess.run(["fish", "--no-config", "-c", f"tony completion fish | source; complete -C '{line}'"], env=env, capture_output=True,
                       text=True, timeout=60, check=True)
    return r.stdout.split()


def zsh_offers(line, env, tmp_path):
    """zsh completes only on a terminal: type the line and the tab key there. compadd gets each word that is offered."""
    offered, done = tmp_path / "offered", tmp_path / "done"
    setup = "autoload -Uz compinit; compinit -u -D; source <(tony completion zsh)\n" \
            f'compadd() {{ local -a o; builtin compadd -O o "$@"; print -r -- $o >> {offered}; builtin compadd "$@" }}\n' \
            f"complete-it() {{ zle expand-or-complete; print > {done} }}; zle -N complete-it; bindkey '^I' complete-it\n"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("zsh", ["zsh", "-f", "-i"], env)

    def read_all():
        with contextlib.suppress(OSError):  # the terminal is closed
            while os.read(terminal, 65536):
                pass

    reader = threading.Thread(target=read_all)
    reader.start()
    try:
        os.write(terminal, f"{setup}{line}\t".encode())
        wait_until(done.exists, "zsh has completed the line")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        reader.join()
        os.close(terminal)
        done.unlink(missing_ok=True)
    words = offered.read_text().split()
    offered.unlink()
    return words


@pytest.mark.parametrize("offers", [fish_offers, zsh_offers])
def test_completion_in_other_shells(tony, tmp_path, offers):
    app = tony.submit(tony.workers("true", n=2))
    tony.ok("wait", app)
    env = {**tony.env, "PATH": f"{tony.bin}:{tony.env.get('PATH', '')}:/usr/bin:/bin"}

    def words_of(line):
        return set(offers(line, env, tmp_path))

    assert words_of("tony st") == {"status", "stop"}
    assert {"last", app} <= words_of("tony status ")
    assert words_of(f"tony logs {app} ") == {"worker:0", "worker:1"}
    assert words_of(f"tony logs {app} worker:") == {"worker:0", "worker:1"}
    assert words_of(f"tony resize {app} w") == {"worker="}


def test_doctor_json(own_tony):
    tony = own_tony()
    r = tony.run("doctor", "--json")
    doc = json.loads(r.stdout)
    assert r.returncode == (0 if doc["ok"] else 1)
    checks = {c["name"]: c for c in doc["checks"]}
    for name in ("cores", "memory", "cgroups", "open files", "tony-pool", "tony-executor", "TONY_HOME"):
        assert checks[name]["state"] in ("ok", "note", "wrong")
        assert checks[name]["value"]
        assert checks[name]["state"] == "ok" or checks[name]["hint"]
    assert isinstance(doc["gpus"], list)


def test_doctor_knows_that_cgroups_are_switched_off(own_tony):
    """doctor notes TONY_CGROUPS=none, with which the pool and its keepers use no control groups."""
    tony = own_tony()
    r = tony.run("doctor", "--json", env={"TONY_CGROUPS": "none"})
    checks = {c["name"]: c for c in json.loads(r.stdout)["checks"]}
    assert checks["cgroups"]["state"] == "note"
    assert "TONY_CGROUPS" in checks["cgroups"]["value"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user, who does not linger")
@pytest.mark.parametrize("kills", ["yes", "no"])
def test_doctor_knows_that_a_logout_ends_the_jobs(make_lab, kills):  # noqa: F811
    lab = make_lab(as_nobody=True)
    program = lab.base / "loginctl"
    program.write_text(f"#!/bin/sh\necho KillUserProcesses={kills}\n")
    program.chmod(0o755)
    checks = {c["name"]: c for c in json.loads(lab.run("doctor", "--json", env={"PATH": f"{lab.base}:{lab.env['PATH']}"}).stdout)["checks"]}
    assert ("logout" in checks) == (kills == "yes"), checks
    if kills == "yes":
        assert checks["logout"]["state"] == "note" and "jobs end when you log out" in checks["logout"]["value"]
        assert "loginctl enable-linger" in checks["logout"]["hint"]


def test_doctor_knows_that_the_running_pool_has_no_cgroups(make_lab):  # noqa: F811
    """The pool was started when its user had no control groups yet: before `loginctl enable-linger`, for example."""
    lab = make_lab()
    cgroups = lambda: next(c for c in json.loads(lab.run("doctor", "--json").stdout)["checks"] if c["name"] == "cgroups")  # noqa: E731
    before = cgroups()
    if before["state"] != "ok":
        pytest.skip("no control groups can be made here")
    assert lab.run("pool", "start", env={"TONY_CGROUPS": "none"}).returncode == 0
    found = cgroups()
    assert found["state"] == "note" and "the running pool" in found["value"] and "tony pool stop" in found["hint"], found
    lab.ok("pool", "stop")
    lab.ok("pool", "start")
    assert cgroups() == before


def test_doctor_finds_what_is_wrong(own_tony):
    tony = own_tony()
    tony.home.write_text("a file in the way")
    r = tony.run("doctor")
    assert r.returncode == 1
    assert "wrong  TONY_HOME" in r.stdout


def test_doctor_keys(tony):
    keys = {k["key"]: k for k in tony.json("doctor", "--keys")["keys"]}
    assert keys["tony.application.name"]["effect"] == "acts"
    assert keys["tony.yarn.queue"]["effect"] == "yarn"
    assert keys["tony.task.executor.jvm.opts"]["effect"] == "ignored"
    for key in keys.values():
        assert key["help"] and key["effect"] in ("acts", "yarn", "slurm", "later", "ignored", "refused")
    text = tony.ok("doctor", "--keys")
    for name in keys:
        assert name in text


@pytest.mark.parametrize("form", [["--conf", "tony.application.name=x"], ["-conf", "tony.application.name=x"],
                                  ["--conf=tony.application.name=x"], ["-conf=tony.application.name=x"]])
def test_forms_of_options(tony, form):
    path = tony.workers("true")
    assert tony.json("plan", path, *form)["name"] == "x"


def test_options_of_the_original(tony, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print(1)\n")
    doc = tony.json("plan", "-executes", "train.py", "-task_params", "--lr 0.1", "--src_dir", tmp_path / "src",
                    "--python_binary_path", "/usr/bin/python3", "--shell_env", "A=1", "--shell_env", "B=x,y", "--container_env",
                    "C=3", "--conf", "tony.worker.instances=2", "--conf", "tony.application.framework=pytorch", "--debug")
    assert [t["task"] for t in doc["tasks"]] == ["worker:0", "worker:1"]
    task = doc["tasks"][0]
    assert task["command"] == "/usr/bin/python3 train.py --lr 0.1"
    assert {k: task["env"][k] for k in "ABC"} == {"A": "1", "B": "x,y", "C": "3"}
    assert task["env"]["WORLD_SIZE"] == "2"
    assert [(s["kind"], s["source"], s["files"]) for s in doc["ship"]] == [("src", str(tmp_path / "src"), 1)]


@pytest.mark.parametrize("file, name", [
    ("hello.yaml", "hello"), ("job.yaml", "project"), ("tony.yml", "project"), ("a.b.yml", "a.b"), (".yaml", ".yaml"), ("odd", "odd"),
    ("tony.xml", "TensorFlowApplication"), (None, "project"), ("new\nline.yaml", "TensorFlowApplication"),
])
def test_a_job_without_a_name(tony, tmp_path, file, name):
    """
    The job's name is that of its file, or of its directory if the file has a common name. TonY's files keep
    TonY's name.
    """
    project = tmp_path / "project"
    project.mkdir()
    text = "command: 'true'\n"
    if file and file.endswith(".xml"):
        text = "<configuration><property><name>tony.containers.command</name><value>true</value></property></configuration>"
    if file:
        (project / file).write_text(text)
    args = ["--conf_file", file] if file else ["--executes", "true"]
    assert tony.json("plan", *args, cwd=project)["name"] == name
    if file:
        assert tony.json("plan", project / file)["name"] == name
    assert tony.json("plan", *args, "--conf", "tony.application.name=mine", cwd=project)["name"] == "mine"


def test_tony_xml_in_the_directory_is_used(tony, tmp_path):
    (tmp_path / "tony.xml").write_text("<configuration><property><name>tony.worker.instances</name><value>3</value></property>"
                                       "<property><name>tony.containers.command</name><value>true</value></property>"
                                       "</configuration>")
    doc = tony.json("plan", cwd=tmp_path)
    assert doc["demand"]["containers"] == 3


def test_plan_shows_what_would_be_and_does_nothing(tony, tmp_path):
    before = tony.jobs_on_disk()
    (tmp_path / "vocab.txt").write_text("words")
    path = tony.job_file({"ps": {"instances": 1, "command": "serve"},
                          "worker": {"instances": 2, "command": "train", "memory": "100m", "env": {"API_TOKEN": "hush"}}},
                         directory=tmp_path, framework="tensorflow", resources=["vocab.txt::words.txt"])
    doc = tony.json("plan", path)
    assert doc["demand"] == {"containers": 3, "memory_mib": 264, "gpus": 0, "vcores": 3}
    assert doc["capacity"]["memory_mib"] > 0 and doc["fits"] is True
    assert {c["role"]: c["kind"] for c in doc["containers"]} == {"ps": "untracked", "worker": "tracked"}
    env = doc["tasks"][1]["env"]
    assert env["API_TOKEN"] == "***"
    assert json.loads(env["TF_CONFIG"])["cluster"]["worker"][1].endswith("<port of worker 1>")
    assert [(s["kind"], s["name"]) for s in doc["ship"]] == [("file", "words.txt")]
    text = tony.ok("plan", path)
    assert "hush" not in text and "vocab.txt" in text and "train" in text
    assert tony.jobs_on_disk() == before


def test_plan_starts_the_pool_without_a_warning(own_tony):
    tony = own_tony()
    r = tony.run("plan", tony.workers("true"))
    assert r.returncode == 0 and r.stderr == ""


def test_programs_need_no_shared_library_but_libc():
    out = subprocess.run(["ldd", str(BIN / "tony")], capture_output=True, text=True).stdout  # "" for a static program
    for heavy in ("curl", "archive", "sqlite", "microhttpd", "xml2"):
        assert heavy not in out


def test_ps_shows_the_job_of_a_keeper_and_the_task_of_an_executor(tony):
    app = tony.submit(tony.workers("sleep 600", n=2))
    wait_until(lambda: sum(r["running"] for r in tony.status(app).get("roles", [])) == 2, "its tasks run")
    lines = tony.processes().values()
    assert [line for line in lines if line.startswith("tony-keeper ")] == [f"tony-keeper {app}"], lines
    assert {line for line in lines if line.startswith("tony-executor ") and app in line} == {f"tony-executor worker:{i} of {app}" for i in range(2)}, lines
    tony.ok("kill", app)
