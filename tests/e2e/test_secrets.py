# SPDX-License-Identifier: Apache-2.0
"""Secrets of a job reach its tasks, and nothing else: no file, no page, no output, no other process."""

import base64
import json
import os
import pathlib
import stat
import subprocess
import sys
import urllib.request

import pytest
from conftest import ROOT, wait_until
from lib_jobs import kill9, lab, make_lab, stat_of  # noqa: F401

sys.path.insert(0, str(ROOT / "tests"))
from lib_prometheus import free_port  # noqa: E402

ENV_VALUE, FILE_VALUE = "Zk3-from-a-variable-9041", "Zk3-from-a-file-5512"
VALUES = (ENV_VALUE, FILE_VALUE)
SOURCES = {"SOURCE_OF_A": ENV_VALUE}
# The task compares each secret with its expected value. The command names that in base64, so that the job file does not
# contain the secret.
CHECK = (f'test "$A_TOKEN" = "$(echo {base64.b64encode(ENV_VALUE.encode()).decode()} | base64 -d)" || exit 8; '
         f'test "$B" = "$(echo {base64.b64encode(FILE_VALUE.encode()).decode()} | base64 -d)" || exit 9; ')


def job(lab, command, **top):
    (lab.base / "b.secret").write_text(FILE_VALUE + "\n")
    (lab.base / "b.secret").chmod(0o600)
    return lab.workers(CHECK + command, secrets={"A_TOKEN": {"env": "SOURCE_OF_A"}, "B": {"file": "b.secret"}}, **top)


def holds(data):
    if isinstance(data, str):
        data = data.encode()
    return [v for v in VALUES if v.encode() in data]


def files_with_a_secret(*roots):
    found = {}
    for root in roots:
        for top, _, names in os.walk(root):
            for name in names:
                path = pathlib.Path(top, name)
                try:
                    if path.is_file() and holds(path.read_bytes()):
                        found[str(path.relative_to(root))] = path
                except OSError:  # the file was removed meanwhile
                    continue
    return found


def has_ended_or_is_of_a_task(q, scan):
    """Is this process below an executor? The command of a task has other programs do its work, and a process may end
    while this looks. scan: {pid: Process}"""
    if q.kind != "task":
        return False
    pid = q.parent
    while pid > 1:
        if pid in scan and scan[pid].kind != "task":
            return scan[pid].kind == "executor"
        stat = stat_of(pid)
        if stat is None:
            return True
        pid = stat[1]
    return False


def strangers_with_a_secret(lab):
    """Processes that have a value in argv, or in the environment and are neither of a task nor a client: its user's
    shell has the source of a secret in its own."""
    found = []
    scan = {q.pid: q for q in lab.processes_all()}
    for q in scan.values():
        for name in ("cmdline", "environ"):
            try:
                data = pathlib.Path(f"/proc/{q.pid}/{name}").read_bytes()
            except OSError:
                continue
            if holds(data) and (name == "cmdline" or q.kind != "client" and not has_ended_or_is_of_a_task(q, scan)):
                found.append((name, q.kind, q.line))
    return found


def test_they_reach_the_tasks_and_nothing_else(make_lab):
    """They are in no output of tony, on no page, and neither in the input nor in the environment of the command
    that runs at the end of the job."""
    port = free_port()
    lab = make_lab(site={"pool.page-port": port})
    path = job(lab, f"while [ ! -e {lab.base}/go ]; do sleep 0.05; done", n=2, **{"on-end": f"(cat; env) > {lab.base}/told"})
    p = lab.start("run", path, env=SOURCES)
    app = wait_until(lambda: next((x.name for x in (lab.home / "jobs").glob("application_*")), None), "the job")
    wait_until(lambda: lab.n_running(app) == 2, "both run")

    def look():
        found = files_with_a_secret(lab.home, lab.base / "run")
        assert list(found) == [f"jobs/{app}/secrets"], found
        assert stat.S_IMODE(found[f"jobs/{app}/secrets"].stat().st_mode) == 0o600
        assert not strangers_with_a_secret(lab)
        outputs = [lab.run(*args, env=SOURCES) for args in (
            ("status", app), ("status", app, "--json"), ("tasks", app, "--json"), ("list", "--json"), ("why", app), ("logs", app),
            ("pool", "status", "--json"), ("plan", path, "--json"), ("plan", path), ("metrics", app), ("metrics", app, "--csv"), ("top", app), ("top",), ("events", app), ("doctor", "--json"),
            ("exec", app, "worker:1", "--", "ps", "-ef"))]
        assert not [r.args for r in outputs if holds(r.stdout) or holds(r.stderr)]
        assert outputs[-1].returncode == 0 and "sleep" in outputs[-1].stdout
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as r:
            assert not holds(r.read())

    look()
    kill9(lab.one("master", app))
    wait_until(lambda: lab.status(app).get("epoch") == 2, "another master")
    look()
    (lab.base / "go").touch()
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0, out + err
    assert not holds(out) and not holds(err)
    lab.in_history(app)
    assert not files_with_a_secret(lab.home, lab.base / "run")
    told = wait_until(lambda: (lab.base / "told").exists() and (lab.base / "told").read_text(), "the command at the end has run")
    assert app in told and not holds(told)
    lab.settled()


