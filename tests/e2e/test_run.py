# SPDX-License-Identifier: Apache-2.0
"""A job from its submission to its end, as the user of `tony` sees it."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time

import pytest
from conftest import BIN, wait_until

APP = re.compile(r"application_\d+_\d{4,}")


def until(path):
    """A command that waits until the test has made this file."""
    return f"until [ -e {path} ]; do sleep 0.02; done"


def test_run_succeeds(tony):
    r = tony.run("run", tony.workers("echo out; echo err >&2", n=2))
    assert r.returncode == 0, r.stderr
    app = APP.search(r.stdout).group()
    assert f"job {app} SUCCEEDED in" in r.stdout
    home = tony.in_history(app)
    assert f"logs      {home}/logs" in r.stdout and f"history   {home}" in r.stdout
    assert re.search(r"^\d\d:\d\d:\d\d worker: 2 succeeded$", r.stderr, re.M), r.stderr
    for task in ("worker:0", "worker:1"):
        assert tony.log(app, task) == "out\n"
        assert tony.log(app, task, "stderr") == "err\n"


def test_run_json_is_one_document(tony):
    r = tony.run("run", tony.workers("exit 3"), "--json")
    assert r.returncode == 1
    doc = json.loads(r.stdout)
    assert doc["state"] == "FAILED" and doc["exit_code"] == 1
    assert doc["cause"]["task"] == "worker:0" and doc["cause"]["exit_code"] == 3 and doc["cause"]["reason"] == "exited"


def test_submit_prints_the_id_and_nothing_else(tony):
    r = tony.run("submit", tony.workers("true"))
    assert r.returncode == 0 and r.stderr == ""
    app = r.stdout.strip()
    assert r.stdout == app + "\n" and APP.fullmatch(app)
    assert tony.run("wait", app).returncode == 0
    assert tony.json("submit", tony.workers("true"))["application_id"] > app


def test_an_accepted_job_is_on_disk(tony):
    """Once the id is printed, the job can be found."""
    app = tony.submit(tony.workers("sleep 600"))
    assert (tony.dir(app) / "job.conf").stat().st_size > 0
    assert tony.status(app)["application_id"] == app
    tony.ok("kill", app)


@pytest.mark.parametrize("command, code, cause", [
    ("true", 0, None),
    ("exit 7", 1, {"exit_code": 7, "reason": "exited"}),
    ("kill -SEGV $$", 1, {"signal": signal.SIGSEGV, "exit_code": None}),
    ("kill -KILL $$", 1, {"signal": signal.SIGKILL}),
    ("kill -TERM $$", 1, {"signal": signal.SIGTERM}),
    ("./not-there", 1, {"exit_code": 127}),
    ("exit 255", 1, {"exit_code": 255}),
])
def test_exit_codes(tony, command, code, cause):
    app = tony.submit(tony.workers(f"/bin/bash -c '{command}'"))
    assert tony.run("wait", app).returncode == code
    doc = tony.status(app)
    assert doc["exit_code"] == code
    if cause:
        assert {k: doc["cause"][k] for k in cause} == cause
        assert doc["cause"]["task"] == "worker:0"
    else:
        assert "cause" not in doc


def test_a_failure_prints_its_cause_tail_and_log(tony):
    script = "for i in $(seq 100); do echo line $i >&2; done; exit 9"
    path = tony.job_file({"worker": {"instances": 2, "command": "if [ $TASK_INDEX = 1 ]; then " + script + "; fi; sleep 600"}},
                         conf={"tony.application.fail-on-worker-failure-enabled": True})
    r = tony.run("run", path, "--output", "none")
    assert r.returncode == 1
    app = APP.search(r.stdout).group()
    assert "task 'worker:1' failed with exit code 9" in r.stdout
    assert "line 100" in r.stderr and "line 99" in r.stderr and "line 10\n" not in r.stderr
    log = re.search(r"its log   (\S+)", r.stderr).group(1)
    tony.in_history(app)
    assert open(log).read().endswith("line 100\n")
    assert log.endswith("/logs/worker-1/1/stderr")


def test_the_first_failure_by_time_is_the_cause(tony, tmp_path):
    """
    Three tasks fail at almost the same time. Tasks that end because the job is stopped are never the first
    cause.
    """
    first_is_gone = "until [ -s first ]; do sleep 0.005; done; while [ -d /proc/$(cat first) ]; do :; done;"
    command = (f"cd {tmp_path}; touch up$TASK_INDEX; case $TASK_INDEX in "
               "1) until [ -e up0 ] && [ -e up2 ] && [ -e up3 ]; do sleep 0.005; done; echo $$ > first; exit 11;; "
               f"2) {first_is_gone} exit 12;; 0) {first_is_gone} exit 10;; *) trap 'exit 66' TERM; sleep 600 & wait;; esac")
    path = tony.job_file({"worker": {"instances": 4, "command": command}},
                         conf={"tony.application.fail-on-worker-failure-enabled": True})
    app = tony.submit(path)
    assert tony.run("wait", app).returncode == 1
    doc = tony.status(app)
    assert (doc["cause"]["task"], doc["cause"]["exit_code"]) == ("worker:1", 11)
    assert tony.tasks(app)["worker:3"]["result"] == "FINISHED"


def test_application_timeout_is_3(tony):
    path = tony.workers("sleep 600", conf={"tony.application.timeout": 300})
    r = tony.run("run", path)
    assert r.returncode == 3
    assert "KILLED" in r.stdout


# ---- stopping ----

def started(tony, p):
    """The id of the job of a running `tony run`, once its task runs."""
    for line in p.stderr:
        found = APP.search(line)
        if found:
            break
    app = found.group()
    tony.await_state(app, "RUNNING")
    wait_until(lambda: all(t["state"] == "running" for t in tony.tasks(app).values()), "tasks running")
    return app


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_job(tony, signo):
    p = tony.start("run", tony.workers("sleep 600"))
    app = started(tony, p)
    p.send_signal(signo)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 3
    assert f"stopping job {app}" in err
    assert f"job {app} KILLED" in out
    assert tony.status(app)["state"] == "KILLED"


def test_a_second_ctrl_c_ends_the_wait_for_the_stop(tony, tmp_path):
    p = tony.start("run", tony.workers(f"trap '' TERM; {until(tmp_path / 'go')}", conf={"tony.task.kill-grace-ms": 600000}))
    app = started(tony, p)
    p.send_signal(signal.SIGINT)
    while "stopping job" not in p.stderr.readline():
        pass
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 3
    assert "not waiting" in err and out == ""
    assert tony.state(app) == "STOPPING"
    (tmp_path / "go").touch()
    assert tony.await_state(app, "KILLED")["exit_code"] == 3


def test_a_signal_before_the_job_runs(tony):
    """The signal may come before the job has started: the job is stopped nevertheless."""
    for delay in (0.0, 0.005, 0.02):  # no condition to wait for: different moments
        before = set(tony.jobs_on_disk())
        p = tony.start("run", tony.workers("sleep 600"))
        time.sleep(delay)
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=60)
        # Before the client has set its handler, SIGINT kills it. Afterwards it stops its job, and exits with 3.
        assert p.returncode in (3, -signal.SIGINT)
        for app in set(tony.jobs_on_disk()) - before:
            tony.await_state(app, "KILLED")


def test_kill(tony):
    app = tony.submit(tony.workers("sleep 600", n=2))
    tony.await_state(app, "RUNNING")
    r = tony.run("kill", app)
    assert r.returncode == 0 and "KILLED" in r.stderr
    assert tony.status(app)["state"] == "KILLED"
    r = tony.run("kill", app)
    assert r.returncode == 0 and "over already" in r.stderr
    assert tony.run("wait", app).returncode == 3


def test_kill_without_waiting(tony):
    app = tony.submit(tony.workers("sleep 600"))
    r = tony.run("kill", app, "--no-wait")
    assert r.returncode == 0
    tony.await_state(app, "KILLED")


def test_a_stop_is_term_then_kill(tony):
    app = tony.submit(tony.workers("trap 'echo got TERM; exit 0' TERM; echo ready; sleep 600 & wait", conf={"tony.task.kill-grace-ms": 600000}))
    wait_until(lambda: "ready" in tony.ok("logs", app), "the task's first line")
    tony.ok("kill", app)
    assert "got TERM" in tony.ok("logs", app)


def test_a_job_whose_owner_dies_is_stopped(tony):
    path = tony.workers("sleep 600", conf={"tony.client.away-limit": 300})
    p = tony.start("run", path)
    app = started(tony, p)
    p.kill()
    p.communicate()
    doc = tony.await_state(app, "KILLED")
    assert doc["message"]


def test_with_away_limit_minus_1_a_job_outlives_its_client(tony, tmp_path):
    path = tony.workers(until(tmp_path / "go"), conf={"tony.client.away-limit": -1})
    p = tony.start("run", path)
    app = started(tony, p)
    p.kill()
    p.communicate()
    (tmp_path / "go").touch()
    tony.await_state(app, "SUCCEEDED")


def test_a_submitted_job_has_no_owner(tony):
    app = tony.submit(tony.workers("sleep 0.7", conf={"tony.client.away-limit": 100}))
    assert tony.run("wait", app).returncode == 0


# ---- status and lists ----

def test_list(tony):
    apps = [tony.submit(tony.workers("true", name=f"list-{i}")) for i in range(3)]
    for app in apps:
        tony.run("wait", app)
    rows = tony.json("list")["jobs"]
    assert [r["application_id"] for r in rows[:3]] == apps[::-1]
    assert [r["name"] for r in rows[:3]] == ["list-2", "list-1", "list-0"]
    for r in rows[:3]:
        assert r["state"] == "SUCCEEDED" and r["tasks"] == 1
        assert r["submitted_ms"] <= r["started_ms"] <= r["ended_ms"]
        assert r["ran_ms"] == tony.status(r["application_id"])["ran_ms"]
    assert len(tony.json("list", "-n", "2")["jobs"]) == 2
    r = tony.run("list", "-n", "2")
    assert len(r.stdout.splitlines()) == 3 and "--all" in r.stderr
    live = tony.submit(tony.workers("sleep 600"))
    tony.await_state(live, "RUNNING")
    row = tony.json("list", "-n", "1")["jobs"][0]
    assert (row["application_id"], row["live"], row["state"]) == (live, True, "RUNNING")
    tony.ok("kill", live)


def test_a_number_or_last_stands_for_an_id(tony):
    app = tony.submit(tony.workers("true"))
    tony.run("wait", "last")
    number = int(app.rsplit("_", 1)[1])
    assert tony.status("last")["application_id"] == tony.status(number)["application_id"] == app


def test_status_of_a_live_and_of_a_finished_job_are_alike(tony, tmp_path):
    app = tony.submit(tony.workers(until(tmp_path / "go"), n=2))
    tony.await_state(app, "RUNNING")
    live = tony.status(app)
    (tmp_path / "go").touch()
    tony.run("wait", app)
    tony.in_history(app)
    ended = tony.status(app)
    assert set(live) <= set(ended)
    assert live["live"] is True and ended["live"] is False
    assert ended["directory"] == str(tony.home / "history" / app)
    assert [t["task"] for t in ended["tasks"]] == ["worker:0", "worker:1"]
    role = ended["roles"][0]
    assert (role["name"], role["instances"], role["succeeded"], role["running"]) == ("worker", 2, 2, 0)
    text = tony.ok("status", app)
    assert app in text and "SUCCEEDED" in text and "2 succeeded" in text
    text = tony.ok("tasks", app)
    assert "worker:1" in text and "exit 0" in text


# ---- logs ----

@pytest.fixture(scope="module")
def logged(common_tony):
    tony = common_tony
    command = "for i in 1 2 3; do echo out $TASK_INDEX.$i; echo err $TASK_INDEX.$i >&2; done"
    app = tony.submit(tony.workers(command, n=2))
    assert tony.run("wait", app).returncode == 0
    tony.in_history(app)
    return app


@pytest.mark.parametrize("args, expect", [
    (["worker:1", "--stdout"], "out 1.1\nout 1.2\nout 1.3\n"),
    (["worker:1", "--stderr"], "err 1.1\nerr 1.2\nerr 1.3\n"),
    (["worker:0", "--stderr", "-n", "2"], "err 0.2\nerr 0.3\n"),
    (["worker:0", "--stderr", "-n2"], "err 0.2\nerr 0.3\n"),
    (["worker:0", "--stdout", "-n", "0"], ""),
    (["worker:0", "--stdout", "-n", "99"], "out 0.1\nout 0.2\nout 0.3\n"),
    (["worker:0", "--stdout", "--attempt", "1"], "out 0.1\nout 0.2\nout 0.3\n"),
    (["worker:0", "--stdout", "-f"], "out 0.1\nout 0.2\nout 0.3\n"),
    (["worker:0", "-n", "1"], "==> worker:0 stdout <==\nout 0.3\n\n==> worker:0 stderr <==\nerr 0.3\n"),
    (["worker", "--stdout", "-n", "1"], "==> worker:0 stdout <==\nout 0.3\n\n==> worker:1 stdout <==\nout 1.3\n"),
    (["--stdout", "-n", "1"], "==> worker:0 stdout <==\nout 0.3\n\n==> worker:1 stdout <==\nout 1.3\n"),
])
def test_logs(tony, logged, args, expect):
    assert tony.ok("logs", logged, *args) == expect


@pytest.mark.parametrize("args, sentence", [
    (["worker:7"], "no task 'worker:7'"),
    (["chief"], "no role 'chief'"),
    (["worker:x"], "x"),
    (["worker:0", "--attempt", "9"], "attempt 9"),
])
def test_logs_of_an_unknown_task_or_attempt(tony, logged, args, sentence):
    r = tony.run("logs", logged, *args)
    assert r.returncode == 2 and sentence in r.stderr


def test_logs_follow_to_the_end(tony, tmp_path):
    app = tony.submit(tony.workers(f"echo step 1; {until(tmp_path / 'go')}; for i in 2 3 4 5; do sleep 0.1; echo step $i; done"))
    p = tony.start("logs", app, "worker:0", "--stdout", "-f")
    first = p.stdout.readline()
    assert first == "step 1\n"
    assert tony.state(app) == "RUNNING", "the first line came only at the end"
    (tmp_path / "go").touch()
    out, err = p.communicate(timeout=60)
    assert first + out == "".join(f"step {i}\n" for i in range(1, 6)), err
    assert p.returncode == 0


def watches_files(p):
    return any(os.readlink(f"/proc/{p.pid}/fd/{fd}") == "anon_inode:inotify" for fd in os.listdir(f"/proc/{p.pid}/fd"))


def test_logs_follow_before_the_task_has_started(tony, tmp_path):
    path = tony.job_file({"loader": {"instances": 1, "command": until(tmp_path / "go")},
                          "worker": {"instances": 1, "command": "echo hello"}},
                         conf={"tony.application.prepare-stage": "loader", "tony.application.training-stage": "worker"})
    app = tony.submit(path)
    p = tony.start("logs", app, "worker:0", "--stdout", "-f")
    wait_until(lambda: watches_files(p), "the logs are followed")
    (tmp_path / "go").touch()
    out, err = p.communicate(timeout=60)
    assert (out, p.returncode) == ("hello\n", 0), err


# ---- progress on a terminal ----

def on_a_terminal(tony, path, gate, awaited, rows=24, columns=80):
    """
    What `tony run` writes to a terminal and to its standard output. The tasks wait for the gate, which opens
    once `awaited` was printed.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    p = subprocess.Popen([str(BIN / "tony"), "run", str(path)], env={**tony.env, "TERM": "xterm"}, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
            if awaited in seen:
                gate.touch()
    except OSError:
        pass
    os.close(ours)
    out = p.communicate(timeout=60)[0].decode()
    assert p.returncode == 0
    return seen, out


def test_progress_in_place_on_a_terminal(tony, tmp_path):
    """If standard error is a terminal, the lines are redrawn, and removed at the end."""
    gate = tmp_path / "go"
    seen, out = on_a_terminal(tony, tony.workers(until(gate), n=2), gate, b"2 running")
    assert b"\033[K" in seen and seen.rstrip().endswith(b"\033[J")
    assert "SUCCEEDED" in out and "\033" not in out


def test_progress_fits_the_terminal(tony, tmp_path):
    """Lines that have scrolled away or wrapped could not be redrawn."""
    gate = tmp_path / "go"
    path = tony.job_file({f"role-with-a-long-name-{i}": {"instances": 1, "command": until(gate), "memory": "8m"} for i in range(9)})
    seen, _ = on_a_terminal(tony, path, gate, b"and 4 more roles", rows=8, columns=30)
    drawn = seen.split(b"\r\n", 1)[1]  # after "submitted ..."
    screens = [s for s in drawn.split(b"\033[J") if b"\033[K" in s]
    for s in screens:
        lines = re.sub(rb"\033\[[0-9]*[AKJ]|\r", b"", s).strip(b"\n").split(b"\n")
        assert len(lines) < 8 and max(map(len, lines)) < 30, lines


# ---- kinds of jobs ----

def test_a_single_command_without_roles(tony):
    r = tony.run("run", "--executes", "echo alone", "--conf", "tony.am.memory=32m", "--conf", "tony.application.framework=standalone")
    assert r.returncode == 0, r.stderr
    app = APP.search(r.stdout).group()
    assert "driver:0" in tony.tasks(app)
    assert "alone" in tony.ok("logs", app, "--stdout")


def test_a_job_in_xml(tony, tmp_path):
    (tmp_path / "tony.xml").write_text(
        "<configuration>"
        "<property><name>tony.ps.instances</name><value>1</value></property>"
        "<property><name>tony.ps.memory</name><value>32m</value></property>"
        "<property><name>tony.worker.instances</name><value>2</value></property>"
        "<property><name>tony.worker.memory</name><value>32m</value></property>"
        "<property><name>tony.application.framework</name><value>tensorflow</value></property>"
        "<property><name>tony.containers.command</name><value>"
        "echo $TF_CONFIG; if [ $JOB_NAME = ps ]; then sleep 60; fi</value></property>"
        "</configuration>")
    app = tony.ok("submit", cwd=tmp_path).strip()
    assert tony.run("wait", app).returncode == 0
    config = json.loads(tony.log(app, "worker:1"))
    assert config["task"] == {"type": "worker", "index": 1}
    assert set(config["cluster"]) == {"ps", "worker"}
    assert tony.tasks(app)["ps:0"]["result"] == "FINISHED"


def test_roles_with_any_name(tony):
    path = tony.job_file({"data_loader-2": {"instances": 2, "command": "echo $JOB_NAME:$TASK_INDEX"}})
    app = tony.submit(path)
    assert tony.run("wait", app).returncode == 0
    assert tony.log(app, "data_loader-2:1") == "data_loader-2:1\n"
    assert tony.ok("logs", app, "data_loader-2:1", "--stdout") == "data_loader-2:1\n"


def test_env_of_job_and_role(tony):
    path = tony.job_file({"worker": {"instances": 1, "command": "echo $A-$B-$C", "env": {"B": "role", "C": "x,y=z"}}},
                         env={"A": "job", "B": "job"})
    app = tony.submit(path)
    assert tony.run("wait", app).returncode == 0
    assert tony.log(app, "worker:0") == "job-role-x,y=z\n"


def test_hundred_tasks(tony):
    app = tony.submit(tony.workers("echo $TASK_INDEX of $TASK_NUM", n=100, role={"memory": "8m", "vcores": 0}))
    assert tony.run("wait", app).returncode == 0
    assert sorted(int(tony.log(app, f"worker:{i}").split()[0]) for i in range(100)) == list(range(100))


def test_twenty_jobs_at_once(tony):
    path = tony.workers("sleep 0.2", n=2, role={"memory": "8m"})
    ps = [tony.start("run", path) for _ in range(20)]
    assert [p.wait(60) for p in ps] == [0] * 20
    for p in ps:
        p.communicate()


# ---- secrets ----

def test_secrets_appear_nowhere(tony, tmp_path):
    secret = "hush-4711-hush"
    path = tony.workers("test \"$DB_PASSWORD\" = " + secret[:-5] + f"'-hush' && {until(tmp_path / 'go')}",
                        env={"DB_PASSWORD": secret})
    p = tony.start("run", path)
    app = started(tony, p)
    key = (tony.dir(app) / "key").read_bytes()
    assert (tony.dir(app) / "key").stat().st_mode & 0o777 == 0o600
    assert (tony.dir(app) / "job.conf").stat().st_mode & 0o077 == 0
    for line in tony.processes().values():
        assert secret not in line
    (tmp_path / "go").touch()
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0, err
    tony.in_history(app)
    texts = [out, err, tony.ok("status", app, "--json"), tony.ok("tasks", app, "--json"), tony.ok("plan", path, "--json")]
    for f in tony.dir(app).rglob("*"):
        if f.is_file() and f.name not in ("job.conf", "key"):
            texts.append(f.read_text(errors="replace"))
    texts.append((tony.home / "pool" / "pool.log").read_text())
    for text in texts:
        assert secret not in text and key.hex() not in text
    for d in [tony.home, tony.dir(app)]:
        assert d.stat().st_mode & 0o077 == 0


# ---- restarts of tony's own processes do not disturb the user ----

def test_run_continues_after_the_masters_death(tony, tmp_path):
    p = tony.start("run", tony.workers(f"{until(tmp_path / 'go')}; echo done"))
    app = started(tony, p)
    master = [pid for pid, line in tony.processes().items() if "tony-master" in line and app in line]
    assert master
    os.kill(master[0], signal.SIGKILL)
    (tmp_path / "go").touch()
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0, err
    assert "SUCCEEDED" in out
    assert tony.tasks(app)["worker:0"]["attempt"] == 1


def test_run_continues_after_the_pools_death(own_tony, tmp_path):
    tony = own_tony()
    p = tony.start("run", tony.workers(until(tmp_path / "go")))
    app = started(tony, p)
    os.kill(tony.pool_pid(), signal.SIGKILL)
    (tmp_path / "go").touch()
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0, err
    assert app in tony.ok("list")