def test_a_second_master_gives_them_to_new_attempts(lab):
    path = job(lab, f"echo $TONY_ATTEMPT >> {lab.base}/ran; while [ ! -e {lab.base}/go ]; do sleep 0.05; done",
               role={"restart": "on-failure", "max-restarts": 5, "restart-scope": "task"})
    app = lab.ok("submit", path, env=SOURCES).strip()
    wait_until(lambda: lab.n_running(app) == 1, "it runs")
    kill9(lab.one("master", app))
    wait_until(lambda: lab.status(app).get("epoch") == 2, "another master")
    ran = lambda: (lab.base / "ran").read_text().split() if (lab.base / "ran").exists() else []  # noqa: E731
    wait_until(lambda: ran() == ["1"], "the first attempt")
    kill9(*[q.pid for q in lab.processes_all(app) if q.kind == "task"])
    wait_until(lambda: ran() == ["1", "2"], "the second attempt has checked its secrets")
    (lab.base / "go").touch()
    assert lab.run("wait", app).returncode == 0, lab.ok("why", app)
    assert not files_with_a_secret(lab.home)


@pytest.mark.parametrize("end", ["waiting", "running", "keeper"])
def test_none_is_left_after_a_violent_end(make_lab, end):
    lab = make_lab(site={"pool.memory": "100m"})
    blocker = lab.submit(lab.workers("sleep 600", role={"memory": "90m"})) if end == "waiting" else None
    app = lab.ok("submit", job(lab, "sleep 600", role={"memory": "90m"}), env=SOURCES).strip()
    if end == "waiting":
        assert lab.state(app) == "WAITING"
    else:
        wait_until(lambda: lab.n_running(app) == 1, "it runs")
    if end == "keeper":
        kill9(lab.one("keeper", app))
    lab.ok("kill", app)
    lab.in_history(app)
    assert not files_with_a_secret(lab.home, lab.base / "run")
    if blocker:
        lab.ok("kill", blocker)
    lab.settled()


def test_options_and_refusals(lab):
    (lab.base / "f").write_text(FILE_VALUE)
    (lab.base / "f").chmod(0o644)
    r = lab.run("run", "--secret", "SOURCE_OF_A", "--secret", "A_TOKEN=env:SOURCE_OF_A", "--secret", "B=file:~/f", "--memory", "64m",
                "--framework", "generic", "--", "sh", "-c", CHECK + 'test -n "$SOURCE_OF_A"', env=SOURCES)
    assert r.returncode == 0, r.stderr
    assert "other users can read" in r.stderr and not holds(r.stdout + r.stderr)
    assert lab.json("status", "last")["state"] == "SUCCEEDED" and lab.run("events", "last").returncode == 0
    for args, words in ((("--secret", "A=env:NO_SUCH"), "'NO_SUCH' is not set"), (("--secret", "A=file:no-such-file"), "no-such-file"),
                        (("--secret", "A=" + ENV_VALUE), "must come from env:VARIABLE or file:PATH"),
                        (("--secret", "1=env:HOME"), "a name has letters"),
                        (("--conf", "tony.application.secrets=A=" + ENV_VALUE), "must come from")):
        for command in ("run", "plan"):
            r = lab.run(command, *args, "--memory", "64m", "--", "true")
            assert r.returncode == 2 and words in r.stderr and not holds(r.stdout + r.stderr), r.stderr
    plan = lab.ok("plan", "--json", "--secret", "PLAIN_NAME=env:SOURCE_OF_A", "--memory", "64m", "--", "true", env=SOURCES)
    assert json.loads(plan)["tasks"][0]["env"]["PLAIN_NAME"] == "***", plan


def test_a_pool_does_not_inherit_them(lab):
    """The client that starts the pool has the variable in its environment."""
    lab.ok("run", "--secret", "SOURCE_OF_A", "--memory", "64m", "--", "true", env=SOURCES)
    assert lab.pool_pid() and not strangers_with_a_secret(lab)


def test_secret_names_are_masked_in_the_history(lab):
    """Variables that the job file has in clear text, and whose names say what they are."""
    path = lab.workers("true", env={"MY_PASSWORD": ENV_VALUE, "PLAIN": "seen"})
    app = lab.ok("submit", path, "--shell_env", f"AWS_SECRET_ACCESS_KEY={FILE_VALUE}").strip()
    assert lab.run("wait", app).returncode == 0
    lab.in_history(app)
    assert not files_with_a_secret(lab.home)
    conf = (lab.home / "history" / app / "job.conf").read_text()
    assert "MY_PASSWORD=***" in conf and "PLAIN=seen" in conf and json.loads(conf)["submit"]["user"]
    assert subprocess.run(["grep", "-r", ENV_VALUE, lab.home], capture_output=True).returncode == 1


def test_errors_of_secrets_name_their_page(lab, tmp_path):
    (tmp_path / "empty").touch()
    for secret in ("NOT_SET_HERE", "A=file:/nope", f"A=file:{tmp_path}/empty"):
        r = lab.run("submit", "--memory", "64m", "--secret", secret, "--", "true")
        assert r.returncode == 2 and "docs/secrets.md" in r.stderr and "docs/job-files.md" not in r.stderr, r.stderr
